"""Change one thing in a file of the library, and see whether tests notice: mutants that they kill, and those that live.

python tests/support/mutants.py mindspore_replay/columns.py --tests tests/store/test_columns.py --save before.json
python tests/support/mutants.py --again before.json --tests tests/store/test_misuse.py    # the same, other tests

Mutants are of lines that the tests run. A comparison, an operator, a condition, a number, or a statement changes.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OTHER: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    """A change of a line, found again by its text where lines before it come or go."""

    path: str
    line: str  # as it stands
    occurrence: int  # among the equal lines of the file
    column: int
    old: str
    new: str

    def apply(self, source: str) -> str:
        """Return the source with the change. Raise a LookupError if the line is gone."""
        lines = source.split("\n")
        found = [i for i, line in enumerate(lines) if line == self.line]
        if self.occurrence >= len(found):
            raise LookupError(f"{self.path}: the line is gone: {self.line.strip()}")
        before = "\n".join(lines[: found[self.occurrence]] + [self.line[: self.column]])
        assert source.startswith(self.old, len(before)), f"{self.path}: {self.line.strip()} goes on in another way"
        return before + self.new + source[len(before) + len(self.old) :]


def changed(node: ast.AST) -> ast.AST | str | None:
    """Return what stands in place of a node: a node, or the text of a statement."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.Compare(node.left, [OTHER[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(OTHER[type(node.op)](), node.values)
    if isinstance(node, ast.BinOp) and type(node.op) in OTHER:
        return ast.BinOp(node.left, OTHER[type(node.op)](), node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.IfExp):
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, (ast.Raise, ast.AugAssign)):
        return "pass"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "pass"
    if isinstance(node, ast.Return) and node.value is not None:
        return "return None"
    return None


def annotations(tree: ast.AST) -> set[ast.AST]:
    """Return all nodes of types, which no test can notice."""
    roots = [
        part
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(part, ast.AST)
    ]
    return {node for root in roots for node in ast.walk(root)}


def mutants_of(path: str, covered: set[int]) -> list[Mutant]:
    """Return all mutants of the covered lines of a file."""
    source = (ROOT / path).read_text(encoding="utf-8")
    assert source.isascii(), path  # so that columns are characters
    tree, lines, found = ast.parse(source), source.split("\n"), []
    no_value = annotations(tree)
    for node in ast.walk(tree):
        number = getattr(node, "lineno", 0)
        if number not in covered or node in no_value or (new := changed(node)) is None:
            continue
        line = lines[number - 1]
        text = new if isinstance(new, str) else f"({ast.unparse(new)})"
        old = ast.get_source_segment(source, node) or ""
        found.append(Mutant(path, line, lines[: number - 1].count(line), node.col_offset, old, text))  # type: ignore[attr-defined]
    return found


def pytest_sessionstart() -> None:
    """As a plugin of pytest: note which lines of the package run."""
    files: dict[str, set[int]] = {}

    def trace(frame: Any, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if "mindspore_replay/" not in name:
            return None
        files.setdefault(name, set()).add(frame.f_lineno)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    globals()["traced"] = files


def pytest_sessionfinish() -> None:
    """Write the lines that ran."""
    sys.settrace(None)
    lines = {name[name.rindex("mindspore_replay/") :]: sorted(found) for name, found in globals()["traced"].items()}
    Path(os.environ["MUTANTS_LINES"]).write_text(json.dumps(lines), encoding="utf-8")


@contextlib.contextmanager
def package() -> Iterator[Path]:
    """Copy the package, with its kernels, into a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(
            ROOT / "mindspore_replay", f"{folder}/mindspore_replay", ignore=shutil.ignore_patterns("__pycache__")
        )
        yield Path(folder)


def run(folder: Path, tests: list[str], timeout: float, *options: str, **variables: str) -> int:
    """Run tests of the package in a folder, and return pytest's exit code, 1 if they did not end."""
    path = f"{folder}{os.pathsep}{ROOT / 'tests' / 'support'}"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *options]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), *(str(ROOT / test) for test in tests)]
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    try:
        return subprocess.run(command, cwd=folder, env=variables, timeout=timeout, capture_output=True).returncode
    except subprocess.TimeoutExpired:
        return 1


def chosen(paths: list[str], tests: list[str], count: int, seed: int) -> list[Mutant]:
    """Return some mutants of each file, of lines that the tests run."""
    with package() as folder, tempfile.NamedTemporaryFile() as lines:
        code = run(folder, tests, 3600, "-p", "mutants", MUTANTS_LINES=lines.name)
        if code:
            raise SystemExit(f"the tests fail on the library as it is: exit code {code}")
        covered = json.loads(Path(lines.name).read_text(encoding="utf-8"))
    found = []
    for path in paths:
        possible = mutants_of(path, set(covered.get(path, ())))
        found += random.Random(seed).sample(possible, min(count, len(possible)))
    return found


def is_killed(mutant: Mutant, tests: list[str], timeout: float) -> bool:
    """Return True if the tests fail on the library with this change."""
    with package() as folder:
        file = folder / mutant.path
        file.write_text(mutant.apply(file.read_text(encoding="utf-8")), encoding="utf-8")
        return run(folder, tests, timeout) != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="files of the library, from the root of the checkout")
    parser.add_argument("--tests", nargs="+", required=True, help="files of tests")
    parser.add_argument("--count", type=int, default=20, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="write the mutants, and which were killed, into this file")
    parser.add_argument("--again", type=Path, help="take the mutants that were killed from this file")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.again:
        mutants = [Mutant(*one) for one in json.loads(options.again.read_text(encoding="utf-8"))["killed"]]
    else:
        mutants = chosen(options.paths, options.tests, options.count, options.seed)
    start = time.monotonic()
    with package() as folder:
        if run(folder, options.tests, 3600):
            raise SystemExit("the tests fail on the library as it is")
    timeout = 60 + 5 * (time.monotonic() - start)
    with ThreadPoolExecutor(options.processes) as pool:
        results = list(pool.map(lambda one: is_killed(one, options.tests, timeout), mutants))
    for mutant, killed in zip(mutants, results, strict=True):
        print(f"{'killed' if killed else 'LIVES '}  {mutant.path}: {mutant.line.strip()}  ->  {mutant.new}")
    print(f"{sum(results)} of {len(mutants)} killed")
    if options.save:
        split: dict[str, list[Mutant]] = {"killed": [], "live": []}
        for mutant, killed in zip(mutants, results, strict=True):
            split["killed" if killed else "live"].append(mutant)
        options.save.write_text(json.dumps(split, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
