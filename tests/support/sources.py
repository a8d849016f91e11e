"""Source lines of functions, looked up once.

MindSpore looks up the source of every function of every graph that it compiles, a sixth of its time.
"""

import inspect
from typing import Any

#: What was looked up, by code object.
found: dict[Any, tuple[list[str], int]] = {}
_find = inspect.getsourcelines


def _source_of(item: Any) -> tuple[list[str], int]:
    """Return what `inspect.getsourcelines` returns."""
    code = getattr(inspect.unwrap(item), "__code__", None)
    if code is None:
        return _find(item)
    if code not in found:
        found[code] = _find(item)
    lines, first = found[code]
    return lines.copy(), first


def remember() -> None:
    """Make `inspect.getsourcelines` remember the sources of functions."""
    inspect.getsourcelines = _source_of
