// Tests of the sum tree against weights in a plain array.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_SUM_TREE_H_
#define MINDSPORE_REPLAY_TESTS_TEST_SUM_TREE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "call.h"
#include "check.h"
#include "core/draws.h"
#include "core/points.h"
#include "core/random.h"
#include "core/sum_tree.h"

namespace {

// Weights of very different magnitude, a third of them zero; their sums are rounded.
double RandomWeight(uint64_t bits) {
  if (bits % 3 == 0) return 0;
  return std::ldexp(1.0 + static_cast<double>(bits >> 40) / 1e8, static_cast<int>(bits % 97) - 48);
}

void CheckDescent(const replay::SumTree &tree, const std::vector<double> &leaves) {
  std::vector<double> targets = {1e-300, tree.Total(), tree.Total() / 2, tree.Total() / 3};
  double prefix = 0;
  for (double leaf : leaves) {
    prefix += leaf;
    for (double target : {prefix, std::nextafter(prefix, INFINITY)}) {
      if (target > 0 && target <= tree.Total()) targets.push_back(target);
    }
  }
  std::vector<double> points = targets;
  std::vector<int64_t> slots(targets.size());
  tree.Descend(points.data(), static_cast<int64_t>(points.size()), slots.data());
  bool positive = true;
  bool near = true;
  bool alone = true;
  for (size_t i = 0; i < targets.size(); ++i) {
    const int64_t slot = slots[i];
    positive = positive && slot >= 0 && slot < static_cast<int64_t>(leaves.size()) && leaves[slot] > 0;
    alone = alone && slot == tree.SlotAt(targets[i]);
    const double rounding = tree.Total() * 1e-13;
    near =
        near && tree.Before(slot) <= targets[i] + rounding && tree.Before(slot) + leaves[slot] >= targets[i] - rounding;
  }
  CHECK(positive);
  CHECK(near);
  CHECK(alone);
}

// Draws from a range stay in it, at any place of the ring, even if the weights around it are far larger or smaller.
void CheckRange(const replay::SumTree &tree, const std::vector<double> &leaves, int64_t head, replay::RowRange rows) {
  const auto capacity = static_cast<int64_t>(leaves.size());
  const replay::Cursors ring{capacity, head, capacity, capacity, 0};
  const replay::TreeRange range(tree, rows, ring);
  double total = 0;
  double least = INFINITY;
  for (int64_t row = rows.first; row < rows.first + rows.size; ++row) {
    const double weight = leaves[replay::SlotOf(row, head, capacity)];
    total += weight;
    if (weight > 0) least = std::min(least, weight);
  }
  CHECK(std::abs(range.Total() - total) <= total * 1e-13);
  CHECK(range.Minimum() == least);
  if (total == 0) return;
  bool inside = true;
  for (double target :
       {1e-300, range.Total() / 3, range.Total() / 2, std::nextafter(range.Total(), 0.0), range.Total()}) {
    const int64_t slot = range.SlotAt(target);
    const int64_t row = (slot - head + capacity) % capacity;
    inside = inside && row >= rows.first && row < rows.first + rows.size && leaves[slot] > 0;
  }
  CHECK(inside);
}

// Points of the total weight stay within it, even if the weights in front of `slot` sum to more than the total because
// of another order of summation.
void CheckRotation(const replay::SumTree &tree, int64_t capacity) {
  for (int64_t slot = 0; slot < capacity; ++slot) {
    for (const double point : {tree.Total(), tree.Total() / 3, 1e-300}) {
      const double target = replay::Rotated(point, tree.Before(slot), tree.Total());
      CHECK(target > 0 && target <= tree.Total());
    }
  }
}

void TestRotation() {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<double> leaves(300);
    for (size_t slot = 0; slot < 290; ++slot) leaves[slot] = RandomWeight(replay::RandomBits(seed, slot));
    std::vector<double> data = FreshTree(leaves);
    CheckRotation(replay::SumTree(data.data(), 300), 300);
    const auto bits = static_cast<int64_t>(replay::RandomBits(seed, 400) >> 2);
    const int64_t first = bits % 300;
    const int64_t size = 1 + bits / 300 % (300 - first);
    CheckRange(replay::SumTree(data.data(), 300), leaves, bits / 90000 % 300, {first, size});
  }
}

void CheckTree(int64_t capacity) {
  std::vector<double> leaves(static_cast<size_t>(capacity));
  std::vector<double> data = FreshTree(leaves);
  replay::SumTree tree(data.data(), capacity);
  CHECK(tree.Total() == 0 && tree.Positive() == 0 && std::isinf(tree.Minimum()));
  uint64_t counter = 0;
  for (int round = 0; round < 40; ++round) {
    replay::Vector<int64_t> slots;
    for (int64_t i = 0; i < 1 + round % 25; ++i) {
      const int64_t slot = replay::Below(replay::RandomBits(7, counter++), capacity);
      leaves[static_cast<size_t>(slot)] = RandomWeight(replay::RandomBits(7, counter++));
      tree.SetLeaf(slot, leaves[static_cast<size_t>(slot)]);
      slots.push_back(slot);
    }
    tree.Refresh(&slots);
    CHECK(data == FreshTree(leaves));
    const auto positive = std::count_if(leaves.begin(), leaves.end(), [](double leaf) { return leaf > 0; });
    CHECK(tree.Positive() == static_cast<double>(positive));
    double smallest = std::numeric_limits<double>::infinity();
    for (double leaf : leaves) smallest = leaf > 0 ? std::min(smallest, leaf) : smallest;
    CHECK(tree.Minimum() == smallest);
    if (positive > 0 && round % 8 == 0) CheckDescent(tree, leaves);
  }
}

void TestTreeByHand() {
  std::vector<double> data = FreshTree({3, 1, 2, 0});
  const replay::SumTree tree(data.data(), 4);
  CHECK(tree.Total() == 6 && tree.Minimum() == 1 && tree.Positive() == 3);
  double targets[] = {3, 3.5, 6};
  int64_t found[3];
  tree.Descend(targets, 3, found);
  CHECK(found[0] == 0 && found[1] == 1 && found[2] == 2);
  CHECK(replay::SumRows(tree, {0, 3}, 2, 4) == 5);  // from slot 2: weights 2, 0, 3, 1
  CHECK(replay::SumRows(tree, {3, 1}, 2, 4) == 1 && replay::SumRows(tree, {1, 0}, 2, 4) == 0);
  replay::Vector<int64_t> slots = {1, 3, 1};  // the last weight for a slot counts
  const double weights[] = {9, 5, 4};
  for (size_t i = 0; i < 3; ++i) tree.SetLeaf(slots[i], weights[i]);
  tree.Refresh(&slots);
  CHECK(data == FreshTree({3, 4, 2, 5}));
}

void TestSumTree() {
  TestTreeByHand();
  for (int64_t capacity : {1, 2, 3, 5, 7, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4097}) CheckTree(capacity);
  // 300 weights of one: sums are exact, and targets in (t, t + 1] fall on slot t.
  const std::vector<double> data = FreshTree(std::vector<double>(300, 1.0));
  std::vector<double> copy = data;
  const replay::SumTree tree(copy.data(), 300);
  CHECK(tree.Total() == 300);
  for (int64_t slot = 0; slot < 300; ++slot) {
    double targets[2] = {static_cast<double>(slot) + 0.001, static_cast<double>(slot) + 1};
    int64_t slots[2];
    tree.Descend(targets, 2, slots);
    CHECK(slots[0] == slot && slots[1] == slot);
    CHECK(tree.Before(slot) == static_cast<double>(slot));
  }
  CHECK(replay::SumTree::Size(1) == 16 + 2 * 16);
  CHECK(replay::SumTree::Size(16) == 16 + 2 * 16);
  CHECK(replay::SumTree::Size(17) == 32 + 2 * (16 + 16));
  CHECK(replay::SumTree::Size(256) == 256 + 2 * (16 + 16));
  CHECK(replay::SumTree::Size(INT32_MAX) > INT32_MAX);
  TestRotation();
  CHECK(replay::IsWeight(0) && replay::IsWeight(1e300) && !replay::IsWeight(-1e-300));
  CHECK(!replay::IsWeight(NAN) && !replay::IsWeight(INFINITY));
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_SUM_TREE_H_
