"""What MindSpore says about composite operators on Ascend: those of compiled graphs, held to the package's own pages.

The pages of MindSpore's operators are made from docstrings, which the installed package has. Few name dtypes. The
package also registers kernels of Ascend's AI CPU, with dtypes. Run as a program, this file compiles the graphs.
"""

import functools
import inspect
import re
from pathlib import Path
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, ops
from places import ROOT

import mindspore_replay
from mindspore_replay.columns import TYPES
from mindspore_replay.ops import checks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ms.__version__.startswith("2.10"), reason="the page is that of MindSpore 2.10"),
]

PAGE = (ROOT / "docs" / "appendix" / "ascend.md").read_text(encoding="utf-8")

#: Primitives without a page, which MindSpore's compiler puts in the place of others.
REWRITTEN = {"LessScalar": "less", "Muls": "mul", "TensorMove": "assign"}

REFERS = re.compile(r"Refer to :func:`mindspore\.ops\.(\w+)`")

#: What the pages say of dtypes, and how a signature may look for it.
STATED = {
    "Gather": ("gather", "The data type of input_params cannot be `mindspore.bool`", r"(?!Bool )\w+ Int(32|64) -> \w+"),
    "ScatterUpdate": (
        "ScatterUpdate",
        "**indices** (Tensor) - The index of input tensor. With int32 data type.",
        r"(\w+) Int32 \1 -> \1",
    ),
    "ScatterAdd": (
        "ScatterAdd",
        "whose data type must be mindspore.int32 or mindspore.int64",
        r"(\w+) Int(32|64) \1 -> \1",
    ),
    "Sort": (
        "Sort",
        "the data types of float16, uint8, int8, int16, int32, int64 are well supported",
        r"(Float16|UInt8|Int(8|16|32|64)) -> \1 Int32",
    ),
    "ReduceMax": ("ReduceMax", "**x** (Tensor[Number])", r"(?!Bool)(\w+) -> \1"),
    "ReduceMin": ("ReduceMin", "**x** (Tensor[Number])", r"(?!Bool)(\w+) -> \1"),
    "ReduceSum": ("ReduceSum", "**x** (Tensor[Number])", r"(?!Bool)(\w+) -> \1"),
    "LogicalAnd": ("LogicalAnd", "can be implicitly converted to bool", "Bool Bool -> Bool"),
    "LogicalNot": ("LogicalNot", "the dtype is bool", "Bool -> Bool"),
}


# The graphs.

COLUMNS: dict[str, Any] = {
    "shapes": [(2,), (), (), ()],
    "types": ["float32", "int32", "float32", "bool"],
    "names": ["observation", "group", "reward", "terminated"],
}
EVERY = [name for name in TYPES if name != "bfloat16"]  # which the composite backend does not store


def make(cls: str, capacity: int, **options: Any) -> tuple[Any, tuple[Tensor, ...]]:
    """Return a composite buffer and rows for it."""
    buffer = getattr(mindspore_replay, cls)(2, capacity, backend="composite", seed=0, **options)
    shapes, types = buffer.columns.shapes, buffer.columns.numpy_types
    return buffer, tuple(Tensor(np.ones((24, *shape), dtype)) for shape, dtype in zip(shapes, types))


def compile_all() -> None:
    """Compile the operators of all buffers."""
    plain, rows = make("ReplayBuffer", 30, shapes=[(2,)] * len(EVERY), types=EVERY, replace=False, ordered=True)
    weighted, few = make("ReplayBuffer", 30, **COLUMNS, weighted=True, replace=False)
    limits = {"max_use": 3, "max_staleness": 4, "beta_steps": 5, "normalize": "buffer"}
    prioritized, _ = make("PrioritizedReplayBuffer", 300, **COLUMNS, **limits)
    held, _ = make("PrioritizedReplayBuffer", 30, **COLUMNS, default_priority="largest_held")
    index, beta, steps, priority = Tensor([0, -1]), Tensor(0.5, ms.float32), Tensor(1), Tensor(np.ones(24, np.float32))

    def of_plain():
        plain.insert(rows)
        enough, full = plain.can_sample(), plain.full()
        newest, batch, stored = plain.sample((-10, None)), plain.sample(), plain.get_item(index)
        plain.reset()
        return newest, batch, stored, enough, full, plain.size()

    def of_weighted():
        handles = weighted.insert(few, with_indices=True)
        batch = weighted.sample((-10, None), with_indices=True)
        invalid = weighted.update(batch[0], {"group": batch[2]})
        return handles, batch, invalid, weighted.delete(batch[0]), weighted.can_sample()

    def of_prioritized():
        prioritized.insert(few, priority=priority)
        batch = prioritized.sample(beta=beta)
        invalid = prioritized.update_priorities(batch[0], batch[1])
        other = prioritized.update(batch[0], {"terminated": batch[5]})
        removed = prioritized.delete(batch[0])
        prioritized.advance(steps)
        enough, info = prioritized.can_sample(), prioritized.info(batch[0])
        prioritized.reset()
        return batch, invalid, other, removed, info, enough

    def of_held():
        held.insert(few)
        return held.size()

    ms.set_context(mode=ms.GRAPH_MODE)
    for body in (of_plain, of_weighted, of_prioritized, of_held):
        ms.jit(body)()


#: Nodes of graphs that are no operators.
STRUCTURE = {"Depend", "Load", "MakeTuple", "Partial", "Return", "Switch", "TupleGetItem", "UpdateState"}
SCOPE = re.compile(r"# Fullname with scope: \((?:.*/)?(\w+?)-op\d+\)")


def tensors(side: str) -> list[str]:
    """Return the dtypes of the Tensors in one side of a dumped signature; ``*3`` stands for two more of the same."""
    found = re.findall(r"Tensor\[(\w+)\](?:\*(\d+))?", side)
    return [dtype for dtype, times in found for _ in range(int(times or 1))]


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the signatures of each primitive in the compiled graphs, as ``Float32 Int64 -> Float32``."""
    from programs import run_program  # which this file as a program does not find

    folder = tmp_path_factory.mktemp("graphs")
    dumps = {"MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_SAVE_GRAPHS_PATH": str(folder), "MS_DEV_DUMP_IR_PASSES": "validate"}
    with mock.patch.dict("os.environ", dumps):
        done = run_program(Path(__file__), cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, set[str]] = {}
    for line in (line for path in folder.glob("*validate*.ir") for line in path.read_text("utf-8").splitlines()):
        if line.strip().startswith(": ("):
            signature = " -> ".join(" ".join(tensors(side)) for side in line.rsplit(" -> ", 1))
        elif (operator := SCOPE.search(line)) and operator[1] not in STRUCTURE:
            found.setdefault(operator[1], set()).add(signature)
    return found


# What is known of them.


def words(text: str) -> str:
    return " ".join(text.split())


def page(name: str) -> str:
    """Return the text of a page of `mindspore.ops`, made from the docstring."""
    found = getattr(ops, name)
    return words(inspect.getdoc(found) or inspect.getdoc(type(found)) or "")


def on_ascend(name: str) -> bool:
    """Return True if a page names Ascend, or the page to which it refers."""
    platforms = re.search(r"Supported Platforms: ((?:``\w+`` ?)+)", page(name))
    return "``Ascend``" in platforms[1] if platforms else on_ascend(REFERS.search(page(name))[1])


@functools.cache
def registered() -> dict[str, set[str]]:
    """Return the dtypes of each kernel of Ascend's AI CPU that MindSpore's package registers."""
    found: dict[str, set[str]] = {}
    for path in (Path(ms.__file__).parent / "ops" / "_op_impl" / "aicpu").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'AiCPURegOp\("(\w+)"\)', text):
            found[name] = set(re.findall(r"DataType\.([A-Z]+\d*)_", text))
    return found


def short(dtype: str) -> str:
    """Return the name of a dtype in a registration: ``F32`` for ``Float32``."""
    return re.sub(r"^(F|I|U)[A-Za-z]+(\d+)$", r"\1\2", dtype).replace("Bool", "BOOL")


def test_each_operator_is_documented_for_ascend_or_listed(operators: dict[str, set[str]]):
    for name in operators:
        if name in REWRITTEN:
            assert not hasattr(ops, name)
            assert f"`{name}`" in PAGE
        assert on_ascend(REWRITTEN.get(name, name))
    assert not on_ascend("Assert")
    assert "Assert" not in operators


@pytest.mark.parametrize("name", STATED)
def test_dtypes_are_those_of_the_page(name: str, operators: dict[str, set[str]]):
    page_name, wording, signature = STATED[name]
    assert wording in page(page_name)
    assert [found for found in operators[name] if not re.fullmatch(signature, found)] == []


def test_dtypes_that_nothing_states_are_listed(operators: dict[str, set[str]]):
    """The page lists them with the operators, in one line of its table each."""
    lines = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE)
    listed = {name: set(re.findall(r"\w+", dtypes)) for name, dtypes in lines}
    used = {
        name: {dtype for one in found for dtype in one.split() if dtype != "->"} for name, found in operators.items()
    }
    silent = {
        name: {dtype.lower() for dtype in used[name] if short(dtype) not in registered().get(name, ())}
        for name in used.keys() - STATED.keys() - REWRITTEN.keys()
    }
    assert listed == {name: dtypes for name, dtypes in silent.items() if dtypes}


if __name__ == "__main__":
    with mock.patch.object(checks, "ASSERTING", ()):  # as on a device without `ops.Assert`
        compile_all()
