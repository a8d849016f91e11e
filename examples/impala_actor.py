"""An actor of ``impala.py``: follows the newest policy that it has and inserts unrolls, without MindSpore.

python examples/impala_actor.py FOLDER NUMBER   # started by impala.py
"""

import numpy as np
from actor import Actor, main


def log_probabilities(network: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Return the logarithms of the actions' probabilities for scaled observations. Shape ``[E, actions]``."""
    *hidden, weight, bias = network
    for each, shift in zip(hidden[::2], hidden[1::2]):
        x = np.maximum(x @ each.T + shift, 0)
    logits = x @ weight.T + bias
    logits -= logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


class Unroller(Actor):
    """An `Actor` whose rows are unrolls of ``T`` = `gather` steps, with the version of the policy that made them."""

    def step(self) -> list[np.ndarray]:
        logs = log_probabilities(self.network, self.observation * self.scale)
        actions = (logs + self.rng.gumbel(size=logs.shape)).argmax(1).astype(np.int32)
        return [*self.play(actions), logs[np.arange(len(actions)), actions].astype(np.float32)]

    def insert(self, steps: list[list[np.ndarray]]) -> None:
        rows = [np.stack(column, 1) for column in zip(*steps)]
        self.buffer.insert(rows, version=self.weights.version)  # waits while the queue is full


if __name__ == "__main__":
    main(Unroller)
