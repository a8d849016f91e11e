"""The site's pages from outside of docs/, and their links."""

import re
import runpy

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


def test_pages_from_outside_are_there():
    assert {path for path in hooks["OUTSIDE"].values() if not (ROOT / path).is_file()} == set()


def test_nothing_is_loaded_from_elsewhere():
    """No font, script or style of another host: `font: false`, and no address in what is extra."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^  font: false\b", text, re.MULTILINE)
    assert "//" not in text
    assert "//" not in (ROOT / "docs" / "style.css").read_text(encoding="utf-8")


def test_the_menu_has_every_page():
    menu = set(re.findall(r"([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert menu == pages | set(hooks["OUTSIDE"])
