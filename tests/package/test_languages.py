"""README.md and README_CN.md say the same: commands, code, figures, names and links."""

import re
from collections import Counter

import pytest
from pages import FENCED, tables
from places import ROOT

ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README_CN.md"))


def parts(text: str) -> dict[str, list[str]]:
    """Return what must be the same in both languages; figures, names and links in any order."""
    prose = FENCED.sub("", text)
    words = re.sub(r"`[^`]*`|\]\([^)]*\)", "", re.sub(r"^    .*", "", prose, flags=re.MULTILINE))
    links = [link.replace("_CN.md", ".md").replace("_cn.svg", ".svg") for link in re.findall(r"\]\(([^)]*)\)", prose)]
    links = [link for link in links if not link.startswith("docs/cn/")]  # pages in Chinese alone
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


def test_both_readmes_say_the_same():
    assert differences(ENGLISH, CHINESE) == {}


def test_each_leads_to_the_other():
    assert "\n\nEnglish | [简体中文](README_CN.md)\n\n" in ENGLISH
    assert "\n\n[English](README.md) | 简体中文\n\n" in CHINESE


def test_the_readme_is_short():
    assert len(ENGLISH.splitlines()) <= 150
    assert len(CHINESE.splitlines()) <= 150


@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        ("[test]", "[tests]", "commands"),
        ("num_envs=4", "num_envs=8", "blocks"),
        ("1.06", "1.6", "figures"),
        ("270,000", "270,001", "figures"),
        ("`NStep`", "`NSteps`", "names"),
        ("docs/ends.md", "docs/ray.md", "links"),
        ("\n## ", "\n### ", "sections"),
        ("| `ReplayQueue` |", "`ReplayQueue` |", "rows of tables"),
    ],
)
def test_a_difference_is_found(right: str, wrong: str, kind: str):
    assert right in CHINESE
    assert kind in differences(ENGLISH, CHINESE.replace(right, wrong, 1))


def named(page: str) -> tuple[list[set[str]], set[str]]:
    """Return the names in each row of a page's first table, and all messages in its last one."""
    first, *_, last = tables((ROOT / "docs" / page).read_text(encoding="utf-8"))
    return [set(re.findall(r"`[^`]*`", " ".join(row))) for row in first], {row[0] for row in last[2:]}


def test_the_page_in_chinese_has_the_classes_and_messages_of_the_english_ones():
    rows, messages = named("cn/choosing.md")
    assert rows == named("sampling.md")[0]
    english = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert len(messages) == 4
    assert [message for message in messages if f"| {message}" not in english] == []
