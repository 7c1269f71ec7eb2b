"""What a coach may see of an attempt: train-seed rollouts, the training curve, and the tail of the log.

Read from the attempt's folder. Validation and held-out results lie elsewhere and are never opened here.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError

LOG_TAIL_LINES = 40


@dataclass(frozen=True)
class RolloutEvidence:
    """One rollout on a train seed."""

    seed: int
    success: bool
    stage: int
    """Number of stages reached in order; 0 none."""
    ticks: int
    measures: Mapping[str, float] = field(default_factory=dict)
    """What the task's judge measured, by name with unit (`grasp_side_m`)."""


@dataclass(frozen=True)
class CurvePoint:
    """One line of `metrics.jsonl`."""

    step: int
    loss: float
    seconds: float
    """Training time since the start [s]."""


@dataclass(frozen=True)
class Evidence:
    """What one attempt left behind that its coach may read."""

    stages: tuple[str, ...]
    """The task's stages in order."""
    rollouts: tuple[RolloutEvidence, ...]
    curve: tuple[CurvePoint, ...]
    settings: Mapping[str, Any]
    """The attempt's configuration by dotted key."""
    stopped: str = "deadline"
    """Why training ended: `deadline`, `steps`, `nan` or `interrupted`."""
    log_tail: tuple[str, ...] = ()

    @property
    def successes(self) -> int:
        """Rollouts that ended in success."""
        return sum(rollout.success for rollout in self.rollouts)

    def reached(self) -> dict[str, int]:
        """How many rollouts got through each stage."""
        return {name: sum(rollout.stage > index for rollout in self.rollouts) for index, name in enumerate(self.stages)}

    def stuck(self) -> dict[str, int]:
        """How many failed rollouts never got through each stage, though they got to it."""
        return {
            name: sum(not rollout.success and rollout.stage == index for rollout in self.rollouts)
            for index, name in enumerate(self.stages)
        }

    def median_of_failures(self, measure: str) -> float | None:
        """Median of a measure over the failed rollouts that have it; None when none has."""
        values = [one.measures[measure] for one in self.rollouts if not one.success and measure in one.measures]
        return statistics.median(values) if values else None

    def losses(self) -> list[float]:
        """The losses in the order of the steps."""
        return [point.loss for point in self.curve]

    def late_drop(self) -> float | None:
        """Relative fall of the mean loss from the third to the last quarter of training; None when too short."""
        losses = [loss for loss in self.losses() if math.isfinite(loss)]
        quarter = len(losses) // 4
        if quarter < 2:
            return None
        before = sum(losses[-2 * quarter : -quarter]) / quarter
        last = sum(losses[-quarter:]) / quarter
        return (before - last) / before if before > 0 else None

    def spike(self) -> float | None:
        """Largest finite loss after the first quarter over the median of that time; None when too short."""
        losses = [loss for loss in self.losses() if math.isfinite(loss)]
        tail = sorted(losses[len(losses) // 4 :])
        if len(tail) < 4:
            return None
        return tail[-1] / tail[len(tail) // 2] if tail[len(tail) // 2] > 0 else None


def rollout_from(raw: Mapping[str, Any], path: Path) -> RolloutEvidence:
    """A rollout's JSON, reduced to what rules need; raises UserError when it is not one."""
    try:
        return RolloutEvidence(
            seed=int(raw["seed"]),
            success=bool(raw["success"]),
            stage=int(raw["stage"]),
            ticks=int(raw["ticks"]),
            measures={str(name): float(value) for name, value in raw.get("measures", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is no rollout ({error!r} is missing or wrong); delete it and run again") from None


def read_rollouts(folder: Path) -> tuple[RolloutEvidence, ...]:
    """Every rollout of a folder, by seed. Raises UserError on a broken file."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            raw = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}); delete it and run again") from None
        if isinstance(raw, dict) and "seed" in raw:
            found.append(rollout_from(raw, path))
    return tuple(sorted(found, key=lambda rollout: rollout.seed))


def read_curve(path: Path) -> tuple[CurvePoint, ...]:
    """The training curve; a last line cut off by a kill is left out, NaN stays NaN."""
    if not path.is_file():
        return ()
    points = []
    for line in path.read_text().splitlines():
        try:
            raw = json.loads(line)
        except ValueError:
            continue
        if isinstance(raw, dict) and "step" in raw and "loss" in raw:
            loss = raw.get("flow_loss", raw["loss"])  # the auxiliary part only serves it
            points.append(
                CurvePoint(
                    step=int(raw["step"]),
                    loss=float("nan") if loss is None else float(loss),
                    seconds=float(raw.get("elapsed_s", raw.get("seconds", 0.0))),
                )
            )
    return tuple(points)


def read_evidence(attempt: Path, stages: Sequence[str], settings: Mapping[str, Any], stopped: str) -> Evidence:
    """The evidence in an attempt's folder. Raises UserError when there is no rollout to read."""
    rollouts = read_rollouts(attempt / "rollouts" / "train")
    if not rollouts:
        raise UserError(f"{attempt} has no train-seed rollouts, nothing to learn from; run its evaluation first")
    log = attempt / "log.txt"
    tail = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:] if log.is_file() else []
    return Evidence(
        stages=tuple(stages),
        rollouts=rollouts,
        curve=read_curve(attempt / "metrics.jsonl"),
        settings=dict(settings),
        stopped=stopped,
        log_tail=tuple(tail),
    )
