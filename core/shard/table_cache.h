// The shared table sets of entry data that were used lately, parsed.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "core/decode/entry/jpeg_frame.h"

namespace headrace {

// Images that one program wrote with one quality share a set; those with tables of their own find them behind their entry
// data and do not come here. Thread-safe; a place's lock is held for a copy
// of 2.7 kB. 0.7 MB.
class TableCache {
 public:
  bool Find(uint32_t shard, uint64_t offset, JpegTables* tables) {
    Place& place = PlaceOf(shard, offset);
    std::lock_guard lock(place.mutex);
    if (place.shard != shard || place.offset != offset) return false;
    *tables = place.tables;
    return true;
  }

  void Insert(uint32_t shard, uint64_t offset, const JpegTables& tables) {
    Place& place = PlaceOf(shard, offset);
    std::lock_guard lock(place.mutex);
    place.shard = shard;
    place.offset = offset;
    place.tables = tables;
  }

 private:
  struct Place {
    std::mutex mutex;
    uint32_t shard = 0;
    uint64_t offset = UINT64_MAX;
    JpegTables tables;
  };

  Place& PlaceOf(uint32_t shard, uint64_t offset) {
    const uint64_t mixed = (offset + (uint64_t{shard} << 40)) * 0x9E3779B97F4A7C15;
    return places_[mixed >> 56];
  }

  std::array<Place, 256> places_;
};

}  // namespace headrace
