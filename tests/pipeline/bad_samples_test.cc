#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/batch/order.h"
#include "core/batch/substitute.h"
#include "core/pipeline/pipeline.h"
#include "tests/pipeline/fake_client.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

constexpr uint64_t kSamples = 60;
const std::set<uint64_t> kDamaged = {7, 22, 41};

class BadSamplesTest : public ::testing::Test {
 protected:
  BadSamplesTest() : tiny_({.samples = kSamples, .columns = true}) {
    for (uint64_t sample : kDamaged) tiny_.Damage(sample);
    PipelineOptions options;
    options.decode_threads = 3;
    options.host_memory_bytes = uint64_t{1} << 30;
    options.on_bad_sample = [this](const std::string& message) {
      std::lock_guard lock(mutex_);
      messages_.push_back(message);
    };
    pipeline_ = Pipeline::Create(options);
  }
  // Its callback uses members that end before it would by itself.
  ~BadSamplesTest() override { pipeline_.reset(); }

  SessionSpec Spec(OnBadSample policy) {
    SessionSpec spec = TinySpec(tiny_.Open(), 8);
    spec.on_bad_sample = policy;
    return spec;
  }
  std::vector<std::string> Messages() {
    std::lock_guard lock(mutex_);
    return messages_;
  }

  TinyDataset tiny_;
  std::mutex mutex_;
  std::vector<std::string> messages_;
  std::unique_ptr<Pipeline> pipeline_;
};

// The samples that order and cursor give to a batch.
std::vector<uint64_t> Planned(const SessionSpec& spec, const Lease& lease) {
  const StepRange range = StepAt(spec, lease.start);
  const EpochOrder order(kSamples, spec.seed, lease.start.epoch, spec.shuffle);
  std::vector<uint64_t> samples;
  for (uint32_t i = 0; i < range.count; ++i) samples.push_back(order.SampleAt(range.first_position + i));
  return samples;
}

TEST_F(BadSamplesTest, FailGivesABadBatchThatNamesTheFirstOne) {
  const SessionSpec spec = Spec(OnBadSample::kFail);
  FakeClient client(pipeline_.get(), spec);
  int failed = 0;
  for (uint64_t step = 0; step < StepsLeft(spec, Cursor{}); ++step) {
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    std::vector<uint64_t> bad;
    for (uint64_t sample : Planned(spec, *lease)) {
      if (kDamaged.count(sample) > 0) bad.push_back(sample);
    }
    EXPECT_EQ(lease->bad_samples, bad.size());
    EXPECT_EQ(lease->next, StepAt(spec, lease->start).next);
    if (bad.empty()) {
      EXPECT_EQ(lease->status, 0u);
      EXPECT_EQ(client.Differs(*lease), "");
    } else {
      ++failed;
      EXPECT_EQ(lease->status, static_cast<uint32_t>(absl::StatusCode::kDataLoss));
      EXPECT_EQ(lease->length, 0u);
      const auto* text = reinterpret_cast<const char*>(lease->bytes + client.session()->layout().error_offset);
      const auto report = nlohmann::json::parse(text);
      EXPECT_EQ(report["sample"], bad[0]);
      EXPECT_EQ(report["shard"], spec.dataset->Locate(bad[0]).first);
      EXPECT_EQ(report["name"], std::to_string(bad[0] % 20) + ".jpg");
      EXPECT_EQ(report["dataset"], spec.dataset->dir());
      EXPECT_NE(report["reason"].get<std::string>().find("hash"), std::string::npos) << text;
      EXPECT_NE(report["message"].get<std::string>().find("sample " + std::to_string(bad[0]) + " ("), std::string::npos);
    }
    client.Release(*lease);
  }
  EXPECT_GE(failed, 1);
}

TEST_F(BadSamplesTest, SkipMakesTheBatchShorterAndKeepsTheOthers) {
  const SessionSpec spec = Spec(OnBadSample::kSkip);
  FakeClient client(pipeline_.get(), spec);
  FakeClient whole(pipeline_.get(), [&] {  // the same batches with nothing but numbers, which no damage reaches
    SessionSpec labels = spec;
    labels.fields = {"label"};
    return labels;
  }());
  uint64_t bad = 0;
  for (uint64_t step = 0; step < StepsLeft(spec, Cursor{}); ++step) {
    const auto lease = client.Next(), all = whole.Next();
    ASSERT_TRUE(lease && all);
    std::vector<int64_t> expected;
    for (int64_t index : Indices(whole, *all)) {
      if (kDamaged.count(static_cast<uint64_t>(index)) == 0) expected.push_back(index);
    }
    EXPECT_EQ(Indices(client, *lease), expected);
    EXPECT_EQ(lease->status, 0u);
    bad += lease->bad_samples;
    client.Release(*lease);
    whole.Release(*all);
  }
  EXPECT_EQ(bad, kDamaged.size());
}

// Every field of the samples behind a dropped one moves with it: compared with a session of single samples.
TEST_F(BadSamplesTest, SkipMovesAllFieldsOfASample) {
  SessionSpec spec = Spec(OnBadSample::kSkip);
  FakeClient client(pipeline_.get(), spec);
  spec.batch_size = 1;
  FakeClient single(pipeline_.get(), spec);
  const auto value = [](const FakeClient& from, const Lease& lease, uint32_t place) {
    std::string all;
    for (const hr_field_layout& field : from.session()->layout().fields) {
      const auto* base = reinterpret_cast<const char*>(lease.bytes + field.offset);
      if (field.dtype == HR_TEXT) {
        const auto* ends = reinterpret_cast<const uint32_t*>(base);
        const uint32_t begin = place == 0 ? 0 : ends[place - 1];
        all += std::string(base + 4 * field.shape[0] + begin, ends[place] - begin) + "|";
      } else {
        all += std::string(base + place * SampleBytes(field), SampleBytes(field));
      }
    }
    return all;
  };
  uint64_t compared = 0;
  for (uint64_t step = 0; step < StepsLeft(Spec(OnBadSample::kSkip), Cursor{}); ++step) {
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    for (uint32_t place = 0; place < lease->length; ++place) {
      std::optional<Lease> one;
      while ((one = single.Next()) && one->length == 0) single.Release(*one);
      ASSERT_TRUE(one);
      ASSERT_EQ(value(client, *lease, place), value(single, *one, 0));
      single.Release(*one);
      ++compared;
    }
    client.Release(*lease);
  }
  EXPECT_EQ(compared, kSamples - kDamaged.size());
}

TEST_F(BadSamplesTest, SubstituteTakesTheFirstGoodCandidateOfTheSameLabel) {
  const SessionSpec spec = Spec(OnBadSample::kSubstitute);
  FakeClient client(pipeline_.get(), spec);
  uint64_t bad = 0;
  for (uint64_t step = 0; step < StepsLeft(spec, Cursor{}); ++step) {
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->status, 0u);
    const std::vector<uint64_t> planned = Planned(spec, *lease);
    const std::vector<int64_t> taken = Indices(client, *lease);
    ASSERT_EQ(taken.size(), planned.size());
    for (size_t i = 0; i < planned.size(); ++i) {
      uint64_t expected = planned[i];
      if (kDamaged.count(expected) > 0) {
        ++bad;
        const SubstituteOrder order(kSamples, spec.seed, lease->start.epoch, lease->start.position + i);
        uint64_t candidate = 0;
        while (expected = order.Candidate(candidate++), expected % 5 != planned[i] % 5 || kDamaged.count(expected) > 0) {
        }
      }
      EXPECT_EQ(static_cast<uint64_t>(taken[i]), expected);
    }
    client.Release(*lease);
  }
  EXPECT_EQ(bad, kDamaged.size());
}

TEST_F(BadSamplesTest, SubstituteFallsBackToOtherLabelsAndFailsWhenNothingDecodes) {
  const TinyDataset tiny({.samples = 4, .classes = 4});
  tiny.Damage(2);
  SessionSpec spec = TinySpec(tiny.Open(), 4);
  spec.on_bad_sample = OnBadSample::kSubstitute;
  spec.shuffle = Shuffle::kNone;
  {
    FakeClient client(pipeline_.get(), spec);
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->status, 0u);
    EXPECT_NE(Indices(client, *lease)[2], 2);
  }
  for (uint64_t sample : {0, 1, 3}) tiny.Damage(sample);
  FakeClient client(pipeline_.get(), [&] {
    SessionSpec again = spec;
    again.dataset = tiny.Open();  // not verified yet
    return again;
  }());
  const auto lease = client.Next();
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->status, static_cast<uint32_t>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(lease->bad_samples, 4u);
}

TEST_F(BadSamplesTest, EachIsReportedOncePerSessionAndCountedEachTime) {
  const SessionSpec spec = Spec(OnBadSample::kSkip);
  FakeClient client(pipeline_.get(), spec);
  for (uint64_t step = 0; step < 3 * StepsLeft(spec, Cursor{}); ++step) client.Release(*client.Next());
  client.Close();
  EXPECT_GE(pipeline_->stats().bad_samples, 3 * kDamaged.size());
  pipeline_.reset();  // no thread reports any more
  std::set<std::string> distinct;
  for (const std::string& message : Messages()) EXPECT_TRUE(distinct.insert(message).second) << message;
  EXPECT_EQ(distinct.size(), kDamaged.size());
}

// The samples that a session counts: those behind its batches' lines.
void Collect(const FakeClient& client, const Lease& lease, std::set<uint64_t>* counted) {
  const auto* numbers = reinterpret_cast<const uint64_t*>(lease.bytes + client.session()->layout().error_offset);
  for (uint32_t i = 0; i < client.control()->slots[lease.slot].counted_bad; ++i) {
    EXPECT_TRUE(counted->insert(numbers[i]).second) << "counted once only";
  }
}

TEST_F(BadSamplesTest, BeyondMaxBadABatchFailsAndNamesTheNewest) {
  for (OnBadSample policy : {OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    for (int64_t max_bad = 0; max_bad <= 3; ++max_bad) {
      SessionSpec spec = Spec(policy);
      spec.max_bad = max_bad;
      FakeClient client(pipeline_.get(), spec);
      std::set<uint64_t> counted;
      // Three epochs: a sample counts once.
      for (uint64_t step = 0; step < 3 * StepsLeft(spec, Cursor{}); ++step) {
        const auto lease = client.Next();
        ASSERT_TRUE(lease);
        std::vector<uint64_t> fresh;
        for (uint64_t sample : Planned(spec, *lease)) {
          if (kDamaged.count(sample) > 0 && counted.count(sample) == 0) fresh.push_back(sample);
        }
        if (counted.size() + fresh.size() <= static_cast<size_t>(max_bad)) {
          EXPECT_EQ(lease->status, 0u);
          Collect(client, *lease, &counted);
          for (uint64_t sample : fresh) EXPECT_TRUE(counted.count(sample));
        } else {
          EXPECT_EQ(lease->status, static_cast<uint32_t>(absl::StatusCode::kDataLoss));
          EXPECT_EQ(lease->length, 0u);
          const auto report = nlohmann::json::parse(
              reinterpret_cast<const char*>(lease->bytes + client.session()->layout().error_offset));
          EXPECT_EQ(report["sample"], fresh[static_cast<size_t>(max_bad) - counted.size()]);
          const std::string said = std::to_string(counted.size() + fresh.size()) + " samples of this session are bad, max_bad is " +
                                   std::to_string(max_bad);
          EXPECT_NE(report["reason"].get<std::string>().find(said), std::string::npos) << report;
        }
        client.Release(*lease);
      }
      EXPECT_LE(counted.size(), static_cast<size_t>(max_bad));
    }
  }
}

TEST_F(BadSamplesTest, TheNextDaemonCountsOnFromWhatTheClientTellsIt) {
  SessionSpec spec = Spec(OnBadSample::kSkip);
  spec.max_bad = 2;
  const uint64_t steps = 2 * StepsLeft(spec, Cursor{});
  std::vector<uint32_t> whole;
  {
    FakeClient client(pipeline_.get(), spec);
    for (uint64_t step = 0; step < steps; ++step) {
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      whole.push_back(lease->status);
      client.Release(*lease);
    }
  }
  EXPECT_GT(std::count(whole.begin(), whole.end(), static_cast<uint32_t>(absl::StatusCode::kDataLoss)), 0);
  Cursor cursor;
  std::set<uint64_t> counted;
  for (uint64_t step = 0; step < steps; ++step) {  // a new daemon after each batch
    spec.counted_bad.assign(counted.begin(), counted.end());
    FakeClient client(pipeline_.get(), spec, cursor);
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->status, whole[step]) << "step " << step;
    Collect(client, *lease, &counted);
    cursor = lease->next;
  }
  EXPECT_LE(counted.size(), 2u);
}

TEST_F(BadSamplesTest, ThreadsDoNotChangeWhatABadBatchIs) {
  for (OnBadSample policy : {OnBadSample::kFail, OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    std::vector<uint64_t> first;
    for (int threads = 1; threads <= 8; threads += 7) {
      PipelineOptions options;
      options.decode_threads = threads;
      options.host_memory_bytes = uint64_t{1} << 30;
      const auto pipeline = Pipeline::Create(options);
      SessionSpec spec = Spec(policy);
      if (policy != OnBadSample::kFail) spec.max_bad = 1;
      FakeClient client(pipeline.get(), spec);
      std::vector<uint64_t> digests;
      for (int step = 0; step < 16; ++step) {
        const auto lease = client.Next();
        ASSERT_TRUE(lease);
        digests.push_back(client.Digest(*lease));
        client.Release(*lease);
      }
      if (threads == 1) first = digests;
      EXPECT_EQ(digests, first);
    }
  }
}

}  // namespace
}  // namespace headrace::testing
