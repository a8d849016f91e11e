"""Runs a program several times, in forks of one process that has imported MindSpore, and not this package."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def run_each(program: Path, runs: Sequence[Sequence[str]]) -> list[subprocess.CompletedProcess]:
    """Run a program with each of these lists of arguments, one after the other, in its folder."""
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "GLOG_v": "3"}
    command = [sys.executable, "-W", "ignore", __file__, str(program)]
    done = subprocess.run(
        command, input=json.dumps(runs), capture_output=True, text=True, cwd=program.parent, env=environment
    )
    assert done.returncode == 0, done.stderr
    return [subprocess.CompletedProcess(run, *found) for run, found in zip(runs, json.loads(done.stdout), strict=True)]


def _main() -> None:
    import mindspore  # noqa: F401

    found = []
    for arguments in json.load(sys.stdin):
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            child = os.fork()
            if child == 0:
                for number, file in enumerate((output, errors), 1):
                    os.dup2(file.fileno(), number)
                sys.argv, sys.path[0] = [sys.argv[1], *arguments], str(Path(sys.argv[1]).parent)
                module = sys.modules["program"] = ModuleType("program")
                module.__file__ = sys.argv[0]
                # MindSpore looks at all callers when it traces, and those of an import have no source.
                exec(compile(Path(sys.argv[0]).read_text(), sys.argv[0], "exec"), vars(module))
                sys.stdout.flush()
                os._exit(0)  # MindSpore may be tracing
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found.append((code, *(file.seek(0) or file.read() for file in (output, errors))))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main()
