"""The sampler that the design page adds, with its tests."""

import re
import subprocess
import sys
from pathlib import Path

from places import ROOT

PAGE = ROOT / "docs" / "design.md"


def run(folder: Path, code: str) -> "subprocess.CompletedProcess[str]":
    (folder / "newest.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "newest.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def example() -> str:
    found = re.search(r"<!-- newest.py -->\n```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert found is not None
    return found[1]


def test_a_sampler_of_ones_own(tmp_path: Path):
    ended = run(tmp_path, example())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "7 passed" in ended.stdout


def test_its_tests_reject_the_oldest_rows(tmp_path: Path):
    code = example().replace("head + count - self.distance", "head + self.distance - 1")
    assert code != example()
    ended = run(tmp_path, code)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "7 failed" in ended.stdout or "6 failed" in ended.stdout
