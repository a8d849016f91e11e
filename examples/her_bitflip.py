"""Hindsight experience replay learns to flip bits where Q-learning alone learns nothing.

    python examples/her_bitflip.py                       # 15 bits, about a minute on two CPU cores
    python examples/her_bitflip.py --bits 8 --max-updates 300 --evaluate-every 100
    python examples/her_bitflip.py --seeds 3 --evaluate-every 250
    python examples/her_bitflip.py --resume              # after a kill, each run from its last evaluation

The state is a row of bits, an action flips one, and the goal is another row of bits. Both are random in each episode,
which ends when the state is the goal, or after as many steps as there are bits. The reward is 0 for a step that reaches
the goal and -1 for all others. With 15 bits there are 2^15 states: the agent practically never sees a reward but -1.

The same deep Q-network learns with the same settings from the same kind of buffer twice: once from transitions as they
are, and once with 80 % of each sample relabelled by `HindsightRelabel`. Relabelled rows get a state reached later in
the episode as their goal, and the reward for it. One call of a compiled graph inserts the newest transitions, samples
and relabels a batch, computes loss and gradients, and updates the network and its target.

It prints the success rate of greedy episodes for both, and writes a figure, a .json with all success rates, and a
checkpoint of each run. ``--resume`` continues from the checkpoints, including the state of the environments.

Reference:
    Andrychowicz et al. 2017, Hindsight Experience Replay, https://arxiv.org/abs/1707.01495, section 3.1 and figure 1.
"""

import argparse
import json
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from drawing import pyplot
from mindspore import Tensor, nn, ops
from run import add_device_option, use_device
from tqdm import tqdm

from mindspore_replay import HindsightRelabel, ReplayBuffer, TrainingCheckpoint

GAMMA, TAU, LEARNING_RATE, EPSILON = 0.98, 0.01, 1e-3, 0.2
CAPACITY, BATCH, UNITS = 100_000, 128, 256
#: Greedy episodes of an evaluation.
EVALUATION = 500
#: Fraction of a sample that gets other goals: four of them for one real one.
HINDSIGHT = 0.8


class BitFlip:
    """Environments that flip bits, stepped together. Axes: ``E`` environments, ``n`` bits.

    Attributes:
        state (ndarray): Bits now. Shape ``[E, n]``, float32, each 0 or 1.
        goal (ndarray): Bits wanted, likewise.
    """

    def __init__(self, bits: int, num_envs: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.state, self.goal = np.zeros((2, num_envs, bits), np.float32)
        self.steps = np.zeros(num_envs, int)
        self.reset(np.ones(num_envs, bool))

    def reset(self, which: np.ndarray) -> None:
        """Start new episodes in the environments of the mask."""
        shape = which.sum(), self.state.shape[1]
        self.state[which], self.goal[which] = self.rng.integers(2, size=(2, *shape))
        self.steps[which] = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Flip one bit in each. Return masks of the goals reached and of the episodes to `reset`."""
        rows = np.arange(len(action))
        self.state[rows, action] = 1 - self.state[rows, action]
        self.steps += 1
        reached = (self.state == self.goal).all(1)
        return reached, reached | (self.steps == self.state.shape[1])


def goal_reward(achieved: Tensor, goal: Tensor) -> Tensor:
    """Return 0 if the goal is achieved, else -1. Compiled into the graph that samples."""
    wrong = ops.reduce_max(ops.abs(achieved - goal), -1)
    return -wrong


def make_buffer(bits: int, num_envs: int, hindsight: float, seed: int) -> ReplayBuffer:
    """Make a buffer that relabels the fraction `hindsight` of its samples."""
    columns = {
        "observation": ((bits,), ms.float32),
        "action": ((), ms.int32),
        "reward": ((), ms.float32),
        "next_observation": ((bits,), ms.float32),
        "desired_goal": ((bits,), ms.float32),
        "achieved_goal": ((bits,), ms.float32),
    }
    shapes, types = zip(*columns.values())
    views = [HindsightRelabel("future", hindsight, goal_reward)]
    return ReplayBuffer(
        sample_size=BATCH,
        capacity=CAPACITY,
        shapes=shapes,
        types=types,
        names=list(columns),
        num_envs=num_envs,
        views=views,
        seed=seed,
    )


def make_network(bits: int) -> nn.SequentialCell:
    """Make a network from state and goal, side by side, to the value of flipping each bit."""
    return nn.SequentialCell(
        nn.Dense(2 * bits, UNITS), nn.ReLU(), nn.Dense(UNITS, UNITS), nn.ReLU(), nn.Dense(UNITS, bits)
    )


class Policy(nn.Cell):
    """The action with the largest value, for a batch of states and goals."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # the learner names the network's Parameters
        self.network = network

    def construct(self, state: Tensor, goal: Tensor) -> Tensor:
        return ops.argmax(self.network(ops.concat((state, goal), 1)), 1)


class Learner(nn.Cell):
    """Network, target, optimizer and buffer. One call stores transitions and learns from a batch."""

    def __init__(self, network: nn.Cell, target: nn.Cell, buffer: ReplayBuffer) -> None:
        super().__init__()
        self.network, self.target, self.buffer = network, target, buffer
        self.weights, self.target_weights = network.trainable_params(), target.trainable_params()
        for weight, target_weight in zip(self.weights, self.target_weights):
            target_weight.set_data(Tensor(weight.asnumpy().copy()))
            target_weight.requires_grad = False
        self.optimizer = nn.Adam(self.weights, LEARNING_RATE)
        self.loss_and_gradients = ms.value_and_grad(self.loss, None, self.weights)

    def construct(
        self,
        observation: Tensor,
        action: Tensor,
        reward: Tensor,
        next_observation: Tensor,
        goal: Tensor,
        achieved: Tensor,
        end: Tensor,
    ) -> Tensor:
        self.buffer.insert([observation, action, reward, next_observation, goal, achieved], end=end)
        batch = self.buffer.sample(as_dict=True)
        next_value = ops.reduce_max(self.target(ops.concat((batch["next_observation"], batch["desired_goal"]), 1)), 1)
        # A reached goal has no future. As it depends on the goal, it is derived from the reward instead of a column.
        wanted = batch["reward"] + GAMMA * (batch["reward"] < 0).astype(ms.float32) * next_value
        inputs = ops.concat((batch["observation"], batch["desired_goal"]), 1)
        loss, gradients = self.loss_and_gradients(inputs, batch["action"], wanted)
        self.optimizer(gradients)
        for weight, target_weight in zip(self.weights, self.target_weights):
            ops.assign(target_weight, target_weight + TAU * (weight - target_weight))
        return loss

    def loss(self, inputs: Tensor, action: Tensor, wanted: Tensor) -> Tensor:
        """Return the Huber loss between the values of the actions taken and their targets."""
        value = ops.gather_elements(self.network(inputs), 1, ops.expand_dims(action, 1))[:, 0]
        return ops.huber_loss(value, wanted)


class Run:
    """One training run. `success` lists the success rate of greedy episodes at evaluations, the first one untrained."""

    def __init__(self, arguments: argparse.Namespace, hindsight: float, seed: int) -> None:
        ms.set_seed(seed)
        self.bits, self.updates, self.every = arguments.bits, arguments.max_updates, arguments.evaluate_every
        self.name = f"hindsight {hindsight:.0%}, seed {seed}"
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.envs = BitFlip(self.bits, arguments.num_envs, self.rng)
        network, target = make_network(self.bits), make_network(self.bits)
        self.policy = Policy(network)
        self.learner = Learner(network, target, make_buffer(self.bits, arguments.num_envs, hindsight, seed))
        self.history: dict[str, list[float]] = {"updates": [], "episodes": [], "success": [], "seconds": []}
        self.update = self.episodes = 0
        path = arguments.out.with_name(f"{arguments.out.stem}_{hindsight:.0%}_seed{seed}.safetensors".replace("%", ""))
        self.checkpoint = TrainingCheckpoint(path, learner=self.learner, rng=self.rng)
        if arguments.resume:
            self.load()

    def save(self) -> None:
        envs = self.envs.state, self.envs.goal, self.envs.steps
        self.checkpoint.save(update=self.update, episodes=self.episodes, history=self.history, envs=envs)

    def load(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if state := self.checkpoint.load():
            self.update, self.episodes, self.history = state["update"] + 1, state["episodes"], state["history"]
            self.envs.state, self.envs.goal, self.envs.steps = state["envs"]

    def advance(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Step the environments. Return the buffer's rows, and the mask of those that end an episode."""
        state, goal = self.envs.state.copy(), self.envs.goal.copy()
        action = self.policy(Tensor(state), Tensor(goal)).asnumpy().astype(np.int32)
        guess = self.rng.random(len(action)) < EPSILON
        action[guess] = self.rng.integers(self.bits, size=guess.sum())
        reached, end = self.envs.step(action)
        next_state = self.envs.state.copy()
        self.envs.reset(end)
        self.episodes += int(end.sum())
        return [state, action, reached.astype(np.float32) - 1, next_state, goal, next_state], end

    def train(self) -> dict[str, list[float]]:
        """Act and learn, with an update after each step of the environments."""
        start = time.perf_counter() - (self.history["seconds"] or [0.0])[-1]
        while not bool(self.learner.buffer.can_sample()):
            rows, end = self.advance()
            self.learner.buffer.insert(rows, end=end)
        bar = tqdm(range(self.update, self.updates + 1), unit="update", desc=self.name, dynamic_ncols=True)
        for self.update in bar:
            if self.update:
                rows, end = self.advance()
                self.learner(*map(Tensor, rows), Tensor(end))
            if self.update % self.every == 0 or self.update == self.updates:
                values = self.update, self.episodes, self.success_rate(), time.perf_counter() - start
                for column, value in zip(self.history.values(), values):
                    column.append(value)
                bar.set_postfix_str(f"{self.episodes} episodes, success rate {values[2]:.0%}")
                self.save()
        return self.history

    def success_rate(self) -> float:
        """Return the fraction of greedy episodes that reach their goal.

        All runs with one seed get the same states and goals.
        """
        envs = BitFlip(self.bits, EVALUATION, np.random.default_rng([self.seed, EVALUATION]))
        success = (envs.state == envs.goal).all(1)
        for _ in range(self.bits):
            reached, _ = envs.step(self.policy(Tensor(envs.state), Tensor(envs.goal)).asnumpy())
            success |= reached
        return float(success.mean())


def plot(runs: dict[str, list[dict[str, list[float]]]], bits: int, path: Path) -> None:
    """Draw the mean success rate of all seeds, and the range."""
    plt = pyplot()
    figure, axes = plt.subplots(layout="constrained")
    for i, (name, histories) in enumerate(runs.items()):
        updates, rates = histories[0]["updates"], np.array([history["success"] for history in histories])
        axes.fill_between(updates, rates.min(0), rates.max(0), color=f"C{i}", alpha=0.2, linewidth=0)
        axes.plot(updates, rates.mean(0), color=f"C{i}", label=name)
    title = f"Flipping {bits} bits"
    axes.set(xlabel="updates", ylabel="success rate of greedy episodes", title=title, ylim=(-0.03, 1.03))
    axes.legend(loc="center right")
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    begin = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=15)
    parser.add_argument("--max-updates", type=int, default=5_000, help="updates of a run")
    parser.add_argument("--evaluate-every", type=int, default=500, help="updates from one evaluation to the next")
    parser.add_argument("--num-envs", type=int, default=16, help="environments that act in step, before each update")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    add_device_option(parser)
    parser.add_argument("--seeds", type=int, default=1, help="runs with, and runs without hindsight")
    parser.add_argument("--out", type=Path, default=Path("runs/her_bitflip.png"), help="figure; a .json goes beside")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoints beside the figure")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    shares = {"with hindsight": HINDSIGHT, "without": 0.0}
    runs = {name: [Run(arguments, share, seed).train() for seed in seeds] for name, share in shares.items()}
    for name, histories in runs.items():
        for seed, history in zip(seeds, histories):
            last = {key: values[-1] for key, values in history.items()}
            spent = f"{last['updates']} updates and {last['episodes']} episodes, {last['seconds']:.0f} s"
            print(f"{name}, seed {seed}: success rate {last['success']:.1%} after {spent}")
    plot(runs, arguments.bits, arguments.out)
    settings = {key: value for key, value in vars(arguments).items() if key != "out"}
    arguments.out.with_suffix(".json").write_text(json.dumps({"settings": settings, "runs": runs}))
    print(f"figure: {arguments.out}, {time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
