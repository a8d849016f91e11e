"""Fixtures, and the record of which ways to call ran."""

import functools
import gc
import importlib
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import mindspore as ms
import programs
import pytest
import sources
from bodies import kept
from faces import MODES, WAYS, face_of, missing, shared
from places import ROOT

from mindspore_replay.distributed.cluster import connect

#: Files that run in one process, by group: those that share buffers, and so compiled graphs; a Ray cluster; the process
#: from which programs fork.
_GROUPS = {
    file: group
    for group, files in {
        "ray": ("test_apex.py", "test_pages.py", "test_sharded.py", "test_sharded_faults.py", "test_sharded_flow.py"),
        "programs": (
            "test_actors.py",
            "test_ascend_operators.py",
            "test_compat_package.py",
            "test_examples.py",
            "test_impala.py",
            "test_offline_cql.py",
        ),
    }.items()
    for file in files
}

#: Files whose tests are slow: clusters, trainings, emulated devices, programs, threads, and buffers of many kinds in
#: graphs of their own.
_SLOW = re.compile(
    "test_(actors|apex|backends|budget|cli|combinations|comparison|compat_package|compiled_calls|examples|"
    "gpu_target|impala|killed|large|mixed_precision|native|offline_cql|pages|r2d2|sharded|sharded_faults|sharded_flow|"
    "sharded_parts|sharded_stale|soak|threads|training_checkpoint|wheels)"
)

#: Groups that come first: the longest, and one that must run before any operator has run in a thread of MindSpore's.
#: From then on each operator is waited for busily, also with `pynative_synchronize`: five times the processor's time.
_FIRST = "ray", "programs", "test_backends.py"

#: For each test that takes the fixture `way_to_call`: the ways in which it ran to its end.
_RAN = pytest.StashKey[dict[str, set[str]]]()

sources.remember()
gc.disable()  # until all is imported, which stays


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=["CPU", "GPU", "Ascend"], default="CPU", help="what the tests run on")


def pytest_xdist_auto_num_workers() -> int | None:
    """Return two workers more than there are processors: tests of clusters and of processes mostly wait."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else (os.cpu_count() or 1) + 2


def pytest_configure(config: pytest.Config) -> None:
    # Ray's processes would else wait for those of all other tests.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    device = config.getoption("--device")
    try:
        ms.set_device(device)
    except (RuntimeError, ValueError) as error:
        raise pytest.UsageError(f"--device {device}: {str(error).strip().splitlines()[0]}") from None
    config.stash[_RAN] = {}
    config.pluginmanager.register(_Guard(config), "ways-guard")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one process, since they share compiled graphs. Groups that take long come first."""
    items[:] = [item for item in items if not _is_left_out(item)]
    for item in items:
        marker = item.get_closest_marker("cpu_only")
        if marker and config.getoption("--device") != "CPU":
            item.add_marker(pytest.mark.skip(reason=f"runs on the CPU only: {marker.args[0]}"))
        if _SLOW.fullmatch(item.path.stem) or "composite" in item.name:  # whose graphs take long to compile
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))
    slow = Counter(_group_of(item) for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (_group_of(item) not in _FIRST, -slow[_group_of(item)], _group_of(item)))


def _group_of(item: pytest.Item | pytest.Module) -> str:
    return _GROUPS.get(item.path.name, item.path.name)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the objects of all imports: they stay, and it would visit them again and again."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    programs.end()


def _is_left_out(item: pytest.Item) -> bool:
    """Return True in PYNATIVE_MODE with the composite backend, if a test takes both fixtures.

    A compiled body is the same graph in both modes, and graphs of the composite backend take long to compile.
    """
    places = getattr(getattr(item, "callspec", None), "params", {})
    chosen = any("mode" in marker.args[0] for marker in item.iter_markers("parametrize"))
    return not chosen and (places.get("mode"), places.get("backend")) == ("pynative", "composite")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that imports a script of `benchmarks/` or `examples/` by its name."""
    for folder in ("benchmarks", "examples"):
        monkeypatch.syspath_prepend(ROOT / folder)
    return importlib.import_module


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if "way_to_call" in getattr(item, "fixturenames", ()):
        name = f"{item.path.name}::{item.originalname}"  # type: ignore[attr-defined]
        report.user_properties.append(("way", (name, item.callspec.params["way_to_call"])))  # type: ignore[attr-defined]
    return report


class _Guard:
    """Fails a run of whole files if a test did not run in every way.

    Tests may run in several processes; their reports come together in the first.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == "way":
                name, way = value
                ran = self.config.stash[_RAN].setdefault(name, set())
                if report.when == "call" and not report.skipped:
                    ran.add(way)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        option = self.config.option
        partial = option.keyword or option.markexpr or any("::" in argument for argument in self.config.args)
        if hasattr(self.config, "workerinput") or partial or exitstatus:
            return
        lacking = missing(self.config.stash[_RAN])
        if lacking:
            print(f"\nnot run in every way: {lacking}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


_folders = itertools.count()


@pytest.fixture(autouse=True)
def tmp_path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder: MindSpore writes the analysis of a failed compilation into the working folder.

    pytest's own fixture reads the names of all folders of a run, each time, to number the next.
    """
    folder = tmp_path_factory.mktemp(str(next(_folders)), numbered=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def _mode_is_left_alone() -> Iterator[None]:
    """Fail a test that changes the context mode, which all tests of a process share."""
    before = ms.get_context("mode")
    yield
    after = ms.get_context("mode")
    ms.set_context(mode=before)
    assert after == before, f"the test left the context in mode {after}"


#: A program that starts a cluster, prints its address, and ends when its input does.
_CLUSTER = """
import sys
from mindspore_replay.distributed.cluster import connect
print(connect().get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start Ray on this machine, as a sharded buffer does, from a small process: the system starts no process from one
    whose untouched memory exceeds the machine's."""
    command = [sys.executable, "-c", _CLUSTER]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}  # this process has decided already that it has no token
    with subprocess.Popen(command, **pipes, env=environment, cwd=tmp_path_factory.mktemp("ray")) as head:
        assert head.stdin is not None
        assert head.stdout is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_ADDRESS", head.stdout.readline().strip())
            ray = connect()
        yield ray
        ray.shutdown()
        head.stdin.close()


@pytest.fixture(params=sorted(MODES))
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the context mode."""
    before = ms.get_context("mode")
    ms.set_context(mode=MODES[request.param])
    yield request.param
    ms.set_context(mode=before)


@pytest.fixture(params=["native", "composite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=WAYS)
def way_to_call(request: pytest.FixtureRequest) -> str:
    """Return a way to call buffers."""
    return request.param  # type: ignore[no-any-return]


_group = [""]


@pytest.fixture(scope="module", autouse=True)
def _graphs_are_freed(request: pytest.FixtureRequest) -> None:
    """Free the graphs of other files: MindSpore keeps them, and they grow to several GB in a process."""
    group = _group_of(request.node)
    if _group[0] not in ("", group):
        shared.clear()
        _recycle()
        kept.clear()
        gc.collect()
    _group[0] = group


def _recycle() -> None:
    """Free MindSpore's graphs. Retry if a Cell that is freed with them changes the dict that MindSpore reads."""
    again = True
    while again:
        again = False
        try:
            ms.ms_memory_recycle()
        except RuntimeError as error:
            again = "changed size" in str(error)
            if not again:
                raise


@pytest.fixture
def make(way_to_call: str, tmp_path: Path) -> Callable[..., Any]:
    """Return a maker of empty buffers that are called in this way."""
    return functools.partial(face_of, way_to_call, tmp_path)
