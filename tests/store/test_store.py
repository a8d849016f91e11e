"""The store under a buffer: importing it loads no MindSpore, and it owns the memory of the buffer's Parameters."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from mindspore import Parameter, Tensor, ops

import mindspore_replay
from mindspore_replay import (
    ElasticReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.store.base.schema import Schema
from mindspore_replay.store.kernels.library import KernelError
from mindspore_replay.store.rows.store import Store

pytestmark = pytest.mark.cpu_only("a store keeps its rows in host memory")


def run(program: str, folder: Path) -> str:
    """Return the output of a process in which warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


LAZY = """
import sys
import mindspore_replay
assert mindspore_replay.__version__
assert set(mindspore_replay.__all__) <= set(dir(mindspore_replay))
import mindspore_replay.store
assert "mindspore" not in sys.modules
try:
    mindspore_replay.nothing
except AttributeError as error:
    print(error)
assert "mindspore" not in sys.modules
"""


def test_the_package_alone_does_not_import_mindspore(tmp_path: Path):
    assert run(LAZY, tmp_path) == "module 'mindspore_replay' has no attribute 'nothing'"


def test_every_public_name_is_there():
    names: dict[str, Any] = {}
    exec("from mindspore_replay import *", names)
    assert names.keys() - {"__builtins__"} == set(mindspore_replay.__all__)
    assert set(mindspore_replay.__all__) - {"__version__"} == set(mindspore_replay._PLACES)
    assert mindspore_replay.__all__ == sorted(mindspore_replay.__all__)
    for name in mindspore_replay.__all__:
        assert name in dir(mindspore_replay)
        assert names[name] is getattr(mindspore_replay, name)
    assert names["PriorityReplayBuffer"] is PrioritizedReplayBuffer
    assert names["UniformReplayBuffer"] is ReplayBuffer


NAMES, CAPACITY = ["observation", "reward", "terminated", "truncated", "group"], 24
SHAPES: list[tuple[int, ...]] = [(2,), (), (), (), ()]
TYPES = ["float32", "float32", "bool", "bool", "int32"]
KINDS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "uniform": (ReplayBuffer, {}),
    "prioritized": (PrioritizedReplayBuffer, {"alpha": 0.7, "beta_steps": 5}),
    "sequences": (SequenceReplayBuffer, {"sequence_length": 3, "burn_in": 1, "pad_end": True}),
    "reservoir": (ReservoirReplayBuffer, {}),
    "elastic": (ElasticReplayBuffer, {"window": 6}),
}


def make(kind: str, seed: int = 0) -> Any:
    cls, options = KINDS[kind]
    return cls(2, CAPACITY, SHAPES, TYPES, names=NAMES, seed=seed, backend="native", **options)


def store_like(buffer: Any) -> Store:
    """Return a store of its own, of the buffer's kind and with its seed."""
    return Store(Schema(type(buffer).__name__, SHAPES, TYPES, NAMES), buffer.options)


def rows(n: int | None, first: int) -> list[np.ndarray]:
    """Return n rows, or one without a leading axis."""
    numbers = np.arange(first, first + (n or 1))
    observations = np.stack([numbers, -numbers], 1).astype(np.float32)
    flags = numbers % 7 == 0
    batch = [observations, (numbers % 5).astype(np.float32), flags, ~flags & (numbers % 5 == 0), numbers % 3]
    batch[4] = batch[4].astype(np.int32)
    return batch if n else [field[0] for field in batch]


def same_arrays(store: Store, state: dict[str, np.ndarray]) -> None:
    own = store.state_dict()
    assert own.keys() == state.keys()
    for name, array in own.items():
        assert (array.shape, array.dtype) == (state[name].shape, state[name].dtype), name
        assert array.tobytes() == state[name].tobytes(), name


# The memory of a buffer's Parameters.


def assert_shared(buffer: Any) -> None:
    """Check that every Parameter shares the memory of an array of the store, and the reverse."""
    parameters, arrays = buffer.state.state_parameters(), buffer._front.calls.arrays
    assert parameters.keys() == arrays.keys()
    for name, parameter in parameters.items():
        seen = parameter.asnumpy()
        assert (seen.shape, seen.dtype) == (arrays[name].shape, arrays[name].dtype), name
        assert seen.ctypes.data == arrays[name].ctypes.data, name


class InsertsAndSamples(Kept):
    """A graph that stores rows and draws some."""

    @ms.jit
    def step(self, *fields):
        self.buffer.insert(fields)
        return self.buffer.sample()


def make_filled(kind: str, seed: int) -> Any:
    buffer = make(kind, seed)
    return buffer.insert(rows(12, 50), **({"end": [False, True] * 6} if buffer.has_episodes else {}))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_lie_in_the_arrays_of_the_store(kind: str):
    buffer = make(kind)
    assert_shared(buffer)
    buffer.insert(rows(12, 0), **({"end": [False] * 12} if buffer.has_episodes else {}))
    assert_shared(buffer)
    assert [column[0] for column in buffer._front.calls.read(np.array([3]))[0].asnumpy()] == [3.0]
    other = make_filled(kind, 7).state.state_parameters()
    for name, parameter in buffer.state.state_parameters().items():
        parameter.set_data(Tensor(other[name].asnumpy().copy()))
        assert buffer._front.calls.arrays[name].tobytes() == other[name].asnumpy().tobytes(), name
        assert_shared(buffer)
    buffer.check_valid()
    buffer.load_state_dict(make_filled(kind, 3).state_dict())
    assert_shared(buffer)
    ms.load_param_into_net(
        buffer, {name: Parameter(value) for name, value in make_filled(kind, 4).state.state_parameters().items()}
    )
    assert_shared(buffer)
    same_arrays(buffer._front.calls, make_filled(kind, 4).state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_what_graphs_and_operators_write_is_in_the_arrays(kind: str):
    buffer = make(kind)
    buffer.insert(rows(12, 0), **({"end": [False] * 12} if buffer.has_episodes else {}))
    arrays = buffer._front.calls.arrays
    ops.assign(buffer.buffer[1], Tensor(np.full(CAPACITY, 8, np.float32)))
    buffer.size()  # waits for the operator
    assert (arrays["column.reward"] == 8).all()
    assert_shared(buffer)
    assert buffer.get_item(0)[1] == 8
    graph, twin = InsertsAndSamples(buffer), store_like(buffer)
    twin.load_state_dict(buffer.state_dict())
    for first in (100, 110):
        batch = rows(6, first)
        drawn = graph.step(*(Tensor(field) for field in batch))
        twin.insert(batch)
        given = twin.sample()[-len(drawn) :]
        assert [part.asnumpy().tobytes() for part in drawn] == [part.tobytes() for part in given]
        assert_shared(buffer)
        same_arrays(twin, buffer._front.calls.state_dict())
    if "reservoir" not in kind:
        stored = arrays["column.observation"][12:24, 0]
        assert stored.tolist() == [*range(100, 106), *range(110, 116)]


def test_rows_written_into_the_arrays_are_read_by_a_graph():
    buffer = make("uniform")
    buffer.insert(rows(CAPACITY, 0))
    buffer._front.calls.arrays["column.reward"][:] = 3
    drawn = InsertsAndSamples(buffer).step(*(Tensor(field) for field in rows(2, 40)))
    assert set(drawn[1].asnumpy().tolist()) <= {3.0, 0.0, 1.0}
    assert buffer.get_item(0)[1] == 3


@pytest.mark.parametrize("kind", ["prioritized", "sequences"])
def test_a_buffer_of_another_sample_size_has_the_same_arrays(kind: str):
    buffer = make(kind)
    other = buffer.with_sample_size(5)
    assert_shared(other)
    buffer.insert(rows(12, 0), **({"end": [False] * 12} if buffer.has_episodes else {}))
    assert other._front.calls.count() == 12
    assert {id(array) for array in other._front.calls.arrays.values()} == {
        id(a) for a in buffer._front.calls.arrays.values()
    }


def test_a_buffer_that_calls_graphs_has_no_store():
    buffer = ReplayBuffer(1, 4, [()], ["int32"], seed=0, backend="composite")
    assert not isinstance(buffer._front.calls, Store)


# Errors.


def test_too_few_rows_change_nothing():
    store = store_like(make("prioritized"))
    before = store.state_dict()
    with pytest.raises(KernelError, match=r"^The kernel 'replay_sample' failed with status 2: fewer rows are eligible"):
        store.sample()
    same_arrays(store, before)
    store.insert(rows(None, 0))
    before = store.state_dict()
    with pytest.raises(KernelError, match=r"'replay_sample' failed with status 4: a priority, weight or beta"):
        store.sample(beta=1.5)
    with pytest.raises(IndexError, match=r"'index' must be in \[-1, 1\), since 1 rows are stored, but got 1"):
        store.read(np.array([0, 1]))
    same_arrays(store, before)


HOLD_ALL = """
import contextlib
from mindspore_replay import host
buffers = [host.ReplayBuffer(1, 4, [()], ["int32"], seed=0).insert([7]) for _ in range(80)]
with contextlib.ExitStack() as stack:
    states = [stack.enter_context(buffer.state.snapshot()) for buffer in buffers]
    print(sum(int(buffer.insert([8]).sample()[0].size) for buffer in buffers[::-1]))
"""


def test_a_thread_that_holds_one_buffer_may_use_others():
    """More buffers than there are locks: two of them always share one."""
    run = subprocess.run([sys.executable, "-c", HOLD_ALL], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout == "80\n"
