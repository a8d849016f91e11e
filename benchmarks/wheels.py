"""Measures two builds of this package in turns.

    python benchmarks/wheels.py OLD.whl NEW.whl [--rounds 5] [--only REGEX] [--inner 31]

Each wheel is installed into a folder of its own; all else comes from the surrounding environment, so both run on the
same MindSpore. In each round `operators.py` and `windows.py` of this checkout run once under each wheel, one after the
other, the new one first in every second round. The figure of a run is the median of its own rounds, `--inner` many; the
table shows the median of the runs. Make a wheel with `pip wheel --no-deps --no-build-isolation -w FOLDER .`
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
SCRIPTS = ("operators.py", "windows.py")
SIDES = ("old", "new")

#: The figures of one wheel, one value per run.
Figures = dict[str, list[float]]


def python(folder: Path, *arguments: str) -> str:
    """Run this Python with the package of a folder in front of any other; return its output."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {ended.returncode}:\n{ended.stderr[-4000:]}")
    return ended.stdout


def unpacked(wheel: Path, folder: Path) -> Path:
    """Install the wheel into the folder and return the folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*pip, str(wheel)], check=True)
    origin = "import importlib.util as u; print(u.find_spec('mindspore_replay').origin)"
    found = Path(python(folder, "-c", origin).strip())
    if folder.resolve() not in found.resolve().parents:
        raise RuntimeError(f"{wheel} is shadowed by {found}")
    return folder


def medians(folder: Path, script: str, only: str, inner: int) -> dict[str, float]:
    """Return the figures of one run of a script."""
    with tempfile.TemporaryDirectory() as results:
        path = Path(results, "figures.json")
        python(folder, str(HERE / script), "--rounds", str(inner), "--only", only, "--json", str(path))
        return {name: median(values) for name, values in json.loads(path.read_text(encoding="utf-8")).items()}


def measured(folders: dict[str, Path], rounds: int, only: str, inner: int) -> dict[str, Figures]:
    """Return the figures of both wheels, which take turns."""
    figures: dict[str, Figures] = {side: {} for side in folders}
    for i in range(rounds):
        for script in SCRIPTS:
            for side in reversed(SIDES) if i % 2 else SIDES:
                for name, value in medians(folders[side], script, only, inner).items():
                    figures[side].setdefault(name, []).append(value)
    return figures


def table(old: Figures, new: Figures) -> str:
    """Return a line per figure: the medians of both, and the ratio of the new to the old one."""
    lines = [f"{'microseconds, or a ratio':52s} {'old':>12s} {'new':>12s} {'new / old':>10s}"]
    for name in old:
        before, after = median(old[name]), median(new[name])
        lines.append(f"{name:52s} {before:12.2f} {after:12.2f} {after / before if before else float('nan'):10.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="wheel to compare with")
    parser.add_argument("new", type=Path, help="wheel that is compared")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each script under each wheel (default: 5)")
    parser.add_argument("--inner", type=int, default=31, help="timed rounds of each run (default: 31)")
    parser.add_argument("--only", default="", metavar="REGEX", help="only figures whose name matches (default: all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folders = {side: unpacked(getattr(options, side), Path(folder, side)) for side in SIDES}
        figures = measured(folders, options.rounds, options.only, options.inner)
    print(table(figures["old"], figures["new"]))


if __name__ == "__main__":
    main()
