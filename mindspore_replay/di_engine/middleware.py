"""Middleware of `DequeBuffer`. Limits and draws by priority are those of the buffer underneath."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..store.checks import check_choice
from .deque_buffer import DequeBuffer
from .layout import BufferedData, copied

_Chain = Callable[..., Any]


class PriorityExperienceReplay:
    """Draws rows by priority, one from each of equal strata of the total, and gives them importance weights.

    A row's priority is that in its `meta`, or in the row if it is a dict pushed without `meta`, or the largest so far;
    `update` takes a new one from `meta`. To each 1e-5 is added. Rows of a sample have ``meta["priority"]``,
    ``meta["priority_idx"]`` and, with `IS_weight`, ``meta["priority_IS"]``, which a row that is a dict holds too.

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
        self,
        buffer: DequeBuffer,
        IS_weight: bool = True,  # noqa: N803
        priority_power_factor: float = 0.6,
        IS_weight_power_factor: float = 0.4,  # noqa: N803
        IS_weight_anneal_train_iter: int = int(1e5),  # noqa: N803
    ) -> None:
        factors = priority_power_factor, IS_weight_power_factor, IS_weight_anneal_train_iter
        names = "alpha", "beta", "beta_steps"
        self.limits: tuple[Any, ...] = {}, frozenset({"priority"}), dict(zip(names, factors))
        self._buffer, self._weighs = buffer, IS_weight

    def __call__(self, action: str, chain: _Chain, *args: object, **kwargs: object) -> object:
        """Add to a call what the buffer does not do."""
        if action == "push":
            return self._push(chain, *args, **kwargs)
        meta = kwargs.get("meta", args[2] if len(args) > 2 else None)
        if action == "update" and not (isinstance(meta, dict) and "priority" in meta):
            raise ValueError(f"For 'PriorityExperienceReplay', 'meta' must have a 'priority', but got {meta!r}.")
        result = chain(*args, **kwargs)
        for row in result if action == "sample" else ():
            if isinstance(row, BufferedData):
                row.meta["priority_idx"] = int(row.index) % self._buffer.size
                if not self._weighs:
                    row.meta.pop("priority_IS", None)
                elif isinstance(row.data, dict) and "priority_IS" in row.meta:
                    row.data["priority_IS"] = np.array([row.meta["priority_IS"]], np.float32)
        return result

    def _push(self, chain: _Chain, data: object, meta: object = None, **kwargs: object) -> object:
        if meta is None and isinstance(data, dict) and "priority" in data:
            meta = {"priority": data["priority"]}
            data = {key: value for key, value in data.items() if key != "priority"}
        row = chain(data, meta=meta, **kwargs)
        if isinstance(row, BufferedData):
            row.meta["priority_idx"] = int(row.index) % self._buffer.size
            if row.meta.get("priority") is None:
                row.meta["priority"] = float(self._buffer.shared.held.info(int(row.index))[0])
        return row


class use_time_check:  # noqa: N801
    """Removes rows that were delivered `max_use` times, and counts that in ``meta["use_count"]``."""

    def __init__(self, buffer_: DequeBuffer, max_use: float = float("inf")) -> None:
        self.limits: tuple[Any, ...] = {"max_use": max_use}, frozenset({"use_count"}), {}

    def __call__(self, action: str, chain: _Chain, *args: object, **kwargs: object) -> object:
        """Add nothing to what the buffer does."""
        return chain(*args, **kwargs)


class staleness_check:  # noqa: N801
    """Removes rows that are more than `max_staleness` iterations of the learner old when a sample is drawn.

    A row is from ``meta["train_iter_data_collected"]``, and `sample` gets ``train_iter_sample_data=``, which never goes
    back. Rows of a sample have ``meta["staleness"]``.
    """

    def __init__(self, buffer_: DequeBuffer, max_staleness: float = float("inf")) -> None:
        self.limits: tuple[Any, ...] = {"max_staleness": max_staleness}, frozenset({"staleness"}), {}
        self._buffer = buffer_

    def __call__(self, action: str, chain: _Chain, *args: object, **kwargs: Any) -> object:
        """Advance the learner's clock at a sample."""
        meta = kwargs.get("meta", args[1] if len(args) > 1 else None)
        if action == "push" and not (isinstance(meta, dict) and "train_iter_data_collected" in meta):
            raise ValueError(
                "For 'staleness_check', a row must be pushed with meta={'train_iter_data_collected': <iteration>}, but "
                f"got meta={meta!r}."
            )
        if action == "sample":
            if "train_iter_sample_data" not in kwargs:
                raise ValueError("For 'staleness_check', 'sample' needs train_iter_sample_data=<iteration>.")
            self._buffer.advance_to(int(kwargs.pop("train_iter_sample_data")))
        return chain(*args, **kwargs)


def sample_range_view(buffer_: DequeBuffer, start: int | None = None, end: int | None = None) -> _Chain:
    """Draw from the rows from `start` to before `end` only; negative ones count from the end of a full buffer."""
    if start is None and end is None:
        raise ValueError("For 'sample_range_view', 'start' or 'end' must be given.")
    bounds = slice(*(bound + buffer_.size if bound is not None and bound < 0 else bound for bound in (start, end)))

    def sample(action: str, chain: _Chain, *args: object, **kwargs: object) -> object:
        return chain(*args, **{**kwargs, "sample_range": bounds} if action == "sample" else kwargs)

    return sample


def clone_object() -> _Chain:
    """Copy rows when they are pushed, and again when they are sampled."""

    def clone(action: str, chain: _Chain, *args: object, **kwargs: object) -> object:
        if action == "push":
            return chain(copied(args[0]), *args[1:], **kwargs)
        return copied(chain(*args, **kwargs)) if action == "sample" else chain(*args, **kwargs)

    return clone


def group_sample(size_in_group: int, ordered_in_group: bool = True, max_use_in_group: bool = True) -> _Chain:
    """Take rows of each group that is sampled by ``groupby``.

    Args:
        size_in_group (int): Rows of a group.
        ordered_in_group (bool): Whether they are successive, from a random one on; ``False`` takes any, in random
            order. Default: ``True``.
        max_use_in_group (bool): Whether that one is followed by enough others, if there are. Default: ``True``.
    """

    def taken(group: list[Any]) -> list[Any]:
        if ordered_in_group:
            starts = max(0, len(group) - size_in_group) + 1 if max_use_in_group else len(group)
            first = int(np.random.randint(starts))
            return group[first : first + size_in_group]
        if len(group) < size_in_group:
            raise ValueError(f"For 'group_sample', a group must have {size_in_group} rows, but got {len(group)}.")
        return [group[i] for i in np.random.choice(len(group), size_in_group, False)]

    def sample(action: str, chain: _Chain, *args: object, **kwargs: object) -> object:
        if action != "sample":
            return chain(*args, **kwargs)
        if not kwargs.get("groupby"):
            raise ValueError("For 'group_sample', 'sample' needs groupby=<a key of meta>.")
        return [taken(group) for group in chain(*args, **kwargs)]

    return sample


def padding(policy: str = "random") -> _Chain:
    """Fill sampled groups up to the largest with rows of their own, or of ``None`` if `policy` is ``"none"``."""
    check_choice("padding", "policy", policy, "random", "none")

    def sample(action: str, chain: _Chain, *args: object, **kwargs: object) -> object:
        groups = chain(*args, **kwargs)
        if action != "sample" or not groups or isinstance(groups[0], BufferedData):
            return groups
        longest = max(map(len, groups))
        for group in groups:
            rows = list(group) if policy == "random" else [BufferedData(None, None, None)]  # type: ignore[arg-type]
            group += [copied(rows[np.random.randint(len(rows))]) for _ in range(longest - len(group))]
        return groups

    return sample
