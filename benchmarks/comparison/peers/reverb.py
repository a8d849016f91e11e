"""dm-reverb: a server with tables of items; here in the same process, where its samplers read the tables directly."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import reverb
import tensorflow as tf
from reverb import structured_writer

from ..answering import NotOfferedError, Peer, Work, answer
from ..cases import EPISODE, SEQUENCE, STACK, Case, Schema, batch_of, chunks_of, in_turn

ITEM_BYTES = 6_000  # measured for an item of a CartPole transition
MOST_BYTES = 4 * 10**9
IN_FLIGHT = 25  # items not yet confirmed by the server; the default of its older writer
DRAWN = "drawn ahead by a TrajectoryDataset"
LEAST = 100  # batches of a turn; some of them are ready when it begins

#: Maps a step's columns to an item's; an index selects a step, a slice a run of steps.
Pattern = Callable[[Any], dict[str, Any]]


class Store:
    """A server with a table of items, each made from the last steps by a pattern."""

    def __init__(self, schema: Schema, pattern: Pattern, items: int, steps: int = 1) -> None:
        self.dtypes = {name: np.dtype(dtype) for name, (_, dtype) in schema.items()}
        specs = {name: tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in schema.items()}
        made = structured_writer.pattern_from_transform(specs, pattern)
        longer = [structured_writer.Condition.step_index() >= steps - 1] if steps > 1 else []
        config = structured_writer.create_config(made, "table", longer)
        self.table = reverb.Table(
            "table",
            reverb.selectors.Uniform(),
            reverb.selectors.Fifo(),
            items,
            reverb.rate_limiters.MinSize(1),
            signature=structured_writer.infer_signature([config], specs),
        )
        self.server = reverb.Server([self.table])
        self.client = self.server.localhost_client()
        self.writer = self.client.structured_writer([config])

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one step; at most `IN_FLIGHT` items are not yet stored."""
        self.writer.append({name: np.asarray(row[name], dtype) for name, dtype in self.dtypes.items()})
        self.writer.flush(IN_FLIGHT)

    def append_batch(self, rows: Mapping[str, np.ndarray]) -> None:
        """Write steps one after the other, which is the only way."""
        for i in range(len(rows["reward"])):
            self.append({name: column[i] for name, column in rows.items()})

    def batches(self, size: int) -> Iterator[Any]:
        """Yield batches without an end, which its own threads draw ahead."""
        dataset = reverb.TrajectoryDataset.from_table_signature(
            self.client.server_address, "table", max_in_flight_samples_per_worker=2 * size
        )
        yield from dataset.batch(size).as_numpy_iterator()  # a generator, which keeps the server alive


def _last(step: Any) -> dict[str, Any]:
    return {name: column[-1] for name, column in step.items()}


def _run(step: Any) -> dict[str, Any]:
    return {name: column[-SEQUENCE:] for name, column in step.items()}


def _frames(step: Any) -> dict[str, Any]:
    """Return the row of the last step but one; its frames are those of its stack and the next one."""
    rest = {name: column[-2] for name, column in step.items() if name != "observation"}
    return {"observation": step["observation"][-STACK - 1 :], **rest}


def _too_large(case: Case) -> str:
    """Return the reason if a case's rows are too many items."""
    size = case.capacity * (ITEM_BYTES + case.row_bytes)
    return f"{case.capacity:,} items would take about {size / 1e9:.0f} GB in it" if size > MOST_BYTES else ""


def _rows(case: Case) -> Store:
    """Return a full store whose items are rows."""
    if reason := _too_large(case):
        raise NotOfferedError(reason)
    store = Store(case.schema, _last, case.capacity)
    for rows in chunks_of(case.schema, case.capacity):
        store.append_batch(rows)
    store.writer.flush()
    return store


def _episodes(case: Case) -> Iterator[dict[str, np.ndarray]]:
    for rows in chunks_of(case.schema, case.capacity):
        for start in range(0, len(rows["reward"]), EPISODE):
            yield {name: column[start : start + EPISODE] for name, column in rows.items()}


def _frames_store(case: Case) -> Store:
    """Return a full store of items of five frames; an episode has its first frame four times, and one past its end."""
    store = Store(case.schema, _frames, case.capacity, STACK + 1)
    for rows in _episodes(case):
        order = [0] * (STACK - 1) + [*range(EPISODE), 0]
        store.append_batch({name: column[order] for name, column in rows.items()})
        store.writer.end_episode()
    return store


def _stacks(batch: Any) -> dict[str, np.ndarray]:
    frames = batch.data["observation"]
    return {**batch.data, "observation": frames[:, :-1], "next_observation": frames[:, 1:]}


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Reverb(Peer):
    """Measures dm-reverb."""

    packages = ("dm-reverb", "tensorflow")
    lacks: Mapping[str, str] = {
        "n_step": "it stores what is written; the sums are Acme's",
        "dqn": "it has tables and no agents",
    }

    def insert(self, case: Case) -> Work:
        """One row, or the rows of a batch one by one."""
        store = _rows(case)
        if case.batch == 1:
            return Work(in_turn(store.append, case.single_rows()), store.writer.flush)
        rows = batch_of(case.schema, case.batch)
        return Work(lambda: store.append_batch(rows), store.writer.flush, note="row by row")

    def sample(self, case: Case) -> Work:
        return self._drawn(_rows(case), case)

    def _drawn(
        self, store: Store, case: Case, note: str = "", then: Callable[[Any], Any] = lambda batch: batch
    ) -> Work:
        batches = store.batches(case.batch)
        return Work(lambda: then(next(batches)), note=note + DRAWN, least=LEAST)

    def frames_bytes(self, case: Case) -> Work:
        """Bytes per row by which the process grows: its chunks are counted nowhere."""
        before = _memory()
        store = _frames_store(case)
        held = _memory() - before
        return Work(lambda: held / store.table.info.current_size, note="by what the process grows")

    def frames_sample(self, case: Case) -> Work:
        return self._drawn(_frames_store(case), case, "items of five frames; ", _stacks)

    def sequences(self, case: Case) -> Work:
        """A batch of sequences, none of which crosses the end of an episode."""
        items = case.capacity // EPISODE * (EPISODE - SEQUENCE + 1)
        store = Store(case.schema, _run, items, SEQUENCE)
        for rows in _episodes(case):
            store.append_batch(rows)
            store.writer.end_episode()
        return self._drawn(store, case, "each step begins an item; ")

    def prioritized_insert(self, case: Case) -> Work:
        """Not offered; it could be at smaller sizes."""
        raise NotOfferedError(_too_large(case) or "it is not written here")

    prioritized_sample = prioritized_update = save = load = prioritized_insert


if __name__ == "__main__":
    answer(Reverb())
