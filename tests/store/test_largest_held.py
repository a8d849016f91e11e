"""``default_priority="largest_held"``: a row gets the largest priority of those stored, whichever slots they are in."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_replay.host import PrioritizedReplayBuffer, attach
from mindspore_replay.store.rows import insertion

FIXED: dict[str, Any] = {
    "shapes": [()],
    "types": ["int32"],
    "default_priority": "largest_held",
    "initial_priority": 0.5,
    "seed": 0,
}


def test_nothing_comes_between_the_priority_and_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Else it would lower the largest priority below one that another process has set meanwhile."""
    learner = PrioritizedReplayBuffer(1, 9, **FIXED, storage=tmp_path / "rows").insert([np.int32(0)], priority=9.0)
    learner.insert([np.int32(1)], priority=2.0).update_priorities([0], [1.0])
    attached, threads = attach(tmp_path / "rows"), []

    def late(*arguments: Any) -> float:
        found = right(*arguments)
        threads.append(threading.Thread(target=attached.update_priorities, args=([0], [8.0])))
        threads[0].start()
        threads[0].join(0.3)  # it waits for the insertion, which is before it
        return found

    right = insertion.largest_held
    monkeypatch.setattr(insertion, "largest_held", late)
    assert learner.info(learner.insert([np.int32(2)], with_indices=True)[None])[0] == 2
    threads[0].join()
    monkeypatch.undo()
    learner.check_valid()
    assert learner.info(learner.insert([np.int32(3)], with_indices=True)[None])[0] == 8
    attached.close()
    learner.close()
