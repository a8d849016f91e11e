"""Threads that share a buffer: actors insert while a learner samples, and every row stays whole."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from checks import cursors
from mindspore import Tensor, ops
from workers import run

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer, mindspore_api
from mindspore_replay.store.rows.store import Store

pytestmark = pytest.mark.cpu_only("threads that call kernels directly")

WIDTH = 200


def row(actor: int, step: int) -> list[np.ndarray]:
    """Return a row with one number in every field."""
    number = actor * 100_000 + step
    return [np.full(WIDTH, number, np.float32), np.array(number, np.int32)]


def assert_whole(batch: Any) -> None:
    wide, number = (part.asnumpy() for part in batch)
    np.testing.assert_array_equal(wide, np.repeat(number[:, None], WIDTH, axis=1))


@pytest.mark.parametrize(("backend", "steps"), [("native", 3000), ("composite", 50)])
def test_two_actors_and_a_learner(backend: str, steps: int):
    buffer = ReplayBuffer(16, 64, [(WIDTH,), ()], ["float32", "int32"], seed=0, backend=backend)
    for _ in range(16):
        buffer.insert(row(0, 0))
    buffer.insert([np.stack([part] * 2) for part in row(0, 0)])
    assert_whole(buffer.sample())  # compiles the graphs

    def act(actor: int) -> None:
        for step in range(steps):
            if step % 10:
                buffer.insert(row(actor, step))
            else:
                buffer.insert([np.stack([part] * 2) for part in row(actor, step)])

    def learn() -> None:
        for _ in range(steps):
            assert_whole(buffer.sample())

    run(lambda: act(1), lambda: act(2), learn)
    inserted = 18 + 2 * (steps + steps // 10)
    assert cursors(buffer) == (inserted % 64, 64, inserted, 0)
    assert buffer.random_state.asnumpy()[1] == 16 * (steps + 1)
    buffer.check_valid()
    assert_whole(buffer.buffer)


class Learner(Kept):
    """Samples in a compiled function."""

    @ms.jit
    def sample(self, unused):
        return self.buffer.sample()


def test_actors_from_python_beside_a_learner_in_a_graph():
    buffer = ReplayBuffer(16, 64, [(WIDTH,), ()], ["float32", "int32"], seed=0, backend="native")
    buffer.insert([np.stack([part] * 64) for part in row(0, 0)])
    learner = Learner(buffer)
    unused = Tensor(0.0)
    assert_whole(learner.sample(unused))

    def act(actor: int) -> None:
        for step in range(2000):
            buffer.insert(row(actor, step))

    def learn() -> None:
        for _ in range(500):
            assert_whole(learner.sample(unused))

    run(lambda: act(1), lambda: act(2), learn)
    assert cursors(buffer) == (4064 % 64, 64, 4064, 0)
    assert_whole(buffer.get_item(range(64)))
    buffer.check_valid()


def test_the_check_rejects_a_torn_row():
    wide, number = row(1, 5)
    wide[WIDTH // 2 :] += 1
    with pytest.raises(AssertionError):
        assert_whole([Tensor(wide[None]), Tensor(number[None])])


CAPACITY, DRAWN = 512, 8


class Alternate(Kept):
    """The compiled operations: a graph per kernel, and one with all of them."""

    def __init__(self, buffer: PrioritizedReplayBuffer) -> None:
        self.buffer = buffer
        self.newest_pair = Tensor([-2, -1], ms.int64)

    @ms.jit
    def insert(self, number, wide):
        self.buffer.insert([number, wide])
        return number

    @ms.jit
    def newest(self, unused):
        return self.buffer.get_item(self.newest_pair)

    @ms.jit
    def update(self, handles, priorities):
        return self.buffer.update_priorities(handles, priorities)

    @ms.jit
    def sample(self, unused):
        return self.buffer.sample()

    @ms.jit
    def info(self, handles):
        return self.buffer.info(handles)

    @ms.jit
    def five(self, number, wide, handles, priorities):
        self.buffer.insert([number, wide])
        newest = self.buffer.get_item(self.newest_pair)
        self.buffer.update_priorities(handles, priorities)
        return newest, self.buffer.sample(), self.buffer.info(handles)


class Cycles:
    """Compiled and eager operations in turn, with no wait in between, and the results that each must have.

    Args:
        buffer (PrioritizedReplayBuffer): The buffer, empty.
        by_fives (bool): True for five compiled operations in one graph, followed by five eager ones.
    """

    def __init__(self, buffer: PrioritizedReplayBuffer, by_fives: bool) -> None:
        self.buffer = buffer
        self.compiled = Alternate(buffer)
        self.by_fives = by_fives
        self.cycle = 0
        self.found: list[tuple[int, list[Any]]] = []

    def turn(self) -> None:
        """Run ten operations, half of them compiled, without a look at their results.

        Cycle c inserts rows 2 c and 2 c + 1, which hold these numbers.
        """
        first, compiled, buffer = 2 * self.cycle, self.compiled, self.buffer
        numbers = np.array([first, first + 1])
        handles, wide = Tensor(numbers), np.repeat(numbers.astype(np.float32)[:, None], 3, axis=1)
        priorities = Tensor(np.float32([first % 7 + 1, first % 7 + 2]))
        if self.by_fives:
            buffer.insert([numbers[0], wide[0]])
            newest, sample, info = compiled.five(Tensor(first + 1, ms.int64), Tensor(wide[1]), handles, priorities)
            found = [newest, buffer.get_item([-2, -1]), info, sample]
            buffer.update_priorities(numbers[:1], 0.5)
            found += [buffer.info(numbers), buffer.sample()]
        else:
            number = Tensor(first, ms.int64)
            compiled.insert(number, Tensor(wide[0]))
            buffer.insert([numbers[1], wide[1]])
            found = [compiled.newest(number), buffer.get_item([-2, -1])]
            compiled.update(handles, priorities)
            found += [buffer.info(numbers), compiled.sample(number)]
            buffer.update_priorities(numbers[:1], 0.5)
            found += [compiled.info(handles), buffer.sample()]
        self.found.append((self.cycle, found))
        self.cycle += 1

    def check(self) -> None:
        """Raises an AssertionError unless every operation saw every write before it."""
        for cycle, found in self.found:
            newest, same, info, sample, later, sample_later = ([p.asnumpy() for p in parts] for parts in found)
            pair, first = [2 * cycle, 2 * cycle + 1], 2 * cycle % 7 + 1
            for numbers, wide in (newest, same):
                assert numbers.tolist() == pair, f"an insertion of cycle {cycle} is lost: {numbers}"
                assert (wide == numbers[:, None]).all()
            assert info[0].tolist() == [first, first + 1], f"a compiled priority of cycle {cycle} is lost"
            assert later[0].tolist() == [0.5, first + 1], f"an eager priority of cycle {cycle} is lost"
            for handles, _, numbers, wide in (sample, sample_later):
                assert (handles == numbers).all()
                assert (wide == numbers[:, None]).all()
                assert handles.max() <= pair[1]
                assert handles.min() >= max(0, pair[1] + 1 - CAPACITY)
        self.found.clear()
        total = 2 * self.cycle
        assert cursors(self.buffer)[2] == total, f"{cursors(self.buffer)[2]} serials, {total} insertions"
        self.buffer.check_valid()


def alternating(cls: type[PrioritizedReplayBuffer] = PrioritizedReplayBuffer, by_fives: bool = True) -> Cycles:
    """Return cycles on a buffer with a few rows, so that samples can be drawn."""
    buffer = cls(DRAWN, CAPACITY, [(), (3,)], ["int64", "float32"], alpha=1.0, seed=0, backend="native")
    cycles = Cycles(buffer, by_fives)
    for _ in range(DRAWN):
        number = 2 * cycles.cycle
        cycles.buffer.insert(
            [np.arange(number, number + 2), np.repeat(np.float32([[number], [number + 1]]), 3, axis=1)]
        )
        cycles.cycle += 1
    return cycles


def test_operations_compiled_and_eager_in_turn():
    """By fives: one graph of five costs a fifth per compiled operation."""
    cycles, turns = alternating(), 300
    for _ in range(turns):
        cycles.turn()  # ten operations
    cycles.check()
    inserted = 2 * (turns + DRAWN)
    assert cursors(cycles.buffer) == (inserted % CAPACITY, CAPACITY, inserted, 0)
    assert cycles.buffer.random_state.asnumpy()[1] == 2 * turns * DRAWN
    priorities = cycles.buffer.info(np.arange(inserted - CAPACITY, inserted))[0].asnumpy()
    numbers = np.arange(inserted - CAPACITY, inserted)
    np.testing.assert_array_equal(priorities, np.where(numbers % 2, (numbers - 1) % 7 + 2, 0.5))


class LosesAnInsertion(PrioritizedReplayBuffer):
    """Loses one insertion from Python: rows written by a graph are then in the wrong place."""

    def insert(self, exp: Any, **options: Any) -> Any:
        before = self.head.asnumpy().copy(), self.count.asnumpy().copy(), self.serials.asnumpy().copy()
        super().insert(exp, **options)
        if self.serials.asnumpy()[0] == 2 * DRAWN + 6:
            for parameter, value in zip((self.head, self.count, self.serials), before):
                parameter.asnumpy()[...] = value
        return self

    insert.__wrapped__ = PrioritizedReplayBuffer.insert.__wrapped__  # type: ignore[attr-defined]


class LosesAPriority(PrioritizedReplayBuffer):
    """Loses one priority set from Python."""

    def update_priorities(self, indices: Any, priorities: Any) -> Any:
        if indices[0] != 2 * DRAWN + 4:
            super().update_priorities(indices, priorities)

    update_priorities.__wrapped__ = PrioritizedReplayBuffer.update_priorities.__wrapped__  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("cls", "message"),
    [(LosesAnInsertion, "an insertion of cycle 10 is lost"), (LosesAPriority, "an eager priority of cycle 10 is lost")],
)
def test_a_lost_write_is_found(cls: type[PrioritizedReplayBuffer], message: str):
    cycles = alternating(cls, by_fives=False)
    for _ in range(4):
        cycles.turn()
    with pytest.raises(AssertionError, match=message):
        cycles.check()


def inserts_behind_late_writes(products: range) -> Iterator[bool]:
    """For each number of matrix products behind which a write to the column comes, tell if an insertion follows it."""
    matrix = Tensor(np.eye(500, dtype=np.float32))
    buffer = ReplayBuffer(1, 4, [()], ["float32"], seed=0, backend="native")
    column = buffer.buffer[0]
    for n in products:
        product = matrix
        for _ in range(n):
            product = ops.matmul(product, matrix)
        ops.assign(column, ops.zeros_like(column) * ops.reduce_max(product))
        buffer.insert([float(n)])
        yield n in column.asnumpy()


def test_work_in_flight_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    """In PyNative mode operators are in flight when a call returns; on the CPU, a graph that writes has ended."""
    assert all(inserts_behind_late_writes(range(1, 4)))
    monkeypatch.setattr(mindspore_api, "wait", lambda: None)
    # Later at each try: on a busy machine this thread may be late itself.
    assert not all(inserts_behind_late_writes(range(4, 24)))


class Priorities(Kept):
    """Changes priorities in a compiled function."""

    @ms.jit
    def give(self, priority):
        indices, weights, _ = self.buffer.sample()
        return self.buffer.update_priorities(indices, weights * 0 + priority)


def changes_within_a_snapshot(seconds: float) -> bool:
    """Return True if a graph changes the state while a block holds it, which lasts until then or these seconds."""
    buffer = PrioritizedReplayBuffer(512, 16384, [()], ["int32"], seed=0, backend="native")
    buffer.insert([np.arange(16384, dtype=np.int32)])
    learner, started, done = Priorities(buffer), threading.Event(), threading.Event()
    learner.give(Tensor(0.5))

    def learn() -> None:
        started.wait()
        learner.give(Tensor(2.0))
        done.set()

    def look() -> bool:
        with buffer.state.snapshot() as arrays:
            before = {name: array.copy() for name, array in arrays.items()}
            started.set()
            done.wait(seconds)
            return any((array != before[name]).any() for name, array in arrays.items())

    changed: list[bool] = []
    run(learn, lambda: changed.append(look()))
    assert done.is_set()
    assert (buffer.priorities.asnumpy() == 2.0).any()
    buffer.check_valid()
    return changed[0]


def test_a_state_beside_a_graph_is_whole():
    assert not changes_within_a_snapshot(0.5)


def test_without_keeping_kernels_out_states_change(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Store, "kernels_kept_out", lambda _store: contextlib.nullcontext())
    assert changes_within_a_snapshot(60)
