"""Every message on docs/troubleshooting.md is in the source or is raised here.

And every error that depends on a state, and on no argument, is on the page.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import pytest
from bodies import make_buffer
from mindspore import Tensor, nn
from places import ROOT

import mindspore_replay

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PACKAGE = Path(mindspore_replay.__file__).parent
ANY = "\N{HORIZONTAL ELLIPSIS}"
#: Errors in arguments say what is wrong by themselves.
SELF_EXPLANATORY = ("TypeError", "ValueError", "AttributeError", "NotWrittenError", "KernelError")
#: A message with no more than these could be any.
FEW_LETTERS = 8


def template(node: ast.AST) -> str:
    """Return a string of the source with an ellipsis for each value, without the beginning that names a class."""
    text = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in node.values)
    return re.sub(rf"^For '({ANY}|\w+)', ", "", text)


@functools.cache
def strings() -> list[str]:
    """Return the templates of all strings of the package."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    return [text for tree in trees for node in ast.walk(tree) if (text := template(node))]


def errors_of_states() -> set[str]:
    """Return the templates of messages of warnings, and of errors that are about no argument."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = ast.unparse(node.func)
                if name.endswith(("Error", "warn", "warn_caller")) and not name.endswith(SELF_EXPLANATORY):
                    found.add(template(node.args[0]))
    return {text for text in found if letters(text) > FEW_LETTERS}


def letters(message: str) -> int:
    """Return how many letters of a message are always the same."""
    return len(re.sub(r"\W", "", message))


def quoted(section: str) -> list[str]:
    """Return the messages in the first column of a section's table."""
    rows = re.findall(r"^\| (`.*?) \| ", section, re.MULTILINE)
    return [re.sub(r"^For '\w+', ", "", message) for row in rows for message in re.findall(r"`([^`]+)`(?:, |$)", row)]


def says(message: str, text: str) -> bool:
    """Return True if a template begins as a message, whose ellipses stand for anything."""
    return _pattern(message).match(text) is not None


@functools.cache
def _pattern(message: str) -> re.Pattern[str]:
    return re.compile("(.|\n)*?".join(map(re.escape, message.split(ANY))))


SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
WITHOUT_MESSAGES = "Symptoms without a message", "What MindSpore logs"  # the latter depends on the machine
OF_MINDSPORE = quoted(SECTIONS["Messages of MindSpore"])
OURS = [
    message
    for name, section in SECTIONS.items()
    if name not in (*WITHOUT_MESSAGES, "Messages of MindSpore")
    for message in quoted(section)
]


def test_every_message_is_in_the_source():
    assert len(OURS) > 70
    assert min(map(letters, OURS)) > FEW_LETTERS
    known = strings()
    assert [message for message in OURS if not any(says(message, text) for text in known)] == []


def test_every_error_that_depends_on_a_state_is_on_the_page():
    needed = errors_of_states()
    assert len(needed) > 60
    assert sorted(text for text in needed if not any(says(message, text) for message in OURS)) == []


# Messages of MindSpore, raised.


class Kept(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = make_buffer("native")
        self.memories = nn.CellList([make_buffer("native")])


class Chained(Kept):
    def construct(self, x):
        self.buffer.reset().insert([x])
        return x


class ChangesAList(Kept):
    def construct(self, x, y):
        rows = [y]
        rows.insert(0, x)
        self.buffer.insert(rows)
        return self.buffer.size()


class ByTensor(Kept):
    def construct(self, x):
        return self.memories[x].sample()


def name_a_cell_buffers() -> None:
    Kept().buffers = make_buffer("native")


def compile_what_is_in_no_file() -> None:
    code = "import mindspore as ms\n@ms.jit\ndef f(x):\n    return x\nf(ms.Tensor(1))\n"
    result = subprocess.run([sys.executable], input=code, capture_output=True, text=True, timeout=300)
    raise OSError(result.stderr)


RAISING: dict[str, Callable[[], object]] = {
    "Mindspore can not compile temporary source code in terminal.": compile_what_is_in_no_file,
    "'Tuple' object has no attribute 'insert'": lambda: ms.jit(Chained().construct)(Tensor(1, ms.int32)),
    "The prim is not a PrimitivePy.": lambda: ms.jit(ChangesAList().construct)(
        Tensor([1, 2], ms.float32), Tensor(1, ms.int32)
    ),
    "'Function' object has no attribute 'sample'": lambda: ms.jit(ByTensor().construct)(Tensor(0, ms.int32)),
    "the buffers child cell already exists": name_a_cell_buffers,
}


@pytest.mark.parametrize("message", OF_MINDSPORE)
def test_mindspore_says_so(message: str):
    with pytest.raises(Exception, match=re.escape(message)):
        RAISING[message]()
