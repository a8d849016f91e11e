// A buffer whose arrays are in memory shared by processes: its lock, and a journal from which the next holder of the
// lock repairs the state if a process died within an operation.
//
// Cursors move last: `Commit` records them when an operation is complete, and the recorded ones count. Rows that an
// insertion evicts leave the recorded range before they are overwritten. A row that is changed where it lies is first
// copied to the undo row. All else follows from these: head and count, the tree, and the eligible rows.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>

#ifdef __linux__  // robust locks
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#endif

#include "binding.h"
#include "buffer.h"
#include "core/exclusive.h"
#include "core/scratch.h"
#include "waits.h"

namespace replay {

// Returns the rows that a queue can deliver, or its room for new ones.
inline int64_t AvailableIn(const Bound<OperatorNumber("update")> &args, const State &state, int turn) {
  int64_t rows = 0;
  WithRows(args, state, [&](const auto &all) {
    const RowState &row_state = all.row_state();
    rows = turn == kSamples            ? static_cast<int64_t>(row_state.tree.Positive())
           : row_state.rule->keep == 0 ? std::numeric_limits<int64_t>::max() / 2
                                       : RoomOf(all);
    return kOk;
  });
  return rows;
}

// The arguments of `update`, which must outlive this object: all arrays, and the undo row or any as the row to write.
struct AllArrays {
  using Args = Bound<OperatorNumber("update")>;
  AllArrays(const Arguments &given, const Binding &bound)
      : raw(given), binding(bound), args(raw, binding), state(StateOf(args)) {}
  const Arguments raw;
  const Binding binding;
  const Args args;
  const State state;
};

// The lock of a buffer with limits that is not shared.
class Limited : public ProcessLock {
 public:
  // `args` match the signature of `update`, as for `Shared`; null for limits that need no rows, or cannot see them.
  Limited(const void *address, Limits *limits, const Arguments *args, const Binding &binding)
      : ProcessLock(address), mutex_(Locks::Of(address).mutex()) {
    limits_ = limits;
    if (args != nullptr) rows_ = std::make_unique<AllArrays>(*args, binding);
  }

  bool Enter(bool) override {
    mutex_.lock();
    ++depth_;
    return true;
  }

  void Leave() override {
    if (--depth_ == 0 && limits_->awaited != 0) {
      if (limits_->kind == Limits::kQueue && rows_ == nullptr) limits_->WakeAll();
      limits_->Wake([this](int turn) { return Available(turn); });
    }
    mutex_.unlock();
  }

  int64_t Available(int turn) const override {
    return rows_ == nullptr ? 0 : AvailableIn(rows_->args, rows_->state, turn);
  }

 private:
  std::recursive_mutex &mutex_;
  std::unique_ptr<AllArrays> rows_;
  int depth_ = 0;  // the mutex guards it
};

// In shared memory, laid out as store/folder/sharing.py has it.
struct Journal {
  alignas(8) char mutex[64];
  int64_t busy;      // 1 while the lock is held
  int64_t inserted;  // rows inserted by complete operations
  int64_t oldest;    // serial number of the oldest stored row that is not being overwritten
  int64_t slot;      // slot of the undo row; -1 for none
  int64_t serial;    // state of the undo row, as far as the buffer has such arrays
  int64_t uses;
  int64_t clock;
  int64_t writer;  // identity of the process that inserted last
  float priority;
  alignas(8) char line[64];
  uint32_t asking;  // changes with each call that asks insertions to let it go first; 0 once one was let
  uint32_t asks;    // how many did
};

// A value of `oldest`: all rows are being replaced, and none of them is left if that does not end.
constexpr int64_t kNoRows = std::numeric_limits<int64_t>::max();

// Sets a number of the journal: after all memory accesses before the call, and before all that follow.
template <typename T>
void Record(T *number, T value) {
  __atomic_store_n(number, value, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#ifdef __linux__
// Returns the number of this process, also of one that was forked.
inline int64_t &ProcessNumber() {
  static int64_t number = [] {
    pthread_atfork(nullptr, nullptr, [] { ProcessNumber() = getpid(); });
    return getpid();
  }();
  return number;
}

// A lock that processes share, and that its holder's death releases.
class RobustLock {
 public:
  explicit RobustLock(char *memory) : mutex_(reinterpret_cast<pthread_mutex_t *>(memory)) {
    static_assert(sizeof(pthread_mutex_t) <= sizeof(Journal::mutex));
  }

  bool Make() const {
    pthread_mutexattr_t attributes;
    if (pthread_mutexattr_init(&attributes) != 0) return false;
    const bool made = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                      pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                      pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) == 0 &&
                      pthread_mutex_init(mutex_, &attributes) == 0;
    pthread_mutexattr_destroy(&attributes);
    return made;
  }

  // Returns 0, EOWNERDEAD if the lock is held but its last holder died, or an error.
  int Lock() const { return pthread_mutex_lock(mutex_); }
  int TryLock() const { return pthread_mutex_trylock(mutex_); }
  // Returns ETIMEDOUT if it could not be had within so many nanoseconds.
  int LockWithin(int64_t nanoseconds) const {
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nanoseconds;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(mutex_, &until);
  }
  void Repaired() const { pthread_mutex_consistent(mutex_); }
  void Unlock() const { pthread_mutex_unlock(mutex_); }

 private:
  pthread_mutex_t *mutex_;
};
#else
inline int64_t ProcessNumber() { return 0; }

struct RobustLock {
  explicit RobustLock(char *) {}
  bool Make() const { return false; }
  int Lock() const { return ENOSYS; }
  int TryLock() const { return ENOSYS; }
  int LockWithin(int64_t) const { return ENOSYS; }
  void Repaired() const {}
  void Unlock() const {}
};
#endif

class Shared : public ProcessLock {
 public:
  // `args` match the signature of `update`. They and the memory must outlive this object. `writer` is a random number.
  // With `beyond_memory`, the files are larger than memory.
  Shared(Journal *journal, int64_t writer, bool beyond_memory, Limits *limits, const Arguments &args,
         const Binding &binding)
      : ProcessLock(args.data<void>(binding.at[kSignature<OperatorNumber("update")>.At("head")])),
        journal_(*journal),
        lock_(journal->mutex),
        line_(journal->line),
        all_(args, binding),
        writer_(writer),
        beyond_memory_(beyond_memory) {
    limits_ = limits;
  }

  bool IsShared() const override { return true; }
  int64_t Available(int turn) const override { return AvailableIn(args_, state_, turn); }

#ifdef __linux__
  ~Shared() override {
    if (file_ >= 0) close(file_);
  }

  // Watches whether an open file of the folder is deleted.
  void Watch(int file) { file_ = fcntl(file, F_DUPFD_CLOEXEC, 0); }

  // True if the folder was deleted. It asks the system once a second. The caller holds the lock.
  bool IsDeleted() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    struct stat found;
    if (now.tv_sec != asked_ && file_ >= 0 && fstat(file_, &found) == 0) deleted_ = found.st_nlink == 0;
    asked_ = now.tv_sec;
    return deleted_;
  }
#else
  void Watch(int) {}
  bool IsDeleted() { return false; }
#endif

  // Makes the lock anew: no process may use it. Repairs the state if an operation was interrupted.
  bool Begin() {
    if (!lock_.Make() || !line_.Make()) return false;
    journal_.asking = 0;
    if (journal_.busy != 0) Repair();
    return true;
  }

  bool Enter(bool inserts) override {
    const int result = owner_.load(std::memory_order_relaxed) == &Thread::This() ? lock_.Lock() : Acquire(inserts);
    if (result == EOWNERDEAD) {
      Repair();
      lock_.Repaired();
    } else if (result != 0) {
      return false;
    }
    ++depth_;
    owner_.store(&Thread::This(), std::memory_order_relaxed);
    Record<int64_t>(&journal_.busy, 1);
    return true;
  }

  void Leave() override {
    if (--depth_ == 0) {
      Commit();
      // Only now, since those that wake up must find the rows; and before the lock is free, so that the next holder wakes
      // them if this process dies meanwhile.
      if (limits_->awaited != 0) limits_->Wake([this](int turn) { return Available(turn); });
      Record<int64_t>(&journal_.busy, 0);
      owner_.store(nullptr, std::memory_order_relaxed);
    }
    lock_.Unlock();
  }

  // True if this process may insert after the process that inserted last: rows of one episode come from one process.
  bool MayFollow(bool open_episode) const { return !open_episode || journal_.writer == Writer(); }
  void Inserts() { journal_.writer = Writer(); }

  // Announces that rows before this serial number are about to be overwritten.
  void Evict(int64_t oldest) { Record(&journal_.oldest, oldest); }

  // Saves the row in a slot, which may then be overwritten until `Keep`.
  void Save(int64_t slot) {
    CopyRow(slot, true);
    if (args_.HasGroup(kReservoirGroup)) journal_.serial = state_.row_serials[slot];
    if (args_.HasGroup(kRowStateGroup)) {
      const RowState &row_state = state_.row_state;
      journal_.priority = row_state.priorities[slot];
      journal_.uses = row_state.use_counts[slot];
      journal_.clock = row_state.insertion_clocks[slot];
    }
    Record(&journal_.slot, slot);
  }

  // Announces that rows from a slot on are about to be read or written. The system then reads all announced rows from
  // the disk at once, while a copy would wait for one page after the other.
  void Expect(int64_t slot, int64_t rows) const {
    if (!beyond_memory_) return;
    const int64_t capacity = args_.capacity(), before_end = std::min(rows, capacity - slot);
    for (int i = 0; i < args_.columns(); ++i) {
      Advise(args_.raw().data<char>(i), slot * args_.RowBytes(i), before_end * args_.RowBytes(i));
      if (rows > before_end) Advise(args_.raw().data<char>(i), 0, std::min(rows, capacity) * args_.RowBytes(i));
    }
  }

  void Keep() { Record<int64_t>(&journal_.slot, -1); }

  // Completes or undoes the interrupted operation, and computes what follows from the rows anew. It can itself be
  // interrupted and begun anew.
  void Repair() {
    if (journal_.slot >= 0 && journal_.slot < args_.capacity()) Undo(journal_.slot);
    Keep();
    const bool emptied = journal_.oldest == kNoRows;
    if (args_.HasGroup(kReservoirGroup)) {
      RepairReservoir(emptied);
    } else {
      RepairRing(emptied);
    }
    if (args_.HasGroup(kRowStateGroup)) RepairRows(emptied);
    Commit();
  }

 private:
  // Acquires the lock. An insertion that meets another call stands in line, so that at most one of them is before any
  // other call. Whoever is overtaken for too long asks insertions to let it go first. Nobody waits for a turn that is not
  // taken: whoever is asked lets others go once, for a short time, and whoever stands in line only delays those behind.
  int Acquire(bool inserts) {
    constexpr int64_t kInLine = 20000000, kAgain = 1000000, kLongest = 2000000;  // nanoseconds
    int result = !inserts || Asking() == 0 ? lock_.TryLock() : EBUSY;
    if (result != EBUSY) return result;
    const int stood = inserts ? line_.LockWithin(kInLine) : ETIMEDOUT;
    if (stood == EOWNERDEAD) line_.Repaired();
    if (stood != ETIMEDOUT) {
      if (const uint32_t asking = Asking(); asking != 0) {
        SleepOn(&journal_.asking, asking, kLongest);
        Replace(asking, 0);  // whoever asked has died, or does not run
      }
      result = lock_.LockWithin(kAgain);
    }
    while (result == EBUSY || result == ETIMEDOUT) {
      const uint32_t asking = __atomic_add_fetch(&journal_.asks, 1, __ATOMIC_SEQ_CST) | 1u << 31;
      if (inserts) Replace(0, asking);  // only if nobody asks
      if (!inserts) Record(&journal_.asking, asking);
      result = lock_.LockWithin(kAgain);
      if (Replace(asking, 0)) WakeUp(&journal_.asking);
    }
    if (stood != ETIMEDOUT) line_.Unlock();
    return result;
  }

  uint32_t Asking() const { return __atomic_load_n(&journal_.asking, __ATOMIC_SEQ_CST); }
  bool Replace(uint32_t asking, uint32_t next) {
    return __atomic_compare_exchange_n(&journal_.asking, &asking, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }

  // Identifies this process among all that ever used the buffer.
  int64_t Writer() const { return writer_ ^ ProcessNumber(); }

  void Commit() {
    Record(&journal_.inserted, state_.serials[0]);
    Record(&journal_.oldest, state_.serials[0] - *state_.count);
  }

  // A column begins at a page.
  static void Advise(char *column, int64_t begin, int64_t bytes) {
#ifdef __linux__
    const int64_t page = begin & ~int64_t{4095};
    madvise(column + page, static_cast<size_t>(begin + bytes - page), MADV_WILLNEED);
#else
    (void)column, (void)begin, (void)bytes;
#endif
  }

  // Copies the row in a slot to the undo row, or back.
  void CopyRow(int64_t slot, bool out) const {
    for (int i = 0; i < args_.columns(); ++i) {
      const int64_t bytes = args_.RowBytes(i);
      char *row = args_.raw().data<char>(i) + slot * bytes;
      char *undo = args_.raw().data<char>(args_.at(NAMED("rows")) + i);
      std::memcpy(out ? undo : row, out ? row : undo, static_cast<size_t>(bytes));
    }
  }

  void Undo(int64_t slot) const {
    CopyRow(slot, false);
    if (args_.HasGroup(kReservoirGroup)) state_.row_serials[slot] = journal_.serial;
    if (!args_.HasGroup(kRowStateGroup)) return;
    const RowState &row_state = state_.row_state;
    row_state.priorities[slot] = journal_.priority;
    row_state.use_counts[slot] = static_cast<int32_t>(journal_.uses);
    row_state.insertion_clocks[slot] = journal_.clock;
  }

  // Sets the cursors to those of the complete operations.
  void RepairRing(bool emptied) const {
    int64_t *numbers = state_.serials;
    numbers[0] = journal_.inserted;
    numbers[1] = emptied ? numbers[0] : std::min(numbers[1], numbers[0]);
    const int64_t stored = emptied ? 0 : std::max<int64_t>(numbers[0] - std::max(journal_.oldest, numbers[1]), 0);
    *state_.count = static_cast<int32_t>(std::min(stored, args_.capacity()));
    *state_.head = static_cast<int32_t>((numbers[0] - numbers[1] - *state_.count) % args_.capacity());
  }

  // Rows that were stored by an interrupted insertion stay: each is complete.
  void RepairReservoir(bool emptied) const {
    int64_t *numbers = state_.serials;
    const int64_t *row_serials = state_.row_serials;
    numbers[0] = journal_.inserted;
    numbers[1] = emptied ? numbers[0] : std::min(numbers[1], numbers[0]);
    for (int64_t stored = -1; stored != std::min(numbers[0] - numbers[1], args_.capacity());) {
      stored = std::min(numbers[0] - numbers[1], args_.capacity());
      for (int64_t slot = 0; slot < stored; ++slot) numbers[0] = std::max(numbers[0], row_serials[slot] + 1);
    }
    *state_.count = static_cast<int32_t>(std::min(numbers[0] - numbers[1], args_.capacity()));
    *state_.head = 0;
  }

  // Sets what follows from the cursors and the rows' own state.
  void RepairRows(bool emptied) const {
    const RowState &row_state = state_.row_state;
    const int64_t inserted = state_.serials[0], oldest = inserted - *state_.count, capacity = args_.capacity();
    int64_t *fresh = &row_state.clock->fresh;
    row_state.clock->unordered = std::min(row_state.clock->unordered, inserted);
    *fresh = args_.HasGroup(kReservoirGroup) ? state_.serials[1] : std::min(std::max(*fresh, oldest), inserted);
    if (emptied) {
      row_state.Reset(*fresh, capacity, kFill);
      if (args_.HasGroup(kEpisodesGroup)) state_.Get<Timeline>().Reset(kFill);
      return;
    }
    if (args_.HasGroup(kEpisodesGroup)) RepairEnds();
    WithRows(args_, state_, [&](const auto &rows) {
      for (int64_t i = 0; i < *state_.count; ++i) rows.FinishDeletion(SlotOf(i, *state_.head, capacity));
      row_state.tree.Clear(kFill);
      for (int64_t i = 0; i < *state_.count; ++i) {
        const int64_t stored = SlotOf(i, *state_.head, capacity), handle = rows.places().HandleOf(stored);
        const int64_t slot = KeptSlot(rows, handle);
        *row_state.max_priority = std::max(*row_state.max_priority, row_state.priorities[stored]);
        if (slot < 0 || !rows.MayStart(handle, slot)) continue;
        row_state.tree.SetLeaf(slot, (*row_state.rule)(row_state.priorities[slot]));
      }
      Vector<int64_t> slots(static_cast<size_t>(capacity));
      std::iota(slots.begin(), slots.end(), 0);
      row_state.tree.Refresh(&slots);
      return kOk;
    });
  }

  void RepairEnds() const {
    const int64_t column = state_.rule->terminated;
    if (column < 0 || column >= args_.columns()) return;
    state_.Get<Timeline>().RepairEnds(BoolRowsOf(args_, static_cast<int>(column), static_cast<int>(column)));
  }

  Journal &journal_;
  const RobustLock lock_, line_;
  std::atomic<const Thread *> owner_{nullptr};  // the thread of this process that holds the lock
  const AllArrays all_;
  const AllArrays::Args &args_ = all_.args;
  const State &state_ = all_.state;
  const int64_t writer_;
  const bool beyond_memory_;
  int depth_ = 0;  // of this process; the lock guards it
#ifdef __linux__
  int file_ = -1;
  int64_t asked_ = 0;
  bool deleted_ = false;
#endif
};

// The lock of a buffer as that of one in shared memory; null for another one.
inline Shared *SharedOf(ProcessLock *lock) {
  return lock != nullptr && lock->IsShared() ? static_cast<Shared *>(lock) : nullptr;
}

// Announces the rows in these slots, if they are in shared memory. Not inlined: it would change how callers are
// compiled.
__attribute__((noinline, cold)) inline void ExpectRows(const Shared *shared, const Vector<int64_t> &slots) {
  if (shared == nullptr) return;
  for (const int64_t slot : slots) shared->Expect(slot, 1);
}

}  // namespace replay
