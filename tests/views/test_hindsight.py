"""Hindsight: how likely each goal is, and what reward functions may be. `test_twin.py` compares goals bit for bit."""

import collections
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from bodies import filled as filled_by
from checks import assert_frequencies, assert_rows, uniform
from mindspore import Tensor, ops
from model import Model
from model_rows import Views

from mindspore_replay import HindsightRelabel, MixedReplay, NStep, ReplayBuffer, SequenceReplayBuffer, host

GOALS = ["achieved_goal", "desired_goal", "reward"]


def reward_fn(achieved: Any, goal: Any) -> Any:
    """Return a reward that identifies its two goals, by the sums of the columns."""
    return achieved.sum(-1) * 1000.0 + goal.sum(-1)


def achieved_goals(numbers: np.ndarray) -> np.ndarray:
    return np.stack([numbers - 0.25, numbers * 0 + 0.25], 1)


def with_goals(strategy: str, ratio: float, num_envs: int = 1, deleted: Iterable[int] = ()) -> tuple[Any, Model]:
    """Return a buffer and its twin; rows of the first episode are evicted, and the last one is running.

    A row's achieved goal is its number from 1 on, and its own goal is negative.
    """
    types, views = ["float32"] * 3 + ["bool"], [HindsightRelabel(strategy, ratio, reward_fn)]
    columns: dict[str, Any] = {"shapes": [(2,), (2,), (), ()], "types": types, "names": [*GOALS, "terminated"]}
    buffer = host.ReplayBuffer(16, 24, **columns, views=views, num_envs=num_envs, seed=5)
    twin = Model(ReplayBuffer, 16, 24, num_envs=num_envs, views=Views())
    script = [0] * 5 + [1] + [0] * 4 + [1] + [0] * 3 + [2] + [1] + [0] * 5 + [2] + [0] * 4
    flags = [script[(step + 11 * env) % len(script)] for step in range(len(script)) for env in range(num_envs)]
    numbers = np.arange(1, len(flags) + 1, dtype=np.float32)
    ends, finals = ([flag == value for flag in flags] for value in (1, 2))
    rows = [achieved_goals(numbers), np.stack([-numbers, numbers * 0], 1), numbers + 0.5, np.array(ends)]
    buffer.insert(rows, end=ends, final=finals)
    twin.insert([(int(number),) for number in numbers], ends=ends, finals=finals)
    gone = [twin.inserted - 1 - behind for behind in deleted]
    if gone:
        assert int(buffer.delete(gone)) == twin.delete(gone) == len(gone)
    return buffer, twin


def goal_shares(twin: Model, handle: int, strategy: str, ratio: float) -> dict[int | None, float]:
    """Return the probability that each row gives its goal to a row; `None` is no other goal."""
    start, rows = twin.record_of(handle), twin.records
    same = [row for row in rows if row.episode == start.episode and not row.final]
    sources = {"future": [row for row in same if row.step >= start.step], "random": rows}[strategy]
    shares: dict[int | None, float] = {
        row.serial: ratio / len(sources) for row in sources if not (row.deleted or row.final)
    }
    kept = 1 - sum(shares.values())
    return shares | ({None: kept} if kept > 1e-9 else {})


def draw_goals(buffer: Any, batches: int) -> list[tuple[int, int | None]]:
    """Return rows and the rows that gave them a goal; check each sample's reward."""
    pairs: list[tuple[int, int | None]] = []
    for _ in range(batches):
        handles, achieved, goal, reward, _ = buffer.sample(with_indices=True)
        own = goal[:, 0] < 0
        np.testing.assert_array_equal(achieved, achieved_goals(handles + 1))
        np.testing.assert_array_equal(goal[own], np.stack([-handles[own] - 1, handles[own] * 0], 1))
        number = goal.sum(1)
        np.testing.assert_array_equal(goal[~own], achieved_goals(number[~own]))
        np.testing.assert_array_equal(reward, np.where(own, handles + 1.5, (handles + 1) * 1000 + number))
        pairs += zip(handles.tolist(), [int(g) - 1 if g > 0 else None for g in number], strict=True)
    return pairs


def assert_goals(pairs: Sequence[tuple[int, int | None]], twin: Model, strategy: str, ratio: float) -> None:
    """Check that rows are equally frequent, and that each row gets goals as often as the strategy says."""
    assert_frequencies([handle for handle, _ in pairs], uniform(twin.legal()))
    if strategy == "random":  # too many per row
        assert_frequencies([goal for _, goal in pairs], goal_shares(twin, twin.legal()[0], strategy, ratio))
        return
    for handle in twin.legal():
        goals = [goal for start, goal in pairs if start == handle]
        assert_frequencies(goals, goal_shares(twin, handle, strategy, ratio))


BATCHES = 320


@pytest.mark.parametrize(
    ("strategy", "ratio", "num_envs", "deleted"),
    [("future", 1.0, 1, ()), ("future", 0.8, 3, (2, 8, 9, 12)), ("random", 0.8, 3, (2, 8, 9, 12))],
)
def test_goals(strategy: str, ratio: float, num_envs: int, deleted: tuple[int, ...]):
    buffer, twin = with_goals(strategy, ratio, num_envs, deleted)
    assert_goals(draw_goals(buffer, BATCHES), twin, strategy, ratio)


def wrong_goals(twin: Model, handle: int, rng: np.random.Generator) -> dict[str, int | None]:
    """Draw a goal for a row from samplers that are wrong for "future" with ratio 0.8."""
    rows, start = twin.records, twin.record_of(handle)
    same = [row for row in rows if row.episode == start.episode]
    future = [row for row in same if row.step >= start.step]
    steps = [row for row in future if not row.final]
    alive = [row for row in steps if not row.deleted]
    pick = lambda sources: sources[rng.integers(len(sources))].serial  # noqa: E731
    keep = rng.random() > 0.8
    later = [row for row in steps if row is not start] or steps
    around = rows[rows.index(start) :] + rows[:2]
    chosen = {
        "right": pick(steps),
        "from the whole episode": pick([row for row in same if not row.final]),
        "only later rows": pick(later),
        "final rows too": pick(future),
        "the rest of the ring": pick(rows[rows.index(start) :]),
        "around the cursor": pick(around),
        "the end too often": pick([*steps, steps[-1]]),
        "deleted rows give their share to others": pick(alive),
    }
    goals: dict[str, int | None] = {name: None if keep else goal for name, goal in chosen.items()}
    goals["always"] = chosen["right"]
    goals["never"] = None
    for name in ("right", "always"):
        if goals[name] is not None and twin.record_of(goals[name]).deleted:
            goals[name] = None
    return goals


def test_the_check_of_goals_rejects_wrong_samplers():
    twin = with_goals("future", 0.8, 1, (2, 8, 9, 12))[1]
    rng = np.random.default_rng(0)
    drawn: dict[str, list[Any]] = collections.defaultdict(list)
    for handle in rng.choice(twin.legal(), BATCHES * 16).tolist():
        for name, goal in wrong_goals(twin, handle, rng).items():
            drawn[name].append((handle, goal))
    assert_goals(drawn.pop("right"), twin, "future", 0.8)
    assert len(drawn) == 9
    for pairs in drawn.values():
        with pytest.raises(AssertionError):
            assert_goals(pairs, twin, "future", 0.8)
    with pytest.raises(AssertionError):
        assert_goals(drawn["always"], twin, "random", 0.8)


@pytest.mark.parametrize("ratio", [0.0, 0.8])
def test_the_share_of_samples_with_another_goal(ratio: float):
    buffer, _ = with_goals("future", ratio)
    relabelled = [goal is not None for _, goal in draw_goals(buffer, 200)]
    shares = {True: ratio, False: 1 - ratio}

    def check(outcomes: Sequence[bool]) -> None:
        assert_frequencies(outcomes, {outcome: share for outcome, share in shares.items() if share > 1e-9})

    check(relabelled)
    for wrong in (0.0, 0.5, 0.75, 1.0):
        if wrong != ratio:
            outcomes = np.random.default_rng(1).random(len(relabelled)) < wrong
            with pytest.raises(AssertionError):
                check(outcomes.tolist())


_ran: list[int] = []


@ops.constexpr
def note_call() -> float:
    _ran.append(1)
    return 0.0


def noted_reward_fn(achieved: Any, goal: Any) -> Any:
    return ops.reduce_sum(achieved - goal, -1) + note_call()


def test_the_reward_function_is_compiled():
    """Python runs it while the graph is compiled, and never after that."""
    buffer = ReplayBuffer(
        2,
        8,
        [(2,), (2,), ()],
        [ms.float32] * 3,
        names=GOALS,
        views=[HindsightRelabel("final", 1.0, noted_reward_fn)],
        seed=0,
        backend="native",
    )
    buffer.insert([np.ones((6, 2), np.float32), np.zeros((6, 2), np.float32), np.ones(6, np.float32)])
    assert buffer.sample()[2].asnumpy().tolist() == [0, 0]
    before = len(_ran)
    for _ in range(5):
        buffer.sample()
    assert len(_ran) == before


GAMMA = 0.5


class SampleCall(Kept):
    """`sample` inside a compiled function."""

    @ms.jit
    def sample(self):
        return self.buffer.sample()


# Forms of reward functions.

PAIRS = {"shapes": [(2,), (2,), (), ()], "types": ["float32"] * 3 + ["bool"], "names": [*GOALS, "terminated"]}


def distance(achieved: Any, goal: Any) -> Any:
    return -np.abs(achieved - goal).sum(axis=-1)


def graph_distance(achieved: Any, goal: Any) -> Any:
    return -ops.abs(achieved - goal).sum(axis=-1)


def per_axis(achieved: Any, goal: Any) -> Any:
    return -ops.abs(achieved - goal)


def of_float64(achieved: Any, goal: Any) -> Any:
    return ops.cast(graph_distance(achieved, goal), ms.float64)


class Task:
    def compute_reward(self, achieved: Any, goal: Any, info: Any) -> Any:
        assert achieved.shape == goal.shape
        return -np.linalg.norm(achieved.astype(np.float64) - goal, ord=1, axis=-1)

    def of_graph(self, achieved: Any, goal: Any, scale: float = 1.0) -> Any:
        return -scale * ops.abs(achieved - goal).sum(axis=-1)


def pairs(reward_fn: Any, backend: str = "native", **options: Any) -> Any:
    views = [HindsightRelabel("future", 1.0, reward_fn)]
    places = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    rows = [places, -places, places[:, 0].copy(), np.zeros(8, bool)]
    return filled_by(
        lambda backend: ReplayBuffer(4, 50, **PAIRS, views=views, seed=0, backend=backend, **options),
        backend,
        lambda buffer: buffer.insert(rows, end=np.arange(8) == 7),
    )


@pytest.mark.parametrize(
    "reward_fn",
    [
        distance,
        functools.partial(Task().compute_reward, info={}),
        Task().compute_reward,
        lambda achieved, goal: [float(-abs(a - g).sum()) for a, g in zip(achieved, goal)],
        lambda achieved, goal: -ops.abs(achieved - goal).sum(axis=-1),
        of_float64,
    ],
    ids=[
        "NumPy",
        "compute_reward of float64",
        "compute_reward with info",
        "list",
        "inline lambda",
        "Tensor of float64",
    ],
)
def test_functions_that_serve_samples_from_python(reward_fn: Any):
    buffer = pairs(reward_fn)
    for _ in range(3):
        achieved, goal, reward, _ = (part.asnumpy() for part in buffer.sample())
        assert reward.dtype == np.float32
        np.testing.assert_allclose(reward, -np.abs(achieved - goal).sum(-1), rtol=1e-6)


def test_functions_that_serve_mixtures():
    functions = distance, lambda achieved, goal: -ops.abs(achieved - goal).sum(axis=-1)
    mixed = MixedReplay([(pairs(one), 0.5) for one in functions], 8)
    for _ in range(2):
        _, achieved, goal, reward, _ = (part.asnumpy() for part in mixed.sample())
        np.testing.assert_allclose(reward, -np.abs(achieved - goal).sum(-1), rtol=1e-6)


def test_functions_get_bfloat16_as_float32():
    found: list[Any] = []
    view = HindsightRelabel("final", 1.0, lambda *goals: found.append(goals) or distance(*goals))
    options = {"names": GOALS, "views": [view], "seed": 0, "backend": "native"}
    buffer = ReplayBuffer(4, 16, [(2,), (2,), ()], ["bfloat16"] * 3, **options)
    places = Tensor(np.arange(16).reshape(8, 2), ms.bfloat16)
    buffer.insert([places, places * 0, Tensor(np.arange(8), ms.bfloat16)], end=np.arange(8) == 7)
    achieved, goal, reward = buffer.sample()
    assert reward.dtype == ms.bfloat16
    assert [part.dtype for part in found[-1]] == [np.float32] * 2
    expected = distance(*(part.astype(ms.float32).asnumpy() for part in (achieved, goal)))
    np.testing.assert_array_equal(reward.astype(ms.float32).asnumpy(), expected)


def test_numpy_functions_run_no_graph():
    assert not pairs(distance).state.runs_graphs
    assert pairs(graph_distance).state.runs_graphs


@pytest.mark.slow
@pytest.mark.parametrize(
    "reward_fn", [graph_distance, Task().of_graph, functools.partial(Task().of_graph, scale=1.0)], ids=lambda _: ""
)
def test_forms_that_serve_graphs(reward_fn: Any):
    for sample in (pairs(reward_fn).sample, SampleCall(pairs(reward_fn)).sample):
        achieved, goal, reward, _ = (part.asnumpy() for part in sample())
        np.testing.assert_allclose(reward, -np.abs(achieved - goal).sum(-1), rtol=1e-6)


BAD_FORMS: dict[str, tuple[Any, type[Exception], str]] = {
    "no sum": (per_axis, ValueError, r"for each row, of shape \(4,\), .* but got .*shape \(4, 2\)"),
    "None": (lambda achieved, goal: None, TypeError, "but got NoneType"),
    "one float": (lambda achieved, goal: 1.0, ValueError, r"but got float of shape \(\)"),
    "an axis kept": (lambda achieved, goal: goal[:, :1], ValueError, r"but got ndarray of shape \(4, 1\)"),
    "texts": (lambda achieved, goal: ["no"] * 4, TypeError, "but got list of <U2"),
    "complex": (lambda achieved, goal: goal[:, 0] * 1j, TypeError, "but got ndarray of complex64"),
    "a failure": (lambda achieved, goal: goal.nothing, RuntimeError, "failed with both. .*'nothing'"),
    "three": (lambda achieved, goal: (goal[:, 0],) * 3, ValueError, r"but got tuple of shape \(3, 4\)"),
}


@pytest.mark.parametrize("name", BAD_FORMS)
def test_what_a_function_may_not_return(name: str):
    reward_fn, kind, text = BAD_FORMS[name]
    with pytest.raises(kind, match=f"^For 'HindsightRelabel', 'reward_fn' must .*{text}"):
        pairs(reward_fn).sample()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reward_fn", "kind", "text"),
    [
        (distance, TypeError, "must return a Tensor, or two, but got .*MindSpore's operators"),
        (per_axis, ValueError, r"but got shape \(4, 2\)\. In a compiled graph"),
        (of_float64, TypeError, r"a reward of float32 .* but got float64 of shape \(4,\)"),
        (
            functools.partial(Task().compute_reward, info={}),
            TypeError,
            "must return a Tensor, or two, but got .*MindSpore's operators",
        ),
    ],
    ids=lambda _: "",
)
def test_what_a_function_may_not_return_in_a_graph(reward_fn: Any, kind: type[Exception], text: str):
    call = SampleCall(pairs(reward_fn))
    with pytest.raises(kind, match=f"^For 'HindsightRelabel', 'reward_fn' .*{text}"):
        call.sample()
    inline = SampleCall(pairs(lambda achieved, goal: -ops.abs(achieved - goal).sum(axis=-1)))
    with pytest.raises(TypeError, match=r"^'?For 'HindsightRelabel', 'reward_fn' must be a function made with def"):
        inline.sample()


# Goals that end the episode.


def reached_fn(achieved: Any, goal: Any) -> Any:
    """Return reward and end for places, written for arrays and for Tensors."""
    there = achieved == goal
    return there.astype("float32") - 1.0, there


LINE = ["observation", "achieved_goal", "desired_goal", "reward", "terminated", "truncated"]


#: Those of an environment that observes its goal.
NESTED = {"desired_goal": "observation.desired_goal"} | {
    name: f"{name}.place" for name in ("observation", "next_observation")
}


def line(
    own_next: bool, n: int, cls: Any = ReplayBuffer, backend: str = "native", nested: bool = False, **options: Any
) -> Any:
    """Return a buffer of walks of seven steps, in which places repeat, cut off by a time limit."""
    names = [*LINE, *["next_observation"] * own_next]
    types = ["float32"] * 4 + ["bool"] * 2 + ["float32"] * own_next
    if nested:
        names = [NESTED.get(name, name) for name in names]
    views = [HindsightRelabel("episode", 0.9, reached_fn), NStep(n, GAMMA)]
    given = {"names": names, "views": views, "seed": 3, **options}

    def fill(buffer: Any) -> None:
        for episode, t in itertools.product(range(3), range(8)):
            after = float(10 * episode + (t + 1) // 2)
            row = [100.0 * episode + t, after, -1.0, -1.0, False, t == 6]
            if own_next and t < 7:
                buffer.insert([*row, 100.0 * episode + t + 1], end=t == 6)
            elif not own_next:
                buffer.insert(row, final=t == 7)

    return filled_by(lambda backend: cls(8, 60, [()] * len(names), types, backend=backend, **given), backend, fill)


def walked(start: float, goal: float, n: int) -> tuple[float, float, float, bool, bool]:
    """Return the return, the discount, the next observation and the flags of a chain, step by step."""
    episode, first = divmod(int(start), 100)
    total, steps, ends = 0.0, 0, False
    while steps < n and first + steps < 7 and not ends:
        ends = 10 * episode + (first + steps + 1) // 2 == goal
        total += GAMMA**steps * (0.0 if ends else -1.0)
        steps += 1
    return total, 0.0 if ends else GAMMA**steps, start + steps, ends, first + steps == 7


@pytest.mark.parametrize("own_next", [False, True], ids=["next row", "own column"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_goal_that_is_reached_ends_the_chain(n: int, own_next: bool):
    buffer = line(own_next, n)
    shorter = 0
    for _ in range(40):
        sample = {name: part.asnumpy() for name, part in buffer.sample(as_dict=True).items()}
        for i, start in enumerate(sample["observation"].tolist()):
            found = tuple(
                sample[key][i] for key in ("reward", "discount", "next_observation", "terminated", "truncated")
            )
            assert found == walked(start, sample["desired_goal"][i], n)
            shorter += found[2] - start < min(n, 7 - start % 100)
    assert (shorter > 0) == (n > 1)


@pytest.mark.parametrize("own_next", [False, True], ids=["next row", "own column"])
def test_a_goal_that_is_reached_ends_the_chains_of_sequences(own_next: bool):
    buffer = line(own_next, 3, SequenceReplayBuffer, sequence_length=3, burn_in=1, stride=1)
    for _ in range(20):
        sample = {name: part.asnumpy() for name, part in buffer.sample(as_dict=True).items()}
        assert sample["mask"].sum() > 16
        for place in zip(*np.nonzero(sample["mask"]), strict=True):
            found = tuple(
                sample[key][place] for key in ("reward", "discount", "next_observation", "terminated", "truncated")
            )
            assert found == walked(sample["observation"][place], sample["desired_goal"][place], 3)


@pytest.mark.parametrize("options", [{}, {"cls": SequenceReplayBuffer, "sequence_length": 3, "stride": 1}])
def test_the_goal_in_the_next_observation_is_that_of_the_sample(options: dict[str, Any]):
    nested, flat = (line(False, 3, nested=nested, **options) for nested in (True, False))
    for _ in range(10):
        sample, expected = nested.sample(as_dict=True), flat.sample(as_dict=True)
        following = sample["next_observation"].pop("desired_goal").asnumpy()
        goal = sample["observation"].pop("desired_goal").asnumpy()
        np.testing.assert_array_equal(goal, expected.pop("desired_goal").asnumpy())
        mask = expected["mask"].asnumpy() if "mask" in expected else np.ones(goal.shape, bool)
        np.testing.assert_array_equal(following[mask], goal[mask])
        sample |= {name: sample[name]["place"] for name in ("observation", "next_observation")}
        for name, part in expected.items():
            np.testing.assert_array_equal(sample[name].asnumpy(), part.asnumpy(), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [ReplayBuffer, SequenceReplayBuffer])
def test_goals_that_end_episodes_in_a_graph(cls: Any):
    options = {"sequence_length": 3, "stride": 1} if cls is SequenceReplayBuffer else {}
    eager, graph = (line(cls is ReplayBuffer, 3, cls, **options) for _ in range(2))
    call = SampleCall(graph)
    for _ in range(5):
        assert_rows([part.asnumpy() for part in call.sample()], [part.asnumpy() for part in eager.sample()])


def test_flags_need_a_column():
    names, types = [*GOALS], ["float32"] * 3
    buffer = ReplayBuffer(
        2, 8, [()] * 3, types, names=names, views=[HindsightRelabel("final", 1.0, reached_fn)], seed=0
    )
    buffer.insert([np.arange(4, dtype=np.float32)] * 3)
    with pytest.raises(ValueError, match=r"'reward_fn' returns .* must have the column 'terminated'"):
        buffer.sample()


def test_floats_are_no_rewards_of_a_column_of_ints():
    view = HindsightRelabel("final", 1.0, np.subtract)
    buffer = ReplayBuffer(2, 8, [()] * 3, ["float32"] * 2 + ["int32"], names=GOALS, views=[view], seed=0)
    buffer.insert([np.zeros(4, np.float32), np.ones(4, np.float32), np.arange(4)])
    with pytest.raises(TypeError, match=r"a reward of int32 for each row, .* but got float32"):
        buffer.sample()


# Columns of goals.


def test_goals_are_those_after_the_action():
    names = ["achieved_goal", "desired_goal", "next_achieved_goal", "next_desired_goal", "reward"]
    view = HindsightRelabel("future", 1.0, np.subtract)
    buffer = ReplayBuffer(4, 20, [()] * 5, ["float32"] * 5, names=names, views=[view], seed=0)
    steps = np.arange(6, dtype=np.float32)
    buffer.insert([steps, steps * 0 - 1, steps + 1, steps * 0 - 1, steps * 0], end=steps == 5)
    for _ in range(10):
        sample = {name: part.asnumpy() for name, part in buffer.sample(as_dict=True).items()}
        np.testing.assert_array_equal(sample["reward"], sample["next_achieved_goal"] - sample["desired_goal"])
        np.testing.assert_array_equal(sample["next_desired_goal"], sample["desired_goal"])
        assert (sample["desired_goal"] >= sample["next_achieved_goal"]).all()
