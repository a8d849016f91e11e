"""What a prompt and a notebook show of a buffer."""

import pytest
from flat import flat

from mindspore_replay import (
    EpisodeReplayBuffer,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    attach,
    host,
)

COLUMNS = {"shapes": [(84, 84), (), ()], "types": ["uint8", "float32", "bool"]}
NAMES = ["observation", "reward", "terminated"]


@pytest.mark.parametrize("module_of", [PrioritizedReplayBuffer, host.PrioritizedReplayBuffer])
def test_columns_rows_and_options_that_are_not_the_default(module_of):
    buffer = module_of(
        4, 100, **flat(**COLUMNS, names=NAMES, alpha=0.7, views=[NStep(3, 0.9)], late=["reward"], seed=1)
    )
    assert repr(buffer).splitlines() == [
        "PrioritizedReplayBuffer: 0 of 100 rows",
        "  sample_size=4, alpha=0.7, views=[NStep(n=3, gamma=0.9)]",
        "  observation [84, 84] uint8",
        "  reward      [] float32, late",
        "  terminated  [] bool",
    ]
    table = buffer._repr_html_()
    assert "<b>PrioritizedReplayBuffer: 0 of 100 rows</b><br>sample_size=4" in table
    assert table.count("<tr>") == 4
    assert "<td>observation</td><td>[84, 84]</td><td>uint8</td>" in table


def test_at_most_ten_lines():
    names = [f"column_{i}" for i in range(30)]
    buffer = ReplayBuffer(2, 9, **flat([()] * 30, ["int32"] * 30, names=names, late=names[:12], compress=()))
    lines = repr(buffer).splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) <= 102
    assert lines[-1] == "  ... and 23 more columns"
    assert buffer._repr_html_().count("<tr>") == 31
    eight = ReplayBuffer(2, 9, [()] * 8, ["int32"] * 8)
    assert len(repr(eight).splitlines()) == 10
    assert repr(eight).endswith("7 [] int32")


def test_the_folder_of_a_learner_and_an_actor_and_that_it_is_closed(tmp_path):
    folder = tmp_path / "<rows>"
    buffer = EpisodeReplayBuffer(2, 9, [()], ["int32"], max_episode_length=3, storage=str(folder))
    attached = attach(folder)
    attached.insert([[1, 2]], end=[False, True])
    assert repr(buffer).startswith(
        f"EpisodeReplayBuffer in {folder}: 2 of 9 rows\n  sample_size=2, max_episode_length=3\n"
    )
    assert repr(attached).startswith(f"AttachedBuffer of EpisodeReplayBuffer in {folder}: 2 of 9 rows\n")
    assert "/&lt;rows&gt;: 2 of 9 rows" in attached._repr_html_()
    buffer.close()
    assert repr(attached).startswith(f"AttachedBuffer of EpisodeReplayBuffer in {folder}: closed\n")


def test_a_backend_that_is_slow():
    buffer = ReplayBuffer(1, 4, [()], ["int32"], backend="composite").insert([1])
    assert repr(buffer) == "ReplayBuffer: 1 of 4 rows, composite backend\n  sample_size=1\n  0 [] int32"


@pytest.mark.parametrize("mixed", [MixedReplay, host.MixedReplay])
def test_the_sources_of_a_mixture(mixed):
    make = ReplayBuffer if mixed is MixedReplay else host.ReplayBuffer
    agent, expert = (make(1, 9, [()], ["int32"]) for _ in range(2))
    mixture = mixed([(agent.insert([1]), 3), (expert, 1)], sample_size=8)
    assert repr(mixture).splitlines() == [
        "MixedReplay: sample_size=8",
        "  3 of ReplayBuffer: 1 of 9 rows",
        "  1 of ReplayBuffer: 0 of 9 rows",
    ]
    agent.close()
    assert repr(mixture).splitlines()[1] == "  3 of ReplayBuffer: closed"
