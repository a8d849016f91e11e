"""What the examples that train share: the command line, environments, and the record and files of a run."""

import argparse
import functools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from drawing import plot
from mindspore import Tensor, nn
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from tqdm import tqdm

from mindspore_replay import Collector, load_config

ROOT = Path(__file__).resolve().parent.parent
#: Evaluations have episodes of their own.
EVALUATION_SEED = 1_000_000
#: Options that not all examples have.
OPTIONS: dict[str, dict[str, Any]] = {
    "mode": {"choices": ["graph", "pynative"], "default": "graph"},
    "num-envs": {"type": int, "help": "environments that act in step; default: from the configuration"},
    "backend": {"choices": ["auto", "native", "composite"], "default": "auto", "help": "of the buffer"},
    "actors": {"type": int, "help": "processes that act; default: from the configuration"},
    "resume": {"action": "store_true", "help": "go on from the checkpoint in the folder of the run"},
}


def command_line(
    description: str | None, name: str, options: Iterable[str] = ("mode", "num-envs", "backend", "resume")
) -> argparse.ArgumentParser:
    """Return the options of an example; `name` is that of its configuration and of its runs' folders."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / f"{name}.yaml")
    parser.add_argument("--steps", type=int, help="environment steps; default: from the configuration")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help=f"folder of the run; default: runs/{name}_seed<seed>")
    for option in options:
        parser.add_argument(f"--{option}", **OPTIONS[option])
    add_device_option(parser)
    parser.set_defaults(name=name)
    return parser


def add_device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["CPU", "GPU", "Ascend"], default="CPU", help="what to train on")


def use_device(device: str) -> None:
    """Select the kind of device that MindSpore computes on; exit if there is none."""
    try:
        ms.set_device(device)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SystemExit(f"--device {device}: {reason}") from None


def make_envs(config: dict[str, Any], number: int) -> gym.vector.VectorEnv:
    """Make environments that begin the next episode in the step that ends one. Vectors as actions are in [-1, 1]."""
    mode = gym.vector.AutoresetMode.SAME_STEP
    envs = gym.make_vec(
        config["environment"], number, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    is_vector = isinstance(envs.single_action_space, gym.spaces.Box)
    return gym.wrappers.vector.RescaleAction(envs, -1, 1) if is_vector else envs


def learning_rate(plan: float | dict[str, Any]) -> float | LearningRateSchedule:
    """Return a constant, or a schedule that falls linearly from `start` to `end` in `steps` learning steps."""
    if isinstance(plan, dict):
        return nn.PolynomialDecayLR(plan["start"], plan["end"], plan["steps"], power=1.0)
    return plan


class Run:
    """Settings, record and files of a training run.

    Args:
        options (Namespace): Of a `command_line`.
        must_solve (bool): Whether `finish` exits with an error unless the final evaluation reaches `solved_at`.

    Attributes:
        config (dict): The configuration, with the options of the command line.
        folder (Path): Where the files go.
        step (int): Environment steps so far.
        done (bool): Whether the last step is done, or the agent is good enough.
        history (dict): Steps and returns of training episodes and of evaluations.
    """

    def __init__(self, options: argparse.Namespace, must_solve: bool = False) -> None:
        self.begin = time.perf_counter()
        self.options, self.must_solve = options, must_solve
        is_pynative = getattr(options, "mode", "graph") == "pynative"
        ms.set_context(mode=ms.PYNATIVE_MODE if is_pynative else ms.GRAPH_MODE)
        use_device(options.device)
        ms.set_seed(options.seed)
        self.config = load_config(options.config)
        given = {key: getattr(options, key, None) for key in ("steps", "num_envs")}
        self.config.update({key: value for key, value in given.items() if value is not None})
        if getattr(options, "actors", None) is not None:
            self.config["actors"]["number"] = options.actors
        self.plan = self.config["evaluation"]
        self.folder = options.out or Path("runs") / f"{options.name}_seed{options.seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.step, self.best, self.done = 0, -np.inf, False
        self.history: dict[str, Any] = {"episodes": [], "evaluations": [], "final": None}

    @functools.cached_property
    def bar(self) -> tqdm:
        """The progress bar."""
        return tqdm(total=self.config["steps"], initial=self.step, unit="step", dynamic_ncols=True)

    def record(self, step: int, returns: Iterable[float], loss: Tensor | None = None) -> bool:
        """Record the steps so far and the returns of the episodes that ended; return True if an evaluation is due."""
        self.bar.update(step - self.step)
        before, self.step = self.step, step
        self.history["episodes"] += [(step, float(value)) for value in returns]
        self.done = step >= self.config["steps"]
        if self.done or passed(500, before, step):  # rarely, since reading the loss waits for the graph
            loss_text = "-" if loss is None else f"{float(loss):.4f}"
            self.bar.set_postfix_str(f"return {self.recent_return():.0f}, loss {loss_text}, best {self.best:.0f}")
        return self.done or passed(self.plan["every"], before, step)

    def recent_return(self) -> float:
        """Return the mean return of the last 20 training episodes, or of all if fewer; 0 if there are none."""
        return float(np.mean([value for _, value in self.history["episodes"][-20:]] or [0]))

    def evaluate(self, evaluation: Collector, network: nn.Cell) -> None:
        """Play episodes, keep the network if it is the best so far, and find out whether it is good enough."""
        mean = mean_return(evaluation, self.plan["episodes"])
        self.history["evaluations"].append((self.step, mean))
        if mean >= self.best:
            self.best = mean
            ms.save_checkpoint(network, str(self.folder / "best.ckpt"))
        reached = {"stop_at_return": mean, "stop_at_training_return": self.recent_return()}
        is_enough = all(value >= self.plan.get(key, -np.inf) for key, value in reached.items())
        self.done |= is_enough and (self.keeps_best or len(self.history["episodes"]) >= 20)

    @property
    def keeps_best(self) -> bool:
        """Whether the result is the network of the best evaluation instead of the last one."""
        return "stop_at_training_return" not in self.plan

    def finish(self, evaluation: Collector, network: nn.Cell) -> None:
        """Play new episodes with the result, write the history, draw the learning curve, and print the mean return."""
        self.bar.close()
        if self.keeps_best:
            ms.load_checkpoint(str(self.folder / "best.ckpt"), network)
        mean = self.history["final"] = mean_return(evaluation, self.plan["final_episodes"])
        (self.folder / "history.json").write_text(json.dumps({**self.history, "config": self.config}))
        plot({self.folder.name: self.history}, self.folder / "learning_curve.png", self.config)
        solved = "solved" if mean >= self.plan["solved_at"] else "not solved"
        print(f"{self.step} steps, {len(self.history['episodes'])} episodes, {time.perf_counter() - self.begin:.0f} s")
        print(f"mean return of {self.plan['final_episodes']} greedy episodes: {mean:.1f} ({solved})")
        print(f"learning curve, history and checkpoints: {self.folder}")
        if self.must_solve and solved != "solved":
            raise SystemExit(f"{solved}: the mean return is below {self.plan['solved_at']}")

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint of the run needs beside networks and buffers."""
        return {"step": self.step, "best": self.best, "history": self.history, "config": self.config}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of a run with the same configuration; `steps` may be larger."""
        if {**state["config"], "steps": 0} != {**self.config, "steps": 0}:
            raise SystemExit(f"{self.folder} was made with another configuration: {state['config']}")
        self.step, self.best, self.history = state["step"], state["best"], state["history"]
        self.done = self.step >= self.config["steps"]


def mean_return(evaluation: Collector, episodes: int) -> float:
    """Return the mean return of the first `episodes` that begin."""
    return float(np.mean([episode.total_reward for episode in evaluation.collect(episodes=episodes)]))


def passed(every: int, before: int, now: int) -> bool:
    """Return True if the step counter passed a multiple of `every`."""
    return now // every > before // every
