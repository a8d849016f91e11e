"""Conservative Q-learning on CartPole, from a recorded dataset alone.

    pip install -e ".[examples,datasets]"
    python examples/offline_cql.py              # less than two minutes on two CPU cores
    python examples/offline_cql.py --seed 0 1 2 --out runs/offline_cql
    python examples/offline_cql.py --resume     # after a kill, each learner from its last evaluation

Policies that cannot balance the pole for long play some hundred episodes, which Minari's ``DataCollector`` records.
``from_minari`` makes a replay buffer of the dataset. From then on no learner acts: one call of a compiled graph samples
a batch, computes the loss and its gradients, and updates the network and its target.

A Q-learner overestimates actions that are not in the dataset, and offline nothing ever corrects it. Conservative
Q-learning adds to the loss the difference between the log-sum-exp of all action values and the value of the action
taken. For comparison the same learner without this term, a DQN, is trained on the same data.

Greedy episodes are played only to monitor progress; no network is selected by them, and the last one is the result. The
script exits with an error unless the mean return of CQL's reaches ``solved_at`` of the configuration. Files go to
``runs/offline_cql_seed<seed>/``: the dataset, which a later run in the same folder reuses, the learning curve, the
history and the networks, and a checkpoint of each learner.

Reference:
    Kumar et al. 2020, Conservative Q-Learning for Offline Reinforcement Learning, https://arxiv.org/abs/2006.04779,
    equation 4
"""

import argparse
import itertools
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import mindspore as ms
import numpy as np
from dqn import Learner, make_network, value_of
from drawing import GREY, draw_solved, pyplot
from mindspore import Tensor, ops
from run import EVALUATION_SEED, ROOT, add_device_option, make_envs, mean_return, use_device
from tqdm import tqdm

from mindspore_replay import Collector, NStep, TrainingCheckpoint, load_config
from mindspore_replay.datasets import from_minari


class OfflineLearner(Learner):
    """A `Learner` with a conservative term in its loss.

    Args:
        args: As for `Learner`.
        conservatism (float): Weight of the conservative term; 0 is a DQN.
    """

    def __init__(self, *args: Any, conservatism: float) -> None:
        super().__init__(*args)
        self.conservatism = conservatism

    def loss(self, batch: dict[str, Tensor], wanted: Tensor) -> Tensor:
        """Return the loss of a DQN, and the log-sum-exp of all values less the value of the action taken."""
        values = self.network(batch["observation"])
        taken = value_of(values, batch["action"])
        gap = ops.mean(ops.logsumexp(values, 1) - taken)
        return ops.huber_loss(taken, wanted) + self.conservatism * gap


class OfflineRun:
    """One dataset, the learners that use it, their history and files."""

    def __init__(self, config: dict[str, Any], seed: int, backend: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.config, self.seed, self.backend, self.folder = config, seed, backend, folder
        self.dataset = collected(config, seed, folder / "minari")
        returns = [float(episode.rewards.sum()) for episode in self.dataset]
        self.history: dict[str, Any] = {"dataset": returns, "evaluations": {}, "final": {}}
        print(
            f"dataset: {len(returns)} episodes, {self.dataset.total_steps} steps, mean return {np.mean(returns):.1f}, "
            f"largest {max(returns):.0f}"
        )

    def make_learner(self, conservatism: float) -> OfflineLearner:
        """Make a learner with the dataset in its buffer."""
        ms.set_seed(self.seed)
        settings = self.config["learner"]
        own = {"views": [NStep(1, self.config["gamma"])], "seed": self.seed, "backend": self.backend}
        buffer = from_minari(self.dataset, progress=True, **self.config["replay_buffer"], **own)
        size = settings["observation_scale"], settings["hidden"], int(self.dataset.action_space.n)
        return OfflineLearner(make_network(*size), make_network(*size), buffer, settings, conservatism=conservatism)

    def train(self, name: str, conservatism: float, resume: bool) -> float:
        """Train a learner, from its checkpoint if `resume`; return the mean return of its last network."""
        plan, updates = self.config["evaluation"], self.config["learner"]["updates"]
        learner = self.make_learner(conservatism)
        greedy = lambda observation: learner.network(Tensor(observation)).asnumpy().argmax(1)  # noqa: E731
        evaluation = Collector(make_envs(self.config, plan["episodes"]), None, greedy, seed=EVALUATION_SEED)
        checkpoint = TrainingCheckpoint(self.folder / f"{name}.safetensors", learner=learner)
        state = (checkpoint.load() if resume else None) or {"update": 0, "curve": []}
        curve = self.history["evaluations"][name] = state["curve"]
        todo = range(state["update"] + 1, updates + 1)
        for update in (bar := tqdm(todo, desc=name, unit="update", dynamic_ncols=True)):
            loss = learner()
            if update % plan["every"] == 0:
                curve.append((update, mean_return(evaluation, plan["episodes"])))
                bar.set_postfix_str(f"loss {float(loss):.3f}, return {curve[-1][1]:.0f}")
                checkpoint.save(update=update, curve=curve)
        ms.save_checkpoint(learner.network, str(self.folder / f"{name}.ckpt"))
        mean = self.history["final"][name] = mean_return(evaluation, plan["final_episodes"])
        return mean

    def save(self) -> None:
        """Write the history and the learning curve."""
        (self.folder / "history.json").write_text(json.dumps(self.history))
        plot([self.history], self.folder / "learning_curve.png", self.config)


class Player:
    """Linear policies that play an episode each in turn, at random in a part of the steps."""

    def __init__(self, policies: Iterator[dict[str, Any]], seed: int) -> None:
        self.policies, self.rng = policies, np.random.default_rng(seed)

    def begin(self, which: np.ndarray) -> None:
        self.policy = next(self.policies)

    def __call__(self, observation: np.ndarray) -> int:
        if self.rng.random() < self.policy["noise"]:
            return int(self.rng.integers(2))
        return int(np.dot(self.policy["weights"], observation) > 0)


def collected(config: dict[str, Any], seed: int, folder: Path) -> minari.MinariDataset:
    """Return the dataset in this folder; collect it if there is none."""
    plan = config["dataset"]
    os.environ["MINARI_DATASETS_PATH"] = str(folder.resolve())  # the folder of Minari's datasets
    folder.mkdir(exist_ok=True)
    if (folder / plan["id"]).exists():
        return minari.load_dataset(plan["id"])
    env = minari.DataCollector(gym.make(config["environment"]))
    players = itertools.cycle(plan["policies"].values())
    Collector(env, None, Player(players, seed), seed=seed).collect(episodes=plan["episodes"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about missing metadata of the dataset, such as its author
        dataset = env.create_dataset(plan["id"], algorithm_name="noisy linear policies")
    env.close()
    return dataset


def plot(histories: list[dict[str, Any]], path: Path, config: dict[str, Any]) -> None:
    """Draw the evaluations of each learner, and the returns in the dataset. One line for each seed."""
    plt = pyplot()
    figure, (data, axes) = plt.subplots(1, 2, layout="constrained", sharey=True, width_ratios=(1, 4))
    returns = np.concatenate([history["dataset"] for history in histories])
    data.hist(returns, bins=np.arange(0, 520, 20), orientation="horizontal", color=GREY)
    data.axhline(returns.mean(), color="C2", linewidth=1)
    data.set(xlabel="episodes", ylabel="return", title="the dataset", ylim=(0, 515))
    for i, name in enumerate(histories[0]["evaluations"]):
        for j, history in enumerate(histories):
            line = np.array(history["evaluations"][name] or [(0, 0)], float).T
            axes.plot(*line, "D-", color=f"C{i}", markersize=4, linewidth=1, alpha=0.8, label=name if j == 0 else None)
    axes.axhline(returns.mean(), color="C2", linewidth=1, label="mean of the dataset")
    draw_solved(axes, config["evaluation"]["solved_at"])
    axes.set(xlabel="updates", title=f"greedy episodes on {config['environment']}")
    figure.legend(loc="outside lower center", ncols=4)
    figure.savefig(path)
    plt.close(figure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "cql_cartpole.yaml")
    parser.add_argument("--updates", type=int, help="of each learner; default: from the configuration")
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="one run each")
    add_device_option(parser)
    parser.add_argument("--backend", choices=["auto", "native"], default="auto", help="of the buffer")
    parser.add_argument("--out", type=Path, default=Path("runs/offline_cql"), help="start of the runs' folders")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoints in the runs' folders")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    config = load_config(arguments.config)
    if arguments.updates is not None:
        config["learner"]["updates"] = arguments.updates
    histories, unsolved = [], []
    for seed in arguments.seed:
        begin = time.perf_counter()
        run = OfflineRun(config, seed, arguments.backend, Path(f"{arguments.out}_seed{seed}"))
        weights = config["learner"]["conservatism"].items()
        means = {name: run.train(name, weight, arguments.resume) for name, weight in weights}
        run.save()
        histories.append(run.history)
        unsolved += [seed] * (means["CQL"] < config["evaluation"]["solved_at"])
        texts = [f"{name} {mean:.1f}" for name, mean in means.items()]
        print(
            f"seed {seed}: mean return of {config['evaluation']['final_episodes']} greedy episodes: "
            f"{', '.join(texts)}; {time.perf_counter() - begin:.0f} s in all; files: {run.folder}"
        )
    if len(histories) > 1:
        plot(histories, Path(f"{arguments.out}.png"), config)
    if unsolved:
        raise SystemExit(
            f"not solved: CQL's mean return is below {config['evaluation']['solved_at']}, seeds {unsolved}"
        )


if __name__ == "__main__":
    main()
