"""Saving buffers to files and loading them: all state, other capacities, several buffers, and errors."""

import json
import re
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checkpoint_cases import (
    BUFFERS,
    NAMES,
    RESERVOIRS,
    RINGS,
    SCHEMA,
    assert_same_state,
    containers,
    draws,
    filled,
    insert,
)
from mindspore import nn
from safetensors import safe_open
from safetensors.numpy import load_file

from mindspore_replay import (
    EpochReplayBuffer,
    HindsightRelabel,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    RateLimiter,
    ReplayBuffer,
    ReservoirReplayBuffer,
    load,
    save,
)
from mindspore_replay.store.spec.epochs import BEGUN

PATH = "buffer.safetensors"


@pytest.mark.parametrize("name", ["uniform", "views"])
def test_a_limiter(name: str):
    """Rule and counts are those that were saved, also for a limiter without an end and in another capacity."""
    buffer = RINGS[name](seed=0)
    buffer.limiter = RateLimiter((1, float("inf")), 4, 50, timeout=3)
    insert(buffer, 12)
    buffer.sample()
    buffer.limiter.disable()
    save(buffer, PATH)
    given = RINGS[name](seed=1)
    given.limiter = RateLimiter(2, 1, 50)
    for loaded in (load(PATH), load(PATH, buffer=given), load(PATH, capacity=9)):
        assert (loaded.limiter.inserted, loaded.limiter.sampled, loaded.limiter.enabled) == (12, 3, False)
        assert loaded.limiter.rule.tolist() == buffer.limiter.rule.tolist()
    assert load(PATH).limiter.timeout == 3
    assert_same_state(given, buffer)
    with pytest.raises(ValueError, match=r"unknown arrays \['limiter.counts', 'limiter.rule'\]"):
        load(PATH, buffer=RINGS[name](seed=1))


@pytest.mark.parametrize("name", BUFFERS)
def test_an_empty_buffer_and_one_that_was_reset(name: str):
    buffer = BUFFERS[name](seed=0)
    save(buffer, PATH)
    assert_same_state(load(PATH), buffer)
    insert(buffer, 30)
    buffer.reset()
    for count in (0, 2):
        insert(buffer, count) if count else None
        save(buffer, PATH)
        loaded = load(PATH)
        loaded.check_valid()
        assert_same_state(loaded, buffer)


def test_constructor_arguments():
    """Every argument comes back, in any form of input, and later changes by the caller have no effect."""
    names = list(NAMES)
    view = NStep(2, gamma=0.5)
    buffer = PrioritizedReplayBuffer(
        np.int64(3),
        9,
        [[2], (), ()],
        [ms.float32, "float32", ms.bool_],
        names=names,
        num_envs=3,
        max_use=4,
        alpha=np.float64(0.25),
        beta=0.5,
        epsilon=0,
        normalize="buffer",
        initial_priority=5,
        views=(view,),
        backend="native",
        seed=3,
    )
    names[0] = "other"
    save(buffer, PATH)
    loaded = load(PATH)
    for key in ("sample_size", "capacity", "shapes", "types", "names", "num_envs"):
        assert getattr(loaded, key) == getattr(buffer, key), key
    assert (loaded.spec.priorities, loaded.spec.parts.limits) == (buffer.spec.priorities, buffer.spec.parts.limits)
    assert (loaded.options.rule, loaded.options.plan) == (buffer.options.rule, buffer.options.plan)
    assert (loaded.spec.priorities.initial_priority, float(loaded.reset().max_priority.asnumpy())) == (5, 5)


def test_a_backend_can_be_chosen():
    buffer = filled(RINGS["prioritized"], backend="native")
    save(buffer, PATH)
    loaded = load(PATH, backend="composite")
    assert loaded.backend == "composite"
    assert load(PATH).backend == "native"
    assert draws(loaded) == draws(buffer)


EVERY_TYPE = [
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "bfloat16",
]


def test_every_dtype_and_the_safetensors_library():
    """That library reads the file, with each array aligned to its elements."""
    buffer = ReplayBuffer(2, 5, [(3,)] * len(EVERY_TYPE), EVERY_TYPE, seed=0)
    columns = [(np.arange(21).reshape(7, 3) % 5).astype(dtype) for dtype in buffer.columns.numpy_types]
    buffer.insert(columns)
    save(buffer, PATH)
    assert_same_state(load(PATH), buffer)
    with safe_open(PATH, "numpy") as file:
        assert set(file.keys()) == set(buffer.state_dict()) - {"version", "capacity"}
        metadata = file.metadata()
    assert (metadata["format"], metadata["format_version"]) == ("mindspore_replay", "2")
    content = Path(PATH).read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 64 == 56
    header = json.loads(content[8 : 8 + length])
    sizes = {"8": 1, "16": 2, "32": 4, "64": 8}
    for key, entry in header.items():
        if key != "__metadata__":
            assert entry["data_offsets"][0] % sizes[re.sub(r"\D", "", entry["dtype"])] == 0, key


def test_the_file_holds_rows_from_the_oldest_to_the_newest():
    buffer = filled(RINGS["prioritized"], 31)
    save(buffer, PATH)
    arrays = load_file(PATH)
    assert arrays["column.reward"].tolist() == list(range(7, 31))
    assert arrays["column.terminated"].dtype == np.uint8
    assert arrays["weights"].shape == (24,)
    empty = filled(RINGS["uniform"], 0)
    save(empty, PATH)
    assert load_file(PATH)["column.observation"].shape == (0, 40)


def test_a_capacity_of_one_or_two():
    """Arrays that have the buffer's length only by chance are not taken for rows."""
    for capacity in (1, 2):
        for make in (PrioritizedReplayBuffer, ReservoirReplayBuffer):
            buffer = make(1, capacity, [(2,)], ["int32"], seed=0)
            buffer.insert([np.arange(10, dtype=np.int32).reshape(5, 2)])
            save(buffer, PATH)
            assert_same_state(load(PATH), buffer)


# Other capacities; `test_twin.py` has rows of every kind.


def test_the_window_of_an_elastic_buffer():
    """It becomes no larger than the buffer, and a window of all rows remains one of all rows."""
    buffer = filled(RINGS["elastic"])
    for window, capacity, expected in ((20, 10, 10), (20, 40, 20), (24, 40, 40), (4, 10, 4), (4, 5, 4)):
        buffer.set_window(window)
        save(buffer, PATH)
        assert load(PATH, capacity=capacity).window.asnumpy().tolist() == [expected]


@pytest.mark.parametrize("last", ["drop", "pad"])
@pytest.mark.parametrize("ended", [False, True])
def test_an_epoch_in_another_capacity(last: str, ended: bool):
    """If it fits it goes on, and each row comes once; one of more rows, or that was over, is over."""

    def batch(buffer: Any) -> list[int]:
        *mask, column = (array.asnumpy() for array in buffer.sample())
        return column[mask[0]].tolist() if mask else column.tolist()

    for taken in range(4):
        buffer = EpochReplayBuffer(2, 11, [()], ["int32"], last=last, seed=0)
        buffer.insert([np.arange(5, dtype=np.int32)])
        seen = [row for _ in range(min(taken, buffer.batches())) for row in batch(buffer)]
        _ = buffer.begin_epoch() if ended else buffer
        save(buffer, PATH)
        for capacity in (2, 3, 4, 5, 7, 40):
            loaded = load(PATH, capacity=capacity)
            loaded.check_valid()
            begun, got = int(loaded.epoch.asnumpy()[BEGUN]), batch(loaded)
            goes_on = 0 < taken < buffer.batches() and not ended and capacity >= 5
            assert loaded.epoch.asnumpy()[BEGUN] == begun + (not goes_on)
            got += seen if goes_on else []
            assert len(set(got)) == len(got)
            assert set(got) <= set(range(max(5 - capacity, 0), 5))


@pytest.mark.parametrize("name", RESERVOIRS)
def test_a_reservoir_keeps_its_capacity(name: str):
    save(filled(RESERVOIRS[name]), PATH)
    message = (
        "For 'load', 'capacity' must be 24, that of the reservoir in buffer.safetensors, since it is a sample of this "
        "size, but got 30."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load(PATH, capacity=30)
    with pytest.raises(ValueError, match="that of the reservoir"):
        load(PATH, buffer=RESERVOIRS[name](30))


# Several buffers.


def parts(buffers: Any) -> list[Any]:
    if isinstance(buffers, dict):
        return [part for value in buffers.values() for part in parts(value)]
    if isinstance(buffers, nn.CellList):
        return [part for value in buffers for part in parts(value)]
    return list(buffers.sources) if isinstance(buffers, MixedReplay) else [buffers]


@pytest.mark.parametrize("name", ["mixed", "dict", "list", "dict of lists"])
def test_several_buffers_in_one_file(name: str):
    saved, given = containers()[name], containers()[name]
    save(saved, PATH)
    for part in parts(given):
        insert(part, 5)
        part.sample()
    load(PATH, buffer=given)
    new = load(PATH)
    for loaded in (new, given):
        assert type(loaded) is type(saved)
        for got, expected in zip(parts(loaded), parts(saved), strict=True):
            assert_same_state(got, expected)
    if isinstance(saved, dict):
        assert list(new) == list(saved)
    if isinstance(saved, MixedReplay):
        assert draws(new) == draws(saved)
    if name == "dict of lists":
        saved_names = [parameter.name for parameter in new["several"].get_parameters()]
        assert saved_names[0].startswith("several.0.")


def test_several_buffers_errors():
    both = containers()["dict"]
    save(both, PATH)
    with pytest.raises(
        ValueError,
        match=r"'capacity' must be None for a file with several buffers, \{'agent': PrioritizedReplayBuffer, "
        r"'expert': ReplayBuffer\}, but got 9. Make them",
    ):
        load(PATH, capacity=9)
    for wrong in (
        {"agent": both["agent"]},
        {"expert": both["expert"], "agent": both["agent"]},
        {"agent": both["expert"], "expert": both["agent"]},
        nn.CellList([both["agent"], both["expert"]]),
        both["agent"],
    ):
        with pytest.raises(
            ValueError, match=r"'buffer' must be what was saved in buffer.safetensors, \{'agent': Prior"
        ):
            load(PATH, buffer=wrong)
    for wrong in (nn.CellList(), {"a": nn.Dense(1, 1)}):
        with pytest.raises(TypeError, match="'buffer' must be a buffer, a MixedReplay, or a dict, list or CellList of"):
            save(wrong, PATH)


# Buffers that a file cannot create, and other errors.


def relabelled(**other: Any) -> ReplayBuffer:
    view = HindsightRelabel("future", 0.8, lambda achieved, goal: achieved - goal)
    names = ["achieved_goal", "desired_goal", "reward"]
    return ReplayBuffer(2, 10, [()] * 3, ["float32"] * 3, names=names, views=[view], **other)


class OwnBuffer(ReplayBuffer):
    """A class unknown to mindspore_replay."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(2, 10, [()] * 3, ["float32"] * 3, seed=seed)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (relabelled, "HindsightRelabel holds what no file can: Python code"),
        (OwnBuffer, "OwnBuffer is no class of mindspore_replay"),
    ],
)
def test_buffers_that_a_file_cannot_make(make: Any, reason: str):
    buffer = make(seed=0)
    buffer.insert([np.arange(12, dtype=np.float32)] * 3)
    save(buffer, PATH)
    message = (
        f"For 'load', no buffer can be made from {PATH}: it has no arguments to make the buffer with, since {reason}: "
        "make it as it was made for saving, and give it as 'buffer'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load(PATH)
    assert_same_state(load(PATH, buffer=make(seed=1)), buffer)
    with pytest.raises(ValueError, match="'buffer' must be what was saved"):
        load(PATH, buffer=RINGS["prioritized"]())


def test_buffers_that_do_not_fit():
    """Errors state the cause, and the buffer is unchanged."""
    saved = filled(RINGS["prioritized"])
    saved.update_priorities(saved.sample()[0], 2.0)
    save(saved, PATH)
    other_columns = PrioritizedReplayBuffer(3, 24, [(3,), (), ()], ["float32", "int32", "bool"], names=NAMES)
    other_names = PrioritizedReplayBuffer(3, 24, SCHEMA["shapes"], SCHEMA["types"])
    other_alpha = PrioritizedReplayBuffer(3, 24, **SCHEMA, alpha=0.3)
    for buffer, what in (
        (other_columns, r"'column.observation': expected float32 \['rows', 3\], but got float32 \['rows', 40\]; 'col"),
        (
            other_names,
            r"'column.0': expected float32 \['rows', 40\], but got nothing; .*; unknown arrays \['column.obs",
        ),
        (other_alpha, r"buffer.safetensors contains an impossible state. For 'PrioritizedReplayBuffer', the weights"),
        (RINGS["uniform"](), r"must be what was saved in buffer.safetensors, PrioritizedReplayBuffer, but got Replay"),
    ):
        before = buffer.state_dict()
        with pytest.raises(ValueError, match=what):
            load(PATH, buffer=buffer)
        for key, array in buffer.state_dict().items():
            np.testing.assert_array_equal(array, before[key])


def test_a_capacity_that_is_too_small_for_the_rows_of_a_file():
    save(RINGS["sequence"](seed=0), PATH)
    with pytest.raises(ValueError, match=r"no buffer can be made from buffer.safetensors: .* 'capacity' must be"):
        load(PATH, capacity=3)


def test_a_path_through_a_link():
    """The file is replaced, not the link to it."""
    Path("real").mkdir()
    Path(PATH).symlink_to("real/file")
    buffer = filled(RINGS["uniform"])
    for _ in range(2):
        save(buffer, Path(PATH))
    assert Path(PATH).is_symlink()
    assert [entry.name for entry in Path("real").iterdir()] == ["file"]
    assert_same_state(load(PATH), buffer)


def test_progress(capsys: pytest.CaptureFixture[str]):
    buffer = filled(RINGS["prioritized"])
    save(buffer, PATH, progress=True)
    load(PATH, progress=True)
    load(PATH, buffer=buffer, progress=True)
    shown = capsys.readouterr().err
    assert "save: 100%" in shown
    assert shown.count("load: 100%") == 2
    save(buffer, PATH)
    load(PATH)
    assert capsys.readouterr().err == ""


def test_progress_needs_tqdm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"'save' needs tqdm: pip install -e \"\.\[examples\]\" in a checkout"):
        save(filled(RINGS["uniform"]), PATH, progress=True)
    assert not list(Path().iterdir())
