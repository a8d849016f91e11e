"""The buffers of `mindspore_replay.host` beside those of the same names: rows, samples, states, errors."""

import contextlib
import copy
import gc
import inspect
import os
import pickle
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
from flat import flat
from kinds import CLASSES, KINDS, ends_every
from mindspore import Tensor, nn

import mindspore_replay
from mindspore_replay import HindsightRelabel, NStep, Prefetch, ReplayBuffer, ReplayMonitor, attach, host, save
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


@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_the_same_samples(kind: str):
    there, here = pair(kind)
    fill(there, here, n=16)
    for _ in range(2):
        assert_same(there.sample(as_dict=True), here.sample(as_dict=True))
    if KINDS[kind].handles is None:
        for buffer in (there, here):
            with pytest.raises(RuntimeError, match=r"'sample\(with_indices=True\)' needs"):
                buffer.sample(with_indices=True)
    elif here.can_sample():
        given, expected = (buffer.sample(with_indices=True, as_dict=True) for buffer in (there, here))
        assert_same(given, expected)
        assert tuple(expected) == (*KINDS[kind].handles, *NAMES)
    assert (there.size(), len(there), there.full(), there.can_sample()) == (
        here.size(),
        len(here),
        here.full(),
        here.can_sample(),
    )
    assert_same(there.get_item([0, -1]), here.get_item([0, -1]))
    assert there.reset().size() == 0
    there.check_valid()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "queue" not in kind])  # its limiter refers to a queue
def test_its_memory_is_freed_with_it(kind: str):
    there, here = pair(kind)
    fill(there, here)
    if there.can_sample():
        there.sample()
    store = weakref.ref(there._front.calls)
    del there
    assert store() is None, gc.get_referrers(store())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].handles])
def test_it_changes_rows_alike(kind: str):
    there, here = pair(kind)
    fill(there, here)
    handles, step, priorities = [14, 15, 17, 99], np.arange(4, dtype=np.int32), [1.0, 2.0, 3.0, 4.0]
    assert_same(there.update(handles, {"step": step}), here.update(handles, {"step": step}))
    if there.spec.weighted:
        assert_same(there.info(handles), here.info(handles))
        assert_same(there.delete([14]), here.delete([14]))
        assert_same(there.advance(2).info(handles), here.advance(2).info(handles))
    if there.spec.prioritized:
        assert_same(there.update_priorities(handles, priorities), here.update_priorities(handles, priorities))
    if there.has_episodes:
        assert_same(there.end_episodes(), here.end_episodes())
    if here.can_sample():
        assert_same(there.sample(), here.sample())
    there.check_valid()


@pytest.mark.parametrize("kind", CLASSES)
def test_states_go_from_one_to_the_other(kind: str):
    there, here = pair(kind)
    fill(here)
    there.load_state_dict(here.state_dict())
    assert_same(there.sample(), here.sample())
    _, again = pair(kind)
    again.load_state_dict(there.state_dict())
    assert_same(there.sample() if there.can_sample() else (), again.sample() if again.can_sample() else ())


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


def test_a_full_buffer_gives_all_rows():
    there, here = pair("uniform")
    fill(there, here, n=30)
    assert_same(there.rows(), here.rows())
    larger = there.with_sample_size(7)
    assert (larger.sample()[0].shape, there.sample()[0].shape) == ((7, 3), (4, 3))


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


def test_a_window_is_set():
    there, here = pair("elastic")
    fill(there, here)
    assert_same(there.set_window(9).sample(), here.set_window(9).sample())


def test_groups_are_drawn_alike():
    columns = {"shapes": [(), ()], "types": ["int32", "int32"], "names": ["task", "step"]}
    there, here = pair("episodes", **columns)
    for buffer in (there, here):
        steps = np.arange(20, dtype=np.int32)
        buffer.insert([steps % 3, steps], **ends_every(buffer, 4, 20))
    for as_dict in (False, True):
        assert_same(
            there.sample_groups("task", 2, 3, as_dict=as_dict), here.sample_groups("task", 2, 3, as_dict=as_dict)
        )


@pytest.mark.parametrize("kind", ["epochs", "padded epochs", "epochs of sequences"])
def test_epochs_have_the_same_batches(kind: str):
    there, here = pair(kind)
    fill(there, here, n=18)
    assert there.batches() == here.batches()
    assert_same(list(there.minibatches(2)), list(here.minibatches(2)))


def test_a_queue_waits():
    there, _ = pair("queue", timeout=10.0)
    delivered: list[Any] = []
    consumer = threading.Thread(target=lambda: delivered.extend(there.sample()[1].tolist()))
    consumer.start()
    there.insert(rows(0, 4))
    consumer.join()
    assert delivered == [0, 1, 2, 3]
    at_once, _ = pair("queue", timeout=0.05)
    with pytest.raises(TimeoutError, match="For 'ReplayQueue'"):
        at_once.sample()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "sequences"])
def test_goals_are_relabelled_alike(kind: str, steps: int):
    names, types = ["achieved_goal", "desired_goal", "reward", "terminated"], ["float32"] * 3 + ["bool"]
    view = HindsightRelabel("future", 0.7, lambda achieved, goal: (achieved[:, 0] - goal[:, 0], achieved[:, 0] > 3))
    views = [view] if steps == 1 else [view, NStep(steps, 0.9, observation=())]
    columns = {"shapes": [(2,), (2,), (), ()], "types": types, "names": names, "views": views}
    there, here = pair(kind, **columns)
    goals = np.arange(40, dtype=np.float32).reshape(20, 2)
    for buffer in (there, here):
        exp = [goals % 7, goals % 5, goals[:, 0], np.zeros(20, bool)]
        buffer.insert(exp, end=[i % 4 == 3 for i in range(20)])
    for _ in range(3):
        assert_same(there.sample(as_dict=True), here.sample(as_dict=True))


def test_goals_of_bfloat16_are_refused():
    columns = {"shapes": [()] * 3, "types": ["bfloat16"] * 3, "names": ["achieved_goal", "desired_goal", "reward"]}
    with pytest.raises(TypeError, match="HindsightRelabel cannot compute with bfloat16"):
        host.ReplayBuffer(**SIZES, **columns, views=[HindsightRelabel("final", 1.0, np.subtract)])


def test_it_has_no_composite_backend():
    with pytest.raises(ValueError, match="'backend' must be"):
        host.ReplayBuffer(**SIZES, shapes=COLUMNS[0], types=COLUMNS[1], backend="composite")


def test_a_closed_buffer_does_nothing_more():
    there, _ = pair("prioritized")
    fill(there)
    larger = there.with_sample_size(5)
    there.close()
    there.close()
    methods = {"insert": [rows(0, 1)], "get_item": [0], "delete": [[0]], "info": [[0]], "update_priorities": [[0], 1.0]}
    methods |= {name: [] for name in ("sample", "size", "full", "can_sample", "reset", "advance", "state_dict")}
    for one in (there, larger):
        for method, given in methods.items():
            with pytest.raises(
                RuntimeError, match="For 'PrioritizedReplayBuffer', the buffer was closed: make another"
            ):
                getattr(one, method)(*given)


@pytest.mark.parametrize("in_folder", [False, True])
def test_files_are_neither_written_from_a_closed_buffer_nor_read_into_it(in_folder: bool, tmp_path: Path):
    storage = tmp_path / "rows" if in_folder else "host"
    there = host.ReplayBuffer(**SIZES, shapes=COLUMNS[0], types=COLUMNS[1], storage=storage)
    fill(there)
    path = tmp_path / "file"
    save(there, path)
    written = path.read_bytes()
    there.close()
    for call in (
        lambda: save(there, path),
        lambda: host.save([there], path),
        lambda: host.load(path, buffer=there),
        lambda: there.load_state_dict({}),
    ):
        with pytest.raises(RuntimeError, match="For 'ReplayBuffer', the buffer was closed"):
            call()
    assert [file for file in tmp_path.iterdir() if file.is_file()] == [path]
    assert path.read_bytes() == written


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


def test_several_buffers_are_in_one_file(tmp_path: Path):
    path, made = tmp_path / "file", {"one": pair("uniform"), "other": pair("prioritized")}
    for there, _ in made.values():
        fill(there)
    save({"agent": made["one"][0], "experts": [made["other"][0]]}, path)
    for load in (host.load, mindspore_replay.load):
        loaded = load(path)
        assert_same(loaded["experts"][0].state_dict(), made["other"][0].state_dict())
    with pytest.raises(ValueError, match=r"'buffer' must be what was saved in .*, \{'agent': ReplayBuffer"):
        host.load(path, buffer=made["one"][0])


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


def limited(kind: str = "uniform") -> Any:
    there, _ = pair(kind)
    there.limiter = host.RateLimiter(2, 4, 20, timeout=0.05)
    return there


def test_a_limiter_lets_calls_wait(tmp_path: Path):
    buffer = limited()
    fill(buffer, n=4)
    assert (buffer.can_sample(), buffer.with_sample_size(24).can_sample()) == (True, False)
    for _ in range(5):
        buffer.sample()
    with pytest.raises(TimeoutError, match=r"For 'RateLimiter', 4 rows could not be sampled within 0\.05 s"):
        buffer.sample()
    assert (buffer.limiter.inserted, buffer.limiter.sampled) == (4, 20)
    again = copy.deepcopy(buffer)
    save(buffer, tmp_path / "file")
    for other in (again, host.load(tmp_path / "file"), mindspore_replay.load(tmp_path / "file")):
        assert (other.limiter is not buffer.limiter, other.limiter.sampled, other.limiter.timeout) == (True, 20, 0.05)
    twin, cell = limited(), pair("uniform")[1]
    twin.load_state_dict(buffer.state_dict())
    assert twin.limiter.sampled == 20
    cell.limiter = mindspore_replay.RateLimiter(1, 1, 1)
    cell.load_state_dict(buffer.state_dict())
    assert cell.limiter.account() == buffer.limiter.account()
    assert buffer.reset().limiter.inserted == 0


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_rows_of_its_own(kind: str):
    there, _ = pair(kind)
    fill(there, n=16)
    state, (again, resized) = there.state_dict(), copy.deepcopy((there, there.with_sample_size(2)))
    assert_same(again.state_dict(), state)
    again.reset()
    assert (resized.size(), resized.sample_size, there.size()) == (0, 2, 16)
    fill(resized, n=16)
    assert again.size() == 16
    assert_same(there.state_dict(), state)
    with pytest.raises(TypeError, match="a buffer cannot be pickled"):
        pickle.dumps(there)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "compressed"])
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


def test_processes_see_the_limiter_of_a_folder(tmp_path: Path):
    stored = host.ReplayBuffer(4, 24, [()], ["int32"], storage=tmp_path / "rows")
    stored.limiter = host.RateLimiter(2, 4, 20)
    with contextlib.closing(host.attach(tmp_path / "rows", timeout=0.05)) as attached:
        attached.insert([list(range(4))])
        for _ in range(5):
            attached.sample()
        assert (stored.limiter.sampled, stored.can_sample()) == (20, False)
        with pytest.raises(TimeoutError, match="For 'RateLimiter'"):
            attached.sample()
        stored.limiter = None
        attached.sample()
        stored.limiter = host.RateLimiter(2, 4, 30)
    stored.close()
    again = host.ReplayBuffer.open(tmp_path / "rows")
    assert again.limiter.account().error == 30
    again.close()
    queue = host.ReplayQueue(2, 8, [()], ["int32"], storage=tmp_path / "queue", timeout=10.0)
    with contextlib.closing(host.attach(tmp_path / "queue")) as attached:
        delivered: list[Any] = []
        consumer = threading.Thread(target=lambda: delivered.extend(queue.sample()[0].tolist()))
        consumer.start()
        attached.insert([[1, 2]])
        consumer.join()
    assert delivered == [1, 2]
    queue.close()


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
    class Asks(nn.Cell):
        def __init__(self, buffer: Any) -> None:
            super().__init__()
            self.buffer = buffer

        def construct(self):
            return getattr(self.buffer, method)()

    there, _ = pair("uniform")
    for buffer in (there, host.MixedReplay([(there, 1.0)], 4)):
        if hasattr(buffer, method):
            with pytest.raises(TypeError, match=r"cannot use a buffer of mindspore_replay\.host"):
                ms.jit(Asks(buffer).construct)()


def test_mixtures(tmp_path: Path):
    pairs = [pair(kind) for kind in ("prioritized", "uniform")]
    fill(*(buffer for both in pairs for buffer in both))
    there, here = (
        module.MixedReplay([(one, 3), (other, 1)], 8) for module, one, other in zip((host, mindspore_replay), *pairs)
    )
    state = there.state_dict()
    assert_same(state, here.state_dict())
    for _ in range(2):
        batch = here.sample(with_indices=True, as_dict=True)
        assert_same(there.sample(with_indices=True, as_dict=True), batch)
        new = batch["source"], batch["indices"], np.arange(8.0)
        assert there.update_priorities(*new) == here.update_priorities(*new)
    assert_same(there.state_dict(), here.state_dict())
    assert (len(there), there.can_sample()) == (len(here), here.can_sample()) == (40, True)
    save(there, tmp_path / "file")
    for other in (copy.deepcopy(there), host.load(tmp_path / "file"), mindspore_replay.load(tmp_path / "file")):
        assert_same(other.state_dict(), there.state_dict())
        assert other.sources[0] is not there.sources[0]
    there.load_state_dict(state)
    assert_same(there.state_dict(), state)
    with pytest.raises(TypeError, match="must be a pair"):
        host.MixedReplay([(pairs[0][1], 1)], 4)
