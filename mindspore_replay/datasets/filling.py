"""Fills buffers with steps: makes the buffer, matches its columns to the dataset's, casts, and inserts in chunks."""

import contextlib
import functools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..checkpoint.files import progress_bar
from ..config.configuration import buffer_class
from ..store.base.casts import cast, holds
from ..store.base.checks import check_size
from ..store.base.schema import Schema, given_type_name
from ..store.faces.attached import AttachedBuffer
from ..store.faces.classes import EpisodeReplayBuffer, ReservoirReplayBuffer, SequenceReplayBuffer
from ..store.faces.local import LocalBuffer
from ..store.spec.described import spec_of
from ..store.spec.registry import find
from .steps import BFLOAT16, END, FINAL, Arrays, Episodes, EpisodeTable, Steps, Summary, chunk_rows, numbers_of

#: Warns of steps that were changed, dropped or overwritten.
log = logging.getLogger("mindspore_replay.datasets")

#: Default sample size of a new buffer, if its capacity allows it.
_SAMPLE_SIZE = 256

#: Largest capacity.
_MOST_ROWS = np.iinfo(np.int32).max

#: Shape of one row, and dtype.
Field = tuple[tuple[int, ...], np.dtype]


class Source:
    """A dataset: its columns, and its episodes in order.

    Attributes:
        label (str): Name of the dataset, for messages.
        fields (dict[str, Field]): Columns of steps.
        transitions (dict[str, Field]): Columns of transitions: the same, with next observations.
        observations (tuple[str, ...]): The columns that are observations, each of which has a next one.
        size (int): Number of rows.
    """

    label: str
    fields: dict[str, Field]
    transitions: dict[str, Field]
    observations: tuple[str, ...]
    size: int

    def steps(self, chosen: np.ndarray | None) -> Iterator[Steps]:
        """Return the steps of the episodes for which `chosen` is true, bool ``[episodes]``, or ``None`` for all."""
        raise NotImplementedError

    def outline(self) -> Iterator[Steps]:
        """Return all steps, with the columns that a summary needs."""
        return self.steps(None)

    @functools.cached_property
    def summary(self) -> tuple[EpisodeTable, np.ndarray]:
        """The table for a function `episodes`, and whether the observation after each episode is known."""
        summary = Summary()
        for steps in self.outline():
            summary.add(steps)
        return summary.result()

    def lengths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the steps of each episode, and whether the observation after it is known, or needed but unknown."""
        table, known = self.summary
        return table.length, known, ~known & ~table.terminated


def fill(
    what: str,
    source: Source,
    buffer: Any,
    episodes: Episodes,
    types: Mapping[str, object] | None,
    progress: bool,
    arguments: dict[str, Any],
) -> Any:
    """Insert the chosen episodes of a dataset into a buffer. ``None`` makes one."""
    fields = source.transitions
    chosen = choose(what, source, episodes)
    if buffer is None:
        buffer = make_buffer(what, source, fields, chosen, types, arguments)
        check_buffer(what, buffer, attached=True)
    else:
        check_given(what, buffer, types, arguments)
    check_one_length(what, buffer.spec.columns)
    filler = Filler(what, source.label, buffer, match(what, source.label, buffer, fields, source.observations))
    total = source.size if chosen is None else int(source.lengths()[0][chosen].sum())
    with progress_bar(what, total, progress, "row", "datasets") as done:
        for steps in source.steps(chosen):
            filler.put(steps)
            done(len(steps.end))
    filler.finish()
    return buffer


def with_next(fields: Mapping[str, Field], observations: Sequence[str]) -> dict[str, Field]:
    """Return the columns of transitions: those of steps, with the next observations after the reward."""
    following = {f"next_{name}": fields[name] for name in observations}
    names = list(fields)
    at = names.index("reward") + 1 if "reward" in names else len(names)
    return {name: {**fields, **following}[name] for name in [*names[:at], *following, *names[at:]]}


def make_buffer(
    what: str,
    source: Source,
    fields: Mapping[str, Field],
    chosen: np.ndarray | None,
    types: Mapping[str, object] | None,
    arguments: dict[str, Any],
) -> Any:
    """Make a buffer for the chosen episodes, of the requested class and arguments."""
    arguments = {key: value for key, value in arguments.items() if value is not None}
    buffer_cls = class_of(arguments.pop("buffer_cls", None))
    # The goals achieved after the actions are in columns of next observations.
    views = arguments.get("views", ())
    relabels = isinstance(views, (list, tuple)) and any(hasattr(view, "hindsight") for view in views)
    single = knows_episodes(buffer_cls, arguments) and not relabels
    if single:
        fields = {name: field for name, field in fields.items() if name in source.fields}
    lengths, known, lost = (array[... if chosen is None else chosen] for array in source.lengths())
    if lengths.sum() == 0:
        raise ValueError(f"For '{what}', {source.label} must have a step in the chosen episodes, but got none.")
    # An episode has one more row, for its last observation. A transition without a next observation is left out.
    last = known.sum() if single and source.observations else -lost.sum() if fields.keys() - source.fields.keys() else 0
    return schema_buffer(what, buffer_cls, fields, types, arguments, rows=int(lengths.sum() + last))


def unmarked(what: str, label: str, marks: str, names: Sequence[str]) -> ValueError:
    """Return the error for rows of which nobody knows where episodes were cut off."""
    return ValueError(
        f"For '{what}', {label} must mark where episodes end without termination, by {marks}, but it has {names}."
    )


def class_of(buffer_cls: type | str | None) -> type:
    """Return the class of a buffer by itself or its name. ``None`` means `mindspore_replay.ReplayBuffer`."""
    return buffer_class({"type": "uniform" if buffer_cls is None else buffer_cls}, find)


def _sample_size(what: str, arguments: Mapping[str, Any]) -> int:
    """Return 256, or the largest sample size of a smaller buffer."""
    capacity = check_size(what, "capacity", arguments["capacity"])
    length = check_size(what, "sequence_length", arguments.get("sequence_length", 1))
    return max(1, min(_SAMPLE_SIZE, capacity - length + 1))


def knows_episodes(buffer_cls: type, arguments: Mapping[str, Any]) -> bool:
    """Return True if a buffer of this class stores episodes."""
    return bool(arguments.get("views")) or issubclass(buffer_cls, (SequenceReplayBuffer, EpisodeReplayBuffer))


def schema_buffer(
    what: str, buffer_cls: type, fields: Mapping[str, Field], types: object, arguments: Mapping[str, Any], rows: int
) -> Any:
    """Make a buffer with these columns, of a capacity for these rows by default. `types` overrides dtypes."""
    taken = sorted({"shapes", "types", "names", "num_envs"} & arguments.keys())
    if taken:
        raise TypeError(f"For '{what}', {taken} come from the dataset and cannot be given.")
    wanted = _types(what, fields, types)
    arguments = {"shapes": [shape for shape, _ in fields.values()], "types": wanted, "names": list(fields), **arguments}
    if "capacity" not in arguments:  # a sample may reach over more rows than there are
        with contextlib.suppress(TypeError, ValueError):  # those of the constructor below
            outline = {
                **arguments,
                "types": list(map(given_type_name, wanted)),
                "sample_size": 1,
                "capacity": _MOST_ROWS,
            }
            rows = max(rows, spec_of(buffer_cls, outline).reach)
        arguments["capacity"] = max(1, rows)
    return buffer_cls(**{"sample_size": _sample_size(what, arguments), **arguments})


def _types(what: str, fields: Mapping[str, Field], types: object) -> list[object]:
    """Return the dtype of each column: the dataset's, unless `types` names it, its observation or its space."""
    if types is not None and not isinstance(types, Mapping):
        raise TypeError(f"For '{what}', 'types' must be a dict of dtypes by column, but got {types!r}.")
    by_name: Mapping[str, object] = types or {}
    left, wanted = set(by_name), []
    for name, (_, dtype) in fields.items():
        plain = name.removeprefix("next_")
        key = next((key for key in (name, plain, plain.split(".")[0]) if key in by_name), None)
        wanted.append(by_name[key] if key is not None else "bfloat16" if dtype == BFLOAT16 else dtype.name)
        left.discard(key)
    if left:
        raise ValueError(f"For '{what}', 'types' must name columns of {list(fields)}, but got {sorted(left)}.")
    return wanted


def check_buffer(what: str, buffer: object, attached: bool = False) -> None:
    """Raise a TypeError unless rows can be read from a buffer, or written into it if one that is `attached` will do."""
    if not isinstance(buffer, (LocalBuffer, AttachedBuffer) if attached else LocalBuffer):
        way_out = ": its learner can write it" if isinstance(buffer, AttachedBuffer) else ""
        raise TypeError(
            f"For '{what}', 'buffer' must be a buffer of mindspore_replay or mindspore_replay.host, but got "
            f"{type(buffer).__module__}.{type(buffer).__name__}{way_out}."
        )


def column_fields(columns: Schema) -> dict[str, Field]:
    """Return the columns of a buffer by name, as datasets have them."""
    types = (BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in columns.dtypes)
    return dict(zip(columns.names, zip(columns.shapes, types)))


def check_one_length(what: str, columns: Schema) -> None:
    """Raise a ValueError if rows differ in length."""
    if columns.kinds:
        raise ValueError(
            f"For '{what}', the rows of a buffer must have one length, but those of {columns.kinds[0].name!r} differ: "
            "use an npz file, which from_npz reads into such a buffer."
        )


def check_given(what: str, buffer: Any, types: object, arguments: Mapping[str, Any]) -> None:
    """Raise an error if a buffer cannot be filled, or was passed with arguments for a new one."""
    check_buffer(what, buffer, attached=True)
    superfluous = sorted(key for key, value in {**arguments, "types": types}.items() if value is not None)
    if superfluous:
        raise TypeError(f"For '{what}', with 'buffer' there must be no arguments of a new one, but got {superfluous}.")
    if buffer.num_envs != 1:
        raise ValueError(
            f"For '{what}', 'buffer' must be made with num_envs=1, since episodes come one after the other, but got "
            f"{buffer.num_envs}."
        )


def match(
    what: str, label: str, buffer: Any, fields: Mapping[str, Field], observations: Sequence[str]
) -> dict[str, str]:
    """Return the dataset's column for each of a buffer: of the same name, or an observation's without its prefix."""
    names = {name: name for name in fields}
    for name in observations:
        path = name.partition(".")[2]
        if path:
            names.setdefault(path, name)
            names.setdefault(f"next_{path}", f"next_{name}")
    columns = buffer.spec.columns.names
    missing = [name for name in columns if name not in names]
    if missing:
        raise ValueError(
            f"For '{what}', {label} must have each column of the buffer, but got none for {missing}; it has "
            f"{list(fields)}."
        )
    achieved = buffer.achieved_goal
    if achieved is not None and f"next_{names[achieved]}" in fields:  # goals are achieved in the state after the action
        names[achieved] = f"next_{names[achieved]}"
    return {name: names[name] for name in columns}


def choose(what: str, source: Source, episodes: Episodes) -> np.ndarray | None:
    """Return the episodes that `episodes` selects, bool ``[n]``, or ``None`` for all."""
    if episodes is None:
        return None
    if callable(episodes):
        table = source.summary[0]
        episodes, count = episodes(table), len(table.length)
    else:
        count = len(source.lengths()[0])
    chosen = np.zeros(count, np.bool_)
    if not isinstance(episodes, slice):
        episodes = np.asarray(episodes)
        if episodes.ndim != 1 or (episodes.size and episodes.dtype.kind not in "biu"):
            raise TypeError(
                f"For '{what}', 'episodes' must be a slice, ints, one bool for each episode, or a function that gives "
                f"these, but got {episodes!r}."
            )
        episodes = episodes if episodes.size else episodes.astype(np.int64)
    try:
        chosen[episodes] = True
    except IndexError:
        raise IndexError(
            f"For '{what}', 'episodes' must name episodes of the {count} in {source.label}, but got {episodes!r}."
        ) from None
    if not chosen.any():
        raise ValueError(f"For '{what}', 'episodes' must name at least one of the {count} in {source.label}.")
    return chosen


class Filler:
    """Inserts rows in chunks of one size, and the rest at the end, so that graphs are compiled for two lengths only.

    Args:
        what (str): Function to name in errors.
        label (str): The dataset, for messages.
        buffer (Any): The buffer.
        sources (Mapping[str, str]): The dataset's column for each column of the buffer.
    """

    def __init__(self, what: str, label: str, buffer: Any, sources: Mapping[str, str]) -> None:
        self._what, self._label, self._buffer, self._sources = what, label, buffer, sources
        columns = buffer.spec.columns
        self._columns, self._types = column_fields(columns), columns.numpy_types
        self._whole = any(name.startswith("next_") for name in sources.values())
        self._chunk = chunk_rows(columns.row_bytes())
        self._parts: list[Arrays] = []
        self._pending = self._rows = self._dropped = self._undrawn = 0
        self._before = int(buffer.size())
        if buffer.has_episodes and self._before:
            buffer.end_episodes()

    def put(self, steps: Steps) -> None:
        """Add consecutive steps, converted to the layout of the buffer."""
        if not len(steps.end):
            return
        if steps.following and self._whole:
            self._put_transitions(steps)
        elif steps.following and self._buffer.has_episodes:
            self._put_episodes(steps)
        else:
            self._put_rows(steps.columns, steps.end, np.zeros_like(steps.end) if steps.final is None else steps.final)

    def _put_transitions(self, steps: Steps) -> None:
        """Add rows with their next observations. A step is dropped if that is needed but unknown."""
        lacking, terminated = ~steps.known, steps.flag("terminated")
        following = dict(steps.following)
        for name in following if lacking.any() else ():
            mask = lacking.reshape(-1, *[1] * (following[name].ndim - 1))
            following[name] = np.where(mask, steps.columns[name], following[name])
        dropped, end = lacking & ~terminated, steps.end.copy()
        end[:-1] |= dropped[1:]  # the step before a dropped one ends its episode
        if dropped[0] and self._parts:
            self._parts[-1][END][-1] = True
        self._dropped += int(dropped.sum())
        rows = {**steps.columns, **{f"next_{name}": array for name, array in following.items()}}
        kept = ~dropped
        self._put_rows({k: v[kept] for k, v in rows.items()}, end[kept], np.zeros(int(kept.sum()), np.bool_))

    def _put_episodes(self, steps: Steps) -> None:
        """Add rows of single observations, and a `final` row with the observation after an episode, if known."""
        last = np.flatnonzero(steps.end & steps.known)
        final = steps.end & ~steps.known & ~steps.flag("terminated")
        self._undrawn += int(final.sum())
        columns = {}
        for name, array in steps.columns.items():
            value = steps.following[name][last] if name in steps.following else np.zeros((), array.dtype)
            columns[name] = np.insert(array, last + 1, value, axis=0)
        end = steps.end.copy()
        end[last] = False
        self._put_rows(columns, np.insert(end, last + 1, False), np.insert(final, last + 1, True))

    def _put_rows(self, columns: Mapping[str, np.ndarray], end: np.ndarray, final: np.ndarray) -> None:
        """Add rows of the dataset's columns, in the layout of the buffer, with the flags of their episodes."""
        if len(end):
            sources = {name: (source, columns[source]) for name, source in self._sources.items()}
            rows = {name: fit(self._what, self._label, *sources[name], field) for name, field in self._columns.items()}
            self._parts.append({**rows, END: end.copy(), FINAL: final})
            self._pending += len(end)
        if self._pending > self._chunk:  # keep at least one row, which may turn out to be the last of its episode
            joined, begin = self._joined(), 0
            while self._pending - begin > self._chunk:
                self._insert({name: array[begin : begin + self._chunk].copy() for name, array in joined.items()})
                begin += self._chunk
            self._parts = [{name: array[begin:].copy() for name, array in joined.items()}]
            self._pending -= begin

    def _joined(self) -> Arrays:
        return {name: np.concatenate([rows[name] for rows in self._parts]) for name in self._parts[0]}

    def _insert(self, rows: Arrays) -> None:
        columns = [rows[name].view(dtype) for name, dtype in zip(self._columns, self._types)]
        if self._buffer.has_episodes:
            self._buffer.insert(columns, end=rows[END], final=rows[FINAL])
        else:
            self._buffer.insert(columns)
        self._rows += len(rows[END])

    def finish(self) -> None:
        """Insert the rest, and log how many steps were dropped, final or overwritten."""
        if self._parts:
            self._insert(self._joined())
        self._parts, self._pending = [], 0
        over = self._before + self._rows - self._buffer.capacity
        messages = {
            "steps dropped: they are the last of an episode that did not terminate, and their next observation is not "
            "in the dataset": self._dropped,
            "steps stored as final rows, which are read but not drawn as single rows: their next observation is not in "
            "the dataset": self._undrawn,
            f"rows overwritten: the buffer's capacity is {self._buffer.capacity}": 0
            if isinstance(self._buffer, ReservoirReplayBuffer)
            else max(0, over),
        }
        for message, count in messages.items():
            if count:
                log.warning("%s: %s: %d of %d %s", self._what, self._label, count, self._rows + self._dropped, message)


def fit(what: str, label: str, name: str, array: np.ndarray, field: Field) -> np.ndarray:
    """Cast and reshape an array to a column.

    The dtype must be one that the column holds, and shapes may differ in axes of length 1 only.
    """
    shape, dtype = field
    if _long_axes(array.shape[1:]) != _long_axes(shape):
        raise ValueError(
            f"For '{what}', {name!r} of {label} must have rows of shape {shape}, but got {array.shape[1:]}."
        )
    array = array.reshape(len(array), *shape)
    if array.dtype == dtype:
        return array
    array, column = numbers_of(array), "bfloat16" if dtype == BFLOAT16 else dtype.name
    if not holds(column, array.dtype.name):
        raise TypeError(
            f"For '{what}', {name!r} of {label} must have a dtype that {column} holds, but got {array.dtype}."
        )
    return cast(array, column, dtype, f"For '{what}', {name!r} of {label} must fit {column}, but got")


def _long_axes(shape: Sequence[int]) -> list[int]:
    return [axis for axis in shape if axis != 1]


def row_bytes(fields: Iterable[Field]) -> int:
    """Return the bytes of one row."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in fields)
