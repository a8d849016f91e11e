// Tests of the adapters on buffers whose rows know their episode: a slow twin under random operations, windows by hand,
// and refusals.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_TIME_KERNELS_H_
#define MINDSPORE_REPLAY_TESTS_TEST_TIME_KERNELS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "call.h"
#include "check.h"
#include "random.h"
#include "test_weight_kernels.h"

namespace {

constexpr int64_t kPast = 2, kFuture = 3, kStride = 2;

// An empty buffer of one column; its rule is the last of the arguments.
Arguments EmptyBuffer(int64_t capacity, int64_t pad_end, int64_t streams, int64_t max_length = 0) {
  return {Zeros("int64", {capacity}),
          Int32(0),
          Int32(0),
          Int64({0, 0}),
          Doubles(FreshTree(std::vector<double>(static_cast<size_t>(capacity), 0.0))),
          Zeros("float32", {capacity}),
          Make<float>("float32", {}, {1}),
          Zeros("int32", {capacity}),
          Zeros("int64", {capacity}),
          Int64({0, 0}),
          Zeros("int64", {5}),
          Zeros("int64", {capacity}),
          Zeros("uint8", {capacity}),
          Int64({kPast, kFuture, kStride, pad_end, streams, max_length})};
}

// Calls a kernel on the buffer and other arguments; the buffer keeps what it changed.
int On(Arguments *buffer, Kernel kernel, std::vector<Argument> more, std::vector<Argument> *after = nullptr) {
  Arguments arguments = With(*buffer, std::move(more));
  const int status = Call(kernel, &arguments);
  std::copy(arguments.begin(), arguments.begin() + static_cast<int64_t>(buffer->size()), buffer->begin());
  if (after != nullptr) after->assign(arguments.begin() + static_cast<int64_t>(buffer->size()), arguments.end());
  return status;
}

int InsertRows(Arguments *buffer, std::vector<int64_t> rows, std::vector<uint8_t> ends) {
  return On(buffer, replay_insert_timed,
            {Doubles({0, 0}), Floats({1}), Flags(std::move(ends)), Int64(std::move(rows)), One("int32")});
}

// The twin: every row ever inserted, and what was done to it.
struct TwinRow {
  int64_t step;
  bool end, final, deleted;
};

struct Twin {
  int64_t capacity, pad_end, streams;
  std::vector<TwinRow> rows;

  int64_t Oldest() const { return std::max<int64_t>(0, static_cast<int64_t>(rows.size()) - capacity); }
  const TwinRow *At(int64_t serial) const {
    const bool stored = serial >= Oldest() && serial < static_cast<int64_t>(rows.size());
    return stored ? &rows[static_cast<size_t>(serial)] : nullptr;
  }

  void Insert(uint8_t flags) {
    const TwinRow *before = At(static_cast<int64_t>(rows.size()) - streams);
    const bool goes_on = before != nullptr && !before->end;
    rows.push_back({goes_on ? before->step + 1 : 0, (flags & 1) != 0, (flags & 2) != 0, false});
  }

  bool Legal(int64_t serial) const {
    const TwinRow *start = At(serial);
    if (start == nullptr || start->final || start->deleted) return false;
    for (int64_t i = 1; i <= std::min(kPast, start->step); ++i) {
      const TwinRow *row = At(serial - i * streams);
      if (row == nullptr || row->deleted) return false;
    }
    for (int64_t i = 0; i < kFuture; ++i) {
      const TwinRow *row = At(serial + i * streams);
      if (row == nullptr || row->deleted) return false;
      const bool last = i == kFuture - 1;
      if (row->end) return pad_end ? start->step % kStride == 0 : last;
      if (last) return start->step % kStride == 0;
    }
    return false;
  }

  std::vector<double> Leaves() const {
    std::vector<double> leaves(static_cast<size_t>(capacity), 0.0);
    for (int64_t serial = Oldest(); serial < static_cast<int64_t>(rows.size()); ++serial) {
      leaves[static_cast<size_t>(serial % capacity)] = Legal(serial);
    }
    return leaves;
  }
};

void TestAgainstTwin(int64_t capacity, int64_t pad_end, int64_t streams) {
  Arguments buffer = EmptyBuffer(capacity, pad_end, streams);
  Twin twin{capacity, pad_end, streams, {}};
  uint64_t counter = 0;
  auto random = [&](int64_t n) { return replay::Below(replay::RandomBits(7, counter++), n); };
  bool same = true;
  int64_t deleted_rows = 0;
  int64_t dead = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t n = streams * (random(10) == 0 ? 1 + random(capacity) : 1);
    std::vector<int64_t> rows;
    std::vector<uint8_t> flags;
    for (int64_t row = 0; row < n; ++row) {
      rows.push_back(static_cast<int64_t>(twin.rows.size()));
      flags.push_back(static_cast<uint8_t>(random(4) ? 0 : random(3) ? 1 : 3));
      twin.Insert(flags.back());
    }
    CHECK(InsertRows(&buffer, rows, flags) == replay::kOk);
    same = same && HasLeaves(buffer, twin.Leaves());
    if (random(4) == 0) {
      const int64_t serial = twin.Oldest() - 1 + random(capacity + 1);
      const TwinRow *row = twin.At(serial);
      const int32_t deleted = row != nullptr && !row->deleted;
      if (deleted) twin.rows[static_cast<size_t>(serial)].deleted = true;
      Arguments after;
      CHECK(On(&buffer, replay_delete_timed, {Int64({serial, serial}), One("int32")}, &after) == replay::kOk);
      CHECK(*after.back().as<int32_t>() == deleted);
      deleted_rows += deleted;
      dead += deleted || serial < 0 ? 0 : 2;
      same = same && HasLeaves(buffer, twin.Leaves());
    }
    // A start that may not be drawn takes no priority; one that may takes it.
    const int64_t serial = twin.Oldest() + random(capacity);
    Arguments after;
    CHECK(On(&buffer, replay_update_timed, {Doubles({0, 0}), Int64({serial}), Floats({1}), One("int32")}, &after) ==
          replay::kOk);
    CHECK(*after.back().as<int32_t>() == !twin.Legal(serial));
    dead += !twin.Legal(serial);
  }
  CHECK(same);
  const int64_t counts[] = {0, 0, 0, deleted_rows, dead};
  CHECK(std::equal(counts, counts + 5, buffer[10].as<int64_t>()));
}

// Rows 0 to 6 of episodes {0, 1, 2}, {3, 4} and {5, 6, ...}; starts may be padded.
Arguments SevenRows() {
  Arguments buffer = EmptyBuffer(8, 1, 1);
  CHECK(InsertRows(&buffer, {10, 11, 12, 13, 14, 15, 16}, {0, 0, 1, 0, 1, 0, 0}) == replay::kOk);
  CHECK(HasLeaves(buffer, {1, 0, 1, 1, 0, 0, 0, 0}));
  return buffer;
}

// (random_state, sample_range, beta, given_beta, beta_step, numbers, plan) -> handles, weights, outputs: a mask and a
// window of five rows, the length, and the n-step return and discount of chains of two.
std::vector<Argument> WindowArguments() {
  const std::vector<int64_t> draw = {0, 0, 0, 0, 0, 2, 0, 0};  // without replacement, so that all starts come
  std::vector<int64_t> plan = draw;
  for (const std::vector<int64_t> &output : std::vector<std::vector<int64_t>>{
           {1, 0, 0, 0, -2, 1, 5}, {0, 0, 0, 0, -2, 1, 5}, {6, 0, 0, 0, 0, 1, 1}, {7, 0, 0, 0, 0, 1, 1}}) {
    plan.insert(plan.end(), output.begin(), output.end());
  }
  return {Int64({1, 0}),       Int64({0, INT64_MAX}),   Doubles({0}),           Doubles({0}),         Doubles({0}),
          Doubles({0, 1, 0.5, 0.25}), Int64(plan),      Zeros("int64", {3}),    Zeros("float32", {3}),
          Zeros("bool", {3, 5}), Zeros("int64", {3, 5}), Zeros("int32", {3}),   Zeros("int32", {3})};
}

Arguments SampleWindowsArguments() { return With(SevenRows(), WindowArguments()); }
Arguments InsertTimedArguments() {
  return With(SevenRows(), {Doubles({0, 0}), Floats({1}), Flags({0, 1}), Int64({1, 2}), One("int32")});
}
Arguments UpdateTimedArguments() {
  return With(SevenRows(), {Doubles({0, 0}), Int64({0, 1}), Floats({1}), One("int32")});
}
Arguments DeleteTimedArguments() { return With(SevenRows(), {Int64({0}), One("int32")}); }
Arguments AdvanceTimedArguments() { return With(SevenRows(), {Int64({1}), Int64({-1}), One("int64")}); }
Arguments ResetTimedArguments() { return With(SevenRows(), {One("int32")}); }

void TestWindowsByHand() {
  Arguments sample = SampleWindowsArguments();
  const size_t first = sample.size() - 6;
  CHECK(Call(replay_sample_windows, &sample) == replay::kOk);
  bool seen[4] = {};
  for (int b = 0; b < 3; ++b) {
    const int64_t start = sample[first].as<int64_t>()[b];
    const uint8_t *mask = sample[first + 2].as<uint8_t>() + 5 * b;
    const int64_t *rows = sample[first + 3].as<int64_t>() + 5 * b;
    const int32_t length = sample[first + 4].as<int32_t>()[b];
    const int32_t chain = sample[first + 5].as<int32_t>()[b];
    CHECK(sample[first + 1].as<float>()[b] == 1);
    if (start == 0) CHECK(std::equal(rows, rows + 5, std::vector<int64_t>({0, 0, 10, 11, 12}).begin()) && length == 3);
    if (start == 2) CHECK(std::equal(rows, rows + 5, std::vector<int64_t>({10, 11, 12, 0, 0}).begin()) && length == 1);
    if (start == 3) CHECK(std::equal(rows, rows + 5, std::vector<int64_t>({0, 0, 13, 14, 0}).begin()) && length == 2);
    CHECK(chain == std::min(length, 2));
    for (int i = 0; i < 5; ++i) CHECK((mask[i] != 0) == (rows[i] != 0));
    CHECK(start == 0 || start == 2 || start == 3);
    seen[start & 3] = true;
  }
  CHECK(seen[0] && seen[2] && seen[3]);  // a use limit of none: the rows stay
  CHECK(sample[10].as<int64_t>()[0] == 3 && sample[10].as<int64_t>()[1] == 0);
}

void TestEpisodesTooLong() {
  Arguments buffer = EmptyBuffer(8, 1, 1, 3);
  CHECK(InsertRows(&buffer, {1, 2}, {0, 0}) == replay::kOk);
  const Arguments before = buffer;
  CHECK(InsertRows(&buffer, {3}, {0}) == replay::kTooLong);
  CHECK(InsertRows(&buffer, {3, 4, 5, 6}, {1, 0, 0, 0}) == replay::kTooLong);
  for (size_t i = 0; i < buffer.size(); ++i) CHECK(buffer[i].bytes == before[i].bytes);
  CHECK(InsertRows(&buffer, {3, 4, 5}, {1, 0, 1}) == replay::kOk);
}

void TestStaleRows() {
  Arguments buffer = SevenRows();
  CHECK(On(&buffer, replay_advance_timed, {Int64({2}), Int64({5}), One("int64")}) == replay::kOk);
  CHECK(HasLeaves(buffer, {1, 0, 1, 1, 0, 0, 0, 0}));
  CHECK(InsertRows(&buffer, {17}, {1}) == replay::kOk);  // at clock 2
  CHECK(HasLeaves(buffer, {1, 0, 1, 1, 0, 1, 0, 1}));
  CHECK(On(&buffer, replay_advance_timed, {Int64({4}), Int64({5}), One("int64")}) == replay::kOk);
  CHECK(HasLeaves(buffer, {0, 0, 0, 0, 0, 0, 0, 0}));  // the last row's past is stale
  CHECK(buffer[10].as<int64_t>()[2] == 7 && buffer[10].as<int64_t>()[3] == 0);
  CHECK(On(&buffer, replay_reset_timed, {One("int32")}) == replay::kOk);
  CHECK(*buffer[2].as<int32_t>() == 0 && buffer[3].as<int64_t>()[1] == 8);
}

void TestTimeRefusals() {
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[13] = Int64({2, 3, 2, 1, 1}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[13] = Int64({2, 3, 0, 1, 1, 0}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[13] = Int64({2, 3, 2, 1, 9, 0}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[13] = Int64({-1, 3, 2, 1, 1, 0}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[11] = Zeros("int64", {7}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[12] = Zeros("int8", {8}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[16] = Flags({0, 0, 0}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadArguments, (*a)[17] = Zeros("int32", {2}));
  REFUSES(replay_insert_timed, InsertTimedArguments, kBadWeight, (*a)[15] = Floats({-1}));
  REFUSES(replay_update_timed, UpdateTimedArguments, kBadWeight, (*a)[16] = Floats({-1}));
  REFUSES(replay_update_timed, UpdateTimedArguments, kBadArguments, (*a)[16] = Floats({1, 1, 1}));
  REFUSES(replay_delete_timed, DeleteTimedArguments, kBadArguments, a->pop_back());
  REFUSES(replay_advance_timed, AdvanceTimedArguments, kBadArguments, (*a)[14] = Int64({-1}));
  REFUSES(replay_reset_timed, ResetTimedArguments, kBadArguments, a->pop_back());
  REFUSES(replay_sample_windows, SampleWindowsArguments, kTooFewRows, (*a)[15] = Int64({1, 9}));
  REFUSES(replay_sample_windows, SampleWindowsArguments, kBadWeight, (*a)[17] = Doubles({2}));
  REFUSES(replay_sample_windows, SampleWindowsArguments, kBadArguments, (*a)[19] = Doubles({0, 1, 0.5}));
  REFUSES(replay_sample_windows, SampleWindowsArguments, kBadArguments, a->pop_back());
  REFUSES(replay_sample_windows, SampleWindowsArguments, kBadArguments, (*a)[24] = Zeros("int64", {3, 4}));
  REFUSES(replay_sample_windows, SampleWindowsArguments, kBadArguments, (*a)[23] = Zeros("int8", {3, 5}));
  REFUSES(replay_sample_windows, SampleWindowsArguments, kBadArguments, (*a)[20].as<int64_t>()[8] = 9);   // a kind
  REFUSES(replay_sample_windows, SampleWindowsArguments, kBadArguments, (*a)[20].as<int64_t>()[16] = 1);  // a column
}

#ifndef MINDSPORE_REPLAY_ON_CUDA

Arguments SampleGroupsArguments() {
  return With(SevenRows(), {Int64({1, 0}), Int64({0, 1}), Zeros("int8", {2, 1}), Zeros("bool", {2, 1}),
                            Zeros("int64", {2, 1})});
}

void TestGroupsByHand() {
  Arguments sample = SampleGroupsArguments();  // each row is a group; those of the unfinished episode do not count
  const size_t last = sample.size() - 1;
  CHECK(Call(replay_sample_groups, &sample) == replay::kOk);
  const int64_t *rows = sample[last].as<int64_t>();
  CHECK(rows[0] != rows[1] && rows[0] >= 10 && rows[0] <= 14 && rows[1] >= 10 && rows[1] <= 14);
}

void TestGroupRefusals() {
  REFUSES(replay_sample_groups, SampleGroupsArguments, kBadArguments, (*a)[15] = Int64({1, 1}));
  REFUSES(replay_sample_groups, SampleGroupsArguments, kBadArguments, (*a)[17] = Zeros("bool", {2, 2}));
  REFUSES(replay_sample_groups, SampleGroupsArguments, kTooFewRows,
          (*a)[16] = Zeros("int8", {6, 1}); (*a)[17] = Zeros("bool", {6, 1}); (*a)[18] = Zeros("int64", {6, 1}));
}

#endif  // MINDSPORE_REPLAY_ON_CUDA

void TestTimeKernels() {
  for (const int64_t capacity : {5, 8, 13}) {
    for (const int64_t pad_end : {0, 1}) TestAgainstTwin(capacity, pad_end, 1);
  }
  for (const int64_t pad_end : {0, 1}) TestAgainstTwin(17, pad_end, 3);
  TestWindowsByHand();
  TestEpisodesTooLong();
  TestStaleRows();
  TestTimeRefusals();
#ifndef MINDSPORE_REPLAY_ON_CUDA
  TestGroupsByHand();
  TestGroupRefusals();
#endif
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_TIME_KERNELS_H_
