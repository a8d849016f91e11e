"""The slow twin of buffers of every class whose rows differ in length: all rows ever inserted, in a list."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from reference import Record, ReferenceBuffer, Rule, below, draw_rows, random_bits
from reference_epochs import EpochTwin

Row = dict[str, Any]

#: Options that `ReferenceBuffer` has by the same names.
_PLAIN = ("seed", "num_envs", "replace", "ordered", "max_use", "max_staleness", "alpha", "beta", "beta_steps")
_PLAIN = (*_PLAIN, "epsilon", "normalize", "initial_priority", "default_priority")


def least_items(rows: int, longest: int) -> int:
    """Return the memory in which so many rows fit wherever the first begins."""
    return rows * longest + (longest - 1 if rows > 1 else 0)


class LengthsTwin(ReferenceBuffer):
    """A buffer whose rows have items.

    Items are on tapes, one for each kind of lengths. A row needs a whole place on a round of its tape, and rows whose
    items lie further back than the memory for items are lost.

    Args:
        cls_name (str): Name of the class.
        draws (int), capacity (int): As for the buffer.
        lengths (dict): By kind of lengths, the first of its columns and the memory for items.
        options (dict): Arguments of the class.
    """

    def __init__(self, cls_name: str, draws: int, capacity: int, lengths: dict[str, int], options: dict[str, Any]):
        is_queue, in_epochs = cls_name == "ReplayQueue", cls_name == "EpochReplayBuffer"
        steps, longest = options.get("sequence_length"), options.get("max_episode_length")
        rule = Rule(longest, whole=True) if longest else None
        if steps:
            stride = options.get("stride") or (1 if cls_name == "SequenceReplayBuffer" else steps)
            pads = options.get("pad_end", False)
            rule = Rule(steps, options.get("burn_in", 0), stride, pads, pad_open=pads and in_epochs)
        given = {key: options[key] for key in _PLAIN if key in options} | ({"max_use": 1} if is_queue else {})
        by_priority = cls_name == "PrioritizedReplayBuffer" or options.get("prioritized", False)
        window = options.get("window", capacity) if cls_name == "ElasticReplayBuffer" else None
        super().__init__(draws, capacity, prioritized=by_priority, rule=rule, window=window, **given)
        self.items, self.late = lengths, set(options.get("late", ()))
        self.own_draws, self.longest = draws, options.get("max_length", 1)
        self.newest_first = options.get("order") == "lifo"
        self.in_turn, self.blocks = is_queue, is_queue and options.get("when_full", "block") == "block"
        shares = {key: options[key] for key in ("rank", "world") if key in options}
        self.epochs = EpochTwin(draws, options.get("last") == "pad", **shares) if in_epochs else None
        #: The content of all rows, and the offset of their items on each tape, by serial number.
        self.content: list[Row] = []
        self.starts: dict[str, list[int]] = {name: [] for name in lengths}

    @property
    def present(self) -> range:
        """The serial numbers of the rows stored."""
        return range(self.inserted - self.size, self.inserted)

    # Rows in.

    def places(self, name: str, lengths: Sequence[int]) -> tuple[list[int], int]:
        """Return the offsets of new rows on a tape, and its end after them."""
        size, tail = self.items[name], 0
        if self.size:
            tail = self.starts[name][-1] + len(self.content[-1][name])
        for end in (tail, -(-tail // size) * size):  # if there is too little room in all, on a new round
            offsets = []
            for n in lengths:
                end += size - end % size if end % size + n > size else 0
                offsets.append(end)
                end += n
            if end - tail <= size:
                break
        return offsets, end

    def lost(self, rows: Sequence[Row]) -> int:
        """Return how many of the stored rows lose their items to new ones."""
        lost = 0
        for name, size in self.items.items():
            _, end = self.places(name, [len(row[name]) for row in rows])
            lost = max(lost, sum(self.starts[name][serial] < end - size for serial in self.present))
        return lost

    def has_room(self, rows: Sequence[Row]) -> bool:
        """Return True if rows can be inserted: of a queue that blocks, without losing one not yet delivered."""
        if not self.blocks:
            return True
        free = self.unneeded()
        return len(rows) <= self.capacity - self.size + free and self.lost(rows) <= free

    def is_full(self, longest: Row) -> bool:
        """Return True if another row, one of the longest, would take the place of a row that is kept."""
        free = self.unneeded() if self.blocks else 0
        return self.size - free >= self.capacity or self.lost([longest]) > free

    def unneeded(self) -> int:
        """Return how many of the oldest rows no sample will hold."""
        waiting = [serial for serial in self.present if self.is_waiting(self.record(serial))]
        reach = (self.rule.length - 1) * self.num_envs
        needed = [self.record(serial).serial for serial in self.present if self.record(serial).weight > 0]
        needed += [waiting[0] - reach] if waiting else []
        needed += [self.inserted - reach] if self.has_episodes else []
        past = self.rule.before * self.num_envs
        return max(min(needed, default=self.inserted) - past - self.present.start, 0)

    def insert_rows(self, rows: Sequence[Row], **given: Any) -> None:
        """Append rows, with arguments as for `insert`."""
        lost, before = self.lost(rows), self.present.start
        for name in self.items:
            self.starts[name] += self.places(name, [len(row[name]) for row in rows])[0]
        first = self.inserted
        self.content += [row | {name: np.zeros_like(row[name]) for name in self.late} for row in rows]
        self.insert([None] * len(rows), **given, judge=False)
        self.kept = max(self.kept, before + lost)
        for serial in self.present[max(first - self.present.start, 0) :]:
            record = self.record(serial)
            record.missing = set() if record.final else set(self.late)
        self.judge()

    def record(self, serial: int) -> Record:
        """Return the state of a stored row."""
        return self.records[(serial - self.base) % self.capacity]

    def record_of(self, handle: int) -> Record | None:
        """Return the state of a row, if it is stored."""
        return self.record(handle) if handle in self.present else None

    def is_waiting(self, record: Record) -> bool:
        """Return True if a row waits for late columns."""
        return bool(record.missing) and not record.removed

    # Who may be drawn.

    def judge(self) -> None:
        """Set the weight of each row that a sample may start at, zero for the others."""
        if self.has_episodes:
            super().judge()
            return
        for record in map(self.record, self.present):
            free = not record.removed and not record.missing
            record.weight = self.weight_of(record.priority) if free else 0.0

    def at(self, key: Any, offset: int) -> Record | None:
        """Return the row `offset` steps after another of an episode, if it is stored, complete and not deleted."""
        record = super().at(key, offset)
        return None if record is None or record.missing else record

    def may_start(self, record: Record) -> bool:
        return not record.missing and super().may_start(record)

    def update(self, handles: Sequence[int], priorities: Any) -> int:
        """Set priorities, the last one for a row; return the number of invalid handles."""
        invalid = super().update(handles, priorities)
        self.judge()
        return invalid

    def deliverable(self) -> int:
        """Return the number of samples that can be drawn now."""
        eligible = [self.records[slot].serial for slot in self.eligible()]
        waiting = [serial for serial in self.present if self.is_waiting(self.record(serial))]
        if not (self.blocks and waiting and not self.newest_first):
            return len(eligible)
        before = sum(serial < waiting[0] for serial in eligible)
        delivered = {*range(waiting[0], self.inserted)} - {*eligible, *waiting}  # they keep places and items
        places = 0 if self.has_episodes else self.capacity - len(delivered) - 2 * self.own_draws
        for name, size in self.items.items():
            kept = sum(len(self.content[serial][name]) for serial in delivered)
            needed = least_items(2 * self.own_draws, self.longest)
            places = min(places, (size - kept - needed) // self.longest)
        return before + max(min(len(eligible) - before, places), 0)

    def can_sample(self) -> bool:
        return self.can_draw() if self.in_turn or self.epochs is not None else super().can_sample()

    def can_draw(self, sample_range: Any = (None, None)) -> bool:
        if self.epochs is not None:
            return len(self.eligible()) >= (1 if self.epochs.pad else self.draws * self.epochs.world)
        return self.deliverable() >= self.draws if self.in_turn else super().can_draw(sample_range)

    # Draws.

    def draw(self, sample_range: Any = (None, None), max_items: int | None = None) -> list[int]:
        """Return the slots of a sample. Only a queue's can be bounded."""
        if self.epochs is not None:
            key, valid = random_bits(self.key, self.counter), {self.records[slot].serial for slot in self.eligible()}
            batch = self.epochs.batch(key, list(self.present), valid)
            assert batch is not None
            self.counter += self.draws
            return [(serial - self.base) % self.capacity for serial in batch]
        if not self.in_turn:
            return super().draw(sample_range)
        slots = sorted(self.eligible(), key=lambda slot: self.records[slot].serial, reverse=self.newest_first)
        slots = slots[: self.draws]
        if max_items is not None:
            slots = slots[: self.fitting(slots, max_items)]
        self.counter += len(slots)
        return slots

    def fitting(self, slots: Sequence[int], most: int) -> int:
        """Return how many of the first rows have at most so many items of each kind together."""
        lengths = [[len(self.content[self.records[slot].serial][name]) for slot in slots] for name in self.items]
        return min(int((np.cumsum(one) <= most).sum()) for one in lengths)

    def sample_handles(self, *given: Any) -> tuple[list[int], list[float]]:
        """Draw a sample; return its handles, and the importance weights if rows are drawn by priority."""
        slots = self.draw(*given)
        return self.delivered(slots)

    def delivered(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """Deliver drawn rows, as `sample_handles` does."""
        importance = self.importance(slots) if self.prioritized else []
        self.deliver(slots)
        return [self.records[slot].serial for slot in slots], importance

    def cut(self, more: Sequence[int]) -> list[int]:
        """Return the first items of drawn rows that have so many items more than a sample holds."""
        key = ~self.key & (1 << 64) - 1
        starts = [random_bits(key, self.counter + i) % (n + 1) for i, n in enumerate(more)]
        self.counter += len(more)
        return starts

    def windows_of(self, handles: Sequence[int]) -> list[list[int | None]]:
        """Return the serial numbers of the rows of each sample, ``None`` where there is no row."""
        if not self.has_episodes:
            return [[handle] for handle in handles]
        steps = range(-self.rule.before, self.rule.length)
        found = [[self.at(self.record(handle).key, offset) for offset in steps] for handle in handles]
        return [[None if record is None else record.serial for record in one] for one in found]

    def groups(self, key: str) -> list[list[int]]:
        """Return the rows of whole episodes, by the value of a column."""
        rows: dict[int, list[int]] = {}
        for serial in self.present:
            env, episode, _ = self.record(serial).key
            first = self.stored.get((env, episode, 0))
            if first is not None and first.weight > 0:
                rows.setdefault(int(self.content[serial][key]), []).append(serial)
        return [rows[value] for value in sorted(rows)]

    def sample_groups(self, key: str, n: int, size: int, ordered: bool) -> list[list[int]]:
        """Draw groups of rows."""
        groups, batch = self.groups(key), []
        ranks = draw_rows(self.key, self.counter, range(len(groups)), n, False)
        self.counter += n
        for g, rank in enumerate(ranks):
            rows, most = groups[rank], min(size, len(groups[rank]))
            if ordered:
                first = below(random_bits(self.key, self.counter + g), len(rows) - most + 1)
                batch.append(rows[first : first + most])
            else:
                places = draw_rows(self.key, self.counter + g * size, range(len(rows)), most, False)
                batch.append([rows[place] for place in places])
        self.counter += n if ordered else n * size
        return batch

    # Changes.

    def write(self, handles: Sequence[int], rows: Sequence[Row]) -> int:
        """Write columns of rows, the last values for a row; return the number of invalid handles."""
        invalid = 0
        for handle, row in zip(handles, rows, strict=True):
            record = self.record_of(handle)
            if record is None or self.is_gone(record):
                invalid += 1
                self.counts["invalid"] += handle >= 0
                continue
            self.content[handle] |= row
            record.missing -= row.keys()
        self.judge()
        return invalid

    def fit(self, capacity: int, items: dict[str, int], starts: dict[str, list[int]]) -> None:
        """Move the newest rows that fit into a buffer of other sizes, in which their items are at these offsets."""
        records = [copy.copy(self.record(serial)) for serial in self.present][-capacity:]
        while any(sum(len(self.content[r.serial][name]) for r in records) > size for name, size in items.items()):
            del records[0]
        self.base = self.present.start if capacity > self.capacity else self.base  # rows lost before leave no gap
        self.kept = self.inserted - len(records)
        if self.window is not None:
            self.window = capacity if self.window == self.capacity else min(self.window, capacity)
        if self.epochs is not None and self.epochs.size > capacity:
            self.epochs.left = []
        self.capacity, self.items = capacity, items
        self.records, self.slots = [Record() for _ in range(capacity)], [None] * capacity
        for record in records:
            self.records[(record.serial - self.base) % capacity] = record
        for name, offsets in starts.items():
            self.starts[name][self.present.start :] = offsets
        self.judge()
