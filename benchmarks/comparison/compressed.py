"""Compressed frames of Pong and Breakout in one library: bytes a row, times of samples and insertions.

    python -m comparison.compressed ours|list|torchrl|sb3_extra_buffers [CODEC]

The frames are those of a random policy in ALE, as wrapped for a DQN. There are two layouts of the same steps:
``stacks``, rows of two stacks ``(4, 84, 84)``, as a DQN without views stores them, and ``frames``, rows of one frame
``(84, 84)``, of which samples are stacked. Bytes are those by which a process grows while it fills its buffer.
"""

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .answering import NotOfferedError, Peer, Work, answer
from .cases import STACK, Case, in_turn

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
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def play(game: str, path: Path) -> None:
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    environment = gymnasium.wrappers.AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", frameskip=1))
    environment.action_space.seed(0)
    frames, ends = [environment.reset(seed=0)[0]], [False]
    while len(frames) < FRAMES:
        frame, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        frames.append(frame)
        ends.append(terminated or truncated)
        if ends[-1]:
            frames.append(environment.reset()[0])
            ends.append(False)
    np.savez(path, frames=np.stack(frames[:FRAMES]), ends=np.array(ends[:FRAMES]))


def play_all(folder: Path) -> None:
    """Write the frames of all games, for all peers."""
    for game in GAMES:
        play(game, folder / f"{game}.npz")


SCALARS = {"action": "int32", "reward": "float32", "terminated": "bool"}


class Frames(Peer):
    """A library: ``buffer(case)`` returns functions that insert a row, and that sample."""

    def prepare(self, case: Case) -> Work:
        insert, sample = self.buffer(case)
        rows, grown = filled(case, insert)
        if case.work.endswith("bytes"):
            return Work(lambda: grown)
        return Work(sample) if case.work.endswith("sample") else Work(in_turn(insert, rows))


class Ours(Frames):
    """Frames as they are, or compressed."""

    packages = ("mindspore", "lz4")

    def __init__(self, how: str) -> None:
        super().__init__()
        self._compressed = how == "compressed"

    def prepare(self, case: Case) -> Work:
        if case.work.endswith("bytes") and not self._compressed:  # of one size; some GB need not be filled for that
            return Work(lambda: self.buffer(case)[1].__self__.nbytes / case.capacity)
        return super().prepare(case)

    def buffer(self, case: Case) -> tuple[Any, Any]:
        from mindspore_replay import Column, FrameStack, ReplayBuffer

        if case.work.startswith("frames"):
            columns, shape, views = ["observation"], FRAME, [FrameStack(STACK)]
        else:
            columns, shape, views = ["observation", "next_observation"], (STACK, *FRAME), []
        frames = Column(shape, "uint8", compress=self._compressed)
        schema = {**dict.fromkeys(columns, frames), **{name: Column((), dtype) for name, dtype in SCALARS.items()}}
        buffer = ReplayBuffer(case.batch, case.capacity, columns=schema, views=views, seed=0)
        return (lambda row: buffer.insert(row, end=row["terminated"])) if views else buffer.insert, buffer.sample


def codec(name: str) -> tuple[Callable[[np.ndarray], bytes], Callable[[bytes], bytes]]:
    """Return functions that compress and decompress."""
    import lz4.block
    import zstandard

    if name == "lz4":
        return lz4.block.compress, lz4.block.decompress
    compress = zstandard.ZstdCompressor(level=int(name.removeprefix("zstd"))).compress
    # The object that it gives was made for the largest result, and its memory is not all given back.
    return lambda rows: bytes(memoryview(compress(rows))), zstandard.ZstdDecompressor().decompress


class PythonList(Frames):
    """A ring of bytes objects."""

    packages = ("lz4", "zstandard")

    def __init__(self, name: str) -> None:
        super().__init__()
        self._compress, self._decompress = codec(name)
        self._random = np.random.default_rng(0)

    def buffer(self, case: Case) -> tuple[Any, Any]:
        rows: list[tuple[bytes, ...]] = [()] * case.capacity
        scalars = [np.zeros(case.capacity, dtype) for dtype in SCALARS.values()]
        at = 0

        def insert(row: dict[str, Any]) -> None:
            nonlocal at
            rows[at] = tuple(self._compress(row[name]) for name in row if name.endswith("observation"))
            for column, name in zip(scalars, SCALARS, strict=True):
                column[at] = row[name]
            at = (at + 1) % case.capacity

        def sample() -> list[np.ndarray]:
            chosen = self._random.integers(0, case.capacity - STACK, case.batch)
            if case.work.startswith("frames"):
                stacks: Any = [[rows[i + j][0] for i in chosen for j in range(k, k + STACK)] for k in (0, 1)]
            else:
                stacks = [[rows[i][k] for i in chosen] for k in (0, 1)]
            made = [bytearray().join(map(self._decompress, stack)) for stack in stacks]
            arrays = [np.frombuffer(part, np.uint8).reshape(case.batch, STACK, *FRAME) for part in made]
            return [*arrays, *(column[chosen] for column in scalars)]

        return insert, sample


#: Arguments of each codec: its own default, and the fast level of the libraries.
CODECS: dict[str, dict[str, Any]] = {
    "rle": {},
    "lz4": {"compression_method": "lz4-block", "compression_kwargs": {"compresslevel": 0}},
    "zstd": {"compression_method": "zstd", "compression_kwargs": {"compresslevel": 3, "threads": 1}},
}


class Sb3ExtraBuffers(Frames):
    """Rows of stacks; where frames are asked for, each stack once."""

    packages = ("sb3_extra_buffers", "stable_baselines3", "torch")

    def __init__(self, codec: str) -> None:
        super().__init__()
        self._codec = CODECS[codec]

    def buffer(self, case: Case) -> tuple[Any, Any]:
        from gymnasium import spaces

        with contextlib.redirect_stdout(sys.stderr):  # it writes there when it is imported
            from sb3_extra_buffers.compressed import CompressedReplayBuffer

        once = case.work.startswith("frames")
        options = {"optimize_memory_usage": once, "handle_timeout_termination": not once, **self._codec}
        both = spaces.Box(0, 255, (STACK, *FRAME), np.uint8), spaces.Discrete(4)
        buffer = CompressedReplayBuffer(case.capacity, *both, "cpu", **options)
        frames: list[np.ndarray] = [np.zeros(FRAME, np.uint8)] * (STACK + 1)

        def insert(row: dict[str, Any]) -> None:
            if once:
                frames.append(row["observation"])
                del frames[0]
                observation, following = np.stack(frames[:-1]), np.stack(frames[1:])
            else:
                observation, following = row["observation"], row["next_observation"]
            scalars = (np.array([row[name]]) for name in SCALARS)
            buffer.add(observation[None], following[None], *scalars, [{}])

        return insert, lambda: buffer.sample(case.batch)


class Torchrl(Frames):
    """Rows of stacks, compressed by zlib."""

    packages = ("torchrl", "torch")

    def buffer(self, case: Case) -> tuple[Any, Any]:
        if case.work.startswith("frames"):
            raise NotOfferedError("no stacks of frames in a compressed storage")
        import torch
        from tensordict import TensorDict
        from torchrl.data import CompressedListStorage, ReplayBuffer

        dtypes = {name: getattr(torch, dtype) for name, dtype in SCALARS.items()}
        buffer = ReplayBuffer(storage=CompressedListStorage(case.capacity), batch_size=case.batch)

        def insert(row: dict[str, Any]) -> None:
            fields = {
                name: torch.tensor(value, dtype=dtypes[name]) if name in dtypes else torch.from_numpy(value)
                for name, value in row.items()
            }
            buffer.add(TensorDict(fields))

        return insert, buffer.sample


if __name__ == "__main__":
    libraries = {"ours": Ours, "list": PythonList, "torchrl": Torchrl, "sb3_extra_buffers": Sb3ExtraBuffers}
    answer(libraries[sys.argv[1]](*sys.argv[2:]), CASES)
