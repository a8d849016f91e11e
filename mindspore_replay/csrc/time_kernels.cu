// The kernels of time_kernels.cc on a GPU, but for samples of groups; see kernels.cu for the rules that all keep.
#include <algorithm>
#include <cstdint>

#include "adapters.h"
#include "device.cuh"
#include "outputs.h"
#include "rows.cuh"
#include "shuffle.cuh"
#include "status.h"
#include "timed_buffer.h"
#include "timeline.h"
#include "weights.cuh"
#include "windows.h"

namespace {

using replay::Arguments;
using replay::Call;
using replay::Chunk;
using replay::Chunks;
using replay::Cursors;
using replay::Field;
using replay::HasTime;
using replay::Ignored;
using replay::kMostColumns;
using replay::kStateArguments;
using replay::kThreads;
using replay::kTimedArguments;
using replay::Output;
using replay::Plan;
using replay::RandomState;
using replay::Report;
using replay::RowWeights;
using replay::Target;
using replay::Timeline;
using replay::WeightedState;
using replay::WeightRule;
using replay::Window;
using replay::WindowRule;

// A buffer whose rows know their episode in the memory of the GPU.
struct TimedState {
  WeightedState buffer;
  int64_t *steps;
  uint8_t *flags;
  const WindowRule *rule;

  __device__ bool Sound() const { return buffer.Sound() && replay::IsRule(*rule, buffer.ring.capacity); }
  __device__ Timeline Time() const { return {buffer.Ring(), buffer.rows, *rule, steps, flags}; }
};

TimedState TimedStateOf(const Arguments &args, int k) {
  const int first = k + kStateArguments;
  return {replay::WeightedStateOf(args, k), args.data<int64_t>(first), args.data<uint8_t>(first + 1),
          args.data<WindowRule>(first + 2)};
}

// Before rows are stored: the steps of all, and whether they may be.
__global__ void __launch_bounds__(kThreads)
    StepsKernel(const TimedState state, const float *priorities, int64_t given, const uint8_t *ends, int64_t given_ends,
                int64_t n, int64_t *steps, int64_t *status) {
  const bool sound = state.Sound();
  const bool bad = replay::HasBadWeight(priorities, given);
  bool fits = true;
  if (sound && !bad) {
    const Timeline time = state.Time();
    for (int64_t stream = threadIdx.x; stream < time.streams(); stream += blockDim.x) {
      int64_t step = 0;
      for (int64_t i = stream; i < n && fits; i += time.streams()) {
        step = time.NextStep(ends, given_ends, n, i, step);
        fits = step >= 0;
        steps[i] = step;
      }
    }
  }
  const bool all_fit = __syncthreads_and(fits) != 0;
  if (threadIdx.x == 0) {
    *status = !sound ? replay::kBadArguments : bad ? replay::kBadWeight : all_fit ? replay::kOk : replay::kTooLong;
  }
}

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Report report, unsigned ticket, const replay::Insertion insertion, const TimedState state,
                 const uint8_t *ends, int64_t given_ends, const int64_t *steps, const int64_t *status) {
  __shared__ int64_t slots[kThreads];
  if (*status != replay::kOk) {
    return replay::Refuse(report, static_cast<int>(*status), insertion.stored);
  }
  const replay::RingWrite plan = insertion.Plan();
  insertion.Mark(plan, false, slots);
  const bool last = replay::IsLastBlock(ticket);
  replay::CopyRows<replay::kIn>(insertion.columns, replay::ThisChunk(insertion.chunks), slots);
  if (!last) return;
  insertion.Commit(plan);
  Timeline time = state.Time();
  const Cursors ring = time.ring();
  const WeightRule weight{insertion.factors[0], insertion.factors[1]};
  const bool of_each = given_ends == insertion.n;
  for (int64_t i = threadIdx.x; i < plan.written; i += blockDim.x) time.Place(plan, i, steps, ends, of_each);
  __syncthreads();
  Ignored changed;
  const int64_t oldest = time.Oldest(), lost = time.PastLost(plan), first = ring.inserted - plan.written;
  for (int64_t serial = oldest + threadIdx.x; serial < lost; serial += blockDim.x) time.LosePast(serial, &changed);
  __syncthreads();
  for (int64_t serial = first + threadIdx.x; serial < ring.inserted; serial += blockDim.x)
    time.Completed(serial, weight, &changed);
  replay::RefreshRows(state.buffer.rows.tree, ring, oldest, lost);
  replay::RefreshRows(state.buffer.rows.tree, ring, time.FirstStart(first), ring.inserted);
}

__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const Report report, const TimedState state, const double *factors, const int64_t *handles, int64_t n,
                 const float *priorities, int64_t given, int32_t *dead) {
  const bool sound = state.Sound();
  const bool bad = replay::HasBadWeight(priorities, given);
  if (!sound || bad) {
    return replay::Refuse(report, sound ? replay::kBadWeight : replay::kBadArguments, dead);
  }
  const Timeline time = state.Time();
  const auto slot_of = [&](int64_t i) { return time.Legal(handles[i]) ? time.ring().SlotOf(handles[i]) : -1; };
  const int64_t skipped =
      replay::UpdatePriorities(state.buffer.rows, {factors[0], factors[1]}, handles, n, priorities, given, slot_of);
  if (threadIdx.x == 0) *dead = static_cast<int32_t>(skipped);
}

__global__ void __launch_bounds__(kThreads) EndKernel(const Report report, const TimedState state,
                                                      const double *factors, const uint8_t *flags, int32_t *ended) {
  if (!state.Sound()) {
    return replay::Refuse(report, replay::kBadArguments, ended);
  }
  Timeline time = state.Time();
  const WeightRule weight{factors[0], factors[1]};
  const int64_t first = time.Newest(), last = time.ring().inserted;
  Ignored changed;
  int64_t count = 0;
  for (int64_t serial = first + threadIdx.x; serial < last; serial += blockDim.x)
    count += time.End(serial, weight, *flags, &changed);
  const int64_t all = replay::SumOfBlock(count);
  if (last > first) replay::RefreshRows(state.buffer.rows.tree, time.ring(), time.FirstStart(first), last);
  if (threadIdx.x == 0) *ended = static_cast<int32_t>(all);
}

__global__ void __launch_bounds__(kThreads)
    DeleteKernel(const Report report, const TimedState state, const int64_t *handles, int64_t n, int32_t *deleted) {
  if (!state.Sound()) {
    return replay::Refuse(report, replay::kBadArguments, deleted);
  }
  Timeline time = state.Time();
  const RowWeights &rows = state.buffer.rows;
  const Cursors ring = time.ring();
  int64_t dead = 0, removed = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) dead += handles[i] >= 0 && time.UndeletedSlot(handles[i]) < 0;
  __syncthreads();
  // Of threads that delete one row the first to mark its clock does; clocks are not negative.
  constexpr unsigned long long kMark = 1ULL << 63;
  const auto clock_of = [&](int64_t slot) {
    return reinterpret_cast<unsigned long long *>(&rows.insertion_clocks[slot]);
  };
  Ignored changed;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t slot = time.UndeletedSlot(handles[i]);
    if (slot < 0 || (atomicOr(clock_of(slot), kMark) & kMark) != 0) continue;
    time.Remove(handles[i], slot, &changed);
    ++removed;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t slot = ring.SlotOf(handles[i]);
    if (slot >= 0) atomicAnd(clock_of(slot), ~kMark);
  }
  replay::AddTo(&rows.counts->dead, dead);
  replay::AddTo(&rows.counts->deleted, removed);
  const int64_t all = replay::SumOfBlock(removed);
  if (threadIdx.x == 0) *deleted = static_cast<int32_t>(all);
  for (int level = 1; level <= rows.tree.Height() && all > 0; ++level) {
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const int64_t slot = ring.SlotOf(handles[i]);
      if (slot < 0) continue;
      int64_t done = -1;  // neighbours have one node most times
      time.ForStartsAround(handles[i], slot, [&](int64_t start) {
        const int64_t node = replay::SumTree::NodeOf(level, start);
        if (node != done) rows.tree.RefreshNode(level, node);
        done = node;
      });
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    AdvanceKernel(const Report report, const TimedState state, const int64_t *steps, const int64_t *max_staleness,
                  int64_t *now) {
  const RowWeights &rows = state.buffer.rows;
  if (!state.Sound() || *steps < 0 || *steps > replay::kLastClock - rows.clock->now) {
    return replay::Refuse(report, replay::kBadArguments, now);
  }
  Timeline time = state.Time();
  const Cursors ring = time.ring();
  const int64_t first = rows.clock->fresh;
  const int64_t fresh = replay::MoveClock(rows, ring, *steps, *max_staleness);
  Ignored changed;
  int64_t removed = 0;
  for (int64_t serial = first + threadIdx.x; serial < fresh; serial += blockDim.x) {
    const int64_t slot = time.UndeletedSlot(serial);
    if (slot < 0) continue;
    time.Remove(serial, slot, &changed);
    ++removed;
  }
  replay::AddTo(&rows.counts->stale, removed);
  if (fresh > first) {
    const int64_t reach = std::min(ring.inserted, fresh + state.rule->past * state.rule->streams);
    replay::RefreshRows(rows.tree, ring, time.FirstStart(first), reach);
  }
  if (threadIdx.x != 0) return;
  rows.clock->fresh = fresh;
  *now = rows.clock->now;
}

__global__ void __launch_bounds__(kThreads)
    ResetKernel(const Report report, unsigned ticket, const TimedState state, int32_t *stored) {
  const WeightedState &buffer = state.buffer;
  const bool sound = state.Sound();
  const int64_t inserted = buffer.serials[0];
  if (sound) {
    const replay::FillOnGrid fill;
    buffer.rows.Reset(inserted, buffer.ring.capacity, fill);
    fill(state.steps, buffer.ring.capacity, int64_t{0});
    fill(state.flags, buffer.ring.capacity, uint8_t{0});
  }
  if (!replay::IsLastBlock(ticket) || threadIdx.x != 0) return;
  *stored = 0;
  if (!sound) return report(replay::kBadArguments);
  buffer.serials[1] = inserted;
  *buffer.ring.head = *buffer.ring.count = 0;
}

constexpr int kMostOutputs = 48;
constexpr int64_t kWindowsOfBlock = 32;

// A sample of windows: its arguments.
struct WindowSample {
  TimedState state;
  RandomState *random;
  const int64_t *bounds;
  double *beta;
  const double *given_beta;
  const double *beta_step;
  const double *numbers;
  int64_t count_of_numbers;
  const Plan *plan;
  int64_t *handles;
  float *weights;
  int64_t n;
  int k;
  int count;
  Field columns[kMostColumns];
  Field outputs[kMostOutputs];

  __device__ const Output *Wanted() const { return reinterpret_cast<const Output *>(plan + 1); }

  // Whether arguments and plan fit; the same for all threads of a block.
  __device__ bool Sound() const {
    bool sound = state.Sound() && replay::IsPlan(*plan, count_of_numbers);
    for (int i = threadIdx.x; sound && i < count; i += static_cast<int>(blockDim.x)) {
      sound = replay::HoldsOutput(outputs[i], columns, k, Wanted()[i], n, plan->chain.steps);
    }
    return __syncthreads_and(sound) != 0;
  }
};

// Its draws: by weight or by rank, as the plan says.
struct WindowDraw {
  replay::WeightDraw by_weight;
  replay::RankDraw by_rank;
  const Plan *plan;
  const int64_t *given_ranks = nullptr;  // of ShuffleKernel

  struct Draws {
    bool prioritized;
    replay::WeightDraw::Draws by_weight;
    replay::RankDraw::Draws by_rank;

    __device__ const RandomState &State() const { return prioritized ? by_weight.state : by_rank.ranks.state; }
  };

  __device__ int Load(Draws *draws) const {
    draws->prioritized = plan->prioritized != 0;
    draws->by_rank.ranks.replace = true;
    if (draws->prioritized) return by_weight.Load(&draws->by_weight, plan->ordered != 0);
    return by_rank.Load(&draws->by_rank, plan->replace != 0, plan->ordered != 0, given_ranks);
  }
  __device__ replay::Ranks RanksOf(const Draws &draws) const { return draws.by_rank.ranks; }

  __device__ int Begin(Draws *draws, int64_t last) const {
    const int status = Load(draws);
    if (status == replay::kOk && !draws->prioritized) draws->by_rank.ranks.Begin(last);
    return status;
  }
  __device__ int64_t SlotOfDraw(const Draws &draws, int64_t i) const {
    return draws.prioritized ? by_weight.SlotOfDraw(draws.by_weight, i) : by_rank.SlotOfDraw(draws.by_rank, i);
  }
};

// Copies `rows` rows that lie in two columns, a few threads on each; from(row) says where, null for one of zeros.
template <typename From>
__device__ void CopyEach(const Chunk &chunk, int64_t rows, int64_t row_bytes, const char *a, const char *b, char *out,
                         const From &from) {
  const auto *both = reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b));
  replay::WithUnit(replay::UnitOf(row_bytes, both, out), [&](auto type) {
    using Unit = decltype(type);
    const int64_t units = row_bytes / static_cast<int64_t>(sizeof(Unit));
    int64_t lanes = 1;
    while (lanes < units && lanes < 32) lanes *= 2;
    const int64_t lane = threadIdx.x % lanes;
    const int64_t stride = blockDim.x / lanes;
    for (int64_t row = chunk.Begin(rows) + threadIdx.x / lanes; row < chunk.End(rows); row += stride) {
      const auto *source = reinterpret_cast<const Unit *>(from(row));
      auto *target = reinterpret_cast<Unit *>(out) + row * units;
      replay::CopyUnits<Unit>(
          0, units, lane, lanes, [=](int64_t u) { return source == nullptr ? nullptr : source + u; },
          [=](int64_t u) { return target + u; });
    }
  });
}

// Fills in what a target gives for the windows of a chunk.
__device__ void FillTarget(const Target &target, const Timeline &time, const Chunk &chunk, const Window *windows,
                           const double *powers) {
  char *out = target.out + chunk.first * target.sample_bytes;
  const Output &output = target.output;
  switch (output.kind) {
    case replay::kWindow:
    case replay::kStack:
      return CopyEach(chunk, chunk.count * output.Elements(), target.row_bytes, target.rows, target.rows, out,
                      [&](int64_t row) {
                        const int64_t slot =
                            replay::SlotAt(time, windows[row / output.Elements()], output, row % output.Elements());
                        return slot < 0 ? nullptr : target.rows + slot * target.row_bytes;
                      });
    case replay::kGoal:
      return CopyEach(chunk, chunk.count, target.row_bytes, target.rows, target.goals, out,
                      [&](int64_t row) { return replay::GoalOf(target, windows[row]); });
    case replay::kMask: {
      const int64_t total = chunk.count * output.Elements();
      for (int64_t i = chunk.Begin(total) + threadIdx.x; i < chunk.End(total); i += blockDim.x) {
        const Window &window = windows[i / output.Elements()];
        reinterpret_cast<uint8_t *>(out)[i] = replay::SlotAt(time, window, output, i % output.Elements()) >= 0;
      }
      return;
    }
    case replay::kReturn: {
      const int64_t total = chunk.count * target.inner;
      for (int64_t i = chunk.Begin(total) + threadIdx.x; i < chunk.End(total); i += blockDim.x) {
        const int64_t b = i / target.inner;
        replay::FillReturn(target, time, windows[b], i % target.inner, powers, out + b * target.sample_bytes);
      }
      return;
    }
    default:
      for (int64_t b = chunk.Begin(chunk.count) + threadIdx.x; b < chunk.End(chunk.count); b += blockDim.x) {
        replay::FillNumber(target, time, windows[b], powers, out + b * target.sample_bytes);
      }
  }
}

__device__ void FillZeros(const WindowSample &sample, const Chunk &chunk) {
  for (int i = 0; i < sample.count; ++i) {
    const int64_t bytes = sample.outputs[i].elements / sample.n * sample.outputs[i].element_bytes;
    char *out = sample.outputs[i].data + chunk.first * bytes;
    const int64_t total = chunk.count * bytes;
    for (int64_t b = chunk.Begin(total) + threadIdx.x; b < chunk.End(total); b += blockDim.x) out[b] = 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    SampleKernel(const Report report, unsigned ticket, const WindowSample sample, const WindowDraw draw,
                 const Chunks chunks) {
  __shared__ Window windows[kWindowsOfBlock];
  const Chunk chunk = replay::ThisChunk(chunks);
  const Plan &plan = *sample.plan;
  int status = sample.Sound() ? replay::kOk : replay::kBadArguments;
  if (status == replay::kOk && !(*sample.given_beta >= 0 && *sample.given_beta <= 1)) status = replay::kBadWeight;
  WindowDraw::Draws draws;
  if (status == replay::kOk) status = draw.Begin(&draws, chunk.first + chunk.count);
  RandomState state{};
  if (status == replay::kOk) {
    state = draws.State();
    const Timeline time = sample.state.Time();
    if (threadIdx.x < chunk.count) {
      const int64_t i = chunk.first + threadIdx.x;
      Window &window = windows[threadIdx.x];
      window.start =
          time.StartAt(draw.SlotOfDraw(draws, i), replay::Reach(sample.Wanted(), sample.count, plan.chain.steps));
      window.chain = replay::ChainLength(time, plan.chain, window.start);
      window.goal_slot = -1;
      if (chunk.part == 0) {
        sample.handles[i] = window.start.serial;
        replay::CountUse(sample.state.buffer.rows, window.start.slot);
      }
      if (plan.strategy != replay::Hindsight::kNone) {
        const replay::Hindsight hindsight{plan.strategy, sample.numbers[0]};
        const auto key = static_cast<uint64_t>(state.key);
        const auto counter = static_cast<uint64_t>(state.counter + sample.n + i);  // after the numbers of the draw
        window.goal_slot = hindsight.GoalSlot(time, window.start, replay::RandomBits(key, counter),
                                              replay::RandomBits(key, counter + static_cast<uint64_t>(sample.n)));
      }
    }
  }
  const bool last = replay::IsLastBlock(ticket);
  if (status == replay::kOk) {
    const Timeline time = sample.state.Time();
    for (int i = 0; i < sample.count; ++i) {
      const Target target = replay::TargetOf(sample.outputs[i], sample.columns, sample.Wanted()[i], sample.n);
      FillTarget(target, time, chunk, windows, sample.numbers + 1);
    }
  } else {
    FillZeros(sample, chunk);
  }
  if (!last) return;
  const RowWeights &rows = sample.state.buffer.rows;
  if (status != replay::kOk) {
    for (int64_t i = threadIdx.x; i < sample.n; i += blockDim.x) {
      sample.handles[i] = replay::kNoRow;
      sample.weights[i] = 0;
    }
    if (threadIdx.x == 0) report(status);
    return;
  }
  const Cursors ring = sample.state.buffer.Ring();
  const auto slot_of = [&](int64_t i) { return ring.SlotOf(sample.handles[i]); };
  if (plan.prioritized && plan.by_buffer) {
    for (int64_t i = threadIdx.x; i < sample.n; i += blockDim.x) {
      sample.weights[i] = replay::ImportanceWeight(rows.tree.Minimum(), rows.tree.Leaf(slot_of(i)), *sample.given_beta);
    }
    __syncthreads();
  } else if (plan.prioritized) {
    replay::ImportanceWeights(rows.tree, sample.n, slot_of, *sample.given_beta, sample.weights);
  } else {
    for (int64_t i = threadIdx.x; i < sample.n; i += blockDim.x) sample.weights[i] = 1;
  }
  replay::Deliver(rows, sample.n, slot_of, plan.max_use);
  __syncthreads();
  if (threadIdx.x != 0) return;
  sample.random->counter = state.counter + sample.n * (plan.strategy == replay::Hindsight::kNone ? 1 : 3);
  const double step = *sample.beta_step;
  if (step > 0) *sample.beta = std::min(*sample.beta + step, 1.0);
}

}  // namespace

// (state, factors[2], priority[1 or n], ends[1 or n], rows[k]) -> rows stored after it. Factors are alpha and epsilon;
// ends are flags of rows: 1 the last of its episode, 3 that and only an observation.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_insert_timed, replay::AfterStateWithPriority<replay::kTimedArguments>) {
  const Arguments &args = call.args;
  const int k = (args.size() - kTimedArguments - 4) / 2;
  if (k < 1 || args.size() != 2 * k + kTimedArguments + 4 || !HasTime(args, k)) return replay::kBadArguments;
  const int factors = k + kTimedArguments;
  const int priority = factors + 1;
  const int ends = factors + 2;
  const int rows = factors + 3;
  const int64_t n = args.RowsOf(rows, 0);
  const int64_t given_ends = args.elements(ends);
  if (!args.Is(factors, "float64", 2) || !replay::HoldRows(args, rows, k, n) ||
      !replay::IsPriority(args, priority, n) || !args.Is(ends, "uint8", given_ends) ||
      (given_ends != 1 && given_ends != n) || !args.Is(args.size() - 1, "int32", 1)) {
    return replay::kBadArguments;
  }
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const TimedState state = TimedStateOf(args, k);
  const replay::Insertion insertion{state.buffer,
                                    args.data<double>(factors),
                                    args.data<float>(priority),
                                    args.elements(priority),
                                    replay::ColumnsOf(args, k, rows),
                                    n,
                                    replay::ChunksOf(n, replay::AllRowBytes(args, k)),
                                    args.data<int32_t>(args.size() - 1)};
  auto *status = static_cast<int64_t *>(call.Scratch((n + 1) * 8));
  if (status != nullptr) {
    int64_t *steps = status + 1;
    call.Launch(StepsKernel, 1, state, insertion.priorities, insertion.given, args.data<uint8_t>(ends), given_ends, n,
                steps, status);
    call.Launch(InsertKernel, insertion.chunks.Blocks(), call.report, replay::NextTicket(), insertion, state,
                args.data<uint8_t>(ends), given_ends, steps, status);
  }
  return call.End();
}

// (state, random_state, sample_range[2], beta[1], given_beta[1], beta_step[1], numbers, plan) -> handles[n], importance
// weights[n], outputs. `numbers` are the ratio of samples with another goal and the powers of gamma from 0 to the
// length of a chain. Moves beta by its step up to 1; the draw uses `given_beta`, which may be beta itself.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_sample_windows, replay::ReadsFirst) {
  const Arguments &args = call.args;
  const int k = args.LeadingColumns("int32");
  const int extra = k + kTimedArguments;
  const int first_output = extra + 9;
  if (k < 1 || args.size() < first_output || !HasTime(args, k)) return replay::kBadArguments;
  const int outputs = args.size() - first_output;
  if (!replay::IsWindowSample(args, k, outputs)) return replay::kBadArguments;
  if (k > kMostColumns || outputs > kMostOutputs) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const int64_t n = args.elements(extra + 7);
  WindowSample sample{TimedStateOf(args, k),
                      args.data<RandomState>(extra),
                      args.data<int64_t>(extra + 1),
                      args.data<double>(extra + 2),
                      args.data<double>(extra + 3),
                      args.data<double>(extra + 4),
                      args.data<double>(extra + 5),
                      args.elements(extra + 5),
                      args.data<Plan>(extra + 6),
                      args.data<int64_t>(extra + 7),
                      args.data<float>(extra + 8),
                      n,
                      k,
                      outputs,
                      {},
                      {}};
  int64_t bytes = 0;
  for (int i = 0; i < k; ++i) sample.columns[i] = replay::FieldOf(args, i);
  for (int i = 0; i < outputs; ++i) {
    sample.outputs[i] = replay::FieldOf(args, first_output + i);
    bytes += sample.outputs[i].elements / n * sample.outputs[i].element_bytes;
  }
  WindowDraw draw{
      {sample.state.buffer, sample.random, n}, {sample.state.buffer, sample.random, sample.bounds, n}, sample.plan};
  Chunks chunks = replay::ChunksOf(n, bytes);
  chunks.per_block = std::min(chunks.per_block, kWindowsOfBlock);
  if (replay::ShuffleFirst(&call, n, &draw)) {
    call.Launch(SampleKernel, chunks.Blocks(), call.report, replay::NextTicket(), sample, draw, chunks);
  }
  return call.End();
}

// (state with one column, factors[2], handles[n], priorities[1 or n]) -> dead handles, which are skipped.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_update_timed, replay::AfterState<replay::kTimedArguments>) {
  const Arguments &args = call.args;
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 4) return replay::kBadArguments;
  const int64_t n = args.elements(extra + 1);
  if (!HasTime(args, 1) || !args.Is(extra, "float64", 2) || !args.Is(extra + 1, "int64", n) ||
      !replay::IsPriority(args, extra + 2, n) || !args.Is(extra + 3, "int32", 1)) {
    return replay::kBadArguments;
  }
  if (const int status = call.Ready()) return status;
  call.Launch(UpdateKernel, 1, call.report, TimedStateOf(args, 1), args.data<double>(extra),
              args.data<int64_t>(extra + 1), n, args.data<float>(extra + 2), args.elements(extra + 2),
              args.data<int32_t>(extra + 3));
  return call.End();
}

// (state with one column, factors[2], flags[1]) -> episodes that went on until now. Flags are those of their last rows.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_end_episodes, replay::AfterState<replay::kTimedArguments>) {
  const Arguments &args = call.args;
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 3 || !HasTime(args, 1) || !args.Is(extra, "float64", 2) || !args.Is(extra + 1, "uint8", 1) ||
      !args.Is(extra + 2, "int32", 1)) {
    return replay::kBadArguments;
  }
  if (const int status = call.Ready()) return status;
  call.Launch(EndKernel, 1, call.report, TimedStateOf(args, 1), args.data<double>(extra), args.data<uint8_t>(extra + 1),
              args.data<int32_t>(extra + 2));
  return call.End();
}

// (state with one column, handles[n]) -> rows deleted. Handles of rows that are gone are skipped.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_delete_timed, replay::AfterState<replay::kTimedArguments>) {
  const Arguments &args = call.args;
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 2) return replay::kBadArguments;
  const int64_t n = args.elements(extra);
  if (!HasTime(args, 1) || !args.Is(extra, "int64", n) || !args.Is(extra + 1, "int32", 1)) return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(DeleteKernel, 1, call.report, TimedStateOf(args, 1), args.data<int64_t>(extra), n,
              args.data<int32_t>(extra + 1));
  return call.End();
}

// (state with one column, steps[1], max_staleness[1]) -> the clock. A negative `max_staleness` is no limit.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_advance_timed, replay::AfterState<replay::kTimedArguments>) {
  const Arguments &args = call.args;
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 3 || !HasTime(args, 1) || !args.Is(extra, "int64", 1) || !args.Is(extra + 1, "int64", 1) ||
      !args.Is(extra + 2, "int64", 1)) {
    return replay::kBadArguments;
  }
  if (const int status = call.Ready()) return status;
  call.Launch(AdvanceKernel, 1, call.report, TimedStateOf(args, 1), args.data<int64_t>(extra),
              args.data<int64_t>(extra + 1), args.data<int64_t>(extra + 2));
  return call.End();
}

// (state with one column) -> 0 rows stored.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_reset_timed, replay::AfterState<replay::kTimedArguments>) {
  const Arguments &args = call.args;
  if (args.size() != 2 + kTimedArguments || !HasTime(args, 1) || !args.Is(1 + kTimedArguments, "int32", 1))
    return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  call.Launch(ResetKernel, replay::BlocksFor(args.dim(0, 0)), call.report, replay::NextTicket(), TimedStateOf(args, 1),
              args.data<int32_t>(1 + kTimedArguments));
  return call.End();
}
