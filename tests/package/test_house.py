"""The house: the map in CONTRIBUTING.md against the tree, and the bounds of lines in pyproject.toml."""

import re

import pytest
from places import ROOT

PACKAGE = ROOT / "mindspore_replay"
MAP = re.compile(r"^\| `(\S+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def layers(container: str) -> list[set[str]]:
    """Return the layers that the lint contract of a package has, the lowest first."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf'containers = \["{re.escape(container)}"\]\nlayers = \[([^]]+)\]', settings)
    assert found, container
    return [set(names.split(" | ")) for names in reversed(re.findall(r'"(.+?)"', found[1]))]


def rows() -> dict[str, list[str]]:
    """Return the files to begin with, by the folder or file of each line of the map."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {where: re.findall(r"`(\S+)`", begin) for where, _, begin in MAP.findall(text)}


def test_the_map_has_each_folder_in_the_order_of_imports():
    shown = [where.rstrip("/").removesuffix(".py") for where in rows()]
    for layer in (*layers("mindspore_replay.store"), *layers("mindspore_replay")):
        if layer == {"store"} or layer == {"_version"}:  # its rooms are lines of their own; a number
            continue
        here = {shown.pop(0).removeprefix("store/") for _ in layer if shown}
        assert here == layer
    assert shown == []


@pytest.mark.parametrize("where", rows())
def test_the_files_to_begin_with_are_there(where: str):
    folder = PACKAGE / where if where.endswith("/") else PACKAGE
    assert rows()[where]
    for name in rows()[where]:
        assert (folder / name).is_file(), f"{where}{name}"
