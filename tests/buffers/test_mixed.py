"""Batches from several buffers: exact counts, rows and priorities that stay with their source, ratios that change."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from checks import assert_frequencies, uniform
from flat import flat
from mindspore import Parameter, Tensor, nn
from model import Model

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    MixedReplay,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.buffers.parameters import overwrite
from mindspore_replay.ops.mixture import PickRows
from mindspore_replay.store.faces.mixture import exact_counts

NAMES = ["observation", "reward", "terminated"]
COLUMNS: dict[str, Any] = {"shapes": [(2,), (), ()], "types": ["float32", "float32", "bool"]}
#: First row number of each source.
FIRST = (0, 1000)

KINDS: dict[str, Callable[..., ReplayBuffer]] = {
    "uniform": lambda n, **o: ReplayBuffer(sample_size=n, capacity=50, **COLUMNS, **o),
    "distinct": lambda n, **o: ReplayBuffer(sample_size=n, capacity=50, **COLUMNS, replace=False, weighted=True, **o),
    "elastic": lambda n, **o: ElasticReplayBuffer(sample_size=n, capacity=50, **COLUMNS, window=20, **o),
    "reservoir": lambda n, **o: ReservoirReplayBuffer(sample_size=n, capacity=20, **COLUMNS, **o),
    "prioritized": lambda n, **o: PrioritizedReplayBuffer(sample_size=n, capacity=50, **COLUMNS, alpha=1.0, **o),
    "sequences": lambda n, **o: SequenceReplayBuffer(
        sample_size=n, capacity=50, **COLUMNS, sequence_length=3, burn_in=1, **o
    ),
    "sequences by priority": lambda n, **o: SequenceReplayBuffer(
        sample_size=n, capacity=50, **flat(**COLUMNS, sequence_length=3, burn_in=1, prioritized=True, pad_end=True, **o)
    ),
    "episodes": lambda n, **o: EpisodeReplayBuffer(sample_size=n, capacity=50, **COLUMNS, max_episode_length=9, **o),
}


def make(kind: str, n: int, source: int) -> ReplayBuffer:
    """Return a buffer with thirty rows, which carry the numbers of the source."""
    buffer = KINDS[kind](n, names=NAMES, seed=source)
    for step in range(30):
        number = FIRST[source] + step
        end = {"end": step % 7 == 6} if buffer.has_episodes else {}
        buffer.insert([np.full(2, number, np.float32), np.float32(number), step % 14 == 6], **end)
    return buffer


class Step(Kept):
    """Samples, and sets the priority of every drawn row to 2."""

    def __init__(self, mixed: MixedReplay) -> None:
        self.mixed = mixed
        self.two = Tensor(2.0, ms.float32)

    @ms.jit
    def __call__(self):
        batch = self.mixed.sample(with_indices=True)
        invalid = self.mixed.update_priorities(batch[0], batch[1], self.two)
        return (invalid, self.mixed.can_sample()) + batch


def calls(call: str, mixed: MixedReplay) -> Callable[[], tuple[Any, ...]]:
    """Return a step that is called in this way."""
    if call == "compiled":
        return Step(mixed)

    def step() -> tuple[Any, ...]:
        batch = mixed.sample(with_indices=True)
        return mixed.update_priorities(batch[0], batch[1], 2.0), mixed.can_sample(), *batch

    return step


def lists(columns: Any) -> list[Any]:
    return [column.asnumpy().tolist() for column in columns]


def alone(buffer: Any) -> list[Any]:
    """Return handles, importance weights and the rest of a sample of the buffer itself."""
    keeps, always = buffer.has_handles, buffer.spec.always_handles
    batch = lists(buffer.sample() if always or not keeps else buffer.sample(with_indices=True))
    n = buffer.sample_size
    head = [batch.pop(0) if keeps else [-1] * n, batch.pop(0) if buffer.prioritized else [1.0] * n]
    return [*head, *batch]


def check_against_the_buffers(step: Callable[[], tuple[Any, ...]], kinds: tuple[str, ...]) -> None:
    """Check that a batch of 5 equals the samples of each buffer alone with that share, and so do new priorities."""
    one, other = make(kinds[0], 4, 0), make(kinds[1], 1, 1)
    for _ in range(3):
        invalid, can_sample, source, *batch = step()
        assert (int(invalid), bool(can_sample)) == (0, True)
        assert source.dtype == ms.int32
        assert source.asnumpy().tolist() == [0, 0, 0, 0, 1]
        expected = [first + second for first, second in zip(alone(one), alone(other), strict=True)]
        assert lists(batch) == expected
        for buffer, handles in ((one, expected[0][:4]), (other, expected[0][4:])):
            if buffer.prioritized:
                buffer.update_priorities(handles, 2.0)


@functools.cache
def _mixed(kinds: tuple[str, ...]) -> tuple[MixedReplay, dict[str, Any]]:
    sources = [make(kind, 9, i) for i, kind in enumerate(kinds)]
    mixed = MixedReplay([(sources[0], 0.7), (sources[1], 0.3)], 5)
    return mixed, mixed.state_dict()


def mix(kinds: tuple[str, ...]) -> MixedReplay:
    """Return a mixture from which nothing was drawn; tests share one, and so its compiled graphs."""
    mixed, state = _mixed(kinds)
    mixed.load_state_dict(state)
    return mixed


def test_what_is_drawn_of_sequences():
    kinds = ("sequences by priority", "sequences")
    check_against_the_buffers(calls("compiled", mix(kinds)), kinds)


@pytest.mark.parametrize(
    "kinds", [("reservoir", "elastic"), ("distinct", "uniform"), ("episodes",) * 2, ("prioritized",) * 2], ids=str
)
def test_what_is_drawn_of_other_pairs(kinds: tuple[str, ...]):
    check_against_the_buffers(calls("eager", mix(kinds)), kinds)


@pytest.mark.parametrize(
    ("ratios", "n", "counts"),
    [
        ((0.75, 0.25), 64, [48, 16]),
        ((1, 1, 1), 8, [4, 2, 2]),
        ((0.29, 0.71), 100, [29, 71]),
        ((3, 1), 5, [4, 1]),
        ((0.999, 0.001), 10, [10, 0]),
        ((2,), 7, [7]),
    ],
)
def test_exact_counts(ratios: tuple[float, ...], n: int, counts: list[int]):
    assert exact_counts(ratios, n) == counts


@pytest.mark.parametrize("call", ["eager", "compiled"])
def test_priorities_go_back_to_the_right_buffer(call: str):
    """Both buffers use the same handles; a shuffled batch finds its rows by their source."""
    sources = [make("prioritized", 3, i) for i in range(2)]
    mixed = MixedReplay([(source, 1) for source in sources], 8)
    source = np.array([1, 0, 1, 1, 0, 1], np.int32)
    indices = np.array([3, 3, 4, 99, -5, 4])
    priorities = np.array([10, 20, 30, 40, 50, 60], np.float32)
    if call == "eager":
        invalid = mixed.update_priorities(source, indices, priorities)
    else:
        invalid = ms.jit(Update(mixed).construct)(Tensor(source), Tensor(indices), Tensor(priorities))
    assert (invalid.dtype, int(invalid)) == (ms.int32, 2)
    assert lists(sources[0].info([3, 4]))[0] == [20, 1]
    assert lists(sources[1].info([3, 4]))[0] == [10, 60]
    for buffer in sources:
        buffer.check_valid()


class Update(nn.Cell):
    """Sets priorities of rows."""

    def __init__(self, mixed: MixedReplay) -> None:
        super().__init__()
        self.mixed = mixed

    def construct(self, source, indices, priorities):
        return self.mixed.update_priorities(source, indices, priorities)


@pytest.mark.parametrize("kind", ["uniform", "sequences"])
def test_rewards_take_the_place_of_those_stored(kind: str):
    sources = [make(kind, 3, i) for i in range(2)]
    mixed = MixedReplay([(sources[0], 1), (sources[1], 1)], 6, rewards=(None, 1.5))
    for _ in range(5):
        batch = mixed.sample(as_dict=True)
        observation, reward = batch["observation"].asnumpy(), batch["reward"].asnumpy()
        np.testing.assert_array_equal(reward[:3], observation[:3, ..., 0])
        there = batch["mask"].asnumpy()[3:] if "mask" in batch else np.ones(3, bool)
        np.testing.assert_array_equal(reward[3:], np.where(there, np.float32(1.5), 0))
        assert reward.dtype == np.float32
    assert sources[1].get_item(0)[1].asnumpy() == 1000  # stored rows stay


class Constant(nn.Cell):
    """Sets ratios that are constant in the graph."""

    def __init__(self, mixed: MixedReplay, ratios: Any) -> None:
        super().__init__()
        self.mixed = mixed
        self.given = ratios

    def construct(self):
        return self.mixed.set_ratios(self.given)


@pytest.mark.slow
def test_ratios_that_are_constants_of_a_graph():
    mixed = MixedReplay([(make("uniform", 2, i), 1) for i in range(2)], 4, adjustable=True)
    assert ms.jit(Constant(mixed, (3, 1)).construct)().asnumpy().tolist() == [3, 1]
    with pytest.raises(ValueError, match="must be 2 numbers"):
        ms.jit(Constant(mixed, (3, 1, 1)).construct)()
    for wrong in ([1.0, 1.7e308],):
        with pytest.raises(RuntimeError, match="assert failed"):
            ms.jit(Given(mixed).construct)(Tensor(wrong, ms.float64)).asnumpy()
    assert mixed.ratios.asnumpy().tolist() == [3, 1]


class Given(nn.Cell):
    """Sets the ratios."""

    def __init__(self, mixed: MixedReplay) -> None:
        super().__init__()
        self.mixed = mixed

    def construct(self, ratios):
        self.mixed.set_ratios(ratios)
        return ratios


class Adjust(nn.Cell):
    """Sets the ratios, then samples."""

    def __init__(self, mixed: MixedReplay) -> None:
        super().__init__()
        self.mixed = mixed

    def construct(self, ratios):
        self.mixed.set_ratios(ratios)
        return self.mixed.sample()


def test_kept_rows_are_as_likely_as_before():
    """Four of eight strata are kept; each row is still drawn in proportion to its priority."""
    priorities = np.arange(1, 7)
    buffer = PrioritizedReplayBuffer(
        sample_size=1, capacity=6, shapes=[()], types=["int64"], alpha=1.0, epsilon=0.0, seed=0
    )
    buffer.insert([np.arange(6)], priority=priorities)
    other = ReplayBuffer(sample_size=1, capacity=6, shapes=[()], types=["int64"], seed=0)
    other.insert([np.full(6, -1)])
    distinct = ReplayBuffer(sample_size=1, capacity=6, shapes=[()], types=["int64"], replace=False)
    with pytest.raises(ValueError, match="but got source 1: 8 of at most 6"):
        MixedReplay([(buffer, 1), (distinct, 1)], 8, adjustable=True)
    mixed = MixedReplay([(buffer, 1), (other, 1)], 6, adjustable=True, seed=0)
    drawn = [n for _ in range(200) for n in mixed.sample()[1].asnumpy()[:3].tolist()]
    expected = dict(enumerate((priorities / priorities.sum()).tolist()))
    assert_frequencies(drawn, expected)
    first = [n for _ in range(200) for n in strata(buffer)[:3]]  # the wrong way: the first strata
    with pytest.raises(AssertionError):
        assert_frequencies(first, expected)


@pytest.mark.parametrize(("normalize", "compiled"), [("batch", True), ("buffer", False)], ids=str)
def test_importance_weights_of_kept_rows(normalize: str, compiled: bool):
    """They are relative to the rows of the batch, not to those that were drawn and not kept."""
    options: dict[str, Any] = {"capacity": 32, "shapes": [()], "types": ["int64"], "alpha": 1.0, "beta": 1.0}
    priorities = 10.0 ** (np.arange(32) % 7 - 3)
    agent = PrioritizedReplayBuffer(1, **options, epsilon=1e-30, normalize=normalize, seed=0)
    agent.insert([np.arange(32)], priority=priorities)
    other = ReplayBuffer(1, 32, [()], ["int64"], seed=0).insert([np.full(32, -1)])
    mixed = MixedReplay([(agent, 1), (other, 1)], 8, adjustable=True, seed=0)

    def draw() -> Any:
        return mixed.sample(with_indices=True)

    draw, others = ms.jit(draw) if compiled else draw, 0
    for _ in range(30):
        _, _, weights, rows = (part.asnumpy() for part in draw())
        own = priorities[rows[:4]]
        least = own.min() if normalize == "batch" else 1e-3
        np.testing.assert_allclose(weights, [*(least / own), 1, 1, 1, 1], rtol=1e-5)
        others += least > 2e-3
    assert (others > 5) == (normalize == "batch")


def strata(buffer: PrioritizedReplayBuffer) -> list[int]:
    """Draw rows from six strata in order, by the twin."""
    twin = Model("PrioritizedReplayBuffer", 6, 6, alpha=1.0, epsilon=0.0)
    twin.insert(list(range(6)), list(range(1, 7)))
    twin.counter = int(buffer.random_state.asnumpy()[1])
    overwrite(buffer.random_state, buffer.random_state.asnumpy() + [0, 6])
    return twin.sample()[2]


@functools.cache
def _adjustable(seed: int) -> tuple[MixedReplay, dict[str, Any]]:
    sources = [(make("uniform", 2, 0), 1), (make("prioritized", 2, 1), 3)]
    mixed = MixedReplay(sources, 4, adjustable=True, seed=seed)
    return mixed, mixed.state_dict()


def adjustable(seed: int) -> MixedReplay:
    """Return a mixture from which nothing was drawn; equal seeds share one, and so its compiled graphs."""
    mixed, state = _adjustable(seed)
    mixed.load_state_dict(state)
    return mixed


@pytest.mark.parametrize("compiled", [False, True], ids=str)
def test_ratios_change_while_training(compiled: bool):
    if compiled:
        sources = [make("prioritized", 3, 0), make("uniform", 2, 1)]
        mixed, n = MixedReplay([(sources[0], 1), (sources[1], 3)], 12, adjustable=True, seed=5), 12
        draw = ms.jit(Adjust(mixed).construct)
    else:
        mixed, n = adjustable(5), 4
        assert mixed.sample()[0].asnumpy().tolist() == [0, 1, 1, 1]

        def draw(ratios: Tensor) -> Any:
            return mixed.set_ratios(ratios).sample()

    for ratios in ([0.5, 0.5], [0.29, 0.71], [1.0, 0.0], [0.0, 2.0], [0.9, 0.1]):
        source, observation, reward, _ = draw(Tensor(ratios, ms.float64))
        counts = exact_counts(ratios, n)
        assert source.asnumpy().tolist() == [0] * counts[0] + [1] * counts[1]
        np.testing.assert_array_equal(reward.asnumpy() >= 1000, source.asnumpy() == 1)
        np.testing.assert_array_equal(observation.asnumpy()[:, 0], reward.asnumpy())
    assert mixed.ratios.asnumpy().tolist() == [0.9, 0.1]


def test_a_checkpoint_holds_sources_and_ratios(tmp_path: Any):
    one, other = adjustable(5), adjustable(6)
    one.set_ratios([0.25, 0.75])
    for _ in range(3):
        one.sample()
    path = str(tmp_path / "mixed.ckpt")
    ms.save_checkpoint(one, path)
    assert ms.load_param_into_net(other, ms.load_checkpoint(path)) == ([], [])
    for _ in range(3):
        assert lists(other.sample()) == lists(one.sample())
    assert other.ratios.asnumpy().tolist() == [0.25, 0.75]


def test_its_length_is_that_of_all_sources():
    mixed = MixedReplay([(make("uniform", 2, 0), 1), (make("reservoir", 2, 1), 1)], 4)
    assert len(mixed) == sum(int(source.size()) for source in mixed.sources) == 50


def test_the_state_as_arrays():
    one, other = adjustable(5), adjustable(6)
    one.set_ratios([0.25, 0.75]).sample()
    state = one.state_dict()
    other.load_state_dict(state)
    assert lists(other.sample()) == lists(one.sample())


def test_a_trainer_may_hold_the_buffers_too(tmp_path: Any):
    class Trainer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.agent, self.expert = make("prioritized", 2, 0), make("uniform", 2, 1)
            self.replay = MixedReplay([(self.agent, 0.5), (self.expert, 0.5)], 4)

    one, other = Trainer(), Trainer()
    names = [parameter.name for parameter in one.get_parameters()]
    assert len(names) == len(set(names))
    one.agent.reset()
    path = str(tmp_path / "trainer.ckpt")
    ms.save_checkpoint(one, path)
    assert ms.load_param_into_net(other, ms.load_checkpoint(path)) == ([], [])
    assert (int(other.agent.size()), int(other.expert.size())) == (0, 30)
    assert not other.replay.can_sample()


class Two(Kept):
    """Two mixtures in one graph."""

    def __init__(self) -> None:
        self.one, self.other = (
            MixedReplay([(make("uniform", 2, i), 1) for i in range(2)], 4, adjustable=True) for _ in range(2)
        )

    @ms.jit
    def __call__(self):
        return self.one.sample()[0], self.other.sample()[0]


def test_a_buffer_may_be_in_two_mixtures(tmp_path: Any):
    """Also at different positions. The names of its Parameters stay those of its owner."""

    class Trainer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.agent, self.expert, self.other = (make("uniform", 2, i % 2) for i in range(3))

    trainer = Trainer()
    names = [parameter.name for parameter in trainer.get_parameters()]
    one = MixedReplay([(trainer.agent, 1), (trainer.expert, 1)], 4)
    other = MixedReplay([(trainer.other, 1), (trainer.agent, 1)], 4)
    assert one.sample()[0].shape == other.sample()[0].shape == (4,)
    assert [parameter.name for parameter in trainer.get_parameters()] == names
    path = str(tmp_path / "trainer.ckpt")
    ms.save_checkpoint(trainer, path)
    assert sorted(ms.load_checkpoint(path)) == sorted(names)


def test_two_in_one_graph():
    assert lists(Two()()) == [[0, 0, 1, 1]] * 2


class CanSample(nn.Cell):
    """Evaluates `can_sample`."""

    def __init__(self, mixed: MixedReplay) -> None:
        super().__init__()
        self.mixed = mixed

    def construct(self):
        return self.mixed.can_sample()


def test_each_source_must_have_its_rows():
    sources = [make("uniform", 2, i) for i in range(2)]
    mixed = MixedReplay([(source, 1) for source in sources], 4)
    can_sample = ms.jit(CanSample(mixed).construct)
    assert can_sample()
    sources[1].reset()
    assert not can_sample()
    assert not mixed.can_sample()


class Pick(Kept):
    """Selects the rows to keep of two batches of four."""

    def __init__(self) -> None:
        self.pick = PickRows(4, 2)
        self.ratios = Parameter(Tensor([0.5, 0.5], ms.float64), name="ratios")
        self.state = Parameter(Tensor([77, 0], ms.int64), name="state")

    @ms.jit
    def __call__(self):
        return self.pick(self.ratios, self.state)


def test_rows_to_keep_are_chosen_for_each_source_by_itself():
    """Of four rows two, at equal distances: the even or the odd ones. All four combinations are equally likely."""
    pick = Pick()
    drawn = [tuple(pick()[1].asnumpy().tolist()) for _ in range(160)]
    assert_frequencies(drawn, uniform([(a, a + 2, b, b + 2) for a in range(2) for b in range(2)]))


def test_calls_from_python_keep_the_same_rows():
    pick, front = Pick(), adjustable(5)._front
    front.own["random_state"].overwrite(pick.state.asnumpy())
    for ratios in ([0.5, 0.5], [0.29, 0.71], [1.0, 0.0], [1e-30, 1e30], [2.0, 0.7], [1 / 3, 1.0]):
        overwrite(pick.ratios, np.array(ratios))
        front.set_ratios(ratios)
        for _ in range(3):
            source, rows = lists(pick())
            kept = [rows.tolist() for rows in front._kept_rows()]
            assert (rows, source) == (kept[0] + kept[1], [0] * len(kept[0]) + [1] * len(kept[1]))
    assert front.own["random_state"].asnumpy().tolist() == pick.state.asnumpy().tolist() == [77, 36]


def test_no_batch_is_drawn_while_a_source_is_locked():
    mixed = mix(("uniform", "uniform"))
    mixed.sample()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (mixed.sample(), done.set()))
    with mixed.sources[1].lock:
        thread.start()
        assert not done.wait(0.3)
    assert done.wait(60)
    thread.join()
