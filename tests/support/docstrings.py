"""Finds and runs the examples in docstrings."""

import doctest
from types import ModuleType


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """Return the examples in a module's docstrings."""
    return [test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples]


def run(test: doctest.DocTest) -> str:
    """Run an example; return what differs from the documented output."""
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    return "".join(report)
