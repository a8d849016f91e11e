"""DI-engine's `DequeBuffer`."""

import functools
import io
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..checkpoint.files import real_path, replacing
from ..store.checks import check_bool, check_size
from .rows import BufferedData, Rows

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _extended(base: _Method) -> _Method:
    """Let calls of a method go through the middleware."""

    @functools.wraps(base)
    def call(self: "Buffer", *args: Any, **kwargs: Any) -> Any:
        chain: Callable[..., Any] = functools.partial(base, self)
        for func in reversed(self._middleware):
            chain = functools.partial(func, base.__name__, chain)
        return chain(*args, **kwargs)

    return call  # type: ignore[return-value]


class Buffer:
    """Base of buffers that middleware extends.

    Args:
        size (int): Most rows.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._middleware: list[Callable[..., Any]] = []

    def use(self, func: Callable[..., Any]) -> Any:
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
        super().__init__(size)
        name = type(self).__name__
        self.sliced = check_bool(name, "sliced", sliced)
        self.rows = Rows(name, size, check_bool(name, "objects", objects))

    @property
    def replay(self) -> Any:
        """The buffer of this library that holds the rows."""
        return self.rows.replay

    @property
    def storage(self) -> list[BufferedData]:
        """The rows, oldest first."""
        return list(self)

    def use(self, func: Callable[..., Any]) -> "DequeBuffer":
        """Add middleware, as `Buffer.use`. Limits and priorities hold for the rows, in all views of them."""
        if hasattr(func, "limits"):
            self.rows.limit(*func.limits)
        return super().use(func)  # type: ignore[no-any-return]

    def view(self) -> "DequeBuffer":
        """Return a buffer of the same rows without middleware."""
        made = type(self)(self.size, self.sliced)
        made.rows = self.rows
        return made

    __copy__ = view

    @_extended
    def push(self, data: Any, meta: dict[str, Any] | None = None) -> BufferedData:
        """Append a row, with what is known of it; return it with its index."""
        if meta is not None and not isinstance(meta, dict):
            raise TypeError(f"For '{type(self).__name__}', 'meta' must be a dict or None, but got {meta!r}.")
        return self.rows.push([data], [dict(meta or {})])[0]

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
    ) -> Any:
        """Draw rows.

        Args:
            size (Union[int, None]): Number of rows, or of groups. Default: ``None``, for that of `indices`.
            indices (Union[Sequence[str], None]): Rows to return instead. Default: ``None``.
            replace (bool): Whether a row or group may come again. Default: ``False``.
            sample_range (Union[slice, None]): The rows to draw from, oldest first. Default: ``None``, for all.
            ignore_insufficient (bool): Whether to warn and return nothing if there are too few. Default: ``False``.
            groupby (Union[str, None]): Key of `meta`, for lists of the rows with one value of it. Default: ``None``.
            unroll_len (Union[int, None]): Successive rows of each group that has as many. Default: ``None``, for all.

        Returns:
            list[BufferedData]: The rows, or a list of them for each group. One that comes again is a copy.

        Raises:
            TypeError, ValueError: If arguments do not fit each other, or there are too few rows or groups.
            KeyError: If there is no row of an index.
        """
        name = type(self).__name__
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
        with self.rows.lock:
            if indices is not None:
                return self.rows.deliver(self._handles(indices))
            size = check_size(name, "size", size)
            span = None if sample_range is None else range(*sample_range.indices(self.count()))
            if groupby is None:
                rows: list[Any] = self.rows.draw(size, replace, span)
            else:
                rows = self._groups(size, groupby, replace, unroll_len, span)
        if len(rows) == size:
            return rows
        kind, there = (
            "rows" if groupby is None else f"groups by {groupby!r}",
            self.count() if span is None else len(span),
        )
        text = f"For '{name}', there must be {size} {kind} to sample, but got too few in {there} rows."
        if not ignore_insufficient:
            raise ValueError(text)
        logging.getLogger("mindspore_replay.di_engine").warning(text)
        return []

    def _groups(
        self, size: int, key: str, replace: bool, unroll_len: int | None, span: range | None
    ) -> list[list[BufferedData]]:
        live, groups = self.rows.live(), {}  # type: ignore[var-annotated]
        for handle in live.tolist() if span is None else live[np.array(span, int)].tolist():
            groups.setdefault(self.rows.meta(handle).get(key), []).append(handle)
        long = [group for group in groups.values() if len(group) >= (unroll_len or 1)]
        if not long or (len(long) < size and not replace):
            return []
        chosen = [self._window(long[i], unroll_len) for i in np.random.choice(len(long), size, replace)]
        rows = iter(self.rows.deliver(np.array([handle for group in chosen for handle in group])))
        return [[next(rows) for _ in group] for group in chosen]

    def _window(self, group: list[int], length: int | None) -> list[int]:
        if length is None:
            return group
        last = len(group) - length
        first = int(np.random.randint(len(group) if self.sliced else last + 1))
        first = min(first // length * length, last) if self.sliced else first
        return group[first : first + length]

    def _handles(self, indices: Sequence[str]) -> np.ndarray:
        handles, stored = self.rows.handles(indices)
        if not stored.all():
            wrong = indices[int(np.argmin(stored))]
            raise KeyError(f"For '{type(self).__name__}', 'index' must be that of a stored row, but got {wrong!r}.")
        return handles

    @_extended
    def update(self, index: str, data: Any = None, meta: dict[str, Any] | None = None) -> bool:
        """Replace a row, and what is known of it, where given; return False if it is not stored."""
        return self.rows.update(index, data, meta)

    @_extended
    def delete(self, indices: str | Iterable[str]) -> None:
        """Remove rows by their indices; others are skipped."""
        self.rows.delete([indices] if isinstance(indices, str) else list(indices))

    @_extended
    def clear(self) -> None:
        """Remove all rows."""
        self.rows.clear()

    def count(self) -> int:
        """Return the number of rows."""
        return self.rows.count()

    __len__ = count

    def get(self, idx: int) -> BufferedData:
        """Return a row by its position: 0 is the oldest, -1 the newest; an IndexError if there is none."""
        with self.rows.lock:
            live = self.rows.live()
            if not -live.size <= idx < live.size:
                bounds = f"[-{live.size}, {live.size})"
                raise IndexError(f"For '{type(self).__name__}', 'idx' must be in {bounds}, but got {idx}.")
            return self.rows.items(live[[idx]])[0]

    __getitem__ = get

    def get_by_index(self, index: str) -> BufferedData:
        """Return a row by its index; a KeyError if it is not stored."""
        with self.rows.lock:
            return self.rows.items(self._handles([index]))[0]

    def __iter__(self) -> Iterator[BufferedData]:
        with self.rows.lock:
            return iter(self.rows.items(self.rows.live()))

    def save_data(self, file_name: str | os.PathLike[str]) -> None:
        """Write rows and their whole state to a file, by Python's ``pickle``, and make its folder if needed."""
        save(file_name, self.rows.state_dict())

    def load_data(self, file_name: str | os.PathLike[str]) -> None:
        """Load a file of `save_data` that a buffer of this size and these limits wrote. It must be one you trust."""
        self.rows.load_state_dict(load(file_name))


def save(file_name: str | os.PathLike[str], content: Any) -> None:
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
