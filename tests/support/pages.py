"""Parts of a page in Markdown."""

import re
from typing import NamedTuple

#: A block in any language, which is its group.
FENCED = re.compile(r"^```(.*)\n(?:.*\n)*?```$", re.MULTILINE)


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a page as rows of cells, their heads included."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in row[1:-1].split("|")] for row in table.splitlines()] for table in found]


class Block(NamedTuple):
    """A block of Python, and its output: the block of text that follows at once."""

    name: str
    code: str
    output: str


def blocks_of(name: str, text: str) -> list[Block]:
    """Return the blocks of Python on a page, named by their lines."""
    found = re.finditer(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.DOTALL | re.MULTILINE)
    return [
        Block(f"{name}_line_{text.count(chr(10), 0, match.start()) + 1}.py", match[1], match[2] or "")
        for match in found
    ]
