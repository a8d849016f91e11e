"""The header of a buffer's folder: magic, checksum, format version, and JSON that describes the buffer.

It is written once, when the folder is made.
"""

import json
import os
import zlib
from pathlib import Path

from ..._version import __version__
from ..spec.described import read
from ..spec.spec import BufferSpec
from .files import opened

_MAGIC, _VERSION = b"MSREPLAY", 6
_NUMBERS = (8, 4, 4, 8)  # bytes of magic, checksum, version and length of the JSON
_START = sum(_NUMBERS)
_LONGEST = 100_000_000


def bad_folder(function: str, folder: Path, defect: str) -> ValueError:
    """Return the error for a folder that cannot be opened."""
    return ValueError(f"For '{function}', 'folder' must hold a whole buffer, but {folder} {defect}.")


def write_header(path: Path, spec: BufferSpec) -> None:
    """Write a header."""
    text = json.dumps({"library_version": __version__, "buffer": spec.to_json()}, separators=(",", ":")).encode()
    rest = _VERSION.to_bytes(4, "little") + len(text).to_bytes(8, "little") + text
    file = opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(file.fileno(), "wb", closefd=False) as stream:
        stream.write(_MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest)


def read_header(folder: Path, path: Path, function: str) -> BufferSpec:
    """Read the header of a folder. Raise a ValueError if it is damaged or of another kind."""
    with open(path, "rb") as file:
        data = file.read(_LONGEST)
    if data[:8] != _MAGIC:
        raise bad_folder(function, folder, "has a header that begins otherwise: it is of another kind, or altered")
    version = int.from_bytes(data[12:16], "little")
    if len(data) < _START or len(data) != _START + int.from_bytes(data[16:_START], "little"):
        raise bad_folder(function, folder, "has a header that was cut off or added to")
    if int.from_bytes(data[8:12], "little") != zlib.crc32(data[12:]):
        raise bad_folder(function, folder, "has a header that does not fit its checksum: it was altered")
    if version != _VERSION:
        defect = (
            f"has the format version {version}, and this library reads {_VERSION}: save() its buffer with the other one"
        )
        raise bad_folder(function, folder, defect)
    try:
        return read(json.loads(data[_START:])["buffer"])
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        defect = f"has a header that makes no sense ({type(error).__name__}: {error})"
        raise bad_folder(function, folder, defect) from None
