"""Deep Q-learning on Atari's Pong: the buffer stores each frame once and samples stacks of four.

    pip install "ale-py>=0.10" "opencv-python-headless<4.12"    # newer releases of OpenCV need NumPy 2
    python examples/dqn_atari.py                                # all of configs/dqn_pong.yaml: many hours on a CPU
    python examples/dqn_atari.py --resume                       # after a kill, from the last evaluation
    python examples/dqn_atari.py --max-steps 1600 --learning-starts 1500 --eval-episodes 1 --check

The agent sees the last four frames. `FrameStack` builds these stacks when a batch is drawn, for the observation and for
the next one; `NStep` computes the n-step returns and the bootstrap discounts. One call of a compiled graph samples,
computes the loss of double Q-learning and its gradients, and updates the network and its target. The target follows
slowly, as in ``dqn.py``; the paper copies it at intervals.

An episode that terminates ends with its last row, ``insert(row, end=True)``: it needs no bootstrap, so no frame is
stored after it. One that a time limit truncates is bootstrapped: its last row is no end, and one more row,
``final=True``, holds the frame after it, so that the target's value is that of the true final frames.

It prints the steps per second, the bytes of the buffer and of one whose rows hold both stacks, and the mean return of
an evaluation. ``runs/dqn_pong_seed<seed>/`` gets ``result.json``, the network of the best evaluation, ``frames.png``, a
sampled observation above its next one, and at each evaluation a checkpoint with the whole buffer. ``--resume``
continues from it with a new episode. ``--check`` compares the final buffer's samples with the stacks that the agent
acted on; it keeps them all in memory, so use it for short runs.

References:
    Mnih et al. 2015, Human-level control through deep reinforcement learning, https://doi.org/10.1038/nature14236
    van Hasselt et al. 2016, Deep reinforcement learning with double Q-learning, https://arxiv.org/abs/1509.06461
"""

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import mindspore as ms
import numpy as np
from device import add_device_option, use_device
from dqn import EVALUATION_SEED, FINAL_SEED, ROOT, Learner
from mindspore import Tensor, nn, ops
from tqdm import tqdm

from mindspore_replay import FrameStack, NStep, TrainingCheckpoint, create_buffer, load_config

try:
    import ale_py
    import cv2
except ImportError as error:
    raise ImportError("Atari needs: pip install 'ale-py>=0.10' 'opencv-python-headless<4.12'") from error
gym.register_envs(ale_py)


class NatureNetwork(nn.Cell):
    """The network of Mnih et al. 2015: stacks of frames ``[B, k, 84, 84]`` uint8 in, the value of each action out."""

    def __init__(self, frames: int, actions: int) -> None:
        super().__init__()
        plain = {"pad_mode": "valid", "has_bias": True}
        self.layers = nn.SequentialCell(
            nn.Conv2d(frames, 32, 8, 4, **plain),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2, **plain),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1, **plain),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dense(64 * 7 * 7, 512),
            nn.ReLU(),
            nn.Dense(512, actions),
        )

    def construct(self, frames: Tensor) -> Tensor:
        return self.layers(ops.cast(frames, ms.float32) * (1 / 255))


class AtariLearner(Learner):
    """A `Learner` that samples the rows of the game: one call learns from a batch and moves the target."""

    def construct(self) -> tuple[Tensor, Tensor]:
        # The discount is 0 if a step terminated the episode.
        batch = self.buffer.sample(as_dict=True)
        wanted = batch["reward"] + batch["discount"] * self.next_value(batch["next_observation"])
        loss, gradients = self.loss_and_gradients(batch["observation"], batch["action"], wanted)
        self.improve(gradients)
        return loss, ops.mean(wanted)


class Game:
    """An Atari game and the stack of its last frames, as the buffer samples them: zeros before the first."""

    def __init__(self, config: dict[str, Any]) -> None:
        env = gym.make(config["environment"], frameskip=1, **config["environment_options"])
        env = gym.wrappers.AtariPreprocessing(env, frame_skip=config["frame_skip"])
        self.env = gym.wrappers.TimeLimit(env, config["max_episode_steps"])
        self.actions = int(env.action_space.n)
        self.shape = (config["stack"], *env.observation_space.shape)

    def reset(self, seed: int | None = None) -> None:
        self.stack = np.zeros(self.shape, np.uint8)
        self.stack[-1] = self.env.reset(seed=seed)[0]

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Return reward, terminated, truncated. The stack is a new array with the new frame as its last."""
        frame, reward, terminated, truncated, _ = self.env.step(action)
        self.stack = np.concatenate([self.stack[1:], frame[None]])
        return float(reward), terminated, truncated


class Seen(NamedTuple):
    """A row of the buffer, and the stack that the agent acted on in that step."""

    stack: np.ndarray
    reward: float
    terminated: bool
    final: bool


class Run:
    """One training run: its Cells, games, random numbers and result."""

    def __init__(self, config: dict[str, Any], seed: int, backend: str, folder: Path, check: bool) -> None:
        ms.set_seed(seed)
        self.config, self.settings, self.folder = config, config["learner"], folder
        self.rng = np.random.default_rng(seed)
        self.game, self.trial = Game(config), Game(config)  # one for learning, one for evaluation
        self.game.reset(seed)
        views = [FrameStack(config["stack"]), NStep(config["n_step"], config["gamma"])]
        self.buffer = create_buffer({**config["replay_buffer"], "views": views, "seed": seed, "backend": backend})
        self.network = NatureNetwork(config["stack"], self.game.actions)
        target = NatureNetwork(config["stack"], self.game.actions)
        rates = config["gamma"], self.settings["tau"], self.settings["learning_rate"]
        self.learner = AtariLearner(self.network, target, self.buffer, *rates)
        self.seen: list[Seen] | None = [] if check else None
        self.checkpoint = TrainingCheckpoint(folder / "training.safetensors", learner=self.learner, rng=self.rng)
        self.step = self.learned = 0
        self.seconds = 0.0  # of the steps, without random steps and evaluations
        self.recent: tuple[float, float] | None = None  # loss and mean target value of the last learning step
        self.result: dict[str, Any] = {"config": config, "episodes": [], "learning": [], "evaluations": []}

    def act(self, game: Game, epsilon: float) -> int:
        """Choose an epsilon-greedy action."""
        if self.rng.random() < epsilon:
            return int(self.rng.integers(game.actions))
        return int(self.network(Tensor(game.stack[None])).asnumpy().argmax())

    def epsilon(self) -> float:
        """Return the current probability of a random action: linear from the first learning step on."""
        plan = self.config["exploration"]
        share = max(0, self.step - self.settings["learning_starts"]) / plan["steps"]
        return plan["start"] + min(share, 1.0) * (plan["end"] - plan["start"])

    def store(self, stack: np.ndarray, action: int, reward: float, terminated: bool, final: bool = False) -> None:
        """Insert a row with the newest frame of a stack."""
        self.buffer.insert([stack[-1], action, reward, terminated], end=terminated, final=final)
        if self.seen is not None:
            self.seen.append(Seen(stack, reward, terminated, final))

    def advance(self) -> tuple[float, bool, bool]:
        """Play and store a step; at the end of an episode start the next one."""
        stack, action = self.game.stack, self.act(self.game, self.epsilon())
        reward, terminated, truncated = self.game.step(action)
        self.store(stack, action, float(np.sign(reward)), terminated)  # the paper clips rewards
        self.step += 1
        if truncated and not terminated:
            self.store(self.game.stack, 0, 0.0, False, final=True)
        if terminated or truncated:
            self.game.reset()
        return reward, terminated, truncated

    def learn(self) -> None:
        """Call the learner once if it is due and there are enough rows."""
        due = self.step > self.settings["learning_starts"] and self.step % self.settings["train_every"] == 0
        if due and self.buffer.can_sample():
            loss, wanted = self.learner()
            self.recent = float(loss), float(wanted)
            self.learned += 1
            if self.learned % self.settings["log_every"] == 0:
                self.result["learning"].append([self.step, *self.recent])

    def train(self) -> None:
        """Act and learn until the last step, and record the speed."""
        plan, starts, score = self.config["evaluation"], self.settings["learning_starts"], 0.0
        bar = tqdm(total=self.config["steps"], initial=self.step, unit="step", dynamic_ncols=True)
        while self.step < self.config["steps"]:
            begin = time.perf_counter()
            reward, terminated, truncated = self.advance()
            self.learn()
            score += reward
            if self.step > starts:
                self.seconds += time.perf_counter() - begin
            if terminated or truncated:
                self.result["episodes"].append([self.step, score, "terminated" if terminated else "truncated"])
                score = 0.0
            bar.update()
            if self.step % 100 == 0:
                self.show(bar)
            if self.step % plan["every"] == 0:
                self.evaluate(EVALUATION_SEED + self.step)
                self.save()
        bar.close()
        speed = (self.step - starts) / self.seconds if self.seconds else None
        self.result |= {"steps": self.step, "learning_steps": self.learned, "steps_per_second": speed}

    def save(self) -> None:
        """Write a checkpoint."""
        self.checkpoint.save(
            step=self.step, learned=self.learned, seconds=self.seconds, result=self.result, stack=self.game.stack
        )

    def load(self) -> None:
        """Continue from the checkpoint in the run's folder. The episode that was running is truncated."""
        state = self.checkpoint.load()
        if state is None:
            raise SystemExit(f"{self.folder} has no checkpoint to go on from")
        self.step, self.learned, self.seconds = state["step"], state["learned"], state["seconds"]
        self.result = {**state["result"], "config": self.config}
        self.store(state["stack"], 0, 0.0, False, final=True)
        self.game.reset(int(self.rng.integers(EVALUATION_SEED)))  # different episodes than at the start

    def show(self, bar: tqdm) -> None:
        """Show the mean of the last returns, the loss and the mean target value in the progress bar."""
        scores = [score for _, score, _ in self.result["episodes"][-20:]]
        text = f"return {np.mean(scores):.1f}" if scores else "return -"
        bar.set_postfix_str(text + (", loss {:.4f}, value {:.2f}".format(*self.recent) if self.recent else ""))

    def evaluate(self, seed: int) -> float:
        """Return the mean return of nearly greedy episodes. Keeps the network if it is the best so far."""
        plan, scores = self.config["evaluation"], []
        for i in range(plan["episodes"]):
            self.trial.reset(seed + i)
            score, over = 0.0, False
            while not over:
                reward, *ends = self.trial.step(self.act(self.trial, plan["epsilon"]))
                score, over = score + reward, any(ends)
            scores.append(score)
        mean = float(np.mean(scores))
        self.result["evaluations"].append([self.step, mean])
        if mean >= max(score for _, score in self.result["evaluations"]):
            ms.save_checkpoint(self.network, str(self.folder / "best.ckpt"))
        return mean

    def memory(self) -> dict[str, float]:
        """Return the bytes of the full buffer, and of one whose rows hold their stack and the next one."""
        frames, *frame = self.game.shape
        stacked = self.buffer.nbytes + self.buffer.capacity * (2 * frames - 1) * math.prod(frame)
        ratio = stacked / self.buffer.nbytes
        return {"capacity": self.buffer.capacity, "nbytes": self.buffer.nbytes, "stacked": stacked, "ratio": ratio}

    def draw_frames(self) -> None:
        """Write a picture of a sampled observation above its next one, the oldest frames on the left."""
        batch = self.buffer.sample(as_dict=True)
        stacks = (batch[name].asnumpy()[0] for name in ("observation", "next_observation"))
        rows = [np.hstack([np.pad(frame, 2, constant_values=255) for frame in stack]) for stack in stacks]
        cv2.imwrite(str(self.folder / "frames.png"), np.vstack(rows))

    def check(self, batches: int = 100) -> dict[str, int]:
        """Assert that samples hold the stacks the agent saw; count rows by how the steps of their return ended."""
        n, gamma = self.config["n_step"], self.config["gamma"]
        counts = {"n steps": 0, "terminated": 0, "truncated": 0, "newest": 0}
        for _ in range(batches):
            drawn = self.buffer.sample(as_dict=True, with_indices=True)
            batch = {name: column.asnumpy() for name, column in drawn.items()}
            for i, serial in enumerate(batch["indices"]):  # a handle is the number of rows inserted before the row
                steps = self.seen[serial : serial + n + 1]
                assert np.array_equal(batch["observation"][i], steps[0].stack)
                if batch["terminated"][i]:
                    k = 1 + [step.terminated for step in steps].index(True)
                    assert k <= n
                    assert batch["discount"][i] == 0
                    how = "terminated"
                else:
                    k = round(math.log(batch["discount"][i], gamma))
                    assert np.array_equal(batch["next_observation"][i], steps[k].stack)
                    assert not any(step.terminated or step.final for step in steps[:k])
                    how = "truncated" if steps[k].final else "n steps" if k == n else "newest"
                    assert how != "newest" or serial + k + 1 == len(self.seen)
                wanted = sum(gamma**j * step.reward for j, step in enumerate(steps[:k]))
                assert math.isclose(batch["reward"][i], wanted, abs_tol=1e-5)
                counts[how] += 1
        return counts


#: Command line options that override the configuration.
OPTIONS = {
    "max-steps": "steps",
    "max-episode-steps": "max_episode_steps",
    "n-step": "n_step",
    "capacity": "replay_buffer.capacity",
    "learning-starts": "learner.learning_starts",
    "train-every": "learner.train_every",
    "eval-every": "evaluation.every",
    "eval-episodes": "evaluation.episodes",
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "dqn_pong.yaml")
    parser.add_argument("--seed", type=int, default=0)
    add_device_option(parser)
    parser.add_argument("--backend", choices=["auto", "native", "composite"], default="auto", help="of the buffer")
    parser.add_argument("--out", type=Path, help="folder of the run; default: runs/dqn_pong_seed<seed>")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder of the run")
    parser.add_argument("--check", action="store_true", help="compare samples with what the agent saw; not to resume")
    for option, setting in OPTIONS.items():
        parser.add_argument(f"--{option}", dest=setting, type=int, help=f"instead of the configuration's {setting}")
    arguments = parser.parse_args()
    if arguments.check and arguments.resume:
        parser.error("--check needs all that the agent saw, and a checkpoint does not hold it")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    # With AVX-512, MindSpore 2.10's convolutions run in oneDNN's reference code, 60 times slower than this.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    config = load_config(arguments.config)
    for setting in OPTIONS.values():
        *parts, key = setting.split(".")
        if getattr(arguments, setting) is not None:
            (config[parts[0]] if parts else config)[key] = getattr(arguments, setting)
    folder = arguments.out or Path("runs") / f"dqn_pong_seed{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(config, arguments.seed, arguments.backend, folder, arguments.check)
    if arguments.resume:
        run.load()
    run.train()
    run.draw_frames()
    result = {**run.result, "memory": run.memory(), "final": run.evaluate(FINAL_SEED)}
    if arguments.check:
        result["check"] = run.check()
        print(f"samples hold what the agent saw: {result['check']}")
    (folder / "result.json").write_text(json.dumps(result))
    speed = f"{result['steps_per_second']:.1f} steps/s while it learned" if run.learned else "it did not learn yet"
    print(f"{run.step} steps, {len(result['episodes'])} episodes, {run.learned} learning steps, {speed}")
    text = "buffer of {capacity} rows: {nbytes:,} bytes; with stacks in each row {stacked:,}, {ratio:.2f} times that"
    print(text.format(**result["memory"]))
    print(f"mean return of {config['evaluation']['episodes']} episodes: {result['final']:.1f}")
    print(f"result, best network and frames: {folder}")


if __name__ == "__main__":
    main()
