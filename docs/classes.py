"""Gives each class of a page in docs/api a page of its own, below that page in the menu."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import griffe

FOLDER = Path(__file__).parent / "api"
#: A directive for a class, with its options.
CLASS = re.compile(r"^(::: (\S+\.([A-Z]\w*))\n)(?:    options:\n)?((?:      .*\n)*)", re.MULTILINE)


@functools.cache
def package() -> Any:
    """Return the package as its sources have it."""
    return griffe.load("mindspore_replay", search_paths=[FOLDER.parent.parent], allow_inspection=False)


def first_line(path: str) -> str:
    """Return the first sentence of the docstring of a class, or whose other name it is."""
    found = package()[path.partition(".")[2]]
    if found.is_attribute:
        return f"another name of `{found.value}`."
    return re.split(r"(?<=\.)\s|\n\n", found.docstring.value, maxsplit=1)[0].replace("\n", " ")


def split(text: str, stem: str, about: Callable[[str], str] = first_line) -> tuple[str, dict[str, str]]:
    """Return a page with a list of its classes in their place, and the page of each class by its name.

    Args:
        text (str): The page, in Markdown.
        stem (str): Its name without the suffix, which is the folder of the pages of classes.
        about (Callable): Returns a line about a class, by its path.
    """
    pages = {match[3]: f"{match[1]}    options:\n      heading_level: 1\n{match[4]}" for match in CLASS.finditer(text)}
    listed = CLASS.sub(lambda match: f"- [`{match[3]}`]({stem}/{match[3]}.md): {about(match[2])}\n", text)
    return re.sub(r"^(- \[`.*\n)\n(?=- \[`)", r"\1", listed, flags=re.MULTILINE), pages


def shared(buffers: str) -> str:
    """Return a section with links to the methods of all buffers, those of `Buffer` on the page of buffers."""
    members = re.findall(r"- (\w+)", next(match[4] for match in CLASS.finditer(buffers) if match[3] == "Buffer"))
    links = ", ".join(f"[`{name}`][mindspore_replay.Buffer.{name}]" for name in members)
    return f"\n## Methods of all buffers\n\n{links}\n"


@functools.cache
def read() -> dict[str, tuple[str, dict[str, str]]]:
    """Return what `split` makes of each page, by the page's name. Buffers have links to the methods of all."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    found = {stem: split(text, stem) for stem, text in texts.items()}
    for stem in ("buffers", "host"):
        pages = found[stem][1]
        pages |= {
            n: page + shared(texts["buffers"]) for n, page in pages.items() if re.search("Replay(Buffer|Queue)$", n)
        }
    return found


def names() -> dict[str, list[str]]:
    """Return the classes of each page."""
    return {stem: list(pages) for stem, (_, pages) in read().items()}


def linked(text: str, pages: dict[str, list[str]]) -> str:
    """Return the table of all names with a link from each class to its page."""

    def row(match: re.Match[str]) -> str:
        of = pages.get(match[1], [])
        return re.sub(r"`(\w+)`", lambda n: f"[{n[0]}]({match[1]}/{n[1]}.md)" if n[1] in of else n[0], match[0])

    return re.sub(r"^\| \[[^]]+\]\((\w+)\.md\) \|.*", row, text, flags=re.MULTILINE)


def in_menu(menu: Any, pages: dict[str, list[str]]) -> Any:
    """Return the menu with the pages of classes below those that they were taken from."""
    if isinstance(menu, list):
        return [in_menu(entry, pages) for entry in menu]
    if isinstance(menu, dict):
        return {title: in_menu(entry, pages) for title, entry in menu.items()}
    match = re.fullmatch(r"api/(\w+)\.md", menu)
    names = pages.get(match[1], []) if match else []
    return [menu, *({name: f"api/{match[1]}/{name}.md"} for name in names)] if match and names else menu


def on_config(config: Any) -> Any:
    """Add the pages to the menu; mkdocs calls this."""
    config.nav = in_menu(config.nav, names())
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages; mkdocs calls this."""
    from mkdocs.structure.files import File

    for stem, (_, pages) in read().items():
        for name, text in pages.items():
            files.append(File.generated(config, f"api/{stem}/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put links in the place of classes, and on their names; mkdocs calls this."""
    path = Path(page.file.src_uri)
    if path == Path("api", "index.md"):
        return linked(markdown, names())
    return split(markdown, path.stem)[0] if path.parent == Path("api") else markdown
