"""Fills buffers with steps: makes the buffer, matches its columns to the dataset's, casts, and inserts in chunks."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
from .steps import BFLOAT16, END, FINAL, Arrays, Episodes, EpisodeTable, Field, Steps, chunk_rows, numbers_of

#: Warns of steps that were changed, dropped or overwritten.
log = logging.getLogger("mindspore_replay.datasets")

#: Default sample size of a new buffer, if its capacity allows it.
_SAMPLE_SIZE = 256

#: Largest capacity.
_MOST_ROWS = np.iinfo(np.int32).max


class Dataset(NamedTuple):
    """A dataset: its columns, and its episodes in order.

    Attributes:
        label (str): Name of the dataset, for messages.
        fields (dict[str, Field]): Columns of steps.
        transitions (dict[str, Field]): Columns of transitions: the same, with next observations.
        observations (Sequence[str]): The columns that are observations, each of which has a next one.
        length (numpy.ndarray): Steps of each episode. Shape ``[n]``, int64.
        has_next (numpy.ndarray): Whether the observation after it is known. Shape ``[n]``, bool.
        lost (numpy.ndarray): Whether it is needed but unknown. Shape ``[n]``, bool.
        steps (Callable): Returns the steps of the episodes for which an array is true, bool ``[n]``, or ``None`` for
            all; the second argument is as the one of `Recording.pieces`.
        table (Union[Callable, None]): Returns the table for a function `episodes`. Default: ``None``, of rows that are
            taken as they are, of which none are chosen.
    """

    label: str
    fields: dict[str, Field]
    transitions: dict[str, Field]
    observations: Sequence[str]
    length: np.ndarray
    has_next: np.ndarray
    lost: np.ndarray
    steps: Callable[[np.ndarray | None, bool], Iterator[Steps]]
    table: Callable[[], EpisodeTable] | None = None


def fill(
    call: str,
    source: Dataset,
    buffer: Any,
    episodes: Episodes,
    types: Mapping[str, object] | None,
    progress: bool,
    arguments: dict[str, Any],
) -> Any:
    """Insert the chosen episodes of a dataset into a buffer. ``None`` makes one."""
    chosen = choose(call, source, episodes)
    if buffer is None:
        buffer = make_buffer(call, source, chosen, types, arguments)
        check_buffer(call, buffer, attached=True)
    else:
        check_given(call, buffer, types, arguments)
    check_one_length(call, buffer.spec.columns)
    names, columns = match(call, source, buffer), buffer.spec.columns
    # Rows with next observations; else single observations, with one more row at the end of each episode.
    whole = bool(source.observations) and any(name.startswith("next_") for name in names.values())
    before, rows = int(buffer.size()), 0
    if buffer.has_episodes and before:
        buffer.end_episodes()
    length, lost = (int(array[... if chosen is None else chosen].sum()) for array in (source.length, source.lost))
    with progress_bar(call, length, progress, "row", "datasets") as done:
        parts = _laid_out(call, source, buffer, names, whole, chosen, done)
        for part in _in_chunks(parts, chunk_rows(column_fields(columns).values())):
            values = [part[name].view(dtype) for name, dtype in zip(columns.names, columns.numpy_types)]
            buffer.insert(values, **({"end": part[END], "final": part[FINAL]} if buffer.has_episodes else {}))
            rows += len(part[END])
        done(lost if whole else 0)
    over = 0 if isinstance(buffer, ReservoirReplayBuffer) else max(0, before + rows - buffer.capacity)
    total, unknown = rows + lost * whole, "their next observation is not in the dataset"
    if lost and whole:
        text = "%s: %s: %d of %d steps dropped: they are the last of an episode that did not terminate, and %s"
        log.warning(text, call, source.label, lost, total, unknown)
    elif lost and buffer.has_episodes and source.observations:
        text = "%s: %s: %d of %d steps stored as final rows, which are read but not drawn as single rows: %s"
        log.warning(text, call, source.label, lost, total, unknown)
    if over:
        text = "%s: %s: %d of %d rows overwritten: the buffer's capacity is %d"
        log.warning(text, call, source.label, over, total, buffer.capacity)
    return buffer


def _laid_out(
    call: str,
    source: Dataset,
    buffer: Any,
    names: Mapping[str, str],
    whole: bool,
    chosen: np.ndarray | None,
    done: Callable[[int], object],
) -> Iterator[Arrays]:
    """Return steps as rows in the layout and the dtypes of a buffer, with the flags of their episodes."""
    fields = column_fields(buffer.spec.columns)
    for steps in source.steps(chosen, whole):
        columns, end = steps.columns, steps.end
        final = np.zeros_like(end) if steps.final is None else steps.final
        if whole:
            for name, array in steps.following.items():
                has_next = steps.has_next.reshape(-1, *[1] * (array.ndim - 1))
                columns[f"next_{name}"] = array if steps.has_next.all() else np.where(has_next, array, columns[name])
        elif steps.following and buffer.has_episodes:  # the observation after an episode, if known, is a row of its own
            last = np.flatnonzero(end & steps.has_next)
            final = np.insert(end & ~steps.has_next & ~steps.flag("terminated"), last + 1, True)
            for name, array in columns.items():
                value = steps.following[name][last] if name in steps.following else np.zeros((), array.dtype)
                columns[name] = np.insert(array, last + 1, value, axis=0)
            end = end.copy()
            end[last] = False
            end = np.insert(end, last + 1, False)
        rows = {k: fit(call, source.label, name, columns[name], fields[k]) for k, name in names.items()}
        yield {**rows, END: end, FINAL: final}
        done(len(steps.end))


def _in_chunks(parts: Iterable[Arrays], rows: int) -> Iterator[Arrays]:
    """Return rows in chunks of one size, and the rest at the end, so that graphs are compiled for two lengths only."""
    rest: list[Arrays] = []
    for part in parts:
        rest.append(part)
        if (number := sum(len(one[END]) for one in rest)) < rows:
            continue
        joined = {name: np.concatenate([one[name] for one in rest]) for name in part} if rest[1:] else part
        for begin in range(0, number - rows + 1, rows):
            yield {name: array[begin : begin + rows] for name, array in joined.items()}
        rest = [{name: array[number - number % rows :].copy() for name, array in joined.items()}]
    if any(len(one[END]) for one in rest):
        yield {name: np.concatenate([one[name] for one in rest]) for name in rest[0]}


def with_next(fields: Mapping[str, Field], observations: Sequence[str]) -> dict[str, Field]:
    """Return the columns of transitions: those of steps, with the next observations after the reward."""
    following = {f"next_{name}": fields[name] for name in observations}
    names = list(fields)
    at = names.index("reward") + 1 if "reward" in names else len(names)
    return {name: {**fields, **following}[name] for name in [*names[:at], *following, *names[at:]]}


def make_buffer(
    call: str, source: Dataset, chosen: np.ndarray | None, types: Mapping[str, object] | None, arguments: dict[str, Any]
) -> Any:
    """Make a buffer for the chosen episodes, of the requested class and arguments. `types` overrides dtypes."""
    arguments = {key: value for key, value in arguments.items() if value is not None}
    buffer_cls, views = class_of(arguments.pop("buffer_cls", None)), arguments.get("views", ())
    # The goals achieved after the actions are in columns of next observations.
    relabels = isinstance(views, (list, tuple)) and any(hasattr(view, "hindsight") for view in views)
    single = knows_episodes(buffer_cls, arguments) and not relabels
    fields = {k: field for k, field in source.transitions.items() if not single or k in source.fields}
    length, nexts, lost = (
        int(array[... if chosen is None else chosen].sum()) for array in (source.length, source.has_next, source.lost)
    )
    if not length:
        raise ValueError(f"For '{call}', {source.label} must have a step in the chosen episodes, but got none.")
    if taken := sorted({"shapes", "types", "names", "num_envs"} & arguments.keys()):
        raise TypeError(f"For '{call}', {taken} come from the dataset and cannot be given.")
    wanted = _types(call, fields, types)
    arguments = {"shapes": [shape for shape, _ in fields.values()], "types": wanted, "names": list(fields), **arguments}
    if "capacity" not in arguments:
        # An episode has one more row, for its last observation. A transition without a next observation is left out.
        rows = length + (nexts if single and source.observations else 0)
        rows -= lost if fields.keys() - source.fields.keys() else 0
        with contextlib.suppress(TypeError, ValueError):  # those of the constructor below
            outline = {"sample_size": 1, "capacity": _MOST_ROWS, "types": list(map(given_type_name, wanted))}
            rows = max(rows, spec_of(buffer_cls, {**arguments, **outline}).reach)  # of a sample
        arguments["capacity"] = max(1, rows)
    capacity = check_size(call, "capacity", arguments["capacity"])
    window = check_size(call, "sequence_length", arguments.get("sequence_length", 1))
    return buffer_cls(**{"sample_size": max(1, min(_SAMPLE_SIZE, capacity - window + 1)), **arguments})


def unmarked(call: str, label: str, marks: str, names: Sequence[str]) -> ValueError:
    """Return the error for rows of which nobody knows where episodes were cut off."""
    return ValueError(
        f"For '{call}', {label} must mark where episodes end without termination, by {marks}, but it has {names}."
    )


def class_of(buffer_cls: type | str | None) -> type:
    """Return the class of a buffer by itself or its name. ``None`` means `mindspore_replay.ReplayBuffer`."""
    return buffer_class({"type": "uniform" if buffer_cls is None else buffer_cls}, find)


def knows_episodes(buffer_cls: type, arguments: Mapping[str, Any]) -> bool:
    """Return True if a buffer of this class stores episodes."""
    return bool(arguments.get("views")) or issubclass(buffer_cls, (SequenceReplayBuffer, EpisodeReplayBuffer))


def _types(call: str, fields: Mapping[str, Field], types: object) -> list[object]:
    """Return the dtype of each column: the dataset's, unless `types` names it, its observation or its space."""
    if types is not None and not isinstance(types, Mapping):
        raise TypeError(f"For '{call}', 'types' must be a dict of dtypes by column, but got {types!r}.")
    by_name: Mapping[str, object] = types or {}
    left, wanted = set(by_name), []
    for name, (_, dtype) in fields.items():
        plain = name.removeprefix("next_")
        key = next((key for key in (name, plain, plain.split(".")[0]) if key in by_name), None)
        wanted.append(by_name[key] if key is not None else "bfloat16" if dtype == BFLOAT16 else dtype.name)
        left.discard(key)
    if left:
        raise ValueError(f"For '{call}', 'types' must name columns of {list(fields)}, but got {sorted(left)}.")
    return wanted


def check_buffer(call: str, buffer: object, attached: bool = False) -> None:
    """Raise a TypeError unless rows can be read from a buffer, or written into it if one that is `attached` will do."""
    if not isinstance(buffer, (LocalBuffer, AttachedBuffer) if attached else LocalBuffer):
        way_out = ": its learner can write it" if isinstance(buffer, AttachedBuffer) else ""
        raise TypeError(
            f"For '{call}', 'buffer' must be a buffer of mindspore_replay or mindspore_replay.host, but got "
            f"{type(buffer).__module__}.{type(buffer).__name__}{way_out}."
        )


def column_fields(columns: Schema) -> dict[str, Field]:
    """Return the columns of a buffer by name, as datasets have them."""
    types = (BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in columns.dtypes)
    return dict(zip(columns.names, zip(columns.shapes, types)))


def check_one_length(call: str, columns: Schema) -> None:
    """Raise a ValueError if rows differ in length."""
    if groups := columns.length_groups:
        raise ValueError(
            f"For '{call}', the rows of a buffer must have one length, but those of {groups[0].name!r} differ: "
            "use an npz file, which from_npz reads into such a buffer."
        )


def check_given(call: str, buffer: Any, types: object, arguments: Mapping[str, Any]) -> None:
    """Raise an error if a buffer cannot be filled, or was passed with arguments for a new one."""
    check_buffer(call, buffer, attached=True)
    superfluous = sorted(key for key, value in {**arguments, "types": types}.items() if value is not None)
    if superfluous:
        raise TypeError(f"For '{call}', with 'buffer' there must be no arguments of a new one, but got {superfluous}.")
    if buffer.num_envs != 1:
        raise ValueError(
            f"For '{call}', 'buffer' must be made with num_envs=1, since episodes come one after the other, but got "
            f"{buffer.num_envs}."
        )


def match(call: str, source: Dataset, buffer: Any) -> dict[str, str]:
    """Return the dataset's column for each of a buffer: of the same name, or an observation's without its prefix."""
    fields = source.transitions
    names = {name: name for name in fields}
    for name in source.observations:
        path = name.partition(".")[2]
        if path:
            names.setdefault(path, name)
            names.setdefault(f"next_{path}", f"next_{name}")
    columns = buffer.spec.columns.names
    missing = [name for name in columns if name not in names]
    if missing:
        raise ValueError(
            f"For '{call}', {source.label} must have each column of the buffer, but got none for {missing}; it has "
            f"{list(fields)}."
        )
    achieved = buffer.achieved_goal
    if achieved is not None and f"next_{names[achieved]}" in fields:  # goals are achieved in the state after the action
        names[achieved] = f"next_{names[achieved]}"
    return {name: names[name] for name in columns}


def choose(call: str, source: Dataset, episodes: Episodes) -> np.ndarray | None:
    """Return the episodes that `episodes` selects, bool ``[n]``, or ``None`` for all."""
    if episodes is None:
        return None
    count = len(source.length)
    episodes = episodes(source.table()) if source.table and callable(episodes) else episodes
    chosen = np.zeros(count, np.bool_)
    if not isinstance(episodes, slice):
        episodes = np.asarray(episodes)
        if episodes.ndim != 1 or (episodes.size and episodes.dtype.kind not in "biu"):
            raise TypeError(
                f"For '{call}', 'episodes' must be a slice, ints, one bool for each episode, or a function that gives "
                f"these, but got {episodes!r}."
            )
        episodes = episodes if episodes.size else episodes.astype(np.int64)
    try:
        chosen[episodes] = True
    except IndexError:
        raise IndexError(
            f"For '{call}', 'episodes' must name episodes of the {count} in {source.label}, but got {episodes!r}."
        ) from None
    if not chosen.any():
        raise ValueError(f"For '{call}', 'episodes' must name at least one of the {count} in {source.label}.")
    return chosen


def fit(call: str, label: str, name: str, array: np.ndarray, field: Field) -> np.ndarray:
    """Cast and reshape an array to a column.

    The dtype must be one that the column holds, and shapes may differ in axes of length 1 only.
    """
    shape, dtype = field
    if _long_axes(array.shape[1:]) != _long_axes(shape):
        raise ValueError(
            f"For '{call}', {name!r} of {label} must have rows of shape {shape}, but got {array.shape[1:]}."
        )
    array = array.reshape(len(array), *shape)
    if array.dtype == dtype:
        return array
    array, column = numbers_of(array), "bfloat16" if dtype == BFLOAT16 else dtype.name
    if not holds(column, array.dtype.name):
        raise TypeError(
            f"For '{call}', {name!r} of {label} must have a dtype that {column} holds, but got {array.dtype}."
        )
    return cast(array, column, dtype, f"For '{call}', {name!r} of {label} must fit {column}, but got")


def _long_axes(shape: Sequence[int]) -> list[int]:
    return [axis for axis in shape if axis != 1]
