"""Parses the table of operators in the kernel library. Csrc/signatures.h describes it."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

#: Dtypes as the table and the kernels spell them.
DTYPES = {
    "f32": "float32",
    "f64": "float64",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "bool": "bool",
    "any": "any",
}

STATE, INPUT, OUTPUT = "state", "input", "output"
#: Items that stand for several arguments.
COLUMNS, ROWS, OUTPUTS = "columns", "rows", "outputs"

_ITEM = re.compile(r"(?:(\w+)\?)?(\w+)(?:=(\w+))?(?::(\w+))?\[([^\]]*)\]")


class Item(NamedTuple):
    """An argument of an operator. One item represents all columns.

    Args:
        name (str): Its name.
        role (str): ``"state"``, ``"input"`` or ``"output"``.
        dtype (str): Its dtype, as the kernels spell it, empty for columns, rows and outputs.
        extents (tuple[str, ...]): Its number of elements, or the sizes of its two axes, as in the table.
        group (str): The group of the state that it belongs to, or needs, empty for none.
        may_be (str): The array of the state that it may alias, empty for none.
    """

    name: str
    role: str
    dtype: str
    extents: tuple[str, ...]
    group: str
    may_be: str

    @property
    def is_one(self) -> bool:
        """True for a single array."""
        return self.name not in (COLUMNS, ROWS, OUTPUTS)

    @property
    def lead(self) -> int:
        """Number of leading axes of rows, before those of a single row."""
        return len(self.extents)


class Signature(NamedTuple):
    """Arguments and results of an operator.

    Args:
        name (str): Name of the operator.
        items (tuple[Item, ...]): Its arguments in order.
        optional (frozenset[str]): Groups of the state that it accepts only if the buffer has them.
    """

    name: str
    items: tuple[Item, ...]
    optional: frozenset[str]

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return f"replay_{self.name}"

    def present(self, groups: Iterable[str]) -> tuple[Item, ...]:
        """Return the items that exist in a buffer with these optional groups of state."""
        missing = self.optional - set(groups)
        return tuple(item for item in self.items if item.group not in missing)


def _item(word: str, role: str, group: str = "") -> Item:
    if word == COLUMNS:
        return Item(word, STATE, "", (), "", "")
    found = _ITEM.fullmatch(word)
    if found is None:
        raise ValueError(f"a signature holds {word!r}")
    needs, name, may_be, dtype, extents = found.groups()
    return Item(name, role, DTYPES[dtype] if dtype else "", tuple(extents.split(",")), needs or group, may_be or "")


def _signature(line: str, groups: Mapping[str, str]) -> Signature:
    name, text = line.split(": ", 1)
    items: list[Item] = []
    optional = set()
    role = INPUT
    for word in text.split():
        group, _, listed = word.removeprefix("?").rstrip(")").partition("(")
        if word == "->":
            role = OUTPUT
        elif group in groups:
            members = (_item(member, STATE, group) for member in groups[group].split())
            names = {item.name for item in items}
            items += (m for m in members if m.name not in names and (not listed or m.name in listed.split(",")))
            optional |= {group} if word.startswith("?") else set()
        else:
            items.append(_item(word, role))
    return Signature(name, tuple(items), frozenset(optional))


def parse(lines: Iterable[str]) -> tuple[dict[str, tuple[Item, ...]], dict[str, Signature]]:
    """Parse the groups of a buffer's state, and the signatures, by operator."""
    lines = list(lines)
    groups = dict(line.split(" = ") for line in lines if " = " in line)
    signatures = (_signature(line, groups) for line in lines if " = " not in line)
    arrays = {name: tuple(_item(word, STATE, name) for word in text.split()) for name, text in groups.items()}
    return arrays, {signature.name: signature for signature in signatures}
