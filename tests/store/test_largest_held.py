"""``default_priority="largest_held"``: a row gets the largest priority of those stored, whichever slots they are in."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_replay.host import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    PrioritizedReplayBuffer,
    SequenceReplayBuffer,
    attach,
    load,
    save,
)
from mindspore_replay.store.rows import insertion

HELD: dict[str, Any] = {"default_priority": "largest_held", "initial_priority": 0.5, "seed": 0}
LENGTHS: dict[str, Any] = {"shapes": [(None,)], "types": ["int32"], "max_length": 6, "items": 20, **HELD}
FIXED: dict[str, Any] = {"shapes": [()], "types": ["int32"], **HELD}
LATE = {"names": ["tokens", "reward"], "late": ["reward"]}
LIMITS = {"max_staleness": 6, "max_use": 3}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rows of any length": (PrioritizedReplayBuffer, LENGTHS | LIMITS),
    "late": (PrioritizedReplayBuffer, LENGTHS | {"shapes": [(None,), ()], "types": ["int32"] * 2, **LATE}),
    "elastic": (ElasticReplayBuffer, LENGTHS | {"window": 5, "prioritized": True}),
    "sequences": (SequenceReplayBuffer, LENGTHS | {"sequence_length": 2, "prioritized": True}),
    "episodes": (EpisodeReplayBuffer, LENGTHS | {"max_episode_length": 3, "prioritized": True}),
    "rows of one length": (PrioritizedReplayBuffer, FIXED | LIMITS),
}
CAPACITY = 9


class Operations:
    """Random operations with a buffer, by itself and by an attached process if there is one."""

    def __init__(self, kind: str, seed: int, storage: Path | None) -> None:
        self.random, (cls, self.options) = np.random.default_rng(seed), KINDS[kind]
        self.make = lambda **more: cls(2, CAPACITY, **self.options, **more)
        self.buffer = self.make(storage=storage)
        alone = storage is None or self.buffer.has_episodes  # only whole episodes come from several processes
        self.callers = [self.buffer] if alone else [self.buffer, attach(storage)]
        self.made, self.evicted = 0, 0

    def caller(self) -> Any:
        return self.callers[self.random.integers(len(self.callers))]

    def held(self) -> float:
        """Return the largest priority of the rows that are stored and not removed, or the first one."""
        handles = np.arange(self.made - len(self.buffer), self.made)
        uses = self.buffer.state_dict()["use_counts"][handles % CAPACITY]
        kept = (uses >= 0) | (uses < -(2**30))  # of rows without late columns
        return float(self.buffer.info(handles)[0][kept].max()) if kept.any() else 0.5

    def insert_into(self, buffer: Any, **more: Any) -> float:
        """Insert a row, and return its priority."""
        items = np.full(self.random.integers(7), self.made, np.int32) if "items" in self.options else np.int32(0)
        end = {"end": self.made % 3 == 2} if buffer.has_episodes else {}
        return float(buffer.info([buffer.insert([items], with_indices=True, **end, **more)])[0][0])

    def insert(self) -> None:
        before, expected = len(self.buffer), self.held()
        if self.random.random() < 0.5:
            expected = float(self.random.choice([0.25, 1.0, 2.0, 9.0]))
            assert self.insert_into(self.caller(), priority=expected) == expected
        else:
            assert self.insert_into(self.caller()) == expected
        self.made += 1
        self.evicted += len(self.buffer) <= before < CAPACITY

    def insert_what_is_refused(self) -> None:
        before = self.buffer.state_dict()["max_priority"]
        with pytest.raises(ValueError, match="a version must be"):
            self.insert_into(self.caller(), version=10**6)
        assert self.buffer.state_dict()["max_priority"] == before

    def sample(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.caller().sample()

    def change(self) -> None:
        handles = np.arange(max(self.made - 12, 0), self.made + 1)
        buffer, some = self.caller(), self.random.choice(handles, 2)
        buffer.update_priorities(some, self.random.choice([0.125, 1, 4], 2))
        buffer.delete(handles if self.random.random() < 0.2 else some[:1])
        buffer.advance(int(self.random.integers(3)))
        if "late" in self.options:
            buffer.update(some, {"reward": np.zeros(2, np.int32)})

    def check(self) -> None:
        """Check that another buffer loads the state, and gives the same priority."""
        self.buffer.check_valid()
        again = self.make()
        again.load_state_dict(self.buffer.state_dict())
        assert self.insert_into(again) == self.held()
        again.check_valid()


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_get_the_largest_priority_of_those_stored(kind: str, in_folder: bool, tmp_path: Path):
    made = Operations(kind, 0, tmp_path / "rows" if in_folder else None)
    actions = [made.insert] * 4 + [made.insert_what_is_refused, made.sample, made.change]
    for _ in range(150):
        actions[made.random.integers(len(actions))]()
        made.check()
        if made.random.random() < 0.1:
            save(made.buffer, tmp_path / "file")
            assert made.insert_into(load(tmp_path / "file")) == made.held()
    assert made.evicted > 5 or kind == "rows of one length"
    for caller in reversed(made.callers if in_folder else []):
        caller.close()
    if in_folder:
        type(made.buffer).open(tmp_path / "rows").close()


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
