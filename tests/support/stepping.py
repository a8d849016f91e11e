"""Runs a child one instruction at a time, to see each state that its death could leave in shared memory.

As a program, it checks all of them for each operation in `KINDS` on a buffer in a folder. It needs no MindSpore.
"""

import ctypes
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flat import flat

from mindspore_replay.store.base.late import pending
from mindspore_replay.store.faces.classes import (
    EpochReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.store.folder.folder import Folder
from mindspore_replay.store.folder.opening import create
from mindspore_replay.store.rows.any_length import make_store
from mindspore_replay.store.rows.store import Store
from mindspore_replay.store.spec.episodes import END
from mindspore_replay.store.spec.spec import BufferSpec

TRACEME, CONTINUE, SINGLESTEP = 0, 7, 9
MAPS = "_maps"


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request: int, process: int) -> None:
    if _LIBC.ptrace(request, process, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def states(operation: Callable[[], Any], store: Store, memory: Callable[[], bytes]) -> Iterator[bytes]:
    """Run an operation in a child, and yield the memory whenever an instruction has changed it.

    The child runs freely until it waits for the lock, which this process holds, then step by step until it releases it.
    """
    child = os.fork()
    if child == 0:
        try:
            _ptrace(TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            operation()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with store.kernels_kept_out():
        _ptrace(CONTINUE, child)
        while _state_of(child) != "S":
            time.sleep(0.001)
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, 0)
    last, busy = memory(), False
    while not busy or _is_busy(store):
        busy = busy or _is_busy(store)
        _ptrace(SINGLESTEP, child)
        os.waitpid(child, 0)
        now = memory()
        if now != last:
            yield now
            last = now
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]


def _is_busy(store: Store) -> bool:
    """Return True if a process holds the lock of a store."""
    return bool(store.folder.arrays["shared.journal"][8])


CAPACITY = 16
COLUMNS = [(), (5,), ()]


def make_row(number: int, version: int = 0) -> list[Any]:
    """Return a row with a checksum over its columns."""
    payload = np.arange(5, dtype=np.float32) + np.float32(100 * number + 10000 * version)
    return [np.int64(number), payload, np.float32(payload.sum() + np.float32(number))]


def numbers_in(store: Store) -> dict[int, int]:
    """Return the version of each stored row by its number, after a check of its sum, if that is not missing."""
    if not store.count():
        return {}
    *lengths, numbers, payloads, sums = store.read(np.arange(store.count()))
    assert not lengths or (lengths[0] == 5).all()
    if store.options.late:
        slots = (int(store.arrays["head"]) + np.arange(store.count())) % CAPACITY
        sums = np.where(pending(store.arrays["use_counts"][slots]), payloads.sum(1) + numbers, sums)
    np.testing.assert_allclose(payloads.sum(1) + numbers, sums, rtol=1e-5)
    assert len(set(numbers.tolist())) == len(numbers)
    return dict(zip(numbers.tolist(), (payloads[:, 0] // 10000).astype(int).tolist()))


def check_ends(store: Store) -> None:
    """Check that each row ends its episode whose column of terminations is not zero, if there is one."""
    if "column.terminated" in store.arrays:
        slots = (int(store.arrays["head"]) + np.arange(store.count())) % CAPACITY
        terminated = store.arrays["column.terminated"][slots] != 0
        assert (store.arrays["flags"][slots][terminated] & END).all()


class Kind(NamedTuple):
    """An operation to step through.

    Args:
        spec (BufferSpec): The buffer.
        rows (int): Rows inserted before.
        prepare (Callable): Returns the operation on a store, prepared so that it runs little but the kernel.
        kept (Callable): Returns the numbers of the rows that must survive it, from those before.
    """

    spec: BufferSpec
    rows: int
    prepare: Callable[[Store], Callable[[], Any]]
    kept: Callable[[list[int]], list[int]]
    every: int = 4  # rows of an episode


def _rows(numbers: range) -> list[np.ndarray]:
    return [np.stack(column) for column in zip(*(make_row(number) for number in numbers))]


def _present(store: Store, row: list[Any]) -> list[Any]:
    return [row[i] for i in store.schema.present]


def _insert(n: int, **more: Any) -> Callable[[Store], Callable[[], Any]]:
    rows = _rows(range(900, 900 + n))
    return lambda store: lambda: store.insert(_present(store, rows), **more)


def _insert_made(version: np.ndarray, **more: Any) -> Callable[[Store], Callable[[], Any]]:
    """Insert rows by version, at clock 12; those before are of version 5."""

    def prepare(store: Store) -> Callable[[], Any]:
        store.arrays["clock"][0], store.arrays["insertion_clocks"][:] = 12, 5
        return _insert(3, version=version, **more)(store)

    return prepare


def _all(before: list[int]) -> list[int]:
    return before


def _but(n: int) -> Callable[[list[int]], list[int]]:
    return lambda before: before[n:]


def _spec(cls: type, shapes: Any = COLUMNS, **arguments: Any) -> BufferSpec:
    return cls(4, CAPACITY, **flat(shapes, ["int64", "float32", "float32"], **arguments)).spec


ALPHA = {"alpha": 0.7, "epsilon": 0.01}
WINDOWS = {"sequence_length": 2, "prioritized": True, "burn_in": 1, **ALPHA}
PLAIN = _spec(ReplayBuffer)
WEIGHTED = _spec(ReplayBuffer, max_use=1)
PRIORITIZED = _spec(PrioritizedReplayBuffer, **ALPHA)
STALE = _spec(ReplayBuffer, max_use=1, max_staleness=0)
VERSIONED = _spec(ReplayBuffer, max_use=1, max_staleness=9)
EPISODES = _spec(SequenceReplayBuffer, **WINDOWS)
AGING = _spec(SequenceReplayBuffer, max_staleness=9, **WINDOWS)
LATE = _spec(PrioritizedReplayBuffer, late=[2], **ALPHA)
LATE_EPISODES = _spec(SequenceReplayBuffer, late=[2], **WINDOWS)
#: The late column, which is not zero once it is written, ends episodes.
LATE_ENDS = _spec(SequenceReplayBuffer, names=["0", "1", "terminated"], late=[2], **WINDOWS)
#: The same rows, in memory for 12 of them.
ANY_LENGTH = _spec(ReplayBuffer, shapes=[(), (None,), ()], max_length=5, items=63)
RESERVOIR = _spec(ReservoirReplayBuffer)
RATED = _spec(ReservoirReplayBuffer, max_use=1)
IN_EPOCHS = _spec(EpochReplayBuffer)
ENDS = [False, True, False]


def _handles(store: Store) -> np.ndarray:
    if store.options.reservoir:
        return store.arrays["row_serials"][[3, 9]].copy()
    return np.arange(store.arrays["serials"][0] - 5, store.arrays["serials"][0] - 2)


def _with_handles(run: Callable[[Store, np.ndarray], Any]) -> Callable[[Store], Callable[[], Any]]:
    def prepare(store: Store) -> Callable[[], Any]:
        handles = _handles(store)
        return lambda: run(store, handles)

    return prepare


def _update(store: Store) -> Callable[[], Any]:
    handles = _handles(store)
    rows = [store.arrays["column.0"][_slot(store, handle)] for handle in handles]
    values = [np.stack(column) for column in zip(*(make_row(int(number), 1) for number in rows))]
    return lambda: store.update(handles, values)


def _slot(store: Store, handle: int) -> int:
    if store.options.reservoir:
        return int(np.flatnonzero(store.arrays["row_serials"] == handle)[0])
    return int((handle - store.arrays["serials"][1]) % CAPACITY)


def _load(store: Store) -> Callable[[], Any]:
    other = Store(store.schema, store.options)
    for number in range(700, 705):
        other.insert(make_row(number))
    state = other.state_dict()
    return lambda: store.load_state_dict(state)


KINDS = {
    "insert into a ring": Kind(PLAIN, 8, _insert(3), _all),
    "insert into a full ring": Kind(PLAIN, 21, _insert(3), _but(3)),
    "insert more than fits": Kind(PLAIN, 21, _insert(20), _but(16)),
    "insert weighted rows": Kind(WEIGHTED, 21, _insert(3), _but(3)),
    "insert by priority": Kind(PRIORITIZED, 21, _insert(3, priority=np.float32([2, 3, 4])), _but(3)),
    "insert into episodes": Kind(EPISODES, 20, _insert(3, end=ENDS), _but(3)),
    "insert rows of any length": Kind(ANY_LENGTH, 21, _insert(3), _but(3)),
    "insert into a reservoir": Kind(RESERVOIR, 24, _insert(8), lambda _: []),
    "insert into a reservoir that gets full": Kind(RESERVOIR, 13, _insert(9), lambda _: []),
    "insert into a weighted reservoir": Kind(RATED, 24, _insert(8), lambda _: []),
    "insert rows of versions": Kind(VERSIONED, 21, _insert_made(np.int64([7, 0, 12])), _but(3)),
    "insert stale rows of episodes": Kind(AGING, 20, _insert_made(np.array(0), end=ENDS), _but(3)),
    "insert rows with late columns": Kind(LATE, 21, _insert(3), _but(3)),
    "insert episodes with late columns": Kind(LATE_EPISODES, 20, _insert(3, end=ENDS), _but(3)),
    "write late columns": Kind(LATE, 21, _update, _all),
    "write late columns of episodes": Kind(LATE_EPISODES, 21, _update, _all),
    "write a late column that ends episodes": Kind(LATE_ENDS, 21, _update, _all),
    "update rows": Kind(WEIGHTED, 21, _update, _all),
    "update rows of episodes": Kind(EPISODES, 21, _update, _all),
    "update rows of a reservoir": Kind(RESERVOIR, 30, _update, _all),
    "update priorities": Kind(
        PRIORITIZED, 21, _with_handles(lambda s, handles: s.update_priorities(handles, np.full(3, 7, np.float32))), _all
    ),
    "update priorities of episodes": Kind(
        EPISODES, 21, _with_handles(lambda s, handles: s.update_priorities(handles, np.full(3, 7, np.float32))), _all
    ),
    "delete": Kind(WEIGHTED, 21, _with_handles(Store.delete), _all),
    "delete from episodes": Kind(EPISODES, 21, _with_handles(Store.delete), _all),
    "sample and remove": Kind(WEIGHTED, 21, lambda s: s.sample, _all),
    "sample by priority": Kind(PRIORITIZED, 21, lambda s: s.sample, _all),
    "sample in epochs": Kind(IN_EPOCHS, 21, lambda s: s.sample, _all),
    "advance": Kind(STALE, 21, lambda s: s.advance, _all),
    "end episodes": Kind(EPISODES, 22, lambda s: s.end_episodes, _all),
    "reset": Kind(EPISODES, 21, lambda s: s.reset, lambda _: []),
    "load": Kind(PRIORITIZED, 21, _load, lambda _: []),
}


def _bytes_of(folder: Folder) -> bytes:
    return b"".join(mapped[:] for mapped in vars(folder)[MAPS].values())


def _fill(folder: Folder, data: bytes) -> None:
    for mapped in vars(folder)[MAPS].values():
        mapped[:], data = data[: len(mapped)], data[len(mapped) :]


def check(kind: Kind, parent: Path) -> tuple[int, int]:
    """Check each state of an operation. Returns how many are wrong if they are not repaired, and how many there are."""
    folder, copy = create(parent / "rows", kind.spec), create(parent / "copy", kind.spec)
    store = make_store(kind.spec, folder=folder)
    for number in range(kind.rows):
        end = {"end": number % kind.every == kind.every - 1} if kind.spec.has_episodes else {}
        store.insert(_present(store, make_row(number)), **end)
    before = list(numbers_in(store))
    run = kind.prepare(store)
    state = _bytes_of(folder)
    run()  # makes what later calls reuse
    _fill(folder, state)
    wrong = total = 0
    for state in states(run, store, lambda: _bytes_of(folder)):
        total += 1
        _fill(copy, state)
        go_on(kind, copy, before)
        _fill(copy, state)
        copy.arrays["shared.journal"][8] = 0  # as if nobody had been in, so that nothing is repaired
        try:
            go_on(kind, copy, before)
        except (AssertionError, ValueError, RuntimeError):
            wrong += 1
    return wrong, total


def go_on(kind: Kind, folder: Folder, before: list[int]) -> None:
    """Check what the next process finds, and that it can insert."""
    store = make_store(kind.spec, folder=folder)
    store.check()
    stored = numbers_in(store)
    new = set(range(900, 920)) | set(range(700, 705))
    assert set(kind.kept(before)) <= set(stored) <= set(before) | new, (before, stored)
    check_ends(store)
    if kind.spec.has_episodes:
        store.end_episodes()
    store.insert(_present(store, make_row(950)), **({"end": True} if kind.spec.has_episodes else {}))
    store.check()
    numbers_in(store)


def main() -> None:
    """Check each operation; print how many states are wrong if they are not repaired, and how many there are."""
    for name, kind in KINDS.items():
        with tempfile.TemporaryDirectory() as parent:
            print(name, *check(kind, Path(parent)), sep="\t")


if __name__ == "__main__":
    main()
