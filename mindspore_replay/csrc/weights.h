// What is known of each row of a buffer with weights: its priority, how often it was delivered, when it came, and its
// weight in the tree, which is zero once the row is removed. Rows are named by handles, their serial numbers.
#ifndef MINDSPORE_REPLAY_WEIGHTS_H_
#define MINDSPORE_REPLAY_WEIGHTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "portable.h"
#include "ring.h"
#include "sum_tree.h"

namespace replay {

// The cursors of a ring; rows inserted ever and before the last reset.
struct Cursors {
  int64_t capacity;
  int64_t head;
  int64_t count;
  int64_t inserted;
  int64_t base;

  // Slot of a serial number, or -1 if its row is not stored.
  REPLAY_BOTH int64_t SlotOf(int64_t serial) const {
    const int64_t row = serial - (inserted - count);
    return row >= 0 && row < count ? replay::SlotOf(row, head, capacity) : -1;
  }

  REPLAY_BOTH int64_t HandleOf(int64_t slot) const {
    return inserted - count + (slot < head ? slot - head + capacity : slot - head);
  }
};

// How a priority becomes a weight.
struct WeightRule {
  double alpha;
  double epsilon;

  // Rounded to float32, so that power functions that differ in the last bits of a double give the same. A subnormal
  // priority counts as 0 everywhere, as it does where MindSpore's threads flush such numbers.
  REPLAY_BOTH double operator()(float priority) const {
    const double normal = priority < std::numeric_limits<float>::min() ? 0.0 : static_cast<double>(priority);
    return static_cast<float>(std::pow(normal + epsilon, alpha));
  }
};

// The learner's clock, and the serial number of the oldest row that was not found stale.
struct Clock {
  int64_t now;
  int64_t fresh;
};

// Whether the numbers of rows inserted, and of the clock, fit a ring with `count` rows.
REPLAY_BOTH inline bool AreSerials(int64_t inserted, int64_t base, int64_t count, int64_t fresh) {
  const int64_t oldest = inserted - count;
  return base >= 0 && oldest >= base && fresh >= oldest && fresh <= inserted;
}

// What has happened to rows, since the buffer was made.
struct Counts {
  int64_t drawn;    // deliveries
  int64_t used_up;  // rows removed after their last delivery
  int64_t stale;    // rows removed by the clock
  int64_t deleted;  // rows removed by hand
  int64_t dead;     // handles that were skipped, of -1 and less none, which stand for no row
};

struct RowWeights {
  SumTree tree;
  float *priorities;
  float *max_priority;
  int32_t *use_counts;  // of a removed row the bitwise complement
  int64_t *insertion_clocks;
  Clock *clock;
  Counts *counts;

  REPLAY_BOTH bool Removed(int64_t slot) const { return use_counts[slot] < 0; }

  // Whether the row in a slot is older than the clock allows.
  REPLAY_BOTH bool Stale(int64_t slot, int64_t max_staleness) const {
    return clock->now - insertion_clocks[slot] > max_staleness;
  }

  // Slot of a handle, or -1 if its row is not stored or was removed.
  REPLAY_BOTH int64_t LiveSlot(const Cursors &cursors, int64_t handle) const {
    const int64_t slot = cursors.SlotOf(handle);
    return slot >= 0 && !Removed(slot) ? slot : -1;
  }

  // The rows of an insertion are new. `priorities` holds one for all rows of the batch or one for each. Rows that are
  // not `eligible` weigh nothing yet.
  void Insert(const RingWrite &plan, int64_t n, const WeightRule &rule, const float *priorities, int64_t given,
              int64_t capacity, int64_t oldest, bool eligible) {
    const float first = priorities[0];
    const double first_weight = rule(first);
    const float largest = *std::max_element(priorities, priorities + given);
    std::vector<int64_t> slots(static_cast<size_t>(plan.written));
    for (int64_t i = 0; i < plan.written; ++i) {
      const int64_t slot = replay::SlotOf(i, plan.slot, capacity);
      const float priority = given == n ? priorities[plan.skipped + i] : first;
      this->priorities[slot] = priority;
      use_counts[slot] = 0;
      insertion_clocks[slot] = clock->now;
      tree.SetLeaf(slot, !eligible ? 0.0 : given == n ? rule(priority) : first_weight);
      slots[static_cast<size_t>(i)] = slot;
    }
    tree.Refresh(&slots);
    *max_priority = std::max(*max_priority, largest);
    clock->fresh = std::max(clock->fresh, oldest);
  }

  // The rows in these slots are new ones, of priority and weight 1. Changes the slots.
  void Replace(std::vector<int64_t> *slots) {
    for (const int64_t slot : *slots) Renew(slot);
    if (!slots->empty()) tree.Refresh(slots);
  }

  REPLAY_BOTH void Renew(int64_t slot) const {
    priorities[slot] = 1.0f;
    use_counts[slot] = 0;
    insertion_clocks[slot] = clock->now;
    tree.SetLeaf(slot, 1.0);
  }

  // Counts a delivery of each slot; then removes those that have had `max_use` of them, 0 for no limit.
  void Deliver(const int64_t *slots, int64_t n, int64_t max_use) {
    for (int64_t i = 0; i < n; ++i) use_counts[slots[i]] += use_counts[slots[i]] < std::numeric_limits<int32_t>::max();
    counts->drawn += n;
    if (max_use == 0) return;
    std::vector<int64_t> used_up;
    std::copy_if(slots, slots + n, std::back_inserter(used_up),
                 [&](int64_t slot) { return use_counts[slot] >= max_use; });
    counts->used_up += Remove(&used_up);
  }

  // Removes the rows in these slots and says how many there were that had not been removed. Changes the slots.
  int64_t Remove(std::vector<int64_t> *slots) {
    int64_t removed = 0;
    for (const int64_t slot : *slots) {
      if (Removed(slot)) continue;
      use_counts[slot] = ~use_counts[slot];
      tree.SetLeaf(slot, 0);
      ++removed;
    }
    if (removed > 0) tree.Refresh(slots);
    return removed;
  }

  // Removes the live rows of these handles and says how many there were.
  int64_t Delete(const Cursors &cursors, const int64_t *handles, int64_t n) {
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t slot = LiveSlot(cursors, handles[i]);
      if (slot >= 0) slots.push_back(slot);
      counts->dead += slot < 0 && handles[i] >= 0;
    }
    const int64_t removed = Remove(&slots);
    counts->deleted += removed;
    return removed;
  }

  // Moves the clock, and removes the rows that are older than `max_staleness`, -1 for no limit. Rows come in the order
  // of their clocks, and each goes stale once.
  void Advance(const Cursors &cursors, int64_t steps, int64_t max_staleness) {
    clock->now += steps;
    if (max_staleness < 0) return;
    std::vector<int64_t> stale;
    for (; clock->fresh < cursors.inserted; ++clock->fresh) {
      const int64_t slot = cursors.SlotOf(clock->fresh);
      if (!Stale(slot, max_staleness)) break;
      stale.push_back(slot);
    }
    counts->stale += Remove(&stale);
  }

  // Gives live rows other priorities, the last of several for one row, and says how many handles were dead.
  int64_t Update(const Cursors &cursors, const WeightRule &rule, const int64_t *handles, int64_t n,
                 const float *priorities, int64_t given) {
    std::vector<int64_t> slots;
    slots.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t slot = LiveSlot(cursors, handles[i]);
      counts->dead += slot < 0 && handles[i] >= 0;
      if (slot < 0) continue;
      const float priority = priorities[given == n ? i : 0];
      this->priorities[slot] = priority;
      tree.SetLeaf(slot, rule(priority));
      *max_priority = std::max(*max_priority, priority);
      slots.push_back(slot);
    }
    const int64_t dead = n - static_cast<int64_t>(slots.size());
    tree.Refresh(&slots);
    return dead;
  }

  // Forgets all rows of a ring with this many rows ever inserted, by calls of fill(numbers, n, number); the counts go on.
  template <typename Fill>
  REPLAY_BOTH void Reset(int64_t inserted, int64_t capacity, const Fill &fill) const {
    tree.Clear(fill);
    fill(priorities, capacity, 0.0f);
    fill(use_counts, capacity, 0);
    fill(insertion_clocks, capacity, int64_t{0});
    fill(max_priority, 1, 1.0f);
    fill(&clock->now, 1, int64_t{0});
    fill(&clock->fresh, 1, inserted);
  }
};

}  // namespace replay

#endif  // MINDSPORE_REPLAY_WEIGHTS_H_
