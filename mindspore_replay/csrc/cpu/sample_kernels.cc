// The kernels that sample, on a CPU; kernels.cc states the common rules.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "adapters.h"
#include "buffer.h"
#include "core/draws.h"
#include "core/groups.h"
#include "core/outputs.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/timeline.h"
#include "core/windows.h"

namespace replay {
namespace {

using Args = Bound<OperatorNumber("sample")>;

constexpr int64_t kAhead = 1;  // windows to prefetch

// True if the state of epochs is possible. Not inlined: it would change how callers are compiled.
__attribute__((noinline, cold)) bool HasEpoch(const Args &args) {
  return StateOf(args).Ring().HasSerials() &&
         IsEpoch(*args.data<Epoch>(NAMED("epoch")), *args.data<EpochRule>(NAMED("epoch_rule")), args.capacity());
}

// Draws the next batch of an epoch. Returns the number of its rows, or -1 if there are too few rows. Not inlined: it
// would change how callers are compiled.
__attribute__((noinline)) int64_t DrawInEpochs(const Args &args, int64_t n, int64_t *slots) {
  const auto &rule = *args.data<EpochRule>(NAMED("epoch_rule"));
  auto *epoch = args.data<Epoch>(NAMED("epoch"));
  const State state = StateOf(args);
  const Cursors ring = state.Ring();
  const bool has_row_state = args.HasGroup(kRowStateGroup);
  const auto slot_of = [&](int64_t serial) {
    const int64_t slot = ring.SlotOf(serial);
    return slot >= 0 && has_row_state && !(state.row_state.tree.Leaf(slot) > 0) ? -1 : slot;
  };
  return DrawInEpochs(rule, ring, args.data<RandomState>(NAMED("random_state")), epoch, slot_of, n, slots);
}

// Fills the samples from `drawn` on of all outputs with zeros, and handles with -1.
__attribute__((noinline)) void Pad(const Args &args, const Plan &plan, int64_t drawn, int64_t n) {
  const int first_output = args.at(NAMED("outputs"));
  for (int i = 0; i < args.outputs(); ++i) {
    const Field field = FieldOf(args.raw(), first_output + i);
    const int64_t bytes = field.elements / n * field.element_bytes, kind = plan.Outputs()[i].kind;
    std::memset(field.data + drawn * bytes, kind == kHandle ? -1 : 0, static_cast<size_t>((n - drawn) * bytes));
  }
}

// The outputs of a sample that say something of the rows drawn, beside copies of rows.
struct Outputs {
  std::vector<int64_t *> handles;
  std::vector<float *> weights;
  std::vector<uint8_t *> given;
};

// The outputs of a sample of single rows.
template <typename Rows>
struct OutputsOf : Outputs {
  std::vector<Gathered> rows;

  bool Init(const Args &args, const Plan &plan, int64_t n) {
    rows.reserve(static_cast<size_t>(args.outputs()));
    const int first_output = args.at(NAMED("outputs"));
    for (int i = 0; i < args.outputs(); ++i) {
      if (!Add(args, plan.Outputs()[i], first_output + i, n)) return false;
    }
    return true;
  }

  // Adds an output that holds n rows, handles, weights or flags. Returns false if it does not fit.
  bool Add(const Args &args, const Output &output, int i, int64_t n) {
    const Arguments &raw = args.raw();
    const Dtype dtype = DtypeOf(raw.dtype(i));
    const auto add = [&](auto *to, Dtype wanted) {
      if (dtype != wanted || raw.elements(i) != n) return false;
      to->push_back(raw.data<std::remove_pointer_t<typename std::remove_pointer_t<decltype(to)>::value_type>>(i));
      return true;
    };
    if (output.kind == kHandle) return add(&handles, kInt64);
    if (output.kind == kWeight) return add(&weights, kFloat32);
    if (output.kind == kGiven) return add(&given, kBool);
    const int64_t column = output.column;
    if (!output.IsRow() || column < 0 || column >= args.columns()) return false;
    const auto c = static_cast<int>(column);
    if (!SameDtype(dtype, DtypeOf(raw.dtype(c))) || raw.RowsOf(i, c) != n) return false;
    rows.push_back({raw.data<char>(c), raw.data<char>(i), args.RowBytes(c)});
    return true;
  }

  void Copy(const Args &args, const Rows &, const Plan &, const Vector<int64_t> &slots, RandomState *) const {
    ExpectRows(args.shared(), slots);
    Gather(rows, slots.data(), static_cast<int64_t>(slots.size()));
  }
};

// Prefetches the rows of a window if they are contiguous.
void Prefetch(const std::vector<Target> &targets, const Timeline &timeline, const Window &window) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kMost = 1 << 14;
  if (timeline.streams() > 1) return;
  for (const Target &target : targets) {
    if (!target.output.HasRows()) continue;
    const int64_t first = std::max(-window.start.before, FirstOf(target.output, window, 0));
    const int64_t bytes = (target.output.runs - 1 + target.output.length) * target.row_bytes;
    const char *begin = target.rows + timeline.Shifted(window.start.slot, first) * target.row_bytes;
    for (int64_t line = 0; line < std::min(bytes, kMost); line += kLine) __builtin_prefetch(begin + line);
  }
}

// Announces the rows of windows, if they are in shared memory. Not inlined, as `ExpectRows`.
__attribute__((noinline, cold)) void ExpectWindows(const Shared *shared, const Timeline &timeline,
                                                   const Vector<Window> &windows) {
  if (shared == nullptr) return;
  for (const Window &window : windows) {
    const Start &start = window.start;
    const int64_t steps = start.before + start.after + 1;  // with the observation after the last
    shared->Expect(timeline.Shifted(start.slot, -start.before), steps * timeline.streams());
    if (window.goal_slot >= 0) shared->Expect(window.goal_slot, 1);
  }
}

// Returns the windows that start in these slots.
Vector<Window> WindowsAt(const Timeline &timeline, const Plan &plan, int64_t outputs, const Vector<int64_t> &slots,
                         RandomState *random) {
  const Scope scope = ScopeOf(plan.Outputs(), outputs, plan.chain.steps);
  for (const int64_t slot : slots) timeline.Prefetch(slot, scope.steps);
  const auto n = static_cast<int64_t>(slots.size());
  Vector<Window> windows(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    windows[i] = WindowOf(timeline, plan, scope, slots[i], *random, static_cast<int64_t>(i), n);
  }
  if (plan.strategy != Hindsight::kNone) random->counter += 2 * n;
  return windows;
}

// The outputs of a sample of windows.
template <>
struct OutputsOf<Timeline> : Outputs {
  std::vector<Gathered> rows;  // of outputs that are the start row alone
  std::vector<Target> targets;

  bool Init(const Args &args, const Plan &plan, int64_t n) {
    const Arguments &raw = args.raw();
    std::vector<Field> columns;
    columns.reserve(static_cast<size_t>(args.columns()));
    for (int i = 0; i < args.columns(); ++i) columns.push_back(FieldOf(raw, i));
    rows.reserve(static_cast<size_t>(args.outputs()));
    targets.reserve(static_cast<size_t>(args.outputs()));
    const int first_output = args.at(NAMED("outputs"));
    const bool has_start = !ScopeOf(plan.Outputs(), args.outputs(), plan.chain.steps).by_steps;
    for (int i = first_output; i < first_output + args.outputs(); ++i) {
      const Output &output = plan.Outputs()[i - first_output];
      const Field field = FieldOf(raw, i);
      if (!HoldsOutput(field, columns.data(), args.columns(), output, n, plan)) return false;
      switch (output.kind) {
        case kHandle: handles.push_back(raw.data<int64_t>(i)); break;
        case kWeight: weights.push_back(raw.data<float>(i)); break;
        case kGiven: given.push_back(raw.data<uint8_t>(i)); break;
        default:
          targets.push_back(TargetOf(field, columns.data(), output, n, plan));
          if (!has_start || !output.IsRow()) break;
          rows.push_back({targets.back().rows, targets.back().out, targets.back().row_bytes});
          targets.pop_back();
      }
    }
    return true;
  }

  // Copies windows sample by sample: those of one sample share rows, which are then still in the cache. The rows of the
  // next samples are prefetched meanwhile.
  void Copy(const Args &args, const Timeline &timeline, const Plan &plan, const Vector<int64_t> &slots,
            RandomState *random) const {
    const Vector<Window> windows = WindowsAt(timeline, plan, args.outputs(), slots, random);
    ExpectWindows(args.shared(), timeline, windows);
    Gather(rows, slots.data(), static_cast<int64_t>(slots.size()));
    const double *powers = args.data<double>(NAMED("powers"));
    const auto n = static_cast<int64_t>(slots.size());
    int64_t bytes = 0;
    for (const Target &target : targets) bytes += n * target.sample_bytes;
    InParallel(n, bytes, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        if (b + kAhead < end) Prefetch(targets, timeline, windows[static_cast<size_t>(b + kAhead)]);
        const Window &window = windows[static_cast<size_t>(b)];
        for (const Target &target : targets) Fill(target, timeline, window, b, powers);
      }
    });
  }
};

template <typename Rows>
Status Sample(const Args &args, const State &state, const Plan &plan, int64_t n) {
  OutputsOf<Rows> outputs;
  if (!outputs.Init(args, plan, n) || !state.IsConsistent()) return kBadArguments;
  const Rows rows = state.Get<Rows>();
  const int64_t *bounds = args.data<int64_t>(NAMED("sample_range"));
  Vector<int64_t> slots(static_cast<size_t>(n));
  int64_t drawn = n;
  if (plan.draw == kInEpochs) {
    drawn = DrawInEpochs(args, n, slots.data());
    if (drawn < 0) return kTooFewRows;
  } else {
    Status status;
    if constexpr (kHasRowState<Rows>) {
      status = Draw(plan, rows, state.random, bounds, n, slots.data());
    } else {
      status = DrawUniformly(plan, rows, state.random, bounds, n, slots.data());
    }
    if (status != kOk) return status;
  }
  const auto places = state.Get<PlacesOf<Rows>>();
  for (int64_t *handles : outputs.handles) {
    std::transform(slots.begin(), slots.end(), handles, [&](int64_t slot) { return places.HandleOf(slot); });
  }
  for (float *weights : outputs.weights) std::fill_n(weights, n, 1.0f);
  for (uint8_t *given : outputs.given) std::fill_n(given, n, uint8_t{1});
  outputs.Copy(args, rows, plan, slots, state.random);
  if (plan.draw == kInEpochs) Pad(args, plan, drawn, n);
  if constexpr (kHasRowState<Rows>) {
    const RowState &row_state = rows.row_state();
    if (plan.draw == kByPriority) {
      const double beta = *args.data<double>(NAMED("given_beta"));
      const double least =
          plan.by_buffer == 0 ? -1 : LeastWeight(row_state.tree, SliceRows(bounds[0], bounds[1], places.count), places);
      for (float *weights : outputs.weights) ImportanceWeights(row_state.tree, slots.data(), n, beta, least, weights);
      MoveBeta(args.data<double>(NAMED("beta")), plan.beta_step);
    }
    row_state.Deliver(slots.data(), drawn, plan.max_use);
  }
  return kOk;
}

}  // namespace

// Samples as the plan says; the first axis of each output is that of samples. A draw by priority uses `given_beta`,
// which may be beta itself, and advances beta by its step up to 1.
MINDSPORE_REPLAY_KERNEL(sample) {
  const Plan &plan = *args.data<Plan>(NAMED("plan"));
  const int first_output = args.at(NAMED("outputs"));
  const int64_t n = args.raw().ndim(first_output) > 0 ? args.raw().dim(first_output, 0) : 0;
  const int64_t powers = args.HasGroup(kEpisodesGroup) ? args.elements(NAMED("powers")) : 0;
  const bool has_epochs = args.HasGroup(kEpochsGroup);
  if (n < 1 || !IsPlan(plan, powers, has_epochs, args.HasGroup(kRowStateGroup)) || (has_epochs && !HasEpoch(args))) {
    return kBadArguments;
  }
  const double *beta = args.data_or_null<double>(NAMED("given_beta"));
  if (beta != nullptr && !(*beta >= 0 && *beta <= 1)) return kBadWeight;
  return WithKind(args, [&](auto kind) { return Sample<typename decltype(kind)::Type>(args, StateOf(args), plan, n); });
}

// Draws rows of G groups, L of each. `options`: the integer column that identifies groups, and 1 for consecutive rows.
// Only the shape of `template` is used.
MINDSPORE_REPLAY_KERNEL(sample_groups) {
  const Arguments &raw = args.raw();
  const int64_t groups = raw.dim(args.at(NAMED("template")), 0);
  const int64_t size = raw.dim(args.at(NAMED("template")), 1);
  const int64_t *options = args.data<int64_t>(NAMED("options"));
  if (options[0] < 0 || options[0] >= args.columns()) return kBadArguments;
  const auto key = static_cast<int>(options[0]);
  const Dtype dtype = DtypeOf(raw.dtype(key));
  if (raw.elements(key) != args.capacity() || IsFloat(dtype)) return kBadArguments;
  return WithRows(args, [&](const auto &) {
    const Timeline timeline = StateOf(args).Get<Timeline>();
    const Cursors &ring = timeline.places();
    const auto rows = RowsByGroup(timeline, [&](int64_t slot) { return IntegerAt(raw.data<char>(key), dtype, slot); });
    Vector<int64_t> drawn(static_cast<size_t>(groups * size));
    if (!DrawGroups(rows, args.data<RandomState>(NAMED("random_state")), groups, size, options[1] != 0, drawn.data())) {
      return kTooFewRows;
    }
    const int first_row = args.at(NAMED("rows"));
    for (int64_t i = 0; i < groups * size; ++i) {
      const int64_t row = drawn[static_cast<size_t>(i)];
      args.data<uint8_t>(NAMED("mask"))[i] = row >= 0;
      const int64_t slot = row < 0 ? 0 : SlotOf(row, ring.head, ring.capacity);
      for (int c = 0; c < args.columns(); ++c) {
        const int64_t bytes = args.RowBytes(c);
        char *out = raw.data<char>(first_row + c) + i * bytes;
        if (row < 0) {
          std::memset(out, 0, static_cast<size_t>(bytes));
        } else {
          std::memcpy(out, raw.data<char>(c) + slot * bytes, static_cast<size_t>(bytes));
        }
      }
    }
    return kOk;
  });
}

}  // namespace replay
