"""Traces of one episode as inline SVG: joints, gripper and clock over time, with the places of faults marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from robocoach.pipelines.charts import INK, LINE

JOINT_COLOURS = ("#2f6fb5", "#e07b1f", "#2f9a58", "#b83a3a", "#7d5bb0", "#8a6144", "#c25a9b", "#5f6b73")
MARKS = {"error": "#b4502e", "warning": "#c99a1e", "note": "#7d8b93"}
MOST_POINTS = 900
LEFT, RIGHT = 52, 14
WIDTH = 920


@dataclass(frozen=True)
class Mark:
    """A stretch of the time axis that a finding names."""

    first: float
    last: float
    severity: str
    label: str


@dataclass(frozen=True)
class Panel:
    """Curves that share an axis."""

    title: str
    rows: np.ndarray
    """(T, C)"""
    colours: Sequence[str]
    height: int
    span: tuple[float, float] | None = None
    """Lowest and highest value shown; None fits the curves."""


def traces(times: np.ndarray, panels: Sequence[Panel], marks: Sequence[Mark], unit: str) -> str:
    """Panels under each other over one time axis (T,), the marks drawn through all of them."""
    left, right = float(times[0]), float(times[-1]) if times[-1] > times[0] else float(times[0]) + 1.0
    width = WIDTH - LEFT - RIGHT
    top = 20.0 if marks else 4.0
    total = top + sum(panel.height + 10 for panel in panels) + 18

    def across(time: float) -> float:
        return LEFT + width * (time - left) / (right - left)

    parts = [_mark(mark, across, top, total - 28) for mark in marks]
    parts += _labels(marks, across)
    y = top
    for panel in panels:
        parts.append(_panel(panel, times, across, y))
        y += panel.height + 10
    for tick in _ticks(left, right, 8):
        parts.append(f'<text x="{across(tick):.1f}" y="{total - 5:.0f}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<text x="0" y="{total - 5:.0f}">{unit}</text>')
    return (
        f'<svg width="{WIDTH}" height="{total:.0f}" viewBox="0 0 {WIDTH} {total:.0f}" role="img">{"".join(parts)}</svg>'
    )


def _mark(mark: Mark, across: Callable[[float], float], top: float, bottom: float) -> str:
    x, end = across(mark.first), across(mark.last)
    wide = max(3.0, end - x)
    return (
        f'<rect x="{x - (wide - (end - x)) / 2:.1f}" y="{top:.0f}" width="{wide:.1f}" height="{bottom - top:.0f}" '
        f'fill="{MARKS[mark.severity]}" opacity=".22"/>'
    )


def _labels(marks: Sequence[Mark], across: Callable[[float], float]) -> list[str]:
    """Labels above their marks; one that would run into its neighbour is left out, the list below names it."""
    parts, free = [], -1.0
    for mark in sorted(marks, key=lambda one: one.first):
        size = 6.3 * len(mark.label)
        x = min(max(across((mark.first + mark.last) / 2) - size / 2, LEFT), WIDTH - RIGHT - size)
        if x > free:
            parts.append(f'<text x="{x:.0f}" y="13" style="fill:{MARKS[mark.severity]}">{mark.label}</text>')
            free = x + size + 8
    return parts


def _panel(panel: Panel, times: np.ndarray, across: Callable[[float], float], y: float) -> str:
    rows = np.asarray(panel.rows, dtype=np.float64)
    finite = rows[np.isfinite(rows)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    low, high = panel.span or (low, high)
    middle, reach = (low + high) / 2, max((high - low) / 2 * 1.06, 1e-4)
    low, high = middle - reach, middle + reach
    bottom = y + panel.height

    def up(value: float) -> float:
        return bottom - panel.height * (value - low) / (high - low)

    parts = [
        f'<rect x="{LEFT}" y="{y:.0f}" width="{WIDTH - LEFT - RIGHT}" height="{panel.height}" fill="none" '
        f'stroke="{LINE}"/>'
    ]
    for tick in _ticks(low, high, 4 if panel.height > 100 else 2):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}" stroke="{LINE}"/>'
            f'<text x="{LEFT - 7}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    pick = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_POINTS)).astype(int))
    for column, colour in zip(rows.T, panel.colours, strict=False):
        points = " ".join(f"{across(times[at]):.1f},{up(column[at]):.1f}" for at in pick if np.isfinite(column[at]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    parts.append(f'<text x="{LEFT + 6}" y="{y + 15:.0f}" style="fill:{INK}" class="title">{panel.title}</text>')
    return "".join(parts)


def _ticks(low: float, high: float, most: int) -> list[float]:
    span = high - low
    if span <= 0:
        return [low]
    step = 10.0 ** np.floor(np.log10(span))
    step = next(one for one in (step / 10, step / 5, step / 2, step, 2 * step, 5 * step) if span / one <= most)
    return [round(number * step, 9) for number in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]
