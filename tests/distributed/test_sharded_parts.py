"""The parts of sharded buffers, without Ray: configurations, handles, choices of shards, weights, sums."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from clusters import assert_distribution
from mindspore import Tensor

from mindspore_replay import FrameStack, PrioritizedReplayBuffer, RateLimiter, create_buffer, host
from mindspore_replay.distributed import ShardWriter, cluster
from mindspore_replay.distributed.configuration import check_sample_size, shard_specs, split, whole_spec
from mindspore_replay.distributed.exchange import Exchange, Link
from mindspore_replay.distributed.front import choose
from mindspore_replay.distributed.shard import LIVES, MOST_SHARDS, Shard, shards_of
from mindspore_replay.training.statistics import Statistics, merged, statistics_of

pytestmark = pytest.mark.cpu_only("shards lie in the memory of processes of their own")

CONFIG: dict[str, Any] = {"capacity": 100, "sample_size": 4, "data_shape": [[2], []], "data_type": ["float32", "int32"]}
TOTALS = [3.0, 0.0, 1.0, 0.5]


@pytest.mark.parametrize("how", ["strata", "replace"])
def test_shards_are_chosen_by_their_weight(how: str):
    rng = np.random.default_rng(0)
    chosen = np.concatenate([choose(rng, TOTALS, 32, how) for _ in range(400)])
    assert_distribution(chosen, {0: 3.0, 2: 1.0, 3: 0.5})
    with pytest.raises(AssertionError):  # a choice that ignores the totals
        assert_distribution(chosen, {0: 1.0, 2: 1.0, 3: 1.0})


def test_strata_give_each_shard_its_share_but_for_one_row():
    rng = np.random.default_rng(0)
    for _ in range(100):
        counts = np.bincount(choose(rng, TOTALS, 90, "strata"), minlength=4)
        assert abs(counts - [60, 0, 20, 10]).max() <= 1
    assert (np.diff(choose(rng, TOTALS, 90, "strata")) >= 0).all()


def test_without_replacement_no_shard_gives_more_rows_than_it_has():
    rng = np.random.default_rng(0)
    batches = [choose(rng, [6, 2, 0, 3], 8, "once") for _ in range(4000)]
    assert np.max([np.bincount(batch, minlength=4) for batch in batches], axis=0).tolist() == [6, 2, 0, 3]
    for place in (0, 7):  # all places of a batch have the same distribution
        assert_distribution(np.array([batch[place] for batch in batches]), {0: 6, 1: 2, 3: 3})
    pairs = [int(batch[0] == 1) * 2 + int(batch[1] == 1) for batch in batches]
    assert_distribution(np.array(pairs), {0: 9 * 8, 1: 2 * 9, 2: 2 * 9, 3: 2})


def test_a_point_on_the_upper_bound_belongs_to_the_last_shard_with_weight():
    class Last:
        def random(self, n: int) -> np.ndarray:
            return np.ones(n)

    assert choose(Last(), [1.0, 2.0, 0.0], 2, "replace").tolist() == [1, 1]  # type: ignore[arg-type]


def test_handles_name_a_process_of_a_shard():
    """A process takes no handles of others, of its shard or another, and none that the last learner may have had."""
    spec, link, seen = (
        shard_specs(whole_spec({**CONFIG, "weighted": True})[0], 1, 0)[0],
        Link(0, None),
        [np.array([-1])],
    )
    for number in (0, 1, MOST_SHARDS - 1):
        shard = Shard(spec, None, number)
        shard.rows.insert([np.zeros((9, 2), np.float32), np.arange(9, dtype=np.int32)])
        for life in (1, 2, LIVES - 1, LIVES):
            before, link.identity = link.identity, link.identity // LIVES * LIVES + life - 1
            link.identity = shard.identity = link.next_identity()
            assert shard.identity > before
            handles, _, rows = shard.draw(4).parts
            assert handles.min() >= 0
            assert shards_of(handles).tolist() == [number] * 4
            ages = shard.call("info", np.concatenate([handles, *seen]))[2]
            assert ages.tolist() == [0] * 4 + [-1] * (len(ages) - 4)
            assert (handles & 15).tolist() == rows.tolist()
            seen.append(handles)
    assert shards_of(np.array([-1, np.iinfo(np.int64).max])).tolist() == [-1, MOST_SHARDS - 1]
    link.identity = before = 1 << 80  # as the clock of another machine may say
    assert link.next_identity() > before


def test_configurations_of_shards():
    config, settings = split(
        {**CONFIG, "seed": 7, "shards": {"number": 3, "timeout": 2.0}}, {"timeout": 1.0, "name": None}
    )
    assert settings == {"number": 3, "timeout": 1.0}
    parts = shard_specs(whole_spec(config)[0], 3, config["seed"])
    assert [(part.capacity, part.seed, part.sample_size) for part in parts] == [(34, 7, 1), (33, 8, 1), (33, 9, 1)]
    assert split({"params": CONFIG, "shards": 2}, {})[1] == {"number": 2}
    dqn = {"type": "priority", "replay_buffer_size": 9, "sample_size": 1, "data_shape": [[]], "data_type": ["int32"]}
    assert [part.capacity for part in shard_specs(whole_spec(dqn)[0], 2, None)] == [5, 4]


def test_a_sample_may_be_larger_than_a_shard_and_with_replacement_than_all():
    rates = {"push_sample_rate_limit": {"max": 1, "min": 0.5}, "sample_min_limit_ratio": 2}
    config = {**CONFIG, "sample_size": 60, "thruput_controller": rates}
    whole, limiter = whole_spec(config)
    parts = shard_specs(whole, 3, None)
    assert check_sample_size(parts, whole.sample_size) == 60
    rules = [limiter.arrays()["rule"] for limiter in (limiter, create_buffer(config).limiter)]
    assert rules[0].tolist() == rules[1].tolist()
    assert 120 in rules[0]
    assert check_sample_size(parts, 101) == 101
    parts = shard_specs(whole_spec({**config, "type": "uniform", "replace": False})[0], 3, None)
    assert check_sample_size(parts, 100) == 100
    with pytest.raises(ValueError, match=r"'sample_size' must be at most 100, .* 3 shards of capacity=100 .* got 101"):
        check_sample_size(parts, 101)
    with pytest.raises(TypeError, match="'sample_size' must be an int"):
        check_sample_size(parts, "many")
    sequences, _ = whole_spec({**CONFIG, "type": "sequence", "sequence_length": 11, "replace": False})
    with pytest.raises(ValueError, match="'sample_size' must be at most 70,"):
        check_sample_size(shard_specs(sequences, 3, None), 71)


def test_statistics_add_up_to_those_of_one_buffer():
    parts, whole = {}, PrioritizedReplayBuffer(4, 100, [()], ["int32"], seed=0)
    for i, rows in enumerate((10, 30)):
        buffer = PrioritizedReplayBuffer(4, 50, [()], ["int32"], seed=0)
        for one in (buffer, whole):
            one.insert([np.arange(rows, dtype=np.int32)], priority=np.arange(1, rows + 1) * (i + 1))
        buffer.delete([0])
        with buffer.state.snapshot() as state:
            parts[i] = statistics_of(state)
    whole.delete([0, 10])
    with whole.state.snapshot() as state:
        values, expected = merged(parts).values, statistics_of(state).values
    for key in expected.keys() - {"age_mean", "age_max", "beta"}:  # ages are counted in rows of one shard
        assert values[key] == pytest.approx(expected[key]), key
    assert values["shard_1/rows"] == 30
    assert "shard_0/priority" in merged(parts).histograms
    assert merged({}) == Statistics({}, {})


def writer(
    has_episodes: bool = False,
    prioritized: bool = False,
    num_envs: int = 1,
    batch: int = 4,
    columns: tuple[Any, ...] = ([(2,), ()], ["float32", "int32"]),
    names: Sequence[str] = ("a", "b"),
) -> tuple[ShardWriter, list[Any]]:
    made_by: Any = host.PrioritizedReplayBuffer if prioritized else host.ReplayBuffer
    views = [FrameStack(1, observation=names[1])] if has_episodes else []
    spec = made_by(1, 100, *columns, names=names, num_envs=num_envs, views=views).spec
    sent: list[Any] = []
    made = ShardWriter([sent], 0, spec, batch, 100)
    made._insert = lambda *batch: sent.append(batch)  # type: ignore[method-assign]
    return made, sent


def row(number: int) -> list[Any]:
    return [np.full(2, number, np.float32), number]


def test_a_writer_sends_whole_batches_and_copies():
    made, sent = writer()
    column = np.zeros((3, 2), np.float32)
    made.insert([column, np.arange(3, dtype=np.int32)])
    column += 9
    assert not sent
    assert made.collected == 3
    made.insert({"b": 3, "a": Tensor(np.full(2, 3, np.float32))})
    ((fields, rows, more),) = sent
    assert (rows, more) == (4, {})
    assert fields[0].tolist() == [[0, 0]] * 3 + [[3, 3]]
    assert fields[1].tolist() == [0, 1, 2, 3]
    assert [field.dtype.name for field in fields] == ["float32", "int32"]
    made.insert(row(4))
    made.send()
    made.send()
    assert [len(sent), sent[1][1], made.collected] == [2, 1, 0]


def test_a_writer_takes_bfloat16_in_every_form():
    made, sent = writer(columns=([(2,), ()], ["bfloat16", "int32"]))
    half = Tensor([1.5, -2.0], ms.bfloat16)
    for given in (half, half.asnumpy(), half.asnumpy().view(np.uint16), [1.5, -2.0]):
        made.insert([given, 1])
    ((fields, _, _),) = sent
    assert fields[0].tolist() == [[0x3FC0, 0xC000]] * 4
    with pytest.raises(TypeError, match="column 'a': expected bfloat16, but got complex128"):
        made.insert([np.zeros(2, complex), 1])
    assert made.collected == 0


def test_a_writer_sends_whole_episodes():
    made, sent = writer(has_episodes=True)
    for step in range(10):
        made.insert(row(step), end=step in (1, 6))
    assert [batch[0][1].tolist() for batch in sent] == [[0, 1], [2, 3, 4, 5, 6]]
    assert [more["end"].tolist() for _, _, more in sent] == [[False, True], [False] * 4 + [True]]
    made.send()
    assert (len(sent), made.collected) == (2, 3)
    made.insert(row(10), final=True)
    made.send()
    assert (len(sent), made.collected) == (3, 0)
    assert sent[2][2]["final"].tolist() == [False, False, False, True]


def test_a_writer_ends_its_open_episode():
    made, sent = writer(has_episodes=True)
    assert made.end_episodes() == 0
    for step in range(3):
        made.insert(row(step), end=step == 0)
    assert [made.end_episodes(), made.end_episodes()] == [1, 0]
    made.insert(row(3)).send()
    assert [more["end"].tolist() for _, _, more in sent] == [[True, False, True]]
    assert made.collected == 1
    with pytest.raises(RuntimeError, match=r"end_episodes"):
        writer()[0].end_episodes()


def test_a_writer_takes_a_column_of_terminations_as_ends():
    """A final row that comes next is sent with the episode that it belongs to."""
    made, sent = writer(True, columns=([(), ()], ["bool", "int32"]), names=("terminated", "step"))
    for step in range(10):
        made.insert([step in (1, 6), step], final=step == 7)
    assert [batch[0][1].tolist() for batch in sent] == [[0, 1], [2, 3, 4, 5, 6, 7]]
    made.insert([True, 10])
    assert (len(sent), made.collected) == (2, 3)
    made.send()
    assert (len(sent), made.collected) == (3, 0)


def test_a_writer_keeps_rows_with_and_without_priorities_apart():
    made, sent = writer(prioritized=True)
    made.insert(row(0), priority=2.0).insert(
        [np.zeros((2, 2), np.float32), np.arange(2, dtype=np.int32)], priority=[3, 4]
    )
    made.insert(row(3))
    assert [batch[1] for batch in sent] == [3]
    episodes, _ = writer(has_episodes=True, prioritized=True)
    episodes.insert(row(0), priority=1.0)
    with pytest.raises(ValueError, match="all rows of an episode must have a priority, or none"):
        episodes.insert(row(1))
    assert sent[0][2]["priority"].tolist() == [2, 3, 4]
    assert made.collected == 1


def test_what_is_allowed_is_what_may_be_inserted():
    """`allowance` is the largest number of rows for which `can_insert` is True, from `min_size` on."""
    for ratio, error in ((1.0, 5.0), (0.3, 4.0), (4.0, 40.0)):
        limiter = RateLimiter(ratio, 20, error)
        assert limiter.allowance() == 20 + np.floor(error / ratio + 1e-9)
        limiter.count_inserted(7)
        assert limiter.inserted == 7
        limiter.count_inserted(15)
        for _ in range(3):
            if limiter.can_sample(1):
                with limiter.sampling(1):
                    pass
            n = int(limiter.allowance())
            assert n == 0 or limiter.can_insert(n)
            assert not limiter.can_insert(n + 1)
    limiter.disable()
    assert limiter.allowance() == np.inf
    assert RateLimiter((0.0, 2.0), 1, 1.0).allowance() == np.inf
    late = RateLimiter(1.0, 65, 36.0)
    late.count_inserted(64)
    assert late.can_insert(64)  # the insertion begins below `min_size`
    assert late.allowance(64) == 64
    assert late.allowance(1) == 37
    narrow = RateLimiter(1.0, 1, 1.0)
    narrow.count_inserted(1)
    with pytest.raises(ValueError, match="'error_buffer' must be at least"):
        narrow.allowance(10)


def test_the_end_of_a_connection_by_ray_client(monkeypatch: pytest.MonkeyPatch):
    context = SimpleNamespace(client_worker=object())
    client, worker = SimpleNamespace(get_context=lambda: context), SimpleNamespace(mode=None, node=None)
    real = cluster._connections()
    assert vars(real[0]).keys() >= {"mode", "node"}
    assert vars(real[1].get_context()).keys() >= {"client_worker"}
    monkeypatch.setattr(cluster, "_connections", lambda: (worker, client))
    made, _ = writer()
    exchange = Exchange([], 1.0, made.spec, None)
    exchange.check_open()
    made.insert(row(0))
    context.client_worker = None
    with pytest.raises(RuntimeError, match="Ray was shut down, and with it the shards"):
        exchange.check_open()
    with pytest.raises(RuntimeError, match="all shards have ended"):
        made.insert(row(1))
