"""Actor threads insert while a learner runs compiled steps on the same buffer; no row may be torn or lost.

Actors insert single rows and batches, as arrays and as Tensors. Some insertions are invalid and must be rejected; some
actors die by an exception in the middle of an insertion and are replaced. The learner samples, sets priorities, deletes
and advances the clock; an observer reads rows, saves the state and checks it. Every row carries the number of its
actor, its step and a checksum of all its fields, which every reader verifies. At the end the serial numbers must match
the number of rows inserted, and the rows of each actor must be consecutive up to its last. The time is divided among
the buffers. A thread without progress for a minute ends the run, with the stacks of all.

Exit code: 0 without a fault, 1 after a fault or if all threads hang, 3 if one does.
"""

import argparse
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_replay import (
    Priorities,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)

from . import rows
from .rows import checksum

NAMES = ["frame", "observation", "small", "flag", "actor", "step", "end", "checksum"]
SHAPES: list[tuple[int, ...]] = [(84, 84), (17,), (3,), (), (), (), (), ()]
TYPES = ["uint8", "float32", "int16", "bool", "int32", "int64", "bool", "int64"]
ACTOR, STEP, END = 4, 5, 6
CAPACITY, BATCH, FIRST_ROWS = 2048, 32, 256
EPISODE = 9  # steps
PATIENCE = 60.0  # seconds without progress before a thread counts as hung

_bytes = np.random.default_rng(0).integers(0, 256, 1 << 16, np.uint8)
_floats = np.random.default_rng(1).normal(size=1 << 12).astype(np.float32)


class DeathError(Exception):
    """Kills an actor."""


class Bomb:
    """A field that raises when it is read, while the buffer's lock is held."""

    def __array__(self, *_args: Any, **_kwargs: Any) -> np.ndarray:
        raise DeathError


def make_buffer(kind: str, backend: str) -> Any:
    options: dict[str, Any] = {
        "sample_size": BATCH,
        "capacity": CAPACITY,
        "shapes": SHAPES,
        "types": TYPES,
        "names": NAMES,
        "seed": 0,
        "backend": backend,
    }
    if kind == "uniform":
        return ReplayBuffer(**options)
    if kind == "limited":
        return ReplayBuffer(max_use=100, max_staleness=2000, **options)
    if kind == "prioritized":
        return PrioritizedReplayBuffer(beta_steps=10_000, **options)
    if kind == "sequence":
        return SequenceReplayBuffer(sequence_length=3, burn_in=2, pad_end=True, priorities=Priorities(), **options)
    return ReservoirReplayBuffer(**options)


KINDS = ("uniform", "limited", "prioritized", "sequence", "reservoir")


# Rows and their invariants.


def make_row(actor: int, step: int) -> list[np.ndarray]:
    """Return the row that an actor inserts at a step; all fields follow from the two numbers."""
    mixed = (actor * 1_000_003 + step) * 2_654_435_761 % (1 << 32)
    frame, numbers = mixed % (_bytes.size - 84 * 84), mixed % (_floats.size - 17)
    row = [
        _bytes[frame : frame + 84 * 84].reshape(84, 84),
        _floats[numbers : numbers + 17],
        np.array([mixed % 30_011, mixed % 251, -(mixed % 7)], np.int16),
        np.array(mixed % 3 == 0),
        np.array(actor, np.int32),
        np.array(step, np.int64),
        np.array(step % EPISODE == EPISODE - 1),
    ]
    return [*row, np.array(checksum([*row, None]), np.int64)]


def make_rows(actor: int, first: int, n: int) -> list[np.ndarray]:
    return [np.stack(column) for column in zip(*(make_row(actor, first + i) for i in range(n)), strict=True)]


def check_rows(columns: Sequence[np.ndarray]) -> int:
    """Return the number of rows. Raises an AssertionError unless every row is whole."""
    for i, expected in enumerate(columns[-1]):
        got = checksum([column[i] for column in columns])
        assert got == expected, f"a torn row: actor {columns[ACTOR][i]}, step {columns[STEP][i]}"
    return len(columns[0])


def check_windows(mask: np.ndarray, columns: Sequence[np.ndarray]) -> int:
    """Raises an AssertionError unless window steps are whole, zero if masked, and of one episode."""
    assert not any(column[~mask].any() for column in columns), "a masked step that is not zeros"
    ended = np.cumsum(columns[END] & mask, axis=1) - (columns[END] & mask)
    assert not (mask & (ended > 0)).any(), "a window goes on behind the end of an episode"
    return check_rows([column[mask] for column in columns])


def check_state(kind: str, state: dict[str, np.ndarray], next_steps: Sequence[int] | None) -> int:
    """Return the number of rows of a saved state. Raises an AssertionError unless all rows are whole.

    The rows of each actor must be consecutive too, up to its last if `next_steps` gives the numbers.
    """
    count, slots = int(state["count"]), np.arange(int(state["count"]))
    slots = (int(state["head"]) + slots) % CAPACITY
    columns = [state[f"column.{name}"][slots] for name in NAMES]
    rows = check_rows(columns)
    if kind == "reservoir":
        order = np.argsort(state["row_serials"][:count])
        columns = [column[order] for column in columns]
    for actor in np.unique(columns[ACTOR]):
        steps = columns[STEP][columns[ACTOR] == actor]
        gaps = np.diff(steps)
        assert (gaps > 0).all() if kind == "reservoir" else (gaps == 1).all(), f"a lost row of actor {actor}: {steps}"
        if next_steps is not None and kind != "reservoir":
            assert steps[-1] == next_steps[actor] - 1, f"actor {actor} lost its last row, {next_steps[actor] - 1}"
    if next_steps is not None:
        assert int(state["serials"][0]) == sum(next_steps), f"{state['serials'][0]} serials, {sum(next_steps)} rows"
    return rows


class Step(nn.Cell):
    """The learner's compiled steps."""

    def __init__(self, kind: str, buffer: Any) -> None:
        super().__init__()
        self.kind = kind
        self.buffer = buffer

    def construct(self, priority):
        if self.kind == "uniform" or self.kind == "reservoir":
            return self.buffer.sample()
        batch = self.buffer.sample(with_indices=True) if self.kind == "limited" else self.buffer.sample()
        if self.kind != "limited":
            self.buffer.update_priorities(batch[0], priority)
        self.buffer.delete(batch[0][:1])
        self.buffer.advance(1)
        return batch


class Soak:
    """A buffer, the threads that use it, and their findings."""

    def __init__(self, kind: str, backend: str, actors: int, compiled: bool, buffer: Any = None) -> None:
        self.kind, self.compiled = kind, compiled
        self.buffer = make_buffer(kind, backend) if buffer is None else buffer
        self.twin = make_buffer(kind, backend)
        self.step = Step(kind, self.buffer)
        self.next_steps = [0] * (actors + 1)  # the main thread's first
        self.progress = [0] * (actors + 3)
        self.counts = dict.fromkeys(
            ("insertions", "refused", "deaths", "compiled_steps", "eager_samples", "rows_verified", "states_verified"),
            0,
        )
        self.counting = threading.Lock()
        self.faults: list[str] = []
        self.stopped = threading.Event()

    def count(self, **numbers: int) -> None:
        with self.counting:
            for name, number in numbers.items():
                self.counts[name] += number

    # The threads' work; each call is one turn.

    def act(self, actor: int, random: np.random.Generator) -> None:
        """Insert one row, a batch or an invalid row, or die."""
        chance, step = random.random(), self.next_steps[actor]
        if chance < 0.002:
            self.buffer.insert([*make_row(actor, step)[:-1], Bomb()])
        if chance < 0.04:
            self.insert_wrong(actor, step, random)
            return
        n = 0 if chance < 0.7 else int(random.integers(1, 9))
        rows = make_rows(actor, step, n) if n else make_row(actor, step)
        options: dict[str, Any] = {}
        if self.kind in ("prioritized", "sequence") and random.random() < 0.3:
            options["priority"] = float(random.random() * 3)
        if self.kind == "sequence":
            options["end"] = rows[END] if n else bool(rows[END])
        given: Any = [Tensor(field) for field in rows] if random.random() < 0.2 else rows
        if random.random() < 0.2:
            given = dict(zip(NAMES, given, strict=True))
        self.buffer.insert(given, **options)
        self.next_steps[actor] = step + max(n, 1)
        self.count(insertions=1)

    def insert_wrong(self, actor: int, step: int, random: np.random.Generator) -> None:
        row, rows = make_row(actor, step), make_rows(actor, step, 3)
        wrong = [
            row[:-1],
            [*row[:-1], np.zeros((), np.float64)],
            [*rows[:-1], rows[-1][:2]],
            [row[0][:80], *row[1:]],
            [*row[:-2], 0.5, row[-1]],
        ]
        try:
            self.buffer.insert(wrong[random.integers(len(wrong))])
        except (TypeError, ValueError):
            self.count(refused=1)
        else:
            raise AssertionError("a wrong row was taken")

    def learn(self, random: np.random.Generator) -> None:
        """Run one step, and every eighth time a sample from Python."""
        if not self.buffer.can_sample():
            time.sleep(0.01)  # only the learner removes rows, so only the actors can resolve this
            return
        compiled = self.compiled and random.random() < 0.875
        if compiled:
            batch = self.step(Tensor(random.random(BATCH).astype(np.float32)))
        else:
            batch = self.buffer.sample(**({"with_indices": True} if self.kind == "limited" else {}))
            self.change_rows(batch, random)
        rows = self.verify(batch)
        self.count(rows_verified=rows, **{"compiled_steps" if compiled else "eager_samples": 1})

    def change_rows(self, batch: Sequence[Tensor], random: np.random.Generator) -> None:
        if self.kind in ("prioritized", "sequence"):
            self.buffer.update_priorities(batch[0], random.random(BATCH))
        if self.kind not in ("uniform", "reservoir"):
            self.buffer.delete(batch[0][:1].asnumpy())
            self.buffer.advance()

    def verify(self, batch: Sequence[Tensor]) -> int:
        columns = [part.asnumpy() for part in batch[-len(NAMES) :]]
        if self.kind == "sequence":
            return check_windows(batch[2].asnumpy(), columns)
        return check_rows(columns)

    def observe(self, random: np.random.Generator) -> None:
        """Read rows by position and their state; at times the whole state."""
        time.sleep(0.02)
        stored = int(self.buffer.size())
        rows = self.buffer.get_item(random.integers(-stored, stored, 8))
        self.count(rows_verified=check_rows([part.asnumpy() for part in rows]))
        if self.kind not in ("uniform", "reservoir"):
            inserted = sum(self.next_steps)
            priority, uses, staleness = (
                part.asnumpy() for part in self.buffer.info(np.arange(inserted - 50, inserted))
            )
            assert ((uses >= 0) == (staleness >= 0)).all()
            assert (priority >= 0).all()
        if random.random() < 0.05:
            self.observe_state()

    def observe_state(self) -> None:
        self.buffer.check_valid()
        state = self.buffer.state_dict()
        self.twin.load_state_dict(state)
        self.count(rows_verified=check_state(self.kind, state, None), states_verified=1)

    # Running the threads.

    def loop(self, place: int, turn: Callable[[np.random.Generator], None]) -> None:
        """Take turns until the thread is stopped, dies or finds a fault."""
        random = np.random.default_rng()
        try:
            while not self.stopped.is_set():
                turn(random)
                self.progress[place] += 1
        except DeathError:
            self.count(deaths=1)
        except BaseException as error:
            self.faults.append(f"{threading.current_thread().name}: {type(error).__name__}: {error}")
            self.stopped.set()

    def thread(self, place: int) -> threading.Thread:
        actors = len(self.next_steps) - 1
        if place < actors:
            name, turn = f"actor {place + 1}", lambda random: self.act(place + 1, random)
        else:
            name, turn = [("learner", self.learn), ("observer", self.observe)][place - actors]
        thread = threading.Thread(target=self.loop, args=(place, turn), name=name, daemon=True)
        thread.start()
        return thread

    def prepare(self) -> None:
        """Insert the first rows and compile each graph."""
        for n in (FIRST_ROWS, 1):
            rows = make_rows(0, self.next_steps[0], n)
            self.buffer.insert(rows, **({"end": rows[END]} if self.kind == "sequence" else {}))
            self.next_steps[0] += n
        random = np.random.default_rng(0)
        for _ in range(16):
            self.learn(random)

    def run(self, seconds: float) -> dict[str, Any]:
        self.prepare()
        places = range(len(self.next_steps) + 1)
        threads = [self.thread(place) for place in places]
        watch, end = Watch(len(threads)), time.monotonic() + seconds
        while time.monotonic() < end and not self.stopped.wait(0.05):
            watch.look(self.progress)
            for place in places:
                if not threads[place].is_alive() and not self.stopped.is_set():
                    threads[place] = self.thread(place)  # replaces an actor that died
        self.stopped.set()
        for thread in threads:
            thread.join(PATIENCE)
            if thread.is_alive():
                hang(thread.name)
        faulthandler.cancel_dump_traceback_later()
        self.finish()
        return {"inserted": sum(self.next_steps), **self.counts, "faults": self.faults}

    def finish(self) -> None:
        try:
            self.buffer.check_valid()
            self.count(rows_verified=check_state(self.kind, self.buffer.state_dict(), self.next_steps))
        except Exception as error:
            self.faults.append(f"at the end: {type(error).__name__}: {error}")


class Watch:
    """Ends the process if a thread makes no progress."""

    def __init__(self, threads: int) -> None:
        self.seen = [-1] * threads
        self.since = [time.monotonic()] * threads

    def look(self, progress: Sequence[int]) -> None:
        faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)  # in case this thread hangs too
        now = time.monotonic()
        for place, turns in enumerate(progress[: len(self.seen)]):
            if turns != self.seen[place]:
                self.seen[place], self.since[place] = turns, now
            elif now - self.since[place] > PATIENCE:
                hang(f"thread {place}")


def hang(name: str) -> None:
    print(f"FAULT: {name} made no progress for {PATIENCE:g} s", file=sys.stderr)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(3)


def add_options(parser: argparse.ArgumentParser) -> None:
    rows.add_options(parser, KINDS, ["prioritized"])
    parser.add_argument("--actors", type=int, default=8, help="threads that insert (default: 8)")
    parser.add_argument("--backend", choices=("native", "composite"), default="native")
    parser.add_argument("--learner", choices=("compiled", "eager"), help="default: compiled if native, else eager")


def run(options: argparse.Namespace) -> int:
    ms.set_context(mode=ms.GRAPH_MODE)
    sys.setswitchinterval(1e-4)  # Python's threads switch fifty times as often as by default
    learner = options.learner or ("compiled" if options.backend == "native" else "eager")
    facts = {"backend": options.backend, "actors": options.actors, "learner": learner}

    def soak(kind: str, seconds: float) -> dict[str, Any]:
        return facts | Soak(kind, options.backend, options.actors, learner == "compiled").run(seconds)

    return rows.run_each(options, soak)
