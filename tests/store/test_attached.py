"""Processes that attach to a buffer in a folder: without MindSpore, with its rows, draws, errors and limits."""

import copy
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from kinds import KINDS as EVERY
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, RateLimiter, ReplayBuffer, ReplayQueue, attach, load, save

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

NAMES, SHAPES, TYPES = ["observation", "action"], [(3,), ()], ["float32", "int32"]


def make(kind: str, folder: Path, **more: Any) -> Any:
    return EVERY[kind].make(4, 32, SHAPES, TYPES, names=NAMES, seed=3, storage=folder, **more)


def row(i: int) -> list[Any]:
    return [np.full(3, i, np.float32), i]


def fill(buffer: Any, rows: int, kind: str = "") -> None:
    for i in range(rows):
        buffer.insert(row(i), **({"end": i % 4 == 3} if kind in ("sequences by priority", "episodes") else {}))


def start(program: str, *arguments: Any) -> subprocess.Popen:
    command = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen) -> list[str]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.splitlines()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


USES = """
import sys
import numpy as np

def resident():
    return int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0])

before = resident()
from mindspore_replay import attach
buffer = attach(sys.argv[1])
for i in range(8):
    buffer.insert([np.full(3, i, np.float32), i], priority=float(i))
buffer.add({"observation": np.zeros((2, 3), np.float32), "action": np.array([8, 9], np.int32)}, priority=[1.0, 2.0])
indices, weights, observation, action = buffer.sample()
assert (observation[:, 0] == np.where(action < 8, action, 0)).all() and weights.max() == 1
assert buffer.update_priorities(indices, np.full(4, 3.0)) == 0 and (buffer.info(indices)[0] == 3).all()
assert buffer.update(indices[:1], {"action": np.array([77], np.int32)}) == 0
assert buffer.delete(indices[1:2]) == 1 and buffer.advance(2).info(indices)[2][0] == 2
sample = buffer.sample(beta=0.5, as_dict=True)
assert list(sample) == ["indices", "weights", "observation", "action"]
assert [int(part) for part in buffer.get_item([0, -1])[1] if part != 77][-1] == 9 and buffer.size() == 10
assert not buffer.full() and buffer.can_sample() and not buffer.closed
buffer.check_valid()
assert not [name for name in sys.modules if name.split(".")[0] == "mindspore"]
print(resident() - before)
"""


def test_a_process_without_mindspore(tmp_path: Path):
    buffer = make("prioritized", tmp_path / "rows")
    (kilobytes,) = result(start(USES, tmp_path / "rows"))
    assert int(kilobytes) < 80_000
    assert sorted(set(buffer.get_item(range(10))[1].asnumpy().tolist()) - {77}) != []
    assert (len(buffer), int(buffer.clock.asnumpy()[0]), buffer.counts.asnumpy()[3]) == (10, 2, 1)
    buffer.check_valid()


HALF = np.array([0x3FC0, 0xC000, 0x4040], np.uint16)  # 1.5, -2, 3
BFLOAT16 = Tensor([1.5, -2.0, 3.0], ms.bfloat16).asnumpy().dtype
FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "bits": lambda bits: bits,
    "other bytes": lambda bits: bits.astype(">u2"),
    "array": lambda bits: bits.view(BFLOAT16),
    "Tensor": lambda bits: Tensor.from_numpy(bits.view(BFLOAT16)),
    "numbers": lambda bits: bits.view(BFLOAT16).astype(np.float32).tolist(),
    "scalars": lambda bits: bits.view(BFLOAT16).tolist() if bits.ndim == 0 else list(bits.view(BFLOAT16)),
}
TAKERS: dict[str, tuple[type, dict[str, Any], dict[str, Any]]] = {
    "plain": (ReplayBuffer, {}, {}),
    "handles": (ReplayBuffer, {"weighted": True}, {"with_indices": True}),
    "versions": (ReplayBuffer, {"max_staleness": 9}, {"version": 0, "with_indices": True}),
    "priorities": (PrioritizedReplayBuffer, {}, {"priority": 2.0, "with_indices": True}),
    "limiter": (ReplayBuffer, {"weighted": True}, {"with_indices": True}),
    "queue": (ReplayQueue, {}, {"with_indices": True}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("taker", TAKERS)
def test_bfloat16_in_every_form(taker: str, form: str, tmp_path: Path):
    cls, options, more = TAKERS[taker]
    dtypes = ["bfloat16", "int32", "bfloat16", "bool"]
    learner = cls(1, 20, [(), (), (3,), ()], dtypes, storage=tmp_path / "rows", seed=0, **options)
    if taker == "limiter":
        learner.limiter = RateLimiter(1, 1, 10)
    attached = attach(tmp_path / "rows")
    convert = FORMS[form]
    one = [convert(HALF[0, ...]), 7, convert(HALF), True]
    many = [convert(HALF[:2]), [8, 9], convert(np.stack([HALF, HALF[::-1]])), [False, True]]
    if form == "scalars":
        many[2] = convert(HALF), convert(HALF[::-1])
    for rows, handles in ((one, 0), (many, [1, 2])):
        result = attached.insert(rows, **more)
        assert result is attached if not more.get("with_indices") else result.tolist() == handles
    half, number, halves, flag = attached.get_item([0, 1, 2])
    assert (half.tolist(), number.tolist()) == (HALF[[0, 0, 1]].tolist(), [7, 8, 9])
    assert (halves == [HALF, HALF, HALF[::-1]]).all()
    assert flag.tolist() == [True, False, True]
    assert learner.get_item(2)[0].asnumpy().astype(np.float32) == -2.0


def test_samples_of_another_size_and_range(tmp_path: Path):
    fill(make("weighted", tmp_path / "rows"), 32)
    other = attach(tmp_path / "rows", sample_size=9)
    indices, observation, action = other.sample((-9, None), with_indices=True)
    assert observation.shape == (9, 3)
    np.testing.assert_array_equal(action, indices)
    assert set(action.tolist()) <= set(range(23, 32))
    assert attach(tmp_path / "rows", sample_size=33).sample(with_indices=True)[0].shape == (33,)
    fill(make("queue", tmp_path / "queue"), 32)
    with pytest.raises(ValueError, match=r"^For 'attach', 'sample_size' must be in \[1, 32\], but got 33"):
        attach(tmp_path / "queue", sample_size=33)


#: Arguments of the methods that need some.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "insert": ([np.zeros(3, np.float32), 1],),
    "add": ([np.zeros(3, np.float32), 1],),
    "get_item": (0,),
    "update": ([0], {"action": [1]}),
    "update_priorities": ([0], 1.0),
    "delete": ([0],),
    "info": ([0],),
}


def methods_of(attached: Any) -> dict[str, Callable[[], Any]]:
    """Return a call of each public method and of `len`, but those that say which folder it is and that it is closed."""
    names = {name for name in dir(type(attached)) if not name.startswith("_")} - {"close", "closed", "folder"}
    calls: dict[str, Callable[[], Any]] = {
        name: lambda name=name: getattr(attached, name)(*ARGUMENTS.get(name, ())) for name in names
    }
    return calls | {"len": lambda: len(attached)}


@pytest.mark.parametrize("limit", [False, True])
@pytest.mark.parametrize("kind", ["prioritized", "episodes"])
def test_no_method_answers_after_a_close(kind: str, limit: bool, tmp_path: Path):
    learner = make(kind, tmp_path / "rows", **({"prioritized": True} if kind == "episodes" else {}))
    fill(learner, 16, kind)
    if limit:
        learner.limiter = RateLimiter(1, 1, 100)
    one, other = attach(tmp_path / "rows"), attach(tmp_path / "rows")
    calls = methods_of(one)
    del calls["sample_packed"]  # needs rows that differ in length
    if kind == "prioritized":
        del calls["end_episodes"]
    for name in sorted(calls):
        calls[name]()
    one.close()
    learner.close()
    for attached, words in (one, "this object was closed: attach to the folder"), (other, "the learner has closed the"):
        for name, call in methods_of(attached).items():
            if name in calls:
                with pytest.raises(RuntimeError, match=f"^For '{type(learner).__name__}', {words}") as caught:
                    call()
                assert caught.type is RuntimeError, name
        assert attached.closed
        assert repr(attached).startswith(f"AttachedBuffer of {type(learner).__name__} in {tmp_path / 'rows'}: closed\n")
    one.close()
    again = type(learner).open(tmp_path / "rows")
    if kind == "prioritized":  # an episode is continued by no other process
        other.insert(*ARGUMENTS["insert"])
    assert len(other) == len(again) == other.size()
    assert one.closed
    assert not other.closed


def test_waits_of_one_thread_leave_the_object_to_the_others(tmp_path: Path):
    """A queue is full: the thread that inserts waits while another one samples, until the object is closed."""
    learner = ReplayQueue(2, 4, [()], ["int32"], storage=tmp_path / "rows")
    attached = attach(tmp_path / "rows")
    attached.insert([[0, 1, 2, 3]])
    errors: list[str] = []

    def insert() -> None:
        try:
            for number in range(4, 9):
                attached.insert([number])
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=insert)
    thread.start()
    assert attached.sample()[0].tolist() == [0, 1]
    wait_until(lambda: attached.get_item(-1)[0] == 5)
    attached.close()
    thread.join(timeout=100)
    assert (len(errors), len(learner)) == (1, 4)
    assert "this object was closed" in errors[0]


# Episodes of several processes.


def test_rows_of_an_episode_come_from_one_process(tmp_path: Path):
    buffer = make("sequences by priority", tmp_path / "rows")
    first, second = attach(tmp_path / "rows"), attach(tmp_path / "rows")
    first.insert(row(0))
    for other in (second, buffer):
        with pytest.raises(RuntimeError, match="the newest rows are an open episode of another process: each process"):
            other.insert(row(1))
    first.insert(row(1), end=True)
    second.insert([np.zeros((2, 3), np.float32), np.arange(2, 4, dtype=np.int32)], end=[False, True])
    first.insert(row(4))
    assert second.end_episodes() == 1  # as if the first process were gone
    second.insert(row(5))
    assert buffer.steps.asnumpy()[:6].tolist() == [0, 1, 0, 1, 0, 0]


FORKS = """
import os, sys
from mindspore_replay import attach
buffer = attach(sys.argv[1])
buffer.insert([[0.0] * 3, 0])
child = os.fork()
try:
    buffer.insert([[0.0] * 3, 1], end=not child)
except RuntimeError as error:
    print(error)
if child:
    os.waitpid(child, 0)
    print(len(buffer))
"""


def test_a_forked_child_is_another_process(tmp_path: Path):
    _buffer = make("sequences by priority", tmp_path / "rows")
    refused, stored = result(start(FORKS, tmp_path / "rows"))
    assert "the newest rows are an open episode of another process" in refused
    assert stored == "2"


def test_an_attached_buffer_is_pickled_as_its_folder(tmp_path: Path):
    buffer = make("uniform", tmp_path / "rows")
    attached = attach(tmp_path / "rows", sample_size=3, timeout=1.5)
    for again in (pickle.loads(pickle.dumps(attached)), copy.deepcopy(attached)):
        again.insert(row(0))
        assert again.sample_size == 3
    assert len(buffer) == len(attached) == 2


STREAMS = """
import sys
import numpy as np
from mindspore_replay import attach
buffer = attach(sys.argv[1])
i = 0
try:
    while True:
        buffer.insert([np.full((5, 50_000), i, np.float32), np.full(5, i, np.int32)])
        i += 1
except RuntimeError:
    print(i)
"""


def test_checkpoints_are_whole_while_others_insert(tmp_path: Path):
    buffer = ReplayBuffer(1, 20, [(50_000,), ()], TYPES, storage=tmp_path / "rows")
    saved = []
    with start(STREAMS, tmp_path / "rows") as writer:
        try:
            wait_until(buffer.full)
            for i in range(5):
                save(buffer, tmp_path / str(i))
                columns = [column.asnumpy() for column in load(tmp_path / str(i)).get_item(range(20))]
                np.testing.assert_array_equal(columns[0], np.broadcast_to(columns[1][:, None], (20, 50_000)))
                saved.append(int(columns[1][0]))
                np.testing.assert_array_equal(columns[1], np.repeat(np.arange(4) + saved[-1], 5))  # whole insertions
                wait_until(lambda: int(buffer.serials.asnumpy()[0]) > 5 * saved[-1] + 40)
            assert len(set(saved)) == 5
            buffer.close()
            (inserted,) = result(writer)
        finally:
            writer.kill()
    assert int(inserted) > saved[-1]


# Limits.

WRITES = """
import sys
from mindspore_replay import attach
buffer = attach(sys.argv[1], timeout=float(sys.argv[2]))
print("attached", flush=True)
try:
    for i in range(1000):
        buffer.insert([[0.0] * 3, i])
except (RuntimeError, TimeoutError) as error:
    print(i, type(error).__name__, error)
"""


def limited(folder: Path) -> Any:
    buffer = make("uniform", folder)
    buffer.limiter = RateLimiter(samples_per_insert=1, min_size=10, error_buffer=8)
    return buffer


def inserted(buffer: Any) -> int:
    return buffer.limiter.inserted


def test_writers_wait_for_samples_and_end_with_the_buffer(tmp_path: Path):
    buffer = limited(tmp_path / "rows")
    writers = [start(WRITES, tmp_path / "rows", "inf") for _ in range(2)]
    wait_until(lambda: inserted(buffer) == 18)  # 10, and 8 samples ahead
    buffer.sample()
    wait_until(lambda: inserted(buffer) == 22)
    assert (buffer.limiter.sampled, int(buffer.serials.asnumpy()[0])) == (4, 22)
    buffer.close()
    for writer in writers:
        *_, last = result(writer)
        assert "RuntimeError For 'ReplayBuffer', the learner has closed the buffer in " in last


def test_a_wait_has_a_timeout(tmp_path: Path):
    buffer = limited(tmp_path / "rows")
    *_, last = result(start(WRITES, tmp_path / "rows", "0.2"))
    text = "18 TimeoutError For 'RateLimiter', 1 row could not be inserted within 0.2 s: 18 were inserted and 0 sampled"
    assert last.startswith(text)
    assert inserted(buffer) == 18


def test_a_change_of_the_limiter_ends_a_wait(tmp_path: Path):
    buffer = limited(tmp_path / "rows")
    for end in (buffer.limiter.disable, lambda: setattr(buffer, "limiter", None)):
        buffer.limiter.enable()
        writer = start(WRITES, tmp_path / "rows", "inf")
        assert writer.stdout.readline() == "attached\n"
        wait_until(lambda: buffer.limiter.inserted >= 18)
        end()
        assert result(writer) == []


LEARNS = """
import os, signal, sys
import mindspore_replay
buffer = mindspore_replay.ReplayBuffer(4, 32, [(3,), ()], ["float32", "int32"], storage=sys.argv[1])
buffer.limiter = mindspore_replay.RateLimiter(1, 10, 8)
print("ready", flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_writers_do_not_wait_for_a_dead_learner(tmp_path: Path):
    command = [sys.executable, "-c", LEARNS, tmp_path / "rows"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as learner:
        assert learner.stdout.readline() == "ready\n"
        writer = start(WRITES, tmp_path / "rows", "inf")
        assert writer.stdout.readline() == "attached\n"
    (last,) = result(writer)
    assert (
        "RuntimeError For 'ReplayBuffer', 1 rows cannot be inserted: the limiter waits for the learner, which has ended"
        in last
    )
    again = ReplayBuffer.open(tmp_path / "rows")
    assert (len(again), inserted(again)) == (18, 18)


def test_a_wait_finds_the_learner_of_a_folder_that_was_moved_or_deleted(tmp_path: Path):
    buffer = limited(tmp_path / "rows")
    attached = attach(tmp_path / "rows", timeout=0.01)
    (tmp_path / "rows").rename(tmp_path / "moved")
    for i in range(18):
        attached.insert(row(i))
    with pytest.raises(TimeoutError):  # there is a learner
        attached.insert(row(18))
    shutil.rmtree(tmp_path / "moved")
    with pytest.raises(TimeoutError):
        attached.insert(row(18))
    with pytest.raises(FileNotFoundError):
        buffer.close()
    buffer.close()
    with pytest.raises(RuntimeError, match="the learner has closed the buffer"):
        attached.insert(row(18))
    assert not attached._folder.has_learner()


def test_a_learner_waits_for_attached_writers(tmp_path: Path):
    buffer = limited(tmp_path / "rows")
    drawn: list[Any] = []
    thread = threading.Thread(target=lambda: drawn.append(buffer.sample()))
    thread.start()
    other = attach(tmp_path / "rows")
    for i in range(9):
        other.insert(row(i))
    assert not drawn
    other.insert(row(9))
    thread.join(timeout=100)
    assert len(drawn) == 1
    assert other.can_sample()
    assert buffer.limiter.can_insert()
    other.sample()
    assert buffer.limiter.sampled == 8


@pytest.mark.parametrize("samples", [False, True])
def test_the_learners_own_waits_end_when_it_closes_the_buffer(samples: bool, tmp_path: Path):
    buffer = limited(tmp_path / "rows")
    errors: list[str] = []

    def wait() -> None:
        try:
            for i in range(20):
                _ = buffer.sample() if samples else buffer.insert(row(i))
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    if not samples:
        wait_until(lambda: inserted(buffer) == 18)
    buffer.close()
    thread.join(timeout=100)
    assert len(errors) == 1
    assert "was closed" in errors[0]


def test_limits_are_counted_with_the_rows(tmp_path: Path):
    buffer = limited(tmp_path / "rows")
    other = attach(tmp_path / "rows", timeout=0.01)
    with pytest.raises(TypeError):
        other.insert([np.zeros(3, complex), 1])
    assert inserted(buffer) == 0
    with pytest.raises(TimeoutError, match=r"4 rows could not be sampled within 0\.01 s"):
        other.sample()
    with pytest.raises(
        ValueError, match=r"'error_buffer' must be at least 15\.5 for insertions of 1 and samples of 30"
    ):
        attach(tmp_path / "rows", sample_size=30).sample()
