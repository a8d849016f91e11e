"""Rows with an index and a `meta` each, in a buffer of this library that decides which are drawn, used up and stale."""

import contextlib
import copy
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import host
from ..host import HostBuffer
from ..store.checks import check_bool, check_size
from ..store.inputs import as_array, as_priority
from ..store.library import library_for
from ..store.recipe.registry import find
from .layout import HINT, BufferedData, RowLayout, copied

if TYPE_CHECKING:
    from ..buffers.elastic import ElasticReplayBuffer
    from ..buffers.replay import ReplayBuffer

_MOST_SIZES = 32  # sizes of samples that stay ready
_OBJECTS = {"names": ["object"], "shapes": [()], "types": ["uint8"]}  # a column in place of those of rows


class RowTable:
    """Rows by handles, the serial numbers that the buffer underneath gives them, and by indices, handles as text.

    Args:
        owner (str): Class to name in errors.
        size (int): Most rows.
        objects (bool): Whether to keep rows as objects; ``False`` makes columns if the first row allows.

    Attributes:
        held (Any): The buffer underneath: of `mindspore_replay.host`, until `replay` is asked for.
        limits (dict): Its arguments `max_use` and `max_staleness`, if there are such.
        priorities (dict): Its arguments for draws by priority; empty if they are uniform.
        gone (Union[Callable, None]): Gets the rows that are overwritten or deleted.
    """

    def __init__(self, owner: str, size: int, objects: bool) -> None:
        self.owner, self.size = owner, check_size(owner, "size", size)
        self._objects = check_bool(owner, "objects", objects)
        self.lock = threading.RLock()
        self.gone: Callable[[Any], None] | None = None
        self.limits: dict[str, Any] = {}
        self.priorities: dict[str, Any] = {}
        self._shown: dict[str, int] = {}  # keys of `meta`, with the place in `info` that they come from
        self._kept: list[BufferedData | None] = [None] * size  # the objects, or what is known of rows in columns
        self._hold(self._make(None), None)

    def _make(self, layout: RowLayout | None, in_graphs: bool = False) -> Any:
        given: dict[str, Any] = {"weighted": True, "replace": False}
        if self.priorities:
            given = {"prioritized": True, "epsilon": 1e-5, "normalize": "buffer", **self.priorities}
        name = "ElasticReplayBuffer" if self.priorities else "ReplayBuffer"
        made = find(name) if in_graphs or library_for("CPU").reason else getattr(host, name)
        return made(1, self.size, **given, **self.limits, **(layout.arguments() if layout else _OBJECTS))

    def _hold(self, held: Any, layout: RowLayout | None) -> None:
        self.held, self._layout = held, layout
        #: That for a size of samples.
        self._sized = functools.lru_cache(_MOST_SIZES)(lambda size: held.with_sample_size(size))

    @property
    def replay(self) -> "ReplayBuffer | ElasticReplayBuffer":
        """The buffer of this library that holds the rows, from now on a Cell."""
        with self.lock:
            if not self.pushed()[0]:
                raise RuntimeError(f"For '{self.owner}', 'replay' is made with the first row: push one before.")
            if isinstance(self.held, HostBuffer):
                made = self._make(self._layout, in_graphs=True)
                made.load_state_dict(self.held.state_dict())
                self._hold(made, self._layout)
            return self.held  # type: ignore[no-any-return]

    def limit(self, limits: Mapping[str, float], shown: dict[str, int], priorities: dict[str, Any]) -> None:
        """Set limits, of which the smallest hold, what `meta` shows, and priorities. Stored rows stay."""
        with self.lock:
            before, least = dict(vars(self)), dict(self.limits)
            for key, value in limits.items():
                if value != float("inf"):
                    limit = int(value) if float(value).is_integer() else value
                    limit = check_size(self.owner, key, limit, minimum=int(key == "max_use"))
                    least[key] = min(limit, least.get(key, limit))
            self.limits, self.priorities, self._shown = least, priorities or self.priorities, self._shown | shown
            try:
                self._hold(self._make(self._layout), self._layout)
                self._take_rows(before["held"])
            except (TypeError, ValueError):
                vars(self).update(before)
                raise

    def _take_rows(self, held: Any) -> None:
        """Insert the rows of another buffer, under the same handles and at the same time."""
        total, number, now = int(_state(held, "serials")[0]), len(held), int(_state(held, "clock")[0])
        first = total - number
        begun = {"serials": np.array([first, first]), "clock": np.array([now, first, 0])}
        self.held.load_state_dict({**self.held.state_dict(), **begun})
        handles = np.arange(first, total)
        if number:
            metas = [self.known(handle).meta for handle in handles.tolist()]
            self.held.insert(held.get_item(np.arange(number)), **self._arguments(metas))
            self.delete(handles[~_stored(held, handles)])

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowTable":
        with self.lock:
            made = memo[id(self)] = copy.copy(self)
            vars(made).update(
                lock=threading.RLock(),
                **{key: copy.deepcopy(vars(self)[key], memo) for key in ("gone", "_kept", "held")},
            )
            RowTable._hold(made, made.held, self._layout)
        return made

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the whole state."""
        with self.lock:
            return {"state": self.held.state_dict(), "layout": self._layout, "kept": list(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, into the same `replay` if columns are the same; errors change nothing."""
        with self.lock:
            size = len(state["kept"])
            if size != self.size:
                raise ValueError(f"For '{self.owner}', the state must be of size {self.size}, but got {size}.")
            held = self.held if state["layout"] == self._layout else self._make(state["layout"])
            held.load_state_dict(state["state"])
            self._kept = copy.deepcopy(state["kept"])
            self._hold(held, state["layout"])

    # Which rows there are.

    def state(self, name: str) -> np.ndarray:
        """Return an array of the state of the buffer underneath."""
        return _state(self.held, name)

    def count(self) -> int:
        """Return the number of rows."""
        return self.held.eligible()  # type: ignore[no-any-return]

    def pushed(self) -> tuple[int, int]:
        """Return the number of rows pushed, in all and since the last `clear`."""
        total, first = self.state("serials").tolist()
        return total, total - first

    def live(self) -> np.ndarray:
        """Return the handles of the rows, oldest first."""
        handles = self._first() + np.arange(len(self.held))
        return handles if self.count() == handles.size else handles[_stored(self.held, handles)]

    def _first(self) -> int:
        return self.pushed()[0] - len(self.held)

    def handles(self, indices: Iterable[object]) -> tuple[np.ndarray, np.ndarray]:
        """Return the handles of indices, and for each whether its row is stored."""
        numbers = [int(i) if isinstance(i, str) and i.isdecimal() and len(i) < 19 else -1 for i in indices]
        found = np.array(numbers, np.int64)
        return found, (found >= 0) & _stored(self.held, found)

    def stored_handles(self, indices: Sequence[str]) -> np.ndarray:
        """Return the handles of indices; a KeyError if a row is not stored."""
        handles, stored = self.handles(indices)
        if not stored.all():
            wrong = indices[int(np.argmin(stored))]
            raise KeyError(f"For '{self.owner}', 'index' must be that of a stored row, but got {wrong!r}.")
        return handles

    # Rows in.

    def extend(self, rows: Sequence[object], metas: Sequence[dict[str, Any]]) -> list[BufferedData]:
        """Append rows, past the middleware; after an error nothing is stored."""
        with self.lock:
            if not rows:
                return []
            if not self.pushed()[0]:  # columns are those of the first row that is stored
                layout = None if self._objects else RowLayout.of(rows[0])
                self._hold(self._make(layout), layout)
            with self._written(rows) as fields:
                self.held.insert(fields, **self._arguments(metas))
            first = self.pushed()[0] - len(rows)
            pushed = [BufferedData(row, str(first + i), meta) for i, (row, meta) in enumerate(zip(rows, metas))]
            for handle, row in enumerate(pushed, first):
                self.keep(handle, BufferedData(None, row.index, row.meta) if self._layout else row)
            return pushed

    @contextlib.contextmanager
    def _written(self, rows: Sequence[object]) -> Iterator[Any]:
        """Give the columns of rows; errors in the block say how to keep rows that differ."""
        try:
            layout = self._layout
            yield layout.fields(self.owner, rows) if layout else [0] if len(rows) == 1 else [[0] * len(rows)]
        except (TypeError, ValueError) as error:
            raise error if HINT in str(error) else type(error)(f"{error} {HINT}") from None

    def _arguments(self, metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the priorities and versions of rows, as `insert` takes them."""
        arguments: dict[str, Any] = {}
        priorities = [meta.get("priority") for meta in metas] if self.priorities else []
        if any(one is not None for one in priorities):
            largest = float(self.state("max_priority")) if None in priorities else 0.0
            arguments["priority"] = [largest if one is None else float(one) for one in priorities]
        versions = [meta.get("train_iter_data_collected") for meta in metas] if "staleness" in self._shown else []
        if any(one is not None for one in versions):
            now = self.advance_to(max(int(one) for one in versions if one is not None))
            arguments["version"] = [now if one is None else int(one) for one in versions]
        return arguments

    def advance_to(self, clock: int) -> int:
        """Move the learner's clock forward to a value, and return it; rows that become stale are removed."""
        with self.lock:
            now = int(self.state("clock")[0])
            if clock > now:
                self.held.advance(clock - now)
            return max(clock, now)

    def keep(self, handle: int, row: BufferedData | None) -> None:
        """Keep what is known of a row, in place of what was there; ``None`` if it leaves."""
        before, self._kept[handle % self.size] = self._kept[handle % self.size], row
        if self.gone is not None and before is not None:
            self.gone(before.data)

    def update(self, handle: int, data: object, meta: dict[str, Any] | None) -> None:
        """Replace a stored row, and what is known of it, where given; after an error nothing is stored."""
        priority = None if meta is None or not self.priorities else meta.get("priority")
        if priority is not None:
            priority = as_priority(self.owner, priority, 1)
        known = self.known(handle)
        if data is not None and self._layout:
            with self._written([data]) as fields:
                self.held.update(handle, fields)
        elif data is not None:
            known.data = data
        if priority is not None:
            self.held.update_priorities(handle, priority)
        known.meta, self._kept[handle % self.size] = known.meta if meta is None else meta, known

    def delete(self, handles: np.ndarray) -> None:
        """Remove stored rows."""
        if handles.size:
            self.held.delete(handles)
            for handle in set(handles.tolist()):
                self.keep(handle, None)

    def clear(self) -> None:
        """Remove all rows."""
        with self.lock:
            for place in range(self.size):
                self.keep(place, None)
            self.held.reset()

    # Rows out.

    def known(self, handle: int) -> BufferedData:
        """Return what is kept of a row: its index alone, if a graph inserted it."""
        kept = self._kept[handle % self.size]
        return kept if kept is not None and kept.index == str(handle) else BufferedData(None, str(handle), {})

    def items(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows."""
        return self._rows(handles, tuple(self.held.get_item(handles - self._first())) if handles.size else ())

    def _rows(self, handles: np.ndarray, fields: Sequence[Any]) -> list[BufferedData]:
        kept = [self.known(handle) for handle in handles.tolist()]
        if self._layout is None:
            return kept
        return [BufferedData(row, one.index, one.meta) for one, row in zip(kept, self._layout.rows(fields))]

    def draw(self, size: int, replace: bool = False, sample_range: slice | None = None) -> list[BufferedData]:
        """Draw rows, past the middleware, as `sample` does; none if there are too few."""
        with self.lock:
            there = len(range(self.count())[sample_range or slice(None)])
            again = replace or bool(self.priorities)
            if not there or not size or (there < size and ("max_use" in self.limits or not again)):
                return []
            if not self.priorities and (replace or sample_range is not None):
                return self.delivered(np.random.choice(self.live()[sample_range or slice(None)], size, replace))
            window = None if sample_range is None else self._window(sample_range)
            rows: list[BufferedData] = []
            with contextlib.suppress(RuntimeError):  # all of the range was used up
                while len(rows) < size and (left := self.count()):
                    rows += self._drawn(min(size - len(rows), there, left), window)
            rows = rows if len(rows) == size else []
            return _independent(rows) if self.priorities else rows

    def _window(self, sample_range: slice) -> int:
        live = self.live()
        handles = live[sample_range]
        if handles[-1] != live[-1] or sample_range.step not in (None, 1):
            raise ValueError(
                f"For '{self.owner}', 'sample_range' must be slice(-n, None) where priorities decide, but got "
                f"{sample_range}."
            )
        return self.pushed()[0] - int(handles[0])

    def _drawn(self, n: int, window: int | None = None, position: int | None = None) -> list[BufferedData]:
        """Draw rows: by priority from the newest, otherwise from all, or the one at a position."""
        replay: Any = self._sized(n)
        weights: Any = ()
        if not self.priorities:
            bounds = None if position is None else (position, position + 1)
            handles, *fields = replay.sample(bounds, with_indices=True)
        else:
            try:
                _ = window is None or replay.set_window(window)
                handles, weights, *fields = replay.sample()
            finally:
                _ = window is None or replay.set_window(self.size)
        rows = self._rows(as_array(handles), fields)
        for row, weight in zip(rows, as_array(weights).tolist()):
            row.meta["priority_IS"] = weight
        if self._shown:
            known = [as_array(part).tolist() for part in self.held.info(handles)]
            for key, part in self._shown.items():
                for row, value in zip(rows, known[part]):
                    row.meta[key] = value
        return rows

    def delivered(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows as a sample that counts as a use."""
        if "use_count" not in self._shown or self.priorities:
            return _independent(self.items(handles))
        rows = []
        for handle in handles.tolist():
            try:
                rows += self._drawn(1, position=handle - self._first())
            except RuntimeError:  # used up by this sample
                rows += self.items(np.array([handle]))
        return _independent(rows)


def _state(held: Any, name: str) -> np.ndarray:
    return as_array(held.arrays[name] if isinstance(held, HostBuffer) else getattr(held, name))


def _stored(held: Any, handles: np.ndarray) -> np.ndarray:
    """Return for each handle whether its row is stored."""
    positions = handles - (_state(held, "serials")[0] - len(held))
    slots = (int(_state(held, "head")) + positions) % held.capacity
    return (positions >= 0) & (positions < len(held)) & (_state(held, "use_counts")[slots] >= 0)


def _independent(rows: list[BufferedData]) -> list[BufferedData]:
    """Return rows, with a copy of each that comes again."""
    seen: set[str] = set()
    for i, row in enumerate(rows):
        if row.index in seen:
            rows[i] = copied(row)  # type: ignore[call-overload]
        seen.add(row.index)
    return rows
