// Group sampling: rows with the same value in a column form a group; draws groups, then rows of each. Cost O(N log N)
// in the rows stored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/draw.h"
#include "core/random.h"
#include "core/scratch.h"
#include "core/timeline.h"

namespace replay {

// A row and its group's value; ordered by value, then oldest first.
using GroupedRow = std::pair<int64_t, int64_t>;  // value, logical row

// Returns the eligible rows of episodes, sorted by group.
template <typename ValueAt>
std::vector<GroupedRow> RowsByGroup(const Timeline &timeline, ValueAt value_at) {
  std::vector<GroupedRow> rows;
  const Cursors &ring = timeline.places();
  for (int64_t row = 0; row < ring.count; ++row) {
    const int64_t slot = SlotOf(row, ring.head, ring.capacity);
    if (timeline.IsOfGroup(row, slot)) rows.emplace_back(value_at(slot), row);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

// Draws `groups` different groups and `size` rows of each: consecutive rows if `ordered`, else different rows in random
// order; fewer if the group has fewer. Writes logical rows, -1 for padding. Returns false if there are too few groups.
inline bool DrawGroups(const std::vector<GroupedRow> &rows, RandomState *state, int64_t groups, int64_t size,
                       bool ordered, int64_t *drawn) {
  Vector<int64_t> begins;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].first != rows[i - 1].first) begins.push_back(static_cast<int64_t>(i));
  }
  const auto count = static_cast<int64_t>(begins.size());
  if (count < groups) return false;
  begins.push_back(static_cast<int64_t>(rows.size()));
  Vector<int64_t> ranks(static_cast<size_t>(groups));
  DrawWithoutReplacement(state, {0, count}, groups, ranks.data());
  const auto key = static_cast<uint64_t>(state->key);
  const auto counter = static_cast<uint64_t>(state->counter);
  std::fill_n(drawn, groups * size, int64_t{-1});
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = begins[static_cast<size_t>(ranks[static_cast<size_t>(g)])];
    const int64_t length = begins[static_cast<size_t>(ranks[static_cast<size_t>(g)]) + 1] - begin;
    const int64_t kept = std::min(length, size);
    int64_t *out = drawn + g * size;
    if (ordered) {
      const int64_t skipped = Below(RandomBits(key, counter + static_cast<uint64_t>(g)), length - kept + 1);
      for (int64_t i = 0; i < kept; ++i) out[i] = rows[static_cast<size_t>(begin + skipped + i)].second;
    } else {
      RandomState own{state->key, state->counter + g * size};
      DrawWithoutReplacement(&own, {begin, length}, kept, out);
      for (int64_t i = 0; i < kept; ++i) out[i] = rows[static_cast<size_t>(out[i])].second;
    }
  }
  state->counter += ordered ? groups : groups * size;
  return true;
}

}  // namespace replay
