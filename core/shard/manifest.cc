#include "core/shard/manifest.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormatName[] = "headrace dataset";
constexpr uint64_t kMaxManifestBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxTotal = uint64_t{1} << 62;  // keeps sums of counts and sizes from wrapping

std::string ShardPath(const std::string& dir, uint32_t shard, const char* suffix) {
  char name[32];
  std::snprintf(name, sizeof name, "%05u.%s", shard, suffix);
  return absl::StrCat(dir, "/", name);
}

// A count or a size. nlohmann converts any number, and what an uint64_t does not hold (1e81) to anything.
uint64_t Whole(const nlohmann::json& number) {
  if (!number.is_number_unsigned()) throw std::runtime_error("a count or size is no whole number of 64 bits");
  return number.get<uint64_t>();
}

uint64_t WholeOr(const nlohmann::json& object, const char* key, uint64_t otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : Whole(*found);
}

// Throws nlohmann's exceptions and std::runtime_error; ParseManifest turns them into a Status.
Manifest FromJson(const nlohmann::json& json) {
  Manifest manifest;
  for (const auto& entry : json.at("fields")) {
    const auto kind = KindFromName(entry.at("kind").get<std::string>());
    if (!kind.ok()) throw std::runtime_error(std::string(kind.status().message()));
    Field field{entry.at("name").get<std::string>(), *kind, 0};
    if (HasLocation(*kind)) field.max_bytes = Whole(entry.at("max_bytes"));
    manifest.field_bytes.push_back(WholeOr(entry, "bytes", 0));
    manifest.fields.push_back(std::move(field));
  }
  manifest.classes = json.at("classes").get<std::vector<std::string>>();
  for (const auto& entry : json.at("shards")) {
    ShardEntry shard;
    shard.samples = Whole(entry.at("samples"));
    shard.lmdb_bytes = Whole(entry.at("lmdb_bytes"));
    const auto checksum = ChecksumFromHex(entry.at("xxh3_128").get<std::string>());
    if (!checksum.ok()) throw std::runtime_error(std::string(checksum.status().message()));
    shard.lmdb_checksum = *checksum;
    if (shard.samples == 0 || shard.samples > kMaxTotal / 2 - manifest.samples() ||
        shard.lmdb_bytes > kMaxTotal / 2 - manifest.lmdb_bytes()) {
      throw std::runtime_error("a shard's counts are impossible");
    }
    manifest.shards.push_back(shard);
  }
  if (auto packed = json.find("packed"); packed != json.end()) {
    manifest.packed.by = packed->value("by", "");
    manifest.packed.layout = packed->value("layout", "");
    manifest.packed.source = packed->value("source", "");
    manifest.packed.shard_bytes = WholeOr(*packed, "shard_bytes", 0);
    manifest.packed.check = packed->value("check", false);
    const uint64_t interval = WholeOr(*packed, "entry_interval", kDefaultEntryInterval);
    manifest.packed.entry_interval = static_cast<int>(std::min<uint64_t>(interval, INT_MAX));
    manifest.packed.keep_bytes = packed->value("keep_bytes", false);
    manifest.packed.transcoded = WholeOr(*packed, "transcoded", 0);
    manifest.packed.rejected = WholeOr(*packed, "rejected", 0);
    manifest.packed.skipped = WholeOr(*packed, "skipped", 0);
    manifest.packed.damaged = WholeOr(*packed, "damaged", 0);
  }
  return manifest;
}

}  // namespace

uint64_t Manifest::samples() const {
  uint64_t sum = 0;
  for (const ShardEntry& shard : shards) sum += shard.samples;
  return sum;
}

uint64_t Manifest::lmdb_bytes() const {
  uint64_t sum = 0;
  for (const ShardEntry& shard : shards) sum += shard.lmdb_bytes;
  return sum;
}

std::string ManifestHash(const Manifest& manifest) {
  std::string text = absl::StrCat(kFormatName, " ", kManifestVersion, "\n");
  for (const Field& field : manifest.fields) {
    absl::StrAppend(&text, "field ", Json(field.name).dump(), " ", KindName(field.kind), "\n");
  }
  for (const std::string& name : manifest.classes) absl::StrAppend(&text, "class ", Json(name).dump(), "\n");
  for (const ShardEntry& shard : manifest.shards) {
    absl::StrAppend(&text, "shard ", shard.samples, " ", shard.lmdb_bytes, " ", ToHex(shard.lmdb_checksum), "\n");
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data(), text.size()));
  Checksum128 checksum;
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), checksum.begin());
  return ToHex(checksum);
}

std::string ManifestToJson(const Manifest& manifest) {
  Json json;
  json["format"] = kFormatName;
  json["version"] = kManifestVersion;
  json["hash"] = ManifestHash(manifest);
  json["samples"] = manifest.samples();
  json["bytes"] = manifest.lmdb_bytes();
  json["fields"] = Json::array();
  for (size_t i = 0; i < manifest.fields.size(); ++i) {
    const Field& field = manifest.fields[i];
    Json entry = {{"name", field.name}, {"kind", KindName(field.kind)}};
    if (HasLocation(field.kind)) {
      entry["max_bytes"] = field.max_bytes;
      entry["bytes"] = manifest.field_bytes[i];
    }
    json["fields"].push_back(std::move(entry));
  }
  json["classes"] = manifest.classes;
  json["shards"] = Json::array();
  for (const ShardEntry& shard : manifest.shards) {
    json["shards"].push_back(
        {{"samples", shard.samples}, {"lmdb_bytes", shard.lmdb_bytes}, {"xxh3_128", ToHex(shard.lmdb_checksum)}});
  }
  const PackedBy& packed = manifest.packed;
  json["packed"] = {{"by", packed.by},
                    {"layout", packed.layout},
                    {"source", packed.source},
                    {"shard_bytes", packed.shard_bytes},
                    {"check", packed.check},
                    {"entry_interval", packed.entry_interval},
                    {"keep_bytes", packed.keep_bytes},
                    {"rejected", packed.rejected},
                    {"skipped", packed.skipped},
                    {"damaged", packed.damaged},
                    {"transcoded", packed.transcoded}};
  return json.dump(1) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(const std::string& text, const std::string& what) {
  // Copies and texts of a value take a stack frame for each of its levels, and ordered_json copies while it parses.
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormatName) {
    return absl::DataLossError(absl::StrCat(what, " does not describe a Headrace dataset"));
  }
  if (!json.contains("version") || json["version"] != kManifestVersion) {
    const bool is_number = json.contains("version") && json["version"].is_number();
    return absl::DataLossError(absl::StrCat(what, " has ", is_number ? "version " + json["version"].dump() : "no version",
                                            "; this program reads version ", kManifestVersion));
  }
  try {
    Manifest manifest = FromJson(json);
    HEADRACE_RETURN_IF_ERROR(Annotate(ValidateFields(manifest.fields), what));
    if (manifest.shards.empty() || Whole(json.at("samples")) != manifest.samples()) {
      return absl::DataLossError(absl::StrCat(what, ": the shards do not add up to the dataset"));
    }
    if (json.at("hash").get<std::string>() != ManifestHash(manifest)) {
      return absl::DataLossError(absl::StrCat(what, " does not match its hash"));
    }
    return manifest;
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(what, ": ", error.what()));
  }
}

absl::StatusOr<Manifest> ReadManifest(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/", kManifestName);
  absl::StatusOr<std::string> text = ReadFile(path, kMaxManifestBytes);
  if (absl::IsNotFound(text.status()) || absl::IsFailedPrecondition(text.status())) {  // or `dir` is no folder
    if (access(absl::StrCat(dir, "/", kJournalName).c_str(), F_OK) == 0) {
      return absl::NotFoundError(absl::StrCat(dir, " holds a dataset that is not finished: run the same `headrace pack` again, and it goes on"));
    }
    return absl::NotFoundError(absl::StrCat(dir, " is not a dataset (no ", kManifestName,
                                            "); make one with `headrace pack SRC ", dir, "`"));
  }
  HEADRACE_RETURN_IF_ERROR(text.status());
  return ParseManifest(*text, path);
}

std::string ShardLmdbPath(const std::string& dir, uint32_t shard) { return ShardPath(dir, shard, "lmdb"); }
std::string ShardIndexPath(const std::string& dir, uint32_t shard) { return ShardPath(dir, shard, "index"); }

}  // namespace headrace
