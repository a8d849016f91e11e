"""Epochs over the rows that are stored: each once, in random batches."""

from typing import Any, TypeVar

import numpy as np
from mindspore.dataset import GeneratorDataset

from ..store.base.checks import check_size
from ..store.base.ring import stored_slots
from ..store.faces import classes
from ..store.spec.epochs import BEGUN
from ..store.spec.registry import registered
from .base import Buffer
from .epoch_dataset import Epochs, ItemRows, Rows, dataset_of

_Self = TypeVar("_Self", bound="EpochReplayBuffer")


@registered
class EpochReplayBuffer(Buffer, classes.EpochReplayBuffer):
    r"""A ring of rows, sampled in epochs: each stored row once an epoch, in a new random order.

    Use it for learners that pass several times over their rollouts, such as PPO. The first sample begins an epoch over
    the rows stored then. The sample after the last batch begins the next. An epoch skips rows evicted or removed
    meanwhile. Rows inserted meanwhile belong to the next.

    With `pad_end`, sequences at the newest rows of open episodes are padded too, and get the next steps of the episode
    once these are there. Steps of a sequence whose first step was evicted are left out: call `reset` between rollouts,
    so that each begins with a sequence.

    The order is a keyed permutation, which needs no memory. From a checkpoint in the middle of an epoch, the epoch
    continues with the remaining rows.

    Several learners with the same rows and seed split each epoch by `rank`, into disjoint batches, the same number
    each. In a folder, the learner and attached processes share one epoch.

    Axes: ``B`` sample_size, ``T`` steps, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows or sequences of one sample.
        capacity (int): Most rows stored, of all environments together.
        sequence_length (Union[int, None]): Steps of a sequence from its start on. Default: ``None``, for single rows.
        burn_in, stride, pad_end: As for `ReplayQueue`, but see above.
        last (str): If fewer than ``world * sample_size`` rows remain at the end of an epoch: ``"drop"`` them, or
            ``"pad"`` the batch with zeros and return a mask. Default: ``"drop"``.
        rank (int): Number of this learner, from 0. Default: ``0``.
        world (int): Number of learners that split the epochs. Default: ``1``.
        shapes, types, names, columns, num_envs, max_use, max_staleness, weighted, views: As for `ReplayBuffer`.
        seed, storage, backend: As for `ReplayBuffer`.

    Attributes:
        epoch (Parameter): Key of the order, serial number of the epoch's oldest row, number of its rows, position in
            the order, and epochs begun. Shape ``[5]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend is not available.

    Reference:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", https://arxiv.org/abs/1707.06347.

    Examples:
        >>> import numpy as np
        >>> from mindspore_replay import EpochReplayBuffer
        >>> buffer = EpochReplayBuffer(sample_size=2, capacity=6, shapes=[()], types=["int32"], seed=2)
        >>> buffer = buffer.insert([np.arange(6, dtype=np.int32)])
        >>> print(*(batch[0] for batch in buffer.minibatches(epochs=2)))
        [4 1] [3 2] [5 0] [5 2] [0 4] [1 3]
    """

    def _begin(self) -> None:
        self._datasets = np.zeros(1, np.int64)  # made so far

    def _sample_graph(self, *misplaced, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, None, as_dict, with_indices or self.sequence_length is not None, longest)

    def _begin_epoch_graph(self):
        _ = self._graph.begin_epoch()
        return self._stored_graph()

    def as_dataset(self, *, num_parallel_workers: int = 1) -> GeneratorDataset:
        """Return a dataset of the rows stored now. Only from Python.

        Each pass over it returns each row once, in a new order, independent of the epochs of `sample`. With `world`
        learners, each gets the same number of disjoint rows, and up to ``world - 1`` rows are left out. The learners
        must share a seed and make their datasets in the same order. Call the dataset's ``batch`` to form batches, or
        ``padded_batch`` if rows differ in length. Do not insert while iterating.

        Args:
            num_parallel_workers (int): Workers that read rows. More than one are processes. Default: ``1``.

        Returns:
            GeneratorDataset: A dataset with the columns of the buffer, by name, or ``column_0`` and so on.

        Raises:
            TypeError: If a column is bfloat16, which datasets do not support.
            ValueError: If a column is compressed.
            RuntimeError: If the buffer has sequences or views, or fewer rows than learners.

        Examples:
            >>> from mindspore_replay import EpochReplayBuffer
            >>> buffer = EpochReplayBuffer(2, 8, shapes=[()], types=["int32"], names=["step"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
            >>> dataset = buffer.as_dataset().batch(2)
            >>> print(dataset.get_dataset_size(), sorted(int(step) for batch in dataset for step in batch[0]))
            3 [10, 11, 12, 13, 14]
        """
        name = type(self).__name__
        if self.has_episodes:
            raise RuntimeError(f"For '{name}', 'as_dataset' needs a buffer of single rows, without views.")
        if "bfloat16" in self.columns.dtypes:
            raise TypeError(f"For '{name}', 'as_dataset' needs columns of other types than bfloat16.")
        if self.columns.compressed:
            raise ValueError(f"For '{name}', 'as_dataset' needs columns that are not compressed.")
        workers = check_size(name, "num_parallel_workers", num_parallel_workers)
        with self.state.snapshot(columns=True) as arrays:
            slots = stored_slots(arrays, self.capacity)
            if self.weighted:
                slots = slots[arrays["weights"][slots] > 0]
            if len(slots) < self.world:
                raise RuntimeError(
                    f"For '{name}', 'as_dataset' needs a row that can be drawn for each of world={self.world} "
                    f"learners, but got {len(slots)}."
                )
            types = self.columns.numpy_types
            stored = [array for key, array in arrays.items() if key.startswith("column.")]
            now = int(arrays["epoch"][BEGUN]), int(arrays["serials"][0]), int(self._datasets[0])
            seed = [*arrays["random_state"].view(np.uint64).tolist(), *now]
            self._datasets += 1
        columns: list[Any] = [array.view(dtype) if dtype == np.bool_ else array for array, dtype in zip(stored, types)]
        for i, kind in self.columns.kind_of.items():
            items = arrays[f"items.{self.columns.names[i]}"].view(types[i])
            columns[i] = ItemRows(arrays[f"column.{kind.name}"], items)
        names = self.names or [f"column_{i}" for i in range(len(columns))]
        return dataset_of(Rows(columns, slots), Epochs(len(slots), self.rank, self.world, seed), names, workers)
