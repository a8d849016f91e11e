"""Weights for actors: whole versions, in each process, whoever is killed."""

import concurrent.futures
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_replay import ReplayBuffer, SharedWeights, attach, host, save

COLUMNS = {"shapes": [()], "types": ["int32"]}


def test_an_actor_reads_each_version_once(tmp_path):
    network = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4))
    buffer = ReplayBuffer(1, 9, **COLUMNS, weighted=True, storage=str(tmp_path / "rows"))
    ours, theirs = SharedWeights(buffer), SharedWeights(attach(tmp_path / "rows"))
    assert theirs.read() is None
    assert theirs.version is None
    assert ours.publish(network) == ours.version == 0
    weights = theirs.read()
    expected = {name: parameter.asnumpy() for name, parameter in network.parameters_and_names()}
    assert list(weights) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(weights[name], array)
    assert theirs.read() is None
    buffer.advance(7)
    assert ours.publish({"w": ms.Tensor([1.5], ms.bfloat16), "scalar": np.float32(2.0)}) == 7
    assert ours.read() is None
    weights = theirs.read()
    assert (weights["w"].dtype, weights["w"].tolist(), weights["scalar"].shape) == (np.float32, [1.5], ())
    weights["w"][0] = 0.0  # an array of the reader's
    assert theirs.version == 7
    attach(tmp_path / "rows").insert([1], version=theirs.version)
    assert buffer.info([0])[2] == 0


def test_names_stay_when_an_optimizer_renames_parameters(tmp_path):
    class Network(nn.Cell):
        def __init__(self):
            super().__init__()
            self.head = nn.SequentialCell(nn.Dense(2, 3), nn.ReLU())

    network, weights, reader = Network(), SharedWeights(tmp_path), SharedWeights(tmp_path)
    weights.publish(network)
    before = list(reader.read())
    nn.Adam(network.trainable_params())
    owner = nn.CellList([network])
    assert [parameter.name for parameter in owner.get_parameters()] != before
    weights.publish(network)
    assert list(reader.read()) == before == ["head.0.weight", "head.0.bias"]


def test_the_version_is_the_clock_of_a_learner_without_mindspore(tmp_path):
    buffer = host.PrioritizedReplayBuffer(1, 9, **COLUMNS, storage=str(tmp_path / "rows"))
    weights = SharedWeights(buffer)
    assert [weights.publish({"w": np.zeros(2)}) for _ in range(2) if buffer.advance(3)] == [3, 6]
    plain = host.ReplayBuffer(1, 9, **COLUMNS, storage=str(tmp_path / "plain"))
    assert [SharedWeights(plain).publish({"w": np.zeros(2)}) for _ in range(2)] == [0, 1]


def test_versions_count_without_a_clock_and_go_on_in_a_new_process(tmp_path):
    assert [SharedWeights(tmp_path).publish({"w": np.zeros(2)}) for _ in range(3)] == [0, 1, 2]
    assert SharedWeights(tmp_path).publish({"w": np.zeros(2)}, version=9) == 9


def test_an_object_may_be_sent_to_another_process(tmp_path):
    folder = tmp_path / "rows"
    buffer = ReplayBuffer(1, 9, **COLUMNS, weighted=True, storage=str(folder))
    ours, theirs = SharedWeights(buffer), SharedWeights(attach(folder))
    ours.publish({"w": np.arange(3)})
    assert theirs.read()["w"].tolist() == [0, 1, 2]
    sent = pickle.loads(pickle.dumps(theirs))
    assert (sent.version, sent.read()["w"].tolist(), sent.read()) == (None, [0, 1, 2], None)
    assert sent.publish({"w": np.arange(3)}, 4) == 4
    assert theirs.read() is not None
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match="rows"):
        ours.publish({"w": np.arange(3)})


def test_versions_of_one_moment_are_all_read(tmp_path, monkeypatch):
    reader, writer = SharedWeights(tmp_path), SharedWeights(tmp_path)
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    for number in range(5):
        for repeat in range(2):  # the second takes the place on the disk of the one before the first
            writer.publish({"w": np.array([number, repeat])})
        assert reader.read()["w"].tolist() == [number, 1]
        assert reader.read() is None


def test_a_read_waits_for_the_first_version(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        wait = executor.submit(SharedWeights(tmp_path).read, timeout=60)
        SharedWeights(tmp_path).publish({"w": np.arange(3)})
        assert wait.result()["w"].tolist() == [0, 1, 2]
    assert SharedWeights(tmp_path / "..").read(timeout=0.01) is None


WRITER = """
import sys
import numpy as np
from mindspore_replay import SharedWeights
weights = SharedWeights(sys.argv[1])
while True:
    version = weights._following()
    weights.publish({name: np.full(40_000, version) for name in "ab"}, version)
"""


def test_a_version_is_whole_also_if_its_writer_is_killed(tmp_path):
    reader, last, kills = SharedWeights(tmp_path), -1, 0
    random = np.random.default_rng(0)
    while kills < 3:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
        until, before = None, last
        while until is None or time.monotonic() < until:
            weights = reader.read()
            if weights is None:
                continue
            assert {array.size for array in weights.values()} == {40_000}
            assert {*weights["a"], *weights["b"]} == {reader.version}
            assert reader.version > last
            last = reader.version
            if until is None and last > before + 10:
                until = time.monotonic() + random.uniform(0, 0.02)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        kills += 1
    reader.read()
    assert SharedWeights(tmp_path).publish({"a": np.zeros(1)}) > last


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:20], lambda data: b"", lambda data: b"[]\n"]
)
def test_a_file_that_the_machine_did_not_finish(tmp_path, damage):
    weights = SharedWeights(tmp_path)
    weights.publish({"a": np.zeros(9)})
    file = tmp_path / "weights"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"weights is damaged: publish the weights again"):
        SharedWeights(tmp_path).read()
    assert weights.publish({"a": np.ones(9)}) == 0
    np.testing.assert_array_equal(SharedWeights(tmp_path).read()["a"], np.ones(9))


@pytest.mark.parametrize(
    ("limit", "error"), [(resource.RLIMIT_FSIZE, "File too large"), (resource.RLIMIT_NOFILE, "Too many open files")]
)
def test_a_system_that_refuses_a_version_or_a_file(limit, error, tmp_path):
    weights, buffer = SharedWeights(tmp_path), host.ReplayBuffer(1, 999, **COLUMNS)
    weights.publish({"a": np.ones(9)})
    save(buffer, tmp_path / "file")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    calls = {
        ("SharedWeights.publish", "weights"): lambda: weights.publish({"a": np.zeros(9999)}),
        ("save", "file"): lambda: save(buffer.insert([np.zeros(999, np.int32)]), tmp_path / "file"),
    }
    now = resource.getrlimit(limit)
    for (function, name), call in calls.items():
        resource.setrlimit(limit, (0, now[1]))
        try:
            with pytest.raises(OSError, match=rf"For '{function}', .*{name} could not be written .* before: {error}$"):
                call()
        finally:
            resource.setrlimit(limit, now)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert weights.publish({"a": np.ones(9)}) == 1
