"""An actor of ``impala.py``: follows the newest policy that it has and inserts unrolls, without MindSpore.

python examples/impala_actor.py FOLDER NUMBER   # started by impala.py
"""

from types import MappingProxyType
from typing import Any

import numpy as np
from actor import Actor, main


class Unroller(Actor):
    """An `Actor` whose rows are unrolls of ``T`` = `gather` steps, with the version of the policy that made them."""

    further = MappingProxyType({"truncated": ((), "bool"), "log_probability": ((), "float32")})

    def act(self, observation: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        logs = self.log_probabilities(observation)
        actions = (logs + self.rng.gumbel(size=logs.shape)).argmax(1)
        return actions, {"log_probability": logs[np.arange(len(actions)), actions]}

    def insert(self, buffer: Any, rows: dict[str, np.ndarray]) -> None:
        rows["done"] = rows["terminated"] | rows.pop("truncated")
        rows["version"] = np.full(len(rows["done"]), self.version)
        unrolls = {name: x.reshape(self.steps, -1, *x.shape[1:]).swapaxes(0, 1) for name, x in rows.items()}
        buffer.insert(unrolls, version=self.version)  # waits while the queue is full

    def log_probabilities(self, observation: np.ndarray) -> np.ndarray:
        """Return the logarithms of the actions' probabilities. Shape ``[E, actions]``."""
        x = observation * self.scale
        *hidden, weight, bias = self.network
        for each, shift in zip(hidden[::2], hidden[1::2]):
            x = np.maximum(x @ each.T + shift, 0)
        logits = x @ weight.T + bias
        logits -= logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))


if __name__ == "__main__":
    main(Unroller)
