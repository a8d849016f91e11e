"""Deep Q-learning in MindSpore RL's style: a whole episode is one compiled function.

    python examples/msrl_style_dqn.py               # one to two minutes on two CPU cores
    python examples/msrl_style_dqn.py --episodes 3

The environment is written in MindSpore's operators, so the loop of acting, stepping, storing, sampling and learning
never returns to Python before the episode ends. As in MindSpore RL, the trainer takes the buffer's bound methods, and
the configuration of the buffer has MindSpore RL's keys.
"""

import argparse
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from run import add_device_option, use_device
from tqdm import tqdm

from mindspore_replay import ReplayBuffer, create_buffer, load_config

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "msrl_style_dqn.yaml"


def uniform(n: int) -> Tensor:
    """Return uniform random numbers. Shape ``[n]``, float32, in [0, 1].

    They are computed from normal ones: MindSpore 2.10 deprecates ``ops.rand``, and ``mint.rand`` does not run on the
    CPU.
    """
    return 0.5 + 0.5 * ops.erf(ops.standard_normal((n,)) * 0.5**0.5)


class CartPole(nn.Cell):
    """The physics, rewards and limits of gymnasium's CartPole-v1, in MindSpore's operators.

    The state is position, velocity, angle and angular velocity, in metres, radians and seconds. Shape ``[4]``.
    """

    gravity, pole_mass, total_mass, half_length, force, dt = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
    position_limit, angle_limit, step_limit = 2.4, 12 * 2 * np.pi / 360, 500

    def __init__(self) -> None:
        super().__init__()
        self.state = Parameter(Tensor(np.zeros(4, np.float32)), name="state", requires_grad=False)
        self.steps = Parameter(Tensor(0, ms.int32), name="steps", requires_grad=False)
        self.no_steps = Tensor(0, ms.int32)
        self.reward = Tensor([1.0], ms.float32)

    def reset(self) -> Tensor:
        """Start an episode and return its first state."""
        state = 0.1 * uniform(4) - 0.05
        ops.assign(self.state, state)
        ops.assign(self.steps, self.no_steps)
        return state

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Push the cart to the left (0) or to the right (1). Return the state, reward, terminated and truncated."""
        speed, angle, spin = self.state[1], self.state[2], self.state[3]
        force = self.force * (2.0 * action[0].astype(ms.float32) - 1.0)
        cos, sin = ops.cos(angle), ops.sin(angle)
        pole = self.pole_mass * self.half_length
        push = (force + pole * spin * spin * sin) / self.total_mass
        spin_up = (self.gravity * sin - cos * push) / (
            self.half_length * (4.0 / 3.0 - self.pole_mass * cos * cos / self.total_mass)
        )
        speed_up = push - pole * spin_up * cos / self.total_mass
        change = ops.stack((speed, speed_up, spin, spin_up))
        state = self.state + self.dt * change
        steps = self.steps + 1
        ops.assign(self.state, state)
        ops.assign(self.steps, steps)
        terminated = ops.logical_or(ops.abs(state[0]) > self.position_limit, ops.abs(state[2]) > self.angle_limit)
        return state, self.reward, terminated.reshape((1,)), steps >= self.step_limit


class QNetwork(nn.Cell):
    """Values of the two actions, for a batch of states ``[B, 4]``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.scale = Tensor([1.0, 1.0, 10.0, 1.0], ms.float32)  # the angle is much smaller than the other inputs
        self.layers = nn.SequentialCell(
            nn.Dense(4, hidden), nn.ReLU(), nn.Dense(hidden, hidden), nn.ReLU(), nn.Dense(hidden, 2)
        )

    def construct(self, state: Tensor) -> Tensor:
        return self.layers(state * self.scale)


class DQNTrainer(nn.Cell):
    """Runs episodes of acting and learning, each in one compiled function.

    Args:
        replay_buffer (ReplayBuffer): Columns state, action, reward, next state, terminated.
        environment (CartPole): The environment.
        config (dict): Settings: `gamma`, and `learner` with `hidden`, `learning_rate` and `tau`.
    """

    def __init__(self, replay_buffer: ReplayBuffer, environment: CartPole, config: dict) -> None:
        super().__init__()
        self.replay_buffer_insert = replay_buffer.insert
        self.replay_buffer_sample = replay_buffer.sample
        self.env_reset = environment.reset
        self.env_step = environment.step
        settings = config["learner"]
        self.network = QNetwork(settings["hidden"])
        self.target = QNetwork(settings["hidden"])
        self.weights = self.network.trainable_params()
        self.target_weights = self.target.trainable_params()
        for weight, target_weight in zip(self.weights, self.target_weights):
            target_weight.set_data(Tensor(weight.asnumpy().copy()))
            target_weight.requires_grad = False
        self.optimizer = nn.Adam(self.weights, settings["learning_rate"])
        self.loss_and_gradients = ms.value_and_grad(self.loss, None, self.weights)
        self.gamma = config["gamma"]
        self.tau = settings["tau"]
        self.zero = Tensor(0.0, ms.float32)
        self.false = Tensor(False)

    @ms.jit
    def collect_episode(self):
        """Store an episode of random actions and return its length."""
        state = self.env_reset()
        total, done = self.zero, self.false
        while not done:
            action = (uniform(1) < 0.5).astype(ms.int32)
            next_state, reward, terminated, truncated = self.env_step(action)
            self.replay_buffer_insert([state, action, reward, next_state, terminated])
            state = next_state
            total = total + reward[0]  # not +=, which would modify the constant self.zero in place
            done = ops.logical_or(terminated[0], truncated)
        return total

    @ms.jit
    def train_episode(self, epsilon):
        """Run an episode of epsilon-greedy actions with a learning step after each.

        Return its return and the mean loss.
        """
        state = self.env_reset()
        total, total_loss, done = self.zero, self.zero, self.false
        while not done:
            action = self.act(state, epsilon)
            next_state, reward, terminated, truncated = self.env_step(action)
            self.replay_buffer_insert([state, action, reward, next_state, terminated])
            total_loss = total_loss + self.learn(self.replay_buffer_sample())
            state = next_state
            total = total + reward[0]
            done = ops.logical_or(terminated[0], truncated)
        return total, total_loss / total

    def act(self, state, epsilon):
        """Choose an epsilon-greedy action. Shape ``[1]``, int32."""
        draw = uniform(2)
        greedy = ops.argmax(self.network(ops.expand_dims(state, 0)), 1).astype(ms.int32)
        return ops.select(draw[:1] < epsilon, (draw[1:] < 0.5).astype(ms.int32), greedy)

    def learn(self, batch):
        """Take one step of double Q-learning on a batch and move the target. Return the loss."""
        state, action, reward, next_state, terminated = batch
        next_action = ops.expand_dims(ops.argmax(self.network(next_state), 1), 1)
        next_value = ops.gather_elements(self.target(next_state), 1, next_action)
        wanted = reward + self.gamma * (1.0 - terminated.astype(ms.float32)) * next_value
        loss, gradients = self.loss_and_gradients(state, action, wanted)
        self.optimizer(gradients)
        for weight, target_weight in zip(self.weights, self.target_weights):
            ops.assign(target_weight, target_weight + self.tau * (weight - target_weight))
        return loss

    def loss(self, state, action, wanted):
        """Return the Huber loss between the values of the actions taken and their targets."""
        return ops.huber_loss(ops.gather_elements(self.network(state), 1, action), wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--episodes", type=int, help="default: from the configuration")
    parser.add_argument("--seed", type=int, default=0)
    add_device_option(parser)
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    ms.set_seed(arguments.seed)
    config = load_config(arguments.config)
    episodes = arguments.episodes or config["episodes"]

    replay_buffer = create_buffer({**config["replay_buffer"], "seed": arguments.seed})
    trainer = DQNTrainer(replay_buffer, CartPole(), config)
    while int(replay_buffer.size()) < config["init_collect_size"]:
        trainer.collect_episode()
    plan = config["epsilon"]
    returns: list[float] = []
    bar = tqdm(range(episodes), unit="episode", dynamic_ncols=True)
    for episode in bar:
        epsilon = plan["start"] + min(episode / plan["episodes"], 1.0) * (plan["end"] - plan["start"])
        total, loss = trainer.train_episode(Tensor(epsilon, ms.float32))
        returns.append(float(total))
        bar.set_postfix_str(f"return {np.mean(returns[-20:]):.0f}, loss {float(loss):.4f}")
        if (episode + 1) % 20 == 0:
            tqdm.write(f"episode {episode + 1}: mean return of the last 20: {np.mean(returns[-20:]):.1f}")
    print(f"{int(sum(returns))} steps; mean return of the first 20 episodes {np.mean(returns[:20]):.1f}", end="")
    print(f", of the last 20 {np.mean(returns[-20:]):.1f}")


if __name__ == "__main__":
    main()
