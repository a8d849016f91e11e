"""DQN on CartPole with actors in processes of their own, which share the buffer's memory with the learner.

    python examples/actors.py
    python examples/actors.py --seed 1 --actors 2

The buffer is in a folder in shared memory. Actors (``actor.py``) attach to it and insert transitions with their first
priorities; they need no MindSpore, evaluate the network with NumPy, and read newer weights from there. One call
of a compiled graph draws a prioritized batch from the same rows, learns from it, and writes the new priorities. A rate
limiter keeps actors and learner in step by counts, so the number of updates per transition does not depend on the speed
of the machine; the schedule of the processes does, and two runs with one seed differ.

Evaluations and files are those of ``dqn.py``: the learning curve and the history are written to
``runs/actors_cartpole_seed<seed>/``. ``apex_dqn.py`` does the same with Ray, on several machines if need be.

Reference:
    Horgan et al. 2018, Distributed Prioritized Experience Replay, https://arxiv.org/abs/1803.00933. Omitted: its n-step
    returns.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
from actor import ROWS, SETTINGS
from device import add_device_option, use_device
from dqn import ROOT, Policy, Run, conclude, make_network, passed
from dqn_prioritized import DuelingHead, PrioritizedLearner
from mindspore import Tensor
from tqdm import tqdm

from mindspore_replay import SharedWeights, create_buffer, load_config


def whole_lines(file: Any) -> list[str]:
    """Read the lines that another process has written since the last call; the rest of a line is left for the next."""
    begin, text = file.tell(), file.read()
    lines = text[: text.rfind("\n") + 1]
    file.seek(begin + len(lines))
    return lines.splitlines()


class SamplingLearner(PrioritizedLearner):
    """A `PrioritizedLearner` whose buffer others fill."""

    def construct(self) -> Tensor:
        return self.learn()


class ActorsRun(Run):
    """A `Run` whose transitions come from actors.

    Args:
        config (dict): Configuration of the run.
        seed (int): Seed of the run.
        folder (Path): Folder of the results.
        shared (Path): Folder in shared memory.
    """

    actor = "actor.py"  # the program of an actor

    def __init__(self, config: dict[str, Any], seed: int, folder: Path, shared: Path) -> None:
        self.shared, self.seed = shared, seed
        super().__init__(config, seed, "native", folder)

    def make_cells(self, seed: int, backend: str) -> None:
        """Make the learner with its buffer in shared memory, and the greedy policy."""
        config, settings = self.config, self.config["learner"]
        size = settings["observation_scale"], settings["hidden"], int(self.envs.single_action_space.n)
        buffer = create_buffer({**config["replay_buffer"], "seed": seed, "storage": self.shared / ROWS})
        network, target = make_network(*size, DuelingHead), make_network(*size, DuelingHead)
        rates = config["gamma"], settings["tau"], settings["learning_rate"]
        self.learner = SamplingLearner(network, target, buffer, *rates)
        self.policy = Policy(network)
        self.share()

    def share(self) -> None:
        """Write what the actors read: the network and their settings."""
        self.weights = SharedWeights(self.learner.buffer)
        self.publish()
        (self.shared / SETTINGS).write_text(json.dumps({"config": self.config, "seed": self.seed}))

    def publish(self) -> None:
        """Give the actors the current network."""
        self.weights.publish({weight.name: weight for weight in self.learner.weights})

    @contextlib.contextmanager
    def actors(self) -> Iterator[list[subprocess.Popen]]:
        """Run the actors during the block; then close the buffer, which ends them."""
        command = [sys.executable, str(Path(__file__).with_name(self.actor)), str(self.shared)]
        actors = []
        try:
            for number in range(self.config["actors"]["number"]):
                with open(self.shared / f"returns.{number}", "w") as returns:
                    actors.append(subprocess.Popen([*command, str(number)], stdout=returns, start_new_session=True))
            yield actors
        finally:
            self.learner.buffer.close()
            for actor in actors:
                try:
                    actor.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    actor.kill()

    def train(self) -> None:
        """Learn from the actors' transitions until the last step, or until an evaluation is good enough."""
        with self.actors() as actors, contextlib.ExitStack() as files:
            returns = [files.enter_context(open(self.shared / f"returns.{i}")) for i in range(len(actors))]
            bar = files.enter_context(tqdm(total=self.config["steps"], unit="step", dynamic_ncols=True))
            self.learn(actors, returns, bar)

    def learn(self, actors: list[subprocess.Popen], returns: list[Any], bar: tqdm) -> None:
        start = time.perf_counter()
        updates = 0
        while self.step < self.config["steps"]:
            try:
                loss = self.update()
            except TimeoutError:
                self.look_after(actors, returns)
                raise
            updates += 1
            before, self.step = self.step, self.inserted()
            bar.update(self.step - before)
            if updates % self.config["learner"]["publish_every"] == 0:
                self.publish()
                self.look_after(actors, returns)
            if passed(500, before, self.step):
                self.show(bar, loss)
            if passed(self.config["evaluation"]["every"], before, self.step):
                self.seconds = time.perf_counter() - start
                if self.evaluate() >= self.config["evaluation"]["stop_at_return"]:
                    break
        self.seconds = time.perf_counter() - start

    def update(self) -> Tensor:
        """Learn from one batch, and return the loss."""
        buffer = self.learner.buffer
        with buffer.limiter.sampling(buffer.sample_size):  # waits for the actors
            return self.learner()

    def inserted(self) -> int:
        """Return the number of steps that the actors have inserted."""
        return self.learner.buffer.limiter.inserted

    def save(self) -> None:
        """Write no checkpoint, since the rows are in a folder that ends with the run."""

    def look_after(self, actors: list[subprocess.Popen], returns: list[Any]) -> None:
        """Read the returns of episodes that ended; raise a RuntimeError if an actor has ended."""
        for file in returns:
            self.history["episodes"] += [(self.step, float(line)) for line in whole_lines(file)]
        for number, actor in enumerate(actors):
            if actor.poll() is not None:
                raise RuntimeError(f"actor {number} ended with exit code {actor.returncode}")


def parse_arguments(description: str | None, name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / f"{name}.yaml")
    parser.add_argument("--steps", type=int, help="environment steps; default: from the configuration")
    parser.add_argument("--seed", type=int, default=0)
    add_device_option(parser)
    parser.add_argument("--actors", type=int, help="processes that act; default: from the configuration")
    parser.add_argument("--out", type=Path, help=f"folder of the run; default: runs/{name}_seed<seed>")
    return parser.parse_args()


def main(run_class: type[ActorsRun], description: str | None, name: str) -> None:
    """Train as the command line says. `name` is that of the configuration and of the run's folder."""
    begin = time.perf_counter()
    arguments = parse_arguments(description, name)
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain, and all processes share the cores
    config = load_config(arguments.config)
    config["steps"] = arguments.steps or config["steps"]
    config["actors"]["number"] = arguments.actors or config["actors"]["number"]
    folder = arguments.out or Path("runs") / f"{name}_seed{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as shared:
        run = run_class(config, arguments.seed, folder, Path(shared))
        run.train()
        print(f"{run.step / run.seconds:.0f} environment steps a second while learning")
        mean = run.finish()
    conclude(run, mean, time.perf_counter() - begin)


if __name__ == "__main__":
    main(ActorsRun, __doc__, "actors_cartpole")
