// A sum tree with one weight per slot: set, total, prefix sums, and the slot at a point of the total. A node is the
// sequential sum of its children, recomputed when one of them changes, so the tree is a function of its leaves and
// never drifts. Cost O(log capacity) a slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/portable.h"
#include "core/scratch.h"

namespace replay {

constexpr int64_t kFanout = 16;

// Number of targets that descend together, in pairs. The sums over one node's children depend on each other; those of
// several nodes are computed at the same time.
constexpr int64_t kPairs = 4;
constexpr int64_t kLanes = 2 * kPairs;
#ifndef __CUDACC__  // nvcc has no vector types, and a GPU thread descends with one target
using Doubles = double __attribute__((vector_size(2 * sizeof(double))));
using Integers = int64_t __attribute__((vector_size(2 * sizeof(int64_t))));
#endif

REPLAY_BOTH inline bool IsWeight(double value) { return value >= 0 && value <= std::numeric_limits<double>::max(); }

// Searches a node's children for the one a target falls on.
struct ChildSearch {
  double target;
  double sum = 0;     // sum of the children so far
  double before = 0;  // sum of the children before the one found
  int64_t child = 0;

  REPLAY_BOTH void Add(double weight) {
    sum += weight;
    const bool beyond = sum < target;
    child += beyond;
    before = beyond ? sum : before;
  }
};

// One array holds the leaves, the sums of each level above them, and the smallest positive weight below each of those
// nodes, infinite if there is none. Every level is padded to a multiple of the fan-out; the last element is the number
// of positive leaves.
class SumTree {
 public:
  REPLAY_BOTH SumTree() {}  // no tree, and nothing is set: an insertion of one row makes one, too
  REPLAY_BOTH SumTree(double *data, int64_t capacity) : data_(data), height_(0) {
    offset_[0] = 0;
    int64_t nodes = capacity;
    int64_t offset = RoundUp(capacity);
    while (height_ == 0 || nodes > 1) {
      nodes = RoundUp(nodes) / kFanout;
      nodes_[++height_] = nodes;
      offset_[height_] = offset;
      offset += RoundUp(nodes);
    }
    minima_ = offset - offset_[1];
    size_ = offset + minima_;
  }

  REPLAY_BOTH static int64_t Size(int64_t capacity) { return SumTree(nullptr, capacity).size_; }

  REPLAY_BOTH double Leaf(int64_t slot) const { return data_[slot]; }
  REPLAY_BOTH double Total() const { return *Sums(height_); }
  REPLAY_BOTH double Minimum() const { return *Minima(height_); }
  REPLAY_BOTH double Positive() const { return data_[size_ - 1]; }

  static constexpr int kMaxHeight = 9;
  // Sum: level 0 (the leaves) to Height(). Least: level 1 and up, the smallest positive weight below the node.
  REPLAY_BOTH double Sum(int level, int64_t node) const { return Sums(level)[node]; }
  REPLAY_BOTH double Least(int level, int64_t node) const { return Minima(level)[node]; }

  // Returns the sum of the leaves in slots [0, slot), slot < capacity.
  REPLAY_BOTH double Before(int64_t slot) const {
    double before = 0;
    for (int level = height_; level >= 1; --level) {
      const int64_t child = slot >> (kBits * (level - 1));
      const double *children = Sums(level - 1) + (child & ~(kFanout - 1));
      double prefix = 0;
      for (int64_t i = 0; i < (child & (kFanout - 1)); ++i) prefix += children[i];
      before += prefix;
    }
    return before;
  }

  // Returns the slot at a target in (0, Total()]: the first slot whose prefix sum, itself included, reaches the target.
  // Never returns a slot of weight zero.
  REPLAY_BOTH int64_t SlotAt(double target) const {
    int64_t node = 0;
    for (int level = height_; level >= 1; --level) {
      const double *children = Sums(level - 1) + node * kFanout;
      ChildSearch search{target};
      for (int64_t i = 0; i < kFanout; ++i) search.Add(children[i]);
      target = std::min(target - search.before, children[search.child]);
      node = node * kFanout + search.child;
    }
    return node;
  }

#ifndef __CUDACC__
  // SlotAt for many targets, which are modified: faster on a CPU, as several descend side by side.
  void Descend(double *targets, int64_t n, int64_t *slots) const {
    std::fill_n(slots, n, 0);
    for (int level = height_; level >= 1; --level) {
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) Step(level, targets + i, kLanes, slots + i);
      if (i < n) Step(level, targets + i, n - i, slots + i);
    }
  }
#endif

  // Sets a weight; Refresh recomputes the nodes above. Threads that set one slot concurrently must set the same weight.
  REPLAY_BOTH void SetLeaf(int64_t slot, double weight) const {
    const double before = Exchange(&data_[slot], weight);
    AddTo(&data_[size_ - 1], (weight > 0) - (before > 0));
  }

  // Recomputes the nodes above these leaves. Modifies `slots`.
  void Refresh(Vector<int64_t> *slots) const {
    Vector<int64_t> &nodes = *slots;
    for (int level = 1; level <= height_; ++level) {
      size_t kept = 0;
      for (const int64_t child : nodes) {
        const int64_t node = child / kFanout;
        if (kept == 0 || nodes[kept - 1] != node) nodes[kept++] = node;
      }
      nodes.resize(kept);
      if (static_cast<int64_t>(kept) > nodes_[level]) {
        nodes.resize(static_cast<size_t>(nodes_[level]));
        std::iota(nodes.begin(), nodes.end(), 0);
      }
      for (const int64_t node : nodes) RefreshNode(level, node);
    }
  }

  // Recomputes a node from its children, at a level from 1 to Height().
  REPLAY_BOTH void RefreshNode(int level, int64_t node) const {
    const double *children = Sums(level - 1) + node * kFanout;
    double sum = 0;
    for (int64_t i = 0; i < kFanout; ++i) sum += children[i];
    Sums(level)[node] = sum;
    const double *minima = Minima(level - 1) + node * kFanout;
    Minima(level)[node] = level == 1 ? LeastPositive<true>(children) : LeastPositive<false>(minima);
  }

  REPLAY_BOTH int Height() const { return height_; }
  // The node above a slot at a level.
  REPLAY_BOTH static int64_t NodeOf(int level, int64_t slot) { return slot >> (kBits * level); }

  // Empties the tree by calls of fill(numbers, n, number).
  template <typename Fill>
  REPLAY_BOTH void Clear(const Fill &fill) const {
    fill(data_, Minima(1) - data_, 0.0);
    fill(Minima(1), minima_ - 1, std::numeric_limits<double>::infinity());
    fill(data_ + size_ - 1, 1, 0.0);
  }

 private:
  static constexpr int kBits = 4;

  REPLAY_BOTH static int64_t RoundUp(int64_t size) { return (size + kFanout - 1) / kFanout * kFanout; }

  // Returns the smallest positive number of a node's children, infinity if there is none; with kZeros some may be zero.
  template <bool kZeros>
  REPLAY_BOTH static double LeastPositive(const double *numbers) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
#ifdef __CUDACC__
    double least = kNone;
    for (int64_t i = 0; i < kFanout; ++i) least = numbers[i] > 0 && numbers[i] < least ? numbers[i] : least;
    return least;
#else
    const Doubles none = {kNone, kNone};
    Doubles least = none;
    for (int64_t i = 0; i < kFanout; i += 2) {
      Doubles pair;
      std::memcpy(&pair, numbers + i, sizeof(pair));
      if (kZeros) pair = pair > 0 ? pair : none;
      least = pair < least ? pair : least;
    }
    return std::min(least[0], least[1]);
#endif
  }

  REPLAY_BOTH double *Sums(int level) const { return data_ + offset_[level]; }
  REPLAY_BOTH double *Minima(int level) const { return data_ + offset_[level] + minima_; }

#ifndef __CUDACC__
  static void PrefetchNode(const double *children) {
    __builtin_prefetch(children);
    __builtin_prefetch(children + kFanout / 2);
  }

  // Moves up to kLanes nodes of a level to the children their targets fall on; a target becomes one in (0, weight of
  // that child]. Instantiated for a full number of lanes and for the rest.
  __attribute__((always_inline)) void Step(int level, double *targets, int64_t lanes, int64_t *nodes) const {
    const double *children[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {  // surplus lanes repeat the last one
      children[lane] = Sums(level - 1) + nodes[std::min(lane, lanes - 1)] * kFanout;
    }
    Doubles target[kPairs], sum[kPairs] = {}, before[kPairs][kFanout];
    Integers child[kPairs] = {};
    for (int64_t p = 0; p < kPairs; ++p) {
      target[p] = Doubles{targets[std::min(2 * p, lanes - 1)], targets[std::min(2 * p + 1, lanes - 1)]};
    }
    for (int64_t i = 0; i < kFanout; ++i) {
      for (int64_t p = 0; p < kPairs; ++p) {
        before[p][i] = sum[p];
        sum[p] += Doubles{children[2 * p][i], children[2 * p + 1][i]};
        child[p] -= sum[p] < target[p];
      }
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t pair = lane / 2, half = lane % 2;
      const int64_t at = child[pair][half];
      targets[lane] = std::min(target[pair][half] - before[pair][at][half], children[lane][at]);
      nodes[lane] = nodes[lane] * kFanout + at;
      if (level > 1) PrefetchNode(Sums(level - 2) + nodes[lane] * kFanout);
    }
  }
#endif

  double *data_;
  int height_;
  int64_t offset_[kMaxHeight + 1];  // of level 0 to the height
  int64_t nodes_[kMaxHeight + 1];   // from level 1 on
  int64_t minima_;
  int64_t size_;
};

}  // namespace replay
