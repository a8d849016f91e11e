"""Rows as columns and as objects."""

import pytest


@pytest.fixture(params=[False, True], ids=["columns", "objects"])
def objects(request):
    return request.param
