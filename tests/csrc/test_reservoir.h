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

void TestReservoir() {
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

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_RESERVOIR_H_
