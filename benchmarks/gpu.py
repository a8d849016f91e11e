"""Times the CUDA kernels on a GPU, against their floor, PyTorch and flashbax.

    python benchmarks/gpu.py [--library PATH] [--rounds N] [--json FILE]

Needs the CUDA kernel library, which the installation builds if it finds nvcc, and PyTorch, which owns the memory;
MindSpore is not needed. flashbax is measured if it and JAX are installed. Kernels are timed in CUDA graphs of 50 calls,
which excludes the time that Python takes to call them, and from Python; the others as their users call them, compiled.
Rounds are interleaved; figures are medians. The floor is the bytes read and written over the bandwidth of a large copy,
or the time of an empty launch, whichever is longer.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests")]

from kernel_pairs import Library, TorchMemory, in_order  # noqa: E402

from mindspore_replay.store.tree import initial_weights  # noqa: E402

CALLS = 50  # per CUDA graph
CARTPOLE = [("float32", (4,)), ("int32", ()), ("float32", ()), ("float32", (4,)), ("uint8", ())]
ATARI = [("uint8", (84, 84, 4)), ("uint8", (84, 84, 4))]
WHOLE = [0, 2**31 - 1]  # all rows, as a range
UNIFORM, BY_PRIORITY = 0, 2  # draws, numbered as in csrc/core/outputs.h
ROW, HANDLE, WEIGHT = 0, 9, 10  # kinds of outputs


class Buffer:
    """A full buffer in device memory, and kernel calls on it.

    Args:
        library (Library): The kernels, and the memory that they access.
        schema (list): Dtype and shape of one row of each column.
        capacity (int): ``C``.
        marked (bool): True if rows have weights.
    """

    def __init__(
        self, library: Library, schema: list[tuple[str, tuple[int, ...]]], capacity: int, marked: bool
    ) -> None:
        self.library, self.schema = library, schema
        self.groups = ("row_state",) if marked else ()
        self.row_bytes = sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in schema)
        c = capacity
        self.state = {
            "columns": self.batch(c), "head": self.hold("int32", ()), "count": self.hold("int32", ()),
            "serials": self.hold("int64", (2,)), "random_state": self.hold("int64", (2,), 7),
            "beta": self.hold("float64", (1,), 0.4),
        }  # fmt: skip
        if marked:
            self.state |= {
                "weights": self.put(initial_weights(c)), "priorities": self.hold("float32", (c,)),
                "max_priority": self.hold("float32", (1,), 1), "use_counts": self.hold("int32", (c,)),
                "insertion_clocks": self.hold("int64", (c,)), "clock": self.hold("int64", (3,)),
                "counts": self.hold("int64", (5,)), "row_rule": self.put(np.array([0.6, 0.6, 0, 0])),
            }  # fmt: skip
        self.insert(c)(None)
        library.memory.wait()

    def put(self, array: np.ndarray) -> Any:
        return array.dtype.name, array.shape, self.library.memory.put(array)

    def hold(self, dtype: str, shape: tuple[int, ...], value: Any = 0) -> Any:
        return self.put(np.full(shape, value, dtype))

    def batch(self, n: int) -> list[Any]:
        return [self.hold(dtype, (n, *shape)) for dtype, shape in self.schema]

    def priorities(self, n: int) -> Any:
        return self.put(np.random.default_rng(0).random(n).astype(np.float32) + 0.01)

    def call(self, operator: str, **given: Any) -> Callable[[Any], None]:
        """Return a call with these inputs and outputs, as a function of the stream."""
        arguments = [
            value for _, value in in_order(self.library.operators[operator], self.groups, {**self.state, **given})
        ]

        def launch(stream: Any) -> None:
            status = self.library.launch(f"replay_{operator}", arguments, stream)
            if status:
                sys.exit(f"{operator} was refused with status {status}")

        return launch

    def insert(self, n: int) -> Callable[[Any], None]:
        given = {"priority": self.priorities(n)} if self.groups else {}
        return self.call("insert", rows=self.batch(n), first=self.hold("int64", (1,)), **given)

    def sample(self, n: int, draw: int = UNIFORM, numbers: dict[int, Any] | None = None) -> Callable[[Any], None]:
        """Return a sample of rows and of `numbers`, outputs by kind."""
        plan = [draw, 1, *[0] * 8]
        for column in range(len(self.schema)):
            plan += [ROW, column, 0, 0, 0, 1, 1]
        for kind in numbers or {}:
            plan += [kind, 0, 0, 0, 0, 1, 1]
        return self.call(
            "sample", plan=self.put(np.array(plan)), powers=self.put(np.array([1.0])),
            sample_range=self.put(np.array(WHOLE)), given_beta=self.state["beta"],
            outputs=[*self.batch(n), *(numbers or {}).values()],
        )  # fmt: skip

    def sample_and_update(self, n: int) -> Callable[[Any], None]:
        """Return a prioritized sample followed by new priorities for its rows: two launches."""
        handles, dead = self.hold("int64", (n,)), self.hold("int32", (1,))
        sample = self.sample(n, BY_PRIORITY, {HANDLE: handles, WEIGHT: self.hold("float32", (n,))})
        update = self.call("update_priorities", handles=handles, priority=self.priorities(n), dead=dead)

        def both(stream: Any) -> None:
            sample(stream)
            update(stream)

        return both


def workloads(library: Library, small: bool = False) -> dict[str, tuple[Callable[[Any], None], int]]:
    """Return the calls to be timed, with the bytes that each reads and writes; `small` ones only show that they run."""
    cartpole = Buffer(library, CARTPOLE, 1 << (10 if small else 20), False)
    atari = Buffer(library, ATARI, 64 if small else 16_384, False)
    weighted = Buffer(library, CARTPOLE, 1 << (10 if small else 20), True)
    sizes = (1, 256) if small else (1, 4096)
    found = {f"insert {n}, CartPole": (cartpole.insert(n), 2 * n * cartpole.row_bytes) for n in sizes}
    for name, buffer in (("CartPole", cartpole), ("Atari pairs", atari)):
        for n in (16,) if small else (256, 4096):
            found[f"sample {n}, {name}"] = buffer.sample(n), 2 * n * buffer.row_bytes
    both = weighted.sample_and_update(256)
    found["prioritized sample + update 256"] = both, 2 * 256 * weighted.row_bytes
    return found


def on_gpu(torch: Any, function: Callable[[Any], None]) -> Callable[[], float]:
    """Return the seconds per call on the GPU, from a CUDA graph of many."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(stream.cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(CALLS):
            function(torch.cuda.current_stream().cuda_stream)
    return lambda: timed(torch, graph.replay) / CALLS


def timed(torch: Any, function: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def from_python(torch: Any, function: Callable[[], Any]) -> Callable[[], float]:
    """Return the seconds per call from Python, from many in a row."""

    def run() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            function()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / CALLS

    return run


def torch_ring(torch: Any, schema: list[tuple[str, tuple[int, ...]]], capacity: int) -> tuple[Any, Any]:
    """Return the insertion and the sample of a ring of PyTorch tensors, as functions of the number of rows n."""
    types = {"float32": torch.float32, "int32": torch.int32, "uint8": torch.uint8}
    columns = [torch.zeros((capacity, *shape), dtype=types[dtype], device="cuda") for dtype, shape in schema]
    place = [0]

    def insert(n: int) -> Callable[[], None]:
        rows = [torch.zeros((n, *column.shape[1:]), dtype=column.dtype, device="cuda") for column in columns]

        def run() -> None:
            index = torch.arange(place[0], place[0] + n, device="cuda") % capacity
            for column, batch in zip(columns, rows):
                column.index_copy_(0, index, batch)
            place[0] = (place[0] + n) % capacity

        return run

    def sample(n: int) -> Callable[[], Any]:
        def run() -> Any:
            index = torch.randint(capacity, (n,), device="cuda")
            return [column.index_select(0, index) for column in columns]

        return run

    return insert, sample


def flashbax_ring(schema: list[tuple[str, tuple[int, ...]]], capacity: int, n: int) -> tuple[Any, Any]:
    """Return the compiled insertion and sample of n rows of flashbax's item buffer, whose memory is donated."""
    import flashbax
    import jax
    import jax.numpy as jnp

    buffer = flashbax.make_item_buffer(capacity, 1, n, add_batches=True)
    row = {str(i): jnp.zeros(shape, dtype) for i, (dtype, shape) in enumerate(schema)}
    batch = {key: jnp.zeros((n, *value.shape), value.dtype) for key, value in row.items()}
    add, draw = jax.jit(buffer.add, donate_argnums=0), jax.jit(buffer.sample)
    state = [add(buffer.init(row), batch)]
    key = jax.random.key(0)

    def insert() -> None:
        state[0] = add(state[0], batch)

    def wait(function: Callable[[], Any]) -> Callable[[], float]:
        def run() -> float:
            start = time.perf_counter()
            for _ in range(CALLS):
                result = function()
            jax.block_until_ready((result, state[0]))
            return (time.perf_counter() - start) / CALLS

        return run

    return wait(insert), wait(lambda: draw(state[0], key))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the CUDA kernels on a GPU.")
    parser.add_argument("--library", type=Path, default=ROOT / "mindspore_replay" / "_kernels_cuda.so")
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds (default: 31)")
    parser.add_argument("--json", help="also write all figures to this file")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU")
    library = Library(options.library, TorchMemory())
    calls = workloads(library)
    timers = {f"{name}: on the GPU": on_gpu(torch, function) for name, (function, _) in calls.items()}
    for name, (function, _) in calls.items():
        timers[f"{name}: from Python"] = from_python(
            torch, lambda f=function: f(torch.cuda.current_stream().cuda_stream)
        )
    for name, schema, capacity in (("CartPole", CARTPOLE, 1 << 20), ("Atari pairs", ATARI, 16_384)):
        insert, sample = torch_ring(torch, schema, capacity)
        inserts = (1, 4096) if name == "CartPole" else ()
        timers |= {f"insert {n}, {name}: PyTorch": from_python(torch, insert(n)) for n in inserts}
        timers |= {f"sample {n}, {name}: PyTorch": from_python(torch, sample(n)) for n in (256, 4096)}
        try:
            for n in (1, 256, 4096):
                add, draw = flashbax_ring(schema, capacity, n)
                timers |= {f"insert {n}, {name}: flashbax": add} if n in inserts else {}
                timers |= {f"sample {n}, {name}: flashbax": draw} if n > 1 else {}
        except ImportError as error:
            print(f"flashbax is left out: {error}")
    source, target = (torch.zeros(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    tiny = torch.zeros(1, device="cuda")
    empty = torch.cuda.CUDAGraph()
    with torch.cuda.graph(empty):
        for _ in range(CALLS):
            tiny.zero_()
    timers["copy"] = lambda: timed(torch, lambda: target.copy_(source))
    timers["launch"] = lambda: timed(torch, empty.replay) / CALLS
    times: dict[str, list[float]] = {name: [] for name in timers}
    for i in range(options.rounds + 3):
        for name, timer in timers.items():
            seconds = timer()
            if i >= 3:
                times[name].append(seconds)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    bandwidth = 2 * source.numel() / medians.pop("copy")
    launch = medians.pop("launch")
    print(f"{torch.cuda.get_device_name()}: copies {bandwidth / 1e12:.2f} TB/s, an empty launch {launch * 1e6:.1f} us")
    for name, seconds in sorted(medians.items()):
        workload = name.split(":")[0]
        floor = max(calls[workload][1] / bandwidth, launch) if workload in calls else 0.0
        print(f"{name:55s} {seconds * 1e6:10.1f} us   floor {floor * 1e6:8.1f} us   {floor / seconds:5.2f} of it")
    if options.json:
        Path(options.json).write_text(json.dumps(times, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
