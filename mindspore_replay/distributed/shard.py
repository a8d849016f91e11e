"""One shard of a sharded buffer, in a separate process."""

import contextlib
import itertools
import math
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import host
from ..checkpoint.files import open_source
from ..checkpoint.loading import check_same, load_parts
from ..checkpoint.saving import Part, save_parts
from ..store.faces.local import LocalBuffer
from ..store.folder.files import sync
from ..store.kernels.tree import levels
from ..store.spec.spec import BufferSpec
from ..training.statistics import Statistics, statistics_of

#: Bits of a handle, the lowest first: the row's serial number in its process; the process's in its shard; the shard.
_SERIAL_BITS, _LIFE_BITS, _SHARD_BITS = 40, 11, 12
_SERIALS = (1 << _SERIAL_BITS) - 1
MOST_SHARDS, LIVES = 1 << _SHARD_BITS, 1 << _LIFE_BITS


def shards_of(handles: np.ndarray) -> np.ndarray:
    """Return the numbers of the shards that store rows, negative for handles that are negative. Int64 ``[n]``."""
    return handles >> (_SERIAL_BITS + _LIFE_BITS)


class Report(NamedTuple):
    """State of a shard."""

    identity: int  # of the shard's process, 0 before a learner has begun with it; later processes have larger ones
    number: int  # earlier reports of this process
    total: float  # sum of the weights of all rows; without weights their number
    least: float  # smallest weight of a row that can be drawn, infinite if there is none
    eligible: int  # rows that can be drawn
    rows: int  # stored
    inserted: int  # into this process
    allowed: float  # rows whose insertion into this process was granted so far
    wanted: int  # rows of the insertion that waits for a grant, or 0 if none does
    largest: float  # largest priority so far, which new rows get, or 1 without priorities
    clock: int  # the learner's, as last received by the shard, or 0 without weights


class Begun(NamedTuple):
    """The answer of a shard to a learner that begins."""

    identity: int  # of the process, 0 if no learner has begun with it
    nbytes: int  # of the rows
    learner_state: dict[str, Any]  # the last that a learner sent to this process, empty if there is none
    saves: list[dict[str, Any]]  # the state of the learner in each save of which this shard has a file
    folder: str  # of a save that was completed, empty if there is none


class Drawn(NamedTuple):
    """Rows that a shard drew."""

    before: Report  # state before the draw
    weights: np.ndarray  # of each row, float64 [n], empty without priorities
    parts: list[np.ndarray]  # outputs of the buffer's `sample`, each [n, ...], empty without rows


class Shard:
    """A buffer in a separate process.

    Ray calls `insert` in one thread and all other methods in another: an insertion may wait for a grant while rows are
    drawn. No row is inserted before a learner has set the clock and granted it.

    A save is a folder ``save_<number>`` in `folder` with a file of each shard. While shards write theirs, it ends with
    ``.partial``.
    """

    def __init__(self, spec: BufferSpec, folder: str | None, number: int = 0) -> None:
        self.identity, self._number = 0, number
        self._description = spec.to_json()
        self._folder, self._file = None if folder is None else Path(folder), f"shard_{number}.safetensors"
        self._prioritized, self._weighted, self._has_handles = spec.prioritized, spec.weighted, spec.has_handles
        self._learner_state: dict[str, Any] = {}
        self._numbers, self._inserted, self._wanted, self._allowed = itertools.count(), 0, 0, 0.0

        make: type[LocalBuffer] = getattr(host, str(spec.public_class))
        self._failed: Exception | None = None
        try:
            self.rows = make(capacity=spec.capacity, seed=spec.seed, **spec.arguments())
            lock: Any = self.rows.lock
            #: Holds the lock of the rows, and is notified of grants.
            self._granted = threading.Condition(lock)
        except Exception as error:  # from a method, Ray brings it to the learner as it is
            self._failed = error

    def answer(self, learner_state: dict[str, Any], method: str, *arguments: Any) -> tuple[Report, Any]:
        """Learn the learner's state, call a method, and return the shard's state after it, and the result."""
        self.learn(learner_state)
        result = getattr(self, method)(*arguments)
        return self.report(), result

    def answer_once_there(self, learner_state: dict[str, Any], method: str, *arguments: Any) -> tuple[Report, Any]:
        """Do what `answer` does. Ray calls it again until the process of the shard is there."""
        return self.answer(learner_state, method, *arguments)

    def begin(self, expected: dict[str, Any], resume: bool) -> Begun:
        """Answer a learner that begins, which expects this description of the shard."""
        if self._description != expected:
            raise ValueError(
                "For 'ShardedReplay', the shards that run under this 'name' must have the same configuration, but "
                f"they are {self._description}, and got {expected}."
            )
        if self._failed is not None:
            raise self._failed
        saves, folders = [], self._saves()
        for path in (path for folder in folders for path in folder.glob(self._file)):
            try:
                with open_source(path) as source:
                    saves.append(source.header.note)
            except ValueError:
                if resume and not self.identity:
                    raise
        whole = next((str(folder) for folder in folders if not folder.suffix and any(folder.glob("shard_*"))), "")
        return Begun(self.identity, self.rows.nbytes, self._learner_state, saves, whole)

    def _saves(self) -> list[Path]:
        """Return the folders of saves, whole or not."""
        found = [] if self._folder is None else self._folder.glob("save_*")
        return [path for path in found if path.stem.removeprefix("save_").isdecimal()]

    def resume(self, number: int, identity: int, anew: bool = False) -> None:
        """Begin with the rows of a save, or with none if its number is 0, unless a learner has begun with this process.

        A learner that begins `anew` takes back what the last one granted, and settles its saves.
        """
        if self._folder is not None and (anew or (number and not self.identity)):
            self.settle(number)  # the last process, or learner, may have died before
        if anew:
            self.take_back()
        if number and not self.identity:
            assert self._folder is not None
            with open_source(self._folder / f"save_{number}" / self._file) as source:
                check_same(source, self._description)
                load_parts(source, [Part("", self.rows, True)])
            self.learn(self._learner_state)
        self.identity = self.identity or identity

    def learn(self, learner_state: dict[str, Any]) -> None:
        """Store the state of a learner for a later one, and apply its clock and the largest priority in any shard."""
        self._learner_state = learner_state
        with self.rows.lock:
            if self._weighted and learner_state["clock"] > self._clock():
                self.rows.advance(learner_state["clock"] - self._clock())
            shared = self._prioritized and not self.rows.spec.options.largest_held
            if shared and learner_state["largest"] > self._largest():
                self.rows.arrays["max_priority"][...] = learner_state["largest"]  # as in one buffer

    def report(self) -> Report:
        """Report the state of the shard, once its process is there."""
        with self.rows.lock:
            counts = len(self.rows), self._inserted, self._allowed, self._wanted
            now = *self._weights(), *counts, self._largest(), self._clock()
            return Report(self.identity, next(self._numbers), *now)

    def _largest(self) -> float:
        return float(self.rows.arrays["max_priority"]) if self._prioritized else 1.0

    def _clock(self) -> int:
        return int(self.rows.arrays["clock"][0]) if self._weighted else 0

    def insert(self, fields: list[np.ndarray], rows: int, more: dict[str, Any], _there: object = None) -> None:
        """Insert columns ``[rows, *F]`` once they are granted, with `more` arguments of the buffer's `insert`."""
        with self._granted:
            self._wanted = rows
            self._granted.wait_for(lambda: self._inserted + rows <= self._allowed)
            self._wanted = 0
            if "version" in more:  # the learner's clock has had this value
                self.rows.advance(max(int(more["version"].max()) - self._clock(), 0))
            self.rows.insert(fields, **more)
            self._inserted += rows

    def grant(self, rows: float) -> None:
        """Allow the insertion of so many more rows, which may be infinite."""
        with self._granted:
            self._allowed += rows
            self._granted.notify_all()

    def take_back(self) -> None:
        """Allow no more insertions than there were."""
        with self._granted:
            self._allowed = float(self._inserted)

    def draw(self, rows: int) -> Drawn:
        """Draw rows: fewer if fewer can be drawn without replacement, or none if none can be."""
        with self.rows.lock:
            before = self.report()
            # The draw sets the weights of used-up rows to 0; those before the draw are needed.
            plan, tree = self.rows.spec.options.plan, self.rows.arrays.get("weights", np.empty(0))
            leaves = tree if plan.max_use is None else tree.copy()
            if not (plan.repeats and before.eligible):
                rows = min(before.eligible, rows)
            parts, weights = [*self._draw(rows)] if rows else [], np.empty(0)
            if parts and self._prioritized:  # a handle is a serial number; slots are filled in turn since a reset
                weights = leaves[(parts[0] - self.rows.arrays["serials"][1]) % self.rows.capacity]
        if parts and self._has_handles:
            parts[0] = np.where(parts[0] < 0, parts[0], parts[0] | self._place << _SERIAL_BITS)
        return Drawn(before, weights, parts)

    def _draw(self, rows: int) -> tuple[np.ndarray, ...]:
        buffer: Any = self.rows.with_sample_size(rows)
        return buffer.sample(with_indices=self._has_handles)  # type: ignore[no-any-return]

    def _weights(self) -> tuple[float, float, int]:
        """Return the sum, the minimum and the number of the positive weights."""
        if not self._weighted:
            rows = len(self.rows)
            return float(rows), 1.0 if rows else math.inf, rows
        tree, root = self.rows.arrays["weights"], levels(self.rows.capacity)[-1]
        return float(tree[root.sums]), float(tree[root.minima]), int(tree[-1])

    @property
    def _place(self) -> int:
        """The bits of handles above the serial number: this process in this shard."""
        return self._number << _LIFE_BITS | self.identity % LIVES

    def call(self, method: str, handles: np.ndarray, *arguments: object) -> Any:
        """Call a method of the buffer. Handles of other processes are invalid."""
        handles = np.asarray(handles, np.int64)
        own = np.where(handles >> _SERIAL_BITS == self._place, handles & _SERIALS, -1)
        return getattr(self.rows, method)(own, *arguments)

    def statistics(self) -> Statistics:
        """Return statistics of the rows."""
        with self.rows.state.snapshot() as state:
            return statistics_of(state)

    def call_all(self, method: str) -> None:
        """Call a method of the buffer for all rows."""
        getattr(self.rows, method)()

    def stage(self, saves: list[int]) -> None:
        """Write a file of the newest of these saves, which each shard has, and the state of the learner with them."""
        assert self._folder is not None
        path = self._folder / f"save_{max(saves)}.partial" / self._file
        path.parent.mkdir(parents=True, exist_ok=True)
        save_parts([Part("", self.rows, True)], path, self._description, note={**self._learner_state, "saves": saves})

    def settle(self, number: int) -> None:
        """Complete a save that all shards have written, and remove this shard's files of others.

        Without a number, only those of saves that were cut off are removed.
        """
        assert self._folder is not None
        whole = self._folder / f"save_{number}"
        with contextlib.suppress(FileNotFoundError):  # another shard may have done it
            os.rename(f"{whole}.partial", whole)
            sync(self._folder)
        for other in self._saves():
            if other != whole and (number or other.suffix):
                for path in other.glob(f"{self._file}*"):
                    path.unlink()
                with contextlib.suppress(OSError):  # there are files of other shards
                    other.rmdir()


# What `ray.method(concurrency_group="write")` and `ray.method(max_task_retries=-1)` do, in a module that imports no
# Ray. A call cannot have such options: Ray Client refuses that.
Shard.insert.__ray_concurrency_group__ = "write"  # type: ignore[attr-defined]
Shard.report.__ray_max_task_retries__ = -1  # type: ignore[attr-defined]
Shard.answer_once_there.__ray_max_task_retries__ = -1  # type: ignore[attr-defined]
