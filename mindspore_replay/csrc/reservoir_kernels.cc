// Adapters of the kernels on reservoirs; see kernels.cc for the rules that all keep.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "adapters.h"
#include "arguments.h"
#include "exclusive.h"
#include "reservoir.h"
#include "status.h"
#include "weighted_buffer.h"
#include "weights.h"

namespace {

using replay::Arguments;
using replay::kStateArguments;

// Whether arguments first, first + 1, ... are row_serials, serials, random_state, n rows of the k columns, and the output.
bool IsStream(const Arguments &args, int k, int first, int64_t n) {
  if (!args.Is(first, "int64", args.dim(0, 0)) || !args.Is(first + 1, "int64", 2) || !args.Is(first + 2, "int64", 2)) {
    return false;
  }
  const int64_t *serials = args.data<int64_t>(first + 1);
  return serials[1] >= 0 && serials[0] >= serials[1] && replay::HoldRows(args, first + 3, k, n) &&
         args.Is(args.size() - 1, "int32", 1);
}

// Writes those of the rows that Algorithm R keeps, and moves the cursors. Gives the slots written, in the order of rows.
std::vector<int64_t> InsertRows(const Arguments &args, int k, int first, int64_t n) {
  const int64_t capacity = args.dim(0, 0);
  int64_t *row_serials = args.data<int64_t>(first);
  int64_t *serials = args.data<int64_t>(first + 1);
  const int64_t key = args.data<int64_t>(first + 2)[0];
  std::vector<int64_t> kept, slots;
  for (int64_t row = 0; row < n; ++row) {
    const int64_t serial = serials[0] + row;
    const int64_t slot = replay::ReservoirSlot(key, serial, serials[1], capacity);
    if (slot < 0) continue;
    kept.push_back(row);
    slots.push_back(slot);
    row_serials[slot] = serial;
  }
  for (int i = 0; i < k; ++i) {
    const int64_t bytes = args.RowBytes(i);
    const char *rows = args.data<char>(first + 3 + i);
    for (size_t j = 0; j < kept.size(); ++j) {
      std::memcpy(args.data<char>(i) + slots[j] * bytes, rows + kept[j] * bytes, static_cast<size_t>(bytes));
    }
  }
  serials[0] += n;
  const auto count = static_cast<int32_t>(std::min(serials[0] - serials[1], capacity));
  *args.data<int32_t>(k + 1) = *args.data<int32_t>(args.size() - 1) = count;
  return slots;
}

}  // namespace

// (columns[k], head, count, row_serials, serials, random_state, rows[k]) -> rows stored after it. Each row that Algorithm R
// keeps goes to its slot, and its serial number to `row_serials`. Changes columns, count, row_serials and serials.
MINDSPORE_REPLAY_KERNEL(replay_reservoir_insert, replay::AfterState<5>) {
  const int k = (args.size() - 6) / 2;
  if (k < 1 || args.size() != 2 * k + 6) return replay::kBadArguments;
  if (!replay::IsRing(args, k)) return replay::kBadArguments;
  const int64_t n = args.RowsOf(k + 5, 0);
  if (!IsStream(args, k, k + 2, n)) return replay::kBadArguments;

  InsertRows(args, k, k + 2, n);
  return replay::kOk;
}

// (state of a buffer with weights, row_serials, serials, random_state, rows[k]) -> rows stored after it. The state names
// its rows by their slots: its own serial numbers are those of a ring that was never full. New rows have priority 1.
MINDSPORE_REPLAY_KERNEL(replay_reservoir_insert_weighted, replay::AfterState<replay::kStateArguments + 3>) {
  const int k = (args.size() - kStateArguments - 4) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 4) return replay::kBadArguments;
  const int first = k + kStateArguments;
  if (!replay::IsWeightedBuffer(args, k)) return replay::kBadArguments;
  const int64_t n = args.RowsOf(first + 3, 0);
  if (!IsStream(args, k, first, n)) return replay::kBadArguments;

  std::vector<int64_t> slots = InsertRows(args, k, first, n);
  args.data<int64_t>(k + 2)[0] = *args.data<int32_t>(k + 1);
  replay::BufferOf(args, k).rows.Replace(&slots);
  return replay::kOk;
}
