"""The head of a page of results: how many times faster or slower this project is, and bars of a few cases."""

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from .environments import LIMIT, OURS
from .figures import CaseResults, best_peer, measured, middle, shown
from .rounds import Result

matplotlib.use("Agg")


#: Cases at the head of the page, and with whom this project is compared there; ``None`` for the fastest peer.
COMPARED: dict[str, tuple[str | None, ...]] = {
    "insert_1": (None, "numpy ring"),
    **dict.fromkeys(("insert_64", "insert_million", "sample_64", "sample_64_arrays"), (None,)),
    **dict.fromkeys(("prioritized_update", "prioritized_update_compiled"), (None,)),
    "atari_256": (None, LIMIT),
    **dict.fromkeys(("sequences", "hindsight"), (None,)),
    "n_step": ("numpy ring",),
    **dict.fromkeys(("files_insert", "files_sample", "frames_bytes"), (None,)),
    **dict.fromkeys(("save", "load"), (None, LIMIT)),
    "dqn": ("stable-baselines3", None),
    "dqn_bursts": (None,),
}

EXPLANATION = (
    "Cases in which the other is faster come first. Where the table names no library, the comparison is with the same",
    "bytes copied, written or read.",
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


def verdict(times: float, unit: str) -> str:
    """Say how many times faster this project is than another, or slower; of bytes, smaller or larger."""
    better, worse = ("smaller", "larger") if unit == "bytes" else ("faster", "slower")
    if abs(times - 1) < 0.01:
        return "the same"
    return f"{times:.2f} times {better}" if times > 1 else f"{1 / times:.2f} times {worse}"


def summary(report: dict[str, Any]) -> str:
    found = {case.name: (case, results) for case, results in measured(report)}
    rows: list[tuple[float, str]] = []
    for name, against in [(name, one) for name, others in COMPARED.items() for one in others]:
        if name not in found:
            continue
        case, results = found[name]
        other = against or best_peer(results)
        if other is None or not all(name in results and results[name].values for name in (OURS, other)):
            rows.append((float("inf"), f"| {case.title} | not measured | | {other or 'no other'} |"))
            continue
        times = middle(results[other]) / middle(results[OURS])
        words = results[other].note or "the limit" if other == LIMIT else other
        ours, theirs = (shown(case, middle(results[name])) for name in (OURS, other))
        rows.append((times, f"| {case.title} | {verdict(times, case.unit)} | {ours} | {words}: {theirs} |"))
    lines = ["| | this project is | cost here | compared with |", "|---|---|---|---|"]
    return "\n".join([*EXPLANATION, "", *lines, *(row for _, row in sorted(rows))])


#: Text and axes in a grey that stands on white and on dark pages: pictures are transparent.
GREY = "#7d8590"
STYLE = {
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), GREY),
    "savefig.transparent": True,
}


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
    plt.rcParams.update(STYLE)
    figure, panels = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axes, name in zip(panels.flat, names):
        case, results = found[name]
        ours = middle(results[OURS])
        for y, who in enumerate(bars(results)):
            cost = middle(results[who])
            times = cost / ours
            axes.barh(y, min(times, CUT), color="#1b9e77" if who == OURS else f"{GREY}38", height=0.72)
            text = shown(case, cost) + (f"  ({times:,.0f} x)" if times > CUT else "")
            inside = times > CUT / 2
            place = min(times, CUT) - 0.08 if inside else times + 0.08
            axes.text(place, y, text, va="center", ha="right" if inside else "left", fontsize=9)
        if results.get(LIMIT, Result()).values and case.unit == "s":
            axes.axvline(middle(results[LIMIT]) / ours, color=GREY, linestyle="--", linewidth=1)
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
