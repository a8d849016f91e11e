"""Makes the same random calls on DI-engine's buffers and on `mindspore_replay.di_engine`, and counts differences.

``python benchmarks/di_engine.py --behaviour`` runs it in the environment that it makes. Compared is what DI-engine
defines: rows, their order, indices, use counts, ages, groups, windows, priorities, weights, counts, and whether a call
is refused. Where it draws at random, all rows of a range are asked for, or frequencies are compared. Its `delete`
leaves wrong indices behind, so here it has one that does not.
"""

import logging
import random
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

SEEDS = 20


def drawn(buffer: Any, **how: Any) -> Any:
    """Return the rows of a sample, or that it was refused."""
    try:
        return buffer.sample(**how)
    except (ValueError, AssertionError):
        return "refused"


def steps(rows: Any) -> list[int]:
    return sorted(row.data["step"] for row in rows)


def state(buffer: Any, *keys: str) -> list[Any]:
    return [(row.data["step"], *(row.meta.get(key) for key in keys)) for row in buffer]


def deque_calls(theirs: Any, ours: Any, rng: random.Random, same: Callable[..., None]) -> None:
    """Pushes, updates, ranges and groups on buffers that overflow."""
    size = rng.randint(1, 9)
    pair, indices = (theirs.DequeBuffer(size), ours.DequeBuffer(size, objects=rng.random() < 0.5)), ([], [])
    for step in range(60):
        number, call = pair[0].count(), rng.choice(["push"] * 3 + ["update", "get", "range", "groups", "clear"])
        if call == "push":
            meta = rng.choice([None, {"group": rng.randint(0, 2)}])
            rows = [buffer.push({"step": step}, meta and dict(meta)) for buffer in pair]
            for known, row in zip(indices, rows):
                known.append(row.index)
            same(*((row.data, row.meta) for row in rows))
        elif call == "update" and indices[0]:
            which, meta, data = (
                rng.randrange(len(indices[0])),
                rng.choice([None, {}]),
                rng.choice([None, {"step": -step}]),
            )
            same(*(buffer.update(known[which], data, meta) for buffer, known in zip(pair, indices)))
        elif call == "get" and number:
            position = rng.randrange(-number, number)
            same(*(buffer[position].data for buffer in pair))
        elif call == "range":
            chosen = slice(*sorted((rng.randint(0, size), rng.randint(0, size))), rng.choice([None, 1, 2]))
            for n in len(range(number)[chosen]), len(range(number)[chosen]) + 1:
                if n:
                    rows = [drawn(buffer, size=n, sample_range=chosen) for buffer in pair]
                    same(*(one if one == "refused" else steps(one) for one in rows))
        elif call == "groups" and number and all("group" in row.meta for row in pair[0]):
            groups = len({row.meta["group"] for row in pair[0]})
            same(*(sorted(map(steps, buffer.sample(groups, groupby="group"))) for buffer in pair))
            same(*(len(drawn(buffer, size=groups + 1, groupby="group")) for buffer in pair))
        elif call == "clear" and rng.random() < 0.1:
            indices = ([], [])
            for buffer in pair:
                buffer.clear()
        same(*((state(buffer, "group"), buffer.count(), len(buffer)) for buffer in pair))


def middleware(theirs: Any, ours: Any, rng: random.Random, same: Callable[..., None]) -> None:
    """Use counts, ages, groups, padding, ranges and deletions."""
    both, objects = (theirs, ours), rng.random() < 0.5
    limit = rng.randint(1, 4)

    def pair(rows: int = 0, size: int = 200) -> list[Any]:
        made = [theirs.DequeBuffer(size), ours.DequeBuffer(size, objects=objects)]
        metas = [{"group": step % 4 if step < 12 else rng.randint(0, 3)} for step in range(rows)]
        for buffer in made:
            for step, meta in enumerate(metas):
                buffer.push({"step": step}, dict(meta))
        return made

    used = pair(12)
    for buffer, of in zip(used, both):
        buffer.use(of.use_time_check(buffer, limit))
    while number := used[0].count():
        chosen = rng.sample(range(number), rng.randint(1, number))
        same(*(state(b.sample(indices=[b[i].index for i in chosen]), "use_count") for b in used))
        same(*(state(buffer, "use_count") for buffer in used))
    aged, clock = pair(), 0
    for buffer, of in zip(aged, both):
        buffer.use(of.staleness_check(buffer, limit))
    for step in range(30):
        collected = max(0, clock - rng.randint(0, 2))
        for buffer in aged:
            buffer.push({"step": step}, meta={"train_iter_data_collected": collected})
        clock += rng.randint(0, 2)
        fresh = sum(clock - row.meta["train_iter_data_collected"] <= limit for row in aged[0])
        rows = [drawn(buffer, size=max(fresh, 1), train_iter_sample_data=clock) for buffer in aged]
        same(*(one if one == "refused" else sorted(state(one, "staleness")) for one in rows))
        same(*(buffer.count() for buffer in aged))
    grouped = pair(20)
    for arguments in (3, True, True), (3, True, False), (30, True, True):
        views = [b.view().use(of.group_sample(*arguments)) for b, of in zip(grouped, both)]
        same(*({tuple(steps(group)) for _ in range(80) for group in v.sample(4, groupby="group")} for v in views))
    views = [b.view().use(of.padding("none")) for b, of in zip(grouped, both)]
    same(*(sorted([(r.data and r.data["step"]) or 0 for r in g] for g in v.sample(4, groupby="group")) for v in views))
    full = pair(20, size=20)
    start, end = sorted(rng.sample(range(-20, 0), 2))
    views = [b.view().use(of.sample_range_view(b, start, end)) for b, of in zip(full, both)]
    same(*(steps(view.sample(end - start)) for view in views))
    removed = rng.sample(range(20), 7)
    for buffer in full:
        buffer.delete([buffer[i].index for i in removed])
    same(*((state(buffer), steps(buffer.sample(13))) for buffer in full))


def windows(theirs: Any, ours: Any, rng: random.Random, same: Callable[..., None]) -> None:
    """Windows of groups: at multiples the same; otherwise DI-engine's, and the last that fits."""
    number = rng.randint(4, 12)
    for sliced in False, True:
        pair = theirs.DequeBuffer(50, sliced=sliced), ours.DequeBuffer(50, sliced=sliced)
        found = []
        for buffer in pair:
            for step in range(number):
                buffer.push({"step": step}, {"env": 0})
            draws = [buffer.sample(1, groupby="env", unroll_len=4)[0] for _ in range(200)]
            found.append({tuple(steps(rows)) for rows in draws})
        same(found[0] | (set() if sliced else {tuple(range(number - 4, number))}), found[1])


def weights(theirs: Any, ours: Any, rng: random.Random, same: Callable[..., None]) -> None:
    """Weights by priority, which grow with beta."""
    pair = theirs.DequeBuffer(8), ours.DequeBuffer(8, objects=rng.random() < 0.5)
    for buffer, of in zip(pair, (theirs, ours)):
        buffer.use(of.PriorityExperienceReplay(buffer, IS_weight_anneal_train_iter=9))
    for pushed in range(18):
        new = {"step": rng.randint(0, 10**9)}, rng.uniform(0.1, 3)
        for buffer in pair:
            buffer.push(dict(new[0]), {"priority": new[1]})
        if pushed < 7:
            continue
        updated = rng.uniform(0.1, 3)
        found: list[dict[int, Any]] = [{}, {}]
        for of_buffer, buffer in zip(found, pair):
            buffer.update(buffer[0].index, None, {**buffer[0].meta, "priority": updated})
            for row in buffer.sample(8):
                known = row.meta["priority_IS"], float(row.data["priority_IS"][0]), row.meta["priority_idx"]
                of_buffer[row.data["step"]] = [float(one) for one in known]
        for step in found[0].keys() & found[1].keys():
            same(np.allclose(found[0][step], found[1][step], rtol=1e-3), True)


def advanced(theirs: Any, ours: Any, rng: random.Random, same: Callable[..., None]) -> None:
    """An `AdvancedReplayBuffer` with updates and ages."""
    cfg = theirs.AdvancedReplayBuffer.default_config()
    stale = rng.choice([float("inf"), 3, 6])  # DI-engine's forgets which row is the oldest when places come again
    cfg.update(replay_buffer_size=16 if stale > 6 else 200, anneal_step=20, max_staleness=stale)
    pair = theirs.AdvancedReplayBuffer(cfg, Nowhere()), ours.AdvancedReplayBuffer(cfg, Nowhere())
    for learner in range(30):
        rows = [{"step": 5 * learner + i, "collect_iter": learner} for i in range(rng.randint(0, 5))]
        for buffer in pair:
            buffer.push([dict(row) for row in rows], learner)
        samples = [buffer.sample(5, learner) for buffer in pair]
        same(*(rows is None for rows in samples))
        same(*((buffer.count(), buffer.push_count, round(buffer.beta, 6)) for buffer in pair))
        keys = "staleness", "replay_buffer_idx", "replay_unique_id", "collect_iter"
        found = [{row["step"]: row for row in rows or ()} for rows in samples]
        for step in found[0].keys() & found[1].keys():
            rows = [one[step] for one in found]
            same(*([row[key] for key in keys] for row in rows))
            weights, priorities = ([float(row[key]) for row in rows] for key in ("IS", "priority"))
            same(np.allclose(*weights, rtol=1e-3) and np.allclose(*priorities, rtol=1e-3), True)
        ids = [
            [row[key] for rows in samples for row in rows or ()] for key in ("replay_unique_id", "replay_buffer_idx")
        ]
        priorities = [rng.uniform(0.1, 3) for _ in ids[0]]
        for buffer in pair:
            buffer.update({"replay_unique_id": ids[0], "replay_buffer_idx": ids[1], "priority": priorities})


def frequencies(theirs: Any, ours: Any, rng: random.Random, same: Callable[..., None]) -> None:
    """How often rows are drawn by priority, once and twice in a sample."""
    cfg = theirs.AdvancedReplayBuffer.default_config()
    cfg.replay_buffer_size = 8
    pair = theirs.AdvancedReplayBuffer(cfg, Nowhere()), ours.AdvancedReplayBuffer(cfg, Nowhere())
    priorities, counts = [rng.uniform(0.1, 3) for _ in range(8)], (np.zeros((8, 5)), np.zeros((8, 5)))
    for buffer, counted in zip(pair, counts):
        buffer.push([{"step": step, "priority": priority} for step, priority in enumerate(priorities)], 0)
        for _ in range(1000):
            for step, times in Counter(row["step"] for row in buffer.sample(4, 0)).items():
                counted[step, times] += 1
    spread = np.sqrt(counts[0] + counts[1] + 1)
    same((np.abs(counts[0] - counts[1]) < 5 * spread).tolist(), np.ones((8, 5), bool).tolist())


class Comparison:
    """Counts pairs, and keeps those that differ."""

    def __init__(self) -> None:
        self.number, self.different = 0, list[tuple[Any, Any]]()

    def __call__(self, of_theirs: Any, of_ours: Any) -> None:
        self.number += 1
        if of_theirs != of_ours:
            self.different.append((of_theirs, of_ours))


class Nowhere:
    """A SummaryWriter that drops what it gets."""

    def add_scalar(self, *_: object) -> None:
        pass

    flush = close = lambda self: None


def main() -> None:
    """Print how many comparisons differ."""
    sys.modules["wandb"] = types.ModuleType("wandb")
    logging.disable(logging.CRITICAL)
    from ding.data.buffer import DequeBuffer, apply_middleware
    from ding.data.buffer import middleware as of_ding
    from ding.data.buffer.deque_buffer import BufferIndex
    from ding.worker.replay_buffer import AdvancedReplayBuffer

    from mindspore_replay import di_engine as ours

    def delete(self: Any, indices: Any) -> None:
        gone = {indices} if isinstance(indices, str) else set(indices)
        left = [row for row in self.storage if row.index not in gone]
        self.storage.clear()
        self.storage.extend(left)
        self.indices = BufferIndex(self.storage.maxlen, [(row.index, i) for i, row in enumerate(left)])
        self.meta_index = {}

    DequeBuffer.delete = apply_middleware("delete")(delete)
    buffers = {"DequeBuffer": DequeBuffer, "AdvancedReplayBuffer": AdvancedReplayBuffer}
    theirs = types.SimpleNamespace(**vars(of_ding), **buffers)
    print("| calls | comparisons | differences |\n|---|---|---|")
    for compare in deque_calls, middleware, windows, weights, advanced, frequencies:
        same = Comparison()
        for seed in range(SEEDS):
            random.seed(seed)
            np.random.seed(seed)
            compare(theirs, ours, random.Random(seed), same)
        print(f"| {compare.__name__.replace('_', ' ')} | {same.number} | {len(same.different)} |", flush=True)
        for pair in same.different[:3]:
            print("DI-engine: {}\nmindspore_replay: {}".format(*pair), file=sys.stderr)


if __name__ == "__main__":
    main()
