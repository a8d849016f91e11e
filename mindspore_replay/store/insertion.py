"""Checks rows from Python and passes them to the kernel that stores them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import library
from .call import Array, Call, kept
from .checks import no_room
from .inputs import bad_version, check_length, ends_of, too_long
from .options import Options
from .schema import Schema
from .state import room
from .windows import END, FINAL


class Insertion:
    """Stores rows. A single row that obviously fits is stored at once; all else is checked by the schema.

    Not thread-safe: the caller holds the lock of the buffer that owns this object.

    Args:
        schema (Schema): The columns.
        options (Options): Options of the store.
        state (Mapping[str, Union[Array, Sequence[Array]]]): The arrays of the state, as arguments of kernels.
        address_of (Union[Callable, None]): Returns the address of an array that is no NumPy array.
    """

    def __init__(
        self, schema: Schema, options: Options, state: Mapping[str, Any], address_of: Callable[[Any], int] | None
    ) -> None:
        self._schema, self._options, self._state = schema, options, state
        self._staged = [np.zeros(shape, dtype) for shape, dtype in zip(schema.shapes, schema.numpy_types)]
        self._ends = np.zeros(1, np.uint8)
        self._first = np.zeros((), np.int64)
        self._max_priority = state["max_priority"].memory if "row_state" in options.groups else None
        arguments = dict(state, ends=kept(self._ends), first=kept(self._first))
        if self._max_priority is not None:
            arguments["priority"] = kept(self._max_priority.reshape(1))
        rows = [Array(a.shape, dtype, a) for a, dtype in zip(self._staged, schema.dtypes)]
        batch = [Array((1, *shape), dtype) for shape, dtype in zip(schema.shapes, schema.dtypes)]
        self._one = Call("insert", options.groups, arguments | {"rows": rows}, address_of)
        self._many = Call("insert", options.groups, arguments | {"rows": batch}, address_of)
        # The bits of bfloat16 are no numbers.
        kinds = ("V" if name == "bfloat16" else array.dtype.kind for name, array in zip(schema.dtypes, self._staged))
        places = ((a.ctypes.data, kind, a.dtype.itemsize, a.shape) for kind, a in zip(kinds, self._staged))
        #: `(exp) -> status`: stores one row of the columns' dtypes and shapes; -1 if it has to be checked first.
        self.row: Any = library.calls.Row(np.ndarray, tuple(places), self._one.direct)
        self._at_once = options.num_envs == 1
        self._make_with_versions = lambda: Call(
            "insert",
            options.groups | {"versions"},
            arguments | {"rows": batch, "max_staleness": kept(options.stale_after())},
            address_of,
        )

    def __call__(
        self, exp: Sequence[Any], priority: np.ndarray | None, end: Any, final: Any, version: np.ndarray | None = None
    ) -> None:
        """Store one row or a batch.

        `priority` is float32 ``[]`` or ``[n]``, ``None`` for the largest so far; `version` int64 ``[]`` or ``[n]``,
        ``None`` for the clock.
        """
        if version is not None:
            self._with_versions(tuple(exp), priority, end, final, version)
            return
        if self._at_once and type(end) is bool and type(final) is bool and (priority is None or priority.size == 1):
            if end or final:
                self._ends[0] = END * end | (END | FINAL) * final
            status = self.row(exp) if priority is None else self._with_priority(self._one, priority, self.row, exp)
            if end or final:
                self._ends[0] = 0
            if status == library.OK:
                return
            self._check(self._one, status, 1)
        self._closer(tuple(exp), priority, end, final)

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""
        return int(self._first)

    def _with_priority(self, call: Call, priority: np.ndarray, run: Callable[..., int], *arguments: Any) -> int:
        """Make a call with these priorities, and return its status."""
        call.bind_vector("priority", priority)
        try:
            return run(*arguments)
        finally:
            call.bind_vector("priority", self._max_priority)

    def _check(self, call: Call, status: int, rows: int, versions: np.ndarray | None = None) -> None:
        """Raise the error for a kernel's status."""
        options = self._options
        if status == library.TOO_LONG and options.rule is not None:
            raise too_long(options.cls_name, options.rule.max_length)
        if status == library.OPEN_EPISODE:
            raise RuntimeError(f"For '{options.cls_name}', {library.FAILURES[status]}.")
        if status == library.BAD_VERSION and versions is not None:
            raise bad_version(options.cls_name, versions, int(self._state["clock"].memory[0]))
        if status == library.FULL:
            arrays = {name: self._state[name].memory for name in ("head", "count", "weights", "use_counts")}
            raise no_room(options.cls_name, rows, room(options, arrays), options.capacity)
        if status > 0:
            call.check(status)

    def _closer(self, fields: tuple[Any, ...], priority: np.ndarray | None, end: Any, final: Any) -> None:
        rows = self._rows_of(fields)
        call = self._many
        if not rows:
            arrays, rows = self._checked(fields)
            call = self._many if arrays else self._one
            fields = tuple(arrays)
        self._store(call, fields, rows, priority, end, final)

    def _with_versions(
        self, fields: tuple[Any, ...], priority: np.ndarray | None, end: Any, final: Any, version: np.ndarray
    ) -> None:
        arrays, rows = self._checked(fields)
        check_length(self._options.cls_name, version, rows, "versions")
        self._dated.bind_vector("version", version)
        self._store(self._dated, tuple(arrays or self._staged), rows, priority, end, final, version)

    @functools.cached_property
    def _dated(self) -> Call:
        """The kernel with versions."""
        return self._make_with_versions()

    def _store(
        self, call: Call, fields: tuple[Any, ...], rows: int, priority: np.ndarray | None, end: Any, final: Any,
        version: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Store checked rows; those of `_one` are staged."""
        options = self._options
        ends = None if options.rule is None else ends_of(options.cls_name, end, final, rows, options.num_envs)
        if priority is not None:
            check_length(options.cls_name, priority, rows)
        if call is not self._one:
            call.set_leading("rows", rows)
            call.bind("rows", *fields)
        if ends is not None:
            call.bind_vector("ends", ends)
        run = call.direct.run
        status = run() if priority is None else self._with_priority(call, priority, run)
        if ends is not None:
            call.bind_vector("ends", self._ends)
        self._check(call, status, rows, version)

    def _rows_of(self, fields: tuple[Any, ...]) -> int:
        """Return the number of rows of a batch that a kernel can read in place; 0 if it has to be checked first."""
        rows: int = self.row.batch(fields)
        return 0 if rows % self._options.num_envs else rows

    def _checked(self, fields: tuple[Any, ...]) -> tuple[list[np.ndarray], int]:
        """Return rows of any form as arrays, and their number. A single row without a leading axis is staged.

        Raises:
            TypeError, ValueError: As for `Schema.check`.
        """
        schema = self._schema
        arrays = [schema.to_array(i, value) for i, value in enumerate(fields)]
        batch = schema.check(
            [a.shape for a in arrays], schema.names_of(range(len(schema)), arrays), self._options.num_envs
        )
        if batch.single:
            for staged, array in zip(self._staged, arrays):
                staged[...] = array
            return [], 1
        return [np.ascontiguousarray(array) for array in arrays], batch.rows
