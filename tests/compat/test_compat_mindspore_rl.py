"""The replay buffers with MindSpore RL's constructors, in trainers of its style."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import ONCE, Kept, compiled
from mindspore import Tensor, nn

from mindspore_replay.compat.mindspore_rl import PriorityReplayBuffer, ReservoirReplayBuffer, UniformReplayBuffer

SHAPES, TYPES = ((2,), (1,), (1,)), (ms.float32, ms.int32, ms.bool_)


def config(cls: Any, **params: Any) -> dict[str, Any]:
    """Return the part of a configuration that describes the buffer."""
    return {"number": 1, "type": cls, "params": params, "data_shape": list(SHAPES), "data_type": list(TYPES)}


def create(settings: dict[str, Any], types: str = "types") -> Any:
    """Make a buffer from a configuration, by keywords."""
    params = dict(settings["params"])
    params["shapes"] = tuple(settings["data_shape"])
    params[types] = tuple(settings["data_type"])
    return settings["type"](**params)


def row_of(number: int) -> list[Tensor]:
    return [Tensor([number, number], ms.float32), Tensor([number], ms.int32), Tensor([number % 2 == 0])]


def check_rows(states: Tensor, actions: Tensor, dones: Tensor) -> list[int]:
    """Return the rows' numbers; check that each row is whole."""
    numbers = actions.asnumpy().ravel().tolist()
    assert states.asnumpy().tolist() == [[n, n] for n in numbers]
    assert dones.asnumpy().ravel().tolist() == [n % 2 == 0 for n in numbers]
    return numbers


class GatedBuffer(UniformReplayBuffer):
    """A buffer that stores on command, by the operator, like the one for several agents."""

    def __init__(self, sample_size: int, capacity: int, shapes: Any, types: Any, backend: str = "auto") -> None:
        super().__init__(sample_size, capacity, shapes, types, backend=backend)

    def construct(self, command, *exp):
        if command:
            self.buffer_append(self.buffer, exp, self.count, self.head)
        return self.buffer


class Agent(nn.Cell):
    """Forwards the methods of its buffer."""

    def __init__(self, settings: dict[str, Any], types: str = "types") -> None:
        super().__init__()
        self.replay = create(settings, types)
        self.replay_buffer_insert = getattr(self.replay, "push", self.replay.insert)
        self.replay_buffer_sample = self.replay.sample
        self.replay_buffer_full = self.replay.full
        self.replay_buffer_reset = self.replay.reset


class UniformTrainer(Kept):
    """Fills the buffer in a loop, learns from its rows, and resets it."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.zero = Tensor(0, ms.int32)
        self.done = Tensor([True])

    @ms.jit
    def train_one_episode(self, state, first):
        steps = self.zero
        while not self.agent.replay_buffer_full():
            number = first + steps
            action = ms.ops.reshape(number, (1,))
            self.agent.replay_buffer_insert(
                [state + number, action, number % 2 == self.zero + ms.ops.zeros_like(action)]
            )
            steps = steps + 1
        drawn = self.agent.replay_buffer_sample()
        elements = ()
        for element in self.agent.replay.buffer:
            elements = elements + (element + 0,)
        self.agent.replay_buffer_reset()
        return steps, drawn, elements, self.agent.replay.count


class PriorityTrainer(Kept):
    @ms.jit
    def step(self, state, action, done, beta, priorities):
        self.buffer.replay_buffer_insert(state, action, done)
        indices, weights, states, actions, dones = self.buffer.replay_buffer_sample(beta)
        self.buffer.replay.update_priorities(indices, priorities)
        return indices, weights, states, actions, dones


class ReservoirTrainer(Kept):
    @ms.jit
    def step(self, state, action, done):
        self.buffer.replay_buffer_insert(state, action, done)
        return self.buffer.replay_buffer_sample()


@ONCE
def test_a_uniform_buffer_fills_and_empties(mode: str, backend: str):
    agent = Agent(config(UniformReplayBuffer, sample_size=3, capacity=4, backend=backend))
    trainer = UniformTrainer(agent)
    for first in (0, 10):
        steps, drawn, elements, count = trainer.train_one_episode(Tensor([0.0, 0.0]), Tensor(first, ms.int32))
        assert (int(steps), int(count)) == (4, 0)
        assert set(check_rows(*drawn)) <= set(range(first, first + 4))
        assert elements[1].asnumpy().ravel().tolist() == list(range(first, first + 4))


def test_the_operators_of_a_uniform_buffer(mode: str):
    """They act on the buffer like its methods, and a saved state stays whole."""
    buffer = GatedBuffer(2, 4, SHAPES, TYPES, "native")
    store = compiled(buffer, mode)
    for number in range(6):
        store(Tensor(True), *row_of(number))
        store(Tensor(False), *row_of(99))
    assert [int(buffer.get_item(i)[1]) for i in range(4)] == [2, 3, 4, 5]
    row = buffer.buffer_get(buffer.buffer, buffer.count, buffer.head, -1)
    assert [part.asnumpy().tolist() for part in row] == [[5, 5], [5], [False]]
    assert buffer.buffer_sample.batch_size == 2
    other = GatedBuffer(2, 4, SHAPES, TYPES, "native")
    other.load_state_dict(buffer.state_dict())
    drawn = buffer.buffer_sample(buffer.buffer, buffer.count, buffer.head)
    assert check_rows(*drawn) == check_rows(*other.sample())
    assert check_rows(*buffer.sample()) == check_rows(*other.sample())


@ONCE
def test_a_prioritized_buffer(mode: str, backend: str):
    settings = config(PriorityReplayBuffer, alpha=1.0, capacity=8, sample_size=2, seed1=3, backend=backend)
    agent = Agent(settings)
    assert agent.replay.backend == backend
    filled = create(config(PriorityReplayBuffer, alpha=1.0, capacity=8, sample_size=2, seed1=3, backend="native"))
    for number in range(7):
        filled.insert(*row_of(number))
    agent.replay.load_state_dict(filled.state_dict())
    trainer = PriorityTrainer(agent)
    low = Tensor([1e-6, 1e-6], ms.float32)
    indices, weights, *rows = trainer.step(*row_of(7), Tensor(0.5, ms.float32), low)
    assert check_rows(*rows) == indices.asnumpy().tolist()
    assert weights.asnumpy().tolist() == [1.0, 1.0]
    for _ in range(3):
        again, weights, *_ = agent.replay.sample(1.0)
        assert not set(indices.asnumpy()) & set(again.asnumpy())
        assert (weights.asnumpy() < 1e-4).all()  # over the buffer's largest, that of the lowered rows
    assert int(agent.replay.destroy().size()) == 0


def test_a_reservoir(mode: str):
    settings = config(ReservoirReplayBuffer, capacity=5, sample_size=4, seed0=3)
    agent = Agent(settings, "dtypes")
    filled = create(config(ReservoirReplayBuffer, capacity=5, sample_size=4, seed0=3), "dtypes")
    for number in range(40):
        filled.push(*row_of(number))
    agent.replay.load_state_dict(filled.state_dict())
    drawn = check_rows(*ReservoirTrainer(agent).step(*row_of(40)))
    kept = agent.replay.buffer[1].asnumpy().ravel().tolist()
    assert set(drawn) <= set(kept) <= set(range(41))
    assert (int(agent.replay.count), len(set(kept))) == (5, 5)


def test_seeds():
    def state(*seeds: int) -> list[int]:
        return PriorityReplayBuffer(0.5, 4, 2, SHAPES, TYPES, *seeds).random_state.asnumpy().tolist()

    assert state(1, 2) == state(0, 2) == state(2, 0) == state(2) != state(1)
    assert state() != state()


def test_samples_of_more_rows_than_there_are():
    """As the originals have it."""
    uniform, priority = UniformReplayBuffer(5, 4, SHAPES, TYPES), PriorityReplayBuffer(0.5, 2, 4, SHAPES, TYPES)
    reservoir = ReservoirReplayBuffer(100, 256, SHAPES, TYPES)
    uniform.insert(list(row_of(1)))
    for buffer in (priority, reservoir):
        buffer.push(*row_of(1))
    assert [len(buffer.sample()[-1]) for buffer in (uniform, priority, reservoir)] == [5, 4, 256]
    assert len(uniform.buffer_sample(uniform.buffer, uniform.count, uniform.head)[0]) == 5


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"'alpha' must be in \[0, 1\], but got 2"):
        PriorityReplayBuffer(2, 4, 2, SHAPES, TYPES)
    with pytest.raises(ValueError, match="'seed0' must be in"):
        ReservoirReplayBuffer(4, 2, SHAPES, TYPES, seed0=-1)
    with pytest.raises(ValueError, match="'exp' must hold one array for each of the 3 columns, but got 2"):
        PriorityReplayBuffer(0.5, 4, 2, SHAPES, TYPES).insert(*row_of(1)[:2])


def test_a_checkpoint_goes_on_with_the_same_draws(tmp_path: Any):
    first, second = (Agent(config(UniformReplayBuffer, sample_size=3, capacity=4)) for _ in range(2))
    for number in range(6):
        first.replay.buffer_append(first.replay.buffer, row_of(number), first.replay.count, first.replay.head)
    ms.save_checkpoint(first, str(tmp_path / "agent.ckpt"))
    ms.load_checkpoint(str(tmp_path / "agent.ckpt"), second)
    assert check_rows(*first.replay.sample()) == check_rows(*second.replay.sample())
    assert np.array_equal(first.replay.buffer[1].asnumpy(), second.replay.buffer[1].asnumpy())
