"""Hides private names of MindSpore from the package, as if this version lacked them.

    WITHOUT=wait PYTHONPATH=tests/support pytest -p without tests/buffers/test_replay.py

The names are those of `mindspore_api.NAMES`; several are separated by commas. MindSpore itself still finds them.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from unittest import mock


class _Hidden:
    """An object without one of its attributes, or of those of its attributes."""

    def __init__(self, shown: Any, path: list[str]) -> None:
        self._shown, self._path = shown, path
        vars(self)["__init__"] = getattr(shown, "__init__", None)  # which is read

    def __getattr__(self, name: str) -> Any:
        first, *rest = self._path
        if name != first.removesuffix("()"):
            return getattr(self._shown, name)
        if not rest:
            raise AttributeError(name)
        if first.endswith("()"):  # its constructor, which is read and not called, does not name the attribute
            shown = getattr(self._shown, name)
            code = shown.__init__.__code__
            code = code.replace(co_consts=tuple(one for one in code.co_consts if one not in rest))
            return type(name, (shown,), {"__init__": SimpleNamespace(__code__=code)})
        return _Hidden(getattr(self._shown, name), rest)


def hide(names: Collection[str]) -> None:
    """Import `mindspore_api` without these names; nothing else of the package may be imported yet."""
    module = "mindspore_replay.mindspore_api"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = importlib.import_module(module).NAMES
    places = [place for name in names for place in known[name].places]
    del sys.modules[module]
    find = importlib.import_module

    def import_module(name: str) -> Any:
        found = find(name)
        for owner, _, path in (place.partition(":") for place in places):
            if owner == name and not path:
                raise ImportError(name)
            if owner == name:
                found = _Hidden(found, path.split("."))
        return found

    with mock.patch.object(importlib, "import_module", import_module):
        find(module)


if "WITHOUT" in os.environ:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hide(os.environ["WITHOUT"].split(","))
