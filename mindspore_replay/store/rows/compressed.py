"""A store with columns whose rows are kept compressed.

For the kernels, a compressed column is one of int64: the number of a row, which is stored compressed in an array of
objects. Rows become numbers before a kernel stores them, and numbers become rows after a kernel has drawn them, so
draws, windows and views are those of any other column.
"""

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.schema import Schema
from ..base.types import Experience, Outputs, Values
from ..kernels import library
from ..kernels.call import NO_TENSORS, Tensors
from ..spec.options import Options
from ..spec.plan import OF_ROWS
from .inputs import NewRows, as_array, as_values
from .insertion import Insertion
from .lz4 import Codec, codec
from .store import Store

#: For an output with rows of a compressed column, the column and a function that makes its array.
Place = tuple[int, Callable[[], np.ndarray]] | None

#: Number of a row of zeros, which is not stored; and that of a slot into which no row was stored yet.
ZEROS, NOTHING = 0, -1
#: Of numbers in use, one in so many is set aside, for rows that are not stored any more. They are looked for together.
_SHARE = 8
_CHUNK = 1 << 23


class CompressedColumn:
    """A column whose rows are kept compressed. It is read and written like an array ``[C, *F]``.

    Not thread-safe: the caller must hold the buffer's lock.

    Args:
        numbers (numpy.ndarray): The number of the row in each slot, which kernels change. Shape ``[C]``, int64.
        shape (tuple[int, ...]): ``*F``.
        dtype (numpy.dtype): Dtype of the rows.
        functions (Codec): The codec.
    """

    def __init__(self, numbers: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any], functions: Codec) -> None:
        numbers[...] = NOTHING
        self.numbers, self.shape, self.dtype = numbers, (len(numbers), *shape), dtype
        self._codec = functions
        self._rows = np.full(1, None, object)
        self._free = np.zeros(0, np.int64)
        self._row_bytes = 0

    def store(self, rows: np.ndarray) -> np.ndarray:
        """Compress rows ``[n, *F]``, and return their numbers, int64 ``[n]``. A kernel or `__setitem__` stores these.

        Amortized cost O(bytes).
        """
        n = len(rows)
        if n > len(self._free):
            self._collect(n)
        numbers, self._free = self._free[:n], self._free[n:]
        self._row_bytes += library.calls.compress(self._codec.compress, self._rows, numbers, np.ascontiguousarray(rows))
        return numbers

    def load_checked(self, other: "CompressedColumn") -> None:
        """Store the rows of another column, in their compressed form."""
        self.numbers[...] = other.numbers
        self._rows, self._free, self._row_bytes = other.contents()

    def contents(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return copies of the compressed rows by number, of the free numbers, and the bytes of all rows."""
        return self._rows.copy(), self._free.copy(), self._row_bytes

    def close(self) -> None:
        """Free the rows."""
        self._rows, self._free = np.full(1, None, object), np.zeros(0, np.int64)

    def _collect(self, n: int) -> None:
        """Find the numbers that no slot uses any more, and make new ones, so that at least n are free. Cost O(C)."""
        used = np.zeros(len(self._rows), bool)
        used[np.maximum(self.numbers, ZEROS)] = True
        used[ZEROS] = True
        free = np.flatnonzero(~used)
        more = max(n, len(self.numbers) // _SHARE) - len(free)
        if more > 0:
            free = np.append(free, np.arange(len(used), len(used) + more))
            self._rows = np.append(self._rows, np.full(more, None))
        self._free = free

    def fill(self, parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Fill arrays with the rows of these numbers, each of which is decompressed once.

        Raises:
            RuntimeError: If a row is damaged or missing.
        """
        library.calls.decompress(self._codec.decompress, self._rows, tuple(parts))

    def __getitem__(self, slots: np.ndarray | slice) -> np.ndarray:
        numbers = np.ascontiguousarray(np.maximum(self.numbers[slots], ZEROS))
        rows = np.empty((*numbers.shape, *self.shape[1:]), self.dtype)
        if numbers.size:
            self.fill([(numbers, rows)])
        return rows

    def __setitem__(self, slots: np.ndarray | slice, rows: np.ndarray) -> None:
        where = slots if isinstance(slots, np.ndarray) else np.arange(len(self.numbers))[slots]
        step = max(1, _CHUNK // (math.prod(self.shape[1:]) * self.dtype.itemsize))
        for i in range(0, len(where), step):
            part = where[i : i + step]
            self.numbers[part] = self.store(rows[i : i + step])

    def __len__(self) -> int:
        return len(self.numbers)

    def copy(self) -> np.ndarray:
        """Return all rows, decompressed."""
        return self[:]

    #: As a Parameter has it.
    asnumpy = copy

    @property
    def nbytes(self) -> int:
        """Present bytes of the column, with its numbers and with replaced rows not yet collected."""
        return int(self.numbers.nbytes + self._rows.nbytes + self._free.nbytes + self._row_bytes)


class CompressedInsertion(Insertion):
    """Compresses rows, and stores their numbers.

    Args:
        rows_schema (Schema): The columns of the rows.
        compressed (Mapping[int, CompressedColumn]): The compressed ones, by index.
        given: The arguments of `Insertion`, for the columns that kernels store.
    """

    def __init__(self, rows_schema: Schema, compressed: Mapping[int, CompressedColumn], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rows_schema, self._compressed = rows_schema, compressed
        self.now, self.rows = lambda *_: False, lambda *_: -1

    def __call__(self, new: NewRows) -> None:
        """Store rows, as `Insertion` does."""
        fields = list(new.fields)
        for i, column in self._compressed.items() if new.batch.rows else ():
            rows = self._rows_schema.to_array(i, fields[i])
            fields[i] = column.store(rows[None]).reshape(()) if new.batch.single else column.store(rows)
        super().__call__(new._replace(fields=fields))


class CompressedStore(Store):
    """A store with compressed columns.

    Args:
        rows_schema (Schema): The columns of the rows. ``schema`` has those that kernels store.
        columns (Union[Mapping[str, CompressedColumn], None]): The compressed columns of another store on the same
            arrays. Default: ``None``, for new ones.
        options, arrays, tensors: As for `Store`.

    Attributes:
        compressed (dict[str, CompressedColumn]): The compressed columns, by their names in the state.

    Raises:
        ImportError: If the package lz4 is not installed.
    """

    def __init__(
        self,
        rows_schema: Schema,
        options: Options,
        arrays: Mapping[str, np.ndarray] | None = None,
        tensors: Tensors = NO_TENSORS,
        columns: Mapping[str, CompressedColumn] | None = None,
    ) -> None:
        super().__init__(rows_schema.stored(), options, arrays, tensors._replace(share=None))
        self._rows_schema, self._share_rows = rows_schema, tensors.share
        self.compressed = dict(self._new_columns() if columns is None else columns)
        self._by_index = dict(zip(rows_schema.compressed, self.compressed.values()))

    def _new_columns(self) -> dict[str, CompressedColumn]:
        schema, functions = self._rows_schema, codec(self.options.cls_name)
        columns = {}
        for i in schema.compressed:
            name, dtype = f"column.{schema.names[i]}", schema.numpy_type(schema.stored_dtypes[i])
            columns[name] = CompressedColumn(self.arrays[name], schema.shapes[i], dtype, functions)
        return columns

    def resized(self, options: Options) -> "CompressedStore":
        """Return a store on the same arrays that draws by other options."""
        tensors = self._tensors._replace(share=self._share_rows)
        arrays = {**self.arrays, "updates": self.updates}
        return CompressedStore(self._rows_schema, options, arrays, tensors, self.compressed)

    def close(self) -> None:
        """Free the rows, and return the memory of the state to the system."""
        super().close()
        for column in self.compressed.values():
            column.close()

    @functools.cached_property
    def insertion(self) -> Insertion:
        """The object that checks, compresses and stores rows for `insert`."""
        arguments = self.schema, self.options, self._state, self._tensors, weakref.WeakMethod(self.kernels_kept_out)
        return CompressedInsertion(self._rows_schema, self._by_index, *arguments)

    @functools.cached_property
    def try_sample(self) -> Callable[[int], Outputs | int]:
        """Leave all samples to `sample`, whose caller must hold the lock until the rows are decompressed."""
        return lambda _: -1

    @functools.cached_property
    def _sampled(self) -> list[Place]:
        schema = self._rows_schema
        found: list[Place] = []
        for output in self.options.plan.outputs:
            is_of_rows = output.kind in OF_ROWS and output.column in self._by_index
            shape = output.shape(self.options.plan.n, schema)
            empty = library.calls.Output(shape, schema.numpy_types[output.column]) if is_of_rows else None
            found.append(None if empty is None else (output.column, empty))
        return found

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> Outputs:
        """Draw a batch, as `Store.sample` does."""
        return self._with_rows(super().sample(bounds, beta), self._sampled)

    def read(self, index: Values) -> Outputs:
        """Return the rows at logical positions, as `Store.read` does."""
        return self._with_rows(super().read(index), self._columns_at(as_array(index).shape))

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> Outputs:
        """Draw groups by a column of ints, as `Store.sample_groups` does."""
        numbers = super().sample_groups(column, ordered, groups, size)
        return self._with_rows(numbers, [None, *self._columns_at((groups, size))])

    def _columns_at(self, lead: tuple[int, ...]) -> list[Place]:
        """Return the places of rows with these axes in front of their own."""
        return [
            (i, functools.partial(np.empty, (*lead, *shape), dtype)) if i in self._by_index else None
            for i, (shape, dtype) in enumerate(zip(self._rows_schema.shapes, self._rows_schema.numpy_types))
        ]

    def _with_rows(self, numbers: Sequence[Any], places: Sequence[Place]) -> Outputs:
        """Replace the numbers that kernels gave by rows."""
        arrays = list(numbers)
        parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        for k, place in enumerate(places):
            if place is not None:
                arrays[k] = place[1]()
                parts.setdefault(place[0], []).append((numbers[k], arrays[k]))
        for i, of_column in parts.items():
            self._by_index[i].fill(of_column)
        return tuple(arrays if self._share_rows is None else map(self._share_rows, arrays))

    def update(self, handles: Values, values: Experience) -> np.ndarray:
        """Write columns of stored rows, as `Store.update` does."""
        where, chosen, arrays = as_values(self._rows_schema, self.options, handles, values)
        columns = [self._by_index.get(i) for i in chosen]
        stored = [rows if column is None else column.store(rows) for column, rows in zip(columns, arrays)]
        return self._write(where, chosen, stored)
