"""Reward functions that take the other columns: each row's own, in every kind of sample, in a graph and from Python."""

import numpy as np
import pytest
from bodies import Sampling
from mindspore import ops

from mindspore_replay import FrameStack, HindsightRelabel, NStep, ReplayBuffer, SequenceReplayBuffer, host

NAMES = ["achieved_goal", "desired_goal", "reward", "terminated", "observation", "action.push", "info.ids.0"]
SHAPES = [(1,), (1,), (), (), (2,), (), ()]
TYPES = ["float32", "float32", "float32", "bool", "float32", "int32", "int32"]
GAMMA = 0.5


def reward_of(achieved, goal, batch):
    """Return the goal, less 10,000 where a column is not that of the row which achieved `achieved`."""
    number = batch["info"]["ids"][0]
    wrong = (number != achieved[:, 0]) | (batch["action"]["push"] != 2 * number)
    wrong = wrong | (batch["observation"][:, 1] != number) | (batch["reward"] != number + 0.5)
    return goal[:, 0] - 10_000.0 * wrong


def in_graphs(achieved, goal, batch):
    """The same in MindSpore's operators."""
    number = batch["info"]["ids"][0]
    wrong = ops.logical_or(number != achieved[:, 0], batch["action"]["push"] != 2 * number)
    wrong = ops.logical_or(wrong, batch["observation"][:, 1] != number)
    wrong = ops.logical_or(wrong, batch["reward"] != number + 0.5)
    return goal[:, 0] - 10_000.0 * wrong.astype("float32")


def with_ends(achieved, goal, batch):
    """The same, and the goal ends the episode."""
    return reward_of(achieved, goal, batch), achieved[:, 0] == goal[:, 0]


def make(reward_fn, views=(), cls=ReplayBuffer, backend=None, **options):
    """Return a buffer of 4 episodes of 8 rows, whose columns tell the row's number."""
    views = [HindsightRelabel("final", 1.0, reward_fn), *views]
    options |= {} if backend is None else {"backend": backend}
    buffer = cls(5, 40, SHAPES, TYPES, names=NAMES, views=views, seed=0, **options)
    number = np.arange(32, dtype=np.int32)
    column = number[:, None].astype(np.float32)
    rows = [
        column,
        column * 0 - 1,
        column[:, 0] + 0.5,
        number % 8 == 7,
        np.repeat(column, 2, axis=1),
        2 * number,
        number,
    ]
    buffer.insert(rows, end=number % 8 == 7)
    return buffer


def expected(sample, chain, ends):
    """Return the rewards of a sample: each row's goal is the last achieved in its episode, and each step's reward."""
    number = np.asarray(sample["info"]["ids"][0])
    last = number // 8 * 8 + 7
    steps = np.minimum(chain, last + 1 - number)
    total = sum(np.where(step < steps, last * GAMMA**step, 0) for step in range(chain))
    discount = np.where(number + steps - 1 == last, 0.0, GAMMA**steps) if ends else None
    return last, total, discount


def check(sample, chain=1, ends=False):
    mask = np.asarray(sample.get("mask", True))
    last, total, discount = expected(sample, chain, ends)
    np.testing.assert_array_equal(np.asarray(sample["desired_goal"])[..., 0][mask & True], last[mask & True])
    np.testing.assert_allclose(np.asarray(sample["reward"])[mask], total[mask])
    if ends:
        np.testing.assert_allclose(np.asarray(sample["discount"])[mask], discount[mask])


CASES = {
    "rows": ([], {}, 1),
    "stacks": ([FrameStack(3)], {}, 1),
    "returns": ([NStep(3, GAMMA)], {}, 3),
    "returns of stacks": ([NStep(3, GAMMA), FrameStack(3)], {}, 3),
    "sequences": ([], {"sequence_length": 4}, 1),
    "sequences of stacks": ([FrameStack(2)], {"sequence_length": 4}, 1),
    "sequences of returns": ([NStep(2, GAMMA)], {"sequence_length": 4}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_from_python(case):
    views, options, chain = CASES[case]
    ends = chain > 1
    for module, classes in ((host, host), (None, None)):
        cls = SequenceReplayBuffer if options else ReplayBuffer
        cls = cls if module is None else getattr(classes, cls.__name__)
        buffer = make(with_ends if ends else reward_of, views, cls, **options)
        for _ in range(3):
            check(buffer.sample(as_dict=True), chain, ends)


@pytest.mark.parametrize("case", ["rows", "sequences of stacks", "returns of stacks"])
def test_in_a_graph(case):
    views, options, chain = CASES[case]
    buffer = make(in_graphs, views, SequenceReplayBuffer if options else ReplayBuffer, **options)
    check(Sampling(buffer)(), chain)


def test_a_wrong_row_is_seen():
    """The function that the other tests use rejects a batch of other rows."""
    batch = {
        "info": {"ids": (np.array([3, 4]),)},
        "action": {"push": np.array([6, 8])},
        "observation": np.array([[0, 3], [0, 4]]),
        "reward": np.array([3.5, 4.5]),
    }
    goal, achieved = np.array([[7.0], [7.0]]), np.array([[3.0], [4.0]])
    assert reward_of(achieved, goal, batch).tolist() == [7, 7]
    assert (reward_of(achieved[::-1], goal, batch) < -9000).all()


def next_goals(achieved, goal, batch):
    """Return the goals of the rows' next observations."""
    return batch["next_desired_goal"][:, 0]


@pytest.mark.parametrize("views", [[], [NStep(2, GAMMA, observation=())]], ids=["rows", "returns"])
@pytest.mark.parametrize("in_graph", [False, True])
def test_the_next_goal_is_that_of_the_row(in_graph, views):
    """The function gets the goals that were stored, also where the sample has another."""
    names = ["achieved_goal", "desired_goal", "next_desired_goal", "reward", "terminated"]
    view = HindsightRelabel("final", 1.0, next_goals)
    buffer = ReplayBuffer(
        *(4, 9, [(1,)] * 3 + [()] * 2, ["float32"] * 4 + ["bool"]), names=names, views=[view, *views], seed=0
    )
    numbers = np.arange(8, dtype=np.float32)
    buffer.insert([*[numbers[:, None]] * 3, numbers, numbers == 7])
    sample = (Sampling(buffer) if in_graph else lambda: buffer.sample(as_dict=True))()
    first = np.asarray(sample["achieved_goal"])[:, 0]
    total = first + (GAMMA * (first + 1) * (first < 7) if views else 0)
    np.testing.assert_array_equal(np.asarray(sample["next_desired_goal"])[:, 0], 7)
    np.testing.assert_allclose(np.asarray(sample["reward"]), total)
