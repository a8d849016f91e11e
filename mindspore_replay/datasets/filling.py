"""Fills buffers with steps: makes the buffer, matches its columns to the dataset's, casts, and inserts in chunks."""

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..checkpoint.files import progress_bar
from ..config.configuration import buffer_class
from ..store.base.casts import cast, holds
from ..store.base.checks import check_size
from ..store.base.schema import given_type_name
from ..store.faces.attached import AttachedBuffer
from ..store.faces.classes import EpisodeReplayBuffer, ReservoirReplayBuffer, SequenceReplayBuffer
from ..store.faces.local import LocalBuffer
from ..store.spec.described import spec_of
from ..store.spec.registry import find
from .steps import BFLOAT16, Episodes, Field, Recording, chunk_rows, chunks, column_fields, numbers_of

#: Warns of steps that were changed, dropped or overwritten.
log = logging.getLogger("mindspore_replay.datasets")

#: Default sample size of a new buffer, if its capacity allows it.
_SAMPLE_SIZE = 256

#: Largest capacity.
_MOST_ROWS = np.iinfo(np.int32).max

#: Rows: which, for each column of a buffer, in its order, the dataset's name and the values, and keywords of `insert`.
Batch = tuple[slice, list[tuple[str, np.ndarray]], dict[str, Any]]


def fill(
    found: Recording,
    buffer: Any,
    episodes: Episodes,
    types: Mapping[str, object] | None,
    progress: bool,
    arguments: dict[str, Any],
) -> Any:
    """Insert the chosen episodes of a dataset into a buffer. ``None`` makes one."""
    call, label = found.call, found.label
    steps = np.repeat(_choose(found, episodes), found.length)
    if buffer is None:
        if not steps.any() and not found.as_stored:
            raise ValueError(f"For '{call}', {label} must have a step in the chosen episodes, but got none.")
        # The goals achieved after the actions are in columns of next observations.
        views = arguments.get("views")
        relabels = isinstance(views, (list, tuple)) and any(hasattr(view, "hindsight") for view in views)
        has_episodes = knows_episodes(arguments)
        whole = relabels or not has_episodes
    else:
        check_given(call, buffer, types, arguments)
        has_episodes = buffer.has_episodes
        whole = any(name.startswith("next_") for name in _match(found, buffer))
    # Rows with next observations; else single observations, with one more row at the end of each episode.
    whole = whole and bool(found.observations)
    single = has_episodes and bool(found.observations) and not whole
    layout = found.layout(steps, whole, single)
    rows, lost = len(layout.source), int(found.lost[steps].sum()) if whole or single else 0
    if buffer is None:
        buffer = _make_buffer(call, found.fields if single else found.transitions, rows, types, arguments)
    names = _match(found, buffer)

    def batches() -> Iterator[Batch]:
        for part in chunks(rows, rows_at_once(buffer)):
            columns = found.read(layout, part, set(names))
            flags = {"end": layout.end[part], "final": layout.final[part]} if buffer.has_episodes else {}
            yield part, [(name, columns[name]) for name in names], flags

    total = rows + lost * whole
    insert(call, label, buffer, batches(), rows, total, progress)
    if lost:
        what = "stored as final rows, which are read but not drawn as single rows:"
        if whole:
            what = "dropped: they are the last of an episode that did not terminate, and"
        text = "%s: %s: %d of %d steps %s their next observation is not in the dataset"
        log.warning(text, call, label, lost, total, what)
    return buffer


def rows_at_once(buffer: Any) -> int:
    """Return how many rows of a buffer to insert or write at once."""
    return chunk_rows([((buffer.spec.columns.row_bytes(),), np.dtype(np.uint8))])


def insert(call: str, label: str, buffer: Any, batches: Iterable[Batch], rows: int, total: int, progress: bool) -> None:
    """Insert so many rows in batches. Warn of rows that are overwritten, of the `total` of the dataset."""
    fields, before = [*column_fields(buffer.spec.columns).values()], int(buffer.size())
    if buffer.has_episodes and before:
        buffer.end_episodes()
    with progress_bar(call, rows, progress, "row", "datasets") as done:
        for part, found, keywords in batches:
            values = [fit(call, label, name, array, field) for (name, array), field in zip(found, fields)]
            buffer.insert(list(map(np.ndarray.view, values, buffer.spec.columns.numpy_types)), **keywords)
            done(part.stop - part.start)
    if (over := before + rows - int(buffer.size())) > 0 and not isinstance(buffer, ReservoirReplayBuffer):
        text = "%s: %s: %d of %d rows overwritten: the buffer has room for %d"
        log.warning(text, call, label, over, total, before + rows - over)


def _make_buffer(
    call: str, fields: Mapping[str, Field], rows: int, types: Mapping[str, object] | None, arguments: dict[str, Any]
) -> Any:
    """Make a buffer for so many rows, of the requested class and arguments. `types` overrides dtypes."""
    arguments = {key: value for key, value in arguments.items() if value is not None}
    buffer_cls = class_of(arguments.pop("buffer_cls", None))
    if taken := sorted({"shapes", "types", "names", "num_envs"} & arguments.keys()):
        raise TypeError(f"For '{call}', {taken} come from the dataset and cannot be given.")
    wanted = _types(call, fields, types)
    arguments = {"shapes": [shape for shape, _ in fields.values()], "types": wanted, "names": list(fields), **arguments}
    if "capacity" not in arguments:
        with contextlib.suppress(TypeError, ValueError):  # those of the constructor below
            outline = {"sample_size": 1, "capacity": _MOST_ROWS, "types": list(map(given_type_name, wanted))}
            rows = max(rows, spec_of(buffer_cls, {**arguments, **outline}).reach)  # of a sample
        arguments["capacity"] = max(1, rows)
    capacity = check_size(call, "capacity", arguments["capacity"])
    window = check_size(call, "sequence_length", arguments.get("sequence_length", 1))
    buffer = buffer_cls(**{"sample_size": max(1, min(_SAMPLE_SIZE, capacity - window + 1)), **arguments})
    check_buffer(call, buffer, attached=True)
    return buffer


def class_of(buffer_cls: type | str | None) -> type:
    """Return the class of a buffer by itself or its name. ``None`` means `mindspore_replay.ReplayBuffer`."""
    return buffer_class({"type": "uniform" if buffer_cls is None else buffer_cls}, find)


def knows_episodes(arguments: Mapping[str, Any]) -> bool:
    """Return True if a buffer of these arguments stores episodes."""
    with_episodes = SequenceReplayBuffer, EpisodeReplayBuffer
    return bool(arguments.get("views")) or issubclass(class_of(arguments.get("buffer_cls")), with_episodes)


def _type_name(dtype: np.dtype) -> str:
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def _types(call: str, fields: Mapping[str, Field], types: object) -> list[object]:
    """Return the dtype of each column: the dataset's, unless `types` names it, its observation or its space."""
    if types is not None and not isinstance(types, Mapping):
        raise TypeError(f"For '{call}', 'types' must be a dict of dtypes by column, but got {types!r}.")
    by_name, used, wanted = types or {}, set(), []
    for name, (_, dtype) in fields.items():
        plain = name.removeprefix("next_")
        key = next((key for key in (name, plain, plain.split(".")[0]) if key in by_name), None)
        wanted.append(_type_name(dtype) if key is None else by_name[key])
        used.add(key)
    if left := sorted(by_name.keys() - used):
        raise ValueError(f"For '{call}', 'types' must name columns of {list(fields)}, but got {left}.")
    return wanted


def check_buffer(call: str, buffer: object, attached: bool = False, any_length: bool = False) -> None:
    """Raise an error unless rows can be read from a buffer, or written into it if one that is `attached` will do.

    Those of `any_length` may differ in it.
    """
    if not isinstance(buffer, (LocalBuffer, AttachedBuffer) if attached else LocalBuffer):
        way_out = ": its learner can write it" if isinstance(buffer, AttachedBuffer) else ""
        raise TypeError(
            f"For '{call}', 'buffer' must be a buffer of mindspore_replay or mindspore_replay.host, but got "
            f"{type(buffer).__module__}.{type(buffer).__name__}{way_out}."
        )
    groups = buffer.spec.columns.length_groups
    if groups and not any_length:
        raise ValueError(
            f"For '{call}', the rows of a buffer must have one length, but those of {groups[0].name!r} differ: "
            "use an npz file, which from_npz reads into such a buffer."
        )


def check_given(call: str, buffer: Any, types: object, arguments: Mapping[str, Any], any_length: bool = False) -> None:
    """Raise an error if a buffer cannot be filled, or was passed with arguments for a new one."""
    check_buffer(call, buffer, True, any_length)
    superfluous = sorted(key for key, value in {**arguments, "types": types}.items() if value is not None)
    if superfluous:
        raise TypeError(f"For '{call}', with 'buffer' there must be no arguments of a new one, but got {superfluous}.")
    if buffer.num_envs != 1:
        raise ValueError(
            f"For '{call}', 'buffer' must be made with num_envs=1, since episodes come one after the other, but got "
            f"{buffer.num_envs}."
        )


def short_name(name: str) -> str:
    """Return an observation's name without ``observation.``, which buffers may leave out."""
    return re.sub(r"^(next_)?observation\.", r"\1", name)


def _match(found: Recording, buffer: Any) -> list[str]:
    """Return the dataset's column for each of a buffer: of the same name, or an observation's without its prefix."""
    columns, transitions = buffer.spec.columns.names, found.transitions
    names = {short_name(name): name for name in transitions} | {name: name for name in transitions}
    if missing := [name for name in columns if name not in names]:
        raise ValueError(
            f"For '{found.call}', {found.label} must have each column of the buffer, but got none for {missing}; it "
            f"has {list(transitions)}."
        )
    achieved = buffer.achieved_goal
    if achieved is not None and (after := f"next_{names[achieved]}") in transitions:
        names[achieved] = after  # goals are achieved in the state after the action
    return [names[name] for name in columns]


def _choose(found: Recording, episodes: Episodes) -> np.ndarray:
    """Return the episodes that `episodes` selects, bool ``[n]``."""
    chosen = np.zeros(count := len(found.length), np.bool_)
    if episodes is None:
        return ~chosen
    wanted: Any = episodes(found.table()) if callable(episodes) else episodes
    if not isinstance(wanted, slice):
        wanted = np.asarray(wanted)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "biu"):
            raise TypeError(
                f"For '{found.call}', 'episodes' must be a slice, ints, one bool for each episode, or a function that "
                f"gives these, but got {wanted!r}."
            )
        wanted = wanted if wanted.size else wanted.astype(np.int64)
    try:
        chosen[wanted] = True
    except IndexError:
        text = f"For '{found.call}', 'episodes' must name episodes of the {count} in {found.label}, but got {wanted!r}."
        raise IndexError(text) from None
    if not chosen.any():
        raise ValueError(f"For '{found.call}', 'episodes' must name at least one of the {count} in {found.label}.")
    return chosen


def fit(call: str, label: str, name: str, array: np.ndarray, field: Field) -> np.ndarray:
    """Cast and reshape an array to a column.

    The dtype must be one that the column holds, and shapes may differ in axes of length 1 only.
    """
    shape, dtype = field
    if [axis for axis in array.shape[1:] if axis != 1] != [axis for axis in shape if axis != 1]:
        raise ValueError(
            f"For '{call}', {name!r} of {label} must have rows of shape {shape}, but got {array.shape[1:]}."
        )
    array = array.reshape(len(array), *shape)
    if array.dtype == dtype:
        return array
    array, column = numbers_of(array), _type_name(dtype)
    if not holds(column, array.dtype.name):
        raise TypeError(
            f"For '{call}', {name!r} of {label} must have a dtype that {column} holds, but got {array.dtype}."
        )
    return cast(array, column, dtype, f"For '{call}', {name!r} of {label} must fit {column}, but got")
