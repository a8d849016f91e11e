// A buffer with weights in the memory of a GPU, and what the threads of one block do to it together. The functions that
// are not of one row are called by all threads of a block.
#ifndef MINDSPORE_REPLAY_WEIGHTS_CUH_
#define MINDSPORE_REPLAY_WEIGHTS_CUH_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "device.cuh"
#include "points.h"
#include "rows.cuh"
#include "shuffle.cuh"
#include "weighted_buffer.h"
#include "weights.h"

namespace replay {

struct WeightedState {
  RingState ring;
  int64_t *serials;
  RowWeights rows;

  __device__ bool Sound() const {
    const int64_t head = *ring.head, count = *ring.count, inserted = serials[0], base = serials[1];
    const int64_t fresh = rows.clock->fresh;  // all are loaded before one is looked at
    return AreCursors(head, count, ring.capacity) & AreSerials(inserted, base, count, fresh);
  }
  __device__ Cursors Ring() const { return {ring.capacity, *ring.head, *ring.count, serials[0], serials[1]}; }
};

inline WeightedState WeightedStateOf(const Arguments &args, int k) {
  const int64_t capacity = args.dim(0, 0);
  return {RingStateOf(args, k),
          args.data<int64_t>(k + 2),
          {SumTree(args.data<double>(k + 3), capacity), args.data<float>(k + 4), args.data<float>(k + 5),
           args.data<int32_t>(k + 6), args.data<int64_t>(k + 7), args.data<Clock>(k + 8), args.data<Counts>(k + 9)}};
}

// The handles of a sample that is refused: of no row, so that what is done to them is done to none.
constexpr int64_t kNoRow = -1;

// What takes the slots that the algorithms change, where the nodes above them are computed anew by other means.
struct Ignored {
  REPLAY_BOTH void push_back(int64_t) {}
};

// *number = max(*number, value) of numbers that are not negative.
__device__ inline void RaiseTo(float *number, float value) {
  if (value > 0) atomicMax(reinterpret_cast<int *>(number), __float_as_int(value));
}

// Removes the row in a slot, unless another thread or call has, and says whether it did.
__device__ inline bool RemoveRow(const RowWeights &rows, int64_t slot) {
  const int32_t uses = rows.use_counts[slot];
  if (uses < 0 || atomicCAS(&rows.use_counts[slot], uses, ~uses) != uses) return false;
  rows.tree.SetLeaf(slot, 0);
  return true;
}

// Computes the nodes above slot_of(0), ..., slot_of(n - 1) anew; -1 is no slot.
template <typename SlotOfRow>
__device__ void RefreshAbove(const SumTree &tree, int64_t n, const SlotOfRow &slot_of) {
  const int64_t first = threadIdx.x < n ? slot_of(threadIdx.x) : -1;
  for (int level = 1; level <= tree.Height(); ++level) {
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const int64_t slot = i == threadIdx.x ? first : slot_of(i);
      if (slot >= 0) tree.RefreshNode(level, SumTree::NodeOf(level, slot));
    }
  }
  __syncthreads();
}

// Computes the nodes above n consecutive slots anew, around the ring's end.
__device__ inline void RefreshRange(const SumTree &tree, int64_t slot, int64_t n, int64_t capacity) {
  if (n <= 0) return;
  const int64_t before_end = std::min(n, capacity - slot);
  for (int level = 1; level <= tree.Height(); ++level) {
    __syncthreads();
    const int64_t first = SumTree::NodeOf(level, slot);
    const int64_t nodes = SumTree::NodeOf(level, slot + before_end - 1) - first + 1;
    const int64_t wrapped = n > before_end ? SumTree::NodeOf(level, n - before_end - 1) + 1 : 0;
    for (int64_t i = threadIdx.x; i < nodes + wrapped; i += blockDim.x) {
      tree.RefreshNode(level, i < nodes ? first + i : i - nodes);
    }
  }
  __syncthreads();
}

// As RefreshRange, for the rows with serial numbers from `first` up to `last`, which is not one of them.
__device__ inline void RefreshRows(const SumTree &tree, const Cursors &ring, int64_t first, int64_t last) {
  if (last > first) RefreshRange(tree, ring.SlotOf(first), last - first, ring.capacity);
}

// Counts a delivery of one slot.
__device__ inline void CountUse(const RowWeights &rows, int64_t slot) {
  int32_t *count = &rows.use_counts[slot];
  for (int32_t uses = *count; uses < std::numeric_limits<int32_t>::max();) {
    const int32_t found = atomicCAS(count, uses, uses + 1);
    if (found == uses) break;
    uses = found;
  }
}

// When all deliveries of a sample are counted, removes the rows that have had `max_use` of them, 0 for no limit.
template <typename SlotOfRow>
__device__ void Deliver(const RowWeights &rows, int64_t n, const SlotOfRow &slot_of, int64_t max_use) {
  if (threadIdx.x == 0) AddTo(&rows.counts->drawn, n);
  if (max_use == 0) return;
  int64_t removed = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t slot = slot_of(i);
    if (rows.use_counts[slot] >= max_use) removed += RemoveRow(rows, slot);
  }
  AddTo(&rows.counts->used_up, removed);
  if (__syncthreads_or(removed > 0)) RefreshAbove(rows.tree, n, slot_of);
}

// Whether one of n numbers is no weight; the same for all threads.
__device__ inline bool HasBadWeight(const float *values, int64_t n) {
  bool bad = false;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) bad |= !IsWeight(values[i]);
  return __syncthreads_or(bad) != 0;
}

// The rows of an insertion, as this block sees it before anything is changed.
struct Insertion {
  WeightedState state;
  const double *factors;
  const float *priorities;  // one for all rows, or one for each
  int64_t given;
  Columns columns;
  int64_t n;
  Chunks chunks;
  int32_t *stored;

  __device__ RingWrite Plan() const { return PlanWrite(n, *state.ring.head, *state.ring.count, state.ring.capacity); }

  // Stores what is known of the rows of this block's chunk, and says in which slots these go.
  __device__ void Mark(const RingWrite &plan, bool eligible, int64_t *slots) const {
    const RowWeights &rows = state.rows;
    const WeightRule rule{factors[0], factors[1]};
    const Chunk chunk = ThisChunk(chunks);
    if (threadIdx.x < chunk.count) {
      const int64_t row = chunk.first + threadIdx.x;
      const int64_t kept = row - plan.skipped;
      const int64_t slot = kept < 0 ? -1 : SlotOf(kept, plan.slot, state.ring.capacity);
      slots[threadIdx.x] = slot;
      if (slot >= 0 && chunk.part == 0) {
        const float priority = priorities[given == n ? row : 0];
        rows.priorities[slot] = priority;
        rows.use_counts[slot] = 0;
        rows.insertion_clocks[slot] = rows.clock->now;
        rows.tree.SetLeaf(slot, eligible ? rule(priority) : 0.0);
      }
    }
  }

  // Moves the cursors when all blocks have marked their rows, and brings the tree up to date.
  __device__ void Commit(const RingWrite &plan) const {
    const RowWeights &rows = state.rows;
    const int64_t inserted = state.serials[0] + n;
    for (int64_t i = threadIdx.x; i < given; i += blockDim.x) RaiseTo(rows.max_priority, priorities[i]);
    RefreshRange(rows.tree, plan.slot, plan.written, state.ring.capacity);
    if (threadIdx.x == 0) {
      *state.ring.head = static_cast<int32_t>(plan.head);
      *state.ring.count = static_cast<int32_t>(plan.count);
      state.serials[0] = inserted;
      rows.clock->fresh = std::max(rows.clock->fresh, inserted - plan.count);
      *stored = static_cast<int32_t>(plan.count);
    }
    __syncthreads();
  }
};

// Gives rows other priorities, the last of several for one row; slot_of(i) is the slot of row i, or -1 if it is dead.
// Adds what is dead to the counts, and says how many these are.
template <typename SlotOfRow>
__device__ int64_t UpdatePriorities(const RowWeights &rows, const WeightRule &rule, const int64_t *handles, int64_t n,
                                    const float *priorities, int64_t given, const SlotOfRow &slot_of) {
  __shared__ int64_t slots[kThreads];
  int64_t skipped = 0, unknown = 0;
  for (int64_t first = 0; first < n; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const int64_t slot = i < n ? slot_of(i) : -1;
    __syncthreads();
    slots[threadIdx.x] = slot;
    __syncthreads();
    if (slot >= 0) {
      const float priority = priorities[given == n ? i : 0];
      RaiseTo(rows.max_priority, priority);
      bool last = true;
      for (unsigned j = threadIdx.x + 1; j < blockDim.x; ++j) last &= slots[j] != slot;
      if (last) {
        rows.priorities[slot] = priority;
        rows.tree.SetLeaf(slot, rule(priority));
      }
    } else if (i < n) {
      ++skipped;
      unknown += handles[i] >= 0;
    }
    __syncthreads();
  }
  AddTo(&rows.counts->dead, unknown);
  RefreshAbove(rows.tree, n, slot_of);
  return SumOfBlock(skipped);
}

// The first row that is not stale when the clock has moved, which it does here; rows come in the order of their clocks.
__device__ inline int64_t MoveClock(const RowWeights &rows, const Cursors &ring, int64_t steps, int64_t max_staleness) {
  __shared__ int64_t fresh;
  __syncthreads();
  if (threadIdx.x == 0) {
    rows.clock->now += steps;
    int64_t low = rows.clock->fresh, high = ring.inserted;
    if (max_staleness < 0 || (low < high && !rows.Stale(ring.SlotOf(low), max_staleness))) high = low;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (rows.Stale(ring.SlotOf(middle), max_staleness)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    fresh = low;
  }
  __syncthreads();
  return fresh;
}

// Sets numbers to one value, shared out among all threads of a launch.
struct FillOnGrid {
  template <typename Number>
  __device__ void operator()(Number *numbers, int64_t n, Number value) const {
    for (int64_t i = FirstOfGrid(); i < n; i += GridStride()) numbers[i] = value;
  }
};

// Draws by rank from the rows of a range that weigh 1, of a tree of zeros and ones.
struct RankDraw {
  WeightedState buffer;
  RandomState *random;
  const int64_t *bounds;
  int64_t n;

  struct Draws {
    Ranks ranks;
    bool rotates;
    double offset;
  };

  __device__ int Load(Draws *draws, bool replace, bool ordered, const int64_t *given_ranks) const {
    if (!buffer.Sound()) return kBadArguments;
    const Cursors ring = buffer.Ring();
    const SumTree &tree = buffer.rows.tree;
    const RowRange rows = SliceRows(bounds[0], bounds[1], ring.count);
    const auto eligible = static_cast<int64_t>(SumRows(tree, rows, ring.head, ring.capacity));
    if (eligible < n) return kTooFewRows;
    const bool rotates = ordered || rows.size < ring.capacity;
    const double offset = rotates ? tree.Before(SlotOf(rows.first, ring.head, ring.capacity)) : 0;
    *draws = {{*random, eligible, replace, given_ranks}, rotates, offset};
    return kOk;
  }

  __device__ int64_t SlotOfDraw(const Draws &draws, int64_t i) const {
    const SumTree &tree = buffer.rows.tree;
    const double target = static_cast<double>(draws.ranks(i) + 1);
    return tree.SlotAt(draws.rotates ? Rotated(target, draws.offset, tree.Total()) : target);
  }
};

// Draws one row of each of n equal strata of the total weight.
struct WeightDraw {
  WeightedState buffer;
  RandomState *random;
  int64_t n;

  struct Draws {
    RandomState state;
    bool ordered;
    double stratum;
    double offset;
  };

  __device__ int Load(Draws *draws, bool ordered) const {
    if (!buffer.Sound()) return kBadArguments;
    const SumTree &tree = buffer.rows.tree;
    if (tree.Positive() < static_cast<double>(n)) return kTooFewRows;
    *draws = {*random, ordered, tree.Total() / static_cast<double>(n), ordered ? tree.Before(*buffer.ring.head) : 0};
    return kOk;
  }

  __device__ int64_t SlotOfDraw(const Draws &draws, int64_t i) const {
    const SumTree &tree = buffer.rows.tree;
    const double target = PointOfStratum(draws.state, i, draws.stratum, tree.Total());
    return tree.SlotAt(draws.ordered ? Rotated(target, draws.offset, tree.Total()) : target);
  }
};

// The importance weights of rows, measured by the smallest weight of these rows.
template <typename SlotOfRow>
__device__ void ImportanceWeights(const SumTree &tree, int64_t n, const SlotOfRow &slot_of, double beta,
                                  float *weights) {
  __shared__ unsigned long long smallest;  // the bits of positive numbers are in their order
  if (threadIdx.x == 0) smallest = static_cast<unsigned long long>(__double_as_longlong(tree.Leaf(slot_of(0))));
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    atomicMin(&smallest, static_cast<unsigned long long>(__double_as_longlong(tree.Leaf(slot_of(i)))));
  }
  __syncthreads();
  const double measure = __longlong_as_double(static_cast<long long>(smallest));
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    weights[i] = ImportanceWeight(measure, tree.Leaf(slot_of(i)), beta);
  __syncthreads();
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_WEIGHTS_CUH_
