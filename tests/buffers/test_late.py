"""Late columns: rows are drawn only when all of them have been written by `update`.

Random operations beside a slow twin are in `test_twin.py`.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from flat import flat
from mindspore import Tensor

from mindspore_replay import ElasticReplayBuffer, MixedReplay, NStep, Prefetch, ReplayBuffer, attach

NAMES, LATE = ["number", "reward", "score"], ["reward", "score"]
SCHEMA: dict[str, Any] = {"shapes": [(), (), (2,)], "types": ["int32", "float32", "int32"], "names": NAMES}
CAPACITY = 10


def make(cls: type[Any] = ReplayBuffer, *, sample_size: int = 1, capacity: int = CAPACITY, **options: Any) -> Any:
    return cls(
        **flat(**{"sample_size": sample_size, "capacity": capacity, "late": LATE, "seed": 0, **SCHEMA, **options})
    )


def reward_of(number: Any) -> Any:
    return np.asarray(number, np.float32) + np.float32(0.5)


def score_of(number: Any) -> Any:
    return np.stack([np.asarray(number, np.int32), -np.asarray(number, np.int32)], -1)


def values(names: Sequence[str], numbers: Any) -> dict[str, Any]:
    return {name: {"reward": reward_of, "score": score_of}[name](numbers) for name in names}


def drawable(buffer: Any) -> list[int]:
    """Return the handles of the rows at which a sample may start."""
    slots = np.flatnonzero(buffer.weights.asnumpy()[: buffer.capacity] > 0)
    if hasattr(buffer, "row_serials"):
        return sorted(buffer.row_serials.asnumpy()[slots].tolist())
    head, count, inserted = (int(x) for x in (buffer.head, buffer.count, buffer.serials[0]))
    return sorted((inserted - count + (slots - head) % buffer.capacity).tolist())


class Calls(Kept):
    """The methods of a buffer in compiled functions."""

    @ms.jit
    def insert_one(self, number):
        return self.buffer.insert({"number": number}, with_indices=True)

    @ms.jit
    def insert_all(self, number, reward, score):
        self.buffer.add([number, reward, score])
        return self.buffer.size()

    @ms.jit
    def judge(self, number, reward, score):
        """Insert rows, write their late columns, and sample."""
        handles = self.buffer.insert([number], with_indices=True)
        self.buffer.update(handles, {"reward": reward, "score": score})
        return handles, self.buffer.sample()


def test_late_columns_in_graphs():
    buffer = make(sample_size=2).insert({"number": [0, 1, 2]})
    calls = Calls(buffer)
    numbers = np.array([3, 4], np.int32)
    handles, (number, reward, score) = calls.judge(*map(Tensor, (numbers, reward_of(numbers), score_of(numbers))))
    assert handles.asnumpy().tolist() == [3, 4]
    assert set(number.asnumpy().tolist()) <= {3, 4}
    assert (reward.asnumpy() == reward_of(number.asnumpy())).all()
    assert (score.asnumpy() == score_of(number.asnumpy())).all()
    with pytest.raises(ValueError, match="one array for each of the 1 columns that are not late, but got 3"):
        calls.insert_all(Tensor(numbers), Tensor(reward_of(numbers)), Tensor(score_of(numbers)))
    one = calls.insert_one(Tensor(5, ms.int32))
    assert (one.dtype, one.shape, int(one), buffer.weights.asnumpy()[5]) == (ms.int64, (), 5, 0)


def test_chains_of_rewards_end_before_a_row_that_waits():
    names, types = ["observation", "reward", "terminated"], ["float32", "float32", "bool"]
    buffer = ReplayBuffer(2, 8, **flat([()] * 3, types, names=names, late=["reward"], views=[NStep(3, 0.5)], seed=0))
    handles = buffer.insert([np.arange(6, dtype=np.float32), np.zeros(6, bool)], with_indices=True)
    buffer.update(handles[:3], {"reward": np.ones(3, np.float32)})
    found = set()
    for _ in range(16):
        batch = buffer.sample(as_dict=True)
        found |= set(zip(*(batch[name].tolist() for name in ("observation", "reward", "next_observation"))))
    assert found == {(0, 1.5, 2), (1, 1, 2)}  # row 2 may be a next observation, and row 3 not


#: Inserts prompts and scores them in a process of its own.
_JUDGE = """
import sys
import numpy as np
from mindspore_replay import attach
attached = attach(sys.argv[1])
first = attached.insert([np.arange(10, 13, dtype=np.int32)], with_indices=True)
assert (first.dtype, first.tolist()) == (np.int64, [2, 3, 4]), first
one = attached.insert([13], with_indices=True)
assert (one.shape, int(one)) == ((), 5), one
assert attached.update(first[:2], {"reward": np.float32([10.5, 11.5])}) == 0
assert attached.update(first[:1], {"score": np.int32([[10, -10]])}) == 0
assert attached.update([0], {"score": np.int32([[0, 0]]), "reward": np.float32([0.5])}) == 0
assert "mindspore" not in sys.modules
"""


def test_a_judge_in_another_process(tmp_path: Path):
    buffer = make(storage=tmp_path / "rows")
    buffer.insert([np.arange(2, dtype=np.int32)])
    subprocess.run([sys.executable, "-c", _JUDGE, str(tmp_path / "rows")], check=True)
    assert drawable(buffer) == [0, 2]
    number, reward, score = buffer.with_sample_size(2).sample()
    assert set(number.tolist()) <= {0, 10}
    assert (reward.asnumpy() == reward_of(number.asnumpy())).all()
    assert (score.asnumpy() == score_of(number.asnumpy())).all()
    with pytest.raises(ValueError, match="are late"):
        attach(tmp_path / "rows").insert(dict(zip(NAMES, [0, 0.5, [0, 0]])))


def test_mixtures_elastic_buffers_and_prefetch():
    ready = make(ElasticReplayBuffer, window=4)
    handles = ready.insert([np.arange(8, dtype=np.int32)], with_indices=True)
    ready.update(handles[3:7], values(LATE, np.arange(3, 7)))
    other = ReplayBuffer(1, 4, **flat(**SCHEMA, seed=0))
    other.insert([np.full(2, 99, np.int32), np.full(2, 99.5, np.float32), np.tile(np.int32([99, -99]), (2, 1))])
    mixed = MixedReplay([(ready, 0.5), (other, 0.5)], sample_size=4)
    _, number, reward, _ = mixed.sample()
    assert set(number.tolist()) <= {4, 5, 6, 99}
    assert (reward.asnumpy() == reward_of(number.asnumpy())).all()
    with Prefetch(ready.with_sample_size(2), depth=1) as batches:
        assert set(next(iter(batches))[0].tolist()) <= {4, 5, 6}
