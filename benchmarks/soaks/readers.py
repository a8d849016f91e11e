"""Reads files that a fuzzer makes, in place of those of strangers.

Readers are ``checkpoint``, ``npz``, ``hdf5``, ``yaml``, ``folder``, whose rows are then used, and ``damaged``, a
checkpoint that must be refused; the default is each in turn. A checksum of a header is made to fit, but in the last,
since an attacker would do so too. A fault is any error but those that the readers document, a crash, more than 2 GB of
memory, or 20 seconds of the processor for one file.

The last lines name the input of a fault.
"""

import argparse
import contextlib
import importlib
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
READERS = ("checkpoint", "npz", "hdf5", "yaml", "folder", "damaged")
#: Of the compiler, for kernels under sanitizers.
FLAGS = ["-std=c++17", "-g1", "-O1", "-pthread", "-shared", "-fPIC"]
FLAGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
#: Bytes that a buffer made from a file may have.
MEMORY = 1 << 28
#: Seconds of the processor that a file may take.
LONGEST = 20
#: Numbers that are often at a limit.
LIMITS = [0, 1, -1, 2**7, 2**8, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63)]


class Readers:
    """What reads files, with inputs to begin with."""

    def __init__(self, folder: Path) -> None:
        self.strangers: Any = importlib.import_module("strangers")
        self.headers: Any = importlib.import_module("headers")
        self.folder_class: Any = importlib.import_module("mindspore_replay.store.folder.folder").Folder
        self.folder = folder
        importlib.import_module("mindspore_replay.checkpoint.buffers").memory_limit = lambda: MEMORY  # type: ignore[attr-defined]
        self.checkpoint = self.strangers.Checkpoint(folder / "checkpoint")
        self.strangers.make(storage=folder / "rows").close()
        self.whole = {path.name: path.read_bytes() for path in (folder / "rows").iterdir()}
        self.saved = self.checkpoint.path.read_bytes()

    def seeds(self, reader: str) -> list[bytes]:
        """Return inputs to begin with."""
        strangers, checkpoint = self.strangers, self.checkpoint
        if reader == "yaml":
            return [text.encode(errors="surrogateescape") for text in strangers.YAML.values()]
        if reader == "npz":
            return [members[0][1] for members in strangers.NPZ.values()]
        if reader == "hdf5":
            return [self.hdf5_file(**others) for others in strangers.HDF5.values()]
        if reader == "folder":
            return [b"\0" * 13, bytes(range(52)), self.whole["header"][24:]]
        if reader == "damaged":
            return [self.saved]
        found = []
        for change in strangers.CHECKPOINTS.values():
            change(checkpoint)
            content = checkpoint.path.read_bytes()
            if len(content) < 10_000:
                found.append(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return found

    def read(self, reader: str, data: bytes) -> None:
        """Read an input; raise an error that no reader documents."""
        begin = time.process_time()
        with contextlib.suppress(OSError, TypeError, ValueError):
            {
                "checkpoint": self.load,
                "folder": self.rows,
                "npz": self.npz,
                "hdf5": self.hdf5,
                "yaml": self.yaml,
                "damaged": self.damaged,
            }[reader](data)
        if (seconds := time.process_time() - begin) > LONGEST:
            raise TimeoutError(f"{seconds} seconds of the processor")

    def yaml(self, data: bytes) -> None:
        (self.folder / "yaml").write_bytes(data)
        self.strangers.load_config(self.folder / "yaml")

    def npz(self, data: bytes) -> None:
        path = self.folder / "npz"
        if data[:2] == b"PK":
            path.write_bytes(data)
        else:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("x.npy", data)
        self.strangers.READERS["npz"](path)

    def hdf5_file(self, **others: Any) -> bytes:
        """Return the content of a file of the corpus."""
        with self.strangers.h5py.File(self.folder / "hdf5", "w") as file:
            self.strangers.d4rl(file, **others)
        return (self.folder / "hdf5").read_bytes()

    def hdf5(self, data: bytes) -> None:
        (self.folder / "hdf5").write_bytes(data)
        self.strangers.READERS["hdf5"](self.folder / "hdf5")

    def load(self, data: bytes) -> None:
        self.checkpoint.write(data.decode("latin-1"))
        self.strangers.host.load(self.folder / "checkpoint")

    def damaged(self, data: bytes) -> None:
        self.checkpoint.path.write_bytes(data)
        with contextlib.suppress(ValueError):
            self.strangers.host.load(self.checkpoint.path)
            assert data == self.saved, "a damaged file was read"

    def rows(self, data: bytes) -> None:
        """Change the header, or bytes and lengths of the files, of a folder; then use its rows."""
        shutil.rmtree(self.folder / "rows")
        (self.folder / "rows").mkdir()
        for name, content in self.whole.items():
            (self.folder / "rows" / name).write_bytes(content)
        if data[:1] == b"{":
            self.headers.write_header(self.folder / "rows", data)
        for i in range(0, len(data) - 12 if data[:1] != b"{" else 0, 13):
            self.change(data[i : i + 13])
        host, was = self.strangers.host, lambda _: "it is a copy" * (len(data) % 4 == 1)
        with mock.patch.object(self.folder_class, "_stopped", was):
            if len(data) % 3 == 0:
                buffer = host.attach(self.folder / "rows", timeout=0.01)
            else:
                buffer = host.PrioritizedReplayBuffer.open(self.folder / "rows", verify=len(data) % 2 == 0)
        with contextlib.suppress(RuntimeError, TimeoutError):  # too few rows; a lock that nobody gives back
            for _ in range(3):
                indices = buffer.sample()[0]
                buffer.insert([[[1.0, 2.0]] * 3, [1, 2, 3]])
                buffer.update_priorities(indices, [1.0, 2.0])
                buffer.get_item(range(-len(buffer), 0))
                buffer.delete(indices[:1])
        buffer.close()

    def change(self, record: bytes) -> None:
        """Change bytes of a file of the folder, more often of the state; or cut it off, add to it or remove it."""
        names = ["state", "state", *sorted(filter(self.whole.get, self.whole))]
        name, how = names[record[12] // 8 % len(names)], record[12] // 64
        path, content = self.folder / "rows" / name, self.whole[name]
        at, new = int.from_bytes(record[:4], "little") % len(content), record[4 : 5 + record[12] % 8]
        if how == 3 and at % 2:
            path.unlink(missing_ok=True)
        elif path.exists():
            with path.open("r+b") as file:
                file.seek(at)
                file.write(new[: None if how == 2 else len(content) - at])
                if how == 3:
                    file.truncate(at)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return an input that differs in a few places."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4, 8])):
        at, kind = chance.randrange(len(changed) + 1), chance.randrange(5)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice([1, 4, 13])))
        elif kind == 2:
            del changed[at : at + chance.choice([1, 2, 8, 64])]
        elif kind == 3:
            limit = chance.choice(LIMITS)
            changed[at : at + 8] = chance.choice([str(limit).encode(), (limit % 2**64).to_bytes(8, "little")])
        else:
            begin = chance.randrange(len(changed) + 1)
            changed[at:at] = changed[begin : begin + chance.choice([4, 16, 64])]
    return bytes(changed)


def plain(readers: Readers, names: Sequence[str], n: int, seed: int) -> None:
    """Read n inputs of each reader with random changes."""
    chance = random.Random(seed)
    for name in names:
        inputs = readers.seeds(name)
        for i in range(n):
            data = mutated(chance.choice(inputs), chance) if i else inputs[0]
            try:
                readers.read(name, data)
            except BaseException:
                print(f"{name}: input {data!r}", file=sys.stderr)
                raise
        print(f"{name}: {n} inputs", flush=True)


def guided(name: str, seconds: int) -> None:
    """Read inputs of a reader for so many seconds, changed so that new lines are reached."""
    import atheris

    with atheris.instrument_imports(include=["mindspore_replay", "yaml"]), tempfile.TemporaryDirectory() as folder:
        readers = Readers(Path(folder))
        (corpus := Path(folder, "corpus")).mkdir()
        for i, data in enumerate(readers.seeds(name)):
            (corpus / str(i)).write_bytes(data)
        options = [
            f"-max_total_time={seconds}",
            "-timeout=600",
            "-rss_limit_mb=2048",
            "-max_len=8192",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: readers.read(name, data))
        atheris.Fuzz()


def sanitized(arguments: Sequence[str]) -> int:
    """Run this program with kernels that are compiled with sanitizers, and return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        copy, compiler = Path(folder, "mindspore_replay"), os.environ.get("CXX", "g++")
        shutil.copytree(ROOT / "mindspore_replay", copy, ignore=shutil.ignore_patterns("__pycache__", "_kernels*"))
        sources = map(str, (copy / "csrc" / "cpu").glob("*.cc"))
        subprocess.run(
            [compiler, *FLAGS, "-I", str(copy / "csrc"), *sources, "-o", str(copy / "_kernels.akg_kernel_meta.so")],
            check=True,
        )
        runtime = subprocess.run(
            [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout
        environment = {
            **os.environ,
            "PYTHONPATH": folder,
            "LD_PRELOAD": runtime.strip(),
            "ASAN_OPTIONS": "detect_leaks=0:handle_sigbus=0:allocator_may_return_null=1",
        }
        return subprocess.run([sys.executable, sys.argv[0], *arguments], env=environment, check=False).returncode


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--plain", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitized", action="store_true")


def run(options: argparse.Namespace) -> int:
    warnings.simplefilter("ignore")
    if options.sanitized:
        return sanitized([argument for argument in sys.argv[1:] if argument != "--sanitized"])
    sys.path.insert(0, str(SUPPORT))
    names = (options.reader,) if options.reader else READERS
    if options.plain is not None:
        with tempfile.TemporaryDirectory() as folder:
            plain(Readers(Path(folder)), names, options.plain, options.seed)
        return 0
    if options.reader:
        guided(options.reader, options.seconds)
    each = [sys.executable, sys.argv[0], "readers", "--seconds", str(options.seconds // len(names)), "--reader"]
    return max(subprocess.run([*each, name], check=False).returncode != 0 for name in names)
