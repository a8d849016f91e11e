"""Counts the updates that a Q-learner needs with uniform and with prioritized replay: the Blind Cliffwalk.

    python examples/blind_cliffwalk.py                     # n = 2 to 14, a few minutes on two CPU cores
    python examples/blind_cliffwalk.py --states 8 --seeds 3

In each of n states one action leads on and the other ends the episode; only the last state leads to a reward. Each of
the 2^n sequences of actions is played once, so the memory holds 2^(n+1) - 2 transitions, one of them with the reward. A
table of Q-values learns from one transition at a time until it is right. The draws are

- uniform: from a `ReplayBuffer`.
- prioritized: from a `PrioritizedReplayBuffer`, in proportion to the error that a transition had at its last draw.
  Those not yet drawn have the largest priority, so nearly all are drawn before the rewarded one stands out. For
  large n this leaves about one update per transition, many times fewer than uniform draws need.
- prioritized, current: a transition starts with its error, and whenever a Q-value changes, all transitions whose errors
  depend on it get their new priority, drawn or not. The number of updates then doubles about half as often as the
  memory does: exponentially fewer.
- oracle: the transition that brings the table nearest to the true values. It knows them, and needs no buffer.

Errors are the temporal difference errors of Q-learning, and draws are in proportion to them (alpha = 1). All else is as
in the paper: discount 1 - 1/n, step size 1/4, initial Q-values from a normal distribution with deviation 0.1, done when
their mean squared error is below 1e-3. Importance weights are omitted: for batches of one row they are always 1.

Reference:
    Schaul et al. 2016, Prioritized Experience Replay, https://arxiv.org/abs/1511.05952, sections 3.1 and B.1, figure 1.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from drawing import pyplot
from run import add_device_option, use_device

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

STEP_SIZE, SOLVED_AT, SPREAD = 0.25, 1e-3, 0.1
#: Maximum rows of one uniform sample.
UNIFORM_ROWS = 4096
SCHEMA: dict[str, Any] = {
    "shapes": [()] * 5,
    "types": [ms.int32, ms.int32, ms.float32, ms.int32, ms.bool_],
    "names": ["state", "action", "reward", "next_state", "terminated"],
}


def right_action(state: int) -> int:
    """Return the action that leads on. It alternates, as in the paper."""
    return state % 2


def all_episodes(n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the transitions of all sequences of actions, shuffled: columns as in `SCHEMA`, ``2^(n+1) - 2`` rows."""
    rows = []
    for actions in itertools.product(range(2), repeat=n):
        for state, action in enumerate(actions):
            right, last = action == right_action(state), state == n - 1
            rows.append((state, action, float(right and last), min(state + 1, n - 1), last or not right))
            if not right:
                break
    columns = zip(*(rows[i] for i in rng.permutation(len(rows))))
    return [np.array(column, dtype) for column, dtype in zip(columns, ["int32", "int32", "float32", "int32", "bool"])]


class QTable:
    """Q-values of n states and two actions, and their distance from the true ones. Counts its updates."""

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self.n = n
        self.gamma = 1 - 1 / n
        self.values = rng.normal(0, SPREAD, (n, 2)).tolist()
        self.true_values = [[0.0, 0.0] for _ in range(n)]
        for state in range(n):
            self.true_values[state][right_action(state)] = self.gamma ** (n - 1 - state)
        self.squared_error = float(np.square(np.subtract(self.values, self.true_values)).sum())
        self.updates = 0

    def solved(self) -> bool:
        """Return True if the mean squared error of the values is small enough."""
        return self.squared_error < SOLVED_AT * 2 * self.n

    def td_error(self, state: int, action: int) -> float:
        """Return the temporal difference error of this action in this state, whose outcome is always the same."""
        wanted = 0.0
        if action == right_action(state):
            wanted = 1.0 if state == self.n - 1 else self.gamma * max(self.values[state + 1])
        return wanted - self.values[state][action]

    def learn(self, state: int, action: int, reward: float, next_state: int, terminated: bool) -> float:
        """Do one update of Q-learning; return the temporal difference error before it."""
        wanted = reward if terminated else reward + self.gamma * max(self.values[next_state])
        error = wanted - self.values[state][action]
        self.move(state, action, STEP_SIZE * error)
        return error

    def move(self, state: int, action: int, step: float) -> None:
        """Add a step to a value."""
        self.squared_error += self.gain(state, action, step)
        self.values[state][action] += step
        self.updates += 1

    def gain(self, state: int, action: int, step: float) -> float:
        """Return the change of the squared error by such a step."""
        return step * (step + 2 * (self.values[state][action] - self.true_values[state][action]))


def uniform(table: QTable, memory: list[np.ndarray], seed: int) -> None:
    """Learn from uniform draws. They do not depend on the values learned, so many are taken at once."""
    rows = len(memory[0])
    buffer = ReplayBuffer(sample_size=min(rows, UNIFORM_ROWS), capacity=rows, seed=seed, **SCHEMA).insert(memory)
    while not table.solved():
        for row in zip(*(column.tolist() for column in buffer.sample())):
            table.learn(*row)
            if table.solved():
                break


def prioritized(table: QTable, memory: list[np.ndarray], seed: int) -> None:
    """Learn from draws in proportion to the error that each transition had at its last draw."""
    buffer = PrioritizedReplayBuffer(sample_size=1, capacity=len(memory[0]), alpha=1.0, seed=seed, **SCHEMA).insert(
        memory
    )
    while not table.solved():
        batch = buffer.sample(as_dict=True)
        error = table.learn(*(batch[name].item() for name in SCHEMA["names"]))
        buffer.update_priorities(batch["indices"], abs(error))


def prioritized_current(table: QTable, memory: list[np.ndarray], seed: int) -> None:
    """Learn from draws in proportion to the current error of each transition."""
    pairs = list(itertools.product(range(table.n), range(2)))
    handles = {pair: np.flatnonzero((memory[0] == pair[0]) & (memory[1] == pair[1])) for pair in pairs}
    errors = np.zeros(len(memory[0]), np.float32)
    for pair in pairs:
        errors[handles[pair]] = abs(table.td_error(*pair))
    buffer = PrioritizedReplayBuffer(sample_size=1, capacity=len(errors), alpha=1.0, seed=seed, **SCHEMA)
    buffer.insert(memory, priority=errors)  # the rows of an empty buffer have the handles 0, 1, 2 ...
    while not table.solved():
        batch = buffer.sample(as_dict=True)
        state, action, *rest = (batch[name].item() for name in SCHEMA["names"])
        table.learn(state, action, *rest)
        changed = [(state, action)] + ([(state - 1, right_action(state - 1))] if state else [])
        for pair in changed:
            buffer.update_priorities(handles[pair], abs(table.td_error(*pair)))


def oracle(table: QTable, memory: list[np.ndarray], seed: int) -> None:
    """Learn from the transition that brings the table nearest to the true values. All are in the memory."""
    pairs = list(itertools.product(range(table.n), range(2)))
    while not table.solved():
        steps = {pair: STEP_SIZE * table.td_error(*pair) for pair in pairs}
        state, action = min(pairs, key=lambda pair: table.gain(pair[0], pair[1], steps[pair]))
        table.move(state, action, steps[state, action])


METHODS: dict[str, Callable[[QTable, list[np.ndarray], int], None]] = {
    "uniform": uniform,
    "prioritized": prioritized,
    "prioritized, current": prioritized_current,
    "oracle": oracle,
}


def memory_size(n: int) -> int:
    """Return the number of transitions in the memory."""
    return 2 ** (n + 1) - 2


def updates_needed(method: str, n: int, seed: int) -> int:
    """Return the updates of one run. With one seed all methods begin with the same table and memory."""
    rng = np.random.default_rng([n, seed])
    table = QTable(n, rng)
    METHODS[method](table, all_episodes(n, rng), seed)
    return table.updates


def growth(states: list[int], medians: list[float]) -> float:
    """Return the doublings of the updates per additional state: the slope over the larger half of the sizes."""
    half = len(states) // 2
    return float(np.polyfit(states[half:], np.log2(medians[half:]), 1)[0])


def run_all(states: list[int], seeds: int) -> dict[str, list[list[int]]]:
    """Return the updates of each method, for each n and seed. Prints a line of medians for each n."""
    updates: dict[str, list[list[int]]] = {method: [] for method in METHODS}
    print("median updates, and how many times fewer than uniform")
    print(f"  n{'transitions':>12}{'uniform':>9}" + "".join(f"{method:>22}" for method in list(METHODS)[1:]))
    for n in states:
        for method in METHODS:
            updates[method].append([updates_needed(method, n, seed) for seed in range(seeds)])
        first, *others = (float(np.median(runs[-1])) for runs in updates.values())
        cells = (f"{median:13.0f} ({first / median:6.1f})" for median in others)
        print(f"{n:3}{memory_size(n):12}{first:9.0f}" + "".join(cells), flush=True)
    return updates


def plot(states: list[int], updates: dict[str, list[list[int]]], path: Path) -> None:
    """Draw medians, and the range of all runs, against the size of the memory. Both axes are logarithmic."""
    plt = pyplot()
    sizes = [memory_size(n) for n in states]
    figure, axes = plt.subplots(layout="constrained")
    axes.loglog(sizes, sizes, ":", color="grey")
    axes.annotate("  one update for each transition", (sizes[1], sizes[1]), va="top", color="grey")
    for i, (method, runs) in enumerate(updates.items()):
        medians = np.median(runs, 1)
        axes.fill_between(sizes, np.min(runs, 1), np.max(runs, 1), color=f"C{i}", alpha=0.2, linewidth=0)
        axes.loglog(sizes, medians, "o-", color=f"C{i}", markersize=4)
        axes.annotate(f" {method}", (sizes[-1], medians[-1]), va="bottom", color=f"C{i}", annotation_clip=False)
    axes.set(xlabel="transitions in the memory", ylabel="updates until learned", title="Blind Cliffwalk")
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    begin = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=14, help="the largest n; the smallest is 2")
    parser.add_argument("--seeds", type=int, default=10, help="runs for each n and method")
    add_device_option(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/blind_cliffwalk.png"), help="figure; a .json goes beside"
    )
    arguments = parser.parse_args()
    if arguments.states < 3 or arguments.seeds < 1:
        parser.error("--states must be at least 3 and --seeds at least 1")
    use_device(arguments.device)
    states = list(range(2, arguments.states + 1))
    updates = run_all(states, arguments.seeds)
    growths = {method: growth(states, np.median(runs, 1).tolist()) for method, runs in updates.items()}
    print(
        "doublings of the median with each further state: "
        + ", ".join(f"{key} {value:.2f}" for key, value in growths.items())
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    plot(states, updates, arguments.out)
    result = {"states": states, "updates": updates, "growth": growths}
    arguments.out.with_suffix(".json").write_text(json.dumps(result))
    print(f"figure: {arguments.out}, {time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
