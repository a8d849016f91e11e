"""Makes buffers from NumPy's npz files, and npz files from buffers."""

import errno
import math
import zipfile
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np
from isal import isal_zlib
from numpy.lib import format as npy

from ..checkpoint.file_format import MOST_AXES
from ..checkpoint.files import progress_bar, real_path, replacing
from ..store.base.checks import check_no_pipe
from .filling import Batch, check_buffer, check_given, fill, insert, knows_episodes, rows_at_once
from .steps import END, FINAL, Episodes, Field, StoredRows, chunk_rows, chunks, column_fields, ends_said
from .tables import as_bools, check_expanded, d4rl_recording, read_native, recording_of

#: Names of the flags of rows in a file.
_FLAGS = {"end": END, "final": FINAL}


def from_npz(
    path: str | PathLike[str],
    *,
    buffer: Any = None,
    episodes: Episodes = None,
    sample_size: int | None = None,
    capacity: int | None = None,
    buffer_cls: type | str | None = None,
    types: Mapping[str, object] | None = None,
    progress: bool = False,
    **arguments: object,
) -> Any:
    """Make a buffer from an npz file written by `to_npz` or ``numpy.savez``.

    Each array ``[N, *F]`` becomes a column, named by its key. If the buffer stores episodes, it reads the flags ``end``
    and ``final`` that `to_npz` writes. If only one of file and buffer has episode flags, rows are laid out as by
    `from_minari`: ``observation`` or ``observation.*`` are the observations, and an episode ends where a row is
    terminated or truncated, or its next observation is not the next row's observation.

    Files with D4RL's keys, such as ``observations``, are read as by `from_hdf5`.

    Where rows differ in length, a column holds the items of all rows, and ``<column>_lengths`` the lengths. Give the
    buffer for such a file.

    Arrays are mapped into memory and read in pieces, so do not cut the file meanwhile; those that are compressed are
    read whole. Objects are never unpickled.

    Args:
        path (Union[str, Path]): The file.
        buffer (Union[ReplayBuffer, None]): As for `from_minari`. It needs no names if the file has none. Default:
            ``None``.
        episodes (Union[slice, Sequence, Callable, None]): As for `from_minari`. Default: ``None``.
        sample_size (Union[int, None]): As for `from_minari`. Default: ``None``.
        capacity (Union[int, None]): As for `from_minari`. Default: ``None``.
        buffer_cls (Union[type, str, None]): As for `from_minari`. Default: ``None``.
        types (Union[dict, None]): As for `from_minari`. Default: ``None``.
        progress (bool): Whether to show a progress bar. Default: ``False``.
        arguments: More arguments of the class, such as `views`, `seed` or `sequence_length`.

    Returns:
        ReplayBuffer: The buffer.

    Raises:
        FileNotFoundError: If there is no such file.
        TypeError: If an argument is of another type, or arrays are not numeric.
        ValueError: If it is not an npz file, keys are missing, arrays differ in length, or values do not fit a column.
        IndexError: If there is no such episode.

        After an error in the middle of a file, the rows before it are in the buffer.

    Examples:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from mindspore_replay.datasets import from_npz
        >>> path = os.path.join(tempfile.mkdtemp(), "steps.npz")
        >>> np.savez(path, observations=np.arange(5.0), actions=np.arange(5), rewards=np.ones(5),
        ...          terminals=np.arange(5) == 2, timeouts=np.arange(5) == 4)
        >>> buffer = from_npz(path)
        >>> print(*buffer.names)
        observation action reward next_observation terminated truncated
        >>> print(buffer.rows()[3])
        [1. 2. 2. 4.]
    """
    arguments.update(sample_size=sample_size, capacity=capacity, buffer_cls=buffer_cls)
    if buffer is not None:
        check_buffer("from_npz", buffer, attached=True, any_length=True)
    label = fspath(path)
    arrays = _arrays_of(label)
    if buffer is not None and buffer.spec.columns.length_groups:
        if episodes is not None:
            raise ValueError("For 'from_npz', 'episodes' must be None if rows differ in length.")
        check_given("from_npz", buffer, types, arguments, any_length=True)
        return _fill_with_lengths(label, arrays, buffer, progress)
    if "observations" in {key.split("/")[0] for key in arrays}:
        source = d4rl_recording("from_npz", label, arrays)
        return fill(source, buffer, episodes, types, progress, arguments)
    flags = _FLAGS if _FLAGS.keys() <= arrays.keys() else {}
    has_episodes = knows_episodes(arguments) if buffer is None else buffer.has_episodes
    complete = buffer is None or arrays.keys() >= set(buffer.spec.columns.names)
    as_stored = bool(flags) == has_episodes and episodes is None and complete
    names = {key: flags.get(key, key) for key in arrays}
    source = recording_of("from_npz", label, arrays, names, list(flags.values()), as_stored=as_stored)
    if flags and not (as_stored or source.observations):
        raise ValueError(
            f"For 'from_npz', {label} must have a column 'observation' or 'observation.*' where its rows are laid out "
            f"anew, but it has {list(arrays)}."
        )
    return fill(source, buffer, episodes, types, progress, arguments)


def _arrays_of(label: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file by key. Raise a ValueError that names the file for whatever goes wrong."""
    check_no_pipe("from_npz", label)
    arrays, where = dict[str, np.ndarray](), ""
    try:
        with zipfile.ZipFile(label) as file:
            members = file.infolist()
            check_expanded("from_npz", label, sum(info.file_size for info in members))
            if len(set(file.namelist())) < len(members):
                raise ValueError(f"For 'from_npz', {label} must hold each array once, but got {file.namelist()[:20]}.")
            for info in members:
                where = f"{info.filename!r}: "
                arrays[info.filename.removesuffix(".npy")] = _array(file, info, np.memmap(label, np.uint8, "r"))
    except Exception as error:
        of_system = isinstance(error, OSError) and error.errno != errno.EINVAL  # a place before the file's beginning
        if of_system or str(error).startswith("For 'from_npz'"):
            raise
        text = f"For 'from_npz', {label} must be an npz file of arrays, but got {where}{str(error)[:500]}."
        raise ValueError(text) from error
    return arrays


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo, mapped: np.ndarray) -> np.ndarray:
    """Return an array: mapped, or, if it is compressed, in memory. One of objects is left where it is."""
    with file.open(info) as stream:
        version = npy.read_magic(stream)
        shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)
        if not info.filename.endswith(".npy"):
            raise ValueError("its name does not end in '.npy'")
        begin, size = stream.tell(), math.prod(shape) * dtype.itemsize
        if len(shape) > MOST_AXES or min(shape, default=0) < 0 or size > info.file_size - begin:
            raise ValueError(f"it has {info.file_size} bytes, which are none of an array {dtype} {list(shape)}")
        if dtype.hasobject or not size:
            return np.broadcast_to(np.empty((), dtype), shape)
        if info.compress_type == zipfile.ZIP_STORED:
            memory = mapped[info.header_offset :]
            memory = memory[30 + int(memory[26:30].view("<u2").sum()) :][: info.file_size]  # behind a name and extras
            if isal_zlib.crc32(memory) != info.CRC:
                raise ValueError("bytes that do not fit their checksum")
            memory = memory[begin:]
        else:
            memory = np.frombuffer(stream.read(), np.uint8)
    return np.ndarray(shape, dtype, memory, order="F" if fortran else "C")


def _fill_with_lengths(label: str, arrays: Mapping[str, np.ndarray], buffer: Any, progress: bool) -> Any:
    """Insert the rows of a file into a buffer whose rows differ in length, as many at once as it has memory for."""
    columns = buffer.spec.columns
    groups = {group.name_of_lengths: group for group in columns.length_groups}
    needed = [*columns.names, *groups, *(_FLAGS if buffer.has_episodes else ())]
    if missing := [key for key in needed if key not in arrays or not arrays[key].shape]:
        raise ValueError(
            f"For 'from_npz', {label} must have an array of rows for each of {missing}, but it has {list(arrays)}."
        )
    stops: dict[str, np.ndarray] = {}
    for key, group in groups.items():
        counts, number = arrays[key], len(arrays[key])
        if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
            raise ValueError(f"For 'from_npz', {key!r} of {label} must hold ints >= 0, but got {counts!r}.")
        stops |= dict.fromkeys(group.names, np.append(0, np.cumsum(counts.astype(np.int64))))
    expected = {key: int(stops[key][-1]) if key in stops else number for key in needed}
    if wrong := {key: len(arrays[key]) for key, size in expected.items() if len(arrays[key]) != size}:
        raise ValueError(
            f"For 'from_npz', {label} must have an entry for each of its {number} rows, or for each item by their "
            f"lengths, but got {wrong}."
        )
    flags = {key: as_bools("from_npz", label, key, arrays[key]) for key in _FLAGS if key in needed}
    if flags:
        flags["end"] = ends_said(**flags)
    rooms = [(stops[group.name], group.items) for group in groups.values()]

    def batches() -> Iterator[Batch]:
        begin, most = 0, rows_at_once(buffer)
        while begin < number:
            room = [ends.searchsorted(ends[begin] + items, "right") - 1 for ends, items in rooms]
            part = slice(begin, max(begin + 1, int(min(begin + most, number, *room))))
            items = {name: slice(*ends[[part.start, part.stop]].tolist()) for name, ends in stops.items()}
            values = [(name, read_native(arrays[name], items.get(name, part))) for name in columns.names]
            lengths = {group.name: np.diff(stops[group.name][begin : part.stop + 1]) for group in groups.values()}
            yield part, values, {"lengths": lengths, **{flag: array[part] for flag, array in flags.items()}}
            begin = part.stop

    insert("from_npz", label, buffer, batches(), number, number, progress)
    return buffer


def to_npz(buffer: Any, path: str | PathLike[str], *, progress: bool = False) -> None:
    """Write the rows of a buffer to an npz file, for ``numpy.load`` and `from_npz`.

    Each column is an array ``[N, *F]`` in its dtype, with the column's name or number as key. Rows are in time order,
    one environment after the other, including removed rows. If the buffer stores episodes, the arrays ``end`` and
    ``final``, bool ``[N]``, are the flags of `ReplayBuffer.insert`. Those of several environments end open episodes. Of
    a column whose rows differ in length, the array holds the items of all rows, and ``<column>_lengths``, int32
    ``[N]``, the lengths; columns that share theirs have one, named by the first that is not late.

    Priorities, limits and random states are not written: use `save` for checkpoints.

    Args:
        buffer (ReplayBuffer): The buffer.
        path (Union[str, Path]): The file. An existing one is replaced once the new one is complete.
        progress (bool): Whether to show a progress bar. Default: ``False``.

    Raises:
        TypeError: If `progress` is no bool.
        ValueError: If the buffer is empty, or a column has the name of flags or lengths.

    Examples:
        >>> import os, tempfile
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReplayBuffer
        >>> from mindspore_replay.datasets import to_npz
        >>> buffer = ReplayBuffer(sample_size=1, capacity=4, shapes=[()], types=[ms.int32], names=["step"])
        >>> buffer = buffer.insert([np.arange(6, dtype=np.int32)])
        >>> path = os.path.join(tempfile.mkdtemp(), "steps.npz")
        >>> to_npz(buffer, path)
        >>> print(np.load(path)["step"])
        [2 3 4 5]
    """
    check_buffer("to_npz", buffer, any_length=True)
    columns, fields = buffer.spec.columns, column_fields(buffer.spec.columns)
    groups, longest = columns.length_groups, dict(zip(columns.names, columns.shapes))
    more: dict[str, Field] = {group.name_of_lengths: ((), np.dtype(np.int32)) for group in groups}
    if buffer.has_episodes:
        more |= dict.fromkeys(_FLAGS, ((), np.dtype(np.bool_)))
    if taken := sorted(more.keys() & fields.keys()):
        raise ValueError(f"For 'to_npz', 'buffer' must have no columns {taken}, which are flags or lengths.")
    fields |= more
    with buffer.state.snapshot(columns=True) as state:
        stored = StoredRows(buffer.spec, state)
        if buffer.has_episodes and buffer.num_envs > 1:
            stored.end_episodes(buffer.spec.options.end_flags)
        if not len(stored.slots):
            raise ValueError("For 'to_npz', 'buffer' must hold a row, but got none.")
        with (
            progress_bar("to_npz", len(stored.slots) * len(fields), progress, "row", "datasets") as done,
            replacing(real_path(path), "to_npz") as target,
            zipfile.ZipFile(target, "w") as file,
        ):
            for name, (shape, dtype) in fields.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
                    npy.write_array_header_1_0(stream, {**header, "shape": (stored.items(name), *shape)})
                    for rows in chunks(len(stored.slots), chunk_rows([(longest.get(name, ()), dtype)])):
                        stream.write(stored.read(_FLAGS.get(name, name) if name in more else name, rows).tobytes())
                        done(rows.stop - rows.start)
