"""Sharded buffers hold rows in several processes and draw them like one buffer."""

import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import mindspore as ms
import misuse
import numpy as np
import psutil
import pytest
from clusters import WIDTH, Writing, assert_distribution, config, fill, numbers_of, rows, wait_until
from docstrings import examples, run
from mindspore import Tensor, ops

from mindspore_replay import NStep, Prefetch, PrioritizedReplayBuffer, RateLimiter, ReplayMonitor, create_buffer, load
from mindspore_replay.distributed import ShardedReplay, ShardWriter, front
from mindspore_replay.training import JSONLinesSink

pytestmark = pytest.mark.cpu_only("shards lie in the memory of processes of their own")


def drawn(replay: ShardedReplay, batches: int) -> np.ndarray:
    return np.concatenate([numbers_of(replay.sample()) for _ in range(batches)])


def test_it_listens_to_the_loopback_address_only(cluster: Any):
    listening = []
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended meanwhile
            listening += [(one.name(), at.laddr.ip) for at in one.net_connections() if at.status == "LISTEN"]
    assert {ip.removeprefix("::ffff:") for _, ip in listening} == {"127.0.0.1"}, listening
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}


def test_the_process_of_a_shard_does_without_mindspore(cluster: Any):
    """Call every method first, then look for MindSpore in the process."""
    with ShardedReplay(config("prioritized", max_staleness=9, initial_priority=0.25), num_shards=1) as replay:
        fill(replay, 0, range(20))
        indices, *_ = replay.sample()
        assert set(replay.info(indices)[0].asnumpy().tolist()) == {0.25}
        replay.update_priorities(indices, 2.0)
        replay.update(indices, {"number": np.arange(8, dtype=np.int32)})
        replay.info(indices)
        replay.delete(indices)
        replay.advance().statistics()
        replay.check_valid()
        replay.reset().advance()
        fill(replay, 0, range(20))
        assert set(replay.info(replay.sample()[0])[0].asnumpy().tolist()) == {0.25}
        imported = replay._exchange.all[0].actor.__ray_call__.remote(lambda shard: sorted(sys.modules))
        modules = cluster.get(imported)
    assert "mindspore_replay.distributed.shard" in modules
    assert not [name for name in modules if name.partition(".")[0] == "mindspore"]


def test_processes_import_what_the_learner_imported(tmp_path: Path):
    """Python searches the folder of the script first, which may contain other sources of the package."""
    other = tmp_path / "mindspore_replay"
    other.mkdir()
    (other / "__init__.py").write_text("raise ImportError('other sources')\n")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "beside.py").write_text("NUMBER = 7\n")
    (scripts / "script.py").write_text(
        "import beside\n"
        "from mindspore_replay import create_buffer\n"
        "config = {'capacity': 9, 'sample_size': 1, 'data_shape': [[]], 'data_type': ['int32'], 'shards': 1}\n"
        "with create_buffer(config) as replay:\n"
        "    replay.insert([beside.NUMBER])\n"
        "    import ray\n"
        "    there = ray.remote(lambda: __import__('beside').NUMBER)\n"
        "    print(replay.sample()[0], ray.get(there.remote()), __import__('sys').argv)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "scripts/script.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1:] == ["[7] 7 ['scripts/script.py']"], done.stderr


def test_another_sample_size():
    limits = {"samples_per_insert": 20, "min_size": 1, "error_buffer": 100_000}
    with ShardedReplay(config("prioritized", limiter=limits)) as replay:
        large = replay.with_sample_size(150)
        replay.insert(rows(range(10)))
        assert bool(replay.can_sample())
        assert not bool(large.can_sample())
        assert set(numbers_of(large.sample()).tolist()) <= set(range(10))
        for first in range(10, 200, 10):  # each into a shard
            large.insert(rows(range(first, first + 10)))
        indices, _, *columns = large.sample()
        assert set(numbers_of(columns).tolist()) <= set(range(200))
        assert (indices.shape, replay.sample()[0].shape) == ((150,), (8,))
        with Prefetch(large, depth=1) as batches:
            assert batches.sample()[0].shape == (150,)
        large.update_priorities(np.array([-1, -1]), 1.0)
        values = replay.statistics().values
        assert (values["sampled"], values["invalid_handles"]) == (int(replay.limiter.counts[1]), 2)
        assert values["sampled"] in (300 + 8 + 150, 300 + 8 + 300)  # a batch may be drawn ahead
        assert large.limiter is replay.limiter
        for size, error, message in ((0, ValueError, "'sample_size'"), (2.0, TypeError, "must be an int")):
            with pytest.raises(error, match=message):
                replay.with_sample_size(size)


KINDS: dict[str, tuple[dict[str, Any], Callable[[int], float]]] = {
    "uniform": ({}, lambda number: 1.0),
    "once": ({"replace": False}, lambda number: 1.0),
    "prioritized": ({"kind": "prioritized", "alpha": 1.0, "epsilon": 0.0}, lambda number: 1.0 + number % 4),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_union_is_drawn_like_one_buffer(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Shards differ in size; some draws want more rows of the small shard than it stores."""
    options, weight = KINDS[kind]
    size = 8 if kind == "once" else 32
    with ShardedReplay(config(sample_size=size, **options)) as replay:
        for shard, numbers in ((0, range(30)), (1, range(30, 33))):
            more = {"priority": [weight(number) for number in numbers]} if replay.prioritized else {}
            fill(replay, shard, numbers, **more)
        assert int(replay.size()) == len(replay) == 33
        weights = {number: weight(number) for number in range(33)}
        assert_distribution(drawn(replay, 250), weights)
        if kind == "once":
            batches = [numbers_of(replay.sample()) for _ in range(50)]
            assert all(len(set(batch.tolist())) == 8 for batch in batches)
            return

        def alike(rng: Any, totals: Any, rows: int, how: str) -> np.ndarray:
            return np.arange(rows) % len(totals)

        monkeypatch.setattr(front, "choose", alike)
        with pytest.raises(AssertionError):
            assert_distribution(drawn(replay, 250), weights)


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_the_union_is_drawn_while_processes_insert(cluster: Any, kind: str):
    """Writers replace all rows, but each shard always stores each of its numbers once: the union stays the same."""
    options = {"alpha": 1.0, "epsilon": 0.0, "normalize": "buffer"} if kind == "prioritized" else {}
    with ShardedReplay(config(kind, sample_size=64, **options), batch=5) as replay:
        actor = cluster.remote(Writing)
        priorities = 4 if kind == "prioritized" else 0
        fill(replay, 1, range(100, 105), **({"priority": 1.0 + np.arange(100, 105) % 4} if priorities else {}))
        writing = actor.remote(replay.writer(0), 0, 10**9, 100, priorities)
        going = writing.run.remote(3600.0)
        wait_until(lambda: int(replay.size()) == 105)
        before, numbers, seen = replay._exchange.inserted, [], {}
        for _ in range(150):
            batch = replay.sample()
            numbers.append(numbers_of(batch))
            if priorities:
                seen |= dict(zip(numbers[-1].tolist(), batch[1].asnumpy().tolist()))
        assert replay._exchange.inserted - before > 500
        cluster.kill(writing)
        del going
        weights = {n: 1.0 + n % 4 if priorities else 1.0 for n in range(105)}
        assert_distribution(np.concatenate(numbers), weights)
        # Weights in a shard may change between the two calls of the learner. Except for rounding, they equal those in
        # an idle buffer.
        assert all(abs(weight - weights[n] ** -0.4) < 0.05 for n, weight in seen.items())


def test_a_sample_takes_one_round_trip(monkeypatch: pytest.MonkeyPatch):
    """The learner sends each shard one message for a sample, even while new rows change its total weight."""
    with ShardedReplay(config("prioritized")) as replay:
        for shard in (0, 1):
            fill(replay, shard, range(100))
        replay.sample()
        ask, asked = replay._exchange.ask, []
        monkeypatch.setattr(replay._exchange, "ask", lambda to, **_: asked.append([*to.values()]) or ask(to))
        remote = ShardWriter(*replay.writer(0).__reduce__()[1])  # the copy that another process gets
        before = [link.report.number for link in replay._exchange.all]
        for i in range(20):
            batch = replay.sample()
            remote.insert(rows(range(i, i + 5)), priority=1.0 + i % 7).flush()
        assert [[method for method, _ in sent] for sent in asked] == [["draw", "draw"]] * 20
        after = [link.report.number for link in replay._exchange.all]
        reports = 2 * 20  # one before each draw, one after it
        assert [a - b for a, b in zip(after, before)] == [reports] * 2
        assert int(replay.update_priorities(batch[0], 2.0)) == 0
        known = {link: report.total for link, report in replay._exchange.latest().items()}
        assert known == {link: report.total for link, report in replay._exchange.reports().items()}


def test_weights_are_those_of_one_big_buffer(monkeypatch: pytest.MonkeyPatch):
    options = {"kind": "prioritized", "normalize": "buffer", "beta": 0.7, "beta_steps": 40}
    priorities = np.random.default_rng(0).exponential(size=60).astype(np.float32)
    one = PrioritizedReplayBuffer(8, 200, [()], ["int32"], normalize="buffer", beta=0.7, beta_steps=40, seed=1)
    one.insert([np.arange(60, dtype=np.int32)], priority=priorities)
    leaves = one.weights.asnumpy()[:60].copy()

    def check(replay: ShardedReplay) -> None:
        for _ in range(50):
            beta = one.beta.asnumpy()[0]
            batch = replay.sample()
            _, weights, number, _ = (part.asnumpy() for part in batch)
            np.testing.assert_allclose(weights, (leaves.min() / leaves[number]) ** beta, rtol=1e-6)
            assert batch[1].dtype == ms.float32
            one.sample()

    with ShardedReplay(config(**options)) as replay:
        for shard, numbers in ((0, range(50)), (1, range(50, 60))):
            fill(replay, shard, numbers, priority=priorities[list(numbers)])
        check(replay)
        assert one.beta.asnumpy()[0] == 1.0
        np.testing.assert_allclose(replay.sample(beta=0.0)[1].asnumpy(), 1.0)
        one.reset()
        replay._exchange.beta = 0.7
        one.insert([np.arange(60, dtype=np.int32)], priority=priorities)
        right = front.importance

        def of_each_half(weights: np.ndarray, smallest: float, beta: float) -> np.ndarray:
            return np.concatenate([right(half, half.min(), beta) for half in np.split(weights, 2)])

        monkeypatch.setattr(front, "importance", of_each_half)
        with pytest.raises(AssertionError):
            check(replay)


@pytest.mark.parametrize(("kind", "named"), [("uniform", True), ("prioritized", False)])
def test_rows_are_changed_where_they_are(kind: str, named: bool):
    settings = config(kind, capacity=40, sample_size=40, **({"alpha": 0.0} if kind == "prioritized" else {}))
    settings |= {"weighted": True} if kind == "uniform" else {}
    settings |= {} if named else {"names": None}
    with ShardedReplay(settings) as replay:
        fill(replay, 0, range(20))
        fill(replay, 1, range(100, 120))
        batch = replay.sample(with_indices=True) if kind == "uniform" else replay.sample()
        handles, first = np.unique(batch[0].asnumpy(), return_index=True)
        old = numbers_of(batch)[first]
        new = rows(old + 1000)
        given = np.append(handles, [-1, handles[0]])
        values = [np.concatenate([column, column[:1] * 0 - 1, column[:1] * 0 + 7]) for column in new]
        assert int(replay.update(Tensor(given), dict(zip(replay.names, values)) if named else values)) == 1
        changed = dict(zip(handles.tolist(), old + 1000)) | {int(handles[0]): 7}  # the last value for a row counts
        batch = replay.sample(with_indices=True) if kind == "uniform" else replay.sample()
        for handle, number in zip(batch[0].asnumpy().tolist(), numbers_of(batch)):
            assert number == changed.get(handle, number % 1000)
        assert not named or int(replay.update(int(handles[1]), {"number": 5})) == 0
        replay.check_valid()


def test_priorities_go_where_their_rows_are():
    with ShardedReplay(config("prioritized", alpha=1.0, epsilon=0.0, sample_size=40)) as replay:
        fill(replay, 0, range(20))
        fill(replay, 1, range(100, 120))
        indices, _, number, _ = replay.sample()
        handles, first = np.unique(indices.asnumpy(), return_index=True)
        numbers = number.asnumpy()[first]
        assert len({*(numbers >= 100)}) == 2
        assert int(replay.update_priorities(Tensor(handles), Tensor((numbers + 1).astype(np.float32)))) == 0
        priority, uses, staleness = replay.info(handles)
        assert priority.asnumpy().tolist() == (numbers + 1).tolist()
        assert (uses.asnumpy() >= 1).all()
        assert not staleness.asnumpy().any()
        # The last of several values for a row counts, even if other rows come between them.
        twice = np.array([handles[0], handles[-1], handles[0]])
        assert int(replay.update_priorities(twice, [5.0, 6.0, 7.0])) == 0
        assert replay.info(twice)[0].asnumpy().tolist() == [7, 6, 7]
        assert float(replay.info(handles[0])[0]) == 7
        assert int(replay.delete(handles[:1])) == 1
        assert int(replay.update_priorities(handles[:2], 1.0)) == 1
        assert int(replay.update_priorities([-1], [1.0])) == 1
        assert replay.info(handles[:1])[0].asnumpy().tolist() == [7]
        for writer in (replay.writer(0), replay.writer(1)):
            writer.insert(rows(range(200, 300))).flush()  # replaces all rows
        assert int(replay.update_priorities(handles, 1.0)) == handles.size
        assert [part.asnumpy().tolist() for part in replay.info(handles[:1])] == [[0], [-1], [-1]]
        replay.check_valid()


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_rows_are_used_up_while_they_are_drawn(kind: str):
    """If a shard has fewer rows left than the draw wants, other shards supply the rest. Weights do not change."""
    with ShardedReplay(config(kind, max_use=1)) as replay:
        for _ in range(4):  # each time with other random numbers
            fill(replay, 0, range(3))
            fill(replay, 1, range(3, 11))
            batch = replay.sample()
            numbers = numbers_of(batch)
            assert len(numbers) == 8
            if kind == "prioritized":
                np.testing.assert_array_equal(batch[1].asnumpy(), 1)
            assert not bool(replay.can_sample())
            replay.reset()


def test_new_rows_get_the_largest_priority_of_all_shards():
    with ShardedReplay(config("prioritized")) as replay:
        fill(replay, 0, range(20))
        indices, *_ = replay.sample()
        replay.update_priorities(indices, 9.0)
        for _ in range(2):  # the first call reads the new maximum, the second sends it to the other shard
            assert bool(replay.can_sample())
        fill(replay, 1, range(20, 40))
        largest = replay.statistics().values
        assert largest["shard_1/priority_max"] == largest["shard_1/priority_min"] == 9


def test_uses_and_ages_are_counted_as_in_one_buffer():
    with ShardedReplay(config(max_use=2, max_staleness=3)) as replay:
        for step in range(5):
            fill(replay, step % 2, range(10 * step, 10 * step + 10))
            replay.advance()
        number = numbers_of(replay.sample())
        assert number.min() >= 20  # rows with smaller numbers are 4 and 5 steps old
        indices, *batch = replay.sample(with_indices=True)
        _, _, staleness = replay.info(indices)
        assert staleness.asnumpy().tolist() == (5 - numbers_of(batch) // 10).tolist()
        drawn: list[int] = [*number.tolist(), *numbers_of(batch).tolist()]
        while bool(replay.can_sample()):
            drawn += numbers_of(replay.sample()).tolist()
        uses = np.bincount(drawn)
        assert uses.max() <= 3  # one sample may draw a row more often than `max_use`
        assert replay.statistics().values["used_up"] >= 10
        while replay._front.eligible():
            replay.sample()
        with pytest.raises(RuntimeError, match="needs at least 1 eligible row, but got 0"):
            replay.sample()
        for shard, version in ((0, 2), (1, 5)):
            fill(replay, shard, range(50, 58), version=version)  # rows of version 2 are as old as they may be
        indices, *_ = replay.sample(with_indices=True)
        assert set(replay.info(indices)[2].asnumpy().tolist()) == {0, 3}
        with pytest.raises(ValueError, match="from 0 to 5, but got 6"):
            replay.insert({"number": 0, "wide": np.zeros(WIDTH, np.int32)}, version=6)
        replay.reset()
        assert (int(replay.size()), len(replay), bool(replay)) == (0, 0, True)
        fill(replay, 0, range(10))
        assert replay.info(replay.sample(with_indices=True)[0])[2].asnumpy().tolist() == [0] * 8


@pytest.mark.parametrize("kind", ["sequence", "episode", "n-step"])
def test_steps_of_several_writers_stay_in_their_episodes(kind: str):
    """Two writers alternate step by step, with episodes of different lengths. First digits name the writer."""
    columns = {"names": ["number", "reward", "terminated", "next_number"], "data_shape": [[]] * 4}
    types = {"data_type": ["int32", "float32", "bool", "int32"]}
    more: dict[str, Any] = {
        "sequence": {"type": "sequence", "sequence_length": 3, "priorities": {}},
        "episode": {"type": "episode", "max_episode_length": 9},
        "n-step": {"type": "uniform", "views": [NStep(3, 1.0, observation="number")]},
    }[kind]
    with ShardedReplay(config(**columns, **types, **{"kind": "uniform", **more}), batch=1) as replay:
        replay.insert([50_000, np.float32(1), False, 50_001])
        assert replay.size() == 0
        assert [replay.end_episodes(), replay.end_episodes()] == [1, 0]
        assert replay.size() == 1
        writers = [replay.writer(0), replay.writer(0), replay.writer(1)]
        for step in range(60):
            for i, writer in enumerate(writers):
                length = 4 + i
                at, number = step % length, 10000 * (i + 1) + 100 * (step // length) + step % length
                last = at == length - 1
                writer.insert([number, np.float32(1), last, number + 1], end=last)
        for writer in writers:
            writer.flush()
        for _ in range(20):
            batch = {key: part.asnumpy() for key, part in replay.sample(as_dict=True).items()}
            if kind == "n-step":
                assert {"number", "reward", "next_number"} <= set(batch)
                took = batch["next_number"] - batch["number"]
                np.testing.assert_array_equal(took, batch["reward"])
                assert set(took) <= {1, 2, 3}
                continue
            steps, mask = batch["number"], batch["mask"]
            start = steps[:, :1]
            expected = np.where(mask, start + np.arange(steps.shape[1]), 0)
            np.testing.assert_array_equal(steps, expected)
            assert len(batch["indices"]) == 8
            if kind == "sequence":
                assert int(replay.update_priorities(batch["indices"], batch["weights"])) == 0


#: Methods must see all rows of `hand_over`, even those not yet sent. Each check calls a method and tests its result.
SEES = {
    "size": lambda replay, _: int(replay.size()) == 10,
    "full": lambda replay, _: bool(replay.full()),
    "can_sample": lambda replay, _: bool(replay.can_sample()),
    "sample": lambda replay, _: numbers_of(replay.sample()).min() >= 100,
    "statistics": lambda replay, _: replay.statistics().values["rows"] == 10,
    "save": lambda replay, _: [int(load(path).size()) for path in saved(replay)] == [5, 5],
    "check_valid": lambda replay, _: replay.check_valid() is None,
    "reset": lambda replay, _: int(replay.reset().size()) == 0,
    "advance": lambda replay, _: set(replay.advance().info(replay.sample()[0])[2].asnumpy()) == {1},
    # The new rows have overwritten all old ones.
    "update_priorities": lambda replay, old: int(replay.update_priorities(old, 2.0)) == 10,
    "update": lambda replay, old: int(replay.update(old, {"number": np.zeros(10, np.int32)})) == 10,
    "delete": lambda replay, old: int(replay.delete(old)) == 0,
    "info": lambda replay, old: set(replay.info(old)[1].asnumpy()) == {-1},
    # The limiter counts rows from before it, but not for the ratio.
    "limiter": lambda replay, _: [*limited(replay).limiter.counts[::2]] == [10, 0],
}
#: Methods that neither read nor change stored rows.
OTHERS = {"add", "insert", "end_episodes", "writer", "close", "deaths", "timeouts"}
OTHERS |= {"state", "with_sample_size"}


def saved(replay: ShardedReplay) -> list[Path]:
    replay.save()
    return sorted(Path(replay._folder).glob("save_*/*.safetensors"))


def limited(replay: ShardedReplay) -> ShardedReplay:
    replay.limiter = RateLimiter((0, 1000), 1, 1000)
    replay.size()
    return replay


def hand_over(replay: ShardedReplay, writers: list[ShardWriter]) -> int:
    """Insert more rows than a shard can store. Some are sent, others still wait in the writer."""
    if not writers:
        for number in range(100, 111):
            replay.insert(rows([number]))
        assert replay._front.calls.on_their_way > 0
        return 11
    for i, writer in enumerate(writers):
        for number in range(8):
            writer.insert(rows([100 * (i + 1) + number]))
        assert writer.collected
    return 16


@pytest.mark.parametrize("own", ["insert", "writers"])
def test_every_method_awaits_what_was_handed_over(own: str, tmp_path: Path):
    assert {name for name in dir(ShardedReplay) if name[0] != "_"} == SEES.keys() | OTHERS
    settings = config("prioritized", capacity=10, sample_size=10, alpha=0.0)
    with ShardedReplay(settings, batch=3, in_flight=1, folder=str(tmp_path)) as replay:
        inserted = 0
        for name, sees in SEES.items():
            replay.limiter = None
            replay.reset()
            old = None
            if name in ("update_priorities", "update", "delete", "info"):
                for shard in (0, 1):
                    fill(replay, shard, range(5))
                old, inserted = replay.sample()[0].asnumpy(), inserted + 10
            inserted += hand_over(replay, [replay.writer(0), replay.writer(1)] if own == "writers" else [])
            assert sees(replay, old), name
            reports = replay._ray.get([link.actor.report.remote() for link in replay._exchange.all])
            assert sum(report.inserted for report in reports) == inserted, name
            assert not replay._front.calls.busy, name


def test_what_is_printed():
    limiter = {"samples_per_insert": 4.0, "min_size": 3, "error_buffer": 40}
    with ShardedReplay(config(limiter=limiter), batch=4) as replay:
        writer = replay.writer(1)
        writer.insert(rows(range(9))).insert(rows(range(2)))
        assert re.fullmatch(r"ShardWriter\(shard=1, inserted=[09], sent=[09], collected=2, lost=0\)", repr(writer))
        writer.flush()
        assert repr(writer) == "ShardWriter(shard=1, inserted=11, sent=0, collected=0, lost=0)"
        replay.sample()
        replay.insert(rows([1]))
        assert repr(replay) == (
            "ShardedReplay(num_shards=2, answering=2, capacity=200, sample_size=8, inserted=11, on_their_way=1, "
            "sampled=8, limiter=RateLimiter(samples_per_insert=4, min_size=3, error_buffer=40, timeout=None, "
            "enabled=True, inserted=11, sampled=8))"
        )


@ms.jit
def step(weights: Tensor, number: Tensor, wide: Tensor) -> tuple[Tensor, Tensor]:
    """A compiled training step whose arguments are a batch."""
    return ops.reduce_sum(ops.cast(wide, ms.float32)), ops.cast(number, ms.float32) + weights * 0


def test_a_local_trainer_with_another_first_line():
    """One configuration and one training loop serve a local buffer and shards."""
    losses = {}
    for shards in ({}, {"shards": 2}):
        settings = {**config("prioritized", capacity=100), **shards}
        buffer = create_buffer(settings if shards else {k: v for k, v in settings.items() if k != "shards"})
        for i in range(50):
            buffer.insert([i, np.full(WIDTH, i, np.int32)])
            if bool(buffer.can_sample()):
                indices, weights, number, wide = buffer.sample()
                loss, priority = step(weights, number, wide)
                assert int(buffer.update_priorities(indices, priority)) == 0
                losses.setdefault(str(shards), []).append(float(loss))
        assert (int(buffer.size()), bool(buffer.full())) == (50, False)
        if shards:
            assert [report.rows for report in buffer._exchange.reports().values()] == [25, 25]
            buffer.close()
    assert len(losses["{}"]) == len(losses["{'shards': 2}"]) == 43


def test_prefetching_and_watching(tmp_path: Path):
    with ShardedReplay(config("prioritized", beta_steps=10)) as replay:
        fill(replay, 0, range(20))
        fill(replay, 1, range(20, 25))
        path = tmp_path / "replay.jsonl"
        monitor = ReplayMonitor(replay, JSONLinesSink(path), every=10)
        with Prefetch(replay, 3, as_dict=True) as batches:
            for _ in range(20):
                batch = batches.sample()
                assert int(replay.update_priorities(batch["indices"], batch["weights"])) == 0
                monitor.step()
            assert batches.depth == 3
            assert batches.statistics().batches == 20
        monitor.close()
        first, second = map(json.loads, path.read_text().splitlines())
        assert second["rows"] == 25
        assert (second["shards"], second["shards_alive"], second["shard_deaths"]) == (2, 2, 0)
        assert first["sampled"] >= 80
        assert second["bytes"] == replay.nbytes
        assert second["shard_1/rows"] == 5
        statistics = replay.statistics()
        assert statistics.values["sampled"] == replay._exchange.samples * 8
        assert statistics.histograms["shard_0/priority"].counts.sum() == 20


def test_shards_that_cannot_begin_say_why(tmp_path: Path):
    with pytest.raises(ValueError, match="'capacity' must be at least 6"):
        ShardedReplay(config("sequence", capacity=8, sample_size=1, sequence_length=6))
    (tmp_path / "save_1").mkdir()
    (tmp_path / "save_1/shard_1.safetensors").write_text("of another run")
    with pytest.raises(FileExistsError, match=r"^For 'ShardedReplay', 'folder' must contain no shards of .*save_1 ex"):
        ShardedReplay(config(), folder=str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"^For 'ShardedReplay', 'resume' needs a folder that save\(\) has"):
        ShardedReplay(config(), folder=str(tmp_path / "nothing"), resume=True)


@pytest.mark.parametrize("kind", ["plain", "named", "weighted", "prioritized", "sequence"])
def test_misuse(kind: str):
    of = misuse.KINDS[kind]
    with ShardedReplay({"type": of.type, **misuse.COLUMNS, **of.options, "shards": {"number": 1}}) as replay:
        writer, stored = replay.writer(), len(replay.insert(misuse.rows(4)))
        for case in misuse.cases(misuse.CALLS).values():  # those of an empty buffer come behind
            method = case.text.split("(")[0]
            if case.kind != kind or not hasattr(replay, method) or case.text.startswith(misuse.NOT_OF_SHARDS):
                continue
            expected = misuse.answer_of(case, misuse.face(kind, "python"))
            assert misuse.answer_of(case, replay) == expected, case.text
            if method == "insert" and case.text != "insert(ROW, version=5)":  # a shard advances to a writer's
                assert misuse.answer_of(case, writer) == expected, case.text
        assert writer.collected == 0
        assert len(replay) == stored
        replay.reset()
        if "sample()" in misuse.CALLS.get(f"{kind}, empty", ()):
            case = misuse.Case(f"{kind}, empty", "sample()", ValueError())
            assert misuse.answer_of(case, replay) == misuse.answer_of(case, misuse.face(case.kind, "python"))


def test_threads_may_sample_and_insert_side_by_side():
    with ShardedReplay(config("prioritized")) as replay:
        fill(replay, 0, range(20))
        errors: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                for i in range(20):
                    replay.insert(rows([thread * 100 + i]))
                    indices, *batch = replay.sample()
                    numbers_of(batch)
                    replay.update_priorities(indices, 1.0)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive()
        assert not errors
        assert int(replay.size()) == 80


def test_a_saved_run_goes_on_in_new_shards(tmp_path: Path):
    shards = {"number": 2, "timeout": 60.0, "folder": str(tmp_path)}
    limiter = {"samples_per_insert": 4.0, "min_size": 10, "error_buffer": 500}
    settings = {**config("prioritized", beta_steps=100, limiter=limiter), "shards": shards}
    with ShardedReplay(settings) as replay:
        fill(replay, 0, range(30))
        fill(replay, 1, range(30, 40))
        for _ in range(20):
            indices, *_ = replay.sample()
            replay.advance()
        replay.update_priorities(indices, 7.0)
        for _ in range(2):
            replay.can_sample()
        replay.save()
        fill(replay, 0, range(40, 45))
        replay.save()
        beta, counts = replay._exchange.beta, replay.limiter.counts.tolist()
        assert counts[:2] == [45, 160]
    for number in 1, 3:
        wrong = {**settings, "shards": {**shards, "number": number}}
        with pytest.raises(ValueError, match=rf"^For 'ShardedReplay', 'num_shards' must be 2, .* but got {number}\."):
            ShardedReplay(wrong, resume=True)
    (file,), other = tmp_path.glob("save_*/shard_1.safetensors"), tmp_path / "other"
    with ShardedReplay({**settings, "shards": {**shards, "folder": str(other)}}) as replay:
        fill(replay, 1, range(10))
        replay.save()
    good, foreign = file.read_bytes(), next(other.glob("save_*/shard_1.safetensors")).read_bytes()
    for wrong in None, foreign:
        file.unlink() if wrong is None else file.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"^For 'ShardedReplay', the files in 'folder' must be of one save, but "):
            ShardedReplay(settings, resume=True)
        with pytest.raises(FileExistsError, match=r"^For 'ShardedReplay', 'folder' must contain no shards of another"):
            ShardedReplay(settings)
    file.write_bytes(good)
    with ShardedReplay(settings, resume=True) as replay:
        assert int(replay.size()) == 45
        assert replay._exchange.beta == beta > 0.4
        assert replay.limiter.counts.tolist() == counts
        assert replay.statistics().values["priority_max"] == 7
        assert replay.info(replay.sample()[0])[2].asnumpy().max() <= 20
        fill(replay, 1, [100])
        assert bool(replay.can_sample())
        assert replay.limiter.inserted == 46


def test_answers_of_a_process_that_was_replaced_are_dropped():
    """Threads of a learner call in parallel: one may get an old report after another has reached the new process."""
    with ShardedReplay(config()) as replay:
        fill(replay, 0, range(50))
        replay.can_sample()
        exchange, link = replay._exchange, replay._exchange.all[0]
        old = exchange._ray.get(link.actor.report.remote())
        fresh = old._replace(identity=0, number=0, inserted=0, rows=0)
        new = fresh._replace(identity=link.next_identity(), inserted=3)
        assert exchange.note(link, old)
        assert not exchange.note(link, fresh)  # it may have to load its rows first
        assert (exchange.deaths, link.ping is None, link.identity) == (1, False, old.identity)
        link.ping = Future[Any]()
        link.ping.set_result((new, None))
        assert link in exchange.alive()
        assert not exchange.note(link, old)
        assert exchange.note(link, new)
        assert (exchange.deaths, link.ping, link.identity, link.counted) == (1, None, new.identity, 3)
        assert (link.report, exchange.inserted) == (new, 53)


def test_after_close_every_call_is_the_same_error():
    replay = ShardedReplay(config("prioritized"), batch=16)
    writer = replay.writer(0)
    replay.insert(rows(range(20)))
    indices, *_ = replay.sample()
    writer.insert(rows(range(3)))
    replay.close()
    replay.close()
    calls = [
        replay.sample,
        replay.size,
        replay.full,
        replay.can_sample,
        replay.statistics,
        replay.check_valid,
        replay.reset,
        replay.advance,
        replay.writer,
        lambda: replay.info(indices),
        lambda: replay.delete(indices),
        lambda: replay.update_priorities(indices, 1.0),
        lambda: replay.insert(rows([1])),
        writer.flush,
        writer.send,
        lambda: writer.insert(rows([1])),
        lambda: replay.with_sample_size(2),
    ]
    for call in calls * 2:
        with pytest.raises(RuntimeError, match=r"^For 'ShardedReplay', its shards were ended by close\(\)\."):
            call()


@pytest.mark.parametrize("name", ["sharded", "writer"])
def test_examples_in_docstrings(cluster: Any, name: str):
    (test,) = examples(importlib.import_module(f"mindspore_replay.distributed.{name}"))
    assert run(test) == ""
