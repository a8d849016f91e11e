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
from ..store.inputs import as_array
from ..store.library import library_for
from ..store.recipe.registry import find
from .layout import HINT, BufferedData, RowLayout, copied

if TYPE_CHECKING:
    from ..buffers.elastic import ElasticReplayBuffer
    from ..buffers.replay import ReplayBuffer

_MOST_SIZES = 32  # sizes of samples that stay ready


class RowTable:
    """Rows by handles, the serial numbers that the buffer underneath gives them, and by indices, handles as text.

    Args:
        size (int): Most rows.
        objects (bool): Whether to keep rows as objects; ``False`` makes columns if the first row allows.
    """

    size: int

    def __init__(self, size: int, objects: bool) -> None:
        self._owner = name = type(self).__name__
        check_size(name, "size", size)
        self._objects = check_bool(name, "objects", objects)
        self.lock = threading.RLock()
        self.priorities: dict[str, Any] = {}  # arguments of the buffer, if it draws by priority
        self.gone: Callable[[Any], None] | None = None  # gets the rows that are overwritten or deleted
        self._limits: dict[str, Any] = {}
        self._shown: dict[str, int] = {}  # keys of `meta`, with the place in `info` that they come from
        self._hold(None, None, [None] * size)

    def _hold(self, held: Any, layout: RowLayout | None, kept: list[BufferedData | None]) -> None:
        #: The buffer underneath: of `mindspore_replay.host`, until `replay` is asked for.
        self.held = held
        self._layout, self._kept = layout, kept
        #: That for a size of samples.
        self._sized = functools.lru_cache(_MOST_SIZES)(lambda size: held.with_sample_size(size))

    @property
    def replay(self) -> "ReplayBuffer | ElasticReplayBuffer":
        """The buffer of this library that holds the rows, from now on a Cell."""
        if self.held is None:
            raise RuntimeError(f"For '{self._owner}', 'replay' is made with the first row: push one before.")
        if isinstance(self.held, HostBuffer):
            with self.lock:
                made = self._make(self._layout, in_graphs=True)
                made.load_state_dict(self.held.state_dict())
                self._hold(made, self._layout, self._kept)
        return self.held  # type: ignore[no-any-return]

    def state(self, name: str) -> np.ndarray:
        """Return an array of the state of the buffer underneath."""
        held = self.held
        return as_array(held.arrays[name] if isinstance(held, HostBuffer) else getattr(held, name))

    def extend(self, rows: Sequence[object], metas: Sequence[dict[str, Any]]) -> list[BufferedData]:
        """Append rows, past the middleware; after an error nothing is stored."""
        with self.lock:
            if not rows:
                return []
            if self.held is None:
                layout = None if self._objects else RowLayout.of(rows[0])
                self._hold(self._make(layout), layout, self._kept)
            layout = self._layout
            try:
                fields = layout.fields(self._owner, rows) if layout else [0] if len(rows) == 1 else [[0] * len(rows)]
                with hinted():
                    self.held.insert(fields, **self._arguments(metas))
            except (TypeError, ValueError):
                if self.pushed()[0] == 0:  # columns are those of the first row that is stored
                    self._hold(None, None, self._kept)
                raise
            first = int(self.state("serials")[0]) - len(rows)
            pushed = [BufferedData(row, str(first + i), meta) for i, (row, meta) in enumerate(zip(rows, metas))]
            for handle, row in enumerate(pushed, first):
                known = BufferedData(None, row.index, row.meta) if row.meta else None
                self._keep(handle, known if layout else row)
            return pushed

    def _make(self, layout: RowLayout | None, in_graphs: bool = False) -> Any:
        columns = layout.arguments() if layout else {"names": ["object"], "shapes": [()], "types": ["uint8"]}
        given: dict[str, Any] = {"weighted": True, "replace": False}
        if self.priorities:
            given = {"prioritized": True, "epsilon": 1e-5, "normalize": "buffer", **self.priorities}
        name = "ElasticReplayBuffer" if self.priorities else "ReplayBuffer"
        made = find(name) if in_graphs or library_for("CPU").reason else getattr(host, name)
        return made(1, self.size, **given, **columns, **self._limits)

    def _keep(self, handle: int, row: BufferedData | None) -> None:
        before, self._kept[handle % self.size] = self._kept[handle % self.size], row
        if self.gone is not None and before is not None:
            self.gone(before.data)

    def _arguments(self, metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
            now = clock if self.held is None else int(self.state("clock")[0])
            if clock > now:
                self.held.advance(clock - now)
            return max(clock, now)

    def count(self) -> int:
        """Return the number of rows."""
        return 0 if self.held is None else self.held.eligible()

    __len__ = count

    def pushed(self) -> tuple[int, int]:
        """Return the number of rows pushed, in all and since the last `clear`."""
        total, first = (0, 0) if self.held is None else self.state("serials").tolist()
        return total, total - first

    def live(self) -> np.ndarray:
        """Return the handles of the rows, oldest first."""
        handles = np.zeros(0, np.int64) if self.held is None else self._first() + np.arange(len(self.held))
        return handles if self.count() == handles.size else handles[self._stored(handles)]

    def _first(self) -> int:
        return self.pushed()[0] - len(self.held)

    def _stored(self, handles: np.ndarray) -> np.ndarray:
        if self.held is None:
            return np.zeros(handles.shape, bool)
        positions = handles - self._first()
        slots = (int(self.state("head")) + positions) % self.size
        return (positions >= 0) & (positions < len(self.held)) & (self.state("use_counts")[slots] >= 0)

    def handles(self, indices: Iterable[object]) -> tuple[np.ndarray, np.ndarray]:
        """Return the handles of indices, and for each whether its row is stored."""
        found = np.array([int(i) if isinstance(i, str) and i.isdecimal() else -1 for i in indices], np.int64)
        return found, (found >= 0) & self._stored(found)

    def stored_handles(self, indices: Sequence[str]) -> np.ndarray:
        """Return the handles of indices; a KeyError if a row is not stored."""
        handles, stored = self.handles(indices)
        if not stored.all():
            wrong = indices[int(np.argmin(stored))]
            raise KeyError(f"For '{self._owner}', 'index' must be that of a stored row, but got {wrong!r}.")
        return handles

    def meta(self, handle: int) -> dict[str, Any]:
        """Return what is known of a row: nothing, if a graph inserted it."""
        kept = self._kept[handle % self.size]
        return kept.meta if kept is not None and kept.index == str(handle) else {}

    def items(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows."""
        return self._rows(handles, tuple(self.held.get_item(handles - self._first())) if handles.size else ())

    def _rows(self, handles: np.ndarray, fields: Sequence[Any]) -> list[BufferedData]:
        kept: list[Any] = [self._kept[place] for place in (handles % self.size).tolist()]
        if self._layout is None:
            return kept
        rows = zip(kept, map(str, handles.tolist()), self._layout.rows(fields))
        return [BufferedData(one, index, row.meta if row and row.index == index else {}) for row, index, one in rows]

    def draw(self, size: int, replace: bool = False, sample_range: slice | None = None) -> list[BufferedData]:
        """Draw rows, past the middleware, as `sample` does; none if there are too few."""
        with self.lock:
            there = len(range(self.count())[sample_range or slice(None)])
            again = replace or bool(self.priorities)
            if not there or not size or (there < size and ("max_use" in self._limits or not again)):
                return []
            start, live = None, self.live() if replace or sample_range is not None else None
            if live is not None and not self.priorities:
                return self.delivered(np.random.choice(live[sample_range or slice(None)], size, replace))
            if live is not None and sample_range is not None:
                handles = live[sample_range]
                if handles[-1] != live[-1] or sample_range.step not in (None, 1):
                    raise ValueError(
                        f"For '{self._owner}', 'sample_range' must be slice(-n, None) where priorities decide, but got "
                        f"{sample_range}."
                    )
                start = int(handles[0]) - self._first()
            rows: list[BufferedData] = []
            with contextlib.suppress(RuntimeError):  # all of the range was used up
                rows += self._drawn(min(size, there), start)
                while len(rows) < size and (left := self.count()):
                    rows += self._drawn(min(size - len(rows), there, left), start)
            rows = rows if len(rows) == size else []
            return _independent(rows) if self.priorities else rows

    def _drawn(self, n: int, start: int | None) -> list[BufferedData]:
        """Draw rows from a position on; without priorities the one that is there."""
        replay: Any = self._sized(n)
        weights = None
        if not self.priorities:
            handles, *fields = replay.sample(None if start is None else (start, start + 1), with_indices=True)
        else:
            try:
                _ = start is None or replay.set_window(len(replay) - start)
                handles, weights, *fields = replay.sample()
            finally:
                _ = start is None or replay.set_window(self.size)
        rows = self._rows(as_array(handles), fields)
        for row, weight in zip(rows, () if weights is None else as_array(weights).tolist()):
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
                rows += self._drawn(1, handle - self._first())
            except RuntimeError:  # used up by this sample
                rows += self.items(np.array([handle]))
        return _independent(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the whole state."""
        with self.lock:
            state = None if self.held is None else self.held.state_dict()
            return {"state": state, "layout": self._layout, "kept": list(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, into the same `replay` if columns are the same; errors change nothing."""
        with self.lock:
            size = len(state["kept"])
            if size != self.size:
                raise ValueError(f"For '{self._owner}', the state must be of size {self.size}, but got {size}.")
            held, layout = None, state["layout"]
            if state["state"] is not None:
                held = self.held if self.held is not None and layout == self._layout else self._make(layout)
                held.load_state_dict(state["state"])
            self._hold(held, layout, copy.deepcopy(state["kept"]))


@contextlib.contextmanager
def hinted() -> Iterator[None]:
    """Say in errors of rows how to keep rows that differ."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise error if HINT in str(error) else type(error)(f"{error} {HINT}") from None


def _independent(rows: list[BufferedData]) -> list[BufferedData]:
    """Return rows, with a copy of each that comes again."""
    seen: set[str] = set()
    for i, row in enumerate(rows):
        if row.index in seen:
            rows[i] = copied(row)  # type: ignore[call-overload]
        seen.add(row.index)
    return rows
