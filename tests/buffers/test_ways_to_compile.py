"""Ways to compile: `ast` and `bytecode`, levels, `fullgraph`, a Cell in GRAPH_MODE; `support/ways.py` runs all."""

import pytest
import ways

from mindspore_replay import ReplayBuffer

_KINDS = list(ways.KINDS)
#: Each way meets three kinds with the native backend, and one with the composite backend, whose graphs take long.
CHOSEN = [
    (way, backend, _KINDS[(count * i + j) % len(_KINDS)])
    for i, way in enumerate(ways.WAYS)
    for backend, count in (("native", 3), ("composite", 1))
    for j in range(count)
]


def test_each_kind_is_compiled_in_several_ways():
    assert {kind for _, backend, kind in CHOSEN if backend == "native"} == set(_KINDS)
    assert {kind for _, backend, kind in CHOSEN if backend == "composite"} >= set(_KINDS[: len(ways.WAYS)])


@pytest.mark.parametrize(("way", "backend", "kind"), CHOSEN)
def test_a_way_to_compile(way: str, backend: str, kind: str):
    ways.check(way, backend, kind)


def test_a_step_that_draws_others_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def make(backend: str) -> ReplayBuffer:
        return ReplayBuffer(2, 9, **ways.SCHEMA, backend=backend, replace=backend == "native")

    monkeypatch.setitem(ways.KINDS, "uniform", make)
    with pytest.raises(AssertionError):
        ways.check("ast-O0", "composite", "uniform")
