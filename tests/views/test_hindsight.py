"""Hindsight: goals that other rows achieved, on single rows, sequences and episodes."""

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
from checks import assert_frequencies, assert_rows, assert_weights, legal_handles, same_states, uniform
from goals import GOALS, achieved_goals, goal_buffer, goal_shares, insert_goals
from mindspore import Tensor, ops
from model import Model
from model_rows import Views
from model_views import chain_of, is_transition

from mindspore_replay import (
    EpisodeReplayBuffer,
    HindsightRelabel,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)


def with_goals(strategy: str, ratio: float, num_envs: int = 1, deleted: Iterable[int] = (), **options: Any) -> Any:
    """Return a filled buffer and its twin."""
    return filled(goal_buffer(strategy, ratio, num_envs=num_envs, **options), deleted)


def filled(buffer: Any, deleted: Iterable[int], cls: Any = ReplayBuffer, **options: Any) -> Any:
    """Return a wrapped buffer and its twin; rows of its first episode are evicted, and its last one is running."""
    num_envs = buffer.num_envs
    twin = Model(cls, buffer.sample_size, buffer.capacity, num_envs=num_envs, **({"views": Views()} | options))
    script = [0] * 5 + [1] + [0] * 4 + [1] + [0] * 3 + [2] + [1] + [0] * 5 + [2] + [0] * 4
    rows = [script[(step + 11 * env) % len(script)] for step in range(len(script)) for env in range(num_envs)]
    insert_goals(buffer, twin, rows)
    gone = [twin.inserted - 1 - behind for behind in deleted]
    if gone:
        assert int(buffer.delete(gone)) == twin.delete(gone) == len(gone)
    assert legal_handles(buffer) == twin.legal()
    return buffer, twin


def draw_goals(buffer: Any, batches: int) -> list[tuple[int, int | None]]:
    """Return rows and the rows that gave them a goal; check each sample's reward."""
    pairs: list[tuple[int, int | None]] = []
    for _ in range(batches):
        handles, achieved, goal, reward, _ = (part.asnumpy() for part in buffer.sample(with_indices=True))
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
    [("future", 1.0, 1, ()), *((name, 0.8, 3, (2, 8, 9, 12)) for name in ("future", "final", "episode", "random"))],
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
    for strategy in ("final", "episode", "random"):
        with pytest.raises(AssertionError):
            assert_goals(drawn["always"], twin, strategy, 0.8)


@pytest.mark.parametrize("ratio", [0.0, 0.8])
def test_the_share_of_samples_with_another_goal(ratio: float):
    buffer, _ = with_goals("episode", ratio)
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


def test_goals_after_a_reset_come_from_rows_since_then():
    buffer, twin = with_goals("random", 1.0)
    buffer.reset()
    twin.reset()
    with pytest.raises(RuntimeError):
        buffer.sample()
    insert_goals(buffer, twin, [0] * 16)
    assert {goal for _, goal in draw_goals(buffer, 30)} == set(twin.legal())
    buffer, twin = with_goals("future", 1.0)
    buffer.reset()
    twin.reset()
    insert_goals(buffer, twin, [0] * 10 + [1] + [0] * 5)
    for handle, goal in draw_goals(buffer, 30):
        assert goal is not None
        assert handle <= goal < twin.inserted - (5 if handle < twin.inserted - 5 else 0)


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


def assert_goal_returns(sample: Sequence[np.ndarray], twin: Model, views: Views) -> set[str]:
    """Check returns of samples with handles, achieved goal, goal and reward; return the kinds of cases among them."""
    handles, achieved, goal, reward = sample[:4]
    seen = set()
    for i, handle in enumerate(handles.tolist()):
        records = chain_of(twin, twin.record_of(handle), views)
        chain = [record.serial + 1 for record in records]
        assert achieved[i].sum() == chain[0] == handle + 1
        terms = [number + 0.5 if goal[i, 0] < 0 else number * 1000 + goal[i].sum() for number in chain]
        assert reward[i] == np.float32(sum(GAMMA**step * term for step, term in enumerate(terms)))
        assert sample[-1][i] == np.float32(0 if records[-1].end else GAMMA ** len(chain))
        seen.add(f"{'own' if goal[i, 0] < 0 else 'other'} {len(chain)}")
    return seen


def goals_and_returns() -> Any:
    """Return a buffer of goals and n-step returns without observations, and its twin."""
    return with_goals("future", 0.8, 2, (3, 9), capacity=25, views=[NStep(3, GAMMA, observation=())])


def test_the_whole_return_is_for_the_one_goal():
    buffer, twin = goals_and_returns()
    seen: set[str] = set()
    for _ in range(60):
        sample = [part.asnumpy() for part in buffer.sample(with_indices=True)]
        seen |= assert_goal_returns(sample, twin, Views(3, GAMMA, own_next=True))
        for i, handle in enumerate(sample[0].tolist()):
            if sample[2][i, 0] > 0:
                assert int(sample[2][i].sum()) - 1 in goal_shares(twin, handle, "future", 0.8)
    assert seen == {f"{which} {k}" for which in ("own", "other") for k in (1, 2, 3)}


def test_prioritized_hindsight_keeps_weights_and_counts():
    cls, options = PrioritizedReplayBuffer, {"alpha": 1.0, "epsilon": 0.0, "beta": 1.0}
    buffer = goal_buffer("future", 0.8, 4, 24, cls=cls, **options)
    twin = Model(cls, 4, 24, views=Views(), **options, seed=5)
    insert_goals(buffer, twin, [0] * 9 + [1] + [0] * 6)
    priorities = np.arange(1.0, 17.0)
    assert int(buffer.update_priorities(np.arange(16), priorities)) == twin.update(range(16), priorities)
    others = 0
    for _ in range(200):
        handles, weights, achieved, goal, reward, _ = (part.asnumpy() for part in buffer.sample())
        expected, importance, _ = twin.sample()
        twin.counter += 8  # two more numbers for each sample
        assert (handles.tolist(), weights.tolist()) == (expected, importance)
        own, number = goal[:, 0] < 0, goal.sum(1)
        np.testing.assert_array_equal(achieved, achieved_goals(handles + 1))
        np.testing.assert_array_equal(reward, np.where(own, handles + 1.5, (handles + 1) * 1000 + number))
        assert ((handles < number) & (number <= np.where(handles < 10, 10, 16)))[~own].all()
        others += (~own).sum()
    assert 0.7 < others / 800 < 0.9
    for record in twin.records:
        record.row = None  # it lacks some columns
    assert_weights(buffer, twin)


# Sequences and episodes.

RETURNS = Views(3, GAMMA, own_next=True)
N_STEP = {"views": [NStep(3, GAMMA, observation=())]}
#: Class, views of the twin, arguments, and those of the view.
STEPS: dict[str, tuple[Any, Views | None, dict[str, Any], dict[str, Any]]] = {
    "burn-in": (SequenceReplayBuffer, None, {"sequence_length": 3, "burn_in": 2}, {}),
    "padded": (SequenceReplayBuffer, None, {"sequence_length": 4, "pad_end": True}, {}),
    "episodes": (EpisodeReplayBuffer, None, {"max_episode_length": 6}, {}),
    "returns": (SequenceReplayBuffer, RETURNS, {"sequence_length": 2, "burn_in": 1}, N_STEP),
    "returns, episodes": (EpisodeReplayBuffer, RETURNS, {"max_episode_length": 6}, N_STEP),
}


def buffer_of_steps(name: str, strategy: str = "future", **given: Any) -> Any:
    """Return a buffer of one of these cases."""
    cls, _, options, view = STEPS[name]
    return goal_buffer(strategy, 0.8, 4 if cls is EpisodeReplayBuffer else 12, 27, cls=cls, **options, **view, **given)


def with_steps(name: str, strategy: str = "future") -> Any:
    """Return a filled buffer of one of these cases, and its twin."""
    return filled(buffer_of_steps(name, strategy), (9,), STEPS[name][0], views=None, **STEPS[name][2])


def check_steps(sample: dict[str, np.ndarray], b: int, twin: Model, name: str) -> int | None:
    """Check each step of a sample; return the row that gave the goal, `None` if it has its own."""
    views, steps = STEPS[name][1], twin.steps_of(int(sample["indices"][b]))
    there = [step is not None and (views is None or is_transition(twin, step, views)) for step in steps]
    assert sample["mask"][b].tolist() == there
    goals = sample["desired_goal"][b]
    given = {float(goal.sum()) for goal in goals[there]}
    own = min(given) < 0
    assert own or len(given) == 1
    for t, step in enumerate(steps):
        if not there[t]:
            assert not any(sample[key][b, t].any() for key in (*GOALS, "terminated"))
            continue
        number = step.serial + 1
        np.testing.assert_array_equal(sample["achieved_goal"][b, t], achieved_goals(np.float32(number)[None])[0])
        goal = -number if own else min(given)
        np.testing.assert_array_equal(goals[t], [goal, 0] if own else achieved_goals(np.float32(goal)[None])[0])
        chain = [record.serial + 1 for record in (chain_of(twin, step, views) if views else [step])]
        terms = [row + 0.5 if own else row * 1000 + goal for row in chain]
        assert sample["reward"][b, t] == np.float32(sum(GAMMA**k * term for k, term in enumerate(terms)))
    return None if own else int(min(given)) - 1


def draw_steps(buffer: Any, twin: Model, name: str, batches: int) -> list[tuple[int, int | None]]:
    """Return starts and the rows that gave their sequences a goal; check each sequence."""
    pairs, known = [], {}
    for _ in range(batches):
        sample = {key: part.asnumpy() for key, part in buffer.sample(as_dict=True).items()}
        for b, handle in enumerate(sample["indices"].tolist()):
            content = b"".join(part[b].tobytes() for part in sample.values())
            if content not in known:
                known[content] = check_steps(sample, b, twin, name)
            pairs.append((handle, known[content]))
    return pairs


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("burn-in", "future"), ("padded", "final"), ("returns", "random"), ("returns, episodes", "episode")],
)
def test_all_steps_have_one_goal(name: str, strategy: str):
    """It has the same frequency as for the start row alone, and each step has its own reward for this goal."""
    buffer, twin = with_steps(name, strategy)
    assert_goals(draw_steps(buffer, twin, name, 4000 // buffer.sample_size), twin, strategy, 0.8)


class SampleCall(Kept):
    """`sample` inside a compiled function."""

    @ms.jit
    def sample(self):
        return self.buffer.sample()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["padded", "returns, episodes"])
def test_steps_in_a_graph(name: str):
    eager, _ = with_steps(name)
    graph = buffer_of_steps(name, made_for="a graph")
    graph.load_state_dict(eager.state_dict())
    call = SampleCall(graph)
    for _ in range(5):
        assert_rows([part.asnumpy() for part in call.sample()], [part.asnumpy() for part in eager.sample()])
    assert same_states(graph, eager)


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
