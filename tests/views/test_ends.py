"""Ends of episodes: by `end`, by the column of terminations, by a final row; where a next observation is not known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import legal_handles
from flat import flat

from mindspore_replay import (
    EpisodeReplayBuffer,
    FrameStack,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
    attach,
    load,
    save,
)

NAMES, TYPES = ["observation", "reward", "terminated"], ["float32", "float32", "bool"]
COLUMNS: dict[str, Any] = {"shapes": [()] * 3, "types": TYPES, "names": NAMES, "seed": 0}
RETURNS = NStep(3, 0.5)

#: A step in a script: none of these, or "t" terminated, "e" end, "f" final, or several.
Script = Sequence[str]


def fill(buffer: Any, script: Script, first: int = 1) -> Any:
    """Insert a row for each step, one after the other; observations count from `first`."""
    for i, step in enumerate(script):
        buffer.insert([float(first + i), 1.0, "t" in step], end="e" in step, final="f" in step)
    return buffer


def by_start(buffer: Any) -> dict[int, dict[str, Any]]:
    """Return the sample of each row that can be drawn, by its handle."""
    found = {}
    oldest = int(buffer.serials.asnumpy()[0]) - int(buffer.size())
    for handle in legal_handles(buffer):
        where = handle - oldest
        batch = buffer.sample((where, where + 1), as_dict=True)
        found[handle] = {name: value.asnumpy()[0].tolist() for name, value in batch.items()}
    return found


def transitions(buffer: Any) -> dict[int, tuple[float, float, float]]:
    """Return the return, next observation and discount of each row that can be drawn."""
    return {
        handle: (row["reward"], row["next_observation"], row["discount"]) for handle, row in by_start(buffer).items()
    }


LAST = {3: (1.5, 0, 0), 4: (1, 0, 0)}
#: Scripts, the step of each row in its episode, and what `transitions` returns.
SCRIPTS: dict[str, tuple[Script, list[int], dict[int, tuple[float, float, float]]]] = {
    # The last row is only read: the chain before it ends there, with a discount and its stored observation.
    "a time limit is never bootstrapped from zeros": (
        ["", "", "", "", "e", "", "", "te"],
        [0, 1, 2, 3, 4, 0, 1, 2],
        {0: (1.75, 4, 0.125), 1: (1.75, 5, 0.125), 2: (1.5, 5, 0.25), 3: (1, 5, 0.5)}
        | {5: (1.75, 0, 0), 6: (1.5, 0, 0), 7: (1, 0, 0)},
    ),
    "a column ends episodes without end": (
        ["", "", "t", "", "t", "t"],
        [0, 1, 2, 0, 1, 0],
        {0: (1.75, 0, 0), 1: (1.5, 0, 0), 2: (1, 0, 0), **LAST, 5: (1, 0, 0)},
    ),
    "a final row belongs to the row before it, without a flag": (
        ["", "", "f", "", "te"],
        [0, 1, 2, 0, 1],
        {0: (1.5, 3, 0.25), 1: (1, 3, 0.5), **LAST},
    ),
    "or at a time limit": (["", "e", "f", "", "te"], [0, 1, 2, 0, 1], {0: (1.5, 3, 0.25), 1: (1, 3, 0.5), **LAST}),
    "or terminated by its column alone": (
        ["", "t", "f", "", "te"],
        [0, 1, 2, 0, 1],
        {0: (1.5, 3, 0), 1: (1, 3, 0), **LAST},
    ),
    # As is the row of a step that resets a vector environment whose rows hold their own next observation.
    "after a terminated end it is alone": (
        ["", "te", "f", "", "te"],
        [0, 1, 0, 0, 1],
        {0: (1.5, 0, 0), 1: (1, 0, 0), **LAST},
    ),
    # It is the only step of an episode, and the row before it ended another, for whatever reason.
    "as an end of its own it is alone": (
        ["", "e", "ef", "", "t", "ef", "", "te", "ef", "", "f", "ef", "", "te"],
        [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1],
        {0: (1, 2, 0.5), **LAST, 6: (1.5, 0, 0), 7: (1, 0, 0), 9: (1, 11, 0.5), 12: (1.5, 0, 0), 13: (1, 0, 0)},
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_ends(name: str):
    """Of rows one by one, and in a batch."""
    script, steps, expected = SCRIPTS[name]
    buffer, batch = (ReplayBuffer(1, 16, views=[RETURNS], **COLUMNS) for _ in range(2))
    fill(buffer, script)
    terminated, end, final = (np.array([mark in step for step in script]) for mark in "tef")
    observations = np.arange(1, len(script) + 1, dtype=np.float32)
    batch.insert([observations, np.ones(len(script), np.float32), terminated], end=end, final=final)
    assert batch.flags.asnumpy().tolist() == buffer.flags.asnumpy().tolist()
    for one in (buffer, batch):
        one.check_valid()
        assert one.steps.asnumpy()[: len(script)].tolist() == steps
        assert transitions(one) == expected


def test_stacks_without_a_column_of_terminations_take_each_end_as_one():
    buffer = ReplayBuffer(1, 8, [()], ["float32"], names=["observation"], views=[FrameStack(2)], seed=0)
    for step in range(4):
        buffer.insert([1.0 + step], end=step == 1)
    assert by_start(buffer) == {
        0: {"observation": [0, 1], "next_observation": [1, 2]},
        1: {"observation": [1, 2], "next_observation": [2, 0]},
        2: {"observation": [0, 3], "next_observation": [3, 4]},
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "bool"])
def test_a_column_of_any_dtype(dtype: str):
    columns = COLUMNS | {"types": ["float32", "float32", dtype], "shapes": [(), (), (1,)]}
    buffer = SequenceReplayBuffer(1, 16, sequence_length=2, **columns)
    for value in (0, 0, 1, 0, 0):
        buffer.insert([1.0, 1.0, np.full(1, -0.0 if value == 0 and "float" in dtype else value, dtype)])
    assert buffer.steps.asnumpy()[:5].tolist() == [0, 1, 2, 0, 1]
    assert legal_handles(buffer) == [0, 1, 3]


def test_an_update_of_the_column_moves_ends():
    """It ends an episode where it becomes nonzero; where it becomes zero the episode ended for another reason."""
    buffer = fill(ReplayBuffer(1, 16, views=[RETURNS], **COLUMNS), ["", "", "", "", "t", "", "te"])
    buffer.update([1, 4], {"terminated": [True, False]})
    buffer.check_valid()
    assert buffer.steps.asnumpy()[:7].tolist() == [0, 1, 0, 1, 2, 0, 1]
    assert transitions(buffer) == {
        0: (1.5, 0, 0),
        1: (1, 0, 0),
        2: (1.5, 5, 0.25),
        3: (1, 5, 0.5),
        5: (1.5, 0, 0),
        6: (1, 0, 0),
    }
    buffer.update([4], {"terminated": [True]})
    assert transitions(buffer)[4] == (1, 0, 0)


def test_a_late_column_ends_episodes_when_it_is_written():
    buffer = ReplayBuffer(1, 16, **flat(views=[RETURNS], late=["terminated"], **COLUMNS))
    for step in range(6):
        buffer.insert([1.0 + step, 1.0], end=step in (3, 5))
    assert not buffer.can_sample()
    buffer.update(range(6), {"terminated": [False, True, False, False, False, True]})
    buffer.check_valid()
    assert transitions(buffer) == {0: (1.5, 0, 0), 1: (1, 0, 0), 2: (1, 4, 0.5), 4: (1.5, 0, 0), 5: (1, 0, 0)}


#: Buffers without their sizes and columns.
LATE_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "returns": (ReplayBuffer, {"views": [RETURNS]}),
    "frames": (PrioritizedReplayBuffer, {"views": [FrameStack(3), NStep(2, 0.5)]}),
    "sequences": (SequenceReplayBuffer, {"sequence_length": 3, "burn_in": 1, "stride": 2, "views": [NStep(2, 0.5)]}),
    "padded sequences": (SequenceReplayBuffer, {"sequence_length": 3, "stride": 2, "pad_end": True}),
    "episodes": (EpisodeReplayBuffer, {"max_episode_length": 11, "views": [NStep(2, 0.5)]}),
}


@pytest.mark.parametrize("kind", LATE_KINDS)
def test_a_late_column_written_in_any_order_is_as_one_that_came_with_its_rows(kind: str):
    """Around the ring, for one environment and two; each row's value comes before the row is overwritten."""
    rng = np.random.default_rng(0)
    for trial in range(12):
        cls, options = LATE_KINDS[kind]
        num_envs = 1 + trial % 2
        options = COLUMNS | options | {"num_envs": num_envs, "backend": "native"}
        late, whole = (cls(1, 23, **flat(**options, late=missing)) for missing in (["terminated"], []))
        waiting: dict[int, bool] = {}
        alone = np.zeros(num_envs, bool)  # a final row after one that came with both flags is alone
        for step in range(int(rng.integers(3, 30))):
            first = step * num_envs
            final = (rng.random(num_envs) < 0.1) & ~alone & (step > 0)
            end, terminated = ((rng.random(num_envs) < 0.2) & ~final for _ in range(2))
            end |= (whole.steps.asnumpy()[(first + np.arange(num_envs) - num_envs) % 23] > 7) & ~final
            alone = final | (end & terminated)
            rows = [np.float32(1 + first + np.arange(num_envs)), np.ones(num_envs, np.float32)]
            whole.insert([*rows, terminated], end=end, final=final)
            late.insert(rows, end=end, final=final)
            waiting |= {first + env: bool(terminated[env]) for env in range(num_envs) if not final[env]}
            oldest = first + 2 * num_envs - 23
            come = [handle for handle in waiting if handle < oldest or rng.random() < 0.3]
            if come:
                late.update([*come, *come], {"terminated": [True] * len(come) + [waiting.pop(i) for i in come]})
                late.check_valid()
        if waiting:
            late.update([*waiting], {"terminated": [*waiting.values()]})
        assert legal_handles(late) == legal_handles(whole)
        assert late.steps.asnumpy().tolist() == whole.steps.asnumpy().tolist()
        assert ((late.flags.asnumpy() ^ whole.flags.asnumpy()) & ~8).tolist() == [0] * 23
        if kind == "returns":
            assert by_start(late) == by_start(whole)


@pytest.mark.cpu_only("rows in a folder are in host memory")
def test_an_attached_process_and_a_checkpoint_move_ends(tmp_path: Path):
    options = COLUMNS | {"shapes": [(2,), (), ()]}
    buffer = SequenceReplayBuffer(1, 16, sequence_length=2, storage=tmp_path / "rows", **options)
    buffer.insert([np.ones((6, 2), np.float32), np.ones(6, np.float32), np.zeros(6, bool)])
    assert int(attach(tmp_path / "rows").update([1, 3, 3, 99], {"terminated": [True, False, True, True]})) == 1
    compressed = SequenceReplayBuffer(1, 16, **flat(sequence_length=2, compress=["observation"], **options))
    compressed.insert([np.ones((6, 2), np.float32), np.ones(6, np.float32), np.zeros(6, bool)])
    save(compressed, tmp_path / "saved")
    compressed.update([1, 3], {"terminated": [True, True]})
    save(compressed, tmp_path / "saved")
    for each in (buffer, compressed, load(tmp_path / "saved")):
        each.check_valid()
        assert each.steps.asnumpy()[:6].tolist() == [0, 1, 0, 1, 0, 1]
        assert legal_handles(each) == [0, 2, 4]
