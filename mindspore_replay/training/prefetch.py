"""Samples drawn while the learner computes."""

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
    """Counts and times of a `Prefetch`.

    Attributes:
        batches (int): Batches delivered.
        sampling (float): Seconds spent drawing them, in the thread.
        waited (float): Seconds that the caller waited for them.
        hidden (float): Seconds of drawing for which the caller did not wait: ``sampling - waited``, at least 0 for each
            batch.
        share (float): ``hidden / sampling``, in [0, 1]; 0 before the first batch.
    """

    batches: int
    sampling: float
    waited: float
    hidden: float
    share: float


class Prefetch:
    r"""Draws samples ahead in a thread, so that drawing overlaps with the learner's step.

    The thread calls ``buffer.sample(...)`` from Python and keeps up to `depth` batches ready. Each is the result of
    that call at the time it was drawn, and is delivered once, the oldest first. If nothing else changes the buffer, the
    batches are bit for bit those without prefetching. It works with every buffer class, outside of graphs. With a
    `ShardedReplay` it hides the time of the network.

    Differences from calling `sample`:

    - *Age.* A batch was drawn up to `depth` deliveries ago, without the rows inserted and priorities set since then.
      Use counts, `max_use`, beta and the random sequence advance when a batch is drawn, not when it is delivered.
    - *Limiters.* A sample counts for the buffer's `limiter` when it is drawn: up to `depth` batches too early.
    - *Invalid handles.* A row may be overwritten or removed between drawing and delivery. The batch holds a copy of it;
      `delete` and `update_priorities` skip its handle, and the latter counts it in its result.
    - *Checkpoints.* For the buffer, a batch counts as delivered once it is drawn. Undelivered batches are not in any
      saved state, and `close` drops them: a run resumed from there skips up to `depth` batches of the sequence.

    MindSpore runs compiled graphs in one thread only (docs/threads.md). If samples run graphs, nothing is drawn ahead,
    `depth` is 0, and each batch is drawn on request: with the composite backend, a `MixedReplay`, a
    `ReservoirReplayBuffer` with weights, and `HindsightRelabel`.

    It helps if drawing takes long compared to the learner's step and a core is free. A small batch is drawn faster than
    threads switch, and a sample in the learner's own graph needs no thread.

    Args:
        buffer (Union[ReplayBuffer, MixedReplay, ShardedReplay]): The buffer to draw from.
        depth (int): Batches to keep ready. Default: ``2``.
        sample_arguments (Any): Arguments for ``buffer.sample``.

    Attributes:
        buffer (Union[ReplayBuffer, MixedReplay, ShardedReplay]): The buffer to draw from.
        depth (int): Batches to keep ready; 0 if none are drawn ahead.

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
        """Return the oldest batch, waiting until it is drawn.

        Returns:
            Union[tuple[Tensor, ...], dict[str, Tensor]]: The result of ``buffer.sample`` with the arguments.

        Raises:
            RuntimeError: If it was closed.
            Exception: Any error of ``buffer.sample``; one in the thread keeps its traceback. The next call starts
                again. After a RuntimeError in the thread, for example for too few rows, the call draws once more
                itself, and raises only the error of that.

        Examples:
            >>> from mindspore_replay import Prefetch, ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> with Prefetch(buffer.insert([[10, 11, 12]])) as batches:
            ...     print(*batches.sample())
            [11 12]
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
        """Return the oldest batch, and the seconds spent drawing it."""
        if self._drawn:
            try:
                return self._drawn.popleft().result()
            except RuntimeError:  # too few rows, for example; there may be enough by now
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
        """Draw a batch; after an error, draw nothing until the caller has seen it, so that batches stay in order."""
        if self._failed:
            raise RuntimeError("For 'Prefetch', a batch before this one could not be drawn.")
        try:
            return self._draw_in_turn()
        except BaseException:
            self._failed = True
            raise

    def _draw_in_turn(self) -> tuple[Any, float]:
        """Draw a batch when the buffer's limiter allows it; `close` ends the wait."""
        with self.buffer.turn_to_sample(self._closing):
            return self._draw()

    def _begin_anew(self) -> None:
        """Drop the batches after one that failed: they have failed too, or have not started."""
        wait(self._drawn)
        self._drawn.clear()
        self._failed = False

    def statistics(self) -> PrefetchStatistics:
        """Return counts and times so far.

        Drawing takes longer in a thread than alone, since Python threads take turns. Compare whole runs with and
        without prefetching before you rely on the share.

        Returns:
            PrefetchStatistics: Batches, seconds spent drawing, waited and hidden, and the share hidden.

        Examples:
            >>> from mindspore_replay import Prefetch, ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> with Prefetch(buffer.insert([[10, 11, 12]])) as batches:
            ...     _ = batches.sample()
            ...     print(batches.statistics().batches)
            1
        """
        with self._lock:
            share = self._hidden / self._sampling if self._sampling else 0.0
            return PrefetchStatistics(self._batches, self._sampling, self._waited, self._hidden, share)

    def close(self) -> None:
        """Wait for the thread and end it; undelivered batches are dropped. A second call does nothing.

        Examples:
            >>> from mindspore_replay import Prefetch, ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> batches = Prefetch(buffer.insert([[10, 11, 12]]))
            >>> _ = batches.sample()
            >>> batches.close()
        """
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
    """Return True if calls of `sample` from Python run a compiled graph."""
    return buffer.runs_graphs if isinstance(buffer, Buffer) else isinstance(buffer, MixedReplay)
