"""The README's commands, code and output, as a newcomer meets them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_quickstart_prints_what_the_readme_shows():
    code, output = code_blocks("python")[0], code_blocks("text")[0]
    assert code == (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py")], capture_output=True, text=True, check=True
    )
    assert result.stdout == output


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(path: str):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", re.findall(r"`(examples/\w+\.py)`", README))
def test_named_examples_exist(path: str):
    assert (ROOT / path).is_file()


def test_the_other_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines = [
        "import numpy as np, mindspore as ms",
        "from mindspore_replay import FrameStack, MixedReplay, NStep, PrioritizedReplayBuffer, ReplayBuffer",
        "from mindspore_replay import JSONLinesWriter, RateLimiter, ReplayMonitor, create_buffer, load, save",
    ]
    lines.append("buffer = ReplayBuffer(4, 10, [(4,), (), ()], ['float32', 'int32', 'float32'])")
    snippets = code_blocks("python")[1:]
    assert len(snippets) == 6
    namespace: dict[str, object] = {}
    exec("\n".join([*lines, *snippets]), namespace)
    assert namespace["made"].capacity == 100_000  # type: ignore[attr-defined]
    assert namespace["discount"].shape == (32,)  # type: ignore[attr-defined]
    assert namespace["source"].asnumpy().tolist() == [0] * 48 + [1] * 16  # type: ignore[attr-defined]
    assert namespace["reward"].asnumpy().tolist() == [0] * 48 + [1] * 16  # type: ignore[attr-defined]
    assert namespace["same"].limiter.inserted == namespace["same"].size() > 200  # type: ignore[attr-defined]
    assert len(Path("replay.jsonl").read_text().splitlines()) == 10
    assert namespace["frames"].shape == namespace["next_frames"].shape == (32, 4, 84, 84)  # type: ignore[attr-defined]
