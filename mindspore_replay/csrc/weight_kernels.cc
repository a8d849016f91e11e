// Adapters of the kernels on sum trees and on buffers with weights; see kernels.cc for the rules that all keep.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "adapters.h"
#include "arguments.h"
#include "exclusive.h"
#include "status.h"
#include "sum_tree.h"
#include "weighted_buffer.h"
#include "weighted_draw.h"
#include "weights.h"

namespace {

using replay::Arguments;
using replay::BufferOf;
using replay::IsWeightedBuffer;
using replay::kLastClock;
using replay::kStateArguments;
using replay::RowWeights;
using replay::RuleOf;
using replay::SumTree;
using replay::WeightedBuffer;

// Whether argument 0 is a tree for `capacity` slots.
bool IsTree(const Arguments &args, int64_t capacity) {
  return capacity >= 1 && capacity <= std::numeric_limits<int32_t>::max() &&
         args.Is(0, "float64", SumTree::Size(capacity));
}

}  // namespace

// (weights, capacity[1], slots[n], values[n]) -> positive weights. Changes weights.
MINDSPORE_REPLAY_KERNEL(replay_tree_set, replay::AfterTree) {
  if (args.size() != 5 || !args.Is(1, "int64", 1) || !IsTree(args, *args.data<int64_t>(1))) return replay::kBadArguments;
  const int64_t n = args.elements(2);
  if (!args.Is(2, "int64", n) || !args.Is(3, "float64", n) || !args.Is(4, "float64", 1)) return replay::kBadArguments;
  const int64_t capacity = *args.data<int64_t>(1);
  std::vector<int64_t> slots(args.data<int64_t>(2), args.data<int64_t>(2) + n);
  const double *values = args.data<double>(3);
  if (!std::all_of(values, values + n, replay::IsWeight)) return replay::kBadWeight;
  if (std::any_of(slots.begin(), slots.end(), [&](int64_t slot) { return slot < 0 || slot >= capacity; })) {
    return replay::kIndexOutOfRange;
  }
  SumTree tree(args.data<double>(0), capacity);
  for (int64_t i = 0; i < n; ++i) tree.SetLeaf(slots[static_cast<size_t>(i)], values[i]);
  tree.Refresh(&slots);
  *args.data<double>(4) = tree.Positive();
  return replay::kOk;
}

// (weights, capacity[1], targets[n]) -> slots[n]. Targets are in (0, total].
MINDSPORE_REPLAY_KERNEL(replay_tree_descend, replay::ReadsFirst) {
  if (args.size() != 4 || !args.Is(1, "int64", 1) || !IsTree(args, *args.data<int64_t>(1))) return replay::kBadArguments;
  const int64_t n = args.elements(2);
  if (!args.Is(2, "float64", n) || !args.Is(3, "int64", n)) return replay::kBadArguments;
  const SumTree tree(args.data<double>(0), *args.data<int64_t>(1));
  std::vector<double> targets(args.data<double>(2), args.data<double>(2) + n);
  const double total = tree.Total();
  if (!std::all_of(targets.begin(), targets.end(), [&](double t) { return t > 0 && t <= total; })) {
    return replay::kIndexOutOfRange;
  }
  tree.Descend(targets.data(), n, args.data<int64_t>(3));
  return replay::kOk;
}

// (weights, capacity[1], head, count, ranges[m, 2]) -> sums[m] of the weights of logical rows, each a Python slice.
MINDSPORE_REPLAY_KERNEL(replay_tree_sums, replay::ReadsFirst) {
  if (args.size() != 6 || !args.Is(1, "int64", 1) || !IsTree(args, *args.data<int64_t>(1)) || !args.Is(2, "int32", 1) ||
      !args.Is(3, "int32", 1)) {
    return replay::kBadArguments;
  }
  const int64_t m = args.elements(5);
  const int64_t capacity = *args.data<int64_t>(1);
  const int64_t head = *args.data<int32_t>(2);
  const int64_t count = *args.data<int32_t>(3);
  if (!args.Is(4, "int64", 2 * m) || !args.Is(5, "float64", m) || head < 0 || head >= capacity || count < 0 ||
      count > capacity) {
    return replay::kBadArguments;
  }
  const SumTree tree(args.data<double>(0), capacity);
  const int64_t *ranges = args.data<int64_t>(4);
  for (int64_t i = 0; i < m; ++i) {
    const replay::RowRange rows = replay::SliceRows(ranges[2 * i], ranges[2 * i + 1], count);
    args.data<double>(5)[i] = replay::SumRows(tree, rows, head, capacity);
  }
  return replay::kOk;
}

// (weights, capacity[1]) -> total, smallest positive weight, number of positive weights.
MINDSPORE_REPLAY_KERNEL(replay_tree_summary, replay::ReadsFirst) {
  if (args.size() != 3 || !args.Is(1, "int64", 1) || !IsTree(args, *args.data<int64_t>(1)) || !args.Is(2, "float64", 3)) {
    return replay::kBadArguments;
  }
  const SumTree tree(args.data<double>(0), *args.data<int64_t>(1));
  double *summary = args.data<double>(2);
  summary[0] = tree.Total();
  summary[1] = tree.Minimum();
  summary[2] = tree.Positive();
  return replay::kOk;
}

// (state, factors[2], priority[1 or n], rows[k]) -> rows stored after it. Factors are alpha and epsilon.
MINDSPORE_REPLAY_KERNEL(replay_insert_weighted, replay::AfterStateWithPriority<replay::kStateArguments>) {
  const int k = (args.size() - kStateArguments - 3) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 3) return replay::kBadArguments;
  if (!IsWeightedBuffer(args, k)) return replay::kBadArguments;
  const int factors = k + kStateArguments;
  const int priority = factors + 1;
  const int rows = factors + 2;
  const int64_t n = args.RowsOf(rows, 0);
  if (!args.Is(factors, "float64", 2) || !replay::HoldRows(args, rows, k, n) || !replay::IsPriority(args, priority, n) ||
      !args.Is(args.size() - 1, "int32", 1)) {
    return replay::kBadArguments;
  }
  const int64_t given = args.elements(priority);
  if (!replay::AreWeights(args.data<float>(priority), given)) return replay::kBadWeight;

  WeightedBuffer buffer = BufferOf(args, k);
  const replay::RingWrite plan = replay::PlanWrite(n, buffer.ring.head, buffer.ring.count, buffer.ring.capacity);
  for (int i = 0; i < k; ++i) {
    replay::WriteRows(plan, buffer.ring.capacity, args.RowBytes(i), args.data<char>(rows + i), args.data<char>(i));
  }
  *args.data<int32_t>(k) = static_cast<int32_t>(plan.head);
  *args.data<int32_t>(k + 1) = static_cast<int32_t>(plan.count);
  const int64_t inserted = args.data<int64_t>(k + 2)[0] += n;
  buffer.rows.Insert(plan, n, RuleOf(args, factors), args.data<float>(priority), given, buffer.ring.capacity,
                     inserted - plan.count, true);
  *args.data<int32_t>(args.size() - 1) = static_cast<int32_t>(plan.count);
  return replay::kOk;
}

// (state, random_state, sample_range[2], options[3]) -> handles[n], rows[k], each eligible row equally likely. Options
// are replace, ordered, max_use. Weights must be 0 and 1.
MINDSPORE_REPLAY_KERNEL(replay_sample_weighted, replay::ReadsFirst) {
  const int k = (args.size() - kStateArguments - 4) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 4) return replay::kBadArguments;
  if (!IsWeightedBuffer(args, k)) return replay::kBadArguments;
  const int extra = k + kStateArguments;
  const int64_t n = args.elements(extra + 3);
  if (!args.Is(extra, "int64", 2) || !args.Is(extra + 1, "int64", 2) || !args.Is(extra + 2, "int64", 3) ||
      !args.Is(extra + 3, "int64", n) || !replay::HoldRows(args, extra + 4, k, n)) {
    return replay::kBadArguments;
  }

  WeightedBuffer buffer = BufferOf(args, k);
  const int64_t *bounds = args.data<int64_t>(extra + 1);
  const int64_t *options = args.data<int64_t>(extra + 2);
  const replay::RowRange rows = replay::SliceRows(bounds[0], bounds[1], buffer.ring.count);
  const auto eligible =
      static_cast<int64_t>(replay::SumRows(buffer.rows.tree, rows, buffer.ring.head, buffer.ring.capacity));
  if (eligible < n) return replay::kTooFewRows;
  std::vector<int64_t> slots(static_cast<size_t>(n));
  replay::DrawByRank(args.data<replay::RandomState>(extra), buffer.rows.tree, buffer.ring, rows, eligible,
                     options[0] != 0, options[1] != 0, n, slots.data());
  std::transform(slots.begin(), slots.end(), args.data<int64_t>(extra + 3),
                 [&](int64_t slot) { return buffer.ring.HandleOf(slot); });
  replay::GatherColumns(args, k, slots.data(), n, extra + 4);
  buffer.rows.Deliver(slots.data(), n, options[2]);
  return replay::kOk;
}

// (state, random_state, beta[1], given_beta[1], beta_step[1], options[3]) -> handles[n], importance weights[n], rows[k],
// drawn by weight. Options are ordered, max_use, and whether the buffer's smallest weight is the measure of importance.
// Moves beta by its step up to 1; the draw uses `given_beta`, which may be beta itself.
MINDSPORE_REPLAY_KERNEL(replay_sample_prioritized, replay::ReadsFirst) {
  const int k = (args.size() - kStateArguments - 7) / 2;
  if (k < 1 || args.size() != 2 * k + kStateArguments + 7) return replay::kBadArguments;
  if (!IsWeightedBuffer(args, k)) return replay::kBadArguments;
  const int extra = k + kStateArguments;
  const int outputs = extra + 5;
  const int64_t n = args.elements(outputs);
  if (!args.Is(extra, "int64", 2) || !args.Is(extra + 1, "float64", 1) || !args.Is(extra + 2, "float64", 1) ||
      !args.Is(extra + 3, "float64", 1) || !args.Is(extra + 4, "int64", 3) || !args.Is(outputs, "int64", n) ||
      !args.Is(outputs + 1, "float32", n) || !replay::HoldRows(args, outputs + 2, k, n)) {
    return replay::kBadArguments;
  }
  double *beta = args.data<double>(extra + 1);
  const double now = *args.data<double>(extra + 2);
  const int64_t *options = args.data<int64_t>(extra + 4);
  if (!(now >= 0 && now <= 1)) return replay::kBadWeight;

  WeightedBuffer buffer = BufferOf(args, k);
  if (buffer.rows.tree.Positive() < static_cast<double>(n)) return replay::kTooFewRows;
  std::vector<int64_t> slots(static_cast<size_t>(n));
  replay::DrawByWeight(args.data<replay::RandomState>(extra), buffer.rows.tree, buffer.ring, options[0] != 0, n,
                       slots.data());
  std::transform(slots.begin(), slots.end(), args.data<int64_t>(outputs),
                 [&](int64_t slot) { return buffer.ring.HandleOf(slot); });
  replay::ImportanceWeights(buffer.rows.tree, slots.data(), n, now, options[2] != 0, args.data<float>(outputs + 1));
  replay::GatherColumns(args, k, slots.data(), n, outputs + 2);
  buffer.rows.Deliver(slots.data(), n, options[1]);
  *beta = std::min(*beta + *args.data<double>(extra + 3), 1.0);
  return replay::kOk;
}

// (state with one column, factors[2], handles[n], priorities[1 or n]) -> dead handles, which are skipped.
MINDSPORE_REPLAY_KERNEL(replay_update_priorities, replay::AfterState<replay::kStateArguments>) {
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 4) return replay::kBadArguments;
  const int64_t n = args.elements(extra + 1);
  if (!IsWeightedBuffer(args, 1) || !args.Is(extra, "float64", 2) || !args.Is(extra + 1, "int64", n) ||
      !replay::IsPriority(args, extra + 2, n) || !args.Is(extra + 3, "int32", 1)) {
    return replay::kBadArguments;
  }
  const int64_t given = args.elements(extra + 2);
  const float *priorities = args.data<float>(extra + 2);
  if (!replay::AreWeights(priorities, given)) return replay::kBadWeight;
  WeightedBuffer buffer = BufferOf(args, 1);
  *args.data<int32_t>(extra + 3) = static_cast<int32_t>(buffer.rows.Update(
      buffer.ring, RuleOf(args, extra), args.data<int64_t>(extra + 1), n, priorities, given));
  return replay::kOk;
}

// (state with one column, handles[n]) -> rows removed. Dead handles are skipped.
MINDSPORE_REPLAY_KERNEL(replay_delete, replay::AfterState<replay::kStateArguments>) {
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 2) return replay::kBadArguments;
  const int64_t n = args.elements(extra);
  if (!IsWeightedBuffer(args, 1) || !args.Is(extra, "int64", n) || !args.Is(extra + 1, "int32", 1)) {
    return replay::kBadArguments;
  }
  WeightedBuffer buffer = BufferOf(args, 1);
  *args.data<int32_t>(extra + 1) =
      static_cast<int32_t>(buffer.rows.Delete(buffer.ring, args.data<int64_t>(extra), n));
  return replay::kOk;
}

// (state with one column, steps[1], max_staleness[1]) -> the clock. A negative `max_staleness` is no limit.
MINDSPORE_REPLAY_KERNEL(replay_advance, replay::AfterState<replay::kStateArguments>) {
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 3) return replay::kBadArguments;
  if (!IsWeightedBuffer(args, 1) || !args.Is(extra, "int64", 1) || !args.Is(extra + 1, "int64", 1) ||
      !args.Is(extra + 2, "int64", 1)) {
    return replay::kBadArguments;
  }
  const int64_t steps = *args.data<int64_t>(extra);
  WeightedBuffer buffer = BufferOf(args, 1);
  if (steps < 0 || steps > kLastClock - buffer.rows.clock->now) return replay::kBadArguments;
  buffer.rows.Advance(buffer.ring, steps, *args.data<int64_t>(extra + 1));
  *args.data<int64_t>(extra + 2) = buffer.rows.clock->now;
  return replay::kOk;
}

// (state with one column, handles[n]) -> priority[n], use count[n], staleness[n]; 0, -1, -1 where no row is stored.
MINDSPORE_REPLAY_KERNEL(replay_info, replay::ReadsFirst) {
  const int extra = 1 + kStateArguments;
  if (args.size() != extra + 4) return replay::kBadArguments;
  const int64_t n = args.elements(extra);
  if (!IsWeightedBuffer(args, 1) || !args.Is(extra, "int64", n) || !args.Is(extra + 1, "float32", n) ||
      !args.Is(extra + 2, "int32", n) || !args.Is(extra + 3, "int64", n)) {
    return replay::kBadArguments;
  }
  const WeightedBuffer buffer = BufferOf(args, 1);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t slot = buffer.ring.SlotOf(args.data<int64_t>(extra)[i]);
    const RowWeights &rows = buffer.rows;
    const int32_t uses = slot < 0 ? -1 : rows.Removed(slot) ? ~rows.use_counts[slot] : rows.use_counts[slot];
    args.data<float>(extra + 1)[i] = slot < 0 ? 0.0f : rows.priorities[slot];
    args.data<int32_t>(extra + 2)[i] = uses;
    args.data<int64_t>(extra + 3)[i] = slot < 0 ? -1 : rows.clock->now - rows.insertion_clocks[slot];
  }
  return replay::kOk;
}

// (state with one column) -> 0 rows stored.
MINDSPORE_REPLAY_KERNEL(replay_reset_weighted, replay::AfterState<replay::kStateArguments>) {
  if (args.size() != 2 + kStateArguments) return replay::kBadArguments;
  if (!IsWeightedBuffer(args, 1) || !args.Is(1 + kStateArguments, "int32", 1)) return replay::kBadArguments;
  int64_t *serials = args.data<int64_t>(3);
  serials[1] = serials[0];
  BufferOf(args, 1).rows.Reset(serials[0], args.dim(0, 0), replay::kFill);
  *args.data<int32_t>(1) = *args.data<int32_t>(2) = *args.data<int32_t>(1 + kStateArguments) = 0;
  return replay::kOk;
}
