"""The README and the pages in docs/, as a newcomer uses them: each block of code by itself, commands, links."""

import gc
import json
import re
import runpy
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import mindspore as ms
import pytest
from pages import FENCED, Block, blocks_of
from places import ROOT
from programs import run_program

from mindspore_replay.cli import main

OUTSIDE = ("README.md", "README_CN.md", "examples/README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = sorted([*(ROOT / name for name in OUTSIDE), *(ROOT / "docs").rglob("*.md")])
NAMES = {path: path.relative_to(ROOT).as_posix().removeprefix("docs/").removesuffix(".md") for path in PAGES}
#: Their blocks are those of English pages: `test_languages.py`.
TRANSLATED = {ROOT / "README_CN.md", *(ROOT / "docs" / "cn").glob("*.md")}
TEXTS = {path: path.read_text(encoding="utf-8") for path in PAGES}


def run(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a block as a program: in a namespace and a folder of its own."""
    folder.mkdir()
    (folder / block.name).write_text(block.code, encoding="utf-8")
    monkeypatch.chdir(folder)
    if "compat import install" in block.code:  # changes MindSpore for the whole process
        options = ["--help"] if "parse_args" in block.code else []  # a program that needs arguments
        done = run_program(folder / block.name, *options)
        done.check_returncode()
        print(done.stdout if not options else "", end="")
        return
    mode = ms.get_context("mode")
    try:
        runpy.run_path(block.name, run_name="__main__")
    finally:
        ms.set_context(mode=mode)
        gc.collect()


def blocks_of_all() -> list[Any]:
    marks: dict[str, Any] = {
        "datasets": pytest.mark.filterwarnings("ignore")  # Minari warns that a dataset names no author
    }
    pages = [path for path in PAGES if blocks_of(path.stem, TEXTS[path]) and path not in TRANSLATED]
    return [pytest.param(path, id=NAMES[path], marks=marks.get(path.stem, ())) for path in pages]


@pytest.mark.parametrize("path", blocks_of_all())
def test_each_block_runs_by_itself(
    path: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    if '"shards"' in TEXTS[path]:
        request.getfixturevalue("cluster")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    for block in blocks_of(path.stem, TEXTS[path]):
        capfd.readouterr()
        run(block, tmp_path / Path(block.name).stem, monkeypatch)
        assert capfd.readouterr().out == block.output, block.name


@pytest.mark.parametrize("path", PAGES, ids=NAMES.get)
def test_all_code_is_in_blocks_that_run(path: Path):
    others = {"py"} if path.parent.name in ("coming_from", "cn") else set()  # code for another library
    assert set(FENCED.findall(TEXTS[path])) <= {"python", "text"} | others
    indented = re.findall(r"^    .*", FENCED.sub("", TEXTS[path]), re.MULTILINE)
    assert [line for line in indented if re.search(r"^ +(import|from|for) |\w\.\w+\(", line)] == []


def test_each_page_says_for_whom_it_is():
    first = {
        NAMES[path]: "\n".join(text.splitlines()[:6]) for path, text in TEXTS.items() if "README" not in NAMES[path]
    }
    assert [name for name, lines in first.items() if not re.search(r"^\*(For |写给)", lines, re.MULTILINE)] == []


def test_the_quickstart_is_the_example():
    code = blocks_of("README", TEXTS[ROOT / "README.md"])[0].code
    assert code == (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")


def test_the_quickstart_sees_that_nothing_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any):
    block = blocks_of("README", TEXTS[ROOT / "README.md"])[0]
    assert " True\n" in block.output
    idle = block.code.replace("        self.optimizer(gradients)\n", "")
    assert idle != block.code
    run(Block(block.name, idle, ""), tmp_path / "idle", monkeypatch)
    assert capfd.readouterr().out == block.output.replace("True", "False")


@pytest.mark.parametrize("path", PAGES, ids=NAMES.get)
def test_links_lead_somewhere(path: Path):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", FENCED.sub("", TEXTS[path]))
    assert [link for link in links if not link.startswith("https://") and not (path.parent / link).exists()] == []


def commands() -> dict[str, set[str]]:
    """Return the scripts and commands on the pages, with the options there."""
    found: dict[str, set[str]] = defaultdict(set)
    script = r"(?:python )?((?:examples|benchmarks)/\w+\.py|mindspore-replay \w+)([^`\n#]*)"
    for text in TEXTS.values():
        for name, arguments in re.findall(rf"(?:`|^    ){script}", text, re.MULTILINE):
            found[name] |= set(re.findall(r"--[\w-]+", arguments))
        for name, line in re.findall(r"^\| `(examples/\w+\.py)` (\|.*)", text, re.MULTILINE):
            found[name] |= set(re.findall(r"`(--[\w-]+)`", line))
    return found


def help_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Print the help of a script or command."""
    if name.startswith("mindspore-replay "):
        main([name.split()[1], "--help"])
    monkeypatch.syspath_prepend(ROOT / Path(name).parent)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    runpy.run_path(str(ROOT / name), run_name="__main__")


@pytest.mark.parametrize(("name", "options"), sorted(commands().items()))
def test_commands_have_the_options(
    name: str, options: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert name.startswith("mindspore-replay ") or (ROOT / name).is_file()
    if options or name.startswith("mindspore-replay "):
        with pytest.raises(SystemExit) as ended:
            help_of(name, monkeypatch)
        assert ended.value.code == 0
        assert options <= set(re.findall(r"--[\w-]+", capsys.readouterr().out))


def test_extras_are_installed_from_a_checkout():
    assert [path.name for path in PAGES if re.search(r"pip install ['\"]?mindspore_replay\b", TEXTS[path])] == []


def test_the_table_of_readings_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = TEXTS[ROOT / "docs" / "running.md"]
    block = next(block for block in blocks_of("running", text) if "ReplayMonitor(" in block.code)
    run(block, tmp_path / "running", monkeypatch)
    reading = Path("replay.jsonl").read_text(encoding="utf-8").splitlines()[0]
    table = text.split("| name | what it is |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(json.loads(reading)) - {"step"}
