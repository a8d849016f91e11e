"""The connection to Ray's cluster."""

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..store.base.optional import optional

#: If this environment variable is "0", Ray listens on the loopback address, not on the machine's address in a network.
_IN_A_NETWORK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
NAMESPACE = "mindspore_replay"


def ray_module() -> Any:
    """Import Ray. Raise an ImportError if it is not installed."""
    return optional("ray", "mindspore_replay.distributed", "ray", "Ray")


@functools.cache
def _connections() -> tuple[Any, Any]:
    """Return Ray's objects for a connection as a driver or worker, and for one of Ray Client."""
    return importlib.import_module("ray._private.worker").global_worker, importlib.import_module("ray.util.client").ray


def session() -> object:
    """Return an object that identifies the connection of this process to a cluster, or ``None`` without one.

    It never connects, as a call of an actor would. It runs for each row, so it avoids Ray's public functions (3 us).
    """
    worker, client = _connections()
    return client.get_context().client_worker if worker.mode is None else worker.node


def connect() -> Any:
    """Connect to Ray, and return its module.

    It connects to the cluster that the process uses, else to that of ``RAY_ADDRESS``, else to a new one on this machine
    that listens on the loopback address only.
    """
    if "ray" in sys.modules and ray_module().is_initialized():
        return ray_module()
    address = os.environ.get("RAY_ADDRESS", "")
    options: dict[str, Any] = {} if address else {"address": "local", "include_dashboard": False}
    alone = not address or address.startswith(("127.0.0.1:", "localhost:"))
    with _at_the_loopback_address() if alone else contextlib.nullcontext(), _away_from_other_sources():
        ray = ray_module()
        ray.init(namespace=NAMESPACE, **options)
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
