from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

class Call:
    def __init__(
        self, kernel: int, size: int, params: int, ndims: int, shapes: int, dtypes: int, owned: Any, /
    ) -> None: ...
    def locate(self, at: int, items: Sequence[Any], /) -> None: ...
    def run(self) -> int: ...

class Guard:
    def __init__(self, lock: Any, wait: Callable[[], None], contexts: ModuleType, /) -> None: ...
    @property
    def watched(self) -> bool: ...
    def watch(self) -> None: ...
    def close(self) -> None: ...

class Insert:
    def __init__(
        self, guard: Guard | None, one: Call, many: Call, names: tuple[str, ...] | None,
        staged: tuple[np.ndarray, ...], kinds: str, places: tuple[int, int, int], bits: tuple[int, int], num_envs: int,
        /,
    ) -> None: ...  # fmt: skip
    def now(self, exp: Any, priority: Any, end: Any, final: Any, /) -> bool: ...

class Output:
    kept: int
    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> None: ...
    def __call__(self) -> np.ndarray: ...

class Give:
    def __init__(
        self, guard: Guard | None, call: Call, at: int, outputs: tuple[Output, ...],
        share: Callable[[np.ndarray], Any] | None, /,
    ) -> None: ...  # fmt: skip
    def now(self, skip: int, /) -> Any: ...

class Change:
    def __init__(
        self, guard: Guard | None, call: Call, count: np.ndarray, inputs: tuple[tuple[int, Any, Any], ...],
        kind: type | None, address_of: Callable[[Any], int] | None, /,
    ) -> None: ...  # fmt: skip
    def now(self, *vectors: Any) -> np.ndarray | int: ...

def compress(codec: int, stored: np.ndarray, numbers: np.ndarray, rows: np.ndarray, /) -> int: ...
def decompress(codec: int, stored: np.ndarray, parts: tuple[tuple[np.ndarray, np.ndarray], ...], /) -> None: ...
