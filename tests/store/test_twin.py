"""Buffers of every kind beside their slow twin, on arrays; and wrong ones that it rejects."""

import contextlib
import ctypes
import inspect
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from any_length import CAPACITY, ITEMS
from model import Model
from randomness import order_of
from twin_kinds import DRAWS, KINDS
from twin_pairs import RandomPair as Pair

from mindspore_replay import Column, Priorities, host
from mindspore_replay.store.kernels import library

#: Kinds in a folder, which has the same arrays whatever is drawn: all of rows of any length, each third of the others.
IN_FOLDERS = [kind for i, kind in enumerate(KINDS) if KINDS[kind].any_length or i % 3 == 1]


@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, seed) for kind in KINDS for seed in (0, 4)[: 1 + KINDS[kind].any_length]]
)
def test_random_operations(kind: str, seed: int, tmp_path: Path):
    pair = Pair(kind, host, seed, tmp_path)
    pair.run(105)
    assert pair.drawn > 1
    assert seed or pair.twin.max_staleness is None or pair.twin.counts["stale"] > 0


@pytest.mark.parametrize("kind", IN_FOLDERS)
def test_random_operations_in_a_folder(kind: str, tmp_path: Path):
    """An attached object and the buffer are called in turn."""
    pair = Pair(kind, host, 8, tmp_path, in_folder=True)
    pair.run(125)
    assert pair.drawn > 0


def run_some(kind: str, folder: Path, wrong: dict[str, Any] | None = None) -> None:
    for seed in range(4):
        Pair(kind, host, seed, folder, wrong=wrong).run(150)


#: Options that choose or change rows where a twin with another value, here or the default, must be noticed.
OTHER: dict[str, Any] = {
    "sample_size": DRAWS + 1,
    "capacity": CAPACITY - 1,
    "items": {name: size - 1 for name, size in ITEMS.items()},
    "seed": 77,
    "window": 3,
    "sequence_length": 4,
    "max_episode_length": 2,
    "prioritized": False,
}
#: Options that choose no rows here, each with the reason.
NO_CHOICE = {
    **dict.fromkeys(("shapes", "types", "names", "columns", "shape", "dtype"), "the columns"),
    "priorities": "its fields are tested",
    "max_length": "the largest length that is accepted",
    "share_lengths": "columns that have one length; the content of rows is compared",
    "storage": "a place",
    "backend": "there is one",
    "timeout": "seconds",
    "weighted": "what allows deletions, versions and the clock",
    "compress": "refused, and compared in `test_compressed.py` for rows of one length",
    "views": "refused, and of one length a kind of its own",
}
#: The kind with which an option is tested.
OF_OPTION = {name: kind for kind, made in KINDS.items() if made.any_length for name in made.options}
OF_OPTION |= dict.fromkeys(("sample_size", "capacity", "items", "seed"), "uniform") | {"max_staleness": "limits"}
OF_OPTION |= {"window": "newest", "prioritized": "newest by priority", "beta": "by priority", "epsilon": "by priority"}
OF_OPTION |= {"ordered": "distinct", "late": "late", "replace": "used once", "max_use": "limits"}
OTHER |= {"beta": 0.5, "epsilon": 0.25}
right_write = Model.write
CLASSES = [getattr(host, name) for name in host.__all__ if name.endswith(("Buffer", "Queue"))]


def test_every_option_has_a_twin():
    records = {"longest": "max_length", "lengths_of": "share_lengths"}
    options = {name for cls in (*CLASSES, Column, Priorities) for name in inspect.signature(cls).parameters}
    assert {records.get(name, name) for name in options} | {"prioritized"} == {*OF_OPTION, *NO_CHOICE}


@pytest.mark.parametrize("option", sorted(set(OF_OPTION) - NO_CHOICE.keys()))
def test_a_twin_with_another_option_is_noticed(option: str, tmp_path: Path):
    with pytest.raises((AssertionError, RuntimeError, ValueError, IndexError, KeyError)):
        run_some(OF_OPTION[option], tmp_path, {option: OTHER.get(option)})


def forgets(self: Model, handles: Any, rows: Any) -> int:
    for handle in handles:
        if record := self.record_of(handle):
            record.missing = set()
    return right_write(self, handles, rows)


def stops_early(self: Model, steps: int) -> None:
    """Remove stale rows up to the first fresh one, though versions need not come in order."""
    self.now += steps
    for record in itertools.takewhile(self.stale, self.records):
        self.remove(record, "stale")
    self.fresh = next((record.serial for record in self.records if not self.stale(record)), self.inserted)


#: Methods of the twin, the kind with which each is tested, and a wrong one in its place.
WRONG_TWINS: dict[str, tuple[str, str, Any]] = {
    "loses no rows for want of items": ("uniform", "lost", lambda self, rows: 0),
    "delivers behind a row that waits": ("late in a queue", "is_waiting", lambda self, record: False),
    "keeps no rows that were not delivered": ("queue", "unneeded", lambda self: CAPACITY),
    "packs any number of items": ("queue", "fitting", lambda self, slots, most: len(slots)),
    "counts no deliveries": ("limits", "deliver", lambda self, slots: None),
    "keeps removed rows": ("by priority", "remove", lambda self, record, reason: None),
    "writes removed rows": ("limits", "is_gone", lambda self, record: False),
    "splits no episode": ("views: returns", "split", lambda self, record: None),
    "gives goals of all rows": ("views: goals and returns", "sources_of", lambda self, start: self.records),
    "keeps no goal": ("views: goals by priority", "draw_goals", lambda self, drawn: drawn),
    "groups all rows": ("episodes", "groups", lambda self, key: [[record] for record in self.records]),
    "has one order for all epochs": ("fixed: epochs", "order_of_epoch", lambda self, key, size: order_of(9, size)),
    "forgets which column was written": ("fixed: late", "write", forgets),
    "ends no episode": ("fixed: episodes", "end_episodes", lambda self: 0),
    "keeps each row of a stream": ("fixed: reservoir", "place", lambda self, serial: serial % self.capacity),
    "stops at the first fresh row": ("limits", "advance", stops_early),
    "lets stale rows stay": ("fixed: used twice", "stale", lambda self, record: False),
}


@pytest.mark.parametrize("wrong", WRONG_TWINS)
def test_a_wrong_twin_is_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    kind, method, body = WRONG_TWINS[wrong]
    monkeypatch.setattr(Model, method, body)
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        run_some(kind, tmp_path)


CSRC = Path(library.__file__).parents[2] / "csrc"
#: Code of the kernel, and what stands in its place in a library of which one kernel is wrong: `IS_WRONG` is true there.
WRONG = {
    "evicts too late": ("row(before).offset < tail", "row(before).offset + IS_WRONG < tail"),
    "crosses the end": (
        "if (end % items + rows[i].length > items)",
        "if (!IS_WRONG && end % items + rows[i].length > items)",
    ),
    "forgets the gap": ("rows[i].offset = end;", "rows[i].offset = end - (IS_WRONG && i == 0 ? end % 2 : 0);"),
    "evicts none": ("if (rest > 0) Evict(", "if (rest > (IS_WRONG ? 99 : 0)) Evict("),
    "stores no items": ("std::memcpy(in ? items : other", "if (!in || !IS_WRONG) std::memcpy(in ? items : other"),
}


@pytest.fixture(scope="module")
def wrong_kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the kernel with all wrong lines, and a number that chooses one of them."""
    folder = tmp_path_factory.mktemp("wrong")
    replaced = set()
    for name in ("core/items.h", "cpu/items.cc"):
        text = (CSRC / name).read_text(encoding="utf-8")
        for i, (wrong, (right, other)) in enumerate(WRONG.items()):
            if right in text:
                text = text.replace(right, other.replace("IS_WRONG", f"(wrong == {i})"))
                replaced.add(wrong)
        (folder / name).parent.mkdir()
        (folder / name).write_text(text.replace("#pragma once", '#pragma once\nextern "C" { inline int wrong = -1; }'))
    assert replaced == WRONG.keys()
    library = CSRC.parent / "_kernels.akg_kernel_meta.so"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-I", folder, "-I", CSRC, folder / "cpu" / "items.cc", library]
    subprocess.run([*command, f"-Wl,-rpath,{CSRC.parent}", "-o", folder / "wrong.so"], check=True)
    return ctypes.CDLL(str(folder / "wrong.so"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="wrong kernels have to be built, with g++")
@pytest.mark.parametrize("wrong", [None, *WRONG])
def test_the_twin_rejects_wrong_kernels(
    wrong: str | None, wrong_kernels: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    ctypes.c_int.in_dll(wrong_kernels, "wrong").value = -1 if wrong is None else list(WRONG).index(wrong)
    kernel = ctypes.cast(wrong_kernels.replay_insert_items, ctypes.c_void_p).value
    right = library.address_of
    monkeypatch.setattr(library, "address_of", lambda name: kernel if name == "replay_insert_items" else right(name))
    with contextlib.nullcontext() if wrong is None else pytest.raises((AssertionError, ValueError, RuntimeError)):
        Pair("uniform", host, 0, tmp_path).run(150)
