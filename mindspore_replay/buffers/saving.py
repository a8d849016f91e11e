"""What every buffer does to save and load its state."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from mindspore import Parameter, nn

from ..arguments import Remembered
from ..ops.eager import wait_for_work
from ..store import state
from ..store.options import Options
from ..store.schema import type_name
from ..store.store import STATE_VERSION
from .state import overwrite

_Found = TypeVar("_Found")


def hold_locks(buffers: Iterable["SavedCell"]) -> contextlib.ExitStack:
    """Holds the locks of several buffers, which all who do so take in one order."""
    stack = contextlib.ExitStack()
    for lock in sorted((buffer._lock for buffer in buffers), key=id):
        stack.enter_context(lock)
    return stack


#: What MindSpore marks a Cell with, and all Cells in it, whose operators are to compute in another dtype.
_PRECISIONS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


class NamedCell(nn.Cell):
    """A Cell that keeps names and dtypes of its own: its checkpoint names its Parameters as it calls them itself, and
    mixed precision of its owner, by ``to_float`` or ``amp``, casts nothing in it. It is true even where its length is
    0.
    """

    def add_flags(self, **flags: Any) -> "NamedCell":
        """As ``nn.Cell.add_flags``, without the flags of mixed precision."""
        columns = getattr(self, "columns", None)
        for flag, dtype in _PRECISIONS.items():
            if flags.pop(flag, False) and columns is not None:
                columns.owner_dtype = dtype
        return super().add_flags(**flags)

    def _len_graph(self):
        raise RuntimeError("'len' of a buffer is for Python alone: in a graph its 'size' is a Tensor.")

    def __bool__(self) -> bool:
        return True

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """The Parameters, each of which has the name given here as long as it is looked at."""
        for key, parameter in super().parameters_and_names(name_prefix, expand):
            name, parameter.name = parameter.name, key
            try:
                yield key, parameter
            finally:
                if parameter.name == key:
                    parameter.name = name


class SavedCell(Remembered, NamedCell):
    """A Cell whose own Parameters are the state of a ring: ``head``, ``count``, ``serials`` and more."""

    capacity: int
    backend: str
    columns: Any
    head: Parameter
    limiter: Any
    _lock: RLock
    _options: Options
    #: What calls from Python do: a Store on the Parameters' own memory, or compiled graphs.
    _calls: Any
    #: Whether it is a Store.
    _direct: bool
    #: What `save` last wrote of the state, and where: changes since then are rows with larger serial numbers.
    _saved: Any = None

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The whole state as NumPy arrays: columns, cursors, serials, random state, what the buffer knows of each row,
        capacity and the layout's version.

        With arguments, as MindSpore calls it for a Cell that holds the buffer, it is ``nn.Cell.state_dict``.

        Returns:
            dict[str, numpy.ndarray]: Copies, by name. `load_state_dict` takes them, also into another buffer.
        """
        if args or kwargs:
            return super().state_dict(*args, **kwargs)
        with self._alone(columns=True) as arrays:
            copies = {key: array.copy() for key, array in arrays.items()}
        return {"version": np.array(STATE_VERSION), "capacity": np.array(self.capacity), **copies}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Takes over a state that `state_dict` gave. The same draws follow as would have there.

        Args:
            state_dict (Mapping[str, numpy.ndarray]): The state of a buffer with the same columns and capacity.

        Raises:
            ValueError: If version, keys, shapes, dtypes, cursors or weights do not fit; then nothing is changed.
        """
        if "version" not in state_dict:
            return super().load_state_dict(state_dict, *args, **kwargs)
        self._take_over(self._checked(state_dict))
        return None

    def _checked(self, state_dict: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays of a state that `load_state_dict` may take over."""
        others = {key: value for key, value in self._state().items() if key.startswith("limiter.")}
        expected = {key: (tuple(value.shape), type_name(value.dtype)) for key, value in others.items()}
        arrays = state.checked(self.columns, self._options, state_dict, STATE_VERSION, expected)
        self._check_limiter(arrays)
        return arrays

    def _take_over(self, arrays: Mapping[str, np.ndarray]) -> None:
        with self._alone():
            self._saved = None
            for key, parameter in self._state().items():
                overwrite(parameter, arrays[key])

    def check_valid(self) -> None:
        """Checks what must hold between any two operations.

        Raises:
            ValueError: If cursors or weights are outside of what they may be, or contradict each other.
        """
        self._look(self._check_state)

    def _look(self, read: Callable[[dict[str, np.ndarray]], _Found]) -> _Found:
        """What `read` makes of the state without columns and the capacity."""
        with self._alone() as arrays:
            return read({"capacity": np.array(self.capacity), **arrays})

    @contextlib.contextmanager
    def _alone(self, columns: bool = False) -> Iterator[dict[str, np.ndarray]]:
        """The state, with or without columns, while no call from Python changes it, nor on the CPU a native kernel.

        It comes as it lies in the host's memory; from elsewhere, as copies.
        """
        with self._lock:
            wait_for_work()
            parameters = self._state().items()
            arrays = {key: value.asnumpy() for key, value in parameters if columns or not key.startswith("column.")}
            with self._calls.kernels_kept_out() if self._direct else contextlib.nullcontext():
                yield arrays

    def _check_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        state.check(self._options, arrays)
        self._check_limiter(arrays)

    def _check_limiter(self, arrays: Mapping[str, np.ndarray]) -> None:
        if "limiter.rule" in arrays and "limiter.counts" in arrays:
            self.limiter.check_state(arrays["limiter.rule"], arrays["limiter.counts"])

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "limiter" and value is not None and not hasattr(value, "check_state"):
            raise TypeError(
                f"For '{type(self).__name__}', 'limiter' must be a RateLimiter or None, but got {type(value).__name__}."
            )
        super().__setattr__(name, value)
        if name == "limiter" and value is not None:
            # It comes after the buffer may have got its place in a Cell, and with it the names of its Parameters.
            prefix = self.head.name.removesuffix("head")
            for key, parameter in value.parameters_and_names("limiter"):
                parameter.name = prefix + key

    def _state(self) -> dict[str, Parameter]:
        return dict(super().parameters_and_names())

    def _row_keys(self) -> set[str]:
        """The keys of the state that hold one row for each slot."""
        return {key for key in self._state() if state.is_by_slot(key)}
