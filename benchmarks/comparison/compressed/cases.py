"""The cases of compressed frames, and the frames: those of a random policy in ALE. NumPy only.

Two layouts of the same steps: ``stacks``, rows of two stacks ``(4, 84, 84)``, as a DQN without views stores them, and
``frames``, rows of one frame ``(84, 84)``, of which samples are stacked.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..answering import Work
from ..cases import STACK, Case

GAMES = ("Pong", "Breakout")
FRAMES, BATCH = 10_000, 32
#: Rows of the buffer. For bytes there are more, since the memory of a process grows in steps.
ROWS, ROWS_OF_BYTES = 20_000, {"stacks": 50_000, "frames": 100_000}
FRAME = (84, 84)

CASES = tuple(
    Case(
        f"{game}_{layout}_{work}",
        f"{game}, {layout}: {title}",
        f"{layout}_{work}",
        batch=BATCH,
        unit=unit,
        capacity=ROWS_OF_BYTES[layout] if unit == "bytes" else ROWS,
    )
    for game in GAMES
    for layout in ("stacks", "frames")
    for work, title, unit in (
        ("bytes", "bytes a row", "bytes"),
        ("sample", f"sample {BATCH}", "s"),
        ("insert", "insert one row", "s"),
    )
)


def frames_of(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return frames ``[n, 84, 84]``, uint8, and whether each is the last of its episode, from the working directory."""
    game = case.name.partition("_")[0]
    with np.load(Path(f"{game}.npz")) as file:
        return file["frames"], file["ends"]


def row_of(case: Case, frames: np.ndarray, ends: np.ndarray, i: int) -> dict[str, Any]:
    """Return row `i` in the layout of the case; both wrap around at the end of the frames."""
    n = len(frames)
    row = {"action": i % 4, "reward": float(i % 3 == 0), "terminated": bool(ends[i % n])}
    if case.work.startswith("frames"):
        return {"observation": frames[i % n], **row}
    stacks = [np.take(frames, np.arange(i + first, i + first + STACK), 0, mode="wrap") for first in (0, 1)]
    return {"observation": stacks[0], "next_observation": stacks[1], **row}


def filled(case: Case, insert: Callable[[dict[str, Any]], Any]) -> tuple[list[dict[str, Any]], float]:
    """Fill a buffer row by row. Return rows to insert later, and by how many bytes a row the process has grown."""
    frames, ends = frames_of(case)
    frames, ends = frames.copy(), ends.copy()
    for i in range(64):  # what libraries make at first is not counted
        insert(row_of(case, frames, ends, i))
    before = resident()
    for i in range(64, case.capacity):
        insert(row_of(case, frames, ends, i))
    grown = (resident() - before) / (case.capacity - 64)
    return [row_of(case, frames, ends, i) for i in range(500)], grown


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fact(bytes_a_row: float) -> Work:
    """Return the work of a case that asks for bytes."""
    return Work(lambda: bytes_a_row)
