"""The state of a buffer as named arrays: copied, checked, loaded, and written to files."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..kernels import state
from ..kernels.locks import Event, Held, Locks, first
from ..rows.store import STATE_VERSION
from ..waits.limiter import RateLimiter
from .front import LocalFront


@dataclass(frozen=True)
class Plain:
    """An array of a state, in host memory.

    Args:
        array (Any): The array, or a `CompressedColumn`.
        dtype (str): Name of its dtype in files.
    """

    array: Any
    dtype: str

    #: Whether `asnumpy` is the memory of the state itself.
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


class BufferState:
    """What the package asks of a buffer beside its public methods: for files, copies, mixtures and monitors.

    Args:
        front (LocalFront): The calls of the buffer.
    """

    #: True if `sample` called from Python runs a compiled graph.
    runs_graphs = False

    def __init__(self, front: LocalFront) -> None:
        self._front, self.spec = front, front.spec
        self.public_class, self.constructor = front.spec.public_class, front.spec.constructor

    def state_arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, the limiter's too."""
        calls, limiter = self._front.calls, self._front.limiter
        limits = limiter.arrays() if isinstance(limiter, RateLimiter) else {}
        layout = state.layout(self.spec.columns, self.spec.options)
        arrays = {key: Plain(array, layout[key][1]) for key, array in {**calls.arrays, **calls.compressed}.items()}
        return arrays | {f"limiter.{key}": Plain(array, array.dtype.name) for key, array in limits.items()}

    def turn_to_sample(self, stop: Event | None) -> Held:
        """Wait until the limiter allows a sample, which the block may draw. Raise a RuntimeError once `stop` is set."""
        return self._front.turn_to_sample(stop)

    # Blocks that keep others out.

    def exclusive(self) -> Held:
        """Keep calls from Python, and on the CPU native kernels in graphs, from the state during the block."""
        front = self._front
        return Locks(front.lock, first(front.ready), front.calls.kernels_kept_out())

    def sole_use(self, arrays: Mapping[str, np.ndarray]) -> Held:
        """Prevent attaching during the block, for a state with other rows. Raise a RuntimeError if one is attached."""
        return self._front.calls.sole_use(arrays)

    def snapshot(self, columns: bool = False) -> contextlib.AbstractContextManager[dict[str, Any]]:
        """Return the capacity and the state, with or without columns. Nothing changes it in the block.

        Arrays are views of host memory if the state is there, else copies. A compressed column is a `CompressedColumn`.
        The columns that say where the items of rows are always come.
        """
        front, arrays = self._front, {"capacity": np.array(self.spec.capacity)}
        references = {f"column.{group.name}" for group in self.spec.options.length_groups}

        def read() -> None:
            front.ready()
            for key, one in self.state_arrays().items():
                if columns or key in references or not key.startswith(state.OF_ROWS):
                    arrays[key] = one.asnumpy()

        # Reading may wait for graphs, which may wait for the kernels.
        return Locks(front.lock, first(read), front.calls.kernels_kept_out(), first(lambda: arrays))

    # Loading and checking.

    def checked_state(self, state_dict: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Check a state, with the errors of `load_state_dict`, and return the arrays for `load_checked`."""
        stored = self.state_arrays().items()
        others = {key: (one.shape, one.dtype) for key, one in stored if key.startswith("limiter.")}
        arrays = state.checked(self.spec.columns, self.spec.options, state_dict, STATE_VERSION, others)
        self._check_limiter(arrays)
        return arrays

    def load(self, state_dict: Mapping[str, Any]) -> None:
        """Check and load a state."""
        arrays = self.checked_state(state_dict)
        with self.sole_use(arrays):
            self.load_checked(arrays)

    def load_checked(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy checked arrays into the state. The caller has `sole_use` for them."""
        with self._front.lock:
            self._front.ready()
            stored = self.state_arrays()
            memory = {key: one.asnumpy() for key, one in stored.items() if one.in_memory}
            with self.exclusive():  # graphs may wait for this, and nothing here for them
                arrays = self.begin_replacing(arrays)
                for key, array in memory.items():
                    array[...] = arrays[key]
                for key in stored.keys() - memory.keys():
                    stored[key].overwrite(arrays[key])

    def begin_replacing(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Declare that all rows are about to be replaced, and return the state to write, without its columns.

        The caller has `sole_use` for the state, and keeps others out. If the process dies before it lets them in, a
        buffer in a folder is empty. There a serial number is never used twice.
        """
        return self._front.calls.begin_replacing(arrays)

    def check_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Check a state without its columns, as `check_valid` does."""
        state.check(self.spec.options, arrays)
        self._check_limiter(arrays)

    def _check_limiter(self, arrays: Mapping[str, np.ndarray]) -> None:
        limiter = self._front.limiter
        if isinstance(limiter, RateLimiter) and "limiter.rule" in arrays and "limiter.counts" in arrays:
            limiter.check_state(arrays["limiter.rule"], arrays["limiter.counts"])
