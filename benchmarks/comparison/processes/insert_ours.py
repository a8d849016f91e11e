"""This project: a learner that made the buffer in a folder of /dev/shm, and attached writers without MindSpore."""

import contextlib
import tempfile
from collections.abc import Iterator

from mindspore_replay import attach

from ..cases import CARTPOLE
from .team import CAPACITY, Held, Team, Work, inserting, serve


def make(folder: str) -> Work:
    """Attach."""
    return inserting(attach(folder).insert)


@contextlib.contextmanager
def hold() -> Iterator[Held]:
    """Make the buffer."""
    from mindspore_replay import ReplayBuffer  # here since writers import this module

    shapes, types = map(list, zip(*CARTPOLE.values()))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as parent:
        folder = f"{parent}/rows"
        buffer = ReplayBuffer(64, CAPACITY, shapes, types, names=list(CARTPOLE), storage=folder)
        yield Team(make, folder), lambda: int(buffer.size())


if __name__ == "__main__":
    serve(["mindspore", "numpy"], hold)
