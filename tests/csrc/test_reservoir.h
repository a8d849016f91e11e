// Tests of Algorithm R and of the adapters on reservoirs.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_RESERVOIR_H_
#define MINDSPORE_REPLAY_TESTS_TEST_RESERVOIR_H_

#include <cstdint>
#include <vector>

#include "call.h"
#include "check.h"
#include "reservoir.h"
#include "test_weight_kernels.h"

namespace {

// Three slots, of a stream that begins with serial number 10. Two rows are stored, so two of these three fit at once.
Arguments ReservoirArguments() {
  return {Make<float>("float32", {3, 2}, {1, 1, 2, 2, 0, 0}),
          Make<uint8_t>("uint8", {3}, {1, 0, 0}),
          Int32(0),
          Int32(2),
          Int64({10, 11, 0}),
          Int64({12, 10}),
          Int64({77, 5}),
          Make<float>("float32", {3, 2}, {3, 3, 4, 4, 5, 5}),
          Make<uint8_t>("bool", {3}, {1, 1, 1}),
          One("int32")};
}

// The same with weights, of which the second row was removed; the learner's clock is 9.
Arguments WeightedReservoirArguments() {
  Arguments state = ReservoirArguments();
  Arguments arguments(state.begin(), state.begin() + 4);
  arguments = With(arguments, {Int64({2, 0}), Doubles(FreshTree({1, 0, 0})), Floats({1, 1, 0}), One("float32"),
                               Ints({4, ~1, 0}), Int64({1, 2, 0}), Int64({9, 0}), Zeros("int64", {5})});
  arguments[7].as<float>()[0] = 1;
  return With(arguments, Arguments(state.begin() + 4, state.end()));
}

void TestReservoirSlots() {
  CHECK(replay::ReservoirSlot(77, 10, 10, 3) == 0 && replay::ReservoirSlot(77, 12, 10, 3) == 2);
  // Each later row goes to each slot with probability 1 / (rows so far), and else nowhere.
  constexpr int kStreams = 20000;
  int counts[4] = {0, 0, 0, 0};
  for (int64_t key = 0; key < kStreams; ++key) ++counts[replay::ReservoirSlot(key * 1000003, 19, 10, 3) + 1];
  CHECK(counts[0] > kStreams * 0.68 && counts[0] < kStreams * 0.72);
  for (int slot = 0; slot < 3; ++slot) CHECK(counts[slot + 1] > kStreams * 0.09 && counts[slot + 1] < kStreams * 0.11);
  // As far as serial numbers go, nothing overflows.
  const int64_t last = replay::ReservoirSlot(77, INT64_MAX - 1, 0, 3);
  CHECK(last >= -1 && last < 3);
}

void TestReservoirInsert() {
  Arguments a = ReservoirArguments();
  CHECK(Call(replay_reservoir_insert, &a) == replay::kOk);
  // What the three rows must have done, one by one.
  std::vector<float> column = {1, 1, 2, 2, 0, 0};
  std::vector<int64_t> row_serials = {10, 11, 0};
  std::vector<int64_t> written;
  for (int64_t serial = 12; serial < 15; ++serial) {
    const int64_t slot = replay::ReservoirSlot(77, serial, 10, 3);
    if (slot < 0) continue;
    written.push_back(slot);
    const auto at = static_cast<size_t>(slot);
    column[2 * at] = column[2 * at + 1] = static_cast<float>(serial - 9);
    row_serials[at] = serial;
  }
  CHECK(written.front() == 2);
  CHECK(std::equal(column.begin(), column.end(), a[0].as<float>()));
  CHECK(std::equal(row_serials.begin(), row_serials.end(), a[4].as<int64_t>()));
  CHECK(a[1].as<uint8_t>()[2] == 1);
  CHECK(*a[3].as<int32_t>() == 3 && *a[9].as<int32_t>() == 3 && *a[2].as<int32_t>() == 0);
  CHECK(a[5].as<int64_t>()[0] == 15 && a[5].as<int64_t>()[1] == 10);
  CHECK(a[6].as<int64_t>()[0] == 77 && a[6].as<int64_t>()[1] == 5);

  Arguments w = WeightedReservoirArguments();
  CHECK(Call(replay_reservoir_insert_weighted, &w) == replay::kOk);
  CHECK(std::equal(column.begin(), column.end(), w[0].as<float>()));
  CHECK(std::equal(row_serials.begin(), row_serials.end(), w[12].as<int64_t>()));
  CHECK(w[4].as<int64_t>()[0] == 3 && w[4].as<int64_t>()[1] == 0);
  std::vector<double> leaves = {1, 0, 0};
  std::vector<int32_t> uses = {4, ~1, 0};
  std::vector<int64_t> clocks = {1, 2, 0};
  for (const int64_t slot : written) {
    leaves[static_cast<size_t>(slot)] = 1;
    uses[static_cast<size_t>(slot)] = 0;
    clocks[static_cast<size_t>(slot)] = 9;
  }
  const std::vector<double> tree = FreshTree(leaves);
  CHECK(std::equal(tree.begin(), tree.end(), w[5].as<double>()));
  CHECK(std::equal(uses.begin(), uses.end(), w[8].as<int32_t>()));
  CHECK(std::equal(clocks.begin(), clocks.end(), w[9].as<int64_t>()));
}

void TestReservoirRefusals() {
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, a->pop_back());
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, *(*a)[3].as<int32_t>() = 4);
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, (*a)[4] = Int64({10, 11}));
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, (*a)[5] = Int64({9, 10}));
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, (*a)[5] = Int64({9, -1}));
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, (*a)[6] = Int64({9}));
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, (*a)[8] = Zeros("bool", {2}));
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, (*a)[7] = Zeros("float32", {3, 3}));
  REFUSES(replay_reservoir_insert, ReservoirArguments, kBadArguments, (*a)[9] = One("int64"));
  REFUSES(replay_reservoir_insert_weighted, WeightedReservoirArguments, kBadArguments, a->pop_back());
  REFUSES(replay_reservoir_insert_weighted, WeightedReservoirArguments, kBadArguments, (*a)[4] = Int64({1, 0}));
  REFUSES(replay_reservoir_insert_weighted, WeightedReservoirArguments, kBadArguments, (*a)[5] = Doubles({1, 0, 0}));
  REFUSES(replay_reservoir_insert_weighted, WeightedReservoirArguments, kBadArguments, (*a)[12] = Int64({10, 11}));
}

void TestReservoir() {
  TestReservoirSlots();
  TestReservoirInsert();
  TestReservoirRefusals();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_RESERVOIR_H_
