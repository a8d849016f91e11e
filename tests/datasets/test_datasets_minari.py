"""Real Minari datasets, collected from gymnasium environments, as buffers and back."""

import logging
import sys
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import mindspore as ms
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from mindspore_replay import (
    Column,
    EpisodeReplayBuffer,
    HindsightRelabel,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
    host,
)
from mindspore_replay.datasets import from_minari, from_npz, steps, to_minari, to_npz

METADATA = {"algorithm_name": "a", "author": "b", "author_email": "c", "code_permalink": "d", "description": "e"}
FIELDS = "observations", "actions", "rewards", "terminations", "truncations"


class Nested(gym.Env):
    """An environment with all kinds of spaces, whose values contain the step number."""

    observation_space = spaces.Dict(
        {
            "arm": spaces.Tuple([spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(50)]),
            "lights": spaces.MultiBinary(3),
            "pixel": spaces.Box(0, 255, (4,), np.uint8),
        }
    )
    action_space = spaces.Tuple([spaces.Box(-1, 1, (), np.float32), spaces.MultiDiscrete([3, 4])])

    def _observation(self) -> dict[str, Any]:
        arm = np.array([self.now, -self.now]) / 7, self.now
        pixel = np.full(4, self.now, np.uint8)
        return {"arm": arm, "lights": np.array([self.now, 1, 0], np.int8) % 2, "pixel": pixel}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.now, self.length = 0, int(self.np_random.integers(1, 9))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.now += 1
        return self._observation(), self.now / 3, self.now == self.length, self.now == 6, {}


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Provide a folder for local datasets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        yield


def clean_up(collector: minari.DataCollector) -> None:
    """Remove the folder that the collector would leave until the end of its life, which Python warns of."""
    collector._tmp_dir.cleanup()


def collect(env: gym.Env, name: str, episodes: int) -> minari.MinariDataset:
    collector = minari.DataCollector(env)
    collector.action_space.seed(0)
    for episode in range(episodes):
        collector.reset(seed=episode)
        done = False
        while not done:
            _, _, terminated, truncated, _ = collector.step(collector.action_space.sample())
            done = terminated or truncated
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = collector.create_dataset(name, **METADATA)
    clean_up(collector)
    return dataset


@pytest.fixture(scope="module")
def cartpole() -> minari.MinariDataset:
    """Return episodes of which some terminate and some reach the limit."""
    dataset = collect(gym.make("CartPole-v1", max_episode_steps=18), "cartpole/random-v0", 12)
    last = [bool(episode.truncations[-1]) for episode in dataset]
    assert 0 < sum(last) < 12
    return dataset


@pytest.fixture(scope="module")
def nested() -> minari.MinariDataset:
    return collect(Nested(), "nested-v0", 8)


def flat(value: Any) -> dict[str, np.ndarray]:
    """Return the arrays of nested dicts and tuples."""
    if isinstance(value, (dict, tuple)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {f"{key}.{k}": v for key, part in parts for k, v in flat(part).items()}
    return {"": np.asarray(value)}


def episode_of(observations: Any, n: int, **other: Any) -> EpisodeBuffer:
    """Return an episode of n steps that reaches its limit."""
    flags = {"terminations": np.zeros(n, bool), "truncations": np.arange(n) == n - 1}
    given = {"actions": np.zeros(n, np.int64), "rewards": np.ones(n), **flags, "infos": {}, **other}
    return EpisodeBuffer(observations=observations, **given)


def dataset_of(name: str, space: gym.Space, *episodes: EpisodeBuffer) -> minari.MinariDataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return minari.create_dataset_from_buffers(
            name, list(episodes), observation_space=space, action_space=spaces.Discrete(5)
        )


def assert_same_episodes(a: minari.MinariDataset, b: minari.MinariDataset) -> None:
    assert len(a) == len(b)
    for first, second in zip(a, b):
        for field in FIELDS:
            one, other = flat(getattr(first, field)), flat(getattr(second, field))
            assert one.keys() == other.keys()
            for name, array in one.items():
                assert array.dtype == other[name].dtype, (field, name)
                np.testing.assert_array_equal(array, other[name], err_msg=f"{field}{name}")
        assert second.infos == {}


def rows(buffer: Any) -> dict[str, np.ndarray]:
    """Return all rows of a buffer, by column."""
    got = buffer.get_item(np.arange(int(buffer.size())))
    return dict(zip(buffer.columns.names, (part.asnumpy() for part in got)))


KINDS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "prioritized": {"buffer_cls": "prioritized", "alpha": 0.5},
    "views": {"views": [NStep(3, 0.9)]},
    "sequence": {"buffer_cls": SequenceReplayBuffer, "sequence_length": 3, "pad_end": True},
    "episode": {"buffer_cls": EpisodeReplayBuffer, "max_episode_length": 19},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["cartpole", "nested"])
def test_episodes_come_back_from_every_kind_of_buffer(
    kind: str, name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(steps, "CHUNK_ROWS", 7)
    arguments = {**KINDS[kind]}
    if name == "nested":
        arguments.pop("views", None)  # there is no column "observation" for a view
    dataset = request.getfixturevalue(name)
    buffer = from_minari(dataset, sample_size=2, seed=0, **arguments)
    buffer.check_valid()
    assert bool(buffer.full())  # the number of rows to store
    env = "CartPole-v1" if name == "cartpole" else Nested()
    back = to_minari(buffer, f"{name}/{kind}-v0", env=env, **METADATA)
    assert_same_episodes(dataset, back)
    to_npz(buffer, tmp_path / "x.npz")
    again = from_npz(tmp_path / "x.npz", **arguments)
    for column, array in rows(again).items():
        np.testing.assert_array_equal(array, rows(buffer)[column])
    assert (again.names, again.types, again.has_episodes) == (buffer.names, buffer.types, buffer.has_episodes)
    assert_same_episodes(dataset, to_minari(again, f"{name}/{kind}-v1", env=env, **METADATA))


def test_columns_and_rows_of_transitions(cartpole: minari.MinariDataset):
    buffer = from_minari(cartpole, types={"reward": "float32"})
    assert list(buffer.names) == ["observation", "action", "reward", "next_observation", "terminated", "truncated"]
    types = [str(dtype).lower() for dtype in buffer.types]
    assert types == ["float32", "int64", "float32", "float32", "bool", "bool"]
    rows_stored = cartpole.total_steps  # fewer than 256
    assert (type(buffer), buffer.sample_size, buffer.capacity) == (ReplayBuffer, rows_stored, rows_stored)
    got, at = rows(buffer), 0
    for episode in cartpole:
        here = slice(at, at + len(episode))
        np.testing.assert_array_equal(got["observation"][here], episode.observations[:-1])
        np.testing.assert_array_equal(got["next_observation"][here], episode.observations[1:])
        np.testing.assert_array_equal(got["action"][here], episode.actions)
        np.testing.assert_array_equal(got["terminated"][here], episode.terminations)
        np.testing.assert_array_equal(got["truncated"][here], episode.truncations)
        at += len(episode)


def test_leaves_of_spaces_are_columns(nested: minari.MinariDataset):
    buffer = from_minari(nested)
    observations = ["arm.0", "arm.1", "lights", "pixel"]
    assert list(buffer.names) == [
        *(f"observation.{name}" for name in observations),
        *("action.0", "action.1", "reward"),
        *(f"next_observation.{name}" for name in observations),
        *("terminated", "truncated"),
    ]
    types = [str(dtype).lower() for dtype in buffer.types]
    assert types[:7] == ["float64", "int64", "int8", "uint8", "float32", "int64", "float64"]
    assert buffer.shapes[:7] == ((2,), (), (3,), (4,), (), (2,), ())
    types = {"observation": "float32", "observation.arm.1": "int16", "observation.lights": "int32"}
    with pytest.raises(TypeError, match=r"arm\.0' of .* must have a dtype that bool holds, but got float64"):
        from_minari(nested, types={"observation": "bool"})
    other = from_minari(nested, types=types)
    wanted = dict(zip(other.names, (str(dtype).lower() for dtype in other.types)))
    assert wanted["next_observation.arm.0"] == wanted["observation.pixel"] == "float32"
    assert wanted["next_observation.arm.1"] == "int16"


def test_a_dataset_may_be_named_by_its_id_or_folder(cartpole: minari.MinariDataset):
    folder = Path(cartpole.spec.data_path)
    for name in (cartpole.id, folder, str(folder.parent), cartpole):
        assert from_minari(name).capacity == cartpole.total_steps
    with pytest.raises(FileNotFoundError, match="the id of a local one, but got 'nothing-v0'"):
        from_minari("nothing-v0")
    with pytest.raises(TypeError, match="must be a MinariDataset, a folder or an id, but got 3"):
        from_minari(3)


def test_episodes_are_chosen(cartpole: minari.MinariDataset):
    """`test_datasets_files.py` has all ways to name them."""
    lengths = np.array([len(episode) for episode in cartpole])
    wanted = np.sort(np.argsort(lengths, kind="stable")[:3])
    buffer = from_minari(cartpole, episodes=lambda table: np.argsort(table.total_reward, kind="stable")[:3])
    np.testing.assert_array_equal(
        rows(buffer)["observation"], np.concatenate([cartpole[int(i)].observations[:-1] for i in wanted])
    )
    assert bool(buffer.full())
    limited = from_minari(cartpole, episodes=lambda table: table.truncated)
    assert limited.capacity == lengths[lengths == 18].sum()
    longest = cartpole.filter_episodes(lambda episode: len(episode) == 18)
    assert from_minari(longest, episodes=[0]).capacity == 18


def test_given_buffers_keep_what_they_are(cartpole: minari.MinariDataset):
    names = ["observation", "action", "reward", "terminated"]
    types = ["float32", "int32", "float32", "bool"]
    buffer = PrioritizedReplayBuffer(8, 500, [(4,), (), (), ()], types, names=names, views=[NStep(2, 0.5)], seed=0)
    for _ in range(3):  # an episode that is running until the dataset is loaded
        buffer.insert([np.full(4, 7, np.float32), 0, 1.0, False])
    assert from_minari(cartpole, buffer=buffer, episodes=slice(3)) is buffer
    buffer.check_valid()
    assert int(buffer.size()) == 3 + sum(len(cartpole[i]) + 1 for i in range(3))
    assert buffer.flags.asnumpy()[:4].tolist() == [0, 0, 11, 0]
    batch, first = buffer.sample(as_dict=True, with_indices=True), cartpole[0]
    rows_stored = rows(buffer)["observation"]
    np.testing.assert_array_equal(rows_stored[3 : 4 + len(first)], first.observations)
    np.testing.assert_array_equal(batch["observation"].asnumpy(), rows_stored[batch["indices"].asnumpy()])


def test_live_rows_of_vector_environments_become_episodes(caplog: pytest.LogCaptureFixture):
    """Two environments that reset at once; observations are stored once, and no last one."""
    names = ["observation", "reward", "terminated", "truncated", "action"]
    columns = {"shapes": [()] * 5, "types": ["float64", "float64", "bool", "bool", "int64"], "names": names}
    buffer = SequenceReplayBuffer(1, 100, **columns, sequence_length=2, num_envs=2)
    for step, ends in enumerate(["", "t", "", "c", "c", ""]):  # of the first; the second never ends
        terminated, truncated = (np.array([ends == letter, False]) for letter in "tc")
        row = [np.array([step, 10.0 + step]), np.ones(2), terminated, truncated, np.zeros(2, np.int64)]
        buffer.insert(row, end=terminated | truncated, final=truncated)
    given = {"observation_space": spaces.Box(-99, 99, (), np.float64), "action_space": spaces.Discrete(2), **METADATA}
    back = to_minari(buffer, "live-v0", **given)
    found = [(episode.observations.tolist(), bool(episode.terminations[-1])) for episode in back]
    assert found == [([0, 1, 1], True), ([2, 3], False), ([10, 11, 12, 13, 14, 15], False)]
    assert all(bool(episode.truncations[-1]) != bool(episode.terminations[-1]) for episode in back)
    text = " ".join(record.getMessage() for record in caplog.records)
    assert "1 of 3 episodes terminated without a last observation" in text
    assert "4 steps dropped: the buffer holds no observation after them" in text


def test_datasets_that_cannot_be_columns():
    text = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Text(4)})
    dataset = dataset_of("text-v0", text, episode_of({"a": [0, 1, 2], "b": ["x", "y", "z"]}, 2))
    with pytest.raises(TypeError, match=r"'observation\.b' must be of a space whose values are arrays.*Text"):
        from_minari(dataset)
    short = dataset_of("short-v0", spaces.Discrete(9), episode_of(np.arange(2), 2))
    with pytest.raises(
        ValueError, match=r"episode 0 of the dataset 'short-v0'.*'observation': expected \(3,\), but got"
    ):
        from_minari(short)
    few = dataset_of("few-v0", spaces.Discrete(9), episode_of(np.arange(3), 2, actions=np.zeros(1, np.int64)))
    with pytest.raises(ValueError, match=r"its 2 steps.*'action': expected \(2,\), but got \(1,\)"):
        from_minari(few)


def test_what_to_minari_cannot_write(cartpole: minari.MinariDataset):
    buffer = from_minari(cartpole)
    with pytest.raises(ValueError, match="either 'env' or both 'observation_space' and 'action_space'"):
        to_minari(buffer, "x-v0", action_space=spaces.Discrete(2))
    with pytest.raises(ValueError, match=r"none for \['observation\.arm\.0', .*'action\.1'\]; it has \['observation'"):
        to_minari(buffer, "x-v0", env=Nested())
    with pytest.raises(ValueError, match=r"rows of shape \(2,\), but got \(4,\)"):
        to_minari(buffer, "x-v0", env=gym.make("MountainCar-v0"))
    with pytest.raises(ValueError, match="already exists"):
        to_minari(buffer, cartpole.id, env="CartPole-v1")
    with pytest.raises(ValueError, match="must hold an episode of a step or more"):
        to_minari(buffer.reset(), "y-v0", env="CartPole-v1")
    assert set(minari.list_local_datasets(prefix="cartpole")) >= {cartpole.id}
    tokens = host.ReplayBuffer(1, 9, columns={"tokens": Column((None,), "int32", longest=6, items=50)})
    with pytest.raises(ValueError, match="the rows of a buffer must have one length, but those of 'tokens'"):
        to_minari(tokens.insert([[[1, 2]]]), "x/y-v0")
    names = ["observation", "action", "reward"]
    for shape, message in [((8, 8), "Give data_format='arrow'"), ((84, 84, 4), "an image of one or three colours")]:
        frames = ReplayBuffer(1, 4, [shape, (), ()], ["uint8", "int64", "float32"], names=names)
        given = {"observation_space": spaces.Box(0, 255, shape, np.uint8), "action_space": spaces.Discrete(2)}
        with pytest.raises(ValueError, match=message):
            to_minari(frames, "z-v0", **given)


#: Buffers whose samples reach over more rows than an episode of two steps has, and the capacity that they get.
WIDE: dict[str, tuple[dict[str, Any], int]] = {
    "sequences": ({"buffer_cls": "sequence", "sequence_length": 5}, 5),
    "sequences on arrays": ({"buffer_cls": host.SequenceReplayBuffer, "sequence_length": 3, "burn_in": 4}, 7),
    "episodes": ({"buffer_cls": host.EpisodeReplayBuffer, "max_episode_length": 9}, 9),
    "returns": ({"buffer_cls": host.ReplayBuffer, "views": [NStep(6, 0.9)]}, 6),
    "returns, in dtypes of MindSpore": ({"views": [NStep(6, 0.9)], "types": {"observation": ms.float32}}, 6),
    "one row": ({"buffer_cls": host.ReplayBuffer}, 2),
}


@pytest.mark.parametrize("kind", WIDE)
def test_a_few_short_episodes_fit_a_buffer_of_long_samples(kind: str):
    name = f"short/{kind.replace(' ', '').replace(',', '')}-v0"
    dataset = dataset_of(name, spaces.Box(-9, 9, (), np.float64), episode_of(np.arange(3.0), 2))
    options, capacity = WIDE[kind]
    buffer = from_minari(dataset, episodes=[0], **options)
    assert (buffer.capacity, int(buffer.size())) == (capacity, 3 - (kind == "one row"))


@pytest.mark.parametrize("cls", [ReplayBuffer, host.ReplayBuffer, host.ReservoirReplayBuffer, host.EpochReplayBuffer])
@pytest.mark.parametrize("more", [[], ["terminated"], ["terminated", "truncated"], ["next_observation"]], ids=str)
def test_episodes_are_not_joined_over_time_limits(cls: Any, more: list[str]):
    """Each row is the first of an episode of its own: where the buffer cannot know that, it is refused."""
    names = ["observation", "action", "reward", *more]
    types = {"action": "int64", "terminated": "bool", "truncated": "bool"}
    buffer = cls(1, 8, [()] * len(names), [types.get(name, "float64") for name in names], names=names)
    values = {"observation": np.arange(4.0), "action": np.zeros(4, np.int64), "reward": np.ones(4)}
    values |= {"next_observation": np.arange(4) + 0.5, "terminated": np.zeros(4, bool), "truncated": np.ones(4, bool)}
    buffer.insert({name: values[name] for name in names})
    given = {"observation_space": spaces.Box(-9, 9, (), np.float64), "action_space": spaces.Discrete(2), **METADATA}
    name = f"limits/{cls.__module__.count('faces')}-{cls.__name__.lower()}-{len(more)}{len(names[-1])}-v0"
    if more == ["next_observation"]:
        assert [len(episode.actions) for episode in to_minari(buffer, name, **given)] == [1] * 4
        return
    scattered = cls is host.ReservoirReplayBuffer
    message = "next observations, but" if scattered else "a column 'truncated', next observations or views, but"
    message = f"'buffer' must mark where episodes end without termination, by {message} it has"
    if "truncated" in more and not scattered:  # known, and without the observations after the steps nothing is left
        message = "must hold an episode of a step or more"
    with pytest.raises(ValueError, match=message):
        to_minari(buffer, name, **given)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["ReplayBuffer", "EpisodeReplayBuffer"])
def test_less_than_two_episodes_are_in_memory(kind: str, dtype: str):
    """Beside the buffer."""
    n, width, name = 3000, 1000, f"large/{kind.lower()}-{dtype}-v0"
    episodes = (episode_of(np.full((n + 1, width), number, np.float32), n) for number in range(3))
    dataset = dataset_of(name, spaces.Box(0, 9, (width,), np.float32), *episodes)
    names = ["observation", "action", *(["next_observation"] if kind == "ReplayBuffer" else [])]
    shapes, types = [(width,), (), (width,)], [dtype, "int64", dtype]
    more = {} if kind == "ReplayBuffer" else {"max_episode_length": n + 1}
    columns = {"shapes": shapes[: len(names)], "types": types[: len(names)], "names": names}
    buffer = getattr(host, kind)(1, 3 * (n + 1), **columns, **more)
    tracemalloc.start()
    from_minari(dataset, buffer=buffer, episodes=lambda table: table.length > 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    minari.delete_dataset(name)
    assert peak < 2 * (n + 1) * width * 4
    assert [int(row[0]) for row in buffer.get_item([0, n // 2, -1])[0]] == [0, 0, 2]


def test_minari_is_needed_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    for call in (lambda: from_minari("x-v0"), lambda: to_minari(None, "x-v0")):
        with pytest.raises(ImportError, match=r'needs minari: pip install -e "\.\[datasets\]" in a checkout'):
            call()


def test_the_composite_backend_is_filled_by_two_graphs(cartpole: minari.MinariDataset, monkeypatch: pytest.MonkeyPatch):
    """Insertions have two lengths for any lengths of episodes: each length compiles a graph."""
    monkeypatch.setattr(steps, "CHUNK_ROWS", 50)
    lengths = []
    insert = ReplayBuffer.insert

    def counted(self: Any, exp: Any, **flags: Any) -> Any:
        lengths.append(len(exp[0]))
        return insert(self, exp, **flags)

    monkeypatch.setattr(ReplayBuffer, "insert", counted)
    buffers = [from_minari(cartpole, backend=backend, seed=0) for backend in ("composite", "native")]
    assert set(lengths[:-1]) == {50, lengths[-1]}
    for one, other in zip(*(buffer.buffer for buffer in buffers), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


def test_logs_say_what_is_lost_and_nothing_else(cartpole: minari.MinariDataset, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "mindspore_replay.datasets"):
        to_minari(from_minari(cartpole), "cartpole/quiet-v0", env="CartPole-v1", **METADATA)
    assert not caplog.records


def test_columns_of_mindspore_rl_become_a_dataset():
    """Scalars of shape (1,), and no truncation flag."""
    names = ["observation", "action", "reward", "next_observation", "terminated"]
    shapes, types = [(4,), (1,), (1,), (4,), (1,)], ["float32", "int32", "float32", "float32", "bool"]
    buffer = ReplayBuffer(1, 9, shapes, types, names=names)
    for step in range(4):
        now = np.full(4, step, np.float32)
        buffer.insert([now, np.array([step % 2], np.int32), np.ones(1, np.float32), now + 1, np.array([step == 1])])
    dataset = to_minari(buffer, "msrl-v0", env="CartPole-v1", **METADATA)
    assert [len(episode) for episode in dataset] == [2, 2]
    assert dataset[0].actions.dtype == np.int64
    assert dataset[1].rewards.shape == (2,)
    back = from_minari(dataset, buffer=ReplayBuffer(1, 4, shapes, types, names=names))
    for name, array in rows(back).items():
        np.testing.assert_array_equal(array, rows(buffer)[name])


@pytest.mark.parametrize("goal", ["achieved_goal", "observation.achieved_goal", "next_observation.achieved_goal"])
def test_goals_are_those_after_the_action(goal: str):
    """The place after step t is t + 1, and hindsight takes it as achieved, in a new buffer and in a given one."""
    box = spaces.Box(-99, 99, (1,), np.float32)
    places = np.arange(6, dtype=np.float32)[:, None]
    values = {"observation": places, "achieved_goal": places, "desired_goal": places * 0 + 50}
    space = spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)
    name = f"line/{goal.replace('.', '-').replace('_', '-')}-v0"
    dataset = dataset_of(name, space, episode_of(values, 5, rewards=np.full(5, -1.0)))
    view = HindsightRelabel("future", 1.0, lambda a, g: (a == g)[:, 0] - 1.0, achieved_goal=goal)
    made = from_minari(dataset, views=[view], types={"reward": "float32"}, sample_size=5, seed=0)
    assert made.size() == 5
    names = ["observation", "achieved_goal", "desired_goal", "reward"]
    short = HindsightRelabel("future", 1.0, lambda a, g: (a == g)[:, 0] - 1.0)
    given = ReplayBuffer(5, 10, [(1,)] * 3 + [()], ["float32"] * 4, names=names, views=[short], seed=0)
    for buffer in (made, from_minari(dataset, buffer=given)):
        for _ in range(10):
            sample = buffer.sample(as_dict=True)
            seen = sample["observation"] if buffer is made else sample
            reached = seen["observation"] + 1 == seen["desired_goal"]
            np.testing.assert_array_equal(sample["reward"], reached.asnumpy()[:, 0] - 1)
            assert (seen["desired_goal"] < 50).all()
    assert rows(given)["achieved_goal"][:, 0].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"'achieved_goal' of 'buffer' holds .* after an action"):
        to_minari(given, f"{name[:-1]}1", observation_space=space, action_space=spaces.Discrete(5), **METADATA)
