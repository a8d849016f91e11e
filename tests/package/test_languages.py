"""Pages in two languages say the same: commands, code, figures, names and links."""

import posixpath
import re
import runpy
from collections import Counter

import pytest
from pages import FENCED, tables
from places import ROOT

#: Pages in Chinese, and the English ones of which they are the whole.
WHOLE = {
    "README_CN.md": "README.md",
    "docs/cn/devices.md": "docs/devices.md",
    "docs/cn/mindspore_rl.md": "docs/coming_from/mindspore_rl.md",
}
#: Pages in Chinese with a part of an English one.
PARTS = {
    "docs/cn/install.md": "README.md",
    "docs/cn/first_agent.md": "docs/tutorials/first_agent.ipynb",
    "docs/cn/choosing.md": "docs/sampling.md",
    "docs/cn/troubleshooting.md": "docs/troubleshooting.md",
    "docs/cn/sequences.md": "docs/sequences.md",
    "docs/cn/processes.md": "docs/processes.md",
    "docs/cn/checkpoints.md": "docs/checkpoints.md",
}


def read(path: str) -> str:
    """Return a page as Markdown."""
    if path.endswith(".ipynb"):
        text: str = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["converted"](ROOT / path)[0]
        return text
    return (ROOT / path).read_text(encoding="utf-8")


ENGLISH, CHINESE = read("README.md"), read("README_CN.md")


#: The line of a page that leads to the other language.
SWITCH = runpy.run_path(str(ROOT / "docs" / "hooks.py"))["SWITCH"]


def parts(text: str) -> dict[str, list[str]]:
    """Return what must be the same in both languages; figures, names and links in any order."""
    prose = FENCED.sub("", text)
    words = re.sub(r"`[^`]*`|\]\([^)]*\)", "", re.sub(r"^    .*", "", prose, flags=re.MULTILINE))
    prose = SWITCH.sub("", prose)
    links = [link.replace("_cn.svg", ".svg") for link in re.findall(r"\]\(([^)]*)\)", prose)]
    links = [
        link.removeprefix("../") for link in links if not link.startswith("docs/cn/")
    ]  # these are in Chinese alone
    return {
        "blocks": [block[0] for block in FENCED.finditer(text)],
        "commands": re.findall(r"^    .*", prose, re.MULTILINE),
        "sections": re.findall(r"^#+ ", prose, re.MULTILINE),
        "rows of tables": [str(line.count("|")) for line in prose.splitlines() if line.startswith("|")],
        "figures": sorted(re.findall(r"\d[\d.,]*(?<![.,])", words)),
        "names": sorted(re.findall(r"`[^`]*`", prose)),
        "links": sorted(links),
    }


def differences(first: str, second: str) -> dict[str, list[str]]:
    """Return what only one of two pages has, or has more often."""
    here, there = parts(first), parts(second)
    return {
        kind: sorted(
            ((Counter(here[kind]) - Counter(there[kind])) + (Counter(there[kind]) - Counter(here[kind]))).elements()
        )
        for kind in here
        if here[kind] != there[kind]
    }


@pytest.mark.parametrize(("chinese", "english"), WHOLE.items())
def test_both_say_the_same(chinese: str, english: str):
    assert differences(read(english), read(chinese)) == {}


def switch(path: str) -> str:
    """Return the page to which the switch of a page leads."""
    found = SWITCH.search(read(path))
    assert found, path
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1] or found[2]))


@pytest.mark.parametrize(("chinese", "english"), [*WHOLE.items(), *PARTS.items()])
def test_each_leads_to_the_other(chinese: str, english: str):
    assert switch(chinese) == english
    assert switch(english) == ("README_CN.md" if english == "README.md" else chinese)


def test_all_pages_in_chinese_are_compared():
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "cn").glob("*.md")}
    assert found == {*WHOLE, *PARTS, "docs/cn/guides.md"} - {"README_CN.md"}


def test_each_guide_has_a_summary_in_chinese():
    menu = read("mkdocs.yml").split("  - Guides:\n")[1].split("\n  - ")[0]
    _, *sections = read("docs/cn/guides.md").split("\n## ")
    assert re.findall(r": (\w+\.md)$", menu, re.MULTILINE) == [
        re.findall(r"\n英文.\[[^]]*\]\(\.\./(\w+\.md)\)", section)[0] for section in sections
    ]
    assert min(len(re.findall(r"[\u4e00-\u9fff]", section)) for section in sections) > 80


def test_the_readme_is_short():
    assert max(len(page.splitlines()) for page in (ENGLISH, CHINESE)) <= 168


def test_the_readme_s_figures_stand_on_the_pages_that_it_names():
    reasons = ENGLISH.split("\n## Why\n\n")[1].split("\n\n")[0].split("\n- ")
    assert len(reasons) == 5
    for reason in reasons[:4]:
        figures = [figure for figure in parts(reason)["figures"] if figure != "256"]  # rows
        page = read(re.findall(r"\]\(([^)#]*)", reason)[-1])
        assert figures
        assert [figure for figure in figures if figure.removesuffix(",000") not in page] == []


@pytest.mark.parametrize(("chinese", "english"), [each for each in PARTS.items() if each[1] != "README.md"])
def test_code_and_names_of_a_part_are_those_of_the_english_page(chinese: str, english: str):
    here, there = parts(read(chinese))["blocks"], parts(read(english))["blocks"]
    assert here == [block for block in there if block in here or english.endswith(".ipynb")]
    names = {name[1:-1] for name in parts(read(chinese))["names"] if re.fullmatch(r"`\w+`", name)}
    assert names - {*re.findall(r"\w+", read(english))} == set()


def test_choosing_names_the_classes_of_the_english_page():
    here, there = (tables(read(f"docs/{name}"))[0] for name in ("cn/choosing.md", "sampling.md"))
    named = [[set(re.findall(r"`[^`]*`", " ".join(row))) for row in table] for table in (here, there)]
    assert named[0] == named[1]


def test_errors_are_those_of_the_english_page():
    english = read("docs/troubleshooting.md")
    found = [row[0] for table in tables(read("docs/cn/troubleshooting.md")) for row in table if row[0].startswith("`")]
    assert len(found) > 20
    assert [message for message in found if f"| {message} |" not in english] == []


def test_installing_has_the_commands_and_figures_of_the_readme():
    page, readme = parts(read("docs/cn/install.md")), parts(CHINESE)
    assert page["commands"][0] in readme["commands"]
    assert {figure for figure in page["figures"] if len(figure) > 1} <= {*readme["figures"]}
