"""Middleware of `DequeBuffer`. What limits rows or draws them is done by the buffer underneath."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from .rows import BufferedData

_NOTHING = BufferedData(None, None, None)


class _Limits:
    """Middleware that sets limits of the rows; calls go through it.

    Args:
        limits (dict): Arguments of `Rows.limit`.
    """

    def __init__(self, **limits: Any) -> None:
        self.limits = limits

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return chain(*args, **kwargs)


class PriorityExperienceReplay(_Limits):
    """Draws rows by priority, one from each of equal strata of the total, and gives them importance weights.

    A row's priority is that in its `meta`, or in the row itself if it is a dict pushed without `meta`, or else the
    largest so far. `update` takes the new one from `meta`. To each 1e-5 is added. A row of a sample has
    ``meta["priority"]``, ``meta["priority_idx"]`` and, with `IS_weight`, ``meta["priority_IS"]``, which a row that is a
    dict holds too.

    Args:
        buffer (DequeBuffer): The buffer.
        IS_weight (bool): Whether to give importance weights. Default: ``True``.
        priority_power_factor (float): How much priorities count, in [0, 1]. Default: ``0.6``.
        IS_weight_power_factor (float): Initial strength of the weights, in [0, 1]. Default: ``0.4``.
        IS_weight_anneal_train_iter (int): Samples until it is 1; 0 keeps it. Default: ``100000``.

    Examples:
        >>> from mindspore_replay.di_engine import DequeBuffer, PriorityExperienceReplay
        >>> buffer = DequeBuffer(size=10)
        >>> buffer = buffer.use(PriorityExperienceReplay(buffer))
        >>> for name in "abc":
        ...     row = buffer.push(name, meta={"priority": 2.0})
        >>> print(sorted(row.data for row in buffer.sample(3)), buffer[0].meta)
        ['a', 'b', 'c'] {'priority': 2.0, 'priority_idx': 0, 'priority_IS': 1.0}
    """

    def __init__(
        self, buffer: Any, IS_weight: bool = True, priority_power_factor: float = 0.6,  # noqa: N803
        IS_weight_power_factor: float = 0.4, IS_weight_anneal_train_iter: int = int(1e5),  # noqa: N803
    ) -> None:  # fmt: skip
        priorities = {
            "alpha": priority_power_factor,
            "beta": IS_weight_power_factor,
            "beta_steps": IS_weight_anneal_train_iter,
        }
        super().__init__(priorities=priorities)
        self.buffer, self.IS_weight = buffer, IS_weight

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Add what the middleware does to a call."""
        if action in ("push", "sample", "update"):
            return getattr(self, f"_{action}")(chain, *args, **kwargs)
        return chain(*args, **kwargs)

    def _push(self, chain: Callable[..., Any], data: Any, meta: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        if meta is None and isinstance(data, dict) and "priority" in data:
            data = dict(data)
            meta = {"priority": data.pop("priority")}
        meta = dict(meta or {})
        if meta.get("priority") is None:
            meta["priority"] = self.buffer.rows.max_priority()
        row = chain(data, meta=meta, **kwargs)
        if isinstance(row, BufferedData):
            row.meta["priority_idx"] = int(row.index) % self.buffer.size
        return row

    def _sample(self, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        rows = chain(*args, **kwargs)
        for row in rows:
            if isinstance(row, BufferedData) and not self.IS_weight:
                row.meta.pop("priority_IS", None)
            elif isinstance(row, BufferedData) and isinstance(row.data, dict) and "priority_IS" in row.meta:
                row.data["priority_IS"] = np.array([row.meta["priority_IS"]], np.float32)
        return rows

    def _update(self, chain: Callable[..., Any], index: Any, data: Any = None, meta: Any = None, **kwargs: Any) -> Any:
        if not isinstance(meta, dict) or "priority" not in meta:
            raise ValueError(f"For 'PriorityExperienceReplay', 'meta' must have a 'priority', but got {meta!r}.")
        return chain(index, data, meta, **kwargs)


class _StalenessCheck(_Limits):
    def __init__(self, buffer: Any, max_staleness: float) -> None:
        super().__init__(max_staleness=max_staleness, has_versions=True)
        self._buffer = buffer

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action == "push":
            meta = kwargs.get("meta", args[1] if len(args) > 1 else None)
            if not isinstance(meta, dict) or "train_iter_data_collected" not in meta:
                raise ValueError(
                    "For 'staleness_check', a row must be pushed with meta={'train_iter_data_collected': <iteration>}, "
                    f"but got meta={meta!r}."
                )
        if action == "sample":
            if "train_iter_sample_data" not in kwargs:
                raise ValueError("For 'staleness_check', 'sample' needs train_iter_sample_data=<iteration>.")
            self._buffer.rows.advance_to(kwargs.pop("train_iter_sample_data"))
        return chain(*args, **kwargs)


def staleness_check(buffer_: Any, max_staleness: float = float("inf")) -> Callable[..., Any]:
    """Remove rows that are older than `max_staleness` iterations of the learner when a sample is drawn.

    A row has the iteration that it was collected in, ``meta["train_iter_data_collected"]``; `sample` gets the
    learner's, ``train_iter_sample_data=``, and rows of a sample have ``meta["staleness"]``. The iteration never goes
    back.
    """
    return _StalenessCheck(buffer_, max_staleness)


def use_time_check(buffer_: Any, max_use: float = float("inf")) -> Callable[..., Any]:
    """Remove rows that were delivered `max_use` times, and count that in ``meta["use_count"]``."""
    return _Limits(max_use=max_use, counts_uses=True)


def clone_object() -> Callable[..., Any]:
    """Copy rows when they are pushed, and again when they are sampled."""

    def clone(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action == "push":
            return chain(copy.deepcopy(args[0]), *args[1:], **kwargs)
        return copy.deepcopy(chain(*args, **kwargs)) if action == "sample" else chain(*args, **kwargs)

    return clone


def group_sample(
    size_in_group: int, ordered_in_group: bool = True, max_use_in_group: bool = True
) -> Callable[..., Any]:
    """Take rows of each group that is sampled by ``groupby``.

    Args:
        size_in_group (int): Rows of a group.
        ordered_in_group (bool): Whether to take successive rows, from a random one on; ``False`` takes any, in random
            order. Default: ``True``.
        max_use_in_group (bool): Whether that first row is one that enough others follow, where there are enough.
            Default: ``True``.
    """

    def taken(group: list[Any]) -> list[Any]:
        if not ordered_in_group:
            if len(group) < size_in_group:
                raise ValueError(
                    f"For 'group_sample', a group must have {size_in_group} rows if they are not ordered, but got "
                    f"{len(group)}."
                )
            return [group[i] for i in np.random.choice(len(group), size_in_group, False)]
        starts = max(0, len(group) - size_in_group) + 1 if max_use_in_group else len(group)
        first = int(np.random.randint(starts))
        return group[first : first + size_in_group]

    def sample(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action != "sample":
            return chain(*args, **kwargs)
        if not kwargs.get("groupby"):
            raise ValueError("For 'group_sample', 'sample' needs groupby=<a key of meta>.")
        return [taken(group) for group in chain(*args, **kwargs)]

    return sample


def padding(policy: str = "random") -> Callable[..., Any]:
    """Fill sampled groups up to the largest of them, with copies of their own rows, or with rows of ``None``.

    Args:
        policy (str): ``"random"`` or ``"none"``. Default: ``"random"``.
    """
    if policy not in ("random", "none"):
        raise ValueError(f"For 'padding', 'policy' must be 'random' or 'none', but got {policy!r}.")

    def filler(group: list[Any]) -> Any:
        return copy.deepcopy(group[np.random.randint(len(group))] if policy == "random" else _NOTHING)

    def sample(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = chain(*args, **kwargs)
        if action != "sample" or not result or isinstance(result[0], BufferedData):
            return result
        longest = max(map(len, result))
        return [group + [filler(group) for _ in range(longest - len(group))] for group in result]

    return sample


def sample_range_view(buffer_: Any, start: int | None = None, end: int | None = None) -> Callable[..., Any]:
    """Draw from the rows from `start` to before `end` only; negative ones count from the end of a full buffer."""
    if start is None and end is None:
        raise ValueError("For 'sample_range_view', 'start' or 'end' must be given.")
    first, last = (bound + buffer_.size if bound is not None and bound < 0 else bound for bound in (start, end))

    def sample(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action == "sample":
            kwargs["sample_range"] = slice(first, last)
        return chain(*args, **kwargs)

    return sample
