"""The command that compares, in short runs with this project alone, and what it gives other libraries."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from places import ROOT

pytestmark = pytest.mark.cpu_only("a program that runs on the CPU")

SCRIPT = ROOT / "benchmarks" / "compare.py"
COMPARE = ROOT / "benchmarks" / "comparison"
OURS = "mindspore_replay"
#: A comparison, peers and questions that need no other library, and the heads of its tables.
RUNS = [
    ("insert", [OURS], ["insert_1"], ["us a row, 1 writing", "rows/s, 1 writing"]),
    ("queues", [OURS], ["actors_small_by_1_2", "one_thread"], ["rows/s, 2 actors", "us to put a row", "us to draw 64"]),
    (
        "lengths",
        [f"{OURS}, in memory", "a list in the process"],
        ["memory", "put_256", "get_8", "packed_128"],
        [
            "bytes for a byte of rows",
            "rows/s, put by 256",
            "rows/s, drawn by 8",
            "of a copy's rate, rows of 128 tokens",
        ],
    ),
    ("durability", ["folder, uniform", "SQLite"], ["disk_100"], ["rows/s, after each 100", "ms, after each 100"]),
]


@pytest.mark.parametrize(("name", "peers", "only", "heads"), RUNS, ids=[run[0] for run in RUNS])
def test_a_round(tmp_path: Path, name: str, peers: list[str], only: list[str], heads: list[str]):
    arguments = [sys.executable, SCRIPT, name, "--peers", *peers, "--only", *only, "--rounds", "2", "--seconds", "0.1"]
    ended = subprocess.run([*arguments, "--out", tmp_path], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    written = json.loads((tmp_path / f"{name}.json").read_text())
    assert set(written["versions"]) == set(peers)
    found: dict[str, dict[str, list[float]]] = {peer: {} for peer in peers}
    for table in written["tables"].values():
        for peer, columns in table["values"].items():
            found[peer] |= columns
    assert list(found[peers[0]]) == heads
    for peer in peers:
        assert found[peer], written
        assert all(len(values) == 2 and min(values) > 0 for values in found[peer].values())


def test_every_program_is_there(script: Callable[[str], ModuleType]):
    for comparison in script("compare").COMPARISONS.values():
        assert len({item.name for item in comparison.items}) == len(comparison.items)
        for place in comparison.peers.values():
            assert (COMPARE / f"{place.module.replace('.', '/')}.py").exists()
            assert not place.requirements or place.requirements in sys.modules[type(place).__module__].REQUIREMENTS


def test_a_table_has_medians_and_names_who_is_missing(script: Callable[[str], ModuleType]):
    compare = script("compare")
    values = {"a": {"us": [3.0, 1.25, 9.0], "rows/s": [1000.0, 2500.4]}, OURS: {"us": [400.0]}, "c": {}}
    report = sys.modules[compare.Report.__module__]
    assert report.tabulated("rows of a kind", compare.Figures(values, {"c": "lost"})).splitlines() == [
        "**Rows of a kind**",
        "",
        "| | us | rows/s |",
        "|---|---|---|",
        "| a | 3 | 1,750 |",
        f"| **{OURS}** | 400 |  |",
        "",
        "Missing: c (lost).",
    ]


def test_lengths_are_log_normal(script: Callable[[str], ModuleType]):
    drawn = script("compare").lengths.lengths(20_000, np.random.default_rng(3))
    assert abs(np.median(drawn) - 500) < 20
    assert 1 <= drawn.min() < 50
    assert drawn.max() == 4096
    assert abs(np.log(drawn[drawn < 4096]).std() - 0.8) < 0.05
