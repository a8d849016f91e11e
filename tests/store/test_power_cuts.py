"""A folder after a loss of power: no torn row, and every row whose flush had returned."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from power_cuts import CASES, Sync, cuts

from mindspore_replay.store.folder import flushed, torn
from mindspore_replay.store.folder import folder as folder_module

pytestmark = [
    pytest.mark.cpu_only("rows in a folder are in host memory"),
    pytest.mark.filterwarnings("ignore:.*the machine was restarted"),
]

#: Cuts of a kind; and of a wrong implementation, which ends at its first fault.
CUTS, MOST = 20, 4000


@pytest.fixture(autouse=True)
def started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each opening be in another run of the machine than the one before."""
    runs = iter(range(10**9))
    monkeypatch.setattr(folder_module, "_this_boot", lambda: np.full(40, next(runs) % 251, np.uint8))


@pytest.mark.parametrize("kind", CASES)
def test_no_cut_of_the_power_tears_or_loses_a_flushed_row(kind: str, tmp_path: Path):
    assert len(CASES) * CUTS >= 500
    assert list(cuts(kind, CUTS, tmp_path, seed=list(CASES).index(kind))) == [""] * CUTS


# Wrong implementations.


def acknowledge_before_rows(sync: Sync) -> Sync:
    """A flush that returns before the columns are on the disk."""
    return lambda path: None if "column" in path.name else sync(path)


def record_before_rows(sync: Sync) -> Sync:
    """A flush that writes its record to the disk, and then the columns."""
    late: list[Path] = []

    def reordered(path: Path) -> None:
        if "column" in path.name:
            late.append(path)
            return
        sync(path)
        if "flushed" in path.name:
            for column in late:
                sync(column)
            late.clear()

    return reordered


def acknowledge_before_the_log(sync: Sync) -> Sync:
    """A flush that returns before its entry or base is on the disk."""
    return lambda path: None if "flushed" in path.name else sync(path)


def one_file(patch: pytest.MonkeyPatch) -> None:
    for module in (folder_module, flushed):
        patch.setattr(module, "FILES", ("flushed.0", "flushed.0"))


def rows_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torn, "torn_rows", lambda *_: np.empty(0, np.int64))


def rows_are_not_in_the_log(patch: pytest.MonkeyPatch) -> None:
    """As if an entry were on the disk before its data."""
    take = flushed.Flushed.take
    patch.setattr(flushed.Flushed, "take", lambda files, record, slots: take(files, record, slots[:0]))


def checksums_are_old(patch: pytest.MonkeyPatch) -> None:
    """Those of rows that changed while others were computed."""
    next_flush = folder_module.Folder._next
    patch.setattr(folder_module.Folder, "_next", lambda folder, closed, _: next_flush(folder, closed, folder._now()))


def images_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    fits = flushed._fits
    patch.setattr(flushed, "_fits", lambda record, memory: record.size == 0 or fits(record, memory))


def entries_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    fits = flushed._fits
    patch.setattr(flushed, "_fits", lambda record, memory: record.size > 0 or fits(record, memory))


def old_entries_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flushed, "_follows", lambda record, last: record.number >= 0)


def items_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    init, none = torn.RowChecksums.__init__, {"length_groups": ()}
    patch.setattr(torn.RowChecksums, "__init__", lambda sums, options, *a: init(sums, options._replace(**none), *a))


def items_are_not_in_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flushed.Flushed, "_items", lambda files, slots: [np.empty((0, 2), np.int64)])


def references_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torn, "_empty_deleted", lambda *_: None)


@pytest.mark.parametrize(
    ("syncs", "fault"),
    [
        (acknowledge_before_rows, "is lost"),
        (record_before_rows, "is lost"),
        (acknowledge_before_the_log, "had returned"),
    ],
)
def test_a_wrong_order_of_writes_is_found(syncs: Callable[[Sync], Sync], fault: str, tmp_path: Path):
    assert any(fault in found for found in cuts("prioritized", MOST, tmp_path, 0, syncs))


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (one_file, "prioritized"),
        (rows_are_not_checked, "prioritized"),
        (rows_are_not_in_the_log, "prioritized"),
        (checksums_are_old, "prioritized"),
        (images_are_not_checked, "prioritized"),
        (entries_are_not_checked, "prioritized"),
        (old_entries_count, "prioritized"),
        (items_are_not_checked, "any length"),
        (items_are_not_in_the_log, "any length"),
        (references_stay, "any length"),
    ],
)
def test_a_wrong_format_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    break_it(monkeypatch)
    assert any(cuts(kind, MOST, tmp_path, 0))
