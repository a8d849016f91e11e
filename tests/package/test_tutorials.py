"""The notebooks in docs/tutorials run, and give the outputs that are stored in them.

To store new ones: ``pip install nbclient ipykernel``, then ``jupyter execute --inplace docs/tutorials/*.ipynb``.
"""

import contextlib
import io
import json
import linecache
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mindspore as ms
import pytest
from pages import FENCED
from places import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
#: What must be true of the variables at the end, so that the text of a notebook is true on another processor too.
LEARNED = {
    "first_agent": lambda end: end["evaluation"].mean() > 100,
    "offline": lambda end: min(values.mean() for values in end["results"].values()) > 300,
    "prioritized": lambda end: (
        min(end["curves"]["uniform"][i][-1] for i in range(3))
        > max(end["curves"]["prioritized"][i][-1] for i in range(3))
    ),
}


def cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def stored(cell: dict[str, Any]) -> tuple[str, int]:
    """Return the text that a cell printed, and the number of its pictures."""
    texts, pictures = [], 0
    for output in cell["outputs"]:
        assert output["output_type"] != "error"
        pictures += "image/png" in output.get("data", {})
        texts.append("".join(output.get("text", [])))
    return "".join(texts), pictures


def run(cell: dict[str, Any], name: str, namespace: dict[str, Any]) -> tuple[str, int]:
    """Run a cell as Jupyter does, with its source where Python and MindSpore look for it."""
    import matplotlib.pyplot as plt

    source, printed = "".join(cell["source"]), io.StringIO()
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    with contextlib.redirect_stdout(printed):
        exec(compile(source, name, "exec"), namespace)
    pictures = len(plt.get_fignums())
    plt.close("all")
    return printed.getvalue(), pictures


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_is_stored(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    plt.close("all")  # of programs that ran before in this process
    monkeypatch.chdir(tmp_path)
    mode = ms.get_context("mode")
    module = ModuleType(f"notebook_{path.stem}")  # MindSpore looks names up in the module that a class names
    monkeypatch.setitem(sys.modules, module.__name__, module)
    namespace = vars(module)
    try:
        for i, cell in enumerate(cells(path)):
            text, pictures = run(cell, f"{path.stem}_{i}.py", namespace)
            wanted, wanted_pictures = stored(cell)
            if "learned" in cell["metadata"].get("tags", []):  # the last bits of a float differ between processors
                text, wanted = (re.sub(r"[\d.]+|\s+", "", one) for one in (text, wanted))
            assert (text, pictures) == (wanted, wanted_pictures), i
    finally:
        ms.set_context(mode=mode)
    assert LEARNED[path.stem](namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_becomes_a_page(path: Path):
    page, pictures = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["converted"](path)
    assert page.startswith("# ")
    assert page.count("```python\n") == len(cells(path))
    assert len(pictures) == sum(stored(cell)[1] for cell in cells(path)) > 0
    assert all(f"]({name})" in page and content.startswith(b"\x89PNG") for name, content in pictures.items())
    assert all(text.strip() in page for cell in cells(path) if (text := stored(cell)[0]))
    links = re.findall(r"\]\(([^)#]+)\)", FENCED.sub("", page))
    assert [link for link in links if link not in pictures and not (path.parent / link).exists()] == [
        link for link in links if (path.parent / link).with_suffix(".ipynb") in NOTEBOOKS and link.endswith(".md")
    ]
