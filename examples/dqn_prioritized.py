"""Deep Q-learning on CartPole with prioritized replay and a dueling network.

    python examples/dqn_prioritized.py          # at most a minute on two CPU cores
    python examples/dqn_prioritized.py --seed 1 --num-envs 4
    python examples/dqn_prioritized.py --resume --steps 200000

The loop, evaluations, files and options are those of ``dqn.py``. The difference: transitions are drawn in proportion to
a power of their temporal difference error, each counts in the loss with its importance weight, and the compiled graph
that learns from a batch also writes its new errors to the buffer as priorities.

References:
    Schaul et al. 2016, Prioritized Experience Replay, https://arxiv.org/abs/1511.05952
    Wang et al. 2016, Dueling Network Architectures, https://arxiv.org/abs/1511.06581
"""

from typing import Any

import mindspore as ms
from dqn import Learner, main, value_of
from mindspore import Tensor, nn, ops


class DuelingHead(nn.Cell):
    """The value of the state plus the advantage of each action, less the mean advantage."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.value = nn.Dense(inputs, 1)
        self.advantage = nn.Dense(inputs, outputs)

    def construct(self, x: Tensor) -> Tensor:
        advantage = self.advantage(x)
        return self.value(x) + advantage - ops.mean(advantage, -1, True)


class PrioritizedLearner(Learner):
    """A `Learner` with a `PrioritizedReplayBuffer`: its errors become the priorities of the rows in the batch."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.gradients = ms.value_and_grad(self.weighted_loss, None, self.weights, has_aux=True)

    def construct(self) -> Tensor:
        batch = self.buffer.sample(as_dict=True)
        loss, priorities = self.learn(batch)
        self.buffer.update_priorities(batch["indices"], priorities)
        return loss

    def learn(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Learn from a batch; return the loss, and the new priorities of its rows."""
        (loss, error), gradients = self.gradients(batch, self.wanted(batch))
        self.improve(gradients)
        return loss, ops.abs(error)

    def weighted_loss(self, batch: dict[str, Tensor], wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean Huber loss, each row with its importance weight, and the temporal difference errors."""
        value = value_of(self.network(batch["observation"]), batch["action"])
        losses = ops.huber_loss(value, wanted, reduction="none", delta=self.huber_delta)
        return ops.mean(batch["weights"] * losses), wanted - value


if __name__ == "__main__":
    main(__doc__, "dqn_prioritized_cartpole", DuelingHead, PrioritizedLearner)
