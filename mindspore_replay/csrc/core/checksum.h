// Checksums of rows in files. Not for enemies: a file that was altered on purpose may fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace replay {

// Adds bytes to a checksum. Four sums take every fourth word each, since one would wait for its own multiplications.
// Each step is a permutation of its sum, so a change within one word always changes the result.
inline uint64_t Checksum(const char *data, int64_t bytes, uint64_t sum) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ULL;
  constexpr int64_t kWord = sizeof(uint64_t), kSums = 4;
  const auto add = [](uint64_t before, uint64_t word) {
    before = (before ^ word) * kFactor;
    return before ^ before >> 32;
  };
  uint64_t sums[kSums] = {sum, sum + 1, sum + 2, sum + 3}, words[kSums] = {};
  for (; bytes >= kSums * kWord; data += kSums * kWord, bytes -= kSums * kWord) {
    std::memcpy(words, data, sizeof(words));
    for (int i = 0; i < kSums; ++i) sums[i] = add(sums[i], words[i]);
  }
  uint64_t rest[kSums] = {};
  std::memcpy(rest, data, static_cast<size_t>(bytes));
  for (int i = 0; i * kWord < bytes; ++i) sums[i] = add(sums[i], rest[i]);
  sum = add(sums[0], static_cast<uint64_t>(bytes));
  for (int i = 1; i < kSums; ++i) sum = add(sum, sums[i]);
  return sum;
}

}  // namespace replay
