"""The whole state of a training run in one file."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from ..buffers.parameters import Held
from ..checkpoint.buffers import contents_of
from ..checkpoint.file_format import CODES, check_description, is_value, sensible, summary
from ..checkpoint.files import Source, open_source, real_path
from ..checkpoint.loading import load_parts
from ..checkpoint.saving import Part, save_parts
from ..store.faces.local import LocalBuffer
from ..store.faces.mixture import MixedReplay
from ..store.faces.state import Plain
from ..store.folder.files import sync
from .values import GENERATORS, RandomStates, decoded, encoded

_BUFFERS = LocalBuffer, MixedReplay
_LOGGER = logging.getLogger("mindspore_replay.checkpoint")


class TrainingCheckpoint:
    r"""One file with all that a training run needs to continue: networks, optimizers, buffers, counters, random states.

    `save` replaces the file atomically: after a kill at any moment, the previous or the new checkpoint exists. `load`
    reads it into objects made as before. See ``docs/checkpoints.md`` for a loop.

    A buffer in memory is written whole. One in a folder stays there: `save` flushes it, which writes only what changed.
    It keeps its rows, also those inserted after the checkpoint; `load` logs how many. ``docs/checkpoints.md`` says from
    which size on that is the better place.

    The random states of NumPy (``np.random``), Python (``random``) and MindSpore (its seeds and ``default_generator``)
    are always included. Those of MindSpore's random operators in compiled graphs are not, since MindSpore does not
    expose them: after `load` such operators return other numbers.

    Args:
        path (Union[str, PathLike]): The file.
        parts (Any): The objects to save, by names of your choice. Use the same names when you load.

            - a Cell, such as a network or optimizer: its Parameters and the buffers in it. A shared Parameter is saved
              once;
            - a buffer, a `MixedReplay`, or a dict of buffers as `create_buffer` makes, also of `mindspore_replay.host`;
            - a random number generator: ``np.random.Generator``, ``np.random.RandomState``, ``random.Random`` or
              ``mindspore.Generator``. That of a gymnasium environment is ``env.unwrapped.np_random``.

    Raises:
        TypeError: If a part is none of these. A `ShardedReplay` is not supported: use its own `save`.
        ValueError: If a buffer is passed twice.

    Examples:
        >>> import tempfile
        >>> import numpy as np, mindspore as ms
        >>> from mindspore import nn
        >>> from mindspore_replay import ReplayBuffer, TrainingCheckpoint
        >>> def make_run(folder):
        ...     network = nn.Dense(4, 2)
        ...     parts = {"network": network, "optimizer": nn.Adam(network.trainable_params())}
        ...     parts |= {"buffer": ReplayBuffer(3, 100, [()], [ms.int32]), "rng": np.random.default_rng()}
        ...     return parts, TrainingCheckpoint(f"{folder}/run.safetensors", **parts)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, checkpoint = make_run(folder)
        ...     print(checkpoint.load())
        ...     _ = first["buffer"].insert([np.arange(50, dtype=np.int32)])
        ...     checkpoint.save(step=50, returns=[9.0, 11.0])
        ...     second, checkpoint = make_run(folder)
        ...     print(checkpoint.load())
        None
        {'step': 50, 'returns': [9.0, 11.0]}
        >>> print(second["buffer"].size(), first["rng"].random() == second["rng"].random())
        50 True
    """

    def __init__(self, path: str | os.PathLike[str], /, **parts: Any) -> None:
        self.path = os.fspath(path)
        for name, part in parts.items():
            _check_part(name, part)
        self._random = RandomStates({name: part for name, part in parts.items() if isinstance(part, GENERATORS)})
        self._buffers = _buffers(parts)
        _, found = self._contents()
        values = [one for part in found for one in part.arrays().values()]
        identities = {id(one.parameter) for one in values if isinstance(one, Held)}
        # Those in folders stay there with all of their state; a file holds the numbers of their rows alone.
        self._in_folders = [part.owner for part in found if part.is_buffer and part.owner.folder is not None]
        self._parts = [part for part in found if part.owner not in self._in_folders]
        for name, part in parts.items():
            if not isinstance(part, (Mapping, *GENERATORS)):  # a buffer has no other Parameters
                parameters = list(part.parameters_and_names()) if isinstance(part, nn.Cell) else []
                self._parts.append(Part(f"{name}.", _Weights(name, parameters, identities)))
        self._values = _Values()

    def save(self, **values: object) -> None:
        """Write a checkpoint. Call it between calls of compiled graphs.

        Args:
            values (Any): Values for `load` to return, by name: None, numbers, strings, NumPy arrays of numbers, and
                lists, tuples and dicts by strings of these.

        Raises:
            TypeError: If a value is of another type.
            RuntimeError: If a part changed meanwhile.
            OSError: If the file cannot be written. After any error the previous checkpoint is unchanged.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer, TrainingCheckpoint
            >>> buffer = ReplayBuffer(1, 4, [()], ["int32"])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     TrainingCheckpoint(f"{folder}/run.safetensors", buffer=buffer.insert([7])).save(step=1)
        """
        inserted = [_inserted(buffer) for buffer in self._in_folders]
        for buffer in self._in_folders:
            buffer.flush()  # so that no loss of power takes it back behind this checkpoint
        self._values.arrays = encoded(values=values, random=self._random.read(), inserted=inserted)
        save_parts([*self._parts, Part("", self._values)], self.path, self._contents()[0])

    def load(self) -> dict[str, Any] | None:
        """Read the checkpoint into the parts. The run then continues as if it had not stopped.

        Everything is checked before anything changes. A buffer's capacity may differ, as for the function `load`.

        Returns:
            Union[dict, None]: The values passed to `save`, or ``None`` if there is no file. Nothing is changed then.

        Raises:
            ValueError: If the file is truncated, altered or of another kind, or names, kinds, shapes or dtypes of the
                parts differ from the saved ones.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer, TrainingCheckpoint
            >>> first, second = (ReplayBuffer(1, 4, [()], ["int32"]) for _ in range(2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     TrainingCheckpoint(f"{folder}/run.safetensors", buffer=first.insert([7])).save(step=1)
            ...     print(TrainingCheckpoint(f"{folder}/run.safetensors", buffer=second).load(), second.size())
            {'step': 1} 1
        """
        path = real_path(self.path)
        if not path.exists():
            return None
        sync(path.parent)  # a killed process may have left the file's name in memory, and rows will follow it
        with open_source(self.path) as source:
            self._check_kinds(source)
            content = self._read_values(source)
            inserted = [_inserted(buffer) for buffer in self._in_folders]
            load_parts(source, self._parts, of_all=True)
        self._random.write(content["random"])
        for buffer, now, then in zip(self._in_folders, inserted, content.get("inserted", inserted)):
            if now != then:
                _LOGGER.warning(
                    "For 'TrainingCheckpoint', the %s in %s stays as it is: %d rows were inserted by now, %d when the "
                    "checkpoint was saved.",
                    type(buffer).__name__,
                    buffer.folder,
                    now,
                    then,
                )
        values: dict[str, Any] = content["values"]
        return values

    def _contents(self) -> tuple[dict[str, Any], list[Part]]:
        """Return the description of the buffers, and their parts."""
        return contents_of("TrainingCheckpoint", self._buffers, True) if self._buffers else ({"dict": {}}, [])

    def _read_values(self, source: Source) -> dict[str, Any]:
        """Return the plain values and the random states, checked."""
        arrays = {name: source.array(name) for name in source.header.entries if is_value(name)}
        with sensible(source.path):
            content = decoded(arrays)
            states, values, inserted = content["random"], content["values"], content.get("inserted", [])
            if not (isinstance(states, dict) and isinstance(values, dict) and isinstance(inserted, list)):
                raise TypeError(f"{type(states).__name__}, {type(values).__name__} and {type(inserted).__name__}")
            if not all(type(rows) is int for rows in inserted):
                raise TypeError(f"{inserted} rows were inserted")
        self._random.check(states)
        return content

    def _check_kinds(self, source: Source) -> None:
        path, saved, contents = source.path, source.header.description, self._contents()[0]
        if not any(map(is_value, source.header.entries)):
            raise ValueError(
                f"For 'TrainingCheckpoint', 'path' must be a file that it wrote, but {path} was written by the "
                "function 'save': read it with 'load'."
            )
        if saved != {"dict": {}}:
            check_description(path, saved)
        if summary(contents) != summary(saved):
            raise ValueError(
                f"For 'TrainingCheckpoint', the buffers must be those that were saved in {path}, {summary(saved)}, but "
                f"got {summary(contents)}."
            )


def _check_part(name: str, part: object) -> None:
    if not name.isidentifier():
        raise ValueError(f"For 'TrainingCheckpoint', names of parts must be those of variables, but got {name!r}.")
    if not isinstance(part, (nn.Cell, Mapping, *_BUFFERS, *GENERATORS)):
        way_out = "Give plain values to 'save'."
        if type(part).__name__ == "ShardedReplay":
            way_out = "Its shards are in other processes: give it a 'folder', and call its 'save' too."
        raise TypeError(
            f"For 'TrainingCheckpoint', {name!r} must be a Cell, a dict of buffers or a random number generator, but "
            f"got {type(part).__name__}. {way_out}"
        )


def _buffers(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the buffers among the parts, and those in Cells by their path there. Each occurs once."""
    found = {name: part for name, part in parts.items() if isinstance(part, (Mapping, *_BUFFERS))}
    inside = [
        (f"{name}.{key}", cell)
        for name, part in parts.items()
        if isinstance(part, nn.Cell) and name not in found
        for key, cell in part.cells_and_names()
        if isinstance(cell, _BUFFERS)
    ]
    identities = _identities(found) if found else set()
    for key, cell in sorted(inside, key=lambda item: isinstance(item[1], LocalBuffer)):  # those of others come first
        if not _identities(cell) & identities:
            identities |= _identities(cell)
            found[key] = cell
    return found


def _identities(buffers: object) -> set[int]:
    return {id(part.owner) for part in contents_of("TrainingCheckpoint", buffers)[1]}


class _Weights:
    """The Parameters of a Cell.

    Args:
        name (str): Name of the Cell.
        parameters (Sequence[tuple[str, Parameter]]): Its Parameters by name.
        identities (set[int]): Identities of Parameters saved elsewhere. Those of the Cell are added.
    """

    def __init__(self, name: str, parameters: Sequence[tuple[str, Parameter]], identities: set[int]) -> None:
        self._parameters: dict[str, Parameter] = {}
        for key, parameter in parameters:
            if id(parameter) not in identities:
                identities.add(id(parameter))
                self._parameters[key] = parameter
        wrong = {key: dtype for key, p in self._parameters.items() if (dtype := p.asnumpy().dtype.name) not in CODES}
        if wrong:
            raise TypeError(f"For 'TrainingCheckpoint', Parameters of {name!r} must be numbers, but got {wrong}.")

    def state_arrays(self) -> dict[str, Held]:
        return {key: Held(parameter) for key, parameter in self._parameters.items()}

    def check_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Accept any numbers."""


class _Values:
    """Plain values to write to a file."""

    arrays: dict[str, np.ndarray]

    def state_arrays(self) -> dict[str, Plain]:
        return {name: Plain(array, array.dtype.name) for name, array in self.arrays.items()}


def _inserted(buffer: LocalBuffer) -> int:
    """Return the number of rows inserted so far."""
    with buffer.state.snapshot() as arrays:
        return int(arrays["serials"][0])
