"""Buffers that are copied by `copy.deepcopy`, and pickled."""

import copy
import pickle
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from kinds import CLASSES
from kinds import KINDS as EVERY
from mindspore import nn

from mindspore_replay import HindsightRelabel, MixedReplay, RateLimiter, ReplayBuffer, load, save

STEPS: dict[str, Any] = {"shapes": [(2,), ()], "types": ["int32", "int32"]}
KINDS = [*CLASSES[:-1], "queue that evicts", "limits", "compressed"]


def insert(buffer: Any, first: int, n: int = 3) -> None:
    number = np.arange(first, first + n, dtype=np.int32)
    buffer.insert([np.stack([number, number], 1), number])


def filled(kind: str) -> Any:
    buffer = EVERY[kind].make(sample_size=1, capacity=8, **STEPS, seed=1)
    for first in range(0, 12, 3):  # the ring has a seam
        insert(buffer, first)
        if kind == "episodes":
            buffer.end_episodes()
    return buffer


def same(state: Any, other: Any) -> bool:
    return state.keys() == other.keys() and all(np.array_equal(state[key], other[key]) for key in state)


def drawn(buffer: Any) -> list[Any]:
    return [part.asnumpy() for _ in range(3) for part in buffer.sample()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_continues_alike_and_alone(kind: str):
    buffer = filled(kind)
    made = copy.deepcopy(buffer)
    before = buffer.state_dict()
    assert type(made) is type(buffer)
    assert same(made.state_dict(), before)
    expected = drawn(copy.deepcopy(made))
    insert(made, 50)
    if kind == "episodes":
        made.end_episodes()
    made.check_valid()
    assert same(buffer.state_dict(), before)
    assert all(np.array_equal(a, b) for a, b in zip(expected, drawn(buffer), strict=True))
    buffer.close()
    insert(made, 60)
    drawn(made)
    with pytest.raises(RuntimeError, match="the buffer was closed"):
        copy.deepcopy(buffer)


class Agent(nn.Cell):
    """A Cell that holds a buffer, another on its rows, and a limiter."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.buffer = buffer
        self.twin = buffer.with_sample_size(2)

    def construct(self, row, number):
        """Insert a row, and return the number of rows."""
        self.buffer.insert([row, number])
        return self.buffer.size()


def test_the_graph_of_a_copied_agent_uses_the_copy():
    agent = Agent(filled("prioritized"))
    agent.buffer.reset()
    row = ms.Tensor([1, 2], ms.int32), ms.Tensor(3, ms.int32)
    agent(*row)
    made = copy.deepcopy(agent)
    assert [int(made(*row)) for _ in range(2)] == [2, 3]
    assert int(agent(*row)) == 2
    assert [int(b.size()) for b in (agent.buffer, agent.twin, made.buffer, made.twin)] == [2, 2, 3, 3]
    assert made.twin.sample()[0].shape == (2,)
    assert [p.name for p in made.get_parameters()] == [p.name for p in agent.get_parameters()]
    assert made.state_dict().keys() == agent.state_dict().keys()


def test_a_limiter_is_copied_with_its_counts():
    buffer = filled("uniform")
    buffer.limiter = RateLimiter(samples_per_insert=(0, 2), min_size=1, error_buffer=8, timeout=0.1)
    insert(buffer, 0)
    made = copy.deepcopy(buffer)
    insert(made, 3)
    assert (buffer.limiter.inserted, made.limiter.inserted, made.limiter.timeout) == (11, 14, 0.1)
    assert made.state.state_parameters()["limiter.counts"].asnumpy().tolist() == made.limiter.counts.tolist()
    queue = filled("queue that evicts")
    made = copy.deepcopy(queue)
    made.reset()
    assert (made.limiter.account().valid, queue.limiter.account().valid) == (0, 8)


def test_the_copy_of_a_buffer_in_a_folder_is_in_memory(tmp_path: Path):
    buffer = ReplayBuffer(1, 8, **STEPS, storage=tmp_path / "rows")
    buffer.limiter = RateLimiter(samples_per_insert=(0, 2), min_size=1, error_buffer=8)
    insert(buffer, 0)
    made = copy.deepcopy(buffer)
    insert(made, 3)
    assert (made.folder, made.limiter.inserted, int(buffer.size())) == (None, 6, 3)
    buffer.close()
    save(made, tmp_path / "file")
    assert int(load(tmp_path / "file").size()) == 6


def test_views_and_their_functions_are_those_of_the_original():
    def reward(achieved: Any, goal: Any) -> Any:
        return -np.abs(achieved - goal)

    columns = {
        "shapes": [()] * 4,
        "types": ["float32"] * 3 + ["bool"],
        "names": ["achieved_goal", "desired_goal", "reward", "terminated"],
    }
    buffer = ReplayBuffer(1, 8, **columns, views=[HindsightRelabel("future", 1.0, reward)], seed=0)
    place = np.arange(8, dtype=np.float32)
    buffer.insert([place, -place, place, np.zeros(8, bool)], end=place == 7)
    made = copy.deepcopy(buffer)
    assert all(np.array_equal(a, b) for a, b in zip(drawn(made), drawn(buffer), strict=True))


class Own(ReplayBuffer):
    """A subclass with attributes of its own."""

    def __init__(self) -> None:
        super().__init__(1, 4, [()], ["int32"])
        self.noted = [1]
        self.layer = nn.Dense(1, 1)
        self.scale = ms.Parameter(ms.Tensor([1.0]), name="scale")


def test_attributes_of_a_subclass_are_copied():
    buffer = Own()
    made = copy.deepcopy(buffer)
    made.noted.append(2)
    assert buffer.noted == [1]
    assert made.state.state_parameters().keys() == buffer.state.state_parameters().keys()
    assert made.layer is not buffer.layer
    assert made.scale is not buffer.scale


def test_a_mixture_is_copied_with_its_sources():
    sources = [filled("prioritized"), filled("prioritized")]
    mixed = MixedReplay([(sources[0], 0.25), (sources[1], 0.75)], 4)
    cell = nn.CellList([mixed, sources[0]])
    made = copy.deepcopy(cell)
    assert made[0].sources[0] is made[1]
    assert all(np.array_equal(a, b) for a, b in zip(drawn(made[0]), drawn(mixed), strict=True))
    insert(made[1], 70)
    assert same(made[0].sources[0].state_dict(), made[1].state_dict())
    assert not same(mixed.state_dict(), made[0].state_dict())


def test_neither_is_pickled():
    buffer = filled("uniform")
    for held in (buffer, MixedReplay([(filled("prioritized"), 1), (filled("prioritized"), 1)], 4)):
        for pickled in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match=r"cannot be pickled: write it to a file with save.*copy\.deepcopy"):
                pickled(held)
