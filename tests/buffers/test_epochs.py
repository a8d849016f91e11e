"""EpochReplayBuffer: each stored row once an epoch, in a fresh random order.

Random operations on single rows beside a slow twin are in `test_twin.py`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body, compiled
from checks import assert_frequencies, uniform
from flat import flat
from hypothesis import given, settings
from hypothesis import strategies as st
from mindspore import Tensor, ops
from randomness import order_of, random_bits

from mindspore_replay import (
    EpochReplayBuffer,
    FrameStack,
    HindsightRelabel,
    MixedReplay,
    NStep,
    Prefetch,
    ReplayBuffer,
    attach,
    host,
)

SCHEMA: dict[str, Any] = {"shapes": [(), (2,)], "types": ["int64", "float32"], "names": ["number", "pair"]}


def rows(first: int, n: int) -> list[np.ndarray]:
    """Return rows whose numbers are their serial numbers plus 1."""
    numbers = np.arange(first + 1, first + n + 1)
    return [numbers, np.stack([numbers, -numbers], 1).astype(np.float32)]


def make(sample_size: int = 2, capacity: int = 8, seed: int = 5, **options: Any) -> EpochReplayBuffer:
    return EpochReplayBuffer(sample_size, capacity, **SCHEMA, seed=seed, **options)


def filled(n: int, **options: Any) -> EpochReplayBuffer:
    return make(**options).insert(rows(0, n))


def serials(batch: Sequence[Any]) -> list[int]:
    """Return the serial numbers of a batch's rows, without padding; check that their columns belong together."""
    number, pair = (np.asarray(part.asnumpy() if isinstance(part, Tensor) else part) for part in batch[-2:])
    assert (pair == np.stack([number, -number], -1)).all()
    return [n - 1 for n in number.tolist() if n]


def joined(batches: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


KEY = 99


def same_order(key: int, size: int) -> list[int]:
    """A wrong order: the same in each epoch."""
    return order_of(KEY, size)


def order_with_a_repetition(key: int, size: int) -> list[int]:
    """A wrong order: it gives one row twice, and another one not at all."""
    order = order_of(key, size)
    return [order[0], *order[:-1]]


def unmixed_order(key: int, size: int) -> list[int]:
    """A wrong order: rows follow each other as they were stored, from a random one on."""
    first = random_bits(key, 0) % size
    return [(first + i) % size for i in range(size)]


# Sequences.

OPEN: dict[str, dict[str, Any]] = {
    "batches": {},
    "one by one": {"sample_size": 1, "last": "drop"},
    "of three learners": {"world": 3},
    "on arrays": {"cls": host.EpochReplayBuffer},
    "attached": {"storage": "./rows"},
    "views": {"views": [FrameStack(2, observation="number")]},
    "views that need the next row": {"views": [NStep(2, 0.5, observation="number", reward="reward")]},
}


@pytest.mark.parametrize("kind", OPEN)
def test_an_epoch_has_the_newest_steps_of_open_episodes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each stored step once an epoch, in rollouts that follow each other."""
    monkeypatch.chdir(tmp_path)
    schema = {"shapes": [()] * 3, "types": ["int64", "bool", "float32"], "names": ["number", "terminated", "reward"]}
    options = {"sample_size": 5, "last": "pad", "num_envs": 3, "pad_end": True, "seed": 0, **schema, **OPEN[kind]}
    cls, world = options.pop("cls", EpochReplayBuffer), options.get("world", 1)
    learners = [cls(capacity=120, sequence_length=4, rank=i, **options) for i in range(world)]
    readers = [attach("rows")] if "storage" in options else learners
    rng = np.random.default_rng(0)
    for steps in (40, 39, 3, 1):
        ended, cut = rng.random((2, steps, 3)) < [[[0.15]], [[0.1]]]
        for learner in learners:
            for t in range(steps):
                row = {"number": 1 + 3 * t + np.arange(3), "terminated": ended[t], "reward": np.zeros(3, np.float32)}
                learner.insert(row, end=cut[t] & ~ended[t])
        found: list[int] = []
        for learner, reader in zip(learners, readers):
            learner.begin_epoch()
            for batch in (reader.sample(as_dict=True) for _ in range(learner.batches())):
                mask, number = (np.asarray(batch[key]) for key in ("mask", "number"))
                assert mask.any(1).tolist() == [handle >= 0 for handle in np.asarray(batch["indices"])]
                found += number[..., -1][mask].tolist() if number.ndim > mask.ndim else number[mask].tolist()
            assert learner.batches() == (len(list(learner.minibatches())) if found else 0)
        last = np.arange(steps)[:, None] == steps - 1
        known = ended | ~(last | cut) if "need" in kind else np.ones_like(ended)  # there is a next observation
        assert sorted(found) == (1 + np.flatnonzero(known)).tolist()
        for learner in learners:
            learner.reset()


# Randomness.


def check_orders(orders: np.ndarray) -> None:
    """Check the orders of many epochs, ``[epochs, rows]``: places and neighbours of rows are equally likely."""
    size = orders.shape[1]
    assert (np.sort(orders, 1) == np.arange(size)).all()
    assert_frequencies(
        [place for order in orders.tolist() for place in enumerate(order)],
        uniform(itertools.product(range(size), repeat=2)),
    )
    pairs = [pair for order in orders.tolist() for pair in zip(order[::2], order[1::2])]
    assert_frequencies(pairs, uniform(itertools.permutations(range(size), 2)))
    if size <= 4:
        assert_frequencies(map(tuple, orders.tolist()), uniform(itertools.permutations(range(size))))


@pytest.mark.parametrize("size", [3, 4, 7, 16, 33])
def test_orders_are_random(size: int):
    buffer = filled(size, sample_size=size, capacity=size, seed=11)
    check_orders(np.array([serials(buffer.sample()) for _ in range(3000)]))


@pytest.mark.parametrize("order", [same_order, order_with_a_repetition, unmixed_order])
@pytest.mark.parametrize("size", [4, 16])
def test_orders_that_are_not_random_are_rejected(order: Callable[[int, int], list[int]], size: int):
    with pytest.raises(AssertionError):
        check_orders(np.array([order(random_bits(3, epoch), size) for epoch in range(3000)]))


# Epochs.


def test_minibatches_give_each_row_once_an_epoch():
    buffer = filled(8)
    buffer.sample()  # of an epoch that is then over
    batches = [serials(batch) for batch in buffer.minibatches(epochs=3)]
    assert len(batches) == 12
    epochs = [joined(batches[4 * i : 4 * i + 4]) for i in range(3)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    minibatches = buffer.minibatches(epochs=1)
    next(minibatches)
    buffer.insert(rows(8, 8))  # all rows of the epoch are evicted
    assert list(minibatches) == []


def buffer_serials(buffer: EpochReplayBuffer) -> list[int]:
    """Return the serial numbers of the rows that can be drawn."""
    stored = range(int(buffer.serials[0]) - int(buffer.count), int(buffer.serials[0]))
    weights = buffer.weights.asnumpy()
    return [serial for serial in stored if weights[serial % buffer.capacity] > 0]


CHANGES = st.lists(
    st.one_of(
        st.just(("nothing",)),
        st.tuples(st.just("insert"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(0, 10)),
        st.just(("reload",)),
    ),
    min_size=1,
    max_size=6,
)


def counted(buffer: EpochReplayBuffer) -> Iterator[Any]:
    """Wrong minibatches: as many as there are when the epoch begins."""
    for _ in range(buffer.begin_epoch().batches()):
        yield buffer.sample()


def check_minibatches(
    changes: Sequence[tuple[Any, ...]], minibatches: Callable[[EpochReplayBuffer], Iterator[Any]], last: str = "pad"
) -> None:
    """Change a buffer behind each batch, and check that each row that stays is delivered once, and none twice."""
    buffer = filled(11, capacity=11, last=last, weighted=True)
    staying, found = set(range(11)), list[int]()
    for batch, change in zip(minibatches(buffer), itertools.chain(changes, itertools.repeat(("nothing",)))):
        found += serials(batch)
        if change[0] == "insert":
            buffer.insert(rows(int(buffer.serials[0]), change[1]))
        elif change[0] == "delete":
            buffer.delete(int(buffer.serials[0]) - 1 - change[1])
        elif change[0] == "reload":
            buffer.load_state_dict(buffer.state_dict())
        staying &= set(buffer_serials(buffer))
    assert len(set(found)) == len(found)
    assert set(found) <= set(range(11))
    assert len(staying - set(found)) < (1 if last == "pad" else buffer.sample_size)


@pytest.mark.parametrize("last", ["drop", "pad"])
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(changes=CHANGES)
def test_minibatches_of_a_buffer_that_changes(last: str, changes: list[tuple[Any, ...]]):
    check_minibatches(changes, EpochReplayBuffer.minibatches, last)


@pytest.mark.parametrize("changes", [[("insert", 4)] * 2, [("delete", place) for place in range(5)]])
def test_wrong_minibatches_are_rejected(changes: list[tuple[Any, ...]]):
    check_minibatches(changes, EpochReplayBuffer.minibatches)
    with pytest.raises(AssertionError):
        check_minibatches(changes, counted)


def test_minibatches_end_if_others_take_batches_or_begin_an_epoch():
    buffer = filled(8)
    epochs = buffer.minibatches()
    found = serials(next(epochs)) + serials(buffer.with_sample_size(4).sample())
    found += joined(serials(batch) for batch in epochs)
    assert sorted(found) == list(range(8))
    epochs = buffer.minibatches()
    next(epochs)
    buffer.begin_epoch()
    assert list(epochs) == []
    epochs = buffer.minibatches()
    next(epochs)
    buffer.begin_epoch().sample()
    assert list(epochs) == []


def test_minibatches_have_the_rows_that_are_completed_meanwhile():
    def complete(handles: Any) -> None:
        buffer.update(handles, {"score": np.ones(len(handles), np.float32)})

    def make() -> EpochReplayBuffer:
        buffer = EpochReplayBuffer(
            2, 8, **flat([(), ()], ["int32", "float32"], names=["number", "score"], late=["score"], seed=3)
        )
        buffer.insert([np.arange(8, dtype=np.int32)])
        return buffer

    buffer = make()
    complete(np.arange(8))
    order = joined(number.tolist() for number, _ in buffer.minibatches())
    buffer = make()
    complete(order[:2])
    found = []
    for number, _ in buffer.minibatches():
        found += number.tolist()
        complete(order[4:8])
    assert found == order[:2] + order[4:8]


class Passes(Body):
    """All batches of two epochs in one graph."""

    def construct(self) -> tuple[Tensor, ...]:
        self.buffer.begin_epoch()
        numbers = ()
        for _ in range(4):
            number, _ = self.buffer.sample()
            numbers = (*numbers, number)
        return numbers


def test_one_graph_for_all_batches():
    graph = compiled(Passes(filled(8, sample_size=4)), "pynative")
    found = [number - 1 for batch in graph() for number in batch.asnumpy().tolist()]
    assert sorted(found[:8]) == sorted(found[8:]) == list(range(8))


def reward_of(achieved: Tensor, goal: Tensor) -> Tensor:
    return ops.cast(achieved == goal, ms.float32)


def test_goals_of_a_padded_batch():
    names, types = ["achieved_goal", "desired_goal", "reward"], ["float32"] * 3
    views = [HindsightRelabel("final", 1.0, reward_of)]
    buffer = EpochReplayBuffer(3, 8, [()] * 3, types, names=names, views=views, last="pad", seed=1)
    for step in range(4):
        buffer.insert([step + 1.0, 9.0, 0.0], end=step == 3)
    batches = zip(*buffer.minibatches())
    mask, achieved, goal, reward = (joined(part.asnumpy().tolist() for part in parts) for parts in batches)
    assert mask == [True] * 4 + [False] * 2
    assert sorted(achieved) == [0, 0, 1, 2, 3, 4]
    assert goal == [4.0 * there for there in mask]
    assert reward == [float(value == 4) for value in achieved]


def test_another_sample_size_prefetch_and_a_mixture():
    buffer = filled(8)
    found = serials(buffer.sample()) + serials(buffer.with_sample_size(6).sample())
    assert sorted(found) == list(range(8))
    with Prefetch(buffer, depth=2) as prefetch:
        assert sorted(joined(serials(next(prefetch)) for _ in range(4))) == list(range(8))
    buffer.begin_epoch()
    uniform = ReplayBuffer(2, 8, **SCHEMA).insert(rows(100, 8))
    mixture = MixedReplay([(buffer, 0.5), (uniform, 0.5)], sample_size=4)
    found = joined(serials(mixture.sample()) for _ in range(4))
    assert sorted(serial for serial in found if serial < 100) == list(range(8))


def test_a_mixture_of_epochs_has_as_many_rows_as_its_batches_need():
    padded = MixedReplay([(filled(n, last="pad"), 0.5) for n in (1, 8)], sample_size=4)
    assert bool(padded.can_sample())
    _, mask, number, _ = padded.sample()
    assert mask.tolist() == [True, False, True, True]
    assert (number.asnumpy() > 0).tolist() == mask.tolist()
    uniform = ReplayBuffer(2, 8, **SCHEMA, seed=0).insert(rows(100, 8))
    shared = MixedReplay([(uniform, 0.5), (filled(3, world=2), 0.5)], sample_size=4)
    before = uniform.state_dict()["random_state"]
    assert not bool(shared.can_sample())
    with pytest.raises(RuntimeError, match=r"sample_size=2 rows of source 1, but got 3"):
        shared.sample()
    assert (uniform.state_dict()["random_state"] == before).all()  # none was drawn from


def test_too_few_rows():
    buffer = filled(1)
    with pytest.raises(RuntimeError, match="a sample needs sample_size=2 rows, but got 1"):
        next(buffer.minibatches())
    with pytest.raises(ValueError, match="'epochs' must be in"):
        next(buffer.minibatches(0))
