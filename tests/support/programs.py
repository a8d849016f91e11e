"""Programs in processes that fork from one which has imported MindSpore, and so start at once.

Run as a program, this file is that process: it reads requests and answers each with an exit code.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sources

#: Seconds that a program may take.
PATIENCE = 600

_forking: list[subprocess.Popen] = []


def run_program(script: Path, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Run a Python script to its end, as the interpreter does that runs the tests."""
    if not _forking:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        _forking.append(subprocess.Popen([sys.executable, __file__], **pipes))
    command = [str(script), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        request: dict[str, Any] = {"command": command, "cwd": str(cwd or Path.cwd()), "environment": dict(os.environ)}
        request["outputs"] = [str(path) for path in outputs]
        _forking[0].stdin.write(json.dumps(request) + "\n")
        _forking[0].stdin.flush()
        code = int(_forking[0].stdout.readline())
        return subprocess.CompletedProcess(command, code, *(path.read_text() for path in outputs))


def end() -> None:
    """End the process that forks, if there is one."""
    for process in _forking:
        process.communicate()
    _forking.clear()


def _serve() -> None:
    """Fork for each request; the child runs the script."""
    import gymnasium  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import mindspore  # noqa: F401

    import mindspore_replay.checkpoint  # noqa: F401

    sources.remember()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(**request)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(command: list[str], cwd: str, environment: dict[str, str], outputs: list[str]) -> None:
    """Run a script in this process."""
    signal.alarm(PATIENCE)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
