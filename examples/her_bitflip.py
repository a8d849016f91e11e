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
the episode as their goal, and the reward for it. The learner is that of ``dqn.py``.

It prints the success rate of greedy episodes for both, and writes a figure, a .json with all success rates, and a
checkpoint of each run, from which ``--resume`` continues with new episodes.

Reference:
    Andrychowicz et al. 2017, Hindsight Experience Replay, https://arxiv.org/abs/1707.01495, section 3.1 and figure 1.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from dqn import Learner
from drawing import pyplot
from mindspore import Tensor, nn, ops
from run import EVALUATION_SEED, add_device_option, use_device
from tqdm import tqdm

from mindspore_replay import Collector, HindsightRelabel, NStep, ReplayBuffer, TrainingCheckpoint, columns_of

GAMMA, EPSILON, CAPACITY, BATCH, UNITS = 0.98, 0.2, 100_000, 128, 256
SETTINGS = {"learning_rate": 1e-3, "tau": 0.01}
#: Greedy episodes of an evaluation.
EVALUATION = 500
#: Fraction of a sample that gets other goals: four of them for one real one.
HINDSIGHT = 0.8


class BitFlip(gym.vector.VectorEnv):
    """Environments that flip bits, stepped together. Axes: ``E`` environments, ``n`` bits."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, bits: int, num_envs: int) -> None:
        self.num_envs = num_envs
        row = gym.spaces.Box(0, 1, (bits,), np.float32)
        self.single_observation_space = gym.spaces.Dict(achieved_goal=row, desired_goal=row)
        self.single_action_space = gym.spaces.Discrete(bits)
        self.action_space = gym.spaces.MultiDiscrete(np.full(num_envs, bits))
        self.state, self.goal = np.zeros((2, num_envs, bits), np.float32)
        self.steps = np.zeros(num_envs, int)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin new episodes, in all environments or in those of a mask."""
        super().reset(seed=seed)
        which = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        shape = 2, which.sum(), self.state.shape[1]
        self.state[which], self.goal[which] = self.np_random.integers(2, size=shape)
        self.steps[which] = 0
        return self.observe(), {}

    def observe(self) -> dict[str, np.ndarray]:
        return {"achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Flip one bit in each."""
        rows = np.arange(self.num_envs)
        self.state[rows, actions] = 1 - self.state[rows, actions]
        self.steps += 1
        reached = (self.state == self.goal).all(1)
        truncated = ~reached & (self.steps == self.state.shape[1])
        return self.observe(), reached - 1.0, reached, truncated, {}


def reward(achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Return the reward, and whether the episode ends. Compiled into the graph that samples."""
    wrong = ops.reduce_max(ops.abs(achieved - goal), -1)
    return -wrong, wrong == 0


class Network(nn.Cell):
    """The value of flipping each bit, from state and goal side by side."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Dense(2 * bits, UNITS), nn.ReLU(), nn.Dense(UNITS, UNITS), nn.ReLU(), nn.Dense(UNITS, bits)
        )

    def construct(self, observation: dict[str, Tensor]) -> Tensor:
        return self.layers(ops.concat((observation["achieved_goal"], observation["desired_goal"]), 1))


def train(arguments: argparse.Namespace, hindsight: float, seed: int) -> dict[str, list[float]]:
    """Act and learn, with an update after each step of the environments; return the record of the evaluations.

    The fraction `hindsight` of each sample is relabelled.
    """
    ms.set_seed(seed)
    rng, bits = np.random.default_rng(seed), arguments.bits
    envs = BitFlip(bits, arguments.num_envs)
    views = [HindsightRelabel("future", hindsight, reward), NStep(1, GAMMA)]
    buffer = ReplayBuffer(BATCH, CAPACITY, **columns_of(envs), num_envs=envs.num_envs, views=views, seed=seed)
    network = Network(bits)
    learner = Learner(network, Network(bits), buffer, SETTINGS)

    def greedy(observation: Mapping[str, np.ndarray]) -> np.ndarray:
        both = np.concatenate((observation["achieved_goal"], observation["desired_goal"]), 1)
        return network.layers(Tensor(both)).asnumpy().argmax(1)

    def explore(observation: Mapping[str, np.ndarray]) -> np.ndarray:
        is_random = rng.random(envs.num_envs) < EPSILON
        return np.where(is_random, rng.integers(bits, size=envs.num_envs), greedy(observation))

    def success_rate() -> float:
        """Return the fraction of greedy episodes that reach their goal; states and goals are always the same."""
        evaluation = Collector(BitFlip(bits, EVALUATION), None, greedy, seed=EVALUATION_SEED)
        return float(np.mean([episode.total_reward > -bits for episode in evaluation.collect(episodes=EVALUATION)]))

    collector = Collector(envs, buffer, explore, seed=seed)
    history: dict[str, list[float]] = {"updates": [], "episodes": [], "success": [], "seconds": []}
    path = arguments.out.with_name(f"{arguments.out.stem}_{hindsight:.0%}_seed{seed}.safetensors".replace("%", ""))
    checkpoint = TrainingCheckpoint(path, learner=learner, rng=rng)
    first, episodes = 0, 0
    if arguments.resume and (state := checkpoint.load()):
        history, first, episodes = state["history"], state["update"] + 1, state["episodes"]
        collector.load_state_dict(state["collector"])
    start = time.perf_counter() - (history["seconds"] or [0.0])[-1]
    while not buffer.can_sample():
        episodes += len(collector.collect(steps=1))
    name = f"hindsight {hindsight:.0%}, seed {seed}"
    bar = tqdm(range(first, arguments.max_updates + 1), unit="update", desc=name, dynamic_ncols=True)
    for update in bar:  # the first evaluation is before the first update
        if update:
            episodes += len(collector.collect(steps=1))
            learner()
        if update % arguments.evaluate_every == 0 or update == arguments.max_updates:
            values = update, episodes, success_rate(), time.perf_counter() - start
            for column, value in zip(history.values(), values):
                column.append(value)
            bar.set_postfix_str(f"{episodes} episodes, success rate {values[2]:.0%}")
            checkpoint.save(update=update, episodes=episodes, history=history, collector=collector.state_dict())
    return history


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
    runs = {name: [train(arguments, share, seed) for seed in seeds] for name, share in shares.items()}
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
