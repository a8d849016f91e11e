"""What all peers that collect have in common: environments in step, and a network of two hidden layers."""

import itertools

import numpy as np

ENVIRONMENT, ENVS = "CartPole-v1", 4
HIDDEN = 64
#: Steps of all environments in one piece of work.
STEPS = 64


def layers() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return weights ``[in, out]`` and biases of the network, from observations to the values of actions."""
    rng = np.random.default_rng(0)
    sizes = [4, HIDDEN, HIDDEN, 2]
    return [
        (rng.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in itertools.pairwise(sizes)
    ]
