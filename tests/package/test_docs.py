"""Every example in a docstring of the package runs and prints the documented output."""

import doctest
import importlib
import pkgutil

import pytest
from docstrings import examples, run

import mindspore_replay

MODULES = sorted(
    ["mindspore_replay"]
    + [module.name for module in pkgutil.walk_packages(mindspore_replay.__path__, "mindspore_replay.")]
)
#: Their examples need a cluster: `tests/distributed/test_sharded.py` runs them.
IN_CLUSTERS = [f"mindspore_replay.distributed.{name}" for name in ("sharded", "writer")]
#: Modules with examples: it is an error if the examples of one are no longer found. `test_api.py` has the public names.
WITH_EXAMPLES = {"mindspore_replay.buffers.replay", "mindspore_replay.ops.status"}


@pytest.mark.parametrize("name", [name for name in MODULES if name not in IN_CLUSTERS])
def test_docstrings(name: str):
    found = examples(importlib.import_module(name))
    assert found or name not in WITH_EXAMPLES
    assert [report for test in found if (report := run(test))] == []


def test_the_runner_rejects_a_wrong_example():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert "Got:\n    2" in run(test)
