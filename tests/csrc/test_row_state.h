// Tests of the kernels on buffers with row state: rejected arguments, for samples of rows, and of windows.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_MARKS_H_
#define MINDSPORE_REPLAY_TESTS_TEST_MARKS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "call.h"
#include "check.h"
#include "core/random.h"

namespace {

enum class Reach { kRows, kWindows };

// Four slots, head 2, rows with serials 6 to 9 of 10 in slots 2, 3, 0, 1 (base 0); the learner's clock is 5. Serial 7
// was removed after two deliveries.
Arguments Buffer(Reach reach) {
  Arguments buffer = {{"columns", Make<float>("float32", {4}, {8, 9, 6, 7})},
                      {"head", Int32(2)},
                      {"count", Int32(4)},
                      {"serials", Int64({10, 0})},
                      {"random_state", Int64({1, 0})},
                      {"priorities", Floats({3, 1, 2, 4})},
                      {"use_counts", Ints({0, 1, 0, ~2})},
                      {"insertion_clocks", Int64({3, 5, 1, 2})},
                      {"weights", Doubles(FreshTree({3, 1, 2, 0}))},
                      {"max_priority", Make<float>("float32", {}, {4})},
                      {"clock", Int64({5, 6, 0})},
                      {"counts", Int64({100, 10, 20, 30, 40})},
                      {"row_rule", Doubles({1, 0, 0, 0, 3})}};
  if (reach == Reach::kRows) return buffer;
  return buffer.With({{"steps", Int64({8, 9, 6, 7})},
                      {"flags", Flags({0, 0, 0, 4})},  // serial 7 is deleted
                      {"window_rule", Int64({0, 1, 1, 1, 1, 0, -1, 0})}});
}

Arguments Inserting(Reach reach) {
  Arguments arguments =
      Buffer(reach).With({{"priority", Floats({0.5f, 7})}, {"rows", Floats({10, 11})}, {"first", One("int64")}});
  return reach == Reach::kRows ? arguments : arguments.With({{"ends", Flags({0})}});
}
Arguments UpdatingPriorities(Reach reach) {
  return Buffer(reach).With(
      {{"handles", Int64({8, 5, 7, 8, 10})}, {"priority", Floats({9, 9, 9, 5, 9})}, {"invalid", One("int32")}});
}
Arguments Deleting(Reach reach) {
  return Buffer(reach).With({{"handles", Int64({9, 7, 9, 5})}, {"removed", One("int32")}});
}
Arguments Advancing(Reach reach) {
  return Buffer(reach).With({{"ticks", Int64({2})}, {"max_staleness", Int64({4})}, {"now", One("int64")}});
}
Arguments Informing(Reach reach) {
  return Buffer(reach).With({{"handles", Int64({6, 7, 5})},
                             {"priority", Floats({0, 0, 0})},
                             {"uses", Ints({0, 0, 0})},
                             {"staleness", Int64({0, 0, 0})}});
}
Arguments Resetting(Reach reach) { return Buffer(reach).With({{"stored", One("int32")}}); }
Arguments Summing(Reach reach) {
  return Buffer(reach).With({{"ranges", Make<int64_t>("int64", {2, 2}, {0, 3, -1, 9})}, {"sums", Doubles({0, 0})}});
}
Arguments Measuring(Reach reach, int64_t what) {
  return Buffer(reach).With(
      {{"what", Int64({what})}, {"sample_range", Int64({1, INT64_MAX})}, {"number", Doubles({0})}});
}

// A plan whose outputs are the handles, the importance weights, the rows of each column, and more; outputs.h describes
// the numbers.
Argument PlanOf(std::vector<int64_t> plan, int64_t columns, double beta_step = 0,
                const std::vector<int64_t> &more = {}) {
  plan.insert(plan.end(), {BitsOf(beta_step), 0, 0, BitsOf(-1), 9, 0, 0, 0, 0, 1, 1, 10, 0, 0, 0, 0, 1, 1});
  for (int64_t i = 0; i < columns; ++i) plan.insert(plan.end(), {0, i, 0, 0, 0, 1, 1});
  plan.insert(plan.end(), more.begin(), more.end());
  return Int64(std::move(plan));
}

Arguments Sampling(Reach reach, std::vector<int64_t> plan, double beta_step) {
  Arguments sampling = Buffer(reach).With({{"plan", PlanOf(std::move(plan), 1, beta_step)},
                                           {"beta", Doubles({0.5})},
                                           {"given_beta", Doubles({1})},
                                           {"sample_range", Int64({0, INT64_MAX})},
                                           {"outputs", {Int64({0, 0, 0}), Floats({0, 0, 0}), Floats({0, 0, 0})}}});
  if (reach == Reach::kWindows) sampling["powers"] = Doubles({1});
  return sampling;
}
Arguments SamplingByRank(Reach reach) {
  Arguments arguments = Sampling(reach, {1, 0, 0, 0, 0, 0, 0, 0}, 0);
  arguments["weights"] = Doubles(FreshTree({1, 1, 1, 0}));
  return arguments;
}
Arguments SamplingByPriority(Reach reach) { return Sampling(reach, {2, 0, 0, 0, 0, 0, 0, 0}, 0.25); }

// True if the tree of the arguments has these leaves.
bool HasLeaves(Arguments &arguments, const std::vector<double> &leaves) {
  const std::vector<double> tree = FreshTree(leaves);
  return std::equal(tree.begin(), tree.end(), arguments["weights"].as<double>());
}

// An empty buffer of this capacity, with windows of length one.
Arguments Empty(Reach reach, int64_t capacity) {
  Arguments buffer = {{"columns", Zeros("float32", {capacity})},
                      {"head", Int32(0)},
                      {"count", Int32(0)},
                      {"serials", Int64({0, 0})},
                      {"random_state", Int64({5, 0})},
                      {"priorities", Zeros("float32", {capacity})},
                      {"use_counts", Zeros("int32", {capacity})},
                      {"insertion_clocks", Zeros("int64", {capacity})},
                      {"weights", Doubles(FreshTree(std::vector<double>(static_cast<size_t>(capacity))))},
                      {"max_priority", Make<float>("float32", {}, {1})},
                      {"clock", Int64({0, 0, 0})},
                      {"counts", Zeros("int64", {5})},
                      {"row_rule", Doubles({0.6, 1e-6, 0, 0, 1})}};
  if (reach == Reach::kRows) return buffer;
  return buffer.With({{"steps", Zeros("int64", {capacity})},
                      {"flags", Zeros("uint8", {capacity})},
                      {"window_rule", Int64({0, 1, 1, 1, 1, 0, -1, 0})}});
}

// Calls an operator on a buffer with other arguments; the buffer keeps the changes.
int On(Arguments *buffer, const std::string &name, const Arguments &more, Arguments *after = nullptr) {
  Arguments arguments = buffer->With(more);
  const int status = Call(name, &arguments);
  if (after != nullptr) *after = arguments;
  for (const std::string &item : more.Names()) arguments.Remove(item);
  *buffer = std::move(arguments);
  return status;
}

// Invalid window rules; the arguments may have up to 8 slots.
void RefusesBadRule(const std::string &name, const Arguments &arguments) {
  REFUSES(name, arguments, kBadArguments, a["window_rule"] = Int64({0, 1, 1, 1, 0, 0, -1, 0}));
  REFUSES(name, arguments, kBadArguments, a["window_rule"] = Int64({0, 1, 1, 1, 9, 0, -1, 0}));
  REFUSES(name, arguments, kBadArguments, a["window_rule"] = Int64({0, 1, 0, 1, 1, 0, -1, 0}));
  REFUSES(name, arguments, kBadArguments, a["window_rule"] = Int64({0, 0, 1, 1, 1, 0, -1, 0}));
  REFUSES(name, arguments, kBadArguments, a["window_rule"] = Int64({-1, 1, 1, 1, 1, 0, -1, 0}));
}

// Invalid cursors for a ring of four slots.
void RefusesBadCursors(const std::string &name, const Arguments &arguments) {
  REFUSES(name, arguments, kBadArguments, a["head"] = Int32(4));
  REFUSES(name, arguments, kBadArguments, a["head"] = Int32(-1));
  REFUSES(name, arguments, kBadArguments, a["count"] = Int32(5));
  REFUSES(name, arguments, kBadArguments, a["count"] = Int32(-1));
}

// Invalid state of a buffer with row state.
void RefusesBadBuffer(const std::string &name, const Arguments &arguments) {
  RefusesBadCursors(name, arguments);
  REFUSES(name, arguments, kBadArguments, a["serials"] = Int64({3, 0}));  // fewer than stored
  REFUSES(name, arguments, kBadArguments, a["serials"] = Int64({10, -1}));
  REFUSES(name, arguments, kBadArguments, a["serials"] = Int64({10, 7}));  // a row inserted before the last reset
  REFUSES(name, arguments, kBadArguments, a["clock"] = Int64({5, 5, 0}));  // an evicted row
  REFUSES(name, arguments, kBadArguments, a["clock"] = Int64({5, 11, 0}));
  if (SignatureOf(name).Find("weights") >= 0) {
    REFUSES(name, arguments, kBadArguments, a["weights"] = Zeros("float64", {18}));
  }
  if (arguments.Has("window_rule")) RefusesBadRule(name, arguments);
}

void TestRowStateRefusals(Reach reach) {
  RefusesBadBuffer("insert", Inserting(reach));
  RefusesBadBuffer("sample", SamplingByRank(reach));
  RefusesBadBuffer("sample", SamplingByPriority(reach));
  RefusesBadBuffer("update_priorities", UpdatingPriorities(reach));
  RefusesBadBuffer("delete", Deleting(reach));
  RefusesBadBuffer("advance", Advancing(reach));
  RefusesBadBuffer("info", Informing(reach));
  RefusesBadBuffer("reset", Resetting(reach));
  RefusesBadCursors("sums", Summing(reach));
  RefusesBadBuffer("measure", Measuring(reach, replay::kPositive));
  REFUSES("measure", Measuring(reach, 3), kBadArguments, );
  REFUSES("measure", Measuring(reach, -1), kBadArguments, );

  REFUSES("insert", Inserting(reach), kBadArguments, a["columns"].dtype = "complex64");
  REFUSES("insert", Inserting(reach), kBadWeight, a["priority"].as<float>()[1] = NAN);
  REFUSES("insert", Inserting(reach), kBadWeight, a["priority"].as<float>()[0] = -1);
  REFUSES("insert", Inserting(reach), kBadWeight, a["priority"].as<float>()[0] = INFINITY);

  REFUSES("insert", Inserting(reach), kFull, a["row_rule"] = Doubles({0, 0, 1, 0, 1}));  // keeps rows that can be drawn
  const Arguments by_rank = SamplingByRank(reach), by_priority = SamplingByPriority(reach);
  REFUSES("sample", by_rank, kTooFewRows, a["sample_range"] = Int64({0, 3}));
  REFUSES("sample", by_rank, kTooFewRows, a["weights"] = Doubles(FreshTree({1, 0, 1, 0})));
  REFUSES("sample", by_priority, kTooFewRows, a["weights"] = Doubles(FreshTree({1, 0, 1, 0})));
  for (const Arguments &sample : {by_rank, by_priority}) {  // with replacement one row is enough
    Arguments again = sample;
    again["plan"].as<int64_t>()[1] = 1;
    REFUSES("sample", again, kTooFewRows, a["weights"] = Doubles(FreshTree({0, 0, 0, 0})));
    again["weights"] = Doubles(FreshTree({0, 0, 1, 0}));
    CHECK(Call("sample", &again) == replay::kOk && again.All("outputs")[0].bytes == Int64({6, 6, 6}).bytes);
  }
  REFUSES("sample", by_priority, kBadWeight, a["given_beta"] = Doubles({1.1}));
  REFUSES("sample", by_priority, kBadWeight, a["given_beta"] = Doubles({-0.1}));
  REFUSES("sample", by_priority, kBadWeight, a["given_beta"] = Doubles({NAN}));
  for (const Arguments &sample : {by_rank, by_priority}) {
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[0] = 0);  // the draw of a ring without row state
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[0] = 5);  // epochs without their state
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[0] = 6);  // no such draw
    if (sample.Has("powers"))
      REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[5] = 1);  // a chain without powers of gamma
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[5] = -1);
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[26] = 11);  // the kind of the third output
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[27] = 1);   // its column
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[27] = -1);
    REFUSES("sample", sample, kBadArguments, a.All("outputs")[0] = Int64({0, 0}));
    REFUSES("sample", sample, kBadArguments, a.All("outputs")[1] = Floats({0, 0}));
    REFUSES("sample", sample, kBadArguments, a.All("outputs")[2] = Floats({0, 0}));
    REFUSES("sample", sample, kBadArguments, a.All("outputs")[2] = Ints({0, 0, 0}));
  }

  const Arguments update = UpdatingPriorities(reach);
  REFUSES("update_priorities", update, kBadWeight, a["priority"].as<float>()[1] = NAN);  // also for an invalid handle
  REFUSES("update_priorities", update, kBadWeight, a["priority"].as<float>()[3] = -1);
  REFUSES("update_priorities", update, kBadWeight, a["priority"] = Floats({-1}));
  REFUSES("advance", Advancing(reach), kBadArguments, a["ticks"] = Int64({-1}));
  REFUSES("advance", Advancing(reach), kBadArguments, a["ticks"] = Int64({INT64_MAX}));
}

void TestRowState() {
  for (const Reach reach : {Reach::kRows, Reach::kWindows}) TestRowStateRefusals(reach);
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_MARKS_H_
