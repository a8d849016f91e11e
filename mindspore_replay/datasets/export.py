"""Reads the rows of a buffer in time order, in pieces."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ..store.kernels import library
from ..store.spec import episodes
from ..store.spec.spec import BufferSpec
from .filling import column_fields
from .steps import END, FINAL, Field, Recording, chunks

_FLAGS = {END: episodes.END, FINAL: episodes.FINAL}


class StoredRows:
    """The rows of a buffer, also those that were removed, one environment after the other, each oldest row first.

    `state` is the buffer's `snapshot`. `streams` has the slots of each environment's rows in time order.
    """

    def __init__(self, spec: BufferSpec, state: Mapping[str, Any]) -> None:
        head, count = int(state["head"]), int(state["count"])
        order = (head + np.arange(count)) % spec.capacity
        if "row_serials" in state:  # a reservoir's rows have no order
            order = np.argsort(state["row_serials"][:count])
        self.streams = [order[stream :: spec.num_envs] for stream in range(min(spec.num_envs, count))]
        self._fields, self._flags = column_fields(spec.columns), state["flags"] if spec.has_episodes else None
        self._arrays = {name: state[f"column.{name}"] for name in self._fields}
        self._leaders = {name: group.name for group in spec.columns.length_groups for name in group.names}
        self._lengths = {group.name_of_lengths: group.name for group in spec.columns.length_groups}
        self._items = {name: library.calls.Items((state[f"items.{name}"],)) for name in self._leaders}

    def __len__(self) -> int:
        return sum(map(len, self.streams))

    def end_episodes(self, flags: int) -> None:
        """End open episodes, by these flags, so that those of one environment do not go on in the rows of the next."""
        assert self._flags is not None
        self._flags, newest = self._flags.copy(), [slots[-1] for slots in self.streams]
        self._flags[newest] |= np.where(self._flags[newest] & episodes.END, 0, flags).astype(np.uint8)

    def pieces(self, rows: int) -> Iterator[np.ndarray]:
        """Return the slots of all rows, so many at a time."""
        return (slots[part] for slots in self.streams for part in chunks(len(slots), rows))

    def items(self, name: str) -> int | None:
        """Return the number of items of all rows in a column whose rows differ in length, ``None`` for another."""
        if name not in self._leaders:
            return None
        return sum(int(self._arrays[self._leaders[name]][slots, 1].sum()) for slots in self.streams)

    def read(self, name: str, slots: np.ndarray) -> np.ndarray:
        """Return a copy of a column in these slots; or flags, by `END` or `FINAL`; or lengths of rows, int32."""
        if name in _FLAGS:
            assert self._flags is not None
            return (self._flags[slots] & _FLAGS[name]) > 0
        if name in self._lengths:
            lengths: np.ndarray = self._arrays[self._lengths[name]][slots, 1]
            return lengths.astype(np.int32)
        rows: np.ndarray
        if name in self._leaders:  # the items, one row behind the other
            rows = self._items[name].packed(self._arrays[self._leaders[name]][slots])[1][0].copy()
        else:
            rows = self._arrays[name][slots]
        return rows.view(self._fields[name][1])

    def recordings(self, names: Mapping[str, str], observations: Collection[str]) -> Iterator[Recording]:
        """Return the rows of each environment, with columns under new names. `names` maps these to the buffer's."""
        fields: dict[str, Field] = {name: self._fields[column] for name, column in names.items()}
        if self._flags is not None:
            fields |= dict.fromkeys(_FLAGS, ((), np.dtype(np.bool_)))
        for slots in self.streams:
            read = lambda name, rows, of=slots: self.read(names.get(name, name), of[rows])  # noqa: E731
            yield Recording("to_minari", "the buffer", len(slots), fields, read, observations)
