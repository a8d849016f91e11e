"""Rewards by distance, which kernels compute, against the user's NumPy function; `test_twin.py` has plain Python."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bodies import Sampling

import mindspore_replay
from mindspore_replay import FrameStack, HindsightRelabel, MixedReplay, NStep, Prefetch, attach, host

TOLERANCE, GAMMA = 1.5, 0.5
NAMES = ["achieved_goal", "desired_goal", "reward", "terminated", "observation"]


def reward_fn(achieved: Any, goal: Any) -> Any:
    """Return the reward as the environments of gymnasium-robotics do."""
    distance = np.linalg.norm(achieved.astype(np.float64) - goal.astype(np.float64), axis=-1)
    return -(distance > TOLERANCE).astype(np.float32)


#: Class, arguments and views, and whether rows hold their next observations themselves.
CASES: dict[str, tuple[str, dict[str, Any], list[Any], bool]] = {
    "rows": ("ReplayBuffer", {}, [], False),
    "own next": ("ReplayBuffer", {}, [], True),
    "priorities": ("PrioritizedReplayBuffer", {}, [], False),
    "returns": ("ReplayBuffer", {}, [NStep(3, GAMMA, observation=("observation", "desired_goal"))], False),
    "returns, own next": ("ReplayBuffer", {}, [NStep(3, GAMMA, observation=("desired_goal",))], True),
    "stacks": ("ReplayBuffer", {}, [FrameStack(3)], False),
    "sequences": ("SequenceReplayBuffer", {"sequence_length": 4, "burn_in": 2, "pad_end": True}, [], True),
    "returns of sequences": (
        *("SequenceReplayBuffer", {"sequence_length": 3, "burn_in": 1}),
        *([NStep(2, GAMMA, observation=("observation", "desired_goal"))], False),
    ),
    "episodes": ("EpisodeReplayBuffer", {"max_episode_length": 9}, [], False),
    "streams": ("ReplayBuffer", {"num_envs": 3}, [NStep(2, GAMMA)], False),
}


def make(case: str, module: Any, goals: str, reward: Any, rewards: str = "float32", **more: Any) -> Any:
    """Return a buffer of walks in the plane, with `reward_fn` or the name of a reward."""
    cls, options, views, own_next = CASES[case]
    options, names = {**options, **more}, [*NAMES, *["next_desired_goal", "next_observation"] * own_next]
    types = [goals, goals, rewards, "bool", "float32", *[goals, "float32"] * own_next]
    shapes = [(2,), (2,), (), (), (), *[(2,), ()] * own_next]
    strategy = {"episodes": "final", "streams": "random"}.get(case, "future")
    view = HindsightRelabel(strategy, 0.8, reward, **({"tolerance": TOLERANCE} if reward == "sparse" else {}))
    n = 2 if case == "episodes" else 16
    buffer = getattr(module, cls)(n, 60, shapes, types, names=names, views=[view, *views], seed=7, **options)
    rng, streams = np.random.default_rng(1), options.get("num_envs", 1)
    for step in range(90 // streams):
        number = np.arange(streams) + step * streams
        places, aims = rng.normal(size=(streams, 2)) + step % 7, rng.normal(size=(streams, 2)) + 3
        row = [places, aims, number / 4, step % 14 == 6, number, *[aims + 1, number + 1] * own_next]
        arrays = [
            np.broadcast_to(column, (streams, *shape)).astype(kind) for column, shape, kind in zip(row, shapes, types)
        ]
        buffer.insert(arrays if streams > 1 else [array[0] for array in arrays], end=step % 7 == 6)
    return buffer


def drawn(buffer: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(part) for name, part in buffer.sample(as_dict=True).items()}


@pytest.mark.parametrize(("goals", "rewards"), [("float32", "float32"), ("float64", "float32"), ("float64", "float64")])
@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_the_function(case: str, goals: str, rewards: str):
    """All outputs are the same, from Python on arrays and on Tensors, and so are the random states."""
    for module in (host, mindspore_replay):
        sparse, same = (make(case, module, goals, reward, rewards) for reward in ("sparse", reward_fn))
        seen: set[float] = set()
        for _ in range(12):
            sample, expected = drawn(sparse), drawn(same)
            assert sample.keys() == expected.keys()
            for name, part in expected.items():
                assert sample[name].dtype == part.dtype, name
                np.testing.assert_array_equal(sample[name], part, err_msg=name)
            seen |= set(sample["reward"].reshape(-1).tolist())
        assert {0, -1} <= seen
        assert max(seen) > 0  # samples that keep their goal
        np.testing.assert_array_equal(sparse.state_dict()["random_state"], same.state_dict()["random_state"])


@pytest.mark.parametrize("case", ["own next", "returns of sequences"])
def test_they_are_the_same_in_graphs(case: str):
    eager, graph = (make(case, mindspore_replay, "float64", "sparse") for _ in range(2))
    call = Sampling(graph)
    for _ in range(4):
        sample = call()
        for name, part in drawn(eager).items():
            np.testing.assert_array_equal(np.asarray(sample[name]), part, err_msg=name)


def test_a_distance_at_the_tolerance_is_within_it():
    view = HindsightRelabel("final", 1.0, "sparse", tolerance=0.25)
    buffer = host.ReplayBuffer(4, 8, [()] * 3, ["float32"] * 3, names=NAMES[:3], views=[view], replace=False, seed=0)
    buffer.insert([np.float32([0.5, 0.7499, 0.75, 1.0]), np.zeros(4), np.ones(4)], end=np.arange(4) == 3)
    achieved, goal, reward = buffer.sample()
    assert goal.tolist() == [1] * 4
    assert dict(zip(achieved.tolist(), reward.tolist())) == {0.5: -1, float(np.float32(0.7499)): -1, 0.75: 0, 1: 0}


def test_files_folders_and_other_processes_hold_the_view(tmp_path: Path):
    """It is no Python code, so nothing has to be given again."""
    buffer = make("rows", mindspore_replay, "float32", "sparse", storage=tmp_path / "rows")
    mindspore_replay.save(buffer, tmp_path / "file")
    with contextlib.closing(attach(tmp_path / "rows")) as attached:
        sample = {name: np.asarray(part) for name, part in attached.sample(as_dict=True).items()}
        assert {0, -1} & set(sample["reward"].tolist())
    loaded, expected = host.load(tmp_path / "file"), drawn(buffer)
    buffer.close()
    opened = host.ReplayBuffer.open(tmp_path / "rows")
    assert drawn(opened).keys() == expected.keys()
    opened.close()
    (view,) = loaded.spec.arguments()["views"]
    assert repr(view) == "HindsightRelabel(strategy='future', ratio=0.8, reward_fn='sparse', tolerance=1.5)"


def test_they_are_drawn_ahead_and_in_mixtures():
    buffer, other = (make("rows", mindspore_replay, "float32", "sparse") for _ in range(2))
    assert not buffer.state.runs_graphs
    with Prefetch(other) as prefetch:
        for got, part in zip(prefetch.sample(), buffer.sample(), strict=True):
            np.testing.assert_array_equal(got.asnumpy(), part.asnumpy())
    mixed = MixedReplay([(buffer, 1), (make("rows", mindspore_replay, "float32", "sparse"), 1)], 8)
    assert mixed.sample(as_dict=True)["reward"].shape == (8,)
