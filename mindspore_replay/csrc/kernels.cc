// Adapters between the C interface of MindSpore's custom operators and the algorithms in the headers. Each checks its
// arguments in every build and returns a Status; on any but kOk it has changed nothing. Inputs come first, outputs last.
// A kernel's first argument, a buffer's first column, chooses the lock that it holds while it works.
#include <cstdint>
#include <vector>

#include "adapters.h"
#include "arguments.h"
#include "draw.h"
#include "exclusive.h"
#include "random.h"
#include "ring.h"
#include "status.h"

namespace {

using replay::Arguments;
using replay::GatherColumns;
using replay::HoldRows;
using replay::IsRing;

// Draws n slots of a ring uniformly. `range` is a slice of logical rows, `options` = capacity, replace, ordered.
replay::Status DrawUniform(replay::RandomState *state, int64_t head, int64_t count, const int64_t *range,
                           const int64_t *options, int64_t n, int64_t *slots) {
  const int64_t capacity = options[0];
  if (capacity < 1 || head < 0 || head >= capacity || count < 0 || count > capacity) return replay::kBadArguments;
  const replay::RowRange rows = replay::SliceRows(range[0], range[1], count);
  if (rows.size < n) return replay::kTooFewRows;
  if (options[1] != 0) {
    replay::DrawWithReplacement(state, rows, n, slots);
  } else {
    replay::DrawWithoutReplacement(state, rows, n, slots);
  }
  // A full ring holds the same rows in any order, so a draw from all of it may name slots directly.
  if (options[2] != 0 || rows.size < capacity) {
    for (int64_t i = 0; i < n; ++i) slots[i] = replay::SlotOf(slots[i], head, capacity);
  }
  return replay::kOk;
}

}  // namespace

// (columns[k], head, count, serials, rows[k]) -> rows stored after it. Changes columns, head, count and serials.
MINDSPORE_REPLAY_KERNEL(replay_ring_write, replay::AfterState<3>) {
  const int k = (args.size() - 4) / 2;
  if (k < 1 || args.size() != 2 * k + 4) return replay::kBadArguments;
  if (!IsRing(args, k) || !args.Is(k + 2, "int64", 2)) return replay::kBadArguments;
  const int rows = k + 3;
  const int64_t n = args.RowsOf(rows, 0);
  if (!HoldRows(args, rows, k, n) || !args.Is(args.size() - 1, "int32", 1)) return replay::kBadArguments;

  int32_t *head = args.data<int32_t>(k);
  int32_t *count = args.data<int32_t>(k + 1);
  const int64_t capacity = args.dim(0, 0);
  const replay::RingWrite plan = replay::PlanWrite(n, *head, *count, capacity);
  for (int i = 0; i < k; ++i) {
    replay::WriteRows(plan, capacity, args.RowBytes(i), args.data<char>(rows + i), args.data<char>(i));
  }
  *head = static_cast<int32_t>(plan.head);
  *count = static_cast<int32_t>(plan.count);
  args.data<int64_t>(k + 2)[0] += n;
  *args.data<int32_t>(args.size() - 1) = *count;
  return replay::kOk;
}

// (columns[k], head, count, index) -> rows[k] at logical positions; negative ones count from the newest.
MINDSPORE_REPLAY_KERNEL(replay_ring_read, replay::ReadsFirst) {
  const int k = (args.size() - 3) / 2;
  if (k < 1 || args.size() != 2 * k + 3) return replay::kBadArguments;
  if (!IsRing(args, k)) return replay::kBadArguments;
  const int index = k + 2;
  const int64_t n = args.elements(index);
  if (!args.Is(index, "int64", n) || !HoldRows(args, index + 1, k, n)) return replay::kBadArguments;

  const int64_t capacity = args.dim(0, 0);
  const int64_t head = *args.data<int32_t>(k);
  const int64_t count = *args.data<int32_t>(k + 1);
  std::vector<int64_t> slots(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = args.data<int64_t>(index)[i];
    if (row < -count || row >= count) return replay::kIndexOutOfRange;
    slots[static_cast<size_t>(i)] = replay::SlotOf(row < 0 ? row + count : row, head, capacity);
  }
  GatherColumns(args, k, slots.data(), n, index + 1);
  return replay::kOk;
}

// (columns[k], slots[n]) -> rows[k] at these slots.
MINDSPORE_REPLAY_KERNEL(replay_gather_rows, replay::ReadsFirst) {
  const int k = (args.size() - 1) / 2;
  if (k < 1 || args.size() != 2 * k + 1) return replay::kBadArguments;
  if (!replay::AreColumns(args, k)) return replay::kBadArguments;
  const int64_t n = args.elements(k);
  if (!args.Is(k, "int64", n) || !HoldRows(args, k + 1, k, n)) return replay::kBadArguments;

  const int64_t *slots = args.data<int64_t>(k);
  for (int64_t i = 0; i < n; ++i) {
    if (slots[i] < 0 || slots[i] >= args.dim(0, 0)) return replay::kIndexOutOfRange;
  }
  GatherColumns(args, k, slots, n, k + 1);
  return replay::kOk;
}

// (columns[k], head, count, random_state, sample_range[2], options[3]) -> rows[k], drawn uniformly. Changes
// random_state.
MINDSPORE_REPLAY_KERNEL(replay_sample_uniform, replay::ReadsFirst) {
  const int k = (args.size() - 5) / 2;
  if (k < 1 || args.size() != 2 * k + 5) return replay::kBadArguments;
  if (!IsRing(args, k) || !args.Is(k + 2, "int64", 2) || !args.Is(k + 3, "int64", 2) || !args.Is(k + 4, "int64", 3) ||
      args.data<int64_t>(k + 4)[0] != args.dim(0, 0)) {
    return replay::kBadArguments;
  }
  const int64_t n = args.RowsOf(k + 5, 0);
  if (!HoldRows(args, k + 5, k, n)) return replay::kBadArguments;

  std::vector<int64_t> slots(static_cast<size_t>(n));
  const replay::Status status =
      DrawUniform(args.data<replay::RandomState>(k + 2), *args.data<int32_t>(k), *args.data<int32_t>(k + 1),
                  args.data<int64_t>(k + 3), args.data<int64_t>(k + 4), n, slots.data());
  if (status == replay::kOk) GatherColumns(args, k, slots.data(), n, k + 5);
  return status;
}

// (random_state, head, count, sample_range[2], options[3]) -> slots[n], drawn uniformly. Changes random_state.
MINDSPORE_REPLAY_KERNEL(replay_draw_uniform, replay::ReadsFirst) {
  if (args.size() != 6 || !args.Is(0, "int64", 2) || !args.Is(1, "int32", 1) || !args.Is(2, "int32", 1) ||
      !args.Is(3, "int64", 2) || !args.Is(4, "int64", 3) || !args.Is(5, "int64", args.elements(5))) {
    return replay::kBadArguments;
  }
  return DrawUniform(args.data<replay::RandomState>(0), *args.data<int32_t>(1), *args.data<int32_t>(2),
                     args.data<int64_t>(3), args.data<int64_t>(4), args.elements(5), args.data<int64_t>(5));
}

// (random_state) -> bits[n]. Changes random_state.
MINDSPORE_REPLAY_KERNEL(replay_random_bits, replay::ReadsFirst) {
  if (args.size() != 2 || !args.Is(0, "int64", 2) || !args.Is(1, "int64", args.elements(1))) return replay::kBadArguments;
  replay::RandomState *state = args.data<replay::RandomState>(0);
  uint64_t *bits = args.data<uint64_t>(1);
  const int64_t n = args.elements(1);
  for (int64_t i = 0; i < n; ++i) {
    bits[i] = replay::RandomBits(static_cast<uint64_t>(state->key), static_cast<uint64_t>(state->counter + i));
  }
  state->counter += n;
  return replay::kOk;
}

// For Python, where it looks at several Parameters of a buffer: keeps the kernels on it out, and lets them in again. The
// address is that of the buffer's first column.
MINDSPORE_REPLAY_EXPORT void replay_hold(const void *address) { replay::Exclusive::LockOf(address).lock(); }
MINDSPORE_REPLAY_EXPORT void replay_let_go(const void *address) { replay::Exclusive::LockOf(address).unlock(); }
