// The state of a buffer whose rows know their episode among the arguments of a kernel.
#ifndef MINDSPORE_REPLAY_TIMED_BUFFER_H_
#define MINDSPORE_REPLAY_TIMED_BUFFER_H_

#include <cstdint>

#include "arguments.h"
#include "timeline.h"
#include "weighted_buffer.h"

namespace replay {

// Arguments of a buffer's state: those of a buffer with weights, then steps, flags and the rule of its windows.
constexpr int kTimedArguments = kStateArguments + 3;

// Whether the first arguments have the dtypes and sizes of the state of a buffer whose rows know their episode, of k
// columns.
inline bool HasTime(const Arguments &args, int k) {
  if (k < 1 || args.size() < k + kTimedArguments || !HasWeights(args, k)) return false;
  const int64_t capacity = args.dim(0, 0);
  const int first = k + kStateArguments;
  return args.Is(first, "int64", capacity) && args.Is(first + 1, "uint8", capacity) && args.Is(first + 2, "int64", 6);
}

// As HasTime, and the numbers are those of such a buffer.
inline bool IsTimedBuffer(const Arguments &args, int k) {
  return HasTime(args, k) && IsWeightedBuffer(args, k) &&
         IsRule(*args.data<WindowRule>(k + kStateArguments + 2), args.dim(0, 0));
}

inline Timeline TimelineOf(const Arguments &args, int k) {
  const WeightedBuffer buffer = BufferOf(args, k);
  const int first = k + kStateArguments;
  return {buffer.ring, buffer.rows, *args.data<WindowRule>(first + 2), args.data<int64_t>(first),
          args.data<uint8_t>(first + 1)};
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_TIMED_BUFFER_H_
