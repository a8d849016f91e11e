// A ring of rows: the slot of a row, and copies in and out. Cost O(bytes of the rows touched).
#pragma once

#include <cstdint>
#include <cstring>

#include "core/parallel.h"
#include "core/portable.h"

namespace replay {

// Returns the slot of the row at logical position `row`, 0 for the oldest; row < 2 * capacity - head.
REPLAY_BOTH inline int64_t SlotOf(int64_t row, int64_t head, int64_t capacity) {
  const int64_t slot = head + row;
  return slot < capacity ? slot : slot - capacity;
}

// True if head and count are valid cursors of a ring.
REPLAY_BOTH inline bool AreCursors(int64_t head, int64_t count, int64_t capacity) {
  return head >= 0 && head < capacity && count >= 0 && count <= capacity;
}

// The destination of an insertion of n rows, and the cursors after it.
struct RingWrite {
  int64_t skipped;  // rows at the front of the batch that the batch itself would overwrite
  int64_t written;  // rows that are kept
  int64_t slot;     // slot of the first row that is kept
  int64_t head;
  int64_t count;
};

REPLAY_BOTH inline RingWrite PlanWrite(int64_t n, int64_t head, int64_t count, int64_t capacity) {
  const int64_t written = n < capacity ? n : capacity;
  const int64_t total = count + n;
  const int64_t kept = total < capacity ? total : capacity;
  return {n - written, written, (head + count + n - written) % capacity, (head + total - kept) % capacity, kept};
}

// Copies the `written` rows of a plan into a column, wrapping at the ring's end.
inline void WriteRows(const RingWrite &plan, int64_t capacity, int64_t row_bytes, const char *rows, char *column) {
  rows += plan.skipped * row_bytes;
  const int64_t before_end = capacity - plan.slot < plan.written ? capacity - plan.slot : plan.written;
  CopyBytes(column + plan.slot * row_bytes, rows, before_end * row_bytes);
  CopyBytes(column, rows + before_end * row_bytes, (plan.written - before_end) * row_bytes);
}

// Prefetches rows that are about to be copied: in a large column each is a cache miss, and the misses overlap.
inline void PrefetchRows(const char *column, int64_t row_bytes, const int64_t *slots, int64_t n) {
  for (int64_t i = 0; i < n; ++i) __builtin_prefetch(column + slots[i] * row_bytes);
}

template <int64_t kBytes>
inline void GatherFixed(const char *column, const int64_t *slots, int64_t n, char *rows) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(rows + i * kBytes, column + slots[i] * kBytes, kBytes);
}

// Copies the rows at `slots`, each in [0, capacity), to `rows`.
inline void GatherRows(const char *column, int64_t row_bytes, const int64_t *slots, int64_t n, char *rows) {
  switch (row_bytes) {
    case 1: return GatherFixed<1>(column, slots, n, rows);
    case 2: return GatherFixed<2>(column, slots, n, rows);
    case 4: return GatherFixed<4>(column, slots, n, rows);
    case 8: return GatherFixed<8>(column, slots, n, rows);
    case 16: return GatherFixed<16>(column, slots, n, rows);
    default:
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(rows + i * row_bytes, column + slots[i] * row_bytes, static_cast<size_t>(row_bytes));
      }
  }
}

}  // namespace replay
