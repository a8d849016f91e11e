// The kernels that insert, read and update rows, on a CPU: they adapt the C interface of MindSpore's custom operators
// to the algorithms in core/. When a body begins, the arguments match their signature (signatures.h). The body checks
// their values in every build and returns a Status; unless it is kOk, nothing has changed.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "adapters.h"
#include "buffer.h"
#include "core/draw.h"
#include "core/points.h"
#include "core/ring.h"
#include "core/rows.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/timeline.h"
#include "core/updates.h"

namespace replay {
namespace {

bool AreWeights(const float *values, int64_t n) {
  return std::all_of(values, values + n, [](float value) { return IsWeight(value); });
}

using InsertArgs = Bound<OperatorNumber("insert")>;

// The inputs of an insertion, besides rows, for a buffer with row state.
struct Insertion {
  const float *priorities = nullptr;  // one for all rows or one for each
  int64_t given = 0;
  const int64_t *versions = nullptr;  // likewise, if they are given
  int64_t given_versions = 0;
  int64_t max_staleness = -1;  // with versions
  Marks marks{};               // of rows that know their episode
  Vector<int64_t> steps;

  // Initializes the state of a row, but for its weight.
  void Begin(const RowState &row_state, int64_t row, int64_t n, int64_t slot) const {
    row_state.Begin(slot, priorities[given == n ? row : 0]);
    if (versions != nullptr) row_state.insertion_clocks[slot] = versions[given_versions == n ? row : 0];
  }

  // Reads the inputs and checks that the rows may be inserted.
  Status Check(const InsertArgs &args, const State &state) {
    if (!args.HasGroup(kRowStateGroup)) return state.IsConsistent() ? kOk : kBadArguments;
    priorities = args.data<float>(NAMED("priority"));
    given = args.elements(NAMED("priority"));
    const Status status = WithRows(args, state, [&](const auto &rows) {
      if (!AreWeights(priorities, given)) return kBadWeight;
      if (args.HasGroup(kVersionsGroup)) {
        const Status status = ReadVersions(args, rows.row_state());
        if (status != kOk) return status;
      }
      return HasRoom(rows, args.n()) ? kOk : kFull;
    });
    if (status != kOk) return status;
    if (!args.HasGroup(kEpisodesGroup)) return kOk;
    if (!ReadMarks(args, *args.data<WindowRule>(NAMED("window_rule")), &marks)) return kBadArguments;
    const auto timeline = state.Get<Timeline>();
    if (args.shared() != nullptr) {
      marks.follows = args.shared()->MayFollow(true);
      if (!marks.follows && timeline.HasOpenEpisode()) return kOpenEpisode;
    }
    return timeline.NextSteps(marks, &steps) ? kOk : kTooLong;
  }

 private:
  // Reads the versions, and checks that they are valid.
  __attribute__((noinline, cold)) Status ReadVersions(const InsertArgs &args, const RowState &row_state) {
    versions = args.data<int64_t>(NAMED("version"));
    given_versions = args.elements(NAMED("version"));
    max_staleness = *args.data<int64_t>(NAMED("max_staleness"));
    if (args.HasGroup(kReservoirGroup) && max_staleness >= 0) return kBadArguments;
    const auto is_version = [&](int64_t version) { return row_state.IsVersion(version); };
    return std::all_of(versions, versions + given_versions, is_version) ? kOk : kBadVersion;
  }
};

// Copies of given rows into the columns.
class RowCopies {
 public:
  template <int kOperator>
  explicit RowCopies(const Bound<kOperator> &args) {
    const int first_row = args.at(NAMED("rows"));
    copies_.reserve(static_cast<size_t>(args.columns()));
    for (int i = 0; i < args.columns(); ++i) {
      copies_.push_back(
          {args.raw().template data<char>(i), args.raw().template data<char>(first_row + i), args.RowBytes(i)});
    }
  }

  // Copies row_of(j) to slots[j] and calls stored(row, slot), for each j; skips negative slots. In shared memory a row can
  // be undone until then.
  template <typename RowOf, typename Stored>
  void Write(Shared *shared, const Vector<int64_t> &slots, const RowOf &row_of, const Stored &stored) const {
    if (shared == nullptr) {
      for (const Copy &copy : copies_) {
        for (size_t j = 0; j < slots.size(); ++j) {
          if (slots[j] >= 0) copy.Row(row_of(j), slots[j]);
        }
      }
      for (size_t j = 0; j < slots.size(); ++j) {
        if (slots[j] >= 0) stored(row_of(j), slots[j]);
      }
      return;
    }
    for (size_t j = 0; j < slots.size(); ++j) {
      if (slots[j] < 0) continue;
      shared->Save(slots[j]);
      for (const Copy &copy : copies_) copy.Row(row_of(j), slots[j]);
      stored(row_of(j), slots[j]);
      shared->Keep();
    }
  }

 private:
  struct Copy {
    char *column;
    const char *rows;
    int64_t bytes;

    void Row(int64_t row, int64_t slot) const {
      std::memcpy(column + slot * bytes, rows + row * bytes, static_cast<size_t>(bytes));
    }
  };
  std::vector<Copy> copies_;
};

void InsertInRing(const InsertArgs &args, const State &state, const Insertion &insertion) {
  const int64_t n = args.n(), capacity = args.capacity();
  const RingWrite plan = PlanWrite(n, *state.head, *state.count, capacity);
  if (args.shared() != nullptr) {
    args.shared()->Evict(*state.serials + std::min<int64_t>(n - plan.count, 0));
    args.shared()->Expect(plan.slot, plan.written);
  }
  const int first_row = args.at(NAMED("rows"));
  for (int i = 0; i < args.columns(); ++i) {
    WriteRows(plan, capacity, args.RowBytes(i), args.raw().data<char>(first_row + i), args.raw().data<char>(i));
  }
  *state.head = static_cast<int32_t>(plan.head);
  *state.count = static_cast<int32_t>(plan.count);
  *state.serials += n;
  if (!args.HasGroup(kRowStateGroup)) return;
  Vector<int64_t> changed;
  changed.reserve(static_cast<size_t>(plan.written));
  const auto visit_written = [&](const auto &visit) {
    for (int64_t i = 0; i < plan.written; ++i) visit(plan.skipped + i, SlotOf(i, plan.slot, capacity));
  };
  const auto mark = [&](const auto &rows) {
    SetRowStates(rows, n, insertion.priorities, insertion.given, visit_written, &changed);
    Clock *clock = state.row_state.clock;
    clock->fresh = std::max(clock->fresh, *state.serials - plan.count);
  };
  if (args.HasGroup(kEpisodesGroup)) {
    const auto timeline = state.Get<Timeline>();
    mark(timeline);
    timeline.Insert(plan, insertion.marks, insertion.steps, &changed);
  } else {
    mark(state.Get<SingleRows<Cursors>>());
  }
  state.row_state.tree.Refresh(&changed);
}

void InsertInReservoir(const InsertArgs &args, const State &state, const Insertion &insertion) {
  const auto places = state.Get<ReservoirCursors>();
  const bool has_row_state = args.HasGroup(kRowStateGroup);
  Vector<int64_t> kept, slots;
  for (int64_t row = 0; row < args.n(); ++row) {
    const int64_t slot = ReservoirSlot(places.key, places.inserted + row, places.base, places.capacity);
    if (slot < 0) continue;
    kept.push_back(row);
    slots.push_back(slot);
  }
  const auto row_of = [&](size_t j) { return kept[j]; };
  RowCopies(args).Write(args.shared(), slots, row_of, [&](int64_t row, int64_t slot) {
    state.row_serials[slot] = places.inserted + row;
    if (args.shared() != nullptr && has_row_state) insertion.Begin(state.row_state, row, args.n(), slot);
  });
  *state.serials += args.n();
  *state.count = static_cast<int32_t>(std::min(*state.serials - places.base, places.capacity));
  if (!has_row_state) return;
  Vector<int64_t> changed;
  const auto visit_kept = [&](const auto &visit) {
    for (size_t j = 0; j < kept.size(); ++j) visit(kept[j], slots[j]);
  };
  const auto rows = state.Get<SingleRows<ReservoirCursors>>();
  SetRowStates(rows, args.n(), insertion.priorities, insertion.given, visit_kept, &changed);
  state.row_state.tree.Refresh(&changed);
}

__attribute__((noinline, cold)) void ApplyVersions(const InsertArgs &args, const State &state,
                                                   const Insertion &insertion) {
  WithRows(args, state, [&](const auto &rows) {
    SetVersions(rows, args.n(), insertion.versions, insertion.given_versions);
    DeleteStale(rows, insertion.max_staleness);
    return kOk;
  });
}

// Not inlined: it would change how other kernels are compiled.
__attribute__((noinline)) void MarkUpdated(const Updates &updates, const Vector<int64_t> &slots, int64_t number) {
  for (const int64_t slot : slots) updates.Mark(slot, number);
}

}  // namespace

// Inserts rows; in a full ring they evict the oldest. In `ends`, 1 marks the last row of an episode, 2 one that holds
// only the observation after the row before it, and 3 a last row whose next observation is not known.
MINDSPORE_REPLAY_KERNEL(insert) {
  if (args.shared() != nullptr && args.shared()->IsDeleted()) return kNoFolder;
  const State state = StateOf(args);
  Insertion insertion;
  const Status status = insertion.Check(args, state);
  if (status != kOk) return status;
  if (args.shared() != nullptr) args.shared()->Inserts();
  if (args.HasGroup(kReservoirGroup)) {
    InsertInReservoir(args, state, insertion);
  } else {
    InsertInRing(args, state, insertion);
  }
  if (insertion.versions != nullptr) ApplyVersions(args, state, insertion);
  *args.data<int64_t>(NAMED("first")) = *state.serials - args.n();
  return kOk;
}

// Overwrites the rows of handles; of repeated handles the last one counts. Skips and counts invalid handles. `written`
// holds a bit for each late column that is written, perhaps with kCountsInvalid, and the place of the column of
// terminations, -1 for none.
MINDSPORE_REPLAY_KERNEL(update) {
  const int64_t *handles = args.data<int64_t>(NAMED("handles"));
  const int64_t *written = args.data_or_null<int64_t>(NAMED("written"));
  const bool ends = written != nullptr && written[1] >= 0 && args.HasGroup(kEpisodesGroup);
  if (ends && written[1] >= args.columns()) return kBadArguments;
  Vector<int64_t> slots(static_cast<size_t>(args.n()));
  const State state = StateOf(args);
  if (!state.IsConsistent()) return kBadArguments;
  WithKind(args, [&](auto kind) {
    const auto rows = state.Get<typename decltype(kind)::Type>();
    const auto slot_of = [&rows](int64_t handle) { return StoredSlot(rows, handle); };
    std::transform(handles, handles + args.n(), slots.begin(), slot_of);
  });
  const Updates updates{args.data<int64_t>(NAMED("updates"))};
  const int64_t number = updates.Next();
  MarkUpdated(updates, slots, number);
  const auto row_of = [](size_t j) { return static_cast<int64_t>(j); };
  RowCopies(args).Write(args.shared(), slots, row_of, [](int64_t, int64_t) {});
  if (ends) {
    const int column = static_cast<int>(written[1]);
    state.Get<Timeline>().UpdateEnds(slots, BoolRowsOf(args, column, column));
  }
  updates.End(number);
  *args.data<int32_t>(NAMED("invalid")) = static_cast<int32_t>(std::count(slots.begin(), slots.end(), -1));
  const int64_t late = args.HasGroup(kRowStateGroup) ? written[0] : 0;
  if (late == 0) return kOk;
  return WithRows(args, state, [&](const auto &rows) {
    if ((late & kCountsInvalid) != 0) {
      const auto is_unknown = [](int64_t handle, int64_t slot) { return int64_t{handle >= 0 && slot < 0}; };
      rows.row_state().counts->invalid +=
          std::inner_product(handles, handles + args.n(), slots.begin(), int64_t{0}, std::plus<>(), is_unknown);
    }
    if ((late & kMissing) != 0) Complete(rows, slots, late & kMissing);
    return kOk;
  });
}

// Reads rows at logical positions; negative ones count from the newest.
MINDSPORE_REPLAY_KERNEL(read) {
  const int64_t n = args.n(), capacity = args.capacity();
  const int64_t head = *args.data<int32_t>(NAMED("head"));
  const int64_t count = *args.data<int32_t>(NAMED("count"));
  const int64_t *index = args.data<int64_t>(NAMED("index"));
  if (!AreCursors(head, count, capacity)) return kBadArguments;
  Vector<int64_t> slots(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = index[i];
    if (row < -count || row >= count) return kIndexOutOfRange;
    slots[static_cast<size_t>(i)] = SlotOf(row < 0 ? row + count : row, head, capacity);
  }
  ExpectRows(args.shared(), slots);
  std::vector<Gathered> gathered;
  gathered.reserve(static_cast<size_t>(args.columns()));
  const int first_row = args.at(NAMED("rows"));
  for (int i = 0; i < args.columns(); ++i) {
    gathered.push_back({args.raw().data<char>(i), args.raw().data<char>(first_row + i), args.RowBytes(i)});
  }
  Gather(gathered, slots.data(), n);
  return kOk;
}

// Sets priorities. Skips and counts invalid handles.
MINDSPORE_REPLAY_KERNEL(update_priorities) {
  const float *priorities = args.data<float>(NAMED("priority"));
  const int64_t given = args.elements(NAMED("priority"));
  if (!AreWeights(priorities, given)) return kBadWeight;
  return WithRows(args, [&](const auto &rows) {
    const int64_t invalid =
        UpdatePriorities(rows, args.template data<int64_t>(NAMED("handles")), args.n(), priorities, given);
    *args.template data<int32_t>(NAMED("invalid")) = static_cast<int32_t>(invalid);
    return kOk;
  });
}

// Deletes rows and counts them; skips invalid handles.
MINDSPORE_REPLAY_KERNEL(delete) {
  return WithRows(args, [&](const auto &rows) {
    const int64_t removed = Delete(rows, args.template data<int64_t>(NAMED("handles")), args.n());
    *args.template data<int32_t>(NAMED("removed")) = static_cast<int32_t>(removed);
    return kOk;
  });
}

// Advances the clock and deletes rows that became stale. A negative `max_staleness` is no limit.
MINDSPORE_REPLAY_KERNEL(advance) {
  const int64_t ticks = *args.data<int64_t>(NAMED("ticks"));
  const int64_t max_staleness = *args.data<int64_t>(NAMED("max_staleness"));
  if (args.HasGroup(kReservoirGroup) && max_staleness >= 0) return kBadArguments;
  return WithRows(args, [&](const auto &rows) {
    Clock *clock = rows.row_state().clock;
    if (ticks < 0 || ticks > kLastClock - clock->now) return kBadArguments;
    clock->now += ticks;
    DeleteStale(rows, max_staleness);
    *args.template data<int64_t>(NAMED("now")) = clock->now;
    return kOk;
  });
}

// Reads priority, use count and staleness of rows; 0, -1, -1 if no row is stored.
MINDSPORE_REPLAY_KERNEL(info) {
  return WithRows(args, [&](const auto &rows) {
    const RowState &row_state = rows.row_state();
    const int64_t *handles = args.template data<int64_t>(NAMED("handles"));
    float *priority = args.template data<float>(NAMED("priority"));
    int32_t *uses = args.template data<int32_t>(NAMED("uses"));
    int64_t *staleness = args.template data<int64_t>(NAMED("staleness"));
    const int64_t n = args.n(), now = row_state.clock->now;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t slot = rows.places().SlotOf(handles[i]);
      priority[i] = slot < 0 ? 0.0f : row_state.priorities[slot];
      uses[i] = slot < 0 ? -1 : row_state.Uses(slot);
      staleness[i] = slot < 0 ? -1 : now - row_state.insertion_clocks[slot];
    }
    return kOk;
  });
}

// Ends the running episodes and counts them. The flag is set on their last rows.
MINDSPORE_REPLAY_KERNEL(end_episodes) {
  const uint8_t flag = *args.data<uint8_t>(NAMED("flag"));
  return WithRows(args, [&](const auto &) {
    *args.template data<int32_t>(NAMED("ended")) =
        static_cast<int32_t>(StateOf(args).Get<Timeline>().EndEpisodes(flag));
    return kOk;
  });
}

// Removes all rows. Serial numbers and counts go on.
MINDSPORE_REPLAY_KERNEL(reset) {
  int64_t *serials = args.data<int64_t>(NAMED("serials"));
  if (args.shared() != nullptr) args.shared()->Evict(kNoRows);
  const auto begin = [&] {
    serials[1] = serials[0];
    *args.data<int32_t>(NAMED("head")) = *args.data<int32_t>(NAMED("count")) = *args.data<int32_t>(NAMED("stored")) = 0;
    return kOk;
  };
  if (!args.HasGroup(kRowStateGroup)) return begin();
  return WithRows(args, [&](const auto &rows) {
    rows.row_state().Reset(serials[0], rows.places().capacity, kFill);
    rows.Reset(kFill);
    return begin();
  });
}

// Sums the weights of ranges of logical rows, each a Python slice.
MINDSPORE_REPLAY_KERNEL(sums) {
  const Cursors ring = StateOf(args).Ring();
  if (!AreCursors(ring.head, ring.count, ring.capacity)) return kBadArguments;
  const SumTree tree(args.data<double>(NAMED("weights")), ring.capacity);
  const int64_t *ranges = args.data<int64_t>(NAMED("ranges"));
  double *sums = args.data<double>(NAMED("sums"));
  const int64_t m = args.elements(NAMED("sums"));
  for (int64_t i = 0; i < m; ++i) {
    const RowRange range = SliceRows(ranges[2 * i], ranges[2 * i + 1], ring.count);
    sums[i] = SumRows(tree, range, ring.head, ring.capacity);
  }
  return kOk;
}

// Reads the total weight, the smallest positive weight, and the number of positive weights.
MINDSPORE_REPLAY_KERNEL(summary) {
  const SumTree tree(args.data<double>(NAMED("weights")), args.capacity());
  double *summary = args.data<double>(NAMED("summary"));
  summary[0] = tree.Total();
  summary[1] = tree.Minimum();
  summary[2] = tree.Positive();
  return kOk;
}

// Returns a number of the rows: see Measured.
MINDSPORE_REPLAY_KERNEL(measure) {
  const int64_t what = *args.data<int64_t>(NAMED("what"));
  const int64_t *range = args.data<int64_t>(NAMED("sample_range"));
  double *number = args.data<double>(NAMED("number"));
  if (what < kRoom || what > kPositive) return kBadArguments;
  return WithRows(args, [&](const auto &rows) {
    const Cursors &ring = rows.places();
    const RowState &row_state = rows.row_state();
    const RowRange chosen = SliceRows(range[0], range[1], what == kRoom ? 0 : ring.count);
    double largest = -1, positive = 0;
    for (int64_t row = chosen.first; row < chosen.first + chosen.size; ++row) {
      const int64_t slot = SlotOf(row, ring.head, ring.capacity);
      positive += row_state.tree.Leaf(slot) > 0;
      if (row_state.Kept(slot)) largest = std::max<double>(largest, row_state.priorities[slot]);
    }
    if (largest < 0) largest = row_state.rule->initial_priority;
    *number = what == kRoom ? static_cast<double>(RoomOf(rows)) : what == kLargestHeld ? largest : positive;
    return kOk;
  });
}

// Line i of the table of operators; null after the last.
MINDSPORE_REPLAY_EXPORT const char *replay_signature(int i) { return LineOfTable(i); }

}  // namespace replay
