"""The rows of a shard."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..checkpoint.parts import Plain
from ..store import state
from ..store.options import Options
from ..store.schema import Schema
from ..store.store import Store


class Rows(Store):
    """A store that can be written to a file, with the lock that its callers hold.

    Args:
        schema (Schema): The columns.
        options (Options): How rows are stored and drawn.
    """

    #: Record of the last file written: only rows with larger serial numbers, and those updated since, differ from it.
    last_saved: Any = None

    def __init__(self, schema: Schema, options: Options) -> None:
        super().__init__(schema, options)
        self.lock = threading.RLock()

    @property
    def capacity(self) -> int:
        """Most rows stored."""
        return self.options.capacity

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def state_arrays(self) -> dict[str, Plain]:
        """Return the arrays, with their dtypes in files."""
        layout = state.layout(self.schema, self.options)
        return {name: Plain(array, layout[name][1]) for name, array in self.arrays.items()}

    def check_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Raise a ValueError if a state, apart from columns, is inconsistent."""
        state.check(self.options, arrays)
