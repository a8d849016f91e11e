"""The base class of all buffers."""

import functools
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, cast

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn

from .. import mindspore_api
from ..columns import TYPES, Columns
from ..mindspore_api import share
from ..ops import native
from ..ops.composite import CompositeOperators
from ..ops.eager import give_graph_bodies, wait_for_work
from ..ops.operators import Operators
from ..ops.state import State
from ..store.base.schema import Schema
from ..store.faces.front import LocalFront, SharedRows
from ..store.faces.local import LocalBuffer
from ..store.faces.methods import describe
from ..store.faces.place import DEVICE, check_compressed, checked_storage, folder_of
from ..store.kernels import library, state
from ..store.kernels.call import Tensors
from ..store.kernels.memory import block_of
from ..store.rows.any_length import make_store
from ..store.rows.calls import Calls
from ..store.rows.store import Store
from ..store.spec.episodes import END, FINAL
from ..store.spec.registry import find
from ..store.spec.spec import BufferSpec
from ..store.waits.limiter import RateLimiter
from .bodies import GraphBodies
from .compile_time import names_in
from .compiled import CompiledCalls
from .copying import deep_copy
from .parameters import parameter_on, refuse_loads
from .relabelling import Relabel, RelabelFromPython
from .state import CellState
from .storage import GRAPHS_OF_HOST, NoOperators, backend_of, default_storage, refusal

_numbers = itertools.count()
_Buffer = TypeVar("_Buffer", bound="Buffer")


@functools.cache
def _constants() -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return constants of graph bodies, where a Tensor would fall back to Python: zero, no flag, and those of all."""
    return Tensor(0, ms.int32), tuple(Tensor([value], ms.uint8) for value in (0, END, FINAL))


class Buffer(GraphBodies, LocalBuffer, nn.Cell):
    """Base class of all buffers: columns, the state of each row, and operators on them.

    The methods are those of the buffers on arrays, with Tensors as results and a body each for the compiler.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column.
        types (Sequence): Dtype of each column.
        parts (Parts): How rows are drawn and stored, and the contents of a sample.
        names (Union[Sequence[str], None]): Name of each column. Default: ``None``.
        num_envs (int): Environments that insert in step. Default: ``1``.
        columns (Union[Mapping[str, Column], Sequence[Column], None]): As for `ReplayBuffer`. Default: ``None``.
        seed (Union[int, None]): Seed of the random sequence. Default: ``None``.
        storage (Union[str, PathLike, None]): ``"device"``, ``"host"`` or a folder. Default: ``None``, for one of the
            first two.
        backend (str): ``"native"``, ``"composite"`` or ``"auto"``. Default: ``"auto"``.

    Attributes:
        spec (BufferSpec): The buffer's columns, sizes and parts, and the contents of a sample.
        names (Union[tuple[str, ...], None]): Names of the columns, if given.
        shapes (tuple[tuple[int, ...], ...]): Shape of one row of each column.
        types (tuple[mindspore.dtype, ...]): Dtype of each column.
        achieved_goal (Union[str, None]): Column of the goals achieved after each action, with `HindsightRelabel`.
        buffer (ParameterTuple): The columns, each ``[C, *F]``, in ring order. A bool column is stored as uint8.
        head (Parameter): Slot of the oldest row. Shape ``[]``, int32.
        count (Parameter): Rows stored. Shape ``[]``, int32.
        serials (Parameter): Rows inserted so far, and the serial number of the first row since the last `reset`. Shape
            ``[2]``, int64.
        random_state (Parameter): Key and counter of the random sequence. Shape ``[2]``, int64. `sample` advances it.
        updates (Parameter): Number of `update` calls so far, then for each 16 slots the last call that wrote a row
            there. Shape ``[1 + ceil(C / 16)]``, int64. `flush` and `save` read it. No checkpoint contains it.
        limiter (Union[RateLimiter, None]): Makes `insert` and `sample` from Python wait. Default: ``None``.
        weighted (bool): Whether rows have weights. If so, the buffer also has:
        weights (Parameter): Weight of each slot, then the tree of their sums. Shape ``[M]``, float64, see
            ``store/kernels/tree.py``.
        priorities (Parameter): Priority of the row in each slot. Shape ``[C]``, float32.
        max_priority (Parameter): Default priority of new rows: the largest so far, initially `initial_priority`. With
            ``default_priority="largest_held"`` it falls at insertions only. Shape ``[]``, float32.
        use_counts (Parameter): Deliveries of the row in each slot, or their bitwise complement if it was removed. Shape
            ``[C]``, int32.
        insertion_clocks (Parameter): Version of the row in each slot: the learner's clock at its insertion, or the
            `version` passed to `insert`. Shape ``[C]``, int64.
        clock (Parameter): The learner's clock; the serial number of the oldest row not yet found stale; and the serial
            number from which on versions never decrease. Shape ``[3]``, int64.
        counts (Parameter): Counters since the buffer was made: deliveries, rows removed after their last use, as stale,
            and by `delete`, and invalid handles skipped. Shape ``[5]``, int64.
        has_episodes (bool): Whether the episode of each row is stored, as sequences and views require. If so, the
            buffer also has:
        steps (Parameter): Position of each slot's row in its episode, from 0. Shape ``[C]``, int64.
        flags (Parameter): Bits for the row in each slot: 1 last of its episode, 2 only read as a next observation, 4
            deleted or stale, 8 a final row may follow or followed after the episode's end. Shape ``[C]``, uint8.

    Examples:
        >>> import numpy as np
        >>> from mindspore_replay import Buffer, PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(sample_size=4, capacity=100, shapes=[(3,), ()], types=["float32", "int32"])
        >>> print(isinstance(buffer, Buffer), buffer.capacity, buffer.sample_size)
        True 100 4
        >>> print(buffer.shapes, buffer.types, buffer.names)
        ((3,), ()) (mindspore.float32, mindspore.int32) None
        >>> buffer = buffer.insert([np.zeros((5, 3), np.float32), np.arange(5, dtype=np.int32)])
        >>> print(buffer.head.asnumpy(), buffer.count.asnumpy(), buffer.buffer[0].shape)
        0 5 (100, 3)
    """

    _columns_of: ClassVar[type[Schema]] = Columns
    _find = staticmethod(find)  # type: ignore[assignment]

    def __init_subclass__(cls, **options: Any) -> None:
        """Give methods the bodies for graphs that the class defines."""
        super().__init_subclass__(**options)
        give_graph_bodies(cls)

    def _make(self, spec: BufferSpec, storage: Any, backend: Any) -> None:
        nn.Cell.__init__(self)
        name = spec.cls_name
        self._is(spec)
        self.columns = cast(Columns, spec.columns)
        self.weighted, self.prioritized, self.has_handles = spec.weighted, spec.prioritized, spec.has_handles
        place = checked_storage(name, storage, default_storage(spec, backend))
        self.backend = backend_of(spec, place, backend)
        self._direct = place != DEVICE or native.direct_calls(self.backend)
        check_compressed(spec, place)
        if self.backend == "composite":
            self.columns.check_composite()
        self._late, self._present = self.columns.late, self.columns.present
        self._lengths_differ = bool(self.columns.length_groups)
        self._stored_shapes, self._stored_types = self.columns.references.shapes, self.columns.references.types
        self._in_graphs = (place == DEVICE or native.on_cpu()) and not refusal(self.columns)
        self._zero, self._flag_values = _constants()
        shared = SharedRows(folder_of(spec, place))
        self._make_front(self._make_state(shared), shared)
        self._front.begin_queue()
        self._begin()

    def _watch(self, calls: Calls) -> None:
        """Notice each access to the Parameters from now on."""
        if isinstance(calls, Store):
            self.__dict__["_guard"] = guard = calls.guard
            if guard is not None and not mindspore_api.notices_reads(self, "head"):
                guard.watch()

    def __getattr__(self, name: str) -> Any:
        # A Parameter, or the operators of graphs: from now on MindSpore may have work in flight on the memory.
        watched = vars(self).get("_watched", {})
        if name == "_graph":
            found = self._operators()
        else:
            found = watched[name] if name in watched else super().__getattr__(name)
        if "_guard" in vars(self):
            vars(self)["_guard"].watch()
        return found

    @property
    def _params(self) -> Any:
        """The Parameters by name. `nn.Cell` reads them by this attribute when it lists them."""
        if "_guard" in vars(self):
            vars(self)["_guard"].watch()
        return self.__dict__["_params"]

    @_params.setter
    def _params(self, value: object) -> None:
        self.__dict__["_params"] = value

    def _is(self, spec: BufferSpec) -> None:
        """Set the attributes that depend on the sample size."""
        describe(self, spec)
        self._smallest_window = spec.options.min_rows_to_sample

    def _begin(self) -> None:
        """Set the attributes of a subclass. The constructor calls this last."""

    def _make_state(self, shared: SharedRows) -> Store | None:
        """Make the Parameters of the state. Return the store on their memory, ``None`` if calls run graphs."""
        store = None
        if self._direct:
            waits = mindspore_api.wait, mindspore_api.jit_contexts, mindspore_api.refuse_trace
            guard = library.calls.Guard(shared.lock, *waits)
            tensor_type = Tensor if native.on_cpu() else None  # others may lie in the memory of a device
            tensors = Tensors(tensor_type, share, mindspore_api.address, TYPES, guard)
            store = make_store(self.spec, tensors, shared.folder)
            self.compressed = store.compressed
            arrays, updates = dict(store.arrays), store.updates
        else:
            arrays, self.compressed = state.make(self.columns, self.options), {}
            updates = arrays.pop("updates")
        self._block = None if self._direct or not native.on_cpu() else block_of(arrays["count"])
        # A buffer outside of a Cell gets no prefix from an owner, and a graph with two buffers needs different names.
        prefix = f"{type(self).__name__}_{next(_numbers)}."
        parameters = {
            name: parameter_on(name, array, self._direct)
            for name, array in arrays.items()
            if name not in self.compressed
        }
        self.buffer = ParameterTuple([p for name, p in parameters.items() if name.startswith(state.OF_ROWS)])
        for name, parameter in parameters.items():
            if not name.startswith(state.OF_ROWS):
                setattr(self, name, parameter)
            parameter.name = prefix + name
            if shared.folder is not None:
                refuse_loads(parameter, type(self).__name__, shared.folder.path)
        # No Parameter of the Cell: it is not part of the state.
        self.__dict__["updates"] = parameter_on(f"{prefix}updates", updates, self._direct)
        if self.compressed:
            columns = parameters | self.compressed
            self.__dict__["buffer"] = tuple(columns[f"column.{name}"] for name in self.columns.names)
        return store

    def _make_front(self, calls: Calls | None, shared: SharedRows) -> None:
        """Make the front of the calls from Python, which run graphs without `calls`."""
        self.__dict__["_watched"] = {"buffer": self.buffer}
        self.__dict__.pop("buffer", None)
        if calls is None:
            parameters = dict(self.parameters_and_names())
            calls = CompiledCalls(self._operators(), parameters, self.columns, self.options, self._block)
        self.__dict__["_front"] = front = LocalFront(calls, self.spec, shared, share, share, share, wait_for_work)
        if self.spec.relabelling is not None:
            front.relabel = RelabelFromPython(self.spec.relabelling)
        self._watch(calls)

    def _operators(self) -> Any:
        """Return the operators of graphs, which are made when a graph is compiled first."""
        watched = vars(self)["_watched"]
        if "_graph" not in watched:
            watched["_graph"] = self._new_operators(watched["buffer"])
        return watched["_graph"]

    def _new_operators(self, columns: Any) -> Any:
        if not self._in_graphs:
            return NoOperators(refusal(self.columns) or GRAPHS_OF_HOST)
        parameters = {**dict(self.parameters_and_names()), "updates": self.updates}
        arguments = State(columns[: len(self.columns)], parameters, self.options), self.columns, self.options
        if self.backend == "composite":
            return CompositeOperators(*arguments)
        relabel = self.spec.relabelling
        return Operators(*arguments, None if relabel is None else Relabel(relabel))

    def _resized(self: _Buffer, size: int) -> _Buffer:
        resized: _Buffer = nn.Cell.__new__(type(self))
        nn.Cell.__init__(resized)
        own: Any = type(self)
        attributes = vars(self).keys() - vars(resized).keys() - {"_guard", "_front", "_sizes"} - names_in(own)
        with self.lock:
            resized.__dict__.update({key: vars(self)[key] for key in attributes})
        mindspore_api.give_parameters(resized, mindspore_api.parameters_of(self))
        resized._is(self.spec.resized(size))
        calls = self._front.calls
        resized._make_front(calls.resized(resized.options) if isinstance(calls, Store) else None, self._front.shared)
        return resized

    # The state.

    @property
    def state(self) -> CellState:
        """What the rest of the package asks of a buffer. Users need none of it."""
        self._show_limits()  # a limiter may have been set for another sample size
        return CellState(self)

    def state_dict(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """Copy the whole state.

        The copy contains columns, cursors, serials, random state, the state of each row, capacity and layout version.

        With arguments, which MindSpore passes for an enclosing Cell, it is ``nn.Cell.state_dict``.

        Returns:
            dict[str, numpy.ndarray]: Copies, by name, for `load_state_dict` of this or another buffer.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> state = buffer.insert([[10, 11, 12]]).state_dict()
            >>> print(state["count"], state["column.0"])
            3 [10 11 12  0]
        """
        if args or kwargs:
            return nn.Cell.state_dict(self, *args, **kwargs)
        return super().state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: object, **kwargs: object) -> Any:
        """Load a state from `state_dict`. The same samples follow as after the copy.

        Args:
            state_dict (Mapping[str, numpy.ndarray]): The state of a buffer with the same columns and capacity.
            args (Any): More arguments of ``nn.Cell.load_state_dict``, for a state of another origin.
            kwargs (Any): As `args`.

        In a folder that has already issued handles, the rows get new serial numbers: a handle never names another row.

        Raises:
            ValueError: If version, keys, shapes, dtypes, cursors or weights do not fit. Nothing is changed then.
            RuntimeError: If it would replace the rows of a folder to which a process is attached.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> state = buffer.insert([[10, 11, 12]]).state_dict()
            >>> print(*buffer.sample())
            [11 12]
            >>> buffer.load_state_dict(state)
            >>> print(*buffer.sample())
            [11 12]
        """
        if "version" not in state_dict:
            return nn.Cell.load_state_dict(self, state_dict, *args, **kwargs)
        return super().load_state_dict(state_dict)

    def _load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        self.state.load_from_cell(arrays)

    __deepcopy__ = deep_copy

    @property
    def nbytes(self) -> int:
        """Bytes of the whole state at full capacity. Compressed columns count their current size.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=1000, shapes=[(84, 84)], types=["uint8"])
            >>> print(buffer.nbytes)
            7056040
        """
        own = (parameter for key, parameter in self.state.state_parameters().items() if "." not in key)
        return sum(array.nbytes for array in (*self.buffer, *own))

    def __setattr__(self, name: str, value: Any) -> None:
        if "_front" not in vars(self):  # nothing is read-only yet
            nn.Cell.__setattr__(self, name, value)
            return
        if isinstance(value, Tensor) and name in mindspore_api.parameters_of(self):
            nn.Cell.__setattr__(self, name, value)  # it becomes the Parameter's data
            return
        super().__setattr__(name, value)
        if name == "limiter":
            self._show_limits()

    def _show_limits(self) -> None:
        """Have the rule and the counts of the limiter among the Parameters, if there is one."""
        limiter, parameters = self.limiter, mindspore_api.parameters_of(self)
        arrays = limiter.arrays() if isinstance(limiter, RateLimiter) else {}
        for key in ("counts", "rule"):
            name = f"limiter.{key}"
            if key not in arrays:
                parameters.pop(name, None)
            elif name not in parameters:
                parameter = parameter_on(name, arrays[key], True)
                self.insert_param_to_cell(name, parameter, check_name_contain_dot=False)
                # The buffer may be a part of a Cell by now, which has renamed its Parameters.
                parameter.name = self.head.name.removesuffix("head") + name


give_graph_bodies(Buffer, GraphBodies)
