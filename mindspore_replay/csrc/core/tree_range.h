// A range of consecutive slots of a tree, which may wrap around the end of the ring; all other weights count as zero.
// No prefix is subtracted, so rounding never leads out of the range, however large the weights before it are. Cost
// O(log capacity).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/draw.h"
#include "core/portable.h"
#include "core/ring.h"
#include "core/rows.h"
#include "core/sum_tree.h"

namespace replay {

// At each level only the nodes above the first and the last slot can straddle the range; all others are inside or
// outside as a whole. Those two are summed anew, in the tree's order.
class TreeRange {
 public:
  // A range of a ring, with at least one row.
  REPLAY_BOTH TreeRange(const SumTree &tree, RowRange rows, const Cursors &ring) : tree_(tree) {
    const int64_t first = SlotOf(rows.first, ring.head, ring.capacity);
    const int64_t last = SlotOf(rows.first + rows.size - 1, ring.head, ring.capacity);
    wraps_ = last < first;
    edges_[0] = {first, last, tree.Leaf(first), tree.Leaf(last)};
    double least[2] = {tree.Leaf(first), tree.Leaf(last)};
    for (int level = 1; level <= tree.Height(); ++level) {
      Edges &edges = edges_[level];
      edges.first = SumTree::NodeOf(level, first);
      edges.last = SumTree::NodeOf(level, last);
      const double minima[2] = {LeastOf(level, edges.first, least), LeastOf(level, edges.last, least)};
      edges.of_first = SumOf(level, edges.first);
      edges.of_last = SumOf(level, edges.last);
      least[0] = minima[0];
      least[1] = minima[1];
    }
    least_ = least[0];
  }

  REPLAY_BOTH double Total() const { return edges_[tree_.Height()].of_first; }
  // The smallest positive weight, infinite if there is none.
  REPLAY_BOTH double Minimum() const { return least_; }

  // SumTree::Descend and SlotAt, for targets in (0, Total()].
  void Descend(const double *targets, int64_t n, int64_t *slots) const {
    const TreeRange range = *this;  // which no write can change
    for (int64_t i = 0; i < n; ++i) slots[i] = range.SlotAt(targets[i]);
  }
  REPLAY_BOTH int64_t SlotAt(double target) const {
    int64_t node = 0;
    for (int level = tree_.Height(); level >= 1; --level) {
      const int64_t first = node * kFanout;
      ChildSearch search{target};
      for (int64_t i = 0; i < kFanout; ++i) search.Add(Weight(level - 1, first + i));
      node = first + search.child;
      target = std::min(target - search.before, Weight(level - 1, node));
    }
    return node;
  }

 private:
  // The nodes of a level above the first and the last slot, with their weight within the range.
  struct Edges {
    int64_t first;
    int64_t last;
    double of_first;
    double of_last;
  };

  REPLAY_BOTH bool Inside(const Edges &edges, int64_t node) const {
    return wraps_ ? node > edges.first || node < edges.last : node > edges.first && node < edges.last;
  }

  // Returns the weight of a node within the range.
  REPLAY_BOTH double Weight(int level, int64_t node) const {
    const Edges &edges = edges_[level];
    if (node == edges.first) return edges.of_first;
    if (node == edges.last) return edges.of_last;
    return Inside(edges, node) ? tree_.Sum(level, node) : 0;
  }

  REPLAY_BOTH double SumOf(int level, int64_t node) const {
    double sum = 0;
    for (int64_t i = 0; i < kFanout; ++i) sum += Weight(level - 1, node * kFanout + i);
    return sum;
  }

  // Returns the smallest positive weight below a node; `least` holds those of the edges one level below.
  REPLAY_BOTH double LeastOf(int level, int64_t node, const double (&least)[2]) const {
    const Edges &edges = edges_[level - 1];
    double minimum = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < kFanout; ++i) {
      const int64_t child = node * kFanout + i;
      double weight = 0;
      if (child == edges.first) {
        weight = least[0];
      } else if (child == edges.last) {
        weight = least[1];
      } else if (Inside(edges, child)) {
        weight = level == 1 ? tree_.Leaf(child) : tree_.Least(level - 1, child);
      }
      if (weight > 0 && weight < minimum) minimum = weight;
    }
    return minimum;
  }

  SumTree tree_;
  bool wraps_ = false;
  double least_ = 0;
  Edges edges_[SumTree::kMaxHeight + 1] = {};
};

// Returns the smallest positive weight of the rows of a range.
REPLAY_BOTH inline double LeastWeight(const SumTree &tree, RowRange rows, const Cursors &ring) {
  return rows.size == ring.count ? tree.Minimum() : TreeRange(tree, rows, ring).Minimum();
}

}  // namespace replay
