"""Shared by the peers built on PyTorch."""

import torch

from ..answering import Peer, Work
from ..cases import Case

THREADS = torch.get_num_threads()
#: Bytes below which an operation is no slower on one thread, and much faster if another process uses the other cores.
SMALL = 1 << 25


class TorchPeer(Peer):
    """A peer whose small operations run on one thread."""

    def prepare(self, case: Case) -> Work:
        torch.set_num_threads(1 if case.batch * case.row_bytes < SMALL else THREADS)
        return super().prepare(case)
