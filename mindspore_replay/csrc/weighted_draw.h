// Draws from the rows with positive weight: by rank, each equally likely, or by weight. Cost O(log capacity) a draw.
#ifndef MINDSPORE_REPLAY_WEIGHTED_DRAW_H_
#define MINDSPORE_REPLAY_WEIGHTED_DRAW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "draw.h"
#include "random.h"
#include "ring.h"
#include "sum_tree.h"
#include "weights.h"

namespace replay {

// The sum of the weights of a range of logical rows.
inline double SumRows(const SumTree &tree, RowRange rows, int64_t head, int64_t capacity) {
  if (rows.size == 0) return 0;
  auto before = [&](int64_t slot) { return slot == capacity ? tree.Total() : tree.Before(slot); };
  const int64_t begin = SlotOf(rows.first, head, capacity);
  const int64_t end = begin + rows.size;
  return end > capacity ? tree.Total() - before(begin) + before(end - capacity) : before(end) - before(begin);
}

// Turns points of the total weight, counted from the first weight of `slot`, into points counted from slot 0.
inline void Rotate(const SumTree &tree, int64_t slot, std::vector<double> *targets) {
  const double offset = tree.Before(slot);
  const double total = tree.Total();
  for (double &target : *targets) {
    target += offset;
    if (target > total) target = std::min(target - total, total);  // the offset may be rounded up
  }
}

// `draws` of the `eligible` rows in a range, of a tree whose weights are 0 and 1: ranks are drawn as from a ring without
// weights, and the row of each rank is looked up.
inline void DrawByRank(RandomState *state, const SumTree &tree, const Cursors &ring, RowRange rows, int64_t eligible,
                       bool replace, bool ordered, int64_t draws, int64_t *slots) {
  if (replace) {
    DrawWithReplacement(state, {0, eligible}, draws, slots);
  } else {
    DrawWithoutReplacement(state, {0, eligible}, draws, slots);
  }
  std::vector<double> ranks(static_cast<size_t>(draws));
  std::transform(slots, slots + draws, ranks.begin(), [](int64_t rank) { return static_cast<double>(rank + 1); });
  if (ordered || rows.size < ring.capacity) Rotate(tree, SlotOf(rows.first, ring.head, ring.capacity), &ranks);
  tree.Descend(ranks.data(), draws, slots);
}

// One row of each of `draws` equal strata of the total weight.
inline void DrawByWeight(RandomState *state, const SumTree &tree, const Cursors &ring, bool ordered, int64_t draws,
                         int64_t *slots) {
  const uint64_t key = static_cast<uint64_t>(state->key);
  const uint64_t counter = static_cast<uint64_t>(state->counter);
  const double stratum = tree.Total() / static_cast<double>(draws);
  std::vector<double> targets(static_cast<size_t>(draws));
  for (int64_t i = 0; i < draws; ++i) {
    const double u = UnitInterval(RandomBits(key, counter + static_cast<uint64_t>(i)));
    targets[static_cast<size_t>(i)] = std::min((static_cast<double>(i) + u) * stratum, tree.Total());
  }
  if (ordered) Rotate(tree, ring.head, &targets);
  tree.Descend(targets.data(), draws, slots);
  state->counter += draws;
}

// Weights that undo the bias of a draw by weight, (smallest / weight)^beta.
inline void ImportanceWeights(const SumTree &tree, const int64_t *slots, int64_t n, double beta, bool by_buffer,
                              float *weights) {
  double smallest = tree.Minimum();
  if (!by_buffer) {
    smallest = tree.Leaf(slots[0]);
    for (int64_t i = 1; i < n; ++i) smallest = std::min(smallest, tree.Leaf(slots[i]));
  }
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = static_cast<float>(std::pow(smallest / tree.Leaf(slots[i]), beta));
  }
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_WEIGHTED_DRAW_H_
