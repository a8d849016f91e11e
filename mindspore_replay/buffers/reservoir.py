"""A uniform sample of all rows inserted so far."""

from ..store.faces import classes
from ..store.spec.registry import registered
from .base import Buffer


@registered
class ReservoirReplayBuffer(Buffer, classes.ReservoirReplayBuffer):
    r"""A reservoir of transitions on the device: each row inserted so far is equally likely to be stored.

    The first `capacity` rows are stored. Each later row t, counted from 0, is stored with probability
    :math:`C / (t + 1)`, in a slot chosen uniformly, and dropped otherwise. Samples are therefore uniform over the whole
    stream, as fictitious self-play requires. An insertion costs O(1) a row. Positions are slots, not in time order.
    Otherwise it behaves as `ReplayBuffer`.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, rows stored. At most 2^31 - 1.
        max_use (Union[int, None]): Remove a row after this many deliveries. Its slot stays occupied until another row
            replaces it. Default: ``None``, for no limit.
        weighted (bool): Whether to store a weight for each row. `max_use`, `delete` and `info` require it. Default:
            ``False``.
        shapes, types, names, columns, replace, seed, storage, backend: As for `ReplayBuffer`.

    Attributes:
        row_serials (Parameter): Serial number of the row in each slot: the number of rows inserted before it. Shape
            ``[C]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If there is no column, a size is not positive, or `shapes`, `types` and `names` differ in length.
        RuntimeError: If the backend is not available.

    Reference:
        Vitter 1985, "Random sampling with a reservoir", https://doi.org/10.1145/3147.3165 (Algorithm R)

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReservoirReplayBuffer
        >>> buffer = ReservoirReplayBuffer(sample_size=3, capacity=5, shapes=[()], types=[ms.int32], seed=0)
        >>> buffer = buffer.insert([np.arange(1000, dtype=np.int32)])
        >>> print(buffer.size(), *buffer.rows())
        5 [869 436 700  14  27]
        >>> indices, step = buffer.sample(with_indices=True)
        >>> print(indices, step)
        [ 14  14 436] [ 14  14 436]
    """

    def _sample_graph(self, *misplaced, as_dict=False, with_indices=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, None, as_dict, with_indices)
