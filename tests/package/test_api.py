"""The reference in docs/api: every public name has an entry, and every entry an example that is run."""

import importlib
import inspect
import re
import runpy
from typing import Any, NamedTuple

import griffe
import pytest
from docstrings import examples
from places import ROOT

from mindspore_replay import Buffer
from mindspore_replay.di_engine import DequeBuffer

PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
MODULES = ("mindspore_replay", *(f"mindspore_replay.{name}" for name in ("compat", "datasets", "distributed", "store")))

#: Public in Python, for the rest of the package and not for users.
INNER = {
    "achieved_goal", "add_flags", "apply_to", "arrays", "available", "begin", "check_open", "check_sizes",
    "check_state", "closed", "collect", "collected", "completed", "count_inserted", "counts", "deaths", "end",
    "extend_repr", "folder", "further", "has_episodes", "has_landed", "leave", "lets_sample", "limiter",
    "load_arrays", "move_to", "names", "note", "num_envs", "on_their_way", "parameters_and_names", "rule", "send",
    "state", "take", "timeouts", "tried", "try_insert", "try_sample", "turn", "types", "waiting", "waits",
}  # fmt: skip


class Entry(NamedTuple):
    """A directive: its object, by where it is imported from, and the members that are shown."""

    path: str
    members: tuple[str, ...]

    @property
    def object(self) -> Any:
        module, _, name = self.path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def entries() -> list[Entry]:
    found = []
    for path in PAGES:
        for name, options in DIRECTIVE.findall(path.read_text(encoding="utf-8")):
            members = re.search(r"members: \[(.*)\]|^ +members:\n((?: +- \w+\n)*)", options, re.MULTILINE)
            found.append(Entry(name, tuple(re.findall(r"\w+", "".join(members.groups(default="")) if members else ""))))
    return found


ENTRIES = entries()
CLASSES = [entry for entry in ENTRIES if inspect.isclass(entry.object)]


def text_of(member: Any) -> str:
    return (inspect.getdoc(member) or "") if member is not None else ""


def has_example(shown: type, name: str) -> bool:
    """Return True if a method has an example: its own, in that of its class, or that of a buffer's method."""
    member, same = inspect.getattr_static(shown, name), inspect.getattr_static(Buffer, name, None)
    called = re.search(rf"(?:>>>|\.\.\.) .*\.{name}\b", text_of(shown))
    return bool(called) or any(">>>" in text_of(one) for one in (member, getattr(member, "__func__", None), same))


def test_every_public_name_has_one_entry():
    public = [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]
    paths = [entry.path for entry in ENTRIES]
    assert len(set(paths)) == len(paths)
    assert set(public) - {"mindspore_replay.__version__"} - set(paths) == set()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.path)
def test_an_entry_has_an_example_that_is_run(entry: Entry):
    found = {test.name for test in examples(importlib.import_module(entry.object.__module__))}
    assert f"{entry.object.__module__}.{entry.object.__qualname__}" in found


def shown_arguments(shown: Any) -> set[str]:
    """Return the arguments that the site shows: an entry whose names fill several lines is lost there."""
    found = griffe.Docstring(text_of(shown), parser="google").parse(warnings=False)
    parameters = [one for section in found if section.kind.value == "parameters" for one in section.value]
    return {name.strip("* ") for one in parameters for name in one.name.split(",")}


def arguments(called: Any) -> set[str]:
    return {name for name in inspect.signature(called).parameters if not name.startswith("_")} - {"args", "kwargs"}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.path)
def test_all_arguments_are_shown(entry: Entry):
    shown = shown_arguments(entry.object)
    assert not shown or arguments(entry.object) - shown == set()


@pytest.mark.parametrize("entry", CLASSES, ids=lambda entry: entry.path)
def test_members_exist_and_have_examples(entry: Entry):
    assert [name for name in entry.members if not has_example(entry.object, name)] == []


@pytest.mark.parametrize("entry", [one for one in CLASSES if one.members], ids=lambda entry: entry.path)
def test_no_method_is_left_out(entry: Entry):
    own = {
        name
        for base in entry.object.__mro__
        if base.__module__.startswith("mindspore_replay")
        for name in vars(base)
        if not name.startswith("_")
    }
    of_buffer = next(one for one in CLASSES if one.object is Buffer).members if issubclass(entry.object, Buffer) else ()
    assert own - set(entry.members) - set(of_buffer) - INNER == set()


def test_the_index_leads_to_each_page():
    index = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    named = {
        page: set(re.findall(r"`(\w+)`", names))
        for page, names in re.findall(r"\((\w+\.md)\) \| (.*) \|$", index, re.M)
    }
    shown = {
        path.name: {name.rpartition(".")[2] for name, _ in DIRECTIVE.findall(path.read_text(encoding="utf-8"))}
        for path in PAGES
        if path.stem != "index"
    }
    assert named.keys() == shown.keys()
    assert {page: names - shown[page] for page, names in named.items() if names - shown[page]} == {}


def test_formulas_become_mathml():
    adapted = runpy.run_path(str(ROOT / "docs" / "formulas.py"))["with_formulas"]
    text = "A view.\n\n.. math:: P(i) = \\frac{w_i}\n    {2}\n\nHere :math:`w_i` is `w`."
    for part in ("<mfrac>", "<span><math", "</math></div>\n\nHere <span>", "</span> is `w`."):
        assert part in adapted(text)
    assert "frac{" not in adapted(text)
    for entry in ENTRIES:
        assert ":math:`" not in adapted(text_of(entry.object))


@pytest.mark.parametrize(
    "entry",
    [one for one in CLASSES if one.object is not DequeBuffer],  # its methods hand all arguments to middleware first
    ids=lambda entry: entry.path,
)
def test_errors_of_wrong_arguments_name_no_inner_class(entry: Entry):
    """Python's own errors begin with the name of the class that defines the method, unless `mixin` leaves it out."""
    shown, public = entry.object, {other.object.__name__ for other in CLASSES}
    for name in dir(shown):
        method = getattr(shown, name)
        member = getattr(method, "__func__", method)
        wrapped = getattr(member, "__wrapped__", None)
        member = wrapped if getattr(wrapped, "__name__", "") == name else member  # of a context manager
        own = inspect.isfunction(member) and member.__module__.startswith("mindspore_replay.")
        if name.startswith("_") or not own or "**" in str(inspect.signature(member, follow_wrapped=False)):
            continue
        with pytest.raises(TypeError, match=r"surprise") as caught:
            method(*([] if inspect.ismethod(method) else [None]), surprise=1)
        words = re.match(r"(?:(\w+)\.)?\w+\(\) ", str(caught.value))
        assert words, str(caught.value)
        assert words[1] is None or words[1] in public, str(caught.value)
