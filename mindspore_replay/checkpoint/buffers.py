"""Saves buffers to files, and makes or fills those of a file."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..store.base.checks import check_size
from ..store.faces.local import LocalBuffer
from ..store.faces.mixture import MixedReplay
from ..store.kernels import state
from ..store.kernels.memory import memory_limit
from ..store.spec.arguments import decoded_arguments, encoded, given_arguments
from ..store.spec.described import read
from ..store.waits.limiter import RateLimiter
from .file_format import MIXTURE, check_description, named_descriptions, summary
from .files import Source, open_source
from .loading import check_same, load_parts
from .saving import Part, save_parts

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
            return self.find(cls_name)(list(zip(sources, arguments.pop("ratios"), strict=True)), **arguments)
        if capacity is None:
            capacity = description["capacity"]
        elif arguments.get("window") is not None:
            arguments["window"] = min(arguments["window"], capacity)
        buffer = self.find(cls_name)(capacity=capacity, seed=0, **arguments, **self.place)
        if "limiter" in description:  # its rule is a part of its state
            buffer.limiter = self.find("RateLimiter")(1, 1, 1, **description["limiter"])
        return buffer


def save(buffer: object, path: str | os.PathLike[str], *, progress: bool = False) -> None:
    """Write a buffer to a file for `load`: rows, priorities, counters and random state.

    Save between calls of compiled graphs: calls from Python wait until the file is written, graphs do not. The new file
    replaces the old one once it is complete and on the disk, so the process may be killed at any time. Columns are
    written without a copy.

    Args:
        buffer (Union[Cell, dict, list, CellList]): A buffer, a `MixedReplay`, or a dict, list or ``CellList`` of them
            as `create_buffer` makes.
        path (Union[str, PathLike]): The file. Its format is safetensors. ``docs/checkpoints.md`` describes it.
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
    description, parts = contents_of("save", buffer)
    save_parts(parts, path, description, progress=progress)


def load_buffers(
    maker: Maker, path: str | os.PathLike[str], buffer: object, capacity: int | None, progress: bool
) -> object:
    """Make the buffers of a file, or load its state into `buffer`, as `mindspore_replay.load` does."""
    if capacity is not None:
        check_size("load", "capacity", capacity)
        if buffer is not None:
            raise ValueError(f"For 'load', 'capacity' must be None where 'buffer' is given, but got {capacity}.")
    with open_source(path) as source:
        new = buffer is None
        buffer = _made(maker, source, capacity) if new else buffer
        description, parts = contents_of("load", buffer)
        check_same(source, description)
        load_parts(source, parts, new=new, progress=progress)
    return buffer


def _made(maker: Maker, source: Source, capacity: int | None) -> Any:
    """Return new buffers as the file describes them."""
    description = source.header.description
    check_description(source.path, description)
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
    for _, node in named_descriptions(description):
        if "arguments" in node and node["class"] != MIXTURE:
            spec = read(node)
            compressed = {f"column.{spec.columns.names[i]}" for i in spec.columns.compressed}
            for key, (shape, dtype) in state.layout(spec.columns, spec.options).items():
                if key not in compressed:
                    nbytes += math.prod(shape) * spec.columns.numpy_type(dtype).itemsize
            nbytes = nbytes * (capacity or spec.capacity) // spec.capacity  # it is given for one buffer alone
    if nbytes > most:
        raise ValueError(f"it would have {nbytes} bytes, and there is memory for {most}: give a 'capacity'")


def contents_of(function: str, buffers: object, in_folders: bool = False) -> tuple[dict[str, Any], list[Part]]:
    """Return how to make a buffer, a mixture, or a dict or list of them, or why no file can say it; and their parts.

    With `in_folders`, one in a folder stays there: the description names the folder.
    """
    description, owners = _contents_of(function, buffers, in_folders)
    if len({id(owner) for owner in owners}) < len(owners):
        raise ValueError(f"For '{function}', 'buffer' must contain each buffer once, but one occurs twice.")
    if isinstance(buffers, LocalBuffer):
        return description, [Part("", buffers, True)]
    return description, [Part(f"{i}.", owner, isinstance(owner, LocalBuffer)) for i, owner in enumerate(owners)]


def _contents_of(function: str, buffers: Any, in_folders: bool) -> tuple[dict[str, Any], list[Any]]:
    """Return the description, and the buffers and mixtures."""
    several: list[Any] = list(buffers) if hasattr(buffers, "append") else []  # as a CellList has it
    if isinstance(buffers, MixedReplay):
        several = list(buffers.sources)
    elif isinstance(buffers, Mapping):
        if wrong := [name for name in buffers if not isinstance(name, str)]:
            raise TypeError(f"For '{function}', the keys of 'buffer' must be strings, but got {wrong[0]!r}.")
        several = list(buffers.values())
    elif isinstance(buffers, LocalBuffer):
        return _described(buffers, in_folders), [buffers]
    if not several:
        raise TypeError(
            f"For '{function}', 'buffer' must be a buffer, a MixedReplay, or a dict, list or CellList of them, but got "
            f"{type(buffers).__name__}."
        )
    found = [_contents_of(function, one, in_folders) for one in several]
    descriptions, owners = [one for one, _ in found], [owner for _, own in found for owner in own]
    if isinstance(buffers, MixedReplay):
        if type(buffers).__name__ == MIXTURE:
            arguments = given_arguments(buffers)
            arguments["ratios"] = [ratio for _, ratio in arguments.pop("parts")]
            more: dict[str, Any] = {"arguments": {k: encoded(value) for k, value in arguments.items()}}
        else:
            more = {"reason": f"{type(buffers).__name__} is no class of mindspore_replay"}
        return {"class": type(buffers).__name__, "sources": descriptions, **more}, [buffers, *owners]
    if isinstance(buffers, Mapping):
        return {"dict": dict(zip(buffers, descriptions))}, owners
    return {"list": descriptions}, owners


def _described(buffer: LocalBuffer, in_folders: bool) -> dict[str, Any]:
    """Return the description of one buffer."""
    if in_folders and buffer.folder is not None:
        return {"class": type(buffer).__name__, "folder": os.fspath(buffer.folder)}
    limiter = buffer.limiter
    limits = {"limiter": {"timeout": limiter.timeout}} if isinstance(limiter, RateLimiter) else {}
    return {**buffer.spec.to_json(), **limits}
