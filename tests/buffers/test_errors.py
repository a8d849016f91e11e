"""Operators that fail in a graph, and what is close to misuse and right; all else is in the tables of misuse."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import same_states
from faces import InGraph
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

X = np.arange(4, dtype=np.float32)
PAIR = [np.stack([X, X + 1]), np.array([1, 2], np.int32)]
COLUMNS: dict[str, Any] = {"shapes": [(4,), ()], "types": [ms.float32, "int32"], "names": ["x", "y"], "seed": 0}


def test_sizes_take_any_int():
    buffer = ReplayBuffer(np.uint8(3), np.int64(6), **COLUMNS)
    assert (type(buffer.capacity), type(buffer.sample_size)) == (int, int)
    assert PrioritizedReplayBuffer(3, 6, **COLUMNS, epsilon=1e-37).spec.priorities.epsilon == 1e-37
    assert ReplayBuffer(32, 32, [()], ["int32"], replace=False).sample_size == 32


def test_errors_speak_of_the_class():
    class MyBuffer(ReplayBuffer):
        pass

    with pytest.raises(ValueError, match=r"^For 'MyBuffer', 'capacity' must be in"):
        MyBuffer(1, 0, [()], ["int32"])


def test_arguments_of_a_class_of_the_users():
    class Own(ReplayBuffer):
        def __init__(self, extra: int, **others: Any) -> None:
            super().__init__(**others)
            self.extra = extra

    sizes = {"sample_size": 3, "capacity": 6, **COLUMNS}
    assert Own(3, **sizes).extra == 3
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'ordred'"):
        Own(3, **sizes, ordred=True)


def test_ranges_of_too_many_rows_and_huge_bounds_are_clamped():
    buffer = ReplayBuffer(3, 6, **COLUMNS).insert(PAIR)
    for bounds, numbers in (((0, 100), {1, 2}), ((-(2**80), 2**80), {1, 2}), ((1, None), {2}), ((-1, None), {2})):
        assert set(buffer.sample(bounds)[1].asnumpy().tolist()) <= numbers


def test_handles_far_outside_are_dead():
    buffer = PrioritizedReplayBuffer(3, 6, **COLUMNS).insert(PAIR).insert(PAIR)
    far = [2**62, -(2**63), 2**63 - 1, -1, 4]
    assert int(buffer.update_priorities(far, 5.0)) == 5
    assert int(buffer.delete(far)) == 0
    assert [part.asnumpy().tolist() for part in buffer.info(far)] == [[0] * 5, [-1] * 5, [-1] * 5]


def test_the_clock_goes_to_its_end():
    buffer = ReplayBuffer(3, 6, **COLUMNS, max_staleness=3).insert(PAIR).advance(2**62 - 1).advance(1)
    assert buffer.clock.asnumpy().tolist() == [2**62, 2, 0]
    buffer.check_valid()


def test_a_composite_operator_fails_in_a_graph():
    """MindSpore takes three seconds to report; of kernels `test_graph_failures.py` has all failures."""
    native, buffer = (PrioritizedReplayBuffer(3, 6, **COLUMNS, backend=backend) for backend in ("native", "composite"))
    buffer.load_state_dict(native.insert(PAIR).insert(PAIR).state_dict())
    graph, before = InGraph(buffer), buffer.state_dict()
    with pytest.raises(RuntimeError, match="assert failed"):
        graph.get_item(4)
    assert same_states(before, buffer)
    buffer.check_valid()
    # Other calls of the buffer still work, from Python and in other graphs.
    buffer.insert(PAIR).insert(PAIR)
    assert graph.status()[2] is True
    assert int(buffer.get_item(Tensor(-1))[1]) == 2
    assert buffer.sample()[0].shape == (3,)
