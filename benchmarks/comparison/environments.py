"""The virtual environment of each peer, made on first use."""

import configparser
import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: What each environment needs.
REQUIREMENTS = configparser.ConfigParser()
REQUIREMENTS.read(HERE / "requirements.ini", encoding="utf-8")
#: Where virtual environments are kept, unless a command says otherwise.
ENVIRONMENTS = Path.home() / ".cache" / "mindspore_replay_benchmarks"


@dataclass(frozen=True)
class Installation:
    """The environment of a peer."""

    module: str  # in `comparison`
    arguments: tuple[str, ...] = ()
    requirements: str = ""  # a section of `REQUIREMENTS`; none for the environment that runs the comparison
    only: tuple[str, ...] = ()  # kinds of work; empty for all

    def python(self, folder: Path) -> Path:
        """Return the interpreter of an environment in the folder, reused while its requirements are the same."""
        if not self.requirements:
            return Path(sys.executable)
        needs = {key: text.split() for key, text in REQUIREMENTS[self.requirements].items()}
        digest = hashlib.sha256(repr(needs).encode()).hexdigest()[:12]
        home = folder / f"{self.requirements}-{digest}"
        python = home / "bin" / "python"
        if not (home / "ready").exists():
            print(f"making the environment of {self.requirements} in {home}", file=sys.stderr, flush=True)
            _run([sys.executable, "-m", "venv", "--clear", str(home)])
            for key, packages in needs.items():
                options = ["--no-deps"] if key == "without_needs" else []
                _run([str(python), "-m", "pip", "install", "--quiet", *options, *packages])
            (home / "ready").touch()
        return python


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {result.stderr.strip()[-500:]}")


OURS, LIMIT = "mindspore_replay", "limit"
#: Every peer by its name in the results. This project comes first.
PEERS: dict[str, Installation] = {
    OURS: Installation("peers.mindspore_replay"),
    "numpy ring": Installation("peers.numpy_ring"),
    "numpy ring + mindspore": Installation("peers.numpy_ring_mindspore", only=("dqn",)),
    "cpprb": Installation("peers.cpprb", requirements="cpprb"),
    "torchrl": Installation("peers.torchrl", requirements="torchrl"),
    "flashbax": Installation("peers.flashbax", requirements="flashbax"),
    "stable-baselines3": Installation("peers.stable_baselines3", requirements="stable_baselines3"),
    "rlox": Installation("peers.rlox", requirements="rlox"),
    "tianshou": Installation("peers.tianshou", requirements="tianshou"),
    "dm-reverb": Installation("peers.reverb", requirements="reverb"),
    LIMIT: Installation("peers.limit"),
}
#: Those of the other comparisons.
QUEUES: dict[str, Installation] = {
    OURS: Installation("queues", ("ours",)),
    f"{OURS}, `ReplayBuffer`": Installation("queues", ("buffer",)),  # these two do not wait
    "a private buffer": Installation("queues", ("private",)),
    "standard library": Installation("queues", ("plain",)),
    "echo": Installation("queues", ("echo",), "echo"),
    "torchrl": Installation("queues", ("torchrl",), "torchrl"),
    "dm-reverb": Installation("queues", ("reverb",), "reverb"),
}
INSERT: dict[str, Installation] = {
    OURS: Installation("queues", ("large",)),
    "dm-reverb": Installation("queues", ("table",), "reverb"),
    "torchrl": Installation("queues", ("shared",), "torchrl"),
}
LARGER: dict[str, Installation] = {
    f"{OURS}, folder": Installation("larger", ("folder",)),
    "torchrl": Installation("larger", ("torchrl",), "torchrl"),
    "rlox": Installation("larger", ("rlox",), "rlox"),
    f"{OURS}, in memory, no limit": Installation("larger", ("unlimited",)),
    f"{OURS}, in memory, limit": Installation("larger", ("memory",)),
}
LENGTHS: dict[str, Installation] = {
    f"{OURS}, in memory": Installation("lengths", ("memory",)),
    f"{OURS}, in a folder": Installation("lengths", ("folder",)),
    "a list in the process": Installation("lengths", ("list",)),
    "torchrl, `LazyStackStorage`": Installation("lengths", ("torchrl",), "transfer_queue"),
    "TransferQueue, `SimpleStorage`": Installation("lengths", ("transfer_queue",), "transfer_queue"),
}
DURABILITY: dict[str, Installation] = {
    "folder, uniform": Installation("durable", ("folder",)),
    "folder, by priority": Installation("durable", ("priority",)),
    "folder, flushed every second": Installation("durable", ("flushed",)),
    "memory": Installation("durable", ("memory",)),
    "NumPy's mapped file, flushed every second": Installation("durable", ("mapped",)),
    "SQLite": Installation("durable", ("sqlite",)),
}
COMPRESSED: dict[str, Installation] = {
    "without compression": Installation("compressed", ("ours", "plain")),
    "compressed": Installation("compressed", ("ours", "compressed")),
    "torchrl, zlib": Installation("compressed", ("torchrl",), "compressed"),
    **{
        f"{name}, {codec}": Installation("compressed", (module, codec.replace(" ", "")), "compressed")
        for name, module, codecs in (
            ("list", "list", ("lz4", "zstd 1", "zstd 3")),
            ("sb3-extra-buffers", "sb3_extra_buffers", ("rle", "lz4", "zstd")),
        )
        for codec in codecs
    },
}
