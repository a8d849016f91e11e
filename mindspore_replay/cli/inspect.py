"""Reports the contents of a checkpoint: columns, rows, counters, averages and distributions.

Examples:
  mindspore-replay inspect buffer.safetensors
  mindspore-replay inspect buffer.safetensors --plot buffer.png
  mindspore-replay inspect buffer.safetensors --json | jq .rows
"""

import argparse
import json
from typing import Any

import numpy as np

from ..checkpoint.overview import Overview, overview
from ..store.optional import install_command
from ..training.sinks import as_json, bars, number_text
from ..training.statistics import Statistics, statistics_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", help="a file that save() wrote")
    parser.add_argument("--plot", metavar="PNG", help="also draw priorities, ages and returns to this file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Print the contents of the file, and plot them if asked to."""
    parts, nbytes = overview(options.file)
    readings = [_reading(part) for part in parts]
    if options.json:
        objects = {part.name: _as_object(part, reading) for part, reading in zip(parts, readings)}
        print(json.dumps(objects[""] if list(objects) == [""] else objects))
    else:
        version = parts[0].library_version if parts else "unknown"
        print(f"{options.file}: {nbytes:,} bytes on the disk, written by mindspore_replay {version}")
        for part, reading in zip(parts, readings):
            print(_as_text(part, reading))
    if options.plot:
        _plot(parts, readings, options.plot)
        if not options.json:
            print(f"drawn: {options.plot}")
    return 0


def _reading(part: Overview) -> Statistics:
    values, histograms = statistics_of(part.state)
    if values["inserted"]:
        values["samples_per_insert"] = values["sampled"] / values["inserted"]
    returns = part.returns()
    if returns.size:
        values |= {"episodes": returns.size, "return_mean": float(returns.mean()), "return_max": float(returns.max())}
    return Statistics(values, histograms)


def _as_object(part: Overview, reading: Statistics) -> dict[str, Any]:
    fields = {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in part.fields.items()}
    return {
        "library_version": part.library_version,
        "description": part.description,
        "columns": fields,
        **as_json(*reading),
    }


def _as_text(part: Overview, reading: Statistics) -> str:
    given = part.description.get("arguments", {"": part.description.get("reason")})
    more = [f"{key}={value!r}" for key, value in given.items() if key not in ("shapes", "types", "names")]
    lines = [f"{part.name + ': ' if part.name else ''}{part.description['class']}({', '.join(more)})", "  columns"]
    width = max(map(len, [*part.fields, *reading.values]))
    lines += [f"    {name:{width}}  {dtype} {list(shape)}" for name, (dtype, shape) in part.fields.items()]
    lines.append("  numbers")
    lines += [f"    {name:{width}}  {number_text(value)}" for name, value in reading.values.items()]
    for name, (edges, counts) in reading.histograms.items():
        lines.append(f"    {name:{width}}  {number_text(edges[0])} |{bars(counts)}| {number_text(edges[-1])}")
    return "\n".join(lines)


def _plot(parts: list[Overview], readings: list[Statistics], path: str) -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(f"'--plot' needs matplotlib: {install_command('examples')}") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(len(parts), 3, figsize=(12, 3.4 * len(parts)), layout="constrained", squeeze=False)
    for (priorities, ages, returns), part, reading in zip(grid, parts, readings):
        _draw_histogram(priorities, reading, "priority", "priority")
        if "priority" in reading.histograms and reading.histograms["priority"].edges[0] > 0:
            priorities.set_xscale("log")
        _draw_histogram(ages, reading, "age", "age, rows inserted since")
        _draw_returns(returns, part.returns())
        ages.set_title(f"{part.name + ': ' if part.name else ''}{part.description['class']}")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _draw_histogram(axes: Any, reading: Statistics, name: str, label: str) -> None:
    if name not in reading.histograms:
        _say(axes, f"no {name}")
        return
    edges, counts = reading.histograms[name]
    axes.stairs(counts, edges, fill=True, alpha=0.7)
    axes.set(xlabel=label, ylabel="rows that may be drawn", xlim=(edges[0], edges[-1]))


def _draw_returns(axes: Any, returns: np.ndarray) -> None:
    if returns.size == 0:
        _say(axes, "no whole episode with rewards")
        return
    axes.plot(returns, ".", alpha=0.5)
    mean = [returns[max(0, i - 19) : i + 1].mean() for i in range(returns.size)]
    axes.plot(mean, label="mean of 20")
    axes.set(xlabel="episode, from the oldest", ylabel="return")
    axes.legend(frameon=False)


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color="grey")
    axes.set_axis_off()
