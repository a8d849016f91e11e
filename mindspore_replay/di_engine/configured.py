"""DI-engine's buffers that configurations make."""

import copy
import importlib
import os
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..store.base.checks import check_number, need
from .deque_buffer import DequeBuffer, load, save
from .layout import BufferedData
from .middleware import PriorityExperienceReplay, use_time_check
from .monitors import CONTROL, MONITOR, Monitor

_EPISODE = 500  # rows of an episode, of which a sequence is a part
#: Keys that a sample adds to rows, and where `meta` has their values.
_ADDED = {"replay_buffer_idx": "priority_idx", "IS": "priority_IS", "use": "use_count", "staleness": "staleness"}

# Default configurations, of parts.
_FILES = {"deepcopy": False, "enable_track_used_data": False}
_NAIVE = {"replay_buffer_size": 10000, **_FILES, "periodic_thruput_seconds": 60}
_LIMITS = {"max_use": inf, "max_staleness": inf}
_PRIORITIES = {"alpha": 0.6, "beta": 0.4, "anneal_step": 100000}
_WATCHED = {"thruput_controller": CONTROL, "monitor": MONITOR}
_DEQUE = {"replay_buffer_size": 10000, "max_use": inf, "train_iter_per_log": 100, "priority_max_limit": 1000}
#: Arguments of `PriorityExperienceReplay`, in their order.
_WEIGHTS = {"priority_IS_weight": False, "priority_power_factor": 0.6, "IS_weight_power_factor": 0.4}
_WEIGHTS |= {"IS_weight_anneal_train_iter": 100000}
_OTHERS = (
    "type cfg_type name import_names multi_buffer objects set_buffer_size min_sample_ratio replay_buffer_start_size"
)


def _remove_file(row: Mapping[str, Any]) -> None:
    """Delete the file of a row that left, a dict with the path as ``"data_id"``."""
    Path(row["data_id"]).unlink(missing_ok=True)


class Config(dict):  # type: ignore[type-arg]
    """A dict whose values are attributes too, also those of dicts in it. Of several, the last counts for a key."""

    def __init__(self, *layers: Mapping[str, Any]) -> None:
        for key, value in (item for layer in layers for item in layer.items()):
            self[key] = Config(self.get(key) or {}, value) if isinstance(value, Mapping) else value

    def __getattr__(self, key: str) -> Any:
        if key in self:
            return self[key]
        raise AttributeError(key)

    __setattr__ = dict.__setitem__


class IBuffer:
    """Base of the buffers that configurations make."""

    config: ClassVar[dict[str, Any]] = {}


class NaiveReplayBuffer(IBuffer):
    """Uniform samples of the newest rows, stored in the `DequeBuffer` ``.buffer``.

    Args:
        cfg (Mapping): Keys that replace those of `default_config`. `objects` stores rows as objects.
        tb_logger (Any): A SummaryWriter, or a sink of `ReplayMonitor`, for the counters. Default: ``None``.
        exp_name (str): Name of the experiment, part of the text logger's name. Default: ``"default_experiment"``.
        instance_name (str): Name of the buffer, in tags and row ids. Default: ``"buffer"``.

    Raises:
        TypeError, ValueError: If a key is unknown, or a value does not fit.

    Examples:
        >>> from mindspore_replay.di_engine import NaiveReplayBuffer
        >>> buffer = NaiveReplayBuffer({"replay_buffer_size": 4})
        >>> buffer.push([{"step": step} for step in range(6)], cur_collector_envstep=6)
        >>> print(buffer.count(), sorted(row["step"] for row in buffer.sample(4, 0)), buffer.sample(5, 0))
        4 [2, 3, 4, 5] None
    """

    config: ClassVar[dict[str, Any]] = {"type": "naive", **_NAIVE}

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        self._class, self._name, self._envstep = type(self).__name__, instance_name, -1
        need(isinstance(cfg, Mapping), TypeError, self._class, "'cfg' must be a mapping", cfg)
        unknown = sorted(map(str, set(cfg).difference(_OTHERS.split(), *(one.config for one in _CLASSES.values()))))
        need(not unknown, ValueError, self._class, "'cfg' must have keys of DI-engine's buffers", unknown)
        self.cfg = cfg = Config(self.config, cfg)
        self._monitor = Monitor(cfg, tb_logger, exp_name, instance_name)
        self._tracks = cfg.get("enable_track_used_data", False)
        self.buffer = DequeBuffer(cfg.replay_buffer_size, objects=cfg.get("objects", False) or self._tracks)
        self._table = self.buffer.table
        self._table.gone = _remove_file if self._tracks else None
        self._begin(cfg)

    def _begin(self, cfg: Config) -> None:
        """Make what a subclass has besides."""

    @classmethod
    def default_config(cls) -> Config:
        """Return the default configuration."""
        return Config(cls.config, {"cfg_type": f"{cls.__name__}Dict"})

    replay = property(lambda self: self.buffer.replay, doc="The buffer of this library that holds the rows.")
    replay_buffer_size = property(lambda self: self.buffer.size, doc="Most rows.")
    push_count = property(lambda self: self._table.pushed()[1], doc="Rows pushed since the buffer was made or cleared.")

    def start(self) -> None:
        """Do nothing: with `enable_track_used_data` the files of rows that leave are deleted at once."""

    def close(self) -> None:
        """Remove all rows, with their files if `enable_track_used_data`, and flush what was logged."""
        self.clear()
        self._monitor.flush()

    def push(self, data: object, cur_collector_envstep: int) -> None:
        """Append a row, or all rows of a list. Append none if too few were sampled."""
        rows = data if isinstance(data, list) else [data]
        if not self._monitor.can_push(len(rows)):
            self._monitor.say(f"refused {len(rows)} rows, since too few were sampled")
            return
        fits = not self._tracks or all(isinstance(row, dict) and "data_id" in row for row in rows)
        need(fits, TypeError, self._class, "a row must be a dict with a 'data_id'", data)
        self._table.extend([self._taken(row) for row in self._copied(rows)])
        self._envstep = cur_collector_envstep
        self._monitor.add(self.count, pushed=len(rows))

    def _copied(self, rows: list[Any]) -> list[Any]:
        return copy.deepcopy(rows) if self.cfg.deepcopy else rows

    def _taken(self, row: Any) -> tuple[object, dict[str, Any]]:  # as it is stored, and what is known of it
        return row, {}

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> list[Any] | None:
        """Draw `size` rows, also of a slice of the rows, oldest first, or ``None`` if there are too few.

        By priority a row may repeat, and `sample_range` must be ``slice(-n, None)``. With a window, ``None``.
        """
        chosen = self._range(sample_range, cur_learner_iter)
        may = self._monitor.can_sample(size, replace, self.count())
        rows = self._table.draw(size, replace, chosen) if may else []
        if len(rows) < size:
            self._monitor.say(f"refused a sample of {size} rows of {self.count()}")
            return None
        self._monitor.add(self.count, sampled=size)
        return self._copied(self._returned(rows, cur_learner_iter))

    def _range(self, sample_range: slice | None, cur_learner_iter: int) -> slice | None:  # to draw from
        return sample_range

    def _returned(self, rows: list[BufferedData], cur_learner_iter: int) -> list[Any]:  # as users get them
        return [row.data for row in rows]

    def update(self, info: Any) -> None:
        """Do nothing: these rows have no priorities."""

    def clear(self) -> None:
        """Remove all rows."""
        self.buffer.clear()

    def count(self) -> int:
        """Return the number of rows that were not removed."""
        return self.buffer.count()

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state."""
        return self._table.state_dict()

    def load_state_dict(self, _state_dict: Mapping[str, Any], deepcopy: bool = False) -> None:
        """Load a state, as a copy. Of ``{"data": rows}`` the rows are pushed."""
        if set(_state_dict) == {"data"}:
            self.push(copy.deepcopy(_state_dict["data"]) if deepcopy else list(_state_dict["data"]), -1)
        else:
            self._table.load_state_dict(_state_dict)

    def save_data(self, file_name: str | os.PathLike[str]) -> None:
        """Write the rows to a file, by Python's ``pickle``, and make its folder if needed."""
        save(file_name, [(row.data, row.meta) for row in self.buffer])

    def load_data(self, file_name: str | os.PathLike[str]) -> None:
        """Push the rows of a file of `save_data` that you trust."""
        self._table.extend(load(file_name))


class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Whole episodes, each a row that is a list of steps."""

    config = {"type": "episode", **_NAIVE}  # noqa: RUF012
    episode_len = property(lambda self: [len(row.data) for row in self.buffer], doc="Steps of each, oldest first.")


class ElasticReplayBuffer(NaiveReplayBuffer):
    """The newest rows, of which those in a window are drawn: `set_buffer_size` of the steps that `update` gets."""

    config = {"type": "elastic", **_NAIVE}  # noqa: RUF012

    def _begin(self, cfg: Config) -> None:
        size = cfg.get("set_buffer_size")
        need(callable(size), TypeError, self._class, "'set_buffer_size' must be a function", size)
        self.update(0)

    def update(self, info: Any) -> None:
        """Set the window for `info`, steps of the environments."""
        self._window = slice(-int(self.cfg.set_buffer_size(info)), None)

    def _range(self, sample_range: slice | None, cur_learner_iter: int) -> slice:
        need(sample_range is None, ValueError, self._class, "'sample_range' must be None", sample_range)
        return self._window


class SequenceReplayBuffer(NaiveReplayBuffer):
    """Successive rows: each 500 that are pushed are one episode, and no sequence is part of two."""

    config = {"type": "sequence", **_NAIVE}  # noqa: RUF012

    def sample(  # type: ignore[override]
        self, batch: int, sequence: int, cur_learner_iter: int, sample_range: None = None, replace: bool = False
    ) -> list[Any] | None:
        """Draw `batch` lists of `sequence` rows, or ``None`` if there are too few."""
        need(sample_range is None, ValueError, self._class, "'sample_range' must be None", sample_range)
        live, (total, since) = self._table.live(), self._table.pushed()
        starts = live[: max(live.size - sequence + 1, 0)]
        row = starts - (total - since)  # of those since the last `clear`
        starts = starts[row // _EPISODE == (row + sequence - 1) // _EPISODE]
        if not starts.size or (live.size < batch * sequence and not replace):
            return None
        chosen = np.random.choice(starts, batch)[:, None] + np.arange(sequence)
        rows = iter(self._table.items(chosen.reshape(-1)))
        self._monitor.add(self.count, sampled=batch)
        return self._copied([[next(rows).data for _ in range(sequence)] for _ in range(batch)])


class AdvancedReplayBuffer(NaiveReplayBuffer):
    """Samples by priority, with limits, monitors and throughput control.

    A row is a dict. Its key ``"priority"`` is removed, and ``"collect_iter"`` is the learner's iteration that made it.
    `sample` adds ``"replay_unique_id"`` and ``"replay_buffer_idx"`` for `update`, ``"IS"``, ``"priority"``, ``"use"``
    and ``"staleness"``, which is -1 without ``"collect_iter"``.

    Examples:
        >>> from mindspore_replay.di_engine import AdvancedReplayBuffer
        >>> buffer = AdvancedReplayBuffer({"replay_buffer_size": 4, "max_use": 3})
        >>> buffer.push([{"step": step, "priority": 1.0, "collect_iter": 0} for step in range(4)], 4)
        >>> rows = buffer.sample(4, cur_learner_iter=2)
        >>> print({key: rows[0][key] for key in ("step", "replay_unique_id", "IS", "use", "staleness")})
        {'step': 0, 'replay_unique_id': 'buffer_0', 'IS': 1.0, 'use': 1, 'staleness': 2}
        >>> keys = "replay_unique_id", "replay_buffer_idx"
        >>> buffer.update({"priority": [3.0] * 4, **{key: [row[key] for row in rows] for key in keys}})
    """

    config = {"type": "advanced", "replay_buffer_size": 4096, **_FILES, **_LIMITS, **_PRIORITIES, **_WATCHED}  # noqa: RUF012
    push_count = property(lambda self: self._table.pushed()[0], doc="Rows pushed since the buffer was made.")
    alpha = property(lambda self: self.cfg.alpha, doc="Exponent of priorities.")

    def _begin(self, cfg: Config) -> None:
        stale = cfg.max_staleness - 1  # here rows as old as the limit are not stale yet
        self._table.limit(
            max_use=cfg.max_use, max_staleness=stale, alpha=cfg.alpha, beta=cfg.beta, beta_steps=cfg.anneal_step
        )

    @property
    def beta(self) -> float:
        """Strength of the importance weights of the next sample."""
        return self._table.beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._table.beta = check_number(self._class, "beta", beta)

    def _taken(self, row: Any) -> tuple[object, dict[str, Any]]:
        need(isinstance(row, dict), TypeError, self._class, "a row must be a dict", row)
        collected = row.get("collect_iter")
        collected = min(collected) if isinstance(collected, (list, tuple)) else collected
        data = {key: one for key, one in row.items() if key not in (*_ADDED, "priority", "replay_unique_id")}
        return data, {"priority": row.get("priority"), "train_iter_data_collected": collected}

    def _range(self, sample_range: slice | None, cur_learner_iter: int) -> slice | None:
        self._table.advance_to(cur_learner_iter)
        return sample_range

    def _returned(self, rows: list[BufferedData], cur_learner_iter: int) -> list[Any]:
        for row in rows:
            row.data |= {key: row.meta[meta_key] for key, meta_key in _ADDED.items()}
            row.data |= {"replay_unique_id": f"{self._name}_{row.index}", "priority": row.meta["priority"]}
            if row.meta.get("train_iter_data_collected") is None:
                row.data["staleness"] = -1
        data = [row.data for row in rows]
        if data:
            self._monitor.sampled(data, self.beta, cur_learner_iter, self._envstep)
        return data

    def update(self, info: Any) -> None:
        """Set the priorities of rows by their lists of `info`, if ``"priority"`` is one. Skip rows that are gone."""
        if len(info.get("priority", ())):
            own, prefix = info["replay_unique_id"], f"{self._name}_"
            handles = self._table.handles(one[len(prefix) :] if one.startswith(prefix) else None for one in own)
            handles[handles % self.buffer.size != np.array(info["replay_buffer_idx"], int)] = -1
            self._table.buffer.update_priorities(handles, [float(one) for one in info["priority"]])


class DequeBufferWrapper(NaiveReplayBuffer):
    """A `DequeBuffer` with the configuration and methods of the others."""

    config = {**_DEQUE, "priority": False, **_WEIGHTS}  # noqa: RUF012

    def _begin(self, cfg: Config) -> None:
        if cfg.max_use != inf:
            self.buffer.use(use_time_check(self.buffer, cfg.max_use))
        if cfg.priority:
            self.buffer.use(PriorityExperienceReplay(self.buffer, *(cfg[name] for name in _WEIGHTS)))
        self._last: list[BufferedData] = []
        self._due = -inf

    def sample(self, size: int, train_iter: int = 0) -> list[Any] | None:  # type: ignore[override]
        """Draw rows, or ``None`` if there are too few."""
        if self.count() < size:
            return None
        self._last = rows = self.buffer.sample(size)
        if train_iter >= self._due:
            self._due = train_iter + self.cfg.train_iter_per_log
            uses, priorities = ([row.meta[key] for row in rows if key in row.meta] for key in ("use_count", "priority"))
            values = {"use_count_avg": np.mean(uses)} if uses else {}
            values |= {"priority_avg": np.mean(priorities), "priority_max": np.max(priorities)} if priorities else {}
            self._monitor.write({**values, "buffer_data_count": self.count()}, iter=train_iter)
        for row in rows if self.cfg.priority and self.cfg.priority_IS_weight else ():
            row.data["IS"] = row.meta["priority_IS"]
        return [row.data for row in rows]

    def push(self, data: Iterable[Any], cur_collector_envstep: int = -1) -> None:  # type: ignore[override]
        """Append rows."""
        for row in data:
            self.buffer.push(row, **{} if self.cfg.priority and "priority" in row else {"meta": {}})

    def update(self, info: Any) -> None:
        """Set the priorities of the last sample, at most `priority_max_limit` each."""
        for row, priority in zip(self._last, info["priority"]) if self.cfg.priority else ():
            row.meta["priority"] = min(self.cfg.priority_max_limit, float(priority))
            self.buffer.update(row.index, None, row.meta)
        self._last = []

    def save_data(self, file_name: str | os.PathLike[str]) -> None:
        """Write rows and their whole state to a file, as `DequeBuffer.save_data` does."""
        self.buffer.save_data(file_name)

    def load_data(self, file_name: str | os.PathLike[str]) -> None:
        """Load a file of `save_data` in place of the rows."""
        self.buffer.load_data(file_name)


_CLASSES: dict[Any, Any] = {
    one.config.get("type", "deque"): one
    for one in (NaiveReplayBuffer, ElasticReplayBuffer, SequenceReplayBuffer, EpisodeReplayBuffer, AdvancedReplayBuffer)
} | {"priority": AdvancedReplayBuffer, "deque": DequeBufferWrapper}


def get_buffer_cls(cfg: Mapping[str, Any]) -> type:
    """Return the class that `type` of a configuration names or is, after an import of the modules in `import_names`."""
    for name in cfg.get("import_names") or ():
        if not name.startswith("ding."):  # where DI-engine's own are
            importlib.import_module(name)
    wanted = cfg.get("type")
    buffer_cls: Any = wanted if isinstance(wanted, type) else _CLASSES.get(wanted)
    need(buffer_cls, ValueError, "create_buffer", f"'type' must be a class or one of {list(_CLASSES)}", wanted)
    return buffer_cls  # type: ignore[no-any-return]


def create_buffer(cfg: Mapping[str, Any], *arguments: object, **more: object) -> Any:
    """Return the buffer of a configuration, or, with `multi_buffer`, a dict of buffers.

    Other arguments are passed to the class.

    Examples:
        >>> from mindspore_replay.di_engine import create_buffer
        >>> buffer = create_buffer({"type": "advanced", "replay_buffer_size": 100})
        >>> print(type(buffer).__name__, buffer.replay_buffer_size, buffer.beta)
        AdvancedReplayBuffer 100 0.4
    """
    if cfg.get("multi_buffer"):
        parts = [(name, part) for name, part in cfg.items() if isinstance(part, Mapping)]
        return {name: create_buffer(part, *arguments, **{"instance_name": name, **more}) for name, part in parts}
    return get_buffer_cls(cfg)(cfg, *arguments, **more)
