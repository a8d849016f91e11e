"""stable-baselines3: its `ReplayBuffer`, which holds NumPy arrays and returns torch tensors, and its DQN."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her import HerReplayBuffer

from ..answering import Work, answer
from ..cases import DQN, GAMMA, GOALS, N_STEP, REACHED, STACK, Case, Schema, chunks_of
from .torch_peer import TorchPeer

FOUR_TIMES = "stacks are stored once, so that a frame is stored four times"
#: The library's names of columns.
ARRAYS = {
    "observation": "observations",
    "next_observation": "next_observations",
    "action": "actions",
    "reward": "rewards",
    "terminated": "dones",
}


def space_of(shape: tuple[int, ...], dtype: str) -> spaces.Space[Any]:
    if dtype == "int32":
        return spaces.Discrete(2)
    high = 255 if dtype == "uint8" else 1
    return spaces.Box(0, high, shape, np.dtype(dtype).type)


def filled(
    schema: Schema, capacity: int, environments: int = 1, kind: type[ReplayBuffer] = ReplayBuffer, **options: Any
) -> ReplayBuffer:
    buffer = kind(
        capacity,
        space_of(*schema["observation"]),
        space_of(*schema["action"]),
        "cpu",
        n_envs=environments,
        handle_timeout_termination=False,
        **options,
    )
    steps = buffer.buffer_size
    start = 0
    for rows in chunks_of(schema, steps * environments):
        stop = start + len(rows["reward"])
        for name, column in rows.items():
            array = getattr(buffer, ARRAYS[name])
            shape = array.shape[2:]
            array.reshape(steps * environments, *shape)[start:stop] = column.reshape(len(column), *shape)
        start = stop
    buffer.full = True
    return buffer


def add(buffer: ReplayBuffer, rows: Mapping[str, Any]) -> None:
    """Add a row of each environment."""
    action = np.asarray(rows["action"])
    buffer.add(rows["observation"], rows["next_observation"], action, rows["reward"], rows["terminated"], [])


class Reach(gymnasium.Env[Any, Any]):
    """An environment that is never stepped: the library asks it for rewards."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def compute_reward(self, achieved: np.ndarray, goal: np.ndarray, _: Any) -> np.ndarray:
        return (np.linalg.norm(achieved - goal, axis=-1) < REACHED).astype(np.float32) - 1


class StableBaselines3(TorchPeer):
    """Measures stable-baselines3."""

    packages = ("stable-baselines3", "torch")
    lacks: Mapping[str, str] = {
        **dict.fromkeys(("prioritized_insert", "prioritized_sample", "prioritized_update"), "no prioritized replay"),
        "sequences": "no sequences",
    }
    notes: Mapping[str, str] = {
        **dict.fromkeys(("frames_bytes", "frames_sample"), FOUR_TIMES),
        "n_step": "returns are made when they are sampled",
    }

    def filled(self, case: Case) -> ReplayBuffer:
        return filled(case.schema, case.capacity)

    def insert(self, case: Case) -> Work:
        """One row, or one step of as many environments as the batch has rows."""
        work = self.insertion(filled(case.schema, case.capacity, case.batch), case)
        work.note = f"one step of a buffer that was made for {case.batch:,} environments" if case.batch > 1 else ""
        return work

    def adding(self, buffer: ReplayBuffer, case: Case) -> Callable[[Any], None]:
        return lambda row: add(buffer, row)

    def extending(self, buffer: ReplayBuffer, rows: dict[str, np.ndarray]) -> Callable[[], None]:
        n = len(rows["reward"])
        rows = {"terminated": np.zeros(n, bool), **rows, "reward": rows["reward"].reshape(n)}
        return lambda: add(buffer, rows)

    def drawing(self, buffer: ReplayBuffer, case: Case) -> Callable[[], Any]:
        return lambda: buffer.sample(case.batch)

    def frames(self, case: Case) -> ReplayBuffer:
        shape, dtype = case.schema["observation"]
        schema: Schema = {**case.schema, "observation": ((*shape, STACK), dtype)}
        return filled(schema, case.capacity, optimize_memory_usage=True)

    def bytes_of(self, buffer: ReplayBuffer) -> int:
        return sum(value.nbytes for value in vars(buffer).values() if isinstance(value, np.ndarray))

    def hindsight(self, case: Case) -> Work:
        parts = ("observation", "achieved_goal", "desired_goal")
        observations = spaces.Dict({name: space_of(*case.schema[name]) for name in parts})
        actions = space_of(*case.schema["action"])
        env = DummyVecEnv([lambda: Reach(observations, actions)])
        options = {"n_sampled_goal": GOALS, "goal_selection_strategy": "future", "handle_timeout_termination": False}
        buffer = HerReplayBuffer(case.capacity, observations, actions, env, "cpu", **options)
        for rows in chunks_of(case.schema, case.capacity):
            for i in range(len(rows["reward"])):
                one = {name: column[i : i + 1] for name, column in rows.items()}
                now = {name: one[name] for name in parts}
                then = {"observation": one["next_observation"], "achieved_goal": one["next_achieved_goal"]}
                row = (one[name] for name in ("action", "reward", "terminated"))
                buffer.add(now, {**then, "desired_goal": one["desired_goal"]}, *row, [{}])
        return Work(self.drawing(buffer, case))

    def with_returns(self, case: Case) -> ReplayBuffer:
        return filled(case.schema, case.capacity, kind=NStepReplayBuffer, n_steps=N_STEP, gamma=GAMMA)

    def saving(self, buffer: ReplayBuffer, path: Path) -> Callable[[], None]:
        return lambda: save_to_pkl(path.with_suffix(".pkl"), buffer)

    def loading(self, buffer: ReplayBuffer, path: Path) -> Callable[[], Any]:
        return lambda: load_from_pkl(path.with_suffix(".pkl"))

    def dqn(self, case: Case) -> Work:
        return self.agent(DQN["steps_a_call"], train_freq=1, gradient_steps=1)

    def dqn_bursts(self, case: Case) -> Work:
        steps = DQN["burst_steps"]
        return self.agent(steps, train_freq=steps, gradient_steps=DQN["burst_updates"])

    def agent(self, steps: int, **schedule: int) -> Work:
        """Return work of `steps` steps of the environment per call."""
        agent = stable_baselines3.DQN(
            "MlpPolicy",
            "CartPole-v1",
            learning_rate=DQN["learning_rate"],
            buffer_size=DQN["capacity"],
            learning_starts=DQN["learning_starts"],
            batch_size=DQN["batch_size"],
            gamma=DQN["gamma"],
            **schedule,
            target_update_interval=DQN["target_every"],
            exploration_initial_eps=DQN["epsilon"],
            exploration_final_eps=DQN["epsilon"],
            max_grad_norm=DQN["max_grad_norm"],
            policy_kwargs={"net_arch": DQN["hidden"]},
            seed=0,
            device="cpu",
        )
        agent.learn(DQN["learning_starts"])
        return Work(lambda: agent.learn(steps, reset_num_timesteps=False), each=steps)


if __name__ == "__main__":
    answer(StableBaselines3())
