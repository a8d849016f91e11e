"""Samples drawn while the learner computes."""

import atexit
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from ..store.base.checks import check_size
from ..store.base.gone import left_by_forks
from ..store.base.mixins import Closing
from ..store.kernels.locks import Event, Signals

#: Seconds after which a call that waits checks whether the interpreter is about to end.
_LONGEST_WAIT = 0.5


class PrefetchStatistics(NamedTuple):
    """Counts and times of a `Prefetch`.

    Attributes:
        batches (int): Batches delivered.
        sampling (float): Seconds spent drawing them, in the thread.
        waited (float): Seconds that the caller waited for them.
        hidden (float): Seconds of drawing for which the caller did not wait: ``sampling - waited``, at least 0 for each
            batch.
        share (float): ``hidden / sampling``, in [0, 1], or 0 before the first batch.
    """

    batches: int
    sampling: float
    waited: float
    hidden: float
    share: float


class _Ending(Event):
    """An event that ends waits: once it is set, or the main thread has ended and the interpreter is about to end."""

    def is_set(self) -> bool:
        return super().is_set() or not threading.main_thread().is_alive()


class _Drawn(NamedTuple):
    """A batch, or the error in its place, and the seconds spent drawing it."""

    batch: Any
    seconds: float
    error: BaseException | None = None


class _Drawing:
    """Draws batches, some of them ahead in a thread.

    It does not refer to the `Prefetch`, so that the thread does not keep that alive.

    Args:
        buffer (Union[ReplayBuffer, MixedReplay, ShardedReplay]): The buffer to draw from.
        arguments (Mapping): Arguments of its `sample`.
        depth (int): Batches to draw ahead.

    Attributes:
        ending (_Ending): Set when it is closed.
    """

    def __init__(self, buffer: Any, arguments: Mapping[str, Any], depth: int) -> None:
        self.ending = _Ending()
        self._buffer, self._arguments, self._depth = buffer, arguments, depth
        self._lock, self._signals = threading.Lock(), Signals()
        self._ready: deque[_Drawn] = deque()
        #: Whether the thread draws. After an error it pauses until the caller has seen that, so batches stay in order.
        self._going = False
        self._thread: threading.Thread | None = None
        left_by_forks(self)

    def leave(self) -> None:
        """Draw nothing ahead: this process was forked from that with the thread."""
        self._lock, self._signals = threading.Lock(), Signals()
        self._going, self._depth, self._thread = False, 0, None
        self._ready.clear()

    def oldest(self) -> _Drawn:
        """Take the oldest batch, waiting until it is drawn. Draw one here if the thread draws none."""
        while True:
            seen = self._signals.seen()
            if not self._going or self._ready or self.ending.is_set():
                break
            self._signals.wait(seen, _LONGEST_WAIT)
        draw = self._ready.popleft() if self._ready else None
        self._signals.send()
        self.check_open()
        if draw is None or isinstance(draw.error, RuntimeError):  # too few rows, for example; perhaps enough by now
            draw = self._draw()
        if draw.error is not None:
            self.check_open()
            raise draw.error
        self._go_on()
        return draw

    def check_open(self) -> None:
        """Raise a RuntimeError if the `Prefetch` was closed."""
        if self.ending.is_set():
            raise RuntimeError("For 'Prefetch', 'sample' needs an open Prefetch, but this one was closed.")

    def _draw(self) -> _Drawn:
        """Draw a batch in this thread when the buffer's limiters allow it. `close` ends the wait."""
        start = time.perf_counter()
        try:
            with self._buffer.state.turn_to_sample(self.ending):
                start = time.perf_counter()
                return _Drawn(self._buffer.sample(**self._arguments), time.perf_counter() - start)
        except BaseException as error:
            return _Drawn(None, time.perf_counter() - start, error)

    def _go_on(self) -> None:
        """Let the thread draw. It begins with the first call."""
        with self._lock:
            if self._thread is None and self._depth and not self.ending.is_set():
                thread = threading.Thread(target=self._run, name="Prefetch", daemon=True)
                thread.start()
                self._thread = thread  # now that it runs
                atexit.register(self.close)
            self._going = self._thread is not None
        self._signals.send()

    def _run(self) -> None:
        """Draw batches as soon as there is room for one, until it is closed."""
        while True:
            seen = self._signals.seen()
            if self.ending.is_set():
                return
            if not self._has_work():
                self._signals.wait(seen, math.inf)
                continue
            draw = self._draw()
            with self._lock:
                self._ready.append(draw)
                self._going = draw.error is None
            del draw  # its memory is the caller's
            self._signals.send()

    def _has_work(self) -> bool:
        return self._going and len(self._ready) < self._depth

    def end(self) -> None:
        """Tell the thread and all waits to end."""
        self.ending.set()
        self._signals.send()
        atexit.unregister(self.close)

    def close(self) -> None:
        """End the thread, wait for it, and drop its batches."""
        self.end()
        if self._thread is not None:
            self._thread.join()
        self._ready.clear()


class Prefetch(Closing):
    r"""Draws samples ahead in a thread, while the learner computes.

    Use it where a core is free and drawing takes long compared to the learner's step. A small batch is drawn faster
    than threads switch, and a sample in the learner's graph needs no thread. With a `ShardedReplay` it hides the
    network's latency.

    The thread calls ``buffer.sample(...)`` from Python, keeps up to `depth` batches ready, and delivers each once, the
    oldest first. If nothing else changes the buffer, the batches are bit for bit those of `sample`. Otherwise they
    differ:

    - *Age.* A batch is up to `depth` deliveries old: it lacks rows inserted and priorities set since. Use counts,
      `max_use`, beta and the random sequence advance when a batch is drawn, not when it is delivered.
    - *Limiters.* A sample counts for the buffer's `limiter` when it is drawn, up to `depth` batches early.
    - *Invalid handles.* A row may be overwritten or removed before its copy is delivered. `delete` and
      `update_priorities` then skip its handle.
    - *Checkpoints.* Undelivered batches are not saved, and `close` drops them: a resumed run skips up to `depth`
      batches.

    If samples run compiled graphs, which MindSpore allows in one thread only (docs/threads.md), each batch is drawn on
    request and `depth` is 0. These are: the composite backend, a `ReservoirReplayBuffer` with weights,
    `HindsightRelabel` with a function of MindSpore's operators, and a `MixedReplay` of such a buffer.


    Args:
        buffer (Union[ReplayBuffer, MixedReplay, ShardedReplay]): The buffer to draw from, also one of
            `mindspore_replay.host`.
        depth (int): Batches to keep ready. Default: ``2``.
        sample_arguments (Any): Arguments for ``buffer.sample``.

    Attributes:
        buffer (Union[ReplayBuffer, MixedReplay, ShardedReplay]): The buffer to draw from.
        depth (int): Batches to keep ready, or 0 if none are drawn ahead.

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
        if not hasattr(getattr(buffer, "state", None), "turn_to_sample"):
            raise TypeError(
                f"For 'Prefetch', 'buffer' must be a ReplayBuffer, MixedReplay or ShardedReplay, but got {buffer!r}."
            )
        self.buffer = buffer
        depth = check_size("Prefetch", "depth", depth)
        self.depth = 0 if getattr(buffer.state, "runs_graphs", False) else depth
        self._drawing = _Drawing(buffer, sample_arguments, self.depth)
        weakref.finalize(self, self._drawing.end).atexit = False  # at exit `_Ending` ends it
        self._turn = threading.Lock()  # held by a caller of `sample`; `close` takes no lock
        self._batches, self._sampling, self._waited, self._hidden = 0, 0.0, 0.0, 0.0

    def sample(self, *_misplaced: NoReturn, **_unknown: NoReturn) -> Any:
        """Return the oldest batch, waiting for it if necessary. Give the arguments of samples to the constructor.

        Returns:
            Union[tuple[Tensor, ...], dict[str, Tensor]]: The result of ``buffer.sample`` with the arguments.

        Raises:
            RuntimeError: If this object is closed.
            Exception: Any error of ``buffer.sample``, with its traceback in the thread. The next call starts again.
                After a RuntimeError in the thread, for example for too few rows, the call samples once more itself and
                raises only that error.

        Examples:
            >>> from mindspore_replay import Prefetch, ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> with Prefetch(buffer.insert([[10, 11, 12]])) as batches:
            ...     print(*batches.sample())
            [11 12]
        """
        if _misplaced or _unknown:
            passed = [*map(repr, _misplaced), *map("{}=...".format, _unknown)]
            raise TypeError(
                f"For 'Prefetch', 'sample' takes no arguments, but got sample({', '.join(passed)}): give them to the "
                "constructor, as Prefetch(buffer, as_dict=True), and for n rows Prefetch(buffer.with_sample_size(n))."
            )
        with self._turn:
            self._drawing.check_open()
            start = time.perf_counter()
            draw = self._drawing.oldest()
            waited = time.perf_counter() - start
            self._batches += 1
            self._sampling += draw.seconds
            self._waited += waited
            self._hidden += max(0.0, draw.seconds - waited)
            return draw.batch

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.sample()

    def statistics(self) -> PrefetchStatistics:
        """Return counts and times so far.

        Compare whole runs with and without prefetching before you rely on the share: Python threads take turns, so
        drawing takes longer in a thread than alone.

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
        share = self._hidden / self._sampling if self._sampling else 0.0
        return PrefetchStatistics(self._batches, self._sampling, self._waited, self._hidden, share)

    def close(self) -> None:
        """End the thread and drop undelivered batches. A `sample` waiting in another thread raises a RuntimeError.

        A second call does nothing. The end of the program closes it too.

        Examples:
            >>> from mindspore_replay import Prefetch, ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> batches = Prefetch(buffer.insert([[10, 11, 12]]))
            >>> _ = batches.sample()
            >>> batches.close()
        """
        self._drawing.close()
