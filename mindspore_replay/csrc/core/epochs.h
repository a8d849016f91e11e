// Epochs: each row once, in a random order. The order is a keyed permutation of the positions, so it takes no memory.
#pragma once

#include <cstdint>

#include "core/portable.h"
#include "core/random.h"

namespace replay {

// The epoch in progress, laid out as in its Parameter.
struct Epoch {
  int64_t key;       // key of the order
  int64_t first;     // serial number of the oldest row when the epoch began
  int64_t size;      // rows stored when the epoch began; 0 before the first epoch
  int64_t position;  // positions of the order that were taken
  int64_t begun;     // number of epochs begun
};

// The rule for batches, laid out as in its Tensor.
struct EpochRule {
  int64_t pad;    // 1: the last batch may have fewer rows
  int64_t rank;   // number of this learner
  int64_t world;  // number of learners, which share out each batch of world * n rows
};

REPLAY_BOTH inline bool IsEpoch(const Epoch &epoch, const EpochRule &rule, int64_t capacity) {
  return epoch.size >= 0 && epoch.size <= capacity && epoch.position >= 0 && epoch.position <= 2 * capacity &&
         epoch.first >= 0 && rule.rank >= 0 && rule.rank < rule.world;
}

// A permutation of [0, 2^k), for the smallest 2^k >= size. Its values below `size` are a permutation of [0, size).
class Order {
 public:
  REPLAY_BOTH Order(int64_t key, int64_t size) {
    while ((int64_t{1} << bits_) < size) ++bits_;
    for (int round = 0; round < kRounds; ++round) {
      factors_[round] = RandomBits(static_cast<uint64_t>(key), static_cast<uint64_t>(2 * round)) | 1;
      terms_[round] = RandomBits(static_cast<uint64_t>(key), static_cast<uint64_t>(2 * round + 1));
    }
  }

  REPLAY_BOTH int64_t size() const { return int64_t{1} << bits_; }

  // Each round multiplies by an odd number, adds another, and mixes the upper bits into the lower ones.
  REPLAY_BOTH int64_t operator()(int64_t position) const {
    const uint64_t mask = static_cast<uint64_t>(size()) - 1;
    auto x = static_cast<uint64_t>(position);
    for (int round = 0; round < kRounds; ++round) {
      x = (x * factors_[round] + terms_[round]) & mask;
      x ^= x >> ((bits_ + 1) / 2);
    }
    return static_cast<int64_t>(x);
  }

 private:
  static constexpr int kRounds = 8;
  int bits_ = 0;
  uint64_t factors_[kRounds];
  uint64_t terms_[kRounds];
};

// Writes the slots of this learner's rows of the next batch, and returns their number, or -1 if the epoch has no more
// batch. `slot_of` returns the slot of a serial number, or -1 if its row cannot be drawn.
template <typename SlotOf>
int64_t TakeBatch(const EpochRule &rule, Epoch *epoch, const SlotOf &slot_of, int64_t n, int64_t *slots) {
  const Order order(epoch->key, epoch->size);
  const int64_t end = epoch->size > 0 ? order.size() : 0, wanted = n * rule.world;
  int64_t found = 0, mine = 0, position = epoch->position;
  for (; position < end && found < wanted; ++position) {
    const int64_t row = order(position);
    const int64_t slot = row < epoch->size ? slot_of(epoch->first + row) : -1;
    if (slot < 0) continue;
    if (found++ % rule.world == rule.rank) slots[mine++] = slot;
  }
  if (found < wanted && (rule.pad == 0 || found == 0)) return -1;
  epoch->position = found < wanted ? end : position;
  return mine;
}

}  // namespace replay
