// What all GPU kernels share: launches, failures that only the GPU detects, and the detection of the last block.
#pragma once

#ifndef MINDSPORE_REPLAY_EMULATED
#include <cuda_runtime.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <vector>

#include "adapters.h"
#include "arguments.h"
#include "binding.h"
#include "core/portable.h"
#include "core/status.h"

namespace replay {

constexpr int kMostColumns = 40;
#ifdef MINDSPORE_REPLAY_EMULATED
constexpr int kThreads = 64;  // per block; few, since one processor runs them all
#else
constexpr int kThreads = 256;  // per block
#endif

// Keeps the GPU memory that a call frees for the next call: the driver takes longer to allocate memory than a kernel
// runs. CUDA 11.1 has no memory pools.
inline cudaError_t TakeScratch(void **memory, size_t bytes, cudaStream_t stream) {
#if CUDART_VERSION >= 11020
  return cudaMallocAsync(memory, bytes, stream);
#else
  return static_cast<void>(stream), cudaMalloc(memory, bytes);
#endif
}

inline void GiveScratchBack(void *memory, cudaStream_t stream) {
#if CUDART_VERSION >= 11020
  cudaFreeAsync(memory, stream);
#else
  static_cast<void>(stream);
  cudaFree(memory);
#endif
}

inline void KeepScratch() {
#if CUDART_VERSION >= 11020
  int device = 0;
  cudaMemPool_t pool;
  uint64_t all = ~uint64_t{0};
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetDefaultMemPool(&pool, device) != cudaSuccess) return;
  cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
#endif
}

// The first call that was refused on the GPU. It is in host memory, so that no call waits for the GPU.
struct Failure {
  int status;
  const char *kernel;
};

// The failure, null before the first kernel call: a mere query for failures must not make CUDA choose a device.
inline std::atomic<volatile Failure *> the_failure{nullptr};

// Returns the failure, for a kernel call; allocates it on first use. Null if CUDA has no memory.
inline volatile Failure *TheFailure() {
  static volatile Failure *const failure = [] {
    void *memory = nullptr;
    if (cudaHostAlloc(&memory, sizeof(Failure), cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess) {
      return static_cast<volatile Failure *>(nullptr);
    }
    *static_cast<Failure *>(memory) = {kOk, nullptr};
    KeepScratch();
    the_failure = static_cast<volatile Failure *>(memory);
    return the_failure.load();
  }();
  return failure;
}

// Reports that a launch was refused on the GPU. State is unchanged then, and a sample is zero.
struct Report {
  volatile Failure *failure;
  const char *kernel;

  __device__ void operator()(int status) const {
    if (failure->status != kOk) return;
    failure->kernel = kernel;
    __threadfence_system();
    failure->status = status;
  }
};

// A kernel call by MindSpore: its stream, status and scratch memory.
class Call {
 public:
  Call(const char *kernel, void *stream) : report{TheFailure(), kernel}, stream_(static_cast<cudaStream_t>(stream)) {}
  ~Call() {
    for (void *memory : scratch_) GiveScratchBack(memory, stream_);
  }
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  // Returns kOk, or the reason why no kernel may be launched now.
  int Ready() const {
    if (report.failure == nullptr) return Refused(cudaErrorMemoryAllocation);
    const int earlier = report.failure->status;
    if (earlier == kOk) return kOk;
    report.failure->status = kOk;
    return kEarlier + earlier;
  }

  // Launches `blocks` blocks, at least one, of kThreads threads; does nothing after a failure.
  template <typename... Parameters>
  void Launch(void (*kernel)(Parameters...), int64_t blocks, std::common_type_t<Parameters>... parameters) {
    if (status_ != kOk) return;
    void *addresses[] = {&parameters...};
    const dim3 grid(static_cast<unsigned>(blocks < 1 ? 1 : blocks));
#ifdef MINDSPORE_REPLAY_EMULATED
    const auto function = kernel;
#else
    const auto *function = reinterpret_cast<const void *>(kernel);  // the type that every version of CUDA accepts
#endif
    Check(cudaLaunchKernel(function, grid, dim3(kThreads), addresses, 0, stream_));
  }

  // Returns GPU memory for n numbers, freed with this call; null if there is none, and the call fails.
  template <typename Number>
  Number *Scratch(int64_t n) {
    void *memory = nullptr;
    const auto bytes = static_cast<size_t>(n) * sizeof(Number);
    if (status_ != kOk || !Check(TakeScratch(&memory, bytes, stream_))) return nullptr;
    scratch_.push_back(memory);
    return static_cast<Number *>(memory);
  }

  // Returns GPU memory with a copy of `data`, freed with this call.
  void *CopyOf(const void *data, int64_t bytes) {
    void *copy = Scratch<char>(bytes);
    if (copy != nullptr) {
      Check(cudaMemcpyAsync(copy, data, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_));
    }
    return copy;
  }

  void Fail(int status) { status_ = status; }

  // The status that the call returns.
  int End() const { return status_; }

  const Report report;

 private:
  bool Check(cudaError_t error) {
    if (error != cudaSuccess) status_ = Refused(error);
    return error == cudaSuccess;
  }

  int Refused(cudaError_t error) const {
    std::fprintf(stderr, "mindspore_replay: %s: CUDA says: %s\n", report.kernel, cudaGetErrorString(error));
    cudaGetLastError();
    return kDeviceError;
  }

  cudaStream_t stream_;
  std::vector<void *> scratch_;
  int status_ = kOk;
};

// Calls the adapter of a kernel with bound arguments. Inputs that overlap the buffer's own state are copied first.
template <int kOperator>
int RunOnDevice(void (*adapter)(Call *, const Bound<kOperator> &), const char *name, const Arguments &args,
                void *stream) {
  Binding binding;
  if (!Binder<kOperator>(args, &binding).Bind()) return kBadArguments;
  if (binding.k > kMostColumns) return kTooMany;
  Call call(name, stream);
  if (const int status = call.Ready()) return status;
  std::vector<void *> memory(args.params(), args.params() + args.size());
  const Overlaps<kOperator> overlaps(args, binding);
  for (const int i : overlaps.Find(overlaps.State()))
    memory[static_cast<size_t>(i)] = call.CopyOf(args.data<char>(i), overlaps.Bytes(i));
  const Arguments own = args.In(memory.data());
  adapter(&call, Bound<kOperator>(own, binding));
  return call.End();
}

// Counts the finished blocks of a launch. Each launch takes the next of many counters, which is zero again afterwards.
constexpr unsigned kTickets = 1024;
static __device__ unsigned tickets[kTickets];

inline unsigned NextTicket() {
  static std::atomic<unsigned> next{0};
  return next++ % kTickets;
}

// True if this block is the last of the launch to get here. Then it sees what the others wrote before they got here. A
// barrier for the block's threads. Only the last block changes the cursors of a buffer, since no other block reads them
// any more; the others may still be copying rows.
__device__ inline bool IsLastBlock(unsigned ticket) {
  __shared__ bool last;
  __syncthreads();
  if (gridDim.x == 1) return true;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&tickets[ticket], 1u) == gridDim.x - 1;
    if (last) tickets[ticket] = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Returns the sum of a value over the threads of a block; all of them call it.
__device__ inline int64_t SumOfBlock(int64_t value) {
  __shared__ unsigned long long sum;
  __syncthreads();
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (value != 0) atomicAdd(&sum, static_cast<unsigned long long>(value));
  __syncthreads();
  return static_cast<int64_t>(sum);
}

// The first index of a thread's loop over the whole launch, and the stride of that loop.
__device__ inline int64_t FirstOfGrid() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t GridStride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Ends a refused launch, in every thread of it, and sets its output, one number.
template <typename Number>
__device__ void Refuse(const Report &report, int status, Number *given, Number value = 0) {
  if (FirstOfGrid() != 0) return;
  *given = value;
  report(status);
}

// Returns the number of blocks for n items, one per thread; at most 4096, whose threads then take several in turn.
inline int64_t BlocksFor(int64_t n) {
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return blocks < 4096 ? blocks : 4096;
}

}  // namespace replay

// Defines a kernel: the function body that follows takes `call` and `args`, which are bound to the operator's signature
// and lie in GPU memory.
#define MINDSPORE_REPLAY_CUDA_KERNEL(name)                                                             \
  static void name##_of(replay::Call *call, const replay::Bound<replay::OperatorNumber(#name)> &args); \
  MINDSPORE_REPLAY_EXPORT int replay_##name(int nparam, void **params, int *ndims, int64_t **shapes,   \
                                            const char **dtypes, void *stream, void *) {               \
    return replay::RunOnDevice<replay::OperatorNumber(#name)>(                                         \
        name##_of, "replay_" #name, replay::Arguments(nparam, params, ndims, shapes, dtypes), stream); \
  }                                                                                                    \
  static void name##_of(replay::Call *call, const replay::Bound<replay::OperatorNumber(#name)> &args)
