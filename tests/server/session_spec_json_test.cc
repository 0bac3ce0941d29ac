#include "server/session_spec_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class SessionSpecJson : public ::testing::Test {
 protected:
  absl::StatusOr<SessionSpec> Parse(const Json& json) {
    return ParseSessionSpec(json.dump(), [](const std::string& path) { return Dataset::Open(path); });
  }
  Json Minimal() {
    return {{"dataset", dataset_.dir()}, {"batch_size", 4}, {"transform", {{{"name", "CenterCrop"}, {"size", 8}}}}};
  }

  testing::TinyDataset dataset_{{.samples = 30}};
};

TEST_F(SessionSpecJson, HasTheProtocolsDefaults) {
  const absl::StatusOr<SessionSpec> spec = Parse(Minimal());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->batch_size, 4);
  EXPECT_EQ(spec->fields, (std::vector<std::string>{"image", "label"}));
  EXPECT_EQ(spec->rank, 0);
  EXPECT_EQ(spec->world_size, 1);
  EXPECT_EQ(spec->seed, 0u);
  EXPECT_EQ(spec->shuffle, Shuffle::kNone);
  EXPECT_EQ(spec->last_batch, LastBatch::kPartial);
  EXPECT_EQ(spec->on_bad_sample, OnBadSample::kFail);
  EXPECT_EQ(spec->max_bad, -1);
  EXPECT_EQ(spec->prefetch_factor, 2);
  EXPECT_EQ(spec->max_threads, 0);
  EXPECT_EQ(spec->recipe.dtype, DType::kFloat32);
  EXPECT_EQ(spec->engine, Engine::kAuto);
  EXPECT_EQ(spec->gpu, "");
}

TEST_F(SessionSpecJson, TakesEveryKey) {
  Json json = Minimal();
  json.update(Json::parse(R"({"fields": ["image"], "rank": 2, "world_size": 3, "seed": 18446744073709551615,
    "shuffle": "blocks", "last_batch": "pad", "on_bad_sample": "substitute", "max_bad": 7, "prefetch_factor": 5, "num_workers": 3,
    "engine": "gpu", "gpu": "0123456789abcdef0123456789abcdef", "dtype": "bfloat16", "memory_format": "channels_last"})"));
  const absl::StatusOr<SessionSpec> spec = Parse(json);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->fields, std::vector<std::string>{"image"});
  EXPECT_EQ(spec->rank, 2);
  EXPECT_EQ(spec->world_size, 3);
  EXPECT_EQ(spec->seed, UINT64_MAX);
  EXPECT_EQ(spec->shuffle, Shuffle::kBlocks);
  EXPECT_EQ(spec->last_batch, LastBatch::kPad);
  EXPECT_EQ(spec->on_bad_sample, OnBadSample::kSubstitute);
  EXPECT_EQ(spec->max_bad, 7);
  EXPECT_EQ(spec->prefetch_factor, 5);
  EXPECT_EQ(spec->max_threads, 3);
  EXPECT_EQ(spec->engine, Engine::kGpu);
  EXPECT_EQ(spec->gpu, "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(spec->recipe.dtype, DType::kBFloat16);
  EXPECT_EQ(spec->recipe.memory_format, MemoryFormat::kChannelsLast);
  json["num_workers"] = nullptr;
  json["shuffle"] = true;
  EXPECT_EQ(Parse(json)->max_threads, 0);
  EXPECT_EQ(Parse(json)->shuffle, Shuffle::kGlobal);
}

TEST_F(SessionSpecJson, NamesTheKeyThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"batch_size", "0"}, {"batch_size", "65537"}, {"batch_size", "\"4\""}, {"batch_size", "4.0"}, {"rank", "-1"},
      {"rank", "1"}, {"world_size", "0"}, {"seed", "-1"}, {"seed", "1e3"}, {"seed", "18446744073709551616"},
      {"shuffle", "1"}, {"shuffle", "\"yes\""}, {"last_batch", "\"keep\""}, {"on_bad_sample", "\"ignore\""},
      {"max_bad", "3"}, {"max_bad", "-1"}, {"max_bad", "10001"},
      {"prefetch_factor", "0"}, {"prefetch_factor", "63"}, {"num_workers", "-1"}, {"engine", "\"tpu\""},
      {"engine", "1"}, {"gpu", "0"}, {"gpu", "\"\""}, {"gpu", "\"0123456789abcdef0123456789abcde\""},
      {"gpu", "\"0123456789ABCDEF0123456789abcdef\""}, {"gpu", "\"GPU-0123456789abcdef0123456789ab\""},
      {"dtype", "\"int8\""}, {"memory_format", "\"rows\""}, {"fields", "[]"}, {"fields", "\"image\""}, {"fields", "[1]"},
      {"fields", "[\"nothing\"]"}, {"dataset", "7"}, {"transform", "{}"}, {"colour", "1"}};
  for (const auto& [key, value] : wrong) {
    Json json = Minimal();
    json[key] = Json::parse(value);
    const absl::Status status = Parse(json).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << key << " = " << value << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(key == "fields" ? "field" : key)) << value;
  }
}

TEST_F(SessionSpecJson, NeedsDatasetAndBatchSize) {
  for (const char* key : {"dataset", "batch_size"}) {
    Json json = Minimal();
    json.erase(key);
    EXPECT_THAT(std::string(Parse(json).status().message()), HasSubstr(key));
  }
  EXPECT_FALSE(Parse(Json::array()).ok());
}

TEST_F(SessionSpecJson, OpensTheDatasetOnlyWhenAllElseIsRight) {
  Json json = Minimal();
  json["rank"] = -1;
  bool opened = false;
  const auto status = ParseSessionSpec(json.dump(), [&](const std::string& path) {
    opened = true;
    return Dataset::Open(path);
  });
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(opened);
}

}  // namespace
}  // namespace headrace
