"""torchrl: a `ReplayBuffer` in a `CompressedListStorage`, with its default codec, or LZ4 by its hooks."""

import sys
from typing import Any

import lz4.block
import torch
from tensordict import TensorDict
from torchrl.data import CompressedListStorage, ReplayBuffer

from ..answering import NotOfferedError, Peer, Work, answer
from ..cases import Case, in_turn
from .cases import CASES, fact, filled

DTYPES = {"action": torch.int32, "reward": torch.float32, "terminated": torch.bool}


def compress(tensor: torch.Tensor) -> torch.Tensor:
    """Compress by LZ4."""
    return torch.frombuffer(bytearray(lz4.block.compress(tensor.contiguous().numpy())), dtype=torch.uint8)


def decompress(compressed: torch.Tensor, metadata: dict[str, Any]) -> torch.Tensor:
    """Decompress what `compress` gave."""
    rows = lz4.block.decompress(compressed.numpy(), return_bytearray=True)
    return torch.frombuffer(rows, dtype=metadata["dtype"]).reshape(metadata["shape"])


class Torchrl(Peer):
    """Rows of stacks."""

    packages = ("torchrl", "torch")

    def __init__(self, by_lz4: bool) -> None:
        super().__init__()
        self._functions = {"compression_fn": compress, "decompression_fn": decompress} if by_lz4 else {}

    def prepare(self, case: Case) -> Work:
        """Fill a buffer, and prepare the case."""
        if case.work.startswith("frames"):
            raise NotOfferedError("no stacks of frames in a compressed storage")
        storage = CompressedListStorage(case.capacity, **self._functions)
        buffer = ReplayBuffer(storage=storage, batch_size=case.batch)

        def insert(row: dict[str, Any]) -> None:
            fields = {
                name: torch.tensor(value, dtype=DTYPES[name]) if name in DTYPES else torch.from_numpy(value)
                for name, value in row.items()
            }
            buffer.add(TensorDict(fields))

        rows, grown = filled(case, insert)
        if case.work.endswith("bytes"):
            return fact(grown)
        return Work(buffer.sample) if case.work.endswith("sample") else Work(in_turn(insert, rows))


if __name__ == "__main__":
    answer(Torchrl(sys.argv[1] == "lz4"), CASES)
