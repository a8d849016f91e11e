"""Programs in processes that fork from one which has imported MindSpore, and so start at once.

Run as a program, this file is that process: it reads requests and answers each with an exit code. It also parses
what its programs parsed for their graphs, so that each function is parsed once.
"""

import gc
import json
import marshal
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import sources
from places import ROOT

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
        result = subprocess.CompletedProcess(command, code, *(path.read_text() for path in outputs))
    warned = re.findall(rf"^(?:{re.escape(str(ROOT))}|\S+/mindspore_replay)/.*Warning: .*", result.stderr, re.MULTILINE)
    assert not warned, f"warnings of our own: {warned}"
    return result


def end() -> None:
    """End the process that forks, if there is one."""
    for process in _forking:
        process.communicate()
    _forking.clear()


def _serve() -> None:
    """Fork for each request; the child runs the script."""
    import gymnasium  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.pyplot  # noqa: F401
    import mindspore  # noqa: F401
    import tqdm  # noqa: F401

    import mindspore_replay.checkpoint  # noqa: F401

    sources.remember()
    gc.collect()
    gc.freeze()  # MindSpore collects garbage for each graph
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as parsed:
            child = os.fork()
            if child == 0:
                _become(**request, parsed=parsed)
                return
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            parsed.seek(0)
            _parse(parsed.read())


def _parse(parsed: bytes) -> None:
    """Parse what a program has parsed for its graphs, for those to come."""
    from asttokens import ASTTokens
    from mindspore.graph._parse.parser import Parser

    found, texts = marshal.loads(parsed) if parsed else ({}, {})
    sources.found.update(found)
    for key, (text, offset) in texts.items():
        Parser.ast_cache[key] = ASTTokens(text, parse=True), offset


def _become(command: list[str], cwd: str, environment: dict[str, str], outputs: list[str], parsed: IO[bytes]) -> None:
    """Run a script in this process, and write to a file what it parsed."""
    from mindspore.graph._parse.parser import Parser

    signal.alarm(PATIENCE)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
    found, trees = set(sources.found), set(Parser.ast_cache)
    try:
        runpy.run_path(command[0], run_name="__main__")
    finally:
        texts = {key: (tree.text, offset) for key, (tree, offset) in Parser.ast_cache.items() if key not in trees}
        parsed.write(marshal.dumps(({code: sources.found[code] for code in sources.found if code not in found}, texts)))
        parsed.flush()


if __name__ == "__main__":
    _serve()
