#include <cuda_runtime.h>

#include "core/augment/gpu/kernels.h"

// From entry points to elements: one thread decodes one segment; then one thread makes one block, one pixel, one output of a pass.
// The arithmetic is that of core/decode/segment/portable_kernels.cc, core/augment/filter.h and core/augment/pack.h.

namespace headrace::gpu {
namespace {

__constant__ uint8_t kNaturalOrder[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                          12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                          35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                          58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// As core/decode/segment/region_plan.h has them.
enum : uint8_t { kNone, kFancyH2V1, kFancyH2V2, kFancyH1V2, kReplicate };
// As core/decode/entry/jpeg_frame.h has them.
enum : uint32_t { kGrey, kYCbCr, kRgb, kCmyk, kYcck };

template <typename T>
__device__ void CopyShared(T* to, const T* from) {
  for (uint32_t i = threadIdx.x; i < sizeof(T) / 4; i += blockDim.x) {
    reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

// The bits of a part of a scan as it lies in the file: zeros behind the first marker or the end. For images with restart markers.
class FileReader {
 public:
  __device__ FileReader(const uint8_t* data, uint32_t begin, uint32_t end, uint32_t bit)
      : data_(data), begin_(begin), at_(begin), end_(end) {
    Refill();
    bits_ -= static_cast<int>(bit);
  }

  // The next 32 bits.
  __device__ uint32_t Window() {
    if (bits_ < 32) Refill();
    return static_cast<uint32_t>(buffer_ >> (bits_ - 32));
  }
  // At most 31.
  __device__ void Skip(uint32_t bits) { bits_ -= static_cast<int>(bits); }

  // Whether the next bit is one of the data.
  __device__ bool IsInside() const { return bits_ >= invented_; }
  // The byte that holds the next bit, and that bit's number in it.
  __device__ void Tell(uint32_t* byte, uint32_t* bit) const {
    uint32_t at = at_;
    int left = bits_ - invented_;
    for (; left > 0; left -= 8) {
      --at;
      if (at > begin_ && data_[at] == 0 && data_[at - 1] == 0xFF) --at;
    }
    *byte = at;
    *bit = static_cast<uint32_t>(-left);
  }
  // Passes what is left before the first marker or the end, and returns how many bits that was.
  __device__ uint32_t PassRest() {
    uint32_t passed = static_cast<uint32_t>(bits_ - invented_);
    while (!IsAtStop()) {
      Pass();
      passed += 8;
    }
    return passed;
  }
  __device__ uint32_t at() const { return at_; }

 private:
  __device__ void Refill() {
    while (bits_ <= 32) {
      for (int i = 0; i < 4; ++i) buffer_ = buffer_ << 8 | NextByte();
      bits_ += 32;
    }
  }
  __device__ bool IsAtStop() const {
    return at_ >= end_ || (data_[at_] == 0xFF && at_ + 1 < end_ && data_[at_ + 1] != 0);
  }
  __device__ uint8_t Pass() {
    const uint8_t byte = data_[at_];
    at_ += byte == 0xFF && at_ + 1 < end_ ? 2 : 1;
    return byte;
  }
  __device__ uint32_t NextByte() {
    if (!IsAtStop()) return Pass();
    invented_ += 8;
    return 0;
  }

  const uint8_t* data_;
  uint32_t begin_, at_, end_;
  uint64_t buffer_ = 0;
  int bits_ = 0, invented_ = 0;  // unread in the buffer; those of them that stand behind the data
};

// The bits of a segment without the zeros stuffed behind 0xFF, as Unstuff left them; zeros behind the limit.
class WordReader {
 public:
  __device__ WordReader(const uint32_t* words, uint32_t num_words, uint32_t bit)
      : words_(words), num_words_(num_words), high_(Swap(Word(0))), low_(Swap(Word(1))), used_(bit) {
    ahead_[0] = Word(2);
    ahead_[1] = Word(3);
  }

  __device__ uint32_t Window() const { return __funnelshift_l(low_, high_, used_); }
  __device__ void Skip(uint32_t bits) {
    used_ += bits;
    if (used_ < 32) return;
    used_ -= 32;
    high_ = low_;
    low_ = Swap(ahead_[0]);
    ahead_[0] = ahead_[1];
    ahead_[1] = Word(++first_ + 3);
  }
  // Bits from the first word on.
  __device__ uint32_t Tell() const { return first_ * 32 + used_; }

 private:
  __device__ static uint32_t Swap(uint32_t word) { return __byte_perm(word, 0, 0x0123); }
  __device__ uint32_t Word(uint32_t i) const { return i < num_words_ ? __ldg(words_ + i) : 0; }

  const uint32_t* words_;
  uint32_t num_words_, first_ = 0;
  uint32_t high_, low_, used_;
  uint32_t ahead_[2];  // as they lie in memory: nobody waits for them yet
};

// As in HuffmanTable::lookup, for a code longer than kLookupBits; 0: there is none.
__device__ uint32_t LongCode(const HuffmanTable& table, uint32_t head) {
  uint32_t bits = kLookupBits + 1;
#pragma unroll
  for (int longer = kLookupBits + 1; longer <= 16; ++longer) bits += head >= table.limit[longer];
  if (bits > 16) return 0;
  const uint32_t index = (head >> (16 - bits)) + static_cast<uint32_t>(table.offset[bits]);
  return bits << 8 | table.symbols[index & 255];
}

// What the threads of a block share.
struct Shared {
  Image image;
  HuffmanTable tables[kMaxTables];
  // Block n of an MCU: MCU m of row r, counted from the first row that is held, has it at coefficients' block
  // first + r · row_blocks + m · mcu_blocks.
  struct alignas(16) Place {
    uint32_t first, row_blocks, mcu_blocks;
    uint32_t component;  // UINT32_MAX: behind the last
    uint32_t dc, ac;     // bytes from the first table
    uint32_t unused[2];
  } places[kMaxBlocksPerMcu + 1];
  uint8_t natural[64];
};

__device__ void Fill(const Burst& burst, const Chunk& chunk, Shared* shared) {
  CopyShared(&shared->image, burst.images + chunk.image);
  if (threadIdx.x < 64) shared->natural[threadIdx.x] = kNaturalOrder[threadIdx.x];
  __syncthreads();
  const Image& image = shared->image;
  for (int i = 0; i < kMaxTables; ++i) {
    if (image.tables[i] != UINT32_MAX) CopyShared(shared->tables + i, burst.tables + image.tables[i]);
  }
  if (threadIdx.x == 0) {
    Shared::Place* next = shared->places;
    for (uint32_t c = 0; c < image.num_components; ++c) {
      const Component& component = image.components[c];
      for (uint32_t y = 0; y < component.v; ++y) {
        for (uint32_t x = 0; x < component.h; ++x) {
          constexpr uint32_t kBytes = sizeof(HuffmanTable);
          *next++ = {component.coefficients + y * component.blocks_per_row + x - image.first_mcu * component.h,
                     component.v * component.blocks_per_row, component.h, c, component.dc * kBytes, component.ac * kBytes, {}};
        }
      }
    }
    next->component = UINT32_MAX;
  }
  __syncthreads();
}

// DC predictions of four components, 16 bits each: in two registers, which an array with a changing index is not.
class Predictions {
 public:
  __device__ explicit Predictions(const int16_t* dc)
      : low_(static_cast<uint16_t>(dc[0]) | static_cast<uint32_t>(static_cast<uint16_t>(dc[1])) << 16),
        high_(static_cast<uint16_t>(dc[2]) | static_cast<uint32_t>(static_cast<uint16_t>(dc[3])) << 16) {}
  __device__ int16_t Add(uint32_t c, int difference) {
    const uint32_t sum = static_cast<uint16_t>(Get(c) + difference);
    // Bytes 4 and 5 of the pair (register, sum) take the place of the old value.
    const uint32_t both = c % 2 == 0 ? 0x3254 : 0x5410;
    if (c < 2) {
      low_ = __byte_perm(low_, sum, both);
    } else {
      high_ = __byte_perm(high_, sum, both);
    }
    return static_cast<int16_t>(sum);
  }
  __device__ int16_t Get(uint32_t c) const { return static_cast<int16_t>(__byte_perm(low_, high_, 0x10 + 0x22 * c)); }
  __device__ void Reset() { low_ = high_ = 0; }

 private:
  uint32_t low_, high_;
};

enum Outcome { kGoesOn, kDone, kDamaged };

// One thread's way through MCUs, a symbol a turn.
template <class Reader>
class Walk {
 public:
  __device__ Walk(const Burst& burst, const Shared& shared, const Run& run, const Reader& reader)
      : shared_(shared), coefficients_(burst.coefficients), row_(run.row - shared.image.first_row), dc_(run.dc), reader_(reader) {}

  // MCUs [mcu, end) of the row.
  __device__ void Begin(uint32_t mcu, uint32_t end) {
    mcu_ = mcu;
    end_ = end;
    number_ = 0;
    BeginBlock();
  }

  // The next symbol; kDone behind the last. No loop in here, and no way out before the end: the 32 threads of a warp, whose blocks
  // differ in length, must meet again behind every symbol.
  __device__ Outcome Step() {
    const uint32_t window = reader_.Window();
    uint32_t code = table_->lookup[window >> (32 - kLookupBits)];
    if (code == 0) code = LongCode(*table_, window >> 16);
    const uint32_t size = code & 15, run = code >> 4 & 15, bits = code >> 8;
    const uint32_t extra = window << bits;
    int value = static_cast<int>(extra >> 1 >> (31 - size));
    if (static_cast<int>(extra) >= 0) value -= (1 << size) - 1;
    reader_.Skip(bits + size);
    bool damaged = code == 0;
    uint32_t at = k_ + run;
    if (k_ == 0) {
      value = dc_.Add(component_, value);
      table_ = ac_table_;
      at = 0;
      k_ = 1;
    } else if (size == 0) {
      at = 64;
      k_ = run == 15 ? k_ + 16 : 64;
      damaged |= k_ > 64;
    } else {
      damaged |= at > 63;
      k_ = at + 1;
    }
    if (at < kept_) block_[shared_.natural[at]] = static_cast<int16_t>(value);
    if (damaged) return kDamaged;
    if (k_ < 64) return kGoesOn;
    if (shared_.places[++number_].component == UINT32_MAX) {
      number_ = 0;
      if (++mcu_ == end_) return kDone;
    }
    BeginBlock();
    return kGoesOn;
  }

  __device__ Reader& reader() { return reader_; }
  __device__ Predictions& dc() { return dc_; }

 private:
  __device__ void BeginBlock() {
    // Two wide loads, not six: some thread of a warp begins a block nearly every turn.
    const uint4 where = *reinterpret_cast<const uint4*>(&shared_.places[number_].first);
    const uint2 tables = *reinterpret_cast<const uint2*>(&shared_.places[number_].dc);
    component_ = where.w;
    const char* first_table = reinterpret_cast<const char*>(shared_.tables);
    table_ = reinterpret_cast<const HuffmanTable*>(first_table + tables.x);
    ac_table_ = reinterpret_cast<const HuffmanTable*>(first_table + tables.y);
    block_ = coefficients_ + uint64_t{where.x + row_ * where.y + mcu_ * where.z} * 64;
    kept_ = mcu_ >= shared_.image.first_mcu ? 64 : 0;
    k_ = 0;
  }

  const Shared& shared_;
  int16_t* const coefficients_;
  const uint32_t row_;
  Predictions dc_;
  Reader reader_;
  uint32_t mcu_ = 0, end_ = 0;
  uint32_t number_ = 0, component_ = 0, k_ = 0;  // the block in its MCU, its component, its next coefficient
  uint32_t kept_ = 0;                            // coefficients of the block that are needed: all or none
  const HuffmanTable* table_ = nullptr;
  const HuffmanTable* ac_table_ = nullptr;
  int16_t* block_ = nullptr;
};

__device__ bool HasDcOf(const Predictions& dc, const Image& image, const int16_t* expected) {
  for (uint32_t c = 0; c < image.num_components; ++c) {
    if (dc.Get(c) != expected[c]) return false;
  }
  return true;
}

// Removes the zeros stuffed behind 0xFF, a warp per segment, 128 bytes a turn.
__global__ void Unstuff(const Burst burst, const Chunk* chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  const Image& image = burst.images[chunk.image];
  if (image.restart_interval > 0) return;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t last = min(chunk.first + kRunsPerChunk, image.num_runs);
  for (uint32_t index = chunk.first + threadIdx.x / 32; index < last; index += blockDim.x / 32) {
    const Run& run = burst.runs[image.first_run + index];
    uint8_t* out = reinterpret_cast<uint8_t*>(burst.words + run.words);
    uint32_t length = 0, before = 0;  // the byte before this turn's
    bool marker = false;
    for (uint32_t at = run.begin; at < run.end; at += 128) {
      const uint32_t mine = at + 4 * lane;
      const uint32_t* words = reinterpret_cast<const uint32_t*>(burst.data) + (mine >> 2);
      const uint32_t word = __funnelshift_r(words[0], words[1], (mine & 3) * 8);
      const uint32_t left = mine < run.end ? min(run.end - mine, 4u) : 0;
      uint32_t previous = __shfl_up_sync(0xFFFFFFFF, word >> 24, 1);
      if (lane == 0) previous = before;
      before = __shfl_sync(0xFFFFFFFF, word >> 24, 31);
      uint32_t kept = 0, packed = 0;
      for (uint32_t i = 0; i < left; ++i) {
        const uint32_t byte = word >> (8 * i) & 0xFF;
        marker |= previous == 0xFF && byte != 0;
        if (previous != 0xFF || byte != 0) packed |= byte << (8 * kept++);
        previous = byte;
      }
      uint32_t sum = kept;
      for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(0xFFFFFFFF, sum, step);
        if (lane >= step) sum += other;
      }
      for (uint32_t i = 0; i < kept; ++i) out[length + sum - kept + i] = static_cast<uint8_t>(packed >> (8 * i));
      length += __shfl_sync(0xFFFFFFFF, sum, 31);
    }
    marker = __any_sync(0xFFFFFFFF, marker);
    if (lane < 4) out[length + lane] = 0;
    if (lane == 0) burst.lengths[image.first_run + index] = marker ? UINT32_MAX : length;
  }
}

// Does the segment end where the entry points say? By the rules of core/decode/segment/segment_runs.cc, as in the next.
__device__ bool EndsRight(const Image& image, const Run& run, uint32_t length, Walk<WordReader>* walk) {
  const uint32_t end = length * 8, at = walk->reader().Tell();
  if (at > end) return false;
  if (run.decoded < run.count) return true;  // what follows is not needed, and only its bytes are looked at
  if (run.next == 0) return end - at <= 7;
  return at + 8 == end + run.next_bit && HasDcOf(walk->dc(), image, run.next_dc);
}

// A segment in parts, between restart markers.
__device__ Outcome WalkParts(const Burst& burst, const Shared& shared, const Run& run) {
  const Image& image = shared.image;
  const uint8_t* data = burst.data;
  Walk<FileReader> walk(burst, shared, run, FileReader(data, run.begin, run.end, run.bit));
  for (uint32_t done = 0; done < run.decoded;) {
    const uint32_t index = run.row * image.mcus_per_row + run.mcu + done;
    const uint32_t left = image.restart_interval - index % image.restart_interval;
    const bool at_marker = left <= run.count - done;
    const uint32_t count = at_marker ? left : run.count - done, decoded = min(count, run.decoded - done);
    walk.Begin(run.mcu + done, run.mcu + done + decoded);
    Outcome outcome = kGoesOn;
    while (outcome == kGoesOn) outcome = walk.Step();
    FileReader& reader = walk.reader();
    if (outcome == kDamaged || !reader.IsInside()) return kDamaged;
    const bool to_end = done + count == run.count;
    uint32_t byte, bit;
    reader.Tell(&byte, &bit);
    const uint32_t rest = reader.PassRest();
    if (decoded == count) {
      if (at_marker || run.next == 0) {
        if (rest > 7) return kDamaged;
      } else if (byte != run.next || bit != run.next_bit || !HasDcOf(walk.dc(), image, run.next_dc)) {
        return kDamaged;
      }
    }
    done += count;
    if (!at_marker || (to_end && run.next == 0)) {
      if (reader.at() != run.end) return kDamaged;
      continue;
    }
    const uint32_t marker = 0xD0 + ((index + count) / image.restart_interval + 7) % 8;
    uint32_t at = reader.at();
    while (at + 1 < run.end && data[at] == 0xFF && data[at + 1] == 0xFF) ++at;
    if (at + 1 >= run.end || data[at] != 0xFF || data[at + 1] != marker || (to_end && at + 2 != run.next)) return kDamaged;
    reader = FileReader(data, at + 2, run.end, 0);
    walk.dc().Reset();
  }
  return kDone;
}

__global__ void __launch_bounds__(kRunsPerChunk) Entropy(const Burst burst, const Chunk* chunks) {
  __shared__ Shared shared;
  const Chunk chunk = chunks[blockIdx.x];
  Fill(burst, chunk, &shared);
  const Image& image = shared.image;
  const uint32_t index = chunk.first + threadIdx.x;
  const bool is_run = index < image.num_runs;
  const uint32_t number = image.first_run + min(index, image.num_runs - 1);
  const Run& run = burst.runs[number];
  bool damaged = false;
  if (image.restart_interval > 0) {
    damaged = is_run && WalkParts(burst, shared, run) == kDamaged;
  } else {
    const uint32_t length = burst.lengths[number];
    damaged = is_run && length == UINT32_MAX;
    Walk<WordReader> walk(burst, shared, run, WordReader(burst.words + run.words, (run.end - run.begin + 7) / 4, run.bit));
    walk.Begin(run.mcu, run.mcu + run.decoded);
    Outcome outcome = is_run && !damaged ? kGoesOn : kDone;
    while (outcome == kGoesOn) outcome = walk.Step();
    damaged |= outcome == kDamaged || (is_run && !damaged && !EndsRight(image, run, length, &walk));
  }
  if (damaged) burst.failed[chunk.image] = 1;
}

__device__ int Wrap(int v) { return static_cast<int16_t>(v); }
__device__ uint8_t Clamp(int v) { return static_cast<uint8_t>(min(max(v, 0), 255)); }

// Eight values, `kStep` apart. Sums of products wrap at 32 bits, three sums at 16; results saturate.
template <int kStep, int kShift>
__device__ void Transform(int* v) {
  const int in0 = v[0], in1 = v[kStep], in2 = v[2 * kStep], in3 = v[3 * kStep];
  const int in4 = v[4 * kStep], in5 = v[5 * kStep], in6 = v[6 * kStep], in7 = v[7 * kStep];
  const uint32_t round = 1u << (kShift - 1);
  const uint32_t sum04 = static_cast<uint32_t>(Wrap(in0 + in4)) * 8192u + round;
  const uint32_t difference04 = static_cast<uint32_t>(Wrap(in0 - in4)) * 8192u + round;
  const uint32_t even3 = static_cast<uint32_t>(in2 * (4433 + 6270) + in6 * 4433);
  const uint32_t even2 = static_cast<uint32_t>(in2 * 4433 + in6 * (4433 - 15137));
  const int sum37 = Wrap(in3 + in7), sum15 = Wrap(in1 + in5);
  const uint32_t z3 = static_cast<uint32_t>(sum37 * (9633 - 16069) + sum15 * 9633);
  const uint32_t z4 = static_cast<uint32_t>(sum37 * 9633 + sum15 * (9633 - 3196));
  const uint32_t odd[4] = {static_cast<uint32_t>(in7 * (2446 - 7373)) + static_cast<uint32_t>(in1 * -7373) + z3,
                           static_cast<uint32_t>(in5 * (16819 - 20995)) + static_cast<uint32_t>(in3 * -20995) + z4,
                           static_cast<uint32_t>(in5 * -20995) + static_cast<uint32_t>(in3 * (25172 - 20995)) + z3,
                           static_cast<uint32_t>(in7 * -7373) + static_cast<uint32_t>(in1 * (12299 - 7373)) + z4};
  const uint32_t even[4] = {sum04 + even3, difference04 + even2, difference04 - even2, sum04 - even3};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int high = static_cast<int>(even[i] + odd[3 - i]) >> kShift, low = static_cast<int>(even[i] - odd[3 - i]) >> kShift;
    v[i * kStep] = min(max(high, -32768), 32767);
    v[(7 - i) * kStep] = min(max(low, -32768), 32767);
  }
}

__global__ void __launch_bounds__(kBlocksPerChunk) Idct(const Burst burst, const Chunk* chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  const Image& image = burst.images[chunk.image];
  uint32_t block = chunk.first + threadIdx.x;
  if (block >= image.num_blocks) return;
  uint32_t c = 0;
  for (; block >= image.components[c].blocks; ++c) block -= image.components[c].blocks;
  const Component& component = image.components[c];
  const uint4* in = reinterpret_cast<const uint4*>(burst.coefficients + (uint64_t{component.coefficients} + block) * 64);
  const uint16_t* quant = burst.quant + uint64_t{component.quant} * 64;
  int v[64];
  uint32_t rest = 0;
#pragma unroll
  for (int y = 0; y < 8; ++y) {
    const uint4 row = in[y];
    const uint32_t words[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      if (y > 0) rest |= words[x];
      v[8 * y + 2 * x] = Wrap(static_cast<int16_t>(words[x]) * static_cast<int16_t>(quant[8 * y + 2 * x]));
      v[8 * y + 2 * x + 1] = Wrap(static_cast<int16_t>(words[x] >> 16) * static_cast<int16_t>(quant[8 * y + 2 * x + 1]));
    }
  }
  if (rest != 0) {
#pragma unroll
    for (int x = 0; x < 8; ++x) Transform<8, 11>(v + x);
  } else {  // libjpeg-turbo's shortcut, which wraps
#pragma unroll
    for (int x = 0; x < 8; ++x) {
      const int scaled = Wrap(static_cast<int>(static_cast<uint32_t>(v[x]) << 2));
#pragma unroll
      for (int y = 0; y < 8; ++y) v[8 * y + x] = scaled;
    }
  }
  uint8_t* out = burst.samples + component.plane + uint64_t{block / component.blocks_per_row} * 8 * component.stride +
                 block % component.blocks_per_row * 8;
#pragma unroll
  for (int y = 0; y < 8; ++y) {
    Transform<1, 18>(v + 8 * y);
    uint32_t words[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int* four = v + 8 * y + 4 * half;
      words[half] = Clamp(four[0] + 128) | Clamp(four[1] + 128) << 8 | Clamp(four[2] + 128) << 16 |
                    static_cast<uint32_t>(Clamp(four[3] + 128)) << 24;
    }
    *reinterpret_cast<uint2*>(out + uint64_t{component.stride} * y) = make_uint2(words[0], words[1]);
  }
}

// The component's value at a pixel of the stored image.
__device__ int SampleAt(const Burst& burst, const Component& component, int x, int y) {
  const uint8_t* plane = burst.samples + component.plane - component.first_column;
  const auto line_at = [&](int line) { return plane + int64_t{line - component.first_line} * component.stride; };
  if (component.upsampling == kNone) return line_at(y)[x];
  if (component.upsampling == kReplicate) return line_at(y / component.v_expand)[x / component.h_expand];
  const bool wide = component.upsampling != kFancyH1V2, high = component.upsampling != kFancyH2V1;
  const int column = wide ? x / 2 : x, line = high ? y / 2 : y;
  const int other = x % 2 == 0 ? max(column - 1, 0) : min(column + 1, component.width - 1);
  const uint8_t* near = line_at(line);
  if (!high) return (3 * near[column] + near[other] + 1 + x % 2) >> 2;
  const uint8_t* far = line_at(y % 2 == 0 ? max(line - 1, 0) : min(line + 1, component.height - 1));
  if (!wide) return (3 * near[column] + far[column] + 1 + y % 2) >> 2;
  return (3 * (3 * near[column] + far[column]) + 3 * near[other] + far[other] + 8 - x % 2) >> 4;
}

__device__ void ToRgb(const int* in, uint8_t* rgb) {
  const int luma = in[0], u = in[1] - 128, v = in[2] - 128;
  rgb[0] = Clamp(luma + ((91881 * v + 32768) >> 16));
  rgb[1] = Clamp(luma + ((-22554 * u - 46802 * v + 32768) >> 16));
  rgb[2] = Clamp(luma + ((116130 * u + 32768) >> 16));
}

// A pixel of the oriented image: upsampling, colour, orientation.
__device__ void Pixel(const Burst& burst, const Image& image, int out_x, int out_y, uint8_t* rgb) {
  int y = image.top + out_y, x = image.left + out_x;
  if (image.transpose) {
    const int swapped = x;
    x = y;
    y = swapped;
  }
  if (image.flip_rows) y = image.stored_height - 1 - y;
  if (image.flip_columns) x = image.stored_width - 1 - x;
  int in[kMaxComponents];
#pragma unroll
  for (uint32_t c = 0; c < kMaxComponents; ++c) {
    if (c < image.num_components) in[c] = SampleAt(burst, image.components[c], x, y);
  }
  if (image.color == kGrey) {
    rgb[0] = rgb[1] = rgb[2] = static_cast<uint8_t>(in[0]);
    return;
  }
  if (image.color == kYCbCr) return ToRgb(in, rgb);
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(in[c]);
  if (image.color == kYcck) ToRgb(in, rgb);
  if (image.color == kRgb) return;
  for (int c = 0; c < 3; ++c) {  // core/decode/cmyk.h; libjpeg gives 255 − R for YCCK
    const int ink = image.color == kYcck ? rgb[c] : 255 - rgb[c];
    const int product = ink * in[3] + 128;
    rgb[c] = static_cast<uint8_t>(max(in[3] - (((product >> 8) + product) >> 8), 0));
  }
}

// A thread makes four pixels of a line at a time.
__global__ void Pixels(const Burst burst, const Chunk* chunks) {
  __shared__ Image image;
  const Chunk chunk = chunks[blockIdx.x];
  CopyShared(&image, burst.images + chunk.image);
  __syncthreads();
  const uint32_t fours = (static_cast<uint32_t>(image.width) + 3) / 4;
  const uint32_t end = min(chunk.first + kPixelsPerChunk / 4, fours * static_cast<uint32_t>(image.height));
  for (uint32_t i = chunk.first + threadIdx.x; i < end; i += blockDim.x) {
    const uint32_t out_y = i / fours, out_x = i % fours * 4;
    uint8_t rgb[4][3];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // Behind the line's end the last pixel again: the planes are wide enough.
      Pixel(burst, image, min(static_cast<int>(out_x) + k, image.width - 1), static_cast<int>(out_y), rgb[k]);
    }
    uint8_t* out = burst.samples + image.pixels + uint64_t{out_y} * image.pixel_stride + out_x;
    const uint64_t plane = uint64_t{image.pixel_stride} * static_cast<uint32_t>(image.height);
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      *reinterpret_cast<uchar4*>(out + plane * c) = make_uchar4(rgb[0][c], rgb[1][c], rgb[2][c], rgb[3][c]);
    }
  }
}

// Three planes of bytes.
struct Planes {
  const uint8_t* bytes;
  uint32_t stride;
  uint64_t plane;
};

// Output (x, y) of one pass over the planes, by channel.
__device__ void Filter(const Burst& burst, const Planes& in, const Axis& axis, bool vertical, uint32_t x, uint32_t y, uint8_t* out) {
  if (axis.taps == 0) {
    const uint8_t* from = in.bytes + uint64_t{in.stride} * y + x;
    for (int c = 0; c < 3; ++c) out[c] = from[in.plane * c];
    return;
  }
  const uint32_t i = vertical ? y : x;
  const int32_t first = __ldg(burst.numbers + axis.start + i) - axis.origin;
  const int32_t* weights = burst.numbers + axis.weights + uint64_t{i} * axis.taps;
  const uint32_t step = vertical ? in.stride : 1;
  const uint8_t* from = vertical ? in.bytes + uint64_t{in.stride} * first + x : in.bytes + uint64_t{in.stride} * y + first;
  int32_t sums[3] = {1 << 21, 1 << 21, 1 << 21};
  for (uint32_t t = 0; t < axis.taps; ++t, from += step) {
    const int32_t weight = __ldg(weights + t);
    if (weight == 0) continue;  // behind an output's last weight may be no input
#pragma unroll
    for (int c = 0; c < 3; ++c) sums[c] += weight * from[in.plane * c];
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) out[c] = Clamp(sums[c] >> 22);
}

__device__ Planes PixelsOf(const Burst& burst, const Image& image) {
  return {burst.samples + image.pixels, image.pixel_stride, uint64_t{image.pixel_stride} * static_cast<uint32_t>(image.height)};
}

// Images both of whose axes change: the first pass, to bytes.
__global__ void FirstPass(const Burst burst, const Chunk* chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  const Image& image = burst.images[chunk.image];
  const bool vertical = image.vertical_first;
  const Axis axis = vertical ? image.vertical : image.horizontal;
  const uint32_t width = vertical ? static_cast<uint32_t>(image.width) : axis.outputs;
  const Planes in = PixelsOf(burst, image);
  const uint32_t end = min(chunk.first + kPixelsPerChunk, width * image.between_height);
  for (uint32_t i = chunk.first + threadIdx.x; i < end; i += blockDim.x) {
    const uint32_t x = i % width, y = i / width;
    uint8_t* out = burst.samples + image.between + uint64_t{image.between_stride} * y + x;
    uint8_t bytes[3];
    Filter(burst, in, axis, vertical, x, y, bytes);
    for (int c = 0; c < 3; ++c) out[uint64_t{image.between_stride} * image.between_height * c] = bytes[c];
  }
}

// The last pass, if any, flips, and the element of each byte.
__global__ void LastPass(const Burst burst, const Chunk* chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  const Image& image = burst.images[chunk.image];
  const bool both = image.horizontal.taps != 0 && image.vertical.taps != 0;
  const bool vertical = both ? !image.vertical_first : image.vertical.taps != 0;
  const Axis axis = vertical ? image.vertical : image.horizontal;
  Planes in = PixelsOf(burst, image);
  if (both) {
    in = {burst.samples + image.between, image.between_stride, uint64_t{image.between_stride} * image.between_height};
  }
  const uint32_t width = burst.out_width, height = burst.out_height, pixels = width * height;
  const uint32_t end = min(chunk.first + kPixelsPerChunk, pixels);
  for (uint32_t i = chunk.first + threadIdx.x; i < end; i += blockDim.x) {
    const uint32_t x = i % width, y = i / width;
    const uint32_t from_x = image.mirrored ? width - 1 - x : x, from_y = image.upside_down ? height - 1 - y : y;
    uint8_t bytes[3];
    Filter(burst, in, axis, vertical, from_x, from_y, bytes);
    for (int c = 0; c < 3; ++c) {
      const uint32_t value = burst.values[256 * c + bytes[c]];
      const uint64_t at = uint64_t{image.sample} * 3 * pixels + (burst.channels_last ? uint64_t{3} * i + c : uint64_t{pixels} * c + i);
      switch (burst.element) {
        case Element::kUInt8:
          static_cast<uint8_t*>(burst.out)[at] = static_cast<uint8_t>(value);
          break;
        case Element::kBits16:
          static_cast<uint16_t*>(burst.out)[at] = static_cast<uint16_t>(value);
          break;
        case Element::kFloat32:
          static_cast<uint32_t*>(burst.out)[at] = value;
          break;
      }
    }
  }
}

}  // namespace

int ClearBurst(const Burst& burst, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const cudaError_t error = cudaMemsetAsync(burst.coefficients, 0, burst.num_blocks * 64 * sizeof(int16_t), on);
  return error != cudaSuccess ? error : cudaMemsetAsync(burst.failed, 0, burst.num_images, on);
}

namespace {

void LaunchGroup(const Burst& burst, const Chunks* tasks, cudaStream_t stream) {
  const auto chunks = [&](Task task) { return tasks[task].chunks; };
  const auto size = [&](Task task) { return tasks[task].size; };
  if (size(kEntropy) > 0) {
    Unstuff<<<size(kEntropy), 256, 0, stream>>>(burst, chunks(kEntropy));
    Entropy<<<size(kEntropy), kRunsPerChunk, 0, stream>>>(burst, chunks(kEntropy));
  }
  if (size(kBlocks) > 0) Idct<<<size(kBlocks), kBlocksPerChunk, 0, stream>>>(burst, chunks(kBlocks));
  if (size(kPixels) > 0) Pixels<<<size(kPixels), 256, 0, stream>>>(burst, chunks(kPixels));
  if (size(kFirstPass) > 0) FirstPass<<<size(kFirstPass), 256, 0, stream>>>(burst, chunks(kFirstPass));
  if (size(kLastPass) > 0) LastPass<<<size(kLastPass), 256, 0, stream>>>(burst, chunks(kLastPass));
}

}  // namespace

int LaunchBurst(const Burst& burst, const Lanes& lanes) {
  const auto main = static_cast<cudaStream_t>(lanes.main), side = static_cast<cudaStream_t>(lanes.side);
  const auto fork = static_cast<cudaEvent_t>(lanes.fork), join = static_cast<cudaEvent_t>(lanes.join);
  cudaError_t error = cudaEventRecord(fork, main);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(side, fork, 0);
  if (error != cudaSuccess) return error;
  LaunchGroup(burst, burst.chunks[0], main);
  LaunchGroup(burst, burst.chunks[1], side);
  error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaEventRecord(join, side);
  return error != cudaSuccess ? error : cudaStreamWaitEvent(main, join, 0);
}

}  // namespace headrace::gpu
