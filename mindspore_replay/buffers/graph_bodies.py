"""What the compiler reads in the place of the methods of `ReplayBuffer`."""

import itertools
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import type_name
from ..mindspore_api import isconstant
from ..store.random import ALL_ROWS
from .timed import TimedCell

_numbers = itertools.count()


class GraphBodies(TimedCell):
    """The bodies of the methods of `ReplayBuffer` for the compiler, which says for each what it does.

    Those that return the buffer in Python return the rows stored then. To the compiler a returned buffer would be any
    object of Python: the next method in a chain would be left to Python while the graph runs, out of order or failing.
    """

    def _make_graph_constants(self) -> None:
        # Constants of the graph bodies: a Tensor made inside a compiled body would leave the graph.
        self._all_rows = Tensor(ALL_ROWS, ms.int64)
        self._zero = Tensor(0, ms.int32)
        # The compiler caches such checks by name, and each buffer has its own.
        self._check_rows = ops.constexpr(self._check_in_graph, name=f"CheckRows{next(_numbers)}")
        self._check_width = ops.constexpr(self._check_width_in_graph, name=f"CheckWidth{next(_numbers)}")
        self._check_chosen = ops.constexpr(self._check_chosen_in_graph, name=f"CheckChosen{next(_numbers)}")
        self._check_values = ops.constexpr(self._check_values_in_graph, name=f"CheckValues{next(_numbers)}")
        self._check_keys = ops.constexpr(self._check_keys_in_graph, name=f"CheckKeys{next(_numbers)}")
        self._check_handles = ops.constexpr(self._check_handles_in_graph, name=f"CheckHandles{next(_numbers)}")
        self._check_index = ops.constexpr(self._check_index_in_graph, name=f"CheckIndex{next(_numbers)}")
        self._constant = ops.constexpr(self._constant_in_graph, name=f"Constant{next(_numbers)}")

    def _check_keys_in_graph(self, keys: tuple[str, ...]) -> bool:
        self.columns.in_order(dict.fromkeys(keys))
        return True

    def _check_chosen_in_graph(self, names: Any) -> tuple[int, ...]:
        return tuple(self.columns.chosen([None] * names if isinstance(names, int) else dict.fromkeys(names)))

    def _check_values_in_graph(self, columns: Any, shapes: Any, types: Any, lead: tuple[int, ...]) -> bool:
        self.columns.check_values(columns, shapes, [type_name(dtype) for dtype in types], lead)
        return True

    def _check_width_in_graph(self, fields: int) -> bool:
        self.columns.in_order([None] * fields)
        return True

    def _check_in_graph(self, shapes: tuple[Any, ...], types: tuple[Any, ...]) -> bool:
        self.columns.check(shapes, [type_name(dtype) for dtype in types], self.num_envs)
        return True

    def _constant_in_graph(self, i: int, value: Any) -> Tensor:
        return Tensor(self.columns.to_array(i, value))

    def _check_index_in_graph(self, dtype: Any, shape: tuple[int, ...]) -> bool:
        self._positions(np.zeros(shape, type_name(dtype)))
        return True

    def _insert_rows(self, *rows):
        return self._insert_with(self.max_priority if self.weighted else None, *rows)

    def _insert_with(self, priority, *rows):
        """Inserts rows, before which come their flags if rows know their episode."""
        if self.timed:
            return self._graph.insert(rows[1:], priority, rows[0])
        return self._graph.insert(rows, priority, None)

    def _read_rows(self, index):
        return self._graph.read(index)

    def _checked_rows(self, exp):
        if isinstance(exp, dict):
            self._check_keys(tuple(exp.keys()))
            exp = [exp[name] for name in self.columns.names]
        self._check_width(len(exp))
        rows = ()
        shapes = ()
        types = ()
        for i in range(len(exp)):
            row = self._row_graph(i, exp[i])
            rows = rows + (row,)
            shapes = shapes + (row.shape,)
            types = types + (row.dtype,)
        self._check_rows(shapes, types)
        return rows

    def _row_graph(self, i, value):
        if isinstance(value, Tensor):
            return value
        if not isinstance(value, (bool, int, float)) or not isconstant(value):
            raise TypeError("In a graph, 'exp' must hold Tensors or constant Python numbers: pass a Tensor.")
        return self._constant(i, value)

    def _insert_graph(self, exp, *, end=False, final=False):
        rows = self._checked_rows(exp)
        if self.timed:
            self._insert_rows(self._ends_graph(end, final, self._rows_of(rows)), *rows)
        else:
            self._no_episodes_graph(end, final)
            self._insert_rows(*rows)
        return self._size_graph()

    def _update_column(self, column, handles, rows):
        return self._graph.update(column, handles, rows)

    def _update_rows_graph(self, indices, values):
        handles = self._handles_graph(indices)
        names = tuple(values.keys()) if isinstance(values, dict) else len(values)
        columns = self._check_chosen(names)
        given = [values[name] for name in names] if isinstance(values, dict) else values
        shapes = ()
        types = ()
        for i in range(len(columns)):
            shapes = shapes + (given[i].shape,)
            types = types + (given[i].dtype,)
        self._check_values(columns, shapes, types, indices.shape)
        dead = self._zero + 0
        for i in range(len(columns)):
            rows = ops.reshape(given[i], (-1, *self.shapes[columns[i]]))
            dead = self._update_column(columns[i], handles, rows)
        return dead

    def _rows_of(self, rows):
        return 1 if ops.rank(rows[0]) == len(self.shapes[0]) else rows[0].shape[0]

    def _get_item_graph(self, index):
        if isinstance(index, Tensor):
            self._check_index(index.dtype, index.shape)
        elif not isinstance(index, int):
            raise TypeError("For 'get_item', 'index' must be an int or a Tensor of ints in a graph.")
        return self._read_rows(ops.cast(index, ms.int64))

    def _sample_graph(self, sample_range=None, *, as_dict=False, with_indices=False):
        return self._drawn_graph(self._bounds_graph(sample_range), as_dict, with_indices)

    def _drawn_graph(self, bounds, as_dict, with_indices):
        if as_dict:
            raise ValueError("For 'sample', 'as_dict' must be False in a graph.")
        if with_indices and not self._has_handles:
            raise RuntimeError("For 'sample', 'with_indices' needs a buffer made with weighted=True or a limit.")
        batch = self._sample_in(bounds)
        return batch[1:] if self._has_handles and not with_indices else batch

    def _bounds_graph(self, sample_range):
        if sample_range is None:
            return self._all_rows
        start, stop = sample_range
        first = self._all_rows[0] if start is None else self._bound_graph(start)
        last = self._all_rows[1] if stop is None else self._bound_graph(stop)
        return ops.stack((first, last))

    def _bound_graph(self, bound):
        if not isinstance(bound, (int, Tensor)):
            raise TypeError("In a graph, 'sample_range' must be (start, stop), each an int, a Tensor or None.")
        return ops.cast(bound, ms.int64)

    def _rows_graph(self):
        return self._read_rows(ops.arange(self.capacity))

    def _reset_graph(self):
        self._forget_rows()
        return self._size_graph()

    def _size_graph(self):
        return self.count + self._zero

    def _full_graph(self):
        return self.count >= self.capacity

    def _can_sample_graph(self):
        if self.weighted:
            return self._eligible_rows() >= self.sample_size
        return self.count >= self.sample_size
