"""One shard of a sharded buffer, in a separate process."""

import importlib
import itertools
import math
import os
import secrets
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import host
from ..checkpoint.files import open_source, read_header_at, remove_temporaries, staged_path
from ..checkpoint.loading import check_same, load_parts
from ..checkpoint.saving import Part, save_parts
from ..store.faces.local import LocalBuffer
from ..store.folder.files import sync
from ..store.kernels.tree import levels
from ..store.spec.spec import BufferSpec
from ..training.statistics import Statistics, statistics_of


class Report(NamedTuple):
    """State of a shard.

    Attributes:
        identity (int): Identifies the shard's process.
        number (int): Number of earlier reports of this process.
        total (float): Sum of the weights of all rows. Without weights, the number of rows.
        least (float): The smallest weight of a row that can be drawn, infinite if there is none.
        eligible (int): Rows that can be drawn.
        rows (int): Rows stored.
        inserted (int): Rows inserted into this process.
        allowed (float): Rows whose insertion into this process was granted so far.
        grants (int): Number of these grants.
        wanted (int): Rows of the insertion that waits for a grant, or 0 if none does.
        largest (float): The largest priority so far, which new rows get, or 1 without priorities.
        clock (int): The learner's clock, as last received by the shard, or 0 without weights.
    """

    identity: int
    number: int
    total: float
    least: float
    eligible: int
    rows: int
    inserted: int
    allowed: float
    grants: int
    wanted: int
    largest: float
    clock: int


class Begun(NamedTuple):
    """The answer of a shard to a learner that begins.

    Attributes:
        nbytes (int): Bytes of the rows.
        learner_state (dict): The last state that a learner stored in this process, empty if there is none.
        saves (list[dict]): The state of the learner in each save that the shard's files hold: one, or two if the newer
            one was cut off.
        has_file (bool): Whether there is any file but that of a save that was cut off.
        resumes (bool): Whether the shard waits for `settle` to load its rows.
    """

    nbytes: int
    learner_state: dict[str, Any]
    saves: list[dict[str, Any]]
    has_file: bool
    resumes: bool


class Drawn(NamedTuple):
    """Rows that a shard drew.

    Attributes:
        before (Report): State before the draw.
        report (Report): State after the draw.
        weights (Union[numpy.ndarray, None]): The weight of each row. Shape ``[n]``, float64.
        parts (list[numpy.ndarray]): The outputs of the buffer's `sample`, each ``[n, ...]``, empty without rows.
    """

    before: Report
    report: Report
    weights: np.ndarray | None
    parts: list[np.ndarray]


class Shard:
    """A buffer in a separate process, and the quota of rows that may be inserted into it.

    Ray calls `insert` in one thread and all other methods in another: an insertion may wait for a grant while rows are
    drawn.

    No row is inserted before the learner's first `report` has set the clock and its first `grant` allows it.

    Args:
        spec (BufferSpec): The buffer to hold.
        path (Union[str, None]): File to save to. A process that replaces a dead one loads it, if it exists.
        resume (bool): Whether the first process loads it too, once `settle` says which save.
    """

    def __init__(self, spec: BufferSpec, path: str | None, resume: bool) -> None:
        self.identity = secrets.randbits(62)
        self._description, self._path = spec.to_json(), None if path is None else Path(path)
        self._prioritized, self._weighted, self._has_handles = spec.prioritized, spec.weighted, spec.has_handles
        self._learner_state: dict[str, Any] = {}
        self._inserted = self._begun = self._wanted = self._grants = 0
        self._numbers = itertools.count()
        self._allowed = 0.0
        self._changed = threading.Condition()
        #: Whether `settle` loads the rows; and the error that kept the process from starting, which `begin` raises.
        self._resumes, self._error = resume and self._path is not None, None
        replaces = self._path is not None and _replaces()
        try:
            make: type[LocalBuffer] = getattr(host, str(spec.public_class))
            self.rows = make(capacity=spec.capacity, seed=spec.seed, **spec.arguments())
            self._parts = [Part("", self.rows, True)]
            if replaces:
                self._load()
            elif self._path is not None and not resume:
                for other in sorted(self._path.parent.glob("shard_*.safetensors")):
                    raise other_run(other)
        except Exception as error:
            if replaces:
                raise
            self._error = error

    def _load(self) -> None:
        """Load the newest file, a staged one too."""
        assert self._path is not None
        self._resumes, path = False, self._path
        if read_header_at(staged_path(path)) is not None:
            path = staged_path(path)
        if path.exists():
            with open_source(path) as source:
                check_same(source, self._description)
                load_parts(source, self._parts)
            self._learner_state = source.header.note

    def begin(self, expected: dict[str, Any]) -> Begun:
        """Answer a learner that begins.

        Raises:
            ValueError: If the shard has another description, or a file that cannot be read.
            Exception: What kept the process from starting.
        """
        if self._error is not None:
            raise self._error
        if self._description != expected:
            raise ValueError(
                "For 'ShardedReplay', the shards that run under this 'name' must have the same configuration, but "
                f"they are {self._description}, and got {expected}."
            )
        published = staged = None
        if self._path is not None:
            staged = read_header_at(staged_path(self._path))
            try:
                with open_source(self._path) as source:
                    published = source.header
            except FileNotFoundError:
                pass
            except ValueError:
                if self._resumes:
                    raise
        saves = [state for header in (published, staged) if header and (state := header.note) is not None]
        return Begun(self.rows.nbytes, self._learner_state, saves, published is not None, self._resumes)

    def report(self, learner_state: dict[str, Any] | None = None, take_back: bool = False) -> Report:
        """Report the state of the shard.

        Args:
            learner_state (Union[dict, None]): State to store for a later learner. Its ``clock`` and ``largest``, the
                largest priority in any shard, are applied to the rows. Default: ``None``, to change nothing.
            take_back (bool): Whether to withdraw unused grants. Default: ``False``.
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
            counts = self._inserted, self._allowed, self._grants, self._wanted
        return Report(self.identity, next(self._numbers), *totals, *counts, self._largest(), self._clock())

    def _largest(self) -> float:
        return float(self.rows.arrays["max_priority"]) if self._prioritized else 1.0

    def grant(self, rows: float) -> None:
        """Allow the insertion of so many more rows, which may be infinite."""
        with self._changed:
            self._allowed += rows
            self._grants += 1
            self._changed.notify_all()

    def _clock(self) -> int:
        return int(self.rows.arrays["clock"][0]) if self._weighted else 0

    def answers(self) -> bool:
        """Return True. A writer asks whether the process runs."""
        return True

    def insert(self, fields: list[np.ndarray], rows: int, more: dict[str, Any]) -> None:
        """Insert rows, once they are granted.

        Args:
            fields (list[numpy.ndarray]): The columns, each ``[rows, *F]``.
            rows (int): Number of rows.
            more (dict): The other arguments of the buffer's `insert`.
        """
        with self._changed:
            self._wanted = rows
            self._changed.wait_for(lambda: self._begun + rows <= self._allowed)
            self._wanted = 0
            self._begun += rows
        done = 0
        try:
            with self.rows.lock:
                if "version" in more:  # the learner's clock has had this value
                    self.rows.advance(max(int(more["version"].max()) - self._clock(), 0))
                self.rows.insert(fields, **more)
            done = rows
        finally:
            with self._changed:
                self._begun += done - rows
                self._inserted += done

    def draw(self, rows: int, learner_state: dict[str, Any] | None = None, take_back: bool = False) -> Drawn:
        """Draw rows.

        Args:
            rows (int): Number of rows, or 0 for the report alone.
            learner_state (Union[dict, None]): As for `report`. Default: ``None``.
            take_back (bool): As for `report`. Default: ``False``.

        Returns:
            Drawn: As many rows, or fewer if fewer could be drawn without replacement, or none if none could be.
        """
        with self.rows.lock:
            before = self.report(learner_state, take_back)
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
        """Remove all rows. The insertion quota stays."""
        self.rows.reset()
        return self.report()

    def statistics(self) -> Statistics:
        """Return statistics of the rows."""
        with self.rows.state.snapshot() as state:
            return statistics_of(state)

    def check_valid(self) -> None:
        """Raise a ValueError if the state of the rows contradicts itself."""
        self.rows.check_valid()

    def stage(self, learner_state: dict[str, Any], last: int) -> None:
        """Write the rows and the state of the learner to a staged file, which `settle` publishes.

        Args:
            learner_state (dict): The state, with the number of this save as the largest in ``saves``.
            last (int): Number of this shard's last save that all shards have written.
        """
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.settle(last)
        save_parts(self._parts, self._path, self._description, note=learner_state, staged=True)

    def settle(self, number: int) -> None:
        """Publish the staged file if it is of this save, else remove it, and load the rows if they are not yet."""
        assert self._path is not None
        path = self._path
        staged = read_header_at(staged_path(path))
        if staged is not None and save_number(staged.note) == number:
            os.replace(staged_path(path), path)
            sync(path.parent)
        elif staged is not None:
            os.unlink(staged_path(path))
        remove_temporaries(path)
        if self._resumes:
            self._load()


# What `ray.method(concurrency_group="write")` does, in a module that imports no Ray. A call cannot name the group: Ray
# Client refuses that.
Shard.insert.__ray_concurrency_group__ = "write"  # type: ignore[attr-defined]


def other_run(path: object) -> FileExistsError:
    """Return the error for a folder with the shards of another run."""
    return FileExistsError(
        f"For 'ShardedReplay', 'folder' must contain no shards of another run, but {path} exists. Continue that run "
        "with resume=True, or name another folder."
    )


def save_number(learner_state: Mapping[str, Any]) -> int:
    """Return the number of the save that holds this state of the learner."""
    return max(learner_state["saves"])


def _replaces() -> bool:
    """Return True if this process replaces one that died."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own code uses a deprecated property
        return bool(importlib.import_module("ray").get_runtime_context().was_current_actor_reconstructed)
