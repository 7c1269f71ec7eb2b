"""Two drawings of a campaign as inline SVG: the tree of attempts, and success by attempt. Numbers in, text out.

Colours are classes that the page's style sheet sets, so that both follow its light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from robocoach.agent_loop.statistics import Rate
from robocoach.pipelines.campaign_text import change_words, children, outcome

COLUMN, ROW = 192, 108
"""Room of a node with the gap to the next one [px]."""
WIDTH, HEIGHT = 168, 60
LABEL_LINES, LABEL_MOST = 2, 26
"""Lines of an edge's label, and characters of a line."""
CLIPPED = 22
"""Characters of a reason in a box."""
MARGIN, ABOVE = 12, 36
"""Around the drawing, and for the labels above the first row [px]."""
Attempt = Mapping[str, Any]


def tree(attempts: Sequence[Attempt], best: int | None, incumbent: int) -> str:
    """The tree from left to right, one attempt a box, its change above it where its edge arrives."""
    places = layout(attempts)
    width = 2 * MARGIN + COLUMN * max((x for x, _ in places.values()), default=0) + WIDTH
    height = MARGIN + ABOVE + ROW * max((y for _, y in places.values()), default=0) + HEIGHT + MARGIN
    parts = []
    for attempt in attempts:
        if attempt["parent"] is not None:
            parts.append(_edge(_corner(places[attempt["parent"]]), _corner(places[attempt["number"]]), attempt))
    for attempt in attempts:
        parts.append(_node(_corner(places[attempt["number"]]), attempt, best, incumbent))
    return (
        f'<svg class="tree" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="tree of {len(attempts)} attempts">{"".join(parts)}</svg>'
    )


def layout(attempts: Sequence[Attempt]) -> dict[int, tuple[int, int]]:
    """Column and row of every attempt, by number. The column is the depth.

    The child with most descendants stays in its parent's row. Every other child's branch goes right below what is drawn
    already in the columns that the whole branch spans, branches of later attempts first: so no edge crosses another,
    and branches that are far apart share rows.
    """
    below = children(attempts)
    depth: dict[int, int] = {}
    for attempt in attempts:
        depth[attempt["number"]] = 0 if attempt["parent"] is None else depth[attempt["parent"]] + 1
    reach = dict(depth)  # the deepest column of each branch
    for attempt in reversed(attempts):
        if attempt["parent"] is not None:
            reach[attempt["parent"]] = max(reach[attempt["parent"]], reach[attempt["number"]])
    lowest: dict[int, int] = {}  # the lowest row used in each column
    places: dict[int, tuple[int, int]] = {}
    waiting = [(attempt["number"], False) for attempt in reversed(attempts) if attempt["parent"] is None]
    while waiting:
        number, straight = waiting.pop()
        parent = attempts[number]["parent"]
        row = (
            places[parent][1]
            if straight
            else 1
            + max(
                -1 if parent is None else places[parent][1],
                *(lowest.get(column, -1) for column in range(depth[number], reach[number] + 1)),
            )
        )
        places[number] = (depth[number], row)
        lowest[depth[number]] = row
        waiting += [(child, False) for child in reversed(below[number][1:])]
        waiting += [(child, True) for child in below[number][:1]]
    return places


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return MARGIN + COLUMN * place[0], MARGIN + ABOVE + ROW * place[1]


def _edge(start: tuple[int, int], end: tuple[int, int], attempt: Attempt) -> str:
    x, y = start[0] + WIDTH, start[1] + HEIGHT // 2
    across, down = end[0], end[1] + HEIGHT // 2
    middle = x + 10
    path = f"M{x},{y} H{across}" if y == down else f"M{x},{y} H{middle} V{down - 8} q0,8 8,8 H{across}"
    kind = " restart" if attempt["move"] == "restart" else ""
    full = change_words(attempt)
    shown = _label(change_words(attempt, short=True))
    first = end[1] - 8 - 15 * (len(shown) - 1)
    lines = "".join(
        f'<text class="label" x="{end[0] + 2}" y="{first + 15 * index}">{escape(line)}</text>'
        for index, line in enumerate(shown)
    )
    title = f"<title>{escape(f'attempt {attempt["number"]}, {attempt["move"]}: {full}')}</title>" if full else ""
    return f'<g><path class="edge{kind}" d="{path}"/>{title}{lines}</g>'


def _label(text: str) -> list[str]:
    """At most `LABEL_LINES` lines of at most `LABEL_MOST` characters, ended by … where text was left out."""
    lines, rest = [], text.split()
    while rest and len(lines) < LABEL_LINES:
        line = rest.pop(0)
        while rest and len(line) + 1 + len(rest[0]) <= LABEL_MOST:
            line += " " + rest.pop(0)
        lines.append(line)
    if rest and lines:
        lines[-1] = lines[-1][: LABEL_MOST - 2] + " …"
    return [line if len(line) <= LABEL_MOST else line[: LABEL_MOST - 1] + "…" for line in lines]


def _node(corner: tuple[int, int], attempt: Attempt, best: int | None, incumbent: int) -> str:
    x, y = corner
    number, kind = attempt["number"], kind_of(attempt, best)
    badge = {"best": "★ best", "reverted": "↺ reverted"}.get(kind, attempt["state"])
    if kind == "done":
        badge = attempt["move"]
    if number == incumbent and kind in ("done", "open"):
        badge += ", current"
    parts = [
        f'<rect class="node {kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>',
        f'<text class="number" x="{x + 10}" y="{y + 19}">{number}</text>',
        f'<text class="badge {kind}" x="{x + WIDTH - 10}" y="{y + 19}" text-anchor="end">{escape(badge)}</text>',
    ]
    shown, name = attempt["validation"], "val."
    if shown is None:
        shown, name = attempt["train"], "train"
    if shown is not None and attempt["state"] != "failed":
        parts.append(_rate(x + 10, y + 28, shown, name))
    else:
        told = attempt["reason"] or "not measured yet"
        parts.append(f'<text class="small" x="{x + 10}" y="{y + 42}">{escape(_clip(told, CLIPPED))}</text>')
    title = escape(f"attempt {number}, {attempt['state']}, {attempt['move']}. {attempt['reason']}")
    return f'<a href="#attempt-{number}"><g><title>{title}</title>{"".join(parts)}</g></a>'


def _rate(x: int, y: int, counted: Mapping[str, Any], name: str) -> str:
    rate = Rate(counted["successes"], counted["n"])
    room = WIDTH - 20
    low, high = rate.ci95
    stopped = bool(counted.get("stopped"))
    told = f"{name} {counted['successes']}/{counted['n']}"
    told += ", ended early" if stopped else f" = {100 * rate.value:.0f} %"
    hollow = " hollow" if stopped else ""
    return (
        f'<text class="small" x="{x}" y="{y + 10}">{told}</text>'
        f'<line class="axis" x1="{x}" x2="{x + room}" y1="{y + 22}" y2="{y + 22}"/>'
        f'<line class="span" x1="{x + room * low:.1f}" x2="{x + room * high:.1f}" y1="{y + 22}" y2="{y + 22}"/>'
        f'<circle class="point{hollow}" cx="{x + room * rate.value:.1f}" cy="{y + 22}" r="4.5"/>'
    )


def kind_of(attempt: Attempt, best: int | None) -> str:
    """`best`, `reverted`, `bad` (failed, rejected, abandoned), `done`, or `open` while it goes on."""
    if attempt["number"] == best:
        return "best"
    ended = outcome(attempt)
    if ended == "reverted":
        return "reverted"
    if ended in ("failed", "rejected", "abandoned"):
        return "bad"
    return "done" if ended == "done" else "open"


def _clip(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def success(attempts: Sequence[Attempt]) -> str:
    """Train and validation success of each attempt with intervals, the best validation so far as a line.

    Hollow where validation ended early; a cross where an attempt has no rate of its own. Below: both counts of
    rollouts.
    """
    step = 34 if len(attempts) > 14 else 56
    left, top, room = 92, 14, 220
    width = left + step * max(10, len(attempts)) + 16
    bottom = top + room
    height = bottom + 66
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - room * share
        parts.append(
            f'<line class="axis" x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * share:.0f} %</text>'
        )
    for name, y in (("attempt", 20), ("train n", 38), ("validation n", 55)):
        parts.append(f'<text x="{left - 8}" y="{bottom + y}" text-anchor="end">{name}</text>')
    best, steps = -1.0, []
    for index, attempt in enumerate(attempts):
        x = left + step * (index + 0.5)
        parts.append(
            f'<text class="number" x="{x:.0f}" y="{bottom + 20}" text-anchor="middle">{attempt["number"]}</text>'
        )
        if attempt["state"] in ("failed", "rejected", "abandoned"):
            parts.append(_failure(x, bottom))
        else:
            for name, offset, dy in (("train", -6, 38), ("validation", 6, 55)):
                counted = attempt[name]
                if counted is not None and counted["n"]:
                    parts.append(_bar(x + offset, bottom, room, counted, name))
                    parts.append(f'<text x="{x:.0f}" y="{bottom + dy}" text-anchor="middle">{counted["n"]}</text>')
            validation = attempt["validation"]
            if validation is not None and not validation["stopped"] and validation["n"]:
                best = max(best, validation["successes"] / validation["n"])
        if best >= 0:
            y = bottom - room * best
            steps.append(f"{x - step / 2:.1f},{y:.1f} {x + step / 2:.1f},{y:.1f}")
    line = f'<polyline class="best-line" points="{" ".join(steps)}"/>' if steps else ""
    return (
        f'<svg class="success" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="success by attempt">{line}{"".join(parts)}</svg>'
    )


def _bar(x: float, bottom: int, room: int, counted: Mapping[str, Any], name: str) -> str:
    rate = Rate(counted["successes"], counted["n"])
    low, high = rate.ci95
    hollow = " hollow" if counted.get("stopped") else ""
    return (
        f'<g><title>{name} {rate}</title><line class="whisker {name}" x1="{x:.1f}" x2="{x:.1f}" '
        f'y1="{bottom - room * low:.1f}" y2="{bottom - room * high:.1f}"/>'
        f'<circle class="{name}{hollow}" cx="{x:.1f}" cy="{bottom - room * rate.value:.1f}" r="5"/></g>'
    )


def _failure(x: float, y: float) -> str:
    return f'<path class="cross" d="M{x - 5:.1f},{y - 5:.1f} l10,10 m0,-10 l-10,10"/>'
