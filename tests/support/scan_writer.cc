#include "tests/support/scan_writer.h"

#include <algorithm>
#include <numeric>

namespace headrace::testing {
namespace {

// A canonical code of the given symbols, whose lengths are drawn.
struct Code {
  std::array<int, 17> counts = {};
  std::vector<uint8_t> symbols;
  std::array<uint16_t, 256> bits = {};
  std::array<int, 256> length = {};

  Code(std::vector<uint8_t> all, int longest, std::mt19937* random) : symbols(std::move(all)) {
    std::shuffle(symbols.begin(), symbols.end(), *random);
    // At each length some codes are given out, and enough left for the rest; one is never used (all ones).
    uint32_t code = 0;
    size_t given = 0;
    for (int l = 1; l <= longest; ++l) {
      const size_t left = symbols.size() - given;
      const auto fits = [&](size_t n) {
        const uint64_t free = (uint64_t{1} << l) - code - n;
        return (free << (longest - l)) > left - n;
      };
      size_t n = l == longest ? left : std::min<size_t>(left, (*random)() % 4 == 0 ? (*random)() % 12 : 0);
      while (n > 0 && (n > (uint64_t{1} << l) - code || !fits(n))) --n;
      for (size_t i = 0; i < n; ++i, ++given, ++code) {
        bits[symbols[given]] = static_cast<uint16_t>(code);
        length[symbols[given]] = l;
      }
      counts[static_cast<size_t>(l)] = static_cast<int>(n);
      code <<= 1;
    }
  }
};

class Writer {
 public:
  Writer(const ScanOptions& options, std::mt19937* random) : options_(options), random_(*random) {
    std::vector<uint8_t> dc(12), ac = {0x00, 0xF0};
    std::iota(dc.begin(), dc.end(), 0);
    for (int run = 0; run < 16; ++run) {
      for (int size = 1; size <= 10; ++size) ac.push_back(static_cast<uint8_t>(run << 4 | size));
    }
    for (int i = 0; i < 2; ++i) {
      dc_.emplace_back(dc, std::max(8, options.longest_code), random);
      ac_.emplace_back(ac, options.longest_code, random);
    }
  }

  std::vector<uint8_t> Write() {
    const size_t n = options_.h.size();
    Marker(0xD8, {});
    std::vector<uint8_t> quant = {0};
    quant.resize(65, 1);
    Marker(0xDB, quant);
    std::vector<uint8_t> frame = {8, High(options_.height), Low(options_.height), High(options_.width),
                                  Low(options_.width), static_cast<uint8_t>(n)};
    std::vector<uint8_t> scan = {static_cast<uint8_t>(n)};
    for (size_t c = 0; c < n; ++c) {
      const auto id = static_cast<uint8_t>(c + 1);
      frame.insert(frame.end(), {id, static_cast<uint8_t>(options_.h[c] << 4 | options_.v[c]), 0});
      scan.insert(scan.end(), {id, static_cast<uint8_t>(c == 0 ? 0x00 : 0x11)});
    }
    scan.insert(scan.end(), {0, 63, 0});
    Marker(0xC0, frame);
    for (size_t i = 0; i < 2; ++i) {
      Table(static_cast<uint8_t>(i), dc_[i]);
      Table(static_cast<uint8_t>(0x10 | i), ac_[i]);
    }
    if (options_.restart_interval > 0) Marker(0xDD, {High(options_.restart_interval), Low(options_.restart_interval)});
    Marker(0xDA, scan);
    Mcus();
    Marker(0xD9, {});
    return out_;
  }

 private:
  static uint8_t High(int n) { return static_cast<uint8_t>(n >> 8); }
  static uint8_t Low(int n) { return static_cast<uint8_t>(n); }
  int Draw(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  void Marker(uint8_t marker, const std::vector<uint8_t>& body) {
    out_.insert(out_.end(), {0xFF, marker});
    if (marker == 0xD8 || marker == 0xD9) return;
    const int length = static_cast<int>(body.size()) + 2;
    out_.insert(out_.end(), {High(length), Low(length)});
    out_.insert(out_.end(), body.begin(), body.end());
  }

  void Table(uint8_t id, const Code& code) {
    std::vector<uint8_t> body = {id};
    for (size_t l = 1; l <= 16; ++l) body.push_back(static_cast<uint8_t>(code.counts[l]));
    body.insert(body.end(), code.symbols.begin(), code.symbols.end());
    Marker(0xC4, body);
  }

  void Mcus() {
    const int max_h = *std::max_element(options_.h.begin(), options_.h.end());
    const int max_v = *std::max_element(options_.v.begin(), options_.v.end());
    const bool one = options_.h.size() == 1;  // not interleaved: a block is an MCU
    const int across = one ? 8 : 8 * max_h, down = one ? 8 : 8 * max_v;
    const int mcus = ((options_.width + across - 1) / across) * ((options_.height + down - 1) / down);
    std::array<int, 4> dc = {};
    for (int mcu = 0; mcu < mcus; ++mcu) {
      if (options_.restart_interval > 0 && mcu > 0 && mcu % options_.restart_interval == 0) {
        Flush();
        out_.insert(out_.end(), {0xFF, static_cast<uint8_t>(0xD0 + (mcu / options_.restart_interval - 1) % 8)});
        dc = {};
      }
      for (size_t c = 0; c < options_.h.size(); ++c) {
        const int blocks = one ? 1 : options_.h[c] * options_.v[c];
        for (int i = 0; i < blocks; ++i) Block(c == 0 ? 0 : 1, &dc[c]);
      }
    }
    Flush();
  }

  void Block(size_t table, int* dc) {
    const int target = options_.many_ones ? std::min(*dc + Draw(64), 1023) : Draw(2048) - 1024;
    Value(dc_[table], 0, target - *dc);
    *dc = target;
    const int kind = Draw(4);  // empty, a few, many, up to the last coefficient
    for (int k = 1; k < 64;) {
      if (kind == 0 || (kind < 3 && Draw(kind == 1 ? 4 : 20) == 0)) {
        Put(ac_[table].bits[0x00], ac_[table].length[0x00]);
        return;
      }
      int run = std::min(Draw(8) == 0 ? Draw(40) : Draw(3), 63 - k);
      k += run + 1;
      for (; run > 15; run -= 16) Put(ac_[table].bits[0xF0], ac_[table].length[0xF0]);
      const int limit = 1 << (1 + Draw(10));
      const int value = options_.many_ones ? limit - 1 : Draw(limit - 1) + 1;
      Value(ac_[table], run, Draw(2) == 0 || options_.many_ones ? value : -value);
    }
  }

  // T.81, F.1.2: the size's code, then the value's bits.
  void Value(const Code& code, int run, int value) {
    int size = 0;
    while (std::abs(value) >> size != 0) ++size;
    const auto symbol = static_cast<size_t>(run << 4 | size);
    Put(code.bits[symbol], code.length[symbol]);
    Put(static_cast<uint32_t>(value < 0 ? value + (1 << size) - 1 : value), size);
  }

  void Put(uint32_t value, int count) {
    for (int i = count - 1; i >= 0; --i) {
      byte_ = static_cast<uint8_t>(byte_ << 1 | (value >> i & 1));
      if (++bits_ < 8) continue;
      out_.push_back(byte_);
      if (byte_ == 0xFF) out_.push_back(0);
      bits_ = 0;
    }
  }

  // Fills up the last byte with ones, and puts fill bytes behind it.
  void Flush() {
    while (bits_ != 0) Put(1, 1);
    if (options_.max_fill_bytes > 0) out_.insert(out_.end(), static_cast<size_t>(Draw(options_.max_fill_bytes + 1)), 0xFF);
  }

  const ScanOptions options_;
  std::mt19937& random_;
  std::vector<Code> dc_, ac_;
  std::vector<uint8_t> out_;
  uint8_t byte_ = 0;
  int bits_ = 0;
};

}  // namespace

std::vector<uint8_t> WriteRandomScan(const ScanOptions& options, std::mt19937* random) {
  return Writer(options, random).Write();
}

}  // namespace headrace::testing
