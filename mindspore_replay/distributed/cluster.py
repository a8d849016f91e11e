"""The connection to Ray's cluster, and the actors of a learner there."""

import contextlib
import functools
import importlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..store.base.optional import optional
from ..store.spec.spec import BufferSpec
from .shard import Shard

#: If this environment variable is "0", Ray listens on the loopback address, not on the machine's address in a network.
_IN_A_NETWORK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_NAMESPACE = "mindspore_replay"
#: Seconds that the name of a learner may take to become free after it has ended.
_FREE = 10.0


def ray_module() -> Any:
    """Import Ray. Raise an ImportError if it is not installed."""
    return optional("ray", "mindspore_replay.distributed", "ray", "Ray")


@functools.cache
def _connections() -> tuple[Any, Any]:
    """Return Ray's objects for a connection as a driver or worker, and for one of Ray Client."""
    return importlib.import_module("ray._private.worker").global_worker, importlib.import_module("ray.util.client").ray


def session() -> object:
    """Return what identifies the connection of this process to a cluster, or ``None`` without one.

    It runs for each row, so it avoids Ray's public functions (3 us).
    """
    worker, client = _connections()
    return client.get_context().client_worker if worker.mode is None else worker.node


def connect() -> Any:
    """Connect to the cluster that the process uses, that of ``RAY_ADDRESS``, or a new one, and return Ray's module."""
    if "ray" in sys.modules and ray_module().is_initialized():
        return ray_module()
    address = os.environ.get("RAY_ADDRESS", "")
    options: dict[str, Any] = {} if address else {"address": "local", "include_dashboard": False}
    alone = not address or address.startswith(("127.0.0.1:", "localhost:"))
    with _at_the_loopback_address() if alone else contextlib.nullcontext(), _away_from_other_sources():
        ray = ray_module()
        ray.init(namespace=_NAMESPACE, **options)
    return ray


@contextlib.contextmanager
def _at_the_loopback_address() -> Iterator[None]:
    """Make Ray use the loopback address as that of this machine, here and in the processes that it starts."""
    before = os.environ.get(_IN_A_NETWORK)
    os.environ[_IN_A_NETWORK] = "0"
    try:
        constants: Any = importlib.import_module("ray._private.ray_constants")
        constants.ENABLE_RAY_CLUSTER = False  # the value of the variable, if it was imported before
        yield
    finally:
        if before is None:
            del os.environ[_IN_A_NETWORK]
        else:
            os.environ[_IN_A_NETWORK] = before


@contextlib.contextmanager
def _away_from_other_sources() -> Iterator[None]:
    """Start Ray from a folder without another copy of this package.

    Its processes look for modules in the current folder first. It may contain the package's sources, without built
    kernels.
    """
    package, here = Path(__file__).resolve().parents[1], Path.cwd()
    other = here / package.name
    if not other.is_dir() or other.samefile(package):
        yield
        return
    script = sys.argv[0]
    sys.argv[0] = os.path.abspath(script)  # Ray's processes look for modules beside the script too
    os.chdir(package.parent)
    try:
        yield
    finally:
        os.chdir(here)
        sys.argv[0] = script


class _Learner:
    """An actor owned by a learner: its name stays taken as long as the learner lives."""


def claim(name: str) -> Any:
    """Reserve the shards of a name for this learner, and return the reservation, which ends with the handle."""
    place = ray_module().remote(num_cpus=0)(_Learner).options(namespace=_NAMESPACE, name=f"{name}/learner")
    deadline = time.monotonic() + _FREE
    while True:
        try:
            return place.remote()
        except ValueError:  # the name is taken
            if time.monotonic() > deadline:
                raise RuntimeError(
                    "For 'ShardedReplay', the shards of a 'name' must have one learner, but another one uses "
                    f"{name!r}. End it or call its close(), which ends the shards too, or use another 'name'. "
                    "Processes that only insert need no learner: pass them a writer()."
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
            options |= {"namespace": _NAMESPACE, "lifetime": "detached", "name": f"{name}/shard_{i}"}
            with contextlib.suppress(ValueError):  # there is none
                begun.append(ray.get_actor(options["name"], _NAMESPACE))
                continue
        where = None if folder is None else os.path.abspath(folder)
        begun.append(shard_class.options(**options).remote(spec, where, i))
        new.append(begun[-1])
    return begun, new
