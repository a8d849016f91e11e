// A uniform sample, without replacement, of all rows ever inserted: Algorithm R (Vitter 1985, "Random sampling with a
// reservoir"). Cost O(1) a row.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace replay {

// Returns the slot of the row with a serial number, or -1 if the row is not kept. `base` is the serial number of the
// stream's first row. The slot depends only on the key and the serial number, so a row is found by its serial number.
REPLAY_BOTH inline int64_t ReservoirSlot(int64_t key, int64_t serial, int64_t base, int64_t capacity) {
  const int64_t earlier = serial - base;
  if (earlier < capacity) return earlier;
  // A derived key: samples draw from the key's own sequence.
  const uint64_t bits = RandomBits(MixBits(static_cast<uint64_t>(key)), static_cast<uint64_t>(serial));
  const double place = std::ceil(UnitInterval(bits) * static_cast<double>(earlier + 1)) - 1;
  return place < static_cast<double>(capacity) ? static_cast<int64_t>(place) : -1;
}

}  // namespace replay
