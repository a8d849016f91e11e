"""Nested dicts and tuples as columns with dotted names, and back."""

import numpy as np
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


def test_wrong_keys_are_named_with_dots():
    schema = Schema("Store", [(), ()], ["int32", "int32"], names=["a.x", "a.y"])
    with pytest.raises(ValueError, match=r"missing \['a.y'\], unknown \['a.z'\]"):
        schema.present_fields({"a": {"x": 1, "z": 2}})
    with pytest.raises(ValueError, match=r"must be some of the columns \['a.x', 'a.y'\], but got \['a.z'\]"):
        schema.chosen({"a": {"z": np.zeros(1)}})


def test_a_column_inside_another_is_refused():
    with pytest.raises(ValueError, match=r"'names' has \['a'\] and names that go on after it with a dot"):
        Schema("Store", [(), ()], ["int32", "int32"], names=["a", "a.x"])
