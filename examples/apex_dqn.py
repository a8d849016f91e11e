"""Ape-X on CartPole with Ray: several processes act, one learns, and the replay buffer has processes of its own.

    python examples/apex_dqn.py                 # one to four minutes on two CPU cores
    python examples/apex_dqn.py --seed 1 --actors 4
    python examples/apex_dqn.py --resume --steps 40000

Each actor steps environments with its own probability of random actions, computes the first priority of each
transition, and sends transitions to one shard of the buffer. The learner draws prioritized batches from all shards. One
call of a compiled graph learns from a batch and computes its new priorities, which go back to the shards. From time to
time the learner sends its network to the actors, which run it with NumPy. A rate limiter keeps actors and learner in
step by counts, so the number of updates per transition does not depend on the speed of the machine; the schedule of the
processes does, and two runs with one seed differ.

Evaluations and files are those of ``dqn.py``: the learning curve, the history and checkpoints are written to
``runs/apex_dqn_cartpole_seed<seed>/``, and ``--resume`` continues from there, with the rows of the shards.

Reference:
    Horgan et al. 2018, Distributed Prioritized Experience Replay, https://arxiv.org/abs/1803.00933. Omitted: its n-step
    returns.
"""

import argparse
import time
from collections import deque
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import ray
from device import add_device_option, use_device
from dqn import EVALUATION_SEED, ROOT, Policy, Run, conclude, make_envs, make_network, passed
from dqn_prioritized import DuelingHead, PrioritizedLearner
from mindspore import Tensor, ops
from tqdm import tqdm

from mindspore_replay import Prefetch, load_config
from mindspore_replay.distributed import ShardedReplay, ShardWriter


class ApexLearner(PrioritizedLearner):
    """A `PrioritizedLearner` that takes its batch as an argument and returns the errors."""

    def construct(
        self,
        weights: Tensor,
        observation: Tensor,
        action: Tensor,
        reward: Tensor,
        next_observation: Tensor,
        terminated: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, and the new priorities of the rows. Shapes ``[]`` and ``[B]``."""
        wanted = self.wanted_value(reward, next_observation, terminated)
        (loss, error), gradients = self.loss_and_gradients(observation, action, wanted, weights)
        self.improve(gradients)
        return loss, ops.abs(error)


def action_values(network: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Evaluate the network of a `DuelingHead` for observations that are already scaled. Shape ``[E, actions]``."""
    *hidden, value_weight, value_bias, advantage_weight, advantage_bias = network
    for weight, bias in zip(hidden[::2], hidden[1::2]):
        x = np.maximum(x @ weight.T + bias, 0)
    advantage = x @ advantage_weight.T + advantage_bias
    return x @ value_weight.T + value_bias + advantage - advantage.mean(1, keepdims=True)


@ray.remote(max_concurrency=2)
class Actor:
    """Environments in a process of their own.

    Args:
        config (dict): Configuration of the run.
        number (int): Number of the actor; the first explores most.
        seed (Sequence[int]): Of its environments and random actions.
        writer (ShardWriter): Takes its transitions.
    """

    def __init__(self, config: dict[str, Any], number: int, seed: list[int], writer: ShardWriter) -> None:
        plan = config["actors"]
        self.epsilon = plan["epsilon"] ** (1 + plan["alpha"] * number / max(plan["number"] - 1, 1))
        self.scale = np.array(config["learner"]["observation_scale"], np.float32)
        self.gamma = config["gamma"]
        self.writer = writer
        self.rng = np.random.default_rng(seed)
        self.envs = make_envs(config, config["num_envs"])
        self.observation, _ = self.envs.reset(seed=int(self.rng.integers(EVALUATION_SEED)))
        self.returns = np.zeros(config["num_envs"])
        self.ended: deque[float] = deque()

    def run(self) -> None:
        """Act until the process is ended."""
        while True:
            self.step(self.network)

    def exchange(self, network: list[np.ndarray]) -> list[float]:
        """Take a newer network while acting; return the returns of the episodes that ended since the last call."""
        self.network = network
        return [self.ended.popleft() for _ in range(len(self.ended))]

    def step(self, network: list[np.ndarray]) -> None:
        """Step each environment once and send the transitions."""
        values = action_values(network, self.observation * self.scale)
        guesses = self.rng.integers(values.shape[1], size=len(values))
        actions = np.where(self.rng.random(len(values)) < self.epsilon, guesses, values.argmax(1)).astype(np.int32)
        observation, reward, terminated, truncated, infos = self.envs.step(actions)
        done = terminated | truncated
        next_observation = observation.copy()
        for i in np.flatnonzero(done):  # `observation` is already the first of the next episode
            next_observation[i] = infos["final_obs"][i]
        next_value = action_values(network, next_observation * self.scale).max(1)
        error = reward + self.gamma * ~terminated * next_value - values[np.arange(len(values)), actions]
        transition = [self.observation, actions, reward.astype(np.float32), next_observation, terminated]
        self.writer.insert(transition, priority=np.abs(error))
        self.observation = observation
        self.returns += reward
        self.ended.extend(self.returns[done].tolist())
        self.returns[done] = 0


class ApexRun(Run):
    """A `Run` whose transitions come from actors, through shards."""

    def __init__(self, config: dict[str, Any], seed: int, folder: Path, replay: ShardedReplay) -> None:
        super().__init__(config, seed, "native", folder)
        self.seed = seed
        self.replay = replay

    def make_cells(self, seed: int, backend: str) -> None:
        """Make the learner and the greedy policy."""
        config, settings = self.config, self.config["learner"]
        size = settings["observation_scale"], settings["hidden"], int(self.envs.single_action_space.n)
        network, target = make_network(*size, DuelingHead), make_network(*size, DuelingHead)
        self.learner = ApexLearner(network, target, None, config["gamma"], settings["tau"], settings["learning_rate"])
        self.policy = Policy(network)

    def train(self) -> None:
        """Learn from the actors' transitions until the last step, or until an evaluation is good enough."""
        actors = [
            Actor.remote(self.config, i, [self.seed, self.step, i], self.replay.writer())
            for i in range(self.config["actors"]["number"])
        ]
        try:
            with Prefetch(self.replay, depth=1) as batches:  # the next batch is drawn while this one is learned from
                self.learn(actors, batches)
        finally:
            for actor in actors:
                ray.kill(actor)

    def learn(self, actors: list[Any], batches: Prefetch) -> None:
        start = time.perf_counter() - self.seconds
        self.exchange(actors)
        acting = [actor.run.remote() for actor in actors]
        bar = tqdm(total=self.config["steps"], initial=self.step, unit="step", dynamic_ncols=True)
        updates = 0
        while self.step < self.config["steps"]:
            indices, *batch = batches.sample()  # waits for the actors
            loss, priorities = self.learner(*batch)
            self.replay.update_priorities(indices, priorities)
            updates += 1
            before, self.step = self.step, self.replay.limiter.inserted
            bar.update(self.step - before)
            if updates % self.config["learner"]["publish_every"] == 0:
                self.exchange(actors)
                ray.get(ray.wait(acting, timeout=0)[0])  # raises the exception that ended an actor
            if passed(500, before, self.step):
                self.show(bar, loss)
            if passed(self.config["evaluation"]["every"], before, self.step):
                self.seconds = time.perf_counter() - start
                if self.evaluate() >= self.config["evaluation"]["stop_at_return"]:
                    break
        self.seconds = time.perf_counter() - start
        bar.close()

    def exchange(self, actors: list[Any]) -> None:
        """Send the current network to the actors and take the returns of their episodes."""
        network = ray.put([weight.asnumpy() for weight in self.learner.weights])
        for ended in ray.get([actor.exchange.remote(network) for actor in actors]):
            self.history["episodes"] += [(self.step, value) for value in ended]

    def save(self) -> None:
        """Write a checkpoint, and one of each shard."""
        super().save()
        self.replay.save()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "apex_dqn_cartpole.yaml")
    parser.add_argument("--steps", type=int, help="environment steps; default: from the configuration")
    parser.add_argument("--seed", type=int, default=0)
    add_device_option(parser)
    parser.add_argument("--actors", type=int, help="processes that act; default: from the configuration")
    parser.add_argument("--num-envs", type=int, help="of each actor; default: from the configuration")
    parser.add_argument("--out", type=Path, help="folder of the run; default: runs/apex_dqn_cartpole_seed<seed>")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder of the run")
    return parser.parse_args()


def main() -> None:
    begin = time.perf_counter()
    arguments = parse_arguments()
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain, and all processes share the cores
    config = load_config(arguments.config)
    given = {"steps": arguments.steps, "num_envs": arguments.num_envs}
    config.update({key: value for key, value in given.items() if value is not None})
    config["actors"]["number"] = arguments.actors or config["actors"]["number"]
    folder = arguments.out or Path("runs") / f"apex_dqn_cartpole_seed{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.resume:
        for old in folder.glob("shard_*"):  # of an earlier run
            old.unlink()
    rows = {**config["replay_buffer"], "seed": arguments.seed}
    with ShardedReplay(rows, folder=str(folder.resolve()), resume=arguments.resume) as replay:
        run = ApexRun(config, arguments.seed, folder, replay)
        if arguments.resume:
            run.load()
        run.train()
        mean = run.finish()
    conclude(run, mean, time.perf_counter() - begin)


if __name__ == "__main__":
    main()
