"""Ray RLlib: environment runners with a network of the same size; each round of samples waits for all of them."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from .collect import ENVIRONMENT, ENVS, HIDDEN, STEPS
from .team import AHEAD, CAPACITY, Held, serve


class Runners:
    """Groups of environment runners, one for each number of actors, and the number of rows that they sent."""

    def __init__(self) -> None:
        self.rows = 0
        self._algorithms: dict[int, Any] = {}

    def _group(self, runners: int) -> Any:
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
        self.rows += sum(counts)
        return [(count, taken) for count in counts]

    def close(self) -> None:
        """End all."""
        for algorithm in self._algorithms.values():
            algorithm.stop()
        ray.shutdown()


@contextlib.contextmanager
def hold() -> Iterator[Held]:
    """Begin."""
    ray.init(include_dashboard=False, log_to_driver=False, num_cpus=8)
    runners = Runners()
    yield runners, lambda: min(runners.rows, CAPACITY)


if __name__ == "__main__":
    serve(["ray", "torch", "gymnasium", "numpy"], hold)
