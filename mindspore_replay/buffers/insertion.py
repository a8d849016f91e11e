"""Insertion of rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..mindspore_api import isconstant
from ..ops.eager import graph_body
from ..ops.statement_hook import installed, statement_body
from ..store.base.checks import LAST_CLOCK
from ..store.base.mixins import mixin
from ..store.base.types import Experience, Values
from ..store.faces.front import LocalFront
from ..store.rows.inputs import as_new_rows, check_versions
from ..store.rows.items import check_padded, with_lengths
from ..store.spec.options import Options
from .compile_time import compile_time, stand_in
from .storage import need_kernels

_Self = TypeVar("_Self", bound="Insertion")


@mixin
class Insertion:
    """Methods that store rows."""

    columns: Columns
    options: Options
    backend: str
    _front: LocalFront

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
        known = self._known((exp, priority, end, final, version, lengths))
        paths = self._check_insert(known, len(misplaced), tuple(unknown.keys()), with_indices)
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
        self, known: Sequence[object], misplaced: int, unknown: tuple[str, ...], with_indices: bool
    ) -> tuple[Any, ...]:
        """Check the arguments of `insert`, and return the keys that lead to each column that is not late."""
        exp, priority, end, final, version, lengths = map(stand_in, known)
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

    @graph_body(statement_body(_insert_graph))
    def insert(
        self: _Self,
        exp: Experience | None = None,
        *_misplaced: NoReturn,
        priority: Values | None = None,
        end: Values = False,
        final: Values = False,
        version: Values | None = None,
        lengths: Values | Mapping[str, Values] | None = None,
        with_indices: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Append one row or a batch. In a full buffer each new row replaces the oldest.

        If a batch exceeds the capacity, its newest rows are stored. After an error nothing is stored.

        Args:
            exp (Union[Sequence, dict]): One Tensor for each column, or a dict of them by name, of the column's dtype.
                Shape ``[*F]`` for one row, or ``[n, *F]`` for n rows, n static in a graph. From Python also NumPy
                arrays, and numbers and nested lists, which are cast to the column's dtype. Omit late columns.
            priority (Union[float, Tensor, Sequence, None]): One priority for all rows, or one per row: a number, or
                shape ``[n]``, in a graph a Tensor. Cast to float32. Subnormal values become 0. Requires a buffer with
                priorities. Default: ``None``, for the largest priority so far, initially 1.
            end (Union[bool, Tensor, Sequence[bool]]): Whether a row is the last of its episode, terminated or
                truncated. A nonzero ``"terminated"``, or the column that `NStep` names, implies it. If samples read
                next observations from the next row and the episode has not terminated, the row itself is not sampled.
                One flag per row, shape ``[n]``, or ``[]`` for the rows of one step. Requires `views`, or a buffer of
                sequences or episodes. Default: ``False``.
            final (Union[bool, Tensor, Sequence[bool]]): Whether a row contains only the observation after the step of
                the row before it. It ends the episode, is read as a next observation, and is not sampled, except as the
                last step of sequences and episodes. With `end` it is a step of its own instead, whose next observation
                is not known. Same requirement as `end`. See the picture in `docs/ends.md`. Default: ``False``.
            version (Union[int, Tensor, Sequence[int], None]): Version of the policy that made the rows, as a past or
                present value of the learner's clock. The rows' age counts from it. One for all rows, or one per row: an
                int, or int32 or int64 of shape ``[]`` or ``[n]``. Requires weights. Default: ``None``, for the clock
                now.
            lengths (Union[Tensor, Sequence[int], dict, None]): Lengths of the rows in columns whose shape begins with
                ``None``: ints ``[n]``, or a dict of them by column. Pass such a column as the concatenated items of all
                rows, ``[N, *F]``, or as padded rows, ``[n, L, *F]``. In a graph rows are padded, and lengths Tensors.
                Default: ``None``, for a list of Tensors, and in a graph for rows as long as they are padded.
            with_indices (bool): Whether to return the rows' handles instead of the buffer. Requires handles. Default:
                ``False``.

        Returns:
            Union[Buffer, Tensor]: The buffer itself, or handles, int64 ``[]`` or ``[n]``. In a graph a tuple with the
            number of rows stored, int32 ``[]``, instead of the buffer, since a chained call would leave the graph.

        Raises:
            TypeError: If `exp` is not a list, tuple or dict, or columns have another dtype. The error lists all of
                them. If `priority` is not numeric, `end` or `final` not bool, or `version` not int.
            ValueError: If columns, shapes or lengths do not fit, or the number of rows is not a multiple of `num_envs`.
                If a priority is negative, NaN or infinite, or a version negative or newer than the clock. In a graph
                the operator raises a RuntimeError instead.
            RuntimeError: If an argument's requirement is not met.

        Examples:
            >>> import numpy as np
            >>> from mindspore_replay import ReplayBuffer
            >>> names, shapes, types = ["observation", "action"], [(2,), ()], ["float32", "int32"]
            >>> buffer = ReplayBuffer(sample_size=1, capacity=9, shapes=shapes, types=types, names=names)
            >>> buffer = buffer.insert([np.ones(2, np.float32), 3])  # one row
            >>> buffer = buffer.insert({"observation": np.zeros((4, 2), np.float32), "action": [0, 1, 2, 3]})  # four
            >>> print(buffer.size())
            5
        """
        if _misplaced or _unknown:
            raise self.columns.wrong_insert(exp, _misplaced, _unknown)
        if lengths is not None and exp is not None:
            exp = with_lengths(self.columns, exp, lengths)
        front = self._front
        stored = front.try_insert(exp, priority, end, final, version, with_indices)
        if stored is not False:
            return self if stored is True else stored
        handles = front.insert(exp, priority, end, final, version, with_indices)
        return self if handles is None else handles

    #: `insert` under a name that MindSpore's parser does not mistake for a list's method.
    add = insert if installed() else graph_body(_insert_graph)(lambda self, *exp, **more: self.insert(*exp, **more))

    # The rows.

    def _columns_graph(self, exp, paths):
        """Return a Tensor for each column, zeros for late ones, given the keys that lead to the others."""
        given = ()
        for j in range(len(paths)):
            given = (*given, self._row(self._present[j], self._at(exp, paths[j])))
        return self._with_zeros(given) if len(self._late) > 0 else given

    def _with_zeros(self, given):
        lead = () if ops.rank(given[0]) == len(self.shapes[self._present[0]]) else (given[0].shape[0],)
        rows = ()
        j = 0
        for i in range(len(self.shapes)):
            if i in self._late:
                rows = (*rows, ops.zeros((*lead, *self._stored_shapes[i]), self._stored_types[i]))
            else:
                rows = (*rows, given[j])
                j = j + 1
        return rows

    def _row(self, i, value):
        if isinstance(value, Tensor):
            return value
        if not isinstance(value, (bool, int, float)) or not isconstant(value):
            raise TypeError("In a graph, 'exp' must hold Tensors or constant Python numbers: pass a Tensor.")
        return self._constant(i, value)

    @compile_time
    def _constant(self, i: int, value: object) -> Tensor:
        return Tensor(self.columns.to_array(i, value))

    def _lengths_graph(self, lengths, rows):
        """Return the lengths of the rows, int32 ``[n]``, for each kind."""
        result = ()
        for column, keys in self._lengths_of(self._known(lengths)):
            if lengths is None:
                result = (*result, self._whole(rows[column].shape, len(self.shapes[column])))
            else:
                result = (*result, ops.reshape(ops.cast(self._at(lengths, keys), ms.int32), (-1,)))
        return result

    @compile_time
    def _lengths_of(self, known: object) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Return for each kind of lengths a column, and the keys that lead to the lengths given."""
        given = stand_in(known)
        names = [
            [name for name in kind.names if name in given][:1] if isinstance(given, dict) else []
            for kind in self.columns.kinds
        ]
        return tuple((kind.column, tuple(keys)) for kind, keys in zip(self.columns.kinds, names))

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
