"""DQN on CartPole with actors in processes of their own, which share the buffer's memory with the learner.

    python examples/actors.py
    python examples/actors.py --seed 1 --actors 2

The buffer is in a folder in shared memory. Actors (``actor.py``) attach to it and insert transitions with their first
priorities; they need no MindSpore, evaluate the network with NumPy, and read newer weights from there. One call
of a compiled graph draws a prioritized batch from the same rows, learns from it, and writes the new priorities. A rate
limiter keeps actors and learner in step by counts, so the number of updates per transition does not depend on the speed
of the machine; the schedule of the processes does, and two runs with one seed differ.

Options, evaluations and files are those of ``dqn.py``: the learning curve and the history are written to
``runs/actors_cartpole_seed<seed>/``. ``apex_dqn.py`` does the same with Ray, on several machines if need be.

Reference:
    Horgan et al. 2018, Distributed Prioritized Experience Replay, https://arxiv.org/abs/1803.00933. Omitted: its n-step
    returns.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from actor import ROWS, SETTINGS
from dqn import make_network
from dqn_prioritized import DuelingHead, PrioritizedLearner
from mindspore import Tensor, nn
from run import EVALUATION_SEED, Run, command_line, make_envs

from mindspore_replay import Collector, SharedWeights, create_buffer


def whole_lines(file: Any) -> list[str]:
    """Read the lines that another process has written since the last call; the rest of a line is left for the next."""
    begin, text = file.tell(), file.read()
    lines = text[: text.rfind("\n") + 1]
    file.seek(begin + len(lines))
    return lines.splitlines()


@contextlib.contextmanager
def acting(program: str, number: int, shared: Path, *buffers: nn.Cell) -> Iterator[Callable[[], list[float]]]:
    """Run actors during the block; then close the buffers, which ends them.

    Yields a function that returns the returns of the episodes that ended since its last call. It raises a RuntimeError
    if an actor has ended.
    """
    command = [sys.executable, str(Path(__file__).with_name(program)), str(shared)]
    actors: list[subprocess.Popen] = []
    with contextlib.ExitStack() as files:
        outputs = [files.enter_context(open(shared / f"returns.{i}", "w+")) for i in range(number)]

        def ended() -> list[float]:
            for i, actor in enumerate(actors):
                if actor.poll() is not None:
                    raise RuntimeError(f"actor {i} ended with exit code {actor.returncode}")
            return [float(line) for file in outputs for line in whole_lines(file)]

        try:
            for i, output in enumerate(outputs):
                with open(output.name, "a") as written:
                    actors.append(subprocess.Popen([*command, str(i)], stdout=written, start_new_session=True))
            yield ended
        finally:
            for buffer in buffers:
                buffer.close()
            for actor in actors:
                try:
                    actor.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    actor.kill()


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Make a folder in shared memory, if there is that."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def train(
    run: Run,
    learner: nn.Cell,
    greedy: Callable[[np.ndarray], Any],
    shared: Path,
    learn: Callable[[], Tensor] | None = None,
    program: str = "actor.py",
    steps_of_row: int = 1,
) -> None:
    """Learn from the actors' rows; evaluate on the way.

    Args:
        run (Run): The run.
        learner (nn.Cell): Has the `network` to evaluate, the `weights` that actors need, and the `buffer`.
        greedy (Callable): Returns the actions of an evaluation.
        shared (Path): Folder in shared memory, with the buffer in `ROWS`.
        learn (Callable): Learns once. Default: a call of the `learner`.
        program (str): The program of an actor.
        steps_of_row (int): Environment steps in a row of the buffer.
    """
    config, buffer, learn = run.config, learner.buffer, learn or learner
    weights = SharedWeights(buffer)
    weights.publish({weight.name: weight for weight in learner.weights})
    (shared / SETTINGS).write_text(json.dumps({"config": config, "seed": run.options.seed}))
    evaluation = Collector(make_envs(config, config["evaluation"]["episodes"]), None, greedy, seed=EVALUATION_SEED)
    updates, begin = 0, time.perf_counter()
    with acting(program, config["actors"]["number"], shared, buffer) as ended:
        while not run.done:
            try:
                with buffer.limiter.sampling(buffer.sample_size):  # waits for the actors
                    loss = learn()
            except TimeoutError:
                ended()
                raise
            updates += 1
            returns: list[float] = []
            if updates % config["learner"]["publish_every"] == 0:
                weights.publish({weight.name: weight for weight in learner.weights})
                returns = ended()
            if run.record(int(buffer.serials.asnumpy()[0]) * steps_of_row, returns, loss):
                run.evaluate(evaluation, learner.network)
        print(f"{run.step / (time.perf_counter() - begin):.0f} environment steps a second while learning")
    run.finish(evaluation, learner.network)


def main() -> None:
    run = Run(command_line(__doc__, "actors_cartpole", ["actors"]).parse_args())
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain, and all processes share the cores
    settings = run.config["learner"]
    size = settings["observation_scale"], settings["hidden"], 2, DuelingHead
    network, target = make_network(*size), make_network(*size)
    with shared_folder() as shared:
        buffer = create_buffer({**run.config["replay_buffer"], "seed": run.options.seed, "storage": shared / ROWS})
        learner = PrioritizedLearner(network, target, buffer, settings)
        train(run, learner, lambda observation: network(Tensor(observation)).asnumpy().argmax(1), shared)


if __name__ == "__main__":
    main()
