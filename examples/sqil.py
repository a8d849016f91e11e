"""Soft Q imitation learning on CartPole: an agent that never sees a reward learns from an expert's episodes.

    python examples/sqil.py                     # about a minute on two CPU cores, the expert's training included
    python examples/sqil.py --seed 1
    python examples/plot_curves.py runs/sqil_cartpole_seed* --out sqil_cartpole.png

The expert is the network of ``dqn.py``, from ``runs/dqn_cartpole_seed0``; it is trained here if there is none. It plays
some greedy episodes, which stay in a buffer of their own with exactly their size, so that none of their rows is ever
evicted; the agent's rows go to another. `MixedReplay` takes half of each batch from either. The reward is the number of
the source: 1 for the expert's rows, 0 for the agent's. Soft Q-learning does the rest: the agent is drawn to the actions
of the expert, and back to the states of the expert.

The loop, options, evaluations and files are those of ``dqn.py``; files go to ``runs/sqil_cartpole_seed<seed>/``.
The environment's rewards never reach the learner: they only measure, and say when to stop. The script exits with an
error unless the mean return of 100 greedy episodes reaches ``solved_at`` of the configuration.

Reference:
    Reddy et al. 2020, SQIL: Imitation Learning via Reinforcement Learning with Sparse Rewards,
    https://arxiv.org/abs/1905.11108
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from dqn import Learner, make_network, train
from mindspore import Tensor, nn, ops
from run import EVALUATION_SEED, ROOT, Run, command_line, make_envs

from mindspore_replay import Collector, MixedReplay, columns_of, create_buffer, load_config


class SqilLearner(Learner):
    """A `Learner` of soft values, from the agent's rows and the expert's, half and half.

    Args:
        network (nn.Cell): Computes the value of each action.
        target (nn.Cell): Its slowly following copy, with the same structure.
        buffers (dict): ``"agent"`` and ``"expert"``, with the columns of `Learner`.
        gamma (float): Discount of one step.
        settings (dict): ``learner`` of the configuration.
    """

    def __init__(
        self, network: nn.Cell, target: nn.Cell, buffers: dict[str, nn.Cell], gamma: float, settings: dict[str, Any]
    ) -> None:
        agent, expert = buffers["agent"], buffers["expert"]
        mixed = MixedReplay([(agent, 0.5), (expert, 0.5)], agent.sample_size + expert.sample_size)
        super().__init__(network, target, mixed, settings)
        self.gamma, self.temperature = gamma, settings["temperature"]

    def wanted(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the source, as reward, plus the discounted soft value of the next observation.

        Entropy counts relative to that of random actions. So an agent without rewards is indifferent to the end of an
        episode, and does not learn to balance the pole for the sake of its entropy.
        """
        values = self.target(batch["next_observation"]) / self.temperature
        soft_value = self.temperature * (ops.logsumexp(values, 1) - float(np.log(values.shape[1])))
        reward = batch["source"].astype(ms.float32)
        return reward + self.gamma * (1.0 - batch["terminated"].astype(ms.float32)) * soft_value


def load_expert(folder: Path) -> nn.Cell:
    """Load the best network of a ``dqn.py`` run; make that run if there is none."""
    settings = load_config(ROOT / "configs" / "dqn_cartpole.yaml")["learner"]
    if not (folder / "best.ckpt").exists():
        print(f"{folder} has no expert, so one is trained")
        subprocess.run([sys.executable, str(Path(__file__).with_name("dqn.py")), "--out", str(folder)], check=True)
    network = make_network(settings["observation_scale"], settings["hidden"], 2)
    saved = ms.load_checkpoint(str(folder / "best.ckpt"))
    missing, _ = ms.load_param_into_net(network, {name.split("network.")[-1]: saved[name] for name in saved})
    if missing:
        raise SystemExit(f"{folder} has a network without {', '.join(missing)}")
    return network


def main() -> None:
    run = Run(command_line(__doc__, "sqil_cartpole").parse_args(), must_solve=True)
    config, settings, plan, seed = run.config, run.config["learner"], run.config["expert"], run.options.seed
    expert = load_expert(Path(plan["folder"]))
    rng = np.random.default_rng(seed)
    envs = make_envs(config, config["num_envs"])
    own = {"seed": seed, "backend": run.options.backend, **columns_of(envs)}
    rows = {**config["replay_buffer"], **own}
    rows["agent"]["num_envs"] = envs.num_envs
    buffers = create_buffer(rows)
    size = settings["observation_scale"], settings["hidden"], int(envs.single_action_space.n)
    network, target = make_network(*size), make_network(*size)
    learner = SqilLearner(network, target, buffers, config["gamma"], settings)

    def show(observation: np.ndarray) -> int:
        return int(expert(Tensor(observation[None])).asnumpy().argmax())

    demonstration = Collector(gym.make(config["environment"]), buffers["expert"], show, seed=EVALUATION_SEED)
    mean = np.mean([episode.length for episode in demonstration.collect(episodes=plan["episodes"])])
    if mean < plan["least_return"]:
        raise SystemExit(f"{plan['folder']} has no expert: its mean return is {mean:.1f}; give another folder")
    print(f"{plan['episodes']} episodes of the expert: {demonstration.steps} rows, mean return {mean:.1f}")

    def greedy(observation: np.ndarray) -> np.ndarray:
        return network(Tensor(observation)).asnumpy().argmax(1)

    def draw(observation: np.ndarray) -> np.ndarray:
        """Draw actions from the soft policy: in proportion to the exponentials of values over temperature."""
        values = network(Tensor(observation)).asnumpy() / settings["temperature"]
        return (values + rng.gumbel(size=values.shape)).argmax(1)

    collector = Collector(envs, buffers["agent"], draw, random_steps=settings["learning_starts"], seed=seed)
    train(run, collector, learner, greedy, rng=rng)


if __name__ == "__main__":
    main()
