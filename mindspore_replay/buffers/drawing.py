"""Drawing of rows: the common part of every `sample`, and `can_sample`."""

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from ..mindspore_api import share
from ..ops.eager import graph_body
from ..ops.primitives import named_in_graph
from ..store.base.kinds import Form
from ..store.base.mixins import mixin
from ..store.base.nested import Step
from ..store.faces.front import LocalFront
from ..store.spec.needs import need_priorities
from ..store.spec.options import Options
from ..store.spec.spec import BufferSpec
from .compile_time import compile_time
from .relabelling import RelabelFromPython


@mixin
class Drawing:
    """Methods that sample rows. Each public class defines its own `sample`."""

    spec: BufferSpec
    options: Options
    _front: LocalFront
    #: True if calls from Python run kernels, not graphs.
    _direct: bool

    def _drawn_graph(self, bounds, beta, as_dict, with_indices, longest=False):
        self._check_call("sample", self._known(beta), longest, as_dict, with_indices)
        batch = self._graph.sample(bounds, None if beta is None else self._as_dtype("beta", beta, ms.float64))
        batch = batch[1:] if self.has_handles and not with_indices else batch
        return named_in_graph(self._steps_of_names(with_indices), batch) if as_dict else batch

    @compile_time
    def _steps_of_names(self, with_indices: bool) -> tuple[Step, ...]:
        return self.spec.sample_names(True, with_indices).steps

    def _wrong_sample(self, misplaced: Sequence[Any], unknown: Mapping[str, Any]) -> TypeError:
        if "beta" in unknown:
            need_priorities(self.options, "sample(beta=...)")
        return super()._wrong_sample(misplaced, unknown)  # type: ignore[misc,no-any-return]

    def sample_packed(
        self, max_items: int | None = None, *, as_dict: bool = False, with_indices: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Sample rows of different lengths, concatenating their items instead of padding them. Only from Python.

        Arguments, results and errors are those of `AttachedBuffer.sample_packed`.

        Examples:
            >>> import numpy as np
            >>> from mindspore_replay import ReplayQueue
            >>> queue = ReplayQueue(2, 8, [(None,), ()], ["int32", "float32"], max_length=4, items=32)
            >>> queue = queue.insert([[np.arange(3, dtype="int32"), np.arange(2, dtype="int32")], [0.5, 1.0]])
            >>> print(*queue.sample_packed())
            [0 3 5] [0 1 2 0 1] [0.5 1. ]
        """
        return self._front.sample(None, None, as_dict, with_indices, Form(packed=True, max_items=max_items))

    # When a sample can be drawn.

    def _can_sample_graph(self):
        return self._graph.available() >= self._graph.rows_to_wait_for()

    @graph_body(_can_sample_graph)
    def can_sample(self) -> Tensor:
        """Return True if `sample_size` rows are eligible. Shape ``[]``, bool.

        Loops wait for it. With replacement `sample` alone needs one eligible row, and `can_sample` is also true when
        all rows that fit into the buffer, or the window, are eligible. In epochs it requires ``world * sample_size``
        rows, or one if the last batch is padded.

        A row is eligible if it was not removed and its weight is positive; in an `ElasticReplayBuffer`, only within the
        window. From Python, the `limiter` must also allow the sample now. A graph does not check it.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> print(buffer.insert([10]).can_sample(), buffer.insert([11]).can_sample())
            False True
        """
        return share(np.array(self._front.can_sample()))

    @property
    def runs_graphs(self) -> bool:
        """True if `sample` called from Python runs a compiled graph."""
        relabel = self._front.relabel
        return not self._direct or (isinstance(relabel, RelabelFromPython) and relabel.runs_graphs)
