"""The operators of one buffer for compiled graphs, by kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.base.random import ALL_ROWS
from ..store.spec.options import Options
from ..store.spec.plan import HANDLE, WEIGHT
from .native import fails_later
from .operator import SingleRow, delivered, operator
from .primitives import item, stack
from .room import Deliverable, IsFull
from .state import State

#: The numbers that the kernel `measure` returns.
ROOM, LARGEST_HELD, POSITIVE = range(3)


@ms.jit_class
class Operators:
    """The operators of csrc/signatures.h, with its inputs. They change the state in place.

    A buffer without weights has only `insert`, `read`, `sample`, `update` and `reset`. `CompositeOperators` has the
    same methods.

    Args:
        state (State): The Parameters.
        columns (Columns): The columns.
        options (Options): Options of the buffer.
        finish (Union[Relabel, None]): Computes the rewards of relabelled samples, if there are any.
    """

    def __init__(
        self, state: State, columns: Columns, options: Options, finish: Callable[..., tuple[Tensor, ...]] | None = None
    ) -> None:
        self.state, self.finish = state, finish
        #: Whether graphs go on after a failure, and a call from Python reports it.
        self.goes_on = fails_later()
        self.first_field = sum(output.kind in (HANDLE, WEIGHT) for output in options.plan.outputs)
        self.all_rows = Tensor(ALL_ROWS, ms.int64)
        self.first_beta = None if options.beta is None else Tensor(np.array([options.beta]))
        #: Factors that leave the state of an epoch without rows.
        self.but_size = Tensor([1, 1, 0, 1, 1], ms.int64)
        self.weighted = options.weighting is not None
        self.has_episodes = options.rule is not None
        self.wanted = options.rows_to_wait_for
        self.single = SingleRow(delivered(columns, True).shapes)
        plan, differ = options.plan, bool(columns.length_groups)
        every = range(len(columns)) if differ else None
        sampled = [output.column for output in plan.outputs[plan.bookkeeping :]] if differ else None
        #: Late columns have no items yet.
        present = [-1 if i in columns.late else i for i in range(len(columns))] if differ else None

        def make(
            name: str,
            outputs: Sequence[tuple[tuple[int, ...], str]] = (),
            more: frozenset[str] = frozenset(),
            fields: Sequence[int] | None = None,
            **constants: Sequence[Tensor] | Tensor,
        ) -> Any:
            return operator(name, state, options.groups | more, columns, constants, outputs, fields)

        self._insert = make("insert", fields=present if self.weighted else None)
        self._read = make("read", fields=every)
        sampling = {"powers": Tensor(plan.powers()), "beta": state.beta, "plan": Tensor(plan.options())}
        self._sample = make("sample", plan.specs(columns), fields=sampled, **sampling)
        self._reset = make("reset")

        def make_update(i: int, counts: bool) -> object:
            return make("update", columns=[state.columns[i]], written=Tensor(options.written([i], counts)))

        #: For each column, an operator that does not count invalid handles, and one that does.
        self._update = tuple(make_update(i, counts) for i in range(len(state.columns)) for counts in (False, True))
        room, self.largest_held = None, None
        if options.never_evicts_valid:
            room = make("measure", sample_range=self.all_rows, what=Tensor([ROOM]))
        if options.largest_held:
            self.largest_held = make("measure", sample_range=self.all_rows, what=Tensor([LARGEST_HELD]))
        self._is_full = IsFull(state, room, options) if options.never_evicts_valid or options.length_groups else None
        self._deliverable = Deliverable(state, options) if options.keeps_turn else None
        self.no_rows, self.n = Tensor([0, 0], ms.int64), options.plan.n
        if self.weighted:
            most, versions = Tensor(options.stale_after()), frozenset({"versions"})
            self._insert_versions = make("insert", more=versions, fields=present, max_staleness=most)
            #: ``(handles [n]) -> rows removed``
            self.delete = make("delete")
            #: ``(steps int64 [])``: advances the clock, and removes rows that became stale.
            self.advance = make("advance", max_staleness=most)
            #: ``(handles [n]) -> priority float32, use count int32, staleness int64``, each ``[n]``
            self.info = make("info")
            #: ``(ranges int64 [m, 2]) -> sums [m] float64`` of the weights of ranges of logical rows
            self.sums = make("sums")
            # If all weights are 0 or 1, their sum counts rows.
            self._count = make("measure", what=Tensor([POSITIVE])) if options.beta is not None else None
            #: ``() -> total, smallest positive weight, number of positive weights``, float64 ``[3]``
            self.summary = make("summary")
            #: ``(handles int64 [n], priority float32 [] or [n]) -> invalid handles``
            self.update_priorities = make("update_priorities")
        if self.has_episodes:
            #: ``() -> episodes ended``
            self.end_episodes = make("end_episodes", flag=Tensor([options.end_flags], ms.uint8))
            self._groups = make("sample_groups", fields=every)
            self.group_options = tuple(
                Tensor([column, ordered], ms.int64) for column in range(len(columns)) for ordered in (0, 1)
            )

    def insert(self, rows, priority, ends, version):
        """Store rows, and return the serial number of the first, int64 ``[1]``, or -1 if they were refused.

        `rows` is a tuple of Tensors, ``[*F]`` or ``[n, *F]``. Lengths, int32 ``[n]``, come before them. `priority`,
        float32, `ends`, uint8, and `version`, int64, are one for all rows or one for each. `priority` ``None`` means
        the largest, and `version` ``None`` the clock. `ends` is ``None`` in a buffer whose rows know no episodes.
        """
        if priority is not None:
            return self._inserted(rows, priority, ends, version)
        if self.largest_held is None:
            return self._inserted(rows, self.state.max_priority, ends, version)
        priority = ops.cast(ops.reshape(self.largest_held(), ()), ms.float32)
        first = self._inserted(rows, priority, ends, version)
        stored = ops.reshape(first, ()) >= 0
        ops.assign(self.state.max_priority, ops.select(stored, priority, self.state.max_priority))
        return first

    def _inserted(self, rows, priority, ends, version):
        if not self.weighted:
            return self._insert(rows)
        inputs = (*rows, priority)
        if self.has_episodes:
            inputs = (*inputs, ends)
        if version is None:
            return self._insert(inputs)
        return self._insert_versions((*inputs, version))

    def count(self):
        """Return the number of rows stored, int32 ``[]``."""
        return self.state.count

    def full(self):
        """Return whether there is no room for another row, bool ``[]``."""
        return self.state.count >= self.state.capacity if self._is_full is None else self._is_full()

    def read(self, index):
        """Read rows: ``-> rows``. `index` is int64, ``[n]`` or ``[]``: 0 the oldest, -1 the newest."""
        rows = self._read(index)
        return self.single(rows) if ops.rank(index) == 0 else rows

    def default_range(self):
        """Return the range of logical rows to draw from by default."""
        if self.state.window is None:
            return self.all_rows
        return stack((-item(self.state.window, 0), item(self.all_rows, 1)))

    def sample(self, sample_range, given_beta):
        """Draw a sample: ``-> outputs``, with the rewards of relabelled samples. Arguments as for `draw`."""
        outputs = self.draw(sample_range, given_beta)
        if self.finish is None:
            return outputs
        return outputs[: self.first_field] + self.finish(*outputs[self.first_field :])

    def draw(self, sample_range, given_beta):
        """Draw a sample: ``-> outputs`` of the plan, with hidden ones and without the rewards of relabelled samples.

        `given_beta`, float64, overrides beta, and `sample_range`, int64 ``[2]``, the default range, unless they are
        ``None``.
        """
        if sample_range is None:
            sample_range = self.default_range()
            if self._deliverable is not None:
                sample_range = ops.select(self._deliverable() >= self.n, sample_range, self.no_rows)
        if not self.weighted:
            return self._sample(sample_range)
        return self._sample(sample_range, self.state.beta if given_beta is None else given_beta)

    def eligible(self):
        """Return the number of rows in the default range at which samples may start."""
        if not self.weighted:
            if self.state.window is None:
                return self.state.count
            return ops.minimum(ops.cast(self.state.count, ms.int64), item(self.state.window, 0))
        if self.state.window is None:
            return item(self.summary(), 2)
        return self.eligible_in(self.default_range())

    def rows_to_wait_for(self):
        """Return the number of eligible rows from which on `can_sample` is true: not more than fit into the window."""
        if self.state.window is None:
            return self.wanted
        return ops.minimum(item(self.state.window, 0), self.wanted)

    def available(self):
        """Return the number of rows that a sample may draw now: of a queue, those whose turn it is."""
        return self.eligible() if self._deliverable is None else self._deliverable()

    def eligible_in(self, sample_range):
        """Count the rows of a range of logical rows, int64 ``[2]``, at which samples may start."""
        if self._count is not None:
            return ops.reshape(self._count(sample_range), ())
        return item(self.sums(ops.expand_dims(sample_range, 0)), 0)

    def begin_epoch(self):
        """End the epoch in progress: the next sample begins another."""
        return ops.assign(self.state.epoch, self.state.epoch * self.but_size)

    def reset(self):
        """Remove all rows. Serial numbers and counters continue, and beta is reset."""
        if self.first_beta is not None:
            ops.assign(self.state.beta, self.first_beta)
        return self._reset()

    def update(self, column, counts, handles, rows):
        """Write `rows`, ``[n, *F]``, to a column at these handles: ``-> invalid handles``, which are counted or not."""
        return self._update[2 * column + int(counts)](handles, rows)

    def sample_groups(self, column, ordered, groups, size):
        """Draw groups by a column of ints: ``-> mask [G, L], rows``. All arguments are known at compile time."""
        return self._groups(self.group_options[2 * column + int(ordered)], ops.zeros((groups, size), ms.int8))
