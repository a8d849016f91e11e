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


def stuck(seed: int, n: int, longest: int, items: int) -> bool:
    """Return True if rows of random lengths end in a queue in which both sides wait."""
    random = np.random.default_rng(seed)
    queue = host.ReplayQueue(n, 50, **flat([(None,)], ["int32"], max_length=longest, items=items, timeout=0.01))
    for _ in range(200):
        can_insert, can_sample = queue.limiter.can_insert(), queue.can_sample()
        if not (can_insert or can_sample):
            return True
        if can_insert and (not can_sample or random.random() < 0.7):
            queue.insert(tokens(random.choice([longest, random.integers(longest + 1)])))
        else:
            queue.sample()
    return False


SIZES = [(2, 8, 16), (4, 8, 35), (3, 5, 15), (1, 3, 3)]


@pytest.mark.parametrize(("n", "longest", "items"), SIZES)
def test_insertions_and_samples_never_wait_for_each_other(n: int, longest: int, items: int):
    assert not any(stuck(seed, n, longest, items) for seed in range(4))


def test_without_a_reserve_they_would(monkeypatch: pytest.MonkeyPatch):
    for module in (lengths, spec):
        monkeypatch.setattr(module, "least_items", lambda rows, longest: rows * longest)
    assert all(any(stuck(seed, *sizes) for seed in range(10)) for sizes in SIZES[:3])


def stuck_with_late_columns(seed: int, n: int, longest: int, items: int) -> tuple[bool, int]:
    """Return True if late values in any order end in a queue that lets nobody go on; and how many rows went first."""
    random, waiting, passed = np.random.default_rng(seed), [], 0
    columns = {"shapes": [(None,), ()], "types": ["int32", "float32"], "names": ["tokens", "reward"]}
    queue = host.ReplayQueue(n, 200, **flat(**columns, late=["reward"], max_length=longest, items=items))
    for _ in range(200):
        match random.integers(3):
            case 0 if queue.limiter.can_insert():
                waiting.append(int(queue.insert(tokens(random.integers(longest + 1)), with_indices=True)))
            case 1 if waiting:
                queue.update(waiting.pop(int(random.integers(len(waiting)))), {"reward": 1.0})
            case 2 if queue.can_sample():
                newest = int(queue.sample(with_indices=True)[0].max())
                passed += bool(waiting) and newest > min(waiting)
        if not (waiting or queue.can_sample() or queue.limiter.can_insert()):
            return True, passed
    return False, passed


def test_late_values_in_any_order_leave_items(monkeypatch: pytest.MonkeyPatch):
    for sizes in ((2, 4, 24), (3, 5, 60), (4, 4, 80)):
        found = [stuck_with_late_columns(seed, *sizes) for seed in range(8)]
        assert not any(is_stuck for is_stuck, _ in found)
        assert sum(passed for _, passed in found) > 8
    monkeypatch.setattr(state, "least_items", lambda *_: -1000)  # rows that wait are passed for want of places alone
    assert any(stuck_with_late_columns(seed, 3, 5, 35)[0] for seed in range(40))


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
