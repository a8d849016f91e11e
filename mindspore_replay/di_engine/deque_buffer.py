"""DI-engine's `DequeBuffer`."""

import functools
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from ..checkpoint.files import real_path, replacing
from ..store.base.checks import check_bool, check_size, need
from .layout import AssertedValueError, BufferedData
from .table import RowTable

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
    """Base of buffers of at most `size` rows that middleware extends."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._middleware: list[Callable[..., Any]] = []

    def use(self, func: Callable[..., Any]) -> "Buffer":
        """Add middleware, a function ``(action, chain, *args, **kwargs)`` that calls `chain` and returns its result.

        The first that was added is the outermost. `action` is ``"push"``, ``"sample"``, ``"update"``, ``"delete"`` or
        ``"clear"``.
        """
        self._middleware.append(func)
        return self


class BufferIndex:
    """Positions of the rows of a table by their indices."""

    def __init__(self, table: RowTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return self._table.count()

    def has(self, key: str) -> bool:
        """Return True if a row with this index is stored."""
        return bool(self._table.handles([key])[0] >= 0)

    def get(self, key: str) -> int:
        """Return the position of the row with this index, 0 for the oldest. Raise a KeyError if it is not stored."""
        with self._table.lock:
            return int(np.searchsorted(self._table.live(), self._table.checked_handles([key])[0]))


class DequeBuffer(Buffer):
    """A ring of the newest `size` rows, with the methods of DI-engine's ``DequeBuffer``.

    Rows that are (nested) dicts of arrays, Tensors and numbers are stored in columns, chosen by the first row. They are
    copied in and out, a Python float as float32, and compiled graphs can sample them:
    ``buffer.replay.with_sample_size(64).sample()``. Other rows are stored as objects: if a later row does not fit the
    columns, all are from then on, with a RuntimeWarning, or an error if `replay` has been read. A removed row occupies
    its place until it is overwritten.

    Args:
        size (int): Most rows stored.
        sliced (bool): Whether windows of a group begin at multiples of `unroll_len`. Default: ``False``.
        objects (bool): Whether to store all rows as objects. Default: ``False``.

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
        self._name = type(self).__name__
        self.table = RowTable(self._name, size, objects)
        self.sliced = check_bool(self._name, "sliced", sliced)

    replay = property(lambda self: self.table.replay, doc="The buffer underneath, from now on a Cell.")
    storage = property(lambda self: list(self), doc="The rows, oldest first.")
    indices = property(lambda self: BufferIndex(self.table), doc="Positions of rows by their indices.")

    @property
    def meta_index(self) -> Mapping[str, list[Any]]:
        """What `meta` has by the keys of the dict that was set here, and of `groupby`: a list of all rows', by key."""
        with self.table.lock:
            metas = [self.table.entry(handle).meta for handle in self.table.live().tolist()]
            return MappingProxyType({key: [meta.get(key) for meta in metas] for key in self.table.indexed})

    @meta_index.setter
    def meta_index(self, keys: Iterable[str]) -> None:
        self.table.indexed = tuple(keys)

    def use(self, func: Callable[..., Any]) -> "DequeBuffer":
        """Add middleware, as `Buffer.use`. Limits and priorities apply to the rows, in all views of them."""
        self.table.limit(**getattr(func, "limits", {}))
        super().use(func)
        return self

    def view(self) -> "DequeBuffer":
        """Return a buffer of the same rows without middleware."""
        view = object.__new__(type(self))
        vars(view).update(vars(self), _middleware=[])
        return view

    __copy__ = view

    @_extended
    def push(self, data: object, meta: dict[str, Any] | None = None) -> BufferedData:
        """Append a row, with what is known of it, and return it with its index."""
        need(meta is None or isinstance(meta, dict), TypeError, self._name, "'meta' must be a dict or None", meta)
        return self.table.extend([(data, dict(meta or {}))])[0]

    def get(self, idx: int) -> BufferedData:
        """Return a row by its position: 0 is the oldest, -1 the newest. Raise an IndexError if there is none."""
        with self.table.lock:
            live, n = self.table.live(), self.count()
            need(-n <= idx < n, IndexError, self._name, f"'idx' must be in [-{n}, {n})", idx)
            return self.table.items(live[[idx]])[0]

    __getitem__ = get

    def get_by_index(self, index: str) -> BufferedData:
        """Return a row by its index. Raise a KeyError if it is not stored."""
        with self.table.lock:
            return self.table.items(self.table.checked_handles([index]))[0]

    def __iter__(self) -> Iterator[BufferedData]:
        with self.table.lock:
            return iter(self.table.items(self.table.live()))

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
        """Draw `size` rows, or lists of rows. Raise a ValueError if they are too few, a KeyError for unknown `indices`.

        By priority a row may repeat, as a copy, and `sample_range` must be ``slice(-n, None)``.
        """
        name, table = self._name, self.table
        rule = "'indices' must be a sequence of indices: write sample(size, replace=True)"
        need(indices is not True, TypeError, name, rule, indices)
        if indices is False or (indices is not None and size is not None and len(indices) == 0):
            indices = None  # as middleware of DI-engine's passes it by position
        by_index = indices is not None and len(indices) > 0 and not groupby and size in (None, len(indices))
        if not by_index and (size is None or indices is not None):
            got = f"size={size}, indices={indices}, groupby={groupby!r}"
            raise AssertedValueError(
                f"For '{name}', 'sample' needs 'size', or 'indices' without 'groupby' and as many as 'size', but got "
                f"{got}."
            )
        fits = unroll_len is None or (groupby is not None and unroll_len > 0)
        need(fits, AssertedValueError, name, "'unroll_len' must be positive and needs 'groupby'", unroll_len)
        fits = sample_range is None or isinstance(sample_range, slice)
        need(fits, TypeError, name, "'sample_range' must be a slice", sample_range)
        with table.lock:
            if indices is not None:
                return table.delivered(table.checked_handles(indices))
            size = check_size(name, "size", size)
            rows: list[Any] = (
                self._groups(size, groupby, replace, unroll_len, sample_range)
                if groupby
                else table.draw(size, replace, sample_range)
            )
        if len(rows) == size:
            return rows
        units = "rows" if groupby is None else f"groups by {groupby!r}"
        number = len(range(self.count())[sample_range or slice(None)])
        text = f"For '{name}', there must be {size} {units} to sample, but got too few in {number} rows."
        text += f" There are less than {size} of them."  # DI-engine's words
        if not ignore_insufficient:
            raise ValueError(text)
        logging.getLogger("mindspore_replay.di_engine").warning(text)
        return []

    def _groups(
        self, size: int, key: str, replace: bool, length: int | None, sample_range: slice | None
    ) -> list[list[BufferedData]]:
        groups: dict[object, list[int]] = {}
        self.table.indexed = tuple(dict.fromkeys((*self.table.indexed, key)))
        for handle in self.table.live()[sample_range or slice(None)].tolist():
            groups.setdefault(self.table.entry(handle).meta.get(key), []).append(handle)
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
        rows = iter(self.table.delivered(np.concatenate(chosen)))
        return [[next(rows) for _ in group] for group in chosen]

    @_extended
    def update(self, index: str, data: object = None, meta: dict[str, Any] | None = None) -> bool:
        """Replace a row, its metadata, or both. Return False if it is not stored."""
        with self.table.lock:
            (handle,) = self.table.handles([index])
            if handle >= 0:
                self.table.update(handle, data, meta)
            return bool(handle >= 0)

    @_extended
    def delete(self, indices: str | Iterable[str]) -> None:
        """Remove rows by their indices. Others are skipped."""
        with self.table.lock:
            handles = self.table.handles([indices] if isinstance(indices, str) else indices)
            self.table.remove(handles[handles >= 0])

    @_extended
    def clear(self) -> None:
        """Remove all rows."""
        self.table.clear()

    def count(self) -> int:
        """Return the number of rows."""
        return self.table.count()

    __len__ = count

    def save_data(self, file_name: str | os.PathLike[str]) -> None:
        """Write rows and their whole state to a file, by Python's ``pickle``, and make its folder if needed."""
        save(file_name, self.table.state_dict())

    def load_data(self, file_name: str | os.PathLike[str]) -> None:
        """Load a file of `save_data` that you trust, of a buffer of this size.

        If one of the two has priorities and the other none or another exponent, rows count as not used yet, and new
        priorities are those of `meta`.
        """
        self.table.load_state_dict(load(file_name))


def save(file_name: str | os.PathLike[str], content: object) -> None:
    """Write something to a file, whole or not at all, and make its folder if needed."""
    path = real_path(file_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "save_data") as file:
        pickle.dump(content, file)


def load(file_name: str | os.PathLike[str]) -> Any:
    """Return what `save` wrote."""
    return pickle.loads(Path(file_name).read_bytes())
