"""What every buffer does to save and load its state."""

from collections.abc import Iterator, Mapping
from threading import RLock
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from ..ops.eager import wait_for_work
from .state import check_cursors, check_layout, overwrite

#: The layout that `state_dict` writes.
STATE_VERSION = 1


class NamedCell(nn.Cell):
    """A Cell whose checkpoint names its Parameters as it calls them itself, whatever its owner calls it."""

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """The Parameters, each of which has the name given here as long as it is looked at."""
        for key, parameter in super().parameters_and_names(name_prefix, expand):
            name, parameter.name = parameter.name, key
            try:
                yield key, parameter
            finally:
                if parameter.name == key:
                    parameter.name = name


class SavedCell(NamedCell):
    """A Cell whose own Parameters are the state of a ring: ``head``, ``count``, ``serials`` and more."""

    capacity: int
    _lock: RLock

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The whole state as NumPy arrays: columns, cursors, serials, random state, what the buffer knows of each row,
        capacity and the layout's version.

        With arguments, as MindSpore calls it for a Cell that holds the buffer, it is ``nn.Cell.state_dict``.

        Returns:
            dict[str, numpy.ndarray]: Copies, by name. `load_state_dict` takes them, also into another buffer.
        """
        if args or kwargs:
            return super().state_dict(*args, **kwargs)
        with self._lock:
            wait_for_work()
            state = {key: parameter.asnumpy().copy() for key, parameter in self._state().items()}
        return {"version": np.array(STATE_VERSION), "capacity": np.array(self.capacity), **state}

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
        name = type(self).__name__
        arrays = check_layout(name, state_dict, self._state())
        for key, value in (("version", STATE_VERSION), ("capacity", self.capacity)):
            if int(state_dict.get(key, 0)) != value:
                got = state_dict.get(key, "nothing")
                raise ValueError(f"For '{name}', '{key}' of 'state_dict' must be {value}, but got {got}.")
        self._check_state(arrays)
        return arrays

    def _take_over(self, arrays: Mapping[str, np.ndarray]) -> None:
        with self._lock:
            wait_for_work()
            for key, parameter in self._state().items():
                overwrite(parameter, arrays[key])

    def check_valid(self) -> None:
        """Checks what must hold between any two operations.

        Raises:
            ValueError: If cursors or weights are outside of what they may be, or contradict each other.
        """
        with self._lock:
            wait_for_work()
            state = {key: parameter.asnumpy().copy() for key, parameter in self._state().items() if "." not in key}
        self._check_state(state)

    def _check_state(self, state: Mapping[str, np.ndarray]) -> None:
        check_cursors(type(self).__name__, self.capacity, state)

    def _state(self) -> dict[str, Parameter]:
        return dict(super().parameters_and_names())
