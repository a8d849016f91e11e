// Group sampling on a GPU, as in groups.h. A bitonic network sorts rows by their group's value. A block then finds the
// boundaries of groups, draws groups, and draws rows of each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/draw.h"
#include "core/outputs.h"
#include "core/random.h"
#include "core/status.h"
#include "core/timeline.h"
#include "cuda/buffer.cuh"
#include "cuda/device.cuh"
#include "cuda/rows.cuh"
#include "cuda/shuffle.cuh"

namespace replay {

// A row and its group's value; ordered by value, then oldest first, with ineligible rows at the end.
struct Member {
  static constexpr int64_t kNone = INT64_MAX;

  int64_t value;
  int64_t row;

  __device__ bool operator<(const Member &other) const {
    if ((row == kNone) != (other.row == kNone)) return other.row == kNone;
    return value < other.value || (value == other.value && row < other.row);
  }
};

// The arguments of a group sample.
struct GroupSample {
  State state;
  const int64_t *options;
  int64_t groups;
  int64_t size;
  uint8_t *mask;
  Member *members;  // a power of two of them, at least the number of rows
  int64_t all;
  int32_t *begins;  // of groups, and the end of the last; one more than members
  int32_t *ranks;   // scratch for the draw of groups
  int64_t *slots;   // of the drawn rows; -1 for none
  int k;
  Field columns[kMostColumns];

  __device__ int Check() const {
    if (options[0] < 0 || options[0] >= k || !state.IsConsistent()) return kBadArguments;
    const Field &key = columns[options[0]];
    return key.row_elements == 1 && !IsFloat(key.dtype) ? kOk : kBadArguments;
  }

  // Returns the row at a logical position, if it is eligible.
  __device__ Member MemberAt(const Timeline &timeline, int64_t row) const {
    const Cursors &ring = timeline.places();
    if (row >= ring.count) return {0, Member::kNone};
    const int64_t slot = SlotOf(row, ring.head, ring.capacity);
    if (!timeline.IsOfGroup(row, slot)) return {0, Member::kNone};
    const Field &key = columns[options[0]];
    return {IntegerAt(key.data, key.dtype, slot), row};
  }

  __device__ bool Begins(int64_t i) const {
    if (members[i].row == Member::kNone) return i > 0 && members[i - 1].row != Member::kNone;
    return i == 0 || members[i].value != members[i - 1].value;
  }

  // Finds the begin of each group and the end of the last. Returns the number of groups; all threads of a block call
  // it.
  __device__ int64_t FindGroups() const {
    __shared__ int64_t before[kThreads];
    const int64_t first = all * threadIdx.x / blockDim.x, last = all * (threadIdx.x + 1) / blockDim.x;
    int64_t found = 0;
    for (int64_t i = first; i < last; ++i) found += Begins(i);
    before[threadIdx.x] = found;
    __syncthreads();
    int64_t place = 0;
    for (unsigned i = 0; i < threadIdx.x; ++i) place += before[i];
    for (int64_t i = first; i < last; ++i) {
      if (Begins(i)) begins[place++] = static_cast<int32_t>(i);
    }
    int64_t count = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) count += before[i];
    if (members[all - 1].row == Member::kNone) return std::max<int64_t>(count - 1, 0);  // that includes the end
    if (threadIdx.x == 0) begins[count] = static_cast<int32_t>(all);
    return count;
  }
};

// Returns number i of a draw of `size` different numbers below `length`.
__device__ inline int64_t DrawnOf(const RandomState &state, int64_t length, int64_t i) {
  int64_t cell = ShufflePartner(state, length, i);
  for (int64_t step = i - 1; step >= 0; --step) {
    if (ShufflePartner(state, length, step) == cell) cell = step;
  }
  return cell;
}

static __global__ void __launch_bounds__(kThreads) MembersKernel(const GroupSample sample) {
  if (sample.Check() != kOk) return;
  const Timeline timeline = sample.state.Get<Timeline>();
  for (int64_t i = FirstOfGrid(); i < sample.all; i += GridStride()) sample.members[i] = sample.MemberAt(timeline, i);
}

// Steps of a bitonic sort: the width `first_width`, and with `down` also all smaller ones. With `down`, no other block
// touches the elements that a block compares: runs of twice the first width.
static __global__ void __launch_bounds__(kThreads)
    SortKernel(Member *members, int64_t all, int64_t run, int64_t first_width, bool down) {
  const int64_t part = down ? std::max(2 * first_width, std::min(all, int64_t{2} * kThreads)) : all;
  const int64_t pairs = part / 2, base = down ? blockIdx.x * part : 0;
  const int64_t begin = down ? threadIdx.x : FirstOfGrid(), stride = down ? blockDim.x : GridStride();
  for (int64_t width = first_width; width >= 1; width /= 2) {
    for (int64_t pair = begin; pair < pairs; pair += stride) {
      const int64_t i = base + 2 * width * (pair / width) + pair % width;
      const Member low = members[i], high = members[i + width];
      if ((i & run) == 0 ? high < low : low < high) {
        members[i] = high;
        members[i + width] = low;
      }
    }
    if (!down) return;
    __syncthreads();
  }
}

inline void Sort(Call *call, Member *members, int64_t all) {
  constexpr int64_t kWidest = kThreads;  // steps that blocks do independently
  for (int64_t run = 2; run <= all; run *= 2) {
    int64_t width = run / 2;
    for (; width > kWidest; width /= 2) call->Launch(SortKernel, BlocksFor(all / 2), members, all, run, width, false);
    const int64_t part = std::max(2 * width, std::min(all, int64_t{2} * kThreads));
    call->Launch(SortKernel, all / part, members, all, run, width, true);
  }
}

static __global__ void __launch_bounds__(kThreads) DrawGroupsKernel(const Report report, const GroupSample sample) {
  const int64_t groups = sample.groups, size = sample.size, n = groups * size;
  int status = sample.Check();
  const int64_t count = status == kOk ? sample.FindGroups() : 0;
  if (status == kOk && count < groups) status = kTooFewRows;
  if (status != kOk) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      sample.slots[i] = -1;
      sample.mask[i] = 0;
    }
    if (threadIdx.x == 0) report(status);
    return;
  }
  RandomState *random = sample.state.random;
  const RandomState before = *random;
  const auto counter = static_cast<uint64_t>(before.counter + groups);
  const bool ordered = sample.options[1] != 0;
  const Ranks ranks{before, count, false, nullptr};
  const StepsByCell steps(sample.ranks, StepsByCell::Buckets(groups));
  ranks.BeginIn(steps, groups);
  const Cursors ring = sample.state.Ring();
  for (int64_t at = threadIdx.x; at < n; at += blockDim.x) {
    const int64_t g = at / size, i = at % size;
    const int64_t rank = ranks.DrawnIn(steps, g);
    const int64_t begin = sample.begins[rank], length = sample.begins[rank + 1] - begin;
    const int64_t kept = std::min(length, size);
    int64_t chosen = i;
    if (i < kept && ordered) {
      const uint64_t bits = RandomBits(static_cast<uint64_t>(before.key), counter + static_cast<uint64_t>(g));
      chosen += Below(bits, length - kept + 1);
    } else if (i < kept) {
      chosen = DrawnOf({before.key, static_cast<int64_t>(counter) + g * size}, length, i);
    }
    sample.mask[at] = i < kept;
    sample.slots[at] = i < kept ? SlotOf(sample.members[begin + chosen].row, ring.head, ring.capacity) : -1;
  }
  __syncthreads();
  if (threadIdx.x == 0) random->counter = static_cast<int64_t>(counter) + (ordered ? groups : n);
}

}  // namespace replay
