"""A forked process: what it got of its parent's buffers says that they are not its own, and its own work."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

import mindspore_replay as device
from mindspore_replay import MixedReplay, Prefetch, attach, host

CLASSES = "ReplayBuffer", "PrioritizedReplayBuffer", "ReplayQueue", "ReservoirReplayBuffer", "EpochReplayBuffer"


def in_a_fork(run: Callable[[], None]) -> None:
    """Run a function in a fork, and fail with what it raises."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            run()
        except BaseException:
            text = traceback.format_exc()
        os.write(theirs, text.encode()[:60000])
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as file:
        text = file.read()
    os.waitpid(child, 0)
    assert not text, text


def refuses(message: str, *calls: Callable[[], Any]) -> None:
    for call in calls:
        with pytest.raises(RuntimeError, match=message):
            call()


def used(buffer: Any) -> list[Callable[[], Any]]:
    rows = [np.arange(3, dtype=np.int32)]
    return [
        lambda: buffer.insert(rows),
        lambda: buffer.insert([1]),
        buffer.sample,
        buffer.size,
        buffer.can_sample,
        buffer.state_dict,
        lambda: buffer.with_sample_size(2).sample(),
        lambda: buffer.get_item([0]),
    ]


@pytest.mark.parametrize("package", [host, device], ids=["arrays", "Cells"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_buffer_of_the_parent_is_refused(package: Any, name: str):
    buffer = getattr(package, name)(1, 9, [()], ["int32"], seed=0).insert([np.arange(3, dtype=np.int32)])
    if name == "ReplayBuffer":
        buffer.limiter = package.RateLimiter(1, 1, 100)
    sized = buffer.with_sample_size(2)
    message = f"^For '{name}', the buffer belongs to the process from which this one was forked: .*attach"
    in_a_fork(lambda: refuses(message, *used(buffer), sized.sample))
    assert len(buffer) == 3


@pytest.mark.parametrize("package", [host, device], ids=["arrays", "Cells"])
def test_a_folder_of_the_parent_is_attached_to(package: Any, tmp_path: Path):
    buffer = package.ReplayBuffer(1, 9, [()], ["int32"], seed=0, storage=tmp_path / "rows")
    buffer.insert([np.arange(3, dtype=np.int32)])

    def run() -> None:
        refuses(rf"use attach\('{tmp_path}/rows'\)", *used(buffer), buffer.flush)
        attach(tmp_path / "rows").insert([7])
        buffer.close()  # does nothing
        host.ReplayBuffer(1, 9, [()], ["int32"]).insert([1]).sample()

    in_a_fork(run)
    assert len(buffer) == 4
    buffer.close()


def test_right_after_a_compiled_step_too():
    buffer = device.ReplayBuffer(1, 9, [()], ["int32"], seed=0).insert([np.arange(3, dtype=np.int32)])

    @ms.jit
    def draw():
        return buffer.sample()

    draw()
    in_a_fork(lambda: refuses("belongs to the process", *used(buffer)))


def test_mixtures_and_prefetch_are_refused():
    buffer = device.ReplayBuffer(1, 9, [()], ["int32"], seed=0).insert([np.arange(3, dtype=np.int32)])
    mixture = MixedReplay([(buffer, 1)], 1)
    with Prefetch(buffer) as batches:
        batches.sample()
        in_a_fork(lambda: refuses("belongs to the process", batches.sample, mixture.sample, mixture.can_sample))
        assert len(batches.sample()) == 1


def test_an_attached_object_goes_on_in_the_fork(tmp_path: Path):
    buffer = host.ReplayBuffer(1, 9, [()], ["int32"], seed=0, storage=tmp_path / "rows")
    other = attach(tmp_path / "rows")
    in_a_fork(lambda: other.insert([1]) and None)
    assert len(buffer) == len(other) == 1
    buffer.close()
