"""Rows of DI-engine's buffers in a buffer of this library: as columns, or as objects with their place as a column."""

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor

from ..buffers.elastic import ElasticReplayBuffer
from ..buffers.replay import ReplayBuffer
from ..store.checks import check_bool, check_size

#: Added to every priority, so that no row has the weight 0.
EPSILON = 1e-5
_KINDS = "biuf"
_MOST_TWINS = 32
_HINT = "Nothing was stored. To keep rows as the objects that they are, make the buffer with objects=True."


@dataclass
class BufferedData:
    """A row of a buffer.

    Args:
        data (Any): The row.
        index (str): Its name in the buffer, which is never given to another row.
        meta (dict): What is known of the row.
    """

    data: Any
    index: Any
    meta: Any


def _leaves(row: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _typed(value: Any) -> tuple[str, np.ndarray] | None:
    """Return what a value is and its array, or ``None`` if it cannot be a column."""
    if isinstance(value, (bool, int, float)):
        kind, array = "number", np.array(value, np.float32 if type(value) is float else None)
    elif isinstance(value, Tensor):
        kind, array = "Tensor", value.asnumpy()
    elif isinstance(value, (np.ndarray, np.generic)):
        kind, array = "array", np.asarray(value)
    else:
        return None
    return (kind, array) if array.dtype.kind in _KINDS and array.itemsize <= 8 and array.size else None


class RowLayout:
    """Columns of rows that are dicts, also nested ones, of arrays, Tensors and numbers.

    Args:
        row (Mapping): The first row.
        leaves (dict[str, tuple[str, numpy.ndarray]]): Kind and array of each leaf, by the names on the way to it.
    """

    def __init__(self, row: Mapping[str, Any], leaves: Mapping[str, tuple[str, np.ndarray]]) -> None:
        self.names = tuple(leaves)
        self.kinds = tuple(kind for kind, _ in leaves.values())
        self.shapes = tuple(array.shape for _, array in leaves.values())
        self.types = tuple(array.dtype for _, array in leaves.values())
        at = iter(range(len(leaves)))
        self._tree = self._places(row, at)

    @classmethod
    def of(cls, row: Any) -> "RowLayout | None":
        """Return the columns of a row, or ``None`` if it can only be kept as an object."""
        if not isinstance(row, Mapping):
            return None
        found = [(name, _typed(value)) for name, value in _leaves(row)]
        leaves = {name: one for name, one in found if one is not None}
        return cls(row, leaves) if leaves and len(leaves) == len(found) else None

    @classmethod
    def _places(cls, row: Mapping[str, Any], at: Iterator[int]) -> dict[str, Any]:
        return {
            key: cls._places(value, at) if isinstance(value, Mapping) and value else next(at)
            for key, value in row.items()
        }

    def fields(self, owner: str, rows: Sequence[Any]) -> list[np.ndarray]:
        """Return the columns of rows, each ``[n, *F]``; a TypeError or ValueError if one of them does not fit."""
        columns: list[list[np.ndarray]] = [[] for _ in self.names]
        for row in rows:
            if not isinstance(row, Mapping):
                raise TypeError(f"For '{owner}', a row must be a dict like the first, but got {row!r}. {_HINT}")
            given = dict(_leaves(row))
            if given.keys() != set(self.names):
                raise ValueError(
                    f"For '{owner}', a row must have the columns {sorted(self.names)} of the first, but got "
                    f"{sorted(given)}. {_HINT}"
                )
            wrong = []
            for column, name, shape, dtype in zip(columns, self.names, self.shapes, self.types):
                array = _fitting(given[name], shape, dtype)
                if array is None:
                    wrong.append(f"{name!r} must be {dtype} {list(shape)}, but got {_described(given[name])}")
                else:
                    column.append(array)
            if wrong:
                raise ValueError(f"For '{owner}', a row must fit the first: {'; '.join(wrong)}. {_HINT}")
        return [np.stack(column) for column in columns]

    def row(self, fields: Sequence[np.ndarray], i: int) -> dict[str, Any]:
        """Return row i of columns as a dict like the first row."""
        return self._filled(self._tree, [self._value(j, field[i]) for j, field in enumerate(fields)])

    def _value(self, j: int, value: Any) -> Any:
        if self.kinds[j] == "number":
            return value.item()
        return Tensor(value) if self.kinds[j] == "Tensor" else value

    def _filled(self, tree: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
        return {key: self._filled(at, values) if isinstance(at, dict) else values[at] for key, at in tree.items()}


def _fitting(value: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    typed = _typed(value)
    if typed is None or typed[1].shape != shape:
        return None
    kind, array = typed
    if array.dtype == dtype:
        return array
    # Numbers of Python are cast to the column's dtype, but none to a narrower kind.
    return array.astype(dtype) if kind == "number" and np.can_cast(array.dtype, dtype, "same_kind") else None


def _described(value: Any) -> str:
    typed = _typed(value)
    return f"{typed[1].dtype} {list(typed[1].shape)}" if typed else f"{value!r} ({type(value).__name__})"


class Rows:
    """Rows, each with an index and a dict of what is known of it, in a buffer that decides which are drawn.

    Args:
        owner (str): Class to name in errors.
        capacity (int): Most rows.
        objects (bool): Whether rows are kept as objects. Default: ``False``, for columns where the first row allows.
        options (Any): Limits and priorities, as for `limit`.
    """

    def __init__(self, owner: str, capacity: int, objects: bool = False, **options: Any) -> None:
        self.owner = owner
        self.capacity = check_size(owner, "size", capacity)
        self.lock = threading.RLock()
        self._objects = check_bool(owner, "objects", objects)
        self._holds(None, None)
        self._kept: list[BufferedData | None] = [None] * self.capacity
        self._pushed = 0
        self._options: dict[str, Any] = {}
        self.priorities: dict[str, Any] | None = None
        self.counts_uses = self.has_versions = False
        self.limit(**options)

    @property
    def replay(self) -> Any:
        """The buffer of this library that holds the rows; known once a row was pushed."""
        if self._replay is None:
            raise RuntimeError(f"For '{self.owner}', 'replay' is made with the first row: push one before.")
        return self._replay

    def _holds(self, replay: Any, layout: RowLayout | None) -> None:
        self._replay, self._layout = replay, layout
        self._twins: dict[int, Any] = {}

    def limit(
        self, *, max_use: float | None = None, max_staleness: float | None = None, priorities: Any = None,
        counts_uses: bool = False, has_versions: bool = False,
    ) -> None:  # fmt: skip
        """Set limits, of which the smallest holds, and how priorities count; rows that are stored stay."""
        with self.lock:
            self.counts_uses |= counts_uses
            self.has_versions |= has_versions
            self.priorities = priorities or self.priorities
            given = {"max_use": max_use, "max_staleness": max_staleness}
            for key, value in given.items():
                if value is not None and value != float("inf"):
                    value = int(value) if isinstance(value, float) and value.is_integer() else value
                    self._options[key] = min(check_size(self.owner, key, value), self._options.get(key, value))
            if self._replay is not None:
                self._make_again()

    def _make_again(self) -> None:
        rows = self.items(self.live())
        self._holds(None, None)
        self._pushed, self._kept = 0, [None] * self.capacity
        if rows:
            pushed = self.push([row.data for row in rows], [row.meta for row in rows])
            for row, new in zip(rows, pushed):
                row.index = new.index
                self._kept[int(new.index) % self.capacity] = row

    def _make(self, layout: RowLayout | None) -> Any:
        columns: Any = (("place",), [()], ["int64"])
        if layout is not None:
            columns = layout.names, layout.shapes, layout.types
        names, shapes, types = columns
        arguments: Any = dict(shapes=shapes, types=types, names=names, **self._options)
        if self.priorities is None:
            return ReplayBuffer(1, self.capacity, weighted=True, replace=False, **arguments)
        return ElasticReplayBuffer(
            1, self.capacity, prioritized=True, epsilon=EPSILON, normalize="buffer", **self.priorities, **arguments
        )

    # In.

    def push(self, rows: Sequence[Any], metas: Sequence[dict[str, Any]]) -> list[BufferedData]:
        """Append rows; after an error nothing is stored."""
        with self.lock:
            layout, replay = self._layout, self._replay
            if replay is None:
                layout = None if self._objects else RowLayout.of(rows[0])
            if layout is None:
                fields = [(self._pushed + np.arange(len(rows))) % self.capacity]
            else:
                fields = layout.fields(self.owner, rows)
            if replay is None:
                replay = self._make(layout)
            arguments = self._arguments(replay, metas)
            if layout is None and not arguments and len(rows) == 1:
                replay.insert([int(fields[0][0])])
            else:
                given = fields if len(rows) > 1 else [field[0] for field in fields]
                handles = replay.insert(given, with_indices=True, **arguments)
                self._pushed = int(np.min(handles.asnumpy()))
            if self._replay is None:
                self._holds(replay, layout)
            pushed = []
            for data, meta in zip(rows, metas):
                row = BufferedData(data, str(self._pushed), meta)
                kept = row if layout is None else BufferedData(None, row.index, meta)
                self._kept[self._pushed % self.capacity] = kept
                self._pushed += 1
                pushed.append(row)
            return pushed

    def _arguments(self, replay: Any, metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self.priorities is not None and any(meta.get("priority") is not None for meta in metas):
            largest = float(replay.max_priority.asnumpy())
            given = [meta.get("priority") for meta in metas]
            arguments["priority"] = [largest if one is None else float(one) for one in given]
        if self.has_versions:
            given = [meta.get("train_iter_data_collected") for meta in metas]
            versions = [int(one) for one in given if one is not None]
            if versions:
                now = self._advance(replay, max(versions))
                arguments["version"] = np.array([now if one is None else int(one) for one in given])
        if len(metas) == 1:
            arguments = {key: value[0] for key, value in arguments.items()}
        return arguments

    def max_priority(self) -> float:
        """Return the largest priority so far, initially 1."""
        return 1.0 if self._replay is None else float(self._replay.max_priority.asnumpy())

    def advance_to(self, clock: int) -> None:
        """Move the learner's clock forward to a value; rows that become stale are removed."""
        if self._replay is not None:
            with self.lock:
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

    def live(self) -> np.ndarray:
        """Return the handles of the rows that were not removed, oldest first."""
        if self._replay is None:
            return np.zeros(0, np.int64)
        handles = self._first() + np.arange(len(self._replay))
        return handles if self.count() == handles.size else handles[self.stores(handles)]

    def stores(self, handles: np.ndarray) -> np.ndarray:
        """Return for each handle whether its row is stored and was not removed."""
        if self._replay is None:
            return np.zeros(handles.shape, bool)
        positions, rows = handles - self._first(), len(self._replay)
        slots = (int(self._replay.head.asnumpy()) + positions) % self.capacity
        return (positions >= 0) & (positions < rows) & (self._replay.use_counts.asnumpy()[slots] >= 0)

    def _first(self) -> int:
        return int(self._replay.serials.asnumpy()[0]) - len(self._replay)

    def handles_of(self, indices: Sequence[Any]) -> np.ndarray:
        """Return the handles that indices stand for, -1 for what is none."""
        return np.array([int(i) if isinstance(i, str) and i.isdecimal() else -1 for i in indices], np.int64)

    def known(self, indices: Sequence[Any]) -> np.ndarray:
        """Return the handles of stored rows by their indices; a KeyError if one is not stored."""
        handles = self.handles_of(indices)
        missing = [index for index, there in zip(indices, self.stores(handles)) if not there]
        if missing:
            raise KeyError(f"For '{self.owner}', 'index' must be that of a stored row, but got {missing[0]!r}.")
        return handles

    def items(self, handles: np.ndarray) -> list[BufferedData]:
        """Return stored rows by their handles."""
        if not len(handles):
            return []
        if self._layout is None:
            return self._packed(handles, ())
        fields = self._replay.get_item(np.asarray(handles) - self._first())
        return self._packed(handles, [field.asnumpy() for field in fields])

    def _packed(self, handles: Any, fields: Sequence[np.ndarray]) -> list[BufferedData]:
        rows = []
        for i, handle in enumerate(np.asarray(handles).tolist()):
            kept = self._kept[handle % self.capacity]
            if kept is None or int(kept.index) != handle:  # a row that something else inserted
                kept = BufferedData(None, str(handle), {})
            rows.append(
                kept if self._layout is None else BufferedData(self._layout.row(fields, i), kept.index, kept.meta)
            )
        return rows

    def metas(self, handles: np.ndarray, key: str) -> list[Any]:
        """Return a value of what is known of rows, ``None`` where it is not known."""
        kept = [self._kept[handle % self.capacity] for handle in handles.tolist()]
        return [None if row is None else row.meta.get(key) for row in kept]

    # Out.

    def draw(self, size: int, replace: bool = False, span: range | None = None) -> list[BufferedData]:
        """Draw rows: by priority if there are priorities, else uniformly.

        Args:
            size (int): Number of rows.
            replace (bool): Whether a row may come twice; with priorities it always may. Default: ``False``.
            span (Union[range, None]): Positions among the stored rows, oldest first. Default: ``None``, for all.

        Returns:
            list[BufferedData]: The rows; fewer than `size` if there are not enough.
        """
        with self.lock:
            there = self.count() if span is None else len(span)
            again = replace or self.priorities is not None
            if not there or (there < size and not again):
                return []
            if span is not None and span.step != 1:
                chosen = np.random.choice(np.array(span), size, replace)
                return self.deliver(self.live()[chosen])
            bounds = None if span is None else self._bounds(span)
            most = 1 if again and self.priorities is None else there
            rows: list[BufferedData] = []
            while len(rows) < size and self._replay.eligible():
                n = min(size - len(rows), most, self._replay.eligible())
                try:
                    rows += self._drawn(n, bounds)
                except RuntimeError:  # the range has been used up
                    break
            return _independent(rows)

    def _bounds(self, span: range) -> tuple[int, int]:
        positions = self.live()[[span[0], span[-1]]] - self._first()
        if self.priorities is not None and span[-1] != self.count() - 1:
            raise ValueError(
                f"For '{self.owner}', 'sample_range' must be slice(-n, None) where rows are drawn by priority, but got "
                f"{span}."
            )
        return int(positions[0]), int(positions[1]) + 1

    def _drawn(self, n: int, bounds: tuple[int, int] | None) -> list[BufferedData]:
        twin = self.of_size(n)
        weights = None
        if self.priorities is None:
            handles, *batch = twin.sample(bounds, with_indices=True)
        elif bounds is None:
            handles, weights, *batch = twin.sample()
        else:
            twin.set_window(len(twin) - bounds[0])
            handles, weights, *batch = twin.sample()
            twin.set_window(self.capacity)
        rows = self._packed(handles.asnumpy(), [field.asnumpy() for field in batch])
        self._describe(handles, rows, weights)
        return rows

    def of_size(self, n: int) -> Any:
        """Return the buffer for samples of n rows."""
        if n not in self._twins:
            if len(self._twins) > _MOST_TWINS:
                self._twins.clear()
            self._twins[n] = self._replay.with_sample_size(n)
        return self._twins[n]

    def deliver(self, handles: np.ndarray) -> list[BufferedData]:
        """Return rows by their handles as a sample that counts as a use."""
        if not self.counts_uses or self.priorities is not None:
            return _independent(self.items(handles))
        first, rows = self._first(), []
        for handle in handles.tolist():
            try:
                rows += self._drawn(1, (handle - first, handle - first + 1))
            except RuntimeError:  # used up by the same sample
                rows += self.items(np.array([handle]))
        return _independent(rows)

    def _describe(self, handles: Any, rows: Sequence[BufferedData], weights: Any) -> None:
        """Write what the buffer knows of rows into their `meta`."""
        if weights is not None:
            for row, weight in zip(rows, weights.asnumpy().tolist()):
                row.meta["priority_IS"] = weight
        if not (self.counts_uses or self.has_versions or weights is not None):
            return
        parts = [part.asnumpy().tolist() for part in self._replay.info(handles)]
        for row, priority, uses, staleness in zip(rows, *parts):
            if weights is not None and np.float32(row.meta.get("priority", -1)) != np.float32(priority):
                row.meta["priority"] = priority
            if self.counts_uses:
                row.meta["use_count"] = uses
            if self.has_versions:
                row.meta["staleness"] = staleness

    # Changes.

    def update(self, index: Any, data: Any, priority: Any, meta: dict[str, Any] | None) -> bool:
        """Change a row; False if it is not stored."""
        with self.lock:
            handle = self.handles_of([index])
            if handle[0] < 0 or not self.stores(handle)[0]:
                return False
            fields = None
            if data is not None and self._layout is not None:
                fields = self._layout.fields(self.owner, [data])
            if priority is not None:
                self._replay.update_priorities(handle, float(priority))
            if fields is not None:
                self._replay.update(handle, fields)
            kept = self._kept[int(handle[0]) % self.capacity]
            assert kept is not None
            if data is not None and self._layout is None:
                kept.data = data
            if meta is not None:
                kept.meta = meta
            return True

    def delete(self, handles: np.ndarray) -> None:
        """Remove rows; handles of others are skipped."""
        with self.lock:
            if self._replay is None or not handles.size:
                return
            self._replay.delete(handles)
            for handle in handles.tolist():
                kept = self._kept[handle % self.capacity]
                if kept is not None and kept.index == str(handle):
                    self._kept[handle % self.capacity] = None

    def clear(self) -> None:
        """Remove all rows."""
        with self.lock:
            self._kept = [None] * self.capacity
            if self._replay is not None:
                self._replay.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the whole state."""
        with self.lock:
            state = None if self._replay is None else self._replay.state_dict()
            return {"state": state, "layout": self._layout, "rows": list(self._kept), "pushed": self._pushed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave; a ValueError if it does not fit, and nothing is changed."""
        with self.lock:
            if len(state["rows"]) != self.capacity:
                raise ValueError(
                    f"For '{self.owner}', the state must be that of a buffer of size {self.capacity}, but got one of "
                    f"size {len(state['rows'])}."
                )
            replay = None
            if state["state"] is not None:
                replay = self._make(state["layout"])
                replay.load_state_dict(state["state"])
            self._holds(replay, state["layout"])
            self._pushed = state["pushed"]
            self._kept = copy.deepcopy(state["rows"])


def _independent(rows: list[BufferedData]) -> list[BufferedData]:
    """Return rows with copies of those that come again."""
    seen: set[Any] = set()
    for i, row in enumerate(rows):
        if row.index in seen:
            rows[i] = BufferedData(copy.deepcopy(row.data), row.index, dict(row.meta))
        seen.add(row.index)
    return rows
