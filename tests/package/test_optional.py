"""Optional dependencies are loaded only where they are used; the error for a missing one says how to install it."""

import subprocess
import sys
from pathlib import Path

INSTALL = 'pip install -e ".[{}]" in a checkout of mindspore_replay'
#: One process for all: importing MindSpore takes seconds.
PROGRAM = """
import sys
for name in ("lz4", "ray", "yaml", "tensorboardX", "rich"):
    sys.modules[name] = None  # as if it were not installed
import mindspore_replay.training.vector
assert "gymnasium" not in sys.modules
from mindspore_replay import create_buffer, load_config
from mindspore_replay.training import TensorBoardSink, TerminalSink
shards = {"capacity": 10, "sample_size": 1, "data_shape": [[]], "data_type": ["int32"], "shards": 2}
column = {"shape": [2], "dtype": "int32"}
compressed = {"capacity": 10, "sample_size": 1, "columns": {"x": {**column, "compress": True}}}
create_buffer({**compressed, "columns": {"x": column}})
calls = (load_config, "x.yaml"), (TensorBoardSink, "runs"), (TerminalSink, "runs"), (create_buffer, shards)
calls = *calls, (create_buffer, compressed)
for function, argument in calls:
    try:
        function(argument)
    except ImportError as error:
        print(error)
"""


def test_without_what_is_optional(tmp_path: Path):
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().splitlines() == [
        f"'load_config' needs PyYAML: {INSTALL.format('examples')}",
        f"'TensorBoardSink' needs tensorboardX: {INSTALL.format('monitor')}",
        f"'TerminalSink' needs rich: {INSTALL.format('monitor')}",
        f"'mindspore_replay.distributed' needs Ray: {INSTALL.format('ray')}",
        "For 'ReplayBuffer', compress=True needs the package lz4, with the functions of the LZ4 library: "
        f"{INSTALL.format('compress')}.",
    ]
