// Reads a buffer's state from the arguments of a kernel.
#pragma once

#include <cstdint>
#include <type_traits>

#include "binding.h"
#include "core/random.h"
#include "core/rows.h"
#include "core/status.h"
#include "core/timeline.h"

namespace replay {

// The kind of a buffer's rows: cursors if there is no row state, else SingleRows or Timeline.
template <typename Rows>
struct Kind {
  using Type = Rows;
};

template <typename Rows>
constexpr bool kHasEpisodes = std::is_same_v<Rows, Timeline>;

template <typename Rows>
constexpr bool kHasRowState = !std::is_base_of_v<Cursors, Rows>;

template <typename Rows>
constexpr bool kInReservoir =
    std::is_same_v<Rows, ReservoirCursors> || std::is_same_v<Rows, SingleRows<ReservoirCursors>>;

template <typename Rows>
using PlacesOf = std::conditional_t<kInReservoir<Rows>, ReservoirCursors, Cursors>;

// A buffer's state: addresses of its arrays, null for absent ones. Cursors are read again by each function that returns
// them.
struct State {
  int64_t capacity;
  int32_t *head;
  int32_t *count;
  int64_t *serials;
  RandomState *random;
  int64_t *row_serials;
  int64_t *steps = nullptr;
  uint8_t *flags = nullptr;
  const WindowRule *rule = nullptr;
  RowState row_state;

  template <typename Rows>
  REPLAY_BOTH Rows Get() const {
    if constexpr (std::is_same_v<Rows, Cursors>) {
      return {capacity, *head, *count, serials[0], serials[1]};
    } else if constexpr (std::is_same_v<Rows, ReservoirCursors>) {
      return {Ring(), random->key, row_serials};
    } else if constexpr (kHasEpisodes<Rows>) {
      return {Ring(), row_state, *rule, steps, flags};
    } else {
      return {Get<PlacesOf<Rows>>(), row_state};
    }
  }
  REPLAY_BOTH Cursors Ring() const { return Get<Cursors>(); }

  // Returns the slot of a serial number, or -1 if its row is not stored.
  REPLAY_BOTH int64_t SlotOf(int64_t serial) const {
    return row_serials != nullptr ? Get<ReservoirCursors>().SlotOf(serial) : Ring().SlotOf(serial);
  }

  // True if the state is consistent.
  REPLAY_BOTH bool IsConsistent() const {
    if (rule != nullptr && !IsRule(*rule, capacity)) return false;
    const Cursors ring = Ring();
    if (row_serials != nullptr) {
      return Get<ReservoirCursors>().IsConsistent(row_state.clock != nullptr ? row_state.clock->fresh : ring.base);
    }
    // Without row state no row is identified by its serial number.
    if (row_state.clock == nullptr) return AreCursors(ring.head, ring.count, capacity);
    return ring.IsConsistent(row_state.clock->fresh);
  }
};

// Arrays that the operator does not touch are null.
template <int kOperator>
__attribute__((always_inline)) inline State StateOf(const Bound<kOperator> &args) {
  State state;
  state.capacity = args.capacity();
  state.head = args.template data<int32_t>(NAMED("head"));
  state.count = args.template data<int32_t>(NAMED("count"));
  state.serials = args.template data<int64_t>(NAMED("serials"));
  state.random = args.template data_or_null<RandomState>(NAMED("random_state"));
  state.row_serials = args.template data_or_null<int64_t>(NAMED("row_serials"));
  if (!args.HasGroup(kRowStateGroup)) return state;
  state.steps = args.template data_or_null<int64_t>(NAMED("steps"));
  state.flags = args.template data_or_null<uint8_t>(NAMED("flags"));
  state.rule = args.template data_or_null<WindowRule>(NAMED("window_rule"));
  if (double *weights = args.template data_or_null<double>(NAMED("weights"))) {
    state.row_state.tree = SumTree(weights, args.capacity());
  }
  state.row_state.priorities = args.template data_or_null<float>(NAMED("priorities"));
  state.row_state.max_priority = args.template data_or_null<float>(NAMED("max_priority"));
  state.row_state.use_counts = args.template data_or_null<int32_t>(NAMED("use_counts"));
  state.row_state.insertion_clocks = args.template data_or_null<int64_t>(NAMED("insertion_clocks"));
  state.row_state.clock = args.template data_or_null<Clock>(NAMED("clock"));
  state.row_state.counts = args.template data_or_null<Counts>(NAMED("counts"));
  state.row_state.rule = args.template data_or_null<RowRule>(NAMED("row_rule"));
  return state;
}

// Returns the rows of argument i, which are those of a column.
template <int kOperator>
BoolRows BoolRowsOf(const Bound<kOperator> &args, int i, int column) {
  return {args.raw().template data<char>(i), args.RowBytes(column), IsFloat(DtypeOf(args.raw().dtype(column)))};
}

// Reads the flags of the rows of an insertion. Returns false if the rule names a column that does not exist.
template <int kOperator>
bool ReadMarks(const Bound<kOperator> &args, const WindowRule &rule, Marks *marks) {
  *marks = {args.template data<uint8_t>(NAMED("ends")),
            args.elements(NAMED("ends")),
            args.n(),
            rule.streams,
            {},
            rule.needs_next != 0,
            true};
  if (rule.terminated < 0) return true;
  if (rule.terminated >= args.columns()) return false;
  const int column = static_cast<int>(rule.terminated);
  marks->terminated = BoolRowsOf(args, args.at(NAMED("rows")) + column, column);
  return true;
}

// Calls use(kind) with the kind of a buffer; with kOfRowState, one that has row state.
template <bool kOfRowState = false, int kOperator, typename Use>
auto WithKind(const Bound<kOperator> &args, const Use &use) {
  using Args = Bound<kOperator>;
  const auto of = [&](auto places) {
    using Places = typename decltype(places)::Type;
    if constexpr (kOfRowState || kSignature<kOperator>.required[kRowStateGroup]) {
      return use(Kind<SingleRows<Places>>{});
    } else {
      if constexpr (Args::MayHaveGroup(kRowStateGroup)) {
        if (args.HasGroup(kRowStateGroup)) return use(Kind<SingleRows<Places>>{});
      }
      return use(places);
    }
  };
  if constexpr (Args::MayHaveGroup(kEpisodesGroup)) {
    if (args.HasGroup(kEpisodesGroup)) return use(Kind<Timeline>{});
  }
  if constexpr (Args::MayHaveGroup(kReservoirGroup)) {
    if (args.HasGroup(kReservoirGroup)) return of(Kind<ReservoirCursors>{});
  }
  return of(Kind<Cursors>{});
}

// Calls use(rows) with the rows of a buffer with row state, if its state is consistent.
template <int kOperator, typename Use>
Status WithRows(const Bound<kOperator> &args, const State &state, const Use &use) {
  if (!state.IsConsistent()) return kBadArguments;
  return WithKind<true>(args, [&](auto kind) { return use(state.template Get<typename decltype(kind)::Type>()); });
}

template <int kOperator, typename Use>
Status WithRows(const Bound<kOperator> &args, const Use &use) {
  return WithRows(args, StateOf(args), use);
}

// Returns the slot of a row that is stored and not deleted, or -1.
template <typename Rows>
REPLAY_BOTH int64_t StoredSlot(const Rows &rows, int64_t handle) {
  if constexpr (kHasRowState<Rows>) {
    return rows.StoredSlot(handle);
  } else {
    return rows.SlotOf(handle);
  }
}

// Returns the number of rows that can be inserted without evicting one that can still be drawn.
template <typename Reach>
REPLAY_BOTH int64_t RoomOf(const Reach &reach) {
  return reach.places().capacity - reach.places().count + reach.Unneeded();
}

// True if n rows may be inserted: if the rule keeps rows that can still be drawn, none of them is evicted.
template <typename Reach>
REPLAY_BOTH bool HasRoom(const Reach &reach, int64_t n) {
  const Cursors &ring = reach.places();
  return reach.row_state().rule->keep == 0 || n <= ring.capacity - ring.count || n <= RoomOf(reach);
}

}  // namespace replay
