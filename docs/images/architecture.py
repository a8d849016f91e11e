"""Draws the parts of a buffer: who calls it, its two bodies, its two backends, and where its rows lie.

python docs/images/architecture.py
"""

from pathlib import Path

from where import STYLE, arrow, box, text, tip

WIDTH, HEIGHT = 640, 470


def part(x: int, y: int, width: int, kind: str, title: str, *notes: str) -> list[str]:
    """Draw a box with a title and notes below it."""
    middle, on = x + width // 2, "on" if kind == "buffer" else ""
    lines = [text(middle, y + 44 + 18 * i, note, on or "note") for i, note in enumerate(notes)]
    return [box(x, y, width, 68, kind), text(middle, y + 25, title, on), *lines]


def drawing() -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{STYLE}</style><defs>{tip('tip', 'tip')}</defs>",
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
        *part(20, 20, 190, "python", "Python", "insert, sample, …"),
        *part(225, 20, 190, "python", "actor processes", "attach, without MindSpore"),
        *part(430, 20, 190, "graph", "compiled graph", "sample, loss, priorities"),
        arrow("M115 88 V134"),
        arrow("M320 88 V134"),
        arrow("M525 88 V134"),
        *part(20, 136, 395, "box", "front", "checks, limiter, lock, names of a sample"),
        *part(430, 136, 190, "box", "graph bodies", "operators of the graph"),
        arrow("M217 204 V250"),
        arrow("M480 204 V227 H330 V250"),
        arrow("M570 204 V250"),
        *part(20, 252, 395, "box", "native kernels", "C++ for a CPU, CUDA for a GPU"),
        *part(430, 252, 190, "box", "composite operators", "MindSpore's own"),
        arrow("M217 320 V366"),
        arrow("M525 320 V366"),
        *part(20, 368, 600, "buffer", "state: columns, ring, weights, random state", "Parameters, arrays or a folder"),
        text(320, 458, "Both backends return the same rows to the last bit.", "note"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "architecture.svg").write_text(drawing(), encoding="utf-8")
