"""Starts the processes of the shards, or finds running ones."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .links import Links
from .ray_module import NAMESPACE, ray_module
from .shard import Setup, Shard

#: Seconds to wait for the processes of the shards to start.
_START = 300.0
_NAME = "ShardedReplay"


def actors(setups: Sequence[Setup], settings: Mapping[str, Any], resume: bool) -> list[Any]:
    """Make the shards, or find those that run under the name."""
    made = ray_module().remote(concurrency_groups={"write": 1}, max_restarts=-1)(Shard)
    options = {"scheduling_strategy": "SPREAD", **(settings.get("resources") or {})}
    name, folder = settings.get("name"), settings.get("folder")
    living = {"namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    begun = []
    for i, setup in enumerate(setups):
        path = None if folder is None else f"{os.path.abspath(folder)}/shard_{i}.safetensors"
        own = options if name is None else {**options, **living, "name": f"{name}/shard_{i}"}
        begun.append(made.options(**own).remote(setup, path, resume))
    return begun


def begin(links: Links, setups: Sequence[Setup]) -> tuple[int, dict[str, Any]]:
    """Wait until all shards have started; return the bytes of their rows, and the latest state of a learner."""
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
        raise error.as_instanceof_cause() from None
    except ray.exceptions.RayActorError as error:
        cause = str(error).strip().splitlines()[-1]
        raise RuntimeError(f"For '{_NAME}', a shard could not begin: {cause}") from None
    for link, report in links.ask({link: link.actor.report.remote for link in links.all}).items():
        links.accept(link, report)
    return sum(nbytes for nbytes, _ in begun), max(
        (memo for _, memo in begun), key=lambda memo: memo.get("samples", -1)
    )
