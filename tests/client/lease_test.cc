// How long a batch lives: slots given back late, early, in any order, on any thread, never.
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/client/client_fixture.h"

namespace headrace {
namespace {

class LeaseTest : public testing::Test {
 protected:
  void SetUp() override {
    daemon_.emplace(address_, std::vector<std::string>{"--size", "1000"});
    client_ = OpenClient(address_);
    session_ = OpenSession(client_.get());
  }
  hr_session_stats Stats() {
    hr_session_stats stats;
    hr_session_get_stats(session_.get(), &stats);
    return stats;
  }
  const std::string address_ = FreshAddress();
  std::optional<FakeDaemonProcess> daemon_;
  ClientPtr client_;
  SessionPtr session_;
};

TEST_F(LeaseTest, KeepingEveryBatchOfAnEpochIsRightAndNeverADeadlock) {
  std::vector<Batch> all(250);
  for (Batch& batch : all) ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].index(0), static_cast<int64_t>(4 * i));
    EXPECT_TRUE(IsRight(all[i]));
  }
  // Four slots: three are leased, then everything is copied.
  EXPECT_EQ(all[2].get().leased, 1u);
  EXPECT_EQ(all[3].get().leased, 0u);
  EXPECT_EQ(Stats().copied_batches, 247u);
  EXPECT_EQ(Stats().slots_leased, 3u);
}

TEST_F(LeaseTest, ALoopThatDropsItsBatchesCopiesNothing) {
  Batch batch;
  for (int step = 0; step < 1000; ++step) ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  EXPECT_EQ(Stats().copied_batches, 0u);
}

TEST_F(LeaseTest, SmallFieldsPinNothing) {
  std::vector<hr_dl_managed_tensor*> labels;
  for (int step = 0; step < 250; ++step) {
    Batch batch;
    ASSERT_EQ(batch.Next(session_.get()), HR_OK);
    labels.push_back(batch.Take(1));
  }
  EXPECT_EQ(Stats().copied_batches, 0u);
  for (size_t i = 0; i < labels.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t*>(labels[i]->dl_tensor.data)[3],
              static_cast<int64_t>(10 * (4 * i + 3)));
    labels[i]->deleter(labels[i]);
  }
}

TEST_F(LeaseTest, BatchesHeldInRandomNumberAndOrderKeepTheirContents) {
  std::mt19937 random(1);
  std::vector<Batch> held;
  int64_t expected = 0;
  for (int step = 0; step < 3000; ++step) {
    Batch batch;
    ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.index(0), expected);
    expected = (expected + 4) % 1000;
    held.push_back(std::move(batch));
    std::shuffle(held.begin(), held.end(), random);
    while (held.size() > random() % 6) {
      ASSERT_TRUE(IsRight(held.back()));
      held.pop_back();
    }
  }
}

TEST_F(LeaseTest, DeletersRunOnOtherThreadsWhileTheNextBatchesAreTaken) {
  std::vector<std::thread> threads;
  std::atomic<hr_dl_managed_tensor*> handed[3] = {};
  std::atomic<bool> done{false};
  for (auto& slot : handed) {
    threads.emplace_back([&slot, &done] {
      while (!done) {
        if (hr_dl_managed_tensor* tensor = slot.exchange(nullptr)) tensor->deleter(tensor);
      }
    });
  }
  for (int64_t step = 0; step < 1000; ++step) {
    Batch batch;
    ASSERT_EQ(batch.Next(session_.get()), HR_OK);
    ASSERT_EQ(batch.index(0), 4 * (step % 250));
    ASSERT_TRUE(IsRight(batch));
    hr_dl_managed_tensor* before = handed[step % 3].exchange(batch.Take(0));
    if (before != nullptr) before->deleter(before);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : handed) {
    if (hr_dl_managed_tensor* tensor = slot.exchange(nullptr)) tensor->deleter(tensor);
  }
}

TEST_F(LeaseTest, BatchesOutliveTheirSessionTheClientAndTheDaemon) {
  Batch first, second;
  ASSERT_EQ(first.Next(session_.get()), HR_OK);
  ASSERT_EQ(second.Next(session_.get()), HR_OK);
  session_.reset();
  EXPECT_TRUE(IsRight(first));
  client_.reset();
  daemon_->Kill();
  EXPECT_TRUE(IsRight(first));
  EXPECT_TRUE(IsRight(second));
  const float* pixels = first.image();
  first.Drop();
  EXPECT_TRUE(IsRight(second));
  EXPECT_EQ(*pixels, 0.0f);  // a deleter unmaps nothing
}

// Whether the page of `address` is mapped.
bool IsMapped(const void* address) {
  unsigned char resident;
  const auto page = reinterpret_cast<uintptr_t>(address) & ~uintptr_t{4095};
  return mincore(reinterpret_cast<void*>(page), 1, &resident) == 0;
}

TEST_F(LeaseTest, AClosedSessionsRingIsUnmappedAtTheNextCallAfterItsLastLease) {
  const SessionPtr other = OpenSession(client_.get());
  Batch held, batch;
  ASSERT_EQ(held.Next(session_.get()), HR_OK);
  const float* pixels = held.image();
  session_.reset();
  ASSERT_EQ(batch.Next(other.get()), HR_OK);
  EXPECT_TRUE(IsMapped(pixels));
  held.Drop();
  EXPECT_TRUE(IsMapped(pixels));
  ASSERT_EQ(batch.Next(other.get()), HR_OK);
  EXPECT_FALSE(IsMapped(pixels));
}

// As a caller takes batches that it copies into a GPU's memory.
class OnwardTest : public LeaseTest {
 protected:
  void SetUp() override {
    LeaseTest::SetUp();
    hr_session_lease_all(session_.get());
  }
};

TEST_F(OnwardTest, EveryFieldIsAViewOfItsSlotAndEverySlotIsLeased) {
  std::vector<Batch> all(4);
  for (Batch& batch : all) {
    ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.get().leased, 1u);
    const auto* image = reinterpret_cast<const uint8_t*>(batch.image());
    const hr_open_answer& info = *hr_session_info(session_.get());
    for (uint32_t i = 0; i < info.num_fields; ++i) {
      const auto* data = static_cast<const uint8_t*>(batch.get().fields[i]->dl_tensor.data);
      EXPECT_EQ(data - image, static_cast<ptrdiff_t>(info.fields[i].offset) -
                                  static_cast<ptrdiff_t>(info.fields[0].offset));
    }
  }
  EXPECT_EQ(Stats().slots_leased, 4u);
  EXPECT_EQ(Stats().copied_batches, 0u);
  hr_batch none;
  EXPECT_EQ(hr_session_try_next(session_.get(), &none, HR_BATCH_MAX_FIELDS), 0);
  EXPECT_EQ(hr_session_wait(session_.get(), 50), HR_DEADLINE_EXCEEDED);
  for (const Batch& batch : all) EXPECT_TRUE(IsRight(batch));
  const float* first = all[0].image();
  all.front().Drop();  // one slot comes back, and with it one batch
  Batch next;
  ASSERT_EQ(next.Next(session_.get()), HR_OK);
  EXPECT_EQ(next.image(), first);
  EXPECT_EQ(next.index(0), 16);
  EXPECT_TRUE(IsRight(next));
}

TEST_F(OnwardTest, IsKeptBeyondADaemonsDeath) {
  Batch first, second;
  ASSERT_EQ(first.Next(session_.get()), HR_OK);
  daemon_->Kill();
  daemon_.emplace(address_, std::vector<std::string>{"--size", "1000"});
  hr_session_stats stats;
  do {
    ASSERT_EQ(second.Next(session_.get()), HR_OK) << hr_last_error();
    hr_session_get_stats(session_.get(), &stats);
  } while (stats.reconnections == 0);
  std::vector<Batch> all(3);
  for (Batch& batch : all) ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(Stats().slots_leased, 4u);
}

TEST_F(OnwardTest, AHeldRingStaysMappedUntilItWasReleasedAsOftenAsItWasHeld) {
  Batch batch;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  const float* pixels = batch.image();
  hr_ring* ring = hr_session_hold_ring(session_.get());
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(hr_session_hold_ring(session_.get()), ring);
  batch.Drop();
  session_.reset();
  EXPECT_TRUE(IsMapped(pixels));
  hr_ring_release(ring);
  EXPECT_TRUE(IsMapped(pixels));
  hr_ring_release(ring);
  EXPECT_FALSE(IsMapped(pixels));
}

TEST_F(OnwardTest, AHeldRingWithLivingTensorsStaysMappedUntilTheyAreGone) {
  const SessionPtr other = OpenSession(client_.get());
  Batch batch, next;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  const float* pixels = batch.image();
  hr_ring* ring = hr_session_hold_ring(session_.get());
  session_.reset();
  hr_ring_release(ring);
  EXPECT_TRUE(IsRight(batch));
  batch.Drop();
  EXPECT_TRUE(IsMapped(pixels));
  ASSERT_EQ(next.Next(other.get()), HR_OK);
  EXPECT_FALSE(IsMapped(pixels));
}

TEST_F(OnwardTest, AHeldRingIsItsOwnAfterAReconnectionAndOutlivesIt) {
  Batch batch;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  const float* pixels = batch.image();
  hr_ring* first = hr_session_hold_ring(session_.get());
  daemon_->Kill();
  daemon_.emplace(address_, std::vector<std::string>{"--size", "1000"});
  do ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
  while (Stats().reconnections == 0);
  hr_ring* second = hr_session_hold_ring(session_.get());
  EXPECT_NE(second, first);
  EXPECT_TRUE(IsMapped(pixels));
  hr_ring_release(first);
  EXPECT_FALSE(IsMapped(pixels));
  hr_ring_release(second);
  EXPECT_TRUE(IsMapped(batch.image()));
}

TEST_F(OnwardTest, AForkedChildReleasesNothing) {
  Batch batch;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  const float* pixels = batch.image();
  hr_ring* ring = hr_session_hold_ring(session_.get());
  const pid_t child = fork();
  if (child == 0) {
    hr_ring_release(ring);
    hr_ring_release(ring);
    _exit(hr_session_hold_ring(session_.get()) == nullptr && IsMapped(pixels) ? 0 : 1);
  }
  int state = 0;
  waitpid(child, &state, 0);
  EXPECT_EQ(state, 0);
  hr_ring_release(ring);
}

TEST_F(LeaseTest, InPlaceWorkOnABatchDoesNotShowInLaterOnes) {
  for (int step = 0; step < 50; ++step) {
    Batch batch;
    ASSERT_EQ(batch.Next(session_.get()), HR_OK);
    ASSERT_TRUE(IsRight(batch));
    const hr_dl_tensor& image = batch.get().fields[0]->dl_tensor;
    memset(image.data, 0xAB, 4 * 4 * 12288);
  }
}

TEST_F(LeaseTest, AfterShutdownDeletersAreHarmless) {
  // In a child that execs nothing: hr_shutdown is for the rest of a process.
  const pid_t child = fork();
  if (child == 0) {
    const ClientPtr client = OpenClient(address_);
    const SessionPtr session = OpenSession(client.get());
    Batch first, second;
    if (first.Next(session.get()) != HR_OK || second.Next(session.get()) != HR_OK) _exit(1);
    hr_shutdown();
    first.Drop();
    if (!IsRight(second)) _exit(2);
    second.Drop();
    hr_session_stats stats;
    Batch third;
    if (third.Next(session.get()) != HR_OK || !IsRight(third)) _exit(3);
    hr_session_get_stats(session.get(), &stats);
    _exit(stats.slots_leased == 3 ? 0
                                  : 4);  // what was dropped after the shutdown was not given back
  }
  int state = 0;
  waitpid(child, &state, 0);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
}

// The few objects of Python that the library makes: capsules and tuples.
struct Object {
  const char* name;
  void* pointer;
  void (*destroy)(void*);
  std::vector<Object*> items;
};
constexpr int kManyCapsules = 99;
int capsules_left = kManyCapsules;  // before there is no memory for another

Object* AsObject(void* object) { return static_cast<Object*>(object); }

void* CallWithOneArgument(void* function, ...) {
  va_list arguments;
  va_start(arguments, function);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return reinterpret_cast<void* (*)(void*)>(function)(argument);
}

const hr_python_functions kPython = {
    .PyCapsule_IsValid = [](void* capsule, const char* name) -> int {
      return strcmp(AsObject(capsule)->name, name) == 0;
    },
    .PyCapsule_GetPointer = [](void* capsule,
                               const char*) { return AsObject(capsule)->pointer; },
    .PyCapsule_New = [](void* pointer, const char* name, void (*destroy)(void*)) -> void* {
      return capsules_left-- > 0 ? new Object{name, pointer, destroy, {}} : nullptr;
    },
    .PyTuple_New = [](intptr_t size) -> void* {
      return new Object{"", nullptr, nullptr, std::vector<Object*>(static_cast<size_t>(size))};
    },
    .PyTuple_SetItem = [](void* tuple, intptr_t i, void* item) -> int {
      AsObject(tuple)->items.at(static_cast<size_t>(i)) = AsObject(item);
      return 0;
    },
    .Py_DecRef =
        [](void* object) {
          for (Object* item : AsObject(object)->items) {
            if (item != nullptr) kPython.Py_DecRef(item);
          }
          if (AsObject(object)->destroy != nullptr) AsObject(object)->destroy(object);
          delete AsObject(object);
        },
    .PyObject_CallFunctionObjArgs = CallWithOneArgument,
    .PyErr_NoMemory = []() -> void* { return nullptr; }};

class PythonTest : public LeaseTest {
 protected:
  PythonTest() {
    hr_set_python_functions(&kPython);
    capsules_left = kManyCapsules;
  }

  // As a Python loop takes a batch; null when there was no memory, or `convert` gave null.
  Object* Take(uint32_t max_fields, int memory = kManyCapsules, void* (*convert)(void*) = nullptr) {
    capsules_left = memory;
    EXPECT_EQ(hr_session_wait(session_.get(), kTimeoutMs), HR_OK);
    return AsObject(hr_session_try_next_capsules(session_.get(), &batch_, max_fields,
                                                 reinterpret_cast<void*>(convert)));
  }
  hr_batch batch_;
};

TEST_F(PythonTest, ACapsuleThatNobodyConsumedGivesItsSlotBack) {
  for (int step = 0; step < 20; ++step) {
    Object* tuple = Take(2);
    ASSERT_EQ(tuple->items.size(), 2u);
    EXPECT_EQ(batch_.num_fields, 2u);
    kPython.Py_DecRef(tuple);
  }
  EXPECT_EQ(Stats().copied_batches, 0u);
}

TEST_F(PythonTest, AConsumedCapsulesTensorStays) {
  Object* tuple = Take(1);
  ASSERT_EQ(tuple->items.size(), 1u);
  tuple->items.front()->name = "used_dltensor";
  kPython.Py_DecRef(tuple);
  Batch next;
  ASSERT_EQ(next.Next(session_.get()), HR_OK);
  EXPECT_EQ(Stats().slots_leased, 2u);
  batch_.fields[0]->deleter(batch_.fields[0]);
}

TEST_F(PythonTest, WithoutMemoryForCapsulesNothingIsLeaked) {
  for (int step = 0; step < 20; ++step) EXPECT_EQ(Take(HR_BATCH_MAX_FIELDS, step % 2), nullptr);
  Batch batch;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  EXPECT_EQ(Stats().slots_leased, 1u);
}

TEST_F(PythonTest, AConverterConsumesTheCapsules) {
  const auto consume = [](void* capsule) -> void* {
    AsObject(capsule)->name = "used_dltensor";
    return new Object{"a tensor", AsObject(capsule)->pointer, nullptr, {}};
  };
  Object* tuple = Take(2, kManyCapsules, consume);
  ASSERT_EQ(tuple->items.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_STREQ(tuple->items[i]->name, "a tensor");
    EXPECT_EQ(tuple->items[i]->pointer, batch_.fields[i]);
  }
  kPython.Py_DecRef(tuple);
  Batch next;
  ASSERT_EQ(next.Next(session_.get()), HR_OK);
  EXPECT_EQ(Stats().slots_leased, 2u);  // the converter's tensors are still there
  for (uint32_t i = 0; i < 2; ++i) batch_.fields[i]->deleter(batch_.fields[i]);
}

TEST_F(PythonTest, AConverterThatFailsLeaksNothing) {
  static int calls;
  calls = 0;
  const auto fail_every_second = [](void* capsule) -> void* {
    if (++calls % 2 == 0) return nullptr;
    AsObject(capsule)->name = "used_dltensor";
    return new Object{"dltensor", AsObject(capsule)->pointer, AsObject(capsule)->destroy, {}};
  };
  for (int step = 0; step < 20; ++step) EXPECT_EQ(Take(3, kManyCapsules, fail_every_second), nullptr);
  EXPECT_EQ(calls, 40);
  Batch batch;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  EXPECT_EQ(Stats().slots_leased, 1u);
}

TEST_F(PythonTest, WithoutAReadyBatchTheTupleIsEmpty) {
  daemon_->Kill();
  int ready = 0;
  for (size_t size = 1; size > 0; ++ready) {
    Object* tuple = AsObject(hr_session_try_next_capsules(session_.get(), &batch_, 1, nullptr));
    size = tuple->items.size();
    kPython.Py_DecRef(tuple);
  }
  EXPECT_LE(ready, 5);  // what the dead daemon had finished in its four slots
}

}  // namespace
}  // namespace headrace
