"""Shows results: a table in Markdown, a figure, and all numbers as JSON."""

import json
import platform
import shutil
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from .cases import CASES, Case
from .environments import LIMIT, OURS
from .rounds import Result

matplotlib.use("Agg")

CaseResults = dict[str, Result]


def machine() -> str:
    """Describe the machine."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = f"{len(names)} cores of {names[0]}" if names else processor
    return f"{processor}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def middle(result: Result) -> float:
    """Return the median of the rounds."""
    return float(np.median(result.values))


def best_peer(results: CaseResults) -> str | None:
    """Return the fastest peer that is neither this project nor the machine's limit."""
    peers = [name for name, result in results.items() if result.values and name not in (OURS, LIMIT)]
    return min(peers, key=lambda name: middle(results[name]), default=None)


def ratio(results: CaseResults, name: str) -> float | None:
    """Return the best peer's cost over that of `name`: above 1, `name` is the better one."""
    best = best_peer(results)
    if best is None or not results[name].values:
        return None
    return middle(results[best]) / middle(results[name])


def shown(case: Case, seconds: float) -> str:
    """Format a figure with its unit."""
    if case.unit == "bytes":
        return f"{seconds:,.0f} bytes"
    if case.unit == "steps/s":
        return f"{1 / seconds:,.0f} steps/s"
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def table(case: Case, results: CaseResults) -> str:
    """Format one case in Markdown, the best first, and the missing peers with the reason."""
    lines = [
        f"### {case.title} (`{case.name}`)",
        "",
        "| | median | quartiles | best peer / this | |",
        "|---|---|---|---|---|",
    ]
    present = [name for name in results if results[name].values]
    for name in sorted(present, key=lambda name: middle(results[name])):
        result, factor = results[name], ratio(results, name)
        low, high = np.percentile(result.values, (25, 75))
        who = f"**{name}**" if name == OURS else f"*{name}*" if name == LIMIT else name
        spread = "" if len(result.values) == 1 else f"{shown(case, low)} to {shown(case, high)}"
        lines.append(
            f"| {who} | {shown(case, middle(result))} | {spread} | "
            f"{'' if factor is None else format(factor, '.2f')} | {result.note} |"
        )
    missing: dict[str, list[str]] = {}
    for name, result in results.items():
        if result.missing:
            missing.setdefault(result.missing, []).append(name)
    if missing:
        lines += ["", "Missing: " + "; ".join(f"{', '.join(names)} ({why})" for why, names in missing.items()) + "."]
    return "\n".join(lines)


def markdown(report: dict[str, Any]) -> str:
    """Format all cases."""
    head = [
        f"Run on {report['date']}: {report['machine']}; {report['rounds']} rounds.",
        "",
        "| | versions |",
        "|---|---|",
        *(
            f"| {name} | {', '.join(f'{k} {v}' for k, v in each.items())} |"
            for name, each in report["versions"].items()
        ),
    ]
    return "\n\n".join(["\n".join(head), *(table(case, results) for case, results in measured(report))]) + "\n"


def measured(report: dict[str, Any]) -> list[tuple[Case, CaseResults]]:
    """Return the cases of a report, in the order of `CASES`."""
    found = report["cases"]
    return [
        (case, {name: Result(**values) for name, values in found[case.name].items()})
        for case in CASES
        if case.name in found
    ]


def picture(report: dict[str, Any], path: Path) -> None:
    """Draw the ratio of each peer's time to that of this project, a row for each case."""
    rows = [(case, results) for case, results in measured(report) if results.get(OURS, Result()).values][::-1]
    names = [name for name in report["versions"] if name != OURS]
    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.32 * len(rows)), layout="constrained")
    for i, name in enumerate(names):
        points = [
            (middle(results[name]) / middle(results[OURS]), y)
            for y, (_, results) in enumerate(rows)
            if name in results and results[name].values
        ]
        if points:
            style = {"marker": "|", "color": "black", "s": 120} if name == LIMIT else {"color": f"C{i % 10}", "s": 28}
            axes.scatter(*zip(*points), label=name, marker=style.pop("marker", "os^Dv<>ph*"[i % 10]), **style)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [case.title for case, _ in rows], fontsize=8)
    axes.set_xlabel("time or bytes, as a multiple of this project's")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.3, 1.0 + 1.6 / (1.5 + 0.32 * len(rows))), ncols=4)
    figure.savefig(path, dpi=110)
    plt.close(figure)


#: Marks the place of the results in a page.
MARK = "<!-- last run -->"


class Report:
    """Collects results and writes them after each case, so an interrupted run keeps its measurements.

    Args:
        folder (Path): Folder of ``comparison.json``, ``comparison.md`` and ``comparison.png``.
        rounds (int): Rounds of a case.
        versions (dict): Versions of every peer.
    """

    def __init__(self, folder: Path, rounds: int, versions: dict[str, dict[str, str]]) -> None:
        self._folder = folder
        self.data: dict[str, Any] = {
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "machine": machine(),
            "rounds": rounds,
            "versions": versions,
            "cases": {},
        }

    def add(self, case: Case, results: CaseResults) -> None:
        """Add the results of a case, and write the files anew."""
        self.data["cases"][case.name] = {name: asdict(result) for name, result in results.items()}
        (self._folder / "comparison.json").write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        (self._folder / "comparison.md").write_text(markdown(self.data), encoding="utf-8")
        picture(self.data, self._folder / "comparison.png")

    def put_into(self, page: Path) -> None:
        """Replace the text after the mark in a page by these results, and the figure beside it.

        Raises:
            ValueError: If the page has no mark.
        """
        text = page.read_text(encoding="utf-8")
        if MARK not in text:
            raise ValueError(f"{page} must have the line {MARK} where results begin, but got none.")
        head = text[: text.index(MARK) + len(MARK)]
        page.write_text(f"{head}\n\n{markdown(self.data)}", encoding="utf-8")
        (page.parent / "images").mkdir(exist_ok=True)
        shutil.copyfile(self._folder / "comparison.png", page.parent / "images" / "comparison.png")
