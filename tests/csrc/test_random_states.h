// Tests of the GPU's kernels against the CPU's, on random states, sizes and dtypes, and on what a kernel refuses.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_RANDOM_STATES_H_
#define MINDSPORE_REPLAY_TESTS_TEST_RANDOM_STATES_H_

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "check.h"
#include "compared.h"
#include "random_buffer.h"
#include "states.h"

namespace random_states {

#if defined(MINDSPORE_REPLAY_EMULATED) || !defined(MINDSPORE_REPLAY_ON_CUDA)
const std::vector<int64_t> kCapacities = {1, 3, 17, 64, 130, 300};  // the last two take several blocks
constexpr int kCases = 6, kSteps = 3;                               // of each kind of buffer
const std::vector<int64_t> kLargeCapacities = {};
#else
const std::vector<int64_t> kCapacities = {1, 3, 17, 64, 300, 1200};
constexpr int kCases = 12, kSteps = 6;
const std::vector<int64_t> kLargeCapacities = {1 << 20, 1 << 24};
#endif

const std::vector<Kind> kOfRows = {
    {"rows", false, false, false, false, {}},     {"a reservoir", true, false, false, false, {}},
    {"row state", false, true, false, false, {}}, {"row state in a reservoir", true, true, false, false, {}},
    {"epochs", false, false, false, true, {}},    {"epochs with weights", false, true, false, true, {}},
};

// Outputs in the words of core/windows.h: kind, column, other column or step, anchor, first, runs, length.
const std::vector<states::Output> kSequences = {To({9}), To({10}), To({11}), To({0, 0, 0, 0, 0, 1, 5}, {5}),
                                                To({1, 0, 0, 0, 0, 1, 5}, {5})};
const std::vector<states::Output> kStacks = {To({8, 3, 0, 0, -2, 5, 3}, {5, 3}), To({6}),
                                             To({8, 0, 0, 1, -1, 1, 3}, {3}), To({10})};
const std::vector<states::Output> kReturns = {To({2, 1}),          To({3, 2}), To({7}),  To({0, 0}),
                                              To({0, 0, 0, 1, 1}), To({9}),    To({10}), To({11})};
const std::vector<states::Output> kReturnsOfSteps = {To({0, 3, 0, 0, -2, 1, 6}, {6}),
                                                     To({1, 0, 0, 0, -2, 1, 6}, {6}),
                                                     To({2, 0, 0, 0, -2, 1, 6}, {6}),
                                                     To({6}),
                                                     To({2, 1, 0, 0, -2, 1, 6}, {6}),
                                                     To({7}),
                                                     To({3, 2, 0, 0, -2, 1, 6}, {6}),
                                                     To({9}),
                                                     To({10}),
                                                     To({11}),
                                                     To({0, 2, -2, 1, 0, 6, 1}, {6}),
                                                     To({0, 0, -2, 1, -1, 6, 3}, {6, 3})};
const std::vector<states::Output> kGoals = {To({5, 3}),          To({9}),   To({4}), To({0, 2}), To({14, 1}),
                                            To({5, 3, 0, 1, 1}), To({2, 1})};
const std::vector<states::Output> kGoalsOfSteps = {
    To({5, 3, 0, 0, -2, 1, 6}, {6}),   To({14, 1, 0, 0, -2, 1, 6}, {6}), To({5, 3, -2, 1, 1, 6, 1}, {6}), To({4}),
    To({1, 0, 0, 0, -2, 1, 6}, {6}),   To({2, 1, 0, 0, -2, 1, 6}, {6}),  To({7, 0, 0, 0, -2, 6, 1}, {6}), To({9}),
    To({0, 4, 0, 2, -2, 6, 3}, {6, 3})};

Kind OfEpisodes(const std::string &name, const std::vector<states::Output> &outputs, bool epochs = false) {
  return {name, false, true, true, epochs, outputs};
}
const std::vector<Kind> kOfEpisodeKinds = {OfEpisodes("sequences", kSequences),
                                           OfEpisodes("stacks", kStacks),
                                           OfEpisodes("returns", kReturns),
                                           OfEpisodes("returns of steps", kReturnsOfSteps),
                                           OfEpisodes("goals", kGoals),
                                           OfEpisodes("goals of steps", kGoalsOfSteps),
                                           OfEpisodes("sequences in epochs", kSequences, true),
                                           OfEpisodes("returns of steps in epochs", kReturnsOfSteps, true),
                                           OfEpisodes("goals in epochs", kGoals, true)};

void CheckSeen(const std::string &where, const std::set<int> &seen, const std::set<int> &expected) {
  for (const int status : expected) {
    Check(seen.count(status) > 0, ("status " + std::to_string(status) + " of " + where).c_str(), __LINE__);
  }
}

void TestBuffers(uint64_t seed) {
  std::set<int> all;
  for (const std::vector<Kind> &kinds : {kOfRows, kOfEpisodeKinds}) {
    for (const Kind &kind : kinds) {
      std::set<int> seen;
      for (int i = 0; i < kCases * times; ++i) {
        const auto number = static_cast<size_t>(i);
        Buffer buffer(seed * 1000 + number, kind, kCapacities[number % kCapacities.size()], {});
        for (int step = 0; step < kSteps; ++step) buffer.Step(&seen);
      }
      CheckSeen(kind.name, seen, {replay::kOk, replay::kTooFewRows});
      all.insert(seen.begin(), seen.end());
    }
  }
  CheckSeen("any buffer", all,
            {replay::kBadArguments, replay::kIndexOutOfRange, replay::kBadWeight, replay::kTooLong, replay::kFull,
             replay::kBadVersion});
}

// Groups of a buffer full of short episodes: in other buffers few draws find enough groups.
void TestGroups(uint64_t seed) {
  std::set<int> seen;
  for (const int64_t capacity : {6, 64, 300}) {
    Buffer buffer(seed, kOfEpisodeKinds[0], capacity, {});
    const int64_t n = capacity + capacity / 3;
    Item rows = states::Rows(kOfEpisodes, {n});
    std::vector<uint8_t> ends;
    for (int64_t i = 0; i < n; ++i) {
      rows[1].as<float>()[i] = static_cast<float>(i);
      rows[5].as<int8_t>()[i] = static_cast<int8_t>(7 * i % 5 - 2);
      ends.push_back(i % 6 == 5);
    }
    buffer.state = buffer.state.With(
        {{"window_rule", Int64({0, 1, 1, 1, 1, 0, -1, 0})}, {"row_rule", Doubles({1, 1e-6, 0, 0, 1})}});
    const Arguments inputs = {
        {"rows", rows}, {"priority", Floats({1})}, {"ends", Flags(ends)}, {"first", One("int64")}};
    CHECK(Compared("insert", &buffer.state, inputs, {}) == replay::kOk);
    for (int draw = 0; draw < 12; ++draw) seen.insert(buffer.SampleGroups());
  }
  CheckSeen("groups", seen, {replay::kOk, replay::kTooFewRows, replay::kBadArguments});
}

void TestLargeBuffers(uint64_t seed) {
  const states::Columns schema = {{"float32", {}}, {"uint8", {3}}};
  std::set<int> seen;
  for (const int64_t capacity : kLargeCapacities) {
    for (const Kind &kind : {kOfRows[0], kOfRows[1], kOfRows[2], kOfRows[5], kOfEpisodeKinds[0]}) {
      Buffer buffer(seed, kind, capacity, schema);
      buffer.Step(&seen);
    }
  }
}

// A shuffle whose first steps need more memory than a block has.
void TestLongShuffles(uint64_t seed) {
  constexpr int64_t kRows = 100000;
  for (const Kind &kind : {kOfRows[0], kOfRows[2]}) {
    Buffer buffer(seed, kind, kRows, {{"int64", {}}});
    buffer.right_beta = true;
    std::vector<int64_t> slots(kRows);
    std::iota(slots.begin(), slots.end(), 0);
    Arguments &state = buffer.state;
    if (kind.row_state) {
      state = state.With({{"priority", Floats({1})}, {"row_rule", Doubles({0, 1e-6, 0, 0, 1})}});
    }
    state = state.With({{"rows", Int64(slots)}, {"first", One("int64")}});
    CHECK(Compared("insert", &state, {}, {}) == replay::kOk);
    for (const int64_t draws : {2048, 2049, 5000}) {
      CHECK(buffer.Sample(draws, kind.row_state ? replay::kByRank : replay::kUniformly, {To({0})}, {17, 90000}) ==
            replay::kOk);
    }
  }
}

// Blocks that begin after others have stored rows with late columns, which count as needed, still find the same room.
void TestRoomOfLateRows() {
  the_buffer = "late rows";
  Arguments state = states::Weighted(states::kOne, std::vector<double>(300, 0.0))
                        .With({{"row_rule", Doubles({0, 1e-6, 1, -2147483648.0 + 3, 1})}});
  const Arguments rows = {
      {"rows", states::Rows(states::kOne, {200})}, {"priority", Floats({1})}, {"first", One("int64")}};
  CHECK(Compared("insert", &state, rows, {}) == replay::kOk);
  CHECK(Compared("insert", &state, rows, {}) == replay::kFull);
}

struct Wrong {
  std::string item;
  std::vector<std::vector<int64_t>> values;
};

// Every kernel that uses an inconsistent state refuses it, and where a beta is wrong too, for the reason that the CPU's
// has.
void TestWrongState(uint64_t seed, const Kind &kind, const Wrong &wrong, const std::vector<int64_t> &value,
                    bool right_beta) {
  Buffer buffer(seed, kind, kCapacities[3], {{"float32", {3}}});
  if (!buffer.state.Has(wrong.item) || !(right_beta || kind.row_state)) return;
  buffer.right_beta = right_beta;
  buffer.Insert();
  const bool is_cursor = wrong.item == "head" || wrong.item == "count";
  buffer.state[wrong.item] = is_cursor ? Int32(static_cast<int32_t>(value[0])) : Int64(value);
  if (!right_beta) buffer.state["beta"] = Doubles({2});
  std::set<int> seen;
  for (int step = 0; step < 2; ++step) buffer.Step(&seen);
  const bool used = wrong.item != "serials" || kind.reservoir || kind.row_state;
  if (used) Check(seen.count(replay::kBadArguments) > 0, (kind.name + ": a wrong " + wrong.item).c_str(), __LINE__);
}

void TestWrongStates(uint64_t seed) {
  const std::vector<Wrong> all = {
      {"head", {{-1}, {1000000}}},
      {"count", {{-1}, {1000000}}},
      {"serials", {{5, 9}, {-1, -2}}},
      {"clock", {{0, -1, 0}, {0, 1000000, 0}}},
      {"window_rule", {{-1, 1, 1, 0, 1, 0, -1, 0}, {0, 0, 1, 0, 1, 0, -1, 0}, {0, 1, 1, 0, 1000000, 0, -1, 0}}},
      {"epoch", {{0, -1, 0, 0, 0}, {0, 0, 1000000, 0, 0}, {0, 0, 0, -1, 0}}},
      {"epoch_rule", {{0, -1, 1}, {0, 2, 2}}}};
  std::vector<Kind> kinds = kOfRows;
  kinds.insert(kinds.end(), {kOfEpisodeKinds[0], kOfEpisodeKinds[6]});
  for (const Kind &kind : kinds) {
    for (const Wrong &wrong : all) {
      for (const std::vector<int64_t> &value : wrong.values) {
        for (const bool right_beta : {true, false}) TestWrongState(seed, kind, wrong, value, right_beta);
      }
    }
  }
}

// More columns or outputs than one launch takes.
void TestLimits() {
  const Arguments ring = {
      {"head", Int32(0)}, {"count", Int32(2)}, {"serials", Int64({2, 0})}, {"random_state", Int64({7, 0})}};
  for (const size_t k : {40, 41}) {
    Arguments read = ring.With({{"columns", Item(std::vector<Argument>(k, Flags({0, 0})))},
                                {"index", Int64({0})},
                                {"rows", Item(std::vector<Argument>(k, Flags({0})))}});
    CHECK(Call("read", &read) == (k > 40 ? replay::kTooMany : replay::kOk));
  }
  for (const size_t m : {48, 49}) {
    std::vector<int64_t> plan = {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < m; ++i) plan.insert(plan.end(), {0, 0, 0, 0, 0, 1, 1});
    Arguments sample = ring.With({{"columns", Flags({0, 0})},
                                  {"plan", Int64(plan)},
                                  {"sample_range", Int64({0, 2})},
                                  {"outputs", Item(std::vector<Argument>(m, Flags({0})))}});
    CHECK(Call("sample", &sample) == (m > 48 ? replay::kTooMany : replay::kOk));
  }
}

// A comparison that misses a wrong bit proves nothing.
void TestComparison() {
  for (const Argument &right : {Int64({5, 6}), Floats({1, 2}), Flags({1}), Doubles({3})}) {
    Argument wrong = right;
    CHECK(AreSame(right, wrong, true) && AreSame(right, wrong, false));
    wrong.bytes.back() = static_cast<char>(wrong.bytes.back() ^ 1);
    CHECK(!AreSame(right, wrong, true) && !AreSame(right, wrong, false));
  }
  CHECK(!AreSame(Floats({1}), Floats({1.000001f}), false) && AreSame(Floats({1}), Floats({1.0000001f}), false));
  CHECK(!AreSame(Floats({1}), Floats({NAN}), false) && !AreSame(Floats({1}), Floats({1, 1}), false));
  CHECK(IsOfNothing(Int64({-1, -1})) && !IsOfNothing(Int64({0, -1})) && !IsOfNothing(Floats({0, 1})));
}

// Prints a line for each kernel.
void PrintTallies() {
  std::printf("%-18s %8s %8s %13s  against the CPU's\n", "kernel", "calls", "refused", "largest");
  for (const replay::Signature &signature : Signatures()) {
    const std::string name(signature.name);
    const Tally &tally = tallies[name];
    std::printf("%-18s %8" PRId64 " %8" PRId64 " %8" PRId64 " rows  ", name.c_str(), tally.calls, tally.refused,
                tally.largest);
    tally.different == 0 ? std::printf("equal\n") : std::printf("DIFFERENT in %" PRId64 " calls\n", tally.different);
  }
}

void TestRandomStates(uint64_t seed) {
  TestComparison();
  TestBuffers(seed);
  TestGroups(seed);
  TestRoomOfLateRows();
  TestLongShuffles(seed);
  TestWrongStates(seed);
#ifdef MINDSPORE_REPLAY_ON_CUDA
  TestLimits();
  std::printf("before large buffers: %d checks failed\n", failed);
  TestLargeBuffers(seed);
  PrintTallies();
#endif
  for (const auto &[name, tally] : tallies) Check(tally.calls > tally.refused, ("calls of " + name).c_str(), __LINE__);
  CHECK(tallies.size() == Signatures().size());
}

}  // namespace random_states

#endif  // MINDSPORE_REPLAY_TESTS_TEST_RANDOM_STATES_H_
