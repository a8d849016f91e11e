"""The Parameters of a buffer by name, as the graph operators on it take them."""

from collections.abc import Mapping, Sequence

import mindspore as ms
from mindspore import Parameter

#: What kernels take after the columns, in their order: where the ring is; what is known of each row, in a buffer with
#: weights; and where rows are in their episodes, in a buffer with windows.
RING = ("head", "count", "serials")
MARKS = ("weights", "priorities", "max_priority", "use_counts", "insertion_clocks", "clock", "counts")
TIME = ("steps", "flags")


@ms.jit_class
class State:
    """The Parameters that operators read and write in place; ``None`` for one that the buffer does not have.

    `buffers/replay.py`, `buffers/limits.py` and `buffers/timed.py` document each. Axes: ``C`` capacity.

    Args:
        columns (Sequence[Parameter]): The columns, each ``[C, *F]``.
        parameters (Mapping[str, Parameter]): The others by name.
    """

    def __init__(self, columns: Sequence[Parameter], parameters: Mapping[str, Parameter]) -> None:
        self.columns = tuple(columns)
        self.capacity = int(columns[0].shape[0])
        self.head = parameters["head"]
        self.count = parameters["count"]
        self.serials = parameters["serials"]
        self.random_state = parameters["random_state"]
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

    def those(self, names: Sequence[str]) -> tuple[Parameter, ...]:
        """The Parameters with these names that there are, in this order."""
        found = (getattr(self, name) for name in names)
        return tuple(parameter for parameter in found if parameter is not None)
