"""Deep Q-learning on CartPole, with the replay buffer in the graph that learns.

    python examples/dqn.py                      # 20 seconds on two free CPU cores
    python examples/dqn.py --seed 1 --num-envs 4
    python examples/dqn.py --resume --steps 200000

One call of a compiled graph inserts the newest transitions, samples a batch with n-step returns, computes double
Q-learning's loss and its gradients, and updates the network and its target. A second graph chooses actions. Everything
is written to ``runs/dqn_cartpole_seed<seed>/``: the learning curve, the history, and checkpoints. ``--resume``
continues from there with the network, optimizer, buffer and random states of the last checkpoint; the environments
start new episodes.

Training stops when the agent does well while it learns and explores: when the mean return of the last 20 training
episodes reaches ``stop_at_training_return`` of the configuration. The final evaluation is that of the last network.
Earlier evaluations only show progress; the network of the best one is saved too.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from device import add_device_option, use_device
from drawing import draw_solved, pyplot
from mindspore import Tensor, nn, ops
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from tqdm import tqdm

from mindspore_replay import NStep, TrainingCheckpoint, create_buffer, load_config

ROOT = Path(__file__).resolve().parent.parent
#: Evaluations use seeds of their own, far from those of training; the last evaluation uses others again.
EVALUATION_SEED, FINAL_SEED = 1_000_000, 2_000_000


class Scale(nn.Cell):
    """Multiplies by a constant."""

    def __init__(self, factor: list[float]) -> None:
        super().__init__()
        self.factor = Tensor(factor, ms.float32)

    def construct(self, x: Tensor) -> Tensor:
        return x * self.factor


def make_network(
    scale: list[float], hidden: list[int], outputs: int, head: Callable[[int, int], nn.Cell] = nn.Dense
) -> nn.SequentialCell:
    """Make a multilayer perceptron from observations to one value per action. `head` makes its last layer."""
    layers: list[nn.Cell] = [Scale(scale)]
    inputs = len(scale)
    for units in hidden:
        layers += [nn.Dense(inputs, units), nn.ReLU()]
        inputs = units
    return nn.SequentialCell(*layers, head(inputs, outputs))


def value_of(values: Tensor, action: Tensor) -> Tensor:
    """Return the value of one action for each row of `values`. Shape ``[B]``."""
    return ops.gather_elements(values, 1, ops.expand_dims(action, 1))[:, 0]


class Policy(nn.Cell):
    """The action with the largest value, for a batch of observations ``[E, 4]``."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # the learner names the network's Parameters
        self.network = network

    def construct(self, observation: Tensor) -> Tensor:
        return ops.argmax(self.network(observation), 1)


class Learner(nn.Cell):
    """Network, target, optimizer and buffer. One call stores transitions and learns from a batch.

    Args:
        network (nn.Cell): Computes the value of each action.
        target (nn.Cell): Its slowly following copy, with the same structure.
        buffer (ReplayBuffer): Columns observation, action, reward, next_observation, terminated.
        gamma (float): Discount of one step.
        tau (float): Fraction by which the target moves to the network at each call.
        learning_rate (float, LearningRateSchedule): Of Adam.
        huber_delta (float): Errors above it count linearly in the loss, smaller ones squared.
    """

    def __init__(
        self,
        network: nn.Cell,
        target: nn.Cell,
        buffer: nn.Cell,
        gamma: float,
        tau: float,
        learning_rate: float | LearningRateSchedule,
        huber_delta: float = 1.0,
    ) -> None:
        super().__init__()
        self.network = network
        self.target = target
        self.buffer = buffer
        self.weights = network.trainable_params()
        self.target_weights = target.trainable_params()
        for weight, target_weight in zip(self.weights, self.target_weights):
            target_weight.set_data(Tensor(weight.asnumpy().copy()))
            target_weight.requires_grad = False
        self.optimizer = nn.Adam(self.weights, learning_rate)
        self.loss_and_gradients = ms.value_and_grad(self.loss, None, self.weights)
        self.gamma = gamma
        self.tau = tau
        self.huber_delta = huber_delta

    def construct(
        self, observation: Tensor, action: Tensor, reward: Tensor, next_observation: Tensor, terminated: Tensor
    ) -> Tensor:
        self.buffer.insert([observation, action, reward, next_observation, terminated])
        batch = self.buffer.sample(as_dict=True)
        wanted = self.wanted_value(batch["reward"], batch["next_observation"], batch["terminated"])
        loss, gradients = self.loss_and_gradients(batch["observation"], batch["action"], wanted)
        self.improve(gradients)
        return loss

    def wanted_value(self, reward: Tensor, next_observation: Tensor, terminated: Tensor) -> Tensor:
        """Return the learning target: the reward and the discounted value of the next observation."""
        # Only a terminated episode has no future: a truncated one is bootstrapped from its final observation.
        goes_on = 1.0 - terminated.astype(ms.float32)
        return reward + self.gamma * goes_on * self.next_value(next_observation)

    def next_value(self, next_observation: Tensor) -> Tensor:
        """Double Q-learning: the network chooses the next action, the target values it."""
        action = ops.argmax(self.network(next_observation), 1)
        return value_of(self.target(next_observation), action)

    def loss(self, observation: Tensor, action: Tensor, wanted: Tensor) -> Tensor:
        """Return the Huber loss between the values of the actions taken and their targets."""
        return ops.huber_loss(value_of(self.network(observation), action), wanted, delta=self.huber_delta)

    def improve(self, gradients: tuple[Tensor, ...]) -> None:
        """Take one step of the optimizer and move the target."""
        self.optimizer(gradients)
        for weight, target_weight in zip(self.weights, self.target_weights):
            ops.assign(target_weight, target_weight + self.tau * (weight - target_weight))


class NStepLearner(Learner):
    """A `Learner` for a buffer with the view `NStep`, which must know the ends of episodes."""

    def construct(
        self,
        observation: Tensor,
        action: Tensor,
        reward: Tensor,
        next_observation: Tensor,
        terminated: Tensor,
        end: Tensor,
    ) -> Tensor:
        self.buffer.insert([observation, action, reward, next_observation, terminated], end=end)
        # The discount is 0 if a step terminated the episode; before a truncation the return has fewer steps.
        batch = self.buffer.sample(as_dict=True)
        wanted = batch["reward"] + batch["discount"] * self.next_value(batch["next_observation"])
        loss, gradients = self.loss_and_gradients(batch["observation"], batch["action"], wanted)
        self.improve(gradients)
        return loss


class Run:
    """One training run: its Cells, environments, random numbers, history and files."""

    head: Callable[[int, int], nn.Cell] = nn.Dense
    learner_class: type[Learner] = Learner
    #: True if the script exits with an error unless the final evaluation reaches `solved_at`.
    must_solve = False

    def __init__(self, config: dict[str, Any], seed: int, backend: str, folder: Path) -> None:
        ms.set_seed(seed)
        self.config = config
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self.envs = make_envs(config, config["num_envs"])
        self.observation, _ = self.envs.reset(seed=seed)
        self.make_cells(seed, backend)
        self.checkpoint = TrainingCheckpoint(folder / "training.safetensors", learner=self.learner, rng=self.rng)
        self.step = 0
        self.best = -np.inf
        self.seconds = 0.0
        self.history: dict[str, Any] = {"episodes": [], "evaluations": [], "final": None}

    def make_cells(self, seed: int, backend: str) -> None:
        """Make the learner with its buffer, and the greedy policy."""
        config, settings = self.config, self.config["learner"]
        size = settings["observation_scale"], settings["hidden"], int(self.envs.single_action_space.n)
        buffer = self.make_buffer({**config["replay_buffer"], "seed": seed, "backend": backend})
        network, target = make_network(*size, self.head), make_network(*size, self.head)
        rates = config["gamma"], settings["tau"], learning_rate(settings["learning_rate"])
        self.learner = self.learner_class(network, target, buffer, *rates, settings.get("huber_delta", 1.0))
        self.policy = Policy(network)

    def make_buffer(self, settings: dict[str, Any]) -> nn.Cell:
        return create_buffer(settings)

    def epsilon(self) -> float:
        """Return the current probability of a random action."""
        plan = self.config["exploration"]
        return plan["start"] + min(self.step / plan["steps"], 1.0) * (plan["end"] - plan["start"])

    def act(self) -> np.ndarray:
        """Choose epsilon-greedy actions, one per environment."""
        actions = self.rng.integers(self.envs.single_action_space.n, size=len(self.observation))
        greedy = self.rng.random(len(actions)) >= self.epsilon()
        if greedy.any():
            actions[greedy] = self.policy(Tensor(self.observation)).asnumpy()[greedy]
        return actions

    def advance(self, returns: np.ndarray) -> list[np.ndarray]:
        """Step the environments, return the transitions as the buffer's columns, and add the rewards to `returns`."""
        actions = self.act()
        observation, reward, terminated, truncated, infos = self.envs.step(actions)
        done = terminated | truncated
        next_observation = observation.copy()
        for i in np.flatnonzero(done):  # `observation` is already the first of the next episode
            next_observation[i] = infos["final_obs"][i]
        transition = [self.observation, actions, reward, next_observation, terminated]
        types = [np.float32, np.int32, np.float32, np.float32, np.bool_]
        self.observation = observation
        self.step += len(actions)
        returns += reward
        self.history["episodes"] += [(self.step, float(value)) for value in returns[done]]
        returns[done] = 0
        self.done = done
        return [column.astype(dtype) for column, dtype in zip(transition, types)]

    def store(self, transition: list[np.ndarray]) -> None:
        """Store transitions without learning."""
        self.learner.buffer.insert(transition)

    def train(self) -> None:
        """Act and learn until the last step, or until the agent is good enough."""
        plan = self.config["evaluation"]
        starts = self.config["learner"]["learning_starts"]
        returns = np.zeros(len(self.observation))
        loss = None
        start = time.perf_counter() - self.seconds
        bar = tqdm(total=self.config["steps"], initial=self.step, unit="step", dynamic_ncols=True)
        while self.step < self.config["steps"]:
            before = self.step
            transition = self.advance(returns)
            if self.step > starts and bool(self.learner.buffer.can_sample()):
                loss = self.learner(*map(Tensor, transition))
            else:
                self.store(transition)
            bar.update(self.step - before)
            if passed(500, before, self.step):  # rarely, since reading the loss waits for the graph
                self.show(bar, loss)
            if passed(plan["every"], before, self.step):
                self.seconds = time.perf_counter() - start
                if self.enough(self.evaluate()):
                    break
        self.seconds = time.perf_counter() - start
        self.show(bar, loss)
        bar.close()

    def show(self, bar: tqdm, loss: Tensor | None) -> None:
        """Show the mean of the last returns, the loss and the best evaluation in the progress bar."""
        loss_text = "-" if loss is None else f"{float(loss):.4f}"
        bar.set_postfix_str(f"return {self.recent_return():.0f}, loss {loss_text}, best {self.best:.0f}")

    def recent_return(self) -> float:
        """Return the mean return of the last 20 training episodes, or of all if fewer; 0 if there are none."""
        return float(np.mean([value for _, value in self.history["episodes"][-20:]] or [0]))

    @property
    def keeps_best(self) -> bool:
        """Return True if the result is the network of the best evaluation instead of the last one."""
        return "stop_at_training_return" not in self.config["evaluation"]

    def enough(self, mean: float) -> bool:
        """Return True if training should stop, by the mean of an evaluation or of the last training episodes."""
        plan = self.config["evaluation"]
        if self.keeps_best:
            return mean >= plan["stop_at_return"]
        return len(self.history["episodes"]) >= 20 and self.recent_return() >= plan["stop_at_training_return"]

    def evaluate(self) -> float:
        """Return the mean return of greedy episodes.

        Saves the network if it is the best so far, and writes a checkpoint.
        """
        seed = EVALUATION_SEED + self.step
        mean = float(np.mean(greedy_returns(self.config, self.policy, self.config["evaluation"]["episodes"], seed)))
        self.history["evaluations"].append((self.step, mean))
        if mean >= self.best:
            self.best = mean
            ms.save_checkpoint(self.learner.network, str(self.folder / "best.ckpt"))
        self.save()
        return mean

    def finish(self) -> float:
        """Return the final network's mean return in new episodes, and draw the learning curve."""
        if not self.history["evaluations"] or self.history["evaluations"][-1][0] != self.step:
            self.evaluate()
        self.save()
        if self.keeps_best:
            ms.load_checkpoint(str(self.folder / "best.ckpt"), self.learner.network)
        returns = greedy_returns(self.config, self.policy, self.config["evaluation"]["final_episodes"], FINAL_SEED)
        self.history["final"] = float(np.mean(returns))
        (self.folder / "history.json").write_text(json.dumps({**self.history, "config": self.config}))
        plot({self.folder.name: self.history}, self.folder / "learning_curve.png", self.config)
        return self.history["final"]

    def save(self) -> None:
        """Write a checkpoint: the learner with its buffer and optimizer, and all state that is not a Parameter."""
        self.checkpoint.save(
            step=self.step, best=self.best, seconds=self.seconds, history=self.history, config=self.config
        )

    def load(self) -> None:
        """Continue from the checkpoint in the run's folder; the environments start new episodes."""
        state = self.checkpoint.load()
        if state is None:
            raise SystemExit(f"{self.folder} has no checkpoint to go on from")
        if {**state["config"], "steps": 0} != {**self.config, "steps": 0}:
            raise SystemExit(f"{self.folder} was made with another configuration: {state['config']}")
        self.step, self.best, self.seconds, self.history = (state[k] for k in ("step", "best", "seconds", "history"))
        self.observation, _ = self.envs.reset(
            seed=int(self.rng.integers(EVALUATION_SEED))
        )  # other episodes than before


class NStepRun(Run):
    """A `Run` that learns from n-step returns."""

    learner_class = NStepLearner

    def make_buffer(self, settings: dict[str, Any]) -> nn.Cell:
        views = [NStep(self.config["learner"]["n_step"], self.config["gamma"])]
        return create_buffer({**settings, "num_envs": self.config["num_envs"], "views": views})

    def advance(self, returns: np.ndarray) -> list[np.ndarray]:
        """The same as in `Run`, followed by the flags of the rows that end an episode."""
        return [*super().advance(returns), self.done]

    def store(self, transition: list[np.ndarray]) -> None:
        self.learner.buffer.insert(transition[:-1], end=transition[-1])

    def load(self) -> None:
        super().load()
        self.learner.buffer.end_episodes()  # the environments start new ones


def learning_rate(plan: float | dict[str, Any]) -> float | LearningRateSchedule:
    """Return a constant, or a schedule that falls linearly from `start` to `end` in `steps` learning steps."""
    if isinstance(plan, dict):
        return nn.PolynomialDecayLR(plan["start"], plan["end"], plan["steps"], power=1.0)
    return plan


def make_envs(config: dict[str, Any], number: int) -> gym.vector.VectorEnv:
    """Make environments that start the next episode in the step that ends one; `infos` has its final observation."""
    mode = gym.vector.AutoresetMode.SAME_STEP
    return gym.make_vec(
        config["environment"], number, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )


def greedy_returns(config: dict[str, Any], policy: Policy, episodes: int, seed: int) -> np.ndarray:
    """Return the first episode's return in each of `episodes` environments, greedily. Shape ``[episodes]``."""
    envs = make_envs(config, episodes)
    observation, _ = envs.reset(seed=seed)
    returns, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        observation, reward, terminated, truncated, _ = envs.step(policy(Tensor(observation)).asnumpy())
        returns += reward * running
        running &= ~(terminated | truncated)
    envs.close()
    return returns


def passed(every: int, before: int, now: int) -> bool:
    """Return True if the step counter passed a multiple of `every`."""
    return now // every > before // every


def plot(runs: dict[str, dict[str, Any]], path: Path, config: dict[str, Any]) -> None:
    """Draw the learning curve of each run in a panel of its own."""
    plt = pyplot()
    columns = min(len(runs), 3)
    rows = -(-len(runs) // columns)
    size = None if columns == 1 else (3.6 * columns, 0.6 + 2.7 * rows)
    shared = {"squeeze": False, "sharex": True, "sharey": True, "layout": "constrained"}
    figure, panels = plt.subplots(rows, columns, figsize=size, **shared)
    for axes, (name, history) in zip(panels.flat, runs.items()):
        draw(axes, history, config)
        _, of_a_seed, seed = name.rpartition("_seed")
        axes.set(
            title=f"seed {seed}" if of_a_seed else name,
            xlabel="environment steps",
            ylim=config.get("return_range", (0, 515)),
        )
        axes.tick_params(labelbottom=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("return")
    for axes in panels.flat[len(runs) :]:
        axes.set_axis_off()
    figure.suptitle(f"{config.get('title', 'DQN')} on {config['environment']}")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path)
    plt.close(figure)


def draw(axes: Any, history: dict[str, Any], config: dict[str, Any]) -> None:
    """Draw the return of each training episode, their mean over 20, and the greedy evaluations."""
    steps, values = np.array(history["episodes"] or [(0, 0)], float).T
    mean = [values[max(0, j - 19) : j + 1].mean() for j in range(len(values))]
    axes.plot(steps, values, color="C0", alpha=0.5, linewidth=0.8, label="training episode")
    axes.plot(steps, mean, color="C0", linewidth=2, label="mean of 20 training episodes")
    axes.plot(*np.array(history["evaluations"]).T, "D--", color="C1", markersize=4, linewidth=0.8, label="evaluation")
    draw_solved(axes, config["evaluation"]["solved_at"])
    if "lags" in history:
        at, lag = np.array(history["lags"]).T
        axes.plot([], [], color="C2", linewidth=0.8, label="learning steps since the actor's policy")
        other = axes.twinx()
        other.plot(at, lag, color="C2", linewidth=0.8)
        other.set(ylim=(0, 4 * lag.max()), yticks=range(0, int(lag.max()) + 2, 1 + int(lag.max()) // 4))
        other.spines["right"].set_visible(True)
        other.grid(False)


def conclude(run: Run, mean: float, seconds: float) -> None:
    """Print the result of a run, and exit with an error if it had to solve the environment and did not."""
    plan = run.config["evaluation"]
    solved = "solved" if mean >= plan["solved_at"] else "not solved"
    print(f"{run.step} steps, {len(run.history['episodes'])} episodes, {seconds:.0f} s in all")
    print(f"mean return of {plan['final_episodes']} greedy episodes: {mean:.1f} ({solved})")
    print(f"learning curve, history and checkpoints: {run.folder}")
    if run.must_solve and solved != "solved":
        raise SystemExit(f"{solved}: the mean return is below {plan['solved_at']}")


def parse_arguments(description: str | None, name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / f"{name}.yaml")
    parser.add_argument("--steps", type=int, help="environment steps; default: from the configuration")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph")
    add_device_option(parser)
    parser.add_argument("--num-envs", type=int, help="default: from the configuration")
    parser.add_argument("--backend", choices=["auto", "native", "composite"], default="auto", help="of the buffer")
    parser.add_argument("--out", type=Path, help=f"folder of the run; default: runs/{name}_seed<seed>")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder of the run")
    return parser.parse_args()


def main(run_class: type[Run] = NStepRun, description: str | None = __doc__, name: str = "dqn_cartpole") -> None:
    """Train as the command line says. `name` is that of the configuration and of the run's folder."""
    begin = time.perf_counter()
    arguments = parse_arguments(description, name)
    ms.set_context(mode=ms.GRAPH_MODE if arguments.mode == "graph" else ms.PYNATIVE_MODE)
    use_device(arguments.device)
    config = load_config(arguments.config)
    given = {"steps": arguments.steps, "num_envs": arguments.num_envs}
    config.update({key: value for key, value in given.items() if value is not None})
    folder = arguments.out or Path("runs") / f"{name}_seed{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    run = run_class(config, arguments.seed, arguments.backend, folder)
    if arguments.resume:
        run.load()
    run.train()
    conclude(run, run.finish(), time.perf_counter() - begin)


if __name__ == "__main__":
    main()
