// What the adapters of all kernels share: their C interface, checks of a ring's arguments, and the copying of rows.
#ifndef MINDSPORE_REPLAY_ADAPTERS_H_
#define MINDSPORE_REPLAY_ADAPTERS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arguments.h"
#include "exclusive.h"
#include "given.h"
#include "parallel.h"
#include "ring.h"
#include "status.h"

#define MINDSPORE_REPLAY_EXPORT extern "C" __attribute__((visibility("default")))

// A kernel: the function body that follows takes `args`. `given` is a GivenOf.
#define MINDSPORE_REPLAY_KERNEL(name, given)                                                                        \
  static replay::Status name##_of(const replay::Arguments &args);                                                   \
  MINDSPORE_REPLAY_EXPORT int name(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,    \
                                   void *, void *) {                                                                \
    return nparam < 1 ? replay::kBadArguments                                                                       \
                      : replay::Run(name##_of, given, params, replay::Arguments(nparam, params, ndims, shapes, dtypes)); \
  }                                                                                                                 \
  static replay::Status name##_of(const replay::Arguments &args)

namespace replay {

// Calls a kernel while no other runs on the same buffer. What it is given in its own state it gets as copies.
inline Status Run(Status (*kernel)(const Arguments &), GivenOf given, void **params, const Arguments &args) {
  const Exclusive exclusive(params[0]);
  const std::vector<int> shared = SharedWithState(args, given(args));
  if (shared.empty()) return kernel(args);
  std::vector<void *> memory(params, params + args.size());
  std::vector<std::vector<char>> copies;
  for (const int i : shared) {
    copies.emplace_back(args.data<char>(i), args.data<char>(i) + args.Bytes(i));
    memory[static_cast<size_t>(i)] = copies.back().data();
  }
  return kernel(args.In(memory.data()));
}

// Whether the first k arguments are columns of one capacity.
inline bool AreColumns(const Arguments &args, int k) {
  for (int i = 0; i < k; ++i) {
    if (!args.IsColumn(i) || args.dim(i, 0) != args.dim(0, 0)) return false;
  }
  return true;
}

// Whether the first k arguments are columns of one capacity, and those after them int32 scalars.
inline bool HasRing(const Arguments &args, int k) {
  return AreColumns(args, k) && args.Is(k, "int32", 1) && args.Is(k + 1, "int32", 1);
}

// As HasRing, and the scalars are cursors of a ring.
inline bool IsRing(const Arguments &args, int k) {
  return HasRing(args, k) && AreCursors(*args.data<int32_t>(k), *args.data<int32_t>(k + 1), args.dim(0, 0));
}

// Whether arguments first, ..., first + k - 1 hold n rows of the columns 0, ..., k - 1.
inline bool HoldRows(const Arguments &args, int first, int k, int64_t n) {
  for (int i = 0; i < k; ++i) {
    if (args.RowsOf(first + i, i) != n) return false;
  }
  return n >= 1;
}

// Copies the rows [from, to) of those at `slots` of the columns 0, ..., k - 1 to the outputs, a few at a time: while
// those are copied, the memory of the next ones is on its way.
inline void GatherPart(const Arguments &args, int k, const int64_t *slots, int64_t from, int64_t to, int first_output) {
  constexpr int64_t kRowsAtOnce = 32;
  auto prefetch = [&](int64_t begin) {
    const int64_t rows = std::min(kRowsAtOnce, to - begin);
    for (int i = 0; i < k; ++i) PrefetchRows(args.data<char>(i), args.RowBytes(i), slots + begin, rows);
  };
  prefetch(from);
  for (int64_t begin = from; begin < to; begin += kRowsAtOnce) {
    if (begin + kRowsAtOnce < to) prefetch(begin + kRowsAtOnce);
    const int64_t rows = std::min(kRowsAtOnce, to - begin);
    for (int i = 0; i < k; ++i) {
      const int64_t bytes = args.RowBytes(i);
      char *output = args.data<char>(first_output + i) + begin * bytes;
      GatherRows(args.data<char>(i), bytes, slots + begin, rows, output);
    }
  }
}

// Copies the rows at `slots` of the columns 0, ..., k - 1 to the outputs.
inline void GatherColumns(const Arguments &args, int k, const int64_t *slots, int64_t n, int first_output) {
  int64_t row_bytes = 0;
  for (int i = 0; i < k; ++i) row_bytes += args.RowBytes(i);
  InParallel(n, n * row_bytes,
             [&](int64_t begin, int64_t end) { GatherPart(args, k, slots, begin, end, first_output); });
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_ADAPTERS_H_
