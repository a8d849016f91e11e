"""The bodies of a buffer's methods for MindSpore's compiler: `_x_graph` is that of `x`.

They check arguments while a graph is compiled, by the checks of calls from Python.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..mindspore_api import isconstant
from ..ops.primitives import named_in_graph
from ..ops.statement_hook import statement_body
from ..store.base.checks import LAST_CLOCK, range_of
from ..store.base.mixins import mixin
from ..store.base.nested import Step
from ..store.base.random import ALL_ROWS
from ..store.rows.inputs import (
    as_beta,
    as_handles_for,
    as_new_rows,
    as_positions,
    as_priorities,
    as_steps,
    as_values,
    check_versions,
)
from ..store.rows.items import check_padded, with_lengths
from ..store.spec.needs import need_episodes, need_lengths
from ..store.spec.options import Options
from ..store.spec.spec import BufferSpec
from .compile_time import MAPPING, NUMBER, TENSOR, compile_time, stand_in
from .isolated_cell import IsolatedCell
from .storage import need_kernels


def _check_sample(spec: BufferSpec, beta: Any, longest: bool, as_dict: bool, with_indices: bool) -> None:
    if longest:
        need_lengths(spec.columns)
        raise ValueError(
            f"For '{spec.cls_name}', the length of a sample is known when a graph is compiled, but got longest=True: "
            "leave it out, give the constructor 'sample_length', or call 'sample' from Python."
        )
    as_beta(spec.options, beta)
    spec.sample_names(as_dict, with_indices)


#: For a method, what checks its arguments.
_CHECKS: dict[str, Callable[..., object]] = {
    "advance": lambda spec, steps: as_steps(spec.options, steps, int),
    "delete": lambda spec, indices: as_handles_for(spec.options, "delete", indices),
    "end_episodes": lambda spec: need_episodes(spec.options, "end_episodes"),
    "get_item": lambda spec, index: as_positions(spec.cls_name, index),
    "info": lambda spec, indices: as_handles_for(spec.options, "info", indices),
    "sample": _check_sample,
    "sample_range": lambda spec, bounds: range_of(spec.cls_name, bounds, ALL_ROWS[1]),
    "update_priorities": lambda spec, indices, priorities: as_priorities(spec.options, indices, priorities),
}


@mixin
class GraphBodies:
    """What graphs compile for the methods of a buffer, a Cell that is isolated from its owner."""

    add_flags, parameters_and_names = IsolatedCell.add_flags, IsolatedCell.parameters_and_names
    _load_from_state_dict, _len_graph = IsolatedCell._load_from_state_dict, IsolatedCell._len_graph
    _refuse_graph, _refuse_arguments = IsolatedCell._refuse_graph, IsolatedCell._refuse_arguments

    spec: BufferSpec
    columns: Columns
    options: Options
    backend: str

    # Arguments.

    @compile_time
    def _check_call(self, method: str, *arguments: object) -> bool:
        """Check what is known of a call's arguments."""
        _CHECKS[method](self.spec, *map(stand_in, arguments))
        return True

    def _known(self, value):
        """Return what is known of an argument at compile time: a constant, a dtype and shape, or its presence."""
        if isinstance(value, Tensor):
            return (TENSOR, value.dtype, value.shape)
        if isinstance(value, dict):
            return (MAPPING, tuple(value.keys()), self._each_known(tuple(value.values())))
        if isinstance(value, (list, tuple)):
            return self._each_known(value)
        return value if isconstant(value) else NUMBER

    def _each_known(self, values):
        result = ()
        for value in values:
            result = (*result, self._known(value))
        return result

    def _at(self, value, path):
        """Return what these keys lead to."""
        for i in range(len(path)):
            value = value[path[i]]
        return value

    def _as_handles(self, indices):
        """Return checked handles as int64 ``[n]``."""
        if not isinstance(indices, Tensor):
            raise TypeError("In a graph, 'indices' must be a Tensor of ints: pass a Tensor.")
        return ops.reshape(ops.cast(indices, ms.int64), (-1,))

    def _as_dtype(self, argument, value, dtype):
        """Return a checked number or Tensor as a Tensor."""
        if not isinstance(value, (Tensor, bool, int, float)):
            self._refuse_no_tensor(argument)
        return ops.cast(value, dtype)

    @compile_time
    def _refuse_no_tensor(self, argument: str) -> NoReturn:
        raise TypeError(f"In a graph, '{argument}' must be a Tensor or a number: pass a Tensor.")

    # Rows in.

    def _insert_graph(
        self,
        exp=None,
        *misplaced,
        priority=None,
        end=False,
        final=False,
        version=None,
        lengths=None,
        with_indices=False,
        **unknown,
    ):
        arguments = self._known((exp, priority, end, final, version, lengths))
        paths = self._check_insert(arguments, len(misplaced), tuple(unknown.keys()), with_indices)
        rows = self._columns_graph(exp, paths)
        single = ops.rank(rows[0]) == len(self.shapes[0])
        n = 1 if single else rows[0].shape[0]
        priority = None if priority is None else self._as_dtype("priority", priority, ms.float32)
        version = None if version is None else self._as_dtype("version", version, ms.int64)
        ends = self._ends_graph(end, final) if self.has_episodes else None
        rows = (*self._lengths_graph(lengths, rows), *rows) if self._lengths_differ else rows
        # MindSpore would eliminate one call before the branches, with a result that only one of them uses.
        if with_indices:
            first = ops.reshape(self._graph.insert(rows, priority, ends, version), ())
            return first if single else self._handles_from_graph(first, n)
        # The parser would mistake a bare statement for that of a list, see `ops/statement_hook.py`.
        _ = self._graph.insert(rows, priority, ends, version)
        return self._stored_graph()

    def _handles_from_graph(self, first, n):
        handles = first + ops.arange(n)
        return ops.select(first < 0, first, handles) if self._graph.goes_on else handles

    @compile_time
    def _check_insert(
        self, arguments: Sequence[object], misplaced: int, unknown: tuple[str, ...], with_indices: bool
    ) -> tuple[Any, ...]:
        """Check the arguments of `insert`, and return the keys that lead to each column that is not late."""
        exp, priority, end, final, version, lengths = map(stand_in, arguments)
        if misplaced or unknown:
            raise self.columns.wrong_insert(exp, range(misplaced), unknown)
        if lengths is not None:
            check_padded(self.columns, exp)
        rows = exp if lengths is None else with_lengths(self.columns, exp, lengths)
        new = as_new_rows(self.columns, self.options, rows, priority, end, final, version, with_indices)
        if new.version is not None:
            check_versions(self.options.cls_name, new.version, LAST_CLOCK)
            if self.backend == "composite":
                need_kernels(self.options.cls_name, "'version'", "backend='composite'")
        self.columns.references.layout(new.fields, max(self.options.streams, 1))
        return tuple(self.columns.paths(exp))

    # `insert` under a name that MindSpore's parser does not mistake for a list's method.
    _add_graph, _insert_graph = _insert_graph, statement_body(_insert_graph)

    def _columns_graph(self, exp, paths):
        """Return a Tensor for each column, zeros for late ones, given the keys that lead to the others."""
        present = ()
        for j in range(len(paths)):
            present = (*present, self._row(self._present[j], self._at(exp, paths[j])))
        return self._with_zeros(present) if len(self._late) > 0 else present

    def _with_zeros(self, present):
        lead = () if ops.rank(present[0]) == len(self.shapes[self._present[0]]) else (present[0].shape[0],)
        rows = ()
        j = 0
        for i in range(len(self.shapes)):
            if i in self._late:
                rows = (*rows, ops.zeros((*lead, *self._stored_shapes[i]), self._stored_types[i]))
            else:
                rows = (*rows, present[j])
                j = j + 1
        return rows

    def _row(self, i, value):
        if isinstance(value, Tensor):
            return value if value.dtype == self.types[i] else ops.cast(value, self.types[i])
        if not isinstance(value, (bool, int, float)) or not isconstant(value):
            raise TypeError("In a graph, 'exp' must hold Tensors or constant Python numbers: pass a Tensor.")
        return self._constant(i, value)

    @compile_time
    def _constant(self, i: int, value: object) -> Tensor:
        return Tensor(self.columns.to_array(i, value))

    def _lengths_graph(self, lengths, rows):
        """Return the lengths of the rows, int32 ``[n]``, for each group."""
        result = ()
        for column, keys in self._lengths_of(self._known(lengths)):
            if lengths is None:
                result = (*result, self._whole(rows[column].shape, len(self.shapes[column])))
            else:
                result = (*result, ops.reshape(ops.cast(self._at(lengths, keys), ms.int32), (-1,)))
        return result

    @compile_time
    def _lengths_of(self, argument: object) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Return for each group a column, and the keys that lead to the lengths given."""
        lengths = stand_in(argument)
        names = [
            [name for name in group.names if name in lengths][:1] if isinstance(lengths, dict) else []
            for group in self.columns.length_groups
        ]
        return tuple((group.column, tuple(keys)) for group, keys in zip(self.columns.length_groups, names))

    @compile_time
    def _whole(self, shape: tuple[int, ...], rank: int) -> Tensor:
        """Return lengths of rows without padding."""
        return Tensor(np.full(1 if len(shape) == rank else shape[0], shape[-rank], np.int32))

    # Episode flags.

    def _ends_graph(self, end, final):
        """Return checked flags of rows as uint8 ``[1]`` or ``[n]``."""
        if isinstance(final, bool) and not final:
            return self._flag_graph("end", end)
        return ops.bitwise_or(self._flag_graph("end", end), self._flag_graph("final", final) * self._flag_values[2])

    def _flag_graph(self, argument, value):
        if isinstance(value, bool):
            return self._flag_values[1] if value else self._flag_values[0]
        return ops.reshape(self._as_dtype(argument, value, ms.uint8), (-1,))

    # Rows out.

    def _drawn_graph(self, bounds, beta, as_dict, with_indices, longest=False):
        self._check_call("sample", self._known(beta), longest, as_dict, with_indices)
        batch = self._graph.sample(bounds, None if beta is None else self._as_dtype("beta", beta, ms.float64))
        batch = batch[1:] if self.has_handles and not with_indices else batch
        return named_in_graph(self._steps_of_names(with_indices), batch) if as_dict else batch

    @compile_time
    def _steps_of_names(self, with_indices: bool) -> tuple[Step, ...]:
        return self.spec.sample_names(True, with_indices).steps

    def _can_sample_graph(self):
        return self._graph.available() >= self._graph.rows_to_wait_for()

    def _get_item_graph(self, index, *, as_dict=False):
        self._check_call("get_item", self._known(index))
        return self._read_graph(self._as_dtype("index", index, ms.int64), as_dict)

    def _read_graph(self, positions, as_dict):
        rows = self._graph.read(positions)
        return named_in_graph(self._steps_of_rows("rows"), rows) if as_dict else rows

    @compile_time
    def _steps_of_rows(self, _graph: str) -> tuple[Step, ...]:
        return self.spec.row_names(True).steps

    def _rows_graph(self, *, as_dict=False):
        return self._read_graph(ops.arange(self.capacity), as_dict)

    def _size_graph(self):
        return self._graph.count() + self._zero

    def _stored_graph(self):
        """Return, in a graph, the result of a method that returns the buffer itself from Python.

        A tuple has no method by the name of one of a buffer's, so that a chained call stops the compiler. A Tensor has
        `add`.
        """
        return (self._size_graph(),)

    def _full_graph(self):
        return self._graph.full()

    # Changes.

    def _update_graph(self, indices, values):
        columns, paths = self._check_update(self._known(indices), self._known(values))
        handles = self._as_handles(indices)
        invalid = self._zero + 0
        for i in range(len(columns)):
            rows = self._row(columns[i], self._at(values, paths[i]))
            rows = ops.reshape(rows, (-1, *self.shapes[columns[i]]))
            invalid = self._graph.update(columns[i], i == 0, handles, rows)
        return invalid

    @compile_time
    def _check_update(self, indices: object, values: object) -> tuple[tuple[Any, ...], ...]:
        """Check the arguments of `update`. Return the indices of the columns, and the keys that lead to their rows."""
        paths = self.columns.chosen(stand_in(values))
        if differ := [self.columns.names[i] for i in paths if i in self.columns.group_of]:
            raise ValueError(
                f"For '{self.spec.cls_name}', a graph updates columns whose rows have one length: call 'update' of "
                f"column {differ[0]!r} from Python."
            )
        as_values(self.columns, self.options, stand_in(indices), stand_in(values))
        return tuple(paths), tuple(paths.values())

    _update_graph = statement_body(_update_graph)

    def _update_priorities_graph(self, indices, priorities):
        self._check_call("update_priorities", self._known(indices), self._known(priorities))
        return self._graph.update_priorities(
            self._as_handles(indices), self._as_dtype("priorities", priorities, ms.float32)
        )

    def _delete_graph(self, indices):
        self._check_call("delete", self._known(indices))
        return self._graph.delete(self._as_handles(indices))

    def _info_graph(self, indices):
        self._check_call("info", self._known(indices))
        priority, uses, staleness = self._graph.info(self._as_handles(indices))
        shape = indices.shape
        return ops.reshape(priority, shape), ops.reshape(uses, shape), ops.reshape(staleness, shape)

    def _advance_graph(self, steps=1):
        self._check_call("advance", self._known(steps))
        self._graph.advance(ops.reshape(ops.cast(steps, ms.int64), ()))
        return self._stored_graph()

    def _end_episodes_graph(self):
        self._check_call("end_episodes")
        return self._graph.end_episodes()

    def _reset_graph(self):
        self._graph.reset()
        return self._stored_graph()
