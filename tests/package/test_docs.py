"""Every example in a docstring of the package runs and prints the documented output."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import mindspore_replay

MODULES = sorted(
    ["mindspore_replay"]
    + [module.name for module in pkgutil.walk_packages(mindspore_replay.__path__, "mindspore_replay.")]
)
# Plain libraries, without Python code.
MODULES = [name for name in MODULES if not name.startswith("mindspore_replay._kernels")]
#: Modules with examples: it is an error if the examples of one are no longer found.
WITH_EXAMPLES = {
    *(
        f"mindspore_replay.buffers.{name}"
        for name in ("elastic", "episode", "mixed", "prioritized", "replay", "reservoir", "sequence")
    ),
    *(f"mindspore_replay.compat.{name}" for name in ("mindspore_rl", "patches")),
    "mindspore_replay.checkpoint.buffers",
    "mindspore_replay.checkpoint.training",
    *(f"mindspore_replay.datasets.{name}" for name in ("hdf5", "minari", "npz")),
    "mindspore_replay.training.limiter",
    "mindspore_replay.training.monitor",
    "mindspore_replay.ops.status",
    "mindspore_replay.training.prefetch",
    "mindspore_replay.training.priorities",
    "mindspore_replay.training.vector",
    *(f"mindspore_replay.views.{name}" for name in ("frame_stack", "n_step")),
}


def examples(module: ModuleType) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str):
    module = importlib.import_module(name)
    found = examples(module)
    assert found or name not in WITH_EXAMPLES
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in found:
        report: list[str] = []
        runner.run(test, out=report.append)
        assert runner.failures == 0, "".join(report)


def test_the_runner_rejects_a_wrong_example():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    report: list[str] = []
    runner = doctest.DocTestRunner()
    runner.run(test, out=report.append)
    assert runner.failures == 1
    assert "Got:\n    2" in "".join(report)


@pytest.mark.parametrize("name", sorted(set(mindspore_replay.__all__) - {"__version__"}))
def test_every_public_name_has_a_docstring(name: str):
    assert (getattr(mindspore_replay, name).__doc__ or "").strip()
