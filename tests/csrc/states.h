// Full buffers of realistic sizes, and samples of them, for programs that time, count or print what kernels do.
#ifndef MINDSPORE_REPLAY_TESTS_STATES_H_
#define MINDSPORE_REPLAY_TESTS_STATES_H_

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "call.h"

namespace states {

struct Column {
  const char *dtype;
  Shape shape;
};
using Columns = std::vector<Column>;

inline const Columns kCartPole = {{"float32", {4}}, {"int32", {}}, {"float32", {}}, {"float32", {4}}, {"uint8", {}}};
inline const Columns kAtari = {{"uint8", {84, 84}}, {"int32", {}}, {"float32", {}}, {"uint8", {}}};
inline const Columns kGoals = {
    {"float32", {10}}, {"float32", {3}}, {"float32", {3}}, {"float32", {4}}, {"float32", {}}};
inline const Columns kOne = {{"float32", {4}}};  // for operators that take no columns

// Zeros of the columns' shapes with `lead` axes in front.
inline Item Rows(const Columns &columns, const Shape &lead) {
  Item rows;
  for (const Column &column : columns) {
    Shape shape = lead;
    shape.insert(shape.end(), column.shape.begin(), column.shape.end());
    rows.push_back(Zeros(column.dtype, std::move(shape)));
  }
  return rows;
}

// A full ring that has overwritten `head` rows.
inline Arguments Ring(const Columns &columns, int64_t capacity, int64_t head) {
  return {{"columns", Rows(columns, {capacity})},
          {"head", Int32(static_cast<int32_t>(head))},
          {"count", Int32(static_cast<int32_t>(capacity))},
          {"serials", Int64({capacity + head, 0})},
          {"updates", Zeros("int64", {replay::Updates::Size(capacity)})},
          {"random_state", Int64({1, 0})}};
}

// A full weighted buffer that has overwritten `capacity` rows. Each row came at its own tick of the clock.
inline Arguments Weighted(const Columns &columns, std::vector<double> weights) {
  const auto capacity = static_cast<int64_t>(weights.size());
  std::vector<int64_t> clocks(weights.size());
  std::iota(clocks.begin(), clocks.end(), capacity);
  return Ring(columns, capacity, 0)
      .With({{"serials", Int64({2 * capacity, 0})},
             {"weights", Doubles(FreshTree(weights))},
             {"priorities", Floats({weights.begin(), weights.end()})},
             {"max_priority", Make<float>("float32", {}, {10})},
             {"use_counts", Zeros("int32", {capacity})},
             {"insertion_clocks", Int64(clocks)},
             {"clock", Int64({2 * capacity, capacity, 0})},
             {"counts", Zeros("int64", {5})},
             {"row_rule", Doubles({0.6, 1e-6, 0, 0, 1})}});
}

// The window rule.
struct Rule {
  int64_t past, future, stride, pad_end, streams;
};

constexpr int64_t kEpisode = 200;

// The end flags of n rows after `before` others; all episodes have the same length.
inline Argument Ends(int64_t before, int64_t n) {
  std::vector<uint8_t> ends;
  for (int64_t row = before; row < before + n; ++row) ends.push_back(row % kEpisode == kEpisode - 1);
  return Flags(std::move(ends));
}

// A full buffer of episodes; part of the rows have been overwritten.
inline Arguments WithEpisodes(const Columns &columns, int64_t capacity, const Rule &rule) {
  const auto empty = std::vector<double>(static_cast<size_t>(capacity), 0.0);
  Arguments state =
      Weighted(columns, empty)
          .With({{"count", Int32(0)},
                 {"serials", Int64({0, 0})},
                 {"clock", Int64({0, 0, 0})},
                 {"steps", Zeros("int64", {capacity})},
                 {"flags", Zeros("uint8", {capacity})},
                 {"window_rule", Int64({rule.past, rule.future, rule.stride, rule.pad_end, rule.streams, 0, -1, 0})}});
  for (const int64_t before : {int64_t{0}, capacity}) {
    const int64_t n = before == 0 ? capacity : capacity / 2;
    state = state.With(
        {{"priority", Floats({1})}, {"ends", Ends(before, n)}, {"rows", Rows(columns, {n})}, {"first", One("int64")}});
    const int status = Call("insert", &state);
    if (status != replay::kOk) Fail("insert", "status " + std::to_string(status));
  }
  return state;
}

// n numbers from `first` on, `step` apart.
inline std::vector<int64_t> Range(int64_t first, int64_t n, int64_t step) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(first + i * step);
  return numbers;
}

// Different weights, a quarter of them zero.
inline std::vector<double> MixedWeights(int64_t capacity) {
  std::vector<double> weights;
  for (int64_t slot = 0; slot < capacity; ++slot) {
    weights.push_back(slot % 4 == 3 ? 0 : 0.5 + static_cast<double>(slot * 37 % 101) / 16);
  }
  return weights;
}

inline std::vector<double> Ones(int64_t capacity) { return std::vector<double>(static_cast<size_t>(capacity), 1.0); }

// Size, draw and outputs of a sample; a plan as in csrc/outputs.h.
struct Sampling {
  int64_t n, draw, replace, ordered, max_use, by_buffer, chain, strategy;
  double beta_step;
  int64_t achieved = 0;
  double tolerance = -1;
};

// One output of a sample, as in csrc/windows.h, and its array.
struct Output {
  std::vector<int64_t> numbers;  // kind, column, other, anchor, first, runs, length
  Argument to;
};

inline Output Handles(int64_t n) { return {{9, 0, 0, 0, 0, 1, 1}, Zeros("int64", {n})}; }
inline Output ImportanceWeights(int64_t n) { return {{10, 0, 0, 0, 0, 1, 1}, Zeros("float32", {n})}; }

// Row outputs for all columns.
inline std::vector<Output> RowOutputs(const Columns &columns, int64_t n) {
  std::vector<Output> outputs;
  const Item rows = Rows(columns, {n});
  for (size_t i = 0; i < rows.size(); ++i) outputs.push_back({{0, static_cast<int64_t>(i), 0, 0, 0, 1, 1}, rows[i]});
  return outputs;
}

// The arguments of a sample.
inline Arguments Sample(const Arguments &buffer, const Sampling &sampling, const std::vector<Output> &outputs,
                        int64_t start = 0) {
  std::vector<int64_t> plan = {sampling.draw,
                               sampling.replace,
                               sampling.ordered,
                               sampling.max_use,
                               sampling.by_buffer,
                               sampling.chain,
                               0,
                               sampling.strategy,
                               BitsOf(sampling.beta_step),
                               BitsOf(0.8),
                               sampling.achieved,
                               BitsOf(sampling.tolerance)};
  std::vector<double> powers;
  for (int64_t step = 0; step <= sampling.chain; ++step) powers.push_back(std::pow(0.99, static_cast<double>(step)));
  Item to;
  for (const Output &output : outputs) {
    plan.insert(plan.end(), output.numbers.begin(), output.numbers.end());
    to.push_back(output.to);
  }
  Arguments sample = buffer.With({{"plan", Int64(plan)}, {"sample_range", Int64({start, INT64_MAX})}, {"outputs", to}});
  if (buffer.Has("weights")) sample = sample.With({{"beta", Doubles({0.4})}, {"given_beta", Doubles({0.4})}});
  if (buffer.Has("steps")) sample["powers"] = Doubles(powers);
  return sample;
}

}  // namespace states

#endif  // MINDSPORE_REPLAY_TESTS_STATES_H_
