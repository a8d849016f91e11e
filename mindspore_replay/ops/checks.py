"""Checks of data that a composite operator gets when its graph runs.

The operators after a failed check still run, and must change nothing. On a CPU and a GPU `ops.Assert` then stops the
graph. MindSpore documents `ops.Assert` for no other device. There the first failure is recorded in a Parameter, the
operator returns zeros, and handles of -1, and the next call from Python raises an error, as for kernels on a GPU.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from . import native
from .primitives import zeros_like

#: The devices for which MindSpore documents `ops.Assert`.
ASSERTING = ("CPU", "GPU")

#: Number of each failure that can be recorded, by operator and reason.
_numbers: dict[tuple[str, str], int] = {}
#: Number of the first failure that has not been raised, 0 for none, int32 ``[]``. The first check makes the Parameter.
_recorded: list[Parameter] = []


def stops_graphs() -> bool:
    """Return True if a failed check stops its graph on the current device target."""
    return ms.get_context("device_target") in ASSERTING


def check(operator: str, reason: str) -> "ops.Assert | RecordedCheck":
    """Make a check, ``(ok bool [] or [1], numbers)``, that shows the numbers, or records operator and reason."""
    return ops.Assert() if stops_graphs() else RecordedCheck(operator, reason)


def blank() -> "Blank | None":
    """Make a `Blank` if graphs go on after a failed check, else return ``None``."""
    return None if stops_graphs() else Blank()


def _parameter() -> Parameter:
    if not _recorded:
        zero = Tensor(np.zeros((), np.int32))
        _recorded.append(Parameter(zero, name="mindspore_replay.failure", requires_grad=False))
    return _recorded[0]


@ms.jit_class
class RecordedCheck:
    """``(ok bool [] or [1], numbers)``: records a failure, unless an earlier one has not been raised."""

    def __init__(self, operator: str, reason: str) -> None:
        number = _numbers.setdefault((operator, reason), len(_numbers) + 1)
        self.number = Tensor(number, ms.int32)
        self.recorded = _parameter()
        self.none = Tensor(0, ms.int32)

    def __call__(self, ok, numbers):
        """Record the failure."""
        now = self.recorded + self.none
        new = ops.select(ops.reshape(ok, ()), self.none, self.number)
        ops.assign(self.recorded, ops.select(now == self.none, new, now))


@ms.jit_class
class Blank:
    """``(outputs, ok []) -> outputs``: zeros if not `ok`."""

    def __call__(self, outputs, ok):
        """Return the outputs, or zeros."""
        blanked = ()
        for i in range(len(outputs)):
            blanked = (*blanked, ops.select(ok, outputs[i], zeros_like(outputs[i])))
        return blanked


def raise_earlier_failure() -> None:
    """Raise a RuntimeError for a failure in an earlier graph, of a kernel or a check, that has not been reported."""
    native.raise_earlier_failure()
    number = int(_recorded[0].asnumpy()) if _recorded else 0
    if number > 0:
        ops.assign(_recorded[0], Tensor(0, ms.int32))
        operator, reason = list(_numbers)[number - 1]
        raise RuntimeError(
            f"The operator '{operator}' failed in a graph that ran before this call: {reason}. That call of "
            "the operator changed nothing and returned zeros."
        )
