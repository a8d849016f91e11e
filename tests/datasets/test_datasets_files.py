"""Buffers from npz and HDF5 files, and back to npz."""

import contextlib
import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from flat import flat

import mindspore_replay
from mindspore_replay import (
    EpisodeReplayBuffer,
    FrameStack,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    host,
)
from mindspore_replay.datasets import EpisodeTable, from_hdf5, from_npz, steps, tables, to_npz

#: Three episodes: one terminates, one reaches a time limit, one breaks off.
D4RL = {
    "observations": np.arange(9, dtype=np.float32)[:, None] * [1, 10],
    "actions": np.arange(9, dtype=np.float32)[:, None] / 8,
    "rewards": np.arange(9, dtype=np.float32),
    "terminals": np.arange(9) == 2,
    "timeouts": np.arange(9) == 6,
}
D4RL["observations"] = D4RL["observations"].astype(np.float32)
COLUMNS = ["observation", "action", "reward", "next_observation", "terminated", "truncated"]


def write_hdf5(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array
    return path


@pytest.fixture(params=["hdf5", "npz"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that writes arrays to a file and reads it into a buffer."""

    def write_file(arrays: dict[str, np.ndarray], name: str = "file") -> Any:
        path = tmp_path / f"{name}.{request.param}"
        if request.param == "hdf5":
            write_hdf5(path, arrays)
            return lambda **arguments: from_hdf5(path, **arguments)
        np.savez(path, **arrays)
        return lambda **arguments: from_npz(path, **arguments)

    return write_file


def rows(buffer: Any) -> dict[str, np.ndarray]:
    """Return all rows of a buffer, by column."""
    got = buffer.get_item(np.arange(int(buffer.size())))
    return dict(zip(buffer.columns.names, (part.asnumpy() for part in got)))


def warned(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(record.getMessage() for record in caplog.records if record.name == "mindspore_replay.datasets")


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files and fill buffers two rows at a time."""
    monkeypatch.setattr(steps, "CHUNK_ROWS", 2)


def qlearning_dataset(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Apply D4RL's function of this name to a file without a limit on steps, in its own words."""
    kept = []
    for i in range(len(arrays["rewards"]) - 1):
        if not arrays["timeouts"][i]:
            kept.append(i)
    return {
        "observation": arrays["observations"][kept],
        "next_observation": arrays["observations"][np.array(kept) + 1],
        "action": arrays["actions"][kept],
        "reward": arrays["rewards"][kept],
        "terminated": arrays["terminals"][kept],
    }


@pytest.mark.usefixtures("_small_chunks")
def test_d4rl_without_next_observations_is_what_qlearning_dataset_gives(write: Any, caplog: pytest.LogCaptureFixture):
    buffer = write({**D4RL, "infos/qpos": np.zeros(3), "metadata/algorithm": np.array(b"SAC")})()
    assert list(buffer.names) == COLUMNS
    assert (buffer.capacity, buffer.sample_size) == (7, 7)  # a sample of 256 rows could never be drawn
    assert "2 of 9 steps dropped" in warned(caplog)
    got, expected = rows(buffer), qlearning_dataset(D4RL)
    assert got["reward"].tolist() == [0, 1, 2, 3, 4, 5, 7]
    goes_on = ~got["terminated"]
    for name, array in expected.items():
        where = goes_on if name == "next_observation" else slice(None)
        np.testing.assert_array_equal(got[name][where], array[where])
        assert got[name].dtype == array.dtype
    # D4RL has the first observation of the next episode there; neither is used in a target.
    np.testing.assert_array_equal(got["next_observation"][2], got["observation"][2])
    assert not got["truncated"].any()


@pytest.mark.usefixtures("_small_chunks")
def test_d4rl_with_next_observations_loses_no_step(write: Any, caplog: pytest.LogCaptureFixture):
    following = D4RL["observations"] + np.array([1, 10], np.float32)
    following[[6, 8]] += 0.5
    buffer = write({**D4RL, "next_observations": following})()
    assert list(buffer.names) == COLUMNS
    got = rows(buffer)
    np.testing.assert_array_equal(got["next_observation"], following)
    np.testing.assert_array_equal(got["truncated"], D4RL["timeouts"])
    assert not warned(caplog)
    without = write({**{k: v for k, v in D4RL.items() if k != "timeouts"}, "next_observations": following}, "without")()
    assert not rows(without)["truncated"].any()


@pytest.mark.usefixtures("_small_chunks")
def test_rows_that_know_their_episode_store_observations_once(write: Any, caplog: pytest.LogCaptureFixture):
    following = D4RL["observations"] + np.array([1, 10], np.float32)
    following[[6, 8]] += 0.5
    buffer = write({**D4RL, "next_observations": following})(views=[NStep(1, 0.9)], sample_size=1)
    assert list(buffer.names) == ["observation", "action", "reward", "terminated", "truncated"]
    got = rows(buffer)
    assert buffer.capacity == 12  # the observation after each episode is a row
    assert got["observation"][:, 0].tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 7.5, 7, 8, 9.5]
    assert np.flatnonzero(buffer.flags.asnumpy() & 3).tolist() == [3, 8, 11]
    assert set(buffer.flags.asnumpy()[[3, 8, 11]]) == {3}  # end and final
    buffer.check_valid()

    buffer = write(D4RL, "without")(views=[NStep(1, 0.9)])
    assert buffer.capacity == 9
    assert buffer.flags.asnumpy().tolist() == [0, 0, 1, 0, 0, 0, 3, 0, 3]
    assert "2 of 9 steps stored as final rows" in warned(caplog)
    assert int(buffer.eligible()) == 7


def test_a_given_buffer_ends_before_a_step_that_is_dropped(write: Any):
    """With next observations stored and the last step dropped, n-step returns must not enter the next episode."""
    types = ["float32", "float32", "float32", "float32", "bool"]
    for size in (1, 2, 3, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "CHUNK_ROWS", size)
            views = [NStep(3, 1.0)]
            shapes: Any = [(2,), (1,), (), (2,), ()]
            buffer = ReplayBuffer(1, 20, shapes, types, names=COLUMNS[:5], views=views, backend="native")
            buffer.insert(
                [D4RL[key][:1] for key in ("observations", "actions", "rewards", "observations", "terminals")]
            )
            write(D4RL, f"file{size}")(buffer=buffer)
        assert buffer.flags.asnumpy()[:8].tolist() == [1, 0, 0, 1, 0, 0, 1, 1]  # the row inserted before ends too
        assert rows(buffer)["reward"].tolist() == [0, 0, 1, 2, 3, 4, 5, 7]


def test_episodes_are_chosen_by_position_or_by_a_function(write: Any):
    read = write(D4RL)
    tables: list[EpisodeTable] = []

    def best(table: EpisodeTable) -> np.ndarray:
        tables.append(table)
        return np.argsort(table.total_reward)[-2:]

    for episodes, rewards in [
        ([0, -1], [0, 1, 2, 7]),
        (slice(1), [0, 1, 2]),
        (np.array([False, True, False]), [3, 4, 5]),
        (best, [3, 4, 5, 7]),
        (lambda table: table.terminated, [0, 1, 2]),
    ]:
        buffer = read(episodes=episodes)
        assert rows(buffer)["reward"].tolist() == rewards
        assert buffer.capacity == len(rewards)
    assert tables[0].length.tolist() == [3, 4, 2]
    assert tables[0].total_reward.tolist() == [3, 18, 15]
    assert tables[0].truncated.tolist() == [False, True, False]


def test_groups_are_columns_by_name(tmp_path: Path):
    arrays = {f"observations/{key}": np.arange(4.0) for key in ("arm/angle", "goal")}
    arrays |= {"actions": np.arange(4), "rewards": np.ones(4), "terminals": np.arange(4) == 3, "timeouts": np.zeros(4)}
    buffer = from_hdf5(write_hdf5(tmp_path / "x.hdf5", arrays), types={"observation": "float32", "reward": "float16"})
    assert list(buffer.names) == [
        *("observation.arm.angle", "observation.goal", "action", "reward"),
        *("next_observation.arm.angle", "next_observation.goal", "terminated", "truncated"),
    ]
    types = [str(dtype).lower() for dtype in buffer.types]
    assert types == ["float32", "float32", "int64", "float16", "float32", "float32", "bool", "bool"]
    given = ReplayBuffer(1, 9, [(), ()], ["float64"] * 2, names=["goal", "next_goal"])  # the names of VectorRows
    from_hdf5(tmp_path / "x.hdf5", buffer=given)
    assert rows(given)["next_goal"].tolist() == [1, 2, 3, 3]


def test_values_are_cast_as_insert_casts_them(write: Any):
    read = write({**D4RL, "actions": np.arange(9) * 100})
    buffer = ReplayBuffer(1, 9, [(2,), ()], ["float64", "int16"], names=["observation", "action"])
    read(buffer=buffer)
    assert rows(buffer)["action"].tolist() == list(range(0, 900, 100))  # no next observation, so no step is dropped
    for name, dtype, error, text in [
        ("action", "int8", ValueError, "must fit int8, but got 200"),
        ("action", "bool", ValueError, "must fit bool, but got 100"),
        ("reward", "bool", TypeError, "must have a dtype that bool holds, but got float32"),
    ]:
        buffer = ReplayBuffer(1, 9, [()], [dtype], names=[name])
        with pytest.raises(error, match=text):
            read(buffer=buffer)


def test_axes_of_length_one_come_and_go(write: Any):
    """MindSpore RL's columns of scalars have shape (1,)."""
    names, types = ["action", "reward", "terminated"], ["float32", "float32", "uint8"]
    buffer = write(D4RL)(buffer=ReplayBuffer(1, 9, [(), (1,), (1, 1)], types, names=names))
    assert rows(buffer)["action"].tolist() == [i / 8 for i in range(9)]
    assert rows(buffer)["reward"].shape == (9, 1)
    assert rows(buffer)["terminated"].ravel().tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0]


def given(*shape: int, names: Any = ("observation",), **options: Any) -> Any:
    """Return a buffer of columns of this shape."""
    return host.ReplayBuffer(1, 10, [shape] * len(names), ["float32"] * len(names), names=list(names), **options)


#: Arrays of a file that are others or missing, arguments, and the error.
REFUSED: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
    ({"rewards": None}, {}, ValueError, r"must have D4RL's keys, but lacks \['rewards'\]; it has .*'timeouts'"),
    ({"rewards": np.zeros(8)}, {}, ValueError, r"arrays of one length.*'actions': 9.*'rewards': 8"),
    ({"rewards": np.float32(1)}, {}, ValueError, "'rewards': None"),
    ({"timeouts": None}, {}, ValueError, "must mark where episodes end.*'timeouts' or next observations"),
    ({"terminals": np.full(9, 2)}, {}, ValueError, "'terminals' of .* must hold bools or 0 and 1, but got 2"),
    ({"terminals": np.zeros((9, 1))}, {}, ValueError, r"flags of .* must have shape \(9,\)"),
    ({"actions": np.array(["a"] * 9, "S1")}, {}, TypeError, r"arrays of numbers, but 'actions' is \|S1"),
    ({}, {"episodes": [3]}, IndexError, "must name episodes of the 3 in"),
    ({}, {"episodes": []}, ValueError, "must name at least one of the 3"),
    ({}, {"episodes": [0.5]}, TypeError, "must be a slice, ints, one bool for each episode"),
    ({}, {"episodes": [True]}, IndexError, "must name episodes of the 3"),
    ({}, {"types": {"rewards": "float32"}}, ValueError, r"'types' must name columns of .* but got \['rewards'\]"),
    ({}, {"types": ["float32"]}, TypeError, "'types' must be a dict"),
    ({}, {"names": ["a"]}, TypeError, r"\['names'\] come from the dataset"),
    ({}, {"progress": 1}, TypeError, "'progress' must be a bool, but got 1"),
    ({}, {"buffer_cls": "ring"}, ValueError, "'ring'"),
    ({}, {"buffer_cls": SimpleNamespace}, TypeError, "'buffer' must be a buffer .*, but got types.SimpleNamespace"),
    ({}, {"buffer": 3}, TypeError, "'buffer' must be a buffer of mindspore_replay or .*, but got builtins.int"),
    ({}, {"buffer": given(2), "capacity": 3}, TypeError, r"no arguments of a new one, but got \['capacity'\]"),
    ({}, {"buffer": given(2, num_envs=2)}, ValueError, r"num_envs=1, .* but got 2"),
    ({}, {"buffer": given(3)}, ValueError, r"rows of shape \(3,\), but got \(2,\)"),
    (
        {},
        {"buffer": given(2, names=("observation", "goal"))},
        ValueError,
        r"none for \['goal'\]; it has \['observation', 'action'",
    ),
]


@pytest.mark.parametrize(("changes", "arguments", "error", "text"), REFUSED)
def test_what_is_refused(
    write: Any, changes: dict[str, Any], arguments: dict[str, Any], error: type[Exception], text: str
):
    arrays = {key: array for key, array in {**D4RL, **changes}.items() if array is not None}
    with pytest.raises(error, match=text):
        write(arrays)(**arguments)


def test_rows_that_find_no_place_are_counted(write: Any, caplog: pytest.LogCaptureFixture):
    read = write(D4RL)
    assert rows(read(capacity=3))["reward"].tolist() == [4, 5, 7]
    assert "4 of 9 rows overwritten: the buffer has room for 3" in warned(caplog)
    caplog.clear()
    read(capacity=3, buffer_cls=ReservoirReplayBuffer)  # a reservoir drops rows by design
    assert "overwritten" not in warned(caplog)


def full_of(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return rows of arbitrary bits that this dtype can have."""
    if dtype == "bool":
        return rng.random((37, *shape)) < 0.5
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    bits = rng.integers(0, 256, (37, *shape, size), np.uint8)
    return bits.view("V2" if dtype == "bfloat16" else dtype)[..., 0]


@pytest.mark.usefixtures("_small_chunks")
def test_npz_is_written_and_read_bit_for_bit(tmp_path: Path):
    from mindspore_replay.columns import TYPES

    rng = np.random.default_rng(0)
    shapes = [(), (2,), (2, 1, 3)] * 5
    shapes = shapes[: len(TYPES)]
    names = [f"a.{dtype}" for dtype in TYPES]
    buffer = ReplayBuffer(4, 20, shapes, list(TYPES), names=names, backend="native")
    given = {name: full_of(dtype, shape, rng) for name, dtype, shape in zip(names, TYPES, shapes)}
    given["a.bfloat16"] = given["a.bfloat16"].view(buffer.columns.numpy_types[-1])
    buffer.insert(given)
    to_npz(buffer, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert list(file) == names
        for name in names:
            assert file[name].tobytes() == given[name][-20:].tobytes()
    back = from_npz(tmp_path / "x.npz", backend="native")
    assert (back.names, back.shapes, back.types, back.capacity) == (buffer.names, buffer.shapes, buffer.types, 20)
    for name, array in rows(back).items():
        assert array.tobytes() == given[name][-20:].tobytes()


#: Classes by name, with the arguments that they need.
OF_EITHER_MODULE: dict[str, dict[str, Any]] = {
    "ReplayBuffer": {},
    "PrioritizedReplayBuffer": {"views": [NStep(2, 0.9)]},
    "SequenceReplayBuffer": {"sequence_length": 2},
    "EpisodeReplayBuffer": {"max_episode_length": 9},
    "ReservoirReplayBuffer": {"capacity": 4, "seed": 0},
}


@pytest.mark.parametrize("name", OF_EITHER_MODULE)
@pytest.mark.parametrize("observation", ["float32", "bfloat16"])
def test_buffers_on_arrays_are_filled_and_read_alike(write: Any, name: str, observation: str, tmp_path: Path):
    read, arguments = write(D4RL), {"sample_size": 1, "types": {"observation": observation}, **OF_EITHER_MODULE[name]}
    here = read(buffer_cls=getattr(mindspore_replay, name), backend="native", **arguments)
    there = read(buffer_cls=getattr(host, name), **arguments)
    assert type(there) is getattr(host, name)
    state, same = here.state_dict(), there.state_dict()
    for key in state.keys() - {"random_state"}:
        assert state[key].tobytes() == same[key].tobytes(), key
    for file, buffer in (("here.npz", here), ("there.npz", there)):
        to_npz(buffer, tmp_path / file)
    assert (tmp_path / "here.npz").read_bytes() == (tmp_path / "there.npz").read_bytes()
    arguments = {key: value for key, value in arguments.items() if key not in ("types", "capacity")}
    again = from_npz(tmp_path / "here.npz", buffer_cls=getattr(host, name), capacity=here.capacity, **arguments)
    assert again.spec.columns.dtypes == here.spec.columns.dtypes
    to_npz(again, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "here.npz").read_bytes()


def test_an_attached_buffer_is_filled_and_not_read(write: Any, tmp_path: Path):
    columns = {"shapes": [(2,), ()], "types": ["float32"] * 2, "names": ["observation", "reward"]}
    learner = host.ReplayBuffer(1, 9, **columns, storage=tmp_path / "rows")
    with contextlib.closing(learner), contextlib.closing(host.attach(tmp_path / "rows")) as actor:
        assert write(D4RL)(buffer=actor) is actor
        assert learner.get_item(range(9))[1].tolist() == D4RL["rewards"].tolist()
        with pytest.raises(TypeError, match=r"but got .*AttachedBuffer: its learner can write it"):
            to_npz(actor, tmp_path / "x.npz")


def test_npz_of_a_buffer_without_names(tmp_path: Path):
    buffer, back = (ReplayBuffer(1, 5, [(), (2,)], ["int32", "float32"]) for _ in range(2))
    to_npz(buffer.insert([np.arange(3, dtype=np.int32), np.ones((3, 2), np.float32)]), tmp_path / "x.npz")
    assert from_npz(tmp_path / "x.npz", buffer=back) is back
    assert rows(back)["0"].tolist() == [0, 1, 2]


MAKERS = {
    "views": lambda **a: ReplayBuffer(1, views=[NStep(2, 0.9), FrameStack(2)], **a),
    "prioritized views": lambda **a: PrioritizedReplayBuffer(1, views=[NStep(2, 0.9)], **a),
    "sequences": lambda **a: SequenceReplayBuffer(1, sequence_length=3, **a),
    "episodes": lambda **a: EpisodeReplayBuffer(1, max_episode_length=9, **a),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_npz_keeps_the_flags_of_rows(maker: str, tmp_path: Path):
    """A full ring of two environments: rows are written one environment after the other."""
    names = ["observation", "reward", "terminated"]
    types = {"shapes": [(), (), ()], "types": ["float32", "float32", "bool"], "names": names}
    buffer = MAKERS[maker](capacity=20, num_envs=2, **types)
    rng = np.random.default_rng(1)
    for step in range(16):
        ends = rng.random(2) < 0.3 if step % 7 else np.ones(2, bool)
        exp = [np.array([step, 100 + step], np.float32), np.ones(2, np.float32), ends & (rng.random(2) < 0.5)]
        buffer.insert(exp, end=ends, final=ends & ~exp[2])
    to_npz(buffer, tmp_path / "x.npz")
    back = MAKERS[maker](capacity=20, **types)
    from_npz(tmp_path / "x.npz", buffer=back)
    back.check_valid()
    order = (int(buffer.head.asnumpy()) + np.r_[0:20:2, 1:20:2]) % 20
    assert back.flags.asnumpy().tolist() == buffer.flags.asnumpy()[order].tolist()
    assert rows(back)["observation"].tolist() == [*range(6, 16), *range(106, 116)]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("chunk", [2, 99])
def test_npz_joins_no_episodes(maker: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One cut off, one of one truncated step, one that a final row follows, and an open one, in two environments."""
    monkeypatch.setattr(steps, "CHUNK_ROWS", chunk)
    types = {"shapes": [(), (), ()], "types": ["float32", "float32", "bool"]}
    columns = {**types, "names": ["observation", "reward", "terminated"]}
    buffer, back = (MAKERS[maker](capacity=40, num_envs=number, **columns) for number in (2, 1))
    script = [(1, ""), (1, "e"), (2, "ef"), (3, ""), (3, "t"), (3, "f"), (4, "ef"), (5, ""), (5, "")]
    for episode, flags in script:
        exp = [np.float32([episode, 10 + episode]), np.ones(2, np.float32), np.array(["t" in flags] * 2)]
        buffer.insert(exp, end="e" in flags, final="f" in flags)
    to_npz(buffer, tmp_path / "x.npz")
    from_npz(tmp_path / "x.npz", buffer=back)
    back.check_valid()
    expected = [step for _ in range(2) for step in (0, 1, 0, 0, 1, 2, 0, 0, 1)]
    assert back.steps.asnumpy()[:18].tolist() == expected
    buffer.end_episodes()  # as the file does
    order = [*range(0, 18, 2), *range(1, 18, 2)]
    flags = buffer.flags.asnumpy()[order]
    assert (back.flags.asnumpy()[:18] & 3).tolist() == (flags & 3).tolist()


def test_npz_rows_are_laid_out_anew_for_another_kind_of_buffer(tmp_path: Path):
    np.savez(tmp_path / "d4rl.npz", **D4RL)
    views = {"views": [NStep(1, 0.9)]}
    flagged = from_npz(tmp_path / "d4rl.npz", **views)
    to_npz(flagged, tmp_path / "flagged.npz")
    plain = from_npz(tmp_path / "flagged.npz")
    assert list(plain.names) == COLUMNS
    assert rows(plain)["reward"].tolist() == [0, 1, 2, 3, 4, 5, 7]
    to_npz(plain, tmp_path / "plain.npz")
    again = from_npz(tmp_path / "plain.npz", **views)
    assert list(again.names) == list(flagged.names)
    assert rows(again)["observation"][:, 0].tolist() == [0, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    assert again.flags.asnumpy().tolist() == [0, 0, 8, 3, 0, 0, 0, 3, 0, 3]
    second = from_npz(tmp_path / "plain.npz", episodes=[1])
    assert list(second.names) == COLUMNS
    assert rows(second)["reward"].tolist() == [3, 4, 5]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_npz_of_any_order(order: str, byte_order: str, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "CHUNK_ROWS", 3)
    array = np.asarray(np.arange(24).reshape(8, 3), f"{byte_order}i4", order=order)
    write(tmp_path / "x.npz", x=array)
    buffer = from_npz(tmp_path / "x.npz")
    np.testing.assert_array_equal(rows(buffer)["x"], array)
    anywhere: Any = np.ndarray((8, 3), array.dtype, bytes(1) + array.tobytes(order), 1, order=order)
    got = tables.read_native(anywhere, slice(2, 5))
    assert (got.flags.aligned, got.dtype, got.tolist()) == (True, np.dtype(np.int32), array[2:5].tolist())


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_a_byte_that_changed_in_an_npz_file_is_found(write: Any, tmp_path: Path):
    write(tmp_path / "x.npz", x=np.arange(1000))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.npz must be an npz file of arrays, but got 'x\.npy': "):
        from_npz(tmp_path / "x.npz")


class Boom:
    """Fails when it is unpickled."""

    def __reduce__(self) -> Any:
        return eval, ("1 / 0",)


def test_npz_with_objects_is_refused_and_never_unpickled(tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=np.array([Boom(), Boom()], object))
    with pytest.raises(TypeError, match="must hold arrays of numbers, but 'x' is object"):
        from_npz(tmp_path / "x.npz")


def test_npz_that_is_none(tmp_path: Path):
    (tmp_path / "x.npz").write_text("no")
    with pytest.raises(ValueError, match=r"x\.npz must be an npz file"):
        from_npz(tmp_path / "x.npz")
    with pytest.raises(FileNotFoundError):
        from_npz(tmp_path / "y.npz")
    np.savez(tmp_path / "z.npz", x=np.zeros((0, 2)))
    with pytest.raises(ValueError, match="must hold a row, but got none"):
        from_npz(tmp_path / "z.npz")
    with pytest.raises(ValueError, match="must hold a row, but got none"):
        to_npz(ReplayBuffer(1, 2, [()], ["bool"]), tmp_path / "w.npz")
    np.savez(tmp_path / "v.npz", x=np.zeros(3), end=np.ones(3, bool), final=np.zeros(3, bool))
    with pytest.raises(ValueError, match=r"must have a column 'observation' or 'observation\.\*'"):
        from_npz(tmp_path / "v.npz")
    buffer = ReplayBuffer(1, 9, [()] * 3, ["float32", "float32", "bool"], names=["reward", "end", "terminated"])
    buffer.insert([1.0, 2.0, False])
    to_npz(buffer, tmp_path / "u.npz")  # without views it is an ordinary column
    assert rows(from_npz(tmp_path / "u.npz"))["end"].tolist() == [2]
    flagged = SequenceReplayBuffer(1, 9, [()], ["float32"], sequence_length=2, names=["end"])
    with pytest.raises(ValueError, match=r"no columns \['end'\], which are flags"):
        to_npz(flagged.insert([1.0], end=True), tmp_path / "t.npz")


def test_files_larger_than_memory_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """At most a few MB of a 32 MB file are in memory at once, of a few episodes that are far apart too."""
    n, width = 16_384, 512
    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.standard_normal((n, width), np.float32),
        "actions": np.arange(n),
        "rewards": np.arange(n, dtype=np.float32),
        "terminals": np.arange(n) % 100 == 99,
        "timeouts": np.zeros(n, bool),
    }
    np.savez(tmp_path / "x.npz", **arrays)
    write_hdf5(tmp_path / "x.hdf5", arrays)
    last = arrays["observations"][-2].copy()
    del arrays
    monkeypatch.setattr(steps, "CHUNK_BYTES", 2**19)
    names = ["observation", "next_observation", "reward"]
    for function, name in [(from_npz, "npz"), (from_hdf5, "hdf5")]:
        for episodes in (None, [0, 80, -1]):
            buffer = ReplayBuffer(1, 64, [(width,), (width,), ()], ["float32"] * 3, names=names)
            tracemalloc.start()
            function(tmp_path / f"x.{name}", buffer=buffer, episodes=episodes)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 8e6, (name, episodes)
            np.testing.assert_array_equal(rows(buffer)["observation"][-1], last)


def test_progress_is_shown_on_request(write: Any, capsys: pytest.CaptureFixture[str]):
    write(D4RL)(progress=True)
    assert re.search(r"100%.* 7\.00/7\.00 ", capsys.readouterr().err)


@pytest.mark.parametrize(("function", "package"), [(from_hdf5, "h5py"), (from_npz, "tqdm")])
def test_what_is_not_installed_is_named(function: Any, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    np.savez(tmp_path / "x.npz", **D4RL)
    with pytest.raises(ImportError, match=rf'needs {package}: pip install -e "\.\[datasets\]" in a checkout'):
        function(tmp_path / "x.npz", progress=True)


def test_a_file_that_is_there_stays_until_the_new_one_is_whole(tmp_path: Path):
    path = tmp_path / "rows.npz"
    buffer = ReplayBuffer(1, 4, [()], ["int32"], names=["step"])
    to_npz(buffer.insert([np.arange(3, dtype=np.int32)]), path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        to_npz(buffer, path, progress=1)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_rows_of_a_reservoir_come_in_the_order_of_time(tmp_path: Path):
    buffer = ReservoirReplayBuffer(1, 6, [()], ["int32"], names=["step"], seed=0)
    to_npz(buffer.insert([np.arange(40, dtype=np.int32)]), tmp_path / "rows.npz")
    steps = np.load(tmp_path / "rows.npz")["step"]
    assert (np.diff(steps) > 0).all()
    assert not (np.diff(buffer.buffer[0].asnumpy()) > 0).all()


def test_an_archive_that_names_a_place_before_its_beginning_is_refused(tmp_path: Path):
    np.savez(tmp_path / "x.npz", reward=np.zeros(3))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[-6:-2] = (int.from_bytes(data[-6:-2], "little") + 1000).to_bytes(4, "little")  # where the list of entries is
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.npz must be an npz file of arrays, but got"):
        from_npz(tmp_path / "x.npz")


#: A row of three kinds of columns, of which some have all its items.
OF_ITEMS: dict[str, Any] = {
    "shapes": [(None,), (), (None, 2), (None,)],
    "types": ["int32", "float32", "bfloat16", "bool"],
    "names": ["tokens", "reward", "logs", "flags"],
    "max_length": 5,
    "items": 40,
    "share_lengths": [("tokens", "logs")],
}


def of_items(buffer: Any, rows: int) -> Any:
    """Insert rows of different lengths."""
    for k in range(rows):
        logs = np.full((k % 6, 2), k).astype(buffer.spec.columns.numpy_types[2])
        row = np.arange(k % 6, dtype=np.int32), np.float32(k), logs, np.arange(k % 4) > 1
        buffer.insert(list(row), **({"end": k % 3 == 2} if buffer.has_episodes else {}))
    return buffer


@pytest.mark.usefixtures("_small_chunks")
@pytest.mark.parametrize("module", [host, pytest.param(mindspore_replay, marks=pytest.mark.cpu_only("kernels"))])
@pytest.mark.parametrize("name", ["ReplayBuffer", "EpisodeReplayBuffer"])
def test_npz_has_the_items_and_lengths_of_rows_that_differ(module: Any, name: str, tmp_path: Path):
    more = {"max_episode_length": 3} if name == "EpisodeReplayBuffer" else {}
    buffer = of_items(getattr(module, name)(1, 9, **flat(**OF_ITEMS, **more)), 12)
    to_npz(buffer, tmp_path / "rows.npz")
    with np.load(tmp_path / "rows.npz") as file:
        assert file["tokens_lengths"].tolist() == [k % 6 for k in range(3, 12)]
        assert file["tokens"].tolist() == [i for k in range(3, 12) for i in range(k % 6)]
        assert file["flags_lengths"].tolist() == [k % 4 for k in range(3, 12)]
        assert list(file)[6:] == (["end", "final"] if more else [])
    back = getattr(module, name)(1, 9, **flat(**OF_ITEMS, **more))
    assert from_npz(tmp_path / "rows.npz", buffer=back) is back
    back.check_valid()
    to_npz(back, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "rows.npz").read_bytes()
    for i in range(9):
        for one, other in zip(buffer.get_item(i), back.get_item(i), strict=True):
            assert str(one) == str(other)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tokens_lengths": None}, r"each of \['tokens_lengths'\], but it has"),
        ({"tokens_lengths": np.array([2, -1, 3])}, "'tokens_lengths' of .* must hold ints >= 0"),
        ({"tokens_lengths": np.array([2.0, 2.0, 0.0])}, "'tokens_lengths' of .* must hold ints >= 0"),
        ({"tokens_lengths": np.array([[2], [2], [0]])}, "'tokens_lengths' of .* must hold ints >= 0"),
        ({"tokens": np.zeros(5, np.int32)}, r"by their lengths, but got \{'tokens': 5\}"),
        ({"reward": np.zeros(2, np.float32)}, r"its 3 rows, .* but got \{'reward': 2\}"),
        ({"tokens": np.zeros((4, 1, 2), np.int32)}, r"must have rows of shape \(\), but got \(1, 2\)"),
        ({"tokens_lengths": np.array([0, 0, 4])}, "longer than longest=3"),
        ({"tokens": np.int32(3)}, r"each of \['tokens'\], but it has"),
    ],
)
def test_damaged_files_of_rows_that_differ(changed: dict[str, Any], words: str, tmp_path: Path):
    given = {"tokens": np.arange(4, dtype=np.int32), "reward": np.ones(3), "tokens_lengths": np.array([2, 2, 0])}
    columns: dict[str, Any] = {"shapes": [(None,), ()], "types": ["int32", "float32"], "names": ["tokens", "reward"]}
    buffer = host.ReplayBuffer(1, 9, **flat(**columns, max_length=3, items=9))
    for arrays in (given | changed, given):
        np.savez(tmp_path / "rows.npz", **{key: array for key, array in arrays.items() if array is not None})
        if arrays is given:
            assert from_npz(tmp_path / "rows.npz", buffer=buffer).size() == 3
            break
        with pytest.raises(ValueError, match=words):
            from_npz(tmp_path / "rows.npz", buffer=buffer)
        assert buffer.size() == 0
    with pytest.raises(ValueError, match="'episodes' must be None if rows differ in length"):
        from_npz(tmp_path / "rows.npz", buffer=buffer, episodes=[0])
