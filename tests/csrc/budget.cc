// Calls every kernel of the library, on sizes as they occur, for benchmarks/budget.py: callgrind counts instructions of
// each call and writes them down under the names of the kernel and of what it does. Only the kernel's own are counted.
// Single-threaded, and the same in every run: sizes, random numbers and places in memory are fixed.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "count.h"

namespace {

// --- the state of buffers ---

struct Column {
  const char *dtype;
  Shape shape;
};
using Columns = std::vector<Column>;

const Columns kCartPole = {{"float32", {4}}, {"int32", {}}, {"float32", {}}, {"float32", {4}}, {"uint8", {}}};
const Columns kAtari = {{"uint8", {84, 84}}, {"int32", {}}, {"float32", {}}, {"uint8", {}}};
const Columns kGoals = {{"float32", {10}}, {"float32", {3}}, {"float32", {3}}, {"float32", {4}}, {"float32", {}}};
const Columns kFirst = {{"float32", {4}}};  // what kernels are given that need only a buffer's first column

// Zeros of the columns' shapes with other axes before them.
Arguments Rows(const Columns &columns, const Shape &lead) {
  Arguments rows;
  for (const Column &column : columns) {
    Shape shape = lead;
    shape.insert(shape.end(), column.shape.begin(), column.shape.end());
    rows.push_back(Zeros(column.dtype, std::move(shape)));
  }
  return rows;
}

// Columns and cursors of a full ring.
Arguments Ring(const Columns &columns, int64_t capacity, int64_t head) {
  return With(Rows(columns, {capacity}), {Int32(static_cast<int32_t>(head)), Int32(static_cast<int32_t>(capacity))});
}

// A full buffer with weights; as many rows again have been overwritten. Rows came one at each tick of the clock.
Arguments Weighted(const Columns &columns, std::vector<double> weights) {
  const auto capacity = static_cast<int64_t>(weights.size());
  std::vector<int64_t> clocks(weights.size());
  std::iota(clocks.begin(), clocks.end(), capacity);
  return With(Ring(columns, capacity, 0),
              {Int64({2 * capacity, 0}), Doubles(FreshTree(weights)), Floats({weights.begin(), weights.end()}),
               Make<float>("float32", {}, {10}), Zeros("int32", {capacity}), Int64(clocks),
               Int64({2 * capacity, capacity}), Zeros("int64", {5})});
}

// Which starts a window may have, and how many rows an episode.
struct Rule {
  int64_t past, future, stride, pad_end, streams;
};

constexpr int64_t kEpisode = 200;

// The end flags of n rows after `before` others, in episodes of one length.
Argument Ends(int64_t before, int64_t n) {
  std::vector<uint8_t> ends;
  for (int64_t row = before; row < before + n; ++row) ends.push_back(row % kEpisode == kEpisode - 1);
  return Flags(std::move(ends));
}

// A full buffer of episodes; a part of the rows has been overwritten.
Arguments Timed(const Columns &columns, int64_t capacity, const Rule &rule) {
  const auto empty = std::vector<double>(static_cast<size_t>(capacity), 0.0);
  Arguments state = With(Weighted(columns, empty),
                         {Zeros("int64", {capacity}), Zeros("uint8", {capacity}),
                          Int64({rule.past, rule.future, rule.stride, rule.pad_end, rule.streams, 0})});
  const size_t k = columns.size();
  state[k + 1] = Int32(0);
  state[k + 2] = Int64({0, 0});
  state[k + 8] = Int64({0, 0});
  const size_t arguments = state.size();
  for (const int64_t before : {int64_t{0}, capacity}) {
    const int64_t n = before == 0 ? capacity : capacity / 2;
    Arguments insert = With(With(state, {Doubles({0.6, 1e-6}), Floats({1}), Ends(before, n)}), Rows(columns, {n}));
    insert.push_back(One("int32"));
    const int status = Call(Find<Kernel>("replay_insert_timed"), &insert);
    if (status != replay::kOk) Fail("replay_insert_timed", "status " + std::to_string(status));
    state.assign(insert.begin(), insert.begin() + static_cast<int64_t>(arguments));
  }
  return state;
}

// Numbers from first on, in steps.
std::vector<int64_t> Range(int64_t first, int64_t n, int64_t step) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(first + i * step);
  return numbers;
}

// Weights that differ, a quarter of them zero.
std::vector<double> MixedWeights(int64_t capacity) {
  std::vector<double> weights;
  for (int64_t slot = 0; slot < capacity; ++slot) {
    weights.push_back(slot % 4 == 3 ? 0 : 0.5 + static_cast<double>(slot * 37 % 101) / 16);
  }
  return weights;
}

std::vector<double> Ones(int64_t capacity) { return std::vector<double>(static_cast<size_t>(capacity), 1.0); }

// --- what is counted ---

constexpr int64_t kLarge = 1 << 20;
constexpr int64_t kSmall = 1 << 14;

std::string Replacement(int64_t replace) { return replace ? "with replacement" : "without replacement"; }

void CountRings() {
  const Arguments ring = With(Ring(kCartPole, kSmall, 100), {Int64({kSmall + 100, 0})});
  const auto insert = [&](const std::string &what, const Arguments &state, const Shape &lead) {
    Count("replay_ring_write", what, With(With(state, Rows(kCartPole, lead)), {One("int32")}));
  };
  insert("1 row", ring, {});
  insert("64 rows", ring, {64});
  insert("64 rows around the end", With(Ring(kCartPole, kSmall, kSmall - 10), {Int64({2 * kSmall - 10, 0})}), {64});
  const Arguments small = With(Ring(kCartPole, 64, 10), {Int64({74, 0})});
  insert("80 rows into 64", small, {80});

  const auto columns = static_cast<int64_t>(kCartPole.size());
  const Arguments columns_alone(ring.begin(), ring.begin() + columns);
  const Arguments full(ring.begin(), ring.begin() + columns + 2);
  Count("replay_ring_read", "64 rows", With(With(full, {Int64(Range(-5000, 64, 101))}), Rows(kCartPole, {64})));
  Count("replay_gather_rows", "64 rows", With(With(columns_alone, {Int64(Range(7, 64, 101))}), Rows(kCartPole, {64})));
  for (const int64_t replace : {0, 1}) {
    for (const int64_t ordered : {0, 1}) {
      const std::string what = Replacement(replace) + (ordered ? ", ordered" : "");
      const Argument range = Int64({0, INT64_MAX}), options = Int64({kSmall, replace, ordered});
      Count("replay_sample_uniform", "64 rows " + what,
            With(With(full, {Int64({1, 0}), range, options}), Rows(kCartPole, {64})));
      Count("replay_draw_uniform", "64 slots " + what,
            {Int64({1, 0}), Int32(100), Int32(kSmall), range, options, Zeros("int64", {64})});
    }
  }
  const Columns wide = {{"uint8", {4, 84, 84}}};  // 28,224 bytes a row
  Count("replay_sample_uniform", "32 rows of 28 kB",
        With(With(Ring(wide, 256, 100), {Int64({1, 0}), Int64({0, INT64_MAX}), Int64({256, 1, 0})}), Rows(wide, {32})));
  Count("replay_random_bits", "64", {Int64({1, 0}), Zeros("int64", {64})});
  const auto hold = Find<void (*)(const void *)>("replay_hold");
  const auto let_go = Find<void (*)(const void *)>("replay_let_go");
  const char *address = nullptr;
  Measure("replay_hold: an idle buffer", [&] { hold(address); });
  Measure("replay_let_go: a held buffer", [&] { let_go(address); });
}

void CountTrees() {
  const Argument tree = Doubles(FreshTree(MixedWeights(kLarge)));
  const Argument capacity = Int64({kLarge});
  Count("replay_tree_set", "1 of 2^20", {tree, capacity, Int64({12345}), Doubles({2}), One("float64")});
  Count("replay_tree_set", "256 of 2^20",
        {tree, capacity, Int64(Range(11, 256, 4001)), Doubles(std::vector<double>(256, 2.0)), One("float64")});
  std::vector<double> targets;
  for (int i = 0; i < 256; ++i) targets.push_back(0.1 + 9876.5 * i);
  Count("replay_tree_descend", "256 of 2^20", {tree, capacity, Doubles(targets), Zeros("int64", {256})});
  Count("replay_tree_sums", "4 ranges of 2^20",
        {tree, capacity, Int32(1000), Int32(kLarge),
         Make<int64_t>("int64", {4, 2}, {0, 5000, -5000, INT64_MAX, 123456, 654321, 0, INT64_MAX}),
         Zeros("float64", {4})});
  Count("replay_tree_summary", "2^20", {tree, capacity, Zeros("float64", {3})});
}

void CountWeighted() {
  const Argument factors = Doubles({0.6, 1e-6});
  const Argument random = Int64({1, 0});
  const Arguments buffer = Weighted(kCartPole, MixedWeights(kLarge));
  const auto insert = [&](const std::string &what, const Shape &lead, Argument priority) {
    Count("replay_insert_weighted", what,
          With(With(With(buffer, {factors, std::move(priority)}), Rows(kCartPole, lead)), {One("int32")}));
  };
  insert("1 row", {}, Floats({1}));
  insert("64 rows", {64}, Floats({1}));
  insert("64 rows with priorities", {64}, Floats(std::vector<float>(64, 0.7f)));

  Arguments sample = With(buffer, {random, Doubles({0.4}), Doubles({0.4}), Doubles({1e-5}), Int64({0, 0, 0})});
  sample = With(With(sample, {Zeros("int64", {256}), Zeros("float32", {256})}), Rows(kCartPole, {256}));
  Count("replay_sample_prioritized", "256 of 2^20", sample);
  sample[kCartPole.size() + 14] = Int64({1, 1, 1});
  Count("replay_sample_prioritized", "256 of 2^20, ordered, used up, by the buffer's weights", sample);

  const Arguments first = Weighted(kFirst, MixedWeights(kLarge));
  const auto handles = [](int64_t n) { return Int64(Range(kLarge + 7, n, 4000)); };
  CountGiving(0, "replay_update_priorities", "256 of 2^20",
              With(first, {factors, handles(256), Floats(std::vector<float>(256, 0.7f)), One("int32")}));
  CountGiving(64, "replay_delete", "64 of 2^20", With(first, {handles(64), One("int32")}));
  Count("replay_info", "64 of 2^20",
        With(first, {handles(64), Zeros("float32", {64}), Zeros("int32", {64}), Zeros("int64", {64})}));
  Count("replay_advance", "1 row goes stale", With(first, {Int64({1}), Int64({kLarge}), One("int64")}));
  Count("replay_advance", "64 rows go stale", With(first, {Int64({64}), Int64({kLarge}), One("int64")}));
  CountGiving(0, "replay_reset_weighted", "2^14 rows", With(Weighted(kFirst, Ones(kSmall)), {One("int32")}));

  const Arguments limited = Weighted(kCartPole, Ones(kLarge));
  for (const int64_t replace : {0, 1}) {
    Count("replay_sample_weighted", "64 of 2^20 " + Replacement(replace) + ", max_use 1",
          With(With(limited, {random, Int64({-100000, INT64_MAX}), Int64({replace, 0, 1}), Zeros("int64", {64})}),
               Rows(kCartPole, {64})));
  }
}

// One output of a sample of windows, as csrc/windows.h has it, and where it goes.
struct Output {
  std::vector<int64_t> numbers;  // kind, column, other, anchor, first, runs, length
  Argument to;
};

struct Sampling {
  int64_t n, prioritized, chain, needs_next, strategy;
  std::vector<Output> outputs;
};

void CountWindows(const std::string &what, const Arguments &buffer, const Sampling &sampling) {
  std::vector<int64_t> plan = {sampling.prioritized, 1, 0,    0, 0, sampling.chain, sampling.needs_next,
                               sampling.strategy};  // with replacement, not ordered, no limit, the batch's weights
  std::vector<double> numbers = {0.8};
  for (int64_t step = 0; step <= sampling.chain; ++step) numbers.push_back(std::pow(0.99, static_cast<double>(step)));
  Arguments outputs;
  for (const Output &output : sampling.outputs) {
    plan.insert(plan.end(), output.numbers.begin(), output.numbers.end());
    outputs.push_back(output.to);
  }
  Count("replay_sample_windows", what,
        With(With(buffer, {Int64({1, 0}), Int64({0, INT64_MAX}), Doubles({0.4}), Doubles({0.4}), Doubles({0}),
                           Doubles(numbers), Int64(plan), Zeros("int64", {sampling.n}),
                           Zeros("float32", {sampling.n})}),
             outputs));
}

void CountSequences() {
  const Rule rule = {40, 40, 10, 1, 1};
  const Arguments buffer = Timed(kCartPole, kSmall, rule);
  Sampling sampling = {32, 1, 1, 0, 0, {{{1, 0, 0, 0, -40, 1, 80}, Zeros("bool", {32, 80})}}};
  for (size_t i = 0; i < kCartPole.size(); ++i) {
    sampling.outputs.push_back({{0, static_cast<int64_t>(i), 0, 0, -40, 1, 80}, Rows(kCartPole, {32, 80})[i]});
  }
  CountWindows("sequences of 80, 32 by priority", buffer, sampling);
  sampling.prioritized = 0;
  CountWindows("sequences of 80, 32 uniform", buffer, sampling);

  const auto insert = [](const std::string &what, const Arguments &state, int64_t n, std::vector<uint8_t> ends) {
    const Arguments given = With(state, {Doubles({0.6, 1e-6}), Floats({1}), Flags(std::move(ends))});
    Count("replay_insert_timed", what, With(With(given, Rows(kCartPole, {n})), {One("int32")}));
  };
  insert("1 row", buffer, 1, {0});
  insert("1 row, the last of its episode", buffer, 1, {1});
  insert("64 rows", buffer, 64, std::vector<uint8_t>(64, 0));
  insert("16 rows of 16 environments", Timed(kCartPole, kSmall, {2, 3, 1, 1, 16}), 16, std::vector<uint8_t>(16, 0));

  const Arguments first = Timed(kFirst, kSmall, rule);
  const Argument handles = Int64(Range(kSmall / 2 + 208, 64, 50));  // from the first step of an episode on
  const Argument factors = Doubles({0.6, 1e-6});
  CountGiving(0, "replay_update_timed", "64 sequences",
              With(first, {factors, handles, Floats(std::vector<float>(64, 0.7f)), One("int32")}));
  CountGiving(64, "replay_delete_timed", "64 rows", With(first, {handles, One("int32")}));
  CountGiving(1, "replay_end_episodes", "1 that goes on", With(first, {factors, Flags({1}), One("int32")}));
  Arguments old = first;
  old[9] = Int64({0, kSmall + kSmall / 2 - 64});  // the clock, and the first row that was not found stale
  Count("replay_advance_timed", "64 rows go stale", With(old, {Int64({1}), Int64({0}), One("int64")}));
  CountGiving(0, "replay_reset_timed", "2^14 rows", With(first, {One("int32")}));
}

void CountViews() {
  const Arguments transitions = Timed(kCartPole, kSmall, {0, 4, 1, 1, 1});
  CountWindows("3-step returns, 64 by priority", transitions,
               {64, 1, 3, 1, 0,
                {{{0, 0, 0, 0, 0, 1, 1}, Zeros("float32", {64, 4})},
                 {{0, 1, 0, 0, 0, 1, 1}, Zeros("int32", {64})},
                 {{2, 2, 0, 0, 0, 1, 1}, Zeros("float32", {64})},
                 {{0, 0, 0, 1, 1, 1, 1}, Zeros("float32", {64, 4})},
                 {{3, 4, 0, 0, 0, 1, 1}, Zeros("float32", {64})}}});
  CountWindows("stacks of 4 frames, 32 uniform", Timed(kAtari, 1 << 11, {3, 2, 1, 1, 1}),
               {32, 0, 1, 0, 0,
                {{{0, 0, 0, 0, -3, 1, 4}, Zeros("uint8", {32, 4, 84, 84})},
                 {{0, 1, 0, 0, 0, 1, 1}, Zeros("int32", {32})},
                 {{0, 0, 0, 0, -2, 1, 4}, Zeros("uint8", {32, 4, 84, 84})},
                 {{6, 0, 0, 0, 0, 1, 1}, Zeros("int32", {32})},
                 {{7, 0, 0, 0, 0, 1, 1}, Zeros("int32", {32})}}});
  const Arguments goals = Timed(kGoals, kSmall, {0, 1, 1, 1, 1});
  const std::vector<std::string> strategies = {"future", "episode", "final", "random"};
  for (size_t i = 0; i < strategies.size(); ++i) {
    CountWindows("hindsight, 64 by " + strategies[i], goals,
                 {64, 0, 1, 0, static_cast<int64_t>(i) + 1,
                  {{{0, 0, 0, 0, 0, 1, 1}, Zeros("float32", {64, 10})},
                   {{5, 1, 2, 0, 0, 1, 1}, Zeros("float32", {64, 3})},
                   {{4, 0, 0, 0, 0, 1, 1}, Zeros("bool", {64})}}});
  }
  Arguments groups = Timed({{"int32", {}}, {"float32", {4}}}, 1 << 12, {0, 1, 1, 1, 1});
  for (int32_t slot = 0; slot < 1 << 12; ++slot) groups[0].as<int32_t>()[slot] = slot * 7 % 97;
  for (const int64_t ordered : {0, 1}) {
    Count("replay_sample_groups", std::string("8 of 97, 8 rows each") + (ordered ? ", consecutive" : ""),
          With(groups, {Int64({1, 0}), Int64({0, ordered}), Zeros("int8", {8, 8}), Zeros("bool", {8, 8}),
                        Zeros("int32", {8, 8}), Zeros("float32", {8, 8, 4})}));
  }
}

void CountReservoirs() {
  const auto stream = [](const Arguments &state, int64_t n) {  // twice as many rows have come as are kept
    const Arguments cursors = {Int64(Range(0, kSmall, 2)), Int64({2 * kSmall, 0}), Int64({1, 0})};
    return With(With(With(state, cursors), Rows(kCartPole, {n})), {One("int32")});
  };
  Count("replay_reservoir_insert", "64 rows", stream(Ring(kCartPole, kSmall, 0), 64));
  Arguments weighted = Weighted(kCartPole, Ones(kSmall));
  weighted[kCartPole.size() + 2] = Int64({kSmall, 0});
  Count("replay_reservoir_insert_weighted", "64 rows", stream(weighted, 64));
}

}  // namespace

int main(int argc, char **argv) {
  library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  if (library == nullptr) Fail("budget", argc == 2 ? dlerror() : "give the library of the kernels");
  CountRings();
  CountTrees();
  CountWeighted();
  CountSequences();
  CountViews();
  CountReservoirs();
  return 0;
}
