"""Copying, loading and checking the whole state of a buffer."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from ..columns import Columns
from ..checkpoint.parts import Plain
from ..ops.eager import wait_for_work
from ..store import state
from ..store.calls import Calls
from ..store.compressed import CompressedColumn
from ..store.folder import Folder
from ..store.limiter import RateLimiter
from ..store.mixins import mixin
from ..store.options import Options
from ..store.recipe.spec import BufferSpec
from ..store.schema import type_name
from ..store.store import STATE_VERSION
from ..store.waiting import Waiting
from .parameters import Held, count_load, is_on_host, overwrite


@mixin
class Saving:
    """The methods that save, load and check the state.

    Only `state_dict`, `load_state_dict` and `check_valid` are for users. The others are for checkpoints, mixtures
    and monitors, which use only these methods of a buffer, its public methods, `spec`, `with_sample_size`,
    `options`, `layout` and `lock`.
    """

    spec: BufferSpec
    columns: Columns
    options: Options
    limiter: Waiting | None
    head: Parameter
    #: The compressed columns, by their names in the state.
    compressed: dict[str, CompressedColumn]
    _calls: Calls
    _lock: threading.RLock
    _folder: Folder | None

    #: Record of the last `save`: only rows with larger serial numbers, and those updated since, differ from its files.
    last_saved: Any = None

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Copy the whole state.

        It contains columns, cursors, serials, random state, the state of each row, capacity and the layout's version.

        With arguments, as when MindSpore calls it for a Cell that contains the buffer, it is ``nn.Cell.state_dict``.

        Returns:
            dict[str, numpy.ndarray]: Copies, by name, for `load_state_dict` of this or another buffer.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> state = buffer.insert([[10, 11, 12]]).state_dict()
            >>> print(state["count"], state["column.0"])
            3 [10 11 12  0]
        """
        if args or kwargs:
            return nn.Cell.state_dict(self, *args, **kwargs)
        with self.snapshot(columns=True) as arrays:
            copies = {key: array.copy() for key, array in arrays.items()}
        return {"version": np.array(STATE_VERSION), **copies}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a state from `state_dict`. The same draws follow as would have there.

        Args:
            state_dict (Mapping[str, numpy.ndarray]): The state of a buffer with the same columns and capacity.
            args (Any): More arguments of ``nn.Cell.load_state_dict``, for a state of another origin.
            kwargs (Any): As `args`.

        In a folder the rows get new serial numbers, if others were given out already: a handle never names another row.

        Raises:
            ValueError: If version, keys, shapes, dtypes, cursors or weights do not fit; then nothing is changed.
            RuntimeError: If the state has other rows than a folder that somebody is attached to.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> state = buffer.insert([[10, 11, 12]]).state_dict()
            >>> print(*buffer.sample())
            [11 12]
            >>> buffer.load_state_dict(state)
            >>> print(*buffer.sample())
            [11 12]
        """
        if "version" not in state_dict:
            return nn.Cell.load_state_dict(self, state_dict, *args, **kwargs)
        arrays = self.checked_state(state_dict)
        with self.sole_use(arrays):
            self.load_checked(arrays)
        return None

    def load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Load the state that the ``state_dict`` of a Cell which contains the buffer holds."""
        if self.compressed:
            raise RuntimeError(
                f"For '{type(self).__name__}', the 'state_dict' of a Cell does not contain compressed columns: use "
                "state_dict() and load_state_dict(state) of the buffer itself, or save(buffer, path) and load(path)."
            )
        self.load_state_dict(self._completed(arrays))

    def _completed(self, arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, np.ndarray]:
        """Return such a state with what else `load_state_dict` needs."""
        return {
            prefix + "version": np.array(STATE_VERSION),
            prefix + "capacity": np.array(self.spec.capacity),
            **arrays,
        }

    def check_valid(self) -> None:
        """Check the invariants of the state, which hold between any two operations.

        Raises:
            ValueError: If cursors or weights are out of range or inconsistent.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer.insert([[10, 11, 12]]).check_valid()
        """
        with self.snapshot() as arrays:
            self.check_state(arrays)

    # For the rest of the package.

    @property
    def folder(self) -> Path | None:
        """The folder that holds the rows; ``None`` if they are in memory."""
        return None if self._folder is None else self._folder.path

    def state_parameters(self) -> dict[str, Parameter]:
        """Return the Parameters of the state by name, including the limiter's."""
        return dict(self.parameters_and_names())  # type: ignore[attr-defined]

    def state_arrays(self) -> dict[str, Held | Plain]:
        """Return the arrays of the state by name, for a file."""
        arrays: dict[str, Held | Plain] = {key: Held(parameter) for key, parameter in self.state_parameters().items()}
        for i, (key, column) in zip(self.columns.compressed, self.compressed.items()):
            arrays[key] = Plain(column, self.columns.stored_dtypes[i])
        return arrays

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep calls from Python, and on the CPU native kernels in graphs, from the state during the block."""
        with self._lock:
            wait_for_work()
            with self._calls.kernels_kept_out():
                yield

    def sole_use(self, arrays: Mapping[str, np.ndarray]) -> contextlib.AbstractContextManager[None]:
        """Let nobody attach during the block, for a state with other rows; a RuntimeError if somebody is attached."""
        return self._calls.sole_use(arrays)

    def begin_replacing(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Declare that all rows are about to be replaced, and return the state to write, without its columns.

        The caller has `sole_use` for the state, and keeps others out. If the process dies before it lets
        them in, a buffer in a folder is empty. There a serial number is never given out twice.
        """
        count_load(self.head)  # also for those that share the rows, and continue files of their own
        return self._calls.begin_replacing(arrays)

    @contextlib.contextmanager
    def snapshot(self, columns: bool = False) -> Iterator[dict[str, Any]]:
        """Return the capacity and the state, with or without columns; nothing changes it in the block.

        Arrays are views of host memory if the state is there, else copies; a compressed column is a `CompressedColumn`.
        """
        with self._lock:
            wait_for_work()
            parameters = self.state_parameters().items()
            arrays: dict[str, Any] = {
                key: value.asnumpy() for key, value in parameters if columns or not key.startswith("column.")
            }
            with self.exclusive():
                yield {"capacity": np.array(self.spec.capacity), **arrays, **(self.compressed if columns else {})}

    def checked_state(self, state_dict: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Check a state, with the errors of `load_state_dict`, and return the arrays for `load_checked`."""
        others = {key: value for key, value in self.state_parameters().items() if key.startswith("limiter.")}
        expected = {key: (tuple(value.shape), type_name(value.dtype)) for key, value in others.items()}
        arrays = state.checked(self.columns, self.options, state_dict, STATE_VERSION, expected)
        self._check_limiter(arrays)
        return arrays

    def load_checked(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy checked arrays into the state; the caller has `sole_use` for them."""
        with self._lock:
            wait_for_work()
            parameters = self.state_parameters()
            memory = {key: one.asnumpy() for key, one in parameters.items() if is_on_host(one)} | self.compressed
            with self.exclusive():  # graphs may wait for this, and nothing here for them
                arrays = self.begin_replacing(arrays)
                self.last_saved = None
                for key, array in memory.items():
                    array[...] = arrays[key]
                for key in parameters.keys() - memory.keys():
                    overwrite(parameters[key], arrays[key])

    def check_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Check a state without its columns, as `check_valid` does."""
        state.check(self.options, arrays)
        self._check_limiter(arrays)

    def _check_limiter(self, arrays: Mapping[str, np.ndarray]) -> None:
        if isinstance(self.limiter, RateLimiter) and "limiter.rule" in arrays and "limiter.counts" in arrays:
            self.limiter.check_state(arrays["limiter.rule"], arrays["limiter.counts"])
