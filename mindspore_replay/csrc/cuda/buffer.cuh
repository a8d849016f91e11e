// Updates of a buffer's state in GPU memory by one block. All threads of the block call the functions that do
// not concern a single row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "buffer.h"
#include "cuda/device.cuh"

namespace replay {

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
