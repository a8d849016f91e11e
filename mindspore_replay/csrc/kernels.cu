// The kernels of kernels.cc on a GPU: the same names, arguments and results, in memory of the GPU. An adapter checks
// what the host knows, dtypes and shapes, and launches; what only the GPU knows is checked there. No call waits for the
// GPU: one that is refused there changes nothing, and is reported by the next call or by replay_take_failure.
#include <cstdint>

#include "adapters.h"
#include "device.cuh"
#include "draw.h"
#include "random.h"
#include "ring.h"
#include "rows.cuh"
#include "shuffle.cuh"
#include "status.h"

namespace {

using replay::Arguments;
using replay::Call;
using replay::Chunk;
using replay::Chunks;
using replay::Columns;
using replay::HasRing;
using replay::HoldRows;
using replay::kMostColumns;
using replay::kThreads;
using replay::RandomState;
using replay::Report;
using replay::RingState;
using replay::SlotOf;

constexpr int64_t kFromOptions = 0;  // stands for the capacity of a ring that the options tell

// Draws slots of a ring uniformly. `range` is a slice of logical rows, `options` = capacity, replace, ordered.
struct UniformDraw {
  RingState ring;
  RandomState *random;
  const int64_t *range;
  const int64_t *options;
  int64_t n;
  const int64_t *given_ranks = nullptr;  // of ShuffleKernel

  struct Draws {
    replay::Ranks ranks;
    int64_t first;  // row of the range
    int64_t head;   // of the ring; 0 where rows may come in any order
  };

  __device__ int Load(Draws *draws) const {
    const int64_t capacity = options[0];
    const int64_t head = *ring.head, count = *ring.count;
    if (capacity < 1 || (ring.capacity != kFromOptions && capacity != ring.capacity)) return replay::kBadArguments;
    if (!replay::AreCursors(head, count, capacity)) return replay::kBadArguments;
    const replay::RowRange rows = replay::SliceRows(range[0], range[1], count);
    // A full ring holds the same rows in any order, so a draw from all of it may name slots directly.
    const bool in_order = options[2] != 0 || rows.size < capacity;
    *draws = {{*random, rows.size, options[1] != 0, given_ranks}, rows.first, in_order ? head : 0};
    return rows.size < n ? replay::kTooFewRows : replay::kOk;
  }
  __device__ replay::Ranks RanksOf(const Draws &draws) const { return draws.ranks; }

  __device__ int Begin(Draws *draws, int64_t last) const {
    const int status = Load(draws);
    if (status == replay::kOk) draws->ranks.Begin(last);
    return status;
  }
  __device__ int64_t Slot(const Draws &draws, int64_t i, const Report &) const {
    return SlotOf(draws.first + draws.ranks(i), draws.head, options[0]);
  }
  __device__ void Note(int64_t, int64_t) const {}
  __device__ void End(const Draws &draws, int status) const {
    if (status == replay::kOk && threadIdx.x == 0) random->counter = draws.ranks.state.counter + n;
  }
};

// The rows at logical positions, of which negative ones count from the newest.
struct AtPositions {
  RingState ring;
  const int64_t *index;

  struct Draws {};
  __device__ int Begin(Draws *, int64_t) const { return ring.Sound() ? replay::kOk : replay::kBadArguments; }
  __device__ int64_t Slot(const Draws &, int64_t i, const Report &report) const {
    const int64_t count = *ring.count;
    const int64_t row = index[i] < 0 ? index[i] + count : index[i];
    if (row >= 0 && row < count) return SlotOf(row, *ring.head, ring.capacity);
    report(replay::kIndexOutOfRange);
    return -1;
  }
  __device__ void Note(int64_t, int64_t) const {}
  __device__ void End(const Draws &, int) const {}
};

struct AtSlots {
  int64_t capacity;
  const int64_t *slots;

  struct Draws {};
  __device__ int Begin(Draws *, int64_t) const { return replay::kOk; }
  __device__ int64_t Slot(const Draws &, int64_t i, const Report &report) const {
    if (slots[i] >= 0 && slots[i] < capacity) return slots[i];
    report(replay::kIndexOutOfRange);
    return -1;
  }
  __device__ void Note(int64_t, int64_t) const {}
  __device__ void End(const Draws &, int) const {}
};

__global__ void __launch_bounds__(kThreads)
    WriteKernel(const Report report, unsigned ticket, const RingState ring, int64_t *serials, const Columns columns,
                int64_t n, const Chunks chunks, int32_t *stored) {
  __shared__ int64_t slots[kThreads];
  const bool sound = ring.Sound();
  replay::RingWrite plan{};
  if (sound) plan = replay::PlanWrite(n, *ring.head, *ring.count, ring.capacity);
  const Chunk chunk = replay::ThisChunk(chunks);
  if (threadIdx.x < chunk.count) {
    const int64_t row = chunk.first + threadIdx.x - plan.skipped;
    slots[threadIdx.x] = sound && row >= 0 ? SlotOf(row, plan.slot, ring.capacity) : -1;
  }
  const bool last = replay::IsLastBlock(ticket);
  replay::CopyRows<replay::kIn>(columns, chunk, slots);
  if (!last || threadIdx.x != 0) return;
  if (!sound) {
    *stored = 0;
    return report(replay::kBadArguments);
  }
  *ring.head = static_cast<int32_t>(plan.head);
  *ring.count = static_cast<int32_t>(plan.count);
  serials[0] += n;
  *stored = static_cast<int32_t>(plan.count);
}

__global__ void __launch_bounds__(kThreads)
    DrawKernel(const Report report, unsigned ticket, const UniformDraw draw, int64_t *slots) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x;
  const int64_t i = first + threadIdx.x;
  UniformDraw::Draws draws;
  const int status = draw.Begin(&draws, first + blockDim.x < draw.n ? first + blockDim.x : draw.n);
  if (i < draw.n) slots[i] = status == replay::kOk ? draw.Slot(draws, i, report) : 0;
  if (!replay::IsLastBlock(ticket)) return;
  if (status != replay::kOk && threadIdx.x == 0) report(status);
  draw.End(draws, status);
}

__global__ void __launch_bounds__(kThreads)
    BitsKernel(unsigned ticket, RandomState *random, uint64_t *bits, int64_t n) {
  const RandomState state = *random;
  for (int64_t i = replay::FirstOfGrid(); i < n; i += replay::GridStride()) {
    bits[i] = replay::RandomBits(static_cast<uint64_t>(state.key), static_cast<uint64_t>(state.counter + i));
  }
  if (replay::IsLastBlock(ticket) && threadIdx.x == 0) random->counter = state.counter + n;
}

}  // namespace

// (columns[k], head, count, serials, rows[k]) -> rows stored after it. Changes columns, head, count and serials.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_ring_write, replay::AfterState<3>) {
  const Arguments &args = call.args;
  const int k = (args.size() - 4) / 2;
  if (k < 1 || args.size() != 2 * k + 4 || !HasRing(args, k) || !args.Is(k + 2, "int64", 2)) return replay::kBadArguments;
  const int64_t n = args.RowsOf(k + 3, 0);
  if (!HoldRows(args, k + 3, k, n) || !args.Is(args.size() - 1, "int32", 1)) return replay::kBadArguments;
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const Chunks chunks = replay::ChunksOf(n, replay::AllRowBytes(args, k));
  call.Launch(WriteKernel, chunks.Blocks(), call.report, replay::NextTicket(), replay::RingStateOf(args, k),
              args.data<int64_t>(k + 2), replay::ColumnsOf(args, k, k + 3), n, chunks, args.data<int32_t>(args.size() - 1));
  return call.End();
}

// (columns[k], head, count, index) -> rows[k] at logical positions; negative ones count from the newest.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_ring_read, replay::ReadsFirst) {
  const Arguments &args = call.args;
  const int k = (args.size() - 3) / 2;
  if (k < 1 || args.size() != 2 * k + 3 || !HasRing(args, k)) return replay::kBadArguments;
  const int64_t n = args.elements(k + 2);
  if (!args.Is(k + 2, "int64", n) || !HoldRows(args, k + 3, k, n)) return replay::kBadArguments;
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  replay::Gather(&call, AtPositions{replay::RingStateOf(args, k), args.data<int64_t>(k + 2)}, k, k + 3, n);
  return call.End();
}

// (columns[k], slots[n]) -> rows[k] at these slots.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_gather_rows, replay::ReadsFirst) {
  const Arguments &args = call.args;
  const int k = (args.size() - 1) / 2;
  if (k < 1 || args.size() != 2 * k + 1 || !replay::AreColumns(args, k)) return replay::kBadArguments;
  const int64_t n = args.elements(k);
  if (!args.Is(k, "int64", n) || !HoldRows(args, k + 1, k, n)) return replay::kBadArguments;
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  replay::Gather(&call, AtSlots{args.dim(0, 0), args.data<int64_t>(k)}, k, k + 1, n);
  return call.End();
}

// (columns[k], head, count, random_state, sample_range[2], options[3]) -> rows[k], drawn uniformly. Changes
// random_state.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_sample_uniform, replay::ReadsFirst) {
  const Arguments &args = call.args;
  const int k = (args.size() - 5) / 2;
  if (k < 1 || args.size() != 2 * k + 5 || !HasRing(args, k) || !args.Is(k + 2, "int64", 2) || !args.Is(k + 3, "int64", 2) ||
      !args.Is(k + 4, "int64", 3)) {
    return replay::kBadArguments;
  }
  const int64_t n = args.RowsOf(k + 5, 0);
  if (!HoldRows(args, k + 5, k, n)) return replay::kBadArguments;
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  UniformDraw draw{replay::RingStateOf(args, k), args.data<RandomState>(k + 2), args.data<int64_t>(k + 3),
                   args.data<int64_t>(k + 4), n};
  if (replay::ShuffleFirst(&call, n, &draw)) replay::Gather(&call, draw, k, k + 5, n);
  return call.End();
}

// (random_state, head, count, sample_range[2], options[3]) -> slots[n], drawn uniformly. Changes random_state.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_draw_uniform, replay::ReadsFirst) {
  const Arguments &args = call.args;
  if (args.size() != 6 || !args.Is(0, "int64", 2) || !args.Is(1, "int32", 1) || !args.Is(2, "int32", 1) ||
      !args.Is(3, "int64", 2) || !args.Is(4, "int64", 3) || !args.Is(5, "int64", args.elements(5))) {
    return replay::kBadArguments;
  }
  if (const int status = call.Ready()) return status;
  const int64_t n = args.elements(5);
  UniformDraw draw{{kFromOptions, args.data<int32_t>(1), args.data<int32_t>(2)},
                   args.data<RandomState>(0),
                   args.data<int64_t>(3),
                   args.data<int64_t>(4),
                   n};
  if (replay::ShuffleFirst(&call, n, &draw)) {
    call.Launch(DrawKernel, (n + kThreads - 1) / kThreads, call.report, replay::NextTicket(), draw,
                args.data<int64_t>(5));
  }
  return call.End();
}

// (random_state) -> bits[n]. Changes random_state.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_random_bits, replay::ReadsFirst) {
  const Arguments &args = call.args;
  if (args.size() != 2 || !args.Is(0, "int64", 2) || !args.Is(1, "int64", args.elements(1))) return replay::kBadArguments;
  if (const int status = call.Ready()) return status;
  const int64_t n = args.elements(1);
  call.Launch(BitsKernel, replay::BlocksFor(n), replay::NextTicket(), args.data<RandomState>(0), args.data<uint64_t>(1),
              n);
  return call.End();
}

// The status of the first call that was refused on the GPU since this was asked, or 0, and the name of its kernel. Of
// calls in flight nothing is known; a caller who wants to know waits for them first.
MINDSPORE_REPLAY_EXPORT int replay_take_failure(const char **kernel) {
  volatile replay::Failure *failure = replay::the_failure;
  if (failure == nullptr || failure->status == replay::kOk) return replay::kOk;
  const int status = failure->status;
  *kernel = failure->kernel;
  failure->status = replay::kOk;
  return status;
}
