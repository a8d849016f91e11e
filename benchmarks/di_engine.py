"""Runs DI-engine's own programs with its buffers and with those of `mindspore_replay.di_engine` in their places.

    python benchmarks/di_engine.py                            # all pipelines with both, one after the other: an hour
    python benchmarks/di_engine.py dqn_deque --seeds 0 1      # one of them
    python benchmarks/di_engine.py dqn_deque --redraw         # also DI-engine's buffer with another seed of its draws
    python benchmarks/di_engine.py --speed                    # push, sample and update, side by side: a minute

The pipelines are DI-engine 0.5.3's for CartPole: DQN (``serial_pipeline``) on its buffers deque, naive and advanced
with priorities; R2D2 (``ding.example.r2d2``), which samples windows of groups; PPG (``cartpole_ppg_main``) on two
advanced buffers, without its auxiliary phase: that collapses the policy, since ``ding.rl_utils.ppg`` gives ``kl_div``
logarithms of probabilities. Each runs to its stop value, or to ``--limit`` seconds of the processor. DI-engine is
installed with PyTorch into an environment made for it, into which this command's environment is linked.
"""

import argparse
import functools
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from comparison.environments import ENVIRONMENTS, Installation

PIPELINES = ("dqn_deque", "dqn_naive", "dqn_advanced", "r2d2", "ppg")
WHOSE = ("DI-engine", "mindspore_replay")
REDRAWN = "DI-engine, redrawn"
EVALUATION = re.compile(r"Evaluation: Train Iter\((\d+)\)\s*Env Step\((\d+)\)\s*Episode Return\(([\d.]+)\)")


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with DI-engine, in which this project can be imported too."""
    python = Installation("", requirements="di_engine").python(folder)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    here = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "zz_this.pth").write_text("\n".join([*here, str(Path(__file__).resolve().parents[1])]) + "\n")
    return python


def pipeline(name: str, whose: str, seed: int) -> None:
    import copy
    import importlib
    import types

    import numpy as np
    import torch

    torch.set_num_threads(1)
    torch.Tensor.__repr__ = object.__repr__  # treevalue asks for it of each row: most of the time of R2D2's collector
    sys.modules["wandb"] = types.ModuleType("wandb")  # it needs another protobuf, and nothing here uses it
    import ding.config.config
    import ding.data
    import ding.framework.middleware.functional.data_processor as processor
    import ding.worker
    import yapf.yapflib.yapf_api
    from ding.entry import serial_pipeline
    from ding.utils import BUFFER_REGISTRY
    from easydict import EasyDict

    yapf.yapflib.yapf_api.FormatCode = lambda code: (code, True)  # of the configuration's file: it takes seconds
    evaluate = ding.worker.InteractionSerialEvaluator.eval

    def reported(self, save, train_iter, envstep, *args, **kwargs):
        stop, info = evaluate(self, save, train_iter, envstep, *args, **kwargs)
        mean = float(np.mean(info["eval_episode_return"]))
        print(f"Evaluation: Train Iter({train_iter}) Env Step({envstep}) Episode Return({mean:.1f})", flush=True)
        return stop, info

    ding.worker.InteractionSerialEvaluator.eval = reported
    kind = name.partition("_")[2]
    config = importlib.import_module(f"dizoo.classic_control.cartpole.config.cartpole_{name.partition('_')[0]}_config")
    main, create = copy.deepcopy(config.main_config), copy.deepcopy(config.create_config)
    main.exp_name = f"{name}_{whose}_{seed}"
    program = {"r2d2": "ding.example.r2d2", "ppg": "dizoo.classic_control.cartpole.entry.cartpole_ppg_main"}.get(name)
    module = importlib.import_module(program) if program else None
    if whose == REDRAWN:  # how much the draws alone decide: its rows are drawn by a generator of their own
        sys.modules["ding.data.buffer.deque_buffer"].random = random.Random(seed + 1000)
    elif whose != "DI-engine":
        import mindspore

        from mindspore_replay import di_engine

        mindspore.set_seed(seed)

        for one in ("naive", "advanced", "deque"):
            BUFFER_REGISTRY[one] = di_engine.get_buffer_cls({"type": one})
        places = [ding.data, ding.data.buffer, ding.worker, ding.config.config, processor, module]
        for place in places:
            for one in di_engine.__all__:
                if hasattr(place, one):
                    setattr(place, one, getattr(di_engine, one))
    if name == "r2d2":
        module.main_config.exp_name = main.exp_name
        module.compile_config = functools.partial(module.compile_config, seed=seed)
        module.main()
    elif name == "ppg":
        main.policy.learn.update(adv_norm=True, aux_freq=10**9)
        main.policy.collect.discount_factor = 0.99  # as of the policy's default configuration
        module.main(main, seed=seed)
    else:
        create.replay_buffer = EasyDict(type=kind, import_names=["ding.data.buffer.deque_buffer_wrapper"])
        main.policy.update(priority=kind == "advanced", priority_IS_weight=kind == "advanced")
        serial_pipeline((main, create), seed=seed)


def speed() -> None:
    """Print microseconds of the processor for calls on 10,000 CartPole rows, medians of rounds in turns."""
    import logging
    import statistics
    import types

    import numpy as np
    import torch

    torch.set_num_threads(1)
    sys.modules["wandb"] = types.ModuleType("wandb")
    logging.disable(logging.CRITICAL)
    from ding.data.buffer import DequeBuffer
    from ding.utils.data import default_collate
    from ding.worker.replay_buffer import AdvancedReplayBuffer

    from mindspore_replay import di_engine

    rows, n = 10_000, 64
    theirs = {"obs": torch.zeros(4), "action": torch.tensor(1), "reward": torch.ones(1), "next_obs": torch.zeros(4)}
    ours = {"obs": np.zeros(4, np.float32), "action": 1, "reward": 1.0, "next_obs": np.zeros(4, np.float32)}
    kinds = {"DI-engine": theirs, "objects": theirs, "columns": ours}
    deques = {"DI-engine": DequeBuffer(rows)} | {kind: di_engine.DequeBuffer(rows) for kind in ("objects", "columns")}
    cfg = AdvancedReplayBuffer.default_config()
    cfg.replay_buffer_size = rows
    advanced = {"DI-engine": AdvancedReplayBuffer(cfg, None)}
    advanced |= {kind: di_engine.AdvancedReplayBuffer({"replay_buffer_size": rows}) for kind in ("objects", "columns")}
    for kind, row in kinds.items():
        for _ in range(rows):
            deques[kind].push(row)
            advanced[kind].push(dict(row), 0)

    def batch(kind):
        if kind == "columns":
            replay = deques[kind].replay.with_sample_size(n)
            return lambda: replay.sample(as_dict=True)
        return lambda: default_collate([row.data for row in deques[kind].sample(n)])

    def update(kind):
        drawn = advanced[kind].sample(n, 0)
        info = {key: [row[key] for row in drawn] for key in ("replay_unique_id", "replay_buffer_idx")}
        return lambda: advanced[kind].update({**info, "priority": [1.0] * n})

    cases = {
        "deque: push one row": lambda kind: lambda: deques[kind].push(kinds[kind]),
        f"deque: sample {n} rows": lambda kind: lambda: deques[kind].sample(n),
        f"deque: {n} rows as a batch of tensors": batch,
        "advanced: push one row": lambda kind: lambda: advanced[kind].push(dict(kinds[kind]), 0),
        f"advanced: sample {n} rows": lambda kind: lambda: advanced[kind].sample(n, 0),
        f"advanced: update {n} priorities": update,
    }
    print("| microseconds | " + " | ".join(kinds) + " |\n|---" + "|---" * len(kinds) + "|")
    for case, make in cases.items():
        calls = {kind: make(kind) for kind in kinds}
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(15):
            for kind, call in calls.items():
                begin = time.process_time()
                for _ in range(50):
                    call()
                taken[kind].append((time.process_time() - begin) / 50 * 1e6)
        print(f"| {case} | " + " | ".join(f"{statistics.median(one):.1f}" for one in taken.values()) + " |", flush=True)


def run(python: Path, name: str, whose: str, seed: int, limit: int, out: Path) -> str:
    """Run a pipeline in a process of its own; return a row of the table."""
    command = [str(python), str(Path(__file__).resolve()), "--inside", json.dumps([name, whose, seed])]
    log, before = out / f"{name}_{whose}_{seed}.log", os.times()
    limited = functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (limit, limit + 9))
    with log.open("w") as file:
        code = subprocess.run(command, cwd=out, stdout=file, stderr=subprocess.STDOUT, preexec_fn=limited).returncode
    end = {0: "reached", -signal.SIGXCPU: "limit"}.get(code, f"exit code {code}")
    found = EVALUATION.findall(re.sub(r"\s+", " ", log.read_text(errors="replace")))
    last, best = (found[-1], max(float(one[2]) for one in found)) if found else (("", "", ""), 0.0)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return f"| {name} | {whose} | {seed} | {end} | {best:.1f} | {last[0]} | {last[1]} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipelines", nargs="*", help=f"some of {', '.join(PIPELINES)} (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="(default: 0)")
    parser.add_argument("--limit", type=int, default=900, help="processor seconds of a run (default: 900)")
    parser.add_argument("--out", type=Path, default=Path("runs/di_engine"), help="of logs (default: %(default)s)")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="(default: %(default)s)")
    parser.add_argument("--redraw", action="store_true", help="run DQN on deque with other draws of DI-engine's too")
    parser.add_argument("--speed", action="store_true", help="compare calls in place of pipelines")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside = json.loads(options.inside)
        return speed() if inside == "speed" else pipeline(*inside)
    if set(options.pipelines) - set(PIPELINES):
        parser.error(f"pipelines are {', '.join(PIPELINES)}")
    python = environment(options.environments)
    if options.speed:
        command = [str(python), str(Path(__file__).resolve()), "--inside", '"speed"']
        with tempfile.TemporaryDirectory() as folder:  # in which DI-engine logs
            subprocess.run(command, cwd=folder, stderr=subprocess.DEVNULL, check=True)
        return None
    options.out.mkdir(parents=True, exist_ok=True)
    print(
        "| pipeline | buffers | seed | stop value | best return | iterations | steps | seconds |\n" + "|---" * 8 + "|"
    )
    for name in options.pipelines or PIPELINES:
        for seed in options.seeds:
            for whose in (*WHOSE, REDRAWN) if options.redraw and name == "dqn_deque" else WHOSE:
                print(run(python, name, whose, seed, options.limit, options.out.resolve()), flush=True)
    return None


if __name__ == "__main__":
    main()
