"""Rows in time: where episodes end, and which rows a window may start at, found from scratch.

`starts.py` keeps that up as rows come and go. Axes: ``C`` capacity.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from mindspore import Tensor

#: What `flags` say of a row: it is the last of its episode; it holds only the observation after its episode, so it is
#: read and never drawn; no window may hold it.
END, FINAL, DELETED = 1, 2, 4


class WindowRule(NamedTuple):
    """Which windows are legal, in steps of one stream.

    Args:
        past (int): Steps before the start; fewer where the episode begins.
        future (int): Steps from the start on, itself included.
        stride (int): Period of starts, counted from the first step of the episode.
        pad_end (bool): Whether a window may reach beyond the end of its episode.
        streams (int): Environments that write in step.
        max_length (int): Steps of the longest episode, 0 for no limit.
    """

    past: int
    future: int
    stride: int
    pad_end: bool
    streams: int
    max_length: int

    def tensor(self) -> Tensor:
        """The rule as the kernels take it."""
        return Tensor(self.array())

    def array(self) -> np.ndarray:
        return np.array(self, np.int64)


def legal_starts(state: Mapping[str, np.ndarray], rule: WindowRule) -> np.ndarray:
    """Which slots hold a row that a window may start at, found from scratch. Shape ``[C]``, bool. Cost O(C)."""
    capacity, count, streams = len(state["steps"]), int(state["count"]), rule.streams
    legal = np.zeros(capacity, bool)
    slots = (int(state["head"]) + np.arange(count)) % capacity
    for stream in range(streams):  # the rows of one stream, from the oldest
        rows = slots[stream::streams]
        legal[rows] = _legal_in_stream(state["steps"][rows], state["flags"][rows], state["use_counts"][rows] < 0, rule)
    return legal


def _legal_in_stream(steps: np.ndarray, flags: np.ndarray, removed: np.ndarray, rule: WindowRule) -> np.ndarray:
    index = np.arange(len(steps))
    ends, deleted = flags & END > 0, flags & DELETED > 0
    stops = ends.copy()  # rows after which a window cannot go on
    stops[-1:] = True
    stops[:-1] |= deleted[1:]
    stop = np.minimum.accumulate(np.where(stops, index, len(index))[::-1])[::-1]
    last = np.minimum(stop, index + rule.future - 1)
    whole = last == index + rule.future - 1
    barrier = np.maximum.accumulate(np.where(deleted, index, -1))
    past = np.minimum(rule.past, steps)
    fits = whole | ends[last] if rule.pad_end else whole
    on_stride = steps % rule.stride == 0
    if not rule.pad_end:
        on_stride |= ends[last]
    return fits & on_stride & (barrier < index - past) & (index >= past) & ~removed & (flags & FINAL == 0)


def check_timeline(cls_name: str, state: Mapping[str, np.ndarray], streams: int) -> None:
    """Raises a ValueError if the steps of rows do not follow from each other, or a deleted row counts as live."""
    slots = (int(state["head"]) + np.arange(int(state["count"]))) % len(state["steps"])
    steps, flags, uses = (state[key][slots] for key in ("steps", "flags", "use_counts"))
    following = np.where(flags & END, 0, steps + 1)[:-streams] if streams < len(steps) else steps[:0]
    wrong = []
    if (steps < 0).any() or (steps[streams:] != following).any():
        wrong.append("'steps' do not go on from each row to the next of its stream")
    if ((flags & DELETED > 0) & (uses >= 0)).any() or (flags > (END | FINAL | DELETED)).any():
        wrong.append("'flags' are none that rows have, or a deleted row counts as live")
    if ((flags & FINAL > 0) & (flags & END == 0)).any():
        wrong.append("a row with only an observation is not the last of its episode")
    if wrong:
        raise ValueError(f"For '{cls_name}', the rows must make episodes: {'; '.join(wrong)}.")
