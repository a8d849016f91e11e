"""Rows of any length in buffers with Tensors: the samples are those of the same buffers on arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import flat
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import EpochReplayBuffer, MixedReplay, Prefetch, ReplayBuffer, ReplayQueue, load, save
from mindspore_replay.datasets import from_npz, to_minari

COLUMNS: dict[str, Any] = {
    "shapes": [(None,), (None, 2), ()],
    "types": ["int32", "float32", "float32"],
    "names": ["tokens", "log_probs", "reward"],
    "max_length": 6,
    "items": 50,
    "share_lengths": [("tokens", "log_probs")],
    "seed": 0,
}

pytestmark = pytest.mark.cpu_only("rows of any length need the kernels of the CPU")


def filled(buffer: Any, as_tensors: bool = False) -> Any:
    """Return the buffer with 20 rows, inserted in each way."""
    make: Any = Tensor if as_tensors else lambda array: array
    for k in range(12):
        n = k % 7
        row = np.full(n, k, np.int32), np.full((n, 2), k, np.float32), np.float32(k)
        buffer.insert([*map(make, row[:2]), float(k)] if as_tensors else row)
    lengths = np.arange(4)
    many = np.arange(6, dtype=np.int32), np.ones((6, 2), np.float32), np.full(4, 0.5, np.float32)
    buffer.insert(list(map(make, many)), lengths=make(lengths))
    buffer.insert([[make(many[0][:n]) for n in lengths], [make(many[1][:n]) for n in lengths], make(many[2])])
    return buffer


def equal(one: Any, other: Any) -> None:
    assert len(one) == len(other)
    for tensor, array in zip(one, other):
        assert isinstance(tensor, Tensor)
        np.testing.assert_array_equal(tensor.asnumpy(), array)
        assert tensor.asnumpy().dtype == array.dtype


def test_a_file_has_the_items(tmp_path: Path):
    buffer = filled(ReplayBuffer(3, 16, **flat(**COLUMNS)))
    save(buffer, tmp_path / "saved.safetensors")
    equal(load(tmp_path / "saved.safetensors").sample(), [t.asnumpy() for t in buffer.sample()])


def test_mixtures_and_prefetch_draw_padded_rows():
    one, other = (filled(ReplayBuffer(2, 16, **flat(**COLUMNS))) for _ in range(2))
    source, lengths, tokens, log_probs, _ = MixedReplay([(one, 0.5), (other, 0.5)], 4).sample()
    assert source.asnumpy().tolist() == [0, 0, 1, 1]
    assert (tokens.shape, log_probs.shape, lengths.shape) == ((4, 6), (4, 6, 2), (4,))
    with Prefetch(one) as prefetch:
        assert next(prefetch)[1].shape == (2, 6)


def test_in_a_folder_a_learner_takes_what_arrays_bring(tmp_path: Path):
    queue = ReplayQueue(2, 16, **flat(**COLUMNS, storage=tmp_path / "queue", timeout=10))
    attached = mindspore_replay.attach(tmp_path / "queue")
    attached.insert(
        {
            "tokens": [[1, 2], [3]],
            "log_probs": [np.ones((2, 2), np.float32), np.ones((1, 2), np.float32)],
            "reward": [1, 2],
        }
    )
    batch = queue.sample_packed(as_dict=True)
    assert batch["offsets"].asnumpy().tolist() == [0, 2, 3]
    assert batch["tokens"].asnumpy().tolist() == [1, 2, 3]
    queue.close()


def test_what_cannot_use_them_says_so(tmp_path: Path):
    buffer = filled(EpochReplayBuffer(3, 16, **flat(**COLUMNS)))
    with pytest.raises(
        ValueError, match="'to_minari', the rows of a buffer must have one length, but those of 'tokens'"
    ):
        to_minari(buffer, "x/y-v0")
    np.savez(tmp_path / "d4rl.npz", observations=[0.0], actions=[0], rewards=[0.0], terminals=[True])
    with pytest.raises(ValueError, match=r"must have an array of rows for each of \['tokens', .*'tokens_lengths'\]"):
        from_npz(tmp_path / "d4rl.npz", buffer=buffer)
    with pytest.raises(ValueError, match="a column whose shape begins with None needs the kernels of the CPU"):
        ReplayBuffer(1, 9, **flat(**COLUMNS, backend="composite"))
