"""The CUDA kernels against the CPU's, on random states, sizes and dtypes: on the emulated device, and on a GPU.

A GPU takes the CUDA kernel library, which setup.py builds where it finds nvcc, and PyTorch, which owns the memory here.
"""

import ctypes
import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from kernel_pairs import ROOT, HostMemory, Library, Pair, TorchMemory

import mindspore_replay
from mindspore_replay.columns import Columns
from mindspore_replay.ops import plan as plans
from mindspore_replay.ops.plan import Output, SamplePlan
from mindspore_replay.ops.sum_tree import initial_weights, tree_size

PACKAGE = Path(mindspore_replay.__file__).parent
DTYPES = ("float32", "int32", "uint8", "int64", "float64", "float16", "int8", "int16")
SHAPES: tuple[tuple[int, ...], ...] = ((), (), (3,), (4,), (2, 5), (84,), (33, 7), (1100,))
STATE = ("head", "count", "serials", "weights", "priorities", "max_priority", "use_counts", "clocks", "clock", "counts")
TIME = ("steps", "flags", "rule")
TOO_FEW_ROWS, INDEX_OUT_OF_RANGE, BAD_WEIGHT, TOO_LONG = 2, 3, 4, 5


def gpu_library() -> Library:
    """The kernels on this machine's GPU; skips where it has none."""
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

    def __init__(self, pair: Pair, seed: int, weighted: bool, timed: bool = False) -> None:
        self.pair = pair
        self.rng = rng = np.random.default_rng(seed)
        self.capacity = c = int(rng.choice([1, 3, 17, 64, 300, 2500]))
        self.schema = [(SHAPES[rng.integers(len(SHAPES))], str(rng.choice(DTYPES))) for _ in range(rng.integers(1, 5))]
        if timed:  # what windows are made of: a reward, a flag, and a goal with another like it
            self.schema = [((3,), "float32"), ((), "float32"), ((), "uint8"), ((2, 2), "int16"), ((2, 2), "int16")]
        self.columns = [f"column{i}" for i in range(len(self.schema))]
        for name, (shape, dtype) in zip(self.columns, self.schema):
            pair.hold(name, self.noise((c, *shape), dtype))
        for name in ("head", "count"):
            pair.hold(name, np.zeros((), np.int32))
        pair.hold("serials", np.zeros(2, np.int64))
        pair.hold("random", np.array([rng.integers(-(2**62), 2**62), 0]))
        self.state = [*self.columns, "head", "count"]
        self.one = ["column0"]
        if weighted:
            for name, array in {
                "weights": initial_weights(c), "priorities": np.zeros(c, np.float32),
                "max_priority": np.ones(1, np.float32), "use_counts": np.zeros(c, np.int32),
                "clocks": np.zeros(c, np.int64), "clock": np.zeros(2, np.int64),
                "counts": np.zeros(5, np.int64), "beta": np.array([0.4]),
            }.items():  # fmt: skip
                pair.hold(name, array)
            self.state = [*self.columns, *STATE]
            self.one = ["column0", *STATE]
            self.uniform = bool(rng.integers(2))
            self.factors = np.array([0.0 if self.uniform else 0.6, 1e-6])
        if timed:
            self.streams = int(min(c, rng.choice([1, 1, 2, 5])))
            rule = np.array(
                [rng.integers(4), rng.integers(1, 7), 1, rng.integers(2), self.streams, rng.choice([0, 40])]
            )
            pair.hold("steps", np.zeros(c, np.int64))
            pair.hold("flags", np.zeros(c, np.uint8))
            pair.hold("rule", rule)
            self.state += TIME
            self.one += TIME

    def noise(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype.startswith("float"):
            return self.rng.standard_normal(shape).astype(dtype)
        return self.rng.integers(0, 100, shape).astype(dtype)

    def rows(self, n: int) -> list[np.ndarray]:
        return [self.noise((n, *shape), dtype) for shape, dtype in self.schema]

    def batch(self, n: int) -> list[tuple[str, tuple[int, ...]]]:
        return [(dtype, (n, *shape)) for shape, dtype in self.schema]

    def some(self) -> int:
        """A number of rows, now and then more than there is room for, or more than one block takes."""
        return int(self.rng.choice([1, 2, 5, self.capacity, 2 * self.capacity + 3, 700]))

    def range(self) -> np.ndarray:
        whole = np.array([0, 2**31 - 1])
        return whole if self.rng.integers(2) else self.rng.integers(-self.capacity - 1, self.capacity + 2, 2)

    def handles(self, n: int) -> np.ndarray:
        """Of rows stored, gone, to come, and of none; some twice."""
        last = int(self.pair["serials"][0])
        return self.rng.integers(min(-1, last - 2 * self.capacity), last + 2, n)

    def priorities(self, n: int) -> np.ndarray:
        values = self.rng.random(n if self.rng.integers(2) else 1).astype(np.float32) * 3
        if self.rng.random() < 0.1:
            values[-1] = self.rng.choice([np.nan, -1.0, np.inf])
        if self.rng.random() < 0.2:
            values[0] = 0
        return values


def all_statuses(seen: set[int], *expected: int) -> None:
    """That the cases came to what they are for."""
    assert seen >= {0, *expected}, seen


def test_rings(pair: Pair):
    seen = set()
    for seed in range(12):
        case = Case(pair, seed, weighted=False)
        for _ in range(12):
            n = case.some()
            pair.run("replay_ring_write", [*case.state, "serials", *case.rows(n)], [("int32", ())])
            count = int(pair["count"])
            index = case.rng.integers(-count, count, n)
            if case.rng.random() < 0.2:
                index[-1] = case.rng.choice([count, -count - 1])
            status, _ = pair.run("replay_ring_read", [*case.state, index], case.batch(n))
            seen.add(status)
            slots = case.rng.integers(0, case.capacity, n)
            pair.run("replay_gather_rows", [*case.columns, slots], case.batch(n))
            options = np.array([case.capacity, case.rng.integers(2), case.rng.integers(2)])
            draws = int(case.rng.integers(1, count + 2))
            bounds = case.range()
            status, _ = pair.run("replay_sample_uniform", [*case.state, "random", bounds, options], case.batch(draws))
            seen.add(status)
            pair.run("replay_draw_uniform", ["random", "head", "count", bounds, options], [("int64", (draws,))])
            pair.run("replay_random_bits", ["random"], [("int64", (n,))])
    all_statuses(seen, TOO_FEW_ROWS, INDEX_OUT_OF_RANGE)


def test_a_shuffle_of_more_than_a_block_holds(pair: Pair):
    case = Case(pair, 5, weighted=False)
    pair.hold("count", np.int32(0)[...])
    for count, draws in ((5000, 5000), (100_000, 3000), (2048, 2048), (2049, 2049)):
        pair.hold("big_count", np.array(count, np.int32))
        pair.hold("big_head", np.array(17, np.int32))
        options = np.array([count, 0, 0])
        status, (slots,) = pair.run(
            "replay_draw_uniform",
            ["random", "big_head", "big_count", np.array([0, count]), options],
            [("int64", (draws,))],
        )
        assert status == 0
        assert len(set(slots.tolist())) == draws
    assert case.capacity > 0


def test_sum_trees(pair: Pair):
    rng = np.random.default_rng(3)
    seen = set()
    for capacity in (1, 16, 17, 256, 257, 5000):
        pair.hold("weights", initial_weights(capacity))
        size = np.array([capacity])
        for _ in range(8):
            n = int(rng.integers(1, 2 * capacity + 2))
            slots, values = rng.integers(0, capacity, n), np.where(rng.random(n) < 0.2, 0, rng.random(n))
            if rng.random() < 0.2:
                slots[0] = capacity
            if rng.random() < 0.2:
                values[-1] = np.nan
            status, _ = pair.run("replay_tree_set", ["weights", size, slots, values], [("float64", (1,))])
            seen.add(status)
            total = float(pair.run("replay_tree_summary", ["weights", size], [("float64", (3,))])[1][0][0])
            targets = (1 - rng.random(n)) * total
            if rng.random() < 0.2:
                targets[:] = 2 * total + 1
            status, _ = pair.run("replay_tree_descend", ["weights", size, targets], [("int64", (n,))])
            head, count = np.array(rng.integers(capacity), np.int32), np.array(rng.integers(capacity + 1), np.int32)
            ranges = rng.integers(-capacity, capacity + 2, (5, 2))
            pair.run("replay_tree_sums", ["weights", size, head, count, ranges], [("float64", (5,))])
    all_statuses(seen, INDEX_OUT_OF_RANGE, BAD_WEIGHT)


def update_and_look(case: Case, kernel_of: dict[str, str], seen: set[int]) -> None:
    """What rows with weights have in common."""
    pair, rng = case.pair, case.rng
    handles = case.handles(case.some())
    status, _ = pair.run(
        kernel_of["update"], [*case.one, case.factors, handles, case.priorities(len(handles))], [("int32", (1,))]
    )
    seen.add(status)
    pair.run(kernel_of["delete"], [*case.one, case.handles(3)], [("int32", (1,))])
    if rng.random() < 0.3:
        pair.run(kernel_of["delete"], [*case.one, case.handles(700)], [("int32", (1,))])
    staleness = np.array([rng.choice([-1, 3, 10])])
    pair.run(kernel_of["advance"], [*case.one, np.array([rng.integers(3)]), staleness], [("int64", (1,))])
    info = [("float32", handles.shape), ("int32", handles.shape), ("int64", handles.shape)]
    pair.run("replay_info", [*case.one[: 1 + len(STATE)], handles], info)
    if rng.random() < 0.1:
        pair.run(kernel_of["reset"], case.one, [("int32", ())])


def test_buffers_with_weights(pair: Pair):
    seen = set()
    kernels = {"update": "replay_update_priorities", "delete": "replay_delete", "advance": "replay_advance"}
    kernels["reset"] = "replay_reset_weighted"
    for seed in range(16):
        case = Case(pair, seed, weighted=True)
        for _ in range(10):
            n = case.some()
            inputs = [*case.state, case.factors, case.priorities(n), *case.rows(n)]
            status, _ = pair.run("replay_insert_weighted", inputs, [("int32", ())])
            seen.add(status)
            draws = int(case.rng.integers(1, max(int(pair["count"]), 1) + 2))
            ordered, max_use = case.rng.integers(2), case.rng.choice([0, 1, 3])
            rows = case.batch(draws)
            if case.uniform:
                options = np.array([case.rng.integers(2), ordered, max_use])
                inputs = [*case.state, "random", case.range(), options]
                status, _ = pair.run("replay_sample_weighted", inputs, [("int64", (draws,)), *rows])
            else:
                options = np.array([ordered, max_use, case.rng.integers(2)])
                given = "beta" if case.rng.random() < 0.7 else np.array([case.rng.choice([0.0, 1.0, 2.0])])
                inputs = [*case.state, "random", "beta", given, np.array([0.01]), options]
                outputs = [("int64", (draws,)), ("float32", (draws,)), *rows]
                status, _ = pair.run("replay_sample_prioritized", inputs, outputs)
            seen.add(status)
            update_and_look(case, kernels, seen)
    all_statuses(seen, TOO_FEW_ROWS, BAD_WEIGHT)


OUTPUTS = {
    "sequences": [Output(plans.WINDOW, 0, length=5, lead=(5,)), Output(plans.MASK, length=5, lead=(5,))],
    "stacks": [
        *(Output(plans.STACK, 3, first=-2, runs=5, length=3, lead=(5, 3)), Output(plans.LENGTH)),
        Output(plans.STACK, 0, anchor=plans.FROM_LAST, first=-1, length=3, lead=(3,)),
    ],
    "returns": [
        *(Output(plans.RETURN, 1), Output(plans.DISCOUNT, 2), Output(plans.CHAIN), Output(plans.WINDOW, 0)),
        Output(plans.WINDOW, 0, anchor=plans.FROM_LAST, first=1),
    ],
    "goals": [Output(plans.GOAL, 3, 4), Output(plans.RELABELLED), Output(plans.WINDOW, 2)],
}


def plan_of(case: Case, kind: str, draws: int) -> SamplePlan:
    rng = case.rng
    strategy = plans.STRATEGIES[rng.integers(1, 5)] if kind == "goals" else "none"
    draw = "rank" if case.uniform else "priority"
    return SamplePlan(
        draws, draw, bool(rng.integers(2)), bool(rng.integers(2)), [None, 1, 3][rng.integers(3)],
        bool(rng.integers(2)), 0.01, 3, bool(rng.integers(2)), 0.9, strategy, 0.7, tuple(OUTPUTS[kind]),
    )  # fmt: skip


@pytest.mark.parametrize("kind", OUTPUTS)
def test_buffers_of_episodes(pair: Pair, kind: str):
    seen = set()
    kernels = {"update": "replay_update_timed", "delete": "replay_delete_timed", "advance": "replay_advance_timed"}
    kernels["reset"] = "replay_reset_timed"
    for seed in range(10):
        case = Case(pair, seed, weighted=True, timed=True)
        columns = Columns("X", [s for s, _ in case.schema], [getattr(ms, t) for _, t in case.schema], None)
        for _ in range(10):
            n = max(case.some() // case.streams, 1) * case.streams
            ends = (case.rng.random(n if case.rng.integers(2) else 1) < 0.15).astype(np.uint8)
            ends[ends > 0] = case.rng.choice([1, 1, 3], int(ends.sum()))
            inputs = [*case.state, case.factors, case.priorities(n), ends, *case.rows(n)]
            status, _ = pair.run("replay_insert_timed", inputs, [("int32", ())])
            seen.add(status)
            eligible = int((pair["weights"][: case.capacity] > 0).sum())
            plan = plan_of(case, kind, int(case.rng.integers(1, eligible + 2)))
            numbers, options = plan.numbers(), plan.options()
            inputs = [*case.state, "random", case.range(), "beta", "beta", np.array([0.01]), numbers, options]
            types = [str(t).lower().replace("_", "") for t in plan.types(columns)]
            status, _ = pair.run("replay_sample_windows", inputs, list(zip(types, plan.shapes(columns))))
            seen.add(status)
            update_and_look(case, kernels, seen)
            if case.rng.random() < 0.3:
                flags = np.array([case.rng.choice([1, 3])], np.uint8)
                pair.run("replay_end_episodes", [*case.one, case.factors, flags], [("int32", (1,))])
    all_statuses(seen, TOO_FEW_ROWS, BAD_WEIGHT, TOO_LONG)


@pytest.mark.parametrize("weighted", [False, True])
def test_reservoirs(pair: Pair, weighted: bool):
    for seed in range(8):
        case = Case(pair, seed, weighted)
        pair.hold("row_serials", np.full(case.capacity, -1))
        pair.hold("stream", np.zeros(2, np.int64))
        kernel = "replay_reservoir_insert" + "_weighted" * weighted
        for _ in range(8):
            inputs = [*case.state, "row_serials", "stream", "random", *case.rows(case.some())]
            status, _ = pair.run(kernel, inputs, [("int32", ())])
            assert status == 0
        assert int(pair["stream"][0]) > case.capacity


def test_columns_beyond_what_a_launch_takes(pair: Pair, emulated: Path):
    library = Library(emulated, HostMemory())
    columns = [("uint8", (2,), np.zeros(2, np.uint8)) for _ in range(41)]
    slots = [("int64", (1,), np.zeros(1, np.int64))]
    rows = [("uint8", (1,), np.zeros(1, np.uint8)) for _ in range(41)]
    assert library.call("replay_gather_rows", [*columns, *slots, *rows]) == 6
    assert library.call("replay_gather_rows", [*columns[:40], *slots, *rows[:40]]) == 0


def exports(path: Path) -> set[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" T (replay_\w+)", out))


@pytest.mark.skipif(not (shutil.which("nvcc") and shutil.which("nm")), reason="there is no nvcc, or no nm")
def test_the_library_that_nvcc_builds():
    path = PACKAGE / "_kernels_cuda.so"
    note = path.with_suffix(".txt")
    assert path.exists(), note.read_text(encoding="utf-8") if note.exists() else "nothing was built"
    ctypes.CDLL(str(path))
    cpu_only = {"replay_sample_groups", "replay_hold", "replay_let_go"}
    assert exports(path) == exports(PACKAGE / "_kernels.so") - cpu_only | {"replay_take_failure"}


def test_the_workloads_of_the_benchmark(emulated: Path, monkeypatch: pytest.MonkeyPatch):
    """Each is called and does what it is for; the times are a GPU's matter."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    assert [gpu.tree_size(capacity) for capacity in (1, 16, 17, 5000, 1 << 20)] == [
        tree_size(capacity) for capacity in (1, 16, 17, 5000, 1 << 20)
    ]
    library = Library(emulated, HostMemory())
    for function, moved in gpu.workloads(library, small=True).values():
        function(None)
        assert moved > 0
        assert library.call("replay_random_bits", [("int64", (2,), np.zeros(2, np.int64))] * 2) == 0


def test_what_the_page_says():
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "mindspore_replay" / "csrc").iterdir()}
    statuses = {int(value) for value in re.findall(r"^  k\w+ = (\d+),", sources["status.h"], re.MULTILINE)}
    table = page.split("| status | what it says |")[1].split("\n\n")[0]
    assert {int(value) for value in re.findall(r"^\| (\d+)", table, re.MULTILINE)} == statuses - {0}
    limits = {"rows.cuh": "kMostColumns", "time_kernels.cu": "kMostOutputs", "shuffle.cuh": "kMostInBlock"}
    columns, outputs, draws = (re.findall(rf"{name} = (\d+);", sources[file])[0] for file, name in limits.items())
    assert f"takes {columns} columns and {outputs} outputs" in page
    assert f"draw of more than {draws} rows" in page


class WrongLibrary(Library):
    """The CPU's kernels, but for one bit of one argument."""

    def call(self, kernel: str, arguments: Any) -> int:
        status = super().call(kernel, arguments)
        if kernel == "replay_ring_write" and status == 0:
            arguments[0][2].view(np.uint8).flat[-1] ^= 1
        return status


def test_one_wrong_bit_is_seen():
    ours = Library(PACKAGE / "_kernels.so", HostMemory())
    pair = Pair(ours, WrongLibrary(PACKAGE / "_kernels.so", HostMemory()))
    case = Case(pair, 0, weighted=False)
    with pytest.raises(AssertionError, match="replay_ring_write: column0"):
        pair.run("replay_ring_write", [*case.state, "serials", *case.rows(1)], [("int32", ())])
