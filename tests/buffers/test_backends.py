"""Composite operators give what the kernels give, bit for bit: results, state and errors.

Their bodies run operator by operator here, which takes a fraction of the time to compile them, and compiled for a few.
"""

from collections.abc import Iterator

import mindspore as ms
import numpy as np
import pytest
from twins import LIMITS, PRIORITIES, STEPS, Kind, Twins, calls_of, not_compiled

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer
from mindspore_replay.buffers.compiled import CompiledCalls
from mindspore_replay.store.rows.store import Store

pytestmark = pytest.mark.cpu_only("compares with kernels that are called directly")

#: All that composite operators serve: single rows.
KINDS: dict[str, Kind] = {
    "uniform": Kind(ReplayBuffer, STEPS, {}),
    "distinct": Kind(ReplayBuffer, STEPS, {"replace": False, "ordered": True, "num_envs": 2}),
    "weighted": Kind(ReplayBuffer, STEPS, {"weighted": True, "ordered": True}),
    "limits": Kind(ReplayBuffer, STEPS, LIMITS | {"replace": False}),
    "prioritized": Kind(PrioritizedReplayBuffer, STEPS, PRIORITIES | {"default_priority": "largest_held"}),
    "prioritized, limits": Kind(PrioritizedReplayBuffer, STEPS, PRIORITIES | LIMITS | {"normalize": "buffer"}),
}


@pytest.fixture(scope="module", autouse=True)
def _operators_run_at_once() -> Iterator[None]:
    """Run operators in the thread that calls them: one by one they are several times as fast so."""
    ms.set_context(pynative_synchronize=True)
    yield
    ms.set_context(pynative_synchronize=False)


@pytest.mark.parametrize("kind", KINDS)
def test_all_calls(kind: str):
    twins = Twins(KINDS[kind].make(backend="native"), lambda: KINDS[kind].make(backend="composite"), not_compiled)
    assert (type(twins.direct._front.calls), type(twins.compiled._front.calls)) == (Store, CompiledCalls)
    failed = []
    for call in calls_of(twins.direct, np.random.default_rng(len(kind)), (None, 2, 5, 14), 60, versions=False):
        failed.append(isinstance(twins.both(call)[0], type))
        twins.compare()
    assert not all(failed)
