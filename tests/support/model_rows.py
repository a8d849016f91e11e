"""The records of the slow twin: how rows come, follow each other, change and go, one after the other."""

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from randomness import initial_key, mix, random_bits, signed, unit


@dataclasses.dataclass(eq=False)
class Record:
    """A row, and what is known of it."""

    serial: int = -1
    row: Any = None
    priority: float = 0.0
    inserted_at: int = 0  # the clock then, or the version given
    uses: int = 0
    removed: bool = False  # used up, stale or deleted: no sample starts here
    deleted: bool = False  # stale or deleted: no sample of an episode holds it
    episode: int = -1
    step: int = 0
    end: bool = False  # the last of its episode
    final: bool = False  # only an observation
    open: bool = False  # an end that a final row may follow
    missing: set[str] = dataclasses.field(default_factory=set)  # late columns that are not written yet
    offsets: dict[str, int] = dataclasses.field(default_factory=dict)  # of its items, by kind of lengths


class Views(NamedTuple):
    """The views of a buffer whose columns begin with an observation.

    Args:
        n (int): Steps of an n-step return; 0 for none.
        gamma (float): Its discount.
        frames (int): Frames of a stack; 0 for none.
        own_next (bool): True if a column holds the next observation.
        terminated (bool): True if a column says whether a row has terminated, which may be written later.
        goals (str): The strategy of hindsight; empty for none.
    """

    n: int = 0
    gamma: float = 1.0
    frames: int = 0
    own_next: bool = False
    terminated: bool = True
    goals: str = ""

    @property
    def needs_next(self) -> bool:
        """Return True if the next observation is that of the next row."""
        return not self.own_next and (self.n or self.frames) > 0


#: How many samples get another goal, and how near to it its reward is 0.
RATIO, TOLERANCE = 0.8, 2.0
#: Options of buffers that choose no rows: columns, what is shown of rows, and where they are.
CHOOSE_NO_ROWS = {"shapes", "types", "names", "share_lengths", "sample_length", "cut", "compress"}
CHOOSE_NO_ROWS |= {"weighted", "timeout", "storage", "backend"}


class Rows:
    """The rows of a buffer of any class, made by the arguments of its constructor.

    Args:
        cls (Union[str, type]): The class, or its name.
        draws (int): Rows of a sample.
        capacity (int): Maximum number of rows.
        views (Views): The views; `None` for none.
        items (dict): Memory for items, by kind of lengths, of rows of any length.
        others: As for the buffer; `CHOOSE_NO_ROWS` are ignored.
    """

    def __init__(
        self,
        cls: Any,
        draws: int,
        capacity: int,
        *,
        seed: int = 0,
        num_envs: int = 1,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        late: Sequence[str] = (),
        views: Views | None = None,
        prioritized: bool = False,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        initial_priority: float = 1.0,
        default_priority: str = "largest",
        sequence_length: int | None = None,
        burn_in: int = 0,
        stride: int | None = None,
        pad_end: bool = False,
        max_episode_length: int | None = None,
        window: int | None = None,
        order: str = "fifo",
        when_full: str = "block",
        last: str = "drop",
        rank: int = 0,
        world: int = 1,
        items: dict[str, int] | None = None,
        max_length: int = 1,
        **others: Any,
    ) -> None:
        assert others.keys() <= CHOOSE_NO_ROWS, others
        name = cls if isinstance(cls, str) else cls.__name__
        self.draws, self.own_draws, self.capacity, self.num_envs = draws, draws, capacity, num_envs
        self.replace, self.ordered, self.late = replace, ordered, set(late)
        self.prioritized = prioritized or name == "PrioritizedReplayBuffer"
        self.alpha, self.epsilon = (alpha, epsilon) if self.prioritized else (1.0, 0.0)
        self.first_beta, self.beta_steps, self.normalize = beta, beta_steps, normalize
        self.initial_priority = float(np.float32(initial_priority))
        self.largest_held = default_priority == "largest_held"
        self.reservoir = name == "ReservoirReplayBuffer"
        self.window = (window or capacity) if name == "ElasticReplayBuffer" else None
        self.in_turn, self.newest_first = name == "ReplayQueue", order == "lifo"
        self.blocks = self.in_turn and when_full == "block"
        self.max_use, self.max_staleness = 1 if self.in_turn else max_use, max_staleness
        self.in_epochs, self.pads = name == "EpochReplayBuffer", last == "pad"
        self.rank, self.world = rank, world
        self.items, self.longest = items or {}, max_length
        # The extent of a sample: steps from its start on, and those before it.
        self.strategy = views.goals if views else ""
        self.needs_next, frames = views is not None and views.needs_next, views.frames if views else 0
        self.says_end = views is not None and views.terminated
        self.whole, self.single = max_episode_length is not None, not (sequence_length or max_episode_length)
        self.has_episodes = not self.single or views is not None
        self.length = sequence_length or max_episode_length or 1 + self.needs_next
        self.before = burn_in + max(frames - 1, 0) * (not self.whole)
        self.pad_end = pad_end or self.single
        self.pad_open = pad_end and self.in_epochs
        #: The steps that a sample shows.
        self.steps = range(-burn_in, 1 if self.single else self.length)
        self.stride = stride or (self.length if sequence_length and name != "SequenceReplayBuffer" else 1)
        self.inserted = self.base = self.counter = self.episodes = 0
        self.goals: list[Record | None] = []  # the rows that gave the samples drawn last their goals
        self.of_others = 0  # rows before this one are another process's, whose episodes are over
        self.key = initial_key(seed)
        self.counts = dict.fromkeys(("drawn", "used_up", "stale", "deleted", "invalid"), 0)
        self.reset()

    def reset(self) -> None:
        """Remove all rows. The serial counter and the random state stay."""
        self.base = self.fresh = self.inserted
        #: The rows stored, oldest first; those of a reservoir by slot.
        self.records: list[Record] = []
        self.now = self.unordered = self.epoch_size = 0
        self.left: list[int] = []  # serials of the epoch that are not drawn yet
        self.max_priority, self.beta = self.initial_priority, self.first_beta

    # The ring.

    @property
    def size(self) -> int:
        return len(self.records)

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
        return [record.row for record in self.records]

    @property
    def slots(self) -> list[Any]:
        """The row in each slot, ``None`` where none is stored."""
        rows = {self.slot(record): record.row for record in self.records}
        return [rows.get(slot) for slot in range(self.capacity)]

    def slot(self, record: Record) -> int:
        """Return the slot of a stored row."""
        if self.reservoir:
            return self.records.index(record)
        return (record.serial - self.base) % self.capacity

    def record_of(self, handle: int) -> Record | None:
        """Return a row by its handle, if it is stored."""
        if self.reservoir:
            return next((record for record in self.records if record.serial == handle), None)
        place = handle - self.inserted + self.size
        return self.records[place] if 0 <= place < self.size else None

    def get_item(self, index: int) -> Any:
        """Return the row at a logical position."""
        if not -self.size <= index < self.size:
            raise IndexError(index)
        return self.rows[index]

    # Rows in.

    def insert(
        self,
        rows: Sequence[Any],
        priority: Any = None,
        version: Any = None,
        ends: Any = None,
        finals: Any = None,
        terminated: Any = None,
    ) -> list[int]:
        """Append rows, one by one, with one priority and version for all, or one for each; return their handles.

        Flags are one for each; a final row is also an end.
        """
        newest, offsets, lost = self.newest(), self.offsets_of(rows), self.lost(rows)
        if self.largest_held and priority is None and len(rows):
            held = [record.priority for record in self.records if not record.removed]
            self.max_priority = max(held, default=self.initial_priority)
        # Rows that are lost for their items alone go last, when stale ones have gone.
        alone = self.records[max(self.size + len(rows) - self.capacity, 0) : lost]
        del self.records[:lost]
        priorities = np.broadcast_to(np.float32(self.max_priority if priority is None else priority), len(rows))
        versions = np.broadcast_to(self.now if version is None else version, len(rows)).tolist()
        for i, (row, value) in enumerate(zip(rows, priorities.tolist(), strict=True)):
            if self.late:
                row = row | {name: np.zeros_like(row[name]) for name in self.late}
            record = Record(self.inserted, row, value, versions[i])
            record.offsets = {name: places[i] for name, places in offsets.items()}
            if self.has_episodes:
                said = None if terminated is None else bool(terminated[i])
                self.append(record, newest, i % self.num_envs, *flags_of(ends, finals, i), said)
            record.missing = set() if record.final and not record.open else set(self.late)
            self.put(record)
            self.inserted += 1
            self.max_priority = max(self.max_priority, value)
            self.unordered = self.inserted if record.inserted_at < self.now else self.unordered
        if version is not None and not self.reservoir:
            self.advance(0)
            self.fresh = min([self.fresh, *(record.serial for record in alone if not self.stale(record))])
        return list(range(self.inserted - len(rows), self.inserted))

    def put(self, record: Record) -> None:
        """Store a row: behind the newest, in place of the oldest; in a reservoir, in the place drawn for it, if any."""
        if not self.reservoir:
            self.records = [*self.records, record][-self.capacity :]
        elif (place := self.place(record.serial)) < self.capacity:
            self.records[place : place + 1] = [record]

    def place(self, serial: int) -> int:
        """Return the slot of a new row of a reservoir; a value of at least the capacity means none."""
        earlier = serial - self.base
        if earlier < self.capacity:
            return earlier
        return math.ceil(unit(random_bits(mix(self.key), serial)) * (earlier + 1)) - 1

    # Rows of any length. Items are on tapes, one for each kind of lengths. A row needs a whole place on a round of its
    # tape, and rows whose items lie further back than the memory for items are lost.

    def places(self, name: str, lengths: Sequence[int]) -> tuple[list[int], int]:
        """Return the offsets of new rows on a tape, and its end after them."""
        size, tail = self.items[name], 0
        if self.records:
            tail = self.records[-1].offsets[name] + len(self.records[-1].row[name])
        for end in (tail, -(-tail // size) * size):  # if there is too little room in all, on a new round
            offsets = []
            for n in lengths:
                end += size - end % size if end % size + n > size else 0
                offsets.append(end)
                end += n
            if end - tail <= size:
                break
        return offsets, end

    def offsets_of(self, rows: Sequence[Any]) -> dict[str, list[int]]:
        return {name: self.places(name, [len(row[name]) for row in rows])[0] for name in self.items}

    def lost(self, rows: Sequence[Any]) -> int:
        """Return how many of the stored rows lose their items to new ones."""
        lost = 0
        for name, size in self.items.items():
            _, end = self.places(name, [len(row[name]) for row in rows])
            lost = max(lost, sum(record.offsets[name] < end - size for record in self.records))
        return lost

    def fit(self, capacity: int, items: dict[str, int]) -> None:
        """Move the newest rows that fit into a buffer of other sizes."""
        kept = [copy.copy(record) for record in self.records][-capacity:]
        while any(sum(len(record.row[name]) for record in kept) > size for name, size in items.items()):
            del kept[0]
        if capacity > self.capacity:
            self.base = self.inserted - self.size  # rows lost before leave no gap
        if self.window is not None:
            self.window = capacity if self.window == self.capacity else min(self.window, capacity)
        if self.epoch_size > capacity:
            self.left = []
        self.capacity, self.items, self.records = capacity, items, kept

    # Episodes.

    def newest(self) -> list[Record | None]:
        """Return the newest row of each environment, if it is stored and no other process inserted it."""
        newest = range(self.inserted - self.num_envs, self.inserted)
        return [self.record_of(serial) if serial >= self.of_others else None for serial in newest]

    def append(
        self, record: Record, newest: list[Record | None], env: int, end: bool, final: bool, terminated: bool | None
    ) -> None:
        """Give a new row its place in an episode, behind the newest row of its environment."""
        last = newest[env]
        if last is not None and (not last.end or (last.open and final and not end)):
            last.end = last.final = False
            record.episode, record.step = last.episode, last.step + 1
        else:
            self.episodes += 1
            record.episode = self.episodes
        unknown = end and not final and terminated is False and self.needs_next
        record.open = not final and (unknown or (bool(terminated) and not end))
        record.final = final or unknown
        record.end = end or final or bool(terminated)
        newest[env] = record

    def fits(self, ends: Sequence[bool], finals: Any = None, terminated: Any = None) -> bool:
        """Return True if rows with these flags make no episode too long."""
        newest: list[Record | None] = [copy.copy(record) for record in self.newest()]
        for i in range(len(ends)):
            record, said = Record(), None if terminated is None else bool(terminated[i])
            self.append(record, newest, i % self.num_envs, *flags_of(ends, finals, i), said)
            if self.whole and record.step >= self.length:
                return False
        return True

    def beside(self, record: Record, offset: int) -> Record | None:
        """Return the row `offset` steps after another of the same episode, if it is stored."""
        other = self.record_of(record.serial + offset * self.num_envs)
        return None if other is None or other.episode != record.episode else other

    def at(self, record: Record, offset: int) -> Record | None:
        """Return the same, if it is neither deleted nor waits for late columns."""
        other = self.beside(record, offset)
        return None if other is None or other.deleted or other.missing else other

    def end_episodes(self) -> int:
        """End the running episodes at the newest row of each environment, as `end` does; return their number.

        If the next observation of these rows is needed, it is not known.
        """
        going = [record for record in self.newest() if record is not None and not record.end]
        for record in going:
            record.end, record.final, record.open = True, self.needs_next, self.needs_next and self.says_end
        return len(going)

    def write_terminated(self, handles: Sequence[int], terminated: Sequence[bool]) -> int:
        """Follow an update of the column of terminations, row by row; return the number of invalid handles."""
        found = [self.record_of(handle) for handle in handles]
        for record, value in {record: value for record, value in zip(found, terminated) if record}.items():
            following = self.beside(record, 1)
            if record.deleted or (record.final and not record.open):
                continue
            if record.end:
                record.final = self.needs_next and not value
                record.open = record.open or record.final
            elif value and not (following and following.final and not following.open):
                record.end = record.open = True
                self.split(record)
        return self.invalid(handles, [record is None or record.deleted for record in found])

    def split(self, record: Record) -> None:
        """Make the rows of an episode after one of its steps an episode of their own."""
        after, self.episodes = [], self.episodes + 1
        while following := self.beside(record, len(after) + 1):
            after.append(following)
        for step, following in enumerate(after):
            following.episode, following.step = self.episodes, step

    # Changes of rows by handle. One that is not valid is skipped and counted.

    def invalid(self, handles: Sequence[int], wrong: Sequence[bool]) -> int:
        """Count invalid handles; return their number."""
        self.counts["invalid"] += sum(no and handle >= 0 for no, handle in zip(wrong, handles, strict=True))
        return sum(wrong)

    def is_gone(self, record: Record | None) -> bool:
        """Return True if a row cannot be changed; a used up row of an episode can, since samples may hold it."""
        return record is None or (record.deleted if self.has_episodes else record.removed)

    def remove(self, record: Record, reason: str) -> None:
        """Delete a row, or remove a stale one."""
        self.counts[reason] += not self.is_gone(record)
        record.removed = record.deleted = True

    def delete(self, handles: Sequence[int]) -> int:
        """Delete rows; return the number of rows not deleted before."""
        found = [self.record_of(handle) for handle in handles]
        self.invalid(handles, [self.is_gone(record) for record in found])
        alive = {record for record in found if record is not None and not self.is_gone(record)}
        for record in alive:
            self.remove(record, "deleted")
        return len(alive)

    def update(self, handles: Sequence[int], priorities: Any) -> int:
        """Set priorities, the last one for a row; return the number of invalid handles."""
        found = [self.record_of(handle) for handle in handles]
        values = np.broadcast_to(np.float32(priorities), len(handles)).tolist()
        for record, value in zip(found, values, strict=True):
            if record is not None and not record.removed:
                record.priority = value
                self.max_priority = max(self.max_priority, value)
        return self.invalid(handles, [record is None or record.removed for record in found])

    def write(self, handles: Sequence[int], rows: Sequence[dict[str, Any]]) -> int:
        """Write columns of rows, the last values for a row; return the number of invalid handles."""
        found = [self.record_of(handle) for handle in handles]
        for record, row in zip(found, rows, strict=True):
            if record is not None and not self.is_gone(record):
                record.row = record.row | row
                record.missing -= row.keys()
        return self.invalid(handles, [self.is_gone(record) for record in found])

    def info(self, handles: Sequence[int]) -> list[tuple[float, int, int]]:
        """Return priority, use count and staleness of each row."""
        rows = [self.record_of(handle) for handle in handles]
        return [(0.0, -1, -1) if r is None else (r.priority, r.uses, self.now - r.inserted_at) for r in rows]

    # Staleness.

    def advance(self, steps: int) -> None:
        """Advance the clock, and remove rows that are stale by then."""
        self.now += steps
        for record in self.records:
            if self.stale(record):
                self.remove(record, "stale")
        self.fresh = next((record.serial for record in self.records if not self.stale(record)), self.inserted)

    def stale(self, record: Record) -> bool:
        return self.max_staleness is not None and self.now - record.inserted_at > self.max_staleness

    def oldest_fresh(self) -> int:
        """Return the serial of the oldest stored row, of those that were not stale when the clock last advanced."""
        return self.base if self.reservoir else max(self.fresh, self.inserted - self.size)


def flags_of(ends: Any, finals: Any, i: int) -> list[bool]:
    """Return whether row i is an end, and whether it is final."""
    return [each is not None and bool(each[i]) for each in (ends, finals)]
