"""DI-engine's `DequeBuffer`, on a buffer of this library that decides which rows are drawn, used up and stale."""

import contextlib
import copy
import functools
import io
import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ..buffers.elastic import ElasticReplayBuffer
from ..buffers.replay import ReplayBuffer
from ..checkpoint.files import real_path, replacing
from ..store.checks import check_bool, check_size
from ..store.inputs import as_priority
from .layout import HINT, BufferedData, RowLayout, copied

_MOST_SIZES = 32  # sizes of samples that stay ready
Replay: TypeAlias = ReplayBuffer | ElasticReplayBuffer
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _extended(base: _Method) -> _Method:
    """Let calls of a method go through the middleware."""

    @functools.wraps(base)
    def call(self: "Buffer", *args: object, **kwargs: object) -> object:
        chain: Callable[..., object] = functools.partial(base, self)
        for func in reversed(self._middleware):
            chain = functools.partial(func, base.__name__, chain)
        return chain(*args, **kwargs)

    return call  # type: ignore[return-value]


class Buffer:
    """Base of buffers that middleware extends.

    Args:
        size (int): Most rows.
    """

    __slots__ = ("__dict__", "_middleware")  # views share the first

    def __init__(self, size: int) -> None:
        self.size = size
        self._middleware: list[Callable[..., Any]] = []

    def use(self, func: Callable[..., Any]) -> "Buffer":
        """Add middleware, a function ``(action, chain, *args, **kwargs)`` that calls `chain` and returns its result.

        The first that was added is the outermost; `action` is ``"push"``, ``"sample"``, ``"update"``, ``"delete"`` or
        ``"clear"``.
        """
        self._middleware.append(func)
        return self


class DequeBuffer(Buffer):
    """The newest `size` rows, with the methods of DI-engine's class of this name.

    Rows that are dicts, also nested, of arrays, Tensors and numbers become columns, found from the first row: compiled
    graphs draw them from `replay`, and rows are copied when they go in and come out. A Python float is kept as float32.
    Other rows are kept as the objects that they are. A row that was removed keeps its place until it is overwritten.

    Args:
        size (int): Most rows.
        sliced (bool): Whether windows of a group begin at multiples of `unroll_len`. Default: ``False``.
        objects (bool): Whether to keep all rows as objects. Default: ``False``.

    Attributes:
        replay (Union[ReplayBuffer, ElasticReplayBuffer]): Holds the rows; made with the first. Its samples are of one
            row: take ``buffer.replay.with_sample_size(64)``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If `size` is not positive.

    Examples:
        >>> from mindspore_replay.di_engine import DequeBuffer
        >>> buffer = DequeBuffer(size=10)
        >>> for step in range(12):
        ...     row = buffer.push({"step": step}, meta={"episode": step // 6})
        >>> print(len(buffer), buffer[0].data, [row.meta for row in buffer.sample(1, sample_range=slice(8, None))])
        10 {'step': 2} [{'episode': 1}]
    """

    def __init__(self, size: int, sliced: bool = False, objects: bool = False) -> None:
        self._owner = name = type(self).__name__
        super().__init__(check_size(name, "size", size))
        self.sliced, self._objects = check_bool(name, "sliced", sliced), check_bool(name, "objects", objects)
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

    @property
    def storage(self) -> list[BufferedData]:
        """The rows, oldest first."""
        return list(self)

    def use(self, func: Callable[..., Any]) -> "DequeBuffer":
        """Add middleware, as `Buffer.use`. Limits and priorities hold for the rows, in all views of them."""
        if hasattr(func, "limits"):
            self.limit(*func.limits)
        super().use(func)
        return self

    def limit(self, limits: Mapping[str, float], shown: dict[str, int], *priorities: dict[str, Any]) -> None:
        """Set limits, of which the smallest hold, what `meta` shows, and priorities. Stored rows stay."""
        with self.lock:
            least = dict(self._limits)
            for key, value in limits.items():
                if value != float("inf"):
                    limit = int(value) if float(value).is_integer() else value
                    limit = check_size(self._owner, key, limit, minimum=int(key == "max_use"))
                    least[key] = min(limit, least.get(key, limit))
            new = {"_limits": least, "_shown": self._shown | shown, "priorities": (*priorities, self.priorities)[0]}
            rows, made = list(self), self._copy({"state": None, "layout": None, "kept": [None] * self.size}, new)
            for row, pushed in zip(rows, made.extend([row.data for row in rows], [row.meta for row in rows])):
                row.index = pushed.index
            vars(made)["_kept"][: len(rows)] = rows
            vars(self).update(vars(made))

    def view(self) -> "DequeBuffer":
        """Return a buffer of the same rows without middleware."""
        made = type(self).__new__(type(self))
        made.__dict__ = vars(self)
        Buffer.__init__(made, self.size)
        return made

    __copy__ = view

    def _copy(self, state: Mapping[str, Any], new: dict[str, Any]) -> "DequeBuffer":
        made = self.view()
        made.__dict__ = vars(self) | new
        made.load_state_dict(state)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "DequeBuffer":
        rows = id(vars(self))
        if rows not in memo:
            new = {"lock": threading.RLock(), "gone": copy.deepcopy(self.gone, memo)}
            memo[rows] = self._copy(self.state_dict(), new)
        memo[id(self)] = made = memo[rows].view()
        for func in copy.deepcopy(self._middleware, memo):
            Buffer.use(made, func)
        return made  # type: ignore[no-any-return]

    # Rows go in.

    @_extended
    def push(self, data: object, meta: dict[str, Any] | None = None) -> BufferedData:
        """Append a row, with what is known of it; return it with its index."""
        if meta is not None and not isinstance(meta, dict):
            raise TypeError(f"For '{self._owner}', 'meta' must be a dict or None, but got {meta!r}.")
        return self.extend([data], [dict(meta or {})])[0]

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
            with _hinted():
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

    # Which rows there are.

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

    def _stored_handles(self, indices: Sequence[str]) -> np.ndarray:
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

    def get(self, idx: int) -> BufferedData:
        """Return a row by its position: 0 is the oldest, -1 the newest; an IndexError if there is none."""
        with self.lock:
            live = self.live()
            if not -live.size <= idx < live.size:
                bounds = f"[-{live.size}, {live.size})"
                raise IndexError(f"For '{self._owner}', 'idx' must be in {bounds}, but got {idx}.")
            return self.items(live[[idx]])[0]

    __getitem__ = get

    def get_by_index(self, index: str) -> BufferedData:
        """Return a row by its index; a KeyError if it is not stored."""
        with self.lock:
            return self.items(self._stored_handles([index]))[0]

    def __iter__(self) -> Iterator[BufferedData]:
        with self.lock:
            return iter(self.items(self.live()))

    # Rows come out.

    @_extended
    def sample(
        self,
        size: int | None = None,
        indices: Sequence[str] | None = None,
        replace: bool = False,
        sample_range: slice | None = None,
        ignore_insufficient: bool = False,
        groupby: str | None = None,
        unroll_len: int | None = None,
    ) -> list[Any]:
        """Draw `size` rows, or lists of rows, by DI-engine's arguments.

        By priority a row may come again, and `sample_range` is ``slice(-n, None)``. A row that comes again is a copy.

        Raises:
            TypeError, ValueError: If arguments do not fit each other, or there are too few rows or groups.
            KeyError: If there is no row of one of `indices`.
        """
        name = self._owner
        if (size is None and indices is None) or (
            indices is not None and (groupby or size not in (None, len(indices)))
        ):
            raise ValueError(
                f"For '{name}', 'sample' needs 'size', or 'indices' without 'groupby' and as many as 'size', but got "
                f"size={size}, indices={indices}, groupby={groupby!r}."
            )
        if unroll_len is not None and (groupby is None or unroll_len < 1):
            raise ValueError(f"For '{name}', 'unroll_len' must be positive and needs 'groupby', but got {unroll_len}.")
        if sample_range is not None and not isinstance(sample_range, slice):
            raise TypeError(f"For '{name}', 'sample_range' must be a slice, but got {sample_range!r}.")
        with self.lock:
            if indices is not None:
                return self._delivered(self._stored_handles(indices))
            size = check_size(name, "size", size)
            there = range(self.count())[sample_range or slice(None)]
            rows: list[Any] = (
                self._groups(size, groupby, replace, unroll_len, there)
                if groupby
                else self.draw(size, replace, sample_range)
            )
        if len(rows) == size:
            return rows
        kind = "rows" if groupby is None else f"groups by {groupby!r}"
        text = f"For '{name}', there must be {size} {kind} to sample, but got too few in {len(there)} rows."
        if not ignore_insufficient:
            raise ValueError(text)
        logging.getLogger("mindspore_replay.di_engine").warning(text)
        return []

    def draw(self, size: int, replace: bool = False, sample_range: slice | None = None) -> list[BufferedData]:
        """Draw rows, past the middleware, as `sample` does; none if there are too few."""
        with self.lock:
            there = len(range(self.count())[sample_range or slice(None)])
            again = replace or bool(self.priorities)
            if not there or (there < size and ("max_use" in self._limits or not again)):
                return []
            start, live = None, self.live() if replace or sample_range is not None else None
            if live is not None and not self.priorities:
                return self._delivered(np.random.choice(live[sample_range or slice(None)], size, replace))
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
            return _independent(rows) if len(rows) == size else []

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

    def _delivered(self, handles: np.ndarray) -> list[BufferedData]:
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

    def _groups(self, size: int, key: str, replace: bool, length: int | None, span: range) -> list[list[BufferedData]]:
        groups: dict[object, list[int]] = {}
        for handle in self.live()[np.array(span, int)].tolist():
            groups.setdefault(self.meta(handle).get(key), []).append(handle)
        long = [group for group in groups.values() if len(group) >= (length or 1)]
        if not long or (len(long) < size and not replace):
            return []
        chosen = []
        for group in (long[i] for i in np.random.choice(len(long), size, replace)):
            unrolled = length or len(group)
            last = len(group) - unrolled
            first = np.random.randint(len(group) if self.sliced else last + 1)
            first = min(first // unrolled * unrolled, last) if self.sliced else first
            chosen.append(group[first : first + unrolled])
        rows = iter(self._delivered(np.array([handle for group in chosen for handle in group])))
        return [[next(rows) for _ in group] for group in chosen]

    # Rows change.

    @_extended
    def update(self, index: str, data: object = None, meta: dict[str, Any] | None = None) -> bool:
        """Replace a row, and what is known of it, where given; return False if it is not stored."""
        with self.lock:
            (handle,), (stored,) = self.handles([index])
            if not stored:
                return False
            priority = None if meta is None or not self.priorities else meta.get("priority")
            if priority is not None:
                priority = as_priority(self._owner, priority, 1)
            kept = BufferedData(None, index, self.meta(handle)) if self._layout else self._kept[handle % self.size]
            if data is not None and self._layout:
                with _hinted():
                    self.replay.update(handle, self._layout.fields(self._owner, [data]))
            elif data is not None:
                kept.data = data
            if priority is not None:
                self.replay.update_priorities(handle, priority)
            kept.meta, self._kept[handle % self.size] = kept.meta if meta is None else meta, kept
            return True

    @_extended
    def delete(self, indices: str | Iterable[str]) -> None:
        """Remove rows by their indices; others are skipped."""
        with self.lock:
            handles, stored = self.handles([indices] if isinstance(indices, str) else indices)
            if stored.any():
                self.replay.delete(handles[stored])
                for handle in set(handles[stored].tolist()):
                    self._keep(handle, None)

    @_extended
    def clear(self) -> None:
        """Remove all rows."""
        with self.lock:
            for place in range(self.size):
                self._keep(place, None)
            if self._replay is not None:
                self.replay.reset()

    # Files.

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

    def save_data(self, file_name: str | os.PathLike[str]) -> None:
        """Write rows and their whole state to a file, by Python's ``pickle``, and make its folder if needed."""
        save(file_name, self.state_dict())

    def load_data(self, file_name: str | os.PathLike[str]) -> None:
        """Load a file of `save_data` that a buffer of this size and these limits wrote. It must be one you trust."""
        self.load_state_dict(load(file_name))


def save(file_name: str | os.PathLike[str], content: object) -> None:
    """Write something to a file, whole or not at all, and make its folder if needed."""
    path = real_path(file_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "save_data") as file:
        buffered = io.BufferedWriter(file)  # type: ignore[arg-type]
        pickle.dump(content, buffered)
        buffered.detach()  # written, and open for `replacing`


def load(file_name: str | os.PathLike[str]) -> Any:
    """Return what `save` wrote."""
    return pickle.loads(Path(file_name).read_bytes())


@contextlib.contextmanager
def _hinted() -> Iterator[None]:
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
