// What Python does with a buffer apart from kernels: it holds the buffer's lock, shares the buffer with other
// processes, closes it, and waits for changes by other processes.
#include <cstdint>
#include <memory>
#include <mutex>

#include "adapters.h"
#include "core/checksum.h"
#include "core/exclusive.h"
#include "core/status.h"
#include "faults.h"
#include "log.h"
#include "shared.h"

namespace replay {

// Locks and unlocks the kernels of a buffer while Python reads or writes several of its arrays. The address is that of
// the buffer's head.
MINDSPORE_REPLAY_EXPORT int replay_hold(const void *head) {
  Locks &locks = Locks::Of(head);
  ProcessLock *process_lock = locks.Find(head);
  if (process_lock != nullptr && HasFailed(head)) return kNoDisk;
  if (process_lock != nullptr) return process_lock->Enter(false) ? kOk : kNoLock;
  locks.mutex().lock();
  return kOk;
}

MINDSPORE_REPLAY_EXPORT int replay_let_go(const void *head) {
  Locks &locks = Locks::Of(head);
  ProcessLock *process_lock = locks.Find(head);
  if (process_lock == nullptr) {
    locks.mutex().unlock();
    return kOk;
  }
  process_lock->Leave();
  return HasFailed(head) ? kNoDisk : kOk;
}

// Guards the memory of a file against the failure of its disk, up to `replay_end_guard`.
MINDSPORE_REPLAY_EXPORT void replay_guard(char *memory, int64_t bytes, const void *head) { Guard(memory, bytes, head); }
MINDSPORE_REPLAY_EXPORT void replay_end_guard(const void *head) { EndGuard(head); }

// Announces that all rows of a held buffer are about to be replaced.
MINDSPORE_REPLAY_EXPORT void replay_replace(const void *head) {
  if (Shared *shared = SharedOf(Locks::Of(head).Find(head))) shared->Evict(kNoRows);
}

// Repairs a held buffer as after a death: the journal's cursors count, and the rows' own state.
MINDSPORE_REPLAY_EXPORT void replay_repair(const void *head) {
  if (Shared *shared = SharedOf(Locks::Of(head).Find(head))) shared->Repair();
}

// Computes the checksums of the rows in n slots, by their places in `slots` or, `by_slot`, by the slots themselves.
MINDSPORE_REPLAY_EXPORT void replay_checksums(const RowPart *parts, int64_t n_parts, const int64_t *slots, int64_t n,
                                              uint32_t *sums, int by_slot) {
  for (int64_t i = 0; i < n; ++i) {
    uint64_t sum = 0;
    for (int64_t j = 0; j < n_parts; ++j) sum = parts[j].Add(slots[i], sum);
    sums[by_slot ? slots[i] : i] = static_cast<uint32_t>(sum ^ sum >> 32);
  }
}

// Returns the checksum of memory.
MINDSPORE_REPLAY_EXPORT int64_t replay_checksum(const char *memory, int64_t bytes) {
  return static_cast<int64_t>(Checksum(memory, bytes, 0));
}

// Calls `TakeChanges`, and adds more pieces of the columns. Returns the bytes of the entry, or 0 if it has no room.
MINDSPORE_REPLAY_EXPORT int64_t replay_take_changes(const FlushedMemory *memory, char *image, int64_t unknown,
                                                    const Piece *arrays, int64_t n_arrays, const int64_t *slots,
                                                    int64_t n, const Piece *more, int64_t n_more, char *entry,
                                                    int64_t room) {
  LogEntry made(entry, room);
  TakeChanges(*memory, image, unknown, arrays, n_arrays, slots, n, &made);
  for (int64_t i = 0; i < n_more; ++i) made.Put(*memory, more[i]);
  return made.Finish();
}

// Copies what differs between two images to the second.
MINDSPORE_REPLAY_EXPORT void replay_copy_differences(const char *from, char *to, int64_t bytes) {
  CopyDifferences(from, to, 0, bytes, [](const Piece &) {});
}

// Calls `ReplayPieces`.
MINDSPORE_REPLAY_EXPORT int replay_pieces(const FlushedMemory *memory, const char *pieces, int64_t bytes, int copy) {
  return ReplayPieces(*memory, pieces, bytes, copy != 0);
}

// Shares a buffer with other processes; `writer` identifies this one. The arguments after `beyond_memory` are those of
// `update`, for one row, and must stay valid until `replay_unshare`. With `sole_user`, the journal's lock is made anew
// and an interrupted operation is repaired. With `beyond_memory`, rows are read ahead.
MINDSPORE_REPLAY_EXPORT int replay_share(void *journal, int64_t writer, int sole_user, int beyond_memory,
                                         Limits *limits, int nparam, void **params, int *ndims, int64_t **shapes,
                                         const char **dtypes) {
  const Arguments args(nparam, params, ndims, shapes, dtypes);
  Binding binding;
  if (!Binder<OperatorNumber("update")>(args, &binding).Bind()) return kBadArguments;
  auto shared =
      std::make_unique<Shared>(static_cast<Journal *>(journal), writer, beyond_memory != 0, limits, args, binding);
  if (sole_user != 0 && !shared->Begin()) return kNoLock;
  Locks::Of(shared->address()).Add(shared.release());
  return kOk;
}

// Lets insertions into a shared buffer fail once an open file of its folder is deleted.
MINDSPORE_REPLAY_EXPORT void replay_watch(const void *head, int file) {
  if (Shared *shared = SharedOf(Locks::Of(head).Find(head))) shared->Watch(file);
}

// Makes all later kernels on a buffer in this process fail. Waits for those in progress, unless the buffer is shared.
MINDSPORE_REPLAY_EXPORT void replay_close(const void *head) {
  Locks &locks = Locks::Of(head);
  const std::lock_guard<std::recursive_mutex> guard(locks.mutex());
  if (locks.Find(head) == nullptr) locks.Add(new NoLock(head));
  locks.Find(head)->Close();
}

MINDSPORE_REPLAY_EXPORT void replay_unshare(const void *head) { Locks::Of(head).Remove(head); }

// Lets the kernels on a buffer that is not shared keep to limits. The arguments after `limits` are those of `update`, as for
// `replay_share`; none for limits without rows.
MINDSPORE_REPLAY_EXPORT int replay_limit(const void *head, Limits *limits, int nparam, void **params, int *ndims,
                                         int64_t **shapes, const char **dtypes) {
  const Arguments args(nparam, params, ndims, shapes, dtypes);
  Binding binding;
  if (nparam > 0 && !Binder<OperatorNumber("update")>(args, &binding).Bind()) return kBadArguments;
  Locks::Of(head).Add(new Limited(head, limits, nparam > 0 ? &args : nullptr, binding));
  return kOk;
}

// Sets what calls of this thread on a buffer mean for a turn, and returns what they meant before.
MINDSPORE_REPLAY_EXPORT int replay_mode(const void *head, int turn, int mode) {
  const int before = Thread::This().ModeOf(head, turn);
  if (mode >= 0) Thread::This().SetMode(head, turn, mode);
  if (mode == kAsks) {
    const Exclusive exclusive(head);
    if (exclusive.held()) exclusive.process_lock()->limits()->Forget();
  }
  return before;
}

// True if rows may go in or out now, of a queue with so many that are available.
MINDSPORE_REPLAY_EXPORT int replay_may_go(const void *head, int turn, int64_t rows, int64_t available) {
  const Exclusive exclusive(head);
  return exclusive.held() && exclusive.process_lock()->limits()->MayGo(turn, rows, available);
}

// Lets a block begin if rows may go in or out now, as for `replay_may_go`; perhaps one whose caller holds the lock until it
// ends. If they may not, this thread may sleep.
MINDSPORE_REPLAY_EXPORT int replay_begin_block(const void *head, int turn, int64_t rows, int64_t available, int holds,
                                               Counting *block) {
  const Exclusive exclusive(head);
  if (!exclusive.held()) return kNoLock;
  Limits &limits = *exclusive.process_lock()->limits();
  if (!limits.MayGo(turn, rows, available)) {
    limits.Await(turn, rows);
    return kNotYet;
  }
  limits.Forget();
  limits.Add(turn, rows, block->more);
  for (int i = 0; i < 4 && holds == 0; ++i) limits.in_progress[i] += block->more[i];
  block->begun = holds == 0 ? 1 : 2;
  Thread::This().SetMode(head, turn, kInside);
  return kOk;
}

// Ends a block of `rows` rows, unless it has ended, and counts `done` of them.
MINDSPORE_REPLAY_EXPORT void replay_end_block(const void *head, int64_t done, int64_t rows, Counting *block) {
  const Exclusive exclusive(head);
  if (!exclusive.held() || block->begun == 0) return;
  Limits &limits = *exclusive.process_lock()->limits();
  int64_t *counts[] = {&limits.inserted, &limits.sampled, &limits.counted, &limits.counted_samples};
  for (int i = 0; i < 4; ++i) {
    if (block->begun == 1) limits.in_progress[i] -= block->more[i];
    *counts[i] += done == rows ? block->more[i] : block->more[i] * done / rows;
  }
  block->begun = 0;
}

// Counts rows that went in or out elsewhere.
MINDSPORE_REPLAY_EXPORT void replay_count(const void *head, int turn, int64_t rows) {
  const Exclusive exclusive(head);
  if (exclusive.held()) exclusive.process_lock()->limits()->Count(turn, rows);
}

// Wakes all that wait for a buffer.
MINDSPORE_REPLAY_EXPORT void replay_wake_all(const void *head) {
  const Exclusive exclusive(head);
  if (exclusive.held()) exclusive.process_lock()->limits()->WakeAll();
}

// Lets this thread sleep until the rows are there for which it had to wait, at most so many nanoseconds.
MINDSPORE_REPLAY_EXPORT void replay_sleep(int64_t nanoseconds) { Thread::This().Sleep(nanoseconds); }

}  // namespace replay
