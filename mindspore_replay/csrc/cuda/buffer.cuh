// A buffer's state in GPU memory, and updates of it by one block. All threads of the block call the functions that do
// not concern a single row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "buffer.h"
#include "cuda/device.cuh"

namespace replay {

// The kind of a buffer's rows, for overloads: cursors if there is no row state, else SingleRows or Timeline.
template <typename Rows>
struct Kind {
  using Type = Rows;
};

template <typename Rows>
constexpr bool kHasEpisodes = std::is_same_v<Rows, Timeline>;

template <typename Rows>
constexpr bool kHasRowState = !std::is_base_of_v<Cursors, Rows>;

template <typename Rows>
constexpr bool kInReservoir =
    std::is_same_v<Rows, ReservoirCursors> || std::is_same_v<Rows, SingleRows<ReservoirCursors>>;

template <typename Rows>
using PlacesOf = std::conditional_t<kInReservoir<Rows>, ReservoirCursors, Cursors>;

// Calls use(kind) with the kind of a buffer.
template <int kOperator, typename Use>
void WithKind(const Bound<kOperator> &args, const Use &use) {
  using Args = Bound<kOperator>;
  const auto alone = [&](auto places) {
    using Places = typename decltype(places)::Type;
    if constexpr (Args::MayHaveGroup(kRowStateGroup)) {
      if (args.HasGroup(kRowStateGroup)) return use(Kind<SingleRows<Places>>{});
    }
    if constexpr (!kSignature<kOperator>.required[kRowStateGroup]) use(places);
  };
  if constexpr (Args::MayHaveGroup(kEpisodesGroup)) {
    if (args.HasGroup(kEpisodesGroup)) return use(Kind<Timeline>{});
  }
  if constexpr (Args::MayHaveGroup(kReservoirGroup)) {
    if (args.HasGroup(kReservoirGroup)) return alone(Kind<ReservoirCursors>{});
  }
  alone(Kind<Cursors>{});
}

// Addresses of the state; null for absent arrays. Cursors are read again by each function that returns them.
struct State {
  int64_t capacity;
  int32_t *head;
  int32_t *count;
  int64_t *serials;
  RandomState *random;
  RowState row_state;
  int64_t *row_serials;
  int64_t *steps;
  uint8_t *flags;
  const WindowRule *rule;

  __device__ Cursors Get(Kind<Cursors>) const { return {capacity, *head, *count, serials[0], serials[1]}; }
  __device__ ReservoirCursors Get(Kind<ReservoirCursors>) const { return {Ring(), random->key, row_serials}; }
  __device__ Timeline Get(Kind<Timeline>) const { return {Ring(), row_state, *rule, steps, flags}; }
  template <typename Places>
  __device__ SingleRows<Places> Get(Kind<SingleRows<Places>>) const {
    return {Get(Kind<Places>{}), row_state};
  }
  __device__ Cursors Ring() const { return Get(Kind<Cursors>{}); }

  // Returns the slot of a serial number, or -1 if its row is not stored.
  __device__ int64_t SlotOf(int64_t serial) const {
    return row_serials != nullptr ? Get(Kind<ReservoirCursors>{}).SlotOf(serial) : Ring().SlotOf(serial);
  }

  // True if the state is consistent, by the criteria of WithPlaces and WithRows in buffer.h.
  __device__ bool IsConsistent() const {
    if (rule != nullptr && !IsRule(*rule, capacity)) return false;
    const Cursors ring = Ring();
    if (row_serials != nullptr) {
      return Get(Kind<ReservoirCursors>{})
          .IsConsistent(row_state.clock != nullptr ? row_state.clock->fresh : ring.base);
    }
    if (row_state.clock == nullptr) return AreCursors(ring.head, ring.count, capacity);
    return ring.IsConsistent(row_state.clock->fresh);
  }
};

template <int kOperator>
State StateOf(const Bound<kOperator> &args) {
  return {args.capacity(),
          args.template data<int32_t>(NAMED("head")),
          args.template data<int32_t>(NAMED("count")),
          args.template data<int64_t>(NAMED("serials")),
          args.template data_or_null<RandomState>(NAMED("random_state")),
          RowStateOf(args),
          args.template data_or_null<int64_t>(NAMED("row_serials")),
          args.template data_or_null<int64_t>(NAMED("steps")),
          args.template data_or_null<uint8_t>(NAMED("flags")),
          args.template data_or_null<WindowRule>(NAMED("window_rule"))};
}

// Discards the slots that changed, for callers that refresh the nodes above them by other means.
struct Ignored {
  REPLAY_BOTH void push_back(int64_t) {}
};

// Calls refresh(level) for each level of a tree from below, with a barrier between levels.
template <typename Refresh>
__device__ void ForLevels(const SumTree &tree, const Refresh &refresh) {
  for (int level = 1; level <= tree.Height(); ++level) {
    __syncthreads();
    refresh(level);
  }
  __syncthreads();
}

// Recomputes the nodes above slot_of(0), ..., slot_of(n - 1); -1 is no slot.
template <typename SlotOfRow>
__device__ void RefreshAbove(const SumTree &tree, int64_t n, const SlotOfRow &slot_of) {
  const int64_t first = threadIdx.x < n ? slot_of(threadIdx.x) : -1;
  ForLevels(tree, [&](int level) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const int64_t slot = i == threadIdx.x ? first : slot_of(i);
      if (slot >= 0) tree.RefreshNode(level, SumTree::NodeOf(level, slot));
    }
  });
}

// Recomputes the nodes above n consecutive slots, around the ring's end.
__device__ inline void RefreshRange(const SumTree &tree, int64_t slot, int64_t n, int64_t capacity) {
  if (n <= 0) return;
  const int64_t before_end = std::min(n, capacity - slot);
  ForLevels(tree, [&](int level) {
    const int64_t first = SumTree::NodeOf(level, slot);
    const int64_t nodes = SumTree::NodeOf(level, slot + before_end - 1) - first + 1;
    const int64_t wrapped = n > before_end ? SumTree::NodeOf(level, n - before_end - 1) + 1 : 0;
    for (int64_t i = threadIdx.x; i < nodes + wrapped; i += blockDim.x) {
      tree.RefreshNode(level, i < nodes ? first + i : i - nodes);
    }
  });
}

// RefreshRange for the rows with serial numbers in [first, last).
__device__ inline void RefreshRows(const SumTree &tree, const Cursors &ring, int64_t first, int64_t last) {
  if (last > first) RefreshRange(tree, ring.SlotOf(first), last - first, ring.capacity);
}

// *number = max(*number, value), for non-negative numbers.
__device__ inline void RaiseTo(float *number, float value) {
  if (value > 0) atomicMax(reinterpret_cast<int *>(number), __float_as_int(value));
}

// True if one of n numbers is not a valid weight; the same for all threads.
__device__ inline bool HasBadWeight(const float *values, int64_t n) {
  bool bad = false;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) bad |= !IsWeight(values[i]);
  return __syncthreads_or(bad) != 0;
}

}  // namespace replay
