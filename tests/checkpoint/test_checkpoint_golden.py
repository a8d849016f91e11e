"""Files that are kept: they load, and the samples that follow are the same.

Their arrays are never made again; `git log -- tests/golden` has the program that made them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import TESTS

from mindspore_replay import MixedReplay, load, save

GOLDEN = TESTS / "golden"
DRAWS: dict[str, Any] = json.loads((GOLDEN / "draws.json").read_text())


def parts(buffer: Any) -> tuple[Any, ...]:
    return buffer.sources if isinstance(buffer, MixedReplay) else (buffer,)


def test_every_file_is_tested():
    names = {file.name for file in GOLDEN.glob("*.safetensors")}
    assert names == {f"{name}.safetensors" for name in DRAWS}


#: Other tests compare the backends, and graphs take long to compile.
CASES = [*((name, "native") for name in DRAWS), ("uniform", "composite")]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_the_same_samples(name: str, backend: str):
    buffer = load(GOLDEN / f"{name}.safetensors", backend=backend)
    for part in parts(buffer):
        part.check_valid()
    for expected in DRAWS[name]:
        for got, values in zip(buffer.sample(), expected, strict=True):
            array = got.asnumpy()
            if array.dtype.kind == "f":  # importance weights are powers, which differ in the last bits
                np.testing.assert_allclose(array, np.array(values), rtol=1e-5)
            else:
                np.testing.assert_array_equal(array.astype(np.float64), np.array(values, np.float64))


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_loaded_can_be_saved(name: str, tmp_path: Path):
    """All arrays are the same again."""
    buffer = load(GOLDEN / f"{name}.safetensors")
    save(buffer, tmp_path / "again")
    again = load(tmp_path / "again")
    for first, second in zip(parts(buffer), parts(again), strict=True):
        for key, array in first.state_dict().items():
            np.testing.assert_array_equal(second.state_dict()[key], array, err_msg=key)
