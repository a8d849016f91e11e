"""Plain values as arrays in a file: JSON, with the NumPy arrays among them beside it."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .file_format import CODES

#: The array that holds the JSON; the arrays beside it are ``values/0``, ``values/1`` and so on.
NAME = "values"


def is_value(name: str) -> bool:
    """Return True if the array with this name belongs to plain values."""
    return name.partition("/")[0] == NAME


def encoded(**values: Any) -> dict[str, np.ndarray]:
    """Return the arrays that represent values by name. A TypeError names a value that cannot be written."""
    arrays: dict[str, np.ndarray] = {}
    named = {name: _encoded(value, name, arrays) for name, value in values.items()}
    text = json.dumps(named, separators=(",", ":"), allow_nan=False)
    return {NAME: np.frombuffer(text.encode(), np.uint8), **arrays}


def decoded(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the values given to `encoded`."""
    return {name: _decoded(value, arrays) for name, value in json.loads(arrays[NAME].tobytes()).items()}


def _encoded(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON; a type that JSON lacks becomes an object with one key, its kind."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in CODES:
        name = f"{NAME}/{len(arrays)}"
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
    ((kind, content),) = value.items()
    if kind in ("array", "scalar"):
        return arrays[content] if kind == "array" else arrays[content][()]
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(_decoded(content, arrays))
    return {key: _decoded(item, arrays) for key, item in content.items()}
