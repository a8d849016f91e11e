"""The soak script, in short runs, and its detection of faults."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from places import ROOT

pytestmark = pytest.mark.cpu_only("a program that runs on the CPU")

SCRIPT = ROOT / "benchmarks" / "soak.py"


@pytest.fixture
def soak(script: Any) -> Any:
    return script("soaks.threads")


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess:
    """Run the script in a process of its own, after Python code that may modify it."""
    code = f"import sys\nsys.path.insert(0, {str(SCRIPT.parent)!r})\nimport soak\nfrom soaks import threads\n{before}\n"
    command = [sys.executable, "-c", f"{code}\nsys.exit(soak.main())", "threads", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def results(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_uniform_and_prioritized():
    ended = run("--seconds", "4", "--buffer", "uniform", "prioritized")
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    found = results(ended.stdout)
    assert [result["kind"] for result in found] == ["uniform", "prioritized"]
    for result in found:
        assert (result["backend"], result["learner"], result["actors"]) == ("native", "compiled", 8)
        assert result["faults"] == []
        for count in ("insertions", "refused", "deaths", "compiled_steps", "eager_samples", "rows_verified"):
            assert result[count] > 0, count
        assert result["inserted"] > result["insertions"]


WITHOUT_LOCK = """
import types
from mindspore_replay.store.faces import front
class NoLock:
    def acquire(self, *_):
        return True
    __enter__ = acquire
    def release(self, *_):
        pass
    __exit__ = release
front.threading = types.SimpleNamespace(RLock=NoLock)
"""


def test_a_buffer_without_its_lock_is_found_out():
    ended = run("--seconds", "20", "--buffer", "uniform", before=WITHOUT_LOCK)
    assert ended.returncode not in (0, 3), ended.stdout  # ends at the first fault, unless the process crashes
    if ended.returncode == 1:
        assert results(ended.stdout)[0]["faults"], ended.stderr[-4000:]


HANGING = """
import threading
threads.PATIENCE = 1.0
learn = threads.Soak.learn
def learn_and_hang(self, random):
    learn(self, random)
    if sum(self.counts[name] for name in ("compiled_steps", "eager_samples")) > 20:
        with self.buffer.lock:
            threading.Event().wait()
threads.Soak.learn = learn_and_hang
"""


def test_a_thread_that_hangs_is_found_out():
    ended = run("--seconds", "100", "--actors", "2", "--buffer", "uniform", before=HANGING)
    assert ended.returncode == 3, ended.stdout + ended.stderr[-4000:]
    assert "made no progress for 1 s" in ended.stderr
    assert "in learn_and_hang" in ended.stderr  # the stacks show the place


def state_of(soak: Any, rows: list[list[np.ndarray]], kind: str = "uniform") -> dict[str, np.ndarray]:
    buffer = soak.make_buffer(kind, "native")
    for row in rows:
        buffer.insert(row)
    return buffer.state_dict()


@pytest.mark.parametrize("kind", ["uniform", "reservoir"])
def test_whole_rows_pass(soak: Any, kind: str):
    rows = [soak.make_row(1 + i % 2, i // 2) for i in range(10)]
    assert soak.check_state(kind, state_of(soak, rows, kind), [0, 5, 5]) == 10


@pytest.mark.parametrize("field", range(8))
def test_a_torn_row_is_found(soak: Any, field: int):
    rows = [soak.make_row(1, step) for step in range(4)]
    rows[2][field] = soak.make_row(2, 7)[field]
    if field == soak.NAMES.index("frame"):  # only part of a frame
        rows[2][field] = np.concatenate([soak.make_row(1, 2)[0][:83], rows[2][field][83:]])
    elif field in (soak.NAMES.index("flag"), soak.NAMES.index("end")):
        rows[2][field] = ~soak.make_row(1, 2)[field]
    with pytest.raises(AssertionError, match="a torn row"):
        soak.check_rows([np.stack(column) for column in zip(*rows, strict=True)])
    with pytest.raises(AssertionError, match="a torn row"):
        soak.check_state("uniform", state_of(soak, rows), None)


@pytest.mark.parametrize(
    ("steps", "next_steps", "message"),
    [
        ([0, 1, 3], [0, 4], "a lost row of actor 1"),
        ([0, 2, 1], [0, 3], "a lost row of actor 1"),
        ([0, 1, 1], [0, 2], "a lost row of actor 1"),
        ([0, 1], [0, 3], "actor 1 lost its last row, 2"),
        ([0, 1], [1, 2], "2 serials, 3 rows"),
    ],
)
def test_a_lost_row_is_found(soak: Any, steps: list[int], next_steps: list[int], message: str):
    state = state_of(soak, [soak.make_row(1, step) for step in steps])
    with pytest.raises(AssertionError, match=message):
        soak.check_state("uniform", state, next_steps)


def test_a_wrong_window_is_found(soak: Any):
    columns = [np.stack([column]) for column in soak.make_rows(1, 6, 5)]  # the third step ends an episode
    mask = np.array([[True, True, True, False, False]])
    blank = [np.where(mask.reshape(1, 5, *[1] * (c.ndim - 2)), c, np.zeros((), c.dtype)) for c in columns]
    assert soak.check_windows(mask, blank) == 3
    with pytest.raises(AssertionError, match="not zeros"):
        soak.check_windows(mask, columns)
    with pytest.raises(AssertionError, match="behind the end"):
        soak.check_windows(np.ones((1, 5), bool), columns)
