"""Time: how people write it, and whether another attempt fits into what is left. Pure arithmetic.

The seconds that a campaign has spent are the engine's to measure and to store, so that they survive a restart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from robocoach.configs.errors import UserError

_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WHOLE = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in _UNITS_S))
LONGEST_S = 10_000 * 3_600
RECENT = 3
"""Attempts whose times say how long the next one takes beyond its training."""


def parse_duration(text: str) -> float:
    """`8h`, `90m`, `45s`, `1h30m` → seconds: days, hours, minutes, seconds, in this order, each at most once.

    Raises UserError on anything else, and on no time at all.
    """
    word = text.strip().lower()
    found = _WHOLE.fullmatch(word) if word and word.isascii() else None
    if found is None:
        raise UserError(f"--budget {text[:40]}: not a time; write for example 8h, 90m, 45s or 1h30m")
    seconds = sum(float(number) * _UNITS_S[unit] for unit, number in found.groupdict().items() if number)
    if not 0 < seconds <= LONGEST_S:
        raise UserError(f"--budget {text[:40]}: expected more than no time and at most {LONGEST_S // 3600}h")
    return seconds


def duration_words(seconds: float) -> str:
    """Seconds as people say them, to the minute, or to the second below two: `8 h`, `1 h 30 min`, `45 s`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join(part for part in (f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes)) if part)


def attempt_estimate_s(training_s: float, others_s: Sequence[float]) -> float:
    """What the next attempt takes [s]: its training's deadline, and the longest of the last attempts' other phases.

    `others_s` has, oldest first, what each earlier attempt took beside its training (preflight, rollouts, overhead).
    """
    return training_s + max(others_s[-RECENT:], default=0.0)


def fits(limit_s: float, spent_s: float, attempt_s: float, reserve_s: float = 0.0) -> bool:
    """Whether an attempt can be begun and finished within the limit, with time kept back for what follows it [s]."""
    return spent_s + attempt_s + reserve_s <= limit_s
