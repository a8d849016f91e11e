"""sb3-extra-buffers: a `CompressedReplayBuffer` of stable-baselines3, with its default codec, LZ4 or zstd.

With `optimize_memory_usage` it stores each stack once, in the place of single frames.
"""

import contextlib
import sys
from typing import Any

import numpy as np
from gymnasium import spaces

from ..answering import Peer, Work, answer
from ..cases import STACK, Case, in_turn
from .cases import CASES, FRAME, fact, filled

with contextlib.redirect_stdout(sys.stderr):  # it writes there when it is imported; answers are on standard output
    from sb3_extra_buffers.compressed import CompressedReplayBuffer

#: Arguments of each codec: its own default, and the fast level of the libraries.
CODECS: dict[str, dict[str, Any]] = {
    "rle": {},
    "lz4": {"compression_method": "lz4-block", "compression_kwargs": {"compresslevel": 0}},
    "zstd": {"compression_method": "zstd", "compression_kwargs": {"compresslevel": 3, "threads": 1}},
}


class Sb3ExtraBuffers(Peer):
    """Rows of stacks; where frames are asked for, each stack once."""

    packages = ("sb3_extra_buffers", "stable_baselines3", "torch")

    def __init__(self, codec: str) -> None:
        super().__init__()
        self._codec = CODECS[codec]

    def prepare(self, case: Case) -> Work:
        """Fill a buffer, and prepare the case."""
        once = case.work.startswith("frames")
        buffer = CompressedReplayBuffer(
            case.capacity,
            spaces.Box(0, 255, (STACK, *FRAME), np.uint8),
            spaces.Discrete(4),
            "cpu",
            optimize_memory_usage=once,
            handle_timeout_termination=not once,
            **self._codec,
        )
        frames: list[np.ndarray] = [np.zeros(FRAME, np.uint8)] * (STACK + 1)

        def insert(row: dict[str, Any]) -> None:
            if once:
                frames.append(row["observation"])
                del frames[0]
                observation, following = np.stack(frames[:-1]), np.stack(frames[1:])
            else:
                observation, following = row["observation"], row["next_observation"]
            buffer.add(
                observation[None],
                following[None],
                np.array([row["action"]]),
                np.array([row["reward"]]),
                np.array([row["terminated"]]),
                [{}],
            )

        rows, grown = filled(case, insert)
        if case.work.endswith("bytes"):
            return fact(grown)
        if case.work.endswith("sample"):
            return Work(lambda: buffer.sample(case.batch))
        return Work(in_turn(insert, rows), note="stores each stack once" if once else "")


if __name__ == "__main__":
    answer(Sb3ExtraBuffers(sys.argv[1]), CASES)
