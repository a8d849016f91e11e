"""The schema of a transition: names, shapes and dtypes of its columns, and the checks of rows."""

import copy
import dataclasses
import functools
import math
import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from .casts import are_numbers, cast, holds
from .checks import check_bool
from .column import Column
from .habits import wrong_insert
from .late import MOST_LATE
from .length_groups import LengthGroup
from .nested import at, by_name
from .types import ArrayOrTensor, TensorLike, Values

#: The dtypes allowed for a column.
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
)

#: Names of the dtypes for NumPy's scalar types and Python's own.
_OF_TYPES: dict[type, str] = {np.dtype(name).type: name for name in DTYPES if name != "bfloat16"}
_OF_TYPES |= {bool: "bool", int: "int64", float: "float64"}


@functools.lru_cache(256)
def type_name(dtype: object) -> str:
    """Return the name of a dtype of MindSpore or NumPy, such as ``"float32"``."""
    return str(dtype).lower()


def is_tensor(value: object) -> TypeGuard[TensorLike]:
    """Return True for a Tensor of MindSpore, which this module does not import."""
    return hasattr(value, "asnumpy")


def given_type_name(dtype: object) -> str:
    """Return the name of a dtype in any form that users pass: MindSpore's, NumPy's, a type, or a name."""
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, np.dtype):
        return dtype.name
    return _OF_TYPES[dtype] if isinstance(dtype, type) and dtype in _OF_TYPES else type_name(dtype)


class Misfit(NamedTuple):
    """What a column cannot hold: the error for it, and what its message says."""

    error: type[Exception]
    reason: str
    cause: str = ""


class Batch(NamedTuple):
    """Layout of the rows of an insertion: one row without a leading axis, or ``rows`` rows with one."""

    rows: int
    single: bool

    def handles(self, first: int) -> np.ndarray:
        """Return the handles of these rows. `first` is that of the first. Shape ``[]`` or ``[n]``, int64."""
        return np.array(first) if self.single else first + np.arange(self.rows)


class Schema:
    """Names, shapes and dtypes of the columns of a buffer.

    Args:
        cls_name (str): Class to name in errors.
        shapes (Union[Sequence[Sequence[int]], None]): Shape of one row of each column, ``()`` for a scalar.
        types (Union[Sequence, None]): Dtype of each column: MindSpore's, NumPy's, a type or a name.
        names (Union[Sequence[str], None]): Name of each column. Default: ``None``, for no names.
        columns (Union[Mapping[str, Column], Sequence[Column], None]): In place of the three. Default: ``None``.

    Attributes:
        given (tuple[Column, ...]): The columns, with shapes as tuples and the names of dtypes.
        shapes (tuple[tuple[int, ...], ...]): Shape of one row in a sample, padded if rows differ in length.
        length_groups (tuple[LengthGroup, ...]): Columns whose rows differ in length.
        late (tuple[int, ...]): Indices of the late columns.
        present (tuple[int, ...]): Indices of the other columns, which an insertion requires.
        compressed (tuple[int, ...]): Indices of the compressed columns.

    Raises:
        TypeError: If an argument, a shape, a dtype or a name is of another type.
        ValueError: If there is no column, lengths differ, an axis is not positive, or names repeat. If too many columns
            are late, or a scalar is compressed.

    Examples:
        >>> from mindspore_replay.store import Schema
        >>> schema = Schema("Store", shapes=[(4,), ()], types=["float32", "bool"], names=["observation", "terminated"])
        >>> print(len(schema), schema.names, schema.dtypes, schema.stored_dtypes)
        2 ('observation', 'terminated') ('float32', 'bool') ('float32', 'uint8')
    """

    def __init__(
        self, cls_name: str, shapes: object = None, types: object = None, names: object = None, columns: object = None
    ) -> None:
        self.cls_name = cls_name
        #: The dtype in which the Cell that owns the buffer computes, if mixed precision sets it.
        self.owner_dtype: str | None = None
        if columns is None:
            self.records = self._from_lists(shapes, types)
        elif shapes is types is names is None:
            names, self.records = self._from_records(columns)
        else:
            raise ValueError(
                f"For '{cls_name}', 'columns' says what 'shapes', 'types' and 'names' say: give either, not both."
            )
        #: Whether a column may have more than a shape and a dtype.
        self.has_options = columns is not None
        self.given_shapes: tuple[tuple[Any, ...], ...] = tuple([tuple(column.shape) for column in self.records])
        self.shapes: tuple[tuple[int, ...], ...] = self.given_shapes
        self.dtypes: tuple[str, ...] = tuple([column.dtype for column in self.records])
        self.given_names = None if names is None else tuple(self.sequence("names", names, len(self.shapes)))
        self.names = tuple(map(str, range(len(self.shapes)))) if self.given_names is None else self.given_names
        self._check_names()
        # MindSpore cannot scatter bool, so a bool column is stored as uint8.
        self.stored_dtypes = tuple(["uint8" if dtype == "bool" else dtype for dtype in self.dtypes])
        self.numpy_types = tuple(map(self.numpy_type, self.dtypes))
        self.late = tuple([i for i, column in enumerate(self.records) if column.late])
        self.present = tuple([i for i, column in enumerate(self.records) if not column.late])
        self.compressed = tuple([i for i, column in enumerate(self.records) if column.compress])
        if len(self.late) > min(MOST_LATE, len(self) - 1):
            raise ValueError(
                f"For '{cls_name}', one column must not be late, and at most {MOST_LATE} may be, but got "
                f"{len(self.late)} of {len(self)} columns with late=True."
            )
        if scalars := [self.names[i] for i in self.compressed if not self.shapes[i]]:
            raise ValueError(
                f"For '{cls_name}', only columns of arrays may have compress=True, but {scalars} are of scalars, which "
                "take less memory as they are."
            )
        self.let_lengths_differ(())

    def let_lengths_differ(self, length_groups: tuple[LengthGroup, ...]) -> None:
        """Declare the columns whose rows differ in length."""
        self.length_groups = length_groups
        self.group_of = {i: group for group in length_groups for i in group.columns}
        #: The arrays of items by name: their shapes and dtypes.
        self.arenas = {
            f"items.{self.names[i]}": ((group.items, *self.shapes[i][1:]), self.stored_dtypes[i])
            for i, group in self.group_of.items()
        }
        for i, group in self.group_of.items():
            self.shapes = (*self.shapes[:i], (group.sampled, *self.shapes[i][1:]), *self.shapes[i + 1 :])

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a constructor for these columns."""
        if not self.has_options:
            return {"shapes": self.given_shapes, "types": self.dtypes, "names": self.given_names}
        return {"columns": dict(zip(self.given_names, self.records)) if self.given_names else self.records}

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def types(self) -> tuple[Any, ...]:
        """Dtype of each column, as users get it."""
        return self.dtypes

    @staticmethod
    def numpy_type(dtype: str) -> np.dtype[Any]:
        """Return the NumPy dtype for a name. NumPy has no bfloat16, whose bits are uint16."""
        return np.dtype("uint16" if dtype == "bfloat16" else dtype)

    def sequence(self, argument: str, value: object, number: int | None = None) -> Sequence[Any]:
        """Return an argument that is a list or a tuple, of so many entries. Raise an error for anything else."""
        if not isinstance(value, (list, tuple)):
            raise TypeError(
                f"For '{self.cls_name}', '{argument}' must be a list or tuple with one entry for each column, "
                f"but got {value!r} ({type(value).__name__})."
            )
        if number is not None and len(value) != number:
            raise ValueError(
                f"For '{self.cls_name}', '{argument}' must have one entry for each of the {number} shapes, but got "
                f"{len(value)}."
            )
        return value

    def _from_lists(self, shapes: object, types: object) -> tuple[Column, ...]:
        if shapes is None or types is None:
            raise TypeError(
                f"For '{self.cls_name}', 'shapes' and 'types', or 'columns', are required: a dict of "
                "mindspore_replay.Column by name."
            )
        sizes = [self._shape(f"shapes[{i}]", shape) for i, shape in enumerate(self.sequence("shapes", shapes))]
        dtypes = [self._dtype(f"types[{i}]", dtype) for i, dtype in enumerate(self.sequence("types", types))]
        if not sizes:
            raise ValueError(f"For '{self.cls_name}', 'shapes' must name at least one column, but got {shapes!r}.")
        return tuple(map(Column, sizes, self.sequence("types", dtypes, len(sizes))))

    def _from_records(self, columns: object) -> tuple[tuple[str, ...] | None, tuple[Column, ...]]:
        if not isinstance(columns, (Mapping, list, tuple)) or not columns:
            raise TypeError(
                f"For '{self.cls_name}', 'columns' must be a dict of mindspore_replay.Column by name, or a list of "
                f"them, with at least one, but got {columns!r}."
            )
        records = []
        for name, column in columns.items() if isinstance(columns, Mapping) else enumerate(columns):
            path = f"columns.{name}"
            if not isinstance(column, Column):
                raise TypeError(
                    f"For '{self.cls_name}', '{path}' must be a mindspore_replay.Column, but got {column!r}: write "
                    'Column((4,), "float32") for rows of this shape and dtype.'
                )
            check_bool(self.cls_name, f"{path}.late", column.late)
            check_bool(self.cls_name, f"{path}.compress", column.compress)
            shape, dtype = self._shape(f"{path}.shape", column.shape), self._dtype(f"{path}.dtype", column.dtype)
            records.append(dataclasses.replace(column, shape=shape, dtype=dtype))
        return tuple(columns) if isinstance(columns, Mapping) else None, tuple(records)

    def _shape(self, argument: str, shape: object) -> tuple[Any, ...]:
        axes = shape if isinstance(shape, (list, tuple)) else (None, None)
        any_length = axes[:1] in ((None,), [None])
        axes = axes[any_length:]
        if not all(isinstance(axis, numbers.Integral) and not isinstance(axis, bool) for axis in axes):
            raise TypeError(f"For '{self.cls_name}', '{argument}' must be a tuple of ints, but got {shape!r}.")
        if any(axis < 1 for axis in axes):
            raise ValueError(f"For '{self.cls_name}', each axis of '{argument}' must be positive, but got {shape!r}.")
        return (*(None,) * any_length, *map(int, axes))

    def _dtype(self, argument: str, dtype: object) -> str:
        name = given_type_name(dtype)
        if name not in DTYPES:
            raise TypeError(
                f"For '{self.cls_name}', '{argument}' must be one of {', '.join(DTYPES)}, as a MindSpore or NumPy "
                f"dtype or its name, but got {dtype!r}."
            )
        return name

    def _check_names(self) -> None:
        for name in self.names:
            if not isinstance(name, str) or not name:
                raise TypeError(f"For '{self.cls_name}', each of 'names' must be a non-empty string, but got {name!r}.")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"For '{self.cls_name}', 'names' must differ from each other, but got {self.names}.")
        both = sorted(name for name in self.names if any(other.startswith(f"{name}.") for other in self.names))
        if both:
            raise ValueError(
                f"For '{self.cls_name}', a column cannot hold other columns, but 'names' has {both} and names that go "
                "on after it with a dot."
            )

    def index(self, argument: str, named: object) -> int:
        """Return the index of the column that an argument names."""
        indices: dict[Any, int] = {**{name: i for i, name in enumerate(self.names)}, **{i: i for i in range(len(self))}}
        if isinstance(named, bool) or not isinstance(named, (int, str)) or named not in indices:
            allowed = list(self.names) if self.given_names else f"indices below {len(self)}"
            raise ValueError(
                f"For '{self.cls_name}', '{argument}' must be one of the columns {allowed}, but got {named!r}."
            )
        return indices[named]

    def stored(self) -> "Schema":
        """Return the schema of what kernels store: of a compressed column, the number of a row."""
        columns = [Column((), "int64", late=c.late) if c.compress else c for c in self.records]
        return type(self)(self.cls_name, columns=dict(zip(self.given_names, columns)) if self.given_names else columns)

    @functools.cached_property
    def references(self) -> "Schema":
        """The schema of what kernels store of columns whose rows differ in length: the offset and length of a row."""
        schema = copy.copy(self)
        for i, group in self.group_of.items():
            shape, dtype = ((2,), "int64") if i == group.column else ((), "uint8")
            for name, value in ("shapes", shape), ("dtypes", dtype), ("stored_dtypes", dtype):
                values = getattr(schema, name)
                setattr(schema, name, (*values[:i], value, *values[i + 1 :]))
        schema.numpy_types = tuple(map(self.numpy_type, schema.dtypes))
        return schema

    def row_bytes(self) -> int:
        """Bytes of one row over all columns."""
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.numpy_types))

    def in_order(self, exp: object) -> Sequence[Values]:
        """Return the fields of a transition in the order of the columns, with zeros in late ones."""
        fields = self.present_fields(exp)
        return self._with_zeros(fields) if self.late else fields

    def present_fields(self, exp: object) -> Sequence[Values]:
        """Return the fields of a transition that are not late, in the order of the columns."""
        return [at(exp, path) for path in self.paths(exp)] if isinstance(exp, Mapping) else self._listed("exp", exp)

    def paths(self, exp: object) -> list[tuple[Any, ...]]:
        """Return the keys that lead to the fields of a transition that are not late, in the order of the columns."""
        if not isinstance(exp, Mapping):
            return [(i,) for i, _ in enumerate(self._listed("exp", exp))]
        if self.given_names is None:
            raise TypeError(f"For '{self.cls_name}', 'exp' can be a dict only of a buffer made with 'names'.")
        names = [self.names[i] for i in self.present]
        found = by_name(self.cls_name, exp, names)
        if set(found) != set(names):
            missing = sorted(set(names) - set(found))
            unknown = sorted(set(found) - set(names))
            late = f" {[self.names[i] for i in self.late]} are late: 'update' writes them." if self.late else ""
            raise ValueError(
                f"For '{self.cls_name}', the keys of 'exp' must be the columns' names: missing {missing}, "
                f"unknown {unknown}.{late}"
            )
        return [found[name] for name in names]

    def _with_zeros(self, fields: Sequence[Values]) -> list[Values]:
        first, column = fields[0], self.present[0]
        shape = first.shape if is_tensor(first) else self._as_array(column, first).shape
        lead = tuple(shape)[: max(len(shape) - len(self.shapes[column]), 0)]
        zeros = {i: np.zeros((*lead, *self.shapes[i]), self.numpy_types[i]) for i in self.late}
        by_column: dict[int, Values] = {**zeros, **dict(zip(self.present, fields))}
        return [by_column[i] for i in range(len(self))]

    def _listed(self, argument: str, values: object) -> Sequence[Values]:
        """Return a list or tuple with a value for each column. ``exp`` has none for late ones."""
        number = len(self.present) if argument == "exp" else len(self)
        if not isinstance(values, (list, tuple)):
            raise TypeError(
                f"For '{self.cls_name}', '{argument}' must be a list or tuple of {number} arrays, but got "
                f"{type(values).__name__}."
            )
        if len(values) != number:
            which = "" if number == len(self) else " that are not late"
            raise ValueError(
                f"For '{self.cls_name}', '{argument}' must hold one array for each of the {number} columns{which}, "
                f"but got {len(values)}."
            )
        return values

    def as_fields(self, exp: Sequence[Values]) -> list[ArrayOrTensor]:
        """Return the fields of a transition as the columns store them, Tensors and arrays."""
        return self.checked("exp", range(len(self)), map(self.fitted, range(len(self)), exp))

    def wrong_insert(self, exp: object, misplaced: Collection[object], unknown: Collection[str]) -> TypeError:
        """Return the error for an insertion with other arguments than `insert` has."""
        names = None if self.given_names is None else [self.names[i] for i in self.present]
        return wrong_insert(self.cls_name, names, len(self.present), exp, misplaced, unknown)

    def layout(self, fields: Sequence[ArrayOrTensor], num_envs: int) -> Batch:
        """Return the layout of rows that are Tensors and arrays. Raise a ValueError that lists every wrong column."""
        columns, shapes = range(len(self)), [field.shape for field in fields]
        single = len(shapes[0]) == len(self.shapes[0])
        rows = 1 if single or not shapes[0] else shapes[0][0]
        lead = () if single else (rows,)
        if wrong := self._wrong(columns, [(*lead, *shape) for shape in self.shapes], map(tuple, shapes)):
            raise ValueError(
                f"For '{self.cls_name}', 'exp' must hold one row in each column's shape, or a batch of rows with one "
                f"leading axis more, the same in each column. {'; '.join(wrong)}."
            )
        if num_envs and (rows < 1 or rows % num_envs):
            raise ValueError(
                f"For '{self.cls_name}', 'exp' must hold a positive multiple of num_envs={num_envs} rows, "
                f"but got {rows}."
            )
        return Batch(rows, single)

    def chosen(self, values: object) -> dict[int, tuple[Any, ...]]:
        """Return the indices of the columns that there are values for, and the keys that lead to these."""
        if not isinstance(values, Mapping):
            return {i: (i,) for i, _ in enumerate(self._listed("values", values))}
        if self.given_names is None:
            raise TypeError(f"For '{self.cls_name}', 'values' can be a dict only of a buffer made with 'names'.")
        found = by_name(self.cls_name, values, self.names)
        if not found or not found.keys() <= set(self.names):
            raise ValueError(
                f"For '{self.cls_name}', the keys of 'values' must be some of the columns {list(self.names)}, but got "
                f"{list(found)}."
            )
        return {self.names.index(name): path for name, path in found.items()}

    def check_values(self, columns: Sequence[int], rows: Iterable[np.ndarray], lead: tuple[int, ...]) -> None:
        """Raise an error that lists each of these columns whose rows are not ``[*lead, *F]``."""
        if wrong := self._wrong(columns, [(*lead, *self.shapes[i]) for i in columns], (a.shape for a in rows)):
            raise ValueError(
                f"For '{self.cls_name}', 'values' must hold a row of each column for each of 'indices'. "
                f"{'; '.join(wrong)}."
            )

    def _wrong(self, columns: Iterable[int], expected: Iterable[object], got: Iterable[object]) -> list[str]:
        """Return a message for each of these columns that got something else than is expected."""
        each = zip(columns, expected, got)
        return [f"{self._label(i)}: expected {right}, but got {found}" for i, right, found in each if right != found]

    def checked(self, argument: str, columns: Iterable[int], found: Iterable[Any]) -> list[Any]:
        """Return what `fitted` found for these columns. Raise an error that lists each of them that cannot hold it."""
        columns, found = list(columns), list(found)
        wrong = [(i, each) for i, each in zip(columns, found) if type(each) is Misfit]
        types = [(i, each) for i, each in wrong if each.error is TypeError]
        reasons = "; ".join(f"{self._label(i)}{each.reason}" for i, each in types or wrong)
        if types:
            raise TypeError(
                f"For '{self.cls_name}', '{argument}' must have dtypes that the columns hold. {reasons}. "
                f"{self._way_out(types[0][0])}{''.join({each.cause for _, each in types})}"
            )
        if wrong:
            raise ValueError(f"For '{self.cls_name}', {reasons}.")
        return found

    def _way_out(self, i: int) -> str:
        """Return how to cast what a column does not hold."""
        name = "bool_" if self.dtypes[i] == "bool" else self.dtypes[i]
        if name != "bfloat16":
            return f"Cast it yourself: call .astype(np.{name}) on an array, .astype(ms.{name}) on a Tensor."
        if self.numpy_types[i] == np.uint16:
            return "Give numbers, or the bits of bfloat16 as an array of uint16."
        return "Give numbers, or call .astype(ms.bfloat16) on a Tensor."

    def _label(self, i: int) -> str:
        return f"column {self.names[i]!r}" if self.given_names else f"column {i}"

    def to_array(self, i: int, value: object) -> np.ndarray:
        """Return field `i` as the array that the column stores."""
        return self.as_array(i, self.checked("exp", [i], [self.fitted(i, value)])[0])

    def fitted(self, i: int, value: object) -> Any:
        """Return field `i` as the column stores it, by the rule of `casts.py`: a Tensor, an array, or a `Misfit`."""
        column, dtype = self.dtypes[i], self.numpy_types[i]
        if is_tensor(value):
            of_value = type_name(value.dtype)
            if of_value == column:
                return value
            if hasattr(value, "stands_in"):
                by_owner = of_value == self.owner_dtype
                if holds(column, of_value, in_graph=True) and not by_owner:
                    return value
                cause = self._mixed_precision() if by_owner else ""
                return Misfit(TypeError, f": expected {column}, but got {of_value}", cause)
            value = value.asnumpy()
        elif isinstance(value, np.ndarray) and value.dtype == dtype:
            return value
        array = self._as_array(i, value)
        if column == "bfloat16" and array.dtype == np.uint16 and are_numbers(value):
            array = array.astype(np.uint32)  # numbers, not bits
        array = self.as_array(i, array)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype == dtype:
            return array
        if not holds(column, array.dtype.name):
            is_one = isinstance(value, numbers.Number)
            got = f"the {type(value).__name__} {value!r}" if is_one else array.dtype.name
            return Misfit(TypeError, f": expected {column}, but got {got}")
        try:
            return cast(array, column, dtype, f" is {column} and cannot hold")
        except ValueError as error:
            return Misfit(ValueError, str(error).removesuffix("."))

    def _mixed_precision(self) -> str:
        """Return the cause of a wrong dtype and the remedy, if mixed precision may have cast it."""
        return (
            f" The Cell that holds the buffer computes in {self.owner_dtype}, by to_float or amp, and has cast what it "
            "takes: cast the rows back, or set mixed precision on the networks alone."
        )

    def as_array(self, i: int, field: ArrayOrTensor) -> np.ndarray:
        """Return a field as an array. If it and the column are bfloat16, its bits in the column's NumPy dtype."""
        array = field.asnumpy() if is_tensor(field) else np.asarray(field)
        both = self.dtypes[i] == array.dtype.name == "bfloat16"
        return array.view(self.numpy_types[i]) if both else array

    def _as_array(self, i: int, value: object) -> np.ndarray:
        try:
            return np.asarray(value)
        except ValueError:
            raise ValueError(
                f"For '{self.cls_name}', the lists of a column in 'exp' must have equal lengths. {self._label(i)}: got "
                f"{value!r}."
            ) from None
