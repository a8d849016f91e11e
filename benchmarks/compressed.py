"""Compressed frames of Pong and Breakout, here and in other libraries: bytes a row, times of samples and insertions.

    pip install "ale-py>=0.10" "opencv-python-headless<4.12" lz4
    python benchmarks/compressed.py                          # minutes; makes an environment with torch on first use
    python benchmarks/compressed.py --contestants plain compressed

The frames are those of a random policy, as wrapped for a DQN. Each contestant runs in a process of its own; a round
times each of them once, one after the other. Bytes are those by which a process grows while it fills its buffer.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
from comparison.compressed.cases import CASES, FRAMES, GAMES
from comparison.environments import Installation
from comparison.rounds import Result, Runner


def _of(module: str, argument: str, requirements: str = "compressed") -> Installation:
    return Installation(f"compressed.{module}", (argument,), requirements)


CONTESTANTS = {
    "plain": _of("ours", "plain", ""),
    "compressed": _of("ours", "compressed", ""),
    "list, lz4": _of("python_list", "lz4"),
    "list, zstd 1": _of("python_list", "zstd1"),
    "list, zstd 3": _of("python_list", "zstd3"),
    "torchrl, zlib": _of("torchrl", "zlib"),
    "torchrl, lz4": _of("torchrl", "lz4"),
    "sb3-extra-buffers, rle": _of("sb3_extra_buffers", "rle"),
    "sb3-extra-buffers, lz4": _of("sb3_extra_buffers", "lz4"),
    "sb3-extra-buffers, zstd": _of("sb3_extra_buffers", "zstd"),
}


def play(game: str, path: Path) -> None:
    """Write the frames of a random policy, and whether each is the last of its episode."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    environment = gymnasium.wrappers.AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", frameskip=1))
    environment.action_space.seed(0)
    frames, ends = [environment.reset(seed=0)[0]], [False]
    while len(frames) < FRAMES:
        frame, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        frames.append(frame)
        ends.append(terminated or truncated)
        if ends[-1]:
            frames.append(environment.reset()[0])
            ends.append(False)
    np.savez(path, frames=np.stack(frames[:FRAMES]), ends=np.array(ends[:FRAMES]))


def shown(result: Result, unit: str) -> str:
    """Return the median of a result and its quartiles, or why there is none."""
    if not result.values:
        return result.missing
    values = [value * (1 if unit == "bytes" else 1e6) for value in result.values]
    low, middle, high = np.percentile(values, (25, 50, 75))
    return f"{middle:10,.1f}  [{low:,.1f}, {high:,.1f}]" if unit != "bytes" else f"{statistics.median(values):10,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contestants", nargs="+", choices=list(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of each case (default: 15)")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path.home() / ".cache" / "mindspore_replay_benchmarks",
        help="where virtual environments are kept (default: %(default)s)",
    )
    options = parser.parse_args()
    chosen = {name: place for name, place in CONTESTANTS.items() if name in options.contestants}
    with tempfile.TemporaryDirectory() as files:
        for game in GAMES:
            play(game, Path(files, f"{game}.npz"))
        with Runner(chosen, options.environments, Path(files)) as runner:
            print(runner.versions)
            for case in CASES:
                print(f"\n{case.title}, {'bytes' if case.unit == 'bytes' else 'us'}")
                for name, result in runner.run(case, options.rounds).items():
                    print(f"  {name:26s} {shown(result, case.unit)}", flush=True)


if __name__ == "__main__":
    main()
