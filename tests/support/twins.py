"""Two buffers that must be equal: one calls kernels directly, the other runs graphs; and random calls of both."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import mindspore as ms
import numpy as np
from mindspore import Tensor
from pairs import same_states

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpochReplayBuffer,
    FrameStack,
    HindsightRelabel,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.ops import composite, native, primitives

CAPACITY = 12
#: Columns of rows: of transitions, and of steps towards goals.
STEPS: dict[str, Any] = {
    "shapes": [(2,), (), (), (), (2,), ()],
    "types": ["float32", "float32", "bool", "bool", "float32", "int16"],
    "names": ["observation", "reward", "terminated", "truncated", "next_observation", "group"],
}
#: Without a next observation, which the next row holds.
FRAMES = {key: [values[i] for i in (0, 1, 2, 3, 5)] for key, values in STEPS.items()}
GOALS: dict[str, Any] = {
    "shapes": [(), (), (), ()],
    "types": ["float32", "float32", "float32", "bool"],
    "names": ["achieved_goal", "desired_goal", "reward", "terminated"],
}


def reward_fn(achieved, goal):
    return ms.ops.cast(achieved == goal, ms.float32)


def reached_fn(achieved, goal):
    return ms.ops.cast(achieved == goal, ms.float32), achieved == goal


class Kind(NamedTuple):
    """A buffer's class, columns, and options beside sizes."""

    cls: Callable[..., Any]
    columns: dict[str, Any]
    options: dict[str, Any]

    def make(self, **more: Any) -> Any:
        return self.cls(2, CAPACITY, **(self.columns | {"seed": 0} | self.options | more))


PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta_steps": 5}
LIMITS: dict[str, Any] = {"max_use": 3, "max_staleness": 2}
HELD = {"default_priority": "largest_held"}
BY_PRIORITY: dict[str, Any] = PRIORITIES | {"prioritized": True}
SEQUENCES, LONGEST = {"sequence_length": 3}, {"max_episode_length": 4}
RETURNS, STACKS = NStep(2, 0.9), FrameStack(3)
KINDS: dict[str, Kind] = {
    "uniform": Kind(ReplayBuffer, STEPS, {}),
    "distinct": Kind(ReplayBuffer, STEPS, {"replace": False, "ordered": True, "num_envs": 2}),
    "weighted": Kind(ReplayBuffer, STEPS, {"weighted": True, "late": ["reward", "group"]}),
    "limits": Kind(ReplayBuffer, STEPS, LIMITS | {"replace": False}),
    "prioritized": Kind(PrioritizedReplayBuffer, STEPS, PRIORITIES | LIMITS | {"normalize": "buffer"}),
    "returns": Kind(PrioritizedReplayBuffer, STEPS, PRIORITIES | HELD | {"views": [RETURNS], "num_envs": 2}),
    "returns, next row": Kind(
        ReplayBuffer, FRAMES, {"views": [NStep(3, 0.5)], "late": ["terminated"], "ordered": True}
    ),
    "frames": Kind(ReplayBuffer, FRAMES, LIMITS | {"views": [STACKS], "num_envs": 2}),
    "frames, returns": Kind(PrioritizedReplayBuffer, FRAMES, PRIORITIES | {"views": [STACKS, RETURNS]}),
    "goals": Kind(ReplayBuffer, GOALS, {"views": [HindsightRelabel("random", 0.8, reward_fn)], "num_envs": 2}),
    "goals, returns": Kind(
        ReplayBuffer, GOALS, {"views": [HindsightRelabel("future", 0.8, reached_fn), NStep(3, 0.5, observation=())]}
    ),
    "sequences": Kind(
        SequenceReplayBuffer, STEPS, SEQUENCES | LIMITS | {"stride": 2, "burn_in": 1, "max_staleness": 4}
    ),
    "sequences, by priority": Kind(
        SequenceReplayBuffer,
        STEPS,
        BY_PRIORITY | HELD | {"sequence_length": 2, "num_envs": 2, "burn_in": 1, "pad_end": True},
    ),
    "sequences of frames": Kind(
        SequenceReplayBuffer, FRAMES, SEQUENCES | {"views": [STACKS, RETURNS], "pad_end": True, "stride": 2}
    ),
    "sequences of goals": Kind(
        SequenceReplayBuffer, GOALS, SEQUENCES | {"views": [HindsightRelabel("final", 0.8, reward_fn)], "burn_in": 1}
    ),
    "episodes": Kind(EpisodeReplayBuffer, STEPS, LONGEST | {"max_use": 5, "num_envs": 2}),
    "episodes, by priority": Kind(EpisodeReplayBuffer, FRAMES, LONGEST | BY_PRIORITY | {"views": [RETURNS]}),
    "episodes of goals": Kind(
        EpisodeReplayBuffer, GOALS, LONGEST | {"views": [HindsightRelabel("episode", 0.8, reward_fn)]}
    ),
    "reservoir": Kind(ReservoirReplayBuffer, STEPS, {}),
    "reservoir, weighted": Kind(ReservoirReplayBuffer, STEPS, {"max_use": 4, "late": ["reward"]}),
    "elastic": Kind(ElasticReplayBuffer, STEPS, {}),
    "elastic, weighted": Kind(ElasticReplayBuffer, STEPS, {"weighted": True}),
    "elastic, by priority": Kind(ElasticReplayBuffer, STEPS, BY_PRIORITY | {"normalize": "buffer"}),
    "epochs": Kind(EpochReplayBuffer, STEPS, {"max_use": 2, "rank": 1, "world": 2}),
    "epochs, padded": Kind(EpochReplayBuffer, STEPS, {"weighted": True, "last": "pad", "rank": 2, "world": 3}),
    "epochs of sequences": Kind(
        EpochReplayBuffer, FRAMES, SEQUENCES | {"last": "pad", "pad_end": True, "views": [RETURNS], "late": ["group"]}
    ),
    "epochs of goals": Kind(
        EpochReplayBuffer, GOALS, {"views": [HindsightRelabel("final", 1.0, reward_fn)], "last": "pad"}
    ),
    "queue": Kind(ReplayQueue, STEPS, {"late": ["reward"]}),
    "queue of sequences": Kind(ReplayQueue, STEPS, SEQUENCES | {"stride": 2, "burn_in": 1, "max_staleness": 4}),
    "stack of sequences": Kind(
        ReplayQueue, STEPS, SEQUENCES | {"stride": 3, "pad_end": True, "order": "lifo", "when_full": "evict"}
    ),
}


def elsewhere() -> Any:
    """Make the package treat the memory of Parameters as a device's, within the context."""
    return mock.patch.object(native, "on_cpu", return_value=False)


@contextlib.contextmanager
def not_compiled() -> Iterator[None]:
    """Make the package run the bodies of graphs operator by operator, if they are called first within the context."""

    def searchsorted_int32(order: Any, values: Any) -> Any:  # MindSpore's own fails outside graphs
        return ms.ops.cast(primitives.searchsorted(order, values), ms.int32)

    with (
        mock.patch.object(ms, "jit", lambda body: body),
        mock.patch.object(composite, "searchsorted_int32", searchsorted_int32),
    ):
        yield


class Twins:
    """A buffer whose kernels are called directly, and one that calls graphs, each call within a context."""

    def __init__(self, direct: Any, other: Callable[[], Any], within: Callable[[], Any] = elsewhere) -> None:
        self.direct, self.within = direct, within
        with within():
            self.compiled = other()

    def both(self, call: Callable[[Any], Any]) -> Any:
        """Return the result of a call, or the error that it raises: the same from both."""
        expected = outcome(call, self.direct)
        with self.within():
            got = outcome(call, self.compiled)
        assert got == expected
        return expected

    def compare(self) -> None:
        """Check that the whole state is equal bit for bit."""
        with self.within():
            state = self.compiled.state_dict()
            self.compiled.check_valid()
        expected = self.direct.state_dict()
        assert [key for key in expected if state[key].tobytes() != expected[key].tobytes()] == []
        assert same_states(state, expected)


def outcome(call: Callable[[Any], Any], buffer: Any) -> Any:
    """Return the result of a call as plain values, or the type and the text of its error."""
    try:
        result = call(buffer)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        return type(error), str(error)
    return "itself" if result is buffer else plain(result)


def plain(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [plain(part) for part in result]
    array = result.asnumpy() if isinstance(result, Tensor) else np.asarray(result)
    return array.dtype.name, array.shape, array.tobytes()


def rows(buffer: Any, n: int | None, first: int) -> list[np.ndarray]:
    """Return n rows, or one without a leading axis, without late columns."""
    numbers = np.arange(first, first + (n or 1))
    return [values_of(buffer, i, numbers, n) for i in buffer.columns.present]


def values_of(buffer: Any, column: int, numbers: np.ndarray, n: int | None = 1) -> np.ndarray:
    """Return values of a column, which depend on the numbers of the rows."""
    shape, dtype = buffer.columns.shapes[column], buffer.columns.numpy_types[column]
    field = numbers % (2 + column) == 0 if dtype == np.bool_ else (numbers % (7 - column)).astype(dtype)
    field = np.broadcast_to(field.reshape(-1, *(1 for _ in shape)), (len(numbers), *shape)).copy()
    return field if n else field[0]


def calls_of(
    buffer: Any, rng: np.random.Generator, sizes: tuple[int | None, ...], most: int, versions: bool = True
) -> Iterator[Any]:
    """Yield calls in random order, some of which fail. They depend on the buffer's rows at that time.

    Args:
        buffer (Buffer): The buffer; calls go to it before the next one is made.
        rng (numpy.random.Generator): Chooses.
        sizes (tuple): Numbers of rows of an insertion, of each environment; ``None`` is one row without an axis.
        most (int): The number of calls.
        versions (bool): Whether insertions may give versions.
    """
    for _ in range(most):
        yield from call_of(buffer, int(buffer.serials.asnumpy()[0]), rng, sizes, versions)


def call_of(
    buffer: Any, inserted: int, rng: np.random.Generator, sizes: tuple[int | None, ...], versions: bool
) -> list[Any]:
    """Return calls of one method, or of a few that are cheap."""
    n = sizes[rng.integers(len(sizes))]
    n = n and n * buffer.num_envs
    many, small = n or 1, int(rng.integers(0, 3))
    handles = inserted - rng.integers(-1, (4, CAPACITY, CAPACITY + 3)[small], 4)
    priority = np.round(rng.random(many) * 3, 1).astype(np.float32) * (rng.random(many) < 0.9)
    each: dict[str, Any] = {}
    if buffer.has_episodes:
        each |= {"end": rng.random(many) < 0.3, "final": rng.random(many) < 0.1}
    if buffer.prioritized:
        each["priority"] = priority
    if versions and buffer.weighted and small == 0:
        each["version"] = np.maximum(int(buffer.clock.asnumpy()[0]) - rng.integers(0, 3, many), 0)
    given: dict[str, Any] = each if n else {name: values[0].item() for name, values in each.items()}
    flags = {"with_indices": True} if buffer.has_handles and not buffer.spec.always_handles else {}
    late = buffer.columns.late
    columns = [i for i in range(len(buffer.columns)) if i in late or (not late and (i + small) % 2 == 0)]
    written = {buffer.columns.names[i]: values_of(buffer, i, handles * (1 + small)) for i in columns}
    ready = bool(buffer.can_sample())
    kinds: list[list[Callable[[Any], Any]]] = [
        *[[lambda b: b.insert(rows(b, n, inserted), **given)]] * (5 if ready else 12),
        *[[lambda b: b.sample(**flags)]] * (8 if ready else 1),
        [lambda b: b.get_item([0, -1, small]), lambda b: (b.size(), b.full(), b.can_sample())],
        *[[lambda b: b.update(handles, written)]] * (6 if late else 3 if buffer.has_episodes else 1),
        [(lambda b: b.reset(), lambda b: b.end_episodes(), lambda b: b.rows())[small]],
    ]
    if buffer.weighted:
        look = lambda b: b.info(handles)  # noqa: E731
        kinds += [[lambda b: b.delete(handles[:2]), look], [lambda b: b.advance(small), look], [look]]
    if buffer.prioritized:
        kinds += [
            [lambda b: b.update_priorities(handles, priority[0])],
            [lambda b: b.update_priorities(handles, np.float32([0, 1, 2, 0.5]))],
            [lambda b: b.sample(beta=small / 2)],
        ]
    if type(buffer) is ReplayBuffer:
        kinds += [[lambda b: b.sample([(-4, None), (1, 9), (0, 3)][small], **flags)]] * 2
    if isinstance(buffer, ElasticReplayBuffer):
        kinds += [[lambda b: b.set_window([2, 5, 12][small])]] * 2
    if isinstance(buffer, EpochReplayBuffer):
        kinds += [[lambda b: b.begin_epoch()]]
    if isinstance(buffer, EpisodeReplayBuffer) and "group" in buffer.columns.names:
        kinds += [[lambda b: b.sample_groups("group", 2, 3, ordered=small > 0)]] * 2
    return kinds[rng.integers(len(kinds))]
