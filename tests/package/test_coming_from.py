"""The pages in docs/coming_from: code for other libraries is Python, and our names in their tables exist."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from pages import tables
from places import ROOT

import mindspore_replay

PAGES = sorted((ROOT / "docs" / "coming_from").glob("*.md"))
LIBRARIES = [path for path in PAGES if path.stem != "index"]
MODULES = [
    mindspore_replay,
    *map(importlib.import_module, ("mindspore_replay.datasets", "mindspore_replay.distributed")),
]
#: Names in our column that belong to Python or MindSpore.
FOREIGN = {"len", "set_device"}


def taken_by(function: Any) -> set[str]:
    """Return the names of a function's arguments."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def our_names() -> set[str]:
    """Return public names, their methods and attributes, and what they take."""
    found = set()
    for module in MODULES:
        for name in module.__all__:
            public = getattr(module, name)
            found |= {name, *taken_by(public)}
            for attribute in dir(public) if inspect.isclass(public) else ():
                if not attribute.startswith("_"):
                    found |= {attribute, *taken_by(getattr(public, attribute))}
    row: Any = {"sample_size": 1, "capacity": 4, "shapes": [()], "types": ["float32"], "names": ["x"]}
    made = mindspore_replay.PrioritizedReplayBuffer(**row, views=[mindspore_replay.FrameStack(1, observation="x")])
    queue = mindspore_replay.ReplayQueue(**row)
    return found | set(vars(made)) | set(made.state.state_parameters()) | {"buffer"} | set(dir(queue.limiter))


def names_of_ours(text: str) -> set[str]:
    """Return the names in the code of the columns ``here``: called, given as arguments, attributes, or alone."""
    found = set()
    for head, _, *rows in tables(text):
        if "here" in head:
            codes = [code for row in rows for code in re.findall(r"`([^`]+)`", row[head.index("here")])]
            found |= {name for code in codes for name in re.findall(r"^[A-Za-z]\w+$|\w+(?=[(=])|(?<=\.)\w+", code)}
    return found


# tests/config/test_di_engine.py reads the tables of DI-engine's page, whose cells name keys of both.
@pytest.mark.parametrize("path", [path for path in LIBRARIES if path.stem != "di_engine"], ids=lambda path: path.stem)
def test_our_names_exist(path: Path):
    named = names_of_ours(path.read_text(encoding="utf-8"))
    assert len(named) > 10
    assert named - our_names() - FOREIGN == set()


@pytest.mark.parametrize("path", LIBRARIES, ids=lambda path: path.stem)
def test_each_page_has_both_programs_and_a_table(path: Path):
    """Code for the other library imports it, and our code does not."""
    text = path.read_text(encoding="utf-8")
    library = {"di_engine": "ding"}.get(path.stem, path.stem)
    theirs, ours = (re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE) for kind in ("py", "python"))
    assert theirs
    for code, imported in [*((code, True) for code in theirs), *((code, False) for code in ours)]:
        modules = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(code))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        }
        assert (library in modules) == imported
        assert ("mindspore_replay" in modules) != imported
    assert any("here" in table[0] for table in tables(text))


def test_the_index_has_each_library():
    index = (PAGES[0].parent / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\w+\.md)\)", index)) == [path.name for path in LIBRARIES]
