// The first steps of a Fisher-Yates shuffle on a GPU, in parallel. The latest earlier step that took the cell of step i
// put the content of its own cell there. So the content of a cell is found by a walk over steps, each looked up in a
// hash table of the cells that steps take. The result equals that of draw.h, step by step.
#pragma once

#include <cstdint>

#include "core/draw.h"
#include "core/random.h"
#include "cuda/device.cuh"

namespace replay {

constexpr int64_t kMostInBlock = 2048;  // draws whose table fits into a block's shared memory

// Steps 0, 1, ... indexed by the cell that each takes, cell_of(step); a negative cell is none.
class StepsByCell {
 public:
  // Size of the memory for a number of steps: a list head for each bucket (a power of two of them), and a link for each
  // step.
  static constexpr int64_t Buckets(int64_t steps) {
    int64_t buckets = 4;
    while (buckets < 2 * steps) buckets *= 2;
    return buckets;
  }
  static constexpr int64_t Size(int64_t steps) { return Buckets(steps) + steps; }

  __device__ StepsByCell(int32_t *memory, int64_t buckets)
      : mask_(static_cast<uint64_t>(buckets - 1)), lists_(memory), links_(memory + buckets) {}

  // Inserts the first steps into the table; all threads of a block call it.
  template <typename CellOf>
  __device__ void Build(int64_t steps, const CellOf &cell_of) const {
    __syncthreads();
    for (uint64_t bucket = threadIdx.x; bucket <= mask_; bucket += blockDim.x) lists_[bucket] = -1;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < steps; i += blockDim.x) {
      const int64_t cell = cell_of(i);
      if (cell >= 0) links_[i] = atomicExch(&lists_[BucketOf(cell)], static_cast<int>(i));
    }
    __syncthreads();
  }

  // Returns the latest step before `before` that takes a cell, or -1.
  template <typename CellOf>
  __device__ int64_t Latest(int64_t cell, int64_t before, const CellOf &cell_of) const {
    int64_t latest = -1;
    for (int64_t step = lists_[BucketOf(cell)]; step >= 0; step = links_[step]) {
      if (step < before && step > latest && cell_of(step) == cell) latest = step;
    }
    return latest;
  }

 private:
  __device__ uint64_t BucketOf(int64_t cell) const { return MixBits(static_cast<uint64_t>(cell)) & mask_; }

  uint64_t mask_;
  int32_t *lists_;
  int32_t *links_;
};

// Draws of ranks in [0, size): with replacement, or by a shuffle. `given` holds the ranks from an earlier kernel if a
// block's memory is too small for the shuffle, else null.
struct Ranks {
  RandomState state;
  int64_t size;
  bool replace;
  const int64_t *given;

  __device__ int64_t CellOf(int64_t step) const { return ShufflePartner(state, size, step); }

  // Prepares the first n of them; all threads of a block call it.
  __device__ void Begin(int64_t n) const {
    if (!replace && given == nullptr) BeginIn(OfBlock(), n);
  }
  __device__ void BeginIn(const StepsByCell &steps, int64_t n) const {
    steps.Build(n, [this](int64_t step) { return CellOf(step); });
  }

  __device__ int64_t operator()(int64_t i) const {
    if (replace) return DrawnRow(state, {0, size}, i);
    return given != nullptr ? given[i] : DrawnIn(OfBlock(), i);
  }
  // Returns the draw of step i, one of those in the table.
  __device__ int64_t DrawnIn(const StepsByCell &steps, int64_t i) const {
    const auto latest = [&](int64_t cell, int64_t before) {
      return steps.Latest(cell, before, [this](int64_t step) { return CellOf(step); });
    };
    int64_t cell = CellOf(i);
    for (int64_t step = latest(cell, i); step >= 0; step = latest(cell, step)) cell = step;
    return cell;
  }

 private:
  __device__ static StepsByCell OfBlock() {
    __shared__ int32_t memory[StepsByCell::Size(kMostInBlock)];
    return {memory, StepsByCell::Buckets(kMostInBlock)};
  }
};

}  // namespace replay
