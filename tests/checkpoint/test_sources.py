"""Arrays are read from a file in pieces, by several threads."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_replay import ReplayBuffer, load, save
from mindspore_replay.checkpoint import files
from mindspore_replay.checkpoint.files import Slots, Source, open_source

ROWS = np.arange(600, dtype=np.int32).reshape(100, 6)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file whose column has 38 or 39 pieces, the first and the last perhaps small ones."""
    monkeypatch.setattr(files, "_READ", 64)
    buffer = ReplayBuffer(1, 100, [(6,)], ["int32"], seed=0)
    save(buffer.insert([ROWS]), tmp_path / "buffer.safetensors")
    return tmp_path / "buffer.safetensors"


def pieces_of(array: np.ndarray) -> list[int]:
    """Return the bytes of each piece of an array: they begin and end at multiples of 64 in memory."""
    begin = array.ctypes.data
    end = begin + array.nbytes
    return np.diff([begin, *range(begin - begin % 64 + 64, end, 64), end]).tolist()


@pytest.mark.parametrize("most", [7, 1 << 20])
def test_pieces_make_an_array(path: Path, most: int, monkeypatch: pytest.MonkeyPatch):
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, memory, at: real(file, [memory[0][:most]], at))  # it may read less
    with open_source(path) as source:
        done: list[int] = []
        source.progress = done.append
        array = source.array("column.0")
        np.testing.assert_array_equal(array, ROWS)
        assert done == pieces_of(array)
        source.check("column.0")
        np.testing.assert_array_equal(source.array("column.0"), ROWS)


@pytest.mark.parametrize("offset", [0, 4, 60])
def test_pieces_begin_and_end_at_whole_places_in_memory(path: Path, offset: int):
    memory = np.zeros(ROWS.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    array = memory[start : start + ROWS.nbytes].view(np.int32).reshape(ROWS.shape)
    with open_source(path) as source:
        done: list[int] = []
        source.progress = done.append
        source.fill("column.0", array, Slots(100, 0, 100))
    np.testing.assert_array_equal(array, ROWS)
    assert done == pieces_of(array)
    assert done[:2] == [64 - offset, 64]
    assert done[-1] == (ROWS.nbytes + offset) % 64


@pytest.mark.parametrize("count", [0, 1, 50, 90, 100])
def test_the_newest_rows_are_read_into_slots(path: Path, count: int):
    array, slots = np.zeros((120, 6), np.int32), Slots(120, 70, count)
    with open_source(path) as source:
        source.fill("column.0", array, slots)
    where = (70 + np.arange(count)) % 120  # some behind the end of the ring
    np.testing.assert_array_equal(array[where], ROWS[100 - count :])
    assert not np.delete(array, where, 0).any()
    pieces = [np.arange(120)[piece].tolist() for piece in slots.pieces(array, 75)]  # three rows have 72 bytes
    assert [slot for piece in pieces for slot in piece] == where.tolist()
    assert {*map(len, pieces)} <= {1, 2, 3}


@pytest.mark.parametrize("piece", [0, 1, 20, 37])
@pytest.mark.parametrize("skips", [False, True])
def test_an_altered_byte_in_any_piece_is_found(path: Path, piece: int, skips: bool):
    with open_source(path) as source:
        at = source.header.size + source.header.entries["column.0"].start + 64 * piece
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"holds data that do not fit their checksum, in 'column\.0'"):
            source.check("column.0") if skips else source.array("column.0")


def test_two_pieces_that_changed_places_are_found(path: Path):
    with open_source(path) as source:
        at = source.header.size + source.header.entries["column.0"].start
        data = bytearray(path.read_bytes())
        data[at : at + 128] = data[at + 64 : at + 128] + data[at : at + 64]
        path.write_bytes(data)
        with pytest.raises(ValueError, match="do not fit their checksum"):
            source.array("column.0")


def test_a_file_that_becomes_shorter_is_an_error(path: Path):
    with open_source(path) as source:
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 100)
        with pytest.raises(ValueError, match="ended while it was read"):
            source.check("column.0")
    with pytest.raises(ValueError, match="it was cut off"):
        load(path)


def test_after_an_error_no_memory_is_written(path: Path, monkeypatch: pytest.MonkeyPatch):
    lock, begun, ended = threading.Lock(), [], []

    def read(_: Any, memory: np.ndarray, at: int, size: int) -> int:
        with lock:
            begun.append(at)
            first = len(begun) == 1
        if first:
            raise ZeroDivisionError
        time.sleep(0.02)
        ended.append(at)
        return 0

    with open_source(path) as source, ThreadPoolExecutor(3) as readers:
        monkeypatch.setattr(Source, "_read_piece", read)
        monkeypatch.setattr(source, "_readers", readers)
        with pytest.raises(ZeroDivisionError):
            source.array("column.0")
        after = len(begun)
        assert len(ended) == after - 1
        time.sleep(0.1)
        assert len(begun) == after
