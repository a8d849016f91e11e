"""Kernels that fail in a graph: the error names kernel, status and the way out, and docs/mindspore.md has a table."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import make_buffer, row
from mindspore import Tensor, ops
from places import ROOT

import mindspore_replay
from mindspore_replay import EpisodeReplayBuffer, PrioritizedReplayBuffer, ReplayQueue, SequenceReplayBuffer, attach
from mindspore_replay.store.kernels import library

SOURCES = Path(mindspore_replay.__file__).parent / "csrc"
MESSAGE = re.compile(r"The kernel '(\w+)' failed with status (\d+)")

#: Statuses that a kernel may return for its data, besides those of its arguments.
STATUSES = {
    "kTooFewRows": 2,
    "kIndexOutOfRange": 3,
    "kBadWeight": 4,
    "kTooLong": 5,
    "kOpenEpisode": 9,
    "kFull": 10,
    "kBadVersion": 11,
}


def table() -> dict[tuple[str, int], str]:
    """Return the meaning of each kernel and status in the documentation."""
    lines = (ROOT / "docs" / "mindspore.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| native |")]
    return {(kernel, int(status)): cells[3].strip() for cells in rows for kernel, status in MESSAGE.findall(cells[2])}


def parts_of(path: Path) -> dict[str, str]:
    """Return the text of each kernel, function and struct of a source, by name."""
    found = {}
    for part in re.split(r"^};?$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        kernel = re.search(r"^MINDSPORE_REPLAY_KERNEL\((\w+)\) {(.*)", part, re.DOTALL | re.MULTILINE)
        other = re.search(r"^(?:struct (\w+)|(?!using|constexpr)[a-zA-Z].*?\b(\w+)\()", part, re.MULTILINE)
        if kernel:
            found[f"kernel {kernel[1]}"] = kernel[2]
        elif other:
            found[other[1] or other[2]] = part
    return found


def reachable(name: str, parts: dict[str, str], seen: set[str]) -> set[int]:
    """Return the statuses in a part and in all parts that it mentions."""
    seen.add(name)
    words = set(re.findall(r"\w+", parts[name]))
    found = {number for status, number in STATUSES.items() if status in words}
    for other in sorted(words & set(parts) - seen):
        found |= reachable(other, parts, seen)
    return found


def failures_of_kernels() -> set[tuple[str, int]]:
    """Return the statuses of kernels by their sources and draws.h, the only header that returns one."""
    giving = [
        path.name for path in SOURCES.rglob("*.h") if re.search(rf"return ({'|'.join(STATUSES)});", path.read_text())
    ]
    assert giving == ["draws.h"]
    found = set()
    for path in SOURCES.glob("cpu/*kernels.cc"):
        kernels, draws = parts_of(path), parts_of(SOURCES / "core" / "draws.h")
        named = [name for name in kernels if name.startswith("kernel ")]
        assert named, path.name
        for name in named:
            kernel = name.replace("kernel ", "replay_")
            found |= {(kernel, status) for status in reachable(name, draws | kernels, set())}
    return found


def test_each_kernel_is_looked_at():
    names = [name for path in SOURCES.glob("cpu/*kernels.cc") for name in parts_of(path)]
    found = {name.replace("kernel ", "replay_") for name in names if name.startswith("kernel ")}
    kernels = {operator.kernel for operator in library.table("CPU")[1].values()}
    assert found == {kernel for kernel in kernels if hasattr(library.library_for("CPU").handle, kernel)}


def test_the_table_has_every_failure_of_a_kernel():
    # Each kernel that works on a folder may find that its disk fails, or that it was deleted; for lengths see
    # `test_lengths_in_graphs.py`.
    assert set(STATUSES.values()) == set(library.FAILURES) - {library.NO_DISK, library.BAD_LENGTH, library.NO_FOLDER}
    assert set(table()) == failures_of_kernels()


def test_kernels_and_python_have_the_same_words():
    text = re.sub(r'"\s+"', "", (SOURCES / "core" / "status.h").read_text(encoding="utf-8"))
    words = {str(library.KernelError("it", status)).partition(": ")[2][:-1] for status in (*library.FAILURES, 8)}
    assert set(re.findall(r'return "(.*)";', text)) == words


def columns() -> tuple[Any, ...]:
    return 2, 6, [(2,), ()], [ms.float32, ms.int32]


def prioritized() -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(*columns(), backend="native").insert(row(1)).insert(row(2))


def episodes() -> EpisodeReplayBuffer:
    return (
        EpisodeReplayBuffer(*columns(), max_episode_length=2, names=["x", "y"], backend="native")
        .insert(row(1))
        .insert(row(2))
    )


def full_queue() -> ReplayQueue:
    queue = ReplayQueue(*columns(), backend="native")
    for number in range(queue.capacity):
        queue.insert(row(number))
    return queue


#: The folders of buffers, which last as long as these.
FOLDERS: list[Any] = []


def in_folder() -> SequenceReplayBuffer:
    """Return a buffer whose newest rows are an open episode of another process."""
    FOLDERS.append(tempfile.TemporaryDirectory())
    buffer = SequenceReplayBuffer(*columns(), sequence_length=1, storage=f"{FOLDERS[-1].name}/rows")
    attach(f"{FOLDERS[-1].name}/rows").insert(row(1))
    return buffer


def draw(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.sample()


def draw_with_beta(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.sample(beta=value)


def put(buffer: Any) -> Callable[[Tensor], Any]:
    rows = row(3)
    return lambda value: buffer.insert(rows, priority=value)


def put_without(buffer: Any) -> Callable[[Tensor], Any]:
    rows = row(3)
    return lambda value: buffer.insert(rows)


def put_made(buffer: Any) -> Callable[[Tensor], Any]:
    rows = row(3)
    return lambda value: buffer.insert(rows, version=ops.cast(value, ms.int64))


def update(buffer: Any) -> Callable[[Tensor], Any]:
    handles = Tensor([0])
    return lambda value: buffer.update_priorities(handles, value)


def read(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.get_item(2)


def group(buffer: Any) -> Callable[[Tensor], Any]:
    return lambda value: buffer.sample_groups("y", 2, 2)


#: By name: kernel and status, the buffer, the operation in a graph, and its argument.
CASES: dict[str, tuple[tuple[str, int], Callable[[], Any], Callable[[Any], Callable[[Tensor], Any]], float]] = {
    "uniform": (("replay_sample", 2), lambda: make_buffer("native"), draw, 0.0),
    "position": (("replay_read", 3), lambda: make_buffer("native"), read, 0.0),
    "beta": (("replay_sample", 4), prioritized, draw_with_beta, 1.5),
    "groups": (("replay_sample_groups", 2), episodes, group, 0.0),
    "episode": (("replay_insert", 5), episodes, put_without, 0.0),
    "open episode": (("replay_insert", 9), in_folder, put_without, 0.0),
    "full queue": (("replay_insert", 10), full_queue, put_without, 0.0),
    "version": (("replay_insert", 11), prioritized, put_made, 1.0),
    "priority": (("replay_insert", 4), prioritized, put, -1.0),
    "other priority": (("replay_update_priorities", 4), prioritized, update, np.nan),
}


def test_every_failure_of_a_buffer_is_provoked():
    assert {failure for failure, *_ in CASES.values()} == set(table())


def finished(result: Any) -> list[np.ndarray]:
    """Read the result of a graph: a call may return before its kernels are done."""
    return [part.asnumpy() for part in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.cpu_only("on a GPU the next call reports the failure of a kernel")
@pytest.mark.parametrize("case", CASES)
def test_a_failure_in_a_graph_is_in_the_table(case: str):
    failure, make, body, value = CASES[case]
    buffer = make()
    before = buffer.state_dict()
    call = ms.jit(body(buffer))
    with pytest.raises(RuntimeError) as caught:
        finished(call(Tensor(value, ms.float32)))
    first = str(caught.value).splitlines()[0]
    assert str(library.KernelError(*failure)) in first
    assert ("once can_sample() is True" in first) == (failure == ("replay_sample", library.TOO_FEW_ROWS))
    assert "mindspore.ms_memory_recycle()" in first
    assert table()[failure]
    for name, array in buffer.state_dict().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    assert buffer.reset().size() == 0  # the kernel let go of its lock


def test_an_error_of_a_kernel_that_python_calls_has_words():
    message = "The kernel 'replay_sample' failed with status 2: fewer rows are eligible than a sample needs."
    assert str(library.KernelError("replay_sample", library.TOO_FEW_ROWS)) == message
