"""Saves of all shards, killed at each of their steps: the folder always resumes from one save of all of them."""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clusters import wait_until
from local_ray import ActorDiedError, TaskError, in_this_process

from mindspore_replay.checkpoint import saving
from mindspore_replay.distributed.configuration import shard_specs, whole_spec
from mindspore_replay.distributed.exchange import Exchange
from mindspore_replay.distributed.shard import Shard
from mindspore_replay.store.spec.spec import BufferSpec

pytestmark = pytest.mark.cpu_only("shards lie in the memory of processes of their own")

WIDTH = 100
CONFIG: dict[str, Any] = {
    "capacity": 40,
    "sample_size": 1,
    "data_shape": [[WIDTH]],
    "data_type": ["int32"],
    "seed": 0,
    "backend": "native",
}


class Killed(BaseException):
    """The end of a process; nothing of it runs after that."""


class Actor:
    """A shard in this process with the interface of a Ray actor; it starts anew when it is called after its death."""

    def __init__(self, world: "World", number: int, *arguments: Any) -> None:
        self.world, self.number, self.arguments = world, number, arguments
        self.steps, self.dies_at, self.dead = 0, world.die_at[number], False
        self.shard = Shard(*arguments)

    def step(self) -> None:
        """Count a step, and die at the chosen one. A dead process makes no step."""
        self.dead = self.dead or self.steps == self.dies_at
        if self.dead:
            raise Killed
        self.steps += 1

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self.world.call(self, method, arguments))


@functools.cache
def parts() -> list[BufferSpec]:
    """Return what the two shards hold."""
    return shard_specs(whole_spec(CONFIG)[0], 2, 0)


class World:
    """Shards, the learner's messages to them, and steps of both at which they can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.die_at = folder, (-1, -1)
        self.now: Actor | None = None
        self.parts = parts()
        self.staged: dict[int, dict[int, int]] = {0: {}, 1: {}}  # the generation of rows in each save of each shard
        self.messages, self.learner_dies_at = 0, -1
        self.start(resume=False)

    def start(self, resume: bool) -> None:
        """Start all processes."""
        self.actors = [Actor(self, i, self.parts[i], str(self.folder), i) for i in range(2)]
        self.learn(resume, self.actors)

    def learn(self, resume: bool, new: Sequence[Actor] = ()) -> None:
        """Start a learner on the shards."""
        self.exchange = Exchange(self.actors, 1.0, self.parts[0], None)
        self.exchange.begin(self.parts, new, resume, str(self.folder))

    def call(self, actor: Actor, method: str, arguments: Any) -> Any:
        """Answer a message of the learner."""
        if self.messages == self.learner_dies_at:
            raise Killed
        self.messages += 1
        if actor.dead:
            actor.shard, actor.dead, actor.dies_at = Shard(*actor.arguments), False, -1
        before, self.now, answer = self.now, actor, Future[Any]()
        try:
            if "stage" in arguments:
                self.staged[actor.number][max(arguments[2])] = generation(actor.shard)
            answer.set_result(getattr(actor.shard, method)(*arguments))
        except Killed:
            if hasattr(getattr(Shard, method), "__ray_max_task_retries__"):
                return self.call(actor, method, arguments)
            answer.set_exception(ActorDiedError("killed"))
        except Exception as error:
            answer.set_exception(TaskError(error))
        finally:
            self.now = before
        return answer

    def step(self) -> None:
        if self.now is not None:
            self.now.step()

    def insert(self) -> None:
        """Insert a row into each shard, with the number of the next generation."""
        self.exchange.samples += 1
        self.exchange.reports()
        for actor in self.actors:
            rows = 12 if self.exchange.samples == 1 else 1
            actor.shard.rows.insert([np.full((rows, WIDTH), self.exchange.samples, np.int32)])

    def save(self) -> None:
        self.exchange.save(self.exchange.alive())

    @property
    def saves(self) -> list[int]:
        return [link.saved for link in self.exchange.all]

    def paths(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def check(self, least: list[int]) -> None:
        """Check that the shards resume from one save, no older than those of these numbers, and save again."""
        self.learner_dies_at = -1
        self.start(resume=True)
        saves = self.saves
        assert all(number >= other for number, other in zip(saves, least))
        assert [generation(actor.shard) for actor in self.actors] == [self.staged[i][saves[i]] for i in range(2)]
        assert self.exchange.samples == max(self.staged[i][saves[i]] for i in range(2))
        assert self.paths() == files(saves)
        self.insert()
        self.save()
        assert self.paths() == files(self.saves)


def files(saves: Sequence[int]) -> list[str]:
    paths = [f"save_{number}/shard_{i}.safetensors" for i, number in enumerate(saves)]
    return sorted({*paths, *(f"save_{number}" for number in saves)})


def generation(shard: Shard) -> int:
    """Return the number in the newest rows; check that the first ones are there."""
    numbers = shard.rows.arrays["column.0"][: len(shard.rows), 0].tolist()
    assert numbers[:12] == [1] * 12
    assert numbers == sorted(numbers)
    return int(numbers[-1])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], World]]:
    worlds: list[World] = []

    def stepping(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            if worlds:
                worlds[-1].step()
            return real(*arguments, **options)

        return run

    monkeypatch.setattr(os, "fsync", stepping(lambda descriptor: None))
    for name in ("rename", "replace", "rmdir", "unlink"):
        monkeypatch.setattr(os, name, stepping(getattr(os, name)))
    monkeypatch.setattr(saving, "write_all", stepping(saving.write_all))

    def make(name: str) -> World:
        (tmp_path / name).mkdir()
        worlds.append(World(tmp_path / name))
        return worlds[-1]

    with in_this_process():
        yield make


def saved(world: Callable[[str], World], name: str) -> World:
    """Return shards that were saved, and got more rows since."""
    made = world(name)
    for _ in range(2):
        made.insert()
        made.save()
    made.insert()
    for actor in made.actors:
        actor.steps = 0
    made.messages = 0
    return made


def test_all_are_killed(world: Callable[[str], World]):
    """Each shard at any of its steps, which include those after all have written."""
    whole = saved(world, "whole")
    whole.save()
    steps = range(whole.actors[0].steps + 1)
    assert len(steps) > 10
    for first, second in [(i, j) for i in steps for j in steps]:
        made = saved(world, f"{first}-{second}")
        least, made.learner_dies_at = made.saves, 4  # it has sent all its messages
        made.actors[0].dies_at, made.actors[1].dies_at = first, second
        with contextlib.suppress(Killed, RuntimeError):  # an error if both have died
            made.save()
        made.check(least)


def test_files_that_are_published_too_early_are_found(world: Callable[[str], World], monkeypatch: pytest.MonkeyPatch):
    def stage(shard: Shard, saves: list[int]) -> None:
        real(shard, saves)
        shard.settle(max(saves))

    real, made = Shard.stage, saved(world, "early")
    monkeypatch.setattr(Shard, "stage", stage)
    least, made.learner_dies_at = made.saves, 1
    with pytest.raises(Killed):
        made.save()
    with pytest.raises(ValueError, match="no save is there of all shards"):
        made.check(least)


@pytest.mark.parametrize("dying", [0, 1])
def test_a_shard_is_killed(world: Callable[[str], World], dying: int):
    """The save and the next one are done, with the last file of the shard that was killed or a newer one."""
    for step in range(12):
        made = saved(world, str(step))
        made.actors[dying].dies_at = step
        made.save()
        least = made.saves
        assert max(least) == least[1 - dying]
        if step % 3:
            made.insert()
            made.save()
            assert min(made.saves) > max(least)
            assert made.paths() == files(made.saves)
        made.check(made.saves)


def test_a_learner_is_killed(world: Callable[[str], World]):
    """The shards live on: another learner saves, and all are killed then."""
    for message in range(5):
        for step in range(0, 12, 2):
            made = saved(world, f"{message}-{step}")
            least, made.learner_dies_at = made.saves, message
            with contextlib.suppress(Killed):
                made.save()
            made.learner_dies_at = -1
            made.learn(resume=False)
            assert made.paths() == files(made.saves)
            least = [max(numbers) for numbers in zip(least, made.saves)]
            made.insert()
            made.actors[1].steps, made.actors[1].dies_at = 0, step
            made.messages, made.learner_dies_at = 0, 4
            with contextlib.suppress(Killed):
                made.save()
            made.check(least)


@pytest.mark.parametrize("messages", [1, 2])
def test_all_are_killed_when_they_resume(world: Callable[[str], World], messages: int):
    """One shard or both have written a save that was cut off."""
    for first in range(4):
        for second in range(4):
            made = saved(world, f"{first}-{second}")
            least, made.learner_dies_at = made.saves, messages
            with pytest.raises(Killed):
                made.save()
            made.messages, made.learner_dies_at, made.die_at = 0, 4, (first, second)
            with pytest.raises(Killed):
                made.start(resume=True)
            made.die_at = -1, -1
            made.check(least)


def test_a_first_save_that_was_cut_off(world: Callable[[str], World]):
    """Without a save of all shards there is nothing to resume, and the folder is free for another run."""
    for messages in 1, 2:
        made = world(str(messages))
        made.insert()
        made.messages, made.learner_dies_at = 0, messages
        with pytest.raises(Killed):
            made.save()
        made.learner_dies_at = -1
        if messages == 1:
            with pytest.raises(FileNotFoundError, match=r"^For 'ShardedReplay', 'resume' needs a folder that save\(\)"):
                made.start(resume=True)
            made.start(resume=False)
            assert not list(made.folder.iterdir())
        else:
            with pytest.raises(
                FileExistsError, match=r"^For 'ShardedReplay', 'folder' must contain no shards of another"
            ):
                made.start(resume=False)
            made.check([1, 1])


def test_saves_of_two_threads(world: Callable[[str], World], monkeypatch: pytest.MonkeyPatch):
    """The second begins when the first is done."""
    made = saved(world, "two")
    second = threading.Thread(target=made.save)

    def stage(shard: Shard, *arguments: Any) -> None:
        real(shard, *arguments)
        if second.ident is None:
            second.start()
            second.join(0.1)
            assert second.is_alive()

    real, before = Shard.stage, max(made.saves)
    monkeypatch.setattr(Shard, "stage", stage)
    made.save()
    second.join()
    assert len(made.staged[0]) == len(made.staged[1]) == 4
    assert min(made.saves) == max(made.staged[0]) > before
    made.check(made.saves)


def test_a_damaged_file_of_a_shard_that_lives(world: Callable[[str], World]):
    """A learner that finds it goes on, and the next save replaces the file; a new shard says what is wrong."""
    made = saved(world, "damaged")
    file = next(made.folder.glob("save_*/shard_1.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    made.learn(resume=True)
    made.save()
    made.check(made.saves)
    file = next(made.folder.glob("save_*/shard_1.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"shard_1.safetensors has .* bytes, not"):
        made.start(resume=True)


def test_a_shard_that_restarts_with_a_damaged_file(world: Callable[[str], World]):
    made = saved(world, "restarts")
    file = next(made.folder.glob("save_*/shard_1.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    made.actors[1].dead = True
    made.exchange.reports()
    wait_until(lambda: len(made.exchange.alive()) == 2)
    assert [len(actor.shard.rows) for actor in made.actors] == [14, made.saves[1]] == [14, 0]


def test_without_any_shard_nothing_is_saved(world: Callable[[str], World]):
    made = saved(world, "dead")
    for actor in made.actors:
        actor.dies_at = 3
    with pytest.raises(RuntimeError, match="none of the 2 shards answers"):
        made.save()


def test_a_shard_that_cannot_write(world: Callable[[str], World], monkeypatch: pytest.MonkeyPatch):
    """The error comes as it is, and the files are those of the last save."""
    made = saved(world, "full")

    def stage(shard: Shard, *arguments: Any) -> None:
        if shard is made.actors[1].shard:
            raise OSError(28, "No space left on device")
        real(shard, *arguments)

    real, before = Shard.stage, made.saves
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "stage", stage)
        with pytest.raises(OSError, match="No space left"):
            made.save()
    assert made.saves == before
    assert made.paths() == files(before)
    made.check(before)
