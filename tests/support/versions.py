"""Makes an environment for each of several versions of MindSpore, and runs the core of the tests and `ways.py` in it.

    python tests/support/versions.py 2.9.0 2.8.0 2.7.0 [--folder FOLDER]

`newest` is the newest version in the registry, and is left out if it is the installed one, with which all tests run. An
environment takes 2.5 GB, and some minutes to make; with `--folder` it is kept and used again. The package is built in
it from a copy of this checkout.
"""

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = [f"buffers/test_{name}.py" for name in ("state", "fields", "replay")]
#: What the core of the tests imports.
NEEDED = ["hypothesis", "pytest<9.2", "pytest-xdist"]


def environment_of(version: str, folder: Path) -> Path:
    """Return the Python of an environment with this MindSpore and this package."""
    place = folder / f"mindspore-{version}"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    wanted = [f"mindspore=={version}", *(["numpy<2", "scipy<1.14"] if version.startswith("2.") else []), *NEEDED]
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted, ROOT], check=True)
    return python


def newest() -> str:
    """Return the newest version of MindSpore in the registry for this Python."""
    command = [sys.executable, "-m", "pip", "index", "versions", "mindspore"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.match(r"mindspore \((\S+)\)", said).group(1)  # type: ignore[union-attr]


def run(*command: str | Path) -> bool:
    """Run a command with the installed package; print the last lines of its output, and return whether it passed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, env=environment)
    lines = [line for line in (result.stdout + result.stderr).splitlines() if "WARNING" not in line]
    print("\n".join(lines[-3 if result.returncode == 0 else -40 :]), flush=True)
    return result.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the core of the tests with several versions of MindSpore.")
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--folder", type=Path, help="folder of the environments (default: a temporary one)")
    options = parser.parse_args()
    failed = []
    versions, installed = list(options.versions), importlib.metadata.version("mindspore")
    if "newest" in versions:
        versions[versions.index("newest")] = found = newest()
        print(f"the newest MindSpore is {found}, and {installed} is installed")
        if found == installed:
            versions.remove(found)
    with tempfile.TemporaryDirectory() as temporary:
        for version in versions:
            print(f"== MindSpore {version}", flush=True)
            python = environment_of(version, options.folder or Path(temporary))
            tests = [python.parent / "pytest", "-q", "-W", "ignore:mindspore_replay was tested with", *CORE]
            checks = [[python, "-c", NOT_FOUND], [python, "support/ways.py"], tests]
            if not all([run(*check) for check in checks]):
                failed.append(version)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


#: Prints the private names of MindSpore that were not found, which have fallbacks.
NOT_FOUND = "from mindspore_replay.mindspore_api import NAMES, not_found; print(len(NAMES), *not_found(), sep='\\n')"

if __name__ == "__main__":
    sys.exit(main())
