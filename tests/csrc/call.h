// Kernels as MindSpore calls them: arguments in memory of their own that is just large enough. With
// MINDSPORE_REPLAY_ON_CUDA that is memory of the GPU, to which they are copied for a call and from which they return.
#ifndef MINDSPORE_REPLAY_TESTS_CALL_H_
#define MINDSPORE_REPLAY_TESTS_CALL_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "check.h"
#include "status.h"
#include "sum_tree.h"

#if defined(MINDSPORE_REPLAY_ON_CUDA) && !defined(MINDSPORE_REPLAY_EMULATED)
#include <cuda_runtime.h>
#endif

using KernelFunction = int(int, void **, int *, int64_t **, const char **, void *, void *);
using Kernel = KernelFunction *;
using Shape = std::vector<int64_t>;

inline int64_t Elements(const Shape &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

// One argument of a kernel, in memory of its own that is just large enough.
struct Argument {
  std::string dtype;
  Shape shape;
  std::vector<char> bytes;

  template <typename T>
  T *as() {
    return reinterpret_cast<T *>(bytes.data());
  }
};

template <typename T>
Argument Make(const char *dtype, Shape shape, std::vector<T> values) {
  Argument argument{dtype, std::move(shape), std::vector<char>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(argument.bytes.data(), values.data(), argument.bytes.size());
  return argument;
}

inline Argument Zeros(const char *dtype, Shape shape) {
  const auto bytes = static_cast<size_t>(Elements(shape) * std::max<int64_t>(replay::ElementBytes(dtype), 1));
  return {dtype, std::move(shape), std::vector<char>(bytes)};
}

inline Argument Int32(int32_t value) { return Make<int32_t>("int32", {}, {value}); }

inline Argument Int64(std::vector<int64_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Make<int64_t>("int64", {n}, std::move(values));
}

inline Argument Doubles(std::vector<double> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Make<double>("float64", {n}, std::move(values));
}

inline Argument Floats(std::vector<float> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Make<float>("float32", {n}, std::move(values));
}

inline Argument Ints(std::vector<int32_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Make<int32_t>("int32", {n}, std::move(values));
}

inline Argument Flags(std::vector<uint8_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Make<uint8_t>("uint8", {n}, std::move(values));
}

inline Argument One(const char *dtype) { return Zeros(dtype, {}); }

inline std::vector<Argument> With(std::vector<Argument> arguments, std::vector<Argument> more) {
  for (Argument &argument : more) arguments.push_back(std::move(argument));
  return arguments;
}

// A tree made at once from these leaves.
inline std::vector<double> FreshTree(const std::vector<double> &leaves) {
  const auto capacity = static_cast<int64_t>(leaves.size());
  std::vector<double> data(static_cast<size_t>(replay::SumTree::Size(capacity)));
  replay::SumTree tree(data.data(), capacity);
  tree.Clear(replay::kFill);
  std::vector<int64_t> slots;
  for (int64_t slot = 0; slot < capacity; ++slot) {
    tree.SetLeaf(slot, leaves[static_cast<size_t>(slot)]);
    slots.push_back(slot);
  }
  tree.Refresh(&slots);
  return data;
}

#ifdef MINDSPORE_REPLAY_ON_CUDA

// The kernels, which are linked: names of theirs would be in the way of the tests'.
extern "C" {
int replay_take_failure(const char **kernel);
KernelFunction replay_ring_write, replay_ring_read, replay_gather_rows, replay_sample_uniform, replay_draw_uniform;
KernelFunction replay_random_bits, replay_tree_set, replay_tree_descend, replay_tree_sums, replay_tree_summary;
KernelFunction replay_insert_weighted, replay_sample_weighted, replay_sample_prioritized, replay_update_priorities;
KernelFunction replay_delete, replay_advance, replay_info, replay_reset_weighted, replay_insert_timed;
KernelFunction replay_sample_windows, replay_update_timed, replay_end_episodes, replay_delete_timed;
KernelFunction replay_advance_timed, replay_reset_timed, replay_reservoir_insert, replay_reservoir_insert_weighted;
}

// How many of the arguments are outputs, which come last, for those calls of a kernel that the tests make.
inline size_t Outputs(Kernel kernel) {
  static const std::map<Kernel, size_t> outputs = {
      {replay_ring_read, 2},          {replay_gather_rows, 2}, {replay_sample_uniform, 2}, {replay_sample_weighted, 2},
      {replay_sample_prioritized, 3}, {replay_info, 3},        {replay_sample_windows, 6}};
  const auto found = outputs.find(kernel);
  return found == outputs.end() ? 1 : found->second;
}

inline void MustSucceed(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// Copies of arguments in memory of the GPU. One that lies in another before it here does so there.
class DeviceCopies {
 public:
  DeviceCopies(const std::vector<void *> &params, const std::vector<size_t> &sizes) {
    for (size_t i = 0; i < params.size(); ++i) {
      this->params.push_back(sizes[i] > 0 ? CopyOf(static_cast<char *>(params[i]), sizes[i]) : nullptr);
    }
  }

  ~DeviceCopies() {
    for (const auto &[argument, copy] : copies_) MustSucceed(cudaFree(copy.data));
  }
  DeviceCopies(const DeviceCopies &) = delete;
  DeviceCopies &operator=(const DeviceCopies &) = delete;

  // Gives the arguments what the kernel wrote.
  void Read() const {
    for (const auto &[argument, copy] : copies_) {
      MustSucceed(cudaMemcpy(argument, copy.data, copy.bytes, cudaMemcpyDeviceToHost));
    }
  }

  std::vector<void *> params;

 private:
  struct Copy {
    void *data = nullptr;
    size_t bytes = 0;
  };

  void *CopyOf(char *argument, size_t bytes) {
    for (const auto &[other, copy] : copies_) {
      if (argument >= other && argument + bytes <= other + copy.bytes) {
        return static_cast<char *>(copy.data) + (argument - other);
      }
    }
    Copy &copy = copies_[argument];
    copy.bytes = bytes;
    MustSucceed(cudaMalloc(&copy.data, bytes));
    MustSucceed(cudaMemcpy(copy.data, argument, bytes, cudaMemcpyHostToDevice));
    return copy.data;
  }

  std::map<char *, Copy> copies_;
};

#endif  // MINDSPORE_REPLAY_ON_CUDA

// The arguments as a kernel takes them; they must outlive it.
class Arrays {
 public:
  explicit Arrays(std::vector<Argument> *arguments) {
    for (Argument &argument : *arguments) {
      params.push_back(argument.bytes.data());
      sizes_.push_back(argument.bytes.size());
      ndims_.push_back(static_cast<int>(argument.shape.size()));
      shapes_.push_back(argument.shape.data());
      dtypes.push_back(argument.dtype.c_str());
    }
  }

  int Call(Kernel kernel) {
#ifdef MINDSPORE_REPLAY_ON_CUDA
    DeviceCopies copies(params, sizes_);
    int status = CallOn(copies.params.data(), kernel);
    Check(status < 16, "an earlier failure was taken", __LINE__);
    MustSucceed(cudaDeviceSynchronize());
    const char *name = nullptr;
    if (status == replay::kOk) {
      status = replay_take_failure(&name);
      Check(status == replay::kOk || name != nullptr, "the name of the kernel that failed", __LINE__);
    }
    copies.Read();
    return status;
#else
    return CallOn(params.data(), kernel);
#endif
  }

  std::vector<void *> params;
  std::vector<const char *> dtypes;

 private:
  int CallOn(void **memory, Kernel kernel) {
    const auto n = static_cast<int>(params.size());
    return kernel(n, memory, ndims_.data(), shapes_.data(), dtypes.data(), nullptr, nullptr);
  }

  std::vector<size_t> sizes_;
  std::vector<int> ndims_;
  std::vector<int64_t *> shapes_;
};

inline int Call(Kernel kernel, std::vector<Argument> *arguments) { return Arrays(arguments).Call(kernel); }

using Change = std::function<void(std::vector<Argument> *)>;

// The kernel refuses the changed arguments with this status and leaves every byte as it was; on a GPU, where it may see
// too late that it has to, those of its inputs.
inline void Refuses(Kernel kernel, std::vector<Argument> arguments, const Change &change, int status, int line) {
  change(&arguments);
  std::vector<std::vector<char>> before;
  for (const Argument &argument : arguments) before.push_back(argument.bytes);
  Check(Call(kernel, &arguments) == status, "the status", line);
  size_t inputs = before.size();
#ifdef MINDSPORE_REPLAY_ON_CUDA
  inputs -= std::min(inputs, Outputs(kernel));
#endif
  bool same = true;
  for (size_t i = 0; i < inputs; ++i) same = same && before[i] == arguments[i].bytes;
  Check(same, "the arguments are unchanged", line);
}

#define REFUSES(kernel, make, status, change) \
  Refuses(kernel, make(), [](std::vector<Argument> *a) { change; }, replay::status, __LINE__)

#endif  // MINDSPORE_REPLAY_TESTS_CALL_H_
