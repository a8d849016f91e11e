"""This project: calls from Python, and the same operations in one compiled graph."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

import mindspore_replay as ours

from .. import cases
from ..answering import Peer, Work, answer
from ..cases import Case, batch_of, chunks_of, in_turn, priorities_of
from .mindspore_dqn import DQN, LearnerWithBuffer, run_operators_on_one_core

#: Operations per call of a compiled body, unrolled. The call and the rest of the body are subtracted.
REPEAT = 50


class Loop(nn.Cell):
    """A compiled body with `REPEAT` operations of a buffer, or with none; new priorities depend on the sample."""

    def __init__(self, buffer: Any = None, operation: str = "", row: tuple[Tensor, ...] = (), repeat: int = REPEAT):
        super().__init__()
        self.buffer, self.operation = buffer, operation
        self.row, self.repeat = row, repeat
        self.priority = Tensor(0.5, ms.float32)

    def construct(self, x):
        for _ in range(self.repeat):
            x = x + 1
            if self.operation == "insert":
                self.buffer.insert(self.row)
            elif self.operation == "prioritized_insert":
                self.buffer.insert(self.row, priority=self.priority)
            elif self.operation == "sample":
                self.buffer.sample()
            elif self.operation == "prioritized_update":
                indices, weights = self.buffer.sample()[:2]
                self.buffer.update_priorities(indices, weights)
        return x


class MindsporeReplay(Peer):
    """Measures the native backend."""

    packages = ("mindspore", "mindspore_replay")
    notes: Mapping[str, str] = {
        **dict.fromkeys(("files_insert", "files_sample"), "other processes may use the same rows"),
        "sample_arrays": "by `attach`, as in a process without MindSpore",
        "save": "with checksums; replaces the file before once it is on the disk",
        "load": "a new buffer, checksums compared",
    }
    compiles = True

    def prepare(self, case: Case) -> Work:
        """Prepare the case: in a graph a loop less an empty one, or calls from Python."""
        if not case.compiled:
            return super().prepare(case)
        buffer = self.prioritized(case) if case.work.startswith("prioritized") else self.filled(case)
        operation = case.work if case.work in ("insert", "prioritized_insert", "prioritized_update") else "sample"
        rows = batch_of(case.schema, case.batch).values()
        loop = Loop(buffer, operation, tuple(Tensor(column[0] if case.batch == 1 else column) for column in rows))
        empty, start = Loop(), Tensor(0, ms.int32)
        once, minus = lambda: loop(start).asnumpy(), lambda: empty(start).asnumpy()
        return Work(once, each=REPEAT, minus=minus, note="unrolled in a graph")

    def made(self, cls: type[ours.ReplayBuffer], case: Case, **options: Any) -> Any:
        shapes, types = zip(*case.schema.values())
        names = list(case.schema)
        return cls(case.batch, case.capacity, shapes, types, names=names, seed=0, backend="native", **options)

    def filled(self, case: Case, **options: Any) -> ours.ReplayBuffer:
        if case.work == "hindsight":
            reward = {"reward_fn": "sparse", "tolerance": cases.REACHED}
            view = ours.HindsightRelabel(
                "future", cases.GOALS / (cases.GOALS + 1), achieved_goal="next_achieved_goal", **reward
            )
            options = {"views": [view]}
        buffer = self.made(ours.ReplayBuffer, case, **options)
        for rows in chunks_of(case.schema, case.capacity):
            buffer.insert(list(rows.values()), **({"end": rows["terminated"]} if "views" in options else {}))
        return buffer

    hindsight = Peer.sample

    def in_files(self, case: Case) -> ours.ReplayBuffer:
        return self.filled(case, storage=str(self.folder / "rows"))

    def frames(self, case: Case) -> ours.ReplayBuffer:
        return self.filled(case, views=[ours.FrameStack(cases.STACK)])

    def with_returns(self, case: Case) -> ours.ReplayBuffer:
        return self.filled(case, views=[ours.NStep(cases.N_STEP, cases.GAMMA)])

    def prioritized(self, case: Case) -> ours.PrioritizedReplayBuffer:
        buffer = self.made(ours.PrioritizedReplayBuffer, case, alpha=cases.ALPHA, beta=cases.BETA)
        for seed, rows in enumerate(chunks_of(case.schema, case.capacity)):
            buffer.insert(list(rows.values()), priority=priorities_of(len(rows["reward"]), seed))
        return buffer

    def row(self, row: dict[str, Any]) -> list[Any]:
        return list(row.values())  # which `insert` takes like dicts

    def adding(self, buffer: ours.ReplayBuffer, case: Case) -> Callable[[Any], Any]:
        return (lambda row: buffer.insert(row, end=row[-1])) if case.work == "n_step" else buffer.insert

    def extending(self, buffer: ours.ReplayBuffer, rows: dict[str, np.ndarray]) -> Callable[[], Any]:
        return in_turn(buffer.insert, [list(rows.values())])

    def drawing(self, buffer: ours.ReplayBuffer, case: Case) -> Callable[[], Any]:
        return buffer.sample

    def sample_arrays(self, case: Case) -> Work:
        """A batch for a process that attaches to the rows."""
        self.in_files(case)
        return Work(ours.attach(self.folder / "rows", sample_size=case.batch).sample)

    def adding_by_priority(self, buffer: ours.PrioritizedReplayBuffer, case: Case) -> Callable[[Any], Any]:
        return lambda pair: buffer.insert(pair[0], priority=pair[1])

    def updating(self, buffer: ours.PrioritizedReplayBuffer, case: Case, priorities: np.ndarray) -> Callable[[], Any]:
        return lambda: buffer.update_priorities(buffer.sample()[0], priorities)

    def bytes_of(self, buffer: ours.ReplayBuffer) -> int:
        return buffer.nbytes

    def sequences(self, case: Case) -> Work:
        buffer = self.made(ours.SequenceReplayBuffer, case, sequence_length=cases.SEQUENCE)
        for rows in chunks_of(case.schema, case.capacity):
            buffer.insert(list(rows.values()), end=rows["terminated"])
        return Work(buffer.sample)

    def saving(self, buffer: ours.ReplayBuffer, path: Path) -> Callable[[], Any]:
        return lambda: ours.save(buffer, path)

    def loading(self, buffer: ours.ReplayBuffer, path: Path) -> Callable[[], Any]:
        return lambda: ours.load(path)

    def empty_call(self, case: Case) -> Work:
        """Call a compiled graph that does almost nothing."""
        empty, start = Loop(repeat=1), Tensor(0, ms.int32)
        return Work(lambda: empty(start).asnumpy())

    def dqn(self, case: Case) -> Work:
        return DQN(LearnerWithBuffer()).work()

    def dqn_bursts(self, case: Case) -> Work:
        return DQN(LearnerWithBuffer()).bursts()


if __name__ == "__main__":
    run_operators_on_one_core()
    answer(MindsporeReplay())
