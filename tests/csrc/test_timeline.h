// Tests of the kernels on buffers whose rows know their episode: a slow twin under random operations, hand-worked
// windows, and rejected arguments.
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

// The twin: every row ever inserted, and its history.
struct TwinRow {
  int64_t step;
  bool end, final, deleted;
  bool open;  // a final row may still belong to its episode
};

struct Twin {
  int64_t capacity, pad_end, streams;
  bool has_column, needs_next;
  std::vector<TwinRow> rows;

  int64_t Oldest() const { return std::max<int64_t>(0, static_cast<int64_t>(rows.size()) - capacity); }
  const TwinRow *At(int64_t serial) const {
    const bool stored = serial >= Oldest() && serial < static_cast<int64_t>(rows.size());
    return stored ? &rows[static_cast<size_t>(serial)] : nullptr;
  }

  void Insert(uint8_t flags, bool terminated) {
    const int64_t serial = static_cast<int64_t>(rows.size()) - streams;
    TwinRow *before = At(serial) == nullptr ? nullptr : &rows[static_cast<size_t>(serial)];
    const bool end = (flags & 1) != 0, final = (flags & 2) != 0;
    const bool ended = before == nullptr || (before->end && !(before->open && final && !end));
    if (!ended) before->end = before->final = false;
    const bool unknown = has_column && needs_next && end && !final && !terminated;
    const bool by_column = has_column && terminated && !end && !final;
    rows.push_back(
        {ended ? 0 : before->step + 1, end || final || by_column, final || unknown, false, unknown || by_column});
  }

  // Follows an update of the column of terminations.
  void Rewrite(int64_t serial, bool terminated) {
    TwinRow *row = &rows[static_cast<size_t>(serial)];
    const TwinRow *next = At(serial + streams);
    if (row->final && !row->open) return;
    if (row->end) {
      row->final = needs_next && !terminated;
      row->open = row->open || row->final;
    } else if (terminated && !(next != nullptr && next->final && !next->open)) {
      row->end = row->open = true;
      for (int64_t step = 0, at = serial + streams; At(at) != nullptr; at += streams) {
        rows[static_cast<size_t>(at)].step = step++;
        if (At(at)->end) break;
      }
    }
  }

  bool IsValidStart(int64_t serial) const {
    const TwinRow *start = At(serial);
    if (start == nullptr || start->final || start->deleted) return false;
    for (int64_t i = 1; i <= std::min(kPast, start->step); ++i) {
      const TwinRow *row = At(serial - i * streams);
      if (row == nullptr || row->deleted) return false;
    }
    for (int64_t i = 0; i < kFuture; ++i) {
      const TwinRow *row = At(serial + i * streams);
      if (row == nullptr && pad_end == replay::kPadOpen && i > needs_next) return start->step % kStride == 0;
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
      leaves[static_cast<size_t>(serial % capacity)] = IsValidStart(serial);
    }
    return leaves;
  }
};

void TestAgainstTwin(int64_t capacity, int64_t pad_end, int64_t streams, bool has_column = false,
                     bool needs_next = false) {
  Arguments buffer = EmptyTimeline(capacity, pad_end, streams, 0, has_column ? 0 : -1, needs_next);
  Twin twin{capacity, pad_end, streams, has_column, needs_next, {}};
  uint64_t counter = 0;
  auto random = [&](int64_t n) { return replay::Below(replay::RandomBits(7, counter++), n); };
  bool same = true;
  int64_t deleted_rows = 0;
  int64_t invalid = 0;
  const int steps = StepsOf(200, 40);
  for (int i = 0; i < steps; ++i) {
    const int64_t n = streams * (random(10) == 0 ? 1 + random(capacity) : 1);
    std::vector<int64_t> rows;
    std::vector<uint8_t> flags;
    for (int64_t row = 0; row < n; ++row) {
      rows.push_back(random(4) == 0);
      flags.push_back(static_cast<uint8_t>(random(4) ? 0 : random(3) ? 1 : 2 + random(2)));
      twin.Insert(flags.back(), rows.back() != 0);
    }
    CHECK(InsertRows(&buffer, rows, flags) == replay::kOk);
    same = same && HasLeaves(buffer, twin.Leaves());
    if (random(4) == 0) {
      const int64_t serial = twin.Oldest() - 1 + random(capacity + 1);
      const TwinRow *row = twin.At(serial);
      const int32_t deleted = row != nullptr && !row->deleted;
      if (deleted) twin.rows[static_cast<size_t>(serial)].deleted = true;
      Arguments after = buffer;
      const Arguments twice = {{"handles", Int64({serial, serial})}, {"removed", One("int32")}};
      CHECK(On(&buffer, "delete", twice, &after) == replay::kOk);
      CHECK(*after["removed"].as<int32_t>() == deleted);
      deleted_rows += deleted;
      invalid += deleted || serial < 0 ? 0 : 2;
      same = same && HasLeaves(buffer, twin.Leaves());
    }
    if (has_column && random(3) == 0) {
      const int64_t first = twin.Oldest() - 1 + random(capacity + 1), second = twin.Oldest() + random(capacity);
      const std::vector<int64_t> handles = {first, second, first}, values = {random(2), random(2), random(2)};
      CHECK(On(&buffer, "update",
               {{"handles", Int64(handles)},
                {"rows", Int64(values)},
                {"written", Int64({0, 0})},
                {"invalid", One("int32")}}) == replay::kOk);
      for (const size_t i : {1, 2}) {  // of one row the last value counts
        const TwinRow *row = twin.At(handles[i]);
        if (row != nullptr && !row->deleted && (i == 2 || first != second)) twin.Rewrite(handles[i], values[i] != 0);
      }
      same = same && HasLeaves(buffer, twin.Leaves());
    }
    // A row takes a new priority, whether a sample may start there yet or not.
    const int64_t serial = twin.Oldest() + random(capacity);
    const auto priority = static_cast<float>(i);
    Arguments after = buffer;
    const Arguments update = {
        {"handles", Int64({serial})}, {"priority", Floats({priority})}, {"invalid", One("int32")}};
    CHECK(On(&buffer, "update_priorities", update, &after) == replay::kOk);
    const bool kept = twin.At(serial) != nullptr && !twin.At(serial)->deleted;
    CHECK(*after["invalid"].as<int32_t>() == !kept);
    CHECK(!kept || buffer["priorities"].as<float>()[serial % capacity] == priority);
    invalid += !kept;
    same = same && HasLeaves(buffer, twin.Leaves());
  }
  CHECK(same);
  const int64_t counts[] = {0, 0, 0, deleted_rows, invalid};
  CHECK(std::equal(counts, counts + 5, buffer["counts"].as<int64_t>()));
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

void TestWindowsByHand() {
  Arguments sample = SamplingWindows();
  CHECK(Call("sample", &sample) == replay::kOk);
  Item &outputs = sample.All("outputs");
  bool seen[4] = {};
  for (int b = 0; b < 3; ++b) {
    const int64_t start = outputs[0].as<int64_t>()[b];
    const uint8_t *mask = outputs[2].as<uint8_t>() + 5 * b;
    const int64_t *rows = outputs[3].as<int64_t>() + 5 * b;
    const int32_t length = outputs[4].as<int32_t>()[b];
    const int32_t chain = outputs[5].as<int32_t>()[b];
    CHECK(outputs[1].as<float>()[b] == 1);
    if (start == 0) CHECK(std::equal(rows, rows + 5, std::vector<int64_t>({0, 0, 10, 11, 12}).begin()) && length == 3);
    if (start == 2) CHECK(std::equal(rows, rows + 5, std::vector<int64_t>({10, 11, 12, 0, 0}).begin()) && length == 1);
    if (start == 3) CHECK(std::equal(rows, rows + 5, std::vector<int64_t>({0, 0, 13, 14, 0}).begin()) && length == 2);
    CHECK(chain == std::min(length, 2));
    for (int i = 0; i < 5; ++i) CHECK((mask[i] != 0) == (rows[i] != 0));
    CHECK(start == 0 || start == 2 || start == 3);
    seen[start & 3] = true;
  }
  CHECK(seen[0] && seen[2] && seen[3]);  // no use limit: the rows stay
  CHECK(sample["counts"].as<int64_t>()[0] == 3 && sample["counts"].as<int64_t>()[1] == 0);
}

void TestEpisodesThatEnd() {
  Arguments buffer = SevenRows();
  Arguments after = buffer;
  CHECK(On(&buffer, "end_episodes", {{"flag", Flags({1})}, {"ended", One("int32")}}, &after) == replay::kOk);
  CHECK(*after["ended"].as<int32_t>() == 1 && buffer["flags"].as<uint8_t>()[6] == 1);
  CHECK(HasLeaves(buffer, {1, 0, 1, 1, 0, 1, 0, 0}));
  CHECK(On(&buffer, "end_episodes", {{"flag", Flags({1})}, {"ended", One("int32")}}, &after) == replay::kOk);
  CHECK(*after["ended"].as<int32_t>() == 0 && HasLeaves(buffer, {1, 0, 1, 1, 0, 1, 0, 0}));
}

void TestEpisodesTooLong() {
  Arguments buffer = EmptyTimeline(8, 1, 1, 3);
  CHECK(InsertRows(&buffer, {1, 2}, {0, 0}) == replay::kOk);
  Arguments before = buffer;
  CHECK(InsertRows(&buffer, {3, 4}, {0, 1}) == replay::kTooLong);
  CHECK(InsertRows(&buffer, {3, 4, 5, 6, 7}, {1, 0, 0, 0, 1}) == replay::kTooLong);
  for (const std::string &name : buffer.Names()) CHECK(buffer[name].bytes == before[name].bytes);
  CHECK(InsertRows(&buffer, {3, 4, 5}, {1, 0, 1}) == replay::kOk);
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

void TestStaleRows() {
  Arguments buffer = SevenRows();
  const auto advance = [&](int64_t ticks) {
    return On(&buffer, "advance", {{"ticks", Int64({ticks})}, {"max_staleness", Int64({5})}, {"now", One("int64")}});
  };
  CHECK(advance(2) == replay::kOk);
  CHECK(HasLeaves(buffer, {1, 0, 1, 1, 0, 0, 0, 0}));
  CHECK(InsertRows(&buffer, {17}, {1}) == replay::kOk);  // at clock 2
  CHECK(HasLeaves(buffer, {1, 0, 1, 1, 0, 1, 0, 1}));
  CHECK(advance(4) == replay::kOk);
  CHECK(HasLeaves(buffer, {0, 0, 0, 0, 0, 0, 0, 0}));  // the past of the last row is stale
  CHECK(buffer["counts"].as<int64_t>()[2] == 7 && buffer["counts"].as<int64_t>()[3] == 0);
  CHECK(On(&buffer, "reset", {{"stored", One("int32")}}) == replay::kOk);
  CHECK(*buffer["count"].as<int32_t>() == 0 && buffer["serials"].as<int64_t>()[1] == 8);
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

// Rewards and goals of seven rows, whose achieved goals are 10 to 16, by the goal of the last row of their episode.
void TestSparseRewards() {
  for (const double tolerance : {-1.0, 0.0, 1.0, 1.5}) {
    Arguments buffer = SevenRows();
    buffer["columns"] = Doubles({10, 11, 12, 13, 14, 15, 16, 0});
    std::vector<int64_t> plan = {1, 0, 0, 0, 0, 2, 0, 3, 0, BitsOf(1.0), 0, BitsOf(tolerance)};
    for (const std::vector<int64_t> &output : std::vector<std::vector<int64_t>>{{9, 0, 0, 0, 0, 1, 1},
                                                                                {14, 0, 0, 0, 0, 1, 1},
                                                                                {2, 0, 0, 0, 0, 1, 1},
                                                                                {5, 0, 0, 0, 0, 1, 1},
                                                                                {5, 0, 0, 1, 1, 1, 1}}) {
      plan.insert(plan.end(), output.begin(), output.end());
    }
    Arguments sample = buffer.With(
        {{"plan", Int64(plan)},
         {"powers", Doubles({1, 0.5, 0.25})},
         {"beta", Doubles({0})},
         {"given_beta", Doubles({0})},
         {"sample_range", Int64({0, INT64_MAX})},
         {"outputs",
          {Zeros("int64", {3}), Doubles({7, 7, 7}), Doubles({7, 7, 7}), Doubles({7, 7, 7}), Doubles({7, 7, 7})}}});
    CHECK(Call("sample", &sample) == replay::kOk);
    Item &outputs = sample.All("outputs");
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t row = outputs[0].as<int64_t>()[i];  // 0, 2 or 3: episodes are rows 0 to 2 and 3 to 4, and 5 to 6
      const double first = 10.0 + static_cast<double>(row), goal = row < 3 ? 12 : 14, last = goal;
      const auto reward = [&](double achieved) {
        return tolerance < 0 ? achieved : goal - achieved > tolerance ? -1.0 : 0.0;
      };
      CHECK(outputs[1].as<double>()[i] == reward(first));
      CHECK(outputs[2].as<double>()[i] == reward(first) + (first < last ? 0.5 * reward(first + 1) : 0));
      CHECK(outputs[3].as<double>()[i] == goal && outputs[4].as<double>()[i] == goal);
    }
    const auto at = [](size_t output, size_t field) { return 12 + 7 * output + field; };
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[10] = 1);  // no such column of goals
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[10] = -1);
    REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[at(1, 1)] = 1);  // no such column of rewards
  }
}

Arguments SamplingGroups(int64_t groups) {
  return SevenRows().With({{"options", Int64({0, 1})},
                           {"template", Zeros("int8", {groups, 1})},
                           {"mask", Zeros("bool", {groups, 1})},
                           {"rows", Zeros("int64", {groups, 1})}});
}

void TestGroupsByHand() {
  Arguments sample = SamplingGroups(2);  // each row is a group; the unfinished episode is excluded
  CHECK(Call("sample_groups", &sample) == replay::kOk);
  const int64_t *rows = sample["rows"].as<int64_t>();
  CHECK(rows[0] != rows[1] && rows[0] >= 10 && rows[0] <= 14 && rows[1] >= 10 && rows[1] <= 14);
  CHECK(sample["mask"].as<uint8_t>()[0] == 1 && sample["mask"].as<uint8_t>()[1] == 1);
}

void TestGroupRefusals() {
  RefusesBadRule("sample_groups", SamplingGroups(2));
  REFUSES("sample_groups", SamplingGroups(2), kBadArguments, a["options"] = Int64({1, 1}));
  REFUSES("sample_groups", SamplingGroups(2), kBadArguments, a["options"] = Int64({-1, 1}));
  REFUSES("sample_groups", SamplingGroups(2), kBadArguments, a["mask"] = Zeros("bool", {2, 2}));
  REFUSES("sample_groups", SamplingGroups(6), kTooFewRows, );
}

void TestTimelines() {
  for (const int64_t capacity : {5, 8, 13}) {
    for (const int64_t pad_end : {0, 1, 2}) TestAgainstTwin(capacity, pad_end, 1);
  }
  for (const int64_t pad_end : {0, 1, 2}) {
    TestAgainstTwin(17, pad_end, 3);
    for (const bool needs_next : {false, true}) {
      for (const int64_t streams : {1, 3}) TestAgainstTwin(17, pad_end, streams, true, needs_next);
    }
  }
  TestWindowsByHand();
  TestSparseRewards();
  TestEpisodesThatEnd();
  TestEpisodesTooLong();
  TestRepairOfEnds();
  TestStaleRows();
  TestTimelineRefusals();
  TestGroupsByHand();
  TestGroupRefusals();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_TIMELINE_H_
