"""Plain values and the states of random number generators, as arrays in a file."""

import json
import math
import random
from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from ..checkpoint.file_format import CODES, VALUES
from ..mindspore_api import global_seeds, set_global_seeds


def encoded(**values: object) -> dict[str, np.ndarray]:
    """Return the arrays that represent values by name. A TypeError names a value that cannot be written."""
    arrays: dict[str, np.ndarray] = {}
    named = {name: _encoded(value, name, arrays) for name, value in values.items()}
    text = json.dumps(named, separators=(",", ":"), allow_nan=False)
    return {VALUES: np.frombuffer(text.encode(), np.uint8), **arrays}


def decoded(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the values passed to `encoded`."""
    return {name: _decoded(value, arrays) for name, value in json.loads(arrays[VALUES].tobytes()).items()}


def _encoded(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON. A type that JSON lacks becomes an object with one key, its kind."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in CODES:
        name = f"{VALUES}/{len(arrays)}"
        arrays[name] = np.array(value, value.dtype.newbyteorder("="), order="C")
        return {"array" if isinstance(value, np.ndarray) else "scalar": name}
    if type(value) is float and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        items = [_encoded(item, f"{where}[{i}]", arrays) for i, item in enumerate(value)]
        return items if type(value) is list else {"tuple": items}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _encoded(item, f"{where}[{key!r}]", arrays) for key, item in value.items()}}
    got = f"a dict with the keys {list(value)}" if type(value) is dict else f"{type(value).__name__} {value!r}"[:200]
    raise TypeError(
        f"For 'TrainingCheckpoint', values must be None, numbers, strings, NumPy arrays of numbers, or lists, tuples "
        f"and dicts by strings of these, but got {got} in {where}. Save a Tensor as an array, by asnumpy()."
    )


def _decoded(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag in ("array", "scalar"):
        return arrays[content] if tag == "array" else arrays[content][()]
    if tag == "float":
        return float(content)
    if tag == "tuple":
        return tuple(_decoded(content, arrays))
    return {key: _decoded(item, arrays) for key, item in content.items()}


#: Generators that a program can pass by name.
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, ms.Generator)


class _Seeds:
    """MindSpore's global seed, and how many operators have taken a seed from it."""

    def getstate(self) -> dict[str, Any]:
        seed, taken = global_seeds()
        return {"seed": seed, "taken": [(*key, own) for key, own in taken.items()]}

    def setstate(self, state: dict[str, Any]) -> None:
        set_global_seeds(state["seed"], {(kernel, op_seed): seed for kernel, op_seed, seed in state["taken"]})


#: The generators of the process. Their names contain a space, so no keyword of a program can equal them.
_GLOBAL: dict[str, Any] = {
    "global numpy": np.random,
    "global python": random,
    "global mindspore": ms.default_generator,
    "global seeds": _Seeds(),
}


class RandomStates:
    """Generators whose states are read and written together.

    Args:
        generators (Mapping[str, Any]): The program's, by name. The global ones are added.
    """

    def __init__(self, generators: Mapping[str, Any]) -> None:
        self._generators = {**_GLOBAL, **generators}

    def read(self) -> dict[str, Any]:
        """Return the states, as plain values."""
        return {name: _read(generator) for name, generator in self._generators.items()}

    def check(self, states: Mapping[str, Any]) -> None:
        """Raise a ValueError unless these are valid states of these generators."""
        if states.keys() != self._generators.keys():
            own = [sorted(names - _GLOBAL.keys()) for names in (set(states), set(self._generators))]
            raise ValueError(
                f"For 'TrainingCheckpoint', the random number generators must be those that were saved, {own[0]}, but "
                f"got {own[1]}."
            )
        before = self.read()
        try:
            for name in self._generators:
                try:
                    self._write(name, states[name], before[name])
                except (AttributeError, LookupError, OverflowError, RuntimeError, TypeError, ValueError) as error:
                    raise ValueError(
                        f"For 'TrainingCheckpoint', {name!r} must be a generator of the kind that was saved, "
                        f"but got {type(self._generators[name]).__name__}: {error}"
                    ) from error
        finally:
            self.write(before)

    def write(self, states: Mapping[str, Any]) -> None:
        """Set the states of the generators. Call `check` first."""
        for name, state in states.items():
            self._write(name, state, state)

    def _write(self, name: str, state: Any, like: Any) -> None:
        if isinstance(like, np.ndarray) and (state.dtype, state.shape) != (like.dtype, like.shape):
            raise ValueError(f"its state is {state.dtype} {state.shape}, not {like.dtype} {like.shape}")
        _write(self._generators[name], state)


def _read(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, ms.Generator):
        return generator.get_state().asnumpy().copy()
    return generator.getstate() if hasattr(generator, "getstate") else generator.get_state(legacy=False)


def _write(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, ms.Generator):
        generator.set_state(Tensor(state))
    elif hasattr(generator, "setstate"):
        generator.setstate(state)
    else:
        generator.set_state(state)
