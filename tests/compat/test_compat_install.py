"""The patches of `install` and their removal; a package written for MindSpore's old operators runs on it."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from places import ROOT

from mindspore_replay import ReplayBuffer
from mindspore_replay.compat import Patch, handles, install, operators, uninstall
from mindspore_replay.mindspore_api import find_parser

OPERATIONS = "mindspore.ops.operations"
QUEUES = ("Create", "Put", "Get", "Close", "Clear", "Size")
REMOVED = ["BatchAssign", "EnvCreate", "EnvReset", "EnvStep", "MuxReceive", "MuxSend"]
REMOVED += [f"TensorsQueue{what}" for what in QUEUES]
REMOVED = [name for name in REMOVED if not hasattr(importlib.import_module(f"{OPERATIONS}._rl_inner_ops"), name)]
PARSER = find_parser()
SWITCHES = importlib.import_module(f"{PARSER.__name__}.compile_config")
OF_HANDLES = [f"PriorityReplayBuffer{what}" for what in ("Create", "Destroy", "Push", "Sample", "Update")]
OF_HANDLES += [f"ReservoirReplayBuffer{what}" for what in ("Create", "Destroy", "Push", "Sample")]
#: True if this MindSpore adds in place for += in compiled code.
IN_PLACE = SWITCHES.JIT_ENABLE_AUGASSIGN_INPLACE == "1"

#: A package in the style of MindSpore RL: it imports the operators by their old names, makes its buffers on them from a
#: configuration, keeps them as `self.buffers`, and runs episodes in compiled methods that count with `+=`.
PACKAGE = {
    "buffers": """
import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, get_seed, nn
from mindspore.ops import operations as P


class Uniform(nn.Cell):
    def __init__(self, sample_size, capacity, shapes, types):
        super().__init__()
        self.buffer = ParameterTuple([
            Parameter(Tensor(np.zeros((capacity,) + shape), dtype), name=f"column_{i}", requires_grad=False)
            for i, (shape, dtype) in enumerate(zip(shapes, types))
        ])
        self.count = Parameter(Tensor(0, ms.int32), name="count", requires_grad=False)
        self.head = Parameter(Tensor(0, ms.int32), name="head", requires_grad=False)
        self.none = Tensor(0, ms.int32)
        self.append_op = P.BufferAppend(capacity, shapes, types).add_prim_attr("primitive_target", "CPU")
        self.get_op = P.BufferGetItem(capacity, shapes, types)
        self.buffer_sample = P.BufferSample(capacity, sample_size, shapes, types, get_seed() or 0)
        self.capacity = Tensor([capacity], ms.int32)
        self.assign, self.reshape, self.greater_equal = P.Assign(), P.Reshape(), P.GreaterEqual()

    def insert(self, exp):
        self.append_op(self.buffer, exp, self.count, self.head)
        return self.buffer

    def get_item(self, index):
        return self.get_op(self.buffer, self.count, self.head, index)

    def sample(self):
        return self.buffer_sample(self.buffer, self.count, self.head)

    def reset(self):
        return self.assign(self.count, self.none)

    def full(self):
        return self.greater_equal(self.reshape(self.count, (1,)), self.capacity)


""",
    "utils": """
import mindspore.ops.operations._rl_inner_ops as rl_ops
from mindspore import nn
from mindspore.ops.operations import _tensor_array as ta
from mindspore.ops.operations._rl_inner_ops import BatchAssign, EnvCreate, EnvReset, EnvStep, MuxReceive, MuxSend


class Queue(nn.Cell):
    def __init__(self, dtype, shapes):
        super().__init__()
        self.put_op = rl_ops.TensorsQueuePut(dtype, shapes)
        self.handle = rl_ops.TensorsQueueCreate(dtype, shapes, 0, "queue")()


class Discounted(nn.Cell):
    def __init__(self, gamma, fused):
        super().__init__()
        self.gamma, self.fused = gamma, fused
        self.fused_op = rl_ops.DiscountedReturn(gamma)

    def construct(self, reward):
        if self.fused:
            return self.fused_op(reward, reward, reward)
        return reward * self.gamma
""",
    "trainer": '''
import mindspore as ms
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P


class Kit(nn.Cell):
    """The objects of a trainer, made from a configuration."""

    def __init__(self, config):
        super().__init__()
        self.buffers = None
        self.replay_buffer_sample = None
        self.replay_buffer_insert = None
        settings = config["replay_buffer"]
        params = settings["params"]
        params["shapes"], params["types"] = tuple(settings["data_shape"]), tuple(settings["data_type"])
        self.buffers = settings["type"](**params)
        self.replay_buffer_sample = self.buffers.sample
        self.replay_buffer_insert = self.buffers.insert
        self.replay_buffer_full = self.buffers.full
        self.replay_buffer_reset = self.buffers.reset

    def elements(self):
        elements = ()
        for element in self.buffers.buffer:
            elements += (element,)
        return elements


class Trainer(nn.Cell):
    def __init__(self, kit):
        super().__init__()
        self.kit = kit
        self.zero = Tensor(0, ms.int32)
        self.less = P.Less()
        self.greater_equal = P.GreaterEqual()
        self.reshape = P.Reshape()
        self.inited = Parameter(Tensor((False,), ms.bool_), name="inited")
        self.true = Tensor((True,), ms.bool_)
        self.first = Tensor(4, ms.int32)

    @ms.jit
    def fill(self, state):
        """Random steps before the first episode."""
        steps = self.zero
        while self.less(steps, self.first):
            self.kit.replay_buffer_insert([state, self.reshape(steps, (1,))])
            steps += 1
        return steps

    @ms.jit
    def train_one_episode(self, state, length):
        if not self.inited:
            self.fill(state)
            self.inited = self.true
        total = self.zero
        steps = self.zero
        learned = self.zero
        while self.less(steps, length):
            self.kit.replay_buffer_insert([state, self.reshape(steps, (1,))])
            if self.greater_equal(self.kit.buffers.count, self.first):
                drawn = self.kit.replay_buffer_sample()
                total += drawn[1].max().astype(ms.int32)
                learned += 1
            steps += 1
        return steps, total, learned

    @ms.jit
    def learn_on_policy(self, state):
        """Fills the buffer, reads all of it, and empties it."""
        steps = self.zero
        while not self.kit.replay_buffer_full():
            self.kit.replay_buffer_insert([state, self.reshape(steps, (1,))])
            steps += 1
        total = self.kit.elements()[1].sum()
        self.kit.replay_buffer_reset()
        return steps, total


''',
}


@pytest.fixture
def patches() -> Iterator[tuple[Patch, ...]]:
    """Patch MindSpore, and restore it afterwards."""
    try:
        yield install()
    finally:
        uninstall()


@pytest.fixture
def package(patches: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a module of the package. The compiler reads it from its file."""
    folder = tmp_path / "old_style_rl"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name, source in PACKAGE.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))

    def get(name: str) -> ModuleType:
        return importlib.import_module(f"old_style_rl.{name}")

    yield get
    for name in [name for name in sys.modules if name.split(".")[0] == "old_style_rl"]:
        del sys.modules[name]


def config(buffer: Any, **params: Any) -> dict[str, Any]:
    return {
        "replay_buffer": {
            "number": 1,
            "type": buffer,
            "params": params,
            "data_shape": [(2,), (1,)],
            "data_type": [ms.float32, ms.int32],
        }
    }


STATE = Tensor([0.0, 0.0], ms.float32)


def namespaces() -> list[dict[str, Any]]:
    """Return all namespaces that `install` may touch."""
    owners = [importlib.import_module(name) for name in (OPERATIONS, f"{OPERATIONS}._rl_inner_ops")]
    found = [dict(vars(owner)) for owner in [*owners, PARSER, SWITCHES, nn.Cell]]
    for names in found:
        names.pop("total_instance_count", None)  # number of Cells, which the garbage collector changes at any time
    return found


def test_nothing_is_active_unless_called_and_all_is_undone():
    before, modules = namespaces(), set(sys.modules)
    assert getattr(importlib.import_module(OPERATIONS), "BufferAppend", None) is not operators.BufferAppend
    patches = install()
    assert install() == patches
    assert {"BufferAppend", "buffers", *REMOVED} <= {patch.name for patch in patches}
    inner = importlib.import_module(f"{OPERATIONS}._rl_inner_ops")
    for name in OF_HANDLES:
        assert getattr(inner, name) is getattr(handles, name)
    assert ("augmented assignment" in {patch.name for patch in patches}) == IN_PLACE
    assert len({patch.name for patch in patches}) == len(patches)
    for patch in patches:
        owner, _, name = patch.target.rpartition(".")
        assert name in vars(pkgutil.resolve_name(owner))
        assert patch.purpose
    assert namespaces() != before
    uninstall()
    assert namespaces() == before
    assert f"{OPERATIONS}._tensor_array" not in set(sys.modules) - modules
    uninstall()
    assert namespaces() == before


def test_the_migration_page_names_every_patch(patches: Any):
    page = (ROOT / "docs" / "mindspore_rl.md").read_text(encoding="utf-8")
    assert [patch.name for patch in patches if f"`{patch.name}`" not in page] == []


def test_what_is_there_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    inner = importlib.import_module(f"{OPERATIONS}._rl_inner_ops")
    own = object()
    monkeypatch.setattr(inner, "BatchAssign", own, raising=False)
    monkeypatch.setattr(SWITCHES, "JIT_ENABLE_AUGASSIGN_INPLACE", "0")
    try:
        names = [patch.name for patch in install()]
        assert inner.BatchAssign is own
        assert not {"BatchAssign", "augmented assignment"} & set(names)
    finally:
        uninstall()
    assert inner.BatchAssign is own


@pytest.mark.skipif(not REMOVED, reason="MindSpore up to 2.7 has these operators")
def test_removed_operators_say_so_when_called(package: Any):
    utils = package("utils")
    inner = importlib.import_module(f"{OPERATIONS}._rl_inner_ops")
    for name in REMOVED:
        operator = getattr(inner, name)(1, (2,), key="value").add_prim_attr("lock", True)
        with pytest.raises(NotImplementedError, match=f"no longer has the operator '{name}'"):
            operator(1)
    with pytest.raises(NotImplementedError, match="'TensorsQueueCreate'"):
        utils.Queue(ms.float32, ((1,),))
    with pytest.raises(NotImplementedError, match="'TensorArray'"):
        utils.ta.TensorArray(ms.float32, ())()
    with pytest.raises(NotImplementedError, match="'TensorArrayGather'"):
        importlib.import_module(f"{OPERATIONS}._tensor_array").TensorArrayGather()()


@pytest.mark.skipif(not REMOVED, reason="MindSpore up to 2.7 has these operators")
def test_discounted_return_is_constructed_and_not_called_off_the_gpu(package: Any):
    discounted = package("utils").Discounted
    assert ms.jit(discounted(0.5, False).construct)(Tensor([2.0])).asnumpy().tolist() == [1.0]
    with pytest.raises(Exception, match="no longer has the operator 'DiscountedReturn'"):
        ms.jit(discounted(0.5, True).construct)(Tensor([2.0]))


@pytest.fixture
def graph_kernels_off() -> Iterator[None]:
    assert not ms.get_context("enable_graph_kernel")
    yield
    ms.set_context(enable_graph_kernel=False)


@pytest.mark.usefixtures("graph_kernels_off")
@pytest.mark.skipif(ms.get_context("device_target") != "CPU", reason="graph kernels stay off on the CPU only")
def test_graph_kernels_stay_off_on_a_cpu():
    try:
        install()
        with pytest.warns(UserWarning, match="'enable_graph_kernel' stays False on the CPU") as warned:
            ms.set_context(enable_graph_kernel=True)
        assert [warning.filename for warning in warned] == [__file__]
        assert not ms.get_context("enable_graph_kernel")
        ms.set_context(enable_graph_kernel=False)
    finally:
        uninstall()
    ms.set_context(enable_graph_kernel=True)
    assert ms.get_context("enable_graph_kernel")


class LogSumExp(nn.Cell):
    """Each way to call it: MindSpore RL's and the current one."""

    def construct(self, x):
        old = ops.logsumexp(x, axis=1), ops.logsumexp(x, axis=1, keep_dims=True)
        return *old, ops.logsumexp(x, 1), ops.logsumexp(x, dim=1, keepdim=True)


@pytest.mark.usefixtures("patches")
def test_logsumexp_takes_an_axis(mode: str):
    x = np.array([[0.0, 1.0], [2.0, 5.0]], np.float32)
    expected = np.log(np.exp(x).sum(1))
    for got, kept in zip(LogSumExp()(Tensor(x)), (False, True, False, True)):
        np.testing.assert_allclose(got.asnumpy(), expected[:, None] if kept else expected, rtol=1e-6)


class TensorCheck(nn.Cell):
    """In the style of MindSpore RL's GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.is_tensor = ops.constexpr(lambda kind: isinstance(kind, ms.common.dtype.tensor_type), check=False)

    def construct(self, x, y):
        return self.is_tensor(ops.typeof(x)), self.is_tensor(ops.typeof(y))


def test_tensor_type_in_isinstance(patches: Any):
    assert ms.jit(TensorCheck().construct)(Tensor([1.0]), 1) == (True, False)
    assert isinstance(ms.tensor_type, ms.TensorType)
    assert not isinstance(ms.float32, ms.tensor_type)
    uninstall()
    if not isinstance(ms.tensor_type, type):
        with pytest.raises(TypeError, match="arg 2 must be a type"):
            isinstance(ms.float32, ms.tensor_type)


@pytest.mark.cpu_only("other devices keep MindSpore's method")
def test_loss_scaling_finds_overflows(patches: Any):
    del patches
    layer = nn.Dense(2, 1, weight_init="ones", has_bias=False)
    loss = nn.WithLossCell(layer, nn.MSELoss())
    optimizer = nn.SGD(layer.trainable_params(), learning_rate=0.125)
    step = nn.TrainOneStepWithLossScaleCell(loss, optimizer, Tensor(4.0, ms.float32)).set_train()
    target = Tensor([[0.0]], ms.float32)
    _, overflow, _ = step(Tensor([[1.0, 1.0]], ms.float32), target)  # gradient 4 of each weight
    assert not overflow.asnumpy()
    assert layer.weight.asnumpy().tolist() == [[0.5, 0.5]]
    _, overflow, _ = step(Tensor([[np.inf, 1.0]], ms.float32), target)
    assert overflow.asnumpy()
    assert layer.weight.asnumpy().tolist() == [[0.5, 0.5]]


class Keeper(nn.Cell):
    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.buffers = None
        self.buffers = cell

    def construct(self):
        return self.buffers.size()


def test_a_cell_named_buffers(patches: Any):
    replay = ReplayBuffer(1, 4, [()], [ms.int32])
    keeper = Keeper(replay)
    replay.insert([np.int32(1)])
    assert keeper.buffers is replay
    assert int(ms.jit(keeper.construct)()) == 1
    assert "buffers.count" in [parameter.name for parameter in keeper.get_parameters()]
    other = ReplayBuffer(1, 4, [()], [ms.int32])
    keeper.buffers = other
    assert keeper.buffers is other
    layer = nn.Dense(1, 1)
    layer.register_buffer("mean", Tensor([1.0]))
    assert [int(value) for value in layer.buffers()] == [1]
    assert Keeper({"a": replay}).buffers == {"a": replay}
    uninstall()
    with pytest.raises(KeyError, match="already exists"):
        Keeper(other)


class Counter(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.zero = Tensor(0, ms.int32)

    def construct(self, n):
        steps = self.zero
        while steps < n:
            steps += 1
            steps *= 1
        return steps


def test_augmented_assignment_leaves_constants_alone(patches: Any):
    """It works at any time of installation, also after other graphs were compiled, and ends with `uninstall`."""
    for installed in (True, False, True):
        (install if installed else uninstall)()
        counter = Counter()
        assert int(ms.jit(counter.construct)(Tensor(3, ms.int32))) == 3
        assert int(counter.zero) == (0 if installed or not IN_PLACE else 3)


def test_a_trainer_on_a_uniform_buffer(package: Any, mode: str):
    trainer, buffers = package("trainer"), package("buffers")
    ms.set_seed(3)
    kit = trainer.Kit(config(buffers.Uniform, sample_size=4, capacity=6))
    cell = trainer.Trainer(kit)
    for episode in range(3):
        steps, total, learned = cell.train_one_episode(STATE, Tensor(5, ms.int32))
        assert (int(steps), int(learned)) == (5, 5)
        assert 0 <= int(total) <= 5 * 4
        stored = 4 + 5 * (episode + 1)
        assert (int(kit.buffers.count), int(kit.buffers.head)) == (min(stored, 6), max(stored - 6, 0) % 6)
    assert [int(kit.buffers.get_item(i)[1]) for i in range(6)] == [4, 0, 1, 2, 3, 4]
    kit.buffers.reset()
    for _ in range(2):
        assert [int(part) for part in cell.learn_on_policy(STATE)] == [6, 15]
