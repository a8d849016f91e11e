"""Reports the contents of a checkpoint: columns, rows, counters, averages and distributions.

Examples:
  mindspore-replay inspect buffer.safetensors
  mindspore-replay inspect buffer.safetensors --json | jq .rows
"""

import argparse
import inspect
import json
from typing import Any

from ..checkpoint.file_format import sensible
from ..checkpoint.overview import Overview, overview
from ..store.spec.arguments import encoded
from ..store.spec.described import constructor_of
from ..training.sinks import as_json, bars, number_text
from ..training.statistics import Statistics, statistics_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", help="a file that save() wrote")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Print the contents of the file."""
    buffers, nbytes = overview(options.file)
    with sensible(options.file):
        readings = [_reading(buffer) for buffer in buffers]
    if options.json:
        objects = {buffer.name: _as_object(buffer, reading) for buffer, reading in zip(buffers, readings)}
        print(json.dumps(objects[""] if list(objects) == [""] else objects))
    else:
        version = buffers[0].library_version if buffers else "unknown"
        print(f"{options.file}: {nbytes:,} bytes on the disk, written by mindspore_replay {version}")
        for buffer, reading in zip(buffers, readings):
            print(_as_text(buffer, reading))
    return 0


def _reading(buffer: Overview) -> Statistics:
    values, histograms = statistics_of(buffer.state)
    if values["inserted"]:
        values["samples_per_insert"] = values["sampled"] / values["inserted"]
    returns = buffer.returns
    if returns.size:
        values |= {"episodes": returns.size, "return_mean": float(returns.mean()), "return_max": float(returns.max())}
    return Statistics(values, histograms)


def _as_object(buffer: Overview, reading: Statistics) -> dict[str, Any]:
    fields = {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in buffer.fields.items()}
    return {
        "library_version": buffer.library_version,
        "description": buffer.description,
        "columns": fields,
        **as_json(*reading),
    }


def _changed(description: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a buffer that are not the constructor's defaults, without the columns."""
    if "arguments" not in description:
        return {"": description.get("reason")}
    constructor = constructor_of(description.get("kind", description["class"]))
    parameters = {} if constructor is None else inspect.signature(constructor.__init__).parameters
    defaults = {key: encoded(parameter.default) for key, parameter in parameters.items()}
    return {
        key: value
        for key, value in description["arguments"].items()
        if key not in ("shapes", "types", "names", "columns") and (key not in defaults or value != defaults[key])
    }


def _as_text(buffer: Overview, reading: Statistics) -> str:
    more = [f"{key}={value!r}" for key, value in _changed(buffer.description).items()]
    lines = [
        f"{buffer.name + ': ' if buffer.name else ''}{buffer.description['class']}({', '.join(more)})",
        "  columns",
    ]
    width = max(map(len, [*buffer.fields, *reading.values]))
    lines += [f"    {name:{width}}  {dtype} {list(shape)}" for name, (dtype, shape) in buffer.fields.items()]
    lines.append("  numbers")
    lines += [f"    {name:{width}}  {number_text(value)}" for name, value in reading.values.items()]
    for name, (edges, counts) in reading.histograms.items():
        lines.append(f"    {name:{width}}  {number_text(edges[0])} |{bars(counts)}| {number_text(edges[-1])}")
    return "\n".join(lines)
