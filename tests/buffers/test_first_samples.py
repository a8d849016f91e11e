"""The first samples: with replacement one row is enough. And priorities of rows that cannot be sampled yet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from flat import flat
from kinds import KINDS, ends_every
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import FrameStack, MixedReplay, NStep, PrioritizedReplayBuffer, attach, host

CAPACITY, MANY = 8, 20
COLUMNS: dict[str, Any] = {"shapes": [(2,)], "types": ["int32"], "names": ["number"]}
#: Those whose rows may repeat in a sample.
REPEATING = [name for name in KINDS if "distinct" not in name and "epoch" not in name and "queue" not in name]


def make(kind: str, size: int = MANY, package: Any = mindspore_replay, **more: Any) -> Any:
    cls, options, *_ = KINDS[kind]
    return getattr(package, cls.__name__)(size, CAPACITY, **flat(**{**COLUMNS, "seed": 0, **options, **more}))  # type: ignore[attr-defined]


def put(buffer: Any, first: int, n: int) -> None:
    buffer.insert([np.repeat(np.arange(first, first + n, dtype=np.int32)[:, None], 2, 1)], **ends_every(buffer, 2, n))


def numbers(batch: Any) -> set[int]:
    number = batch["number"] if isinstance(batch, dict) else batch[-1]
    return set(np.asarray(number)[..., 0].ravel().tolist()) - {0}  # of padding


PLACES: dict[str, dict[str, Any]] = {"native": {}, "host": {"package": host}}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", REPEATING)
def test_a_sample_of_more_rows_than_there_are(kind: str, place: str):
    """The buffer waits for none in `sample`, and in `can_sample` for as many as it can have."""
    buffer = make(kind, **PLACES[place])
    with pytest.raises(RuntimeError, match=f"For '{type(buffer).__name__}', a sample needs at least 1 .*, but got 0"):
        buffer.sample()
    put(buffer, 3, 2)
    assert numbers(buffer.sample()) <= {3, 4}
    assert not bool(buffer.can_sample())
    put(buffer, 10, 20)
    if buffer.has_episodes:  # as many starts as there can be: of episodes of one step, or of sequences of one episode
        buffer.insert([np.full((CAPACITY, 2), 30, np.int32)], end=["episodes" in kind] * CAPACITY)
    assert bool(buffer.can_sample())
    assert numbers(buffer.sample()) <= {3, 4, *range(10, 31)}
    buffer.check_valid()


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - set(REPEATING)))
def test_without_replacement_nothing_changes(kind: str):
    padded = "padded" in kind or kind == "epochs of sequences"
    with pytest.raises(ValueError, match=r"'sample_size' must be at most|'capacity' must be at least sample_size"):
        make(kind, 9)
    buffer = make(kind, 2)
    put(buffer, 3, 1 if "sequences" not in kind else 2)
    assert bool(buffer.can_sample()) == padded
    if not padded:
        with pytest.raises(RuntimeError, match="a sample needs sample_size=2"):
            buffer.sample()


@pytest.mark.parametrize("kind", ["uniform", "prioritized", "reservoir", "elastic by priority", "sequences"])
def test_in_a_graph(kind: str):
    buffer = make(kind)
    put(buffer, 3, 2)
    assert numbers(ms.jit(buffer.sample)()) <= {3, 4}
    assert not ms.jit(buffer.can_sample)()


def test_in_a_folder_and_in_a_mixture(tmp_path: Path):
    learner = make("limits", storage=str(tmp_path / "rows"))
    attached = attach(tmp_path / "rows", sample_size=50)
    put(attached, 3, 1)
    assert (numbers(attached.sample()), attached.can_sample()) == ({3}, False)
    with pytest.raises(RuntimeError, match="needs at least 1 eligible row, but got 0"):
        learner.with_sample_size(30).sample()  # used up
    for package in (mindspore_replay, host):
        sources = [make(kind, package=package) for kind in ("uniform", "prioritized")]
        mixed = (MixedReplay if package is mindspore_replay else host.MixedReplay)(
            [(source, 0.5) for source in sources], 60
        )
        put(sources[0], 3, 1)
        with pytest.raises(RuntimeError, match="needs at least 1 eligible row of source 1, but got 0"):
            mixed.sample()
        put(sources[1], 4, 1)
        assert (numbers(mixed.sample()), bool(mixed.can_sample())) == ({3, 4}, False)
        for source in sources:
            put(source, 5, 8)
        assert bool(mixed.can_sample())


@pytest.mark.parametrize("place", PLACES)
def test_no_positions_are_a_batch_of_no_rows(place: str):
    buffer = make("uniform", **PLACES[place])
    for filled in (False, True):
        for index in ([], (), range(0), np.arange(0), np.zeros(0), Tensor(np.zeros(0, np.int32))):
            (number,) = buffer.get_item(index)
            assert (tuple(number.shape), str(number.dtype).lower()) == ((0, 2), "int32")
            assert buffer.get_item(index, as_dict=True).keys() == {"number"}
        if not filled:
            put(buffer, 0, 3)


def test_no_positions_of_rows_of_any_length():
    buffer = host.ReplayBuffer(
        1, 4, **flat([(None, 2), ()], ["int32", "bool"], names=["items", "flag"], max_length=3, items=9)
    )
    batch = buffer.get_item([], as_dict=True)
    assert {name: (part.shape, part.dtype.name) for name, part in batch.items()} == {
        "lengths": ((0,), "int32"),
        "items": ((0, 0, 2), "int32"),
        "flag": ((0,), "bool"),
    }


# Priorities of rows that cannot be sampled yet.

STEP: dict[str, Any] = {
    "shapes": [(), (), ()],
    "types": ["float32", "float32", "bool"],
    "names": ["observation", "reward", "terminated"],
}


def complete_next(buffer: Any) -> None:
    buffer.insert([9.0, 1.0, False], priority=1.0)


def write_late(buffer: Any) -> None:
    buffer.update([3], {"reward": [1.0]})


#: What keeps row 3 of 4 from samples, and what ends that.
NOT_YET: dict[str, tuple[dict[str, Any], Callable[[Any], None]]] = {
    "a next observation": ({"views": [NStep(1, 0.9)]}, complete_next),
    "that of a stack": ({"views": [FrameStack(2)]}, complete_next),
    "a late column": ({"late": ["reward"]}, write_late),
    "a sequence": ({"sequence_length": 2, "prioritized": True}, complete_next),
    "an episode": ({"max_episode_length": 2, "prioritized": True}, lambda b: b.end_episodes()),
}


@pytest.mark.parametrize("place", ["native", "host"])
@pytest.mark.parametrize("case", NOT_YET)
def test_a_row_that_cannot_be_sampled_yet_keeps_its_priority(case: str, place: str):
    options, complete = NOT_YET[case]
    names = {"sequence_length": "SequenceReplayBuffer", "max_episode_length": "EpisodeReplayBuffer"}
    name = next((names[key] for key in options if key in names), "PrioritizedReplayBuffer")
    more = {**options, **PLACES[place]}
    cls = getattr(more.pop("package", mindspore_replay), name)
    buffer = cls(1, 10, **flat(**STEP, **more, alpha=1.0, epsilon=0.0, seed=0))
    episodes = {"end": [True, True, True, False]} if name.startswith("Episode") else {}
    row = {"observation": np.zeros(4, np.float32), "terminated": np.zeros(4, bool)}
    if "late" not in options:
        row["reward"] = np.zeros(4, np.float32)
    buffer.insert(row, **episodes)
    if "late" in options:
        buffer.update([0, 1, 2], {"reward": np.zeros(3, np.float32)})
    assert int(buffer.eligible()) == 3
    assert int(buffer.update_priorities([0, 3, 3, 4, -1], np.float32([0, 9, 5, 1, 1]))) == 2
    assert np.asarray(buffer.info([3])[0]).tolist() == [5]
    buffer.check_valid()
    assert int(buffer.eligible()) == 2  # row 0 has no weight
    complete(buffer)
    assert int(buffer.eligible()) == 3
    assert np.asarray(buffer.info([3])[0]).tolist() == [5]
    buffer.check_valid()
    buffer.delete([3])
    assert int(buffer.update_priorities([3], 7.0)) == 1  # removed


def test_in_a_graph_such_a_row_keeps_its_priority():
    buffer = PrioritizedReplayBuffer(1, 10, **flat(**STEP, views=[NStep(1, 0.9)], alpha=1.0, epsilon=0.0, seed=0))
    buffer.insert([np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(4, bool)])
    invalid = ms.jit(buffer.update_priorities)(Tensor([2, 3], ms.int64), Tensor([4.0, 5.0], ms.float32))
    complete_next(buffer)
    assert (int(invalid), buffer.info([2, 3])[0].asnumpy().tolist()) == (0, [4, 5])
