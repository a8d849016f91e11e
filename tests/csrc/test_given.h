// Tests of every kernel that writes state, with what it is given in that state.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_GIVEN_H_
#define MINDSPORE_REPLAY_TESTS_TEST_GIVEN_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "call.h"
#include "check.h"
#include "test_reservoir.h"
#include "test_time_kernels.h"
#include "test_weight_kernels.h"

namespace {

Arguments RingWriteArguments() {
  return {Floats({1, 2, 3, 4}), Floats({5, 6, 7, 8}), Int32(1),           Int32(4),
          Int64({9, 4}),        Floats({9, 8, 7}),    Floats({6, 5, 4}), One("int32")};
}

// Rows 2 to 5 of an episode in slots 2, 3, 0, 1; each is a start of three steps.
Arguments TimedBuffer() {
  Arguments buffer = EmptyBuffer(4, 1, 1);
  buffer[13] = Int64({0, 3, 1, 1, 1, 0});
  for (int64_t row = 0; row < 6; ++row) InsertRows(&buffer, {row}, {0});
  return buffer;
}

Arguments InsertSteps() {
  return With(TimedBuffer(), {Doubles({1, 0}), Floats({0.5f, 7, 3}), Flags({0, 1, 0}), Int64({6, 7, 8}), One("int32")});
}
Arguments UpdateSteps() {
  return With(TimedBuffer(), {Doubles({1, 0}), Int64({3, 2, 4, 5}), Floats({4, 3, 2, 1}), One("int32")});
}
Arguments EndSteps() { return With(TimedBuffer(), {Doubles({1, 0}), Flags({1}), One("int32")}); }
Arguments DeleteSteps() { return With(TimedBuffer(), {Int64({3, 2}), One("int32")}); }
Arguments AdvanceSteps() { return With(TimedBuffer(), {Int64({2}), Int64({1}), One("int64")}); }

struct Writer {
  Kernel kernel;
  Arguments (*make)();
  size_t given;  // the first argument that is no state
};

// A place of the state as an argument: where it would lie, and the same in memory of its own.
void TestPlace(const Writer &writer, size_t given, size_t state, size_t offset) {
  Arguments inside = writer.make();
  Arguments apart = inside;
  std::vector<char> &bytes = apart[given].bytes;
  std::memcpy(bytes.data(), inside[state].bytes.data() + offset, bytes.size());
  const int expected = Call(writer.kernel, &apart);
  Arrays arrays(&inside);
  arrays.params[given] = inside[state].bytes.data() + offset;
  CHECK(arrays.Call(writer.kernel) == expected);
  for (size_t i = 0; i < inside.size(); ++i) CHECK(i == given || inside[i].bytes == apart[i].bytes);
}

void TestWriter(const Writer &writer) {
  const Arguments arguments = writer.make();
  for (size_t given = writer.given; given + 1 < arguments.size(); ++given) {
    const size_t bytes = arguments[given].bytes.size();
    for (size_t state = 0; state < writer.given; ++state) {
      const bool same = replay::DtypeOf(arguments[given].dtype.c_str()) == replay::DtypeOf(arguments[state].dtype.c_str());
      const size_t size = arguments[state].bytes.size();
      if (!same || size < bytes) continue;
      const auto step = static_cast<size_t>(replay::ElementBytes(arguments[given].dtype.c_str()));
      for (size_t offset = 0; offset + bytes <= size; offset += step) TestPlace(writer, given, state, offset);
    }
  }
}

void TestGiven() {
  for (const Writer &writer : std::vector<Writer>{{replay_ring_write, RingWriteArguments, 5},
                                                  {replay_reservoir_insert, ReservoirArguments, 7},
                                                  {replay_reservoir_insert_weighted, WeightedReservoirArguments, 15},
                                                  {replay_tree_set, TreeSetArguments, 1},
                                                  {replay_insert_weighted, InsertArguments, 11},
                                                  {replay_update_priorities, UpdateArguments, 11},
                                                  {replay_delete, DeleteArguments, 11},
                                                  {replay_advance, AdvanceArguments, 11},
                                                  {replay_insert_timed, InsertSteps, 14},
                                                  {replay_update_timed, UpdateSteps, 14},
                                                  {replay_end_episodes, EndSteps, 14},
                                                  {replay_delete_timed, DeleteSteps, 14},
                                                  {replay_advance_timed, AdvanceSteps, 14}}) {
    TestWriter(writer);
  }
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_GIVEN_H_
