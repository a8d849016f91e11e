from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

#: Leading axes, whether one number does for all rows, whether other numbers are cast, the shape and dtype of a row,
#: whether it is bfloat16, and the dtype of a Tensor.
_Input = tuple[int, bool, bool, tuple[int, ...], np.dtype[Any], bool, Any]

class Call:
    def __init__(
        self, kernel: int, size: int, params: int, ndims: int, shapes: int, dtypes: int, owned: Any, /
    ) -> None: ...
    def run(self) -> int: ...

class Guard:
    def __init__(
        self, lock: Any, wait: Callable[[], None], contexts: ModuleType, refuse: Callable[[], None], /
    ) -> None: ...
    def watched(self) -> bool: ...
    def watch(self) -> None: ...
    def close(self) -> None: ...

class Insert:
    def __init__(
        self,
        guard: Guard | None,
        kernels: tuple[tuple[Call, int, int, int, int, int], ...],
        names: tuple[str, ...] | None,
        fields: tuple[_Input, ...],
        priority: _Input,
        version: _Input,
        bits: tuple[int, int],
        num_envs: int,
        prioritized: bool,
        kind: type | None,
        address_of: Callable[[Any], int] | None,
        kinds: tuple[int, ...],
        /,
    ) -> None: ...
    def now(self, exp: Any, priority: Any, end: Any, final: Any, version: Any = None, /) -> bool: ...
    def store(self, fields: list[Any], priority: Any, ends: Any, version: Any, /) -> int: ...
    def rows(self, exp: Any, priority: Any, end: Any, final: Any, version: Any = None, /) -> int: ...

class Invocation:
    def __init__(
        self,
        guard: Guard | None,
        call: Call,
        inputs: tuple[tuple[int, _Input], ...],
        outputs: tuple[tuple[int, int, Output], ...],
        alone: bool,
        share: Callable[[np.ndarray], Any] | None,
        kind: type | None,
        address_of: Callable[[Any], int] | None,
        /,
    ) -> None: ...
    def now(self, *inputs: Any) -> Any: ...

class Items:
    def __init__(self, arenas: tuple[np.ndarray, ...], /) -> None: ...
    def padded(self, references: np.ndarray, most: int, /) -> tuple[np.ndarray, tuple[np.ndarray, ...]]: ...
    def packed(self, references: np.ndarray, /) -> tuple[np.ndarray, tuple[np.ndarray, ...]]: ...
    def place(self, column: int, references: np.ndarray, items: np.ndarray, /) -> None: ...

class Output:
    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> None: ...
    def __call__(self) -> np.ndarray: ...
    def kept(self) -> int: ...

def compress(codec: int, stored: np.ndarray, numbers: np.ndarray, rows: np.ndarray, /) -> int: ...
def decompress(codec: int, stored: np.ndarray, parts: tuple[tuple[np.ndarray, np.ndarray], ...], /) -> None: ...
