"""One style for the pictures of all examples."""

from typing import Any

#: One run has the first colour for training and the second for evaluations; methods take them in turn.
COLORS = ("#1f77b4", "#d9480f", "#1b9e77", "#7b3fa0")
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.figsize": (8, 4.5),
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "font.size": 10,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": 110,
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
    axes.axhline(value, color="grey", linestyle=":", label="solved")
