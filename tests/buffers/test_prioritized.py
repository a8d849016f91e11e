"""PrioritizedReplayBuffer: forms of priorities and handles, strata, and what `test_twin.py` leaves out."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor
from model import stack

from mindspore_replay import PrioritizedReplayBuffer, host
from mindspore_replay.store.kernels.tree import build_weights

COLUMNS: dict[str, Any] = {"shapes": [(2,), ()], "types": ["float32", "int32"], "names": ["pair", "number"]}
#: Weights are the square roots of priorities; limits are never reached.
ROOTS: dict[str, Any] = {"alpha": 0.5, "beta": 0.5, "beta_steps": 4, "epsilon": 0.0}


def row(serial: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row with this serial number: its number in every field."""
    return np.array([serial, -serial], np.float32), np.array(serial, np.int32)


def rows(*serials: int) -> dict[str, np.ndarray]:
    return dict(zip(COLUMNS["names"], stack([row(serial) for serial in serials])))


def leaves(buffer: Any) -> list[float]:
    """Return the weight of each slot."""
    return buffer.state_dict()["weights"][: buffer.capacity].tolist()


def value(buffer: Any, name: str) -> Any:
    return buffer.state_dict()[name].tolist()


def by_hand(**options: Any) -> Any:
    """Return an empty buffer whose weights are priorities."""
    return PrioritizedReplayBuffer(2, 6, **COLUMNS, seed=0, **(ROOTS | {"alpha": 1.0} | options))


def test_the_largest_priority_of_the_rows_held_in_a_graph():
    """The priority is that after the operators before the insertion, which later ones do not change."""
    columns: dict[str, Any] = {"shapes": [()], "types": ["int32"], "default_priority": "largest_held"}
    buffer = PrioritizedReplayBuffer(2, 4, **columns)
    handles, other, values = Tensor([1, 2]), Tensor([0, 2]), Tensor([1.0, 2.0], ms.float32)
    buffer.insert([np.arange(3, dtype=np.int32)], priority=[3.0, 9.0, 4.0])

    @ms.jit
    def body(step):
        buffer.update_priorities(handles, values)
        buffer.insert([step])
        return buffer.update_priorities(other, values) + 0

    body(Tensor(5, ms.int32))
    assert buffer.priorities.asnumpy().tolist() == [1, 1, 2, 3]
    body(Tensor(6, ms.int32))  # evicts row 0
    assert buffer.priorities.asnumpy().tolist() == [3, 1, 2, 3]


def test_only_the_rows_stored_have_a_largest_priority():
    """A ring that is not full may begin at any slot, when the process died that evicted its oldest rows."""
    columns: dict[str, Any] = {"shapes": [()], "types": ["int32"], "default_priority": "largest_held", "seed": 0}
    buffer = PrioritizedReplayBuffer(2, 6, **columns, initial_priority=0.5)
    host_buffer = host.PrioritizedReplayBuffer(2, 6, **columns, alpha=1.0)
    host_buffer.insert([np.arange(9, dtype=np.int32)], priority=[1, 1, 1, 9, 8, 7, 2, 3, 1])
    whole = host_buffer.state_dict()
    step = Tensor(5, ms.int32)

    @ms.jit
    def body(step, version):
        buffer.insert([step])
        return buffer.insert([step], version=version, with_indices=True)

    for count, largest in ((6, 9), (3, 3), (1, 1), (0, 0.5)):
        slots = (np.arange(9 - count, 9)) % 6
        leaves = np.where(np.isin(np.arange(6), slots), whole["priorities"] + 1e-6, 0) ** 0.6
        own = {"head": np.int32((9 - count) % 6), "count": np.int32(count), "weights": build_weights(leaves)}
        own["clock"] = np.array([0, 9 - count, 0])
        for each in (buffer, host.PrioritizedReplayBuffer(2, 6, **columns, initial_priority=0.5)):
            each.load_state_dict(whole | own)
            each.insert([np.int32(5)])
            assert each.info([9])[0] == largest
            each.check_valid()
        if count != 3:  # MindSpore takes seconds to report a failure
            continue
        buffer.load_state_dict(whole | own)
        with pytest.raises(RuntimeError):
            body(step, Tensor(1)).asnumpy()
        ms.ms_memory_recycle()
        assert buffer.info(Tensor([9]))[0] == largest
        buffer.check_valid()
        assert value(buffer, "max_priority") == np.float32(largest)


# Draws.


def test_one_row_comes_from_each_stratum():
    """Draw i falls into the i-th of equal parts of the total weight; independent draws, even in order, do not."""
    n, generator = 2000, np.random.default_rng(5)
    weights = generator.integers(1, 5, n).astype(np.float64)
    buffer = host.PrioritizedReplayBuffer(n, n, [()], ["int32"], seed=0, **ROOTS)
    buffer.insert([np.arange(n, dtype=np.int32)], priority=(weights**2).astype(np.float32))
    ends = np.cumsum(weights)
    borders = np.arange(n + 1) * (ends[-1] / n)

    def are_stratified(rows: np.ndarray) -> bool:
        return bool(((ends[rows] > borders[:-1]) & (ends[rows] - weights[rows] < borders[1:])).all())

    assert all(are_stratified(buffer.sample()[0]) for _ in range(20))
    assert not are_stratified(np.sort(generator.choice(n, n, p=weights / ends[-1])))


# Sizes.


def test_the_default_rule_of_weights(backend: str):
    """(priority + 1e-6)^0.6, rounded to float32; a priority of zero can be drawn."""
    buffer = PrioritizedReplayBuffer(1, 3, **COLUMNS, seed=0, backend=backend)
    buffer.insert(rows(0, 1, 2), priority=np.array([0, 0.3, 7], np.float32))
    exact = [1e-6**0.6, (float(np.float32(0.3)) + 1e-6) ** 0.6, (7 + 1e-6) ** 0.6]
    assert leaves(buffer) == [float(np.float32(weight)) for weight in exact]
    assert buffer.beta.asnumpy().tolist() == [0.4]
    assert bool(buffer.can_sample())


def test_a_priority_for_one_row():
    """A scalar of any kind, or one element."""
    buffer = by_hand()
    given = [2, 2.5, np.float32(3), np.float64(3.5), np.array(4.0), ms.Tensor(4.5, ms.float32), [5.0], np.array([5.5])]
    for serial, priority in enumerate(given):
        buffer.insert(row(serial), priority=priority)
        assert leaves(buffer)[serial % 6] == 2 + serial / 2


def test_bfloat16_errors_are_priorities():
    """Networks with mixed precision produce them."""
    buffer = by_hand()
    buffer.insert(rows(0, 1, 2))

    @ms.jit
    def update(indices, priorities):
        return buffer.update_priorities(indices, priorities)

    handles = ms.Tensor([0, 1])
    assert int(update(handles, ms.Tensor([2.5, 3.0], ms.bfloat16))) == 0
    assert leaves(buffer)[:3] == [2.5, 3, 1]
    assert int(buffer.update_priorities(handles, ms.Tensor([4.5, 5.0], ms.bfloat16))) == 0
    assert leaves(buffer)[:3] == [4.5, 5, 1]


def test_beta_as_a_parameter():
    """The Tensor `beta`, and other Tensors with one number."""
    buffer = by_hand().insert(rows(0, 1, 2), priority=np.array([1, 1, 2], np.float32))
    for beta in (buffer.beta, ms.Tensor([0.5], ms.float64), ms.Tensor(0.5)):
        assert buffer.sample(beta=beta)[1].asnumpy().tolist() == [1.0, float(np.float32(0.5**0.5))]
        buffer.load_state_dict(buffer.state_dict() | {"beta": np.array([0.5])})


def test_handles_in_any_form():
    """Lists, scalars, NumPy arrays and Tensors of both kinds of ints."""
    buffer = by_hand()
    buffer.insert(rows(0, 1, 2))
    forms = [1, [1], np.int32(1), np.array([1]), np.array([1], np.int32), ms.Tensor(1), ms.Tensor([1], ms.int32)]
    for number, handle in enumerate(forms, 2):
        invalid = buffer.update_priorities(handle, number)
        assert (invalid.dtype, invalid.shape, int(invalid), leaves(buffer)[1]) == (ms.int32, (), 0, number)
        assert np.ravel(buffer.info(handle)[0].asnumpy()).tolist() == [number]
    assert int(buffer.update_priorities([0, 2, 5], [7.0, 8.0, 9.0])) == 1
    assert leaves(buffer)[:3:2] == [7, 8]
    assert int(buffer.delete(np.array(2, np.int64))) == 1
    assert leaves(buffer)[2] == 0


def test_priorities_in_any_form():
    """Priorities that a kernel reads in place, and those that are converted first."""
    buffer = by_hand()
    buffer.insert(rows(0, 1, 2))
    numbers = np.arange(6, dtype=np.float32)
    tensor = ms.Tensor(numbers)
    handles = np.array([1, 5, 0, 5, 2, 5])
    forms: list[tuple[Any, Any, list[float]]] = [
        (np.array([0, 2, 1]), numbers[:3].copy(), [0, 2, 1]),
        (ms.Tensor([2, 0, 1]), ms.Tensor([1.5, 2.5, 3.5], ms.float32), [2.5, 3.5, 1.5]),
        (ms.Tensor([0, 1, 2]), tensor[2:5], [2, 3, 4]),  # part of a Tensor's memory
        (ms.Tensor(handles)[::2], tensor[::2], [2, 0, 4]),  # with gaps
        (handles[::2], numbers[::-2], [3, 5, 1]),
        (ms.Tensor([0, 1, 2], ms.int32), ms.Tensor([7, 8, 9]), [7, 8, 9]),
        (ms.Tensor([0, 1, 2]), ms.Tensor([5.5], ms.float32)[0], [5.5, 5.5, 5.5]),
        (ms.Tensor([0, 1, 2]), (tensor * 2 + 1)[:3], [1, 3, 5]),
    ]
    for given, priorities, expected in forms:
        assert int(buffer.update_priorities(given, priorities)) == 0
        assert leaves(buffer)[:3] == expected


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_a_subnormal_priority_is_stored_as_0(backend: str):
    least = float(np.finfo(np.float32).tiny)
    buffer = PrioritizedReplayBuffer(1, 4, [()], ["int32"], epsilon=0.0, alpha=1.0, seed=0, backend=backend)
    buffer.insert([[1, 2, 3]], priority=[1e-40, 1.0, least])
    stored = [buffer.info([0, 1, 2])[0].asnumpy().view(np.uint32).tolist()]
    buffer.update_priorities([1, 2], [least, np.float32(1e-45)])
    stored.append(buffer.info([0, 1, 2])[0].asnumpy().view(np.uint32).tolist())
    bits = int(np.float32(least).view(np.uint32))
    assert stored == [[0, int(np.float32(1).view(np.uint32)), bits], [0, bits, 0]]
