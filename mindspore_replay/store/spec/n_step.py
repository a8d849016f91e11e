"""N-step returns."""

from collections.abc import Sequence

from ..base.checks import check_number, check_size
from .arguments import Shown
from .layout import SampleLayout
from .registry import registered

_FLOATS = ("float32", "float64")


@registered
class NStep(Shown):
    r"""A view that turns steps into transitions of up to n steps. The data is stored once.

    .. math:: R_t = \sum_{i=0}^{k-1} \gamma^i r_{t+i}, \quad d_t = \gamma^k (1 - \mathrm{terminated}_{t+k-1})

    so the target is :math:`R_t + d_t \max_a Q(s_{t+k}, a)`. :math:`k` is ``n``, or less at the end of the episode (also
    by truncation), at the newest row of the stream and before a deleted row. In a sample the reward is :math:`R_t`.
    Next observation, `terminated` and a column ``"truncated"`` are those of step :math:`t+k-1`. A field ``"discount"``,
    :math:`d_t`, float32 ``[B]``, follows the columns.

    Without a column of next observations, they are read from the next row, and are a field before the discount. The
    last row of an episode that has not terminated is then not sampled, and returns end before it. Insert a ``final``
    row to keep it. `docs/ends.md` shows the cases.

    In a sample of sequences or episodes this applies to each of the ``T`` steps, with a discount ``[B, T]``. A return
    may extend over stored rows beyond the last step of the sequence. The mask is ``True`` where a transition begins:
    not at ``final`` rows, and, without a column of next observations, not where the next one is unknown. Where the mask
    is ``False``, all values are zero.

    Args:
        n (int): Largest number of steps, at least 1.
        gamma (float): Discount of one step, in [0, 1].
        reward (str): Column of rewards, float32 or float64. Default: ``"reward"``.
        discount (Union[str, None]): Column of per-step discounts, float32 or float64 of shape ``()``, which multiply
            `gamma` in :math:`R_t` and :math:`d_t`. The field replaces a column named ``"discount"``. Default: ``None``.
        terminated (str): Column that is nonzero where an episode terminated, of shape ``()``. Such a row ends its
            episode. Default: ``"terminated"``.
        observation (Union[str, Sequence[str]]): Columns of observations. ``"x"`` stands for all columns with names
            ``"x.y"``, too. The next one of ``"x"`` is ``"next_x"``. Default: ``"observation"``.

    Raises:
        TypeError: If `n` is no int or `gamma` no number.
        ValueError: If one is outside its range.

    Reference:
        Sutton and Barto 2018, "Reinforcement learning: an introduction", section 7.1.

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import NStep, ReplayBuffer
        >>> names, types = ["observation", "reward", "terminated"], [ms.float32, ms.float32, ms.bool_]
        >>> buffer = ReplayBuffer(
        ...     sample_size=1, capacity=8, shapes=[(), (), ()], types=types, names=names, views=[NStep(2, 0.5)], seed=0
        ... )
        >>> for step in range(3):
        ...     buffer = buffer.insert([float(step), 1.0, step == 2])
        >>> for name, value in buffer.sample(as_dict=True).items():
        ...     print(name, value)
        observation [1.]
        reward [1.5]
        terminated [ True]
        next_observation [0.]
        discount [0.]
    """

    def __init__(
        self,
        n: int,
        gamma: float,
        *,
        reward: str = "reward",
        terminated: str = "terminated",
        discount: str | None = None,
        observation: str | Sequence[str] = "observation",
    ) -> None:
        self.n = check_size("NStep", "n", n)
        self.gamma = check_number("NStep", "gamma", gamma)
        self.reward = reward
        self.terminated = terminated
        self.discount = discount
        self.observations = (observation,) if isinstance(observation, str) else tuple(observation)

    def apply_to(self, layout: SampleLayout) -> None:
        """Add the n-step returns to the layout of a sample. Called by buffers."""
        layout.only_one("NStep", layout.returns is not None)
        columns = layout.columns
        if "discount" in columns.names and self.discount != "discount":
            raise ValueError(
                f"For '{layout.cls_name}', NStep adds a field 'discount' to a sample: rename the column of this name, "
                "or pass discount='discount' if it contains the discount of each step."
            )
        reward = layout.column("NStep", "reward", self.reward)
        terminated = layout.column("NStep", "terminated", self.terminated)
        if columns.dtypes[reward] not in _FLOATS:
            raise TypeError(f"For 'NStep', the column {self.reward!r} must be float32 or float64.")
        if columns.shapes[terminated] != ():
            raise ValueError(f"For 'NStep', the column {self.terminated!r} must have shape ().")
        if self.discount is not None:
            column = layout.column("NStep", "discount", self.discount)
            if columns.dtypes[column] not in _FLOATS or columns.shapes[column] != ():
                raise TypeError(f"For 'NStep', the column {self.discount!r} must be float32 or float64 of shape ().")
        for name in layout.inside(self.observations):
            layout.column("NStep", "observation", name)
            layout.add_next(name)
        for name in {self.terminated, "truncated"} & set(columns.names):
            layout.of_last_row(name)
        layout.chain, layout.gamma, layout.step_discount = self.n, self.gamma, self.discount
        layout.returns, layout.terminated, layout.discount = self.reward, self.terminated, "discount"
