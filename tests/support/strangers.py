"""Damaged and hostile files, for all that reads files from others.

    python strangers.py FOLDER

reads all of them in a new, empty folder, with little memory. Prints, as JSON, what came of each, by reader and name:
"read", or the type of the error and its text; then the bytes of memory that this took, and the files that were made.
"""

import argparse
import contextlib
import copy
import io
import json
import os
import resource
import shutil
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from headers import START, checkpoint_header, new_header

from mindspore_replay import host
from mindspore_replay.cli import inspect
from mindspore_replay.config.configuration import load_config
from mindspore_replay.datasets import from_hdf5, from_npz

#: Bytes of address space that reading may take beside what is there.
MEMORY = 1 << 30


def _inspected(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        inspect.run(argparse.Namespace(file=path, json=True, plot=None))


READERS: dict[str, Callable[[Path], Any]] = {
    "checkpoint": host.load,
    "inspect": _inspected,
    "folder": host.ReplayBuffer.open,
    "npz": lambda path: from_npz(path, buffer_cls=host.ReplayBuffer),
    "hdf5": lambda path: from_hdf5(path, buffer_cls=host.ReplayBuffer),
    "yaml": load_config,
}


def make(**options: Any) -> Any:
    """Return a small buffer with rows."""
    buffer = host.PrioritizedReplayBuffer(2, 8, [(2,), ()], ["float32", "int32"], names=["x", "y"], seed=0, **options)
    return buffer.insert([np.ones((5, 2), np.float32), np.arange(5, dtype=np.int32)])


# Checkpoints.


class Checkpoint:
    """A checkpoint whose header can be changed; checksums of headers are made to fit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        host.save(make(), path)
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        self.header, self.data = json.loads(content[8 : 8 + length]), content[8 + length :]
        self.metadata = self.header["__metadata__"]
        self.description = json.loads(self.metadata["description"])

    def write(self, header: Any) -> None:
        """Write a header, a dict or text."""
        text = (
            header.encode("latin-1") if isinstance(header, str) else json.dumps(header, separators=(",", ":")).encode()
        )
        self.path.write_bytes(checkpoint_header(text) + self.data)

    def with_metadata(self, **values: Any) -> None:
        """Write other metadata; a description is given as a dict or as JSON."""
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        self.write({**self.header, "__metadata__": {**self.metadata, **texts}})

    def with_arguments(self, **values: Any) -> None:
        """Write other arguments of the buffer."""
        arguments = {**self.description["arguments"], **values}
        self.with_metadata(description={**self.description, "arguments": arguments})

    def with_array(self, name: str, shape: list[int]) -> None:
        """Write an array of another shape, or one more of no bytes."""
        header = copy.deepcopy(self.header)
        end = len(self.data)
        header.setdefault(name, {"dtype": "I64", "data_offsets": [end, end]})["shape"] = shape
        checksums = {**json.loads(self.metadata["checksums"])}
        checksums.setdefault(name, "00000000")
        header["__metadata__"]["checksums"] = json.dumps(checksums)
        self.write(header)

    def with_value(self, name: str, value: Any) -> None:
        """Write another value of an array, with the checksum of its bytes."""
        begin, end = self.header[name]["data_offsets"]
        content = np.array(value, _DTYPES[self.header[name]["dtype"]]).tobytes()
        self.data = self.data[:begin] + content.ljust(end - begin, b"\0") + self.data[end:]
        checksums = {**json.loads(self.metadata["checksums"]), name: f"{zlib.crc32(self.data[begin:end]):08x}"}
        self.with_metadata(checksums=checksums)


_DTYPES = {"I32": np.int32, "I64": np.int64, "F64": np.float64}


def _nested(depth: int, description: Any) -> str:
    return '{"dict":{"a":' * depth + json.dumps(description) + "}}" * depth


CHECKPOINTS: dict[str, Callable[[Checkpoint], Any]] = {
    "as saved": lambda c: c.write(c.header),
    "2^63 rows": lambda c: c.with_array("column.x", [2**63, 2]),
    "2^63 of nothing": lambda c: c.with_array("column.x", [0, 2**63]),
    "a product of 2^64": lambda c: c.with_array("values/0", [0, 2**32, 2**32]),
    "a negative axis": lambda c: c.with_array("column.x", [-5, 2]),
    "62 axes": lambda c: c.with_array("column.x", [5, 2, *[1] * 60]),
    "a float axis": lambda c: c.with_array("column.x", [5.0, 2]),
    "a name with dots": lambda c: c.with_array("../../x", [0]),
    "2^63 slots": lambda c: c.with_metadata(description={**c.description, "capacity": 2**63}),
    "2^31 slots": lambda c: c.with_metadata(description={**c.description, "capacity": 2**31 - 1}),
    "more slots than memory": lambda c: c.with_metadata(description={**c.description, "capacity": 2**28}),
    "rows of 2^62": lambda c: c.with_arguments(shapes=[[2**62], []]),
    "samples of 2^62": lambda c: c.with_arguments(sample_size=2**62),
    "two columns of one name": lambda c: c.with_arguments(names=["x", "x"]),
    "a folder to write to": lambda c: c.with_arguments(storage=str(c.path.with_name("elsewhere"))),
    "a folder to read": lambda c: c.with_metadata(description={"class": "ReplayBuffer", "folder": "/etc"}),
    "a class of Python": lambda c: c.with_metadata(description={**c.description, "class": "os.system"}),
    "a class that is a list": lambda c: c.with_metadata(description={**c.description, "class": ["ReplayBuffer"]}),
    "a key twice": lambda c: c.with_metadata(description='{"class":"ReplayBuffer","class":"ReplayBuffer"}'),
    "nesting": lambda c: c.with_metadata(description=_nested(200, c.description)),
    "deep nesting": lambda c: c.with_metadata(description=_nested(100_000, c.description)),
    "an open nesting": lambda c: c.write('{"__metadata__":{"header_crc32":"00000000","a":' + "[" * 100_000),
    "numbers of 5000 digits": lambda c: c.with_metadata(note="9" * 5000),
    "a header of 2^63": lambda c: c.path.write_bytes((2**63).to_bytes(8, "little") + START),
    "nothing": lambda c: c.path.write_bytes(b""),
    **{
        f"{name} of {value}": lambda c, n=name, v=value: c.with_value(n, v)
        for name, value in (
            ("count", 2**31 - 1),
            ("count", -1),
            ("head", 2**31 - 1),
            ("serials", -(2**63)),
            ("beta", np.inf),
        )
    },
}

# Folders.


def _moved(folder: Path, name: str) -> None:
    """Put a link in place of a file."""
    (folder / name).rename(folder.parent / "moved")
    (folder / name).symlink_to(folder.parent / "moved")


def _fifo(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


FOLDERS: dict[str, Callable[[Path], Any]] = {
    "as closed": lambda f: None,
    **{f"a link to {name}": lambda f, n=name: _moved(f, n) for name in ("header", "state", "columns", "owner")},
    **{f"a pipe as {name}": lambda f, n=name: _fifo(f, n) for name in ("header", "state")},
    "2^62 slots": lambda f: new_header(f, lambda h: h["buffer"].update(capacity=2**62)),
    "rows of 2^62": lambda f: new_header(f, lambda h: h["buffer"]["arguments"].update(shapes=[[2**62], []])),
    "a folder to write to": lambda f: new_header(f, lambda h: h["buffer"]["arguments"].update(storage="elsewhere")),
    "nesting": lambda f: new_header(f, lambda h: h["buffer"].update(arguments=json.loads("[" * 900 + "]" * 900))),
}

# Files of NumPy.


def _npy(descr: str = "'<f4'", shape: str = "(3,)", data: bytes = bytes(12), fortran: bool = False) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


NPZ: dict[str, list[tuple[str, bytes]]] = {
    "as saved": [("x.npy", _npy())],
    "2^63 rows": [("x.npy", _npy(shape=f"({2**63 - 1},)"))],
    "a product of 2^64": [("x.npy", _npy(shape=f"(3, {2**32}, {2**32})"))],
    "2^60 of nothing": [("x.npy", _npy(shape=f"(3, 0, {2**60})"))],
    "a negative axis": [("x.npy", _npy(shape="(3, -1)"))],
    "70 axes": [("x.npy", _npy(shape=f"({'1,' * 70})"))],
    "objects": [("x.npy", _npy("'|O'", data=bytes(24)))],
    "objects in Fortran order": [("x.npy", _npy("'|O'", "(3, 1)", bytes(24), True))],
    "objects in records": [("x.npy", _npy("[('a', 'O')]", data=bytes(24)))],
    "nesting": [("x.npy", _npy("(" * 9000))],
    "a header of 2^32": [("x.npy", b"\x93NUMPY\3\0" + struct.pack("<I", 2**32 - 1))],
    "a name twice": [("x.npy", _npy())] * 2,
    "no array": [("x", _npy())],
    "too few bytes": [("x.npy", _npy(data=bytes(4)))],
    "a name with dots": [("../../x.npy", _npy())],
}

# HDF5.


def d4rl(file: h5py.File, **others: Any) -> None:
    """Write D4RL's keys, some of them otherwise; a function makes one."""
    values = {"observations": np.arange(6.0), "actions": np.zeros((6, 2)), "rewards": np.arange(6.0)}
    flags = {"terminals": np.arange(6) == 2, "timeouts": np.arange(6) == 5}
    for key, value in {**values, **flags, **others}.items():
        if callable(value):
            value(file, key)
        else:
            file[key] = value


def _virtual(file: h5py.File, key: str) -> None:
    layout = h5py.VirtualLayout((6,), "f8")
    layout[:] = h5py.VirtualSource("other.hdf5", "rewards", (6,))
    file.create_virtual_dataset(key, layout)


HDF5: dict[str, dict[str, Any]] = {
    "as saved": {},
    "a link to another file": {"rewards": h5py.ExternalLink("other.hdf5", "rewards")},
    "a link to itself": {"rewards": h5py.SoftLink("/rewards")},
    "bytes of another file": {
        "rewards": lambda f, k: f.create_dataset(k, (6,), "f8", external=[("other.hdf5", 0, 48)])
    },
    "rows of another file": {"rewards": _virtual},
    "2^50 rows of nothing": {"rewards": lambda f, k: f.create_dataset(k, (2**50,), "f8", chunks=(1024,))},
    "objects": {"rewards": lambda f, k: f.create_dataset(k, (6,), h5py.vlen_dtype("f8"))},
    "a type": {"rewards": np.dtype("f8")},
    "no shape": {"rewards": h5py.Empty("f8")},
}

# YAML.


def _lines(first: str, then: str) -> str:
    """Return twelve values, each of which has the one before ten times."""
    return "\n".join(
        [f"a0: &a0 {first}", *(f"a{i}: &a{i} {then.format(', '.join([f'*a{i - 1}'] * 10))}" for i in range(1, 12))]
    )


YAML: dict[str, str] = {
    "as written": "common: &c {capacity: 10}\nreplay_buffer: {<<: *c, type: uniform}\n",
    "a key twice": "capacity: 1\ncapacity: 2\n",
    "an object": "!!python/object/apply:os.mkdir ['elsewhere']\n",
    "aliases of aliases": _lines("[1]", "[{}]"),
    "merged aliases": _lines("{x: 1}", "{{<<: [{}]}}"),
    "itself": "&a a: *a\nb: &c {d: *c}\n",
    "nesting": "{a: " * 3000 + "}" * 3000,
    "numbers of 10000 digits": "a: " + "9" * 10_000,
    "no text": "\udcff\udcfe",
    "no mapping": "[1]",
}


def corpus(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Make the files one after the other, and yield the reader, the name and the path of each."""
    for name, change in CHECKPOINTS.items():
        checkpoint = Checkpoint(folder / "checkpoint")
        change(checkpoint)
        yield "checkpoint", name, checkpoint.path
        yield "inspect", name, checkpoint.path
    for name, alter in FOLDERS.items():
        host.ReplayBuffer(2, 8, [(2,), ()], ["float32", "int32"], storage=folder / "rows").close()
        alter(folder / "rows")
        yield "folder", name, folder / "rows"
        shutil.rmtree(folder / "rows")
        (folder / "moved").unlink(missing_ok=True)
    for name, members in NPZ.items():
        with zipfile.ZipFile(folder / "file.npz", "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for member, content in members:
                archive.writestr(member, content)
        yield "npz", name, folder / "file.npz"
    with h5py.File(folder / "other.hdf5", "w") as file:
        d4rl(file)
    for name, others in HDF5.items():
        with h5py.File(folder / "file.hdf5", "w") as file:
            d4rl(file, **others)
        yield "hdf5", name, folder / "file.hdf5"
    for name, text in YAML.items():
        (folder / "file.yaml").write_bytes(text.encode(errors="surrogateescape"))
        yield "yaml", name, folder / "file.yaml"


def read(reader: str, path: Path) -> list[str]:
    """Return what comes of reading a file."""
    try:
        found = READERS[reader](path)
        if reader == "folder":
            found.close()
    except (ImportError, MemoryError, RecursionError):
        raise
    except (OSError, TypeError, ValueError) as error:  # what the readers document; any other is a fault
        return [type(error).__name__, str(error)]
    return ["read"]


def main(folder: Path) -> dict[str, Any]:
    """Return what came of each file, the bytes of memory this took, and the names of files that were made."""
    os.chdir(folder)
    for reader, name, path in corpus(folder):  # what they import is there, and the first allocations are made
        if name.startswith("as "):
            read(reader, path)
    page = resource.getpagesize()
    begin = int(Path("/proc/self/statm").read_text().split()[0]) * page
    resource.setrlimit(resource.RLIMIT_AS, (begin + MEMORY, resource.RLIM_INFINITY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results: dict[str, Any] = {}
    for reader, name, path in corpus(folder):
        results.setdefault(reader, {})[name] = read(reader, path)
    taken = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    return {"results": results, "memory": taken, "files": sorted(path.name for path in folder.iterdir())}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(Path(sys.argv[1]))))
