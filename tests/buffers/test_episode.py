"""Whole episodes: which are drawn, the content of samples, and the maximum length."""

import re
from typing import Any

import pytest
from any_length import FIXED
from checks import same_states
from pairs import Pair, play
from twin_kinds import Kind


def episodes(capacity: int, longest: int, draws: int = 1, **options: Any) -> Pair:
    """Return a buffer of episodes and its twin."""
    of = {"max_episode_length": longest, **options}
    return Pair(Kind("EpisodeReplayBuffer", of, FIXED), sample_size=draws, capacity=capacity)


# Hand-worked, for the buffer and its twin, as `play` tells them. Handles are row numbers.

STARTS: dict[str, tuple[int, int, dict[str, Any], str]] = {
    "an unfinished episode is not drawn": (12, 5, {}, "4: | e: 0 | 3: 0 | e e: 0 5 9"),
    "the first row that is overwritten takes the episode": (
        12,
        5,
        {},
        "3 e 4 e 2 e: 0 4 9 | 1: 4 9 | 3: 4 9 | e: 9 12 | 3: 9 12 | e: 9 12 17 | e: 12 17 21",
    ),
    **{f"a deleted row {i} takes its episode": (12, 4, {}, f"3 e 2 e 2 e: 0 4 7 | d{i}: 0 7") for i in (4, 5, 6)},
    **{f"a row {i} deleted before the end": (12, 4, {}, f"3 e 3 d{i}: 0 | e: 0 | e: 0 8") for i in (4, 5, 6)},
    # Finishes the second episode, and begins a third; then rows 0 to 5 are stale.
    "a stale row takes its episode": (12, 4, {"max_staleness": 1}, "2 e 3 a e 2: 0 3 | a: | e: 7 | a:"),
    "final rows are last steps and make no episodes": (12, 4, {}, "2 f: 0 | f b: 0 | 3: 0 | f: 0 5"),
    # Environment 0 has rows 0, 3, 6 and then 9; environment 1 row 1 and 4, 7, 10; environment 2 rows 2, 5 and 8, 11.
    "environments whose number does not divide the capacity": (
        13,
        4,
        {"num_envs": 3},
        ".e. ..e e.. .e.: 0-2 4 | e.e: 2 4 8 9 | eee: 8 9 13 15 17 | d14: 9 13 15 17",
    ),
    "reset forgets episodes too": (12, 4, {}, "3 e 2 r: | 3: | e: 6"),  # this is no fifth step
    "an episode as long as the ring": (13, 13, {}, "12 e: 0 | 1: | 11 e: 13"),
    "episodes of one step, and one too long": (5, 1, {}, "e e e e e e e: 2-6 | 1: 3-6 | 1: 3-6 | e: 3-6"),
}


@pytest.mark.parametrize("case", STARTS)
def test_valid_starts(case: str):
    capacity, longest, options, script = STARTS[case]
    play(episodes(capacity, longest, **options), script)


# The maximum length.

TOO_LONG = (
    "For 'EpisodeReplayBuffer', no episode may have more than max_episode_length=3 rows: insert the last of them with "
    "end=True, or call end_episodes() before the next. Nothing was stored."
)


def test_an_episode_that_would_be_too_long_is_refused_and_can_still_be_finished():
    """Two steps of two environments at once: the third row of each is the last, with a flag or by `end_episodes`."""
    pair = episodes(13, 3, 2, num_envs=2)
    pair.insert([False] * 4)
    before = pair.buffer.state_dict()
    for ends in ([False, False, True, True], [True, False, True, True], [False, True, True, True]):
        with pytest.raises(ValueError, match=f"^{re.escape(TOO_LONG)}$"):
            pair.buffer.insert(pair.passed(pair.new_rows(4), 2)[0], end=ends)
        assert same_states(before, pair.buffer)
    pair.insert([True, False, False, False], [False, True, False, False])
    assert pair.legal() == [0, 1]
    pair.sample()
    pair.insert([False, False, False, True])
    assert pair.legal() == [0, 1, 7]  # the third row of environment 0 may be its last, and is not yet
    with pytest.raises(ValueError, match=f"^{re.escape(TOO_LONG)}$"):
        pair.buffer.insert(pair.passed(pair.new_rows(2), 2)[0], end=True)
    assert pair.end_episodes() == 1
    assert pair.legal() == [0, 1, 6, 7]
    pair.insert([True, False])
    assert pair.legal() == [1, 6, 7, 12]  # row 0 was overwritten


# Saving.


def test_a_state_with_longer_episodes_is_refused():
    for ends in ((4,), (3,), ()):
        state = episodes(13, 5).steps(ends[0] + 1 if ends else 4, *ends).buffer.state_dict()
        with pytest.raises(ValueError, match="For 'EpisodeReplayBuffer'"):
            episodes(13, 3).buffer.load_state_dict(state)
