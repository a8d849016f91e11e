"""Memory of samples: reused, but never while anything still refers to it."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_replay import ReplayBuffer
from mindspore_replay.mindspore_api import address, share
from mindspore_replay.store.library import TOO_FEW_ROWS
from mindspore_replay.store.outputs import makers

pytestmark = pytest.mark.cpu_only("arrays that directly called kernels write to")

LARGE = (1 << 9, 1 << 10)  # of float32: 2 MB
FLOAT32 = np.dtype(np.float32)


def test_a_loop_stays_in_the_same_block():
    (make,) = makers([(LARGE, FLOAT32)])
    assert len({address(share(make())) for _ in range(20)}) == 1


def test_small_outputs_are_new_each_time():
    (make,) = makers([((4,), FLOAT32)])
    first, second = share(make()), share(make())
    assert address(first) != address(second)


@pytest.mark.parametrize(("rows", "kept"), [(127, 0), (128, 1)])
def test_memory_is_kept_from_128_kilobytes_on(rows: int, kept: int):
    (make,) = makers([((rows, 256), FLOAT32)])
    make()
    assert len(getattr(make, "_blocks", [])) == kept


def test_each_output_has_blocks_of_its_own():
    first, second = makers([(LARGE, FLOAT32), (LARGE, np.dtype(np.int32))])
    one, other = first(), second()
    assert (one.shape, one.dtype, other.shape, other.dtype) == (LARGE, np.float32, LARGE, np.int32)
    assert not np.shares_memory(one, other)


def test_no_more_blocks_are_kept_than_drawn_ahead():
    (make,) = makers([(LARGE, FLOAT32)])
    held = [share(make()) for _ in range(10)]
    assert len(set(map(address, held))) == 10
    assert len(make._blocks) == 4  # type: ignore[attr-defined]


class Same(nn.Cell):
    """Returns its input."""

    def construct(self, x):
        return x


@pytest.mark.parametrize(
    "keep",
    [
        lambda x: x,
        lambda x: x.asnumpy(),
        lambda x: x[3:5],
        lambda x: x.asnumpy()[1],
        lambda x: x.reshape((-1,)),
        lambda x: ms.Parameter(x),
        lambda x: Same()(x),
        lambda x: [x],
    ],
    ids=["tensor", "array", "view", "part", "reshaped", "parameter", "graph", "list"],
)
def test_memory_that_something_refers_to_is_not_used_again(keep: Callable[[Tensor], Any]):
    (make,) = makers([(LARGE, FLOAT32)])
    tensor = share(make())
    make._blocks[0][...] = 1  # type: ignore[attr-defined]
    kept = keep(tensor)
    del tensor
    for _ in range(3):
        make()[...] = 2
    values = kept[0] if isinstance(kept, list) else kept
    assert float(np.asarray(values if isinstance(values, np.ndarray) else values.asnumpy()).min()) == 1


def test_batches_keep_their_rows_while_others_are_drawn():
    buffer = ReplayBuffer(sample_size=8, capacity=64, shapes=[(200, 200)], types=["float32"], seed=0, backend="native")
    for value in range(64):
        buffer.insert([np.full((200, 200), value, np.float32)])
    batches = [buffer.sample()[0] for _ in range(7)]
    drawn = [batch.asnumpy().copy() for batch in batches]
    for _ in range(9):
        buffer.sample()
    for batch, rows in zip(batches, drawn):
        np.testing.assert_array_equal(batch.asnumpy(), rows)
        assert all((row == row[0, 0]).all() for row in rows)


def test_a_call_gives_what_is_made_of_its_arrays_and_uses_their_memory_again():
    buffer = ReplayBuffer(sample_size=8, capacity=8, shapes=[(200, 200)], types=["float32"], seed=0, backend="native")
    buffer.insert([np.zeros((8, 200, 200), np.float32)])
    store = buffer._calls
    assert len({address(store.sample()[0]) for _ in range(20)}) == 1  # Tensors, each freed before the next
    call, _ = store._sampling
    (make,) = makers([((8, 200, 200), FLOAT32)])
    for share_, kind in ((share, Tensor), (None, np.ndarray)):
        give = call.giving("outputs", [make], share_)
        addresses = set()
        for _ in range(20):
            (given,) = give()
            assert type(given) is kind
            addresses.add(given.ctypes.data if kind is np.ndarray else address(given))
            del given
        assert len(addresses) == 1


def test_a_call_that_fails_gives_its_status_and_keeps_no_memory():
    buffer = ReplayBuffer(sample_size=8, capacity=8, shapes=[(200, 200)], types=["float32"], seed=0, backend="native")
    call, _ = buffer._calls._sampling
    (make,) = makers([((8, 200, 200), FLOAT32)])
    give = call.giving("outputs", [make], share)
    assert [give() for _ in range(6)] == [TOO_FEW_ROWS] * 6
    assert len(make._blocks) == 1  # type: ignore[attr-defined]
