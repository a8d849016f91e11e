"""Rows with the version of the policy that made them: their age counts from it.

The twins' tests hold all state to it bit for bit, in all modes and with both backends.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from faces import Compiled
from mindspore import Tensor

from mindspore_replay import FrameStack, ReplayBuffer, attach
from mindspore_replay.training.statistics import statistics_of

SCHEMA: dict[str, Any] = {"shapes": [()], "types": ["int32"]}


def make(cls: type[Any] = ReplayBuffer, sample_size: int = 1, capacity: int = 8, **options: Any) -> Any:
    return cls(sample_size=sample_size, capacity=capacity, **SCHEMA, **options)


def insert(buffer: Any, numbers: Sequence[int], **more: Any) -> None:
    buffer.insert([np.array(numbers, np.int32)], **more)


def staleness(buffer: Any, *handles: int) -> list[int]:
    """Return the ages of at most 6 rows, by one graph."""
    return buffer.info(np.resize(handles, 6))[2].tolist()[: len(handles)]


def drawable(buffer: Any) -> list[int]:
    """Return the handles of the rows at which a sample may start."""
    head, count, inserted = (int(x) for x in (buffer.head, buffer.count, buffer.serials[0]))
    slots = (head + np.arange(count)) % buffer.capacity
    return (inserted - count + np.flatnonzero(buffer.weights.asnumpy()[slots] > 0)).tolist()


def test_rows_that_are_stale_when_they_come_are_not_drawn():
    buffer = make(max_staleness=2, seed=0).advance(6)
    insert(buffer, [0, 1, 2, 3], version=[6, 3, 4, 0])
    assert (drawable(buffer), buffer.counts.asnumpy().tolist()) == ([0, 2], [0, 0, 2, 0, 0])
    buffer.advance()
    assert drawable(buffer) == [0]
    insert(buffer, [4, 5], version=[7, 5])
    buffer.advance(2)  # row 4 is fresh, row 5 behind it is not
    assert (drawable(buffer), buffer.clock.asnumpy().tolist()) == ([4], [9, 4, 6])
    buffer.advance()
    assert (drawable(buffer), buffer.clock.asnumpy().tolist()) == ([], [10, 6, 6])
    buffer.reset()
    assert buffer.clock.asnumpy().tolist() == [0, 6, 0]


def test_many_rows_out_of_order():
    versions = np.random.default_rng(0).integers(0, 101, 300)
    buffer = make(capacity=400, max_staleness=50, seed=0)
    insert(buffer.advance(100), np.arange(300), version=versions)
    assert drawable(buffer) == np.flatnonzero(versions >= 50).tolist()
    buffer.advance(20)
    assert drawable(buffer) == np.flatnonzero(versions >= 70).tolist()


def test_versions_in_graphs():
    buffer = make(weighted=True, seed=0).advance(9)
    calls = Compiled(buffer)
    calls.insert(Tensor([0, 1], ms.int32), version=Tensor([3, 4], ms.int32))
    calls.insert(Tensor(2, ms.int32), version=Tensor(8, ms.int64))
    calls.insert(Tensor([3, 4], ms.int32), version=2)
    assert staleness(buffer, 0, 1, 2, 3, 4) == [6, 5, 1, 7, 7]


def test_a_state_with_impossible_versions_is_refused():
    buffer = make(max_staleness=4, seed=0).advance(7)
    insert(buffer, range(4), version=[7, 4, 6, 5])
    insert(buffer, [4, 5])
    for name, value, message in (
        ("clock", np.array([7, 0, 7]), "'clock' is"),
        ("clock", np.array([7, 0, 0]), "'insertion_clocks' fall from an older row to a newer one behind row 0"),
        ("insertion_clocks", np.array([7, 4, 6, 8, 7, 7, 0, 0]), "'insertion_clocks' are not from 0 to the clock"),
        ("insertion_clocks", np.array([7, 4, 6, 5, 6, 7, 0, 0]), "behind row 4"),
    ):
        with pytest.raises(ValueError, match=message):
            make(max_staleness=4).load_state_dict(buffer.state_dict() | {name: value})


def test_frames_of_old_policies():
    buffer = make(views=[FrameStack(2)], names=["observation"], max_staleness=3, seed=0).advance(5)
    insert(buffer, range(6), version=[5, 1, 5, 5, 5, 5])
    assert drawable(buffer) == [3, 4]  # row 0 comes before a stale frame, and row 2 is stacked on it


def test_attached_processes_give_versions(tmp_path: Path):
    buffer = make(max_staleness=3, storage=tmp_path / "rows", seed=0).advance(4)
    attached = attach(tmp_path / "rows")
    attached.insert([np.arange(3, dtype=np.int32)], version=[4, 0, 2])
    assert (staleness(buffer, 0, 1, 2), drawable(buffer)) == ([0, 4, 2], [0, 2])
    with pytest.raises(ValueError, match="from 0 to 4, but got 5"):
        attached.insert([7], version=5)
    assert len(attached) == 3


def test_a_monitor_shows_the_ages():
    buffer = make(weighted=True).advance(3)
    insert(buffer, range(4), version=[3, 1, 1, 0])
    values, histograms = statistics_of(buffer.state_dict())
    assert (values["staleness_mean"], values["staleness_max"]) == (1.75, 3)
    assert (histograms["staleness"].edges.tolist(), histograms["staleness"].counts.tolist()) == (
        [0, 1, 2, 3, 4],
        [1, 0, 2, 1],
    )
