"""Batches from several buffers: exact counts, priorities that stay with their source; draws are in `test_twin.py`."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body, Kept
from mindspore import Tensor, nn

from mindspore_replay import MixedReplay, PrioritizedReplayBuffer, ReplayBuffer, ReservoirReplayBuffer, host
from mindspore_replay.store.faces import mixture
from mindspore_replay.store.faces.mixture import exact_counts
from mindspore_replay.store.kernels import library

NAMES = ["observation", "reward", "terminated"]
COLUMNS: dict[str, Any] = {"shapes": [(2,), (), ()], "types": ["float32", "float32", "bool"]}
#: First row number of each source.
FIRST = (0, 1000)

KINDS: dict[str, Callable[..., ReplayBuffer]] = {
    "uniform": lambda n, **o: ReplayBuffer(n, 50, **COLUMNS, **o),
    "distinct": lambda n, **o: ReplayBuffer(n, 50, **COLUMNS, replace=False, weighted=True, **o),
    "reservoir": lambda n, **o: ReservoirReplayBuffer(n, 20, **COLUMNS, **o),
    "prioritized": lambda n, **o: PrioritizedReplayBuffer(n, 50, **COLUMNS, alpha=1.0, **o),
}


def make(kind: str, n: int, source: int) -> ReplayBuffer:
    """Return a buffer with thirty rows, which carry the numbers of the source."""
    buffer = KINDS[kind](n, names=NAMES, seed=source)
    for step in range(30):
        number = FIRST[source] + step
        buffer.insert([np.full(2, number, np.float32), np.float32(number), step % 14 == 6])
    return buffer


def lists(columns: Any) -> list[Any]:
    return [column.asnumpy().tolist() for column in columns]


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


class Update(Body):
    """Sets priorities of rows."""

    def construct(self, source, indices, priorities):
        return self.buffer.update_priorities(source, indices, priorities)


def test_its_length_is_that_of_all_sources():
    mixed = MixedReplay([(make("uniform", 2, 0), 1), (make("reservoir", 2, 1), 1)], 4)
    assert len(mixed) == sum(int(source.size()) for source in mixed.sources) == 50


def test_a_trainer_may_hold_the_buffers_too(tmp_path: Any):
    class Trainer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.agent, self.expert = make("prioritized", 2, 0), make("uniform", 2, 1)
            self.replay = MixedReplay([(self.agent, 0.5), (self.expert, 0.5)], 4)

    one, other = Trainer(), Trainer()
    names = [parameter.name for parameter in one.get_parameters()]
    assert len(names) == len(set(names))
    assert {"source_0.head", "source_1.head"} <= dict(one.replay.parameters_and_names()).keys()
    one.agent.reset()
    path = str(tmp_path / "trainer.ckpt")
    ms.save_checkpoint(one, path)
    assert ms.load_param_into_net(other, ms.load_checkpoint(path)) == ([], [])
    assert (int(other.agent.size()), int(other.expert.size())) == (0, 30)
    assert not other.replay.can_sample()


class Two(Kept):
    """Two mixtures in one graph."""

    def __init__(self) -> None:
        self.one, self.other = (MixedReplay([(make("uniform", 2, i), 1) for i in range(2)], 4) for _ in range(2))

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


class CanSample(Body):
    """Evaluates `can_sample`."""

    def construct(self):
        return self.buffer.can_sample()


def test_each_source_must_have_its_rows():
    sources = [make("uniform", 2, i) for i in range(2)]
    mixed = MixedReplay([(source, 1) for source in sources], 4)
    can_sample = ms.jit(CanSample(mixed).construct)
    assert can_sample()
    sources[1].reset()
    assert not can_sample()
    assert not mixed.can_sample()


def test_the_state_as_arrays():
    one, other = (MixedReplay([(make("uniform", 2, i), 1), (make("prioritized", 2, 1 - i), 3)], 4) for i in range(2))
    one.sample()
    other.load_state_dict(one.state_dict())
    assert lists(other.sample()) == lists(one.sample())
    state = one.state_dict()
    for wrong in ({**state, "ratios": np.ones(2)}, {**state, "source_1.count": np.int32(99)}):
        with pytest.raises(ValueError, match=r"unknown keys \['ratios'\]|count=99"):
            other.load_state_dict(wrong)
    assert lists(other.sample()) == lists(one.sample())


def filled(seed: int, module: Any = host, **options: Any) -> Any:
    return module.ReplayBuffer(1, 8, [()], ["int32"], seed=seed, **options).insert([np.arange(8)])


def test_no_source_is_drawn_from_if_one_has_too_few_rows():
    sources = [filled(0, weighted=True), filled(1, max_use=1)]
    mixed = host.MixedReplay([(source, 1) for source in sources], 4)
    for left in (6, 4, 2, 0):
        mixed.sample()
        assert sources[1].eligible() == left
    before = mixed.state_dict()
    with pytest.raises(RuntimeError, match=r"For 'MixedReplay', .* of source 1.* 0 "):
        mixed.sample()
    for key, array in mixed.state_dict().items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)


def test_a_batch_belongs_to_the_caller():
    """Memory is used again only once nothing refers to it, and what the caller writes there changes no later batch."""
    mixed, same = (host.MixedReplay([(filled(0), 1), (filled(1), 3)], 4) for _ in range(2))
    kept = [mixed.sample(with_indices=True) for _ in range(9)]
    for batch in kept:
        expected = same.sample(with_indices=True)
        for got, array in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(got, array)
        assert [array.dtype.name for array in expected] == ["int32", "int64", "float32", "int32"]
        for array in expected:
            array[...] = 7


def test_kernels_alone_draw_where_they_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """In one call. Rows that other processes may draw, or in a window, are drawn one by one."""

    def refuse(*_: object) -> None:
        raise LookupError("one by one")

    monkeypatch.setattr(mixture.MixedReplay, "_drawn", refuse)
    for mixed, one, other in (
        (host.MixedReplay, filled(0), filled(1, weighted=True)),
        (MixedReplay, make("prioritized", 2, 0), make("distinct", 2, 1)),
    ):
        assert len(mixed([(one, 1), (other, 1)], 4).sample(with_indices=True)) > 3
    window = host.ElasticReplayBuffer(1, 8, [()], ["int32"], window=4).insert([np.arange(8)])
    for other in (filled(1, storage=tmp_path / "rows"), window):
        with pytest.raises(LookupError, match="one by one"):
            host.MixedReplay([(filled(0), 1), (other, 1)], 4).sample()


def test_a_source_may_give_all_of_its_rows():
    mixed = host.MixedReplay([(filled(0, replace=False), 1), (filled(1), 1)], 16)
    assert sorted(mixed.sample()[1][:8].tolist()) == list(range(8))


def test_a_limiter_that_is_set_later_counts():
    source, other = filled(0), filled(1)
    mixed = host.MixedReplay([(source, 1), (other, 1)], 4)
    mixed.sample()
    other.limiter = host.RateLimiter(1, 1, 2, timeout=0.01)
    mixed.sample()
    assert other.limiter.sampled == 2
    with pytest.raises(TimeoutError, match="2 rows could not be sampled within"):
        mixed.sample()
    other.limiter = None
    assert mixed.sample()[0].tolist() == [0, 0, 1, 1]


def test_a_source_that_is_closed():
    source, other = filled(0), filled(1)
    mixed = host.MixedReplay([(source, 1), (other, 1)], 4)
    mixed.sample()
    other.close()
    with pytest.raises(RuntimeError, match="the buffer was closed"):
        mixed.sample()


def test_parts_that_do_not_fit_are_no_mixture():
    """C++ writes into arrays by these forms, so it checks them itself."""
    calls = library.extension()
    stores = [
        of._front.calls for of in (filled(0), filled(1, weighted=True), host.ReplayBuffer(1, 8, [(2,)], ["int32"]))
    ]
    one, weighted, wide = ((store.try_sample.__self__, store.arrays["count"], 1.0) for store in stores)
    guards = (stores[0].guard,)
    assert calls.Mixture(guards, ((*one, False, False), (*weighted, True, False)), None).now(True)[0].tolist() == [0, 1]
    for parts in (
        ((*one, False, False), (*weighted, False, False)),
        ((*one, True, False),),
        ((*one, True, True),),
        ((*one, False, False), (*wide, False, False)),
        ((one[0], 3, 1.0, False, False),),
        (),
    ):
        with pytest.raises(ValueError, match="the outputs of a part do not fit"):
            calls.Mixture(guards, parts, None)
    for parts in ((one,), ((guards[0], *one[1:], False, False),), [(*one, False, False)]):
        with pytest.raises(TypeError):
            calls.Mixture(guards, parts, None)
    with pytest.raises(TypeError, match=r"now\(with_indices\)"):
        calls.Mixture(guards, ((*one, False, False),), None).now()


def test_no_batch_is_drawn_while_a_source_is_locked():
    mixed = MixedReplay([(make("uniform", 9, i), 1) for i in range(2)], 5)
    mixed.sample()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (mixed.sample(), done.set()))
    with mixed.sources[1].lock:
        thread.start()
        assert not done.wait(0.3)
    assert done.wait(60)
    thread.join()
