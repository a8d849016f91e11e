// Draws from the rows with positive weight: by rank, each equally likely, or by weight. Cost O(log capacity) a draw.
#ifndef MINDSPORE_REPLAY_WEIGHTED_DRAW_H_
#define MINDSPORE_REPLAY_WEIGHTED_DRAW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "draw.h"
#include "points.h"
#include "random.h"
#include "ring.h"
#include "sum_tree.h"
#include "weights.h"

namespace replay {

// As Rotated for all targets, which are counted from the first weight of `slot`.
inline void Rotate(const SumTree &tree, int64_t slot, std::vector<double> *targets) {
  const double offset = tree.Before(slot);
  const double total = tree.Total();
  for (double &target : *targets) target = Rotated(target, offset, total);
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
  const RandomState before = *state;
  const double total = tree.Total();
  const double stratum = total / static_cast<double>(draws);
  std::vector<double> targets(static_cast<size_t>(draws));
  for (int64_t i = 0; i < draws; ++i) targets[static_cast<size_t>(i)] = PointOfStratum(before, i, stratum, total);
  if (ordered) Rotate(tree, ring.head, &targets);
  tree.Descend(targets.data(), draws, slots);
  state->counter += draws;
}

// The importance weights of rows; `smallest` is that of the buffer or of these rows.
inline void ImportanceWeights(const SumTree &tree, const int64_t *slots, int64_t n, double beta, bool by_buffer,
                              float *weights) {
  double smallest = tree.Minimum();
  if (!by_buffer) {
    smallest = tree.Leaf(slots[0]);
    for (int64_t i = 1; i < n; ++i) smallest = std::min(smallest, tree.Leaf(slots[i]));
  }
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = ImportanceWeight(smallest, tree.Leaf(slots[i]), beta);
  }
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_WEIGHTED_DRAW_H_
