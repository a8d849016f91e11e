"""Rows of any length in compiled graphs: they do what calls from Python do, and what a slow twin does."""

import contextlib
import itertools
import threading
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import CAPACITY, COLUMNS, LONGEST, joined, row, run
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import (
    EpisodeReplayBuffer,
    MixedReplay,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    attach,
)
from mindspore_replay.ops import operator as operators
from mindspore_replay.store import kinds, ragged

pytestmark = pytest.mark.cpu_only("rows of any length need the kernels of the CPU")

LARGE = {**COLUMNS, "items": 60}
NAMES: Any = tuple(COLUMNS["names"])


class InGraph:
    """A buffer that rows come to in a graph, padded; all else is the buffer's own."""

    def __init__(self, buffer: Any) -> None:
        self.buffer, self.reset, self.get_item = buffer, buffer.reset, self.read
        self.check_valid = buffer.check_valid

        @ms.jit
        def insert(tokens, reward, log_probs, flags, of_tokens, of_flags):
            exp = {"tokens": tokens, "reward": reward, "log_probs": log_probs, "flags": flags}
            return buffer.insert(exp, lengths={"log_probs": of_tokens, "flags": of_flags}, with_indices=True)

        self.insert = insert

    def size(self) -> int:
        return len(self.buffer)

    def read(self, index: Any, as_dict: bool) -> Any:
        return {name: t.asnumpy() for name, t in self.buffer.get_item(index, as_dict=as_dict).items()}

    def given(self, rows: list[dict[str, Any]]) -> list[Tensor]:
        """Return the arguments of the graph."""
        parts = []
        for name in NAMES:
            if name == "reward":
                parts.append(np.array([one[name] for one in rows], np.float32))
                continue
            shape, dtype = rows[0][name].shape[1:], rows[0][name].dtype
            padded = np.full((len(rows), LONGEST, *shape), 9).astype(dtype)  # what is behind the items does not count
            for k, one in enumerate(rows):
                padded[k, : len(one[name])] = one[name]
            parts.append(padded)
        of = [np.array([len(one[name]) for one in rows], np.int32) for name in ("tokens", "flags")]
        return list(map(Tensor, [*parts, *of]))

    def insert_rows(self, rows: list[dict[str, Any]]) -> None:
        handles = self.insert(*self.given(rows)).asnumpy()
        newest = int(self.buffer.serials.asnumpy()[0])
        assert handles.tolist() == list(range(newest - len(rows), newest))


@pytest.mark.parametrize("seed", range(2))
def test_rows_inserted_in_a_graph_are_those_of_the_twin(seed: int):
    run(seed, lambda: InGraph(ReplayBuffer(1, CAPACITY, **COLUMNS)), 100)


class InTurn(InGraph):
    """A buffer that rows come to from a graph, from Python, and from an attached process, in turn."""

    def __init__(self, buffer: Any, attached: Any) -> None:
        super().__init__(buffer)
        self.ways = itertools.cycle([super().insert_rows, self.of(buffer), self.of(attached)])

    @staticmethod
    def of(buffer: Any) -> Any:
        return lambda rows: buffer.insert(joined(rows))

    def insert_rows(self, rows: list[dict[str, Any]]) -> None:
        next(self.ways)(rows)


def test_rows_inserted_in_turn_into_a_folder_are_those_of_the_twin(tmp_path: Path):
    buffer = ReplayBuffer(1, CAPACITY, **COLUMNS, storage=tmp_path / "rows")
    with contextlib.closing(attach(tmp_path / "rows")) as attached:
        run(0, lambda: InTurn(buffer, attached), 60)
    buffer.close()
    again = ReplayBuffer.open(tmp_path / "rows", verify=True)
    assert len(again) == len(again.get_item(np.arange(len(again)))[0])
    again.close()


@pytest.mark.parametrize("in_folder", [False, True])
def test_rows_stay_whole_beside_a_graph_in_another_thread(in_folder: bool, tmp_path: Path):
    storage = tmp_path / "rows" if in_folder else None
    buffer = PrioritizedReplayBuffer(4, 16, **LARGE, storage=storage)
    graph, given = InGraph(buffer), [row(k, k % 6) for k in range(100)]
    for one in given[:4]:
        graph.insert_rows([one])  # compiled here: MindSpore compiles nothing beside calls of other threads
    thread = threading.Thread(target=lambda: [graph.insert(*graph.given([one])) for one in given])
    thread.start()
    for k in itertools.count(100):
        buffer.insert({name: Tensor(value) for name, value in row(k, 1 + k % 5).items()})
        for batch in (buffer.sample(as_dict=True), buffer.sample(longest=True, as_dict=True)):
            arrays = {name: value.asnumpy() for name, value in batch.items()}
            there = np.arange(arrays["tokens"].shape[1]) < arrays["tokens_lengths"][:, None]
            assert (arrays["log_probs"][..., 0] == np.where(there, arrays["reward"][:, None], 0)).all()
            assert (arrays["tokens"] // 100 == arrays["log_probs"][..., 0]).all()
            buffer.update_priorities(batch["indices"], batch["reward"] + 1)
            buffer.update(batch["indices"][:1], {"reward": batch["reward"][:1] * 1})
        if k > 150 and not thread.is_alive():
            break
    buffer.check_valid()
    assert int(buffer.serials.asnumpy()[0]) == 104 + k - 99


@pytest.mark.parametrize("wrong", ["another arena", "another kind", "rows that are too long"])
def test_the_twin_rejects_wrong_arguments(wrong: str, monkeypatch: pytest.MonkeyPatch):
    def arguments_of(of: Any, fields: Any, before: int) -> np.ndarray:
        numbers = kinds.arguments_of(of, fields, before)
        columns = numbers[4 + 3 * len(of) :].reshape(-1, 2)
        if wrong == "another arena":  # log_probs of the rows of tokens
            columns[3] = columns[0]
        elif wrong == "another kind":
            columns[2] = 1, 1
        else:
            numbers[5] -= 1
        return numbers

    monkeypatch.setattr(operators, "arguments_of", arguments_of)
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        run(0, lambda: InGraph(ReplayBuffer(1, CAPACITY, **COLUMNS)))


def equal(one: Any, other: Any) -> None:
    """Raise an AssertionError unless two samples are the same."""
    assert list(one) == list(other) if isinstance(one, dict) else len(one) == len(other)
    for left, right in zip(*(each.values() if isinstance(each, dict) else each for each in (one, other))):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left.asnumpy(), right.asnumpy())


def filled(cls: Any, *sizes: int, end: bool = False, **more: Any) -> Any:
    buffer = cls(*sizes, **{**LARGE, **more})
    for k in range(12):
        buffer.insert(row(k, 5 - k % 4), **({"end": k % 3 == 2} if end else {}))
    return buffer


MORE: dict[str, dict[str, Any]] = {
    "SequenceReplayBuffer": {"end": True, "sequence_length": 2, "pad_end": True},
    "EpisodeReplayBuffer": {"end": True, "max_episode_length": 4},
    "ReplayQueue": {"when_full": "evict"},
}


def drawing(buffer: Any, **named: bool) -> Any:
    """Return a compiled function that draws a sample."""

    @ms.jit
    def draw():
        return buffer.sample(**named), buffer.can_sample()

    return draw


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("ReplayBuffer", "first"),
        ("ReplayBuffer", "random"),
        ("PrioritizedReplayBuffer", "random"),
        ("ElasticReplayBuffer", "whole"),
        ("EpochReplayBuffer", "random"),
        ("ReplayQueue", "whole"),
        ("SequenceReplayBuffer", "random"),
        ("EpisodeReplayBuffer", "first"),
    ],
)
def test_samples_are_those_from_python(name: str, cut: str):
    more = MORE.get(name, {}) | ({} if cut == "whole" else {"sample_length": 3, "cut": cut})
    buffer, other = (filled(getattr(mindspore_replay, name), 4, 16, **more) for _ in range(2))
    ways = [{"as_dict": True}, {} if buffer.spec.always_handles else {"with_indices": True}]
    draws = [(drawing(buffer, **named), named) for named in ways]
    for draw, named in draws * (1 if name == "ReplayQueue" else 2):
        batch, can_sample = draw()
        equal(batch, other.sample(**named))
        assert can_sample.asnumpy() == other.can_sample().asnumpy()
    np.testing.assert_array_equal(buffer.random_state.asnumpy(), other.random_state.asnumpy())


def test_a_wrong_cut_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def arguments_of(of: Any, *rest: Any) -> np.ndarray:
        return kinds.arguments_of([kind._replace(at_random=not kind.at_random) for kind in of], *rest)

    monkeypatch.setattr(operators, "arguments_of", arguments_of)
    with pytest.raises(AssertionError):
        test_samples_are_those_from_python("ReplayBuffer", "first")


def test_a_row_gets_the_largest_priority_of_those_stored():
    """Not of those that were evicted for their items, and an insertion that fails changes nothing."""
    columns: dict[str, Any] = {**LARGE, "items": 12, "default_priority": "largest_held"}
    buffer, other = (PrioritizedReplayBuffer(1, 16, **columns) for _ in range(2))
    graph, random = InGraph(buffer), np.random.default_rng(0)
    for k in range(40):
        one, priority = row(k, int(random.integers(1, 6))), [None, float(random.integers(1, 9))][k % 2]
        if priority is None:
            graph.insert_rows([one])
        else:
            buffer.insert(one, priority=priority)
        other.insert(one, priority=priority)
        for name in ("priorities", "max_priority", "weights"):
            np.testing.assert_array_equal(*(each.state_dict()[name] for each in (buffer, other)))
    assert len(buffer) < 12
    before = buffer.state_dict()["max_priority"]
    given = graph.given([one])
    with pytest.raises(RuntimeError, match="a length is negative or above max_length"):
        graph.insert(*given[:-1], Tensor([9], ms.int32)).asnumpy()
    ms.ms_memory_recycle()
    assert buffer.state_dict()["max_priority"] == before


def test_an_update_with_priorities_is_that_from_python():
    buffer, other = (filled(PrioritizedReplayBuffer, 4, 16) for _ in range(2))

    @ms.jit
    def update():
        batch = buffer.sample(as_dict=True)
        invalid = buffer.update_priorities(batch["indices"], batch["reward"] + 0.5)
        written = buffer.update(batch["indices"], {"reward": batch["reward"] * 2})
        return batch, buffer.sample(as_dict=True), invalid + written

    for _ in range(3):
        first, second, invalid = update()
        batch = other.sample(as_dict=True)
        equal(first, batch)
        other.update_priorities(batch["indices"], batch["reward"] + 0.5)
        other.update(batch["indices"], {"reward": batch["reward"] * 2})
        equal(second, other.sample(as_dict=True))
        assert invalid == 0


def test_rows_are_read_as_from_python():
    buffer = filled(ReplayBuffer, 2, 16)

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
    assert tokens.asnumpy().tolist() == [500, 501, 502, 503, 0]


def test_groups_are_those_from_python():
    more = {**LARGE, "types": ["int32", "int32", "float32", "bool"], "cut": "random", "sample_length": 2}
    buffers = [EpisodeReplayBuffer(1, 20, max_episode_length=3, **more) for _ in range(2)]
    for buffer in buffers:
        for k in range(11):
            buffer.insert({**row(k, k % 4), "reward": k // 3}, end=k % 3 == 2)

    @ms.jit
    def draw():
        return buffers[0].sample_groups("reward", 3, 3, as_dict=True)

    for _ in range(2):
        equal(draw(), buffers[1].sample_groups("reward", 3, 3, as_dict=True))


def test_mixtures_draw_padded_rows():
    one, other = (
        MixedReplay([(filled(ReplayBuffer, 1, 16), 0.5), (filled(PrioritizedReplayBuffer, 1, 16), 0.5)], 4)
        for _ in range(2)
    )

    draw = drawing(one, as_dict=True, with_indices=True)
    for _ in range(2):
        equal(draw()[0], other.sample(as_dict=True, with_indices=True))


def test_rows_without_lengths_are_as_long_as_they_are_given():
    buffer = ReplayBuffer(1, 9, [(None,), ()], ["int32", "float32"], max_length=5, items=9, seed=0)

    @ms.jit
    def insert(one, many):
        buffer.insert((one, Tensor(1.0)))
        buffer.insert((many, ms.ops.ones(2, ms.float32)))
        return buffer.size()

    assert insert(Tensor([1, 2, 3], ms.int32), Tensor([[4, 5], [6, 7]], ms.int32)) == 3
    assert [buffer.get_item(i)[1].asnumpy().tolist() for i in range(3)] == [[1, 2, 3], [4, 5], [6, 7]]
    assert insert(Tensor([1, 2, 3], ms.int32), Tensor([[8, 9], [1, 2]], ms.int32)) == 3


def test_a_queue_in_a_folder_delivers_what_arrays_bring_to_a_graph(tmp_path: Path):
    queue = ReplayQueue(2, 16, **LARGE, late=["log_probs"], storage=tmp_path / "queue", timeout=0)
    attached = attach(tmp_path / "queue")

    @ms.jit
    def draw():
        batch = queue.sample(with_indices=True, as_dict=True)
        return batch["indices"], batch["tokens_lengths"], batch["log_probs"]

    for k in (1, 2):
        rows = [row(k, 3), row(k + 1, 4)]
        late = [one.pop("log_probs") for one in rows]
        handles = attached.insert(joined(rows), with_indices=True)
        attached.update(handles, {"log_probs": late})
        indices, lengths, log_probs = draw()
        assert indices.asnumpy().tolist() == handles.tolist()
        assert lengths.asnumpy().tolist() == [3, 4]
        assert log_probs.asnumpy()[..., 0].tolist() == [[k, k, k, 0, 0], [k + 1] * 4 + [0]]
    queue.close()


def test_a_late_column_is_missing_after_an_insertion_in_a_graph():
    buffer = ReplayBuffer(1, 9, **LARGE, late=["log_probs"])

    @ms.jit
    def insert(tokens, flags, lengths):
        exp = {"tokens": tokens, "reward": ms.ops.ones(2, ms.float32), "flags": flags}
        return buffer.insert(exp, lengths=lengths, with_indices=True)

    tokens = np.arange(8, dtype=np.int32).reshape(2, 4)
    handles = insert(Tensor(tokens), Tensor(tokens % 2 == 1), Tensor([4, 2], ms.int64))
    assert not buffer.can_sample()
    buffer.update(handles, {"log_probs": [np.ones((4, 2), np.float32), np.ones((2, 2), np.float32)]})
    assert buffer.can_sample()
    assert buffer.get_item([0, 1], as_dict=True)["log_probs"].asnumpy()[:, :, 0].tolist() == [[1] * 4, [1, 1, 0, 0]]


@pytest.mark.parametrize("in_folder", [False, True])
def test_no_graph_comes_between_a_draw_and_its_items(in_folder: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    storage = tmp_path / "rows" if in_folder else None
    buffer = ReplayBuffer(2, 9, [(None,)], ["int32"], max_length=50, items=120, seed=0, storage=storage)

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


@pytest.mark.parametrize("lengths", [[5, -1], [5, 6]])
def test_a_wrong_length_fails_and_stores_nothing(lengths: list[int]):
    buffer = ReplayBuffer(1, 9, [(None,)], ["int32"], max_length=5, items=20, seed=0)

    @ms.jit
    def insert(tokens, of):
        return buffer.insert((tokens,), lengths=of, with_indices=True)

    tokens = Tensor(np.zeros((2, 7), np.int32))
    with pytest.raises(RuntimeError, match="failed with status 13: a length is negative or above max_length"):
        insert(tokens, Tensor(lengths, ms.int32))
    assert len(buffer) == 0
    ms.ms_memory_recycle()
    insert(tokens, Tensor([5, 0], ms.int32))
    assert len(buffer) == 2


def test_a_full_queue_fails_and_stores_nothing():
    queue = ReplayQueue(1, 9, [(None,)], ["int32"], max_length=5, items=9, timeout=0, seed=0)

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


@pytest.mark.parametrize(
    ("exp", "lengths", "words"),
    [
        ([np.zeros(4, np.int32)], [2, 2], r"rows with 'lengths' must be padded in a graph, \[B, L, \*F\]"),
        ([np.zeros((2, 4), np.int32)], [2.0, 2.0], "'lengths' must be ints >= 0, one for each row"),
        ([np.zeros((2, 4), np.float32)], [2, 2], "expected int32, but got float32"),
        ([np.zeros((2, 6), np.int32)], None, "may be longer than max_length=5"),
        ([np.zeros((2, 4, 1), np.int32)], [2, 2], "rows with 'lengths' must be padded"),
    ],
)
def test_wrong_rows_are_errors_at_compile_time(exp: Any, lengths: Any, words: str):
    buffer = ReplayBuffer(1, 9, [(None,)], ["int32"], max_length=5, items=20, seed=0)
    rows, given = [Tensor(part) for part in exp], None if lengths is None else Tensor(lengths)

    @ms.jit
    def insert(*rows):
        return buffer.insert(rows, lengths=given, with_indices=True)

    with pytest.raises((TypeError, ValueError), match=words):
        insert(*rows)


def test_what_is_refused_says_so():
    buffer = filled(ReplayBuffer, 2, 16)

    @ms.jit
    def update(indices, values):
        return buffer.update(indices, {"log_probs": values})

    with pytest.raises(ValueError, match="call 'update' of column 'log_probs' from Python"):
        update(Tensor([0]), Tensor(np.zeros((1, 5, 2), np.float32)))
