// The kernels of reservoir_kernels.cc on a GPU; see kernels.cu for the rules that all keep.
#include <algorithm>
#include <cstdint>

#include "adapters.h"
#include "device.cuh"
#include "reservoir.h"
#include "rows.cuh"
#include "status.h"
#include "weighted_buffer.h"
#include "weights.cuh"

namespace {

using replay::Arguments;
using replay::Call;
using replay::Chunk;
using replay::Chunks;
using replay::Columns;
using replay::kMostColumns;
using replay::kStateArguments;
using replay::kThreads;
using replay::RandomState;
using replay::Report;
using replay::RingState;
using replay::WeightedState;

// A stream of rows on its way into a reservoir. Of rows of one batch for one slot the last stays: the one that has its
// serial number there when all have tried.
struct Stream {
  RingState ring;
  int64_t *row_serials;
  int64_t *serials;
  const RandomState *random;
  int64_t n;

  __device__ bool Sound() const { return ring.Sound() && serials[1] >= 0 && serials[0] >= serials[1]; }
  __device__ int64_t SlotOf(int64_t row) const {
    return replay::ReservoirSlot(random->key, serials[0] + row, serials[1], ring.capacity);
  }
  __device__ int32_t CountAfter() const {
    return static_cast<int32_t>(std::min(serials[0] + n - serials[1], ring.capacity));
  }
};

__device__ bool IsSound(const Stream &stream, const WeightedState *state) {
  return stream.Sound() && (state == nullptr || state->Sound());
}

__device__ void Claim(const Stream &stream) {
  for (int64_t row = replay::FirstOfGrid(); row < stream.n; row += replay::GridStride()) {
    const int64_t slot = stream.SlotOf(row);
    if (slot >= 0)
      atomicMax(reinterpret_cast<long long *>(&stream.row_serials[slot]),
                static_cast<long long>(stream.serials[0] + row));
  }
}

// Finds the slots of the rows of this block's chunk that stay, -1 for the others; `state` is null where rows have no
// weights.
__device__ void Mark(const Stream &stream, const WeightedState *state, const Chunks &chunks, int64_t *slots) {
  const Chunk chunk = replay::ThisChunk(chunks);
  if (threadIdx.x < chunk.count) {
    const int64_t row = chunk.first + threadIdx.x;
    int64_t slot = stream.SlotOf(row);
    if (slot >= 0 && stream.row_serials[slot] != stream.serials[0] + row) slot = -1;
    slots[threadIdx.x] = slot;
    if (slot >= 0 && state != nullptr && chunk.part == 0) state->rows.Renew(slot);
  }
}

__device__ void Commit(const Stream &stream, int32_t *stored) {
  const int32_t count = stream.CountAfter();
  stream.serials[0] += stream.n;
  *stream.ring.count = *stored = count;
}

__global__ void __launch_bounds__(kThreads) ClaimKernel(const Stream stream) {
  if (IsSound(stream, nullptr)) Claim(stream);
}

__global__ void __launch_bounds__(kThreads) WeightedClaimKernel(const Stream stream, const WeightedState state) {
  if (IsSound(stream, &state)) Claim(stream);
}

__global__ void __launch_bounds__(kThreads) InsertKernel(const Report report, unsigned ticket, const Stream stream,
                                                         const Columns columns, const Chunks chunks, int32_t *stored) {
  __shared__ int64_t slots[kThreads];
  if (!IsSound(stream, nullptr)) return replay::Refuse(report, replay::kBadArguments, stored);
  Mark(stream, nullptr, chunks, slots);
  const bool last = replay::IsLastBlock(ticket);
  replay::CopyRows<replay::kIn>(columns, replay::ThisChunk(chunks), slots);
  if (last && threadIdx.x == 0) Commit(stream, stored);
}

__global__ void __launch_bounds__(kThreads)
    WeightedInsertKernel(const Report report, unsigned ticket, const Stream stream, const WeightedState state,
                         const Columns columns, const Chunks chunks, int32_t *stored) {
  __shared__ int64_t slots[kThreads];
  if (!IsSound(stream, &state)) return replay::Refuse(report, replay::kBadArguments, stored);
  Mark(stream, &state, chunks, slots);
  const bool last = replay::IsLastBlock(ticket);
  replay::CopyRows<replay::kIn>(columns, replay::ThisChunk(chunks), slots);
  if (!last) return;
  replay::RefreshAbove(state.rows.tree, stream.n, [&](int64_t row) { return stream.SlotOf(row); });
  if (threadIdx.x != 0) return;
  Commit(stream, stored);
  state.serials[0] = *stored;
}

// Whether arguments first, first + 1, ... are row_serials, serials, random_state, n rows of the k columns, and the
// output.
bool HasStream(const Arguments &args, int k, int first, int64_t n) {
  return args.Is(first, "int64", args.dim(0, 0)) && args.Is(first + 1, "int64", 2) && args.Is(first + 2, "int64", 2) &&
         replay::HoldRows(args, first + 3, k, n) && args.Is(args.size() - 1, "int32", 1);
}

Stream StreamOf(const Arguments &args, int k, int first, int64_t n) {
  return {replay::RingStateOf(args, k), args.data<int64_t>(first), args.data<int64_t>(first + 1),
          args.data<RandomState>(first + 2), n};
}

}  // namespace

// (columns[k], head, count, row_serials, serials, random_state, rows[k]) -> rows stored after it. Each row that
// Algorithm R keeps goes to its slot, and its serial number to `row_serials`. Changes columns, count, row_serials and
// serials.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_reservoir_insert, replay::AfterState<5>) {
  const Arguments &args = call.args;
  const int k = (args.size() - 6) / 2;
  if (k < 1 || args.size() != 2 * k + 6 || !replay::HasRing(args, k)) return replay::kBadArguments;
  const int64_t n = args.RowsOf(k + 5, 0);
  if (!HasStream(args, k, k + 2, n)) return replay::kBadArguments;
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const Stream rows = StreamOf(args, k, k + 2, n);
  const Chunks chunks = replay::ChunksOf(n, replay::AllRowBytes(args, k));
  call.Launch(ClaimKernel, replay::BlocksFor(n), rows);
  call.Launch(InsertKernel, chunks.Blocks(), call.report, replay::NextTicket(), rows, replay::ColumnsOf(args, k, k + 5),
              chunks, args.data<int32_t>(args.size() - 1));
  return call.End();
}

// (state of a buffer with weights, row_serials, serials, random_state, rows[k]) -> rows stored after it. The state
// names its rows by their slots: its own serial numbers are those of a ring that was never full. New rows have
// priority 1.
MINDSPORE_REPLAY_CUDA_KERNEL(replay_reservoir_insert_weighted, replay::AfterState<replay::kStateArguments + 3>) {
  const Arguments &args = call.args;
  const int k = (args.size() - kStateArguments - 4) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 4 || !replay::HasWeights(args, k)) return replay::kBadArguments;
  const int first = k + kStateArguments;
  const int64_t n = args.RowsOf(first + 3, 0);
  if (!HasStream(args, k, first, n)) return replay::kBadArguments;
  if (k > kMostColumns) return replay::kTooMany;
  if (const int status = call.Ready()) return status;
  const Stream rows = StreamOf(args, k, first, n);
  const WeightedState state = replay::WeightedStateOf(args, k);
  const Chunks chunks = replay::ChunksOf(n, replay::AllRowBytes(args, k));
  call.Launch(WeightedClaimKernel, replay::BlocksFor(n), rows, state);
  call.Launch(WeightedInsertKernel, chunks.Blocks(), call.report, replay::NextTicket(), rows, state,
              replay::ColumnsOf(args, k, first + 3), chunks, args.data<int32_t>(args.size() - 1));
  return call.End();
}
