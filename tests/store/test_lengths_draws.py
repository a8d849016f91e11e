"""Draws of rows of any length: which rows a batch with a bound on its items delivers, and where rows are cut."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import assert_frequencies
from flat import flat

from mindspore_replay import host
from mindspore_replay.host import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpochReplayBuffer,
    PrioritizedReplayBuffer,
    RateLimiter,
    ReplayBuffer,
    ReplayQueue,
    SequenceReplayBuffer,
    attach,
)
from mindspore_replay.store.rows import any_length as ragged

TOKENS: dict[str, Any] = {"shapes": [(None,)], "types": ["int32"], "max_length": 8, "items": 2048, "seed": 0}
PAIR: dict[str, Any] = {**TOKENS, "shapes": [(None,)] * 2, "types": ["int32"] * 2, "names": ["a", "b"]}
ROW = np.arange(8, dtype=np.int32)
CUT: dict[str, Any] = {"sample_length": 1, "cut": "random"}


def delivered(buffer: Any, max_items: int, batches: int) -> list[int]:
    """Return the handles of all rows in so many batches."""
    batch = (buffer.sample_packed(max_items, with_indices=True)[0] for _ in range(batches))
    return np.concatenate(list(batch)).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer, ElasticReplayBuffer])
def test_a_cut_batch_has_long_rows_less_often(cls: Any):
    """Of rows with 8 and 4 items, as likely to be drawn, at most 12 items: LS, L; SL, SSS, SS."""
    more = {"window": 32} if cls is ElasticReplayBuffer else {}
    buffer = cls(8, 32, **flat(**TOKENS, **more)).insert([[ROW[: 4 + k % 2 * 4] for k in range(32)]])
    long = [handle % 2 == 1 for handle in delivered(buffer, 12, 2000)]
    assert_frequencies(long, {True: 0.4, False: 0.6})
    with pytest.raises(AssertionError):
        assert_frequencies(long, {True: 0.5, False: 0.5})


@pytest.mark.parametrize("normalize", ["batch", "buffer"])
def test_importance_weights_of_a_cut_batch(normalize: str):
    """They are relative to the rows that it delivers, by the beta before the draw, which moves it."""
    random = np.random.default_rng(0)
    options = {"alpha": 1.0, "beta": 0.5, "beta_steps": 40, "normalize": normalize}
    buffer = PrioritizedReplayBuffer(8, 64, **flat(**TOKENS, **options))
    priorities = 10.0 ** random.integers(-2, 2, 64)
    buffer.insert([[ROW[: random.integers(1, 9)] for _ in range(64)]], priority=priorities)
    others = 0
    for k in range(60):
        batch = buffer.sample_packed(12)
        of_rows = priorities[batch[0]] + 1e-6
        least = of_rows.min() if normalize == "batch" else 0.01 + 1e-6
        np.testing.assert_allclose(batch[1], (least / of_rows) ** min(0.5 + k / 80, 1), rtol=1e-5)
        others += least > 0.02
    assert (others > 5) == (normalize == "batch")


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer])
def test_what_was_delivered_counts(cls: Any, in_folder: bool, tmp_path: Path):
    buffer = cls(8, 32, **flat(**TOKENS, storage=tmp_path / "rows" if in_folder else None))
    buffer.limiter = RateLimiter((0, 100), min_size=1, error_buffer=100)
    buffer.insert([[ROW] * 32])
    callers = [buffer, attach(tmp_path / "rows")] if in_folder else [buffer]
    for k, caller in enumerate(callers * 3):
        assert len(caller.sample_packed(16, with_indices=True)[0]) == 2
        assert buffer.limiter.sampled == 2 * k + 2
    buffer.sample_packed()
    assert buffer.limiter.sampled == 2 * k + 10
    assert buffer.info(range(32))[1].sum() == buffer.limiter.sampled
    for caller in callers:
        getattr(caller, "close", lambda: None)()


# Cuts at random.


def filled(cls: Any, **more: Any) -> Any:
    """Return a buffer of rows with 8 items, in episodes of 4 steps."""
    buffer = cls(4, 256, **flat(**{**PAIR, **CUT, **more}))
    for k in range(256):
        buffer.insert([ROW, ROW], **({"end": k % 4 == 3} if buffer.has_episodes else {}))
    return buffer


CUTTING: dict[str, Callable[[], Any]] = {
    "rows": lambda: filled(ReplayBuffer),
    "by priority": lambda: filled(PrioritizedReplayBuffer),
    "elastic": lambda: filled(ElasticReplayBuffer, window=32),
    "epochs": lambda: filled(EpochReplayBuffer),
    "a queue": lambda: filled(ReplayQueue),
    "sequences": lambda: filled(SequenceReplayBuffer, sequence_length=3),
    "episodes": lambda: filled(EpisodeReplayBuffer, max_episode_length=4),
}


def places(buffer: Any, samples: int) -> np.ndarray:
    """Return where the rows of samples were cut: by sample, column, and row."""
    batches = (buffer.sample(as_dict=True) for _ in range(samples))
    return np.array([[batch[name].reshape(-1) for name in PAIR["names"]] for batch in batches])


def check_cuts(buffer: Any) -> None:
    """Check that rows of a sample, of its columns and of the next sample are cut at places of their own."""
    cut = places(buffer, 60)
    assert_frequencies(cut.reshape(-1).tolist(), dict.fromkeys(range(8), 1 / 8))
    columns = cut[:, 0] == cut[:, 1]
    assert_frequencies(columns.reshape(-1).tolist(), {True: 1 / 8, False: 7 / 8})
    n = cut.shape[-1]
    for shift in range(n):  # of the places in the sample before
        again = cut[1:, :, : n - shift] == cut[:-1, :, shift:]
        assert again.size < 200 or abs(again.mean() - 1 / 8) < 5 * np.sqrt(7 / 64 / again.size)


@pytest.mark.parametrize("kind", CUTTING)
def test_rows_are_cut_at_places_of_their_own(kind: str, monkeypatch: pytest.MonkeyPatch):
    """No number is taken twice, of the same or of another sample."""
    taken: list[int] = []

    def bits(key: int, counters: np.ndarray) -> np.ndarray:
        taken.extend(counters.tolist())
        return random_bits(key, counters)

    random_bits = ragged.random_bits
    monkeypatch.setattr(ragged, "random_bits", bits)
    buffer = CUTTING[kind]()
    state = buffer.state_dict()
    check_cuts(buffer)
    assert len(set(taken)) == len(taken) > 100
    assert buffer.state_dict()["random_state"][1] > max(taken)

    def again(self: Any, n: int) -> np.ndarray:  # the numbers from where the draw of rows ended
        key, counter = self.arrays["random_state"].tolist()
        return random_bits(~key, counter + np.arange(n))

    monkeypatch.setattr(ragged.RaggedStore, "_random_bits", again)
    buffer.load_state_dict(state)
    with pytest.raises(AssertionError):
        check_cuts(buffer)


def test_only_samples_that_may_be_cut_take_numbers():
    """Reads, samples with whole rows, and columns with `sample_length` of their longest row take none."""
    buffer, whole = filled(ReplayBuffer), filled(ReplayBuffer, sample_length=8)
    for call in (
        lambda: buffer.get_item(range(3)),
        buffer.rows,
        lambda: buffer.sample(longest=True),
        buffer.sample_packed,
    ):
        call()
        whole.sample()
    taken = [int(one.state_dict()["random_state"][1]) for one in (buffer, whole)]
    assert taken == [8, 16]
    groups: Any = host.EpisodeReplayBuffer(
        1, 64, **flat(**{**PAIR, **CUT, "shapes": [(None,), ()], "names": ["a", "key"]}, max_episode_length=4)
    )
    for k in range(12):
        groups.insert([ROW, k // 4], end=k % 4 == 3)
    for _ in range(2):
        groups.sample_groups("key", 2, 3)
    assert groups.state_dict()["random_state"][1] == 2 * (2 + 2 + 6)  # of groups, where their rows begin, and cuts
