// Flags of rows in time, as an insertion sets them: from what the caller says of a row, and from its column that says
// whether the episode has terminated.
#pragma once

#include <cstdint>

#include "core/portable.h"

namespace replay {

// Flags of a row in time.
enum RowFlag : uint8_t {
  kEnd = 1,      // the last row of its episode
  kFinal = 2,    // read, but never drawn: it holds only the observation after its episode, or its next one is not known
  kDeleted = 4,  // no window may contain it: it is deleted or pending
  kOpen = 8,     // a final row may follow it in its episode; without kEnd, one has followed
};

// True if a number of any dtype is not zero; minus zero is zero.
REPLAY_BOTH inline bool IsTrue(const char *value, int64_t bytes, bool is_float) {
  for (int64_t i = 0; i < bytes; ++i) {
    const bool sign_byte = is_float && i == bytes - 1;
    if (static_cast<uint8_t>(value[i]) & (sign_byte ? 0x7F : 0xFF)) return true;
  }
  return false;
}

// Rows of one number each, read as true or false.
struct BoolRows {
  const char *rows;  // null if there are none
  int64_t bytes;     // of one row
  bool is_float;

  REPLAY_BOTH bool operator()(int64_t i) const { return IsTrue(rows + i * bytes, bytes, is_float); }
};

// True for a stored row that the caller said is final.
REPLAY_BOTH inline bool IsFinal(uint8_t flags) { return (flags & (kFinal | kOpen)) == kFinal; }

// True if a row of which the caller says `said` belongs to the episode of the row before it. Only a row that is final
// and no end of its own is the observation after an episode that has ended.
REPLAY_BOTH inline bool Continues(uint8_t before, uint8_t said) {
  return !(before & kEnd) || ((before & kOpen) && said == kFinal);
}

// Returns the flags of a row that a final row follows in its episode.
REPLAY_BOTH inline uint8_t Followed(uint8_t flags) { return flags & static_cast<uint8_t>(~(kEnd | kFinal)); }

// The flags of the n rows of an insertion.
struct Marks {
  const uint8_t *ends;  // what the caller says: kEnd, kFinal, both or neither, for all rows or for each
  int64_t given;
  int64_t n;
  int64_t streams;
  BoolRows terminated;  // the column of these rows that says so, if there is one
  bool needs_next;      // true if the observation after a row is that of the next row
  bool follows;         // false if the rows stored before are those of another process

  // Returns what the caller says of a row.
  REPLAY_BOTH uint8_t Said(int64_t i) const { return ends[given == n ? i : 0]; }

  // Returns the flags of a row, whatever follows it. A row that says it has terminated ends its episode, and so does a
  // final one. The last row of one that has not terminated cannot be drawn if its next observation is needed.
  REPLAY_BOTH uint8_t OwnFlags(int64_t i) const {
    const uint8_t said = Said(i);
    if (said & kFinal) return kEnd | kFinal;
    if (terminated.rows == nullptr) return said;
    const bool is_terminated = terminated(i);
    if (said & kEnd) return is_terminated || !needs_next ? said : said | kFinal | kOpen;
    return is_terminated ? kEnd | kOpen : 0;
  }

  // Returns the flags of a row, with the row after it in its stream taken into account.
  REPLAY_BOTH uint8_t At(int64_t i) const {
    const uint8_t flags = OwnFlags(i);
    if (terminated.rows == nullptr || !(flags & kOpen) || i + streams >= n || Said(i + streams) != kFinal) return flags;
    return Followed(flags);
  }
};

}  // namespace replay
