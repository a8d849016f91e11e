"""The site's pages from outside of docs/, and their links."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import griffe
import pytest
from places import ROOT

hooks = runpy.run_path(str(ROOT / "docs" / "hooks.py"))


def test_a_page_with_a_twin_has_both_languages_in_the_header():
    both = hooks["languages"]("English | [简体中文](cn/devices.md)", "devices.md")
    assert [each["link"] for each in both] == ["devices/", "cn/devices/"]
    back = hooks["languages"]("# 安装\n\n[English](../index.md#install) | 简体中文\n", "cn/install.md")
    assert [tuple(each.values()) for each in back] == [("English", "en", "."), ("简体中文", "zh", "cn/install/")]
    assert hooks["languages"]("English | Chinese", "devices.md") == []


@pytest.mark.parametrize(
    "page",
    [
        '.html <link rel="stylesheet" href="https://fonts.googleapis.com/css">',
        ".html <script src=//cdn.jsdelivr.net/x.js></script>",
        ".css @font-face { src: url(https://fonts.gstatic.com/x.woff2) }",
        '.css @import "https://fonts.googleapis.com/css";',
        '.js load("https://cdn.jsdelivr.net/npm/mermaid")',
    ],
)
def test_a_site_that_loads_from_elsewhere_is_refused(page: str, tmp_path: Path):
    path = tmp_path / f"page{page.split()[0]}"
    path.write_text("nothing")
    hooks["on_post_build"]({"site_dir": str(tmp_path)})
    path.write_text(page)
    with pytest.raises(ValueError, match="must load nothing from elsewhere"):
        hooks["on_post_build"]({"site_dir": str(tmp_path)})


def test_the_theme_s_scripts_load_nothing(tmp_path: Path):
    script = tmp_path / "bundle.js"
    script.write_text('load("https://unpkg.com/mermaid@11/dist/mermaid.min.js")')
    hooks["on_post_build"]({"site_dir": str(tmp_path)})
    assert script.read_text() == 'load("")'


def test_pages_in_chinese_say_so_and_have_the_theme_s_words():
    shown = '<html lang="en"><input placeholder="Search"> <a aria-label="Next: 安装">Next</a> Next to it'
    of = {name: SimpleNamespace(file=SimpleNamespace(src_uri=name)) for name in ("devices.md", "cn/devices.md")}
    assert hooks["on_post_page"](shown, of["devices.md"]) == shown
    assert hooks["on_post_page"](shown, of["cn/devices.md"]) == (
        '<html lang="zh"><input placeholder="搜索"> <a aria-label="下一页: 安装">下一页</a> Next to it'
    )


def test_each_class_of_the_api_has_a_page_a_line_and_a_place_in_the_menu():
    of_classes = runpy.run_path(str(ROOT / "docs" / "classes.py"))
    pages, names = of_classes["read"](), of_classes["names"]()
    line = {name: re.search(rf"\n- \[`{name}`\]\S+: \S.*\.\n", page) for page, of in pages.values() for name in of}
    assert all(line.values()), line
    assert "\n      heading_level: 1\n      inherited_members: true\n" in pages["buffers"][1]["ReplayBuffer"]
    assert "\n::: mindspore_replay.load_config\n" in pages["configuration"][0]  # a function
    having = {(stem, name) for stem, of in pages.items() for name, text in of[1].items() if "Buffer.insert]" in text}
    others = {"Buffer", "MixedReplay", "Column", "Priorities", "RateLimiter"}
    assert having == {(stem, name) for stem in ("host", "buffers") for name in names[stem] if name not in others}
    linked = of_classes["linked"]("| [A](views.md) | `NStep`, `f` |", names)
    assert linked == "| [A](views.md) | [`NStep`](views/NStep.md), `f` |"
    menu = of_classes["in_menu"]([{"API": ["api/index.md", {"A": "api/a.md"}]}], {"a": ["B", "C"]})
    assert menu == [{"API": ["api/index.md", {"A": ["api/a.md", {"B": "api/a/B.md"}, {"C": "api/a/C.md"}]}]}]


def test_the_api_shows_no_private_names():
    source = "def call(self: _Self, x: list[_Array], *_misplaced: None, **_unknown: None) -> dict[str, _Self]: ..."
    with griffe.temporary_visited_module(source) as module:
        runpy.run_path(str(ROOT / "docs" / "formulas.py"))["public"](module["call"])
        assert [(one.name, str(one.annotation)) for one in module["call"].parameters] == [
            ("self", "Self"),
            ("x", "list[Array]"),
        ]
        assert str(module["call"].returns) == "dict[str, Self]"


def test_the_menu_has_every_page():
    menu = set(re.findall(r"([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    notebooks = {f"tutorials/{path.stem}.md" for path in (ROOT / "docs" / "tutorials").glob("*.ipynb")}
    assert menu == pages | notebooks | set(hooks["OUTSIDE"])


#: What readers search for, and the page that must come first.
SEARCHED = {
    "HER": "sequences/", "GAE": "algorithms/", "GRPO": "gallery/", "kill": "processes/", "prefetch": "threads/",
    "resume": "checkpoints/", "R2D2": "sequences/", "PER": "prioritized/", "Minari": "datasets/", "D4RL": "datasets/",
    "Rainbow": "algorithms/", "autoreset": "vector/", "truncated": "ends/", "LZ4": "compression/", "CUDA": "devices/",
    "numpy": "host/", "RateLimiter": "running/", "install": "", "断电": "cn/processes/", "多进程": "cn/processes/",
    "序列": "cn/sequences/", "检查点": "cn/checkpoints/", "压缩": "cn/guides/", "安装": "cn/install/",
}  # fmt: skip


def test_the_site_is_built_without_warnings_and_searches_find_their_guide_first(tmp_path: Path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    if shutil.which("node") is None:
        pytest.skip("the site's search is a script, which Node.js runs")
    search = ["node", str(ROOT / "tests" / "support" / "search.js"), str(tmp_path), *SEARCHED]
    found = json.loads(subprocess.run(search, check=True, capture_output=True, text=True).stdout)
    assert {word: pages[0].partition("#")[0] for word, pages in found.items()} == SEARCHED


def test_the_guides_together_are_short():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("  - Guides:\n")[1].split("\n  - ")[0]
    guides = [ROOT / "docs" / name for name in re.findall(r": (\w+\.md)$", menu, re.MULTILINE)]
    assert len(guides) > 15
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in guides) <= 18_500
