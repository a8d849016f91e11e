"""Draws three ends of an episode whose next observations are in the next rows: which rows are drawn.

python docs/images/ends.py
"""

from pathlib import Path

from where import STYLE, arrow, text, tip

WIDTH, HEIGHT = 840, 372
LEFT, STEP, SIZE = 344, 88, 56  # of the rows' boxes

#: Title, what the caller gives, and the rows of an episode: a label, and whether the row is drawn; the last note.
CASES = [
    ("It terminated", "terminated = True in the column", [("o₀", True), ("o₁", True), ("o₂", True)], "discount 0"),
    ("A time limit", "end=True", [("o₀", True), ("o₁", True), ("o₂", False)], "only read"),
    (
        "A time limit, a final row",
        "the last observation, with final=True",
        [("o₀", True), ("o₁", True), ("o₂", True), ("o₃", False)],
        "only read",
    ),
]

MORE = """
.read { fill: none; stroke: #868e96; stroke-dasharray: 5 4 }
"""


def row(x: int, y: int, label: str, drawn: bool) -> list[str]:
    kind = "buffer" if drawn else "read"
    return [
        f'<rect class="{kind}" x="{x}" y="{y}" width="{SIZE}" height="{SIZE - 16}" rx="8"/>',
        text(x + SIZE // 2, y + 26, label, "on" if drawn else ""),
    ]


def case(y: int, title: str, given: str, rows: list[tuple[str, bool]], note: str) -> list[str]:
    """Draw the rows of one episode, and the first of the next one."""
    parts = [text(24, y + 16, title, "title", "start"), text(24, y + 36, given, "note", "start")]
    for i, (label, drawn) in enumerate(rows):
        x = LEFT + i * STEP
        parts += row(x, y, label, drawn)
        if i + 1 < len(rows) and drawn:
            parts.append(arrow(f"M{x + SIZE} {y + 20} H{x + STEP - 2}"))
    end = LEFT + len(rows) * STEP
    parts.append(text(end - STEP + SIZE // 2, y + 60, note, "warn" if note == "discount 0" else "label"))
    parts.append(f'<path class="arrow slow" d="M{end - 12} {y - 8} V{y + 48}"/>')
    parts += [*row(end + 8, y, "o₀", True), text(end + 8 + SIZE + 14, y + 26, "…", "note", "start")]
    return parts


def drawing() -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{STYLE}{MORE}</style><defs>{tip('tip', 'tip')}{tip('slow', 'tip_slow')}</defs>",
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
    ]
    for i, given in enumerate(CASES):
        parts += case(36 + 100 * i, *given)
    parts.append('<rect class="buffer" x="24" y="334" width="24" height="18" rx="4"/>')
    parts.append(text(56, 348, "drawn", "label", "start"))
    parts.append('<rect class="read" x="124" y="334" width="24" height="18" rx="4"/>')
    parts.append(text(156, 348, "never drawn", "label", "start"))
    parts.append(arrow("M262 343 H292"))
    parts.append(text(300, 348, "next observation", "label", "start"))
    parts.append('<path class="arrow slow" d="M446 332 V354"/>')
    parts.append(text(456, 348, "no return, stack or sequence crosses it", "label", "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "ends.svg").write_text(drawing(), encoding="utf-8")
