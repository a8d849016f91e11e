"""Soft Q imitation learning on CartPole: an agent that never sees a reward learns from an expert's episodes.

    python examples/sqil.py                     # about a minute on two CPU cores, the expert's training included
    python examples/sqil.py --seed 1
    python examples/plot_curves.py runs/sqil_cartpole_seed* --out sqil_cartpole.png

The expert is the network of ``dqn.py``, from ``runs/dqn_cartpole_seed0``; it is trained here if there is none. It plays
some greedy episodes, which stay in a buffer of their own with exactly their size, so that none of their rows is ever
evicted; the agent's rows go to another. `MixedReplay` takes half of each batch from either and replaces the
environment's rewards: 1 for the expert's rows, 0 for the agent's. Soft Q-learning does the rest: the agent is drawn to
the actions of the expert, and back to the states of the expert. With 0 for both, the same agent had a mean return of 25
after 8000 steps.

Options, environments, evaluations and files are those of ``dqn.py``; files go to ``runs/sqil_cartpole_seed<seed>/``.
The environment's rewards are used in evaluations only, which choose the network to keep and when to stop. The script
exits with an error unless the mean return of 100 greedy episodes reaches ``solved_at`` of the configuration.

Reference:
    Reddy et al. 2020, SQIL: Imitation Learning via Reinforcement Learning with Sparse Rewards,
    https://arxiv.org/abs/1905.11108
"""

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from dqn import EVALUATION_SEED, ROOT, Learner, NStepRun, Policy, Run, main, make_envs
from mindspore import Tensor, nn, ops

from mindspore_replay import MixedReplay, load_config

#: Rewards of the agent's rows and of the expert's, instead of the environment's.
REWARDS = (0.0, 1.0)


class SqilLearner(Learner):
    """A `Learner` of soft values, from the agent's rows and the expert's, half and half.

    Args:
        network (nn.Cell): Computes the value of each action.
        target (nn.Cell): Its slowly following copy, with the same structure.
        buffers (dict): ``"agent"`` and ``"expert"``, with the columns of `Learner`.
        rates (float): As for `Learner`.
    """

    def __init__(self, network: nn.Cell, target: nn.Cell, buffers: dict[str, nn.Cell], *rates: float) -> None:
        agent, expert = buffers["agent"], buffers["expert"]
        super().__init__(network, target, agent, *rates)
        self.expert = expert
        self.mixed = MixedReplay([(agent, 0.5), (expert, 0.5)], agent.sample_size + expert.sample_size, rewards=REWARDS)

    def construct(
        self, observation: Tensor, action: Tensor, reward: Tensor, next_observation: Tensor, terminated: Tensor
    ) -> Tensor:
        self.buffer.insert([observation, action, reward, next_observation, terminated])
        batch = self.mixed.sample(as_dict=True)
        wanted = self.wanted_value(batch["reward"], batch["next_observation"], batch["terminated"])
        loss, gradients = self.loss_and_gradients(batch["observation"], batch["action"], wanted)
        self.improve(gradients)
        return loss

    def wanted_value(self, reward: Tensor, next_observation: Tensor, terminated: Tensor) -> Tensor:
        """Return the reward plus the discounted soft value of the next observation, at a temperature of 1.

        Entropy counts relative to that of random actions. So an agent without rewards is indifferent to the end of an
        episode, and does not learn to balance the pole for the sake of its entropy.
        """
        values = self.target(next_observation)
        soft_value = ops.logsumexp(values, 1) - float(np.log(values.shape[1]))
        return reward + self.gamma * (1.0 - terminated.astype(ms.float32)) * soft_value


class SqilRun(Run):
    """A `Run` of the imitating learner."""

    learner_class = SqilLearner
    must_solve = True

    def __init__(self, config: dict[str, Any], seed: int, backend: str, folder: Path) -> None:
        plan = config["expert"]
        expert = load_expert(Path(plan["folder"]), backend)
        super().__init__(config, seed, backend, folder)
        rows, mean = demonstrations(config, expert, plan["episodes"])
        if mean < plan["least_return"]:
            raise SystemExit(f"{plan['folder']} has no expert: its mean return is {mean:.1f}; give another folder")
        self.learner.expert.insert(rows)
        print(f"{plan['episodes']} episodes of the expert: {len(rows[0])} rows, mean return {mean:.1f}")

    def act(self) -> np.ndarray:
        """Draw actions from the soft policy: in proportion to the exponentials of their values."""
        size = len(self.observation), int(self.envs.single_action_space.n)
        values = np.zeros(size)
        if self.step >= self.config["learner"]["learning_starts"]:
            values = self.learner.network(Tensor(self.observation)).asnumpy()
        return (values + self.rng.gumbel(size=size)).argmax(1)


def load_expert(folder: Path, backend: str) -> Policy:
    """Load the greedy policy of a ``dqn.py`` run's best network; make that run if there is none."""
    run = NStepRun(load_config(ROOT / "configs" / "dqn_cartpole.yaml"), 0, backend, folder)
    if (folder / "best.ckpt").exists():
        ms.load_checkpoint(str(folder / "best.ckpt"), run.learner.network, strict_load=True)
    else:
        print(f"{folder} has no expert, so one is trained")
        folder.mkdir(parents=True, exist_ok=True)
        run.train()
        run.finish()
    return run.policy


def demonstrations(config: dict[str, Any], expert: Policy, episodes: int) -> tuple[list[np.ndarray], float]:
    """Return transitions of greedy episodes, as the buffer's columns, and the mean return."""
    envs = make_envs(config, episodes)
    observation, _ = envs.reset(seed=EVALUATION_SEED)
    running, steps = np.ones(episodes, bool), []
    while running.any():
        action = expert(Tensor(observation)).asnumpy().astype(np.int32)
        next_observation, reward, terminated, truncated, infos = envs.step(action)
        following, done = next_observation.copy(), terminated | truncated
        for i in np.flatnonzero(done):  # `next_observation` is already the first of the next episode
            following[i] = infos["final_obs"][i]
        row = observation, action, reward.astype(np.float32), following, terminated
        steps.append([column[running] for column in row])
        observation, running = next_observation, running & ~done
    envs.close()
    rows = [np.concatenate(column) for column in zip(*steps)]
    return rows, len(rows[0]) / episodes


if __name__ == "__main__":
    main(SqilRun, __doc__, "sqil_cartpole")
