"""Saves buffers to files, and makes or fills those of a file."""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from ..store.base.checks import check_bool, check_size
from ..store.faces.mixture import MixedRecipe
from ..store.kernels import state
from ..store.kernels.memory import memory_limit
from ..store.spec.arguments import decoded_arguments, encoded, given_arguments
from ..store.spec.described import read
from ..store.waits.limiter import RateLimiter
from .file_format import MIXTURE, check_description, descriptions, summary
from .loading import load_parts
from .parts import Part, is_buffer
from .saving import save_parts
from .sources import Source, open_sources

#: Arguments that no file may give: where rows are, and what computes.
_CHOSEN_HERE = {"storage", "backend"}


class Maker(NamedTuple):
    """Makes buffers for `load`: Cells, or buffers on arrays.

    Args:
        find (Callable): Returns the class of a name.
        list_of (Callable): Makes a list of buffers from its name in a dict, or ``""``.
        place (dict): More arguments for each buffer.
    """

    find: Callable[[str], Any]
    list_of: Callable[[Sequence[Any], str], Any]
    place: dict[str, Any]

    def make(self, description: Mapping[str, Any], capacity: int | None = None, name: str = "") -> Any:
        """Make buffers from their description. Errors are those of the constructors, or name what is malformed."""
        if "dict" in description:
            return {name: self.make(part, None, name) for name, part in description["dict"].items()}
        if "list" in description:
            return self.list_of([self.make(part) for part in description["list"]], name)
        cls_name = description["class"]
        if "folder" in description:
            raise ValueError(
                f"the rows of its {cls_name} are in the folder {description['folder']}: {cls_name}.open opens that"
            )
        if "reason" in description:
            raise ValueError(
                f"it has no arguments to make the buffer with, since {description['reason']}: make it as it was made "
                "for saving, and give it as 'buffer'"
            )
        arguments = decoded_arguments(description["arguments"])
        if chosen := sorted(_CHOSEN_HERE & arguments.keys()):
            raise ValueError(f"it names {chosen}, which only the program may choose")
        if cls_name == MIXTURE:
            sources = [self.make(part) for part in description["sources"]]
            return self.find(cls_name)(list(zip(sources, arguments.pop("ratios"), strict=True)), seed=0, **arguments)
        if capacity is None:
            capacity = description["capacity"]
        elif arguments.get("window") is not None:
            arguments["window"] = min(arguments["window"], capacity)
        buffer = self.find(cls_name)(capacity=capacity, seed=0, **arguments, **self.place)
        if "limiter" in description:  # its rule is a part of its state
            buffer.limiter = self.find("RateLimiter")(1, 1, 1, **description["limiter"])
        return buffer


def save(buffer: object, path: str | os.PathLike[str], *, incremental: bool = False, progress: bool = False) -> None:
    """Write a buffer to a file for `load`: rows, priorities, counters and random state.

    Save between calls of compiled graphs: calls from Python wait until the file is written, graphs do not. The new file
    replaces the old one once it is complete and on the disk, so the process may be killed at any time. Columns are
    written without a copy.

    Args:
        buffer (Union[Cell, dict, list, CellList]): A buffer, a `MixedReplay`, or a dict, list or ``CellList`` of them
            as `create_buffer` makes.
        path (Union[str, PathLike]): The file. Its format is safetensors. ``docs/checkpoints.md`` describes it.
        incremental (bool): Whether to write only rows inserted or updated since the last save of this buffer to this
            path, to another file: ``<path>.1``, ``<path>.2`` and so on. All rows are written if there was no such save,
            the buffer was loaded since, or the incremental files would together exceed the full file. Changes made
            directly through ``.buffer`` are not detected. Default: ``False``.
        progress (bool): Whether to show a progress bar. Requires tqdm. Default: ``False``.

    Raises:
        TypeError: If `buffer` is no buffer, or an argument is of another type.
        ValueError: If `buffer` contains a buffer twice.
        RuntimeError: If the buffer changed while it was written.
        OSError: If the file cannot be written. After any error the old file is unchanged.
        ImportError: If `progress` is asked for and tqdm is not installed.

    Examples:
        >>> import tempfile
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReplayBuffer, load, save
        >>> buffer = ReplayBuffer(sample_size=3, capacity=100, shapes=[()], types=[ms.int32], seed=0)
        >>> buffer = buffer.insert([np.arange(50, dtype=np.int32)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(buffer, f"{folder}/buffer.safetensors")
        ...     again = load(f"{folder}/buffer.safetensors")
        >>> print(again.size(), *again.sample(), *buffer.sample())
        50 [32 35 19] [32 35 19]
    """
    check_bool("save", "incremental", incremental)
    check_bool("save", "progress", progress)
    save_parts(parts_of("save", buffer), path, describe(buffer), incremental=incremental, progress=progress)


def load_buffers(
    maker: Maker, path: str | os.PathLike[str], buffer: object, capacity: int | None, progress: bool
) -> object:
    """Make the buffers of a file, or load its state into `buffer`, as `mindspore_replay.load` does."""
    check_bool("load", "progress", progress)
    if capacity is not None:
        check_size("load", "capacity", capacity)
        if buffer is not None:
            raise ValueError(f"For 'load', 'capacity' must be None where 'buffer' is given, but got {capacity}.")
    with contextlib.ExitStack() as stack:
        sources = open_sources(path, stack)
        check_description(sources[0].path, sources[-1].header.description)
        new = buffer is None
        if new:
            buffer = _made(maker, sources[-1], capacity)
        load_parts(sources, parts_of("load", buffer), describe(buffer), new=new, progress=progress)
    return buffer


def _made(maker: Maker, source: Source, capacity: int | None) -> Any:
    """Return new buffers as the file describes them."""
    description = source.header.description
    if capacity is not None and ("class" not in description or description["class"] == MIXTURE):
        raise ValueError(
            f"For 'load', 'capacity' must be None for a file with several buffers, {summary(description)}, but got "
            f"{capacity}. Make them with the capacities you want and give them as 'buffer'."
        )
    try:
        _check_memory(description, capacity)
        return maker.make(description, capacity)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"For 'load', no buffer can be made from {source.path}: {error}") from error


def _check_memory(description: dict[str, Any], capacity: int | None) -> None:
    """Raise a ValueError if buffers would not fit in memory, as a file of a few bytes can ask for."""
    nbytes, most = 0, memory_limit()
    for node in descriptions(description):
        if "arguments" in node and node["class"] != MIXTURE:
            spec = read(node)
            compressed = {f"column.{spec.columns.names[i]}" for i in spec.columns.compressed}
            for key, (shape, dtype) in state.layout(spec.columns, spec.options).items():
                if key not in compressed:
                    nbytes += math.prod(shape) * spec.columns.numpy_type(dtype).itemsize
            nbytes = nbytes * (capacity or spec.capacity) // spec.capacity  # it is given for one buffer alone
    if nbytes > most:
        raise ValueError(f"it would have {nbytes} bytes, and there is memory for {most}: give a 'capacity'")


def describe(buffers: object, in_folders: bool = False) -> dict[str, Any]:
    """Describe how to make such buffers, or why they cannot be made from a file.

    With `in_folders`, one in a folder stays there: the description names the folder.
    """
    cls_name = type(buffers).__name__
    if is_buffer(buffers):
        if in_folders and buffers.folder is not None:
            return {"class": cls_name, "folder": os.fspath(buffers.folder)}
        limiter = buffers.limiter
        limits = {"limiter": {"timeout": limiter.timeout}} if isinstance(limiter, RateLimiter) else {}
        return {**buffers.spec.to_json(), **limits}
    if is_mixture(buffers):
        sources = [describe(source, in_folders) for source in buffers.sources]
        return {"class": cls_name, "sources": sources, **_arguments_of(buffers)}
    if isinstance(buffers, Mapping):
        return {"dict": {name: describe(part, in_folders) for name, part in buffers.items()}}
    assert _is_list(buffers)
    return {"list": [describe(part, in_folders) for part in buffers]}


def _arguments_of(mixed: object) -> dict[str, Any]:
    """Return the arguments of a mixture, or the reason why a file cannot contain them."""
    if type(mixed).__name__ != MIXTURE:
        return {"reason": f"{type(mixed).__name__} is no class of mindspore_replay"}
    given = given_arguments(mixed)
    given["ratios"] = [ratio for _, ratio in given.pop("parts")]
    return {"arguments": {key: encoded(value) for key, value in given.items() if key != "seed"}}


def is_mixture(buffer: object) -> TypeGuard[MixedRecipe]:
    """Return True if an object draws from several buffers."""
    return isinstance(buffer, MixedRecipe)


def _is_list(buffers: object) -> TypeGuard[Sequence[object]]:
    return hasattr(buffers, "append")  # as a CellList has it


def parts_of(function: str, buffers: object) -> list[Part]:
    """Return the parts of a buffer, a `MixedReplay`, or a dict or list of them."""
    owners = list(_owners(function, buffers))
    if len({id(owner) for owner in owners}) < len(owners):
        raise ValueError(f"For '{function}', 'buffer' must contain each buffer once, but one occurs twice.")
    if is_buffer(buffers):
        return [Part("", buffers, True)]
    return [Part(f"{i}.", owner, is_buffer(owner)) for i, owner in enumerate(owners)]


def _owners(function: str, buffers: object) -> Iterator[Any]:
    if is_buffer(buffers):
        yield buffers
    elif is_mixture(buffers):
        yield buffers
        yield from buffers.sources
    elif isinstance(buffers, Mapping) and buffers:
        for name, part in buffers.items():
            if not isinstance(name, str):
                raise TypeError(f"For '{function}', the keys of 'buffer' must be strings, but got {name!r}.")
            yield from _owners(function, part)
    elif _is_list(buffers) and len(buffers):
        for part in buffers:
            yield from _owners(function, part)
    else:
        raise TypeError(
            f"For '{function}', 'buffer' must be a buffer, a MixedReplay, or a dict, list or CellList of them, but got "
            f"{type(buffers).__name__}."
        )
