"""Processes that put CartPole transitions into the buffer of one library: made ones, or those of environments.

    python -m comparison.writing attached|reverb|reverb_insert|ray|torchrl                    # one row after the other
    python -m comparison.writing attached_collector|rllib_collector|torchrl_collector

An insertion counts when it has returned, and then the row is in the buffer. A process that collects steps four
environments of CartPole by a network of two layers of 64, and its rows count when they are in the learner's process, or
in shared memory. No network learns.
"""

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .answering import figures
from .cases import CARTPOLE, single_rows
from .rounds import Question
from .team import AHEAD, CAPACITY, Team, Work, inserting, work_for

ENVIRONMENT, ENVS = "CartPole-v1", 4
HIDDEN = 64
#: Steps of all environments in one piece of work.
STEPS = 64


def _questions(name: str, title: str, word: str) -> list[Question]:
    return [Question(f"{name}_{n}", title, f"{n} {word}", {"writers": n}) for n in (1, 2, 4)]


INSERT = _questions("insert", "processes that insert single rows into one buffer", "writing")
COLLECT = _questions("collect", "processes that step environments for one buffer", "collecting")


class Attached:
    """This project: a buffer in a folder of /dev/shm, and attached writers without MindSpore."""

    packages = ("mindspore", "numpy")

    def __init__(self) -> None:
        from mindspore_replay import ReplayBuffer

        self._files = tempfile.TemporaryDirectory(dir="/dev/shm")
        folder = f"{self._files.name}/rows"
        shapes, types = map(list, zip(*CARTPOLE.values()))
        self._buffer = ReplayBuffer(64, CAPACITY, shapes, types, names=list(CARTPOLE), storage=folder)
        self.team = Team(self.make, folder)

    @staticmethod
    def make(folder: str) -> Work:
        """Attach."""
        from mindspore_replay import attach

        return inserting(attach(folder).insert)

    def stored(self) -> int:
        """Return the number of rows."""
        return int(self._buffer.size())


def layers() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return weights ``[in, out]`` and biases of the network, from observations to the values of actions."""
    rng = np.random.default_rng(0)
    return [
        (rng.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in itertools.pairwise([4, HIDDEN, HIDDEN, 2])
    ]


class AttachedCollector(Attached):
    """Attached actors, each with a `Collector` and the network in NumPy."""

    packages = ("mindspore", "gymnasium", "numpy")

    @staticmethod
    def make(folder: str) -> Work:
        """Attach, and make the environments."""
        import gymnasium as gym

        from mindspore_replay import Collector, attach

        (*hidden, (last, bias)) = layers()

        def policy(observation: np.ndarray) -> np.ndarray:
            for weight, offset in hidden:
                observation = np.maximum(observation @ weight + offset, 0)
            return (observation @ last + bias).argmax(1)

        envs = gym.make_vec(ENVIRONMENT, ENVS, vectorization_mode="sync")
        collector = Collector(envs, attach(folder), policy, seed=os.getpid())

        def work() -> int:
            before = collector.steps
            collector.collect(steps=STEPS)
            return collector.steps - before

        return work


class Reverb:
    """dm-reverb: a server, and clients whose writer keeps its connection; or `Client.insert`, a stream for each row."""

    packages = ("dm-reverb", "tensorflow", "numpy")
    method = "writer"

    def __init__(self) -> None:
        import reverb

        selectors, limiter = (reverb.selectors.Uniform(), reverb.selectors.Fifo()), reverb.rate_limiters.MinSize(1)
        self._table = reverb.Table("table", *selectors, CAPACITY, limiter)
        self._server = reverb.Server([self._table])
        self.team = Team(self.make, self._server.port, self.method)

    @staticmethod
    def make(port: int, method: str) -> Work:
        """Connect."""
        import reverb

        client = reverb.Client(f"localhost:{port}")
        writer = client.trajectory_writer(1)

        def insert(row: Mapping[str, Any]) -> None:
            arrays = {name: np.asarray(row[name], dtype) for name, (_, dtype) in CARTPOLE.items()}
            if method == "insert":
                client.insert(arrays, {"table": 1.0})
                return
            writer.append(arrays)
            writer.create_item("table", 1.0, {name: column[-1:] for name, column in writer.history.items()})
            writer.flush()

        return inserting(insert)

    def stored(self) -> int:
        """Return the number of rows."""
        return int(self._table.info.current_size)


class ReverbInsert(Reverb):
    """`Client.insert`."""

    method = "insert"


class RayActor:
    """Ray: an actor that holds a ring of NumPy arrays, and actors that insert into it, one row for each call."""

    packages = ("ray", "numpy")

    def __init__(self) -> None:
        import ray

        from .peers.numpy_ring import Ring

        class Holder(Ring):
            def stored(self) -> int:
                return self.size

        class Writer:
            def work(self, holder: Any, start: float, seconds: float) -> tuple[int, float]:
                return work_for(inserting(lambda row: ray.get(holder.insert.remote(row))), start, seconds)

        ray.init(include_dashboard=False, log_to_driver=False)
        self._ray, self._writer, self._writers = ray, ray.remote(num_cpus=0)(Writer), []
        self._holder = ray.remote(num_cpus=0)(Holder).remote(CARTPOLE, CAPACITY)
        self.team = self

    def stored(self) -> int:
        """Return the number of rows."""
        return self._ray.get(self._holder.stored.remote())

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let the first writers work at the same time; return rows and seconds of each."""
        while len(self._writers) < writers:
            self._writers.append(self._writer.remote())
            self._ray.get(self._writers[-1].work.remote(self._holder, time.monotonic(), 0.1))
        start = time.monotonic() + AHEAD
        running = [writer.work.remote(self._holder, start, seconds) for writer in self._writers[:writers]]
        return self._ray.get(running)

    def close(self) -> None:
        """End Ray."""
        self._ray.shutdown()


class TorchRL:
    """torchrl: a shared `ReplayBuffer` of memory-mapped tensors in /dev/shm, passed to other processes."""

    packages = ("torchrl", "tensordict", "torch", "numpy")

    def __init__(self) -> None:
        from torchrl.data import LazyMemmapStorage, ReplayBuffer

        from .peers.torchrl import dtypes_of, one_row

        self._files = tempfile.TemporaryDirectory(dir="/dev/shm")
        storage = LazyMemmapStorage(CAPACITY, scratch_dir=f"{self._files.name}/rows")
        self._buffer = ReplayBuffer(storage=storage, batch_size=64, shared=True)
        self._buffer.add(one_row(single_rows(CARTPOLE, 1)[0], dtypes_of(CARTPOLE)))  # makes the files
        self.team = Team(self.make, self._buffer)

    @staticmethod
    def make(buffer: Any) -> Work:
        """Use the buffer that the learner passed."""
        import torch

        from .peers.torchrl import dtypes_of, one_row

        torch.set_num_threads(1)
        dtypes = dtypes_of(CARTPOLE)
        return inserting(lambda row: buffer.add(one_row(row, dtypes)))

    def stored(self) -> int:
        """Return the number of rows."""
        return len(self._buffer)


class RLlibCollector:
    """Ray RLlib: environment runners with such a network; each round of samples waits for all of them."""

    packages = ("ray", "torch", "gymnasium", "numpy")

    def __init__(self) -> None:
        import ray

        ray.init(include_dashboard=False, log_to_driver=False, num_cpus=8)
        self._rows, self._algorithms, self.team = 0, {}, self

    def stored(self) -> int:
        """Return the number of rows."""
        return min(self._rows, CAPACITY)

    def _group(self, runners: int) -> Any:
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

        if runners not in self._algorithms:
            network = DefaultModelConfig(fcnet_hiddens=[HIDDEN, HIDDEN], fcnet_activation="relu")
            config = (
                PPOConfig()
                .environment(ENVIRONMENT)
                .env_runners(num_env_runners=runners, num_envs_per_env_runner=ENVS, num_cpus_per_env_runner=0)
                .rl_module(model_config=network)
                .learners(num_learners=0)
            )
            self._algorithms[runners] = config.build_algo()
        return self._algorithms[runners].env_runner_group

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let so many runners sample at the same time; return rows and seconds of each."""
        group = self._group(writers)
        time.sleep(AHEAD)
        begin, counts = time.monotonic(), [0] * writers
        while (taken := time.monotonic() - begin) < seconds:
            found = group.foreach_env_runner(
                lambda runner: runner.sample(num_timesteps=STEPS * ENVS), local_env_runner=False
            )
            for i, episodes in enumerate(found):
                counts[i] += sum(map(len, episodes))
        self._rows += sum(counts)
        return [(count, taken) for count in counts]

    def close(self) -> None:
        """End all."""
        import ray

        for algorithm in self._algorithms.values():
            algorithm.stop()
        ray.shutdown()


def environment() -> Any:
    """Make an environment of torchrl."""
    from torchrl.envs import GymEnv

    return GymEnv(ENVIRONMENT, categorical_action_encoding=True)


def environments() -> Any:
    """Make the environments of one actor."""
    from torchrl.envs import SerialEnv

    return SerialEnv(ENVS, environment)


class TorchRLCollector:
    """torchrl: its collector of several processes, whose batches go into this process's buffer as they come."""

    packages = ("torchrl", "tensordict", "torch", "gymnasium", "numpy")

    def __init__(self) -> None:
        import torch
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        torch.set_num_threads(1)
        self._buffer = ReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=64)
        self._running: dict[int, tuple[Any, Iterator[Any]]] = {}
        self.team = self

    def stored(self) -> int:
        """Return the number of rows."""
        return len(self._buffer)

    def _begin(self, actors: int) -> Iterator[Any]:
        import torch
        from torchrl.collectors import MultiAsyncCollector
        from torchrl.modules import MLP, QValueActor

        self.close()
        network = MLP(in_features=4, out_features=2, num_cells=[HIDDEN, HIDDEN], activation_class=torch.nn.ReLU)
        policy = QValueActor(network, in_keys=["observation"], spec=environment().action_spec)
        collector = MultiAsyncCollector(
            [environments] * actors, policy, frames_per_batch=STEPS * ENVS, total_frames=-1, num_threads=1
        )
        self._running[actors] = collector, iter(collector)
        return self._running[actors][1]

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let so many actors collect at the same time; return their rows together, and the seconds."""
        batches = self._running[writers][1] if writers in self._running else self._begin(writers)
        self._buffer.extend(next(batches).reshape(-1))  # the actors have begun
        begin, rows = time.monotonic(), 0
        while (taken := time.monotonic() - begin) < seconds:
            batch = next(batches).reshape(-1)
            self._buffer.extend(batch)
            rows += len(batch)
        return [(rows, taken)]

    def close(self) -> None:
        """End all."""
        for collector, _ in self._running.values():
            collector.shutdown()
        self._running.clear()


LIBRARIES: dict[str, Any] = {
    "attached": Attached,
    "reverb": Reverb,
    "reverb_insert": ReverbInsert,
    "ray": RayActor,
    "torchrl": TorchRL,
    "attached_collector": AttachedCollector,
    "rllib_collector": RLlibCollector,
    "torchrl_collector": TorchRLCollector,
}


class Measured:
    """Measures one of them."""

    def __init__(self, cls: Any) -> None:
        self._cls, self.packages = cls, cls.packages
        self._library: Any = None
        self._started: set[int] = set()

    def measure(self, writers: int, seconds: float) -> dict[str, float]:
        """Return what a row costs a writer, and the rate of all."""
        self._library = self._library or self._cls()
        if writers not in self._started:
            self._started.add(writers)
            self._library.team.work(writers, 0.2)
        rows, taken = zip(*self._library.team.work(writers, seconds))
        stored = self._library.stored()
        if stored < min(CAPACITY, sum(rows)):
            raise RuntimeError(f"only {stored} of {sum(rows)} rows were stored")
        one = statistics.mean(lasted / n for n, lasted in zip(rows, taken))
        return {"us a row": one * 1e6, "rows/s": sum(n / lasted for n, lasted in zip(rows, taken))}

    def release(self) -> None:
        """End the processes."""
        if self._library is not None:
            self._library.team.close()
            self._library = None
            self._started.clear()


if __name__ == "__main__":
    figures(Measured(LIBRARIES[sys.argv[1]]))
