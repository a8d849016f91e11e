"""Draws the learning curves of several runs of dqn.py into one figure.

    python examples/plot_curves.py runs/dqn_cartpole_seed* --out docs/images/dqn_cartpole.png
    python examples/plot_curves.py runs/r2d2_cartpole_*seed* --together --names "no memory" memory

Each run has a panel of its own. With ``--together`` there is one panel: for each method, whose runs differ only in
their seeds, a line for the median of their greedy evaluations and an area from the lowest to the highest; ``--names``
says what they are, in the order of the runs. A run that has stopped counts with its last evaluation.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from drawing import draw_solved, plot, pyplot


def evaluations(histories: list[dict[str, Any]], every: int) -> tuple[np.ndarray, np.ndarray]:
    """Return steps, multiples of `every`, and the mean return of each run by then. Shapes ``[n]``, ``[runs, n]``."""
    last = max(step for history in histories for step, _ in history["evaluations"])
    steps = np.arange(every, last + 1, every)
    curves = []
    for history in histories:
        at, means = np.array(history["evaluations"]).T
        curves.append(means[np.searchsorted(at, steps, "right") - 1])
    return steps, np.stack(curves)


def plot_together(runs: dict[str, dict[str, Any]], path: Path, config: dict[str, Any], names: list[str]) -> None:
    """Draw the median and the range of the evaluations of each method, `names` of them."""
    plt = pyplot()
    figure, axes = plt.subplots(layout="constrained")
    methods = dict.fromkeys(name.rpartition("_seed")[0] for name in runs)
    for i, (method, words) in enumerate(zip(methods, names or methods, strict=True)):
        seeds = [history for name, history in runs.items() if name.rpartition("_seed")[0] == method]
        steps, means = evaluations(seeds, config["evaluation"]["every"])
        axes.fill_between(steps, means.min(0), means.max(0), color=f"C{i}", alpha=0.2, linewidth=0)
        axes.plot(steps, np.median(means, 0), color=f"C{i}", label=f"{words}, {len(seeds)} seeds")
    draw_solved(axes, config["evaluation"]["solved_at"])
    axes.set(xlabel="environment steps", ylabel="mean return of greedy episodes")
    axes.set_ylim(config.get("return_range", (0, 515)))
    axes.set_title(f"{config.get('title', 'DQN')} on {config['environment']}: median and range")
    axes.legend(loc="lower right")
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders that dqn.py wrote")
    parser.add_argument("--together", action="store_true", help="one panel, with median and range of runs by seeds")
    parser.add_argument("--names", nargs="+", default=[], help="with --together: what each method is, in words")
    parser.add_argument("--out", type=Path, default=Path("learning_curves.png"))
    arguments = parser.parse_args()
    histories = {run.name: json.loads((run / "history.json").read_text()) for run in arguments.runs}
    config = next(iter(histories.values()))["config"]
    if arguments.together:
        plot_together(histories, arguments.out, config, arguments.names)
    else:
        plot(histories, arguments.out, config)
