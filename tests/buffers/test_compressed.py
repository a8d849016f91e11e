"""Compressed columns: the same draws and rows as of columns that are not compressed, and less memory."""

import sys
import threading
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from flat import flat
from kinds import full_sample
from twin_kinds import KINDS as BESIDE_A_TWIN
from twin_pairs import RandomPair

import mindspore_replay
from mindspore_replay import (
    FrameStack,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    create_buffer,
    datasets,
    load,
    save,
)
from mindspore_replay.store.kernels.library import calls
from mindspore_replay.store.rows import lz4

pytestmark = pytest.mark.cpu_only("compressed columns are drawn by the CPU's kernels")

CAPACITY = 20
NAMES = ["observation", "legal", "state", "reward", "terminated"]
SHAPES: list[tuple[int, ...]] = [(6, 5), (3,), (2,), (), ()]
TYPES = ["uint8", "bool", "bfloat16", "float32", "bool"]
COMPRESSED = ["observation", "legal", "state"]
STACKS = FrameStack(3)
RETURNS = NStep(2, 0.9, reward="reward", terminated="terminated")
KINDS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "uniform": (ReplayBuffer, {}),
    "frames and returns": (PrioritizedReplayBuffer, {"views": [STACKS, RETURNS]}),
    "prioritized": (PrioritizedReplayBuffer, {"beta_steps": 5}),
}


def make(kind: str = "uniform", compress: Any = COMPRESSED, **more: Any) -> Any:
    cls, arguments = KINDS[kind]
    schema = {"shapes": SHAPES, "types": TYPES, "names": NAMES}
    return cls(
        **flat(
            **{"sample_size": 3, "capacity": CAPACITY, "seed": 5, "compress": compress, **schema, **arguments, **more}
        )
    )


def rows_of(buffer: Any, first: int, n: int | None) -> dict[str, np.ndarray]:
    """Rows that differ from each other in each column, `n` of them or one without a leading axis."""
    random = np.random.default_rng(first)
    lead = () if n is None else (n,)
    values = (random.integers(0, 200, (*lead, *shape)) for shape in buffer.shapes)
    types = buffer.columns.numpy_types
    return {name: (v % 2 if t == "bool" else v).astype(t) for name, v, t in zip(buffer.columns.names, values, types)}


def same(first: Any, second: Any) -> None:
    for a, b in zip(first, second, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.asnumpy().tobytes() == b.asnumpy().tobytes()


def same_state(first: Any, second: Any) -> None:
    states = [{key: value.tobytes() for key, value in buffer.state_dict().items()} for buffer in (first, second)]
    assert states[0].keys() == states[1].keys()
    assert [key for key in states[0] if states[0][key] != states[1][key]] == []


def fill(*buffers: Any, rows: range = range(50)) -> None:
    for buffer in buffers:
        for i in rows:
            ends = {"end": i % 7 == 6} if buffer.has_episodes else {}
            buffer.insert(rows_of(buffer, i, buffer.num_envs), **ends)


# The twin.


@pytest.mark.parametrize(
    "kind", [kind for kind, made in BESIDE_A_TWIN.items() if not made.any_length and "goals" not in kind][::3]
)
def test_random_operations(kind: str, tmp_path: Path):
    first = BESIDE_A_TWIN[kind].columns["names"][0]
    RandomPair(kind, mindspore_replay, 5, tmp_path, compress=[first]).run(40)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_other_dtypes(kind: str):
    plain, compressed = make(kind, ()), make(kind)
    for first in range(0, 60, 15):
        fill(plain, compressed, rows=range(first, first + 15))
        for _ in range(3):
            same(full_sample(plain), full_sample(compressed))
    if plain.weighted:
        handles = int(plain.serials.asnumpy()[0]) - np.arange(6)
        values = {name: rows_of(plain, 7, 6)[name] for name in ("observation", "reward")}
        assert plain.update(handles, values) == compressed.update(handles, values)
    same(plain.rows(), compressed.rows())
    same(plain.get_item(3), compressed.get_item(3))
    compressed.check_valid()
    same_state(plain, compressed)


def test_rows_that_cannot_get_smaller():
    noise = np.random.default_rng(0).integers(0, 256, (8, 3000), np.uint8)
    buffer = ReplayBuffer(2, 8, **flat([(3000,)], ["uint8"], compress=[0])).insert([noise])
    assert np.array_equal(buffer.rows()[0].asnumpy(), noise)
    assert buffer.nbytes > noise.nbytes


def test_another_device_keeps_compressed_rows_on_the_host(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mindspore_replay.ops.native.on_cpu", lambda: False)
    buffer, plain = make(storage="host"), make(compress=(), storage="host")
    fill(buffer, plain)
    same(plain.sample(), buffer.sample())


def test_a_configuration_may_ask_for_it():
    column = {"shape": [2], "dtype": "int32", "compress": True}
    buffer = create_buffer({"type": "uniform", "capacity": 4, "sample_size": 1, "columns": {"x": column}})
    assert list(buffer.compressed) == ["column.x"]


# Files.


@pytest.mark.parametrize("compress", [(), COMPRESSED])
def test_files_are_those_of_uncompressed_columns(compress: Any, tmp_path: Path):
    first, second = make("prioritized", compress), make("prioritized", () if compress else COMPRESSED)
    fill(first)
    save(first, tmp_path / "saved")
    load(tmp_path / "saved", buffer=second)
    same_state(first, second)
    second.load_state_dict(first.state_dict())
    same(first.sample(), second.sample())


def test_datasets_read_the_rows(tmp_path: Path):
    kept = [name for name in NAMES if name != "state"]  # NumPy's files have no bfloat16
    schema = {"shapes": [(6, 5), (3,), (), ()], "types": ["uint8", "bool", "float32", "bool"], "names": kept}
    files = []
    for compress in ((), ["observation", "legal"]):
        buffer = ReplayBuffer(1, CAPACITY, **flat(compress=compress, **schema))
        fill(buffer)
        files.append(tmp_path / f"{len(files)}.npz")
        datasets.to_npz(buffer, files[-1])
    with np.load(files[0]) as plain, np.load(files[1]) as compressed:
        assert plain.files == compressed.files
        assert all(np.array_equal(plain[key], compressed[key]) for key in plain.files)


# Memory.


def frames(n: int, first: int = 0) -> np.ndarray:
    """Frames that compress well: a square on a black ground."""
    made = np.zeros((n, 64, 64), np.uint8)
    for i in range(n):
        made[i, (first + i) % 60 :][:4, 10:14] = 200
    return made


def test_bytes_do_not_grow_once_the_buffer_is_full():
    buffer = ReplayBuffer(4, 200, **flat([(64, 64)], ["uint8"], compress=[0]))
    taken = []
    for i in range(60):
        buffer.insert([frames(25, 25 * i)])
        taken.append(buffer.nbytes)
    (column,) = buffer.compressed.values()
    stored = sum(row is not None for row in column._rows)
    assert 200 <= stored <= 200 + 200 // 8 + 25
    assert max(taken) < 200 * 64 * 64 / 15
    assert max(taken[30:]) < 1.02 * max(taken[:30])
    kept = [row for row in column._rows if row is not None]
    assert column._row_bytes == sum(map(sys.getsizeof, kept))


def test_stored_rows_are_freed_by_others():
    buffer = ReplayBuffer(1, 8, **flat([(64, 64)], ["uint8"], compress=[0]))
    buffer.insert([np.random.default_rng(0).integers(0, 256, (8, 64, 64), np.uint8)])
    large = buffer.nbytes
    for i in range(4):
        buffer.insert([frames(8, i)])
    assert buffer.nbytes < large / 10


# Threads.


def test_rows_are_whole_while_a_thread_inserts():
    buffer = ReplayBuffer(8, 50, **flat([(500,), ()], ["int32", "int32"], compress=[0], seed=0))
    buffer.insert([np.tile(np.arange(50, dtype=np.int32)[:, None], 500), np.arange(50, dtype=np.int32)])
    stop = threading.Event()

    def insert() -> None:
        i = 50
        while not stop.is_set():
            buffer.insert([np.full(500, i, np.int32), i])
            i += 1

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        for _ in range(300):
            rows, numbers = (column.asnumpy() for column in buffer.sample())
            assert (rows == numbers[:, None]).all()
    finally:
        stop.set()
        thread.join()


# Damage.


def test_a_damaged_row_is_an_error():
    buffer = make(sample_size=1, capacity=1)
    buffer.insert(rows_of(buffer, 0, 1))
    column = buffer.compressed["column.observation"]
    (number,) = column.numbers
    row = column._rows[number]
    for damaged in (row[:-2], row + b"\x50", b"\xff" * 9):
        column._rows[number] = damaged
        for read in (buffer.sample, buffer.rows, buffer.state_dict):
            with pytest.raises(RuntimeError, match="a compressed row is damaged: it does not decompress to a row"):
                read()
    column._rows[number] = row
    buffer.sample()


def test_a_state_without_the_rows_is_an_error(tmp_path: Path):
    buffer, other = make(), make()
    fill(buffer)
    ms.save_checkpoint(buffer, str(tmp_path / "cell.ckpt"))
    ms.load_param_into_net(other, ms.load_checkpoint(str(tmp_path / "cell.ckpt")))
    assert other.size() in (0, CAPACITY)  # MindSpore matches the names of Parameters
    other.head.set_data(buffer.head)
    other.count.set_data(buffer.count)
    with pytest.raises(RuntimeError, match="compressed row -1 is not stored"):
        other.sample()


def test_arguments_of_the_native_functions():
    functions, stored = lz4.codec("Test"), np.full(3, None, object)
    rows, numbers = np.zeros((2, 8), np.uint8), np.array([1, 2])
    assert calls.compress(functions.compress, stored, numbers, rows) > 0
    for wrong in (
        (stored.astype("S"), numbers, rows),
        (stored, numbers.astype(np.int32), rows),
        (stored, numbers, rows[:, ::2]),
        (stored, numbers, np.zeros(3, np.uint8)),
    ):
        with pytest.raises(TypeError, match="compressed rows need plain arrays"):
            calls.compress(functions.compress, *wrong)
    for number in (0, 3, -1):
        with pytest.raises(ValueError, match=f"row {number} cannot be compressed"):
            calls.compress(functions.compress, stored, np.array([number]), rows[:1])
    with pytest.raises(RuntimeError, match="compressed row 3 is not stored"):
        calls.decompress(functions.decompress, stored, ((np.array([1, 3]), rows),))


def test_a_row_is_decompressed_once_and_zeros_are_not_stored():
    functions, stored = lz4.codec("Test"), np.full(3, None, object)
    rows = np.arange(16, dtype=np.uint8).reshape(2, 8)
    calls.compress(functions.compress, stored, np.array([1, 2]), rows)
    first, second = np.empty((3, 8), np.uint8), np.full((2, 8), 7, np.uint8)
    calls.decompress(functions.decompress, stored, ((np.array([2, 1, 2]), first), (np.array([0, 1]), second)))
    assert np.array_equal(first, rows[[1, 0, 1]])
    assert np.array_equal(second, [np.zeros(8), rows[0]])


# What it does not go with.


def test_graphs_are_refused():
    buffer = make()
    fill(buffer)
    for use in (buffer.sample, buffer.size, buffer.reset):
        with pytest.raises(
            RuntimeError, match="A compiled graph cannot use a buffer with compressed columns: call its"
        ):
            ms.jit(use)()
    buffer.sample()


@pytest.mark.parametrize("found", [None, calls])
def test_without_the_package_or_its_functions(found: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "lz4.block._block", found)  # None: there is no such module
    lz4.codec.cache_clear()
    message = r"For 'ReplayBuffer', compress=True needs the package lz4, .*pip install -e \"\.\[compress\]\""
    with pytest.raises(ImportError, match=message):
        make()
    make(compress=())
