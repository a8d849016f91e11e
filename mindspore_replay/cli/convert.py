"""Converts between checkpoints (.safetensors), npz, D4RL's HDF5 (read only) and Minari datasets.

A name that ends in .safetensors, .npz, .hdf5 or .h5 is a file. Any other is the id of a local Minari dataset.

Examples:
  mindspore-replay convert cartpole/expert-v0 expert.safetensors
  mindspore-replay convert hopper-medium-v2.hdf5 hopper.npz --progress
  mindspore-replay convert buffer.safetensors cartpole/agent-v0 --env CartPole-v1
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from .. import host
from ..store.faces.local import LocalBuffer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("source", help="what to read")
    parser.add_argument("target", help="what to write")
    parser.add_argument("--env", help="of a Minari dataset to write: the environment's id, for its spaces")
    parser.add_argument("--sample-size", type=int, help="of a checkpoint to write (default: 256, or all rows if fewer)")
    parser.add_argument("--progress", action="store_true", help="show progress bars")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def run(options: argparse.Namespace) -> int:
    """Read the source and write the target."""
    target = _kind(options.target)
    if target == "hdf5":
        raise ValueError(
            f"'target' must be .safetensors, .npz or the id of a Minari dataset, but got {options.target}."
        )
    if target == "minari" and options.env is None:
        raise ValueError("'--env' must name the environment of a Minari dataset to write, such as CartPole-v1.")
    if target != "minari" and Path(options.target).exists() and not options.force:
        raise FileExistsError(f"'target' must be a new file, but {options.target} exists: --force overwrites it.")
    for option, value, only_for in (
        ("--env", options.env, "minari"),
        ("--sample-size", options.sample_size, "checkpoint"),
    ):
        if value is not None and target != only_for:
            raise ValueError(f"'{option}' must not be given for {options.target}, which has none.")
    buffer = _read(options)
    _write(buffer, target, options)
    print(f"{options.target}: {int(buffer.size()):,} rows of {type(buffer).__name__}")
    return 0


def _kind(name: str) -> str:
    formats = {".safetensors": "checkpoint", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}
    suffix = Path(name).suffix.lower()
    if suffix and suffix not in formats and "/" not in name:
        raise ValueError(f"'{name}' must end on one of {', '.join(formats)}, or be the id of a Minari dataset.")
    return formats.get(suffix, "minari")


def _read(options: argparse.Namespace) -> LocalBuffer:
    from .. import datasets

    source_format = _kind(options.source)
    if source_format == "checkpoint":
        if options.sample_size is not None:
            raise ValueError("'--sample-size' must not be given for a checkpoint to read, which has one.")
        buffer = host.load(options.source, progress=options.progress)
        if not isinstance(buffer, LocalBuffer):
            raise ValueError(f"'source' must hold one buffer, but {options.source} holds several: load and save each.")
        return buffer
    readers: dict[str, Callable[..., LocalBuffer]] = {
        "npz": datasets.from_npz,
        "hdf5": datasets.from_hdf5,
        "minari": datasets.from_minari,
    }
    arguments = {"sample_size": options.sample_size, "progress": options.progress, "buffer_cls": host.ReplayBuffer}
    return readers[source_format](options.source, **arguments)


def _write(buffer: LocalBuffer, file_format: str, options: argparse.Namespace) -> None:
    from .. import datasets

    if file_format == "checkpoint":
        host.save(buffer, options.target, progress=options.progress)
    elif file_format == "npz":
        datasets.to_npz(buffer, options.target, progress=options.progress)
    else:
        datasets.to_minari(buffer, options.target, env=options.env, progress=options.progress)
