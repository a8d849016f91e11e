"""Rows of vector environments against a log that every single environment keeps of its own transitions."""

import re
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from mindspore_replay import (
    FrameStack,
    HindsightRelabel,
    NStep,
    PrioritizedReplayBuffer,
    RateLimiter,
    ReplayBuffer,
    ReplayQueue,
    attach,
    host,
)
from mindspore_replay.training.vector import VectorRows

MODES = list(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = MODES
#: Columns of the two layouts: a row with its own next observation, and one whose next observation is in the next row.
WHOLE = ["observation", "action", "reward", "next_observation", "terminated"]
NEXT_ROW = ["observation", "action", "reward", "terminated"]
LAYOUTS = pytest.mark.parametrize("names", [WHOLE, NEXT_ROW], ids=["whole", "next_row"])
IN_EACH_MODE = pytest.mark.parametrize("mode", MODES)
TYPES = {"action": "int32", "terminated": "bool", "truncated": "bool"}


class Counting(gym.Env):
    """Observes (environment, episode, step): no observation comes twice. Episodes end after 1 to 9 steps."""

    observation_space = gym.spaces.Box(-1, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def __init__(self) -> None:
        self.number = self.episode = -1

    def observe(self) -> Any:
        return np.array([self.number, self.episode, self.steps], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number = self.number if seed is None else seed
        self.episode, self.steps = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        terminated = self.steps >= 1 + (4 * self.number + 5 * self.episode) % 9
        return self.observe(), 100.0 * self.steps + int(action), terminated, False, {}


def test_it_shows_what_it_is_for():
    buffer = ReplayBuffer(1, 9, [(3,), ()], ["float32"] * 2, names=["observation", "reward"], num_envs=3)
    expected = "VectorRows(columns=['observation', 'reward'], num_envs=3, autoreset_mode='NextStep')"
    assert repr(VectorRows(buffer, NEXT_STEP)) == expected


class Goals(Counting):
    """The same with an observation that is a dict."""

    observation_space = gym.spaces.Dict(
        {key: Counting.observation_space for key in ("observation", "achieved_goal", "desired_goal")}
    )

    def observe(self) -> Any:
        base = super().observe()
        return {"observation": base, "achieved_goal": base + 1000, "desired_goal": base + 2000}


class Transition(NamedTuple):
    observation: Any
    action: int
    reward: float
    next_observation: Any  # None if a buffer of the layout "next row" has none and needs none
    terminated: bool
    truncated: bool = False


def plain(observation: Any) -> Any:
    """Convert an observation to a form for ==."""
    if isinstance(observation, dict):
        return {key: plain(value) for key, value in observation.items()}
    return np.asarray(observation, np.float32).tolist()


class Log(gym.Wrapper):
    """Logs the episodes of one environment, each a list of its transitions."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.log: list[list[Transition]] = []

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.log.append([])
        self.last = plain(result[0])
        return result

    def step(self, action: Any) -> Any:
        result = observation, reward, terminated, truncated, _ = super().step(action)
        before, self.last = self.last, plain(observation)
        self.log[-1].append(Transition(before, int(action), float(reward), self.last, bool(terminated), truncated))
        return result


class Recorder:
    """The part of a buffer that `VectorRows` needs. Records each insertion."""

    def __init__(self, names: list[str], num_envs: int) -> None:
        self.names, self.num_envs = names, num_envs
        self.types = [TYPES.get(name, "float32") for name in names]
        self.whole = "next_observation" in names
        self.inserted: list[dict[str, Any]] = []
        self.broken_off: Any = []  # observations acted on last before a reset broke episodes off

    def insert(self, exp: Any, *, end: Any, final: Any) -> None:
        assert list(exp) == self.names
        assert all(len(column) == self.num_envs for column in exp.values())
        assert end.dtype == final.dtype == bool
        self.inserted.append({**exp, "end": end.copy(), "final": final.copy()})


@pytest.fixture(scope="module", autouse=True)
def _environments():
    for name, cls in (("Counting-v0", Counting), ("Goals-v0", Goals)):
        gym.register(name, entry_point=cls, max_episode_steps=5, disable_env_checker=True)
    yield
    for name in ("Counting-v0", "Goals-v0"):
        del gym.registry[name]


def make_envs(name: str, num_envs: int, mode: AutoresetMode, vectorization: str = "sync", **kwargs: Any) -> Any:
    options = {"autoreset_mode": mode, **({"context": "spawn"} if vectorization == "async" else {})}
    wrappers = [Log] if vectorization == "sync" else []
    return gym.make_vec(name, num_envs, vectorization, vector_kwargs=options, wrappers=wrappers, **kwargs)


def collect(envs: Any, rows: Any, buffer: Recorder, steps: int, *, break_at: int = -1) -> Any:
    """Take random steps, recorded as in `docs/vector.md`. After step `break_at` all environments are reset.

    Returns the observation that the row after the last one would hold.
    """
    envs.action_space.seed(7)
    observation, _ = envs.reset(seed=list(range(buffer.num_envs)))
    for step in range(steps):
        action = envs.action_space.sample()
        result = envs.step(action)
        exp, flags = rows.step(observation, action, *result)
        observation, done = result[0], result[2] | result[3]
        if step == break_at:
            buffer.broken_off = plain(exp["observation"])
            flags["end"][:] = True
            if not buffer.whole:
                flags["final"] |= ~result[2]
            observation, _ = envs.reset()
            rows.reset()
        elif done.any() and envs.metadata["autoreset_mode"] is DISABLED:
            observation, _ = envs.reset(options={"reset_mask": done})
        buffer.insert(exp, **flags)
    return observation


def drawable(buffer: Recorder, last: Any) -> list[list[list[Transition]]]:
    """Return each stream's episodes: lists of the transitions that a buffer may draw, by its rows and flags."""
    streams = []
    for i in range(buffer.num_envs):
        stream = [{name: column[i].tolist() for name, column in row.items()} for row in buffer.inserted]
        episodes: list[list[Transition]] = [[]]
        for row, following in zip(stream, [*stream[1:], {"observation": plain(last)[i]}]):
            if not row["final"]:
                if buffer.whole:
                    after = row["next_observation"]
                elif row["terminated"]:
                    after = None
                else:
                    assert not row["end"], "a row without its next observation may be drawn"
                    after = following["observation"]
                episodes[-1].append(
                    Transition(row["observation"], row["action"], row["reward"], after, row["terminated"])
                )
            if row["end"] or row["final"]:
                episodes.append([])
        streams.append([episode for episode in episodes if episode])
    return streams


def is_lost(step: Transition, envs: Any, buffer: Recorder) -> bool:
    """Return True if by `docs/vector.md` this transition is not drawn."""
    cut = step.observation in buffer.broken_off or (step.truncated and envs.metadata["autoreset_mode"] is not NEXT_STEP)
    return cut and not step.terminated and not buffer.whole


def happened(envs: Any, buffer: Recorder) -> list[list[list[Transition]]]:
    """Return the expected result of `drawable`, by the logs of the environments."""

    def stored(step: Transition) -> Transition:
        after = None if step.terminated and not buffer.whole else step.next_observation
        return step._replace(truncated=False, next_observation=after)

    streams = []
    for log in envs.get_attr("log"):
        episodes = [[stored(step) for step in episode if not is_lost(step, envs, buffer)] for episode in log]
        streams.append([episode for episode in episodes if episode])
    return streams


def steps_of(envs: Any) -> list[Transition]:
    return [step for log in envs.get_attr("log") for episode in log for step in episode]


@IN_EACH_MODE
@LAYOUTS
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("name", ["Counting-v0", "CartPole-v1"])
def test_a_buffer_may_draw_exactly_what_happened(mode: AutoresetMode, names: list[str], num_envs: int, name: str):
    envs = make_envs(name, num_envs, mode, max_episode_steps=5 if name == "Counting-v0" else 12)
    buffer = Recorder(names, num_envs)
    last = collect(envs, VectorRows(buffer, envs.metadata["autoreset_mode"]), buffer, 300)
    drawn = drawable(buffer, last)
    assert drawn == happened(envs, buffer)

    steps = steps_of(envs)
    assert any(step.terminated for step in steps)
    cut = [step for step in steps if step.truncated and not step.terminated]
    assert cut
    missing = len(steps) - sum(len(episode) for stream in drawn for episode in stream)
    assert missing == (0 if buffer.whole or mode is NEXT_STEP else len(cut))


def test_the_counting_environment_meets_every_case():
    envs = make_envs("Counting-v0", 3, SAME_STEP)
    collect(envs, VectorRows(Recorder(WHOLE, 3), SAME_STEP), Recorder(WHOLE, 3), 150)
    for log in envs.get_attr("log"):
        ends = {(episode[-1].terminated, episode[-1].truncated) for episode in log[:-1]}
        assert ends == {(True, False), (False, True), (True, True)}
        assert {len(episode) for episode in log[:-1]} == {1, 2, 3, 4, 5}


@IN_EACH_MODE
@LAYOUTS
@pytest.mark.parametrize("break_at", range(20, 30))
def test_a_reset_that_breaks_episodes_off(mode: AutoresetMode, names: list[str], break_at: int):
    envs = make_envs("Counting-v0", 3, mode)
    buffer = Recorder(names, 3)
    last = collect(envs, VectorRows(buffer, mode), buffer, 60, break_at=break_at)
    assert drawable(buffer, last) == happened(envs, buffer)


#: Buffers that read next observations from the next row, whose samples show which rows they join.
JOINED: dict[str, Any] = {
    "returns": lambda **more: ReplayBuffer(1, 40, views=[NStep(1, 0.9)], **more),
    "returns on arrays": lambda **more: host.ReplayBuffer(1, 40, views=[NStep(2, 0.9)], **more),
    "sequences": lambda **more: host.SequenceReplayBuffer(1, 40, sequence_length=3, pad_end=True, **more),
    "returns of sequences": lambda **more: host.SequenceReplayBuffer(
        1, 40, sequence_length=3, pad_end=True, views=[NStep(1, 0.9)], **more
    ),
    "episodes": lambda **more: host.EpisodeReplayBuffer(1, 40, max_episode_length=9, **more),
    "frames, without terminations": lambda **more: host.ReplayBuffer(1, 40, views=[FrameStack(2)], **more),
}


@pytest.mark.parametrize("mode", [*MODES, None])
@pytest.mark.parametrize("cut", ["end", "end_episodes", "terminated later"])
@pytest.mark.parametrize("kind", JOINED)
def test_an_episode_of_one_truncated_step_stays_alone(mode: AutoresetMode | None, cut: str, kind: str):
    """It gives its observation to no row of the episode before it, which was cut off."""
    names, types = ["observation", "reward", "terminated"], ["float32", "float32", "bool"]
    if kind == "frames, without terminations":
        names, types = names[:2], types[:2]
    buffer = JOINED[kind](shapes=[()] * len(names), types=types, names=names, seed=0)
    rows, one = VectorRows(buffer, mode), (lambda value: value) if mode is None else (lambda value: np.array([value]))

    def step(now: float, truncated: bool, end: bool = False) -> None:
        info = {"final_obs": one(np.float32(now + 1))} if truncated and mode is SAME_STEP else {}
        if info:
            info |= {"final_obs": np.array([np.float32(now + 1)], object), "_final_obs": np.array([True])}
        result = one(np.float32(now + 1)), one(1.0), one(False), one(truncated), info
        exp, flags = rows.step(one(np.float32(now)), one(0), *result)
        flags["end"] |= end
        buffer.insert(exp, **flags)

    step(1, False)
    step(2, False, end=cut == "end")
    if cut != "end":
        buffer.end_episodes()
    if cut == "terminated later" and "terminated" in names:
        buffer.update([1], {"terminated": [True]})
    rows.reset()
    step(100, True)
    if mode is NEXT_STEP:
        step(101, False)  # resets
    step(200, False)
    step(201, False)
    buffer.end_episodes()
    buffer.check_valid()
    for _ in range(60):
        batch = {name: np.asarray(column).reshape(-1) for name, column in buffer.sample(as_dict=True).items()}
        seen = batch["observation"][batch["observation"] > 0] // 100
        if batch.get("discount", np.ones(1)).any() and "next_observation" in batch:
            seen = np.append(seen, batch["next_observation"][batch["next_observation"] > 0] // 100)
        assert len(set(seen.tolist())) == 1, batch


class Blind:
    """Rows of environments recorded as if in another mode, without the `info` that would reveal it to `VectorRows`."""

    def __init__(self, buffer: Recorder, mode: AutoresetMode) -> None:
        self.rows = VectorRows(buffer, mode)

    def step(self, *step: Any) -> Any:
        return self.rows.step(*step[:-1], {})


@pytest.mark.parametrize(
    ("actual", "recorded", "names"),
    [
        (NEXT_STEP, DISABLED, WHOLE),
        (NEXT_STEP, DISABLED, NEXT_ROW),
        (SAME_STEP, DISABLED, WHOLE),  # with NEXT_ROW the rows of these two modes are the same
        (SAME_STEP, NEXT_STEP, WHOLE),
        (SAME_STEP, NEXT_STEP, NEXT_ROW),
        (DISABLED, NEXT_STEP, WHOLE),
        (DISABLED, NEXT_STEP, NEXT_ROW),
    ],
)
def test_the_check_rejects_rows_of_another_mode(actual: AutoresetMode, recorded: AutoresetMode, names: list[str]):
    envs = make_envs("CartPole-v1", 3, actual, max_episode_steps=12)
    buffer = Recorder(names, 3)
    last = collect(envs, Blind(buffer, recorded), buffer, 60)
    with pytest.raises(AssertionError):
        assert drawable(buffer, last) == happened(envs, buffer)


@IN_EACH_MODE
@pytest.mark.parametrize("whole", [True, False])
def test_observations_that_are_dicts(mode: AutoresetMode, whole: bool):
    kept = ["observation", "achieved_goal"]  # the third key is not a column
    names = [*kept, "action", "reward", "terminated", *([f"next_{key}" for key in kept] if whole else [])]
    envs = make_envs("Goals-v0", 3, mode)
    buffer = Recorder(names, 3)
    last = collect(envs, VectorRows(buffer, mode), buffer, 60)
    for row in buffer.inserted:
        for prefix in ("", "next_") if whole else ("",):
            base, goal = row[f"{prefix}observation"], row.pop(f"{prefix}achieved_goal")
            np.testing.assert_array_equal(goal, base + 1000)
    for log in envs.get_attr("log"):
        for episode in log:
            episode[:] = [
                step._replace(
                    observation=step.observation["observation"], next_observation=step.next_observation["observation"]
                )
                for step in episode
            ]
    assert drawable(buffer, last["observation"]) == happened(envs, buffer)


@IN_EACH_MODE
def test_dicts_without_the_key_observation(mode: AutoresetMode):
    """A column `next_image` makes whole transitions like `next_observation`. Not every key needs such a column."""
    rows = VectorRows(Recorder(["image", "state", "next_image"], 2), mode)
    final = np.array([None, {"image": np.full(2, 9.0), "state": np.full(1, 9.0)}], object)
    info = {"final_obs": final, "_final_obs": np.array([False, True])} if mode is SAME_STEP else {}
    observation, after = ({"image": np.full((2, 2), x), "state": np.full((2, 1), x)} for x in (1.0, 2.0))
    exp, flags = rows.step(observation, [0, 0], after, [0.0, 0.0], [False, False], [False, True], info)
    assert exp["next_image"].tolist() == [[2, 2], [9, 9] if mode is SAME_STEP else [2, 2]]
    assert exp["state"].tolist() == [[1], [1]]
    assert {key: flag.tolist() for key, flag in flags.items()} == {"end": [False, True], "final": [False, False]}


def test_processes_give_the_rows_that_one_process_gives():
    """In the mode that says most beside the rows: the final observations."""
    mode, inserted = SAME_STEP, []
    for vectorization in ("sync", "async"):
        envs = make_envs("CartPole-v1", 2, mode, vectorization, max_episode_steps=12)
        buffer = Recorder([*WHOLE, "truncated"], 2)
        collect(envs, VectorRows(buffer, envs.metadata["autoreset_mode"]), buffer, 40)
        inserted.append([{name: column.tolist() for name, column in row.items()} for row in buffer.inserted])
        envs.close()
    assert inserted[0] == inserted[1]


def step_of(mode: Any = DISABLED, names: list[str] = WHOLE, rows: Any = None, **changes: Any) -> Any:
    """Take a hand-worked step of two environments; `changes` replace arguments of `VectorRows.step`, or add columns."""
    arguments = {
        "observation": np.ones((2, 3), np.float32),
        "action": np.array([1, 2]),
        "next_observation": np.full((2, 3), 2, np.float32),
        "reward": np.array([0.5, 1.5]),
        "terminated": np.array([False, False]),
        "truncated": np.array([False, False]),
        "info": {},
        **changes,
    }
    return (rows or VectorRows(Recorder(names, 2), mode)).step(**arguments)


def flags_of(step: Any) -> Any:
    return step[1]["end"].tolist(), step[1]["final"].tolist()


NO, FIRST, SECOND, BOTH = [False, False], [True, False], [False, True], [True, True]


def test_columns_are_copies_in_the_columns_types():
    observation = np.ones((3, 2), np.float32).T  # not in C order, like gymnasium's CartPoleVectorEnv
    terminated, log_prob = np.array(SECOND), np.array([0.25, 0.5])
    rows = VectorRows(Recorder([*WHOLE, "log_prob"], 2), NEXT_STEP)
    exp, flags = step_of(rows=rows, observation=observation, terminated=terminated, log_prob=log_prob)
    observation[:], terminated[:], log_prob[:], flags["end"][:] = 7, True, 7, True
    assert exp["observation"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert exp["terminated"].tolist() == SECOND
    assert exp["log_prob"].tolist() == [0.25, 0.5]
    assert {name: str(column.dtype) for name, column in exp.items()} == {
        "observation": "float32",
        "action": "int32",
        "reward": "float32",
        "next_observation": "float32",
        "terminated": "bool",
        "log_prob": "float32",
    }
    assert all(column.flags.c_contiguous and column.flags.owndata for column in exp.values())
    assert flags_of(step_of(rows=rows, log_prob=log_prob)) == (SECOND, SECOND)


def test_the_final_observation_takes_the_columns_type():
    """gymnasium returns `final_obs` as the environment returned it, with a dtype that may differ from its space."""
    final = np.array([[4, 5, 6], None], object)
    final[0] = np.array([4, 5, 6], np.float64)
    info = {"final_obs": final, "_final_obs": np.array(FIRST)}
    exp, _ = step_of(SAME_STEP, truncated=np.array(FIRST), info=info)
    assert exp["next_observation"].tolist() == [[4, 5, 6], [2, 2, 2]]
    assert exp["next_observation"].dtype == np.float32


def test_final_observations_as_one_array_without_a_mask():
    final = np.full((2, 3), 9, np.float32)
    exp, _ = step_of(SAME_STEP, truncated=np.array(FIRST), info={"final_obs": final})
    assert exp["next_observation"].tolist() == [[9, 9, 9], [2, 2, 2]]


def test_final_observations_as_a_dict_of_arrays():
    final = {"observation": np.full((2, 3), 9, np.float32)}
    info = {"final_obs": final, "_final_obs": np.array(FIRST)}
    parts = {"observation": {"observation": np.zeros((2, 3))}, "next_observation": {"observation": np.ones((2, 3))}}
    exp, _ = step_of(SAME_STEP, truncated=np.array(FIRST), info=info, **parts)
    assert exp["next_observation"].tolist() == [[9, 9, 9], [1, 1, 1]]


def test_after_an_error_the_step_before_is_remembered():
    rows = VectorRows(Recorder(WHOLE, 2), NEXT_STEP)
    step_of(rows=rows, terminated=np.array(FIRST))
    with pytest.raises(TypeError):
        step_of(rows=rows, terminated=np.array(SECOND), reward=np.array(["a", "b"]))
    assert flags_of(step_of(rows=rows)) == (FIRST, FIRST)
    with pytest.raises(TypeError):
        step_of(rows=rows, terminated=np.array(SECOND), reward=np.array(["a", "b"]))
    assert flags_of(step_of(rows=rows)) == (NO, NO)


@pytest.mark.parametrize("value", [*MODES, "next_step", "NextStep", "SAME_STEP", "sameStep", "disabled", "DISABLED"])
def test_spellings_of_the_mode(value: Any):
    mode = VectorRows(Recorder(WHOLE, 2), value).autoreset_mode
    assert mode in {mode.value for mode in MODES}
    assert mode.lower() == getattr(value, "value", value).replace("_", "").lower()


def test_a_reset_step_that_is_done():
    rows = VectorRows(Recorder(WHOLE, 2), NEXT_STEP)
    step_of(rows=rows, terminated=np.array(SECOND))
    message = "but got NextStep, and environments [1] are done in the step that should reset them (or call reset())."
    with pytest.raises(ValueError, match=re.escape(message)):
        step_of(rows=rows, truncated=np.array(BOTH))


# Buffers whose rows know no episodes.

PLAIN: dict[str, Any] = {
    "uniform": lambda **given: ReplayBuffer(1, **given),
    "made with num_envs": lambda **given: ReplayBuffer(1, **given, num_envs=3),
    "prioritized": lambda **given: PrioritizedReplayBuffer(1, **given),
    "queue": lambda **given: ReplayQueue(1, **given),
}


def stored_transitions(buffer: Any) -> list[tuple[Any, ...]]:
    size = int(buffer.size())
    columns = [np.asarray(getattr(part, "asnumpy", lambda part=part: part)()) for part in buffer.get_item(range(size))]
    return sorted(tuple(np.concatenate([np.ravel(column[i]) for column in columns])) for i in range(size))


def record(rows: VectorRows, buffer: Any, envs: Any, steps: int) -> list[tuple[Any, ...]]:
    """Insert steps of environments, and return the transitions that they made."""
    observation, _ = envs.reset(seed=0)
    for _ in range(steps):
        action = envs.action_space.sample()
        following, *result = envs.step(action)
        exp, flags = rows.step(observation, action, following, *result)
        buffer.insert(exp, **flags)
        observation, done = following, result[1] | result[2]
        if rows.autoreset_mode == DISABLED.value and done.any():
            observation, _ = envs.reset(options={"reset_mask": done})
    logged = [step for env in happened(envs, Recorder(WHOLE, 3)) for episode in env for step in episode]
    return sorted((*s.observation, s.action, s.reward, *s.next_observation, float(s.terminated)) for s in logged)


#: The kind of buffer matters where rows are left out.
CASES = [*(("uniform", mode) for mode in MODES), *((kind, NEXT_STEP) for kind in PLAIN if kind != "uniform")]


@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_a_buffer_without_episodes_gets_real_transitions_alone(kind: str, mode: AutoresetMode):
    shapes, types = [(3,), (), (), (3,), ()], ["float32", "int32", "float32", "float32", "bool"]
    buffer = PLAIN[kind](capacity=400, shapes=shapes, types=types, names=WHOLE)
    envs = make_envs("Counting-v0", 3, mode)
    expected = record(VectorRows(buffer, mode), buffer, envs, 60)
    assert stored_transitions(buffer) == expected
    assert (len(expected) < 180) == (mode == NEXT_STEP)


def test_a_step_in_which_all_environments_reset_inserts_nothing():
    buffer = ReplayBuffer(1, 8, [(), ()], ["float32"] * 2, names=["observation", "reward"], weighted=True)
    buffer.limiter = RateLimiter(1, 1, 1, timeout=0)
    rows, no, yes = VectorRows(buffer, NEXT_STEP), np.zeros(1, bool), np.ones(1, bool)
    for terminated in (yes, no):
        exp, flags = rows.step(np.zeros(1), np.zeros(1), np.ones(1), np.ones(1), terminated, no, {})
        assert flags == {}
        handles = buffer.insert(exp, with_indices=True)
    assert handles.shape == (0,)
    assert buffer.size() == 1


def test_an_attached_process_makes_the_same_rows(tmp_path: Any):
    names, shapes = ["observation", "achieved_goal", "desired_goal", "reward"], [()] * 4
    views = [HindsightRelabel("future", 1.0, np.subtract)]
    learners = [
        ReplayBuffer(1, 8, shapes, ["float32"] * 4, names=names, views=views, storage=str(tmp_path / "goals")),
        ReplayBuffer(1, 8, shapes, ["float32"] * 4, names=names, storage=str(tmp_path / "plain")),
    ]
    cases = zip(learners, ("goals", "plain"), ([2.0], [1.0]), ({"end", "final"}, set()), strict=True)
    for learner, folder, achieved, flags in cases:
        attached = attach(str(tmp_path / folder))
        rows, no = VectorRows(attached, NEXT_STEP), np.zeros(1, bool)
        now, after = ({"observation": x, "achieved_goal": x, "desired_goal": x} for x in (np.ones(1), np.full(1, 2.0)))
        exp, given = rows.step(now, np.zeros(1), after, np.zeros(1), no, no, {})
        assert exp["achieved_goal"].tolist() == achieved
        assert given.keys() == flags
        attached.insert(exp, **given)
        assert learner.size() == 1
        attached.close()
        learner.close()


# Goals.


class Line(gym.Env):
    """A place that grows by one with each step, and a goal far away. Episodes end after five steps."""

    box = gym.spaces.Box(-99, 99, (1,), np.float32)
    observation_space = gym.spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)
    action_space = gym.spaces.Discrete(2)

    def observe(self) -> Any:
        place = np.array([self.place], np.float32)
        return {"observation": place, "achieved_goal": place.copy(), "desired_goal": np.full(1, 50, np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.place += 1
        return self.observe(), -1.0, False, self.place >= 5, {}


def at_goal(achieved: Any, goal: Any) -> Any:
    there = (achieved == goal)[:, 0]
    return there.astype(np.float32) - 1, there


@IN_EACH_MODE
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("following", [[], ["observation"], ["observation", "achieved_goal", "desired_goal"]], ids=len)
def test_default_columns_of_hindsight_and_rows_of_goal_environments_fit(
    mode: AutoresetMode, n: int, following: list[str]
):
    keys = ["observation", "achieved_goal", "desired_goal"]
    names = [*keys, "reward", "terminated", *(f"next_{key}" for key in following)]
    shapes = [(1,)] * 3 + [(), ()] + [(1,)] * len(following)
    types = ["float32"] * 4 + ["bool"] + ["float32"] * len(following)
    views = [HindsightRelabel("future", 0.8, at_goal), NStep(n, 0.5)]
    buffer = ReplayBuffer(16, 120, shapes, types, names=names, num_envs=2, views=views, seed=0)
    envs = gym.vector.SyncVectorEnv([Line, Line], autoreset_mode=mode)
    rows = VectorRows(buffer, mode)
    observation, _ = envs.reset()
    for _ in range(14):
        result = envs.step(np.zeros(2, int))
        exp, flags = rows.step(observation, np.zeros(2, int), *result)
        buffer.insert(exp, **flags)
        observation, done = result[0], result[2] | result[3]
        if mode == DISABLED and done.any():
            observation, _ = envs.reset(options={"reset_mask": done})
    goals = set()
    for _ in range(20):
        sample = {key: part.asnumpy().ravel() for key, part in buffer.sample(as_dict=True).items()}
        for i, (place, goal) in enumerate(zip(sample["observation"], sample["desired_goal"], strict=True)):
            steps = sample["next_observation"][i] - place
            assert 1 <= steps <= n
            assert place + steps <= min(goal, 5)
            ends = place + steps == goal
            assert sample["reward"][i] == sum(-(0.5**k) for k in range(int(steps) - ends))
            assert sample["discount"][i] == (0 if ends else 0.5**steps)
            assert sample["terminated"][i] == ends
            if "desired_goal" in following:
                assert sample["next_desired_goal"][i] == goal
            goals.add(goal)
    assert {2, 3, 4, 50} <= goals  # the environments run on beyond most of them
