"""Times PyTorch and flashbax on a GPU, beside the kernels.

    python benchmarks/gpu.py [--bench PROGRAM] [--rounds N] [--json FILE]

Runs gpu_bench, which times the kernels and which `benchmarks/gpu` builds; then times the same work by PyTorch, not
compiled, and by flashbax, compiled, if it and JAX are installed: each as its users call it. Rounds are interleaved;
figures are medians.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CALLS = 50  # in a row
CARTPOLE = [("float32", (4,)), ("int32", ()), ("float32", ()), ("float32", (4,)), ("uint8", ())]
ATARI = [("uint8", (84, 84, 4)), ("uint8", (84, 84, 4))]


def timed(function: Callable[[], Any], wait: Callable[[Any], Any]) -> Callable[[], float]:
    """Return the seconds per call from Python, from many in a row, which end when the last result is waited for."""

    def run() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            result = function()
        wait(result)
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

    def wait(result: Any) -> None:
        jax.block_until_ready((result, state[0]))

    return timed(insert, wait), timed(lambda: draw(state[0], key), wait)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the kernels, PyTorch and flashbax on a GPU.")
    parser.add_argument("--bench", type=Path, default=ROOT / "build" / "gpu" / "gpu_bench", help="the program")
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds (default: 31)")
    parser.add_argument("--json", help="also write all figures but the kernels' to this file")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU")
    print(torch.cuda.get_device_name(), flush=True)
    subprocess.run([options.bench, str(options.rounds)], check=True)
    timers, wait = dict[str, Callable[[], float]](), lambda _: torch.cuda.synchronize()
    for name, schema, capacity in (("CartPole", CARTPOLE, 1 << 20), ("Atari pairs", ATARI, 16_384)):
        insert, sample = torch_ring(torch, schema, capacity)
        inserts = (1, 4096) if name == "CartPole" else ()
        timers |= {f"insert {n}, {name}: PyTorch": timed(insert(n), wait) for n in inserts}
        timers |= {f"sample {n}, {name}: PyTorch": timed(sample(n), wait) for n in (256, 4096)}
        try:
            for n in (1, 256, 4096):
                add, draw = flashbax_ring(schema, capacity, n)
                timers |= {f"insert {n}, {name}: flashbax": add} if n in inserts else {}
                timers |= {f"sample {n}, {name}: flashbax": draw} if n > 1 else {}
        except ImportError as error:
            print(f"flashbax is left out: {error}")
    times: dict[str, list[float]] = {name: [] for name in timers}
    for i in range(options.rounds + 3):
        for name, timer in timers.items():
            seconds = timer()
            if i >= 3:
                times[name].append(seconds)
    for name, values in times.items():
        print(f"{name:45s} {np.median(values) * 1e6:10.2f} us")
    if options.json:
        Path(options.json).write_text(json.dumps(times, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
