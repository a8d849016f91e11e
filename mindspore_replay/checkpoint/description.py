"""Descriptions of buffers as JSON: their classes and the arguments of their constructors."""

import os
from collections.abc import Mapping
from typing import Any

from mindspore import nn

from ..buffers.base import Buffer
from ..buffers.mixed import MixedReplay
from ..store.recipe.arguments import decoded, encoded, given_arguments
from ..store.recipe.registry import find
from ..training.limiter import RateLimiter


def describe(buffers: Any, in_folders: bool = False) -> dict[str, Any]:
    """Describe how to make such buffers; for those that cannot be made from a file, give the reason.

    With `in_folders`, one in a folder stays there: the description names the folder.
    """
    if isinstance(buffers, Buffer) and in_folders and buffers.folder is not None:
        return {"class": type(buffers).__name__, "folder": os.fspath(buffers.folder)}
    if isinstance(buffers, Buffer):
        given = buffers.limiter
        limiter = {"limiter": {"timeout": given.timeout}} if isinstance(given, RateLimiter) else {}
        return {**buffers.spec.to_json(), **limiter}
    if isinstance(buffers, MixedReplay):
        sources = [describe(source, in_folders) for source in buffers.sources]
        return {"class": type(buffers).__name__, "sources": sources, **_arguments_of(buffers)}
    if isinstance(buffers, Mapping):
        return {"dict": {name: describe(part, in_folders) for name, part in buffers.items()}}
    return {"list": [describe(part, in_folders) for part in buffers]}


def _arguments_of(mixed: MixedReplay) -> dict[str, Any]:
    """Return the arguments of a mixture, or the reason why a file cannot hold them."""
    if type(mixed) is not MixedReplay:
        return {"reason": f"{type(mixed).__name__} is no class of mindspore_replay"}
    given = given_arguments(mixed)
    given["ratios"] = [ratio for _, ratio in given.pop("parts")]
    return {"arguments": {key: encoded(value) for key, value in given.items() if key != "seed"}}


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
    arguments = decoded(description["arguments"])
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
    buffer = find(description["class"])(capacity=capacity, seed=0, backend=backend, **arguments)
    if "limiter" in description:
        buffer.limiter = RateLimiter(1, 1, 1, **description["limiter"])  # its rule is a part of its state
    return buffer
