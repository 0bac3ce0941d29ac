#include "core/shard/manifest.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Manifest Example() {
  Manifest manifest;
  manifest.fields = {{"image", FieldKind::kImage, 15700000},
                     {"label", FieldKind::kInt64, 0},
                     {"na\"me", FieldKind::kText, 77},
                     {"größe", FieldKind::kFloat64, 0}};
  manifest.field_bytes = {1000000, 0, 5000, 0};
  manifest.classes = {"cat", "dog\n", "écureuil"};
  manifest.shards = {{10, 4096, {1, 2}}, {20, 8192, {3}}};
  manifest.packed = {"headrace 0.1.0", "imagefolder", "/photos", uint64_t{1} << 30, true, 3, 2, 1};
  return manifest;
}

TEST(Manifest, RoundTrips) {
  const Manifest manifest = Example();
  const auto read = ParseManifest(ManifestToJson(manifest), "dataset.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ManifestToJson(*read), ManifestToJson(manifest));
  EXPECT_EQ(read->samples(), 30u);
  EXPECT_EQ(read->lmdb_bytes(), 12288u);
  EXPECT_EQ(read->fields[2].max_bytes, 77u);
  EXPECT_EQ(read->classes[2], "écureuil");
  EXPECT_EQ(read->packed.damaged, 1u);
}

// Computed with Python's xxhash and json from docs/shard_format.md.
TEST(Manifest, TheHashIsThatOfTheDocument) { EXPECT_EQ(ManifestHash(Example()), "5f0fa1a0965f314dd5a384d123d654df"); }

TEST(Manifest, TheHashChangesWithTheContentAndWithNothingElse) {
  const std::string hash = ManifestHash(Example());
  Manifest other = Example();
  other.packed.source = "/elsewhere";
  other.field_bytes[0] = 1;
  EXPECT_EQ(ManifestHash(other), hash);
  other = Example();
  other.classes[0] = "cats";
  EXPECT_NE(ManifestHash(other), hash);
  other = Example();
  other.shards[1].samples = 21;
  EXPECT_NE(ManifestHash(other), hash);
  other = Example();
  other.shards[1].lmdb_checksum[15] = 1;
  EXPECT_NE(ManifestHash(other), hash);
  other = Example();
  other.fields[3].kind = FieldKind::kInt64;
  EXPECT_NE(ManifestHash(other), hash);
}

TEST(Manifest, DamagedDescriptionsAreRefused) {
  const std::string good = ManifestToJson(Example());
  const auto changed = [&](auto change) {
    Json json = Json::parse(good);
    change(json);
    return ParseManifest(json.dump(), "dataset.json").status();
  };
  EXPECT_TRUE(changed([](Json&) {}).ok());
  EXPECT_TRUE(changed([](Json& json) { json["new key"] = 1; }).ok());
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["format"] = "other"; })));
  EXPECT_THAT(changed([](Json& json) { json["version"] = 2; }).ToString(), HasSubstr("version 2"));
  for (const char* key : {"format", "version"}) {
    const std::string deep(1000000, '['), close(1000000, ']');
    std::string text = good;
    text.replace(text.find(key) + std::string(key).size() + 3, 0, deep + close + ", \"x\": ");
    EXPECT_TRUE(absl::IsDataLoss(ParseManifest(text, "dataset.json").status()));
  }
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["samples"] = 31; })));
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["classes"][0] = "x"; })));
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["classes"] = 7; })));
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["shards"] = Json::array(); })));
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["shards"][0]["samples"] = -1; })));
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["shards"][0]["samples"] = UINT64_MAX; })));
  for (const double number : {1e81, 10.0, -1.0}) {
    EXPECT_TRUE(absl::IsDataLoss(changed([&](Json& json) { json["shards"][0]["samples"] = number; })));
    EXPECT_TRUE(absl::IsDataLoss(changed([&](Json& json) { json["samples"] = number; })));
    EXPECT_TRUE(absl::IsDataLoss(changed([&](Json& json) { json["fields"][0]["bytes"] = number; })));
    EXPECT_TRUE(absl::IsDataLoss(changed([&](Json& json) { json["packed"]["entry_interval"] = number; })));
  }
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["shards"][0].erase("lmdb_bytes"); })));
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json["fields"][0]["kind"] = "video"; })));
  EXPECT_FALSE(changed([](Json& json) { json["fields"][1]["name"] = "image"; }).ok());
  EXPECT_TRUE(absl::IsDataLoss(changed([](Json& json) { json.erase("hash"); })));
  for (size_t length = 0; length < good.size() - 2; length += 7) {
    EXPECT_TRUE(absl::IsDataLoss(ParseManifest(good.substr(0, length), "dataset.json").status())) << length;
  }
}

}  // namespace
}  // namespace headrace
