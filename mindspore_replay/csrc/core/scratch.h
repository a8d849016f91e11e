// Vectors of kernels, in memory that a thread keeps for its next kernel. Whenever a thread allocates 1 kB or more, the
// GNU C library first merges all small blocks that were freed, for example those of the last batch's Tensors, and the
// next Tensors take twice as long to make.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#ifdef __SANITIZE_ADDRESS__  // it shall find accesses beyond a vector's end or after its lifetime
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) (static_cast<void>(memory), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) (static_cast<void>(memory), static_cast<void>(bytes))
#endif

namespace replay {

// Blocks of 1 kB to 64 kB, powers of two. Smaller and larger blocks come from the C library; so do all blocks while the
// thread's destructors run, in any order.
class Blocks {
 public:
  static void *Take(size_t bytes) {
    const int size = SizeOf(bytes);
    return size < 0 || ended_ ? ::operator new(bytes) : OfThread().TakeOf(size, bytes);
  }

  static void Return(void *block, size_t bytes) {
    const int size = SizeOf(bytes);
    size < 0 || ended_ ? ::operator delete(block) : OfThread().ReturnOf(size, block);
  }

  Blocks() = default;
  Blocks(const Blocks &) = delete;
  Blocks &operator=(const Blocks &) = delete;
  ~Blocks() {
    ended_ = true;
    for (int size = 0; size < kSizes; ++size) {
      for (void *block : kept_[size]) {
        ASAN_UNPOISON_MEMORY_REGION(block, kSmallest << size);
        ::operator delete(block);
      }
    }
  }

 private:
  static constexpr size_t kSmallest = 1 << 10;
  static constexpr int kSizes = 7;

  static Blocks &OfThread() {
    static thread_local Blocks blocks;
    return blocks;
  }

  void *TakeOf(int size, size_t bytes) {
    std::vector<void *> &kept = kept_[size];
    if (kept.empty()) {
      kept.reserve(kept.capacity() + 1);  // room for every block that was made, so that `Return` allocates nothing
      kept.push_back(::operator new(kSmallest << size));
    }
    void *block = kept.back();
    kept.pop_back();
    ASAN_POISON_MEMORY_REGION(block, kSmallest << size);
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
    return block;
  }

  void ReturnOf(int size, void *block) {
    ASAN_POISON_MEMORY_REGION(block, kSmallest << size);
    kept_[size].push_back(block);
  }

  static int SizeOf(size_t bytes) {
    if (bytes < kSmallest) return -1;
    for (int size = 0; size < kSizes; ++size) {
      if (bytes <= kSmallest << size) return size;
    }
    return -1;
  }

  std::vector<void *> kept_[kSizes];
  static inline thread_local bool ended_ = false;
};

template <typename T>
struct Scratch {
  using value_type = T;

  Scratch() = default;
  template <typename Other>
  Scratch(const Scratch<Other> &) {}

  T *allocate(size_t n) { return static_cast<T *>(Blocks::Take(n * sizeof(T))); }
  void deallocate(T *memory, size_t n) { Blocks::Return(memory, n * sizeof(T)); }

  friend bool operator==(const Scratch &, const Scratch &) { return true; }
  friend bool operator!=(const Scratch &, const Scratch &) { return false; }
};

template <typename T>
using Vector = std::vector<T, Scratch<T>>;

}  // namespace replay
