#include "tests/support/fake_gpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/augment/render.h"
#include "core/base/unique_fd.h"

namespace headrace::testing {
namespace {

constexpr uint64_t kGranularity = uint64_t{64} << 10;  // CUDA gives memory in pieces, too
constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kGpus = 2;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fake GPU: %s\n", what);
  std::abort();
}

}  // namespace

struct FakeGpus::Machine {
  std::mutex mutex;
  std::condition_variable changed;
  FakeGpuFaults faults;
  uint64_t hold = 0, may_finish = UINT64_MAX;  // its number, and bursts of each lane since it began
  std::array<FakeGpuCounts, kGpus> counts;
  std::map<const uint8_t*, uint64_t> pinned;  // bytes, by address

  bool IsPinned(const uint8_t* address, uint64_t bytes) const {
    auto after = pinned.upper_bound(address);
    return after != pinned.begin() && address + bytes <= (--after)->first + after->second;
  }
  template <typename Change>
  auto With(const Change& change) {
    const std::lock_guard lock(mutex);
    changed.notify_all();
    return change();
  }
  FakeGpuCounts Sum() const {
    FakeGpuCounts sum;
    for (const FakeGpuCounts& each : counts) {
      sum.gpus += each.gpus;
      sum.rings += each.rings;
      sum.bursts += each.bursts;
      sum.images += each.images;
      sum.mapped += each.mapped;
    }
    return sum;
  }
};

// A GPU's memory in use, shared with its rings.
using UsedBytes = std::shared_ptr<std::atomic<uint64_t>>;

class FakeRing : public DeviceRing {
 public:
  FakeRing(std::shared_ptr<FakeGpus::Machine> machine, int gpu, UsedBytes used, int num_slots, uint64_t slot_bytes, uint64_t bytes)
      : machine_(std::move(machine)), gpu_(gpu), used_(std::move(used)), slot_bytes_(slot_bytes), bytes_(bytes),
        fd_(::memfd_create("fake-gpu", MFD_CLOEXEC)), bursts_(static_cast<size_t>(num_slots)) {
    Require(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0, "ftruncate");
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    Require(base != MAP_FAILED, "mmap");
    base_ = static_cast<uint8_t*>(base);
    machine_->With([&] { ++machine_->counts[static_cast<size_t>(gpu_)].rings; });
  }
  ~FakeRing() override {
    for (const auto& bursts : bursts_) Require(bursts == 0, "a ring ends while a burst makes a batch of it");
    ::munmap(base_, bytes_);
    *used_ -= bytes_;
    machine_->With([&] { --machine_->counts[static_cast<size_t>(gpu_)].rings; });
  }

  uint64_t total_bytes() const override { return bytes_; }
  int fd() const override { return fd_.get(); }
  void Write(int slot, uint64_t offset, absl::Span<const uint8_t> bytes) override {
    std::memcpy(Place(slot, offset, bytes.size()), bytes.data(), bytes.size());
  }
  void Move(int slot, uint64_t to, uint64_t from, uint64_t bytes) override {
    Require(to + bytes <= from || from + bytes <= to, "the ranges of a move overlap");
    std::memcpy(Place(slot, to, bytes), Place(slot, from, bytes), bytes);
  }

  int gpu() const { return gpu_; }
  void BurstBegins(int slot) { ++bursts_.at(static_cast<size_t>(slot)); }
  void BurstEnds(int slot) { --bursts_.at(static_cast<size_t>(slot)); }
  uint8_t* Image(int slot, uint64_t offset, uint64_t bytes) {
    Require(offset + bytes <= slot_bytes_, "an image outside of its slot");
    return base_ + static_cast<uint64_t>(slot) * slot_bytes_ + offset;
  }

 private:
  uint8_t* Place(int slot, uint64_t offset, uint64_t bytes) {
    Require(bursts_.at(static_cast<size_t>(slot)) == 0, "somebody writes into a batch that a burst makes");
    return Image(slot, offset, bytes);
  }

  const std::shared_ptr<FakeGpus::Machine> machine_;
  const int gpu_;
  const UsedBytes used_;
  const uint64_t slot_bytes_, bytes_;
  const UniqueFd fd_;
  std::vector<std::atomic<int>> bursts_;  // per slot: on their way
  uint8_t* base_ = nullptr;
};

class FakeLane : public GpuLane {
 public:
  FakeLane(std::shared_ptr<FakeGpus::Machine> machine, int number) : machine_(std::move(machine)), number_(number) {}
  ~FakeLane() override { Require(bursts_.empty() && !begun_, "a GPU ends with a burst on its way"); }

  // The bytes that the CPU engine reads of it.
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample) override {
    CheckCall(/*begun=*/true);
    sample_ = sample;
    constexpr uint64_t kWholeFile = UINT64_MAX;
    std::optional<ByteRange> range;
    const auto read = [&](uint64_t begin, uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
      range = {begin, end};
      return absl::CancelledError();
    };
    EncodedImage image = {sample.info, kWholeFile, read};
    image.entries = sample.entries;
    image.frame = sample.frame;
    (void)renderer_.Render(image, recipe_, *sample.draw, nullptr, nullptr);
    if (!range || range->end == kWholeFile) return absl::UnimplementedError("not for a fake GPU");
    return range_ = *range;
  }

  absl::StatusOr<uint8_t*> Stage(uint64_t bytes) override {
    CheckCall(/*begun=*/true);
    staged_.resize(bytes);
    return staged_.data();
  }
  absl::Status AddStaged(uint64_t bytes) override {
    Require(bytes <= staged_.size(), "more bytes added than were staged");
    return Add({staged_.data(), bytes});
  }
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size) override {
    Require(machine_->With([&] { return machine_->IsPinned(bytes, size); }), "bytes that are not pinned");
    staged_.assign(bytes, bytes + size);
    Count([](FakeGpuCounts* counts) { ++counts->mapped; });
    return Add(staged_);
  }

  void Begin(const Recipe& recipe) override {
    CheckCall(/*begun=*/false);
    Require(bursts_.size() < kMaxBursts, "too many bursts on their way");
    recipe_ = recipe;
    const auto size = recipe.OutputSize();
    Require(size.ok(), "a recipe without a size");
    image_bytes_ = 3 * static_cast<uint64_t>(DTypeBytes(recipe.dtype)) * static_cast<uint64_t>((*size)[0]) *
                   static_cast<uint64_t>((*size)[1]);
    burst_ = Burst();
    begun_ = true;
  }

  void Launch(DeviceRing* ring, int slot) override {
    CheckCall(/*begun=*/true);
    burst_.ring = static_cast<FakeRing*>(ring);
    burst_.slot = slot;
    Require(burst_.ring->gpu() == number_, "another GPU's ring");
    burst_.ring->BurstBegins(slot);
    for (const Image& image : burst_.images) std::memset(Out(burst_, image), 0xEE, image_bytes_);  // nobody may look at it yet
    burst_.image_bytes = image_bytes_;
    bursts_.push_back(std::move(burst_));
    begun_ = false;
    Count([](FakeGpuCounts* counts) { ++counts->bursts; });
  }

  bool IsDone() override {
    CheckCall(/*begun=*/begun_);
    return !bursts_.empty() && machine_->With([&] { return MayFinish(); });
  }
  void Finish(std::vector<uint32_t>* left) override {
    CheckCall(/*begun=*/begun_);
    Require(!bursts_.empty(), "no burst is on its way");
    {
      std::unique_lock lock(machine_->mutex);
      machine_->changed.wait(lock, [&] { return MayFinish(); });
      ++finished_;
    }
    const Burst& burst = bursts_.front();
    uint64_t made = 0;
    for (const Image& image : burst.images) {
      if (image.left) {
        left->push_back(image.place);
        continue;
      }
      std::memcpy(Out(burst, image), image.pixels.data(), image.pixels.size());
      ++made;
    }
    burst.ring->BurstEnds(burst.slot);
    bursts_.pop_front();
    Count([&](FakeGpuCounts* counts) {
      --counts->bursts;
      counts->images += made;
    });
  }

 private:
  struct Image {
    uint32_t place;
    bool left;
    std::string pixels;
  };
  struct Burst {
    FakeRing* ring = nullptr;
    int slot = -1;
    std::vector<Image> images;
    uint64_t image_bytes = 0;
  };
  static uint8_t* Out(const Burst& burst, const Image& image) {
    return burst.ring->Image(burst.slot, image.place * image.pixels.size(), image.pixels.size());
  }
  absl::Status Add(absl::Span<const uint8_t> bytes) {
    CheckCall(/*begun=*/true);
    const GpuSample& sample = sample_;
    const FakeGpuFaults faults = machine_->With([&] { return machine_->faults; });
    if (burst_.images.size() >= faults.burst_samples) return absl::ResourceExhaustedError("the burst is full");
    if (faults.refused_of > 0 && sample.place % faults.refused_of == 0) return absl::UnimplementedError("refused");
    const auto read = [&](uint64_t begin, uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
      if (begin < range_.begin || end > range_.begin + bytes.size()) return absl::DataLossError("contradicts its entry points");
      return bytes.subspan(begin - range_.begin, end - begin);
    };
    EncodedImage image = {sample.info, range_.begin + bytes.size() + 1, read};
    image.entries = sample.entries;
    image.frame = sample.frame;
    std::string pixels(image_bytes_, '\0'), warning;
    HEADRACE_RETURN_IF_ERROR(renderer_.Render(image, recipe_, *sample.draw, pixels.data(), &warning));
    const bool left = faults.left_of > 0 && sample.place % faults.left_of == 0;
    burst_.images.push_back({sample.place, left, std::move(pixels)});
    return absl::OkStatus();
  }
  void CheckCall(bool begun) {
    if (thread_ == std::thread::id()) thread_ = std::this_thread::get_id();
    Require(thread_ == std::this_thread::get_id(), "called by two threads");
    Require(begun == begun_, begun ? "no burst was begun" : "a burst was begun and not launched");
  }
  bool MayFinish() {
    if (std::exchange(hold_, machine_->hold) != machine_->hold) finished_ = 0;
    return finished_ < machine_->may_finish;
  }
  template <typename Change>
  void Count(const Change& change) {
    machine_->With([&] { change(&machine_->counts[static_cast<size_t>(number_)]); });
  }

  const std::shared_ptr<FakeGpus::Machine> machine_;
  const int number_;
  std::thread::id thread_;
  SampleRenderer renderer_;
  Recipe recipe_;
  GpuSample sample_;             // planned last
  ByteRange range_;
  std::vector<uint8_t> staged_;
  uint64_t image_bytes_ = 0;
  bool begun_ = false;
  Burst burst_;               // begun
  std::deque<Burst> bursts_;  // on their way
  uint64_t hold_ = 0, finished_ = 0;  // bursts since that hold began
};

class FakeGpu : public Gpu {
 public:
  FakeGpu(std::shared_ptr<FakeGpus::Machine> machine, int number, uint64_t memory_bytes)
      : machine_(std::move(machine)), number_(number), memory_bytes_(memory_bytes) {
    for (FakeLane& lane : lanes_) pointers_.push_back(&lane);
    machine_->With([&] { ++machine_->counts[static_cast<size_t>(number_)].gpus; });
  }
  ~FakeGpu() override {
    machine_->With([&] { --machine_->counts[static_cast<size_t>(number_)].gpus; });
  }

  absl::StatusOr<std::unique_ptr<DeviceRing>> NewRing(int num_slots, uint64_t slot_bytes) override {
    const uint64_t bytes = (static_cast<uint64_t>(num_slots) * slot_bytes + kGranularity - 1) / kGranularity * kGranularity;
    const uint64_t before = used_->fetch_add(bytes);
    if (before + bytes > memory_bytes_) {
      *used_ -= bytes;
      return absl::ResourceExhaustedError(absl::StrCat(bytes, " of ", memory_bytes_, " bytes wanted, ", before, " in use"));
    }
    return std::make_unique<FakeRing>(machine_, number_, used_, num_slots, slot_bytes, bytes);
  }
  std::vector<GpuLane*> lanes() override { return pointers_; }
  absl::StatusOr<std::shared_ptr<void>> Pin(const uint8_t* address, uint64_t bytes) override {
    HEADRACE_RETURN_IF_ERROR(machine_->With([&] { return machine_->faults.pin; }));
    machine_->With([&] { machine_->pinned[address] = bytes; });
    return std::shared_ptr<void>(nullptr, [machine = machine_, address](void*) { machine->With([&] { machine->pinned.erase(address); }); });
  }
  uint64_t used_bytes() const override { return *used_; }

 private:
  const std::shared_ptr<FakeGpus::Machine> machine_;
  const int number_;
  const uint64_t memory_bytes_;
  const UsedBytes used_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::array<FakeLane, 2> lanes_ = {FakeLane(machine_, number_), FakeLane(machine_, number_)};
  std::vector<GpuLane*> pointers_;
};

FakeGpus::FakeGpus() : machine_(std::make_shared<Machine>()) {}

std::string FakeGpus::Uuid(int number) { return absl::StrCat(std::string(31, '0'), number); }

OpenGpu FakeGpus::opener() const {
  return [machine = machine_](const std::string& uuid, uint64_t memory_bytes,
                              const GpuLost&) -> absl::StatusOr<std::unique_ptr<Gpu>> {
    HEADRACE_RETURN_IF_ERROR(machine->With([&] { return machine->faults.open; }));
    for (int number = 0; number < kGpus; ++number) {
      if (Uuid(number) == uuid) return std::make_unique<FakeGpu>(machine, number, memory_bytes);
    }
    return absl::UnavailableError(absl::StrCat("there is no GPU ", uuid));
  };
}

void FakeGpus::Set(const FakeGpuFaults& faults) {
  machine_->With([&] { machine_->faults = faults; });
}

FakeGpuCounts FakeGpus::counts() const {
  return machine_->With([&] { return machine_->Sum(); });
}

FakeGpuCounts FakeGpus::counts(int number) const {
  return machine_->With([&] { return machine_->counts.at(static_cast<size_t>(number)); });
}

uint64_t FakeGpus::pinned_bytes() const {
  return machine_->With([&] {
    uint64_t sum = 0;
    for (const auto& [address, bytes] : machine_->pinned) sum += bytes;
    return sum;
  });
}

FakeGpus::Hold::Hold(FakeGpus* gpus, uint64_t bursts) : gpus_(gpus) {
  gpus_->machine_->With([&] {
    ++gpus_->machine_->hold;
    gpus_->machine_->may_finish = bursts;
  });
}

void FakeGpus::Hold::LetGo() {
  gpus_->machine_->With([&] { gpus_->machine_->may_finish = UINT64_MAX; });
}

bool FakeGpus::Hold::WaitForBursts(int count) {
  Machine& machine = *gpus_->machine_;
  std::unique_lock lock(machine.mutex);
  return machine.changed.wait_for(lock, kPatience, [&] { return machine.Sum().bursts >= count; });
}

}  // namespace headrace::testing
