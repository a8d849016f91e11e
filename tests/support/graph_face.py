"""Buffers of rows of any length that compiled functions call."""

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from any_length import KINDS_OF_LENGTHS, plain
from bodies import Kept
from drivers import DTYPES
from length_pairs import GROUPS, Face
from mindspore import Tensor


class Compiled(Kept):
    """The methods of a buffer, each in a compiled function of its own."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    @ms.jit
    def insert(self, of_tokens, of_words, *rows, **given):
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
    def delete(self, indices):
        return self.buffer.delete(indices)

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
        named = {name: Tensor(value, DTYPES[name]) for name, value in given.items()}
        of = [Tensor(lengths[kind].astype(np.int32)) for kind in KINDS_OF_LENGTHS]
        return plain(self.compiled.insert(*of, *map(Tensor, exp.values()), **named)).tolist()  # type: ignore[no-any-return]

    def sample(self, sample_range: Any = None, beta: float | None = None) -> Any:
        if sample_range is not None:
            start, stop = (None if bound is None else ints(bound) for bound in sample_range)
            return plain(self.compiled.sample_between(start, stop))
        if beta is not None:
            return plain(self.compiled.sample_by(Tensor(beta, ms.float64)))
        return plain(self.compiled.sample_handles() if self.asks else self.compiled.sample())

    def sample_groups(self, ordered: bool) -> Any:
        compiled = self.compiled
        return plain(compiled.sample_groups() if ordered else compiled.sample_groups_in_any_order())

    def update_priorities(self, handles: Sequence[int], priorities: np.ndarray) -> int:
        return int(self.compiled.update_priorities(ints(handles), Tensor(priorities)))

    def update(self, handles: Sequence[int], values: dict[str, Any]) -> int:
        if list(values) != ["reward"]:
            return super().update(handles, values)
        return int(self.compiled.update(ints(handles), Tensor(np.stack(values["reward"]))))

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
