"""Ways to call a buffer: by arrays, from Python with Tensors, in graphs, and in a folder by two in turn."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from any_length import KINDS_OF_LENGTHS, plain
from bodies import Kept
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import attach, host

MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}
#: Dtypes of arguments in graphs.
DTYPES = {"priority": ms.float32, "version": ms.int64, "end": ms.bool_, "final": ms.bool_}
#: Groups of a sample, and rows of each.
GROUPS = 2, 2


class Face:
    """How a buffer is called: with arrays in, and dicts of arrays out.

    Args:
        buffer: The buffer.
        attached: An object attached to its folder, or ``None``. Calls go to both in turn. Default: ``None``.
    """

    #: Whether any number of rows and handles may be passed, in any form, and another buffer may take over.
    is_free = True

    def __init__(self, buffer: Any, attached: Any = None) -> None:
        self.buffer, self.attached = buffer, attached
        self.faces = (buffer,) if attached is None else (buffer, attached)
        self.turns = itertools.cycle(self.faces)
        self.weighted = buffer.spec.weighted
        self.asks = {"with_indices": True} if buffer.spec.has_handles and not buffer.spec.always_handles else {}

    @property
    def any(self) -> Any:
        """The buffer, or the attached object."""
        return next(self.turns)

    def insert(self, exp: Any, **given: Any) -> list[int]:
        # Of several processes, each inserts whole episodes.
        to = self.faces[-1] if self.buffer.has_episodes else self.any
        if not self.weighted:
            to.insert(exp, **given)
            return []
        return np.atleast_1d(plain(to.insert(exp, **given, with_indices=True))).tolist()  # type: ignore[no-any-return]

    def sample(self, **given: Any) -> Any:
        return plain(self.any.sample(**given, **self.asks, as_dict=True))

    def sample_packed(self, most: int | None) -> Any:
        return plain(self.any.sample_packed(most, **self.asks, as_dict=True))

    def sample_groups(self, ordered: bool) -> Any:
        return plain(self.buffer.sample_groups("group", *GROUPS, ordered=ordered, as_dict=True))

    def get_item(self, index: Any) -> tuple[np.ndarray, ...]:
        return plain(self.any.get_item(index))  # type: ignore[no-any-return]

    def info(self, handles: Sequence[int]) -> list[tuple[float, int, int]]:
        """Return priority, uses and staleness of each row."""
        return list(zip(*(part.tolist() for part in plain(self.any.info(handles))), strict=True))

    def reset(self) -> None:
        self.buffer.reset()

    def status(self) -> tuple[int, bool, bool]:
        return len(self.any), self.full()[-1], self.can_sample()[-1]

    def update_priorities(self, handles: Sequence[int], priorities: np.ndarray) -> int:
        return int(self.any.update_priorities(handles, priorities))

    def update(self, handles: Sequence[int], values: dict[str, Any]) -> int:
        return int(self.any.update(handles, values))

    def delete(self, handles: Sequence[int]) -> int:
        return int(self.any.delete(handles))

    def advance(self, steps: int) -> None:
        self.any.advance(steps)

    def end_episodes(self) -> int:
        return int(self.faces[-1].end_episodes())

    def can_sample(self) -> list[bool]:
        return [bool(plain(one.can_sample())) for one in self.faces]

    def full(self) -> list[bool]:
        return [bool(plain(one.full())) for one in self.faces]

    def close(self) -> None:
        if self.attached is not None:
            self.attached.close()
        self.buffer.close()


class WithTensors(Face):
    """A buffer that rows come to as Tensors, and numbers in lists."""

    def insert(self, exp: Any, **given: Any) -> list[int]:
        def tensors(value: Any) -> Any:
            return [Tensor(one) for one in value] if isinstance(value, list) else Tensor(value)

        return super().insert({name: tensors(value) for name, value in exp.items()}, **given)

    def update_priorities(self, handles: Sequence[int], priorities: np.ndarray) -> int:
        return super().update_priorities(handles, priorities.tolist())  # type: ignore[arg-type]


class Compiled(Kept):
    """The methods of a buffer, each in a compiled function of its own."""

    @ms.jit
    def insert(self, *rows, **given):
        self.buffer.add(rows, **given)  # also for runs without the hook
        return self.buffer.size()

    @ms.jit
    def insert_handles(self, *rows, **given):
        return self.buffer.add(rows, with_indices=True, **given)

    @ms.jit
    def insert_lengths(self, of_tokens, of_words, *rows, **given):
        return self.buffer.add(rows, lengths={"tokens": of_tokens, "words": of_words}, with_indices=True, **given)

    @ms.jit
    def sample(self):
        return self.buffer.sample(as_dict=True)

    @ms.jit
    def sample_handles(self):
        return self.buffer.sample(with_indices=True, as_dict=True)

    @ms.jit
    def sample_by(self, beta):
        return self.buffer.sample(beta=beta, as_dict=True)

    @ms.jit
    def sample_between(self, start, stop):
        return self.buffer.sample((start, stop), with_indices=True, as_dict=True)

    @ms.jit
    def sample_plain_between(self, start, stop):
        return self.buffer.sample((start, stop), as_dict=True)

    @ms.jit
    def sample_groups(self):
        return self.buffer.sample_groups("group", *GROUPS, as_dict=True)

    @ms.jit
    def sample_groups_in_any_order(self):
        return self.buffer.sample_groups("group", *GROUPS, ordered=False, as_dict=True)

    @ms.jit
    def update_priorities(self, indices, priorities):
        return self.buffer.update_priorities(indices, priorities)

    @ms.jit
    def update(self, indices, reward):
        return self.buffer.update(indices, {"reward": reward})

    @ms.jit
    def write_terminated(self, indices, terminated):
        return self.buffer.update(indices, {"terminated": terminated})

    @ms.jit
    def delete(self, indices):
        return self.buffer.delete(indices)

    @ms.jit
    def get_item(self, index):
        return self.buffer.get_item(index)

    @ms.jit
    def info(self, indices):
        return self.buffer.info(indices)

    @ms.jit
    def reset(self):
        self.buffer.reset()
        return self.buffer.size()

    @ms.jit
    def advance(self, steps):
        self.buffer.advance(steps)
        return self.buffer.size()

    @ms.jit
    def end_episodes(self):
        return self.buffer.end_episodes()

    @ms.jit
    def can_sample(self):
        return self.buffer.can_sample(), self.buffer.full()


def ints(values: Any) -> Tensor:
    return Tensor(np.asarray(values), ms.int64)


class InGraph(Face):
    """A buffer whose rows come and go in graphs, padded, always as many; items of late columns come from Python."""

    is_free = False

    def __init__(self, buffer: Any, attached: Any = None) -> None:
        super().__init__(buffer, attached)
        self.compiled = Compiled(buffer)

    def insert(self, exp: Any, lengths: Any = None, **given: Any) -> list[int]:
        # The inputs stay until the result is there: the graph may run when the call has returned.
        named = {name: Tensor(value, DTYPES[name]) for name, value in given.items()}
        rows = list(map(Tensor, exp.values()))
        if not self.weighted:
            self.compiled.insert(*rows).asnumpy()
            return []
        if lengths is None:
            return plain(self.compiled.insert_handles(*rows, **named)).tolist()  # type: ignore[no-any-return]
        of = [Tensor(lengths[kind].astype(np.int32)) for kind in KINDS_OF_LENGTHS]
        return plain(self.compiled.insert_lengths(*of, *rows, **named)).tolist()  # type: ignore[no-any-return]

    def sample(self, sample_range: Any = None, beta: float | None = None) -> Any:
        if sample_range is not None:
            start, stop = (None if bound is None else ints(bound) for bound in sample_range)
            compiled = self.compiled
            return plain((compiled.sample_between if self.weighted else compiled.sample_plain_between)(start, stop))
        if beta is not None:
            return plain(self.compiled.sample_by(Tensor(beta, ms.float64)))
        return plain(self.compiled.sample_handles() if self.asks else self.compiled.sample())

    def sample_groups(self, ordered: bool) -> Any:
        compiled = self.compiled
        return plain(compiled.sample_groups() if ordered else compiled.sample_groups_in_any_order())

    def update_priorities(self, handles: Sequence[int], priorities: np.ndarray) -> int:
        return int(self.compiled.update_priorities(ints(handles), Tensor(priorities)))

    def update(self, handles: Sequence[int], values: dict[str, Any]) -> int:
        (name, *more), compiled = values, self.compiled
        if more or name not in ("reward", "terminated"):
            return super().update(handles, values)
        call = compiled.update if name == "reward" else compiled.write_terminated
        return int(call(ints(handles), Tensor(np.stack(values[name]))))

    def get_item(self, index: Any) -> tuple[np.ndarray, ...]:
        return plain(self.compiled.get_item(ints(index)))  # type: ignore[no-any-return]

    def info(self, handles: Sequence[int]) -> list[tuple[float, int, int]]:
        return list(zip(*(part.tolist() for part in plain(self.compiled.info(ints(handles)))), strict=True))

    def reset(self) -> None:
        assert int(self.compiled.reset()) == 0

    def delete(self, handles: Sequence[int]) -> int:
        return int(self.compiled.delete(ints(handles)))

    def advance(self, steps: int) -> None:
        self.compiled.advance(ints(steps))

    def end_episodes(self) -> int:
        return int(self.compiled.end_episodes())

    def can_sample(self) -> list[bool]:
        return [*super().can_sample(), bool(self.compiled.can_sample()[0])]

    def full(self) -> list[bool]:
        return [*super().full(), bool(self.compiled.can_sample()[1])]


class InTurn(InGraph):
    """A buffer that rows come to and go from in graphs, from Python, and from an attached object, in turn."""

    def __init__(self, buffer: Any, attached: Any) -> None:
        super().__init__(buffer, attached)
        self.calls = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("insert", "sample", "update", "update_priorities", "delete", "advance"):
            self.calls += 1
            if self.calls % 2:
                return getattr(super(InGraph, self), name)
        return super().__getattribute__(name)


class OfOneSize(Face):
    """A buffer whose calls from Python run graphs: all insertions have as many rows."""

    is_free = False


#: Ways to call a buffer in which a behaviour is tested.
WAYS = ("arrays", "Tensors", "graph", "attached")
#: Buffers in graphs that tests share, each with the state of its empty buffer.
shared: dict[str, tuple[Face, dict[str, np.ndarray]]] = {}


def face_of(way: str, folder: Path, cls: str, *args: Any, **options: Any) -> Face:
    """Return an empty buffer, called in a way. Equal arguments share one in graphs, which take long to compile."""
    options = {"seed": 0} | options
    if way == "arrays":
        return Face(getattr(host, cls)(*args, **options))
    made = getattr(mindspore_replay, cls)
    if way == "Tensors":
        return WithTensors(made(*args, **options))
    if way == "attached":
        return Face(made(*args, storage=folder / "rows", **options), attach(folder / "rows", timeout=0))
    key = repr((cls, args, sorted(options.items())))
    if key not in shared:
        face = InGraph(made(*args, **options))
        shared[key] = face, face.buffer.state_dict()
    face, empty = shared[key]
    face.buffer.load_state_dict(empty)
    return face


def missing(ran: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the ways in which each test did not run, given those in which it did."""
    return {name: sorted(set(WAYS) - done) for name, done in ran.items() if set(WAYS) - done}
