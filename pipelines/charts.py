"""Small charts as inline SVG: intervals, funnels, curves and bars. Pure functions from numbers to text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIN, BASE, LINE, INK = "#0b7a75", "#9aa7ad", "#dfe5e8", "#1d2529"


def interval(value: float, low: float, high: float, colour: str = WIN, width: int = 260) -> str:
    """A rate on a 0–100 % axis with its 95 % interval."""
    x, a, b = (10 + (width - 20) * share for share in (value, low, high))
    ticks = "".join(
        f'<line x1="{10 + (width - 20) * t}" x2="{10 + (width - 20) * t}" y1="4" y2="20" stroke="{LINE}"/>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    )
    return (
        f'<svg width="{width}" height="24" viewBox="0 0 {width} 24" role="img" aria-label="{100 * value:.0f} percent">'
        f'{ticks}<line x1="{a:.1f}" x2="{b:.1f}" y1="12" y2="12" stroke="{colour}" stroke-width="4" opacity=".35"/>'
        f'<circle cx="{x:.1f}" cy="12" r="5.5" fill="{colour}"/></svg>'
    )


@dataclass(frozen=True)
class Row:
    """One group of bars: a name and a share of each series."""

    name: str
    shares: tuple[float, ...]
    labels: tuple[str, ...]


def bars(rows: Sequence[Row], colours: Sequence[str], width: int = 920, name_width: int = 150) -> str:
    """Horizontal bars, one group a row, one bar a series, labelled at their ends."""
    bar, gap = 15, 14
    room = width - name_width - 120
    parts, y = [], 0.0
    for row in rows:
        height = bar * len(row.shares)
        parts.append(f'<text x="0" y="{y + height / 2 + 4:.0f}" style="fill:{INK}">{row.name}</text>')
        for share, label, colour in zip(row.shares, row.labels, colours, strict=False):
            length = max(1.0, room * share)
            parts.append(
                f'<rect x="{name_width}" y="{y + 1:.0f}" width="{length:.1f}" height="{bar - 2}" rx="2" '
                f'fill="{colour}"/>'
                f'<text x="{name_width + length + 8:.1f}" y="{y + bar - 3:.0f}">{label}</text>'
            )
            y += bar
        y += gap
    height = max(1.0, y - gap)
    return f'<svg width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}">{"".join(parts)}</svg>'


@dataclass(frozen=True)
class Series:
    """A curve."""

    name: str
    points: tuple[tuple[float, float], ...]
    """(x, y), y above 0 to be drawn on a logarithmic axis."""
    colour: str
    dashed: bool = False


def curves(series: Sequence[Series], x_label: str, y_label: str, width: int = 920, height: int = 300) -> str:
    """Curves over a linear x and a logarithmic y; points that are not finite or not positive are left out."""
    drawn = [(one, [(x, y) for x, y in one.points if math.isfinite(y) and y > 0]) for one in series]
    drawn = [(one, points) for one, points in drawn if points]
    if not drawn:
        return "<p>no curve was recorded</p>"
    xs = [x for _, points in drawn for x, _ in points]
    ys = [y for _, points in drawn for _, y in points]
    right = max(xs) or 1.0
    bottom, top = math.log10(min(ys)), math.log10(max(ys))
    bottom, top = bottom - 0.03 * (top - bottom + 1e-6), top + 0.03 * (top - bottom + 1e-6)
    if top - bottom < 1e-3:
        bottom, top = bottom - 0.1, top + 0.1
    left_edge, right_edge, top_edge, bottom_edge = 64, width - 14, 12, height - 42

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left_edge + (right_edge - left_edge) * x / right,
            bottom_edge - (bottom_edge - top_edge) * (math.log10(y) - bottom) / (top - bottom),
        )

    parts = []
    for tick in _log_ticks(10**bottom, 10**top):
        _, y = place(0, tick)
        parts.append(
            f'<line x1="{left_edge}" x2="{right_edge}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>'
            f'<text x="{left_edge - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for tick in _linear_ticks(right):
        x, _ = place(tick, 10**bottom)
        parts.append(f'<text x="{x:.1f}" y="{bottom_edge + 18}" text-anchor="middle">{tick:g}</text>')
    for one, points in drawn:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        dash = ' stroke-dasharray="5 4"' if one.dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{one.colour}" stroke-width="2"{dash}/>')
    middle = (left_edge + right_edge) / 2
    parts.append(f'<text x="{middle}" y="{height - 4}" text-anchor="middle">{x_label}</text>')
    turned = f"translate(14 {(top_edge + bottom_edge) / 2}) rotate(-90)"
    parts.append(f'<text transform="{turned}" text-anchor="middle">{y_label}</text>')
    return f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    if len(ticks) < 2:  # a curve that hardly changes: two values within it
        ticks = [float(f"{low ** (1 - share) * high**share:.3g}") for share in (0.2, 0.8)]
    return ticks if len(ticks) <= 9 else [t for t in ticks if f"{t:e}".startswith("1.0")]


def _linear_ticks(high: float) -> list[float]:
    step = 10 ** math.floor(math.log10(high)) / 2
    while high / step > 8:
        step *= 2
    return [round(index * step, 6) for index in range(int(high / step) + 1)]
