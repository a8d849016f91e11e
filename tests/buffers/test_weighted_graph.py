"""Buffers with weights inside compiled bodies: whole training steps, control flow, gradients, threads, checkpoints."""

import threading
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body, compiled, row
from checks import assert_weights
from faces import Compiled
from mindspore import Parameter, Tensor, nn, ops
from model import Model

from mindspore_replay import PrioritizedReplayBuffer

SHAPES, TYPES = [(2,), ()], [ms.float32, ms.int32]
OPTIONS = {"alpha": 0.5, "beta": 0.5, "beta_steps": 8, "epsilon": 0.0, "seed": 3}


def make_buffer(draws: int = 2, **options: Any) -> PrioritizedReplayBuffer:
    """Make a buffer for rows of two fields, both the row's number."""
    return PrioritizedReplayBuffer(draws, 6, SHAPES, TYPES, backend="native", **(OPTIONS | options))


def make_twin(draws: int = 2, **options: Any) -> Model:
    return Model("PrioritizedReplayBuffer", draws, 6, **(OPTIONS | options))


def record(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of `bodies.row`, for a twin."""
    return np.array([number, number], np.float32), np.array(number, np.int32)


def lists(values: Any) -> list[Any]:
    return [value.asnumpy().tolist() for value in values]


def priorities_of(handles: list[int]) -> list[float]:
    """Return the priorities that the steps below write."""
    return [float(handle % 4 + 1) for handle in handles]


class Learn(Body):
    """A training step: inserts a row, draws a batch, and updates its priorities."""

    def construct(self, x, y, given):
        self.buffer.insert([x, y], priority=given)
        self.buffer.insert([x + 1, y + 1])
        indices, weights, _, number = self.buffer.sample()
        invalid = self.buffer.update_priorities(indices, ops.cast(indices % 4 + 1, ms.float32))
        facts = self.buffer.info(indices)
        return indices, weights, number, invalid, facts[0], self.buffer.size()


def learn(twin: Model, number: int, priority: float) -> list[Any]:
    """Run the same step on the twin."""
    twin.insert([record(number)], priority)
    twin.insert([record(number + 1)])
    handles, importance, rows = twin.sample()
    invalid = twin.update(handles, priorities_of(handles))
    return [
        handles,
        importance,
        [int(r[1]) for r in rows],
        invalid,
        [fact[0] for fact in twin.info(handles)],
        twin.size,
    ]


def in_a_thread(work: Callable[[], None]) -> None:
    """Run to the end in another thread; raise its error here."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join(timeout=120)
    assert not thread.is_alive(), "the thread hangs"
    if errors:
        raise errors[0]


def test_training_steps_and_calls_between_them():
    """Each operator of a step sees the effects of those before it; a thread changes the buffer between two steps."""
    buffer, twin = make_buffer(), make_twin()
    step = compiled(Learn(buffer), "pynative")
    handles: list[int] = []

    def act() -> None:
        buffer.insert(row(50), priority=9.0)
        twin.insert([record(50)], 9.0)
        assert int(buffer.update_priorities(handles, [2.0, 3.0])) == twin.update(handles, [2.0, 3.0])
        got, expected = buffer.sample(), twin.sample()
        assert lists(got[:2]) == list(expected[:2])
        assert_weights(buffer, twin)

    for number in range(0, 24, 2):
        got = lists(step(*row(number), Tensor(number / 4 + 0.5, ms.float32)))
        assert got == learn(twin, number, number / 4 + 0.5)
        assert_weights(buffer, twin)
        handles = got[0]
        if number % 4 == 2:
            in_a_thread(act)


class InControlFlow(Body):
    """A loop that samples if possible, writes the weights of the sample as priorities, and deletes every other one."""

    def construct(self, x, y, steps):
        step = self.zero
        removed = self.zero
        while step < steps:
            self.buffer.insert([x + step, y + step])
            if self.buffer.can_sample():
                indices, weights, _, _ = self.buffer.sample()
                self.buffer.update_priorities(indices, weights)
                if step % 2 == 1:
                    removed = removed + self.buffer.delete(indices)
            self.buffer.advance()
            step = step + 1
        return removed, self.buffer.can_sample()


def in_control_flow(twin: Model, number: int, steps: int) -> list[Any]:
    removed = 0
    for step in range(steps):
        twin.insert([record(number + step)])
        if twin.can_sample():
            handles, importance, _ = twin.sample()
            twin.update(handles, importance)
            if step % 2:
                removed += twin.delete(handles)
        twin.advance(1)
    return [removed, twin.can_sample()]


def test_control_flow():
    options: dict[str, Any] = {"max_staleness": 5, "max_use": 4, "normalize": "buffer", "beta": 0.1, "beta_steps": 37}
    buffer, twin = make_buffer(1, **options), make_twin(1, **options)
    call = compiled(InControlFlow(buffer), "pynative")
    for number, steps in ((0, 5), (10, 0), (20, 11)):
        assert lists(call(*row(number), Tensor(steps, ms.int32))) == in_control_flow(twin, number, steps)
        assert_weights(buffer, twin)
        assert buffer.beta.asnumpy().tolist() == [twin.beta]


class Loss(Body):
    """The weighted sum of a sample's numbers, times a weight; priorities are updated on the way."""

    def __init__(self, buffer: PrioritizedReplayBuffer) -> None:
        super().__init__(buffer)
        self.weight = Parameter(Tensor(0.5, ms.float32), name="weight")

    def construct(self, x, y):
        self.buffer.insert([x, y])
        self.buffer.insert([x, y], priority=4.0)
        indices, weights, _, number = self.buffer.sample()
        error = self.weight * ops.cast(number, ms.float32)
        invalid = self.buffer.update_priorities(indices, ops.stop_gradient(error) * 4)
        return (weights * error).sum(), invalid, indices, weights


class Gradient(nn.Cell):
    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.grad = ms.value_and_grad(loss, None, (loss.weight,), has_aux=True)

    def construct(self, x, y):
        (loss, invalid, indices, weights), (gradient,) = self.grad(x, y)
        return loss, gradient, invalid, indices, weights


def test_gradients():
    """The forward pass runs once: the buffer then equals its twin."""
    buffer, twin = make_buffer(), make_twin()
    call = ms.jit(Gradient(Loss(buffer)).construct)
    for number in range(8, 14):
        twin.insert([record(number)])
        twin.insert([record(number)], 4.0)
        handles, importance, rows = twin.sample()
        numbers = [int(r[1]) for r in rows]
        assert twin.update(handles, [2.0 * n for n in numbers]) == 0
        loss, gradient, *rest = lists(call(*row(number)))
        assert rest == [0, handles, importance]
        expected = sum(weight * n for weight, n in zip(importance, numbers))
        assert (loss, gradient) == (pytest.approx(expected / 2), pytest.approx(expected))
        assert_weights(buffer, twin)


# Saving and loading.


def test_versions():
    """Of either dtype, and constant in the graph; those from Python are in `test_twin.py`."""
    buffer = make_buffer().advance(9)
    calls = Compiled(buffer)
    rows = [Tensor(np.ones((2, 2), np.float32)), Tensor([1, 2], ms.int32)]
    calls.insert(*rows, version=Tensor([3, 4], ms.int32))
    calls.insert(*row(2), version=Tensor(8, ms.int64))
    calls.insert(*rows, version=2)
    assert buffer.info(range(5))[2].asnumpy().tolist() == [6, 5, 1, 7, 7]
