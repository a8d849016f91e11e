// Points of a tree's total weight that draws fall on, and importance weights.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/draw.h"
#include "core/portable.h"
#include "core/power.h"
#include "core/random.h"
#include "core/ring.h"
#include "core/sum_tree.h"

namespace replay {

// Returns the sum of the weights of a range of logical rows.
REPLAY_BOTH inline double SumRows(const SumTree &tree, RowRange rows, int64_t head, int64_t capacity) {
  if (rows.size == 0) return 0;
  const auto before = [&tree, capacity](int64_t slot) { return slot == capacity ? tree.Total() : tree.Before(slot); };
  const int64_t begin = SlotOf(rows.first, head, capacity);
  const int64_t end = begin + rows.size;
  return end > capacity ? tree.Total() - before(begin) + before(end - capacity) : before(end) - before(begin);
}

// Converts a point of the total weight, counted from the first weight of a slot, to one counted from slot 0; `offset`
// is the weight before that slot.
REPLAY_BOTH inline double Rotated(double target, double offset, double total) {
  target += offset;
  return target > total ? std::min(target - total, total) : target;  // the offset may have been rounded up
}

// Returns a random point of stratum i; `stratum` is the weight of each.
REPLAY_BOTH inline double PointOfStratum(const RandomState &state, int64_t i, double stratum, double total) {
  const uint64_t counter = static_cast<uint64_t>(state.counter) + static_cast<uint64_t>(i);
  const double u = UnitInterval(RandomBits(static_cast<uint64_t>(state.key), counter));
  return std::min((static_cast<double>(i) + u) * stratum, total);
}

// Returns the weight that corrects the bias of a draw by weight.
REPLAY_BOTH inline float ImportanceWeight(double smallest, double weight, double beta) {
  return Power(smallest / weight, beta);
}

}  // namespace replay
