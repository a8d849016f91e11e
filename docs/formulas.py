"""An extension of Griffe, for the pages of the API.

Formulas in docstrings become MathML, which browsers show without a script, and classes whose arguments are the same
links. Private names leave the signatures.
"""

import re
from typing import Any

from griffe import Expr, ExprName, Extension, Function, Object, Parameters
from latex2mathml.converter import convert

#: A formula on lines of its own, up to an empty line; and one within a line.
BLOCK = re.compile(r"^( *)\.\. math:: (.*(?:\n(?! *$).*)*)", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`")
#: The class that has the same arguments, or that describes some of them.
OTHER = re.compile(r"(?<=\bAs for )`(ReplayBuffer)`|`mindspore_replay\.(\w+Buffer|\w+Replay|\w+Queue)`(?= on arrays)")


def with_formulas(text: str) -> str:
    """Return a docstring whose formulas are MathML, and with links to classes that describe its arguments."""
    text = OTHER.sub(lambda match: f"[{match[0]}][mindspore_replay.{match[1] or match[2]}]", text)
    text = BLOCK.sub(lambda match: f"{match[1]}<div class='formula'>{convert(match[2], display='block')}</div>", text)
    return INLINE.sub(lambda match: f"<span>{convert(match[1])}</span>", text)  # Markdown takes <math> for a block


def public(function: Function) -> None:
    """Leave out a function's private parameters, which catch wrong calls, and the ``_`` of private types."""
    function.parameters = Parameters(*(one for one in function.parameters if not one.name.startswith("_")))
    for annotation in (function.returns, *(one.annotation for one in function.parameters)):
        for name in annotation.iterate() if isinstance(annotation, Expr) else ():
            if isinstance(name, ExprName):
                name.name = name.name.removeprefix("_")


class Formulas(Extension):
    """Changes the docstring of each object that is read, and the signature of each function."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Change the signature of a function; Griffe calls this."""
        public(func)

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object; Griffe calls this."""
        if obj.docstring:
            obj.docstring.value = with_formulas(obj.docstring.value)
