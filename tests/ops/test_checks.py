"""Composite operators that fail on a device without `ops.Assert`: the next call from Python raises the failure.

The CPU stands in for such a device: the package is told that it has no `ops.Assert`. Each case is one graph of one or
more operators. Called with all arguments bad it changes nothing and gives zeros; with one of them bad, the failure is
that of its operator.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from bodies import kept, row
from checks import differences
from mindspore import Parameter, Tensor, ops

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer
from mindspore_replay.compat.operators import BufferGetItem, BufferSample
from mindspore_replay.ops import checks

FEW = "fewer rows are eligible than a sample needs"
RANGE = "an index is out of range: no row is stored there"
WEIGHT = "a priority, weight or beta is negative, NaN or infinite, or beyond its range"
CLOCK = "the clock would go back, or pass 2^62"


@pytest.fixture(autouse=True)
def _goes_on() -> Iterator[None]:
    with mock.patch.object(checks, "ASSERTING", ()):
        yield


SHAPES: list[tuple[int, ...]] = [(2,), ()]
ROWS = Tensor(np.ones((3, 2), np.float32)), Tensor(np.ones(3, np.int32))


def filled(cls: type[Any], rows: int = 3, **options: Any) -> Any:
    """Return a composite buffer with the rows of a native one, which compiles no graph."""
    given = 2, 6, SHAPES, [ms.float32, ms.int32]
    made, other = (
        cls(*given, seed=0, names=["observation", "y"], backend=backend, **options)
        for backend in ("composite", "native")
    )
    for number in range(rows):
        other.insert(row(number))
    made.load_state_dict(other.state_dict())
    return made


def real(value: float) -> Tensor:
    return Tensor(value, ms.float32)


class Case(NamedTuple):
    """Operators in a graph, and the arguments with which they fail."""

    buffer: Any
    body: Callable[..., Any]
    #: Arguments with which nothing fails, if there are any.
    good: list[Any]
    bad: list[Any]
    #: For each argument, or for the state, the operator that fails and the reason.
    failures: list[tuple[str, str]]


def uniform() -> Case:
    buffer = filled(ReplayBuffer)

    def body(index, sample_range):
        return buffer.get_item(index), buffer._graph.sample(sample_range, None)

    good, bad = [Tensor([0, 1]), Tensor([0, 3])], [Tensor([0, 7]), Tensor([3, 3])]
    return Case(buffer, body, good, bad, [("read", RANGE), ("sample", FEW)])


def prioritized() -> Case:
    buffer = filled(PrioritizedReplayBuffer, max_use=9, max_staleness=9)

    def body(beta, priority, other, steps):
        batch = buffer.sample(beta=beta)
        made = buffer.insert(ROWS, priority=priority, with_indices=True)
        invalid = buffer.update_priorities(batch[0], other)
        buffer.advance(steps)
        return batch, made, invalid

    good = [real(0.5), real(1.0), real(1.0), Tensor(1)]
    bad = [real(1.5), real(-1.0), real(np.nan), Tensor(-1)]
    failures = [("sample", WEIGHT), ("insert", WEIGHT), ("update_priorities", WEIGHT), ("advance", CLOCK)]
    return Case(buffer, body, good, bad, failures)


def weighted() -> Case:
    buffer = filled(ReplayBuffer, rows=0, weighted=True)

    def body():
        return buffer.sample(with_indices=True)

    return Case(buffer, body, [], [], [("sample", FEW)])


MADE = (uniform, prioritized, weighted)


def arrays(result: Any) -> list[np.ndarray]:
    """Return all Tensors of a result."""
    if isinstance(result, tuple):
        return [array for part in result for array in arrays(part)]
    return [result.asnumpy()]


def told_of(buffer: Any) -> tuple[str, str]:
    """Return the operator and the reason that the next call from Python raises, once."""
    with pytest.raises(RuntimeError) as caught:
        buffer.size()
    buffer.size()
    words = re.fullmatch(
        r"The operator '(\w+)' failed in a graph that ran before this call: (.+)\. That call of the operator changed "
        r"nothing and returned zeros\.",
        str(caught.value),
    )
    assert words
    return words[1], words[2]


@pytest.mark.parametrize("make", MADE, ids=lambda make: f"composite-{make.__name__}")
def test_a_failure_changes_nothing_and_is_raised_by_the_next_call(make: Callable[[], Case]):
    case = make()
    kept.append(case)
    call, before = ms.jit(case.body), case.buffer.state_dict()
    for array in arrays(call(*case.bad)):
        assert not array.any() or (array.dtype == np.int64 and (array == -1).all())
    assert differences(case.buffer, before) == {}
    assert told_of(case.buffer) == case.failures[0]
    for i, failure in enumerate(case.failures if case.bad else []):
        case.buffer.load_state_dict(before)
        call(*case.good[:i], case.bad[i], *case.good[i + 1 :])
        assert told_of(case.buffer) == failure
    if case.good:
        call(*case.good)
        case.buffer.state_dict()
        checks.raise_earlier_failure()
        assert differences(case.buffer, before)


def test_a_failure_of_an_operator_of_mindspore_rl_with_the_composite_backend():
    state = [Parameter(Tensor(np.zeros(s, d)), name=n) for n, s, d in (("c", (), np.int32), ("h", (), np.int32))]
    column = Parameter(Tensor(np.ones(4, np.float32)), name="column")
    layout = 4, [()], [ms.float32]
    read = BufferGetItem(*layout, backend="composite")
    draw = BufferSample(4, 2, [()], [ms.float32], seed=1, backend="composite")
    count, head = state

    def body():
        return read((column,), count, head, 0), draw((column,), count, head)

    for array in arrays(ms.jit(body)()):
        assert not array.any()
    with pytest.raises(RuntimeError, match=f"The operator 'read' failed in a graph that ran before this call: {RANGE}"):
        draw((column,), count, head)
    with pytest.raises(RuntimeError, match="a sample needs at least 1 row"):
        draw((column,), count, head)


@pytest.mark.parametrize("device", ["CPU", "GPU", "Ascend"])
def test_the_devices_whose_graphs_stop(device: str):
    # Not by `monkeypatch`: it may end after `_goes_on`, and would leave what that had set.
    with (
        mock.patch.object(checks, "ASSERTING", ("CPU", "GPU")),
        mock.patch.object(ms, "get_context", return_value=device),
    ):
        made, blank = checks.check("sample", FEW), checks.blank()
    assert type(made) is (checks.RecordedCheck if device == "Ascend" else ops.Assert)
    assert (blank is None) is (device != "Ascend")
