"""The versions of the policies that made rows, as values of the learner's clock."""

import mindspore as ms
from mindspore import ops

from ..store.kernels.library import BAD_VERSION, FAILURES
from .access import Access
from .checks import check
from .primitives import item, range_of, zeros_like


@ms.jit_class
class Versions:
    """Checks versions, int64 ``[]`` or ``[n]``, and finds up to which row clocks are not in order."""

    def __init__(self, state: Access) -> None:
        self.state = state
        self.check = check("insert", FAILURES[BAD_VERSION])

    def accepts(self, version):
        """Return True if the versions are valid. Fail the graph otherwise."""
        ok = ops.all(ops.logical_and(version >= 0, version <= item(self.state.clock, 0)))
        self.check(ok, (version, item(self.state.clock, 0)))
        return ok

    def unordered(self, version, n, ok):
        """Return the serial number behind the last row that is older than the clock, after n rows were stored."""
        clock = self.state.clock
        serials = item(self.state.serials, 0) - n + 1 + range_of(n)
        older = ops.logical_and(ok, ops.broadcast_to(ops.reshape(version, (-1,)), (n,)) < item(clock, 0))
        return ops.maximum(item(clock, 2), ops.reduce_max(ops.select(older, serials, zeros_like(serials))))
