"""The CUDA kernels against the CPU's, on random states, sizes and dtypes: on the emulated device, and on a GPU.

A GPU needs the CUDA kernel library, which setup.py builds if it finds nvcc, and PyTorch, which owns the memory here.
"""

import ctypes
import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_pairs import ROOT, HostMemory, Library, Pair, TorchMemory

import mindspore_replay
from mindspore_replay.store import windows
from mindspore_replay.store.tree import initial_weights
from mindspore_replay.store.windows import Output

PACKAGE = Path(mindspore_replay.__file__).parent
DTYPES = ("float32", "int32", "uint8", "int64", "float64", "float16", "int8", "int16")
#: By seed; the last takes several blocks and is slow to emulate, so few seeds get it.
CAPACITIES = (1, 3, 17, 64, 300, 1200)
SHAPES: tuple[tuple[int, ...], ...] = ((), (), (3,), (4,), (2, 5), (84,), (33, 7), (1100,))
#: Columns of windows: a reward, a flag, a goal with another like it, and the column that identifies groups.
EPISODES = [((3,), "float32"), ((), "float32"), ((), "uint8"), ((2, 2), "int16"), ((2, 2), "int16"), ((), "int8")]
#: Groups of state besides the ring, by kind of buffer.
BUFFERS: dict[str, tuple[str, ...]] = {
    "rows": (),
    "reservoir": ("reservoir",),
    "row_state": ("row_state",),
    "row_state in a reservoir": ("row_state", "reservoir"),
    "episodes": ("row_state", "episodes"),
    "epochs": ("epochs",),
    "epochs with weights": ("row_state", "epochs"),
    "epochs of sequences": ("row_state", "episodes", "epochs"),
}
UNIFORM, BY_RANK, BY_PRIORITY, OLDEST_FIRST, NEWEST_FIRST, IN_EPOCHS = range(6)
BAD_ARGUMENTS, TOO_FEW_ROWS, INDEX_OUT_OF_RANGE, BAD_WEIGHT, TOO_LONG, TOO_MANY = range(1, 7)
FULL, BAD_VERSION = 10, 11
PENDING = -(2**31)
FIXED = {
    windows.MASK: "bool", windows.RELABELLED: "bool", windows.DISCOUNT: "float32", windows.LENGTH: "int32",
    windows.CHAIN: "int32", windows.HANDLE: "int64", windows.WEIGHT: "float32", windows.GIVEN: "bool",
}  # fmt: skip
NUMBERS = [Output(windows.HANDLE), Output(windows.WEIGHT), Output(windows.GIVEN)]
OUTPUTS = {
    "sequences": [*NUMBERS, Output(windows.WINDOW, 0, length=5, lead=(5,)), Output(windows.MASK, length=5, lead=(5,))],
    "stacks": [
        *(Output(windows.STACK, 3, first=-2, runs=5, length=3, lead=(5, 3)), Output(windows.LENGTH)),
        *(Output(windows.STACK, 0, anchor=windows.FROM_LAST, first=-1, length=3, lead=(3,)), Output(windows.WEIGHT)),
    ],
    "returns": [
        *(Output(windows.RETURN, 1), Output(windows.DISCOUNT, 2), Output(windows.CHAIN), Output(windows.WINDOW, 0)),
        *(Output(windows.WINDOW, 0, anchor=windows.FROM_LAST, first=1), *NUMBERS),
    ],
    "returns of steps": [
        Output(windows.WINDOW, 3, first=-2, length=6, lead=(6,)),
        Output(windows.MASK, first=-2, length=6, lead=(6,)),
        *(Output(windows.RETURN, 0, first=-2, length=6, lead=(6,)), Output(windows.LENGTH)),
        *(Output(windows.RETURN, 1, first=-2, length=6, lead=(6,)), Output(windows.CHAIN)),
        *(Output(windows.DISCOUNT, 2, first=-2, length=6, lead=(6,)), *NUMBERS),
        Output(windows.WINDOW, 2, -2, windows.FROM_LAST, 0, 6, 1, (6,)),
        Output(windows.WINDOW, 0, -2, windows.FROM_LAST, -1, 6, 3, (6, 3)),
    ],
    "goals": [
        Output(windows.GOAL, 3, 4),
        Output(windows.HANDLE),
        Output(windows.RELABELLED),
        Output(windows.WINDOW, 2),
    ],
    "goals of steps": [
        *(Output(windows.GOAL, 3, 4, first=-2, length=6, lead=(6,)), Output(windows.RELABELLED)),
        Output(windows.MASK, first=-2, length=6, lead=(6,)),
        Output(windows.RETURN, 1, first=-2, length=6, lead=(6,)),
        *(Output(windows.CHAIN, first=-2, runs=6, lead=(6,)), Output(windows.HANDLE)),
        Output(windows.WINDOW, 4, 0, windows.OF_CHAIN, -2, 6, 3, (6, 3)),
    ],
}


def divide(rng: np.random.Generator) -> tuple[int, int]:
    """Return the number of a learner, and that of all learners."""
    world = int(rng.choice([1, 1, 2, 3]))
    return int(rng.integers(world)), world


def gpu_library() -> Library:
    """Return the kernels on this machine's GPU; skip if it has none."""
    path = PACKAGE / "_kernels_cuda.so"
    if not path.exists():
        pytest.skip("the CUDA kernel library was not built")
    torch = pytest.importorskip("torch", reason="PyTorch, which would own the memory of the GPU, is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU that PyTorch can use")
    return Library(path, TorchMemory())


@pytest.fixture(params=["emulated", "gpu"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    ours = Library(PACKAGE / "_kernels.so", HostMemory())
    if request.param == "gpu":
        yield Pair(ours, gpu_library(), exact=False)
    else:
        yield Pair(ours, Library(request.getfixturevalue("emulated"), HostMemory()))


class Case:
    """A buffer's state in both libraries, and random calls on it."""

    def __init__(self, pair: Pair, seed: int, groups: tuple[str, ...] = (), kind: str = "") -> None:
        self.pair, self.groups, self.kind = pair, groups, kind
        self.rng = rng = np.random.default_rng(seed)
        self.capacity = c = CAPACITIES[seed % len(CAPACITIES)]
        self.schema = [(SHAPES[rng.integers(len(SHAPES))], str(rng.choice(DTYPES))) for _ in range(rng.integers(1, 5))]
        if "episodes" in groups:
            self.schema = EPISODES
        self.columns = [f"column{i}" for i in range(len(self.schema))]
        for name, (shape, dtype) in zip(self.columns, self.schema):
            pair.hold(name, self.noise((c, *shape), dtype))
        alpha = rng.choice([0.0, 0.6])
        keep = 0 if alpha or "reservoir" in groups else int(rng.integers(2))
        late = float(rng.choice([0, 0, PENDING + 3]))
        self.draw = UNIFORM if "row_state" not in groups else BY_PRIORITY if alpha else BY_RANK
        self.streams = int(min(c, rng.choice([1, 1, 2, 5]))) if "episodes" in groups else 1
        rule = [rng.integers(4), rng.integers(1, 7), 1, rng.integers(2), self.streams, rng.choice([0, 40])]
        arrays: dict[str, np.ndarray] = {
            "head": np.zeros((), np.int32), "count": np.zeros((), np.int32), "serials": np.zeros(2, np.int64),
            "random_state": np.array([rng.integers(-(2**62), 2**62), 0]), "row_serials": np.full(c, -1),
            "weights": initial_weights(c), "priorities": np.zeros(c, np.float32),
            "max_priority": np.ones(1, np.float32), "use_counts": np.zeros(c, np.int32),
            "insertion_clocks": np.zeros(c, np.int64), "clock": np.zeros(3, np.int64),
            "counts": np.zeros(5, np.int64), "row_rule": np.array([alpha, 1e-6, keep, late]), "beta": np.array([0.4]),
            "steps": np.zeros(c, np.int64), "flags": np.zeros(c, np.uint8), "window_rule": np.array(rule),
            "epoch": np.zeros(5, np.int64), "epoch_rule": np.array([rng.integers(2), *divide(rng)]),
        }  # fmt: skip
        for name, array in arrays.items():
            pair.hold(name, array)

    def noise(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype.startswith("float"):
            return self.rng.standard_normal(shape).astype(dtype)
        return self.rng.integers(*((-3, 4) if dtype == "int8" else (0, 100)), shape).astype(dtype)

    def some(self) -> int:
        """Return a number of rows, sometimes more than fit, or more than one block takes."""
        n = int(self.rng.choice([1, 2, 5, self.capacity, 2 * self.capacity + 3, 300]))
        return max(n // self.streams, 1) * self.streams

    def rows(self, n: int) -> list[Any]:
        """Return rows of a batch; sometimes the buffer's own."""
        if n == self.capacity and self.rng.integers(2):
            return self.columns
        return [self.noise((n, *shape), dtype) for shape, dtype in self.schema]

    def range(self) -> np.ndarray:
        whole = np.array([0, 2**31 - 1])
        return whole if self.rng.integers(2) else self.rng.integers(-self.capacity - 1, self.capacity + 2, 2)

    def handles(self, n: int) -> np.ndarray:
        """Return handles of stored, evicted and future rows, and of none; some twice."""
        last = int(self.pair["serials"][0])
        return self.rng.integers(min(-1, last - 2 * self.capacity), last + 2, n)

    def priorities(self, n: int) -> np.ndarray:
        values = self.rng.random(n if self.rng.integers(2) else 1).astype(np.float32) * 3
        if self.rng.random() < 0.1:
            values[-1] = self.rng.choice([np.nan, -1.0, np.inf])
        if self.rng.random() < 0.2:
            values[0] = 0
        return values

    def run(self, operator: str, more: tuple[str, ...] = (), **given: Any) -> int:
        return self.pair.run(operator, self.groups + more, self.columns, **given)[0]

    def insert(self) -> int:
        n = self.some()
        given: dict[str, Any] = {"rows": self.rows(n)}
        if "row_state" in self.groups:
            given["priority"] = self.priorities(n) if self.rng.random() < 0.8 else "max_priority"
        if "episodes" in self.groups:
            ends = (self.rng.random(n if self.rng.integers(2) else 1) < 0.15).astype(np.uint8)
            ends[ends > 0] = self.rng.choice([1, 1, 3], int(ends.sum()))
            given["ends"] = ends
        if "row_state" not in self.groups or self.rng.random() < 0.6:
            return self.run("insert", **given)
        now = int(self.pair["clock"][0])
        version = now - self.rng.integers(0, 6, n if self.rng.integers(2) else 1)
        if self.rng.random() < 0.9:
            version = np.maximum(version, 0)
        given["max_staleness"] = np.array([-1 if "reservoir" in self.groups else self.rng.choice([-1, 3, 10])])
        return self.run("insert", ("versions",), version=version, **given)

    def read(self) -> int:
        n, count = self.some(), max(int(self.pair["count"]), 0)
        index = self.rng.integers(-count, max(count, 1), n)
        if self.rng.random() < 0.2:
            index[-1] = self.rng.choice([count, -count - 1])
        return self.pair.run("read", (), self.columns, index=index)[0]

    def update(self) -> int:
        """Overwrite some of the columns."""
        first = int(self.rng.integers(len(self.columns)))
        handles = self.handles(self.some())
        rows = self.rows(len(handles))[first:]
        late = {"late": np.array([self.rng.integers(4)])} if "row_state" in self.groups else {}
        return self.pair.run("update", self.groups, self.columns[first:], handles=handles, rows=rows, **late)[0]

    def outputs(self) -> list[Output]:
        if self.kind:
            return OUTPUTS[self.kind]
        outputs = [Output(windows.WINDOW, int(c)) for c in self.rng.permutation(len(self.columns))]
        outputs += [Output(windows.WINDOW, 0)] * int(self.rng.integers(2))
        for number in NUMBERS:
            for _ in range(self.rng.choice([0, 1, 1, 2])):
                outputs.insert(int(self.rng.integers(len(outputs) + 1)), number)
        return outputs

    def sample(self) -> int:
        rng, pair = self.rng, self.pair
        marked = "row_state" in self.groups
        eligible = (
            int((pair["weights"][: self.capacity] > 0).sum()) if marked else min(int(pair["count"]), self.capacity)
        )
        n = int(rng.integers(1, max(eligible, 0) + 2))
        draw = int(rng.choice([BY_RANK, OLDEST_FIRST, NEWEST_FIRST])) if self.draw == BY_RANK else self.draw
        draw = IN_EPOCHS if "epochs" in self.groups else draw
        draw = draw if rng.random() < 0.95 else int(rng.integers(7))
        max_use = [0, 1, 3][rng.integers(3)] if marked else 0
        outputs = self.outputs()
        strategy = rng.integers(1, 5) if self.kind.startswith("goals") else 0
        plan = [draw, rng.integers(2), rng.integers(2), max_use, rng.integers(2), 3, rng.integers(2), strategy]
        plan += np.array([0.01, 0.7]).view(np.int64).tolist()  # the step of beta, and the fraction of goals
        for output in outputs:
            plan += output[:-1]
        given_beta = "beta" if rng.random() < 0.7 else np.array([rng.choice([0.0, 1.0, 2.0])])
        status, _ = pair.run(
            "sample", self.groups, self.columns, [self.array(output, n) for output in outputs],
            plan=np.array(plan), powers=np.array([1, 0.9, 0.81, 0.729]), beta="beta",
            sample_range=self.range(), given_beta=given_beta,
        )  # fmt: skip
        return status

    def sample_groups(self) -> int:
        rng = self.rng
        options = np.array([rng.choice([1, 2, 2, 5, 5, 5, 5, 6]), rng.integers(2)])
        template = np.zeros((rng.integers(1, 8), rng.choice([1, 3, 50])), np.int8)
        return self.run("sample_groups", options=options, template=template)

    def array(self, output: Output, n: int) -> tuple[str, tuple[int, ...]]:
        if output.kind in FIXED:
            return FIXED[output.kind], (n, *output.lead)
        shape, dtype = self.schema[output.column]
        return dtype, (n, *output.lead, *shape)

    def change(self) -> int:
        """Change row state, and read it."""
        rng, capacity = self.rng, self.capacity
        handles: Any = self.handles(self.some())
        priorities: Any = self.priorities(len(handles))
        if rng.random() < 0.1:
            handles, priorities = "insertion_clocks", "priorities"
        status = self.run("update_priorities", handles=handles, priority=priorities)
        self.run("delete", handles=self.handles(3))
        if rng.random() < 0.3:
            self.run("delete", handles=self.handles(300))
        limit = np.array([rng.choice([-1, -1, 3] if "reservoir" in self.groups else [-1, 3, 10])])
        self.run("advance", ticks=np.array([rng.choice([0, 1, 2, -1])]), max_staleness=limit)
        self.run("info", handles=self.handles(50))
        self.run("sums", ranges=rng.integers(-capacity, capacity + 2, 10))
        self.run("summary")
        if "episodes" in self.groups and rng.random() < 0.3:
            self.run("end_episodes", flag=np.array([rng.choice([1, 3])], np.uint8))
        return status

    def step(self) -> set[int]:
        """Call each kernel once; return the statuses."""
        seen = {self.insert(), self.read(), self.sample()}
        if self.kind == "sequences":  # groups have no outputs
            seen.add(self.sample_groups())
        if "row_state" in self.groups:
            seen.add(self.change())
        self.update()
        if self.rng.random() < 0.1:
            self.run("reset")
        return seen


def drive(pair: Pair, groups: tuple[str, ...], kind: str = "", cases: int = 10) -> set[int]:
    """Call all kernels on some buffers; return the statuses."""
    seen = set()
    for seed in range(cases):
        case = Case(pair, seed, groups, kind)
        for _ in range(10):
            seen |= case.step()
    return seen


@pytest.mark.parametrize("buffer", [name for name in BUFFERS if "episodes" not in BUFFERS[name]])
def test_buffers_of_rows(pair: Pair, buffer: str):
    expected = {BAD_ARGUMENTS, TOO_FEW_ROWS, INDEX_OUT_OF_RANGE} | (
        {"row_state": {BAD_WEIGHT, FULL, BAD_VERSION}, "row_state in a reservoir": {BAD_WEIGHT, BAD_VERSION}}.get(
            buffer, set()
        )
    )
    seen = drive(pair, BUFFERS[buffer])
    assert seen >= {0, *expected}, seen


@pytest.mark.parametrize("kind", OUTPUTS)
def test_buffers_of_episodes(pair: Pair, kind: str):
    seen = drive(pair, BUFFERS["episodes"], kind)
    assert seen >= {0, TOO_FEW_ROWS, BAD_WEIGHT, TOO_LONG, FULL}, seen


@pytest.mark.parametrize("kind", ["sequences", "returns of steps", "goals"])
def test_epochs_of_sequences(pair: Pair, kind: str):
    seen = drive(pair, BUFFERS["epochs of sequences"], kind, cases=6)
    assert seen >= {0, TOO_FEW_ROWS}, seen


def test_samples_of_groups(pair: Pair):
    seen = set()
    for seed in range(10):
        case = Case(pair, seed, BUFFERS["episodes"], "sequences")
        for _ in range(3):
            case.insert()
            seen |= {case.sample_groups() for _ in range(3)}
    assert seen == {0, BAD_ARGUMENTS, TOO_FEW_ROWS}


@pytest.mark.parametrize("buffer", ["rows", "row_state"])
def test_a_shuffle_of_more_than_a_block_holds(pair: Pair, buffer: str):
    case = Case(pair, 5, BUFFERS[buffer])
    case.capacity, case.columns, case.schema = 100_000, ["slots"], [((), "int64")]
    pair.hold("slots", np.arange(case.capacity))
    pair.hold("weights", initial_weights(case.capacity))
    pair.hold("row_rule", np.array([0.0, 1e-6, 0.0, 0.0]))
    for name in ("priorities", "use_counts", "insertion_clocks"):
        pair.hold(name, np.zeros(case.capacity, pair[name].dtype))
    given = {"priority": "max_priority"} if "row_state" in case.groups else {}
    assert case.run("insert", rows=[np.arange(case.capacity)], **given) == 0
    for draws in (2048, 2049, 5000):
        plan = np.array([BY_RANK if given else UNIFORM, *[0] * 9, *Output(windows.WINDOW)[:-1]])
        status, made = pair.run(
            "sample", case.groups, case.columns, [("int64", (draws,))], plan=plan, powers=np.array([1.0]),
            beta="beta", sample_range=np.array([17, 90_000]), given_beta="beta",
        )  # fmt: skip
        assert status == 0
        assert len(set(made["outputs"].tolist())) == draws


def test_sound_states_only(pair: Pair):
    """Inconsistent state is rejected by all kernels that use it."""
    wrong: dict[str, list[Any]] = {
        "head": [-1, 10**6], "count": [-1, 10**6], "serials": [[5, 9], [-1, -2]], "clock": [[0, -1], [0, 10**6]],
        "window_rule": [[-1, 1, 1, 0, 1, 0], [0, 0, 1, 0, 1, 0], [0, 1, 1, 0, 10**6, 0]],
        "epoch": [[0, -1, 0, 0, 0], [0, 0, 10**6, 0, 0], [0, 0, 0, -1, 0]], "epoch_rule": [[0, -1, 1], [0, 2, 2]],
    }  # fmt: skip
    group = {"clock": "row_state", "window_rule": "episodes", "epoch": "epochs", "epoch_rule": "epochs"}
    for groups in BUFFERS.values():
        for name, values in wrong.items():
            if name in group and group[name] not in groups:
                continue
            for value in values:
                case = Case(pair, 9, groups, "sequences" if "episodes" in groups else "")
                case.insert()
                pair.hold(name, np.array(value, pair[name].dtype))
                refused = name != "serials" or bool(groups)  # a ring alone identifies no row by its serial
                assert (BAD_ARGUMENTS in case.step()) >= refused, (groups, name, value)


def test_what_a_launch_does_not_take(emulated: Path):
    library = Library(emulated, HostMemory())
    column, row = ("uint8", (2,), np.zeros(2, np.uint8)), ("uint8", (1,), np.zeros(1, np.uint8))

    def number(dtype: str, *values: float) -> tuple[str, tuple[int, ...], np.ndarray]:
        return dtype, (len(values),), np.array(values, dtype)

    cursors = [("int32", (), np.array(value, np.int32)) for value in (0, 2)]
    ring = [*cursors, number("int64", 2, 0)]
    for k in (40, 41):
        inputs = [*[column] * k, *ring, number("int64", 0)]
        assert library.call("replay_read", [*inputs, *[row] * k]) == (TOO_MANY if k > 40 else 0)
    for m in (48, 49):
        plan = [0, 1, *[0] * 8] + m * list(Output(windows.WINDOW)[:-1])
        inputs = [column, *ring, number("int64", 7, 0), number("int64", *plan), number("int64", 0, 2)]
        assert library.call("replay_sample", [*inputs, *[row] * m]) == (TOO_MANY if m > 48 else 0)


def exports(path: Path) -> set[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" T (replay_\w+)", out))


@pytest.mark.skipif(not (shutil.which("nvcc") and shutil.which("nm")), reason="there is no nvcc, or no nm")
def test_the_library_that_nvcc_builds():
    path = PACKAGE / "_kernels_cuda.so"
    note = path.with_suffix(".txt")
    assert path.exists(), note.read_text(encoding="utf-8") if note.exists() else "nothing was built"
    ctypes.CDLL(str(path))
    of_locks = {"close", "hold", "let_go", "replace", "share", "unshare", "wait", "wake"}  # in the host's memory
    of_host = {f"replay_{function}" for function in of_locks}
    assert exports(path) == exports(PACKAGE / "_kernels.so") - of_host | {"replay_take_failure"}


def test_the_workloads_of_the_benchmark(emulated: Path, monkeypatch: pytest.MonkeyPatch):
    """Each call does its work; only a GPU can tell the times."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    library = Library(emulated, HostMemory())
    for function, moved in gpu.workloads(library, small=True).values():
        function(None)
        assert moved > 0
        assert library.failure() == 0


def test_what_the_page_says():
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    files = [path for path in (ROOT / "mindspore_replay" / "csrc").rglob("*.*") if path.is_file()]
    sources = {path.name: path.read_text(encoding="utf-8") for path in files}
    statuses = {int(value) for value in re.findall(r"^  k\w+ = (\d+),(?! +// CPU:)", sources["status.h"], re.MULTILINE)}
    table = page.split("| status | what it says |")[1].split("\n\n")[0]
    assert {int(value) for value in re.findall(r"^\| (\d+)", table, re.MULTILINE)} == statuses - {0}
    limits = {"device.cuh": "kMostColumns", "sample_kernels.cu": "kMostOutputs", "shuffle.cuh": "kMostInBlock"}
    columns, outputs, draws = (re.findall(rf"{name} = (\d+);", sources[file])[0] for file, name in limits.items())
    assert f"takes {columns} columns and {outputs} outputs" in page
    assert f"draw of more than {draws} rows" in page


class WrongLibrary(Library):
    """The CPU's kernels, except for one bit of one argument."""

    def call(self, kernel: str, arguments: Any) -> int:
        status = super().call(kernel, arguments)
        if kernel == "replay_insert" and status == 0:
            arguments[0][2].view(np.uint8).flat[-1] ^= 1
        return status


def test_one_wrong_bit_is_seen():
    ours = Library(PACKAGE / "_kernels.so", HostMemory())
    pair = Pair(ours, WrongLibrary(PACKAGE / "_kernels.so", HostMemory()))
    case = Case(pair, 0)
    with pytest.raises(AssertionError, match="replay_insert: column0"):
        case.insert()
