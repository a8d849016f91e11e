"""A DQN in MindSpore fed by a ring of NumPy arrays: the usual way without a buffer on the device."""

from typing import Any

from mindspore import Tensor

from ..answering import Peer, Work, answer
from ..cases import CARTPOLE, Case
from ..cases import DQN as SETTINGS
from .mindspore_dqn import DQN, Learner, run_operators_on_one_core
from .numpy_ring import Ring


class LearnerWithRing(Learner):
    """The learner, and a ring whose batches become Tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring(CARTPOLE, SETTINGS["capacity"])

    def store(self, row: list[Any]) -> None:
        self.ring.insert(dict(zip(CARTPOLE, row)))

    def step(self, row: list[Any]) -> None:
        self.store(row)
        batch = self.ring.sample(SETTINGS["batch_size"])
        self.graph(*map(Tensor.from_numpy, batch.values())).asnumpy()


class NumPyRingMindSpore(Peer):
    """Measures the learner."""

    packages = ("mindspore",)

    def dqn(self, case: Case) -> Work:
        return DQN(LearnerWithRing()).work()


if __name__ == "__main__":
    run_operators_on_one_core()
    answer(NumPyRingMindSpore())
