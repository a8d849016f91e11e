// Calls every kernel of the library with realistic sizes, for benchmarks/budget.py: callgrind counts the instructions
// of each call and dumps them under the names of kernel and case. Only the kernel's own instructions are counted.
// Single-threaded and the same in every run: sizes, random numbers and addresses are fixed.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "count.h"
#include "log.h"
#include "states.h"
#include "waits.h"

namespace {

using namespace states;

constexpr int64_t kLarge = 1 << 20;
constexpr int64_t kSmall = 1 << 14;

std::string Replacement(int64_t replace) { return replace ? "with replacement" : "without replacement"; }

void CountSamples(const std::string &what, const Arguments &buffer, const Sampling &sampling,
                  const std::vector<Output> &outputs, int64_t start = 0) {
  Count("sample", what, Sample(buffer, sampling, outputs, start));
}

void CountRings() {
  const Arguments ring = Ring(kCartPole, kSmall, 100);
  const auto insert = [&](const std::string &what, const Arguments &state, const Shape &lead) {
    Count("insert", what, state.With({{"rows", Rows(kCartPole, lead)}, {"first", One("int64")}}));
  };
  insert("1 row", ring, {});
  insert("64 rows", ring, {64});
  insert("64 rows around the end", Ring(kCartPole, kSmall, kSmall - 10), {64});
  insert("80 rows into 64", Ring(kCartPole, 64, 10), {80});
  Count("read", "64 rows", ring.With({{"index", Int64(Range(-5000, 64, 101))}, {"rows", Rows(kCartPole, {64})}}));
  for (const int64_t replace : {0, 1}) {
    for (const int64_t ordered : {0, 1}) {
      CountSamples("64 rows " + Replacement(replace) + (ordered ? ", ordered" : ""), ring,
                   {64, 0, replace, ordered, 0, 0, 0, 0, 0}, RowOutputs(kCartPole, 64));
    }
  }
  const Columns wide = {{"uint8", {4, 84, 84}}};  // 28,224 bytes a row
  CountSamples("32 rows of 28 kB", Ring(wide, 256, 100), {32, 0, 1, 0, 0, 0, 0, 0, 0}, RowOutputs(wide, 32));
  const auto hold = Find<void (*)(const void *)>("replay_hold");
  const auto let_go = Find<void (*)(const void *)>("replay_let_go");
  const auto signature = Find<const char *(*)(int)>("replay_signature");
  const char *address = nullptr;
  Measure("replay_hold: an idle buffer", [&] { hold(address); });
  Measure("replay_let_go: a held buffer", [&] { let_go(address); });
  Measure("replay_signature: an operator", [&] { signature(replay::kNumberOfGroups); });
}

void CountWeighted() {
  const Arguments buffer = Weighted(kCartPole, MixedWeights(kLarge));
  const auto insert = [&](const std::string &what, const Shape &lead, Argument priority) {
    Count("insert", what,
          buffer.With({{"priority", std::move(priority)}, {"rows", Rows(kCartPole, lead)}, {"first", One("int64")}}));
  };
  insert("1 row, with weights", {}, Floats({1}));
  insert("64 rows, with weights", {64}, Floats({1}));
  insert("64 rows, with weights, with priorities", {64}, Floats(std::vector<float>(64, 0.7f)));

  std::vector<Output> outputs = RowOutputs(kCartPole, 256);
  outputs.insert(outputs.begin(), {Handles(256), ImportanceWeights(256)});
  CountSamples("256 of 2^20 by priority", buffer, {256, 2, 1, 0, 0, 0, 0, 0, 1e-5}, outputs);
  CountSamples("256 of 2^20 by priority, used up, by the buffer's weights", buffer, {256, 2, 1, 0, 1, 1, 0, 0, 1e-5},
               outputs);
  CountSamples("256 of the newest 10^5 by priority", buffer, {256, 2, 1, 0, 0, 0, 0, 0, 1e-5}, outputs, -100000);

  const Arguments one = Weighted(kOne, MixedWeights(kLarge));
  const auto handles = [](int64_t n) { return Int64(Range(kLarge + 7, n, 4000)); };
  CountGiving(0, "invalid", "update_priorities", "256 of 2^20",
              one.With({{"handles", handles(256)}, {"priority", Floats(std::vector<float>(256, 0.7f))}}));
  const Arguments eligible = {{"handles", Int64(Range(kLarge + 6, 64, 4000))}};
  CountGiving(64, "removed", "delete", "64 of 2^20", one.With(eligible));
  CountGiving(0, "invalid", "update", "64 of 2^20",
              one.With({{"handles", handles(64)}, {"rows", Zeros("float32", {64, 4})}, {"written", Int64({0, -1})}}));
  CountGiving(0, "invalid", "update", "64 of 2^20, of which late columns were missing",
              one.With({{"handles", handles(64)},
                        {"rows", Zeros("float32", {64, 4})},
                        {"use_counts", Ints(std::vector<int32_t>(kLarge, INT32_MIN + 1))},
                        {"written", Int64({1, -1})}}));
  Count("insert", "one row by priority and version, into 2^20",
        one.With({{"rows", Rows(kOne, {})},
                  {"priority", Floats({0.5})},
                  {"version", Int64({3})},
                  {"max_staleness", Int64({-1})},
                  {"first", One("int64")}}));
  Count("info", "64 of 2^20",
        one.With({{"handles", handles(64)},
                  {"priority", Zeros("float32", {64})},
                  {"uses", Zeros("int32", {64})},
                  {"staleness", Zeros("int64", {64})}}));
  const auto advance = [&](const std::string &what, int64_t ticks) {
    Count("advance", what,
          one.With({{"ticks", Int64({ticks})}, {"max_staleness", Int64({kLarge})}, {"now", One("int64")}}));
  };
  advance("1 row goes stale", 1);
  advance("64 rows go stale", 64);
  CountGiving(0, "stored", "reset", "2^14 rows", Weighted(kOne, Ones(kSmall)));
  Count("sums", "4 ranges of 2^20",
        one.With({{"head", Int32(1000)},
                  {"ranges", Make<int64_t>("int64", {4, 2}, {0, 5000, -5000, INT64_MAX, 123456, 654321, 0, INT64_MAX})},
                  {"sums", Zeros("float64", {4})}}));
  Count("summary", "2^20", one.With({{"summary", Zeros("float64", {3})}}));
  for (const int64_t what : {0, 1}) {
    Count("measure", what == 0 ? "room of 2^20" : "2^20 rows",
          one.With({{"what", Int64({what})}, {"sample_range", Int64({0, INT64_MAX})}, {"number", Doubles({0})}}));
  }

  const Arguments limited = Weighted(kCartPole, Ones(kLarge));
  std::vector<Output> rows = RowOutputs(kCartPole, 64);
  rows.insert(rows.begin(), Handles(64));
  for (const int64_t replace : {0, 1}) {
    CountSamples("64 of 2^20 " + Replacement(replace) + ", max_use 1", limited, {64, 1, replace, 0, 1, 0, 0, 0, 0},
                 rows, -100000);
  }
  CountSamples("64 of 2^20, the oldest, max_use 1", limited, {64, 3, 0, 0, 1, 0, 0, 0, 0}, rows, -100000);
  std::vector<double> delivered(kLarge, 1);
  delivered[0] = 0;  // the oldest row
  Count("insert", "1 row where one was delivered",
        Weighted(kCartPole, delivered)
            .With({{"row_rule", Doubles({0, 0, 1, 0, 1})},
                   {"priority", Floats({1})},
                   {"rows", Rows(kCartPole, {})},
                   {"first", One("int64")}}));
}

void CountWindows(const std::string &what, const Arguments &buffer, const Sampling &sampling,
                  std::vector<Output> outputs) {
  outputs.insert(outputs.begin(), {Handles(sampling.n), ImportanceWeights(sampling.n)});
  CountSamples(what, buffer, sampling, outputs);
}

void CountSequences() {
  const Rule rule = {40, 40, 10, 1, 1};
  const Arguments buffer = WithEpisodes(kCartPole, kSmall, rule);
  std::vector<Output> outputs = {{{1, 0, 0, 0, -40, 1, 80}, Zeros("bool", {32, 80})}};
  for (size_t i = 0; i < kCartPole.size(); ++i) {
    outputs.push_back({{0, static_cast<int64_t>(i), 0, 0, -40, 1, 80}, Rows(kCartPole, {32, 80})[i]});
  }
  CountWindows("sequences of 80, 32 by priority", buffer, {32, 2, 1, 0, 0, 0, 1, 0, 0}, outputs);
  CountWindows("sequences of 80, 32 uniform", buffer, {32, 1, 1, 0, 0, 0, 1, 0, 0}, outputs);
  CountWindows("5-step returns in sequences of 80, 32 by priority", buffer, {32, 2, 1, 0, 0, 0, 5, 0, 0},
               {{{1, 0, 0, 0, -40, 1, 80}, Zeros("bool", {32, 80})},
                {{0, 0, 0, 0, -40, 1, 80}, Zeros("float32", {32, 80, 4})},
                {{2, 2, 0, 0, -40, 1, 80}, Zeros("float32", {32, 80})},
                {{0, 0, -40, 1, 1, 80, 1}, Zeros("float32", {32, 80, 4})},
                {{3, 4, 0, 0, -40, 1, 80}, Zeros("float32", {32, 80})}});

  const auto insert = [](const std::string &what, const Arguments &state, int64_t n, std::vector<uint8_t> ends) {
    Count("insert", what,
          state.With({{"priority", Floats({1})},
                      {"ends", Flags(std::move(ends))},
                      {"rows", Rows(kCartPole, {n})},
                      {"first", One("int64")}}));
  };
  insert("1 row, with episodes", buffer, 1, {0});
  insert("1 row, with episodes, the last of its episode", buffer, 1, {1});
  insert("64 rows, with episodes", buffer, 64, std::vector<uint8_t>(64, 0));
  insert("16 rows, with episodes, of 16 environments", WithEpisodes(kCartPole, kSmall, {2, 3, 1, 1, 16}), 16,
         std::vector<uint8_t>(16, 0));

  const Arguments one = WithEpisodes(kOne, kSmall, rule);
  const Argument handles = Int64(Range(kSmall / 2 + 208, 64, 50));  // from the first step of an episode on
  CountGiving(0, "invalid", "update_priorities", "64 sequences",
              one.With({{"handles", handles}, {"priority", Floats(std::vector<float>(64, 0.7f))}}));
  CountGiving(64, "removed", "delete", "64 rows, with episodes", one.With({{"handles", handles}}));
  CountGiving(1, "ended", "end_episodes", "1 that goes on", one.With({{"flag", Flags({1})}}));
  Count("advance", "64 rows go stale, with episodes",  // the clock, and the first row not found stale
        one.With({{"clock", Int64({0, kSmall + kSmall / 2 - 64, 0})},
                  {"ticks", Int64({1})},
                  {"max_staleness", Int64({0})},
                  {"now", One("int64")}}));
  CountGiving(0, "stored", "reset", "2^14 rows, with episodes", one);
}

void CountViews() {
  CountWindows("3-step returns, 64 by priority", WithEpisodes(kCartPole, kSmall, {0, 4, 1, 1, 1}),
               {64, 2, 1, 0, 0, 0, 3, 0, 0},
               {{{0, 0, 0, 0, 0, 1, 1}, Zeros("float32", {64, 4})},
                {{0, 1, 0, 0, 0, 1, 1}, Zeros("int32", {64})},
                {{2, 2, 0, 0, 0, 1, 1}, Zeros("float32", {64})},
                {{0, 0, 0, 1, 1, 1, 1}, Zeros("float32", {64, 4})},
                {{3, 4, 0, 0, 0, 1, 1}, Zeros("float32", {64})}});
  CountWindows("stacks of 4 frames, 32 uniform", WithEpisodes(kAtari, 1 << 11, {3, 2, 1, 1, 1}),
               {32, 1, 1, 0, 0, 0, 1, 0, 0},
               {{{0, 0, 0, 0, -3, 1, 4}, Zeros("uint8", {32, 4, 84, 84})},
                {{0, 1, 0, 0, 0, 1, 1}, Zeros("int32", {32})},
                {{0, 0, 0, 0, -2, 1, 4}, Zeros("uint8", {32, 4, 84, 84})},
                {{6, 0, 0, 0, 0, 1, 1}, Zeros("int32", {32})},
                {{7, 0, 0, 0, 0, 1, 1}, Zeros("int32", {32})}});
  const Arguments goals = WithEpisodes(kGoals, kSmall, {0, 1, 1, 1, 1});
  const std::vector<std::string> strategies = {"future", "episode", "final", "random"};
  for (size_t i = 0; i < strategies.size(); ++i) {
    CountWindows("hindsight, 64 by " + strategies[i], goals, {64, 1, 1, 0, 0, 0, 1, static_cast<int64_t>(i) + 1, 0, 2},
                 {{{0, 0, 0, 0, 0, 1, 1}, Zeros("float32", {64, 10})},
                  {{5, 1, 0, 0, 0, 1, 1}, Zeros("float32", {64, 3})},
                  {{4, 0, 0, 0, 0, 1, 1}, Zeros("bool", {64})}});
  }
  CountWindows("hindsight, 64 with sparse rewards", goals, {64, 1, 1, 0, 0, 0, 1, 1, 0, 2, 0.05},
               {{{0, 0, 0, 0, 0, 1, 1}, Zeros("float32", {64, 10})},
                {{5, 1, 0, 0, 0, 1, 1}, Zeros("float32", {64, 3})},
                {{14, 4, 0, 0, 0, 1, 1}, Zeros("float32", {64})}});
  Arguments groups = WithEpisodes({{"int32", {}}, {"float32", {4}}}, 1 << 12, {0, 1, 1, 1, 1});
  for (int32_t slot = 0; slot < 1 << 12; ++slot) groups["columns"].as<int32_t>()[slot] = slot * 7 % 97;
  for (const int64_t ordered : {0, 1}) {
    Count("sample_groups", std::string("8 of 97, 8 rows each") + (ordered ? ", consecutive" : ""),
          groups.With({{"options", Int64({0, ordered})},
                       {"template", Zeros("int8", {8, 8})},
                       {"mask", Zeros("bool", {8, 8})},
                       {"rows", {Zeros("int32", {8, 8}), Zeros("float32", {8, 8, 4})}}}));
  }
}

void CountReservoirs() {
  const auto insert = [](const std::string &what, const Arguments &state) {  // twice the capacity has been inserted
    Count("insert", what,
          state.With({{"row_serials", Int64(Range(0, kSmall, 2))},
                      {"serials", Int64({2 * kSmall, 0})},
                      {"rows", Rows(kCartPole, {64})},
                      {"first", One("int64")}}));
  };
  insert("64 rows into a reservoir", Ring(kCartPole, kSmall, 0));
  insert("64 rows into a reservoir, with weights", Weighted(kCartPole, Ones(kSmall))
                                                       .With({{"clock", Int64({2 * kSmall, 0, 0})},
                                                              {"row_rule", Doubles({0, 0, 0, 0, 1})},
                                                              {"priority", Floats({1})}}));
}

// Counts a call of a kernel on rows of any length: a column of them, and one of numbers. `at` is the place of the rows
// among the arguments of the kernel of that name.
void CountOfItems(const std::string &name, const std::string &what, Arguments arguments, Argument rows, int64_t n) {
  constexpr int64_t kItems = kSmall * 100;
  std::vector<Argument *> own = arguments.For(SignatureOf(name));
  const Item &fields = arguments.All(arguments.Has("outputs") && name == "sample" ? "outputs" : "rows");
  const auto at = std::find(own.begin(), own.end(), &fields[fields.size() - 2]);
  Argument plan = Int64({1, 1, 2, at - own.begin(), 0, 200, 0, 0, 0, -1, -1, 0});
  Argument arena = Zeros("int32", {kItems}), lengths = Ints(std::vector<int32_t>(static_cast<size_t>(n), 100));
  std::vector<Argument *> all = {&plan, &arguments["head"], &arguments["random_state"], &arena};
  all.insert(all.end(), own.begin(), at);
  all.insert(all.end(), {&lengths, &rows});
  all.insert(all.end(), at + 1, own.end());
  Placed placed(all);
  const std::string kernel = "replay_" + name + "_items";
  int status = placed.Call(Find<Kernel>(kernel));
  placed.Write();
  Measure(kernel + ": " + what, [&] { status += placed.Call(Find<Kernel>(kernel)); });
  if (status != replay::kOk) Fail(kernel, "status " + std::to_string(status));
}

void CountItems() {
  const Columns columns = {{"int64", {2}}, {"float32", {}}};
  const auto with_rows = [](Arguments buffer, int64_t capacity) {
    for (int64_t i = 0; i < capacity; ++i) {
      buffer["columns"].as<int64_t>()[2 * i] = 100 * (kSmall + i);
      buffer["columns"].as<int64_t>()[2 * i + 1] = 100;
    }
    return buffer;
  };
  const Arguments buffer = with_rows(Weighted(columns, Ones(kSmall)), kSmall);
  const auto rows = [](Shape shape) { return Zeros("int32", std::move(shape)); };
  CountOfItems("insert", "64 rows of 100 items",
               buffer.With({{"priority", Floats({1})}, {"rows", Rows(columns, {64})}, {"first", One("int64")}}),
               rows({64, 128}), 64);
  CountOfItems("read", "64 rows of 100 items",
               buffer.With({{"index", Int64(Range(-5000, 64, 101))}, {"rows", Rows(columns, {64})}}), rows({64, 128}),
               64);
  CountOfItems("sample", "64 rows of 100 items", Sample(buffer, {64, 1, 1, 0, 0, 0, 0, 0, 0}, RowOutputs(columns, 64)),
               rows({64, 128}), 64);
  const Arguments groups = with_rows(WithEpisodes({{"int64", {2}}, {"int32", {}}}, 1 << 12, {0, 1, 1, 1, 1}), 1 << 12);
  CountOfItems("sample_groups", "1 group of 64 rows of 100 items",
               groups.With({{"options", Int64({1, 0})},
                            {"template", Zeros("int8", {1, 64})},
                            {"mask", Zeros("bool", {1, 64})},
                            {"rows", {Zeros("int64", {1, 64, 2}), Zeros("int32", {1, 64})}}}),
               rows({1, 64, 128}), 64);
}

// 64 rows of 1 KiB that changed, as bytes and as items, of a state of 64 KiB.
void CountFlushes() {
  std::vector<char> rows(static_cast<size_t>(64 * 1024), 'a'), state = rows, image = rows, entry(2 * rows.size());
  std::vector<int64_t> references, slots;
  for (int64_t i = 0; i < 64; ++i) {
    references.insert(references.end(), {1024 * i, 1024});
    slots.push_back(i);
  }
  std::vector<uint32_t> sums(64);
  const replay::RowPart column = {rows.data(), 1024, 0, nullptr};
  const replay::RowPart items = {rows.data(), 1, 64 * 1024, reinterpret_cast<replay::Reference *>(references.data())};
  const auto checksums =
      Find<void (*)(const replay::RowPart *, int64_t, const int64_t *, int64_t, uint32_t *, int)>("replay_checksums");
  Measure("replay_checksums: 64 rows of 1 KiB", [&] { checksums(&column, 1, slots.data(), 64, sums.data(), 0); });
  Measure("replay_checksums: items of 64 rows", [&] { checksums(&items, 1, slots.data(), 64, sums.data(), 0); });
  const auto checksum = Find<int64_t (*)(const char *, int64_t)>("replay_checksum");
  Measure("replay_checksum: 64 KiB", [&] { checksum(rows.data(), 64 * 1024); });
  const replay::FlushedMemory memory = {state.data(), 64 * 1024, rows.data(), 64 * 1024};
  const replay::Piece by_slot = {64 * 1024, 1024}, none = {};
  const auto take =
      Find<int64_t (*)(const replay::FlushedMemory *, char *, int64_t, const replay::Piece *, int64_t, const int64_t *,
                       int64_t, const replay::Piece *, int64_t, char *, int64_t)>("replay_take_changes");
  for (size_t i = 0; i < state.size(); i += 1024) state[i] = 'b';
  int64_t size = 0;
  Measure("replay_take_changes: 64 rows of 1 KiB, 64 lines", [&] {
    size = take(&memory, image.data(), 64 * 1024, &by_slot, 1, slots.data(), 64, &none, 0, entry.data(), 128 * 1024);
  });
  const auto copy = Find<void (*)(const char *, char *, int64_t)>("replay_copy_differences");
  Measure("replay_copy_differences: 64 KiB, all", [&] { copy(entry.data(), image.data(), 64 * 1024); });
  const auto replay = Find<int (*)(const replay::FlushedMemory *, const char *, int64_t, int)>("replay_pieces");
  Measure("replay_pieces: 64 rows of 1 KiB, 64 lines", [&] { replay(&memory, entry.data() + 56, size - 56, 1); });
}

// Functions for limits without rows.
void CountLimits() {
  static replay::Limits limits = {};
  limits.low = limits.high = limits.min_size = limits.enabled = 1;
  limits.error = 1e9;
  limits.kind = replay::Limits::kRate;
  const auto limit =
      Find<int (*)(const void *, replay::Limits *, int, void **, int *, int64_t **, const char **)>("replay_limit");
  const auto mode = Find<int (*)(const void *, int, int)>("replay_mode");
  const auto may_go = Find<int (*)(const void *, int, int64_t, int64_t)>("replay_may_go");
  const auto begin = Find<int (*)(const void *, int, int64_t, int64_t, int, int64_t *)>("replay_begin_block");
  const auto end = Find<void (*)(const void *, int64_t, int64_t, int64_t *)>("replay_end_block");
  const auto count = Find<void (*)(const void *, int, int64_t)>("replay_count");
  const auto wake_all = Find<void (*)(const void *)>("replay_wake_all");
  const auto sleep = Find<void (*)(int64_t)>("replay_sleep");
  int64_t block[5] = {};
  Measure("replay_limit: a rule", [&] { limit(&limits, &limits, 0, nullptr, nullptr, nullptr, nullptr); });
  Measure("replay_may_go: an insertion", [&] { may_go(&limits, replay::kInserts, 1, 0); });
  Measure("replay_begin_block: an insertion", [&] { begin(&limits, replay::kInserts, 1, 0, 0, block); });
  Measure("replay_end_block: an insertion", [&] { end(&limits, 1, 1, block); });
  Measure("replay_mode: no block any more", [&] { mode(&limits, replay::kInserts, replay::kAsks); });
  Measure("replay_count: an insertion", [&] { count(&limits, replay::kInserts, 1); });
  Measure("replay_wake_all: nobody waits", [&] { wake_all(&limits); });
  Measure("replay_sleep: no time", [&] { sleep(0); });
}

// Functions for a buffer in shared memory.
void CountShared() {
  Arguments buffer = Weighted(kCartPole, Ones(kSmall))
                         .With({{"handles", Int64({0})},
                                {"rows", Rows(kCartPole, {1})},
                                {"written", Int64({0, -1})},
                                {"row_rule", Doubles({0, 0, 0, 0, 1})},
                                {"invalid", One("int32")}});
  Placed placed(buffer.For(SignatureOf("update")));
  Arrays &arrays = placed.arrays();
  const void *head = arrays.params[kCartPole.size()];
  alignas(64) static int64_t journal[26] = {};
  journal[11] = -1;
  static replay::Limits limits = {};
  limits.kind = replay::Limits::kQueue;
  const auto share =
      Find<int (*)(void *, int64_t, int, int, replay::Limits *, int, void **, int *, int64_t **, const char **)>(
          "replay_share");
  const auto hold = Find<int (*)(const void *)>("replay_hold");
  int status = 0;
  const auto measure = [](const std::string &name, const char *function, const void *address) {
    const auto call = Find<void (*)(const void *)>(function);
    Measure(name, [&] { call(address); });
  };
  const auto share_it = [&] {
    status += share(journal, 1, 1, 0, &limits, static_cast<int>(arrays.params.size()), arrays.params.data(),
                    arrays.ndims.data(), arrays.shapes.data(), arrays.dtypes.data());
  };
  share_it();  // the second call reuses the memory that the first one freed
  Find<void (*)(const void *)>("replay_unshare")(head);
  Measure("replay_share: a weighted buffer", share_it);
  Measure("replay_hold: a shared buffer", [&] { status += hold(head); });
  journal[9] = 2 * kSmall;
  journal[10] = kSmall;
  measure("replay_repair: a weighted buffer", "replay_repair", head);
  measure("replay_replace: a shared buffer", "replay_replace", head);
  measure("replay_let_go: a shared buffer", "replay_let_go", head);
  measure("replay_close: a shared buffer", "replay_close", head);
  const auto watch = Find<void (*)(const void *, int)>("replay_watch");
  Measure("replay_watch: no file", [&] { watch(head, -1); });
  measure("replay_unshare: a shared buffer", "replay_unshare", head);
  const auto guard = Find<void (*)(char *, int64_t, const void *)>("replay_guard");
  Measure("replay_guard: a file", [&] { guard(reinterpret_cast<char *>(journal), sizeof(journal), head); });
  measure("replay_end_guard: a file", "replay_end_guard", head);
  CountFlushes();
  if (status != 0 || journal[10] != kSmall) Fail("shared", "status or journal");
}

}  // namespace

int main(int argc, char **argv) {
  library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  if (library == nullptr) Fail("budget", argc == 2 ? dlerror() : "give the library of the kernels");
  CountRings();
  CountWeighted();
  CountSequences();
  CountViews();
  CountReservoirs();
  CountItems();
  CountLimits();
  CountShared();
  return 0;
}
