// Tests of the kernels on buffers whose rows know their episode: the repair of episodes, and
// rejected arguments.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_TIMELINE_H_
#define MINDSPORE_REPLAY_TESTS_TEST_TIMELINE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "call.h"
#include "check.h"
#include "core/random.h"
#include "test_row_state.h"

namespace {

constexpr int64_t kPast = 2, kFuture = 3, kStride = 2;

// An empty buffer of one column, in which every window has weight 1.
Arguments EmptyTimeline(int64_t capacity, int64_t pad_end, int64_t streams, int64_t max_length = 0,
                        int64_t terminated = -1, int64_t needs_next = 0) {
  return Empty(Reach::kWindows, capacity)
      .With({{"columns", Zeros("int64", {capacity})},
             {"updates", Zeros("int64", {replay::Updates::Size(capacity)})},
             {"row_rule", Doubles({0, 0, 0, 0, 1})},
             {"window_rule", Int64({kPast, kFuture, kStride, pad_end, streams, max_length, terminated, needs_next})}});
}

int InsertRows(Arguments *buffer, std::vector<int64_t> rows, std::vector<uint8_t> ends) {
  return On(buffer, "insert",
            {{"rows", Int64(std::move(rows))},
             {"priority", Floats({1})},
             {"ends", Flags(std::move(ends))},
             {"first", One("int64")}});
}

// Rows 0 to 6 of episodes {0, 1, 2}, {3, 4} and {5, 6, ...}; windows may be padded.
Arguments SevenRows() {
  Arguments buffer = EmptyTimeline(8, 1, 1);
  CHECK(InsertRows(&buffer, {10, 11, 12, 13, 14, 15, 16}, {0, 0, 1, 0, 1, 0, 0}) == replay::kOk);
  CHECK(HasLeaves(buffer, {1, 0, 1, 1, 0, 0, 0, 0}));
  return buffer;
}

// Samples of three: handles, weights, a mask and a window of five rows, the length, and the rows of chains of two.
Arguments SamplingWindows() {
  std::vector<int64_t> plan = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0};  // without replacement, so each start appears
  for (const std::vector<int64_t> &output : std::vector<std::vector<int64_t>>{{9, 0, 0, 0, 0, 1, 1},
                                                                              {10, 0, 0, 0, 0, 1, 1},
                                                                              {1, 0, 0, 0, -2, 1, 5},
                                                                              {0, 0, 0, 0, -2, 1, 5},
                                                                              {6, 0, 0, 0, 0, 1, 1},
                                                                              {7, 0, 0, 0, 0, 1, 1}}) {
    plan.insert(plan.end(), output.begin(), output.end());
  }
  return SevenRows().With({{"plan", Int64(plan)},
                           {"powers", Doubles({1, 0.5, 0.25})},
                           {"beta", Doubles({0})},
                           {"given_beta", Doubles({0})},
                           {"sample_range", Int64({0, INT64_MAX})},
                           {"outputs",
                            {Zeros("int64", {3}), Zeros("float32", {3}), Zeros("bool", {3, 5}), Zeros("int64", {3, 5}),
                             Zeros("int32", {3}), Zeros("int32", {3})}}});
}

// What a process leaves that dies after it changed flags, or a column, of rows that stay.
void TestRepairOfEnds() {
  for (const int64_t needs_next : {0, 1}) {
    Arguments buffer = EmptyTimeline(8, 1, 1, 0, 0, needs_next);
    CHECK(InsertRows(&buffer, {0, 0, 0, 0}, {0, 1, 0, 0}) == replay::kOk);
    CHECK(InsertRows(&buffer, {1, 0}, {0, 2}) == replay::kOk);  // the last row belongs to the one before it
    uint8_t *flags = buffer["flags"].as<uint8_t>();
    const uint8_t limit = needs_next ? 1 + 2 + 8 : 1;
    CHECK(std::equal(flags, flags + 6, std::vector<uint8_t>({0, limit, 0, 0, 8, 3}).begin()));
    buffer["columns"].as<int64_t>()[2] = 1;
    const replay::RowState none{
        replay::SumTree(nullptr, 8), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
    const replay::WindowRule rule{kPast, kFuture, kStride, 1, 1, 0, 0, needs_next};
    const replay::Timeline timeline({8, 0, 5, 5, 0}, none, rule, buffer["steps"].as<int64_t>(), flags);
    timeline.RepairEnds(replay::BoolRows{reinterpret_cast<const char *>(buffer["columns"].as<int64_t>()), 8, false});
    CHECK(std::equal(flags, flags + 5, std::vector<uint8_t>({0, limit, 9, 0, 9}).begin()));
    const int64_t *steps = buffer["steps"].as<int64_t>();
    CHECK(std::equal(steps, steps + 5, std::vector<int64_t>({0, 1, 0, 0, 1}).begin()));
  }
}

void TestTimelineRefusals() {
  const Arguments insert = SevenRows().With(
      {{"rows", Int64({1, 2})}, {"priority", Floats({1})}, {"ends", Flags({0, 1})}, {"first", One("int64")}});
  RefusesBadRule("insert", insert);
  REFUSES("insert", insert, kBadArguments, a["window_rule"] = Int64({0, 1, 1, 1, 1, 0, 1, 0}));  // no such column
  REFUSES("insert", insert, kBadArguments, a["ends"] = Flags({0, 0, 0}));
  REFUSES("insert", insert, kBadWeight, a["priority"] = Floats({-1}));
  REFUSES("update",
          SevenRows().With(
              {{"handles", Int64({0})}, {"rows", Int64({1})}, {"written", Int64({0, -1})}, {"invalid", One("int32")}}),
          kBadArguments, a["written"] = Int64({0, 1}));
  const Arguments end = SevenRows().With({{"flag", Flags({1})}, {"ended", One("int32")}});
  RefusesBadRule("end_episodes", end);
  const Arguments sample = SamplingWindows();
  RefusesBadRule("sample", sample);
  REFUSES("sample", sample, kTooFewRows, a["sample_range"] = Int64({1, 9}));
  REFUSES("sample", sample, kBadWeight, a["given_beta"] = Doubles({2}));
  REFUSES("sample", sample, kBadArguments, a["powers"] = Doubles({1, 0.5}));
  REFUSES("sample", sample, kBadArguments, a.All("outputs").pop_back());
  REFUSES("sample", sample, kBadArguments, a.All("outputs")[3] = Zeros("int64", {3, 4}));
  REFUSES("sample", sample, kBadArguments, a.All("outputs")[2] = Zeros("int8", {3, 5}));
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[26] = 11);  // the kind of the mask
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[34] = 1);   // the column of the window
}

// A sample of rewards by the goals in a column that is, like theirs, the only one.
void TestSparseRewardRefusals() {
  Arguments buffer = SevenRows();
  buffer["columns"] = Doubles({10, 11, 12, 13, 14, 15, 16, 0});
  const std::vector<int64_t> plan = {1, 0, 0, 0, 0, 2, 0, 3, 0, BitsOf(1.0), 0, BitsOf(1.5), 14, 0, 0, 0, 0, 1, 1};
  Arguments sample = buffer.With({{"plan", Int64(plan)},
                                  {"powers", Doubles({1, 0.5, 0.25})},
                                  {"beta", Doubles({0})},
                                  {"given_beta", Doubles({0})},
                                  {"sample_range", Int64({0, INT64_MAX})},
                                  {"outputs", Doubles({7, 7, 7})}});
  CHECK(Call("sample", &sample) == replay::kOk);
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[10] = 1);  // no such column of goals
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[10] = -1);
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[13] = 1);  // no such column of rewards
}

Arguments SamplingGroups(int64_t groups) {
  return SevenRows().With({{"options", Int64({0, 1})},
                           {"template", Zeros("int8", {groups, 1})},
                           {"mask", Zeros("bool", {groups, 1})},
                           {"rows", Zeros("int64", {groups, 1})}});
}

void TestGroupRefusals() {
  RefusesBadRule("sample_groups", SamplingGroups(2));
  REFUSES("sample_groups", SamplingGroups(2), kBadArguments, a["options"] = Int64({1, 1}));
  REFUSES("sample_groups", SamplingGroups(2), kBadArguments, a["options"] = Int64({-1, 1}));
  REFUSES("sample_groups", SamplingGroups(2), kBadArguments, a["mask"] = Zeros("bool", {2, 2}));
  REFUSES("sample_groups", SamplingGroups(6), kTooFewRows, );
}

void TestTimelines() {
  TestSparseRewardRefusals();
  TestRepairOfEnds();
  TestTimelineRefusals();
  TestGroupRefusals();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_TIMELINE_H_
