"""Every private name of MindSpore in use exists and does its job; no other module uses one."""

import ast
import contextlib
import ctypes
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from forks import run_each
from mindspore import Parameter, Tensor, nn, ops
from places import TESTS

import mindspore_replay
from mindspore_replay import ReplayBuffer, mindspore_api
from mindspore_replay.cli import main, mindspore_report

PACKAGE = Path(mindspore_replay.__file__).resolve().parent
cpu_only = pytest.mark.cpu_only("addresses are those of host memory")


@pytest.fixture(autouse=True)
def _names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindspore_api, "NAMES", dict(mindspore_api.NAMES))


def test_the_first_place_that_exists_counts():
    find = mindspore_api._find
    assert find("x", "mindspore.nowhere:a", "mindspore:nn", without="") is nn
    assert find("x", "mindspore.nn", "mindspore.nowhere", without="") is nn
    assert find("x", "mindspore.nn:Cell()._nowhere", "mindspore.nn:Cell()._params", without="") == "_params"


def test_a_name_that_is_gone_is_named():
    places = "mindspore.graph.api:_pynative_executor._nowhere.sync", "mindspore.nowhere:sync"
    assert mindspore_api._find("x", *places, without="it is slower", instead=lambda: 3) == 3
    said = "mindspore.graph.api._pynative_executor._nowhere.sync or mindspore.nowhere.sync"
    assert mindspore_api.not_found() == [f"mindspore_api.x: there is no {said}: it is slower"]
    mindspore_api.need("'f'", "wait")
    with pytest.raises(RuntimeError) as error:
        mindspore_api.need("'f'", "wait", "x")
    assert str(error.value) == (
        f"'f' needs mindspore.graph.api._pynative_executor._nowhere.sync, which MindSpore {ms.__version__} lacks. The "
        "versions that it was tested with are 2.7, 2.8, 2.9, 2.10."
    )


#: Imports the package with a MindSpore that says another version, and lacks names; prints the warnings.
VERSION = """
import sys, warnings
import mindspore as ms
import without
ms.__version__, names = sys.argv[1], sys.argv[2:]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    without.hide(names)
    import mindspore_replay
    mindspore_replay.ReplayBuffer, mindspore_replay.MixedReplay
for warning in caught:
    print(warning.category.__name__, warning.filename, warning.message)
"""


def test_a_version_that_was_never_seen_warns_once(tmp_path: Path):
    missing = "mindspore_api.share: there is no mindspore._c_expression."
    expected = {
        ("2.10.1",): "",
        ("2.11.0rc1",): "0 were not found.",
        ("3.0.0", "share", "cells_of"): f"2 were not found; {missing}",
        ("2.10.0", "wait"): "1 were not found; mindspore_api.wait: there is no mindspore.graph.api._pynative",
    }
    (tmp_path / "program.py").write_text(VERSION)
    results = run_each(tmp_path / "program.py", [*expected])
    for (version, *_), said, done in zip(expected, expected.values(), results, strict=True):
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == bool(said)
        if said:
            without = TESTS / "support" / "without.py"  # the first file outside of the package
            start = "mindspore_replay was tested with MindSpore 2.7, 2.8, 2.9, 2.10, and this is "
            assert lines[0].startswith(f"RuntimeWarning {without} {start}{version}. Of the private names of MindSpore")
            assert said in lines[0]


# ---- Tensors and memory ----


@cpu_only
def test_address():
    parameter = Parameter(Tensor(np.arange(4, dtype=np.float32)), name="parameter")
    assert mindspore_api.address(parameter) == parameter.asnumpy().ctypes.data


@cpu_only
def test_share():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = mindspore_api.share(array)
    array[1, 2] = 7
    assert type(tensor) is Tensor
    assert tensor.asnumpy().tolist() == [[0, 1, 2], [3, 4, 7]]


@cpu_only
def test_wait():
    """A write in flight is done when it returns."""
    matrix = Tensor(np.eye(500, dtype=np.float32))
    column = Parameter(Tensor(np.zeros(4, np.float32)), name="column")
    memory = (ctypes.c_float * 4).from_address(mindspore_api.address(column))
    product = matrix
    for _ in range(8):
        product = ops.matmul(product, matrix)
    ops.assign(column, ops.ones_like(column) * ops.reduce_max(product))
    assert mindspore_api.wait() is None
    assert list(memory) == [1.0] * 4


def test_no_python_is_around_what_every_call_runs():
    python = {name for name in ("address", "share", "wait") if hasattr(getattr(mindspore_api, name), "__code__")}
    assert python <= ({"address"} if ms.__version__.startswith("2.7") else set())


# ---- The compiler ----


class Known(nn.Cell):
    """Tells if its argument is a constant at compile time."""

    def construct(self, x, known):
        return x + 1 if mindspore_api.isconstant(known) else x


def test_isconstant():
    cell, one = Known(), Tensor(1.0)
    compiled = ms.jit(cell)
    assert float(compiled(one, 3)) == 2
    assert float(compiled(one, one)) == 1


def test_find_parser():
    parser = mindspore_api.find_parser()
    assert callable(getattr(parser, mindspore_api.EXPAND_STATEMENT))
    assert callable(getattr(parser, mindspore_api.PLAIN_TARGET))
    if mindspore_api.adds_in_place():
        assert callable(getattr(parser, mindspore_api.IN_PLACE_TARGET))


def test_adds_in_place(monkeypatch: pytest.MonkeyPatch):
    parser: Any = mindspore_api.find_parser()
    switches = sys.modules[f"{parser.__name__}.compile_config"]
    for value, adds in (("1", True), ("0", False)):
        monkeypatch.setattr(switches, "JIT_ENABLE_AUGASSIGN_INPLACE", value)
        assert mindspore_api.adds_in_place() is adds


# ---- Tracing, of which test_tracing.py has more ----


def test_the_tracer():
    contexts, tracer = mindspore_api.jit_contexts, mindspore_api._module_of("refuse_trace")
    assert contexts._jit_context is None
    assert callable(contexts.jit_context)
    assert callable(contexts.set_jit_context)
    assert hasattr(tracer, "_trace_compile_cache")
    for attribute in ("is_nested", "phase"):
        assert hasattr(tracer._trace_jit_context, attribute)
    assert mindspore_api.refuse_trace() is None


# ---- Seeds ----


@pytest.fixture
def seeds() -> Iterator[None]:
    before = mindspore_api.global_seeds()
    yield
    mindspore_api.set_global_seeds(*before)


@pytest.mark.usefixtures("seeds")
def test_global_seeds():
    state = ms.default_generator.get_state().asnumpy().copy()
    mindspore_api.set_global_seeds(17, {("Dropout", 3): 5})
    assert ms.get_seed() == 17
    assert mindspore_api.global_seeds() == (17, {("Dropout", 3): 5})
    assert np.array_equal(ms.default_generator.get_state().asnumpy(), state)
    ms.set_seed(4)
    assert mindspore_api.global_seeds()[0] == 4


# ---- For mindspore_replay.compat ----


def test_the_cells_of_a_cell():
    cell = nn.SequentialCell(nn.ReLU())
    assert list(mindspore_api.cells_of(cell)) == ["0"]
    mindspore_api.reserve_cell(cell, "more")
    assert mindspore_api.cells_of(cell)["more"] is None
    assert mindspore_api.cells_of(nn.Cell.__new__(nn.Cell)) == {}


def test_settings_of_the_context():
    assert "mode" in mindspore_api.context_setters()
    assert mindspore_api.context_parameter("enable_graph_kernel") is not None


def test_everything_is_found():
    assert mindspore_api.not_found() == []


def test_the_doctor_reports_what_is_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mindspore_report, "_devices", dict)
    monkeypatch.setattr(mindspore_report, "_try", lambda backend: "")
    mindspore_api._find("x", "mindspore.nowhere:x", without="it is slower")
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()) as text:
        assert main(["doctor"]) == 1
    assert errors.getvalue() == "PROBLEM: mindspore_api.x: there is no mindspore.nowhere.x: it is slower\n"
    assert "\n  x: there is no mindspore.nowhere.x: it is slower\n" in text.getvalue()


# ---- Nothing else uses a private name ----

#: Modules of MindSpore with a stable API.
PUBLIC = {"mindspore", "mindspore.nn", "mindspore.ops", "mindspore.dataset", "mindspore.common.initializer"}
#: The target for MindSpore RL's operators; its documentation calls it `mindspore.ops` today.
PUBLIC_TARGETS = {"mindspore.ops.operations", "mindspore.nn.Cell.buffers", "mindspore.ops.logsumexp"}


def private_names() -> set[str]:
    """Return private attributes of the MindSpore objects that the package uses."""
    cell, parameter = nn.Cell(), Parameter(Tensor([1.0]), name="parameter")
    modules = ms, ms.context, mindspore_api.find_parser(), mindspore_api._seeds(), mindspore_api.jit_contexts
    context = mindspore_api._look_up("mindspore.context:_Context")
    dealt_with = *modules, context, cell, parameter, ops.Add(), ms.Generator()
    names = {name for one in dealt_with for name in (*dir(one), *vars(type(one)), *getattr(one, "__dict__", ()))}
    return {name for name in names if re.match(r"_(?!_)\w*[a-zA-Z]\w*", name)}


PRIVATE = private_names()


def uses(source: str) -> list[str]:
    """Return the private names of MindSpore that a module uses, less those that it assigns to objects of its own."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    given = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    given |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    given |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    foreign, found = PRIVATE - given, []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if not public(name.name)]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {name.name for name in node.names if name.name.startswith("_")}
            found += [f"{node.module}.{names or ''}"] * (not public(node.module or "") or bool(names & PRIVATE))
        elif isinstance(node, ast.Attribute) and node.attr in foreign:
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_place = re.fullmatch(r"mindspore(\.\w+)+", node.value) and node.value not in PUBLIC | PUBLIC_TARGETS
            found += [node.value] * (bool(is_place) or node.value in foreign)
    return found


def public(module: str) -> bool:
    """Return True if a module is not MindSpore's, or has a stable API."""
    return module.partition(".")[0] != "mindspore" or module in PUBLIC


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "mindspore_api.py"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_other_module_uses_private_names(path: Path):
    assert uses(path.read_text(encoding="utf-8")) == [], "to be given by mindspore_api.py"


@pytest.mark.parametrize(
    "source",
    [
        "import mindspore._c_expression",
        "from mindspore.common.api import thing",
        "from mindspore.ops.functional import isconstant",
        "from mindspore.context import _Context",
        "cell._params.update()",
        "vars(cell)['_cells']",
        "importlib.import_module('mindspore.graph._parse')",
        "contexts._jit_context is None",
    ],
)
def test_private_names_are_found(source: str):
    assert uses(source)


def test_public_names_and_ones_own_are_not():
    assert (
        uses("import mindspore as ms\nfrom mindspore import Tensor, nn\nfrom ._version import x\nself._own.x()") == []
    )
    assert uses("class A:\n  def __init__(self):\n    self._params = 1\n  def f(self):\n    return self._params") == []


# ---- What has become public ----


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_a_twin_has_the_parameters_of_its_buffer(backend: str):
    buffer = ReplayBuffer(2, 4, [(2,), ()], ["float32", "bool"], backend=backend)
    twin = buffer.with_sample_size(3)
    own, others = (list(one.parameters_and_names()) for one in (buffer, twin))
    assert [name for name, _ in own] == [name for name, _ in others]
    assert all(a is b for (_, a), (_, b) in zip(own, others, strict=True))
