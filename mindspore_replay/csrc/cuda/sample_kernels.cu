// The kernels of sample_kernels.cc on a GPU; kernels.cu states the common rules.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/draw.h"
#include "core/outputs.h"
#include "core/points.h"
#include "core/status.h"
#include "core/timeline.h"
#include "core/tree_range.h"
#include "core/windows.h"
#include "cuda/buffer.cuh"
#include "cuda/device.cuh"
#include "cuda/epochs.cuh"
#include "cuda/groups.cuh"
#include "cuda/rows.cuh"
#include "cuda/shuffle.cuh"

namespace replay {
namespace {

constexpr int kMostOutputs = 48;
constexpr int64_t kWindowsOfBlock = 32;

// The handle in a refused sample: it stands for no row, so later operations skip it.
constexpr int64_t kNoRow = -1;

// Values common to all draws of a sample.
struct Draws {
  Ranks ranks;
  bool by_priority;
  bool in_order;
  bool rotates;    // points of the total weight are counted from a slot other than 0
  double offset;   // the weight before that slot
  double stratum;  // weight of a stratum, for draws by priority
  double total;    // weight that draws are made from
  double least;    // smallest weight that draws are made from
  bool in_range;   // draws are limited to a range of rows
  RowRange rows;
  int64_t given;  // samples that are no padding
  int64_t first;  // logical row of rank 0, and the ring's head, for draws without weights
  int64_t head;
};

// The arguments of a sample.
struct Sample {
  State state;
  const int64_t *bounds;
  double *beta;
  const double *given_beta;
  const double *powers;
  int64_t count_of_powers;
  const Plan *plan;
  int64_t n;
  Epoch *epoch;  // null unless rows are drawn in epochs
  const EpochRule *epoch_rule;
  Batch *batch;                // from EpochKernel
  int64_t *own_handles;        // null if an output certainly holds them
  const int64_t *given_ranks;  // from RanksKernel
  int k;
  int count;
  Field columns[kMostColumns];
  Field outputs[kMostOutputs];

  // True if the outputs can hold what the plan asks for; the same for all threads of a block. Writes source and
  // destination of row outputs to `rows`.
  template <typename Rows>
  __device__ bool Holds(Column *rows) const {
    static_assert(kMostOutputs <= kThreads, "a thread looks at one of them");
    const int i = threadIdx.x;
    bool holds = true;
    if (i < count) {
      const Output &output = plan->Outputs()[i];
      holds = HoldsOutput(outputs[i], columns, k, output, n, *plan);
      if constexpr (!kHasEpisodes<Rows>) {
        const bool is_number = output.kind == kHandle || output.kind == kWeight || output.kind == kGiven;
        holds = holds && (is_number || output.IsRow());
        rows[i] = {nullptr, nullptr, 0, false};
        if (holds && !is_number) {
          const Field &column = columns[output.column];
          rows[i] = {column.data, outputs[i].data, column.row_elements * column.element_bytes, false};
        }
      }
    }
    return __syncthreads_and(holds) != 0;
  }

  // Computes the common values of draws; the same in all blocks.
  template <typename Rows>
  __device__ int Load(Draws *draws) const {
    const bool in_epochs = plan->draw == kInEpochs;
    const bool has_row_state = kHasRowState<Rows>;
    if (!IsPlan(*plan, count_of_powers, epoch != nullptr, has_row_state)) return kBadArguments;
    if (in_epochs && !HasEpoch()) return kBadArguments;
    if (has_row_state && !(*given_beta >= 0 && *given_beta <= 1)) return kBadWeight;
    if (!state.IsConsistent()) return kBadArguments;
    const Cursors ring = state.Ring();
    draws->by_priority = plan->draw == kByPriority;
    draws->in_order = false;
    draws->given = n;
    draws->ranks = {*state.random, 0, true, given_ranks};
    if (in_epochs) {
      draws->ranks.replace = true;  // no shuffle
      draws->given = batch->given;
      return batch->status;
    }
    const SumTree &tree = state.row_state.tree;
    const RowRange rows = SliceRows(bounds[0], bounds[1], ring.count);
    if constexpr (kHasRowState<Rows>) {
      if (draws->by_priority) return LoadByPriority(tree, ring, rows, draws);
    }
    draws->in_order = plan->InOrder();
    draws->ranks.replace = plan->replace != 0 || draws->in_order;  // no shuffle
    // A full ring holds the same rows in any order, so a draw at random from all of it can yield slots directly.
    draws->rotates = plan->ordered != 0 || draws->in_order || rows.size < ring.capacity;
    if constexpr (kHasRowState<Rows>) {
      draws->ranks.size = static_cast<int64_t>(SumRows(tree, rows, ring.head, ring.capacity));
      if (draws->ranks.size < plan->Needed(n)) return kTooFewRows;
      draws->offset = draws->rotates ? tree.Before(replay::SlotOf(rows.first, ring.head, ring.capacity)) : 0;
    } else {
      draws->ranks.size = rows.size;
      if (rows.size < plan->Needed(n)) return kTooFewRows;
      draws->first = rows.first;
      draws->head = draws->rotates ? ring.head : 0;
    }
    return kOk;
  }

  // True if the state of epochs is possible.
  __device__ bool HasEpoch() const { return state.Ring().HasSerials() && IsEpoch(*epoch, *epoch_rule, state.capacity); }

  // Returns the slot of draw i.
  template <typename Rows>
  __device__ int64_t SlotOf(const Draws &draws, int64_t i) const {
    if (batch != nullptr) return batch->Slots()[i];
    if constexpr (kHasRowState<Rows>) {
      const SumTree &tree = state.row_state.tree;
      const double point = draws.by_priority ? PointOfStratum(draws.ranks.state, i, draws.stratum, draws.total)
                                             : static_cast<double>(RankOf(draws, i) + 1);
      if (draws.by_priority && draws.in_range) return TreeRange(tree, draws.rows, state.Ring()).SlotAt(point);
      return tree.SlotAt(draws.rotates ? Rotated(point, draws.offset, tree.Total()) : point);
    } else {
      return replay::SlotOf(draws.first + draws.ranks(i), draws.head, state.capacity);
    }
  }

  // Returns the rank of draw i among the eligible rows of the range.
  __device__ int64_t RankOf(const Draws &draws, int64_t i) const {
    return draws.in_order ? RankInOrder(plan->draw, draws.ranks.size, i) : draws.ranks(i);
  }

  // True if there is an output of a kind.
  __device__ bool Gives(int64_t kind) const {
    bool gives = false;
    for (int j = 0; j < count; ++j) gives |= plan->Outputs()[j].kind == kind;
    return gives;
  }

  // Writes number i of the outputs of a kind.
  template <typename Number>
  __device__ void Give(int64_t kind, int64_t i, Number number) const {
    for (int j = 0; j < count; ++j) {
      if (plan->Outputs()[j].kind == kind) reinterpret_cast<Number *>(outputs[j].data)[i] = number;
    }
  }

  __device__ const int64_t *Handles() const {
    const int64_t *handles = own_handles;
    for (int j = 0; j < count && handles == nullptr; ++j) {
      if (plan->Outputs()[j].kind == kHandle) handles = reinterpret_cast<const int64_t *>(outputs[j].data);
    }
    return handles;
  }

  // Records each drawn row, once.
  template <typename Rows>
  __device__ void Note(const Draws &draws, int64_t i, int64_t slot) const {
    const bool given = i < draws.given;
    const int64_t handle = given ? state.Get<PlacesOf<Rows>>().HandleOf(slot) : kNoRow;
    Give(kHandle, i, handle);
    Give(kGiven, i, static_cast<uint8_t>(given));
    if constexpr (kHasRowState<Rows>) {
      if (own_handles != nullptr) own_handles[i] = handle;
      if (given) CountUse(slot);
      if (draws.by_priority) {
        if (plan->by_buffer) Give(kWeight, i, WeightOf(slot, draws.least));
        return;
      }
    }
    Give(kWeight, i, 1.0f);
  }

  // Counts deliveries and removes rows; called by the last block, when all rows are recorded.
  template <typename Rows>
  __device__ void End(const Draws &draws) const {
    if constexpr (kHasRowState<Rows>) {
      const auto places = state.Get<PlacesOf<Rows>>();
      const int64_t *handles = Handles();
      const auto slot_of = [&](int64_t i) { return places.SlotOf(handles[i]); };
      if (draws.by_priority && !plan->by_buffer && Gives(kWeight)) GiveWeights(slot_of);
      Deliver(slot_of, draws.given);
    }
    if (threadIdx.x != 0) return;
    if (epoch != nullptr) *epoch = batch->next;
    const bool has_goals = kHasEpisodes<Rows> && plan->strategy != Hindsight::kNone;
    state.random->counter = draws.ranks.state.counter + n * (has_goals ? 3 : 1);
    if (draws.by_priority) MoveBeta(beta, plan->beta_step);
  }

  // Writes zeros for the samples of a chunk from `given` on: for all of a refused sample, or for padding.
  __device__ void FillZeros(const Chunk &chunk, int64_t given) const {
    const int64_t first = std::min(std::max(given - chunk.first, int64_t{0}), chunk.count);
    for (int i = 0; i < count; ++i) {
      const bool is_handle = plan->Outputs()[i].kind == kHandle && outputs[i].dtype == kInt64;
      const int64_t bytes = outputs[i].elements / n * outputs[i].element_bytes;
      char *out = outputs[i].data + chunk.first * bytes;
      const int64_t total = chunk.count * bytes;
      for (int64_t b = chunk.Begin(total) + threadIdx.x; b < chunk.End(total); b += blockDim.x) {
        if (b < first * bytes) continue;
        out[b] = is_handle ? static_cast<char>(kNoRow) : 0;
      }
    }
  }

 private:
  // Computes the common values of draws by priority from a range of rows; the same in all blocks.
  __device__ int LoadByPriority(const SumTree &tree, const Cursors &ring, RowRange rows, Draws *draws) const {
    draws->rows = rows;
    draws->in_range = rows.size < ring.count;
    draws->rotates = false;
    if (draws->in_range) {
      if (!HasPositive(tree, ring, rows)) return kTooFewRows;
      const TreeRange range(tree, rows, ring);
      draws->total = range.Total();
      draws->least = range.Minimum();
    } else {
      if (tree.Positive() < static_cast<double>(plan->Needed(n))) return kTooFewRows;
      draws->total = tree.Total();
      draws->least = tree.Minimum();
    }
    draws->stratum = draws->total / static_cast<double>(n);
    return kOk;
  }

  // True if enough rows of a range have positive weight; the same for all threads of a block.
  __device__ bool HasPositive(const SumTree &tree, const Cursors &ring, RowRange rows) const {
    const int64_t needed = plan->Needed(n);
    int64_t found = 0;
    for (int64_t begin = 0; begin < rows.size && found < needed; begin += blockDim.x) {
      const int64_t back = begin + threadIdx.x;
      const int64_t row = rows.first + rows.size - 1 - back;
      found += __syncthreads_count(back < rows.size && tree.Leaf(replay::SlotOf(row, ring.head, ring.capacity)) > 0);
    }
    return found >= needed;
  }

  __device__ float WeightOf(int64_t slot, double smallest) const {
    return ImportanceWeight(smallest, state.row_state.tree.Leaf(slot), *given_beta);
  }

  // Writes importance weights normalized by the smallest weight of the sample.
  template <typename SlotOfDraw>
  __device__ void GiveWeights(const SlotOfDraw &slot_of) const {
    __shared__ unsigned long long smallest;  // positive numbers are ordered as their bits
    const auto bits_of = [&](int64_t i) {
      return static_cast<unsigned long long>(__double_as_longlong(state.row_state.tree.Leaf(slot_of(i))));
    };
    if (threadIdx.x == 0) smallest = bits_of(0);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) atomicMin(&smallest, bits_of(i));
    __syncthreads();
    const double measure = __longlong_as_double(static_cast<long long>(smallest));
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) Give(kWeight, i, WeightOf(slot_of(i), measure));
    __syncthreads();
  }

  // Counts a delivery of one slot.
  __device__ void CountUse(int64_t slot) const {
    int32_t *count = &state.row_state.use_counts[slot];
    for (int32_t uses = *count; uses < kMostUses;) {
      const int32_t found = atomicCAS(count, uses, uses + 1);
      if (found == uses) break;
      uses = found;
    }
  }

  // Removes the rows that reached their last delivery.
  template <typename SlotOfDraw>
  __device__ void Deliver(const SlotOfDraw &slot_of, int64_t given) const {
    const RowState &row_state = state.row_state;
    if (threadIdx.x == 0) AddTo(&row_state.counts->drawn, given);
    if (plan->max_use == 0) return;
    int64_t removed = 0;
    for (int64_t i = threadIdx.x; i < given; i += blockDim.x) {
      const int64_t slot = slot_of(i);
      const int32_t uses = row_state.use_counts[slot];
      if (uses < plan->max_use || atomicCAS(&row_state.use_counts[slot], uses, ~uses) != uses) continue;
      row_state.tree.SetLeaf(slot, 0);
      ++removed;
    }
    AddTo(&row_state.counts->used_up, removed);
    if (__syncthreads_or(removed > 0)) RefreshAbove(row_state.tree, given, slot_of);
  }
};
static_assert(sizeof(Sample) <= 3584, "a launch takes 4096 bytes");

// Runs before a sample too large for a block to shuffle: computes all its ranks, in one block.
template <typename Rows>
__global__ void __launch_bounds__(kThreads) RanksKernel(const Sample sample, int64_t *ranks, int32_t *table) {
  Draws draws;
  if (sample.Load<Rows>(&draws) != kOk || draws.ranks.replace) return;
  const StepsByCell steps(table, StepsByCell::Buckets(sample.n));
  draws.ranks.BeginIn(steps, sample.n);
  for (int64_t i = threadIdx.x; i < sample.n; i += blockDim.x) ranks[i] = draws.ranks.DrawnIn(steps, i);
}

// Runs before a sample of an epoch: draws its batch.
template <typename Rows>
__global__ void __launch_bounds__(kThreads) EpochKernel(const Sample sample) {
  const State &state = sample.state;
  if (!state.IsConsistent() || !sample.HasEpoch()) return;  // SampleKernel refuses it, before it looks at the batch
  const Cursors ring = state.Ring();
  sample.batch->Draw(*sample.epoch_rule, ring, *state.random, *sample.epoch, sample.n, [&](int64_t serial) {
    const int64_t slot = ring.SlotOf(serial);
    if constexpr (kHasRowState<Rows>) {
      if (slot >= 0 && !(state.row_state.tree.Leaf(slot) > 0)) return int64_t{-1};
    }
    return slot;
  });
}

// Copies `rows` rows of two columns, a few threads per row; from(row) is the source, null for zeros.
template <typename From>
__device__ void CopyEach(const Chunk &chunk, int64_t rows, int64_t row_bytes, const char *a, const char *b, char *out,
                         const From &from) {
  const auto *both = reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b));
  WithUnit(UnitOf(row_bytes, both, out), [&](auto type) {
    using Unit = decltype(type);
    const int64_t units = row_bytes / static_cast<int64_t>(sizeof(Unit));
    int64_t lanes = 1;
    while (lanes < units && lanes < 32) lanes *= 2;
    const int64_t lane = threadIdx.x % lanes;
    const int64_t stride = blockDim.x / lanes;
    for (int64_t row = chunk.Begin(rows) + threadIdx.x / lanes; row < chunk.End(rows); row += stride) {
      const auto *source = reinterpret_cast<const Unit *>(from(row));
      auto *target = reinterpret_cast<Unit *>(out) + row * units;
      CopyUnits<Unit>(
          0, units, lane, lanes, [=](int64_t u) { return source == nullptr ? nullptr : source + u; },
          [=](int64_t u) { return target + u; });
    }
  });
}

// Writes the output of a target for the windows of a chunk.
__device__ void FillTarget(const Target &target, const Timeline &timeline, const Chunk &chunk, const Window *windows,
                           const double *powers) {
  char *out = target.out + chunk.first * target.sample_bytes;
  const Output &output = target.output;
  switch (output.kind) {
    case kHandle:
    case kGiven:
    case kWeight: return;  // already recorded
    case kWindow:
    case kStack:
    case kRepeated:
    case kRepeatedStack:
      return CopyEach(
          chunk, chunk.count * output.Elements(), target.row_bytes, target.rows, target.rows, out, [&](int64_t row) {
            const int64_t slot = SlotAt(timeline, windows[row / output.Elements()], output, row % output.Elements());
            return slot < 0 ? nullptr : target.rows + slot * target.row_bytes;
          });
    case kGoal:
      return CopyEach(chunk, chunk.count * output.Elements(), target.row_bytes, target.rows, target.goals, out,
                      [&](int64_t row) {
                        return GoalAt(target, timeline, windows[row / output.Elements()], row % output.Elements());
                      });
    case kMask: {
      const int64_t total = chunk.count * output.Elements();
      for (int64_t i = chunk.Begin(total) + threadIdx.x; i < chunk.End(total); i += blockDim.x) {
        const Window &window = windows[i / output.Elements()];
        reinterpret_cast<uint8_t *>(out)[i] = SlotAt(timeline, window, output, i % output.Elements()) >= 0;
      }
      return;
    }
    case kReward: {
      const int64_t numbers = output.Elements(), total = chunk.count * numbers;
      for (int64_t i = chunk.Begin(total) + threadIdx.x; i < chunk.End(total); i += blockDim.x) {
        char *of_sample = out + i / numbers * target.sample_bytes;
        if (target.is_double) {
          FillReward<double>(target, timeline, windows[i / numbers], i % numbers, of_sample);
        } else {
          FillReward<float>(target, timeline, windows[i / numbers], i % numbers, of_sample);
        }
      }
      return;
    }
    case kReturn:
    case kDiscount: {
      const bool is_return = output.kind == kReturn;
      const int64_t numbers = output.length * (is_return ? target.inner : 1);
      const int64_t total = chunk.count * numbers;
      for (int64_t i = chunk.Begin(total) + threadIdx.x; i < chunk.End(total); i += blockDim.x) {
        const int64_t b = i / numbers;
        char *of_sample = out + b * target.sample_bytes;
        const int64_t j = i % numbers / (is_return ? target.inner : 1);
        WithDiscounts(target, [&](const auto &discounts) {
          if (is_return && target.sparse.achieved != nullptr && windows[b].goal_slot >= 0) {
            target.is_double
                ? FillSparseReturn<double>(target, timeline, windows[b], i % numbers, powers, discounts, of_sample)
                : FillSparseReturn<float>(target, timeline, windows[b], i % numbers, powers, discounts, of_sample);
          } else if (is_return && target.is_double) {
            FillReturn<double>(target, timeline, windows[b], j, i % target.inner, powers, discounts, of_sample);
          } else if (is_return) {
            FillReturn<float>(target, timeline, windows[b], j, i % target.inner, powers, discounts, of_sample);
          } else {
            FillDiscount(target, timeline, windows[b], j, powers, discounts, of_sample);
          }
        });
      }
      return;
    }
    default: {
      const int64_t total = chunk.count * output.Elements();
      for (int64_t i = chunk.Begin(total) + threadIdx.x; i < chunk.End(total); i += blockDim.x) {
        const int64_t b = i / output.Elements();
        FillNumber(target, windows[b], i % output.Elements(), out + b * target.sample_bytes);
      }
    }
  }
}

// Computes the extent of the sample from the slot of draw i.
__device__ void Reach(const Sample &, const Draws &, int64_t, int64_t slot, int64_t *reached) { *reached = slot; }

__device__ void Reach(const Sample &sample, const Draws &draws, int64_t i, int64_t slot, Window *window) {
  const Timeline timeline = sample.state.Get<Timeline>();
  const Plan &plan = *sample.plan;
  const RandomState &random = draws.ranks.state;
  *window = WindowOf(timeline, plan, ScopeOf(plan.Outputs(), sample.count, plan.chain.steps), slot,
                     {random.key, random.counter + sample.n}, i, sample.n);
}

// Copies the outputs of a chunk's rows or windows.
__device__ void Copy(const Sample &sample, const Column *rows, const Chunk &chunk, const int64_t *slots) {
  CopyRows<kOut>(rows, sample.count, chunk, slots);
}

__device__ void Copy(const Sample &sample, const Column *, const Chunk &chunk, const Window *windows) {
  const Timeline timeline = sample.state.Get<Timeline>();
  for (int i = 0; i < sample.count; ++i) {
    const Target target =
        TargetOf(sample.outputs[i], sample.columns, sample.plan->Outputs()[i], sample.n, *sample.plan);
    FillTarget(target, timeline, chunk, windows, sample.powers);
  }
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads,
                                  kHasEpisodes<Rows> ? 3 : 4)  // minimum of resident blocks per multiprocessor
    SampleKernel(const Report report, unsigned ticket, const Sample sample, const Chunks chunks) {
  constexpr bool kHasEpisodes = replay::kHasEpisodes<Rows>;
  __shared__ std::conditional_t<kHasEpisodes, Window, int64_t> reached[kHasEpisodes ? kWindowsOfBlock : kThreads];
  __shared__ Column rows[kMostOutputs];
  const Chunk chunk = ThisChunk(chunks);
  Draws draws;
  const bool holds = sample.Holds<Rows>(rows);
  int status = sample.Load<Rows>(&draws);
  if (!holds && status != kBadWeight) status = kBadArguments;
  if (status == kOk) {
    draws.ranks.Begin(chunk.first + chunk.count);
    if (threadIdx.x < chunk.count) {
      const int64_t i = chunk.first + threadIdx.x;
      const int64_t slot = sample.SlotOf<Rows>(draws, i);
      Reach(sample, draws, i, slot, &reached[threadIdx.x]);
      if (chunk.part == 0) sample.Note<Rows>(draws, i, slot);
    }
  }
  const bool last = IsLastBlock(ticket);
  if (status == kOk) {
    Copy(sample, rows, chunk, reached);
    if (sample.batch != nullptr) {
      __syncthreads();
      sample.FillZeros(chunk, draws.given);
      __syncthreads();
    }
    if (last) sample.End<Rows>(draws);
  } else {
    sample.FillZeros(chunk, 0);
    if (last && threadIdx.x == 0) report(status);
  }
}

using Args = Bound<OperatorNumber("sample")>;

// True if an output must hold handles: it has n int64, and no column has one int64 per row.
bool HoldsHandles(const Sample &sample) {
  const auto is_int64 = [](const Field &field, int64_t elements) { return field.Is(kInt64, elements); };
  return std::any_of(sample.outputs, sample.outputs + sample.count,
                     [&](const Field &output) { return is_int64(output, sample.n); }) &&
         std::none_of(sample.columns, sample.columns + sample.k,
                      [&](const Field &column) { return is_int64(column, sample.state.capacity); });
}

Sample SampleOf(const Args &args, int64_t n) {
  Sample sample{StateOf(args),
                args.data<int64_t>(NAMED("sample_range")),
                args.data_or_null<double>(NAMED("beta")),
                args.data_or_null<double>(NAMED("given_beta")),
                args.data_or_null<double>(NAMED("powers")),
                args.HasGroup(kEpisodesGroup) ? args.elements(NAMED("powers")) : 0,
                args.data<Plan>(NAMED("plan")),
                n,
                args.data_or_null<Epoch>(NAMED("epoch")),
                args.data_or_null<EpochRule>(NAMED("epoch_rule")),
                nullptr,
                nullptr,
                nullptr,
                args.columns(),
                static_cast<int>(args.outputs()),
                {},
                {}};
  const int first_output = args.at(NAMED("outputs"));
  for (int i = 0; i < sample.k; ++i) sample.columns[i] = FieldOf(args.raw(), i);
  for (int i = 0; i < sample.count; ++i) sample.outputs[i] = FieldOf(args.raw(), first_output + i);
  return sample;
}

}  // namespace

MINDSPORE_REPLAY_CUDA_KERNEL(sample) {
  const int first_output = args.at(NAMED("outputs"));
  const int64_t n = args.raw().ndim(first_output) > 0 ? args.raw().dim(first_output, 0) : 0;
  if (args.outputs() > kMostOutputs) return call->Fail(kTooMany);
  if (n < 1) return call->Fail(kBadArguments);
  Sample sample = SampleOf(args, n);
  int64_t bytes = 0;
  for (int i = 0; i < sample.count; ++i) {
    bytes += sample.outputs[i].elements / n * sample.outputs[i].element_bytes;
  }
  Chunks chunks = ChunksOf(n, bytes);
  if (args.HasGroup(kEpisodesGroup)) chunks.per_block = std::min(chunks.per_block, kWindowsOfBlock);
  if (args.HasGroup(kRowStateGroup) && !HoldsHandles(sample)) sample.own_handles = call->Scratch<int64_t>(n);
  WithKind(args, [&](auto kind) {
    using Rows = typename decltype(kind)::Type;
    if (sample.epoch != nullptr) {
      sample.batch = reinterpret_cast<Batch *>(call->Scratch<int64_t>(Batch::Size(n)));
      call->Launch(EpochKernel<Rows>, 1, sample);
    } else if (n > kMostInBlock) {
      auto *ranks = call->Scratch<int64_t>(n);
      call->Launch(RanksKernel<Rows>, 1, sample, ranks, call->Scratch<int32_t>(StepsByCell::Size(n)));
      sample.given_ranks = ranks;
    }
    call->Launch(SampleKernel<Rows>, chunks.Blocks(), call->report, NextTicket(), sample, chunks);
  });
}

MINDSPORE_REPLAY_CUDA_KERNEL(sample_groups) {
  const int form = args.at(NAMED("template"));
  const int64_t groups = args.raw().dim(form, 0), size = args.raw().dim(form, 1), n = groups * size;
  int64_t all = 1;
  while (all < args.capacity()) all *= 2;
  GroupSample sample{StateOf(args),
                     args.data<int64_t>(NAMED("options")),
                     groups,
                     size,
                     args.data<uint8_t>(NAMED("mask")),
                     call->Scratch<Member>(all),
                     all,
                     call->Scratch<int32_t>(all + 1),
                     call->Scratch<int32_t>(StepsByCell::Size(groups)),
                     call->Scratch<int64_t>(n),
                     args.columns(),
                     {}};
  for (int i = 0; i < sample.k; ++i) sample.columns[i] = FieldOf(args.raw(), i);
  const Chunks chunks = ChunksOf(args, n);
  call->Launch(MembersKernel, BlocksFor(all), sample);
  Sort(call, sample.members, all);
  call->Launch(DrawGroupsKernel, 1, call->report, sample);
  call->Launch(CopyKernel<kOut>, chunks.Blocks(), sample.slots, ColumnsOf(args), chunks);
}

}  // namespace replay
