"""Makes buffers from Minari datasets, and Minari datasets from buffers."""

import contextlib
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoint.files import progress_bar
from ..store.base.nested import leaves as leaves_of_values
from ..store.base.optional import optional
from ..store.faces.classes import ReservoirReplayBuffer
from ..training.spaces import leaves as leaves_of_spaces
from .filling import check_buffer, fill, fit, log, short_name
from .steps import ENDS, Arrays, Episodes, Field, Recording, StoredRows, as_flag, chunk_rows
from .tables import unmarked

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
    from minari import MinariDataset
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.episode_data import EpisodeData


def from_minari(
    dataset: "MinariDataset | str | os.PathLike[str]",
    *,
    buffer: Any = None,
    episodes: Episodes = None,
    sample_size: int | None = None,
    capacity: int | None = None,
    buffer_cls: type | str | None = None,
    types: Mapping[str, object] | None = None,
    progress: bool = False,
    **arguments: object,
) -> Any:
    """Make a buffer from a Minari dataset.

    Columns are ``observation``, ``action``, ``reward``, ``next_observation``, ``terminated`` and ``truncated``, in the
    dataset's dtypes: int64 for discrete actions, float64 for most rewards. Change them with `types`. Each leaf of a
    Dict or Tuple space is a column: ``observation.position``, ``next_observation.position``, ``action.0``.

    A buffer that stores episodes (with views, of sequences or of episodes) stores each observation once, without
    ``next_observation``: a `final` row at the end of each episode contains its last observation. With
    `HindsightRelabel`, next observations are stored, since goals are achieved after an action. The column of goals
    achieved of a given `buffer` is filled from them.

    Episodes are read one at a time.

    Args:
        dataset (Union[minari.MinariDataset, str, Path]): The dataset, its folder, or the id of a local one.
        buffer (Union[ReplayBuffer, None]): A buffer with names to insert into, also of `mindspore_replay.host` or
            attached. Columns are matched by name, for observations also without ``observation.``. Values are cast
            as `insert` casts them, and reshaped if only axes of length 1 differ. Default: ``None``, to make one.
        episodes (Union[slice, Sequence, Callable, None]): Episodes to insert, in the order of the dataset: a slice,
            ints, one bool per episode, or a function from an `EpisodeTable` to one of these. Default: ``None``, for
            all.
        sample_size (Union[int, None]): Rows of one sample of the new buffer. Default: ``None``, for 256, or less in a
            smaller buffer.
        capacity (Union[int, None]): Its capacity. Default: ``None``, for the number of rows to store.
        buffer_cls (Union[type, str, None]): Its class, also of `mindspore_replay.host`, or a name that `create_buffer`
            accepts. Default: ``None``, for `mindspore_replay.ReplayBuffer`.
        types (Union[dict, None]): Dtypes of columns of the new buffer, by name: ``{"reward": "float32"}``. The dtype of
            ``observation`` also applies to ``next_observation`` and to all leaves without a dtype. Default: ``None``,
            those of the dataset.
        progress (bool): Whether to show a progress bar. Default: ``False``.
        arguments: More arguments of the class, such as `views`, `seed` or `sequence_length`.

    Returns:
        ReplayBuffer: The buffer. A warning is logged if rows exceeded `capacity` and were overwritten.

    Raises:
        ImportError: If Minari is not installed.
        FileNotFoundError: If there is no such dataset.
        TypeError: If an argument is of another type, or a space has no arrays of fixed shape: Text, Sequence, Graph.
        ValueError: If arrays of an episode do not fit, columns are missing, or values do not fit a column.
        IndexError: If there is no such episode.

        After an error in the middle of a dataset, the episodes before it are in the buffer.

    Examples:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from mindspore_replay import NStep
        >>> from mindspore_replay.datasets import from_minari, from_npz, to_minari
        >>> os.environ["MINARI_DATASETS_PATH"] = folder = tempfile.mkdtemp()  # where Minari keeps its datasets
        >>> steps = {"observations": np.ones((6, 4), np.float32), "actions": np.zeros(6, np.int64)}
        >>> steps |= {"rewards": np.ones(6), "terminals": np.arange(6) % 3 == 2, "timeouts": np.zeros(6, bool)}
        >>> np.savez(os.path.join(folder, "steps.npz"), **steps)
        >>> recorded = from_npz(os.path.join(folder, "steps.npz"), views=[NStep(1, 0.9)])
        >>> dataset = to_minari(recorded, "cartpole/upright-v0", env="CartPole-v1")
        >>> buffer = from_minari("cartpole/upright-v0", types={"reward": "float32"})
        >>> print(buffer.size(), *buffer.names)
        6 observation action reward next_observation terminated truncated
        >>> first = from_minari(dataset, episodes=[0], views=[NStep(3, 0.99)], sample_size=2)
        >>> print(first.size(), *first.names)  # three steps, and the observation after them
        4 observation action reward terminated truncated
    """
    arguments.update(sample_size=sample_size, capacity=capacity, buffer_cls=buffer_cls)
    return fill(_source(_opened(dataset)), buffer, episodes, types, progress, arguments)


def _source(dataset: "MinariDataset") -> Recording:
    """Return the rows of a Minari dataset: of each episode one more, for its last observation."""
    label, indices = f"the dataset {dataset.id!r}", np.asarray(dataset.episode_indices)
    if not len(indices):
        raise ValueError(f"For 'from_minari', {label} must have an episode, but got none.")
    observation = _leaves("from_minari", dataset.observation_space, "observation")
    fields = {**observation, **_leaves("from_minari", dataset.action_space, "action")}
    fields |= {"reward": ((), np.asarray(dataset[0].rewards).dtype)}
    fields |= dict.fromkeys(ENDS, ((), np.dtype(np.bool_)))
    begins = np.cumsum([0, *(one["total_steps"] + 1 for one in dataset.storage.get_episode_metadata(indices))])
    piece, current = chunk_rows(fields.values()), dict[int, Arrays]()

    def read(name: str, part: slice) -> np.ndarray:
        number = int(begins.searchsorted(part.start, "right")) - 1
        if number not in current:
            current.clear()  # free before the next is read, or the next few, if they are small
            stop = max(number + 1, int(begins.searchsorted(begins[number] + piece, "right")) - 1)
            for i, episode in enumerate(dataset.iterate_episodes(indices[number:stop]), number):
                current[i] = _arrays(label, episode, int(begins[i + 1] - begins[i]) - 1, fields)
        array, begin = current[number][name], begins[number]
        return array[min(part.start - begin, len(array) - 1) : part.stop - begin]  # only observations have the last row

    return Recording("from_minari", label, int(begins[-1]), fields, read, lengths=np.diff(begins))


def _arrays(label: str, episode: "EpisodeData", n: int, fields: Mapping[str, Field]) -> Arrays:
    """Return the columns of one episode of `n` steps, of observations one more."""
    nested = {"observation": episode.observations, "action": episode.actions, "reward": episode.rewards}
    nested |= {"terminated": episode.terminations, "truncated": episode.truncations}
    arrays = {key: np.asarray(value) for key, value in leaves_of_values(nested, ()).items()}
    wrong = []
    for name, (shape, _) in fields.items():
        expected = (n + (name.split(".")[0] == "observation"), *shape)
        if arrays[name].shape != expected:
            wrong.append(f"{name!r}: expected {expected}, but got {arrays[name].shape}")
    if wrong:
        raise ValueError(
            f"For 'from_minari', episode {episode.id} of {label} must have arrays for its {n} steps, and one "
            f"observation more. {'; '.join(wrong)}."
        )
    return arrays


def _leaves(call: str, space: object, name: str) -> dict[str, Field]:
    """Return shape and dtype of each leaf of a space, by name: ``"observation.arm.position"``, ``"observation.0"``."""
    found = leaves_of_spaces(call, name, space)
    return {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in found}


def _nested(space: object, columns: Mapping[str, np.ndarray], name: str) -> object:
    """Return nested values from the arrays of the leaves. Each leaf is a list of rows."""
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        return {key: _nested(part, columns, f"{name}.{key}") for key, part in inner.items()}
    if inner is not None:
        return tuple(_nested(part, columns, f"{name}.{key}") for key, part in enumerate(inner))
    return list(columns[name])


def _opened(dataset: object) -> "MinariDataset":
    """Open a dataset, which is passed itself, or as its folder or id."""
    minari = optional("minari", "from_minari", "datasets")
    if isinstance(dataset, minari.MinariDataset):
        return dataset
    if not isinstance(dataset, (str, os.PathLike)):
        raise TypeError(
            f"For 'from_minari', 'dataset' must be a MinariDataset, a folder or an id, but got {dataset!r}."
        )
    for folder in (Path(dataset), Path(dataset) / "data"):
        if (folder / "metadata.json").is_file():
            return minari.MinariDataset(folder)
    try:
        return minari.load_dataset(os.fspath(dataset))
    except (FileNotFoundError, ValueError) as error:
        raise FileNotFoundError(
            "For 'from_minari', 'dataset' must be a folder with a Minari dataset or the id of a local one, but got "
            f"{os.fspath(dataset)!r}: {error}"
        ) from error


def to_minari(
    buffer: Any,
    dataset_id: str,
    *,
    env: "gymnasium.Env[Any, Any] | EnvSpec | str | None" = None,
    observation_space: "gymnasium.Space[Any] | None" = None,
    action_space: "gymnasium.Space[Any] | None" = None,
    progress: bool = False,
    **metadata: object,
) -> "MinariDataset":
    """Write the rows of a buffer to a local Minari dataset.

    An episode ends where a row is terminated or truncated, where the buffer marks an end, and where a row's next
    observation is not the next row's observation. The last step of an episode that did not terminate is marked
    truncated, as Minari requires. Rows are in time order, one environment after the other, including removed rows.

    Minari requires the observation after the last step. If the buffer lacks it, a terminated episode repeats its last
    observation, which no target uses, and any other episode loses its last step. A warning counts both.

    Minari stores uint8 images of at least 32 x 32 as JPEG, with loss.

    Args:
        buffer (ReplayBuffer): A buffer with the columns that `from_minari` makes. Observations may omit
            ``observation.``. A missing ``terminated`` counts as False, and a missing ``truncated`` too, if the buffer
            stores episodes or next observations.
        dataset_id (str): A new id, such as ``"cartpole/mixed-v0"``.
        env (Union[gymnasium.Env, gymnasium.envs.registration.EnvSpec, str, None]): The environment. Default: ``None``.
        observation_space (Union[gymnasium.Space, None]): The space. Default: ``None``, that of `env`.
        action_space (Union[gymnasium.Space, None]): The space. Default: ``None``, that of `env`.
        progress (bool): Whether to show a progress bar. Default: ``False``.
        metadata: More arguments for ``minari.create_dataset_from_buffers``: `author`, `description`,
            `algorithm_name`, `data_format` and others.

    Returns:
        minari.MinariDataset: The dataset.

    Raises:
        ImportError: If Minari is not installed.
        TypeError: If an argument is of another type, or a space or a column is not supported.
        ValueError: If neither `env` nor both spaces are given, columns are missing or do not fit the spaces, nothing
            marks the ends of truncated episodes, there is no step, or the dataset exists.

    Examples:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from mindspore_replay import ReplayBuffer
        >>> from mindspore_replay.datasets import to_minari
        >>> os.environ["MINARI_DATASETS_PATH"] = tempfile.mkdtemp()  # where Minari keeps its datasets
        >>> names = ["observation", "action", "reward", "next_observation", "terminated"]
        >>> types = ["float32", "int64", "float32", "float32", "bool"]
        >>> buffer = ReplayBuffer(sample_size=2, capacity=9, shapes=[(4,), (), (), (4,), ()], types=types, names=names)
        >>> for step in range(5):
        ...     now = np.full(4, step, np.float32)
        ...     buffer = buffer.insert([now, 0, 1.0, now + 1, step == 2])
        >>> dataset = to_minari(buffer, "cartpole/agent-v0", env="CartPole-v1", author="A. Author")
        >>> for episode in dataset:
        ...     print(episode.observations[:, 0], episode.terminations[-1], episode.truncations[-1])
        [0. 1. 2. 3.] True False
        [3. 4. 5.] False True
    """
    minari = optional("minari", "to_minari", "datasets")
    check_buffer("to_minari", buffer)
    env_spaces = _spaces(env, observation_space, action_space)
    fields = {key: _leaves("to_minari", space, key) for key, space in env_spaces.items()}
    names = _columns(buffer, fields["observation"], fields["action"])
    _check_images({**fields["observation"], **fields["action"]}, metadata.get("data_format"))
    _check_ends(buffer, names, fields["observation"])
    with (
        buffer.state.snapshot(columns=True) as state,
        progress_bar("to_minari", int(state["count"]), progress, "row", "datasets") as done,
        warnings.catch_warnings(),
    ):
        # Minari warns of every entry of the metadata that is not given.
        warnings.filterwarnings("ignore", message=".* is set to None|env_spec is None", category=UserWarning)
        found = StoredRows(buffer.spec, state).recording(names)
        written = int((found.length > found.lost[found.end]).sum())
        if not written:
            raise ValueError("For 'to_minari', 'buffer' must hold an episode of a step or more, but got none.")
        space_arguments = {f"{key}_space": space for key, space in env_spaces.items()}
        dataset = minari.create_dataset_from_buffers(
            dataset_id, _episodes(found, env_spaces, fields, done), env=env, **space_arguments, **metadata
        )
    if repeated := int((~found.has_next & found.terminated).sum()):
        text = "to_minari: %s: %d of %d episodes terminated without a last observation in the buffer: it is the one "
        log.warning(f"{text}before it again", dataset_id, repeated, written)
    if dropped := int(found.lost.sum()):
        text = "to_minari: %s: %d steps dropped: the buffer holds no observation after them"
        log.warning(text, dataset_id, dropped)
    return dataset


def _episodes(
    found: Recording,
    env_spaces: Mapping[str, object],
    fields: Mapping[str, Mapping[str, Field]],
    done: Callable[[int], object],
) -> Iterator["EpisodeBuffer"]:
    """Return each episode that has a step, in Minari's form."""
    minari_episode = optional("minari.data_collector", "to_minari", "datasets", "minari").EpisodeBuffer
    layout, last = found.layout(np.ones_like(found.end), False, True), np.flatnonzero(found.end)
    of_space = {**fields["observation"], **fields["action"], "reward": ((), found.fields["reward"][1])}
    stops = np.cumsum(found.length + found.has_next[last])
    for n, stop, has_next, lost in zip(found.length, stops, found.has_next[last], found.lost[last]):
        done(n)
        columns = found.read(layout, slice(stop - n - has_next, stop), found.fields.keys())
        n -= lost
        if not n:
            continue
        if not (has_next or lost):  # the one after the last step is that before it again
            columns |= {name: np.append(columns[name], columns[name][-1:], 0) for name in fields["observation"]}
        values = {name: columns[name][: n + (name in fields["observation"])] for name in of_space}
        values = {k: fit("to_minari", "the buffer", k, array, of_space[k]) for k, array in values.items()}
        terminated, truncated = (as_flag(columns.get(name, np.zeros(n))[:n]) for name in ENDS)
        truncated[-1] |= not terminated[-1]
        yield minari_episode(
            observations=_nested(env_spaces["observation"], values, "observation"),
            actions=_nested(env_spaces["action"], values, "action"),
            rewards=values["reward"],
            terminations=terminated,
            truncations=truncated,
            infos={},
        )


def _spaces(env: Any, observation_space: object, action_space: object) -> dict[str, object]:
    """Return the spaces of observations and actions."""
    if observation_space is None or action_space is None:
        if env is None:
            raise ValueError("For 'to_minari', either 'env' or both 'observation_space' and 'action_space' are needed.")
        if not hasattr(env, "action_space"):
            with contextlib.closing(optional("gymnasium", "to_minari", "datasets").make(env)) as environment:
                return _spaces(environment, observation_space, action_space)
    return {
        "observation": env.observation_space if observation_space is None else observation_space,
        "action": env.action_space if action_space is None else action_space,
    }


def _columns(buffer: Any, observations: Collection[str], actions: Collection[str]) -> dict[str, str]:
    """Return the buffer's column for each name in a dataset."""
    columns, needed = buffer.spec.columns.names, [*observations, *actions, "reward"]
    wanted = (*needed, *(f"next_{name}" for name in observations), *ENDS)
    names = {name: column for name in wanted for column in (short_name(name), name) if column in columns}
    achieved = buffer.achieved_goal
    if achieved is not None and achieved in [names.get(name) for name in observations]:
        raise ValueError(
            f"For 'to_minari', the column {achieved!r} of 'buffer' holds the goals achieved in the state after an "
            f"action, and an observation is from before it: make the buffer with 'next_{achieved}' too."
        )
    if missing := [name for name in needed if name not in names]:
        raise ValueError(
            f"For 'to_minari', 'buffer' must have columns for both spaces and the reward, but got none for {missing}; "
            f"it has {list(columns)}."
        )
    return names


def _check_ends(buffer: Any, names: Collection[str], observations: Collection[str]) -> None:
    """Raise a ValueError if the buffer does not know where episodes were cut off."""
    scattered = isinstance(buffer, ReservoirReplayBuffer)  # neighbours are no consecutive steps
    marked = buffer.has_episodes or ("truncated" in names and not scattered)
    if not marked and not all(f"next_{name}" in names for name in observations):
        marks = "next observations" if scattered else "a column 'truncated', next observations or views"
        raise unmarked("to_minari", "'buffer'", marks, list(buffer.spec.columns.names))


def _check_images(fields: Mapping[str, Field], data_format: object) -> None:
    """Raise a ValueError for images that Minari would write in a form that it cannot read."""
    for name, (shape, dtype) in fields.items():
        if dtype != np.uint8 or len(shape) not in (2, 3):
            continue
        if min(shape[:2]) < 32 and data_format in (None, "hdf5"):
            raise ValueError(
                f"For 'to_minari', {name!r} must not be uint8 of shape {shape}: Minari writes it as JPEG to HDF5 "
                "and does not read it as that. Give data_format='arrow', which needs minari[arrow]."
            )
        if min(shape[:2]) >= 32 and len(shape) == 3 and shape[2] != 3:
            raise ValueError(
                f"For 'to_minari', {name!r} must be an image of one or three colours, [H, W] or [H, W, 3], but got "
                f"{shape}: Minari writes JPEG."
            )
