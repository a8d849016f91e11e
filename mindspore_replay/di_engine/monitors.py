"""What DI-engine's buffers log, and limit by time."""

import copy
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

_ATTRIBUTES = "use", "priority", "staleness"
CONTROL: dict[str, Any] = {
    "push_sample_rate_limit": {"max": inf, "min": 0},
    "window_seconds": 30,
    "sample_min_limit_ratio": 1,
}
MONITOR: dict[str, Any] = {
    "sampled_data_attr": {"average_range": 5, "print_freq": 200},
    "periodic_thruput": {"seconds": 60},
}


class Monitor:
    """Logs what a configuration asks for, and refuses rows by the ratio of those pushed and sampled.

    Numbers go to Python's ``logging`` as text, and to `tb_logger`, a SummaryWriter or a sink, unless it is ``None``.
    For refusals a hundredth of a row counts after ``window_seconds``. `count` returns how many rows are stored.
    """

    def __init__(self, cfg: Mapping[str, Any], tb_logger: Any, exp_name: str, name: str) -> None:
        self._tb_logger, self._name, self._times, self._before, self._samples = tb_logger, name, 0, 0, 0
        self._text = logging.getLogger(f"mindspore_replay.di_engine.{exp_name}.{name}")
        control, logged = cfg.get("thruput_controller") or CONTROL, MONITOR | (cfg.get("monitor") or {})
        self._limits, self._ratio = control["push_sample_rate_limit"], control["sample_min_limit_ratio"]
        self._decay = 0.01 ** (1 / control["window_seconds"])
        self._seconds = cfg.get("periodic_thruput_seconds", logged["periodic_thruput"]["seconds"]) or inf
        self._every, length = (logged["sampled_data_attr"][key] for key in ("print_freq", "average_range"))
        self._last: deque[np.ndarray] = deque(maxlen=length)
        self._since = self._second = time.monotonic()
        self._in = self._out = 0  # since the last log
        self._pushed = self._sampled = 0.0  # of late

    def __deepcopy__(self, memo: object) -> "Monitor":
        clone = copy.copy(self)  # a SummaryWriter has threads
        clone._last = self._last.copy()  # noqa: SLF001
        return clone

    def say(self, text: str) -> None:
        """Log a line of text."""
        self._text.info("%s: %s", self._name, text)

    def write(self, values: Mapping[str, float], **steps: int) -> None:
        """Log numbers, with a tag for each kind of step that is known."""
        self.say(", ".join(f"{key} {value:g}" for key, value in values.items()))
        for clock, step in steps.items():
            tagged = {f"{self._name}_{clock}/{key}": value for key, value in values.items() if step >= 0}
            if hasattr(self._tb_logger, "add_scalar"):
                for tag, value in tagged.items():
                    self._tb_logger.add_scalar(tag, value, step)
            elif self._tb_logger is not None and tagged:
                self._tb_logger.write(step, tagged, {})

    def flush(self) -> None:
        """Flush what listens."""
        getattr(self._tb_logger, "flush", lambda: None)()

    def sampled(self, rows: Sequence[Mapping[str, Any]], beta: float, learner_iter: int, envstep: int) -> None:
        """Log use counts, priorities and staleness over the last samples, each ``print_freq`` samples."""
        sampled = np.array([[row[key] for key in _ATTRIBUTES] for row in rows], float)
        self._last.append(np.stack([sampled.mean(0), sampled.max(0), sampled.min(0)]))
        if self._samples % self._every == 0:
            mean, largest, smallest = np.stack(self._last, 1)
            values = {f"{key}_avg": one for key, one in zip(_ATTRIBUTES, mean.mean(0))}
            values |= {f"{key}_max": one for key, one in zip(_ATTRIBUTES, largest.max(0))}
            values |= {"priority_min": smallest.min(0)[1], "beta": beta}
            self.write(values, iter=learner_iter, step=envstep)
        self._samples += 1

    def add(self, count: Callable[[], int], pushed: int = 0, sampled: int = 0) -> None:
        """Count rows, and log the throughput at the first call after so many seconds."""
        self._fade()
        self._pushed, self._sampled = self._pushed + pushed, self._sampled + sampled
        now, self._in, self._out = time.monotonic(), self._in + pushed, self._out + sampled
        if now - self._since >= self._seconds:
            stored, counts = count(), {"pushed_in": self._in, "sampled_out": self._out}
            removed = self._before + self._in - stored
            self.write({**counts, "removed": removed, "current_have": stored}, sec=self._times)
            self._since, self._times, self._before, self._in, self._out = now, self._times + 1, stored, 0, 0

    def _fade(self) -> None:
        seconds = int(time.monotonic() - self._second)
        self._second, left = self._second + seconds, self._decay**seconds
        self._pushed, self._sampled = self._pushed * left, self._sampled * left

    def can_push(self, rows: int) -> bool:
        """Return whether so many rows may be pushed."""
        self._fade()
        return self._sampled < 1e-5 or (self._pushed + rows) / self._sampled <= self._limits["max"]

    def can_sample(self, rows: int, replace: bool, stored: int) -> bool:
        """Return whether so many of the stored rows may be sampled."""
        self._fade()
        return self._pushed >= self._limits["min"] * (self._sampled + rows) and (
            replace or stored >= rows * self._ratio
        )
