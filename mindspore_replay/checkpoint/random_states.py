"""The states of random number generators: those of the process, and those of the program."""

import random
from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from ..mindspore_api import global_seeds, set_global_seeds

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
                except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
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
