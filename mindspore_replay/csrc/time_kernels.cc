// Adapters of the kernels on buffers whose rows know their episode; see kernels.cc for the rules that all keep.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "adapters.h"
#include "arguments.h"
#include "exclusive.h"
#include "groups.h"
#include "outputs.h"
#include "parallel.h"
#include "status.h"
#include "timed_buffer.h"
#include "timeline.h"
#include "weighted_buffer.h"
#include "weighted_draw.h"
#include "weights.h"
#include "windows.h"

namespace {

using replay::Arguments;
using replay::Hindsight;
using replay::IsTimedBuffer;
using replay::kTimedArguments;
using replay::Plan;
using replay::Target;
using replay::Timeline;
using replay::TimelineOf;
using replay::Window;

constexpr int64_t kAhead = 1;  // windows that are prefetched

// Asks for the memory of the rows of a window, if they lie together.
void Prefetch(const std::vector<Target> &targets, const Timeline &time, const Window &window) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kMost = 1 << 14;
  if (time.streams() > 1) return;
  for (const Target &target : targets) {
    if (!target.output.HasRows()) continue;
    const int64_t first = std::max(-window.start.before, replay::FirstOf(target.output, window));
    const int64_t bytes = (target.output.runs - 1 + target.output.length) * target.row_bytes;
    const char *begin = target.rows + time.Shifted(window.start.slot, first) * target.row_bytes;
    for (int64_t line = 0; line < std::min(bytes, kMost); line += kLine) __builtin_prefetch(begin + line);
  }
}

}  // namespace

// (state, factors[2], priority[1 or n], ends[1 or n], rows[k]) -> rows stored after it. Factors are alpha and epsilon;
// ends are flags of rows: 1 the last of its episode, 3 that and only an observation.
MINDSPORE_REPLAY_KERNEL(replay_insert_timed, replay::AfterStateWithPriority<replay::kTimedArguments>) {
  const int k = (args.size() - kTimedArguments - 4) / 2;
  if (k < 1 || args.size() != 2 * k + kTimedArguments + 4) return replay::kBadArguments;
  if (!IsTimedBuffer(args, k)) return replay::kBadArguments;
  const int factors = k + kTimedArguments;
  const int priority = factors + 1;
  const int ends = factors + 2;
  const int rows = factors + 3;
  const int64_t n = args.RowsOf(rows, 0);
  const int64_t given_ends = args.elements(ends);
  if (!args.Is(factors, "float64", 2) || !replay::HoldRows(args, rows, k, n) || !replay::IsPriority(args, priority, n) ||
      !args.Is(ends, "uint8", given_ends) || (given_ends != 1 && given_ends != n) || !args.Is(args.size() - 1, "int32", 1)) {
    return replay::kBadArguments;
  }
  const int64_t given = args.elements(priority);
  if (!replay::AreWeights(args.data<float>(priority), given)) return replay::kBadWeight;
  const uint8_t *flags = args.data<uint8_t>(ends);
  std::vector<int64_t> steps;
  if (!TimelineOf(args, k).NextSteps(flags, given_ends, n, &steps)) return replay::kTooLong;

  replay::WeightedBuffer buffer = replay::BufferOf(args, k);
  const replay::RingWrite plan = replay::PlanWrite(n, buffer.ring.head, buffer.ring.count, buffer.ring.capacity);
  for (int i = 0; i < k; ++i) {
    replay::WriteRows(plan, buffer.ring.capacity, args.RowBytes(i), args.data<char>(rows + i), args.data<char>(i));
  }
  *args.data<int32_t>(k) = static_cast<int32_t>(plan.head);
  *args.data<int32_t>(k + 1) = static_cast<int32_t>(plan.count);
  const int64_t inserted = args.data<int64_t>(k + 2)[0] += n;
  buffer.rows.Insert(plan, n, replay::RuleOf(args, factors), args.data<float>(priority), given, buffer.ring.capacity,
                     inserted - plan.count, false);
  TimelineOf(args, k).Insert(plan, n, replay::RuleOf(args, factors), flags, given_ends, steps);
  *args.data<int32_t>(args.size() - 1) = static_cast<int32_t>(plan.count);
  return replay::kOk;
}

// (state, random_state, sample_range[2], beta[1], given_beta[1], beta_step[1], numbers, plan) -> handles[n], importance
// weights[n], outputs. `numbers` are the ratio of samples with another goal and the powers of gamma from 0 to the length
// of a chain. Moves beta by its step up to 1; the draw uses `given_beta`, which may be beta itself.
MINDSPORE_REPLAY_KERNEL(replay_sample_windows, replay::ReadsFirst) {
  const int k = args.LeadingColumns("int32");
  const int extra = k + kTimedArguments;
  const int first_output = extra + 9;
  if (k < 1 || args.size() < first_output) return replay::kBadArguments;
  if (!IsTimedBuffer(args, k)) return replay::kBadArguments;
  const int outputs = args.size() - first_output;
  const int64_t n = args.elements(extra + 7);
  const Plan *plan = args.data<Plan>(extra + 6);
  if (!replay::IsWindowSample(args, k, outputs) || !replay::IsPlan(*plan, args.elements(extra + 5))) {
    return replay::kBadArguments;
  }
  const auto *wanted = reinterpret_cast<const replay::Output *>(plan + 1);
  std::vector<replay::Field> columns;
  for (int i = 0; i < k; ++i) columns.push_back(replay::FieldOf(args, i));
  std::vector<Target> targets;
  for (int i = 0; i < outputs; ++i) {
    const replay::Field field = replay::FieldOf(args, first_output + i);
    if (!replay::HoldsOutput(field, columns.data(), k, wanted[i], n, plan->chain.steps)) return replay::kBadArguments;
    targets.push_back(replay::TargetOf(field, columns.data(), wanted[i], n));
  }
  double *beta = args.data<double>(extra + 2);
  const double now = *args.data<double>(extra + 3);
  if (!(now >= 0 && now <= 1)) return replay::kBadWeight;

  replay::WeightedBuffer buffer = replay::BufferOf(args, k);
  const Timeline time = TimelineOf(args, k);
  auto *random = args.data<replay::RandomState>(extra);
  const int64_t *bounds = args.data<int64_t>(extra + 1);
  std::vector<int64_t> slots(static_cast<size_t>(n));
  if (plan->prioritized) {
    if (buffer.rows.tree.Positive() < static_cast<double>(n)) return replay::kTooFewRows;
    replay::DrawByWeight(random, buffer.rows.tree, buffer.ring, plan->ordered != 0, n, slots.data());
  } else {
    const replay::RowRange rows = replay::SliceRows(bounds[0], bounds[1], buffer.ring.count);
    const auto eligible =
        static_cast<int64_t>(replay::SumRows(buffer.rows.tree, rows, buffer.ring.head, buffer.ring.capacity));
    if (eligible < n) return replay::kTooFewRows;
    replay::DrawByRank(random, buffer.rows.tree, buffer.ring, rows, eligible, plan->replace != 0, plan->ordered != 0, n,
                       slots.data());
  }
  if (plan->prioritized) {
    replay::ImportanceWeights(buffer.rows.tree, slots.data(), n, now, plan->by_buffer != 0, args.data<float>(extra + 8));
  } else {
    std::fill_n(args.data<float>(extra + 8), n, 1.0f);
  }

  const int64_t reach = replay::Reach(wanted, outputs, plan->chain.steps);
  for (const int64_t slot : slots) time.Prefetch(slot, reach);
  const double *numbers = args.data<double>(extra + 5);
  const Hindsight hindsight{plan->strategy, numbers[0]};
  std::vector<Window> windows(slots.size());
  for (int64_t i = 0; i < n; ++i) {
    Window &window = windows[static_cast<size_t>(i)];
    window.start = time.StartAt(slots[static_cast<size_t>(i)], reach);
    window.chain = replay::ChainLength(time, plan->chain, window.start);
    window.goal_slot = -1;
    args.data<int64_t>(extra + 7)[i] = window.start.serial;
    if (plan->strategy == Hindsight::kNone) continue;
    const auto key = static_cast<uint64_t>(random->key);
    const auto counter = static_cast<uint64_t>(random->counter + i);
    window.goal_slot = hindsight.GoalSlot(time, window.start, replay::RandomBits(key, counter),
                                          replay::RandomBits(key, counter + static_cast<uint64_t>(n)));
  }
  if (plan->strategy != Hindsight::kNone) random->counter += 2 * n;
  // Sample by sample: windows of one sample share rows, which are then still in the cache. While they are copied, the
  // rows of the next ones are on their way.
  int64_t bytes = 0;
  for (const Target &target : targets) bytes += n * target.sample_bytes;
  replay::InParallel(n, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      if (b + kAhead < end) Prefetch(targets, time, windows[static_cast<size_t>(b + kAhead)]);
      for (const Target &target : targets) replay::Fill(target, time, windows[static_cast<size_t>(b)], b, numbers + 1);
    }
  });
  buffer.rows.Deliver(slots.data(), n, plan->max_use);
  const double step = *args.data<double>(extra + 4);
  if (step > 0) *beta = std::min(*beta + step, 1.0);
  return replay::kOk;
}

// (state with one column, factors[2], handles[n], priorities[1 or n]) -> dead handles, which are skipped.
MINDSPORE_REPLAY_KERNEL(replay_update_timed, replay::AfterState<replay::kTimedArguments>) {
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 4) return replay::kBadArguments;
  const int64_t n = args.elements(extra + 1);
  if (!IsTimedBuffer(args, 1) || !args.Is(extra, "float64", 2) || !args.Is(extra + 1, "int64", n) ||
      !replay::IsPriority(args, extra + 2, n) || !args.Is(extra + 3, "int32", 1)) {
    return replay::kBadArguments;
  }
  const int64_t given = args.elements(extra + 2);
  const float *priorities = args.data<float>(extra + 2);
  if (!replay::AreWeights(priorities, given)) return replay::kBadWeight;
  *args.data<int32_t>(extra + 3) = static_cast<int32_t>(TimelineOf(args, 1).Update(
      replay::RuleOf(args, extra), args.data<int64_t>(extra + 1), n, priorities, given));
  return replay::kOk;
}

// (state with one column, factors[2], flags[1]) -> episodes that went on until now. Flags are those of their last rows.
MINDSPORE_REPLAY_KERNEL(replay_end_episodes, replay::AfterState<replay::kTimedArguments>) {
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 3) return replay::kBadArguments;
  if (!IsTimedBuffer(args, 1) || !args.Is(extra, "float64", 2) || !args.Is(extra + 1, "uint8", 1) ||
      !args.Is(extra + 2, "int32", 1)) {
    return replay::kBadArguments;
  }
  *args.data<int32_t>(extra + 2) =
      static_cast<int32_t>(TimelineOf(args, 1).EndEpisodes(replay::RuleOf(args, extra), *args.data<uint8_t>(extra + 1)));
  return replay::kOk;
}

// (state with one column, handles[n]) -> rows deleted. Handles of rows that are gone are skipped.
MINDSPORE_REPLAY_KERNEL(replay_delete_timed, replay::AfterState<replay::kTimedArguments>) {
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 2) return replay::kBadArguments;
  const int64_t n = args.elements(extra);
  if (!IsTimedBuffer(args, 1) || !args.Is(extra, "int64", n) || !args.Is(extra + 1, "int32", 1)) {
    return replay::kBadArguments;
  }
  const int64_t *handles = args.data<int64_t>(extra);
  *args.data<int32_t>(extra + 1) = static_cast<int32_t>(TimelineOf(args, 1).Delete({handles, handles + n}));
  return replay::kOk;
}

// (state with one column, steps[1], max_staleness[1]) -> the clock. A negative `max_staleness` is no limit.
MINDSPORE_REPLAY_KERNEL(replay_advance_timed, replay::AfterState<replay::kTimedArguments>) {
  const int extra = 1 + kTimedArguments;
  if (args.size() != extra + 3) return replay::kBadArguments;
  if (!IsTimedBuffer(args, 1) || !args.Is(extra, "int64", 1) || !args.Is(extra + 1, "int64", 1) ||
      !args.Is(extra + 2, "int64", 1)) {
    return replay::kBadArguments;
  }
  const int64_t steps = *args.data<int64_t>(extra);
  const replay::Clock *clock = replay::BufferOf(args, 1).rows.clock;
  if (steps < 0 || steps > replay::kLastClock - clock->now) return replay::kBadArguments;
  TimelineOf(args, 1).Advance(steps, *args.data<int64_t>(extra + 1));
  *args.data<int64_t>(extra + 2) = clock->now;
  return replay::kOk;
}

// (state with one column) -> 0 rows stored.
MINDSPORE_REPLAY_KERNEL(replay_reset_timed, replay::AfterState<replay::kTimedArguments>) {
  if (args.size() != 2 + kTimedArguments) return replay::kBadArguments;
  if (!IsTimedBuffer(args, 1) || !args.Is(1 + kTimedArguments, "int32", 1)) return replay::kBadArguments;
  const int64_t capacity = args.dim(0, 0);
  int64_t *serials = args.data<int64_t>(3);
  serials[1] = serials[0];
  replay::BufferOf(args, 1).rows.Reset(serials[0], capacity, replay::kFill);
  std::fill_n(args.data<int64_t>(1 + replay::kStateArguments), capacity, int64_t{0});
  std::fill_n(args.data<uint8_t>(2 + replay::kStateArguments), capacity, uint8_t{0});
  *args.data<int32_t>(1) = *args.data<int32_t>(2) = *args.data<int32_t>(1 + kTimedArguments) = 0;
  return replay::kOk;
}

// (state, random_state, options[2], template[G, L]) -> mask[G, L], rows[k] of [G, L]: rows of G groups. Options are the
// column that tells groups, of ints, and whether rows are consecutive; of the template only the shape counts.
MINDSPORE_REPLAY_KERNEL(replay_sample_groups, replay::ReadsFirst) {
  const int k = (args.size() - kTimedArguments - 4) / 2;
  if (k < 1 || args.size() != 2 * k + kTimedArguments + 4) return replay::kBadArguments;
  if (!IsTimedBuffer(args, k)) return replay::kBadArguments;
  const int extra = k + kTimedArguments;
  if (!args.Is(extra, "int64", 2) || !args.Is(extra + 1, "int64", 2) || args.ndim(extra + 2) != 2) {
    return replay::kBadArguments;
  }
  const int64_t groups = args.dim(extra + 2, 0);
  const int64_t size = args.dim(extra + 2, 1);
  const int64_t *options = args.data<int64_t>(extra + 1);
  if (groups < 1 || size < 1 || options[0] < 0 || options[0] >= k || !args.Is(extra + 3, "bool", groups * size)) {
    return replay::kBadArguments;
  }
  const auto key = static_cast<int>(options[0]);
  if (args.elements(key) != args.dim(key, 0) || args.IsFloat(key)) return replay::kBadArguments;
  for (int i = 0; i < k; ++i) {
    if (!args.SameDtype(extra + 4 + i, i) || args.elements(extra + 4 + i) * args.dim(i, 0) != groups * size * args.elements(i)) {
      return replay::kBadArguments;
    }
  }

  const Timeline time = TimelineOf(args, k);
  const replay::WeightedBuffer buffer = replay::BufferOf(args, k);
  const auto rows = replay::RowsByGroup(time, buffer.rows.tree, [&](int64_t slot) { return args.Integer(key, slot); });
  std::vector<int64_t> drawn(static_cast<size_t>(groups * size));
  if (!replay::DrawGroups(rows, args.data<replay::RandomState>(extra), groups, size, options[1] != 0, drawn.data())) {
    return replay::kTooFewRows;
  }
  for (int64_t i = 0; i < groups * size; ++i) {
    const int64_t row = drawn[static_cast<size_t>(i)];
    args.data<uint8_t>(extra + 3)[i] = row >= 0;
    const int64_t slot = row < 0 ? 0 : replay::SlotOf(row, buffer.ring.head, buffer.ring.capacity);
    for (int c = 0; c < k; ++c) {
      const int64_t bytes = args.RowBytes(c);
      char *out = args.data<char>(extra + 4 + c) + i * bytes;
      if (row < 0) {
        std::memset(out, 0, static_cast<size_t>(bytes));
      } else {
        std::memcpy(out, args.data<char>(c) + slot * bytes, static_cast<size_t>(bytes));
      }
    }
  }
  return replay::kOk;
}
