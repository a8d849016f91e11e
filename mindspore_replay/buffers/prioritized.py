"""Prioritized experience replay."""

import itertools
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import numpy_type
from ..mindspore_api import isconstant, share
from ..ops import native
from ..ops.eager import graph_body, wait_for_work
from ..store.checks import check_bool, check_number, check_size
from ..store.inputs import as_priority, check_length, one_number
from ..store.options import Options
from .replay import ReplayBuffer

_numbers = itertools.count()
_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)


class PrioritizedReplayBuffer(ReplayBuffer):
    r"""A ring of transitions on the device, sampled in proportion to a power of their priorities.

    .. math:: P(i) = \frac{w_i}{\sum_k w_k}, \quad w_i = (p_i + \epsilon)^\alpha

    A sample takes one row from each of ``B`` equal strata of the total weight; a row may come more than once. A new row
    gets the largest priority so far, so that it is soon drawn, or the one given. An operation costs O(log C) a row. The
    other properties are those of `ReplayBuffer`.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, rows that the buffer keeps; then each new row replaces the oldest. At most 2^31 - 1.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column, ``()`` for a scalar.
        types (Sequence[Union[mindspore.dtype, numpy.dtype, type, str]]): Dtype of each column, as for `ReplayBuffer`.
        alpha (float): How much priorities count, in [0, 1]: 0 uniform, 1 in proportion. Default: ``0.6``.
        beta (float): How much importance weights correct, in [0, 1]: 0 not at all, 1 in full. Default: ``0.4``.
        beta_steps (int): Calls of `sample` over which beta goes up to 1, in equal steps; 0 leaves it. Default: ``0``.
        epsilon (float): Added to every priority, so that rows with priority 0 are drawn. 0, or at least 1e-37. Default:
            ``1e-6``.
        normalize (str): Importance weights are divided by the largest of the ``"batch"``, as in the paper, or of the
            whole ``"buffer"``, which is the same for every batch. Default: ``"batch"``.
        names, num_envs, ordered, max_use, max_staleness, views, seed, backend: As for `ReplayBuffer`. With `ordered`
            the strata begin at the oldest row.
        replace (bool): Must be ``True``: a row may fill several strata. Default: ``True``.

    Attributes:
        beta (Parameter): Beta of the next call of `sample`. Shape ``[1]``, float64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range, or ``replace`` is ``False``.
        RuntimeError: If the backend asked for cannot be had.

    Reference:
        Schaul et al. 2016, "Prioritized experience replay", https://arxiv.org/abs/1511.05952

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(
        ...     sample_size=3, capacity=8, shapes=[(2,), ()], types=[ms.float32, ms.int32], alpha=1.0, beta=1.0, seed=0
        ... )
        >>> buffer = buffer.insert([np.zeros((4, 2), np.float32), np.arange(4, dtype=np.int32)])
        >>> print(buffer.update_priorities([0, 1, 2, 3, 9], [0.0, 1.0, 1.0, 4.0, 1.0]))
        1
        >>> indices, weights, observation, action = buffer.sample()
        >>> print(indices, weights, action)
        [2 3 3] [1.         0.25000018 0.25000018] [2 3 3]
        >>> priority, use_count, staleness = buffer.info(indices)
        >>> print(priority, use_count)
        [1. 4. 4.] [1 2 2]
    """

    prioritized = True

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[Any],
        *,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        views: Sequence[Any] = (),
        seed: int | None = None,
        backend: str = "auto",
    ) -> None:
        super(ReplayBuffer, self).__init__()  # what ReplayBuffer's own would do comes below
        self._set_priorities(alpha, beta, beta_steps, epsilon, normalize)
        self._need_replace(replace)
        self._set_up(
            sample_size, capacity, shapes, types, names, num_envs, replace, ordered, max_use, max_staleness, True,
            views, seed, backend,
        )  # fmt: skip

    def _need_replace(self, replace: bool) -> None:
        if not check_bool(type(self).__name__, "replace", replace):
            raise ValueError(
                f"For '{type(self).__name__}', 'replace' must be True, but got False: each stratum of the total weight "
                "gives one row, and a row may fill several."
            )

    def _set_priorities(self, alpha: float, beta: float, beta_steps: int, epsilon: float, normalize: str) -> None:
        """Checks how priorities count. A class that takes these sets them before `_set_up`."""
        name = type(self).__name__
        self.alpha = check_number(name, "alpha", alpha)
        self.first_beta = check_number(name, "beta", beta)
        self.beta_steps = check_size(name, "beta_steps", beta_steps, minimum=0)
        self.epsilon = check_number(name, "epsilon", epsilon, 0.0, 1e30)
        if 0 < self.epsilon < 1e-37:
            raise ValueError(f"For '{name}', 'epsilon' must be 0 or at least 1e-37, but got {epsilon}.")
        if normalize not in ("batch", "buffer"):
            raise ValueError(f"For '{name}', 'normalize' must be 'batch' or 'buffer', but got {normalize!r}.")
        self.normalize = normalize

    def _beta_step(self) -> float:
        return (1 - self.first_beta) / self.beta_steps if self.prioritized and self.beta_steps else 0.0

    def _made_for(self, seed: int) -> Options:
        return super()._made_for(seed)._replace(beta=self.first_beta if self.prioritized else None)

    def _make_weight_operators(self) -> None:
        super()._make_weight_operators()
        if not self.prioritized:
            return
        self._start_beta = Tensor(np.array([self.first_beta]))
        number = next(_numbers)
        self._check_priority = ops.constexpr(self._check_priority_in_graph, name=f"CheckPriority{number}")
        self._check_priority_number = ops.constexpr(
            self._check_priority_number_in_graph, name=f"CheckPriorityNumber{number}"
        )
        self._check_beta = ops.constexpr(self._check_beta_in_graph, name=f"CheckBeta{number}")
        self._check_beta_tensor = ops.constexpr(self._check_beta_tensor_in_graph, name=f"CheckBetaTensor{number}")

    # Bodies for the compiler.

    def _check_priority_in_graph(self, dtype: Any, shape: tuple[int, ...], rows: int) -> bool:
        check_length(type(self).__name__, as_priority(type(self).__name__, np.ones(shape, numpy_type(dtype))), rows)
        return True

    def _check_priority_number_in_graph(self, priority: Any) -> bool:
        as_priority(type(self).__name__, priority)
        return True

    def _check_beta_in_graph(self, beta: Any) -> bool:
        check_number(type(self).__name__, "beta", beta)
        return True

    def _check_beta_tensor_in_graph(self, dtype: Any, shape: tuple[int, ...]) -> bool:
        one_number(type(self).__name__, np.ones(shape, numpy_type(dtype)))
        return True

    def _priority_graph(self, priority, rows):
        if isinstance(priority, Tensor):
            self._check_priority(priority.dtype, priority.shape, rows)
        elif not isinstance(priority, (bool, int, float)):
            raise TypeError("In a graph, priorities must be a Tensor or a number: pass a Tensor.")
        elif isconstant(priority):
            self._check_priority_number(priority)
        return ops.cast(priority, ms.float32)

    def _insert_graph(self, exp, *, priority=None, end=False, final=False):
        if priority is not None and not self.prioritized:
            raise RuntimeError("For 'insert', 'priority' needs a buffer made with prioritized=True.")
        rows = self._checked_rows(exp)
        n = self._rows_of(rows)
        given = self.max_priority if priority is None else self._priority_graph(priority, n)
        if self.timed:
            self._insert_with(given, self._ends_graph(end, final, n), *rows)
        else:
            self._no_episodes_graph(end, final)
            self._insert_with(given, *rows)
        return self._size_graph()

    def _sample_graph(self, beta=None, *, as_dict=False):
        if as_dict:
            raise ValueError("For 'sample', 'as_dict' must be False in a graph.")
        return self._by_weight_graph(beta)

    def _by_weight_graph(self, beta):
        if beta is None:
            return self._sample_in(self._all_rows)
        if isinstance(beta, Tensor):
            self._check_beta_tensor(beta.dtype, beta.shape)
        elif isconstant(beta) or not isinstance(beta, (int, float)):
            self._check_beta(beta)
        return self._sample_with(self._all_rows, ops.cast(beta, ms.float64))

    def _update_with(self, handles, priority):
        return self._graph.update_priorities(handles, priority)

    def _update_graph(self, indices, priorities):
        if not self.prioritized:
            raise RuntimeError("'update_priorities' needs a buffer made with prioritized=True.")
        handles = self._handles_graph(indices)
        return self._update_with(handles, self._priority_graph(priorities, handles.shape[0]))

    def _forget_rows(self):
        if self.prioritized:
            ops.assign(self.beta, self._start_beta)
        self._graph.reset()

    # Methods, with the bodies that Python runs.

    @graph_body(_insert_graph)
    def insert(  # type: ignore[override]
        self, exp: Any, *, priority: Any = None, end: Any = False, final: Any = False
    ) -> "PrioritizedReplayBuffer":
        """Appends one row or a batch; in a full buffer each new row replaces the oldest.

        Of a batch longer than the capacity the newest rows stay. Nothing is stored if anything is wrong.

        Args:
            exp (Union[Sequence, dict]): The rows, as for `ReplayBuffer.insert`.
            priority (Union[float, Tensor, Sequence, None]): Priority of all rows, or of each: a number, or shape
                ``[n]``, in a graph a Tensor. It is taken as float32, and subnormal ones as 0. Default: ``None``, for
                the largest priority so far, at first 1.
            end, final (Union[bool, Tensor, Sequence[bool]]): As for `ReplayBuffer.insert`. Default: ``False``.

        Returns:
            PrioritizedReplayBuffer: The buffer itself. In a graph the rows stored then, a Tensor, shape ``[]``, int32.

        Raises:
            TypeError: If `exp` is no list, tuple or dict, or a column has another dtype; all such columns are listed.
                If `priority` holds no numbers.
            ValueError: If columns, shapes or lengths do not fit, or the rows are no multiple of `num_envs`. If a
                priority is negative, NaN or infinite, which in a graph fails the operator with a RuntimeError.
        """
        if type(exp) is not list or len(exp) != self._width:
            exp = self.columns.in_order(exp)
        given = None
        if priority is not None:
            self._need_priorities("insert(priority=...)")
            given = as_priority(type(self).__name__, priority)
        if not (end is False and final is False):
            self._need_episodes("end")
        return self._insert(exp, given, end, final)

    #: `insert` under a name that MindSpore's parser never takes for a list's method.
    add = insert

    @graph_body(_sample_graph)
    def sample(  # type: ignore[override]
        self, beta: Any = None, *, as_dict: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        r"""Draws one row from each of `sample_size` equal strata of the total weight, and says how to undo the bias.

        The importance weight of a row with weight :math:`w_i` is :math:`(w_\min / w_i)^\beta`, where :math:`w_\min`
        is the smallest weight of the sample, or of all eligible rows where `normalize` is ``"buffer"``. That equals
        :math:`(N \cdot P(i))^{-\beta}` over its largest value.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, in [0, 1]; a Tensor ``[]`` or ``[1]``. Default:
                ``None``, for the Parameter `beta`. Either way that moves by its step.
            as_dict (bool): Whether to give a dict, with ``"indices"``, ``"weights"`` and the columns' names; only from
                Python. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: Handles of the rows, int64 ``[B]``, for `update_priorities`; importance weights, float32
            ``[B]``, in [0, 1]; copies of the rows, ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `beta` is no number, or `as_dict` is asked of a buffer without names.
            ValueError: If `beta` is outside [0, 1], or `as_dict` is asked and a column has the name of handles or
                weights.
            RuntimeError: If fewer than `sample_size` rows are eligible; `can_sample` tells. In a graph the operator
                fails with a RuntimeError, also for a Tensor `beta` outside [0, 1].
        """
        return self._by_weight(beta, as_dict)

    def _by_weight(self, beta: Any, as_dict: bool) -> Any:
        if isinstance(beta, Tensor):
            beta = one_number(type(self).__name__, beta.asnumpy())
        if beta is not None:
            beta = check_number(type(self).__name__, "beta", beta)
        names = self._dict_names(self._bookkeeping_names) if as_dict else ()
        batch = self._draw(None, beta)
        return dict(zip(names, batch)) if as_dict else batch

    def _need_priorities(self, method: str) -> None:
        if not self.prioritized:
            raise RuntimeError(f"For '{type(self).__name__}', '{method}' needs a buffer made with prioritized=True.")

    @graph_body(_update_graph)
    def update_priorities(self, indices: Any, priorities: Any) -> Tensor:
        """Gives rows other priorities, for example the absolute TD errors of a sample.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles as `sample` gives them, int32 or int64. Shape ``[]`` or
                ``[n]``, in a graph only a Tensor. Of several for one row the last counts.
            priorities (Union[Tensor, Sequence[float], float]): One priority for all, or one for each: a number, or
                shape ``[n]``, in a graph a Tensor. Finite and not negative; taken as float32, and subnormal ones as 0.

        Returns:
            Tensor: How many handles were dead, since their rows were overwritten, deleted, used up, stale or forgotten,
            or a sample cannot start there. Those are skipped. Shape ``[]``, int32.

        Raises:
            TypeError: If `indices` holds no ints, or `priorities` no numbers.
            ValueError: If shapes do not fit. If a priority is negative, NaN or infinite, which in a graph fails the
                operator with a RuntimeError; then no priority is changed.
        """
        self._need_priorities("update_priorities")
        name = type(self).__name__
        plain = self._direct and native.is_vector(priorities, ms.float32, _FLOAT32)
        handles = (
            indices if plain and native.is_vector(indices, ms.int64, _INT64) else self._handles(indices).reshape(-1)
        )
        given = priorities if plain else as_priority(name, priorities)
        check_length(name, given, handles.shape[0])
        with self._lock:
            wait_for_work()
            return share(self._calls.update_priorities(handles, given))
