"""Middleware of `DequeBuffer`. Limits and draws by priority are those of the buffer underneath."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..store.base.checks import check_choice, need
from .deque_buffer import DequeBuffer
from .layout import AssertedValueError, BufferedData, beside, copied

_Chain = Callable[..., Any]


class _Middleware:
    """Calls its method of an action, such as `_sample`, and where it has none the rest of the chain.

    Its `limits`, if it has any, are arguments of the buffer underneath.
    """

    def __call__(self, action: str, chain: _Chain, *args: Any, **kwargs: Any) -> Any:
        """Call the buffer."""
        own = getattr(self, f"_{action}", None)
        return chain(*args, **kwargs) if own is None else own(chain, *args, **kwargs)


class PriorityExperienceReplay(_Middleware):
    """Samples rows by priority, one from each of equal strata of the total, with importance weights.

    A row's priority is read from its `meta`, from the row if that is a dict pushed without `meta`, or else is the
    largest so far. `update` reads a new one from `meta`. 1e-5 is added to each. Sampled rows have ``meta["priority"]``,
    ``meta["priority_idx"]`` and, with `IS_weight`, ``meta["priority_IS"]``, also in the row if it takes items by name,
    as dicts and treetensor's Tensors do.

    Args:
        buffer (DequeBuffer): The buffer.
        IS_weight (bool): Whether to return importance weights. Default: ``True``.
        priority_power_factor (float): Exponent of priorities, in [0, 1]. Default: ``0.6``.
        IS_weight_power_factor (float): Initial exponent of importance weights, in [0, 1]. Default: ``0.4``.
        IS_weight_anneal_train_iter (int): Samples over which this exponent rises to 1. 0 keeps it constant. Default:
            ``100000``.

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
        IS_weight_anneal_train_iter: int = 100000,  # noqa: N803
    ) -> None:
        self._buffer, factors = buffer, (priority_power_factor, IS_weight_power_factor, IS_weight_anneal_train_iter)
        self.limits, self._weighs = dict(zip(("alpha", "beta", "beta_steps"), factors)), IS_weight

    def _push(self, chain: _Chain, data: Any, meta: object = None, **more: Any) -> Any:
        if meta is None and hasattr(type(data), "keys") and "priority" in data:
            if isinstance(data, dict):
                data = dict(data)
            meta = {"priority": data.pop("priority")}
        row = chain(self._unweighted(data), meta=meta, **more)
        if isinstance(row, BufferedData):
            row.meta["priority_idx"] = int(row.index) % self._buffer.size
            if row.meta.get("priority") is None:
                row.meta["priority"] = float(self._buffer.table.buffer.info(int(row.index))[0])
        return row

    def _update(self, chain: _Chain, index: str, data: object = None, meta: Any = None, **more: Any) -> Any:
        fits = isinstance(meta, dict) and "priority" in meta
        need(fits, AssertedValueError, type(self).__name__, "'meta' must have a 'priority'", meta)
        return chain(index, self._unweighted(data), meta, **more)

    def _unweighted(self, data: Any) -> Any:
        """Return a row for columns without the weight that a sample added."""
        layout = self._buffer.table.layout
        if layout and isinstance(data, dict) and "priority_IS" in data.keys() - layout.shapes:
            return {key: value for key, value in data.items() if key != "priority_IS"}
        return data

    def _sample(self, chain: _Chain, *args: Any, **kwargs: Any) -> Any:
        rows = chain(*args, **kwargs)
        for row in rows:
            if isinstance(row, BufferedData) and not self._weighs:
                row.meta.pop("priority_IS", None)
            elif isinstance(row, BufferedData) and "priority_IS" in row.meta:
                with contextlib.suppress(TypeError, IndexError, ValueError):  # a row that takes no items by name
                    weight = np.array([row.meta["priority_IS"]], np.float32)
                    row.data["priority_IS"] = beside(row.data, weight)
        return rows

    @property
    def buffer_idx(self) -> dict[int, str]:
        """The index of each row, by its ``meta["priority_idx"]``."""
        return {handle % self._buffer.size: str(handle) for handle in self._buffer.table.live().tolist()}


class use_time_check(_Middleware):  # noqa: N801
    """Removes rows that were delivered `max_use` times, and counts that in ``meta["use_count"]``."""

    def __init__(self, buffer_: DequeBuffer, max_use: float = float("inf")) -> None:
        self.limits = {"max_use": max_use}


class staleness_check(_Middleware):  # noqa: N801
    """Removes rows that are more than `max_staleness` iterations of the learner old when a sample is drawn.

    A row is from ``meta["train_iter_data_collected"]``, and `sample` gets ``train_iter_sample_data=``, which never goes
    back. Rows of a sample have ``meta["staleness"]``.
    """

    def __init__(self, buffer_: DequeBuffer, max_staleness: float = float("inf")) -> None:
        self.limits, self._buffer = {"max_staleness": max_staleness}, buffer_

    def _push(self, chain: _Chain, data: object, meta: Any = None, **more: Any) -> Any:
        rule = "a row must be pushed with meta={'train_iter_data_collected': <iteration>}"
        fits = isinstance(meta, dict) and "train_iter_data_collected" in meta
        need(fits, AssertedValueError, "staleness_check", rule, meta)
        return chain(data, meta, **more)

    def _sample(self, chain: _Chain, *args: Any, train_iter_sample_data: Any = None, **more: Any) -> Any:
        rule = "'sample' needs train_iter_sample_data=<iteration>"
        need(train_iter_sample_data is not None, ValueError, "staleness_check", rule, more)
        self._buffer.table.advance_to(train_iter_sample_data)
        return chain(*args, **more)


class sample_range_view(_Middleware):  # noqa: N801
    """Draws from the rows from `start` to before `end` only. Negative ones count from the end of a full buffer."""

    def __init__(self, buffer_: DequeBuffer, start: int | None = None, end: int | None = None) -> None:
        need(
            (start, end) != (None, None),
            AssertedValueError,
            "sample_range_view",
            "'start' or 'end' must be given",
            None,
        )
        ends = (bound + buffer_.size if bound is not None and bound < 0 else bound for bound in (start, end))
        self._range = slice(*ends)

    def _sample(self, chain: _Chain, *args: Any, **kwargs: Any) -> Any:
        return chain(*args, **{**kwargs, "sample_range": self._range})


class clone_object(_Middleware):  # noqa: N801
    """Copies rows when they are pushed, and again when they are sampled."""

    def _push(self, chain: _Chain, data: object, *args: Any, **kwargs: Any) -> Any:
        return chain(copied(data), *args, **kwargs)

    def _sample(self, chain: _Chain, *args: Any, **kwargs: Any) -> Any:
        return copied(chain(*args, **kwargs))


class group_sample(_Middleware):  # noqa: N801
    """Takes `size_in_group` rows of each group that is sampled by ``groupby``.

    They are successive, from a random one on, if `ordered_in_group`, which is followed by enough others, if there are,
    if `max_use_in_group`, otherwise any, in random order.
    """

    def __init__(self, size_in_group: int, ordered_in_group: bool = True, max_use_in_group: bool = True) -> None:
        self._size, self._ordered, self._whole = size_in_group, ordered_in_group, max_use_in_group

    def _sample(self, chain: _Chain, *args: Any, **kwargs: Any) -> Any:
        need(kwargs.get("groupby"), ValueError, "group_sample", "'sample' needs groupby=<a key of meta>", kwargs)
        return [self._taken(group) for group in chain(*args, **kwargs)]

    def _taken(self, group: list[Any]) -> list[Any]:
        size, n = self._size, len(group)
        if self._ordered:
            first = np.random.randint(max(0, n - size) + 1 if self._whole else n)
            return group[first : first + size]
        need(n >= size, ValueError, "group_sample", f"a group must have {size} rows", n)
        return [group[i] for i in np.random.choice(n, size, False)]


class padding(_Middleware):  # noqa: N801
    """Fills sampled groups up to the largest with their own rows, or ``None`` if `policy` is ``"none"``."""

    def __init__(self, policy: str = "random") -> None:
        check_choice("padding", "policy", policy, "random", "none")
        self._policy = policy

    def _sample(self, chain: _Chain, *args: Any, **kwargs: Any) -> Any:
        groups = chain(*args, **kwargs)
        if groups and isinstance(groups[0], list):
            longest = max(map(len, groups))
            for group in groups:
                none: Any = BufferedData(None, None, None)  # type: ignore[arg-type]
                rows = [none] if self._policy == "none" else list(group)
                group += [copied(rows[np.random.randint(len(rows))]) for _ in range(longest - len(group))]
        return groups
