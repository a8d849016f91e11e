// Rows on their way into and out of columns on a GPU, in units of up to 16 bytes, neighbouring threads on neighbouring
// units. A block takes some rows of a batch, or a part of one if rows are wide.
#ifndef MINDSPORE_REPLAY_ROWS_CUH_
#define MINDSPORE_REPLAY_ROWS_CUH_

#include <algorithm>
#include <cstdint>

#include "adapters.h"
#include "arguments.h"
#include "device.cuh"

#ifdef __CUDACC__
#define REPLAY_UNROLL _Pragma("unroll")
#else
#define REPLAY_UNROLL
#endif

namespace replay {

constexpr int kMostColumns = 40;
constexpr int64_t kBytesOfBlock = 1 << 14;
constexpr int kTogether = 4;  // units that a thread loads before it stores the first
constexpr int kWarp = 32;

// A column and the rows that come or go.
struct Column {
  char *stored;
  char *batch;
  int64_t row_bytes;
};

struct Columns {
  int k;
  Column column[kMostColumns];
};

// How the rows of a batch are shared out: each block takes `per_block` rows, or one of `parts` parts of them.
struct Chunks {
  int64_t n;
  int64_t per_block;
  int64_t parts;

  int64_t Blocks() const { return (n + per_block - 1) / per_block * parts; }
};

inline Chunks ChunksOf(int64_t n, int64_t row_bytes) {
  constexpr int64_t kBlocksWanted = 512;
  const int64_t wanted = std::max<int64_t>(std::min(n, int64_t{32}), n / kBlocksWanted);
  const int64_t per_block =
      std::max<int64_t>(1, std::min({wanted, int64_t{kThreads}, kBytesOfBlock / std::max<int64_t>(row_bytes, 1)}));
  return {n, per_block, std::max<int64_t>(1, per_block * row_bytes / kBytesOfBlock)};
}

// What this block takes.
struct Chunk {
  int64_t first;
  int64_t count;
  int64_t part;
  int64_t parts;

  // This block's part of n things, from Begin(n) to End(n).
  __device__ int64_t Begin(int64_t n) const { return n * part / parts; }
  __device__ int64_t End(int64_t n) const { return n * (part + 1) / parts; }
};

__device__ inline Chunk ThisChunk(const Chunks &chunks) {
  const int64_t number = blockIdx.x / chunks.parts;
  const int64_t first = number * chunks.per_block;
  return {first, std::min(chunks.per_block, chunks.n - first), blockIdx.x % chunks.parts, chunks.parts};
}

// The largest unit, up to 16 bytes, that divides all of these numbers.
__device__ inline int64_t UnitOf(int64_t row_bytes, const void *a, const void *b) {
  const uint64_t bits =
      static_cast<uint64_t>(row_bytes) | reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | 16;
  return static_cast<int64_t>(bits & (~bits + 1));
}

// Calls copy(Unit{}) with a type as large as a unit.
template <typename Copy>
__device__ void WithUnit(int64_t unit, const Copy &copy) {
  switch (unit) {
    case 16: return copy(uint4{});
    case 8: return copy(uint2{});
    case 4: return copy(uint32_t{});
    case 2: return copy(uint16_t{});
    default: return copy(uint8_t{});
  }
}

// Copies units begin, ..., end - 1, shared out among `threads` threads of which this is number `thread`: from(u) says
// where a unit lies, null for one that is zero, and to(u) where it goes, null for nowhere.
template <typename Unit, typename From, typename To>
__device__ void CopyUnits(int64_t begin, int64_t end, int64_t thread, int64_t threads, const From &from, const To &to) {
  for (int64_t first = begin + thread; first < end; first += kTogether * threads) {
    Unit units[kTogether];
    REPLAY_UNROLL
    for (int j = 0; j < kTogether; ++j) {
      const int64_t u = first + j * threads;
      const Unit *source = u < end ? from(u) : nullptr;
      units[j] = source != nullptr ? *source : Unit{};
    }
    REPLAY_UNROLL
    for (int j = 0; j < kTogether; ++j) {
      const int64_t u = first + j * threads;
      Unit *target = u < end ? to(u) : nullptr;
      if (target != nullptr) *target = units[j];
    }
  }
}

enum Direction { kIn, kOut };

// Copies the rows of a chunk into the slots of all columns, or out of them. A slot of -1 takes no row, and gives zeros.
template <Direction kDirection>
__device__ void CopyRows(const Columns &columns, const Chunk &chunk, const int64_t *slots) {
  for (int c = 0; c < columns.k; ++c) {
    const Column &column = columns.column[c];
    const int64_t unit = UnitOf(column.row_bytes, column.stored, column.batch);
    WithUnit(unit, [&](auto type) {
      using Unit = decltype(type);
      auto *stored = reinterpret_cast<Unit *>(column.stored);
      auto *batch = reinterpret_cast<Unit *>(column.batch + chunk.first * column.row_bytes);
      const auto units = static_cast<uint32_t>(column.row_bytes / static_cast<int64_t>(sizeof(Unit)));
      const int64_t total = chunk.count * units;
      const int64_t begin = chunk.Begin(total), end = chunk.End(total);
      int64_t thread = threadIdx.x, threads = blockDim.x;
      if (end - begin <= kWarp * kTogether) {  // a column for each warp in turn, all at once
        if (threadIdx.x / kWarp != c % (blockDim.x / kWarp)) return;
        thread %= kWarp;
        threads = kWarp;
      }
      const auto in_batch = [=](int64_t u) { return batch + u; };
      const auto copy = [=](const auto &in_column) {
        if constexpr (kDirection == kOut) {
          CopyUnits<Unit>(begin, end, thread, threads, in_column, in_batch);
        } else {
          CopyUnits<Unit>(begin, end, thread, threads, in_batch, in_column);
        }
      };
      if (chunk.count == 1) {
        Unit *row = slots[0] < 0 ? nullptr : stored + slots[0] * units;
        copy([=](int64_t u) { return row == nullptr ? nullptr : row + u; });
      } else {
        copy([=](int64_t u) -> Unit * {
          const int64_t slot = slots[static_cast<uint32_t>(u) / units];
          return slot < 0 ? nullptr : stored + slot * units + static_cast<uint32_t>(u) % units;
        });
      }
    });
  }
}

// The columns 0, ..., k - 1 of a call and their rows, arguments first, ..., first + k - 1.
inline Columns ColumnsOf(const Arguments &args, int k, int first) {
  Columns columns{};
  columns.k = k;
  for (int i = 0; i < k; ++i) columns.column[i] = {args.data<char>(i), args.data<char>(first + i), args.RowBytes(i)};
  return columns;
}

// The bytes of a row of all columns together.
inline int64_t AllRowBytes(const Arguments &args, int k) {
  int64_t bytes = 0;
  for (int i = 0; i < k; ++i) bytes += args.RowBytes(i);
  return bytes;
}

// The cursors of a ring in the memory of the GPU.
struct RingState {
  int64_t capacity;
  int32_t *head;
  int32_t *count;

  __device__ bool Sound() const { return AreCursors(*head, *count, capacity); }
};

inline RingState RingStateOf(const Arguments &args, int k) {
  return {args.dim(0, 0), args.data<int32_t>(k), args.data<int32_t>(k + 1)};
}

// Gathers rows from the slots that a source names; of a batch each block gathers a chunk. A source has Begin(&draws,
// last), which makes all that the first `last` rows take and gives the same status in every block, Slot(draws, i) for
// row i, Note(i, slot), called once for each row, and End(draws, status), which all threads of the last block call
// while others may be copying. It stays as it was given: what a thread does not change it needs no copy of.
template <typename Source>
__global__ void __launch_bounds__(kThreads) GatherKernel(const Report report, unsigned ticket, const Source source,
                                                         const Columns columns, const Chunks chunks) {
  __shared__ int64_t slots[kThreads];
  const Chunk chunk = ThisChunk(chunks);
  typename Source::Draws draws;
  const int status = source.Begin(&draws, chunk.first + chunk.count);
  if (threadIdx.x < chunk.count) {
    const int64_t i = chunk.first + threadIdx.x;
    slots[threadIdx.x] = status == kOk ? source.Slot(draws, i, report) : -1;
    if (status == kOk && chunk.part == 0) source.Note(i, slots[threadIdx.x]);
  }
  const bool last = IsLastBlock(ticket);
  CopyRows<kOut>(columns, chunk, slots);
  if (!last) return;
  if (status != kOk && threadIdx.x == 0) report(status);
  source.End(draws, status);
}

// Gathers n rows of the columns 0, ..., k - 1 into the outputs from `first_output` on.
template <typename Source>
inline void Gather(Call *call, const Source &source, int k, int first_output, int64_t n) {
  const Chunks chunks = ChunksOf(n, AllRowBytes(call->args, k));
  call->Launch(GatherKernel<Source>, chunks.Blocks(), call->report, NextTicket(), source,
               ColumnsOf(call->args, k, first_output), chunks);
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_ROWS_CUH_
