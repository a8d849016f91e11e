"""The numbers that C++ reads as structs have the same names, in the same order, in Python."""

import re

import pytest
from places import ROOT

from mindspore_replay.store.base import structs
from mindspore_replay.store.spec.episodes import WindowRule
from mindspore_replay.store.spec.epochs import EpochRule

SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "mindspore_replay" / "csrc").rglob("*.h")]
#: Structs with what their arrays have in Python.
STRUCTS = {
    "Plan": structs.PLAN,
    "RowRule": structs.ROW_RULE,
    "WindowRule": WindowRule._fields,
    "EpochRule": EpochRule._fields,
    "Epoch": structs.EPOCH,
    "Clock": structs.CLOCK,
    "Counts": structs.COUNTS,
    "Journal": structs.JOURNAL,
    "Limits": structs.LIMITS,
}
#: A struct within another one.
CHAIN = {"steps": "chain", "needs_next": "needs_next"}


def members(name: str) -> list[tuple[str, str]]:
    """Return the types and names of the numbers of 8 bytes at the beginning of a struct."""
    (body,) = (
        match for source in SOURCES for match in re.findall(rf"^struct {name} {{\n(.*?)^}};", source, re.M | re.S)
    )
    found: list[tuple[str, str]] = []
    for kind, names in re.findall(r"^  (int64_t|double|ChainRule) ([\w, \[\]]+);", body, re.MULTILINE):
        for member, number in re.findall(r"(\w+)(?:\[(\d+)\])?", names):
            inner = [(of, CHAIN[one]) for of, one in members(kind)] if kind == "ChainRule" else [(kind, member)]
            found += inner * int(number or 1)
    return found


@pytest.mark.parametrize("name", STRUCTS)
def test_names_are_those_of_the_struct(name: str):
    assert tuple(member for _, member in members(name)) == STRUCTS[name]


def test_floats_are_those_of_the_plan():
    assert tuple(member for kind, member in members("Plan") if kind == "double") == structs.FLOATS
