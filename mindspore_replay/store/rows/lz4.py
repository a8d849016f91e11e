"""The functions of the LZ4 library, as the `lz4` package carries them."""

import ctypes
import functools
import importlib
from typing import NamedTuple

from ..base.optional import install_command


class Codec(NamedTuple):
    """Addresses of ``LZ4_compress_default`` and ``LZ4_decompress_safe``, which have the same arguments."""

    compress: int
    decompress: int


@functools.lru_cache
def codec(cls_name: str) -> Codec:
    """Return the library's functions. Raise an ImportError that names the class if there are none.

    The module of the package contains the library, or is linked to it. Its own functions return new objects of Python,
    and a batch is decompressed in place.
    """
    try:
        library = ctypes.CDLL(importlib.import_module("lz4.block._block").__file__)
        return Codec(*(_address(library, name) for name in ("LZ4_compress_default", "LZ4_decompress_safe")))
    except (ImportError, OSError, AttributeError) as error:
        raise ImportError(
            f"For '{cls_name}', compress=True needs the package lz4, with the functions of the LZ4 library: "
            f"{install_command('compress')}."
        ) from error


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address
