// Calls kernels as MindSpore does: arguments by their names in the signature table, each in memory of its own and exact
// size. With MINDSPORE_REPLAY_ON_CUDA that is GPU memory: arguments are copied there for a call and back afterwards.
#ifndef MINDSPORE_REPLAY_TESTS_CALL_H_
#define MINDSPORE_REPLAY_TESTS_CALL_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "check.h"
#include "core/status.h"
#include "core/sum_tree.h"
#include "core/updates.h"
#include "signatures.h"

#if defined(MINDSPORE_REPLAY_ON_CUDA) && !defined(MINDSPORE_REPLAY_EMULATED)
#include <cuda_runtime.h>
#endif

using KernelFunction = int(int, void **, int *, int64_t **, const char **, void *, void *);
using Kernel = KernelFunction *;
using Shape = std::vector<int64_t>;

// Returns the kernel of an operator, null if there is none. Each program defines it for its kernels.
Kernel KernelOf(const std::string &name);

[[noreturn]] inline void Fail(const std::string &what, const std::string &why) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), why.c_str());
  std::exit(1);
}

inline int64_t Elements(const Shape &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

// One argument of a kernel, in memory of its own and exact size.
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

// The bits of a number, as stored in a plan.
inline int64_t BitsOf(double number) {
  int64_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
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

// The signatures of all operators.
inline const std::vector<replay::Signature> &Signatures() {
  static const std::vector<replay::Signature> signatures = [] {
    std::vector<replay::Signature> all;
    for (const std::string_view &line : replay::kOperators) all.push_back(replay::parsing::SignatureOf(line));
    return all;
  }();
  return signatures;
}

inline const replay::Signature &SignatureOf(const std::string &name) {
  for (const replay::Signature &signature : Signatures()) {
    if (signature.name == name) return signature;
  }
  Fail(name, "not in the table of signatures");
}

// One array, or those of an item that stands for several: columns, rows or outputs.
struct Item : std::vector<Argument> {
  Item() = default;
  Item(Argument argument) : std::vector<Argument>{std::move(argument)} {}
  Item(std::vector<Argument> arguments) : std::vector<Argument>(std::move(arguments)) {}
  Item(std::initializer_list<Argument> arguments) : std::vector<Argument>(arguments) {}
};

// Arguments by name. A call takes those in its operator's signature.
class Arguments {
 public:
  Arguments(std::initializer_list<std::pair<const std::string, Item>> items) : items_(items) {
    for (const auto &[name, item] : items_) MustBeKnown(name);
  }

  // All arrays of an item.
  Item &All(const std::string &name) {
    MustBeKnown(name);
    return items_[name];
  }

  // The array of an item, or that for the first column.
  Argument &operator[](const std::string &name) {
    Item &item = All(name);
    if (item.empty()) item.emplace_back();
    return item.front();
  }

  bool Has(const std::string &name) const { return items_.count(name) > 0; }
  // True if a call takes an item of these arguments: all have a random state, which some operators take only for a
  // reservoir, and those with row state have counts, which `insert` takes only with versions.
  bool Has(const replay::Item &item) const {
    if (item.needs == replay::kReservoirGroup && !Has("row_serials")) return false;
    if (item.needs == replay::kVersionsGroup && !Has("version")) return false;
    return Has(std::string(item.name));
  }
  void Remove(const std::string &name) { items_.erase(name); }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto &[name, item] : items_) names.push_back(name);
    return names;
  }

  // Returns these arguments, replaced or extended by others.
  Arguments With(const Arguments &others) const {
    Arguments both = *this;
    for (const auto &[name, item] : others.items_) both.items_[name] = item;
    return both;
  }

  // Returns the arrays that an operator takes, in the order of its signature, with or without its outputs.
  std::vector<Argument *> For(const replay::Signature &signature, bool outputs = true) {
    std::vector<Argument *> arrays;
    for (int i = 0; i < signature.size; ++i) {
      const replay::Item &item = signature.items[i];
      const std::string name(item.name);
      if (!Has(name) && item.needs < 0) Fail(std::string(signature.name), "a call without " + name);
      if (!Has(item) || (item.role == replay::Role::kOutput && !outputs)) continue;
      for (Argument &argument : items_[name]) arrays.push_back(&argument);
    }
    return arrays;
  }

 private:
  static void MustBeKnown(const std::string &name) {
    for (const replay::Signature &signature : Signatures()) {
      if (signature.Find(name) >= 0) return;
    }
    Fail(name, "in no signature");
  }

  std::map<std::string, Item> items_;
};

// A tree built at once from these leaves.
inline std::vector<double> FreshTree(const std::vector<double> &leaves) {
  const auto capacity = static_cast<int64_t>(leaves.size());
  std::vector<double> data(static_cast<size_t>(replay::SumTree::Size(capacity)));
  replay::SumTree tree(data.data(), capacity);
  tree.Clear(replay::kFill);
  replay::Vector<int64_t> slots;
  for (int64_t slot = 0; slot < capacity; ++slot) {
    tree.SetLeaf(slot, leaves[static_cast<size_t>(slot)]);
    slots.push_back(slot);
  }
  tree.Refresh(&slots);
  return data;
}

#ifdef MINDSPORE_REPLAY_ON_CUDA

extern "C" int replay_take_failure(const char **kernel);

inline void MustSucceed(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// Copies of arguments in GPU memory. An argument that lies within an earlier one does so there too.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory() {
    for (const auto &[argument, copy] : copies_) MustSucceed(cudaFree(copy.data));
  }
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  void *CopyOf(char *argument, size_t bytes) {
    if (bytes == 0) return nullptr;
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

  // Copies the results of kernels back to the arguments.
  void Read() const {
    for (const auto &[argument, copy] : copies_) {
      MustSucceed(cudaMemcpy(argument, copy.data, copy.bytes, cudaMemcpyDeviceToHost));
    }
  }

 private:
  struct Copy {
    void *data = nullptr;
    size_t bytes = 0;
  };

  std::map<char *, Copy> copies_;
};

#endif  // MINDSPORE_REPLAY_ON_CUDA

// The arguments in the form a kernel takes; they must outlive it.
class Arrays {
 public:
  explicit Arrays(const std::vector<Argument *> &arguments) {
    for (Argument *argument : arguments) {
      params.push_back(argument->bytes.data());
      sizes_.push_back(argument->bytes.size());
      ndims.push_back(static_cast<int>(argument->shape.size()));
      shapes.push_back(argument->shape.data());
      dtypes.push_back(argument->dtype.c_str());
    }
  }

  int CallOnHost(Kernel kernel) { return Launch(kernel, nullptr); }

  // Calls a kernel on `params`, on a stream of CUDA or on the host.
  int Launch(Kernel kernel, void *stream) { return CallOn(params.data(), kernel, stream); }

  size_t BytesOf(void **param) const { return sizes_[static_cast<size_t>(param - params.data())]; }

  int Call(Kernel kernel) {
#ifdef MINDSPORE_REPLAY_ON_CUDA
    DeviceMemory memory;
    std::vector<void *> copies;
    for (size_t i = 0; i < params.size(); ++i)
      copies.push_back(memory.CopyOf(static_cast<char *>(params[i]), sizes_[i]));
    int status = CallOn(copies.data(), kernel, nullptr);
    Check(status < 16, "an earlier failure was taken", __LINE__);
    MustSucceed(cudaDeviceSynchronize());
    const char *name = nullptr;
    if (status == replay::kOk) {
      status = replay_take_failure(&name);
      Check(status == replay::kOk || name != nullptr, "the name of the kernel that failed", __LINE__);
    }
    memory.Read();
    return status;
#else
    return CallOnHost(kernel);
#endif
  }

  std::vector<void *> params;
  std::vector<int> ndims;
  std::vector<int64_t *> shapes;
  std::vector<const char *> dtypes;

 private:
  int CallOn(void **memory, Kernel kernel, void *stream) {
    const auto n = static_cast<int>(params.size());
    return kernel(n, memory, ndims.data(), shapes.data(), dtypes.data(), stream, nullptr);
  }

  std::vector<size_t> sizes_;
};

inline int Call(const std::string &name, Arguments *arguments) {
  return Arrays(arguments->For(SignatureOf(name))).Call(KernelOf(name));
}

// Checks that the operator rejects these arrays with this status and leaves every byte unchanged; on a GPU, which may
// detect the error too late, only those of the first `given` arrays, its inputs.
inline void RefusesArrays(const std::string &name, const std::vector<Argument *> &arrays, size_t given, int status,
                          int line) {
  std::vector<std::vector<char>> before;
  for (const Argument *array : arrays) before.push_back(array->bytes);
  Check(Arrays(arrays).Call(KernelOf(name)) == status, ("the status of " + name).c_str(), line);
  size_t kept = before.size();
#ifdef MINDSPORE_REPLAY_ON_CUDA
  kept = std::min(kept, given);
#else
  static_cast<void>(given);
#endif
  bool same = true;
  for (size_t i = 0; i < kept; ++i) same = same && before[i] == arrays[i]->bytes;
  Check(same, ("the arguments of " + name + " are unchanged").c_str(), line);
}

using Change = std::function<void(Arguments &)>;

inline void Refuses(const std::string &name, Arguments arguments, const Change &change, int status, int line) {
  change(arguments);
  const replay::Signature &signature = SignatureOf(name);
  RefusesArrays(name, arguments.For(signature), arguments.For(signature, false).size(), status, line);
}

#define REFUSES(name, arguments, status, change) \
  Refuses(name, arguments, [&]([[maybe_unused]] Arguments &a) { change; }, replay::status, __LINE__)

#endif  // MINDSPORE_REPLAY_TESTS_CALL_H_
