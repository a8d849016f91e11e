"""Large columns: a whole dataset at once, slots beyond 2^31 bytes and elements, and writes that copy nothing else.

Memory of a column comes from the system as rows are written, so that columns of gigabytes cost little here.
"""

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_rows, cursors
from faces import Face, InGraph
from mindspore import Parameter, Tensor, nn

from mindspore_replay import ReplayBuffer
from mindspore_replay.ops.eager import wait_for_work

pytestmark = pytest.mark.cpu_only("measures memory of the host")


@pytest.fixture(autouse=True)
def _give_back_memory() -> Iterator[None]:
    """Collect garbage: Cells refer to themselves, and their gigabytes would stay."""
    yield
    gc.collect()


def test_a_dataset_of_a_million_rows(backend: str):
    n = 1_000_000
    generator = np.random.default_rng(0)
    columns = [generator.random(shape, np.float32) for shape in ((n, 3), (n,))]
    buffer = ReplayBuffer(256, n, [(3,), ()], [ms.float32] * 2, seed=0, backend=backend)
    buffer.insert(columns)
    assert cursors(buffer) == (0, n, n, 0)
    assert_rows(buffer.buffer, columns)
    buffer.insert([column[:3] for column in columns])
    assert cursors(buffer) == (3, n, n + 3, 0)
    assert_rows(buffer.get_item([0, n - 1]), [column[[3, 2]] for column in columns])


def put_cursors(buffer: ReplayBuffer, head: int, count: int) -> None:
    wait_for_work()
    buffer.head.asnumpy()[...] = head
    buffer.count.asnumpy()[...] = count
    buffer.serials.asnumpy()[...] = [head + count, 0]
    buffer.check_valid()


WIDTHS = {
    "2^31 bytes": (2**21 + 5, 1024, np.uint8),  # also as many elements
    "2^31 elements of 4 bytes": (2**21 + 5, 1024, np.float32),
    "2^31 - 1 rows": (2**31 - 1, None, np.uint8),
}


#: Composite operators are the same in every call, and make no difference between bytes and elements.
PLACES = [
    *[("native", case, "eager") for case in WIDTHS],
    *[
        (backend, case, call)
        for case in list(WIDTHS)[1:]
        for backend, call in (("native", "compiled"), *[("composite", "eager")] * (case == "2^31 elements of 4 bytes"))
    ],
]


@pytest.mark.parametrize(("backend", "case", "call"), PLACES)
def test_rows_at_the_end_of_a_large_column(backend: str, case: str, call: str):
    """Check that rows across the ring's end land in the last slots and the first, and are read back from there."""
    capacity, width, dtype = WIDTHS[case]
    shape = () if width is None else (width,)
    buffer = ReplayBuffer(4, capacity, [shape], [np.dtype(dtype).name], names=["x"], seed=0, backend=backend)
    face = (InGraph if call == "compiled" else Face)(buffer)
    put_cursors(buffer, capacity - 3, capacity)
    batch = np.arange(1, 6, dtype=dtype).reshape(5, *[1] * len(shape)) * np.ones(shape, dtype)
    face.insert({"x": batch})
    assert cursors(buffer)[:2] == (2, capacity)
    assert_rows(face.get_item([-5, -4, -3, -2, -1]), [batch])
    column = buffer.buffer[0].asnumpy()
    np.testing.assert_array_equal(column[[capacity - 3, capacity - 2, capacity - 1, 0, 1]], batch)
    assert not column[[2, 3, capacity // 2, capacity - 5, capacity - 4]].any()
    drawn = face.sample(sample_range=(-4, None))["x"]
    assert set(drawn.reshape(4, -1)[:, 0].tolist()) <= {2, 3, 4, 5}
    drawn = face.sample(sample_range=(-5, -1))["x"]
    assert set(drawn.reshape(4, -1)[:, -1].tolist()) <= {1, 2, 3, 4}


# Memory that a call touches: Linux marks pages as referenced, and can clear the marks.
CLEAR, MAPS = Path("/proc/self/clear_refs"), Path("/proc/self/smaps")


def forget_references() -> None:
    CLEAR.write_text("1")


def referenced_kilobytes(array: np.ndarray) -> int:
    """Return the kilobytes touched since `forget_references` in the mappings that hold an array."""
    first, last = array.ctypes.data, array.ctypes.data + array.nbytes - 1
    total, inside = 0, False
    for line in MAPS.read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            low, high = (int(bound, 16) for bound in bounds.groups())
            inside = low <= last and high > first
        elif inside and line.startswith("Referenced:"):
            total += int(line.split()[1])
    return total


def can_forget() -> bool:
    try:
        forget_references()
    except OSError:
        return False
    return MAPS.exists()


needs_marks = pytest.mark.skipif(not can_forget(), reason="/proc/self/clear_refs cannot be written here")

ROW = (1024,)
LARGE = 2**18  # rows: a column of 256 MiB
LIMIT = 3 * 2048 + 512  # kilobytes: the pages of a few rows, should the system give pages of 2 MiB


def touched(insert: Callable[[np.ndarray], Any], column: Callable[[], np.ndarray]) -> int:
    """Return the kilobytes of a column that one call touches, after two that compile and warm up."""
    row = np.ones(ROW, np.uint8)
    for _ in range(2):
        insert(row)
    wait_for_work()
    forget_references()
    insert(row)
    wait_for_work()
    return referenced_kilobytes(column())


@needs_marks
@pytest.mark.parametrize(("backend", "call"), [("native", "eager"), ("native", "compiled"), ("composite", "eager")])
def test_a_write_touches_its_rows_alone(backend: str, call: str):
    """Check that one row into 256 MiB touches a few pages, with every page of the column in use."""
    buffer = ReplayBuffer(4, LARGE, [ROW], ["uint8"], names=["x"], seed=0, backend=backend)
    buffer.buffer[0].asnumpy()[:: 4096 // ROW[0]] = 1  # touches each page
    face = (InGraph if call == "compiled" else Face)(buffer)
    assert touched(lambda row: face.insert({"x": row}), buffer.buffer[0].asnumpy) <= LIMIT
    assert cursors(buffer)[1] == 3


class Copying(nn.Cell):
    """A ring that copies the column at each write."""

    def __init__(self) -> None:
        super().__init__()
        self.column = Parameter(Tensor.from_numpy(np.zeros((LARGE, *ROW), np.uint8)), requires_grad=False)

    @ms.jit
    def construct(self, row):
        self.column[3] = row
        return row.sum()


@needs_marks
def test_the_check_rejects_a_write_that_copies_the_column():
    ring = Copying()
    assert touched(lambda row: ring(Tensor(row)).asnumpy(), ring.column.asnumpy) > 10 * LIMIT
