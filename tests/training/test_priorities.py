"""Priorities of sequences, from the errors of their steps."""

import mindspore as ms
import numpy as np
from checks import assert_rows
from mindspore import Tensor

from mindspore_replay import sequence_priorities


def test_priorities_of_sequences(mode: str):
    """Hand-worked: 0.9 of the largest, 0.1 of the mean, over the steps that the mask keeps."""
    errors = Tensor([[1.0, -4.0, 2.0, 9.0], [0.5, 0.5, 0.5, 0.5], [3.0, 3.0, 3.0, 3.0]], ms.float32)
    mask = Tensor([[True, True, False, False], [True] * 4, [False] * 4])
    expected = np.array([0.9 * 4 + 0.1 * 2.5, 0.5, 0.0], np.float32)
    for function in (sequence_priorities, ms.jit(sequence_priorities)):
        np.testing.assert_allclose(function(errors, mask).asnumpy(), expected, rtol=1e-6)
    assert_rows([sequence_priorities(errors, mask, 1.0)], [np.array([4.0, 0.5, 0.0], np.float32)])
