"""Drawing of rows: the common part of every `sample`, and `can_sample`."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor

from ..ops.eager import graph_body, wait_for_work
from ..ops.primitives import named_in_graph
from ..store.checks import need_handles, need_priorities, too_few_rows
from ..store.inputs import as_beta
from ..store.library import TOO_FEW_ROWS, KernelError
from ..store.mixins import mixin
from ..store.naming import named, sample_names
from .arguments import Arguments
from .compile_time import compile_time, stand_in


@mixin
class Drawing(Arguments):
    """The methods that draw rows. Each public class has a `sample` with its own arguments."""

    def _drawn_graph(self, bounds, beta, as_dict, with_indices):
        self._check_sample(self._known(beta), as_dict, with_indices)
        batch = self._graph.sample(bounds, None if beta is None else self._as_dtype("beta", beta, ms.float64))
        batch = batch[1:] if self.has_handles and not with_indices else batch
        return named_in_graph(self._names_in_graph(with_indices), batch) if as_dict else batch

    @compile_time
    def _check_sample(self, beta: Any, as_dict: bool, with_indices: bool) -> bool:
        as_beta(self.options, stand_in(beta))
        self._checked_names(as_dict, with_indices)
        return True

    @compile_time
    def _names_in_graph(self, with_indices: bool) -> tuple[str, ...]:
        return self._checked_names(True, with_indices)

    def _checked_names(self, as_dict: bool, with_indices: bool) -> tuple[str, ...]:
        """Return the names of a sample's parts, if it is to be a dict; raise an error if it cannot be."""
        if with_indices:
            need_handles(self.options, "sample(with_indices=True)")
        if not as_dict:
            return ()
        name, has_names = self.options.cls_name, self.names is not None
        return sample_names(name, has_names, *self.spec.names, with_indices)

    def _wrong_sample(self, misplaced: Sequence[Any], unknown: Mapping[str, Any]) -> TypeError:
        if "beta" in unknown:
            need_priorities(self.options, "sample(beta=...)")
        return super()._wrong_sample(misplaced, unknown)  # type: ignore[misc,no-any-return]

    def _drawn(self, bounds: tuple[int, int] | None, beta: Any, as_dict: bool, with_indices: bool) -> Any:
        """Draw a sample from a range of logical rows, with the beta of this call; ``None`` for the defaults."""
        given_beta = None if beta is None else as_beta(self.options, beta)
        missing = with_indices and not self.has_handles
        names = self._checked_names(as_dict, with_indices) if as_dict or missing else ()
        if bounds is None and beta is None and self.limiter is None and self._relabel is None:
            skip = self.has_handles and not with_indices
            batch = self._calls.try_sample(skip)
            if type(batch) is tuple:
                return named(names, batch) if as_dict else batch
        batch = self._draw(bounds, given_beta)
        if self.has_handles and not with_indices:
            batch = batch[1:]
        return named(names, batch) if as_dict else batch

    def _draw(self, bounds: tuple[int, int] | None, beta: float | None) -> tuple[Tensor, ...]:
        with self._lock if self.limiter is None else self._turn():
            wait_for_work()
            if not self._direct and self._calls.checks_first:
                self._need_rows(bounds)
            try:
                batch = self._calls.sample(bounds, beta)
            except KernelError as error:
                if error.status != TOO_FEW_ROWS:
                    raise
                raise self._too_few(self._calls.eligible(bounds)) from None
        return batch if self._relabel is None else self._relabel(batch, self.has_handles + self.prioritized)

    def _need_rows(self, bounds: tuple[int, int] | None) -> None:
        rows = self._calls.eligible(bounds)
        if rows < self._min_rows_to_sample:
            raise self._too_few(rows)

    def _too_few(self, rows: int) -> RuntimeError:
        stored, pending = self._calls.count(), self._calls.pending_note()
        return too_few_rows(self.options.cls_name, self.sample_size, self.weighted, rows, stored, pending)

    # When a sample can be drawn.

    def _can_sample_graph(self):
        return self._graph.eligible() >= self._min_rows_to_sample

    @graph_body(_can_sample_graph)
    def can_sample(self) -> Tensor:
        """Return True if enough eligible rows are stored, so that `sample` succeeds. Shape ``[]``, bool.

        That is `sample_size` of them; in epochs one if the last batch is padded, else as many as all learners take.

        A row is eligible if it was not removed and has a weight above zero; in an `ElasticReplayBuffer`, only in its
        window. From Python, the `limiter` must also allow the sample now; a graph does not check it.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> print(buffer.insert([10]).can_sample(), buffer.insert([11]).can_sample())
            False True
        """
        enough = self.eligible() >= self._min_rows_to_sample
        return Tensor(enough and (self.limiter is None or self.limiter.lets_sample(self.sample_size)))

    def eligible(self) -> int:
        """Return the number of rows at which a sample may start now; only from Python.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], weighted=True, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(buffer.delete([1]), buffer.size(), buffer.eligible())
            1 3 2
        """
        with self._lock:
            wait_for_work()
            return int(self._calls.eligible())

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with self.limiter.sampling(self.sample_size), self._lock:
            yield

    def turn_to_sample(self, stop: threading.Event | None) -> contextlib.AbstractContextManager[None]:
        """Wait until the limiter allows a sample, which the block may draw; a RuntimeError soon after `stop` is set."""
        return self.limiter.sampling_unless(stop, self.sample_size) if self._waits else contextlib.nullcontext()

    @property
    def _waits(self) -> bool:
        """True if calls from Python wait for the limiter."""
        return self.limiter is not None

    @property
    def runs_graphs(self) -> bool:
        """True if `sample` called from Python runs a compiled graph."""
        return not self._direct or (self._relabel is not None and self._relabel.runs_graphs)
