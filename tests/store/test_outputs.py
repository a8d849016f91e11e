"""Memory of samples: reused, but never while anything still refers to it."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_replay import ReplayBuffer
from mindspore_replay.mindspore_api import address, share
from mindspore_replay.store.base.random import ALL_ROWS
from mindspore_replay.store.kernels.call import NO_TENSORS, Array, Call, fixed
from mindspore_replay.store.kernels.invocations import Invocations
from mindspore_replay.store.kernels.library import TOO_FEW_ROWS, calls

pytestmark = pytest.mark.cpu_only("arrays that directly called kernels write to")

LARGE = (1 << 9, 1 << 10)  # of float32: 2 MB
FLOAT32 = np.dtype(np.float32)


def test_a_loop_stays_in_the_same_block():
    make = calls.Output(LARGE, FLOAT32)
    assert len({address(share(make())) for _ in range(20)}) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda array: setattr(array, "shape", (2, 4)),
        lambda array: setattr(array, "shape", (8, 1)),
        lambda array: setattr(array, "dtype", np.int32),
        lambda array: array.setflags(write=False),
        lambda array: array.resize(4, refcheck=False),
    ],
)
def test_an_array_that_was_changed_in_place_is_not_used_again(change: Callable[[np.ndarray], None]):
    make = calls.Output((8,), FLOAT32)
    array = make()
    change(array)
    del array
    assert make.kept() == 1
    made = make()
    assert (made.shape, made.dtype, made.flags.writeable, made.size, make.kept()) == ((8,), np.float32, True, 8, 1)


def test_each_output_has_blocks_of_its_own():
    first, second = calls.Output(LARGE, FLOAT32), calls.Output(LARGE, np.dtype(np.int32))
    one, other = first(), second()
    assert (one.shape, one.dtype, other.shape, other.dtype) == (LARGE, np.float32, LARGE, np.int32)
    assert not np.shares_memory(one, other)


def test_no_more_blocks_are_kept_than_drawn_ahead():
    make = calls.Output(LARGE, FLOAT32)
    held = [share(make()) for _ in range(10)]
    assert len(set(map(address, held))) == 10
    assert make.kept() == 4


def test_blocks_are_used_again_beside_batches_that_are_never_dropped():
    make = calls.Output(LARGE, FLOAT32)
    held = [make() for _ in range(4)]
    for _ in range(64):
        make()
    used = {make().ctypes.data for _ in range(10)}
    assert len(used) == 1
    assert not used & {array.ctypes.data for array in held}
    assert make.kept() == 4


def test_blocks_are_used_again_if_more_are_in_use_than_are_kept():
    make = calls.Output(LARGE, FLOAT32)
    held = [make() for _ in range(6)]
    fixed = {array.ctypes.data for array in held[:4]}
    for i in range(12):
        held[i % 6] = None
        held[i % 6] = make()
    assert len({array.ctypes.data for array in held} & fixed) == 4


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
    make = calls.Output(LARGE, FLOAT32)
    array = make()
    array[...] = 1
    tensor = share(array)
    del array
    fixed = keep(tensor)
    del tensor
    for _ in range(3):
        make()[...] = 2
    values = fixed[0] if isinstance(fixed, list) else fixed
    assert float(np.asarray(values if isinstance(values, np.ndarray) else values.asnumpy()).min()) == 1


def test_batches_keep_their_rows_while_others_are_drawn():
    buffer = ReplayBuffer(8, 64, [(200, 200)], ["float32"], seed=0, backend="native")
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
    buffer = ReplayBuffer(8, 8, [(200, 200)], ["float32"], seed=0, backend="native")
    buffer.insert([np.zeros((8, 200, 200), np.float32)])
    store = buffer._front.calls
    assert len({address(store.sample()[0]) for _ in range(20)}) == 1  # Tensors, each freed before the next
    for share_, kind in ((share, Tensor), (None, np.ndarray)):
        give = Invocations(store.schema, store.options, store._state, NO_TENSORS._replace(share=share_))["sample"]
        addresses = set()
        for _ in range(20):
            (given,) = give(0)
            assert type(given) is kind
            addresses.add(given.ctypes.data if kind is np.ndarray else address(given))
            del given
        assert len(addresses) == 1
    assert give(1) == ()
    for wrong in (-1, 2):
        with pytest.raises(IndexError, match=rf"^there are fewer outputs than {wrong}$"):
            give(wrong)


def sampling_of(buffer: Any) -> Call:
    """Return a kernel that draws rows, and fails if there are too few."""
    store, plan = buffer._front.calls, buffer.options.plan
    outputs = [Array(shape, dtype) for shape, dtype in plan.specs(store.schema)]
    given = {"plan": fixed(plan.options()), "sample_range": fixed(np.array(ALL_ROWS)), "outputs": outputs}
    return Call("sample", store.options.groups, store._state | given)


def test_a_call_that_fails_gives_its_status_and_keeps_no_memory():
    buffer = ReplayBuffer(8, 8, [(200, 200)], ["float32"], seed=0, backend="native")
    call, output = sampling_of(buffer), calls.Output((8, 200, 200), FLOAT32)
    outputs = ((call.place("outputs"), 0, output),)
    give = calls.Invocation(None, call.direct, (), outputs, False, share, None, None)
    assert [give.now(0) for _ in range(6)] == [TOO_FEW_ROWS] * 6
    assert output.kept() == 1


def test_objects_of_another_type_are_refused():
    call = sampling_of(ReplayBuffer(1, 1, [()], ["int8"], seed=0)).direct
    output = calls.Output((1,), np.dtype(np.int8))
    a_number: Any = (1, False, True, (), np.dtype(np.int8), False, None)
    for given, wanted in (
        ((None, output, (), ((0, 0, output),)), "a Call"),
        ((None, call, (), ((0, 0, 1),)), "an Output"),
        ((output, call, (), ((0, 0, output),)), "a Guard or None"),
    ):
        with pytest.raises(TypeError, match=rf"^an argument must be {wanted}$"):
            calls.Invocation(*given, False, None, None, None)
    for at in (99, -1):
        for inputs, outputs in (((), ((at, 0, output),)), (((at, a_number),), ())):
            with pytest.raises(IndexError, match=rf"^arguments {at} to {at + 1} of \d+$"):
                calls.Invocation(None, call, inputs, outputs, False, None, None, None)
    with pytest.raises(IndexError, match=r"^arguments 99 to 100 of \d+$"):
        calls.Insert(
            None, ((call, 99, *[-1] * 5),), None, (), a_number, a_number, (1, 3), 1, True, None, None, (), None
        )
    with pytest.raises(TypeError):
        calls.Invocation(None, call, ((0, ()),), (), False, None, None, None)


def test_items_of_rows_are_copied_from_arrays_that_fit():
    arena, where = np.arange(6, dtype=np.int32), np.array([[4, 2], [7, 3]])  # the second row begins at slot 1
    items = calls.Items((arena, np.zeros((6, 2), bool)))
    offsets, (tokens, flags) = items.packed(where)
    assert (offsets.tolist(), tokens.tolist(), flags.shape) == ([0, 2, 5], [4, 5, 1, 2, 3], (5, 2))
    lengths, (padded, _) = items.padded(where[:, None], -1)
    assert (lengths.tolist(), padded.tolist()) == ([[2], [3]], [[[4, 5, 0]], [[1, 2, 3]]])
    lengths, (cut, _) = items.padded(where, 1)
    assert (lengths.tolist(), cut.tolist()) == ([1, 1], [[4], [1]])
    items.place(0, where, np.full(5, 9, np.int32))
    assert arena.tolist() == [0, 9, 9, 9, 9, 9]
    for bad in (where.astype(np.int32), where[:, :1], where[::-1]):
        with pytest.raises(TypeError, match=r"references must be a plain array, int64 \[\.\.\., 2\]"):
            items.packed(bad)
    for bad in ([5, 2], [-1, 1], [0, -1]):
        with pytest.raises(RuntimeError, match="a reference is damaged"):
            items.padded(np.array([bad]), -1)
    with pytest.raises(ValueError, match="the items must be those of the rows"):
        items.place(0, where, np.zeros(4, np.int32))
    with pytest.raises(TypeError, match="arenas must be plain arrays of as many items"):
        calls.Items((arena, np.zeros(5)))
