"""Rows of any length where there is no room: queues that can never get stuck, `full`, and what messages count."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from flat import flat

import mindspore_replay
from mindspore_replay import MixedReplay, Prefetch, ReplayBuffer, ReplayQueue, attach, host
from mindspore_replay.store.base import lengths
from mindspore_replay.store.kernels import state
from mindspore_replay.store.rows.store import Store
from mindspore_replay.store.spec import spec

pytestmark = pytest.mark.cpu_only("rows of any length need the kernels of the CPU")

MODULES = [host, mindspore_replay]


def tokens(n: int) -> list[Any]:
    return [np.zeros(n, np.int32)]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("sizes", "options", "least"),
    [
        ((4, 100), {"max_length": 8, "items": 24, "timeout": None}, 39),
        ((4, 100), {"max_length": 8, "items": 31, "timeout": 5, "order": "lifo"}, 39),
        ((2, 100), {"max_length": 8, "items": 31, "timeout": 5, "sequence_length": 3}, 39),
        ((2, 100), {"max_length": 8, "items": 23, "timeout": 5, "sequence_length": 2, "num_envs": 1}, 31),
    ],
)
def test_a_queue_that_could_wait_for_ever_is_refused(module: Any, sizes: Any, options: dict[str, Any], least: int):
    def make(**more: Any) -> Any:
        return module.ReplayQueue(*sizes, **flat([(None,)], ["int32"], **{**options, **more}))

    with pytest.raises(
        ValueError, match=f"'items' must be at least {least} for column '0', .* but got {options['items']}"
    ):
        make()
    for more in ({"items": least}, {"timeout": 0}, {"when_full": "evict"}):
        make(**more)
    groups = {"shapes": [(None,), (None,)], "types": ["int32", "int32"], "items": {"0": 99, "1": options["items"]}}
    with pytest.raises(ValueError, match=f"'items' must be at least {least} for column '1'"):
        module.ReplayQueue(*sizes, **flat(**{**options, **groups, "names": ["0", "1"]}))
    with pytest.raises(ValueError, match="'items' must be at least"):
        make(items=least).with_sample_size(sizes[0] + 2)


def test_an_attached_process_cannot_ask_for_more_rows_than_there_are_items_for(tmp_path: Path):
    queue = host.ReplayQueue(
        2, 50, **flat([(None,)], ["int32"], max_length=8, items=24, timeout=5, storage=tmp_path / "rows")
    )
    with pytest.raises(ValueError, match="'items' must be at least 39"):
        attach(tmp_path / "rows", sample_size=4)
    queue.close()


def is_stuck(seed: int, n: int, capacity: int, longest: int, items: int, late: bool, rows: int = 1) -> bool:
    """Return True if rows of random lengths, whose late values come in any order, end in a queue that nobody may use.

    All rows have the same length if `longest` is 0.
    """
    random, waiting = np.random.default_rng(seed), list[int]()
    columns: dict[str, Any] = {"shapes": [(None,) if longest else (), ()], "types": ["int32"] * 2, "names": ["x", "y"]}
    lengths = {"max_length": longest, "items": items} if longest else {}
    timeout = 0 if late else 0.01  # one that waits must have a reserve
    queue = host.ReplayQueue(n, capacity, **flat(**columns, **lengths, late=["y"] * late, timeout=timeout))
    for _ in range(200):
        what = random.integers(3 if waiting else 2)
        if what == 0 and queue.limiter.can_insert(rows):
            x = tokens(random.choice([longest, random.integers(longest + 1)]))[0] if longest else np.arange(rows)
            y = {} if late else {"y": 0}
            handles = queue.insert({"x": x, **y}, with_indices=True)
            waiting += np.atleast_1d(handles).tolist() if late else []
        elif what == 1 and queue.can_sample():
            queue.sample()
        elif what == 2:
            queue.update(waiting.pop(int(random.integers(len(waiting)))), {"y": 1})
        if not (waiting or queue.can_sample() or queue.limiter.can_insert(rows)):
            return True
    return False


#: Rows of a sample, capacity, longest row, memory for items, whether a column is late, rows of an insertion.
SIZES: list[tuple[Any, ...]] = [
    (2, 50, 8, 16, False),
    (4, 50, 8, 35, False),
    (3, 50, 5, 15, False),
    (1, 50, 3, 3, False),
]
LATE: list[tuple[Any, ...]] = [(2, 200, 4, 24, True), (3, 200, 5, 60, True), (4, 200, 4, 80, True)]
LATE_PLACES: list[tuple[Any, ...]] = [(4, 8, 0, 0, True, 2), (4, 12, 0, 0, True, 5), (3, 9, 0, 0, True, 1)]


@pytest.mark.parametrize("sizes", [*SIZES, *LATE, *LATE_PLACES], ids=str)
def test_insertions_and_samples_never_wait_for_each_other(sizes: tuple[Any, ...]):
    assert not any(is_stuck(seed, *sizes) for seed in range(8))


def test_without_a_reserve_they_would(monkeypatch: pytest.MonkeyPatch):
    for module in (lengths, spec):
        monkeypatch.setattr(module, "least_items", lambda rows, longest: rows * longest)
    assert all(any(is_stuck(seed, *sizes) for seed in range(40)) for sizes in SIZES[:3])


def test_if_rows_that_wait_were_passed_for_want_of_places_alone_they_would(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "least_items", lambda *_: -1000)
    assert any(is_stuck(seed, 3, 200, 5, 35, True) for seed in range(40))


@pytest.mark.parametrize("sizes", LATE_PLACES, ids=str)
def test_if_rows_that_wait_were_always_passed_they_would(sizes: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Store, "deliverable", Store.eligible)
    assert any(is_stuck(seed, *sizes) for seed in range(40))


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(("timeout", "error"), [(0, RuntimeError), (0.01, TimeoutError)])
def test_messages_count_items(module: Any, timeout: float, error: type[Exception], tmp_path: Path):
    columns = {"shapes": [(None,), (None,)], "types": ["int32", "int32"], "names": ["a", "b"]}
    sizes = {"max_length": 8, "items": {"a": 24, "b": 80}, "timeout": timeout, "storage": tmp_path / "rows"}
    queue = module.ReplayQueue(2, 100, **flat(**columns, **sizes))
    queue.insert([np.zeros((2, 8), np.int32), np.zeros((2, 1), np.int32)])
    queue.insert([np.zeros(5, np.int32), np.zeros(1, np.int32)])
    for face in (queue, attach(tmp_path / "rows", timeout=timeout)):
        with pytest.raises(error, match="at most 3 items in column 'a' and 8 items in column 'b' for the next row"):
            face.insert([np.zeros(4, np.int32), np.zeros(1, np.int32)])
    queue.sample()
    queue.insert([np.zeros(4, np.int32), np.zeros(1, np.int32)])
    queue.close()


# Full buffers.


def graph(method: Callable[[], Any]) -> Callable[[], Any]:
    @ms.jit
    def call():
        return method()

    return call


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n", [0, 1, 3, 7, 8])
def test_a_buffer_is_filled_until_another_row_may_not_fit(module: Any, n: int):
    for name in ("ReplayBuffer", "PrioritizedReplayBuffer", "EpochReplayBuffer", "ReplayQueue"):
        buffer, rows = getattr(module, name)(2, 9, **flat([(None,)], ["int32"], max_length=8, items=40)), 0
        while not buffer.full():
            buffer.insert(tokens(n))
            rows += 1
            assert rows < 50
        assert len(buffer) == rows == min(9, (40 - 8) // n + 1 if n else 9)
        if rows == 9:
            assert len(buffer.rows()[0]) == 9
        else:
            with pytest.raises(RuntimeError, match=f"got {rows} stored. There are no items for more: get_item"):
                buffer.rows()


def test_a_graph_delivers_no_row_out_of_turn():
    columns: dict[str, Any] = {"shapes": [(), ()], "types": ["int32", "float32"], "late": [1]}
    queue = ReplayQueue(1, 3, **flat(**columns))
    sample = graph(queue.sample)
    queue.insert([[0, 1, 2]])
    queue.update([1, 2], [np.int32([1, 2]), np.float32([0.5, 0.5])])  # row 0 waits
    assert sample()[0].tolist() == [1]  # two places are left
    with pytest.raises(RuntimeError):
        sample()[0].asnumpy()
    ms.ms_memory_recycle()
    queue.update([0], [np.int32([0]), np.float32([0.5])])
    assert [sample()[0].tolist() for _ in range(2)] == [[0], [2]]


def test_a_mixture_and_a_prefetch_wait_for_the_turn_of_rows():
    columns: dict[str, Any] = {"shapes": [(), ()], "types": ["int32", "float32"], "names": ["token", "reward"]}
    queue, other = (
        ReplayQueue(1, 2, **flat(**columns, late=["reward"])),
        ReplayBuffer(1, 2, **flat(**columns, weighted=True)),
    )
    other.insert([9, 9.0])
    queue.insert({"token": [0, 1]})
    queue.update(1, {"reward": 0.5})  # row 0 waits
    mixed = MixedReplay([(queue, 0.5), (other, 0.5)], 2)
    with Prefetch(queue, depth=1) as batches:
        for use in (queue.sample, mixed.sample):
            with pytest.raises(RuntimeError, match=r"1 row is pending, .* the oldest has the handle 0\."):
                use()
        assert not mixed.can_sample()
        queue.update(0, {"reward": 0.25})
        assert next(iter(batches))[0].tolist() == [0]
        assert mixed.sample(as_dict=True)["token"].tolist() == [1, 9]


def test_mixtures_update_rows_of_any_length():
    """An invalid handle is skipped and counted, and touches nothing."""
    columns: dict[str, Any] = {"shapes": [(None,)], "types": ["int32"], "names": ["x"], "max_length": 5, "items": 40}
    sources = [
        host.ReplayBuffer(1, 6, **flat(**columns, weighted=True)),
        host.PrioritizedReplayBuffer(1, 6, **flat(**columns)),
    ]
    for i, source in enumerate(sources):
        source.insert([[np.full(1 + k, 10 * i + k, np.int32) for k in range(3)]])
    sources[1].delete([2])
    mixed = host.MixedReplay([(source, 0.5) for source in sources], sample_size=2)
    new = [np.full(n, 7, np.int32) for n in (1, 2, 3, 4)]
    assert mixed.update([0, 1, 1, 0], [0, 1, 2, 9], {"x": new}) == 2
    found = [[source.get_item(k)[1].tolist() for k in range(3)] for source in sources]
    assert found == [[[7], [1, 1], [2, 2, 2]], [[10], [7, 7], [12, 12, 12]]]
    with pytest.raises(ValueError, match="rows keep their lengths, but got 2 items of column 'x' for the row 0"):
        mixed.update([0, 1], [1, 0], {"x": new[1:2] * 2})
    assert sources[0].get_item(1)[1].tolist() == [1, 1]
