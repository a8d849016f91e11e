// The first steps of a Fisher-Yates shuffle on a GPU, all at once. The cell that step i takes was last changed by the
// latest step before i that took it, which put there what was in its own cell: a walk over steps, each of which is
// looked up in a hash table of the cells that steps take. The result is that of draw.h, step by step.
#ifndef MINDSPORE_REPLAY_SHUFFLE_CUH_
#define MINDSPORE_REPLAY_SHUFFLE_CUH_

#include <cstdint>

#include "device.cuh"
#include "draw.h"
#include "random.h"

namespace replay {

constexpr int64_t kMostInBlock = 2048;  // draws of which the table fits into the memory of a block

// The steps of a shuffle by the cell that they take. Memory: `buckets`, a power of two, lists and a link for each step.
class Shuffle {
 public:
  static constexpr int64_t Buckets(int64_t steps) {
    int64_t buckets = 4;
    while (buckets < 2 * steps) buckets *= 2;
    return buckets;
  }

  __device__ Shuffle(const RandomState &state, int64_t size, int32_t *lists, int64_t buckets, int32_t *links)
      : state_(state), size_(size), mask_(static_cast<uint64_t>(buckets - 1)), lists_(lists), links_(links) {}

  // Puts the first steps into the table; all threads of a block call it.
  __device__ void Build(int64_t steps) const {
    __syncthreads();
    for (uint64_t bucket = threadIdx.x; bucket <= mask_; bucket += blockDim.x) lists_[bucket] = -1;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < steps; i += blockDim.x) {
      links_[i] = atomicExch(&lists_[BucketOf(ShufflePartner(state_, size_, i))], static_cast<int>(i));
    }
    __syncthreads();
  }

  // What step i, one of those in the table, draws from [0, size).
  __device__ int64_t operator()(int64_t i) const {
    int64_t cell = ShufflePartner(state_, size_, i);
    for (int64_t step = Latest(cell, i); step >= 0; step = Latest(cell, step)) cell = step;
    return cell;
  }

 private:
  __device__ uint64_t BucketOf(int64_t cell) const { return MixBits(static_cast<uint64_t>(cell)) & mask_; }

  // The latest step before one that takes a cell, or -1.
  __device__ int64_t Latest(int64_t cell, int64_t before) const {
    int64_t latest = -1;
    for (int64_t step = lists_[BucketOf(cell)]; step >= 0; step = links_[step]) {
      if (step < before && step > latest && ShufflePartner(state_, size_, step) == cell) latest = step;
    }
    return latest;
  }

  RandomState state_;
  int64_t size_;
  uint64_t mask_;
  int32_t *lists_;
  int32_t *links_;
};

// Draws of ranks in [0, size): with replacement, or by a shuffle. Where more are drawn than a block's memory can
// shuffle, `given` are those of ShuffleKernel, else null.
struct Ranks {
  RandomState state;
  int64_t size;
  bool replace;
  const int64_t *given;

  // Makes ready the first n of them; all threads of a block call it.
  __device__ void Begin(int64_t n) const {
    if (!replace && given == nullptr) Table().Build(n);
  }

  __device__ int64_t operator()(int64_t i) const {
    if (replace) return DrawnRow(state, {0, size}, i);
    return given != nullptr ? given[i] : Table()(i);
  }

 private:
  __device__ Shuffle Table() const {
    constexpr int64_t kBuckets = Shuffle::Buckets(kMostInBlock);
    __shared__ int32_t lists[kBuckets];
    __shared__ int32_t links[kMostInBlock];
    return {state, size, lists, kBuckets, links};
  }
};

// All ranks of a source of many draws, which has Load(&draws) and RanksOf(draws); one block.
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    ShuffleKernel(const Source source, int64_t n, int64_t *ranks, int32_t *lists, int64_t buckets, int32_t *links) {
  typename Source::Draws draws;
  if (source.Load(&draws) != kOk) return;
  const Ranks drawn = source.RanksOf(draws);
  if (drawn.replace) return;
  const Shuffle shuffle(drawn.state, drawn.size, lists, buckets, links);
  shuffle.Build(n);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) ranks[i] = shuffle(i);
}

// Where more is drawn than a block can shuffle, draws the ranks of a source first. False if there is no memory.
template <typename Source>
bool ShuffleFirst(Call *call, int64_t n, Source *source) {
  if (n <= kMostInBlock) return true;
  const int64_t buckets = Shuffle::Buckets(n);
  auto *ranks = static_cast<int64_t *>(call->Scratch(n * 8 + (buckets + n) * 4));
  if (ranks == nullptr) return false;
  auto *lists = reinterpret_cast<int32_t *>(ranks + n);
  call->Launch(ShuffleKernel<Source>, 1, *source, n, ranks, lists, buckets, lists + buckets);
  source->given_ranks = ranks;
  return true;
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_SHUFFLE_CUH_
