"""The hook that lets the bare statement `buffer.insert(rows)` compile as written, and the behaviour without it."""

import ast
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from places import TESTS

from mindspore_replay import kernel_status
from mindspore_replay.mindspore_api import find_parser
from mindspore_replay.ops import statement_hook

PARSER = find_parser()


def statement(source: str) -> ast.stmt:
    return ast.parse(source).body[0]


def test_importing_the_package_installs_the_hook():
    assert PARSER is not None
    assert statement_hook.installed()
    assert kernel_status().insert_statement is True
    assert "buffer.insert(rows): compiles as written" in str(kernel_status())


def test_installing_twice_leaves_one_wrapper():
    before = PARSER.expand_expr_statement
    assert statement_hook.install() is True
    assert PARSER.expand_expr_statement is before


@pytest.mark.parametrize(
    "source",
    [
        "a.insert(x)",
        "self.buffer.insert([x, y])",
        "a.b.c.insert({'x': x})",
        "f().insert(x)",
        "a.insert(x, end=True)",
        "a.update(i, x)",
        "a.update(s, i, x)",
    ],
)
def test_statements_that_are_a_buffers(source: str):
    node = statement(source)
    assert statement_hook.is_buffer_statement(node)
    assert PARSER.expand_expr_statement(node) == (True, node.value)


@pytest.mark.parametrize(
    "source",
    [
        "a.insert(0, x)",
        "a.insert(*x)",
        "a.insert()",
        "a.insert(exp=x)",
        "a.append(x)",
        "a.update(x)",
        "a.update(*x, y)",
        "insert(x)",
        "b = a.insert(x)",
        "a.insert",
        "a.insert(x).size()",
        "pass",
    ],
)
def test_all_other_statements_are_left_to_mindspore(source: str):
    node = statement(source)
    assert not statement_hook.is_buffer_statement(node)


def test_other_statements_get_the_answer_of_mindspore(monkeypatch: pytest.MonkeyPatch):
    answer = (False, "list")
    monkeypatch.setattr(PARSER, "expand_expr_statement", lambda node: answer)
    assert not statement_hook.installed()
    assert statement_hook.install() is True
    assert PARSER.expand_expr_statement(statement("a.append(x)")) is answer
    node = statement("a.insert(x)")
    assert PARSER.expand_expr_statement(node) == (True, node.value)
    hooked = PARSER.expand_expr_statement
    assert statement_hook.install() is True
    assert PARSER.expand_expr_statement is hooked


#: First a fork without the parser's function, then this process without the parser's modules: their names resolve to
#: nothing, as on a MindSpore that has moved them.
WITHOUT_HOOK = """
import importlib, os, sys, warnings
import mindspore as ms
from mindspore import Tensor
names = ("mindspore.graph._parse", "mindspore._extends.parse")
find = importlib.import_module

def import_module(name, *args):
    if name in names:
        raise ImportError(name)
    return find(name, *args)

fork = os.fork()
if fork:
    os.wait()
    importlib.import_module = import_module
else:
    for name in names:
        try:
            vars(find(name)).pop("expand_expr_statement", None)
        except ImportError:
            pass
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import mindspore_replay
    mindspore_replay.ReplayBuffer
(warning,) = [w for w in caught if issubclass(w.category, RuntimeWarning)]
print(warning.message)
status = mindspore_replay.kernel_status()
print(status.insert_statement, "write buffer.add(rows)" in str(status), flush=True)
if not fork:
    sys.exit()
"""

USE = """
from program import Memory
memory = Memory()
print([int(size) for size in memory.step(Tensor([1.0, 2.0]))], [int(size) for size in memory.step(Tensor([3.0, 4.0]))])
print(memory.buffer.buffer[0].asnumpy()[:4].tolist(), memory.buffer.size(), memory.buffer.add([1.0]).size())
"""

PROGRAM = """
import mindspore as ms
from mindspore_replay import ReplayBuffer

class Memory:
    def __init__(self):
        self.buffer = ReplayBuffer(1, 6, [()], [ms.float32])

    @ms.jit
    def step(self, x):
        before = self.buffer.size()
        self.buffer.add([x])
        return before, self.buffer.size()
"""


WARNING = (
    "mindspore_replay does not know the parser of this MindSpore: in compiled code the statement 'buffer.insert(rows)' "
    "would be taken for a list's method. Write 'buffer.add(rows)' there."
)


def test_without_the_parsers_modules_or_its_function_a_warning_names_add(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    script = tmp_path / "main.py"
    script.write_text(WITHOUT_HOOK + USE, encoding="utf-8")
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.strip().splitlines()
    assert lines == [*[WARNING, "False True"] * 2, "[0, 2] [2, 4]", "[1.0, 2.0, 3.0, 4.0] 4 5"]


def test_with_the_hook_there_is_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert statement_hook.install() is True


def test_a_core_of_the_suite_passes_without_the_hook(tmp_path: Path):
    """All of it: `PYTHONPATH=tests/support pytest -p no_hook`, with `test_replay.py` and `test_state.py` of buffers."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no_hook", "-p", "no:cacheprovider"]
    command += ["-c", str(TESTS.parent / "pyproject.toml")]
    chosen = "graph-native and (compiled and (picture or reset or copies or crosses) or load_from_state_dict)"
    command += [str(TESTS / "buffers" / "test_replay.py"), str(TESTS / "buffers" / "test_state.py"), "-k", chosen]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS / "support"), *sys.path])}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-3000:]
    assert int(re.findall(r"(\d+) passed", result.stdout)[0]) >= 5
