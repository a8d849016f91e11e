"""torchrl: a `ReplayBuffer` of tensordicts in a `LazyTensorStorage`, which holds one tensor per column."""

import random
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    PrioritizedSampler,
    ReplayBuffer,
    Sequence,
    TensorDictReplayBuffer,
)
from torchrl.envs.transforms import MultiStepTransform

from ..answering import Work, answer
from ..cases import (
    ALPHA,
    BETA,
    DQN,
    GAMMA,
    N_STEP,
    SEQUENCE,
    STACK,
    Case,
    Schema,
    batch_of,
    chunks_of,
    in_turn,
    priorities_of,
    single_rows,
)
from .torch_peer import TorchPeer


def one_row(row: Mapping[str, Any], dtypes: Mapping[str, torch.dtype]) -> TensorDict:
    """A row as a tensordict."""
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
    """Return the columns' dtypes in torch."""
    return {name: getattr(torch, dtype) for name, (_, dtype) in schema.items()}


class Agent:
    """A DQN on CartPole-v1."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.random = random.Random(0)
        self.environment = gymnasium.make("CartPole-v1")
        self.observation = self.environment.reset(seed=0)[0]
        self.buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(DQN["capacity"]), batch_size=DQN["batch_size"])
        self.network, self.target = self._network(), self._network()
        self.target.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=DQN["learning_rate"])
        self.steps = 0

    @staticmethod
    def _network() -> torch.nn.Sequential:
        first, second = DQN["hidden"]
        return torch.nn.Sequential(
            torch.nn.Linear(4, first),
            torch.nn.ReLU(),
            torch.nn.Linear(first, second),
            torch.nn.ReLU(),
            torch.nn.Linear(second, 2),
        )

    def step(self) -> None:
        """Take one step of the environment and store it; the first ones are random."""
        if self.steps < DQN["learning_starts"] or self.random.random() < DQN["epsilon"]:
            action = self.random.randrange(2)
        else:
            with torch.no_grad():
                action = int(self.network(torch.from_numpy(self.observation)).argmax())
        following, reward, terminated, truncated, _ = self.environment.step(action)
        self.buffer.add(
            TensorDict(
                {
                    "observation": torch.from_numpy(self.observation),
                    "action": torch.tensor(action),
                    "reward": torch.tensor(reward, dtype=torch.float32),
                    "next_observation": torch.from_numpy(following),
                    "terminated": torch.tensor(terminated),
                }
            )
        )
        self.observation = self.environment.reset()[0] if terminated or truncated else following
        self.steps += 1

    def update(self) -> None:
        """Take one step of the optimizer."""
        batch = self.buffer.sample()
        with torch.no_grad():
            following = self.target(batch["next_observation"]).amax(1)
            goal = batch["reward"] + DQN["gamma"] * following * ~batch["terminated"]
        value = self.network(batch["observation"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1)
        loss = torch.nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), DQN["max_grad_norm"])
        self.optimizer.step()
        if self.steps % DQN["target_every"] == 0:
            self.target.load_state_dict(self.network.state_dict())

    def learn(self, steps: int) -> None:
        """Take steps of the environment, each with an update."""
        for _ in range(steps):
            self.step()
            self.update()


class TorchRL(TorchPeer):
    """Measures torchrl."""

    packages = ("torchrl", "tensordict", "torch")

    def _buffer(self, case: Case, storage: Any = None, **options: Any) -> ReplayBuffer:
        return ReplayBuffer(storage=storage or LazyTensorStorage(case.capacity), batch_size=case.batch, **options)

    def _filled(self, case: Case, **options: Any) -> ReplayBuffer:
        buffer = self._buffer(case, **options)
        for rows in chunks_of(case.schema, case.capacity):
            buffer.extend(rows_of(rows))
        return buffer

    def insert(self, case: Case) -> Work:
        """`add` of one row, `extend` with a batch."""
        buffer = self._filled(case)
        if case.batch == 1:
            return self._insertion(buffer, case)
        rows = batch_of(case.schema, case.batch)
        return Work(lambda: buffer.extend(rows_of(rows)))

    @staticmethod
    def _insertion(buffer: ReplayBuffer, case: Case) -> Work:
        dtypes = dtypes_of(case.schema)
        return Work(in_turn(lambda row: buffer.add(one_row(row, dtypes)), case.single_rows()))

    def sample(self, case: Case) -> Work:
        """A batch."""
        buffer = self._filled(case)
        return Work(lambda: buffer.sample())

    def _in_files(self, case: Case) -> ReplayBuffer:
        storage = LazyMemmapStorage(case.capacity, scratch_dir=self.folder / "rows")
        return self._filled(case, storage=storage)

    def files_insert(self, case: Case) -> Work:
        """`add` of one row of a buffer in files."""
        return self._insertion(self._in_files(case), case)

    def files_sample(self, case: Case) -> Work:
        """A batch from files."""
        buffer = self._in_files(case)
        return Work(lambda: buffer.sample())

    def _prioritized(self, case: Case) -> ReplayBuffer:
        buffer = self._filled(case, sampler=PrioritizedSampler(case.capacity, ALPHA, BETA))
        buffer.update_priority(torch.arange(case.capacity), torch.from_numpy(priorities_of(case.capacity)))
        return buffer

    def prioritized_insert(self, case: Case) -> Work:
        """A row, then its priority."""
        buffer = self._prioritized(case)
        dtypes = dtypes_of(case.schema)
        rows = single_rows(case.schema)
        priorities = priorities_of(len(rows)).tolist()

        def insert(item: tuple[dict[str, Any], float]) -> None:
            slot = buffer.add(one_row(item[0], dtypes))
            buffer.update_priority(slot, item[1])

        return Work(in_turn(insert, list(zip(rows, priorities, strict=True))))

    def prioritized_sample(self, case: Case) -> Work:
        """A batch with weights and slots."""
        buffer = self._prioritized(case)
        return Work(lambda: buffer.sample(return_info=True))

    def prioritized_update(self, case: Case) -> Work:
        """A batch, then new priorities for it."""
        buffer = self._prioritized(case)
        priorities = torch.from_numpy(priorities_of(case.batch))

        def update() -> None:
            _, info = buffer.sample(return_info=True)
            buffer.update_priority(info["index"], priorities)

        return Work(update)

    def frames_bytes(self, case: Case) -> Work:
        """Bytes of the storage's tensors by row."""
        buffer = self._filled(case)
        return Work(lambda: buffer[:].bytes(count_duplicates=False) / case.capacity)

    def frames_sample(self, case: Case) -> Work:
        """A batch of short sequences of frames, whose stacks are views of it."""
        window = Sequence(length=1, burn_in=STACK - 1, bootstrap=1, done_key="terminated")
        buffer = self._filled(case, sample_unit=window)

        def sample() -> dict[str, torch.Tensor]:
            windows = buffer.sample().reshape(case.batch, STACK + 1)
            frames = windows.pop("observation")
            last = windows[:, STACK - 1]
            return {"observation": frames[:, :-1], "next_observation": frames[:, 1:], **last}

        return Work(
            sample,
            note="stacks are views of the frames of a sampled sequence; the ends of episodes are found again after "
            "an insertion, which is not in the figure",
        )

    def sequences(self, case: Case) -> Work:
        """A batch of sequences that stop at the end of an episode, with masks."""
        buffer = self._filled(case, sample_unit=Sequence(length=SEQUENCE, done_key="terminated"))

        def sample() -> tuple[TensorDict, torch.Tensor]:
            steps, info = buffer.sample(return_info=True)
            shape = (case.batch, SEQUENCE)
            return steps.reshape(shape), info["validity_mask"].reshape(shape)

        return Work(sample, note="the ends of episodes are found again after an insertion, which is not in the figure")

    def n_step(self, case: Case) -> Work:
        """An insertion through the transform that sums rewards, and a batch."""
        buffer = self._buffer(case, transform=MultiStepTransform(N_STEP, GAMMA))
        for rows in chunks_of(case.schema, case.capacity + N_STEP):
            buffer.extend(with_next(rows_of(rows)))
        dtypes = dtypes_of(case.schema)

        def insert(row: dict[str, Any]) -> None:
            buffer.extend(with_next(one_row(row, dtypes).unsqueeze(0)))

        insertion = in_turn(insert, single_rows(case.schema))
        return Work(lambda: (insertion(), buffer.sample()), note="returns are made at insertion")

    def save(self, case: Case) -> Work:
        """A folder of memory-mapped tensors."""
        buffer = self._filled(case)
        path = self.folder / "buffer"
        return Work(lambda: buffer.dumps(path), note="over the files before")

    def load(self, case: Case) -> Work:
        """Load the folder into a buffer."""
        buffer = self._filled(case)
        path = self.folder / "buffer"
        buffer.dumps(path)
        return Work(lambda: buffer.loads(path))

    def dqn(self, case: Case) -> Work:
        """Run steps of an agent in plain torch."""
        agent = Agent()
        while agent.steps < DQN["learning_starts"]:
            agent.step()
        return Work(lambda: agent.learn(DQN["steps_a_call"]), each=DQN["steps_a_call"])


if __name__ == "__main__":
    answer(TorchRL())
