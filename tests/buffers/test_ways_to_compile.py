"""Ways to compile: `ast` and `bytecode`, levels, `fullgraph`, a Cell in GRAPH_MODE; `support/ways.py` runs all."""

from typing import Any

import pytest
import ways
from kinds import Kind

_KINDS = list(ways.KINDS)
#: Each way meets two kinds with the native backend.
NATIVE = [(way, "native", _KINDS[(2 * i + j) % len(_KINDS)]) for i, way in enumerate(ways.WAYS) for j in range(2)]
#: Graphs of the composite backend take long: each option of `ms.jit` meets one kind or two.
COMPOSITE = [
    (way, "composite", kind)
    for way, kind in {
        "ast-O0-fullgraph": "uniform",
        "ast-O1": "prioritized",
        "bytecode-O0": "limits",
        "cell": "distinct",
    }.items()
    if way in ways.WAYS
]


def test_each_kind_is_compiled_in_several_ways():
    assert {kind for _, _, kind in NATIVE} == set(_KINDS)


@pytest.mark.parametrize(("way", "backend", "kind"), [*NATIVE, *COMPOSITE])
def test_a_way_to_compile(way: str, backend: str, kind: str):
    ways.check(way, backend, kind)


def test_a_step_that_draws_others_is_noticed(monkeypatch: pytest.MonkeyPatch):
    class Other(Kind):
        def make(self, *args: Any, backend: str, **more: Any) -> Any:
            return super().make(*args, backend=backend, replace=backend == "native", **more)

    monkeypatch.setitem(ways.KINDS, "uniform", Other(*ways.KINDS["uniform"]))
    with pytest.raises(AssertionError):
        ways.check("ast-O0", "composite", "uniform")
