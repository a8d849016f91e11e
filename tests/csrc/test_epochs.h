// Orders of epochs, and batches taken in them.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_EPOCHS_H_
#define MINDSPORE_REPLAY_TESTS_TEST_EPOCHS_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "check.h"
#include "core/epochs.h"

namespace {

std::vector<int64_t> RowsInOrder(int64_t key, int64_t size) {
  const replay::Order order(key, size);
  std::vector<int64_t> rows;
  for (int64_t position = 0; position < order.size(); ++position) {
    if (order(position) < size) rows.push_back(order(position));
  }
  return rows;
}

// Takes all batches of an epoch in which odd rows cannot be drawn; the slot of a row is its serial number.
std::vector<std::vector<int64_t>> BatchesOf(const replay::EpochRule &rule, int64_t size, int64_t n) {
  replay::Epoch epoch = {7, 100, size, 0, 1};
  std::vector<std::vector<int64_t>> batches;
  while (true) {
    std::vector<int64_t> slots(static_cast<size_t>(n), -1);
    const auto slot_of = [](int64_t serial) { return serial % 2 == 0 ? serial : int64_t{-1}; };
    const int64_t drawn = replay::TakeBatch(rule, &epoch, slot_of, n, slots.data());
    if (drawn < 0) return batches;
    slots.resize(static_cast<size_t>(drawn));
    batches.push_back(slots);
  }
}

void TestOrders() {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 1000}) {
    std::set<std::vector<int64_t>> orders;
    for (int64_t key = 0; key < 50; ++key) {
      std::vector<int64_t> rows = RowsInOrder(key, size);
      orders.insert(rows);
      std::sort(rows.begin(), rows.end());
      std::vector<int64_t> all(static_cast<size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      CHECK(rows == all);
    }
    CHECK(orders.size() > (size > 4 ? 40 : size == 1 ? 0 : size == 2 ? 1 : 4));
  }
}

void TestBatches() {
  for (const int64_t pad : {0, 1}) {
    for (const int64_t world : {1, 3}) {
      std::vector<int64_t> all;
      size_t batches = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto mine = BatchesOf({pad, rank, world}, 41, 2);  // 21 rows
        CHECK(rank == 0 || mine.size() == batches);
        batches = mine.size();
        for (const auto &batch : mine) all.insert(all.end(), batch.begin(), batch.end());
      }
      const int64_t of_all = 2 * world;
      CHECK(static_cast<int64_t>(batches) == (21 + (pad ? of_all - 1 : 0)) / of_all);
      CHECK(static_cast<int64_t>(all.size()) == (pad ? 21 : 21 / of_all * of_all));
      CHECK(std::set<int64_t>(all.begin(), all.end()).size() == all.size());
    }
  }
  CHECK(BatchesOf({1, 0, 1}, 0, 2).empty());
}

void TestEpochs() {
  TestOrders();
  TestBatches();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_EPOCHS_H_
