"""Saving and loading: checkpoints of MindSpore, `state_dict`, and identical draws afterwards."""

import functools
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_rows, cursors
from faces import Face, InGraph
from mindspore import Tensor, nn

from mindspore_replay import ReplayBuffer

SHAPES, TYPES = [(2,), (), (3,)], [ms.float32, ms.uint64, ms.bool_]


def make_buffer(backend: str, seed: int = 0, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(2, 6, SHAPES, TYPES, seed=seed, backend=backend, **options)


def rows(*numbers: int) -> list[np.ndarray]:
    n = np.array(numbers)
    return [np.stack([n, -n], 1).astype(np.float32), n.astype(np.uint64), n[:, None] % np.array([2, 3, 5]) == 0]


def make_filled(seed: int = 0) -> ReplayBuffer:
    """Return a native buffer in the state of `fill`."""
    return fill(make_buffer("native", seed))


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
def test_a_checkpoint_of_a_buffer(suffix: str):
    saved, buffer = make_filled(), make_buffer("native", seed=9)
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


def load_from_checkpoint(buffer: ReplayBuffer, saved: ReplayBuffer) -> None:
    ms.save_checkpoint(saved, "buffer.ckpt")
    ms.load_checkpoint("buffer.ckpt", buffer)


def load_from_state_dict(buffer: ReplayBuffer, saved: ReplayBuffer) -> None:
    buffer.load_state_dict(saved.state_dict())


@functools.cache
def _in_graphs(backend: str) -> tuple[InGraph, dict[str, np.ndarray]]:
    buffer = make_buffer(backend, seed=9, names=["x", "y", "z"])
    return InGraph(buffer), buffer.state_dict()


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize(
    ("mode", "backend", "load"),
    [
        ("graph", "native", load_from_state_dict),
        ("pynative", "native", load_from_checkpoint),
        ("graph", "composite", load_from_checkpoint),
    ],
    indirect=["mode"],
)
def test_loading_after_graphs_were_compiled(backend: str, load: Any):
    """Eager and compiled calls see the loaded rows, insert behind them, and continue with the same draws."""
    graph, empty = _in_graphs(backend)
    buffer = graph.buffer
    buffer.load_state_dict(empty)
    one = dict(zip("xyz", rows(50)))
    for _ in range(2):
        graph.insert(one)
    graph.sample()
    graph.get_item(0)
    saved = fill(make_buffer("native", names=["x", "y", "z"]))
    load(buffer, saved)
    assert cursors(buffer) == (2, 6, 8, 0)
    for read in (graph.get_item, buffer.get_item):
        assert [int(read(i)[1]) for i in range(6)] == [2, 3, 4, 5, 6, 7]
    for draw in (graph, Face(buffer), graph):
        assert draw.sample()["y"].tolist() == saved.sample()[1].asnumpy().tolist()
    graph.insert(one)
    assert int(buffer.get_item(-1)[1]) == int(graph.get_item(-1)[1]) == 50
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


def test_state_dict_resumes():
    """It is a copy, and NumPy can write it to a file."""
    saved, buffer = make_filled(), make_buffer("native", seed=9)
    state = saved.state_dict()
    np.savez("state.npz", **state)
    saved.insert(rows(8, 9, 10, 11))
    assert state["column.1"].tolist() == [6, 7, 2, 3, 4, 5]
    with np.load("state.npz") as loaded:
        buffer.load_state_dict(loaded)
    saved.load_state_dict(state)
    state["column.1"][:] = 0
    assert_resumed(buffer, saved)
    saved.insert(rows(8, 9, 10))
    saved.reset()
    saved.insert(rows(11, 12))
    buffer.load_state_dict(saved.state_dict())
    assert cursors(buffer) == (0, 2, 13, 11)
    assert draws(buffer) == draws(saved)


def test_bfloat16_through_a_checkpoint_and_a_state_dict():
    """NumPy writes the dtype of bfloat16 arrays to files as plain bytes."""

    def make() -> ReplayBuffer:
        return ReplayBuffer(2, 4, [(2,)], [ms.bfloat16], seed=0, backend="native")

    saved = make().insert([Tensor([[1.5, -2], [3, 0.25], [7, 8]], ms.bfloat16)])
    ms.save_checkpoint(saved, "buffer.ckpt")
    np.savez("state.npz", **saved.state_dict())
    loaded, copied, read = make(), make(), make()
    ms.load_checkpoint("buffer.ckpt", loaded)
    copied.load_state_dict(saved.state_dict())
    with np.load("state.npz") as state:
        read.load_state_dict(dict(state))
    for buffer in (loaded, copied, read):
        assert buffer.get_item(1)[0].asnumpy().astype(np.float32).tolist() == [3, 0.25]
        assert buffer.get_item(1)[0].dtype == ms.bfloat16


def test_the_same_seed_gives_the_same_draws():
    one, same, other = (make_buffer("native", seed).insert(rows(*range(6))) for seed in (5, 5, 6))
    assert draws(one) == draws(same) != draws(other)


def test_the_seed_of_mindspore_is_the_default():
    ms.set_seed(7)
    first = ReplayBuffer(1, 2, [()], ["int32"])
    second = ReplayBuffer(1, 2, [()], ["int32"])
    ms.set_seed(7)
    again = ReplayBuffer(1, 2, [()], ["int32"])
    assert first.random_state.asnumpy().tolist() == again.random_state.asnumpy().tolist()
    assert first.random_state.asnumpy().tolist() != second.random_state.asnumpy().tolist()
