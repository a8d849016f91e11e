"""Order of rows in time: the ends of episodes, and the rows at which a window may start.

Axes: ``C`` capacity.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..base.late import pending
from ..base.ring import stored_slots
from ..base.types import Arrays

#: Flags of a row: it is the last of its episode; it is read and never drawn, since it holds only the observation after
#: its episode or its next one is not known; no window may contain it; a final row may follow it in its episode, or, if
#: it is no `END`, has followed it.
END, FINAL, DELETED, OPEN = 1, 2, 4, 8
PAD_OPEN = 2


def removed(state: Arrays, slots: np.ndarray) -> np.ndarray:
    """Return which rows in these slots are removed, so that their handles are invalid. Shape ``[n]``, bool."""
    uses = state["use_counts"][slots]
    gone = state["flags"][slots] & DELETED > 0 if "flags" in state else uses < 0
    return gone & ~pending(uses)


class WindowRule(NamedTuple):
    """Rule for valid windows, in steps of one stream.

    Args:
        past (int): Steps before the start, fewer at the beginning of an episode.
        future (int): Steps from the start on, including it.
        stride (int): Period of starts, counted from the first step of the episode.
        pad_end (int): 1: a window may extend beyond the end of its episode, `PAD_OPEN`: also beyond the newest row.
        streams (int): Environments that insert in step.
        max_length (int): Steps of the longest episode, 0 for no limit.
        terminated (int): Column that is nonzero where an episode has terminated, -1 for none.
        needs_next (bool): Whether next observations are read from the next row.

    Examples:
        >>> from mindspore_replay.store import WindowRule
        >>> rule = WindowRule(past=2, future=8, stride=1, pad_end=False, streams=1, max_length=0)
        >>> print(rule.array())
        [ 2  8  1  0  1  0 -1  0]
    """

    past: int
    future: int
    stride: int
    pad_end: int
    streams: int
    max_length: int
    terminated: int = -1
    needs_next: bool = False

    def array(self) -> np.ndarray:
        """Return the rule as an argument of kernels. Shape ``[8]``, int64."""
        return np.array(self, np.int64)


def marks_of(rule: WindowRule, ends: np.ndarray, terminated: np.ndarray | None) -> np.ndarray:
    """Return the flags of new rows, whatever follows them, as in csrc/core/marks.h. Shape ``[n]``, uint8.

    Args:
        rule (WindowRule): The rule.
        ends (numpy.ndarray): The caller's flags: `END`, `FINAL`, both or neither. Shape ``[n]``, uint8.
        terminated (Union[numpy.ndarray, None]): Whether each row has terminated, bool ``[n]``, or ``None`` without such
            a column.
    """
    ends = np.where(ends & FINAL, np.uint8(END | FINAL), ends)
    if terminated is None:
        return ends
    unknown = (ends == END) & ~terminated & rule.needs_next
    return np.select([unknown, terminated & (ends & END == 0)], [END | FINAL | OPEN, END | OPEN], ends).astype(np.uint8)


def continues(before: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Return which rows belong to the episodes of the rows before them, by those's flags and by the caller's."""
    return (before & END == 0) | ((before & OPEN > 0) & (said == FINAL))


def legal_starts(state: Mapping[str, np.ndarray], rule: WindowRule) -> np.ndarray:
    """Find the slots of rows at which a window may start, from scratch. Shape ``[C]``, bool. Cost O(C)."""
    valid = np.zeros(len(state["steps"]), bool)
    slots = stored_slots(state, len(valid))
    for stream in range(rule.streams):  # the rows of one stream, from the oldest
        rows = slots[stream :: rule.streams]
        valid[rows] = _valid_in_stream(state["steps"][rows], state["flags"][rows], state["use_counts"][rows] < 0, rule)
    return valid


def _valid_in_stream(steps: np.ndarray, flags: np.ndarray, removed: np.ndarray, rule: WindowRule) -> np.ndarray:
    index = np.arange(len(steps))
    ends, deleted = flags & END > 0, flags & DELETED > 0
    stops = ends.copy()  # rows after which a window cannot continue
    stops[-1:] = True
    stops[:-1] |= deleted[1:]
    stop = np.minimum.accumulate(np.where(stops, index, len(index))[::-1])[::-1]
    last = np.minimum(stop, index + rule.future - 1)
    whole = last == index + rule.future - 1
    barrier = np.maximum.accumulate(np.where(deleted, index, -1))
    past = np.minimum(rule.past, steps)
    open_ones = whole & (rule.max_length == 0)  # with a limit, windows are whole episodes
    if rule.pad_end == PAD_OPEN:
        open_ones |= (last == len(steps) - 1) & (last - index >= rule.needs_next)
    fits = open_ones | ends[last] if rule.pad_end else whole
    on_stride = steps % rule.stride == 0
    if not rule.pad_end:
        on_stride |= ends[last]
    return fits & on_stride & (barrier < index - past) & (index >= past) & ~removed & (flags & FINAL == 0)


def check_timeline(cls_name: str, state: Mapping[str, np.ndarray], rule: WindowRule) -> None:
    """Raise a ValueError if the steps of rows are not consecutive, or a deleted row counts as stored."""
    streams = rule.streams
    slots = stored_slots(state, len(state["steps"]))
    steps, flags, uses = (state[key][slots] for key in ("steps", "flags", "use_counts"))
    following = np.where(flags & END, 0, steps + 1)[:-streams] if streams < len(steps) else steps[:0]
    wrong = []
    if (steps < 0).any() or (steps[streams:] != following).any():
        wrong.append("'steps' are not consecutive in the rows of a stream")
    if rule.max_length and (steps >= rule.max_length).any():
        wrong.append(f"one has more than {rule.max_length} rows")
    if ((flags & DELETED > 0) & (uses >= 0)).any() or (flags > (END | FINAL | DELETED | OPEN)).any():
        wrong.append("'flags' are none that rows have, or a deleted row counts as live")
    if ((flags & FINAL > 0) & (flags & END == 0)).any():
        wrong.append("a row with only an observation is not the last of its episode")
    followed = flags & (END | OPEN) == OPEN
    if followed[-streams:].any() or (followed[:-streams] & (flags[streams:] & FINAL == 0)).any():
        wrong.append("a row that a final row must follow is followed by none")
    if wrong:
        raise ValueError(f"For '{cls_name}', the rows must form episodes: {'; '.join(wrong)}.")
