"""The buffers of `mindspore_replay.host` beside those of the same names: files, memory, waits, errors.

`test_one_tree.py` shows that both run the same methods, and `test_twin.py` drives both.
"""

import contextlib
import copy
import gc
import inspect
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body
from flat import flat
from kinds import CLASSES, KINDS, ends_every
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import HindsightRelabel, Prefetch, ReplayBuffer, ReplayMonitor, attach, host, save
from mindspore_replay.training import JSONLinesSink

pytestmark = pytest.mark.cpu_only("rows lie in the memory of the process")

NAMES, COLUMNS = ["observation", "step"], ([(3,), ()], ["float32", "int32"])
SIZES: dict[str, Any] = {"sample_size": 4, "capacity": 24}


def pair(kind: str, **more: Any) -> tuple[Any, Any]:
    """Return a buffer on arrays, and the same one of MindSpore."""
    arguments = {**SIZES, "shapes": COLUMNS[0], "types": COLUMNS[1], "names": NAMES, "seed": 5, **more}
    cls, options = KINDS[kind].cls, KINDS[kind].options
    arguments = flat(**arguments, **options)
    return getattr(host, cls.__name__)(**arguments), cls(**arguments)


def rows(first: int, n: int, width: int = 3) -> list[np.ndarray]:
    steps = np.arange(first, first + n, dtype=np.int32)
    return [np.repeat(steps[:, None], width, 1).astype(np.float32), steps]


def numpy_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: numpy_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [numpy_of(item) for item in value]
    return value.asnumpy().tolist() if isinstance(value, Tensor) else np.asarray(value).tolist()


def assert_same(first: Any, second: Any) -> None:
    assert numpy_of(first) == numpy_of(second)


def fill(*buffers: Any, n: int = 20, width: int = 3) -> None:
    for buffer in buffers:
        assert buffer.insert(rows(0, n, width), **ends_every(buffer, 4, n)) is buffer


@pytest.mark.parametrize("kind", CLASSES[:-1])  # its limiter refers to a queue
def test_its_memory_is_freed_with_it(kind: str):
    there, here = pair(kind)
    fill(there, here)
    if there.can_sample():
        there.sample()
    store = weakref.ref(there._front.calls)
    del there
    assert store() is None, gc.get_referrers(store())


#: Attributes beside the constructor's arguments, which follow from these or are the state.
FIXED = {"names", "spec", "options", "buffer", "head", "count", "has_episodes", "achieved_goal", "weighted"}


@pytest.mark.parametrize("kind", CLASSES)
def test_they_stay_as_they_were_made(kind: str, tmp_path: Path):
    there, here = pair(kind)
    mixed = [of.MixedReplay([(one, 1.0)], 4) for of, one in ((host, there), (mindspore_replay, here))]
    cls, options = KINDS[kind].cls, KINDS[kind].options
    learner = cls(**flat(**SIZES, shapes=COLUMNS[0], types=COLUMNS[1], storage=tmp_path / "rows", **options))
    attached, others = attach(tmp_path / "rows"), (there.with_sample_size(2), here.with_sample_size(2))
    for buffer in (there, here, learner, attached, *others, copy.deepcopy(there), copy.deepcopy(here), *mixed):
        known = set(inspect.signature(type(buffer).__init__).parameters) | ({"sources"} if buffer in mixed else FIXED)
        cls_name = type(buffer).__name__
        for name in known:
            before = getattr(buffer, name, None)
            with pytest.raises(AttributeError, match=rf"^For '{cls_name}', '{name}' is read-only, but got 5"):
                setattr(buffer, name, 5)
            assert getattr(buffer, name, None) is before
        buffer.mine = 5  # of the user


def test_another_size_is_made_once():
    for of, buffer in zip((host, mindspore_replay), pair("prioritized")):
        larger = buffer.with_sample_size(7)
        assert buffer.with_sample_size(np.int64(7)) is larger
        assert larger.sample_size == 7
        assert copy.deepcopy(buffer).with_sample_size(7) is not larger
        assert larger.with_sample_size(4) is not buffer
        for owner in (larger, buffer):
            owner.limiter = limiter = of.RateLimiter(1, 1, 64)
            assert buffer.with_sample_size(7) is larger
            assert larger.limiter is buffer.limiter is limiter
        sizes = [buffer.with_sample_size(n) for n in range(1, 24)]
        assert [buffer.with_sample_size(n) for n in range(1, 24)] == sizes
        buffer.close()
        with pytest.raises(RuntimeError, match="the buffer was closed"):
            buffer.with_sample_size(7).sample()


def test_goals_of_bfloat16_are_refused():
    columns = {"shapes": [()] * 3, "types": ["bfloat16"] * 3, "names": ["achieved_goal", "desired_goal", "reward"]}
    with pytest.raises(TypeError, match="HindsightRelabel cannot compute with bfloat16"):
        host.ReplayBuffer(**SIZES, **columns, views=[HindsightRelabel("final", 1.0, np.subtract)])


def test_it_has_no_composite_backend():
    with pytest.raises(ValueError, match="'backend' must be"):
        host.ReplayBuffer(**SIZES, shapes=COLUMNS[0], types=COLUMNS[1], backend="composite")


@pytest.mark.parametrize("kind", KINDS)
def test_files_go_from_one_to_the_other(kind: str, tmp_path: Path):
    """The state, and the samples that follow, are the same."""
    there, here = pair(kind)
    paths = tmp_path / "there", tmp_path / "here"
    for buffer, path in ((there, paths[0]), (here, paths[1])):
        fill(buffer)
        if there.spec.has_handles:
            buffer.update([1, 3], {"step": np.array([7, 8], np.int32)})
        save(buffer, path)
    for path in paths:
        one, other = host.load(path), mindspore_replay.load(path)
        assert (type(one), type(other)) == (type(there), type(here))
        for loaded in (one, other, host.load(path, buffer=pair(kind)[0])):
            loaded.check_valid()
            assert_same(loaded.state_dict(), here.state_dict())
        assert_same(one.sample(), other.sample())
    if not there.spec.options.reservoir:
        assert host.load(paths[1], capacity=12).capacity == 12


COMMON = {"capacity": 24, "sample_size": 4, "data_shape": [(3,), ()], "data_type": ["float32", "int32"], "seed": 5}
CONFIGURATIONS: list[dict[str, Any]] = [
    {"type": "elastic", "window": 8, "limiter": {"samples_per_insert": 2, "min_size": 4, "error_buffer": 40}},
    {"type": "naive", "priority": True, "priority_power_factor": 0.7, "thruput_controller": None},
    {"multi_buffer": True, "agent": {"type": "queue"}, "experts": {"type": "deque", "number": 2}},
]


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_configurations_make_the_same_buffers(config: dict[str, Any]):
    there, here = (module.create_buffer(COMMON | config) for module in (host, mindspore_replay))
    pairs = [(there, here)]
    if "multi_buffer" in config:
        assert list(there) == list(here)
        pairs = [(there["agent"], here["agent"]), *zip(there["experts"], here["experts"], strict=True)]
    for one, other in pairs:
        assert type(one) is getattr(host, type(other).__name__)
        assert one.spec.to_json() == other.spec.to_json()
        assert_same(one.state_dict(), other.state_dict())


def test_configurations_that_need_mindspore():
    with pytest.raises(ValueError, match=r"'shards' needs mindspore_replay\.create_buffer"):
        host.create_buffer(COMMON | {"shards": 2})


@pytest.mark.parametrize("kind", [host.ReplayBuffer, ReplayBuffer])
def test_waits_end_when_the_buffer_is_closed(kind: type[Any]):
    calls: list[Callable[[Any], Any]] = [
        lambda buffer: buffer.sample(),
        lambda buffer: buffer.insert([[0.0] * 24]),
        lambda buffer: buffer.limiter.sampling(2).__enter__(),
    ]
    for call in calls:
        buffer, errors = kind(2, 30, [()], ["float32"]), []
        buffer.limiter = (host if kind is host.ReplayBuffer else mindspore_replay).RateLimiter(1, 4, 24)

        def wait(call: Any = call, buffer: Any = buffer, errors: list[str] = errors) -> None:
            try:
                while True:
                    call(buffer)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while not (buffer.limiter.limits.awaited("insert") or buffer.limiter.limits.awaited("sample")):
            time.sleep(0.001)
        buffer.close()
        thread.join(10)
        assert len(errors) == 1
        assert errors[0].endswith("the buffer was closed: make another.")
        with pytest.raises(RuntimeError, match="the buffer was closed: make another"):
            call(buffer)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_folder_is_opened_by_either(kind: str, tmp_path: Path):
    """The rows, and the random sequence, go on."""
    path = tmp_path / "rows"
    there, here = pair(kind)
    stored = getattr(host, type(there).__name__)(
        **flat(**SIZES, shapes=COLUMNS[0], types=COLUMNS[1], names=NAMES, seed=5, storage=path, **KINDS[kind].options)
    )
    fill(stored, here, n=16)
    stored.flush()
    with contextlib.closing(host.attach(path)) as attached:
        assert_same(attached.get_item([0, -1]), here.get_item([0, -1]))
        assert_same(attached.sample(), here.sample())
    stored.close()
    for cls in (type(here), type(there)):
        again = cls.open(path)
        if here.can_sample():
            assert_same(again.sample(), here.sample())
        assert_same(again.state_dict(), here.state_dict())
        again.close()
    with pytest.raises(RuntimeError, match="the buffer was closed: open its folder again"):
        stored.sample()


WITHOUT_MINDSPORE = """
import doctest, sys
sys.modules["mindspore"] = None
import mindspore_replay.host
failed, examples = doctest.testmod(mindspore_replay.host)
assert examples and not failed
assert not [name for name in sys.modules if name.startswith("mindspore.")]
"""


def test_it_does_without_mindspore():
    done = subprocess.run([sys.executable, "-c", WITHOUT_MINDSPORE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_all_classes():
    buffers = {KINDS[kind].cls.__name__ for kind in CLASSES}
    assert set(host.__all__) == buffers | {
        *("Column", "MixedReplay", "Priorities", "RateLimiter", "attach", "create_buffer", "load", "save")
    }
    for name in buffers:
        assert getattr(host, name).__init__ is getattr(mindspore_replay, name).__init__ or name == "ReplayBuffer"


def test_what_takes_both():
    there, here = pair("prioritized")
    fill(there, here)
    sources = pair("prioritized")
    fill(*sources)
    mixed = [of.MixedReplay([(one, 1.0)], 4) for of, one in zip((host, mindspore_replay), sources)]
    for first, second in ((there, here), mixed):
        with Prefetch(first, as_dict=True) as ahead, Prefetch(second, as_dict=True) as expected:
            for _ in range(3):
                assert_same(ahead.sample(), expected.sample())
            with pytest.raises(TypeError, match=r"got sample\(4, as_dict=\.\.\.\): give them to the constructor"):
                ahead.sample(4, as_dict=True)
    there.limiter = host.RateLimiter((0, 1), 1, 1)  # it allows no batch of four
    waiting = Prefetch(there)
    threading.Timer(0.1, waiting.close).start()
    with pytest.raises(RuntimeError, match="this one was closed"):
        waiting.sample()
    with ReplayMonitor({"there": there, "here": here}, JSONLinesSink(os.devnull)) as monitor:
        values = monitor.write().values
    assert values["there/inserted"] == values["here/inserted"] == 20


def test_what_takes_one_of_them():
    there, here = pair("uniform")
    for of, other, named in ((host, here, "mindspore_replay"), (mindspore_replay, there, r"mindspore_replay\.host")):
        with pytest.raises(TypeError, match=rf"For 'MixedReplay' of .* got a ReplayBuffer of {named}\."):
            of.MixedReplay([(other, 1.0)], 4)


@pytest.mark.parametrize(
    "method", ["sample", "size", "insert", "add", "update_priorities", "can_sample", "reset", "rows"]
)
def test_graphs_refuse_it(method: str):
    class Asks(Body):
        def construct(self):
            return getattr(self.buffer, method)()

    there, _ = pair("uniform")
    for buffer in (there, host.MixedReplay([(there, 1.0)], 4)):
        if hasattr(buffer, method):
            with pytest.raises(TypeError, match=r"cannot use a buffer of mindspore_replay\.host"):
                ms.jit(Asks(buffer).construct)()
