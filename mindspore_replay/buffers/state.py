"""The state of a Cell: its Parameters, for files, copies and enclosing Cells."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from mindspore import Parameter

from ..store.faces.front import LocalFront
from ..store.faces.state import BufferState, Plain
from ..store.rows.compressed import CompressedColumn
from ..store.rows.store import STATE_VERSION
from .parameters import Held, count_load
from .relabelling import RelabelFromPython


class CellState(BufferState):
    """What the package asks of a buffer that is a Cell.

    Args:
        front (LocalFront): Its calls.
        parameters (dict[str, Parameter]): Its Parameters by name, the limiter's too.
        compressed (Mapping[str, CompressedColumn]): Its compressed columns, by their names in the state.
        runs_kernels (bool): Whether calls from Python run kernels, not graphs.
    """

    def __init__(
        self,
        front: LocalFront,
        parameters: dict[str, Parameter],
        compressed: Mapping[str, CompressedColumn],
        runs_kernels: bool,
    ) -> None:
        super().__init__(front)
        self._parameters, self._compressed, self._runs_kernels = parameters, compressed, runs_kernels

    @property
    def runs_graphs(self) -> bool:  # type: ignore[override]
        """True if `sample` called from Python runs a compiled graph."""
        relabel = self._front.relabel
        return not self._runs_kernels or (isinstance(relabel, RelabelFromPython) and relabel.runs_graphs)

    def state_parameters(self) -> dict[str, Parameter]:
        """Return the Parameters of the state by name, including the limiter's."""
        return self._parameters

    def state_arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, for a file."""
        arrays: dict[str, Held | Plain] = {key: Held(parameter) for key, parameter in self._parameters.items()}
        columns = self.spec.columns
        for i, (key, column) in zip(columns.compressed, self._compressed.items()):
            arrays[key] = Plain(column, columns.stored_dtypes[i])
        return arrays

    def begin_replacing(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Declare that all rows are about to be replaced. The next incremental save then writes all rows."""
        count_load(self._parameters["head"])
        return super().begin_replacing(arrays)

    def completed(self, arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, np.ndarray]:
        """Return the state that a Cell holds with the version and the capacity, which `load_state_dict` needs."""
        if self._compressed:
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
