"""The kernel library: the report on it, its absence, and the errors of kernels."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Body
from flat import flat
from mindspore import ops

import mindspore_replay
from mindspore_replay import ReplayBuffer, ReplayQueue, kernel_status
from mindspore_replay.ops import native
from mindspore_replay.ops.status import KernelStatus
from mindspore_replay.store.base.schema import Schema
from mindspore_replay.store.kernels import library
from mindspore_replay.store.kernels.call import Array, Call, fixed
from mindspore_replay.store.rows.store import Store
from mindspore_replay.store.spec.options import Options
from mindspore_replay.store.spec.plan import WINDOW, Output, SamplePlan

PACKAGE = Path(mindspore_replay.__file__).parent


def test_the_status_where_the_kernels_are():
    status = kernel_status()
    assert (status.backend, status.reason, status.insert_statement) == ("native", "", True)
    assert Path(status.library).is_file()
    assert Path(status.library).parent == PACKAGE
    assert str(status) == (
        f"backend: native\nkernels: {status.library}\nrows: storage='device' by default\n"
        "buffer.insert(rows): compiles as written"
    )


def test_the_status_in_words():
    status = KernelStatus("composite", "", "there is no compiler", False)
    assert str(status) == (
        "backend: composite\nkernels: none\nrows: storage='device' by default\n"
        "buffer.insert(rows): is refused in a graph: write buffer.add(rows)\nreason: there is no compiler"
    )


def make_buffer(**options: Any) -> ReplayBuffer:
    return ReplayBuffer(1, 4, [()], ["int32"], **options)


def test_the_choice_of_a_backend():
    assert [make_buffer(backend=name).backend for name in ("auto", "native", "composite")] == [
        *("native", "native", "composite")
    ]
    assert make_buffer().backend == "native"


class Step(Body):
    """Stores a row and draws one."""

    def construct(self, row):
        self.buffer.add([row])
        return self.buffer.sample()[0]


LIST = "MS_CUSTOM_AOT_WHITE_LIST"


@pytest.mark.parametrize(
    ("allowed", "first"), [("/usr", True), ("/usr", False), (str(PACKAGE), True), (str(PACKAGE / "csrc"), False)]
)
def test_a_program_that_allows_operators_of_its_own_folder_alone(
    allowed: str, first: bool, monkeypatch: pytest.MonkeyPatch
):
    """Before or after the buffer is made: it works in calls and in graphs, and the program's folder stays as it is."""
    custom, seen = ops.Custom, list[str]()

    def strict(function: str, *arguments: Any, **keywords: Any) -> ops.Custom:  # as MindSpore 2.7 checks it
        seen.append(os.environ.get(LIST, ""))
        assert os.path.realpath(seen[-1]) in function or LIST not in os.environ
        return custom(function, *arguments, **keywords)

    monkeypatch.setattr(native.ops, "Custom", strict)
    buffer = None if first else make_buffer()
    monkeypatch.setenv(LIST, allowed)
    with contextlib.suppress(ZeroDivisionError), native._legal(native.library_path()):
        raise ZeroDivisionError
    buffer = buffer or make_buffer()
    assert int(buffer.insert([[3]]).sample()[0]) == 3
    assert int(ms.jit(Step(buffer.with_sample_size(1)))(ms.Tensor(3, ms.int32))) == 3
    assert os.environ[LIST] == allowed
    assert seen
    with pytest.raises(TypeError, match="the legal path for the file"):
        custom("/tmp/other.so:f", lambda x: x, lambda x: x, func_type="aot")


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make MindSpore report another device target."""
    get = ms.get_context

    def be(device: str) -> None:
        monkeypatch.setattr(ms, "get_context", lambda key: device if key == "device_target" else get(key))

    return be


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Search libraries in an empty folder."""
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    monkeypatch.setattr(library, "other_copies", lambda: iter(()))
    library.library_for.cache_clear()
    yield tmp_path
    library.library_for.cache_clear()


def test_ascend_has_no_native_kernels(target: Callable[[str], None]):
    target("Ascend")
    reason = "native kernels run on CPU and GPU, and the device target is Ascend, where nothing has been run"
    assert native.why_not() == native.why_not("Ascend") == reason
    assert (native.library_path(), native.on_cpu()) == ("", False)
    assert (kernel_status()[:3], kernel_status().storage) == (("native", "", reason), "host")
    assert [int(row) for row in make_buffer().insert([[7, 8]]).get_item([0, 1])[0]] == [7, 8]
    assert make_buffer(storage="device").backend == "composite"
    assert native.choose_backend("auto", "X") == native.choose_backend("composite", "X") == "composite"
    with pytest.raises(RuntimeError, match=f"^For 'X', backend='native' is not available: {reason}.$"):
        native.choose_backend("native", "X")


CUDA = {
    "none": (None, None, "the CUDA kernel library was not built: there is no {path}"),
    "not built": (None, "no nvcc was found\n", "the CUDA kernel library was not built: no nvcc was found"),
    "broken": (b"not a library", None, "the CUDA kernel library does not load: {path}: file too short"),
}


@pytest.mark.parametrize("case", CUDA)
def test_a_gpu_without_its_library(case: str, folder: Path, target: Callable[[str], None]):
    content, note, reason = CUDA[case]
    path = folder / "_kernels_cuda.akg_kernel_meta.so"
    if content is not None:
        path.write_bytes(content)
    if note is not None:
        (folder / "_kernels_cuda.akg_kernel_meta.txt").write_text(note, encoding="utf-8")
    reason = reason.format(path=path)
    assert native.why_not("GPU") == kernel_status().cuda == reason
    target("GPU")
    assert native.why_not() == kernel_status().reason == reason
    assert native.choose_backend("auto", "X") == "composite"
    with pytest.raises(RuntimeError, match=f"^For 'X', backend='native' is not available: {reason}.$"):
        native.choose_backend("native", "X")


@pytest.mark.cpu_only("the library for the CPU")
def test_a_gpu_with_its_library(folder: Path, target: Callable[[str], None]):
    """Any loadable library can stand in: its content is looked up when a kernel is called."""
    path = folder / "_kernels_cuda.akg_kernel_meta.so"
    shutil.copy(PACKAGE / "_kernels.akg_kernel_meta.so", path)
    assert kernel_status().cuda == ""
    assert native.library_path() == ""  # there is none for the CPU here
    assert (native.on_cpu(), native.direct_calls("native"), native.direct_calls("composite")) == (True, True, False)
    target("GPU")
    assert kernel_status()[:3] == ("native", str(path), "")
    assert native.choose_backend("auto", "X") == native.choose_backend("native", "X") == "native"
    assert (native.on_cpu(), native.direct_calls("native")) == (False, False)


ONLY_ON_CPU = {
    "compress=True": lambda **given: ReplayBuffer(2, 4, **flat([(9,)], ["uint8"], compress=[0], **given)),
    "a column whose shape begins with None": lambda **given: ReplayBuffer(
        2, 4, **flat([(None,)], ["int32"], names=["x"], max_length=3, items=12, **given)
    ),
    "late=True in a queue": lambda **given: ReplayQueue(
        2, 4, **flat([(), ()], ["int32"] * 2, names=["a", "b"], late=["b"], **given)
    ),
}


@pytest.mark.parametrize("what", ONLY_ON_CPU)
def test_what_no_graph_on_a_gpu_serves_lies_in_the_hosts_memory(what: str, folder: Path, target: Callable[[str], None]):
    for name in ("_kernels", "_kernels_cuda"):
        shutil.copy(PACKAGE / "_kernels.akg_kernel_meta.so", folder / f"{name}.akg_kernel_meta.so")
    target("GPU")
    make = ONLY_ON_CPU[what]
    assert make()._direct  # calls kernels of the CPU
    assert not ReplayBuffer(2, 4, [()], ["int32"])._direct
    with pytest.raises(ValueError, match=f"{what} needs .* on another device, storage='host', but got .*='device'"):
        make(storage="device")


#: Imports each copy of the package in a fork of this process, which has imported MindSpore. Draws in the first, without
#: a library, and in the last, without the module that calls it. The copy named "source" alone sees the installed one.
SCRIPT = """
import os
import sys
import warnings
import mindspore
import numpy
for folder in sys.argv[1:]:
    if os.fork() == 0:
        sys.path.insert(0, folder)
        break
    if os.wait()[1]:
        sys.exit(1)
else:
    sys.exit()
warnings.simplefilter("error")
print("in", folder)
from mindspore_replay import ReplayBuffer, kernel_status
from mindspore_replay.store.kernels import library
if "source" not in folder:
    library.other_copies = lambda: iter(())
print(kernel_status().backend, "|", kernel_status().reason)
class Mine(ReplayBuffer):
    pass
with warnings.catch_warnings(record=True, action="always") as warned:
    buffer = Mine(2, 4, [()], ["int32"], seed=0)
    ReplayBuffer(2, 4, [()], ["int32"], backend="composite")
print(buffer.backend, *(f"{warning.filename == __file__} {warning.message}" for warning in warned))
warnings.simplefilter("ignore")
if folder in (sys.argv[1], sys.argv[-1]):
    buffer.insert([numpy.arange(6, dtype="int32")])
    print(buffer.sample()[0].asnumpy().tolist())
try:
    ReplayBuffer(2, 4, [()], ["int32"], backend="native")
except RuntimeError as error:
    print(error)
try:
    ReplayBuffer(2, 4, [()], ["bfloat16"])
except TypeError as error:
    print(error)
"""

MODULE = "its Python module was not built: install Python's headers (python3-dev) and install this package again"

WARNING = (
    "True For 'Mine', the native kernels are not available. The composite backend is used instead: the same rows, up "
    "to 500 times slower from Python. The reason: {reason}. Pass backend='composite' to avoid this warning."
)

LIBRARIES = {
    "none": (None, None, "the kernel library was not built: there is no {path}"),
    "not built": (None, "no C++ compiler was found\n", "the kernel library was not built: no C++ compiler was found"),
    "broken": (b"not a library", None, "the kernel library does not load: {path}: file too short"),
    "source": (
        None,
        None,
        f"the package in {{path.parent}} has no kernels, the installed one in {PACKAGE} has: start Python outside of "
        "{path.parent.parent}, or build the kernels there with pip install -e {path.parent.parent}",
    ),
    "no module": ((PACKAGE / "_kernels.akg_kernel_meta.so").read_bytes(), None, MODULE),
}


def copy_without_library(folder: Path, case: str) -> Path:
    """Copy the package without its library, or the module that calls it; return the path of the library."""
    content, note, _ = LIBRARIES[case]
    copy = folder / "mindspore_replay"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("_kernels*", "__pycache__"))
    path = copy / "_kernels.akg_kernel_meta.so"
    if content is not None:
        path.write_bytes(content)
    if note is not None:
        (copy / "_kernels.akg_kernel_meta.txt").write_text(note, encoding="utf-8")
    if case == "no module":  # an empty file: a missing one might be found in an editable installation
        next(copy.glob("_calls*.so")).write_bytes(b"")
    return path


@pytest.fixture(scope="module")
def without_library(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[str]]]:
    """Return the path of the library in each copy of the package, and what the script prints there."""
    folders = {case: tmp_path_factory.mktemp(case.replace(" ", "_")) for case in LIBRARIES}
    paths = {case: copy_without_library(folder, case) for case, folder in folders.items()}
    script = tmp_path_factory.mktemp("script") / "main.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, str(script), *map(str, folders.values())]
    environment = {**os.environ, "PYTHONPATH": ""}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    found = {}
    for case, folder in folders.items():
        printed = result.stdout.split(f"in {folder}\n")[1].split("\nin /")[0]
        found[case] = paths[case], [line for line in printed.splitlines() if line.strip()]
    return found


@pytest.mark.cpu_only("the library for the CPU")
@pytest.mark.parametrize("case", LIBRARIES)
def test_without_the_library_the_composite_backend_serves(without_library: Any, case: str):
    """In a copy of the package: same draws, reported reason."""
    path, lines = without_library[case]
    reason = LIBRARIES[case][2].format(path=path)
    assert lines[:2] == [f"composite | {reason}", f"composite {WARNING.format(reason=reason)}"]
    if case in ("none", "no module"):
        buffer = ReplayBuffer(2, 4, [()], ["int32"], seed=0)
        expected = buffer.insert([np.arange(6, dtype=np.int32)]).sample()
        assert lines.pop(2) == str(expected[0].asnumpy().tolist())
    assert lines[2] == f"For 'ReplayBuffer', backend='native' is not available: {reason}."
    assert lines[3].startswith(
        "For 'ReplayBuffer', column 0 is bfloat16, which MindSpore's operators neither scatter nor"
    )


@pytest.mark.cpu_only("the library for the CPU")
def test_a_store_without_the_library_says_why(folder: Path):
    plan = SamplePlan(1, "uniform", (Output(WINDOW, 0),))
    with pytest.raises(RuntimeError, match=rf"^For 'Mine', the kernel library was not built: there is no {folder}/_k"):
        Store(Schema("Mine", [()], ["int32"]), Options(4, plan, cls_name="Mine"))


def tree_call(**given: Array) -> Call:
    """Return a call that sums weights of a ring of four rows, of which the oldest is in slot 1."""
    options = Options(4, SamplePlan(1, "rank", (Output(WINDOW, 0),)), weighting=(1.0, 0.0), beta=0.5)
    store = Store(Schema("Store", [()], ["int32"]), options)
    store.insert([np.arange(5, dtype=np.int32)], priority=np.array([9, 2, 4, 8, 1], np.float32))
    return Call("sums", options.groups, store._state | given)


@pytest.mark.cpu_only("calls kernels directly")
def test_a_call():
    ranges, sums = np.array([[0, 4], [0, 1], [-1, 9]]), np.zeros(3)
    call = tree_call(ranges=fixed(ranges), sums=fixed(sums))
    assert call.direct.run() == library.OK
    assert sums.tolist() == [15, 2, 1]
    ranges[:] = [[1, 3], [2, 2], [-9, 9]]
    assert call.direct.run() == library.OK
    assert sums.tolist() == [12, 0, 15]
    assert tree_call(ranges=fixed(ranges), sums=fixed(np.zeros(2))).direct.run() == 1  # C++ tests all that it refuses


@pytest.mark.cpu_only("calls kernels directly")
def test_a_kernel_that_fails_raises_in_words():
    store = make_buffer(backend="native")._front.calls
    message = r"^The kernel 'replay_sample' failed with status 2: fewer rows are eligible than a sample needs.$"
    with pytest.raises(library.KernelError, match=message) as raised:
        store.sample()
    assert raised.value.status == library.TOO_FEW_ROWS
