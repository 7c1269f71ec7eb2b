"""The same query of training numbers as `metrics.py`, answered by W&B, for runs that were synced there.

The key comes from the environment (WANDB_API_KEY; WANDB_BASE_URL for a server of one's own) and is never written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from robocoach.agent_loop.metrics import Series, StepRange, check_range, nearest_names, within
from robocoach.configs.errors import UserError

KEY = "WANDB_API_KEY"
TIMEOUT_S = 20


def query_wandb(runs: Mapping[int, str], metric: str, step_range: StepRange | None = None) -> dict[int, Series]:
    """One metric of several runs (`entity/project/run`), by attempt number; an empty series where a run lacks it.

    Raises UserError without a key, when W&B cannot be asked, or when no run has the metric.
    """
    if not os.environ.get(KEY):
        raise UserError(f"W&B needs a key: set {KEY}, or query the attempts' own metrics.jsonl")
    check_range(step_range)
    import wandb

    low, high = step_range or (None, None)
    found: dict[int, Series] = {}
    valid: set[str] = set()
    for number, path in runs.items():
        try:
            run = wandb.Api(timeout=TIMEOUT_S).run(path)
            valid |= {name for name in run.summary.keys() if not name.startswith("_")}  # noqa: SIM118 (no mapping)
            rows = list(run.scan_history(keys=["_step", metric], min_step=low or 0, max_step=_after(high)))
        except (wandb.errors.Error, ValueError, OSError) as error:
            raise UserError(f"W&B does not give {path} ({type(error).__name__}: {_first_line(error)})") from None
        found[number] = Series(metric, within(sorted(_point(row, metric) for row in rows), step_range))
    if not any(series.points for series in found.values()) and metric not in valid:
        names = ", ".join(nearest_names(metric, sorted(valid))) or "none at all"
        raise UserError(f"no run has the metric {metric[:60]!r}; the nearest are {names}")
    return found


def _after(high: int | None) -> int | None:
    """W&B leaves the last step of a range out."""
    return None if high is None else high + 1


def _point(row: Mapping[str, Any], metric: str) -> tuple[int, float]:
    value = row[metric]  # W&B writes what is not finite as text
    return int(row["_step"]), float(value) if isinstance(value, int | float) else math.nan


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]
