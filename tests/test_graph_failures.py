"""Kernels that fail in a graph: MindSpore names kernel and status, and docs/mindspore.md says what they mean."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import make_buffer, row
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import EpisodeReplayBuffer, PrioritizedReplayBuffer, SequenceReplayBuffer
from mindspore_replay.ops import native

ROOT = Path(__file__).resolve().parent.parent
SOURCES = Path(mindspore_replay.__file__).parent / "csrc"
MESSAGE = re.compile(r"function\((\w+)\) is (\d+)")

#: Statuses that a kernel may give for its data, beside those of its arguments.
STATUSES = {"kTooFewRows": 2, "kIndexOutOfRange": 3, "kBadWeight": 4, "kTooLong": 5}


def table() -> dict[tuple[str, int], str]:
    """Meaning of each kernel and status, as the documentation has it."""
    lines = (ROOT / "docs" / "mindspore.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| native |")]
    return {(kernel, int(status)): cells[3].strip() for cells in rows for kernel, status in MESSAGE.findall(cells[2])}


def statuses_in(source: str) -> set[int]:
    return {number for name, number in STATUSES.items() if f"replay::{name}" in source}


def failures_of_kernels() -> set[tuple[str, int]]:
    """What the kernels return, by their sources; of the functions around them only `DrawUniform` gives a status."""
    found = set()
    for path in SOURCES.glob("*kernels.cc"):
        around, *kernels = re.split(r"MINDSPORE_REPLAY_KERNEL\(", path.read_text(encoding="utf-8"))
        assert "DrawUniform" in around or not statuses_in(around), path.name
        for kernel in kernels:
            statuses = statuses_in(kernel) | (statuses_in(around) if "DrawUniform(" in kernel else set())
            found |= {(re.match(r"\w+", kernel)[0], status) for status in statuses}
    return found


def test_the_table_has_every_failure_of_a_kernel():
    assert set(STATUSES.values()) == set(native._FAILURES)
    assert set(table()) == failures_of_kernels()


def columns() -> tuple[Any, ...]:
    return 2, 6, [(2,), ()], [ms.float32, ms.int32]


def prioritized() -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(*columns(), backend="native").insert(row(1)).insert(row(2))


def sequences() -> SequenceReplayBuffer:
    return SequenceReplayBuffer(*columns(), 1, prioritized=True, backend="native").insert(row(1)).insert(row(2))


def episodes() -> EpisodeReplayBuffer:
    return EpisodeReplayBuffer(*columns(), 2, names=["x", "y"], backend="native").insert(row(1))


def draw(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.sample()


def draw_with_beta(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.sample(value)


def put(buffer: Any) -> Callable[[Tensor], Any]:
    rows = row(3)
    return lambda value: buffer.insert(rows, priority=value)


def put_without(buffer: Any) -> Callable[[Tensor], Any]:
    rows = row(3)
    return lambda value: buffer.insert(rows)


def update(buffer: Any) -> Callable[[Tensor], Any]:
    handles = Tensor([0])
    return lambda value: buffer.update_priorities(handles, value)


def read(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.get_item(2)


def group(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.sample_groups("y", 2, 2)


CASES: dict[tuple[str, int], tuple[Callable[[], Any], Callable[[Any], Callable[[Tensor], Any]], float]] = {
    ("replay_sample_uniform", 2): (lambda: make_buffer("native"), draw, 0.0),
    ("replay_ring_read", 3): (lambda: make_buffer("native"), read, 0.0),
    ("replay_sample_weighted", 2): (lambda: make_buffer("native", weighted=True), draw, 0.0),
    ("replay_sample_prioritized", 2): (lambda: prioritized().reset(), draw, 0.0),
    ("replay_sample_prioritized", 4): (prioritized, draw_with_beta, 1.5),
    ("replay_sample_windows", 2): (lambda: sequences().reset(), draw, 0.0),
    ("replay_sample_windows", 4): (sequences, draw_with_beta, 1.5),
    ("replay_sample_groups", 2): (episodes, group, 0.0),
    ("replay_insert_timed", 4): (sequences, put, -1.0),
    ("replay_insert_timed", 5): (episodes, put_without, 0.0),
    ("replay_insert_weighted", 4): (prioritized, put, -1.0),
    ("replay_update_priorities", 4): (prioritized, update, np.nan),
    ("replay_update_timed", 4): (sequences, update, np.nan),
}

#: Operators that no buffer calls with what comes from a user.
INNER = {"replay_draw_uniform", "replay_gather_rows", "replay_tree_set", "replay_tree_descend"}


def test_every_failure_of_a_buffer_is_provoked():
    assert set(CASES) == {failure for failure in table() if failure[0] not in INNER}


def finished(result: Any) -> list[np.ndarray]:
    """What a graph gives, read: a call may return before its kernels are done."""
    return [part.asnumpy() for part in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.host_memory("on a device the next call tells of what a kernel finds wrong")
@pytest.mark.parametrize("failure", CASES, ids=str)
def test_a_failure_in_a_graph_is_in_the_table(failure: tuple[str, int]):
    make, body, value = CASES[failure]
    buffer = make()
    before = buffer.state_dict()
    call = ms.jit(body(buffer))
    with pytest.raises(RuntimeError) as caught:
        finished(call(Tensor(value, ms.float32)))
    kernel, status = MESSAGE.findall(str(caught.value))[0]
    assert (kernel, int(status)) == failure
    assert table()[failure]
    for name, array in buffer.state_dict().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_an_error_of_a_kernel_that_python_calls_has_words():
    message = "The kernel 'replay_sample_uniform' failed with status 2: fewer rows are eligible than a sample needs."
    assert str(native.KernelError("replay_sample_uniform", native.TOO_FEW_ROWS)) == message
