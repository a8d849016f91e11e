"""Rows with an index and a `meta` each, in a buffer of this library that decides which are drawn, used up and stale."""

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from .. import host
from ..store.base.checks import any_number, check_bool, check_size, need, warn_caller
from ..store.base.column import Priorities
from ..store.base.habits import package_of
from ..store.kernels.library import library_for
from ..store.rows.inputs import as_array, as_priority
from ..store.spec.registry import find
from .layout import BufferedData, RowLayout, copied

#: Arguments of the buffer underneath, and what a sample says in `meta` if they are given; in the order of `info`.
_SHOWN = {"alpha": "priority", "max_use": "use_count", "max_staleness": "staleness"}
_UNIFORM: dict[str, Any] = {"weighted": True, "replace": False}
_OF_PRIORITIES = ("alpha", "beta", "beta_steps")
_HINT = "Nothing was stored, since 'replay' has these columns. Rows that differ need a buffer with objects=True."


class RowTable:
    """At most `size` rows by handles, the serial numbers of the buffer underneath. An index is a handle as text.

    That buffer is one of `mindspore_replay.host` until `replay` is asked for. Errors name the class `owner`.
    """

    def __init__(self, owner: str, size: int, objects: bool) -> None:
        self.owner, self.size = owner, check_size(owner, "size", size)
        self._objects = check_bool(owner, "objects", objects)
        #: Keys of `meta` in `DequeBuffer.meta_index`.
        self.indexed: tuple[str, ...] = ()
        #: Gets the rows that are overwritten or deleted.
        self.gone: Callable[[Any], None] | None = None
        #: Objects, or what is known of rows in columns, by handles modulo the size.
        self._kept: list[BufferedData | None] = [None] * size
        self._arguments: dict[str, Any] = {}  # of the buffer underneath; an infinite limit only counts
        self.lock, self._in_graphs, self.by_priority = threading.RLock(), False, False
        self._hold(self._make(None), None)

    def _hold(self, buffer: Any, layout: RowLayout | None) -> None:
        self.buffer, self.layout = buffer, layout

    def _given(self) -> dict[str, Any]:
        return {key: value for key, value in self._arguments.items() if value != inf}

    def _make(self, layout: RowLayout | None) -> Any:
        arguments = self._given()
        factors = {key: arguments.pop(key) for key in _OF_PRIORITIES if key in arguments}
        name, options = "ReplayBuffer", _UNIFORM
        if self.by_priority:
            priorities = Priorities(epsilon=1e-5, normalize="buffer", **factors)
            name, options = "ElasticReplayBuffer", {"priorities": priorities}
        buffer_class = find(name) if self._in_graphs or library_for("CPU").reason else getattr(host, name)
        names, shapes = (list(layout.shapes), list(layout.shapes.values())) if layout else (["object"], [()])
        types = layout.types if layout else ["uint8"]  # a number in place of each object
        return buffer_class(1, self.size, shapes, types, names=names, **options, **arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowTable":
        with self.lock:
            clone = memo[id(self)] = copy.copy(self)
            rows, gone = copy.deepcopy((self._kept, self.gone), memo)
            vars(clone).update(lock=threading.RLock(), _kept=rows, gone=gone)
            clone._hold(copy.deepcopy(self.buffer, memo), self.layout)  # noqa: SLF001
        return clone

    @property
    def replay(self) -> Any:
        """The buffer underneath, from now on a Cell."""
        with self.lock:
            if not self.pushed()[0]:
                raise RuntimeError(f"For '{self.owner}', 'replay' is made from the first row: push a row first.")
            self._in_graphs = True
            if self._is_on_arrays:
                cell = self._make(self.layout)
                cell.load_state_dict(self.buffer.state_dict())
                self._hold(cell, self.layout)
            return self.buffer

    def limit(self, **arguments: Any) -> None:
        """Set arguments of the buffer underneath, of limits the smallest so far. Stored rows stay."""
        with self.lock:
            before, limits = dict(vars(self)), self._given()
            for key in arguments.keys() & {"max_use", "max_staleness"}:
                limit = min(any_number(self.owner, key, arguments[key]), self._arguments.get(key, inf))
                arguments[key] = int(limit) if limit % 1 == 0 else limit
            self._arguments, self.by_priority = self._arguments | arguments, self.by_priority or "alpha" in arguments
            try:
                if not self._in_graphs:
                    self._make_again(before["by_priority"])
                elif limits != self._given():
                    raise RuntimeError(
                        f"For '{self.owner}', set limits and priorities before you read 'replay': add middleware first."
                    )
            except Exception:
                vars(self).update(before)
                raise

    def _make_again(self, weighted: bool) -> None:
        """Make the buffer underneath for other arguments, with the same rows, handles, time and priorities, if any."""
        handles, live, clock, before = self._all(), self.live(), self._state("clock")[0], self.buffer
        first = self.pushed()[0] - handles.size
        self._hold(self._make(self.layout), self.layout)
        begun = {"serials": np.array([first, first]), "clock": np.array([clock, first, 0])}
        self.buffer.load_state_dict(self.buffer.state_dict() | begun)
        if handles.size:
            metas = [self.entry(handle).meta for handle in handles.tolist()]
            described = self._described(metas)
            if weighted and self.by_priority:
                described["priority"] = as_array(before.info(handles)[0])
            self.buffer.insert(before.get_item(handles - first), **described)
            self.remove(np.setdiff1d(handles, live))

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the whole state."""
        with self.lock:
            rows = {"kept": list(self._kept), "indexed": self.indexed, "alpha": self._arguments.get("alpha")}
            return {"state": self.buffer.state_dict(), "layout": self.layout, **rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, into the same `replay` if columns are the same. Errors change nothing."""
        size, layout = len(state["kept"]), state["layout"]
        need(size == self.size, ValueError, self.owner, f"the state must be of size {self.size}", size)
        with self.lock:
            fits = layout == self.layout or not self._in_graphs
            need(fits, ValueError, self.owner, "the state must have the columns of 'replay'", layout and layout.shapes)
            buffer = self.buffer if layout == self.layout else self._make(layout)
            buffer.load_state_dict(self._of_this_kind(state))
            self._kept, self.indexed = copy.deepcopy(state["kept"]), state["indexed"]
            self._hold(buffer, layout)

    def _of_this_kind(self, state: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the arrays of a state, made anew if its rows are weighted otherwise: by alpha, or not at all."""
        if state["alpha"] == self._arguments.get("alpha"):
            return state["state"]  # type: ignore[no-any-return]
        other = RowTable(self.owner, self.size, self._objects)
        other._arguments = {} if state["alpha"] is None else {"alpha": state["alpha"]}
        other.by_priority, other._kept = bool(other._arguments), state["kept"]
        other._hold(other._make(state["layout"]), state["layout"])
        other.buffer.load_state_dict(state["state"])
        weighted, other.by_priority, other._arguments = other.by_priority, self.by_priority, self._arguments
        other._make_again(weighted)
        return other.buffer.state_dict()  # type: ignore[no-any-return]

    @property
    def _is_on_arrays(self) -> bool:
        return package_of(self.buffer) == host.__name__

    # Which rows there are.

    def _state(self, name: str) -> np.ndarray:
        buffer = self.buffer
        return buffer.arrays[name] if self._is_on_arrays else buffer.state.state_arrays()[name].asnumpy()  # type: ignore[no-any-return]

    def count(self) -> int:
        """Return the number of rows that were not removed."""
        return self.buffer.eligible()  # type: ignore[no-any-return]

    def pushed(self) -> tuple[int, int]:
        """Return the number of rows pushed, in all and since the last `clear`."""
        total, first = self._state("serials").tolist()
        return total, total - first

    def _all(self) -> np.ndarray:
        """Return the handles of all rows, also of those that were removed, oldest first."""
        total = self.pushed()[0]
        return np.arange(total - len(self.buffer), total)

    def _stored(self, handles: np.ndarray) -> np.ndarray:
        number = len(self.buffer)
        positions = handles - (self.pushed()[0] - number)
        removed = self._state("use_counts")[(int(self._state("head")) + positions) % self.size] < 0
        return (positions >= 0) & (positions < number) & ~removed

    def live(self) -> np.ndarray:
        """Return the handles of the rows, oldest first."""
        handles = self._all()
        return handles if self.count() == handles.size else handles[self._stored(handles)]

    def handles(self, indices: Iterable[object]) -> np.ndarray:
        """Return the handles of indices, -1 where no row is stored."""
        numbers = (int(i) if isinstance(i, str) and i.isdecimal() and len(i) < 19 else -1 for i in indices)
        handles = np.fromiter(numbers, np.int64)
        return np.where(self._stored(handles), handles, -1)

    def checked_handles(self, indices: Sequence[str]) -> np.ndarray:
        """Return the handles of indices. Raise a KeyError if one is not that of a stored row."""
        handles = self.handles(indices)
        for i in np.flatnonzero(handles < 0):
            raise KeyError(f"For '{self.owner}', 'index' must be that of a stored row, but got {indices[i]!r}.")
        return handles

    # Rows in.

    def extend(self, pairs: Sequence[tuple[Any, dict[str, Any]]]) -> list[BufferedData]:
        """Append rows, each with its `meta`. After an error nothing is stored."""
        with self.lock:
            if not pairs:
                return []
            first, (rows, metas) = self.pushed()[0], zip(*pairs)
            if not first:  # columns are those of the first row that is stored
                layout = None if self._objects else RowLayout.of(rows[0])
                self._hold(self._make(layout), layout)
            self._with_fields("insert", rows=rows, **self._described(metas))
            pushed = [BufferedData(row, str(first + i), meta) for i, (row, meta) in enumerate(pairs)]
            for handle, row in enumerate(pushed, first):
                self._keep(handle, BufferedData(None, row.index, row.meta) if self.layout else row)
            return pushed

    def update(self, handle: int, data: object, meta: dict[str, Any] | None) -> None:
        """Replace a stored row, its metadata, or both. After an error nothing is changed."""
        priority = (meta or {}).get("priority") if self.by_priority else None
        priority = None if priority is None else as_priority(self.owner, priority, 1)
        if data is not None and self.layout:
            self._with_fields("update", handle, rows=[data])
        entry = self.entry(handle)
        if data is not None and not self.layout:
            entry.data = data
        if priority is not None:
            self.buffer.update_priorities(handle, priority)
        entry.meta, self._kept[handle % self.size] = entry.meta if meta is None else meta, entry

    def _with_fields(self, method: str, *arguments: Any, rows: Sequence[object], **more: Any) -> None:
        """Call a method of the buffer underneath with the columns of rows.

        If a row does not fit, and no graph may use the columns, all rows are objects from then on.
        """
        objects = [0] if len(rows) == 1 else [[0] * len(rows)]
        try:
            getattr(self.buffer, method)(
                *arguments, self.layout.fields(self.owner, rows) if self.layout else objects, **more
            )
        except (TypeError, ValueError) as error:
            if self.layout is None:
                raise
            if self._in_graphs:
                raise type(error)(f"{error} {_HINT}") from None
            buffer = self._make(None)
            empty = buffer.state_dict()
            buffer.load_state_dict(empty | {key: one for key, one in self.buffer.state_dict().items() if key in empty})
            getattr(buffer, method)(*arguments, objects, **more)  # refuses what is wrong besides
            warn_caller(
                f"For '{self.owner}', all rows are stored as objects from now on, since one does not fit the first's "
                "columns. Compiled graphs cannot sample the values of objects, and a batch of tensors takes ten times "
                f"as long. Push rows with the same keys, shapes and dtypes, or pass objects=True. The reason: {error}"
            )
            for row in self.items(self.live()):
                self._kept[int(row.index) % self.size] = row
            self._hold(buffer, None)

    def _described(self, metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the priorities and versions of rows for `insert`."""
        described: dict[str, Any] = {}
        priorities = [meta.get("priority") for meta in metas] if self.by_priority else []
        if any(one is not None for one in priorities):
            largest = float(self._state("max_priority"))
            numbers = [largest if one is None else float(one) for one in priorities]
            described["priority"] = as_priority(self.owner, numbers, len(numbers))
        aged = "max_staleness" in self._arguments
        versions = [meta.get("train_iter_data_collected") for meta in metas] if aged else []
        if any(one is not None for one in versions):
            now = self.advance_to(max(int(one) for one in versions if one is not None))
            described["version"] = [now if one is None else int(one) for one in versions]
        return described

    def advance_to(self, clock: int) -> int:
        """Move the learner's clock forward to a value, and return it. Rows that become stale are removed."""
        with self.lock:
            now = int(self._state("clock")[0])
            if clock > now:
                self.buffer.advance(clock - now)
            return max(clock, now)

    def _keep(self, handle: int, row: BufferedData | None) -> None:
        place = handle % self.size
        before, self._kept[place] = self._kept[place], row
        if self.gone is not None and before is not None:
            self.gone(before.data)

    def remove(self, handles: np.ndarray) -> None:
        """Remove stored rows."""
        if handles.size:
            self.buffer.delete(handles)
            for handle in set(handles.tolist()):
                self._keep(handle, None)

    def clear(self) -> None:
        """Remove all rows."""
        with self.lock:
            for place in range(self.size):
                self._keep(place, None)
            self.buffer.reset()

    # Rows out.

    def entry(self, handle: int) -> BufferedData:
        """Return what is kept of a row: its index alone, if a graph inserted it."""
        entry = self._kept[handle % self.size]
        return entry if entry is not None and entry.index == str(handle) else BufferedData(None, str(handle), {})

    def items(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows."""
        return self._rows(handles, self.buffer.get_item(handles - self._all()[0]) if handles.size else ())

    def _rows(self, handles: np.ndarray, fields: Sequence[Any]) -> list[BufferedData]:
        entries = [self.entry(handle) for handle in handles.tolist()]
        if self.layout is None:
            return entries
        return [BufferedData(row, one.index, one.meta) for one, row in zip(entries, self.layout.rows(fields))]

    @property
    def beta(self) -> float:
        """Strength of the importance weights of the next sample."""
        return float(self._state("beta")[0])

    @beta.setter
    def beta(self, beta: float) -> None:
        state = self.buffer.state
        with state.exclusive():
            state.state_arrays()["beta"].overwrite(np.array([beta]))

    def draw(self, size: int, again: bool = False, sample_range: slice | None = None) -> list[BufferedData]:
        """Draw rows, also `again` the same, or of a slice of all, oldest first, or none if there are too few."""
        with self.lock:
            check_size(self.owner, "size", size, minimum=0)
            chosen = sample_range or slice(None)
            available = len(range(self.count())[chosen])
            once = not again and ("max_use" in self._given() or not self.by_priority)
            if not available or not size or (available < size and once):
                return []
            if self.by_priority:
                return _independent(self._by_priority(size, sample_range))
            if not again and sample_range is None:
                return self._drawn(size)
            return self.delivered(np.random.choice(self.live()[chosen], size, again))

    def _by_priority(self, size: int, sample_range: slice | None) -> list[BufferedData]:
        """Draw rows of a range, which is the buffer's window during the call."""
        if sample_range is None:
            return self._drawn(size)
        live, window = self.live(), int(self._state("window")[0])
        fits = live[sample_range][-1] == live[-1] and sample_range.step in (None, 1)
        rule = "'sample_range' must be slice(-n, None) where priorities decide"
        need(fits, ValueError, self.owner, rule, sample_range)
        self.buffer.set_window(self.pushed()[0] - int(live[sample_range][0]))
        try:
            return self._drawn(size)
        finally:
            self.buffer.set_window(window)

    def _drawn(self, n: int, position: int | None = None) -> list[BufferedData]:
        """Draw rows: by priority, otherwise from all, or the one at a position."""
        replay, more = self.buffer.with_sample_size(n), {}
        if self.by_priority:
            handles, more["priority_IS"], *fields = replay.sample()
            more["priority_idx"] = as_array(handles) % self.size
        else:
            bounds = None if position is None else (position, position + 1)
            handles, *fields = replay.sample(bounds, with_indices=True)
        return self._shown(self._rows(as_array(handles), fields), handles, **more)

    def _shown(self, rows: list[BufferedData], handles: Any, **more: Any) -> list[BufferedData]:
        """Return rows of a sample, with what is known of them in `meta`."""
        if self._arguments:
            shown = zip(_SHOWN.items(), self.buffer.info(handles))
            more |= {name: values for (key, name), values in shown if key in self._arguments}
        for key, values in more.items():
            for row, value in zip(rows, as_array(values).tolist()):
                row.meta[key] = value
        return rows

    def delivered(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows as a sample that counts as a use."""
        if "max_use" not in self._arguments or self.by_priority:
            return _independent(self._shown(self.items(handles), handles))
        rows, first = [], self._all()[0]
        for handle in handles.tolist():
            try:
                rows += self._drawn(1, position=handle - first)
            except RuntimeError:  # used up by this sample
                rows += self.items(np.array([handle]))
        return _independent(rows)


def _independent(rows: list[BufferedData]) -> list[BufferedData]:
    """Return rows, with copies of repeated ones."""
    seen: set[str] = set()
    for i, row in enumerate(rows):
        if row.index in seen:
            rows[i] = copied(row)  # type: ignore[call-overload]
        seen.add(row.index)
    return rows
