// The state of a buffer with weights among the arguments of a kernel.
#ifndef MINDSPORE_REPLAY_WEIGHTED_BUFFER_H_
#define MINDSPORE_REPLAY_WEIGHTED_BUFFER_H_

#include <algorithm>
#include <cstdint>

#include "adapters.h"
#include "arguments.h"
#include "sum_tree.h"
#include "weights.h"

namespace replay {

// Arguments of a buffer's state: k columns, head, count, serials, and the seven of `RowWeights` in its order.
constexpr int kStateArguments = 10;

constexpr int64_t kCountNumbers = sizeof(Counts) / sizeof(int64_t);

constexpr int64_t kLastClock = int64_t{1} << 62;  // the last value of a learner's clock

struct WeightedBuffer {
  Cursors ring;
  RowWeights rows;
};

// Whether the first arguments have the dtypes and sizes of the state of a buffer with weights, of k columns.
inline bool HasWeights(const Arguments &args, int k) {
  if (k < 1 || args.size() < k + kStateArguments || !HasRing(args, k)) return false;
  const int64_t capacity = args.dim(0, 0);
  return args.Is(k + 2, "int64", 2) && args.Is(k + 3, "float64", SumTree::Size(capacity)) &&
         args.Is(k + 4, "float32", capacity) && args.Is(k + 5, "float32", 1) && args.Is(k + 6, "int32", capacity) &&
         args.Is(k + 7, "int64", capacity) && args.Is(k + 8, "int64", 2) && args.Is(k + 9, "int64", kCountNumbers);
}

// As HasWeights, and the numbers are those of such a buffer.
inline bool IsWeightedBuffer(const Arguments &args, int k) {
  return HasWeights(args, k) && AreCursors(*args.data<int32_t>(k), *args.data<int32_t>(k + 1), args.dim(0, 0)) &&
         AreSerials(args.data<int64_t>(k + 2)[0], args.data<int64_t>(k + 2)[1], *args.data<int32_t>(k + 1),
                    args.data<Clock>(k + 8)->fresh);
}

inline WeightedBuffer BufferOf(const Arguments &args, int k) {
  const int64_t capacity = args.dim(0, 0);
  const int64_t *serials = args.data<int64_t>(k + 2);
  return {{capacity, *args.data<int32_t>(k), *args.data<int32_t>(k + 1), serials[0], serials[1]},
          {SumTree(args.data<double>(k + 3), capacity), args.data<float>(k + 4), args.data<float>(k + 5),
           args.data<int32_t>(k + 6), args.data<int64_t>(k + 7), args.data<Clock>(k + 8),
           args.data<Counts>(k + 9)}};
}

inline WeightRule RuleOf(const Arguments &args, int i) {
  const double *factors = args.data<double>(i);
  return {factors[0], factors[1]};
}

// Whether argument i holds priorities for n rows, one for all or one for each.
inline bool IsPriority(const Arguments &args, int i, int64_t n) { return args.Is(i, "float32", 1) || args.Is(i, "float32", n); }

inline bool AreWeights(const float *values, int64_t n) {
  return std::all_of(values, values + n, [](float value) { return IsWeight(value); });
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_WEIGHTED_BUFFER_H_
