"""The head of a page of results: what the project aims at, whether it holds, and bars of a few cases."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from .environments import LIMIT, OURS
from .figures import CaseResults, best_peer, measured, middle, shown
from .rounds import Result

matplotlib.use("Agg")


@dataclass(frozen=True)
class Aim:
    """A case, and how good this project wants to be in it.

    Args:
        case (str): Name of the case.
        factor (float): The cost of the other over this project's is to be at least this.
        against (str): Name of the other; empty for the fastest peer.
    """

    case: str
    factor: float
    against: str = ""


AIMS = (
    Aim("insert_1", 2),
    Aim("insert_1", 1, "numpy ring"),
    Aim("insert_64", 2),
    Aim("insert_million", 2),
    Aim("sample_64", 1.2),
    Aim("sample_64_arrays", 1),
    Aim("prioritized_update", 2.7),
    Aim("prioritized_update_compiled", 2.5),
    Aim("atari_256", 1),
    Aim("atari_256", 0.7, LIMIT),
    Aim("sequences", 1.5),
    Aim("n_step", 1, "numpy ring"),
    Aim("files_insert", 1),
    Aim("files_sample", 1),
    Aim("frames_bytes", 1),
    Aim("save", 1),
    Aim("save", 1, LIMIT),
    Aim("load", 1),
    Aim("load", 1, LIMIT),
    Aim("dqn", 1.5, "stable-baselines3"),
    Aim("dqn", 1),
    Aim("dqn_bursts", 1.5),
)

EXPLANATION = (
    "Aim and measurement say how many times as much as this project the fastest other library needs, in time or bytes.",
    "Where the table names no library, the comparison is with the same bytes copied, written or read.",
)

#: The panels of the figure: a case, and a title short enough for its panel.
PANELS = {
    "insert_1": "insert a row",
    "sample_64": "sample 64 rows",
    "prioritized_update": "prioritized, 256 rows",
    "atari_256": "256 Atari pairs",
    "sequences": "32 sequences",
    "dqn": "a DQN's step",
}
MOST_PEERS = 5
CUT = 5.0  # multiples of this project's time


def aims(report: dict[str, Any]) -> str:
    """Format the aims in Markdown; a case that was not measured says so."""
    found = {case.name: (case, results) for case, results in measured(report)}
    lines = ["| | aim | measured | this project | compared with | holds |", "|---|---|---|---|---|---|"]
    for aim in AIMS:
        if aim.case not in found:
            continue
        case, results = found[aim.case]
        other = aim.against or best_peer(results)
        if other is None or not all(name in results and results[name].values for name in (OURS, other)):
            lines.append(f"| {case.title} | {aim.factor:g} | not measured | | {other or 'no other'} | |")
            continue
        times = middle(results[other]) / middle(results[OURS])
        against = results[other].note or "the limit" if other == LIMIT else other
        lines.append(
            f"| {case.title} | {aim.factor:g} | {times:.3g} | {shown(case, middle(results[OURS]))} "
            f"| {against}: {shown(case, middle(results[other]))} | {'yes' if times >= aim.factor else 'no'} |"
        )
    return "\n".join([*EXPLANATION, "", *lines])


def bars(results: CaseResults) -> list[str]:
    """Return whose bars a panel has: this project and the fastest peers, the fastest first."""
    names = [name for name, result in results.items() if result.values and name not in (OURS, LIMIT)]
    names = sorted(names, key=lambda name: middle(results[name]))[:MOST_PEERS]
    return sorted([OURS, *names], key=lambda name: middle(results[name]))


def picture(report: dict[str, Any], path: Path) -> None:
    """Draw a panel of bars for each case of `PANELS` in the report, in multiples of this project's cost."""
    found = {case.name: (case, results) for case, results in measured(report) if results.get(OURS, Result()).values}
    names = [name for name in PANELS if name in found]
    columns = min(len(names), 3) or 1
    rows = -(-len(names) // columns) or 1
    size = 3.8 * columns, 2.4 * rows
    figure, panels = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axes, name in zip(panels.flat, names):
        case, results = found[name]
        ours = middle(results[OURS])
        for y, who in enumerate(bars(results)):
            cost = middle(results[who])
            times = cost / ours
            axes.barh(y, min(times, CUT), color="#1b9e77" if who == OURS else "#b5bcc4", height=0.72)
            text = shown(case, cost) + (f"  ({times:,.0f} x)" if times > CUT else "")
            inside = times > CUT / 2
            place = min(times, CUT) - 0.08 if inside else times + 0.08
            axes.text(place, y, text, va="center", ha="right" if inside else "left", fontsize=9)
        if results.get(LIMIT, Result()).values and case.unit == "s":
            axes.axvline(middle(results[LIMIT]) / ours, color="black", linestyle="--", linewidth=1)
        axes.set_yticks(range(len(bars(results))), bars(results), fontsize=9)
        for label in axes.get_yticklabels():
            label.set_fontweight("bold" if label.get_text() == OURS else "normal")
        axes.set_title(PANELS[name], fontsize=11, loc="left", fontweight="bold")
        axes.set(xlim=(0, CUT * 1.02), xticks=range(int(CUT) + 1))
        axes.tick_params(axis="x", labelsize=8)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.spines[["top", "right", "left"]].set_visible(False)
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    figure.supxlabel("time, in multiples of mindspore_replay's: shorter is faster", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)
