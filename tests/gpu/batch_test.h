// What must hold of whoever makes batches from entry points as the GPU does: bytes equal to the CPU engine's, or left to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <variant>
#include <vector>

#include "core/augment/render.h"
#include "tests/augment/random_recipe.h"
#include "tests/gpu/batch_maker.h"
#include "tests/support/indexed_files.h"

namespace headrace::testing {

// An image of a batch with what was drawn for it.
struct BatchMember {
  IndexedJpeg image;
  uint64_t tables_number;  // images of one file share its tables, whatever is changed in them
  ImageInfo info;
  std::unique_ptr<EntryView> view;
  Draw draw;
  std::vector<uint8_t> mapped;
};

class BatchTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kBatch = 64;

  std::unique_ptr<BatchMember> MakeMember(std::mt19937* random, const Recipe& recipe, uint64_t position) {
    return MakeMember(random, recipe, position, (*random)() % IndexedFiles().size());
  }
  std::unique_ptr<BatchMember> MakeMember(std::mt19937* random, const Recipe& recipe, uint64_t position, size_t file) {
    auto member = std::make_unique<BatchMember>();
    member->image = Image(file, kEntryIntervals[(*random)() % 4]);
    member->tables_number = 1 + file;
    member->info = member->image.info;
    if ((*random)() % 3 == 0) member->info.orientation = static_cast<uint8_t>(1 + (*random)() % 8);  // as if EXIF had said so
    DrawSample(recipe, 7, 0, position, static_cast<int>(member->info.oriented_width()),
               static_cast<int>(member->info.oriented_height()), &member->draw);
    return member;
  }

  static absl::Status Add(BatchMaker* maker, BatchMember* member, uint32_t place, bool mapped) {
    const IndexedJpeg& image = member->image;
    member->view = std::make_unique<EntryView>(image.View());
    HEADRACE_ASSIGN_OR_RETURN(ByteRange range,
                              maker->Plan({&member->info, member->view.get(), &image.frame, &member->draw, place, member->tables_number}));
    const absl::Span<const uint8_t> file(image.file);
    range.end = std::min<uint64_t>(range.end, file.size());
    if (mapped) {
      // Of its own, so that bytes behind those that were asked for are not there.
      member->mapped.assign(file.begin() + static_cast<ptrdiff_t>(range.begin), file.begin() + static_cast<ptrdiff_t>(range.end));
      return maker->AddMapped(member->mapped.data(), member->mapped.size());
    }
    std::copy(file.begin() + static_cast<ptrdiff_t>(range.begin), file.begin() + static_cast<ptrdiff_t>(range.end),
              maker->Stage(range.end - range.begin));
    return maker->AddStaged(range.end - range.begin);
  }

  // Makes the batch with both; `left`: places that the maker leaves to the CPU.
  void Compare(BatchMaker* maker, const std::vector<std::unique_ptr<BatchMember>>& members, const Recipe& recipe,
               std::vector<uint32_t>* left) {
    const auto size = recipe.OutputSize();
    ASSERT_TRUE(size.ok()) << size.status();
    const size_t bytes = static_cast<size_t>(3 * (*size)[0] * (*size)[1] * DTypeBytes(recipe.dtype));
    ASSERT_TRUE(maker->Begin(recipe).ok());
    for (uint32_t i = 0; i < members.size(); ++i) {
      BatchMember& member = *members[i];
      const absl::Status added = Add(maker, &member, i, /*mapped=*/i % 3 == 0);
      ASSERT_FALSE(absl::IsResourceExhausted(added)) << added;
      if (!added.ok()) left->push_back(i);
    }
    std::vector<uint8_t> got(bytes * members.size(), 0x5A), expected(bytes);
    const absl::Status made = maker->Make(&got, left);
    ASSERT_TRUE(made.ok()) << made;
    for (uint32_t i = 0; i < members.size(); ++i) {
      if (std::find(left->begin(), left->end(), i) != left->end()) continue;
      const BatchMember& member = *members[i];
      const auto read = [&](uint64_t begin, uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
        return absl::MakeConstSpan(member.image.file).subspan(begin, end - begin);
      };
      const EncodedImage encoded = {&member.info, member.image.file.size(), read, member.view.get(), &member.image.frame};
      const absl::Status status = cpu_.Render(encoded, recipe, member.draw, expected.data(), nullptr);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(std::memcmp(expected.data(), got.data() + bytes * i, bytes), 0)
          << "place " << i << ", " << member.info.width << " x " << member.info.height << ", orientation "
          << int{member.info.orientation} << ", " << (*size)[0] << " x " << (*size)[1] << ", type " << static_cast<int>(recipe.dtype);
    }
  }

  // Random batches of all files, one as often as another, and of every type, layout and filter in turn. At least five of eight
  // samples are not left to the CPU, and of each file and each of these kinds `of_each`.
  void GivesTheCpusPixelsAndFloats(BatchMaker* maker, int batches, size_t of_each) {
    if (std::getenv("HEADRACE_TEST_DATA") != nullptr) {
      ASSERT_TRUE(std::filesystem::is_directory(TestDataFolder())) << TestDataFolder();
    }
    std::mt19937 random(77);
    std::vector<size_t> deck, of_file(IndexedFiles().size());
    std::array<size_t, 4 * 2 * 6> of_kind = {};
    size_t made = 0;
    for (int batch = 0; batch < batches; ++batch) {
      const size_t kind = static_cast<size_t>(batch) % of_kind.size();
      const Recipe recipe = RecipeOf(kind, &random);
      std::vector<std::unique_ptr<BatchMember>> members;
      std::array<size_t, kBatch> files;
      for (uint32_t i = 0; i < kBatch; ++i) {
        if (deck.empty()) {
          for (size_t file = 0; file < of_file.size(); ++file) deck.push_back(file);
          std::shuffle(deck.begin(), deck.end(), random);
        }
        files[i] = deck.back();
        deck.pop_back();
        members.push_back(MakeMember(&random, recipe, static_cast<uint64_t>(batch) * kBatch + i, files[i]));
      }
      std::vector<uint32_t> left;
      Compare(maker, members, recipe, &left);
      if (HasFatalFailure()) FAIL() << "batch " << batch;
      made += members.size() - left.size();
      of_kind[kind] += members.size() - left.size();
      for (const size_t file : files) ++of_file[file];
      for (const uint32_t place : left) --of_file[files[place]];
    }
    // A recipe that the GPU leaves to the CPU takes a whole batch with it: of few batches that may be many.
    const size_t least = batches >= 40 ? static_cast<size_t>(batches) * kBatch * 5 / 8 : 1;
    EXPECT_GE(made, least);
    EXPECT_GE(*std::min_element(of_kind.begin(), of_kind.end()), of_each);
    EXPECT_GE(*std::min_element(of_file.begin(), of_file.end()), of_each)
        << "file " << std::min_element(of_file.begin(), of_file.end()) - of_file.begin() << " of " << of_file.size();
  }

  // An index whose checksums are right and whose numbers are an attacker's.
  void HostileEntryPointsGiveTheCpusPixelsOrAreLeftToIt(BatchMaker* maker, uint32_t batches) {
    const auto change = [](BatchMember* member, std::mt19937* random) {
      IndexedJpeg& image = member->image;
      const EntryView view = image.View();
      EntryPoints entries = {view.interval(), view.scan_bytes(), {}};
      for (int row = 0; row < view.mcu_rows(); ++row) {
        for (int segment = 0; segment < view.segments_per_row(); ++segment) {
          EXPECT_TRUE(view.Point(row, segment, &entries.points.emplace_back()));
        }
      }
      for (uint64_t changes = 1 + (*random)() % 3; changes > 0; --changes) {
        EntryPoint& point = entries.points[(*random)() % entries.points.size()];
        if ((*random)() % 4 > 0) point.byte = static_cast<uint32_t>((*random)()) % ((*random)() % 4 == 0 ? UINT32_MAX : view.scan_bytes());
        if ((*random)() % 2 > 0) point.bit = (*random)() % 8;
        point.dc[(*random)() % 3] = static_cast<int16_t>((*random)() % 4096 - 2048);
      }
      image.encoded = EncodeEntries(view.frame(), entries, 0);
    };
    ChangedImagesGiveTheCpusPixelsOrAreLeftToIt(maker, batches, change);
  }

  void DamagedDataGivesTheCpusPixelsOrIsLeftToIt(BatchMaker* maker, uint32_t batches) {
    const auto change = [](BatchMember* member, std::mt19937* random) {
      IndexedJpeg& image = member->image;
      for (uint64_t flips = 1 + (*random)() % 3; flips > 0; --flips) {
        const size_t at = image.frame.scan_offset + (*random)() % (image.file.size() - image.frame.scan_offset);
        image.file[at] = static_cast<uint8_t>(image.file[at] ^ 1u << (*random)() % 8);
      }
    };
    ChangedImagesGiveTheCpusPixelsOrAreLeftToIt(maker, batches, change);
  }

 private:
  // A random one of type, layout and filter number `kind`.
  static Recipe RecipeOf(size_t kind, std::mt19937* random) {
    Recipe recipe = RandomRecipe(random).Make();
    recipe.dtype = static_cast<DType>(kind % 4);
    recipe.memory_format = static_cast<MemoryFormat>(kind / 4 % 2);
    if (recipe.dtype == DType::kUInt8) recipe.normalize.reset();
    for (Transform& transform : recipe.transforms) {
      const auto filter = static_cast<Interpolation>(kind / 8);
      if (auto* crop = std::get_if<RandomResizedCrop>(&transform)) crop->interpolation = filter;
      if (auto* resize = std::get_if<Resize>(&transform)) resize->interpolation = filter;
    }
    return recipe;
  }

  template <class Change>
  void ChangedImagesGiveTheCpusPixelsOrAreLeftToIt(BatchMaker* maker, uint32_t batches, const Change& change) {
    std::mt19937 random(78);
    Recipe recipe;
    recipe.dtype = DType::kUInt8;
    recipe.transforms = {RandomResizedCrop{.height = 32, .width = 32}};
    size_t left_to_cpu = 0;
    for (uint32_t batch = 0; batch < batches; ++batch) {
      std::vector<std::unique_ptr<BatchMember>> members;
      for (uint32_t i = 0; i < kBatch; ++i) {
        members.push_back(MakeMember(&random, recipe, uint64_t{batch} * kBatch + i));
        change(members.back().get(), &random);
      }
      std::vector<uint32_t> left;
      Compare(maker, members, recipe, &left);
      if (HasFatalFailure()) FAIL() << "batch " << batch;
      left_to_cpu += left.size();
    }
    EXPECT_GT(left_to_cpu, batches * kBatch / 30);
    EXPECT_LT(left_to_cpu, batches * kBatch);
  }

  const IndexedJpeg& Image(size_t number, int interval) {
    const auto [at, is_new] = images_.try_emplace({number, interval});
    if (is_new) {
      EXPECT_TRUE(at->second.Make(IndexedFiles()[number], interval));
    }
    return at->second;
  }

  std::map<std::pair<size_t, int>, IndexedJpeg> images_;
  SampleRenderer cpu_;
};

}  // namespace headrace::testing
