"""Rows with an index and a `meta` each, in a buffer of this library that decides which are drawn, used up and stale."""

import contextlib
import copy
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import host
from ..host import HostBuffer
from ..store.checks import any_number, check_bool, check_size
from ..store.inputs import as_array
from ..store.library import library_for
from ..store.recipe.registry import find
from .layout import HINT, BufferedData, RowLayout, copied

if TYPE_CHECKING:
    from ..buffers.elastic import ElasticReplayBuffer
    from ..buffers.replay import ReplayBuffer

_INFINITY = float("inf")
_INFO = "priority", "use_count", "staleness"  # what a buffer knows of its rows, as `meta` has it
_OBJECTS = {"names": ["object"], "shapes": [()], "types": ["uint8"]}  # a column in place of those of rows


@dataclass(eq=False)
class _Shared:
    """What views share: rows in a buffer of `mindspore_replay.host`, until `replay` is asked for."""

    #: Objects, or what is known of rows in columns, by handles modulo the size.
    kept: list[BufferedData | None]
    #: Arguments of the buffer underneath.
    limits: dict[str, Any] = field(default_factory=dict)
    priorities: dict[str, Any] = field(default_factory=dict)
    #: Those of `_INFO` that rows of a sample have in `meta`.
    shown: frozenset[str] = frozenset()
    #: Gets the rows that are overwritten or deleted.
    gone: Callable[[Any], None] | None = None
    #: Whether `replay` was asked for.
    in_graphs: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    def hold(self, held: Any, layout: RowLayout | None) -> None:
        """Hold the rows in a buffer, and make ready those for sizes of samples."""
        self.held, self.layout = held, layout
        self.sized = functools.lru_cache(maxsize=32)(lambda size: held.with_sample_size(size))

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Shared":
        with self.lock:
            kept, gone = copy.deepcopy((self.kept, self.gone), memo)
            memo[id(self)] = made = replace(self, kept=kept, gone=gone, lock=threading.RLock())
            made.hold(copy.deepcopy(self.held, memo), self.layout)
        return made


class RowTable:
    """Rows by handles, the serial numbers that the buffer underneath gives them, and by indices, handles as text.

    Args:
        size (int): Most rows.
        objects (bool): Whether to keep rows as objects; ``False`` makes columns if the first row allows.
    """

    def __init__(self, size: int, objects: bool) -> None:
        self._owner = name = type(self).__name__
        self.size = check_size(name, "size", size)
        self._objects = check_bool(name, "objects", objects)
        self.shared = _Shared([None] * size)
        self.shared.hold(self._make(None), None)

    def _make(self, layout: RowLayout | None, in_graphs: bool = False) -> Any:
        given: dict[str, Any] = {"weighted": True, "replace": False}
        if self.shared.priorities:
            given = {"prioritized": True, "epsilon": 1e-5, "normalize": "buffer", **self.shared.priorities}
        name = "ElasticReplayBuffer" if self.shared.priorities else "ReplayBuffer"
        made = find(name) if in_graphs or library_for("CPU").reason else getattr(host, name)
        return made(1, self.size, **given, **self.shared.limits, **(layout.arguments() if layout else _OBJECTS))

    @property
    def replay(self) -> "ReplayBuffer | ElasticReplayBuffer":
        """The buffer of this library that holds the rows, from now on a Cell."""
        shared = self.shared
        with shared.lock:
            if not self.pushed()[0]:
                raise RuntimeError(f"For '{self._owner}', 'replay' is made with the first row: push one before.")
            shared.in_graphs = True
            if isinstance(shared.held, HostBuffer):
                made = self._make(shared.layout, in_graphs=True)
                made.load_state_dict(shared.held.state_dict())
                shared.hold(made, shared.layout)
            return shared.held  # type: ignore[no-any-return]

    def limit(self, limits: Mapping[str, float], shown: frozenset[str], priorities: dict[str, Any]) -> None:
        """Set limits, of which the smallest hold, what `meta` shows, and priorities. Stored rows stay."""
        shared = self.shared
        with shared.lock:
            new, given, before = dict(shared.limits), priorities or shared.priorities, dict(vars(shared))
            for key, value in limits.items():
                least = min(any_number(self._owner, key, value), new.get(key, _INFINITY))
                if least != _INFINITY:
                    new[key] = int(least) if least % 1 == 0 else least
            if (new, given) != (shared.limits, shared.priorities) and shared.in_graphs:
                raise RuntimeError(
                    f"For '{self._owner}', limits and priorities must be set before 'replay' is asked for: add "
                    "middleware first."
                )
            try:
                shared.limits, shared.priorities, shared.shown = new, given, shared.shown | shown
                if not shared.in_graphs:
                    shared.hold(self._make(shared.layout), shared.layout)
                    self._take_rows(before["held"])
            except (TypeError, ValueError):
                vars(shared).update(before)
                raise

    def _take_rows(self, before: Any) -> None:
        """Insert the rows of another buffer, under the same handles and at the same time."""
        held, handles, now = self.shared.held, _handles(before), int(state_of(before, "clock")[0])
        first = int(state_of(before, "serials")[0]) - handles.size
        begun = {"serials": np.array([first, first]), "clock": np.array([now, first, 0])}
        held.load_state_dict({**held.state_dict(), **begun})
        if handles.size:
            metas = [self._known(handle).meta for handle in handles.tolist()]
            held.insert(before.get_item(handles - first), **self._arguments(metas))
            self._remove(handles[~_stored(before, handles)])

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the whole state."""
        shared = self.shared
        with shared.lock:
            return {"state": shared.held.state_dict(), "layout": shared.layout, "kept": list(shared.kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, into the same `replay` if columns are the same; errors change nothing."""
        shared, size, layout = self.shared, len(state["kept"]), state["layout"]
        with shared.lock:
            if size != self.size:
                raise ValueError(f"For '{self._owner}', the state must be of size {self.size}, but got {size}.")
            if layout != shared.layout and shared.in_graphs:
                raise ValueError(f"For '{self._owner}', the state must have the columns of 'replay', but got others.")
            held = shared.held if layout == shared.layout else self._make(layout)
            held.load_state_dict(state["state"])
            shared.kept = copy.deepcopy(state["kept"])
            shared.hold(held, layout)

    # Which rows there are.

    def count(self) -> int:
        """Return the number of rows."""
        return self.shared.held.eligible()  # type: ignore[no-any-return]

    __len__ = count

    def pushed(self) -> tuple[int, int]:
        """Return the number of rows pushed, in all and since the last `clear`."""
        total, first = state_of(self.shared.held, "serials").tolist()
        return total, total - first

    def live(self) -> np.ndarray:
        """Return the handles of the rows, oldest first."""
        handles = _handles(self.shared.held)
        return handles if self.count() == handles.size else handles[_stored(self.shared.held, handles)]

    def handles(self, indices: Iterable[object]) -> tuple[np.ndarray, np.ndarray]:
        """Return the handles of indices, and for each whether its row is stored."""
        numbers = [int(i) if isinstance(i, str) and i.isdecimal() and len(i) < 19 else -1 for i in indices]
        found = np.array(numbers, np.int64)
        return found, (found >= 0) & _stored(self.shared.held, found)

    # Rows in.

    def extend(self, known: Sequence[tuple[Any, dict[str, Any]]]) -> list[BufferedData]:
        """Append rows, each with its `meta`, past the middleware; after an error nothing is stored."""
        shared = self.shared
        with shared.lock:
            if not known:
                return []
            rows, metas = zip(*known)
            if not self.pushed()[0]:  # columns are those of the first row that is stored
                layout = None if self._objects else RowLayout.of(rows[0])
                shared.hold(self._make(layout), layout)
            with self._fields(rows) as fields:
                shared.held.insert(fields, **self._arguments(metas))
            first = self.pushed()[0] - len(rows)
            pushed = [BufferedData(row, str(first + i), meta) for i, (row, meta) in enumerate(known)]
            for handle, row in enumerate(pushed, first):
                self._keep(handle, BufferedData(None, row.index, row.meta) if shared.layout else row)
            return pushed

    @contextlib.contextmanager
    def _fields(self, rows: Sequence[object]) -> Iterator[Any]:
        """Give the columns of rows; errors in the block say how to keep rows that differ."""
        try:
            layout = self.shared.layout
            yield layout.fields(self._owner, rows) if layout else [0] if len(rows) == 1 else [[0] * len(rows)]
        except (TypeError, ValueError) as error:
            raise error if HINT in str(error) else type(error)(f"{error} {HINT}") from None

    def _arguments(self, metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the priorities and versions of rows, as `insert` takes them."""
        arguments: dict[str, Any] = {}
        priorities = [meta.get("priority") for meta in metas] if self.shared.priorities else []
        if any(one is not None for one in priorities):
            largest = float(state_of(self.shared.held, "max_priority")) if None in priorities else 0.0
            arguments["priority"] = [largest if one is None else float(one) for one in priorities]
        versions = [meta.get("train_iter_data_collected") for meta in metas] if "staleness" in self.shared.shown else []
        if any(one is not None for one in versions):
            now = self.advance_to(max(int(one) for one in versions if one is not None))
            arguments["version"] = [now if one is None else int(one) for one in versions]
        return arguments

    def advance_to(self, clock: int) -> int:
        """Move the learner's clock forward to a value, and return it; rows that become stale are removed."""
        with self.shared.lock:
            now = int(state_of(self.shared.held, "clock")[0])
            if clock > now:
                self.shared.held.advance(clock - now)
            return max(clock, now)

    def _keep(self, handle: int, row: BufferedData | None) -> None:
        shared, place = self.shared, handle % self.size
        before, shared.kept[place] = shared.kept[place], row
        if shared.gone is not None and before is not None:
            shared.gone(before.data)

    def _remove(self, handles: np.ndarray) -> None:
        if handles.size:
            self.shared.held.delete(handles)
            for handle in set(handles.tolist()):
                self._keep(handle, None)

    # Rows out.

    def _known(self, handle: int) -> BufferedData:
        """Return what is kept of a row: its index alone, if a graph inserted it."""
        kept = self.shared.kept[handle % self.size]
        return kept if kept is not None and kept.index == str(handle) else BufferedData(None, str(handle), {})

    def items(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows."""
        held = self.shared.held
        return self._rows(handles, held.get_item(handles - _handles(held)[0]) if handles.size else ())

    def _rows(self, handles: np.ndarray, fields: Sequence[Any]) -> list[BufferedData]:
        kept, layout = [self._known(handle) for handle in handles.tolist()], self.shared.layout
        if layout is None:
            return kept
        return [BufferedData(row, one.index, one.meta) for one, row in zip(kept, layout.rows(fields))]

    def draw(self, size: int, again: bool = False, sample_range: slice | None = None) -> list[BufferedData]:
        """Draw rows, past the middleware, as `sample` does; none if there are too few."""
        with self.shared.lock:
            check_size(self._owner, "size", size, minimum=0)
            there, by_priority = len(range(self.count())[sample_range or slice(None)]), bool(self.shared.priorities)
            once = "max_use" in self.shared.limits or not (again or by_priority)
            if not there or not size or (there < size and once):
                return []
            if not by_priority and (again or sample_range is not None):
                return self.delivered(np.random.choice(self.live()[sample_range or slice(None)], size, again))
            window = None if sample_range is None else self._window(sample_range)
            rows: list[BufferedData] = []
            with contextlib.suppress(RuntimeError):  # all of the range was used up
                while len(rows) < size and (left := self.count()):
                    rows += self._drawn(min(size - len(rows), there, left), window)
            return _independent(rows) if len(rows) == size else []

    def _window(self, sample_range: slice) -> int:
        """Return how many of the newest places a range has."""
        live = self.live()
        handles = live[sample_range]
        if handles[-1] != live[-1] or sample_range.step not in (None, 1):
            raise ValueError(
                f"For '{self._owner}', 'sample_range' must be slice(-n, None) where priorities decide, but got "
                f"{sample_range}."
            )
        return self.pushed()[0] - int(handles[0])

    def _drawn(self, n: int, window: int | None = None, position: int | None = None) -> list[BufferedData]:
        """Draw rows: by priority from the newest, otherwise from all, or the one at a position."""
        shared, weights = self.shared, np.zeros(0)
        replay: Any = shared.sized(n)
        if shared.priorities:
            try:
                _ = window is None or replay.set_window(window)
                handles, weights, *fields = replay.sample()
            finally:
                _ = window is None or replay.set_window(self.size)
        else:
            bounds = None if position is None else (position, position + 1)
            handles, *fields = replay.sample(bounds, with_indices=True)
        rows = self._rows(as_array(handles), fields)
        known = {"priority_IS": weights, **dict(zip(_INFO, shared.held.info(handles) if shared.shown else ()))}
        for key in ("priority_IS", *shared.shown):
            for row, value in zip(rows, as_array(known[key]).tolist()):
                row.meta[key] = value
        return rows

    def delivered(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows as a sample that counts as a use."""
        if "use_count" not in self.shared.shown or self.shared.priorities:
            return _independent(self.items(handles))
        rows, first = [], _handles(self.shared.held)[0]
        for handle in handles.tolist():
            try:
                rows += self._drawn(1, position=handle - first)
            except RuntimeError:  # used up by this sample
                rows += self.items(np.array([handle]))
        return _independent(rows)


def state_of(held: Any, name: str) -> np.ndarray:
    """Return an array of the state of a buffer."""
    return as_array(held.arrays[name] if isinstance(held, HostBuffer) else getattr(held, name))


def _handles(held: Any) -> np.ndarray:
    """Return the handles of all rows, also of those that were removed, oldest first."""
    total = int(state_of(held, "serials")[0])
    return np.arange(total - len(held), total)


def _stored(held: Any, handles: np.ndarray) -> np.ndarray:
    """Return for each handle whether its row is stored."""
    positions = handles - (int(state_of(held, "serials")[0]) - len(held))
    slots = (int(state_of(held, "head")) + positions) % held.capacity
    return (positions >= 0) & (positions < len(held)) & (state_of(held, "use_counts")[slots] >= 0)


def _independent(rows: list[BufferedData]) -> list[BufferedData]:
    """Return rows, with a copy of each that comes again."""
    seen: set[str] = set()
    for i, row in enumerate(rows):
        if row.index in seen:
            rows[i] = copied(row)  # type: ignore[call-overload]
        seen.add(row.index)
    return rows
