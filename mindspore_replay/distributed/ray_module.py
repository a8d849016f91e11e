"""Ray, which is optional, and the cluster that is used."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..optional import install_command

#: Ray finds out the address that the machine has in its network, and listens there, unless this says that there is no
#: cluster; then it is the loopback address.
_IN_A_NETWORK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
NAMESPACE = "mindspore_replay"


def ray_module() -> Any:
    """Ray.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(f"'mindspore_replay.distributed' needs Ray: {install_command('ray')}") from error


def connect() -> Any:
    """Connect to Ray, and return its module.

    It is the cluster that the process uses, that of ``RAY_ADDRESS``, or one that is started on this machine and listens
    to the loopback address only.
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
    """Ray takes the loopback address for that of this machine, here and in the processes that it starts."""
    before = os.environ.get(_IN_A_NETWORK)
    os.environ[_IN_A_NETWORK] = "0"
    try:
        constants: Any = importlib.import_module("ray._private.ray_constants")
        constants.ENABLE_RAY_CLUSTER = False  # what it read from there, if it was imported before
        yield
    finally:
        if before is None:
            del os.environ[_IN_A_NETWORK]
        else:
            os.environ[_IN_A_NETWORK] = before


@contextlib.contextmanager
def _away_from_other_sources() -> Iterator[None]:
    """Start Ray from a folder without another copy of this package.

    Its processes look for modules first in the folder in which this one stands, and sources from which the package was
    installed may lie there, whose kernels were not built.
    """
    package, here = Path(__file__).resolve().parents[1], Path.cwd()
    other = here / package.name
    if not other.is_dir() or other.samefile(package):
        yield
        return
    script = sys.argv[0]
    sys.argv[0] = os.path.abspath(script)  # Ray's processes look for modules beside it too
    os.chdir(package.parent)
    try:
        yield
    finally:
        os.chdir(here)
        sys.argv[0] = script
