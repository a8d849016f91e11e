"""Fixtures, and the record of which combinations ran."""

from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import pytest
from drivers import COMBINATIONS, MODES, Combination
from drivers_weighted import make_driver

#: For each test that takes the fixture `combination`: the combinations that were run to an end, passed or failed.
_RAN = pytest.StashKey[dict[str, set[Combination]]]()
_DESELECTED = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RAN] = {}
    config.stash[_DESELECTED] = 0


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items:
        items[0].config.stash[_DESELECTED] += len(items)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "combination" in getattr(item, "fixturenames", ()):
            item.config.stash[_RAN].setdefault(_test_name(item), set())
    items.sort(key=lambda item: "ran_combinations" in getattr(item, "fixturenames", ()))  # the guard comes last


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when == "call" and not report.skipped and "combination" in getattr(item, "fixturenames", ()):
        item.config.stash[_RAN][_test_name(item)].add(item.callspec.params["combination"])  # type: ignore[attr-defined]
    return report


def _test_name(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.originalname}"  # type: ignore[attr-defined]


@pytest.fixture
def ran_combinations(request: pytest.FixtureRequest) -> dict[str, set[Combination]]:
    """What ran in this session; skips where only a part of the suite was asked for."""
    config = request.config
    if hasattr(config, "workerinput"):
        pytest.skip("this process runs only its share of the tests")
    if config.stash[_DESELECTED] or any("::" in argument for argument in config.args):
        pytest.skip("only some tests were selected")
    if not config.stash[_RAN]:
        pytest.skip("no file with tests in all combinations was selected")
    return config.stash[_RAN]


@pytest.fixture(autouse=True)
def _scratch_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """MindSpore writes the analysis of a failed compilation into the working folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=sorted(MODES))
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Sets the context mode."""
    before = ms.get_context("mode")
    ms.set_context(mode=MODES[request.param])
    yield request.param
    ms.set_context(mode=before)


@pytest.fixture(params=["native", "composite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=COMBINATIONS, ids=str)
def combination(request: pytest.FixtureRequest) -> Iterator[Combination]:
    """Sets the context mode of {PYNATIVE, GRAPH} x {native, composite} x {eager, compiled}."""
    before = ms.get_context("mode")
    ms.set_context(mode=MODES[request.param.mode])
    yield request.param
    ms.set_context(mode=before)


_drivers: dict[Any, tuple[Any, dict[str, Any]]] = {}


@pytest.fixture
def make(combination: Combination) -> Callable[..., Any]:
    """Gives a driver of this combination. Those with equal arguments share one, emptied, and so its compiled graphs."""

    def get(*args: Any, **kwargs: Any) -> Any:
        # From Python a buffer calls the same kernels or graphs in both modes.
        place = combination[1:] if combination.call == "eager" and kwargs else combination
        key = repr((place, args, sorted(kwargs.items())))
        if key not in _drivers:
            driver = make_driver(combination, *args, **{"seed": 0, **kwargs})
            _drivers[key] = driver, driver.buffer.state_dict()
        driver, empty = _drivers[key]
        driver.buffer.load_state_dict(empty)
        return driver

    return get
