"""The selection of figures by the benchmarks of operators."""

from typing import Any

import pytest


def test_only_what_a_figure_needs_is_made(script: Any):
    measuring = script("measuring")
    cases = {name: lambda seconds=seconds: lambda: seconds for name, seconds in (("with", 5e-6), ("without", 2e-6))}
    cases["other"] = lambda: pytest.fail("nobody asked for it")
    figures = {"mine": measuring.less("with", "without"), "yours": measuring.micro("other")}
    found = measuring.measure_figures(cases, figures, "^mine", rounds=2)
    assert found == {"mine": pytest.approx([3.0, 3.0])}


@pytest.mark.parametrize(
    ("name", "cases", "figures"),
    [
        ("operators", "uniform_cases", "uniform_figures"),
        ("operators", "prioritized_cases", "prioritized_figures"),
        ("windows", "cases", "figures"),
    ],
)
def test_every_figure_has_its_cases(script: Any, name: str, cases: str, figures: str):
    module, asked = script(name), script("measuring")._Asked()
    for figure in getattr(module, figures)().values():
        figure(asked)
    assert set(asked) <= set(getattr(module, cases)())


def test_every_limit_is_of_a_figure(script: Any):
    operators, windows = script("operators"), script("windows")
    assert set(operators.LIMITS) <= {**operators.uniform_figures(), **operators.prioritized_figures()}.keys()
    assert set(windows.LIMITS) <= windows.figures().keys()
