"""Batches of epochs, the same as csrc/core/epochs.h draws: each row once an epoch, in random order. Cost O(C) a batch.

Axes: ``B`` rows of a batch, ``D`` positions, the smallest power of two that is at least the capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import TYPES, Columns
from ..store.kernels.library import FAILURES, TOO_FEW_ROWS
from ..store.spec.epochs import BEGUN, FIRST, KEY, POSITION, ROUNDS, SIZE, EpochRule
from ..store.spec.plan import HANDLE, SamplePlan
from .access import Access
from .checks import check
from .primitives import gather, int64, item, searchsorted, stack, zeros_like
from .random import bits_at


@ms.jit_class
class _Order:
    """``(key, size) -> rows [D], positions``: the permutation of an epoch, and how many of its positions count."""

    def __init__(self, capacity: int) -> None:
        bits = (capacity - 1).bit_length()
        self.positions = Tensor(np.arange(1 << bits), ms.int64)
        self.powers = Tensor(1 << np.arange(bits + 1), ms.int64)
        # For each number of bits, 2 to the power of the shift.
        self.shifts = Tensor(1 << ((np.arange(bits + 1) + 1) // 2), ms.int64)
        self.numbers = Tensor(np.arange(2 * ROUNDS), ms.int64)

    def __call__(self, key, size):
        """Return the row at each position, and the number of positions that count."""
        bits = ops.reduce_sum(ops.cast(self.powers < size, ms.int64))
        domain, divisor = gather(self.powers, bits, 0), gather(self.shifts, bits, 0)
        mask = domain - int64(1)
        numbers = ops.bitwise_and(bits_at(key, self.numbers), mask)
        x = ops.bitwise_and(self.positions, mask)
        for i in range(ROUNDS):
            x = ops.bitwise_and(x * ops.bitwise_or(item(numbers, 2 * i), int64(1)) + item(numbers, 2 * i + 1), mask)
            x = ops.bitwise_xor(x, ops.floor_divide(x, divisor))
        return x, domain


@ms.jit_class
class DrawInEpochs:
    """``(sample_range, given_beta) -> slots [n], filled [n] bool, ok``: the next batch of the epoch.

    Slots that are not filled are padding. Begins the next epoch if no batch is left. Not `ok`, and the graph fails, if
    there are too few rows for one.
    """

    def __init__(self, state: Access, plan: SamplePlan) -> None:
        assert state.epochs is not None
        self.state = state
        self.rule: EpochRule = state.epochs
        self.n, self.wanted = plan.n, plan.n * self.rule.world
        self.order = _Order(state.capacity)
        self.targets = Tensor(np.arange(plan.n) * self.rule.world + self.rule.rank + 1, ms.int64)
        self.last = Tensor([self.wanted], ms.int64)
        self.advance = Tensor([0, plan.n], ms.int64)
        self.end = Tensor(self.order.positions.shape[0] - 1, ms.int64)
        self.check = check("sample", FAILURES[TOO_FEW_ROWS])

    def found(self, epoch):
        """Return the slot of the row at each position of an epoch, and the number of rows to draw up to each."""
        row, domain = self.order(item(epoch, KEY), item(epoch, SIZE))
        serials = item(epoch, FIRST) + row
        remaining = ops.logical_and(row < item(epoch, SIZE), serials < item(self.state.serials, 0))
        oldest = item(self.state.serials, 0) - ops.cast(self.state.count, ms.int64)
        remaining = ops.logical_and(remaining, serials >= oldest)
        remaining = ops.logical_and(remaining, self.order.positions >= item(epoch, POSITION))
        remaining = ops.logical_and(remaining, self.order.positions < domain)
        slots = ops.floor_mod(serials - item(self.state.serials, 1), self.state.capacity)
        if self.state.weights is not None:
            remaining = ops.logical_and(remaining, gather(self.state.tree.view(), slots, 0) > 0)
        return slots, ops.cumsum(ops.cast(remaining, ms.int64), 0), domain

    def enough(self, counts):
        """Return how many rows of an epoch are left, and whether they are enough for another batch."""
        total = gather(counts, self.end, 0)
        return total, total > 0 if self.rule.pad else total >= self.wanted

    def __call__(self, sample_range, given_beta):
        """Return the slots of a batch. Those of padding repeat the first slot."""
        epoch, random_state = self.state.epoch, self.state.random_state
        _, goes_on = self.enough(self.found(epoch)[1])
        count = ops.cast(self.state.count, ms.int64)
        key = bits_at(item(random_state, 0), item(random_state, 1))
        new = stack((key, item(self.state.serials, 0) - count, count, int64(0), item(epoch, BEGUN) + int64(1)))
        current = ops.select(goes_on, epoch + int64(0), new)
        slots, counts, domain = self.found(current)
        total, ok = self.enough(counts)
        self.check(ok, (total, self.last))
        filled = self.targets <= total
        at = gather(slots, ops.minimum(searchsorted(counts, self.targets), self.end), 0)
        drawn = ops.select(filled, at, zeros_like(at) + item(at, 0))
        after = item(searchsorted(counts, self.last), 0) + int64(1)
        position = ops.select(total >= self.wanted, after, domain)
        key, first, size = item(current, KEY), item(current, FIRST), item(current, SIZE)
        current = stack((key, first, size, position, item(current, BEGUN)))
        # A failed check does not stop what follows it.
        ops.assign(random_state, random_state + self.advance * ops.cast(ok, ms.int64))
        ops.assign(epoch, ops.select(ok, ops.depend(current, drawn), epoch + int64(0)))
        return drawn, filled, ok


@ms.jit_class
class Pad:
    """``(outputs, filled [n] bool) -> outputs``: padding becomes zeros, and its handles -1."""

    def __init__(self, plan: SamplePlan, columns: Columns) -> None:
        self.fills = tuple(
            Tensor(-1 if output.kind == HANDLE else 0, TYPES[output.dtype(columns)]) for output in plan.outputs
        )
        self.ones = tuple((1,) * (len(output.shape(plan.n, columns)) - 1) for output in plan.outputs)
        self.n = plan.n

    def __call__(self, outputs, filled):
        """Return the outputs."""
        padded = ()
        for i in range(len(self.fills)):
            mask = ops.reshape(filled, (self.n, *self.ones[i]))
            padded = (*padded, ops.select(mask, outputs[i], self.fills[i]))
        return padded
