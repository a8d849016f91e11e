"""``ms.jit(capture_mode="trace")`` is rejected without side effects."""

import importlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import filled
from checkpoint_cases import BUFFERS, insert, rows
from mindspore import Tensor

from mindspore_replay import MixedReplay, mindspore_api

jit_trace = importlib.import_module(mindspore_api.jit_contexts.__name__.replace("jit_context", "jit_trace"))

#: Every method that acts on rows, as called in a traced function.
CALLS: dict[str, Callable[[Any], Any]] = {
    "insert": lambda buffer: buffer.insert(rows(90, buffer.num_envs)),
    "add": lambda buffer: buffer.add(rows(90, buffer.num_envs)),
    "get_item": lambda buffer: buffer.get_item(0),
    "rows": lambda buffer: buffer.rows(),
    "sample": lambda buffer: buffer.sample(),
    "reset": lambda buffer: buffer.reset(),
    "size": lambda buffer: buffer.size(),
    "full": lambda buffer: buffer.full(),
    "can_sample": lambda buffer: buffer.can_sample(),
    "state_dict": lambda buffer: buffer.state_dict(),
}
WEIGHTED: dict[str, Callable[[Any], Any]] = {
    "advance": lambda buffer: buffer.advance(),
    "info": lambda buffer: buffer.info([0]),
    "delete": lambda buffer: buffer.delete([23]),
    "update_priorities": lambda buffer: buffer.update_priorities([23], 2.0),
    "end_episodes": lambda buffer: buffer.end_episodes(),
}


@pytest.fixture(autouse=True)
def _frames_without_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """MindSpore records the source of each frame when it traces, and fails if there is none, as below pytest-xdist."""
    monkeypatch.setattr(jit_trace, "_get_caller_lines", lambda: ([__file__], [1]))


def assert_refused(function: Callable[[], Any]) -> None:
    @ms.jit(capture_mode="trace")
    def traced(x):
        function()
        return x * 2

    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"capture_mode='trace'.*Use capture_mode='ast'"):
            traced(Tensor(1.0))


def assert_unchanged(buffer: Any, before: dict[str, np.ndarray]) -> None:
    for key, array in buffer.state_dict().items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)


@pytest.mark.parametrize(("kind", "backend"), [("views", "native"), ("uniform", "composite")])
def test_every_method_is_refused_while_tracing(kind: str, backend: str) -> None:
    buffer = filled(lambda given: BUFFERS[kind](backend=given, seed=0), backend, lambda b: insert(b, 24))
    before = buffer.state_dict()
    for call in (CALLS | WEIGHTED if kind == "views" else CALLS).values():
        assert_refused(lambda call=call: call(buffer))
        assert_unchanged(buffer, before)


def test_several_buffers_are_refused_while_tracing() -> None:
    parts = [BUFFERS["uniform"](seed=seed) for seed in (0, 1)]
    for buffer in parts:
        insert(buffer, 24)
    mixed = MixedReplay([(buffer, 0.5) for buffer in parts], 4)
    before = mixed.state_dict()
    assert_refused(mixed.sample)
    assert_unchanged(mixed, before)


def test_functions_without_buffers_are_still_traced() -> None:
    buffer = BUFFERS["uniform"]()
    assert_refused(buffer.size)

    @ms.jit(capture_mode="trace")
    def twice_of(x):
        return x * 2

    assert [float(twice_of(Tensor(x))) for x in (1.0, 2.0)] == [2.0, 4.0]


@pytest.mark.parametrize("kind", ["uniform", "views"])
def test_another_thread_may_trace(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MindSpore's flag for a running trace is global to the process; the stack tells which thread traces."""
    expected, buffer = (BUFFERS[kind](seed=0) for _ in range(2))
    for one in (expected, buffer):
        with monkeypatch.context() as patch:
            if one is buffer:
                patch.setattr(mindspore_api.jit_contexts, "_jit_context", object())
            insert(one, 24)
            one.insert(rows(90, one.num_envs))
            batch = one.sample()
            if kind == "views":
                one.update_priorities([23], 2.0)
            assert one.size() == 24
    assert_unchanged(buffer, expected.state_dict())
    assert len(batch) > 1


def test_other_ways_to_capture_a_function_work(backend: str) -> None:
    buffer = BUFFERS["uniform"](backend=backend, seed=0)

    @ms.jit(capture_mode="bytecode")
    def store(row):
        buffer.insert([row, row[0], row[0] > 0])
        return buffer.size()

    row = Tensor(np.zeros(40, np.float32))
    assert [int(store(row)) for _ in range(3)] == [1, 2, 3]
