"""Saving and loading: checkpoints of MindSpore, `state_dict`, and identical draws afterwards."""

import functools
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_rows, cursors
from drivers import Calls
from mindspore import Tensor, nn

from mindspore_replay import ReplayBuffer
from mindspore_replay.buffers.parameters import overwrite

SHAPES, TYPES = [(2,), (), (3,)], [ms.float32, ms.uint64, ms.bool_]


def make_buffer(backend: str, seed: int = 0, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(sample_size=2, capacity=6, shapes=SHAPES, types=TYPES, seed=seed, backend=backend, **options)


def rows(*numbers: int) -> list[np.ndarray]:
    n = np.array(numbers)
    return [np.stack([n, -n], 1).astype(np.float32), n.astype(np.uint64), n[:, None] % np.array([2, 3, 5]) == 0]


@functools.cache
def _filled(backend: str, seed: int) -> tuple[ReplayBuffer, dict[str, np.ndarray]]:
    buffer = make_buffer(backend, seed)
    if backend == "composite":  # no graph is compiled for these rows
        return buffer, _filled("native", seed)[1]
    return buffer, fill(buffer).state_dict()


def make_filled(backend: str, seed: int = 0) -> ReplayBuffer:
    """Return a buffer in the state of `fill`; shared, with its graphs, by tests that change its values alone."""
    buffer, state = _filled(backend, seed)
    buffer.load_state_dict(state)
    return buffer


@functools.cache
def _other(backend: str) -> tuple[ReplayBuffer, dict[str, np.ndarray]]:
    buffer = make_buffer(backend, seed=9)
    return buffer, buffer.state_dict()


def make_other(backend: str) -> ReplayBuffer:
    """Return an empty buffer with another seed; shared, with its compiled graphs."""
    buffer, state = _other(backend)
    buffer.load_state_dict(state)
    return buffer


def fill(buffer: ReplayBuffer) -> ReplayBuffer:
    """Insert eight rows, of which six stay, and draw a sample."""
    buffer.insert(rows(0, 1, 2, 3, 4, 5, 6, 7))
    buffer.sample()
    return buffer


def draws(buffer: Any) -> list[list[int]]:
    return [buffer.sample()[1].asnumpy().tolist() for _ in range(5)]


class Agent(nn.Cell):
    """A Cell that holds two buffers beside a layer."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.memory = make_buffer("native", seed)
        self.expert = make_buffer("native", seed + 1)
        self.layer = nn.Dense(2, 2)


def assert_resumed(buffer: ReplayBuffer, saved: ReplayBuffer) -> None:
    """Check that cursors, rows and every later draw equal those of the saved buffer."""
    buffer.check_valid()
    assert cursors(buffer) == cursors(saved) == (2, 6, 8, 0)
    assert_rows(buffer.get_item(range(6)), [a.asnumpy() for a in saved.get_item(range(6))])
    assert draws(buffer) == draws(saved)


@pytest.mark.parametrize("suffix", ["ckpt", "safetensors"])
def test_a_checkpoint_of_a_buffer(backend: str, suffix: str):
    saved, buffer = make_filled(backend), make_other(backend)
    ms.save_checkpoint(saved, f"buffer.{suffix}", format=suffix)
    parameters = ms.load_checkpoint(f"buffer.{suffix}", format=suffix)
    assert sorted(parameters) == [*(f"column.{i}" for i in range(3)), "count", "head", "random_state", "serials"]
    assert ms.load_param_into_net(buffer, parameters, strict_load=True) == ([], [])
    assert_resumed(buffer, saved)


@pytest.mark.parametrize("suffix", ["ckpt", "safetensors"])
def test_a_checkpoint_of_a_cell_that_holds_buffers(suffix: str):
    saved, agent = Agent(), Agent(seed=20)
    fill(saved.memory)
    fill(saved.expert)
    agent.layer.weight.set_data(Tensor(np.zeros((2, 2), np.float32)))
    ms.save_checkpoint(saved, f"agent.{suffix}", format=suffix)
    parameters = ms.load_checkpoint(f"agent.{suffix}", format=suffix)
    assert {"memory.column.0", "memory.head", "expert.random_state", "layer.weight"} < set(parameters)
    assert ms.load_param_into_net(agent, parameters, strict_load=True) == ([], [])
    assert_resumed(agent.memory, saved.memory)
    assert_resumed(agent.expert, saved.expert)
    assert agent.layer.weight.asnumpy().tolist() == saved.layer.weight.asnumpy().tolist()


def test_a_checkpoint_goes_from_one_backend_to_the_other():
    saved, buffer = make_filled("native"), make_other("composite")
    ms.save_checkpoint(saved, "buffer.ckpt")
    ms.load_param_into_net(buffer, ms.load_checkpoint("buffer.ckpt"), strict_load=True)
    assert_resumed(buffer, saved)


def load_from_checkpoint(buffer: ReplayBuffer, saved: ReplayBuffer) -> None:
    ms.save_checkpoint(saved, "buffer.ckpt")
    ms.load_checkpoint("buffer.ckpt", buffer)


def load_from_state_dict(buffer: ReplayBuffer, saved: ReplayBuffer) -> None:
    buffer.load_state_dict(saved.state_dict())


@functools.cache
def _with_calls(backend: str) -> tuple[ReplayBuffer, Calls, dict[str, np.ndarray]]:
    buffer = make_buffer(backend, seed=9)
    return buffer, Calls(buffer), buffer.state_dict()


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("load", [load_from_checkpoint, load_from_state_dict])
def test_loading_after_graphs_were_compiled(backend: str, load: Any):
    """Eager and compiled calls see the loaded rows, insert behind them, and continue with the same draws."""
    buffer, calls, empty = _with_calls(backend)
    buffer.load_state_dict(empty)
    one = [Tensor(a) for a in rows(50)]
    for _ in range(2):
        calls.insert(*one)
    calls.sample()
    calls.get_item(Tensor(0))
    saved = make_filled(backend)
    load(buffer, saved)
    assert cursors(buffer) == (2, 6, 8, 0)
    assert [int(calls.get_item(Tensor(i))[1]) for i in range(6)] == [2, 3, 4, 5, 6, 7]
    assert [int(buffer.get_item(i)[1]) for i in range(6)] == [2, 3, 4, 5, 6, 7]
    assert [part.asnumpy().tolist() for part in calls.sample()] == [p.asnumpy().tolist() for p in saved.sample()]
    assert draws(buffer) == draws(saved)
    assert draws(calls) == draws(saved)
    assert int(calls.insert(*one)) == 6
    assert int(buffer.get_item(-1)[1]) == int(calls.get_item(Tensor(-1))[1]) == 50
    assert cursors(buffer) == (3, 6, 9, 0)


def test_state_dict_holds_arrays_by_name():
    state = fill(make_buffer("native", names=["x", "y", "z"])).state_dict()
    assert list(state) == [
        *("version", "capacity", "column.x", "column.y", "column.z", "head", "count", "serials", "random_state")
    ]
    assert all(type(value) is np.ndarray for value in state.values())
    assert (int(state["version"]), int(state["capacity"])) == (1, 6)
    assert (int(state["head"]), int(state["count"]), state["serials"].tolist()) == (2, 6, [8, 0])
    assert state["random_state"][1] == 2
    assert state["column.y"].tolist() == [6, 7, 2, 3, 4, 5]
    assert state["column.z"].dtype == np.uint8


def test_state_dict_is_a_copy(backend: str):
    buffer = make_filled("native")
    state = buffer.state_dict()
    buffer.insert(rows(8, 9, 10, 11))
    assert state["column.1"].tolist() == [6, 7, 2, 3, 4, 5]
    before = buffer.state_dict()
    other = make_other(backend)
    other.load_state_dict(before)
    before["column.1"][:] = 0
    assert int(other.get_item(-1)[1]) == 11


def test_state_dict_resumes(backend: str):
    saved, buffer = make_filled("native"), make_other(backend)
    buffer.load_state_dict(saved.state_dict())
    assert_resumed(buffer, saved)
    saved.insert(rows(8, 9, 10))
    saved.reset()
    saved.insert(rows(11, 12))
    buffer.load_state_dict(saved.state_dict())
    assert cursors(buffer) == (0, 2, 13, 11)
    assert draws(buffer) == draws(saved)


def test_state_dict_goes_from_one_backend_to_the_other():
    native, composite = make_filled("native"), make_other("composite")
    composite.load_state_dict(native.state_dict())
    assert_resumed(composite, native)
    native.load_state_dict(fill(composite).state_dict())
    assert draws(native) == draws(composite)


def test_state_dict_through_a_file(backend: str):
    saved, buffer = make_filled(backend), make_other(backend)
    np.savez("state.npz", **saved.state_dict())
    with np.load("state.npz") as state:
        buffer.load_state_dict(state)
    assert_resumed(buffer, saved)


def test_bfloat16_through_a_checkpoint_and_a_state_dict():
    def make() -> ReplayBuffer:
        return ReplayBuffer(sample_size=2, capacity=4, shapes=[(2,)], types=[ms.bfloat16], seed=0, backend="native")

    saved = make().insert([Tensor([[1.5, -2], [3, 0.25], [7, 8]], ms.bfloat16)])
    ms.save_checkpoint(saved, "buffer.ckpt")
    loaded, copied = make(), make()
    ms.load_checkpoint("buffer.ckpt", loaded)
    copied.load_state_dict(saved.state_dict())
    for buffer in (loaded, copied):
        assert buffer.get_item(1)[0].asnumpy().astype(np.float32).tolist() == [3, 0.25]
        assert buffer.get_item(1)[0].dtype == ms.bfloat16


def test_bfloat16_through_a_file():
    """NumPy writes the dtype of bfloat16 arrays as plain bytes."""
    saved = ReplayBuffer(sample_size=2, capacity=4, shapes=[(2,)], types=[ms.bfloat16], seed=0, backend="native")
    saved.insert([Tensor([[1.5, -2], [3, 0.25], [7, 8]], ms.bfloat16)])
    np.savez("state.npz", **saved.state_dict())
    buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[(2,)], types=[ms.bfloat16], seed=1, backend="native")
    with np.load("state.npz") as state:
        buffer.load_state_dict(dict(state))
    assert buffer.get_item(1)[0].asnumpy().astype(np.float32).tolist() == [3, 0.25]


def test_the_same_seed_gives_the_same_draws_everywhere():
    def with_rows(backend: str, seed: int) -> ReplayBuffer:
        buffer = make_buffer(backend, seed)
        own = buffer.state_dict()["random_state"]
        buffer.load_state_dict({**make_filled("native").state_dict(), "random_state": own})
        return buffer

    native, composite, other = with_rows("native", 5), with_rows("composite", 5), with_rows("native", 6)
    assert draws(native) == draws(composite)
    assert draws(native) != draws(other)


def test_the_seed_of_mindspore_is_the_default():
    ms.set_seed(7)
    first = ReplayBuffer(sample_size=1, capacity=2, shapes=[()], types=["int32"])
    second = ReplayBuffer(sample_size=1, capacity=2, shapes=[()], types=["int32"])
    ms.set_seed(7)
    again = ReplayBuffer(sample_size=1, capacity=2, shapes=[()], types=["int32"])
    assert first.random_state.asnumpy().tolist() == again.random_state.asnumpy().tolist()
    assert first.random_state.asnumpy().tolist() != second.random_state.asnumpy().tolist()


BAD_STATES = {
    "version": (lambda s: {**s, "version": np.array(2)}, "'version' of 'state_dict' must be 1, but got 2"),
    "no capacity": (lambda s: {k: v for k, v in s.items() if k != "capacity"}, "'capacity' of 'state_dict' must be 6"),
    "capacity": (lambda s: {**s, "capacity": np.array(7)}, "'capacity' of 'state_dict' must be 6, but got 7"),
    "missing": (
        lambda s: {k: v for k, v in s.items() if k != "head"},
        "'head': expected int32 \\(\\), but got nothing",
    ),
    "unknown": (lambda s: {**s, "tail": np.array(0)}, "unknown keys \\['tail'\\]"),
    "shape": (
        lambda s: {**s, "column.1": s["column.1"][:5]},
        "'column.1': expected uint64 \\(6,\\), but got uint64 \\(5,\\)",
    ),
    "dtype": (
        lambda s: {**s, "column.0": s["column.0"].astype(np.float64), "count": s["count"].astype(np.int64)},
        "'column.0': expected float32 \\(6, 2\\), but got float64 \\(6, 2\\); "
        "'count': expected int32 \\(\\), but got int64",
    ),
    "head": (lambda s: {**s, "head": np.int32(3)}, "got head=3, count=6, inserted=8, base=0"),
    "count": (lambda s: {**s, "count": np.int32(7)}, "got head=2, count=7, inserted=8, base=0"),
    "serials": (lambda s: {**s, "serials": np.array([8, 9])}, "got head=2, count=6, inserted=8, base=9"),
    "negative": (lambda s: {**s, "serials": np.array([7, -1])}, "got head=2, count=6, inserted=7, base=-1"),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_a_state_that_does_not_fit_changes_nothing(backend: str, case: str):
    buffer = make_filled(backend)
    before = buffer.state_dict()
    change, message = BAD_STATES[case]
    with pytest.raises(ValueError, match=f"For 'ReplayBuffer'.*{message}"):
        buffer.load_state_dict(change(make_filled(backend, seed=3).state_dict()))
    assert all(np.array_equal(before[key], value) for key, value in buffer.state_dict().items())


@pytest.mark.parametrize(
    ("name", "value"), [("head", 3), ("head", -1), ("count", 5), ("count", 7), ("serials", [2, 5]), ("serials", [9, 0])]
)
def test_check_valid_finds_broken_cursors(backend: str, name: str, value: Any):
    buffer = make_filled(backend)
    buffer.check_valid()
    overwrite(getattr(buffer, name), value)
    with pytest.raises(ValueError, match="For 'ReplayBuffer', the cursors must describe a ring of capacity 6"):
        buffer.check_valid()
