"""Copying, loading and checking the whole state of a buffer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from ..columns import Columns
from ..store.base.mixins import mixin
from ..store.faces.local import LocalBuffer, Plain
from ..store.rows.compressed import CompressedColumn
from ..store.rows.store import STATE_VERSION
from ..store.spec.registry import find
from ..store.spec.spec import BufferSpec
from .parameters import Held, count_load
from .relabelling import RelabelFromPython


@mixin
class Saving(LocalBuffer):
    """The methods that save, load and check the state.

    Only `state_dict`, `load_state_dict` and `check_valid` are for users. The others are for checkpoints, mixtures
    and monitors, which use only these methods of a buffer and of its base, its public methods, `spec`,
    `with_sample_size`, `options`, `layout` and `lock`.
    """

    columns: Columns
    spec: BufferSpec
    #: True if calls from Python run kernels, not graphs.
    _direct: bool
    head: Parameter
    #: The compressed columns, by their names in the state.
    compressed: dict[str, CompressedColumn]
    _find = staticmethod(find)  # type: ignore[assignment]

    def state_dict(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """Copy the whole state.

        The copy contains columns, cursors, serials, random state, the state of each row, capacity and layout version.

        With arguments, which MindSpore passes for an enclosing Cell, it is ``nn.Cell.state_dict``.

        Returns:
            dict[str, numpy.ndarray]: Copies, by name, for `load_state_dict` of this or another buffer.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> state = buffer.insert([[10, 11, 12]]).state_dict()
            >>> print(state["count"], state["column.0"])
            3 [10 11 12  0]
        """
        if args or kwargs:
            return nn.Cell.state_dict(self, *args, **kwargs)
        return super().state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: object, **kwargs: object) -> Any:
        """Load a state from `state_dict`. The same samples follow as after the copy.

        Args:
            state_dict (Mapping[str, numpy.ndarray]): The state of a buffer with the same columns and capacity.
            args (Any): More arguments of ``nn.Cell.load_state_dict``, for a state of another origin.
            kwargs (Any): As `args`.

        In a folder that has already issued handles, the rows get new serial numbers: a handle never names another row.

        Raises:
            ValueError: If version, keys, shapes, dtypes, cursors or weights do not fit. Nothing is changed then.
            RuntimeError: If it would replace the rows of a folder to which a process is attached.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> state = buffer.insert([[10, 11, 12]]).state_dict()
            >>> print(*buffer.sample())
            [11 12]
            >>> buffer.load_state_dict(state)
            >>> print(*buffer.sample())
            [11 12]
        """
        if "version" not in state_dict:
            return nn.Cell.load_state_dict(self, state_dict, *args, **kwargs)
        return super().load_state_dict(state_dict)

    def load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Load the buffer's state from the ``state_dict`` of an enclosing Cell."""
        if self.compressed:
            raise RuntimeError(
                f"For '{type(self).__name__}', the 'state_dict' of a Cell does not contain compressed columns: use "
                "state_dict() and load_state_dict(state) of the buffer itself, or save(buffer, path) and load(path)."
            )
        self.load_state_dict(self._completed(arrays))

    def _completed(self, arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, np.ndarray]:
        """Return the state that a Cell holds with the version and the capacity, which `load_state_dict` needs."""
        return {
            prefix + "version": np.array(STATE_VERSION),
            prefix + "capacity": np.array(self.spec.capacity),
            **arrays,
        }

    # For the rest of the package.

    @property
    def runs_graphs(self) -> bool:
        """True if `sample` called from Python runs a compiled graph."""
        relabel = self._front.relabel
        return not self._direct or (isinstance(relabel, RelabelFromPython) and relabel.runs_graphs)

    def state_parameters(self) -> dict[str, Parameter]:
        """Return the Parameters of the state by name, including the limiter's."""
        return dict(self.parameters_and_names())  # type: ignore[attr-defined]

    def state_arrays(self) -> dict[str, Held | Plain]:
        """Return the arrays of the state by name, for a file."""
        arrays: dict[str, Held | Plain] = {key: Held(parameter) for key, parameter in self.state_parameters().items()}
        for i, (key, column) in zip(self.columns.compressed, self.compressed.items()):
            arrays[key] = Plain(column, self.columns.stored_dtypes[i])
        return arrays

    def begin_replacing(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Declare that all rows are about to be replaced. The next incremental save then writes all rows."""
        count_load(self.head)
        return super().begin_replacing(arrays)
