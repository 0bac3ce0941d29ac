// A folder of made-up images in three classes, and what packs and verifies it.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "packer/pack.h"
#include "packer/verify.h"
#include "tests/support/jpeg_maker.h"
#include "tests/support/temporary_folder.h"

namespace headrace::testing {

class PackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    for (int i = 0; i < 120; ++i) {
      JpegOptions options;
      options.width = 16 + i;
      options.height = 90 - i % 40;
      options.sampling = AllSamplings()[static_cast<size_t>(i) % AllSamplings().size()];
      options.process = i % 11 == 10 ? Process::kProgressive : Process::kBaseline;
      const std::vector<uint8_t> jpeg = MakeJpeg(options, &random);
      folder_.Write("src/class" + std::to_string(i % 3) + "/" + std::to_string(i) + ".jpg",
                    std::string(jpeg.begin(), jpeg.end()));
    }
    folder_.Write("src/class1/notes.txt", "no image");
    options_.source = folder_.File("src");
    options_.destination = folder_.File("made/below/dst");
    options_.shard_bytes = 100000;
    options_.threads = 2;
  }

  absl::StatusOr<PackSummary> Run() {
    PackProgress progress;
    return Pack(options_, &progress);
  }

  // All files of the dataset, and their bytes.
  std::map<std::string, std::string> Files(const std::string& name) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.File(name))) {
      const std::string file = entry.path().filename().string();
      files[file] = folder_.Read(name + "/" + file);
    }
    return files;
  }

  VerifySummary Verify(std::vector<std::string>* found) {
    VerifyProgress progress;
    const auto summary = VerifyDataset({options_.destination, 3, true}, &progress,
                                       [&](bool, const std::string& what) { found->push_back(what); });
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.ok() ? *summary : VerifySummary();
  }

  TemporaryFolder folder_;
  PackOptions options_;
};

}  // namespace headrace::testing
