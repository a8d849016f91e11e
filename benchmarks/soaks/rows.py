"""What soaks share: checksums of rows, which every reader verifies, and runs of several buffers."""

import argparse
import json
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np


def checksum(row: Sequence[Any]) -> int:
    """Return the checksum of all fields but the last."""
    value = 0
    for field in row[:-1]:
        value = zlib.crc32(np.ascontiguousarray(field).view(np.uint8), value)
    return value


def add_options(parser: argparse.ArgumentParser, kinds: Collection[str], usual: Sequence[str]) -> None:
    """Add the options of `run_each`."""
    parser.add_argument("--minutes", type=float, default=10, help="how long in all (default: 10)")
    parser.add_argument("--seconds", type=float, help="how long in all, instead of --minutes")
    parser.add_argument("--buffer", nargs="+", choices=kinds, default=usual, help="one after the other")


def run_each(options: argparse.Namespace, soak: Callable[[str, float], dict[str, Any]]) -> int:
    """Divide the time among the buffers, print what each soak found, and return the exit code."""
    seconds = (options.minutes * 60 if options.seconds is None else options.seconds) / len(options.buffer)
    faults = 0
    for kind in options.buffer:
        found = {"kind": kind, "seconds": seconds, **soak(kind, seconds)}
        print(json.dumps(found), flush=True)
        faults += len(found["faults"])
    return int(faults > 0)
