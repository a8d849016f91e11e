"""Descriptions of buffers as JSON: their classes and the arguments of their constructors."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import nn

from ..buffers.base import Buffer
from ..buffers.mixed import MixedReplay
from ..buffers.parameters import overwrite
from ..config.configuration import BUFFER_TYPES
from ..store.folder import Folder, open_as_learner
from ..store.folder_header import bad_folder
from ..store.library import KernelError
from ..store.recipe.arguments import KeepsArguments, given_arguments
from ..store.recipe.frame_stack import FrameStack
from ..store.recipe.n_step import NStep
from ..store.schema import given_type_name
from ..training.limiter import RateLimiter
from .file_format import check_description, summary

_MIXED = {MixedReplay.__name__: MixedReplay}
_BUFFERS = {cls.__name__: cls for cls in BUFFER_TYPES.values()}
_VIEWS: dict[str, Any] = {cls.__name__: cls for cls in (NStep, FrameStack)}
#: Arguments that are stored elsewhere or not at all: a saved random state replaces the seed.
_LEFT_OUT = ("self", "capacity", "seed", "storage", "backend")


class _NotWrittenError(Exception):
    """An argument that cannot be written to a file."""


def describe(buffers: Any, in_folders: bool = False) -> dict[str, Any]:
    """Describe how to make such buffers; for those that cannot be made from a file, give the reason.

    With `in_folders`, one in a folder stays there: the description names the folder.
    """
    if isinstance(buffers, Buffer) and in_folders and buffers.folder is not None:
        return {"class": type(buffers).__name__, "folder": os.fspath(buffers.folder)}
    if isinstance(buffers, Buffer):
        limits = isinstance(buffers.limiter, RateLimiter)
        limiter = {"limiter": {"timeout": buffers.limiter.timeout}} if limits else {}
        arguments = _arguments(buffers, _BUFFERS)
        return {"class": type(buffers).__name__, "capacity": buffers.capacity, **limiter, **arguments}
    if isinstance(buffers, MixedReplay):
        sources = [describe(source, in_folders) for source in buffers.sources]
        return {"class": type(buffers).__name__, "sources": sources, **_arguments(buffers, _MIXED)}
    if isinstance(buffers, Mapping):
        return {"dict": {name: describe(part, in_folders) for name, part in buffers.items()}}
    return {"list": [describe(part, in_folders) for part in buffers]}


def build(description: Any, capacity: int | None, backend: str) -> Any:
    """Make buffers from their description. Errors are those of the constructors, or name what is malformed."""
    if "dict" in description:
        buffers = {name: build(part, None, backend) for name, part in description["dict"].items()}
        for name, part in buffers.items():
            if isinstance(part, nn.CellList):
                part.update_parameters_name(f"{name}.")  # as `create_buffer` does
        return buffers
    if "list" in description:
        return nn.CellList([build(part, None, backend) for part in description["list"]])
    if "folder" in description:
        raise ValueError(
            f"the rows of its {description['class']} are in the folder {description['folder']}: "
            f"{description['class']}.open opens that"
        )
    if "reason" in description:
        raise ValueError(
            f"it has no arguments to make the buffer with, since {description['reason']}: make it as it was made for "
            "saving, and give it as 'buffer'"
        )
    arguments = {key: _decoded(value) for key, value in description["arguments"].items()}
    if description["class"] == MixedReplay.__name__:
        sources = [build(part, None, backend) for part in description["sources"]]
        ratios = arguments.pop("ratios")
        if len(ratios) != len(sources):
            raise ValueError(f"{len(ratios)} ratios for {len(sources)} sources")
        return MixedReplay(list(zip(sources, ratios)), seed=0, **arguments)
    if capacity is None:
        capacity = description["capacity"]
    elif arguments.get("window") is not None:
        arguments["window"] = min(arguments["window"], capacity)
    buffer = _BUFFERS[description["class"]](capacity=capacity, seed=0, backend=backend, **arguments)
    if "limiter" in description:
        buffer.limiter = RateLimiter(1, 1, 1, **description["limiter"])  # its rule is a part of its state
    return buffer


def describe_in_folder(buffer: Buffer) -> dict[str, Any]:
    """Describe a buffer for its folder, without views that cannot be written."""
    description = describe(buffer)
    if "reason" in description:
        views = {"views": description["reason"]}
        description = {key: description[key] for key in ("class", "capacity")}
        description |= _arguments(buffer, _BUFFERS, left_out=("views",)) | views
    return description


def open_buffer(path: str | os.PathLike[str], cls: type, views: Sequence[Any] | None) -> Any:
    """Open the buffer in a folder, as `Buffer.open` does."""
    function = f"{cls.__name__}.open"
    with contextlib.ExitStack() as stack:
        folder = open_as_learner(path, function)
        stack.callback(folder.close)
        description = folder.header.description
        try:
            check_description(folder.path, description)
        except ValueError:
            raise bad_folder(function, folder.path, "does not describe a buffer") from None
        if "reason" in description:
            raise ValueError(f"For '{function}', {folder.path} can only be attached to, since {description['reason']}.")
        if description.get("class") not in _BUFFERS or not issubclass(_BUFFERS[description["class"]], cls):
            raise bad_folder(function, folder.path, f"holds a {summary(description)}")
        arguments = {key: _decoded(value) for key, value in description["arguments"].items()}
        if views is not None:
            arguments["views"] = views
        elif "views" in description:
            raise ValueError(
                f"For '{function}', 'views' must be those that the buffer in {folder.path} was made with, since "
                f"{description['views']}."
            )
        try:
            buffer = _BUFFERS[description["class"]](
                capacity=description["capacity"], seed=0, storage=folder, **arguments
            )
            buffer.check_valid()
            if folder.arrays["shared.limited"][0]:
                buffer.limiter = _limiter_in(folder)
        except (ArithmeticError, AttributeError, KernelError, LookupError, TypeError, ValueError) as error:
            raise bad_folder(function, folder.path, f"is damaged: {error}") from error
        folder.arrays["shared.closed"][0] = 0
        stack.pop_all()
    return buffer


def _limiter_in(folder: Folder) -> RateLimiter:
    """Return a limiter with the rule and the counts in a folder; raise a ValueError if they are none."""
    limiter, rule, counts = RateLimiter(1, 1, 1), folder.arrays["shared.rule"], folder.arrays["shared.counts"]
    limiter.check_state(rule, counts)
    overwrite(limiter.rule, rule)
    overwrite(limiter.counts, counts)
    return limiter


def _arguments(made: KeepsArguments, classes: Mapping[str, Any], left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    name = type(made).__name__
    try:
        if classes.get(name) is not type(made):
            raise _NotWrittenError(f"{name} is no class of mindspore_replay")
        left_out = (*_LEFT_OUT, *left_out)
        given = {key: value for key, value in given_arguments(made).items() if key not in left_out}
        if "parts" in given:
            given["ratios"] = tuple(ratio for _, ratio in given.pop("parts"))
        return {"arguments": {key: _encoded(value) for key, value in given.items()}}
    except _NotWrittenError as reason:
        return {"reason": str(reason)}


def _encoded(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if type(value) in _VIEWS.values():
        arguments = {key: _encoded(item) for key, item in given_arguments(value).items()}
        return {"view": type(value).__name__, "arguments": arguments}
    if hasattr(value, "apply_to"):
        raise _NotWrittenError(f"{type(value).__name__} holds what no file can: Python code")
    return given_type_name(value)


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict):
        return _VIEWS[value["view"]](**{key: _decoded(item) for key, item in value["arguments"].items()})
    return value
