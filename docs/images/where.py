"""Draws where the buffer is: in the compiled graph, and beside it as in most libraries. In English and in Chinese.

python docs/images/where.py
"""

from pathlib import Path

WIDTH, HEIGHT = 840, 330

WORDS = {
    "where.svg": {
        "beside": "Beside the graph: most libraries",
        "inside": "In the graph: mindspore_replay",
        "python": "Python, every step",
        "graph": "compiled graph",
        "buffer": "buffer",
        "environment": "environment",
        "network": ["network, loss,", " optimizer"],
        "batch": "batch: sample, convert, copy",
        "back": "TD errors: copy back",
        "insert": "insert",
        "sample": "sample",
        "priorities": "priorities",
        "beside_note": "The graph waits for Python twice a step.",
        "inside_note": "One compiled call a step. No batch leaves the graph.",
    },
    "where_cn.svg": {
        "beside": "图外：多数库的做法",
        "inside": "图内：mindspore_replay",
        "python": "Python，每一步",
        "graph": "编译后的计算图",
        "buffer": "缓冲区",
        "environment": "环境",
        "network": ["网络、损失、", "优化器"],
        "batch": "批数据：采样、转换、拷贝",
        "back": "TD 误差：拷贝回来",
        "insert": "插入",
        "sample": "采样",
        "priorities": "优先级",
        "beside_note": "每一步，计算图要等 Python 两次。",
        "inside_note": "每一步只有一次编译后的调用，批数据不离开计算图。",
    },
}

#: Colours in the light and in the dark. The card is opaque, so the picture is readable on any page.
STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif; font-size: 14px }
.card { fill: #ffffff } .python { fill: #f1f3f5; stroke: #adb5bd } .graph { fill: #e6f4f1; stroke: #1b9e77 }
.box { fill: #ffffff; stroke: #868e96 } .buffer { fill: #1b9e77; stroke: #1b9e77 } .on { fill: #ffffff }
text { fill: #212529 } .note, .label { fill: #495057; font-size: 13px } .title { font-weight: 600; font-size: 16px }
.arrow { stroke: #495057; stroke-width: 1.6; fill: none } .slow { stroke: #d9480f } .tip { fill: #495057 }
.tip_slow { fill: #d9480f } .warn { fill: #d9480f; font-size: 13px }
@media (prefers-color-scheme: dark) {
  .card { fill: #1b1f24 } .python { fill: #2b3036; stroke: #6c757d } .graph { fill: #12332b; stroke: #35b58c }
  .box { fill: #1b1f24; stroke: #868e96 } text { fill: #e9ecef } .note, .label { fill: #ced4da }
  .buffer { fill: #147a5b; stroke: #35b58c } .on { fill: #ffffff } .arrow { stroke: #ced4da } .tip { fill: #ced4da }
  .slow { stroke: #ff922b } .tip_slow { fill: #ff922b } .warn { fill: #ffa94d }
}
"""


def box(x: int, y: int, width: int, height: int, kind: str) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'


def text(x: int, y: int, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>'


def arrow(path: str, slow: bool = False) -> str:
    return f'<path class="arrow{" slow" if slow else ""}" marker-end="url(#{"slow" if slow else "tip"})" d="{path}"/>'


def tip(name: str, kind: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}" d="M0 0 L8 4 L0 8 Z"/></marker>'
    )


def beside(words: dict) -> list[str]:
    """Draw a buffer in Python."""
    first, second = words["network"]
    return [
        text(205, 32, words["beside"], "title"),
        box(16, 48, 378, 108, "python"),
        text(28, 68, words["python"], "note", "start"),
        box(36, 84, 118, 52, "box"),
        text(95, 115, words["environment"]),
        arrow("M154 110 H246"),
        text(200, 102, words["insert"], "label"),
        box(248, 84, 118, 52, "buffer"),
        text(307, 115, words["buffer"], "on"),
        box(16, 216, 378, 72, "graph"),
        text(28, 236, words["graph"], "note", "start"),
        box(140, 228, 226, 48, "box"),
        text(253, 257, first + second),
        arrow("M330 136 V226", slow=True),
        text(322, 178, words["batch"], "warn", "end"),
        arrow("M350 228 V138", slow=True),
        text(322, 200, words["back"], "warn", "end"),
        text(205, 314, words["beside_note"], "note"),
    ]


def inside(words: dict) -> list[str]:
    """Draw a buffer that Python fills and the graph samples."""
    first, second = words["network"]
    return [
        text(635, 32, words["inside"], "title"),
        box(446, 48, 378, 70, "python"),
        text(458, 68, words["python"], "note", "start"),
        box(690, 60, 118, 46, "box"),
        text(749, 88, words["environment"]),
        box(446, 160, 378, 128, "graph"),
        arrow("M690 84 H520 V132"),
        text(640, 76, words["insert"], "label"),
        text(812, 180, words["graph"], "note", "end"),
        box(462, 134, 116, 110, "buffer"),
        text(520, 194, words["buffer"], "on"),
        arrow("M578 214 H680"),
        text(629, 206, words["sample"], "label"),
        box(682, 184, 126, 60, "box"),
        text(745, 210, first),
        text(745, 229, second),
        arrow("M745 244 V268 H520 V246"),
        text(632, 262, words["priorities"], "label"),
        text(635, 314, words["inside_note"], "note"),
    ]


def drawing(words: dict) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{STYLE}</style><defs>{tip('tip', 'tip')}{tip('slow', 'tip_slow')}</defs>",
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
        '<g transform="translate(-430)">',  # first, since a phone shows the left half
        *inside(words),
        '</g><g transform="translate(430)">',
        *beside(words),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    for name, words in WORDS.items():
        (Path(__file__).parent / name).write_text(drawing(words), encoding="utf-8")
