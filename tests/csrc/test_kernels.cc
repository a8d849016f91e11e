// Tests of the headers and the kernels, without Python or MindSpore; linked with the kernels, or their library. Meant
// for the address and undefined-behaviour sanitizers: every array is exactly as large as the arguments say.
//
//     test_kernels [--draws]    with --draws it prints what the kernels draw instead
//     gpu_check [SEED [TIMES]]  the same with MINDSPORE_REPLAY_ON_CUDA: tests the GPU's kernels, and compares them with
//                               the CPU's, which are linked with it too, in random states, of which TIMES makes more
//
// benchmarks/gpu builds gpu_check with nvcc, or for a device that tests/csrc/emulated_cuda.h emulates.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "call.h"
#include "check.h"
#include "core/random.h"
#include "draws.h"
#include "operators.h"
#include "test_operators.h"
#include "test_overlaps.h"
#include "test_random_states.h"
#include "test_reservoir.h"
#include "test_row_state.h"
#include "test_timeline.h"
#ifndef MINDSPORE_REPLAY_ON_CUDA
#include "test_headers.h"
#include "test_power.h"
#include "test_shared.h"
#include "test_sum_tree.h"
#endif

#define DECLARE(name) extern "C" KernelFunction replay_##name;
ALL_OPERATORS(DECLARE)

Kernel KernelOf(const std::string &name) {
#define WITH_NAME(name) {#name, replay_##name},
  static const std::map<std::string, Kernel> kernels = {ALL_OPERATORS(WITH_NAME)};
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : found->second;
}

namespace {

// Two columns, float32 [4, 2] and a bool one stored as uint8 [4], with rows 1, 2, 3, 4 and head 1.
Arguments Ring() {
  return {{"columns",
           {Make<float>("float32", {4, 2}, {4, 4, 1, 1, 2, 2, 3, 3}), Make<uint8_t>("uint8", {4}, {0, 1, 0, 1})}},
          {"head", Int32(1)},
          {"count", Int32(4)},
          {"serials", Int64({9, 4})},
          {"random_state", Int64({0, 0})}};
}

Arguments InsertingIntoRing() {
  return Ring().With({{"rows", {Make<float>("float32", {2, 2}, {5, 5, 6, 6}), Make<uint8_t>("bool", {2}, {1, 0})}},
                      {"first", Int64({-1})}});
}

Arguments Reading() {
  return Ring().With({{"index", Int64({0, -1, 2})}, {"rows", {Zeros("float32", {3, 2}), Zeros("bool", {3})}}});
}

// The inputs of a uniform sample of a ring without row state, and its row outputs.
Arguments Uniformly(int64_t replace, int64_t ordered, int64_t columns, Item rows) {
  const int64_t n = rows.front().shape[0];
  Item outputs = {Zeros("int64", {n}), Zeros("float32", {n})};
  outputs.insert(outputs.end(), rows.begin(), rows.end());
  return {{"plan", PlanOf({0, replace, ordered, 0, 0, 0, 0, 0}, columns)},
          {"sample_range", Int64({0, INT64_MAX})},
          {"outputs", outputs}};
}

Arguments SamplingUniformly(int64_t ordered) {
  return Ring().With(Uniformly(0, ordered, 2, {Zeros("float32", {4, 2}), Zeros("bool", {4})}));
}

// Rows so wide that several threads gather them.
void TestWideRows() {
  constexpr int64_t kRows = 11;
  constexpr int64_t kWide = 1 << 18;
  std::vector<float> values(kRows * kWide);
  std::iota(values.begin(), values.end(), 0.0F);
  const std::vector<int64_t> rows = {3, 10, 0, 3, 7, 1, 2, 9, 8};
  Arguments read = {{"columns", Make<float>("float32", {kRows, kWide}, values)},
                    {"head", Int32(0)},
                    {"count", Int32(kRows)},
                    {"serials", Int64({kRows, 0})},
                    {"random_state", Int64({0, 0})},
                    {"index", Int64(rows)},
                    {"rows", Zeros("float32", {static_cast<int64_t>(rows.size()), kWide})}};
  CHECK(Call("read", &read) == replay::kOk);
  for (size_t i = 0; i < rows.size(); ++i) {
    const float *row = read["rows"].as<float>() + static_cast<int64_t>(i) * kWide;
    CHECK(std::equal(row, row + kWide, values.begin() + rows[i] * kWide));
  }
}

// Faults in a ring's columns and cursors, for every kernel that takes them.
void RefusesBadRing(const std::string &name, const Arguments &arguments) {
  REFUSES(name, arguments, kBadArguments, a["columns"].dtype = "complex64");
  REFUSES(name, arguments, kBadArguments, a["columns"].shape = {});
  REFUSES(name, arguments, kBadArguments, a.All("columns")[1] = Zeros("uint8", {3}));
  REFUSES(name, arguments, kBadArguments, a["columns"] = Zeros("float32", {0, 2}));
  REFUSES(name, arguments, kBadArguments, a["head"].dtype = "uint32");
  RefusesBadCursors(name, arguments);
}

void TestRingRefusals() {
  const Arguments insert = InsertingIntoRing(), read = Reading(), sample = SamplingUniformly(1);
  RefusesBadRing("insert", insert);
  RefusesBadRing("read", read);
  RefusesBadRing("sample", sample);

  REFUSES("insert", insert, kBadArguments, a["serials"].dtype = "uint64");
  REFUSES("insert", insert, kBadArguments, a["rows"] = Zeros("float32", {2, 3}));
  REFUSES("insert", insert, kBadArguments, a["rows"] = Zeros("float32", {3, 2}));
  REFUSES("insert", insert, kBadArguments, a["rows"] = Zeros("float32", {1, 2, 2}));
  REFUSES("insert", insert, kBadArguments, a["rows"] = Zeros("float32", {}));
  REFUSES("insert", insert, kBadArguments, a.All("rows")[1] = Zeros("bool", {}));
  REFUSES("insert", insert, kBadArguments, a.All("rows") = (Item{Zeros("float32", {0, 2}), Zeros("bool", {0})}));

  REFUSES("read", read, kIndexOutOfRange, a["index"].as<int64_t>()[2] = 4);
  REFUSES("read", read, kIndexOutOfRange, a["index"].as<int64_t>()[0] = -5);
  REFUSES("read", read, kIndexOutOfRange, a["index"].as<int64_t>()[1] = INT64_MAX);
  REFUSES("read", read, kIndexOutOfRange, a["index"].as<int64_t>()[1] = INT64_MIN);
  REFUSES("read", read, kIndexOutOfRange, (a["head"] = Int32(0), a["count"] = Int32(2)));
  REFUSES("read", read, kIndexOutOfRange, (a["head"] = Int32(0), a["count"] = Int32(0)));
  REFUSES("read", read, kBadArguments, a["index"] = Ints({0, 1, 2}));
  REFUSES("read", read, kBadArguments, a["rows"] = Zeros("float32", {3, 3}));
  REFUSES("read", read, kBadArguments,
          (a["index"] = Int64({}), a.All("rows") = Item{Zeros("float32", {0, 2}), Zeros("bool", {0})}));

  REFUSES("sample", sample, kTooFewRows, a["sample_range"] = Int64({1, 4}));
  REFUSES("sample", sample, kTooFewRows, a["sample_range"] = Int64({3, 1}));
  REFUSES("sample", sample, kTooFewRows, a["sample_range"] = Int64({-3, 4}));
  REFUSES("sample", sample, kTooFewRows, (a["head"] = Int32(0), a["count"] = Int32(3)));
  REFUSES("sample", sample, kTooFewRows, (a["head"] = Int32(0), a["count"] = Int32(0)));
  REFUSES("sample", sample, kBadArguments, a.All("outputs")[3] = Zeros("bool", {3}));
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[0] = 1);  // by rank, without weights
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[0] = 2);
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[3] = 1);   // a use limit without use counts
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[26] = 1);  // a mask: only the start row is allowed
  REFUSES("sample", sample, kBadArguments, a["plan"].as<int64_t>()[30] = 1);  // the row after the start
}

#ifndef MINDSPORE_REPLAY_ON_CUDA

// Threads insert rows of one repeated number while another samples: no row is torn and none is lost.
void TestThreads() {
  constexpr int64_t kCapacity = 8;
  constexpr int64_t kWidth = 512;
  constexpr int kSteps = 2000;
  std::vector<int64_t> column(kCapacity * kWidth);
  int32_t head = 0;
  int32_t count = 0;
  int64_t serials[2] = {0, 0};
  int64_t random_state[2] = {0, 0};
  int64_t scalar[1] = {1};
  int64_t column_shape[2] = {kCapacity, kWidth};
  int64_t two[1] = {2};
  int64_t nineteen[1] = {19};

  auto insert = [&](int64_t number) {
    std::vector<int64_t> row(kWidth, number);
    int64_t row_shape[1] = {kWidth};
    int64_t first = 0;
    void *params[] = {column.data(), &head, &count, serials, row.data(), &first};
    int ndims[] = {2, 0, 0, 1, 1, 0};
    int64_t *shapes[] = {column_shape, scalar, scalar, two, row_shape, scalar};
    const char *dtypes[] = {"int64", "int32", "int32", "int64", "int64", "int64"};
    return replay_insert(6, params, ndims, shapes, dtypes, nullptr, nullptr);
  };
  auto sample = [&](std::vector<int64_t> *rows) {
    int64_t plan[] = {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1};
    int64_t range[] = {0, INT64_MAX};
    int64_t rows_shape[] = {4, kWidth};
    void *params[] = {column.data(), &head, &count, serials, random_state, plan, range, rows->data()};
    int ndims[] = {2, 0, 0, 1, 1, 1, 1, 2};
    int64_t *shapes[] = {column_shape, scalar, scalar, two, two, nineteen, two, rows_shape};
    const char *dtypes[] = {"int64", "int32", "int32", "int64", "int64", "int64", "int64", "int64"};
    return replay_sample(8, params, ndims, shapes, dtypes, nullptr, nullptr);
  };

  int refused = 0;
  for (int i = 0; i < kCapacity; ++i) refused += insert(-1);
  std::vector<int> refusals(2, 0);
  std::vector<std::thread> actors;
  for (int actor = 0; actor < 2; ++actor) {
    actors.emplace_back([&, actor] {
      for (int i = 0; i < kSteps; ++i) refusals[static_cast<size_t>(actor)] += insert(actor * kSteps + i);
    });
  }
  int torn = 0;
  std::vector<int64_t> rows(4 * kWidth);
  for (int i = 0; i < kSteps; ++i) {
    refused += sample(&rows);
    for (auto row = rows.begin(); row != rows.end(); row += kWidth) {
      torn += std::count(row, row + kWidth, *row) != kWidth;
    }
  }
  for (std::thread &actor : actors) actor.join();
  CHECK(refused == 0 && refusals[0] == 0 && refusals[1] == 0);
  CHECK(torn == 0);
  CHECK(serials[0] == kCapacity + 2 * kSteps);
  CHECK(head == (kCapacity + 2 * kSteps) % kCapacity && count == kCapacity);
  CHECK(random_state[1] == 4 * kSteps);
}

#endif  // MINDSPORE_REPLAY_ON_CUDA

}  // namespace

int main(int argc, char **argv) {
  if (argc == 2 && std::string(argv[1]) == "--draws") return draws::PrintDraws(), 0;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a run that is cut off tells what it found
  if (argc > 2) times = std::atoi(argv[2]);
#ifndef MINDSPORE_REPLAY_ON_CUDA
  TestHeaders();
  TestPowers();
  TestSumTree();
  TestThreads();
  TestShared();
  TestRule();
  TestWaiters();
  TestRowChecksums();
  TestLog();
#endif
  TestOperators();
  TestOverlaps();
  TestWideRows();
  TestRingRefusals();
  TestRowState();
  TestTimelines();
  TestReservoir();
  random_states::TestRandomStates(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0);
#ifdef MINDSPORE_REPLAY_ON_CUDA
  std::printf("left out on a GPU: the algorithms of the headers, threads that race on a buffer\n");
#endif
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
