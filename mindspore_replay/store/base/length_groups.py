"""Columns whose rows differ in length: what kernels know of them.

Axes: ``B`` rows of a batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class LengthGroup(NamedTuple):
    """Columns of which a row has one length.

    Args:
        name (str): Name of the column whose lengths the others have. In its place kernels store where the items of a
            row are.
        column (int): Its index.
        columns (tuple[int, ...]): Indices of all.
        names (tuple[str, ...]): Names of all.
        longest (int): Items of the longest row.
        items (int): Items that there is memory for.
        sampled (int): Items of a row in a padded sample.
        at_random (bool): Whether a longer row is cut at random, not after its first items.
    """

    name: str
    column: int
    columns: tuple[int, ...]
    names: tuple[str, ...]
    longest: int
    items: int
    sampled: int
    at_random: bool

    @property
    def takes_bits(self) -> bool:
        """True if each row of a padded sample takes a random number, to be cut there if it is longer."""
        return self.at_random and self.sampled < self.longest

    @property
    def name_of_lengths(self) -> str:
        """Name of the lengths of its rows, where there are others."""
        return f"{self.name}_lengths"


def least_items(rows: int, longest: int) -> int:
    """Return the items among which so many of the longest rows fit wherever they begin: none crosses the end."""
    return (rows + 1) * longest - 1 if rows else 0


def arguments_of(groups: Sequence[LengthGroup], fields: Sequence[int], before: int) -> np.ndarray:
    """Say where the arguments of a kernel on rows that differ in length are, int64, as csrc/cpu/items.cc has it.

    Args:
        groups (Sequence[LengthGroup]): The columns that differ, in this order.
        fields (Sequence[int]): The columns of the rows that the kernel reads or writes, -1 for one that is left alone.
        before (int): Arguments of the kernel before the rows.
    """
    arenas = [i for group in groups for i in group.columns]
    places = {i: (arenas.index(i), k) for k, group in enumerate(groups) for i in group.columns}
    of_groups = [(fields.index(group.column), group.longest, group.at_random) for group in groups]
    of_fields = [places.get(i, (-1, -1)) for i in fields]
    of_arenas = [k for k, group in enumerate(groups) for _ in group.columns]
    numbers = [number for each in (*of_groups, *of_fields, of_arenas) for number in each]
    return np.array([len(groups), len(arenas), len(fields), before, *numbers], np.int64)


class Packing(NamedTuple):
    """The form of a sample of rows that differ in length.

    Args:
        longest (bool): Whether rows are padded to the longest of the batch. Default: ``False``, to ``sample_length``.
        packed (bool): Whether items are concatenated, with offsets in place of lengths. Default: ``False``.
        max_items (Union[int, None]): Most items of a packed batch. Default: ``None``, for no limit.
    """

    longest: bool = False
    packed: bool = False
    max_items: int | None = None


#: Rows that are padded to the longest of the batch.
LONGEST = Packing(longest=True)
