"""Parts of a page in Markdown."""

import re

#: A block in any language, which is its group.
FENCED = re.compile(r"^```(.*)\n(?:.*\n)*?```$", re.MULTILINE)


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a page as rows of cells, their heads included."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in row[1:-1].split("|")] for row in table.splitlines()] for table in found]
