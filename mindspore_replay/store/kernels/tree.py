r"""A weight for each slot, in a tree of sums.

The tree is one float64 array ``[M]``: the leaves, of which the first ``C`` are the slots' weights; the sums of each
level above, 16 children to a node; the smallest positive weight below each of those nodes, infinite if there is none.
Every level is padded to whole rows of 16. The very last number is the number of positive weights. The sum of a node is
the sequential sum of its children, recomputed whenever one of them changes: the tree is a function of its leaves, the
same in every backend, and does not drift.

Axes: ``C`` capacity, ``M`` numbers of the tree.
"""

import functools
from typing import NamedTuple

import numpy as np

FANOUT = 16


class Level(NamedTuple):
    """Size of a level above the leaves, and the offsets of its sums, its minima and its children's sums."""

    nodes: int
    sums: int
    minima: int
    children: int
    child_minima: int


def _round_up(size: int) -> int:
    return -(-size // FANOUT) * FANOUT


@functools.lru_cache(64)
def levels(capacity: int) -> tuple[Level, ...]:
    """Return the levels of a tree for this many slots, from the one above the leaves to the root."""
    nodes = [-(-capacity // FANOUT)]
    while nodes[-1] > 1:
        nodes.append(-(-nodes[-1] // FANOUT))
    begins = np.cumsum([0, *(_round_up(size) for size in (capacity, *nodes))]).tolist()
    minima = begins[-1] - begins[1]
    return tuple(
        Level(count, begins[i + 1], begins[i + 1] + minima, begins[i], begins[i] + minima if i else 0)
        for i, count in enumerate(nodes)
    )


def tree_size(capacity: int) -> int:
    """Return the number of elements of a tree for this many slots."""
    return levels(capacity)[-1].minima + FANOUT


def initial_weights(capacity: int) -> np.ndarray:
    """Return the tree of weights that are all zero. Shape ``[M]``, float64."""
    weights = np.zeros(tree_size(capacity))
    weights[levels(capacity)[0].minima : -1] = np.inf
    return weights


def first_positive(weights: np.ndarray, capacity: int, start: int) -> int:
    """Return the first slot from `start` on with a positive weight, -1 if there is none. Cost O(log C)."""
    if weights[start] > 0:
        return start
    node, below = start, []
    for level in levels(capacity):
        behind = weights[level.children + node + 1 : level.children + (node // FANOUT + 1) * FANOUT] > 0
        if behind.any():
            node += 1 + int(np.argmax(behind))
            break
        node //= FANOUT
        below.append(level)
    else:
        return -1
    for level in reversed(below):
        first = level.children + node * FANOUT
        node = node * FANOUT + int(np.argmax(weights[first : first + FANOUT] > 0))
    return node


def build_weights(leaves: np.ndarray) -> np.ndarray:
    """Compute the tree of these weights from scratch. Shape ``[M]``, float64. Cost O(C)."""
    weights = initial_weights(len(leaves))
    weights[: len(leaves)] = leaves
    weights[-1] = np.count_nonzero(leaves)
    for level in levels(len(leaves)):
        size = level.nodes * FANOUT
        sums = weights[level.children : level.children + size].reshape(-1, FANOUT)
        minima = weights[level.child_minima : level.child_minima + size].reshape(-1, FANOUT)
        weights[level.sums : level.sums + level.nodes] = np.cumsum(sums, 1)[:, -1]
        weights[level.minima : level.minima + level.nodes] = np.where(minima > 0, minima, np.inf).min(1)
    return weights
