"""The decisive lines of a training's log: what a person would look for first, by stated rules.

A traceback's last line; lines that say that a number was not finite, that memory ran out, that something was killed
or ran out of time; errors; warnings. Kept in the order of the log; when there are too many, the weaker kinds go first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINES_MOST = 12
LINE_MOST = 300
"""Characters of a line."""
TRACEBACK_MOST = 1500
"""Characters of a traceback; its end is kept."""

KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("not finite", re.compile(r"not finite|non-finite|\bnan\b|\binf\b", re.IGNORECASE)),
    ("out of memory", re.compile(r"out of memory|\boom\b|cannot allocate|can't allocate", re.IGNORECASE)),
    ("killed", re.compile(r"\bkilled\b|\bsig(kill|term|segv|abrt)\b|segmentation fault|core dumped", re.IGNORECASE)),
    ("time", re.compile(r"timed? ?out|deadline", re.IGNORECASE)),
    ("error", re.compile(r"error\b|exception\b|\bfailed\b", re.IGNORECASE)),
    ("warning", re.compile(r"warning|deprecat", re.IGNORECASE)),
)
"""Strongest first; a traceback's last line is stronger than all of them."""
_CLOCK = re.compile(r"^\d{2}:\d{2}:\d{2}(\.\d+)?\s+")
_BEGIN = "Traceback (most recent call last)"


@dataclass
class _Hit:
    text: str
    rank: int
    """0 is the strongest."""
    place: int
    count: int = 1


def decisive_lines(lines: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The decisive lines in the order of the log, and the last traceback, each within its cap.

    A line that came more than once, whatever the time of day before it, is given once with its count.
    """
    hits: dict[str, _Hit] = {}
    traceback: tuple[str, ...] = ()
    place = 0
    while place < len(lines):
        if _BEGIN in lines[place]:
            end = _end_of_traceback(lines, place)
            traceback = tuple(line.rstrip() for line in lines[place : end + 1])
            _note(hits, lines[end], 0, place)
            place = end + 1
            continue
        rank = next((rank for rank, (_, words) in enumerate(KINDS, 1) if words.search(lines[place])), None)
        if rank is not None:
            _note(hits, lines[place], rank, place)
        place += 1
    kept = sorted(hits.values(), key=lambda hit: (hit.rank, -hit.place))[:LINES_MOST]
    told = [
        hit.text + (f" ({hit.count} times)" if hit.count > 1 else "") for hit in sorted(kept, key=lambda h: h.place)
    ]
    return tuple(told), _capped(traceback)


def _note(hits: dict[str, _Hit], line: str, rank: int, place: int) -> None:
    text = _CLOCK.sub("", line.strip())
    text = text if len(text) <= LINE_MOST else text[: LINE_MOST - 1] + "…"
    if text in hits:
        hits[text].count += 1
        hits[text].rank = min(rank, hits[text].rank)
    elif text:
        hits[text] = _Hit(text, rank, place)


def _end_of_traceback(lines: Sequence[str], begin: int) -> int:
    """The line that names the exception: the first after the frames that is not indented."""
    for place in range(begin + 1, len(lines)):
        if lines[place].strip() and not lines[place].startswith((" ", "\t")):
            return place
    return len(lines) - 1


def _capped(traceback: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    room = TRACEBACK_MOST
    for line in reversed(traceback):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))
