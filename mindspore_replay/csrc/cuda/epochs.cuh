// The batches of core/epochs.h, drawn by one block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/epochs.h"
#include "core/rows.h"
#include "core/status.h"
#include "cuda/device.cuh"

namespace replay {

// A batch of an epoch; its slots follow in memory.
struct Batch {
  int64_t status;
  int64_t given;  // slots that are no padding
  Epoch next;     // the epoch after it

  // Size in int64 with n slots.
  static int64_t Size(int64_t n) { return static_cast<int64_t>(sizeof(Batch) / sizeof(int64_t)) + n; }
  __device__ int64_t *Slots() { return reinterpret_cast<int64_t *>(this + 1); }
  __device__ const int64_t *Slots() const { return reinterpret_cast<const int64_t *>(this + 1); }

  // Draws the next batch, or the first one of the next epoch; all threads of a block call it.
  template <typename SlotOf>
  __device__ void Draw(const EpochRule &rule, const Cursors &ring, const RandomState &random, const Epoch &epoch,
                       int64_t n, const SlotOf &slot_of) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) Slots()[i] = ring.head;
    __syncthreads();
    Epoch taken = epoch;
    int64_t drawn = Take(rule, &taken, slot_of, n);
    if (drawn < 0) {
      const auto key = RandomBits(static_cast<uint64_t>(random.key), static_cast<uint64_t>(random.counter));
      taken = {static_cast<int64_t>(key), ring.inserted - ring.count, ring.count, 0, epoch.begun + 1};
      drawn = Take(rule, &taken, slot_of, n);
    }
    if (drawn > 0) {
      const int64_t first = Slots()[0];
      for (int64_t i = drawn + threadIdx.x; i < n; i += blockDim.x) Slots()[i] = first;
    }
    if (threadIdx.x != 0) return;
    status = drawn < 0 ? kTooFewRows : kOk;
    given = drawn;
    next = taken;
  }

 private:
  // Does what TakeBatch does; each thread looks at another position.
  template <typename SlotOf>
  __device__ int64_t Take(const EpochRule &rule, Epoch *epoch, const SlotOf &slot_of, int64_t n) {
    __shared__ bool can_be_drawn[kThreads];
    __shared__ int64_t after;  // the position after the last row of the batch
    const Order order(epoch->key, epoch->size);
    const int64_t end = epoch->size > 0 ? order.size() : 0, wanted = n * rule.world;
    if (threadIdx.x == 0) after = end;
    int64_t found = 0;
    for (int64_t begin = epoch->position; begin < end && found < wanted; begin += blockDim.x) {
      const int64_t position = begin + threadIdx.x;
      const int64_t row = position < end ? order(position) : epoch->size;
      const int64_t slot = row < epoch->size ? slot_of(epoch->first + row) : -1;
      __syncthreads();
      can_be_drawn[threadIdx.x] = slot >= 0;
      __syncthreads();
      int64_t number = found;
      for (unsigned i = 0; i < threadIdx.x; ++i) number += can_be_drawn[i];
      if (slot >= 0 && number < wanted) {
        if (number % rule.world == rule.rank) Slots()[number / rule.world] = slot;
        if (number == wanted - 1) after = position + 1;
      }
      found += __syncthreads_count(slot >= 0);
    }
    __syncthreads();
    if (found < wanted && (rule.pad == 0 || found == 0)) return -1;
    epoch->position = after;
    found = std::min(found, wanted);
    __syncthreads();
    return found / rule.world + (found % rule.world > rule.rank ? 1 : 0);
  }
};

}  // namespace replay
