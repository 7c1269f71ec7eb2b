"""The training numbers of attempts as a query that a coach can make: metric, range of steps, attempts to compare.

Reads `metrics.jsonl` of each attempt. Training rows hold `loss`, `flow_loss`, `grad_norm`, `lr`, `samples_per_s`;
rows of the frames kept apart from training hold `validation_loss` and `validation_error_<action name>`, one an action
dimension [rad, the gripper's in m]. These are losses on demonstrations; results of validation rollouts are elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robocoach.configs.errors import UserError
from robocoach.configs.fields import nearest

METRICS_FILE = "metrics.jsonl"
ACTION_ERROR = "validation_error_"
"""Prefix of the error of one action dimension on the frames kept apart."""
NEAREST_NAMES = 3
TABLE_ROWS = 8

StepRange = tuple[int | None, int | None]
"""First and last step, both included; None for no limit."""


@dataclass(frozen=True)
class Series:
    """One metric of one attempt, by step; a value that was not finite is kept as it was."""

    metric: str
    points: tuple[tuple[int, float], ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The values in the order of the steps."""
        return tuple(value for _, value in self.points)

    @property
    def finite(self) -> bool:
        """No value is NaN or infinite."""
        return all(math.isfinite(value) for value in self.values)

    @property
    def last(self) -> float | None:
        """The latest value; None of an empty series."""
        return self.points[-1][1] if self.points else None

    @property
    def lowest(self) -> tuple[int, float] | None:
        """Step and value of the lowest finite value, the earliest among equals; None when there is none."""
        known = [point for point in self.points if math.isfinite(point[1])]
        return min(known, key=lambda point: (point[1], point[0])) if known else None

    def thinned(self, rows: int) -> tuple[tuple[int, float], ...]:
        """At most so many points, evenly spread, first and last among them."""
        if len(self.points) <= rows:
            return self.points
        if rows == 1:
            return self.points[-1:]
        return tuple(self.points[round(index * (len(self.points) - 1) / (rows - 1))] for index in range(rows))


def read_metrics(attempt: Path) -> dict[str, Series]:
    """Every metric of an attempt by name; empty when nothing was written. A line cut off by a kill is left out.

    A step that was written twice, by a training that resumed, keeps its latest value.
    """
    path = attempt / METRICS_FILE
    found: dict[str, dict[int, float]] = {}
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
            step = int(row["step"])
        except (ValueError, TypeError, KeyError):
            continue
        for name, value in row.items():
            if name != "step" and not isinstance(value, bool) and (value is None or isinstance(value, int | float)):
                found.setdefault(name, {})[step] = math.nan if value is None else float(value)
    return {name: Series(name, tuple(sorted(values.items()))) for name, values in found.items()}


def names(attempts: Mapping[int, Path]) -> tuple[str, ...]:
    """The metrics that any of the attempts has, in alphabetical order."""
    return tuple(sorted({name for folder in attempts.values() for name in read_metrics(folder)}))


def query(attempts: Mapping[int, Path], metric: str, step_range: StepRange | None = None) -> dict[int, Series]:
    """One metric of several attempts, by their number; an attempt that does not have it gets an empty series.

    Raises UserError when no attempt has the metric (the nearest names are given), or when the range is empty.
    """
    check_range(step_range)
    known = {number: read_metrics(folder) for number, folder in attempts.items()}
    valid = sorted({name for metrics in known.values() for name in metrics})
    if not valid:
        which = ", ".join(str(number) for number in attempts) or "none given"
        raise UserError(f"no training numbers were written by the attempts asked for ({which}); ask for others")
    if metric not in valid:
        raise UserError(
            f"no attempt has the metric {metric[:60]!r}; the nearest are {', '.join(nearest_names(metric, valid))}"
        )
    return {
        number: Series(
            metric,
            within(metrics[metric].points if metric in metrics else (), step_range),
        )
        for number, metrics in known.items()
    }


def check_range(step_range: StepRange | None) -> None:
    """Raises UserError when no step can lie in the range."""
    low, high = step_range or (None, None)
    if low is not None and high is not None and low > high:
        raise UserError(f"no step lies between {low} and {high}; give the first step, then the last")


def within(points: Sequence[tuple[int, float]], step_range: StepRange | None) -> tuple[tuple[int, float], ...]:
    """The points whose step lies in the range."""
    low, high = step_range or (None, None)
    return tuple(
        (step, value) for step, value in points if (low is None or step >= low) and (high is None or step <= high)
    )


def nearest_names(word: str, valid: Sequence[str]) -> list[str]:
    """A few valid names, the one most like the word first."""
    rest, found = list(valid), []
    while rest and len(found) < NEAREST_NAMES:
        found.append(nearest(word, rest))
        rest.remove(found[-1])
    return found


def table(found: Mapping[int, Series], rows: int = TABLE_ROWS) -> str:
    """A query's answer as Markdown, one line an attempt: first to last by step, lowest, and how many rows there are."""
    lines = []
    for number, series in sorted(found.items()):
        lowest = series.lowest
        if not series.points:
            lines.append(f"- attempt {number}: no {series.metric}")
            continue
        told = ", ".join(f"{step}: {shown(value)}" for step, value in series.thinned(rows))
        low = f"; lowest {shown(lowest[1])} at step {lowest[0]}" if lowest else ""
        lines.append(f"- attempt {number}, `{series.metric}` by step: {told}{low} ({len(series.points)} rows)")
    return "\n".join(lines) + "\n"


def shown(value: float, digits: int = 4) -> str:
    """A number in so many digits, or `not finite`."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "not finite"
