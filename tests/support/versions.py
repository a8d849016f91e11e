"""Makes an environment for each of several versions of MindSpore, and runs the core of the tests and `ways.py` in it.

    python tests/support/versions.py 2.9.0 2.8.0 2.7.0 [--folder FOLDER]

An environment takes 2.5 GB, and some minutes to make; with `--folder` it is kept and used again. The package is built
in it from a copy of this checkout.
"""

import argparse
import os
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
    command = [str(python), "-m", "pip", "install", "-q", f"mindspore=={version}", f"{ROOT}[mindspore]", *NEEDED]
    subprocess.run(command, check=True)
    return python


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
    with tempfile.TemporaryDirectory() as temporary:
        for version in options.versions:
            print(f"== MindSpore {version}", flush=True)
            python = environment_of(version, options.folder or Path(temporary))
            checks = [[python, "-c", MOVED], [python, "support/ways.py"], [python.parent / "pytest", "-q", *CORE]]
            if not all([run(*check) for check in checks]):
                failed.append(version)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


#: Prints the private names of MindSpore that are gone; fails if there are any.
MOVED = "import sys; from mindspore_replay.mindspore_api import moved; sys.exit('\\n'.join(moved()) or 0)"

if __name__ == "__main__":
    sys.exit(main())
