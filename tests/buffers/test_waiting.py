"""Calls from Python wait for MindSpore's work only if a graph, or anybody else, has got hold of the state."""

from collections.abc import Callable
from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body
from kinds import CLASSES
from kinds import KINDS as EVERY
from locks import RecordingLock
from mindspore import Tensor

from mindspore_replay import NStep, ReplayBuffer
from mindspore_replay.mindspore_api import jit_contexts
from mindspore_replay.store.kernels.call import NO_TENSORS
from mindspore_replay.store.kernels.invocations import Invocations
from mindspore_replay.store.kernels.library import calls

pytestmark = pytest.mark.cpu_only("calls kernels directly")

SIZES: dict[str, Any] = {"sample_size": 2, "capacity": 8, "seed": 0, "backend": "native"}
COLUMNS: dict[str, Any] = {"shapes": [(), (2,), ()], "types": ["int32", "float32", "bool"], "names": ["a", "b", "c"]}
KINDS: dict[str, Callable[[], Any]] = {
    **{kind: partial(EVERY[kind].make, **SIZES, **COLUMNS) for kind in (*CLASSES, "limits") if kind != "episodes"},
    "views": lambda: ReplayBuffer(
        **SIZES, **COLUMNS, views=[NStep(2, 0.9, observation="a", reward="b", terminated="c")]
    ),
}


def rows(n: int) -> list[np.ndarray]:
    return [np.arange(n, dtype=np.int32), np.ones((n, 2), np.float32), np.zeros(n, bool)]


def is_watched(buffer: Any) -> bool:
    return buffer._front.calls.guard.watched()


@pytest.mark.parametrize("kind", KINDS)
def test_calls_from_python_alone_do_not_watch(kind: str):
    buffer = KINDS[kind]()
    for _ in range(3):
        buffer.insert([1, np.ones(2, np.float32), False])
        buffer.insert(rows(2))
        buffer.insert({"a": 1, "b": [1, 2], "c": True})
        batch = buffer.sample()
        buffer.sample(as_dict=True)
    buffer.size(), buffer.full(), buffer.can_sample(), buffer.get_item(0)
    if buffer.prioritized:
        buffer.update_priorities(batch[0], batch[1])
    assert not is_watched(buffer)
    assert not is_watched(buffer.with_sample_size(1))


class Owner(Body):
    @ms.jit
    def inserted(self, a, b, c):
        self.buffer.insert([a, b, c])
        return a

    @ms.jit
    def sampled(self):
        return self.buffer.sample()

    @ms.jit
    def counted(self):
        return self.buffer.size()


def alone(buffer: Any) -> Owner:
    """Return an owner whose Parameters the buffer's are not: a Cell lists those of its attributes."""
    owner = Owner(None)
    vars(owner)["buffer"] = buffer
    return owner


TOUCHES: dict[str, Callable[[Any], Any]] = {
    "a graph that inserts": lambda buffer: alone(buffer).inserted(*map(Tensor, rows(2))),
    "a graph that samples": lambda buffer: alone(buffer).sampled(),
    "a graph that counts": lambda buffer: alone(buffer).counted(),
    "a parameter": lambda buffer: buffer.head,
    "the columns": lambda buffer: buffer.buffer,
    "the parameters by name": lambda buffer: buffer.parameters_dict(),
    "an owner's parameters": lambda buffer: list(Owner(buffer).get_parameters()),
    "a state": lambda buffer: buffer.state_dict(),
}


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_whatever_gets_hold_of_the_state_is_waited_for(kind: str, touch: str):
    buffer = KINDS[kind]()
    buffer.insert(rows(8))
    assert not is_watched(buffer)
    TOUCHES[touch](buffer)
    assert is_watched(buffer)
    assert is_watched(buffer.with_sample_size(1))


def test_a_name_that_is_nowhere_is_no_touch():
    buffer = KINDS["uniform"]()
    assert not hasattr(buffer, "nowhere")
    assert not is_watched(buffer)


def give_with(wait: Callable[[], None], refuse: Callable[[], None] = lambda: None) -> tuple[Any, RecordingLock, Any]:
    """Return a kernel's call behind a guard, the lock and the guard."""
    buffer = KINDS["uniform"]()
    buffer.insert(rows(8))
    lock = RecordingLock()
    guard = calls.Guard(lock, wait, jit_contexts, refuse)
    store = buffer._front.calls
    kernels = Invocations(store.schema, store.options, store._state, NO_TENSORS._replace(guard=guard))
    return kernels["sample"], lock, guard


def test_a_guard_locks_then_waits():
    give, lock, guard = give_with(lambda: lock.log.append("waited"))
    assert len(give(0)) == 3
    assert lock.log == ["acquired", "released"]
    guard.watch()
    assert len(give(1)) == 2
    assert lock.log[2:] == ["acquired", "waited", "released"]
    guard.close()
    assert give(0) == -1
    assert lock.log[5:] == ["acquired", "released"]


def test_an_error_of_work_in_flight_is_raised_and_the_lock_released():
    def fail() -> None:
        raise ZeroDivisionError

    give, lock, guard = give_with(fail)
    guard.watch()
    with pytest.raises(ZeroDivisionError):
        give(0)
    assert lock.log == ["acquired", "released"]


def test_nothing_runs_while_a_function_is_traced(monkeypatch: pytest.MonkeyPatch):
    refused = [RuntimeError("traced")]

    def refuse() -> None:
        if refused:
            raise refused.pop()

    give, lock, _ = give_with(lambda: None, refuse)
    monkeypatch.setattr(jit_contexts, "_jit_context", object())
    with pytest.raises(RuntimeError, match="traced"):
        give(0)
    assert lock.log == []
    assert len(give(0)) == 3  # another thread traces
