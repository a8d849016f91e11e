"""Makes pages of the notebooks in docs/tutorials, with their stored outputs."""

import base64
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tutorials"


def converted(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as a page of Markdown, and its pictures by the name that the page gives them."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}_{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What the code above draws]({name})")
            else:
                text = "".join(output.get("text") or data["text/plain"]).rstrip()
                parts.append(f"```text\n{text}\n```")
    parts.insert(1, f"[This page as a notebook]({path.name})")
    return "\n\n".join(parts) + "\n", pictures


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and their pictures; mkdocs calls this."""
    from mkdocs.structure.files import File

    for path in sorted(FOLDER.glob("*.ipynb")):
        page, pictures = converted(path)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files
