// Rows of any length. The items of a row lie one behind the other in an arena, a ring of items of which a row never
// crosses the end. Cost O(bytes of the rows touched).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/parallel.h"
#include "core/random.h"
#include "core/scratch.h"

namespace replay {

// Where the items of a row are. Offsets count on at the arena's end: the slot of one is its remainder.
struct Reference {
  int64_t offset;
  int64_t length;
};

struct Arena {
  char *memory;
  int64_t items;
  int64_t item_bytes;

  // True if the items of a row lie inside the arena.
  bool Holds(const Reference &row) const {
    return row.offset >= 0 && row.length >= 0 && row.length <= items - row.offset % items;
  }
  char *At(const Reference &row) const { return memory + row.offset % items * item_bytes; }
  int64_t Bytes(const Reference &row) const { return row.length * item_bytes; }
};

// Cuts n drawn rows that have more than `most` items: after the first of them or, with the state of a generator, at
// random. Each row takes a number then, also one that is not cut.
inline void CutRows(Reference *rows, int64_t n, int64_t most, RandomState *random) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t more = rows[i].length - most;
    if (more <= 0) continue;
    if (random != nullptr) {
      const uint64_t bits = RandomBits(~static_cast<uint64_t>(random->key), static_cast<uint64_t>(random->counter + i));
      rows[i].offset += static_cast<int64_t>(bits % static_cast<uint64_t>(more + 1));
    }
    rows[i].length = most;
  }
  if (random != nullptr) random->counter += n;
}

// Places n new rows, of which the lengths are set, behind `tail`: a row that would cross the arena's end begins behind it,
// and all rows do if they would else need more than the arena. Returns the tail after them.
inline int64_t PlaceRows(Reference *rows, int64_t n, int64_t tail, int64_t items) {
  for (const int64_t first : {tail, (tail + items - 1) / items * items}) {
    int64_t end = first;
    for (int64_t i = 0; i < n; ++i) {
      if (end % items + rows[i].length > items) end += items - end % items;
      rows[i].offset = end;
      end += rows[i].length;
    }
    if (end - tail <= items || first != tail) return end;
  }
  return tail;
}

// Copies n rows to `to`, which has room for `most` items each; zeros follow the items, and longer rows are cut.
inline void PadRows(const Arena &arena, const Reference *rows, int64_t n, int64_t most, char *to) {
  const int64_t row_bytes = most * arena.item_bytes;
  if (row_bytes == 0) return;
  InParallel(n, n * row_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t bytes = std::min(arena.Bytes(rows[i]), row_bytes);
      std::memcpy(to + i * row_bytes, arena.At(rows[i]), static_cast<size_t>(bytes));
      std::memset(to + i * row_bytes + bytes, 0, static_cast<size_t>(row_bytes - bytes));
    }
  });
}

// Copies n rows to `packed`, one behind the other; or, with `in`, from there into the arena.
inline void PackRows(const Arena &arena, const Reference *rows, int64_t n, char *packed, bool in) {
  Vector<int64_t> starts(static_cast<size_t>(n));
  int64_t bytes = 0;
  for (int64_t i = 0; i < n; ++i) {
    starts[static_cast<size_t>(i)] = bytes;
    bytes += arena.Bytes(rows[i]);
  }
  InParallel(n, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (rows[i].length == 0) continue;
      char *items = arena.At(rows[i]), *other = packed + starts[static_cast<size_t>(i)];
      std::memcpy(in ? items : other, in ? other : items, static_cast<size_t>(arena.Bytes(rows[i])));
    }
  });
}

}  // namespace replay
