"""A small Rainbow on Atari's Pong: the buffer stores each frame once and samples stacks of four.

    pip install "ale-py>=0.10"
    python examples/dqn_atari.py                # all of configs/dqn_pong.yaml
    python examples/dqn_atari.py --resume       # after a kill, from the last checkpoint
    python examples/dqn_atari.py --steps 12000 --check

Double Q-learning with a dueling network, prioritized replay and 3-step returns. The agent sees the last four frames,
of 33 by 42 pixels without the score. Rows hold only the newest of them: `FrameStack` builds the stacks when a batch is
drawn, for the observation and for the next one, and `NStep` computes the returns and the discounts. One call of a
compiled graph samples, learns and writes the new priorities.

The environments are ale-py's own vector. It resets an environment in the step after its episode's last one, so the row
of that step holds the final frame, and an episode that is cut off is bootstrapped from it.

Training stops when the mean return of the last 20 training episodes reaches ``stop_at_training_return``. Then the
network plays greedy episodes in new environments. ``runs/dqn_pong_seed<seed>/`` gets the learning curve, the history,
a sampled observation above its next one, and checkpoints with the whole buffer. ``--resume`` continues from the last of
them with new episodes. ``--check`` compares the final buffer's samples with the stacks that the agent acted on; it
keeps them all in memory, so use it for short runs.

References:
    Mnih et al. 2015, Human-level control through deep reinforcement learning, https://doi.org/10.1038/nature14236
    Hessel et al. 2018, Rainbow, https://arxiv.org/abs/1710.02298. Omitted: distributions of values and noisy layers.
"""

import json
import math
import os
import resource
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from dqn import value_of
from dqn_prioritized import DuelingHead
from drawing import pyplot
from mindspore import Tensor, nn, ops
from run import command_line, learning_rate, use_device
from tqdm import tqdm

from mindspore_replay import Collector, FrameStack, NStep, TrainingCheckpoint, create_buffer, load_config

try:
    import ale_py
except ImportError as error:
    raise ImportError("Atari needs: pip install 'ale-py>=0.10'") from error
gym.register_envs(ale_py)

#: Seed of the greedy episodes at the end.
FINAL_SEED = 2_000_000
CLOCKS = {"elapsed": time.perf_counter, "processor": time.process_time}


class Network(nn.Cell):
    """Stacks of frames ``[B, k, 33, 42]`` uint8 in, the value of each action out."""

    def __init__(self, frames: int, actions: int, settings: Mapping[str, Any]) -> None:
        super().__init__()
        (first, second), hidden = settings["channels"], settings["hidden"]
        self.background, self.contrast = settings["background"], settings["contrast"]
        plain = {"pad_mode": "valid", "has_bias": True}
        convolutions = nn.Conv2d(frames, first, 6, 3, **plain), nn.ReLU(), nn.Conv2d(first, second, 4, 2, **plain)
        dense = nn.ReLU(), nn.Flatten(), nn.Dense(second * 4 * 5, hidden), nn.ReLU()
        self.layers = nn.SequentialCell(*convolutions, *dense, DuelingHead(hidden, actions))

    def construct(self, frames: Tensor) -> Tensor:
        return self.layers((ops.cast(frames, ms.float32) - self.background) * (1 / self.contrast))


class Greedy(nn.Cell):
    """The actions with the largest value."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # the learner names the network's Parameters
        self.network = network

    def construct(self, frames: Tensor) -> Tensor:
        return ops.argmax(self.network(frames), 1)


class Learner(nn.Cell):
    """Network, target, optimizer and buffer. One call learns from a batch; it returns the loss and the mean target."""

    def __init__(self, network: nn.Cell, target: nn.Cell, buffer: nn.Cell, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.network, self.target, self.buffer = network, target, buffer
        self.weights, self.target_weights = network.trainable_params(), target.trainable_params()
        for weight in self.target_weights:
            weight.requires_grad = False
        self.update_target()
        self.optimizer = nn.Adam(self.weights, learning_rate(settings["learning_rate"]), eps=1e-5)
        self.gradients = ms.value_and_grad(self.loss, None, self.weights, has_aux=True)

    def construct(self) -> tuple[Tensor, Tensor]:
        batch = self.buffer.sample(as_dict=True)
        following = batch["next_observation"]
        best = ops.argmax(self.network(following), 1)  # the network chooses the next action, the target values it
        # The discount is 0 if a step terminated the episode.
        wanted = batch["reward"] + batch["discount"] * value_of(self.target(following), best)
        (loss, error), gradients = self.gradients(batch["observation"], batch["action"], wanted, batch["weights"])
        self.optimizer(gradients)
        self.buffer.update_priorities(batch["indices"], error)
        return loss, ops.mean(wanted)

    def update_target(self) -> None:
        """Copy the network to its target."""
        for weight, target_weight in zip(self.weights, self.target_weights):
            ops.assign(target_weight, weight)

    def loss(self, frames: Tensor, action: Tensor, wanted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean Huber loss, each row with its importance weight, and the sizes of the errors."""
        value = value_of(self.network(frames), action)
        return ops.mean(weights * ops.huber_loss(value, wanted, reduction="none")), ops.abs(wanted - value)


class Frames(gym.vector.VectorWrapper):
    """Environments with few actions, whose observations are the newest frame and the stack that it is in."""

    def __init__(self, config: Mapping[str, Any], number: int) -> None:
        options = {"vectorization_mode": "vector_entry_point", **config["environment_options"]}
        super().__init__(gym.make_vec(config["environment"], number, **options))
        self.actions, self.done = np.array(config["actions"]), np.zeros(number, bool)
        self.field = slice(*config["field"])

    def reset(self, *, seed: int, options: None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        stack, info = self.env.reset(seed=seed % 2**30)  # the games take seeds of 32 bits with a sign
        return self.seen(stack), info

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], Any, Any, Any, dict[str, Any]]:
        stack, reward, terminated, truncated, info = self.env.step(self.actions[action])
        self.done = terminated | truncated
        return self.seen(stack), reward, terminated, truncated, info

    def seen(self, stack: np.ndarray) -> dict[str, np.ndarray]:
        """Return the newest frames and the stacks, without the rows of pixels outside the field."""
        stack = stack[:, :, self.field]
        return {"observation": stack[:, -1], "stack": stack}


class Run:
    """One training run: its Cells, environments, random numbers and history."""

    def __init__(self, config: dict[str, Any], seed: int, backend: str, folder: Path, check: bool) -> None:
        ms.set_seed(seed)
        self.config, self.settings, self.folder = config, config["learner"], folder
        self.rng = np.random.default_rng(seed)
        frames, actions, number = config["environment_options"]["stack_num"], len(config["actions"]), config["num_envs"]
        views = [FrameStack(frames), NStep(config["n_step"], config["gamma"])]
        rows = {**config["replay_buffer"], "num_envs": number, "views": views, "seed": seed, "backend": backend}
        network, target = (Network(frames, actions, self.settings) for _ in range(2))
        self.buffer = create_buffer(rows)
        self.learner, self.greedy = Learner(network, target, self.buffer, self.settings), Greedy(network)
        self.seen: list[tuple[np.ndarray, ...]] | None = [] if check else None
        self.envs = Frames(config, number)
        self.collector = Collector(self.envs, self.buffer, self.explore, seed=seed, callback=self.keep)
        self.checkpoint = TrainingCheckpoint(folder / "training.safetensors", learner=self.learner, rng=self.rng)
        self.learned, self.seconds = 0, {"elapsed": 0.0, "processor": 0.0}  # of the training
        self.history: dict[str, Any] = {"episodes": [], "learning": []}

    def explore(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Choose epsilon-greedy actions: epsilon falls from the first learning step on."""
        plan = self.config["exploration"]
        share = min(max(0, self.collector.steps - self.settings["learning_starts"]) / plan["steps"], 1.0)
        epsilon = plan["start"] + share * (plan["end"] - plan["start"])
        self.acted_on = observation["stack"], self.envs.done
        actions = self.rng.integers(len(self.config["actions"]), size=self.envs.num_envs)
        is_greedy = self.rng.random(len(actions)) >= epsilon
        return np.where(is_greedy, self.act(observation), actions) if is_greedy.any() else actions

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        return self.greedy(Tensor(observation["stack"])).asnumpy()

    def keep(self, rows: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> None:
        """Remember what the agent saw in a step, to check samples by it."""
        if self.seen is not None:
            self.seen.append((*self.acted_on, rows["reward"], rows["terminated"]))

    def train(self) -> None:
        """Act and learn until the last step, or until the agent is good enough."""
        settings, collector, episodes = self.settings, self.collector, self.history["episodes"]
        bar = tqdm(total=self.config["steps"], initial=collector.steps, unit="step", dynamic_ncols=True)
        begin = {name: clock() - self.seconds[name] for name, clock in CLOCKS.items()}
        while collector.steps < self.config["steps"] and not self.good_enough():
            before = collector.steps
            episodes += [(collector.steps, episode.total_reward) for episode in collector.collect(steps=1)]
            due = max(0, collector.steps - settings["learning_starts"]) // settings["train_every"]
            while self.learned < due and self.buffer.can_sample():
                loss, wanted = self.learner()
                self.learned += 1
                if self.learned % settings["target_every"] == 0:
                    self.learner.update_target()
            bar.update(collector.steps - before)
            if collector.steps // 1000 > before // 1000 and self.learned:
                self.history["learning"].append((collector.steps, float(loss), float(wanted)))
                bar.set_postfix_str(f"return {self.recent_return():.1f}, value {float(wanted):.2f}")
            every = self.config["evaluation"]["every"]
            if collector.steps // every > before // every:
                self.seconds = {name: clock() - begin[name] for name, clock in CLOCKS.items()}
                self.save()
        self.seconds = {name: clock() - begin[name] for name, clock in CLOCKS.items()}
        bar.close()

    def recent_return(self) -> float:
        """Return the mean return of the last 20 training episodes."""
        return float(np.mean([value for _, value in self.history["episodes"][-20:]] or [math.nan]))

    def good_enough(self) -> bool:
        least = self.config["evaluation"]["stop_at_training_return"]
        return len(self.history["episodes"]) >= 20 and self.recent_return() >= least

    def save(self) -> None:
        """Write a checkpoint and the history."""
        state = {"collector": self.collector.state_dict(), "learned": self.learned, "seconds": self.seconds}
        self.checkpoint.save(**state, history=self.history)
        (self.folder / "history.json").write_text(json.dumps({**self.history, **state, "config": self.config}))

    def load(self) -> None:
        """Continue from the checkpoint in the run's folder with new episodes."""
        state = self.checkpoint.load()
        if state is None:
            raise SystemExit(f"{self.folder} has no checkpoint to go on from")
        self.learned, self.seconds, self.history = state["learned"], state["seconds"], state["history"]
        self.collector.load_state_dict(state["collector"])

    def finish(self) -> None:
        """Play greedy episodes, and write the result and the pictures."""
        episodes = self.config["evaluation"]["episodes"]
        evaluation = Collector(Frames(self.config, episodes), None, self.act, seed=FINAL_SEED)
        self.history["final"] = [episode.total_reward for episode in evaluation.collect(episodes=episodes)]
        frame = math.prod(self.buffer.shapes[0])
        stacks = (
            self.buffer.nbytes
            + self.buffer.capacity * (2 * self.config["environment_options"]["stack_num"] - 1) * frame
        )
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.history["memory"] = {"buffer": self.buffer.nbytes, "with stacks in rows": stacks, "process": peak}
        self.save()
        self.draw()

    def draw(self) -> None:
        """Draw the learning curve, and a sampled observation above its next one, the oldest frames on the left."""
        plt = pyplot()
        steps, values = np.array(self.history["episodes"]).T
        mean = [values[max(0, i - 19) : i + 1].mean() for i in range(len(values))]
        figure, axes = plt.subplots(layout="constrained")
        axes.plot(steps, values, color="C0", alpha=0.4, linewidth=0.8, label="training episode")
        axes.plot(steps, mean, color="C0", linewidth=2, label="mean of 20 training episodes")
        axes.axhline(self.config["evaluation"]["stop_at_training_return"], color="0.5", linestyle=":")
        axes.set(xlabel="environment steps", ylabel="return", ylim=(-21.5, 21.5), title=self.config["environment"])
        axes.legend(loc="upper left")
        figure.savefig(self.folder / "learning_curve.png")
        batch = self.buffer.sample(as_dict=True)
        stacks = (batch[name].asnumpy()[0] for name in ("observation", "next_observation"))
        rows = [np.hstack([np.pad(frame, 1, constant_values=255) for frame in stack]) for stack in stacks]
        plt.imsave(self.folder / "frames.png", np.kron(np.vstack(rows), np.ones((4, 4))), cmap="gray")

    def check(self, batches: int = 100) -> Counter[str]:
        """Assert that samples hold the stacks the agent saw; count rows by how the steps of their return ended."""
        gamma, counts = self.config["gamma"], Counter()
        for _ in range(batches):
            drawn = self.buffer.sample(as_dict=True)
            batch = {name: column.asnumpy() for name, column in drawn.items()}
            for i, serial in enumerate(batch["indices"]):  # a handle is the number of rows inserted before the row
                step, env = divmod(int(serial), self.envs.num_envs)
                seen = [[part[env] for part in parts] for parts in self.seen[step : step + self.config["n_step"] + 1]]
                stacks, final, rewards, terminated = zip(*seen)
                assert np.array_equal(batch["observation"][i], stacks[0])
                if batch["discount"][i] == 0:
                    k, how = 1 + terminated.index(True), "terminated"
                else:
                    k = round(math.log(batch["discount"][i], gamma))
                    assert np.array_equal(batch["next_observation"][i], stacks[k])
                    newest = step + k + 1 == len(self.seen)
                    how = "all steps" if k == self.config["n_step"] else "newest" if newest else "truncated"
                    assert how != "truncated" or final[k]
                assert not any(final[:k])
                assert not any(terminated[: k - 1])
                wanted = sum(gamma**j * reward for j, reward in enumerate(rewards[:k]))
                assert math.isclose(batch["reward"][i], wanted, abs_tol=1e-5)
                counts[how] += 1
        return counts


def main() -> None:
    parser = command_line(__doc__, "dqn_pong", ["backend", "resume"])
    parser.add_argument("--check", action="store_true", help="compare samples with what the agent saw; not to resume")
    arguments = parser.parse_args()
    if arguments.check and arguments.resume:
        parser.error("--check needs all that the agent saw, and a checkpoint does not hold it")
    # With AVX-512, MindSpore 2.10's convolutions run in oneDNN's reference code, 50 times slower than this.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain
    config = load_config(arguments.config)
    config["steps"] = arguments.steps or config["steps"]
    folder = arguments.out or Path("runs") / f"{arguments.name}_seed{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(config, arguments.seed, arguments.backend, folder, arguments.check)
    if arguments.resume:
        run.load()
    run.train()
    if arguments.check:
        run.history["check"] = dict(run.check())
        print(f"samples hold what the agent saw: {run.history['check']}")
    run.finish()
    history, steps = run.history, run.collector.steps
    print(f"{steps} steps, {len(history['episodes'])} episodes, {run.learned} learning steps")
    print("training took {elapsed:.0f} s, and {processor:.0f} s of processor time".format(**run.seconds))
    print(f"mean return of the last 20 training episodes: {run.recent_return():.1f}")
    print(f"mean return of {len(history['final'])} greedy episodes: {np.mean(history['final']):.1f}")
    print("bytes: " + ", ".join(f"{name} {number:,}" for name, number in history["memory"].items()))
    print(f"learning curve, history, frames and checkpoint: {folder}")


if __name__ == "__main__":
    main()
