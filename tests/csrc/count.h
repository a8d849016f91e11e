// Counts the instructions of one kernel call, under valgrind's callgrind.
#ifndef MINDSPORE_REPLAY_TESTS_COUNT_H_
#define MINDSPORE_REPLAY_TESTS_COUNT_H_

#include <dlfcn.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "call.h"

inline void *library = nullptr;  // the kernels

template <typename Function>
Function Find(const std::string &name) {
  void *symbol = dlsym(library, name.c_str());
  if (symbol == nullptr) Fail(name, "not in the library");
  return reinterpret_cast<Function>(symbol);
}

inline Kernel KernelOf(const std::string &name) { return Find<Kernel>("replay_" + name); }

template <typename Body>
void Measure(const std::string &name, const Body &body) {
  CALLGRIND_START_INSTRUMENTATION;
  body();
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

// The arguments in one block of memory, each on a cache line of its own, as is its dtype: functions that copy and
// compare depend on addresses.
class Placed {
 public:
  explicit Placed(const std::vector<Argument *> &arguments) : arguments_(arguments), arrays_(arguments) {
    size_t size = 0;
    for (const Argument *argument : arguments) size += kLine + RoundUp(argument->bytes.size(), kLine);
    memory_ = static_cast<char *>(std::aligned_alloc(kPage, RoundUp(size, kPage)));
    char *place = memory_;
    for (size_t i = 0; i < arguments.size(); ++i) {
      arrays_.dtypes[i] = std::strcpy(place, arrays_.dtypes[i]);
      arrays_.params[i] = place + kLine;
      place += kLine + RoundUp(arguments[i]->bytes.size(), kLine);
    }
    Write();
  }

  ~Placed() { std::free(memory_); }
  Placed(const Placed &) = delete;
  Placed &operator=(const Placed &) = delete;

  int Call(Kernel kernel) { return arrays_.Call(kernel); }
  Arrays &arrays() { return arrays_; }

  // Copies the arguments into the block.
  void Write() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const std::vector<char> &bytes = arguments_[i]->bytes;
      std::memcpy(arrays_.params[i], bytes.data(), bytes.size());
    }
  }

  // Copies the results of the kernel back to the arguments.
  void Read() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      std::vector<char> &bytes = arguments_[i]->bytes;
      std::memcpy(bytes.data(), arrays_.params[i], bytes.size());
    }
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kPage = 4096;
  static size_t RoundUp(size_t size, size_t to) { return (size + to - 1) / to * to; }

  std::vector<Argument *> arguments_;
  Arrays arrays_;
  char *memory_;
};

// Counts a call of an operator with these arguments: the second one, which reuses the memory that the first one freed.
// Returns the arguments as the kernel leaves them.
inline Arguments Count(const std::string &name, const std::string &what, Arguments arguments) {
  const Kernel kernel = KernelOf(name);
  const std::string workload = "replay_" + name + ": " + what;
  Placed placed(arguments.For(SignatureOf(name)));
  int status = placed.Call(kernel);
  if (status != replay::kOk) Fail(workload, "status " + std::to_string(status));
  placed.Write();
  Measure(workload, [&] { status = placed.Call(kernel); });
  placed.Read();
  return arguments;
}

// The same for an operator with an int32 output of this name, which must equal `expected`.
inline void CountGiving(int32_t expected, const std::string &result, const std::string &name, const std::string &what,
                        Arguments arguments) {
  arguments[result] = Int32(0);
  const int32_t given = *Count(name, what, std::move(arguments))[result].as<int32_t>();
  if (given != expected) Fail(name + ": " + what, "gave " + std::to_string(given));
}

#endif  // MINDSPORE_REPLAY_TESTS_COUNT_H_
