"""Bars as SVG, without a library; values written beside them. Readable on light pages and dark ones, by the reader's own preference."""

from html import escape
from typing import NamedTuple

COLOURS = ("#8b949e", "#57606a", "#e8710a", "#d93025", "#1a73e8", "#188038")
BAR, GAP, LEFT, WIDTH = 18, 14, 250, 860
STYLE = """<style>
text { fill: #1f2328; font: 12px system-ui, sans-serif; } .title { font-size: 16px; font-weight: 600; } .head { font-weight: 600; } .note { fill: #59636e; font-size: 11px; }
.page { fill: #fff; stroke: #d1d9e0; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .note { fill: #9198a1; } .page { fill: #151b23; stroke: #3d444d; } }
</style>"""


class Bar(NamedTuple):
    label: str
    value: float
    kind: int
    """Index into the plot's kinds, and so its colour."""


class Panel(NamedTuple):
    """Bars that share a scale."""

    heading: str
    unit: str
    bars: list[Bar]


def number(value: float) -> str:
    """Three digits, and as many more as stand before the point; a half is rounded up, although no float is one."""
    return f"{value + 1e-9:,.0f}" if value >= 100 else f"{value + 1e-9:.3g}"


def panels(title: str, kinds: list[tuple[str, str]], parts: list[Panel], note: str) -> str:
    """One panel below the other, each with a scale of its own. `kinds`: colours and what they mean. Returns the file's text."""
    out, x, y = [], 20, 56
    for colour, name in kinds:
        width = 40 + round(6.6 * len(name))
        if x + width > WIDTH:
            x, y = 20, y + 18
        out.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="2" fill="{colour}"/>' + text(x + 18, y, name))
        x += width
    y += 14
    for part in parts:
        y += GAP + 10
        out.append(text(20, y, part.heading, "head"))
        y += 8
        scale = (WIDTH - LEFT - 130) / max(bar.value for bar in part.bars)
        for bar in part.bars:
            out.append(text(LEFT - 10, y + 13, bar.label, anchor="end") + rectangle(y, bar.value * scale, kinds[bar.kind][0])
                       + text(LEFT + max(1.0, bar.value * scale) + 6, y + 13, f"{number(bar.value)} {part.unit}"))
            y += BAR + 2
    out.append(text(20, y + 22, note, "note"))
    return document(title, y + 36, out)


def bars(title: str, unit: str, series: list[str], rows: list[tuple[str, list[float | None]]]) -> str:
    """`rows`: a label and one value for each of `series`; None: not measured. Returns the file's text."""
    values = [value for _, numbers in rows for value in numbers if value is not None]
    scale = (WIDTH - LEFT - 90) / max(values, default=1)
    y, out = 64 + 18 * len(series), []
    for i, name in enumerate(series):
        out.append(f'<rect x="20" y="{46 + 18 * i}" width="12" height="12" rx="2" fill="{COLOURS[i % len(COLOURS)]}"/>' + text(40, 56 + 18 * i, name))
    for label, numbers in rows:
        y += GAP
        out.append(text(20, y + 14, label, "head"))
        for i, value in enumerate(numbers):
            if value is None:
                continue
            out.append(rectangle(y, value * scale, COLOURS[i % len(COLOURS)])
                       + text(LEFT + max(1.0, value * scale) + 6, y + 12, f"{value:.3g} {unit}"))
            y += BAR
    return document(title, y + 24, out)


def rectangle(y: float, width: float, colour: str) -> str:
    return f'<rect x="{LEFT}" y="{y}" width="{max(1.0, width):.1f}" height="{BAR - 3}" rx="2" fill="{colour}"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.0f}" y="{y:.0f}"{attributes}>{escape(words)}</text>'


def document(title: str, height: int, body: list[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">\n'
            + STYLE + f'\n<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>\n'
            + "\n".join([text(20, 28, title, "title"), *body]) + "\n</svg>\n")
