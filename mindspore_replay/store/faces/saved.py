"""The state of a buffer as named arrays: copied, checked, loaded, and written to files."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from ..base.mixins import mixin
from ..kernels import state
from ..kernels.locks import Event, Held, Locks, first
from ..rows.store import STATE_VERSION
from ..spec.spec import BufferSpec
from ..waits.limiter import RateLimiter
from .front import LocalFront
from .place import open_buffer

_Saved = TypeVar("_Saved", bound="SavedState")


@dataclass(frozen=True)
class Plain:
    """An array of a state, in host memory.

    Args:
        array (Any): The array, or a `CompressedColumn`.
        dtype (str): Name of its dtype in files.
    """

    array: Any
    dtype: str

    #: Calls of ``set_data``, which only Parameters have; and whether `asnumpy` is the memory of the state itself.
    loads: ClassVar[int] = 0
    in_memory: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def numpy_type(self) -> np.dtype[Any]:
        """NumPy dtype of the array."""
        return self.array.dtype  # type: ignore[no-any-return]

    def asnumpy(self) -> np.ndarray:
        """Return the array."""
        return self.array  # type: ignore[no-any-return]

    def overwrite(self, array: np.ndarray | np.generic) -> None:
        """Overwrite the array with values of the same shape and dtype."""
        self.array[...] = array


@mixin
class SavedState:
    """The methods of a buffer that save, load and check its state.

    Only `state_dict`, `load_state_dict` and `check_valid` are for users. The others are for checkpoints, mixtures
    and monitors.
    """

    spec: BufferSpec
    _front: LocalFront
    @staticmethod
    def _find(name: str) -> Any:
        """Return the class of a name that a file contains."""
        raise NotImplementedError

    # For users.

    @property
    def folder(self) -> Path | None:
        """The folder of the rows, or ``None`` if they are in memory."""
        return self._front.folder

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """The lock held by calls from Python. Compiled graphs do not wait for it.

        If the buffer is in a folder, all its processes share this lock, and graphs wait for it too.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> with buffer.lock:  # no other thread comes between
            ...     buffer = buffer.insert([1])
            ...     newest, = buffer.get_item(-1)
            >>> print(newest)
            1
        """
        return self._front.outer_lock

    def eligible(self) -> int:
        """Return the number of rows at which a sample may start now. Only from Python.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], weighted=True, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(buffer.delete([1]), buffer.size(), buffer.eligible())
            1 3 2
        """
        return self._front.eligible()

    @classmethod
    def open(
        cls: type[_Saved],
        folder: str | os.PathLike[str],
        *,
        views: Sequence[object] | None = None,
        verify: bool = False,
    ) -> _Saved:
        """Open the buffer in a folder, made with ``storage=folder``, with all rows whose insertion had returned.

        The random sequence continues. An operation that a dead process left unfinished is completed or undone. If the
        machine stopped before `close`, the buffer is restored as of its last `flush`, without rows changed later. A
        warning counts these.

        Args:
            folder (Union[str, PathLike]): The folder.
            views (Union[Sequence, None]): The buffer's views, required if one contains Python code, such as
                `HindsightRelabel`. Other views are read from the folder. Default: ``None``.
            verify (bool): Whether to check all rows unchanged since the last `flush`, and remove those that fail their
                checksums, with a warning. Default: ``False``, to check only after the machine stopped.

        Returns:
            Buffer: A buffer of this class, or of any class if this is `Buffer`.

        Raises:
            FileNotFoundError: If there is no such folder.
            ValueError: If the folder contains something else, a damaged buffer, or one of a newer version of this
                library or of another class, or if `views` do not fit.
            RuntimeError: If the buffer is open in another learner, or with `verify` in any other process.
            OSError: If this process may not write to the folder.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).close()
            ...     buffer = ReplayBuffer.open(f"{parent}/rows")
            ...     print(*buffer.get_item(0))
            ...     buffer.close()
            7
        """
        return open_buffer(cls, folder, views, verify, cls._find)

    def flush(self, *, every: float | None = None, rows: int | None = None) -> None:
        """Write the buffer in the folder to the disk, so that its present state survives a loss of power.

        Rows updated or overwritten later may be lost. See [processes](../processes.md). Other threads and processes
        continue while the disk writes.

        Args:
            every (Union[float, None]): Also flush in a thread every so many seconds until `close`. 0 stops it. Default:
                ``None``, no change.
            rows (Union[int, None]): Let that thread also flush once so many rows were inserted since the last flush. It
                looks 100 times a second. Default: ``None``, only `every` counts.

        Raises:
            RuntimeError: If the buffer is not in a folder, or was closed.
            ValueError: If `every` is no number, or negative, or `rows` is no positive integer.
            FileNotFoundError: If the folder was deleted. The rows are then in memory only.
            OSError: If the disk could not be written. Later calls fail too, since its contents are unknown.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).flush()  # from here on a loss of power loses nothing
            ...     buffer.close()
        """
        self._front.flush(every, rows)

    def close(self) -> None:
        """Free the memory of the rows. If the buffer is in a folder, flush and release the folder instead.

        Afterwards another learner can open the folder. Methods of this buffer and of attached processes raise a
        RuntimeError, also where they wait for a limiter. So do compiled graphs. With the composite backend they find
        the buffer empty. Buffers made by `with_sample_size` close too. A GPU's memory is freed with the object. A
        second call does nothing.

        Raises:
            FileNotFoundError: If the folder was deleted. The buffer is still open: `save` its rows elsewhere. A second
                call gives them up.
            OSError: If the disk could not be written. The buffer is closed nevertheless.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).close()
            >>> ReplayBuffer(1, 4, [()], ["int32"]).insert([7]).close()
        """
        self._front.close()

    # For the rest of the package.

    def turn_to_sample(self, stop: Event | None) -> Held:
        """Wait until the limiter allows a sample, which the block may draw. Raise a RuntimeError once `stop` is set."""
        return self._front.turn_to_sample(stop, self.spec.sample_size)

    @property
    def last_saved(self) -> object:
        """Record of the last `save`."""
        return self._front.shared.last_saved

    @last_saved.setter
    def last_saved(self, record: object) -> None:
        self._front.shared.last_saved = record

    def state_arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, the limiter's too, each a `Plain` or with its methods."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the whole state, as `Buffer.state_dict` does."""
        with self.snapshot(columns=True) as arrays:
            copies = {key: array.copy() for key, array in arrays.items()}
        return {"version": np.array(STATE_VERSION), **copies}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state, as `Buffer.load_state_dict` does."""
        arrays = self.checked_state(state_dict)
        with self.sole_use(arrays):
            self.load_checked(arrays)

    def check_valid(self) -> None:
        """Raise a ValueError if the state is inconsistent. The rows' own data are not checked. Cost O(C)."""
        with self.snapshot() as arrays:
            self.check_state(arrays)

    def exclusive(self) -> Held:
        """Keep calls from Python, and on the CPU native kernels in graphs, from the state during the block."""
        front = self._front
        return Locks(front.lock, first(front.ready), front.calls.kernels_kept_out())

    def sole_use(self, arrays: Mapping[str, np.ndarray]) -> Held:
        """Prevent attaching during the block, for a state with other rows. Raise a RuntimeError if one is attached."""
        return self._front.calls.sole_use(arrays)

    def begin_replacing(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Declare that all rows are about to be replaced, and return the state to write, without its columns.

        The caller has `sole_use` for the state, and keeps others out. If the process dies before it lets them in, a
        buffer in a folder is empty. There a serial number is never used twice.
        """
        return self._front.calls.begin_replacing(arrays)

    def snapshot(self, columns: bool = False) -> contextlib.AbstractContextManager[dict[str, Any]]:
        """Return the capacity and the state, with or without columns. Nothing changes it in the block.

        Arrays are views of host memory if the state is there, else copies. A compressed column is a `CompressedColumn`.
        The columns that say where the items of rows are always come.
        """
        front, arrays = self._front, {"capacity": np.array(self.spec.capacity)}
        references = {f"column.{kind.name}" for kind in self.spec.options.kinds}

        def read() -> None:
            front.ready()
            for key, one in self.state_arrays().items():
                if columns or key in references or not key.startswith(state.OF_ROWS):
                    arrays[key] = one.asnumpy()

        # Reading may wait for graphs, which may wait for the kernels.
        return Locks(front.lock, first(read), front.calls.kernels_kept_out(), first(lambda: arrays))

    def checked_state(self, state_dict: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Check a state, with the errors of `load_state_dict`, and return the arrays for `load_checked`."""
        held = self.state_arrays().items()
        others = {key: (one.shape, one.dtype) for key, one in held if key.startswith("limiter.")}
        arrays = state.checked(self.spec.columns, self.spec.options, state_dict, STATE_VERSION, others)
        self._check_limiter(arrays)
        return arrays

    def load_checked(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy checked arrays into the state. The caller has `sole_use` for them."""
        with self._front.lock:
            self._front.ready()
            held = self.state_arrays()
            memory = {key: one.asnumpy() for key, one in held.items() if one.in_memory}
            with self.exclusive():  # graphs may wait for this, and nothing here for them
                arrays = self.begin_replacing(arrays)
                self.last_saved = None
                for key, array in memory.items():
                    array[...] = arrays[key]
                for key in held.keys() - memory.keys():
                    held[key].overwrite(arrays[key])

    def check_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Check a state without its columns, as `check_valid` does."""
        state.check(self.spec.options, arrays)
        self._check_limiter(arrays)

    def _check_limiter(self, arrays: Mapping[str, np.ndarray]) -> None:
        limiter = self._front.limiter
        if isinstance(limiter, RateLimiter) and "limiter.rule" in arrays and "limiter.counts" in arrays:
            limiter.check_state(arrays["limiter.rule"], arrays["limiter.counts"])

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"For '{type(self).__name__}', a buffer cannot be pickled: write it to a file with save(buffer, path), use "
            "storage=folder and attach(folder) in the other process, or load_state_dict its state_dict() into another. "
            "In this process copy.deepcopy(buffer) is a copy."
        )
