"""The slow twin of every buffer: a list of records, and a rule for each option that chooses or changes rows.

It follows the docs alone: rows come one at a time, each question is a scan of the records, numbers are Python's.
Nothing is remembered that follows from the records.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from model_rows import RATIO, Record, Rows
from randomness import below, draw_rows, draw_slot, order_of, random_bits, unit

Range = tuple[int | None, int | None]


def least_items(rows: int, longest: int) -> int:
    """Return the memory in which so many rows fit wherever the first begins."""
    return rows * longest + (longest - 1 if rows > 1 else 0)


class Model(Rows):
    """A buffer of any class, made by the arguments of its constructor: who may be drawn, and what samples hold."""

    # Who may be drawn.

    def weight(self, record: Record) -> float:
        """Return the weight of a row: that of its priority, 0 if no sample may start there."""
        return self.weight_of(record.priority) if self.may_start(record) else 0.0

    def weight_of(self, priority: float) -> float:
        return float(np.float32((float(np.float32(priority)) + self.epsilon) ** self.alpha))

    def may_start(self, record: Record) -> bool:
        """Return True if a sample may start at a row."""
        if record.removed or record.missing or record.final:
            return False
        if not self.has_episodes:
            return True
        if self.whole and record.step:
            return False
        # The steps before it, as far as its episode has them, are stored and not deleted.
        if not all(self.at(record, -i) for i in range(1, min(self.before, record.step) + 1)):
            return False
        # So are those from it on, up to the end of its episode or of the sample.
        steps, ended = 0, False
        while steps < self.length and not ended:
            step = self.at(record, steps)
            if step is None:  # where episodes may be open, the newest row is enough
                open_end = self.pad_open and self.is_newest(record, steps - 1) and steps > self.needs_next
                return open_end and self.on(record)
            steps, ended = steps + 1, step.end
        if self.whole:
            return ended
        # Without padding, a sample that reaches the end may also start off the stride.
        full = steps == self.length
        return (self.on(record) and (full or self.pad_end)) or (full and ended and not self.pad_end)

    def on(self, record: Record) -> bool:
        """Return True if a row is at a step at which sequences start."""
        return record.step % self.stride == 0

    def is_newest(self, record: Record, offset: int) -> bool:
        """Return True if the row `offset` steps after another is the newest of its environment."""
        return record.serial + offset * self.num_envs >= self.inserted - self.num_envs

    def legal(self) -> list[int]:
        """Return the handles of valid starts, oldest first."""
        return [record.serial for record in self.records if self.may_start(record)]

    def drawable(self) -> list[Record]:
        """Return the rows to draw from, oldest first."""
        return self.records if self.window is None else self.records[-self.window :]

    def eligible(self, sample_range: Range = (None, None)) -> list[Record]:
        """Return the eligible rows of a range, in counting order."""
        rows = self.drawable()[slice(*sample_range)]
        if not self.ordered and len(rows) == self.capacity:
            rows = sorted(rows, key=self.slot)
        return [record for record in rows if self.weight(record) > 0]

    def is_waiting(self, record: Record) -> bool:
        """Return True if a row waits for late columns."""
        return bool(record.missing) and not record.removed

    def can_sample(self) -> bool:
        """Return True if as many rows are eligible as a sample has, or as there can be."""
        if self.in_turn or self.in_epochs:
            return self.can_draw()
        return len(self.eligible()) >= min(self.draws, self.window or self.capacity)

    def can_draw(self, sample_range: Range = (None, None)) -> bool:
        """Return True if `draw` succeeds: with replacement one row is enough."""
        if self.in_turn:
            return self.deliverable() >= self.draws
        one, all_of_them = self.prioritized or self.replace, self.draws
        if self.in_epochs:
            one, all_of_them = self.pads, self.draws * self.world
        return len(self.eligible(sample_range)) >= (1 if one else all_of_them)

    # Room in a queue.

    def unneeded(self) -> int:
        """Return how many of the oldest rows no sample will hold."""
        waiting = [record.serial for record in self.records if self.is_waiting(record)]
        reach, past = (self.length - 1) * self.num_envs, self.before * self.num_envs
        needed = [record.serial for record in self.records if self.weight(record) > 0]
        needed += [waiting[0] - reach] if waiting else []
        needed += [self.inserted - reach] if self.has_episodes else []
        return max(min(needed, default=self.inserted) - past - (self.inserted - self.size), 0)

    def room(self) -> int:
        """Return the rows that can be inserted without losing one that may still be delivered."""
        return self.capacity - self.size + self.unneeded()

    def has_room(self, rows: Sequence[Any]) -> bool:
        """Return True if rows can be inserted: of a queue that blocks, without losing one not yet delivered."""
        return not self.blocks or (len(rows) <= self.room() and self.lost(rows) <= self.unneeded())

    def is_full(self, longest: Any) -> bool:
        """Return True if another row, one of the longest, would take the place of a row that is kept."""
        free = self.unneeded() if self.blocks else 0
        return self.size - free >= self.capacity or self.lost([longest]) > free

    def deliverable(self) -> int:
        """Return the number of samples that a queue can deliver now.

        Rows behind one that waits are passed while two samples of the longest rows would still have room.
        """
        eligible = [record.serial for record in self.eligible()]
        waiting = [record.serial for record in self.records if self.is_waiting(record)]
        if not (self.blocks and waiting and not self.newest_first):
            return len(eligible)
        before = sum(serial < waiting[0] for serial in eligible)
        delivered = {*range(waiting[0], self.inserted)} - {*eligible, *waiting}  # they keep places and items
        places = 0 if self.has_episodes else self.capacity - len(delivered) - 2 * self.own_draws
        for name, size in self.items.items():
            kept = sum(len(record.row[name]) for record in self.records if record.serial in delivered)
            needed = least_items(2 * self.own_draws, self.longest)
            places = min(places, (size - kept - needed) // self.longest)
        return before + max(min(len(eligible) - before, places), 0)

    # Draws.

    def draw(self, sample_range: Range = (None, None), max_items: int | None = None) -> list[Record]:
        """Return the rows of a sample; advances the random sequence. Only a queue's can be bounded."""
        eligible = self.eligible(sample_range)
        if not self.can_draw(sample_range):
            raise RuntimeError(len(eligible))
        if self.in_turn:
            drawn = sorted(eligible, key=lambda record: record.serial, reverse=self.newest_first)[: self.draws]
            drawn = drawn if max_items is None else drawn[: self.fitting(drawn, max_items)]
            self.counter += len(drawn)
            return drawn
        if self.in_epochs:
            drawn = self.next_of_epoch(eligible)
        elif self.prioritized:
            by_slot = {self.slot(record): record for record in self.drawable()}
            weights = [self.weight(by_slot[slot]) if slot in by_slot else 0.0 for slot in range(self.capacity)]
            drawn = [by_slot[draw_slot(weights, target)] for target in self.targets(sum(weights))]
        else:
            ranks = draw_rows(self.key, self.counter, range(len(eligible)), self.draws, self.replace)
            drawn = [eligible[rank] for rank in ranks]
        self.counter += self.draws
        self.goals = self.draw_goals(drawn) if self.strategy else []
        return drawn

    def draw_goals(self, drawn: Sequence[Record]) -> list[Record | None]:
        """Return the row whose goal each sample gets, ``None`` if it keeps its own."""
        found: list[Record | None] = []
        for i, start in enumerate(drawn, self.counter):
            sources = self.sources_of(start)
            goal = sources[below(random_bits(self.key, i + len(drawn)), len(sources))]
            keeps = unit(random_bits(self.key, i)) > RATIO or goal.deleted or goal.final
            found.append(None if keeps else goal)
        self.counter += 2 * len(drawn)
        return found

    def sources_of(self, start: Record) -> list[Record]:
        """Return the rows that may give a sample its goal."""
        same = [record for record in self.records if record.episode == start.episode and not record.final]
        sources = {"random": self.records, "episode": same, "final": same[-1:]}
        return sources.get(self.strategy) or [record for record in same if record.step >= start.step]

    def targets(self, total: float) -> list[float]:
        """Return one point of the total weight in each stratum."""
        units = [unit(random_bits(self.key, self.counter + i)) for i in range(self.draws)]
        return [min((i + u) * (total / self.draws), total) for i, u in enumerate(units)]

    def next_of_epoch(self, eligible: Sequence[Record]) -> list[Record]:
        """Return the next batch of an epoch, or the first of a new one if too few rows are left."""
        valid, full = {record.serial: record for record in eligible}, self.draws * self.world
        key, stored = random_bits(self.key, self.counter), [record.serial for record in self.records]
        for begins in (False, True):
            left = [stored[row] for row in self.order_of_epoch(key, len(stored))] if begins else self.left
            batch = [serial for serial in left if serial in valid][:full]
            if len(batch) == full or (self.pads and batch):
                self.left = left[left.index(batch[-1]) + 1 :] if len(batch) == full else []
                self.epoch_size = len(stored) if begins else self.epoch_size
                return [valid[serial] for serial in batch[self.rank :: self.world]]
        raise RuntimeError(len(eligible))

    def order_of_epoch(self, key: int, size: int) -> list[int]:
        return order_of(key, size)

    def begin_epoch(self) -> None:
        self.left = []

    def fitting(self, drawn: Sequence[Record], most: int) -> int:
        """Return how many of the first rows have at most so many items of each kind together."""
        return min(int((np.cumsum([len(one.row[name]) for one in drawn]) <= most).sum()) for name in self.items)

    def sample(self, *given: Any) -> tuple[Any, ...]:
        """Return handles, importance weights if rows are drawn by priority, and rows."""
        drawn = self.draw(*given)
        handles, importance = self.delivered(drawn)
        return handles, *([importance] if self.prioritized else []), [record.row for record in drawn]

    def delivered(self, drawn: Sequence[Record]) -> tuple[list[int], list[float]]:
        """Deliver drawn rows; return their handles, and importance weights if rows are drawn by priority."""
        importance = self.importance(drawn) if self.prioritized else []
        self.deliver(drawn)
        return [record.serial for record in drawn], importance

    def importance(self, drawn: Sequence[Record]) -> list[float]:
        """Return the importance weights of drawn rows; advances beta."""
        weights = [self.weight(record) for record in drawn]
        everywhere = [weight for record in self.drawable() if (weight := self.weight(record)) > 0]
        smallest, exponent = min(weights if self.normalize == "batch" else everywhere), self.beta
        if self.beta_steps:
            self.beta = min(self.beta + (1 - self.first_beta) / self.beta_steps, 1.0)
        return [float(np.float32((smallest / weight) ** exponent)) for weight in weights]

    def deliver(self, drawn: Sequence[Record]) -> None:
        """Count deliveries, then remove rows that were used up."""
        self.counts["drawn"] += len(drawn)
        for record in drawn:
            record.uses += 1
        for record in drawn:
            if self.max_use is not None and record.uses >= self.max_use:
                self.counts["used_up"] += not record.removed
                record.removed = True

    def cut(self, more: Sequence[int]) -> list[int]:
        """Return the first items of drawn rows that have so many items more than a sample holds."""
        key = ~self.key & (1 << 64) - 1
        starts = [random_bits(key, self.counter + i) % (n + 1) for i, n in enumerate(more)]
        self.counter += len(more)
        return starts

    def groups(self, key: str) -> list[list[Record]]:
        """Return the rows of whole episodes, by the value of a column."""
        rows: dict[int, list[Record]] = {}
        for record in self.records:
            first = self.at(record, -record.step)
            if first is not None and self.weight(first) > 0:
                rows.setdefault(int(record.row[key]), []).append(record)
        return [rows[value] for value in sorted(rows)]

    def sample_groups(self, key: str, n: int, size: int, ordered: bool) -> list[list[Record]]:
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

    # What the buffer's state must be.

    def state(self) -> dict[str, Any]:
        """Return the Parameters of the rows, by name; the leaves stand for the tree."""
        by_slot = {self.slot(record): record for record in self.records}
        records = [by_slot.get(slot, Record()) for slot in range(self.capacity)]
        held_by_none = [record.deleted or bool(record.missing) for record in records]
        flags = [r.end + 2 * r.final + 4 * no + 8 * r.open for r, no in zip(records, held_by_none)]
        episodes = {"steps": [record.step for record in records], "flags": flags} if self.has_episodes else {}
        return {
            "leaves": [self.weight(record) if record.serial >= 0 else 0.0 for record in records],
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

    def steps_of(self, handle: int, steps: range | None = None) -> list[Record | None]:
        """Return the rows of a sample, or those at other steps of its episode, ``None`` where there is none."""
        start = self.record_of(handle)
        assert start is not None
        return [self.at(start, offset) for offset in steps or self.steps]

    def window_of(self, handle: int, steps: range | None = None) -> list[Any]:
        """Return the content of the same rows."""
        return [None if record is None else record.row for record in self.steps_of(handle, steps)]


def stack(rows: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Return rows ``[*F]`` as columns ``[n, *F]``."""
    return tuple(np.stack(column) for column in zip(*rows, strict=True))
