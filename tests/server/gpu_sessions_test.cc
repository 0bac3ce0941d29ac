// Sessions of the GPU engine over the protocol, on fake GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>

#include "tests/server/raw_client.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/fork_server.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class GpuSessionsTest : public ::testing::Test {
 protected:
  GpuSessionsTest() { control_.Hello(); }

  Json Spec(const char* engine) {
    Json spec = SmallSpec(dataset_.dir());
    spec["transform"] = {{{"name", "RandomResizedCrop"}, {"size", {8, 10}}}};  // a fake GPU makes no whole pictures
    spec["engine"] = engine;
    spec["gpu"] = FakeGpus::Uuid(0);
    return spec;
  }
  Frame DeviceMemory(uint64_t session) { return control_.Request(HR_DEVICE_MEMORY, Json{{"session", session}}); }
  Frame Open(const Json& spec) { return RawClient(daemon_.socket()).Request(HR_OPEN, Json{{"spec", spec}}); }

  ForkServer forks_;  // before there are threads
  FakeGpus gpus_;
  TinyDataset dataset_{{.samples = 50}};
  EmbeddedDaemon daemon_{dataset_.dir(), [this](PipelineOptions options) {
                           options.open_gpu = gpus_.opener();
                           return Pipeline::Create(options);
                         }};
  RawClient control_{daemon_.socket()};
};

TEST_F(GpuSessionsTest, TheImagesLieInTheMemoryThatIsAskedFor) {
  RawSession session(daemon_.socket(), Spec("gpu")), on_cpu(daemon_.socket(), Spec("cpu"));
  const hr_open_answer& answer = session.answer();
  const hr_field_layout& image = answer.fields[answer.device_field];
  EXPECT_STREQ(image.name, "image");
  EXPECT_GE(answer.device_slot_bytes, image.bytes);
  EXPECT_EQ(on_cpu.answer().device_slot_bytes, 0u);
  EXPECT_EQ(answer.fields[1].offset, 0u);  // nothing of them lies in the ring

  const Frame memory = DeviceMemory(answer.session_id);
  ASSERT_EQ(memory.error_code(), 0u) << memory.error_message();
  const uint64_t bytes = memory.json()["bytes"];
  ASSERT_GE(bytes, answer.num_slots * answer.device_slot_bytes);
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory.fd.get(), 0);
  ASSERT_NE(base, MAP_FAILED);
  for (uint32_t step = 0; step < 20; ++step) {
    const int slot = session.WaitFor(answer.first_ticket + step), other = on_cpu.WaitFor(on_cpu.answer().first_ticket + step);
    ASSERT_GE(slot, 0);
    const uint64_t used = image.bytes / answer.batch_size * session.control()->slots[slot].length;
    const auto* images = static_cast<const uint8_t*>(base) + static_cast<uint64_t>(slot) * answer.device_slot_bytes;
    EXPECT_EQ(std::memcmp(images, on_cpu.slot(other) + on_cpu.answer().fields[0].offset, used), 0);
    session.Release(slot);
    on_cpu.Release(other);
  }
  munmap(base, bytes);
  const Json stats = control_.Request(HR_STATS, Json::object()).json()["sessions"][0];
  EXPECT_LT(stats["samples_left_to_cpu"].get<int>(), stats["samples"].get<int>() / 2) << stats;  // else this compares the CPU with itself
}

TEST_F(GpuSessionsTest, DeviceMemoryIsOfOnesOwnGpuSessionsOnly) {
  RawSession session(daemon_.socket(), Spec("gpu")), on_cpu(daemon_.socket(), Spec("cpu"));
  EXPECT_EQ(DeviceMemory(on_cpu.answer().session_id).error_code(), Code(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(DeviceMemory(12345).error_code(), Code(absl::StatusCode::kNotFound));
  for (const Json& body : {Json::object(), Json{{"session", "1"}}, Json{{"session", -1}}, Json{{"session", 1}, {"slot", 2}}}) {
    const Frame wrong = control_.Request(HR_DEVICE_MEMORY, body);
    EXPECT_EQ(wrong.error_code(), Code(absl::StatusCode::kInvalidArgument)) << body;
    EXPECT_FALSE(wrong.fd.valid());
  }
  const auto ask = [](const std::string& argument) {
    const Json told = Json::parse(argument);
    RawClient other(told["socket"].get<std::string>());
    other.Hello();
    return static_cast<int>(other.Request(HR_DEVICE_MEMORY, Json{{"session", told["session"]}}).error_code());
  };
  const Json told = {{"socket", daemon_.socket()}, {"session", session.answer().session_id}};
  EXPECT_EQ(WEXITSTATUS(forks_.Run(ask, told.dump())), static_cast<int>(Code(absl::StatusCode::kNotFound)));
}

TEST_F(GpuSessionsTest, AGpuThatCannotBeHadIsAnErrorWithTheReason) {
  gpus_.Set({.open = absl::UnavailableError("the driver is too old")});
  const Frame refused = Open(Spec("gpu"));
  EXPECT_EQ(refused.error_code(), Code(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(refused.error_message(), HasSubstr("the driver is too old"));
  Json nowhere = Spec("gpu");
  nowhere.erase("gpu");
  EXPECT_EQ(Open(nowhere).error_code(), Code(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Open(Spec("auto")).As<hr_open_answer>().device_slot_bytes, 0u);  // by the CPU then
}

TEST_F(GpuSessionsTest, AStarvedSessionSaysSoWithTrueOrFalse) {
  const auto open = [this](const Json& starved) {
    return RawClient(daemon_.socket()).Request(HR_OPEN, Json{{"spec", Spec("auto")}, {"starved", starved}});
  };
  EXPECT_GT(open(true).As<hr_open_answer>().device_slot_bytes, 0u);
  EXPECT_GT(open(false).As<hr_open_answer>().device_slot_bytes, 0u);  // two threads are few
  for (const Json& wrong : {Json(1), Json("true"), Json(nullptr), Json::array()}) {
    EXPECT_EQ(open(wrong).error_code(), Code(absl::StatusCode::kInvalidArgument)) << wrong;
  }
}

TEST_F(GpuSessionsTest, StatsSayWhoMakesTheBatches) {
  EXPECT_EQ(control_.Request(HR_STATS, Json::object()).json()["engine"], "cpu");
  gpus_.Set({.open = {}, .refused_of = 2});
  RawSession session(daemon_.socket(), Spec("gpu")), on_cpu(daemon_.socket(), Spec("cpu"));
  session.WaitFor(session.answer().first_ticket);
  const Json stats = control_.Request(HR_STATS, Json::object()).json();
  EXPECT_EQ(stats["engine"], "gpu");
  EXPECT_EQ(stats["device_memory_bytes"], Settings().device_memory);
  ASSERT_EQ(stats["gpus"].size(), 1u);
  EXPECT_EQ(stats["gpus"][0]["uuid"], FakeGpus::Uuid(0));
  EXPECT_GT(stats["gpus"][0]["device_memory_used"], 0);
  EXPECT_EQ(stats["sessions"][0]["engine"], "gpu");
  EXPECT_GE(stats["sessions"][0]["samples_left_to_cpu"], 2);
  EXPECT_EQ(stats["sessions"][1]["engine"], "cpu");
}

}  // namespace
}  // namespace headrace::testing
