"""One shard of a sharded buffer, in a separate process."""

import contextlib
import functools
import itertools
import math
import os
import secrets
import threading
from collections.abc import Mapping
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


class Report(NamedTuple):
    """State of a shard."""

    identity: int  # of the shard's process
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

    nbytes: int  # of the rows
    learner_state: dict[str, Any]  # the last that a learner stored in this process, empty if there is none
    saves: list[dict[str, Any]]  # the state of the learner in each save of which this shard has a file
    folder: str  # of a save that was completed, empty if there is none


class Drawn(NamedTuple):
    """Rows that a shard drew."""

    before: Report  # state before the draw
    report: Report  # state after it
    weights: np.ndarray | None  # of each row, float64 [n]
    parts: list[np.ndarray]  # outputs of the buffer's `sample`, each [n, ...], empty without rows


class Shard:
    """A buffer in a separate process.

    Ray calls `insert` in one thread and all other methods in another: an insertion may wait for a grant while rows are
    drawn. No row is inserted before a learner has set the clock and granted it.

    A save is a folder ``save_<number>`` with a file of each shard. While shards write theirs, it ends with
    ``.partial``.

    Args:
        spec (BufferSpec): The buffer to hold.
        folder (Union[str, None]): Folder of the saves.
        number (int): Number of the shard. Default: ``0``.
    """

    def __init__(self, spec: BufferSpec, folder: str | None, number: int = 0) -> None:
        self.identity = secrets.randbits(62)
        self._spec, self._description = spec, spec.to_json()
        self._folder, self._file = None if folder is None else Path(folder), f"shard_{number}.safetensors"
        self._prioritized, self._weighted, self._has_handles = spec.prioritized, spec.weighted, spec.has_handles
        self._learner_state: dict[str, Any] = {}
        self._numbers, self._resumed = itertools.count(), False
        self._inserted = self._begun = self._wanted = 0
        self._allowed, self._changed = 0.0, threading.Condition()

    @functools.cached_property
    def rows(self) -> LocalBuffer:
        """The buffer. It is made when it is first used, so that an error is that of a call."""
        make: type[LocalBuffer] = getattr(host, str(self._spec.public_class))
        return make(capacity=self._spec.capacity, seed=self._spec.seed, **self._spec.arguments())

    def begin(self, expected: dict[str, Any], resume: bool) -> Begun:
        """Answer a learner that begins.

        Raises:
            ValueError: If the shard has another description, or is to `resume` and has a file that cannot be read.
            Exception: What kept the buffer from being made.
        """
        if self._description != expected:
            raise ValueError(
                "For 'ShardedReplay', the shards that run under this 'name' must have the same configuration, but "
                f"they are {self._description}, and got {expected}."
            )
        saves, folders = [], self._saves()
        for path in (path for folder in folders for path in folder.glob(self._file)):
            try:
                with open_source(path) as source:
                    saves.append(source.header.note)
            except ValueError:
                if resume and not self._resumed:
                    raise
        whole = next((str(folder) for folder in folders if not folder.suffix and any(folder.glob("shard_*"))), "")
        return Begun(self.rows.nbytes, self._learner_state, saves, whole)

    def _saves(self) -> list[Path]:
        """Return the folders of saves, whole or not."""
        found = [] if self._folder is None else self._folder.glob("save_*")
        return [path for path in found if path.stem.removeprefix("save_").isdecimal()]

    def resume(self, number: int, learner_state: dict[str, Any] | None = None) -> Report:
        """Begin with the rows of a save, or with none if its number is 0, unless a learner has begun with this process.

        Raises:
            OSError, ValueError: If the file cannot be read.
        """
        if number and not self._resumed:
            assert self._folder is not None
            self.settle(number)  # the last process may have died before
            with open_source(self._folder / f"save_{number}" / self._file) as source:
                check_same(source, self._description)
                load_parts(source, [Part("", self.rows, True)])
        self._resumed = True
        return self.report(learner_state)

    def report(self, learner_state: dict[str, Any] | None = None, take_back: bool = False) -> Report:
        """Report the state of the shard, after storing that of a learner for a later one, if there is one.

        The ``clock`` of the latter and ``largest``, the largest priority in any shard, are applied to the rows. With
        `take_back`, grants that are not used are void.
        """
        if learner_state is not None:
            self._learner_state = learner_state
            with self.rows.lock:
                if self._weighted and learner_state["clock"] > self._clock():
                    self.rows.advance(learner_state["clock"] - self._clock())
                shared = self._prioritized and not self.rows.spec.options.largest_held
                if shared and learner_state["largest"] > self._largest():
                    self.rows.arrays["max_priority"][...] = learner_state["largest"]  # as in one buffer
        with self.rows.lock:
            totals = *self._weights(), len(self.rows)
        with self._changed:
            if take_back:
                self._allowed = float(self._begun)
            counts = self._inserted, self._allowed, self._wanted
        return Report(self.identity, next(self._numbers), *totals, *counts, self._largest(), self._clock())

    def _largest(self) -> float:
        return float(self.rows.arrays["max_priority"]) if self._prioritized else 1.0

    def _clock(self) -> int:
        return int(self.rows.arrays["clock"][0]) if self._weighted else 0

    def insert(self, fields: list[np.ndarray], rows: int, more: dict[str, Any]) -> None:
        """Insert columns ``[rows, *F]`` once they are granted, with `more` arguments of the buffer's `insert`."""
        with self._changed:
            self._wanted = rows
            self._changed.wait_for(lambda: self._begun + rows <= self._allowed)
            self._wanted, self._begun = 0, self._begun + rows
        done = 0
        try:
            with self.rows.lock:
                if "version" in more:  # the learner's clock has had this value
                    self.rows.advance(max(int(more["version"].max()) - self._clock(), 0))
                self.rows.insert(fields, **more)
            done = rows
        finally:
            with self._changed:
                self._begun, self._inserted = self._begun + done - rows, self._inserted + done

    def grant(self, rows: float) -> None:
        """Allow the insertion of so many more rows, which may be infinite."""
        with self._changed:
            self._allowed += rows
            self._changed.notify_all()

    def draw(self, rows: int, learner_state: dict[str, Any] | None = None) -> Drawn:
        """Draw rows: fewer if fewer can be drawn without replacement, or none if none can be. `report` comes first."""
        with self.rows.lock:
            before = self.report(learner_state)
            # The draw sets the weights of used-up rows to 0; those before the draw are needed.
            plan, tree = self.rows.spec.options.plan, self.rows.arrays.get("weights", np.empty(0))
            leaves = tree if plan.max_use is None else tree.copy()
            if not (plan.repeats and before.eligible):
                rows = min(before.eligible, rows)
            parts = [*self._draw(rows)] if rows else []
            weights = None
            if parts and self._prioritized:  # a handle is a serial number; slots are filled in turn since a reset
                weights = leaves[(parts[0] - self.rows.arrays["serials"][1]) % self.rows.capacity]
            return Drawn(before, self.report(), weights, parts)

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

    def call(self, identity: int, method: str, handles: np.ndarray, *arguments: object) -> tuple[Report, Any]:
        """Call a method of the buffer. The result is ``None`` if handles are of another process."""
        if identity != self.identity:
            return self.report(), None
        result = getattr(self.rows, method)(handles, *arguments)
        return self.report(), result

    def reset(self) -> Report:
        """Remove all rows."""
        self.rows.reset()
        return self.report()

    def statistics(self) -> Statistics:
        """Return statistics of the rows."""
        with self.rows.state.snapshot() as state:
            return statistics_of(state)

    def check_valid(self) -> None:
        """Raise a ValueError if the state of the rows contradicts itself."""
        self.rows.check_valid()

    def stage(self, learner_state: dict[str, Any]) -> None:
        """Write a file of a save, with the state of the learner, which has the number of the save."""
        assert self._folder is not None
        path = self._folder / f"save_{save_number(learner_state)}.partial" / self._file
        path.parent.mkdir(parents=True, exist_ok=True)
        save_parts([Part("", self.rows, True)], path, self._description, note=learner_state)

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


# What `ray.method(concurrency_group="write")` does, in a module that imports no Ray. A call cannot name the group: Ray
# Client refuses that.
Shard.insert.__ray_concurrency_group__ = "write"  # type: ignore[attr-defined]


def save_number(learner_state: Mapping[str, Any]) -> int:
    """Return the number of the save that holds this state of the learner."""
    return max(learner_state["saves"])
