"""Processes killed within an operation on a buffer in a folder: no row is torn, no acknowledged one is lost."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stepping
from kinds import CLASSES, ends_every
from kinds import KINDS as EVERY
from places import ROOT

from mindspore_replay import EpochReplayBuffer, MixedReplay, ReplayQueue, attach, host

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

#: Operations that write numbers which are consistent in any order.
ONE_AFTER_THE_OTHER = {"sample by priority", "sample in epochs", "end episodes"}


def test_a_process_may_die_at_any_instruction(tmp_path: Path):
    program = ROOT / "tests" / "support" / "stepping.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    if "ptrace" in done.stderr and "Operation not permitted" in done.stderr:
        pytest.skip("this system does not let a process trace its child")
    assert done.returncode == 0, done.stderr
    found = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(found) == 31
    page = " ".join((ROOT / "docs" / "appendix" / "processes.md").read_text(encoding="utf-8").split())
    assert f"runs {len(found)} operations one instruction" in page
    assert f"{len(found) - len(ONE_AFTER_THE_OTHER)} of the {len(found)} operations leave states" in page
    for name, *counts in found:
        unrepaired, states = map(int, counts)
        assert states >= 9, name
        assert (unrepaired > 0) == (name not in ONE_AFTER_THE_OTHER), name


def test_no_wake_up_is_lost_at_any_instruction(tmp_path: Path):
    """A sleeper is woken only once its rows count, and one whose place is free has been woken."""
    queue = host.ReplayQueue(4, 16, [()], ["int64"], timeout=None, storage=tmp_path / "rows")
    store, limits, arrays = queue._front.calls, queue.limiter.limits, queue._front.shared.folder.arrays
    places, journal = arrays["shared.limits"][20:23], arrays["shared.journal"]
    row = [np.zeros(3, np.int64)]
    queue.insert(row).reset()
    queue.insert([0])
    assert not limits.begin("sample", 4, 1, np.zeros(5, np.int64), False)
    seen = set()

    def memory() -> bytes:
        return np.concatenate([places, journal]).tobytes()

    try:
        for state in stepping.states(lambda: store.insert(row), store, memory):
            rows, _, ticket, *others = np.frombuffer(state, np.int64).tolist()
            is_woken, inserted = ticket & 0xFFFFFFFF == 0, others[9]
            assert not is_woken or inserted == 7
            assert rows == 4 or (rows == 0 and is_woken)
            seen.add((rows, is_woken, inserted))
    except OSError:
        pytest.skip("this system does not let a process trace its child")
    assert seen >= {(4, False, 4), (4, False, 7), (4, True, 7)}


WAITS = """
import sys
from mindspore_replay import attach
queue = attach(sys.argv[1])
print("ready", flush=True)
while True:
    queue.sample() if sys.argv[2] == "sample" else queue.insert([[0, 1]])
"""


@pytest.mark.parametrize("what", ["sample", "insert"])
def test_a_killed_waiter_keeps_nobody_waiting(what: str, tmp_path: Path):
    queue = host.ReplayQueue(2, 8, [()], ["int64"], timeout=60, storage=tmp_path / "rows")
    if what == "insert":
        queue.insert([np.arange(8)])
    with subprocess.Popen([sys.executable, "-c", WAITS, tmp_path / "rows", what], stdout=subprocess.PIPE) as waiter:
        assert waiter.stdout.readline() == b"ready\n"
        while not queue.limiter.limits.awaited(what):
            time.sleep(0.01)
        waiter.kill()
    done: list[Any] = []
    tickets = queue._front.shared.folder.arrays["shared.limits"][19:20]
    before = int(tickets[0])
    call = queue.sample if what == "sample" else (lambda: queue.insert([[0, 1]]))
    thread = threading.Thread(target=lambda: done.append(call()))
    thread.start()
    while tickets[0] == before:
        time.sleep(0.01)
    _ = queue.insert([[0, 1]]) if what == "sample" else queue.sample()
    thread.join(60)
    assert len(done) == 1
    assert len(queue) == (2 if what == "sample" else 8)
    time.sleep(1.1)
    assert queue.can_sample() == (what == "insert")
    queue.limiter.limits.count("sample", 0)  # whoever releases the lock frees the place
    assert not queue.limiter.limits.awaited(what)


KINDS = [*CLASSES, "distinct, weighted", "elastic by priority", "reservoir, weighted"]
#: What is asked first after a death: of the learner's buffer and of an attached one, or of the former alone.
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "size": lambda buffer: int(buffer.size()),
    "full": lambda buffer: bool(buffer.full()),
    "can_sample": lambda buffer: bool(buffer.can_sample()),
    "get_item": lambda buffer: np.asarray(buffer.get_item(np.arange(12))[0]).tolist(),
    "repr": lambda buffer: repr(buffer).replace("/without", "").replace("/after", ""),
}
OF_LEARNERS: dict[str, Callable[[Any], Any]] = {
    "eligible": lambda buffer: buffer.eligible(),
    "rows": lambda buffer: buffer.rows()[0].asnumpy().tolist(),
    "other size": lambda buffer: (buffer.with_sample_size(2).eligible(), int(buffer.with_sample_size(2).size())),
    "mixture": lambda buffer: bool(MixedReplay([(buffer, 1.0)], 6).can_sample()),
    "account": lambda buffer: buffer.account() if isinstance(buffer, ReplayQueue) else None,
    "batches": lambda buffer: buffer.batches() if isinstance(buffer, EpochReplayBuffer) else None,
}


def make(kind: str, folder: Path) -> Any:
    """Return a full buffer from which six can be drawn."""
    window = {"window": 12} if "elastic" in kind else {}
    buffer = EVERY[kind].make(6, 12, [()], ["int64"], storage=folder, seed=0, **window)
    buffer.insert([np.arange(12)], **ends_every(buffer, 2, 12))
    return buffer


def die_within(folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> Any:
    """Change the state under the lock, and die: the lock of a thread that ends is that of a process that was killed."""
    victim = attach(folder)

    def hold() -> None:
        victim._front.calls.kernels_kept_out().__enter__()
        change(victim._folder.arrays)

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    return victim


def half_written(arrays: dict[str, np.ndarray]) -> None:
    """Leave cursors and sums as an operation may that is undone afterwards."""
    arrays["count"][...] = 3
    if "weights" in arrays:
        arrays["weights"][-1] = 1


def answer(question: Callable[[Any], Any], buffer: Any) -> Any:
    try:
        return question(buffer)
    except (IndexError, RuntimeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_answer_after_a_death_is_that_of_a_repaired_state(kind: str, tmp_path: Path):
    for name, question in {**QUESTIONS, **OF_LEARNERS}.items():
        expected = answer(question, make(kind, tmp_path / name / "without"))
        learner = make(kind, tmp_path / name / "after")
        victim = die_within(tmp_path / name / "after", half_written)
        assert answer(question, learner) == expected, name
        if name in QUESTIONS:
            without = attach(tmp_path / name / "without")
            folder = tmp_path / name / "attached" / "after"
            victims = [make(kind, folder), die_within(folder, half_written), victim]
            found = answer(question, attach(folder))
            assert found == answer(question, without) or name == "repr", (name, victims)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "reservoir" not in kind])
def test_rows_that_were_being_overwritten_are_gone_from_the_first_answer_on(kind: str, tmp_path: Path):
    def evict(arrays: dict[str, np.ndarray]) -> None:
        arrays["shared.journal"][10] += 4  # the serial number of the oldest row that is not overwritten

    outside = f"For '{EVERY[kind].cls.__name__}', 'index' must be in [-8, 8), since 8 rows are stored, but got 8."
    for i, front in enumerate([lambda learner, folder: learner, lambda learner, folder: attach(folder)]):
        for j, (question, expected) in enumerate(
            [(QUESTIONS["size"], 8), (QUESTIONS["full"], False), (QUESTIONS["get_item"], (IndexError, outside))]
        ):
            folder = tmp_path / f"{i}{j}"
            learner = make(kind, folder)
            victim = die_within(folder, evict)
            assert answer(question, front(learner, folder)) == expected
            assert learner.eligible() == victim._front.calls.eligible()


def test_rows_that_go_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The number of rows was asked for before the death, and the kernel finds fewer."""
    for i, (read, error, message) in enumerate(
        [
            (
                lambda b: b.get_item(np.arange(12)),
                IndexError,
                r"'index' must be in \[-8, 8\), since 8 rows are .* got 8\.",
            ),
            (lambda b: b.rows(), RuntimeError, "'rows' returns all capacity=12 rows, but got 8 stored"),
        ]
    ):
        learner = make("uniform", tmp_path / str(i))
        victim = die_within(tmp_path / str(i), lambda arrays: arrays["shared.journal"].__setitem__(10, 4))
        answers, count = iter([12]), learner._front.calls.count
        monkeypatch.setattr(
            learner._front.calls, "count", lambda answers=answers, count=count: next(answers, None) or count()
        )
        with pytest.raises(error, match=message):
            read(learner)
        assert len(victim) == 8
