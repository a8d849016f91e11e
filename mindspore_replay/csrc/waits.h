// Whether rows may go into a buffer or out of it now, and who waits until they may. All of it is read and written under the
// lock of the buffer, and may be in memory that processes share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace replay {

// What a call does with rows.
enum Turn : int { kInserts = 0, kSamples = 1 };

// What the calls of a thread mean for a turn: they may go on or fail; they are in a block that waited and counts for them;
// or, if they may not go on yet, the thread is about to wait.
enum Mode : int { kAsks = 0, kInside = 1, kWaits = 2 };

// Nanoseconds of a clock that all processes of the machine share.
inline int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Waits until a number in shared memory is no longer `seen`, at most so many nanoseconds; may return earlier.
inline void SleepOn(const uint32_t *number, uint32_t seen, int64_t nanoseconds) {
#ifdef __linux__
  const timespec most = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  syscall(SYS_futex, number, FUTEX_WAIT, seen, &most, nullptr, 0);
#else
  constexpr int64_t kStep = 1000000;
  if (__atomic_load_n(number, __ATOMIC_SEQ_CST) != seen) return;
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(nanoseconds, kStep)));
#endif
}

// Wakes all that wait for a number to change.
inline void WakeUp(const uint32_t *number) {
#ifdef __linux__
  syscall(SYS_futex, number, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
#else
  (void)number;
#endif
}

// One that waits.
struct Waiter {
  int64_t rows;     // that it waits for; 0 in a place that is free
  int64_t until;    // when it looks again at the latest: after that it is taken for dead
  uint32_t ticket;  // what it sleeps on; 0 once it is woken
  int32_t turn;
};

// The limits of a buffer, laid out as store/waits/limits.py has it.
struct Limits {
  static constexpr int kPlaces = 64;
  static constexpr int64_t kLongest = 1000000000;  // nanoseconds from a look of a waiter to its next, at most
  static constexpr double kRounding = 1e-9;        // relative error of sums of samples
  enum Kind : int64_t { kNone = 0, kRate = 1, kQueue = 2 };

  double low, high, min_size, error, enabled;           // the rule
  int64_t inserted, sampled, counted, counted_samples;  // rows, and those of them that count for the ratio
  int64_t in_progress[4];                               // what blocks in progress will add to these
  int64_t largest[2], usual[2];                         // rows of insertions and samples
  int64_t kind;
  int64_t awaited;  // 0 if all places are free
  int64_t tickets;  // given so far
  Waiter waiters[kPlaces];

  // True if the rule lets rows in or out. Each side's own operations count from their start, those of the other side from
  // their end: a row can be sampled only when it is stored.
  bool Allows(int turn, int64_t rows) const {
    if (enabled == 0) return true;
    double ahead, behind;
    if (turn == kInserts) {
      if (static_cast<double>(inserted + in_progress[0]) < min_size) return true;
      ahead = low * static_cast<double>(counted + in_progress[2] + rows);
      behind = static_cast<double>(counted_samples);
    } else {
      if (static_cast<double>(inserted) < min_size || std::isinf(high))
        return static_cast<double>(inserted) >= min_size;
      ahead = static_cast<double>(counted_samples + in_progress[3] + rows);
      behind = high * static_cast<double>(counted);
    }
    return ahead - behind <= error + kRounding * std::max({1.0, ahead, behind});
  }

  // True if a queue with `available` rows, or as much room, or the rule lets rows in or out.
  bool MayGo(int turn, int64_t rows, int64_t available) const {
    if (kind == kQueue) return rows + in_progress[turn] <= available;
    return kind == kNone || Allows(turn, rows);
  }

  // True if so many rows were never asked for: the caller has to check that both sides can go on with them.
  bool IsNew(int turn, int64_t rows) {
    if (kind != kRate || enabled == 0) return false;
    const bool begun = static_cast<double>(inserted) >= min_size;
    if (turn == kInserts && !begun && static_cast<double>(rows) < min_size) usual[0] = std::max(usual[0], rows);
    return rows > largest[turn] && (turn == kSamples || begun);
  }

  // Sets what rows that go in or out now add to the counts.
  void Add(int turn, int64_t rows, int64_t (&more)[4]) const {
    const int64_t before = inserted + in_progress[0], first = std::max(before, static_cast<int64_t>(min_size));
    const int64_t counting = enabled != 0;
    more[0] = turn == kInserts ? rows : 0;
    more[1] = turn == kSamples ? rows : 0;
    more[2] = turn == kInserts ? std::max<int64_t>(before + rows - first, 0) * counting : 0;
    more[3] = more[1] * counting;
  }

  void Count(int turn, int64_t rows) {
    int64_t more[4];
    Add(turn, rows, more);
    inserted += more[0], sampled += more[1], counted += more[2], counted_samples += more[3];
  }

  // Lets this thread wait for rows, or for room: it is woken once they are there, after which it has to try again.
  void Await(int turn, int64_t rows);

  // Frees the place of this thread, if it has one here.
  void Forget();

  // Wakes those that may go on, the first ones first; `available(turn)` rows, or as much room, are in a queue.
  template <typename Available>
  void Wake(const Available &available) {
    const int64_t now = Now();
    int64_t left[2] = {-1, -1}, waiting = 0;
    for (int i = 0; i < kPlaces; ++i) {
      Waiter &one = waiters[(tickets + i) % kPlaces];
      if (one.rows == 0) continue;
      int64_t &rest = left[one.turn & 1];
      if (kind == kQueue && rest < 0) rest = std::max<int64_t>(available(one.turn) - in_progress[one.turn & 1], 0);
      if (one.until >= now && !(kind == kQueue ? one.rows <= rest : MayGo(one.turn, one.rows, 0))) {
        ++waiting;
        continue;
      }
      rest -= one.rows;
      Wake(&one);
    }
    awaited = waiting;
  }

  void WakeAll() {
    for (Waiter &one : waiters) {
      if (one.rows != 0) Wake(&one);
    }
    awaited = 0;
  }

 private:
  // Its place is free only then: if this process dies in between, another one wakes it.
  static void Wake(Waiter *one) {
    __atomic_store_n(&one->ticket, 0, __ATOMIC_SEQ_CST);
    WakeUp(&one->ticket);
    one->rows = 0;
  }
};

// A block that inserts or samples rows in any way, which count when it ends.
struct Counting {
  int64_t more[4];  // what it adds to the counts
  int64_t begun;    // 1 if it is in progress, 2 if it is with the lock held
};

// What a thread does now: its turns, and the place where it waits.
struct Thread {
  struct Going {
    const void *head;
    int turn;
    int mode;
  };
  std::vector<Going> going;
  Waiter *place = nullptr;
  uint32_t ticket = 0;
  bool is_new = false;  // true if it has not slept there

  static Thread &This() {
    static thread_local Thread thread;
    return thread;
  }

  int ModeOf(const void *head, int turn) const {
    for (const Going &one : going) {
      if (one.head == head && one.turn == turn) return one.mode;
    }
    return kAsks;
  }

  void SetMode(const void *head, int turn, int mode) {
    const auto is_it = [&](const Going &one) { return one.head == head && one.turn == turn; };
    going.erase(std::remove_if(going.begin(), going.end(), is_it), going.end());
    if (mode != kAsks) going.push_back({head, turn, mode});
  }

  // Sleeps until the thread is woken, at most so many nanoseconds. Without a place it soon looks again by itself.
  void Sleep(int64_t nanoseconds) {
    constexpr int64_t kSoon = 2000000;
    if (std::exchange(is_new, false))
      return SleepOn(&place->ticket, ticket, std::min(nanoseconds, Limits::kLongest / 2));
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(nanoseconds, kSoon)));
  }
};

inline void Limits::Forget() {
  Thread &thread = Thread::This();
  const bool is_here = thread.place >= waiters && thread.place < waiters + kPlaces;
  if (is_here && thread.place->ticket == thread.ticket) thread.place->rows = 0;
  thread.place = nullptr;
}

inline void Limits::Await(int turn, int64_t rows) {
  Forget();
  Thread &thread = Thread::This();
  const int64_t now = Now();
  Waiter *place = nullptr;
  for (int i = 0; i < kPlaces && place == nullptr; ++i) {
    Waiter &one = waiters[(tickets + i) % kPlaces];
    if (one.rows == 0 || one.until < now) place = &one;
  }
  thread.place = place;
  thread.is_new = place != nullptr;
  if (place == nullptr) return;
  thread.ticket = static_cast<uint32_t>(++tickets) | 1u << 31;
  *place = {0, now + kLongest, thread.ticket, turn};
  place->rows = rows;
  awaited = 1;
}

}  // namespace replay
