"""Runs the algorithms of MindSpore RL 0.7 after `compat.install()`, and prints a row of a table for each.

    python benchmarks/algorithms.py [dqn ac ...] [--seconds 100] [--seed 0] [--episodes 200]

Each runs in a process and an empty folder of its own, with a time limit that includes compiling. It needs
`pip install mindspore_rl==0.7.0 "numpy<2"`; DDPG, TD3, SAC and PPO also `mujoco==2.3.7`.
"""

import argparse
import contextlib
import importlib
import importlib.util
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: Module of the trainer where it is not ``NAME.NAME_trainer``.
TRAINERS = {
    "double_dqn": "dqn.dqn_trainer",
    "dueling_dqn": "dqn.dqn_trainer",
    "mappo": "mappo.mappo_vmap_trainer",
    "qmix": "qmix.qmix_mpe_trainer",
}
#: Environments in place of HalfCheetah-v2, which needs mujoco_py.
ENVIRONMENTS = dict.fromkeys(("ddpg", "td3", "sac", "ppo", "cql", "iql", "awac"), "HalfCheetah-v4")
#: A return that solves the environment: CartPole-v0 gives at most 200.
SOLVED = dict.fromkeys(("dqn", "double_dqn", "dueling_dqn", "ac", "c51", "a2c", "a3c_single", "pg"), 195.0)

#: An error's name and its message, which may come after lines of dashes.
ERROR = re.compile(r"^([\w.]*(?:Error|Exception|NotInstalled|NotFound)\b:?)\s*(?:-.*\n\s*)*(.*)", re.MULTILINE)
TRACEBACK = "Traceback (most recent call last):"
EVALUATION = re.compile(r"Evaluate for episode (\d+) total rewards is (-?[\d.]+)")
#: What trainers that show a progress bar print: the mean return of the last hundred episodes.
RUNNING = re.compile(r"Episode (\d+):.*running_reward=(-?[\d.]+)")
EPISODE = re.compile(r"Episode (\d+):? .*?(?:rewards?|return) (?:is )?(-?[\d.]+)")


def algorithms() -> list[str]:
    """Return the names of all algorithms in the installed package."""
    package = importlib.util.find_spec("mindspore_rl")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0], "algorithm")
    return sorted(path.parent.name for path in folder.glob("*/__init__.py"))


def train(name: str, seed: int, episodes: int) -> None:
    from mindspore_replay.compat import install

    install()  # before the first import of mindspore_rl

    import mindspore as ms

    def find(path: str, kind: str) -> Any:
        module = importlib.import_module(f"mindspore_rl.algorithm.{path}")
        return next(v for k, v in vars(module).items() if k.endswith(kind) and v.__module__ == module.__name__)

    ms.set_seed(seed)
    ms.set_context(mode=ms.GRAPH_MODE, max_call_depth=100_000)
    config = importlib.import_module(f"mindspore_rl.algorithm.{name}.config")
    for params in (config.collect_env_params, config.eval_env_params):
        own = next(iter(params.values()))
        own["name"] = params["name"] = ENVIRONMENTS.get(name) or own.get("name")
    config.algorithm_config["policy_and_network"]["params"].setdefault("compute_type", ms.float32)
    package = importlib.import_module(f"mindspore_rl.algorithm.{name}")
    modules = [module.name for module in pkgutil.iter_modules(package.__path__)]
    session = next(module for module in modules if module.endswith("_session"))
    trainer = TRAINERS.get(name, f"{name}.{name}_trainer")
    find(f"{name}.{session}", "Session")().run(class_type=find(trainer, "Trainer"), episode=episodes)


def result_of(name: str, printed: str, ended: int | None, seconds: float) -> str:
    """Return the words for what a run printed; `ended` is its exit status, or ``None`` at the time limit."""
    errors = ERROR.findall(printed)
    # After an error the process may hang, with threads or processes of its environments.
    if errors and (ended or TRACEBACK in printed):
        return f"`{' '.join(errors[-1]).strip()[:200]}`"
    evaluations = [(int(episode), float(value)) for episode, value in EVALUATION.findall(printed)]
    episodes = [float(value) for _, value in EPISODE.findall(printed)]
    how = f"in {seconds:.0f} s" if ended is not None else f"in {seconds:.0f} s, the limit"
    solved = [episode for episode, value in evaluations if value >= SOLVED.get(name, float("inf"))]
    if solved:
        last = [value for episode, value in evaluations if episode >= solved[0]]
        return (
            f"learns: solved after {solved[0]} episodes, then {min(last):.1f} or more; {len(episodes)} episodes {how}"
        )
    if evaluations:
        best = max(value for _, value in evaluations)
        count = f"{len(episodes)} episodes " if episodes else ""
        return f"runs: best evaluation {best:.1f} of {len(evaluations)}; {count}{how}"
    running = RUNNING.findall(printed.replace("\r", "\n"))
    if running:
        count, mean = running[-1]
        return f"runs: mean return {float(mean):.1f} of the last 100 of {int(count) + 1} episodes {how}"
    if episodes:
        return f"runs: {len(episodes)} episodes {how}, returns {episodes[0]:.1f} to {episodes[-1]:.1f}"
    if ended:
        return f"ended with status {ended}, without an error's name"
    return f"runs to its end {how}, and prints no episode" if ended == 0 else f"runs {how}; prints no episode"


def measure(name: str, seed: int, episodes: int, limit: float) -> str:
    command = [sys.executable, Path(__file__).resolve(), name, f"--seed={seed}", f"--episodes={episodes}", "--child"]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        output = {"stdout": log, "stderr": subprocess.STDOUT}
        child = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **output)
        try:
            ended = child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            ended = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # with the environments' processes, for which it would wait
            child.wait()
        log.seek(0)
        return result_of(name, log.read(), ended, time.monotonic() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the algorithms of MindSpore RL.")
    parser.add_argument("names", nargs="*", help="algorithms (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="MindSpore's seed (default: 0)")
    parser.add_argument("--episodes", type=int, default=200, help="episodes of training (default: 200)")
    parser.add_argument("--seconds", type=float, default=100.0, help="time limit of each (default: 100)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        train(options.names[0], options.seed, options.episodes)
        return
    for name in options.names or algorithms():
        print(f"| `{name}` | {measure(name, options.seed, options.episodes, options.seconds)} |", flush=True)


if __name__ == "__main__":
    main()
