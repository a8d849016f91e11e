"""Slow twins of the buffers whose rows know their episode, from the docs alone.

After each operation every stored row is judged anew, step by step, by the stored rows of its episode.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from reference_weighted import PrioritizedTwin, Record, UniformTwin

#: Environment, episode, step in the episode.
Key = tuple[int, int, int]


class StepRecord(Record):
    """The state of the row in a slot."""

    def __init__(self) -> None:
        super().__init__()
        self.key: Key = (-1, -1, 0)
        self.end = self.final = self.deleted = self.legal = self.open = False


class Rule(NamedTuple):
    """The extent of a sample.

    Args:
        length (int): Steps from the start on.
        before (int): Steps before the start: the burn-in and the frames of a stack.
        stride (int): Period of starts in an episode.
        pad_end (bool): True if a window may extend beyond the end of its episode.
        whole (bool): True if only whole episodes are drawn, of at most `length` steps.
    """

    length: int = 1
    before: int = 0
    stride: int = 1
    pad_end: bool = False
    whole: bool = False


class WindowsTwin(UniformTwin):
    """A buffer of rows in time, drawn uniformly.

    Args:
        draws (int), capacity (int): As for `UniformTwin`.
        rule (Rule): The extent of a sample.
        num_envs (int): Environments that write in lockstep.
        needs_next (bool): True if samples hold the next observation, which is that of the next row.
    """

    def __init__(
        self, draws: int, capacity: int, *, rule: Rule, num_envs: int = 1, needs_next: bool = False, **options: Any
    ) -> None:
        self.rule, self.num_envs, self.needs_next = rule, num_envs, needs_next
        super().__init__(draws, capacity, **options)

    def forget(self) -> None:
        super().forget()
        self.records: list[Any] = [StepRecord() for _ in range(self.capacity)]
        self.next_keys: list[Key] = [(env, 0, 0) for env in range(self.num_envs)]
        self.lengths: dict[tuple[int, int], int] = {}  # steps of each finished episode
        self.stored: dict[Key, StepRecord] = {}
        self.by_handle: dict[int, StepRecord] = {}

    def fits(self, ends: Sequence[bool], finals: Any = None, terminated: Any = None) -> bool:
        """Return True if rows with these flags make no episode too long."""
        newest = [self.newest(env) for env in range(self.num_envs)]
        for i in range(len(ends)):
            env = i % self.num_envs
            final = finals is not None and bool(finals[i])
            key = self.key_after(env, newest[env], final)
            record = StepRecord()
            record.key = key
            self.flag(record, bool(ends[i]), final, None if terminated is None else bool(terminated[i]))
            if self.rule.whole and key[2] + (not record.end) >= self.rule.length:
                return False
            newest[env] = record
        return True

    def newest(self, env: int) -> StepRecord | None:
        """Return the state of the newest row of an environment, if it is stored."""
        serial = self.inserted - self.num_envs + env
        return None if serial < self.inserted - self.size else self.records[(serial - self.base) % self.capacity]

    def key_after(self, env: int, before: StepRecord | None, final: bool) -> Key:
        """Return the key of a new row, from the row before it."""
        if before is None:
            return self.next_keys[env]
        _, episode, step = before.key
        goes_on = not before.end or (before.open and final)
        return (env, episode, step + 1) if goes_on else (env, episode + 1, 0)

    def flag(self, record: StepRecord, end: bool, final: bool, terminated: bool | None) -> None:
        """Set the flags of a row by what is said of it, ``None`` if no column says whether it has terminated."""
        unknown = end and not final and terminated is False and self.needs_next
        record.open = not final and (unknown or (bool(terminated) and not end))
        record.final = final or unknown
        record.end = end or final or bool(terminated)

    def insert(
        self,
        rows: list[Any],
        priority: Any = None,
        ends: Any = None,
        finals: Any = None,
        judge: bool = True,
        terminated: Any = None,
    ) -> None:
        """Append rows with flags, one for each; a final row is also an end.

        Without `judge` the caller has to judge later.
        """
        before = [self.newest(env) for env in range(self.num_envs)]
        first = self.inserted
        super().insert(rows, priority)
        for i in range(len(rows)):
            env = i % self.num_envs
            last, final = before[env], finals is not None and bool(finals[i])
            key = self.key_after(env, last, final)
            if last is not None and key[1] == last.key[1]:
                last.end = last.final = False
            if i < len(rows) - self.capacity:  # never stored
                record = StepRecord()
            else:
                record = self.records[(first + i - self.base) % self.capacity]
            record.key, record.deleted = key, False
            end = ends is not None and bool(ends[i])
            self.flag(record, end, final, None if terminated is None else bool(terminated[i]))
            if record.end:
                self.lengths[key[:2]] = key[2] + 1
            self.next_keys[env] = (env, key[1] + 1, 0) if record.end else (env, key[1], key[2] + 1)
            before[env] = record
        if judge:
            self.judge()

    def order(self) -> list[int]:
        head = self.head
        return [*range(head, self.size), *range(head)]

    def record_of(self, handle: int) -> Any:
        """Return the state of a row, if it is stored."""
        return self.by_handle.get(handle)

    def judge(self) -> None:
        """Set the weight of each row that a sample may start at, zero for the others."""
        records = [self.records[slot] for slot in self.order()]
        self.stored = {record.key: record for record in records}
        self.by_handle = {record.serial: record for record in records}
        for record in self.stored.values():
            record.legal = self.may_start(record)
            record.weight = self.weight_of(record.priority) if record.legal else 0.0

    def at(self, key: Key, offset: int) -> StepRecord | None:
        """Return the row `offset` steps after another of the same episode, if it is stored and not deleted."""
        record = self.stored.get((key[0], key[1], key[2] + offset))
        return None if record is None or record.deleted else record

    def may_start(self, record: StepRecord) -> bool:
        rule, (env, episode, step) = self.rule, record.key
        if record.removed or record.final:
            return False
        length = self.lengths.get((env, episode))
        if rule.whole:
            return step == 0 and length is not None and all(self.at(record.key, i) for i in range(length))
        for i in range(-min(rule.before, step), rule.length):
            beyond = length is not None and step + i >= length
            if not (rule.pad_end if beyond else self.at(record.key, i)):
                return False
        return step % rule.stride == 0 or (not rule.pad_end and length == step + rule.length)

    def legal(self) -> list[int]:
        """Return the handles of valid starts, oldest first."""
        return [self.records[slot].serial for slot in self.order() if self.records[slot].legal]

    def live(self, handle: int) -> Any:
        """Return the state of a row, if a sample may start there."""
        record = self.record_of(handle)
        return record if record is not None and record.legal else None

    def deliver(self, slots: list[int]) -> list[int]:
        super().deliver(slots)
        self.judge()
        return slots

    def delete(self, handles: Sequence[int]) -> int:
        """Delete rows; return the number of rows not deleted before."""
        found = {handle: self.record_of(handle) for handle in handles}
        deleted = [record for record in found.values() if record is not None and not record.deleted]
        alive = {record.serial for record in deleted}
        self.counts["invalid"] += sum(handle >= 0 and handle not in alive for handle in handles)
        self.counts["deleted"] += len(deleted)
        for record in deleted:
            record.removed = record.deleted = True
        self.judge()
        return len(deleted)

    def advance(self, steps: int) -> None:
        self.now += steps
        for slot in self.order():
            if self.stale(self.records[slot]):
                self.counts["stale"] += not self.records[slot].deleted
                self.records[slot].removed = self.records[slot].deleted = True
        self.look_for_fresh()
        self.judge()

    def write_terminated(self, handles: Sequence[int], terminated: Sequence[bool]) -> int:
        """Follow an update of the column of terminations, row by row; return the number of invalid handles."""
        found = [self.record_of(handle) for handle in handles]
        last = {handle: value for handle, value, record in zip(handles, terminated, found) if record}
        for handle, value in last.items():
            record = self.by_handle[handle]
            if record.deleted or (record.final and not record.open):
                continue
            env, episode, step = record.key
            following = self.stored.get((env, episode, step + 1))
            if record.end:
                record.final = self.needs_next and not value
                record.open = record.open or record.final
            elif value and not (following and following.final and not following.open):
                record.end = record.open = True
                self.split(env, episode, step)
                self.stored = {each.key: each for each in self.by_handle.values()}
        self.judge()
        invalid = [record is None or record.deleted for record in found]
        self.counts["invalid"] += sum(wrong and handle >= 0 for wrong, handle in zip(invalid, handles))
        return sum(invalid)

    def split(self, env: int, episode: int, step: int) -> None:
        """Make the rows of an episode after one of its steps an episode of their own."""

        def moved(key: Key) -> Key:
            if key[0] != env or key[1:] <= (episode, step):
                return key
            return (env, episode + 1, key[2] - step - 1) if key[1] == episode else (env, key[1] + 1, key[2])

        for record in self.by_handle.values():
            record.key = moved(record.key)
        self.next_keys = [moved(key) for key in self.next_keys]
        lasts = [moved((*key, length - 1)) for key, length in self.lengths.items()]
        self.lengths = {last[:2]: last[2] + 1 for last in lasts} | {(env, episode): step + 1}

    def end_episodes(self, final: bool = False) -> int:
        """End the running episodes at the newest row of each environment, as `end` does; return their number.

        `final` says that the next observation of these rows is needed, and not known.
        """
        going = [key for key in self.next_keys if key[2] > 0]
        for env, episode, step in going:
            record = self.stored[env, episode, step - 1]
            record.end, record.final, record.open = True, final, final
            self.lengths[env, episode] = step
            self.next_keys[env] = (env, episode + 1, 0)
        self.judge()
        return len(going)

    def state(self) -> dict[str, Any]:
        records = self.records
        flags = [record.end + 2 * record.final + 4 * record.deleted + 8 * record.open for record in records]
        return super().state() | {"steps": [record.key[2] for record in self.records], "flags": flags}

    # The content of samples.

    def window(self, handle: int, first: int, length: int) -> list[Any]:
        """Return the rows at consecutive steps of an episode, ``None`` if there is none."""
        start = self.record_of(handle)
        assert start is not None
        records = [self.at(start.key, offset) for offset in range(first, first + length)]
        return [None if r is None else self.slots[(r.serial - self.base) % self.capacity] for r in records]

    def windows(self, handles: Sequence[int], first: int, length: int) -> tuple[np.ndarray, ...]:
        """Return the mask ``[B, T]``, and each column ``[B, T, *F]`` with zeros elsewhere."""
        rows = [self.window(handle, first, length) for handle in handles]
        mask = np.array([[row is not None for row in window] for window in rows])
        zeros = tuple(np.zeros_like(part) for part in next(row for window in rows for row in window if row is not None))
        columns = zip(*((row or zeros) for window in rows for row in window))
        return mask, *(np.stack(c).reshape(*mask.shape, *c[0].shape) for c in columns)


class PrioritizedWindowsTwin(WindowsTwin, PrioritizedTwin):
    """A buffer of rows in time, drawn by priority, with the arguments of `PrioritizedReplayBuffer`."""


class Views(NamedTuple):
    """The views of a buffer that samples single rows, whose columns begin with an observation.

    Args:
        n (int): Steps of an n-step return; 0 for none.
        gamma (float): Its discount.
        frames (int): Frames of a stack; 0 for none.
        own_next (bool): True if a column holds the next observation.
    """

    n: int = 0
    gamma: float = 1.0
    frames: int = 0
    own_next: bool = False

    @property
    def needs_next(self) -> bool:
        """Return True if the next observation is that of the next row."""
        return not self.own_next and (self.n or self.frames) > 0

    def rule(self) -> Rule:
        """Return the rule: rows without an own next observation need the next row, unless they are the last."""
        return Rule(length=2 if self.needs_next else 1, before=max(self.frames - 1, 0), pad_end=True)


class Row(NamedTuple):
    """A row of the tests of views."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_observation: Any = None


def chain_of(twin: WindowsTwin, start: StepRecord, views: Views) -> list[StepRecord]:
    """Return the steps of an n-step return: transitions of one episode with a next observation."""
    chain = [start]
    while len(chain) < views.n and not chain[-1].end:
        following = twin.at(chain[-1].key, 1)
        if following is None or following.final:
            break
        if not views.own_next and not following.end and twin.at(following.key, 1) is None:
            break
        chain.append(following)
    return chain


def sample_of(twin: WindowsTwin, handle: int, views: Views) -> dict[str, Any]:
    """Return the fields of the sample that starts at a row, by name."""
    start = twin.record_of(handle)
    assert start is not None
    chain = chain_of(twin, start, views)
    rows = [twin.slots[(record.serial - twin.base) % twin.capacity] for record in chain]
    fields = rows[0]._asdict()
    if not views.own_next:
        del fields["next_observation"]
    zeros = np.zeros_like(rows[0].observation)

    def frames(last: int) -> np.ndarray:
        window = twin.window(handle, last - max(views.frames, 1) + 1, max(views.frames, 1))
        stack = np.stack([zeros if row is None else row.observation for row in window])
        return stack if views.frames else stack[0]

    fields["observation"] = frames(0)
    fields["next_observation"] = rows[-1].next_observation if views.own_next else frames(len(chain))
    if views.n:
        terms = [row.reward.astype(np.float64) * views.gamma**i for i, row in enumerate(rows)]
        fields["reward"] = np.sum(terms, 0).astype(rows[0].reward.dtype)
        fields["terminated"], fields["truncated"] = rows[-1].terminated, rows[-1].truncated
        fields["discount"] = np.float32(0 if rows[-1].terminated else views.gamma ** len(chain))
    return fields


def steps_of(
    twin: WindowsTwin, handle: int, views: Views, first: int, length: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the mask and the fields of a sequence with n-step returns: each step is a sample of its own, or zeros."""
    start = twin.record_of(handle)
    assert start is not None
    steps = [twin.at(start.key, offset) for offset in range(first, first + length)]
    given = [step is not None and is_transition(twin, step, views) for step in steps]
    samples = [sample_of(twin, step.serial, views) if step and there else None for step, there in zip(steps, given)]
    blank = {name: np.zeros_like(value) for name, value in sample_of(twin, handle, views).items()}
    return np.array(given), {name: np.stack([(sample or blank)[name] for sample in samples]) for name in blank}


def is_transition(twin: WindowsTwin, record: StepRecord, views: Views) -> bool:
    """Return True if a row holds a step of its environment whose next observation is known."""
    return not record.final and (views.own_next or record.end or twin.at(record.key, 1) is not None)
