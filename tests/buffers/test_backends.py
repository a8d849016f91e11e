"""Composite operators beside the slow twin and kernels: bodies run operator by operator, and one that is compiled."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from checks import differences
from faces import OfOneSize
from mindspore import Tensor
from twin_pairs import RandomPair

import mindspore_replay
from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer
from mindspore_replay.columns import TYPES
from mindspore_replay.ops import composite, primitives

#: What composite operators serve: single rows.
COMPOSITE = [
    "fixed: plain, ordered",
    "fixed: plain, distinct",
    "fixed: used twice",
    "fixed: by the root",
    "fixed: by priority",
    "fixed: largest held",
]


@contextlib.contextmanager
def not_compiled() -> Iterator[None]:
    """Make the package run the bodies of graphs operator by operator: a fraction of the time to compile them."""

    def searchsorted_int32(order: Any, values: Any) -> Any:  # MindSpore's own fails outside graphs
        return ms.ops.cast(primitives.searchsorted(order, values), ms.int32)

    # Operators run in the thread that calls them: one by one they are several times as fast so.
    ms.set_context(pynative_synchronize=True)
    with (
        mock.patch.object(ms, "jit", lambda body: body),
        mock.patch.object(composite, "searchsorted_int32", searchsorted_int32),
    ):
        yield
    ms.set_context(pynative_synchronize=False)


@pytest.mark.parametrize("kind", COMPOSITE)
def test_random_operations_of_composite_operators(kind: str, tmp_path: Path):
    with not_compiled():
        pair = RandomPair(kind, mindspore_replay, 2, tmp_path, backend="composite")
        pair.run(45)
    assert pair.drawn > 1


def test_random_operations_of_composite_operators_that_are_compiled(tmp_path: Path):
    """`ways.py` compiles others."""
    RandomPair("fixed: plain, ordered", mindspore_replay, 2, tmp_path, face=OfOneSize, backend="composite").run(60)


BACKENDS = ("native", "composite")
SHAPES = [(), (3,), (1,), (2, 2), (), (5,), (17,), (), (1, 2), (3,), (), (4,)]


def random_rows(buffer: Any, n: int | None, generator: np.random.Generator) -> list[Tensor]:
    """Return rows of random bits, including NaN, infinities, negative zero and the limits of ints; one for ``None``.

    MindSpore's operators preserve every float16 but the payload of a NaN, so NaNs have the usual one.
    """
    rows = []
    for shape, dtype in zip(buffer.shapes, buffer.columns.numpy_types, strict=True):
        lead = () if n is None else (n,)
        bits = generator.bytes(int(np.prod((*lead, *shape), dtype=int)) * dtype.itemsize)
        values = np.frombuffer(bits, np.uint8) % 2 == 1 if dtype == np.bool_ else np.frombuffer(bits, dtype)
        values = np.where(np.isnan(values), dtype.type(np.nan), values) if dtype == np.float16 else values
        rows.append(Tensor(values.reshape((*lead, *shape)).copy()))
    return rows


def test_rows_of_every_dtype():
    """They are written, read and drawn as kernels do, to the last bit."""
    types, generator = [name for name in TYPES if name != "bfloat16"], np.random.default_rng(0)
    native, other = (ReplayBuffer(2, 5, SHAPES[: len(types)], types, seed=0, backend=backend) for backend in BACKENDS)
    with not_compiled():
        for n in (None, 4, 17, None, 3, None) * 3:
            rows = random_rows(native, n, generator)
            index = generator.integers(-1, 1, size=n or ())
            for buffer in (native, other):
                buffer.insert(rows)
            assert differences(native, other) == {}
            for read in (lambda buffer, index=index: buffer.get_item(index), lambda buffer: buffer.sample()):
                for one, same in zip(read(native), read(other), strict=True):
                    assert (one.dtype, one.shape) == (same.dtype, same.shape)
                    assert one.asnumpy().tobytes() == same.asnumpy().tobytes()


@pytest.mark.parametrize("capacity", [1, 7, 1000, 2**20])
def test_trees_of_every_size(capacity: int):
    """Weights whose sums round are set, some twice in a call, and drawn as kernels do, to the last bit."""
    tenths, huge = np.full(capacity, 0.1, np.float32), np.full(capacity, 1e-9, np.float32)
    tenths[1::3], huge[0], huge[capacity // 2 + 1 :: 2] = 0, 1e9, 0
    shrinking, generator = np.float32(10.0 ** -(np.arange(capacity) % 30)), np.random.default_rng(capacity)
    options: dict[str, Any] = {"alpha": 1.0, "epsilon": 0.0, "seed": 1}
    buffers = [
        PrioritizedReplayBuffer(24, capacity, [()], ["uint8"], **options, backend=backend) for backend in BACKENDS
    ]
    with not_compiled():
        for priorities in (tenths, huge, huge[::-1].copy(), shrinking):
            for buffer in buffers:
                buffer.insert([np.zeros(capacity, np.uint8)], priority=priorities)
            oldest = int(buffers[0].serials.asnumpy()[0]) - capacity
            for reach in (capacity, min(capacity, 40)):
                one, same = (buffer.sample() for buffer in buffers)
                assert [part.tolist() for part in one] == [part.tolist() for part in same]
                handles = oldest + generator.integers(0, reach, 24)
                values = np.where(
                    generator.random(24) < 0.3, 0, generator.random(24) * 10.0 ** generator.integers(-9, 9)
                )
                values[-1] = 0.5
                for buffer in buffers:
                    buffer.update_priorities(handles, values.astype(np.float32))
                assert differences(*buffers) == {}
