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
        self._tb_logger, self._name = tb_logger, name
        self._text = logging.getLogger(f"mindspore_replay.di_engine.{exp_name}.{name}")

    def __deepcopy__(self, memo: object) -> "Log":
        return self

    def write(self, values: Mapping[str, float], **steps: int) -> None:
        """Log numbers, with a tag for each kind of step that is known."""
        self.say(", ".join(f"{key} {value:g}" for key, value in values.items()))
        for kind, step in steps.items() if self._tb_logger is not None else ():
            tagged = {f"{self._name}_{kind}/{key}": value for key, value in values.items() if step >= 0}
            if tagged and not hasattr(self._tb_logger, "add_scalar"):
                self._tb_logger.write(step, tagged, {})
            else:
                for tag, value in tagged.items():
                    self._tb_logger.add_scalar(tag, value, step)

    def say(self, text: str) -> None:
        """Log a line of text."""
        self._text.info("%s: %s", self._name, text)

    def flush(self) -> None:
        """Flush what listens."""
        getattr(self._tb_logger, "flush", lambda: None)()


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
            parts = {"avg": mean.mean(0), "max": largest.max(0)}
            values = {f"{key}_{name}": part[i] for name, part in parts.items() for i, key in enumerate(_ATTRIBUTES)}
            values["priority_min"] = smallest.min(0)[1]
            self._log.write({**values, "beta": beta}, iter=learner_iter, step=envstep)
        self._samples += 1


class PeriodicThruputMonitor:
    """Logs rows pushed, sampled and removed each so many `seconds`, at the first call after that."""

    def __init__(self, log: Log, seconds: float) -> None:
        self._log, self._seconds, self._times, self._before = log, seconds, 0, 0
        self._since, self._pushed, self._sampled = time.monotonic(), 0, 0

    def add(self, count: Callable[[], int], pushed: int = 0, sampled: int = 0) -> None:
        """Count rows of a call, and log if it is time; `count` returns how many are stored."""
        self._pushed += pushed
        self._sampled += sampled
        if time.monotonic() - self._since >= self._seconds:
            stored, counts = count(), {"pushed_in": self._pushed, "sampled_out": self._sampled}
            removed = self._before + self._pushed - stored
            self._log.write({**counts, "removed": removed, "current_have": stored}, sec=self._times)
            self._times, self._before = self._times + 1, stored
            self._since, self._pushed, self._sampled = time.monotonic(), 0, 0


class ThruputController:
    """Refuses pushes and samples by the ratio of their rows, of which a hundredth counts after `window_seconds`.

    Args:
        push_sample_rate_limit (Mapping[str, float]): ``min`` and ``max`` of rows pushed for each row sampled.
        window_seconds (float): The window.
    """

    def __init__(self, push_sample_rate_limit: Mapping[str, float], window_seconds: float) -> None:
        self._least, self._most = push_sample_rate_limit["min"], push_sample_rate_limit["max"]
        self._decay, self._pushed, self._sampled = 0.01 ** (1 / window_seconds), 0.0, 0.0
        self._second = time.monotonic()

    def add(self, pushed: int = 0, sampled: int = 0) -> None:
        """Count rows."""
        seconds = int(time.monotonic() - self._second)
        self._second += seconds
        self._pushed = self._pushed * self._decay**seconds + pushed
        self._sampled = self._sampled * self._decay**seconds + sampled

    def can_push(self, rows: int) -> bool:
        """Return whether so many rows may be pushed."""
        self.add()
        return self._sampled < 1e-5 or (self._pushed + rows) / self._sampled <= self._most

    def can_sample(self, rows: int) -> bool:
        """Return whether so many rows may be sampled."""
        self.add()
        return self._pushed >= self._least * (self._sampled + rows)


class UsedDataRemover:
    """Deletes the files of rows that left a buffer: dicts with the path as ``"data_id"``; from `start` on at once."""

    def __init__(self) -> None:
        self._left: list[str] = []
        self._started = False

    def start(self) -> None:
        """Begin to delete."""
        self._started = True

    def add_used_data(self, data: Mapping[str, Any]) -> None:
        """Take over the file of a row."""
        self._left.append(data["data_id"])
        if self._started:
            self.close()

    def close(self) -> None:
        """Delete all files that are left."""
        while self._left:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._left.pop())
