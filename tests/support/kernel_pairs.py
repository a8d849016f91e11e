"""Two kernel libraries side by side: the same calls on the same state, with every byte of the results compared."""

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from places import ROOT

from mindspore_replay.store.signatures import COLUMNS, INPUT, OUTPUT, OUTPUTS, ROWS, STATE, Item, Signature, parse

SOURCES = ("kernels", "sample_kernels")

#: An argument: its dtype in the kernels' words, its shape, and its memory, which is a NumPy array on the host.
Host = np.ndarray


def build_emulated(folder: Path) -> Path:
    """Build the CUDA kernels for the emulated device, which runs them on the host, as a library like the others."""
    library = folder / "_kernels_emulated.so"
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-pthread", "-shared", "-fPIC", "-fvisibility=hidden"]
    include = ["-include", str(ROOT / "tests/csrc/emulated_cuda.h"), "-I", str(ROOT / "mindspore_replay/csrc")]
    sources = [str(ROOT / "mindspore_replay/csrc/cuda" / f"{name}.cu") for name in SOURCES]
    compiler = shutil.which("g++") or "g++"
    subprocess.run([compiler, *flags, *include, "-x", "c++", *sources, "-o", str(library)], check=True)
    return library


class HostMemory:
    """Arguments in NumPy's memory."""

    def put(self, array: Host) -> Any:
        return array.copy()

    def address(self, held: Any) -> int:
        return held.ctypes.data

    def get(self, held: Any) -> Host:
        return held

    def wait(self) -> None:
        """Wait for the kernels in flight."""


class TorchMemory:
    """Arguments in GPU memory, which PyTorch owns."""

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def put(self, array: Host) -> Any:
        held = self._torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()).cuda()
        return held, array.dtype, array.shape

    def address(self, held: Any) -> int:
        return held[0].data_ptr()

    def get(self, held: Any) -> Host:
        data, dtype, shape = held
        return data.cpu().numpy().view(dtype).reshape(shape)

    def wait(self) -> None:
        self._torch.cuda.synchronize()


class Library:
    """The kernels of a library, called on memory it can access; `operators` are their signatures."""

    def __init__(self, path: Path, memory: Any) -> None:
        self._handle = ctypes.CDLL(str(path))
        self.memory = memory
        self._take_failure = getattr(self._handle, "replay_take_failure", None)
        self._handle.replay_signature.restype = ctypes.c_char_p
        lines = itertools.takewhile(bool, map(self._handle.replay_signature, itertools.count()))
        self.operators = parse(line.decode() for line in lines)[1]

    def call(self, kernel: str, arguments: Sequence[tuple[str, tuple[int, ...], Any]]) -> int:
        """Return the status of a call when it is done. An argument is a dtype, a shape and its memory."""
        status = self.launch(kernel, arguments)
        self.memory.wait()
        return status or self.failure()

    def failure(self) -> int:
        """Return the status of the first call refused after it had returned, since the last query; 0 for none."""
        return 0 if self._take_failure is None else self._take_failure(ctypes.byref(ctypes.c_char_p()))

    def launch(self, kernel: str, arguments: Sequence[tuple[str, tuple[int, ...], Any]], stream: Any = None) -> int:
        """Return the status of a call on a stream, an address, before its kernel is done."""
        size = len(arguments)
        addresses = (ctypes.c_void_p * size)(*(self.memory.address(held) for _, _, held in arguments))
        shapes = [(ctypes.c_int64 * max(len(shape), 1))(*shape) for _, shape, _ in arguments]
        pointers = (ctypes.c_void_p * size)(*map(ctypes.addressof, shapes))
        ndims = (ctypes.c_int * size)(*(len(shape) for _, shape, _ in arguments))
        dtypes = (ctypes.c_char_p * size)(*(dtype.encode() for dtype, _, _ in arguments))
        place = ctypes.c_void_p(stream)
        return getattr(self._handle, kernel)(size, addresses, ndims, pointers, dtypes, place, None)


def in_order(signature: Signature, groups: Collection[str], values: Mapping[str, Any]) -> Iterable[tuple[Item, Any]]:
    """Return the arguments of an operator with their values; a state array that is not given has its name as value."""
    for item in signature.present(groups):
        value = values.get(item.name, item.name) if item.role == STATE else values[item.name]
        for one in value if isinstance(value, list) else [value]:
            yield item, one


class Pair:
    """The CPU's kernels and others, each with its own copy of some state.

    Args:
        ours (Library): The CPU's.
        other (Library): Those to compare.
        exact (bool): True if powers come from the same function. If not, float32 weights may differ in their last bit,
            as may values derived from them, and after each call the others continue with our state.
    """

    def __init__(self, ours: Library, other: Library, exact: bool = True) -> None:
        self._ours, self._other, self._exact = ours, other, exact
        self._state: dict[str, tuple[str, Any, Any]] = {}

    def hold(self, name: str, array: Host, dtype: str = "") -> None:
        """Add an array to the state."""
        self._state[name] = dtype or array.dtype.name, array.copy(), self._other.memory.put(array)

    def __getitem__(self, name: str) -> Host:
        return self._state[name][1]

    def run(
        self,
        operator: str,
        groups: Collection[str],
        columns: Sequence[str] = (),
        outputs: Sequence[tuple[str, tuple[int, ...]]] = (),
        **given: Any,
    ) -> tuple[int, dict[str, Host]]:
        """Call a kernel of both; return the status and the outputs by name.

        Args:
            operator (str): Its name in the table.
            groups (Collection[str]): Groups of the state that are present.
            columns (Sequence[str]): Names of the columns in the state.
            outputs (Sequence[tuple[str, tuple[int, ...]]]): Dtypes and shapes of a sample's outputs.
            given (Any): The inputs: arrays, lists of them for rows, or names of state arrays to pass themselves.

        Raises:
            AssertionError: If status, state or outputs are not the same.
        """
        signature = self._ours.operators[operator]
        kernel = signature.kernel
        shapes = self._outputs(signature, columns, outputs, given)
        given_or_made = {COLUMNS: list(columns), **given, **shapes}
        mine, others, made = [], [], []
        for item, value in in_order(signature, groups, given_or_made):
            if isinstance(value, str):
                dtype, array, held = self._state[value]
            elif item.role == OUTPUT:
                dtype, shape = value
                array = np.zeros(shape, np.uint8 if dtype == "bool" else dtype)
                held = self._other.memory.put(array)
                made.append((item.name, array, held))
            else:
                dtype, array, held = value.dtype.name, value, self._other.memory.put(value)
            mine.append((dtype, array.shape, array))
            others.append((dtype, array.shape, held))
        status = self._ours.call(kernel, mine)
        got = self._other.call(kernel, others)
        assert got == status, f"{kernel}: status {got}, expected {status}"
        for name, (dtype, array, held) in self._state.items():
            self._same(f"{kernel}: {name}", array, self._other.memory.get(held))
            if not self._exact:
                self._state[name] = dtype, array, self._other.memory.put(array)
        for name, array, held in made:
            if status == 0:
                self._same(f"{kernel}: {name}", array, self._other.memory.get(held))
            elif operator.startswith("sample"):  # a refused one yields zeros, and handles of no row
                assert np.all(np.isin(self._other.memory.get(held), (0, -1))), f"{kernel}: an output of a refused call"
        return status, {name: array for name, array, _ in made}

    def _outputs(
        self, signature: Signature, columns: Sequence[str], outputs: Sequence[Any], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return dtype and shape of an operator's outputs, by name."""
        sizes: dict[str, int] = {}
        for item in signature.items:
            if item.role == INPUT and item.name in given and item.name != ROWS:
                shape = np.atleast_1d(self._array(given[item.name])).shape
                for extent, size in zip(item.extents, shape):
                    sizes[extent.lstrip("2")] = size // 2 if extent == "2m" else size
        found: dict[str, Any] = {}
        for item in signature.items:
            if item.role != OUTPUT:
                continue
            if item.name == OUTPUTS:
                found[item.name] = list(outputs)
            elif item.name == ROWS:
                held = [self._state[name] for name in columns]
                lead = [sizes[extent] for extent in item.extents]
                found[item.name] = [(dtype, (*lead, *array.shape[1:])) for dtype, array, _ in held]
            else:
                shape = tuple(int(extent) if extent.isdigit() else sizes[extent] for extent in item.extents)
                found[item.name] = item.dtype, shape
        return found

    def _array(self, value: Any) -> Host:
        return self[value] if isinstance(value, str) else value

    def _same(self, what: str, expected: Host, got: Host) -> None:
        if not self._exact and expected.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=3e-7, err_msg=what)
        else:
            assert got.tobytes() == expected.tobytes(), f"{what}: {got.ravel()[:9]}, expected {expected.ravel()[:9]}"
