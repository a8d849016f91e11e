"""Rows of any length in compiled graphs: threads, reads and errors. A slow twin is in `test_twin.py`."""

import itertools
import threading
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import COLUMNS, LONGEST, joined, padded, row_of
from checks import same_states
from faces import InGraph
from flat import flat
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer, ReplayQueue
from mindspore_replay.store.rows import any_length as ragged

pytestmark = pytest.mark.cpu_only("rows of any length need the kernels of the CPU")

LARGE = {**COLUMNS, "items": 60, "seed": 0}


def in_graph(graph: InGraph, row: dict[str, Any], n: int | None = None) -> list[int]:
    """Insert a row in a graph, with a wrong length if `n` is given."""
    exp = {name: padded([value], name, LONGEST) for name, value in row.items()}
    return graph.insert(exp, {name: np.array([n or len(row[name])]) for name in ("tokens", "words")})


def test_rows_stay_whole_beside_a_graph_in_another_thread(tmp_path: Path):
    buffer = PrioritizedReplayBuffer(4, 16, **flat(**LARGE, storage=tmp_path / "rows"))
    graph, given = InGraph(buffer), [row_of(k, k % 6, 2) for k in range(100)]
    for one in given[:4]:
        in_graph(graph, one)  # compiled here: MindSpore compiles nothing beside calls of other threads
    thread = threading.Thread(target=lambda: [in_graph(graph, one) for one in given])
    thread.start()
    for k in itertools.count(100):
        buffer.insert({name: Tensor(value) for name, value in row_of(k, 1 + k % 5, k % 3).items()})
        for batch in (buffer.sample(as_dict=True), buffer.sample(longest=True, as_dict=True)):
            arrays = {name: value.asnumpy() for name, value in batch.items()}
            there = np.arange(arrays["tokens"].shape[1]) < arrays["tokens_lengths"][:, None]
            assert (arrays["logits"][..., 0] // 10 == np.where(there, arrays["reward"][:, None], 0)).all()
            assert (arrays["tokens"] == arrays["logits"][..., 0]).all()
            buffer.update_priorities(batch["indices"], batch["reward"] + 1)
            buffer.update(batch["indices"][:1], {"reward": batch["reward"][:1] * 1})
        if k > 150 and not thread.is_alive():
            break
    buffer.check_valid()
    assert int(buffer.serials.asnumpy()[0]) == 104 + k - 99


def test_rows_are_read_as_from_python():
    buffer = ReplayBuffer(2, 16, **flat(**LARGE)).insert(joined([row_of(k, 5 - k % 4, k % 3) for k in range(12)]))

    @ms.jit
    def read(index, one):
        return buffer.get_item(index, as_dict=True), buffer.get_item(one)

    read_rows, single = read(Tensor([0, -1, 5]), Tensor(5))
    expected = buffer.get_item([0, -1, 5], as_dict=True)
    for name, value in read_rows.items():
        rows = value.asnumpy() if value.ndim == 1 else value.asnumpy()[:, : expected[name].shape[1]]
        np.testing.assert_array_equal(rows, expected[name].asnumpy())
    assert read_rows["tokens"].shape == (3, LONGEST)
    lengths, _, tokens, *_ = single
    assert lengths.asnumpy() == 4
    assert tokens.asnumpy().tolist() == [50, 51, 52, 53, 0]


def test_rows_without_lengths_are_as_long_as_they_are_given():
    buffer = ReplayBuffer(1, 9, **flat([(None,), ()], ["int32", "float32"], max_length=5, items=9, seed=0))

    @ms.jit
    def insert(one, many):
        buffer.insert((one, Tensor(1.0)))
        buffer.insert((many, ms.ops.ones(2, ms.float32)))
        return buffer.size()

    assert insert(Tensor([1, 2, 3], ms.int32), Tensor([[4, 5], [6, 7]], ms.int32)) == 3
    assert [buffer.get_item(i)[1].asnumpy().tolist() for i in range(3)] == [[1, 2, 3], [4, 5], [6, 7]]
    assert insert(Tensor([1, 2, 3], ms.int32), Tensor([[8, 9], [1, 2]], ms.int32)) == 3


@pytest.mark.parametrize("in_folder", [False, True])
def test_no_graph_comes_between_a_draw_and_its_items(in_folder: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    storage = tmp_path / "rows" if in_folder else None
    buffer = ReplayBuffer(2, 9, **flat([(None,)], ["int32"], max_length=50, items=120, seed=0, storage=storage))

    @ms.jit
    def insert(tokens):
        return buffer.insert((tokens,), with_indices=True)

    first, second = (Tensor(np.full(50, n, np.int32)) for n in (1, 2))
    thread = threading.Thread(target=lambda: [insert(second) for _ in range(3)])
    with_items = ragged.RaggedStore._with_items

    def late(*given: Any) -> Any:
        thread.start()
        thread.join(0.5)  # it waits
        assert thread.is_alive()
        return with_items(*given)

    insert(first)
    insert(first)
    monkeypatch.setattr(ragged.RaggedStore, "_with_items", late)
    assert (buffer.sample()[1].asnumpy() == 1).all()
    thread.join()
    monkeypatch.undo()
    assert (buffer.sample()[1].asnumpy() == 2).all()


def test_a_wrong_length_fails_and_stores_nothing():
    options = {"max_length": 5, "items": 20, "seed": 0, "default_priority": "largest_held"}
    buffer = PrioritizedReplayBuffer(1, 9, **flat([(None,)], ["int32"], **options))
    before = buffer.state_dict()

    @ms.jit
    def insert(tokens, of):
        return buffer.insert((tokens,), lengths=of, with_indices=True)

    tokens = Tensor(np.zeros((2, 7), np.int32))
    with pytest.raises(RuntimeError, match="failed with status 13: a length is negative or above longest"):
        insert(tokens, Tensor([5, -1], ms.int32))
    assert same_states(buffer, before)
    ms.ms_memory_recycle()
    insert(tokens, Tensor([5, 0], ms.int32))
    assert len(buffer) == 2


def test_a_full_queue_fails_and_stores_nothing():
    queue = ReplayQueue(1, 9, **flat([(None,)], ["int32"], max_length=5, items=9, timeout=0, seed=0))

    @ms.jit
    def insert(tokens):
        return queue.insert((tokens,), with_indices=True)

    tokens = Tensor(np.arange(4, dtype=np.int32))
    insert(tokens)
    insert(tokens)
    with pytest.raises(RuntimeError, match="failed with status 10: there is no room"):
        insert(tokens)
    assert len(queue) == 2
    ms.ms_memory_recycle()
    assert queue.sample()[1].asnumpy().tolist() == [[0, 1, 2, 3, 0]]
    insert(tokens)
    assert queue.size() == 2
