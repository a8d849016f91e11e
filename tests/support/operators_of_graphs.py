"""What composite graphs are made of: MindSpore's primitives with the dtypes of their Tensors, and where they come from.

python tests/support/operators_of_graphs.py    # after a change of composite operators: renews golden/operators.json
"""

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
GOLDEN = SUPPORT.parent / "golden" / "operators.json"
PACKAGE = SUPPORT.parents[1] / "mindspore_replay"
#: Nodes of graphs that are no operators.
STRUCTURE = {"Depend", "Load", "MakeTuple", "Partial", "Return", "Switch", "TupleGetItem", "UpdateState"}
SCOPE = re.compile(r"# Fullname with scope: \((?:.*/)?(\w+?)-op\d+\)")

Found = dict[str, set[str]]


def operators_in(dump: str) -> Found:
    """Return the signatures of each primitive in a dumped graph, as ``Float32 Int64 -> Float32``."""
    found: Found = {}
    signature = ""
    for line in map(str.strip, dump.splitlines()):
        if line.startswith(": ("):
            signature = line
        match = SCOPE.search(line)
        if match and match[1] not in STRUCTURE:
            sides = (" ".join(tensors(side)) for side in signature.rsplit(" -> ", 1))
            found.setdefault(match[1], set()).add(" -> ".join(sides))
    return found


def tensors(side: str) -> list[str]:
    """Return the dtypes of the Tensors in one side of a dumped signature; ``*3`` stands for two more of the same."""
    found = re.findall(r"Tensor\[(\w+)\](?:\*(\d+))?", side)
    return [dtype for dtype, times in found for _ in range(int(times or 1))]


def collect(*kinds: str) -> Found:
    """Compile kinds of buffers of `composite_graphs.py` in a process of its own, by default all."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = {"MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_SAVE_GRAPHS_PATH": folder, "MS_DEV_DUMP_IR_PASSES": "validate"}
        command = [sys.executable, str(SUPPORT / "composite_graphs.py"), *kinds]
        subprocess.run(command, check=True, env={**os.environ, **dumps, "GLOG_v": "3"}, cwd=folder)
        found: Found = {}
        for path in Path(folder).glob("*validate*.ir"):
            for name, signatures in operators_in(path.read_text(encoding="utf-8")).items():
                found.setdefault(name, set()).update(signatures)
    return found


def sources() -> str:
    """Return a digest of the code that is compiled: the operators, and the graph bodies of buffers."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((PACKAGE / "ops").glob("*.py"))]
    for path in sorted((PACKAGE / "buffers").glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        trees += [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name.endswith("_graph")]  # type: ignore[misc]
    code = "\n".join(ast.dump(_without_docstrings(tree)) for tree in trees)
    return hashlib.sha256(code.encode()).hexdigest()


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            del body[0]
    return tree


if __name__ == "__main__":
    operators = {name: sorted(signatures) for name, signatures in sorted(collect().items())}
    GOLDEN.write_text(json.dumps({"sources": sources(), "operators": operators}, indent=1) + "\n", encoding="utf-8")
