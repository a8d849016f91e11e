"""The guard: every test that takes the fixture `combination` ran in each of the eight."""

import itertools

import pytest
from drivers import COMBINATIONS, Combination

EVERY = set(itertools.product(("pynative", "graph"), ("native", "composite"), ("eager", "compiled")))


def missing(ran: dict[str, set[Combination]]) -> dict[str, list[tuple[str, ...]]]:
    """For each test the combinations in which it did not run, if any."""
    return {name: sorted(EVERY - done) for name, done in ran.items() if EVERY - done}


def test_the_guard_finds_what_did_not_run():
    ran = {"whole": set(COMBINATIONS), "part": set(COMBINATIONS[1:]), "skipped": set()}
    assert missing(ran) == {"part": [("pynative", "native", "eager")], "skipped": sorted(EVERY)}


def test_every_combination_ran(ran_combinations):
    assert len(EVERY) == 8
    assert ran_combinations
    if missing(ran_combinations):
        pytest.fail(f"not run: {missing(ran_combinations)}")
