// Emulates on the host the part of CUDA that the .cu files need, for tests without a GPU: g++ compiles them with -x c++
// and -include of this file, and a launch runs one block after another. The threads of a block are fibers, which run
// until a barrier or their end. If the environment variable EMULATED_CUDA_SEED is not 0, its default, the order of
// blocks and threads is random and threads also pause at some atomic operations: code that depends on one order fails
// in others. Under the address sanitizer the host may access device memory by cudaMemcpy and the like alone. Not
// emulated: dynamic shared memory, warps, threads that wait for another block, and work concurrent with the host.
#ifndef MINDSPORE_REPLAY_TESTS_EMULATED_CUDA_H_
#define MINDSPORE_REPLAY_TESTS_EMULATED_CUDA_H_

#define MINDSPORE_REPLAY_EMULATED

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __host__
#define __shared__ static  // one block runs at a time
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
using cudaStream_t = struct CUstream_st *;
constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;

namespace emulated_cuda {

enum class Barrier { kPlain, kOr, kAnd, kCount };

// A thread of a block. One fiber runs the same thread of every block in turn.
struct Fiber {
  enum State { kReady, kAtBarrier, kEnded };

  static constexpr size_t kStackBytes = 256 << 10;  // the system allocates only the pages that are used

  Fiber() : stack(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0) std::abort();  // a guard: stacks grow downwards
  }

  void *stack;
  ucontext_t context{};
  void *fake_stack = nullptr;  // for the address sanitizer
  uint3 index;
  State state = kEnded;
  Barrier barrier = Barrier::kPlain;
  int value = 0;  // its argument to the barrier
};

// The device. It lives until the process ends, since destructors elsewhere may still free memory.
class Device {
 public:
  static Device &Get() {
    static Device &device = *new Device();
    return device;
  }

  // Overrides EMULATED_CUDA_SEED.
  void Seed(uint64_t seed) { seed_ = random_ = seed; }

  // Runs `thread` as each thread of a grid.
  cudaError_t Launch(dim3 grid, dim3 block, const std::function<void()> &thread) {
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if (blocks == 0 || threads == 0 || threads > 1024) return error_ = cudaErrorInvalidConfiguration;
    const Access access(this);
    thread_ = &thread;
    gridDim = grid;
    blockDim = block;
    while (fibers_.size() < threads) fibers_.push_back(NewFiber());
    std::vector<uint64_t> order(blocks);
    std::iota(order.begin(), order.end(), uint64_t{0});
    Shuffle(&order);
    for (const uint64_t number : order) {
      blockIdx = At(number, grid);
      RunBlock(threads, block);
    }
    return cudaSuccess;
  }

  // Blocks the running thread until the others of its block have arrived or ended. Returns how many brought true.
  int Wait(Barrier barrier, int value) {
    current_->barrier = barrier;
    current_->value = value;
    Leave(Fiber::kAtBarrier);
    return count_;
  }

  // Threads that waited at the last barrier.
  int live() const { return live_; }

  // Sometimes lets other threads of the block run, if the order is random.
  void MayPause() {
    if (seed_ != 0 && current_ != nullptr && Random() % 8 == 0) Leave(Fiber::kReady);
  }

  cudaError_t Allocate(void **memory, size_t bytes) {
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (posix_memalign(memory, 256, bytes) != 0) return error_ = cudaErrorMemoryAllocation;
    std::memset(*memory, 0xCB, bytes);  // makes reads of uninitialized memory visible
    const std::lock_guard<std::mutex> guard(lock_);
    memory_[*memory] = bytes;
    Allow(*memory, bytes, false);
    return cudaSuccess;
  }

  cudaError_t Free(void *memory) {
    if (memory == nullptr) return cudaSuccess;
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = memory_.find(memory);
    if (found == memory_.end()) return error_ = cudaErrorInvalidValue;
    Allow(memory, found->second, true);
    memory_.erase(found);
    std::free(memory);
    return cudaSuccess;
  }

  // While it lives, locks out other host threads and makes device memory accessible.
  class Access {
   public:
    explicit Access(Device *device) : device_(device), guard_(device->lock_) { Set(true); }
    ~Access() { Set(false); }
    Access(const Access &) = delete;
    Access &operator=(const Access &) = delete;

   private:
    void Set(bool allowed) {
      for (const auto &[memory, bytes] : device_->memory_) Allow(memory, bytes, allowed);
    }

    Device *device_;
    std::lock_guard<std::mutex> guard_;
  };

  cudaError_t TakeError() { return std::exchange(error_, cudaSuccess); }
  cudaError_t error() const { return error_; }

 private:
  Device() {
    const char *seed = std::getenv("EMULATED_CUDA_SEED");
    Seed(seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10));
  }

  static uint3 At(uint64_t number, dim3 size) {
    return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
            static_cast<unsigned>(number / size.x / size.y)};
  }

  uint64_t Random() {
    uint64_t bits = random_ += 0x9E3779B97F4A7C15;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
    return bits ^ (bits >> 31);
  }

  template <typename T>
  void Shuffle(std::vector<T> *values) {
    if (seed_ == 0) return;
    for (size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[Random() % i]);
  }

  void RunBlock(uint64_t threads, dim3 block) {
    for (uint64_t i = 0; i < threads; ++i) {
      fibers_[i]->index = At(i, block);
      fibers_[i]->state = Fiber::kReady;
    }
    for (;;) {
      ready_.clear();
      for (uint64_t i = 0; i < threads; ++i) {
        if (fibers_[i]->state == Fiber::kReady) ready_.push_back(fibers_[i].get());
      }
      if (ready_.empty()) return;
      Shuffle(&ready_);
      for (size_t i = 0; i < ready_.size(); ++i) {
        Enter(ready_[i]);
        if (ready_[i]->state == Fiber::kReady) ready_.push_back(ready_[i]);  // it paused
      }
      OpenBarrier(threads);
    }
  }

  // Releases the threads at the barrier: all that have not ended.
  void OpenBarrier(uint64_t threads) {
    const Fiber *first = nullptr;
    count_ = live_ = 0;
    for (uint64_t i = 0; i < threads; ++i) {
      Fiber *fiber = fibers_[i].get();
      if (fiber->state == Fiber::kEnded) continue;
      if (first == nullptr) first = fiber;
      if (fiber->barrier != first->barrier) {
        std::fprintf(stderr, "threads of a block wait at barriers of different kinds\n");
        std::abort();
      }
      count_ += fiber->value != 0;
      ++live_;
      fiber->state = Fiber::kReady;
    }
  }

  std::unique_ptr<Fiber> NewFiber() {
    auto fiber = std::make_unique<Fiber>();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = Fiber::kStackBytes;
    makecontext(&fiber->context, Main, 0);
    fiber->context.uc_stack.ss_size = 0;  // else the address sanitizer forgets the stack at each switch to it
    return fiber;
  }

  static void Main() {
    Device &device = Get();
    device.Entered(nullptr);
    for (;;) {
      (*device.thread_)();
      device.Leave(Fiber::kEnded);
    }
  }

  // Switches from the host to a thread, until that leaves.
  void Enter(Fiber *fiber) {
    current_ = fiber;
    threadIdx = fiber->index;
#ifdef __SANITIZE_ADDRESS__
    void *fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, fiber->stack, Fiber::kStackBytes);
#endif
    swapcontext(&host_, &fiber->context);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
    current_ = nullptr;
  }

  // Switches from the running thread to the host, until the host enters it again.
  void Leave(Fiber::State state) {
    Fiber *fiber = current_;
    fiber->state = state;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&fiber->fake_stack, host_stack_, host_stack_bytes_);
#endif
    swapcontext(&fiber->context, &host_);
    Entered(fiber->fake_stack);
  }

  void Entered([[maybe_unused]] void *fake_stack) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, &host_stack_, &host_stack_bytes_);
#endif
  }

  static void Allow([[maybe_unused]] void *memory, [[maybe_unused]] size_t bytes, [[maybe_unused]] bool allowed) {
#ifdef __SANITIZE_ADDRESS__
    allowed ? __asan_unpoison_memory_region(memory, bytes) : __asan_poison_memory_region(memory, bytes);
#endif
  }

  std::mutex lock_;
  std::map<void *, size_t> memory_;
  cudaError_t error_ = cudaSuccess;
  uint64_t seed_ = 0;
  uint64_t random_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber *> ready_;
  const std::function<void()> *thread_ = nullptr;
  Fiber *current_ = nullptr;
  ucontext_t host_{};
  [[maybe_unused]] const void *host_stack_ = nullptr;
  [[maybe_unused]] size_t host_stack_bytes_ = 0;
  int count_ = 0;  // threads that brought true to the last barrier
  int live_ = 0;
};

template <typename... P, size_t... I>
cudaError_t Launch(void (*kernel)(P...), dim3 grid, dim3 block, [[maybe_unused]] void **args,
                   std::index_sequence<I...>) {
  const std::tuple<P...> copies(*static_cast<P *>(args[I])...);
  return Device::Get().Launch(grid, block, [&] { std::apply(kernel, copies); });
}

template <typename T, typename Change>
T Atomic(T *address, const Change &change) {
  Device::Get().MayPause();
  const T before = *address;
  *address = change(before);
  return before;
}

template <typename To, typename From>
To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace emulated_cuda

inline void __syncthreads() { emulated_cuda::Device::Get().Wait(emulated_cuda::Barrier::kPlain, 0); }
inline int __syncthreads_or(int value) {
  return emulated_cuda::Device::Get().Wait(emulated_cuda::Barrier::kOr, value) > 0;
}
inline int __syncthreads_and(int value) {
  return emulated_cuda::Device::Get().Wait(emulated_cuda::Barrier::kAnd, value) == emulated_cuda::Device::Get().live();
}
inline int __syncthreads_count(int value) {
  return emulated_cuda::Device::Get().Wait(emulated_cuda::Barrier::kCount, value);
}
inline void __threadfence() { emulated_cuda::Device::Get().MayPause(); }
inline void __threadfence_system() { __threadfence(); }

inline long long __double_as_longlong(double value) { return emulated_cuda::Bits<long long>(value); }
inline double __longlong_as_double(long long value) { return emulated_cuda::Bits<double>(value); }
inline int __float_as_int(float value) { return emulated_cuda::Bits<int>(value); }

// Overloads rather than templates: CUDA has these operations for these types only.
#define EMULATED_CUDA_ATOMIC(name, T, after)                                                     \
  inline T name(T *address, T value) {                                                           \
    return emulated_cuda::Atomic(address, [value]([[maybe_unused]] T before) { return after; }); \
  }
#define EMULATED_CUDA_ATOMICS(T)                                                                          \
  EMULATED_CUDA_ATOMIC(atomicAdd, T, before + value)                                                      \
  EMULATED_CUDA_ATOMIC(atomicExch, T, value)                                                              \
  EMULATED_CUDA_ATOMIC(atomicOr, T, before | value)                                                       \
  EMULATED_CUDA_ATOMIC(atomicAnd, T, (before) & value)                                                    \
  EMULATED_CUDA_ATOMIC(atomicMax, T, std::max(before, value))                                             \
  EMULATED_CUDA_ATOMIC(atomicMin, T, std::min(before, value))                                             \
  inline T atomicCAS(T *address, T expected, T value) {                                                   \
    return emulated_cuda::Atomic(address, [&](T before) { return before == expected ? value : before; }); \
  }
EMULATED_CUDA_ATOMICS(int)
EMULATED_CUDA_ATOMICS(unsigned)
EMULATED_CUDA_ATOMICS(unsigned long long)
EMULATED_CUDA_ATOMIC(atomicMax, long long, std::max(before, value))
EMULATED_CUDA_ATOMIC(atomicMin, long long, std::min(before, value))
EMULATED_CUDA_ATOMIC(atomicAdd, float, before + value)
EMULATED_CUDA_ATOMIC(atomicAdd, double, before + value)

inline const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    default: return "invalid configuration argument";
  }
}
inline cudaError_t cudaGetLastError() { return emulated_cuda::Device::Get().TakeError(); }
inline cudaError_t cudaPeekAtLastError() { return emulated_cuda::Device::Get().error(); }
inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

template <typename... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args, size_t shared = 0,
                             cudaStream_t = nullptr) {
  if (shared != 0) std::abort();
  return emulated_cuda::Launch(kernel, grid, block, args, std::index_sequence_for<P...>());
}

template <typename T>
cudaError_t cudaMalloc(T **memory, size_t bytes) {
  void *allocated = nullptr;
  const cudaError_t error = emulated_cuda::Device::Get().Allocate(&allocated, bytes);
  *memory = static_cast<T *>(allocated);
  return error;
}
template <typename T>
cudaError_t cudaMallocAsync(T **memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}
inline cudaError_t cudaFree(void *memory) { return emulated_cuda::Device::Get().Free(memory); }
inline cudaError_t cudaFreeAsync(void *memory, cudaStream_t) { return cudaFree(memory); }

template <typename T>
cudaError_t cudaHostAlloc(T **memory, size_t bytes, unsigned) {
  *memory = static_cast<T *>(std::malloc(bytes));
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(static_cast<void *>(*memory), 0xCB, bytes);
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaHostGetDevicePointer(T **on_device, void *memory, unsigned) {
  return *on_device = static_cast<T *>(memory), cudaSuccess;
}
inline cudaError_t cudaFreeHost(void *memory) { return std::free(memory), cudaSuccess; }

template <typename T>
cudaError_t cudaGetSymbolAddress(void **address, const T &symbol) {
  return *address = const_cast<std::remove_const_t<T> *>(&symbol), cudaSuccess;
}

inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
  const emulated_cuda::Device::Access access(&emulated_cuda::Device::Get());
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void *memory, int value, size_t bytes) {
  const emulated_cuda::Device::Access access(&emulated_cuda::Device::Get());
  if (bytes > 0) std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(memory, value, bytes);
}

// Work is done when it is captured, and a graph of it does nothing.
using cudaGraph_t = struct CUgraph_st *;
using cudaGraphExec_t = struct CUgraphExec_st *;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
inline cudaError_t cudaStreamCreate(cudaStream_t *stream) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaSuccess; }
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph) { return *graph = nullptr, cudaSuccess; }
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t, unsigned long long) {
  return *made = nullptr, cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

// Every two events are one second apart.
using cudaEvent_t = struct CUevent_st *;
inline cudaError_t cudaEventCreate(cudaEvent_t *event) { return *event = nullptr, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t, cudaEvent_t) {
  return *milliseconds = 1000, cudaSuccess;
}

#endif  // MINDSPORE_REPLAY_TESTS_EMULATED_CUDA_H_
