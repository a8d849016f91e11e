r"""Counter-based random numbers and uniform draws of rows.

Number :math:`c` of key :math:`k` is :math:`\mathrm{mix}(k + (c + 1) \gamma)` with SplitMix64's mixing function and
constant: it depends on the state alone, so the native and the composite body give the same numbers on every device. The
state is one int64 Parameter, ``[key, counter]``.

Reference:
    Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators",
    https://doi.org/10.1145/2660193.2660195
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.library import FAILURES, TOO_FEW_ROWS
from ..store.random import GAMMA, MIX, signed
from .checks import check
from .primitives import gather, item, range_of, searchsorted, stack


def _constant(value: int) -> Tensor:
    return Tensor(value, ms.int64)


@ms.jit_class
class _LogicalShift:
    """Shifts the bits of an int64 Tensor to the right, filling with zeros."""

    def __init__(self, shift: int) -> None:
        self.shift = _constant(shift)
        self.mask = _constant((1 << (64 - shift)) - 1)

    def __call__(self, x):
        return ops.bitwise_and(ops.bitwise_right_shift(x, self.shift), self.mask)


@ms.jit_class
class MixBits:
    """``(z) -> bits``: mixes the bits of int64 numbers."""

    def __init__(self) -> None:
        self.shift_1, self.shift_2, self.shift_3 = (_LogicalShift(shift) for shift, _ in MIX)
        self.factor_1, self.factor_2 = (_constant(signed(factor)) for _, factor in MIX[:2])

    def __call__(self, z):
        """Mix the bits."""
        z = ops.bitwise_xor(z, self.shift_1(z)) * self.factor_1
        z = ops.bitwise_xor(z, self.shift_2(z)) * self.factor_2
        return ops.bitwise_xor(z, self.shift_3(z))


@ms.jit_class
class Bits:
    """``n`` times 64 random bits, and the state after them."""

    def __init__(self, n: int) -> None:
        self.steps = Tensor(np.array([signed((i + 1) * GAMMA & (2**64 - 1)) for i in range(n)], np.int64))
        self.gamma = _constant(signed(GAMMA))
        self.advance = Tensor(np.array([0, n], np.int64))
        self.mix = MixBits()

    def __call__(self, state):
        """Return the bits, int64 ``[n]``, and the state after them."""
        return self.mix(item(state, 0) + item(state, 1) * self.gamma + self.steps), state + self.advance


@ms.jit_class
class BitsAt:
    """``(key, counter) -> bits``: the numbers at these positions of the key's sequence."""

    def __init__(self) -> None:
        self.gamma = _constant(signed(GAMMA))
        self.one = _constant(1)
        self.mix = MixBits()

    def __call__(self, key, counter):
        """Return the bits, int64."""
        return self.mix(key + (counter + self.one) * self.gamma)


@ms.jit_class
class AnyBits:
    """``(state, n) -> bits [n], state``: as `Bits`, with an n that is known at compile time only."""

    def __init__(self) -> None:
        self.bits = BitsAt()

    def __call__(self, state, n):
        """Return the bits, int64 ``[n]``, and the state after them."""
        return self.bits(item(state, 0), item(state, 1) + range_of(n)), stack((item(state, 0), item(state, 1) + n))


@ms.jit_class
class UnitInterval:
    """Numbers in ``(0, 1]``, float64, from the upper 53 of 64 random bits."""

    def __init__(self) -> None:
        self.shift = _LogicalShift(11)
        self.one = _constant(1)
        self.unit = Tensor(2.0**-53, ms.float64)

    def __call__(self, bits):
        """Convert bits to numbers."""
        return ops.cast(self.shift(bits) + self.one, ms.float64) * self.unit


@ms.jit_class
class Below:
    """``floor(bits * n / 2^64)`` for unsigned bits: numbers in ``[0, n)``, n in [1, 2^31)."""

    def __init__(self) -> None:
        self.high = _LogicalShift(32)
        self.low = _constant((1 << 32) - 1)

    def __call__(self, bits, n):
        """Convert bits to numbers below n."""
        carry = self.high(ops.bitwise_and(bits, self.low) * n)
        return self.high(self.high(bits) * n + carry)


def _rounds(n: int) -> int:
    return max(n - 1, 1).bit_length()


@ms.jit_class
class Shuffle:
    """``(cells [n], j [n]) -> [n]``: the first steps of Fisher-Yates shuffles of the identity, all at once.

    Step s swaps cell ``cells[s]`` with cell ``j[s]``, and outputs the contents of the latter. No cell occurs twice in
    `cells`, and ``j[s]`` is no cell of an earlier step. The contents of a cell come from the latest earlier step that
    chose it, so chains of such steps lead back to an untouched cell; the chains are followed by doubling. Cost
    O(n log n).
    """

    def __init__(self) -> None:
        self.zero = _constant(0)
        self.one = _constant(1)
        self.rounds = ops.constexpr(_rounds)

    def latest_step(self, order, keys, n):
        """Return the latest step before `step` that chose `cell`, and if there is one, for keys ``cell * n + step``."""
        position = searchsorted(order, keys) - self.one
        found = gather(order, ops.maximum(position, self.zero), 0)
        exists = ops.logical_and(position >= self.zero, ops.floor_divide(found, n) == ops.floor_divide(keys, n))
        return ops.floor_mod(found, n), exists

    def __call__(self, cells, j):
        """Return the contents that each step takes out."""
        n = j.shape[0]
        index = range_of(n)
        chosen = j * n + index
        order = ops.sort(chosen)[0]
        # What a step's own cell holds when the step moves it: its initial contents, or what an earlier step put there.
        parent, exists = self.latest_step(order, cells * n + index, n)
        parent = ops.select(exists, parent, index)
        for _ in range(self.rounds(n)):
            parent = gather(parent, parent, 0)
        giver, exists = self.latest_step(order, chosen, n)
        return ops.select(exists, gather(cells, gather(parent, giver, 0), 0), j)


@ms.jit_class
class SliceBound:
    """A bound of a Python slice of ``count`` rows, as a position in ``[0, count]``."""

    def __init__(self) -> None:
        self.zero = _constant(0)

    def __call__(self, bound, count):
        """Clip the bound, which may be negative, to a position."""
        bound = ops.select(bound < self.zero, ops.maximum(bound, -count) + count, bound)
        return ops.minimum(bound, count)


@ms.jit_class
class Ranks:
    """``(bits [n], size) -> n numbers in [0, size)``, independent, or all different with size at least n."""

    def __init__(self, n: int, replace: bool) -> None:
        self.replace = replace
        self.index = Tensor(np.arange(n), ms.int64)
        self.one = _constant(1)
        self.below = Below()
        self.shuffle = Shuffle()

    def __call__(self, bits, size):
        """Convert bits to numbers below `size`."""
        size = ops.maximum(size, self.one)
        if self.replace:
            return self.below(bits, size)
        return self.shuffle(self.index, self.index + self.below(bits, ops.maximum(size - self.index, self.one)))


@ms.jit_class
class DrawUniform:
    """``(state, head, count, sample_range [2]) -> slots [n] int64, ok``: each row of the range is equally likely.

    Not `ok`, and the graph fails, if there are fewer than n. Changes the state.
    """

    def __init__(self, n: int, capacity: int, replace: bool, ordered: bool) -> None:
        self.capacity = _constant(capacity)
        self.n = _constant(n)
        self.zero = _constant(0)
        self.ordered = ordered
        self.bound = SliceBound()
        self.bits = Bits(n)
        self.ranks = Ranks(n, replace)
        self.check = check("sample", FAILURES[TOO_FEW_ROWS])

    def __call__(self, state, head, count, sample_range):
        """Draw slots, and advance the state if `ok`."""
        head = ops.cast(head, ms.int64)
        count = ops.cast(count, ms.int64)
        first = self.bound(item(sample_range, 0), count)
        size = ops.maximum(self.bound(item(sample_range, 1), count) - first, self.zero)
        enough = size >= self.n
        self.check(enough, (size, self.n))
        bits, advanced = self.bits(state)
        rows = self.ranks(bits, size) + first
        ops.assign(state, ops.select(enough, advanced, state))  # a failed check does not stop what follows it
        slots = ops.floor_mod(rows + head, self.capacity)
        if not self.ordered:
            slots = ops.select(size < self.capacity, slots, rows)
        return slots, enough
