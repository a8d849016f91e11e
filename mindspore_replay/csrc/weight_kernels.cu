// The kernels of weight_kernels.cc on a GPU; see kernels.cu for the rules that all keep.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "adapters.h"
#include "device.cuh"
#include "rows.cuh"
#include "shuffle.cuh"
#include "status.h"
#include "sum_tree.h"
#include "weighted_buffer.h"
#include "weights.cuh"
#include "weights.h"

namespace {

using replay::Arguments;
using replay::Call;
using replay::Chunk;
using replay::Chunks;
using replay::Columns;
using replay::Cursors;
using replay::HasWeights;
using replay::kMostColumns;
using replay::kNoRow;
using replay::kStateArguments;
using replay::kThreads;
using replay::RandomState;
using replay::Report;
using replay::RowWeights;
using replay::SumTree;
using replay::WeightedState;

// A tree of which the GPU alone knows the capacity.
struct TreeArgument {
  double *data;
  const int64_t *capacity;
  int64_t numbers;

  __device__ bool Sound() const {
    return *capacity >= 1 && *capacity <= std::numeric_limits<int32_t>::max() && SumTree::Size(*capacity) == numbers;
  }
  __device__ SumTree Tree() const { return SumTree(data, *capacity); }
};

TreeArgument TreeOf(const Arguments &args) { return {args.data<double>(0), args.data<int64_t>(1), args.elements(0)}; }

// Whether arguments 0 and 1 have the dtypes of a tree and its capacity.
bool HasTree(const Arguments &args) { return args.Is(0, "float64", args.elements(0)) && args.Is(1, "int64", 1); }

__global__ void __launch_bounds__(kThreads)
    TreeSetKernel(const Report report, const TreeArgument argument, const int64_t *slots, const double *values,
                  int64_t n, double *positive) {
  __shared__ int64_t chunk[kThreads];
  int status = argument.Sound() ? replay::kOk : replay::kBadArguments;
  bool bad = false, outside = false;
  for (int64_t i = threadIdx.x; i < n && status == replay::kOk; i += blockDim.x) {
    bad |= !replay::IsWeight(values[i]);
    outside |= slots[i] < 0 || slots[i] >= *argument.capacity;
  }
  if (__syncthreads_or(outside)) status = replay::kIndexOutOfRange;
  if (__syncthreads_or(bad)) status = replay::kBadWeight;
  if (status != replay::kOk) {
    if (threadIdx.x == 0) report(status);
    return;
  }
  const SumTree tree = argument.Tree();
  for (int64_t first = 0; first < n; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    __syncthreads();
    chunk[threadIdx.x] = i < n ? slots[i] : -1;
    __syncthreads();
    bool last = i < n;
    for (unsigned j = threadIdx.x + 1; j < blockDim.x; ++j) last &= chunk[j] != chunk[threadIdx.x];
    if (last) tree.SetLeaf(slots[i], values[i]);
    __syncthreads();
  }
  replay::RefreshAbove(tree, n, [=](int64_t i) { return slots[i]; });
  if (threadIdx.x == 0) *positive = tree.Positive();
}

__global__ void __launch_bounds__(kThreads) TreeDescendKernel(const Report report, const TreeArgument argument,
                                                              const double *targets, int64_t n, int64_t *slots) {
  const bool sound = argument.Sound();
  if (!sound && replay::FirstOfGrid() == 0) report(replay::kBadArguments);
  const SumTree tree(argument.data, sound ? *argument.capacity : 1);
  for (int64_t i = replay::FirstOfGrid(); i < n; i += replay::GridStride()) {
    const bool inside = sound && targets[i] > 0 && targets[i] <= tree.Total();
    slots[i] = inside ? tree.SlotAt(targets[i]) : 0;
    if (sound && !inside) report(replay::kIndexOutOfRange);
  }
}

__global__ void __launch_bounds__(kThreads)
    TreeSumsKernel(const Report report, const TreeArgument argument, const int32_t *head, const int32_t *count,
                   const int64_t *ranges, int64_t m, double *sums) {
  const bool sound = argument.Sound() && replay::AreCursors(*head, *count, *argument.capacity);
  if (!sound && replay::FirstOfGrid() == 0) report(replay::kBadArguments);
  for (int64_t i = replay::FirstOfGrid(); i < m; i += replay::GridStride()) {
    if (!sound) {
      sums[i] = 0;
      continue;
    }
    const replay::RowRange rows = replay::SliceRows(ranges[2 * i], ranges[2 * i + 1], *count);
    sums[i] = replay::SumRows(argument.Tree(), rows, *head, *argument.capacity);
  }
}

__global__ void TreeSummaryKernel(const Report report, const TreeArgument argument, double *summary) {
  if (threadIdx.x != 0) return;
  const bool sound = argument.Sound();
  if (!sound) report(replay::kBadArguments);
  summary[0] = sound ? argument.Tree().Total() : 0;
  summary[1] = sound ? argument.Tree().Minimum() : 0;
  summary[2] = sound ? argument.Tree().Positive() : 0;
}

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Report report, unsigned ticket, const replay::Insertion insertion) {
  __shared__ int64_t slots[kThreads];
  const bool sound = insertion.state.Sound();
  const bool bad = replay::HasBadWeight(insertion.priorities, insertion.given);
  if (!sound || bad) {
    return replay::Refuse(report, sound ? replay::kBadWeight : replay::kBadArguments, insertion.stored);
  }
  const replay::RingWrite plan = insertion.Plan();
  insertion.Mark(plan, true, slots);
  const bool last = replay::IsLastBlock(ticket);
  replay::CopyRows<replay::kIn>(insertion.columns, replay::ThisChunk(insertion.chunks), slots);
  if (last) insertion.Commit(plan);
}

// Rows drawn by rank, with their handles. `options` = replace, ordered, max_use.
struct SampleByRank {
  replay::RankDraw draw;
  const int64_t *options;
  int64_t *handles;
  const int64_t *given_ranks = nullptr;  // of ShuffleKernel

  using Draws = replay::RankDraw::Draws;
  __device__ int Load(Draws *draws) const { return draw.Load(draws, options[0] != 0, options[1] != 0, given_ranks); }
  __device__ replay::Ranks RanksOf(const Draws &draws) const { return draws.ranks; }

  __device__ int Begin(Draws *draws, int64_t last) const {
    const int status = Load(draws);
    if (status == replay::kOk) draws->ranks.Begin(last);
    return status;
  }
  __device__ int64_t Slot(const Draws &draws, int64_t i, const Report &) const { return draw.SlotOfDraw(draws, i); }
  __device__ void Note(int64_t i, int64_t slot) const {
    handles[i] = draw.buffer.Ring().HandleOf(slot);
    replay::CountUse(draw.buffer.rows, slot);
  }
  __device__ void End(const Draws &draws, int status) const {
    if (status != replay::kOk) {
      for (int64_t i = threadIdx.x; i < draw.n; i += blockDim.x) handles[i] = kNoRow;
      return;
    }
    const Cursors ring = draw.buffer.Ring();
    const auto slot_of = [&](int64_t i) { return ring.SlotOf(handles[i]); };
    replay::Deliver(draw.buffer.rows, draw.n, slot_of, options[2]);
    if (threadIdx.x == 0) draw.random->counter = draws.ranks.state.counter + draw.n;
  }
};

// Rows drawn by weight, with handles and importance weights. `options` = ordered, max_use, by_buffer.
struct SampleByWeight {
  replay::WeightDraw draw;
  double *beta;
  const double *given_beta;
  const double *beta_step;
  const int64_t *options;
  int64_t *handles;
  float *weights;

  using Draws = replay::WeightDraw::Draws;
  __device__ int Begin(Draws *draws, int64_t) const {
    const int status = draw.Load(draws, options[0] != 0);
    return status != replay::kBadArguments && !(*given_beta >= 0 && *given_beta <= 1) ? replay::kBadWeight : status;
  }
  __device__ int64_t Slot(const Draws &draws, int64_t i, const Report &) const { return draw.SlotOfDraw(draws, i); }
  __device__ void Note(int64_t i, int64_t slot) const {
    const RowWeights &rows = draw.buffer.rows;
    handles[i] = draw.buffer.Ring().HandleOf(slot);
    replay::CountUse(rows, slot);
    if (ByBuffer()) weights[i] = replay::ImportanceWeight(rows.tree.Minimum(), rows.tree.Leaf(slot), *given_beta);
  }
  __device__ bool ByBuffer() const { return options[2] != 0; }
  __device__ void End(const Draws &draws, int status) const {
    if (status != replay::kOk) {
      for (int64_t i = threadIdx.x; i < draw.n; i += blockDim.x) {
        handles[i] = kNoRow;
        weights[i] = 0;
      }
      return;
    }
    const Cursors ring = draw.buffer.Ring();
    const auto slot_of = [&](int64_t i) { return ring.SlotOf(handles[i]); };
    if (!ByBuffer()) replay::ImportanceWeights(draw.buffer.rows.tree, draw.n, slot_of, *given_beta, weights);
    replay::Deliver(draw.buffer.rows, draw.n, slot_of, options[1]);
    if (threadIdx.x != 0) return;
    draw.random->counter = draws.state.counter + draw.n;
    *beta = std::min(*beta + *beta_step, 1.0);
  }
};

__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const Report report, const WeightedState state, const double *factors, const int64_t *handles,
                 int64_t n, const float *priorities, int64_t given, int32_t *dead) {
  const bool sound = state.Sound();
  const bool bad = replay::HasBadWeight(priorities, given);
  if (!sound || bad) {
    return replay::Refuse(report, sound ? replay::kBadWeight : replay::kBadArguments, dead);
  }
  const Cursors ring = state.Ring();
  const auto slot_of = [&](int64_t i) { return state.rows.LiveSlot(ring, handles[i]); };
  const int64_t skipped =
      replay::UpdatePriorities(state.rows, {factors[0], factors[1]}, handles, n, priorities, given, slot_of);
  if (threadIdx.x == 0) *dead = static_cast<int32_t>(skipped);
}

__global__ void __launch_bounds__(kThreads)
    DeleteKernel(const Report report, const WeightedState state, const int64_t *handles, int64_t n, int32_t *deleted) {
  if (!state.Sound()) {
    return replay::Refuse(report, replay::kBadArguments, deleted);
  }
  const RowWeights &rows = state.rows;
  const Cursors ring = state.Ring();
  int64_t dead = 0, removed = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) dead += handles[i] >= 0 && rows.LiveSlot(ring, handles[i]) < 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t slot = ring.SlotOf(handles[i]);
    if (slot >= 0) removed += replay::RemoveRow(rows, slot);
  }
  replay::AddTo(&rows.counts->dead, dead);
  replay::AddTo(&rows.counts->deleted, removed);
  const int64_t all = replay::SumOfBlock(removed);
  if (all > 0) replay::RefreshAbove(rows.tree, n, [&](int64_t i) { return ring.SlotOf(handles[i]); });
  if (threadIdx.x == 0) *deleted = static_cast<int32_t>(all);
}

__global__ void __launch_bounds__(kThreads)
    AdvanceKernel(const Report report, const WeightedState state, const int64_t *steps, const int64_t *max_staleness,
                  int64_t *now) {
  const RowWeights &rows = state.rows;
  if (!state.Sound() || *steps < 0 || *steps > replay::kLastClock - rows.clock->now) {
    return replay::Refuse(report, replay::kBadArguments, now);
  }
  const Cursors ring = state.Ring();
  const int64_t first = rows.clock->fresh;
  const int64_t fresh = replay::MoveClock(rows, ring, *steps, *max_staleness);
  int64_t removed = 0;
  for (int64_t serial = first + threadIdx.x; serial < fresh; serial += blockDim.x)
    removed += replay::RemoveRow(rows, ring.SlotOf(serial));
  replay::AddTo(&rows.counts->stale, removed);
  replay::RefreshRows(rows.tree, ring, first, fresh);
  if (threadIdx.x != 0) return;
  rows.clock->fresh = fresh;
  *now = rows.clock->now;
}

__global__ void __launch_bounds__(kThreads)
    InfoKernel(const Report report, const WeightedState state, const int64_t *handles, int64_t n, float *priorities,
               int32_t *use_counts, int64_t *staleness) {
  const bool sound = state.Sound();
  if (!sound && replay::FirstOfGrid() == 0) report(replay::kBadArguments);
  const Cursors ring = state.Ring();
  const RowWeights &rows = state.rows;
  for (int64_t i = replay::FirstOfGrid(); i < n; i += replay::GridStride()) {
    const int64_t slot = sound ? ring.SlotOf(handles[i]) : -1;
    const int32_t uses = slot < 0 ? -1 : rows.use_counts[slot];
    priorities[i] = slot < 0 ? 0.0f : rows.priorities[slot];
    use_counts[i] = slot >= 0 && uses < 0 ? ~uses : uses;
    staleness[i] = slot < 0 ? -1 : rows.clock->now - rows.insertion_clocks[slot];
  }
}

__global__ void __launch_bounds__(kThreads)
    ResetKernel(const Report report, unsigned ticket, const WeightedState state, int32_t *stored) {
  const bool sound = state.Sound();
  const int64_t inserted = state.serials[0];
  if (sound) state.rows.Reset(inserted, state.ring.capacity, replay::FillOnGrid{});
  if (!replay::IsLastBlock(ticket) || threadIdx.x != 0) return;
  *stored = 0;
  if (!sound) return report(replay::kBadArguments);
  state.serials[1] = inserted;
  *state.ring.head = *state.ring.count = 0;
}

}  // namespace

// (weights, capacity[1], slots[n], values[n]) -> positive weights. Changes weights.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_tree_set, replay::AfterTree) {
  const Arguments &args = call.args;
  if (args.size() != 5 || !HasTree(args)) return replay::kBadArguments;
  const int64_t n = args.elements(2);
  if (!args.Is(2, "int64", n) || !args.Is(3, "float64", n) || !args.Is(4, "float64", 1)) return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(TreeSetKernel, 1, call.report, TreeOf(args), args.data<int64_t>(2), args.data<double>(3), n,
              args.data<double>(4));
  return call.End();
}

// (weights, capacity[1], targets[n]) -> slots[n]. Targets are in (0, total].
MINDSPORE_REPLAY_CUDA_KERNEL(replay_tree_descend, replay::ReadsFirst) {
  const Arguments &args = call.args;
  if (args.size() != 4 || !HasTree(args)) return replay::kBadArguments;
  const int64_t n = args.elements(2);
  if (!args.Is(2, "float64", n) || !args.Is(3, "int64", n)) return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(TreeDescendKernel, replay::BlocksFor(n), call.report, TreeOf(args), args.data<double>(2), n,
              args.data<int64_t>(3));
  return call.End();
}

// (weights, capacity[1], head, count, ranges[m, 2]) -> sums[m] of the weights of logical rows, each a Python slice.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_tree_sums, replay::ReadsFirst) {
  const Arguments &args = call.args;
  if (args.size() != 6 || !HasTree(args) || !args.Is(2, "int32", 1) || !args.Is(3, "int32", 1)) return replay::kBadArguments;
  const int64_t m = args.elements(5);
  if (!args.Is(4, "int64", 2 * m) || !args.Is(5, "float64", m)) return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(TreeSumsKernel, replay::BlocksFor(m), call.report, TreeOf(args), args.data<int32_t>(2),
              args.data<int32_t>(3), args.data<int64_t>(4), m, args.data<double>(5));
  return call.End();
}

// (weights, capacity[1]) -> total, smallest positive weight, number of positive weights.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_tree_summary, replay::ReadsFirst) {
  const Arguments &args = call.args;
  if (args.size() != 3 || !HasTree(args) || !args.Is(2, "float64", 3)) return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(TreeSummaryKernel, 1, call.report, TreeOf(args), args.data<double>(2));
  return call.End();
}

// (state, factors[2], priority[1 or n], rows[k]) -> rows stored after it. Factors are alpha and epsilon.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_insert_weighted, replay::AfterStateWithPriority<replay::kStateArguments>) {
  const Arguments &args = call.args;
  const int k = (args.size() - kStateArguments - 3) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 3 || !HasWeights(args, k)) return replay::kBadArguments;
  const int factors = k + kStateArguments;
  const int priority = factors + 1;
  const int rows = factors + 2;
  const int64_t n = args.RowsOf(rows, 0);
  if (!args.Is(factors, "float64", 2) || !replay::HoldRows(args, rows, k, n) ||
      !replay::IsPriority(args, priority, n) || !args.Is(args.size() - 1, "int32", 1)) {
    return replay::kBadArguments;
  }
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const replay::Insertion insertion{replay::WeightedStateOf(args, k),
                                    args.data<double>(factors),
                                    args.data<float>(priority),
                                    args.elements(priority),
                                    replay::ColumnsOf(args, k, rows),
                                    n,
                                    replay::ChunksOf(n, replay::AllRowBytes(args, k)),
                                    args.data<int32_t>(args.size() - 1)};
  call.Launch(InsertKernel, insertion.chunks.Blocks(), call.report, replay::NextTicket(), insertion);
  return call.End();
}

// (state, random_state, sample_range[2], options[3]) -> handles[n], rows[k], each eligible row equally likely. Options
// are replace, ordered, max_use. Weights must be 0 and 1.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_sample_weighted, replay::ReadsFirst) {
  const Arguments &args = call.args;
  const int k = (args.size() - kStateArguments - 4) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 4 || !HasWeights(args, k)) return replay::kBadArguments;
  const int extra = k + kStateArguments;
  const int64_t n = args.elements(extra + 3);
  if (!args.Is(extra, "int64", 2) || !args.Is(extra + 1, "int64", 2) || !args.Is(extra + 2, "int64", 3) ||
      !args.Is(extra + 3, "int64", n) || !replay::HoldRows(args, extra + 4, k, n)) {
    return replay::kBadArguments;
  }
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const replay::RankDraw draw{replay::WeightedStateOf(args, k), args.data<RandomState>(extra),
                              args.data<int64_t>(extra + 1), n};
  SampleByRank sample{draw, args.data<int64_t>(extra + 2), args.data<int64_t>(extra + 3)};
  if (replay::ShuffleFirst(&call, n, &sample)) replay::Gather(&call, sample, k, extra + 4, n);
  return call.End();
}

// (state, random_state, beta[1], given_beta[1], beta_step[1], options[3]) -> handles[n], importance weights[n],
// rows[k], drawn by weight. Options are ordered, max_use, and whether the buffer's smallest weight is the measure of
// importance. Moves beta by its step up to 1; the draw uses `given_beta`, which may be beta itself.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_sample_prioritized, replay::ReadsFirst) {
  const Arguments &args = call.args;
  const int k = (args.size() - kStateArguments - 7) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 7 || !HasWeights(args, k)) return replay::kBadArguments;
  const int extra = k + kStateArguments;
  const int outputs = extra + 5;
  const int64_t n = args.elements(outputs);
  if (!args.Is(extra, "int64", 2) || !args.Is(extra + 1, "float64", 1) || !args.Is(extra + 2, "float64", 1) ||
      !args.Is(extra + 3, "float64", 1) || !args.Is(extra + 4, "int64", 3) || !args.Is(outputs, "int64", n) ||
      !args.Is(outputs + 1, "float32", n) || !replay::HoldRows(args, outputs + 2, k, n)) {
    return replay::kBadArguments;
  }
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const replay::WeightDraw draw{replay::WeightedStateOf(args, k), args.data<RandomState>(extra), n};
  const SampleByWeight sample{draw,
                              args.data<double>(extra + 1),
                              args.data<double>(extra + 2),
                              args.data<double>(extra + 3),
                              args.data<int64_t>(extra + 4),
                              args.data<int64_t>(outputs),
                              args.data<float>(outputs + 1)};
  replay::Gather(&call, sample, k, outputs + 2, n);
  return call.End();
}

// (state with one column, factors[2], handles[n], priorities[1 or n]) -> dead handles, which are skipped.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_update_priorities, replay::AfterState<replay::kStateArguments>) {
  const Arguments &args = call.args;
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 4) return replay::kBadArguments;
  const int64_t n = args.elements(extra + 1);
  if (!HasWeights(args, 1) || !args.Is(extra, "float64", 2) || !args.Is(extra + 1, "int64", n) ||
      !replay::IsPriority(args, extra + 2, n) || !args.Is(extra + 3, "int32", 1)) {
    return replay::kBadArguments;
  }
  if (const int status = call.Ready()) return status;
  call.Launch(UpdateKernel, 1, call.report, replay::WeightedStateOf(args, 1), args.data<double>(extra),
              args.data<int64_t>(extra + 1), n, args.data<float>(extra + 2), args.elements(extra + 2),
              args.data<int32_t>(extra + 3));
  return call.End();
}

// (state with one column, handles[n]) -> rows removed. Dead handles are skipped.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_delete, replay::AfterState<replay::kStateArguments>) {
  const Arguments &args = call.args;
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 2) return replay::kBadArguments;
  const int64_t n = args.elements(extra);
  if (!HasWeights(args, 1) || !args.Is(extra, "int64", n) || !args.Is(extra + 1, "int32", 1))
    return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(DeleteKernel, 1, call.report, replay::WeightedStateOf(args, 1), args.data<int64_t>(extra), n,
              args.data<int32_t>(extra + 1));
  return call.End();
}

// (state with one column, steps[1], max_staleness[1]) -> the clock. A negative `max_staleness` is no limit.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_advance, replay::AfterState<replay::kStateArguments>) {
  const Arguments &args = call.args;
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 3 || !HasWeights(args, 1) || !args.Is(extra, "int64", 1) || !args.Is(extra + 1, "int64", 1) ||
      !args.Is(extra + 2, "int64", 1)) {
    return replay::kBadArguments;
  }
  if (const int status = call.Ready()) return status;
  call.Launch(AdvanceKernel, 1, call.report, replay::WeightedStateOf(args, 1), args.data<int64_t>(extra),
              args.data<int64_t>(extra + 1), args.data<int64_t>(extra + 2));
  return call.End();
}

// (state with one column, handles[n]) -> priority[n], use count[n], staleness[n]; 0, -1, -1 where no row is stored.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_info, replay::ReadsFirst) {
  const Arguments &args = call.args;
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 4) return replay::kBadArguments;
  const int64_t n = args.elements(extra);
  if (!HasWeights(args, 1) || !args.Is(extra, "int64", n) || !args.Is(extra + 1, "float32", n) ||
      !args.Is(extra + 2, "int32", n) || !args.Is(extra + 3, "int64", n)) {
    return replay::kBadArguments;
  }
  if (const int status = call.Ready()) return status;
  call.Launch(InfoKernel, replay::BlocksFor(n), call.report, replay::WeightedStateOf(args, 1),
              args.data<int64_t>(extra), n, args.data<float>(extra + 1), args.data<int32_t>(extra + 2),
              args.data<int64_t>(extra + 3));
  return call.End();
}

// (state with one column) -> 0 rows stored.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_reset_weighted, replay::AfterState<replay::kStateArguments>) {
  const Arguments &args = call.args;
  if (args.size() != 2 + kStateArguments || !HasWeights(args, 1) || !args.Is(1 + kStateArguments, "int32", 1))
    return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(ResetKernel, replay::BlocksFor(args.dim(0, 0)), call.report, replay::NextTicket(),
              replay::WeightedStateOf(args, 1), args.data<int32_t>(1 + kStateArguments));
  return call.End();
}
