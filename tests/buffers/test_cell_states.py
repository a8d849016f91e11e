"""`state_dict` and `load_state_dict` of Cells that hold buffers."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from flat import flat
from mindspore import nn

from mindspore_replay import MixedReplay, PrioritizedReplayBuffer, RateLimiter, ReplayBuffer


class Agent(nn.Cell):
    """A Cell that holds a buffer and a layer."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.layer = nn.Dense(1, 1)
        self.buffer = buffer

    def construct(self):
        """Return the oldest row and the number of rows."""
        return self.buffer.get_item(0)[0], self.buffer.size()


def agent_of(rows: Any, backend: str = "native", cls: Any = PrioritizedReplayBuffer, **options: Any) -> Agent:
    buffer = cls(2, 8, shapes=[()], types=["int32"], seed=len(rows), backend=backend, **options)
    buffer.insert([np.array(rows, np.int32)])
    return Agent(buffer)


def rows_of(buffer: Any) -> list[int]:
    return [int(buffer.get_item(i)[0]) for i in range(int(buffer.size()))]


@pytest.mark.parametrize(("backend", "strict"), [("native", True), ("native", False)])
def test_graph_and_python_see_the_rows_loaded_with_the_owner(backend: str, strict: bool):
    first, second = agent_of(range(100, 110), backend), agent_of(range(3), backend)
    graph = ms.jit(second.construct)
    graph()
    first.buffer.update_priorities([4, 5], [0.0, 3.0])
    loaded = second.load_state_dict(first.state_dict(), strict=strict)
    assert loaded.missing_keys == loaded.unexpected_keys == []
    assert [int(x) for x in graph()] == [102, 8]
    assert rows_of(second.buffer) == list(range(102, 110))
    for _ in range(3):
        assert all(np.array_equal(a, b) for a, b in zip(first.buffer.sample(), second.buffer.sample()))
    second.buffer.insert([7])
    assert int(graph()[0]) == 103
    assert rows_of(first.buffer)[0] == 102
    second.buffer.check_valid()


def test_a_state_that_does_not_fit_is_loaded_in_no_way():
    first, second = agent_of([1, 2]), agent_of([5])
    state = first.state_dict()
    before = second.buffer.state_dict()
    partial = {key: value for key, value in state.items() if key != "buffer.count"}
    other = {**state, "buffer.count": ms.Tensor(7, ms.int32)}
    for wrong, message in ((partial, "'count': expected int32 \\(\\), but got nothing"), (other, "count=7")):
        for strict in (True, False):
            with pytest.raises(RuntimeError, match=f"For 'PrioritizedReplayBuffer'.*{message}"):
                second.load_state_dict(wrong, strict=strict)
    without = {key: value for key, value in state.items() if not key.startswith("buffer.")}
    with pytest.raises(RuntimeError, match=r"Missing key.*buffer.head"):
        second.load_state_dict(without)
    assert "buffer.head" in second.load_state_dict(without, strict=False).missing_keys
    assert all(np.array_equal(before[key], value) for key, value in second.buffer.state_dict().items())


def test_a_limiter_is_loaded_with_its_buffer():
    first, second = agent_of([]), agent_of([])
    for agent in (first, second):
        agent.buffer.limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=8)
    first.buffer.insert([[1, 2, 3]])
    rule = second.buffer.limiter.rule
    second.load_state_dict(first.state_dict())
    assert second.buffer.limiter.inserted == 3
    assert np.shares_memory(second.buffer.limiter.rule, rule)
    parameters = dict(second.parameters_and_names())
    assert parameters["buffer.limiter.counts"].asnumpy().tolist() == [3, 0, 2, 0]
    second.buffer.limiter = None
    assert "buffer.limiter.counts" not in dict(second.parameters_and_names())


def mixture(first: int, **options: Any) -> MixedReplay:
    sources = [agent_of(range(n, n + 5), cls=ReplayBuffer, **options).buffer for n in (first, first + 50)]
    return MixedReplay([(sources[0], 0.5), (sources[1], 0.5)], 4)


def test_a_mixture_is_loaded_whole():
    first, second = nn.CellList([mixture(0)]), nn.CellList([mixture(100)])
    before = second[0].state_dict()
    wrong = {**first.state_dict(), "0.source_1.count": ms.Tensor(9, ms.int32)}
    with pytest.raises(RuntimeError, match="count=9"):
        second.load_state_dict(wrong)
    assert all(np.array_equal(before[key], value) for key, value in second[0].state_dict().items())
    second.load_state_dict(first.state_dict())
    assert all(np.array_equal(a, b) for a, b in zip(first[0].sample(), second[0].sample()))
    assert rows_of(second[0].sources[1]) == list(range(50, 55))


def test_compressed_columns_are_refused_with_the_way_out():
    cell = nn.CellList([ReplayBuffer(2, 8, **flat(shapes=[(4,)], types=["int32"], compress=[0], backend="native"))])
    with pytest.raises(RuntimeError, match=r"does not contain compressed columns: use state_dict\(\)"):
        cell.load_state_dict({key: ms.Tensor(value.asnumpy()) for key, value in cell.state_dict().items()})
