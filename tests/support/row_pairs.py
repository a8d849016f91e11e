"""Buffers of `Row`s with views, and their twins: single rows, sequences and episodes."""

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from drivers import NATIVE, Combination, shared_driver
from model import Model, stack
from model_rows import Views
from model_views import Row, sample_of, window_of
from pairs import Pair, ends_and_finals

from mindspore_replay import FrameStack, NStep, PrioritizedReplayBuffer, ReplayBuffer

NAMES = ["observation", "reward", "terminated", "truncated", "next_observation"]


def views_of(views: Views) -> list[Any]:
    """Make the views of a buffer."""
    made: list[Any] = [NStep(views.n, views.gamma)] if views.n else []
    return made + ([FrameStack(views.frames)] if views.frames else [])


def row_buffer(
    combination: Combination,
    views: Views,
    capacity: int,
    draws: int = 1,
    prioritized: bool = False,
    cls: Any = None,
    **options: Any,
) -> Any:
    """Return a shared driver of an empty buffer of `Row`s; of single rows unless `cls` is given."""
    shape, dtype = options.pop("reward", ((), ms.float32))
    columns = 5 if views.own_next else 4
    shapes = [(2,), shape, (), (), (2,)][:columns]
    types = [ms.float32, dtype, ms.bool_, ms.bool_, ms.float32][:columns]
    if cls is not None:
        options["prioritized"] = prioritized
    else:
        cls = PrioritizedReplayBuffer if prioritized else ReplayBuffer
    options |= {"names": NAMES[:columns], "views": views_of(views), "handles_first": True}
    return shared_driver(combination, draws, capacity, shapes, types, cls=cls, **options)


def make_row(serial: int, views: Views, shape: tuple[int, ...] = (), dtype: str = "float32") -> Row:
    """Make a row with unique numbers, and a reward of this shape and dtype."""
    x = serial + 1
    reward = [x * x % 17 - 5, 2 - x * x % 13]
    return Row(
        np.array([x, 0.5 * x], np.float32),
        np.array(reward if shape else reward[0], dtype),
        np.array(x % 11 == 5),
        np.array(x % 4 == 1),
        np.array([-x, 0.25], np.float32) if views.own_next else None,
    )


class RowPair(Pair):
    """A buffer of single rows with views and its twin."""

    def __init__(self, driver: Any, views: Views, **options: Any) -> None:
        self.driver, self.buffer, self.views = driver, driver.buffer, views
        self.num_envs = self.buffer.num_envs
        self.prioritized = self.buffer.prioritized
        self.reward_type = options.pop("reward", ((), ms.float32))
        options |= {"views": views, "prioritized": self.prioritized}
        self.twin = Model(type(self.buffer), self.buffer.sample_size, self.buffer.capacity, **options)

    def insert(self, ends: Sequence[bool], finals: Any = None, priority: Any = None, rows: Any = None) -> None:
        ends = [bool(end) for end in ends]
        finals = [False] * len(ends) if finals is None else [bool(final) for final in finals]
        rows = [self.make_row(self.twin.inserted + i) for i in range(len(ends))] if rows is None else rows
        given = {"priority": priority} if self.prioritized else {}
        width = len(self.buffer.shapes)
        self.driver.insert(stack([row[:width] for row in rows]), end=np.array(ends), final=np.array(finals), **given)
        self.twin.insert(rows, **given, ends=ends, finals=finals, terminated=self.terminated(rows))

    def terminated(self, rows: Sequence[Row]) -> list[bool]:
        """Return which rows say that they have terminated."""
        return [bool(row.terminated) for row in rows]

    def fits(self, flags: Sequence[int]) -> bool:
        rows = [self.make_row(self.twin.inserted + i) for i in range(len(flags))]
        return self.twin.fits(*ends_and_finals(flags), self.terminated(rows))

    def make_row(self, serial: int) -> Row:
        return make_row(serial, self.views, self.reward_type[0], str(self.reward_type[1]).lower())

    def expected(self, handles: Sequence[int]) -> list[np.ndarray]:
        """Return the fields in the order of a sample."""
        fields = [sample_of(self.twin, self.twin.record_of(handle), self.views) for handle in handles]
        return [np.stack([field[name] for field in fields]) for name in self.fields()]

    def fields(self) -> list[str]:
        names = list(self.buffer.names)
        if "next_observation" not in names:
            names.append("next_observation")
        return [*names, "discount"] if self.views.n else names

    def sample(self) -> tuple[np.ndarray, ...] | None:
        if not self.twin.can_draw():
            return None
        handles, *importance = self.twin.sample()[:-1]
        got = self.driver.sample()
        expected = [np.array(handles), *(np.array(part, np.float32) for part in importance), *self.expected(handles)]
        assert_same(got, expected)
        return got

    def sample_at(self, handle: int) -> dict[str, np.ndarray]:
        """Return the sample that starts at a row, by name, from a uniform buffer that draws one row."""
        position = handle - (self.twin.inserted - self.twin.size)
        batch = self.buffer.sample((position, position + 1), as_dict=True)
        return {name: column.asnumpy()[0] for name, column in batch.items()}

    def is_drawn(self, handle: int) -> bool:
        try:
            self.sample_at(handle)
        except RuntimeError:
            return False
        return True

    def write_terminated(self, behind: Sequence[int], terminated: Sequence[bool]) -> None:
        """Update the column of terminations of the rows at these distances behind the newest row."""
        handles = self.handles(behind)
        assert self.driver.write_terminated(handles, terminated) == self.twin.write_terminated(handles, terminated)
        for handle, value in zip(handles, terminated):
            record = self.twin.record_of(handle)
            if record is not None and not record.deleted:
                record.row = record.row._replace(terminated=np.array(value))


def assert_same(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a.dtype, a.shape, a.tolist()) == (b.dtype, b.shape, b.tolist()), i


def row_pair(views: Views, capacity: int, draws: int = 1, **options: Any) -> RowPair:
    """Return a native buffer and its twin."""
    mine = {key: value for key, value in options.items() if key != "prioritized"}
    return RowPair(row_buffer(NATIVE, views, capacity, draws, **options), views, **mine)


class StepsPair(RowPair):
    """A buffer of sequences or episodes with n-step returns, and perhaps stacks, and its twin."""

    def expected(self, handles: Sequence[int]) -> list[np.ndarray]:
        """Return the contents of a sample after handles and weights."""
        samples = [window_of(self.twin, handle, self.views) for handle in handles]
        masks = [np.stack([mask for mask, _ in samples])]
        if self.twin.whole:
            masks.insert(0, np.array(masks[0].sum(1), np.int32))
        return [*masks, *(np.stack([fields[name] for _, fields in samples]) for name in self.fields())]


def steps_pair(
    cls: Any, combination: Combination, views: Views, capacity: int, draws: int, **options: Any
) -> StepsPair:
    """Return a buffer of sequences or episodes and its twin."""
    mine = {key: value for key, value in options.items() if key != "prioritized"}
    return StepsPair(row_buffer(combination, views, capacity, draws, cls=cls, **options), views, **mine)
