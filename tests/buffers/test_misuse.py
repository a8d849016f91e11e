"""The table of misuse: every front answers a wrong call with the same error, in the same words."""

import functools
import re
import tempfile
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from misuse import CASES, COLUMNS, KINDS, Case, answer, check, rows

from mindspore_replay import MixedReplay, attach, create_buffer, host

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")


@functools.cache
def fronts(kind: str, filled: bool) -> dict[str, Any]:
    """Return a buffer of a kind as each of its fronts; only an error may come of them."""
    name, more = KINDS[kind]
    folder = Path(tempfile.mkdtemp()) / "rows"
    made = {"python": create_buffer({"type": name, **COLUMNS, **more, "storage": str(folder)})}
    if made["python"].spec.needs_kernels is None:
        made["composite"] = create_buffer({"type": name, **COLUMNS, **more, "backend": "composite"})
    made["host"] = getattr(host, type(made["python"]).__name__)(**COLUMNS, **more)
    for buffer in made.values():
        if filled:
            buffer.insert(rows(4))
    if kind != "queue":
        made["mixture"] = MixedReplay([(made["python"], 1.0)], 2)
    return {**made, "attached": attach(folder, timeout=0)}


def expected(case: Case) -> tuple[Any, str]:
    return check(case, fronts(case.kind, case.filled)["python"])


@pytest.mark.parametrize("name", CASES)
def test_from_python(name: str):
    case = CASES[name]
    buffer = fronts(case.kind, case.filled)["python"]
    before = buffer.state_dict()
    words = expected(case)
    after = buffer.state_dict()
    assert all(np.array_equal(after[key], value) for key, value in before.items())
    if "composite" in fronts(case.kind, case.filled):
        check(case, fronts(case.kind, case.filled)["composite"], words)


@pytest.mark.parametrize("front", ["attached", "host"])
@pytest.mark.parametrize("name", CASES)
def test_on_arrays(name: str, front: str):
    case = CASES[name]
    check(case, fronts(case.kind, case.filled)[front], expected(case))


#: Right calls, each of a method that needs the rows.
RIGHT: dict[str, tuple[Any, ...]] = {
    "insert": (rows(1),),
    "sample": (),
    "get_item": (0,),
    "update": ([0], {"act": [1]}),
    "update_priorities": ([0], [1.0]),
    "delete": ([0],),
    "info": ([0],),
    "advance": (),
    "size": (),
    "full": (),
    "can_sample": (),
}


@pytest.mark.parametrize("method", RIGHT)
def test_closed(method: str, tmp_path: Path):
    """A front that was closed, or whose learner has closed the buffer, says so whatever it is asked."""
    name, more = KINDS["prioritized"]
    learner = create_buffer({"type": name, **COLUMNS, **more, "storage": str(tmp_path / "rows")}).insert(rows(4))
    first, second = attach(tmp_path / "rows"), attach(tmp_path / "rows")
    alone = host.PrioritizedReplayBuffer(**COLUMNS, **more).insert(rows(4))
    for front in (first, learner, alone):
        front.close()
    for front in (first, second, learner, alone):
        error, words = answer(lambda front=front: getattr(front, method)(*RIGHT[method]))
        assert error is RuntimeError
        assert re.match(r"For 'X', (the buffer|this object) was closed: |For 'X', the learner has closed the b", words)


#: What a mixture means otherwise: it has no beta, and handles of -1 where a source has none.
NOT_MIXED = ("beta", "handles", "range")


def of_mixture() -> dict[str, Case]:
    """Return the cases of methods that a mixture has, with the sources that these take."""
    found = {}
    for name, case in CASES.items():
        method, *given = case.call
        if method == "sample" and case.kind != "queue" and not any(word in name for word in NOT_MIXED):
            found[name] = case
        elif method in ("update", "update_priorities") and "axes" not in name and not name.startswith("no "):
            found[name] = case._replace(call=(method, np.zeros(len(given[0]), np.int64), *given))
    return found


@pytest.mark.parametrize("name", of_mixture())
def test_mixtures(name: str):
    case = of_mixture()[name]
    check(case, fronts(case.kind, case.filled)["mixture"], expected(CASES[name]))


class Calls(nn.Cell):
    """A call in a graph."""

    def __init__(self, front: Any, called: str, given: Any, named: Any) -> None:
        super().__init__()
        self.front, self.called, self.given, self.named = front, called, given, named

    def construct(self):
        return getattr(self.front, self.called)(*self.given, **self.named)


def in_graph(given: Any) -> Any:
    """Return arguments with Tensors in place of arrays."""
    if isinstance(given, dict):
        return {key: in_graph(value) for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        return type(given)(map(in_graph, given))
    return Tensor(given) if isinstance(given, np.ndarray) else given


@pytest.mark.parametrize("name", CASES)
def test_graphs(name: str):
    case = CASES[name]
    method, *given = case.call
    calls = Calls(fronts(case.kind, case.filled)["python"], method, in_graph(given), in_graph(case.named))
    found = answer(ms.jit(calls.construct))
    if case.in_kernel:
        assert found[0] is RuntimeError
        assert "kernel" in found[1]
    else:
        assert found == expected(case)
