// Entry data and transcoding as packing and indexing leave them in a dataset.
#include <gmock/gmock.h>

#include "core/base/file.h"
#include "core/decode/entry/entry_builder.h"
#include "core/shard/dataset.h"
#include "core/shard/manifest.h"
#include "packer/pack.h"
#include "packer/rebuild_index.h"
#include "tests/packer/pack_fixture.h"

namespace headrace {
namespace {

using ::headrace::testing::PackTest;
using ::testing::HasSubstr;

// What a view holds, as the builder would give it.
EntryPoints PointsOf(const EntryView& view) {
  EntryPoints points;
  points.interval = view.interval();
  points.scan_bytes = view.scan_bytes();
  EntryPoint point;
  for (int row = 0; row < view.mcu_rows(); ++row) {
    for (int segment = 0; segment < view.segments_per_row(); ++segment) {
      EXPECT_TRUE(view.Point(row, segment, &point));
      points.points.push_back(point);
    }
  }
  return points;
}

// Of the samples whose images have entry data: their numbers.
std::vector<uint64_t> SamplesWithEntries(const Dataset& dataset) {
  std::vector<uint64_t> samples;
  SampleRow row;
  ImageEntries entries;
  for (uint64_t sample = 0; sample < dataset.size(); ++sample) {
    EXPECT_TRUE(dataset.ReadRow(sample, &row).ok());
    const auto has = dataset.ReadEntries(row, &entries);
    EXPECT_TRUE(has.ok()) << has.status();
    if (has.ok() && *has) samples.push_back(sample);
  }
  return samples;
}

TEST_F(PackTest, EveryFlawlessImageHasTheEntryDataThatItsBytesGive) {
  for (int interval : {1, 8, 32}) {
    options_.destination = folder_.File("dst" + std::to_string(interval));
    options_.entry_interval = interval;
    ASSERT_TRUE(Run().ok());
    const auto dataset = *Dataset::Open(options_.destination);
    SampleRow row;
    ImageEntries entries;
    EntryBuilder builder;
    uint64_t with_entries = 0;
    for (uint64_t sample = 0; sample < dataset->size(); ++sample) {
      ASSERT_TRUE(dataset->ReadRow(sample, &row).ok());
      const ValueLocation& place = row.values[0].location;
      std::vector<uint8_t> file(place.length);
      ASSERT_TRUE(ReadAt(dataset->shard_fd(place.shard), file.data(), file.size(), place.offset, "shard").ok());
      const auto frame = ParseJpegFrame(file);
      const auto has = dataset->ReadEntries(row, &entries);
      ASSERT_TRUE(has.ok()) << has.status();
      ASSERT_EQ(*has, frame.ok()) << sample;
      if (!*has) continue;
      ++with_entries;
      const EntryPoints points = *builder.Build(file, *frame, interval);
      EXPECT_EQ(entries.view().interval(), interval);
      EXPECT_EQ(EncodeEntries(*frame, points, entries.view().tables_offset()),
                EncodeEntries(entries.frame(), PointsOf(entries.view()), entries.view().tables_offset()));
      EXPECT_EQ(EncodeTables(*frame), EncodeTables(entries.frame()));
    }
    EXPECT_GT(with_entries, 90u);
  }
}

TEST_F(PackTest, WithoutAnIntervalThereIsNoEntryDataAndEveryIntervalGivesTheSameHash) {
  const std::string hash = Run()->hash;
  EXPECT_GT(SamplesWithEntries(**Dataset::Open(options_.destination)).size(), 90u);
  options_.destination = folder_.File("none");
  options_.entry_interval = 0;
  EXPECT_EQ(Run()->hash, hash);
  EXPECT_TRUE(SamplesWithEntries(**Dataset::Open(options_.destination)).empty());
}

TEST_F(PackTest, AnotherIntervalIsIndexedAsItWouldBePacked) {
  ASSERT_TRUE(Run().ok());
  options_.destination = folder_.File("packed");
  options_.entry_interval = 3;
  ASSERT_TRUE(Run().ok());
  RebuildProgress progress;
  ASSERT_TRUE(RebuildIndex(folder_.File("made/below/dst"), 2, 3, &progress).ok());
  const auto indexed = Files("made/below/dst");
  for (const auto& [name, bytes] : Files("packed")) {
    if (!name.ends_with(".index")) continue;
    EXPECT_TRUE(indexed.at(name) == bytes) << name;
  }
  EXPECT_FALSE(RebuildIndex(options_.destination, 2, kMaxEntryInterval + 1, &progress).ok());
}

TEST_F(PackTest, ADatasetWithoutEntryDataGetsIt) {
  options_.entry_interval = 0;
  ASSERT_TRUE(Run().ok());
  const std::shared_ptr<const Dataset> opened = *Dataset::Open(options_.destination);
  RebuildProgress progress;
  ASSERT_TRUE(RebuildIndex(options_.destination, 2, 8, &progress).ok());
  EXPECT_GT(SamplesWithEntries(**Dataset::Open(options_.destination)).size(), 90u);
  EXPECT_TRUE(SamplesWithEntries(*opened).empty()) << "what is being served goes on with its index";
}

TEST_F(PackTest, DamagedEntryDataIsFoundAndMadeAnew) {
  ASSERT_TRUE(Run().ok());
  const std::string path = "made/below/dst/00000.index";
  std::string index = folder_.Read(path);
  index[index.size() - 700] = static_cast<char>(index[index.size() - 700] ^ 4);
  folder_.Write(path, index);
  std::vector<std::string> found;
  const VerifySummary summary = Verify(&found);
  EXPECT_EQ(summary.bad_shards, 1u);
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found[0], HasSubstr("the entry data does not match its checksum"));
  RebuildProgress progress;
  ASSERT_TRUE(RebuildIndex(options_.destination, 2, -1, &progress).ok());
  EXPECT_EQ(Verify(&found).bad_shards, 0u);
}

TEST_F(PackTest, WhatIsTranscodedIsReportedAndCounted) {
  const auto summary = Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->transcoded, 10u);
  EXPECT_THAT(folder_.Read("made/below/dst/report.csv"), HasSubstr("class1/10.jpg,transcoded,progressive\n"));
  EXPECT_EQ(ReadManifest(options_.destination)->packed.transcoded, 10u);
  options_.destination = folder_.File("kept");
  options_.keep_bytes = true;
  EXPECT_EQ(Run()->transcoded, 0u);
}

}  // namespace
}  // namespace headrace
