"""stable-baselines3: its `ReplayBuffer`, which holds NumPy arrays and returns torch tensors, and its DQN."""

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
from ..cases import DQN, GAMMA, GOALS, N_STEP, REACHED, STACK, Case, Schema, batch_of, chunks_of, in_turn, single_rows
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
    """Return the space of a column."""
    if dtype == "int32":
        return spaces.Discrete(2)
    high = 255 if dtype == "uint8" else 1
    return spaces.Box(0, high, shape, np.dtype(dtype).type)


def filled(
    schema: Schema, capacity: int, environments: int = 1, kind: type[ReplayBuffer] = ReplayBuffer, **options: Any
) -> ReplayBuffer:
    """Return a full buffer."""
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
            array.reshape(steps * environments, *array.shape[2:])[start:stop] = column.reshape(
                len(column), *array.shape[2:]
            )
        start = stop
    buffer.full = True
    return buffer


class Reach(gymnasium.Env[Any, Any]):
    """An environment that is never stepped: the library asks it for rewards."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def compute_reward(self, achieved: np.ndarray, goal: np.ndarray, _: Any) -> np.ndarray:
        """Return 0 for a goal that is reached and else -1."""
        return (np.linalg.norm(achieved - goal, axis=-1) < REACHED).astype(np.float32) - 1


class StableBaselines3(TorchPeer):
    """Measures stable-baselines3."""

    packages = ("stable-baselines3", "torch")
    lacks = (
        *((f"prioritized_{work}", "no prioritized replay") for work in ("insert", "sample", "update")),
        ("sequences", "no sequences"),
    )

    def insert(self, case: Case) -> Work:
        """One row, or one step of as many environments as the batch has rows."""
        buffer = filled(case.schema, case.capacity, case.batch)
        if case.batch == 1:
            return Work(in_turn(lambda row: self._add(buffer, row), case.single_rows()))
        rows = batch_of(case.schema, case.batch)
        rows["reward"] = rows["reward"].reshape(case.batch)
        if "terminated" not in rows:
            rows["terminated"] = np.zeros(case.batch, bool)
        return Work(
            lambda: self._add(buffer, rows), note=f"one step of a buffer that was made for {case.batch:,} environments"
        )

    @staticmethod
    def _add(buffer: ReplayBuffer, rows: dict[str, Any]) -> None:
        buffer.add(
            rows["observation"],
            rows["next_observation"],
            np.asarray(rows["action"]),
            rows["reward"],
            rows["terminated"],
            [],
        )

    def sample(self, case: Case) -> Work:
        """A batch."""
        buffer = filled(case.schema, case.capacity)
        return Work(lambda: buffer.sample(case.batch))

    def _stacks(self, case: Case) -> ReplayBuffer:
        shape, dtype = case.schema["observation"]
        schema: Schema = {**case.schema, "observation": ((*shape, STACK), dtype)}
        return filled(schema, case.capacity, optimize_memory_usage=True)

    def frames_bytes(self, case: Case) -> Work:
        """Bytes of its arrays by row."""
        buffer = self._stacks(case)
        arrays = [value for value in vars(buffer).values() if isinstance(value, np.ndarray)]
        return Work(lambda: sum(array.nbytes for array in arrays) / case.capacity, note=FOUR_TIMES)

    def frames_sample(self, case: Case) -> Work:
        """A batch."""
        buffer = self._stacks(case)
        return Work(lambda: buffer.sample(case.batch), note=FOUR_TIMES)

    def hindsight(self, case: Case) -> Work:
        """A batch with other goals."""
        parts = ("observation", "achieved_goal", "desired_goal")
        spaces_of_parts = spaces.Dict({name: space_of(*case.schema[name]) for name in parts})
        actions = space_of(*case.schema["action"])
        env = DummyVecEnv([lambda: Reach(spaces_of_parts, actions)])
        buffer = HerReplayBuffer(
            case.capacity,
            spaces_of_parts,
            actions,
            env,
            "cpu",
            n_sampled_goal=GOALS,
            goal_selection_strategy="future",
            handle_timeout_termination=False,
        )
        for rows in chunks_of(case.schema, case.capacity):
            for i in range(len(rows["reward"])):
                now = {name: rows[name][i : i + 1] for name in parts}
                then = {
                    "observation": rows["next_observation"][i : i + 1],
                    "achieved_goal": rows["next_achieved_goal"][i : i + 1],
                    "desired_goal": now["desired_goal"],
                }
                row = (rows[name][i : i + 1] for name in ("action", "reward", "terminated"))
                buffer.add(now, then, *row, [{}])
        return Work(lambda: buffer.sample(case.batch))

    def n_step(self, case: Case) -> Work:
        """An insertion and a batch."""
        buffer = filled(case.schema, case.capacity, kind=NStepReplayBuffer, n_steps=N_STEP, gamma=GAMMA)
        insert = in_turn(lambda row: self._add(buffer, row), single_rows(case.schema))
        return Work(lambda: (insert(), buffer.sample(case.batch)), note="returns are made when they are sampled")

    def save(self, case: Case) -> Work:
        """A pickle."""
        buffer = filled(case.schema, case.capacity)
        path = self.folder / "buffer.pkl"
        return Work(lambda: save_to_pkl(path, buffer))

    def load(self, case: Case) -> Work:
        """Load the pickle as a new buffer."""
        path = self.folder / "buffer.pkl"
        save_to_pkl(path, filled(case.schema, case.capacity))
        return Work(lambda: load_from_pkl(path))

    def dqn(self, case: Case) -> Work:
        """Its own agent and loop."""
        return self.agent(DQN["steps_a_call"], train_freq=1, gradient_steps=1)

    def dqn_bursts(self, case: Case) -> Work:
        """The same, with many updates after many steps."""
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
