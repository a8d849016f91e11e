"""What the benchmarks share: interleaved rounds, and their medians against limits."""

import argparse
import json
import platform
from collections.abc import Mapping

import mindspore as ms
import numpy as np

from mindspore_replay import kernel_status
from mindspore_replay.cli.timing import MICRO, measure, once

__all__ = ["MICRO", "arguments", "measure", "once", "show"]


def arguments(description: str) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds (default: 31)")
    parser.add_argument("--json", help="also write the figures of every round to this file")
    return parser


def show(report: Mapping[str, list[float]], limits: Mapping[str, float], path: str | None) -> None:
    """Prints each figure's median and quartiles, against its limit if it has one; writes all rounds to a file."""
    print(f"MindSpore {ms.__version__}, Python {platform.python_version()}, backend {kernel_status().backend}")
    for name, values in report.items():
        low, middle, high = np.percentile(values, (25, 50, 75))
        limit = f"   limit {limits[name]:g}: {'met' if middle <= limits[name] else 'NOT met'}" if name in limits else ""
        unit = "  " if " / " in name else "us"
        print(f"{name:50s} {middle:12.2f} {unit} [{low:.2f}, {high:.2f}]{limit}")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
