"""Passes rows from Python to the kernel that stores them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import library
from .call import Array, Call, kept
from .checks import no_room
from .episodes import END, FINAL
from .inputs import NewRows, check_versions, too_long
from .options import Options
from .schema import Schema
from .state import ROOM, pending_note, room


class Insertion:
    """Stores rows.

    Not thread-safe: the caller holds the lock of the buffer that owns this object, except for `now`.

    Args:
        schema (Schema): The columns.
        options (Options): Options of the store.
        state (Mapping[str, Union[Array, Sequence[Array]]]): The arrays of the state, as arguments of kernels.
        guard (Union[Guard, None]): Held by `now`.
    """

    def __init__(self, schema: Schema, options: Options, state: Mapping[str, Any], guard: Any) -> None:
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
        self._one = Call("insert", options.groups, arguments | {"rows": rows})
        self._many = Call("insert", options.groups, arguments | {"rows": batch})
        # The bits of bfloat16 are no numbers.
        kinds = "".join("-" if t == "bfloat16" else a.dtype.kind for t, a in zip(schema.dtypes, self._staged))
        priority_at = -1 if options.beta is None else self._one.place("priority")
        at_once: Any = library.calls.Insert(
            guard,
            self._one.direct,
            self._many.direct,
            schema.given_names,
            tuple(self._staged),
            kinds,
            (self._one.place("rows"), self._one.place("ends"), priority_at),
            (END, END | FINAL),
            options.num_envs,
        )
        #: ``(exp, priority, end, final)``: stores rows that obviously fit, and returns True; False, and nothing is
        #: stored, if the general path has to convert the arguments, or to raise the error.
        self.now: Callable[[Any, Any, Any, Any], bool] = (lambda *_: False) if schema.late else at_once.now
        self._make_with_versions = lambda: Call(
            "insert",
            options.groups | {"versions"},
            arguments | {"rows": batch, "max_staleness": kept(options.stale_after())},
        )

    def __call__(self, new: NewRows) -> None:
        """Store one row or a batch."""
        arrays = [self._schema.to_array(i, field) for i, field in enumerate(new.fields)]
        if new.batch.single:
            for staged, array in zip(self._staged, arrays):
                staged[...] = array
            arrays = self._staged
        call = self._many if new.version is None else self._with_versions
        if new.batch.single and new.version is None:
            call = self._one
        elif new.batch.rows:
            call.set_leading("rows", new.batch.rows)
            call.bind("rows", *map(np.ascontiguousarray, arrays))
        if new.batch.rows:
            self._store(call, new)

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""
        return int(self._first)

    def _check(self, call: Call, status: int, new: NewRows) -> None:
        """Raise the error for a kernel's status."""
        options = self._options
        if status == library.TOO_LONG and options.rule is not None:
            raise too_long(options.cls_name, options.rule.max_length)
        if status == library.OPEN_EPISODE:
            raise RuntimeError(f"For '{options.cls_name}', {library.FAILURES[status]}.")
        if status == library.BAD_VERSION and new.version is not None:
            check_versions(options.cls_name, new.version, int(self._state["clock"].memory[0]))
        if status == library.FULL:
            arrays = {name: self._state[name].memory for name in ROOM}
            raise no_room(
                options.cls_name, new.batch.rows, room(options, arrays), options.capacity, pending_note(options, arrays)
            )
        if status > 0:
            call.check(status)

    @functools.cached_property
    def _with_versions(self) -> Call:
        """The kernel with versions."""
        return self._make_with_versions()

    def _store(self, call: Call, new: NewRows) -> None:
        """Call the kernel, whose rows are bound."""
        given = {"ends": new.ends, "priority": new.priority, "version": new.version}
        for name, vector in given.items():
            if vector is not None:
                call.bind_vector(name, vector)
        status = call.direct.run()
        for name, usual in (("ends", self._ends), ("priority", self._max_priority)):
            if given[name] is not None:
                call.bind_vector(name, usual)
        self._check(call, status, new)
