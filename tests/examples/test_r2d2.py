"""The states that examples/r2d2.py stores, starts from and refreshes."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from places import ROOT

from mindspore_replay import columns_of, create_buffer, load_config

ENVS, CAPACITY, STEPS, HIDDEN, BURN_IN, LENGTH = 3, 60, 43, 5, 3, 3


@pytest.fixture
def r2d2(script: Any) -> Iterator[ModuleType]:
    """Import the script r2d2.py as a module. Its Cells are graphs, as when it runs."""
    module = script("r2d2")
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield module
    ms.set_context(mode=before)


def make(r2d2: ModuleType, stride: int) -> Any:
    """Make a learner with a small buffer of three environments."""
    config = load_config(ROOT / "configs" / "r2d2_cartpole.yaml")
    settings = {"capacity": CAPACITY, "sample_size": 8, "sequence_length": LENGTH, "burn_in": BURN_IN, "stride": stride}
    further = {name: ((HIDDEN,), "float32") for name in ("h", "c")}
    settings |= columns_of(r2d2.PositionsOnly(), further=further)
    settings |= {"num_envs": ENVS, "seed": 0, "backend": "native"}
    config["learner"]["hidden"] = HIDDEN
    ms.set_seed(0)
    networks = (r2d2.RecurrentNetwork([1, 1, 1], HIDDEN, 2, False) for _ in range(2))
    buffer = create_buffer({**config["replay_buffer"], **settings})
    return r2d2.RecurrentLearner(*networks, buffer, {**config, "refresh": True})


def fill(buffer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Insert more rows than fit; return their observations, and the steps at which their episodes began."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(STEPS + 1, ENVS, 3)).astype(np.float32)
    states = rng.normal(size=(STEPS, ENVS, 2, HIDDEN)).astype(np.float32)
    begins, begin = np.zeros((STEPS, ENVS), int), np.zeros(ENVS, int)
    for step in range(STEPS):
        begins[step] = begin
        states[step, begin == step] = 0
        end = rng.random(ENVS) < 0.12
        action, reward = rng.integers(0, 2, ENVS).astype(np.int32), np.ones(ENVS, np.float32)
        h, c = states[step].swapaxes(0, 1)
        buffer.insert([seen[step], action, reward, seen[step + 1], end, h, c], end=end)
        begin = np.where(end, step + 1, begin)
    return seen, begins


def stored(buffer: Any) -> np.ndarray:
    """Return the states of the stored rows, by handle from the oldest. Shape ``[C, 2, H]``."""
    return np.stack([column.asnumpy() for column in buffer.rows()[-2:]], 1)


def upcoming(buffer: Any) -> np.ndarray:
    """Return the handles of the next sample."""
    state = buffer.state_dict()
    indices = buffer.sample()[0].asnumpy()
    buffer.load_state_dict(state)
    return indices


def test_refreshed_states_are_those_of_an_actor_in_the_rows_where_sequences_begin(r2d2: ModuleType):
    """An actor with the old network steps through each sequence from the stored state of its first row."""
    stride = 2
    learner = make(r2d2, stride)
    seen, begins = fill(learner.buffer)
    policy = r2d2.Policy(learner.network)
    oldest, met = STEPS * ENVS - CAPACITY, set()
    for _ in range(4):
        before = stored(learner.buffer)
        wanted = before.copy()
        for start in upcoming(learner.buffer):
            middle, env = divmod(int(start), ENVS)
            first, begin = middle - BURN_IN, begins[middle, env]
            assert (middle - begin) % stride == 0  # so sequences of an episode begin whole strides apart
            state = before[first * ENVS + env - oldest] if first >= begin else np.zeros((2, HIDDEN), np.float32)
            if first < begin:
                met.add("the episode begins within the burn-in")
            h, c = (Tensor(part[None, None]) for part in state)
            for step in range(max(first, begin), middle + LENGTH):
                if step == STEPS or begins[step, env] != begin:
                    met.add("the episode ends before the sequence")
                    break
                handle = step * ENVS + env
                if step > first and (step - first) % stride == 0:
                    wanted[handle - oldest] = h.asnumpy()[0, 0], c.asnumpy()[0, 0]
                    if handle // CAPACITY > (first * ENVS + env) // CAPACITY:
                        met.add("the ring's end")
                _, h, c = policy(Tensor(seen[step, env][None]), h, c)
        learner()
        after = stored(learner.buffer)
        np.testing.assert_allclose(after, wanted, rtol=0, atol=1e-6)
        untouched = (wanted == before).all((1, 2))
        np.testing.assert_array_equal(after[untouched], before[untouched])
        assert 0 < untouched.sum() < CAPACITY
    assert len(met) == 3, met


class Squares(nn.Cell):
    """The sum of the squared values along sequences."""

    def __init__(self, learner: nn.Cell) -> None:
        super().__init__()
        self.learner = learner

    def construct(self, seen, there, h, c):
        return (self.learner.unroll(self.learner.network, seen, there, h, c)[0] ** 2).sum()


def test_sections_of_a_sequence_give_the_gradients_of_the_whole(r2d2: ModuleType):
    """Of one unroll that is cut where sequences begin, and of one that is cut only after the burn-in."""
    ms.set_context(mode=ms.PYNATIVE_MODE)  # spares two graphs
    steps, rng = BURN_IN + LENGTH, np.random.default_rng(1)
    seen, there = Tensor(rng.normal(size=(8, steps + 1, 3)).astype(np.float32)), Tensor(np.ones((8, steps + 1), bool))
    h, c = (Tensor(rng.normal(size=(1, 8, HIDDEN)).astype(np.float32)) for _ in range(2))
    results = []
    for stride in (2, steps):
        learner = make(r2d2, stride)
        results.append(ms.value_and_grad(Squares(learner), None, learner.weights)(seen, there, h, c))
    (value, gradients), (other, others) = results
    np.testing.assert_allclose(value.asnumpy(), other.asnumpy(), rtol=1e-5)
    for one, another in zip(gradients, others):
        assert np.abs(another.asnumpy()).max() > 0
        np.testing.assert_allclose(one.asnumpy(), another.asnumpy(), rtol=1e-4, atol=1e-5)
