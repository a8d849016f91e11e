"""The examples as a user runs them, in short runs."""

import json
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
import pytest
import yaml
from places import ROOT
from programs import run_program
from safetensors.numpy import load_file

from mindspore_replay import load, load_config


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


@pytest.fixture
def dqn(script: Any) -> ModuleType:
    return script("dqn")


def dqn_run(dqn: ModuleType, folder: Path, **changes: object) -> Any:
    """Return a run of dqn.py with two environments, before its first step."""
    short = {"evaluation": {"episodes": 2, "final_episodes": 2}, "learner": {"hidden": [64, 64]}}
    config = load_config(short_config("dqn_cartpole.yaml", folder, **short))
    return dqn.NStepRun({**config, "num_envs": 2, **changes}, 0, "auto", folder)


def test_dqn_uses_the_backend_it_is_given(dqn: ModuleType, tmp_path: Path):
    config = load_config(short_config("dqn_cartpole.yaml", tmp_path))
    for backend in ("native", "composite"):
        assert dqn.NStepRun(config, 0, backend, tmp_path).learner.buffer.backend == backend


def test_dqn_stops_by_training_returns_whatever_evaluations_say(dqn: ModuleType, tmp_path: Path):
    run = dqn_run(dqn, tmp_path)
    least = run.config["evaluation"]["stop_at_training_return"]
    assert least >= 400
    run.history["episodes"] = [(step, 500.0) for step in range(19)]
    assert not run.enough(500.0)  # too few to decide
    run.history["episodes"] = [(0, 500.0), *[(step, least - 1.0) for step in range(1, 21)]]
    assert not run.enough(500.0)
    run.history["episodes"] += [(step, least + 1.0) for step in range(21, 41)]
    assert run.enough(0.0)


def test_dqn_ends_with_its_last_network_not_the_best(dqn: ModuleType, tmp_path: Path):
    run = dqn_run(dqn, tmp_path)
    ms.save_checkpoint(run.learner.target, str(tmp_path / "best.ckpt"))
    run.best = np.inf  # of an earlier evaluation, which no other beats
    run.learner.weights[0].set_data(run.learner.weights[0] + 1.0)
    last = run.learner.weights[0].asnumpy().copy()
    run.finish()
    np.testing.assert_array_equal(run.learner.weights[0].asnumpy(), last)


def test_dqn_learns_returns_that_go_on_after_a_truncation(dqn: ModuleType, tmp_path: Path):
    """Episodes of five steps, in which the pole cannot fall; a resumed run breaks one off after its second step."""
    name, before, steps = "CartPoleOfFiveSteps-v1", 42, 82
    if name not in gym.registry:
        gym.register(name, entry_point="gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5)
    run = dqn_run(dqn, tmp_path, environment=name)
    played = []
    for step in range(steps):
        if step == before:
            run.save()
            run = dqn_run(dqn, tmp_path, environment=name)
            run.load()
        played.append(run.advance(np.zeros(2)))
        run.store(played[-1])
    place = {row.tobytes(): (step, env) for step in range(steps) for env, row in enumerate(played[step][0])}
    batches = [[x.asnumpy() for x in run.learner.buffer.sample()] for _ in range(40)]
    observation, _, reward, following, terminated, discount = (np.concatenate(column) for column in zip(*batches))
    assert {row.tobytes() for row in observation} == place.keys()
    for i, row in enumerate(observation):
        step, env = place[row.tobytes()]
        left = min(5 - step % 5, before - step) if step < before else 5 - (step - before) % 5
        length = min(3, left)
        assert reward[i] == pytest.approx(sum(0.99**k for k in range(length)))
        assert discount[i] == pytest.approx(0.99**length)
        np.testing.assert_array_equal(following[i], played[step + length - 1][3][env])
    assert not terminated.any()


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
    assert float(first.beta) == pytest.approx(0.4 + 0.6 * 300 / 10_000)


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
    assert result["memory"]["with stacks in rows"] > 7.8 * result["memory"]["buffer"]
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
    # Samples of 16 rows: one for each sample of 8 of the other buffer, and 5 in the auxiliary phase before the third.
    assert saved["learner.value_buffer"].state_dict()["use_counts"][:32].sum() == 16 * (uses.sum() / 8 + 5)


@pytest.mark.parametrize("config", ["ppo_cartpole.yaml", "ppo_pendulum.yaml"])
def test_ppo_learns_in_epochs_and_resumes(config: str, tmp_path: Path):
    short = short_config(config, tmp_path, rollout=16, learner={"epochs": 3}, replay_buffer={"sample_size": 32})
    options = "--config", short, "--out", tmp_path
    assert run("ppo.py", "--steps", 256, *options).startswith("256 steps")
    rollouts = 2
    if config == "ppo_cartpole.yaml":
        assert run("ppo.py", "--steps", 384, *options, "--resume").startswith("384 steps")
        rollouts = 3
    saved = buffers(tmp_path)["learner.buffer"]
    assert saved.capacity == saved.count == 128
    assert saved.state_dict()["epoch"][4] == 3 * rollouts
    # Each epoch took all four batches, and each batch 32 numbers of the random sequence.
    assert saved.state_dict()["random_state"][1] == 3 * rollouts * 128


def test_sqil_imitates_an_expert_and_resumes(dqn: ModuleType, tmp_path: Path):
    ms.save_checkpoint(dqn_run(dqn, tmp_path).learner.network, str(tmp_path / "best.ckpt"))
    expert = {"folder": str(tmp_path), "least_return": 0}
    config = short_config("sqil_cartpole.yaml", tmp_path, expert=expert, replay_buffer={"sample_size": 16})
    options = "--config", config, "--out", tmp_path / "run"
    assert "10 episodes of the expert" in run("sqil.py", "--steps", 300, *options)
    agent, expert = buffers(tmp_path / "run")["learner.mixed"].sources
    assert agent.size() == 300
    assert "400 steps" in run("sqil.py", "--steps", 400, *options, "--resume")
    agent, same = buffers(tmp_path / "run")["learner.mixed"].sources
    assert agent.size() == 400
    for column in ("column.observation", "column.action", "count"):
        np.testing.assert_array_equal(same.state_dict()[column], expert.state_dict()[column])
