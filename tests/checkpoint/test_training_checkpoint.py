"""Training runs in files: no state is left out, a resumed run is the same run, and errors change nothing."""

import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checkpoint_cases import RINGS, assert_same_state, draws, filled, insert, rows
from mindspore import Parameter, Tensor, nn, ops
from places import ROOT
from programs import run_program

import mindspore_replay
from mindspore_replay import MixedReplay, PrioritizedReplayBuffer, TrainingCheckpoint, attach, host, load, save
from mindspore_replay.checkpoint import saving
from mindspore_replay.store.base import gone

PATH = "run.safetensors"


class Learner(nn.Cell):
    """Network, target, optimizer and buffer, in one graph that learns."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        ms.set_seed(seed)
        self.network, self.target = nn.Dense(3, 2), nn.Dense(3, 2)
        names, types = ["observation", "action", "reward"], [ms.float32, ms.int32, ms.float32]
        self.buffer = PrioritizedReplayBuffer(4, 32, [(3,), (), ()], types, names=names, seed=seed)
        self.optimizer = nn.Adam(self.network.trainable_params(), nn.ExponentialDecayLR(0.1, 0.5, 5))
        self.loss_and_gradients = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)

    def construct(self, observation: Tensor, action: Tensor, reward: Tensor) -> Tensor:
        self.buffer.insert([observation, action, reward])
        indices, weights, observation, action, reward = self.buffer.sample()
        wanted = reward + 0.9 * ops.reduce_max(self.target(observation), 1)
        (loss, error), gradients = self.loss_and_gradients(observation, action, wanted, weights)
        self.optimizer(gradients)
        self.buffer.update_priorities(indices, ops.abs(error))
        for weight, target_weight in zip(self.network.trainable_params(), self.target.trainable_params()):
            ops.assign(target_weight, 0.9 * target_weight + 0.1 * weight)
        return loss

    def loss(self, observation: Tensor, action: Tensor, wanted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        value = ops.gather_elements(self.network(observation), 1, ops.expand_dims(action, 1))[:, 0]
        return ops.mean(weights * ops.square(value - wanted)), wanted - value


class Training:
    """A user's loop, with random numbers of every kind."""

    def __init__(self, seed: int) -> None:
        self.learner = Learner(seed)
        self.rng = np.random.default_rng(seed)
        np.random.seed(seed + 1)
        random.seed(seed + 2)
        self.step, self.returns = 0, []
        self.checkpoint = TrainingCheckpoint(PATH, learner=self.learner, rng=self.rng)

    def go_on(self, steps: int) -> list[Any]:
        """Run some steps and return their results."""
        losses = []
        for _ in range(steps):
            self.step += 1
            observation = self.rng.normal(size=(5, 3)) + np.random.random() + self.step
            action = [random.randrange(2) for _ in range(5)]
            columns = observation.astype(np.float32), np.array(action, np.int32), self.rng.random(5, np.float32)
            losses.append(float(self.learner(*map(Tensor, columns))))
            self.returns.append(float(columns[2].sum()))
        return losses

    def state(self) -> dict[str, np.ndarray]:
        return {key: parameter.asnumpy().copy() for key, parameter in self.learner.parameters_and_names()}

    def save(self) -> None:
        self.checkpoint.save(step=self.step, returns=self.returns)

    def load(self) -> None:
        values = self.checkpoint.load()
        self.step, self.returns = values["step"], values["returns"]


def test_a_run_that_goes_on_is_the_same_run():
    """Also in Cells whose graphs were compiled already; with other random states it would differ."""
    new, used = Training(5), Training(5)
    used.go_on(2)
    whole = Training(0)
    whole.go_on(9)
    whole.save()
    whole.go_on(3)
    whole.save()
    assert [entry.name for entry in Path().iterdir()] == [PATH]
    expected, state = whole.go_on(6), whole.state()
    for other in (new, used):
        other.load()
        assert (other.step, len(other.returns)) == (12, 12)
        assert other.go_on(6) == expected
        for key, array in other.state().items():
            np.testing.assert_array_equal(array, state[key], err_msg=key)
    used.load()
    used.rng.random()
    assert used.go_on(6) != expected


def test_random_states_of_the_process():
    own = {"own": np.random.default_rng(3), "state": np.random.RandomState(4), "python": random.Random(5)}
    own["generator"] = ms.Generator().manual_seed(6)

    def drawn() -> list[Any]:
        ms.default_generator._step(Tensor(12))  # an operator that draws random numbers does this
        own["generator"]._step(Tensor(4))
        normal, uniform = ops.standard_normal((3,)), ops.uniform((2,), Tensor(0.0), Tensor(1.0))
        return [
            np.random.normal(),
            random.random(),
            own["own"].random(),
            own["state"].normal(),
            own["python"].random(),
            *normal.asnumpy(),
            *uniform.asnumpy(),
            *ms.get_rng_state().asnumpy(),
            *own["generator"].get_state().asnumpy(),
        ]

    ms.set_seed(11)
    drawn()
    checkpoint = TrainingCheckpoint(PATH, **own)
    checkpoint.save()
    expected = drawn()
    assert drawn() != expected
    ms.set_seed(12)
    ms.manual_seed(13)
    assert checkpoint.load() == {}
    assert ms.get_seed() == 11
    assert drawn() == expected


def test_values_come_back_as_they_were():
    values = {
        "none": None,
        "flags": [True, False],
        "big": 2**200,
        "least": -np.inf,
        "text": "\u00e9\ud800\n",
        "empty": {},
        "nested": {"a b": (1, [2.5, ()], {"": "x"})},
        "scalar": np.float32(0.1),
    }
    arrays = {
        "returns": np.arange(5, dtype=">f8")[::2],
        "flag": np.array([True, False]),
        "half": np.float16([[1, 2]]),
        "none": np.zeros((0, 3), np.uint64),
        "scalar": np.array(3, np.int8),
        "transposed": np.arange(6).reshape(2, 3).T,
    }
    checkpoint = TrainingCheckpoint(PATH)
    checkpoint.save(**values, arrays=arrays, nan=float("nan"), type=np.int16(3))
    got = checkpoint.load()
    assert np.isnan(got.pop("nan"))
    assert type(got.pop("type")) is np.int16
    for name, array in got.pop("arrays").items():
        assert array.dtype == arrays[name].dtype.newbyteorder("=")
        np.testing.assert_array_equal(array, arrays[name])
        assert array.flags.writeable
    assert got == values
    assert type(got["nested"]["a b"]) is tuple


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ({"a": [Tensor(1)]}, "but got Tensor .*1.* in values['value']['a'][0]. Save a Tensor as an array"),
        ({1: 2}, "but got a dict with the keys [1] in values['value']"),
        (np.array(["a"]), "but got ndarray array(['a'], dtype='<U1') in values['value']"),
        (1j, "but got complex 1j in values"),
    ],
    ids=["tensor", "keys", "strings", "complex"],
)
def test_values_that_cannot_be_written(value: Any, got: str):
    checkpoint = TrainingCheckpoint(PATH)
    checkpoint.save(value=1)
    with pytest.raises(TypeError, match=r"^For 'TrainingCheckpoint', values must be None, numbers, ") as error:
        checkpoint.save(value=value)
    for part in got.split(".*"):
        assert part in str(error.value)
    assert checkpoint.load() == {"value": 1}


def test_without_a_file():
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    assert TrainingCheckpoint("nowhere/run", rng=rng).load() is None
    assert rng.bit_generator.state == state
    assert TrainingCheckpoint(Path(PATH)).load() is None


# Buffers.


class Owner(nn.Cell):
    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.weight = Parameter(Tensor([1.0, 2.0]), name="weight")
        self.flag = Parameter(Tensor(True), name="flag", requires_grad=False)


def sources(seed: int) -> dict[str, Any]:
    return {"agent": filled(RINGS["prioritized"], seed=seed), "expert": filled(RINGS["uniform"], seed=seed + 1)}


def mixed(buffers: dict[str, Any]) -> MixedReplay:
    return MixedReplay([(buffers["agent"], 0.75), (buffers["expert"], 0.25)], 8)


#: Ways to pass buffers: alone, in Cells and in both.
GIVEN: dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    "each": lambda buffers, _: buffers,
    "dict": lambda buffers, _: {"buffers": buffers},
    "mixed": lambda _, mixed: {"buffer": mixed},
    "in a Cell": lambda buffers, mixed: {"learner": Owner(**buffers, mixed=mixed)},
    "mixed in a Cell": lambda _, mixed: {"learner": Owner(mixed=mixed)},
    "list in a Cell": lambda buffers, _: {"learner": Owner(several=nn.CellList(list(buffers.values())))},
    "both": lambda buffers, mixed: {"learner": Owner(**buffers), "mixed": mixed, "other": Owner(mixed=mixed)},
    "a source and its mix": lambda buffers, mixed: {"agent": buffers["agent"], "learner": Owner(mixed=mixed)},
}


@pytest.mark.parametrize("how", GIVEN)
def test_buffers_wherever_they_are(how: str):
    """Each is written once, and as `save` writes it: only the stored rows."""
    old, new = sources(0), sources(7)
    old_mixed, new_mixed = mixed(old), mixed(new)
    first = TrainingCheckpoint(PATH, **GIVEN[how](old, old_mixed))
    second = TrainingCheckpoint(PATH, **GIVEN[how](new, new_mixed))
    for buffer in old.values():
        insert(buffer, 2)
    first.save(step=1)
    assert second.load() == {"step": 1}
    for name, buffer in old.items():
        assert_same_state(new[name], buffer)
    if how == "mixed":  # each mix has a graph of its own to draw by
        assert draws(new_mixed) == draws(old_mixed)
    else:
        assert draws(new["agent"]) == draws(old["agent"])


@pytest.mark.cpu_only("rows in a folder are in host memory")
@pytest.mark.parametrize("how", GIVEN)
def test_buffers_in_folders_stay_as_they_are(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Beside an attached process: `load` touches neither rows nor the random state, and says so; all else goes back."""
    buffers = {"agent": filled(RINGS["prioritized"], storage=tmp_path / "rows"), "expert": filled(RINGS["uniform"])}
    both, network = mixed(buffers), nn.Dense(2, 1)
    checkpoint = TrainingCheckpoint(PATH, network=network, **GIVEN[how](buffers, both))
    checkpoint.save(step=1)
    assert buffers["agent"]._front.shared.folder._last.inserted == 31  # it was flushed first
    weight, count = network.weight.asnumpy().copy(), len(buffers["expert"])
    assert checkpoint.load() == {"step": 1}
    assert not caplog.records
    network.weight.set_data(network.weight * 2)
    attached = attach(tmp_path / "rows")
    handles = attached.sample()[0]
    attached.insert(rows(31, 4))
    insert(buffers["expert"], 4)
    before = buffers["agent"].state_dict()
    assert checkpoint.load() == {"step": 1}
    assert [record.getMessage() for record in caplog.records] == [
        f"For 'TrainingCheckpoint', the PrioritizedReplayBuffer in {tmp_path / 'rows'} stays as it is: 35 rows were "
        "inserted by now, 31 when the checkpoint was saved."
    ]
    after = buffers["agent"].state_dict()
    assert all(after[key].tobytes() == array.tobytes() for key, array in before.items())
    assert attached.update_priorities(handles, np.ones(3, np.float32)) == 0
    np.testing.assert_array_equal(network.weight.asnumpy(), weight)
    assert int(buffers["expert"].serials.asnumpy()[0]) == 31
    assert len(buffers["expert"]) == count


@pytest.mark.cpu_only("rows in a folder are in host memory")
def test_rows_are_in_a_folder_or_in_a_file(tmp_path: Path):
    """Neither is taken for the other, and the function `load` says where they are."""
    memory, stored = filled(RINGS["uniform"]), filled(RINGS["uniform"], storage=tmp_path / "rows")
    for saved, other, names in ((memory, stored, ("", " in a folder")), (stored, memory, (" in a folder", ""))):
        TrainingCheckpoint(PATH, buffer=saved).save()
        expected, got = (f"{{'buffer': ReplayBuffer{name}}}" for name in names)
        message = f"the buffers must be those that were saved in {PATH}, {expected}, but got {got}."
        with pytest.raises(ValueError, match=re.escape(message)):
            TrainingCheckpoint(PATH, buffer=other).load()
    where = f"the rows of its ReplayBuffer are in the folder {tmp_path / 'rows'}: ReplayBuffer.open opens that"
    with pytest.raises(ValueError, match=re.escape(where)):
        load(PATH)
    stored.close()
    with pytest.raises(RuntimeError, match="the buffer was closed: open its folder again"):
        TrainingCheckpoint(PATH, buffer=stored).save()


def test_another_capacity():
    TrainingCheckpoint(PATH, buffer=filled(RINGS["uniform"])).save()
    smaller = RINGS["uniform"](capacity=5)
    TrainingCheckpoint(PATH, buffer=smaller).load()
    assert smaller.rows()[1].asnumpy().tolist() == [26, 27, 28, 29, 30]


def test_buffers_on_arrays_beside_a_network(tmp_path: Path):
    """Those in files, of either kind, and one in a folder, which stays as it is."""
    columns = {"shapes": [()], "types": ["int32"], "seed": 0}
    buffers = [module.ReplayBuffer(2, 16, **columns) for module in (host, host, mindspore_replay)]
    mixes = [module.MixedReplay([(one, 1)], 2) for module, one in zip((host, host, mindspore_replay), buffers)]
    stored = host.ReplayBuffer(2, 16, [()], ["int32"], storage=tmp_path / "rows").insert([7])
    network = nn.Dense(1, 1)
    runs = [TrainingCheckpoint(PATH, network=network, mixed=mix, rows={"stored": stored}) for mix in mixes]
    buffers[0].insert([list(range(9))])
    runs[0].save(step=3)
    weight = network.weight.asnumpy().copy()
    network.weight.set_data(network.weight * 2)
    for run, buffer in zip(runs, buffers):
        assert run.load() == {"step": 3}
        assert_same_state(buffer, buffers[0])
        np.testing.assert_array_equal(network.weight.asnumpy(), weight)
    stored.close()


def test_parameters_that_several_have_are_written_once():
    network = nn.Dense(1000, 10)
    checkpoint = TrainingCheckpoint(
        PATH, network=network, policy=nn.SequentialCell(network), optimizer=nn.Adam(network.trainable_params())
    )
    checkpoint.save()
    assert 3 * 40_000 < Path(PATH).stat().st_size < 4 * 40_000  # the weights and two moments


# Mismatches.


def parts_of_a_run(**other: Any) -> dict[str, Any]:
    network = nn.Dense(3, 2)
    parts = {"network": network, "optimizer": nn.Adam(network.trainable_params()), "rng": np.random.default_rng(1)}
    return {**parts, "buffer": filled(RINGS["uniform"]), "owner": Owner(), **other}


def state_of(parts: dict[str, Any]) -> list[Any]:
    cells = [part for part in parts.values() if isinstance(part, nn.Cell)]
    arrays = [parameter.asnumpy().tolist() for cell in cells for parameter in cell.get_parameters()]
    own = parts["rng"].bit_generator.state if hasattr(parts["rng"], "bit_generator") else parts["rng"].getstate()
    seeds = ms.get_seed(), ms.get_rng_state().asnumpy().tolist(), random.getstate()
    return [arrays, str(own), seeds, np.random.get_state()[1].tolist()]


def half_owner() -> Owner:
    owner = Owner()
    owner.weight.set_dtype(ms.float16)
    return owner


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "shape": ({"network": nn.Dense(3, 4)}, r"'network\.weight': expected float32 \[4, 3\], but got float32 \[2, 3\]"),
    "name": (
        {"actor": nn.Dense(3, 2), "network": None},
        r"^For 'TrainingCheckpoint', run.* must hold these parts alone, under these names\. .*'actor\.weight': .*"
        r"unknown arrays \['network\.bias', 'network\.weight'\]\.$",
    ),
    "optimizer": ({"optimizer": nn.SGD(nn.Dense(3, 2).trainable_params())}, r"unknown arrays \['optimizer\.beta1"),
    "dtype": ({"owner": half_owner()}, r"'owner\.weight': expected float16 \[2\], but got float32 \[2\]"),
    "buffer": (
        {"buffer": filled(RINGS["prioritized"])},
        r"the buffers must be those .*\{'buffer': ReplayBuffer\}, but ",
    ),
    "generator": ({"rng": random.Random(0)}, "'rng' must be a generator of the kind that was saved, but got Random"),
    "bit generator": ({"rng": np.random.Generator(np.random.Philox(0))}, "'rng' must be a generator of the kind"),
    "one more": ({"more": nn.Dense(1, 1)}, r"'more\.weight': expected float32 \[1, 1\], but got nothing"),
    "generators": ({"more": random.Random(0)}, r"generators must be those .*, \['rng'\], but got \['more', 'rng'\]"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_parts_that_do_not_fit_change_nothing(what: str):
    other, message = DIFFERENT[what]
    TrainingCheckpoint(PATH, **parts_of_a_run()).save()
    parts = {name: part for name, part in parts_of_a_run(**other).items() if part is not None}
    np.random.random()
    before = state_of(parts)
    with pytest.raises(ValueError, match=message) as error:
        TrainingCheckpoint(PATH, **parts).load()
    assert "For '" in str(error.value)
    assert state_of(parts) == before


def test_the_buffers_of_a_run_alone():
    parts = parts_of_a_run()
    TrainingCheckpoint(PATH, **parts).save()
    assert_same_state(load(PATH)["buffer"], parts["buffer"])
    given = filled(RINGS["uniform"], 3)
    load(PATH, buffer={"buffer": given})
    assert_same_state(given, parts["buffer"])
    with pytest.raises(ValueError, match="'buffer' must be what was saved"):
        load(PATH, buffer=given)


def test_a_file_of_save():
    parts = parts_of_a_run()
    save(parts["buffer"], PATH)
    with pytest.raises(ValueError, match=r"run\.safetensors was written by the function 'save': read it with 'load'"):
        TrainingCheckpoint(PATH, **parts).load()


class ShardedReplay:
    """Only its name matters here, so Ray is not needed."""


def test_parts_that_are_none():
    shards = "Its shards are in other processes: give it a 'folder', and call its 'save' too."
    for part, way_out in ((3, "Give plain values to 'save'."), (ShardedReplay(), shards)):
        with pytest.raises(TypeError, match=r"^For 'TrainingCheckpoint', 'part' must be a Cell, a dict of ") as error:
            TrainingCheckpoint(PATH, part=part)
        assert str(error.value).endswith(f"but got {type(part).__name__}. {way_out}")
    with pytest.raises(ValueError, match="names of parts must be those of variables, but got '0'"):
        TrainingCheckpoint(PATH, **{"0": nn.Dense(1, 1)})
    buffer = filled(RINGS["uniform"])
    with pytest.raises(ValueError, match="must contain each buffer once, but one occurs twice"):
        TrainingCheckpoint(PATH, one=buffer, two=buffer)


def test_damage_anywhere_is_found_and_changes_nothing():
    """A bit in each 1000 bytes, and a truncated file."""
    parts = parts_of_a_run()
    checkpoint = TrainingCheckpoint(PATH, **parts)
    insert(parts["buffer"], 30)
    checkpoint.save()
    content = Path(PATH).read_bytes()
    before = state_of(parts)
    damaged = [bytearray(content) for _ in range(0, len(content), 1000)]
    for i, changed in enumerate(damaged):
        changed[1000 * i] ^= 4
    for changed in [*damaged, content[:-1], content[:100], b""]:
        Path(PATH).write_bytes(changed)
        with pytest.raises(ValueError, match=f"^For 'load', .*{PATH}"):
            checkpoint.load()
        assert state_of(parts) == before
    Path(PATH).write_bytes(content)
    assert checkpoint.load() == {}


# Writing.


def test_a_network_that_changes_while_it_is_written(monkeypatch: pytest.MonkeyPatch):
    owner = Owner(inner=nn.Dense(2, 2))
    checkpoint = TrainingCheckpoint(PATH, owner=owner)
    checkpoint.save()
    content, real = Path(PATH).read_bytes(), saving.write_all

    def write(*given: Any) -> int:
        crc32 = real(*given)
        owner.inner.weight.asnumpy()[...] += 1
        return crc32

    monkeypatch.setattr(saving, "write_all", write)
    with pytest.raises(RuntimeError, match=r"must not change while it is written, but 'owner\.inner\.weight' changed"):
        checkpoint.save()
    assert Path(PATH).read_bytes() == content


@contextlib.contextmanager
def in_place(path: Path, _function: str) -> Iterator[Any]:
    """A wrong way to write a file: over the old one."""
    with open(path, "wb", buffering=0) as file:
        yield file


def is_killed(point: int, call: Callable[[], Any]) -> bool:
    """Return True if a fork that calls this is killed at a point: before a part of a write, around other operations."""
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL)
        return status > 0
    reached, write_all = itertools.count(), saving.write_all

    def reach() -> None:
        if next(reached) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: (reach(), real(*given, **named), reach())[1]

    def in_halves(chunks: Iterable[Any]) -> Iterator[Any]:
        for view in (memoryview(chunk).cast("B") for chunk in chunks):
            for part in (view[: len(view) // 2], view[len(view) // 2 :]):
                reach()
                yield part

    try:
        for name in ("fsync", "replace", "unlink"):
            setattr(os, name, around(getattr(os, name)))
        saving.write_all = lambda file, chunks, *more: write_all(file, in_halves(chunks), *more)
        call()
        os._exit(0)
    finally:
        os._exit(1)


def test_killed_at_every_point_of_a_save(monkeypatch: pytest.MonkeyPatch):
    """After each there is the previous run or the new one, whole; a save that is not atomic fails this test."""
    buffers = [host.ReplayBuffer(2, 64, [(200,)], ["float32"], seed=0) for _ in range(2)]
    layers = [nn.Dense(30, 10) for _ in range(2)]
    saved, loaded = (TrainingCheckpoint(PATH, buffer=b, layer=n) for b, n in zip(buffers, layers, strict=True))
    monkeypatch.setattr(gone, "_owned", gone.Living())  # a fork may use the buffers

    def advance(step: int) -> None:
        layers[0].weight.asnumpy()[...] = step
        buffers[0].insert([np.full((20, 200), step, np.float32)])

    def found() -> Any:
        try:
            step = loaded.load()["step"]
        except (ValueError, TypeError):  # damaged, or not there
            return None
        rows = buffers[1].get_item(range(20 * step))[0][:, 0].tolist()
        right = rows == [i // 20 + 1 for i in range(20 * step)]
        return step if right and (layers[1].weight.asnumpy() == step).all() else None

    for step in (1, 2):
        advance(step)
        saved.save(step=step)
    before = Path(PATH).read_bytes()
    advance(3)
    outcomes: dict[bool, list[Any]] = {False: [], True: []}
    for wrong, seen in outcomes.items():
        if wrong:
            monkeypatch.setattr(saving, "replacing", in_place)
        killed = True
        while killed and None not in seen:
            for left in Path().iterdir():
                left.unlink()
            Path(PATH).write_bytes(before)
            killed = is_killed(len(seen), lambda: saved.save(step=3))
            seen.append(found())
    assert [entry.name for entry in Path().iterdir()] == [PATH]
    seen = outcomes[False]
    assert seen == [2] * seen.count(2) + [3] * seen.count(3)
    assert seen.count(2) > 12
    assert seen.count(3) > 2  # a kill after the new file exists, but before the folder is synced
    assert outcomes[True][-1] is None


def test_the_loop_of_the_page_goes_on_after_a_kill(tmp_path: Path):
    """It is killed between two saves, and yields the losses and weights of an uninterrupted run."""
    page = ROOT / "docs" / "checkpoints.md"
    loop = page.read_text().split("```python\n")[2].split("```")[0]
    for long, short in (("step < 100", "step < 20"), ("step % 50", "step % 10")):
        assert long in loop
        loop = loop.replace(long, short)
    loop += "print(losses, learner.network.weight.asnumpy().tolist())\n"
    killed = loop.replace("    step += 1\n", "    step += 1\n    if step == 15: os.kill(os.getpid(), 9)\n")
    assert killed != loop

    def ran(folder: str, script: str) -> subprocess.CompletedProcess:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "loop.py").write_text("import os\n" + script)
        return run_program(tmp_path / folder / "loop.py", cwd=tmp_path / folder)

    whole = ran("whole", loop)
    assert whole.returncode == 0, whole.stderr
    assert ran("killed", killed).returncode == -9
    again = ran("killed", loop)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    assert len(again.stdout.splitlines()[-1].split(", ")) == 19 + 4  # twenty losses, a space, four weights
