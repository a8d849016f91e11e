// Kernels on one buffer exclude each other, so threads may run compiled graphs and Python methods concurrently.
#ifndef MINDSPORE_REPLAY_EXCLUSIVE_H_
#define MINDSPORE_REPLAY_EXCLUSIVE_H_

#include <array>
#include <cstdint>
#include <mutex>

namespace replay {

// Holds one of 64 process-wide locks, selected by an address that all kernels on a buffer receive.
class Exclusive {
 public:
  explicit Exclusive(const void *address) : guard_(LockOf(address)) {}

  static std::mutex &LockOf(const void *address) {
    static std::array<std::mutex, 64> locks;
    const uint64_t bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address)) * 0x9E3779B97F4A7C15ULL;
    return locks[bits >> 58];
  }

 private:
  std::lock_guard<std::mutex> guard_;
};

}  // namespace replay

#endif  // MINDSPORE_REPLAY_EXCLUSIVE_H_
