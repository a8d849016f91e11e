"""Ape-X on CartPole with Ray: several processes act, one learns, and the replay buffer has processes of its own.

    python examples/apex_dqn.py                 # 4 to 11 minutes on two busy cores
    python examples/apex_dqn.py --seed 1 --actors 4
    python examples/apex_dqn.py --resume --steps 150000

Each actor steps environments with its own probability of random actions, computes the first priority of each
transition, and sends transitions to one shard of the buffer. The learner draws prioritized batches from all shards. One
call of a compiled graph learns from a batch and computes its new priorities, which go back to the shards. From time to
time the learner sends its network to the actors, which run it with NumPy. A rate limiter keeps actors and learner in
step by counts, so the number of updates per transition does not depend on the speed of the machine; the schedule of the
processes does, and two runs with one seed differ. The training returns are those of the actor that explores least.

Options, evaluations and files are those of ``dqn.py``: the learning curve, the history and checkpoints are written to
``runs/apex_dqn_cartpole_seed<seed>/``, and ``--resume`` continues from there, with the rows of the shards.

Reference:
    Horgan et al. 2018, Distributed Prioritized Experience Replay, https://arxiv.org/abs/1803.00933. Omitted: its n-step
    returns.
"""

import shutil
from collections import deque
from typing import Any

import mindspore as ms
import numpy as np
import ray
from actor import Explorer
from dqn import make_network
from dqn_prioritized import DuelingHead, PrioritizedLearner
from mindspore import Tensor
from run import EVALUATION_SEED, Run, command_line, make_envs

from mindspore_replay import Collector, Prefetch, TrainingCheckpoint
from mindspore_replay.distributed import ShardedReplay, ShardWriter


class ApexLearner(PrioritizedLearner):
    """A `PrioritizedLearner` that takes its batch as arguments and returns the new priorities of its rows."""

    def construct(
        self,
        weights: Tensor,
        observation: Tensor,
        action: Tensor,
        reward: Tensor,
        next_observation: Tensor,
        discount: Tensor,
    ) -> tuple[Tensor, Tensor]:
        batch = {
            "weights": weights,
            "observation": observation,
            "action": action,
            "reward": reward,
            "next_observation": next_observation,
            "discount": discount,
        }
        return self.learn(batch)


@ray.remote(max_concurrency=2)
class Actor(Explorer):
    """An `Explorer` in a process of its own, whose rows go to a shard."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ended: deque[float] = deque()

    def run(self, writer: ShardWriter) -> None:
        """Act until the process is ended."""
        while True:
            self.ended.extend(self.gather(writer))

    def exchange(self, network: list[np.ndarray]) -> list[float]:
        """Take a newer network while acting; return the returns of the episodes that ended since the last call."""
        self.network = network
        return [self.ended.popleft() for _ in range(len(self.ended))]


def train(run: Run, learner: ApexLearner, evaluation: Collector, replay: ShardedReplay) -> None:
    """Learn from the actors' transitions; evaluate and save on the way."""
    plan, updates, number = run.config["learner"], 0, run.config["actors"]["number"]
    checkpoint = TrainingCheckpoint(run.folder / "training.safetensors", learner=learner)
    if run.options.resume:
        state = checkpoint.load()
        if state is None:
            raise SystemExit(f"{run.folder} has no checkpoint to go on from")
        run.load_state_dict(state)
    actors = [Actor.remote(run.config, i, [run.options.seed, run.step]) for i in range(number)]

    def exchange() -> list[float]:
        """Send the current network to the actors; return the returns of the one that explores least."""
        network = ray.put([weight.asnumpy() for weight in learner.weights])
        return ray.get([actor.exchange.remote(network) for actor in actors])[-1]

    try:
        exchange()
        acting = [actor.run.remote(replay.writer()) for actor in actors]
        with Prefetch(replay, depth=1) as batches:  # the next batch is drawn while this one is learned from
            while not run.done:
                indices, *batch = batches.sample()  # waits for the actors
                loss, priorities = learner(*batch)
                replay.update_priorities(indices, priorities)
                updates += 1
                returns: list[float] = []
                if updates % plan["publish_every"] == 0:
                    returns = exchange()
                    ray.get(ray.wait(acting, timeout=0)[0])  # raises the exception that ended an actor
                if run.record(replay.limiter.inserted, returns, loss):
                    run.evaluate(evaluation, learner.network)
                    checkpoint.save(**run.state_dict())
                    replay.save()
    finally:
        for actor in actors:
            ray.kill(actor)


def main() -> None:
    run = Run(command_line(__doc__, "apex_dqn_cartpole", ["num-envs", "actors", "resume"]).parse_args())
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain, and all processes share the cores
    config, settings = run.config, run.config["learner"]
    if not run.options.resume:
        for old in run.folder.glob("save_*"):  # of an earlier run
            shutil.rmtree(old)
    network, target = (
        make_network(settings["observation_scale"], settings["hidden"], 2, DuelingHead) for _ in range(2)
    )
    learner = ApexLearner(network, target, None, settings)

    def greedy(observation: np.ndarray) -> np.ndarray:
        return network(Tensor(observation)).asnumpy().argmax(1)

    evaluation = Collector(make_envs(config, config["evaluation"]["episodes"]), None, greedy, seed=EVALUATION_SEED)
    rows = {**config["replay_buffer"], "seed": run.options.seed}
    with ShardedReplay(rows, folder=str(run.folder.resolve()), resume=run.options.resume) as replay:
        train(run, learner, evaluation, replay)
    run.finish(evaluation, network)


if __name__ == "__main__":
    main()
