"""A replay buffer inside a compiled graph: store a transition, sample a batch, in one call."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_replay import ReplayBuffer


class Step(nn.Cell):
    """Stores one transition, then samples two."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = ReplayBuffer(
            sample_size=2,
            capacity=100,
            shapes=[(3,), ()],
            types=[ms.float32, ms.int32],
            names=["observation", "action"],
            seed=0,
        )

    @ms.jit
    def construct(self, observation: Tensor, action: Tensor) -> dict[str, Tensor]:
        self.buffer.insert([observation, action])
        return self.buffer.sample(as_dict=True)


step = Step()
step.buffer.insert([np.zeros(3, np.float32), 0])  # from Python, the same call works at once
for i in range(1, 5):
    batch = step(Tensor([i] * 3, ms.float32), Tensor(i, ms.int32))
print("stored:", step.buffer.size())
print("sampled actions:", batch["action"])
print("sampled observations:", *batch["observation"].asnumpy().tolist())
