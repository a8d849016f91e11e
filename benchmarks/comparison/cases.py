"""The cases, their sizes, and their rows. NumPy only; every peer's process imports it."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: A column: shape of one row and dtype.
Schema = dict[str, tuple[tuple[int, ...], str]]

#: Reward and end of an episode have these names in every schema with episodes.
CARTPOLE: Schema = {
    "observation": ((4,), "float32"),
    "action": ((), "int32"),
    "reward": ((), "float32"),
    "next_observation": ((4,), "float32"),
    "terminated": ((), "bool"),
}
#: A continuous control task of MuJoCo's size.
WIDE: Schema = {
    "observation": ((17,), "float32"),
    "action": ((6,), "float32"),
    "reward": ((1,), "float32"),
    "next_observation": ((17,), "float32"),
}
#: Two stacks of four frames: the rows of a DQN on Atari if frames are not shared.
_STACK = ((84, 84, 4), "uint8")
ATARI_PAIRS: Schema = {**CARTPOLE, "observation": _STACK, "next_observation": _STACK}
#: Steps of a recurrent agent.
STEPS: Schema = {name: column for name, column in CARTPOLE.items() if name != "next_observation"}
#: One frame a step; a sample equals one of ATARI_PAIRS, assembled when it is drawn.
ATARI_FRAMES: Schema = {**STEPS, "observation": ((84, 84), "uint8")}
#: A task with goals, of the sizes of a robot's arm that reaches for a point.
REACH: Schema = {
    "observation": ((10,), "float32"),
    "achieved_goal": ((3,), "float32"),
    "desired_goal": ((3,), "float32"),
    "action": ((4,), "float32"),
    "reward": ((), "float32"),
    "next_observation": ((10,), "float32"),
    "next_achieved_goal": ((3,), "float32"),
    "terminated": ((), "bool"),
}

EPISODE = 200  # steps of an episode, where a schema has episodes
STACK = 4
SEQUENCE = 80
N_STEP = 5
GOALS = 4  # other goals for each original one, in hindsight
REACHED = 0.05  # the distance at which a goal is reached
GAMMA = 0.99
ALPHA, BETA = 0.6, 0.4  # of prioritized replay
MILLION = 1 << 20

#: The DQN of the case ``dqn``: the same for every peer. The loss is Huber's, the optimizer Adam; each environment step
#: is followed by one update, or `burst_steps` of them by `burst_updates`. The target is copied after `target_every`.
DQN = {
    "hidden": [64, 64],
    "learning_rate": 1e-3,
    "batch_size": 64,
    "capacity": 50_000,
    "learning_starts": 1000,
    "gamma": GAMMA,
    "epsilon": 0.1,
    "target_every": 500,
    "max_grad_norm": 10.0,
    "steps_a_call": 100,
    "burst_steps": 256,
    "burst_updates": 128,
    "updates_a_call": 8,  # of a compiled function, where the updates come in bursts
}


def row_bytes(schema: Schema) -> int:
    return sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in schema.values())


@dataclass(frozen=True)
class Case:
    """A measured operation.

    Args:
        name (str): Its name on the command line and in the results.
        title (str): A one-line title.
        work (str): The name of the peer's method.
        schema (dict): Columns of a row.
        capacity (int): Rows of the buffer, all of them filled before the timing.
        batch (int): Rows of one insertion or sample.
        compiled (bool): True if the operation runs in a compiled loop, so that no call from Python is counted.
        on_disk (bool): True if an operation ends when everything written is on the disk.
        unit (str): ``"s"``, the time of one operation; ``"steps/s"``, its reciprocal; or ``"bytes"`` of a row, which
            are measured once.
        stepped (bool): True if single rows hold what gymnasium's ``env.step`` and ``action_space.sample`` gave.
    """

    name: str
    title: str
    work: str
    schema: Schema = field(default_factory=dict)
    capacity: int = 100_000
    batch: int = 64
    compiled: bool = False
    on_disk: bool = False
    unit: str = "s"
    stepped: bool = False

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.schema)

    def single_rows(self) -> list[dict[str, Any]]:
        return (stepped_rows if self.stepped else single_rows)(self.schema)


def _both(name: str, title: str, work: str, *args: Any) -> list[Case]:
    """Return a case in two forms: eager, one call from Python, and in a compiled loop."""
    return [
        Case(name, title, work, *args),
        Case(f"{name}_compiled", f"{title}, in a compiled loop", work, *args, compiled=True),
    ]


def _capacities() -> list[Case]:
    return [
        Case(f"capacity_{work}_1e{power}", f"{title}, capacity 1e{power}", work, CARTPOLE, 10**power, batch)
        for work, title, batch in (("insert", "insert one transition", 1), ("sample", "sample 64", 64))
        for power in (4, 5, 6, 7)
    ]


ATARI_CAPACITY = 10_000
FRAMES_CAPACITY = 50_000
GIGABYTE_ROWS = 10**9 // row_bytes(WIDE)

CASES: tuple[Case, ...] = (
    *_both("insert_1", "insert one CartPole transition", "insert", CARTPOLE, 100_000, 1),
    Case(
        "insert_1_gymnasium",
        "insert one CartPole transition as gymnasium gives it",
        "insert",
        CARTPOLE,
        batch=1,
        stepped=True,
    ),
    *_both("insert_64", "insert 64 CartPole transitions", "insert", CARTPOLE, 100_000, 64),
    *_both("sample_64", "sample 64 CartPole transitions", "sample", CARTPOLE, 100_000, 64),
    Case("sample_64_arrays", "sample 64 CartPole transitions as NumPy arrays", "sample_arrays", CARTPOLE, 100_000, 64),
    Case("insert_million", "insert 1,000,000 rows of 17+6+1+17 float32 at once", "insert", WIDE, 10**6, 10**6),
    *_both("sample_million", "sample 256 of 1,000,000 rows of 17+6+1+17 float32", "sample", WIDE, 10**6, 256),
    *_both("prioritized_insert", "insert a row with a priority, 2^20 rows", "prioritized_insert", CARTPOLE, MILLION, 1),
    *_both("prioritized_sample", "sample 256 by priority, 2^20 rows", "prioritized_sample", CARTPOLE, MILLION, 256),
    *_both(
        "prioritized_update",
        "sample 256 and update their priorities, 2^20 rows",
        "prioritized_update",
        CARTPOLE,
        MILLION,
        256,
    ),
    Case("atari_32", "sample 32 Atari pairs, 2 x (84, 84, 4) uint8", "sample", ATARI_PAIRS, ATARI_CAPACITY, 32),
    Case("atari_256", "sample 256 Atari pairs, 2 x (84, 84, 4) uint8", "sample", ATARI_PAIRS, ATARI_CAPACITY, 256),
    Case(
        "frames_bytes",
        "memory of one Atari step, frames stored once",
        "frames_bytes",
        ATARI_FRAMES,
        FRAMES_CAPACITY,
        32,
        unit="bytes",
    ),
    Case("frames_32", "sample 32 Atari pairs, frames stored once", "frames_sample", ATARI_FRAMES, FRAMES_CAPACITY, 32),
    Case("sequences", "sample 32 sequences of 80 steps", "sequences", STEPS, 100_000, 32),
    Case("n_step", "insert one row and sample 64 with 5-step returns", "n_step", CARTPOLE, 100_000, 64),
    *_both("hindsight", "sample 256 rows, four of five with another goal", "hindsight", REACH, 100_000, 256),
    Case("files_insert", "insert one CartPole transition, rows in files", "files_insert", CARTPOLE, 100_000, 1),
    Case("files_sample", "sample 64 CartPole transitions, rows in files", "files_sample", CARTPOLE, 100_000, 64),
    Case("save", "save 1 GB, to the disk", "save", WIDE, GIGABYTE_ROWS, 256, on_disk=True),
    Case("load", "load 1 GB", "load", WIDE, GIGABYTE_ROWS, 256),
    *_capacities(),
    Case("empty_call", "a call of a compiled function that does nothing", "empty_call"),
    Case("dqn", "environment steps a second of a DQN on CartPole-v1", "dqn", CARTPOLE, 50_000, 64, unit="steps/s"),
    Case(
        "dqn_bursts",
        "environment steps a second of a DQN with 128 updates after each 256",
        "dqn_bursts",
        CARTPOLE,
        50_000,
        64,
        unit="steps/s",
    ),
)


def batch_of(schema: Schema, rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return rows of a schema with random contents ``[rows, *F]``; every `EPISODE`-th is the last of its episode."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name, (shape, dtype) in schema.items():
        if name == "terminated":
            columns[name] = np.arange(1, rows + 1) % EPISODE == 0
        elif dtype == "uint8":
            columns[name] = rng.integers(0, 256, (rows, *shape), np.uint8)
        elif dtype == "int32":
            columns[name] = rng.integers(0, 2, (rows, *shape), np.int32)
        else:
            columns[name] = rng.random((rows, *shape), np.float32)
    return columns


def chunks_of(schema: Schema, rows: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield `rows` rows in batches of whole episodes, at most 256 MB each; a buffer that takes them all is full."""
    most = min(max((1 << 28) // row_bytes(schema) // EPISODE, 1), 500) * EPISODE
    for seed, start in enumerate(range(0, rows, most)):
        yield batch_of(schema, min(most, rows - start), seed)


def single_rows(schema: Schema, rows: int = 1000, seed: int = 0) -> list[dict[str, Any]]:
    columns = batch_of(schema, rows, seed)
    return [
        {k: column[i] if column[i].shape else column[i].item() for k, column in columns.items()} for i in range(rows)
    ]


def stepped_rows(schema: Schema, rows: int = 1000, seed: int = 0) -> list[dict[str, Any]]:
    """Return single rows in the types that gymnasium gives for CartPole: a sampled action is an ``np.int64``."""
    return [{**row, "action": np.int64(row["action"])} for row in single_rows(schema, rows, seed)]


def priorities_of(rows: int, seed: int = 0) -> np.ndarray:
    return 1 - np.random.default_rng(seed).random(rows, np.float32)


def in_turn(function: Callable[[Any], Any], items: list[Any]) -> Callable[[], None]:
    """Return a function that calls `function` with the next of some items each time, and restarts after the last."""
    turns = itertools.cycle(items)
    return lambda: function(next(turns))
