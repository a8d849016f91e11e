"""Compare one shard, here and in a process that cannot import MindSpore, with a buffer of its configuration."""

import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import full_sample
from mindspore import Tensor, bfloat16

from mindspore_replay import FrameStack, NStep, create_buffer, host, load
from mindspore_replay.checkpoint.buffers import contents_of
from mindspore_replay.distributed.configuration import shard_specs, whole_spec
from mindspore_replay.distributed.shard import Shard
from mindspore_replay.distributed.writer import bits
from mindspore_replay.store.spec.spec import BufferSpec
from mindspore_replay.training.statistics import statistics_of

pytestmark = pytest.mark.cpu_only("shards lie in the memory of processes of their own")

NAMES, CAPACITY = ["observation", "reward", "terminated"], 24
WIDTH = 100
KINDS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "distinct": {"replace": False, "ordered": True},
    "limits": {"max_use": 3, "max_staleness": 4},
    "prioritized": {"type": "prioritized", "beta_steps": 5},
    "prioritized, limits": {"type": "prioritized", "max_use": 4, "normalize": "buffer", "initial_priority": 0.1},
    "n steps": {"type": "prioritized", "views": [NStep(2, 0.9)]},
    "frames": {"views": [FrameStack(3)]},
    "sequences": {"type": "sequence", "sequence_length": 3, "priorities": {}},
    "episodes": {"type": "episode", "max_episode_length": 4},
}


def config(kind: str) -> dict[str, Any]:
    return {
        "capacity": CAPACITY,
        "sample_size": 1,
        "names": NAMES,
        "data_shape": [[WIDTH], [], []],
        "data_type": ["float32", "float32", "bool"],
        "seed": 3,
        "backend": "native",
        **KINDS[kind],
    }


def spec_of(kind: str) -> BufferSpec:
    return shard_specs(whole_spec(config(kind))[0], 1, 3)[0]


def rows(first: int, n: int) -> list[np.ndarray]:
    numbers = np.arange(first, first + n)
    return [np.repeat(numbers[:, None], WIDTH, 1).astype(np.float32), numbers.astype(np.float32), numbers % 4 == 3]


def filled(kind: str, n: int = 40) -> tuple[Shard, Any]:
    """Return a shard and a buffer with the same rows."""
    shard, buffer = Shard(spec_of(kind), None), create_buffer(config(kind))
    shard.learn({"clock": 2, "largest": 1.0})
    shard.grant(np.inf)
    if buffer.weighted:
        buffer.advance(2)
    for first in range(0, n, 4):
        fields = rows(first, 4)
        more: dict[str, Any] = {"end": fields[2]} if buffer.has_episodes else {}
        if buffer.prioritized:
            more["priority"] = np.arange(1, 5, dtype=np.float32)
        shard.insert(fields, 4, more)
        buffer.insert(fields, **more)
    return shard, buffer


def kept(kind: str, folder: Path, number: int) -> Shard:
    shard = Shard(spec_of(kind), str(folder))
    shard.answer({"clock": 0, "largest": 0.0}, "resume", number, 0)
    return shard


def keep(shard: Shard, folder: Path, number: int) -> Path:
    shard._folder = folder
    shard.stage([number])
    shard.settle(number)
    return folder / f"save_{number}" / "shard_0.safetensors"


def assert_same(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other.asnumpy())


def assert_same_state(shard: Shard, buffer: Any) -> None:
    state = buffer.state_dict()
    assert shard.rows.state_dict().keys() == state.keys()
    for name, array in shard.rows.state_dict().items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_what_a_buffer_does(kind: str):
    shard, buffer = filled(kind)
    assert shard.begin(spec_of(kind).to_json(), False).nbytes == buffer.nbytes
    for n in (1, 3, 2):
        parts = shard.draw(n).parts
        assert_same(parts, full_sample(buffer.with_sample_size(n)))
    if buffer.weighted:
        assert shard.call("delete", parts[0] | 1 << 40) == 0  # of a later process
        assert shard.call("delete", parts[0]) == buffer.delete(parts[0])
        shard.learn({"clock": 5, "largest": 0.0})
        buffer.advance(3)
    assert_same_state(shard, buffer)
    with buffer.state.snapshot() as state:
        assert shard.statistics().values == statistics_of(state).values
    shard.rows.check_valid()
    shard.call_all("reset")
    assert shard.report().rows == 0
    assert_same_state(shard, buffer.reset())


def test_what_keeps_it_from_starting_is_raised_when_it_is_asked(monkeypatch: pytest.MonkeyPatch):
    """An error of a constructor comes from Ray as text; the error of a method comes as it is."""

    def fail(**_: Any) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(host, "ReplayBuffer", fail)
    shard = Shard(spec_of("uniform"), None)
    with pytest.raises(MemoryError, match="Unable to allocate 7 TiB"):
        shard.begin(spec_of("uniform").to_json(), False)


def test_rows_bring_their_versions():
    shard = Shard(spec_of("limits"), None)
    shard.learn({"clock": 2, "largest": 1.0})
    shard.grant(np.inf)
    shard.insert(rows(0, 4), 4, {"version": np.array([2, 0, 6, 1])})  # an actor may know of a newer clock
    assert shard.report().clock == 6
    assert shard.call("info", np.arange(4))[2].tolist() == [4, 6, 0, 5]
    shard.insert(rows(4, 4), 4, {"version": np.array([3, 3, 3, 3])})
    assert (shard.report().clock, shard.report().eligible) == (6, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_its_files_are_those_of_a_buffer(kind: str, tmp_path: Path):
    shard, buffer = filled(kind)
    mine = tmp_path / "save_1_copy" / keep(shard, tmp_path, 1).name
    shutil.copytree(tmp_path / "save_1", mine.parent)
    more = {"end": np.arange(4) == 3} if buffer.has_episodes else {}
    shard.insert(rows(40, 4), 4, more)
    buffer.insert(rows(40, 4), **more)
    if buffer.has_handles:
        given = np.array([40]), {"reward": np.full(1, 7, np.float32)}
        shard.call("update", *given)
        buffer.update(*given)
    shard.stage([2])
    path = tmp_path / "save_2" / mine.name
    again = kept(kind, tmp_path, 2)  # a process that died before it could settle the save
    assert {*tmp_path.rglob("*")} == {path.parent, path, mine.parent, mine}
    assert_same_state(shard, load(path))
    assert_same_state(again, buffer)
    note = {**shard._learner_state, "saves": [2]}
    assert again.begin(spec_of(kind).to_json(), True)[3:] == ([note], str(path.parent))
    assert_same(again.draw(2).parts, full_sample(buffer.with_sample_size(2)))
    other = "prioritized" if kind == "uniform" else "uniform"
    if spec_of(other).public_class != buffer.spec.public_class:
        with pytest.raises(ValueError, match=r"For 'load', 'buffer' must be what was saved in"):
            kept(other, tmp_path, 2)


#: Messages to a shard by priority, of which a writer or a learner sends none: a method and its arguments.
WRONG_MESSAGES: dict[str, Any] = {
    "no fields": lambda s: s.insert([], 3, {}),
    "a field too few": lambda s: s.insert(rows(0, 3)[:2], 3, {}),
    "other widths": lambda s: s.insert([np.ones((3, 2**20), np.float32), *rows(0, 3)[1:]], 3, {}),
    "a stride over nothing": lambda s: s.insert(
        [np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3, 2**40), (0, 0)), *rows(0, 3)[1:]], 3, {}
    ),
    "fields of several lengths": lambda s: s.insert([rows(0, 3)[0], *rows(0, 2)[1:]], 3, {}),
    "objects": lambda s: s.insert([np.array([None] * 3), *rows(0, 3)[1:]], 3, {}),
    "other dtypes": lambda s: s.insert([field.astype(np.complex64) for field in rows(0, 3)], 3, {}),
    "text": lambda s: s.insert("abc", 3, {}),
    "priorities that are no numbers": lambda s: s.insert(rows(0, 3), 3, {"priority": np.full(3, np.nan, np.float32)}),
    "priorities below zero": lambda s: s.insert(rows(0, 3), 3, {"priority": np.full(3, -1, np.float32)}),
    "too many priorities": lambda s: s.insert(rows(0, 3), 3, {"priority": np.ones(2**20, np.float32)}),
    "versions below zero": lambda s: s.insert(rows(0, 3), 3, {"version": np.full(3, -(2**63))}),
    "an argument that is none": lambda s: s.insert(rows(0, 3), 3, {"storage": "elsewhere"}),
    "priorities of other handles": lambda s: s.call("update_priorities", [2**63 - 1], [np.inf]),
    "handles beyond int64": lambda s: s.call("update_priorities", [2**64], [1.0]),
    "handles that are none": lambda s: s.call("info", "handles"),
    "a method that is none": lambda s: s.call("no_method", np.zeros(1, np.int64)),
    "fewer rows than none": lambda s: s.draw(-1),
}


@pytest.mark.parametrize("name", WRONG_MESSAGES)
def test_a_wrong_message_is_refused_and_changes_nothing(name: str):
    shard = Shard(spec_of("prioritized"), None)
    shard.learn({"clock": 2, "largest": 1.0})
    shard.grant(6)
    shard.insert(rows(0, 3), 3, {})
    before = shard.rows.state_dict()
    with pytest.raises((AttributeError, OverflowError, TypeError, ValueError)):
        WRONG_MESSAGES[name](shard)
    shard.rows.check_valid()
    for key, array in shard.rows.state_dict().items():
        assert array.tobytes() == before[key].tobytes(), key
    shard.insert(rows(3, 3), 3, {})  # which takes the rest of what was granted
    assert len(shard.rows) == 6


def test_the_bits_of_bfloat16():
    own = {"capacity": 8, "data_shape": [[2], []], "data_type": ["bfloat16", "uint16"], "names": ["half", "number"]}
    own |= {"sample_size": 1, "weighted": True, "seed": 0, "backend": "native"}
    shard, buffer = Shard(shard_specs(whole_spec(own)[0], 1, 0)[0], None), create_buffer(own)
    shard.grant(np.inf)
    given = [Tensor([[1.5, -2.0], [3.0, 0.25]], bfloat16).asnumpy(), np.array([1, 2], np.uint16)]
    shard.insert([bits(array) for array in given], 2, {})
    shard.insert([np.asfortranarray(bits(given[0])), given[1]], 2, {})
    buffer.insert(given).insert(given)
    skipped = shard.call("update", np.array([0]), {"half": bits(given[0][1:])})
    assert skipped == buffer.update([0], {"half": given[0][1:]}) == 0
    handles, halves, numbers = shard.draw(4).parts
    expected = full_sample(buffer.with_sample_size(4))
    assert (halves.dtype, numbers.dtype) == (np.uint16, np.uint16)
    assert_same([handles, halves.view(given[0].dtype), numbers], expected)


def test_bits_are_those_of_bfloat16_alone():
    """Arrays that come from another process have dtypes that NumPy does not count as its own."""
    for array in (np.float32(1.5), np.ones(4, np.float32), np.array(3), np.array([True])):
        sent = pickle.loads(pickle.dumps(np.asarray(array)))
        assert bits(sent) is sent
    assert bits(Tensor([1.0], bfloat16).asnumpy()).tolist() == [0x3F80]


WITHOUT_MINDSPORE = """
import pickle, sys
sys.modules["mindspore"] = None
from mindspore_replay.distributed.shard import Shard
for spec, folder in pickle.loads(sys.stdin.buffer.read()):
    shard = Shard(spec, folder)
    shard.answer({"clock": 0, "largest": 0.0}, "resume", 1, 0)
    shard.rows.check_valid()
    print([part.tolist() for part in shard.draw(2).parts])
"""


def test_it_does_without_mindspore(tmp_path: Path):
    given, expected = [], []
    for kind in KINDS:
        shard, buffer = filled(kind)
        keep(shard, tmp_path / kind, 1)
        given.append((spec_of(kind), str(tmp_path / kind)))
        expected.append(str([part.asnumpy().tolist() for part in full_sample(buffer.with_sample_size(2))]))
    command = [sys.executable, "-c", WITHOUT_MINDSPORE]
    done = subprocess.run(command, input=pickle.dumps(given), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == expected


def test_each_shard_has_its_capacity_and_seed():
    whole = whole_spec({**config("n steps"), "capacity": 59, "sample_size": 40})[0]
    for i, part in enumerate(shard_specs(whole, 2, 3)):
        buffer = create_buffer({**config("n steps"), "capacity": 30 - i, "seed": 3 + i})
        assert part.options == buffer.options
        assert part.to_json() == contents_of("save", buffer)[0]
