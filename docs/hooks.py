"""Puts pages that lie outside of docs/ into the site, and lets links between them and the pages of docs/ lead there."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
#: Pages of the site, and the files that they are made of.
OUTSIDE = {
    "index.md": "README.md",
    "index_cn.md": "README_CN.md",
    "gallery.md": "examples/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
#: A block of code, which stays as it is; or a link or an image: its text, its target, an anchor.
LINK = re.compile(
    r"^```.*?^```|(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!https?:|mailto:|#)([^)#]+)(#[^)]*)?\)", re.DOTALL | re.MULTILINE
)


def adapted(text: str, source: str, page: str) -> str:
    """Return a page's text in which links lead to other pages of the site.

    Args:
        text (str): The text of the file.
        source (str): The file's path in the project.
        page (str): The page's path in the site.

    Returns:
        str: The text; a link to a file that is no page is plain text.
    """
    pages = {path: name for name, path in OUTSIDE.items()}

    def replace(match: re.Match[str]) -> str:
        image, words, target, anchor = match.groups(default="")
        if not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = pages.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inside is None:
            return words
        return f"{image}[{words}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(replace, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside; mkdocs calls this."""
    from mkdocs.structure.files import File

    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Adapt the links of a page, and give the search its words; mkdocs calls this."""
    name = page.file.src_uri
    page.meta["tags"] = config.extra["keywords"].get(name, [])
    return adapted(markdown, OUTSIDE.get(name, f"docs/{name}"), name)


#: The line of a page that leads to its twin in the other language.
SWITCH = re.compile(r"^(?:English \| \[简体中文\]\(([^)#]*).*|\[English\]\(([^)#]*).* \| 简体中文)$", re.MULTILINE)


def languages(markdown: str, page: str) -> list[dict[str, str]]:
    """Return the languages of a page for the theme's menu; none if it has no twin."""
    found = SWITCH.search(markdown)
    if not found:
        return []
    twin = posixpath.normpath(posixpath.join(posixpath.dirname(page), found[1] or found[2]))
    english, chinese = (page, twin) if found[1] else (twin, page)
    named = (("English", "en", english), ("简体中文", "zh", chinese))
    links = (path.removesuffix("index.md").replace(".md", "/") or "." for _, _, path in named)
    return [{"name": name, "lang": lang, "link": link} for (name, lang, _), link in zip(named, links)]


def on_page_context(context: Any, page: Any, config: Any, **_: Any) -> None:
    """Put the languages of a page into the header; mkdocs calls this."""
    config.extra["alternate"] = languages(page.markdown, page.file.src_uri)


#: The signature at the top of a page of a class, and the first sentence below it.
SIGNATURE = re.compile(
    r'(</h1>\s*)(<div class="doc-signature.*?</div>)(\s*<div class="doc doc-contents first">\s*<p>.*?</p>)', re.DOTALL
)
#: The defaults in a table of arguments, which the descriptions have too. Of several arguments at once they are wrong.
DEFAULTS = re.compile(
    r"\s*<th>Default</th>|(?<=</td>)\s*<td>\s*(?:<em>required</em>|<code>(?:(?!</td>).)*?</code>)\s*</td>(?=\s*</tr>)",
    re.DOTALL,
)


def on_page_content(html: str, **_: Any) -> str:
    """Show what a picture's text says below it, for pictures that stand alone; fold signatures; mkdocs calls this."""
    html = re.sub(
        r'<p>(<img alt="((?!What the code)[^"]+)"[^>]*>)</p>', r"<figure>\1<figcaption>\2</figcaption></figure>", html
    )
    html = DEFAULTS.sub("", html) if "<th>Default</th>" in html else html
    return SIGNATURE.sub(r"\1\3<details><summary>Signature</summary>\2</details>", html)


#: What the theme writes around a page, in Chinese.
CHINESE = {
    "Table of contents": "目录",
    "Skip to content": "跳到正文",
    "Back to top": "回到顶部",
    "Previous": "上一页",
    "Next": "下一页",
    "Search": "搜索",
}


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Mark pages in Chinese as such, with the theme's words; mkdocs calls this.

    The theme's script would treat a twin that the head names as another site, and request its map.
    """
    output = re.sub(r'<link rel="alternate" href="[^"]*" hreflang="[^"]*">', "", output)
    chinese = page.file.src_uri.startswith("cn/") or page.file.src_uri == "index_cn.md"
    if not chinese:
        return output
    words = rf'(>\s*|=")({"|".join(CHINESE)})(?=\s*<|"|: )'
    return re.sub(words, lambda found: found[1] + CHINESE[found[2]], output.replace('lang="en"', 'lang="zh"', 1))


def on_post_build(config: Any) -> None:
    """Take other hosts out of the theme's scripts, and refuse a site that loads from one; mkdocs calls this.

    The scripts would load a library for diagrams, and a stopgap for old browsers.

    Raises:
        ValueError: If a page, style or script loads something from elsewhere.
    """
    folder = Path(config["site_dir"])
    for script in folder.rglob("*.js"):
        text = script.read_text(encoding="utf-8")
        script.write_text(re.sub(r"https://unpkg\.com/[^\"]*", "", text), encoding="utf-8")
    for path in folder.rglob("*"):
        if path.suffix in FOREIGN and (found := foreign(path.read_text(encoding="utf-8"), path.suffix)):
            raise ValueError(f"{path} must load nothing from elsewhere, but got {found[0]}.")


#: Things that a browser loads from another host, by the kind of file.
FOREIGN = {
    ".html": r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>",
    ".css": r"@import[^;]*//[^;]*|url\([\"']?(?:https?:)?//[^)]*\)",
    ".js": r"https?://(?:unpkg|cdn|fonts)[^\"']*",
}


def foreign(text: str, suffix: str) -> list[str]:
    """Return what a file would load from another host."""
    return re.findall(FOREIGN[suffix], text)
