"""The examples as a user runs them, in short runs."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
import pytest
import yaml
from mindspore import Tensor, nn, ops
from places import ROOT
from programs import run_program
from safetensors.numpy import load_file

from mindspore_replay import PrioritizedReplayBuffer, columns_of, load, load_config


def start(script: str, *arguments: object) -> subprocess.CompletedProcess:
    """Run a script to its end; MindSpore must not warn of what its graphs unpack and leave unused."""
    result = run_program(ROOT / "examples" / script, *arguments)
    assert "eliminated by mistake" not in result.stderr
    return result


def run(script: str, *arguments: object) -> str:
    """Return the output of a script; its error output on failure."""
    result = start(script, *arguments)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def short_config(name: str, folder: Path, **changes: Any) -> Path:
    """Write a modified configuration of the examples to a file.

    Networks have one small hidden layer, and evaluations an episode in each environment: so one graph acts in both.
    """
    config = load_config(ROOT / "configs" / name)
    episodes = dict.fromkeys(("episodes", "final_episodes"), config["num_envs"])
    changes["evaluation"] = {**episodes, "solved_at": -2000, **changes.get("evaluation", {})}
    changes["learner"] = {"hidden": [16], **changes.get("learner", {})}
    for part, values in changes.items():
        config[part] = {**config[part], **values} if isinstance(values, dict) else values
    path = folder / name
    path.write_text(yaml.safe_dump(config))
    return path


def history(folder: Path) -> dict:
    return json.loads((folder / "history.json").read_text())


def buffers(folder: Path) -> dict:
    """Return the buffers in the checkpoint of a run, by their places in the learner."""
    return load(folder / "training.safetensors")


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """Return all arrays in the newest file of a run's checkpoint."""
    files = len(list(folder.glob("training.safetensors*")))
    return load_file(folder / ("training.safetensors" + (f".{files - 1}" if files > 1 else "")))


def test_the_short_trainer_learns_something():
    last = run("trainer.py", "--steps", 2000).splitlines()[-1]
    steps, mean = re.fullmatch(r"(\d+) steps: mean return ([\d.]+) of 20 greedy episodes", last).groups()
    assert 2000 <= int(steps) < 2010
    assert float(mean) > 50  # random actions reach 22


def test_targets_are_copies(script: Any):
    """With the memory of their network, they would follow it at once."""
    buffer = PrioritizedReplayBuffer(2, 4, **columns_of(gym.make("CartPole-v1")))
    trainer, dqn = script("trainer"), script("dqn")
    networks = [dqn.make_network([1, 1, 1, 1], [3], 2) for _ in range(2)]
    for learner in (
        trainer.Learner(buffer, trainer.Network(), trainer.Network()),
        dqn.Learner(*networks, buffer, {"tau": 0.1, "learning_rate": 0.1}),
    ):
        for weight, target_weight in zip(learner.weights, learner.target_weights, strict=True):
            np.testing.assert_array_equal(weight, target_weight)
            ops.assign(weight, weight + 1.0)
            np.testing.assert_allclose(weight, target_weight + 1.0)


def test_dqn_trains_and_resumes(tmp_path: Path):
    config = short_config(
        "dqn_cartpole.yaml", tmp_path, learner={"learning_starts": 300}, evaluation={"final_episodes": 10}
    )
    options = "--config", config, "--out", tmp_path
    output = run("dqn.py", "--steps", 500, *options)
    assert "mean return of 10 greedy episodes" in output
    first = history(tmp_path)
    assert len(first["episodes"]) >= 10
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    output = run("dqn.py", "--steps", 700, *options, "--resume")
    assert output.startswith("700 steps")
    second = history(tmp_path)
    assert second["episodes"][: len(first["episodes"])] == first["episodes"]
    assert 500 < second["episodes"][-1][0] <= 700


def test_dqn_with_one_environment_in_pynative_mode(tmp_path: Path):
    one = dict.fromkeys(("episodes", "final_episodes"), 1)
    config = short_config("dqn_cartpole.yaml", tmp_path, learner={"learning_starts": 100}, evaluation=one)
    options = "--mode", "pynative", "--num-envs", 1
    output = run("dqn.py", "--steps", 104, "--config", config, "--out", tmp_path, *options)
    assert output.startswith("104 steps")


def shown(*returns: float) -> Any:
    """Return an evaluation whose episodes have these returns."""
    return SimpleNamespace(collect=lambda episodes: [SimpleNamespace(total_reward=value) for value in returns])


@pytest.fixture
def make_run(script: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that makes the record of a run of dqn.py, before its first step."""
    module, before = script("run"), ms.get_context("mode")

    def make(**changes: Any) -> Any:
        config = short_config("dqn_cartpole.yaml", tmp_path, **changes)
        options = module.command_line("", "dqn_cartpole").parse_args(["--config", str(config), "--out", str(tmp_path)])
        return module.Run(options, must_solve=True)

    yield make
    ms.set_context(mode=before)


def test_a_run_stops_when_training_returns_and_an_evaluation_are_good(make_run: Callable[..., Any]):
    run, network = make_run(), nn.Dense(1, 1)
    least, wanted = run.plan["stop_at_training_return"], run.plan["stop_at_return"]
    assert least >= 400
    for returns, mean, enough in (
        ([500.0] * 19, 500.0, False),  # too few to decide
        ([least - 1.0] * 20, 500.0, False),
        ([least + 1.0] * 20, wanted - 1.0, False),
        ([], wanted + 1.0, True),
    ):
        assert run.record(run.step + 2000, returns)
        run.evaluate(shown(mean), network)
        assert run.done == enough


def test_the_result_is_the_last_network_unless_evaluations_stop_the_run(make_run: Callable[..., Any]):
    for plan, expected in (({}, 2.0), ({"stop_at_return": 400}, 1.0)):
        run, network = make_run(evaluation=plan), nn.Dense(1, 1)
        if plan:
            del run.plan["stop_at_training_return"]
        for weight, mean in ((1.0, 300.0), (2.0, 200.0)):
            network.weight.set_data(Tensor([[weight]]))
            run.record(run.step + 2000, [])
            run.evaluate(shown(mean), network)
        run.finish(shown(0.0), network)
        assert network.weight.asnumpy() == expected


def test_a_run_that_has_not_learned_ends_in_an_error(make_run: Callable[..., Any]):
    run, network = make_run(evaluation={"solved_at": 475}), nn.Dense(1, 1)
    run.record(2000, [])
    run.evaluate(shown(475.0), network)
    run.finish(shown(475.0), network)
    with pytest.raises(SystemExit, match="not solved: the mean return is below 475"):
        run.finish(shown(474.0), network)


def test_a_run_does_not_resume_with_another_configuration(make_run: Callable[..., Any]):
    state = make_run().state_dict()
    make_run(steps=7).load_state_dict(state)
    with pytest.raises(SystemExit, match="was made with another configuration"):
        make_run(gamma=0.5).load_state_dict(state)


@pytest.mark.usefixtures("make_run")  # which keeps the mode
@pytest.mark.parametrize("backend", ["native", "composite"])
def test_dqn_uses_the_backend_it_is_given(backend: str, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    dqn, made = script("dqn"), []
    monkeypatch.setattr(dqn, "create_buffer", lambda options: made.append(options["backend"]) or sys.exit())
    monkeypatch.setattr(sys, "argv", ["dqn.py", "--backend", backend, "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        dqn.main()
    assert made == [backend]


def test_a_device_that_is_not_there(tmp_path: Path):
    result = start("dqn.py", "--device", "Ascend", "--steps", 100, "--out", tmp_path)
    if result.returncode == 0:
        pytest.skip("there is such a device")
    assert result.stderr.splitlines()[-1].startswith("--device Ascend: Unsupported device target Ascend.")
    assert "Traceback" not in result.stderr


def test_dqn_prioritized_writes_errors_back(tmp_path: Path):
    options = "--config", short_config("dqn_prioritized_cartpole.yaml", tmp_path), "--out", tmp_path
    run("dqn_prioritized.py", "--steps", 1300, *options)
    first = buffers(tmp_path)["learner.buffer"]
    weights = first.weights.asnumpy()[:1300]
    assert (weights > 0).all()
    assert len(np.unique(weights)) > 1000  # the learner wrote its errors back as priorities
    assert float(first.beta) == pytest.approx(0.4 + 0.6 * 75 / 10_000)


def test_prioritized_replay_needs_ever_fewer_updates(tmp_path: Path):
    output = run("blind_cliffwalk.py", "--states", 8, "--seeds", 3, "--out", tmp_path / "figure.png")
    assert "doublings of the median" in output
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "figure.json").read_text())
    assert result["states"] == [2, 3, 4, 5, 6, 7, 8]
    uniform = np.median(result["updates"]["uniform"], 1)
    for method, least in [("prioritized", 5), ("prioritized, current", 8)]:
        ratio = uniform / np.median(result["updates"][method], 1)
        assert (ratio > 1.3).all()
        assert ratio[-1] > max(least, 2 * ratio[0])
    growth = result["growth"]
    assert growth["oracle"] < growth["prioritized, current"] < growth["prioritized"] < growth["uniform"]


def test_msrl_style_trainer():
    output = run("msrl_style_dqn.py", "--episodes", 3)
    assert "mean return of the first 20 episodes" in output


def test_dqn_atari_samples_what_the_agent_saw(tmp_path: Path):
    """Some episodes are truncated and some terminate, and the ring wraps; a resumed run goes on."""
    config = load_config(ROOT / "configs" / "dqn_pong.yaml")
    config["environment_options"]["max_num_frames_per_episode"] = 4 * 910
    config["num_envs"], config["replay_buffer"]["capacity"] = 4, 3000
    config["learner"] |= {"learning_starts": 3900, "train_every": 10, "target_every": 5}
    config["evaluation"] |= {"every": 2000, "episodes": 1}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    options = "--config", tmp_path / "config.yaml", "--out", tmp_path
    assert "samples hold what the agent saw" in run("dqn_atari.py", "--steps", 4000, "--check", *options)
    result = history(tmp_path)
    assert result["check"]["truncated"] > 0
    assert result["check"]["terminated"] > 0
    assert result["learned"] == 10
    assert result["memory"]["with stacks in rows"] > 7.7 * result["memory"]["buffer"]
    for picture in ("frames.png", "learning_curve.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert run("dqn_atari.py", "--steps", 4200, "--resume", *options).startswith("4200 steps")
    assert history(tmp_path)["learned"] == 30


def test_r2d2_learns_from_sequences_and_refreshes_their_states(tmp_path: Path):
    sequences = {"sequence_length": 6, "burn_in": 6}
    learner = {"hidden": 64, "learning_starts": 500}
    config = short_config("r2d2_cartpole.yaml", tmp_path, replay_buffer=sequences, learner=learner)
    states = []
    for option in ("--refresh", "--no-refresh"):
        folder = tmp_path / f"r2d2{option}_seed0"
        output = run("r2d2.py", "--steps", 660, "--config", config, "--out", folder, option)
        assert output.startswith("660 steps")
        saved = buffers(folder)["learner.buffer"]
        starts = saved.weights.asnumpy()[:660] > 0
        assert 0 < starts.sum() < 660 / 4  # every sixth step of an episode, and no filler row
        assert len(np.unique(saved.priorities.asnumpy()[:660][starts])) > 20
        assert float(saved.beta) > 0.4
        rows = saved.state_dict()
        states.append({key: rows[f"column.{key}"][:500] for key in ("observation", "h", "c")})
    # Both runs stored the same rows until they learned.
    refreshed, as_stored = states
    np.testing.assert_array_equal(refreshed["observation"], as_stored["observation"])
    changed = (refreshed["h"] != as_stored["h"]).any(1)
    assert changed.sum() > 50
    assert not (changed & ~starts[:500]).any()
    np.testing.assert_array_equal(changed, (refreshed["c"] != as_stored["c"]).any(1))
    picture = tmp_path / "figure.png"
    run("plot_curves.py", *sorted(tmp_path.glob("r2d2-*")), "--together", "--out", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_hindsight_learns_what_plain_replay_does_not(tmp_path: Path):
    options = "--bits 7 --max-updates 230 --evaluate-every 230"
    output = run("her_bitflip.py", *options.split(), "--out", tmp_path / "figure.png")
    assert "success rate" in output
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    runs = json.loads((tmp_path / "figure.json").read_text())["runs"]
    rates = {kind: run["success"][-1] for kind, (run,) in runs.items()}
    assert rates["with hindsight"] > 0.9
    assert rates["without"] < 0.1


def test_sac_trains_and_fails_if_it_has_not_learned(tmp_path: Path):
    config = short_config("sac_pendulum.yaml", tmp_path, evaluation={"solved_at": -200})
    options = "--config", config, "--out", tmp_path
    first = start("sac_pendulum.py", "--steps", 560, *options)
    assert first.returncode == 1, first.stderr[-4000:]
    assert "not solved: the mean return is below -200" in first.stderr
    assert first.stdout.startswith("560 steps, 2 episodes")
    assert arrays(tmp_path)["learner.log_alpha"] != 0  # the temperature is learned
    saved = buffers(tmp_path)["learner.buffer"].state_dict()
    actions = saved["column.action"][:560]
    assert (np.abs(actions) <= 1).all()
    assert len(np.unique(actions)) > 500
    assert not saved["column.terminated"].any()  # a time limit is no termination


def test_ppg_uses_rows_up(tmp_path: Path):
    """The 8 rows of the first rollout are too few for a sample of the value buffer."""
    learner, two = {"auxiliary_every": 2, "auxiliary_steps": 5}, dict.fromkeys(("episodes", "final_episodes"), 2)
    config = short_config("ppg_cartpole.yaml", tmp_path, num_envs=2, learner=learner, evaluation=two)
    options = "--config", config, "--out", tmp_path
    assert run("ppg.py", "--steps", 250, *options).startswith("256 steps")
    saved = buffers(tmp_path)
    counts = saved["learner.buffer"].state_dict()["use_counts"][:32]  # of 4 rollouts; the complement for a removed row
    uses = np.where(counts < 0, ~counts, counts)
    assert uses.max() == 10
    assert (uses < 10).sum() < 8  # no sample is left
    np.testing.assert_array_equal(saved["learner.buffer"].state_dict()["weights"][:32] == 0, uses == 10)
    # Samples of 16 rows: one for each sample of 8 of the other buffer, and 5 in each of two auxiliary phases.
    assert saved["learner.value_buffer"].state_dict()["use_counts"][:32].sum() == 16 * (uses.sum() / 8 + 2 * 5)


@pytest.mark.parametrize("config", ["ppo_cartpole.yaml", "ppo_pendulum.yaml"])
def test_ppo_learns_in_epochs(config: str, tmp_path: Path):
    short = short_config(config, tmp_path, rollout=16, learner={"epochs": 3}, replay_buffer={"sample_size": 32})
    assert run("ppo.py", "--steps", 256, "--config", short, "--out", tmp_path).startswith("256 steps")
    saved = buffers(tmp_path)["learner.buffer"]
    assert saved.capacity == saved.count == 128
    assert saved.state_dict()["epoch"][4] == 3 * 2
    # Each epoch took all four batches, and each batch 32 numbers of the random sequence.
    assert saved.state_dict()["random_state"][1] == 3 * 2 * 128


def test_sqil_imitates_an_expert_and_resumes(script: Any, tmp_path: Path):
    holder = nn.Cell()
    holder.network = script("dqn").make_network([1, 1, 10, 1], [64, 64], 2)
    ms.save_checkpoint(holder.network, str(tmp_path / "best.ckpt"))
    expert = {"folder": str(tmp_path), "least_return": 0}
    config = short_config("sqil_cartpole.yaml", tmp_path, expert=expert, replay_buffer={"sample_size": 16})
    options = "--config", config, "--out", tmp_path / "run"
    assert "10 episodes of the expert" in run("sqil.py", "--steps", 300, *options)
    agent, expert = buffers(tmp_path / "run")["learner.buffer"].sources
    assert agent.size() == 300
    assert "400 steps" in run("sqil.py", "--steps", 400, *options, "--resume")
    agent, same = buffers(tmp_path / "run")["learner.buffer"].sources
    assert agent.size() == 400
    for column in ("column.observation", "column.action", "count"):
        np.testing.assert_array_equal(same.state_dict()[column], expert.state_dict()[column])
