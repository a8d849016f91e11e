"""Slow twins of the buffers with weights, in the plainest form: a record per slot, linear scans, Python floats."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from reference import ReferenceRing, draw_rows, mix, random_bits

Range = tuple[int | None, int | None]


class Record:
    """The state of the row in a slot."""

    def __init__(self) -> None:
        self.serial = -1
        self.priority = 0.0
        self.uses = 0
        self.inserted_at = 0
        self.removed = False
        self.weight = 0.0


def draw_slot(weights: Sequence[float], target: float) -> int:
    """Return the first place whose prefix sum, itself included, reaches the target."""
    cumulative = 0.0
    for place, weight in enumerate(weights):
        cumulative += weight
        if target <= cumulative:
            return place
    raise ValueError(target)


class UniformTwin(ReferenceRing):
    """`ReplayBuffer` with weights.

    Args:
        draws (int): Rows of a sample.
        capacity (int): Maximum number of rows.
        seed (int): Start of the random sequence.
        replace (bool), ordered (bool), max_use (int), max_staleness (int): As for the buffer.
    """

    alpha = 1.0
    epsilon = 0.0

    def __init__(
        self,
        draws: int,
        capacity: int,
        *,
        seed: int = 0,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
    ) -> None:
        super().__init__(capacity, seed)
        self.draws, self.replace, self.ordered = draws, replace, ordered
        self.max_use, self.max_staleness = max_use, max_staleness
        self.counts = dict.fromkeys(("drawn", "used_up", "stale", "deleted", "invalid"), 0)
        self.forget()

    def forget(self) -> None:
        """Clear the state of all slots."""
        self.records = [Record() for _ in range(self.capacity)]
        self.now = self.unordered = 0
        self.fresh = self.inserted
        self.max_priority = 1.0

    def weight_of(self, priority: float) -> float:
        return float(np.float32((float(np.float32(priority)) + self.epsilon) ** self.alpha))

    def insert(self, rows: list[Any], priority: Any = None, version: Any = None) -> None:
        """Append rows with one priority and version for all, or one for each."""
        given = np.float32(self.max_priority if priority is None else priority)
        versions = self.versions_of(rows, version)
        for row, value, made in zip(rows, np.broadcast_to(given, len(rows)).tolist(), versions, strict=True):
            record = self.records[(self.inserted - self.base) % self.capacity]
            record.serial, record.uses, record.inserted_at, record.removed = self.inserted, 0, made, False
            record.priority, record.weight = value, self.weight_of(value)
            super().insert([row])
            self.max_priority = max(self.max_priority, value)
            self.unordered = self.inserted if made < self.now else self.unordered
        if version is not None:
            self.advance(0)

    def versions_of(self, rows: list[Any], version: Any) -> list[int]:
        return np.broadcast_to(self.now if version is None else version, len(rows)).tolist()

    def reset(self) -> None:
        super().reset()
        self.forget()

    def order(self) -> list[int]:
        """Return the slots of the stored rows, oldest first."""
        return [(self.head + row) % self.capacity for row in range(self.size)]

    def record_of(self, handle: int) -> Record | None:
        """Return the state of a row, if it is stored."""
        stored = [self.records[slot] for slot in self.order()]
        return next((record for record in stored if record.serial == handle), None)

    def live(self, handle: int) -> Record | None:
        record = self.record_of(handle)
        return None if record is None or record.removed else record

    def eligible(self, sample_range: Range = (None, None)) -> list[int]:
        """Return the eligible slots of a range, in counting order."""
        rows = range(self.size)[slice(*sample_range)]
        slots = [self.order()[row] for row in rows]
        if not self.ordered and len(rows) == self.capacity:
            slots = sorted(slots)
        return [slot for slot in slots if self.records[slot].weight > 0]

    def draw(self, sample_range: Range = (None, None)) -> list[int]:
        """Return the slots of a sample; advances the random sequence and counts the deliveries."""
        eligible = self.eligible(sample_range)
        if len(eligible) < self.draws:
            raise RuntimeError(len(eligible))
        ranks = draw_rows(self.key, self.counter, range(len(eligible)), self.draws, self.replace)
        self.counter += self.draws
        return self.deliver([eligible[rank] for rank in ranks])

    def deliver(self, slots: list[int]) -> list[int]:
        """Count deliveries and remove rows that were used up; return the slots."""
        for slot in slots:
            self.records[slot].uses += 1
            self.counts["drawn"] += 1
        for slot in slots:
            if self.max_use is not None and self.records[slot].uses >= self.max_use:
                self.remove(self.records[slot], "used_up")
        return slots

    def remove(self, record: Record, reason: str) -> None:
        self.counts[reason] += not record.removed
        record.removed, record.weight = True, 0.0

    def sample(self, sample_range: Range = (None, None)) -> tuple[list[int], list[Any]]:  # type: ignore[override]
        """Return handles and rows."""
        slots = self.draw(sample_range)
        return [self.records[slot].serial for slot in slots], [self.slots[slot] for slot in slots]

    def delete(self, handles: Sequence[int]) -> int:
        found = [record for record in map(self.live, handles) if record is not None]
        removed = {record.serial for record in found}
        self.counts["invalid"] += sum(handle >= 0 and handle not in removed for handle in handles)
        for record in found:
            self.remove(record, "deleted")
        return len(removed)

    def advance(self, steps: int) -> None:
        self.now += steps
        for slot in self.order():
            if self.stale(self.records[slot]):
                self.remove(self.records[slot], "stale")
        self.look_for_fresh()

    def look_for_fresh(self) -> None:
        """Set the serial of the oldest stored row that is not stale."""
        stored = [self.records[slot] for slot in self.order()]
        self.fresh = next((record.serial for record in stored if not self.stale(record)), self.inserted)

    def stale(self, record: Record) -> bool:
        return self.max_staleness is not None and self.now - record.inserted_at > self.max_staleness

    def oldest_fresh(self) -> int:
        """Return the serial of the oldest stored row, of those that were not stale when the clock last advanced."""
        return max(self.fresh, self.inserted - self.size)

    def info(self, handles: Sequence[int]) -> list[tuple[float, int, int]]:
        """Return priority, use count and staleness of each row."""
        rows = [self.record_of(handle) for handle in handles]
        return [(0.0, -1, -1) if r is None else (r.priority, r.uses, self.now - r.inserted_at) for r in rows]

    def can_sample(self) -> bool:
        return len(self.eligible()) >= self.draws

    def state(self) -> dict[str, Any]:
        """Return the Parameters of the rows, by name; the leaves stand for the tree."""
        return {
            "leaves": [record.weight for record in self.records],
            "priorities": [record.priority for record in self.records],
            "max_priority": self.max_priority,
            "use_counts": [~record.uses if record.removed else record.uses for record in self.records],
            "insertion_clocks": [record.inserted_at for record in self.records],
            "clock": [self.now, self.oldest_fresh(), self.unordered],
            "counts": list(self.counts.values()),
        }


class ReservoirTwin(UniformTwin):
    """`ReservoirReplayBuffer` with weights: one row at a time, by the number of rows before it."""

    head = 0  # type: ignore[assignment]

    def place(self, serial: int) -> int:
        """Return the slot of a row; a value of at least the capacity means none."""
        earlier = serial - self.base
        unit = ((random_bits(mix(self.key), serial) >> 11) + 1) * 2.0**-53
        return earlier if earlier < self.capacity else math.ceil(unit * (earlier + 1)) - 1

    def insert(self, rows: list[Any], priority: Any = None, version: Any = None) -> None:
        for row, made in zip(rows, self.versions_of(rows, version), strict=True):
            slot = self.place(self.inserted)
            if slot < self.capacity:
                record = self.records[slot] = Record()
                record.serial, record.inserted_at, record.priority, record.weight = self.inserted, made, 1.0, 1.0
                self.slots[slot] = row
            self.inserted += 1
            self.unordered = self.inserted if made < self.now else self.unordered

    @property
    def size(self) -> int:
        return min(self.inserted - self.base, self.capacity)

    def oldest_fresh(self) -> int:
        return self.base


class PrioritizedTwin(UniformTwin):
    """`PrioritizedReplayBuffer`, with its arguments."""

    def __init__(
        self,
        draws: int,
        capacity: int,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        **options: Any,
    ) -> None:
        self.alpha, self.epsilon, self.normalize = alpha, epsilon, normalize
        self.first_beta, self.beta_steps = beta, beta_steps
        super().__init__(draws, capacity, **options)

    def forget(self) -> None:
        super().forget()
        self.beta = self.first_beta

    def drawable(self) -> list[int]:
        """Return the slots to draw from, oldest first."""
        return self.order()

    def targets(self, total: float) -> list[float]:
        """Return one point of the total weight in each stratum."""
        points = []
        for i in range(self.draws):
            u = ((random_bits(self.key, self.counter + i) >> 11) + 1) * 2.0**-53
            points.append(min((i + u) * (total / self.draws), total))
        return points

    def draw(self, sample_range: Range = (None, None)) -> list[int]:
        """Return the slots of a sample; advances the random sequence. Deliveries are not counted yet."""
        if len(self.eligible()) < self.draws:
            raise RuntimeError(len(self.eligible()))
        drawable = self.drawable()
        weights = [self.records[slot].weight if slot in drawable else 0.0 for slot in range(self.capacity)]
        slots = [draw_slot(weights, target) for target in self.targets(sum(weights))]
        self.counter += self.draws
        return slots

    def sample(self, beta: float | None = None) -> tuple[list[int], list[float], list[Any]]:  # type: ignore[override]
        """Return handles, importance weights and rows."""
        slots = self.draw()
        drawn = [self.records[slot].weight for slot in slots]
        everywhere = [self.records[slot].weight for slot in self.drawable() if self.records[slot].weight > 0]
        smallest = min(drawn if self.normalize == "batch" else everywhere)
        exponent = self.beta if beta is None else beta
        importance = [float(np.float32((smallest / weight) ** exponent)) for weight in drawn]
        if self.beta_steps:
            self.beta = min(self.beta + (1 - self.first_beta) / self.beta_steps, 1.0)
        self.deliver(slots)
        return [self.records[slot].serial for slot in slots], importance, [self.slots[slot] for slot in slots]

    def update(self, handles: Sequence[int], priorities: Any) -> int:
        """Set priorities, the last one for a row; return the number of invalid handles."""
        invalid = 0
        for handle, value in zip(handles, np.broadcast_to(np.float32(priorities), len(handles)).tolist(), strict=True):
            record = self.live(handle)
            if record is None:
                invalid += 1
                self.counts["invalid"] += handle >= 0
                continue
            record.priority, record.weight = value, self.weight_of(value)
            self.max_priority = max(self.max_priority, value)
        return invalid

    def state(self) -> dict[str, Any]:
        return super().state() | {"beta": [self.beta]}


class ElasticTwin(PrioritizedTwin):
    """`ElasticReplayBuffer` by priority: rows outside the window have weight zero when it draws."""

    def __init__(self, draws: int, capacity: int, window: int, **options: Any) -> None:
        super().__init__(draws, capacity, **options)
        self.window = window

    def drawable(self) -> list[int]:
        return self.order()[-self.window :]

    def eligible(self, sample_range: Range = (None, None)) -> list[int]:
        return [slot for slot in self.drawable() if self.records[slot].weight > 0]
