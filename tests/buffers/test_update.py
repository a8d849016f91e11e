"""`update`: overwrites columns of stored rows by handle, in every kind of buffer, from Python and in a graph."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.store.kernels.state import COUNTS
from mindspore_replay.store.spec.episodes import END, FINAL, OPEN

CAPACITY = 8
SCHEMA: dict[str, Any] = {
    "shapes": [(2,), (), ()],
    "types": ["float32", "int32", "bool"],
    "names": ["state", "number", "terminated"],
}
REWARDED = {"shapes": [(2,), (), (), ()], "types": ["float32", "int32", "bool", "float32"]}
REWARDED["names"] = [*SCHEMA["names"], "reward"]

KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "weighted": (ReplayBuffer, {"weighted": True}),
    "prioritized": (PrioritizedReplayBuffer, {}),
    "elastic": (ElasticReplayBuffer, {"weighted": True, "window": 4}),
    "reservoir": (ReservoirReplayBuffer, {}),
    "weighted reservoir": (ReservoirReplayBuffer, {"weighted": True}),
    "sequence": (SequenceReplayBuffer, {"sequence_length": 2, "burn_in": 1}),
    "episode": (EpisodeReplayBuffer, {"max_episode_length": 3}),
    "views": (PrioritizedReplayBuffer, {"views": [NStep(2, 0.9, observation="state")], **REWARDED}),
}


_buffers: dict[Any, tuple[Any, dict[str, Any]]] = {}
_mixtures: dict[Any, MixedReplay] = {}


def make(kind: str, backend: str) -> Any:
    """Return a buffer after 12 insertions of rows with their serial numbers; in episodes of 3.

    Tests share one of each kind, with its graphs.
    """
    for each in ("native", backend):
        if (kind, each) not in _buffers:
            cls, options = KINDS[kind]
            buffer = cls(sample_size=2, capacity=CAPACITY, seed=0, backend=each, **(SCHEMA | options))
            if each == "native":
                fill(buffer)
            else:
                buffer.load_state_dict(_buffers[kind, "native"][1])  # without a graph that inserts
            _buffers[kind, each] = buffer, buffer.state_dict()
    buffer, state = _buffers[kind, backend]
    buffer.load_state_dict(state)
    return buffer


def fill(buffer: Any) -> None:
    n = np.arange(12)
    rows = [np.stack([n, -n], 1).astype(np.float32), n.astype(np.int32), n % 3 == 2, n.astype(np.float32)]
    flags = {"end": n % 3 == 2} if buffer.has_episodes else {}
    buffer.insert(rows[: len(buffer.names)], **flags)


def delete(buffer: Any, kind: str, handles: list[int]) -> None:
    """Delete rows by the native buffer of this kind: no test here is of a composite graph that deletes."""
    native, _ = _buffers[kind, "native"]
    native.load_state_dict(buffer.state_dict())
    native.delete(handles)
    buffer.load_state_dict(native.state_dict())


def stored(buffer: Any, rows: Any = None) -> dict[int, list[Any]]:
    """Return the rows by handle, which the column `number` of an untouched buffer contains."""
    columns = [column.asnumpy().tolist() for column in (buffer.rows() if rows is None else rows)]
    handles = buffer.row_serials.asnumpy() if hasattr(buffer, "row_serials") else np.arange(4, 12)
    return {int(handle): list(row) for handle, *row in zip(handles, *columns)}


def new_rows(n: int) -> dict[str, np.ndarray]:
    return {"state": np.arange(100, 100 + 2 * n, dtype=np.float32).reshape(n, 2), "terminated": np.arange(n) % 2 == 0}


def expected(before: dict[int, list[Any]], handles: list[int], live: set[int]) -> tuple[dict[int, list[Any]], int]:
    """Return the rows after columns 0 and 2 were written, by a plain loop; and the number of invalid handles."""
    after, values = {handle: list(row) for handle, row in before.items()}, new_rows(len(handles))
    for i, handle in enumerate(handles):
        if handle in live:
            after[handle][0], after[handle][2] = values["state"][i].tolist(), bool(values["terminated"][i])
    return after, sum(handle not in live for handle in handles)


class Update(nn.Cell):
    """Overwrites some columns, and then reads all rows."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.buffer = buffer

    def construct(self, handles, state, terminated):
        invalid = self.buffer.update(handles, {"state": state, "terminated": terminated})
        return (invalid,) + self.buffer.rows()


class Statement(nn.Cell):
    """Overwrites all columns by a statement that uses no result."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.buffer = buffer

    def construct(self, handles, state, number, terminated):
        self.buffer.update(handles, [state, number, terminated])
        return self.buffer.rows()


def graph(cell: nn.Cell) -> Callable[..., Any]:
    """Return the Cell as a compiled graph in any context mode."""
    return ms.jit(cell.construct)


def ends(state: dict[str, np.ndarray], written: dict[int, bool], needs_next: bool) -> dict[str, np.ndarray]:
    """Return the flags and steps of rows, in episodes of one environment, after some were written, by a plain loop."""
    flags, steps, ended = state["flags"].copy(), state["steps"].copy(), None
    for handle in range(int(state["serials"][0]) - int(state["count"]), int(state["serials"][0])):
        slot = handle % CAPACITY
        if ended is not None:
            steps[slot] = 0 if ended else steps[(handle - 1) % CAPACITY] + 1
        if handle in written:
            if not flags[slot] & END and written[handle]:
                flags[slot] |= END | OPEN
            elif flags[slot] & END and needs_next:
                flags[slot] = flags[slot] & ~FINAL if written[handle] else flags[slot] | FINAL | OPEN
        ended = bool(flags[slot] & END)
    return {"flags": flags, "steps": steps}


#: A graph runs the kernels that Python calls, and composite graphs take long: one of each body is among these.
PLACES = [
    *[(kind, "native", "python") for kind in KINDS],
    *[(kind, "native", "graph") for kind in ("views", "weighted reservoir")],
    ("prioritized", "composite", "graph"),
]


@pytest.mark.parametrize(("kind", "backend", "way"), PLACES)
def test_rows_are_written_by_handle(kind: str, backend: str, way: str):
    """Invalid handles are skipped and counted, the last of repeated handles counts, and nothing else changes."""
    buffer = make(kind, backend)
    before = stored(_buffers[kind, "native"][0])
    some = list(before)
    deleted = (
        [some[2], some[4]] if kind in ("weighted", "prioritized", "weighted reservoir", "sequence", "views") else []
    )
    if deleted:
        delete(buffer, kind, deleted)
    state = buffer.state_dict()
    gone = next(handle for handle in range(12) if handle not in before)
    handles = [some[1], gone, some[5], some[1], -1, 99, *(deleted or [some[5], some[6]]), some[5], some[0]]
    after, invalid = expected(before, handles, set(before) - set(deleted))
    assert invalid == 3 + len(deleted)
    values = new_rows(len(handles))
    updates = int(buffer.updates.asnumpy()[0])
    if way == "python":
        assert int(buffer.update(handles, values)) == invalid
        assert stored(buffer) == after
    else:
        got, *rows = graph(Update(buffer))(Tensor(handles), *map(Tensor, values.values()))
        assert int(got) == invalid
        assert stored(buffer, rows) == after
    # An operator for each column in a graph, one for both from Python.
    number = updates + 1 + (way == "graph" or backend == "composite")
    assert buffer.updates.asnumpy().tolist() == [number, number]
    buffer.check_valid()
    if buffer.weighted:
        state["counts"][COUNTS.index("invalid")] += invalid - 1  # -1 stands for no row
    changed = {"column.state", "column.terminated"}
    if buffer.has_episodes:
        state |= ends(state, {h: after[h][2] for h in handles if h in after and h not in deleted}, kind == "views")
        changed.add("weights")  # which are those of the valid starts by check_valid
    for key, array in buffer.state_dict().items():
        assert key in changed or np.array_equal(array, state[key]), key


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_updates_are_noted_for_blocks_of_slots(backend: str):
    """Not for invalid handles, whatever slot they would have."""
    buffer = ReplayBuffer(1, 40, [()], ["int32"], weighted=True, backend=backend)
    buffer.insert([np.arange(60, dtype=np.int32)])  # 40 to 59 lie in slots 0 to 19
    for handles in ([25, 59], [3, -1, 60], [40, 5]):
        buffer.update(handles, [handles])
    assert buffer.updates.asnumpy().tolist() == [3, 3, 1, 0]


def test_a_graph_reads_what_it_has_written():
    buffer = make("prioritized", "native")
    handles = np.array([5, 9])
    values = [np.full((2, 2), 7, np.float32), np.array([70, 71], np.int32), np.array([True, True])]
    number = graph(Statement(buffer))(Tensor(handles), *map(Tensor, values))[1].asnumpy()
    assert number.tolist() == [4, 70, 6, 7, 8, 71, 10, 11]


def test_one_handle_takes_one_row():
    buffer = make("weighted", "native")
    assert int(buffer.update(7, {"state": [1.5, 2.5], "number": 3})) == 0
    assert buffer.get_item(3)[0].asnumpy().tolist() == [1.5, 2.5]
    assert int(buffer.get_item(3)[1]) == 3


class UpdateMixed(nn.Cell):
    """Overwrites some columns of rows of several buffers."""

    def __init__(self, mixed: MixedReplay) -> None:
        super().__init__()
        self.mixed = mixed

    def construct(self, source, indices, state, terminated):
        return self.mixed.update(source, indices, {"state": state, "terminated": terminated})


class SampleAndWrite(nn.Cell):
    """Samples from several buffers, and overwrites all columns of the drawn rows, by a statement."""

    def __init__(self, mixed: MixedReplay) -> None:
        super().__init__()
        self.mixed = mixed

    def construct(self):
        batch = self.mixed.sample(with_indices=True)
        self.mixed.update(batch[0], batch[1], [-batch[3], batch[4] + 100, batch[5]])
        return batch


_updates: dict[MixedReplay, Callable[..., Any]] = {}


def update_mixed(mixed: MixedReplay) -> Callable[..., Any]:
    """Return the graph that overwrites rows of a result of `mix`."""
    if mixed not in _updates:
        _updates[mixed] = graph(UpdateMixed(mixed))
    return _updates[mixed]


def mix(kinds: tuple[str, ...] = ("weighted", "prioritized")) -> MixedReplay:
    """Mix buffers of these kinds whose rows have the same handles; from the second on numbers start at 1000."""
    sources = [make(kind, "native") for kind in kinds]
    for i, source in enumerate(sources):
        state = source.state_dict()
        state["column.number"] += 1000 * i
        source.load_state_dict(state)
    if kinds not in _mixtures:
        _mixtures[kinds] = MixedReplay([(source, 1) for source in sources], 2 * len(sources))
    return _mixtures[kinds]


@pytest.mark.parametrize("way", ["python", "graph"])
def test_mixed_rows_are_written_in_their_own_buffers(way: str):
    """Both buffers use the same handles; a shuffled batch finds its rows by their source."""
    mixed = mix()
    delete(mixed.sources[1], "prioritized", [9])
    states = [source.state_dict() for source in mixed.sources]
    source, indices = [1, 0, 1, 1, 0, 1, 0, 1, 0, 0], [5, 5, 7, 99, -1, 9, 9, 7, 6, 6]
    dead_at = {3, 4, 5}
    values = new_rows(10)
    wanted = [{key: array.copy() for key, array in state.items()} for state in states]
    for i, (owner, handle) in enumerate(zip(source, indices)):
        if i not in dead_at:
            wanted[owner]["column.state"][handle % CAPACITY] = values["state"][i]
            wanted[owner]["column.terminated"][handle % CAPACITY] = values["terminated"][i]
    wanted[1]["counts"][COUNTS.index("invalid")] += 2  # -1 stands for no row
    if way == "python":
        invalid = mixed.update(source, indices, values)
    else:
        invalid = update_mixed(mixed)(Tensor(source), Tensor(indices), *map(Tensor, values.values()))
    assert (invalid.dtype, int(invalid)) == (ms.int32, 3)
    for buffer, state in zip(mixed.sources, wanted):
        buffer.check_valid()
        assert all(np.array_equal(array, state[key]) for key, array in buffer.state_dict().items())


def test_a_graph_writes_the_rows_it_has_drawn_from_several_buffers():
    mixed = mix(("weighted", "prioritized", "weighted reservoir"))
    states = [source.state_dict() for source in mixed.sources]
    batch = [part.asnumpy() for part in graph(SampleAndWrite(mixed))()]
    source, number = batch[0], batch[4]
    for i, buffer in enumerate(mixed.sources):
        wanted = states[i]["column.number"].copy()
        wanted[np.isin(wanted, number[source == i])] += 100
        np.testing.assert_array_equal(buffer.state_dict()["column.number"], wanted)


@pytest.mark.parametrize("way", ["python", "graph"])
def test_rows_of_buffers_without_handles_are_left_out(way: str):
    plain = ReplayBuffer(2, CAPACITY, seed=0, backend="native", **SCHEMA)
    plain.insert([np.zeros((4, 2), np.float32), np.arange(4, dtype=np.int32), np.zeros(4, bool)])
    other = make("prioritized", "native")
    mixed, before = MixedReplay([(plain, 1), (other, 1)], 4), plain.state_dict()
    values = new_rows(10)
    source, indices = [0, 1, *[0] * 8], [-1, 4, *[2] * 8]
    if way == "python":
        invalid = mixed.update(source, indices, values)
    else:
        invalid = graph(UpdateMixed(mixed))(Tensor(source), Tensor(indices), *map(Tensor, values.values()))
    assert int(invalid) == 0
    assert all(np.array_equal(plain.state_dict()[key], array) for key, array in before.items())
    assert stored(other)[4] == [values["state"][1].tolist(), 4, False]


def test_a_sequence_s_rows_have_handles_num_envs_apart():
    """Each step of a sample is written to its own row, and masked steps to none."""
    buffer = SequenceReplayBuffer(
        16, 40, [()], ["int32"], 4, burn_in=3, stride=2, pad_end=True, num_envs=2, seed=0, backend="native"
    )
    for step in range(31):  # the number of a row is its handle
        buffer.insert([np.array([2 * step, 2 * step + 1], np.int32)], end=np.array([step % 5 == 4, step % 9 == 8]))
    indices, mask, number = (part.asnumpy() for part in buffer.sample())
    assert not mask[:, 0].all()
    assert not mask[:, -1].all()
    handles = indices[:, None] + (np.arange(7) - 3) * 2
    np.testing.assert_array_equal(number, np.where(mask, handles, 0))
    assert int(buffer.update(handles[mask], [number[mask] + 1000])) == 0
    numbers = np.arange(22, 62)
    np.testing.assert_array_equal(buffer.rows()[0].asnumpy(), numbers + 1000 * np.isin(numbers, handles[mask]))
