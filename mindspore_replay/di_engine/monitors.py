"""What DI-engine's buffers log, limit by time and delete."""

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_ATTRIBUTES = "use", "priority", "staleness"


class Log:
    """Writes numbers as text, by Python's ``logging``, and to a SummaryWriter or a sink, if there is one."""

    def __init__(self, tb_logger: Any, exp_name: str, name: str) -> None:
        self.tb_logger, self._name = tb_logger, name
        self._text = logging.getLogger(f"mindspore_replay.di_engine.{exp_name}.{name}")

    def __deepcopy__(self, memo: object) -> "Log":
        return self

    def write(self, values: Mapping[str, float], **steps: int) -> None:
        """Log numbers, with a tag for each kind of step that is known."""
        self.say(", ".join(f"{key} {value:g}" for key, value in values.items()))
        for kind, step in steps.items():
            tagged = {f"{self._name}_{kind}/{key}": value for key, value in values.items() if step >= 0}
            if hasattr(self.tb_logger, "add_scalar"):
                for tag, value in tagged.items():
                    self.tb_logger.add_scalar(tag, value, step)
            elif self.tb_logger is not None and tagged:
                self.tb_logger.write(step, tagged, {})

    def say(self, text: str) -> None:
        """Log a line of text."""
        self._text.info("%s: %s", self._name, text)


class SampledDataAttrMonitor:
    """Logs use counts, priorities and staleness over the last `average_range` samples, each `print_freq` samples."""

    def __init__(self, log: Log, average_range: int, print_freq: int) -> None:
        self._log, self._every, self._samples = log, print_freq, 0
        self._last: deque[np.ndarray] = deque(maxlen=average_range)

    def add(self, rows: Sequence[Mapping[str, Any]], beta: float, learner_iter: int, envstep: int) -> None:
        """Take in a sample, and log if it is time."""
        sampled = np.array([[row[key] for key in _ATTRIBUTES] for row in rows], float)
        self._last.append(np.stack([sampled.mean(0), sampled.max(0), sampled.min(0)]))
        if self._samples % self._every == 0:
            mean, largest, smallest = np.stack(self._last, 1)
            values = {f"{key}_avg": one for key, one in zip(_ATTRIBUTES, mean.mean(0))}
            values |= {f"{key}_max": one for key, one in zip(_ATTRIBUTES, largest.max(0))}
            values |= {"priority_min": smallest.min(0)[1], "beta": beta}
            self._log.write(values, iter=learner_iter, step=envstep)
        self._samples += 1


class Throughput:
    """Counts rows pushed and sampled: logs them each so many `seconds`, and refuses by their ratio.

    For refusals a hundredth of a row counts after ``window_seconds`` of `control`, and its ``push_sample_rate_limit``
    has the ``min`` and ``max`` of rows pushed for each row sampled. `count` returns how many rows are stored.
    """

    def __init__(self, log: Log, count: Callable[[], int], seconds: float, control: Mapping[str, Any]) -> None:
        self._log, self._count, self._seconds, self._times, self._before = log, count, seconds, 0, 0
        self._limits, self._decay = control["push_sample_rate_limit"], 0.01 ** (1 / control["window_seconds"])
        self._since = self._second = time.monotonic()
        self._in = self._out = 0  # since the last log
        self._pushed = self._sampled = 0.0  # of late

    def add(self, pushed: int = 0, sampled: int = 0) -> None:
        """Count rows, and log if it is time."""
        self._fade()
        self._pushed, self._sampled = self._pushed + pushed, self._sampled + sampled
        now, self._in, self._out = time.monotonic(), self._in + pushed, self._out + sampled
        if now - self._since >= self._seconds:
            stored, counts = self._count(), {"pushed_in": self._in, "sampled_out": self._out}
            removed = self._before + self._in - stored
            self._log.write({**counts, "removed": removed, "current_have": stored}, sec=self._times)
            self._since, self._times, self._before, self._in, self._out = now, self._times + 1, stored, 0, 0

    def _fade(self) -> None:
        seconds = int(time.monotonic() - self._second)
        self._second, left = self._second + seconds, self._decay**seconds
        self._pushed, self._sampled = self._pushed * left, self._sampled * left

    def can_push(self, rows: int) -> bool:
        """Return whether so many rows may be pushed."""
        self._fade()
        return self._sampled < 1e-5 or (self._pushed + rows) / self._sampled <= self._limits["max"]

    def can_sample(self, rows: int) -> bool:
        """Return whether so many rows may be sampled."""
        self._fade()
        return self._pushed >= self._limits["min"] * (self._sampled + rows)


def remove_file(row: Mapping[str, Any]) -> None:
    """Delete the file of a row that left a buffer, a dict with the path as ``"data_id"``."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(row["data_id"])
