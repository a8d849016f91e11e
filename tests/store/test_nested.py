"""Nested dicts and tuples as columns with dotted names, and back."""

import pytest

from mindspore_replay.store.base.naming import named
from mindspore_replay.store.base.nested import Names, leaves
from mindspore_replay.store.base.schema import Schema

NAMES = ("camera.left", "camera.right", "joints.0", "joints.1", "action")
NESTED = {"camera": {"left": 0, "right": 1}, "joints": (2, 3), "action": 4}


@pytest.mark.parametrize(
    ("names", "nested"),
    [
        (NAMES, NESTED),
        (("a", "b"), {"a": 0, "b": 1}),
        (("0", "1"), {"0": 0, "1": 1}),
        (("a.b.c", "a.b.d.0", "a.e"), {"a": {"b": {"c": 0, "d": (1,)}, "e": 2}}),
        (("a.1", "a.0"), {"a": {"1": 0, "0": 1}}),  # not in the order of a tuple
    ],
)
def test_dotted_names_nest_and_come_back(names, nested):
    assert named(Names(names), range(len(names))) == nested
    assert leaves(nested, names) == dict(zip(names, range(len(names))))


def test_a_tuple_of_numbers_is_a_column_if_the_column_is_named_so():
    schema = Schema("Store", [(), ()], ["int32", "int32"], names=["a", "b.0"])
    assert schema.present_fields({"a": (1, 2), "b": ((3, 4),)}) == [(1, 2), (3, 4)]
