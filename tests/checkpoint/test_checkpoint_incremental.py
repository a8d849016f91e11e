"""Incremental files: only new rows are written, and together with the first file they restore the buffer."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checkpoint_cases import BUFFERS, RINGS, act, assert_same_state, containers, filled, insert, rows
from flat import flat
from safetensors.numpy import load_file

from mindspore_replay import MixedReplay, PrioritizedReplayBuffer, ReplayBuffer, ReplayQueue, load, save

PATH = "buffer.safetensors"


def files() -> list[str]:
    """Return the files in the folder, as suffixes of the path."""
    return sorted(entry.name.removeprefix(PATH) for entry in Path().iterdir())


def wide(capacity: int = 50, **other: Any) -> PrioritizedReplayBuffer:
    """Return a buffer of long rows, so that a file is hardly larger than its rows."""
    return PrioritizedReplayBuffer(2, capacity, **flat([(500,), ()], ["float32", "int32"], seed=0, **other))


def add(buffer: Any, count: int) -> None:
    first = int(buffer.serials.asnumpy()[0])
    numbers = np.arange(first, first + count, dtype=np.int32)
    buffer.insert([np.repeat(numbers[:, None], 500, 1).astype(np.float32), numbers])


def save_more(buffer: Any, path: str = PATH) -> None:
    save(buffer, path, incremental=True)


# A weighted reservoir compiles a graph for every insertion size, and covers no more than one without weights.
@pytest.mark.slow
@pytest.mark.parametrize("name", [*RINGS, "reservoir"])
def test_random_operations(name: str):
    """After each save the files together restore the buffer, in its capacity and another."""
    generator = np.random.default_rng(5)
    buffer = BUFFERS[name](60, seed=0)
    chains = set()
    for step in range(27):
        for _ in range(generator.integers(0, 4)):
            act(buffer, generator, 12)
        if step % 13 == 12:
            buffer.reset()
        if generator.integers(2) and buffer.can_sample():
            buffer.sample()
        save_more(buffer)
        chains.add(len(files()))
        loaded = load(PATH)
        loaded.check_valid()
        assert_same_state(loaded, buffer)
        if name in RINGS and step % 4 == 0:
            smaller = load(PATH, capacity=15)
            smaller.check_valid()
            stored = int(smaller.size())
            expected = buffer.get_item(range(-stored, 0))[1] if stored else []
            assert list(smaller.get_item(range(stored))[1] if stored else []) == list(expected)
    assert max(chains) > 2
    assert min(chains) == 1


def test_only_new_rows_are_written():
    buffer = wide()
    add(buffer, 45)
    save_more(buffer)
    whole = Path(PATH).stat().st_size
    for count in (4, 0, 8):
        add(buffer, count) if count else None
        save_more(buffer)
    assert files() == ["", ".1", ".2", ".3"]
    arrays = [load_file(name) for name in (PATH, f"{PATH}.1", f"{PATH}.2", f"{PATH}.3")]
    assert [array["column.1"].tolist() for array in arrays] == [
        list(range(45)),
        list(range(45, 49)),
        [],
        list(range(49, 57)),
    ]
    assert arrays[3]["priorities"].shape == (50,)
    assert Path(f"{PATH}.1").stat().st_size < whole / 5
    assert Path(PATH).stat().st_size == whole
    assert_same_state(load(PATH), buffer)


def test_rows_of_a_reservoir():
    """For a reservoir, the rows in slots that changed."""
    buffer = BUFFERS["reservoir"](60, seed=0)
    insert(buffer, 80)
    save_more(buffer)
    insert(buffer, 20)
    save_more(buffer)
    serials = buffer.row_serials.asnumpy()
    new = serials[serials >= 80]
    assert 0 < len(new) < 20
    assert load_file(f"{PATH}.1")["column.reward"].tolist() == new.tolist()


def test_a_new_file_with_all_rows():
    """If the incremental files would become larger, or no row of the old one is left."""
    buffer = wide()
    add(buffer, 30)
    save_more(buffer)
    for _ in range(2):
        add(buffer, 10)
        save_more(buffer)
    assert files() == ["", ".1", ".2"]
    add(buffer, 12)
    save_more(buffer)
    assert files() == [""]
    assert_same_state(load(PATH), buffer)
    buffer.reset()
    add(buffer, 1)
    save_more(buffer)
    assert files() == [""]
    assert load_file(PATH)["column.1"].tolist() == [62]


# Updated rows.

PLACES: dict[str, dict[str, Any]] = {
    "native": {},
    "composite": {"backend": "composite"},
    "host": {"storage": "host"},
    "folder": {"storage": "./rows"},
    "compressed": {"compress": [0]},
}


def updated(buffer: Any, handles: list[int]) -> None:
    """Write other numbers, and rows of which the first number says so."""
    numbers = -np.array(handles, np.int32)
    buffer.update(handles, [np.repeat(numbers[:, None], 500, 1).astype(np.float32), numbers])


@pytest.mark.parametrize("place", PLACES)
def test_updated_rows_are_written_again(place: str):
    """Those in blocks of 16 slots with an updated row, as far as they are older than the last save and still stored."""
    buffer = wide(200, **PLACES[place])
    add(buffer, 150)
    save_more(buffer, "saved")
    updated(buffer, [3, 34, 149, 150])
    save_more(buffer, "saved")
    written = load_file("saved.1")
    assert written["updated"].tolist() == [*range(16), *range(32, 48), *range(144, 150)]
    assert written["column.1"].tolist() == [-i if i in (3, 34, 149) else i for i in written["updated"]]
    assert_same_state(load("saved"), buffer)
    updated(buffer, [5, 20])
    add(buffer, 60)  # the oldest 10 rows are overwritten
    updated(buffer, [5, 205])
    save_more(buffer, "saved")
    written = load_file("saved.2")
    assert written["updated"].tolist() == [*range(10, 32)]
    assert written["column.1"].tolist() == [-i if i in (20, 205) else i for i in [*range(10, 32), *range(150, 210)]]
    updated(buffer, [5])
    save_more(buffer, "saved")
    assert "updated" not in load_file("saved.3")
    assert_same_state(load("saved"), buffer)
    for capacity in (60, 199, 230):
        other = load("saved", capacity=capacity)
        other.check_valid()
        rows_of = [each.get_item(range(-min(capacity, 200), 0)) for each in (other, buffer)]
        for got, expected in zip(*rows_of):
            np.testing.assert_array_equal(got.asnumpy(), expected.asnumpy())


def test_rows_of_a_reservoir_that_a_graph_updates():
    buffer = BUFFERS["reservoir"](60, seed=0)
    insert(buffer, 80)
    save_more(buffer)
    slots = np.array([2, 30, 31])
    handles = buffer.row_serials.asnumpy()[slots]

    @ms.jit
    def update(handles, rewards):
        return buffer.update(handles, {"reward": rewards})

    update(ms.Tensor(handles), ms.Tensor([7.0, 8.0, 9.0]))
    save_more(buffer)
    written = load_file(f"{PATH}.1")
    np.testing.assert_array_equal(written["updated"], buffer.row_serials.asnumpy()[:32])
    np.testing.assert_array_equal(written["column.reward"], buffer.buffer[1].asnumpy()[:32])
    assert written["column.reward"][slots].tolist() == [7, 8, 9]
    insert(buffer, 20)
    save_more(buffer)
    assert_same_state(load(PATH), buffer)


@pytest.mark.parametrize("cls", [ReplayBuffer, ReplayQueue])
def test_late_columns_that_arrive_after_a_save(cls: Any):
    """The rows can be drawn then, so they must not lack them."""
    buffer = cls(2, 100, **flat([(50,), ()], ["float32"] * 2, names=["state", "reward"], late=["reward"], seed=0))
    handles = buffer.insert({"state": np.zeros((40, 50), np.float32)}, with_indices=True)
    save_more(buffer)
    buffer.update(handles[:20], {"reward": np.arange(20, dtype=np.float32)})
    save_more(buffer)
    assert files() == ["", ".1"]
    loaded = load(PATH)
    assert (loaded.eligible(), buffer.eligible()) == (20, 20)
    assert_same_state(loaded, buffer)


def test_rows_that_are_updated_through_another_buffer():
    """The same rows with another sample size; a state that is loaded there is noticed too."""
    buffer, other = wide(), wide()
    for each in (buffer, other):
        add(each, 45)
    mixed = MixedReplay([(buffer, 0.5), (other, 0.5)], sample_size=8)
    save_more(mixed)
    updated(buffer, [20])
    save_more(mixed)
    assert files() == ["", ".1"]
    assert load_file(f"{PATH}.1")["1.updated"].tolist() == list(range(16, 32))
    assert_same_state(load(PATH).sources[0], buffer)
    updated(other, list(range(45)))
    buffer.load_state_dict(other.state_dict())
    save_more(mixed)
    assert files() == [""]
    assert_same_state(load(PATH).sources[0], other)


def test_updates_and_saves_to_two_paths():
    buffer = wide()
    add(buffer, 45)
    for i in range(4):
        save_more(buffer, f"file {i % 2}")
        updated(buffer, [i])
    save_more(buffer, "file 0")
    assert_same_state(load("file 0"), buffer)


def save_another_there(_: Any) -> None:
    other = wide()
    add(other, 45)
    save(other, PATH)


def load_checkpoint(buffer: Any) -> None:
    ms.save_checkpoint(buffer, "buffer.ckpt")
    ms.load_checkpoint("buffer.ckpt", buffer)


LAST = Path(f"{PATH}.1")
EVENTS: dict[str, Callable[[Any], Any]] = {
    "saved elsewhere": lambda buffer: save(buffer, "elsewhere"),
    "another saved there": save_another_there,
    "own state loaded": lambda buffer: buffer.load_state_dict(buffer.state_dict()),
    "checkpoint loaded": load_checkpoint,
    "file loaded": lambda buffer: load(PATH, buffer=buffer),
    "file removed": lambda _: Path(PATH).unlink(),
    "last file cut": lambda _: LAST.write_bytes(LAST.read_bytes()[:-1]),
    "last file removed": lambda _: LAST.unlink(),
}


@pytest.mark.parametrize("event", EVENTS)
def test_all_rows_are_written_when_others_may_have_changed(event: str):
    buffer = wide()
    add(buffer, 45)
    save_more(buffer)
    add(buffer, 1)
    save_more(buffer)
    assert ".1" in files()
    EVENTS[event](buffer)
    add(buffer, 1)
    save_more(buffer)
    assert not {".1", ".2"} & set(files())
    assert_same_state(load(PATH), buffer)
    add(buffer, 1)
    save_more(buffer)
    assert ".1" in files()
    assert_same_state(load(PATH), buffer)


def test_a_plain_save_writes_all_rows():
    buffer = wide()
    add(buffer, 45)
    for incremental, expected in ((True, [""]), (True, ["", ".1"]), (False, [""]), (True, ["", ".1"])):
        add(buffer, 1)
        save(buffer, PATH, incremental=incremental)
        assert files() == expected
        assert_same_state(load(PATH), buffer)


@pytest.mark.parametrize("name", ["adjustable", "dict", "dict of lists"])
def test_several_buffers(name: str):
    several = containers()[name]
    parts = several.sources if isinstance(several, MixedReplay) else several.values()
    first = next(iter(parts))
    save_more(several)
    insert(first, 1)
    if name == "adjustable":
        several.set_ratios([0.5, 0.5])
    save_more(several)
    assert files() == ["", ".1"]
    loaded = load(PATH)
    loaded_parts = loaded.sources if isinstance(loaded, MixedReplay) else loaded.values()
    assert_same_state(next(iter(loaded_parts)), first)
    if name == "adjustable":
        assert loaded.ratios.asnumpy().tolist() == [0.5, 0.5]
        assert loaded.random_state.asnumpy().tolist() == several.random_state.asnumpy().tolist()


def test_a_part_that_is_saved_elsewhere_or_takes_another_place():
    """Nothing then tells which of its rows the files lack."""
    first, second = filled(RINGS["uniform"], seed=1), filled(RINGS["uniform"], 40, seed=2)
    both = {"one": first, "other": second}
    save_more(both)
    save_more({"one": second, "other": first})
    assert files() == [""]
    assert_same_state(load(PATH)["one"], second)
    save_more({"one": second, "other": first})
    assert files() == ["", ".1"]
    save(first, "elsewhere")
    save_more({"one": second, "other": first})
    assert ".1" not in files()


# Invalid files.


def chain(count: int = 3, first: int = 45) -> PrioritizedReplayBuffer:
    """Return a buffer, saved to this number of files."""
    buffer = wide()
    add(buffer, first)
    save_more(buffer)
    for _ in range(count - 1):
        add(buffer, 2)
        save_more(buffer)
    return buffer


def fails(message: str) -> Any:
    return pytest.raises(ValueError, match=f"^For 'load', {re.escape(message)}$")


BEGIN = "'path' must be a whole file that 'save' wrote, but buffer.safetensors"


def test_a_missing_file():
    chain(4)
    Path(f"{PATH}.2").unlink()
    with fails(f"{BEGIN} lacks {PATH}.2, which comes before {PATH}.3."):
        load(PATH)
    Path(f"{PATH}.1").unlink()
    with fails(f"{BEGIN} lacks {PATH}.1, which comes before {PATH}.3."):
        load(PATH)


def test_an_incremental_file_alone():
    chain(2)
    with fails(f"{BEGIN}.1 is incremental file 1 of another: load that."):
        load(f"{PATH}.1")


def test_files_that_were_exchanged():
    chain(3)
    content = Path(f"{PATH}.2").read_bytes()
    Path(f"{PATH}.1").write_bytes(content)
    with fails(f"{BEGIN}.1 is incremental file 2."):
        load(PATH)


def test_a_file_that_was_written_after_another_state():
    """Two processes continue from one file: the second finds files that it has not written, and writes all rows."""
    first = chain(1)
    record = first.state.last_saved
    add(first, 2)
    save_more(first)
    branch = Path(f"{PATH}.1").read_bytes()
    first.state.last_saved = record
    add(first, 3)
    save_more(first)
    add(first, 3)
    save_more(first)
    assert files() == ["", ".1", ".2"]
    assert_same_state(load(PATH), first)
    Path(f"{PATH}.1").write_bytes(branch)
    with fails(f"{BEGIN}.2 was not added to {PATH}.1 as it is now."):
        load(PATH)
    add(first, 1)
    save_more(first)
    assert files() == ["", ".1", ".2", ".3"]


def test_a_last_file_that_another_wrote():
    """Two processes continue from one file: the second finds that the last file is not its own."""
    buffer = chain(1)
    record = buffer.state.last_saved
    add(buffer, 2)
    save_more(buffer)
    branch = Path(f"{PATH}.1").read_bytes()
    buffer.state.last_saved = record
    add(buffer, 1)
    save_more(buffer)
    Path(f"{PATH}.1").write_bytes(branch)
    add(buffer, 1)
    save_more(buffer)
    assert files() == [""]
    assert_same_state(load(PATH), buffer)


def test_a_first_file_that_another_wrote():
    """And that was killed before it could remove the old files."""
    buffer = chain(2)
    leftover = Path(f"{PATH}.1").read_bytes()
    save(wide(), PATH)
    Path(f"{PATH}.1").write_bytes(leftover)
    add(buffer, 1)
    save_more(buffer)
    assert files() == [""]
    assert_same_state(load(PATH), buffer)


def test_an_altered_file():
    chain(3)
    content = bytearray(Path(f"{PATH}.1").read_bytes())
    content[-1] ^= 1
    Path(f"{PATH}.1").write_bytes(content)
    with pytest.raises(ValueError, match=rf"but {PATH}.1 holds data that do not fit their checksum, in 'use_counts'"):
        load(PATH)


def test_leftovers_of_an_older_file():
    """They are not read, and the next save removes them, as it does the leftovers of a killed one."""
    chain(3)
    old = {name: Path(f"{PATH}{name}").read_bytes() for name in (".1", ".2")}
    buffer = chain(1)
    for name, content in old.items():
        Path(f"{PATH}{name}").write_bytes(content)
    for name in (".0123456789abcdef.tmp", ".2.0123456789abcdef.tmp", ".tmp", ".0123456789abcdef.tmp.txt"):
        Path(f"{PATH}{name}").touch()
    assert_same_state(load(PATH), buffer)
    add(buffer, 1)
    save_more(buffer)
    assert files() == ["", ".0123456789abcdef.tmp.txt", ".1", ".2", ".tmp"]
    assert_same_state(load(PATH), buffer)
    save(buffer, PATH)
    assert files() == ["", ".0123456789abcdef.tmp.txt", ".tmp"]


def test_files_of_other_kinds_with_such_names():
    """Files of this format that hold all rows are left alone; others are certainly no incremental files."""
    buffer, other = (
        chain(1),
        ReplayBuffer(sample_size=3, capacity=24, shapes=[(40,), (), ()], types=["float32", "float32", "bool"], seed=1),
    )
    other.insert(rows(0, 3))
    save(other, f"{PATH}.7")
    Path(f"{PATH}.01").touch()
    save(buffer, PATH)
    assert_same_state(load(PATH), buffer)
    assert_same_state(load(f"{PATH}.7"), other)
    Path(f"{PATH}.1").write_text("notes")
    with pytest.raises(FileExistsError, match=r"must have no other file .*buffer.safetensors.1 beside it, since incr"):
        save(buffer, PATH)
    with pytest.raises(ValueError, match=r"but buffer.safetensors.1 begins otherwise: it is of another kind, cut off"):
        load(PATH)
    assert Path(f"{PATH}.1").read_text() == "notes"
