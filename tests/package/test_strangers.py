"""Files from strangers are read or refused: no crash, no other file read or made, and no memory beyond their size."""

import json
import subprocess
import sys
from pathlib import Path

from places import ROOT, TESTS

#: Files that are what they seem, some with names that mean nothing here.
READ = {
    ("checkpoint", "as saved"),
    ("folder", "as closed"),
    ("folder", "a folder to write to"),
    ("npz", "as saved"),
    ("npz", "a name with dots"),
    ("hdf5", "as saved"),
    ("yaml", "as written"),
}


def test_hostile_files_are_refused(tmp_path: Path):
    script = str(TESTS / "support" / "strangers.py")
    ran = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    results = {(reader, name): what for reader, all_of in found["results"].items() for name, what in all_of.items()}
    read = {key for key, what in results.items() if what == ["read"]}
    assert {key for key in read if key[0] != "inspect"} == READ  # which describes what no buffer can be made of
    assert not {("inspect", f"count of {count}") for count in (-1, 2**31 - 1)} & read
    for key, (kind, text) in ((key, what) for key, what in results.items() if key not in read):
        assert kind in ("TypeError", "ValueError"), (key, kind, text)
        assert text.startswith("For '"), (key, text)
    assert len(results) > 60
    assert found["memory"] < 64 << 20
    assert found["files"] == ["checkpoint", "file.hdf5", "file.npz", "file.yaml", "other.hdf5"]


def test_files_with_random_changes_are_read_or_refused():
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "readers", "--plain", "100"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"{reader}: 100 inputs" for reader in ("checkpoint", "npz", "hdf5", "yaml", "folder", "damaged")
    ]
