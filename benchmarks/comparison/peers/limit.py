"""The machine's limit: the bytes of a case copied within memory, or to the disk."""

import os

import numpy as np

from ..answering import Peer, Work, answer
from ..cases import SEQUENCE, STACK, Case


def copy(size: int) -> Work:
    """Return one copy of `size` bytes, between memory that was written before on both sides."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    return Work(lambda: np.copyto(target, source), note=f"memcpy of {size:,} bytes")


class Limit(Peer):
    """Measures memcpy and the disk."""

    def insert(self, case: Case) -> Work:
        """Copy the bytes of the inserted rows."""
        return copy(case.batch * case.row_bytes)

    sample = prioritized_insert = prioritized_sample = prioritized_update = insert

    def frames_sample(self, case: Case) -> Work:
        """Copy the bytes of the sampled stacks."""
        frame = int(np.prod(case.schema["observation"][0]))
        return copy(case.batch * (case.row_bytes - frame + 2 * STACK * frame))

    def frames_bytes(self, case: Case) -> Work:
        """One row, with nothing around it."""
        return Work(lambda: case.row_bytes)

    def sequences(self, case: Case) -> Work:
        """The bytes of the sequences."""
        return copy(case.batch * SEQUENCE * case.row_bytes)

    def n_step(self, case: Case) -> Work:
        """Copy a row in, and a batch out."""
        return copy((case.batch + 1) * case.row_bytes)

    def save(self, case: Case) -> Work:
        """Write a plain file of these bytes, and only then replace the one before."""
        data, path, new = np.ones(case.capacity * case.row_bytes, np.uint8), self.folder / "plain", self.folder / "new"

        def write() -> None:
            with open(new, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            new.replace(path)

        return Work(write, note="write a new file, fsync, rename")

    def load(self, case: Case) -> Work:
        """Read the file into new memory."""
        path = self.folder / "plain"
        size = case.capacity * case.row_bytes
        np.ones(size, np.uint8).tofile(path)
        return Work(lambda: np.fromfile(path, np.uint8), note="read")


if __name__ == "__main__":
    answer(Limit())
