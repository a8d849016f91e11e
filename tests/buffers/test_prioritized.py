"""PrioritizedReplayBuffer's behaviour by hand, in each way to call. `test_twin.py` has random operations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import FIXED
from checks import assert_rows
from flat import flat
from kinds import KINDS, ends_every
from mindspore import Tensor
from model import stack
from twin_kinds import Kind
from twin_pairs import RandomPair

import mindspore_replay
from mindspore_replay import PrioritizedReplayBuffer, host
from mindspore_replay.store.kernels.tree import build_weights

Make = Callable[..., Any]

COLUMNS: dict[str, Any] = {"shapes": [(2,), ()], "types": ["float32", "int32"], "names": ["pair", "number"]}
#: Weights are the square roots of priorities; limits are never reached.
ROOTS: dict[str, Any] = {"alpha": 0.5, "beta": 0.5, "beta_steps": 4, "epsilon": 0.0}
USUAL = ROOTS | {"max_use": 6, "max_staleness": 5}


@pytest.fixture
def face(make: Make) -> Any:
    """Return an empty buffer, called in each way."""
    return make("PrioritizedReplayBuffer", 2, 6, **COLUMNS, **USUAL)


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


def drawn(face: Any, **given: Any) -> tuple[list[int], list[float]]:
    """Return handles and importance weights of a sample; check that handles and rows belong together."""
    batch = face.sample(**given)
    handles, importance = batch["indices"], batch["weights"]
    assert (handles.dtype, importance.dtype) == (np.int64, np.float32)
    assert_rows([batch[name] for name in COLUMNS["names"]], rows(*handles.tolist()).values())
    return handles.tolist(), importance.tolist()


def by_hand(**options: Any) -> Any:
    """Return an empty buffer whose weights are priorities."""
    return PrioritizedReplayBuffer(2, 6, **COLUMNS, seed=0, **(ROOTS | {"alpha": 1.0} | options))


def test_priorities_at_insertion(face: Any):
    """One for all rows, one for each, or none: the default is the largest so far, initially 1."""
    face.insert(rows(0, 1))
    assert (leaves(face.buffer), value(face.buffer, "max_priority")) == ([1, 1, 0, 0, 0, 0], 1)
    face.insert(rows(2, 3, 4), priority=np.array([4, 16, 0.25], np.float32))
    assert (leaves(face.buffer), value(face.buffer, "max_priority")) == ([1, 1, 2, 4, 0.5, 0], 16)
    face.insert(rows(5, 6), priority=9.0)
    assert (leaves(face.buffer), value(face.buffer, "max_priority")) == ([3, 1, 2, 4, 0.5, 3], 16)
    face.insert(rows(7, 8))
    assert leaves(face.buffer) == [3, 4, 4, 4, 0.5, 3]
    assert value(face.buffer, "priorities") == [9, 16, 16, 16, 0.25, 9]
    face.buffer.check_valid()


@pytest.mark.cpu_only("buffers of `host` lie in the memory of the process")
@pytest.mark.parametrize("module", [mindspore_replay, host], ids=lambda module: module.__name__)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "priorit" in kind])
def test_the_first_priority(kind: str, module: Any):
    """New rows get it until a larger one was given, and again after `reset`."""
    cls, options = getattr(module, KINDS[kind].cls.__name__), KINDS[kind].options
    buffer = cls(2, 12, **flat(**COLUMNS, **options, initial_priority=0.1))
    assert "initial_priority=0.1" in repr(buffer)

    def given(priority: float | None) -> list[float]:
        handles = buffer.insert(rows(0, 1), priority=priority, with_indices=True, **ends_every(buffer, 2, 2))
        return np.asarray(buffer.info(handles)[0]).tolist()  # type: ignore[no-any-return]

    first, less, more = np.array([0.1, 0.05, 0.5], np.float32).tolist()
    for _ in range(2):
        assert [given(None), given(less), given(None)] == [[first] * 2, [less] * 2, [first] * 2]
        buffer.check_valid()
        assert [given(more), given(None)] == [[more] * 2] * 2
        buffer.check_valid()
        state = buffer.reset().state_dict()
    with pytest.raises(ValueError, match=r"'max_priority' is 0\.1.*, and must be finite and at least 0\.2"):
        cls(2, 12, **flat(**COLUMNS, **options, initial_priority=0.2)).load_state_dict(state)


@pytest.mark.cpu_only("buffers of `host` lie in the memory of the process")
@pytest.mark.parametrize("module", [mindspore_replay, host], ids=lambda module: module.__name__)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "priorit" in kind])
def test_the_largest_priority_of_the_rows_held(kind: str, module: Any):
    """An outlier counts until its row is updated, removed or overwritten; with no rows the first priority counts."""
    cls, options = getattr(module, KINDS[kind].cls.__name__), KINDS[kind].options
    buffer = cls(2, 12, **flat(**COLUMNS, **options, initial_priority=0.25, default_priority="largest_held"))

    def given(priority: float | None) -> float:
        handles = buffer.insert(rows(0, 1), priority=priority, with_indices=True, **ends_every(buffer, 2, 2))
        buffer.check_valid()
        (first, second) = np.asarray(buffer.info(handles)[0]).tolist()
        assert first == second
        return float(first)

    assert [given(each) for each in (None, 8.0, None, 0.5)] == [0.25, 8, 8, 0.5]
    buffer.update_priorities(list(range(8)), [1, 1, 4, 2, 1, 1, 0.5, 0.5])  # of episodes, only those of their starts
    left = float(np.asarray(buffer.info(list(range(8)))[0]).max())
    assert left in (4, 8)
    assert given(None) == left
    buffer.delete(list(range(10)))
    assert [given(each) for each in (None, 0.125, None)] == [0.25, 0.125, 0.25]
    for _ in range(6):  # all rows are overwritten
        given(0.125)
    assert given(None) == 0.125
    state = buffer.reset().state_dict()
    assert (float(state["max_priority"]), given(None)) == (0.25, 0.25)


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
        buffer.load_state_dict(whole | own)
        with pytest.raises(RuntimeError):
            body(step, Tensor(1)).asnumpy()
        ms.ms_memory_recycle()
        assert buffer.info(Tensor([9]))[0] == largest
        buffer.check_valid()
        assert value(buffer, "max_priority") == np.float32(largest)


def test_updates_raise_the_largest_priority(face: Any):
    """Only those of valid rows do, and it never falls."""
    face.insert(rows(0, 1, 2), priority=np.array([1, 1, 1], np.float32))
    assert face.update_priorities([0, 1, 7, -1], np.float32([0.25, 4, 100, 100])) == 2
    assert (leaves(face.buffer)[:3], value(face.buffer, "max_priority")) == ([0.5, 2, 1], 4)
    assert face.update_priorities([0, 1, 2, 2], np.float32([0.0, 0.0, 0.25, 1.0])) == 0
    assert (leaves(face.buffer)[:3], value(face.buffer, "max_priority")) == ([0, 0, 1], 4)
    face.insert(rows(3, 4))
    assert leaves(face.buffer)[:5] == [0, 0, 1, 2, 2]


def test_importance_weights_by_hand(face: Any):
    """With weights 1, 1 and 2 the second draw is always the last row, and the first one of the others.

    Beta is 0.5, 0.625, 0.75, 0.875 and then 1. A given beta applies to its call alone, which advances beta as usual.
    """
    face.insert(rows(0, 1, 2), priority=np.array([1, 1, 4], np.float32))
    for given, beta, after in [
        *((None, 0.5, 0.625), (None, 0.625, 0.75), (0.0, 0.0, 0.875), (1.0, 1.0, 1.0), (0.25, 0.25, 1.0)),
        (None, 1.0, 1.0),
    ]:
        handles, importance = drawn(face, **({} if given is None else {"beta": given}))
        assert (handles[0] in (0, 1), handles[1]) == (True, 2)
        assert importance == [1.0, float(np.float32(0.5**beta))]
        assert value(face.buffer, "beta") == [after]


def test_importance_weights_measured_by_the_buffer(make: Make):
    """With weights 1, 3 and 4 the smallest is 1, whichever row is drawn first; a row of priority 0 does not count."""
    face = make("PrioritizedReplayBuffer", 2, 6, **COLUMNS, **ROOTS, normalize="buffer")
    face.insert(rows(0, 1, 2), priority=np.array([1, 9, 16], np.float32))
    face.insert(rows(3, 4, 5), priority=np.array([0, 0, 0], np.float32))
    seen = set()
    for _ in range(12):
        handles, importance = drawn(face, beta=0.5)
        first = {0: 1.0, 1: float(np.float32((1 / 3) ** 0.5))}[handles[0]]
        assert (handles[1], importance) == (2, [first, 0.5])
        seen.add(handles[0])
    assert seen == {0, 1}


def test_handles_stay_dead_over_a_reset(face: Any):
    face.insert(rows(0, 1, 2), priority=np.array([4, 4, 4], np.float32))
    drawn(face)
    face.advance(5)
    face.reset()
    state = face.buffer.state_dict()
    assert (state["serials"].tolist(), state["random_state"][1], state["beta"].tolist()) == ([3, 3], 2, [0.5])
    assert (state["max_priority"], state["clock"].tolist(), leaves(face.buffer)) == (1, [0, 3, 0], [0] * 6)
    assert face.status() == (0, False, False)
    face.insert(rows(3, 4))
    assert face.update_priorities([0, 1, 2, 3], np.float32([9.0, 9.0, 9.0, 16.0])) == 3
    assert (leaves(face.buffer), face.info([0, 3, 4, 5])) == (
        [4, 1, 0, 0, 0, 0],
        [(0, -1, -1), (16, 0, 0), (1, 0, 0), (0, -1, -1)],
    )
    assert set(drawn(face)[0]) <= {3, 4}


def test_a_batch_beyond_the_capacity():
    """The newest rows stay, with the priorities that were given for them; the largest counts though its row is gone."""
    buffer = by_hand().insert(rows(*range(9)), priority=np.array([10, 9, 8, 7, 6, 5, 4, 3, 2], np.float32))
    assert leaves(buffer) == [4, 3, 2, 7, 6, 5]  # rows 3 to 8; the oldest is in slot 3
    assert (value(buffer, "serials"), value(buffer, "max_priority")) == ([9, 0], 10)
    assert buffer.update_priorities([2, 3, 8], [1.0, 8.0, 1.0]) == 1
    assert leaves(buffer) == [4, 3, 1, 8, 6, 5]


# Frequencies.

DRAWS = 2000


def strata(weights: np.ndarray, draws: int) -> np.ndarray:
    """Return the probability that the draw from stratum i takes slot j, by their overlap. Shape [draws, C]."""
    ends = np.cumsum(weights)
    borders = np.arange(draws + 1) * (ends[-1] / draws)
    upper = np.minimum.outer(borders[1:], ends)
    lower = np.maximum.outer(borders[:-1], ends - weights)
    return np.maximum(upper - lower, 0) * (draws / ends[-1])


def assert_by_weight(batches: np.ndarray, weights: np.ndarray) -> None:
    """Check the frequency of each slot, and of all of one weight, within five sigma of a stratified draw."""
    draws = batches.size
    probability = weights / weights.sum()
    assert (draws * probability).min() >= 25
    likely = strata(weights, batches.shape[1])
    sigma = (len(batches) * (likely * (1 - likely)).sum(0)) ** 0.5
    np.testing.assert_allclose(likely.sum(0), batches.shape[1] * probability, atol=1e-6)
    counts = np.bincount(batches.ravel(), minlength=len(weights))
    off = np.abs(counts - draws * probability)
    assert (off <= 5 * sigma + 1e-3).all(), f"slot {np.argmax(off - 5 * sigma)}"
    for weight in np.unique(weights):
        alike = weights == weight
        share = likely[:, alike].sum(1).clip(0, 1)
        sigma = (len(batches) * (share * (1 - share)).sum()) ** 0.5
        off = abs(counts[alike].sum() - draws * probability[alike].sum())
        assert off <= 5 * sigma + 1e-3, f"slots of weight {weight}"


def assert_stratified(batches: np.ndarray, weights: np.ndarray) -> None:
    """Check that draw i fell into the i-th of equal parts of the total weight."""
    likely = strata(weights, batches.shape[1])
    for batch in batches:
        outside = np.flatnonzero(likely[np.arange(len(batch)), batch] == 0)
        assert not outside.size, f"draw {outside[0]} is not from its stratum"


def frequency_weights() -> np.ndarray:
    """Return weights 1 to 4 in some order."""
    return np.random.default_rng(5).integers(1, 5, DRAWS).astype(np.float64)


def test_rows_come_by_weight_and_one_from_each_stratum():
    """200,000 draws follow p^alpha / sum; the same check rejects another alpha."""
    weights = frequency_weights()
    buffer = host.PrioritizedReplayBuffer(DRAWS, DRAWS, [()], ["int32"], seed=0, **ROOTS)
    buffer.insert([np.arange(DRAWS, dtype=np.int32)], priority=(weights**2).astype(np.float32))
    batches = np.stack([buffer.sample()[0] for _ in range(100)])
    assert batches.size >= 200_000
    assert_by_weight(batches, weights)
    assert_stratified(batches, weights)
    for other in (weights**0.9, weights**1.1, np.ones(DRAWS)):
        with pytest.raises(AssertionError):
            assert_by_weight(batches, other)
        with pytest.raises(AssertionError, match="stratum"):
            assert_stratified(batches, other)


def test_the_checks_refuse_draws_that_are_not_stratified():
    weights, generator = frequency_weights(), np.random.default_rng(6)
    independent = generator.choice(DRAWS, (100, DRAWS), p=weights / weights.sum())
    with pytest.raises(AssertionError, match="stratum"):
        assert_stratified(independent, weights)
    with pytest.raises(AssertionError, match="stratum"):
        assert_stratified(np.sort(independent), weights)
    with pytest.raises(AssertionError, match="slot"):
        assert_by_weight(independent, weights)


def test_the_checks_take_a_right_sampler():
    weights, generator = frequency_weights(), np.random.default_rng(7)
    targets = (np.arange(DRAWS) + generator.random((100, DRAWS))) * (weights.sum() / DRAWS)
    batches = np.searchsorted(np.cumsum(weights), targets, side="right")
    assert_by_weight(batches, weights)
    assert_stratified(batches, weights)


# Sizes.


@pytest.mark.parametrize(("capacity", "draws"), [(1, 1), (2, 2), (3, 1), (17, 17), (40, 2)])
def test_random_operations_of_all_sizes(capacity: int, draws: int, tmp_path: Path):
    kind = Kind("PrioritizedReplayBuffer", {"alpha": 0.8, "beta": 0.7}, FIXED)
    RandomPair(kind, host, 4, tmp_path, capacity=capacity, sample_size=draws).run(60)


def test_the_default_rule_of_weights(backend: str):
    """(priority + 1e-6)^0.6, rounded to float32; a priority of zero can be drawn."""
    buffer = PrioritizedReplayBuffer(sample_size=1, capacity=3, **COLUMNS, seed=0, backend=backend)
    buffer.insert(rows(0, 1, 2), priority=np.array([0, 0.3, 7], np.float32))
    exact = [1e-6**0.6, (float(np.float32(0.3)) + 1e-6) ** 0.6, (7 + 1e-6) ** 0.6]
    assert leaves(buffer) == [float(np.float32(weight)) for weight in exact]
    assert buffer.beta.asnumpy().tolist() == [0.4]
    assert bool(buffer.can_sample())


def test_a_priority_of_zero_without_epsilon_is_never_drawn(face: Any):
    """The row is not removed: another priority brings it back."""
    face.insert(rows(0, 1, 2), priority=np.array([1, 0, 1], np.float32))
    assert [drawn(face)[0] for _ in range(3)] == [[0, 2]] * 3
    assert face.update_priorities([1, 1, 1, 1], np.float32([0.0, 9.0, 9.0, 9.0])) == 0
    assert [len({1} & set(drawn(face)[0])) for _ in range(2)] == [1, 1]  # a weight of 3 beside two of 1
    assert face.update_priorities([0, 1, 9, 9], np.float32([0.0, 0.0, 1.0, 1.0])) == 2
    assert face.status() == (3, False, False)


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
    buffer = PrioritizedReplayBuffer(
        sample_size=1, capacity=4, shapes=[()], types=["int32"], epsilon=0.0, alpha=1.0, seed=0, backend=backend
    )
    buffer.insert([[1, 2, 3]], priority=[1e-40, 1.0, least])
    stored = [buffer.info([0, 1, 2])[0].asnumpy().view(np.uint32).tolist()]
    buffer.update_priorities([1, 2], [least, np.float32(1e-45)])
    stored.append(buffer.info([0, 1, 2])[0].asnumpy().view(np.uint32).tolist())
    bits = int(np.float32(least).view(np.uint32))
    assert stored == [[0, int(np.float32(1).view(np.uint32)), bits], [0, bits, 0]]
