"""Makes buffers from NumPy's npz files, and npz files from buffers."""

import errno
import itertools
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike, fspath
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from ..checkpoint.file_format import MOST_AXES
from ..checkpoint.files import progress_bar, real_path, replacing
from ..store.base.checks import check_no_pipe
from ..store.base.kinds import Kind
from ..store.base.schema import Schema
from .export import StoredRows
from .filling import Field, check_buffer, check_given, class_of, column_fields, fill, fit, knows_episodes, log
from .filling import row_bytes as bytes_of
from .steps import END, FINAL, Arrays, Episodes, chunk_rows, ends_said
from .tables import TableSource, check_expanded, d4rl_source

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

    The file is read in pieces, but for arrays in Fortran order. Objects are never unpickled.

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
        check_buffer("from_npz", buffer, attached=True)
    label = fspath(path)
    with ExitStack() as stack:
        check_no_pipe("from_npz", label)
        with _explained("from_npz", label):
            file = stack.enter_context(zipfile.ZipFile(path))
        table = NpzTable("from_npz", file, label)
        if buffer is not None and buffer.spec.columns.kinds:
            if episodes is not None:
                raise ValueError("For 'from_npz', 'episodes' must be None if rows differ in length.")
            check_given("from_npz", buffer, types, arguments)
            return _fill_with_lengths(table, buffer, progress)
        if "observations" in {key.split("/")[0] for key in table.arrays}:
            source = d4rl_source("from_npz", table)
            return fill("from_npz", source, buffer, episodes, types, progress, arguments)
        flagged = _FLAGS.keys() <= table.arrays.keys()
        names = {_FLAGS.get(key, key) if flagged else key: key for key in table.arrays}
        has_episodes = knows_episodes(class_of(buffer_cls), arguments) if buffer is None else buffer.has_episodes
        lacking = buffer is not None and not table.arrays.keys() >= set(buffer.spec.columns.names)
        as_stored = flagged and has_episodes and episodes is None and not lacking
        by_episode = not as_stored and (flagged or has_episodes or lacking or episodes is not None)
        source = TableSource("from_npz", table, names, by_episode=by_episode)
        if flagged and by_episode and not source.observations:
            raise ValueError(
                f"For 'from_npz', {table.label} must have a column 'observation' or 'observation.*' where its rows are "
                f"laid out anew, but it has {list(table.arrays)}."
            )
        return fill("from_npz", source, buffer, episodes, types, progress, arguments)


@contextmanager
def _explained(what: str, label: str, member: str = "") -> Iterator[None]:
    """Raise a ValueError that names the file for whatever goes wrong while it is read."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that of a place before the file's beginning
            raise
        where = f"{member!r}: " if member else ""
        text = f"For '{what}', {label} must be an npz file of arrays, but got {where}{str(error)[:500]}."
        raise ValueError(text) from error


class NpzTable:
    """An open npz file as a `Table`. Arrays are read from the stream of their entry in the archive.

    Args:
        what (str): Function to name in errors.
        file (zipfile.ZipFile): The archive.
        label (str): Its name, for errors.
    """

    def __init__(self, what: str, file: zipfile.ZipFile, label: str) -> None:
        self._what, self._file, self.label = what, file, label
        self.arrays: dict[str, Field] = {}
        members = {info.filename: info for info in file.infolist()}
        check_expanded(what, label, sum(info.file_size for info in members.values()), os.stat(label).st_size)
        if len(members) < len(file.infolist()):
            raise ValueError(f"For '{what}', {label} must hold each array once, but got {file.namelist()[:20]}.")
        for member, info in members.items():
            with _explained(what, label, member), file.open(member) as stream:
                shape, _, dtype = self._header(stream)
                if not member.endswith(".npy"):
                    raise ValueError("its name does not end in '.npy'")
                if (
                    len(shape) > MOST_AXES
                    or min(shape, default=0) < 0
                    or math.prod(shape) * dtype.itemsize > info.file_size
                ):
                    raise ValueError(f"it has {info.file_size} bytes, which are none of an array {dtype} {list(shape)}")
            self.arrays[member.removesuffix(".npy")] = shape, dtype.newbyteorder("=")

    @staticmethod
    def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
        """Read the shape, whether it is in Fortran order, and the dtype. The stream is then at the first number."""
        version = npy.read_magic(stream)
        return npy.read_array_header_1_0(stream) if version == (1, 0) else npy.read_array_header_2_0(stream)

    def chunks(self, keys: Sequence[str], rows: int) -> Iterator[Arrays]:
        """Return the arrays of these keys, `rows` rows of each at a time."""
        length = self.arrays[keys[0]][0][0]
        with self.readers(keys) as readers:
            for begin in range(0, length, rows):
                with _explained(self._what, self.label):
                    arrays = {key: read(begin, min(rows, length - begin)) for key, read in readers.items()}
                yield arrays

    @contextmanager
    def readers(self, keys: Sequence[str]) -> Iterator[dict[str, Callable[[int, int], np.ndarray]]]:
        """Return a function for each key, of a first row and a count, that reads consecutive rows in order."""
        with ExitStack() as stack:
            streams = {key: stack.enter_context(self._file.open(f"{key}.npy")) for key in keys}
            yield {key: self._reader(key, stream) for key, stream in streams.items()}

    def _reader(self, key: str, stream: IO[bytes]) -> Callable[[int, int], np.ndarray]:
        """Return a function of a first row and a count that reads consecutive rows in order."""
        shape, fortran, dtype = self._header(stream)
        if fortran:
            with self._file.open(f"{key}.npy") as again:
                whole = npy.read_array(again, allow_pickle=False)
            return lambda begin, count: np.ascontiguousarray(whole[begin : begin + count])
        size = math.prod(shape[1:]) * dtype.itemsize

        def read(begin: int, count: int) -> np.ndarray:
            data = stream.read(count * size)
            if len(data) < count * size:
                raise ValueError(f"{key!r} ends early")
            array: np.ndarray = np.ndarray((count, *shape[1:]), dtype, data)
            return array if dtype.isnative else array.astype(dtype.newbyteorder("="))

        return read


def _lengths_of(table: NpzTable, columns: Schema, flags: Sequence[str]) -> dict[Kind, np.ndarray]:
    """Return the lengths of rows in a file. Raise a ValueError unless it has all columns, of rows of these lengths."""
    keys = {kind: kind.name_of_lengths for kind in columns.kinds}
    shapes = {key: table.arrays.get(key, ((), None))[0] for key in (*columns.names, *keys.values(), *flags)}
    if missing := [key for key, shape in shapes.items() if not shape]:
        raise ValueError(
            f"For 'from_npz', {table.label} must have an array of rows for each of {missing}, but it has "
            f"{list(table.arrays)}."
        )
    sizes = {key: shape[0] for key, shape in shapes.items()}
    with table.readers(list(keys.values())) as read, _explained("from_npz", table.label):
        lengths = {kind: read[key](0, sizes[key]) for kind, key in keys.items()}
    number = len(lengths[columns.kinds[0]])
    expected = dict.fromkeys(sizes, number)
    for kind, given in lengths.items():
        if given.ndim != 1 or given.dtype.kind not in "iu" or given.min(initial=0) < 0:
            raise ValueError(f"For 'from_npz', {keys[kind]!r} of {table.label} must hold ints >= 0, but got {given!r}.")
        lengths[kind] = given = given.astype(np.int64)
        expected |= dict.fromkeys(kind.names, int(given.sum()))
    if wrong := {key: size for key, size in sizes.items() if size != expected[key]}:
        raise ValueError(
            f"For 'from_npz', {table.label} must have an entry for each of its {number} rows, or for each item by "
            f"their lengths, but got {wrong}."
        )
    return lengths


def _fill_with_lengths(table: NpzTable, buffer: Any, progress: bool) -> Any:
    """Insert the rows of a file into a buffer whose rows differ in length, as many at once as it has memory for."""
    columns, flags = buffer.spec.columns, list(_FLAGS) if buffer.has_episodes else []
    lengths, before = _lengths_of(table, columns, flags), int(buffer.size())
    number = len(lengths[columns.kinds[0]])
    bounds = {kind: np.append(0, np.cumsum(given)) for kind, given in lengths.items()}
    if flags and before:
        buffer.end_episodes()
    fields = [
        (shape[i in columns.kind_of :], dtype) for i, (shape, dtype) in enumerate(column_fields(columns).values())
    ]
    with (
        table.readers([*columns.names, *flags]) as read,
        progress_bar("from_npz", number, progress, "row", "datasets") as done,
    ):
        begin, ended = 0, True
        while begin < number:
            most = [np.searchsorted(end, end[begin] + kind.items, "right") - 1 for kind, end in bounds.items()]
            stop = max(begin + 1, int(min(begin + chunk_rows(columns.row_bytes()), number, *most)))
            rows = []
            for i, (name, field) in enumerate(zip(columns.names, fields)):
                of = bounds[columns.kind_of[i]] if i in columns.kind_of else range(number + 1)
                with _explained("from_npz", table.label):
                    array = read[name](int(of[begin]), int(of[stop] - of[begin]))
                rows.append(fit("from_npz", table.label, name, array, field).view(columns.numpy_types[i]))
            own = {kind.name: given[begin:stop] for kind, given in lengths.items()}
            ends = {flag: read[flag](begin, stop - begin) for flag in flags}
            if flags:
                ended, ends["end"] = ends["end"][-1], ends_said(ends["end"], ends["final"], ended)
            buffer.insert(rows, lengths=own, **ends)
            done(stop - begin)
            begin = stop
    if lost := before + number - int(buffer.size()):
        log.warning("from_npz: %s: %d of %d rows overwritten: there is no room for more", table.label, lost, number)
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
    check_buffer("to_npz", buffer)
    fields, kinds = column_fields(buffer.spec.columns), buffer.spec.columns.kinds
    more: dict[str, Field] = {kind.name_of_lengths: ((), np.dtype(np.int32)) for kind in kinds}
    if buffer.has_episodes:
        more |= {name: ((), np.dtype(np.bool_)) for name in _FLAGS}
    if taken := sorted(more.keys() & fields.keys()):
        raise ValueError(f"For 'to_npz', 'buffer' must have no columns {taken}, which are flags or lengths.")
    fields |= more
    with buffer.state.snapshot(columns=True) as state:
        stored = StoredRows(buffer.spec, state)
        if buffer.has_episodes and buffer.num_envs > 1:
            stored.end_episodes(buffer.spec.options.end_flags)
        if not len(stored):
            raise ValueError("For 'to_npz', 'buffer' must hold a row, but got none.")
        with (
            progress_bar("to_npz", len(stored) * len(fields), progress, "row", "datasets") as done,
            replacing(real_path(path), "to_npz") as target,
            zipfile.ZipFile(target, "w") as file,
        ):
            for name, field in fields.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    _write(stream, stored, name, field, done)


def _write(stream: IO[bytes], stored: StoredRows, name: str, field: Field, done: Callable[[int], object]) -> None:
    """Write one array: rows, their lengths or their flags; of rows that differ in length, the items."""
    (shape, dtype), source = field, _FLAGS.get(name, name) if name not in stored.fields else name
    of_lengths = {kind.name_of_lengths: kind for kind in stored.kinds.values()}
    number, slots_of = len(stored), stored.slots(chunk_rows(bytes_of([field])))
    if name in stored.kinds:
        every = itertools.chain.from_iterable(stored.slots(len(stored)))
        number = sum(int(stored.lengths(stored.kinds[name], slots).sum()) for slots in every)
        shape = shape[1:]
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (number, *shape)}
    npy.write_array_header_1_0(stream, header)
    for slots in itertools.chain.from_iterable(slots_of):
        rows = stored.lengths(of_lengths[name], slots) if name in of_lengths else stored.read(source, slots)
        stream.write(rows.tobytes())
        done(len(slots))
