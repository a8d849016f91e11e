"""Composite operators beside the slow twin: bodies that run operator by operator, and one that is compiled."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import mindspore as ms
import pytest
from faces import OfOneSize
from twin_pairs import RandomPair

import mindspore_replay
from mindspore_replay.ops import composite, primitives

#: What composite operators serve: single rows.
COMPOSITE = [
    "fixed: plain, ordered",
    "fixed: plain, distinct",
    "fixed: used twice",
    "fixed: by the root",
    "fixed: by priority",
    "fixed: largest held",
]


@contextlib.contextmanager
def not_compiled() -> Iterator[None]:
    """Make the package run the bodies of graphs operator by operator: a fraction of the time to compile them."""

    def searchsorted_int32(order: Any, values: Any) -> Any:  # MindSpore's own fails outside graphs
        return ms.ops.cast(primitives.searchsorted(order, values), ms.int32)

    # Operators run in the thread that calls them: one by one they are several times as fast so.
    ms.set_context(pynative_synchronize=True)
    with (
        mock.patch.object(ms, "jit", lambda body: body),
        mock.patch.object(composite, "searchsorted_int32", searchsorted_int32),
    ):
        yield
    ms.set_context(pynative_synchronize=False)


@pytest.mark.parametrize("kind", COMPOSITE)
def test_random_operations_of_composite_operators(kind: str, tmp_path: Path):
    with not_compiled():
        pair = RandomPair(kind, mindspore_replay, 2, tmp_path, backend="composite")
        pair.run(45)
    assert pair.drawn > 1


def test_random_operations_of_composite_operators_that_are_compiled(tmp_path: Path):
    """`ways.py` compiles others."""
    RandomPair("fixed: plain, ordered", mindspore_replay, 2, tmp_path, face=OfOneSize, backend="composite").run(60)
