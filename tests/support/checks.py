"""Comparisons for several test files. Each raises an AssertionError."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from model import Model

from mindspore_replay.ops.eager import wait_for_work
from mindspore_replay.store.kernels.tree import build_weights


def assert_rows(got: Iterable[Any], expected: Iterable[Any]) -> None:
    """Check that columns are equal bit for bit: dtype, shape and values."""
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        a, b = a.asnumpy() if hasattr(a, "asnumpy") else np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"column {i}"
        np.testing.assert_array_equal(a, b, err_msg=f"column {i}")


def assert_state(buffer: Any, twin: Model) -> None:
    """Check that cursors, random state and stored rows equal those of the twin and are consistent."""
    buffer.check_valid()
    assert cursors(buffer) == (twin.head, twin.size, *twin.serials)
    assert random_state(buffer) == twin.random_state
    for i, column in enumerate(buffer.buffer):
        stored = column.asnumpy()
        for slot, row in enumerate(twin.slots):
            if row is not None:
                np.testing.assert_array_equal(stored[slot], row[i], err_msg=f"column {i}, slot {slot}")


def assert_weights(buffer: Any, twin: Model) -> None:
    """Check that all state equals the twin's, to the last bit: that of `assert_state`, the tree, and row state."""
    assert_state(buffer, twin)
    state, expected = buffer.state_dict(), twin.state()
    leaves = np.array(expected.pop("leaves"))
    assert state["weights"][: twin.capacity].tolist() == leaves.tolist()
    assert state["weights"].tobytes() == build_weights(leaves).tobytes()
    assert {key: state[key].tolist() for key in expected} == expected


def cursors(buffer: Any) -> tuple[int, int, int, int]:
    """Return head, count, rows ever inserted, and the serial of the first row since the last reset."""
    wait_for_work()
    return int(buffer.head.asnumpy()), int(buffer.count.asnumpy()), *buffer.serials.asnumpy().tolist()


def random_state(buffer: Any) -> list[int]:
    """Return key and counter."""
    wait_for_work()
    return buffer.random_state.asnumpy().tolist()


def assert_frequencies(outcomes: Iterable[Any], probabilities: dict[Any, float]) -> None:
    """Check each outcome's count against its probability, within five standard deviations; n*p is at least 25."""
    counts = dict.fromkeys(probabilities, 0)
    n = 0
    for outcome in outcomes:
        assert outcome in counts, f"{outcome} has probability zero"
        counts[outcome] += 1
        n += 1
    assert abs(sum(probabilities.values()) - 1) < 1e-9
    for outcome, p in probabilities.items():
        expected = n * p
        assert expected >= 25, f"{n} draws are too few to tell anything about p={p}"
        sigma = (expected * (1 - p)) ** 0.5
        assert abs(counts[outcome] - expected) <= 5 * sigma, f"{outcome}: {counts[outcome]} of {n}, expected {expected}"


def uniform(outcomes: Iterable[Any]) -> dict[Any, float]:
    """Return the uniform distribution over these outcomes."""
    outcomes = list(outcomes)
    return dict.fromkeys(outcomes, 1 / len(outcomes))


def legal_handles(buffer: Any) -> list[int]:
    """Return the handles of rows with positive weight, from the state alone, oldest first."""
    count, inserted = int(buffer.count.asnumpy()), int(buffer.serials.asnumpy()[0])
    slots = (int(buffer.head.asnumpy()) + np.arange(count)) % buffer.capacity
    return (inserted - count + np.flatnonzero(buffer.weights.asnumpy()[slots] > 0)).tolist()


def differences(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """Return the arrays that are not equal bit for bit in two buffers, or two states."""
    a, b = (x if isinstance(x, dict) else x.state_dict() for x in (a, b))
    assert a.keys() == b.keys()
    return {key: (a[key].tolist(), b[key].tolist()) for key in a if a[key].tobytes() != b[key].tobytes()}


def same_states(a: Any, b: Any) -> bool:
    """Return True if two buffers, or two states, are equal bit for bit."""
    return not differences(a, b)
