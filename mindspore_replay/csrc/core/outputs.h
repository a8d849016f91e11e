// The outputs of a sample: the plan, the check that arguments can hold them, and the code that fills them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "arguments.h"
#include "core/portable.h"
#include "core/timeline.h"
#include "core/windows.h"

namespace replay {

// How rows are drawn.
enum DrawKind : int64_t {
  kUniformly = 0,    // at random from a range of a ring, without a tree
  kByRank = 1,       // at random from rows with weight 1, in a range
  kByPriority = 2,   // one draw from each of equal strata of the total weight
  kOldestFirst = 3,  // the oldest rows with weight 1, in a range
  kNewestFirst = 4,  // the newest rows with weight 1, in a range
  kInEpochs = 5,     // each row that can be drawn once an epoch
};

// Returns the rank of draw i if rows are drawn in order; of the `eligible` rows the oldest has rank 0.
REPLAY_BOTH inline int64_t RankInOrder(int64_t draw, int64_t eligible, int64_t i) {
  return draw == kOldestFirst ? i : eligible - 1 - i;
}

// The plan of a sample, laid out as in its Tensor; the outputs follow it.
struct Plan {
  int64_t draw;
  int64_t replace;
  int64_t ordered;
  int64_t max_use;
  int64_t by_buffer;
  ChainRule chain;
  int64_t strategy;
  double beta_step;
  double ratio;      // fraction of samples that get another goal
  int64_t achieved;  // column of the goals that rows achieved
  double tolerance;  // largest distance from another goal at which its reward is 0; negative: rewards are as stored

  REPLAY_BOTH const Output *Outputs() const { return reinterpret_cast<const Output *>(this + 1); }
  REPLAY_BOTH bool InOrder() const { return draw == kOldestFirst || draw == kNewestFirst; }
  // Returns the eligible rows that a sample of n needs: with replacement one is enough.
  REPLAY_BOTH int64_t Needed(int64_t n) const { return replace != 0 && !InOrder() ? 1 : n; }
};

static_assert(sizeof(Plan) == 12 * sizeof(int64_t) && sizeof(Output) == 7 * sizeof(int64_t), "as the signature says");

// True if the plan is valid for a buffer with or without epochs and row state. `powers` is the number of powers of gamma
// that are given, from gamma^0 to the one for the steps of a chain; 0 if samples are rows.
REPLAY_BOTH inline bool IsPlan(const Plan &plan, int64_t powers, bool has_epochs, bool has_row_state) {
  const bool in_epochs = plan.draw == kInEpochs;
  if (in_epochs != has_epochs || (!in_epochs && has_row_state != (plan.draw != kUniformly))) return false;
  if (!has_row_state && plan.max_use != 0) return false;
  return plan.draw >= kUniformly && plan.draw <= kInEpochs && plan.chain.steps >= 0 &&
         (powers == 0 || powers == 1 + plan.chain.steps);
}

// Advances beta by its step after a draw, up to 1.
REPLAY_BOTH inline void MoveBeta(double *beta, double step) {
  if (step > 0) *beta = std::min(*beta + step, 1.0);
}

// An argument, reduced to the fields a GPU needs.
struct Field {
  char *data;
  int64_t elements;
  int64_t row_elements;
  int32_t element_bytes;
  Dtype dtype;

  REPLAY_BOTH bool Is(Dtype wanted, int64_t n) const { return dtype == wanted && elements == n; }
};

inline Field FieldOf(const Arguments &args, int i) {
  const int64_t elements = args.elements(i);
  const int64_t rows = args.ndim(i) > 0 ? args.dim(i, 0) : 1;
  const Dtype dtype = DtypeOf(args.dtype(i));
  return {args.data<char>(i), elements, rows > 0 ? elements / rows : 0,
          static_cast<int32_t>(dtype == kNoDtype ? 0 : kDtypes[dtype].bytes), dtype};
}

// True if a field can hold an output for n samples.
REPLAY_BOTH inline bool HoldsOutput(const Field &field, const Field *columns, int k, const Output &output, int64_t n,
                                    const Plan &plan) {
  if (output.runs < 1 || output.length < 1) return false;
  if (output.kind == kHandle) return field.Is(kInt64, n);
  if (output.kind == kWeight) return field.Is(kFloat32, n);
  if (output.kind == kGiven) return field.Is(kBool, n);
  if (output.kind == kMask) return field.Is(kBool, n * output.Elements());
  if (output.kind == kLength) return field.Is(kInt32, n);
  if (output.kind == kChain) return field.Is(kInt32, n * output.Elements());
  if (output.kind == kRelabelled) return field.Is(kBool, n);
  if (output.column < 0 || output.column >= k) return false;
  const Field &column = columns[output.column];
  const int64_t row = column.row_elements, chain = plan.chain.steps;
  const bool is_float = field.dtype == kFloat32 || field.dtype == kFloat64;
  const bool is_sparse = plan.strategy != Hindsight::kNone && plan.tolerance >= 0;
  if (output.IsOfGoals() || (output.kind == kReturn && is_sparse)) {
    if (plan.achieved < 0 || plan.achieved >= k) return false;
    const Field &achieved = columns[plan.achieved];
    if (output.kind == kGoal && (!SameDtype(field.dtype, achieved.dtype) || achieved.row_elements != row)) return false;
    if (is_sparse && achieved.dtype != kFloat32 && achieved.dtype != kFloat64) return false;
  }
  if (output.IsOfChains() && output.other != 0) {
    if (output.other < 0 || output.other > k) return false;
    const Field &discounts = columns[output.other - 1];
    if (discounts.row_elements != 1 || (discounts.dtype != kFloat32 && discounts.dtype != kFloat64)) return false;
  }
  if (output.kind == kDiscount) return row == 1 && chain >= 1 && field.Is(kFloat32, n * output.Elements());
  if (!SameDtype(field.dtype, column.dtype)) return false;
  const int64_t numbers = n * output.Elements() * row;
  if (output.kind == kReturn) return chain >= 1 && is_float && field.elements == numbers;
  if (output.kind == kReward) return row == 1 && is_float && field.elements == numbers;
  return (output.HasRows() || output.kind == kGoal) && field.elements == numbers;
}

// An output with the properties of its source column.
struct Target {
  Output output;
  char *out;
  int64_t sample_bytes;  // bytes of the output per sample
  const char *rows;
  const char *goals;
  SparseReward sparse;
  StepDiscounts discounts;
  int64_t row_bytes;
  int64_t inner;  // elements of a row
  bool is_float;
  bool is_double;
};

REPLAY_BOTH inline Target TargetOf(const Field &field, const Field *columns, const Output &output, int64_t n,
                                   const Plan &plan) {
  Target target{};
  target.output = output;
  target.out = field.data;
  target.sample_bytes = field.elements / n * field.element_bytes;
  if (!output.OfColumn()) return target;
  const Field &column = columns[output.column];
  target.rows = column.data;
  target.row_bytes = column.row_elements * column.element_bytes;
  target.inner = column.row_elements;
  target.is_float = IsFloat(column.dtype);
  target.is_double = column.dtype == kFloat64;
  if (output.IsOfGoals() || (output.kind == kReturn && plan.strategy != Hindsight::kNone && plan.tolerance >= 0)) {
    const Field &achieved = columns[plan.achieved];
    target.goals = achieved.data;
    if (plan.tolerance >= 0) {
      target.sparse = {achieved.data, achieved.row_elements, achieved.dtype == kFloat64, plan.tolerance};
    }
  }
  if (output.IsOfChains() && output.other > 0) {
    const Field &discounts = columns[output.other - 1];
    target.discounts = {discounts.data, discounts.dtype == kFloat64};
  }
  return target;
}

// Writes number i of a sample, for an output that has no source column.
REPLAY_BOTH inline void FillNumber(const Target &target, const Window &window, int64_t i, char *out) {
  const int64_t step = target.output.first + i;
  switch (target.output.kind) {
    case kRelabelled: *reinterpret_cast<uint8_t *>(out) = window.goal_slot >= 0; return;
    case kLength: *reinterpret_cast<int32_t *>(out) = static_cast<int32_t>(window.given); return;
    default:  // kChain
      reinterpret_cast<int32_t *>(out)[i] = window.Gives(step) ? static_cast<int32_t>(window.ChainAt(step)) : 0;
  }
}

// Calls `use` with what each step's discount is besides gamma.
template <typename Use>
REPLAY_BOTH inline void WithDiscounts(const Target &target, const Use &use) {
  if (target.discounts.rows != nullptr) return use(target.discounts);
  use(NoDiscounts{});
}

// Writes discount i of a sample, for one step.
template <typename Discounts>
REPLAY_BOTH inline void FillDiscount(const Target &target, const Timeline &timeline, const Window &window, int64_t i,
                                     const double *powers, const Discounts &discounts, char *out) {
  const int64_t step = target.output.first + i;
  float discount = 0;
  if (window.Gives(step)) {
    const int64_t chain = window.ChainAt(step);
    const int64_t last = timeline.Shifted(window.start.slot, step + chain - 1);
    const bool terminated = IsTrue(target.rows + last * target.row_bytes, target.row_bytes, target.is_float);
    if (!terminated) {
      double product = 1;
      int64_t slot = timeline.Shifted(window.start.slot, step);
      for (int64_t k = 0; k < chain; ++k, slot = timeline.Next(slot)) product *= discounts.At(slot);
      discount = static_cast<float>(powers[chain] * product);
    }
  }
  reinterpret_cast<float *>(out)[i] = discount;
}

// Writes element i of the n-step return of step j of a sample.
template <typename T, typename Discounts>
REPLAY_BOTH inline void FillReturn(const Target &target, const Timeline &timeline, const Window &window, int64_t j,
                                   int64_t i, const double *powers, const Discounts &discounts, char *out) {
  const T *column = reinterpret_cast<const T *>(target.rows) + i;
  const auto reward = [&](int64_t slot) { return column[slot * target.inner]; };
  reinterpret_cast<T *>(out)[j * target.inner + i] =
      SumOfChain<T>(timeline, window, reward, target.output.first + j, powers, discounts);
}

// The same for sparse rewards.
template <typename T, typename Discounts>
REPLAY_BOTH inline void FillSparseReturn(const Target &target, const Timeline &timeline, const Window &window,
                                         int64_t i, const double *powers, const Discounts &discounts, char *out) {
  const auto reward = [&](int64_t slot) { return target.sparse.At(slot, window.goal_slot); };
  reinterpret_cast<T *>(out)[i] =
      SumOfChain<T>(timeline, window, reward, target.output.first + i / target.inner, powers, discounts);
}

// Writes reward i of a sample, for one step.
template <typename T>
REPLAY_BOTH inline void FillReward(const Target &target, const Timeline &timeline, const Window &window, int64_t i,
                                   char *out) {
  const int64_t slot = SlotAt(timeline, window, target.output, i);
  T *reward = reinterpret_cast<T *>(out) + i;
  if (slot < 0) {
    *reward = 0;
  } else if (target.sparse.achieved == nullptr || window.goal_slot < 0) {
    *reward = reinterpret_cast<const T *>(target.rows)[slot];
  } else {
    *reward = static_cast<T>(target.sparse.At(slot, window.goal_slot));
  }
}

// Returns the positions of a run of goals that are another one: each step of the sample, also as a next observation that is
// not stored.
REPLAY_BOTH inline Part GoalsOf(const Window &window, const Output &output, int64_t run) {
  if (output.anchor == kFromLast) return {0, window.Gives(output.other + run) ? output.length : 0};
  return InsideOf(window, output, run, FirstOf(output, window, run));
}

// Returns the row at position i of an output of goals, null for zeros.
REPLAY_BOTH inline const char *GoalAt(const Target &target, const Timeline &timeline, const Window &window, int64_t i) {
  const Output &output = target.output;
  if (window.goal_slot < 0) {
    const int64_t slot = SlotAt(timeline, window, output, i);
    return slot < 0 ? nullptr : target.rows + slot * target.row_bytes;
  }
  const Part part = GoalsOf(window, output, i / output.length);
  const int64_t place = i % output.length;
  return place < part.begin || place >= part.end ? nullptr : target.goals + window.goal_slot * target.row_bytes;
}

// Writes the rewards or the n-step returns of a sample with another goal. Not inlined: it would slow down the others.
__attribute__((noinline)) inline void FillSparse(const Target &target, const Timeline &timeline, const Window &window,
                                                 const double *powers, char *out) {
  const bool is_return = target.output.kind == kReturn;
  for (int64_t i = 0; i < target.output.Elements() * (is_return ? target.inner : 1); ++i) {
    if (!is_return) {
      target.is_double ? FillReward<double>(target, timeline, window, i, out)
                       : FillReward<float>(target, timeline, window, i, out);
      continue;
    }
    WithDiscounts(target, [&](const auto &discounts) {
      target.is_double ? FillSparseReturn<double>(target, timeline, window, i, powers, discounts, out)
                       : FillSparseReturn<float>(target, timeline, window, i, powers, discounts, out);
    });
  }
}

// Writes the n-step returns of a sample.
template <typename T, typename Discounts>
inline void FillReturns(const Target &target, const Timeline &timeline, const Window &window, const double *powers,
                        const Discounts &discounts, char *out) {
  for (int64_t j = 0; j < target.output.length; ++j) {
    for (int64_t i = 0; i < target.inner; ++i) {
      FillReturn<T>(target, timeline, window, j, i, powers, discounts, out);
    }
  }
}

// Writes the goals of a sample.
inline void FillGoals(const Target &target, const Timeline &timeline, const Window &window, char *out) {
  if (window.goal_slot < 0) return CopyWindow(timeline, window, target.output, target.rows, target.row_bytes, out);
  const Output &output = target.output;
  const auto row_bytes = static_cast<size_t>(target.row_bytes);
  const char *goal = target.goals + window.goal_slot * target.row_bytes;
  for (int64_t run = 0; run < output.runs; ++run) {
    const Part part = GoalsOf(window, output, run);
    for (int64_t i = 0; i < output.length; ++i, out += row_bytes) {
      if (i >= part.begin && i < part.end) {
        std::memcpy(out, goal, row_bytes);
      } else {
        std::memset(out, 0, row_bytes);
      }
    }
  }
}

// Writes the output of a target for sample b.
inline void Fill(const Target &target, const Timeline &timeline, const Window &window, int64_t b,
                 const double *powers) {
  char *out = target.out + b * target.sample_bytes;
  if (target.sparse.achieved != nullptr && window.goal_slot >= 0 && target.output.kind != kGoal) {
    return FillSparse(target, timeline, window, powers, out);
  }
  switch (target.output.kind) {
    case kMask: return FillMask(window, target.output, reinterpret_cast<uint8_t *>(out));
    case kWindow:
    case kReward:
    case kStack:
    case kRepeated:
    case kRepeatedStack: return CopyWindow(timeline, window, target.output, target.rows, target.row_bytes, out);
    case kReturn:
      return WithDiscounts(target, [&](const auto &discounts) {
        if (target.is_double) return FillReturns<double>(target, timeline, window, powers, discounts, out);
        FillReturns<float>(target, timeline, window, powers, discounts, out);
      });
    case kDiscount:
      return WithDiscounts(target, [&](const auto &discounts) {
        for (int64_t i = 0; i < target.output.length; ++i) {
          FillDiscount(target, timeline, window, i, powers, discounts, out);
        }
      });
    case kGoal: return FillGoals(target, timeline, window, out);
    default:
      for (int64_t i = 0; i < target.output.Elements(); ++i) FillNumber(target, window, i, out);
  }
}

// The extent of a sample's windows.
struct Scope {
  int64_t steps;  // steps read, from the start on
  bool by_steps;  // true: one chain per step, and the sample holds transitions only
};

REPLAY_BOTH inline Scope ScopeOf(const Output *outputs, int64_t count, int64_t chain) {
  int64_t steps = 1;
  bool masked = false;
  bool returns = false;
  for (int64_t i = 0; i < count; ++i) {
    const Output &output = outputs[i];
    const int64_t last = output.first + output.runs - 1 + output.length;
    if (output.kind == kReturn) {
      returns = true;
      steps = std::max(steps, last + chain - 1);
    } else if (output.HasRows() || output.IsOfGoals() || output.kind == kMask) {
      masked = masked || output.kind == kMask;
      steps = std::max(steps, last + (output.anchor == kFromLast ? output.other + chain - 1 : 0));
    }
  }
  return {steps, masked && returns};
}

// Returns the window that starts in a slot, without another goal.
REPLAY_BOTH inline Window WindowAt(const Timeline &timeline, const ChainRule &rule, const Scope &scope, int64_t slot) {
  const Start start = timeline.StartAt(slot, scope.steps);
  const int64_t transitions = scope.by_steps ? Transitions(timeline, rule, start) : ChainLength(timeline, rule, start);
  const int64_t given = scope.by_steps ? transitions : start.after;
  return {start, given, transitions, std::max(rule.steps, int64_t{1}), -1};
}

// Returns the window of sample i of n, which starts in a slot. `random` is the state after the draw.
REPLAY_BOTH inline Window WindowOf(const Timeline &timeline, const Plan &plan, const Scope &scope, int64_t slot,
                                   const RandomState &random, int64_t i, int64_t n) {
  Window window = WindowAt(timeline, plan.chain, scope, slot);
  if (plan.strategy == Hindsight::kNone) return window;
  window.goal_slot = Hindsight{plan.strategy, plan.ratio}.GoalSlot(timeline, window.start, random, i, n);
  return window;
}

}  // namespace replay
