"""Buffers whose rows know their episode, with twins; and random operations on both."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from drivers import NATIVE, SHAPES, TYPES, shared_driver
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from model import Model, stack

from mindspore_replay import EpisodeReplayBuffer, SequenceReplayBuffer


def row(serial: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a row without zeros that holds its serial number."""
    return np.array([serial + 1, -serial - 1], np.float32), np.array(serial + 1, np.int32)


def legal_handles(buffer: Any) -> list[int]:
    """Return the handles of rows with positive weight, from the state alone, oldest first."""
    count, inserted = int(buffer.count.asnumpy()), int(buffer.serials.asnumpy()[0])
    slots = (int(buffer.head.asnumpy()) + np.arange(count)) % buffer.capacity
    return (inserted - count + np.flatnonzero(buffer.weights.asnumpy()[slots] > 0)).tolist()


def differences(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """Return the arrays that are not equal bit for bit in two buffers, or two states."""
    a, b = (x if isinstance(x, dict) else x.state_dict() for x in (a, b))
    assert a.keys() == b.keys()
    return {key: (a[key].tolist(), b[key].tolist()) for key in a if a[key].tobytes() != b[key].tobytes()}


def same_states(a: Any, b: Any) -> bool:
    """Return True if two buffers, or two states, are equal bit for bit."""
    return not differences(a, b)


class Pair:
    """A buffer of sequences or episodes and its twin: operations go to both, and their results must be equal.

    Args:
        driver: The calls of a buffer whose columns are `SHAPES` and `TYPES`.
        options (dict): What the buffer was made with, beside sizes and columns.
    """

    def __init__(self, driver: Any, **options: Any) -> None:
        self.driver, self.buffer = driver, driver.buffer
        self.twin = Model(type(self.buffer), self.buffer.sample_size, self.buffer.capacity, **options)
        self.num_envs = self.buffer.num_envs
        self.prioritized = self.twin.prioritized

    def handles(self, behind: Sequence[int]) -> list[int]:
        return [self.twin.inserted - 1 - distance for distance in behind]

    def legal(self) -> list[int]:
        """Return the handles of the valid starts, on which both agree."""
        self.compare()
        assert legal_handles(self.buffer) == self.twin.legal()
        return self.twin.legal()

    def compare(self) -> None:
        """Check that all state is that of the twin, bit for bit, and consistent: the tree is that of its leaves."""
        self.buffer.check_valid()
        twin, state = self.twin, self.buffer.state_dict()
        expected = twin.state()
        assert (int(state["head"]), int(state["count"]), *state["serials"]) == (twin.head, twin.size, *twin.serials)
        assert state["random_state"].tolist() == twin.random_state
        assert state["weights"][: twin.capacity].tolist() == expected.pop("leaves")
        assert {key: state[key].tolist() for key in expected} == expected
        slots = twin.slots
        stored = [slot for slot, row in enumerate(slots) if row is not None]
        for i, column in enumerate(self.buffer.buffer):
            if stored:
                assert (column.asnumpy()[stored] == np.stack([slots[slot][i] for slot in stored])).all()
        assert bool(self.buffer.can_sample()) == twin.can_sample()

    def insert(self, ends: Sequence[bool], finals: Any = None, priority: Any = None) -> None:
        """Insert one row for each flag."""
        ends = [bool(end) for end in ends]
        finals = [False] * len(ends) if finals is None else list(finals)
        batch = [row(self.twin.inserted + i) for i in range(len(ends))]
        given = {"priority": priority} if self.prioritized else {}
        if not self.twin.fits(ends, finals):
            assert self.refuses(batch, ends, finals)
            return
        self.driver.insert(stack(batch), end=np.array(ends), final=np.array(finals), **given)
        self.twin.insert(batch, **given, ends=ends, finals=finals)

    def fits(self, flags: Sequence[int]) -> bool:
        """Return True if rows with these flags make no episode too long."""
        return self.twin.fits(*ends_and_finals(flags))

    def steps(self, n: int, *ends: int) -> "Pair":
        """Insert n rows one by one; those at these positions are ends."""
        for i in range(n):
            self.insert([i in ends])
        return self

    def refuses(self, batch: list[Any], ends: list[bool], finals: list[bool]) -> bool:
        """Return True if an insertion that makes an episode too long is refused and changes nothing."""
        before = self.buffer.state_dict()
        try:
            self.driver.insert(stack(batch), end=np.array(ends), final=np.array(finals))
        except ValueError as error:
            return "max_episode_length" in str(error) and same_states(before, self.buffer)
        return False

    def sample(self) -> tuple[np.ndarray, ...] | None:
        """Draw a sample, the same from both; return None if there are too few starts."""
        if not self.twin.can_draw():
            return None
        handles, *bookkeeping, _ = self.twin.sample()
        columns = self.twin.windows(handles)
        bookkeeping = [np.array(bookkeeping[0], np.float32)] if self.prioritized else []
        if self.twin.whole:
            bookkeeping.append(np.array(columns[0].sum(1), np.int32))
        got = self.driver.sample()
        expected = (np.array(handles, np.int64), *bookkeeping, *columns)
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert (a.dtype, a.shape, a.tolist()) == (b.dtype, b.shape, b.tolist()), i
        return got

    def update(self, handles: Sequence[int], priorities: Any) -> int:
        invalid = self.driver.update(handles, priorities)
        assert invalid == self.twin.update(handles, priorities)
        return invalid

    def delete(self, *handles: int) -> int:
        deleted = self.driver.delete(list(handles))
        assert deleted == self.twin.delete(handles)
        return deleted

    def advance(self, steps: int = 1) -> None:
        self.driver.advance(steps)
        self.twin.advance(steps)

    def info(self, handles: Sequence[int]) -> None:
        assert self.driver.info(handles) == self.twin.info(handles)

    def end_episodes(self) -> None:
        assert int(self.buffer.end_episodes()) == self.twin.end_episodes()

    def reset(self) -> None:
        self.driver.reset()
        self.twin.reset()


#: Letters of `play`, and the flags of their rows.
_ROWS = {".": (False, False), "e": (True, False), "f": (False, True), "b": (True, True)}


def play(pair: Pair, script: str) -> None:
    """Apply a script to a buffer and its twin; check the valid starts after each part, and a sample at the end.

    Parts are separated by ``|``: operations, a colon, and the handles of the valid starts that must be there then, such
    as ``0 2-4``. A number inserts so many steps, one after the other; a word of letters a step with a row for each
    environment: ``.`` is one without a flag, ``e`` an end, ``f`` a final row, ``b`` both. ``d5`` deletes row 5, ``a``
    advances the clock, and ``r`` resets.
    """
    for part in script.split("|"):
        operations, _, starts = part.partition(":")
        for operation in operations.split():
            if operation.isdecimal():
                for _ in range(int(operation)):
                    pair.insert([False] * pair.num_envs)
            elif operation[0] == "d":
                pair.delete(int(operation[1:]))
            elif operation in ("a", "r"):
                (pair.advance if operation == "a" else pair.reset)()
            else:
                pair.insert(*zip(*(_ROWS[letter] for letter in operation)))
        ranges = (handles.split("-") for handles in starts.split())
        assert pair.legal() == [handle for ends in ranges for handle in range(int(ends[0]), int(ends[-1]) + 1)], part
    pair.sample()
    pair.compare()


def sequences(capacity: int, length: int, draws: int = 1, **options: Any) -> Pair:
    """Return a shared native buffer of sequences, emptied, and its twin."""
    return _pair(SequenceReplayBuffer, draws, capacity, sequence_length=length, **options)


def episodes(capacity: int, longest: int, draws: int = 1, **options: Any) -> Pair:
    """Return a shared native buffer of episodes, emptied, and its twin."""
    return _pair(EpisodeReplayBuffer, draws, capacity, max_episode_length=longest, **options)


def _pair(cls: type[Any], draws: int, capacity: int, **options: Any) -> Pair:
    return Pair(shared_driver(NATIVE, draws, capacity, SHAPES, TYPES, cls=cls, **options), **options)


# Random operations.

HANDLES = 4  # of a call, some of them invalid
NONE, END, FINAL = 0, 1, 2
FLAGS = st.lists(st.sampled_from([*[NONE] * 7, END, FINAL, END | FINAL]), min_size=5, max_size=9)


def ends_and_finals(flags: Sequence[int]) -> tuple[list[bool], list[bool]]:
    """Return which rows are ends, and which are final."""
    return [flag & END > 0 for flag in flags], [flag & FINAL > 0 for flag in flags]


PRIORITY = st.sampled_from([0.0, 0.25, 0.1, 1.0, 2.0, 9.0, 1234.5])
PRIORITIES = st.lists(PRIORITY, min_size=HANDLES, max_size=HANDLES)
#: Distances of handles behind the newest row; negative ones are in the future. Most of those to delete are.
BEHIND = st.lists(st.integers(-2, 15), min_size=HANDLES, max_size=HANDLES)
TO_DELETE = st.lists(st.integers(-45, 15), min_size=HANDLES, max_size=HANDLES)
#: Two steps with a priority for each row: one graph for all, if calls are compiled.
CORE = [
    *[st.tuples(st.just("insert"), st.just(2), FLAGS, PRIORITIES)] * 6,
    *[st.tuples(st.just("sample"))] * 4,
    st.tuples(st.just("update"), BEHIND, PRIORITIES),
    st.tuples(st.just("delete"), TO_DELETE),
]
#: If nothing is compiled, also insertions of other numbers of rows, without a priority or with one for all.
MORE = [
    *CORE,
    st.tuples(st.just("advance"), st.integers(0, 2)),
    st.tuples(st.just("info"), BEHIND),
    st.tuples(st.just("reset"), st.integers(0, 2)),
    st.tuples(st.just("end_episodes")),
    *[st.tuples(st.just("insert"), st.sampled_from([1, 1, 3, 6, 13, 16]), FLAGS, st.none())] * 2,
    st.tuples(st.just("insert"), st.sampled_from([1, 1, 3, 6, 13, 16]), FLAGS, PRIORITY),
]
#: Several rows may be the same, so that the last value counts.
WRITE = [
    st.tuples(
        st.just("write_terminated"),
        st.lists(st.integers(-2, 9), min_size=HANDLES, max_size=HANDLES),
        st.lists(st.booleans(), min_size=HANDLES, max_size=HANDLES),
    )
]
WRITING, MORE_WRITING = (
    st.lists(st.sampled_from(range(len(kinds))).flatmap(kinds.__getitem__), min_size=n, max_size=n)
    for kinds, n in (([*CORE, *WRITE * 3], 16), ([*MORE, *WRITE * 5], 30))
)
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
#: For graphs: no shrinking, since that would take minutes.
SLOW = settings(SETTINGS, phases=[Phase.explicit, Phase.generate])


def run(pair: Pair, operations: Sequence[tuple[Any, ...]]) -> None:
    """Apply operations to a buffer and its twin; all state must be equal after each, bit for bit."""
    for name, *arguments in operations:
        if name == "insert":
            insert(pair, *arguments)
        elif name == "update":
            if pair.prioritized:
                pair.update(pair.handles(arguments[0]), arguments[1])
        elif name == "delete":
            pair.delete(*pair.handles(arguments[0]))
        elif name == "info":
            pair.info(pair.handles(arguments[0]))
        elif name == "reset":
            if arguments[0] == 0:
                pair.reset()
        else:
            getattr(pair, name)(*arguments)
        pair.compare()


def insert(pair: Pair, steps: int, flags: Sequence[int], priority: Any) -> None:
    """Insert rows; flags and priorities repeat until there is one for each."""
    n = steps * pair.num_envs
    given = [flags[i % len(flags)] for i in range(n)]
    for i in range(n):
        if not pair.fits([*given[: i + 1], *[NONE] * pair.num_envs]):  # no row would fit after it
            given[i] = END
    if isinstance(priority, list):
        priority = [priority[i % len(priority)] for i in range(n)]
    pair.insert(*ends_and_finals(given), priority)
