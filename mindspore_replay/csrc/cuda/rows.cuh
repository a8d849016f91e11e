// Copies rows into and out of columns on a GPU, in units of up to 16 bytes. Neighbouring threads copy neighbouring
// units. A block takes some rows of a batch, or a part of one row if rows are wide.
#pragma once

#include <algorithm>
#include <cstdint>

#include "binding.h"
#include "cuda/device.cuh"

#ifdef __CUDACC__
#define REPLAY_UNROLL _Pragma("unroll")
#else
#define REPLAY_UNROLL
#endif

namespace replay {

constexpr int64_t kBytesOfBlock = 1 << 14;
constexpr int kTogether = 4;  // units that a thread loads before it stores the first
constexpr int kWarp = 32;

// A column and the rows to copy in or out.
struct Column {
  char *stored;
  char *batch;
  int64_t row_bytes;
  bool is_float;
};

struct Columns {
  int k;
  Column column[kMostColumns];
};

// The partition of a batch among blocks: each takes `per_block` rows, or one of `parts` parts of them.
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

// The share of this block.
struct Chunk {
  int64_t first;
  int64_t count;
  int64_t part;
  int64_t parts;

  // This block's part of n items is [Begin(n), End(n)).
  __device__ int64_t Begin(int64_t n) const { return n * part / parts; }
  __device__ int64_t End(int64_t n) const { return n * (part + 1) / parts; }
};

__device__ inline Chunk ThisChunk(const Chunks &chunks) {
  const int64_t number = blockIdx.x / chunks.parts;
  const int64_t first = number * chunks.per_block;
  return {first, std::min(chunks.per_block, chunks.n - first), blockIdx.x % chunks.parts, chunks.parts};
}

// Returns the largest unit, up to 16 bytes, that divides all of these numbers.
__device__ inline int64_t UnitOf(int64_t row_bytes, const void *a, const void *b) {
  const uint64_t bits =
      static_cast<uint64_t>(row_bytes) | reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | 16;
  return static_cast<int64_t>(bits & (~bits + 1));
}

// Calls copy(Unit{}) with a type of the unit's size.
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

// Copies units [begin, end) as thread number `thread` of `threads`. from(u) is the source of a unit, null for zeros,
// and to(u) its destination, null for none.
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

// Copies the rows of a chunk into the slots of k columns, or out of them. A slot of -1 receives no row and yields
// zeros.
template <Direction kDirection>
__device__ void CopyRows(const Column *columns, int k, const Chunk &chunk, const int64_t *slots) {
  for (int c = 0; c < k; ++c) {
    const Column &column = columns[c];
    const int64_t unit = UnitOf(column.row_bytes, column.stored, column.batch);
    WithUnit(unit, [&](auto type) {
      using Unit = decltype(type);
      auto *stored = reinterpret_cast<Unit *>(column.stored);
      auto *batch = reinterpret_cast<Unit *>(column.batch + chunk.first * column.row_bytes);
      const auto units = static_cast<uint32_t>(column.row_bytes / static_cast<int64_t>(sizeof(Unit)));
      const int64_t total = chunk.count * units;
      const int64_t begin = chunk.Begin(total), end = chunk.End(total);
      int64_t thread = threadIdx.x, threads = blockDim.x;
      if (end - begin <= kWarp * kTogether) {  // one warp per column, all columns at once
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

// Copies rows between a batch and slots that an earlier kernel has found.
template <Direction kDirection>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(const int64_t *slots, const Columns columns, const Chunks chunks) {
  const Chunk chunk = ThisChunk(chunks);
  CopyRows<kDirection>(columns.column, columns.k, chunk, slots + chunk.first);
}

// Returns the columns of a call, with its rows.
template <int kOperator>
Columns ColumnsOf(const Bound<kOperator> &args) {
  Columns columns{};
  columns.k = args.columns();
  const int first_row = args.at(NAMED("rows"));
  for (int i = 0; i < columns.k; ++i) {
    columns.column[i] = {args.raw().template data<char>(i), args.raw().template data<char>(first_row + i),
                         args.RowBytes(i), IsFloat(DtypeOf(args.raw().dtype(i)))};
  }
  return columns;
}

// Returns the partition of a call's rows among blocks.
template <int kOperator>
Chunks ChunksOf(const Bound<kOperator> &args, int64_t n) {
  int64_t bytes = 0;
  for (int i = 0; i < args.columns(); ++i) bytes += args.RowBytes(i);
  return ChunksOf(n, bytes);
}

}  // namespace replay
