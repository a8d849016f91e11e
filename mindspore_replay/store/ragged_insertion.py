"""Passes rows that differ in length from Python to the kernel that stores them and their items."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import library
from .call import Array, Call, Tensors, kept
from .inputs import NewRows
from .insertion import Insertion
from .options import Options
from .schema import Schema


class RaggedInsertion(Insertion):
    """Stores rows that differ in length. See `Insertion`.

    Args:
        rows_schema (Schema): The columns of the rows.
        options (Options): Options of the store.
        state (Mapping[str, Union[Array, Sequence[Array]]]): The arrays of the state, as arguments of kernels.
        tensors (Tensors): The guard that a call from Python needs, if there is one.
    """

    def __init__(self, rows_schema: Schema, options: Options, state: Mapping[str, Any], tensors: Tensors) -> None:
        super().__init__(rows_schema.references, options, state, tensors)
        self._rows_schema = rows_schema
        #: The columns of the rows that come with an insertion; -1 for late ones whose items come later.
        fields = [i if i in rows_schema.present else -1 for i in range(len(rows_schema))]
        items = {i: state[f"items.{rows_schema.names[i]}"] for i in rows_schema.kind_of if i in fields}
        rows = [Array((1, *shape), dtype) for shape, dtype in zip(self._schema.shapes, self._schema.dtypes)]
        for i, arena in items.items():
            rows[i] = Array(arena.shape, arena.dtype)
        self._ends = np.zeros(1, np.uint8)
        arguments = {**self._arguments, "rows": rows, "ends": kept(self._ends)}
        #: Without versions, with them, and for a row that obviously fits, of which all but the rows stay the same.
        groups = options.groups, options.groups | {"versions"}, options.groups
        self._calls = [Call("insert", each, arguments, options.kinds, fields) for each in groups]
        self._kernel = library.loaded().replay_insert_items
        self.now = self._row_now() if tensors.guard is None else lambda *_: False
        self.rows = lambda *_: -1

    def _status(self, new: NewRows) -> int:
        call, columns = self._calls[new.version is not None], range(len(self._schema))
        fields = {i: self._schema.to_array(i, new.fields[i]) for i in columns if i not in new.items}
        lead = (new.batch.rows,)
        given = [new.items[i] if i in new.items else fields[i].reshape(*lead, *self._schema.shapes[i]) for i in columns]
        of_kinds = [new.fields[kind.column] for kind in self._options.kinds]
        lengths = [np.asarray(references).reshape(-1, 2)[:, 1].astype(np.int32) for references in of_kinds]
        arrays = list(map(np.ascontiguousarray, [*lengths, *given]))
        for place, array in enumerate(arrays, call.place("lengths")):
            call.give(place, array)
        defaults = {"priority": self._state["max_priority"].memory.reshape(1), "ends": self._ends}
        for name, value in (("priority", new.priority), ("ends", new.ends), ("version", new.version)):
            if call.place(name) >= 0:
                arrays.append(defaults[name] if value is None else np.ascontiguousarray(value).reshape(-1))
                call.give(call.place(name), arrays[-1])
        return int(self._kernel(*call.raw(), None, None))

    def _row_now(self) -> Callable[..., bool]:
        """Return a function that stores one row that obviously fits, as `now` does.

        The caller holds the buffer's lock.
        """
        call, kernel, kinds, names = self._calls[2], self._kernel, self._options.kinds, self._schema.given_names
        schema, raw, longest = self._rows_schema, call.raw(), [kind.longest for kind in kinds]
        if schema.late or self._options.largest_held or self._options.streams > 1:
            return lambda *_: False
        width, first, to_array = len(schema), call.place("rows"), schema.to_array
        lengths = [np.zeros(1, np.int32) for _ in kinds]
        for place, array in enumerate(lengths, call.place("lengths")):
            call.give(place, array)
        columns = []
        for i, (dtype, shape) in enumerate(zip(schema.numpy_types, schema.shapes)):
            k = kinds.index(schema.kind_of[i]) if i in schema.kind_of else -1
            columns.append((i, first + i, k, dtype, shape[1:] if k >= 0 else shape))

        def now(exp: Any, priority: Any, end: Any, final: Any, version: Any = None) -> bool:
            if priority is not None or end is not False or final is not False or version is not None:
                return False
            if type(exp) is dict:
                fields = list(map(exp.get, names)) if names is not None and len(exp) == width else []
            else:
                fields = list(exp) if type(exp) in (list, tuple) else []
            if len(fields) != width:
                return False
            given = [-1] * (len(kinds) + 1)  # with a place for rows of one length
            for i, place, k, dtype, shape in columns:
                rows = fields[i]
                if k < 0:
                    rows = fields[i] = to_array(i, rows)[None]
                if type(rows) is not np.ndarray or rows.dtype != dtype or not rows.flags.c_contiguous:
                    return False
                if rows.ndim != len(shape) + 1 or rows.shape[1:] != shape:
                    return False
                if k >= 0 and given[k] not in (-1, len(rows)):
                    return False
                given[k] = len(rows)
                call.give(place, rows)
            for n, most, array in zip(given, longest, lengths):
                if n > most:
                    return False
                array[0] = n
            return kernel(*raw, None, None) == library.OK

        return now
