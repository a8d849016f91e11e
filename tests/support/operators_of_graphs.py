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
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
from mindspore import Tensor

import mindspore_replay
from mindspore_replay.columns import TYPES
from mindspore_replay.ops import checks

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "operators.json"
PACKAGE = Path(mindspore_replay.__file__).parent
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


#: Composite buffers: the class, and arguments beside sizes.
COLUMNS: dict[str, Any] = {
    "shapes": [(2,), (), (), ()],
    "types": ["float32", "int32", "float32", "bool"],
    "names": ["observation", "group", "reward", "terminated"],
}
EVERY = [name for name in TYPES if name != "bfloat16"]  # which the composite backend does not store
LIMITS: dict[str, Any] = {"max_use": 3, "max_staleness": 4, "beta_steps": 5, "normalize": "buffer", "capacity": 300}
BUFFERS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("ReplayBuffer", {"shapes": [(2,)] * len(EVERY), "types": EVERY, "replace": False, "ordered": True}),
    "weighted": ("ReplayBuffer", COLUMNS | {"weighted": True, "replace": False}),
    "prioritized": ("PrioritizedReplayBuffer", COLUMNS | LIMITS),
    "largest_held": ("PrioritizedReplayBuffer", COLUMNS | {"default_priority": "largest_held"}),
}


def body_of(kind: str) -> Callable[[], Any]:
    """Return a function that calls the methods of a buffer."""
    name, options = BUFFERS[kind]
    given = {"capacity": 30, "backend": "composite", "seed": 0, **options}
    buffer = getattr(mindspore_replay, name)(2, **given)
    shapes, types = buffer.columns.shapes, buffer.columns.numpy_types
    rows = tuple(Tensor(np.ones((24, *shape), dtype)) for shape, dtype in zip(shapes, types))
    index, beta, steps, priority = Tensor([0, -1]), Tensor(0.5, ms.float32), Tensor(1), Tensor(np.ones(24, np.float32))

    def uniform():
        buffer.insert(rows)
        enough, full = buffer.can_sample(), buffer.full()
        newest, batch, stored = buffer.sample((-10, None)), buffer.sample(), buffer.get_item(index)
        buffer.reset()
        return newest, batch, stored, enough, full, buffer.size()

    def weighted():
        handles = buffer.insert(rows, with_indices=True)
        batch = buffer.sample((-10, None), with_indices=True)
        invalid = buffer.update(batch[0], {"group": batch[2]})
        return handles, batch, invalid, buffer.delete(batch[0]), buffer.can_sample()

    def prioritized():
        buffer.insert(rows, priority=priority)
        batch = buffer.sample(beta=beta)
        invalid = buffer.update_priorities(batch[0], batch[1]), buffer.update(batch[0], {"terminated": batch[5]})
        removed = buffer.delete(batch[0])
        buffer.advance(steps)
        enough, info = buffer.can_sample(), buffer.info(batch[0])
        buffer.reset()
        return batch, invalid, removed, info, enough

    def largest_held():
        buffer.insert(rows)
        return buffer.sample()

    return {body.__name__: body for body in (uniform, weighted, prioritized, largest_held)}[kind]


def compile_all(kinds: list[str]) -> None:
    """Compile the operators as on a device without `ops.Assert`."""
    ms.set_context(mode=ms.GRAPH_MODE)
    with mock.patch.object(checks, "ASSERTING", ()):
        for kind in kinds:
            ms.jit(body_of(kind))()


def collect(*kinds: str) -> Found:
    """Compile kinds of buffers in a process of its own, by default all."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = {"MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_SAVE_GRAPHS_PATH": folder, "MS_DEV_DUMP_IR_PASSES": "validate"}
        command = [sys.executable, __file__, "--compile", *(kinds or BUFFERS)]
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
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            del body[0]
    return tree


if __name__ == "__main__" and "--compile" in sys.argv:
    compile_all(sys.argv[2:])
elif __name__ == "__main__":
    operators = {name: sorted(signatures) for name, signatures in sorted(collect().items())}
    GOLDEN.write_text(json.dumps({"sources": sources(), "operators": operators}, indent=1) + "\n", encoding="utf-8")
