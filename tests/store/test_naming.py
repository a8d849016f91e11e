"""Names of a sample's parts: the same rule for every class, front and flag."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bodies import filled
from kinds import KINDS as EVERY
from kinds import Kind, ends_every

from mindspore_replay import MixedReplay, NStep, ReplayBuffer, attach
from mindspore_replay.store.base.naming import named
from mindspore_replay.store.base.nested import Names

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

#: Every part of a sample has a dtype of its own, by which it is recognized.
DTYPES = {"source": "int32", "indices": "int64", "weights": "float32", "lengths": "int32", "mask": "bool"}
DTYPES |= {"step": "int16", "reward": "float64", "terminated": "uint8", "discount": "float32"}

SAME = {"distinct", "distinct, weighted", "limits", "compressed", "reservoir, weighted", "elastic, weighted", "epochs"}
SAME |= {"queue that evicts"}
#: Kinds whose samples begin differently.
KINDS = {kind: EVERY[kind] for kind in EVERY if kind not in SAME} | {
    "view": Kind(ReplayBuffer, {"views": [NStep(1, 0.5, observation=())]}, (), ("indices",))
}
COLUMNS = ("step", "reward", "terminated")


def make(kind: str, names: Any = COLUMNS, storage: Any = "device", backend: str = "native") -> Any:
    """Return a buffer of eight rows in two episodes."""

    def fill(buffer: Any) -> None:
        rows = [np.arange(8, dtype="int16"), np.arange(8.0), np.zeros(8, "uint8")]
        buffer.insert(rows, **ends_every(buffer, 4, 8))

    types = [DTYPES[column] for column in COLUMNS]
    new = functools.partial(KINDS[kind].make, 2, 12, [()] * 3, types, names=names, storage=storage, seed=1)
    return filled(lambda backend: new(backend=backend), backend, fill)


def arrays(batch: Any) -> list[np.ndarray]:
    return [part if isinstance(part, np.ndarray) else part.asnumpy() for part in batch]


def check(learner: Any, front: Any, expected: Sequence[str], **flags: Any) -> None:
    """Check that a dict holds the parts of the tuple, by the right names."""
    state = learner.state_dict()
    batch = arrays(front.sample(**flags))
    learner.load_state_dict(state)
    names = (*expected, *COLUMNS, *("discount",) * bool(learner.spec.parts.views))
    found = front.sample(as_dict=True, **flags)
    learner.load_state_dict(state)  # a queue has its rows again
    assert tuple(found) == names
    for name, part, whole in zip(names, arrays(found.values()), batch, strict=True):
        np.testing.assert_array_equal(part, whole)
        assert part.dtype == DTYPES[name]


@pytest.mark.parametrize("kind", KINDS)
def test_learner_and_attached(kind: str, tmp_path: Path):
    _, _, plain, with_indices = KINDS[kind]
    learner = make(kind, storage=tmp_path / "rows")
    attached = attach(tmp_path / "rows", timeout=0)
    for front in (learner, attached):
        check(learner, front, plain)
        if with_indices is not None:
            check(learner, front, with_indices, with_indices=True)
    if learner.has_handles:  # an attached object has the argument whatever the class
        check(learner, attached, with_indices or plain, with_indices=True)


def test_composite():
    buffer = make("weighted", backend="composite")
    check(buffer, buffer, ())
    check(buffer, buffer, ("indices",), with_indices=True)


@pytest.mark.parametrize(
    ("kind", "expected"), [("padded epochs", ["mask"]), ("epochs of sequences", ["indices", "mask"])]
)
def test_minibatches(kind: str, expected: list[str]):
    buffer = make(kind)
    for batch in buffer.minibatches(as_dict=True):
        assert {name: str(part.asnumpy().dtype) for name, part in batch.items()} == {
            name: DTYPES[name] for name in (*expected, *COLUMNS)
        }


def test_groups():
    buffer = make("episodes", names=("step", "reward", "group"))
    state = buffer.state_dict()
    batch = buffer.sample_groups("group", groups=1, size_in_group=3)
    buffer.load_state_dict(state)
    found = buffer.sample_groups("group", groups=1, size_in_group=3, as_dict=True)
    assert list(found) == ["mask", "step", "reward", "group"]
    for part, whole in zip(found.values(), batch, strict=True):
        np.testing.assert_array_equal(part.asnumpy(), whole.asnumpy())
    with pytest.raises(ValueError, match=r"'as_dict' needs columns with other names than \['mask'\]"):
        make("episodes", names=("mask", "reward", "group")).sample_groups("group", 1, 3, as_dict=True)


@pytest.mark.parametrize(
    ("kinds", "bookkeeping"),
    [(("padded epochs, weighted", "padded epochs"), ["mask"]), (("queue", "prioritized"), [])],
    ids=str,
)
def test_mixture(kinds: tuple[str, str], bookkeeping: list[str]):
    mixed = MixedReplay([(make(kind), 0.5) for kind in kinds], 4)
    for flags, handles in (({}, []), ({"with_indices": True}, ["indices", "weights"])):
        batch = mixed.sample(as_dict=True, **flags)
        assert {name: str(part.asnumpy().dtype) for name, part in batch.items()} == {
            name: DTYPES[name] for name in ("source", *handles, *bookkeeping, *COLUMNS)
        }
        if handles:
            stored = batch["mask"].asnumpy() if bookkeeping else np.ones(4, bool)
            valid = batch["indices"].asnumpy() == batch["step"].asnumpy()  # handles are the steps
            assert valid[:2].all()
            assert stored.all()
            assert (batch["indices"].asnumpy()[2:] == -1).all() == (kinds[1] == "padded epochs")


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_with_the_name_of_bookkeeping_is_refused(kind: str, tmp_path: Path):
    """Nothing is drawn: a queue loses nothing, an epoch does not begin, random states stay."""
    _, _, plain, with_indices = KINDS[kind]
    for column in {*plain, *(with_indices or ())}:
        names = (column, "reward", "terminated")
        learner = make(kind, names=names, storage=tmp_path / column)
        before = learner.state_dict()
        for front in (learner, attach(tmp_path / column, timeout=0)):
            for flags, parts in (({}, plain), ({"with_indices": True}, with_indices)):
                if column in (parts or ()):
                    with pytest.raises(
                        ValueError, match=rf"'as_dict' needs columns with other names than \['{column}'\]"
                    ):
                        front.sample(as_dict=True, **flags)
        after = learner.state_dict()
        assert all(np.array_equal(after[key], value) for key, value in before.items())
        if column == "indices" and "indices" not in plain:  # no part of this sample
            assert {*plain, *names} <= set(attach(tmp_path / column, timeout=0).sample(as_dict=True))


def test_minibatches_and_mixtures_refuse_such_a_column_too():
    refused = "'as_dict' needs columns with other names than"
    padded = make("padded epochs", names=("mask", "reward", "terminated"))
    with pytest.raises(ValueError, match=refused):
        next(padded.minibatches(as_dict=True))
    for column, flags in (("source", {}), ("indices", {"with_indices": True}), ("weights", {"with_indices": True})):
        mixed = MixedReplay([(make("weighted", names=(column, "reward", "terminated")), 1.0)], 2)
        with pytest.raises(ValueError, match=rf"^For 'MixedReplay', {refused} \['{column}'\]"):
            mixed.sample(as_dict=True, **flags)


def test_a_batch_with_another_number_of_parts_is_never_named():
    for names in (("step", "reward"), ("row.step", "row.reward")):
        with pytest.raises(ValueError, match="zip"):
            named(Names(names), (1, 2, 3))
