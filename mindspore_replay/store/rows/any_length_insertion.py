"""Passes rows that differ in length from Python to the kernel that stores them and their items."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..base.schema import Schema
from ..kernels.call import Array, Call, Tensors, fixed
from ..kernels.invocations import column_inputs
from ..spec.options import Options
from .inputs import NewRows
from .insertion import Insertion


class RaggedInsertion(Insertion):
    """Stores rows that differ in length. See `Insertion`.

    Args:
        rows_schema (Schema): The columns of the rows.
        options (Options): Options of the store.
        state (Mapping[str, Union[Array, Sequence[Array]]]): The arrays of the state, as arguments of kernels.
        tensors, held: As for `Insertion`.
    """

    def __init__(
        self, rows_schema: Schema, options: Options, state: Mapping[str, Any], tensors: Tensors, exclusion: Any
    ) -> None:
        self._rows_schema, self._ends = rows_schema, np.zeros(1, np.uint8)
        super().__init__(rows_schema.references, options, state, tensors, exclusion)
        if rows_schema.late:
            self.now = lambda *_: False

    def _call(self, groups: Collection[str], arguments: Mapping[str, Any]) -> Call:
        schema, present = self._rows_schema, self._rows_schema.present
        #: The columns of the rows that come with an insertion; -1 for late ones whose items come later.
        fields = [i if i in present else -1 for i in range(len(schema))]
        rows = list(arguments["rows"])
        for i in schema.group_of.keys() & set(present):
            arena = self._state[f"items.{schema.names[i]}"]
            rows[i] = Array(arena.shape, arena.dtype)
        arguments = {**arguments, "rows": rows, "ends": fixed(self._ends)}
        return Call("insert", groups, arguments, self._options.length_groups, fields)

    def _inputs(self, tensors: Tensors) -> tuple[Any, ...]:
        schema = self._rows_schema
        inputs = enumerate(column_inputs(schema, tensors))
        return tuple((*i[:3], i[3][k in schema.group_of :], *i[4:]) for k, i in inputs)

    def _group_number(self, i: int) -> int:
        groups = self._rows_schema.group_of
        return self._options.length_groups.index(groups[i]) if i in groups else -1

    def _status(self, new: NewRows) -> int:
        call, columns = self._calls[new.version is not None], range(len(self._schema))
        fields = {i: self._schema.to_array(i, new.fields[i]) for i in columns if i not in new.items}
        lead = (new.batch.rows,)
        parts = [new.items[i] if i in new.items else fields[i].reshape(*lead, *self._schema.shapes[i]) for i in columns]
        of_groups = [new.fields[group.column] for group in self._options.length_groups]
        lengths = [np.asarray(references).reshape(-1, 2)[:, 1].astype(np.int32) for references in of_groups]
        arrays = list(map(np.ascontiguousarray, [*lengths, *parts]))
        for place, array in enumerate(arrays, call.place("lengths")):
            call.give(place, array)
        defaults = {"priority": self._state["max_priority"].memory.reshape(1), "ends": self._ends}
        for name, value in (("priority", new.priority), ("ends", new.ends), ("version", new.version)):
            if call.place(name) >= 0:
                arrays.append(defaults[name] if value is None else np.ascontiguousarray(value).reshape(-1))
                call.give(call.place(name), arrays[-1])
        return call.direct.run()
