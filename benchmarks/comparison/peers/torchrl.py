"""torchrl: a `ReplayBuffer` of tensordicts in a `LazyTensorStorage`, which holds one tensor per column."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, PrioritizedSampler, ReplayBuffer, Sequence
from torchrl.envs.transforms import MultiStepTransform

from ..answering import Work, answer
from ..cases import ALPHA, BETA, GAMMA, N_STEP, SEQUENCE, STACK, Case, Schema, chunks_of, priorities_of
from .torch_peer import TorchPeer

#: The table of ends that its sampler of sequences keeps.
FOUND_AGAIN = "the ends of episodes are found again after an insertion, which is not in the figure"


def one_row(row: Mapping[str, Any], dtypes: Mapping[str, torch.dtype]) -> TensorDict:
    return TensorDict(
        {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else torch.tensor(value, dtype=dtypes[name])
            for name, value in row.items()
        }
    )


def rows_of(rows: Mapping[str, np.ndarray]) -> TensorDict:
    """Rows as a tensordict of one batch axis, which shares their memory."""
    return TensorDict(
        {name: torch.from_numpy(column) for name, column in rows.items()}, [len(next(iter(rows.values())))]
    )


def with_next(rows: TensorDict) -> TensorDict:
    """Return rows in the layout of transforms: the results of the step are under ``next``."""
    return TensorDict(
        {
            "observation": rows["observation"],
            "action": rows["action"],
            "next": {
                "observation": rows["next_observation"],
                "reward": rows["reward"].unsqueeze(-1),
                "terminated": rows["terminated"].unsqueeze(-1),
                "done": rows["terminated"].unsqueeze(-1),
            },
        },
        rows.batch_size,
    )


def dtypes_of(schema: Schema) -> dict[str, torch.dtype]:
    return {name: getattr(torch, dtype) for name, (_, dtype) in schema.items()}


class TorchRL(TorchPeer):
    """Measures torchrl."""

    packages = ("torchrl", "tensordict", "torch")
    lacks: Mapping[str, str] = {"dqn": "its losses and loops are put together by the caller"}
    notes: Mapping[str, str] = {
        "frames_sample": f"stacks are views of the frames of a sampled sequence; {FOUND_AGAIN}",
        "sequences": FOUND_AGAIN,
        "n_step": "returns are made at insertion",
        "save": "over the files before",
    }

    def filled(self, case: Case, storage: Any = None, **options: Any) -> ReplayBuffer:
        buffer = ReplayBuffer(storage=storage or LazyTensorStorage(case.capacity), batch_size=case.batch, **options)
        for rows in chunks_of(case.schema, case.capacity):
            buffer.extend(rows_of(rows))
        return buffer

    def in_files(self, case: Case) -> ReplayBuffer:
        return self.filled(case, LazyMemmapStorage(case.capacity, scratch_dir=self.folder / "rows"))

    def adding(self, buffer: ReplayBuffer, case: Case) -> Callable[[Any], Any]:
        dtypes = dtypes_of(case.schema)
        if case.work == "n_step":
            return lambda row: buffer.extend(with_next(one_row(row, dtypes).unsqueeze(0)))
        return lambda row: buffer.add(one_row(row, dtypes))

    def extending(self, buffer: ReplayBuffer, rows: Mapping[str, np.ndarray]) -> Callable[[], Any]:
        return lambda: buffer.extend(rows_of(rows))

    def drawing(self, buffer: ReplayBuffer, case: Case) -> Callable[[], Any]:
        if case.work == "prioritized_sample":
            return lambda: buffer.sample(return_info=True)
        if case.work != "frames_sample":
            return lambda: buffer.sample()

        def sample() -> dict[str, torch.Tensor]:
            windows = buffer.sample().reshape(case.batch, STACK + 1)
            frames = windows.pop("observation")
            last = windows[:, STACK - 1]
            return {"observation": frames[:, :-1], "next_observation": frames[:, 1:], **last}

        return sample

    def prioritized(self, case: Case) -> ReplayBuffer:
        buffer = self.filled(case, sampler=PrioritizedSampler(case.capacity, ALPHA, BETA))
        buffer.update_priority(torch.arange(case.capacity), torch.from_numpy(priorities_of(case.capacity)))
        return buffer

    def adding_by_priority(self, buffer: ReplayBuffer, case: Case) -> Callable[[Any], None]:
        dtypes = dtypes_of(case.schema)
        return lambda pair: buffer.update_priority(buffer.add(one_row(pair[0], dtypes)), pair[1])

    def updating(self, buffer: ReplayBuffer, case: Case, priorities: np.ndarray) -> Callable[[], None]:
        new = torch.from_numpy(priorities)
        return lambda: buffer.update_priority(buffer.sample(return_info=True)[1]["index"], new)

    def frames(self, case: Case) -> ReplayBuffer:
        if case.work == "frames_bytes":
            return self.filled(case)
        return self.filled(case, sample_unit=Sequence(length=1, burn_in=STACK - 1, bootstrap=1, done_key="terminated"))

    def bytes_of(self, buffer: ReplayBuffer) -> int:
        return buffer[:].bytes(count_duplicates=False)

    def sequences(self, case: Case) -> Work:
        buffer = self.filled(case, sample_unit=Sequence(length=SEQUENCE, done_key="terminated"))

        def sample() -> tuple[TensorDict, torch.Tensor]:
            steps, info = buffer.sample(return_info=True)
            shape = (case.batch, SEQUENCE)
            return steps.reshape(shape), info["validity_mask"].reshape(shape)

        return Work(sample)

    def with_returns(self, case: Case) -> ReplayBuffer:
        storage, transform = LazyTensorStorage(case.capacity), MultiStepTransform(N_STEP, GAMMA)
        buffer = ReplayBuffer(storage=storage, batch_size=case.batch, transform=transform)
        for rows in chunks_of(case.schema, case.capacity + N_STEP):
            buffer.extend(with_next(rows_of(rows)))
        return buffer

    def saving(self, buffer: ReplayBuffer, path: Path) -> Callable[[], None]:
        return lambda: buffer.dumps(path)

    def loading(self, buffer: ReplayBuffer, path: Path) -> Callable[[], None]:
        return lambda: buffer.loads(path)


if __name__ == "__main__":
    answer(TorchRL())
