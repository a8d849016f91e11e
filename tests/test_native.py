"""The kernel library: what is said about it, what happens without it, and how a kernel refuses."""

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
from mindspore import Tensor
from mindspore.common.initializer import Zero

import mindspore_replay
from mindspore_replay import KernelStatus, ReplayBuffer, kernel_status
from mindspore_replay.ops import native

PACKAGE = Path(mindspore_replay.__file__).parent


def test_the_status_where_the_kernels_are():
    status = kernel_status()
    assert (status.backend, status.reason, status.insert_statement) == ("native", "", True)
    assert Path(status.library).is_file()
    assert Path(status.library).parent == PACKAGE
    assert str(status) == (f"backend: native\nkernels: {status.library}\nbuffer.insert(rows): compiles as written")


def test_the_status_in_words():
    status = KernelStatus("composite", "", "there is no compiler", False)
    assert str(status) == (
        "backend: composite\nkernels: none\n"
        "buffer.insert(rows): is not safe in a graph: write buffer.add(rows)\nreason: there is no compiler"
    )


def make_buffer(**options: Any) -> ReplayBuffer:
    return ReplayBuffer(sample_size=1, capacity=4, shapes=[()], types=["int32"], **options)


def test_the_choice_of_a_backend():
    assert [make_buffer(backend=name).backend for name in ("auto", "native", "composite")] == [
        *("native", "native", "composite")
    ]
    assert make_buffer().backend == "native"


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes MindSpore say that the device target is another."""
    get = ms.get_context

    def be(device: str) -> None:
        monkeypatch.setattr(ms, "get_context", lambda key: device if key == "device_target" else get(key))

    return be


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where libraries are looked for: a folder without any."""
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    native._library_for.cache_clear()
    yield tmp_path
    native._library_for.cache_clear()


def test_ascend_has_no_native_kernels(target: Callable[[str], None]):
    target("Ascend")
    reason = "native kernels run on CPU and GPU, and the device target is Ascend, where nothing has been run"
    assert native.why_not() == native.why_not("Ascend") == reason
    assert (native.library_path(), native.host_memory()) == ("", False)
    assert kernel_status()[:3] == ("composite", "", reason)
    assert native.choose_backend("auto", "X") == native.choose_backend("composite", "X") == "composite"
    with pytest.raises(RuntimeError, match=f"^For 'X', backend='native' cannot be had: {reason}.$"):
        native.choose_backend("native", "X")


CUDA = {
    "none": (None, None, "the CUDA kernel library was not built: there is no {path}"),
    "not built": (None, "no nvcc was found\n", "the CUDA kernel library was not built: no nvcc was found"),
    "broken": (b"not a library", None, "the CUDA kernel library does not load: {path}: file too short"),
}


@pytest.mark.parametrize("case", CUDA)
def test_a_gpu_without_its_library(case: str, folder: Path, target: Callable[[str], None]):
    library, note, reason = CUDA[case]
    path = folder / "_kernels_cuda.so"
    if library is not None:
        path.write_bytes(library)
    if note is not None:
        (folder / "_kernels_cuda.txt").write_text(note, encoding="utf-8")
    reason = reason.format(path=path)
    assert native.why_not("GPU") == kernel_status().cuda == reason
    target("GPU")
    assert native.why_not() == kernel_status().reason == reason
    assert native.choose_backend("auto", "X") == "composite"
    with pytest.raises(RuntimeError, match=f"^For 'X', backend='native' cannot be had: {reason}.$"):
        native.choose_backend("native", "X")


@pytest.mark.host_memory("the library for the CPU")
def test_a_gpu_with_its_library(folder: Path, target: Callable[[str], None]):
    """Any library that loads stands in for it: what it holds is looked up when a kernel is called."""
    path = folder / "_kernels_cuda.so"
    shutil.copy(PACKAGE / "_kernels.so", path)
    assert kernel_status().cuda == ""
    assert native.library_path() == ""  # there is none for the CPU here
    assert (native.host_memory(), native.direct_calls("native"), native.direct_calls("composite")) == (
        True,
        True,
        False,
    )
    target("GPU")
    assert kernel_status()[:3] == ("native", str(path), "")
    assert native.choose_backend("auto", "X") == native.choose_backend("native", "X") == "native"
    assert (native.host_memory(), native.direct_calls("native")) == (False, False)


SCRIPT = """
import warnings
import numpy
warnings.simplefilter("error")
from mindspore_replay import ReplayBuffer, kernel_status
print(kernel_status().backend, "|", kernel_status().reason)
buffer = ReplayBuffer(2, 4, [()], ["int32"], seed=0)
buffer.insert([numpy.arange(6, dtype="int32")])
print(buffer.backend, buffer.sample()[0].asnumpy().tolist())
try:
    ReplayBuffer(2, 4, [()], ["int32"], backend="native")
except RuntimeError as error:
    print(error)
try:
    ReplayBuffer(2, 4, [()], ["bfloat16"])
except TypeError as error:
    print(error)
"""

LIBRARIES = {
    "none": (None, None, "the kernel library was not built: there is no {path}"),
    "not built": (None, "no C++ compiler was found\n", "the kernel library was not built: no C++ compiler was found"),
    "broken": (b"not a library", None, "the kernel library does not load: {path}: file too short"),
}


@pytest.mark.host_memory("the library for the CPU")
@pytest.mark.parametrize("case", LIBRARIES)
def test_without_the_library_the_composite_backend_serves(tmp_path: Path, case: str):
    """A copy of the package without its library: same draws, and the reason in the status and in the error."""
    library, note, reason = LIBRARIES[case]
    copy = tmp_path / "mindspore_replay"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("_kernels*", "__pycache__"))
    path = copy / "_kernels.so"
    if library is not None:
        path.write_bytes(library)
    if note is not None:
        (copy / "_kernels.txt").write_text(note, encoding="utf-8")
    script = tmp_path / "main.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    reason = reason.format(path=path)
    expected = (
        ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
        .insert([np.arange(6, dtype=np.int32)])
        .sample()
    )
    assert lines[0] == f"composite | {reason}"
    assert lines[1] == f"composite {expected[0].asnumpy().tolist()}"
    assert lines[2] == f"For 'ReplayBuffer', backend='native' cannot be had: {reason}."
    assert lines[3].startswith(
        "For 'ReplayBuffer', column 0 is bfloat16, which MindSpore's operators neither scatter nor"
    )


@pytest.mark.host_memory("calls kernels directly")
def test_a_kernel_that_refuses_raises():
    call = native.DirectCall("replay_random_bits", [(2,), (4,)], ["int64", "float32"])
    state, bits = np.zeros(2, np.int64), np.zeros(4, np.float32)
    call.addresses[:] = [state.ctypes.data, bits.ctypes.data]
    with pytest.raises(RuntimeError, match=r"^The kernel 'replay_random_bits' refused its arguments with status 1.$"):
        call()
    assert state.tolist() == [0, 0]


@pytest.mark.host_memory("calls kernels directly")
def test_a_direct_call():
    call = native.DirectCall("replay_random_bits", [(2,), (1,)], ["int64", "int64"])
    state, bits = np.zeros(2, np.int64), np.zeros(3, np.int64)
    call.addresses[:] = [state.ctypes.data, bits.ctypes.data]
    call.set_leading(range(1, 2), 3)
    call()
    assert state.tolist() == [0, 3]
    assert bits.astype(np.uint64).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.host_memory("calls kernels directly")
@pytest.mark.parametrize("make", ["Call", "_CtypesCall"])
def test_kernels_are_called_by_the_extension_and_by_ctypes(make: str, monkeypatch: pytest.MonkeyPatch):
    if make == "_CtypesCall":
        monkeypatch.setattr(native, "extension", None)
    call = native.DirectCall("replay_random_bits", [(2,), (4,)], ["int64", "int64"])
    assert type(call.locate.__self__).__name__ == make
    state, bits = Tensor(np.array([7, 0])), Tensor(np.zeros(4, np.int64))
    call.locate(0, (state,))
    call.locate(1, [bits])
    call()
    assert len(set(bits.asnumpy().tolist())) == 4
    assert state.asnumpy().tolist() == [7, 4]
    more = np.zeros(4, np.int64)
    call.locate(0, (state, more))
    call()
    assert state.asnumpy().tolist() == [7, 8]
    assert not set(more.tolist()) & set(bits.asnumpy().tolist())
    for wrong in (np.zeros(8, np.int64)[::2], Tensor(shape=(4,), dtype=ms.int64, init=Zero())):
        with pytest.raises((BufferError, ValueError)):
            call.locate(1, (wrong,))
    call.set_leading(range(1, 2), 3)
    with pytest.raises((IndexError, ValueError)):
        call.locate(1, (state, bits))
    with pytest.raises((AttributeError, TypeError)):
        call.locate(0, (None,))
    call.set_leading(range(1), 3)
    with pytest.raises(native.KernelError, match="status 1"):
        call()
