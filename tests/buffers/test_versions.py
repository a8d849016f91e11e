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

from mindspore_replay import (
    EpochReplayBuffer,
    FrameStack,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    attach,
    load,
    save,
)
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


@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer, ReservoirReplayBuffer, EpochReplayBuffer])
def test_the_age_counts_from_the_version(cls: type[Any]):
    more = {} if cls is PrioritizedReplayBuffer else {"weighted": True}
    buffer = make(cls, seed=0, **more).advance(5)
    insert(buffer, [0, 1], version=[2, 5])
    assert staleness(buffer, 0, 1) == [3, 0]
    buffer.advance(4)
    insert(buffer, [2, 3], version=7)
    assert staleness(buffer, 0, 1, 2, 3) == [7, 4, 2, 2]


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


def test_windows_have_no_stale_rows():
    options: dict[str, Any] = {"capacity": 16, "sequence_length": 3, "burn_in": 1, "max_staleness": 3, "seed": 0}
    buffer = make(SequenceReplayBuffer, **options).advance(5)
    insert(buffer, np.arange(10), version=[5, 5, 5, 5, 1, 5, 5, 5, 5, 5], end=[i == 9 for i in range(10)])
    assert drawable(buffer) == [0, 1, 6, 7]  # with the step before: rows 0 to 2, 0 to 3, 5 to 8, 6 to 9


def test_versions_in_graphs():
    buffer = make(weighted=True, seed=0).advance(9)
    calls = Compiled(buffer)
    calls.insert(Tensor([0, 1], ms.int32), version=Tensor([3, 4], ms.int32))
    calls.insert(Tensor(2, ms.int32), version=Tensor(8, ms.int64))
    calls.insert(Tensor([3, 4], ms.int32), version=2)
    assert staleness(buffer, 0, 1, 2, 3, 4) == [6, 5, 1, 7, 7]


@pytest.mark.parametrize("form", ["file", "other capacity", "state", "folder"])
def test_ages_are_right_after_a_resume(form: str, tmp_path: Path):
    more = {"storage": tmp_path / "rows"} if form == "folder" else {}
    buffer = make(PrioritizedReplayBuffer, max_staleness=4, seed=0, **more).advance(7)
    insert(buffer, range(6), version=[7, 4, 6, 5, 3, 7])
    if form == "folder":
        buffer.close()
        again = PrioritizedReplayBuffer.open(tmp_path / "rows")
    elif form == "state":
        again = make(PrioritizedReplayBuffer, max_staleness=4)
        again.load_state_dict(buffer.state_dict())
    else:
        save(buffer, tmp_path / "buffer")
        again = load(tmp_path / "buffer", **({} if form == "file" else {"capacity": 12}))
    assert staleness(again, *range(6)) == [0, 3, 1, 2, 4, 0]
    again.advance(2)
    assert drawable(again) == [0, 2, 3, 5]
    insert(again, [6], version=5)
    assert staleness(again, 6) == [4]


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


def test_a_queue_delivers_no_stale_rows():
    queue = make(ReplayQueue, sample_size=3, max_staleness=1).advance(5)
    insert(queue, range(6), version=[5, 3, 4, 5, 2, 4])
    assert queue.sample()[0].tolist() == [0, 2, 3]
    insert(queue, range(6, 9), version=5)
    queue.advance()
    assert queue.sample()[0].tolist() == [6, 7, 8]


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
