"""The start of a learner: its shards begin anew, from a save, or go on."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..store.spec.spec import BufferSpec
from .cluster import NAMESPACE, ray_module
from .exchange import Exchange
from .shard import Begun, Shard

#: Seconds to wait for the processes of the shards to start.
_START = 300.0
_NAME = "ShardedReplay"


#: Seconds that the name of a learner may take to become free after it has ended.
_FREE = 10.0


class _Learner:
    """An actor owned by a learner: its name stays taken as long as the learner lives."""


def claim(name: str) -> Any:
    """Reserve the shards of a name for this learner, and return the reservation, which ends with the handle.

    Raises:
        RuntimeError: If another learner has it.
    """
    place = ray_module().remote(num_cpus=0)(_Learner).options(namespace=NAMESPACE, name=f"{name}/learner")
    deadline = time.monotonic() + _FREE
    while True:
        try:
            return place.remote()
        except ValueError:  # the name is taken
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"For '{_NAME}', the shards of a 'name' must have one learner, but another one uses {name!r}. End "
                    "it or call its close(), which ends the shards too, or use another 'name'. Processes that only "
                    "insert need no learner: pass them a writer()."
                ) from None
            time.sleep(0.1)


def actors(specs: Sequence[BufferSpec], settings: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Make the shards, or find those that run under the name. Return all, and those that were made."""
    ray, shard_class = ray_module(), ray_module().remote(concurrency_groups={"write": 1}, max_restarts=-1)(Shard)
    options = {"scheduling_strategy": "SPREAD", **(settings.get("resources") or {})}
    name, folder = settings.get("name"), settings.get("folder")
    begun, new = [], []
    for i, spec in enumerate(specs):
        if name is not None:
            options |= {"namespace": NAMESPACE, "lifetime": "detached", "name": f"{name}/shard_{i}"}
            with contextlib.suppress(ValueError):  # there is none
                begun.append(ray.get_actor(options["name"], NAMESPACE))
                continue
        where = None if folder is None else os.path.abspath(folder)
        begun.append(shard_class.options(**options).remote(spec, where, i))
        new.append(begun[-1])
    return begun, new


def begin(exchange: Exchange, specs: Sequence[BufferSpec], new: Sequence[Any], resume: bool, folder: str | None) -> int:
    """Wait until all shards have started, and let those without rows load the newest save that all have.

    Those that are not `new` ran under the name. The learner resumes from the latest state of one. Return the bytes of
    the rows.

    Raises:
        FileExistsError: If new shards are not to resume, and the folder contains a save.
        FileNotFoundError: If new shards are to resume, and nothing was saved.
        ValueError: If no save there is one of as many shards, or shards have another description.
    """
    begun = _begun(exchange, specs, resume)
    chosen = _newest_of_all(begun)
    whole = next(filter(None, (shard.folder for shard in begun)), folder if chosen else "")
    if new and resume:
        _check_resumable(begun, chosen, bool(whole))
    elif new and whole:
        raise FileExistsError(
            f"For '{_NAME}', 'folder' must contain no shards of another run, but {whole} exists. Continue that run "
            "with resume=True, or name another folder."
        )
    for link, shard, number in zip(exchange.all, begun, chosen.get("saves", [0] * len(begun))):
        link.identity, link.saved = shard.identity or link.next_identity(), number
    if state := max([*(shard.learner_state for shard in begun), chosen], key=_age):
        exchange.resume(state)
    exchange.begin()
    return sum(shard.nbytes for shard in begun)


def _begun(exchange: Exchange, specs: Sequence[BufferSpec], resume: bool) -> list[Begun]:
    ray = ray_module()
    calls = [link.actor.begin.remote(spec.to_json(), resume) for link, spec in zip(exchange.all, specs)]
    _, late = ray.wait(calls, num_returns=len(calls), timeout=_START)
    if late:
        raise TimeoutError(
            f"For '{_NAME}', {len(late)} of {len(calls)} shards did not start within {_START:g} s. The cluster's "
            f"resources are {ray.cluster_resources()}"
        )
    try:
        return list(ray.get(calls))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError as error:
        raise RuntimeError(f"For '{_NAME}', a shard could not start: {error}") from None


def _age(state: dict[str, Any]) -> tuple[int, int]:
    """Return the age of a state, to compare it with others: samples drawn before it, then the number of the save."""
    return state.get("samples", -1), max(state.get("saves", [0]))


def _newest_of_all(begun: Sequence[Begun]) -> dict[str, Any]:
    """Return the state of the learner in the newest save that all shards have, empty if there is none."""
    there = [{0, *(max(state["saves"]) for state in shard.saves)} for shard in begun]
    states = [state for shard in begun for state in shard.saves]
    for state in sorted(states, key=lambda state: max(state["saves"]), reverse=True):
        if len(state["saves"]) == len(begun) and all(number in own for number, own in zip(state["saves"], there)):
            return dict(state)
    return {}


def _check_resumable(begun: Sequence[Begun], chosen: Mapping[str, Any], has_files: bool) -> None:
    """Raise an error if no save was chosen."""
    if chosen:
        return
    if not has_files:
        raise FileNotFoundError(f"For '{_NAME}', 'resume' needs a folder that save() has written to.")
    number = max((len(state["saves"]) for shard in begun for state in shard.saves), default=len(begun))
    if number != len(begun):
        raise ValueError(
            f"For '{_NAME}', 'num_shards' must be {number}, the number of shards that were saved, but got "
            f"{len(begun)}. Rows stay in their shards: resume with num_shards={number}."
        )
    raise ValueError(
        f"For '{_NAME}', the files in 'folder' must be of one save, but no save is there of all shards: some are "
        "missing, or from another place. Resume from a copy of the folder, or begin in another one: load() reads each "
        "file there as a buffer."
    )
