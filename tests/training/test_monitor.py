"""`ReplayMonitor` and its sinks: the times of readings, their content, and every sink's output read back."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from mindspore import Tensor

from mindspore_replay import EpochReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer, ReplayMonitor, ReplayQueue
from mindspore_replay.training import JSONLinesSink, TensorBoardSink, TerminalSink
from mindspore_replay.training.sinks import bars, number_text


class Noted:
    """A sink that keeps its input."""

    def __init__(self) -> None:
        self.readings: list[tuple[int, dict[str, float], dict[str, Any]]] = []
        self.closed = False

    def write(self, step: int, values: Mapping[str, float], histograms: Mapping[str, Any]) -> None:
        self.readings.append((step, dict(values), dict(histograms)))

    def close(self) -> None:
        self.closed = True


def prioritized() -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(4, 64, [(), (3,)], ["int32", "float32"], seed=0, max_use=50)


def rows(n: int) -> list[np.ndarray]:
    return [np.zeros(n, np.int32), np.zeros((n, 3), np.float32)]


def test_other_ways_to_draw():
    """A queue, epochs, and an object for samples of another size, which has the counts of all."""
    schema: dict[str, Any] = {"shapes": [()], "types": ["int32"]}
    queue = ReplayQueue(2, 8, **schema, max_staleness=4).advance(4)
    epochs = EpochReplayBuffer(2, 8, **schema, weighted=True, seed=0)
    buffer = ReplayBuffer(2, 8, **schema, weighted=True, seed=0)
    for each in (queue, epochs, buffer):
        each.insert([np.arange(6, dtype=np.int32)], version=[4, 2, 3, 1, 1, 0] if each is queue else None)
        each.sample()
    noted, large = Noted(), buffer.with_sample_size(5)
    large.sample()
    with ReplayMonitor({"queue": queue, "epochs": epochs, "large": large}, noted, every=1) as monitor:
        monitor.step()
    _, values, histograms = noted.readings[0]
    assert [values[f"{name}/sampled"] for name in ("queue", "epochs", "large")] == [2, 2, 7]
    assert (values["queue/used_up"], values["queue/eligible"]) == (2, 4)
    assert histograms["queue/staleness"].counts.tolist() == [0, 1, 0, 2, 1]


def test_it_reads_when_a_reading_is_due():
    buffer, noted = prioritized(), Noted()
    with ReplayMonitor(buffer, noted, every=10) as monitor:
        for _ in range(25):
            buffer.insert(rows(1))
            monitor.step()
        monitor.step(3)
        monitor.step(4)
        monitor.write()
        monitor.step(9)
        assert not noted.closed
        monitor.step()
        assert not noted.closed
    assert [step for step, _, _ in noted.readings] == [10, 20, 32, 32, 42]
    assert [values["inserted"] for _, values, _ in noted.readings] == [10, 20, 25, 25, 25]
    assert noted.closed


def test_steps_go_on_where_a_run_is_resumed(tmp_path: Path):
    buffer, path = prioritized(), tmp_path / "replay.jsonl"
    operations = 0
    for _ in range(2):  # the second run is resumed
        with ReplayMonitor(buffer, JSONLinesSink(path), every=10, step=operations) as monitor:
            for _ in range(25):
                monitor.step()
            operations = monitor.operations
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [10, 20, 35, 45]
    assert operations == 50


def test_samples_per_insert_is_that_since_the_reading_before():
    buffer, noted = prioritized(), Noted()
    buffer.insert(rows(20)).sample()
    monitor = ReplayMonitor(buffer, noted, every=1)
    buffer.insert(rows(2)).sample()
    monitor.step()
    buffer.insert(rows(4)).sample()
    monitor.step()
    monitor.step()
    seen = [values for _, values, _ in noted.readings]
    assert [values.get("samples_per_insert") for values in seen] == [2, 1, None]
    assert [values["samples_per_second"] > 0 for values in seen] == [True, True, False]
    assert [values["inserts_per_second"] > 0 for values in seen] == [True, True, False]
    assert [values["sampled"] for values in seen] == [8, 12, 12]
    assert seen[0]["bytes"] == buffer.nbytes


def test_an_older_state_gives_no_rates():
    buffer, noted = prioritized(), Noted()
    before = buffer.state_dict()
    buffer.insert(rows(20)).sample()
    monitor = ReplayMonitor(buffer, noted)
    buffer.load_state_dict(before)
    assert "inserts_per_second" not in monitor.write().values
    assert monitor.write().values["inserts_per_second"] == 0


def test_rates_are_those_of_a_second(monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr("mindspore_replay.training.monitor.time.perf_counter", lambda: clock[0])
    buffer, first, last = prioritized(), Noted(), Noted()
    monitor = ReplayMonitor(buffer, [first, last])
    buffer.insert(rows(20)).sample()
    clock[0] += 0.5
    values = monitor.write().values
    assert (values["inserts_per_second"], values["samples_per_second"]) == (40, 8)
    monitor.close()
    assert (first.closed, last.closed) == (True, True)
    assert first.readings == last.readings


class Step(Kept):
    """Works on a buffer in a compiled function."""

    @ms.jit
    def __call__(self, number, row):
        self.buffer.insert([number, row])
        indices, weights, numbers, _ = self.buffer.sample()
        invalid = self.buffer.update_priorities(indices + numbers * 100, weights)
        return self.buffer.delete(indices[:1]) + invalid


def test_counters_move_in_compiled_graphs():
    buffer, noted = prioritized(), Noted()
    buffer.insert(rows(30))
    step, monitor = Step(buffer), ReplayMonitor(buffer, noted, every=5)
    for number in range(5):
        step(Tensor(number, ms.int32), Tensor(np.zeros(3, np.float32)))
        monitor.step()
    values = noted.readings[0][1]
    drawn = {key: values[key] for key in ("inserted", "sampled", "deleted", "rows")}
    assert drawn == {"inserted": 35, "sampled": 20, "deleted": 5, "rows": 35}
    assert values["invalid_handles"] == int(buffer.counts.asnumpy()[4])


def written(sink: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """Write two readings of a buffer in use to a sink; return the last one."""
    buffer = prioritized()
    with ReplayMonitor(buffer, [sink], every=10) as monitor:
        for i in range(10):
            buffer.insert(rows(8), priority=np.float32(i))
            monitor.step()
            buffer.sample()
        buffer.insert(rows(1))
        return monitor.write()


def test_tensorboard_files_are_read_back(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    values, histograms = written(TensorBoardSink(tmp_path))
    events = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0, "scalars": 0}).Reload()
    assert set(events.Tags()["scalars"]) == {f"replay/{name}" for name in values}
    for name, value in values.items():
        last = events.Scalars(f"replay/{name}")[-1]
        assert last.step == 10
        np.testing.assert_allclose(last.value, value, rtol=1e-6)
    assert set(events.Tags()["histograms"]) == {"replay/age", "replay/staleness", "replay/priority"}
    for name, (edges, counts) in histograms.items():
        first, last = events.Histograms(f"replay/{name}")
        assert (first.step, last.step) == (10, 10)
        assert last.histogram_value.bucket_limit == edges[1:].tolist()
        assert last.histogram_value.bucket == counts.tolist()
        assert (last.histogram_value.min, last.histogram_value.num) == (edges[0], counts.sum())


def test_json_lines_are_read_back(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 0}\n')
    sink = JSONLinesSink(path)
    sink.write(0, {"rows": 1}, {})
    assert path.read_text().count("\n") == 2  # written before the file is closed
    path.write_text('{"step": 0}\n')
    sink.close()
    values, histograms = written(JSONLinesSink(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.pop("step") for line in lines] == [0, 10, 10]
    spread = {name: {"edges": h.edges.tolist(), "counts": h.counts.tolist()} for name, h in histograms.items()}
    assert lines[-1] == {**values, **spread}


def test_the_table():
    file = io.StringIO()
    values, _ = written(TerminalSink(file))
    text = file.getvalue()
    assert text.count("step 10") == 1  # only the last table, without a terminal
    assert all(name in text for name in values)
    assert "│ priority_max" in text
    assert "█" in text


def test_texts_of_numbers_and_bars():
    assert [number_text(value) for value in (1234567, 0.123456, 1234.5, 0.0)] == ["1,234,567", "0.1235", "1,234", "0"]
    assert bars(np.array([0, 1, 4, 8])) == " ▁▄█"
    assert bars(np.array([1, 1, 2, 2]), width=2) == "▄█"
    assert bars(np.zeros(3, int)) == "   "
