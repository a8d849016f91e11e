"""Destinations for the readings of a `ReplayMonitor`."""

import json
import math
import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

import numpy as np

from ..store.base.optional import optional
from .statistics import Histogram


class Sink(Protocol):
    """Destination of a `ReplayMonitor`'s readings."""

    def write(self, step: int, values: Mapping[str, float], histograms: Mapping[str, Histogram]) -> None:
        """Write a reading.

        Args:
            step (int): Operations so far.
            values (Mapping[str, float]): Numbers by name.
            histograms (Mapping[str, Histogram]): Distributions by name.
        """

    def close(self) -> None:
        """Write what is buffered, and release resources."""


class TensorBoardSink:
    """Writes readings as TensorBoard's scalars and histograms, by ``tensorboardX``.

    Args:
        folder (Union[str, os.PathLike]): Folder for the event file.
        prefix (str): Prefix of the tags. Default: ``"replay/"``.

    Raises:
        ImportError: If tensorboardX is not installed.

    Examples:
        >>> import pathlib, tempfile
        >>> from mindspore_replay.training import TensorBoardSink
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> sink = TensorBoardSink(folder)
        >>> sink.write(100, {"size": 64}, {})
        >>> sink.close()
        >>> print(len(list(folder.glob("events.out.tfevents.*"))))
        1
    """

    def __init__(self, folder: str | os.PathLike[str], prefix: str = "replay/") -> None:
        self._prefix = prefix
        self._writer = optional("tensorboardX", "TensorBoardSink", "monitor").SummaryWriter(os.fspath(folder))

    def write(self, step: int, values: Mapping[str, float], histograms: Mapping[str, Histogram]) -> None:
        """Add a point to each curve and a histogram to each distribution."""
        for name, value in values.items():
            self._writer.add_scalar(self._prefix + name, value, step)
        for name, (edges, counts) in histograms.items():
            middles = (edges[:-1] + edges[1:]) / 2
            self._writer.add_histogram_raw(
                self._prefix + name,
                min=float(edges[0]),
                max=float(edges[-1]),
                num=int(counts.sum()),
                sum=float((middles * counts).sum()),
                sum_squares=float((middles**2 * counts).sum()),
                bucket_limits=edges[1:].tolist(),
                bucket_counts=counts.tolist(),
                global_step=step,
            )
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class JSONLinesSink:
    """Appends each reading to a file as one line of JSON, and flushes it.

    A line is an object with ``step``, the numbers by name, and for each distribution ``edges`` and ``counts``.

    Args:
        path (Union[str, os.PathLike]): The file. Existing lines are kept.

    Examples:
        >>> import pathlib, tempfile
        >>> from mindspore_replay.training import JSONLinesSink
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "replay.jsonl"
        >>> sink = JSONLinesSink(path)
        >>> sink.write(100, {"size": 64, "inserted": 100}, {})
        >>> sink.close()
        >>> print(path.read_text(), end="")
        {"step": 100, "size": 64, "inserted": 100}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, step: int, values: Mapping[str, float], histograms: Mapping[str, Histogram]) -> None:
        """Append a line."""
        self._file.write(json.dumps({"step": step, **as_json(values, histograms)}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TerminalSink:
    """Shows the latest reading as a table on the terminal, updated in place, by ``rich``.

    If the output is not a terminal, the last table is printed at the end.

    Args:
        file (Union[TextIO, None]): Output. Default: ``None``, for the standard error output.

    Raises:
        ImportError: If rich is not installed.

    Examples:
        >>> import io
        >>> from mindspore_replay.training import TerminalSink
        >>> file = io.StringIO()  # in place of the terminal
        >>> sink = TerminalSink(file)
        >>> sink.write(100, {"size": 64}, {})
        >>> sink.close()
        >>> print("size" in file.getvalue(), "step 100" in file.getvalue())
        True True
    """

    def __init__(self, file: TextIO | None = None) -> None:
        console, live = (optional(f"rich.{name}", "TerminalSink", "monitor", "rich") for name in ("console", "live"))
        self._live = live.Live(console=console.Console(file=file or sys.stderr), auto_refresh=False)
        self._live.start()

    def write(self, step: int, values: Mapping[str, float], histograms: Mapping[str, Histogram]) -> None:
        """Replace the table."""
        from rich.table import Table

        table = Table("replay", f"step {step:,}", "", title_justify="left")
        for name, value in values.items():
            table.add_row(name, number_text(value), "")
        for name, (_edges, counts) in histograms.items():
            table.add_row(name, "", bars(counts))
        self._live.update(table, refresh=True)

    def close(self) -> None:
        """Stop updating. The last table stays."""
        self._live.stop()


def as_json(values: Mapping[str, float], histograms: Mapping[str, Histogram]) -> dict[str, Any]:
    """Return a reading as a JSON object. NaN and infinity become null."""
    spread = {
        name: {"edges": edges.tolist(), "counts": counts.tolist()} for name, (edges, counts) in histograms.items()
    }
    return {**{name: value if math.isfinite(value) else None for name, value in values.items()}, **spread}


def number_text(value: float) -> str:
    """Return a number with separators, rounded to four digits if it is a float."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def bars(counts: np.ndarray, width: int = 32) -> str:
    """Draw a distribution as a row of bars, with at most `width` groups of intervals. The largest has full height."""
    groups = [int(group.sum()) for group in np.array_split(counts, min(width, len(counts)))]
    highest = max(max(groups), 1)
    return "".join(" ▁▂▃▄▅▆▇█"[-(-8 * group // highest)] for group in groups)
