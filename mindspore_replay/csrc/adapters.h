// What the adapters of all kernels share: their C interface, and the copying of rows.
#ifndef MINDSPORE_REPLAY_ADAPTERS_H_
#define MINDSPORE_REPLAY_ADAPTERS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arguments.h"
#include "binding.h"
#include "core/exclusive.h"
#include "core/parallel.h"
#include "core/ring.h"
#include "core/status.h"

#define MINDSPORE_REPLAY_EXPORT extern "C" __attribute__((visibility("default")))

// A kernel: the function body that follows takes `args`, which fit the operator's signature.
#define MINDSPORE_REPLAY_KERNEL(name)                                                                                \
  static replay::Status name##_of(const replay::Bound<replay::OperatorNumber(#name)> &args);                         \
  MINDSPORE_REPLAY_EXPORT int replay_##name(int nparam, void **params, int *ndims, int64_t **shapes,                 \
                                            const char **dtypes, void *, void *) {                                   \
    return replay::Run<replay::OperatorNumber(#name)>(name##_of,                                                     \
                                                      replay::Arguments(nparam, params, ndims, shapes, dtypes));    \
  }                                                                                                                  \
  static replay::Status name##_of(const replay::Bound<replay::OperatorNumber(#name)> &args)

namespace replay {

// Calls a kernel while no other runs on the same buffer, which its head tells. What it is given in its own state it gets
// as copies.
template <int kOperator>
Status Run(Status (*kernel)(const Bound<kOperator> &), const Arguments &args) {
  Binding binding;
  if (!Binder<kOperator>(args, &binding).Bind()) return kBadArguments;
  const Bound<kOperator> bound(args, binding);
  const Exclusive exclusive(bound.template data<int32_t>(NAMED("head")));
  const Overlaps<kOperator> overlaps(args, binding);
  const std::vector<int> shared = overlaps.Find();
  if (shared.empty()) return kernel(bound);
  std::vector<void *> memory(args.params(), args.params() + args.size());
  std::vector<std::vector<char>> copies;
  for (const int i : shared) {
    copies.emplace_back(args.data<char>(i), args.data<char>(i) + overlaps.Bytes(i));
    memory[static_cast<size_t>(i)] = copies.back().data();
  }
  const Arguments copied = args.In(memory.data());
  return kernel(Bound<kOperator>(copied, binding));
}

// Rows of a column, and where those of a batch go.
struct Gathered {
  const char *column;
  char *rows;
  int64_t row_bytes;
};

// Copies the rows [from, to) of those at `slots` to their batches, a few at a time: while those are copied, the memory of
// the next ones is on its way.
inline void GatherPart(const std::vector<Gathered> &gathered, const int64_t *slots, int64_t from, int64_t to) {
  constexpr int64_t kRowsAtOnce = 32;
  auto prefetch = [&](int64_t begin) {
    const int64_t rows = std::min(kRowsAtOnce, to - begin);
    for (const Gathered &one : gathered) PrefetchRows(one.column, one.row_bytes, slots + begin, rows);
  };
  prefetch(from);
  for (int64_t begin = from; begin < to; begin += kRowsAtOnce) {
    if (begin + kRowsAtOnce < to) prefetch(begin + kRowsAtOnce);
    const int64_t rows = std::min(kRowsAtOnce, to - begin);
    for (const Gathered &one : gathered) {
      GatherRows(one.column, one.row_bytes, slots + begin, rows, one.rows + begin * one.row_bytes);
    }
  }
}

// Copies the rows at n slots to their batches.
inline void Gather(const std::vector<Gathered> &gathered, const int64_t *slots, int64_t n) {
  int64_t row_bytes = 0;
  for (const Gathered &one : gathered) row_bytes += one.row_bytes;
  InParallel(n, n * row_bytes, [&](int64_t begin, int64_t end) { GatherPart(gathered, slots, begin, end); });
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_ADAPTERS_H_
