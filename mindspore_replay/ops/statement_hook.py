"""Keeps the compiler from mistaking ``buffer.insert(rows)`` for a list's ``insert``.

MindSpore's parser rewrites a bare statement ``a.insert(...)`` to ``a = a.insert(...)``, since lists are values in a
graph. With a buffer, later reads would then lose their order. A list's ``insert`` takes two arguments and a buffer's
takes one positional argument, so the hook reports the latter as an ordinary call and leaves all others to MindSpore.
Where the parser cannot be hooked, graphs refuse these methods.
"""

import ast
from collections.abc import Callable
from typing import Any

from ..mindspore_api import EXPAND_STATEMENT, find_parser

#: Methods of buffers and mixtures that are named like a method of lists or dicts, with the numbers of positional
#: arguments that they take. The methods of lists and dicts take other numbers.
_ARGUMENTS = {"insert": (1,), "update": (2, 3)}


def is_buffer_statement(node: ast.AST) -> bool:
    """Return True for a call of a buffer's `insert` or `update`, by the number of positional arguments."""
    call = getattr(node, "value", None)
    return (
        isinstance(node, ast.Expr)
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and len(call.args) in _ARGUMENTS.get(call.func.attr, ())
        and not any(isinstance(argument, ast.Starred) for argument in call.args)
    )


def _hooked(original: Callable[[ast.AST], Any]) -> Callable[[ast.AST], Any]:
    def expand_expr_statement(node: ast.AST) -> object:
        if is_buffer_statement(node):
            return True, node.value  # type: ignore[attr-defined]
        return original(node)

    expand_expr_statement.mindspore_replay = True  # type: ignore[attr-defined]
    return expand_expr_statement


def installed() -> bool:
    """Return True if bare statements ``buffer.insert(rows)`` compile as written."""
    return hasattr(getattr(find_parser(), EXPAND_STATEMENT, None), "mindspore_replay")


def install() -> None:
    """Install the hook once, if the parser of this MindSpore is known."""
    parser = find_parser()
    if parser is not None and not installed():
        setattr(parser, EXPAND_STATEMENT, _hooked(getattr(parser, EXPAND_STATEMENT)))


def _refused(self, *_arguments, **_keywords):
    """Take the place of a graph body."""
    raise RuntimeError(
        "In a graph, 'insert' and 'update' of a buffer need a hook in MindSpore's parser, which was not found in this "
        "version: write buffer.add(rows), and call 'update' from Python."
    )


def statement_body(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return the graph body of a method that is named like one of lists or dicts: without the hook, one that raises."""
    return body if installed() else _refused
