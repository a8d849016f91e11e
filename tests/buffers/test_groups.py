"""Groups of an episode buffer, which `test_twin.py` compares with a slow twin; and episodes that are broken off."""

import itertools
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_frequencies, assert_rows, uniform
from mindspore import Tensor, nn

from mindspore_replay import EpisodeReplayBuffer, NStep, ReplayBuffer, SequenceReplayBuffer, sequence_priorities

CAPACITY, ENVS = 12, 2
NAMES, SHAPES, TYPES = ["color", "row"], [(), (2,)], ["int16", "float32"]


def make_buffer(backend: str, **options: Any) -> EpisodeReplayBuffer:
    arguments = {"names": NAMES, "num_envs": ENVS, "seed": 5, "backend": backend, **options}
    return EpisodeReplayBuffer(
        sample_size=1, capacity=CAPACITY, shapes=SHAPES, types=TYPES, max_episode_length=4, **arguments
    )


class Break(nn.Cell):
    def __init__(self, buffer: EpisodeReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer

    def construct(self):
        return self.buffer.end_episodes()


def call(cell: nn.Cell, mode: str) -> Any:
    return cell if mode == "graph" else ms.jit(cell.construct)


def group_draws(draws: int, ordered: bool) -> list[tuple[int, ...]]:
    """Draw many batches of rows of one group of five."""
    buffer = make_buffer("native", num_envs=1)
    for row, end in enumerate([0, 1, 0, 0, 1]):
        buffer.insert([np.int16(7), np.array([row, 0], np.float32)], end=bool(end))
    for row, end in enumerate([0, 1]):
        buffer.insert([np.int16(9), np.array([10 + row, 0], np.float32)], end=bool(end))
    batches = (buffer.sample_groups("color", 2, 3, ordered=ordered) for _ in range(draws))
    outcomes = []
    for _, colors, rows in ([part.asnumpy() for part in batch] for batch in batches):
        group = int(colors[0, 0] == 9)  # the group of five is the other one
        outcomes.append(tuple(int(row) for row in rows[group, :, 0]))
    return outcomes


def test_rows_of_a_group_are_equally_likely():
    assert_frequencies(group_draws(1500, True), uniform([(0, 1, 2), (1, 2, 3), (2, 3, 4)]))
    orders = uniform(itertools.permutations(range(5), 3))
    outcomes = group_draws(3000, False)
    assert_frequencies(outcomes, orders)
    with pytest.raises(AssertionError):  # a sampler that leaves rows in the order of insertion
        assert_frequencies([tuple(sorted(rows)) for rows in outcomes], orders)


def starts(buffer: Any) -> list[int]:
    """Return the slots with a weight."""
    return np.flatnonzero(buffer.weights.asnumpy()[: buffer.capacity]).tolist()


def test_episodes_that_are_broken_off(mode: str):
    """Three rows of two environments; the first one's episode has ended."""
    buffer = SequenceReplayBuffer(1, 20, [()], ["int32"], sequence_length=2, num_envs=2, pad_end=True)
    assert int(buffer.end_episodes()) == 0
    for step in range(3):
        buffer.insert([np.array([step, 10 + step], np.int32)], end=[step == 2, False])
    assert starts(buffer) == [0, 1, 2, 3, 4]
    broken = call(Break(buffer), mode)()
    assert (int(broken), broken.dtype, broken.shape) == (1, ms.int32, ())
    assert starts(buffer) == [0, 1, 2, 3, 4, 5]
    buffer.check_valid()
    assert int(buffer.end_episodes()) == 0
    buffer.insert([np.array([7, 17], np.int32)])
    assert buffer.steps.asnumpy()[:8].tolist() == [0, 0, 1, 1, 2, 2, 0, 0]
    buffer.check_valid()


def test_an_episode_that_is_broken_off_has_no_next_observation():
    names, types = ["observation", "reward", "terminated", "next_observation"], ["int32", "float32", "bool", "int32"]
    buffer, whole = (
        ReplayBuffer(1, 9, [()] * n, types[:n], names=names[:n], views=[NStep(2, 0.5)], seed=0) for n in (3, 4)
    )
    for step in range(3):
        for each in (buffer, whole):
            each.insert([step, 1.0, False, step + 1][: len(each.names)])
    assert (starts(buffer), int(buffer.end_episodes()), starts(buffer)) == ([0, 1], 1, [0, 1])
    assert buffer.flags.asnumpy()[:3].tolist() == [0, 0, 11]
    buffer.check_valid()
    assert (starts(whole), int(whole.end_episodes()), starts(whole)) == ([0, 1, 2], 1, [0, 1, 2])
    assert whole.flags.asnumpy()[:3].tolist() == [0, 0, 1]


def test_priorities_of_sequences(mode: str):
    """Hand-worked: 0.9 of the largest, 0.1 of the mean, over the steps that the mask keeps."""
    errors = Tensor([[1.0, -4.0, 2.0, 9.0], [0.5, 0.5, 0.5, 0.5], [3.0, 3.0, 3.0, 3.0]], ms.float32)
    mask = Tensor([[True, True, False, False], [True] * 4, [False] * 4])
    expected = np.array([0.9 * 4 + 0.1 * 2.5, 0.5, 0.0], np.float32)
    for function in (sequence_priorities, ms.jit(sequence_priorities)):
        np.testing.assert_allclose(function(errors, mask).asnumpy(), expected, rtol=1e-6)
    assert_rows([sequence_priorities(errors, mask, 1.0)], [np.array([4.0, 0.5, 0.0], np.float32)])
