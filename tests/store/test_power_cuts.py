"""A folder after a loss of power: no torn row, and every row whose flush had returned."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from power_cuts import CASES, Sync, cuts

from mindspore_replay.store import flushed
from mindspore_replay.store import folder as folder_module

pytestmark = [
    pytest.mark.cpu_only("rows in a folder are in host memory"),
    pytest.mark.filterwarnings("ignore:.*the machine was started anew"),
]

CUTS = 20


@pytest.fixture(autouse=True)
def started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each opening be in another run of the machine than the one before."""
    runs = iter(range(10**9))
    monkeypatch.setattr(folder_module, "_this_boot", lambda: np.full(40, next(runs) % 251, np.uint8))


@pytest.mark.parametrize("kind", CASES)
def test_no_cut_of_the_power_tears_or_loses_a_flushed_row(kind: str, tmp_path: Path):
    assert len(CASES) * CUTS >= 500
    assert cuts(kind, CUTS, tmp_path, seed=list(CASES).index(kind)) == [""] * CUTS


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


def one_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(folder_module, "FILES", ("flushed.0", "flushed.0"))
    patch.setattr(flushed.Flushed, "_sums_of", lambda files, i: flushed._checksums(files._pages[i]))


def rows_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flushed, "torn_rows", lambda *_: np.empty(0, np.int64))


def the_state_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flushed.Flushed, "_found", lambda files, i: flushed.Record(*files._records[i][:5].tolist()))


def items_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    checksums = flushed._row_checksums
    patch.setattr(flushed, "_row_checksums", lambda options, *rest: checksums(options._replace(kinds=()), *rest))


def references_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flushed, "_empty_deleted", lambda *_: None)


@pytest.mark.parametrize("syncs", [acknowledge_before_rows, record_before_rows])
def test_a_wrong_order_of_writes_is_found(syncs: Callable[[Sync], Sync], tmp_path: Path):
    assert "is lost" in " ".join(cuts("prioritized", 400, tmp_path, 0, syncs))


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (one_file, "prioritized"),
        (rows_are_not_checked, "prioritized"),
        (the_state_is_not_checked, "prioritized"),
        (items_are_not_checked, "any length"),
        (references_stay, "any length"),
    ],
)
def test_a_wrong_format_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    break_it(monkeypatch)
    assert any(cuts(kind, 400, tmp_path, 0))
