"""Inputs that lie in the buffer itself: its own rows and priorities. Parts of them are in `csrc/test_overlaps.h`."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import filled
from checks import same_states
from kinds import KINDS

SCHEMA: dict[str, Any] = {"shapes": [(2,), ()], "types": [ms.float32, ms.int32], "seed": 3}


def rows(numbers: Any) -> list[np.ndarray]:
    numbers = np.asarray(numbers)
    return [np.stack([numbers, -numbers], 1).astype(np.float32), numbers.astype(np.int32)]


def fill(buffer: Any) -> None:
    """Insert eight rows, so that in a ring the newest two lie before the others."""
    for first in (0, 4):
        ends = {"end": [False, False, False, True]} if buffer.has_episodes else {}
        buffer.insert(rows(range(first, first + 4)), **ends)


def numbers_of(buffer: Any) -> list[int]:
    first, second = (column.asnumpy() for column in buffer.buffer)
    assert np.array_equal(first, rows(second)[0])  # both fields of a row came from one row
    return second.tolist()


def made(kind: str, fill: Callable[[Any], Any] = fill) -> Any:
    return filled(lambda each: KINDS[kind].make(2, 6, **SCHEMA, backend=each), "native", fill)


ENDS = [False, True, False, False, False, True]


@pytest.mark.parametrize("kind", ["uniform", "sequences by priority", "reservoir, weighted"])
def test_all_of_the_buffers_own_rows(kind: str):
    buffer, other = made(kind), made(kind)
    flags = {"end": ENDS} if buffer.has_episodes else {}
    buffer.insert(list(buffer.buffer), **flags)
    other.insert([column.asnumpy().copy() for column in other.buffer], **flags)
    assert same_states(buffer, other)
    if "reservoir" not in kind:
        assert numbers_of(buffer) == [4, 5, 6, 7, 2, 3]


@pytest.mark.parametrize("kind", ["prioritized", "sequences by priority"])
def test_the_buffers_own_priorities(kind: str):
    def with_priorities(buffer: Any) -> None:
        ends = {"end": [False] * 6} if buffer.has_episodes else {}
        buffer.insert(rows(range(6)), priority=np.arange(1, 7, dtype=np.float32), **ends)

    buffer, handles = made(kind, with_priorities), np.arange(5, -1, -1)
    assert int(buffer.update_priorities(handles, buffer.priorities)) == 0
    assert buffer.priorities.asnumpy().tolist() == [6, 5, 4, 3, 2, 1]
    buffer.insert(rows(range(6)), priority=buffer.priorities)
    assert buffer.priorities.asnumpy().tolist() == [6, 5, 4, 3, 2, 1]
    buffer.check_valid()
