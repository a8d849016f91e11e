"""Every option that chooses rows has a statistical test, which rejects an implementation that ignores the option.

The list of options is that of the constructors and of the methods that sample.
"""

import ast
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
from checks import assert_frequencies, uniform
from flat import flat
from model import Model
from model_rows import Views
from places import TESTS

import mindspore_replay
from mindspore_replay import NStep, host
from mindspore_replay.distributed import ShardedReplay

ROWS, DRAWS, TRIALS = 8, 2, 3300
COLUMNS: dict[str, Any] = {
    "names": ["observation", "reward", "terminated", "truncated"],
    "shapes": [()] * 4,
    "types": ["int32", "float32", "bool", "bool"],
}
#: Arguments with which each class is tested.
BASE: dict[str, dict[str, Any]] = {
    "ReplayBuffer": {},
    "PrioritizedReplayBuffer": {},
    "SequenceReplayBuffer": {"sequence_length": 2},
    "EpisodeReplayBuffer": {"max_episode_length": 2},
    "ElasticReplayBuffer": {},
    "ReservoirReplayBuffer": {},
    "EpochReplayBuffer": {"weighted": True},
    "ReplayQueue": {},
}
PRIORITIES = np.float32([1, 2, 3, 1, 2, 3, 1, 2, 1, 2, 3])


class Both:
    """A buffer, and the twin that says how likely each row is.

    Args:
        cls_name (str): The class.
        options (dict): Those of the twin.
        others (dict): What those of the buffer differ in.
    """

    def __init__(self, cls_name: str, options: dict[str, Any], others: dict[str, Any]) -> None:
        self.cls_name = cls_name
        self.options = {"sample_size": DRAWS, "capacity": ROWS, "seed": 3, **BASE[cls_name], **options}
        given = {name: value for name, value in (self.options | others).items() if value is not None}
        self.buffer = getattr(host, cls_name)(**flat(**COLUMNS, **given))
        of_twin = {name: value for name, value in self.options.items() if value is not None}
        if of_twin.get("views"):  # the next observation is that of the next row
            of_twin["views"] = Views(n=2)
        self.twin = Model(cls_name, of_twin.pop("sample_size"), of_twin.pop("capacity"), **of_twin)

    def insert(self, n: int, **given: Any) -> None:
        """Insert rows whose observations are their numbers."""
        first, twin, spec = self.twin.inserted - self.twin.base, self.twin, self.buffer.spec
        numbers = np.arange(first, first + n)
        values = numbers.astype(np.int32), np.zeros(n, np.float32), *[np.zeros(n, bool)] * 2
        exp = dict(zip(COLUMNS["names"], values, strict=True))
        if twin.prioritized:
            given = {"priority": PRIORITIES[first : first + n]} | given
        ends = given.pop("end", numbers % 2 == 1 if twin.whole else numbers % 4 == 3)
        of_twin = {name: value for name, value in given.items() if value is not None}
        twin.insert([{name: exp[name][i] for name in exp} for i in range(n)], **of_twin, ends=ends)
        given = of_twin if spec.prioritized else {}
        given |= {"end": ends} if self.buffer.has_episodes else {}
        present = {COLUMNS["names"][i]: values[i] for i in spec.columns.present}
        self.buffer.insert(present, **given)

    def both(self, call: Callable[[Any], Any]) -> None:
        for one in (self.buffer, self.twin):
            call(one)

    def draw(self) -> list[int]:
        """Return the rows at which the samples of a batch start, counted from the reset."""
        asks = self.buffer.spec.has_handles and not self.buffer.spec.always_handles
        batch = self.buffer.sample(as_dict=True, **({"with_indices": True} if asks else {}))
        starts = batch["indices"] - self.twin.base if "indices" in batch else batch["observation"]
        return starts.tolist()  # type: ignore[no-any-return]

    def shares(self) -> dict[int, float]:
        """Return how likely each row is to be drawn."""
        twin = self.twin
        if self.cls_name == "ReservoirReplayBuffer" and twin.inserted - twin.base > twin.capacity:
            return uniform(range(twin.inserted - twin.base))
        weights = {row.serial - twin.base: twin.weight(row) for row in twin.eligible()}
        return {row: weight / sum(weights.values()) for row, weight in weights.items()}


# What is done before a batch is drawn.

Fill = Callable[[Both], None]


def plain(both: Both) -> None:
    both.insert(ROWS)


def wrapped(both: Both) -> None:
    both.insert(ROWS)
    both.insert(3)


def without_ends(both: Both) -> None:
    both.insert(ROWS, end=np.zeros(ROWS, bool))


def wrapped_without_ends(both: Both) -> None:
    without_ends(both)
    both.insert(2, end=np.zeros(2, bool))


def of_two_ages(both: Both) -> None:
    both.insert(4)
    both.both(lambda one: one.advance(3))
    both.insert(4)


def with_deletions(both: Both) -> None:
    both.insert(ROWS)
    both.both(lambda one: one.delete([both.twin.base + i for i in (1, 2, 6)]))


def judged(both: Both) -> None:
    both.insert(ROWS)
    handles = [both.twin.base + i for i in (0, 1, 2, 3, 5)]
    both.buffer.update(handles, {"reward": np.ones(5, np.float32)})
    both.twin.write(handles, [{"reward": 1.0}] * 5)


def half_without_priority(both: Both) -> None:
    both.insert(4, priority=None)
    both.insert(4, priority=np.full(4, 0.5, np.float32))


def behind_an_outlier(both: Both) -> None:
    both.insert(4, priority=np.full(4, 9, np.float32))
    both.both(lambda one: one.delete([both.twin.base + i for i in range(4)]))
    both.insert(2, priority=np.ones(2, np.float32))
    both.insert(2, priority=None)


# What is drawn, and how likely it is.

Shares = dict[Any, float]


def starts(both: Both) -> list[Any]:
    """Return the rows of a batch, or the first of an epoch."""
    if both.cls_name != "EpochReplayBuffer":
        return both.draw()
    both.buffer.begin_epoch()
    return both.draw()[:1]


def of_starts(both: Both) -> Shares:
    shares = both.shares()
    if both.cls_name == "ReplayQueue":  # the next ones
        return uniform(sorted(shares, reverse=both.twin.newest_first)[: both.twin.draws])
    return uniform(shares) if both.cls_name == "EpochReplayBuffer" else shares


def batch(both: Both) -> list[Any]:
    return [tuple(both.draw())]


def of_batch(both: Both) -> Shares:
    """Of two rows: distinct, in order, independent, or one from each half of the total weight."""
    shares = both.shares()
    if both.twin.in_turn:
        return {tuple(sorted(shares)[:2]): 1.0}
    if both.twin.in_epochs or not both.twin.replace:
        return of_two(both)
    if not both.twin.prioritized:
        return {(a, b): shares[a] * shares[b] for a, b in itertools.product(shares, shares)}
    ends = np.cumsum([0, *shares.values()])
    first = {row: 2 * max(min(end, 0.5) - start, 0) for row, start, end in zip(shares, ends, ends[1:])}
    second = {row: 2 * max(end - max(start, 0.5), 0) for row, start, end in zip(shares, ends, ends[1:])}
    found = {(a, b): p * q for a, p in first.items() for b, q in second.items()}
    return {outcome: p for outcome, p in found.items() if p > 1e-9}


def two(both: Both) -> list[Any]:
    """Return the first rows of two batches, or of two epochs."""
    first = both.draw()[0]
    if both.cls_name == "EpochReplayBuffer":
        both.buffer.begin_epoch()
    return [(first, both.draw()[0])]


def of_two(both: Both) -> Shares:
    """Of two rows that are not the same."""
    shares = both.shares()
    return {(a, b): shares[a] * shares[b] / (1 - shares[a]) for a, b in itertools.permutations(shares, 2)}


class Case(NamedTuple):
    """A statistical test of an option.

    Args:
        right (dict): The option, with others that it needs.
        wrong (Union[dict, Callable]): What the options of an implementation that ignores it differ in; or what it makes
            of right outcomes.
        fill (Callable): What is done before a batch.
        outcomes (Callable): What is drawn.
        shares (Callable): How likely each outcome is.
        only (tuple[str, ...]): The classes, if not all that have the option.
    """

    right: dict[str, Any]
    wrong: dict[str, Any] | Callable[[list[Any]], list[Any]]
    fill: Fill = plain
    outcomes: Callable[[Both], list[Any]] = starts
    shares: Callable[[Both], Shares] = of_starts
    only: tuple[str, ...] = ()


ONE: dict[str, Any] = {"sample_size": 1}
STEPS: dict[str, Any] = {"sequence_length": 2, "stride": 1}
VIEWS: dict[str, Any] = {"views": [NStep(2, 0.9)]}
BY: dict[str, Any] = {"prioritized": True}
WINDOWS = ("SequenceReplayBuffer", "EpochReplayBuffer", "ReplayQueue")
ROW_BY_ROW = ("ReplayBuffer", "PrioritizedReplayBuffer", "ElasticReplayBuffer")


def by_priority(option: dict[str, Any], wrong: dict[str, Any], fill: Fill = plain) -> list[Case]:
    """Return the tests of an option of priorities: in classes that always have them, and in those that may."""
    may = ("SequenceReplayBuffer", "EpisodeReplayBuffer", "ElasticReplayBuffer")
    return [Case(option, wrong, fill, only=("PrioritizedReplayBuffer",)), Case(BY | option, wrong, fill, only=may)]


CASES: dict[str, list[Case]] = {
    "sample_size": [Case({}, lambda pairs: [(a, a) for a, _ in pairs], outcomes=batch, shares=of_batch)],
    "capacity": [
        Case({"capacity": 6}, {"capacity": 11}, wrapped, only=tuple(BASE)[:5] + ("EpochReplayBuffer",)),
        Case({"capacity": 6}, lambda rows: [5 + row % 6 for row in rows], wrapped, only=("ReservoirReplayBuffer",)),
        Case({"capacity": 6, "when_full": "evict"}, {"capacity": 11}, wrapped, only=("ReplayQueue",)),
    ],
    "num_envs": [
        Case({"num_envs": 2} | STEPS, {"num_envs": 1}, without_ends, only=WINDOWS[:2]),
        Case({"num_envs": 2, "order": "lifo"} | STEPS, {"num_envs": 1}, without_ends, only=WINDOWS[2:]),
        Case({"num_envs": 2, "max_episode_length": 8, "capacity": 16}, {"num_envs": 1}, only=("EpisodeReplayBuffer",)),
        Case({"num_envs": 2} | VIEWS, {"num_envs": 1}, without_ends, only=ROW_BY_ROW),
    ],
    "views": [
        Case(VIEWS, {"views": ()}, without_ends, only=(*ROW_BY_ROW, "EpochReplayBuffer")),
        Case(VIEWS | {"order": "lifo"}, {"views": ()}, without_ends, only=("ReplayQueue",)),
    ],
    "replace": [Case({"replace": False}, {"replace": True}, outcomes=batch, shares=of_batch)],
    "max_use": [Case({"max_use": 1} | ONE, {"max_use": 9}, outcomes=two, shares=of_two)],
    "max_staleness": [Case({"max_staleness": 2}, {"max_staleness": 9}, of_two_ages)],
    "weighted": [Case({"weighted": True}, lambda rows: [*rows, 1, 2], with_deletions)],
    "late": [Case({"late": ["reward"]}, lambda rows: [*rows, 7], judged)],
    "alpha": by_priority({"alpha": 1.0}, {"alpha": 0.3}),
    "epsilon": by_priority({"epsilon": 3.0}, {"epsilon": 0.0}),
    "initial_priority": by_priority({"initial_priority": 4.0}, {"initial_priority": 1.0}, half_without_priority),
    "default_priority": by_priority(
        {"default_priority": "largest_held"}, {"default_priority": "largest"}, behind_an_outlier
    ),
    "priorities": [Case(BY | {"alpha": 1.0}, {"prioritized": False, "alpha": None})],
    "sequence_length": [
        Case({"sequence_length": 3}, {"sequence_length": 2}, only=WINDOWS[:1]),
        Case({"sequence_length": 3, "stride": 1}, {"sequence_length": 2}, only=WINDOWS[1:2]),
        Case({"sequence_length": 3, "stride": 1, "order": "lifo"}, {"sequence_length": 2}, only=WINDOWS[2:]),
    ],
    "burn_in": [
        Case({"burn_in": 2} | STEPS, {"burn_in": 0}, wrapped_without_ends, only=WINDOWS[:2]),
        Case({"burn_in": 2, "when_full": "evict"} | STEPS, {"burn_in": 0}, wrapped_without_ends, only=WINDOWS[2:]),
    ],
    "stride": [Case(STEPS | {"stride": 2}, {"stride": 1}, without_ends)],
    "pad_end": [
        Case({"pad_end": True} | STEPS, {"pad_end": False}, only=WINDOWS[:2]),
        Case({"pad_end": True, "order": "lifo"} | STEPS, {"pad_end": False}, only=WINDOWS[2:]),
    ],
    "window": [Case({"window": 3}, {"window": 8})],
    "order": [Case({"order": "lifo"}, {"order": "fifo"}), Case({"order": "fifo"}, {"order": "lifo"})],
    "when_full": [Case({"when_full": "evict"}, {"capacity": 11}, wrapped)],
}


def parameters_of(made: Any) -> list[str]:
    """Return the arguments of a constructor, and the fields of those that are records."""
    names = [name for name in inspect.signature(made).parameters if name != "self"]
    records = {"columns": mindspore_replay.Column, "priorities": mindspore_replay.Priorities}
    return [*names, *(name for key in records if key in names for name in inspect.signature(records[key]).parameters)]


def classes_of(option: str, case: Case) -> list[str]:
    """Return the classes in which a case tests an option."""
    return [*case.only] or [name for name in BASE if option in parameters_of(getattr(host, name))]


def drawn(cls_name: str, case: Case, others: dict[str, Any]) -> tuple[list[Any], Shares]:
    """Return what many batches hold, and how likely each outcome is."""
    both, outcomes = Both(cls_name, case.right, others), []
    once = cls_name not in ("ReservoirReplayBuffer", "ReplayQueue") and case.outcomes is not two
    for i in range(60 if cls_name == "ReplayQueue" else TRIALS):
        if i == 0 or not once:
            both.both(lambda one: one.reset())
            case.fill(both)
        outcomes += case.outcomes(both)
    return outcomes, case.shares(both)


RUNS = [
    (option, i, cls)
    for option, cases in CASES.items()
    for i, case in enumerate(cases)
    for cls in classes_of(option, case)
]


@pytest.mark.parametrize(("option", "i", "cls"), RUNS)
def test_rows_are_as_likely_as_the_option_says(option: str, i: int, cls: str):
    case = CASES[option][i]
    outcomes, shares = drawn(cls, case, {})
    assert_frequencies(outcomes, shares)
    others = case.wrong(outcomes) if callable(case.wrong) else drawn(cls, case, case.wrong)[0]
    with pytest.raises(AssertionError):
        assert_frequencies(others, shares)


# Options whose outcomes are other than rows.

Outcomes = Iterable[Any]


def first_of_seeds(wrong: bool) -> Outcomes:
    for seed in range(600):
        options = {"sample_size": 1, "seed": 0 if wrong else seed}
        yield host.ReplayBuffer(capacity=4, **COLUMNS, **options).insert(rows(4)).sample()[0].item()


def rows(n: int) -> list[Any]:
    return [np.arange(n, dtype=np.int32), np.zeros(n, np.float32), np.zeros(n, bool), np.zeros(n, bool)]


def in_epochs(*options: dict[str, Any], n: int = 5) -> list[Any]:
    """Return buffers of the same rows in epochs, of so many learners."""
    return [host.EpochReplayBuffer(capacity=n, **COLUMNS, seed=0, **one).insert(rows(n)) for one in options]


def left_out(last: str) -> Callable[[bool], Outcomes]:
    """Return what yields the row that an epoch of batches of two leaves out, -1 for none."""

    def outcomes(wrong: bool) -> Outcomes:
        (buffer,) = in_epochs({"sample_size": 2, "last": last if not wrong or last == "drop" else "drop"})
        for _ in range(300):
            batches = buffer.minibatches(as_dict=True)
            found = {row for batch in batches for row in batch["observation"][batch.get("mask", slice(None))].tolist()}
            missing = {*range(5)} - found or {-1}
            yield 4 if wrong and last == "drop" else missing.pop()  # the newest

    return outcomes


def of_two_learners(option: str) -> Callable[[bool], Outcomes]:
    """Return what yields the first rows of two learners in an epoch."""

    def outcomes(wrong: bool) -> Outcomes:
        shares = [{"sample_size": 1, "rank": rank, "world": 2} for rank in (0, 1)]
        if wrong:
            shares = [one | ({"rank": 0} if option == "rank" else {"rank": 0, "world": 1}) for one in shares]
        buffers = in_epochs(*shares, n=4)
        for _ in range(600):
            for buffer in buffers:
                buffer.begin_epoch()
            yield tuple(buffer.sample()[0].item() for buffer in buffers)

    return outcomes


TOKENS: dict[str, Any] = {"shapes": [(None,)] * 2, "types": ["int32"] * 2, "names": ["a", "b"], "max_length": 6}
TOKENS |= {"items": 60, "seed": 0, "sample_length": 2, "cut": "random"}


def cuts(**wrong_options: Any) -> Callable[[bool], Outcomes]:
    """Return what yields where rows of two columns are cut."""

    def outcomes(wrong: bool) -> Outcomes:
        options = TOKENS | {"share_lengths": [("a", "b")]} | (wrong_options if wrong else {})
        row = np.arange(6, dtype=np.int32)
        buffer = host.ReplayBuffer(4, 8, **flat(**options)).insert([[row] * 4, [row] * 4])
        for _ in range(150):
            batch = buffer.sample(as_dict=True)
            yield from zip(batch["a"][:, 0].tolist(), batch["b"][:, 0].tolist(), strict=True)

    return outcomes


def within_items(wrong: bool) -> Outcomes:
    """Yield rows of a buffer with memory for four of them."""
    row = np.arange(6, dtype=np.int32)
    buffer = host.ReplayBuffer(4, 8, **flat(**TOKENS | {"items": 60 if wrong else 24}))
    for _ in range(6):
        buffer.insert([row, row])
    for _ in range(200):
        yield from buffer.sample(with_indices=True)[0].tolist()


def in_a_range(wrong: bool) -> Outcomes:
    buffer = host.ReplayBuffer(2, 5, **COLUMNS, seed=0).insert(rows(8))
    for _ in range(200):
        yield from buffer.sample(None if wrong else (1, 3))[0].tolist()


def packed(wrong: bool) -> Outcomes:
    """Yield rows of two priorities, of batches with a bound; a wrong one takes the first of the strata."""
    row = np.arange(6, dtype=np.int32)
    buffer = host.PrioritizedReplayBuffer(4, 8, **flat(**TOKENS, alpha=1.0, epsilon=0.0))
    buffer.insert([[row] * 8, [row] * 8], priority=np.arange(8) % 2 + 1.0)
    for _ in range(800):
        if wrong:
            yield buffer.sample()[0].min().item()
        else:
            yield from buffer.sample_packed(6)[0].tolist()


def groups(in_order: bool = True, /, **wrong_options: Any) -> Callable[[bool], Outcomes]:
    """Return what yields two rows of the first of two groups, of three rows each, and the number of the second."""

    def outcomes(wrong: bool) -> Outcomes:
        columns: dict[str, Any] = {"shapes": [(), ()], "types": ["int32"] * 2, "names": ["group", "row"]}
        buffer = host.EpisodeReplayBuffer(1, 9, **columns, max_episode_length=1, seed=0)
        numbers = np.arange(9, dtype=np.int32)
        buffer.insert([numbers // 3, numbers], end=np.ones(9, bool))
        given = {"key": "group", "groups": 2, "size_in_group": 2, "ordered": in_order} | (
            wrong_options if wrong else {}
        )
        for _ in range(1500):
            _, of, row = (array.tolist() for array in buffer.sample_groups(**given))
            yield (tuple(row[0]), of[-1][0])

    return outcomes


def of_groups(ordered: bool) -> Shares:
    pairs = [(0, 1), (1, 2)] if ordered else [*itertools.permutations(range(3), 2)]
    return uniform([((3 * g + a, 3 * g + b), h) for g, h in itertools.permutations(range(3), 2) for a, b in pairs])


def mixed(wrong: bool) -> Outcomes:
    """Yield sources and rows of a mixture; a wrong one has equal shares."""
    sources = [host.ReplayBuffer(1, 4, **COLUMNS, seed=seed).insert(rows(4)) for seed in (0, 1)]
    mixture = host.MixedReplay([(sources[0], 0.5 if wrong else 0.75), (sources[1], 0.5 if wrong else 0.25)], 4)
    for _ in range(300):
        source, row, *_ = mixture.sample()
        yield from zip(source.tolist(), row.tolist(), strict=True)


class Other(NamedTuple):
    """A statistical test of an option: what yields outcomes, right or wrong, and how likely each is.

    `only` has the classes for which it stands, if not all that have the option.
    """

    outcomes: Callable[[bool], Outcomes]
    shares: Shares
    only: tuple[str, ...] = ()


PLACES, SAME = range(5), {(a, a): 1 / 5 for a in range(5)}
OTHERS: dict[str, list[Other]] = {
    "seed": [Other(first_of_seeds, uniform(range(4)), tuple(BASE))],
    "last": [Other(left_out("pad"), {-1: 1.0}), Other(left_out("drop"), uniform(range(5)))],
    "rank": [Other(of_two_learners("rank"), uniform(itertools.permutations(range(4), 2)))],
    "world": [Other(of_two_learners("world"), uniform(itertools.permutations(range(4), 2)))],
    "items": [Other(within_items, uniform(range(2, 6)))],
    "lengths_of": [Other(cuts(share_lengths=()), SAME)],
    "sample_length": [Other(cuts(sample_length=3), SAME)],
    "cut": [Other(cuts(cut="first"), SAME), Other(cuts(share_lengths=[("a", "b")], cut="first"), SAME)],
    "sample.sample_range": [Other(in_a_range, {4: 0.5, 5: 0.5})],
    "sample_packed.max_items": [Other(packed, {row: (row % 2 + 1) / 12 for row in range(8)})],
    "sample_groups.key": [Other(groups(key="row"), of_groups(True))],
    "sample_groups.groups": [Other(groups(groups=1), of_groups(True))],
    "sample_groups.size_in_group": [Other(groups(size_in_group=3), of_groups(True))],
    "sample_groups.ordered": [
        Other(groups(ordered=False), of_groups(True)),
        Other(groups(False, ordered=True), of_groups(False)),
    ],
    "parts": [Other(mixed, {(source, row): (3, 1)[source] / 16 for source in (0, 1) for row in range(4)})],
}


@pytest.mark.parametrize(("option", "i"), [(option, i) for option, tests in OTHERS.items() for i in range(len(tests))])
def test_outcomes_are_as_likely_as_the_option_says(option: str, i: int):
    outcomes, shares, _ = OTHERS[option][i]
    assert_frequencies(outcomes(False), shares)
    with pytest.raises(AssertionError):
        assert_frequencies(outcomes(True), shares)


# The list of options.

#: Statistical tests in other files. Each has a wrong sampler that it rejects.
ELSEWHERE = {
    "ShardedReplay.num_shards": (
        "distributed/test_sharded_stale.py",
        "test_weights_that_take_old_totals_for_new_ones_are_found",
    ),
    "HindsightRelabel.strategy": ("views/test_hindsight.py", "test_the_check_of_goals_rejects_wrong_samplers"),
    "HindsightRelabel.ratio": ("views/test_hindsight.py", "test_the_share_of_samples_with_another_goal"),
}
#: Options that choose no rows, each with the reason.
NO_CHOICE = {
    **dict.fromkeys(("shapes", "types", "names", "columns", "shape", "dtype", "compress"), "what rows hold, and how"),
    **dict.fromkeys(
        ("storage", "backend", "folder", "resources", "name", "resume"), "the place; draws are the same in all"
    ),
    **dict.fromkeys(("timeout", "depth", "batch", "in_flight"), "when; not who"),
    **dict.fromkeys(("beta", "beta_steps", "normalize"), "weights of rows that were drawn, compared with the twin's"),
    "ordered": "which number stands for a row; each is as likely, and draws are compared with the twin's bit for bit",
    "longest": "the longest row that is accepted",
    "max_episode_length": "the longest episode that is accepted",
    "SequenceReplayBuffer.views": "what steps hold; those without a next observation are masked",
    "EpisodeReplayBuffer.views": "as for sequences",
    "MixedReplay.sample_size": "the sum of the shares, which are exact",
    "config": "the arguments of a class in this list",
    "buffer": "a class in this list",
    "sample_arguments": "those of `sample`",
    **{f"sample.{name}": "the form of a batch" for name in ("as_dict", "with_indices", "longest")},
    "sample.beta": "as for `beta`",
    **{f"sample_packed.{name}": "the form of a batch" for name in ("as_dict", "with_indices")},
    "sample_groups.as_dict": "the form of a batch",
    **dict.fromkeys(("reward_fn", "tolerance", "achieved_goal", "goal", "reward", "terminated"), "what rows hold"),
}


def options_of(cls: type) -> Iterable[str]:
    """Yield the options of a class, and of its methods that sample."""
    made = cls.__init__ if cls.__name__ == "MixedReplay" else cls  # a Cell's constructor hides it
    yield from parameters_of(made)
    for method in ("sample", "sample_packed", "sample_groups"):
        for name in inspect.signature(getattr(cls, method)).parameters if hasattr(cls, method) else ():
            if name.lstrip("_") not in ("self", "misplaced", "unknown"):
                yield f"{method}.{name}"


def has_test(cls: str, option: str) -> bool:
    """Return True if an option of a class has a statistical test."""
    cases = any(cls in classes_of(option, case) for case in CASES.get(option, ()))
    others = any(cls in (*test.only,) or not test.only for test in OTHERS.get(option, ()))
    return cases or others or f"{cls}.{option}" in ELSEWHERE


def classes() -> dict[str, type]:
    public = [getattr(mindspore_replay, name) for name in mindspore_replay.__all__]
    drawing = [one for one in public if inspect.isclass(one) and hasattr(one, "sample")]
    return {cls.__name__: cls for cls in (*drawing, ShardedReplay, mindspore_replay.HindsightRelabel)}


def test_every_option_has_a_statistical_test_or_a_reason():
    without, unused = [], {*NO_CHOICE, *ELSEWHERE, *CASES, *OTHERS}
    for name, option in [(name, option) for name, cls in classes().items() for option in options_of(cls)]:
        names = {option, f"{name}.{option}"}
        unused -= names
        if has_test(name, option) == bool(names & NO_CHOICE.keys()):
            without.append(f"{name}.{option}")
    assert (without, unused) == ([], set())


@pytest.mark.parametrize(("file", "name"), ELSEWHERE.values())
def test_those_in_other_files_reject_a_wrong_sampler(file: str, name: str):
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    (test,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert "pytest.raises(AssertionError" in ast.unparse(test)
