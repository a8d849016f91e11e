"""The operators of one buffer for compiled graphs: kernels, or compositions of MindSpore's own operators."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.base.random import ALL_ROWS
from ..store.spec.options import Options
from ..store.spec.plan import HANDLE, WEIGHT
from . import updates
from .access import access
from .checks import stops_graphs
from .groups import CompositeSampleGroups
from .insert import CompositeInsert
from .native import fails_later
from .operator import delivered, operator
from .primitives import item, stack
from .reservoir import CompositeReservoirInsert
from .ring import RingRead, RingWrite, SingleRow
from .room import Deliverable, IsFull, Room
from .sample import CompositeSample
from .starts import eligibility
from .state import State
from .sums import CompositeSummary, CompositeSums, CountInRange

#: The numbers that the kernel `measure` returns.
ROOM, LARGEST_HELD, POSITIVE = range(3)


@ms.jit_class
class Operators:
    """The operators of csrc/signatures.h, with its inputs. They change the state in place.

    A buffer without weights has only `insert`, `read`, `sample`, `update` and `reset`.

    Args:
        state (State): The Parameters.
        columns (Columns): The columns.
        options (Options): Options of the buffer.
        native (bool): Whether to call kernels.
        finish (Union[Relabel, None]): Computes the rewards of relabelled samples, if there are any.
    """

    def __init__(
        self,
        state: State,
        columns: Columns,
        options: Options,
        native: bool,
        finish: Callable[..., tuple[Tensor, ...]] | None = None,
    ) -> None:
        self.state = state
        self.native = native
        self.finish = finish
        #: Whether graphs go on after a failure, and a call from Python reports it.
        self.goes_on = fails_later() if native else not stops_graphs()
        self.none = Tensor(-1, ms.int64)
        self.first_field = sum(output.kind in (HANDLE, WEIGHT) for output in options.plan.outputs)
        self.all_rows = Tensor(ALL_ROWS, ms.int64)
        self.first_beta = None if options.beta is None else Tensor(np.array([options.beta]))
        #: Factors that leave the state of an epoch without rows.
        self.but_size = Tensor([1, 1, 0, 1, 1], ms.int64)
        self.weighted = options.weighting is not None
        self.has_episodes = options.rule is not None
        self.wanted = options.rows_to_wait_for
        self.single, self.rank = SingleRow(delivered(columns, True).shapes), len(columns.shapes[0])
        plan, rule = options.plan, options.rule
        #: What composite operators share: made if there are any.
        shared = functools.cache(lambda: access(state, columns))
        rows = functools.cache(lambda: eligibility(shared(), rule))
        differ = bool(columns.kinds)
        every = range(len(columns)) if differ else None
        drawn = [output.column for output in plan.outputs[plan.bookkeeping :]] if differ else None
        #: Late columns have no items yet.
        present = [-1 if i in columns.late else i for i in range(len(columns))] if differ else None

        def make(
            name: str,
            body: Callable[[], object],
            outputs: Sequence[tuple[tuple[int, ...], str]] = (),
            by_kernel: bool = native,
            more: frozenset[str] = frozenset(),
            fields: Sequence[int] | None = None,
            **constants: Sequence[Tensor] | Tensor,
        ) -> object:
            if not by_kernel:
                return body()
            return operator(name, state, options.groups | more, columns, constants, outputs, fields)

        #: Whether a composite operator inserts rows without state.
        self.plain = not (native or self.weighted or options.reservoir)
        if options.reservoir:
            self._insert = make("insert", lambda: CompositeReservoirInsert(shared(), columns))
        elif self.weighted:
            self._insert = make("insert", lambda: CompositeInsert(shared(), columns, options, rows()), fields=present)
        else:
            self._insert = make("insert", lambda: RingWrite(state.capacity, columns.shapes))
        self._read = make("read", lambda: RingRead(state.capacity, columns), fields=every)
        self.native_sample = native and plan.by_kernel
        sampling = {"powers": Tensor(plan.powers()), "beta": state.beta}
        if self.native_sample:
            sampling["plan"] = Tensor(plan.options())
        self._sample = make(
            "sample",
            lambda: CompositeSample(shared(), plan, columns, rule),
            plan.specs(columns),
            self.native_sample,
            fields=drawn,
            **sampling,
        )
        self._reset = make("reset", lambda: updates.CompositeReset(shared()))

        def make_update(i: int, counts: bool) -> object:
            bits = options.late_bits([i])
            written = Tensor(options.written([i], counts))
            body = lambda: updates.CompositeUpdate(shared(), rows(), columns, i, rule, bits, counts)  # noqa: E731
            return make("update", body, columns=[state.columns[i]], written=written)

        #: For each column, an operator that does not count invalid handles, and one that does.
        self._update = tuple(make_update(i, counts) for i in range(len(state.columns)) for counts in (False, True))
        measure = functools.partial(make, "measure", sample_range=self.all_rows)
        self.largest_held = None
        if options.largest_held:
            self.largest_held = measure(lambda: updates.LargestHeld(shared()), what=Tensor([LARGEST_HELD]))
        room: Any = None
        if options.never_evicts_valid:
            room = measure(lambda: Room(shared(), rule), what=Tensor([ROOM]))
        self._is_full = IsFull(state, room, options) if room is not None or options.kinds else None
        self._deliverable = Deliverable(shared(), options) if options.keeps_turn else None
        self.no_rows, self.n = Tensor([0, 0], ms.int64), options.plan.n
        if self.weighted:
            limit = options.max_staleness
            most = Tensor(options.stale_after())
            versions = frozenset({"versions"})
            self._insert_versions = make(
                "insert", lambda: self._insert, more=versions, fields=present, max_staleness=most
            )
            #: ``(handles [n]) -> rows removed``
            self.delete = make("delete", lambda: updates.CompositeDelete(shared(), rows()))
            #: ``(steps int64 [])``: advances the clock, and removes rows that became stale.
            self.advance = make(
                "advance", lambda: updates.CompositeAdvance(shared(), rows(), limit), max_staleness=most
            )
            #: ``(handles [n]) -> priority float32, use count int32, staleness int64``, each ``[n]``
            self.info = make("info", lambda: updates.CompositeInfo(shared()))
            #: ``(ranges int64 [m, 2]) -> sums [m] float64`` of the weights of ranges of logical rows
            self.sums = make("sums", lambda: CompositeSums(shared()))
            # If all weights are 0 or 1, their sum counts rows.
            self._count = None
            if options.beta is not None:
                self._count = make("measure", lambda: CountInRange(state), what=Tensor([POSITIVE]))
            #: ``() -> total, smallest positive weight, number of positive weights``, float64 ``[3]``
            self.summary = make("summary", lambda: CompositeSummary(shared()))
            #: ``(handles int64 [n], priority float32 [] or [n]) -> invalid handles``
            self.update_priorities = make(
                "update_priorities", lambda: updates.CompositeUpdatePriorities(shared(), rows())
            )
        if rule is not None:
            flag = options.end_flags
            #: ``() -> episodes ended``
            self.end_episodes = make(
                "end_episodes",
                lambda: updates.CompositeEndEpisodes(shared(), rows(), flag),
                flag=Tensor([flag], ms.uint8),
            )
            self._groups = make("sample_groups", lambda: CompositeSampleGroups(shared(), columns, rule), fields=every)
            self.group_options = tuple(
                Tensor([column, ordered], ms.int64) for column in range(len(columns)) for ordered in (0, 1)
            )

    def insert(self, rows, priority, ends, version):
        """Store rows, and return the serial number of the first, int64 ``[]`` or ``[1]``, or -1 if they were refused.

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
        if not self.native:
            n = 1 if ops.rank(rows[0]) == self.rank else rows[0].shape[0]
            before = item(self.state.serials, 0) if self.goes_on else None
            if self.plain:
                self._insert(self.state.columns, self.state.head, self.state.count, self.state.serials, rows)
            else:
                self._insert(rows, priority, ends, version)
            if self.goes_on:
                first = item(self.state.serials, 0) - n
                return ops.select(first == before, first, self.none)
            return item(self.state.serials, 0) - n
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
        if not self.native:
            return self._read(self.state.columns, self.state.head, self.state.count, index)
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
        if not self.native_sample:
            return self._sample(sample_range, given_beta)
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
        if not self.native:
            return self._groups(column, ordered, groups, size)
        return self._groups(self.group_options[2 * column + int(ordered)], ops.zeros((groups, size), ms.int8))
