"""Reads the rows of a buffer in time order, in pieces."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..buffers.base import Buffer
from ..ops.eager import wait_for_work
from ..store import episodes
from .filling import row_bytes
from .steps import END, FINAL, Steps, chunk_rows, episodes_of, steps_of

_FLAGS = {END: episodes.END, FINAL: episodes.FINAL}


class StoredRows:
    """The rows of a buffer, one environment after the other, each oldest row first.

    Removed rows are included. Hold the buffer's lock, so that nothing changes it.

    Args:
        buffer (ReplayBuffer): The buffer.
    """

    def __init__(self, buffer: Buffer) -> None:
        wait_for_work()
        self.columns = buffer.columns
        self._arrays = {
            name: (column if f"column.{name}" in buffer.compressed else column.asnumpy(), dtype)
            for name, column, dtype in zip(self.columns.names, buffer.buffer, self.columns.numpy_types)
        }
        self._flags = buffer.flags.asnumpy() if buffer.has_episodes else None
        self._head, self._count = int(buffer.head.asnumpy()), int(buffer.count.asnumpy())
        self._streams, self._capacity = buffer.num_envs, buffer.capacity
        # A reservoir's rows have no order.
        serials = buffer.row_serials.asnumpy()[: self._count] if hasattr(buffer, "row_serials") else None
        self._order = None if serials is None else np.argsort(serials)

    def __len__(self) -> int:
        return self._count

    def slots(self, rows: int) -> Iterator[Iterator[np.ndarray]]:
        """Return, for each environment, the slots of its rows in time order, `rows` at a time."""
        for stream in range(min(self._streams, self._count)):
            positions = np.arange(stream, self._count, self._streams)
            positions = (positions + self._head) % self._capacity if self._order is None else self._order[positions]
            yield (positions[begin : begin + rows] for begin in range(0, len(positions), rows))

    def read(self, name: str, slots: np.ndarray) -> np.ndarray:
        """Return a copy of a column in these slots; `name` may also be `END` or `FINAL`, if rows know their episode."""
        if name in _FLAGS:
            assert self._flags is not None
            return (self._flags[slots] & _FLAGS[name]) > 0
        array, dtype = self._arrays[name]
        return array[slots].view(dtype)

    def episodes(self, names: Mapping[str, str], observations: Sequence[str]) -> Iterator[Steps]:
        """Return each episode, with columns under new names; `names` gives the buffer's column for each."""
        flags = {} if self._flags is None else {name: name for name in _FLAGS}
        fields = dict(zip(self.columns.names, zip(self.columns.shapes, self.columns.numpy_types)))
        for slots in self.slots(chunk_rows(row_bytes(fields[column] for column in names.values()))):
            chunks = (
                {name: self.read(column, chunk) for name, column in {**names, **flags}.items()} for chunk in slots
            )
            yield from episodes_of(steps_of(chunks, observations))
