"""Samples that are drawn while the learner computes."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, NamedTuple

from ..buffers.base import Buffer
from ..buffers.mixed import MixedReplay
from ..store.checks import check_size


class PrefetchStatistics(NamedTuple):
    """Counts and times of a `Prefetch`, and the time it hides.

    Attributes:
        batches (int): Batches delivered.
        sampling (float): Seconds that drawing them took, in the thread.
        waited (float): Seconds that the caller waited for them.
        hidden (float): Seconds of drawing for which the caller did not wait: ``sampling - waited``, of each batch at
            least 0.
        share (float): ``hidden / sampling``, in [0, 1]; 0 before the first batch.
    """

    batches: int
    sampling: float
    waited: float
    hidden: float
    share: float


class Prefetch:
    r"""Draws samples ahead in a thread, so that drawing overlaps with the learner's step.

    The thread calls ``buffer.sample(...)`` from Python and keeps up to `depth` batches ready. Each is what that call
    would have given just then, with whole rows, and is delivered once, the oldest first; if nothing else changes the
    buffer, these are the batches that come without it, to the last bit. It takes every class of buffer, and stands
    outside of graphs. Of a `ShardedReplay` it hides the network.

    What it changes:

    - *Age.* A batch was drawn up to `depth` deliveries ago: rows inserted and priorities given since do not count in
      it. Use counts, `max_use`, beta and the random sequence move when a batch is drawn, not when it is delivered.
    - *Limiters.* A sample counts for the buffer's `limiter` when it is drawn: up to `depth` batches too early.
    - *Dead handles.* A row may be overwritten or removed between drawing and delivery. The batch holds a copy of it;
      `delete` and `update_priorities` skip its handle, and the latter counts it in what it returns.
    - *Checkpoints.* For the buffer, a batch is delivered once it is drawn. Those that were not delivered yet are in no
      saved state, and `close` drops them: a run that goes on from there skips up to `depth` batches of the sequence.

    MindSpore runs compiled graphs in one thread only (docs/threads.md). So where samples run graphs, nothing is drawn
    ahead, and each batch is drawn when it is asked for: those of the composite backend, of a `MixedReplay`, of a
    `ReservoirReplayBuffer` with weights, and with `HindsightRelabel`. `depth` is 0 then.

    It pays where drawing takes long beside the learner's step and a core is free. A small batch is drawn faster than
    threads take turns, and a sample in the learner's own graph needs no thread at all.

    Args:
        buffer (Union[ReplayBuffer, MixedReplay, ShardedReplay]): What to draw from.
        depth (int): Batches to keep ready. Default: ``2``.
        sample_arguments: Passed on to ``buffer.sample``.

    Attributes:
        buffer (Union[ReplayBuffer, MixedReplay, ShardedReplay]): What it draws from.
        depth (int): Batches that it keeps ready.

    Raises:
        TypeError: If `buffer` is no buffer, or `depth` no int.
        ValueError: If `depth` is not positive.

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import Prefetch, ReplayBuffer
        >>> buffer = ReplayBuffer(sample_size=4, capacity=100, shapes=[()], types=[ms.int32], names=["step"], seed=0)
        >>> buffer = buffer.insert([np.arange(100, dtype=np.int32)])
        >>> with Prefetch(buffer, depth=2, as_dict=True) as batches:
        ...     for _ in range(3):
        ...         print(batches.sample()["step"])
        [65 70 38 65]
        [78 14 77 26]
        [37 56 40 10]
        >>> print(batches.statistics().batches)
        3
    """

    def __init__(self, buffer: Any, depth: int = 2, **sample_arguments: Any) -> None:
        if not (isinstance(buffer, MixedReplay) or hasattr(buffer, "turn_to_sample")):
            raise TypeError(
                f"For 'Prefetch', 'buffer' must be a ReplayBuffer, MixedReplay or ShardedReplay, but got {buffer!r}."
            )
        self.buffer = buffer
        depth = check_size("Prefetch", "depth", depth)
        self.depth = 0 if _runs_graphs(buffer) else depth
        self._arguments = sample_arguments
        self._thread = ThreadPoolExecutor(1, "Prefetch")
        self._drawn: deque[Future[tuple[Any, float]]] = deque()
        self._lock = threading.Lock()
        self._failed = self._closed = False
        self._closing = threading.Event()
        self._batches, self._sampling, self._waited, self._hidden = 0, 0.0, 0.0, 0.0

    def sample(self) -> Any:
        """Return the oldest batch that is ready, or the next one when it is.

        Returns:
            Union[tuple[Tensor, ...], dict[str, Tensor]]: What ``buffer.sample`` gives for the arguments.

        Raises:
            RuntimeError: If it was closed.
            Exception: Whatever ``buffer.sample`` raises, in the thread with its traceback; the next call begins anew.
                Where it was a RuntimeError in the thread, as of too few rows, the call draws once more itself, and
                raises only what that raises.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("For 'Prefetch', 'sample' needs one that is open, but got one that was closed.")
            start = time.perf_counter()
            batch, sampling = self._next()
            self._draw_ahead()
            waited = time.perf_counter() - start
            self._batches += 1
            self._sampling += sampling
            self._waited += waited
            self._hidden += max(0.0, sampling - waited)
            return batch

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.sample()

    def _next(self) -> tuple[Any, float]:
        """Return the oldest batch, and the seconds that drawing it took."""
        if self._drawn:
            try:
                return self._drawn.popleft().result()
            except RuntimeError:  # of too few rows, which may be enough by now
                self._begin_anew()
            except BaseException:
                self._begin_anew()
                raise
        return self._draw()

    def _draw_ahead(self) -> None:
        while len(self._drawn) < self.depth:
            self._drawn.append(self._thread.submit(self._draw_in_thread))

    def _draw(self) -> tuple[Any, float]:
        start = time.perf_counter()
        batch = self.buffer.sample(**self._arguments)
        return batch, time.perf_counter() - start

    def _draw_in_thread(self) -> tuple[Any, float]:
        """After an error nothing more is drawn until the caller knows of it, so that no batch takes another's place."""
        if self._failed:
            raise RuntimeError("For 'Prefetch', a batch before this one could not be drawn.")
        try:
            return self._draw_in_turn()
        except BaseException:
            self._failed = True
            raise

    def _draw_in_turn(self) -> tuple[Any, float]:
        """Draws when the buffer's limiter allows it; `close` ends the waiting."""
        with self.buffer.turn_to_sample(self._closing):
            return self._draw()

    def _begin_anew(self) -> None:
        """Drop what was to come after a batch that failed: it has failed too, or is not begun."""
        wait(self._drawn)
        self._drawn.clear()
        self._failed = False

    def statistics(self) -> PrefetchStatistics:
        """Return what it has done so far.

        Drawing in a thread takes longer than alone, since threads of Python take turns, so compare whole runs with and
        without before relying on the share.

        Returns:
            PrefetchStatistics: Batches, seconds drawing, waited and hidden, and the share hidden.
        """
        with self._lock:
            share = self._hidden / self._sampling if self._sampling else 0.0
            return PrefetchStatistics(self._batches, self._sampling, self._waited, self._hidden, share)

    def close(self) -> None:
        """Wait for the thread and end it; batches that were not delivered are dropped. A second call does nothing."""
        self._closing.set()
        with self._lock:
            self._closed = True
            self._thread.shutdown(cancel_futures=True)
            self._drawn.clear()

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _runs_graphs(buffer: Any) -> bool:
    """Return True if a sample called from Python runs a compiled graph."""
    return buffer.runs_graphs if isinstance(buffer, Buffer) else isinstance(buffer, MixedReplay)
