"""Insertion of rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import mindspore as ms
from mindspore import Tensor, ops

from ..columns import Columns
from ..mindspore_api import isconstant
from ..ops.eager import graph_body
from ..ops.statement_hook import installed, statement_body
from ..store.calls import Calls
from ..store.inputs import as_new_rows, check_versions
from ..store.items import with_lengths
from ..store.mixins import mixin
from ..store.options import Options
from ..store.state import LAST_CLOCK
from ..store.types import Experience, Values
from ..store.waiting import Waiting
from .compile_time import compile_time, stand_in
from .front import BufferFront

_Self = TypeVar("_Self", bound="Insertion")


@mixin
class Insertion:
    """The methods that store rows."""

    columns: Columns
    options: Options
    limiter: Waiting | None
    _calls: Calls
    _front: BufferFront
    _try_insert: Callable[..., bool]

    def _insert_graph(
        self, exp=None, *misplaced, priority=None, end=False, final=False, version=None, with_indices=False, **unknown
    ):
        known = self._known((exp, priority, end, final, version))
        paths = self._check_insert(known, len(misplaced), tuple(unknown.keys()), with_indices)
        rows = self._columns_graph(exp, paths)
        single = ops.rank(rows[0]) == len(self.shapes[0])
        n = 1 if single else rows[0].shape[0]
        priority = None if priority is None else self._as_dtype("priority", priority, ms.float32)
        version = None if version is None else self._as_dtype("version", version, ms.int64)
        ends = self._ends_graph(end, final) if self.has_episodes else None
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
        exp, priority, end, final, version = map(stand_in, known)
        if misplaced or unknown:
            raise self.columns.wrong_insert(exp, range(misplaced), unknown)
        new = as_new_rows(self.columns, self.options, exp, priority, end, final, version, with_indices)
        if new.version is not None:
            check_versions(self.options.cls_name, new.version, LAST_CLOCK)
        self.columns.layout(new.fields, max(self.options.streams, 1))
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
        """Append one row or a batch; in a full buffer each new row replaces the oldest.

        Of a batch longer than the capacity the newest rows stay. After an error nothing is stored.

        Args:
            exp (Union[Sequence, dict]): One Tensor for each column, or a dict of them by name. Each has the column's
                dtype and the shape ``[*F]`` for one row, or ``[n, *F]`` for n rows, n static in a graph. From Python
                also NumPy arrays, and numbers of Python or NumPy or nested lists of them, which are cast to the
                column's dtype. Columns declared late are left out.
            priority (Union[float, Tensor, Sequence, None]): Priority of all rows, or of each: a number, or shape
                ``[n]``; in a graph a Tensor. It is cast to float32, and subnormal ones to 0. Only for a buffer that
                draws by priority. Default: ``None``, for the largest priority so far, initially 1.
            end (Union[bool, Tensor, Sequence[bool]]): Whether a row is the last of its episode, terminated or
                truncated. So is a row whose column ``"terminated"``, or that of `NStep`, is nonzero. If a sample needs
                the observation of the next row, and the episode has not terminated, the row itself is only read. One
                flag for each row, shape ``[n]``, or ``[]`` for the rows of one step. Needs `views`, or a buffer of
                sequences or episodes. Default: ``False``.
            final (Union[bool, Tensor, Sequence[bool]]): Whether a row holds only the observation after the last step of
                its episode, that of the row before it: it implies `end`, is read as a next observation, and is not
                drawn. In sequences and whole episodes it is the last step. Same requirement as `end`; `docs/ends.md`
                has a picture. Default: ``False``.
            version (Union[int, Tensor, Sequence[int], None]): Version of the policy that made all rows, or each: a
                value that the learner's clock has had, from which the age of the rows counts. An int, or int32 or
                int64 of shape ``[]`` or ``[n]``. Needs a buffer with weights. Default: ``None``, for the clock now.
            lengths (Union[Tensor, Sequence[int], dict, None]): Lengths of the rows of a batch in columns whose shape
                begins with ``None``, ints ``[n]``, or a dict of them by column. The batch holds the items of all rows,
                ``[N, *F]``, or padded rows, ``[n, L, *F]``. Only from Python. Default: ``None``, for a list of Tensors.
            with_indices (bool): Whether to return the handles of the rows, which `update` takes, instead of the buffer.
                Needs a buffer with handles. Default: ``False``.

        Returns:
            Union[Buffer, Tensor]: The buffer itself; or handles, int64 ``[]`` or ``[n]``. In a graph a tuple with the
            number of rows stored, int32 ``[]``, stands for the buffer: the compiler would treat that as a Python
            object, and a chained call would leave the graph.

        Raises:
            TypeError: If `exp` is no list, tuple or dict, or columns have another dtype; all of these are listed. If
                `priority` holds no numbers, `end` or `final` no bools, or `version` no ints.
            ValueError: If columns, shapes or lengths do not fit, or the number of rows is no multiple of `num_envs`. If
                a priority is negative, NaN or infinite, or a version negative or newer than the clock; in a graph the
                operator fails for it with a RuntimeError.
            RuntimeError: If `priority` is given and the buffer does not draw by priority, `end` or `final` and its rows
                know no episodes, `version` and it has no weights, or `with_indices` and it has no handles.

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
        if not with_indices:
            limiter = self.limiter
            if limiter is None:
                if self._try_insert(exp, priority, end, final, version):
                    return self
            elif limiter.try_insert(self._calls, exp, priority, end, final, version):
                return self
        handles = self._front.insert(exp, priority, end, final, version, with_indices)
        return self if handles is None else handles

    #: `insert` under a name that MindSpore's parser does not mistake for a list's method.
    add = insert if installed() else graph_body(_insert_graph)(lambda self, *exp, **more: self.insert(*exp, **more))

    # The rows.

    def _columns_graph(self, exp, paths):
        """Return a Tensor for each column, given the keys that lead to those that are not late; zeros for late ones."""
        given = ()
        for j in range(len(paths)):
            given = (*given, self._row(self._present[j], self._at(exp, paths[j])))
        return self._with_zeros(given) if len(self._late) > 0 else given

    def _with_zeros(self, given):
        shapes, first = self.shapes, self._present[0]
        lead = () if ops.rank(given[0]) == len(shapes[first]) else (given[0].shape[0],)
        rows = ()
        j = 0
        for i in range(len(shapes)):
            if i in self._late:
                rows = (*rows, ops.zeros((*lead, *shapes[i]), self.types[i]))
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

    # Episode flags.

    def _ends_graph(self, end, final):
        """Return checked flags of rows as uint8 ``[1]`` or ``[n]``."""
        if isinstance(final, bool) and not final:
            return self._flag_graph("end", end)
        return ops.maximum(self._flag_graph("end", end), self._flag_graph("final", final) * self._flag_values[2])

    def _flag_graph(self, argument, value):
        if isinstance(value, bool):
            return self._flag_values[1] if value else self._flag_values[0]
        return ops.reshape(self._as_dtype(argument, value, ms.uint8), (-1,))
