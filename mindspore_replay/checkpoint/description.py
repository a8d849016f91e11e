"""Descriptions of buffers as JSON: their classes and the arguments of their constructors."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from mindspore import Parameter, nn

from ..arguments import KeepsArguments, given_arguments
from ..buffers.base import Buffer
from ..buffers.mixed import MixedReplay
from ..config.configuration import BUFFER_TYPES
from ..store.checks import MAX_CAPACITY
from ..store.schema import given_type_name
from ..store.state import is_by_slot
from ..training.limiter import RateLimiter
from ..views.frame_stack import FrameStack
from ..views.n_step import NStep
from .file_format import damaged

_MIXED = {MixedReplay.__name__: MixedReplay}
_BUFFERS = {cls.__name__: cls for cls in BUFFER_TYPES.values()}
_VIEWS: dict[str, Any] = {cls.__name__: cls for cls in (NStep, FrameStack)}
_DEEPEST = 100  # nesting of lists
#: Arguments that are stored elsewhere or not at all: a saved random state replaces the seed.
_LEFT_OUT = ("self", "capacity", "seed", "backend")


class Part(NamedTuple):
    """A Cell whose own state is saved: a buffer, or a `MixedReplay` without its sources.

    Args:
        prefix (str): Prefix of the names of its arrays.
        cell (Any): The Cell.
    """

    prefix: str
    cell: Any

    @property
    def is_buffer(self) -> bool:
        """True for a buffer, False for a `MixedReplay`."""
        return isinstance(self.cell, Buffer)

    def state(self) -> dict[str, Parameter]:
        """Return the Parameters of the state by name."""
        return self.cell.state_parameters()

    def row_keys(self) -> set[str]:
        """Return the keys of the arrays with one row a slot."""
        return {key for key in self.state() if self.is_buffer and is_by_slot(key)}


class _NotWrittenError(Exception):
    """An argument that cannot be written to a file."""


def parts_of(function: str, buffers: Any) -> list[Part]:
    """Return the parts of a buffer, a `MixedReplay`, or a dict or list of them."""
    cells = list(_cells(function, buffers))
    if len({id(cell) for cell in cells}) < len(cells):
        raise ValueError(f"For '{function}', 'buffer' must hold each buffer once, but one comes twice.")
    if cells == [buffers] and isinstance(buffers, Buffer):
        return [Part("", buffers)]
    return [Part(f"{i}.", cell) for i, cell in enumerate(cells)]


def _cells(function: str, buffers: Any) -> Iterator[Any]:
    if isinstance(buffers, Buffer):
        yield buffers
    elif isinstance(buffers, MixedReplay):
        yield buffers
        yield from buffers.sources
    elif isinstance(buffers, (Mapping, nn.CellList)) and len(buffers) > 0:
        for name in buffers if isinstance(buffers, Mapping) else ():
            if not isinstance(name, str):
                raise TypeError(f"For '{function}', the keys of 'buffer' must be strings, but got {name!r}.")
        for part in buffers.values() if isinstance(buffers, Mapping) else buffers:
            yield from _cells(function, part)
    else:
        raise TypeError(
            f"For '{function}', 'buffer' must be a buffer, a MixedReplay, or a dict or CellList of them, but got "
            f"{type(buffers).__name__}."
        )


def describe(buffers: Any) -> dict[str, Any]:
    """Describe how to make such buffers; for those that cannot be made from a file, give the reason."""
    if isinstance(buffers, Buffer):
        limiter = {} if buffers.limiter is None else {"limiter": {"timeout": buffers.limiter.timeout}}
        arguments = _arguments(buffers, _BUFFERS)
        return {"class": type(buffers).__name__, "capacity": buffers.capacity, **limiter, **arguments}
    if isinstance(buffers, MixedReplay):
        sources = [describe(source) for source in buffers.sources]
        return {"class": type(buffers).__name__, "sources": sources, **_arguments(buffers, _MIXED)}
    if isinstance(buffers, Mapping):
        return {"dict": {name: describe(part) for name, part in buffers.items()}}
    return {"list": [describe(part) for part in buffers]}


def descriptions(description: Any) -> list[dict[str, Any]]:
    """Return the descriptions of the parts, in the order of `parts_of`."""
    if "class" in description:
        return [description, *(node for source in description.get("sources", []) for node in descriptions(source))]
    parts = description["dict"].values() if "dict" in description else description["list"]
    return [node for part in parts for node in descriptions(part)]


def check_description(path: Any, description: Any, depth: int = 0) -> None:
    """Raise a ValueError if a description is malformed."""
    kinds = ("class", "dict", "list")
    kind = [key for key in kinds if isinstance(description, dict) and key in description]
    parts: Any = []
    if len(kind) == 1 and depth < _DEEPEST:
        value = description[kind[0]]
        parts = description.get("sources", []) if kind == ["class"] else value
        right = {"class": str, "dict": dict, "list": list}[kind[0]]
        if value and isinstance(value, right) and isinstance(parts, (list, dict)) and _describes_one(description):
            for part in parts.values() if isinstance(parts, dict) else parts:
                check_description(path, part, depth + 1)
            return
    raise damaged(path, f"describes no buffer: {str(description)[:200]}")


def _describes_one(description: dict[str, Any]) -> bool:
    """Return True if the description of a single Cell can make it, or says why not."""
    if "class" not in description:
        return True
    known = isinstance(description.get("reason"), str) or (
        isinstance(description.get("arguments"), dict) and description["class"] in {**_BUFFERS, **_MIXED}
    )
    capacity = description.get("capacity", 0)
    return known and type(capacity) is int and ("sources" in description or 0 < capacity <= MAX_CAPACITY)


def same_kind(first: Any, second: Any) -> bool:
    """Return True if two descriptions name the same classes in the same order."""
    if first.keys() != second.keys() and not {"class"} <= first.keys() & second.keys():
        return False
    if "dict" in first:
        names = [list(each["dict"]) for each in (first, second)]
        pairs = zip(first["dict"].values(), second["dict"].values())
        return names[0] == names[1] and all(same_kind(*pair) for pair in pairs)
    key = "list" if "list" in first else "sources"
    parts = [each.get(key, []) for each in (first, second)]
    return (
        first.get("class") == second.get("class")
        and len(parts[0]) == len(parts[1])
        and all(same_kind(*pair) for pair in zip(*parts))
    )


def summary(description: Any) -> str:
    """Return a short form of a description, for errors."""
    if "dict" in description:
        return "{" + ", ".join(f"{name!r}: {summary(part)}" for name, part in description["dict"].items()) + "}"
    if "list" in description:
        return "[" + ", ".join(map(summary, description["list"])) + "]"
    sources = [summary(source) for source in description.get("sources", [])]
    return description["class"] + (f"({', '.join(sources)})" if sources else "")


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


def _arguments(made: KeepsArguments, classes: Mapping[str, Any]) -> dict[str, Any]:
    name = type(made).__name__
    try:
        if classes.get(name) is not type(made):
            raise _NotWrittenError(f"{name} is no class of mindspore_replay")
        given = {key: value for key, value in given_arguments(made).items() if key not in _LEFT_OUT}
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
