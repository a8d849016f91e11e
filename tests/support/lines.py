"""Compare the lines of the library's folders, its C++, the tests and the benchmarks with the bounds in pyproject.toml.

python tests/support/lines.py             # fails where a folder has more lines, or a bound is more than 50 too high
python tests/support/lines.py --update    # after a change that shrinks: lowers the bounds to what stands
"""

import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "pyproject.toml"
CODE = (".py", ".pyi", ".h", ".cc", ".cu", ".cuh")
#: A bound may be this much above what stands.
SLACK = 50


def bounds(settings: str) -> dict[str, int]:
    """Return the lines that each folder may have, from the text of pyproject.toml."""
    table = re.search(r"^\[tool\.lines\]\n((?:.+\n)+)", settings, re.MULTILINE)
    assert table, "pyproject.toml has no table [tool.lines]"
    return {folder: int(bound) for folder, bound in re.findall(r'^"(.+)" = (\d+)$', table[1], re.MULTILINE)}


def count(folders: Collection[str], root: Path = ROOT) -> Counter[str]:
    """Return the lines of code in each folder, without those of folders in it that are counted by themselves."""
    found: Counter[str] = Counter(dict.fromkeys(folders, 0))
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        owners = [folder for folder in folders if name.startswith(f"{folder}/")]
        if owners and path.suffix in CODE:
            found[max(owners, key=len)] += path.read_bytes().count(b"\n")
    return found


def faults(table: Mapping[str, int], found: Mapping[str, int]) -> dict[str, str]:
    """Return the folders that have more lines than their bound, or so few that it is to be lowered."""
    return {
        folder: "more than the bound" if found[folder] > bound else "lower the bound, with --update"
        for folder, bound in table.items()
        if not bound - SLACK <= found[folder] <= bound
    }


def lowered(settings: str, found: Mapping[str, int]) -> str:
    """Return the text of pyproject.toml with each bound that is above what stands lowered to it."""
    for folder, bound in bounds(settings).items():
        settings = settings.replace(f'"{folder}" = {bound}\n', f'"{folder}" = {min(bound, found[folder])}\n')
    return settings


def main() -> None:
    settings = SETTINGS.read_text(encoding="utf-8")
    found = count(bounds(settings))
    if "--update" in sys.argv:
        settings = lowered(settings, found)
        SETTINGS.write_text(settings, encoding="utf-8")
    table = bounds(settings)
    wrong = faults(table, found)
    print(f"{'lines in':<36}{'bound':>8}{'now':>8}")
    for folder, bound in table.items():
        print(f"{folder:<36}{bound:>8}{found[folder]:>8}  {wrong.get(folder, '')}".rstrip())
    for what, part in {
        "the library's Python": lambda name: name.startswith("mindspore_replay") and "csrc" not in name,
        "its C++": lambda name: "mindspore_replay/csrc" in name,
        "tests": lambda name: name.startswith("tests"),
        "benchmarks": lambda name: name.startswith("benchmarks"),
    }.items():
        chosen = [name for name in table if part(name)]
        print(f"{what:<36}{sum(table[n] for n in chosen):>8}{sum(found[n] for n in chosen):>8}")
    sys.exit(f"faults: {len(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
