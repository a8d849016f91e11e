"""One style for the pictures of all examples, and their learning curves."""

from pathlib import Path
from typing import Any

import numpy as np

#: One run has the first colour for training and the second for evaluations; methods take them in turn.
COLORS = ("#3b86c8", "#e8590c", "#1b9e77", "#9a66c4")
#: Text and axes, which stand on white and on dark pages: pictures are transparent.
GREY = "#7d8590"
#: What a curve shows, unless the configuration has `labels` of its own.
LABELS = {
    "x": "environment steps",
    "y": "return",
    "one": "training episode",
    "mean": "mean of 20 training episodes",
    "test": "evaluation",
}
STYLE = {
    **dict.fromkeys(
        ("axes.edgecolor", "axes.labelcolor", "grid.color", "text.color", "xtick.color", "ytick.color"), GREY
    ),
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.figsize": (8, 4.5),
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "font.size": 11,
    "grid.alpha": 0.4,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": 110,
    "savefig.transparent": True,
}


def pyplot() -> Any:
    """Return matplotlib's pyplot in this style; it draws into files and needs no screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update(STYLE)
    plt.rcParams["axes.prop_cycle"] = matplotlib.cycler(color=COLORS)
    return plt


def draw_solved(axes: Any, value: float) -> None:
    """Draw the line from which on a task counts as solved."""
    axes.axhline(value, color=GREY, linestyle=":", label="solved")


def plot(runs: dict[str, dict[str, Any]], path: Path, config: dict[str, Any]) -> None:
    """Draw the learning curve of each run in a panel of its own."""
    plt, labels = pyplot(), config.get("labels", LABELS)
    columns = min(len(runs), 2)  # more cannot be read on a phone
    rows = -(-len(runs) // columns)
    size = None if columns == 1 else (3.6 * columns, 0.6 + 2.7 * rows)
    shared = {"squeeze": False, "sharex": True, "sharey": True, "layout": "constrained"}
    figure, panels = plt.subplots(rows, columns, figsize=size, **shared)
    for axes, (name, history) in zip(panels.flat, runs.items()):
        draw(axes, history, config)
        _, of_a_seed, seed = name.rpartition("_seed")
        axes.set(
            title=f"seed {seed}" if of_a_seed else name, xlabel=labels["x"], ylim=config.get("return_range", (0, 515))
        )
        axes.tick_params(labelbottom=True)
        axes.locator_params(axis="x", nbins=4)
    for axes in panels[:, 0]:
        axes.set_ylabel(labels["y"])
    for axes in panels.flat[len(runs) :]:
        axes.set_axis_off()
    figure.suptitle(f"{config.get('title', 'DQN')} on {config['environment']}")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path)
    plt.close(figure)


def draw(axes: Any, history: dict[str, Any], config: dict[str, Any]) -> None:
    """Draw the return of each training episode, their mean over 20, and the greedy evaluations."""
    labels = config.get("labels", LABELS)
    steps, values = np.array(history["episodes"] or [(0, 0)], float).T
    mean = [values[max(0, j - 19) : j + 1].mean() for j in range(len(values))]
    axes.plot(steps, values, color="C0", alpha=0.5, linewidth=0.8, label=labels["one"])
    axes.plot(steps, mean, color="C0", linewidth=2, label=labels["mean"])
    axes.plot(*np.array(history["evaluations"]).T, "D--", color="C1", markersize=4, linewidth=0.8, label=labels["test"])
    draw_solved(axes, config["evaluation"]["solved_at"])
    if history.get("lags"):
        at, lag = np.array(history["lags"]).T
        axes.plot([], [], color="C2", linewidth=0.8, label="learning steps since the actor's policy")
        other = axes.twinx()
        other.plot(at, lag, color="C2", linewidth=0.8)
        other.set(ylim=(0, 4 * lag.max()), yticks=range(0, int(lag.max()) + 2, 1 + int(lag.max()) // 4))
        other.spines["right"].set_visible(True)
        other.grid(False)
