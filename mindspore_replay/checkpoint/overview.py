"""Overviews of the buffers in files, without making the buffers."""

import os
from typing import Any, NamedTuple

import numpy as np

from ..store.spec.episodes import END, FINAL
from .file_format import check_description, damaged, named_descriptions, sensible
from .files import Source, open_source


class Overview(NamedTuple):
    """One buffer in a file.

    Attributes:
        name (str): Its name in the file, empty for the only one.
        description (dict): Its class, its capacity, and the arguments of its constructor.
        fields (dict[str, tuple]): Dtype and shape of one row of each column, by name, or by number without names.
        state (dict[str, numpy.ndarray]): The state of its rows, oldest first, for a reservoir in the order of slots.
            `statistics_of` takes it.
        returns (numpy.ndarray): Sum of the rewards of each episode that is stored whole, ordered by end. Shape
            ``[episodes]``. There are none of a reservoir, without a column ``reward`` of scalars, or if ends are
            unknown.
        library_version (str): Version of this library that wrote the file.
    """

    name: str
    description: dict[str, Any]
    fields: dict[str, tuple[str, tuple[int, ...]]]
    state: dict[str, np.ndarray]
    returns: np.ndarray
    library_version: str


def overview(path: str | os.PathLike[str]) -> tuple[list[Overview], int]:
    """Return the buffers in a file, and its bytes.

    Args:
        path (Union[str, PathLike]): The file.

    Returns:
        tuple[list[Overview], int]: The buffers, those of a `MixedReplay` by the number of the source, and bytes.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated, altered or of another kind.
    """
    with open_source(path) as source:
        header = source.header
        check_description(source.path, header.description)
        nodes = named_descriptions(header.description)
        is_one = len(nodes) == 1 and "class" in header.description
        with sensible(source.path):
            found = [
                _one(source, "" if is_one else f"{i}.", name, node)
                for i, (name, node) in enumerate(nodes)
                if "capacity" in node
            ]
        return found, header.size + header.nbytes


def _one(source: Source, prefix: str, name: str, node: dict[str, Any]) -> Overview:
    own = {key[len(prefix) :]: entry for key, entry in source.header.entries.items() if key.startswith(prefix)}
    arguments = node.get("arguments", {})
    options = dict(arguments["columns"]["items"]) if isinstance(arguments.get("columns"), dict) else {}
    names = list(options) or arguments.get("names") or []
    labels = {key: key.partition(".")[2] for key in own if key.startswith("column.")}
    unnamed = sorted(labels, key=lambda key: int(labels[key]) if labels[key].isdigit() else 0)
    columns = [f"column.{name}" for name in names] or unnamed
    state = {key: source.array(prefix + key) for key in own if "." not in key}
    state |= {"capacity": np.array(node["capacity"]), "head": np.zeros((), np.int32)}
    if not int(state["count"]) == own[columns[0]].shape[0] <= node["capacity"]:
        defect = f"has {state['count']} rows of {own[columns[0]].shape[0]} in a capacity of {state['capacity']}"
        raise damaged(source.path, defect)
    in_time = "row_serials" not in state
    found = {label: key for key, label in labels.items() if in_time and len(own[key].shape) == 1}
    column = lambda label: source.array(prefix + found[label])  # noqa: E731
    ends = state["flags"] & END > 0 if in_time and "flags" in state else None
    if ends is None and "terminated" in found:
        ends = column("terminated") != 0
        ends |= column("truncated") != 0 if "truncated" in found else False
    returns = np.zeros(0)
    if "reward" in found and ends is not None:
        rewards = column("reward").astype(np.float64)
        if "flags" in state:
            rewards[state["flags"] & FINAL > 0] = 0.0  # rows that hold only an observation
        returns = _returns(rewards, ends, state, arguments.get("num_envs", 1))
    types = [column["arguments"]["dtype"] for column in options.values()] or arguments.get("types")
    types = types or [own[key].dtype for key in columns]  # a bool column is kept as uint8
    fields = {labels[key]: (dtype, own[key].shape[1:]) for key, dtype in zip(columns, types)}
    return Overview(name, node, fields, state, returns, source.header.library_version)


def _returns(rewards: np.ndarray, ends: np.ndarray, state: dict[str, np.ndarray], streams: int) -> np.ndarray:
    found: list[tuple[int, float]] = []
    for stream in range(min(streams, rewards.size)):
        last = np.flatnonzero(ends[stream::streams])
        if last.size:
            first = np.concatenate([[0], last[:-1] + 1])
            totals = np.add.reduceat(rewards[stream::streams][: last[-1] + 1], first)
            # The first episode may have lost its beginning.
            whole = state["steps"][stream] == 0 if "steps" in state else rewards.size == int(state["serials"][0])
            begun = 0 if whole else 1
            found += zip((last * streams + stream)[begun:].tolist(), totals[begun:].tolist())
    return np.array([total for _, total in sorted(found, key=lambda item: item[0])])
