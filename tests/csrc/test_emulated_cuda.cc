// Tests of emulated_cuda.h; compiled with it, as the .cu files are. Kernels give the results of a GPU in every order of
// their threads, and races become visible.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "check.h"

namespace {

constexpr int kThreads = 48;
constexpr uint64_t kSeeds = 20;

__device__ unsigned tickets;

// Sums each block's numbers in shared memory; the last block to end sums those of all. Threads beyond n return early.
__global__ void __launch_bounds__(kThreads) Sum(const int *numbers, int n, int *partial, int *total, int *votes) {
  __shared__ int sums[kThreads];
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.x * blockDim.x) + thread;
  if (i >= n) return;
  sums[thread] = numbers[i];
  __syncthreads();
  const int live = __syncthreads_count(1);
  for (int step = 1; step < live; step *= 2) {
    const int other = thread + step < live ? sums[thread + step] : 0;
    __syncthreads();
    sums[thread] += thread % (2 * step) == 0 ? other : 0;
    __syncthreads();
  }
  atomicAdd(&votes[0], __syncthreads_or(thread == 3));
  atomicAdd(&votes[1], __syncthreads_and(thread >= 0));
  atomicAdd(&votes[2], __syncthreads_and(thread > 0));
  if (thread == 0) {
    partial[blockIdx.x] = sums[0];
    __threadfence();
    last = atomicAdd(&tickets, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || thread > 0) return;
  *total = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) *total += partial[block];
  tickets = 0;
}

// Gives each thread its left neighbour's number; with `race`, before all have stored theirs.
__global__ void Shift(const int *numbers, bool race, int *shifted) {
  __shared__ int line[kThreads];
  const unsigned i = threadIdx.x;
  line[i] = numbers[i];
  if (!race) __syncthreads();
  shifted[i] = i == 0 ? numbers[0] : line[i - 1];
  __syncthreads();
  line[i] = -1;  // the next launch must not find values of this one
}

// Each block uses the result of the one before: only their order makes it right.
__global__ void Chain(int *numbers) { numbers[blockIdx.x + 1] = numbers[blockIdx.x] + 1; }

// Counts threads; with `race`, by a read and a write that are not atomic.
__global__ void CountThreads(bool race, int *count) {
  if (!race) {
    atomicAdd(count, 1);
  } else {
    const int before = atomicAdd(count, 0);
    atomicExch(count, before + 1);
  }
}

__global__ void DifferentBarriers() {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncthreads_or(1);
  }
}

template <typename... P, typename... A>
cudaError_t Launch(void (*kernel)(P...), dim3 grid, dim3 block, A... values) {
  std::tuple<P...> copies(values...);
  return std::apply(
      [&](P &...arguments) {
        void *pointers[] = {&arguments..., nullptr};
        return cudaLaunchKernel(kernel, grid, block, pointers, 0, nullptr);
      },
      copies);
}

// Device memory with these numbers.
template <typename T>
class Numbers {
 public:
  explicit Numbers(const std::vector<T> &values) : n_(values.size()) {
    CHECK(cudaMalloc(&data_, n_ * sizeof(T)) == cudaSuccess);
    CHECK(cudaMemcpyAsync(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice, nullptr) == cudaSuccess);
  }
  ~Numbers() { CHECK(cudaFree(data_) == cudaSuccess); }
  Numbers(const Numbers &) = delete;
  Numbers &operator=(const Numbers &) = delete;

  T *data() { return data_; }
  std::vector<T> Get() const {
    std::vector<T> values(n_);
    CHECK(cudaMemcpy(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }

 private:
  size_t n_;
  T *data_ = nullptr;
};

void TestSum() {
  constexpr int kBlocks = 5;
  constexpr int kNumbers = kBlocks * kThreads - 7;
  std::vector<int> values(kNumbers);
  std::iota(values.begin(), values.end(), 1);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulated_cuda::Device::Get().Seed(seed);
    Numbers<int> numbers(values), partial(std::vector<int>(kBlocks, 0)), total({0}), votes({0, 0, 0});
    for (int round = 1; round <= 2; ++round) {
      CHECK(Launch(Sum, kBlocks, kThreads, numbers.data(), kNumbers, partial.data(), total.data(), votes.data()) ==
            cudaSuccess);
      CHECK(total.Get()[0] == kNumbers * (kNumbers + 1) / 2);
      CHECK(votes.Get() == std::vector<int>({round * kNumbers, round * kNumbers, 0}));
    }
  }
}

// Returns the number of seeds that give the result of sequential threads and blocks.
template <typename Run>
uint64_t SeedsInOrder(const Run &run) {
  emulated_cuda::Device::Get().Seed(0);
  const std::vector<int> expected = run();
  uint64_t same = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated_cuda::Device::Get().Seed(seed);
    same += run() == expected;
  }
  return same;
}

void TestRaces() {
  std::vector<int> values(kThreads);
  std::iota(values.begin(), values.end(), 0);
  std::vector<int> shifted = values;
  for (int i = 1; i < kThreads; ++i) shifted[static_cast<size_t>(i)] = i - 1;
  auto shift = [&](bool race) {
    Numbers<int> numbers(values), results(values);
    CHECK(Launch(Shift, 1, kThreads, numbers.data(), race, results.data()) == cudaSuccess);
    return results.Get();
  };
  auto chain = [] {
    Numbers<int> numbers(std::vector<int>(4, 0));
    CHECK(Launch(Chain, 3, 1, numbers.data()) == cudaSuccess);
    return numbers.Get();
  };
  auto count = [](bool race) {
    Numbers<int> number({0});
    CHECK(Launch(CountThreads, 2, kThreads, race, number.data()) == cudaSuccess);
    return number.Get();
  };
  emulated_cuda::Device::Get().Seed(1);
  CHECK(shift(false) == shifted);
  CHECK(SeedsInOrder([&] { return shift(false); }) == kSeeds);
  CHECK(SeedsInOrder([&] { return shift(true); }) < kSeeds);
  CHECK(SeedsInOrder(chain) < kSeeds);
  CHECK(SeedsInOrder([&] { return count(false); }) == kSeeds);
  CHECK(SeedsInOrder([&] { return count(true); }) < kSeeds);
}

void TestBarriersOfDifferentKinds() {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(0);
    Launch(DifferentBarriers, 1, 2);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

}  // namespace

int main() {
  TestSum();
  TestRaces();
  TestBarriersOfDifferentKinds();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
