"""Draws the way of a call through the rooms of the house, down to the state.

python docs/images/architecture.py
"""

from pathlib import Path

from where import STYLE, arrow, box, text, tip

WIDTH, HEIGHT = 640, 560


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
        *part(20, 124, 395, "box", "store/faces: methods and front", "convert, wait (store/waits), lock, name"),
        *part(430, 124, 190, "box", "buffers: bodies", "checks at compile time"),
        *part(20, 228, 395, "box", "store/rows: the store", "rows in and out, their calls (store/kernels)"),
        *part(430, 228, 190, "box", "ops: operators", "one launch a call"),
        *part(20, 332, 395, "box", "csrc: kernels", "C++ for a CPU, CUDA for a GPU"),
        *part(430, 332, 190, "box", "ops/composite.py", "MindSpore's operators"),
        *part(
            20,
            436,
            600,
            "buffer",
            "state: columns, ring, weights, random state",
            "arrays, Parameters, files (store/folder)",
        ),
        *(arrow(f"M{x} {y} V{y + 34}") for y in (88, 192, 296, 400) for x in (217, 525) if (x, y) != (217, 88)),
        *(arrow(f"M{x} 88 V122") for x in (115, 320)),
        arrow("M460 296 V314 H330 V330"),
        text(320, 526, "BufferSpec (store/spec) says what the buffer is, to all of them.", "note"),
        text(320, 546, "Kernels and composite operators return the same rows to the last bit.", "note"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "architecture.svg").write_text(drawing(), encoding="utf-8")
