"""MindSpore RL 0.5's `mindspore_rl.core.replay_buffer`, and its guide line by line."""

from pathlib import Path

import pytest
from programs import run_program

#: The lines of the guide's blocks, with what its text says of each.
GUIDE = """
import sys

import mindspore as ms
import numpy as np

from mindspore_replay.compat.mindspore_rl import install, uninstall

install()
ms.set_context(mode={mode})

from mindspore_rl.core.replay_buffer import ReplayBuffer

sample_size = 2
capacity = 100000
shapes = [(4,), (1,), (1,), (4,)]
types = [ms.float32, ms.int32, ms.float32, ms.float32]
replaybuffer = ReplayBuffer(sample_size, capacity, shapes, types)
state = ms.Tensor([0.1, 0.2, 0.3, 0.4], ms.float32)
action = ms.Tensor([1], ms.int32)
reward = ms.Tensor([1], ms.float32)
new_state = ms.Tensor([0.4, 0.3, 0.2, 0.1], ms.float32)
replaybuffer.insert([state, action, reward, new_state])
replaybuffer.insert([state, action, reward, new_state])
exp = replaybuffer.get_item(0)
np.testing.assert_allclose(exp[0].asnumpy(), [0.1, 0.2, 0.3, 0.4])
samples = replaybuffer.sample()
assert [sample.shape for sample in samples] == [(2, 4), (2, 1), (2, 1), (2, 4)]
size = replaybuffer.size()
assert int(size) == 2
if replaybuffer.full():
    raise AssertionError
replaybuffer.reset()
assert int(replaybuffer.size()) == 0

# A configuration in the guide's keys, which makes it.
config = {{
    "replay_buffer": {{
        "number": 1,
        "type": ReplayBuffer,
        "capacity": 6,
        "data_shape": [(4,), (1,), (1,), (4,)],
        "data_type": [ms.float32, ms.int32, ms.float32, ms.float32],
        "sample_size": 2,
    }}
}}
from mindspore_replay import create_buffer

ring = create_buffer(config["replay_buffer"])
assert type(ring) is ReplayBuffer

# The four pictures of an insertion, and the two of a search.
for rows, head, count in (2, 0, 2), (4, 0, 6), (2, 2, 6):
    for _ in range(rows):
        ring.insert([state, action, reward, new_state])
        state = state + 1
    assert (int(ring.head.asnumpy()), int(ring.count.asnumpy())) == (head, count)
assert ring.full()
np.testing.assert_allclose(ring.get_item(0)[0].asnumpy(), [2.1, 2.2, 2.3, 2.4], rtol=1e-6)
uninstall()
assert "mindspore_rl.core.replay_buffer" not in sys.modules
print("done")
"""

WITHOUT = """
import importlib.util

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "mindspore_rl" else find_spec(name, *more)
"""


@pytest.mark.parametrize(("mode", "installed"), [("ms.PYNATIVE_MODE", True), ("ms.GRAPH_MODE", False)])
def test_the_guide_runs(mode: str, installed: bool, tmp_path: Path):
    package = tmp_path / "with" / "mindspore_rl"
    (package / "core").mkdir(parents=True)
    for folder in package, package / "core":
        (folder / "__init__.py").write_text("")
    path = f"import sys\nsys.path.insert(0, {str(package.parent)!r})\n" if installed else WITHOUT
    (tmp_path / "program.py").write_text(path + GUIDE.format(mode=mode))
    done = run_program(tmp_path / "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
