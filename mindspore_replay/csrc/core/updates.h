// When rows were last updated where they lie: a checkpoint then knows which rows an earlier one has no more as they
// are.
#pragma once

#include <cstdint>

#include "core/portable.h"

namespace replay {

// Numbers of updates, counted from 1.
struct Updates {
  static constexpr int64_t kRowsOfBlock = 16;

  int64_t *numbers;  // updates so far, then for each block of slots the last that wrote a row there

  REPLAY_BOTH static constexpr int64_t Size(int64_t capacity) {
    return 1 + (capacity + kRowsOfBlock - 1) / kRowsOfBlock;
  }

  // Returns the number of an update that begins.
  REPLAY_BOTH int64_t Next() const { return numbers[0] + 1; }
  // Notes that it writes the row in a slot, -1 for none, before it does.
  REPLAY_BOTH void Mark(int64_t slot, int64_t number) const {
    if (slot >= 0) numbers[1 + static_cast<uint64_t>(slot) / kRowsOfBlock] = number;
  }
  // Counts it, after it has written all rows.
  REPLAY_BOTH void End(int64_t number) const { numbers[0] = number; }
};

}  // namespace replay
