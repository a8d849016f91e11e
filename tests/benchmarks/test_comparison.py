"""The side-by-side benchmark: processes, turns, missing peers, and the report."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from places import ROOT

BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from comparison import rounds as rounds_module  # noqa: E402
from comparison.cases import CARTPOLE, CASES, Case, batch_of, chunks_of, single_rows  # noqa: E402
from comparison.environments import PEERS, REQUIREMENTS, Installation  # noqa: E402
from comparison.figures import best_peer, ratio, shown  # noqa: E402
from comparison.peers.numpy_ring import Ring  # noqa: E402
from comparison.report import FIGURE, MARK, SUMMARY, SUMMARY_END, Report, markdown  # noqa: E402
from comparison.rounds import Result, Runner  # noqa: E402
from comparison.summary import bars, summary, verdict  # noqa: E402


def test_every_peer_and_case_is_there():
    assert {"cpprb", "torchrl", "flashbax", "stable-baselines3", "tianshou", "dm-reverb", "numpy ring"} <= set(PEERS)
    assert len({case.name for case in CASES}) == len(CASES)


def test_requirements_are_pinned_and_name_no_host():
    assert len(REQUIREMENTS.sections()) > 9
    for section in REQUIREMENTS.sections():
        packages = " ".join(REQUIREMENTS[section].values()).split()
        assert packages
        assert all("==" in package and "/" not in package and "@" not in package for package in packages), section


def test_rows_of_a_case():
    rows = batch_of(CARTPOLE, 400)
    assert np.flatnonzero(rows["terminated"]).tolist() == [199, 399]
    assert {k: (v.shape, v.dtype.name) for k, v in rows.items()} == {
        k: ((400, *shape), dtype) for k, (shape, dtype) in CARTPOLE.items()
    }
    single = single_rows(CARTPOLE, 2)
    assert type(single[0]["action"]) is int
    assert type(single[1]["terminated"]) is bool
    assert sum(len(chunk["reward"]) for chunk in chunks_of(CARTPOLE, 250_001)) == 250_001


def test_rows_as_gymnasium_gives_them():
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=0)
    action = environment.action_space.sample()
    following, reward, terminated, *_ = environment.step(action)
    real = [observation, action, reward, following, terminated]
    row = case_named("insert_1_gymnasium").single_rows()[0]
    assert [(type(value), np.asarray(value).dtype) for value in row.values()] == [
        (type(value), np.asarray(value).dtype) for value in real
    ]
    assert type(case_named("insert_1").single_rows()[0]["action"]) is int


def frame_ring(steps: int, capacity: int, ends: set[int]) -> Ring:
    ring = Ring({"observation": ((), "int64"), "terminated": ((), "bool")}, capacity)
    for step in range(steps):
        ring.insert({"observation": step, "terminated": step in ends})
    return ring


def test_the_ring_stacks_frames_of_one_episode():
    ends = {6, 12, 19}
    batch = frame_ring(30, 20, ends).sample_stacks(500)
    starts = np.array(sorted({end + 1 for end in ends} | {0}))
    assert len(set(batch["observation"][:, -1].tolist())) > 12
    for stack, following in zip(batch["observation"], batch["next_observation"]):
        first = starts[starts <= stack[-1]].max()
        assert stack.tolist() == [max(stack[-1] - i, first) for i in (3, 2, 1, 0)]
        assert following.tolist() == [*stack[1:], stack[-1] + 1]


def test_the_ring_masks_sequences_and_sums_returns():
    ring = Ring(
        {
            "observation": ((), "int64"),
            "action": ((), "int64"),
            "reward": ((), "float64"),
            "next_observation": ((), "int64"),
            "terminated": ((), "bool"),
        },
        20,
    )
    for step in range(30):
        ring.insert(
            {
                "observation": step,
                "action": 0,
                "reward": 1.0,
                "next_observation": step + 1,
                "terminated": step % 10 == 9,
            }
        )
    sequences = ring.sample_sequences(100, 6)
    for steps, mask in zip(sequences["observation"], sequences["mask"]):
        assert steps.tolist() == list(range(steps[0], steps[0] + 6))
        assert mask.tolist() == [step // 10 == steps[0] // 10 for step in steps]
    batch = ring.sample_n_step(200)
    for step, total, last in zip(batch["observation"], batch["reward"], batch["next_observation"]):
        k = min(5, 10 - step % 10)
        assert last == step + k
        assert total == pytest.approx(sum(0.99**i for i in range(k)))


PEER = """
import sys, time
from comparison.answering import Peer, Work, NotOfferedError, answer
class Fake(Peer):
    compiles = True
    def insert(self, case):
        print("a library that prints")
        return Work(lambda: time.sleep({pause}))
    def sample(self, case):
        {sample}
    def frames_bytes(self, case):
        return Work(lambda: 123)
answer(Fake())
"""


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Installation]:
    """Peers as processes, in a copy of the harness."""
    harness = tmp_path / "benchmarks" / "comparison"
    (harness / "peers").mkdir(parents=True)
    for name in ("__init__", "cases", "answering"):
        (harness / f"{name}.py").write_text((BENCHMARKS / "comparison" / f"{name}.py").read_text())
    (harness / "peers" / "__init__.py").touch()
    for name, pause, sample in (
        ("fast", 0.001, 'raise NotOfferedError("no sampling")'),
        ("slow", 0.004, "sys.exit(3)"),
        ("broken", 0.001, 'raise KeyError("lost")'),
    ):
        (harness / "peers" / f"{name}.py").write_text(PEER.format(pause=pause, sample=sample))
    monkeypatch.setattr(rounds_module, "HERE", harness)
    return {name: Installation(f"peers.{name}") for name in ("fast", "slow", "broken", "nowhere")}


def case_named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_peers_are_timed_in_turns_and_missing_ones_are_named(fakes: dict[str, Installation], tmp_path: Path):
    with Runner(fakes, tmp_path, tmp_path) as runner:
        assert "No module named" in runner.missing["nowhere"]
        results = runner.run(case_named("insert_1"), 5)
        assert [len(results[name].values) for name in ("fast", "slow", "broken", "nowhere")] == [5, 5, 5, 0]
        assert min(results["fast"].values) >= 0.001
        assert min(results["slow"].values) >= 0.004
        sampled = runner.run(case_named("sample_64"), 5)
        assert sampled["fast"].missing == "no sampling"
        assert sampled["slow"].missing.startswith("failed: its process ended with 3")
        assert "lost" in sampled["broken"].missing
        again = runner.run(case_named("frames_bytes"), 5)  # the process that ended was restarted
        assert [again[name].values for name in ("fast", "slow", "broken")] == [[123.0]] * 3


def test_an_environment_that_cannot_be_made_is_a_missing_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: Any) -> None:
        raise RuntimeError("pip failed: no such package")

    monkeypatch.setattr("comparison.environments._run", fail)
    with Runner({"cpprb": PEERS["cpprb"]}, tmp_path, tmp_path) as runner:
        results = runner.run(case_named("insert_1"), 3)
    assert results["cpprb"].missing == "pip failed: no such package"


def results_of(**seconds: float) -> dict[str, Result]:
    return {name.replace("_", " "): Result([value, value * 2, value * 3]) for name, value in seconds.items()}


def test_ratios_are_to_the_best_peer_and_not_to_the_limit():
    results = {**results_of(cpprb=2e-6, torchrl=5e-6, limit=1e-7), "mindspore_replay": Result([1e-6, 2e-6, 3e-6])}
    assert best_peer(results) == "cpprb"
    assert ratio(results, "mindspore_replay") == pytest.approx(2)
    assert ratio(results, "torchrl") == pytest.approx(0.4)
    assert ratio({"limit": Result([1.0])}, "limit") is None


def test_figures_carry_their_unit():
    case = case_named("insert_1")
    assert [shown(case, value) for value in (2.5e-7, 3.21e-4, 0.0212, 41.0)] == ["0.25 us", "321 us", "21.2 ms", "41 s"]
    assert shown(case_named("dqn"), 0.002) == "500 steps/s"
    assert shown(case_named("frames_bytes"), 7099.3) == "7,099 bytes"


def test_a_report_names_who_is_missing(tmp_path: Path):
    report = Report(tmp_path, 3, {"mindspore_replay": {"numpy": "1.26"}, "cpprb": {"numpy": "2.4"}})
    results = {
        "mindspore_replay": Result([1e-6, 2e-6, 9e-6]),
        "cpprb": Result([4e-6] * 3),
        "tianshou": Result(missing="no"),
    }
    report.add(case_named("insert_1"), results)
    text = (tmp_path / "comparison.md").read_text()
    assert "| **mindspore_replay** | 2 us | 1.5 us to 5.5 us | 2.00 |  |" in text
    assert "Missing: tianshou (no)." in text
    assert json.loads((tmp_path / "comparison.json").read_text())["cases"]["insert_1"]["cpprb"]["values"] == [4e-6] * 3
    assert (tmp_path / "comparison.png").stat().st_size > 1000
    page = tmp_path / "page.md"
    page.write_text(f"# Head\n{SUMMARY}\nold\n{SUMMARY_END}\ntext\n{MARK}\nold")
    for _ in range(2):
        report.put_into(page)
        head = f"# Head\n{SUMMARY}\n\n{summary(report.data)}\n\n{FIGURE}\n\n{SUMMARY_END}\ntext\n"
        assert page.read_text() == f"{head}{MARK}\n\n{markdown(report.data)}"
    assert (tmp_path / "images" / "comparison.png").exists()
    page.write_text(without := f"{SUMMARY}\n{SUMMARY_END}\n")
    with pytest.raises(ValueError, match=f"must have a line {MARK}"):
        report.put_into(page)
    assert page.read_text() == without


def test_the_summary_begins_with_what_others_do_faster():
    results = {"mindspore_replay": Result([2e-6]), "cpprb": Result([3e-6]), "limit": Result([1e-6])}
    slower = results | {"torchrl": Result([0.8e-6])}
    cases = {"save": results, "sequences": results, "sample_64": slower}
    named = {name: {who: asdict(result) for who, result in those.items()} for name, those in cases.items()}
    rows = summary({"cases": named}).splitlines()[-4:]
    assert rows == [
        "| sample 64 CartPole transitions | 2.50 times slower | 2 us | torchrl: 0.8 us |",
        "| save 1 GB, to the disk | 2.00 times slower | 2 us | the limit: 1 us |",
        "| sample 32 sequences of 80 steps | 1.50 times faster | 2 us | cpprb: 3 us |",
        "| save 1 GB, to the disk | 1.50 times faster | 2 us | cpprb: 3 us |",
    ]
    del named["save"]["limit"]
    assert summary({"cases": named}).splitlines()[-1] == "| save 1 GB, to the disk | not measured | | limit |"
    assert [verdict(times, "bytes") for times in (2, 1.005, 0.5)] == [
        "2.00 times smaller",
        "the same",
        "2.00 times larger",
    ]


def cases_of(page: str) -> dict[str, Any]:
    """Return the cases in the tables of a page, with a median as the only round."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "bytes": 1.0}
    cases: dict[str, Any] = {}
    for section in page.split(MARK)[1].split("\n### ")[1:]:
        results = cases[re.findall(r"\(`(\w+)`\)", section)[0]] = {}
        rows = re.findall(
            r"^\| \**([^|*]+?)\** \| ([\d.,]+) (\S+) \| [^|]* \| [^|]* \| ([^|]*) \|$", section, re.MULTILINE
        )
        for who, number, unit, note in rows:
            value = float(number.replace(",", ""))
            results[who] = asdict(Result([1 / value if unit == "steps/s" else value * units[unit]], note.strip()))
    return cases


def test_the_summary_of_the_page_is_that_of_its_tables():
    """The tables have rounded medians, so ratios may differ by a hundredth."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    written = page.split(SUMMARY)[1].split("\n\n![")[0].strip()
    computed = summary({"cases": cases_of(page)})
    times = re.compile(r"[\d.]+(?= times)")
    assert times.sub("", computed) == times.sub("", written)
    np.testing.assert_allclose(*([float(n) for n in times.findall(text)] for text in (computed, written)), rtol=0.01)
    assert FIGURE in page


def test_a_panel_has_this_project_and_the_fastest_peers():
    results = results_of(**{f"peer_{i}": 1.0 + i for i in range(8)}, limit=0.1) | {"mindspore_replay": Result([7.0])}
    assert bars(results) == ["peer 0", "peer 1", "peer 2", "mindspore_replay", "peer 3", "peer 4"]
    assert bars(results | {"mindspore_replay": Result([100.0])})[-1] == "mindspore_replay"


def test_the_command_compares_this_project_with_a_ring(tmp_path: Path):
    done = subprocess.run(
        [
            sys.executable,
            BENCHMARKS / "compare.py",
            "--peers",
            "mindspore_replay",
            "numpy ring",
            "limit",
            "--rounds",
            "3",
            "--only",
            "insert_64",
            "frames_bytes",
            "--out",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    cases = json.loads((tmp_path / "comparison.json").read_text())["cases"]
    assert {name: len(result["values"]) for name, result in cases["insert_64"].items()} == {
        "mindspore_replay": 3,
        "numpy ring": 3,
        "limit": 3,
    }
    assert cases["frames_bytes"]["limit"]["values"] == [84 * 84 + 4 + 4 + 1]
