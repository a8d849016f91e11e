"""Processes killed while they insert rows of any length: no row is torn, and none before it is lost."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_replay.host import ReplayQueue

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

#: A process that inserts rows of 3 items, and dies in the row with the number 7: at the n-th call of a function.
PROGRAM = """
import os, signal, sys
import numpy as np
from mindspore_replay.host import attach
from mindspore_replay.store.ragged import RaggedStore

folder, name, calls, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
attached, inner = attach(folder), getattr(RaggedStore, name)

def dies(self, *given):
    global calls
    if armed:
        calls -= 1
        if calls < 0:
            if name == "place":  # with a half of the items
                items = given[2].copy()
                items[len(items) // 2:] = -1
                inner(self, *given[:2], items)
            os.kill(os.getpid(), signal.SIGKILL)
    return inner(self, *given)

setattr(RaggedStore, name, dies)
for number in range(100):
    armed = number == 7
    row = [np.full(3, number, np.int32), np.full(3, number, np.float32), number]
    attached.insert([[one] * batch for one in row] if batch else row)
"""
COLUMNS: dict[str, Any] = {
    "shapes": [(None,), (None,), ()],
    "types": ["int32", "float32", "int64"],
    "names": ["tokens", "log_probs", "number"],
    "max_length": 8,
    "items": 16,
    "share_lengths": [("tokens", "log_probs")],
    "when_full": "evict",
}


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize(("name", "calls"), [("rows_before", 0), ("evict", 0), ("place", 0), ("place", 1)])
def test_a_row_that_was_being_inserted_is_not_there(name: str, calls: int, batch: int, tmp_path: Path):
    learner = ReplayQueue(1, 8, **COLUMNS, storage=tmp_path / "rows")
    arguments = [tmp_path / "rows", name, calls, batch]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == -9, done.stderr
    learner.check_valid()
    rows = [learner.get_item(i, as_dict=True) for i in range(learner.size())]
    for row in rows:
        assert row["tokens"].tolist() == [row["number"]] * 3
        assert row["log_probs"].tolist() == [row["number"]] * 3
    numbers = [int(row["number"]) for row in rows]
    # Those that the row needed may be gone; all newer ones are there.
    most = 4 // (batch or 1) + 1
    assert numbers == sorted(numbers)
    assert numbers[-1] == 6
    assert set(range(8 - most, 7)) <= set(numbers)
    learner.insert({"tokens": np.arange(8, dtype=np.int32), "log_probs": np.zeros(8, np.float32), "number": 9})
    assert learner.get_item(-1, as_dict=True)["tokens"].tolist() == list(range(8))
    learner.check_valid()
    learner.close()
    again = ReplayQueue.open(tmp_path / "rows", verify=True)
    assert int(again.get_item(-1, as_dict=True)["number"]) == 9
    again.close()
