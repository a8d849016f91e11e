"""Deep Q-learning on CartPole, with the replay buffer in the graph that learns.

    python examples/dqn.py                      # less than a minute on two free CPU cores
    python examples/dqn.py --seed 1 --num-envs 4
    python examples/dqn.py --resume --steps 200000

A `Collector` steps the environments and inserts their rows. One call of a compiled graph samples a batch with n-step
returns, computes double Q-learning's loss and its gradients, and updates the network and its target. Everything is
written to ``runs/dqn_cartpole_seed<seed>/``: the learning curve, the history, and checkpoints. ``--resume`` continues
from there with the network, optimizer, buffer and random states of the last checkpoint; the environments start new
episodes.

Training stops when the agent does well both while it explores and while it does not: when the mean return of the last
20 training episodes reaches ``stop_at_training_return`` of the configuration, and an evaluation ``stop_at_return``. The
final evaluation is that of the last network. The network of the best evaluation is saved too.
"""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from run import EVALUATION_SEED, Run, command_line, learning_rate, make_envs

from mindspore_replay import Collector, NStep, TrainingCheckpoint, columns_of, create_buffer


class Scale(nn.Cell):
    """Multiplies by a constant."""

    def __init__(self, factor: list[float]) -> None:
        super().__init__()
        self.factor = Tensor(factor, ms.float32)

    def construct(self, x: Tensor) -> Tensor:
        return x * self.factor


def make_network(
    scale: list[float], hidden: list[int], outputs: int, head: Callable[[int, int], nn.Cell] = nn.Dense
) -> nn.SequentialCell:
    """Make a multilayer perceptron from observations to one value per action. `head` makes its last layer."""
    layers: list[nn.Cell] = [Scale(scale)]
    inputs = len(scale)
    for units in hidden:
        layers += [nn.Dense(inputs, units), nn.ReLU()]
        inputs = units
    return nn.SequentialCell(*layers, head(inputs, outputs))


def value_of(values: Tensor, action: Tensor) -> Tensor:
    """Return the value of one action for each row of `values`. Shape ``[B]``."""
    return ops.gather_elements(values, 1, ops.expand_dims(action, 1))[:, 0]


class Learner(nn.Cell):
    """Network, target, optimizer and buffer. One call learns from a batch.

    Args:
        network (nn.Cell): Computes the value of each action.
        target (nn.Cell): Its slowly following copy, with the same structure.
        buffer (ReplayBuffer): Its samples have observation, action, reward, next_observation and discount.
        settings (dict): ``learner`` of the configuration.
    """

    def __init__(self, network: nn.Cell, target: nn.Cell, buffer: nn.Cell | None, settings: dict[str, Any]) -> None:
        super().__init__()
        self.network, self.target, self.buffer = network, target, buffer
        self.weights, self.target_weights = network.trainable_params(), target.trainable_params()
        for weight, target_weight in zip(self.weights, self.target_weights):
            target_weight.set_data(Tensor(weight.asnumpy().copy()))  # load_param_into_net would share the memory
        self.optimizer = nn.Adam(self.weights, learning_rate(settings["learning_rate"]))
        self.gradients = ms.value_and_grad(self.loss, None, self.weights)
        self.tau, self.huber_delta = settings["tau"], settings.get("huber_delta", 1.0)

    def construct(self) -> Tensor:
        batch = self.buffer.sample(as_dict=True)
        loss, gradients = self.gradients(batch, self.wanted(batch))
        self.improve(gradients)
        return loss

    def wanted(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the values to learn: the reward, and the discounted value of the next observation."""
        # The discount is 0 if a step terminated the episode; before a truncation the return has fewer steps.
        return batch["reward"] + batch["discount"] * self.next_value(batch["next_observation"])

    def next_value(self, next_observation: Tensor) -> Tensor:
        """Double Q-learning: the network chooses the next action, the target values it."""
        action = ops.argmax(self.network(next_observation), 1)
        return value_of(self.target(next_observation), action)

    def loss(self, batch: dict[str, Tensor], wanted: Tensor) -> Tensor:
        """Return the Huber loss between the values of the actions taken and those wanted."""
        value = value_of(self.network(batch["observation"]), batch["action"])
        return ops.huber_loss(value, wanted, delta=self.huber_delta)

    def improve(self, gradients: tuple[Tensor, ...]) -> None:
        """Take one step of the optimizer and move the target."""
        self.optimizer(gradients)
        for weight, target_weight in zip(self.weights, self.target_weights):
            ops.assign(target_weight, target_weight + self.tau * (weight - target_weight))


def train(
    run: Run,
    collector: Collector,
    learner: nn.Cell,
    greedy: Callable[[np.ndarray], Any],
    learn: Callable[[], Tensor] | None = None,
    **parts: Any,
) -> None:
    """Act and learn in turn; evaluate and save on the way.

    Args:
        run (Run): The run.
        collector (Collector): Acts and fills the buffer.
        learner (nn.Cell): Has the `network` to evaluate.
        greedy (Callable): Returns the actions of an evaluation.
        learn (Callable): Learns once. Default: a call of the `learner`.
        parts: What else is in the checkpoint.
    """
    config, learn = run.config, learn or learner
    evaluation = Collector(make_envs(config, config["evaluation"]["episodes"]), None, greedy, seed=EVALUATION_SEED)
    checkpoint = TrainingCheckpoint(run.folder / "training.safetensors", learner=learner, **parts)
    if run.options.resume:
        state = checkpoint.load()
        if state is None:
            raise SystemExit(f"{run.folder} has no checkpoint to go on from")
        run.load_state_dict(state["run"])
        collector.load_state_dict(state["collector"])
    loss = None
    while not run.done:
        episodes = collector.collect(steps=config.get("rollout", 1))
        if collector.steps > config["learner"]["learning_starts"] and bool(collector.buffer.can_sample()):
            loss = learn()
        if run.record(collector.steps, [episode.total_reward for episode in episodes], loss):
            run.evaluate(evaluation, learner.network)
            checkpoint.save(run=run.state_dict(), collector=collector.state_dict())
    run.finish(evaluation, learner.network)


def main(
    description: str | None = __doc__,
    name: str = "dqn_cartpole",
    head: Callable[[int, int], nn.Cell] = nn.Dense,
    learner_class: type[Learner] = Learner,
) -> None:
    run = Run(command_line(description, name).parse_args())
    config, settings, plan, seed = run.config, run.config["learner"], run.config["exploration"], run.options.seed
    rng = np.random.default_rng(seed)
    envs = make_envs(config, config["num_envs"])
    actions = int(envs.single_action_space.n)
    views = [NStep(settings["n_step"], config["gamma"])]
    own = {"num_envs": envs.num_envs, "views": views, "seed": seed, "backend": run.options.backend}
    buffer = create_buffer({**config["replay_buffer"], **columns_of(envs), **own})
    network, target = (make_network(settings["observation_scale"], settings["hidden"], actions, head) for _ in range(2))
    learner = learner_class(network, target, buffer, settings)

    def greedy(observation: np.ndarray) -> np.ndarray:
        return network(Tensor(observation)).asnumpy().argmax(1)

    def explore(observation: np.ndarray) -> np.ndarray:
        epsilon = np.interp(collector.steps, (0, plan["steps"]), (plan["start"], plan["end"]))
        is_random = rng.random(len(observation)) < epsilon
        return np.where(is_random, rng.integers(actions, size=len(observation)), greedy(observation))

    collector = Collector(envs, buffer, explore, seed=seed)
    train(run, collector, learner, greedy, rng=rng)


if __name__ == "__main__":
    main()
