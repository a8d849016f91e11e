"""What a prompt and a notebook show of a buffer."""

import html
import inspect
from typing import Protocol

from ..spec.spec import BufferSpec

#: Most lines of columns, and most characters of the options.
_MOST_LINES, _MOST_CHARACTERS = 8, 100
#: Arguments that are shown in the first line, or follow from the columns.
_APART = {"shapes", "types", "names", "columns"}


class Described(Protocol):
    """A buffer."""

    spec: BufferSpec

    def size(self) -> object:
        """Return the number of rows stored. Raise a RuntimeError if the buffer is closed."""


def text(buffer: Described) -> str:
    """Return a buffer's class, rows, options that are not the default, and columns, in at most ten lines."""
    columns = _columns(buffer.spec)
    shown = columns if len(columns) <= _MOST_LINES else columns[: _MOST_LINES - 1]
    width = max(len(name) for name, _, _ in shown)
    options = _options(buffer.spec)
    if len(options) > _MOST_CHARACTERS:
        options = f"{options[: _MOST_CHARACTERS - 3]}..."
    lines = [title(buffer), options, *(f"{name:<{width}} {shape} {dtype}" for name, shape, dtype in shown)]
    if len(shown) < len(columns):
        lines.append(f"... and {len(columns) - len(shown)} more columns")
    return "\n  ".join(lines)


def table(buffer: Described) -> str:
    """Return the same as HTML, with all columns."""
    cells = [("column", "shape", "dtype"), *_columns(buffer.spec)]
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    return f"<p><b>{html.escape(title(buffer))}</b><br>{html.escape(_options(buffer.spec))}</p><table>{body}</table>"


def title(buffer: Described) -> str:
    """Return the class, the folder, the rows and a slow backend of a buffer."""
    name, spec, folder = type(buffer).__name__, buffer.spec, getattr(buffer, "folder", None)
    try:
        rows = f"{buffer.size()} of {spec.capacity} rows"
    except RuntimeError:
        rows = "closed"
    of_class = "" if name == spec.cls_name else f" of {spec.cls_name}"
    place = "" if folder is None else f" in {folder}"
    backend = ", composite backend" if getattr(buffer, "backend", None) == "composite" else ""
    return f"{name}{of_class}{place}: {rows}{backend}"


def _columns(spec: BufferSpec) -> list[tuple[str, str, str]]:
    """Return name, shape and dtype of each column, with what makes it special."""
    columns = spec.columns
    return [
        (name, str(list(shape)), dtype + ", late" * (i in columns.late) + ", compressed" * (i in columns.compressed))
        for i, (name, shape, dtype) in enumerate(zip(columns.names, columns.shapes, columns.dtypes))
    ]


def _options(spec: BufferSpec) -> str:
    """Return the arguments of the constructor that are not the default."""
    arguments = spec.arguments()
    parameters = {} if spec.constructor is None else inspect.signature(spec.constructor.__init__).parameters
    return ", ".join(
        f"{name}={value!r}"
        for name, value in arguments.items()
        if name not in _APART and value != parameters[name].default and (value or parameters[name].default)
    )
