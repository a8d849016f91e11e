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


def test_every_figure_has_its_cases_and_every_limit_is_of_a_figure(script: Any):
    operators, asked = script("operators"), script("measuring")._Asked()
    figures = operators.uniform_figures() | operators.prioritized_figures() | operators.window_figures()
    for figure in figures.values():
        figure(asked)
    assert set(asked) <= set(operators.cases())
    assert set(operators.LIMITS) <= set(figures)
