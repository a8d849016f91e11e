// A buffer in a random state, and random calls of its operators by the kernels of the GPU and of the CPU, with every
// byte of the results compared.
#ifndef MINDSPORE_REPLAY_TESTS_RANDOM_BUFFER_H_
#define MINDSPORE_REPLAY_TESTS_RANDOM_BUFFER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "binding.h"
#include "call.h"
#include "check.h"
#include "compared.h"
#include "core/outputs.h"
#include "core/random.h"
#include "states.h"

namespace random_states {

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}

  int64_t Below(int64_t n) { return replay::Below(Bits(), n); }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low); }  // without `high`
  double Unit() { return static_cast<double>(Bits() >> 11) / 9007199254740992.0; }
  bool Chance(double probability) { return Unit() < probability; }
  template <typename T>
  T Of(const std::vector<T> &values) {
    return values[static_cast<size_t>(Below(static_cast<int64_t>(values.size())))];
  }
  std::vector<int64_t> Numbers(int64_t n, int64_t low, int64_t high) {
    std::vector<int64_t> numbers(static_cast<size_t>(n));
    for (int64_t &number : numbers) number = Between(low, high);
    return numbers;
  }

 private:
  uint64_t Bits() { return replay::RandomBits(seed_, next_++); }

  uint64_t seed_;
  uint64_t next_ = 0;
};

// A kind of buffer, and the outputs of its samples.
struct Kind {
  std::string name;
  bool reservoir, row_state, episodes, epochs;
  std::vector<states::Output> outputs;  // empty for random ones; their arrays only have the axes in front of a row's
};

// An output with this anchor and so on, whose array has these axes between the samples and a row.
inline states::Output To(std::vector<int64_t> numbers, Shape lead = {}) {
  const std::vector<int64_t> defaults = {0, 0, 0, 0, 0, 1, 1};
  numbers.insert(numbers.end(), defaults.begin() + static_cast<int64_t>(numbers.size()), defaults.end());
  return {std::move(numbers), {"", std::move(lead), {}}};
}

// The columns of windows: two rewards, a flag, a goal with another like it, and the column that identifies groups.
inline const states::Columns kOfEpisodes = {{"float32", {3}},    {"float32", {}},     {"uint8", {}},
                                            {"float32", {2, 2}}, {"float32", {2, 2}}, {"int8", {}}};
constexpr int64_t kTerminated = 2;

class Buffer {
 public:
  Buffer(uint64_t seed, const Kind &kind, int64_t capacity, states::Columns schema)
      : kind_(kind), random_(seed), capacity_(capacity), schema_(std::move(schema)) {
    the_buffer = kind.name + ", " + std::to_string(capacity) + " rows, seed " + std::to_string(seed);
    if (kind.episodes) schema_ = kOfEpisodes;
    if (schema_.empty()) schema_ = RandomSchema();
    alpha_ = seed % 4 < 2 ? 0.6 : 0;
    keep_ = seed % 4 == 2 && !kind.reservoir;
    max_length_ = seed % 2 * 40;
    late_ = seed % 8 == 2 || seed % 8 == 5;
    draw_ = !kind.row_state ? replay::kUniformly : alpha_ > 0 ? replay::kByPriority : replay::kByRank;
    streams_ = kind.episodes ? std::min<int64_t>(capacity, random_.Of<int64_t>({1, 1, 2, 5})) : 1;
    state["columns"];
    state.All("columns") = Noise({capacity});
    state = state.With({{"head", Int32(0)},
                        {"count", Int32(0)},
                        {"serials", Int64({0, 0})},
                        {"updates", Zeros("int64", {replay::Updates::Size(capacity)})},
                        {"random_state", Int64({random_.Below(INT64_MAX) - INT64_MAX / 2, 0})}});
    if (kind.reservoir) state["row_serials"] = Int64(std::vector<int64_t>(static_cast<size_t>(capacity), -1));
    if (kind.row_state) AddRowState();
    if (kind.episodes) AddEpisodes();
    if (kind.epochs) AddEpochs();
  }

  // Calls every kernel once; adds the statuses to `seen`.
  void Step(std::set<int> *seen) {
    seen->insert({Insert(), Sample(), Read(), Sample()});
    if (kind_.episodes) seen->insert(SampleGroups());
    if (kind_.row_state) seen->insert(ChangeRows());
    UpdateRows();
    if (random_.Chance(0.1)) Run("reset", {{"stored", One("int32")}});
  }

  int Insert() {
    const int64_t n = Some();
    Arguments inputs = {{"rows", NewRows(n)}, {"first", One("int64")}};
    Shared shared = Own(n);
    if (kind_.row_state) {
      inputs["priority"] = Priorities(n);
      if (random_.Chance(0.2)) shared["priority"] = "max_priority";
    }
    if (kind_.episodes) inputs["ends"] = RandomEnds(random_.Chance(0.5) ? n : 1);
    if (kind_.row_state && random_.Chance(0.6)) {
      std::vector<int64_t> versions = random_.Numbers(random_.Chance(0.5) ? n : 1, 0, 6);
      const bool sound = random_.Chance(0.9);
      for (int64_t &version : versions) {
        version = *state["clock"].as<int64_t>() - version;
        if (sound) version = std::max<int64_t>(version, 0);
      }
      inputs["version"] = Int64(std::move(versions));
      inputs["max_staleness"] = Int64({kind_.reservoir ? -1 : random_.Of<int64_t>({-1, 3, 10})});
    }
    return Run("insert", inputs, shared);
  }

  int Sample() {
    int64_t draw = draw_ == replay::kByRank ? random_.Of<int64_t>({1, 3, 4}) : draw_;
    if (kind_.epochs) draw = replay::kInEpochs;
    if (random_.Chance(0.1)) draw = random_.Below(alpha_ > 0 ? 3 : 7);  // in order weights are 0 and 1
    if (random_.Chance(0.1)) return Sample(Eligible() + 1, draw, Outputs(), {0, INT64_MAX});
    if (random_.Chance(0.8)) return Sample(random_.Between(1, Eligible() / 2 + 2), draw, Outputs(), {0, INT64_MAX});
    return Sample(random_.Between(1, Eligible() + 2), draw, Outputs(), RandomRange());
  }

  int Sample(int64_t n, int64_t draw, const std::vector<states::Output> &outputs, std::vector<int64_t> range) {
    const bool goals = kind_.name.substr(0, 5) == "goals";
    std::vector<int64_t> plan = {draw,
                                 random_.Below(2),
                                 random_.Below(2),
                                 kind_.row_state ? random_.Of<int64_t>({0, 1, 3}) : 0,
                                 random_.Below(2),
                                 3,
                                 random_.Below(2),
                                 goals ? random_.Between(1, 5) : 0,
                                 BitsOf(0.01),
                                 BitsOf(0.7),
                                 4,
                                 BitsOf(random_.Of<double>({-1, 0, 1, 1e3}))};
    Item arrays;
    for (const states::Output &output : outputs) {
      plan.insert(plan.end(), output.numbers.begin(), output.numbers.end());
      arrays.push_back(ArrayOf(output, n));
    }
    Arguments inputs = {{"plan", Int64(plan)}, {"sample_range", Int64(std::move(range))}, {"outputs", arrays}};
    if (kind_.episodes) inputs["powers"] = Doubles({1, 0.9, 0.81, 0.729});
    Shared shared;
    if (kind_.row_state) {
      inputs["given_beta"] = Doubles({random_.Of<double>({0, 0.5, 1, right_beta ? 0.7 : 2})});
      if (random_.Chance(0.7)) shared["given_beta"] = "beta";
    }
    return Run("sample", inputs, shared);
  }

  int SampleGroups() {
    const int64_t groups = random_.Between(1, 8), length = random_.Of<int64_t>({1, 3, 50});
    return Run("sample_groups", {{"options", Int64({random_.Of<int64_t>({1, 2, 2, 5, 5, 5, 5, 6}), random_.Below(2)})},
                                 {"template", Zeros("int8", {groups, length})},
                                 {"mask", Zeros("bool", {groups, length})},
                                 {"rows", states::Rows(schema_, {groups, length})}});
  }

  Arguments state = {};
  bool right_beta = false;  // no sample is given a wrong beta

 private:
  using Shared = std::map<std::string, std::string>;  // inputs that are the state's own arrays

  int Run(const std::string &name, const Arguments &inputs, const Shared &shared = {}, int64_t first_column = 0) {
    const int status = Compared(name, &state, inputs, shared, first_column);
    if (kind_.row_state) CheckWeights();
    return status;
  }

  // The tree fits its leaves, and removed rows have weight zero.
  void CheckWeights() {
    const double *leaves = state["weights"].as<double>();
    CHECK(state["weights"].bytes == Doubles(FreshTree({leaves, leaves + capacity_})).bytes);
    bool removed = true;
    for (int64_t slot = 0; slot < capacity_; ++slot) {
      removed = removed && (state["use_counts"].as<int32_t>()[slot] >= 0 || leaves[slot] == 0);
    }
    CHECK(removed);
  }

  states::Columns RandomSchema() {
    const std::vector<Shape> shapes = {{}, {}, {3}, {4}, {2, 5}, {84}, {33, 7}, {1100}};
    const std::vector<const char *> dtypes = {"float32", "int32",   "uint8", "int64",
                                              "float64", "float16", "int8",  "int16"};
    states::Columns schema;
    for (int64_t k = random_.Between(1, 5); k > 0; --k) schema.push_back({random_.Of(dtypes), random_.Of(shapes)});
    return schema;
  }

  void AddRowState() {
    const double late = late_ ? -2147483648.0 + 3 : 0;
    state = state.With({{"weights", Doubles(FreshTree(std::vector<double>(static_cast<size_t>(capacity_))))},
                        {"priorities", Zeros("float32", {capacity_})},
                        {"max_priority", Floats({0.5})},
                        {"use_counts", Zeros("int32", {capacity_})},
                        {"insertion_clocks", Zeros("int64", {capacity_})},
                        {"clock", Int64({0, 0, 0})},
                        {"counts", Zeros("int64", {5})},
                        {"row_rule", Doubles({alpha_, 1e-6, static_cast<double>(keep_), late, 0.5})},
                        {"beta", Doubles({0.4})}});
  }

  void AddEpisodes() {
    state = state.With(
        {{"steps", Zeros("int64", {capacity_})},
         {"flags", Zeros("uint8", {capacity_})},
         {"window_rule", Int64({random_.Below(4), random_.Between(1, 7), 1, random_.Below(3), streams_, max_length_,
                                random_.Of<int64_t>({-1, kTerminated, kTerminated}), random_.Below(2)})}});
  }

  // Rows of which few have terminated, if they know their episode.
  Item NewRows(int64_t n) {
    Item rows = Noise({n});
    if (!kind_.episodes) return rows;
    auto *terminated = rows[kTerminated].as<uint8_t>();
    for (int64_t i = 0; i < n; ++i) terminated[i] *= random_.Chance(0.15);
    return rows;
  }

  void AddEpochs() {
    const int64_t learners = random_.Of<int64_t>({1, 1, 2, 3});
    state = state.With(
        {{"epoch", Zeros("int64", {5})}, {"epoch_rule", Int64({random_.Below(2), random_.Below(learners), learners})}});
  }

  // Random numbers of the columns' dtypes and shapes with these axes in front.
  Item Noise(const Shape &lead) {
    Item rows = states::Rows(schema_, lead);
    for (Argument &row : rows) {
      const std::string &dtype = row.dtype;
      const auto elements = static_cast<size_t>(Elements(row.shape));
      for (size_t i = 0; i < elements; ++i) {
        const int64_t number = dtype == "int8" ? random_.Between(-3, 4) : random_.Below(100);
        if (dtype == "float32") row.as<float>()[i] = static_cast<float>(number) / 7 - 3;
        if (dtype == "float64") row.as<double>()[i] = static_cast<double>(number) / 7 - 3;
        if (dtype == "int64") row.as<int64_t>()[i] = number;
        if (dtype == "int32") row.as<int32_t>()[i] = static_cast<int32_t>(number);
        if (dtype == "int16") row.as<int16_t>()[i] = static_cast<int16_t>(number);
        if (dtype == "float16") row.as<int16_t>()[i] = static_cast<int16_t>(0x3C00 + number);
        if (dtype == "int8" || dtype == "uint8") row.as<int8_t>()[i] = static_cast<int8_t>(number);
      }
    }
    return rows;
  }

  // A number of rows, sometimes more than fit, or more than one block takes.
  int64_t Some() {
    const int64_t n = random_.Of<int64_t>({1, 2, 5, capacity_, 2 * capacity_ + 3, 300});
    return std::max<int64_t>(n / streams_, 1) * streams_;
  }

  // Makes the rows of a batch as large as the buffer its own, sometimes.
  Shared Own(int64_t n) {
    if (n != capacity_ || random_.Chance(0.5)) return {};
    return {{"rows", "columns"}};
  }

  std::vector<int64_t> RandomRange() {
    if (random_.Chance(0.3)) return {0, INT64_MAX};
    return random_.Numbers(2, -capacity_ - 1, capacity_ + 2);
  }

  // Handles of stored, evicted and future rows, and of none; some twice.
  Argument Handles(int64_t n) {
    const int64_t last = state["serials"].as<int64_t>()[0];
    return Int64(random_.Numbers(n, std::min<int64_t>(-1, last - 2 * capacity_), last + 2));
  }

  Argument Priorities(int64_t n) {
    std::vector<float> priorities(static_cast<size_t>(random_.Chance(0.5) ? n : 1));
    for (float &priority : priorities) priority = static_cast<float>(random_.Unit()) * 3;
    if (random_.Chance(0.1)) priorities.back() = random_.Of<float>({NAN, -1, INFINITY});
    if (random_.Chance(0.2)) priorities.front() = 0;
    return Floats(std::move(priorities));
  }

  Argument RandomEnds(int64_t n) {
    std::vector<uint8_t> ends(static_cast<size_t>(n));
    for (uint8_t &end : ends) end = random_.Chance(0.15) ? random_.Of<uint8_t>({1, 1, 2, 3}) : 0;
    return Flags(std::move(ends));
  }

  int64_t Eligible() {
    if (!kind_.row_state) return std::clamp<int64_t>(*state["count"].as<int32_t>(), 0, capacity_);
    const double *weights = state["weights"].as<double>();
    return std::count_if(weights, weights + capacity_, [](double weight) { return weight > 0; });
  }

  // The outputs of a sample: those of the kind, or all columns and some numbers in random order.
  std::vector<states::Output> Outputs() {
    if (!kind_.outputs.empty()) return kind_.outputs;
    std::vector<states::Output> outputs;
    const auto insert = [&](states::Output output) {
      outputs.insert(outputs.begin() + random_.Below(static_cast<int64_t>(outputs.size()) + 1), std::move(output));
    };
    for (size_t column = 0; column < schema_.size(); ++column) insert(To({0, static_cast<int64_t>(column)}));
    if (random_.Chance(0.5)) insert(To({0, 0}));
    for (const int64_t number : {replay::kHandle, replay::kWeight, replay::kGiven}) {
      for (int64_t times = random_.Of<int64_t>({0, 1, 1, 2}); times > 0; --times) insert(To({number}));
    }
    return outputs;
  }

  Argument ArrayOf(const states::Output &output, int64_t n) {
    static const std::map<int64_t, const char *> dtypes = {{replay::kMask, "bool"},    {replay::kRelabelled, "bool"},
                                                           {replay::kGiven, "bool"},   {replay::kDiscount, "float32"},
                                                           {replay::kLength, "int32"}, {replay::kChain, "int32"},
                                                           {replay::kHandle, "int64"}, {replay::kWeight, "float32"}};
    Shape shape = {n};
    shape.insert(shape.end(), output.to.shape.begin(), output.to.shape.end());
    const auto found = dtypes.find(output.numbers[0]);
    if (found != dtypes.end()) return Zeros(found->second, std::move(shape));
    const states::Column &column = schema_[static_cast<size_t>(output.numbers[1])];
    shape.insert(shape.end(), column.shape.begin(), column.shape.end());
    return Zeros(column.dtype, std::move(shape));
  }

  int Read() {
    const int64_t count = std::max<int64_t>(*state["count"].as<int32_t>(), 0), n = Some();
    std::vector<int64_t> index = random_.Numbers(n, -count, std::max<int64_t>(count, 1));
    if (random_.Chance(0.2)) index.back() = random_.Of<int64_t>({count, -count - 1});
    return Run("read", {{"index", Int64(std::move(index))}, {"rows", states::Rows(schema_, {n})}});
  }

  // Overwrites some of the columns.
  void UpdateRows() {
    const int64_t first = random_.Below(static_cast<int64_t>(schema_.size())), n = Some();
    Item rows = Noise({n});
    rows.erase(rows.begin(), rows.begin() + first);
    Arguments inputs = {{"handles", Handles(n)}, {"rows", rows}, {"invalid", One("int32")}};
    if (kind_.row_state) inputs["written"] = Int64({random_.Below(4), first <= kTerminated ? kTerminated - first : -1});
    Run("update", inputs, Own(n), first);
  }

  // Changes row state, and reads it. Returns the status of an update of priorities.
  int ChangeRows() {
    const int64_t n = Some();
    Shared shared;
    if (random_.Chance(0.1)) shared = {{"handles", "insertion_clocks"}, {"priority", "priorities"}};
    const int status = Run("update_priorities",
                           {{"handles", Handles(n)}, {"priority", Priorities(n)}, {"invalid", One("int32")}}, shared);
    Run("delete", {{"handles", Handles(random_.Chance(0.3) ? 300 : 3)}, {"removed", One("int32")}});
    Run("advance", {{"ticks", Int64({random_.Of<int64_t>({0, 1, 2, -1})})},
                    {"max_staleness", Int64({random_.Of<int64_t>({-1, kind_.reservoir ? -1 : 10, 3})})},
                    {"now", One("int64")}});
    Run("info", {{"handles", Handles(50)},
                 {"priority", Zeros("float32", {50})},
                 {"uses", Zeros("int32", {50})},
                 {"staleness", Zeros("int64", {50})}});
    Run("sums", {{"ranges", Make<int64_t>("int64", {5, 2}, random_.Numbers(10, -capacity_, capacity_ + 2))},
                 {"sums", Zeros("float64", {5})}});
    Run("summary", {{"summary", Zeros("float64", {3})}});
    for (const int64_t what : {0, 1, 2, 2, 3}) {
      if (kind_.reservoir) break;
      Run("measure",
          {{"what", Int64({what})}, {"sample_range", Int64(RandomRange())}, {"number", Zeros("float64", {1})}});
    }
    if (kind_.episodes && random_.Chance(0.3)) {
      Run("end_episodes", {{"flag", Flags({random_.Of<uint8_t>({1, 3})})}, {"ended", One("int32")}});
    }
    return status;
  }

  const Kind kind_;
  Random random_;
  const int64_t capacity_;
  states::Columns schema_;
  double alpha_;
  bool keep_, late_;
  int64_t max_length_, draw_, streams_;
};

}  // namespace random_states

#endif  // MINDSPORE_REPLAY_TESTS_RANDOM_BUFFER_H_
