// One call by the kernels of the GPU and of the CPU, with every byte of the results compared. Without a GPU the CPU's
// kernels are called twice, for the sanitizers.
#ifndef MINDSPORE_REPLAY_TESTS_COMPARED_H_
#define MINDSPORE_REPLAY_TESTS_COMPARED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "binding.h"
#include "call.h"
#include "check.h"
#include "operators.h"

#ifdef MINDSPORE_REPLAY_ON_CUDA
#define DECLARE_OF_CPU(name) extern "C" KernelFunction cpu_##name;
ALL_OPERATORS(DECLARE_OF_CPU)
#endif

namespace random_states {

// True if powers come from the same function. If not, a float may differ in its last bits; calls go on with the CPU's
// state.
#if defined(MINDSPORE_REPLAY_EMULATED) || !defined(MINDSPORE_REPLAY_ON_CUDA)
constexpr bool kExact = true;
#else
constexpr bool kExact = false;
#endif
constexpr double kTolerance = 3e-7;

inline Kernel CpuKernelOf(const std::string &name) {
#ifdef MINDSPORE_REPLAY_ON_CUDA
#define WITH_CPU_NAME(name) {#name, cpu_##name},
  static const std::map<std::string, Kernel> kernels = {ALL_OPERATORS(WITH_CPU_NAME)};
  return kernels.at(name);
#else
  return KernelOf(name);
#endif
}

// The calls of an operator.
struct Tally {
  int64_t calls = 0, refused = 0, different = 0;
  int64_t largest = 0;  // buffer, in rows
};
inline std::map<std::string, Tally> tallies;
inline std::string the_buffer;  // which is being tested, for messages

template <typename T>
bool AreClose(const Argument &expected, const Argument &got) {
  for (size_t at = 0; at < expected.bytes.size(); at += sizeof(T)) {
    T one, other;
    std::memcpy(&one, expected.bytes.data() + at, sizeof(T));
    std::memcpy(&other, got.bytes.data() + at, sizeof(T));
    if (one != other && !(std::abs(one - other) <= kTolerance * std::abs(one))) return false;
  }
  return true;
}

inline bool AreSame(const Argument &expected, const Argument &got, bool exact = kExact) {
  if (expected.bytes == got.bytes) return true;
  if (exact || expected.bytes.size() != got.bytes.size()) return false;
  if (expected.dtype == "float32") return AreClose<float>(expected, got);
  return expected.dtype == "float64" && AreClose<double>(expected, got);
}

// True if an output of a refused sample is zero, or the handles of no row.
inline bool IsOfNothing(const Argument &output) {
  const char first = output.dtype == "int64" && !output.bytes.empty() && output.bytes[0] != 0 ? -1 : 0;
  return std::all_of(output.bytes.begin(), output.bytes.end(), [&](char byte) { return byte == first; });
}

// Calls an operator on a state, with these inputs and outputs; an input in `shared` is the state's array of that name
// itself. Leaves out the first columns. Returns the status, and leaves the state as the CPU's kernel does.
inline int Compared(const std::string &name, Arguments *state, const Arguments &inputs,
                    const std::map<std::string, std::string> &shared, int64_t first_column = 0) {
  const replay::Signature &signature = SignatureOf(name);
  Arguments ours = state->With(inputs);
  Item &columns = ours.All("columns");
  columns.erase(columns.begin(), columns.begin() + first_column);
  for (const auto &[input, own] : shared) ours.All(input) = ours.All(own);
  Arguments theirs = ours;
  const auto arrays_of = [&](Arguments *arguments) {
    std::vector<Argument *> arrays;
    for (int i = 0; i < signature.size; ++i) {
      if (!arguments->Has(signature.items[i])) continue;
      const std::string item(signature.items[i].name);
      const auto own = shared.find(item);
      for (Argument &array : arguments->All(own == shared.end() ? item : own->second)) arrays.push_back(&array);
    }
    return arrays;
  };
  const int expected = Arrays(arrays_of(&ours)).CallOnHost(CpuKernelOf(name));
  const int got = Arrays(arrays_of(&theirs)).Call(KernelOf(name));

  Tally &tally = tallies[name];
  ++tally.calls;
  tally.refused += expected != replay::kOk;
  tally.largest = std::max(tally.largest, Elements({(*state)["columns"].shape[0]}));
  std::string wrong = got == expected ? "" : " status " + std::to_string(got) + ", not " + std::to_string(expected);
  for (int i = 0; i < signature.size; ++i) {
    const replay::Item &item = signature.items[i];
    const std::string which(item.name);
    if (!ours.Has(item) || shared.count(which) > 0) continue;
    for (size_t j = 0; j < ours.All(which).size(); ++j) {
      const Argument &mine = ours.All(which)[j], &other = theirs.All(which)[j];
      bool same = true;
      if (item.role != replay::Role::kOutput || expected == replay::kOk) {
        same = AreSame(mine, other);
      } else if (name == "sample" || name == "sample_groups") {
        same = IsOfNothing(other);
      }
      if (!same) wrong += " " + which + " " + std::to_string(j);
    }
    if (item.role == replay::Role::kState && which != "columns") state->All(which) = std::move(ours.All(which));
  }
  if (ours.Has(std::string("beta"))) (*state)["beta"] = ours["beta"];
  std::move(columns.begin(), columns.end(), state->All("columns").begin() + first_column);
  tally.different += !wrong.empty();
  Check(wrong.empty(), (the_buffer + ": " + name + ":" + wrong).c_str(), __LINE__);
  return expected;
}

}  // namespace random_states

#endif  // MINDSPORE_REPLAY_TESTS_COMPARED_H_
