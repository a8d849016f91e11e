// Rows in time: the step of each row in its episode, the ends of episodes, and the valid starts of windows. A valid
// start has its weight in the tree, every other row weighs zero, so a draw needs no rejection. The rows of one
// insertion belong to `streams` environments in turn; neighbours in time are that many slots apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/marks.h"
#include "core/portable.h"
#include "core/ring.h"
#include "core/rows.h"
#include "core/scratch.h"

namespace replay {

// The rule for valid windows, in steps of one stream; laid out as in its Tensor.
struct WindowRule {
  int64_t past;        // steps before the start; fewer at the beginning of an episode
  int64_t future;      // steps from the start on, start included
  int64_t stride;      // period of starts, counted from the first step of the episode
  int64_t pad_end;     // 1: a window may extend beyond the end of its episode, kPadOpen: also beyond the newest row
  int64_t streams;     // environments that write in lockstep
  int64_t max_length;  // maximum steps of an episode, 0 for no limit
  int64_t terminated;  // column that is nonzero where an episode has terminated, -1 for none
  int64_t needs_next;  // 1: the observation after a row is that of the next row
};

constexpr int64_t kPadOpen = 2;

REPLAY_BOTH inline bool IsRule(const WindowRule &rule, int64_t capacity) {
  const int64_t most = std::numeric_limits<int32_t>::max();
  return rule.past >= 0 && rule.past <= most && rule.future >= 1 && rule.future <= most && rule.stride >= 1 &&
         rule.streams >= 1 && rule.streams <= capacity && rule.terminated >= -1 && rule.terminated < most;
}

// The start row of a window, and the steps of its episode around it.
struct Start {
  int64_t slot;
  int64_t serial;
  int64_t before;  // steps of the episode before it, at most `past`
  int64_t after;   // steps of the episode from it on, itself included
};

class Timeline {
 public:
  REPLAY_BOTH Timeline(const Cursors &ring, const RowState &row_state, const WindowRule &rule, int64_t *steps,
                       uint8_t *flags)
      : ring_(ring), row_state_(row_state), rule_(rule), steps_(steps), flags_(flags) {}

  REPLAY_BOTH const Cursors &places() const { return ring_; }
  REPLAY_BOTH const RowState &row_state() const { return row_state_; }
  REPLAY_BOTH int64_t streams() const { return rule_.streams; }
  REPLAY_BOTH int64_t steps(int64_t slot) const { return steps_[slot]; }
  REPLAY_BOTH uint8_t flags(int64_t slot) const { return flags_[slot]; }
  REPLAY_BOTH int64_t Oldest() const { return ring_.inserted - ring_.count; }

  // Slots of the next and previous row of the same stream.
  REPLAY_BOTH int64_t Next(int64_t slot) const { return Wrapped(slot + rule_.streams); }
  REPLAY_BOTH int64_t Previous(int64_t slot) const { return Wrapped(slot - rule_.streams + ring_.capacity); }
  // Returns the slot `steps` steps after a slot, at most the length of the ring; negative steps go back.
  REPLAY_BOTH int64_t Shifted(int64_t slot, int64_t steps) const {
    int64_t shifted = slot + steps * rule_.streams;
    if (shifted >= 0 && shifted < ring_.capacity) return shifted;  // a division takes long
    shifted %= ring_.capacity;
    return shifted < 0 ? shifted + ring_.capacity : shifted;
  }

  // Returns the number of steps, from a row on and at most `limit`, that are stored, not deleted, and of its episode;
  // the row itself counts.
  REPLAY_BOTH int64_t After(int64_t serial, int64_t slot, int64_t limit) const {
    int64_t after = 1 + (rule_.streams == 1 ? Unmarked(serial, slot, limit - 1) : 0);
    for (int64_t at = Wrapped(slot + after - 1); after < limit && !(flags_[at] & kEnd); ++after) {
      if (serial + after * rule_.streams >= ring_.inserted) break;
      at = Next(at);
      if (flags_[at] & kDeleted) break;
    }
    return after;
  }

  // True if a window may start at a row. Cost O(window).
  REPLAY_BOTH bool IsValidStart(int64_t serial) const {
    const int64_t slot = ring_.SlotOf(serial);
    if (slot < 0 || row_state_.Removed(slot) || (flags_[slot] & (kFinal | kDeleted))) return false;
    const int64_t past = std::min(rule_.past, steps_[slot]);
    if (serial - past * rule_.streams < Oldest()) return false;
    for (int64_t step = 0, at = slot; step < past; ++step) {
      at = Previous(at);
      if (flags_[at] & kDeleted) return false;
    }
    const int64_t after = After(serial, slot, rule_.future);
    const bool ends = (flags_[Shifted(slot, after - 1)] & kEnd) != 0;
    // With a limit, windows are whole episodes.
    const bool open = rule_.max_length == 0 && (after == rule_.future || IsOpen(serial, after));
    if (!open && !(rule_.pad_end && ends)) return false;
    return steps_[slot] % rule_.stride == 0 || (!rule_.pad_end && ends);
  }

  // True if a window with so many steps from a row on may end here because the newest row does. The observation after
  // that one may be missing, so it does not count.
  REPLAY_BOTH bool IsOpen(int64_t serial, int64_t after) const {
    return rule_.pad_end == kPadOpen && after > rule_.needs_next && serial + after * rule_.streams >= ring_.inserted;
  }

  // Computes the steps of rows to be inserted. Returns false if an episode would exceed `max_length`.
  bool NextSteps(const Marks &marks, Vector<int64_t> *steps) const {
    steps->resize(static_cast<size_t>(marks.n));
    for (int64_t i = 0; i < marks.n; ++i) {
      const int64_t before = i < rule_.streams ? 0 : (*steps)[static_cast<size_t>(i - rule_.streams)];
      const int64_t step = NextStep(marks, i, before);
      if (step < 0) return false;
      (*steps)[static_cast<size_t>(i)] = step;
    }
    return true;
  }

  // Returns the step of row i of the batch; `before` is the step of its predecessor, if that is in the batch. -1 if the
  // episode is too long.
  REPLAY_BOTH int64_t NextStep(const Marks &marks, int64_t i, int64_t before) const {
    const uint8_t said = marks.Said(i);
    int64_t step = 0;
    if (i < rule_.streams) {
      const int64_t slot = ring_.SlotOf(ring_.inserted - rule_.streams + i);
      if (slot >= 0 && Continues(flags_[slot], marks.follows ? said : 0)) step = steps_[slot] + 1;
    } else if (Continues(marks.OwnFlags(i - rule_.streams), said)) {
      step = before + 1;
    }
    return rule_.max_length == 0 || step < rule_.max_length ? step : -1;
  }

  // The initial weight of a row: zero until its windows are complete.
  REPLAY_BOTH double FirstWeight(float) const { return 0; }

  // Updates the state after an insertion; the cursors have moved and the new rows are marked.
  void Insert(const RingWrite &plan, const Marks &marks, const Vector<int64_t> &steps, Vector<int64_t> *changed) const {
    for (int64_t i = 0; i < plan.written; ++i) Place(plan, i, steps.data(), marks);
    LosePast(plan.written, changed);
    if (marks.terminated.rows != nullptr) FollowAll(marks, changed);
    for (int64_t serial = ring_.inserted - plan.written; serial < ring_.inserted; ++serial)
      ActivateCompletedStarts(serial, changed);
  }

  __attribute__((noinline)) void FollowAll(const Marks &marks, Vector<int64_t> *changed) const {
    const int64_t before = std::min(marks.n, rule_.streams);
    for (int64_t i = 0; i < before; ++i) Follow(marks, i);
    for (int64_t i = 0; i < before; ++i) Lengthened(marks, i, changed);
  }

  // Stores step and flags of the row i that an insertion writes.
  REPLAY_BOTH void Place(const RingWrite &plan, int64_t i, const int64_t *steps, const Marks &marks) const {
    const int64_t slot = SlotOf(i, plan.slot, ring_.capacity);
    steps_[slot] = steps[plan.skipped + i];
    flags_[slot] = marks.At(plan.skipped + i);
    if (row_state_.HasLate()) Hold(slot);
  }

  // If row i of the first step of a batch is final, its episode goes on from the row stored before it.
  REPLAY_BOTH void Follow(const Marks &marks, int64_t i) const {
    const int64_t slot = ring_.SlotOf(Before(marks, i));
    if (slot < 0 || !marks.follows || !(flags_[slot] & kOpen) || marks.Said(i) != kFinal) return;
    flags_[slot] = Followed(flags_[slot]);
  }

  // Sets the weight of the start whose window ends at the row before row i of a batch, if its episode goes on with row
  // i.
  template <typename Changed>
  REPLAY_BOTH void Lengthened(const Marks &marks, int64_t i, Changed *changed) const {
    const int64_t serial = Before(marks, i), slot = ring_.SlotOf(serial);
    if (slot < 0 || (flags_[slot] & (kOpen | kEnd)) != kOpen) return;
    const int64_t start = ring_.SlotOf(serial - (rule_.future - 1) * rule_.streams);
    if (start < 0) return;
    SetStartWeight(start, changed);
  }

  // Returns the end of the oldest rows that may have lost their past, as a serial number; not of the newest `written`.
  REPLAY_BOTH int64_t PastEvicted(int64_t written) const {
    return std::min(Oldest() + rule_.past * rule_.streams, ring_.inserted - written);
  }

  // Makes these rows ineligible, as far as their past has been evicted.
  void LosePast(int64_t written, Vector<int64_t> *changed) const {
    for (int64_t serial = Oldest(); serial < PastEvicted(written); ++serial) EvictPast(serial, changed);
  }

  // Makes a row ineligible if its past has been evicted.
  template <typename Changed>
  REPLAY_BOTH void EvictPast(int64_t serial, Changed *changed) const {
    const int64_t slot = ring_.SlotOf(serial);
    if (serial - std::min(rule_.past, steps_[slot]) * rule_.streams < Oldest()) row_state_.Set(slot, 0, changed);
  }

  // Makes the starts eligible whose windows a new row completes, and those not that it leaves incomplete.
  template <typename Changed>
  REPLAY_BOTH void ActivateCompletedStarts(int64_t serial, Changed *changed) const {
    const int64_t slot = ring_.SlotOf(serial);
    const int64_t last = std::min(rule_.future - 1, steps_[slot]);
    if (rule_.pad_end != kPadOpen && !(rule_.pad_end && (flags_[slot] & kEnd))) {
      if (last == rule_.future - 1) Enable(serial - last * rule_.streams, changed);
      return;
    }
    for (int64_t step = steps_[slot] % rule_.stride; step <= last; step += rule_.stride) {
      const int64_t start = ring_.SlotOf(serial - step * rule_.streams);
      if (start >= 0) SetStartWeight(start, changed);
    }
  }

  // Returns the first row whose windows may contain a row or end before it.
  REPLAY_BOTH int64_t FirstStart(int64_t serial) const {
    return std::max(Oldest(), serial - (rule_.future - 1) * rule_.streams);
  }

  // Returns the end of the rows whose windows may contain a row before this one.
  REPLAY_BOTH int64_t EndOfStarts(int64_t serial) const {
    return std::min(ring_.inserted, serial + rule_.past * rule_.streams);
  }

  // Ends the running episodes of the newest rows with these flags. Returns their number.
  int64_t EndEpisodes(uint8_t flags) const {
    Vector<int64_t> changed;
    int64_t ended = 0;
    for (int64_t serial = Newest(); serial < ring_.inserted; ++serial) ended += End(serial, flags, &changed);
    row_state_.tree.Refresh(&changed);
    return ended;
  }

  // Returns the serial number of the first of the newest rows, one per stream.
  REPLAY_BOTH int64_t Newest() const { return std::max(Oldest(), ring_.inserted - rule_.streams); }

  // True if an episode of the newest rows has not ended.
  bool HasOpenEpisode() const {
    for (int64_t serial = Newest(); serial < ring_.inserted; ++serial) {
      if (!(flags_[ring_.SlotOf(serial)] & kEnd)) return true;
    }
    return false;
  }

  // Ends the episode of a newest row. Returns true if it was running.
  template <typename Changed>
  REPLAY_BOTH bool End(int64_t serial, uint8_t flags, Changed *changed) const {
    const int64_t slot = ring_.SlotOf(serial);
    if (flags_[slot] & kEnd) return false;
    flags_[slot] |= flags;
    if (flags & kFinal) row_state_.Set(slot, 0, changed);
    ActivateCompletedStarts(serial, changed);
    return true;
  }

  // True if the first row of the episode of a logical row can be drawn.
  REPLAY_BOTH bool IsOfGroup(int64_t row, int64_t slot) const {
    const int64_t first = row - steps_[slot] * rule_.streams;
    return first >= 0 && row_state_.tree.Leaf(SlotOf(first, ring_.head, ring_.capacity)) > 0;
  }

  // True if a sample may start at a stored row.
  REPLAY_BOTH bool MayStart(int64_t serial, int64_t) const { return IsValidStart(serial); }

  // Returns the slot of a row that is stored and not deleted, or -1.
  REPLAY_BOTH int64_t StoredSlot(int64_t serial) const {
    const int64_t slot = ring_.SlotOf(serial);
    return slot >= 0 && !Deleted(slot) ? slot : -1;
  }

  REPLAY_BOTH bool Deleted(int64_t slot) const { return (flags_[slot] & kDeleted) != 0 && !row_state_.Pending(slot); }

  // Marks a row as deleted: no window contains it any more.
  template <typename Changed>
  REPLAY_BOTH void Delete(int64_t slot, Changed *changed) const {
    flags_[slot] |= kDeleted;
    row_state_.Mark(slot);
    ForStartsAround(ring_.HandleOf(slot), slot, [this, changed](int64_t start) { row_state_.Set(start, 0, changed); });
  }

  // Makes the starts eligible whose windows a row completes, since its late columns have been written.
  template <typename Changed>
  REPLAY_BOTH void Complete(int64_t slot, Changed *changed) const {
    Release(slot);
    ForStartsAround(ring_.HandleOf(slot), slot,
                    [this, changed](int64_t start) { Enable(ring_.HandleOf(start), changed); });
  }

  // Ends the wait for late columns of a row.
  REPLAY_BOTH void Release(int64_t slot) const {
    flags_[slot] &= static_cast<uint8_t>(~kDeleted);
    row_state_.use_counts[slot] = 0;
  }

  // Sets the flags of a stored row whose column of terminations was written: one that has terminated ends its episode,
  // and an end stays one. Returns true if they change.
  REPLAY_BOTH bool UpdateEnd(int64_t slot, bool terminated) const {
    const uint8_t before = flags_[slot];
    if (IsFinal(before)) return false;
    uint8_t flags = before;
    if (before & kEnd) {
      flags = terminated || !rule_.needs_next ? before & static_cast<uint8_t>(~kFinal) : before | kFinal | kOpen;
    } else if (terminated && !PrecedesFinal(slot)) {
      flags = before | kEnd | kOpen;
    }
    flags_[slot] = flags;
    return flags != before;
  }

  // Counts the steps of the rows after a row that ends its episode, up to the end of the next episode.
  REPLAY_BOTH void CountStepsAfter(int64_t slot) const {
    if (flags_[slot] & kEnd) ForEpisodeAfter(slot, [this](int64_t at, int64_t step) { steps_[at] = step; });
  }

  // Calls visit(slot) for the rows whose validity as starts may change with the end of a row's episode.
  template <typename Visit>
  REPLAY_BOTH void ForStartsAffectedBy(int64_t slot, const Visit &visit) const {
    const int64_t serial = ring_.HandleOf(slot);
    for (int64_t step = 0, at = slot; step < rule_.future && serial - step * rule_.streams >= Oldest(); ++step) {
      visit(at);
      at = Previous(at);
    }
    ForEpisodeAfter(slot, [&visit](int64_t at, int64_t) { visit(at); });
  }

  // Sets the weight of a row: that of its priority if it is a valid start, else zero.
  template <typename Changed>
  REPLAY_BOTH void SetStartWeight(int64_t slot, Changed *changed) const {
    const bool valid = IsValidStart(ring_.HandleOf(slot));
    row_state_.Set(slot, valid ? (*row_state_.rule)(row_state_.priorities[slot]) : 0, changed);
  }

  // Moves the ends of episodes after the column of terminations was written in these slots; skips slots of -1.
  void UpdateEnds(const Vector<int64_t> &slots, const BoolRows &terminated) const {
    Vector<int64_t> rewritten, changed;
    for (const int64_t slot : slots) {
      if (slot >= 0 && UpdateEnd(slot, terminated(slot))) rewritten.push_back(slot);
    }
    for (const int64_t slot : rewritten) CountStepsAfter(slot);
    for (const int64_t slot : rewritten)
      ForStartsAffectedBy(slot, [&](int64_t start) { SetStartWeight(start, &changed); });
    row_state_.tree.Refresh(&changed);
  }

  // Sets flags and steps of all rows to what follows from the column of terminations, after an interrupted operation.
  void RepairEnds(const BoolRows &terminated) const {
    for (int64_t serial = Newest(); serial < ring_.inserted; ++serial) {
      uint8_t *flags = &flags_[ring_.SlotOf(serial)];
      if ((*flags & (kOpen | kEnd)) == kOpen) *flags |= kEnd;  // the final row after it was not stored
    }
    for (int64_t serial = Oldest(); serial < ring_.inserted; ++serial) {
      const int64_t slot = ring_.SlotOf(serial);
      if (!Deleted(slot)) UpdateEnd(slot, terminated(slot));  // no deleted row is updated, and one may be torn
    }
    for (int64_t serial = Oldest() + rule_.streams; serial < ring_.inserted; ++serial) {
      const int64_t slot = ring_.SlotOf(serial), before = Previous(slot);
      steps_[slot] = flags_[before] & kEnd ? 0 : steps_[before] + 1;
    }
  }

  // Completes a deletion that was interrupted.
  void FinishDeletion(int64_t slot) const {
    if (row_state_.Pending(slot)) flags_[slot] |= kDeleted;
    if (Deleted(slot)) row_state_.Mark(slot);
  }

  // Returns the number of oldest rows that no sample will need. The newest rows may become starts, and a start needs
  // its past.
  REPLAY_BOTH int64_t Unneeded() const {
    const int64_t open = ring_.count - (rule_.future - 1) * rule_.streams;
    const int64_t needed =
        std::min(row_state_.FirstNeeded(ring_, ring_.count - open), open) - rule_.past * rule_.streams;
    return std::max<int64_t>(needed, 0);
  }

  // Calls visit(slot) for the rows whose windows may contain this row, in time order on each side.
  template <typename Visit>
  REPLAY_BOTH void ForStartsAround(int64_t serial, int64_t slot, const Visit &visit) const {
    visit(slot);
    for (int64_t step = 1, at = slot; step < rule_.future && step <= steps_[slot]; ++step) {
      if (serial - step * rule_.streams < Oldest()) break;
      visit(at = Previous(at));
    }
    for (int64_t step = 1, at = slot; step <= rule_.past && !(flags_[at] & kEnd); ++step) {
      if (serial + step * rule_.streams >= ring_.inserted) break;
      visit(at = Next(at));
    }
  }

  // Removes all rows by calls of fill(numbers, n, number).
  template <typename Fill>
  REPLAY_BOTH void Reset(const Fill &fill) const {
    fill(steps_, ring_.capacity, int64_t{0});
    fill(flags_, ring_.capacity, uint8_t{0});
  }

  // Prefetches the state of a row and of the rows after it.
  void Prefetch(int64_t slot, int64_t rows) const {
    __builtin_prefetch(steps_ + slot);
    __builtin_prefetch(row_state_.use_counts + slot);
    for (int64_t i = 0; i < rows * rule_.streams; i += 64) __builtin_prefetch(flags_ + slot + i);
  }

  REPLAY_BOTH Start StartAt(int64_t slot, int64_t limit) const {
    const int64_t serial = ring_.HandleOf(slot);
    return {slot, serial, std::min(rule_.past, steps_[slot]), After(serial, slot, limit)};
  }

  // Returns the steps from a row to the last stored row of its episode: along an episode steps increase by one. Looks
  // nearby first, at rows that memory has together.
  REPLAY_BOTH int64_t StepsToLast(const Start &start) const {
    const int64_t most = (ring_.inserted - 1 - start.serial) / rule_.streams;
    const auto is_of_episode = [&](int64_t step) {
      return steps_[Wrapped(start.slot + step * rule_.streams)] == steps_[start.slot] + step;
    };
    const int64_t end = rule_.streams == 1 ? StepsToEnd(start.slot, most) : -1;
    if (end >= 0 && is_of_episode(end) && (end == most || !is_of_episode(end + 1))) return end;
    int64_t low = 0;
    int64_t high = 1;
    for (; high <= most && is_of_episode(high); high *= 2) low = high;
    for (high = std::min(high - 1, most); low < high;) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (is_of_episode(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  // Returns the steps from the first stored row of its episode to a row.
  REPLAY_BOTH int64_t StepsToFirst(const Start &start) const {
    return std::min(steps_[start.slot], (start.serial - Oldest()) / rule_.streams);
  }

 private:
  // Returns the steps to the next row that ends an episode if it is near, else -1. Reads eight flags at once.
  REPLAY_BOTH int64_t StepsToEnd(int64_t slot, int64_t most) const {
    constexpr int64_t kNear = 1024;
    constexpr uint64_t kEnds = kEnd * uint64_t{0x0101010101010101};
    const int64_t limit = std::min(std::min(most + 1, ring_.capacity - slot), kNear);
    int64_t step = 0;
    for (uint64_t eight; step + 8 <= limit; step += 8) {
      std::memcpy(&eight, flags_ + slot + step, sizeof(eight));
      if (eight & kEnds) break;
    }
    for (; step < limit; ++step) {
      if (flags_[slot + step] & kEnd) return step;
    }
    return -1;
  }

  // Marks a new row as pending, unless it holds only an observation.
  REPLAY_BOTH void Hold(int64_t slot) const {
    if (IsFinal(flags_[slot])) {
      row_state_.use_counts[slot] = 0;
    } else {
      flags_[slot] |= kDeleted;
    }
  }

  // Returns a lower bound of the steps that follow a row, for a single stream: rows without flags before the ring
  // wraps, tested eight at a time.
  REPLAY_BOTH int64_t Unmarked(int64_t serial, int64_t slot, int64_t limit) const {
    const int64_t most = std::min({limit, ring_.inserted - 1 - serial, ring_.capacity - 1 - slot});
    int64_t rows = 0;
    uint64_t row_state = 0;
    for (; rows + 8 <= most; rows += 8) {
      std::memcpy(&row_state, flags_ + slot + rows, sizeof(row_state));
      if (row_state != 0) break;
    }
    return std::max<int64_t>(rows - 1, 0);
  }

  // True if the next row is a final one, of the same episode.
  REPLAY_BOTH bool PrecedesFinal(int64_t slot) const {
    return ring_.HandleOf(slot) + rule_.streams < ring_.inserted && IsFinal(flags_[Next(slot)]);
  }

  // Calls visit(slot, step) for the rows that follow one in its stream, up to the end of their episode.
  template <typename Visit>
  REPLAY_BOTH void ForEpisodeAfter(int64_t slot, const Visit &visit) const {
    const int64_t serial = ring_.HandleOf(slot);
    int64_t at = slot;
    for (int64_t step = 0; serial + (step + 1) * rule_.streams < ring_.inserted; ++step) {
      at = Next(at);
      visit(at, step);
      if (flags_[at] & kEnd) break;
    }
  }

  // Returns the serial number of the row before row i, for a row i of the first step of an inserted batch.
  REPLAY_BOTH int64_t Before(const Marks &marks, int64_t i) const {
    return ring_.inserted - marks.n - rule_.streams + i;
  }

  REPLAY_BOTH int64_t Wrapped(int64_t slot) const { return slot < ring_.capacity ? slot : slot - ring_.capacity; }

  // Makes a row eligible if it is a valid start.
  template <typename Changed>
  REPLAY_BOTH void Enable(int64_t serial, Changed *changed) const {
    if (!IsValidStart(serial)) return;
    const int64_t slot = ring_.SlotOf(serial);
    row_state_.Set(slot, (*row_state_.rule)(row_state_.priorities[slot]), changed);
  }

  Cursors ring_;
  RowState row_state_;
  WindowRule rule_;
  int64_t *steps_;
  uint8_t *flags_;
};

}  // namespace replay
