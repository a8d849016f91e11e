"""What MindSpore says about composite operators on Ascend: `golden/operators.json`, held to the package's own pages.

The pages of MindSpore's operators are made from docstrings, which the installed package has. Few name dtypes. The
package also registers kernels of Ascend's AI CPU, with dtypes.
"""

import functools
import inspect
import json
import re
from pathlib import Path

import mindspore
import operators_of_graphs
import pytest
from mindspore import ops
from places import ROOT

pytestmark = pytest.mark.skipif(
    not mindspore.__version__.startswith("2.10"), reason="the table is that of MindSpore 2.10"
)

GOLDEN = json.loads(operators_of_graphs.GOLDEN.read_text(encoding="utf-8"))
OPERATORS: dict[str, list[str]] = GOLDEN["operators"]
PAGE = (ROOT / "docs" / "appendix" / "ascend.md").read_text(encoding="utf-8")

#: For each primitive the page in `mindspore.ops` that is its own or that of the function that makes it.
PAGES = {
    "Add": "add", "Assign": "assign", "BitwiseAnd": "bitwise_and",
    "BitwiseXor": "bitwise_xor", "BroadcastTo": "broadcast_to", "Cast": "cast",
    "Concat": "cat", "CumSum": "cumsum", "Div": "div",
    "Equal": "equal", "ExpandDims": "expand_dims", "FloorDiv": "floor_divide",
    "FloorMod": "floor_mod", "Gather": "gather", "GatherD": "gather_elements", "Greater": "greater",
    "GreaterEqual": "greater_equal", "IsFinite": "isfinite", "Less": "less", "LessEqual": "less_equal",
    "LogicalAnd": "logical_and", "LogicalNot": "logical_not",
    "MaskedFill": "masked_fill", "Maximum": "maximum", "Minimum": "minimum", "Mul": "mul", "Neg": "neg",
    "Pow": "pow", "ReduceAll": "all", "ReduceMax": "ReduceMax",
    "ReduceMin": "ReduceMin", "ReduceSum": "ReduceSum", "Reshape": "reshape", "RightShift": "bitwise_right_shift",
    "ScatterAdd": "ScatterAdd", "ScatterUpdate": "ScatterUpdate", "SearchSorted": "searchsorted", "Select": "select",
    "Sort": "sort", "Stack": "stack", "StridedSlice": "strided_slice", "Sub": "sub",
}  # fmt: skip
#: Primitives without a page, which MindSpore's compiler puts in the place of others.
REWRITTEN = {"LessScalar": "less", "Muls": "mul", "TensorMove": "assign"}

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


def words(text: str) -> str:
    return " ".join(text.split())


def page(name: str) -> str:
    """Return the text of a page of `mindspore.ops`, made from the docstring."""
    found = getattr(ops, name)
    return words(inspect.getdoc(found) or inspect.getdoc(type(found)) or "")


def on_ascend(name: str) -> bool:
    platforms = re.search(r"Supported Platforms: ((?:``\w+`` ?)+)", page(name))
    assert platforms, f"the page of ops.{name} names no platforms"
    return "``Ascend``" in platforms[1]


@functools.cache
def registered() -> dict[str, set[str]]:
    """Return the dtypes of each kernel of Ascend's AI CPU that MindSpore's package registers."""
    found: dict[str, set[str]] = {}
    for path in (Path(mindspore.__file__).parent / "ops" / "_op_impl" / "aicpu").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'AiCPURegOp\("(\w+)"\)', text):
            found[name] = set(re.findall(r"DataType\.([A-Z]+\d*)_", text))
    return found


def short(dtype: str) -> str:
    """Return the name of a dtype in a registration: ``F32`` for ``Float32``."""
    return re.sub(r"^(F|I|U)[A-Za-z]+(\d+)$", r"\1\2", dtype).replace("Bool", "BOOL")


def dtypes_of(name: str) -> set[str]:
    return {dtype for signature in OPERATORS[name] for dtype in signature.replace("->", "").split()}


def test_the_table_is_of_these_operators():
    assert GOLDEN["sources"] == operators_of_graphs.sources(), (
        "composite operators have changed: python tests/support/operators_of_graphs.py"
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_is_documented_for_ascend_or_listed(name: str):
    if name in REWRITTEN:
        assert not hasattr(ops, name)
        assert f"`{name}`" in PAGE
    assert on_ascend(REWRITTEN.get(name) or PAGES[name])


def test_assert_is_not_documented_for_ascend_and_not_used():
    assert not on_ascend("Assert")
    assert "Assert" not in OPERATORS


@pytest.mark.parametrize("name", STATED)
def test_dtypes_are_those_of_the_page(name: str):
    page_name, wording, signature = STATED[name]
    assert wording in page(page_name)
    assert [found for found in OPERATORS[name] if not re.fullmatch(signature, found)] == []


def test_dtypes_that_nothing_states_are_listed():
    """The page lists them with the operators, in one line of its table each."""
    lines = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE)
    listed = {name: set(re.findall(r"\w+", dtypes)) for name, dtypes in lines}
    silent = {
        name: {dtype.lower() for dtype in dtypes_of(name) if short(dtype) not in registered().get(name, ())}
        for name in OPERATORS
        if name not in STATED and name not in REWRITTEN
    }
    assert listed == {name: dtypes for name, dtypes in silent.items() if dtypes}
