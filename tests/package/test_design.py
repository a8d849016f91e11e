"""The sampler that the design page adds, with its tests."""

import re
import subprocess
import sys

import pytest
from places import ROOT

PAGE = ROOT / "docs" / "design.md"

#: Runs the page's tests, and then some of those of a wrong sampler, which takes the same name.
RUNS = """
import pytest
print("ended with", int(pytest.main(["-q", "-p", "no:cacheprovider", "newest.py"])), flush=True)
print("ended with", int(pytest.main(["-q", "-p", "no:cacheprovider", "wrong.py", "-k", "5 or 12"])), flush=True)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what the tests print, and what those of a sampler of the oldest rows print."""
    found = re.search(r"<!-- newest.py -->\n```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert found is not None
    wrong = found[1].replace("head + count - self.distance", "head + self.distance - 1")
    assert wrong != found[1]
    folder = tmp_path_factory.mktemp("sampler")
    (folder / "newest.py").write_text(found[1], encoding="utf-8")
    (folder / "wrong.py").write_text(wrong, encoding="utf-8")
    command = [sys.executable, "-c", RUNS]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    parts = ended.stdout.split("ended with ")
    assert len(parts) == 3, ended.stdout + ended.stderr
    return [f"{parts[0]}{parts[1][0]}", f"{parts[1]}{parts[2][0]}"]


def test_a_sampler_of_ones_own(outputs: list[str]):
    assert outputs[0].endswith("0"), outputs[0]
    assert "7 passed" in outputs[0]


def test_its_tests_reject_the_oldest_rows(outputs: list[str]):
    assert outputs[1].endswith("1"), outputs[1]
    assert "4 failed" in outputs[1]
    assert "passed" not in outputs[1]
