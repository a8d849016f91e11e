"""Shards are in the process of the tests, unless a test uses the cluster."""

import contextlib
from collections.abc import Iterator

import pytest
from local_ray import LocalRay, in_this_process


@pytest.fixture(autouse=True)
def ray(request: pytest.FixtureRequest) -> Iterator[LocalRay | None]:
    """Let sharded buffers use a Ray in this process."""
    is_local = hasattr(request.module, "ShardedReplay") and "cluster" not in request.fixturenames
    with in_this_process() if is_local else contextlib.nullcontext() as found:
        yield found
