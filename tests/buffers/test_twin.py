"""Buffers with Tensors beside their slow twin: from Python, in graphs, folders and mixtures."""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import NAMES, plain
from faces import MODES, InGraph, InTurn, WithTensors
from twin_kinds import KINDS
from twin_pairs import RandomPair as Pair

import mindspore_replay
from mindspore_replay import host
from mindspore_replay.ops import operator as operators
from mindspore_replay.store.base.length_groups import arguments_of as right_arguments
from mindspore_replay.store.faces.mixture import exact_counts

pytestmark = pytest.mark.cpu_only("rows of any length need the kernels of the CPU")


#: A graph is compiled for each call of each buffer, so not all kinds run in graphs.
IN_GRAPHS = [
    "distinct",
    "largest held, late",
    "late in a queue",
    "episodes",
    "fixed: reservoir, used often",
    "fixed: newest by priority",
    "fixed: padded epochs",
    "fixed: queue of padded sequences, fifo, evict",
    "fixed: sequences, everything, two environments",
    "views: goals and all by priority",
    "views: steps, frames",
    "views: steps, episodes with goals and returns",
]


def in_both_modes(kinds: Iterable[str]) -> Any:
    """Let kinds take PYNATIVE_MODE and GRAPH_MODE in turn."""
    return pytest.mark.parametrize(("kind", "mode"), list(zip(kinds, itertools.cycle(MODES))), indirect=["mode"])


@pytest.mark.usefixtures("mode")
@in_both_modes(kind for kind in KINDS if KINDS[kind].any_length or kind in IN_GRAPHS)
def test_random_operations_from_python(kind: str, tmp_path: Path):
    pair = Pair(kind, mindspore_replay, 3, tmp_path, face=WithTensors)
    pair.run(75)
    assert pair.drawn > 1


@pytest.mark.usefixtures("mode")
@in_both_modes(IN_GRAPHS)
def test_random_operations_in_graphs(kind: str, tmp_path: Path):
    pair = Pair(kind, mindspore_replay, 0, tmp_path, face=InGraph)
    pair.run(50)
    assert pair.drawn > 1


@pytest.mark.parametrize("kind", ["by priority", "late in a queue"])
def test_random_operations_in_turn_in_a_folder(kind: str, tmp_path: Path):
    pair = Pair(kind, mindspore_replay, 1, tmp_path, in_folder=True, face=InTurn)
    pair.run(60)
    assert pair.drawn > 1


def compiled(mixed: Any) -> Callable[[], Any]:
    @ms.jit
    def draw():
        return mixed.sample(as_dict=True, with_indices=True)

    return draw


#: Kinds whose samples have the same columns.
MIXTURES = (
    ("limits", "by priority", "newest"),
    ("distinct", "newest by priority", "largest held, late"),
    tuple(f"fixed: sequences, {name}" for name in ("plain", "root", "padded, two environments")),
)


@pytest.mark.parametrize("sources", MIXTURES)
@pytest.mark.parametrize("way", ["arrays", "Tensors", "graph"])
def test_mixtures(way: str, sources: tuple[str, ...], tmp_path: Path):
    module = host if way == "arrays" else mindspore_replay
    pairs = [Pair(kind, module, 4, tmp_path) for kind in sources]
    parts = [(pair.face.buffer, share) for pair, share in zip(pairs, (0.25, 0.5, 0.25))]
    mixed, counts = module.MixedReplay(parts, 7), exact_counts([0.25, 0.5, 0.25], 7)
    draw = compiled(mixed) if way == "graph" else lambda: mixed.sample(as_dict=True, with_indices=True)
    drawn = 0
    for _ in range(50):
        for pair in pairs:
            pair.act("reload")
        draws = [pair.twin.draws for pair in pairs]
        for pair, n in zip(pairs, counts):
            pair.twin.draws = n
        can_sample = all(pair.twin.can_sample() for pair in pairs)
        assert bool(plain(mixed.can_sample())) == can_sample
        if can_sample:
            batch, first, drawn = plain(draw()), 0, drawn + 1
            assert batch["source"].tolist() == np.repeat(range(3), counts).tolist()
            for pair, n in zip(pairs, counts):
                part = {name: array[first : first + n] for name, array in batch.items()}
                assert pair.twin.prioritized or (part["weights"] == 1).all()
                pair.compare(part, *pair.twin.delivered(pair.twin.draw()), "padded")
                first += n
        for pair, n in zip(pairs, draws):
            pair.twin.draws = n
    assert drawn > 2


@pytest.mark.parametrize("wrong", ["another arena", "another kind", "rows that are too long", "cut at random"])
def test_the_twin_rejects_wrong_arguments(wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def arguments_of(of: Any, fields: Any, before: int) -> np.ndarray:
        if wrong == "cut at random":
            return right_arguments([group._replace(at_random=not group.at_random) for group in of], fields, before)
        numbers = right_arguments(of, fields, before)
        columns = numbers[4 + 3 * len(of) :][: 2 * len(fields)].reshape(-1, 2)
        logits, words = NAMES.index("logits"), NAMES.index("words")
        if wrong == "another arena":  # logits of the rows of tokens
            columns[logits] = columns[0]
        elif wrong == "another kind":
            columns[logits] = columns[words]
        else:
            numbers[5] -= 1
        return numbers

    monkeypatch.setattr(operators, "arguments_of", arguments_of)
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        Pair("cut", mindspore_replay, 0, tmp_path, face=InGraph).run(60)
