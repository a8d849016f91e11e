"""Replay buffers without MindSpore: the classes of the package on NumPy arrays, in memory or in a folder.

Constructors, methods, results and errors are those of the classes of the same names in `mindspore_replay`, with arrays
in place of Tensors, and numbers in place of Tensors of one number. Samples for the same seed are the same. NumPy has no
bfloat16: such columns contain its bits as uint16.
"""

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from .checkpoint.buffers import Maker, load_buffers, save
from .config.configuration import create
from .store.base.checks import check_size
from .store.base.habits import only_from_python
from .store.base.mixins import mixin
from .store.faces.arrays import ArrayBuffer
from .store.faces.attached import attach
from .store.faces.front import LocalFront, SharedRows
from .store.faces.groups import as_groups
from .store.faces.mixture import ArrayMixture
from .store.faces.place import HOST, check_compressed, checked_storage, folder_of
from .store.faces.relabelling import RelabelOfArrays
from .store.faces.saved import Plain, SavedState
from .store.kernels import library, state
from .store.kernels.call import Tensors
from .store.kernels.library import library_for
from .store.rows.any_length import make_store
from .store.rows.compressed import CompressedColumn
from .store.rows.store import Store
from .store.spec.classes import (
    ElasticRecipe,
    EpisodeRecipe,
    EpochRecipe,
    PrioritizedRecipe,
    QueueRecipe,
    ReplayRecipe,
    ReservoirRecipe,
    SequenceRecipe,
)
from .store.spec.spec import BufferSpec, Recipe
from .store.waits.limiter import RateLimiter
from .store.waits.rate_rule import QueueAccount
from .store.waits.waiting import Waiting

__all__ = [
    "ElasticReplayBuffer",
    "EpisodeReplayBuffer",
    "EpochReplayBuffer",
    "MixedReplay",
    "PrioritizedReplayBuffer",
    "RateLimiter",
    "ReplayBuffer",
    "ReplayQueue",
    "ReservoirReplayBuffer",
    "SequenceReplayBuffer",
    "attach",
    "create_buffer",
    "load",
    "save",
]

_Host = TypeVar("_Host", bound="HostBuffer")


def _front_of(store: Store, spec: BufferSpec, shared: SharedRows) -> LocalFront:
    front = LocalFront(store, spec, shared)
    if spec.relabelling is not None:
        front.relabel = RelabelOfArrays(spec.relabelling)
    return front


@mixin
@only_from_python
class HostBuffer(Recipe, SavedState, ArrayBuffer):
    """The base class of buffers on arrays. A subclass has the constructor of a public class."""

    def _make(self, spec: BufferSpec, storage: object, backend: object) -> None:
        name, place = spec.cls_name, checked_storage(spec.cls_name, storage, HOST)
        if backend not in ("native", "auto"):
            raise ValueError(
                f"For '{name}' of mindspore_replay.host, 'backend' must be 'native' or 'auto', but got {backend!r}."
            )
        if library_for("CPU").reason:
            raise RuntimeError(f"For '{name}', the kernels of the CPU are needed: {library_for('CPU').reason}.")
        relabelling = spec.relabelling
        if relabelling is not None and "bfloat16" in (relabelling.goal_type, relabelling.reward_type):
            raise TypeError(f"For '{name}' of mindspore_replay.host, HindsightRelabel cannot compute with bfloat16.")
        check_compressed(spec, place)
        shared = SharedRows(folder_of(spec, place))
        tensors = Tensors(guard=library.calls.Guard(shared.lock))
        ArrayBuffer.__init__(self, spec, _front_of(make_store(spec, tensors, shared.folder), spec, shared))
        self._front.begin_queue()

    @staticmethod
    def _find(name: str) -> Any:
        return globals().get(name)

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays of the state by name, in this buffer's own memory."""
        return self._front.calls.arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays. Of compressed columns, those now."""
        return sum(array.nbytes for array in {**self.arrays, **self._front.calls.compressed}.values())

    @property
    def limiter(self) -> Waiting | None:
        """The `RateLimiter` that `insert` and `sample` wait for, or ``None``. A queue has a fixed one."""
        return self._front.limiter

    @limiter.setter
    def limiter(self, limiter: RateLimiter | None) -> None:
        self._front.set_limiter(limiter)

    def rows(self, *, as_dict: bool = False) -> Any:
        """Read all rows of a full buffer, as `Buffer.rows` does."""
        return self._front.rows(as_dict)

    def reset(self: _Host) -> _Host:
        """Remove all rows, as `Buffer.reset` does."""
        self._front.reset()
        return self

    def with_sample_size(self: _Host, sample_size: int) -> _Host:
        """Return an object on the same rows for another sample size, as `Buffer.with_sample_size` does."""
        return self._sized(sample_size)  # type: ignore[no-any-return]

    def _resized(self: _Host, size: int) -> _Host:
        made, front, spec = self._copied(), self._front, self.spec.resized(size)
        resized = _front_of(front.calls.resized(spec.options), spec, front.shared)
        resized.limit(front.limiter)
        ArrayBuffer.__init__(made, spec, resized)
        return made

    def _copied(self: _Host) -> _Host:
        made: _Host = object.__new__(type(self))
        vars(made).update({key: value for key, value in vars(self).items() if key != "_sizes"})
        return made

    def __deepcopy__(self: _Host, memo: dict[Any, Any]) -> _Host:
        """Make an independent buffer with the same rows in memory, and a copy of the limiter.

        Buffers that `with_sample_size` made on the same rows are so in a copy of their owner too.
        """
        rows = "rows", id(self._front.shared)
        if rows in memo:
            memo[id(self)] = made = memo[rows].with_sample_size(self.sample_size)
            return made  # type: ignore[no-any-return]
        with self.snapshot(columns=True) as arrays:
            memo[id(self)] = memo[rows] = made = self._copied()
            made._make(self.spec, HOST, "native")
            if isinstance(self.limiter, RateLimiter):
                made.limiter = copy.deepcopy(self.limiter, memo)
            for key, one in made.state_arrays().items():  # no kernel may run: the block may keep it out too
                if isinstance(one.array, CompressedColumn):
                    one.array.load_checked(arrays[key])
                else:
                    one.array[...] = arrays[key]
        return made

    # For files.

    @property
    def updates(self) -> np.ndarray:
        """The numbers of updates, as in `state.whole_layout`."""
        return self._front.calls.updates

    def state_arrays(self) -> dict[str, Plain]:
        """Return the arrays of the state by name, the limiter's too."""
        calls, limiter = self._front.calls, self.limiter
        limits = limiter.arrays() if isinstance(limiter, RateLimiter) else {}
        layout = state.layout(self.spec.columns, self.spec.options)
        arrays = {key: Plain(array, layout[key][1]) for key, array in {**calls.arrays, **calls.compressed}.items()}
        return arrays | {f"limiter.{key}": Plain(array, array.dtype.name) for key, array in limits.items()}


class ReplayBuffer(ReplayRecipe, HostBuffer):
    """A ring of rows, sampled uniformly: `mindspore_replay.ReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReplayBuffer
        >>> buffer = ReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], names=["step"], seed=0)
        >>> buffer = buffer.insert([list(range(9))])
        >>> print(*buffer.sample(), buffer.sample(as_dict=True)["step"])
        [5 6 3] [5 7 1]
    """


class PrioritizedReplayBuffer(PrioritizedRecipe, HostBuffer):
    """A ring of rows, sampled by priority: `mindspore_replay.PrioritizedReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], priority=[1.0, 0.0, 1.0])
        >>> indices, weights, step = buffer.sample()
        >>> print(indices, weights, step, buffer.update_priorities(indices, [1.0, 2.0, 3.0]))
        [0 2 2] [1. 1. 1.] [10 12 12] 0
    """


class SequenceReplayBuffer(SequenceRecipe, HostBuffer):
    """A ring of steps, sampled as sequences: `mindspore_replay.SequenceReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import SequenceReplayBuffer
        >>> buffer = SequenceReplayBuffer(1, 8, shapes=[()], types=["int32"], sequence_length=2, seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
        >>> print(*buffer.sample())
        [1] [[ True  True]] [[11 12]]
    """


class EpisodeReplayBuffer(EpisodeRecipe, HostBuffer):
    """A ring of steps, sampled as whole episodes: `mindspore_replay.EpisodeReplayBuffer` on arrays.

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
    """A ring of rows, sampled from the newest: `mindspore_replay.ElasticReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ElasticReplayBuffer
        >>> buffer = ElasticReplayBuffer(3, 100, shapes=[()], types=["int32"], window=5, seed=0)
        >>> print(*buffer.insert([list(range(100))]).set_window(50).sample())
        [82 85 69]
    """

    def set_window(self, window: int) -> "ElasticReplayBuffer":
        """Set the number of newest rows to draw from, as `mindspore_replay.ElasticReplayBuffer.set_window` does."""
        least = self.spec.options.min_rows_to_sample
        size = check_size(type(self).__name__, "window", window, self.capacity, least)
        with self.exclusive():
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
    """A ring of rows, each sampled once an epoch: `mindspore_replay.EpochReplayBuffer` on arrays.

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
    """Samples of several buffers of this module, mixed: `mindspore_replay.MixedReplay` on arrays.

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
    """A queue that delivers each step once: `mindspore_replay.ReplayQueue` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReplayQueue
        >>> queue = ReplayQueue(sample_size=2, capacity=4, shapes=[()], types=["int32"])
        >>> print(*queue.insert([[10, 11, 12, 13]]).sample(), *queue.sample(), queue.can_sample())
        [10 11] [12 13] False
    """

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room for new ones."""
        return self._front.account()


def create_buffer(config: Mapping[str, Any], create_config: Mapping[str, Any] | None = None) -> Any:
    """Make the buffers of a configuration, as `mindspore_replay.create_buffer` does.

    Args:
        config (Mapping): The configuration: MindSpore RL's keys, or DI-engine's.
        create_config (Union[Mapping, None]): DI-engine's second dict. Default: ``None``.

    Returns:
        Union[HostBuffer, list, dict]: A buffer; for `number` > 1 a list; for several buffers a dict of them.

    Raises:
        TypeError, ValueError: If a key or a value does not fit, or `shards` is asked for.

    Examples:
        >>> from mindspore_replay.host import create_buffer
        >>> config = {"type": "prioritized", "capacity": 1000, "sample_size": 32, "alpha": 0.7}
        >>> buffer = create_buffer(config | {"data_shape": [(4,), ()], "data_type": ["float32", "int32"]})
        >>> print(type(buffer).__name__, buffer.capacity, buffer.sample_size)
        PrioritizedReplayBuffer 1000 32
    """
    return create(_MAKER, config, create_config)


def load(
    path: str | os.PathLike[str], *, buffer: Any = None, capacity: int | None = None, progress: bool = False
) -> Any:
    """Make the buffer in a file, also one of `mindspore_replay.save`, as `mindspore_replay.load` does.

    Args:
        path (Union[str, PathLike]): The file.
        buffer (Union[HostBuffer, dict, list, None]): Load the state into this buffer instead of a new one. Default:
            ``None``.
        capacity (Union[int, None]): Capacity of the new buffer. Default: ``None``, for that of the saved buffer.
        progress (bool): Whether to show a progress bar. Requires tqdm. Default: ``False``.

    Returns:
        Union[HostBuffer, dict, list]: What was saved, or `buffer`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated, altered or of another kind, an incremental file is missing, or `buffer` or
            `capacity` does not fit. `buffer` is unchanged then.

    Examples:
        >>> import tempfile
        >>> from mindspore_replay.host import ReplayBuffer, load, save
        >>> buffer = ReplayBuffer(sample_size=3, capacity=100, shapes=[()], types=["int32"], seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(buffer.insert([list(range(50))]), f"{folder}/buffer.safetensors")
        ...     print(*load(f"{folder}/buffer.safetensors").sample(), *buffer.sample())
        [32 35 19] [32 35 19]
    """
    return load_buffers(_MAKER, path, buffer, capacity, progress)


_MAKER = Maker(globals().get, lambda buffers, _: list(buffers), {})
