// The outputs of windows: copies of rows around each start, zero outside the episode, and n-step returns. Cost O(bytes
// of the rows touched).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/portable.h"
#include "core/random.h"
#include "core/ring.h"
#include "core/timeline.h"

namespace replay {

enum OutputKind : int64_t {
  kWindow = 0,      // rows of a column
  kMask = 1,        // 1 for rows that exist
  kReturn = 2,      // the discounted sum of a column over the chain; `other`, if any, holds each step's own discount
  kDiscount = 3,    // the chain's discount, 0 where its last row is terminated; `other` as for kReturn
  kRelabelled = 4,  // 1 if the sample has another goal
  kGoal = 5,        // rows of a column; with another goal, this goal in place of each
  kLength = 6,      // steps of the episode from the start on, as far as the outputs extend
  kChain = 7,       // rows of the chain of each step, 0 for a step outside the sample
  kStack = 8,       // rows of a column; a run is zero unless its last row exists
  kHandle = 9,      // the handle of the start
  kWeight = 10,     // the importance weight of the start
  kGiven = 11,      // 1 for a sample that is not padding
  kRepeated = 12,   // as kWindow, but the episode's first row stands for those before it
  kRepeatedStack = 13,  // as kStack, likewise
  kReward = 14,         // rows of a column of rewards; with another goal, the sparse reward of each
};

// The origin of an output's positions.
enum Anchor : int64_t {
  kFromStart = 0,
  kFromLast = 1,  // the last row of a step's chain; each run counts from that of its own step
  kOfChain = 2,   // the start; a run is the chain of its first step, padded with zeros
};

// An output of a sample: `runs` runs of `length` consecutive positions that begin at `first`, `first` + 1, ... from the
// start, or each at `first` from the last row of a chain. Laid out as in its Tensor.
struct Output {
  int64_t kind;
  int64_t column;
  int64_t other;  // another column, 1 more for discounts; for kFromLast, the step from whose chain the first run counts
  int64_t anchor;
  int64_t first;
  int64_t runs;
  int64_t length;

  REPLAY_BOTH int64_t Elements() const { return runs * length; }
  REPLAY_BOTH bool Repeats() const { return kind == kRepeated || kind == kRepeatedStack; }
  REPLAY_BOTH bool HasRows() const { return kind == kWindow || kind == kStack || Repeats(); }
  REPLAY_BOTH bool IsOfChains() const { return kind == kReturn || kind == kDiscount; }
  // True if the source is a column.
  REPLAY_BOTH bool OfColumn() const { return HasRows() || IsOfChains() || IsOfGoals(); }
  REPLAY_BOTH bool IsOfGoals() const { return kind == kGoal || kind == kReward; }
  // True if it is the start row alone.
  REPLAY_BOTH bool IsRow() const {
    return kind == kWindow && anchor == kFromStart && first == 0 && runs == 1 && length == 1;
  }
};

// The chain of an n-step return: the start and the transitions of its episode after it.
struct ChainRule {
  int64_t steps;       // maximum, 0 for a sample without returns
  int64_t needs_next;  // 1 if the observation after a row is that of the next row
};

struct Window {
  Start start;
  int64_t given;        // steps from the start on in the sample; later ones are zero
  int64_t transitions;  // steps from the start on that chains may use
  int64_t longest;      // maximum rows of a chain
  int64_t goal_slot;    // slot of another goal, -1 for none

  // True if the sample contains a step.
  REPLAY_BOTH bool Gives(int64_t step) const { return step >= -start.before && step < given; }
  // Returns the rows of a step's chain.
  REPLAY_BOTH int64_t ChainAt(int64_t step) const { return std::min(longest, transitions - step); }
};

REPLAY_BOTH inline int64_t ChainLength(const Timeline &timeline, const ChainRule &rule, const Start &start) {
  int64_t chain = 1;
  const int64_t streams = timeline.streams();
  for (int64_t at = start.slot; chain < rule.steps && !(timeline.flags(at) & kEnd); ++chain) {
    if (start.serial + chain * streams >= timeline.places().inserted) break;
    at = timeline.Next(at);
    if (timeline.flags(at) & (kDeleted | kFinal)) break;
    if (rule.needs_next && !(timeline.flags(at) & kEnd)) {
      if (start.serial + (chain + 1) * streams >= timeline.places().inserted) break;
      if (timeline.flags(timeline.Next(at)) & kDeleted) break;
    }
  }
  return chain;
}

// Returns the number of transitions of a window: all its steps, or one fewer if the last has no next observation.
REPLAY_BOTH inline int64_t Transitions(const Timeline &timeline, const ChainRule &rule, const Start &start) {
  const uint8_t last = timeline.flags(timeline.Shifted(start.slot, start.after - 1));
  const bool is_one = !(last & kFinal) && (!rule.needs_next || (last & kEnd));
  return start.after - (is_one ? 0 : 1);
}

// Selects the later row whose goal a sample gets.
struct Hindsight {
  enum Strategy : int64_t { kNone = 0, kFuture = 1, kEpisode = 2, kFinalState = 3, kRandom = 4 };

  int64_t strategy;
  double ratio;

  // Returns the slot of the row whose goal replaces that of a start, or -1 to keep the goal. Uses the random numbers i
  // and n + i of a state.
  REPLAY_BOTH int64_t GoalSlot(const Timeline &timeline, const Start &start, const RandomState &random, int64_t i,
                               int64_t n) const {
    const auto key = static_cast<uint64_t>(random.key), counter = static_cast<uint64_t>(random.counter + i);
    if (!(UnitInterval(RandomBits(key, counter)) <= ratio)) return -1;
    const uint64_t bits = RandomBits(key, counter + static_cast<uint64_t>(n));
    int64_t slot;
    if (strategy == kRandom) {
      slot = replay::SlotOf(Below(bits, timeline.places().count), timeline.places().head, timeline.places().capacity);
    } else {
      int64_t last = timeline.StepsToLast(start);
      if (timeline.flags(timeline.Shifted(start.slot, last)) & kFinal) --last;
      const int64_t first = strategy == kEpisode ? timeline.StepsToFirst(start) : 0;
      const int64_t step = strategy == kFinalState ? last : Below(bits, first + last + 1) - first;
      slot = timeline.Shifted(start.slot, step);
    }
    return timeline.flags(slot) & (kDeleted | kFinal) ? -1 : slot;
  }
};

// The positions of a run that are rows of the sample; the others are zero.
struct Part {
  int64_t begin;
  int64_t end;
};

// Returns the first position of a run of an output, from the start.
REPLAY_BOTH inline int64_t FirstOf(const Output &output, const Window &window, int64_t run) {
  if (output.anchor != kFromLast) return output.first + run;
  const int64_t step = output.other + run;
  return step + window.ChainAt(step) - 1 + output.first;
}

// Returns the rows of the sample within a run that begins at position `first`.
REPLAY_BOTH inline Part InsideOf(const Window &window, const Output &output, int64_t run, int64_t first) {
  const int64_t length = output.length;
  int64_t after = window.given;
  if (output.anchor == kOfChain) {
    return {0, window.Gives(first) ? std::min(window.ChainAt(first), length) : 0};
  }
  if (output.anchor == kFromLast) {
    if (!window.Gives(output.other + run)) return {length, length};
    after = window.start.after;
  }
  const bool is_stack = output.kind == kStack || output.kind == kRepeatedStack;
  if (is_stack && first + length > after) return {length, length};
  const int64_t begin = std::min(std::max(-window.start.before - first, int64_t{0}), length);
  return {begin, std::max(std::min(after - first, length), begin)};
}

// Copies a run of an output.
inline void CopyRun(const Timeline &timeline, const Window &window, const Output &output, const char *column,
                    int64_t row_bytes, int64_t run, char *out) {
  const int64_t length = output.length;
  const int64_t first = FirstOf(output, window, run);
  const auto [begin, end] = InsideOf(window, output, run, first);
  const bool repeats = output.Repeats() && begin < end;
  if (begin > 0 && !repeats) std::memset(out, 0, static_cast<size_t>(begin * row_bytes));
  if (end < length) std::memset(out + end * row_bytes, 0, static_cast<size_t>((length - end) * row_bytes));
  if (begin == end) return;
  int64_t slot = timeline.Shifted(window.start.slot, first + begin);
  for (int64_t i = 0; repeats && i < begin; ++i) {
    std::memcpy(out + i * row_bytes, column + slot * row_bytes, static_cast<size_t>(row_bytes));
  }
  if (end - begin == 1) {
    std::memcpy(out + begin * row_bytes, column + slot * row_bytes, static_cast<size_t>(row_bytes));
    return;
  }
  if (timeline.streams() == 1) {
    const int64_t capacity = timeline.places().capacity;
    const int64_t before_wrap = std::min(end - begin, capacity - slot);
    std::memcpy(out + begin * row_bytes, column + slot * row_bytes, static_cast<size_t>(before_wrap * row_bytes));
    std::memcpy(out + (begin + before_wrap) * row_bytes, column,
                static_cast<size_t>((end - begin - before_wrap) * row_bytes));
    return;
  }
  for (int64_t i = begin; i < end; ++i, slot = timeline.Next(slot)) {
    std::memcpy(out + i * row_bytes, column + slot * row_bytes, static_cast<size_t>(row_bytes));
  }
}

// Returns the slot of the row at a position of an output, counted over its runs, or -1 for zeros.
REPLAY_BOTH inline int64_t SlotAt(const Timeline &timeline, const Window &window, const Output &output,
                                  int64_t position) {
  const int64_t run = position / output.length;
  const int64_t first = FirstOf(output, window, run);
  const Part part = InsideOf(window, output, run, first);
  const int64_t place = position % output.length;
  const int64_t i = output.Repeats() && part.begin < part.end ? std::max(place, part.begin) : place;
  return i >= part.begin && i < part.end ? timeline.Shifted(window.start.slot, first + i) : -1;
}

inline void CopyWindow(const Timeline &timeline, const Window &window, const Output &output, const char *column,
                       int64_t row_bytes, char *out) {
  for (int64_t run = 0; run < output.runs; ++run) {
    CopyRun(timeline, window, output, column, row_bytes, run, out + run * output.length * row_bytes);
  }
}

inline void FillMask(const Window &window, const Output &output, uint8_t *out) {
  for (int64_t run = 0; run < output.runs; ++run, out += output.length) {
    const Part part = InsideOf(window, output, run, FirstOf(output, window, run));
    std::memset(out, 0, static_cast<size_t>(output.length));
    std::memset(out + part.begin, 1, static_cast<size_t>(part.end - part.begin));
  }
}

// Each step has gamma as its discount.
struct NoDiscounts {
  REPLAY_BOTH double At(int64_t) const { return 1; }
};

// A column with each step's own discount, which multiplies gamma.
struct StepDiscounts {
  const char *rows;  // null for none
  bool is_double;

  REPLAY_BOTH double At(int64_t slot) const {
    return is_double ? reinterpret_cast<const double *>(rows)[slot] : reinterpret_cast<const float *>(rows)[slot];
  }
};

// Rewards of other goals: 0 for a row that achieved one within the tolerance of the goal, else -1.
struct SparseReward {
  const char *achieved;  // the goal of each row; null if rewards are as they are stored
  int64_t elements;      // numbers of a goal
  bool is_double;
  double tolerance;

  REPLAY_BOTH double At(int64_t slot, int64_t goal_slot) const {
    return is_double ? Of(reinterpret_cast<const double *>(achieved), slot, goal_slot)
                     : Of(reinterpret_cast<const float *>(achieved), slot, goal_slot);
  }

 private:
  template <typename T>
  REPLAY_BOTH double Of(const T *goals, int64_t slot, int64_t goal_slot) const {
    double sum = 0;
    for (int64_t i = 0; i < elements; ++i) {
      const double difference =
          static_cast<double>(goals[slot * elements + i]) - static_cast<double>(goals[goal_slot * elements + i]);
      sum += difference * difference;
    }
    return std::sqrt(sum) > tolerance ? -1 : 0;
  }
};

// Returns the discounted sum over the chain of a step of `reward(slot)`; 0 for a step outside the sample.
template <typename T, typename Reward, typename Discounts>
REPLAY_BOTH inline T SumOfChain(const Timeline &timeline, const Window &window, const Reward &reward, int64_t step,
                                const double *powers, const Discounts &discounts) {
  if (!window.Gives(step)) return 0;
  const int64_t chain = window.ChainAt(step);
  double sum = 0;
  double product = 1;
  int64_t slot = step == 0 ? window.start.slot : timeline.Shifted(window.start.slot, step);
  for (int64_t k = 0; k < chain; ++k, slot = timeline.Next(slot)) {
    sum += powers[k] * product * static_cast<double>(reward(slot));
    product *= discounts.At(slot);
  }
  return static_cast<T>(sum);
}

}  // namespace replay
