"""What does without MindSpore. `.ci/run` runs this file in an environment without it too, beside a learner with it."""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import blocks_of
from places import ROOT, TESTS

from mindspore_replay import host
from mindspore_replay.cli import main
from mindspore_replay.datasets import from_hdf5, from_npz, to_npz
from mindspore_replay.datasets.steps import BFLOAT16, numbers_of

GOLDEN = TESTS / "golden"
DRAWS: dict[str, Any] = json.loads((GOLDEN / "draws.json").read_text())
INSTALL = 'pip install -e ".[mindspore]" in a checkout of mindspore_replay'
IS_THERE = importlib.util.find_spec("mindspore") is not None


def sources(buffer: Any) -> tuple[Any, ...]:
    return buffer.sources if isinstance(buffer, host.MixedReplay) else (buffer,)


@pytest.mark.parametrize("name", DRAWS)
def test_files_of_learners_give_the_same_samples(name: str, tmp_path: Path):
    buffer = host.load(GOLDEN / f"{name}.safetensors")
    host.save(buffer, tmp_path / "again")
    again = host.load(tmp_path / "again")
    for part, same in zip(sources(buffer), sources(again), strict=True):
        part.check_valid()
        for key, array in part.state_dict().items():
            np.testing.assert_array_equal(same.state_dict()[key], array, err_msg=key)
    types = sources(buffer)[0].spec.columns.dtypes
    for expected in DRAWS[name]:
        batch = buffer.sample()
        for got, values, dtype in zip(batch, expected, [""] * (len(batch) - len(types)) + [*types], strict=True):
            numbers = numbers_of(got.view(BFLOAT16)) if dtype == "bfloat16" else got
            # Importance weights are powers, which differ in the last bits.
            rtol = 1e-5 if numbers.dtype.kind == "f" else 0
            np.testing.assert_allclose(numbers.astype(np.float64), np.array(values, np.float64), rtol=rtol)


@pytest.mark.parametrize("name", ["uniform", "sequence", "types"])
def test_datasets_go_there_and_back(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = GOLDEN / f"{name}.safetensors"
    buffer, arguments = host.load(file), {"sequence_length": 2} if name == "sequence" else {}
    to_npz(buffer, tmp_path / "rows.npz")
    kind = getattr(host, type(buffer).__name__)
    to_npz(from_npz(tmp_path / "rows.npz", buffer_cls=kind, sample_size=1, **arguments), tmp_path / "again.npz")
    assert (tmp_path / "rows.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    assert main(["inspect", str(file)]) == 0
    assert f"{kind.__name__}(" in capsys.readouterr().out


def test_d4rl_files(tmp_path: Path):
    h5py = pytest.importorskip("h5py")
    steps = {"observations": np.float32([1, 2, 3, 4]), "actions": np.arange(4), "rewards": np.ones(4, np.float32)}
    steps |= {"terminals": np.arange(4) == 1, "timeouts": np.arange(4) == 3}
    np.savez(tmp_path / "steps.npz", **steps)
    with h5py.File(tmp_path / "steps.hdf5", "w") as file:
        for key, array in steps.items():
            file[key] = array
    arguments: dict[str, Any] = {"buffer_cls": host.EpisodeReplayBuffer, "max_episode_length": 3}
    first, second = from_npz(tmp_path / "steps.npz", **arguments), from_hdf5(tmp_path / "steps.hdf5", **arguments)
    assert first.get_item(range(4))[0].tolist() == [1, 2, 3, 4]
    for key in ("column.observation", "flags"):
        np.testing.assert_array_equal(first.state_dict()[key], second.state_dict()[key])


WITHOUT = """
import sys
sys.modules["mindspore"] = None
import mindspore_replay
from mindspore_replay import datasets, distributed, host
for module in (mindspore_replay, distributed):
    for name in module.__all__:
        try:
            getattr(module, name)
        except ImportError as error:
            print(error)
try:
    import mindspore_replay.compat
except ImportError as error:
    print(error)
try:
    datasets.from_npz(sys.argv[1])
except ImportError as error:
    print(error)
assert not [name for name in sys.modules if name.startswith("mindspore.")]
"""


def test_what_needs_mindspore_says_how_to_install_it(tmp_path: Path):
    np.savez(tmp_path / "rows.npz", reward=np.ones(3, np.float32))
    command = [sys.executable, "-c", WITHOUT, tmp_path / "rows.npz"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    pattern = rf"'mindspore_replay\.[\w.]+' needs MindSpore: {re.escape(INSTALL)}; mindspore_replay\.host contains .*"
    assert [line for line in done.stdout.splitlines() if not re.fullmatch(pattern, line)] == []
    refused = re.findall(r"'mindspore_replay\.([\w.]+)'", done.stdout)
    assert {"ReplayBuffer", "TrainingCheckpoint", "load", "distributed.ShardedReplay", "compat"} <= set(refused)
    assert not {"NStep", "RateLimiter", "SharedWeights", "attach", "columns_of", "save"} & set(refused)
    assert refused[-1] == "ReplayBuffer"


@pytest.mark.skipif(IS_THERE, reason="test_pages.py runs all blocks where MindSpore is")
def test_its_page_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    text = (ROOT / "docs" / "host.md").read_text(encoding="utf-8")
    alone, _, beside = text.partition("## Beside a learner with MindSpore")
    monkeypatch.chdir(tmp_path)
    for block in blocks_of("host", alone):
        Path(block.name).write_text(block.code, encoding="utf-8")
        runpy.run_path(block.name, run_name="__main__")
        assert capsys.readouterr().out == block.output, block.name
    for block in blocks_of("host", beside):
        with pytest.raises(ImportError, match=re.escape(INSTALL)):
            exec(block.code, {})


LEARNS = """
import sys
import mindspore, numpy
import mindspore_replay
columns = {"shapes": [(3,), ()], "types": ["float32", "bfloat16"], "names": ["observation", "reward"]}
buffer = mindspore_replay.PrioritizedReplayBuffer(4, 64, **columns, storage=sys.argv[1], seed=0)
buffer.limiter = mindspore_replay.RateLimiter(samples_per_insert=1, min_size=8, error_buffer=1000)
print(numpy.__version__, flush=True)
sys.stdin.readline()
batch = buffer.sample(as_dict=True)
buffer.update_priorities(batch["indices"], batch["reward"].astype(mindspore.float32) + 1)
print(len(buffer), batch["observation"].asnumpy().tolist(), batch["indices"].asnumpy().tolist(), flush=True)
sys.stdin.readline()
print(len(buffer), buffer.info([0])[0].asnumpy().tolist())
buffer.close()
"""
#: A Python with MindSpore.
LEARNER = os.environ.get("LEARNER", sys.executable if IS_THERE else "")


@pytest.mark.skipif(not LEARNER, reason="LEARNER must name a Python that has MindSpore")
def test_an_actor_beside_a_learner(tmp_path: Path):
    command = [LEARNER, "-W", "ignore", "-c", LEARNS, tmp_path / "rows"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, cwd=tmp_path, text=True) as learner:  # type: ignore[call-overload]
        version = learner.stdout.readline()
        assert version.startswith("1."), version
        actor = host.attach(tmp_path / "rows")
        steps = np.arange(20, dtype=np.float32)
        actor.insert({"observation": np.repeat(steps[:, None], 3, 1), "reward": steps.tolist()})
        learner.stdin.write("\n")
        learner.stdin.flush()
        size, observation, indices = re.fullmatch(r"(\d+) (\[\[.*\]\]) (\[.*\])\n", learner.stdout.readline()).groups()
        drawn = json.loads(indices)
        assert (size, json.loads(observation)) == ("20", [[i, i, i] for i in drawn])
        assert actor.info(drawn)[0].tolist() == [i + 1 for i in drawn]  # priorities that the learner has set
        assert actor.update_priorities([0], [7.0]) == 0
        actor.sample()
        learner.stdin.write("\n")
        learner.stdin.flush()
        assert learner.stdout.readline() == "20 [7.0]\n"
    assert learner.returncode == 0
    assert actor.closed
