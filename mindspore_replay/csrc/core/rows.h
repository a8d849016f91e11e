// The state of rows: priority, use count, insertion clock, and weight in the tree. The weight is zero if no sample may
// start at the row. A row is identified by its handle, which is its serial number. Each operation exists once, since a
// single row is a window of length one: the template argument `Reach` is `SingleRows` if samples are single rows, and
// `Timeline` if they are windows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/portable.h"
#include "core/power.h"
#include "core/reservoir.h"
#include "core/ring.h"
#include "core/scratch.h"
#include "core/sum_tree.h"

namespace replay {

// The cursors of a ring. `inserted`: rows inserted in total; `base`: rows inserted before the last reset.
struct Cursors {
  int64_t capacity;
  int64_t head;
  int64_t count;
  int64_t inserted;
  int64_t base;

  // Returns the slot of a serial number, or -1 if its row is not stored.
  REPLAY_BOTH int64_t SlotOf(int64_t serial) const {
    const int64_t row = serial - (inserted - count);
    return row >= 0 && row < count ? replay::SlotOf(row, head, capacity) : -1;
  }

  REPLAY_BOTH int64_t HandleOf(int64_t slot) const {
    return inserted - count + (slot < head ? slot - head + capacity : slot - head);
  }

  // True if serial numbers identify the rows.
  REPLAY_BOTH bool HasSerials() const { return (base >= 0) & (inserted - count >= base); }

  // True if the cursors are consistent; `fresh` is a number of the clock.
  REPLAY_BOTH bool IsConsistent(int64_t fresh) const {
    const int64_t oldest = inserted - count;
    return AreCursors(head, count, capacity) & (base >= 0) & (oldest >= base) & (fresh >= oldest) & (fresh <= inserted);
  }
};

// The cursors of a reservoir, whose rows lie where Algorithm R put them.
struct ReservoirCursors : Cursors {
  int64_t key;
  const int64_t *row_serials;

  REPLAY_BOTH int64_t SlotOf(int64_t serial) const {
    if (serial < base || serial >= inserted) return -1;
    const int64_t slot = ReservoirSlot(key, serial, base, capacity);
    return slot >= 0 && row_serials[slot] == serial ? slot : -1;
  }

  REPLAY_BOTH int64_t HandleOf(int64_t slot) const { return row_serials[slot]; }

  REPLAY_BOTH bool IsConsistent(int64_t fresh) const {
    return (head == 0) & (base >= 0) & (inserted >= base) & (count == std::min(inserted - base, capacity)) &
           (fresh == base);
  }
};

// Returns a priority as it is stored. A subnormal one counts as 0, as MindSpore's threads flush subnormals.
REPLAY_BOTH inline float Normal(float priority) {
  return priority < std::numeric_limits<float>::min() ? 0.0f : priority;
}

// The rule that maps a priority to a weight, and further options of weighted rows. Laid out as in its Tensor.
struct RowRule {
  double alpha;
  double epsilon;
  double keep;              // 1: an insertion may not evict a row that can still be drawn
  double late;              // use count of a new row: 0, or that of a pending row
  double initial_priority;  // the largest priority of an empty buffer

  // Rounded to float32, so that power functions that differ in the last bits of a double give the same result.
  REPLAY_BOTH float operator()(float priority) const {
    return Power(static_cast<double>(Normal(priority)) + epsilon, alpha);
  }
};

// The learner's clock.
struct Clock {
  int64_t now;
  int64_t fresh;      // serial number of the oldest row that was not stale when rows were last removed
  int64_t unordered;  // from this serial number on, rows have the clock of their insertion, and so increasing clocks
};

constexpr int64_t kLastClock = int64_t{1} << 62;  // the largest value of the clock

// Events since the buffer was made.
struct Counts {
  int64_t drawn;    // deliveries
  int64_t used_up;  // rows removed after their last delivery
  int64_t stale;    // rows removed by the clock
  int64_t deleted;  // rows removed by `delete`
  int64_t invalid;  // invalid handles that were skipped; -1 and less stand for no row and are not counted
};

// A row is pending, and not drawn, until its late columns are written. Its use count is kPending plus a bit for each
// missing column.
constexpr int32_t kPending = std::numeric_limits<int32_t>::min();
constexpr int32_t kMissing = (1 << 16) - 1;  // all bits of late columns
// A bit beside those of late columns: `update` counts invalid handles.
constexpr int64_t kCountsInvalid = int64_t{1} << 32;
constexpr int32_t kMostUses = ~(kPending + kMissing + 1);

struct RowState {
  SumTree tree;
  float *priorities;
  float *max_priority;
  int32_t *use_counts;  // of a removed row: bitwise complement; of a pending row: see kPending
  int64_t *insertion_clocks;
  Clock *clock = nullptr;  // null without row state; the others are then not set
  Counts *counts;
  const RowRule *rule;

  // True if the row in a slot is not drawn: removed or pending.
  REPLAY_BOTH bool Removed(int64_t slot) const { return use_counts[slot] < 0; }
  REPLAY_BOTH bool Pending(int64_t slot) const { return use_counts[slot] <= kPending + kMissing; }
  // True if it was not removed: it is drawn, now or once its window and its late columns are complete.
  REPLAY_BOTH bool Kept(int64_t slot) const { return !Removed(slot) || Pending(slot); }
  REPLAY_BOTH bool HasLate() const { return rule->late != 0; }

  REPLAY_BOTH int32_t Uses(int64_t slot) const {
    const int32_t uses = use_counts[slot];
    return uses >= 0 ? uses : Pending(slot) ? 0 : ~uses;
  }

  // True if the row in a slot is older than `max_staleness`.
  REPLAY_BOTH bool Stale(int64_t slot, int64_t max_staleness) const {
    return clock->now - insertion_clocks[slot] > max_staleness;
  }

  // True if rows can be of this version.
  REPLAY_BOTH bool IsVersion(int64_t version) const { return version >= 0 && version <= clock->now; }

  // Returns the logical position of the oldest row that can be drawn; the number of rows if there is none.
  REPLAY_BOTH int64_t FirstEligible(const Cursors &ring) const {
    if (tree.Positive() == 0) return ring.count;
    const double before = tree.Before(ring.head), total = tree.Total();
    const int64_t slot = tree.SlotAt(before < total ? before + tree.Minimum() : tree.Minimum());
    return slot < ring.head ? slot - ring.head + ring.capacity : slot - ring.head;
  }

  // Returns the logical position of the oldest row that can be drawn, or of the oldest pending row less `reach` if that
  // is smaller; the number of rows if there is neither.
  REPLAY_BOTH int64_t FirstNeeded(const Cursors &ring, int64_t reach) const {
    const int64_t eligible = FirstEligible(ring);
    if (!HasLate()) return eligible;
    for (int64_t row = 0; row < ring.count && row - reach < eligible; ++row) {
      if (Pending(SlotOf(row, ring.head, ring.capacity))) return row - reach;
    }
    return eligible;
  }

  // Initializes the state of a new row, but for its weight.
  REPLAY_BOTH void Begin(int64_t slot, float priority) const {
    priorities[slot] = Normal(priority);
    use_counts[slot] = static_cast<int32_t>(rule->late);
    insertion_clocks[slot] = clock->now;
  }

  // Sets a weight. Appends the slot to `changed`, here and everywhere, if the nodes above it must be refreshed.
  REPLAY_WHERE_ARGUMENTS_DO
  template <typename Changed>
  REPLAY_BOTH void Set(int64_t slot, double weight, Changed *changed) const {
    if (tree.Leaf(slot) == weight) return;
    tree.SetLeaf(slot, weight);
    changed->push_back(slot);
  }

  // Returns the weight of a new row.
  REPLAY_BOTH double FirstWeight(float priority) const { return HasLate() ? 0 : (*rule)(priority); }

  // Notes that late columns of a row were written. Returns true if it was pending and no column is missing any more.
  REPLAY_BOTH bool Arrives(int64_t slot, int32_t written) const {
    if (!Pending(slot)) return false;
    const int32_t missing = use_counts[slot] & kMissing & ~written;
    if (missing != 0) use_counts[slot] = kPending + missing;
    return missing == 0;
  }

  // Marks a row as removed.
  REPLAY_BOTH void Mark(int64_t slot) const {
    if (Pending(slot)) {
      use_counts[slot] = ~0;
    } else if (!Removed(slot)) {
      use_counts[slot] = ~use_counts[slot];
    }
  }

  // Makes a row ineligible.
  template <typename Changed>
  REPLAY_BOTH void Remove(int64_t slot, Changed *changed) const {
    Mark(slot);
    Set(slot, 0, changed);
  }

  // Counts a delivery of each slot, then removes the rows that reached `max_use` deliveries; 0 is no limit.
  void Deliver(const int64_t *slots, int64_t n, int64_t max_use) const {
    for (int64_t i = 0; i < n; ++i) use_counts[slots[i]] += use_counts[slots[i]] < kMostUses;
    counts->drawn += n;
    if (max_use == 0) return;
    Vector<int64_t> used_up;
    for (int64_t i = 0; i < n; ++i) {
      if (Removed(slots[i]) || use_counts[slots[i]] < max_use) continue;
      ++counts->used_up;
      Remove(slots[i], &used_up);
    }
    tree.Refresh(&used_up);
  }

  // Removes all rows by calls of fill(numbers, n, number). The clock restarts, with this `fresh`; the counts continue.
  template <typename Fill>
  REPLAY_BOTH void Reset(int64_t fresh, int64_t capacity, const Fill &fill) const {
    tree.Clear(fill);
    fill(priorities, capacity, 0.0f);
    fill(use_counts, capacity, 0);
    fill(insertion_clocks, capacity, int64_t{0});
    fill(max_priority, 1, static_cast<float>(rule->initial_priority));
    fill(&clock->now, 1, int64_t{0});
    fill(&clock->fresh, 1, fresh);
    fill(&clock->unordered, 1, int64_t{0});
  }
};

// The numbers that `measure` returns.
enum Measured : int64_t {
  kRoom = 0,         // rows that can be inserted without evicting one that can still be drawn
  kLargestHeld = 1,  // the largest priority of the rows of a range that are not removed; without any, the initial one
  kPositive = 2,     // rows of a range with a positive weight
};

// The extent of samples that are single rows.
template <typename Places>
class SingleRows {
 public:
  REPLAY_BOTH SingleRows(const Places &places, const RowState &row_state) : places_(places), row_state_(row_state) {}

  REPLAY_BOTH const Places &places() const { return places_; }
  REPLAY_BOTH const RowState &row_state() const { return row_state_; }

  // True if a sample may start at a stored row.
  REPLAY_BOTH bool MayStart(int64_t, int64_t slot) const { return !row_state_.Removed(slot); }

  // Returns the slot of a row that is stored and not deleted, or -1.
  REPLAY_BOTH int64_t StoredSlot(int64_t handle) const {
    const int64_t slot = places_.SlotOf(handle);
    return slot >= 0 && !Deleted(slot) ? slot : -1;
  }

  REPLAY_BOTH bool Deleted(int64_t slot) const { return !row_state_.Kept(slot); }

  template <typename Changed>
  REPLAY_BOTH void Delete(int64_t slot, Changed *changed) const {
    row_state_.Remove(slot, changed);
  }

  // Completes a deletion that was interrupted.
  void FinishDeletion(int64_t) const {}

  // Returns the number of oldest rows that no sample will need.
  REPLAY_BOTH int64_t Unneeded() const { return row_state_.FirstNeeded(places_, 0); }

  // The initial weight of a row.
  REPLAY_BOTH double FirstWeight(float priority) const { return row_state_.FirstWeight(priority); }

  // Makes a row eligible whose late columns have been written.
  template <typename Changed>
  REPLAY_BOTH void Complete(int64_t slot, Changed *changed) const {
    row_state_.use_counts[slot] = 0;
    row_state_.Set(slot, (*row_state_.rule)(row_state_.priorities[slot]), changed);
  }

  template <typename Fill>
  REPLAY_BOTH void Reset(const Fill &) const {}

 private:
  Places places_;
  RowState row_state_;
};

// Returns the slot of a row that is stored and not removed, or -1.
template <typename Reach>
REPLAY_BOTH inline int64_t KeptSlot(const Reach &reach, int64_t handle) {
  const int64_t slot = reach.places().SlotOf(handle);
  return slot >= 0 && reach.row_state().Kept(slot) ? slot : -1;
}

// Sets the state of new rows: for_each(visit) calls visit(row of the batch, slot) for each. `priorities` holds one for
// all n rows of the batch or one for each. The nodes above the slots in `changed` still have to be refreshed.
template <typename Reach, typename ForEach>
void SetRowStates(const Reach &reach, int64_t n, const float *priorities, int64_t given, const ForEach &for_each,
                  Vector<int64_t> *changed) {
  const RowState &row_state = reach.row_state();
  const float first = priorities[0];
  const double first_weight = reach.FirstWeight(first);
  const float largest = *std::max_element(priorities, priorities + given);
  for_each([&](int64_t row, int64_t slot) {
    const float priority = given == n ? priorities[row] : first;
    row_state.Begin(slot, priority);
    row_state.Set(slot, given == n ? reach.FirstWeight(priority) : first_weight, changed);
  });
  *row_state.max_priority = std::max(*row_state.max_priority, largest);
}

// Deletes the rows of these handles and returns their number. A repeated handle does not count as invalid.
template <typename Reach>
int64_t Delete(const Reach &reach, const int64_t *handles, int64_t n) {
  Vector<int64_t> slots;
  slots.reserve(static_cast<size_t>(n));
  Counts *counts = reach.row_state().counts;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t slot = reach.StoredSlot(handles[i]);
    if (slot >= 0) slots.push_back(slot);
    counts->invalid += slot < 0 && handles[i] >= 0;
  }
  Vector<int64_t> changed;
  changed.reserve(slots.size());
  int64_t deleted = 0;
  for (const int64_t slot : slots) {
    if (reach.Deleted(slot)) continue;
    ++deleted;
    reach.Delete(slot, &changed);
  }
  reach.row_state().tree.Refresh(&changed);
  counts->deleted += deleted;
  return deleted;
}

// Notes that late columns were written; `written` has a bit for each. Rows that miss no other column become eligible.
template <typename Reach>
void Complete(const Reach &reach, const Vector<int64_t> &slots, int64_t written) {
  Vector<int64_t> changed;
  for (const int64_t slot : slots) {
    if (slot >= 0 && reach.row_state().Arrives(slot, static_cast<int32_t>(written))) reach.Complete(slot, &changed);
  }
  reach.row_state().tree.Refresh(&changed);
}

// Deletes the rows older than `max_staleness`; -1 is no limit. Looks at rows from the oldest that was not stale before
// to the first that is not stale now and has no older row behind it.
template <typename Reach>
void DeleteStale(const Reach &reach, int64_t max_staleness) {
  const RowState &row_state = reach.row_state();
  Clock *clock = row_state.clock;
  if (max_staleness < 0) return;
  Vector<int64_t> changed;
  int64_t fresh = -1, serial = clock->fresh;
  for (; serial < reach.places().inserted && (fresh < 0 || serial < clock->unordered); ++serial) {
    const int64_t slot = reach.places().SlotOf(serial);
    if (!row_state.Stale(slot, max_staleness)) {
      if (fresh < 0) fresh = serial;
    } else if (!reach.Deleted(slot)) {
      ++row_state.counts->stale;
      reach.Delete(slot, &changed);
    }
  }
  clock->fresh = fresh < 0 ? serial : fresh;
  row_state.tree.Refresh(&changed);
}

// Sets the clocks of the newest n rows to the versions that made them, one for all or one for each.
template <typename Reach>
void SetVersions(const Reach &reach, int64_t n, const int64_t *versions, int64_t given) {
  const RowState &row_state = reach.row_state();
  const int64_t first = reach.places().inserted - n;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t slot = reach.places().SlotOf(first + i), version = versions[given == n ? i : 0];
    if (slot >= 0) row_state.insertion_clocks[slot] = version;
    if (version < row_state.clock->now) row_state.clock->unordered = first + i + 1;
  }
}

// Sets the priorities of rows, also of those that cannot be drawn yet; of repeated handles the last one counts. Returns
// the number of invalid handles.
template <typename Reach>
int64_t UpdatePriorities(const Reach &reach, const int64_t *handles, int64_t n, const float *priorities,
                         int64_t given) {
  const RowState &row_state = reach.row_state();
  Vector<float> weights(static_cast<size_t>(given));
  std::transform(priorities, priorities + given, weights.begin(),
                 *row_state.rule);  // in a loop of its own, which is compiled to vector instructions
  Vector<int64_t> changed;
  changed.reserve(static_cast<size_t>(n));
  int64_t invalid = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t slot = KeptSlot(reach, handles[i]);
    if (slot < 0) {
      ++invalid;
      row_state.counts->invalid += handles[i] >= 0;
      continue;
    }
    const int64_t at = given == n ? i : 0;
    const float priority = Normal(priorities[at]);
    row_state.priorities[slot] = priority;
    if (reach.MayStart(handles[i], slot)) row_state.Set(slot, weights[static_cast<size_t>(at)], &changed);
    *row_state.max_priority = std::max(*row_state.max_priority, priority);
  }
  reach.row_state().tree.Refresh(&changed);
  return invalid;
}

}  // namespace replay
