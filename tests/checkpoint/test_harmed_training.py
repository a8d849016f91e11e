"""A training of which processes are killed, and whose machine is cut, ends as one that nobody harmed."""

import json
import subprocess
import sys
import tempfile
from typing import Any

import pytest
from harmed_training import WRONG
from places import TESTS

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")


def ran(harms: int, *recipes: str) -> dict[str, Any]:
    """Return what was found after a run of each recipe."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # what a disk holds is simulated
        script = str(TESTS / "support" / "harmed_training.py")
        command = [sys.executable, script, folder, str(harms), "0", *recipes]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_a_training_survives_kills_and_cuts_and_wrong_recipes_do_not():
    found = ran(40, "right", *WRONG)
    assert found["right"]["fault"] == ""
    assert sum(found["right"]["harmed"].values()) == 40
    assert set(found["right"]["harmed"]) == {"learn", "act", "machine"}
    assert "the checkpoint counts" in found["saved before flush"]["fault"]
    assert "a row is of version" in found["published before saved"]["fault"]
    assert "missing, or there twice" in found["noted before rows"]["fault"]
