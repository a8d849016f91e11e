"""Logs the statistics of buffers during training."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..store.base.checks import check_size
from ..store.base.mixins import Closing
from ..store.faces.local import LocalBuffer
from .sinks import Sink
from .statistics import Histogram, Statistics, statistics_of

_LAST_STEP = 2**62  # more than any run takes


class Measured(Protocol):
    """A buffer elsewhere, such as a sharded one."""

    @property
    def nbytes(self) -> int:
        """Bytes at full capacity."""

    def statistics(self) -> Statistics:
        """Return the statistics of its rows."""


class ReplayMonitor(Closing):
    r"""Passes a buffer's counters to sinks, every so many operations.

    The buffer's operators update the counters, in compiled graphs too, so `step` only counts between readings. A
    reading holds the buffer's lock for about 20 ms per million rows. It reads the state of each row, not the columns.

    A reading contains the values of `statistics_of`; ``bytes`` at full capacity; and, since the previous reading,
    ``inserts_per_second``, ``samples_per_second`` (of rows, sequences or episodes) and ``samples_per_insert``.

    Args:
        buffer (Union[Cell, host.ReplayBuffer, ShardedReplay, Mapping]): A buffer, or several by name. Values are then
            called ``name/value``.
        sink (Union[Sink, Sequence[Sink]]): Destination of readings: `TensorBoardSink`, `JSONLinesSink`, `TerminalSink`,
            or any object with their methods.
        every (int): Operations between two readings. Default: ``1000``.
        step (int): Initial value of `operations`, to resume a run. Default: ``0``.

    Attributes:
        operations (int): Operations so far, the ``step`` of a reading.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If `every` is not positive, or `step` negative.

    Examples:
        >>> import pathlib, tempfile
        >>> from mindspore_replay import ReplayBuffer, ReplayMonitor
        >>> from mindspore_replay.training import JSONLinesSink
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "replay.jsonl"
        >>> buffer = ReplayBuffer(sample_size=2, capacity=100, shapes=[()], types=["float32"])
        >>> with ReplayMonitor(buffer, JSONLinesSink(path), every=50) as monitor:
        ...     for step in range(100):
        ...         buffer = buffer.insert([float(step)])
        ...         monitor.step()
        >>> print(len(path.read_text().splitlines()))
        2
    """

    def __init__(
        self,
        buffer: LocalBuffer | Measured | Mapping[str, LocalBuffer | Measured],
        sink: Sink | Sequence[Sink],
        every: int = 1000,
        *,
        step: int = 0,
    ) -> None:
        self._buffers = dict(buffer) if isinstance(buffer, Mapping) else {"": buffer}
        if not self._buffers:
            raise ValueError("For 'ReplayMonitor', 'buffer' must hold a buffer, but got none.")
        for one in self._buffers.values():
            if not (isinstance(one, LocalBuffer) or hasattr(one, "statistics")):
                raise TypeError(
                    "For 'ReplayMonitor', 'buffer' must be a buffer or a mapping of buffers, but got "
                    f"{type(one).__name__}. Of a MixedReplay give its buffers."
                )
        self._sinks: list[Sink] = list(sink) if isinstance(sink, Sequence) else [sink]
        for to in self._sinks:
            if not (callable(getattr(to, "write", None)) and callable(getattr(to, "close", None))):
                raise TypeError(
                    f"For 'ReplayMonitor', 'sink' must have methods 'write' and 'close', but got {type(to).__name__}."
                )
        self._every = check_size("ReplayMonitor", "every", every)
        self.operations = check_size("ReplayMonitor", "step", step, _LAST_STEP, minimum=0)
        self._due = self.operations + self._every
        self._before = {name: (time.perf_counter(), *_totals(one)) for name, one in self._buffers.items()}

    def step(self, operations: int = 1) -> None:
        """Count operations, for example steps of a training loop, and take a reading when one is due.

        Args:
            operations (int): Number of operations. Default: ``1``.

        Raises:
            TypeError: If `operations` is no int.
            ValueError: If `operations` is negative.

        Examples:
            >>> import os
            >>> from mindspore_replay import ReplayBuffer, ReplayMonitor
            >>> from mindspore_replay.training import JSONLinesSink
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> with ReplayMonitor(buffer, JSONLinesSink(os.devnull), every=10) as monitor:
            ...     for _ in range(25):
            ...         buffer = buffer.insert([1])
            ...         monitor.step()
            >>> print(monitor.operations)
            25
        """
        if operations != 1:
            check_size("ReplayMonitor", "operations", operations, minimum=0)
        self.operations += operations
        if self.operations >= self._due:
            self.write()

    def write(self) -> Statistics:
        """Take a reading now and pass it to the sinks.

        Returns:
            Statistics: The reading.

        Examples:
            >>> import os
            >>> from mindspore_replay import ReplayBuffer, ReplayMonitor
            >>> from mindspore_replay.training import JSONLinesSink
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> with ReplayMonitor(buffer.insert([[1, 2, 3]]), JSONLinesSink(os.devnull)) as monitor:
            ...     reading = monitor.write()
            >>> print(reading.values["inserted"], reading.values["sampled"])
            3 0
        """
        self._due = self.operations + self._every
        values: dict[str, float] = {}
        histograms: dict[str, Histogram] = {}
        for name, buffer in self._buffers.items():
            prefix = f"{name}/" if name else ""
            reading = _reading(buffer)
            more = {"bytes": buffer.nbytes, **self._rates(name, reading.values)}
            values |= {prefix + key: value for key, value in {**reading.values, **more}.items()}
            histograms |= {prefix + key: histogram for key, histogram in reading.histograms.items()}
        for sink in self._sinks:
            sink.write(self.operations, values, histograms)
        return Statistics(values, histograms)

    def _rates(self, name: str, values: Mapping[str, float]) -> dict[str, float]:
        then, inserted, sampled = self._before[name]
        now = time.perf_counter()
        self._before[name] = now, values["inserted"], values["sampled"]
        inserts, samples = values["inserted"] - inserted, values["sampled"] - sampled
        if inserts < 0 or samples < 0:  # an older state was loaded
            return {}
        seconds = max(now - then, 1e-9)
        rates = {"inserts_per_second": inserts / seconds, "samples_per_second": samples / seconds}
        return {**rates, "samples_per_insert": samples / inserts} if inserts else rates

    def close(self) -> None:
        """Close the sinks.

        Examples:
            >>> import os
            >>> from mindspore_replay import ReplayBuffer, ReplayMonitor
            >>> from mindspore_replay.training import JSONLinesSink
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> ReplayMonitor(buffer, JSONLinesSink(os.devnull)).close()
        """
        for sink in self._sinks:
            sink.close()


def _reading(buffer: LocalBuffer | Measured) -> Statistics:
    if not isinstance(buffer, LocalBuffer):
        return buffer.statistics()
    with buffer.state.snapshot() as state:
        return statistics_of(state)


def _totals(buffer: LocalBuffer | Measured) -> tuple[float, float]:
    values = _reading(buffer).values
    return values["inserted"], values["sampled"]
