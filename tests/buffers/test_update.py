"""`update` by hand, also of mixtures. `test_twin.py` has random operations."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body
from kinds import KINDS
from mindspore import Tensor, nn

from mindspore_replay import MixedReplay, ReplayBuffer, SequenceReplayBuffer
from mindspore_replay.store.base.structs import COUNTS

CAPACITY = 8
SCHEMA: dict[str, Any] = {
    "shapes": [(2,), (), ()],
    "types": ["float32", "int32", "bool"],
    "names": ["state", "number", "terminated"],
}


_buffers: dict[str, tuple[Any, dict[str, Any]]] = {}
_mixtures: dict[Any, MixedReplay] = {}


def make(kind: str) -> Any:
    """Return a buffer after 12 insertions of rows with their serial numbers. Tests share one of each kind."""
    if kind not in _buffers:
        buffer = KINDS[kind].make(2, CAPACITY, seed=0, **SCHEMA)
        n = np.arange(12)
        buffer.insert([np.stack([n, -n], 1).astype(np.float32), n.astype(np.int32), n % 3 == 2])
        _buffers[kind] = buffer, buffer.state_dict()
    buffer, state = _buffers[kind]
    buffer.load_state_dict(state)
    return buffer


def new_rows(n: int) -> dict[str, np.ndarray]:
    return {"state": np.arange(100, 100 + 2 * n, dtype=np.float32).reshape(n, 2), "terminated": np.arange(n) % 2 == 0}


def graph(cell: nn.Cell) -> Callable[..., Any]:
    """Return the Cell as a compiled graph in any context mode."""
    return ms.jit(cell.construct)


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_updates_are_noted_for_blocks_of_slots(backend: str):
    """Not for invalid handles, whatever slot they would have."""
    buffer = ReplayBuffer(1, 40, [()], ["int32"], weighted=True, backend=backend)
    buffer.insert([np.arange(60, dtype=np.int32)])  # 40 to 59 lie in slots 0 to 19
    for handles in ([25, 59], [3, -1, 60], [40, 5]):
        buffer.update(handles, [handles])
    assert buffer.updates.asnumpy().tolist() == [3, 3, 1, 0]


class UpdateMixed(Body):
    """Overwrites some columns of rows of several buffers."""

    def construct(self, source, indices, state, terminated):
        return self.buffer.update(source, indices, {"state": state, "terminated": terminated})


class SampleAndWrite(Body):
    """Samples from several buffers, and overwrites all columns of the drawn rows, by a statement."""

    def construct(self):
        batch = self.buffer.sample(with_indices=True)
        self.buffer.update(batch[0], batch[1], [-batch[3], batch[4] + 100, batch[5]])
        return batch


_updates: dict[MixedReplay, Callable[..., Any]] = {}


def update_mixed(mixed: MixedReplay) -> Callable[..., Any]:
    """Return the graph that overwrites rows of a result of `mix`."""
    if mixed not in _updates:
        _updates[mixed] = graph(UpdateMixed(mixed))
    return _updates[mixed]


def mix(kinds: tuple[str, ...] = ("weighted", "prioritized")) -> MixedReplay:
    """Mix buffers of these kinds whose rows have the same handles; from the second on numbers start at 1000."""
    sources = [make(kind) for kind in kinds]
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
    mixed.sources[1].delete([9])
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
    mixed = mix(("weighted", "prioritized", "reservoir, weighted"))
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
    other = make("prioritized")
    mixed, before = MixedReplay([(plain, 1), (other, 1)], 4), plain.state_dict()
    values = new_rows(10)
    source, indices = [0, 1, *[0] * 8], [-1, 4, *[2] * 8]
    if way == "python":
        invalid = mixed.update(source, indices, values)
    else:
        invalid = graph(UpdateMixed(mixed))(Tensor(source), Tensor(indices), *map(Tensor, values.values()))
    assert int(invalid) == 0
    assert all(np.array_equal(plain.state_dict()[key], array) for key, array in before.items())
    assert [part.tolist() for part in other.get_item(0)] == [values["state"][1].tolist(), 4, False]


def test_a_sequence_s_rows_have_handles_num_envs_apart():
    """Each step of a sample is written to its own row, and masked steps to none."""
    buffer = SequenceReplayBuffer(
        16,
        40,
        [()],
        ["int32"],
        sequence_length=4,
        burn_in=3,
        stride=2,
        pad_end=True,
        num_envs=2,
        seed=0,
        backend="native",
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
