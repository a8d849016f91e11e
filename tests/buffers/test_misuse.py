"""The tables of misuse: each face of a buffer refuses a wrong call with the same error, and changes nothing."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import misuse
import numpy as np
import pytest
from mindspore import Tensor, nn
from misuse import CALLS, CELL, CONSTRUCTORS, FUNCTIONS, GRAPHS, KINDS, STATES, Case, answer, cases

import mindspore_replay
from mindspore_replay import host
from mindspore_replay.buffers.making import get_buffer_cls
from mindspore_replay.distributed import ShardedReplay

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

#: Methods that an attached process does not have.
LEARNERS = ("rows", "with_sample_size", "set_window", "sample_groups", "__setattr__")


def check(case: Case, face: str) -> tuple[Any, str]:
    """Make a wrong call on a face of a buffer, and check the error, and that nothing has changed; return the error."""
    buffer, before = misuse.face(case.kind, face), misuse.state(case.kind, face)
    method, given, named = misuse.call(case.text)
    found = answer(lambda: getattr(buffer, method)(*given, **named))
    assert misuse.same(misuse.state(case.kind, face), before), face
    if face == "python":
        assert case.answers(found, type(buffer).__name__), found
    return found[0], misuse.common(found[1])


@pytest.mark.parametrize("name", cases(CALLS))
def test_calls(name: str):
    case = cases(CALLS)[name]
    expected = check(case, "python")
    for face in misuse.faces(case.kind)[1:] if case.where != CELL else ():
        if face == "attached" and case.text.startswith(LEARNERS):
            continue
        assert check(case, face) == expected, face


@pytest.mark.parametrize("name", cases(CONSTRUCTORS))
def test_constructors(name: str, tmp_path: Path):
    """Nothing is made, not even the folder of the rows."""
    case = cases(CONSTRUCTORS)[name]
    cls = get_buffer_cls({"type": KINDS[case.kind].type}).__name__
    for package in (mindspore_replay,) if case.where == CELL else (mindspore_replay, host):
        has_folder = case.where != CELL and not re.search("storage|compress", case.text)
        folder = {"storage": tmp_path / "rows"} if has_folder else {}
        given = misuse.value(f"dict({case.text})")
        found = answer(lambda package=package, more={**folder, **given}: misuse.make(case.kind, package, **more))
        assert case.answers(found, cls), found
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", cases(STATES))
def test_states(name: str):
    case = cases(STATES)[name]
    for face in ("python", "host"):
        buffer, before = misuse.face(case.kind, face), misuse.state(case.kind, face)
        state = {**before, **misuse.value(case.text, s=before)}
        state = {key: array for key, array in state.items() if array is not None}
        found = answer(lambda buffer=buffer, state=state: buffer.load_state_dict(state))
        assert case.answers(found, type(buffer).__name__), found
        assert misuse.same(misuse.state(case.kind, face), before), face


CONFIG = {
    "type": "uniform",
    "capacity": 100,
    "sample_size": 8,
    "data_shape": [(4,), (), (4,)],
    "data_type": ["float32", "int32", "bool"],
}


#: The columns of a row with its next observation, and a step of two environments.
WHOLE = ["observation", "action", "reward", "next_observation", "terminated"]
STEP: dict[str, Any] = {
    "observation": np.ones((2, 3), np.float32),
    "action": np.array([1, 2]),
    "next_observation": np.full((2, 3), 2, np.float32),
    "reward": np.array([0.5, 1.5]),
    "terminated": np.array([False, False]),
    "truncated": np.array([False, False]),
    "info": {},
}


def known(package: Any) -> dict[str, Any]:
    """Return what calls of functions are written with: public names, buffers, configurations."""

    def buffer(kind: str, **more: Any) -> Any:
        return misuse.make(kind if kind == "mixture" else f"{kind}, empty", package, **more)

    def config(**changes: Any) -> dict[str, Any]:
        return {key: value for key, value in (CONFIG | changes).items() if value is not None}

    def step(mode: str = "Disabled", names: Any = WHOLE, **changed: Any) -> Any:
        types = [{"action": "int32", "terminated": "bool"}.get(name, "float32") for name in names]
        of = SimpleNamespace(names=names, types=types, num_envs=2)
        return mindspore_replay.VectorRows(of, mode).step(**{**STEP, **changed})

    own = {"buffer": buffer, "ONE": buffer("plain"), "CONFIG": CONFIG, "config": config, "step": step}
    own |= {"SINK": SimpleNamespace(write=print, close=print), "ShardedReplay": ShardedReplay}
    return {name: getattr(package, name) for name in mindspore_replay.__all__ if hasattr(package, name)} | own


@pytest.mark.parametrize("name", cases(FUNCTIONS))
def test_functions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that is there stays as it was."""
    case = cases(FUNCTIONS)[name]
    monkeypatch.chdir(tmp_path)
    mindspore_replay.save(misuse.face("plain", "host"), "file")
    before = Path("file").read_bytes()
    for package in (mindspore_replay, *[host] * (case.where != CELL and hasattr(host, case.kind))):
        found = answer(lambda package=package: misuse.value(case.text, **known(package)))
        assert case.answers(found, case.kind), found
    assert (os.listdir(), Path("file").read_bytes()) == (["file"], before)


def in_mixtures() -> dict[str, Case]:
    """Return calls that a mixture of one source refuses as the source does."""
    calls = ("sample()", "sample(32)", "sample(foo=1)", "sample(batch_size=32)", "sample(as_dict=True)")
    found = {}
    for name, case in cases(CALLS).items():
        one = case.kind in ("weighted", "prioritized") and re.match(r"update(_priorities)?\((HANDLES,|HALF)", case.text)
        if (one or case.text in calls) and not case.kind.startswith(("queue", "reservoir", "epochs")):
            found[name] = case
    return found


@pytest.mark.parametrize("name", in_mixtures())
def test_mixtures_of_one(name: str):
    case = in_mixtures()[name]
    more = "np.zeros(1, int), " if "(HALF" in case.text else "np.zeros(2, int), " if "(HANDLES" in case.text else ""
    assert check(case._replace(text=case.text.replace("(", f"({more}", 1)), "mixture") == check(case, "python")


def test_each_face_has_its_own_way_to_another_size():
    ways = {
        "python": "with_sample_size(32)",
        "attached": "attach(folder, sample_size=32)",
        "mixture": "MixedReplay(parts, 32)",
    }
    for face, way in ways.items():
        _, words = answer(lambda face=face: misuse.face("named", face).sample(32))
        assert words.endswith(f"rows: write sample(), or for 32 rows {way}.sample().")


class Calls(nn.Cell):
    """A call in a graph."""

    def __init__(self, buffer: Any, called: str, given: Any, named: Any) -> None:
        super().__init__()
        self.buffer, self.called, self.given, self.named = buffer, called, given, named

    def construct(self):
        return getattr(self.buffer, self.called)(*self.given, **self.named)


def as_tensors(given: Any) -> Any:
    """Return arguments with Tensors in place of arrays."""
    if isinstance(given, dict):
        return {key: as_tensors(value) for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        return type(given)(map(as_tensors, given))
    return Tensor(given) if isinstance(given, np.ndarray) else given


def answer_in_graph(case: Case, given: Any, named: Any) -> tuple[Any, str]:
    """Make a wrong call in a graph of its own, and check that nothing has changed; return the error."""
    buffer, before = misuse.face(case.kind, "python"), misuse.state(case.kind, "python")
    found = answer(ms.jit(Calls(buffer, misuse.call(case.text)[0], given, named).construct))
    assert misuse.same(misuse.state(case.kind, "python"), before)
    return found


def in_graphs() -> list[str]:
    """Return calls that a graph refuses too: one for each method and message, since it checks by the same code."""
    found: dict[tuple[str, str], str] = {}
    for name, case in cases(CALLS).items():
        if case.where == "":  # `test_graph_failures.py` has those that kernels refuse
            found.setdefault((case.text.partition("(")[0], case.error.args[0][:30]), name)
    return list(found.values())


@pytest.mark.parametrize("name", in_graphs())
def test_graphs(name: str):
    case = cases(CALLS)[name]
    _, given, named = misuse.call(case.text)
    error, words = answer_in_graph(case, as_tensors(given), as_tensors(named))
    assert (error, misuse.common(words)) == check(case, "python")


@pytest.mark.parametrize("name", cases(GRAPHS))
def test_only_in_graphs(name: str):
    case = cases(GRAPHS)[name]
    _, given, named = misuse.call(case.text)
    found = answer_in_graph(case, given, named)
    assert case.answers(found, type(misuse.face(case.kind, "python")).__name__), found


def test_a_variable_of_a_graph():
    """Python numbers are of no use where only the graph that runs knows their value."""
    buffer, before = misuse.face("plain", "python"), misuse.state("plain", "python")

    @ms.jit
    def insert(obs, act):
        buffer.insert([obs, act])
        return obs

    error, words = answer(lambda: insert(Tensor(misuse.OBS), ms.mutable(5)))
    assert error is TypeError
    assert words.endswith("In a graph, 'exp' must hold Tensors or constant Python numbers: pass a Tensor.")
    assert misuse.same(misuse.state("plain", "python"), before)
