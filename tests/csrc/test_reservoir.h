// Tests of Algorithm R and of the kernels on reservoirs.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_RESERVOIR_H_
#define MINDSPORE_REPLAY_TESTS_TEST_RESERVOIR_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "call.h"
#include "check.h"
#include "core/reservoir.h"
#include "test_row_state.h"

namespace {

// Three slots, two of them occupied, of a stream that begins with serial number 10.
Arguments Reservoir() {
  return {{"columns", {Make<float>("float32", {3, 2}, {1, 1, 2, 2, 0, 0}), Make<uint8_t>("uint8", {3}, {1, 0, 0})}},
          {"head", Int32(0)},
          {"count", Int32(2)},
          {"serials", Int64({12, 10})},
          {"random_state", Int64({77, 5})},
          {"row_serials", Int64({10, 11, 0})}};
}

// The same with row state: the second row was removed after its only delivery; the learner's clock is 9.
Arguments WeightedReservoir() {
  return Reservoir().With({{"priorities", Floats({1, 1, 0})},
                           {"use_counts", Ints({4, ~1, 0})},
                           {"insertion_clocks", Int64({1, 2, 0})},
                           {"weights", Doubles(FreshTree({1, 0, 0}))},
                           {"max_priority", Make<float>("float32", {}, {1})},
                           {"clock", Int64({9, 10, 0})},
                           {"counts", Int64({100, 10, 20, 30, 40})},
                           {"row_rule", Doubles({1, 0, 0, 0, 1})}});
}

Arguments InsertingInto(const Arguments &reservoir) {
  Arguments arguments = reservoir.With(
      {{"rows", {Make<float>("float32", {3, 2}, {3, 3, 4, 4, 5, 5}), Make<uint8_t>("bool", {3}, {1, 1, 1})}},
       {"first", One("int64")}});
  return reservoir.Has("weights") ? arguments.With({{"priority", Floats({2, 3, 4})}}) : arguments;
}

// `WeightedReservoir` after the insertion, with each row's priority as its weight.
Arguments FullReservoir() {
  Arguments full = InsertingInto(WeightedReservoir());
  CHECK(Call("insert", &full) == replay::kOk);
  return full;
}

void TestReservoirSlots() {
  CHECK(replay::ReservoirSlot(77, 10, 10, 3) == 0 && replay::ReservoirSlot(77, 12, 10, 3) == 2);
  // Each later row goes to each slot with probability 1 / (rows so far), and else nowhere.
  constexpr int kStreams = 20000;
  int counts[4] = {0, 0, 0, 0};
  for (int64_t key = 0; key < kStreams; ++key) ++counts[replay::ReservoirSlot(key * 1000003, 19, 10, 3) + 1];
  CHECK(counts[0] > kStreams * 0.68 && counts[0] < kStreams * 0.72);
  for (int slot = 0; slot < 3; ++slot) CHECK(counts[slot + 1] > kStreams * 0.09 && counts[slot + 1] < kStreams * 0.11);
  // No overflow up to the largest serial number.
  const int64_t last = replay::ReservoirSlot(77, INT64_MAX - 1, 0, 3);
  CHECK(last >= -1 && last < 3);
}

// Expected results of three rows, one by one.
struct Kept {
  std::vector<float> column = {1, 1, 2, 2, 0, 0};
  std::vector<int64_t> row_serials = {10, 11, 0};
  std::vector<double> leaves = {1, 0, 0};
  std::vector<float> priorities = {1, 1, 0};
  std::vector<int32_t> uses = {4, ~1, 0};
  std::vector<int64_t> clocks = {1, 2, 0};
  std::vector<int64_t> written;

  Kept() {
    for (int64_t serial = 12; serial < 15; ++serial) {
      const int64_t slot = replay::ReservoirSlot(77, serial, 10, 3);
      if (slot < 0) continue;
      written.push_back(slot);
      const auto at = static_cast<size_t>(slot);
      column[2 * at] = column[2 * at + 1] = static_cast<float>(serial - 9);
      row_serials[at] = serial;
      leaves[at] = priorities[at] = static_cast<float>(serial - 10);
      uses[at] = 0;
      clocks[at] = 9;
    }
  }
};

void TestReservoirInsert() {
  const Kept kept;
  CHECK(kept.written.front() == 2 && kept.written.size() > 1);
  for (const Arguments &reservoir : {Reservoir(), WeightedReservoir()}) {
    Arguments a = InsertingInto(reservoir);
    CHECK(Call("insert", &a) == replay::kOk);
    CHECK(std::equal(kept.column.begin(), kept.column.end(), a["columns"].as<float>()));
    CHECK(std::equal(kept.row_serials.begin(), kept.row_serials.end(), a["row_serials"].as<int64_t>()));
    CHECK(a.All("columns")[1].as<uint8_t>()[2] == 1);
    CHECK(*a["count"].as<int32_t>() == 3 && *a["first"].as<int64_t>() == 12 && *a["head"].as<int32_t>() == 0);
    CHECK(a["serials"].bytes == Int64({15, 10}).bytes && a["random_state"].bytes == Int64({77, 5}).bytes);
    if (!reservoir.Has("weights")) continue;
    CHECK(HasLeaves(a, kept.leaves) && a["priorities"].bytes == Floats(kept.priorities).bytes);
    CHECK(a["use_counts"].bytes == Ints(kept.uses).bytes && a["insertion_clocks"].bytes == Int64(kept.clocks).bytes);
    CHECK(*a["max_priority"].as<float>() == 4 && a["clock"].bytes == Int64({9, 10, 0}).bytes);
  }
}

// Handles are serial numbers; those of evicted rows are invalid.
void TestReservoirHandles() {
  const Kept kept;
  const std::vector<int64_t> stored = kept.row_serials;
  const auto slot_of = [&](int64_t serial) { return std::find(stored.begin(), stored.end(), serial) - stored.begin(); };
  const std::vector<int64_t> handles = {9, 10, 11, 12, 13, 14, 15, -1};
  const auto n = static_cast<int64_t>(handles.size());
  const auto alive = [&](int64_t handle) {
    const auto slot = static_cast<size_t>(slot_of(handle));
    return slot < stored.size() && kept.uses[slot] >= 0;
  };
  const int64_t invalid = std::count_if(handles.begin(), handles.end(), [&](int64_t handle) { return !alive(handle); });

  Arguments info = FullReservoir().With({{"handles", Int64(handles)},
                                         {"priority", Zeros("float32", {n})},
                                         {"uses", Zeros("int32", {n})},
                                         {"staleness", Zeros("int64", {n})}});
  CHECK(Call("info", &info) == replay::kOk);
  for (size_t i = 0; i < handles.size(); ++i) {
    const auto slot = static_cast<size_t>(slot_of(handles[i]));
    const bool is_stored = slot < stored.size();
    const int32_t uses = is_stored ? kept.uses[slot] : -1;
    CHECK(info["priority"].as<float>()[i] == (is_stored ? kept.priorities[slot] : 0));
    CHECK(info["uses"].as<int32_t>()[i] == (is_stored && uses < 0 ? ~uses : uses));
    CHECK(info["staleness"].as<int64_t>()[i] == (is_stored ? 9 - kept.clocks[slot] : -1));
  }

  Arguments update =
      FullReservoir().With({{"handles", Int64(handles)}, {"priority", Floats({7})}, {"invalid", One("int32")}});
  CHECK(Call("update_priorities", &update) == replay::kOk);
  CHECK(*update["invalid"].as<int32_t>() == invalid && HasCounted(update, {0, 0, 0, 0, invalid - 1}));
  for (size_t slot = 0; slot < 3; ++slot) CHECK(update["weights"].as<double>()[slot] == (kept.uses[slot] >= 0 ? 7 : 0));

  Arguments remove = FullReservoir().With({{"handles", Int64(handles)}, {"removed", One("int32")}});
  CHECK(Call("delete", &remove) == replay::kOk);
  CHECK(*remove["removed"].as<int32_t>() == n - invalid && HasLeaves(remove, {0, 0, 0}));
  CHECK(HasCounted(remove, {0, 0, 0, n - invalid, invalid - 1}));

  Arguments sample = FullReservoir().With(
      {{"weights", Doubles(FreshTree({1, 1, 1}))},
       {"use_counts", Ints({0, 0, 0})},
       {"plan", PlanOf({1, 0, 0, 0, 0, 0, 0, 0}, 2)},
       {"beta", Doubles({0})},
       {"given_beta", Doubles({0})},
       {"sample_range", Int64({0, INT64_MAX})},
       {"outputs", {Zeros("int64", {3}), Zeros("float32", {3}), Zeros("float32", {3, 2}), Zeros("bool", {3})}}});
  CHECK(Call("sample", &sample) == replay::kOk);
  std::vector<int64_t> drawn(sample["outputs"].as<int64_t>(), sample["outputs"].as<int64_t>() + 3);
  for (size_t i = 0; i < 3; ++i) {
    const auto slot = static_cast<size_t>(slot_of(drawn[i]));
    CHECK(slot < 3 && sample.All("outputs")[2].as<float>()[2 * i] == kept.column[2 * slot]);
  }
  std::sort(drawn.begin(), drawn.end());
  std::vector<int64_t> all = stored;
  std::sort(all.begin(), all.end());
  CHECK(drawn == all && HasCounted(sample, {3, 0, 0, 0, 0}));
}

void TestReservoirReset() {
  Arguments reset = FullReservoir().With({{"stored", One("int32")}});
  CHECK(Call("reset", &reset) == replay::kOk);
  CHECK(reset["serials"].bytes == Int64({15, 15}).bytes && reset["clock"].bytes == Int64({0, 15, 0}).bytes);
  CHECK(*reset["count"].as<int32_t>() == 0 && HasLeaves(reset, {0, 0, 0}));
  Arguments again = InsertingInto(reset);  // the first rows of a new stream
  CHECK(Call("insert", &again) == replay::kOk);
  CHECK(again["row_serials"].bytes == Int64({15, 16, 17}).bytes && HasLeaves(again, {2, 3, 4}));
}

void TestReservoirRefusals() {
  for (const Arguments &reservoir : {Reservoir(), WeightedReservoir()}) {
    const Arguments insert = InsertingInto(reservoir);
    REFUSES("insert", insert, kBadArguments, a["count"] = Int32(4));
    REFUSES("insert", insert, kBadArguments, a["count"] = Int32(1));  // two rows have been inserted
    REFUSES("insert", insert, kBadArguments, a["head"] = Int32(1));
    REFUSES("insert", insert, kBadArguments, a["serials"] = Int64({9, 10}));
    REFUSES("insert", insert, kBadArguments, a["serials"] = Int64({1, -1}));
    REFUSES("insert", insert, kBadArguments, a.All("rows")[1] = Zeros("bool", {2}));
    REFUSES("insert", insert, kBadArguments, a["rows"] = Zeros("float32", {3, 3}));
  }
  const Arguments insert = InsertingInto(WeightedReservoir());
  REFUSES("insert", insert, kBadArguments, a["clock"] = Int64({9, 11, 0}));
  REFUSES("insert", insert, kBadWeight, a["priority"] = Floats({-1}));
  // Rows of a reservoir go stale in the order of insertion, not of slots.
  const Arguments advance =
      WeightedReservoir().With({{"ticks", Int64({1})}, {"max_staleness", Int64({4})}, {"now", One("int64")}});
  REFUSES("advance", advance, kBadArguments, );
  Arguments kept = advance.With({{"max_staleness", Int64({-1})}});
  CHECK(Call("advance", &kept) == replay::kOk && kept["clock"].bytes == Int64({10, 10, 0}).bytes);
}

void TestReservoir() {
  TestReservoirSlots();
  TestReservoirInsert();
  TestReservoirHandles();
  TestReservoirReset();
  TestReservoirRefusals();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_RESERVOIR_H_
