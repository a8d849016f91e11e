// Macros and primitives that let one algorithm run on a CPU and, compiled by nvcc, on a GPU, where many threads may
// change one number.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__CUDACC__) || defined(MINDSPORE_REPLAY_EMULATED)
#define REPLAY_BOTH __host__ __device__
#else
#define REPLAY_BOTH
#endif

// Precedes a template that runs on host or device, as its arguments do.
#ifdef __CUDACC__
#define REPLAY_WHERE_ARGUMENTS_DO _Pragma("nv_exec_check_disable")
#else
#define REPLAY_WHERE_ARGUMENTS_DO
#endif

// 1 if this is compiled for GPU threads or for their emulation.
#if defined(__CUDA_ARCH__) || defined(MINDSPORE_REPLAY_EMULATED)
#define REPLAY_ON_DEVICE 1
#else
#define REPLAY_ON_DEVICE 0
#endif

namespace replay {

// Sets n elements to one value.
constexpr auto kFill = [](auto *numbers, int64_t n, auto value) { std::fill_n(numbers, n, value); };

// *number += change.
REPLAY_BOTH inline void AddTo(double *number, double change) {
#if REPLAY_ON_DEVICE
  if (change != 0) atomicAdd(number, change);
#else
  *number += change;
#endif
}

REPLAY_BOTH inline void AddTo(int64_t *number, int64_t change) {
#if REPLAY_ON_DEVICE
  if (change != 0) atomicAdd(reinterpret_cast<unsigned long long *>(number), static_cast<unsigned long long>(change));
#else
  *number += change;
#endif
}

// Stores a number and returns the previous one.
REPLAY_BOTH inline double Exchange(double *place, double number) {
#if REPLAY_ON_DEVICE
  auto *bits = reinterpret_cast<unsigned long long *>(place);
  return __longlong_as_double(
      static_cast<long long>(atomicExch(bits, static_cast<unsigned long long>(__double_as_longlong(number)))));
#else
  const double before = *place;
  *place = number;
  return before;
#endif
}

}  // namespace replay
