"""The end of a sharded buffer that samples."""

import contextlib
import itertools
import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from ..buffers.arguments import as_handles, need_weights
from ..buffers.parameters import overwrite
from ..buffers.replay import ReplayBuffer
from ..mindspore_api import share
from ..store.checks import check_number, check_size
from ..store.inputs import as_priority, check_length, one_number
from ..store.outputs import Maker, makers
from ..training.limiter import RateLimiter, Wait
from ..training.statistics import Statistics
from .configuration import fingerprint, sample_size_of, shard_configs, split, template
from .handles import LIVES, MOST_SHARDS, joined, parted
from .links import Link, Links
from .merging import choose, importance
from .ray_module import NAMESPACE, connect
from .shard import Drawn, Report, Shard
from .totals import added_up
from .writer import Schema, ShardWriter

logger = logging.getLogger("mindspore_replay.distributed")

#: Seconds for the processes of the shards to begin.
_START = 300.0
#: Seconds between two looks at the shards while the limiter lets nothing be sampled.
_POLL = 0.005
_NAME = "ShardedReplay"


class ShardedReplay:
    r"""A buffer whose rows lie in several processes, on as many machines as there are, for one learner.

    Each shard is a Ray actor with a buffer of its own. Writers, in any process, insert into one shard each; the learner
    draws from all of them, in proportion to the weight that their rows have together (without priorities: to their
    number), as if the rows were in one buffer. The methods are those of the buffer, called from Python: a compiled step
    takes the batch as its arguments.

    What differs from one buffer:

    - *Moment.* Shards say what their rows weigh, and then draw. Rows that writers insert in between change the weights
      within a shard; importance weights take that into account, so they are right for the draws that were made.
    - *Rows by position.* There are no `get_item`, `rows`, `sample_range` and `sample_groups`: rows of different shards
      have no order.
    - *Handles* name the shard too. Those of a shard whose process was replaced are dead.
    - *Counts of use.* Rows that a shard drew and could not deliver in time count as delivered.
    - *Rows on their way.* Every method that tells or changes something of the rows first sends the rows that writers of
      this process have taken, and waits until they have landed. It does not wait for rows that the limiter holds back,
      that belong to an episode which goes on, or whose shard does not answer, nor for writers in other processes: of
      those the rows count that have landed, which are all of them once their `flush` returns.

    ``docs/ray.md`` has examples, and what happens when processes die.

    Ray is connected if it is not: to the cluster of ``RAY_ADDRESS``, or to one that is started on this machine and
    listens to the loopback address only.

    Axes: ``B`` sample_size, ``*F`` a column's shape.

    Args:
        config (Mapping): The configuration of one buffer, as `create_buffer` takes it: `capacity` is that of all shards
            together. Classes: uniform, prioritized, sequence and episode; native backend. Its key ``shards`` may hold
            the number of shards, or a mapping with ``number`` and any of the arguments below.
        num_shards (Union[int, None]): Number of shards, at most 4096. Default: ``None``, for the configuration's.
        folder (Union[str, None]): Where `save` writes, on the machine of each shard or on a disk that they share. A
            shard whose process dies begins again with what it last wrote there. Default: ``None``: it begins empty.
        timeout (float): Seconds to wait for a shard; then the others go on without it until it answers. Default:
            ``5.0``.
        name (Union[str, None]): Name under which the shards live on when the learner's process ends, and under which
            another one finds them. Default: ``None``: they end with it.
        resume (bool): Whether shards that are made begin with what `folder` holds. Default: ``False``.
        batch (int): Rows that a writer sends together. Default: ``64``.
        in_flight (int): Batches of a writer that may be on their way. Default: ``2``.
        resources (Union[Mapping, None]): Options of Ray for each shard's actor, such as ``{"num_cpus": 2}``. Default:
            ``None``: spread over the machines.

    Attributes:
        limiter (Union[RateLimiter, None]): What writers and `sample` wait for, as for a buffer. It counts the rows of
            all shards.
        sample_size (int): ``B``, rows of one sample.
        capacity (int): Rows of all shards together.
        num_shards (int): Number of shards.
        deaths (int): Processes of shards that died, as far as this object has seen.
        timeouts (int): Answers that did not come in time.

    Raises:
        ImportError: If Ray is not installed.
        TypeError: If an argument is of another type.
        ValueError: If the configuration is none, or one that cannot be sharded; if the limiter's `error_buffer` is too
            small for a writer's `batch`; if shards of this `name` have another configuration.
        TimeoutError: If the shards do not begin, as where the cluster has too few processors.
    """

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
        given = {
            "number": num_shards, "folder": folder, "timeout": timeout, "name": name, "batch": batch,
            "in_flight": in_flight, "resources": resources,
        }  # fmt: skip
        config, settings = split(config, given)
        self.num_shards = check_size(_NAME, "num_shards", settings["number"], MOST_SHARDS)
        seconds = check_number(_NAME, "timeout", settings.get("timeout", 5.0), 1e-3, 1e6)
        self._batch = check_size(_NAME, "batch", settings.get("batch", 64))
        self._in_flight = check_size(_NAME, "in_flight", settings.get("in_flight", 2))
        configs = shard_configs(config, self.num_shards)
        smallest = template(configs[-1])
        self.sample_size = sample_size_of(config, configs, smallest)
        self._learn_from(smallest)
        if self._limiter is not None:
            self._limiter.check_sizes(self._batch, self.sample_size)
        self._rng = np.random.default_rng(config.get("seed"))
        self._turn, self._places = 0, itertools.count()
        self._clock = self._samples = self._inserted = self._dead_handles = 0
        self._take_back, self._largest = False, 1.0
        # Taken in this order; `_landing` comes before the lock of a writer, and `_asking` after it.
        self._drawing, self._inserting, self._landing, self._asking = (threading.RLock() for _ in range(4))
        self._outputs: tuple[Maker, ...] | None = None
        self._own: list[ShardWriter] = []
        self._next_own = -1
        #: Writers of this process that have rows which have not landed.
        self._busy: set[_OwnWriter] = set()
        self._ray = connect()
        self._named = settings.get("name")
        folder = settings.get("folder")
        self._folder = None if folder is None else os.path.abspath(folder)
        self._links = Links(self._actors(configs, resume, settings.get("resources") or {}), seconds)
        try:
            self._begin(configs)
        except BaseException:
            if self._named is None:
                self.close()
            raise

    def _learn_from(self, buffer: ReplayBuffer) -> None:
        """What the buffers have in common."""
        self._fingerprint = fingerprint(buffer)
        self.names, self.shapes, self.types = buffer.names, buffer.shapes, buffer.types
        self._limiter: RateLimiter | None = buffer.limiter
        buffer.limiter = None
        self.prioritized = buffer.prioritized
        self.weighted = buffer.weighted
        schema = buffer.sample_schema
        self._has_handles, self._gives_handles = schema.has_handles, schema.always_handles
        self._keys, self._fields = schema.bookkeeping, tuple(schema.fields)
        self._replace = buffer.replace
        timeout = None if self._limiter is None else self._limiter.timeout
        self._schema = Schema(buffer.columns, buffer.num_envs, buffer.has_episodes, buffer.prioritized, timeout)
        if self.prioritized:
            self._first_beta: float = buffer.first_beta
            self._beta_step = buffer.options.plan.beta_step
            self._normalize: str = buffer.normalize
            self._beta = self._first_beta

    @property
    def limiter(self) -> RateLimiter | None:
        """What writers and `sample` wait for; ``None`` for nothing."""
        return self._limiter

    @limiter.setter
    def limiter(self, limiter: RateLimiter | None) -> None:
        if limiter is not None and not isinstance(limiter, RateLimiter):
            raise TypeError(
                f"For '{_NAME}', 'limiter' must be a RateLimiter or None, but got {type(limiter).__name__}."
            )
        if limiter is not None:
            limiter.check_sizes(self._batch, self.sample_size)
        self._settle()  # what was inserted before does not count for it
        self._limiter = limiter

    # Shards.

    def _actors(self, configs: list[dict[str, Any]], resume: bool, resources: Mapping[str, Any]) -> list[Any]:
        """The shards: those that live under the name, or new ones."""
        ray = self._ray
        made = ray.remote(concurrency_groups={"write": 1}, max_restarts=-1)(Shard)
        options = {"scheduling_strategy": "SPREAD", **resources}
        actors = []
        for i, config in enumerate(configs):
            path = None if self._folder is None else f"{self._folder}/shard_{i}.safetensors"
            own = options
            if self._named is not None:
                label = f"{self._named}/shard_{i}"
                own = {**options, "name": label, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
            actors.append(made.options(**own).remote(config, path, resume))
        return actors

    def _begin(self, configs: list[dict[str, Any]]) -> None:
        """Waits until all shards have begun, and goes on from what a learner before this one left."""
        capacities: list[int] = [config.get("capacity") or config["replay_buffer_size"] for config in configs]
        calls = [link.actor.begin.remote(self._fingerprint, n) for link, n in zip(self._links.all, capacities)]
        _, late = self._ray.wait(calls, num_returns=len(calls), timeout=_START)
        if late:
            raise TimeoutError(
                f"For '{_NAME}', {len(late)} of {len(calls)} shards did not begin within {_START:g} s. Has the cluster "
                f"the resources? {self._ray.cluster_resources()}"
            )
        try:
            begun = self._ray.get(calls)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayActorError as error:
            cause = str(error).strip().splitlines()[-1]
            raise RuntimeError(f"For '{_NAME}', a shard could not begin: {cause}") from None
        self.nbytes, self.capacity = sum(nbytes for nbytes, _ in begun), sum(capacities)
        reports = self._links.ask({link: link.actor.report.remote for link in self._links.all})
        for link, report in reports.items():
            self._links.meet(link, report)
        self._go_on_from(max((memo for _, memo in begun), key=lambda memo: memo.get("samples", -1)))
        self._clock = max([self._clock, *(report.clock for report in reports.values())])
        self._reports()

    def _memo(self) -> dict[str, Any]:
        """What the learner after this one needs to go on."""
        memo: dict[str, Any] = {"samples": self._samples, "clock": self._clock, "largest": self._largest}
        if self.prioritized:
            memo["beta"] = self._beta
        if self.limiter is not None:
            memo["counts"] = self.limiter.counts.asnumpy().tolist()
            memo["seen"] = {str(link.identity): link.seen for link in self._links.all}
        return memo

    def _go_on_from(self, memo: Mapping[str, Any]) -> None:
        if not memo:
            return
        self._samples, self._clock, self._largest = memo["samples"], memo["clock"], memo["largest"]
        self._rng = np.random.default_rng([self._samples, *self._rng.integers(1 << 32, size=2)])
        if self.prioritized:
            self._beta = memo["beta"]
        if self.limiter is not None and "counts" in memo:
            overwrite(self.limiter.counts, np.array(memo["counts"]))
            for link in self._links.all:
                link.seen = memo["seen"].get(str(link.identity), 0)

    def _reports(self) -> dict[Link, Report]:
        """What the shards say that answer, after they were told the time and what may be inserted."""
        with self._asking:
            reports = self._ask_for_reports(self._take_back)
            room, idle = self._room(reports)
            if math.isfinite(room) and any(math.isinf(report.allowed) for report in reports.values()):
                reports = self._ask_for_reports(True)  # nothing limited them until now
                room, idle = self._room(reports)
            self._take_back = self._grant(reports, room) and idle
            return reports

    def _ask_for_reports(self, take_back: bool) -> dict[Link, Report]:
        memo = self._memo()
        alive = self._links.alive()
        reports = self._links.ask({link: partial(link.actor.report.remote, memo, take_back) for link in alive})
        reports = {link: report for link, report in reports.items() if self._links.meet(link, report)}
        for link, report in reports.items():
            self._largest = max(self._largest, report.largest)
            new = report.inserted - link.seen
            self._inserted += new
            if self.limiter is not None and new:
                self.limiter.count_inserted(new)
            link.seen, link.allowed = report.inserted, report.allowed
        return reports

    def _room(self, reports: Mapping[Link, Report]) -> tuple[float, bool]:
        """How many more rows may be granted, and whether some are that nobody uses."""
        wanted = [report.wanted for report in reports.values()]
        limit = math.inf if self.limiter is None else self.limiter.allowance(max([1, *wanted]))
        if math.isinf(limit):
            return limit, False
        # A shard that does not answer may use what it was granted when it wakes; the others do not wait for that.
        granted = sum(link.allowed - link.seen for link in reports)
        return max(limit - granted, 0), granted > 0

    def _grant(self, reports: Mapping[Link, Report], room: float) -> bool:
        """Grants what may be inserted: first to insertions that wait, each in turn, then to all alike. Whether one that
        waits has to wait on."""
        links = list(reports)
        if not links:
            return False
        if math.isinf(room):
            grants = {link: room for link in links if math.isfinite(link.allowed)}
        else:
            grants, room = dict.fromkeys(links, 0.0), int(room)
            turn = self._turn % len(links)
            for i, link in enumerate(links[turn:] + links[:turn]):
                lacking = max(reports[link].inserted + reports[link].wanted - link.allowed, 0)
                if reports[link].wanted and lacking > room:
                    self._turn = turn + i  # what is left is kept for it, and it is the first at the next turn
                    break
                grants[link] += lacking
                room -= lacking
            else:
                self._turn = turn + 1
                for i, link in enumerate(links[turn:] + links[:turn]):
                    grants[link] += room // len(links) + (i < room % len(links))
                room = math.inf
        for link, rows in grants.items():
            if rows:
                link.actor.grant.remote(rows)
                link.allowed += rows
        return math.isfinite(room)

    # Rows in.

    def writer(self, shard: int | None = None) -> ShardWriter:
        """Makes what inserts rows; another Ray actor may get it as an argument.

        Args:
            shard (Union[int, None]): Number of the shard. Default: ``None``, each in turn.

        Returns:
            ShardWriter: The writer.

        Raises:
            TypeError: If `shard` is no int.
            ValueError: If there is no such shard.
        """
        number = next(self._places) % self.num_shards if shard is None else shard
        check_size(_NAME, "shard", number, self.num_shards - 1, minimum=0)
        actors = [link.actor for link in self._links.all]
        return _OwnWriter(self, actors, number, self._schema, self._batch, self._in_flight)

    def insert(self, exp: Any, *, priority: Any = None, end: Any = False, final: Any = False) -> "ShardedReplay":
        """Inserts one row or a batch from the learner's own process, into each shard in turn.

        Rows are collected as in a writer. The other methods send them first, and wait until they have landed.

        Args:
            exp (Union[Sequence, dict]): The rows, as for `ReplayBuffer.insert`.
            priority, end, final: As for the buffer's `insert`.

        Returns:
            ShardedReplay: The buffer itself.

        Raises:
            TypeError, ValueError, RuntimeError: As for the buffer's `insert`; then none of these rows is inserted.
            TimeoutError: If the limiter has a timeout, and too little was sampled in time.
        """
        with self._inserting:
            if not self._own:
                self._own = [self.writer(i) for i in range(self.num_shards)]
            if self._next_own < 0 or not self._own[self._next_own].collected:  # it was sent what it collected
                self._next_own = (self._next_own + 1) % self.num_shards
            self._own[self._next_own].insert(exp, priority=priority, end=end, final=final)
        return self

    add = insert

    def _land(self) -> None:
        """Sends what writers of this process have collected, and waits until it has landed, if it can."""
        with self._landing:
            while going := {writer.shard for writer in list(self._busy) if not writer.has_landed(_POLL)}:
                reports = self._reports()
                going &= {link.number for link in reports}
                held = {link.number for link, told in reports.items() if told.inserted + told.wanted > link.allowed}
                # Those that wait for samples, or whose shard does not answer, are left on their way.
                if not going or (going <= held and not self._take_back):
                    return

    def _settle(self) -> dict[Link, Report]:
        """The reports after what was handed over in this process has landed, if it can."""
        self._land()
        return self._reports()

    def _on_their_way(self) -> int:
        """Rows handed over in this process that have not landed, but for those of episodes that go on."""
        return sum(writer.on_their_way for writer in list(self._busy))

    # Rows out.

    def sample(
        self, beta: Any = None, *, as_dict: bool = False, with_indices: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Draws a batch from all shards that answer, each row with the probability that it has in their union.

        Args:
            beta (Union[float, Tensor, None]): As for `PrioritizedReplayBuffer.sample`. Default: ``None``.
            as_dict (bool): Whether to give a dict by name. Default: ``False``.
            with_indices (bool): As for `ReplayBuffer.sample`, where handles do not come anyway. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: What the buffer's `sample` gives: handles and importance weights if it has them, other
            bookkeeping, and the columns ``[B, *F]``.

        Raises:
            TypeError: If `beta` is no number, or is given without priorities; if `as_dict` is asked of buffers without
                names.
            ValueError: If `beta` is outside [0, 1]; if the limiter's `error_buffer` is too small for an insertion that
                waits.
            RuntimeError: If fewer than `sample_size` rows may be drawn; if no shard answers; if handles are asked of
                buffers that have none.
            TimeoutError: If the limiter has a timeout, and too little was inserted in time.
        """
        given = self._beta_of(beta)
        if with_indices and not self._has_handles:
            raise RuntimeError(f"For '{_NAME}', 'with_indices' needs a buffer made with weighted=True.")
        if as_dict and self.names is None:
            raise TypeError(f"For '{_NAME}', 'as_dict' needs a configuration with 'names'.")
        with self._drawing:
            reports = self._turn_to_sample(None)
            limiter = (
                contextlib.nullcontext()
                if self.limiter is None
                else self.limiter.sampling(self.sample_size, timeout=0.0)
            )
            with limiter:
                batch = self._batch_of(reports, given)
            self._samples += 1
            if self.prioritized:
                self._beta = min(self._beta + self._beta_step, 1.0)
        names = (*self._keys, *self._fields)
        if self._has_handles and not (self._gives_handles or with_indices):
            batch, names = batch[1:], names[1:]
        return dict(zip(names, batch)) if as_dict else tuple(batch)

    @contextlib.contextmanager
    def turn_to_sample(self, stop: threading.Event) -> Iterator[None]:
        """Waits until the limiter lets a sample be drawn in the block; a RuntimeError soon after `stop` is set."""
        if self.limiter is not None:
            self._turn_to_sample(stop)
        yield

    def _beta_of(self, beta: Any) -> float:
        if beta is None:
            return self._beta if self.prioritized else 0.0
        if not self.prioritized:
            raise TypeError(f"For '{_NAME}', 'beta' needs a buffer with priorities, but got {beta!r}.")
        return check_number(_NAME, "beta", one_number(_NAME, beta.asnumpy()) if isinstance(beta, Tensor) else beta)

    def _turn_to_sample(self, stop: threading.Event | None) -> dict[Link, Report]:
        """The reports, as soon as the limiter lets a batch be sampled."""
        reports = self._settle()
        limiter, rows = self.limiter, self.sample_size
        if limiter is None:
            return reports
        wait = Wait(limiter, "sample", rows, limiter.timeout, stop)
        while not limiter.lets_sample(rows):
            time.sleep(min(wait.left(), _POLL))
            reports = self._settle()
        return reports

    def _batch_of(self, reports: dict[Link, Report], beta: float) -> list[Tensor]:
        """Draws until every row of the batch is there: what a shard does not give in time the others give."""
        left = np.arange(self.sample_size)
        pieces: list[tuple[np.ndarray, Link, Report, Drawn]] = []
        least = min([math.inf, *(report.least for report in reports.values())])
        while left.size:
            self._check_enough(reports, 1 if pieces else self.sample_size)
            links = list(reports)
            how = "once" if not self._replace else "strata" if self.prioritized else "replace"
            chosen = choose(self._rng, [reports[link].total for link in links], left.size, how)
            places = {link: left[chosen == i] for i, link in enumerate(links) if (chosen == i).any()}
            drawn = self._links.ask({link: partial(link.actor.draw.remote, len(rows)) for link, rows in places.items()})
            lacking = [np.empty(0, np.int64)]
            for link, rows in places.items():
                part = drawn.get(link)
                if part is None or not part.parts or part.identity != reports[link].identity:
                    lacking.append(rows)
                    continue
                n = len(part.parts[0])
                pieces.append((rows[:n], link, reports[link], part))
                lacking.append(rows[n:])
            left = np.sort(np.concatenate(lacking))
            if left.size:
                reports = self._reports()
                if not self._replace:  # rows that were given already must not come again
                    left, pieces = np.arange(self.sample_size), []
        return self._merged(pieces, least, beta)

    def _check_enough(self, reports: Mapping[Link, Report], needed: int) -> None:
        if not reports:
            raise RuntimeError(
                f"For '{_NAME}', none of the {self.num_shards} shards answers. They are begun anew; try again later."
            )
        eligible = sum(report.eligible for report in reports.values())
        if eligible < needed:
            raise RuntimeError(
                f"For '{_NAME}', a sample needs sample_size={self.sample_size} rows, but the {len(reports)} shards "
                f"that answer have {eligible} to draw from. Wait until can_sample() is true."
            )

    def _merged(self, pieces: list[tuple[np.ndarray, Link, Report, Drawn]], least: float, beta: float) -> list[Tensor]:
        """One batch of what the shards gave; `least` is the smallest weight of a row that any of them has."""
        if self._outputs is None:
            parts = pieces[0][3].parts
            self._outputs = makers(((self.sample_size, *part.shape[1:]), part.dtype) for part in parts)
        batch = [make() for make in self._outputs]
        weights = np.empty(self.sample_size)
        for rows, link, report, drawn in pieces:
            places = slice(rows[0], rows[-1] + 1) if len(rows) == rows[-1] - rows[0] + 1 else rows
            for target, part in zip(batch, drawn.parts):
                target[places] = part
            if self._has_handles:
                batch[0][places] = joined(link.number, link.lives[drawn.identity], drawn.parts[0])
            if drawn.weights is not None:
                # The shard was chosen by what its rows weighed then, the row by what they weigh now.
                since = report.total / drawn.total
                weights[places] = drawn.weights * since
        if self.prioritized:
            batch[1][...] = importance(
                weights, min(least, weights.min()) if self._normalize == "buffer" else None, beta
            )
        return [share(part) for part in batch]

    def can_sample(self) -> Tensor:
        """Whether the shards that answer have `sample_size` rows to draw from, and the limiter allows it. Shape ``[]``,
        bool."""
        eligible = sum(report.eligible for report in self._settle().values())
        allowed = self.limiter is None or self.limiter.lets_sample(self.sample_size)
        return Tensor(bool(allowed and eligible >= self.sample_size))

    def size(self) -> Tensor:
        """Rows that are stored in the shards that answer. Shape ``[]``, int32."""
        return Tensor(sum(report.rows for report in self._settle().values()), ms.int32)

    def __len__(self) -> int:
        """Rows that are stored in the shards that answer, as `size` gives them."""
        return int(self.size())

    def __bool__(self) -> bool:
        return True

    def full(self) -> Tensor:
        """Whether every shard is full. Shape ``[]``, bool."""
        return Tensor(sum(report.rows for report in self._settle().values()) == self.capacity)

    # What is known of rows.

    def update_priorities(self, indices: Any, priorities: Any) -> Tensor:
        """Gives rows other priorities, each in its shard.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles as `sample` gives them, int32 or int64. Shape ``[]`` or
                ``[n]``. Of several for one row the last counts.
            priorities (Union[Tensor, Sequence[float], float]): As for `PrioritizedReplayBuffer.update_priorities`.

        Returns:
            Tensor: How many handles were dead, also since their shard does not answer or was replaced. Shape ``[]``,
            int32.

        Raises:
            RuntimeError: If the buffers have no priorities.
            TypeError: If `indices` holds no ints, or `priorities` no numbers.
            ValueError: If shapes do not fit, or a priority is negative, NaN or infinite; then none is changed.
        """
        if not self.prioritized:
            raise RuntimeError(f"For '{_NAME}', 'update_priorities' needs a buffer with priorities.")
        handles = as_handles(_NAME, indices).reshape(-1)
        given = as_priority(_NAME, priorities)
        check_length(_NAME, given, handles.size)
        answers = self._call("update_priorities", handles, np.broadcast_to(given, handles.shape))
        dead = handles.size - sum(len(rows) - int(skipped) for rows, skipped in answers)
        self._dead_handles += dead
        return Tensor(dead, ms.int32)

    def delete(self, indices: Any) -> Tensor:
        """Removes rows, as `delete` of a buffer does; those of shards that do not answer stay.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles as `sample` gives them. Shape ``[]`` or ``[n]``.

        Returns:
            Tensor: How many rows were removed. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffers keep no weights.
            TypeError, ValueError: If `indices` holds no ints, or has more than one axis.
        """
        self._need_weights("delete")
        answers = self._call("delete", as_handles(_NAME, indices).reshape(-1))
        return Tensor(sum(int(removed) for _, removed in answers), ms.int32)

    def info(self, indices: Any) -> tuple[Tensor, Tensor, Tensor]:
        """What is known of rows, as `info` of a buffer says.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles as `sample` gives them. Shape ``[]`` or ``[n]``.

        Returns:
            tuple[Tensor, Tensor, Tensor]: Priority, float32; use count, int32; staleness, int64; each of the shape of
            `indices`. Where no row is stored any more, or its shard does not answer: 0, -1, -1.

        Raises:
            RuntimeError: If the buffers keep no weights.
            TypeError, ValueError: If `indices` holds no ints, or has more than one axis.
        """
        self._need_weights("info")
        handles = as_handles(_NAME, indices)
        parts = [np.full(handles.size, value, dtype) for value, dtype in ((0, "f4"), (-1, "i4"), (-1, "i8"))]
        for rows, answer in self._call("info", handles.reshape(-1)):
            for part, known in zip(parts, answer):
                part[rows] = known
        priority, uses, staleness = (Tensor(part.reshape(handles.shape)) for part in parts)
        return priority, uses, staleness

    def _call(self, method: str, handles: np.ndarray, *arguments: np.ndarray) -> list[tuple[np.ndarray, Any]]:
        """Calls a method of the buffers whose rows these are. Places in `handles`, and what the shard gave for them."""
        self._land()
        shard, life, there = parted(handles)
        calls, places = {}, {}
        for link in self._links.alive():
            identity = link.identity
            rows = np.flatnonzero((shard == link.number) & (life == link.lives.get(identity, -1) % LIVES))
            if rows.size:
                mine = [argument[rows] for argument in arguments]
                calls[link] = partial(link.actor.call.remote, identity, method, there[rows], *mine)
                places[link] = rows
        answers = self._links.ask(calls)
        return [(places[link], answer) for link, answer in answers.items() if answer is not None]

    def _need_weights(self, method: str) -> None:
        need_weights(_NAME, self.weighted, method)

    # The whole.

    def advance(self, steps: int = 1) -> "ShardedReplay":
        """Moves the learner's clock, in every shard.

        Args:
            steps (int): By how much, at least 0. Default: ``1``.

        Returns:
            ShardedReplay: The buffer itself.

        Raises:
            RuntimeError: If the buffers keep no weights.
            TypeError: If `steps` is no int.
            ValueError: If `steps` is negative.
        """
        self._need_weights("advance")
        check_size(_NAME, "steps", steps, minimum=0)
        self._land()
        self._clock += steps
        # Rows that are inserted from now on get this time; a shard that does not answer is told by the next report.
        self._links.ask({link: partial(link.actor.advance.remote, self._clock) for link in self._links.alive()})
        return self

    def reset(self) -> "ShardedReplay":
        """Forgets all rows, in every shard that answers; clock and beta begin anew.

        Returns:
            ShardedReplay: The buffer itself.
        """
        with self._drawing, self._landing:
            self._land()
            self._forget()
        return self

    def _forget(self) -> None:
        with self._asking:
            self._clock, self._largest = 0, 1.0
            if self.prioritized:
                self._beta = self._first_beta
            self._links.ask({link: link.actor.reset.remote for link in self._links.alive()})

    def save(self, *, incremental: bool = False) -> None:
        """Writes each shard to ``shard_<number>.safetensors`` in the folder, all at once, as `save` does.

        Writers wait meanwhile. A shard that does not answer is left out. Rows of this process that the limiter holds
        back, or whose shard does not answer, are in no file; their number is logged as a warning.

        Args:
            incremental (bool): As for `save`. Default: ``False``.

        Raises:
            RuntimeError: If there is no `folder`.
            OSError: If a file could not be written.
        """
        if self._folder is None:
            raise RuntimeError(f"For '{_NAME}', 'save' needs one made with 'folder'.")
        with self._landing:
            links, memo, left = list(self._settle()), self._memo(), self._on_their_way()
        if left:
            why = "the limiter holds them back, or their shard does not answer"
            logger.warning("save: %d rows that were inserted are in no file: %s", left, why)
        self._links.ask({link: partial(link.actor.keep.remote, memo, incremental) for link in links}, wait=True)

    def statistics(self) -> Statistics:
        """The numbers of all shards together, as `ReplayMonitor` writes them, and of each as ``shard_0/...``.

        ``shards_alive`` of ``shards`` answer; ``shard_deaths`` processes died, and ``shard_timeouts`` answers did not
        come in time. Rows inserted and sampled, and dead handles, are those that this learner has seen.

        Returns:
            Statistics: Values and distributions.
        """
        self._settle()  # also counts what was inserted
        parts = self._links.ask({link: link.actor.statistics.remote for link in self._links.alive()})
        whole = added_up({link.number: part for link, part in parts.items()})
        own = {
            "capacity": self.capacity, "inserted": self._inserted, "sampled": self._samples * self.sample_size,
            "shards": self.num_shards, "shards_alive": len(parts), "shard_deaths": self.deaths,
            "shard_timeouts": self.timeouts,
        }  # fmt: skip
        if self.prioritized:
            own |= {"beta": self._beta, "dead_handles": self._dead_handles}
        return Statistics(whole.values | own, whole.histograms)

    @property
    def deaths(self) -> int:
        """Processes of shards that died, as far as this object has seen."""
        return self._links.deaths

    @property
    def timeouts(self) -> int:
        """Answers of shards that did not come in time."""
        return self._links.timeouts

    def check_valid(self) -> None:
        """Checks every shard that answers, as a buffer's `check_valid`.

        Raises:
            ValueError: If the state of one contradicts itself.
        """
        self._land()
        self._links.ask({link: link.actor.check_valid.remote for link in self._links.alive()})

    def close(self) -> None:
        """Ends the shards, those with a name too."""
        for link in self._links.all:
            self._ray.kill(link.actor)

    def __repr__(self) -> str:
        return (
            f"ShardedReplay(num_shards={self.num_shards}, answering={sum(link.answers for link in self._links.all)}, "
            f"capacity={self.capacity}, sample_size={self.sample_size}, inserted={self._inserted}, "
            f"on_their_way={self._on_their_way()}, sampled={self._samples * self.sample_size}, limiter={self.limiter})"
        )

    def __enter__(self) -> "ShardedReplay":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _OwnWriter(ShardWriter):
    """One in the learner's process: while it waits the shards are looked after, or nobody might grant it anything.

    The learner sends its rows and awaits them, in whichever thread. In another process it is a `ShardWriter`.
    """

    def __init__(self, replay: ShardedReplay, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._replay = replay
        self._using = threading.RLock()

    def insert(self, exp: Any, **more: Any) -> "_OwnWriter":
        with self._in_turn():
            self._replay._busy.add(self)
            super().insert(exp, **more)
        return self

    def flush(self) -> "_OwnWriter":
        with self._in_turn():
            super().flush()
        return self

    def send(self) -> None:
        with self._using:
            super().send()

    def landed(self, seconds: float) -> bool:
        with self._using:
            return super().landed(seconds)

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        with self._replay._landing:  # who awaits all rows comes before more of them
            pass
        with self._using:
            yield

    def has_landed(self, seconds: float) -> bool:
        """Sends what is collected, if there is room; whether all has landed, or does in so many seconds."""
        if not self._using.acquire(timeout=seconds):  # another thread inserts, and may itself wait for samples
            return False
        try:
            self.landed(0.0)
            if self.has_room:
                self.send()
            if not self.landed(seconds) or self.on_their_way:
                return False
            if not self.collected:
                self._replay._busy.discard(self)
            return True
        finally:
            self._using.release()

    def _arrived(self, ref: Any, seconds: float | None) -> bool:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while not super()._arrived(ref, _POLL):
            if time.monotonic() > deadline:
                return False
            self._replay._reports()
        return True
