"""An extension of Griffe: formulas in docstrings become MathML, which browsers show without a script."""

import re
from typing import Any

from griffe import Extension, Object
from latex2mathml.converter import convert

#: A formula on lines of its own, up to an empty line; and one within a line.
BLOCK = re.compile(r"^( *)\.\. math:: (.*(?:\n(?! *$).*)*)", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`")


def with_formulas(text: str) -> str:
    """Return a docstring whose formulas are MathML."""
    text = BLOCK.sub(lambda match: f"{match[1]}{convert(match[2], display='block')}", text)
    return INLINE.sub(lambda match: f"<span>{convert(match[1])}</span>", text)  # Markdown takes <math> for a block


class Formulas(Extension):
    """Changes the docstring of each object that is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object; Griffe calls this."""
        if obj.docstring:
            obj.docstring.value = with_formulas(obj.docstring.value)
