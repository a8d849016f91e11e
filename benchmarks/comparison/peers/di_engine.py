"""DI-engine: its `DequeBuffer` and its `AdvancedReplayBuffer`; both hold a Python object per row.

The output is the tensors that its policies make of the sampled objects. The argument names the buffer.
"""

import copy
import gc
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ding.data.buffer import DequeBuffer
from ding.data.buffer.middleware import PriorityExperienceReplay
from ding.rl_utils import get_nstep_return_data
from ding.utils.data import default_collate
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from easydict import EasyDict

from ..answering import NotOfferedError, Work, answer
from ..cases import (
    ALPHA,
    BETA,
    EPISODE,
    GAMMA,
    N_STEP,
    SEQUENCE,
    Case,
    batch_of,
    chunks_of,
    in_turn,
    priorities_of,
    single_rows,
)
from .torch_peer import TorchPeer

MOST_PRIORITIES = 100_000
#: The library's names of columns.
KEYS = {
    "observation": "obs",
    "action": "action",
    "reward": "reward",
    "next_observation": "next_obs",
    "terminated": "done",
}
#: Approximate bytes of a row's objects and of a column's tensor, without the data.
ROW_OBJECTS, TENSOR_OBJECTS = 1300, 500
LIMIT = 4 << 30

Item = dict[str, Any]


def item_of(row: dict[str, Any]) -> Item:
    """Return a row as an item: tensors under its names."""
    return {KEYS[name]: torch.as_tensor(value) for name, value in row.items()}


def items_of(rows: dict[str, np.ndarray]) -> list[Item]:
    """Return rows as items, whose tensors are views of the columns."""
    keys = [KEYS[name] for name in rows]
    columns = [torch.from_numpy(column).unbind() for column in rows.values()]
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


class DIEngine(TorchPeer):
    """Measures a buffer of DI-engine; a subclass makes and calls it."""

    packages = ("DI-engine", "torch", "numba")

    def prepare(self, case: Case) -> Work:
        """Prepare the case, unless its objects need too much memory."""
        row = case.row_bytes + ROW_OBJECTS + TENSOR_OBJECTS * len(case.schema)
        if case.capacity * row > LIMIT:
            raise NotOfferedError("a row is a Python object, and so many rows take more than 4 GB")
        return super().prepare(case)

    def make(self, capacity: int, prioritized: bool) -> Any:
        """Return an empty buffer."""
        raise NotImplementedError

    def push(self, buffer: Any, items: list[Item]) -> None:
        """Insert items; a priority is under ``priority``."""
        raise NotImplementedError

    def draw(self, buffer: Any, size: int) -> tuple[list[Item], Callable[[list[float]], None]]:
        """Return items, and the function that updates their priorities."""
        raise NotImplementedError

    def _filled(self, case: Case, prioritized: bool = False) -> Any:
        buffer = self.make(case.capacity, prioritized)
        gc.disable()  # otherwise millions of objects are scanned again and again
        for seed, rows in enumerate(chunks_of(case.schema, case.capacity)):
            items = items_of(rows)
            if prioritized:
                for item, priority in zip(items, priorities_of(len(items), seed).tolist(), strict=True):
                    item["priority"] = priority
            self.push(buffer, items)
        gc.enable()
        return buffer

    def _collated(self, buffer: Any, size: int) -> Any:
        return default_collate(self.draw(buffer, size)[0])

    def insert(self, case: Case) -> Work:
        """One row or the rows of a batch."""
        if case.batch == case.capacity:
            raise NotOfferedError("a row is a Python object, and so many at once take minutes")
        buffer = self._filled(case)
        if case.batch == 1:
            return Work(in_turn(lambda row: self.push(buffer, [item_of(row)]), case.single_rows()))
        rows = batch_of(case.schema, case.batch)
        return Work(lambda: self.push(buffer, items_of(rows)))

    def sample(self, case: Case) -> Work:
        """A batch."""
        buffer = self._filled(case)
        return Work(lambda: self._collated(buffer, case.batch))

    def prioritized_insert(self, case: Case) -> Work:
        """A row with its priority."""
        buffer = self._filled(case, True)
        rows = single_rows(case.schema)
        priorities = priorities_of(len(rows)).tolist()

        def insert(row: tuple[dict[str, Any], float]) -> None:
            self.push(buffer, [{**item_of(row[0]), "priority": row[1]}])

        return Work(in_turn(insert, list(zip(rows, priorities, strict=True))))

    def prioritized_sample(self, case: Case) -> Work:
        """A batch with weights."""
        buffer = self._filled(case, True)
        return Work(lambda: self._collated(buffer, case.batch))

    def prioritized_update(self, case: Case) -> Work:
        """A batch, then new priorities for it."""
        buffer = self._filled(case, True)
        priorities = priorities_of(case.batch).tolist()

        def update() -> None:
            items, give = self.draw(buffer, case.batch)
            default_collate(items)
            give(priorities)

        return Work(update)

    def frames_bytes(self, case: Case) -> Work:
        """Not offered."""
        raise NotOfferedError("rows share no frames")

    frames_sample = frames_bytes

    def sequences(self, case: Case) -> Work:
        """A batch of items that are sequences, as its recurrent policies store them."""
        whole = EPISODE // SEQUENCE * SEQUENCE
        buffer = self.make(case.capacity // EPISODE * whole // SEQUENCE, False)
        for rows in chunks_of(case.schema, case.capacity):
            cut = {}
            for name, column in rows.items():
                rest = column.shape[1:]
                cut[name] = column.reshape(-1, EPISODE, *rest)[:, :whole].reshape(-1, SEQUENCE, *rest)
            self.push(buffer, items_of(cut))
        return Work(
            lambda: self._collated(buffer, case.batch),
            note=f"a stored item is a sequence of {SEQUENCE} steps, and the rest of an episode is left out",
        )

    def n_step(self, case: Case) -> Work:
        """Insert the row whose return is now known, and draw a batch."""
        buffer = self.make(case.capacity, False)
        for rows in chunks_of(case.schema, case.capacity):
            items = items_of(rows)
            for start in range(0, len(items), EPISODE):
                self.push(buffer, get_nstep_return_data(items[start : start + EPISODE], N_STEP, True, gamma=GAMMA))
        window: deque[Item] = deque(maxlen=N_STEP + 1)

        def insert(row: dict[str, Any]) -> None:
            window.append(item_of(row))
            if len(window) > N_STEP:
                steps = get_nstep_return_data([dict(item) for item in window], N_STEP, True, gamma=GAMMA)
                self.push(buffer, steps[:1])
            if row["terminated"]:
                steps = get_nstep_return_data([dict(item) for item in window][-N_STEP:], N_STEP, True, gamma=GAMMA)
                self.push(buffer, steps)
                window.clear()

        insertion = in_turn(insert, single_rows(case.schema))
        return Work(lambda: (insertion(), self._collated(buffer, case.batch)), note="returns are made at insertion")


class Deque(DIEngine):
    """`DequeBuffer`."""

    def make(self, capacity: int, prioritized: bool) -> DequeBuffer:
        """With its own middleware for priorities, which scans every item for a sample."""
        if prioritized and capacity > MOST_PRIORITIES:
            raise NotOfferedError("its middleware for priorities goes over all items for a sample, 0.2 s of 2^20 rows")
        buffer = DequeBuffer(capacity)
        if prioritized:
            buffer.use(PriorityExperienceReplay(buffer, True, ALPHA, BETA))
        return buffer

    def push(self, buffer: DequeBuffer, items: list[Item]) -> None:
        """One after the other."""
        for item in items:
            meta = {"priority": item.pop("priority")} if "priority" in item else None
            buffer.push(item, meta)

    def draw(self, buffer: DequeBuffer, size: int) -> tuple[list[Item], Callable[[list[float]], None]]:
        """Return the data of the sampled items."""
        drawn = buffer.sample(size)

        def give(priorities: list[float]) -> None:
            for row, priority in zip(drawn, priorities, strict=True):
                row.meta["priority"] = priority
                buffer.update(row.index, None, row.meta)

        return [row.data for row in drawn], give


class Advanced(DIEngine):
    """`AdvancedReplayBuffer`; if a case has no priorities, all are equal."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[AdvancedReplayBuffer] = []

    def make(self, capacity: int, prioritized: bool) -> AdvancedReplayBuffer:
        """With its own configuration except for the size and the constants; its log goes to the case's folder."""
        options = {"replay_buffer_size": capacity, "alpha": ALPHA, "beta": BETA, "anneal_step": 0}
        settings = EasyDict({**copy.deepcopy(AdvancedReplayBuffer.config), **options})
        self._made.append(AdvancedReplayBuffer(settings, exp_name=os.path.relpath(self.folder)))
        return self._made[-1]

    def push(self, buffer: AdvancedReplayBuffer, items: list[Item]) -> None:
        """A list at once."""
        buffer.push(items, 0)

    def draw(self, buffer: AdvancedReplayBuffer, size: int) -> tuple[list[Item], Callable[[list[float]], None]]:
        """Return the sample."""
        drawn = buffer.sample(size, 0)
        names = ("replay_unique_id", "replay_buffer_idx")
        return drawn, lambda priorities: buffer.update(
            {**{name: [item[name] for item in drawn] for name in names}, "priority": priorities}
        )

    def release(self) -> None:
        """End the threads of its buffers."""
        while self._made:
            self._made.pop().close()
        super().release()


PEERS = {"di_engine_deque": Deque, "di_engine_advanced": Advanced}

if __name__ == "__main__":
    answer(PEERS[sys.argv[1]]())
