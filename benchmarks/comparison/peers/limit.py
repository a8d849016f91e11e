"""The machine's limit: the bytes of a case copied within memory, or to the disk."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..answering import Peer, Work, answer
from ..cases import SEQUENCE, STACK, Case


def copy(size: int) -> Work:
    """Return one copy of `size` bytes, between memory that was written before on both sides."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    return Work(lambda: np.copyto(target, source), note=f"memcpy of {size:,} bytes")


class Limit(Peer):
    """Measures memcpy and the disk."""

    notes: Mapping[str, str] = {"save": "write a new file, fsync, rename", "load": "read"}

    def insert(self, case: Case) -> Work:
        return copy(case.batch * case.row_bytes)

    sample = prioritized_insert = prioritized_sample = prioritized_update = insert

    def frames_sample(self, case: Case) -> Work:
        frame = int(np.prod(case.schema["observation"][0]))
        return copy(case.batch * (case.row_bytes - frame + 2 * STACK * frame))

    def frames_bytes(self, case: Case) -> Work:
        return Work(lambda: case.row_bytes)

    def sequences(self, case: Case) -> Work:
        return copy(case.batch * SEQUENCE * case.row_bytes)

    def n_step(self, case: Case) -> Work:
        return copy((case.batch + 1) * case.row_bytes)

    def filled(self, case: Case) -> np.ndarray:
        return np.ones(case.capacity * case.row_bytes, np.uint8)

    def saving(self, data: np.ndarray, path: Path) -> Callable[[], None]:
        """Write a plain file of these bytes, and only then replace the one before."""
        new = path.with_suffix(".new")

        def write() -> None:
            with open(new, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            new.replace(path)

        return write

    def loading(self, data: np.ndarray, path: Path) -> Callable[[], Any]:
        return lambda: np.fromfile(path, np.uint8)


if __name__ == "__main__":
    answer(Limit())
