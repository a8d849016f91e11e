"""How many rows each shard gives, where they stand in the batch, and what their importance weights are."""

from collections.abc import Sequence

import numpy as np


def choose(rng: np.random.Generator, totals: Sequence[float], rows: int, how: str) -> np.ndarray:
    """Which shard gives each row of a batch.

    Args:
        rng (numpy.random.Generator): Where the choice comes from.
        totals (Sequence[float]): Weight of each shard; at least one is above zero.
        rows (int): How many rows.
        how (str): ``"strata"``: one from each of `rows` equal parts of the whole weight; ``"replace"``: each by itself;
            ``"once"``: `totals` count rows, and none is drawn twice.

    Returns:
        numpy.ndarray: Place of the shard in `totals`, for each row. Shape ``[rows]``, int64.
    """
    weights = np.asarray(totals, np.float64)
    if how == "once":
        counts = rng.multivariate_hypergeometric(weights.astype(np.int64), rows, method="marginals")
        return rng.permutation(np.repeat(np.arange(len(counts)), counts))
    points = rng.random(rows)
    if how == "strata":
        points = (np.arange(rows) + points) / rows
    bounds = np.cumsum(weights)
    last = np.flatnonzero(weights)[-1]  # rounding may put a point on the upper bound
    return np.minimum(np.searchsorted(bounds, points * bounds[-1], side="right"), last)


def importance(weights: np.ndarray, least: float | None, beta: float) -> np.ndarray:
    r"""Importance weights :math:`(w_\min / w_i)^\beta` of a batch.

    Args:
        weights (numpy.ndarray): Weight by which each row was drawn. Shape ``[B]``, float64.
        least (Union[float, None]): :math:`w_\min`; ``None`` for the smallest of the batch.
        beta (float): The exponent.

    Returns:
        numpy.ndarray: Shape ``[B]``, float32.
    """
    smallest = weights.min() if least is None else least
    return ((smallest / weights) ** beta).astype(np.float32)
