"""The code of docs/running.md runs, and its table names what a reading has."""

import json
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "running.md").read_text(encoding="utf-8")


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    namespace: dict[str, object] = {}
    exec("".join(blocks), namespace)
    assert capsys.readouterr().out == "1000 6400\n"
    readings = [json.loads(line) for line in Path("replay.jsonl").read_text().splitlines()]
    assert [reading["step"] for reading in readings] == [100, 200]
    table = PAGE.split("| name | what it is |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(readings[0]) - {"step"}
