"""Insertion of rows."""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any, NoReturn, TypeVar

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import numpy_type, type_name
from ..mindspore_api import isconstant
from ..ops.eager import graph_body, wait_for_work
from ..store.inputs import as_flags, as_priority, as_versions, check_flags, check_length
from ..store.mixins import mixin
from .arguments import Arguments
from .compile_time import compile_time

_Self = TypeVar("_Self", bound="Insertion")


@mixin
class Insertion(Arguments):
    """The methods that store rows."""

    def _insert_graph(
        self, exp=None, *misplaced, priority=None, end=False, final=False, version=None, with_indices=False, **unknown
    ):
        if len(misplaced) + len(unknown) > 0:
            kind = "rows" if isinstance(exp, (list, tuple, dict)) else "one"
            self._refuse_insert("none" if exp is None else kind, len(misplaced), tuple(unknown.keys()))
        rows = self._checked_rows(exp)
        single = ops.rank(rows[0]) == len(self.shapes[0])
        n = 1 if single else rows[0].shape[0]
        priority, ends, version = self._priority(priority, n), self._ends(end, final, n), self._version(version, n)
        # MindSpore would eliminate one call before the branches, with a result that only one of them uses.
        if with_indices:
            return self._handles_from_graph(self._graph.insert(rows, priority, ends, version), n, single)
        # The parser would mistake a bare statement for that of a list, see `ops/statement_hook.py`.
        _ = self._graph.insert(rows, priority, ends, version)
        return self._stored_graph()

    def _handles_from_graph(self, first, n, single):
        if not self.has_handles:
            raise RuntimeError("For 'insert', 'with_indices' needs a buffer made with weighted=True or a limit.")
        first = ops.reshape(first, ())
        if single:
            return first
        handles = first + ops.arange(n)
        return ops.select(first < 0, first, handles) if self._graph.goes_on else handles

    @graph_body(_insert_graph)
    def insert(
        self: _Self,
        exp: Any = None,
        *_misplaced: NoReturn,
        priority: Any = None,
        end: Any = False,
        final: Any = False,
        version: Any = None,
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
            raise self._wrong_insert(exp, _misplaced, _unknown)
        plain = version is None and not with_indices and self.limiter is None
        if plain and self._calls.try_insert(exp, priority, end, final):
            return self
        exp = self.columns.in_order(exp)
        if priority is not None:
            self._need_priorities("insert(priority=...)")
            priority = as_priority(type(self).__name__, priority)
        if not (end is False and final is False):
            self._need_episodes("end")
        if version is not None:
            self._need_weights("insert(version=...)")
            version = as_versions(type(self).__name__, version)
        if with_indices and not self.has_handles:
            self._need_weights("insert(with_indices=True)")
        with self._lock if self.limiter is None else self._turn_to_insert(exp):
            wait_for_work()
            batch = self._calls.insertion(exp, priority, end, final, version)
            return Tensor(batch.handles(self._calls.first)) if with_indices else self

    #: `insert` under a name that MindSpore's parser does not mistake for a list's method.
    add = insert

    def _wrong_insert(self, exp: Any, misplaced: Collection[Any], unknown: Collection[str]) -> TypeError:
        return self.columns.wrong_insert(exp, misplaced, unknown)

    @compile_time
    def _refuse_insert(self, kind: str, misplaced: int, unknown: tuple[str, ...]) -> bool:
        raise self._wrong_insert({"none": None, "rows": [], "one": 0}[kind], range(misplaced), unknown)

    @contextlib.contextmanager
    def _turn_to_insert(self, exp: Any) -> Iterator[None]:
        rows = self.columns.layout(self.columns.as_fields(exp), self.options.streams).rows
        with self.limiter.inserting(rows) if rows else contextlib.nullcontext(), self._lock:
            yield

    # The rows.

    def _checked_rows(self, exp):
        if isinstance(exp, dict):
            self._check_keys(tuple(exp.keys()))
            exp = [exp[name] for name in self._present_names]
        self._check_width(len(exp))
        given = ()
        for j in range(len(exp)):
            given = (*given, self._row(self._present[j], exp[j]))
        rows = self._with_zeros(given) if len(self._late) > 0 else given
        shapes = ()
        types = ()
        for row in rows:
            shapes = (*shapes, row.shape)
            types = (*types, row.dtype)
        self._check_rows(shapes, types)
        return rows

    def _with_zeros(self, given):
        """Return a Tensor for each column, zeros for late ones."""
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
    def _check_keys(self, keys: tuple[str, ...]) -> bool:
        self.columns.given(dict.fromkeys(keys))
        return True

    @compile_time
    def _check_width(self, fields: int) -> bool:
        self.columns.given([None] * fields)
        return True

    @compile_time
    def _check_rows(self, shapes: tuple[Any, ...], types: tuple[Any, ...]) -> bool:
        self.columns.check(shapes, [type_name(dtype) for dtype in types], max(self.options.streams, 1))
        return True

    @compile_time
    def _constant(self, i: int, value: Any) -> Tensor:
        return Tensor(self.columns.to_array(i, value))

    # Priorities.

    def _priority(self, priority, rows):
        """Return priorities as float32 ``[]`` or ``[n]``; ``None`` for the largest so far."""
        if priority is None:
            return None
        if not self.prioritized:
            raise RuntimeError("For 'insert', 'priority' needs a buffer made with prioritized=True.")
        return self._as_priority(priority, rows)

    # Versions.

    def _version(self, version, rows):
        """Return versions as int64 ``[]`` or ``[n]``; ``None`` for the clock."""
        if version is None:
            return None
        if not self.weighted:
            raise RuntimeError("For 'insert', 'version' needs a buffer made with weighted=True or a limit.")
        if isinstance(version, Tensor):
            self._check_version(version.dtype, version.shape, rows)
            return ops.cast(version, ms.int64)
        if not isinstance(version, int):
            raise TypeError("For 'insert', 'version' must be an int or a Tensor of ints in a graph.")
        return ops.cast(version, ms.int64)

    @compile_time
    def _check_version(self, dtype: Any, shape: tuple[int, ...], rows: int) -> bool:
        versions = as_versions(type(self).__name__, np.zeros(shape, numpy_type(dtype)))
        check_length(type(self).__name__, versions, rows, "versions")
        return True

    # Episode flags.

    def _ends(self, end, final, rows):
        """Return flags of rows as uint8 ``[1]`` or ``[n]``; ``None`` in a buffer whose rows know no episodes."""
        if not self.has_episodes:
            if not (isinstance(end, bool) and isinstance(final, bool)) or end or final:
                raise RuntimeError(
                    "For 'insert', 'end' and 'final' need a buffer with views, or of sequences or episodes."
                )
            return None
        end_flag = self._flag("end", end, rows)
        if isinstance(final, bool) and not final:
            return end_flag
        return ops.maximum(end_flag, self._flag("final", final, rows) * self._flag_values[2])

    def _flag(self, argument, value, rows):
        if isinstance(value, Tensor):
            self._check_flag(argument, value.dtype, value.shape, rows)
            return ops.reshape(ops.cast(value, ms.uint8), (-1,))
        if not isinstance(value, bool):
            raise TypeError("'end' and 'final' must be a bool or a Tensor of bools in a graph.")
        if value:
            self._check_one_step(argument, rows)
            return self._flag_values[1]
        return self._flag_values[0]

    @compile_time
    def _check_flag(self, argument: str, dtype: Any, shape: tuple[int, ...], rows: int) -> bool:
        flags = as_flags(type(self).__name__, argument, np.zeros(shape, numpy_type(dtype)))
        check_flags(type(self).__name__, argument, flags, rows, self.num_envs)
        return True

    @compile_time
    def _check_one_step(self, argument: str, rows: int) -> bool:
        check_flags(type(self).__name__, argument, np.array(True), rows, self.num_envs)
        return True
