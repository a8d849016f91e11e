"""Weights of a network for the processes that act, in a file."""

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..base.checks import LAST_CLOCK, check_no_pipe, check_number, check_size
from ..folder.files import unchanged_if_refused
from ..rows.inputs import as_array

#: Seconds between two looks at a file that is waited for.
_AGAIN = 0.002
#: Longest wait, in seconds.
_LONGEST_WAIT = 1e6


class SharedWeights:
    """The newest weights of a learner's network, for actors without MindSpore.

    The file ``weights`` in the folder is replaced atomically: readers never see parts of two versions, also if the
    publisher is killed.

    Args:
        buffer (Union[Buffer, AttachedBuffer, str, PathLike]): The learner's or an attached buffer in a folder, or any
            folder that the processes share.

    Attributes:
        version (Union[int, None]): Version of the weights last published or read, for ``insert(version=...)``,
            initially ``None``.

    Raises:
        TypeError: If `buffer` is not in a folder.
        FileNotFoundError: If there is no such folder.

    Examples:
        >>> import tempfile
        >>> from mindspore import nn
        >>> from mindspore_replay import ReplayBuffer, SharedWeights, attach
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     buffer = ReplayBuffer(1, 100, [()], ["int32"], weighted=True, storage=f"{parent}/rows")
        ...     print(SharedWeights(buffer.advance(5)).publish(nn.Dense(4, 2)))
        ...     attached = attach(f"{parent}/rows")  # as in another process
        ...     weights = SharedWeights(attached)
        ...     print({name: array.shape for name, array in weights.read().items()}, weights.read())
        ...     attached = attached.insert([1], version=weights.version)
        5
        {'weight': (2, 4), 'bias': (2,)} None
    """

    def __init__(self, buffer: object) -> None:
        folder = getattr(buffer, "folder", buffer)
        if not isinstance(folder, (str, os.PathLike)):
            raise TypeError(
                f"For 'SharedWeights', 'buffer' must be a buffer in a folder, or a folder, but got {buffer!r}: make "
                "the buffer with storage=FOLDER."
            )
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"For 'SharedWeights', 'buffer' must be in a folder, but there is no {folder}.")
        self.version: int | None = None
        self._clock = getattr(buffer, "clock", getattr(buffer, "arrays", {}).get("clock"))
        self._file = Path(folder).resolve() / "weights"
        self._seen: int | None = None

    def publish(self, network: Any, version: int | None = None) -> int:
        """Replace the weights. Only one process may publish.

        Args:
            network (Union[nn.Cell, Mapping]): A network, to write all its Parameters under their names in
                ``parameters_and_names``, such as ``dense.weight``, which stay when an optimizer renames Parameters; or
                arrays or Tensors by name. bfloat16 is written as float32.
            version (Union[int, None]): Version of the policy. Default: ``None``, for the clock of the learner's buffer,
                or, if that has no row weights, the number of earlier publications.

        Returns:
            int: The version.

        Raises:
            TypeError: If `network` is neither, a name is not a str, an array is not numeric, or `version` is not an
                int.
            ValueError: If `version` is negative.
            OSError: If the file cannot be written. The previous version remains.
        """
        values = network if isinstance(network, Mapping) else dict(getattr(network, "parameters_and_names", dict)())
        if not values:
            raise TypeError(
                "For 'SharedWeights', 'network' must be a Cell with Parameters or a dict of arrays, but got "
                f"{network!r}."
            )
        arrays = {name: _plain(name, as_array(value)) for name, value in values.items()}
        layout = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
        unfinished = self._file.with_suffix(".part")
        with unchanged_if_refused(self._file, "SharedWeights.publish"):
            if version is None:
                version = self._following() if self._clock is None else int(as_array(self._clock)[0])
            version = check_size("SharedWeights", "version", version, LAST_CLOCK, minimum=0)
            try:
                with unfinished.open("wb") as file:
                    file.write(json.dumps({"version": version, "arrays": layout}).encode() + b"\n")
                    for array in arrays.values():
                        file.write(array.reshape(-1).view(np.uint8).data)
                # Readers know a newer file by its time, which a file system may count in steps of milliseconds.
                stamp = max(time.time_ns(), 1 + (self._stamp() or 0))
                os.utime(unfinished, ns=(stamp, stamp))
                unfinished.replace(self._file)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        self.version, self._seen = version, self._stamp()
        return version

    def read(self, timeout: float = 0.0) -> dict[str, np.ndarray] | None:
        """Return the weights if they are newer than those last published or read by this object.

        Args:
            timeout (float): Longest wait for newer weights, in seconds, for example before an actor's first step.
                Default: ``0.0``.

        Returns:
            Union[dict[str, numpy.ndarray], None]: The weights by name, or ``None`` if there are no newer ones.

        Raises:
            TypeError: If `timeout` is no number.
            ValueError: If `timeout` is negative, or the machine stopped while the file was written.
        """
        until = time.monotonic() + check_number("SharedWeights", "timeout", timeout, 0.0, _LONGEST_WAIT)
        while self._stamp() in (None, self._seen):
            if time.monotonic() >= until:
                return None
            time.sleep(min(_AGAIN, timeout))
        check_no_pipe("SharedWeights", self._file)
        with self._file.open("rb") as file:
            stamp = os.fstat(file.fileno()).st_mtime_ns
            version, layout = self._header(file)
            arrays = {name: np.fromfile(file, dtype, math.prod(shape)).reshape(shape) for name, dtype, shape in layout}
        self.version, self._seen = version, stamp
        return arrays

    def __reduce__(self) -> tuple[type["SharedWeights"], tuple[str]]:
        """Make another object on the same folder, which has read nothing yet and has no clock."""
        return SharedWeights, (str(self._file.parent),)

    def _header(self, file: BinaryIO) -> tuple[int, list[tuple[str, np.dtype, tuple[int, ...]]]]:
        """Return the version in a file, and name, dtype and shape of each array after it."""
        try:
            line = file.readline()
            header = json.loads(line)
            layout = [(name, np.dtype(dtype), tuple(shape)) for name, dtype, shape in header["arrays"]]
            size = len(line) + sum(dtype.itemsize * math.prod(shape) for _, dtype, shape in layout)
            if size != os.fstat(file.fileno()).st_size:
                raise ValueError(f"a file of {size} bytes was written")
            return header["version"], layout
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"For 'SharedWeights', {self._file} is damaged: publish the weights again.") from error

    def _following(self) -> int:
        """Return the number after the version in the file, 0 if there is none."""
        with contextlib.suppress(FileNotFoundError, ValueError), self._file.open("rb") as file:
            return self._header(file)[0] + 1
        return 0

    def _stamp(self) -> int | None:
        """Return the time of the file, which is later for each newer one, or ``None`` if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._file).st_mtime_ns
        return None


def _plain(name: object, array: np.ndarray) -> np.ndarray:
    """Return an array that any process with NumPy reads. Raise a TypeError if there is none, or the name is no str."""
    is_bfloat16 = array.dtype.name == "bfloat16"
    if not isinstance(name, str) or not (is_bfloat16 or array.dtype.kind in "biufc"):
        raise TypeError(
            f"For 'SharedWeights', 'network' must hold arrays of numbers by name, but got an array of {array.dtype} "
            f"under {name!r}."
        )
    return np.asarray(array, np.float32 if is_bfloat16 else array.dtype, order="C")
