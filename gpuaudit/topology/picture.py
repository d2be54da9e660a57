# SPDX-License-Identifier: Apache-2.0
"""The topology as an SVG picture: the tree, then the matrix. Readable on paper and dark screens."""

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from gpuaudit.topology.forest import Branch, forest, rows
from gpuaudit.topology.marks import by_place, mark_text
from gpuaudit.topology.text import (
    LEGEND,
    beyond_lines,
    cell,
    finding_lines,
    in_matrix,
    link_text,
    nvlink_cells,
)
from gpuaudit.topology.view import Device, Link, View

ROW, INDENT, CELL, MARGIN, CHARACTER = 22, 26, 66, 20, 7.3
# Colours keep a contrast of at least 4.5 to 1 with their background (WCAG 2.1, 1.4.3).
STYLE = """
svg { color-scheme: light dark; font: 12px ui-monospace, Menlo, Consolas, monospace; }
.page { fill: #ffffff; } text { fill: #1a1a1a; } .dim { fill: #595959; } .bad { fill: #b00020; }
.line { stroke: #767676; fill: none; } .line.bad { stroke: #b00020; fill: none; stroke-width: 3; }
.box { fill: #eef2f7; stroke: #767676; } .gpu { fill: #dff0d0; } .nic { fill: #d6e6fa; }
.marked { stroke: #b00020; stroke-width: 2.5; } .marked.soft { stroke: #8a5a00; }
text.soft { fill: #8a5a00; }
.near { fill: #dff0d0; } .mid { fill: #fbf0c8; } .far { fill: #f8ddd8; } .none { fill: #eeeeee; }
@media (prefers-color-scheme: dark) {
  .page { fill: #14171a; } text { fill: #ececec; } .dim { fill: #a8a8a8; } .bad { fill: #ff8a80; }
  .line { stroke: #8a8a8a; } .line.bad { stroke: #ff8a80; }
  .box { fill: #262b31; stroke: #8a8a8a; } .gpu { fill: #23401a; } .nic { fill: #1b3554; }
  .marked { stroke: #ff8a80; } .marked.soft { stroke: #f0b94a; } text.soft { fill: #f0b94a; }
  .near { fill: #23401a; } .mid { fill: #4a3f12; } .far { fill: #4d231d; } .none { fill: #2a2a2a; }
}
@media print {
  .page { fill: #ffffff; } text { fill: #000000; } .dim { fill: #404040; } .bad { fill: #b00020; }
  .box, .near, .mid, .far, .none { fill: #ffffff; stroke: #404040; } .marked { stroke: #b00020; }
}
"""
SHADES = {"LOC": "near", "PIX": "near", "PXB": "near", "PHB": "mid", "NODE": "mid", "SYS": "far"}


def render(view: View) -> str:
    """The picture as one self-contained file."""
    marks = {place: mark_text(found) for place, found in by_place(view).items()}
    lines = [row for branch in forest(view) for row in rows(branch)]
    shown = in_matrix(view)
    tree_bottom = MARGIN + 2 * ROW + ROW * len(lines)
    legend = [*(f"Note: {n}" for n in view.notes), *LEGEND.splitlines()]
    legend += [*beyond_lines(view), *finding_lines(view)]
    matrix_bottom = tree_bottom + ROW * (len(shown) + 2)
    parts = [
        *tree(lines, marks),
        *matrix(view, shown, tree_bottom),
        *(words(MARGIN, matrix_bottom + ROW * i, t, "dim") for i, t in enumerate(legend)),
    ]
    height = matrix_bottom + ROW * (len(legend) + 1)
    return page(width_of(lines, marks, shown, legend), height, view, parts)


def page(width: float, height: float, view: View, parts: list[str]) -> str:
    """Title, background and all parts."""
    title = f"PCI topology of {view.node or 'a node'}"
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{safe(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
            words(MARGIN, MARGIN + ROW / 2, title),
            *parts,
            "</svg>",
            "",
        ]
    )


def width_of(
    lines: list[tuple[int, Branch]],
    marks: Mapping[str, str],
    shown: tuple[Device, ...],
    legend: list[str],
) -> float:
    """Wide enough for the longest line and for the matrix."""
    longest = ((d, len(label(b)) + len(marks.get(b.address, "")) + 4) for d, b in lines)
    tree_width = max((d * INDENT + count * CHARACTER for d, count in longest), default=0)
    text_width = max(len(line) for line in legend) * CHARACTER
    return 3 * MARGIN + max(tree_width, CELL * (len(shown) + 1), text_width)


def safe(text: str) -> str:
    """Text as XML can hold it: names of a recording may contain anything."""
    return escape("".join(c if c.isprintable() else "?" for c in text), {'"': "&quot;"})


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """One line of text."""
    style = f' class="{kind}"' if kind else ""
    where = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {where} xml:space="preserve"{style}>{safe(text)}</text>'


def label(branch: Branch) -> str:
    """What stands beside a port or device."""
    return f"{branch.title}  {link_text(branch.link)}" if branch.link else branch.title


def tree(lines: list[tuple[int, Branch]], marks: Mapping[str, str]) -> Iterator[str]:
    """A row a port or device; a line leads from each to the row of its parent."""
    last_at: dict[int, float] = {}
    for i, (depth, branch) in enumerate(lines):
        x, y = MARGIN + depth * INDENT, MARGIN + ROW * (i + 2)
        if depth:
            bad = " bad" if lowered(branch.link) else ""
            path = f"M{x - INDENT + 6} {last_at[depth - 1] + 6} V{y - 4} H{x - 2}"
            yield f'<path class="line{bad}" d="{path}"/>'
        last_at[depth] = y
        yield from row(branch, marks.get(branch.address, ""), x, y)


def row(branch: Branch, found: str, x: float, y: float) -> Iterator[str]:
    """The text of one row, in a box when it is a device, and what was found there."""
    if branch.device is not None:
        kind = {"gpu": " gpu", "nic": " nic"}.get(branch.device.role, "")
        kind += " marked" if found else ""
        kind += " soft" if found and loudness(found) == "soft" else ""
        size = f'width="{len(branch.title) * CHARACTER + 8:.0f}" height="{ROW - 4}" rx="3"'
        yield f'<rect class="box{kind}" x="{x - 2:.0f}" y="{y - ROW + 7:.0f}" {size}/>'
    yield words(x + 2, y, branch.title, "" if branch.device else "dim")
    if branch.link:
        after = x + 14 + len(branch.title) * CHARACTER
        yield words(after, y, link_text(branch.link), "bad" if lowered(branch.link) else "dim")
    if found:
        yield words(x + 14 + (len(label(branch)) + 2) * CHARACTER, y, f"! {found}", loudness(found))


def loudness(found: str) -> str:
    """The style of what was found at a place: warnings alone are told more quietly."""
    return "bad" if found.startswith(("fail", "error")) else "soft"


def lowered(link: Link | None) -> bool:
    """True for a link that carries less than it could."""
    if link is None or link.now is None or link.could is None:
        return False
    return link.now.gb_per_s < link.could.gb_per_s


def matrix(view: View, shown: tuple[Device, ...], top: float) -> Iterator[str]:
    """A shaded cell a pair: near, in the middle, far."""
    pairs = {frozenset((p.one, p.other)): p for p in view.pairs}
    joined = {frozenset(names): text for names, text in nvlink_cells(view).items()}
    for i, one in enumerate(shown):
        x, y = MARGIN + CELL * (i + 1), top + ROW * (i + 2)
        yield words(x + CELL / 2, top + ROW, one.label, "", "middle")
        yield words(MARGIN, y, one.label)
        for j, other in enumerate(shown):
            both = frozenset((one.label, other.label))
            found = pairs.get(both)
            text = joined.get(both) or (cell(found) if found else "X")
            shade = "near" if both in joined else SHADES.get(found.path if found else "", "none")
            yield from square(MARGIN + CELL * (j + 1), y, text, shade)


def square(x: float, y: float, text: str, shade: str) -> Iterator[str]:
    """One cell of the matrix."""
    size = f'width="{CELL - 2}" height="{ROW - 2}"'
    yield f'<rect class="{shade}" x="{x:.0f}" y="{y - ROW + 7:.0f}" {size}/>'
    yield words(x + CELL / 2, y, text, "", "middle")
