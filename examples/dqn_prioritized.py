"""Deep Q-learning on CartPole with prioritized replay and a dueling network.

    python examples/dqn_prioritized.py          # at most a minute on two CPU cores
    python examples/dqn_prioritized.py --seed 1 --num-envs 4
    python examples/dqn_prioritized.py --resume --steps 200000

Environments, evaluations, files and options are those of ``dqn.py``. The difference: transitions are drawn in
proportion to a power of their temporal difference error, each counts in the loss with its importance weight, and the
compiled graph that learns from a batch also writes its new errors to the buffer as priorities.

References:
    Schaul et al. 2016, Prioritized Experience Replay, https://arxiv.org/abs/1511.05952
    Wang et al. 2016, Dueling Network Architectures, https://arxiv.org/abs/1511.06581
"""

from typing import Any

import mindspore as ms
from dqn import Learner, Run, main, value_of
from mindspore import Tensor, nn, ops


class DuelingHead(nn.Cell):
    """The value of the state plus the advantage of each action, less the mean advantage."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.value = nn.Dense(inputs, 1)
        self.advantage = nn.Dense(inputs, outputs)

    def construct(self, x: Tensor) -> Tensor:
        advantage = self.advantage(x)
        return self.value(x) + advantage - ops.mean(advantage, 1, True)


class PrioritizedLearner(Learner):
    """A `Learner` with a `PrioritizedReplayBuffer`: its errors become the priorities of the rows in the batch."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.loss_and_gradients = ms.value_and_grad(self.weighted_loss, None, self.weights, has_aux=True)

    def construct(
        self, observation: Tensor, action: Tensor, reward: Tensor, next_observation: Tensor, terminated: Tensor
    ) -> Tensor:
        self.buffer.insert([observation, action, reward, next_observation, terminated])
        return self.learn()

    def learn(self) -> Tensor:
        """Learn from a batch, write its errors to the buffer as priorities, and return the loss."""
        batch = self.buffer.sample(as_dict=True)
        wanted = self.wanted_value(batch["reward"], batch["next_observation"], batch["terminated"])
        (loss, error), gradients = self.loss_and_gradients(
            batch["observation"], batch["action"], wanted, batch["weights"]
        )
        self.improve(gradients)
        self.buffer.update_priorities(batch["indices"], ops.abs(error))
        return loss

    def weighted_loss(
        self, observation: Tensor, action: Tensor, wanted: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the mean Huber loss, each row with its importance weight, and the temporal difference errors."""
        value = value_of(self.network(observation), action)
        losses = ops.huber_loss(value, wanted, reduction="none")
        return ops.mean(weights * losses), wanted - value


class PrioritizedRun(Run):
    """A `Run` of the prioritized learner with a dueling network."""

    head = DuelingHead
    learner_class = PrioritizedLearner


if __name__ == "__main__":
    main(PrioritizedRun, __doc__, "dqn_prioritized_cartpole")
