"""Reads the rows of a buffer in time order, in pieces."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..store.base.kinds import Kind
from ..store.kernels import library
from ..store.spec import episodes
from ..store.spec.spec import BufferSpec
from .filling import column_fields, row_bytes
from .steps import END, FINAL, Steps, chunk_rows, episodes_of, steps_of

_FLAGS = {END: episodes.END, FINAL: episodes.FINAL}


class StoredRows:
    """The rows of a buffer, one environment after the other, each oldest row first.

    Removed rows are included.

    Args:
        spec (BufferSpec): What the buffer is.
        state (Mapping[str, Any]): The buffer's `snapshot`.

    Attributes:
        fields (dict[str, Field]): The columns.
        kinds (dict[str, Kind]): The kinds of those whose rows differ in length.
    """

    def __init__(self, spec: BufferSpec, state: Mapping[str, Any]) -> None:
        self.fields = column_fields(spec.columns)
        self.kinds = {name: kind for kind in spec.columns.kinds for name in kind.names}
        self._arrays = {name: state[f"column.{name}"] for name in self.fields}
        self._items = {name: library.calls.Items((state[f"items.{name}"],)) for name in self.kinds}
        self._flags = state["flags"] if spec.has_episodes else None
        self._head, self._count = int(state["head"]), int(state["count"])
        self._streams, self._capacity = spec.num_envs, spec.capacity
        # A reservoir's rows have no order.
        self._order = np.argsort(state["row_serials"][: self._count]) if "row_serials" in state else None

    def __len__(self) -> int:
        return self._count

    def end_episodes(self, flags: int) -> None:
        """End open episodes, by these flags, so that those of one environment do not go on in the rows of the next."""
        assert self._flags is not None
        newest = np.arange(max(0, self._count - self._streams), self._count)
        newest = (newest + self._head) % self._capacity
        self._flags = self._flags.copy()
        self._flags[newest] |= np.where(self._flags[newest] & episodes.END, 0, flags).astype(np.uint8)

    def slots(self, rows: int) -> Iterator[Iterator[np.ndarray]]:
        """Return, for each environment, the slots of its rows in time order, `rows` at a time."""
        for stream in range(min(self._streams, self._count)):
            positions = np.arange(stream, self._count, self._streams)
            positions = (positions + self._head) % self._capacity if self._order is None else self._order[positions]
            yield (positions[begin : begin + rows] for begin in range(0, len(positions), rows))

    def read(self, name: str, slots: np.ndarray) -> np.ndarray:
        """Return a copy of a column in these slots. With episodes, `name` may also be `END` or `FINAL`."""
        if name in _FLAGS:
            assert self._flags is not None
            return (self._flags[slots] & _FLAGS[name]) > 0
        rows: np.ndarray
        if name in self.kinds:  # the items, one row behind the other
            rows = self._items[name].packed(self._arrays[self.kinds[name].name][slots])[1][0].copy()
        else:
            rows = self._arrays[name][slots]
        return rows.view(self.fields[name][1])

    def lengths(self, kind: Kind, slots: np.ndarray) -> np.ndarray:
        """Return the lengths of rows, int32."""
        lengths: np.ndarray = self._arrays[kind.name][slots, 1]
        return lengths.astype(np.int32)

    def episodes(self, names: Mapping[str, str], observations: Sequence[str]) -> Iterator[Steps]:
        """Return each episode, with columns under new names. `names` maps these to the buffer's."""
        flags = {} if self._flags is None else {name: name for name in _FLAGS}
        for slots in self.slots(chunk_rows(row_bytes(self.fields[column] for column in names.values()))):
            chunks = (
                {name: self.read(column, chunk) for name, column in {**names, **flags}.items()} for chunk in slots
            )
            yield from episodes_of(steps_of(chunks, observations))
