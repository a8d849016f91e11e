"""The words of algorithms.py for what a training of MindSpore RL printed."""

from collections.abc import Callable
from types import ModuleType

import pytest

pytestmark = pytest.mark.cpu_only("words for output, which no device changes")

EVALUATIONS = "Evaluate for episode 10 total rewards is 9.500\nEvaluate for episode 20 total rewards is {}\n"
EPISODES = "Episode 1: loss is 0.5, rewards is -317.6\nEpisode 2: loss is 0.4, rewards is -245.3\n"
TRACEBACK = "Traceback (most recent call last):\n"
UNSUPPORTED = TRACEBACK + "RuntimeError: \n-----\n- Kernel select failed:\n-----\nUnsupported op [X] on CPU\n"
WORDS = [
    ("dqn", EVALUATIONS.format("200.000"), None, "learns: solved after 20 episodes, then 200.0 or more"),
    ("dqn", EVALUATIONS.format("194.000"), None, "runs: best evaluation 194.0 of 2"),
    ("ppo", EPISODES, 0, "runs: 2 episodes in 7 s, returns -317.6 to -245.3"),
    ("ppo", EPISODES, None, "runs: 2 episodes in 7 s, the limit, returns -317.6 to -245.3"),
    ("a2c", "Episode 3:  4%|  running_reward=21.5\r", 0, "runs: mean return 21.5 of the last 100 of 4 episodes in 7 s"),
    ("maddpg", "training end", 0, "runs to its end in 7 s, and prints no episode"),
    ("dreamer", "", None, "runs in 7 s, the limit; prints no episode"),
    (
        "coma",
        EPISODES + "ModuleNotFoundError: No module named 'smac'\n",
        1,
        "`ModuleNotFoundError: No module named 'smac'`",
    ),
    ("dreamer", UNSUPPORTED, None, "`RuntimeError: Unsupported op [X] on CPU`"),
    ("dqn", EVALUATIONS.format("200.000") + "RuntimeError: a warning\n", None, "learns: solved after 20 episodes"),
    ("coma", "", 3, "ended with status 3, without an error's name"),
]


@pytest.mark.parametrize(("name", "printed", "ended", "words"), WORDS)
def test_words(script: Callable[[str], ModuleType], name: str, printed: str, ended: int | None, words: str) -> None:
    found = script("algorithms").result_of(name, printed, ended, 7.0)
    assert found.startswith(words) if name == "dqn" else found == words
