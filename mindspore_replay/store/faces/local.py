"""The methods of a buffer whose rows this process owns: its life, and its state as named arrays."""

import contextlib
import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from ..base.checks import check_size
from ..base.column import Column
from ..base.habits import only_from_python
from ..base.mixins import mixin
from ..base.schema import Schema
from ..kernels import library
from ..kernels.call import Tensors
from ..kernels.library import library_for
from ..rows.any_length import make_store
from ..rows.compressed import CompressedColumn
from ..rows.store import STATE_VERSION, Store
from ..spec.arguments import keeps_arguments
from ..spec.described import constructor_of
from ..spec.parts import Parts
from ..spec.spec import BufferSpec, constructors, spec_for
from ..waits.limiter import RateLimiter
from ..waits.waiting import Waiting
from .front import LocalFront, SharedRows
from .methods import BufferMethods, describe
from .place import HOST, check_compressed, checked_storage, folder_of, open_buffer
from .relabelling import Relabelling
from .state import BufferState

#: Most sample sizes of which a buffer remembers the objects, the last ones used.
_MOST_SIZES = 32

_Local = TypeVar("_Local", bound="LocalBuffer")


@mixin
@only_from_python
@keeps_arguments
class LocalBuffer(BufferMethods):
    """A buffer whose rows this process owns: in memory, or in a folder of which it is the learner.

    Subclasses have the constructors. A class declared with ``public=True`` is one that files name. Results are
    arrays, unless a subclass makes others of them.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored.
        shapes, types, names: The columns as lists, as for `ReplayBuffer`, or ``None``.
        parts (Parts): How rows are drawn and stored, and the contents of a sample.
        columns (Union[Mapping[str, Column], Sequence[Column], None]): The columns in place of the lists. Default:
            ``None``.
        num_envs (int): Environments that insert in step. Default: ``1``.
        seed (Union[int, None]): Seed of the random sequence. Default: ``None``.
        storage (Union[str, PathLike, None]): Place of the rows. Default: ``None``.
        backend (str): ``"native"``, ``"composite"`` or ``"auto"``. Default: ``"auto"``.

    Attributes:
        updates (numpy.ndarray): The numbers of updates, as in `state.whole_layout`.
    """

    #: A class for the columns, and the public class whose constructor it has.
    _columns_of: ClassVar[type[Schema]] = Schema
    _constructor: ClassVar[Any] = None
    _front: LocalFront

    def __init_subclass__(cls, public: bool = False, **others: object) -> None:
        """Keep the public class whose constructor it has."""
        super().__init_subclass__(**others)
        if public:
            cls._constructor = constructors[cls.__name__] = cls

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None,
        types: Sequence[object] | None,
        parts: Parts,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        num_envs: int = 1,
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        described = spec_for(type(self), sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed)
        self._make(described, storage, backend)

    def _make(self, spec: BufferSpec, storage: Any, backend: Any) -> None:
        name, place = spec.cls_name, checked_storage(spec.cls_name, storage, HOST)
        if backend not in ("native", "auto"):
            raise ValueError(
                f"For '{name}' of mindspore_replay.host, 'backend' must be 'native' or 'auto', but got {backend!r}."
            )
        if library_for("CPU").reason:
            raise RuntimeError(f"For '{name}', the kernels of the CPU are needed: {library_for('CPU').reason}.")
        relabelling = spec.relabelling
        if relabelling is not None and "bfloat16" in (relabelling.goal_type, relabelling.reward_type):
            raise TypeError(f"For '{name}' of mindspore_replay.host, HindsightRelabel cannot compute with bfloat16.")
        check_compressed(spec, place)
        shared = SharedRows(folder_of(spec, place))
        tensors = Tensors(guard=library.calls.Guard(shared.lock))
        describe(self, spec, self._front_on(make_store(spec, tensors, shared.folder), spec, shared))
        self._front.begin_queue()
        object.__setattr__(self, "updates", self._front.calls.updates)

    @staticmethod
    def _front_on(store: Store, spec: BufferSpec, shared: SharedRows) -> LocalFront:
        front = LocalFront(store, spec, shared)
        if spec.relabelling is not None:
            front.relabel = Relabelling(spec.relabelling)
        return front

    @staticmethod
    def _find(name: str) -> Any:
        """Return the class of a name that a file contains."""
        return RateLimiter if name == "RateLimiter" else constructor_of(name)

    @property
    def limiter(self) -> Waiting | None:
        """What `insert` and `sample` wait for, or ``None`` for nothing. A queue has a fixed one."""
        return self._front.limiter

    @limiter.setter
    def limiter(self, limiter: RateLimiter | None) -> None:
        self._front.set_limiter(limiter)

    # For users.

    def rows(self, *, as_dict: bool = False) -> Any:
        """Read all rows of a full buffer as one batch, oldest first, for learners that fill, learn and `reset`.

        Args:
            as_dict (bool): Whether to return a dict by name. Default: ``False``.

        Returns:
            Union[tuple[Tensor, ...], dict]: Copies of the rows, ``[C, *F]`` for each column in the order of `shapes`.

        Raises:
            RuntimeError: If fewer than `capacity` rows are stored. See `full`. In a graph the operator raises it.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
            >>> print(*buffer.rows())
            [11 12 13 14]
        """
        return self._front.rows(as_dict)

    def reset(self: _Local) -> _Local:
        """Remove all rows. Serial numbers and the random sequence continue. The next row goes to slot 0.

        The learner's clock, the largest priority, beta and, from Python, the limiter's counts are reset too. Cost O(1),
        or O(C) in a buffer with weights.

        Returns:
            Buffer: The buffer itself. In a graph a tuple with the number of rows stored, int32 ``[]``.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]]).reset()
            >>> print(buffer.size())
            0
        """
        self._front.reset()
        return self

    def with_sample_size(self: _Local, sample_size: int) -> _Local:
        """Return a buffer on the same rows, Parameters, lock and limiter, for another sample size.

        Another call for the same size returns the same object.

        Args:
            sample_size (int): Rows of one sample.

        Returns:
            Buffer: A buffer of the same class.

        Raises:
            TypeError: If `sample_size` is no int.
            ValueError: If it is not positive, or larger than any possible sample.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> larger = buffer.with_sample_size(3)
            >>> print(buffer.sample()[0].shape, larger.sample()[0].shape, larger.size())
            (2,) (3,) 3
        """
        size, sizes = check_size(type(self).__name__, "sample_size", sample_size), vars(self).setdefault("_sizes", {})
        with self.lock:  # not of a closed buffer
            buffer = sizes.pop(size, None)
        if buffer is None:
            buffer = self._resized(size)
        sizes[size] = buffer
        if len(sizes) > _MOST_SIZES:
            sizes.pop(next(iter(sizes)), None)
        return buffer  # type: ignore[no-any-return]

    @property
    def folder(self) -> Path | None:
        """The folder of the rows, or ``None`` if they are in memory."""
        return self._front.folder

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """The lock held by calls from Python. Compiled graphs do not wait for it.

        If the buffer is in a folder, all its processes share this lock, and graphs wait for it too.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> with buffer.lock:  # no other thread comes between
            ...     buffer = buffer.insert([1])
            ...     newest, = buffer.get_item(-1)
            >>> print(newest)
            1
        """
        return self._front.outer_lock

    def eligible(self) -> int:
        """Return the number of rows at which a sample may start now. Only from Python.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], weighted=True, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(buffer.delete([1]), buffer.size(), buffer.eligible())
            1 3 2
        """
        return self._front.eligible()

    @classmethod
    def open(
        cls: type[_Local],
        folder: str | os.PathLike[str],
        *,
        views: Sequence[object] | None = None,
        verify: bool = False,
    ) -> _Local:
        """Open the buffer in a folder, made with ``storage=folder``, with all rows whose insertion had returned.

        The random sequence continues. An operation that a dead process left unfinished is completed or undone. If the
        machine stopped before `close`, the buffer is restored as of its last `flush`, without rows changed later. A
        warning counts these.

        Args:
            folder (Union[str, PathLike]): The folder.
            views (Union[Sequence, None]): The buffer's views, required if one contains Python code, such as
                `HindsightRelabel`. Other views are read from the folder. Default: ``None``.
            verify (bool): Whether to check all rows unchanged since the last `flush`, and remove those that fail their
                checksums, with a warning. Default: ``False``, to check only after the machine stopped.

        Returns:
            Buffer: A buffer of this class, or of any class if this is `Buffer`.

        Raises:
            FileNotFoundError: If there is no such folder.
            ValueError: If the folder contains something else, a damaged buffer, or one of a newer version of this
                library or of another class, or if `views` do not fit.
            RuntimeError: If the buffer is open in another learner, or with `verify` in any other process.
            OSError: If this process may not write to the folder.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).close()
            ...     buffer = ReplayBuffer.open(f"{parent}/rows")
            ...     print(*buffer.get_item(0))
            ...     buffer.close()
            7
        """
        return open_buffer(cls, folder, views, verify, cls._find)

    def flush(self, *, every: float | None = None, rows: int | None = None) -> None:
        """Write the buffer in the folder to the disk, so that its present state survives a loss of power.

        Rows updated or overwritten later may be lost. See [processes](../processes.md). Other threads and processes
        continue while the disk writes.

        Args:
            every (Union[float, None]): Also flush in a thread every so many seconds until `close`. 0 stops it. Default:
                ``None``, no change.
            rows (Union[int, None]): Let that thread also flush once so many rows were inserted since the last flush. It
                looks 100 times a second. Default: ``None``, only `every` counts.

        Raises:
            RuntimeError: If the buffer is not in a folder, or was closed.
            ValueError: If `every` is no number, or negative, or `rows` is no positive integer.
            FileNotFoundError: If the folder was deleted. The rows are then in memory only.
            OSError: If the disk could not be written. Later calls fail too, since its contents are unknown.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).flush()  # from here on a loss of power loses nothing
            ...     buffer.close()
        """
        self._front.flush(every, rows)

    def close(self) -> None:
        """Free the memory of the rows. If the buffer is in a folder, flush and release the folder instead.

        Afterwards another learner can open the folder. Methods of this buffer and of attached processes raise a
        RuntimeError, also where they wait for a limiter. So do compiled graphs. With the composite backend they find
        the buffer empty. Buffers made by `with_sample_size` close too. A GPU's memory is freed with the object. A
        second call does nothing.

        Raises:
            FileNotFoundError: If the folder was deleted. The buffer is still open: `save` its rows elsewhere. A second
                call gives them up.
            OSError: If the disk could not be written. The buffer is closed nevertheless.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).close()
            >>> ReplayBuffer(1, 4, [()], ["int32"]).insert([7]).close()
        """
        self._front.close()

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays of the state by name, in this buffer's own memory."""
        return self._front.calls.arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays. Of compressed columns, those now."""
        return sum(array.nbytes for array in {**self.arrays, **self._front.calls.compressed}.values())

    @property
    def state(self) -> BufferState:
        """What the rest of the package asks of a buffer. Users need none of it."""
        return BufferState(self._front)

    def _resized(self: _Local, size: int) -> _Local:
        buffer, front, spec = self._copied(), self._front, self.spec.resized(size)
        resized = self._front_on(front.calls.resized(spec.options), spec, front.shared)
        describe(buffer, spec, resized)
        return buffer

    def _copied(self: _Local) -> _Local:
        clone: _Local = object.__new__(type(self))
        vars(clone).update({key: value for key, value in vars(self).items() if key != "_sizes"})
        return clone

    def __deepcopy__(self: _Local, memo: dict[Any, Any]) -> _Local:
        """Make an independent buffer with the same rows in memory, and a copy of the limiter.

        Buffers that `with_sample_size` made on the same rows are so in a copy of their owner too.
        """
        rows = "rows", id(self._front.shared)
        if rows in memo:
            memo[id(self)] = clone = memo[rows].with_sample_size(self.sample_size)
            return clone  # type: ignore[no-any-return]
        with self.state.snapshot(columns=True) as arrays:
            memo[id(self)] = memo[rows] = clone = self._copied()
            clone._make(self.spec, HOST, "native")
            if isinstance(self.limiter, RateLimiter):
                clone.limiter = copy.deepcopy(self.limiter, memo)
            for key, one in clone.state.state_arrays().items():  # no kernel may run: the block may keep it out too
                if isinstance(one.array, CompressedColumn):
                    one.array.load_checked(arrays[key])
                else:
                    one.array[...] = arrays[key]
        return clone

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the whole state, as `Buffer.state_dict` does."""
        with self.state.snapshot(columns=True) as arrays:
            copies = {key: array.copy() for key, array in arrays.items()}
        return {"version": np.array(STATE_VERSION), **copies}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state, as `Buffer.load_state_dict` does."""
        self.state.load(state_dict)

    def check_valid(self) -> None:
        """Check the invariants of the state. They hold between any two operations.

        Raises:
            ValueError: If cursors or weights are out of range or inconsistent.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer.insert([[10, 11, 12]]).check_valid()
        """
        state = self.state
        with state.snapshot() as arrays:
            state.check_state(arrays)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"For '{type(self).__name__}', a buffer cannot be pickled: write it to a file with save(buffer, path), use "
            "storage=folder and attach(folder) in the other process, or load_state_dict its state_dict() into another. "
            "In this process copy.deepcopy(buffer) is a copy."
        )
