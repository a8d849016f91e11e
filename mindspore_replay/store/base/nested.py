"""Nested dicts and tuples as columns with dotted names, and back."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

#: The keys of a dict, or ``None`` for a tuple, and the places of its values.
Step = tuple[tuple[str, ...] | None, tuple[int, ...]]


def paths(value: Mapping[Any, Any], names: Collection[str], above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Iterate over the keys that lead to each leaf of nested dicts and tuples.

    A value whose dotted name is one of `names` is a leaf, also if it is a tuple.
    """
    for key, item in value.items():
        path = (*above, key)
        if not isinstance(item, (Mapping, tuple)) or dotted(path) in names:
            yield path
        else:
            yield from paths(item if isinstance(item, Mapping) else dict(enumerate(item)), names, path)


def by_name(cls_name: str, value: Mapping[Any, Any], names: Collection[str]) -> dict[str, tuple[Any, ...]]:
    """Return the keys that lead to each leaf, by its dotted name. Raise a ValueError if two leaves have the same."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in paths(value, names):
        name = dotted(path)
        if name in found:
            raise ValueError(f"For '{cls_name}', each column must be given once, but {name!r} was given twice.")
        found[name] = path
    return found


def dotted(path: Iterable[Any]) -> str:
    """Return the name of a column for the keys that lead to it."""
    return ".".join(map(str, path))


def at(value: Any, path: Iterable[Any]) -> Any:
    """Return the value that these keys lead to."""
    for key in path:
        value = value[key]
    return value


def leaves(value: Mapping[Any, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the leaves of nested dicts and tuples by their dotted names."""
    return {dotted(path): at(value, path) for path in paths(value, names)}


class Names(tuple[str, ...]):
    """Names of the parts of a sample.

    Attributes:
        steps (tuple[Step, ...]): Each makes a dict or a tuple of parts and of what earlier steps made. The last one
            makes the sample.
    """

    steps: tuple[Step, ...]

    def __new__(cls, names: Iterable[str]) -> "Names":
        """Find the steps for these names."""
        self = super().__new__(cls, names)
        inner: list[Step] = []
        keys, places = _grouped({tuple(name.split(".")): i for i, name in enumerate(self)}, len(self), inner)
        self.steps = (*inner, (keys, places))
        return self


def _grouped(
    parts: Mapping[tuple[str, ...], int], number: int, steps: list[Step]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the keys of the parts at these paths, and the places of their values. Add the steps that make these."""
    groups: dict[str, dict[tuple[str, ...], int]] = {}
    for path, place in parts.items():
        groups.setdefault(path[0], {})[path[1:]] = place
    places = []
    for group in groups.values():
        if () in group:
            places.append(group[()])
            continue
        keys, values = _grouped(group, number, steps)
        steps.append((None if keys == tuple(map(str, range(len(keys)))) else keys, values))
        places.append(number + len(steps) - 1)
    return tuple(groups), tuple(places)


#: Those of a sample that is a tuple.
NO_NAMES = Names(())
