"""One word for a training curve, by stated rules on the loss and the loss on frames kept apart.

The first rule that holds gives the word:

not finite    any loss is NaN or infinite
too short     fewer than MIN_ROWS rows
diverging     the last quarter's mean is DIVERGING_RATIO times the lowest earlier quarter's, or more
overfitting   the kept-apart loss ends OVERFITTING_RATIO times above its lowest, or more, and the loss does not rise
learning      the mean fell by LEARNING_SHARE or more from the third quarter to the last
plateau       everything else
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robocoach.agent_loop.metrics import read_metrics

MIN_ROWS = 8
"""Two rows a quarter."""
MIN_KEPT_APART = 4
"""Measurements of the kept-apart loss below which it says nothing."""
DIVERGING_RATIO = 1.25
OVERFITTING_RATIO = 1.1
LEARNING_SHARE = 0.02
LAST_KEPT_APART = 2
"""Measurements whose lower one is where the kept-apart loss ends: a single high one is no trend."""

Word = Literal["learning", "plateau", "diverging", "overfitting", "not finite", "too short"]


@dataclass(frozen=True)
class Trend:
    """The word and the numbers that it follows from."""

    word: Word
    why: str


def trend(losses: Sequence[float], kept_apart: Sequence[float] = ()) -> Trend:
    """The trend of a training, rows in the order of the steps."""
    for name, values in (("loss", losses), ("kept-apart loss", kept_apart)):
        bad = next((index for index, value in enumerate(values) if not math.isfinite(value)), None)
        if bad is not None:
            return Trend("not finite", f"the {name} was not finite in row {bad + 1} of {len(values)}")
    if len(losses) < MIN_ROWS:
        return Trend("too short", f"{len(losses)} rows of loss, {MIN_ROWS} are needed")
    quarters = _quarters(losses)
    third, last = quarters[2:]
    lowest = min(quarters[:3])
    if last > 0 and last >= DIVERGING_RATIO * lowest:
        return Trend("diverging", f"mean loss {last:.4g} in the last quarter, {lowest:.4g} in the best one before")
    if len(kept_apart) >= MIN_KEPT_APART:
        end, least = min(kept_apart[-LAST_KEPT_APART:]), min(kept_apart)
        if least > 0 and end >= OVERFITTING_RATIO * least and last <= third:
            return Trend("overfitting", f"kept-apart loss {end:.4g} at the end, {least:.4g} at its lowest")
    fall = (third - last) / third if third > 0 else 0.0
    change = f"{'−' if fall >= 0 else '+'}{abs(100 * fall):.1f} %"
    why = f"mean loss {third:.4g} in the third quarter, {last:.4g} in the last ({change})"
    return Trend("learning" if fall >= LEARNING_SHARE else "plateau", why)


def read_trend(attempt: Path) -> Trend:
    """The trend of an attempt's training, from its `metrics.jsonl`; too short when there is none.

    Where the loss has an auxiliary part, the flow loss alone counts: the other one only serves it.
    """
    found = read_metrics(attempt)
    loss = found.get("flow_loss") or found.get("loss")
    kept = found.get("validation_loss")
    return trend(loss.values if loss else (), kept.values if kept else ())


def _quarters(values: Sequence[float]) -> list[float]:
    """Means of four equal parts; the rows that are left over are the first ones."""
    size = len(values) // 4
    tail = values[len(values) - 4 * size :]
    return [_mean(tail[part * size : (part + 1) * size]) for part in range(4)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
