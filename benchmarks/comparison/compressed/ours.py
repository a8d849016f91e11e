"""mindspore_replay: `ReplayBuffer` with compressed columns, and without."""

import sys
from typing import Any

from mindspore_replay import Column, FrameStack, ReplayBuffer

from ..answering import Peer, Work, answer
from ..cases import STACK, Case, in_turn
from .cases import CASES, FRAME, fact, filled

SCALARS = {"action": "int32", "reward": "float32", "terminated": "bool"}


class Ours(Peer):
    """Frames as they are, or compressed."""

    packages = ("mindspore", "lz4")

    def __init__(self, compressed: bool) -> None:
        super().__init__()
        self._compressed = compressed

    def prepare(self, case: Case) -> Work:
        """Fill a buffer, and prepare the case."""
        if case.work.startswith("frames"):
            columns, shape, views = ["observation"], FRAME, [FrameStack(STACK)]
        else:
            columns, shape, views = ["observation", "next_observation"], (STACK, *FRAME), []
        frames = Column(shape, "uint8", compress=self._compressed)
        schema = {**dict.fromkeys(columns, frames), **{name: Column((), dtype) for name, dtype in SCALARS.items()}}
        buffer = ReplayBuffer(case.batch, case.capacity, columns=schema, views=views, seed=0)

        def insert(row: dict[str, Any]) -> None:
            buffer.insert(row, end=row["terminated"]) if views else buffer.insert(row)

        if case.work.endswith("bytes") and not self._compressed:
            return fact(buffer.nbytes / case.capacity)  # of one size; some GB need not be filled for that
        rows, grown = filled(case, insert)
        if case.work.endswith("bytes"):
            return fact(grown)
        return Work(buffer.sample) if case.work.endswith("sample") else Work(in_turn(insert, rows))


if __name__ == "__main__":
    answer(Ours(sys.argv[1] == "compressed"), CASES)
