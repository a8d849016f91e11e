"""The collector against a loop that is written out, and against gymnasium's statistics of episodes."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from flat import flat
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from mindspore import Tensor

from mindspore_replay import (
    Collector,
    EpochReplayBuffer,
    NStep,
    RateLimiter,
    ReplayBuffer,
    VectorRows,
    columns_of,
    host,
)


class Line(gym.Env):
    """Observes (episode, step) in nested spaces; episodes end after 2 to 4 steps, each second one by a time limit."""

    observation_space = spaces.Dict(
        place=spaces.Box(-9, 99, (2,), np.float32), joints=spaces.Tuple((spaces.Discrete(99), spaces.MultiBinary(2)))
    )
    action_space = spaces.Dict(push=spaces.Discrete(3), turn=spaces.Box(-1, 1, (1,), np.float32))

    def __init__(self) -> None:
        self.episode = -1

    def observe(self):
        place = np.array([self.episode, self.steps], np.float32)
        return {"place": place, "joints": (self.steps, np.array([self.steps % 2, 1], np.int8))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        done = self.steps >= 2 + self.episode % 3
        ends_by_time = self.episode % 2 == 1
        return self.observe(), 10.0 * self.episode + self.steps, done and not ends_by_time, done and ends_by_time, {}


def act(observation):
    """Push by the step, in each environment."""
    steps = np.asarray(observation["joints"][0])
    return {"push": Tensor(steps % 3), "turn": (steps[..., None] / 10).astype(np.float32)}


@pytest.fixture(params=[True, False], ids=["whole", "next_row"])
def columns(request):
    return columns_of(Line(), next_observation=request.param)


def make(columns, num_envs):
    return ReplayBuffer(4, 200, **columns, num_envs=num_envs, views=[NStep(2, 0.9)], seed=0)


def written_out(envs, buffer, steps):
    """Step environments as the guide does; return the rewards and lengths of the episodes that ended."""
    mode = envs.metadata["autoreset_mode"]
    rows, ended = VectorRows(buffer, mode), []
    observation, _ = envs.reset()
    totals, was_done = [[] for _ in range(envs.num_envs)], np.zeros(envs.num_envs, bool)
    for _ in range(steps):
        action = {key: np.asarray(part) for key, part in act(observation).items()}
        result = envs.step(action)
        exp, flags = rows.step(observation, action, *result)
        buffer.insert(exp, **flags)
        observation, done = result[0], result[2] | result[3]
        for i in range(envs.num_envs):
            if mode != AutoresetMode.NEXT_STEP or not was_done[i]:
                totals[i].append(result[1][i])
            if done[i]:
                ended.append((sum(totals[i]), len(totals[i]), i))
                totals[i] = []
        was_done = done
        if mode == AutoresetMode.DISABLED and done.any():
            observation, _ = envs.reset(options={"reset_mask": done})
    return ended


@pytest.mark.parametrize("mode", AutoresetMode)
def test_it_does_what_the_written_loop_does(mode, columns):
    pairs = [(SyncVectorEnv([Line] * 3, autoreset_mode=mode), make(columns, 3)) for _ in range(2)]
    expected = written_out(*pairs[0], steps=20)
    collector = Collector(*pairs[1], act)
    ended = collector.collect(7) + collector.collect(steps=13)
    assert ended == expected
    states = [buffer.state_dict() for _, buffer in pairs]
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name], err_msg=name)
    resets = sum(length for _, length, _ in ended) if mode == AutoresetMode.NEXT_STEP else 0
    assert collector.steps == 60 if not resets else resets <= collector.steps < 60


def test_a_single_environment(columns):
    env, buffer = gym.wrappers.RecordEpisodeStatistics(Line()), make(columns, 1)
    seen = []
    collector = Collector(env, buffer, act, callback=lambda rows, info: seen.append((rows, info)))
    ended = collector.collect(episodes=5)
    assert [(episode.total_reward, episode.length, episode.env) for episode in ended] == [
        (info["episode"]["r"], info["episode"]["l"], 0) for _, info in seen if "episode" in info
    ]
    assert len(ended) == 5
    assert collector.steps == buffer.size() == len(seen) == sum(episode.length for episode in ended)
    rows = buffer.get_item(range(buffer.size()), as_dict=True)
    steps = rows["observation"]["place"].asnumpy()[:, 1]
    np.testing.assert_array_equal(rows["action"]["push"].asnumpy(), steps % 3)
    np.testing.assert_array_equal(rows["observation"]["joints"][0].asnumpy(), steps)
    if "next_observation" in rows:
        np.testing.assert_array_equal(rows["next_observation"]["joints"][1].asnumpy()[:, 0], (steps + 1) % 2)


def test_a_buffer_without_episodes_has_no_rows_of_resets():
    buffer = host.ReplayBuffer(4, 200, **columns_of(Line()))
    collector = Collector(SyncVectorEnv([Line] * 2), buffer, act)
    collector.collect(30)
    assert collector.steps == buffer.size() < 60
    assert (buffer.get_item(range(buffer.size()), as_dict=True)["observation"]["place"][:, 1] < 4).all()


def test_an_evaluation_stores_nothing_and_short_episodes_do_not_count_more_often():
    assert Collector(Line(), None, act).collect(episodes=2) == [(3.0, 2, 0), (36.0, 3, 0)]

    class Fixed(Line):
        def __init__(self, length):
            super().__init__()
            self.length = length

        def step(self, action):
            self.steps += 1
            return self.observe(), 1.0, self.steps == self.length, False, {}

    for mode in AutoresetMode:
        envs = SyncVectorEnv([lambda: Fixed(2), lambda: Fixed(9), lambda: Fixed(3)], autoreset_mode=mode)
        evaluation = Collector(envs, None, act)
        for _ in range(2):  # each call begins anew
            assert evaluation.collect(episodes=3) == [(2.0, 2, 0), (3.0, 3, 2), (9.0, 9, 1)]
            assert [episode.env for episode in evaluation.collect(episodes=4)] == [0, 2, 0, 1]


def test_random_actions_come_first_and_repeat_with_a_seed():
    def actions(seed):
        buffer = host.ReplayBuffer(1, 100, **columns_of(Line()))
        Collector(Line(), buffer, lambda _: {"push": 1, "turn": np.zeros(1)}, random_steps=30, seed=seed).collect(40)
        return buffer.get_item(range(40), as_dict=True)["action"]

    first, again, other = actions(0), actions(0), actions(1)
    np.testing.assert_array_equal(first["turn"], again["turn"])
    assert (first["turn"] != other["turn"])[:30].all()
    assert (first["turn"][:30] != 0).all()
    assert (first["turn"][30:] == 0).all()


def test_the_policy_fills_further_columns_and_rows_have_its_version():
    env = gym.make("CartPole-v1")
    columns = columns_of(env, next_observation=False, further={"value": ((), "float32")})
    buffer = ReplayBuffer(4, 100, **columns, weighted=True).advance(5)
    collector = Collector(env, buffer, lambda observation: (0, {"value": Tensor(observation[0])}), seed=0)
    collector.collect(2)
    collector.version = 3
    collector.collect(2)
    rows = buffer.get_item(range(4), as_dict=True)
    np.testing.assert_array_equal(rows["value"], rows["observation"][:, 0])
    assert buffer.info([0, 1, 2, 3])[2].asnumpy().tolist() == [0, 0, 2, 2]


def test_rows_and_episodes_of_a_call_that_timed_out_come_with_the_next():
    buffer = ReplayBuffer(
        1, 100, [(4,), (), ()], ["float32", "float32", "bool"], names=["observation", "reward", "terminated"]
    )
    buffer.limiter = RateLimiter(1.0, min_size=5, error_buffer=20.0, timeout=0.05)
    env = gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 3)
    collector = Collector(env, buffer, lambda _: 0, seed=0)
    with pytest.raises(TimeoutError):
        collector.collect(200)
    stored, steps = buffer.size(), collector.steps
    assert steps == stored + 1
    buffer.limiter.disable()
    ended = collector.collect(1)
    assert buffer.size() == stored + 2 == collector.steps
    assert [episode.length for episode in ended] == [3] * (collector.steps // 3)


def test_it_resumes_with_new_episodes(columns):
    buffer = make(columns, 2)
    first = Collector(SyncVectorEnv([Line] * 2), buffer, act)
    first.collect(8)
    second = Collector(SyncVectorEnv([Line] * 2), buffer, act)
    second.load_state_dict(first.state_dict())
    assert second.steps == first.steps
    assert buffer.end_episodes() == 0  # they are ended
    second.collect(1)
    assert buffer.get_item(-1, as_dict=True)["observation"]["place"].asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize("broken", ["policy", "environment"])
def test_after_an_error_in_a_step_new_episodes_begin(columns, broken):
    class Breaks(Line):
        def step(self, action):
            result = super().step(action)
            if broken == "environment" and (self.episode, self.steps) == (2, 2):
                raise OSError("the robot fell")
            return result

    def breaks(observation):
        wrong = broken == "policy" and observation["place"].tolist() == [2, 1]
        return act(observation), {"unknown": 1} if wrong else {}

    buffer = make(columns, 1)
    collector = Collector(Breaks(), buffer, breaks)
    with pytest.raises((OSError, ValueError), match=r"the robot fell|unknown \['unknown'\]"):
        collector.collect(20)
    collector.collect(2)
    stored = buffer.get_item(range(5, 8), as_dict=True)["observation"]["place"].asnumpy()
    assert stored.tolist() == [[2, 0], [3, 0], [3, 1]]
    for _ in range(30):
        sample = buffer.sample(as_dict=True)
        now, then = (sample[name]["place"].asnumpy() for name in ("observation", "next_observation"))
        goes_on = sample["discount"].asnumpy() > 0
        assert (now[:, 0] == then[:, 0])[goes_on].all()


class Numbered(gym.Env):
    """Observes (episode, step); each episode has a number of its own, and every second one ends by a time limit."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        Numbered.episodes += 1
        self.episode, self.steps = Numbered.episodes, 0
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action):
        self.steps += 1
        done, terminates = self.steps > self.episode % 4, self.episode % 2 == 0
        observation = np.array([self.episode, self.steps], np.float32)
        return observation, float(self.steps), done and terminates, done and not terminates, {}


def interrupt(call, instructions):
    """Call, and raise a KeyboardInterrupt after so many instructions of the collector and of the environments."""
    parts = ("collector.py", "vector.py", "sync_vector_env.py", "test_collector.py")

    def count(frame, event, arg):
        nonlocal instructions
        if not frame.f_code.co_filename.endswith(parts):
            return None
        frame.f_trace_opcodes = True
        instructions -= event == "opcode"
        if instructions == 0:
            raise KeyboardInterrupt
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("mode", [*AutoresetMode, None])
@pytest.mark.parametrize("layout", ["whole", "next row", "no episodes"])
def test_a_collector_that_is_interrupted_anywhere_skips_and_repeats_no_step(mode, layout):
    envs = Numbered() if mode is None else SyncVectorEnv([Numbered] * 3, autoreset_mode=mode)
    views = [] if layout == "no episodes" else [NStep(1, 0.9)]
    columns = columns_of(envs, next_observation=layout != "next row")
    number = 1 if mode is None or not views else 3
    queue = host.ReplayQueue(1, 30_000, **columns, num_envs=number, views=views, seed=0)
    collector = Collector(envs, queue, lambda o: np.zeros(() if mode is None else 3, int), seed=0)
    rng, interrupts = np.random.default_rng(0), 0
    for _ in range(150):
        try:
            interrupt(lambda: collector.collect(steps=3), int(rng.integers(1, 4000)))
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts > 50
    collector.collect(steps=3)
    found: dict[float, list[float]] = {}
    while queue.can_sample():
        row = {name: np.asarray(column)[0] for name, column in queue.sample(as_dict=True).items()}
        (episode, step), after = row["observation"].tolist(), row["next_observation"].tolist()
        found.setdefault(episode, []).append(step)
        assert row["reward"] == step + 1
        assert row["terminated"] == (episode % 2 == 0 and step == episode % 4)
        if not row["terminated"] or layout != "next row":
            assert after == [episode, step + 1]
    assert len(found) > 30
    assert all(sorted(steps) == [*range(len(steps))] for steps in found.values())


def test_an_error_in_reset_loses_no_row_and_a_new_collector_begins_new_episodes(columns):
    class Breaks(Line):
        def reset(self, **kwargs):
            if self.episode == 1:
                self.episode = 5
                raise OSError("the robot fell")
            return super().reset(**kwargs)

    buffer = make(columns, 1)
    collector = Collector(Breaks(), buffer, act)
    with pytest.raises(OSError, match="the robot fell"):
        collector.collect(20)
    collector.collect(2)
    Collector(Line(), buffer, act).collect(1)
    places = buffer.get_item(range(buffer.size()), as_dict=True)["observation"]["place"].asnumpy()
    assert places.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [6, 0], [6, 1], [0, 0]]
    assert buffer.steps.asnumpy()[:8].tolist() == [0, 1, 0, 1, 2, 0, 1, 0]


@pytest.mark.parametrize("number", [None, 2])
def test_random_actions_have_no_further_columns(number):
    envs = Line() if number is None else SyncVectorEnv([Line] * number)
    buffer = host.ReplayBuffer(1, 20, **columns_of(envs, further={"log_prob": ((), "float32")}))
    message = r"'random_steps' must be 0 if the policy fills further .*, as \['log_prob'\] of the buffer, but got 3: a"
    collector = Collector(envs, buffer, act, random_steps=3)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            collector.collect(1)
    assert (collector.steps, buffer.size()) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "needs one of 'steps' and 'episodes', but got None and None"),
        ({"steps": 1, "episodes": 1}, TypeError, "needs one of 'steps' and 'episodes', but got 1 and 1"),
        ({"steps": 0}, ValueError, r"'steps' must be in \[1, "),
        ({"episodes": 1.0}, TypeError, "'episodes' must be an int, but got 1.0"),
    ],
)
def test_wrong_arguments_of_collect(arguments, error, message):
    with pytest.raises(error, match=message):
        Collector(Line(), None, act).collect(**arguments)


def test_a_policy_that_is_no_function():
    with pytest.raises(TypeError, match="'policy' must be a function of the observation, but got 3"):
        Collector(Line(), None, 3)


class Remembers:
    """A policy that counts the observations of each episode, as a column."""

    def __init__(self, number: int) -> None:
        self.seen = np.zeros(number, np.float32)

    def begin(self, which):
        self.seen[which] = 0

    def __call__(self, observation):
        self.seen += 1
        return act(observation), {"seen": self.seen if np.ndim(observation["joints"][0]) else self.seen[0]}


@pytest.mark.parametrize("mode", [*AutoresetMode, None])
def test_a_policy_with_a_memory_is_told_of_first_observations(mode):
    """The column counts from 1 in each episode, as `Line` counts its steps from 0; an evaluation begins anew."""
    envs = Line() if mode is None else SyncVectorEnv([Line] * 3, autoreset_mode=mode)
    buffer = host.ReplayBuffer(1, 200, **columns_of(envs, further={"seen": ((), "float32")}))
    policy = Remembers(1 if mode is None else 3)
    collector = Collector(envs, buffer, policy)
    collector.collect(7)
    collector.load_state_dict(collector.state_dict())
    collector.collect(23)
    rows = buffer.get_item(range(buffer.size()), as_dict=True)
    assert len(rows["seen"]) > 25
    np.testing.assert_array_equal(rows["seen"], rows["observation"]["place"][:, 1] + 1)
    policy.seen += 5
    assert Collector(envs, None, policy).collect(episodes=2)
    assert policy.seen.max() < 6


@pytest.mark.parametrize("buffer_class", [EpochReplayBuffer, host.EpochReplayBuffer])
def test_late_columns_are_left_for_later(buffer_class):
    """As the advantages of a rollout are, which need the steps after theirs."""
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    columns = columns_of(envs, further={"log_prob": ((), "float32"), "advantage": ((), "float32")})
    buffer = buffer_class(4, 20, **flat(**columns, late=["advantage"]))
    Collector(envs, buffer, lambda _: (np.zeros(2, int), {"log_prob": np.ones(2)})).collect(10)
    stored = buffer.size()
    assert not buffer.can_sample()
    buffer.update(np.arange(stored), {"advantage": np.arange(stored, dtype=np.float32)})
    batch = buffer.sample(as_dict=True)
    assert np.asarray(batch["log_prob"]).tolist() == [1.0] * 4
    assert len(set(np.asarray(batch["advantage"]).tolist())) == 4


def test_actors_collect_without_mindspore():
    code = """
import sys
import gymnasium as gym
from mindspore_replay import Collector, columns_of, host
envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
buffer = host.ReplayBuffer(1, 100, **columns_of(envs))
Collector(envs, buffer, lambda observation: (observation[:, 2] > 0).astype(int), seed=0).collect(episodes=2)
assert buffer.size() > 10
assert "mindspore" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
