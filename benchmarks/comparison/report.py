"""Writes results: tables in Markdown, the summary's figure, and all numbers as JSON."""

import json
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from .cases import Case
from .environments import LIMIT, OURS
from .figures import CaseResults, measured, middle, ratio, shown
from .rounds import Figures
from .summary import picture, summary


def machine() -> str:
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = f"{len(names)} cores of {names[0]}" if names else processor
    return f"{processor}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def facts(rounds: int, versions: dict[str, dict[str, str]]) -> dict[str, Any]:
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return {"date": date, "machine": machine(), "rounds": rounds, "versions": versions}


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


def head(data: dict[str, Any]) -> str:
    """Say when, where and with which versions results were measured."""
    lines = [
        f"Run on {data['date']}: {data['machine']}; {data['rounds']} rounds.",
        "",
        "| | versions |",
        "|---|---|",
        *(f"| {name} | {', '.join(f'{k} {v}' for k, v in each.items())} |" for name, each in data["versions"].items()),
    ]
    return "\n".join(lines)


def markdown(report: dict[str, Any]) -> str:
    return "\n\n".join([head(report), *(table(case, results) for case, results in measured(report))]) + "\n"


#: The summary of a page stands between these, at its head, and all cases after the third, at its end.
SUMMARY, SUMMARY_END, MARK = "<!-- summary -->", "<!-- end of the summary -->", "<!-- last run -->"


FIGURE = """\
![A panel of bars for each of six tasks: this project and the five fastest other libraries](images/comparison.png)

A bar is the time of one operation, in multiples of this project's, the green bar. Shorter is faster. A bar that is cut
off says how long it would be. The dashed line is a plain copy of the same bytes. The tasks are `insert_1`, `sample_64`,
`prioritized_update`, `atari_256`, `sequences` and `dqn` of [all cases](#all-cases)."""


def put_between(page: Path, texts: Mapping[tuple[str, str], str]) -> None:
    """Replace what stands in a page between each two marks; an empty second mark is the end of the page."""
    text = page.read_text(encoding="utf-8")
    for (begin, end), new in texts.items():
        missing = [mark for mark in (begin, end) if mark not in text]
        if missing:
            raise ValueError(f"{page} must have a line {missing[0]}, but got none.")
        before, rest = text.split(begin, 1)
        after = f"\n{end}{rest.split(end, 1)[1]}" if end else ""
        text = f"{before}{begin}\n\n{new.rstrip()}\n{after}"
    page.write_text(text, encoding="utf-8")


def number(value: float) -> str:
    """Format a figure to three digits, or whole thousands."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def tabulated(title: str, found: Figures) -> str:
    """Format a table of figures: the median of each, and the missing peers with the reason."""
    heads = list(dict.fromkeys(key for columns in found.values.values() for key in columns))
    lines = [
        f"**{title[0].upper()}{title[1:]}**",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---" * (1 + len(heads)) + "|",
    ]
    for name, columns in found.values.items():
        cells = [number(float(np.median(columns[key]))) if key in columns else "" for key in heads]
        if columns:
            lines.append(f"| {'**' + name + '**' if name == OURS else name} | {' | '.join(cells)} |")
    if found.missing:
        lines += ["", "Missing: " + "; ".join(f"{name} ({why})" for name, why in found.missing.items()) + "."]
    return "\n".join(lines)


class Tables:
    """Collects tables of figures, prints them and writes them after each."""

    def __init__(self, folder: Path, rounds: int, versions: dict[str, dict[str, str]], name: str) -> None:
        self._path, self._name = folder / name, name
        self._data = facts(rounds, versions)
        self._tables: dict[str, Figures] = {}

    def add(self, title: str, found: Figures) -> None:
        self._tables[title] = found
        print(tabulated(title, found), end="\n\n", flush=True)
        data = {**self._data, "tables": {title: asdict(each) for title, each in self._tables.items()}}
        self._path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        self._path.with_suffix(".md").write_text(self._text(), encoding="utf-8")

    def _text(self) -> str:
        return "\n\n".join([head(self._data), *(tabulated(title, each) for title, each in self._tables.items())]) + "\n"

    def put_into(self, page: Path) -> None:
        """Replace the tables of a page."""
        put_between(page, {(f"<!-- {self._name} -->", f"<!-- end of {self._name} -->"): self._text()})


class Report:
    """Collects results and writes them after each case, so an interrupted run keeps its measurements."""

    def __init__(self, folder: Path, rounds: int, versions: dict[str, dict[str, str]]) -> None:
        self._folder = folder
        self.data: dict[str, Any] = {**facts(rounds, versions), "cases": {}}

    def add(self, case: Case, results: CaseResults) -> None:
        self.data["cases"][case.name] = {name: asdict(result) for name, result in results.items()}
        (self._folder / "comparison.json").write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        (self._folder / "comparison.md").write_text(markdown(self.data), encoding="utf-8")
        picture(self.data, self._folder / "comparison.png")

    def put_into(self, page: Path) -> None:
        """Replace a page's summary and the cases at its end by these results, and the figure beside it."""
        new = f"{summary(self.data)}\n\n{FIGURE}"
        put_between(page, {(SUMMARY, SUMMARY_END): new, (MARK, ""): markdown(self.data)})
        (page.parent / "images").mkdir(exist_ok=True)
        shutil.copyfile(self._folder / "comparison.png", page.parent / "images" / "comparison.png")
