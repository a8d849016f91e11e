// Counts the instructions of one call of a kernel, under valgrind's callgrind.
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

using Arguments = std::vector<Argument>;

inline void *library = nullptr;  // of the kernels

[[noreturn]] inline void Fail(const std::string &what, const std::string &why) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), why.c_str());
  std::exit(1);
}

template <typename Function>
Function Find(const std::string &name) {
  void *symbol = dlsym(library, name.c_str());
  if (symbol == nullptr) Fail(name, "not in the library");
  return reinterpret_cast<Function>(symbol);
}

template <typename Body>
void Measure(const std::string &name, const Body &body) {
  CALLGRIND_START_INSTRUMENTATION;
  body();
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

// The arguments in one piece of memory, each on a cache line of its own, and so is its dtype: functions that copy and
// compare look at addresses.
class Placed {
 public:
  explicit Placed(Arguments *arguments) : arguments_(arguments), arrays_(arguments) {
    size_t size = 0;
    for (const Argument &argument : *arguments) size += kLine + RoundUp(argument.bytes.size(), kLine);
    memory_ = static_cast<char *>(std::aligned_alloc(kPage, RoundUp(size, kPage)));
    char *place = memory_;
    for (size_t i = 0; i < arguments->size(); ++i) {
      arrays_.dtypes[i] = std::strcpy(place, arrays_.dtypes[i]);
      arrays_.params[i] = place + kLine;
      place += kLine + RoundUp((*arguments)[i].bytes.size(), kLine);
    }
    Write();
  }

  ~Placed() { std::free(memory_); }
  Placed(const Placed &) = delete;
  Placed &operator=(const Placed &) = delete;

  int Call(Kernel kernel) { return arrays_.Call(kernel); }

  // Puts the arguments there.
  void Write() {
    for (size_t i = 0; i < arguments_->size(); ++i) {
      const std::vector<char> &bytes = (*arguments_)[i].bytes;
      std::memcpy(arrays_.params[i], bytes.data(), bytes.size());
    }
  }

  // Gives the arguments what the kernel wrote.
  void Read() {
    for (size_t i = 0; i < arguments_->size(); ++i) {
      std::vector<char> &bytes = (*arguments_)[i].bytes;
      std::memcpy(bytes.data(), arrays_.params[i], bytes.size());
    }
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kPage = 4096;
  static size_t RoundUp(size_t size, size_t to) { return (size + to - 1) / to * to; }

  Arguments *arguments_;
  Arrays arrays_;
  char *memory_;
};

// Counts a call of a kernel with these arguments, the second one, which finds the memory that the first one gave back.
// Returns them as the kernel leaves them.
inline Arguments Count(const std::string &kernel, const std::string &what, Arguments arguments) {
  const auto function = Find<Kernel>(kernel);
  Placed placed(&arguments);
  int status = placed.Call(function);
  if (status != replay::kOk) Fail(kernel + ": " + what, "status " + std::to_string(status));
  placed.Write();
  Measure(kernel + ": " + what, [&] { status = placed.Call(function); });
  placed.Read();
  return arguments;
}

// The same of a kernel whose result is one int32, which must be this.
inline void CountGiving(int32_t expected, const std::string &kernel, const std::string &what, Arguments arguments) {
  Arguments after = Count(kernel, what, std::move(arguments));
  const int32_t result = *after.back().as<int32_t>();
  if (result != expected) Fail(kernel + ": " + what, "gave " + std::to_string(result));
}

#endif  // MINDSPORE_REPLAY_TESTS_COUNT_H_
