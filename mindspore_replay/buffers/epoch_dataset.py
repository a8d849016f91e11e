"""Rows of a buffer as a dataset of MindSpore."""

from collections.abc import Iterator, Sequence

import numpy as np
from mindspore.dataset import GeneratorDataset, Sampler

from ..store.spec.epochs import order_of


class ItemRows:
    """The rows of a column in which they differ in length, by slot.

    Args:
        references (numpy.ndarray): Their offsets and lengths, ``[C, 2]``.
        items (numpy.ndarray): The items, ``[N, *F]``.
    """

    def __init__(self, references: np.ndarray, items: np.ndarray) -> None:
        self._references, self._items = references, items

    def __getitem__(self, slot: int) -> np.ndarray:
        offset, length = self._references[slot].tolist()
        first = offset % len(self._items)
        return self._items[first : first + length]


class Rows:
    """The rows in these slots, by position.

    Args:
        columns (Sequence): The columns, each ``[C, *F]`` or an `ItemRows`.
        slots (numpy.ndarray): Slots of the rows. Shape ``[n]``, int64.
    """

    def __init__(self, columns: Sequence[np.ndarray | ItemRows], slots: np.ndarray) -> None:
        self._columns, self._slots = columns, slots

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, position: int) -> tuple[np.ndarray, ...]:
        slot = self._slots[position]
        return tuple(np.array(column[slot]) for column in self._columns)


class Keys:
    """Keys of orders. MindSpore copies a dataset for each iterator. All copies share one sequence of keys.

    Args:
        seed (Sequence[int]): Seed of the sequence.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        self._random = np.random.default_rng(seed)

    def __deepcopy__(self, _memo: object) -> "Keys":
        return self

    def next(self) -> int:
        """Return the next key."""
        return int(self._random.integers(2**63))


class Epochs(Sampler):
    """Positions of rows, each once an epoch, in a new order each epoch, equally many for every learner.

    Args:
        rows (int): Number of rows of all learners.
        rank (int): Number of this learner.
        world (int): Number of learners.
        seed (Sequence[int]): Seed of the orders.
    """

    def __init__(self, rows: int, rank: int, world: int, seed: Sequence[int]) -> None:
        super().__init__(rows // world)
        self._rows, self._rank, self._world = rows, rank, world
        self._keys = Keys(seed)

    def __iter__(self) -> Iterator[int]:
        last = self._rows // self._world * self._world
        for i, position in enumerate(order_of(self._keys.next(), self._rows)):
            if i < last and i % self._world == self._rank:
                yield position


def dataset_of(rows: Rows, epochs: Epochs, names: Sequence[str], num_parallel_workers: int) -> GeneratorDataset:
    """Make the dataset. Several workers are processes."""
    return GeneratorDataset(
        rows,
        list(names),
        num_parallel_workers=num_parallel_workers,
        sampler=epochs,
        python_multiprocessing=num_parallel_workers > 1,
    )
