"""Mixed precision of the Cell that holds a buffer casts nothing in the buffer."""

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body, filled
from checkpoint_cases import BUFFERS, insert
from mindspore import Tensor, amp, nn, ops

from mindspore_replay import MixedReplay, PrioritizedReplayBuffer, ReplayBuffer

DTYPES = {"float16": ms.float16, "bfloat16": ms.bfloat16}
LEVELS = ["to_float", "O1", "O2", "O3", "auto"]


@pytest.fixture
def _mode_is_set_back() -> Iterator[None]:
    before = ms.get_context("mode")
    yield
    ms.set_context(mode=before)


@pytest.fixture
def _graph_mode(_mode_is_set_back: None) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


def with_precision(cell: nn.Cell, level: str, dtype: str = "float16") -> nn.Cell:
    if level == "to_float":
        return cell.to_float(DTYPES[dtype])
    return amp.auto_mixed_precision(cell, level, DTYPES[dtype])


class Step(Body):
    """Inserts rows and samples."""

    def store(self, observation, reward, terminated):
        self.buffer.insert([ops.cast(observation, ms.float32), ops.cast(reward, ms.float32), terminated])

    def construct(self, observation, reward, terminated):
        self.store(observation, reward, terminated)
        return self.buffer.sample()


class PrioritizedStep(Step):
    """Updates priorities too."""

    def construct(self, observation, reward, terminated):
        self.store(observation, reward, terminated)
        batch = self.buffer.sample()
        self.buffer.update_priorities(batch[0], batch[1] * 2)
        return batch


class Passing(Body):
    """Inserts its inputs, which mixed precision casts."""

    def construct(self, observation, reward, terminated):
        self.buffer.insert([observation, reward, terminated])
        return self.buffer.size()


class MixedStep(nn.Cell):
    """Samples from two buffers."""

    def __init__(self) -> None:
        super().__init__()
        parts = [(made("prioritized", "native"), 0.5), (made("uniform", "native"), 0.5)]
        self.mixed = MixedReplay(parts, 4)

    def construct(self):
        return self.mixed.sample()


def made(kind: str, backend: str, **other: Any) -> Any:
    return filled(
        lambda given: BUFFERS[kind](backend=given, seed=0, **other), backend, lambda buffer: insert(buffer, 20)
    )


def numbers(n: int) -> list[Tensor]:
    """Rows that float16 and bfloat16 hold exactly."""
    return [Tensor(np.full((n, 40), 0.5, np.float32)), Tensor(np.ones(n, np.float32)), Tensor(np.zeros(n, bool))]


def assert_same(batch: Any, expected: Any) -> None:
    for got, wanted in zip(batch, expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.asnumpy(), wanted.asnumpy())


def assert_step_is_exact(kind: str, backend: str, level: str, dtype: str, **other: Any) -> None:
    """Check that one compiled step under mixed precision equals native calls from Python."""
    plain, mixed = made(kind, "native", **other), made(kind, backend, **other)
    given = numbers(plain.num_envs)
    step = (PrioritizedStep if plain.prioritized else Step)(mixed)
    batch = with_precision(step, level, dtype)(*given)
    expected = plain.insert(given).sample()
    if plain.prioritized:
        plain.update_priorities(expected[0], expected[1] * 2)
    assert_same(batch, expected)
    mixed_state = mixed.state_dict()
    for key, array in plain.state_dict().items():
        np.testing.assert_array_equal(mixed_state[key], array, err_msg=key)


#: Native buffers of several classes.
NATIVE = ("views", "sequence", "elastic", "reservoir with weights")


@pytest.mark.usefixtures("_graph_mode")
@pytest.mark.parametrize("kind", NATIVE)
def test_a_compiled_step_is_exact_for_every_buffer(kind: str) -> None:
    assert_step_is_exact(kind, "native", "O2", "float16")


@pytest.mark.usefixtures("_graph_mode")
@pytest.mark.parametrize(
    ("level", "dtype"), [("to_float", "float16"), ("O3", "float16"), ("O1", "bfloat16"), ("auto", "bfloat16")]
)
def test_a_compiled_step_is_exact_at_every_level(level: str, dtype: str) -> None:
    assert_step_is_exact("prioritized", "native", level, dtype)


@pytest.mark.usefixtures("_graph_mode")
def test_batches_from_several_buffers_are_exact() -> None:
    batch = with_precision(MixedStep(), "O2")()
    assert_same(batch, MixedStep().mixed.sample())


@pytest.mark.parametrize("level", LEVELS)
def test_calls_in_pynative_mode_are_exact(level: str) -> None:
    assert_step_is_exact("prioritized", "native", level, "float16")


@pytest.mark.usefixtures("_mode_is_set_back")
def test_functions_keep_no_level_of_a_caller() -> None:
    """MindSpore notes the level of its first caller with each function that it compiles, for the whole process."""
    for mode, level in ((ms.PYNATIVE_MODE, "auto"), (ms.PYNATIVE_MODE, "auto"), (ms.GRAPH_MODE, "O0")):
        ms.set_context(mode=mode)
        assert_step_is_exact("prioritized", "composite", level, "float16")


@pytest.mark.usefixtures("_graph_mode")
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_the_owner_casts_are_refused(dtype: str) -> None:
    buffer = made("uniform", "native")
    step = with_precision(Passing(buffer), "to_float", dtype)
    with pytest.raises(TypeError, match=rf"'observation': expected float32, but got {dtype}.* computes in {dtype}"):
        step(*numbers(1))
    assert buffer.size() == 20


def test_pynative_mode_casts_no_rows() -> None:
    buffer = made("uniform", "native")
    with_precision(Passing(buffer), "to_float")(*[1 / 3 * numbers(1)[0], *numbers(1)[1:]])
    np.testing.assert_array_equal(buffer.get_item(-1)[0].asnumpy(), np.full(40, np.float32(0.5) * np.float32(1 / 3)))


def test_rows_from_python_are_no_owners() -> None:
    buffer = made("uniform", "native")
    with_precision(Passing(buffer), "to_float")
    buffer.insert([ops.cast(row, ms.float16) for row in numbers(1)[:2]] + [numbers(1)[2]])
    assert buffer.get_item(-1)[0].asnumpy().tolist() == [0.5] * 40


def test_other_wrong_dtypes_have_no_such_cause() -> None:
    buffer = made("uniform", "auto")
    with_precision(Passing(buffer), "to_float")
    observation, reward, terminated = numbers(1)
    with pytest.raises(TypeError, match=r"'reward': expected float32, but got complex64\.") as error:
        buffer.insert([observation, ops.cast(reward, ms.complex64), terminated])
    assert "computes in" not in str(error.value)


def test_a_column_keeps_its_own_half_precision() -> None:
    buffer = ReplayBuffer(2, 4, [()], [ms.float16]).to_float(ms.float32)
    batch = buffer.insert([np.ones(2, np.float16)]).sample()
    assert batch[0].dtype == ms.float16


def test_networks_beside_the_buffer_are_cast() -> None:
    """A wrong way to exclude the buffer would exclude them too."""
    step = Passing(PrioritizedReplayBuffer(1, 2, [()], ["float32"]))
    step.dense = nn.Dense(2, 2)
    step.to_float(ms.float16)
    assert step.dense.fp16
    assert not hasattr(step.buffer, "fp16")
