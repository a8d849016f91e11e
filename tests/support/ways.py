"""Ways to compile: each kind of buffer in a small graph, compiled in each way, gives what it gives without a graph.

python tests/support/ways.py    # all ways, backends and kinds: about a minute of processor time
"""

import itertools
import sys
import traceback
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from kinds import CLASSES
from kinds import KINDS as EVERY
from mindspore import Tensor, nn

SCHEMA: dict[str, Any] = {"shapes": [(2,), ()], "types": [ms.float32, ms.int32], "seed": 3}
KINDS = {kind: EVERY[kind] for kind in ("distinct", "limits", *CLASSES)}
#: Composite operators serve single rows.
SINGLE = ("uniform", "distinct", "limits", "prioritized")
#: Arguments of `ms.jit`; "cell" is a Cell in GRAPH_MODE.
WAYS: dict[str, dict[str, Any]] = {
    **{
        f"ast-{level}{'-fullgraph' * whole}": {"capture_mode": "ast", "jit_level": level, "fullgraph": whole}
        for level in ("O0", "O1")
        for whole in (False, True)
    },
    **{f"bytecode-{level}": {"capture_mode": "bytecode", "jit_level": level} for level in ("O0", "O1")},
    "cell": {},
}
if sys.version_info >= (3, 12):  # which MindSpore's bytecode mode does not support
    WAYS = {name: way for name, way in WAYS.items() if not name.startswith("bytecode")}

ENDS = Tensor([False, True, False, True])
#: Cells and functions stay until MindSpore has freed its graphs.
kept: list[Any] = []


class Step(nn.Cell):
    """Stores rows, and samples."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.buffer = buffer
        self.prioritized, self.has_ends = buffer.prioritized, buffer.has_episodes

    def construct(self, x, y):
        if self.has_ends:
            self.buffer.insert([x, y], end=ENDS)
        else:
            self.buffer.insert([x, y])
        batch = self.buffer.sample()
        if self.prioritized:
            invalid = self.buffer.update_priorities(batch[0], batch[1])
            return (*batch, invalid)
        return batch


def compiled(buffer: Any, way: str) -> Callable[..., Any]:
    """Return a step with this buffer, compiled in this way."""
    step = Step(buffer)
    kept.append(step)
    return step if way == "cell" else ms.jit(step.construct, **WAYS[way])


def check(way: str, backend: str, kind: str) -> None:
    """Compare three calls of a compiled step with those of a step that Python runs; the states, too."""
    buffer, expected = (KINDS[kind].make(2, 9, **SCHEMA, backend=each) for each in (backend, "native"))
    before = ms.get_context("mode")
    call, plain = compiled(buffer, way), Step(expected)
    for turn in range(3):
        numbers = np.arange(4) + 4 * turn
        rows = np.stack([numbers, -numbers], 1).astype(np.float32), numbers.astype(np.int32)
        ms.set_context(mode=ms.GRAPH_MODE if way == "cell" else ms.PYNATIVE_MODE)
        try:
            batch = call(*map(Tensor, rows))
        finally:
            ms.set_context(mode=before)
        for found, wanted in zip(batch, plain.construct(*map(Tensor, rows)), strict=True):
            np.testing.assert_array_equal(found.asnumpy(), wanted.asnumpy())
    for name, wanted in expected.state_dict().items():
        np.testing.assert_array_equal(buffer.state_dict()[name], wanted, err_msg=name)


def main() -> int:
    """Check all combinations; print a line for each that fails, and their number."""
    failed, combinations = (
        0,
        [*itertools.product(WAYS, ["native"], KINDS), *itertools.product(WAYS, ["composite"], SINGLE)],
    )
    for combination in combinations:
        try:
            check(*combination)
        except Exception:  # whatever it is, the others go on
            failed += 1
            print("FAILED", *combination, traceback.format_exc(limit=-1).strip().splitlines()[-1], flush=True)
    print(f"MindSpore {ms.__version__}: {len(combinations) - failed} of {len(combinations)} ways to compile are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
