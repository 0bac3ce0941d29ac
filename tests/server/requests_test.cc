#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/batch/audit.h"
#include "core/read/sample_reader.h"
#include "server/session_spec_json.h"
#include "tests/server/raw_client.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class RequestsTest : public ::testing::Test {
 protected:
  RequestsTest() { client_.Hello(); }

  TinyDataset dataset_{{.samples = 50, .columns = true}};
  EmbeddedDaemon daemon_{dataset_.dir()};
  RawClient client_{daemon_.socket()};
};

TEST_F(RequestsTest, DescribeTellsWhatTheDatasetIs) {
  const Json answer = client_.Request(HR_DESCRIBE, Json{{"dataset", dataset_.dir() + "/."}}).json();
  const auto dataset = dataset_.Open();
  EXPECT_EQ(answer["path"], std::filesystem::canonical(dataset_.dir()).string());
  EXPECT_EQ(answer["hash"], dataset->hash());
  EXPECT_EQ(answer["size"], 50);
  EXPECT_EQ(answer["shards"], dataset->num_shards());
  EXPECT_EQ(answer["classes"], Json(dataset->classes()));
  EXPECT_EQ(answer["order_version"], kOrderVersion);
  EXPECT_EQ(answer["pixel_version"], kPixelVersion);
  std::map<std::string, std::string> kinds;
  for (const Json& field : answer["fields"]) kinds[field["name"]] = field["kind"];
  EXPECT_EQ(kinds["image"], "image");
  EXPECT_EQ(kinds["label"], "int64");
  EXPECT_EQ(kinds["weight"], "float64");
  EXPECT_EQ(kinds["note"], "text");
}

TEST_F(RequestsTest, DescribeSaysWhyADatasetDoesNotOpen) {
  const TinyDataset other({.samples = 20});
  const auto code = [&](const std::string& path) {
    return client_.Request(HR_DESCRIBE, Json{{"dataset", path}}).error_code();
  };
  EXPECT_EQ(code(other.dir()), Code(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(code(dataset_.dir() + "/../../../etc"), Code(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(code(dataset_.dir() + "/nothing"), Code(absl::StatusCode::kNotFound));
  EXPECT_EQ(code("relative"), Code(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(client_.Request(HR_DESCRIBE, Json{{"dataset", 5}}).error_code(), Code(absl::StatusCode::kInvalidArgument));
}

TEST_F(RequestsTest, SampleHandsOutTheValuesAndTheImagesBytesSealed) {
  const auto dataset = dataset_.Open();
  for (const uint64_t sample : {0, 13, 49}) {
    const Frame frame = client_.Request(HR_SAMPLE, Json{{"dataset", dataset_.dir()}, {"sample", sample}});
    const Json answer = frame.json();
    EXPECT_EQ(answer["values"]["label"], sample % 5);
    EXPECT_EQ(answer["values"]["weight"], sample + 0.5);
    EXPECT_EQ(answer["values"]["note"], std::string(sample % 7, 'x') + std::to_string(sample) + "n");
    SampleRow row;
    SampleReader reader;
    ASSERT_TRUE(dataset->ReadRow(sample, &row).ok());
    const auto expected = reader.Read(*dataset, row, dataset->FindField("image"), Verify::kEvery, nullptr);
    ASSERT_TRUE(expected.ok());
    ASSERT_TRUE(frame.fd.valid());
    ASSERT_EQ(answer["image_bytes"], expected->size());
    std::vector<uint8_t> bytes(expected->size() + 1);
    ASSERT_EQ(pread(frame.fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(expected->size()));
    bytes.pop_back();
    EXPECT_EQ(bytes, std::vector<uint8_t>(expected->begin(), expected->end()));
    EXPECT_EQ(fcntl(frame.fd.get(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  }
}

TEST_F(RequestsTest, SampleRefusesNumbersBehindTheEndAndNamesDamagedOnes) {
  EXPECT_EQ(client_.Request(HR_SAMPLE, Json{{"dataset", dataset_.dir()}, {"sample", 50}}).error_code(),
            Code(absl::StatusCode::kOutOfRange));
  dataset_.Damage(7);
  const Frame damaged = client_.Request(HR_SAMPLE, Json{{"dataset", dataset_.dir()}, {"sample", 7}});
  EXPECT_EQ(damaged.error_code(), Code(absl::StatusCode::kDataLoss));
  EXPECT_THAT(damaged.error_message(), HasSubstr("sample 7"));
}

TEST_F(RequestsTest, AuditIsTheCoresAudit) {
  Json spec = SmallSpec(dataset_.dir());
  spec["shuffle"] = true;
  const auto parsed = ParseSessionSpec(spec.dump(), [](const std::string& path) { return Dataset::Open(path); });
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Json body = {{"spec", spec}, {"epoch", 3}, {"position", 8}, {"step", 2}};
  EXPECT_EQ(client_.Request(HR_AUDIT, body).json(), Json::parse(*AuditStep(*parsed, Cursor{3, 8}, 2)));
  const Json late = {{"spec", spec}, {"epoch", 3}, {"position", 8}, {"step", 200}};
  EXPECT_EQ(client_.Request(HR_AUDIT, late).error_code(), Code(absl::StatusCode::kOutOfRange));
}

TEST_F(RequestsTest, OpenOnTheControlConnectionIsRefusedAndHelloMayComeAgain) {
  const Json body = {{"spec", SmallSpec(dataset_.dir())}};
  EXPECT_EQ(client_.Request(HR_OPEN, body).error_code(), Code(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(client_.Hello().protocol_version, HR_PROTOCOL_VERSION);
}

TEST_F(RequestsTest, StatsCountWhatSessionsDid) {
  EXPECT_TRUE(client_.Request(HR_STATS, Json::object()).json()["sessions"].empty());
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  for (uint32_t step = 0; step < 6; ++step) session.Release(session.WaitFor(session.answer().first_ticket + step));
  const Json stats = client_.Request(HR_STATS, Json::object()).json();
  EXPECT_EQ(stats["pid"], getpid());
  EXPECT_EQ(stats["engine"], "cpu");
  EXPECT_EQ(stats["decode_threads"], 2);
  EXPECT_GE(stats["threads_in_use"], 1);
  EXPECT_GE(stats["batches"], 6);
  EXPECT_GE(stats["samples"], 24);
  EXPECT_EQ(stats["bad_samples"], 0);
  EXPECT_GT(stats["bytes_read"], 0);
  EXPECT_GT(stats["host_memory_used"], 0);
  ASSERT_EQ(stats["sessions"].size(), 1u);
  EXPECT_EQ(stats["sessions"][0]["id"], session.answer().session_id);
  EXPECT_EQ(stats["sessions"][0]["pid"], getpid());
  // Slots count once they have their memory, which the first batches do not wait for.
  while (client_.Request(HR_STATS, Json::object()).json()["sessions"][0]["slots"] != 4) usleep(1000);
  EXPECT_EQ(stats["sessions"][0]["world_size"], 1);
  EXPECT_EQ(client_.Request(HR_STATS, Json{{"session", session.answer().session_id}}).json()["sessions"].size(), 1u);
  EXPECT_EQ(client_.Request(HR_STATS, Json{{"session", 12345}}).json()["sessions"].size(), 0u);
}

}  // namespace
}  // namespace headrace::testing
