// Tests of the headers and of the adapters, without Python or MindSpore. Meant to run under the address and
// undefined-behaviour sanitizers: every buffer is exactly as large as the arguments say. With MINDSPORE_REPLAY_ON_CUDA
// the kernels are those for GPUs: this and csrc/*.cu are compiled and linked by nvcc, or by g++ with emulated_cuda.h.
#ifndef MINDSPORE_REPLAY_ON_CUDA
#include "kernels.cc"
#include "reservoir_kernels.cc"
#include "time_kernels.cc"
#include "weight_kernels.cc"
#endif

#include <algorithm>
#include <cstdio>
#include <thread>

#include "call.h"
#include "check.h"
#include "random.h"
#include "test_given.h"
#include "test_reservoir.h"
#include "test_time_kernels.h"
#include "test_weight_kernels.h"
#ifndef MINDSPORE_REPLAY_ON_CUDA
#include "test_headers.h"
#include "test_sum_tree.h"
#endif

namespace {

// Two columns, float32 [4, 2] and a bool one kept as uint8 [4], with rows 1, 2, 3, 4 and head 1.
std::vector<Argument> Ring() {
  std::vector<Argument> ring;
  ring.push_back(Make<float>("float32", {4, 2}, {4, 4, 1, 1, 2, 2, 3, 3}));
  ring.push_back(Make<uint8_t>("uint8", {4}, {0, 1, 0, 1}));
  ring.push_back(Int32(1));
  ring.push_back(Int32(4));
  return ring;
}

std::vector<Argument> WriteArguments() {
  std::vector<Argument> arguments = Ring();
  arguments.push_back(Int64({9, 4}));
  arguments.push_back(Make<float>("float32", {2, 2}, {5, 5, 6, 6}));
  arguments.push_back(Make<uint8_t>("bool", {2}, {1, 0}));
  arguments.push_back(Int32(-1));
  return arguments;
}

std::vector<Argument> ReadArguments() {
  std::vector<Argument> arguments = Ring();
  arguments.push_back(Int64({0, -1, 2}));
  arguments.push_back(Zeros("float32", {3, 2}));
  arguments.push_back(Zeros("bool", {3}));
  return arguments;
}

std::vector<Argument> GatherArguments() {
  std::vector<Argument> arguments = Ring();
  arguments.resize(2);
  arguments.push_back(Int64({3, 0, 0}));
  arguments.push_back(Zeros("float32", {3, 2}));
  arguments.push_back(Zeros("bool", {3}));
  return arguments;
}

std::vector<Argument> SampleArguments() {
  std::vector<Argument> arguments = Ring();
  arguments.push_back(Int64({0, 0}));
  arguments.push_back(Int64({0, INT64_MAX}));
  arguments.push_back(Int64({4, 0, 1}));  // capacity, replace, ordered
  arguments.push_back(Zeros("float32", {4, 2}));
  arguments.push_back(Zeros("bool", {4}));
  return arguments;
}

std::vector<Argument> DrawArguments() {
  std::vector<Argument> arguments;
  arguments.push_back(Int64({0, 0}));
  arguments.push_back(Int32(1));
  arguments.push_back(Int32(4));
  arguments.push_back(Int64({0, INT64_MAX}));
  arguments.push_back(Int64({4, 0, 1}));
  arguments.push_back(Int64({-1, -1, -1, -1}));
  return arguments;
}

std::vector<Argument> BitsArguments() { return {Int64({0, 0}), Int64({-1, -1, -1, -1})}; }

void TestAdaptersByHand() {
  std::vector<Argument> write = WriteArguments();  // rows 5 and 6 take the slots of the oldest, 1 and 2
  CHECK(Call(replay_ring_write, &write) == replay::kOk);
  CHECK(write[0].bytes == Make<float>("float32", {4, 2}, {4, 4, 5, 5, 6, 6, 3, 3}).bytes);
  CHECK(write[1].bytes == Make<uint8_t>("uint8", {4}, {0, 1, 0, 1}).bytes);
  CHECK(*write[2].as<int32_t>() == 3 && *write[3].as<int32_t>() == 4);
  CHECK(write[4].as<int64_t>()[0] == 11 && write[4].as<int64_t>()[1] == 4);
  CHECK(*write[7].as<int32_t>() == 4);

  std::vector<Argument> one = WriteArguments();  // one row, without a leading axis
  one[5] = Make<float>("float32", {2}, {7, 8});
  one[6] = Make<uint8_t>("bool", {}, {0});
  CHECK(Call(replay_ring_write, &one) == replay::kOk);
  CHECK(one[0].as<float>()[2] == 7 && one[0].as<float>()[3] == 8 && one[1].as<uint8_t>()[1] == 0);
  CHECK(*one[2].as<int32_t>() == 2 && one[4].as<int64_t>()[0] == 10);

  std::vector<Argument> read = ReadArguments();
  CHECK(Call(replay_ring_read, &read) == replay::kOk);
  CHECK(read[5].bytes == Make<float>("float32", {3, 2}, {1, 1, 4, 4, 3, 3}).bytes);
  CHECK(read[6].bytes == Make<uint8_t>("bool", {3}, {1, 0, 1}).bytes);

  std::vector<Argument> gather = GatherArguments();
  CHECK(Call(replay_gather_rows, &gather) == replay::kOk);
  CHECK(gather[3].bytes == Make<float>("float32", {3, 2}, {3, 3, 4, 4, 4, 4}).bytes);

  // Bits 0.883, 0.431, 0.026, 0.971 of 2^64 shuffle rows 0 1 2 3 to 3 2 1 0, which lie in slots 0 3 2 1.
  std::vector<Argument> draw = DrawArguments();
  CHECK(Call(replay_draw_uniform, &draw) == replay::kOk);
  CHECK(draw[5].bytes == Int64({0, 3, 2, 1}).bytes);
  CHECK(draw[0].as<int64_t>()[1] == 4);
  draw = DrawArguments();
  draw[4].as<int64_t>()[2] = 0;  // not ordered: the draw names slots
  CHECK(Call(replay_draw_uniform, &draw) == replay::kOk);
  CHECK(draw[5].bytes == Int64({3, 2, 1, 0}).bytes);

  std::vector<Argument> sample = SampleArguments();
  CHECK(Call(replay_sample_uniform, &sample) == replay::kOk);
  CHECK(sample[7].bytes == Make<float>("float32", {4, 2}, {4, 4, 3, 3, 2, 2, 1, 1}).bytes);
  CHECK(sample[4].as<int64_t>()[1] == 4);

  std::vector<Argument> bits = BitsArguments();
  CHECK(Call(replay_random_bits, &bits) == replay::kOk);
  CHECK(bits[1].as<uint64_t>()[3] == 0xF88BB8A8724C81EC && bits[0].as<int64_t>()[1] == 4);
}

// More rows than the gathering kernels copy at once.
void TestManyRows() {
  constexpr int64_t kRows = 100;
  std::vector<float> values(kRows);
  std::iota(values.begin(), values.end(), 0.0F);
  std::vector<int64_t> slots(kRows);
  for (int64_t i = 0; i < kRows; ++i) slots[static_cast<size_t>(i)] = (i * 37) % kRows;
  for (int64_t n : {1, 31, 32, 33, 64, 65, 100}) {
    std::vector<Argument> arguments;
    arguments.push_back(Make<float>("float32", {kRows}, values));
    arguments.push_back(Int64({slots.begin(), slots.begin() + n}));
    arguments.push_back(Zeros("float32", {n}));
    CHECK(Call(replay_gather_rows, &arguments) == replay::kOk);
    for (int64_t i = 0; i < n; ++i) CHECK(arguments[2].as<float>()[i] == static_cast<float>((i * 37) % kRows));
  }
}

// Writes of so many rows that several blocks of a GPU share them.
void TestManyRowsWritten() {
  constexpr int64_t kRows = 130;
  std::vector<Argument> ring = {Zeros("float32", {kRows}), Int32(0), Int32(0), Int64({0, 0})};
  float written = 0;
  for (int64_t n : {100, 33, 64, 130, 300, 1, 129}) {
    std::vector<float> rows(static_cast<size_t>(n));
    for (float &row : rows) row = ++written;
    std::vector<Argument> arguments = With(ring, {Make<float>("float32", {n}, rows), One("int32")});
    CHECK(Call(replay_ring_write, &arguments) == replay::kOk);
    ring.assign(arguments.begin(), arguments.begin() + 4);
    const auto stored = static_cast<int64_t>(std::min<float>(written, kRows));
    const int64_t head = *ring[1].as<int32_t>();
    CHECK(*ring[2].as<int32_t>() == stored && *arguments[5].as<int32_t>() == stored);
    for (int64_t i = 0; i < stored; ++i) {  // from the newest
      CHECK(ring[0].as<float>()[(head + stored - 1 - i) % kRows] == written - static_cast<float>(i));
    }
  }
}

// Draws that blocks of a GPU share, and more than one block has memory for: a shuffle's first steps, and all of them.
void TestManyDraws() {
  constexpr int64_t kRows = 5000;
  for (int64_t n : {65, 1000, 2049, 5000}) {
    for (int64_t replace : {0, 1}) {
      std::vector<Argument> draw = {Int64({9, 3}), Int32(0), Int32(kRows), Int64({0, INT64_MAX}),
                                    Int64({kRows, replace, 0}), Zeros("int64", {n})};
      CHECK(Call(replay_draw_uniform, &draw) == replay::kOk);
      std::vector<int64_t> cells(kRows);
      std::iota(cells.begin(), cells.end(), 0);
      bool same = true;
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t bits = replay::RandomBits(9, static_cast<uint64_t>(3 + i));
        int64_t row = replay::Below(bits, kRows);
        if (replace == 0) {
          std::swap(cells[static_cast<size_t>(i)], cells[static_cast<size_t>(i + replay::Below(bits, kRows - i))]);
          row = cells[static_cast<size_t>(i)];
        }
        same = same && draw[5].as<int64_t>()[i] == row;
      }
      CHECK(same && draw[0].as<int64_t>()[1] == 3 + n);
    }
  }
}

// Rows so wide that several threads gather them.
void TestWideRows() {
  constexpr int64_t kRows = 11;
  constexpr int64_t kWide = 1 << 18;
  std::vector<float> values(kRows * kWide);
  std::iota(values.begin(), values.end(), 0.0F);
  const std::vector<int64_t> slots = {3, 10, 0, 3, 7, 1, 2, 9, 8};
  std::vector<Argument> arguments;
  arguments.push_back(Make<float>("float32", {kRows, kWide}, values));
  arguments.push_back(Int64(slots));
  arguments.push_back(Zeros("float32", {static_cast<int64_t>(slots.size()), kWide}));
  CHECK(Call(replay_gather_rows, &arguments) == replay::kOk);
  for (size_t i = 0; i < slots.size(); ++i) {
    const float *row = arguments[2].as<float>() + static_cast<int64_t>(i) * kWide;
    CHECK(std::equal(row, row + kWide, values.begin() + slots[i] * kWide));
  }
}

// Faults that a ring's columns and cursors may have, for every kernel that begins with them.
void RefusesBadRing(Kernel kernel, std::vector<Argument> (*make)()) {
  REFUSES(kernel, make, kBadArguments, (*a)[0].dtype = "complex64");
  REFUSES(kernel, make, kBadArguments, (*a)[0].shape = {});
  REFUSES(kernel, make, kBadArguments, ((*a)[1] = Zeros("uint8", {3})));
  REFUSES(kernel, make, kBadArguments, ((*a)[0] = Zeros("float32", {0, 2})));
  REFUSES(kernel, make, kBadArguments, (*a)[2].dtype = "uint32");
  REFUSES(kernel, make, kBadArguments, (*a)[3] = Make<int32_t>("int32", {2}, {4, 4}));
  REFUSES(kernel, make, kBadArguments, (*a)[3].dtype = "float32");
  REFUSES(kernel, make, kBadArguments, (*a)[2] = Int32(-1));
  REFUSES(kernel, make, kBadArguments, (*a)[2] = Int32(4));
  REFUSES(kernel, make, kBadArguments, (*a)[3] = Int32(-1));
  REFUSES(kernel, make, kBadArguments, (*a)[3] = Int32(5));
}

// Too few arguments, too many, none.
void RefusesOtherNumbers(Kernel kernel, std::vector<Argument> (*make)()) {
  REFUSES(kernel, make, kBadArguments, a->pop_back());
  REFUSES(kernel, make, kBadArguments, a->push_back(Int32(0)));
  REFUSES(kernel, make, kBadArguments, a->clear());
  REFUSES(kernel, make, kBadArguments, a->resize(1));
}

void TestRefusals() {
  RefusesBadRing(replay_ring_write, WriteArguments);
  RefusesBadRing(replay_ring_read, ReadArguments);
  RefusesBadRing(replay_sample_uniform, SampleArguments);
  RefusesOtherNumbers(replay_ring_write, WriteArguments);
  RefusesOtherNumbers(replay_ring_read, ReadArguments);
  RefusesOtherNumbers(replay_gather_rows, GatherArguments);
  RefusesOtherNumbers(replay_sample_uniform, SampleArguments);
  RefusesOtherNumbers(replay_draw_uniform, DrawArguments);
  RefusesOtherNumbers(replay_random_bits, BitsArguments);

  const Kernel write = replay_ring_write;
  REFUSES(write, WriteArguments, kBadArguments, (*a)[4].dtype = "uint64");
  REFUSES(write, WriteArguments, kBadArguments, (*a)[4] = Int64({1, 2, 3}));
  REFUSES(write, WriteArguments, kBadArguments, (*a)[5].dtype = "int32");
  REFUSES(write, WriteArguments, kBadArguments, (*a)[6].dtype = "int8");
  REFUSES(write, WriteArguments, kBadArguments, ((*a)[5] = Zeros("float32", {2, 3})));
  REFUSES(write, WriteArguments, kBadArguments, ((*a)[5] = Zeros("float32", {3, 2})));
  REFUSES(write, WriteArguments, kBadArguments, ((*a)[5] = Zeros("float32", {1, 2, 2})));
  REFUSES(write, WriteArguments, kBadArguments, ((*a)[5] = Zeros("float32", {})));
  REFUSES(write, WriteArguments, kBadArguments, ((*a)[6] = Zeros("bool", {})));
  REFUSES(write, WriteArguments, kBadArguments,
          ((*a)[5] = Zeros("float32", {0, 2}), (*a)[6] = Zeros("bool", {0})));
  REFUSES(write, WriteArguments, kBadArguments, (*a)[7].dtype = "int64");
  REFUSES(write, WriteArguments, kBadArguments, (*a)[7] = Zeros("int32", {2}));

  const Kernel read = replay_ring_read;
  REFUSES(read, ReadArguments, kIndexOutOfRange, (*a)[4].as<int64_t>()[2] = 4);
  REFUSES(read, ReadArguments, kIndexOutOfRange, (*a)[4].as<int64_t>()[0] = -5);
  REFUSES(read, ReadArguments, kIndexOutOfRange, (*a)[4].as<int64_t>()[1] = INT64_MAX);
  REFUSES(read, ReadArguments, kIndexOutOfRange, (*a)[4].as<int64_t>()[1] = INT64_MIN);
  REFUSES(read, ReadArguments, kIndexOutOfRange, ((*a)[2] = Int32(0), (*a)[3] = Int32(2)));
  REFUSES(read, ReadArguments, kIndexOutOfRange, ((*a)[2] = Int32(0), (*a)[3] = Int32(0)));
  REFUSES(read, ReadArguments, kBadArguments, (*a)[4] = Make<int32_t>("int32", {3}, {0, 1, 2}));
  REFUSES(read, ReadArguments, kBadArguments, (*a)[4] = Int64({0, 1}));
  REFUSES(read, ReadArguments, kBadArguments, ((*a)[5] = Zeros("float32", {3, 3})));
  REFUSES(read, ReadArguments, kBadArguments, (*a)[6].dtype = "int32");
  REFUSES(read, ReadArguments, kBadArguments,
          ((*a)[4] = Int64({}), (*a)[5] = Zeros("float32", {0, 2}), (*a)[6] = Zeros("bool", {0})));

  const Kernel gather = replay_gather_rows;
  REFUSES(gather, GatherArguments, kIndexOutOfRange, (*a)[2].as<int64_t>()[0] = 4);
  REFUSES(gather, GatherArguments, kIndexOutOfRange, (*a)[2].as<int64_t>()[2] = -1);
  REFUSES(gather, GatherArguments, kBadArguments, (*a)[0].dtype = "string");
  REFUSES(gather, GatherArguments, kBadArguments, ((*a)[1] = Zeros("uint8", {5})));
  REFUSES(gather, GatherArguments, kBadArguments, (*a)[2] = Int64({0, 1}));
  REFUSES(gather, GatherArguments, kBadArguments, (*a)[2].dtype = "float64");
  REFUSES(gather, GatherArguments, kBadArguments, (*a)[3].dtype = "int32");

  const Kernel sample = replay_sample_uniform;
  REFUSES(sample, SampleArguments, kTooFewRows, (*a)[5] = Int64({1, 4}));
  REFUSES(sample, SampleArguments, kTooFewRows, (*a)[5] = Int64({3, 1}));
  REFUSES(sample, SampleArguments, kTooFewRows, ((*a)[2] = Int32(0), (*a)[3] = Int32(3)));
  REFUSES(sample, SampleArguments, kBadArguments, (*a)[4] = Int64({0}));
  REFUSES(sample, SampleArguments, kBadArguments, (*a)[5] = Int64({0, 1, 2}));
  REFUSES(sample, SampleArguments, kBadArguments, (*a)[6] = Int64({4, 0}));
  REFUSES(sample, SampleArguments, kBadArguments, (*a)[6] = Int64({5, 0, 1}));
  REFUSES(sample, SampleArguments, kBadArguments, ((*a)[8] = Zeros("bool", {3})));
  REFUSES(sample, SampleArguments, kBadArguments, (*a)[7].dtype = "int32");

  const Kernel draw = replay_draw_uniform;
  REFUSES(draw, DrawArguments, kTooFewRows, (*a)[3] = Int64({-3, 4}));
  REFUSES(draw, DrawArguments, kTooFewRows, (*a)[5] = Int64({0, 0, 0, 0, 0}));
  REFUSES(draw, DrawArguments, kTooFewRows, ((*a)[1] = Int32(0), (*a)[2] = Int32(0)));
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[0] = Int64({0}));
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[1].dtype = "float32");
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[2].dtype = "float32");
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[3].dtype = "uint64");
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[4] = Int64({4, 0}));
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[5].dtype = "float64");
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[4].as<int64_t>()[0] = 0);
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[1] = Int32(4));
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[1] = Int32(-1));
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[2] = Int32(5));
  REFUSES(draw, DrawArguments, kBadArguments, (*a)[2] = Int32(-1));

  const Kernel bits = replay_random_bits;
  REFUSES(bits, BitsArguments, kBadArguments, (*a)[0] = Int64({0, 0, 0}));
  REFUSES(bits, BitsArguments, kBadArguments, (*a)[0].dtype = "uint64");
  REFUSES(bits, BitsArguments, kBadArguments, (*a)[1].dtype = "float64");
}

#ifndef MINDSPORE_REPLAY_ON_CUDA

// Threads that insert rows of one number while another samples: no row is torn and none is lost.
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
  int64_t three[1] = {3};

  auto insert = [&](int64_t number) {
    std::vector<int64_t> row(kWidth, number);
    int64_t row_shape[1] = {kWidth};
    int32_t stored = 0;
    void *params[] = {column.data(), &head, &count, serials, row.data(), &stored};
    int ndims[] = {2, 0, 0, 1, 1, 0};
    int64_t *shapes[] = {column_shape, scalar, scalar, two, row_shape, scalar};
    const char *dtypes[] = {"int64", "int32", "int32", "int64", "int64", "int32"};
    return replay_ring_write(6, params, ndims, shapes, dtypes, nullptr, nullptr);
  };
  auto sample = [&](std::vector<int64_t> *rows) {
    int64_t range[2] = {0, INT64_MAX};
    int64_t options[3] = {kCapacity, 1, 0};
    int64_t rows_shape[2] = {4, kWidth};
    void *params[] = {column.data(), &head, &count, random_state, range, options, rows->data()};
    int ndims[] = {2, 0, 0, 1, 1, 1, 2};
    int64_t *shapes[] = {column_shape, scalar, scalar, two, two, three, rows_shape};
    const char *dtypes[] = {"int64", "int32", "int32", "int64", "int64", "int64", "int64"};
    return replay_sample_uniform(7, params, ndims, shapes, dtypes, nullptr, nullptr);
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

int main() {
#ifndef MINDSPORE_REPLAY_ON_CUDA
  TestHeaders();
  TestSumTree();
  TestThreads();
#endif
  TestAdaptersByHand();
  TestManyRows();
  TestManyRowsWritten();
  TestManyDraws();
  TestWideRows();
  TestRefusals();
  TestWeightKernels();
  TestTimeKernels();
  TestReservoir();
  TestGiven();
#ifdef MINDSPORE_REPLAY_ON_CUDA
  std::printf("left out on a GPU: the algorithms of the headers, threads that race on a buffer, groups\n");
#endif
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
