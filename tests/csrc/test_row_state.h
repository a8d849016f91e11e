// Tests of the kernels on buffers with row state: hand-worked results, rejected arguments, and long runs of operations
// that must keep the state consistent; for samples of rows, and of windows, here of length one.
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
Arguments Summarizing(Reach reach) { return Buffer(reach).With({{"summary", Doubles({0, 0, 0})}}); }
Arguments Measuring(Reach reach, int64_t what) {
  return Buffer(reach).With(
      {{"what", Int64({what})}, {"sample_range", Int64({1, INT64_MAX})}, {"number", Doubles({0})}});
}

// A plan whose outputs are the handles, the importance weights and the rows of each column; outputs.h describes the
// numbers.
Argument PlanOf(std::vector<int64_t> plan, int64_t columns, double beta_step = 0) {
  plan.insert(plan.end(), {BitsOf(beta_step), 0, 0, BitsOf(-1), 9, 0, 0, 0, 0, 1, 1, 10, 0, 0, 0, 0, 1, 1});
  for (int64_t i = 0; i < columns; ++i) plan.insert(plan.end(), {0, i, 0, 0, 0, 1, 1});
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

// True if the counts of the arguments are those of `Buffer` plus these.
bool HasCounted(Arguments &arguments, const std::vector<int64_t> &more) {
  std::vector<int64_t> counts = {100, 10, 20, 30, 40};
  std::transform(more.begin(), more.end(), counts.begin(), counts.begin(), std::plus<int64_t>());
  return std::equal(counts.begin(), counts.end(), arguments["counts"].as<int64_t>());
}

void TestRowsByHand(Reach reach) {
  Arguments insert = Inserting(reach);  // into slots 2 and 3, over serials 6 and 7
  CHECK(Call("insert", &insert) == replay::kOk);
  CHECK(HasLeaves(insert, {3, 1, 0.5, 7}));
  CHECK(insert["columns"].as<float>()[2] == 10 && insert["columns"].as<float>()[3] == 11);
  CHECK(*insert["head"].as<int32_t>() == 0 && *insert["count"].as<int32_t>() == 4);
  CHECK(insert["serials"].bytes == Int64({12, 0}).bytes);
  CHECK(*insert["max_priority"].as<float>() == 7 && insert["use_counts"].as<int32_t>()[3] == 0);
  CHECK(insert["insertion_clocks"].as<int64_t>()[2] == 5 && insert["priorities"].as<float>()[3] == 7);
  CHECK(insert["clock"].as<int64_t>()[1] == 8 && HasCounted(insert, {0, 0, 0, 0, 0}));
  CHECK(*insert["first"].as<int64_t>() == 10);

  Arguments update = UpdatingPriorities(reach);
  CHECK(Call("update_priorities", &update) == replay::kOk);
  CHECK(*update["invalid"].as<int32_t>() == 3);  // evicted, removed, not yet inserted
  CHECK(HasLeaves(update, {5, 1, 2, 0}) && *update["max_priority"].as<float>() == 9);
  CHECK(HasCounted(update, {0, 0, 0, 0, 3}));

  Arguments remove = Deleting(reach);
  CHECK(Call("delete", &remove) == replay::kOk);
  CHECK(*remove["removed"].as<int32_t>() == 1 && HasLeaves(remove, {3, 0, 2, 0}));
  CHECK(remove["use_counts"].as<int32_t>()[1] == ~1 && HasCounted(remove, {0, 0, 0, 1, 2}));

  Arguments advance = Advancing(reach);  // to clock 7; serials 6 and 7 came at 1 and 2, serial 8 at 3
  CHECK(Call("advance", &advance) == replay::kOk);
  CHECK(HasLeaves(advance, {3, 1, 0, 0}) && *advance["now"].as<int64_t>() == 7);
  CHECK(advance["clock"].as<int64_t>()[0] == 7 && advance["clock"].as<int64_t>()[1] == 8);
  CHECK(advance["use_counts"].as<int32_t>()[2] == ~0 && advance["use_counts"].as<int32_t>()[3] == ~2);
  CHECK(HasCounted(advance, {0, 0, 1, 0, 0}));  // serial 7 was removed before

  Arguments info = Informing(reach);
  CHECK(Call("info", &info) == replay::kOk);
  CHECK(info["priority"].bytes == Floats({2, 4, 0}).bytes);
  CHECK(info["uses"].bytes == Ints({0, 2, -1}).bytes);
  CHECK(info["staleness"].bytes == Int64({4, 3, -1}).bytes);

  Arguments reset = Resetting(reach);
  CHECK(Call("reset", &reset) == replay::kOk);
  CHECK(HasLeaves(reset, {0, 0, 0, 0}) && *reset["head"].as<int32_t>() == 0 && *reset["count"].as<int32_t>() == 0);
  CHECK(*reset["stored"].as<int32_t>() == 0 && reset["serials"].bytes == Int64({10, 10}).bytes);
  CHECK(*reset["max_priority"].as<float>() == 3 && reset["clock"].bytes == Int64({0, 10, 0}).bytes);
  CHECK(reset["priorities"].bytes == Floats({0, 0, 0, 0}).bytes &&
        reset["use_counts"].bytes == Ints({0, 0, 0, 0}).bytes);
  CHECK(reset["insertion_clocks"].bytes == Int64({0, 0, 0, 0}).bytes && HasCounted(reset, {0, 0, 0, 0, 0}));
  if (reach == Reach::kWindows) {
    CHECK(reset["steps"].bytes == Int64({0, 0, 0, 0}).bytes && reset["flags"].bytes == Flags({0, 0, 0, 0}).bytes);
  }

  Arguments sums = Summing(reach);  // from slot 2: weights 2, 0, 3, 1
  CHECK(Call("sums", &sums) == replay::kOk);
  CHECK(sums["sums"].bytes == Doubles({5, 1}).bytes);
  Arguments summary = Summarizing(reach);
  CHECK(Call("summary", &summary) == replay::kOk);
  CHECK(summary["summary"].bytes == Doubles({6, 1, 3}).bytes);
  const auto measured = [&](int64_t what, const Arguments &changed) {
    Arguments measure = Measuring(reach, what).With(changed);
    CHECK(Call("measure", &measure) == replay::kOk);
    return *measure["number"].as<double>();
  };
  CHECK(measured(replay::kRoom, {}) == 0);
  CHECK(measured(replay::kRoom, {{"count", Int32(3)}, {"clock", Int64({5, 7, 0})}}) == 1);
  CHECK(measured(replay::kRoom, {{"weights", Doubles(FreshTree({3, 1, 0, 0}))}}) == 2);
  CHECK(measured(replay::kPositive, {}) == 2 && measured(replay::kPositive, {{"sample_range", Int64({-2, -1})}}) == 1);
  CHECK(measured(replay::kLargestHeld, {{"priorities", Floats({3, 5, 7, 9})}}) == 5);  // serial 7 is removed
  CHECK(measured(replay::kLargestHeld, {{"count", Int32(0)}, {"clock", Int64({5, 10, 0})}}) == 3);
}

void TestSamplesByHand(Reach reach) {
  Arguments sample = SamplingByRank(reach);  // all three rows, without replacement
  sample["plan"].as<int64_t>()[3] = 2;       // max_use 2: serial 9 has been delivered once
  CHECK(Call("sample", &sample) == replay::kOk);
  const int64_t *drawn = sample["outputs"].as<int64_t>();
  std::vector<int64_t> handles(drawn, drawn + 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(sample.All("outputs")[1].as<float>()[i] == 1);
    CHECK(sample.All("outputs")[2].as<float>()[i] == static_cast<float>(handles[i]));
  }
  std::sort(handles.begin(), handles.end());
  CHECK(handles == std::vector<int64_t>({6, 8, 9}));
  CHECK(HasLeaves(sample, {1, 0, 1, 0}) && sample["use_counts"].as<int32_t>()[1] == ~2);
  CHECK(sample["use_counts"].as<int32_t>()[0] == 1 && *sample["beta"].as<double>() == 0.5);
  CHECK(sample["random_state"].as<int64_t>()[1] == 3 && HasCounted(sample, {3, 1, 0, 0, 0}));

  Arguments by_priority = SamplingByPriority(reach);  // strata [0, 2), [2, 4), [4, 6) over weights 3, 1, 2
  CHECK(Call("sample", &by_priority) == replay::kOk);
  const int64_t *serials = by_priority["outputs"].as<int64_t>();
  CHECK(serials[0] == 8 && (serials[1] == 8 || serials[1] == 9) && serials[2] == 6);
  const float *weights = by_priority.All("outputs")[1].as<float>();
  CHECK(serials[1] == 9 ? weights[1] == 1 && weights[2] == 0.5f : weights[1] == weights[0] && weights[2] == 1);
  CHECK(*by_priority["beta"].as<double>() == 0.75 && HasCounted(by_priority, {3, 0, 0, 0, 0}));
  by_priority["plan"].as<double>()[8] = 0.5;  // beta advances, up to 1
  CHECK(Call("sample", &by_priority) == replay::kOk && *by_priority["beta"].as<double>() == 1);

  Arguments apart = SamplingByPriority(reach);  // beta itself is the input: the draw uses its value before the update
  apart["given_beta"] = Doubles({0.5});
  CHECK(Call("sample", &apart) == replay::kOk);
  Arguments shared = SamplingByPriority(reach);
  const std::vector<Argument *> arrays = shared.For(SignatureOf("sample"));
  Arrays call(arrays);
  const auto param = [&](const char *name) -> void *& {
    return call.params[static_cast<size_t>(std::find(arrays.begin(), arrays.end(), &shared[name]) - arrays.begin())];
  };
  param("given_beta") = param("beta");
  CHECK(call.Call(KernelOf("sample")) == replay::kOk && shared["beta"].bytes == apart["beta"].bytes);
  for (size_t i = 0; i < 3; ++i) CHECK(shared.All("outputs")[i].bytes == apart.All("outputs")[i].bytes);
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

// Random operations on a buffer of 37 rows: the tree stays consistent with its leaves, and removed rows have weight
// zero.
// Rows in order, and insertions that keep those that can still be drawn. Serial 7 is removed.
void TestOrderByHand(Reach reach) {
  const std::vector<int64_t> orders[] = {{6, 8, 9}, {9, 8, 6}};
  for (int64_t newest = 0; newest < 2; ++newest) {
    Arguments sample = SamplingByRank(reach);
    sample["plan"].as<int64_t>()[0] = 3 + newest;
    sample["plan"].as<int64_t>()[3] = 1;  // max_use
    CHECK(Call("sample", &sample) == replay::kOk);
    CHECK(sample.All("outputs")[0].bytes == Int64(orders[newest]).bytes);
    CHECK(sample["random_state"].bytes == Int64({1, 3}).bytes && HasLeaves(sample, {0, 0, 0, 0}));
    sample = SamplingByRank(reach);
    sample["plan"].as<int64_t>()[0] = 3 + newest;
    sample["sample_range"] = Int64({1, 3});  // serials 7 and 8
    CHECK(Call("sample", &sample) == replay::kTooFewRows);
  }
  Arguments insert = Inserting(reach);  // two rows, over serials 6 and 7
  insert["row_rule"] = Doubles({0, 0, 1, 0, 1});
  REFUSES("insert", insert, kFull, a["weights"] = Doubles(FreshTree({1, 1, 1, 0})));
  insert["weights"] = Doubles(FreshTree({1, 1, 0, 0}));
  CHECK(Call("insert", &insert) == replay::kOk && HasLeaves(insert, {1, 1, 1, 1}));
  insert = Inserting(reach);
  insert["row_rule"] = Doubles({0, 0, 1, 0, 1});
  insert["weights"] = Doubles(FreshTree({0, 1, 0, 0}));  // three slots are free
  insert["rows"] = Floats({10, 11, 12, 13});
  insert["priority"] = Floats({1});
  CHECK(Call("insert", &insert) == replay::kFull);
  insert["rows"] = Floats({10, 11, 12});
  CHECK(Call("insert", &insert) == replay::kOk && HasLeaves(insert, {1, 1, 1, 1}));
}

void TestManyOperations(Reach reach) {
  constexpr int64_t kCapacity = 37;
  Arguments buffer = Empty(reach, kCapacity);
  uint64_t counter = 0;
  auto below = [&](int64_t n) { return replay::Below(replay::RandomBits(3, counter++), n); };
  const int steps = StepsOf(4000, 100);
  for (int i = 0; i < steps; ++i) {
    const int64_t inserted = buffer["serials"].as<int64_t>()[0];
    std::vector<int64_t> handles;
    for (int64_t k = 0; k < 5; ++k) handles.push_back(inserted - 45 + below(48));
    int status = replay::kOk;
    switch (below(6)) {
      case 0:
      case 1: {
        const int64_t n = 1 + below(below(20) == 0 ? 90 : 7);
        std::vector<float> priorities;
        for (int64_t k = 0; k < n; ++k) priorities.push_back(static_cast<float>(below(1000)));
        Arguments rows = {{"priority", Floats(priorities)}, {"rows", Floats(priorities)}, {"first", One("int64")}};
        if (reach == Reach::kWindows) rows["ends"] = Flags({static_cast<uint8_t>(below(2))});
        status = On(&buffer, "insert", rows);
        break;
      }
      case 2: {
        Arguments sample = {{"plan", PlanOf({2, 0, below(2), 3, below(2), 0, 0, 0}, 1)},
                            {"beta", Doubles({0.5})},
                            {"given_beta", Doubles({0.5})},
                            {"sample_range", Int64({0, INT64_MAX})},
                            {"outputs", {Int64(handles), Zeros("float32", {5}), Zeros("float32", {5})}}};
        if (reach == Reach::kWindows) sample["powers"] = Doubles({1});
        status = On(&buffer, "sample", sample);
        CHECK(status == replay::kOk || status == replay::kTooFewRows);
        status = replay::kOk;
        break;
      }
      case 3: status = On(&buffer, "delete", {{"handles", Int64(handles)}, {"removed", One("int32")}}); break;
      case 4:
        status = On(&buffer, "advance",
                    {{"ticks", Int64({below(3)})}, {"max_staleness", Int64({9})}, {"now", One("int64")}});
        break;
      case 5:
        status = On(&buffer, "update_priorities",
                    {{"handles", Int64(handles)}, {"priority", Floats({1, 2, 3, 0, 5})}, {"invalid", One("int32")}});
    }
    CHECK(status == replay::kOk);
    const double *leaves = buffer["weights"].as<double>();
    CHECK(HasLeaves(buffer, {leaves, leaves + kCapacity}));
    bool removed = true;
    for (int64_t slot = 0; slot < kCapacity; ++slot) {
      removed = removed && (buffer["use_counts"].as<int32_t>()[slot] >= 0 || leaves[slot] == 0);
    }
    CHECK(removed);
  }
  CHECK(buffer["serials"].as<int64_t>()[0] > steps / 4);
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
  for (const Reach reach : {Reach::kRows, Reach::kWindows}) {
    TestRowsByHand(reach);
    TestSamplesByHand(reach);
    TestOrderByHand(reach);
    TestManyOperations(reach);
    TestRowStateRefusals(reach);
  }
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_MARKS_H_
