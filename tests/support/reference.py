"""The slow twin of a buffer, in the plainest form: a record per slot, linear scans, Python numbers, one row at a time.

Rows that know their episode follow the docs alone: after each operation every stored row is judged anew, step by step,
by the stored rows of its episode.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """SplitMix64's mixing function, on Python ints."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def signed(value: int) -> int:
    """Return the int64 with these 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def initial_key(seed: int) -> int:
    """Return the key of a seed: SplitMix64's first number for it."""
    return mix((seed + _GAMMA) & _MASK)


def random_bits(key: int, counter: int) -> int:
    """Return number `counter` of the sequence `key`, unsigned."""
    return mix((key + (counter + 1) * _GAMMA) & _MASK)


def below(bits: int, n: int) -> int:
    """Map 64 unsigned bits to ``[0, n)``."""
    return bits * n // 2**64


def draw_rows(key: int, counter: int, rows: range, draws: int, replace: bool) -> list[int]:
    """Draw `draws` members of `rows`: independent, or by a Fisher-Yates shuffle that stores only moved cells."""
    cells: dict[int, int] = {}
    drawn = []
    for i in range(draws):
        bits = random_bits(key, counter + i)
        if replace:
            drawn.append(rows[below(bits, len(rows))])
            continue
        j = i + below(bits, len(rows) - i)
        drawn.append(rows[cells.get(j, j)])
        cells[j] = cells.get(i, i)
    return drawn


Range = tuple[int | None, int | None]
#: Environment, episode, step in the episode.
Key = tuple[int, int, int]


class Record:
    """The state of the row in a slot."""

    def __init__(self) -> None:
        self.serial = -1
        self.priority = 0.0
        self.uses = self.inserted_at = 0
        self.weight = 0.0
        self.key: Key = (-1, -1, 0)
        self.removed = self.deleted = self.end = self.final = self.legal = self.open = False
        self.missing: set[str] = set()  # late columns that are not written yet


def draw_slot(weights: Sequence[float], target: float) -> int:
    """Return the first place whose prefix sum, itself included, reaches the target."""
    cumulative = 0.0
    for place, weight in enumerate(weights):
        cumulative += weight
        if target <= cumulative:
            return place
    raise ValueError(target)


class Rule(NamedTuple):
    """The extent of a sample.

    Args:
        length (int): Steps from the start on.
        before (int): Steps before the start: the burn-in and the frames of a stack.
        stride (int): Period of starts in an episode.
        pad_end (bool): True if a window may extend beyond the end of its episode.
        pad_open (bool): True if it may also extend beyond the newest row.
        whole (bool): True if only whole episodes are drawn, of at most `length` steps.
    """

    length: int = 1
    before: int = 0
    stride: int = 1
    pad_end: bool = False
    whole: bool = False
    pad_open: bool = False


class ReferenceBuffer:
    """A buffer of any kind.

    Args:
        draws (int): Rows of a sample.
        capacity (int): Maximum number of rows.
        seed (int): Start of the random sequence.
        prioritized (bool): True if rows are drawn by priority, with `alpha` to `default_priority` as for the buffer.
        rule (Rule): The extent of a sample, if rows know their episode.
        num_envs (int): Environments that write in lockstep.
        needs_next (bool): True if samples hold the next observation, which is that of the next row.
        window (int): The newest rows to draw from, of an elastic buffer.
        reservoir (bool): True if a row takes the place that a reservoir gives it.
        replace (bool), ordered (bool), max_use (int), max_staleness (int): As for the buffer.
    """

    def __init__(
        self,
        draws: int,
        capacity: int,
        *,
        seed: int = 0,
        prioritized: bool = False,
        rule: Rule | None = None,
        num_envs: int = 1,
        needs_next: bool = False,
        window: int | None = None,
        reservoir: bool = False,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        initial_priority: float = 1.0,
        default_priority: str = "largest",
    ) -> None:
        self.draws, self.capacity, self.replace, self.ordered = draws, capacity, replace, ordered
        self.prioritized, self.reservoir, self.window = prioritized, reservoir, window
        self.rule, self.num_envs, self.needs_next = rule or Rule(), num_envs, needs_next
        self.has_episodes = rule is not None
        self.max_use, self.max_staleness = max_use, max_staleness
        self.alpha, self.epsilon = (alpha, epsilon) if prioritized else (1.0, 0.0)
        self.first_beta, self.beta_steps, self.normalize = beta, beta_steps, normalize
        self.initial_priority = float(np.float32(initial_priority))
        self.largest_held = default_priority == "largest_held"
        self.slots: list[Any] = [None] * capacity
        self.inserted = self.base = self.counter = 0
        self.kept = 0  # the oldest row that has not lost its items to newer ones
        self.key = initial_key(seed)
        self.counts = dict.fromkeys(("drawn", "used_up", "stale", "deleted", "invalid"), 0)
        self.forget()

    def forget(self) -> None:
        """Clear the state of all slots."""
        self.records = [Record() for _ in range(self.capacity)]
        self.now = self.unordered = 0
        self.fresh = self.inserted
        self.max_priority = self.initial_priority
        self.beta = self.first_beta
        self.next_keys: list[Key] = [(env, 0, 0) for env in range(self.num_envs)]
        self.lengths: dict[tuple[int, int], int] = {}  # steps of each finished episode
        self.stored: dict[Key, Record] = {}
        self.by_handle: dict[int, Record] = {}

    def reset(self) -> None:
        """Remove all rows."""
        self.base = self.inserted
        self.forget()

    # The ring.

    @property
    def size(self) -> int:
        return min(self.inserted - (self.base if self.reservoir else max(self.base, self.kept)), self.capacity)

    @property
    def head(self) -> int:
        return 0 if self.reservoir else (self.inserted - self.size - self.base) % self.capacity

    @property
    def serials(self) -> list[int]:
        return [self.inserted, self.base]

    @property
    def random_state(self) -> list[int]:
        return [signed(self.key), self.counter]

    @property
    def rows(self) -> list[Any]:
        """The stored rows, oldest first."""
        return [self.slots[slot] for slot in self.order()]

    def order(self) -> list[int]:
        """Return the slots of the stored rows, oldest first."""
        return [(self.head + i) % self.capacity for i in range(self.size)]

    def get_item(self, index: int) -> Any:
        """Return the row at a logical position."""
        if not -self.size <= index < self.size:
            raise IndexError(index)
        return self.rows[index]

    def place(self, serial: int) -> int:
        """Return the slot of a new row; a value of at least the capacity means none."""
        earlier = serial - self.base
        if not self.reservoir:
            return earlier % self.capacity
        unit = ((random_bits(mix(self.key), serial) >> 11) + 1) * 2.0**-53
        return earlier if earlier < self.capacity else math.ceil(unit * (earlier + 1)) - 1

    def insert(
        self,
        rows: Sequence[Any],
        priority: Any = None,
        version: Any = None,
        ends: Any = None,
        finals: Any = None,
        judge: bool = True,
        terminated: Any = None,
    ) -> None:
        """Append rows, one by one, with one priority and version for all, or one for each.

        Flags are one for each; a final row is also an end. Without `judge` the caller has to judge later.
        """
        before = [self.newest(env) for env in range(self.num_envs)]
        if self.largest_held and priority is None and len(rows):
            stored = (self.records[slot] for slot in self.order())
            held = [record.priority for record in stored if not record.removed]
            self.max_priority = max(held, default=self.initial_priority)
        priorities = np.broadcast_to(np.float32(self.max_priority if priority is None else priority), len(rows))
        versions = np.broadcast_to(self.now if version is None else version, len(rows))
        for i, (row, value, made) in enumerate(zip(rows, priorities.tolist(), versions.tolist(), strict=True)):
            record, slot = Record(), self.place(self.inserted)
            record.serial, record.inserted_at = self.inserted, made
            record.priority, record.weight = value, self.weight_of(value)
            if slot < self.capacity:
                self.slots[slot], self.records[slot] = row, record
            self.inserted += 1
            self.max_priority = max(self.max_priority, value)
            self.unordered = self.inserted if made < self.now else self.unordered
            if self.has_episodes:
                env, flags = i % self.num_envs, [each is not None and bool(each[i]) for each in (ends, finals)]
                self.append(record, env, before[env], *flags, None if terminated is None else bool(terminated[i]))
                before[env] = record
        if version is not None and not self.reservoir:
            self.advance(0)
        if self.has_episodes and judge:
            self.judge()

    def weight_of(self, priority: float) -> float:
        return float(np.float32((float(np.float32(priority)) + self.epsilon) ** self.alpha))

    # Episodes.

    def append(
        self, record: Record, env: int, last: Record | None, end: bool, final: bool, terminated: bool | None
    ) -> None:
        """Give a new row its place in an episode."""
        record.key = key = self.key_after(env, last, final and not end)
        if last is not None and key[1] == last.key[1]:
            last.end = last.final = False
        self.flag(record, end, final, terminated)
        if record.end:
            self.lengths[key[:2]] = key[2] + 1
        self.next_keys[env] = (env, key[1] + 1, 0) if record.end else (env, key[1], key[2] + 1)

    def fits(self, ends: Sequence[bool], finals: Any = None, terminated: Any = None) -> bool:
        """Return True if rows with these flags make no episode too long."""
        newest = [self.newest(env) for env in range(self.num_envs)]
        for i in range(len(ends)):
            env = i % self.num_envs
            final = finals is not None and bool(finals[i])
            key = self.key_after(env, newest[env], final and not ends[i])
            record = Record()
            record.key = key
            self.flag(record, bool(ends[i]), final, None if terminated is None else bool(terminated[i]))
            if self.rule.whole and key[2] >= self.rule.length:
                return False
            newest[env] = record
        return True

    def newest(self, env: int) -> Record | None:
        """Return the state of the newest row of an environment, if it is stored."""
        serial = self.inserted - self.num_envs + env
        return None if serial < self.inserted - self.size else self.records[(serial - self.base) % self.capacity]

    def key_after(self, env: int, before: Record | None, follows: bool) -> Key:
        """Return the key of a new row, from the row before it; whether it is only the observation after that."""
        if before is None:
            return self.next_keys[env]
        _, episode, step = before.key
        goes_on = not before.end or (before.open and follows)
        return (env, episode, step + 1) if goes_on else (env, episode + 1, 0)

    def flag(self, record: Record, end: bool, final: bool, terminated: bool | None) -> None:
        """Set the flags of a row by what is said of it, ``None`` if no column says whether it has terminated."""
        unknown = end and not final and terminated is False and self.needs_next
        record.open = not final and (unknown or (bool(terminated) and not end))
        record.final = final or unknown
        record.end = end or final or bool(terminated)

    def judge(self) -> None:
        """Set the weight of each row that a sample may start at, zero for the others."""
        records = [self.records[slot] for slot in self.order()]
        self.stored = {record.key: record for record in records}
        self.by_handle = {record.serial: record for record in records}
        for record in self.stored.values():
            record.legal = self.may_start(record)
            record.weight = self.weight_of(record.priority) if record.legal else 0.0

    def at(self, key: Key, offset: int) -> Record | None:
        """Return the row `offset` steps after another of the same episode, if it is stored and not deleted."""
        record = self.stored.get((key[0], key[1], key[2] + offset))
        return None if record is None or record.deleted else record

    def may_start(self, record: Record) -> bool:
        rule, (env, episode, step) = self.rule, record.key
        if record.removed or record.final:
            return False
        length = self.lengths.get((env, episode))
        if rule.whole:
            return step == 0 and length is not None and all(self.at(record.key, i) for i in range(length))
        newest = self.newest(env)
        if rule.pad_open and length is None and newest and newest.key[1] == episode:
            length = max(newest.key[2] + 1, step + 1 + self.needs_next)  # the next observation has to be there
        for i in range(-min(rule.before, step), rule.length):
            beyond = length is not None and step + i >= length
            if not (rule.pad_end if beyond else self.at(record.key, i)):
                return False
        return step % rule.stride == 0 or (not rule.pad_end and length == step + rule.length)

    def legal(self) -> list[int]:
        """Return the handles of valid starts, oldest first."""
        return [self.records[slot].serial for slot in self.order() if self.records[slot].legal]

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

    # Rows by handle.

    def record_of(self, handle: int) -> Record | None:
        """Return the state of a row, if it is stored."""
        if self.has_episodes:
            return self.by_handle.get(handle)
        return next((self.records[slot] for slot in self.order() if self.records[slot].serial == handle), None)

    def live(self, handle: int) -> Record | None:
        """Return the state of a row that is not removed, whether a sample may start there yet or not."""
        record = self.record_of(handle)
        return None if record is None or record.removed else record

    def is_gone(self, record: Record) -> bool:
        """Return True if a row cannot be deleted; a used up row of an episode can, since samples may hold it."""
        return record.deleted if self.has_episodes else record.removed

    def remove(self, record: Record, reason: str) -> None:
        """Delete a row, or remove a stale one."""
        self.counts[reason] += not self.is_gone(record)
        record.removed, record.deleted, record.weight = True, True, 0.0

    def delete(self, handles: Sequence[int]) -> int:
        """Delete rows; return the number of rows not deleted before."""
        found = {handle: self.record_of(handle) for handle in handles}
        alive = {h: record for h, record in found.items() if record is not None and not self.is_gone(record)}
        self.counts["invalid"] += sum(handle >= 0 and handle not in alive for handle in handles)
        for record in alive.values():
            self.remove(record, "deleted")
        if self.has_episodes:
            self.judge()
        return len(alive)

    def update(self, handles: Sequence[int], priorities: Any) -> int:
        """Set priorities, the last one for a row; return the number of invalid handles."""
        invalid = 0
        for handle, value in zip(handles, np.broadcast_to(np.float32(priorities), len(handles)).tolist(), strict=True):
            record = self.live(handle)
            if record is None:
                invalid += 1
                self.counts["invalid"] += handle >= 0
                continue
            record.priority = value
            if record.legal or not self.has_episodes:
                record.weight = self.weight_of(value)
            self.max_priority = max(self.max_priority, value)
        return invalid

    def info(self, handles: Sequence[int]) -> list[tuple[float, int, int]]:
        """Return priority, use count and staleness of each row."""
        rows = [self.record_of(handle) for handle in handles]
        return [(0.0, -1, -1) if r is None else (r.priority, r.uses, self.now - r.inserted_at) for r in rows]

    # Staleness.

    def advance(self, steps: int) -> None:
        self.now += steps
        for slot in self.order():
            if self.stale(self.records[slot]):
                self.remove(self.records[slot], "stale")
        self.look_for_fresh()
        if self.has_episodes:
            self.judge()

    def look_for_fresh(self) -> None:
        """Set the serial of the oldest stored row that is not stale."""
        stored = [self.records[slot] for slot in self.order()]
        self.fresh = next((record.serial for record in stored if not self.stale(record)), self.inserted)

    def stale(self, record: Record) -> bool:
        return self.max_staleness is not None and self.now - record.inserted_at > self.max_staleness

    def oldest_fresh(self) -> int:
        """Return the serial of the oldest stored row, of those that were not stale when the clock last advanced."""
        return self.base if self.reservoir else max(self.fresh, self.inserted - self.size)

    # Draws.

    def drawable(self) -> list[int]:
        """Return the slots to draw from, oldest first."""
        return self.order() if self.window is None else self.order()[-self.window :]

    def eligible(self, sample_range: Range = (None, None)) -> list[int]:
        """Return the eligible slots of a range, in counting order."""
        slots = self.drawable()[slice(*sample_range)]
        if not self.ordered and len(slots) == self.capacity:
            slots = sorted(slots)
        return [slot for slot in slots if self.records[slot].weight > 0]

    def can_sample(self) -> bool:
        """Return True if as many rows are eligible as a sample has, or as there can be."""
        return len(self.eligible()) >= min(self.draws, self.window or self.capacity)

    def can_draw(self, sample_range: Range = (None, None)) -> bool:
        """Return True if `draw` succeeds: with replacement one row is enough."""
        return len(self.eligible(sample_range)) >= (1 if self.prioritized or self.replace else self.draws)

    def draw(self, sample_range: Range = (None, None)) -> list[int]:
        """Return the slots of a sample; advances the random sequence."""
        eligible = self.eligible(sample_range)
        if not self.can_draw(sample_range):
            raise RuntimeError(len(eligible))
        if self.prioritized:
            drawable = self.drawable()
            weights = [self.records[slot].weight if slot in drawable else 0.0 for slot in range(self.capacity)]
            slots = [draw_slot(weights, target) for target in self.targets(sum(weights))]
        else:
            ranks = draw_rows(self.key, self.counter, range(len(eligible)), self.draws, self.replace)
            slots = [eligible[rank] for rank in ranks]
        self.counter += self.draws
        return slots

    def targets(self, total: float) -> list[float]:
        """Return one point of the total weight in each stratum."""
        points = []
        for i in range(self.draws):
            u = ((random_bits(self.key, self.counter + i) >> 11) + 1) * 2.0**-53
            points.append(min((i + u) * (total / self.draws), total))
        return points

    def sample(self, sample_range: Range = (None, None)) -> tuple[Any, ...]:
        """Return handles, importance weights if rows are drawn by priority, and rows."""
        slots = self.draw(sample_range)
        importance = [self.importance(slots)] if self.prioritized else []
        self.deliver(slots)
        return [self.records[slot].serial for slot in slots], *importance, [self.slots[slot] for slot in slots]

    def importance(self, slots: Sequence[int]) -> list[float]:
        """Return the importance weights of drawn rows; advances beta."""
        drawn = [self.records[slot].weight for slot in slots]
        everywhere = [self.records[slot].weight for slot in self.drawable() if self.records[slot].weight > 0]
        smallest, exponent = min(drawn if self.normalize == "batch" else everywhere), self.beta
        if self.beta_steps:
            self.beta = min(self.beta + (1 - self.first_beta) / self.beta_steps, 1.0)
        return [float(np.float32((smallest / weight) ** exponent)) for weight in drawn]

    def deliver(self, slots: Sequence[int]) -> None:
        """Count deliveries and remove rows that were used up."""
        for slot in slots:
            self.records[slot].uses += 1
            self.counts["drawn"] += 1
        for record in (self.records[slot] for slot in slots):
            if self.max_use is not None and record.uses >= self.max_use:
                self.counts["used_up"] += not record.removed
                record.removed, record.weight = True, 0.0
        if self.has_episodes:
            self.judge()

    def state(self) -> dict[str, Any]:
        """Return the Parameters of the rows, by name; the leaves stand for the tree."""
        records = self.records
        flags = [record.end + 2 * record.final + 4 * record.deleted + 8 * record.open for record in records]
        episodes = {"steps": [record.key[2] for record in records], "flags": flags} if self.has_episodes else {}
        return {
            "leaves": [record.weight for record in records],
            "priorities": [record.priority for record in records],
            "max_priority": self.max_priority,
            "use_counts": [~record.uses if record.removed else record.uses for record in records],
            "insertion_clocks": [record.inserted_at for record in records],
            "clock": [self.now, self.oldest_fresh(), self.unordered],
            "counts": list(self.counts.values()),
            **episodes,
            **({"beta": [self.beta]} if self.prioritized else {}),
        }

    # The content of samples.

    def window_of(self, handle: int, first: int, length: int) -> list[Any]:
        """Return the rows at consecutive steps of an episode, ``None`` if there is none."""
        start = self.record_of(handle)
        assert start is not None
        records = [self.at(start.key, offset) for offset in range(first, first + length)]
        return [None if r is None else self.slots[(r.serial - self.base) % self.capacity] for r in records]

    def windows(self, handles: Sequence[int], first: int, length: int) -> tuple[np.ndarray, ...]:
        """Return the mask ``[B, T]``, and each column ``[B, T, *F]`` with zeros elsewhere."""
        rows = [self.window_of(handle, first, length) for handle in handles]
        mask = np.array([[row is not None for row in window] for window in rows])
        zeros = tuple(np.zeros_like(part) for part in next(row for window in rows for row in window if row is not None))
        columns = zip(*((row or zeros) for window in rows for row in window))
        return mask, *(np.stack(c).reshape(*mask.shape, *c[0].shape) for c in columns)


def stack(rows: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Return rows ``[*F]`` as columns ``[n, *F]``."""
    return tuple(np.stack(column) for column in zip(*rows, strict=True))
