"""DI-engine's buffers that configurations make."""

import copy
import importlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..store.checks import check_number
from .deque_buffer import DequeBuffer, load, save
from .layout import BufferedData
from .middleware import PriorityExperienceReplay, use_time_check
from .monitors import Log, PeriodicThruputMonitor, SampledDataAttrMonitor, ThruputController, UsedDataRemover
from .table import state_of

_INFINITY = float("inf")
_EPISODE = 500  # rows of an episode, of which a sequence is a part
_ADDED = ("replay_unique_id", "replay_buffer_idx", "IS", "priority", "use", "staleness")  # to rows, by a sample
_CONTROL = {"push_sample_rate_limit": {"max": _INFINITY, "min": 0}, "window_seconds": 30, "sample_min_limit_ratio": 1}


class Config(dict):  # type: ignore[type-arg]
    """A dict whose values are attributes too, also those of dicts in it; of several, the last counts for a key."""

    def __init__(self, *layers: Mapping[str, Any]) -> None:
        for key, value in (item for layer in layers for item in layer.items()):
            self[key] = Config(self.get(key) or {}, value) if isinstance(value, Mapping) else value

    def __getattr__(self, key: str) -> Any:
        if key not in self:
            raise AttributeError(key)
        return self[key]

    __setattr__ = dict.__setitem__


class IBuffer:
    """Base of the buffers that configurations make."""


class NaiveReplayBuffer(IBuffer):
    """The newest rows, drawn uniformly, in the `DequeBuffer` that is the attribute `buffer`.

    Args:
        cfg (Mapping): Any keys of `default_config`; the others have its values. `objects` keeps rows as objects.
        tb_logger (Any): A SummaryWriter, or a sink as of a `ReplayMonitor`, that gets numbers. Default: ``None``.
        exp_name (str): Name of the experiment, in the name of the text's logger. Default: ``"default_experiment"``.
        instance_name (str): Name of the buffer, in tags and in ids of rows. Default: ``"buffer"``.

    Raises:
        TypeError: If a value is of another type.
        ValueError: If a key is unknown, or a value outside its range.

    Examples:
        >>> from mindspore_replay.di_engine import NaiveReplayBuffer
        >>> buffer = NaiveReplayBuffer({"replay_buffer_size": 4})
        >>> buffer.push([{"step": step} for step in range(6)], cur_collector_envstep=6)
        >>> print(buffer.count(), sorted(row["step"] for row in buffer.sample(4, 0)), buffer.sample(5, 0))
        4 [2, 3, 4, 5] None
    """

    config: Mapping[str, Any] = {
        "type": "naive",
        "replay_buffer_size": 10000,
        "deepcopy": False,
        "enable_track_used_data": False,
        "periodic_thruput_seconds": 60,
    }

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: object = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        owner = type(self).__name__
        if not isinstance(cfg, Mapping):
            raise TypeError(f"For '{owner}', 'cfg' must be a mapping, but got {cfg!r}.")
        unknown = sorted(map(str, set(cfg) - _KNOWN))
        if unknown:
            raise ValueError(f"For '{owner}', 'cfg' must have keys of DI-engine's buffers, but got {unknown}.")
        self.cfg = cfg = Config(self.config, cfg)
        self._name, self._log, self._envstep = instance_name, Log(tb_logger, exp_name, instance_name), -1
        self._tracks, self._remover = cfg.get("enable_track_used_data", False), UsedDataRemover()
        self.buffer = DequeBuffer(cfg.replay_buffer_size, objects=cfg.get("objects", False) or self._tracks)
        self.buffer.shared.gone = self._remover.add_used_data if self._tracks else None
        seconds = cfg.monitor.periodic_thruput.seconds if "monitor" in cfg else cfg.get("periodic_thruput_seconds")
        self._thruput = PeriodicThruputMonitor(self._log, float(seconds or _INFINITY))
        control = cfg.get("thruput_controller") or Config(_CONTROL)
        self._controller = ThruputController(control.push_sample_rate_limit, control.window_seconds)
        self._ratio = control.sample_min_limit_ratio
        self._begin(cfg)

    def _begin(self, cfg: Config) -> None:
        """Make what a subclass has besides."""

    @classmethod
    def default_config(cls) -> Config:
        """Return the default configuration."""
        return Config(cls.config, {"cfg_type": f"{cls.__name__}Dict"})

    @property
    def replay(self) -> Any:
        """The buffer of this library that holds the rows."""
        return self.buffer.replay

    @property
    def replay_buffer_size(self) -> int:
        """Most rows."""
        return self.buffer.size

    @property
    def push_count(self) -> int:
        """Rows pushed since the buffer was made or cleared."""
        return self.buffer.pushed()[1]

    def start(self) -> None:
        """Begin to delete the files of rows that left, if `enable_track_used_data`."""
        self._remover.start()

    def close(self) -> None:
        """Remove all rows, delete the files that are left, and flush what was logged."""
        self.clear()
        self._remover.close()
        self._log.flush()

    def push(self, data: object, cur_collector_envstep: int) -> None:
        """Append a row, or a list of them, at so many steps of the environments; none if too few were sampled.

        After an error nothing is stored.
        """
        rows = data if isinstance(data, list) else [data]
        if not self._controller.can_push(len(rows)):
            self._log.say(f"refused {len(rows)} rows, since too few were sampled")
            return
        if self._tracks and not all(isinstance(row, dict) and "data_id" in row for row in rows):
            raise TypeError(f"For '{type(self).__name__}', a row must be a dict with a 'data_id', but got {data!r}.")
        self.buffer.extend([self._taken(row) for row in self._copied(rows)])
        self._envstep = cur_collector_envstep
        self._count(pushed=len(rows))

    def _count(self, **rows: int) -> None:
        self._thruput.add(self.count, **rows)
        self._controller.add(**rows)

    def _copied(self, rows: list[Any]) -> list[Any]:
        return copy.deepcopy(rows) if self.cfg.deepcopy else rows

    def _taken(self, row: Any) -> tuple[object, dict[str, Any]]:
        """Return a row as it is stored, and what is known of it."""
        return row, {}

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> list[Any] | None:
        """Draw `size` rows, also of a slice of the rows, oldest first; ``None`` if there are too few.

        By priority a row may come again, and `sample_range` is ``slice(-n, None)``.
        """
        may = self._controller.can_sample(size) and (replace or self.count() >= size * self._ratio)
        rows = self.buffer.draw(size, replace, sample_range) if may else []
        if len(rows) < size:
            self._log.say(f"refused a sample of {size} rows of {self.count()}")
            return None
        self._count(sampled=size)
        return self._copied([self._returned(row) for row in rows])

    def _returned(self, row: BufferedData) -> Any:
        return row.data

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
        return self.buffer.state_dict()

    def load_state_dict(self, _state_dict: Mapping[str, Any], deepcopy: bool = False) -> None:
        """Load a state, as a copy; of ``{"data": rows}`` the rows are pushed."""
        if set(_state_dict) == {"data"}:
            self.push(copy.deepcopy(_state_dict["data"]) if deepcopy else list(_state_dict["data"]), -1)
        else:
            self.buffer.load_state_dict(_state_dict)

    def save_data(self, file_name: str | os.PathLike[str]) -> None:
        """Write the rows to a file, by Python's ``pickle``, and make its folder if needed."""
        save(file_name, [(row.data, row.meta) for row in self.buffer])

    def load_data(self, file_name: str | os.PathLike[str]) -> None:
        """Push the rows of a file of `save_data`. It must be one you trust."""
        self.buffer.extend(load(file_name))


class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Whole episodes, each a row that is a list of steps."""

    config = {**NaiveReplayBuffer.config, "type": "episode"}  # noqa: RUF012

    @property
    def episode_len(self) -> list[int]:
        """Steps of each episode, oldest first."""
        return [len(row.data) for row in self.buffer]


class ElasticReplayBuffer(NaiveReplayBuffer):
    """The newest rows, of which those in a window are drawn: `set_buffer_size` of the steps that `update` gets."""

    config = {**NaiveReplayBuffer.config, "type": "elastic"}  # noqa: RUF012

    def _begin(self, cfg: Config) -> None:
        size = cfg.get("set_buffer_size")
        if not callable(size):
            raise TypeError(f"For 'ElasticReplayBuffer', 'set_buffer_size' must be a function, but got {size!r}.")
        self.update(0)

    def update(self, envstep: Any) -> None:
        """Set the window for so many steps of the environments."""
        self._window = slice(-int(self.cfg.set_buffer_size(envstep)), None)

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> list[Any] | None:
        """Draw rows of the window, as `NaiveReplayBuffer.sample` does; `sample_range` must be ``None``."""
        if sample_range is not None:
            raise ValueError(f"For 'ElasticReplayBuffer', 'sample_range' must be None, but got {sample_range!r}.")
        return super().sample(size, cur_learner_iter, self._window, replace)


class SequenceReplayBuffer(NaiveReplayBuffer):
    """Successive rows: each 500 that are pushed are one episode, and no sequence is part of two."""

    config = {**NaiveReplayBuffer.config, "type": "sequence"}  # noqa: RUF012

    def sample(  # type: ignore[override]
        self, batch: int, sequence: int, cur_learner_iter: int, sample_range: None = None, replace: bool = False
    ) -> list[Any] | None:
        """Draw `batch` lists of `sequence` rows; ``None`` if there are too few."""
        if sample_range is not None:
            raise ValueError(f"For 'SequenceReplayBuffer', 'sample_range' must be None, but got {sample_range!r}.")
        live = self.buffer.live()
        starts = live[: max(live.size - sequence + 1, 0)]
        total, since = self.buffer.pushed()
        row = starts - (total - since)  # of those since the last `clear`
        starts = starts[row // _EPISODE == (row + sequence - 1) // _EPISODE]
        if not starts.size or (live.size < batch * sequence and not replace):
            return None
        chosen = np.random.choice(starts, batch)[:, None] + np.arange(sequence)
        rows = iter(self.buffer.items(chosen.reshape(-1)))
        self._count(sampled=batch)
        return self._copied([[next(rows).data for _ in range(sequence)] for _ in range(batch)])


class AdvancedReplayBuffer(NaiveReplayBuffer):
    """Rows drawn by priority, with limits, monitors and control of the throughput.

    A row is a dict, its ``"priority"`` not part of it, and from the learner's iteration ``"collect_iter"``.
    A sample adds ``"replay_unique_id"`` and ``"replay_buffer_idx"``, which `update` takes, ``"IS"``, ``"priority"``,
    ``"use"`` and ``"staleness"``, -1 without ``"collect_iter"``.

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

    config = {  # noqa: RUF012
        "type": "advanced",
        "replay_buffer_size": 4096,
        "max_use": _INFINITY,
        "max_staleness": _INFINITY,
        "alpha": 0.6,
        "beta": 0.4,
        "anneal_step": int(1e5),
        "enable_track_used_data": False,
        "deepcopy": False,
        "thruput_controller": _CONTROL,
        "monitor": {"sampled_data_attr": {"average_range": 5, "print_freq": 200}, "periodic_thruput": {"seconds": 60}},
    }

    def _begin(self, cfg: Config) -> None:
        limits = {"max_use": cfg.max_use, "max_staleness": cfg.max_staleness - 1}  # as old as the limit is too old here
        priorities = {"alpha": cfg.alpha, "beta": cfg.beta, "beta_steps": cfg.anneal_step}
        self.buffer.limit(limits, frozenset({"priority", "use_count", "staleness"}), priorities)
        self._monitor = SampledDataAttrMonitor(self._log, **cfg.monitor.sampled_data_attr)

    @property
    def push_count(self) -> int:
        """Rows pushed since the buffer was made."""
        return self.buffer.pushed()[0]

    @property
    def beta(self) -> float:
        """Strength of the importance weights of the next sample."""
        return float(state_of(self.buffer.shared.held, "beta")[0])

    @beta.setter
    def beta(self, beta: float) -> None:
        beta = check_number("AdvancedReplayBuffer", "beta", beta)
        self.buffer.shared.priorities = self.buffer.shared.priorities | {"beta": beta}
        state = self.buffer.shared.held.state_dict()
        self.buffer.shared.held.load_state_dict(state | {"beta": np.full_like(state["beta"], beta)})

    def _taken(self, row: object) -> tuple[object, dict[str, Any]]:
        if not isinstance(row, dict):
            raise TypeError(f"For 'AdvancedReplayBuffer', a row must be a dict, but got {row!r}. Nothing was stored.")
        collected = row.get("collect_iter")
        collected = min(collected) if isinstance(collected, (list, tuple)) else collected
        kept = {key: value for key, value in row.items() if key not in _ADDED}
        return kept, {"priority": row.get("priority"), "train_iter_data_collected": collected}

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> list[Any] | None:
        """Draw rows by priority, as `NaiveReplayBuffer.sample` does."""
        self.buffer.advance_to(cur_learner_iter)
        rows = super().sample(size, cur_learner_iter, sample_range, replace)
        if rows:
            self._monitor.add(rows, self.beta, cur_learner_iter, self._envstep)
        return rows

    def _returned(self, row: BufferedData) -> Any:
        data, meta = row.data, row.meta
        stale = -1 if meta.get("train_iter_data_collected") is None else meta["staleness"]
        known = meta["priority_IS"], meta["priority"], meta["use_count"], stale
        data.update(zip(_ADDED, (f"{self._name}_{row.index}", int(row.index) % self.buffer.size, *known)))
        return data

    def update(self, info: Any) -> None:
        """Set priorities: lists ``"replay_unique_id"``, ``"replay_buffer_idx"`` and ``"priority"``, if that is there.

        Rows that are not stored are skipped.
        """
        if len(info.get("priority", ())):
            prefix = f"{self._name}_"
            ids = [one.removeprefix(prefix) if one.startswith(prefix) else None for one in info["replay_unique_id"]]
            handles, _ = self.buffer.handles(ids)
            handles[handles % self.buffer.size != np.array(info["replay_buffer_idx"], int)] = -1
            self.buffer.shared.held.update_priorities(handles, [float(one) for one in info["priority"]])


class DequeBufferWrapper(NaiveReplayBuffer):
    """A `DequeBuffer` with the configuration and methods of the others."""

    config = {  # noqa: RUF012
        "replay_buffer_size": 10000,
        "max_use": _INFINITY,
        "train_iter_per_log": 100,
        "priority": False,
        "priority_IS_weight": False,
        "priority_power_factor": 0.6,
        "IS_weight_power_factor": 0.4,
        "IS_weight_anneal_train_iter": int(1e5),
        "priority_max_limit": 1000,
    }

    def _begin(self, cfg: Config) -> None:
        if cfg.max_use != _INFINITY:
            self.buffer.use(use_time_check(self.buffer, cfg.max_use))
        if cfg.priority:
            names = "priority_IS_weight priority_power_factor IS_weight_power_factor IS_weight_anneal_train_iter"
            self.buffer.use(PriorityExperienceReplay(self.buffer, *(cfg[name] for name in names.split())))
        self._last: list[BufferedData] = []
        self._due = -_INFINITY

    def sample(self, size: int, train_iter: int = 0) -> list[Any] | None:  # type: ignore[override]
        """Draw rows; ``None`` if there are too few."""
        if self.count() < size:
            return None
        self._last = rows = self.buffer.sample(size)
        if train_iter >= self._due:
            self._due = train_iter + self.cfg.train_iter_per_log
            uses, priorities = ([row.meta[key] for row in rows if key in row.meta] for key in ("use_count", "priority"))
            values = {"use_count_avg": np.mean(uses)} if uses else {}
            values |= {"priority_avg": np.mean(priorities), "priority_max": np.max(priorities)} if priorities else {}
            self._log.write({**values, "buffer_data_count": self.count()}, iter=train_iter)
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


_CLASSES: dict[str, Any] = {
    "naive": NaiveReplayBuffer,
    "elastic": ElasticReplayBuffer,
    "sequence": SequenceReplayBuffer,
    "episode": EpisodeReplayBuffer,
    "advanced": AdvancedReplayBuffer,
    "priority": AdvancedReplayBuffer,
    "deque": DequeBufferWrapper,
}
_KNOWN = {key for cls in _CLASSES.values() for key in cls.config} | {"type", "set_buffer_size", "objects"}
_KNOWN |= {"cfg_type", "name", "import_names", "multi_buffer", "min_sample_ratio", "replay_buffer_start_size"}


def get_buffer_cls(cfg: Mapping[str, Any]) -> type:
    """Return the class that `type` of a configuration names or is, after an import of the modules in `import_names`.

    Names are those of DI-engine: ``"naive"``, ``"elastic"``, ``"sequence"``, ``"episode"``, ``"advanced"``, also called
    ``"priority"``, and ``"deque"``; a ValueError for others.
    """
    for name in cfg.get("import_names") or ():
        if not name.startswith("ding."):  # where DI-engine's own are
            importlib.import_module(name)
    kind = cfg.get("type")
    if not isinstance(kind, type) and kind not in _CLASSES:
        raise ValueError(f"For 'create_buffer', 'type' must be a class or one of {list(_CLASSES)}, but got {kind!r}.")
    return kind if isinstance(kind, type) else _CLASSES[kind]


def create_buffer(cfg: Mapping[str, Any], *arguments: object, **more: object) -> Any:
    """Return the buffer of a configuration; if that has `multi_buffer`, a dict with one for each mapping in it.

    Args:
        cfg (Mapping): The configuration.
        *arguments (object): More arguments of the class.
        **more (object): As `arguments`.

    Examples:
        >>> from mindspore_replay.di_engine import create_buffer
        >>> buffer = create_buffer({"type": "advanced", "replay_buffer_size": 100})
        >>> print(type(buffer).__name__, buffer.replay_buffer_size, buffer.beta)
        AdvancedReplayBuffer 100 0.4
    """
    if cfg.get("multi_buffer"):
        parts = {name: part for name, part in cfg.items() if isinstance(part, Mapping)}
        return {
            name: create_buffer(part, *arguments, **{"instance_name": name, **more}) for name, part in parts.items()
        }
    return get_buffer_cls(cfg)(cfg, *arguments, **more)
