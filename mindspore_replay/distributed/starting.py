"""Starts the processes of the shards, or finds running ones."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .links import Links
from .ray_module import NAMESPACE, ray_module
from .shard import Setup, Shard

#: Seconds to wait for the processes of the shards to start.
_START = 300.0
#: Seconds that the name of a learner may take to become free after it has ended.
_FREE = 10.0
_NAME = "ShardedReplay"


class _Learner:
    """An actor that a learner owns, so that its name is taken for as long as the learner lives."""


def claim(name: str) -> Any:
    """Take the place of the one learner of the shards of a name.

    Returns:
        ActorHandle: The place. It becomes free when the handle, its process or the actor ends.

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
                    f"For '{_NAME}', the shards of a 'name' must have one learner, but another uses {name!r}. End it "
                    "or close() it, which ends the shards too; or take another name. Processes that only insert need "
                    "no learner: give them its writer()."
                ) from None
            time.sleep(0.1)


def actors(setups: Sequence[Setup], settings: Mapping[str, Any], resume: bool) -> tuple[list[Any], list[Any]]:
    """Make the shards, or find those that run under the name. Return all, and those that were made."""
    made = ray_module().remote(concurrency_groups={"write": 1}, max_restarts=-1)(Shard)
    options = {"scheduling_strategy": "SPREAD", **(settings.get("resources") or {})}
    name, folder = settings.get("name"), settings.get("folder")
    begun, new = [], []
    for i, setup in enumerate(setups):
        path = None if folder is None else f"{os.path.abspath(folder)}/shard_{i}.safetensors"
        if name is not None:
            options |= {"namespace": NAMESPACE, "lifetime": "detached", "name": f"{name}/shard_{i}"}
            with contextlib.suppress(ValueError):  # there is none
                begun.append(ray_module().get_actor(options["name"], NAMESPACE))
                continue
        begun.append(made.options(**options).remote(setup, path, resume))
        new.append(begun[-1])
    return begun, new


def begin(links: Links, setups: Sequence[Setup], resume: bool) -> tuple[int, dict[str, Any]]:
    """Wait until all shards have started; return the bytes of their rows, and the latest state of a learner.

    Raises:
        FileNotFoundError: If nothing was saved in the folder from which to resume.
        ValueError: If the files there are not those of one save of as many shards, or shards have another description.
    """
    ray = ray_module()
    calls = [link.actor.begin.remote(setup.description) for link, setup in zip(links.all, setups)]
    _, late = ray.wait(calls, num_returns=len(calls), timeout=_START)
    if late:
        raise TimeoutError(
            f"For '{_NAME}', {len(late)} of {len(calls)} shards did not begin within {_START:g} s. Has the cluster "
            f"the resources? {ray.cluster_resources()}"
        )
    try:
        begun = ray.get(calls)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError as error:
        cause = str(error).strip().splitlines()[-1]
        raise RuntimeError(f"For '{_NAME}', a shard could not begin: {cause}") from None
    states = [state for _, state in begun]
    if resume:
        _check_saved(states)
    for link, report in links.ask({link: link.actor.report.remote for link in links.all}).items():
        links.accept(link, report)
    return sum(nbytes for nbytes, _ in begun), max(states, key=_age)


def _age(state: Mapping[str, Any]) -> tuple[int, int]:
    """Return numbers that grow with the samples and the saves before a state."""
    return state.get("samples", -1), max(state.get("saves", [0]))


def _check_saved(states: Sequence[Mapping[str, Any]]) -> None:
    """Raise an error unless the files that shards have read are of one run, and of its newest save."""
    read = [state for state in states if state]
    if not read:
        raise FileNotFoundError(f"For '{_NAME}', 'resume' needs a folder that save() has written to.")
    newest = max(read, key=lambda state: max(state.get("saves", [0])))
    saves = newest.get("saves", [])
    if len(saves) != len(states):
        raise ValueError(
            f"For '{_NAME}', 'num_shards' must be {len(saves)}, the number of shards that were saved, but got "
            f"{len(states)}. Rows stay in their shards: resume with num_shards={len(saves)}."
        )
    own = [state["saves"][i] if state and "writing" not in state else 0 for i, state in enumerate(states)]
    if len({state["run"] for state in read}) > 1 or any(number < least for number, least in zip(own, saves)):
        raise ValueError(
            f"For '{_NAME}', the files in 'folder' must be of one save, but those of its shards are of the saves {own} "
            f"of {len({state['run'] for state in read})} runs: one was cut off, or files are missing or of elsewhere. "
            "Resume from a copy of the folder, or begin in another one: load() reads each file there as a buffer."
        )
