"""The state of a buffer by name, for the operators of graphs."""

from collections.abc import Mapping, Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from ..store.spec.options import Options


@ms.jit_class
class State:
    """The Parameters that operators read and write in place, or ``None`` for those that the buffer does not have.

    `buffers/base.py` documents each. Axes: ``C`` capacity.

    Args:
        columns (Sequence[Parameter]): The columns, each ``[C, *F]``.
        parameters (Mapping[str, Parameter]): The others by name.
        options (Options): Options of the buffer.
    """

    def __init__(self, columns: Sequence[Parameter], parameters: Mapping[str, Parameter], options: Options) -> None:
        self.columns = tuple(columns)
        #: The items of rows that differ in length.
        self.arenas = tuple(parameters[f"items.{name}"] for group in options.length_groups for name in group.names)
        self.capacity = options.capacity
        self.head = parameters["head"]
        self.count = parameters["count"]
        self.serials = parameters["serials"]
        self.random_state = parameters["random_state"]
        self.updates = parameters["updates"]
        self.weights = parameters.get("weights")
        self.priorities = parameters.get("priorities")
        self.max_priority = parameters.get("max_priority")
        self.use_counts = parameters.get("use_counts")
        self.insertion_clocks = parameters.get("insertion_clocks")
        self.clock = parameters.get("clock")
        self.counts = parameters.get("counts")
        self.steps = parameters.get("steps")
        self.flags = parameters.get("flags")
        self.row_serials = parameters.get("row_serials")
        self.window = parameters.get("window")
        self.beta = parameters.get("beta", Tensor(np.zeros(1)))  # not read unless rows are drawn by priority
        #: Alpha, epsilon, whether insertions may not evict valid rows, and use count and first priority of new rows,
        #: float64 ``[5]``.
        self.row_rule = None if options.weighting is None else Tensor(options.row_rule())
        self.initial_priority = Tensor(options.initial_priority, ms.float32)
        self.epoch = parameters.get("epoch")
        #: Rule for the batches of epochs, int64 ``[3]``.
        self.epoch_rule = None if options.epochs is None else Tensor(options.epochs.array())
        #: Rule for valid windows, int64 ``[6]``.
        self.window_rule = None if options.rule is None else Tensor(options.rule.array())
