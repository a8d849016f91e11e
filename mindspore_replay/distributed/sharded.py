"""A buffer whose rows are in several processes, for one learner."""

import copy
import logging
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any, NoReturn

import mindspore as ms
import numpy as np
from mindspore import Tensor

from ..store.base.checks import check_number, check_size
from ..store.base.habits import NoContainer, wrong_sample
from ..store.base.mixins import Closing
from ..store.base.types import Values
from ..store.faces.methods import BufferMethods, describe
from ..store.spec.needs import need_episodes
from ..store.spec.options import Options
from ..store.spec.registry import registered
from ..store.spec.spec import BufferSpec
from ..store.waits.limiter import RateLimiter, check_limiter
from ..training.statistics import Statistics, merged
from .cluster import actors, claim, connect
from .configuration import check_sample_size, shard_specs, split, whole_spec
from .exchange import Exchange
from .front import ShardCalls, ShardFront
from .shard import MOST_SHARDS
from .writer import ShardWriter

logger = logging.getLogger("mindspore_replay.distributed")

_NAME = "ShardedReplay"


@registered
class ShardedReplay(NoContainer, Closing):
    r"""A buffer for one learner, with its rows in several processes on one or more machines.

    Each shard is a Ray actor with a buffer of `mindspore_replay.host`, without MindSpore. Writers, in any process,
    insert into one shard each. The learner samples all shards in proportion to the sum of their rows' weights (without
    priorities: to the number of rows), as if the rows were in one buffer. Call its methods from Python, and pass the
    batch to a compiled step.

    Differences from one buffer:

    - *Time of weights.* A shard is chosen by the weights in its latest answer, a row by the weights when it is sampled.
      Importance weights follow from these probabilities. Without priorities, a batch is sampled again if a shard's
      number of rows has changed.
    - *Rows by position.* `get_item`, `rows`, `sample_range` and `sample_groups` are missing: rows of different shards
      have no order.
    - *Handles* include the shard. They become invalid when the process of the shard is replaced.
    - *Use counts.* Rows that a shard sampled but did not deliver in time count as used.
    - *Rows in transit.* Methods that read or change rows first send the rows collected by this process's writers and
      wait for their insertion. They do not wait for rows blocked by the limiter, of an open episode, for a shard that
      does not answer, or of writers in other processes. Call `ShardWriter.flush` there.

    See ``docs/ray.md`` for examples and for what happens when processes die.

    If Ray is not connected, it connects to the cluster of ``RAY_ADDRESS``, or to a new one on this machine that listens
    on the loopback address only.

    Axes: ``B`` sample_size, ``*F`` a column's shape.

    Args:
        config (Mapping): The configuration of one buffer, as for `create_buffer`. `capacity` is that of all shards
            together. Classes: uniform, prioritized, sequence and episode, with the native backend. Its key ``shards``
            may be the number of shards, or a mapping with ``number`` and any of the arguments below.
        num_shards (Union[int, None]): Number of shards, at most 4096. Default: ``None``, for the configuration's.
        folder (Union[str, None]): Folder for `save`, on each shard's machine or a shared disk. A shard whose process
            dies restarts from its last file there. Default: ``None``, to restart empty.
        timeout (float): Longest wait for a shard, in seconds. After that, the others continue without it until it
            answers. Default: ``5.0``.
        name (Union[str, None]): Name under which the shards outlive the learner's process, and another learner finds
            them. Default: ``None``, to end with it.
        resume (bool): Whether new shards load the files in `folder`. Default: ``False``.
        batch (int): Rows that a writer sends at once. Default: ``64``.
        in_flight (int): Batches that a writer may have in transit. Default: ``2``.
        resources (Union[Mapping, None]): Ray's options for each shard's actor, such as ``{"num_cpus": 2}``. Default:
            ``None``, to spread over the machines.

    Attributes:
        limiter (Union[RateLimiter, None]): Makes writers and `sample` wait, as for a buffer. It counts the rows of all
            shards.
        sample_size (int): ``B``, rows of one sample.
        capacity (int): Rows of all shards together.
        num_shards (int): Number of shards.
        deaths (int): Shard processes that died, as far as this object knows.
        timeouts (int): Answers that were late.

    Raises:
        ImportError: If Ray is not installed.
        TypeError: If an argument is of another type.
        ValueError: If the configuration is invalid or cannot be sharded, the limiter's `error_buffer` is too small for
            a writer's `batch`, or shards of this `name` have another configuration.
        RuntimeError: If another learner uses the shards of this `name`.
        TimeoutError: If the shards do not start, for example if the cluster has too few processors.

    Examples:
        >>> import tempfile
        >>> from mindspore_replay import create_buffer
        >>> config = {"type": "prioritized", "capacity": 1000, "sample_size": 4, "shapes": [()], "types": ["int32"]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     replay = create_buffer(config | {"shards": {"number": 2, "folder": folder}})
        ...     replay = replay.insert([list(range(100))])
        ...     indices, weights, step = replay.sample()
        ...     print(replay.size(), step.shape, replay.update_priorities(indices, step))
        ...     print(replay.writer().insert([7]).flush().inserted, replay.statistics().values["inserted"])
        ...     replay.save()
        ...     replay.close()
        100 (4,) 0
        1 101
    """

    spec: BufferSpec
    options: Options
    capacity: int
    sample_size: int
    _front: ShardFront
    insert = add = BufferMethods.insert
    update, update_priorities = BufferMethods.update, BufferMethods.update_priorities
    delete, info, advance = BufferMethods.delete, BufferMethods.info, BufferMethods.advance
    check_valid, __len__, __bool__ = BufferMethods.check_valid, BufferMethods.__len__, BufferMethods.__bool__

    def __init__(
        self,
        config: Mapping[str, Any],
        num_shards: int | None = None,
        *,
        folder: str | None = None,
        timeout: float | None = None,
        name: str | None = None,
        resume: bool = False,
        batch: int | None = None,
        in_flight: int | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        arguments = {"number": num_shards, "folder": folder, "timeout": timeout, "name": name, "batch": batch}
        config, settings = split(config, {**arguments, "in_flight": in_flight, "resources": resources})
        self.num_shards = check_size(_NAME, "num_shards", settings["number"], MOST_SHARDS)
        seconds = check_number(_NAME, "timeout", settings.get("timeout", 5.0), 1e-3, 1e6)
        batch = check_size(_NAME, "batch", settings.get("batch", 64))
        in_flight = check_size(_NAME, "in_flight", settings.get("in_flight", 2))
        whole, limiter = whole_spec(config)
        seed = config.get("seed")
        self._specs = shard_specs(whole, self.num_shards, seed)
        check_sample_size(self._specs, whole.sample_size)
        if limiter is not None:
            limiter.check_sizes(batch, whole.sample_size)
        self._ray = connect()
        self._folder, name = settings.get("folder"), settings.get("name")
        place = None if name is None else claim(name)
        shards, new = actors(self._specs, settings)
        self._turn = count()
        self._exchange = Exchange(shards, seconds, whole, limiter, place)
        self._batch, limit = batch, None if limiter is None else limiter.timeout
        try:
            self.nbytes = self._exchange.begin(self._specs, new, resume, self._folder)
        except BaseException:
            self._exchange.end(new)
            raise
        if self._exchange.samples:
            seed = [self._exchange.samples, *np.random.default_rng(seed).integers(1 << 32, size=2)]
        spec = whole.called(_NAME)
        self.prioritized, self.weighted = spec.prioritized, spec.weighted
        writer = partial(ShardWriter, shards, spec=self._specs[-1], batch=batch, in_flight=in_flight, timeout=limit)
        calls = ShardCalls(self._exchange, spec, np.random.default_rng(seed), writer)
        describe(self, spec, ShardFront(calls, spec))

    @property
    def limiter(self) -> RateLimiter | None:
        """The limiter that writers and `sample` wait for, or ``None`` for none."""
        return self._exchange.limiter

    @limiter.setter
    def limiter(self, limiter: RateLimiter | None) -> None:
        check_limiter(_NAME, None, limiter)
        if limiter is not None:
            limiter.check_sizes(self._batch, self.sample_size)
        stored = len(self)  # which do not count for the ratio
        if limiter is not None:
            limiter.begin(stored, self.options)
        self._exchange.limiter = limiter

    def with_sample_size(self, sample_size: int) -> "ShardedReplay":
        """Return an object for the same shards, writers, limiter and counts, with another sample size.

        Closing either closes the shards.

        Args:
            sample_size (int): Rows of one sample.

        Returns:
            ShardedReplay: The object.

        Raises:
            TypeError: If `sample_size` is no int.
            ValueError: If it is not positive, larger than any possible sample, or too large for the limiter's
                `error_buffer`.
        """
        self._exchange.check_open()
        size = check_sample_size(self._specs, sample_size)
        if self.limiter is not None:
            self.limiter.check_sizes(self._batch, size)
        clone, spec = copy.copy(self), self.spec.resized(size)
        describe(clone, spec, ShardFront(self._front.calls.resized(spec), spec))
        return clone

    # Rows in.

    def writer(self, shard: int | None = None) -> ShardWriter:
        """Return a writer. It may be passed to another Ray actor.

        Args:
            shard (Union[int, None]): Number of the shard. Default: ``None``, for each in turn.

        Returns:
            ShardWriter: The writer.

        Raises:
            TypeError: If `shard` is no int.
            ValueError: If there is no such shard.
        """
        self._exchange.check_open()
        number = next(self._turn) % self.num_shards if shard is None else shard
        return self._front.calls.writer(shard=check_size(_NAME, "shard", number, self.num_shards - 1, minimum=0))

    def end_episodes(self) -> int:
        """End the open episode of rows inserted without a writer, as `ShardWriter.end_episodes` does.

        Returns:
            int: Episodes ended, 0 or 1.

        Raises:
            RuntimeError: If the buffer does not store episodes.
        """
        need_episodes(self.spec.options, "end_episodes")
        return self._front.calls.end_episodes()

    # Rows out.

    def sample(
        self,
        *_misplaced: NoReturn,
        beta: Values | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        **_unknown: NoReturn,
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Sample a batch from all shards that answer, each row with its probability in their union.

        Args:
            beta (Union[float, Tensor, None]): As for `PrioritizedReplayBuffer.sample`. Default: ``None``.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.
            with_indices (bool): As for `ReplayBuffer.sample`, where handles are not returned anyway. Default:
                ``False``.

        Returns:
            tuple[Tensor, ...]: The outputs of the buffer's `sample`: handles, importance weights and other bookkeeping,
            if any, and the columns ``[B, *F]``.

        Raises:
            TypeError: If `beta` is not a number, or `as_dict` is set and the buffers have no names.
            ValueError: If `beta` is outside [0, 1], or the limiter's `error_buffer` is too small for a waiting
                insertion.
            RuntimeError: If fewer than `sample_size` rows are eligible, no shard answers, `with_indices` is set without
                handles, or `beta` without priorities.
            TimeoutError: If too few rows are inserted within the limiter's timeout.
        """
        if _misplaced or _unknown:
            raise wrong_sample(_NAME, self, _misplaced, _unknown, self._OTHER_SIZE)
        return self._front.sample(None, beta, as_dict, with_indices)

    @property
    def state(self) -> ShardFront:
        """What the rest of the package asks beside public methods: a turn to sample."""
        return self._front

    def can_sample(self) -> Tensor:
        """Return True if `sample_size` rows of the shards that answer are eligible and the limiter allows the sample.

        Shape ``[]``, bool.
        """
        return Tensor(self._front.can_sample())

    def size(self) -> Tensor:
        """Return the number of rows stored in the shards that answer. Shape ``[]``, int32."""
        return Tensor(len(self), ms.int32)

    def full(self) -> Tensor:
        """Return True if every shard is full. Shape ``[]``, bool."""
        return Tensor(len(self) == self.capacity)

    def reset(self) -> "ShardedReplay":
        """Remove all rows of the shards that answer, and reset clock, beta and limiter.

        Returns:
            ShardedReplay: The buffer itself.
        """
        self._front.reset()
        return self

    def save(self) -> None:
        """Write each shard to ``save_<time>/shard_<number>.safetensors`` in the folder, as the function `save` does.

        Older saves are removed once all shards have written, so any process may be killed at any time.
        Writers wait meanwhile. A shard that does not answer is skipped. Rows of this process that the limiter blocks,
        or whose shard does not answer, are not saved. A warning counts them.

        Raises:
            RuntimeError: If there is no `folder`, or no shard answers.
            OSError: If a file cannot be written.
        """
        if self._folder is None:
            raise RuntimeError(f"For '{_NAME}', 'save' needs a ShardedReplay made with 'folder'.")
        self._front.ready()
        links = list(self._exchange.reports())
        if left := self._front.calls.on_their_way:
            why = "the limiter holds them back, or their shard does not answer"
            logger.warning("save: %d rows that were inserted are in no file: %s", left, why)
        self._exchange.save(links)

    def statistics(self) -> Statistics:
        """Return the statistics of all shards together, for `ReplayMonitor`, and of each as ``shard_0/...``.

        ``shards_alive`` of ``shards`` answer, ``shard_deaths`` processes died, and ``shard_timeouts`` answers were
        late. Rows inserted and sampled, and invalid handles, are counted by this learner.

        Returns:
            Statistics: Values and distributions.
        """
        self._front.ready()
        parts = self._exchange.ask_all("statistics")
        whole = merged({link.number: part for link, part in parts.items()})
        own: dict[str, Any] = {"capacity": self.capacity, "shards": self.num_shards, "shards_alive": len(parts)}
        own |= {"inserted": self._exchange.inserted, "sampled": self._exchange.sampled}
        own |= {"shard_deaths": self.deaths, "shard_timeouts": self.timeouts}
        if self.prioritized:
            own |= {"beta": self._exchange.beta, "invalid_handles": self._exchange.invalid_handles}
        return Statistics(whole.values | own, whole.histograms)

    @property
    def deaths(self) -> int:
        """Shard processes that died, as far as this object knows."""
        return self._exchange.deaths

    @property
    def timeouts(self) -> int:
        """Late answers of shards."""
        return self._exchange.timeouts

    def close(self) -> None:
        """End the shards, also named ones. Later calls of other methods raise a RuntimeError."""
        self._exchange.end(link.actor for link in self._exchange.all)

    def __repr__(self) -> str:
        answering = sum(link.ping is None for link in self._exchange.all)
        return (
            f"ShardedReplay(num_shards={self.num_shards}, answering={answering}, "
            f"capacity={self.capacity}, sample_size={self.sample_size}, inserted={self._exchange.inserted}, "
            f"on_their_way={self._front.calls.on_their_way}, sampled={self._exchange.sampled}, limiter={self.limiter})"
        )
