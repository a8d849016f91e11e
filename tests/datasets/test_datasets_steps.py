"""Steps from rows, for rows in pieces of any size."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindspore_replay.datasets import steps as module
from mindspore_replay.datasets.steps import END, FINAL, Arrays, Field, Recording, chunk_rows, chunks


def make_episodes(lengths: list[int], ends: list[str]) -> list[Arrays]:
    """Make episodes in which no number repeats, with one observation more than steps."""
    episodes, number = [], 0
    for length, how in zip(lengths, ends):
        done = np.arange(length) == length - 1
        episodes.append(
            {
                "observation": np.arange(number, number + length + 1) * 1.0,
                "action": np.arange(number, number + length),
                "reward": np.arange(number, number + length) * 0.5,
                "terminated": done & (how == "terminated"),
                "truncated": done & (how == "truncated"),
            }
        )
        number += length + 1
    return episodes


def rows_of(episode: Arrays, layout: str) -> Arrays:
    """Return an episode as the rows of a file."""
    n = len(episode["action"])
    steps = {name: array[:n] for name, array in episode.items()}
    if layout == "plain":
        return steps
    done = np.arange(n) == n - 1
    if layout == "whole":
        return {**steps, "next_observation": episode["observation"][1:]}
    if layout == "flagged whole":
        filler = {name: np.append(array, array[-1] * 0 + 77).astype(array.dtype) for name, array in steps.items()}
        filler |= {name: np.append(steps[name], False) for name in ("terminated", "truncated")}
        following = np.append(episode["observation"][1:], 55.0)
        return {**filler, "next_observation": following, END: np.append(done, True), FINAL: np.arange(n + 1) == n}
    last = {name: np.append(array, np.zeros(1, array.dtype)) for name, array in steps.items()}
    last["observation"] = episode["observation"]
    return {**last, END: np.arange(n + 1) == n, FINAL: np.arange(n + 1) == n}


def joined(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def recording(rows: Arrays, **options: Any) -> Recording:
    fields: dict[str, Field] = {name: (array.shape[1:], array.dtype) for name, array in rows.items()}
    read_rows = lambda name, part: rows[name][part]  # noqa: E731
    return Recording("f", "the rows", len(rows["action"]), fields, read_rows, **options)


def read(found: Recording, chosen: Any = True, *, whole: bool = False, single: bool = False, piece: int = 99) -> Arrays:
    """Return transitions, or steps, in pieces, with the flags to insert them with."""
    layout = found.layout(np.broadcast_to(chosen, found.end.shape), whole, single)
    names = found.fields if single else found.transitions
    parts = [found.read(layout, part, names) for part in chunks(len(layout.source), piece)]
    flags = {END: layout.end, FINAL: layout.final, "next": layout.has_next}
    return (joined(parts) if parts else {}) | flags


EPISODES = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["terminated", "truncated", "neither"])), min_size=1)


@settings(max_examples=150, deadline=None)
@given(EPISODES, st.integers(1, 20), st.sampled_from(["plain", "whole", "flagged", "flagged whole", "lengths"]))
def test_rows_in_any_pieces_make_the_steps_of_their_episodes(
    plan: list[tuple[int, str]], piece: int, layout: str
) -> None:
    lengths, ends = ([part[i] for part in plan] for i in (0, 1))
    if layout == "plain":  # nothing else would mark the end of an episode
        ends = ["truncated" if end == "neither" else end for end in ends]
    episodes = make_episodes(lengths, ends)
    rows, options = joined([rows_of(episode, layout) for episode in episodes]), {}
    if layout == "lengths":
        options["lengths"] = np.array(lengths) + 1
        del rows[END], rows[FINAL]
    with mock.patch.object(module, "CHUNK_ROWS", piece), mock.patch.object(module, "_GAP", piece % 3):
        found = recording(rows, **options)
        steps, single = read(found, piece=piece), read(found, single=True, piece=piece)
    expected = joined([{k: v[: len(e["action"])] for k, v in e.items()} for e in episodes])
    assert steps.keys() == {*expected, "next_observation", END, FINAL, "next"}
    for name, array in expected.items():
        np.testing.assert_array_equal(steps[name], array)
        assert steps[name].dtype == array.dtype
    last = np.concatenate([np.arange(n) == n - 1 for n in lengths])
    np.testing.assert_array_equal(steps[END], last)
    np.testing.assert_array_equal(steps["next"], ~last if layout == "plain" else np.ones_like(last))
    following = np.concatenate([e["observation"][1:] for e in episodes])
    np.testing.assert_array_equal(steps["next_observation"][steps["next"]], following[steps["next"]])
    if layout == "plain":  # the last observations are unknown
        np.testing.assert_array_equal(single["observation"], expected["observation"])
        assert single[END].tolist() == last.tolist()
        assert single[FINAL].tolist() == (last & ~expected["terminated"]).tolist()
        return
    np.testing.assert_array_equal(single["observation"], np.concatenate([e["observation"] for e in episodes]))
    after = np.concatenate([np.arange(n + 1) == n for n in lengths])
    assert (single[FINAL].tolist(), single[END].any()) == (after.tolist(), False)
    for name in expected.keys() - {"observation"}:
        np.testing.assert_array_equal(single[name][~after], expected[name])
        assert not single[name][after].any()


@settings(max_examples=60, deadline=None)
@given(EPISODES, st.integers(1, 20), st.data())
def test_steps_are_chosen_and_summed_by_episode(plan: list[tuple[int, str]], piece: int, data: st.DataObject) -> None:
    lengths, ends = ([part[i] for part in plan] for i in (0, 1))
    episodes = make_episodes(lengths, ends)
    found = recording(joined([rows_of(episode, "flagged") for episode in episodes]))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(plan), max_size=len(plan))))
    with mock.patch.object(module, "CHUNK_ROWS", piece), mock.patch.object(module, "_GAP", 1):
        steps, table = read(found, np.repeat(chosen, found.length), piece=piece), found.table()
    if wanted := [episode for episode, take in zip(episodes, chosen) if take]:
        expected = joined([{**e, "observation": e["observation"][1:]} for e in wanted])
        np.testing.assert_array_equal(steps["action"], expected["action"])
        np.testing.assert_array_equal(steps["next_observation"], expected["observation"])
    assert len(steps[END]) == sum(len(episode["action"]) for episode in wanted)
    assert table.length.tolist() == lengths
    assert table.total_reward.tolist() == [e["reward"].sum() for e in episodes]
    assert table.terminated.tolist() == [end == "terminated" for end in ends]
    assert table.truncated.tolist() == [end == "truncated" for end in ends]


def test_steps_without_the_observation_after_them_are_dropped():
    """But for one that terminated; the step before ends its episode."""
    rows = {"observation": np.arange(7.0), "action": np.arange(7), "terminated": np.arange(7) == 1}
    rows["truncated"] = np.isin(np.arange(7), [4, 5])
    for whole, action, end in ((False, [0, 1, 2, 3, 4, 5, 6], [1, 4, 5, 6]), (True, [0, 1, 2, 3], [1, 3])):
        steps = read(recording(rows), whole=whole)
        assert steps["action"].tolist() == action
        assert steps["action"][steps[END]].tolist() == end


def test_an_episode_ends_where_the_next_observation_is_not_that_of_the_next_row():
    nan = np.nan
    rows = {
        "observation": np.array([[0, nan], [1, nan], [5, 0], [6, 0]], np.float32),
        "next_observation": np.array([[1, nan], [2, 0], [6, 0], [7, 0]], np.float32),
        "action": np.arange(4),
    }
    for piece in (1, 2, 3, 4):
        with mock.patch.object(module, "CHUNK_ROWS", piece):
            assert recording(rows).end.tolist() == [False, True, False, True]


def test_a_final_row_with_flags_of_its_own_is_a_step():
    """Vector environments that reset at once leave truncated episodes so: the observation after one is not stored."""
    rows = {
        "observation": np.arange(4.0),
        "action": np.arange(4),
        "truncated": np.array([False, True, False, False]),
        END: np.array([False, True, False, True]),
        FINAL: np.array([False, True, False, True]),
    }
    steps = read(recording(rows))
    assert steps["action"].tolist() == [0, 1, 2]
    assert steps["next"].tolist() == [True, False, True]
    assert steps[END].tolist() == [False, True, True]
    assert steps["next_observation"][steps["next"]].tolist() == [1, 3]


def test_rows_without_a_step():
    """Each holds only an observation."""
    flags = {END: np.ones(2, bool), FINAL: np.ones(2, bool)}
    found = recording({"observation": np.zeros(2), "action": np.zeros(2), "reward": np.ones(2), **flags})
    assert [array.tolist() for array in (*found.table(), found.rows)] == [[], [], [], [], []]
    assert not len(read(found, whole=True)[END])


def test_flags_may_have_an_axis_more():
    assert module.as_flag(np.array([[0], [1]], np.int32)).tolist() == [False, True]


@pytest.mark.parametrize(("row_bytes", "rows"), [(1, 65_536), (2**14, 64), (2**30, 1)])
def test_chunks_are_small_in_rows_and_in_bytes(row_bytes: int, rows: int):
    assert chunk_rows([((row_bytes,), np.dtype(np.uint8))]) == rows
    assert [(part.start, part.stop) for part in chunks(7, 3)] == [(0, 3), (3, 6), (6, 7)]
