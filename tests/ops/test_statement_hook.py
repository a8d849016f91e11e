"""The hook that lets the bare statement `buffer.insert(rows)` compile as written, and the behaviour without it."""

import ast

import pytest

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
    statement_hook.install()
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
    statement_hook.install()
    assert PARSER.expand_expr_statement(statement("a.append(x)")) is answer
    node = statement("a.insert(x)")
    assert PARSER.expand_expr_statement(node) == (True, node.value)
    hooked = PARSER.expand_expr_statement
    statement_hook.install()
    assert PARSER.expand_expr_statement is hooked
