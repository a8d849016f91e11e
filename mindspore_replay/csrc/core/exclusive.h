// Kernels on one buffer exclude each other, so threads may run compiled graphs and Python methods concurrently. On a
// buffer in shared memory, the kernels of all processes exclude each other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace replay {

struct Limits;

// What one process holds of the lock of a buffer in shared memory, or of one with limits.
class ProcessLock {
 public:
  explicit ProcessLock(const void *address) : address_(address) {}
  virtual ~ProcessLock() = default;

  const void *address() const { return address_; }
  // Acquires the lock, for an insertion perhaps after calls that are none. False if it cannot be had.
  virtual bool Enter(bool inserts) = 0;
  virtual void Leave() = 0;
  // Makes all later kernels of this process fail.
  void Close() { closed_.store(true, std::memory_order_relaxed); }
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  virtual bool IsShared() const { return false; }
  Limits *limits() const { return limits_; }
  // Returns the rows that a queue can deliver, or its room for new ones.
  virtual int64_t Available(int) const { return 0; }

 protected:
  Limits *limits_ = nullptr;

 private:
  friend class Locks;
  const void *address_;
  std::atomic<bool> closed_{false};
  ProcessLock *next_ = nullptr;
};

// The lock of a closed buffer that is not shared. No kernel can take it.
struct NoLock : ProcessLock {
  using ProcessLock::ProcessLock;
  bool Enter(bool) override { return false; }
  void Leave() override {}
};

// The lock of a buffer: its own if it is in shared memory or has limits, else one of 64 process-wide locks. An address
// that all kernels on the buffer receive selects it.
class Locks {
 public:
  static Locks &Of(const void *address) {
    static std::array<Locks, 64> locks;
    const uint64_t bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address)) * 0x9E3779B97F4A7C15ULL;
    return locks[bits >> 58];
  }

  // Returns the lock of the buffer at an address in shared memory; null for other memory.
  ProcessLock *Find(const void *address) {
    if (first_.load(std::memory_order_acquire) == nullptr) return nullptr;
    const std::lock_guard<std::mutex> guard(list_);
    ProcessLock *lock = first_;
    while (lock != nullptr && lock->address_ != address) lock = lock->next_;
    return lock;
  }

  void Add(ProcessLock *lock) {
    const std::lock_guard<std::mutex> guard(list_);
    lock->next_ = first_;
    first_ = lock;
  }

  // Deletes the lock of the buffer at an address, if it has one. No other thread may use the buffer any more.
  void Remove(const void *address) {
    ProcessLock *lock = Find(address);
    if (lock == nullptr) return;
    const std::lock_guard<std::mutex> guard(list_);
    if (first_ == lock) {
      first_ = lock->next_;
    } else {
      ProcessLock *before = first_;
      while (before->next_ != lock) before = before->next_;
      before->next_ = lock->next_;
    }
    delete lock;
  }

  // The lock of all buffers at these addresses that are not shared.
  std::recursive_mutex &mutex() { return mutex_; }

 private:
  std::recursive_mutex mutex_;  // a thread that holds a buffer may use another one of the same lock
  std::mutex list_;             // guards the list of process locks
  std::atomic<ProcessLock *> first_{nullptr};
};

// Holds the lock of a buffer.
class Exclusive {
 public:
  explicit Exclusive(const void *address, bool inserts = false)
      : locks_(Locks::Of(address)), process_lock_(locks_.Find(address)) {
    if (process_lock_ == nullptr) {
      locks_.mutex().lock();
      held_ = true;
    } else {
      held_ = !process_lock_->closed() && process_lock_->Enter(inserts);
    }
  }
  ~Exclusive() {
    if (process_lock_ == nullptr) {
      locks_.mutex().unlock();
    } else if (held_) {
      process_lock_->Leave();
    }
  }
  Exclusive(const Exclusive &) = delete;
  Exclusive &operator=(const Exclusive &) = delete;

  bool held() const { return held_; }
  ProcessLock *process_lock() const { return process_lock_; }

 private:
  Locks &locks_;
  ProcessLock *process_lock_;
  bool held_;
};

}  // namespace replay
