"""Stacks that repeat the first frame, and returns with each step's own discount, in every kind of sample."""

import numpy as np
import pytest
from bodies import Sampling
from flat import flat

from mindspore_replay import (
    EpisodeReplayBuffer,
    FrameStack,
    HindsightRelabel,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
    attach,
    host,
)

GAMMA = 0.9
RANDOM = np.random.default_rng(3)
LENGTHS = [1, 2, 7, 3, 5, 1, 4, 9, 2]
TOTAL, STREAMS = sum(LENGTHS), 2
ENDS = np.isin(np.arange(TOTAL), np.cumsum(LENGTHS) - 1)
TERMINATED = ENDS & (np.arange(TOTAL) % 3 > 0)
DISCOUNTS = RANDOM.choice([0.0, 0.25, 0.5, 1.0], TOTAL).astype(np.float32)
NUMBERS = np.arange(1, TOTAL + 1)


def make(cls, views, backend="native", types=("int32", "float32", "float64"), ones=False, **options):
    """Return a buffer of two environments with the same episodes; an observation is the number of the row."""
    names = ["observation", "reward", "gamma", "terminated"]
    options |= {} if cls.__module__.endswith("host") else {"backend": backend}
    buffer = cls(
        6,
        100,
        **flat([(), (), (), ()], [*types, "bool"], names=names, num_envs=STREAMS, views=views, seed=0, **options),
    )
    columns = NUMBERS, NUMBERS * (1 - ones) + ones, DISCOUNTS, TERMINATED
    both = [np.repeat(column, STREAMS).astype(dtype) for column, dtype in zip(columns, (*types, "bool"))]
    return buffer.insert(both, end=np.repeat(ENDS, STREAMS))


def drawn(buffer, times, in_graph=False):
    """Return samples as dicts of arrays."""
    sample = Sampling(buffer) if in_graph else lambda: buffer.sample(as_dict=True)
    return [{name: np.asarray(part) for name, part in sample().items()} for _ in range(times)]


KINDS = {
    "rows": (ReplayBuffer, {}),
    "by priority": (PrioritizedReplayBuffer, {}),
    "sequences": (SequenceReplayBuffer, {"sequence_length": 4, "burn_in": 2, "pad_end": True}),
    "episodes": (EpisodeReplayBuffer, {"max_episode_length": 9}),
}


def repeated(stacks):
    """Replace the zeros before the first frame of each stack by that frame, if there is one."""
    first = np.take_along_axis(stacks, (stacks > 0).argmax(-1)[..., None], -1)
    return np.where(np.cumsum(stacks > 0, -1) > 0, stacks, first)


@pytest.mark.parametrize("views", [[], [NStep(3, GAMMA)]], ids=["stacks", "and returns"])
@pytest.mark.parametrize("kind", KINDS)
def test_stacks_repeat_the_first_frame(kind, views):
    cls, options = KINDS[kind]
    padded, repeating = (make(cls, [FrameStack(4, padding=p), *views], **options) for p in ("zeros", "first"))
    zeros = 0
    for one, other in zip(drawn(padded, 4), drawn(repeating, 4)):
        assert one.keys() == other.keys()
        for name, part in one.items():
            of_stacks = name.endswith("observation")
            zeros += int((part == 0).sum()) if of_stacks else 0
            np.testing.assert_array_equal(other[name], repeated(part) if of_stacks else part, err_msg=name)
    assert zeros > 10


def test_stacks_repeat_the_first_frame_in_other_storages(tmp_path):
    expected = drawn(make(ReplayBuffer, [FrameStack(4, padding="first")]), 3)
    folder = make(ReplayBuffer, [FrameStack(4, padding="first")], storage=str(tmp_path / "rows"))
    on_arrays = make(host.ReplayBuffer, [FrameStack(4, padding="first")])
    in_graph = make(ReplayBuffer, [FrameStack(4, padding="first")])
    for samples in (drawn(attach(folder.folder), 3), drawn(on_arrays, 3), drawn(in_graph, 3, in_graph=True)):
        for one, other in zip(samples, expected):
            for name, part in one.items():
                np.testing.assert_array_equal(part, other[name])


def test_compressed_stacks_repeat_the_first_frame():
    frames = RANDOM.integers(1, 255, (12, 8, 8)).astype(np.uint8)
    samples = []
    for compress in ((), ("observation",)):
        views, names = [FrameStack(3, padding="first")], ["observation", "terminated"]
        options = {"names": names, "views": views, "seed": 0, "compress": compress}
        buffer = ReplayBuffer(9, 20, **flat([(8, 8), ()], ["uint8", "bool"], **options))
        samples.append(drawn(buffer.insert([frames, np.arange(12) % 4 == 3]), 3))
    for one, other in zip(*samples):
        np.testing.assert_array_equal(one["observation"], other["observation"])
        assert (one["observation"] > 0).all()


def discounted(first, length, rewards=NUMBERS):
    """Return the return and the discount of a chain of rows, as the documentation says."""
    total, factor = 0.0, 1.0
    for row in range(first, first + length):
        total += factor * rewards[row]
        factor *= GAMMA * DISCOUNTS[row]
    return total, 0.0 if TERMINATED[first + length - 1] else factor


@pytest.mark.parametrize("types", [("int32", "float32", "float64"), ("int32", "float64", "float32")], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_returns_with_discounts_of_steps(kind, types):
    cls, options = KINDS[kind]
    buffer = make(cls, [NStep(4, GAMMA, discount="gamma")], types=types, **options)
    lengths = make(cls, [NStep(4, 1.0)], types=types, ones=True, **options)  # whose returns are the rows of chains
    seen = set()
    for sample, counted in zip(drawn(buffer, 12), drawn(lengths, 12)):
        mask = sample.get("mask", np.ones(sample["reward"].shape, bool))
        for at in zip(*np.nonzero(mask)):
            first, length = int(sample["observation"][at]) - 1, int(counted["reward"][at])
            found = sample["reward"][at], sample["discount"][at]
            np.testing.assert_allclose(found, discounted(first, length), rtol=1e-6)
            seen.add(length)
        assert (sample["reward"][~mask] == 0).all()
    assert seen == {1, 2, 3, 4}


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("kind", ["rows", "sequences"])
def test_returns_of_other_goals_with_discounts_of_steps(kind, in_graph):
    names, cls = ["achieved_goal", "desired_goal", "reward", "terminated", "discount"], KINDS[kind][0]

    def reward_fn(achieved, goal):
        return achieved[:, 0] * 2.0

    def of_chains(n, gamma, ones):
        views = [HindsightRelabel("final", 1.0, (lambda a, g: a[:, 0] * 0 + 1.0) if ones else reward_fn)]
        views.append(NStep(n, gamma, discount=None if ones else "discount", observation=()))
        columns = names[:-1] + ["other"] * ones + ["discount"] * (not ones)
        options = dict(KINDS[kind][1])
        shapes, types = [(1,), (1,), (), (), ()], ["float32", "float32", "float32", "bool", "float32"]
        buffer = cls(6, 100, **flat(shapes, types, names=columns, views=views, seed=0, **options))
        number = NUMBERS.astype(np.float32)
        buffer.insert([number[:, None], -number[:, None], number, TERMINATED, DISCOUNTS], end=ENDS)
        return drawn(buffer, 4, in_graph)

    for sample, counted in zip(of_chains(3, GAMMA, False), of_chains(3, 1.0, True)):
        mask = sample.get("mask", np.ones(sample["reward"].shape, bool))
        for at in zip(*np.nonzero(mask)):
            first, length = int(sample["achieved_goal"][at][0]) - 1, int(counted["reward"][at])
            found = sample["reward"][at], sample["discount"][at]
            np.testing.assert_allclose(found, discounted(first, length, 2.0 * NUMBERS), rtol=1e-6)
