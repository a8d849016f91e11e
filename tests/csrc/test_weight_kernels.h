// Tests of the adapters on trees and on buffers with weights: results by hand, refusals, and many operations in a row
// whose state must stay consistent.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_WEIGHT_KERNELS_H_
#define MINDSPORE_REPLAY_TESTS_TEST_WEIGHT_KERNELS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "call.h"
#include "check.h"
#include "random.h"

namespace {

using Arguments = std::vector<Argument>;

// Four slots, head 1, rows with serials 6 to 9 of 10 in slots 2, 3, 0, 1 (base 0); the learner's clock is 5. Serial 7 was
// removed after two deliveries.
Arguments Buffer() {
  return {Make<float>("float32", {4}, {8, 9, 6, 7}),
          Int32(2),
          Int32(4),
          Int64({10, 0}),
          Doubles(FreshTree({3, 1, 2, 0})),
          Floats({3, 1, 2, 4}),
          Make<float>("float32", {}, {4}),
          Ints({0, 1, 0, ~2}),
          Int64({3, 5, 1, 2}),
          Int64({5, 6}),
          Int64({100, 10, 20, 30, 40})};
}

Arguments InsertArguments() {
  return With(Buffer(), {Doubles({1, 0}), Floats({0.5f, 7}), Floats({10, 11}), One("int32")});
}
Arguments SampleWeightedArguments() {
  Arguments arguments = Buffer();
  arguments[4] = Doubles(FreshTree({1, 1, 1, 0}));
  return With(arguments, {Int64({1, 0}), Int64({0, INT64_MAX}), Int64({0, 0, 0}), Int64({0, 0, 0}), Floats({0, 0, 0})});
}
Arguments SamplePrioritizedArguments() {
  return With(Buffer(), {Int64({1, 0}), Doubles({0.5}), Doubles({1}), Doubles({0.25}), Int64({0, 0, 0}),
                         Int64({0, 0, 0}), Floats({0, 0, 0}), Floats({0, 0, 0})});
}
Arguments UpdateArguments() {
  return With(Buffer(), {Doubles({1, 0}), Int64({8, 5, 7, 8, 10}), Floats({9, 9, 9, 5, 9}), One("int32")});
}
Arguments DeleteArguments() { return With(Buffer(), {Int64({9, 7, 9, 5}), One("int32")}); }
Arguments AdvanceArguments() { return With(Buffer(), {Int64({2}), Int64({4}), One("int64")}); }
Arguments InfoArguments() {
  return With(Buffer(), {Int64({6, 7, 5}), Floats({0, 0, 0}), Ints({0, 0, 0}), Int64({0, 0, 0})});
}
Arguments ResetArguments() { return With(Buffer(), {One("int32")}); }
Arguments TreeSetArguments() {
  return {Doubles(FreshTree({3, 1, 2, 0})), Int64({4}), Int64({1, 3, 1}), Doubles({9, 5, 4}), One("float64")};
}
Arguments TreeDescendArguments() {
  return {Doubles(FreshTree({3, 1, 2, 0})), Int64({4}), Doubles({3, 3.5, 6}), Int64({-1, -1, -1})};
}
Arguments TreeSumsArguments() {
  return {Doubles(FreshTree({3, 1, 2, 0})), Int64({4}), Int32(2), Int32(4), Make<int64_t>("int64", {2, 2}, {0, 3, -1, 9}),
          Doubles({0, 0})};
}
Arguments TreeSummaryArguments() { return {Doubles(FreshTree({3, 1, 2, 0})), Int64({4}), Doubles({0, 0, 0})}; }

// The tree of a buffer's arguments is that of these leaves.
bool HasLeaves(Arguments &arguments, const std::vector<double> &leaves) {
  const std::vector<double> tree = FreshTree(leaves);
  return std::equal(tree.begin(), tree.end(), arguments[4].as<double>());
}

// The counts of a buffer's arguments are those of `Buffer` and these.
bool HasCounted(Arguments &arguments, const std::vector<int64_t> &more) {
  std::vector<int64_t> counts = {100, 10, 20, 30, 40};
  std::transform(more.begin(), more.end(), counts.begin(), counts.begin(), std::plus<int64_t>());
  return std::equal(counts.begin(), counts.end(), arguments[10].as<int64_t>());
}

void TestTreeKernelsByHand() {
  Arguments set = TreeSetArguments();
  CHECK(Call(replay_tree_set, &set) == replay::kOk);
  const std::vector<double> tree = FreshTree({3, 4, 2, 5});
  CHECK(std::equal(tree.begin(), tree.end(), set[0].as<double>()));
  Arguments descend = TreeDescendArguments();
  CHECK(Call(replay_tree_descend, &descend) == replay::kOk);
  CHECK(descend[3].as<int64_t>()[0] == 0 && descend[3].as<int64_t>()[1] == 1 && descend[3].as<int64_t>()[2] == 2);
  Arguments sums = TreeSumsArguments();  // from slot 2: weights 2, 0, 3, 1
  CHECK(Call(replay_tree_sums, &sums) == replay::kOk);
  CHECK(sums[5].as<double>()[0] == 5 && sums[5].as<double>()[1] == 1);
  Arguments summary = TreeSummaryArguments();
  CHECK(Call(replay_tree_summary, &summary) == replay::kOk);
  CHECK(summary[2].as<double>()[0] == 6 && summary[2].as<double>()[1] == 1 && summary[2].as<double>()[2] == 3);
}

void TestRowsByHand() {
  Arguments insert = InsertArguments();  // into slots 2 and 3, over serials 6 and 7
  CHECK(Call(replay_insert_weighted, &insert) == replay::kOk);
  CHECK(HasLeaves(insert, {3, 1, 0.5, 7}));
  CHECK(insert[0].as<float>()[2] == 10 && insert[0].as<float>()[3] == 11);
  CHECK(*insert[1].as<int32_t>() == 0 && *insert[2].as<int32_t>() == 4 && insert[3].as<int64_t>()[0] == 12);
  CHECK(*insert[6].as<float>() == 7 && insert[7].as<int32_t>()[3] == 0 && insert[8].as<int64_t>()[2] == 5);
  CHECK(insert[9].as<int64_t>()[1] == 8 && HasCounted(insert, {0, 0, 0, 0, 0}));

  Arguments update = UpdateArguments();
  CHECK(Call(replay_update_priorities, &update) == replay::kOk);
  CHECK(*update.back().as<int32_t>() == 3);  // overwritten, removed, not yet inserted
  CHECK(HasLeaves(update, {5, 1, 2, 0}) && *update[6].as<float>() == 9);
  CHECK(HasCounted(update, {0, 0, 0, 0, 3}));

  Arguments remove = DeleteArguments();
  CHECK(Call(replay_delete, &remove) == replay::kOk);
  CHECK(*remove.back().as<int32_t>() == 1 && HasLeaves(remove, {3, 0, 2, 0}) && remove[7].as<int32_t>()[1] == ~1);
  CHECK(HasCounted(remove, {0, 0, 0, 1, 2}));

  Arguments advance = AdvanceArguments();  // to clock 7; serials 6 and 7 came at 1 and 2, serial 8 at 3
  CHECK(Call(replay_advance, &advance) == replay::kOk);
  CHECK(HasLeaves(advance, {3, 1, 0, 0}) && advance[9].as<int64_t>()[0] == 7 && advance[9].as<int64_t>()[1] == 8);
  CHECK(advance[7].as<int32_t>()[2] == ~0 && advance[7].as<int32_t>()[3] == ~2);
  CHECK(HasCounted(advance, {0, 0, 1, 0, 0}));  // serial 7 had been removed before

  Arguments info = InfoArguments();
  CHECK(Call(replay_info, &info) == replay::kOk);
  CHECK(info[12].as<float>()[0] == 2 && info[12].as<float>()[1] == 4 && info[12].as<float>()[2] == 0);
  CHECK(info[13].as<int32_t>()[0] == 0 && info[13].as<int32_t>()[1] == 2 && info[13].as<int32_t>()[2] == -1);
  CHECK(info[14].as<int64_t>()[0] == 4 && info[14].as<int64_t>()[1] == 3 && info[14].as<int64_t>()[2] == -1);

  Arguments reset = ResetArguments();
  CHECK(Call(replay_reset_weighted, &reset) == replay::kOk);
  CHECK(HasLeaves(reset, {0, 0, 0, 0}) && *reset[2].as<int32_t>() == 0 && reset[3].as<int64_t>()[1] == 10);
  CHECK(*reset[6].as<float>() == 1 && reset[9].as<int64_t>()[0] == 0 && reset[9].as<int64_t>()[1] == 10);
  CHECK(HasCounted(reset, {0, 0, 0, 0, 0}));
}

void TestSamplesByHand() {
  Arguments sample = SampleWeightedArguments();  // all three rows, without replacement
  sample[13].as<int64_t>()[2] = 2;                // max_use: serial 9 has had one delivery
  CHECK(Call(replay_sample_weighted, &sample) == replay::kOk);
  std::vector<int64_t> handles(sample[14].as<int64_t>(), sample[14].as<int64_t>() + 3);
  for (size_t i = 0; i < 3; ++i) CHECK(sample[15].as<float>()[i] == static_cast<float>(handles[i]));
  std::sort(handles.begin(), handles.end());
  CHECK(handles == std::vector<int64_t>({6, 8, 9}));
  CHECK(HasLeaves(sample, {1, 0, 1, 0}) && sample[7].as<int32_t>()[1] == ~2 && sample[7].as<int32_t>()[0] == 1);
  CHECK(sample[11].as<int64_t>()[1] == 3 && HasCounted(sample, {3, 1, 0, 0, 0}));

  Arguments drawn = SamplePrioritizedArguments();  // strata [0, 2), [2, 4), [4, 6) over weights 3, 1, 2
  CHECK(Call(replay_sample_prioritized, &drawn) == replay::kOk);
  const int64_t *serials = drawn[16].as<int64_t>();
  CHECK(serials[0] == 8 && (serials[1] == 8 || serials[1] == 9) && serials[2] == 6);
  const float *weights = drawn[17].as<float>();
  CHECK(serials[1] == 9 ? weights[1] == 1 && weights[2] == 0.5f : weights[1] == weights[0] && weights[2] == 1);
  CHECK(*drawn[12].as<double>() == 0.75 && HasCounted(drawn, {3, 0, 0, 0, 0}));

  Arguments apart = SamplePrioritizedArguments();  // beta is given by itself: the draw is as with its value before
  apart[13] = Doubles({0.5});
  CHECK(Call(replay_sample_prioritized, &apart) == replay::kOk);
  Arguments shared = SamplePrioritizedArguments();
  Arrays arrays(&shared);
  arrays.params[13] = arrays.params[12];
  CHECK(arrays.Call(replay_sample_prioritized) == replay::kOk);
  for (const size_t i : {12, 16, 17, 18}) CHECK(shared[i].bytes == apart[i].bytes);
}

// Operations drawn at random on a buffer of 37 rows: the tree stays that of its leaves, and removed rows weigh nothing.
void TestManyOperations() {
  constexpr int64_t kCapacity = 37;
  Arguments buffer = {Zeros("float32", {kCapacity}), Int32(0), Int32(0), Int64({0, 0}),
                      Doubles(FreshTree(std::vector<double>(kCapacity))), Zeros("float32", {kCapacity}),
                      Make<float>("float32", {}, {1}), Zeros("int32", {kCapacity}), Zeros("int64", {kCapacity}),
                      Int64({0, 0}), Zeros("int64", {5})};
  const size_t state = buffer.size();
  Argument random_state = Int64({5, 0});
  uint64_t counter = 0;
  auto below = [&](int64_t n) { return replay::Below(replay::RandomBits(3, counter++), n); };
  auto run = [&](Kernel kernel, std::vector<Argument> more) {
    Arguments arguments = With(buffer, std::move(more));
    const int status = Call(kernel, &arguments);
    random_state = arguments[state].dtype == "int64" && arguments[state].shape[0] == 2 ? arguments[state] : random_state;
    buffer.assign(arguments.begin(), arguments.begin() + static_cast<int64_t>(state));
    return status;
  };
  for (int i = 0; i < 4000; ++i) {
    const int64_t inserted = buffer[3].as<int64_t>()[0];
    std::vector<int64_t> handles;
    for (int64_t k = 0; k < 5; ++k) handles.push_back(inserted - 45 + below(48));
    int status = replay::kOk;
    switch (below(6)) {
      case 0:
      case 1: {
        const int64_t n = 1 + below(below(20) == 0 ? 90 : 7);
        std::vector<float> priorities;
        for (int64_t k = 0; k < n; ++k) priorities.push_back(static_cast<float>(below(1000)));
        status = run(replay_insert_weighted, {Doubles({0.6, 1e-6}), Floats(priorities), Floats(priorities), One("int32")});
        break;
      }
      case 2:
        status = run(replay_sample_prioritized,
                     {random_state, Doubles({0.5}), Doubles({0.5}), Doubles({0}), Int64({below(2), 3, below(2)}),
                      Int64(handles), Zeros("float32", {5}), Zeros("float32", {5})});
        CHECK(status == replay::kOk || status == replay::kTooFewRows);
        status = replay::kOk;
        break;
      case 3: status = run(replay_delete, {Int64(handles), One("int32")}); break;
      case 4: status = run(replay_advance, {Int64({below(3)}), Int64({9}), One("int64")}); break;
      case 5:
        status = run(replay_update_priorities, {Doubles({0.6, 1e-6}), Int64(handles), Floats({1, 2, 3, 0, 5}), One("int32")});
    }
    CHECK(status == replay::kOk);
    const double *leaves = buffer[4].as<double>();
    CHECK(HasLeaves(buffer, {leaves, leaves + kCapacity}));
    bool removed = true;
    for (int64_t slot = 0; slot < kCapacity; ++slot) removed = removed && (buffer[7].as<int32_t>()[slot] >= 0 || leaves[slot] == 0);
    CHECK(removed);
  }
  CHECK(buffer[3].as<int64_t>()[0] > 1000);
}

// Faults that the state of a buffer with weights may have.
void RefusesBadBuffer(Kernel kernel, Arguments (*make)()) {
  REFUSES(kernel, make, kBadArguments, (*a)[0].dtype = "complex64");
  REFUSES(kernel, make, kBadArguments, (*a)[1] = Int32(4));
  REFUSES(kernel, make, kBadArguments, (*a)[2] = Int32(5));
  REFUSES(kernel, make, kBadArguments, (*a)[3] = Int64({3, 0}));  // fewer than are stored
  REFUSES(kernel, make, kBadArguments, (*a)[3] = Int64({10, -1}));
  REFUSES(kernel, make, kBadArguments, (*a)[4].dtype = "float32");
  REFUSES(kernel, make, kBadArguments, (*a)[4] = Zeros("float64", {18}));
  REFUSES(kernel, make, kBadArguments, (*a)[5] = Zeros("float32", {3}));
  REFUSES(kernel, make, kBadArguments, (*a)[6] = Zeros("float32", {2}));
  REFUSES(kernel, make, kBadArguments, (*a)[7] = Zeros("int32", {5}));
  REFUSES(kernel, make, kBadArguments, (*a)[8].dtype = "int32");
  REFUSES(kernel, make, kBadArguments, (*a)[9] = Int64({5, 5}));  // a row that was overwritten
  REFUSES(kernel, make, kBadArguments, (*a)[9] = Int64({5, 11}));
  REFUSES(kernel, make, kBadArguments, (*a)[10] = Int64({0, 0}));
  REFUSES(kernel, make, kBadArguments, a->pop_back());
  REFUSES(kernel, make, kBadArguments, a->push_back(Int32(0)));
  REFUSES(kernel, make, kBadArguments, a->clear());
}

void TestWeightRefusals() {
  RefusesBadBuffer(replay_insert_weighted, InsertArguments);
  RefusesBadBuffer(replay_sample_weighted, SampleWeightedArguments);
  RefusesBadBuffer(replay_sample_prioritized, SamplePrioritizedArguments);
  RefusesBadBuffer(replay_update_priorities, UpdateArguments);
  RefusesBadBuffer(replay_delete, DeleteArguments);
  RefusesBadBuffer(replay_advance, AdvanceArguments);
  RefusesBadBuffer(replay_info, InfoArguments);
  RefusesBadBuffer(replay_reset_weighted, ResetArguments);

  const Kernel insert = replay_insert_weighted;
  REFUSES(insert, InsertArguments, kBadWeight, (*a)[12].as<float>()[1] = NAN);
  REFUSES(insert, InsertArguments, kBadWeight, (*a)[12].as<float>()[0] = -1);
  REFUSES(insert, InsertArguments, kBadWeight, (*a)[12].as<float>()[0] = INFINITY);
  REFUSES(insert, InsertArguments, kBadArguments, (*a)[12] = Floats({1, 2, 3}));
  REFUSES(insert, InsertArguments, kBadArguments, (*a)[13].dtype = "int32");

  const Kernel sample = replay_sample_weighted;
  REFUSES(sample, SampleWeightedArguments, kTooFewRows, (*a)[12] = Int64({0, 3}));
  REFUSES(sample, SampleWeightedArguments, kTooFewRows, (*a)[4] = Doubles(FreshTree({1, 0, 1, 0})));
  REFUSES(sample, SampleWeightedArguments, kBadArguments, (*a)[13] = Int64({0, 0}));
  REFUSES(sample, SampleWeightedArguments, kBadArguments, (*a)[15] = Floats({0, 0}));

  const Kernel drawn = replay_sample_prioritized;
  REFUSES(drawn, SamplePrioritizedArguments, kTooFewRows, (*a)[4] = Doubles(FreshTree({1, 0, 1, 0})));
  REFUSES(drawn, SamplePrioritizedArguments, kBadWeight, (*a)[13] = Doubles({1.1}));
  REFUSES(drawn, SamplePrioritizedArguments, kBadWeight, (*a)[13] = Doubles({NAN}));
  REFUSES(drawn, SamplePrioritizedArguments, kBadArguments, (*a)[17] = Floats({0, 0}));

  const Kernel update = replay_update_priorities;
  REFUSES(update, UpdateArguments, kBadWeight, (*a)[13].as<float>()[1] = NAN);  // also that of a dead handle
  REFUSES(update, UpdateArguments, kBadWeight, (*a)[13].as<float>()[3] = -1);
  REFUSES(update, UpdateArguments, kBadArguments, (*a)[13] = Floats({1, 2}));
  REFUSES(replay_advance, AdvanceArguments, kBadArguments, (*a)[11] = Int64({-1}));
  REFUSES(replay_advance, AdvanceArguments, kBadArguments, (*a)[11] = Int64({INT64_MAX}));
  REFUSES(replay_info, InfoArguments, kBadArguments, (*a)[13] = Ints({0, 0}));

  REFUSES(replay_tree_set, TreeSetArguments, kBadWeight, (*a)[3].as<double>()[0] = NAN);
  REFUSES(replay_tree_set, TreeSetArguments, kBadWeight, (*a)[3].as<double>()[2] = INFINITY);
  REFUSES(replay_tree_set, TreeSetArguments, kBadWeight, (*a)[3].as<double>()[1] = -1);
  REFUSES(replay_tree_set, TreeSetArguments, kIndexOutOfRange, (*a)[2].as<int64_t>()[1] = 4);
  REFUSES(replay_tree_set, TreeSetArguments, kIndexOutOfRange, (*a)[2].as<int64_t>()[1] = -1);
  REFUSES(replay_tree_set, TreeSetArguments, kBadArguments, (*a)[1] = Int64({17}));
  REFUSES(replay_tree_set, TreeSetArguments, kBadArguments, (*a)[1] = Int64({0}));
  REFUSES(replay_tree_descend, TreeDescendArguments, kIndexOutOfRange, (*a)[2].as<double>()[1] = 6.5);
  REFUSES(replay_tree_descend, TreeDescendArguments, kIndexOutOfRange, (*a)[2].as<double>()[1] = NAN);
  REFUSES(replay_tree_descend, TreeDescendArguments, kIndexOutOfRange, (*a)[2].as<double>()[1] = 0);
  REFUSES(replay_tree_sums, TreeSumsArguments, kBadArguments, (*a)[2] = Int32(4));
  REFUSES(replay_tree_summary, TreeSummaryArguments, kBadArguments, (*a)[2] = Doubles({0, 0}));
}

void TestWeightKernels() {
  TestTreeKernelsByHand();
  TestRowsByHand();
  TestSamplesByHand();
  TestManyOperations();
  TestWeightRefusals();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_WEIGHT_KERNELS_H_
