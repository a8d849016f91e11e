"""This project: calls from Python, and the same operations in one compiled graph."""

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn

from mindspore_replay import (
    FrameStack,
    HindsightRelabel,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
    attach,
    load,
    save,
)

from ..answering import Peer, Work, answer
from ..cases import (
    ALPHA,
    BETA,
    GAMMA,
    GOALS,
    N_STEP,
    REACHED,
    SEQUENCE,
    STACK,
    Case,
    batch_of,
    chunks_of,
    in_turn,
    priorities_of,
    single_rows,
)
from .mindspore_dqn import DQN, LearnerWithBuffer, run_operators_on_one_core

#: Operations per call of a compiled body, unrolled. The call and the rest of the body are subtracted.
REPEAT = 50
IN_FILES = "other processes may use the same rows"


class Loop(nn.Cell):
    """A compiled body with `REPEAT` operations of a buffer, or with none."""

    def __init__(self, buffer: ReplayBuffer | None, row: tuple[Tensor, ...] = (), repeat: int = REPEAT) -> None:
        super().__init__()
        self.buffer = buffer
        self.row = row
        self.repeat = repeat
        self.priority = Tensor(0.5, ms.float32)

    def operate(self):
        """Run the operation once; nothing in this class."""

    def construct(self, x):
        for _ in range(self.repeat):
            x = x + 1
            self.operate()
        return x


class Insert(Loop):
    """Insertions of the same row or batch."""

    def operate(self):
        self.buffer.insert(self.row)


class Sample(Loop):
    """Samples of any buffer."""

    def operate(self):
        self.buffer.sample()


class PrioritizedInsert(Loop):
    """Insertions with a priority."""

    def operate(self):
        self.buffer.insert(self.row, priority=self.priority)


class PrioritizedUpdate(Loop):
    """Samples with updates of their priorities, which depend on the sample, as a learner's do."""

    def operate(self):
        indices, weights = self.buffer.sample()[:2]
        self.buffer.update_priorities(indices, weights)


def looped(loop: Loop) -> Work:
    """Time a loop less an empty one."""
    empty, start = Loop(None, repeat=loop.repeat), Tensor(0, ms.int32)
    return Work(
        lambda: loop(start).asnumpy(),
        each=loop.repeat,
        minus=lambda: empty(start).asnumpy(),
        note="unrolled in a graph",
    )


def lists(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the rows as lists, which `insert` takes like dicts."""
    return [list(row.values()) for row in rows]


class MindsporeReplay(Peer):
    """Measures the native backend."""

    packages = ("mindspore", "mindspore_replay")
    compiles = True

    def _make(self, cls: type[ReplayBuffer], case: Case, **options: Any) -> Any:
        shapes, types = zip(*case.schema.values())
        names = list(case.schema)
        sizes = {"sample_size": case.batch, "capacity": case.capacity}
        return cls(**sizes, shapes=shapes, types=types, names=names, seed=0, backend="native", **options)

    def _filled(self, case: Case, **options: Any) -> ReplayBuffer:
        buffer = self._make(ReplayBuffer, case, **options)
        for rows in chunks_of(case.schema, case.capacity):
            buffer.insert(list(rows.values()), **({"end": rows["terminated"]} if "views" in options else {}))
        return buffer

    def insert(self, case: Case) -> Work:
        """One row or a batch."""
        buffer = self._filled(case)
        rows = batch_of(case.schema, case.batch)
        if case.compiled:
            row = tuple(Tensor(column[0] if case.batch == 1 else column) for column in rows.values())
            return looped(Insert(buffer, row))
        if case.batch == 1:
            return Work(in_turn(buffer.insert, lists(case.single_rows())))
        return Work(in_turn(buffer.insert, [list(rows.values())]))

    def sample(self, case: Case) -> Work:
        """A batch."""
        buffer = self._filled(case)
        return looped(Sample(buffer)) if case.compiled else Work(buffer.sample)

    def sample_arrays(self, case: Case) -> Work:
        """A batch for a process that attaches to the rows."""
        self._in_files(case)
        attached = attach(self.folder / "rows", sample_size=case.batch)
        return Work(attached.sample, note="by `attach`, as in a process without MindSpore")

    def _filled_by_priority(self, case: Case) -> PrioritizedReplayBuffer:
        buffer = self._make(PrioritizedReplayBuffer, case, alpha=ALPHA, beta=BETA)
        for seed, rows in enumerate(chunks_of(case.schema, case.capacity)):
            buffer.insert(list(rows.values()), priority=priorities_of(len(rows["reward"]), seed))
        return buffer

    def prioritized_insert(self, case: Case) -> Work:
        """One row with its priority."""
        buffer = self._filled_by_priority(case)
        if case.compiled:
            row = tuple(Tensor(column[0]) for column in batch_of(case.schema, 1).values())
            return looped(PrioritizedInsert(buffer, row))
        rows = zip(lists(single_rows(case.schema)), priorities_of(1000).tolist())
        return Work(in_turn(lambda pair: buffer.insert(pair[0], priority=pair[1]), list(rows)))

    def prioritized_sample(self, case: Case) -> Work:
        """A batch with handles and weights."""
        buffer = self._filled_by_priority(case)
        return looped(Sample(buffer)) if case.compiled else Work(buffer.sample)

    def prioritized_update(self, case: Case) -> Work:
        """Sample a batch and update its priorities."""
        buffer = self._filled_by_priority(case)
        if case.compiled:
            return looped(PrioritizedUpdate(buffer))
        new = [priorities_of(case.batch, seed) for seed in range(100)]
        return Work(in_turn(lambda priorities: buffer.update_priorities(buffer.sample()[0], priorities), new))

    def frames_bytes(self, case: Case) -> Work:
        """Bytes per row of a buffer that stores each frame once."""
        buffer = self._make(ReplayBuffer, case, views=[FrameStack(STACK)])
        return Work(lambda: buffer.nbytes / case.capacity)

    def frames_sample(self, case: Case) -> Work:
        """A batch with stacks."""
        return Work(self._filled(case, views=[FrameStack(STACK)]).sample)

    def sequences(self, case: Case) -> Work:
        """A batch of sequences."""
        buffer = self._make(SequenceReplayBuffer, case, sequence_length=SEQUENCE)
        for rows in chunks_of(case.schema, case.capacity):
            buffer.insert(list(rows.values()), end=rows["terminated"])
        return Work(buffer.sample)

    def hindsight(self, case: Case) -> Work:
        """A batch with other goals."""
        reward = {"reward_fn": "sparse", "tolerance": REACHED}
        view = HindsightRelabel("future", GOALS / (GOALS + 1), achieved_goal="next_achieved_goal", **reward)
        buffer = self._filled(case, views=[view])
        return looped(Sample(buffer)) if case.compiled else Work(buffer.sample)

    def _in_files(self, case: Case) -> ReplayBuffer:
        return self._filled(case, storage=str(self.folder / "rows"))

    def files_insert(self, case: Case) -> Work:
        """One row of a buffer in files."""
        insert = in_turn(self._in_files(case).insert, lists(single_rows(case.schema)))
        return Work(insert, note=IN_FILES)

    def files_sample(self, case: Case) -> Work:
        """A batch from files."""
        return Work(self._in_files(case).sample, note=IN_FILES)

    def n_step(self, case: Case) -> Work:
        """An insertion and a batch."""
        buffer = self._filled(case, views=[NStep(N_STEP, GAMMA)])

        def both(row: list[Any]) -> None:
            buffer.insert(row, end=row[-1])
            buffer.sample()

        return Work(in_turn(both, lists(single_rows(case.schema))))

    def save(self, case: Case) -> Work:
        """Save the whole buffer; it is on the disk when the call returns."""
        buffer, path = self._filled(case), self.folder / "buffer.safetensors"
        return Work(lambda: save(buffer, path), note="with checksums; replaces the file before once it is on the disk")

    def load(self, case: Case) -> Work:
        """Load the file into a new buffer."""
        path = self.folder / "buffer.safetensors"
        save(self._filled(case), path)
        return Work(lambda: load(path), note="a new buffer, checksums compared")

    def empty_call(self, case: Case) -> Work:
        """Call a compiled graph that does almost nothing."""
        empty, start = Loop(None, repeat=1), Tensor(0, ms.int32)
        return Work(lambda: empty(start).asnumpy())

    def dqn(self, case: Case) -> Work:
        """Insert, sample and learn in one graph."""
        return DQN(LearnerWithBuffer()).work()

    def dqn_bursts(self, case: Case) -> Work:
        """The same, with several updates a graph."""
        return DQN(LearnerWithBuffer()).bursts()


if __name__ == "__main__":
    run_operators_on_one_core()
    answer(MindsporeReplay())
