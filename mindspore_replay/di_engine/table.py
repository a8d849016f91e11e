"""Rows with an index and a `meta` each, in a buffer of this library that decides which are drawn, used up and stale."""

import contextlib
import copy
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..buffers.elastic import ElasticReplayBuffer
from ..buffers.replay import ReplayBuffer
from ..store.checks import check_bool, check_size
from .layout import HINT, BufferedData, RowLayout, copied

_MOST_SIZES = 32  # sizes of samples that stay ready
Replay: TypeAlias = ReplayBuffer | ElasticReplayBuffer


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

    def _hold(self, replay: Replay | None, layout: RowLayout | None, kept: list[BufferedData | None]) -> None:
        self._replay, self._layout, self._kept = replay, layout, kept
        #: The buffer for a size of samples.
        self._sized = functools.lru_cache(_MOST_SIZES)(lambda size: self.replay.with_sample_size(size))

    @property
    def replay(self) -> Replay:
        """The buffer of this library that holds the rows."""
        if self._replay is None:
            raise RuntimeError(f"For '{self._owner}', 'replay' is made with the first row: push one before.")
        return self._replay

    def extend(self, rows: Sequence[object], metas: Sequence[dict[str, Any]]) -> list[BufferedData]:
        """Append rows, past the middleware; after an error nothing is stored."""
        with self.lock:
            if not rows:
                return []
            replay, layout = self._replay, self._layout
            if replay is None:
                layout = None if self._objects else RowLayout.of(rows[0])
                replay = self._make(layout)
            fields = layout.fields(self._owner, rows) if layout else [0] if len(rows) == 1 else [[0] * len(rows)]
            with hinted():
                replay.insert(fields, **self._arguments(replay, metas))
            if self._replay is None:
                self._hold(replay, layout, self._kept)
            first = int(replay.serials.asnumpy()[0]) - len(rows)
            pushed = [BufferedData(row, str(first + i), meta) for i, (row, meta) in enumerate(zip(rows, metas))]
            for handle, row in enumerate(pushed, first):
                self._keep(handle, BufferedData(None, row.index, row.meta) if layout else row)
            return pushed

    def _make(self, layout: RowLayout | None) -> Replay:
        columns = layout.arguments() if layout else {"names": ["object"], "shapes": [()], "types": ["uint8"]}
        if not self.priorities:
            return ReplayBuffer(1, self.size, weighted=True, replace=False, **columns, **self._limits)
        given = {"prioritized": True, "epsilon": 1e-5, "normalize": "buffer", **self.priorities}
        return ElasticReplayBuffer(1, self.size, **given, **columns, **self._limits)

    def _keep(self, handle: int, row: BufferedData | None) -> None:
        before, self._kept[handle % self.size] = self._kept[handle % self.size], row
        if self.gone is not None and before is not None:
            self.gone(before.data)

    def _arguments(self, replay: Replay, metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        priorities = [meta.get("priority") for meta in metas] if self.priorities else []
        if any(one is not None for one in priorities):
            largest = float(replay.max_priority.asnumpy()) if None in priorities else 0.0
            arguments["priority"] = [largest if one is None else float(one) for one in priorities]
        versions = [meta.get("train_iter_data_collected") for meta in metas] if "staleness" in self._shown else []
        if any(one is not None for one in versions):
            now = self.advance_to(max(int(one) for one in versions if one is not None), replay)
            arguments["version"] = [now if one is None else int(one) for one in versions]
        return arguments

    def advance_to(self, clock: int, replay: Replay | None = None) -> int:
        """Move the learner's clock forward to a value, and return it; rows that become stale are removed."""
        with self.lock:
            replay = self._replay if replay is None else replay
            now = clock if replay is None else int(replay.clock.asnumpy()[0])
            if replay is not None and clock > now:
                replay.advance(clock - now)
            return max(clock, now)

    def count(self) -> int:
        """Return the number of rows."""
        return 0 if self._replay is None else self.replay.eligible()

    __len__ = count

    def pushed(self) -> tuple[int, int]:
        """Return the number of rows pushed, in all and since the last `clear`."""
        total, first = (0, 0) if self._replay is None else self.replay.serials.asnumpy().tolist()
        return total, total - first

    def live(self) -> np.ndarray:
        """Return the handles of the rows, oldest first."""
        handles = np.zeros(0, np.int64) if self._replay is None else self._first() + np.arange(len(self.replay))
        return handles[self._stored(handles)]

    def _first(self) -> int:
        return self.pushed()[0] - len(self.replay)

    def _stored(self, handles: np.ndarray) -> np.ndarray:
        if self._replay is None:
            return np.zeros(handles.shape, bool)
        positions = handles - self._first()
        slots = (int(self.replay.head.asnumpy()) + positions) % self.size
        return (positions >= 0) & (positions < len(self.replay)) & (self.replay.use_counts.asnumpy()[slots] >= 0)

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
        return self._rows(handles, tuple(self.replay.get_item(handles - self._first())) if handles.size else ())

    def _rows(self, handles: np.ndarray, fields: Sequence[Any]) -> list[BufferedData]:
        if self._layout is None:
            return [self._kept[place] for place in (handles % self.size).tolist()]  # type: ignore[misc]
        data = self._layout.rows(fields)
        return [BufferedData(one, str(handle), self.meta(handle)) for handle, one in zip(handles.tolist(), data)]

    def draw(self, size: int, replace: bool = False, sample_range: slice | None = None) -> list[BufferedData]:
        """Draw rows, past the middleware, as `sample` does; none if there are too few."""
        with self.lock:
            there = len(range(self.count())[sample_range or slice(None)])
            again = replace or bool(self.priorities)
            if not there or (there < size and ("max_use" in self._limits or not again)):
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
        rows = self._rows(handles.asnumpy(), fields)
        for row, weight in zip(rows, () if weights is None else weights.asnumpy().tolist()):
            row.meta["priority_IS"] = weight
        if self._shown:
            known = [part.asnumpy().tolist() for part in self.replay.info(handles)]
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
            state = None if self._replay is None else self.replay.state_dict()
            return {"state": state, "layout": self._layout, "kept": list(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned; a ValueError if it does not fit, and nothing is changed."""
        with self.lock:
            size = len(state["kept"])
            if size != self.size:
                raise ValueError(f"For '{self._owner}', the state must be of size {self.size}, but got {size}.")
            replay = None if state["state"] is None else self._make(state["layout"])
            if replay is not None:
                replay.load_state_dict(state["state"])
            self._hold(replay, state["layout"], copy.deepcopy(state["kept"]))


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
