"""A list of compressed rows, each decompressed by the function of a package: what a codec costs from Python."""

import sys
from collections.abc import Callable
from typing import Any

import lz4.block
import numpy as np
import zstandard

from ..answering import Peer, Work, answer
from ..cases import STACK, Case, in_turn
from .cases import CASES, FRAME, fact, filled


def codec(name: str) -> tuple[Callable[[np.ndarray], bytes], Callable[[bytes], bytes]]:
    """Return functions that compress and decompress."""
    if name == "lz4":
        return lz4.block.compress, lz4.block.decompress
    compress = zstandard.ZstdCompressor(level=int(name.removeprefix("zstd"))).compress
    # The object that it gives was made for the largest result, and its memory is not all given back.
    return lambda rows: bytes(memoryview(compress(rows))), zstandard.ZstdDecompressor().decompress


class PythonList(Peer):
    """A ring of bytes objects."""

    packages = ("lz4", "zstandard")

    def __init__(self, name: str) -> None:
        super().__init__()
        self._compress, self._decompress = codec(name)
        self._random = np.random.default_rng(0)

    def prepare(self, case: Case) -> Work:
        """Fill the list, and prepare the case."""
        rows: list[tuple[bytes, ...]] = [()] * case.capacity
        scalars = [np.zeros(case.capacity, dtype) for dtype in ("int32", "float32", "bool")]
        at = 0

        def insert(row: dict[str, Any]) -> None:
            nonlocal at
            rows[at] = tuple(self._compress(row[name]) for name in row if name.endswith("observation"))
            for column, name in zip(scalars, ("action", "reward", "terminated"), strict=True):
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

        more, grown = filled(case, insert)
        if case.work.endswith("bytes"):
            return fact(grown)
        return Work(sample) if case.work.endswith("sample") else Work(in_turn(insert, more))


if __name__ == "__main__":
    answer(PythonList(sys.argv[1]), CASES)
