"""Processes die or hang: the others continue, and every delivered row is complete and correct."""

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import PATIENCE, Writing, config, fill, numbers_of, process_of, rows, wait_until
from local_ray import Died
from places import TESTS

from mindspore_replay import ReplayMonitor, distributed
from mindspore_replay.distributed import ShardedReplay
from mindspore_replay.training import JSONLinesSink

pytestmark = pytest.mark.cpu_only("shards lie in the memory of processes of their own")


def is_back(replay: ShardedReplay, shard: int) -> bool:
    """Return True if a shard answers again after a death."""
    replay.can_sample()
    return replay._exchange.all[shard].ping is None and replay.deaths > 0


def kill(replay: ShardedReplay, shard: int) -> None:
    os.kill(process_of(replay, shard), signal.SIGKILL)


def test_a_killed_shard_begins_empty_and_the_others_go_on(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with ShardedReplay(config("prioritized", capacity=400), batch=10) as replay:
        fill(replay, 0, range(100))
        fill(replay, 1, range(1000, 1100))
        indices, *_ = replay.sample()
        while len({*(indices.asnumpy() >> 51)}) < 2:
            indices, *_ = replay.sample()
        of_dead = indices.asnumpy() >> 51 == 1
        monitor = ReplayMonitor(replay, JSONLinesSink(tmp_path / "replay.jsonl"))
        with caplog.at_level(logging.WARNING, "mindspore_replay.distributed"):
            kill(replay, 1)
            while replay.deaths == 0:
                numbers_of(replay.sample())
            numbers = np.concatenate([numbers_of(replay.sample()) for _ in range(20)])
            monitor.write()
            monitor.close()
            while not is_back(replay, 1):
                assert numbers_of(replay.sample()).max() < 100
        assert numbers.max() < 100
        assert replay.deaths == 1
        assert [record.message.split(",")[0] for record in caplog.records] == [
            "shard 1 has died",
            "shard 1 is there again",
        ]
        values = json.loads((tmp_path / "replay.jsonl").read_text())
        assert (values["shard_deaths"], values["rows"]) == (1, 100)
        assert values["shards_alive"] in (1, 2)  # it may have restarted already
        # Handles of its rows stay invalid, even when new rows take the slots.
        fill(replay, 1, range(2000, 2100))
        assert int(replay.update_priorities(indices, 5.0)) == of_dead.sum()
        assert replay.info(indices)[0].asnumpy().tolist() == np.where(of_dead, 0, 5).tolist()
        assert {number // 1000 for _ in range(10) for number in numbers_of(replay.sample()).tolist()} == {0, 2}
        replay.check_valid()


def test_a_killed_shard_goes_on_from_its_last_checkpoint(cluster: Any, tmp_path: Path):
    options = {"alpha": 1.0, "epsilon": 0.0, "max_staleness": 5}
    with ShardedReplay(
        {**config("prioritized", **options), "shards": {"number": 2, "timeout": 60.0, "folder": str(tmp_path)}}
    ) as replay:
        fill(replay, 0, range(10))
        fill(replay, 1, range(100, 130))
        replay.advance(2)
        fill(replay, 1, range(130, 140), priority=3.0)
        replay.save()
        assert sorted(path.name for path in tmp_path.glob("save_*/*")) == [f"shard_{i}.safetensors" for i in (0, 1)]
        fill(replay, 1, range(200, 220))  # the process dies before it saves them
        replay.advance(2)
        kill(replay, 1)
        wait_until(lambda: is_back(replay, 1))
        assert int(replay.size()) == 50
        seen: dict[int, tuple[float, int]] = {}
        for _ in range(60):
            indices, _, *batch = replay.sample()
            known = (part.asnumpy().tolist() for part in replay.info(indices))
            seen |= {n: (p, age) for n, p, _, age in zip(numbers_of(batch).tolist(), *known)}
        assert {n: known for n, known in seen.items() if n >= 100} == {
            n: (1.0, 4) if n < 130 else (3.0, 2) for n in range(100, 140)
        }
        replay.advance(2)  # the clock continues from its last value, not from the value in the file
        assert bool(replay.can_sample())
        assert replay.statistics().values["eligible"] == 10


def test_batches_are_whole_while_a_shard_dies_again_and_again(cluster: Any):
    """At whatever moment the process dies, the rows of a batch without replacement differ, and each is complete."""
    with ShardedReplay(config(replace=False, capacity=2000, sample_size=64), batch=7) as replay:
        fill(replay, 0, range(10**6, 10**6 + 300))
        actor = cluster.remote(max_concurrency=2)(Writing)
        writing = actor.remote(replay.writer(1), 0, 10**6, 10**6)
        going = writing.run.remote(3600.0)
        deaths = batches = 0
        landed = 0
        while deaths < 2 or batches < 20:
            numbers = numbers_of(replay.sample())
            assert len(set(numbers.tolist())) == 64
            batches += 1
            link = replay._exchange.all[1]
            before, landed = landed, cluster.get(writing.landed.remote())
            if landed > before and link.ping is None and numbers.min() < 10**6:
                kill(replay, 1)
                deaths += 1
        assert replay.deaths in (deaths, deaths - 1)  # the learner may not have noticed the last death yet
        assert cluster.get(writing.place.remote()) == 1
        assert cluster.get(writing.landed.remote()) > 0
        cluster.kill(writing)
        del going
        replay.check_valid()


def test_a_killed_writer_loses_what_it_has_not_sent(cluster: Any):
    with ShardedReplay(config(capacity=100_000), batch=5, in_flight=2) as replay:
        writing = (
            cluster.remote(Writing)
            .options(max_restarts=0, max_concurrency=2)
            .remote(replay.writer(1), 0, 90_000, 10**6)
        )
        process = cluster.get(writing.process.remote())
        going = writing.run.remote(PATIENCE, at_once=3)
        wait_until(lambda: int(replay.size()) > 200)
        landed = cluster.get(writing.landed.remote())
        os.kill(process, signal.SIGKILL)
        with pytest.raises(cluster.exceptions.RayActorError):
            cluster.get(going)
        time.sleep(0.5)
        stored = int(replay.size())
        assert stored >= landed
        buffer = cluster.get(replay._exchange.all[1].actor.__ray_call__.remote(lambda shard: shard.rows.state_dict()))
        numbers = buffer["column.number"][:stored].tolist()
        assert numbers == list(range(stored))  # every sent row, once and in order
        assert stored % 6 == 0  # whole batches: two insertions of three rows, since a batch is at least five
        fill(replay, 1, range(10))
        assert int(replay.size()) == stored + 10


def test_a_slow_shard_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture):
    limiter = {"samples_per_insert": 4.0, "min_size": 10, "error_buffer": 2000.0}
    with ShardedReplay(config("prioritized", limiter=limiter), timeout=0.1) as replay:
        fill(replay, 0, range(20))
        fill(replay, 1, range(100, 120))
        indices, *_ = replay.sample()
        replay._exchange.all[1].actor._is_stopped = True
        with caplog.at_level(logging.WARNING, "mindspore_replay.distributed"):
            for _ in range(20):
                assert numbers_of(replay.sample()).max() < 100
            # Neither unsent rows for the stopped process nor its grant block the others.
            for number in range(200, 206):
                replay.insert(rows([number]))
                assert int(replay.size()) >= 20
            fill(replay, 0, range(20, 40))
            for _ in range(30):
                numbers_of(replay.sample())
        assert (replay.timeouts, replay.deaths) == (1, 0)  # one timeout for all calls
        of_slow = int((indices.asnumpy() >> 51 == 1).sum())
        assert int(replay.update_priorities(indices, 1.0)) == of_slow
        assert int(replay.size()) == 43
        replay._exchange.all[1].actor._go_on()
        wait_until(lambda: int(replay.size()) == 66)
        assert int(replay.update_priorities(indices, 1.0)) == 0  # the same process continues, so its handles are valid
        assert "shard 1 has not answered for 0.1 s, the others continue" in caplog.text
        assert {number // 100 for _ in range(10) for number in numbers_of(replay.sample()).tolist()} == {0, 1, 2}


def dies(*_: Any) -> None:
    raise Died


@pytest.mark.parametrize("kind", ["prioritized", "once"])
def test_a_shard_that_dies_while_it_draws(kind: str, monkeypatch: pytest.MonkeyPatch):
    """The other shards supply its part of the batch. Without replacement no row is drawn twice."""
    options = {"replace": False} if kind == "once" else {"kind": "prioritized"}
    with ShardedReplay(config(sample_size=20, **options)) as replay:
        fill(replay, 0, range(22))
        fill(replay, 1, range(100, 120))
        monkeypatch.setattr(replay._exchange.all[1].actor._shard, "_draw", dies)
        batch = replay.sample()
        numbers = numbers_of(batch)
        assert replay.deaths == 1
        assert numbers.max() < 22
        assert kind != "once" or len(set(numbers.tolist())) == 20
        wait_until(lambda: is_back(replay, 1))
        fill(replay, 1, range(200, 220))
        if kind == "prioritized":
            assert int(replay.update_priorities(batch[0], 3.0)) == 0
            assert replay.statistics().values["shard_1/priority_max"] == 1


def test_without_any_shard_there_is_nothing_to_draw():
    with ShardedReplay(config(), num_shards=1) as replay:
        fill(replay, 0, range(20))
        replay.sample()
        replay._exchange.all[0].actor._has_died = True
        with pytest.raises(RuntimeError, match=r"none of the 1 shards answers|got 0 .* in the 1 shards"):
            replay.sample()
        wait_until(lambda: is_back(replay, 0))
        fill(replay, 0, range(20, 40))
        assert numbers_of(replay.sample()).min() >= 20


LEARNER = """
import os, signal, sys
from clusters import config, fill, rows
from mindspore_replay.distributed import ShardedReplay
limiter = {"samples_per_insert": 4.0, "min_size": 10, "error_buffer": 500}
replay = ShardedReplay(config("prioritized", beta_steps=100, limiter=limiter, max_staleness=100), name=sys.argv[1])
fill(replay, 0, range(30))
fill(replay, 1, range(30, 40))
for _ in range(20):
    indices, *_ = replay.sample()
    replay.update_priorities(indices, 3.0)
    replay.advance()
replay.can_sample()
print(replay._exchange.beta, replay.limiter.counts.tolist(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_learner_goes_on(cluster: Any):
    """A new learner finds the shards by name; rows, priorities, clock, beta and counts are unchanged."""
    address, name = cluster.get_runtime_context().gcs_address, f"learner-{os.getpid()}"
    path = os.pathsep.join([str(TESTS / "support"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", LEARNER, name]
    environment = {**os.environ, "PYTHONPATH": path, "RAY_ADDRESS": address}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert done.returncode == -signal.SIGKILL, done.stderr
    beta, counts = done.stdout.split("\n")[-2].split(" ", 1)
    limiter = {"samples_per_insert": 4.0, "min_size": 10, "error_buffer": 500}
    settings = config("prioritized", beta_steps=100, limiter=limiter, max_staleness=100)
    with pytest.raises(ValueError, match="must have the same configuration"):
        ShardedReplay({**settings, "alpha": 0.1}, name=name)
    with ShardedReplay(settings, name=name) as replay:
        assert replay._exchange.beta == float(beta) == pytest.approx(0.4 + 20 * 0.006)
        assert str(replay.limiter.counts.tolist()) == counts == "[40, 160, 30, 160]"
        assert int(replay.size()) == 40
        indices, *batch = replay.sample()
        numbers_of(batch)
        assert (replay.info(indices)[2].asnumpy() == 20).all()
        assert replay.statistics().values["priority_max"] == 3
        fill(replay, 0, range(50, 60))
        assert bool(replay.can_sample())
        assert replay.limiter.inserted == 50
    with pytest.raises(ValueError, match="Failed to look up actor"):
        cluster.get_actor(f"{name}/shard_0", namespace="mindspore_replay")


def insert_until_refused(writer: Any) -> None:
    """Insert batches until one is refused; a killed process may accept some before it ends."""
    for _ in range(1000):
        writer.insert(rows(range(64))).flush()


def test_a_writer_goes_to_another_shard_when_its_own_is_gone_for_good(cluster: Any):
    with ShardedReplay(config()) as replay:
        writer = replay.writer(1)
        writer.insert(rows(range(64))).flush()
        cluster.kill(replay._exchange.all[1].actor)
        wait_until(lambda: int(replay.size()) == 0)
        writer.insert(rows(range(64, 128))).flush()
        writer.insert(rows(range(128, 192))).flush()
        assert (writer.inserted, writer.lost, writer.shard) == (128, 64, 0)
        wait_until(lambda: int(replay.size()) == 64)
        cluster.kill(replay._exchange.all[0].actor)
        with pytest.raises(RuntimeError, match=r"^For 'ShardWriter', all shards have ended"):
            insert_until_refused(writer)


def test_a_name_has_one_learner(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = f"one-{os.getpid()}"
    with pytest.raises(FileNotFoundError, match=r"^For 'ShardedReplay', 'resume' needs"):
        ShardedReplay(config(), name=name, folder=str(tmp_path), resume=True)
    replay = ShardedReplay(config(), name=name)  # the shards that were refused have ended, and their name is free
    fill(replay, 0, range(10))
    with monkeypatch.context() as patch:
        patch.setattr(distributed.cluster, "_FREE", 0.1)
        for other in config(), config(capacity=100):
            with pytest.raises(RuntimeError, match=rf"^For 'ShardedReplay', the shards .* one uses '{name}'\. End"):
                ShardedReplay(other, name=name)
    assert int(replay.size()) == 10
    del replay
    gc.collect()
    with pytest.raises(ValueError, match="must have the same configuration"):
        ShardedReplay(config(capacity=100), name=name)
    with ShardedReplay(config(), name=name) as again:  # shards that lived before stay when a learner is refused
        assert int(again.size()) == 10


def test_a_killed_shard_loses_no_more_than_was_in_transit(cluster: Any):
    """The writer goes on while the shard restarts: the learner's calls grant the new process what it inserts."""
    with ShardedReplay(config(), batch=8, in_flight=2) as replay:
        actor = cluster.remote(max_concurrency=2)(Writing)
        writing = actor.remote(replay.writer(1), 0, 10**6, 10**6)
        going = writing.run.remote(3600.0, at_once=8)
        for deaths in 1, 2:
            landed = cluster.get(writing.landed.remote())
            wait_until(lambda landed=landed: cluster.get(writing.landed.remote()) > landed)
            kill(replay, 1)
            wait_until(lambda deaths=deaths: replay.size() is not None and replay.deaths == deaths)
            wait_until(lambda: is_back(replay, 1))
            landed = cluster.get(writing.landed.remote())
            wait_until(lambda landed=landed: replay.size() > 0 and cluster.get(writing.landed.remote()) > landed + 64)
            assert cluster.get(writing.lost.remote()) <= 2 * 8 * deaths
        assert cluster.get(writing.place.remote()) == 1
        cluster.kill(writing)
        del going
