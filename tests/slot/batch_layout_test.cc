#include "core/slot/batch_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "core/slot/batch_finish.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

SessionSpec Spec(const testing::TinyDataset& tiny, std::vector<std::string> fields, int batch_size) {
  SessionSpec spec;
  spec.dataset = tiny.Open();
  spec.fields = std::move(fields);
  spec.batch_size = batch_size;
  spec.recipe.transforms = {CenterCrop{10, 12}};
  return spec;
}

const testing::TinyDataset& Tiny() {
  static const testing::TinyDataset tiny({.samples = 21, .columns = true});
  return tiny;
}

TEST(BatchLayout, PutsImagesFirstAndEveryFieldOnItsOwn) {
  const SessionSpec spec = Spec(Tiny(), {"label", "note", "image", "weight"}, 3);
  const auto layout = MakeBatchLayout(spec);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->fields.size(), 5u);
  const char* names[] = {"label", "note", "image", "weight", "index"};
  const uint32_t dtypes[] = {HR_INT64, HR_TEXT, HR_FLOAT32, HR_FLOAT64, HR_INT64};
  for (size_t i = 0; i < 5; ++i) {
    const hr_field_layout& field = layout->fields[i];
    EXPECT_STREQ(field.name, names[i]);
    EXPECT_EQ(field.dtype, dtypes[i]);
    EXPECT_EQ(field.shape[0], 3);
    EXPECT_EQ(field.offset % 64, 0u);
    EXPECT_LE(field.offset + field.bytes, layout->error_offset);
    for (size_t j = 0; j < i; ++j) {
      const hr_field_layout& other = layout->fields[j];
      EXPECT_TRUE(field.offset + field.bytes <= other.offset || other.offset + other.bytes <= field.offset);
    }
  }
  EXPECT_EQ(layout->fields[2].offset, 0u);
  EXPECT_EQ(layout->fields[2].bytes, 3u * 3 * 10 * 12 * 4);
  EXPECT_EQ(layout->slot_bytes % 4096, 0u);
  EXPECT_EQ(layout->error_offset, layout->slot_bytes - HR_ERROR_BYTES);
}

TEST(BatchLayout, TheGpuEnginesImagesAreInNoSlotOfTheHosts) {
  SessionSpec spec = Spec(Tiny(), {"label", "image", "weight"}, 3);
  const BatchLayout on_cpu = *MakeBatchLayout(spec);
  EXPECT_EQ(on_cpu.device_field, -1);
  EXPECT_EQ(on_cpu.device_slot_bytes, 0u);
  spec.engine = Engine::kGpu;
  const BatchLayout layout = *MakeBatchLayout(spec);
  EXPECT_EQ(layout.device_field, 1);
  EXPECT_EQ(layout.fields[1].offset, 0u);
  EXPECT_EQ(layout.fields[1].bytes, on_cpu.fields[1].bytes);
  EXPECT_EQ(layout.device_slot_bytes, 8192u);  // of 4320 bytes
  EXPECT_EQ(layout.fields[0].offset, 0u);      // there nothing is before the labels
  EXPECT_EQ(layout.fields[2].offset, 64u);
  EXPECT_EQ(layout.fields[3].offset, 128u);
  EXPECT_EQ(layout.slot_bytes, (128 + 24 + HR_ERROR_BYTES + 4095) / 4096 * 4096);
  spec.fields = {"label"};
  EXPECT_EQ(MakeBatchLayout(spec)->device_field, -1);
}

TEST(BatchLayout, StridesFollowTheMemoryFormatAndBytesTheDtype) {
  SessionSpec spec = Spec(Tiny(), {"image"}, 2);
  auto layout = MakeBatchLayout(spec);
  ASSERT_TRUE(layout.ok());
  const auto strides = [](const hr_field_layout& field) { return std::vector<int64_t>(field.strides, field.strides + 4); };
  EXPECT_EQ(strides(layout->fields[0]), (std::vector<int64_t>{360, 120, 12, 1}));
  spec.recipe.memory_format = MemoryFormat::kChannelsLast;
  spec.recipe.dtype = DType::kBFloat16;
  layout = MakeBatchLayout(spec);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(strides(layout->fields[0]), (std::vector<int64_t>{360, 1, 36, 3}));
  EXPECT_EQ(layout->fields[0].dtype, HR_BFLOAT16);
  EXPECT_EQ(SampleBytes(layout->fields[0]), 720u);
}

TEST(BatchLayout, RefusesWhatDoesNotFit) {
  SessionSpec spec = Spec(Tiny(), {"image"}, 65536);
  spec.recipe.transforms = {CenterCrop{16384, 16384}};
  const auto layout = MakeBatchLayout(spec);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SessionSpec, NamesTheKeyThatIsWrong) {
  const auto message = [](const SessionSpec& spec) {
    const absl::Status status = spec.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const SessionSpec good = Spec(Tiny(), {"image", "label"}, 4);
  EXPECT_TRUE(good.Validate().ok());
  const auto expect = [&](auto change, const char* part) {
    SessionSpec spec = good;
    change(&spec);
    EXPECT_NE(message(spec).find(part), std::string::npos) << message(spec);
  };
  expect([](SessionSpec* s) { s->batch_size = 0; }, "batch_size");
  expect([](SessionSpec* s) { s->batch_size = 65537; }, "batch_size");
  expect([](SessionSpec* s) { s->world_size = 0; }, "world_size");
  expect([](SessionSpec* s) { s->rank = 1; }, "rank");
  expect([](SessionSpec* s) { s->rank = -1; }, "rank");
  expect([](SessionSpec* s) { s->prefetch_factor = 63; }, "prefetch_factor");
  expect([](SessionSpec* s) { s->max_threads = -1; }, "num_workers");
  expect([](SessionSpec* s) { s->fields = {}; }, "fields");
  expect([](SessionSpec* s) { s->fields = {"image", "image"}; }, "twice");
  expect([](SessionSpec* s) { s->fields = {"index"}; }, "index");
  expect([](SessionSpec* s) { s->fields = {"mask"}; }, "it has: ");
  expect([](SessionSpec* s) { s->dataset = nullptr; }, "dataset");
  expect([](SessionSpec* s) { s->recipe.transforms = {}; }, "shapes differ");
  expect([](SessionSpec* s) { s->last_batch = LastBatch::kDrop, s->batch_size = 22; }, "no step");
  expect([](SessionSpec* s) { s->recipe.dtype = DType::kUInt8, s->recipe.normalize = Normalize{}; }, "uint8");
  SessionSpec labels = good;  // without images no transform is needed
  labels.fields = {"label"};
  labels.recipe.transforms = {};
  EXPECT_TRUE(labels.Validate().ok());
}

TEST(BatchFinish, TextsEndWhereTheirEndsSay) {
  const SessionSpec spec = Spec(Tiny(), {"note"}, 4);
  const auto layout = MakeBatchLayout(spec);
  ASSERT_TRUE(layout.ok());
  std::string slot(layout->slot_bytes, '\xEE');
  BatchTexts texts;
  texts.Reset(*layout);
  texts.values[0] = {"ab", "", "cde", "stale"};
  WriteTexts(*layout, texts, 3, reinterpret_cast<uint8_t*>(slot.data()));
  const auto* ends = reinterpret_cast<const uint32_t*>(slot.data() + layout->fields[0].offset);
  EXPECT_EQ(std::vector<uint32_t>(ends, ends + 4), (std::vector<uint32_t>{2, 2, 5, 5}));
  EXPECT_EQ(slot.substr(layout->fields[0].offset + 16, 6), "abcde\xEE");
}

TEST(BatchFinish, CompactingMovesTheRestUp) {
  const SessionSpec spec = Spec(Tiny(), {"label", "note"}, 6);
  const auto layout = MakeBatchLayout(spec);
  ASSERT_TRUE(layout.ok());
  for (uint32_t mask = 0; mask < 64; ++mask) {
    std::string slot(layout->slot_bytes, '\0');
    auto* bytes = reinterpret_cast<uint8_t*>(slot.data());
    auto* labels = reinterpret_cast<int64_t*>(bytes + layout->fields[0].offset);
    BatchTexts texts;
    texts.Reset(*layout);
    std::vector<uint32_t> dropped;
    std::vector<int64_t> kept;
    for (uint32_t i = 0; i < 6; ++i) {
      labels[i] = 10 + i;
      texts.values[1][i] = std::to_string(10 + i);
      if ((mask >> i & 1) != 0) {
        dropped.push_back(i);
      } else {
        kept.push_back(10 + i);
      }
    }
    const uint32_t count = CompactBatch(*layout, dropped, 6, bytes, &texts);
    ASSERT_EQ(count, kept.size());
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(labels[i], kept[i]);
      EXPECT_EQ(texts.values[1][i], std::to_string(kept[i]));
    }
  }
}

TEST(BatchFinish, AReportAlwaysFitsAndIsJson) {
  const SessionSpec spec = Spec(Tiny(), {"label"}, 1);
  const auto layout = MakeBatchLayout(spec);
  ASSERT_TRUE(layout.ok());
  BadSample bad;
  bad.sample = 12;
  bad.shard = 3;
  for (const std::string& text : {std::string("a"), std::string(5000, 'n'), std::string(5000, '\x01'),
                                  std::string(5000, '\xFF'), std::string(3000, '"')}) {
    bad.name = text + "/photo.jpg";
    bad.reason = text + " because";
    std::string slot(layout->slot_bytes + 1, '\x7F');
    WriteBadBatchReport(*layout, "/data" + text, bad, reinterpret_cast<uint8_t*>(slot.data()));
    EXPECT_EQ(slot.back(), '\x7F');
    const auto report = nlohmann::json::parse(slot.c_str() + layout->error_offset);
    EXPECT_EQ(report["sample"], 12);
    EXPECT_EQ(report["shard"], 3);
    const std::string name = report["name"], reason = report["reason"];
    EXPECT_EQ(name.substr(name.size() - 10), "/photo.jpg");
    EXPECT_EQ(reason.substr(reason.size() - 8), " because");
  }
}

}  // namespace
}  // namespace headrace
