"""The first samples: with replacement one row is enough; and reads of no rows."""

from typing import Any

import numpy as np
import pytest
from flat import flat
from kinds import KINDS, ends_every
from mindspore import Tensor

from mindspore_replay import host

CAPACITY, MANY = 8, 20
COLUMNS: dict[str, Any] = {"shapes": [(2,)], "types": ["int32"], "names": ["number"]}
#: Those whose rows may repeat in a sample.
REPEATING = [name for name in KINDS if "distinct" not in name and "epoch" not in name and "queue" not in name]


def make(kind: str) -> Any:
    return KINDS[kind].make(MANY, CAPACITY, **COLUMNS, seed=0)


def put(buffer: Any, first: int, n: int) -> None:
    buffer.insert([np.repeat(np.arange(first, first + n, dtype=np.int32)[:, None], 2, 1)], **ends_every(buffer, 2, n))


def numbers(batch: Any) -> set[int]:
    number = batch["number"] if isinstance(batch, dict) else batch[-1]
    return set(np.asarray(number)[..., 0].ravel().tolist()) - {0}  # of padding


@pytest.mark.parametrize("kind", REPEATING)
def test_a_sample_of_more_rows_than_there_are(kind: str):
    """The buffer waits for none in `sample`, and in `can_sample` for as many as it can have."""
    buffer = make(kind)
    with pytest.raises(RuntimeError, match=f"For '{type(buffer).__name__}', a sample needs at least 1 .*, but got 0"):
        buffer.sample()
    put(buffer, 3, 2)
    assert numbers(buffer.sample()) <= {3, 4}
    assert not bool(buffer.can_sample())
    put(buffer, 10, 20)
    if buffer.has_episodes:  # as many starts as there can be: of episodes of one step, or of sequences of one episode
        buffer.insert([np.full((CAPACITY, 2), 30, np.int32)], end=["episodes" in kind] * CAPACITY)
    assert bool(buffer.can_sample())
    assert numbers(buffer.sample()) <= {3, 4, *range(10, 31)}
    buffer.check_valid()


def test_no_positions_are_a_batch_of_no_rows():
    buffer = make("uniform")
    for filled in (False, True):
        for index in ([], (), range(0), np.arange(0), np.zeros(0), Tensor(np.zeros(0, np.int32))):
            (number,) = buffer.get_item(index)
            assert (tuple(number.shape), str(number.dtype).lower()) == ((0, 2), "int32")
            assert buffer.get_item(index, as_dict=True).keys() == {"number"}
        if not filled:
            put(buffer, 0, 3)


def test_no_positions_of_rows_of_any_length():
    buffer = host.ReplayBuffer(
        1, 4, **flat([(None, 2), ()], ["int32", "bool"], names=["items", "flag"], max_length=3, items=9)
    )
    batch = buffer.get_item([], as_dict=True)
    assert {name: (part.shape, part.dtype.name) for name, part in batch.items()} == {
        "lengths": ((0,), "int32"),
        "items": ((0, 0, 2), "int32"),
        "flag": ((0,), "bool"),
    }
