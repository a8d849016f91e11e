// One weight a slot in a tree of sums: set, total, prefix sums, and the slot that a point of the total falls on. The sum
// of a node is the sequential sum of its children, computed anew whenever one of them changes, so the tree is a function
// of its leaves and never drifts. Cost O(log capacity) a slot.
#ifndef MINDSPORE_REPLAY_SUM_TREE_H_
#define MINDSPORE_REPLAY_SUM_TREE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace replay {

constexpr int64_t kFanout = 16;

// Targets that go down together, in pairs: each sum of a node's children waits for the one before, and those of several
// nodes overlap.
constexpr int64_t kPairs = 2;
constexpr int64_t kLanes = 2 * kPairs;
using Doubles = double __attribute__((vector_size(2 * sizeof(double))));
using Integers = int64_t __attribute__((vector_size(2 * sizeof(int64_t))));

inline bool IsWeight(double value) { return value >= 0 && std::isfinite(value); }

// The tree lies in one array: leaves, the sums of each level above them, and the smallest positive weight below each of
// those nodes, infinite if there is none. Every level is filled up to multiples of the fan-out; the very last number
// says how many leaves are positive.
class SumTree {
 public:
  SumTree(double *data, int64_t capacity) : data_(data) {
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

  static int64_t Size(int64_t capacity) { return SumTree(nullptr, capacity).size_; }

  double Leaf(int64_t slot) const { return data_[slot]; }
  double Total() const { return *Sums(height_); }
  double Minimum() const { return *Minima(height_); }
  double Positive() const { return data_[size_ - 1]; }

  // The sum of the leaves in slots [0, slot), slot < capacity.
  double Before(int64_t slot) const {
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

  // The slots on which the targets fall, each in (0, Total()]: the first slot up to which the leaves sum to the target or
  // more. A slot with weight zero is never given. Changes the targets.
  void Descend(double *targets, int64_t n, int64_t *slots) const {
    std::fill_n(slots, n, 0);
    for (int level = height_; level >= 1; --level) {
      for (int64_t i = 0; i < n; i += kLanes) Step(level, targets + i, std::min(n - i, kLanes), slots + i);
    }
  }

  // Sets the weights of slots, one after the other; the nodes above them are computed by Refresh.
  void SetLeaf(int64_t slot, double weight) {
    data_[size_ - 1] += (weight > 0) - (data_[slot] > 0);
    data_[slot] = weight;
  }

  // Computes the nodes above these leaves anew. Changes the slots.
  void Refresh(std::vector<int64_t> *slots) {
    std::vector<int64_t> &nodes = *slots;
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

  // An empty tree.
  void Clear() {
    std::fill_n(data_, size_, 0.0);
    std::fill_n(Minima(1), minima_ - 1, std::numeric_limits<double>::infinity());
  }

 private:
  static constexpr int kBits = 4;
  static constexpr int kMaxHeight = 9;

  static int64_t RoundUp(int64_t size) { return (size + kFanout - 1) / kFanout * kFanout; }

  double *Sums(int level) const { return data_ + offset_[level]; }
  double *Minima(int level) const { return data_ + offset_[level] + minima_; }

  static void PrefetchNode(const double *children) {
    __builtin_prefetch(children);
    __builtin_prefetch(children + kFanout / 2);
  }

  // From up to kLanes nodes of a level to the children on which their targets fall; a target becomes one in (0, weight of
  // that child].
  void Step(int level, double *targets, int64_t lanes, int64_t *nodes) const {
    const double *children[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {  // those too many do what the last one does
      children[lane] = Sums(level - 1) + nodes[std::min(lane, lanes - 1)] * kFanout;
    }
    Doubles target[kPairs], sum[kPairs] = {}, before[kPairs] = {};
    Integers child[kPairs] = {};
    for (int64_t p = 0; p < kPairs; ++p) {
      target[p] = Doubles{targets[std::min(2 * p, lanes - 1)], targets[std::min(2 * p + 1, lanes - 1)]};
    }
    for (int64_t i = 0; i < kFanout; ++i) {
      for (int64_t p = 0; p < kPairs; ++p) {
        sum[p] += Doubles{children[2 * p][i], children[2 * p + 1][i]};
        const Integers beyond = sum[p] < target[p];
        child[p] -= beyond;
        before[p] = beyond ? sum[p] : before[p];
      }
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t p = lane / 2, half = lane % 2, at = child[p][half];
      targets[lane] = std::min(target[p][half] - before[p][half], children[lane][at]);
      nodes[lane] = nodes[lane] * kFanout + at;
      if (level > 1) PrefetchNode(Sums(level - 2) + nodes[lane] * kFanout);
    }
  }

  void RefreshNode(int level, int64_t node) {
    const double *children = Sums(level - 1) + node * kFanout;
    const double *minima = level == 1 ? children : Minima(level - 1) + node * kFanout;
    double sum = 0;
    double minimum = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < kFanout; ++i) {
      sum += children[i];
      if (minima[i] > 0 && minima[i] < minimum) minimum = minima[i];
    }
    Sums(level)[node] = sum;
    Minima(level)[node] = minimum;
  }

  double *data_;
  int height_ = 0;
  int64_t offset_[kMaxHeight + 1] = {};
  int64_t nodes_[kMaxHeight + 1] = {};
  int64_t minima_ = 0;
  int64_t size_ = 0;
};

}  // namespace replay

#endif  // MINDSPORE_REPLAY_SUM_TREE_H_
