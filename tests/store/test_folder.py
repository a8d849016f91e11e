"""Buffers in folders: the same draws as in memory, life and death of the learner, and folders that are not whole."""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import psutil
import pytest
from bodies import Body
from checks import differences
from flat import flat
from headers import new_header
from kinds import KINDS as EVERY
from kinds import Kind, full_sample
from mindspore import nn

import mindspore_replay
from mindspore_replay import (
    Buffer,
    Column,
    HindsightRelabel,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    RateLimiter,
    ReplayBuffer,
    SequenceReplayBuffer,
    attach,
    create_buffer,
    host,
    load,
    save,
)
from mindspore_replay.distributed import ShardedReplay
from mindspore_replay.store.folder import files as folder_files
from mindspore_replay.store.folder import flushed
from mindspore_replay.store.folder import folder as folder_module
from mindspore_replay.store.folder import opening as folder_opening

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

NAMES = ["observation", "action", "done"]
SHAPES: list[tuple[int, ...]] = [(3,), (), ()]
TYPES = ["float32", "int32", "bool"]
KINDS = {
    **{
        kind: EVERY[kind]
        for kind in ("uniform", "limits", "prioritized", "sequences by priority", "episodes", "elastic")
    },
    **{kind: EVERY[kind] for kind in ("reservoir, weighted", "queue that evicts", "epochs")},
    "bfloat16": Kind(ReplayBuffer, {"types": ["bfloat16", "int32", "bool"]}),
    "two environments": Kind(ReplayBuffer, {"num_envs": 2}),
    "n-step": Kind(
        ReplayBuffer,
        {"types": ["float32", "float32", "bool"], "views": [NStep(2, 0.9, reward="action", terminated="done")]},
    ),
}


def make(kind: str, **more: Any) -> Any:
    cls, options, *_ = KINDS[kind]
    given = {"shapes": SHAPES, "types": TYPES, "names": NAMES, "seed": 5, **options, **more}
    return cls(4, 32, **flat(**given))


def make_row(buffer: Any, i: int) -> dict[str, Any]:
    values = [np.full((buffer.num_envs, *shape), i) for shape in SHAPES]
    values[2] = values[2] % 5 == 4
    return {name: value.astype(dtype) for name, value, dtype in zip(NAMES, values, buffer.columns.numpy_types)}


def row(i: int) -> list[Any]:
    return [np.full(3, i, np.float32), np.int32(i), False]


class Inserting(Body):
    """Inserts a row in a graph."""

    def construct(self, observation: ms.Tensor, action: ms.Tensor, done: ms.Tensor) -> ms.Tensor:
        self.buffer.add([observation, action, done])
        return self.buffer.size()


def fill(*buffers: Any, rows: range = range(44)) -> None:
    for buffer in buffers:
        for i in rows:
            buffer.insert(make_row(buffer, i), **({"end": i % 4 == 3} if buffer.has_episodes else {}))


def same(first: Any, second: Any) -> None:
    for a, b in zip(first, second, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.asnumpy().tobytes() == b.asnumpy().tobytes()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_files_are_for_their_owner_alone(tmp_path: Path):
    make("prioritized", storage=tmp_path / "a" / "rows")
    folder = tmp_path / "a" / "rows"
    assert {name: oct(os.stat(folder / name).st_mode) for name in os.listdir(folder)} == dict.fromkeys(
        ["header", "state", "owner", "flushed.0", "flushed.1", "columns"], "0o100600"
    )
    assert os.stat(folder).st_mode & 0o777 == 0o700


# The life of a learner.


#: Members that tell what a buffer was made of, or are not for users; and what needs arguments.
OF_NO_ROWS = {"achieved_goal", "columns", "extend_repr", "folder", "limiter", "nbytes", "open", "spec", "state"}
#: Members of a buffer's state.
OF_STATE = {"begin_replacing", "exclusive", "snapshot", "sole_use"}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "insert": ([np.zeros(1, np.int32)],),
    "add": ([np.zeros(1, np.int32)],),
    "get_item": (0,),
    "begin_replacing": ({},),
    "sole_use": ({},),
    "update": ([0], [np.zeros(1, np.int32)]),
    "update_priorities": ([0], 1.0),
    "delete": ([0],),
    "info": ([0],),
    "set_window": (3,),
    "sample_groups": ("key", 1, 1),
    "with_sample_size": (1,),
}
CLOSED = {
    **{kind: EVERY[kind] for kind in ("prioritized", "elastic by priority", "reservoir, weighted", "queue")},
    **{kind: EVERY[kind] for kind in ("episodes by priority", "epochs, weighted")},
    "in memory": Kind(PrioritizedReplayBuffer, {"storage": "device"}),
    "composite": Kind(PrioritizedReplayBuffer, {"storage": "device", "backend": "composite"}),
}


def call(buffer: Any, name: str, *arguments: Any) -> None:
    """Call a method, or enter the block that it gives, or begin its iteration."""
    found = getattr(buffer, name)
    found = found if name == "lock" else found(*arguments)
    if name == "minibatches":
        next(found)
    elif name in ("exclusive", "lock", "snapshot"):
        found.__enter__()


@pytest.mark.parametrize("kind", CLOSED)
def test_no_method_answers_after_the_close(kind: str, tmp_path: Path):
    """Nor one of a buffer for another sample size, or of a mixture, nor a checkpoint; nothing reaches the files."""
    cls, options, *_ = CLOSED[kind]
    way_out = "make another" if "storage" in options else "open its folder again"
    options = {"storage": tmp_path / "rows", **options}
    buffer = cls(2, 16, **flat([()], ["int32"], names=["key"], seed=0, **options))
    end = {"end": np.arange(16) % 2 == 1} if buffer.has_episodes else {}
    buffer.insert([np.arange(16, dtype=np.int32) % 3], **end)
    if kind == "prioritized":
        buffer.limiter = RateLimiter(1, 1, 100)
    twin = buffer.with_sample_size(1)
    mixed = [MixedReplay([(buffer, 1.0)], 2)] if kind != "composite" else []  # of which there are no mixtures
    states = [front.state_dict() for front in (buffer, twin)]
    saved = tmp_path / "saved"
    save(buffer, saved)
    own = {name for name in dir(cls) if not name.startswith("_") and name not in dir(nn.Cell)} - OF_NO_ROWS
    own = own - {"close", "flush"} | {"__len__", "state_dict", "load_state_dict"} | OF_STATE
    own -= {"sample_packed"}  # needs rows that differ in length
    if not buffer.has_episodes:
        own -= {"end_episodes"}
    if not buffer.prioritized:
        own -= {"update_priorities"}
    for _ in range(2):
        buffer.close()
    limited = f"({cls.__name__}|RateLimiter)" if kind == "prioritized" else cls.__name__
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for front, state in zip((buffer, twin), states):
        for name in own:
            with pytest.raises(RuntimeError, match=f"^For '{limited}', the buffer .*was closed: {way_out}") as caught:
                call(
                    front.state if name in OF_STATE else front,
                    name,
                    *ARGUMENTS.get(name, (state,) if name.startswith("load_") else ()),
                )
            assert caught.type is RuntimeError, name
    of_files = lambda: save(buffer, saved), lambda: load(saved, buffer=buffer)
    of_mixtures = [use for each in mixed for use in (each.sample, each.can_sample, each.state_dict, each.__len__)]
    for use in (*of_files, *of_mixtures):
        with pytest.raises(RuntimeError, match=f"the buffer .*was closed: {way_out}"):
            use()
    if buffer.limiter is None or kind == "queue":  # a limiter notes the largest insertion and sample
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.cpu_only("memory of the host")
@pytest.mark.parametrize("options", [{}, {"backend": "composite"}, {"compress": [1]}, {"storage": "host"}])
def test_a_closed_buffer_frees_its_columns(options: dict[str, Any]):
    buffer = ReplayBuffer(1, 4096, **flat([(1024,), (9,)], ["int32", "int32"], seed=0, **options))
    column, twin = buffer.buffer[0], buffer.with_sample_size(2)
    if options.get("backend") != "composite":  # which compiles a graph
        buffer.insert([np.ones((4096, 1024), np.int32), np.ones((4096, 9), np.int32)])
    column.asnumpy()[...] = 1
    before = psutil.Process().memory_info().rss
    buffer.close()
    twin.close()
    assert before - psutil.Process().memory_info().rss > 4096 * 1024 * 3
    assert not column.asnumpy().any()


class Samples(Body):
    def construct(self, x):
        self.buffer.insert([x])
        return self.buffer.sample()


def test_a_graph_with_a_closed_buffer_fails():
    buffer = ReplayBuffer(1, 4, [()], ["int32"], seed=0, backend="native")
    graph = ms.jit(Samples(buffer).construct)
    assert graph(ms.Tensor(7, ms.int32))[0].asnumpy().tolist() == [7]
    buffer.close()
    with pytest.raises(RuntimeError, match=r"'replay_insert' failed with status 8"):
        graph(ms.Tensor(8, ms.int32))[0].asnumpy()
    again = ReplayBuffer(1, 4, [()], ["int32"], seed=0)
    assert int(again.insert([9]).size()) == 1


def test_a_folder_has_one_learner(tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    with pytest.raises(RuntimeError, match=r"^For 'Buffer\.open', the buffer in .*rows is open in another learner"):
        Buffer.open(tmp_path / "rows")
    with pytest.raises(FileExistsError, match=r"'storage' must name a new or empty folder.*ReplayBuffer\.open\("):
        make("uniform", storage=tmp_path / "rows")
    buffer.close()
    with pytest.raises(ValueError, match=r"^For 'SequenceReplayBuffer\.open', 'folder' .* holds a ReplayBuffer"):
        SequenceReplayBuffer.open(tmp_path / "rows")
    assert type(ReplayBuffer.open(tmp_path / "rows")) is ReplayBuffer


def reward(achieved, goal):
    return -abs(achieved - goal)


def test_views_with_python_code_are_given_again(tmp_path: Path):
    names = ["achieved", "goal", "reward"]
    views = [HindsightRelabel("future", 0.5, reward, achieved_goal="achieved", goal="goal")]
    made = {"names": names, "views": views, "seed": 1}
    memory = ReplayBuffer(2, 8, **flat([(), (), ()], ["float32"] * 3, **made))
    stored = ReplayBuffer(2, 8, **flat([(), (), ()], ["float32"] * 3, **made, storage=tmp_path / "rows"))
    for buffer in (memory, stored):
        for i in range(8):
            buffer.insert([float(i), 9.0, 0.0], end=i == 7)
    stored.close()
    with pytest.raises(ValueError, match=r"'views' must be those that the buffer in .* was made with"):
        ReplayBuffer.open(tmp_path / "rows")
    again = ReplayBuffer.open(tmp_path / "rows", views=views)
    same(memory.sample(), again.sample())
    with pytest.raises(RuntimeError, match="only the learner can sample: a view of the buffer is Python code"):
        attach(tmp_path / "rows").sample()


def test_a_subclass_can_only_be_attached_to(tmp_path: Path):
    class Own(ReplayBuffer):
        pass

    Own(2, 8, [()], ["float32"], storage=tmp_path / "rows").insert([1.0]).close()
    with pytest.raises(ValueError, match="can only be attached to, since Own is no class of mindspore_replay"):
        Buffer.open(tmp_path / "rows")
    assert len(attach(tmp_path / "rows")) == 1


FORKED = """
import os, sys, time
from mindspore_replay.store import Store
from mindspore_replay.store.folder.opening import open_as_learner
folder = open_as_learner(sys.argv[1], "test")
store = Store(folder.spec.columns, folder.spec.options, folder=folder)
if os.fork() == 0:
    time.sleep(600)
print(folder.has_learner(), flush=True)
time.sleep(600)
"""


def test_a_forked_child_does_not_keep_the_folder(tmp_path: Path):
    make("uniform", storage=tmp_path / "rows").close()
    command = [sys.executable, "-c", FORKED, tmp_path / "rows"]
    learner = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert learner.stdout.readline() == b"True\n"
        with pytest.raises(RuntimeError, match="is open in another learner"):
            Buffer.open(tmp_path / "rows")
        learner.kill()
        learner.wait()
        assert len(Buffer.open(tmp_path / "rows")) == 0  # the child still runs
    finally:
        os.killpg(learner.pid, 9)
        learner.stdout.close()


# With the rest of the library.


def test_an_empty_folder_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before = tmp_path.stat().st_ino
    buffer = make("uniform", storage=".")
    assert tmp_path.stat().st_ino == before
    attach(".").insert(row(1))
    buffer.close()
    assert len(ReplayBuffer.open(".")) == 1


def test_a_failure_in_an_empty_folder_leaves_it_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(folder_opening, "write_header", Mock(side_effect=full))
    with pytest.raises(OSError, match="bytes could not be made: No space left on device"):
        make("uniform", storage=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_of_a_folder_is_removed(tmp_path: Path):
    left, others = (tmp_path / f"rows.{digit * 16}.tmp" for digit in "ab")
    for folder in (left, others):
        folder.mkdir()
        (folder / "owner").touch()
    with open(others / "owner") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)  # a process that makes the folder now
        make("uniform", storage=tmp_path / "rows").close()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "rows", others]


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_nothing_writes_to_a_folder_after_close(kind: str, tmp_path: Path):
    buffer = make(kind, storage=tmp_path / "rows")
    buffer.insert(row(1))
    sibling, cell = buffer.with_sample_size(1), Inserting(buffer)
    cell(*map(ms.Tensor, row(2)))
    buffer.close()
    again = type(buffer).open(tmp_path / "rows")
    for write in (lambda: sibling.insert(row(3)), lambda: cell(*map(ms.Tensor, row(3))).asnumpy()):
        with pytest.raises(RuntimeError):
            write()
    assert len(again) == 2
    again.insert(row(4))
    again.check_valid()
    again.close()


def test_another_sample_size_can_close_the_folder(tmp_path: Path):
    sibling = make("uniform", storage=tmp_path / "rows").with_sample_size(1)
    sibling.flush()
    sibling.close()
    ReplayBuffer.open(tmp_path / "rows").close()


def test_a_forked_child_closes_for_itself(tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    attached = attach(tmp_path / "rows")
    child = os.fork()
    if not child:
        buffer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    attached.insert(row(1))
    assert len(buffer) == 1


def test_a_folder_that_was_moved_is_flushed_and_closed(tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    buffer.insert(row(1))
    (tmp_path / "rows").rename(tmp_path / "moved")
    buffer.flush()
    buffer.insert(row(2))
    buffer.close()
    assert len(ReplayBuffer.open(tmp_path / "moved")) == 2


def test_a_folder_that_was_deleted_can_be_closed(tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    buffer.insert(row(1))
    shutil.rmtree(tmp_path / "rows")
    said = (
        f"For 'ReplayBuffer', the folder {tmp_path / 'rows'} was deleted: its rows are lost when the buffer is closed"
    )
    with pytest.raises(FileNotFoundError, match=said):
        buffer.flush()
    assert len(buffer) == 1
    with pytest.raises(FileNotFoundError, match=said):
        buffer.close()
    save(buffer, tmp_path / "rows.safetensors")  # it is still open
    assert len(load(tmp_path / "rows.safetensors")) == 1
    buffer.close()  # gives the rows up
    with pytest.raises(RuntimeError, match="closed"):
        buffer.size()


def test_insertions_into_a_folder_that_was_deleted_are_refused_soon(tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    attached = attach(tmp_path / "rows")

    graph = ms.jit(Inserting(buffer).construct)
    fields = [ms.Tensor(field, dtype) for field, dtype in zip(row(1), buffer.types)]
    graph(*fields)

    def often(call: Callable[[], object]) -> None:
        for _ in range(200):  # the system is asked once a second
            call()
            time.sleep(0.05)

    shutil.rmtree(tmp_path / "rows")
    for insert in (lambda: buffer.insert(row(1)), lambda: attached.insert(row(1))):
        with pytest.raises(FileNotFoundError, match="the folder was deleted, and its rows are in memory alone"):
            often(insert)
    with pytest.raises(RuntimeError, match="the folder was deleted, and its rows are in memory alone"):
        graph(*fields).asnumpy()
    with pytest.raises(FileNotFoundError):
        buffer.close()
    save(buffer, tmp_path / "saved")
    buffer.close()


def test_a_program_that_ends_says_what_is_lost(tmp_path: Path):
    program = (
        "import shutil, sys\nfrom mindspore_replay import host\n"
        "buffer = host.ReplayBuffer(1, 4, [()], ['int32'], storage=sys.argv[1]).insert([1])\nshutil.rmtree(sys.argv[1])"
    )
    run = subprocess.run([sys.executable, "-c", program, tmp_path / "rows"], capture_output=True, text=True)
    assert f"the folder {tmp_path}/rows was deleted while its buffer was open: its 1 rows are lost." in run.stderr


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make("uniform", storage=tmp_path / "rows").close()
    opened = folder_files.opened

    def read_only(path: Any, flags: int) -> Any:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, flags)

    monkeypatch.setattr(folder_files, "opened", read_only)
    for name, function in (("attach", attach), (r"ReplayBuffer\.open", ReplayBuffer.open)):
        message = rf"^\[Errno 13\] For '{name}', the folder .*rows could not be opened: Permission denied: .*rows/"
        with pytest.raises(PermissionError, match=message):
            function(tmp_path / "rows")


def test_a_failed_open_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make("uniform", storage=tmp_path / "rows").close()
    before = len(os.listdir("/proc/self/fd"))
    for function in (ReplayBuffer.open, attach):
        with monkeypatch.context() as patch:
            patch.setattr(folder_files, "Memory", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
            with pytest.raises(OSError, match="Too many open files"):
                function(tmp_path / "rows")
    assert len(os.listdir("/proc/self/fd")) == before
    ReplayBuffer.open(tmp_path / "rows").close()


def test_in_configurations(tmp_path: Path):
    columns = {"data_shape": [()], "data_type": ["float32"]}
    config = {"capacity": 8, "sample_size": 1, **columns, "storage": str(tmp_path / "one")}
    create_buffer({**config, "limiter": {"samples_per_insert": 1, "min_size": 2, "error_buffer": 4}}).insert([1.0])
    assert len(attach(tmp_path / "one")) == 1
    create_buffer({**config, "number": 2, "storage": str(tmp_path / "two")})[1].insert([1.0])
    assert [len(attach(tmp_path / "two" / name)) for name in "01"] == [0, 1]
    several = {"multi_buffer": True, "a": {}, "b": {"storage": "device"}, **config, "storage": str(tmp_path / "named")}
    create_buffer(several)
    assert os.listdir(tmp_path / "named") == ["a"]
    for name in ("../evil", "/evil", ".."):
        with pytest.raises(ValueError, match="the name of a buffer in a folder must be a name of a file, but got"):
            create_buffer({"multi_buffer": True, name: {}, **config})
    with pytest.raises(ValueError, match=r"^For 'ShardedReplay', 'storage' must not be a folder"):
        ShardedReplay(config, num_shards=2)


@pytest.mark.parametrize("of", [mindspore_replay, host])
def test_a_bare_name_is_a_folder_only_if_there_is_one(of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "hosts").mkdir()
    for name in ("gpu", "Host", "devcie", "hosts", "rows"):
        with pytest.raises(ValueError, match=rf"but got '{name}'\. For a folder write '\./{name}'\.$"):
            of.ReplayBuffer(1, 9, [()], ["int32"], storage=name)
    assert sorted(os.listdir()) == ["hosts", "there"]
    for folder in ("there", "./hosts", "./gpu", Path("rows"), tmp_path / "host"):
        of.ReplayBuffer(1, 9, [()], ["int32"], storage=folder).close()
    assert sorted(os.listdir()) == ["gpu", "host", "hosts", "rows", "there"]


def test_checkpoints(kind: str, tmp_path: Path):
    stored = make(kind, storage=tmp_path / "rows")
    fill(stored)
    save(stored, tmp_path / "saved")
    copy = load(tmp_path / "saved")
    same(copy.sample(), stored.sample())
    other = make(kind, storage=tmp_path / "other")
    load(tmp_path / "saved", buffer=other)
    first = other.sample()
    load(tmp_path / "saved", buffer=copy)
    same(first, copy.sample())
    # Rows that replace others have serial numbers that were never given out: the rest of a sample is the same.
    handles = int(other.spec.always_handles)
    for replace in (
        lambda: stored.load_state_dict(other.state_dict()),
        lambda: load(tmp_path / "saved", buffer=stored),
    ):
        given = int(stored.serials.asnumpy()[0])
        load(tmp_path / "saved", buffer=other)
        replace()
        stored.check_valid()
        oldest = int(stored.serials.asnumpy()[0]) - len(stored)
        if "row_serials" in stored.state_dict():
            oldest = int(stored.row_serials.asnumpy()[: len(stored)].min())
        assert oldest >= given
        same(other.sample()[handles:], stored.sample()[handles:])
        fill(stored)
        stored.check_valid()


def test_rows_are_not_replaced_beside_an_attached_process(tmp_path: Path):
    """Nor partly: a mixture changes none of its sources, a checkpoint nothing else in it."""
    learner = make("prioritized", storage=tmp_path / "rows")
    mixed = MixedReplay([(make("prioritized"), 0.5), (learner, 0.5)], 8)
    for buffer in mixed.sources:
        fill(buffer)
    state, both = learner.state_dict(), mixed.state_dict()
    save(learner, tmp_path / "saved")
    save(mixed, tmp_path / "mixed")
    for buffer in mixed.sources:
        fill(buffer)
    with contextlib.closing(attach(tmp_path / "rows")) as attached:
        before = mixed.state_dict()
        for replace in (
            lambda: learner.load_state_dict(state),
            lambda: load(tmp_path / "saved", buffer=learner),
            lambda: mixed.load_state_dict(both),
            lambda: load(tmp_path / "mixed", buffer=mixed),
        ):
            with pytest.raises(
                RuntimeError, match=r"^For 'PrioritizedReplayBuffer', the rows in .*rows cannot be replac"
            ):
                replace()
            after = mixed.state_dict()
            assert all(after[key].tobytes() == array.tobytes() for key, array in before.items())
        handles = attached.sample()[0]
    learner.load_state_dict(state)
    attached = attach(tmp_path / "rows")
    for _ in range(3):
        assert attached.update_priorities(handles, np.ones(len(handles), np.float32)) == len(handles)
        fill(learner)
    with contextlib.ExitStack() as stack:
        attached.close()
        stack.enter_context(learner.state.sole_use({}))
        opening = threading.Thread(target=lambda: opened.append(attach(tmp_path / "rows")))
        opened: list[Any] = []
        opening.start()
        opening.join(0.05)
        assert not opened
    opening.join()
    opened[0].close()


def test_parameters_in_a_folder_are_loaded_as_a_whole_alone(tmp_path: Path):
    """Serial numbers that were given out would come again."""
    stored = ReplayBuffer(2, 8, [()], ["int32"], storage=tmp_path / "rows", seed=0).insert([[1, 2]])
    other = ReplayBuffer(2, 8, [()], ["int32"], seed=1).insert([[3]])
    before = {key: array.tolist() for key, array in stored.state_dict().items()}
    parameters = dict(other.parameters_and_names())
    with pytest.raises(
        RuntimeError, match=r"'ReplayBuffer_\d+\.\S+' is in the folder .*rows, where only a whole state can"
    ):
        ms.load_param_into_net(stored, parameters)
    assert {key: array.tolist() for key, array in stored.state_dict().items()} == before
    stored.load_state_dict(other.state_dict())
    assert (stored.get_item(0)[0], int(stored.serials.asnumpy()[0])) == (3, 3)
    stored.close()


def test_a_mixture_of_folder_and_memory(tmp_path: Path):
    mixed, memory = (
        MixedReplay([(make("uniform", **more), 0.5), (make("prioritized"), 0.5)], 8)
        for more in ({"storage": tmp_path / "rows"}, {})
    )
    for mixture in (mixed, memory):
        fill(*mixture.sources)
    same(mixed.sample(), memory.sample())


def test_the_limiter_is_in_the_folder(tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    buffer.limiter = RateLimiter(2, 3, 8)
    fill(buffer, rows=range(5))
    buffer.sample()
    buffer.close()
    again = ReplayBuffer.open(tmp_path / "rows")
    assert repr(again.limiter) == (
        "RateLimiter(samples_per_insert=2, min_size=3, error_buffer=8, timeout=None, enabled=True, inserted=5, "
        "sampled=4)"
    )
    again.limiter = None
    again.close()
    assert ReplayBuffer.open(tmp_path / "rows").limiter is None


# After the machine was restarted; tests/store/test_power_cuts.py has what a disk may hold then.


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that copies a folder as if the machine stopped now, and opens the copy."""

    def stop(folder: Path, use: Any = Buffer.open) -> Any:
        after = Path(tempfile.mkdtemp(dir=tmp_path)) / "rows"
        shutil.copytree(folder, after)
        (tmp_path / "boot_id").write_text(f"another run {after}"[-40:])
        monkeypatch.setattr(folder_module, "_BOOT_ID", tmp_path / "boot_id")
        return use(after)

    return stop


ANEW = r"the machine was restarted since .* was last used, and it had not been closed: .* its last flush, with "


def without_log(buffer: Any) -> None:
    """Let the log have no room for the next flush, which then writes the columns."""
    files = buffer._front.shared.folder._flushed
    files._end = files._entry.size


def test_after_a_stop_the_buffer_is_as_it_was_at_its_last_flush(kind: str, tmp_path: Path, stopped: Any):
    buffer = make(kind, storage=tmp_path / "rows")
    fill(buffer)
    full_sample(buffer)
    without_log(buffer)
    buffer.flush()
    before = buffer.state_dict()
    with pytest.warns(RuntimeWarning, match=ANEW + r"32 rows\.$"):
        again = stopped(tmp_path / "rows")
    again.check_valid()
    assert differences(again, before) == {}
    same(full_sample(buffer), full_sample(again))
    fill(buffer, rows=range(45, 55))
    with pytest.warns(RuntimeWarning, match=r"; since they had been changed later, \d+ rows that did not fit their"):
        again = stopped(tmp_path / "rows")
    again.check_valid()
    assert again.state_dict()["serials"][0] == before["serials"][0]
    assert len(again) == 32 if "deleted" in buffer.state_dict() else len(again) <= 32


def test_a_second_stop_loses_no_row(tmp_path: Path, stopped: Any):
    """The oldest row lies in the slot of one that was removed, and others in its own."""
    buffer = make("uniform", storage=tmp_path / "rows")
    fill(buffer, rows=range(32))
    without_log(buffer)
    buffer.flush()
    buffer._front.shared.folder.arrays["column.action"][17] = 99
    with pytest.warns(RuntimeWarning, match=", 1 rows that did not fit their checksums"):
        again = stopped(tmp_path / "rows")
    fill(again, rows=range(40, 41))
    with pytest.warns(RuntimeWarning, match=ANEW + r"31 rows\.$"):
        once_more = stopped(again.folder)
    actions = once_more.get_item(range(31))[1].asnumpy()
    assert set(range(32)) - {17} == set(actions.tolist())


def test_rows_in_the_log_come_back(kind: str, tmp_path: Path, stopped: Any):
    """Also if others have overwritten them since the flush."""
    buffer = make(kind, storage=tmp_path / "rows")
    fill(buffer)
    buffer.flush()
    before = buffer.state_dict()
    fill(buffer, rows=range(45, 55))
    with pytest.warns(RuntimeWarning, match=ANEW + r"32 rows\.$"):
        again = stopped(tmp_path / "rows")
    assert differences(again, before) == {}


def test_a_closed_buffer_survives_a_stop(kind: str, tmp_path: Path, stopped: Any):
    buffer = make(kind, storage=tmp_path / "rows")
    fill(buffer)
    before = buffer.state_dict()
    buffer.close()
    again = stopped(tmp_path / "rows")
    assert differences(again, before) == {}
    fill(again, rows=range(45, 46))
    with pytest.warns(RuntimeWarning, match=ANEW):
        once_more = stopped(again.folder)
    assert int(once_more.state_dict()["serials"][0]) == int(before["serials"][0])


def test_a_copy_of_a_folder_in_use_is_as_it_was_at_its_last_flush(kind: str, tmp_path: Path):
    """Its files were read one after the other, so their pages are of different times."""
    buffer = make(kind, storage=tmp_path / "rows")
    fill(buffer)
    buffer.flush()
    before = buffer.state_dict()
    fill(buffer, rows=range(45, 55))
    shutil.copytree(tmp_path / "rows", tmp_path / "copy")
    os.rename(tmp_path / "copy", tmp_path / "moved")
    what = (
        r"moved is a copy of a folder that had not been closed: the buffer is as it was at its last flush, with 32 rows"
    )
    with pytest.warns(RuntimeWarning, match=what):
        again = Buffer.open(tmp_path / "moved")
    assert differences(again, before) == {}
    again.close()
    shutil.copytree(tmp_path / "moved", tmp_path / "closed")
    assert len(Buffer.open(tmp_path / "closed")) == 32


def test_an_attached_process_may_be_the_first_after_a_stop(tmp_path: Path, stopped: Any):
    buffer = make("prioritized", storage=tmp_path / "rows")
    fill(buffer)
    without_log(buffer)
    buffer.flush()
    fill(buffer, rows=range(45, 46))
    with pytest.warns(RuntimeWarning, match=r"^For 'attach', the machine .* 1 rows .* with the handles 12\.$"):
        attached = stopped(tmp_path / "rows", attach)
    assert (len(attached), attached.info(12)[1], attached.closed) == (32, 0, False)
    learner = Buffer.open(attached.folder)
    assert learner.eligible() == 31
    attached.insert(row(7))
    with pytest.warns(RuntimeWarning, match=ANEW):
        assert int(stopped(attached.folder).state_dict()["serials"][0]) == 44


def test_rows_are_verified(kind: str, tmp_path: Path):
    buffer = make(kind, storage=tmp_path / "rows")
    fill(buffer)
    slots = (0, 17) if int(buffer.head.asnumpy()) else (1, 2)
    each = buffer.state_dict()["column.observation"][0].nbytes
    buffer.close()
    with contextlib.closing(Buffer.open(tmp_path / "rows", verify=True)):
        pass
    stored = np.memmap(tmp_path / "rows" / "columns", np.uint8)
    stored[np.multiply(slots, each)] += 1
    del stored
    with pytest.warns(
        RuntimeWarning, match=r"open', in .* 2 rows that did not fit their checksums were removed, those w"
    ):
        again = Buffer.open(tmp_path / "rows", verify=True)
    again.check_valid()
    rows = {bytes(r) for r in again.state_dict()["column.observation"].reshape(32, -1).view(np.uint8)}
    assert rows
    with attach(tmp_path / "rows") and contextlib.nullcontext(), pytest.raises(RuntimeError, match="open in another"):
        Buffer.open(tmp_path / "rows", verify=True)
    attached = attach(tmp_path / "rows")
    again._front.calls.detach()
    with pytest.raises(RuntimeError, match=r"'verify' must be False while others use the buffer in .*: close them"):
        Buffer.open(tmp_path / "rows", verify=True)
    attached.close()
    with pytest.raises(TypeError, match="'verify' must be a bool, but got 1"):
        Buffer.open(tmp_path / "rows", verify=1)


def test_the_state_of_a_closed_buffer_is_verified(kind: str, tmp_path: Path):
    """A bit that has changed in any array of it is as it was at the end."""
    buffer = make(kind, storage=tmp_path / "rows")
    fill(buffer)
    full_sample(buffer)
    before = buffer.state_dict()
    buffer.close()
    opened = folder_opening.open_to_attach(tmp_path / "rows", "test")
    changed = {name: array.reshape(-1).view(np.uint8) for name, array in opened.arrays.items()}
    opened.close()
    for name in changed:
        if name.startswith("column."):
            continue
        changed[name][-1:] ^= 1
        with contextlib.closing(Buffer.open(tmp_path / "rows", verify=True)) as again:
            after = again.state_dict()
        assert {key for key, array in after.items() if array.tobytes() != before[key].tobytes()} == set(), name


def test_rows_that_were_evicted_for_items_have_no_priority(tmp_path: Path):
    columns, options = [Column((None,), "int32", longest=4, items=12)], {"default_priority": "largest_held"}
    buffer = host.PrioritizedReplayBuffer(1, 8, columns=columns, storage=tmp_path / "rows", **options)
    for priority in (9.0, 2.0, 1.0, 1.0, None):
        buffer.insert([[1, 2, 3, 4]], priority=priority)
    assert (len(buffer), buffer.arrays["max_priority"]) == (3, 2.0)
    buffer.close()
    with contextlib.closing(type(buffer).open(tmp_path / "rows", verify=True)) as again:
        assert again.arrays["max_priority"] == 2.0


def test_a_thread_flushes(tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    for wrong in (-1, "1", True, float("nan")):
        with pytest.raises(ValueError, match=r"'every' must be a number of seconds >= 0, but got "):
            buffer.flush(every=wrong)
    for number in (0, 1.0, True):
        with pytest.raises(ValueError, match=r"'rows' must be an integer >= 1, but got "):
            buffer.flush(rows=number)
    with buffer.lock:  # and one that waits for this block does not keep it from closing
        buffer.flush(every=0.001)
        fill(buffer)
        time.sleep(0.05)
    number = buffer._front.shared.folder._last.number
    while buffer._front.shared.folder._last.number < number + 2:
        time.sleep(0.001)
    assert buffer._front.shared.folder._last.inserted == 44
    buffer.flush(every=0)
    number = buffer._front.shared.folder._last.number
    time.sleep(0.05)
    assert buffer._front.shared.folder._last.number - number <= 1
    buffer.flush(every=0.001)
    with buffer.lock:
        buffer.close()


@pytest.mark.parametrize("every", [None, 1000])
def test_a_thread_flushes_after_some_rows(every: float | None, tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    buffer.flush(every=every, rows=20)
    number = buffer._front.shared.folder._last.number
    fill(buffer, rows=range(19))
    time.sleep(0.05)
    assert buffer._front.shared.folder._last.number == number
    fill(buffer, rows=range(19, 20))
    while buffer._front.shared.folder._last.number == number:
        time.sleep(0.001)
    assert buffer._front.shared.folder._last.inserted == 20
    buffer.close()


def test_processes_may_wait_for_the_lock_during_a_flush(tmp_path: Path, stopped: Any):
    """A process that begins to wait changes the lock in the middle of a flush, which holds it."""
    buffer, ended = make("prioritized", storage=tmp_path / "rows"), threading.Event()
    journal = buffer._front.shared.folder.arrays["shared.journal"]

    def begin_to_wait() -> None:
        while not ended.is_set():
            journal[7] += 1

    others = threading.Thread(target=begin_to_wait)
    others.start()
    fill(buffer)
    for _ in range(100):
        buffer.flush()
    ended.set()
    others.join()
    with pytest.warns(RuntimeWarning, match=ANEW):
        assert len(stopped(tmp_path / "rows")) == 32


def test_a_disk_that_fails_is_told_at_each_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    buffer = make("uniform", storage=tmp_path / "rows")
    fill(buffer)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        with pytest.raises(OSError, match=r"could not be written to the disk: Input/output error. save\(\) its rows"):
            buffer.flush()
    with pytest.raises(
        OSError, match=r"^\[Errno 5\] For 'ReplayBuffer', the folder .*rows could not be written to the"
    ):
        buffer.flush()
    assert (len(buffer), buffer._front.shared.folder._last.inserted) == (32, 0)
    with pytest.raises(OSError, match="could not be written"):
        buffer.close()


# Folders that are not whole.


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a prioritized buffer with rows, which a learner has closed."""
    folder = tmp_path_factory.mktemp("whole") / "rows"
    buffer = make("sequences by priority", storage=folder)
    fill(buffer)
    buffer.close()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def arguments(header: dict[str, Any]) -> dict[str, Any]:
    return header["buffer"]["arguments"]  # type: ignore[no-any-return]


def flip(name: str, at: int) -> Any:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)

    return change


def linked(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


WRONG = {
    "nothing": (shutil.rmtree, FileNotFoundError, "there is no folder"),
    "empty": (emptied, ValueError, "has no file 'header'"),
    "no column": (lambda f: (f / "columns").unlink(), ValueError, "its file 'columns' is missing"),
    "a link": (lambda f: linked(f, "columns"), ValueError, "its file 'columns' is a link to another"),
    "cut off": (lambda f: os.truncate(f / "columns", 100), ValueError, "'columns' has 100 bytes, not "),
    "cut off state": (lambda f: os.truncate(f / "state", 1000), ValueError, "'state' has 1000 bytes, not"),
    "cut off header": (lambda f: os.truncate(f / "header", 60), ValueError, "header that was cut off or added to"),
    "short header": (lambda f: os.truncate(f / "header", 3), ValueError, "has a header that begins otherwise"),
    "other header": (lambda f: (f / "header").write_text("{}"), ValueError, "has a header that begins otherwise"),
    "altered header": (flip("header", 100), ValueError, "does not fit its checksum"),
    "newer": (
        lambda f: new_header(f, lambda _: None, 7),
        ValueError,
        "has the format version 7, and this library reads 6",
    ),
    "other capacity": (lambda f: new_header(f, lambda h: h["buffer"].update(capacity=16)), ValueError, "is not whole"),
    "no capacity": (lambda f: new_header(f, lambda h: h["buffer"].pop("capacity")), ValueError, "makes no sense"),
    "other shape": (lambda f: new_header(f, lambda h: arguments(h).update(shapes=[[3], []])), ValueError, "no sense"),
    "other streams": (
        lambda f: new_header(f, lambda h: arguments(h).update(num_envs=2**31)),
        ValueError,
        "makes no sense",
    ),
    "other sample size": (
        lambda f: new_header(f, lambda h: arguments(h).update(sample_size=[4])),
        ValueError,
        "makes no sense",
    ),
    "no arguments": (lambda f: new_header(f, lambda h: h["buffer"].pop("arguments")), ValueError, "makes no sense"),
    "other class": (lambda f: new_header(f, lambda h: h["buffer"].update({"class": "B"})), ValueError, "no class 'B'"),
    "head": (None, ValueError, "is damaged: .*the cursors must describe a ring"),
    "weights": (None, ValueError, "is damaged: .*the weights must be those of its rows"),
}


def damage(folder: Path, name: str) -> None:
    """Change an array of the state, of a folder that is then no copy."""
    opened = folder_opening.open_to_attach(folder, "test")
    opened.arrays[name].reshape(-1)[:1] += 1
    opened.arrays["shared.inode"][0] = (folder / "state").stat().st_ino
    opened.close()


@pytest.mark.parametrize("name", WRONG)
def test_a_folder_that_is_not_whole(whole: Path, tmp_path: Path, name: str):
    change, error, message = WRONG[name]
    folder = tmp_path / "rows"
    shutil.copytree(whole, folder)
    damage(folder, name) if change is None else change(folder)
    before = contents(folder) if folder.exists() else None
    for function, use in (("attach", attach), (r"Buffer\.open", Buffer.open)):
        with pytest.raises(error, match=rf"^For '{function}', 'folder' must .*{message}"):
            use(folder)
    assert before == (contents(folder) if folder.exists() else None)


@pytest.mark.parametrize("number", [2**62, 2**63 - 1, -(2**63), -1])
def test_records_that_no_flush_writes(whole: Path, tmp_path: Path, number: int, stopped: Any):
    """With a checksum that fits: the number is beyond all that there can be."""
    shutil.copytree(whole, tmp_path / "rows")
    for name in flushed.FILES:
        file = np.memmap(tmp_path / "rows" / name, np.uint8)
        check = flushed._read_record(file).check
        flushed.write_record(flushed.Record(number, 0, 2**62, -(2**62), check=check), file)
        del file
    for use in (Buffer.open, attach):
        with pytest.raises(
            ValueError, match=r"is damaged: neither of its files 'flushed\.0' and 'flushed\.1' is whole"
        ):
            stopped(tmp_path / "rows", use)
