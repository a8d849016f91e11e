"""The example of actors that insert unrolls into a queue, and of V-trace."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from mindspore import Tensor
from places import ROOT
from programs import run_program

from mindspore_replay import load_config

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")


def test_actors_fill_the_queue(tmp_path: Path):
    config = load_config(ROOT / "configs" / "impala_cartpole.yaml")
    config["evaluation"] |= {"every": 512, "episodes": 10, "final_episodes": 10, "solved_at": 0}
    config["learner"]["hidden"] = [16]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    options = ["--actors", 2, "--steps", 2048, "--config", tmp_path / "config.yaml", "--out", tmp_path]
    done = run_program(ROOT / "examples" / "impala.py", *options)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "mean return of 10 greedy episodes" in done.stdout
    history = json.loads((tmp_path / "history.json").read_text())
    assert len(history["episodes"]) >= 10
    lags = [lag for _, lag in history["lags"]]
    # One evaluation is certain: actors may insert all the rest while the learner waits for a core. Fewer than 128
    # unrolls of 16 steps are 7 batches; the one that ends the run is the eighth.
    assert lags
    assert 0 <= min(lags) <= max(lags) <= 7
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def impala(script: Any) -> Any:
    return script("impala")


def v_trace(gamma: float, weight: Any, value: Any, next_value: Any, reward: Any, terminated: Any, done: Any) -> Any:
    """Return targets and advantages step by step, after the definition, for one unroll."""
    steps = len(weight)
    future = np.where(terminated, 0, next_value)
    rewards = (1 - gamma) * reward
    wanted = np.zeros(steps)
    for s in range(steps):
        wanted[s], product = value[s], 1.0
        for t in range(s, steps):
            wanted[s] += product * weight[t] * (rewards[t] + gamma * future[t] - value[t])
            if done[t]:
                break
            product *= gamma * weight[t]
    after = [future[t] if done[t] or t == steps - 1 else wanted[t + 1] for t in range(steps)]
    return wanted, weight * (rewards + gamma * np.array(after) - value)


def test_v_trace_against_its_definition(impala: Any):
    rng = np.random.default_rng(0)
    shape = 5, 7
    weight, value, next_value, reward = (rng.random(shape, np.float32) for _ in range(4))
    done = rng.random(shape) < 0.3
    terminated = done & (rng.random(shape) < 0.5)
    given = weight, value, next_value, reward, terminated, done
    got = impala.Learner.v_trace(SimpleNamespace(gamma=0.9), *map(Tensor, given))
    for i in range(len(weight)):
        for mine, expected in zip(got, v_trace(0.9, *(each[i] for each in given))):
            np.testing.assert_allclose(mine.asnumpy()[i], expected, rtol=1e-4, atol=1e-5)
    never = [v_trace(0.9, *(each[i] for each in given[:-1]), done[i] & False)[0] for i in range(len(weight))]
    assert np.abs(got[0].asnumpy() - never).max() > 0.01  # an unroll that goes on over the end of an episode
