"""Replay buffers without MindSpore: the classes of the package on NumPy arrays, in the memory of this process.

Constructors, methods, results and errors are those of the classes of the same names in `mindspore_replay`, with arrays
in place of Tensors, and numbers in place of Tensors of one number. Samples for the same seed are the same. NumPy has no
bfloat16: such columns hold its bits, uint16.
"""

import contextlib
import copy
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from .store import state
from .store.arrays import ArrayBuffer
from .store.checks import check_size
from .store.compressed import CompressedStore
from .store.front import LocalFront
from .store.groups import as_groups
from .store.library import library_for
from .store.mixins import mixin
from .store.mixture import ArrayMixture
from .store.rate_rule import QueueAccount
from .store.recipe.classes import (
    ElasticRecipe,
    EpisodeRecipe,
    EpochRecipe,
    PrioritizedRecipe,
    QueueRecipe,
    ReplayRecipe,
    ReservoirRecipe,
    SequenceRecipe,
)
from .store.recipe.parts import InOrder
from .store.recipe.spec import BufferSpec, Recipe
from .store.relabelling import RelabelOfArrays
from .store.store import STATE_VERSION, Store
from .store.waiting import QueueLimiter

__all__ = [
    "ElasticReplayBuffer",
    "EpisodeReplayBuffer",
    "EpochReplayBuffer",
    "MixedReplay",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "ReplayQueue",
    "ReservoirReplayBuffer",
    "SequenceReplayBuffer",
]

_Host = TypeVar("_Host", bound="HostBuffer")


class HostFront(LocalFront):
    """The calls of a buffer in the memory of this process.

    Args:
        store (Store): The rows.
        spec (BufferSpec): What the buffer is.
        lock (RLock): Held during each call.
    """

    calls: Store
    #: Waits for rows and room, of a queue.
    limiter: QueueLimiter | None = None

    def __init__(self, store: Store, spec: BufferSpec, lock: Any) -> None:
        super().__init__(store, spec, lock, lambda array: array, int)
        #: Set when the rows are closed, for the buffers of all sample sizes on them.
        self.closed = threading.Event()
        plan = spec.relabelling
        if plan is not None:
            relabel, before = RelabelOfArrays(plan), spec.has_handles + spec.prioritized
            self.finish = lambda batch: relabel(batch, before)

    def ready(self) -> None:
        """Raise a RuntimeError if the buffer was closed."""
        if self.closed.is_set():
            raise RuntimeError(f"For '{self.spec.cls_name}', the buffer was closed: make another.")

    ready_to_read = ready

    def try_insert(self, *given: Any) -> bool:
        """Store rows that obviously fit, unless they may have to wait."""
        with self.lock:
            self.ready()
            return not self.is_limited and self.calls.try_insert(*given)


@mixin
class HostBuffer(Recipe, ArrayBuffer):
    """The base class of buffers in the memory of this process; a subclass has the constructor of a public class."""

    def _make(self, spec: BufferSpec, storage: Any, backend: Any) -> None:
        name = spec.cls_name
        if storage not in ("device", "host") or backend not in ("native", "auto"):
            raise ValueError(
                f"For '{name}' of mindspore_replay.host, 'storage' must be 'host', and 'backend' must be 'native', but "
                f"got {storage!r} and {backend!r}: its rows are in the memory of this process."
            )
        if library_for("CPU").reason:
            raise RuntimeError(f"For '{name}', the kernels of the CPU are needed: {library_for('CPU').reason}.")
        relabelling = spec.relabelling
        if relabelling is not None and "bfloat16" in (relabelling.goal_type, relabelling.reward_type):
            raise TypeError(f"For '{name}' of mindspore_replay.host, HindsightRelabel cannot compute with bfloat16.")
        store = CompressedStore if spec.columns.compressed else Store
        ArrayBuffer.__init__(self, spec, HostFront(store(spec.columns, spec.options), spec, threading.RLock()))
        self._begin()

    def _begin(self) -> None:
        """Make what a subclass has besides."""

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays of the state by name, in this buffer's own memory."""
        return self._front.calls.arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def rows(self, *, as_dict: bool = False) -> Any:
        """Read all rows of a full buffer, as `Buffer.rows` does."""
        return self._front.rows(as_dict)

    def reset(self: _Host) -> _Host:
        """Remove all rows, as `Buffer.reset` does."""
        self._front.reset()
        return self

    def with_sample_size(self: _Host, sample_size: int) -> _Host:
        """Return an object on the same rows for another sample size, as `Buffer.with_sample_size` does."""
        made, front, spec = copy.copy(self), self._front, self.spec.resized(sample_size)
        resized = HostFront(front.calls.resized(spec.options), spec, front.lock)
        resized.limiter, resized.closed = front.limiter, front.closed
        ArrayBuffer.__init__(made, spec, resized)
        return made

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the state, as `Buffer.state_dict` does."""
        with self._front.lock:
            self._front.ready()
            return self._front.calls.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state, as `Buffer.load_state_dict` does."""
        with self._front.lock:
            self._front.ready()
            self._front.calls.load_state_dict(state_dict)

    # For mixtures.

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """The lock that calls hold."""
        return self._front.lock

    def checked_state(self, state_dict: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Check a state, with the errors of `load_state_dict`, and return the arrays for `load_checked`."""
        return state.checked(self.spec.columns, self.spec.options, state_dict, STATE_VERSION)

    def sole_use(self, arrays: Mapping[str, np.ndarray]) -> contextlib.AbstractContextManager[None]:
        """Return a block in which the state may be replaced."""
        return self._front.calls.sole_use(arrays)

    def load_checked(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy checked arrays into the state; the caller has `sole_use` for them."""
        with self._front.lock:
            self._front.ready()
            self._front.calls.load_checked(arrays)

    def close(self) -> None:
        """Free the memory of the rows; the buffer, and those of other sample sizes on it, cannot be used any more."""
        with self._front.lock:
            if not self._front.closed.is_set():
                self._front.closed.set()
                self._front.calls.close()


class ReplayBuffer(ReplayRecipe, HostBuffer):
    """A ring of rows, drawn with equal probability: `mindspore_replay.ReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReplayBuffer
        >>> buffer = ReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], names=["step"], seed=0)
        >>> buffer = buffer.insert([list(range(9))])
        >>> print(*buffer.sample(), buffer.sample(as_dict=True)["step"])
        [5 6 3] [5 7 1]
    """


class PrioritizedReplayBuffer(PrioritizedRecipe, HostBuffer):
    """A ring of rows, drawn by priority: `mindspore_replay.PrioritizedReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], priority=[1.0, 0.0, 1.0])
        >>> indices, weights, step = buffer.sample()
        >>> print(indices, weights, step, buffer.update_priorities(indices, [1.0, 2.0, 3.0]))
        [0 2 2] [1. 1. 1.] [10 12 12] 0
    """


class SequenceReplayBuffer(SequenceRecipe, HostBuffer):
    """A ring of steps, drawn as sequences: `mindspore_replay.SequenceReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import SequenceReplayBuffer
        >>> buffer = SequenceReplayBuffer(1, 8, shapes=[()], types=["int32"], sequence_length=2, seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
        >>> print(*buffer.sample())
        [1] [[ True  True]] [[11 12]]
    """


class EpisodeReplayBuffer(EpisodeRecipe, HostBuffer):
    """A ring of steps, drawn as whole episodes: `mindspore_replay.EpisodeReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import EpisodeReplayBuffer
        >>> buffer = EpisodeReplayBuffer(1, 8, shapes=[()], types=["int32"], max_episode_length=4, seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
        >>> print(*buffer.sample())
        [0] [3] [[ True  True  True False]] [[10 11 12  0]]
    """

    def sample_groups(
        self, key: str, groups: int, size_in_group: int, ordered: bool = True, *, as_dict: bool = False
    ) -> Any:
        """Draw groups and rows of each, as `mindspore_replay.EpisodeReplayBuffer.sample_groups` does."""
        given = as_groups(self.spec, key, groups, size_in_group, ordered)
        return self._front.sample_groups(given, as_dict, self.arrays.__getitem__)


class ElasticReplayBuffer(ElasticRecipe, HostBuffer):
    """A ring of rows, drawn from the newest: `mindspore_replay.ElasticReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ElasticReplayBuffer
        >>> buffer = ElasticReplayBuffer(3, 100, shapes=[()], types=["int32"], window=5, seed=0)
        >>> print(*buffer.insert([list(range(100))]).set_window(50).sample())
        [82 85 69]
    """

    def set_window(self, window: int) -> "ElasticReplayBuffer":
        """Set the number of newest rows to draw from, as `mindspore_replay.ElasticReplayBuffer.set_window` does."""
        size = check_size(type(self).__name__, "window", window, self.capacity, self.sample_size)
        with self._front.lock:
            self._front.ready()
            with self._front.calls.kernels_kept_out():
                self.arrays["window"][0] = size
        return self


class ReservoirReplayBuffer(ReservoirRecipe, HostBuffer):
    """A reservoir of all rows so far: `mindspore_replay.ReservoirReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReservoirReplayBuffer
        >>> buffer = ReservoirReplayBuffer(sample_size=3, capacity=4, shapes=[()], types=["int32"], seed=0)
        >>> print(*buffer.insert([list(range(100))]).sample())
        [28 28 29]
    """


class EpochReplayBuffer(EpochRecipe, HostBuffer):
    """A ring of rows, each drawn once an epoch: `mindspore_replay.EpochReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import EpochReplayBuffer
        >>> buffer = EpochReplayBuffer(2, 8, shapes=[()], types=["int32"], names=["step"], seed=0)
        >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
        >>> for batch in buffer.minibatches(epochs=2, as_dict=True):
        ...     print(batch["step"])
        [10 14]
        [13 11]
        [14 12]
        [11 13]
    """

    def batches(self) -> int:
        """Return the number of batches in an epoch over the rows that are stored now."""
        return self._front.batches()

    def begin_epoch(self) -> "EpochReplayBuffer":
        """End the epoch in progress: the next sample begins another."""
        self._front.begin_epoch()
        return self

    def minibatches(self, epochs: int = 1, *, as_dict: bool = False) -> Iterator[Any]:
        """Iterate over the batches of new epochs, as `mindspore_replay.EpochReplayBuffer.minibatches` does."""
        for _ in range(check_size(type(self).__name__, "epochs", epochs)):
            yield from self._front.minibatches(lambda: self.sample(as_dict=as_dict))


class MixedReplay(ArrayMixture):
    """Batches from several buffers of this module: `mindspore_replay.MixedReplay` on arrays.

    Examples:
        >>> from mindspore_replay.host import MixedReplay, ReplayBuffer
        >>> columns = {"shapes": [()], "types": ["int32"], "seed": 0}
        >>> agent, expert = (ReplayBuffer(1, 9, **columns).insert([list(range(n, n + 9))]) for n in (0, 100))
        >>> source, step = MixedReplay([(agent, 0.5), (expert, 0.5)], sample_size=4).sample()
        >>> print(source, step)
        [0 0 1 1] [  5   6 105 106]
    """

    _source_class = HostBuffer


class ReplayQueue(QueueRecipe, HostBuffer):
    """A queue of steps of which each is delivered once: `mindspore_replay.ReplayQueue` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReplayQueue
        >>> queue = ReplayQueue(sample_size=2, capacity=4, shapes=[()], types=["int32"])
        >>> print(*queue.insert([[10, 11, 12, 13]]).sample(), *queue.sample(), queue.can_sample())
        [10 11] [12 13] False
    """

    def _begin(self) -> None:
        sampler = self.spec.parts.sampler
        assert isinstance(sampler, InOrder)
        self._front.limiter = QueueLimiter(self, sampler.timeout)

    def signals(self) -> tuple[Any, None]:
        """Return the condition of waits; for the limiter."""
        return threading.Condition(self._front.lock), None

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room for new ones."""
        with self._front.lock:
            self._front.ready()
            return QueueAccount.of(self._front.calls, self.spec.options)
