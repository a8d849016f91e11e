// Reads a buffer's state from the arguments of a kernel.
#pragma once

#include <cstdint>

#include "binding.h"
#include "core/random.h"
#include "core/rows.h"
#include "core/status.h"
#include "core/timeline.h"

namespace replay {

// Arrays that the operator does not touch are null.
template <int kOperator>
RowState RowStateOf(const Bound<kOperator> &args) {
  return {SumTree(args.template data_or_null<double>(NAMED("weights")), args.capacity()),
          args.template data_or_null<float>(NAMED("priorities")),
          args.template data_or_null<float>(NAMED("max_priority")),
          args.template data_or_null<int32_t>(NAMED("use_counts")),
          args.template data_or_null<int64_t>(NAMED("insertion_clocks")),
          args.template data_or_null<Clock>(NAMED("clock")),
          args.template data_or_null<Counts>(NAMED("counts")),
          args.template data_or_null<RowRule>(NAMED("row_rule"))};
}

template <int kOperator>
Cursors CursorsOf(const Bound<kOperator> &args) {
  const int64_t *serials = args.template data<int64_t>(NAMED("serials"));
  return {args.capacity(), *args.template data<int32_t>(NAMED("head")), *args.template data<int32_t>(NAMED("count")),
          serials[0], serials[1]};
}

template <int kOperator>
ReservoirCursors ReservoirOf(const Bound<kOperator> &args) {
  return {CursorsOf(args), args.template data<RandomState>(NAMED("random_state"))->key,
          args.template data<int64_t>(NAMED("row_serials"))};
}

template <int kOperator>
Timeline TimelineOf(const Bound<kOperator> &args) {
  return {CursorsOf(args), RowStateOf(args), *args.template data<WindowRule>(NAMED("window_rule")),
          args.template data<int64_t>(NAMED("steps")), args.template data<uint8_t>(NAMED("flags"))};
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

// Calls use(places) with the cursors of a buffer without row state, if they are consistent.
template <int kOperator, typename Use>
Status WithPlaces(const Bound<kOperator> &args, const Use &use) {
  if constexpr (Bound<kOperator>::MayHaveGroup(kReservoirGroup)) {
    if (args.HasGroup(kReservoirGroup)) {
      const ReservoirCursors places = ReservoirOf(args);
      return places.IsConsistent(places.base) ? use(places) : kBadArguments;
    }
  }
  // Serials are not checked: without row state no row is identified by its serial number.
  const Cursors places = CursorsOf(args);
  return AreCursors(places.head, places.count, places.capacity) ? use(places) : kBadArguments;
}

// Calls use(reach) with the rows of a buffer with row state, if its cursors are consistent.
template <int kOperator, typename Use>
Status WithRows(const Bound<kOperator> &args, const Use &use) {
  const int64_t fresh = args.template data<Clock>(NAMED("clock"))->fresh;
  const auto call = [&](const auto &reach) { return reach.places().IsConsistent(fresh) ? use(reach) : kBadArguments; };
  if constexpr (Bound<kOperator>::MayHaveGroup(kReservoirGroup)) {
    if (args.HasGroup(kReservoirGroup)) return call(SingleRows<ReservoirCursors>(ReservoirOf(args), RowStateOf(args)));
  }
  if constexpr (Bound<kOperator>::MayHaveGroup(kEpisodesGroup)) {
    if (args.HasGroup(kEpisodesGroup)) {
      if (!IsRule(*args.template data<WindowRule>(NAMED("window_rule")), args.capacity())) return kBadArguments;
      return call(TimelineOf(args));
    }
  }
  return call(SingleRows<Cursors>(CursorsOf(args), RowStateOf(args)));
}

// True if n rows may be inserted: if the rule keeps rows that can still be drawn, none of them is evicted.
template <typename Reach>
REPLAY_BOTH bool HasRoom(const Reach &reach, int64_t n) {
  const Cursors &ring = reach.places();
  if (reach.row_state().rule->keep == 0 || n <= ring.capacity - ring.count) return true;
  return n <= ring.capacity - ring.count + reach.Unneeded();
}

}  // namespace replay
