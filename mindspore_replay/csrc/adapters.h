// Shared by all CPU adapters: the C interface of a kernel, and row copies.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "binding.h"
#include "core/exclusive.h"
#include "core/parallel.h"
#include "core/ring.h"
#include "core/status.h"
#include "faults.h"
#include "shared.h"

#define MINDSPORE_REPLAY_EXPORT extern "C" __attribute__((visibility("default")))

// Defines a kernel: the function body that follows takes `args`, already bound to the operator's signature.
#define MINDSPORE_REPLAY_KERNEL(name)                                                                \
  static replay::Status name##_of(const replay::Bound<replay::OperatorNumber(#name)> &args);         \
  MINDSPORE_REPLAY_EXPORT int replay_##name(int nparam, void **params, int *ndims, int64_t **shapes, \
                                            const char **dtypes, void *caller, void *of_mindspore) { \
    const replay::Arguments args(nparam, params, ndims, shapes, dtypes);                             \
    replay::Caller none(of_mindspore != nullptr);                                                    \
    auto *from = caller == nullptr || none.in_graph ? &none : static_cast<replay::Caller *>(caller); \
    const replay::Status status = replay::Run<replay::OperatorNumber(#name)>(name##_of, args, from); \
    if (status != replay::kOk && of_mindspore != nullptr) replay::Fail("replay_" #name, status);     \
    return status;                                                                                   \
  }                                                                                                  \
  static replay::Status name##_of(const replay::Bound<replay::OperatorNumber(#name)> &args)

namespace replay {

// Throws the reason of a failure in a graph, which MindSpore shows; of a status it would show only the number.
// MindSpore catches exceptions of kernels. By then the kernel has returned, and holds neither lock nor memory.
[[noreturn]] __attribute__((noinline, cold)) inline void Fail(const char *kernel, Status status) {
  const char *reason = ReasonOf(status);
  std::string text = std::string("The kernel '") + kernel + (reason ? "' failed" : "' refused its arguments");
  text += " with status " + std::to_string(status) + (reason ? std::string(": ") + reason : "") + ".";
  if (std::string_view(kernel) == "replay_sample" && status == kTooFewRows) {
    text += " Call the compiled function once can_sample() is True.";
  }
  throw std::runtime_error(text + " After this failure, mindspore.ms_memory_recycle() makes the function work again.");
}

// Empties the upper halves of vector registers. Some libraries leave them in use, for example the one that computes
// a checkpoint's checksums. Kernels, whose instructions use the lower halves, would then take twice as long.
#ifdef __x86_64__
__attribute__((target("avx"), noinline)) inline void EmptyWithAvx() { _mm256_zeroupper(); }
inline void EmptyUpperHalves() {
  if (__builtin_cpu_supports("avx")) EmptyWithAvx();
}
#else
inline void EmptyUpperHalves() {}
#endif

// Returns what a call that inserts or samples rows answers if it failed: that they may not go in or out yet, if its thread
// waits for that.
inline Status Answer(const ProcessLock *lock, int turn, int64_t rows, Status status) {
  Limits *limits = lock == nullptr ? nullptr : lock->limits();
  if (limits == nullptr || limits->kind != Limits::kQueue || (status != kFull && status != kTooFewRows) ||
      Thread::This().ModeOf(lock->address(), turn) != kWaits) {
    return status;
  }
  if (status == kTooFewRows && limits->MayGo(turn, rows, lock->Available(turn))) return status;  // in a range of rows
  limits->Await(turn, rows);
  return kNotYet;
}

// Calls run(), which inserts or samples rows, if the limits of the buffer let them in or out now, and counts them. The
// caller holds the lock.
template <typename Kernel>
Status WithinLimits(const ProcessLock *lock, int turn, int64_t rows, const Kernel &run) {
  Limits *limits = lock == nullptr ? nullptr : lock->limits();
  if (limits == nullptr || limits->kind == Limits::kNone) return run();
  const int mode = Thread::This().ModeOf(lock->address(), turn);
  if (mode == kInside) return run();
  const bool is_queue = limits->kind == Limits::kQueue;
  const bool may_go = is_queue ? limits->in_progress[turn] == 0 || limits->MayGo(turn, rows, lock->Available(turn))
                               : !limits->IsNew(turn, rows) && limits->MayGo(turn, rows, 0);
  if (!may_go && mode == kWaits) limits->Await(turn, rows);
  if (!may_go) return kNotYet;
  const Status status = run();
  if (status == kOk) limits->Count(turn, rows);
  return Answer(lock, turn, rows, status);
}

// The turn of an operator that inserts or samples rows; -1 for others. And the rows of a call.
template <int kOperator>
constexpr int kTurnOf = kOperator == OperatorNumber("insert")   ? kInserts
                        : kOperator == OperatorNumber("sample") ? kSamples
                                                                : -1;

template <int kOperator>
int64_t RowsOf(const Bound<kOperator> &args) {
  if constexpr (kTurnOf<kOperator> == kInserts) {
    return args.n();
  } else {
    const int first_output = args.at(NAMED("outputs"));
    return args.raw().ndim(first_output) > 0 ? args.raw().dim(first_output, 0) : 0;
  }
}

// Runs a kernel under the lock of its buffer, which the address of `head` selects. Inputs that overlap the buffer's own
// state are copied first. Outside graphs it keeps to the limits of the buffer.
template <int kOperator>
Status Run(Status (*kernel)(const Bound<kOperator> &), const Arguments &args, Caller *caller) {
  EmptyUpperHalves();
  const Binding &binding = caller->binding;
  const Overlaps<kOperator> overlaps(args, binding);
  if (!caller->bound) {
    if (!Binder<kOperator>(args, new (&caller->binding) Binding).Bind()) return kBadArguments;
    caller->state = overlaps.State();
    caller->bound = true;
  }
  const Exclusive exclusive(args.data<int32_t>(binding.at[kSignature<kOperator>.At("head")]),
                            kTurnOf<kOperator> == kInserts);
  if (!exclusive.held()) return kNoLock;
  const ProcessLock *lock = exclusive.process_lock();
  const auto checked = [&](const Bound<kOperator> &bound) {
    const auto run = [&] {
      if constexpr (kTurnOf<kOperator> >= 0) {
        if (!caller->in_graph)
          return WithinLimits(lock, kTurnOf<kOperator>, RowsOf(bound), [&] { return kernel(bound); });
      }
      return kernel(bound);
    };
    const Status status = run();
    return lock != nullptr && HasFailed(lock->address()) ? kNoDisk : status;
  };
  const Bound<kOperator> bound(args, binding, SharedOf(exclusive.process_lock()));
  const std::vector<int> shared = overlaps.Find(caller->state);
  if (shared.empty()) return checked(bound);
  std::vector<void *> memory(args.params(), args.params() + args.size());
  std::vector<std::vector<char>> copies;
  for (const int i : shared) {
    copies.emplace_back(args.data<char>(i), args.data<char>(i) + overlaps.Bytes(i));
    memory[static_cast<size_t>(i)] = copies.back().data();
  }
  const Arguments copied = args.In(memory.data());
  return checked(Bound<kOperator>(copied, binding, bound.shared()));
}

// A column and the destination of its gathered rows.
struct Gathered {
  const char *column;
  char *rows;
  int64_t row_bytes;
};

// Gathers the rows at slots [from, to) in blocks; the next block is prefetched while one is copied.
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

// Gathers the rows at n slots, in parallel if they are large.
inline void Gather(const std::vector<Gathered> &gathered, const int64_t *slots, int64_t n) {
  int64_t row_bytes = 0;
  for (const Gathered &one : gathered) row_bytes += one.row_bytes;
  InParallel(n, n * row_bytes, [&](int64_t begin, int64_t end) { GatherPart(gathered, slots, begin, end); });
}

}  // namespace replay
