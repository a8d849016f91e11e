"""Draws what calls from Python cost against the capacity, the number of columns, and the bytes of a row.

    python benchmarks/scale.py [--rounds 9] [--largest 100000000] [--out runs/scale]

Beside each curve is that of memory: NumPy gathers the same bytes from as many random places. Buffers are full; samples
have 64 rows. Buffers of one plot are timed in turns, each for as many calls as take 2 ms; medians and quartiles.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import mindspore as ms
import numpy as np
from measuring import MICRO, measure, once

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

matplotlib.use("Agg")
from comparison.summary import GREY, STYLE
from matplotlib import pyplot as plt

SAMPLE = 64
CARTPOLE = {"shapes": [(4,), (), (), (4,), ()], "types": ["float32", "int32", "float32", "float32", "bool"]}
#: Rows of one insertion while a buffer is filled.
PIECE = 1 << 16
#: Memory of the rows of a buffer with rows of many bytes.
BYTES = 1 << 29

#: A call by the name of its curve.
Calls = dict[str, Callable[[], Any]]


def rows(columns: Mapping[str, Any], n: int | None) -> list[np.ndarray]:
    """Return n rows, or one without a leading axis."""
    lead = () if n is None else (n,)
    return [np.ones((*lead, *shape), dtype) for shape, dtype in zip(columns["shapes"], columns["types"], strict=True)]


def full(cls: type[Any], capacity: int, columns: Mapping[str, Any], **options: Any) -> Any:
    """Return a full buffer."""
    buffer = cls(sample_size=SAMPLE, capacity=capacity, seed=0, backend="native", **columns, **options)
    piece = rows(columns, min(PIECE, capacity))
    while not buffer.full():
        buffer.insert(piece)
    return buffer


def gathers(capacity: int, columns: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that gathers rows from random places of NumPy arrays."""
    rng, arrays = np.random.default_rng(0), rows(columns, capacity)

    def gather() -> None:
        places = rng.integers(0, capacity, SAMPLE)
        for array in arrays:
            array[places]

    return gather


def uniform(capacity: int, columns: Mapping[str, Any]) -> Calls:
    """Insert a row and sample."""
    buffer, row = full(ReplayBuffer, capacity, columns), rows(columns, None)
    return {
        "insert 1 row": lambda: buffer.insert(row),
        "sample 64": buffer.sample,
        "NumPy gathers 64": gathers(capacity, columns),
    }


def prioritized(capacity: int) -> Calls:
    """Sample by priority, and give new priorities."""
    buffer = full(PrioritizedReplayBuffer, capacity, CARTPOLE)
    priorities = np.random.default_rng(0).random(SAMPLE, np.float32)
    return {"sample 64 by priority, update": lambda: buffer.update_priorities(buffer.sample()[0], priorities)}


def by_capacity(largest: int) -> dict[int, Calls]:
    """Return the calls for CartPole's rows, by capacity."""
    capacities = [10**power for power in range(4, 9) if 10**power <= largest]
    return {capacity: {**uniform(capacity, CARTPOLE), **prioritized(capacity)} for capacity in capacities}


def by_columns() -> dict[int, Calls]:
    """Return the calls for rows of float32 numbers, by their number."""
    numbers = (1, 2, 4, 8, 16, 32, 64)
    return {n: uniform(100_000, {"shapes": [()] * n, "types": ["float32"] * n}) for n in numbers}


def by_bytes() -> dict[int, Calls]:
    """Return the calls for rows of one column, by its bytes."""
    sizes = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
    return {
        size: uniform(max(SAMPLE, min(1_000_000, BYTES // size)), {"shapes": [(size,)], "types": ["uint8"]})
        for size in sizes
    }


def timer(call: Callable[[], Any]) -> Callable[[], float]:
    """Return a function that measures seconds a call, over as many calls as take 2 ms."""
    once(call, 3)
    repeat = max(1, int(0.002 / once(call, 3)))
    return lambda: once(call, repeat)


def curves(calls: Mapping[int, Calls], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Return microseconds by curve and place, one for each round."""
    times = measure({f"{name}|{x}": timer(call) for x, each in calls.items() for name, call in each.items()}, rounds)
    found: dict[str, dict[int, list[float]]] = {}
    for key, seconds in times.items():
        name, x = key.split("|")
        found.setdefault(name, {})[int(x)] = [value * MICRO for value in seconds]
    return found


def show(title: str, found: Mapping[str, Mapping[int, list[float]]]) -> None:
    """Print a table of medians."""
    places = sorted({x for curve in found.values() for x in curve})
    print(f"\n| us, by {title} | {' | '.join(f'{x:,}' for x in places)} |")
    print(f"|---|{'---|' * len(places)}")
    for name, curve in found.items():
        print(f"| {name} | {' | '.join(f'{statistics.median(curve[x]):.3g}' for x in places)} |")


def draw(plots: Mapping[str, Mapping[str, Mapping[int, list[float]]]], path: Path) -> None:
    """Draw a panel for each plot."""
    plt.rcParams.update(STYLE)
    figure, panels = plt.subplots(1, len(plots), figsize=(12, 4), sharey=True, layout="constrained")
    for axes, (title, found) in zip(panels, plots.items(), strict=True):
        for name, curve in found.items():
            places = sorted(curve)
            low, middle, high = (np.percentile([curve[x] for x in places], q, axis=1) for q in (25, 50, 75))
            style = {"color": GREY, "linestyle": ":"} if name.startswith("NumPy") else {"marker": "o", "markersize": 3}
            (line,) = axes.plot(places, middle, label=name, **style)
            axes.fill_between(places, low, high, color=line.get_color(), alpha=0.2)
        axes.set(xscale="log", yscale="log", xlabel=title)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("microseconds a call")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw costs against capacity, columns and bytes.")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds (default: 9)")
    parser.add_argument("--largest", type=int, default=10**8, help="largest capacity (default: 100000000)")
    parser.add_argument("--out", type=Path, default=Path("runs/scale"), help="folder (default: runs/scale)")
    arguments = parser.parse_args()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    plots = {}
    makers = {
        "rows of capacity": lambda: by_capacity(arguments.largest),
        "columns of 4 bytes": by_columns,
        "bytes of a row": by_bytes,
    }
    for title, make in makers.items():
        plots[title] = curves(make(), arguments.rounds)
        show(title, plots[title])
    draw(plots, arguments.out / "scale.png")


if __name__ == "__main__":
    main()
