"""Calls from Python of a buffer that is a Cell."""

import weakref
from pathlib import Path
from typing import Any

from ..mindspore_api import share
from ..ops.eager import wait_for_work
from ..store.base.kinds import Form
from ..store.base.naming import named
from ..store.base.nested import NO_NAMES
from ..store.base.types import Sample, Values
from ..store.faces.front import LocalFront
from ..store.waits.waiting import Waiting


class BufferFront(LocalFront):
    """Calls that return Tensors, and wait for MindSpore's work on the rows and for the buffer's limiter.

    Args:
        buffer (Buffer): The buffer, which owns this object.
    """

    ready = ready_to_read = staticmethod(wait_for_work)

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer._calls, buffer.spec, buffer._lock, share, share)
        self._buffer = weakref.ref(buffer)
        if (relabel := buffer._relabel) is not None:
            before = self.spec.has_handles + self.spec.prioritized
            self.finish = lambda batch: relabel(batch, before)

    @property
    def limiter(self) -> Waiting | None:
        """The buffer's limiter, or ``None``."""
        return self._buffer().limiter  # type: ignore[union-attr]

    @property
    def folder(self) -> Path | None:
        """The folder of the rows, or ``None`` if they are in memory."""
        return self._buffer().folder  # type: ignore[union-attr,no-any-return]

    def leave(self) -> None:
        """Leave the rows to the process from which this one was forked."""
        super().leave()
        gone: Any = self.calls
        vars(self._buffer()).update(_calls=gone, _lock=gone, _outer_lock=gone, _try_insert=gone.fail)

    def try_insert(self, *given: Any) -> bool:
        """Insert rows that obviously fit, and whose handles are not wanted, when they may be inserted."""
        *row, with_indices = given
        rows = -1 if with_indices else self.calls.rows_to_insert(*row)
        if rows > 0:
            self.after_a_wait("insert", rows, lambda: self.calls.insert(*row))  # type: ignore[attr-defined]
        return rows > 0

    def _drawn_without(self, skip: bool) -> tuple[Any, ...]:
        """Draw a batch in the default way, perhaps without its first output."""
        batch = None if self.keeps_turn else self.calls.try_sample(skip)
        if type(batch) is tuple:
            return batch
        self.ready()
        return self.drawn(None, None, None)[skip:]

    def sample(
        self, sample_range: object, beta: Values | None, as_dict: bool, with_indices: bool, form: Form | None = None
    ) -> Sample:
        """Draw a batch. The default way skips the lock, which the kernels acquire themselves."""
        plain = beta is None and self.finish is None and form is None
        if plain and (self.has_handles or not with_indices):
            names = self.spec.sample_names(as_dict, with_indices) if as_dict else NO_NAMES
            skip = self.drops_handles and not with_indices
            limiter = self._buffer().limiter  # type: ignore[union-attr]
            if sample_range is not None:
                batch = self.calls.try_sample_range(sample_range, skip) if limiter is None else None
            elif limiter is None:
                batch = self.calls.try_sample(skip)
            else:
                batch = self.after_a_wait("sample", self.spec.sample_size, lambda: self._drawn_without(skip))
            if type(batch) is tuple:
                return named(names, batch) if as_dict else batch
        return super().sample(sample_range, beta, as_dict, with_indices, form)
