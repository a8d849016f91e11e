// Uniform draws of logical rows, with and without replacement. Cost O(number of draws).
#pragma once

#include <cstdint>

#include "core/random.h"
#include "core/scratch.h"

namespace replay {

// Rows [first, first + size) of the `count` rows stored, oldest first.
struct RowRange {
  int64_t first;
  int64_t size;
};

// A Python slice `start:stop` of `count` rows: negative bounds count from the end, bounds out of range are clamped.
REPLAY_BOTH inline RowRange SliceRows(int64_t start, int64_t stop, int64_t count) {
  auto clamp = [count](int64_t bound) {
    if (bound < 0) bound = bound < -count ? 0 : bound + count;
    return bound > count ? count : bound;
  };
  const int64_t first = clamp(start);
  const int64_t last = clamp(stop);
  return {first, last > first ? last - first : 0};
}

// Returns the row of draw i from `range`; draws are independent.
REPLAY_BOTH inline int64_t DrawnRow(const RandomState &state, RowRange range, int64_t i) {
  const uint64_t counter = static_cast<uint64_t>(state.counter) + static_cast<uint64_t>(i);
  return range.first + Below(RandomBits(static_cast<uint64_t>(state.key), counter), range.size);
}

// Draws `draws` independent rows of `range`; rows may repeat.
inline void DrawWithReplacement(RandomState *state, RowRange range, int64_t draws, int64_t *rows) {
  const RandomState before = *state;
  for (int64_t i = 0; i < draws; ++i) rows[i] = DrawnRow(before, range, i);
  state->counter += draws;
}

// An array that initially holds its own indices. Only changed cells are stored, in a hash table with open addressing.
class SparseIdentity {
 public:
  explicit SparseIdentity(int64_t changes) {
    size_t buckets = 4;
    while (buckets < 2 * static_cast<size_t>(changes)) buckets *= 2;
    mask_ = buckets - 1;
    keys_.assign(buckets, -1);
    values_.resize(buckets);
  }

  int64_t Get(int64_t key) const {
    const size_t bucket = Find(key);
    return keys_[bucket] == key ? values_[bucket] : key;
  }

  void Set(int64_t key, int64_t value) {
    const size_t bucket = Find(key);
    keys_[bucket] = key;
    values_[bucket] = value;
  }

 private:
  size_t Find(int64_t key) const {
    size_t bucket = static_cast<size_t>(MixBits(static_cast<uint64_t>(key))) & mask_;
    while (keys_[bucket] != -1 && keys_[bucket] != key) bucket = (bucket + 1) & mask_;
    return bucket;
  }

  size_t mask_;
  Vector<int64_t> keys_;
  Vector<int64_t> values_;
};

// Returns the cell that step i of a Fisher-Yates shuffle of `size` cells swaps with cell i.
REPLAY_BOTH inline int64_t ShufflePartner(const RandomState &state, int64_t size, int64_t i) {
  return i + DrawnRow(state, {0, size - i}, i);
}

// Draws `draws` <= range.size different rows of `range` in random order: the first steps of a Fisher-Yates shuffle of
// the range. Only the cells that moved are stored.
inline void DrawWithoutReplacement(RandomState *state, RowRange range, int64_t draws, int64_t *rows) {
  const RandomState before = *state;
  SparseIdentity cells(draws);
  for (int64_t i = 0; i < draws; ++i) {
    const int64_t j = ShufflePartner(before, range.size, i);
    rows[i] = range.first + cells.Get(j);
    cells.Set(j, cells.Get(i));
  }
  state->counter += draws;
}

}  // namespace replay
