"""The command line: the output of each command, its errors and exit codes."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import mindspore as ms
import numpy as np
import pytest

import mindspore_replay
from mindspore_replay import (
    EpisodeReplayBuffer,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    mindspore_api,
    save,
)
from mindspore_replay.buffers.parameters import overwrite
from mindspore_replay.checkpoint.overview import Overview, overview
from mindspore_replay.cli import doctor, main, mindspore_report
from mindspore_replay.store.kernels import library
from mindspore_replay.training.statistics import statistics_of

VERSION = re.escape(mindspore_replay.__version__)
NAMES = ["observation", "reward", "terminated"]
COLUMNS: dict[str, Any] = {"shapes": [(2,), (), ()], "types": ["float32", "float32", "bool"], "names": NAMES, "seed": 0}


def insert(buffer: ReplayBuffer, first: int, n: int, length: int = 5, **flags: Any) -> None:
    """Insert rows whose rewards are their numbers, in episodes of this length."""
    number = np.arange(first, first + n)
    ends = number % length == length - 1
    buffer.insert([np.zeros((n, 2), np.float32), number.astype(np.float32), ends], **flags)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def used() -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(sample_size=4, capacity=20, **COLUMNS, max_use=9)
    insert(buffer, 0, 33)
    buffer.update_priorities(buffer.sample()[0], np.float32([1, 2, 3, 4]))
    return buffer


def test_inspect_says_what_the_buffer_says(folder: Path, capsys: pytest.CaptureFixture[str]):
    buffer = used()
    save(buffer, "buffer.safetensors")
    assert main(["inspect", "buffer.safetensors", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    values, histograms = statistics_of(buffer.state_dict())
    for name, value in values.items():
        assert found[name] == pytest.approx(value), name
    assert found["priority"]["counts"] == histograms["priority"].counts.tolist()
    assert found["age"]["edges"] == histograms["age"].edges.tolist()
    # Rows 13 to 32 are stored: episodes 15 to 19, 20 to 24, 25 to 29 are whole.
    assert (found["episodes"], found["return_mean"], found["return_max"]) == (3, 110, 135)
    assert found["samples_per_insert"] == 4 / 33
    assert found["columns"]["terminated"] == {"dtype": "bool", "shape": []}
    assert found["columns"]["observation"] == {"dtype": "float32", "shape": [2]}
    assert found["description"]["class"] == "PrioritizedReplayBuffer"
    assert found["library_version"] == mindspore_replay.__version__


def test_inspect_prints(folder: Path, capsys: pytest.CaptureFixture[str]):
    save(used(), "buffer.safetensors")
    assert main(["inspect", "buffer.safetensors"]) == 0
    text = capsys.readouterr().out
    assert re.match(rf"buffer.safetensors: [\d,]+ bytes on the disk, written by mindspore_replay {VERSION}\n", text)
    assert re.search(r"^PrioritizedReplayBuffer\(sample_size=4, max_use=9\)$", text, re.MULTILINE)
    assert re.search(r"^    observation +float32 \[2\]$", text, re.MULTILINE)
    assert re.search(r"^    inserted +33$", text, re.MULTILINE)
    assert re.search(r"^    priority +1 \|[ ▁-█]+\| \d", text, re.MULTILINE)


def test_inspect_of_several_buffers(folder: Path, capsys: pytest.CaptureFixture[str]):
    expert, agent = ReplayBuffer(sample_size=4, capacity=10, **COLUMNS), used()
    other = ReplayBuffer(sample_size=1, capacity=5, shapes=[()], types=["int8"])
    save({"mixed": MixedReplay([(agent, 0.5), (expert, 0.5)], 4), "other": other}, "all")
    assert main(["inspect", "all"]) == 0
    text = capsys.readouterr().out
    assert "\nmixed/0: PrioritizedReplayBuffer(" in text
    assert "\nmixed/1: ReplayBuffer(" in text
    assert "\nother: ReplayBuffer(" in text
    assert main(["inspect", "all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[name]["rows"] for name in ("mixed/0", "mixed/1", "other")] == [20, 0, 0]


def test_an_overview_of_a_ring_that_went_round(folder: Path):
    buffer = ReplayBuffer(sample_size=2, capacity=12, **COLUMNS)
    insert(buffer, 0, 16)
    save(buffer, "buffer")
    (part,), nbytes = overview("buffer")
    assert nbytes == sum(path.stat().st_size for path in folder.iterdir())
    assert part.returns.tolist() == [35, 60]  # 5 to 9 and 10 to 14; of 0 to 4 only the last is left


def part_of(buffer: ReplayBuffer) -> Overview:
    """Save a buffer, and return the overview of its file."""
    save(buffer, "buffer")
    return overview("buffer")[0][0]


def test_returns_of_several_environments(folder: Path):
    """Rows of two environments in turn: 0, 2, 4, ... have their numbers as rewards, and so do 1, 3, 5, ..."""
    buffer = SequenceReplayBuffer(sample_size=1, capacity=40, sequence_length=2, num_envs=2, **COLUMNS)
    insert(buffer, 0, 14, 99, end=np.isin(np.arange(14), [4, 7, 10]))
    assert part_of(buffer).returns.tolist() == [0 + 2 + 4, 1 + 3 + 5 + 7, 6 + 8 + 10]
    buffer.buffer[1].asnumpy()[...] *= -1
    assert part_of(buffer).returns.tolist() == [-6, -16, -24]  # in the order of their ends
    assert list(part_of(buffer).fields) == NAMES


def test_truncated_episodes_end(folder: Path):
    names, types = ["reward", "terminated", "truncated"], ["float32", "bool", "bool"]
    buffer = ReplayBuffer(sample_size=1, capacity=9, shapes=[(), (), ()], types=types, names=names)
    ends = np.arange(6)
    buffer.insert([np.ones(6, np.float32), ends == 1, ends == 4])
    assert part_of(buffer).returns.tolist() == [2, 3]


def test_returns_of_rows_that_know_their_episode(folder: Path):
    """A final row's reward does not count; an oldest episode that is whole counts, even if older rows are lost."""
    buffer = EpisodeReplayBuffer(sample_size=1, capacity=6, max_episode_length=3, **COLUMNS)
    for _ in range(3):
        buffer.insert([np.zeros((2, 2), np.float32), np.float32([1, 2]), np.zeros(2, bool)], end=[False, False])
        buffer.insert([np.zeros(2, np.float32), 100.0, False], final=True)
    assert part_of(buffer).returns.tolist() == [3, 3]


def test_one_reward_that_is_no_number_spoils_one_return(folder: Path, capsys: pytest.CaptureFixture[str]):
    buffer = ReplayBuffer(sample_size=1, capacity=20, **COLUMNS)
    insert(buffer, 0, 15)
    column = buffer.buffer[1].asnumpy().copy()
    column[2] = np.nan
    overwrite(buffer.buffer[1], column)
    assert part_of(buffer).returns[1:].tolist() == [35, 60]
    assert main(["inspect", "buffer", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (found["episodes"], found["return_mean"]) == (3, None)


def test_inspect_of_what_cannot_be_made_from_a_file(folder: Path, capsys: pytest.CaptureFixture[str]):
    buffer = type("Mine", (ReplayBuffer,), {})(1, 20, **COLUMNS)
    insert(buffer, 0, 10)
    assert set(part_of(buffer).fields) == set(NAMES)
    assert main(["inspect", "buffer"]) == 0
    assert "Mine(" in capsys.readouterr().out


def test_a_reservoir_has_no_returns(folder: Path):
    buffer = ReservoirReplayBuffer(sample_size=2, capacity=6, **COLUMNS)
    insert(buffer, 0, 30)
    part = part_of(buffer)
    assert part.returns.size == 0
    assert statistics_of(part.state).values == statistics_of(buffer.state_dict()).values


@pytest.mark.cpu_only("tests the report of a process on the CPU")
def test_doctor(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[:6] == [
        f"kernels: {mindspore_replay.kernel_status().library}",
        "backend: native: insert and sample work, in a graph and from Python",
        f"MindSpore {ms.__version__}",
        f"NumPy {np.__version__}",
        "all is well",
        "",
    ]
    assert f"Python {platform.python_version()}, {platform.platform()}\n" in text
    assert f"imported from {Path(mindspore_replay.__file__).parent}\n" in text
    assert "\nbuffers on arrays: insert and sample work\n" in text
    assert re.search(rf"^  processor: .+, {os.cpu_count()} cores$", text, re.MULTILINE)
    total, available = map(float, re.search(r"  memory: (\S+) GiB, (\S+) GiB of it", text).groups())
    assert 0 < available < total
    assert re.search(r"^  graphics card: .+", text, re.MULTILINE)
    assert "  buffer.insert(rows): compiles as written\n" in text
    for backend in ("native", "composite"):
        assert f"  {backend} backend: insert and sample work, in a graph and from Python\n" in text
    assert "  calls from Python: of the kernels\n" in text
    assert "\ndevices\n  CPU: in use\n  GPU: " in text
    cuda = r"the CUDA kernels for one are built, and they load|the CUDA kernel library .+"
    assert re.search(rf"^  GPU: .+; ({cuda})$", text, re.MULTILINE)
    missing = r'is not there: pip install -e "\.\[\w+\]" in a checkout of mindspore_replay'
    for package in ("lz4", "minari", "ray", "rich"):
        assert re.search(rf"^  {package} (\d.*|{missing})$", text, re.MULTILINE)


def test_doctor_lists_private_names_if_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(mindspore_report, "_devices", dict)
    monkeypatch.setattr(mindspore_report, "_try", lambda backend: "")
    names = "".join(f"\n  {name}: {found}" for name, found in mindspore_api.NAMES.items())
    assert main(["doctor"]) == 0
    assert "private names" not in capsys.readouterr().out
    assert main(["doctor", "--all"]) == 0
    assert f"\nprivate names of MindSpore{names}\n" in capsys.readouterr().out


def test_doctor_finds_what_does_not_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(mindspore_report, "_devices", dict)
    monkeypatch.setattr(ReplayBuffer, "size", lambda self: 3)
    monkeypatch.setattr(mindspore_report.np, "__version__", "2.1.0")
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "\nbackend: native: it gives wrong rows\n" in captured.out
    assert captured.out.splitlines()[2:6] == [f"MindSpore {ms.__version__}", "NumPy 2.1.0", "3 problems", ""]
    assert "PROBLEM: the native backend: it gives wrong rows\n" in captured.err
    told = "NumPy 2.1.0: MindSpore is compiled against NumPy 1: pip install 'numpy<2' 'scipy<1.14'"
    assert f"PROBLEM: {told}\n" in captured.err


def test_doctor_finds_a_source_folder_that_shadows_the_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(mindspore_report, "_devices", dict)
    monkeypatch.setattr(mindspore_report, "_try", lambda backend: "")
    source, used = folder / "mindspore_replay", Path(mindspore_replay.__file__).parent
    source.mkdir()
    assert main(["doctor"]) == 0
    (source / "__init__.py").touch()
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        f"PROBLEM: for a prompt or script in this folder, the package in {source} has no kernels, the installed one in "
        f"{used} has: start Python outside of {folder}, or build the kernels there with pip install -e {folder}\n"
    )
    (source / "_kernels.akg_kernel_meta.so").touch()
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        f"PROBLEM: for a prompt or script in this folder, Python imports the package in {source}, and not the "
        f"installed one in {used}: start Python outside of {folder}\n"
    )
    (source / "__init__.py").unlink()
    monkeypatch.setattr(mindspore_report.native, "why_not", lambda device=None: "there is no compiler")
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "PROBLEM: the native backend: not in use: there is no compiler\n"


def test_doctor_finds_an_installed_package_that_was_not_imported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(mindspore_report, "report", lambda everything: ([], [], []))
    monkeypatch.setattr(mindspore_report, "_devices", dict)
    installed, used = folder / "site" / "mindspore_replay", Path(mindspore_replay.__file__).parent
    installed.mkdir(parents=True)
    monkeypatch.syspath_prepend(installed.parent)
    assert main(["doctor"]) == 0  # a folder without __init__.py is no package
    (installed / "__init__.py").touch()
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert captured.err == (
        f"PROBLEM: Python imports the package in {used}, and not the installed one in {installed}: start Python "
        f"outside of {used.parent}\n"
    )
    assert f"imported from {used}\n" in captured.out


#: Runs the doctor where MindSpore is not installed, or fails while it is imported.
NO_MINDSPORE = """
import sys
if sys.argv[1:]:
    sys.path.insert(0, sys.argv[1])
else:
    sys.modules["mindspore"] = None
from mindspore_replay.cli import main
sys.exit(main(["doctor"]))
"""


def test_doctor_without_mindspore():
    result = subprocess.run([sys.executable, "-c", NO_MINDSPORE], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[:6] == [
        f"kernels: {library.library_for('CPU').path}",
        "backend: none, without MindSpore; buffers on arrays: insert and sample work",
        'MindSpore is not installed; buffers in graphs need it: pip install -e ".[mindspore]" in a checkout of '
        "mindspore_replay",
        f"NumPy {np.__version__}",
        "all is well",
        "",
    ]
    assert (
        "\nthese work without it: mindspore_replay.host with all its buffers, attach, save, load, configurations and "
        "datasets; mindspore-replay inspect; the process of a shard\n"
    ) in result.stdout


def test_doctor_with_a_mindspore_that_cannot_be_imported(folder: Path):
    (folder / "mindspore.py").write_text("import numpy\nraise ImportError('numpy.core.multiarray failed to import')\n")
    result = subprocess.run([sys.executable, "-c", NO_MINDSPORE, str(folder)], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.splitlines()[4] == "1 problem"
    assert result.stderr == (
        "PROBLEM: MindSpore is installed and cannot be imported: ImportError: numpy.core.multiarray failed to import\n"
    )


NUMPY_2 = """
import numpy, sys
numpy.__version__ = "2.2.6"
sys.path.insert(0, sys.argv[1])
from mindspore_replay.cli import main
code = main(["doctor"])
for line in (
    "from mindspore_replay import ReplayBuffer",
    "import mindspore_replay; mindspore_replay.TrainingCheckpoint",
    "from mindspore_replay.distributed import ShardedReplay",
    "import mindspore_replay.compat",
    "from mindspore_replay import attach, host",
):
    try:
        exec(line)
    except ImportError as error:
        print("ERROR", error)
sys.exit(code)
"""


@pytest.mark.parametrize("error", ["TypeError('The Numpy bfloat16 data type')", "ImportError('numpy.core.multiarray')"])
def test_numpy_2_says_what_to_install(folder: Path, error: str):
    (folder / "mindspore.py").write_text(f"raise {error}\n")
    result = subprocess.run([sys.executable, "-c", NUMPY_2, str(folder)], capture_output=True, text=True)
    reason = "NumPy 2.2.6: MindSpore is compiled against NumPy 1: pip install 'numpy<2' 'scipy<1.14'"
    assert result.returncode == 1
    assert result.stderr.endswith(f"PROBLEM: {reason}\n")
    wanted = "ReplayBuffer", "TrainingCheckpoint", "distributed.ShardedReplay", "compat"
    errors = [f"ERROR 'mindspore_replay.{name}' needs MindSpore, which cannot be used. {reason}" for name in wanted]
    assert [line for line in result.stdout.splitlines() if line.startswith("ERROR")] == errors


def test_doctor_describes_the_machine(monkeypatch: pytest.MonkeyPatch):
    cards = subprocess.CompletedProcess([], 0, "A card, 550.1, 24564 MiB\nAnother, 550.1, 8192 MiB\n", "")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: name)
    monkeypatch.setattr(doctor.subprocess, "run", lambda *args, **kwargs: cards)
    for name in doctor._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GLOG_v", "3")
    monkeypatch.setattr(doctor, "_text", lambda path: "model name\t: A processor\n" if "cpu" in path.name else "")
    assert doctor._machine() == [
        f"processor: A processor, {os.cpu_count()} cores",
        "graphics card: A card, 550.1, 24564 MiB",
        "graphics card: Another, 550.1, 8192 MiB",
        "GLOG_v=3",
    ]
    cards.returncode = 9
    assert "graphics card: nvidia-smi finds none" in doctor._machine()


def test_doctor_says_what_is_known_of_devices(monkeypatch: pytest.MonkeyPatch):
    found = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(mindspore_report.subprocess, "run", lambda *args, **kwargs: found)
    assert mindspore_report._devices() == {
        "CPU": "in use",
        "GPU": "there: mindspore.set_device chooses it",
        "Ascend": "there, but nothing has been run on it: see docs/devices.md",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "nothing.safetensors"], "inspect: [Errno 2] No such file or directory"),
        (
            ["inspect", "text.safetensors"],
            "inspect: For 'load', 'path' must be a whole file that 'save' wrote, but text",
        ),
        (
            ["inspect", "steps.npz"],
            "inspect: For 'load', 'path' must be a whole file that 'save' wrote, but steps.npz is a zip archive, as "
            "NumPy's .npz files are, which datasets.from_npz reads.",
        ),
        (
            ["inspect", "steps.hdf5"],
            "inspect: For 'load', 'path' must be a whole file that 'save' wrote, but steps.hdf5 is an HDF5 file, which "
            "datasets.from_hdf5 reads.",
        ),
    ],
)
def test_errors(folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    for name in ("text.safetensors", "text.npz"):
        Path(name).write_text("no buffer\n" * 9)
    np.savez("steps.npz", reward=np.ones(3))
    with h5py.File("steps.hdf5", "w") as file:
        file["reward"] = np.ones(3)
    assert main(arguments) == 1
    assert capsys.readouterr().err.startswith(f"mindspore-replay {message}")


def test_arguments_that_make_no_sense(capsys: pytest.CaptureFixture[str]):
    for arguments in ([], ["dance"], ["inspect"], ["inspect", "a.npz", "b.npz"]):
        with pytest.raises(SystemExit) as raised:
            main(arguments)
        assert raised.value.code == 2
    assert "argument COMMAND: invalid choice: 'dance'" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]):
    for command in ("inspect", "doctor"):
        with pytest.raises(SystemExit) as raised:
            main([command, "--help"])
        assert raised.value.code == 0
        assert f"\nExamples:\n  mindspore-replay {command}" in capsys.readouterr().out


def test_the_installed_command(folder: Path):
    """The script that pip makes shows the buffer of a view through a pipe."""
    buffer = ReplayBuffer(sample_size=2, capacity=10, **COLUMNS, views=[NStep(2, 0.9)])
    insert(buffer, 0, 10)
    save(buffer, "buffer.safetensors")
    script = Path(sys.executable).with_name("mindspore-replay")
    result = subprocess.run([script, "inspect", "buffer.safetensors", "--json"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["eligible"] == 10
