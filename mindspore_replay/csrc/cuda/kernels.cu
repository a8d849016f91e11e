// The kernels of kernels.cc on a GPU, with the same names, arguments and results, in GPU memory. An adapter checks
// dtypes and shapes, which the host knows, and launches; the GPU checks values. No call waits for the GPU. A call that
// the GPU refuses changes nothing, and the next call or replay_take_failure reports it.
#include <algorithm>
#include <cstdint>

#include "core/draw.h"
#include "core/points.h"
#include "core/reservoir.h"
#include "core/ring.h"
#include "core/status.h"
#include "core/updates.h"
#include "cuda/buffer.cuh"
#include "cuda/device.cuh"
#include "cuda/rows.cuh"
#include "cuda/shuffle.cuh"

namespace replay {
namespace {

// The destination of an insertion's rows.
template <typename Places>
struct Landing {
  RingWrite plan;
  int64_t capacity;

  __device__ Landing(const State &state, int64_t n)
      : plan(PlanWrite(n, *state.head, *state.count, state.capacity)), capacity(state.capacity) {}
  // Returns the slot of a row of the batch, or -1 if it is not kept.
  __device__ int64_t SlotOf(int64_t row) const {
    return row < plan.skipped ? -1 : replay::SlotOf(row - plan.skipped, plan.slot, capacity);
  }
};

// Of several rows of a batch for one slot of a reservoir, the last is kept: the one whose serial number is in the slot
// after every row has tried to write its own.
template <>
struct Landing<ReservoirCursors> {
  ReservoirCursors places;

  __device__ Landing(const State &state, int64_t) : places(state.Get<ReservoirCursors>()) {}
  __device__ int64_t Claimed(int64_t row) const {
    return ReservoirSlot(places.key, places.inserted + row, places.base, places.capacity);
  }
  __device__ int64_t SlotOf(int64_t row) const {
    const int64_t slot = Claimed(row);
    return slot >= 0 && places.row_serials[slot] == places.inserted + row ? slot : -1;
  }
};

// The arguments of an insertion.
struct Insertion {
  State state;
  int64_t n;
  int64_t *first_serial;
  const float *priorities = nullptr;  // one for all rows, or one for each
  int64_t given = 0;
  const uint8_t *ends = nullptr;  // likewise, for rows that know their episode
  int64_t given_ends = 0;
  const int64_t *versions = nullptr;  // likewise, if they are given
  int64_t given_versions = 0;
  const int64_t *max_staleness = nullptr;
  int64_t *steps = nullptr;  // from StepsKernel: the status, then the steps of all rows

  // Returns kOk if the rows may be inserted; the same in all blocks.
  template <typename Rows>
  __device__ int Status() const {
    const bool sound = state.IsConsistent();
    const bool bad = given > 0 && HasBadWeight(priorities, given);
    if (!sound || bad) return sound ? kBadWeight : kBadArguments;
    if (kInReservoir<Rows> && versions != nullptr && *max_staleness >= 0) return kBadArguments;
    if (!AreVersions()) return kBadVersion;
    if constexpr (kHasRowState<Rows>) {
      if (!HasRoom(state.Get<Rows>(), n)) return kFull;
    }
    return kOk;
  }

  // Stores the state of a new row, but for its step. Does nothing yet if other blocks may still read the weights and
  // use counts of the rows that it evicts, to look for room.
  template <typename Rows>
  __device__ void SetRowState(int64_t row, int64_t slot) const {
    if (kHasEpisodes<Rows>) {
      Begin(row, slot);
      state.row_state.tree.SetLeaf(slot, 0);
    } else if (state.row_state.rule->keep == 0) {
      Begin(row, slot);
      SetWeight(row, slot);
    }
  }

  // Returns the flags of the rows, for a buffer whose rows know their episode.
  __device__ Marks MarksOf(const Columns &columns) const {
    const WindowRule &rule = *state.rule;
    Marks marks{ends, given_ends, n, rule.streams, {}, rule.needs_next != 0, true};
    if (rule.terminated >= 0) {
      const Column &column = columns.column[rule.terminated];
      marks.terminated = {column.batch, column.row_bytes, column.is_float};
    }
    return marks;
  }

  // Moves the cursors and refreshes the tree; called by the last block, when all blocks have marked their rows.
  template <typename Rows>
  __device__ void End(const Landing<Cursors> &landing, const Columns &columns) const {
    const RingWrite &plan = landing.plan;
    const int64_t inserted = state.serials[0] + n;
    if constexpr (kHasRowState<Rows>) {
      FinishRowState();
      if (!kHasEpisodes<Rows> && state.row_state.rule->keep != 0) {
        for (int64_t row = plan.skipped + threadIdx.x; row < n; row += blockDim.x) {
          Begin(row, landing.SlotOf(row));
          SetWeight(row, landing.SlotOf(row));
        }
        __syncthreads();
      }
      if (!kHasEpisodes<Rows>) RefreshRange(state.row_state.tree, plan.slot, plan.written, state.capacity);
    }
    if (threadIdx.x == 0) {
      *state.head = static_cast<int32_t>(plan.head);
      *state.count = static_cast<int32_t>(plan.count);
      *first_serial = state.serials[0];
      state.serials[0] = inserted;
      if constexpr (kHasRowState<Rows>) {
        state.row_state.clock->fresh = std::max(state.row_state.clock->fresh, inserted - plan.count);
      }
    }
    if constexpr (kHasEpisodes<Rows>) {
      __syncthreads();
      EndTimes(plan, MarksOf(columns));
    }
  }

  template <typename Rows>
  __device__ void End(const Landing<ReservoirCursors> &landing, const Columns &) const {
    if constexpr (kHasRowState<Rows>) {
      FinishRowState();
      RefreshAbove(state.row_state.tree, n, [&](int64_t row) { return landing.SlotOf(row); });
    }
    if (threadIdx.x != 0) return;
    const int64_t inserted = landing.places.inserted + n;
    state.serials[0] = inserted;
    *first_serial = landing.places.inserted;
    *state.count = static_cast<int32_t>(std::min(inserted - landing.places.base, state.capacity));
  }

 private:
  // True if rows can be of the given versions; the same for all threads.
  __device__ bool AreVersions() const {
    bool bad = false;
    for (int64_t i = threadIdx.x; i < given_versions; i += blockDim.x) bad |= !state.row_state.IsVersion(versions[i]);
    return __syncthreads_or(bad) == 0;
  }

  __device__ void Begin(int64_t row, int64_t slot) const {
    state.row_state.Begin(slot, priorities[given == n ? row : 0]);
  }

  __device__ void SetWeight(int64_t row, int64_t slot) const {
    state.row_state.tree.SetLeaf(slot, state.row_state.FirstWeight(priorities[given == n ? row : 0]));
  }

  __device__ void FinishRowState() const {
    for (int64_t i = threadIdx.x; i < given; i += blockDim.x) RaiseTo(state.row_state.max_priority, priorities[i]);
    __syncthreads();
  }

  __device__ void EndTimes(const RingWrite &plan, const Marks &marks) const {
    const Timeline timeline = state.Get<Timeline>();
    const Cursors &ring = timeline.places();
    const int64_t before = marks.terminated.rows == nullptr ? 0 : std::min(n, timeline.streams());
    for (int64_t i = threadIdx.x; i < plan.written; i += blockDim.x) timeline.Place(plan, i, steps + 1, marks);
    for (int64_t i = threadIdx.x; i < before; i += blockDim.x) timeline.Follow(marks, i);
    __syncthreads();
    Ignored changed;
    const int64_t oldest = timeline.Oldest(), lost = timeline.PastEvicted(plan.written);
    const int64_t first = ring.inserted - plan.written;
    for (int64_t serial = oldest + threadIdx.x; serial < lost; serial += blockDim.x)
      timeline.EvictPast(serial, &changed);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < before; i += blockDim.x) timeline.Lengthened(marks, i, &changed);
    for (int64_t serial = first + threadIdx.x; serial < ring.inserted; serial += blockDim.x) {
      timeline.ActivateCompletedStarts(serial, &changed);
    }
    RefreshRows(state.row_state.tree, ring, oldest, lost);
    RefreshRows(state.row_state.tree, ring, timeline.FirstStart(first - before), ring.inserted);
  }
};

// Runs before rows of episodes are stored: computes all steps, and the status.
__global__ void __launch_bounds__(kThreads) StepsKernel(const Insertion insertion, const Columns columns) {
  int status = insertion.Status<Timeline>();
  if (status == kOk && insertion.state.rule->terminated >= columns.k) status = kBadArguments;
  bool fits = true;
  if (status == kOk) {
    const Timeline timeline = insertion.state.Get<Timeline>();
    const Marks marks = insertion.MarksOf(columns);
    for (int64_t stream = threadIdx.x; stream < timeline.streams(); stream += blockDim.x) {
      int64_t step = 0;
      for (int64_t i = stream; i < insertion.n && fits; i += timeline.streams()) {
        step = timeline.NextStep(marks, i, step);
        fits = step >= 0;
        insertion.steps[1 + i] = step;
      }
    }
  }
  if (!__syncthreads_and(fits)) status = kTooLong;
  if (threadIdx.x == 0) insertion.steps[0] = status;
}

// Runs before rows go into a reservoir: each writes its serial number to its slot.
__global__ void __launch_bounds__(kThreads) ClaimKernel(const Insertion insertion) {
  if (insertion.Status<ReservoirCursors>() != kOk) return;
  const Landing<ReservoirCursors> landing(insertion.state, insertion.n);
  for (int64_t row = FirstOfGrid(); row < insertion.n; row += GridStride()) {
    const int64_t slot = landing.Claimed(row);
    if (slot < 0) continue;
    atomicMax(reinterpret_cast<long long *>(&insertion.state.row_serials[slot]),
              static_cast<long long>(landing.places.inserted + row));
  }
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Report report, unsigned ticket, const Insertion insertion, const Columns columns,
                 const Chunks chunks) {
  __shared__ int64_t slots[kThreads];
  const int status = kHasEpisodes<Rows> ? static_cast<int>(insertion.steps[0]) : insertion.Status<Rows>();
  if (status != kOk) return Refuse(report, status, insertion.first_serial, int64_t{-1});
  const Landing<PlacesOf<Rows>> landing(insertion.state, insertion.n);
  const Chunk chunk = ThisChunk(chunks);
  if (threadIdx.x < chunk.count) {
    const int64_t row = chunk.first + threadIdx.x;
    const int64_t slot = landing.SlotOf(row);
    slots[threadIdx.x] = slot;
    if constexpr (kHasRowState<Rows>) {
      if (slot >= 0 && chunk.part == 0) insertion.SetRowState<Rows>(row, slot);
    }
  }
  const bool last = IsLastBlock(ticket);
  CopyRows<kIn>(columns.column, columns.k, chunk, slots);
  if (last) insertion.End<Rows>(landing, columns);
}

// Calls visit(slot) for the rows whose weights change if a row is deleted.
template <typename Places, typename Visit>
__device__ void ForWeightsAround(const SingleRows<Places> &, int64_t, int64_t slot, const Visit &visit) {
  visit(slot);
}

template <typename Visit>
__device__ void ForWeightsAround(const Timeline &timeline, int64_t handle, int64_t slot, const Visit &visit) {
  timeline.ForStartsAround(handle, slot, visit);
}

// Recomputes the nodes that the deletion of consecutive rows changes.
template <typename Places>
__device__ void RefreshAround(const SingleRows<Places> &rows, int64_t first, int64_t last) {
  RefreshRows(rows.row_state().tree, rows.places(), first, last);
}

__device__ void RefreshAround(const Timeline &timeline, int64_t first, int64_t last) {
  if (last <= first) return;
  RefreshRows(timeline.row_state().tree, timeline.places(), timeline.FirstStart(first), timeline.EndOfStarts(last));
}

// Returns the end of the rows that may be stale, which begin at the oldest that was not stale before. Called by all
// threads of one block.
template <typename Places>
__device__ int64_t EndOfStale(const RowState &row_state, const Places &places, int64_t max_staleness) {
  __shared__ int64_t end;
  if (threadIdx.x == 0) {
    int64_t low = row_state.clock->fresh, high = places.inserted;
    const auto stale = [&](int64_t serial) { return row_state.Stale(places.SlotOf(serial), max_staleness); };
    if (low < row_state.clock->unordered) low = high;
    if (low < high && !stale(low)) high = low;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (stale(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    end = low;
  }
  __syncthreads();
  return end;
}

// Deletes the rows older than `max_staleness`; -1 is no limit. Called by all threads of one block.
template <typename Rows>
__device__ void DeleteStaleRows(const Rows &rows, int64_t max_staleness) {
  if (max_staleness < 0) return;
  const RowState &row_state = rows.row_state();
  __shared__ long long fresh;
  const int64_t first = row_state.clock->fresh, end = EndOfStale(row_state, rows.places(), max_staleness);
  if (threadIdx.x == 0) fresh = end;
  __syncthreads();
  Ignored changed;
  int64_t removed = 0;
  for (int64_t serial = first + threadIdx.x; serial < end; serial += blockDim.x) {
    const int64_t slot = rows.places().SlotOf(serial);
    if (!row_state.Stale(slot, max_staleness)) {
      atomicMin(&fresh, static_cast<long long>(serial));
    } else if (!rows.Deleted(slot)) {
      rows.Delete(slot, &changed);
      ++removed;
    }
  }
  AddTo(&row_state.counts->stale, removed);
  RefreshAround(rows, first, end);
  if (threadIdx.x == 0) row_state.clock->fresh = fresh;
}

// Sets the clocks of new rows to their versions, and deletes the rows that are then stale. Runs after an insertion that
// was not refused.
template <typename Rows>
__global__ void __launch_bounds__(kThreads) VersionsKernel(const Insertion insertion) {
  if (*insertion.first_serial < 0) return;
  const Rows rows = insertion.state.Get<Rows>();
  const RowState &row_state = insertion.state.row_state;
  const int64_t n = insertion.n, first = rows.places().inserted - n;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t slot = rows.places().SlotOf(first + i);
    const int64_t version = insertion.versions[insertion.given_versions == n ? i : 0];
    if (slot >= 0) row_state.insertion_clocks[slot] = version;
    if (version < row_state.clock->now) {
      atomicMax(reinterpret_cast<long long *>(&row_state.clock->unordered), static_cast<long long>(first + i + 1));
    }
  }
  __syncthreads();
  DeleteStaleRows(rows, *insertion.max_staleness);
}

template <typename Places>
__device__ void Release(const SingleRows<Places> &rows, int64_t slot) {
  rows.row_state().use_counts[slot] = 0;
}

__device__ void Release(const Timeline &timeline, int64_t slot) { timeline.Release(slot); }

// Notes that late columns of rows in different slots were written. Rows that miss no other column become eligible.
// Called by all threads of one block.
template <typename Rows>
__device__ void CompleteRows(const Rows &rows, const int64_t *slots, int64_t n, int32_t written) {
  const RowState &row_state = rows.row_state();
  bool any = false;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (slots[i] < 0 || !row_state.Arrives(slots[i], written)) continue;
    Release(rows, slots[i]);
    any = true;
  }
  if (!__syncthreads_or(any)) return;
  const auto for_starts = [&](const auto &visit) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      if (slots[i] >= 0) ForWeightsAround(rows, rows.places().HandleOf(slots[i]), slots[i], visit);
    }
  };
  for_starts([&](int64_t start) {
    if (!rows.MayStart(rows.places().HandleOf(start), start)) return;
    row_state.tree.SetLeaf(start, (*row_state.rule)(row_state.priorities[start]));
  });
  ForLevels(row_state.tree, [&](int level) {
    for_starts([&](int64_t start) { row_state.tree.RefreshNode(level, SumTree::NodeOf(level, start)); });
  });
}

// Moves the ends of episodes after an update of the column of terminations in different slots; all threads of one
// block. `changed` is memory for n numbers.
__device__ void UpdateEnds(const Timeline &timeline, const int64_t *slots, int64_t n, const BoolRows &terminated,
                           int32_t *changed) {
  bool any = false;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    changed[i] = slots[i] >= 0 && timeline.UpdateEnd(slots[i], terminated(i));
    any |= changed[i] != 0;
  }
  if (!__syncthreads_or(any)) return;
  const auto for_changed = [&](const auto &visit) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      if (changed[i] != 0) visit(slots[i]);
    }
  };
  const auto for_starts = [&](const auto &visit) {
    for_changed([&](int64_t slot) { timeline.ForStartsAffectedBy(slot, visit); });
  };
  for_changed([&](int64_t slot) { timeline.CountStepsAfter(slot); });
  __syncthreads();
  Ignored ignored;
  for_starts([&](int64_t start) { timeline.SetStartWeight(start, &ignored); });
  const SumTree &tree = timeline.row_state().tree;
  ForLevels(tree, [&](int level) {
    for_starts([&](int64_t start) { tree.RefreshNode(level, SumTree::NodeOf(level, start)); });
  });
}

// Runs before an update: finds the slot of each row, -1 if a later row overwrites it or its handle is invalid.
template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    UpdateSlotsKernel(const Report report, const State state, const int64_t *handles, int64_t n, int64_t *slots,
                      int32_t *table, int64_t buckets, const Updates updates, const int64_t *written, int32_t *invalid,
                      const Columns columns) {
  bool sound = state.IsConsistent();
  if (kHasEpisodes<Rows>) sound = sound && written[1] < columns.k;
  const int64_t number = updates.Next();
  if (!sound) Refuse(report, kBadArguments, invalid);
  int64_t skipped = 0, unknown = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    slots[i] = -1;
    if (!sound) continue;
    slots[i] = StoredSlot(state.Get<Rows>(), handles[i]);
    updates.Mark(slots[i], number);
    skipped += slots[i] < 0;
    unknown += slots[i] < 0 && handles[i] >= 0;
  }
  if (!sound) return;
  const StepsByCell rows_by_slot(table, buckets);
  const auto slot_of = [=](int64_t i) { return slots[i]; };
  rows_by_slot.Build(n, slot_of);
  // A row that one thread drops is never the latest for another.
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (slots[i] >= 0 && rows_by_slot.Latest(slots[i], n, slot_of) > i) slots[i] = -1;
  }
  const int64_t all = SumOfBlock(skipped);
  if constexpr (kHasEpisodes<Rows>) {
    if (written[1] >= 0) {
      const Column &column = columns.column[written[1]];
      UpdateEnds(state.Get<Rows>(), slots, n, {column.batch, column.row_bytes, column.is_float}, table);
    }
  }
  if (threadIdx.x == 0) {
    *invalid = static_cast<int32_t>(all);
    updates.End(number);
  }
  if constexpr (kHasRowState<Rows>) {
    if ((written[0] & kCountsInvalid) != 0) AddTo(&state.row_state.counts->invalid, unknown);
    const auto late = static_cast<int32_t>(written[0] & kMissing);
    if (late != 0) CompleteRows(state.Get<Rows>(), slots, n, late);
  }
}

__global__ void __launch_bounds__(kThreads) ReadKernel(const Report report, const State state, const int64_t *index,
                                                       const Columns columns, const Chunks chunks) {
  __shared__ int64_t slots[kThreads];
  const Chunk chunk = ThisChunk(chunks);
  const int64_t head = *state.head, count = *state.count;
  const bool sound = state.IsConsistent();
  if (threadIdx.x < chunk.count) {
    int64_t row = index[chunk.first + threadIdx.x];
    if (row < 0) row += count;
    const bool inside = sound && row >= 0 && row < count;
    slots[threadIdx.x] = inside ? SlotOf(row, head, state.capacity) : -1;
    if (!inside) report(sound ? kIndexOutOfRange : kBadArguments);
  }
  __syncthreads();
  CopyRows<kOut>(columns.column, columns.k, chunk, slots);
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    UpdatePrioritiesKernel(const Report report, const State state, const int64_t *handles, int64_t n,
                           const float *priorities, int64_t given, int32_t *invalid) {
  __shared__ int64_t slots[kThreads];
  const bool sound = state.IsConsistent();
  const bool bad = HasBadWeight(priorities, given);
  if (!sound || bad) return Refuse(report, bad ? kBadWeight : kBadArguments, invalid);
  const Rows rows = state.Get<Rows>();
  const RowState &row_state = state.row_state;
  int64_t skipped = 0, unknown = 0;
  for (int64_t first = 0; first < n; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const int64_t slot = i < n ? KeptSlot(rows, handles[i]) : -1;
    __syncthreads();
    slots[threadIdx.x] = slot;
    __syncthreads();
    if (slot >= 0) {
      const float priority = Normal(priorities[given == n ? i : 0]);
      RaiseTo(row_state.max_priority, priority);
      bool last = true;
      for (unsigned j = threadIdx.x + 1; j < blockDim.x; ++j) last &= slots[j] != slot;
      if (last) {
        row_state.priorities[slot] = priority;
        if (rows.MayStart(handles[i], slot)) row_state.tree.SetLeaf(slot, (*row_state.rule)(priority));
      }
    } else if (i < n) {
      ++skipped;
      unknown += handles[i] >= 0;
    }
    __syncthreads();
  }
  AddTo(&row_state.counts->invalid, unknown);
  RefreshAbove(row_state.tree, n, [&](int64_t i) { return KeptSlot(rows, handles[i]); });
  const int64_t all = SumOfBlock(skipped);
  if (threadIdx.x == 0) *invalid = static_cast<int32_t>(all);
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    DeleteKernel(const Report report, const State state, const int64_t *handles, int64_t n, int32_t *deleted) {
  if (!state.IsConsistent()) return Refuse(report, kBadArguments, deleted);
  const Rows rows = state.Get<Rows>();
  const RowState &row_state = state.row_state;
  int64_t invalid = 0, removed = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) invalid += handles[i] >= 0 && rows.StoredSlot(handles[i]) < 0;
  __syncthreads();
  // Of threads that delete one row the first to mark its clock wins; clocks are not negative.
  constexpr unsigned long long kMark = 1ULL << 63;
  const auto clock_of = [&](int64_t slot) {
    return reinterpret_cast<unsigned long long *>(&row_state.insertion_clocks[slot]);
  };
  Ignored changed;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t slot = rows.StoredSlot(handles[i]);
    if (slot < 0 || (atomicOr(clock_of(slot), kMark) & kMark) != 0) continue;
    rows.Delete(slot, &changed);
    ++removed;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t slot = rows.places().SlotOf(handles[i]);
    if (slot >= 0) atomicAnd(clock_of(slot), ~kMark);
  }
  AddTo(&row_state.counts->invalid, invalid);
  AddTo(&row_state.counts->deleted, removed);
  const int64_t all = SumOfBlock(removed);
  if (threadIdx.x == 0) *deleted = static_cast<int32_t>(all);
  if (all == 0) return;
  ForLevels(row_state.tree, [&](int level) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const int64_t slot = rows.places().SlotOf(handles[i]);
      if (slot < 0) continue;
      int64_t done = -1;  // neighbours mostly have the same node above them
      ForWeightsAround(rows, handles[i], slot, [&](int64_t start) {
        const int64_t node = SumTree::NodeOf(level, start);
        if (node != done) row_state.tree.RefreshNode(level, node);
        done = node;
      });
    }
  });
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads) AdvanceKernel(const Report report, const State state, const int64_t *ticks,
                                                          const int64_t *max_staleness, int64_t *now) {
  const RowState &row_state = state.row_state;
  const bool refused =
      *ticks < 0 || *ticks > kLastClock - row_state.clock->now || (kInReservoir<Rows> && *max_staleness >= 0);
  if (!state.IsConsistent() || refused) return Refuse(report, kBadArguments, now);
  const int64_t passed = *ticks, limit = *max_staleness;
  __syncthreads();
  if (threadIdx.x == 0) *now = row_state.clock->now += passed;
  __syncthreads();
  DeleteStaleRows(state.Get<Rows>(), limit);
}

__global__ void __launch_bounds__(kThreads)
    InfoKernel(const Report report, const State state, const int64_t *handles, int64_t n, float *priorities,
               int32_t *use_counts, int64_t *staleness) {
  const bool sound = state.IsConsistent();
  if (!sound && FirstOfGrid() == 0) report(kBadArguments);
  const RowState &row_state = state.row_state;
  for (int64_t i = FirstOfGrid(); i < n; i += GridStride()) {
    const int64_t slot = sound ? state.SlotOf(handles[i]) : -1;
    priorities[i] = slot < 0 ? 0.0f : row_state.priorities[slot];
    use_counts[i] = slot < 0 ? -1 : row_state.Uses(slot);
    staleness[i] = slot < 0 ? -1 : row_state.clock->now - row_state.insertion_clocks[slot];
  }
}

__global__ void __launch_bounds__(kThreads)
    EndKernel(const Report report, const State state, const uint8_t *flag, int32_t *ended) {
  if (!state.IsConsistent()) return Refuse(report, kBadArguments, ended);
  const Timeline timeline = state.Get<Timeline>();
  const int64_t first = timeline.Newest(), last = timeline.places().inserted;
  Ignored changed;
  int64_t count = 0;
  for (int64_t serial = first + threadIdx.x; serial < last; serial += blockDim.x) {
    count += timeline.End(serial, *flag, &changed);
  }
  const int64_t all = SumOfBlock(count);
  if (last > first) RefreshRows(state.row_state.tree, timeline.places(), timeline.FirstStart(first), last);
  if (threadIdx.x == 0) *ended = static_cast<int32_t>(all);
}

// Sets numbers to one value: arrays, shared among all threads of a launch, or single numbers, which blocks read until
// the last block sets them.
struct Fill {
  bool arrays;

  template <typename Number>
  __device__ void operator()(Number *numbers, int64_t n, Number value) const {
    if (!arrays && n == 1) *numbers = value;
    if (!arrays || n == 1) return;
    for (int64_t i = FirstOfGrid(); i < n; i += GridStride()) numbers[i] = value;
  }
};

__global__ void __launch_bounds__(kThreads)
    ResetKernel(const Report report, unsigned ticket, const State state, int32_t *stored) {
  const bool sound = state.row_state.clock == nullptr || state.IsConsistent();
  const int64_t inserted = state.serials[0];
  const auto forget = [&](const Fill &fill) {
    if (state.row_state.clock != nullptr) state.row_state.Reset(inserted, state.capacity, fill);
    if (state.rule != nullptr) state.Get<Timeline>().Reset(fill);
  };
  if (sound) forget({true});
  if (!IsLastBlock(ticket) || threadIdx.x != 0) return;
  *stored = 0;
  if (!sound) return report(kBadArguments);
  forget({false});
  state.serials[1] = inserted;
  *state.head = *state.count = 0;
}

__global__ void __launch_bounds__(kThreads)
    SumsKernel(const Report report, const State state, const int64_t *ranges, int64_t m, double *sums) {
  const Cursors ring = state.Ring();
  const bool sound = AreCursors(ring.head, ring.count, ring.capacity);
  if (!sound && FirstOfGrid() == 0) report(kBadArguments);
  for (int64_t i = FirstOfGrid(); i < m; i += GridStride()) {
    const RowRange rows = SliceRows(ranges[2 * i], ranges[2 * i + 1], sound ? ring.count : 0);
    sums[i] = SumRows(state.row_state.tree, rows, ring.head, ring.capacity);
  }
}

__global__ void SummaryKernel(const SumTree tree, double *summary) {
  if (threadIdx.x != 0) return;
  summary[0] = tree.Total();
  summary[1] = tree.Minimum();
  summary[2] = tree.Positive();
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    MeasureKernel(const Report report, const State state, const int64_t *what, const int64_t *range, double *number) {
  __shared__ float largest;
  if (*what < kRoom || *what > kPositive || !state.IsConsistent()) return Refuse(report, kBadArguments, number);
  const auto rows = state.Get<Rows>();
  const Cursors &ring = rows.places();
  const RowState &row_state = rows.row_state();
  const RowRange chosen = SliceRows(range[0], range[1], *what == kRoom ? 0 : ring.count);
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  int64_t positive = 0, kept = 0;
  for (int64_t row = threadIdx.x; row < chosen.size; row += blockDim.x) {
    const int64_t slot = SlotOf(chosen.first + row, ring.head, ring.capacity);
    positive += row_state.tree.Leaf(slot) > 0;
    if (!row_state.Kept(slot)) continue;
    ++kept;
    RaiseTo(&largest, row_state.priorities[slot]);
  }
  positive = SumOfBlock(positive);
  kept = SumOfBlock(kept);
  if (threadIdx.x != 0) return;
  if (*what == kRoom) {
    *number = static_cast<double>(RoomOf(rows));
  } else if (*what == kLargestHeld) {
    *number = kept > 0 ? largest : row_state.rule->initial_priority;
  } else {
    *number = static_cast<double>(positive);
  }
}

}  // namespace

MINDSPORE_REPLAY_CUDA_KERNEL(insert) {
  Insertion insertion{StateOf(args), args.n(), args.data<int64_t>(NAMED("first"))};
  if (args.HasGroup(kRowStateGroup)) {
    insertion.priorities = args.data<float>(NAMED("priority"));
    insertion.given = args.elements(NAMED("priority"));
  }
  if (args.HasGroup(kVersionsGroup)) {
    insertion.versions = args.data<int64_t>(NAMED("version"));
    insertion.given_versions = args.elements(NAMED("version"));
    insertion.max_staleness = args.data<int64_t>(NAMED("max_staleness"));
  }
  if (args.HasGroup(kEpisodesGroup)) {
    insertion.ends = args.data<uint8_t>(NAMED("ends"));
    insertion.given_ends = args.elements(NAMED("ends"));
    insertion.steps = call->Scratch<int64_t>(1 + args.n());
    call->Launch(StepsKernel, 1, insertion, ColumnsOf(args));
  }
  if (args.HasGroup(kReservoirGroup)) call->Launch(ClaimKernel, BlocksFor(args.n()), insertion);
  const Chunks chunks = ChunksOf(args, args.n());
  WithKind(args, [&](auto kind) {
    using Rows = typename decltype(kind)::Type;
    call->Launch(InsertKernel<Rows>, chunks.Blocks(), call->report, NextTicket(), insertion, ColumnsOf(args), chunks);
    if constexpr (kHasRowState<Rows>) {
      if (insertion.versions != nullptr) call->Launch(VersionsKernel<Rows>, 1, insertion);
    }
  });
}

// Launches a kernel, a template of the kind of rows, in one block with the report, the state and more.
#define LAUNCH_FOR_ROWS(kernel, ...)                                                                  \
  WithKind(args, [&](auto kind) {                                                                     \
    call->Launch(kernel<typename decltype(kind)::Type>, 1, call->report, StateOf(args), __VA_ARGS__); \
  })

MINDSPORE_REPLAY_CUDA_KERNEL(update) {
  const Chunks chunks = ChunksOf(args, args.n());
  auto *slots = call->Scratch<int64_t>(args.n());
  auto *table = call->Scratch<int32_t>(StepsByCell::Size(args.n()));
  LAUNCH_FOR_ROWS(UpdateSlotsKernel, args.template data<int64_t>(NAMED("handles")), args.n(), slots, table,
                  StepsByCell::Buckets(args.n()), Updates{args.template data<int64_t>(NAMED("updates"))},
                  args.template data_or_null<int64_t>(NAMED("written")), args.template data<int32_t>(NAMED("invalid")),
                  ColumnsOf(args));
  call->Launch(CopyKernel<kIn>, chunks.Blocks(), slots, ColumnsOf(args), chunks);
}

MINDSPORE_REPLAY_CUDA_KERNEL(read) {
  const Chunks chunks = ChunksOf(args, args.n());
  call->Launch(ReadKernel, chunks.Blocks(), call->report, StateOf(args), args.data<int64_t>(NAMED("index")),
               ColumnsOf(args), chunks);
}

MINDSPORE_REPLAY_CUDA_KERNEL(update_priorities) {
  LAUNCH_FOR_ROWS(UpdatePrioritiesKernel, args.template data<int64_t>(NAMED("handles")), args.n(),
                  args.template data<float>(NAMED("priority")), args.elements(NAMED("priority")),
                  args.template data<int32_t>(NAMED("invalid")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(delete) {
  LAUNCH_FOR_ROWS(DeleteKernel, args.template data<int64_t>(NAMED("handles")), args.n(),
                  args.template data<int32_t>(NAMED("removed")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(advance) {
  LAUNCH_FOR_ROWS(AdvanceKernel, args.template data<int64_t>(NAMED("ticks")),
                  args.template data<int64_t>(NAMED("max_staleness")), args.template data<int64_t>(NAMED("now")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(info) {
  call->Launch(InfoKernel, BlocksFor(args.n()), call->report, StateOf(args), args.data<int64_t>(NAMED("handles")),
               args.n(), args.data<float>(NAMED("priority")), args.data<int32_t>(NAMED("uses")),
               args.data<int64_t>(NAMED("staleness")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(end_episodes) {
  call->Launch(EndKernel, 1, call->report, StateOf(args), args.data<uint8_t>(NAMED("flag")),
               args.data<int32_t>(NAMED("ended")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(reset) {
  const int64_t blocks = args.HasGroup(kRowStateGroup) ? BlocksFor(args.capacity()) : 1;
  call->Launch(ResetKernel, blocks, call->report, NextTicket(), StateOf(args), args.data<int32_t>(NAMED("stored")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(sums) {
  const int64_t m = args.elements(NAMED("sums"));
  call->Launch(SumsKernel, BlocksFor(m), call->report, StateOf(args), args.data<int64_t>(NAMED("ranges")), m,
               args.data<double>(NAMED("sums")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(summary) {
  call->Launch(SummaryKernel, 1, StateOf(args).row_state.tree, args.data<double>(NAMED("summary")));
}

MINDSPORE_REPLAY_CUDA_KERNEL(measure) {
  LAUNCH_FOR_ROWS(MeasureKernel, args.template data<int64_t>(NAMED("what")),
                  args.template data<int64_t>(NAMED("sample_range")), args.template data<double>(NAMED("number")));
}

// Returns the status of the first call refused on the GPU since the last query, or 0, and the name of its kernel. Calls
// in flight are not covered; a caller that needs them waits first.
MINDSPORE_REPLAY_EXPORT int replay_take_failure(const char **kernel) {
  volatile Failure *failure = the_failure;
  if (failure == nullptr || failure->status == kOk) return kOk;
  const int status = failure->status;
  *kernel = failure->kernel;
  failure->status = kOk;
  return status;
}

// Line i of the table of operators; null after the last.
MINDSPORE_REPLAY_EXPORT const char *replay_signature(int i) { return LineOfTable(i); }

}  // namespace replay
