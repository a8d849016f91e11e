"""The constructors of the classes of buffers, each of which chooses the parts of its class.

A class of buffers with one of them also decides what to make of the parts: rows on the device, or in arrays.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.kinds import LengthOptions
from ..base.schema import Schema
from .arguments import decoded
from .layout import View
from .parts import Episodes, InEpochs, InOrder, Limits, Parts, Prioritized, Sequences, Uniform, sampler_of, span_of
from .spec import BufferSpec, Recipe, recipes


class ReplayRecipe(Recipe, kind="ReplayBuffer"):
    """The constructor of `ReplayBuffer`."""

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        *,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        weighted: bool = False,
        views: Sequence[View] = (),
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        max_length: int | Mapping[str, int] | None = None,
        items: int | Mapping[str, int] | None = None,
        share_lengths: Sequence[Sequence[str | int]] = (),
        sample_length: int | Mapping[str, int] | None = None,
        cut: str = "first",
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        parts = Parts(Uniform(replace, ordered), Limits(max_use, max_staleness, weighted), views=views)
        lengths = LengthOptions(max_length, items, share_lengths, sample_length, cut)
        others = names, num_envs, late, compress, lengths, seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)


class PrioritizedRecipe(Recipe, kind="PrioritizedReplayBuffer"):
    """The constructor of `PrioritizedReplayBuffer`."""

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        *,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        max_use: int | None = None,
        max_staleness: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        initial_priority: float = 1.0,
        default_priority: str = "largest",
        views: Sequence[View] = (),
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        max_length: int | Mapping[str, int] | None = None,
        items: int | Mapping[str, int] | None = None,
        share_lengths: Sequence[Sequence[str | int]] = (),
        sample_length: int | Mapping[str, int] | None = None,
        cut: str = "first",
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        sampler = Prioritized(alpha, beta, beta_steps, epsilon, normalize, initial_priority, default_priority)
        parts = Parts(sampler, Limits(max_use, max_staleness), views=views)
        lengths = LengthOptions(max_length, items, share_lengths, sample_length, cut)
        others = names, num_envs, late, compress, lengths, seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)


class SequenceRecipe(Recipe, kind="SequenceReplayBuffer"):
    """The constructor of `SequenceReplayBuffer`."""

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        sequence_length: int,
        *,
        burn_in: int = 0,
        stride: int = 1,
        pad_end: bool = False,
        prioritized: bool = False,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        max_use: int | None = None,
        max_staleness: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        initial_priority: float = 1.0,
        default_priority: str = "largest",
        views: Sequence[View] = (),
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        max_length: int | Mapping[str, int] | None = None,
        items: int | Mapping[str, int] | None = None,
        share_lengths: Sequence[Sequence[str | int]] = (),
        sample_length: int | Mapping[str, int] | None = None,
        cut: str = "first",
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        priorities = alpha, beta, beta_steps, epsilon, normalize, initial_priority, default_priority
        sampler = sampler_of(type(self).__name__, prioritized, priorities, replace)
        span = Sequences(sequence_length, burn_in, stride, pad_end)
        parts = Parts(sampler, Limits(max_use, max_staleness), span, views)
        lengths = LengthOptions(max_length, items, share_lengths, sample_length, cut)
        others = names, num_envs, late, compress, lengths, seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)
        vars(self).update(span._asdict())


class EpisodeRecipe(Recipe, kind="EpisodeReplayBuffer"):
    """The constructor of `EpisodeReplayBuffer`."""

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        max_episode_length: int,
        *,
        prioritized: bool = False,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        max_use: int | None = None,
        max_staleness: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        initial_priority: float = 1.0,
        default_priority: str = "largest",
        views: Sequence[View] = (),
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        max_length: int | Mapping[str, int] | None = None,
        items: int | Mapping[str, int] | None = None,
        share_lengths: Sequence[Sequence[str | int]] = (),
        sample_length: int | Mapping[str, int] | None = None,
        cut: str = "first",
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        priorities = alpha, beta, beta_steps, epsilon, normalize, initial_priority, default_priority
        sampler = sampler_of(type(self).__name__, prioritized, priorities, replace)
        parts = Parts(sampler, Limits(max_use, max_staleness), Episodes(max_episode_length), views)
        lengths = LengthOptions(max_length, items, share_lengths, sample_length, cut)
        others = names, num_envs, late, compress, lengths, seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)
        vars(self).update(max_episode_length=max_episode_length)


class ElasticRecipe(Recipe, kind="ElasticReplayBuffer"):
    """The constructor of `ElasticReplayBuffer`."""

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        window: int | None = None,
        *,
        prioritized: bool = False,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        max_use: int | None = None,
        max_staleness: int | None = None,
        weighted: bool = False,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        initial_priority: float = 1.0,
        default_priority: str = "largest",
        views: Sequence[View] = (),
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        max_length: int | Mapping[str, int] | None = None,
        items: int | Mapping[str, int] | None = None,
        share_lengths: Sequence[Sequence[str | int]] = (),
        sample_length: int | Mapping[str, int] | None = None,
        cut: str = "first",
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        priorities = alpha, beta, beta_steps, epsilon, normalize, initial_priority, default_priority
        window = capacity if window is None else window
        sampler = sampler_of(type(self).__name__, prioritized, priorities, replace, window)
        parts = Parts(sampler, Limits(max_use, max_staleness, weighted), views=views)
        lengths = LengthOptions(max_length, items, share_lengths, sample_length, cut)
        others = names, num_envs, late, compress, lengths, seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)


class ReservoirRecipe(Recipe, kind="ReservoirReplayBuffer"):
    """The constructor of `ReservoirReplayBuffer`."""

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        *,
        names: Sequence[str] | None = None,
        replace: bool = True,
        max_use: int | None = None,
        weighted: bool = False,
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        parts = Parts(Uniform(replace), Limits(max_use, None, weighted), reservoir=True)
        others = names, 1, late, compress, LengthOptions(), seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)


class EpochRecipe(Recipe, kind="EpochReplayBuffer"):
    """The constructor of `EpochReplayBuffer`."""

    sequence_length: int | None
    rank: int
    world: int

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        sequence_length: int | None = None,
        *,
        burn_in: int = 0,
        stride: int | None = None,
        pad_end: bool = False,
        last: str = "drop",
        rank: int = 0,
        world: int = 1,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        max_use: int | None = None,
        max_staleness: int | None = None,
        weighted: bool = False,
        views: Sequence[View] = (),
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        max_length: int | Mapping[str, int] | None = None,
        items: int | Mapping[str, int] | None = None,
        share_lengths: Sequence[Sequence[str | int]] = (),
        sample_length: int | Mapping[str, int] | None = None,
        cut: str = "first",
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        span = span_of(type(self).__name__, sequence_length, burn_in, stride, pad_end, last == "pad")
        parts = Parts(InEpochs(last, rank, world), Limits(max_use, max_staleness, weighted), span, views)
        lengths = LengthOptions(max_length, items, share_lengths, sample_length, cut)
        others = names, num_envs, late, compress, lengths, seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)
        steps = span._asdict() if isinstance(span, Sequences) else {"sequence_length": None}
        vars(self).update(steps, last=last, rank=rank, world=world)


class QueueRecipe(Recipe, kind="ReplayQueue"):
    """The constructor of `ReplayQueue`."""

    sequence_length: int | None

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[object],
        sequence_length: int | None = None,
        *,
        burn_in: int = 0,
        stride: int | None = None,
        pad_end: bool = False,
        order: str = "fifo",
        when_full: str = "block",
        timeout: float | None = 0,
        max_staleness: int | None = None,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        views: Sequence[View] = (),
        late: Sequence[str | int] = (),
        compress: Sequence[str | int] = (),
        max_length: int | Mapping[str, int] | None = None,
        items: int | Mapping[str, int] | None = None,
        share_lengths: Sequence[Sequence[str | int]] = (),
        sample_length: int | Mapping[str, int] | None = None,
        cut: str = "first",
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        span = span_of(type(self).__name__, sequence_length, burn_in, stride, pad_end)
        parts = Parts(InOrder(order, when_full, timeout), Limits(1, max_staleness), span, views)
        lengths = LengthOptions(max_length, items, share_lengths, sample_length, cut)
        others = names, num_envs, late, compress, lengths, seed, storage, backend
        super().__init__(sample_size, capacity, shapes, types, parts, *others)
        steps = span._asdict() if isinstance(span, Sequences) else {"sequence_length": None}
        vars(self).update(steps, order=order, when_full=when_full)


def spec_of(cls: type, arguments: Mapping[str, Any], columns: type[Schema] = Schema) -> BufferSpec:
    """Return what a buffer of a class with these arguments is, without making it. Errors are the constructor's."""
    recipe: type[Recipe] | None = getattr(cls, "recipe", None)
    if recipe is None or getattr(cls, "__init__") is not getattr(recipe, "__init__"):  # noqa: B009
        raise ValueError(f"For '{cls.__name__}', the constructor must be that of a public class.")
    return _described(cls.__name__, recipe, arguments, columns)


def read(description: Mapping[str, Any], seed: int | None = 0) -> BufferSpec:
    """Return the buffer that JSON describes. Errors are those of the constructors, or name what is malformed."""
    name = description["class"]
    kind = description.get("kind", name)
    if kind not in recipes:
        raise ValueError(f"there is no class {kind!r}")
    arguments = {**decoded(description["arguments"]), "capacity": description["capacity"], "seed": seed}
    return _described(str(name), recipes[kind], arguments, Schema)


def _described(name: str, recipe: type[Recipe], arguments: Mapping[str, Any], columns: type[Schema]) -> BufferSpec:
    """Return the `spec` of an object of a class with this name, for errors."""
    return type(name, (recipe,), {"_columns_of": columns})(**arguments).spec  # type: ignore[no-any-return]
