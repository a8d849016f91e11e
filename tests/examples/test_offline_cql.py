"""The offline example, in short, and its loss."""

import json
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import yaml
from mindspore import Tensor, nn
from places import ROOT
from programs import run_program

from mindspore_replay import ReplayBuffer, load_config


def test_it_collects_loads_and_compares(tmp_path: Path):
    """Far too short to learn, which is an error at the end."""
    config = load_config(ROOT / "configs" / "cql_cartpole.yaml")
    config["dataset"]["episodes"] = 9
    config["evaluation"].update(every=20, episodes=5, final_episodes=5)
    config["learner"]["hidden"] = [16]
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(config))
    options = "--config", tmp_path / "short.yaml", "--updates", 40, "--seed", 3, "--out", tmp_path / "run"
    result = run_program(ROOT / "examples" / "offline_cql.py", *options)
    assert result.returncode == 1, result.stderr[-4000:]
    assert "eliminated by mistake" not in result.stderr  # not every column is used
    assert "not solved: CQL's mean return is below 475, seeds [3]" in result.stderr
    assert result.stdout.startswith("dataset: 9 episodes, ")
    folder = tmp_path / "run_seed3"
    history = json.loads((folder / "history.json").read_text())
    assert len(history["dataset"]) == 9
    assert [update for update, _ in history["evaluations"]["CQL"]] == [20, 40]
    assert history["final"].keys() == {"CQL", "DQN"}
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "minari" / "cartpole" / "mixed-v0").is_dir()
    one, other = (ms.load_checkpoint(str(folder / f"{name}.ckpt")) for name in ("CQL", "DQN"))
    assert one.keys() == other.keys()
    assert any((one[name].asnumpy() != other[name].asnumpy()).any() for name in one)


class Values(nn.Cell):
    """Values that are learned directly, for any observation."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.values = ms.Parameter(Tensor(values, ms.float32), name="values")

    def construct(self, observation: Tensor) -> Tensor:
        return self.values + 0.0 * observation


def test_the_loss_is_that_of_a_dqn_and_the_conservative_term(script: Any):
    offline = script("offline_cql").OfflineLearner
    values = np.array([[0.0, 1.0], [2.0, -1.0]], np.float32)
    action, wanted = Tensor([1, 1], ms.int32), Tensor([1.5, 2.0], ms.float32)
    buffer = ReplayBuffer(2, 4, [()], ["float32"])
    gap = np.mean(np.log(np.exp(values).sum(1)) - values[:, 1])
    huber = (0.5 * 0.5**2 + (3 - 0.5)) / 2
    for weight in (0.0, 0.7):
        settings = {"tau": 0.1, "learning_rate": 0.01}
        learner = offline(Values(values), Values(values), buffer, settings, conservatism=weight)
        loss = learner.loss({"observation": Tensor(np.zeros((2, 2)), ms.float32), "action": action}, wanted)
        assert float(loss) == pytest.approx(huber + weight * gap, rel=1e-5)
