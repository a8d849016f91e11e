// Counter-based random numbers: number i of a key depends on (key, i) and on nothing else.
// The mixing function is SplitMix64's (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
#pragma once

#include <cstdint>

#include "core/portable.h"

namespace replay {

// The state of a generator, laid out as in its Parameter.
struct RandomState {
  int64_t key;
  int64_t counter;
};

REPLAY_BOTH inline uint64_t MixBits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Returns 64 random bits: number `counter` of the sequence `key`.
REPLAY_BOTH inline uint64_t RandomBits(uint64_t key, uint64_t counter) {
  return MixBits(key + (counter + 1) * 0x9E3779B97F4A7C15ULL);
}

// Maps 64 random bits to [0, n), for n in [1, 2^31): floor(bits * n / 2^64). Probabilities differ by at most 2^-64.
REPLAY_BOTH inline int64_t Below(uint64_t bits, int64_t n) {
  const uint64_t size = static_cast<uint64_t>(n);
  const uint64_t high = (bits >> 32) * size;
  const uint64_t low = ((bits & 0xFFFFFFFFULL) * size) >> 32;
  return static_cast<int64_t>((high + low) >> 32);
}

// Maps 64 random bits to (0, 1].
REPLAY_BOTH inline double UnitInterval(uint64_t bits) {
  return static_cast<double>((bits >> 11) + 1) * (1.0 / 9007199254740992.0);
}

}  // namespace replay
