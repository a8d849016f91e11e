// Draws of rows: uniform from a ring, uniform by rank among rows with positive weight, in proportion to weight, or in
// order. Cost O(1) a draw, O(log capacity) with weights.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/draw.h"
#include "core/epochs.h"
#include "core/outputs.h"
#include "core/points.h"
#include "core/random.h"
#include "core/ring.h"
#include "core/rows.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/sum_tree.h"
#include "core/tree_range.h"

namespace replay {

// Draws the oldest or the newest of the `eligible` rows of a range whose weights are 0 and 1. The next one is mostly near.
inline void DrawInOrder(int64_t draw, const SumTree &tree, const Cursors &ring, RowRange rows, int64_t eligible,
                        int64_t n, int64_t *slots) {
  const double offset = tree.Before(SlotOf(rows.first, ring.head, ring.capacity)), total = tree.Total();
  const int64_t step = draw == kOldestFirst ? 1 : ring.capacity - 1;
  for (int64_t i = 0; i < n; ++i) {
    int64_t slot = i == 0 ? 0 : slots[i - 1];
    for (int64_t left = i == 0 ? 0 : kFanout; left > 0; --left) {
      slot += slot + step < ring.capacity ? step : step - ring.capacity;
      if (tree.Leaf(slot) > 0) break;
    }
    if (i == 0 || tree.Leaf(slot) <= 0)
      slot = tree.SlotAt(Rotated(static_cast<double>(RankInOrder(draw, eligible, i) + 1), offset, total));
    slots[i] = slot;
  }
}

// Draws from the `eligible` rows of a range whose weights are 0 and 1: draws ranks as from a ring without weights, then
// looks up the row of each rank.
inline void DrawByRank(RandomState *state, const SumTree &tree, const Cursors &ring, RowRange rows, int64_t eligible,
                       bool replace, bool ordered, int64_t draws, int64_t *slots) {
  if (replace) {
    DrawWithReplacement(state, {0, eligible}, draws, slots);
  } else {
    DrawWithoutReplacement(state, {0, eligible}, draws, slots);
  }
  const bool rotates = ordered || rows.size < ring.capacity;
  const bool all =
      rows.size == ring.count && eligible == ring.count && tree.Positive() >= static_cast<double>(ring.count);
  if (all) {  // the rank of a row is its place
    for (int64_t i = 0; rotates && i < draws; ++i) slots[i] = SlotOf(rows.first + slots[i], ring.head, ring.capacity);
    return;
  }
  Vector<double> ranks(static_cast<size_t>(draws));
  const double before = rotates ? tree.Before(SlotOf(rows.first, ring.head, ring.capacity)) : 0, total = tree.Total();
  std::transform(slots, slots + draws, ranks.begin(), [=](int64_t rank) {
    return rotates ? Rotated(static_cast<double>(rank + 1), before, total) : static_cast<double>(rank + 1);
  });
  tree.Descend(ranks.data(), draws, slots);
}

// Draws one row from each of `draws` equal strata of the total weight of a tree, or of a range of rows.
template <typename Weights>
void DrawByWeight(RandomState *state, const Weights &weights, int64_t draws, int64_t *slots) {
  const double total = weights.Total(), stratum = total / static_cast<double>(draws);
  Vector<double> targets(static_cast<size_t>(draws));
  for (int64_t i = 0; i < draws; ++i) targets[static_cast<size_t>(i)] = PointOfStratum(*state, i, stratum, total);
  weights.Descend(targets.data(), draws, slots);
  state->counter += draws;
}

// True if at least `wanted` rows of a range have positive weight. Cost O(wanted) if most have.
inline bool HasPositive(const SumTree &tree, RowRange rows, const Cursors &ring, int64_t wanted) {
  int64_t found = 0;
  for (int64_t row = rows.first + rows.size; row-- > rows.first && found < wanted;) {
    found += tree.Leaf(SlotOf(row, ring.head, ring.capacity)) > 0;
  }
  return found >= wanted;
}

// Computes importance weights. `least` is the smallest weight in the buffer; if negative, the smallest weight of these
// rows is used.
inline void ImportanceWeights(const SumTree &tree, const int64_t *slots, int64_t n, double beta, double least,
                              float *weights) {
  Vector<double> drawn(static_cast<size_t>(n));
  std::transform(slots, slots + n, drawn.begin(), [&tree](int64_t slot) { return tree.Leaf(slot); });
  const double smallest = least < 0 ? *std::min_element(drawn.begin(), drawn.end()) : least;
  std::transform(drawn.begin(), drawn.end(), weights,
                 [=](double weight) { return ImportanceWeight(smallest, weight, beta); });
}

// Draws n slots of eligible start rows, as the plan says. `bounds` is a slice of logical rows.
template <typename Reach>
Status Draw(const Plan &plan, const Reach &reach, RandomState *random, const int64_t *bounds, int64_t n,
            int64_t *slots) {
  const SumTree &tree = reach.row_state().tree;
  const Cursors &ring = reach.places();
  const RowRange rows = SliceRows(bounds[0], bounds[1], ring.count);
  const int64_t needed = plan.Needed(n);
  if (plan.draw == kByPriority && rows.size == ring.count) {
    if (tree.Positive() < static_cast<double>(needed)) return kTooFewRows;
    DrawByWeight(random, tree, n, slots);
    return kOk;
  }
  if (plan.draw == kByPriority) {
    if (!HasPositive(tree, rows, ring, needed)) return kTooFewRows;
    DrawByWeight(random, TreeRange(tree, rows, ring), n, slots);
    return kOk;
  }
  const auto eligible = static_cast<int64_t>(SumRows(tree, rows, ring.head, ring.capacity));
  if (eligible < needed) return kTooFewRows;
  if (plan.InOrder()) {
    DrawInOrder(plan.draw, tree, ring, rows, eligible, n, slots);
    random->counter += n;  // as every draw does, so that later draws use the same random numbers
    return kOk;
  }
  DrawByRank(random, tree, ring, rows, eligible, plan.replace != 0, plan.ordered != 0, n, slots);
  return kOk;
}

// Draws n slots of a ring without row state.
inline Status DrawUniformly(const Plan &plan, const Cursors &ring, RandomState *random, const int64_t *bounds,
                            int64_t n, int64_t *slots) {
  const RowRange rows = SliceRows(bounds[0], bounds[1], ring.count);
  if (rows.size < plan.Needed(n)) return kTooFewRows;
  if (plan.replace != 0) {
    DrawWithReplacement(random, rows, n, slots);
  } else {
    DrawWithoutReplacement(random, rows, n, slots);
  }
  // A full ring holds the same rows in any order, so a draw from all of it can yield slots directly.
  if (plan.ordered != 0 || rows.size < ring.capacity) {
    for (int64_t i = 0; i < n; ++i) slots[i] = SlotOf(slots[i], ring.head, ring.capacity);
  }
  return kOk;
}

// Draws the next batch of an epoch; begins the next epoch if none is left. The last slots of a short batch repeat the
// first. Returns the number of rows, or -1 if there are too few for a batch.
template <typename SlotOf>
int64_t DrawInEpochs(const EpochRule &rule, const Cursors &ring, RandomState *random, Epoch *epoch,
                     const SlotOf &slot_of, int64_t n, int64_t *slots) {
  std::fill_n(slots, n, ring.head);
  Epoch next = *epoch;
  int64_t drawn = TakeBatch(rule, &next, slot_of, n, slots);
  if (drawn < 0) {
    const auto key = RandomBits(static_cast<uint64_t>(random->key), static_cast<uint64_t>(random->counter));
    next = {static_cast<int64_t>(key), ring.inserted - ring.count, ring.count, 0, epoch->begun + 1};
    drawn = TakeBatch(rule, &next, slot_of, n, slots);
  }
  if (drawn < 0) return -1;
  // If the process dies before it sets `size`, the epoch is over.
  *epoch = {next.key, next.first, 0, next.position, next.begun};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  epoch->size = next.size;
  random->counter += n;
  if (drawn > 0) std::fill(slots + drawn, slots + n, slots[0]);
  return drawn;
}

}  // namespace replay
