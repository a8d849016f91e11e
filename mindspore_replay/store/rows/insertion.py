"""Passes rows from Python to the kernel that stores them."""

import math
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ..base.checks import no_room
from ..base.schema import Schema
from ..kernels import library
from ..kernels.call import Array, Call, Tensors, fixed
from ..kernels.invocations import column_inputs, inputs_of
from ..kernels.state import OF_LARGEST, ROOM, largest_held, pending_note, room, room_in_items
from ..spec.episodes import END, FINAL
from ..spec.options import Options
from .inputs import NewRows, check_versions, too_long


class Insertion:
    """Stores rows.

    Not thread-safe: the caller must hold the lock of the buffer that owns this object, except for `now`.

    Args:
        schema (Schema): The columns.
        options (Options): Options of the store.
        state (Mapping[str, Union[Array, Sequence[Array]]]): The arrays of the state, as arguments of kernels.
        tensors (Tensors): The Tensors that it accepts, and the guard that it holds.
        exclusion (WeakMethod): Returns a block in which only this thread changes the rows. A method of the owner of
            this object, which a strong reference would keep.
    """

    def __init__(
        self,
        schema: Schema,
        options: Options,
        state: Mapping[str, Any],
        tensors: Tensors,
        exclusion: weakref.WeakMethod[Callable[[], AbstractContextManager[None]]],
    ) -> None:
        self._schema, self._options, self._state, self._exclusion = schema, options, state, exclusion
        self._first = np.zeros((), np.int64)
        arguments = {
            **state,
            "rows": [Array((1, *shape), dtype) for shape, dtype in zip(schema.shapes, schema.dtypes)],
            "first": fixed(self._first),
            "max_staleness": fixed(options.stale_after()),
        }
        if "row_state" in options.groups:
            arguments["priority"] = fixed(state["max_priority"].memory.reshape(1))
        of_priority, of_version = inputs_of("insert", ("priority", "version"), tensors)
        fits = library.calls.Insert(
            None if options.largest_held else tensors.guard,  # which waits for graphs, and these for the block
            self._kernels(arguments),
            None if schema.given_names is None else tuple(schema.given_names[i] for i in schema.present),
            self._inputs(tensors),
            of_priority,
            of_version,
            (END, FINAL),
            max(options.streams, 1),
            options.beta is not None,
            tensors.cls,
            tensors.address_of,
            tuple(map(self._group_number, range(len(schema)))),
            tensors.share,
        )
        #: ``(exp, priority, end, final, version=None, with_indices=False)``: stores rows that obviously fit. It returns
        #: True, or their handles; False, and nothing is stored, if the general path has to convert the arguments, or to
        #: raise the error.
        self.now: Callable[..., Any] = (lambda *_: False) if options.largest_held else fits.now
        self._store: Callable[..., int] = fits.store

    def _kernels(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the kernels without and with versions, and the places of the arguments of a call, -1 for none."""
        groups = self._options.groups
        variants = [groups, groups | {"versions"}] if "row_state" in groups else [groups]
        names = "rows", "ends", "priority", "version", "lengths", "first" if self._options.has_handles else "none"
        self._calls = [self._call(variant, arguments) for variant in variants]
        return tuple((call.direct, *map(call.place, names)) for call in self._calls)

    def _call(self, groups: Collection[str], arguments: Mapping[str, Any]) -> Call:
        return Call("insert", groups, arguments)

    def _inputs(self, tensors: Tensors) -> tuple[Any, ...]:
        """Return what a call may pass as the rows of each column, and the bytes of a row of each late one."""
        inputs: list[Any] = list(column_inputs(self._schema, tensors))
        for i in self._schema.late:
            inputs[i] = math.prod(self._schema.shapes[i]) * self._schema.numpy_types[i].itemsize
        return tuple(inputs)

    def _group_number(self, i: int) -> int:
        """Return the number of the kind of lengths of a column; -1 for rows of one length."""
        return -1

    def __call__(self, new: NewRows) -> None:
        """Store one row or a batch."""
        if not new.batch.rows:
            return
        if not self._options.largest_held or new.priority is not None:
            self._check(self._status(new), new)
            return
        state = {name: self._state[name].memory for name in OF_LARGEST}
        arrays = [self._schema.to_array(i, field) for i, field in enumerate(new.fields)]  # not in the block
        exclusive = self._exclusion()
        assert exclusive is not None
        with exclusive():
            priority = np.array(largest_held(self._options, state), np.float32)
            self._check(self._status(new._replace(fields=arrays, priority=priority)), new)
            state["max_priority"][...] = priority

    def _status(self, new: NewRows) -> int:
        """Store rows, and return the kernel's status."""
        fields = [self._schema.to_array(i, new.fields[i]) for i in self._schema.present]
        return self._store(fields, new.priority, new.ends, new.version)

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""
        return int(self._first)

    def _check(self, status: int, new: NewRows) -> None:
        """Raise the error for a kernel's status."""
        options = self._options
        if status == library.TOO_LONG and options.rule is not None:
            raise too_long(options.cls_name, options.rule.max_length)
        if status == library.OPEN_EPISODE:
            raise RuntimeError(f"For '{options.cls_name}', {library.FAILURES[status]}.")
        if status == library.NO_FOLDER:
            raise FileNotFoundError(f"For '{options.cls_name}', {library.FAILURES[status]}.")
        if status == library.BAD_VERSION and new.version is not None:
            check_versions(options.cls_name, new.version, int(self._state["clock"].memory[0]))
        if status == library.FULL:
            arrays = {name: self._state[name].memory for name in ROOM}
            arrays |= {f"column.{g.name}": self._state["columns"][g.column].memory for g in options.length_groups}
            notes = pending_note(options, arrays), room_in_items(options, arrays) if options.length_groups else ""
            raise no_room(options.cls_name, new.batch.rows, room(options, arrays), options.capacity, *notes)
        if status != library.OK:
            raise library.KernelError("replay_insert", status)
