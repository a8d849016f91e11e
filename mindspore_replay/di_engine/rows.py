"""Rows of DI-engine's buffers in a buffer of this library: as columns, or as objects with their place as a column."""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor

from ..buffers.elastic import ElasticReplayBuffer
from ..buffers.replay import ReplayBuffer
from ..store.checks import check_size

_MOST_SIZES = 32  # sizes of samples that stay ready
_HINT = "Nothing was stored. To keep rows as the objects that they are, make the buffer with objects=True."


@dataclass
class BufferedData:
    """A row.

    Args:
        data (Any): The row itself.
        index (str): Its name in the buffer, which no other row ever gets.
        meta (dict): What is known of it.
    """

    data: Any
    index: Any
    meta: Any


def _leaves(row: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _typed(value: Any) -> tuple[str, np.ndarray] | None:
    """Return the kind and the array of a value, or ``None`` if it cannot be in a column."""
    if isinstance(value, (bool, int, float)):
        kind, array = "number", np.array(value, np.float32 if type(value) is float else None)
    elif isinstance(value, (Tensor, np.ndarray, np.generic)):
        kind = "Tensor" if isinstance(value, Tensor) else "array"
        array = value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)
    else:
        return None
    return (kind, array) if array.dtype.kind in "biuf" and array.itemsize <= 8 and array.size else None


class RowLayout:
    """Columns of rows that are dicts, also nested ones, of arrays, Tensors and numbers.

    Args:
        row (Mapping): The first row.
        leaves (dict[str, tuple]): Kind and array of each of its values, by the keys on the way there.
    """

    def __init__(self, row: Any, leaves: Mapping[str, tuple[str, np.ndarray]]) -> None:
        self.names, self._kinds = tuple(leaves), [kind for kind, _ in leaves.values()]
        self.shapes = [array.shape for _, array in leaves.values()]
        self.types = [array.dtype for _, array in leaves.values()]
        self._row = row

    @classmethod
    def of(cls, row: Any) -> "RowLayout | None":
        """Return the columns of a row, or ``None`` if it must be kept as an object."""
        values = list(_leaves(row)) if isinstance(row, Mapping) else []
        leaves = {name: typed for name, value in values if (typed := _typed(value)) is not None}
        return cls(row, leaves) if leaves and len(leaves) == len(values) else None

    def fields(self, owner: str, rows: Sequence[Any]) -> list[np.ndarray]:
        """Return the columns of rows, each ``[n, *F]``; a ValueError if one of them does not fit."""
        columns: list[list[Any]] = [[] for _ in self.names]
        for row in rows:
            given = dict(_leaves(row)) if isinstance(row, Mapping) else {}
            if given.keys() != set(self.names):
                came = sorted(given) if given else repr(row)
                raise ValueError(
                    f"For '{owner}', a row must be a dict with the columns {sorted(self.names)} of the first, but got "
                    f"{came}. {_HINT}"
                )
            for i, (name, shape, dtype) in enumerate(zip(self.names, self.shapes, self.types)):
                kind, array = _typed(given[name]) or ("other", np.empty(0))
                if kind == "number" and np.can_cast(array.dtype, dtype, "same_kind"):
                    array = array.astype(dtype)  # a number of Python, and not to a narrower kind
                if kind == "other" or array.shape != shape or array.dtype != dtype:
                    came = repr(given[name]) if kind == "other" else f"{array.dtype} {list(array.shape)}"
                    raise ValueError(f"For '{owner}', {name!r} must be {dtype} {list(shape)}, but got {came}. {_HINT}")
                columns[i].append(array)
        return [np.stack(column) if len(column) > 1 else column[0][None] for column in columns]

    def rows(self, fields: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """Return the rows of columns, each a dict like the first row."""
        values = [
            field.tolist() if kind == "number" else list(map(Tensor, field)) if kind == "Tensor" else list(field)
            for kind, field in zip(self._kinds, fields)
        ]
        if not any(isinstance(value, Mapping) for value in self._row.values()):
            return [dict(zip(self._row, row)) for row in zip(*values)]
        return [self._filled(self._row, iter(row)) for row in zip(*values)]

    def _filled(self, row: Any, values: Iterator[Any]) -> dict[str, Any]:
        nested = {key: isinstance(value, Mapping) and value for key, value in row.items()}
        return {key: self._filled(part, values) if part else next(values) for key, part in nested.items()}


class Rows:
    """Rows with an index and a `meta` each, in a buffer that decides which are drawn, used up and stale.

    Args:
        owner (str): Class to name in errors.
        capacity (int): Most rows.
        objects (bool): Whether to keep rows as objects; ``False`` makes columns if the first row allows.
    """

    def __init__(self, owner: str, capacity: int, objects: bool) -> None:
        self.owner, self.capacity, self._objects = owner, check_size(owner, "size", capacity), objects
        self.lock = threading.RLock()
        self.priorities: Any = None  # arguments of the buffer, if it draws by priority
        self.gone: Callable[[Any], None] | None = None  # gets the rows that are overwritten or deleted
        self._limits: dict[str, Any] = {}
        self._shown: dict[str, int] = {}  # keys of `meta`, with the place in `info` that they come from
        self._hold(None, None, 0, [None] * self.capacity)

    def _hold(self, replay: Any, layout: RowLayout | None, pushed: int, kept: list[BufferedData | None]) -> None:
        self._replay, self._layout, self._pushed, self._kept = replay, layout, pushed, kept
        self._sizes: dict[int, Any] = {}

    @property
    def replay(self) -> Any:
        """The buffer of this library that holds the rows."""
        if self._replay is None:
            raise RuntimeError(f"For '{self.owner}', 'replay' is made with the first row: push one before.")
        return self._replay

    def limit(self, limits: Mapping[str, float], shown: Mapping[str, int], priorities: Any = None) -> None:
        """Set limits, of which the smallest hold, what `meta` shows, and priorities. Stored rows stay."""
        with self.lock:
            before = vars(self).copy()
            try:
                self._shown = self._shown | dict(shown)
                self.priorities = priorities or self.priorities
                for key, value in limits.items():
                    if value != float("inf"):
                        limit = int(value) if float(value).is_integer() else value
                        least = check_size(self.owner, key, limit, minimum=int(key == "max_use"))
                        self._limits = {**self._limits, key: min(least, self._limits.get(key, least))}
                rows = self.items(self.live())
                self._hold(None, None, 0, [None] * self.capacity)
                for row, new in zip(rows, self.push([row.data for row in rows], [row.meta for row in rows])):
                    row.index = new.index
                    self._kept[int(row.index) % self.capacity] = row
            except Exception:
                vars(self).update(before)
                raise

    def _make(self, layout: RowLayout | None) -> Any:
        columns: Any = {"names": ["place"], "shapes": [()], "types": ["int64"]}
        if layout is not None:
            columns = {"names": layout.names, "shapes": layout.shapes, "types": layout.types}
        if self.priorities is None:
            return ReplayBuffer(1, self.capacity, weighted=True, replace=False, **columns, **self._limits)
        given = {"prioritized": True, "epsilon": 1e-5, "normalize": "buffer", **self.priorities}
        return ElasticReplayBuffer(1, self.capacity, **given, **columns, **self._limits)

    # In.

    def push(self, rows: Sequence[Any], metas: Sequence[dict[str, Any]]) -> list[BufferedData]:
        """Append rows; after an error nothing is stored."""
        with self.lock:
            if not rows:
                return []
            replay, layout = self._replay, self._layout
            if replay is None:
                layout = None if self._objects else RowLayout.of(rows[0])
                replay = self._make(layout)
            arguments = self._arguments(replay, metas)
            if layout is None and not arguments and len(rows) == 1:
                replay.insert([self._pushed % self.capacity])
                first = self._pushed
            else:
                places = [(self._pushed + np.arange(len(rows))) % self.capacity]
                fields = places if layout is None else layout.fields(self.owner, rows)
                first = int(replay.insert(fields, with_indices=True, **arguments).asnumpy()[0])
            if self._replay is None:
                self._hold(replay, layout, first, self._kept)
            self._pushed = first + len(rows)
            pushed = [BufferedData(row, str(first + i), meta) for i, (row, meta) in enumerate(zip(rows, metas))]
            for row in pushed:
                self._keep(int(row.index), row if layout is None else BufferedData(None, row.index, row.meta))
            return pushed

    def _keep(self, handle: int, row: BufferedData | None) -> None:
        before, self._kept[handle % self.capacity] = self._kept[handle % self.capacity], row
        if self.gone is not None and before is not None:
            self.gone(before.data)

    def _arguments(self, replay: Any, metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
        arguments = {}
        priorities = [meta.get("priority") for meta in metas]
        if self.priorities is not None and any(one is not None for one in priorities):
            largest = float(replay.max_priority.asnumpy())
            arguments["priority"] = np.array([largest if one is None else float(one) for one in priorities])
        versions = [meta.get("train_iter_data_collected") for meta in metas]
        if "staleness" in self._shown and any(one is not None for one in versions):
            now = self._advance(replay, max(int(one) for one in versions if one is not None))
            arguments["version"] = np.array([now if one is None else int(one) for one in versions])
        return arguments

    def advance_to(self, clock: int) -> None:
        """Move the learner's clock forward to a value; rows that become stale are removed."""
        with self.lock:
            if self._replay is not None:
                self._advance(self._replay, int(clock))

    @staticmethod
    def _advance(replay: Any, clock: int) -> int:
        now = int(replay.clock.asnumpy()[0])
        if clock > now:
            replay.advance(clock - now)
        return max(clock, now)

    # What is there.

    def count(self) -> int:
        """Return the number of rows that were not removed."""
        return 0 if self._replay is None else self._replay.eligible()

    @property
    def made(self) -> bool:
        """Whether a row was pushed, so that there is `replay`."""
        return self._replay is not None

    def pushed(self) -> tuple[int, int]:
        """Return the number of rows pushed, in all and since the last `clear`."""
        total, first = self._replay.serials.asnumpy().tolist() if self.made else (0, 0)
        return total, total - first

    def first(self) -> int:
        """Return the handle of the oldest row that has a place."""
        return int(self._replay.serials.asnumpy()[0]) - len(self._replay)

    def live(self) -> np.ndarray:
        """Return the handles of the rows that were not removed, oldest first."""
        if self._replay is None:
            return np.zeros(0, np.int64)
        handles = self.first() + np.arange(len(self._replay))
        return handles if self.count() == handles.size else handles[self._stored(handles)]

    def _stored(self, handles: np.ndarray) -> np.ndarray:
        if self._replay is None:
            return np.zeros(handles.shape, bool)
        positions = handles - self.first()
        slots = (int(self._replay.head.asnumpy()) + positions) % self.capacity
        return (positions >= 0) & (positions < len(self._replay)) & (self._replay.use_counts.asnumpy()[slots] >= 0)

    def handles(self, indices: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return the handles of indices, and for each whether its row is stored."""
        found = np.array([int(i) if isinstance(i, str) and i.isdecimal() else -1 for i in indices], np.int64)
        return found, (found >= 0) & self._stored(found)

    def meta(self, handle: int) -> dict[str, Any]:
        """Return what is known of a row."""
        kept = self._kept[handle % self.capacity]
        return kept.meta if kept is not None and kept.index == str(handle) else {}

    def items(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows."""
        if self._layout is None or not handles.size:
            return self._packed(handles, ()) if handles.size else []
        return self._packed(handles, self._replay.get_item(handles - self.first()))

    def _packed(self, handles: np.ndarray, fields: Sequence[Any]) -> list[BufferedData]:
        places = (handles % self.capacity).tolist()
        if self._layout is None:
            return [self._kept[place] for place in places]  # type: ignore[misc]
        rows = []
        data = self._layout.rows([field.asnumpy() for field in fields])
        for handle, place, one in zip(handles.tolist(), places, data):
            kept, index = self._kept[place], str(handle)
            known = kept is not None and kept.index == index  # not if a graph inserted the row
            rows.append(BufferedData(one, index, kept.meta if known else {}))  # type: ignore[union-attr]
        return rows

    # Out.

    def draw(self, size: int, replace: bool = False, span: range | None = None) -> list[BufferedData]:
        """Draw rows: by priority, where a row may come again, or else uniformly.

        Args:
            size (int): Number of rows.
            replace (bool): Whether a row may come again. Default: ``False``.
            span (Union[range, None]): Positions to draw from, oldest first. Default: ``None``, for all.

        Returns:
            list[BufferedData]: The rows; fewer than `size` if there are too few.
        """
        with self.lock:
            there = self.count() if span is None else len(span)
            again = replace or self.priorities is not None
            if not there or size == 0 or (there < size and ("max_use" in self._limits or not again)):
                return []
            if span is not None and span.step != 1:
                return self.deliver(self.live()[np.random.choice(np.array(span), size, replace)])
            bounds = None if span is None else self._bounds(span)
            most = 1 if again and self.priorities is None else there
            try:
                rows = self._drawn(min(size, most), bounds)
                while len(rows) < size and (left := self.count()):
                    rows += self._drawn(min(size - len(rows), most, left), bounds)
            except RuntimeError:  # all of the range was used up
                return []
            return rows if most == there >= size and self.priorities is None else _independent(rows)

    def _bounds(self, span: range) -> tuple[int, int]:
        if self.priorities is not None and span[-1] != self.count() - 1:
            raise ValueError(
                f"For '{self.owner}', 'sample_range' must be slice(-n, None) where priorities decide, but got {span}."
            )
        start, stop = self.live()[[span[0], span[-1]]] - self.first()
        return int(start), int(stop) + 1

    def _drawn(self, n: int, bounds: tuple[int, int] | None) -> list[BufferedData]:
        if n not in self._sizes:
            self._sizes = {} if len(self._sizes) > _MOST_SIZES else self._sizes
            self._sizes[n] = self._replay.with_sample_size(n)
        replay = self._sizes[n]
        if self.priorities is None:
            handles, *fields = replay.sample(bounds, with_indices=True)
            rows = self._packed(handles.asnumpy(), fields)
        else:
            window = self.capacity if bounds is None else len(replay) - bounds[0]
            try:
                _ = window == self.capacity or replay.set_window(window)
                handles, weights, *fields = replay.sample()
            finally:
                _ = window == self.capacity or replay.set_window(self.capacity)
            rows = self._packed(handles.asnumpy(), fields)
            for row, weight in zip(rows, weights.asnumpy().tolist()):
                row.meta["priority_IS"] = weight
        self.describe(handles, rows)
        return rows

    def deliver(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows as a sample that counts as a use."""
        if "use_count" not in self._shown or self.priorities is not None:
            return _independent(self.items(handles))
        rows = []
        for handle in handles.tolist():
            position = handle - self.first()
            try:
                rows += self._drawn(1, (position, position + 1))
            except RuntimeError:  # used up by this sample
                rows += self.items(np.array([handle]))
        return _independent(rows)

    def describe(self, handles: Any, rows: Sequence[BufferedData]) -> list[BufferedData]:
        """Write what the buffer knows of rows into their `meta`."""
        if self._shown and rows:
            known = [part.asnumpy().tolist() for part in self._replay.info(handles)]
            for i, row in enumerate(rows):
                row.meta.update({key: known[part][i] for key, part in self._shown.items()})
        return list(rows)

    # Changes.

    def update(self, index: Any, data: Any, meta: dict[str, Any] | None) -> bool:
        """Change a row; False if it is not stored."""
        with self.lock:
            handle, stored = self.handles([index])
            if not stored[0]:
                return False
            fields = None if data is None or self._layout is None else self._layout.fields(self.owner, [data])
            if self.priorities is not None and meta is not None and meta.get("priority") is not None:
                self._replay.update_priorities(handle, float(meta["priority"]))
            kept = self._kept[int(handle[0]) % self.capacity]
            assert kept is not None
            if fields is not None:
                self._replay.update(handle, fields)
            elif data is not None:
                kept.data = data
            kept.meta = kept.meta if meta is None else meta
            return True

    def delete(self, indices: Sequence[Any]) -> None:
        """Remove rows; indices of others are skipped."""
        with self.lock:
            handles, stored = self.handles(indices)
            if stored.any():
                self._replay.delete(handles[stored])
                for handle in set(handles[stored].tolist()):
                    self._keep(handle, None)

    def clear(self) -> None:
        """Remove all rows."""
        with self.lock:
            for place in range(self.capacity):
                self._keep(place, None)
            if self._replay is not None:
                self._replay.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the whole state."""
        with self.lock:
            state = None if self._replay is None else self._replay.state_dict()
            return {"state": state, "layout": self._layout, "pushed": self._pushed, "kept": list(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned; a ValueError if it does not fit, and nothing is changed."""
        with self.lock:
            size = len(state["kept"])
            if size != self.capacity:
                raise ValueError(f"For '{self.owner}', the state must be of size {self.capacity}, but got {size}.")
            replay = None if state["state"] is None else self._make(state["layout"])
            if replay is not None:
                replay.load_state_dict(state["state"])
            self._hold(replay, state["layout"], state["pushed"], copy.deepcopy(state["kept"]))


def copied(value: Any) -> Any:
    """Return a copy of a row, or of rows; of tensors of another library by their own `clone`."""
    if isinstance(value, BufferedData):
        return BufferedData(copied(value.data), value.index, copied(value.meta))
    if type(value) is dict:
        return {key: copied(one) for key, one in value.items()}
    if type(value) is list:
        return [copied(one) for one in value]
    return value.clone() if callable(getattr(value, "clone", None)) else copy.deepcopy(value)


def _independent(rows: list[BufferedData]) -> list[BufferedData]:
    """Return rows, with a copy of each that comes again."""
    seen: set[Any] = set()
    for i, row in enumerate(rows):
        if row.index in seen:
            rows[i] = copied(row)
        seen.add(row.index)
    return rows
