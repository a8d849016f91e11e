"""dm-reverb: a server, and clients in other processes.

A client's writer keeps its connection; `Client.insert` makes a stream for each row.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import reverb

from ..cases import CARTPOLE
from .team import CAPACITY, Held, Team, Work, inserting, serve

DTYPES = {name: np.dtype(dtype) for name, (_, dtype) in CARTPOLE.items()}


def arrays(row: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return a row with the columns' dtypes."""
    return {name: np.asarray(row[name], dtype) for name, dtype in DTYPES.items()}


def make(port: int, method: str) -> Work:
    """Connect."""
    client = reverb.Client(f"localhost:{port}")
    if method == "insert":
        return inserting(lambda row: client.insert(arrays(row), {"table": 1.0}))
    writer = client.trajectory_writer(1)

    def insert(row: Mapping[str, Any]) -> None:
        writer.append(arrays(row))
        writer.create_item("table", 1.0, {name: column[-1:] for name, column in writer.history.items()})
        writer.flush()

    return inserting(insert)


@contextlib.contextmanager
def hold() -> Iterator[Held]:
    """Make the buffer."""
    table = reverb.Table(
        "table", reverb.selectors.Uniform(), reverb.selectors.Fifo(), CAPACITY, reverb.rate_limiters.MinSize(1)
    )
    server = reverb.Server([table])
    yield Team(make, server.port, sys.argv[1]), lambda: int(table.info.current_size)


if __name__ == "__main__":
    serve(["dm-reverb", "tensorflow", "numpy"], hold)
