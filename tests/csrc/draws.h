// Prints what kernels draw, for a comparison of processors: the same on each, to the last bit. tests/golden/draws.txt
// holds it.
#ifndef MINDSPORE_REPLAY_TESTS_DRAWS_H_
#define MINDSPORE_REPLAY_TESTS_DRAWS_H_

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "call.h"
#include "core/outputs.h"
#include "core/random.h"
#include "states.h"

namespace draws {

inline void PrintNumbers(Argument argument) {
  const size_t bytes = static_cast<size_t>(replay::ElementBytes(argument.dtype.c_str()));
  for (size_t at = 0; at < argument.bytes.size(); at += bytes) {
    int64_t number = 0;
    std::memcpy(&number, argument.bytes.data() + at, bytes);
    std::printf(argument.dtype == "float32" ? " %08" PRIx64 : " %" PRId64, static_cast<uint64_t>(number));
  }
  std::printf("\n");
}

// Calls an operator and prints arrays that it changes: integers as such, of float32 the bits.
inline void Print(const std::string &what, const std::string &name, Arguments *arguments,
                  const std::vector<std::string> &items) {
  const int status = Call(name, arguments);
  if (status != replay::kOk) Fail(what, "status " + std::to_string(status));
  for (const std::string &item : items) {
    for (const Argument &argument : arguments->All(item)) {
      std::printf("%s: %s:", what.c_str(), item.c_str());
      PrintNumbers(argument);
    }
  }
}

inline void PrintSamples(const std::string &what, const Arguments &buffer, const states::Sampling &sampling,
                         std::vector<states::Output> more = {}) {
  if (sampling.draw == replay::kByPriority) more.insert(more.begin(), states::ImportanceWeights(sampling.n));
  more.insert(more.begin(), states::Handles(sampling.n));
  Arguments sample = states::Sample(buffer, sampling, more);
  for (int batch = 0; batch < 2; ++batch) Print(what, "sample", &sample, {"outputs"});
}

// A buffer whose priorities, from 0 to 8, went through the power of 0.6.
inline Arguments Prioritized(int64_t capacity) {
  std::vector<float> priorities;
  for (int64_t row = 0; row < capacity; ++row) {
    priorities.push_back(static_cast<float>(replay::RandomBits(3, static_cast<uint64_t>(row)) >> 40) / (1 << 21));
  }
  Arguments buffer = states::Weighted(states::kOne, states::Ones(capacity))
                         .With({{"handles", Int64(states::Range(capacity, capacity, 1))},
                                {"priority", Floats(std::move(priorities))},
                                {"invalid", One("int32")}});
  if (Call("update_priorities", &buffer) != replay::kOk) Fail("update_priorities", "a status");
  return buffer;
}

inline void PrintWindows() {
  const Arguments sequences = states::WithEpisodes(states::kOne, 1 << 10, {3, 5, 2, 1, 2});
  PrintSamples("sequences by priority", sequences, {12, 2, 1, 0, 0, 0, 1, 0, 0});
  Arguments goals = states::WithEpisodes({{"int32", {}}, {"int32", {}}}, 1 << 10, {0, 1, 1, 1, 1});
  for (Argument &column : goals.All("columns")) {
    for (int32_t slot = 0; slot < 1 << 10; ++slot) column.as<int32_t>()[slot] = slot;
  }
  for (int64_t strategy = 1; strategy <= 4; ++strategy) {
    PrintSamples("goals by strategy " + std::to_string(strategy), goals, {12, 1, 1, 0, 0, 0, 1, strategy, 0, 1},
                 {{{5, 0, 0, 0, 0, 1, 1}, Zeros("int32", {12})}, {{4, 0, 0, 0, 0, 1, 1}, Zeros("bool", {12})}});
  }
  for (int32_t slot = 0; slot < 1 << 10; ++slot) goals["columns"].as<int32_t>()[slot] = slot * 7 % 97;
  Arguments groups = goals.With({{"options", Int64({0, 0})},
                                 {"template", Zeros("int8", {4, 5})},
                                 {"mask", Zeros("bool", {4, 5})},
                                 {"rows", {Zeros("int32", {4, 5}), Zeros("int32", {4, 5})}}});
  Print("groups", "sample_groups", &groups, {"mask", "rows"});
}

inline void PrintDraws() {
  const Arguments ring = states::Ring(states::kOne, 5000, 100);
  const std::vector<std::string> replacement = {"without replacement", "with replacement"};
  for (int64_t replace = 0; replace < 2; ++replace) {
    const std::string how = replacement[static_cast<size_t>(replace)];
    PrintSamples("uniformly, " + how, ring, {20, 0, replace, 0, 0, 0, 0, 0, 0});
    PrintSamples("by rank, " + how, Prioritized(3000), {20, 1, replace, 1, 3, 0, 0, 0, 0});
  }
  PrintSamples("by priority", Prioritized(3000), {20, 2, 0, 0, 2, 0, 0, 0, 0.05});
  const Arguments epochs = ring.With({{"epoch", Int64({0, 0, 0, 0, 0})}, {"epoch_rule", Int64({0, 1, 3})}});
  PrintSamples("in epochs, as learner 1 of 3", epochs, {20, 5, 0, 0, 0, 0, 0, 0, 0});
  PrintWindows();
  Arguments reservoir = states::Ring(states::kOne, 24, 0)
                            .With({{"row_serials", Int64(states::Range(0, 24, 1))},
                                   {"rows", states::Rows(states::kOne, {60})},
                                   {"first", One("int64")}});
  Print("a reservoir", "insert", &reservoir, {"row_serials"});
}

}  // namespace draws

#endif  // MINDSPORE_REPLAY_TESTS_DRAWS_H_
