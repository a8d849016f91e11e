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


def test_links_lead_to_pages_of_the_site():
    adapted = hooks["adapted"]
    text = "[a](docs/ray.md#cost) ![b [1]](docs/images/where.svg) [c](CHANGELOG.md) [d](LICENSE) "
    there = "[a](ray.md#cost) ![b [1]](images/where.svg) [c](changelog.md) d "
    elsewhere = "[e](https://x.org/a.md) [f](#g)"
    assert adapted(text + elsewhere, "README.md", "index.md") == there + elsewhere
    assert adapted("[a](../docs/ray.md) [b](dqn.py)", "examples/README.md", "gallery.md") == "[a](ray.md) b"
    assert (
        adapted("[a](../ray.md) [b](../../README.md)", "docs/api/x.md", "api/x.md") == "[a](../ray.md) [b](../index.md)"
    )
    code = "```python\nx[0](y)\n```"
    assert adapted(code, "docs/ray.md", "ray.md") == code


def test_a_page_with_a_twin_has_both_languages_in_the_header():
    links = [each["link"] for each in hooks["languages"]("English | [简体中文](cn/devices.md)", "devices.md")]
    assert links == ["devices/", "cn/devices/"]
    back = hooks["languages"]("# 安装\n\n[English](../index.md#install) | 简体中文\n", "cn/install.md")
    assert [(each["name"], each["lang"], each["link"]) for each in back] == [
        ("English", "en", "."),
        ("简体中文", "zh", "cn/install/"),
    ]
    assert hooks["languages"]("English | Chinese", "devices.md") == []


def test_a_picture_has_its_text_below():
    shown = hooks["on_page_content"]('<p><img alt="A line" src="a.png"></p><p>A <img alt="B" src="b.png"></p>')
    assert shown == (
        '<figure><img alt="A line" src="a.png"><figcaption>A line</figcaption></figure>'
        '<p>A <img alt="B" src="b.png"></p>'
    )


def test_pages_from_outside_are_there():
    assert {path for path in hooks["OUTSIDE"].values() if not (ROOT / path).is_file()} == set()


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".html", '<link rel="stylesheet" href="https://fonts.googleapis.com/css">'),
        (".html", "<script src=//cdn.jsdelivr.net/x.js></script>"),
        (".css", "@font-face { src: url(https://fonts.gstatic.com/x.woff2) }"),
        (".css", '@import "https://fonts.googleapis.com/css";'),
        (".js", 'load("https://cdn.jsdelivr.net/npm/mermaid")'),
    ],
)
def test_a_site_that_loads_from_elsewhere_is_refused(suffix: str, text: str, tmp_path: Path):
    page = tmp_path / f"page{suffix}"
    page.write_text("nothing")
    hooks["on_post_build"]({"site_dir": str(tmp_path)})
    page.write_text(text)
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


def test_each_class_of_the_api_has_a_page():
    of_classes = runpy.run_path(str(ROOT / "docs" / "classes.py"))
    text = "# A\n\n::: m.First\n    options:\n      members: false\n\n::: m.Second\n\nWords.\n\n::: m.function\n"
    page, classes = of_classes["split"](text, "a", {"m.First": "1", "m.Second": "2"}.get)
    assert page == "# A\n\n- [`First`](a/First.md): 1\n- [`Second`](a/Second.md): 2\n\nWords.\n\n::: m.function\n"
    level = "    options:\n      heading_level: 1\n"
    assert classes == {"First": f"::: m.First\n{level}      members: false\n", "Second": f"::: m.Second\n{level}"}
    table = of_classes["linked"]("| [A](a.md) | `First`, `function` |\n\n`First`\n", {"a": list(classes)})
    assert table == "| [A](a.md) | [`First`](a/First.md), `function` |\n\n`First`\n"
    menu = of_classes["in_menu"](
        [{"API": ["api/index.md", {"A": "api/a.md"}, {"B": "api/b.md"}]}], {"a": list(classes)}
    )
    first, second = {"First": "api/a/First.md"}, {"Second": "api/a/Second.md"}
    assert menu == [{"API": ["api/index.md", {"A": ["api/a.md", first, second]}, {"B": "api/b.md"}]}]


def test_each_class_has_a_line_on_its_page_and_buffers_the_methods_of_all():
    of_classes = runpy.run_path(str(ROOT / "docs" / "classes.py"))
    pages = of_classes["read"]()
    for page, classes in pages.values():
        for name in classes:
            assert re.search(rf"^- \[`{name}`\]\(\w+/{name}\.md\): \S.*\.$", page, re.MULTILINE), name
    of_all = "[`insert`][mindspore_replay.Buffer.insert]"
    having = {(stem, name) for stem, (_, classes) in pages.items() for name, text in classes.items() if of_all in text}
    buffers = {name for name in pages["host"][1] if re.search("Buffer|Queue", name)}
    others = {"UniformReplayBuffer", "PriorityReplayBuffer"}
    assert len(buffers) == 8
    assert having == {("host", name) for name in buffers} | {("buffers", name) for name in buffers | others}


def test_a_class_begins_with_a_sentence_and_its_signature_is_folded():
    signature, first = (
        '<div class="doc-signature highlight">C()</div>',
        '<div class="doc doc-contents first"><p>It is.</p>',
    )
    shown = hooks["on_page_content"](f"<h1>C</h1>{signature}{first}<p>More.</p></div>")
    assert shown == f"<h1>C</h1>{first}<details><summary>Signature</summary>{signature}</details><p>More.</p></div>"
    assert hooks["on_page_content"](f"<h2>f</h2>{signature}{first}") == f"<h2>f</h2>{signature}{first}"


def test_a_table_of_arguments_has_its_defaults_once():
    row = "<tr><td><code>n</code></td><td><code>int</code></td><td><div>Rows. Default: 1.</div></td>"
    for default in ("<em>required</em>", '<code><span title="x">1</span></code>'):
        table = f"<tr><th>Name</th><th>Default</th></tr>{row}<td> {default} </td></tr>"
        assert hooks["on_page_content"](table) == f"<tr><th>Name</th></tr>{row}</tr>"
    other = "<tr><td>a</td><td><code>x</code></td></tr>"
    assert hooks["on_page_content"](other) == other


def test_a_docstring_links_the_class_that_has_its_arguments():
    with_formulas = runpy.run_path(str(ROOT / "docs" / "formulas.py"))["with_formulas"]
    assert with_formulas("n (int): As for `ReplayBuffer`.") == (
        "n (int): As for [`ReplayBuffer`][mindspore_replay.ReplayBuffer]."
    )
    on_arrays = "A ring: `mindspore_replay.MixedReplay` on arrays."
    assert "[`mindspore_replay.MixedReplay`][mindspore_replay.MixedReplay] on" in with_formulas(on_arrays)
    assert with_formulas("Not `ReplayBuffer`.") == "Not `ReplayBuffer`."


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
    built = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
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
