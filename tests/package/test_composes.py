"""The table of docs/sampling.md says truly which options the ways to draw take."""

import inspect

import pytest
from places import ROOT

from mindspore_replay.buffers.making import get_buffer_cls
from mindspore_replay.config.configuration import BUFFER_TYPES
from mindspore_replay.distributed.configuration import whole_spec

SECTION = (ROOT / "docs" / "sampling.md").read_text(encoding="utf-8").split("## What composes")[1].split("##")[0]
HEAD, _, *ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in SECTION.splitlines() if line]
#: Types of a configuration, with the column of each.
COLUMNS = {name: i for i, names in enumerate(HEAD) for name in names.split(", ") if name}


def said(option: str, kind: str) -> bool:
    """Return whether the table says that buffers of a kind take an option."""
    (row,) = (row for row in ROWS if f"`{option}" in row[0] or row[0] == option)
    return row[COLUMNS[kind]].startswith("yes")


@pytest.mark.parametrize("kind", COLUMNS)
def test_options(kind: str):
    taken = inspect.signature(get_buffer_cls({"type": kind}).__init__).parameters
    for option in ("num_envs", "views", "max_use", "max_staleness", "storage"):
        assert said(option, kind) == (option in taken), option
    assert said("late columns", kind) == ("columns" in taken)


@pytest.mark.parametrize("kind", COLUMNS)
def test_shards(kind: str):
    sizes = {"sequence": {"sequence_length": 2}, "episode": {"max_episode_length": 2}, "elastic": {"window": 4}}
    config = {"type": kind, "capacity": 16, "sample_size": 2, "shapes": [()], "types": ["int32"], **sizes.get(kind, {})}
    if said("shards", kind):
        whole_spec(config)
        return
    with pytest.raises(ValueError, match="'type' must"):
        whole_spec(config)


def test_all_types_are_in_the_table():
    assert {BUFFER_TYPES[kind] for kind in COLUMNS} == set(BUFFER_TYPES.values())
