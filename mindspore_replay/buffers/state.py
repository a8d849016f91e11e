"""The state of a Cell: its Parameters, for files, copies and enclosing Cells."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from ..store.faces.state import BufferState, Plain
from ..store.rows.store import STATE_VERSION
from .parameters import Held
from .relabelling import RelabelFromPython


class CellState(BufferState):
    """What the package asks of a buffer that is a Cell.

    Args:
        buffer (Buffer): The buffer.
    """

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer._front)
        self._buffer = buffer

    @property
    def runs_graphs(self) -> bool:  # type: ignore[override]
        """True if `sample` called from Python runs a compiled graph."""
        relabel = self._front.relabel
        return not self._buffer._direct or (isinstance(relabel, RelabelFromPython) and relabel.runs_graphs)

    def state_parameters(self) -> dict[str, Parameter]:
        """Return the Parameters of the state by name, including the limiter's."""
        return dict(nn.Cell.parameters_and_names(self._buffer))

    def state_arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, for a file."""
        arrays: dict[str, Held | Plain] = {key: Held(parameter) for key, parameter in self.state_parameters().items()}
        columns = self.spec.columns
        for i, (key, column) in zip(columns.compressed, self._buffer.compressed.items()):
            arrays[key] = Plain(column, columns.stored_dtypes[i])
        return arrays

    def completed(self, arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, np.ndarray]:
        """Return the state that a Cell holds with the version and the capacity, which `load_state_dict` needs."""
        if self._buffer.compressed:
            raise RuntimeError(
                f"For '{self.spec.cls_name}', the 'state_dict' of a Cell does not contain compressed columns: use "
                "state_dict() and load_state_dict(state) of the buffer itself, or save(buffer, path) and load(path)."
            )
        return {
            prefix + "version": np.array(STATE_VERSION),
            prefix + "capacity": np.array(self.spec.capacity),
            **arrays,
        }

    def load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Load the buffer's state from the ``state_dict`` of an enclosing Cell."""
        self.load(self.completed(arrays))
