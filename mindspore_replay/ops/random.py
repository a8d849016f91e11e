r"""Counter-based random numbers.

Number :math:`c` of key :math:`k` is :math:`\mathrm{mix}(k + (c + 1) \gamma)` with SplitMix64's mixing function and
constant: it depends on the state alone, so kernels and graphs return the same numbers on every device. The state is one
int64 Parameter, ``[key, counter]``.

Reference:
    Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators",
    https://doi.org/10.1145/2660193.2660195
"""

import mindspore as ms
from mindspore import Tensor, ops

from ..store.base.random import GAMMA, MIX, signed
from .primitives import gather, int64, item, range_of, searchsorted, stack

_SHIFT_1, _SHIFT_2, _SHIFT_3 = (shift for shift, _ in MIX)
_FACTOR_1, _FACTOR_2 = (signed(factor) for _, factor in MIX[:2])
_GAMMA, _LOW = signed(GAMMA), (1 << 32) - 1
_UNIT = Tensor(2.0**-53, ms.float64)
_mask = ops.constexpr(lambda shift: Tensor((1 << (64 - shift)) - 1, ms.int64), name="mindspore_replay_mask")
_rounds = ops.constexpr(lambda n: max(n - 1, 1).bit_length(), name="mindspore_replay_rounds")


def _shifted(bits, shift):
    """Return int64 bits shifted to the right, with zeros from the left."""
    return ops.bitwise_and(ops.bitwise_right_shift(bits, int64(shift)), _mask(shift))


def mix_bits(z):
    """Return int64 numbers with their bits mixed."""
    z = ops.bitwise_xor(z, _shifted(z, _SHIFT_1)) * int64(_FACTOR_1)
    z = ops.bitwise_xor(z, _shifted(z, _SHIFT_2)) * int64(_FACTOR_2)
    return ops.bitwise_xor(z, _shifted(z, _SHIFT_3))


def bits_at(key, counter):
    """Return the 64 random bits at positions of the key's sequence, int64."""
    return mix_bits(key + (counter + int64(1)) * int64(_GAMMA))


def random_bits(state, n):
    """Return n times 64 random bits, int64 ``[n]``, and the state after them; n is known at compile time."""
    key, counter = item(state, 0), item(state, 1)
    return bits_at(key, counter + range_of(n)), stack((key, counter + int64(n)))


def unit_interval(bits):
    """Return numbers in ``(0, 1]``, float64, from the upper 53 of 64 random bits."""
    return ops.cast(_shifted(bits, 11) + int64(1), ms.float64) * _UNIT


def below(bits, n):
    """Return ``floor(bits * n / 2^64)`` for unsigned bits: numbers in ``[0, n)``, n in [1, 2^31)."""
    carry = _shifted(ops.bitwise_and(bits, int64(_LOW)) * n, 32)
    return _shifted(_shifted(bits, 32) * n + carry, 32)


def _latest_step(order, keys, n):
    """Return the latest step before `step` that chose `cell`, and if there is one, for keys ``cell * n + step``."""
    position = searchsorted(order, keys) - int64(1)
    found = gather(order, ops.maximum(position, int64(0)), 0)
    exists = ops.logical_and(position >= int64(0), ops.floor_divide(found, n) == ops.floor_divide(keys, n))
    return ops.floor_mod(found, n), exists


def _shuffle(cells, j):
    """Return the results of the first steps of Fisher-Yates shuffles of the identity, all at once, ``[n]``.

    Step s swaps cell ``cells[s]`` with cell ``j[s]``, and returns the contents of the latter. No cell occurs twice in
    `cells`, and ``j[s]`` is no cell of an earlier step. The contents of a cell come from the latest earlier step that
    chose it, so chains of such steps lead back to an untouched cell. The chains are followed by doubling. Cost O(n log
    n).
    """
    n = j.shape[0]
    index = range_of(n)
    chosen = j * n + index
    order = ops.sort(chosen)[0]
    # What a step's own cell holds when the step moves it: its initial contents, or what an earlier step put there.
    parent, exists = _latest_step(order, cells * n + index, n)
    parent = ops.select(exists, parent, index)
    for _ in range(_rounds(n)):
        parent = gather(parent, parent, 0)
    giver, exists = _latest_step(order, chosen, n)
    return ops.select(exists, gather(cells, gather(parent, giver, 0), 0), j)


def ranks(bits, size, replace):
    """Return n numbers in ``[0, size)`` from n times 64 bits: independent, or all different with size at least n."""
    size = ops.maximum(size, int64(1))
    if replace:
        return below(bits, size)
    index = range_of(bits.shape[0])
    return _shuffle(index, index + below(bits, ops.maximum(size - index, int64(1))))


def _slice_bound(bound, count):
    return ops.minimum(ops.select(bound < int64(0), ops.maximum(bound, -count) + count, bound), count)


def rows_between(bounds, count):
    """Return the first row of a Python slice of ``count`` rows, and the number of its rows, int64 ``[]`` each."""
    count = ops.cast(count, ms.int64)
    first = _slice_bound(item(bounds, 0), count)
    return first, ops.maximum(_slice_bound(item(bounds, 1), count) - first, int64(0))
