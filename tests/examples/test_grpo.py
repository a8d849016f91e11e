"""The example of a language model: its two policies, what it learns from, and a run that is killed and resumed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import flat
from mindspore import Tensor
from places import ROOT

from mindspore_replay import ReplayQueue

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

#: The example with few imitations, and evaluations and checkpoints that follow one another soon.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import grpo
grpo.IMITATIONS, grpo.EVERY = 3, 4
grpo.main()
"""


@pytest.fixture
def grpo(script: Any) -> Any:
    return script("grpo")


def padded(rows: list[np.ndarray]) -> Tensor:
    return Tensor(np.stack([np.pad(row, (0, 12 - len(row))) for row in rows]))


@pytest.mark.parametrize("is_random", [False, True])
def test_answers_have_the_probabilities_that_the_graph_computes(grpo: Any, is_random: bool):
    rng = np.random.default_rng(0)
    policy = grpo.Policy(rng)
    prompt = grpo.prompts(20, 3, rng)
    weights = [weight.asnumpy() for weight in policy.trainable_params()]
    tokens, log_probs = grpo.answer(weights, prompt, rng if is_random else None)
    computed = policy(padded(tokens)).asnumpy()
    assert len({len(row) for row in tokens}) > is_random
    for asked, row, logs, expected in zip(prompt, tokens, log_probs, computed):
        assert row.shape == logs.shape
        assert (row[:4] == asked).all()
        assert not logs[:4].any()
        assert grpo.END not in row[:-1]
        np.testing.assert_allclose(logs[4:], expected[3 : len(row) - 1], rtol=1e-4)
    assert any(row[-1] != grpo.END or len(row) < 12 for row in tokens)


@pytest.mark.parametrize(
    ("tokens", "right"),
    [
        ([3, 1, 10, 1, 3, 11], True),
        ([3, 1, 10, 3, 1, 11], False),
        ([3, 1, 10, 1, 3], False),
        ([3, 1, 10, 1, 3, 3, 11], False),
        ([5, 5, 2, 10, 2, 5, 5, 11], True),
        ([5, 5, 2, 10, 2, 5, 11], False),
    ],
)
def test_right_answers(grpo: Any, tokens: list[int], right: bool):
    assert grpo.is_right(np.array(tokens, np.int32)) is right


def group_of(grpo: Any, policy: Any, rewards: list[float]) -> tuple[Any, np.ndarray, Tensor, np.ndarray]:
    """Return a learner with a group of answers with these rewards; lengths and tokens; and their log-probabilities."""
    rng = np.random.default_rng(1)
    weights = [weight.asnumpy() for weight in policy.trainable_params()]
    tokens, logs = grpo.answer(weights, grpo.prompts(1, 2, rng).repeat(grpo.GROUP, 0), rng)
    queue = ReplayQueue(
        grpo.GROUP,
        9,
        **flat(
            shapes=[(None,), (None,), (), ()],
            types=["int32", "float32", "int32", "float32"],
            names=["tokens", "log_probs", "begin", "reward"],
            max_length=grpo.LONGEST,
            items=200,
            share_lengths=[("tokens", "log_probs")],
        ),
    )
    queue.insert({"tokens": tokens, "log_probs": logs, "begin": [3] * grpo.GROUP, "reward": rewards})
    lengths = np.array([len(row) for row in tokens])
    return grpo.Learner(policy, queue), lengths, padded(tokens), np.array([row.sum() for row in logs])


def test_answers_better_than_their_group_become_more_probable(grpo: Any):
    policy = grpo.Policy(np.random.default_rng(0))
    rewards = [1.0, *[0.0] * (grpo.GROUP - 1)]
    learner, lengths, tokens, before = group_of(grpo, policy, rewards)
    mean, lag = learner()
    assert float(mean) == pytest.approx(1 / grpo.GROUP)
    assert lag.asnumpy().tolist() == [0] * grpo.GROUP
    computed = policy(tokens).asnumpy()
    after = np.array([computed[i, 2 : n - 1].sum() for i, n in enumerate(lengths)])
    assert after[0] > before[0]
    assert (after[1:] - before[1:]).mean() < 0


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_nothing_is_learned_from_a_group_of_equals(grpo: Any, reward: float):
    policy = grpo.Policy(np.random.default_rng(0))
    learner, *_ = group_of(grpo, policy, [reward] * grpo.GROUP)
    before = [weight.asnumpy().copy() for weight in policy.trainable_params()]
    learner()
    for weight, old in zip(policy.trainable_params(), before, strict=True):
        np.testing.assert_allclose(weight.asnumpy(), old, atol=1e-6)


def test_a_run_goes_on_after_a_kill(tmp_path: Path):
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "examples"), "--out", str(tmp_path), "--seed", "3"]
    with open(tmp_path / "printed", "w+") as printed:
        learner = subprocess.Popen([*command, "--steps", "100000"], cwd=tmp_path, stdout=printed)
        deadline = time.monotonic() + 300
        while "8 updates: " not in (tmp_path / "printed").read_text():
            assert time.monotonic() < deadline
            assert learner.poll() is None
            time.sleep(0.1)
        children = Path(f"/proc/{learner.pid}/task/{learner.pid}/children").read_text().split()
        workers = [child for child in children if b"grpo_workers" in Path(f"/proc/{child}/cmdline").read_bytes()]
        assert len(workers) == 3
        learner.send_signal(signal.SIGKILL)
        learner.wait()
    steps = 4 + max(
        int(line.split()[0]) for line in (tmp_path / "printed").read_text().splitlines() if "updates" in line
    )
    ended = subprocess.run(
        [*command, "--steps", str(steps), "--resume"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert "not solved: below 0.95" in ended.stderr, ended.stderr[-4000:]  # far too short to learn
    history = json.loads((tmp_path / "history.json").read_text())
    assert [step for step, _ in history["evaluations"]] == list(range(0, steps + 1, 4))
    assert [step for step, _ in history["episodes"]] == list(range(1, steps + 1))
    assert all(0 <= lag <= 8 for _, lag in history["lags"])
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # those of the killed learner have ended too
        assert time.monotonic() < deadline
        time.sleep(0.1)
