"""Rows that know their episode, for buffers whose samples reach over several rows."""

import itertools
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..arguments import positional_arguments
from ..columns import numpy_type
from ..mindspore_api import share
from ..ops import windows
from ..ops.eager import graph_body, wait_for_work
from ..store.inputs import as_flags, check_flags
from ..store.windows import END, FINAL, HANDLE, WEIGHT, Output, SamplePlan, WindowRule
from .layout import SampleLayout, past_of
from .limits import LimitedCell

_numbers = itertools.count()


class TimedCell(LimitedCell):
    """A ring of rows of which each knows its step and where its episode ends, if a view or the class needs that.

    Such a buffer is `weighted`. The weight of a row is zero while a sample cannot start there: a sample would reach
    beyond the rows that are stored, or beyond its episode, or hold a deleted row.

    Attributes:
        steps (Parameter): Index of the row in each slot in its episode, from 0. Shape ``[C]``, int64.
        flags (Parameter): Of the row in each slot: 1 for the last of its episode, 2 for one that holds only the
            observation after its episode, 4 for one that was deleted or went stale. Shape ``[C]``, uint8.
    """

    num_envs: int
    sample_size: int
    replace: bool
    ordered: bool
    _width: int
    #: Gives rewards for other goals to what a sample gives; ``None`` where it gives no other goals.
    _finish: Any = None
    #: Whether rows know their episode.
    timed = False
    #: Whether samples are drawn by priority.
    prioritized = False

    def _layout_of(self, views: Sequence[Any]) -> SampleLayout | None:
        """What a sample consists of; ``None`` for rows as they are stored."""
        if not views:
            return None
        return self._shaped(SampleLayout(type(self).__name__, self.columns), views)

    def _shaped(self, layout: SampleLayout, views: Sequence[Any]) -> SampleLayout:
        for view in views:
            if isinstance(view, type) or not hasattr(view, "apply_to"):
                raise TypeError(
                    f"For '{type(self).__name__}', 'views' must hold views such as NStep, but got {view!r}."
                )
            view.apply_to(layout)
        return layout

    def _window_rule(self, layout: SampleLayout, past: int) -> WindowRule:
        """Which rows a sample may start at."""
        return WindowRule(past, 2 if layout.needs_next else 1, 1, True, self.num_envs, 0)

    def _bookkeeping(self, layout: SampleLayout) -> dict[str, Output]:
        """What a sample gives before its columns, beside handles and importance weights."""
        return {}

    def _set_windows(self, views: Any) -> None:
        name = type(self).__name__
        if not isinstance(views, (list, tuple)):
            raise TypeError(f"For '{name}', 'views' must be a list or tuple of views, but got {views!r}.")
        windows_of = self._layout_of(views)
        layout = SampleLayout(name, self.columns) if windows_of is None else windows_of
        self._layout = layout
        fields = layout.outputs()
        self._fields = tuple(fields)
        self._outputs = (*self._bookkeeping(layout).values(), *fields.values(), *layout.hidden())
        if windows_of is None:
            return
        self.timed = self.weighted = True
        self._rule = self._window_rule(layout, past_of(self._outputs))
        needed = (self._rule.past + max(self._rule.future, layout.chain)) * self.num_envs
        if needed > self.capacity:
            raise ValueError(
                f"For '{name}', 'capacity' must be at least {needed}, the rows that a sample reaches over in "
                f"{self.num_envs} environments, but got {self.capacity}."
            )

    @property
    def _most_starts(self) -> int:
        """The most rows that can ever be drawn at a time, so the largest sample."""
        unfinished = 0 if self._rule is None or self._rule.pad_end else self._rule.future - 1
        return self.capacity - unfinished * self.num_envs

    def _check_order(self) -> None:
        if self.sample_size > self.capacity:
            raise ValueError(
                f"For '{type(self).__name__}', 'sample_size' must be at most 'capacity', but got "
                f"sample_size={self.sample_size} and capacity={self.capacity}. The order of the arguments is "
                f"{positional_arguments(type(self))}; give the sizes by name."
            )

    def _check_starts(self) -> None:
        if self.sample_size > self._most_starts:
            raise ValueError(
                f"For '{type(self).__name__}', 'sample_size' must be at most {self._most_starts}, the most starts of "
                f"sequences that capacity={self.capacity} rows can hold, but got {self.sample_size}."
            )

    def _plan(self) -> SamplePlan:
        layout = self._layout
        hindsight = layout.hindsight
        return SamplePlan(
            n=self.sample_size,
            draw="priority" if self.prioritized else "rank" if self.weighted else "uniform",
            replace=self.replace,
            ordered=self.ordered,
            max_use=self.max_use,
            by_buffer=getattr(self, "normalize", "batch") == "buffer",
            beta_step=self._beta_step(),
            chain=layout.chain,
            needs_next=layout.needs_next,
            gamma=layout.gamma,
            strategy=hindsight.strategy if hindsight else "none",
            ratio=hindsight.ratio if hindsight else 0.0,
            outputs=(*self._bookkeeping_outputs(), *self._outputs),
        )

    @property
    def _has_handles(self) -> bool:
        """Whether what is drawn comes with handles."""
        return self.weighted

    def _bookkeeping_outputs(self) -> tuple[Output, ...]:
        """What a sample gives first: handles in a buffer that has them, and importance weights of draws by priority."""
        kinds = (HANDLE,) * self._has_handles + (WEIGHT,) * self.prioritized
        return tuple(map(Output, kinds))

    def _beta_step(self) -> float:
        """By how much each sample moves beta."""
        return 0.0

    def _make_window_operators(self) -> None:
        self._finish = windows.Relabel(self._layout, self._fields) if self._layout.hindsight else None
        # One flag for all rows, or none; and what makes the flag of a final row, which is also an end.
        self._flag_values = tuple(Tensor([value], ms.uint8) for value in (0, 1))
        self._final_bits = Tensor([END | FINAL], ms.uint8)
        number = next(_numbers)
        self._check_flag = ops.constexpr(self._check_flag_in_graph, name=f"CheckFlag{number}")
        self._check_one_step = ops.constexpr(self._check_one_step_in_graph, name=f"CheckOneStep{number}")

    def _last_flags(self) -> int:
        """Flags of a row behind which its episode breaks off: a next observation from the next row is not known."""
        return END | FINAL if self._layout.needs_next else END

    # Bodies for the compiler.

    def _check_flag_in_graph(self, argument: str, dtype: Any, shape: tuple[int, ...], rows: int) -> bool:
        flags = as_flags(type(self).__name__, argument, np.zeros(shape, numpy_type(dtype)))
        check_flags(type(self).__name__, argument, flags, rows, self.num_envs)
        return True

    def _check_one_step_in_graph(self, argument: str, rows: int) -> bool:
        check_flags(type(self).__name__, argument, np.array(True), rows, self.num_envs)
        return True

    def _flag_graph(self, argument, value, rows):
        """A flag of rows as uint8 ``[1]`` or ``[n]``."""
        if isinstance(value, Tensor):
            self._check_flag(argument, value.dtype, value.shape, rows)
            return ops.reshape(ops.cast(value, ms.uint8), (-1,))
        if not isinstance(value, bool):
            raise TypeError("'end' and 'final' must be a bool or a Tensor of bools in a graph.")
        if value:
            self._check_one_step(argument, rows)
            return self._flag_values[1]
        return self._flag_values[0]

    def _ends_graph(self, end, final, rows):
        end_flag = self._flag_graph("end", end, rows)
        if isinstance(final, bool) and not final:
            return end_flag
        final_flag = self._flag_graph("final", final, rows)
        return ops.maximum(end_flag, final_flag * self._final_bits)

    def _no_episodes_graph(self, end, final):
        if not (isinstance(end, bool) and isinstance(final, bool)) or end or final:
            raise RuntimeError("For 'insert', 'end' and 'final' need a buffer with views, or of sequences or episodes.")

    def _finished(self, batch):
        """The outputs of a sample, with rewards for other goals."""
        if self._finish is None:
            return batch
        first = 1 + self.prioritized
        return batch[:first] + self._finish_outputs(*batch[first:])

    def _finish_outputs(self, *outputs):
        return self._finish(*outputs)

    def _sample_in(self, bounds):
        return self._finished(self._graph.sample(bounds, None))

    def _sample_with(self, bounds, beta):
        return self._finished(self._graph.sample(bounds, beta))

    def _end_open_episodes(self):
        return self._graph.end_episodes()

    def _update_graph(self, indices, priorities):
        raise RuntimeError("'update_priorities' needs a PrioritizedReplayBuffer.")

    def _end_episodes_graph(self):
        if not self.timed:
            raise RuntimeError("'end_episodes' needs a buffer with views, or of sequences or episodes.")
        return self._end_open_episodes()

    # Methods, with the bodies that Python runs.

    @graph_body(_end_episodes_graph)
    def end_episodes(self) -> Tensor:
        """Ends every episode that goes on, as where environments are reset before they are done, or begin anew after
        the buffer was loaded. The next row of each environment begins an episode.

        The newest row of each environment becomes the last of its episode. Where a sample takes the next observation
        from the next row, it is only read from then on, since its own next observation is not known.

        Returns:
            Tensor: How many episodes went on until now. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the rows of the buffer know no episodes.
        """
        self._need_episodes("end_episodes")
        with self._lock:
            wait_for_work()
            return share(self._calls.end_episodes())

    @graph_body(_update_graph)
    def update_priorities(self, indices: Any, priorities: Any) -> Tensor:
        """Gives rows other priorities, in a class that draws by priority.

        Raises:
            RuntimeError: In any other class.
        """
        raise RuntimeError(
            f"For '{type(self).__name__}', 'update_priorities' needs a buffer that draws by priority: make a "
            "PrioritizedReplayBuffer, or a SequenceReplayBuffer with prioritized=True."
        )

    def _need_episodes(self, what: str) -> None:
        if not self.timed:
            raise RuntimeError(
                f"For '{type(self).__name__}', {what!r} needs a buffer whose rows know their episode: make it with "
                "views=[...], or take SequenceReplayBuffer or EpisodeReplayBuffer."
            )
