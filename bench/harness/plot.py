"""Bars as SVG, without a library: one group per row, one bar per series, values written beside them."""

from html import escape

COLOURS = ("#9aa0a6", "#5f6368", "#e8710a", "#d93025", "#1a73e8", "#188038")
BAR, GAP, LEFT, WIDTH = 18, 14, 250, 860


def bars(title: str, unit: str, series: list[str], rows: list[tuple[str, list[float | None]]]) -> str:
    """`rows`: a label and one value for each of `series`; None: not measured. Returns the file's text."""
    values = [value for _, numbers in rows for value in numbers if value is not None]
    scale = (WIDTH - LEFT - 90) / max(values, default=1)
    y, out = 64 + 18 * len(series), []
    for i, name in enumerate(series):
        out.append(f'<rect x="20" y="{46 + 18 * i}" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>'
                   f'<text x="40" y="{56 + 18 * i}">{escape(name)}</text>')
    for label, numbers in rows:
        y += GAP
        out.append(f'<text x="20" y="{y + 14}" font-weight="600">{escape(label)}</text>')
        for i, value in enumerate(numbers):
            if value is None:
                continue
            width = max(1.0, value * scale)
            out.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" fill="{COLOURS[i % len(COLOURS)]}"/>'
                       f'<text x="{LEFT + width + 6:.1f}" y="{y + 12}">{value:.3g} {escape(unit)}</text>')
            y += BAR
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 24}" font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="white"/><text x="20" y="28" font-size="16">{escape(title)}</text>'
            + "".join(out) + "</svg>\n")
