"""Memory of samples: used again, and never while anything still refers to it."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_replay import ReplayBuffer
from mindspore_replay.ops.native import address
from mindspore_replay.ops.outputs import Outputs, share

pytestmark = pytest.mark.host_memory("what kernels that are called directly write to")

LARGE = (1 << 9, 1 << 10)  # of float32: 2 MB


def test_a_loop_stays_in_the_same_block():
    outputs = Outputs([(LARGE, np.float32)])
    assert len({address(share(outputs.make()[0])) for _ in range(20)}) == 1


def test_small_outputs_are_new_each_time():
    outputs = Outputs([((4,), np.float32)])
    assert outputs._blocks == [None]
    first, second = share(outputs.make()[0]), share(outputs.make()[0])
    assert address(first) != address(second)


def test_no_more_blocks_are_kept_than_drawn_ahead():
    outputs = Outputs([(LARGE, np.float32)])
    held = [share(outputs.make()[0]) for _ in range(10)]
    assert len(set(map(address, held))) == 10
    assert len(outputs._blocks[0]) == 4  # type: ignore[arg-type]


class Same(nn.Cell):
    """Gives back what it is given."""

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
    outputs = Outputs([(LARGE, np.float32)])
    tensor = share(outputs.make()[0])
    assert outputs._blocks[0] is not None
    outputs._blocks[0][0][...] = 1
    kept = keep(tensor)
    del tensor
    for _ in range(3):
        outputs.make()[0][...] = 2
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
