"""The virtual environment of each peer, made on first use."""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements"


@dataclass(frozen=True)
class Installation:
    """The environment of a peer.

    Args:
        module (str): Module in the package.
        arguments (tuple[str, ...]): Arguments of the module.
        requirements (str): Name of the files in `requirements`; empty for the environment that runs the comparison.
        only (tuple[str, ...]): The kinds of work that it is for; empty for all.
        package (str): Package in `comparison`.
    """

    module: str
    arguments: tuple[str, ...] = ()
    requirements: str = ""
    only: tuple[str, ...] = ()
    package: str = "peers"

    def python(self, folder: Path) -> Path:
        """Return the interpreter, with all packages of the peer.

        Args:
            folder (Path): Folder of the environments. One is reused as long as its requirements are the same.

        Raises:
            RuntimeError: If the environment cannot be made; the text is the end of pip's output.
        """
        if not self.requirements:
            return Path(sys.executable)
        files = self.files()
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
        home = folder / f"{self.requirements}-{digest}"
        python = home / "bin" / "python"
        if not (home / "ready").exists():
            print(f"making the environment of {self.requirements} in {home}", file=sys.stderr, flush=True)
            _run([sys.executable, "-m", "venv", "--clear", str(home)])
            for file in files:
                options = ["--no-deps"] if file.name.endswith(".no-deps.txt") else []
                _run([str(python), "-m", "pip", "install", "--quiet", *options, "-r", str(file)])
            (home / "ready").touch()
        return python

    def files(self) -> list[Path]:
        """Return the requirements that pip resolves, and those that it must install as they are."""
        names = f"{self.requirements}.txt", f"{self.requirements}.no-deps.txt"
        return [path for path in map(REQUIREMENTS.joinpath, names) if path.exists()]


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {result.stderr.strip()[-500:]}")


#: Every peer by its name in the results. This project comes first.
PEERS: dict[str, Installation] = {
    "mindspore_replay": Installation("mindspore_replay"),
    "numpy ring": Installation("numpy_ring"),
    "numpy ring + mindspore": Installation("numpy_ring_mindspore", only=("dqn",)),
    "cpprb": Installation("cpprb", requirements="cpprb"),
    "torchrl": Installation("torchrl", requirements="torchrl"),
    "flashbax": Installation("flashbax", requirements="flashbax"),
    "stable-baselines3": Installation("stable_baselines3", requirements="stable_baselines3"),
    "rlox": Installation("rlox", requirements="rlox"),
    "tianshou": Installation("tianshou", requirements="tianshou"),
    "DI-engine deque": Installation("di_engine", ("di_engine_deque",), "di_engine"),
    "DI-engine advanced": Installation("di_engine", ("di_engine_advanced",), "di_engine"),
    "dm-reverb": Installation("reverb", requirements="reverb"),
    "limit": Installation("limit"),
}
OURS, LIMIT = "mindspore_replay", "limit"
