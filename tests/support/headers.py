"""Headers of checkpoints and folders with other contents, whose checksums fit."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: First bytes of a checkpoint's header.
START = b'{"__metadata__":{"header_crc32":"'


def checkpoint_header(text: bytes) -> bytes:
    """Return the length and the header of a checkpoint with this JSON, but for its checksum."""
    checked = text[len(START) + 8 :]
    return len(text).to_bytes(8, "little") + START + f"{zlib.crc32(checked):08x}".encode() + checked


def write_header(folder: Path, text: bytes, version: int = 6) -> None:
    """Write the header of a folder with this JSON."""
    rest = version.to_bytes(4, "little") + len(text).to_bytes(8, "little") + text
    (folder / "header").write_bytes(b"MSREPLAY" + zlib.crc32(rest).to_bytes(4, "little") + rest)


def new_header(folder: Path, change: Callable[[dict[str, Any]], Any], version: int = 6) -> None:
    """Change the JSON in the header of a folder."""
    content = json.loads((folder / "header").read_bytes()[24:])
    change(content)
    write_header(folder, json.dumps(content).encode(), version)
