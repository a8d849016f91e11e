"""The file format: safetensors, with checksums of the header and of each array in its metadata.

A file is the length of its header as 8 bytes, the header as JSON padded with spaces, and the arrays without gaps,
little-endian. The header begins with its checksum, which covers the bytes after it.
"""

import contextlib
import functools
import json
import math
import os
from collections.abc import Iterator, Mapping
from io import FileIO
from typing import Any, NamedTuple

import numpy as np
from isal import isal_zlib

from ..store.base.checks import MAX_CAPACITY

FORMAT, VERSION = "mindspore_replay", 2

#: Safetensors' names of the dtypes.
CODES = {
    **{f"{name}{bits}": f"{name[0].upper()}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BF16",
    "bool": "BOOL",
}
_NAMES = {code: name for name, code in CODES.items()}

#: The class of mixtures.
MIXTURE = "MixedReplay"

#: Name of the array that holds plain values as JSON; the arrays beside it are ``values/0``, ``values/1`` and so on.
VALUES = "values"

#: Alignment of the first array, in bytes.
_ALIGNMENT = 64
_LONGEST_HEADER = 100_000_000  # the limit of safetensors
_NO_CHECKSUM = "0" * 8
#: Deepest nesting of dicts and lists of buffers.
_DEEPEST = 100
#: What an array of NumPy may have, also one of no elements: axes, and elements if each axis had one at least.
MOST_AXES, _MOST_ELEMENTS = 32, 2**59
#: First bytes of other kinds of files, and the function that reads such a file.
_OTHER_KINDS = {
    b"PK\x03\x04": "a zip archive, as NumPy's .npz files are, which datasets.from_npz",
    b"\x89HDF\r\n": "an HDF5 file, which datasets.from_hdf5",
}
_START = b'{"__metadata__":{"header_crc32":"'
_CHECKED_FROM = len(_START) + len(_NO_CHECKSUM)


class Entry(NamedTuple):
    """An array in a file.

    Args:
        dtype (str): NumPy's name of its dtype, or ``"bfloat16"``.
        shape (tuple[int, ...]): Its shape.
        start (int): Its first byte, counted from the end of the header.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * _item_size(self.dtype)


class Header(NamedTuple):
    """Header of a file.

    Args:
        entries (dict[str, Entry]): Its arrays, in the order of the file.
        checksums (dict[str, int]): CRC-32 of each array.
        description (Any): Description of the buffers.
        note (Any): What the writer noted beside it, or ``None`` if nothing.
        size (int): Bytes of the header and its length.
        library_version (str): Version of this library that wrote the file.
    """

    entries: dict[str, Entry]
    checksums: dict[str, int]
    description: Any
    note: Any
    size: int
    library_version: str

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(entry.nbytes for entry in self.entries.values())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


_compact = functools.partial(json.dumps, separators=(",", ":"), allow_nan=False)
_json = functools.partial(json.loads, object_pairs_hook=_once)


def _item_size(dtype: str) -> int:
    """Bytes of an element."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def lay_out(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Entry]:
    """Return places for arrays of these dtypes and shapes: large elements first, so that each array is aligned."""
    entries, start = {}, 0
    for name, (dtype, shape) in sorted(arrays.items(), key=lambda item: -_item_size(item[1][0])):
        entries[name] = Entry(dtype, tuple(shape), start)
        start += entries[name].nbytes
    return entries


def header_bytes(metadata: Mapping[str, str], entries: Mapping[str, Entry], checksums: Mapping[str, int]) -> bytes:
    """Return the length and the header. The size does not depend on the checksums."""
    written = {name: f"{checksums.get(name, 0):08x}" for name in entries}
    arrays = {
        name: {"dtype": CODES[one.dtype], "shape": one.shape, "data_offsets": [one.start, one.start + one.nbytes]}
        for name, one in entries.items()
    }
    whole = {"header_crc32": _NO_CHECKSUM, **metadata, "checksums": _compact(written)}
    text = _compact({"__metadata__": whole, **arrays}).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + _START + _crc32(text) + text[_CHECKED_FROM:]


def _crc32(text: bytes) -> bytes:
    """Return the checksum of a header."""
    return f"{isal_zlib.crc32(text[_CHECKED_FROM:]):08x}".encode()


def damaged(path: str | os.PathLike[str], defect: str) -> ValueError:
    """Return the error for a file that cannot be loaded."""
    return ValueError(f"For 'load', 'path' must be a whole file that 'save' wrote, but {os.fspath(path)} {defect}.")


@contextlib.contextmanager
def sensible(path: str | os.PathLike[str], where: str = "holds values that make") -> Iterator[None]:
    """Raise a ValueError with the name of the file for whatever goes wrong with the values in it."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, ValueError) and str(error).startswith("For 'load'"):
            raise
        raise damaged(path, f"{where} no sense ({type(error).__name__}: {error})") from None


def read_header(file: FileIO, path: str | os.PathLike[str]) -> Header:
    """Return the header of a file. Raise a ValueError if it is damaged or of another kind."""
    size, start = os.fstat(file.fileno()).st_size, file.read(8 + len(_START))
    if start[8:] != _START:
        reader = next((reader for magic, reader in _OTHER_KINDS.items() if start.startswith(magic)), None)
        otherwise = f"is {reader} reads" if reader else "begins otherwise: it is of another kind, cut off or altered"
        raise damaged(path, otherwise if size else "is empty")
    length = int.from_bytes(start[:8], "little")
    if length > min(size - 8, _LONGEST_HEADER) or length < _CHECKED_FROM:
        raise damaged(path, f"has {size} bytes, too few for its header: it was cut off or altered")
    text = _START + file.read(length - len(_START))
    if text[len(_START) : _CHECKED_FROM] != _crc32(text):
        raise damaged(path, "has a header that does not fit its checksum: it was altered")
    with sensible(path, "has a header that makes"):
        header = _parsed(path, _json(text), 8 + length)
    if header.size + header.nbytes != size:
        raise damaged(path, f"has {size} bytes, not {header.size + header.nbytes}: it was cut off or added to")
    return header


def _parsed(path: str | os.PathLike[str], header: dict[str, Any], size: int) -> Header:
    metadata = header.pop("__metadata__")
    version = metadata["format_version"]
    if metadata["format"] != FORMAT:
        raise damaged(path, f"has the format {metadata['format']!r}, not {FORMAT!r}")
    if version != str(VERSION):
        raise damaged(path, f"has the format version {version}, and this library reads version {VERSION}")
    entries, end = {}, 0
    for name, fields in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):  # without gaps
        _check_ints("shape", fields["shape"])
        _check_ints("data_offsets", fields["data_offsets"])
        entry = entries[name] = Entry(_NAMES[fields["dtype"]], tuple(fields["shape"]), end)
        if len(entry.shape) > MOST_AXES or math.prod(max(axis, 1) for axis in entry.shape) > _MOST_ELEMENTS:
            raise ValueError(f"{name!r} has the shape {fields['shape']}"[:200])
        end += entry.nbytes
        if fields["data_offsets"] != [entry.start, end]:
            raise ValueError(f"{name!r} lies at {fields['data_offsets']}, not at {[entry.start, end]}")
    checksums = {name: int(value, 16) for name, value in _json(metadata["checksums"]).items()}
    if checksums.keys() != entries.keys():
        raise ValueError("its checksums belong to other arrays")
    description, note = _json(metadata["description"]), _json(metadata.get("note", "null"))
    return Header(entries, checksums, description, note, size, str(metadata["library_version"]))


def _check_ints(name: str, values: object) -> None:
    if not isinstance(values, list) or [value for value in values if type(value) is not int or value < 0]:
        raise ValueError(f"{name} {values!r}")


def named_descriptions(description: dict[str, Any], name: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return a name and the description of each part, in the order of `contents_of`."""
    found = [] if "dict" in description or "list" in description else [(name, description)]
    parts = description.get("dict", description.get("list", description.get("sources", [])))
    for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
        found += named_descriptions(part, f"{name}/{key}" if name else str(key))
    return found


def is_value(name: str) -> bool:
    """Return True if the array with this name belongs to plain values."""
    return name.partition("/")[0] == VALUES


def check_description(path: str | os.PathLike[str], description: Any) -> None:
    """Raise a ValueError if a description is malformed."""
    with contextlib.suppress(AttributeError, KeyError, RecursionError, TypeError, ValueError):
        found = named_descriptions(description)
        if found and all(name.count("/") < _DEEPEST and _is_one(node) for name, node in found):
            return
    raise damaged(path, f"describes no buffer: {str(description)[:200]}")


def _is_one(node: dict[str, Any]) -> bool:
    """Return True if the description is one of a mixture, or of a buffer in a folder or with a capacity."""
    capacity = 1 if "sources" in node or "folder" in node else node["capacity"]
    return isinstance(node["class"], str) and type(capacity) is int and 0 < capacity <= MAX_CAPACITY


def summary(description: Mapping[str, Any]) -> str:
    """Return the classes in a description, nested as there, and which are in folders. It is the same for what fits."""
    if "dict" in description:
        return "{" + ", ".join(f"{name!r}: {summary(part)}" for name, part in description["dict"].items()) + "}"
    if "list" in description:
        return "[" + ", ".join(map(summary, description["list"])) + "]"
    sources = [summary(source) for source in description.get("sources", [])]
    place = " in a folder" if "folder" in description else ""
    return description["class"] + (f"({', '.join(sources)})" if sources else "") + place
