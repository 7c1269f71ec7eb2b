"""What a coach may see of an attempt: train-seed rollouts, trials on the arm, the training curve, and decisive words.

Read from the attempt's folder. Validation and held-out results lie elsewhere and are never opened here; `score.json`
neither.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robocoach.agent_loop.describe import SUFFIX, Described, read_summary
from robocoach.agent_loop.log_lines import decisive_lines
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically

if TYPE_CHECKING:
    from robocoach.agent_loop.tree import Batch

LOG_TAIL_LINES = 40
ROLLOUTS = Path("rollouts", "train")
TRIALS = Path("rollouts", "hardware")
"""Trials on the arm as rollout records, see `write_rollouts`."""
TRAINING_SAYS = ("status", "message", "steps", "elapsed_s", "samples_per_s")
"""What is read of `train.json`."""
NOT_TOLD = "not told"
"""Stands for an error when the text channel is off: that there was one is an outcome."""

Source = Literal["sim", "hardware", "both"]


@dataclass(frozen=True)
class StageAccount:
    """What was commanded in one stage of a rollout, and what happened. None where it was not recorded."""

    stage: str
    reached: bool
    begin_tick: int = 0
    end_tick: int = 0
    object: str = ""
    """The object to handle."""
    relative_to: str = ""
    """What the offsets are relative to, when it is another object: the goal of the one that is carried."""
    moment_tick: int | None = None
    moment: str = ""
    """When the geometry was taken: `jaws closed`, `closest`, `reached` or `lost`."""
    offset_m: Mapping[str, float] = field(default_factory=dict)
    """x, y, z along the axes of what it is relative to: the hand from the object's centre, or the carried object from
    where it belongs."""
    world_offset_m: Mapping[str, float] = field(default_factory=dict)
    turn_deg: float | None = None
    """How far the hand, or the carried object, is turned against the object about the vertical."""
    nearest_part: str = ""
    nearest_part_m: float | None = None
    aperture_m: float | None = None
    commanded: Mapping[str, float] = field(default_factory=dict)
    """`path_m`, `width_m`, `closings` and other numbers by name."""
    contact: str = ""
    """`gained`, `lost`, `held` or `none`."""
    moved_with_hand: bool | None = None
    lost_after_ticks: int | None = None

    @property
    def miss_m(self) -> float | None:
        """Length of the offset [m]; None when it was not recorded."""
        return math.hypot(*self.offset_m.values()) if self.offset_m else None


@dataclass(frozen=True)
class RolloutEvidence:
    """One rollout on a train seed, or one trial."""

    seed: int
    success: bool
    stage: int
    """Number of stages reached in order; 0 none."""
    ticks: int
    measures: Mapping[str, float] = field(default_factory=dict)
    """What the task's judge measured, by name with unit (`grasp_side_m`)."""
    aborted: str = ""
    """Why the policy could not go on; empty when it could."""
    ending: str = ""
    """`success`, `time limit`, `aborted` or `stopped early`."""
    goal: Mapping[str, bool] = field(default_factory=dict)
    """Goal clauses at the end."""
    accounts: tuple[StageAccount, ...] = ()
    """One a stage that was begun."""
    signals: Mapping[str, float] = field(default_factory=dict)
    """Motion of the whole rollout, by name with unit (`jerk_rad_s3`)."""
    video: str = ""
    """File name of the wrist video beside the record."""


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
    decisive: tuple[str, ...] = ()
    """The lines of the log that decide, see `log_lines`."""
    traceback: tuple[str, ...] = ()
    """The last traceback of the log."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """What `train.json` says of itself: the entries of TRAINING_SAYS."""
    preflight: str = ""
    """Why the preflight failed; empty when it passed or was not run."""
    refusals: tuple[str, ...] = ()
    """The guard's words on the proposals that it refused before this one."""
    trials: tuple[RolloutEvidence, ...] = ()
    """Trials on the arm, when their evidence was asked for beside the simulator's."""
    summaries: Mapping[int, Described] = field(default_factory=dict)
    """Video summaries by seed."""
    source: Literal["sim", "hardware"] = "sim"
    """Where `rollouts` were made."""
    folder: Path | None = None
    """The attempt's folder, for queries of its metrics."""

    @property
    def exit_reason(self) -> str:
        """Why training ended, with its own message where it left one."""
        ended = self.stopped if self.stopped not in ("", "unknown") else str(self.training.get("status", ""))
        return "; ".join(part for part in (ended, str(self.training.get("message", ""))) if part)

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

    def without(self, channels: Iterable[str]) -> Evidence:
        """The same evidence less what belongs to the channels that are off.

        text: exit reason, log, the guard's and the preflight's words, quoted errors. numbers: the training's curve
        and counters. video: what a rollout looked like, so stages, geometry, signals and summaries; outcomes stay.
        """
        found, off = self, frozenset(channels)
        if "text" in off:
            found = replace(
                found,
                stopped="unknown",
                log_tail=(),
                decisive=(),
                traceback=(),
                preflight="",
                refusals=(),
                training={key: value for key, value in found.training.items() if key not in ("status", "message")},
                rollouts=tuple(replace(one, aborted=NOT_TOLD if one.aborted else "") for one in found.rollouts),
                trials=tuple(replace(one, aborted=NOT_TOLD if one.aborted else "") for one in found.trials),
            )
        if "numbers" in off:
            kept = {key: value for key, value in found.training.items() if key in ("status", "message")}
            found = replace(found, curve=(), training=kept, folder=None)
        if "video" in off:
            found = replace(
                found,
                stages=(),
                rollouts=tuple(_blind(one) for one in found.rollouts),
                trials=tuple(_blind(one) for one in found.trials),
                summaries={},
            )
        return found


def _blind(one: RolloutEvidence) -> RolloutEvidence:
    """A rollout of which only the outcome is known."""
    return RolloutEvidence(
        seed=one.seed, success=one.success, stage=0, ticks=one.ticks, aborted=one.aborted, ending=one.ending
    )


def batch(rollouts: Sequence[RolloutEvidence], asked: int) -> Batch:
    """The rollouts of an attempt for the revert rule; those that are missing of `asked` count as aborted failures.

    Raises ValueError when there are more rollouts than were asked for.
    """
    from robocoach.agent_loop.tree import Batch

    missing = asked - len(rollouts)
    if missing < 0:
        raise ValueError(f"{len(rollouts)} rollouts, {asked} were asked for")
    won = [one.success and not one.aborted for one in rollouts]
    # A rollout that says nothing of its approach counts as one that never came near: a crash must not look close.
    closest = [one.measures.get("closest_m", math.inf) for one in rollouts] + [math.inf] * missing
    return Batch(
        n=asked,
        successes=sum(won),
        reached_goal=sum(
            one.measures.get("goal_reached", 0.0) > 0 for one, success in zip(rollouts, won, strict=True) if not success
        ),
        closest_m=statistics.median(closest) if closest else math.inf,
        carries=sum(one.measures.get("carried", 0.0) > 0 for one in rollouts),
        aborted=sum(bool(one.aborted) or one.ending == "aborted" for one in rollouts) + missing,
    )


def rollout_from(raw: Mapping[str, Any], path: Path) -> RolloutEvidence:
    """A rollout's JSON, reduced to what a coach needs; raises UserError when it is not one."""
    try:
        aborted, success = str(raw.get("aborted", "") or ""), bool(raw["success"])
        ending = str(raw.get("ending", "") or ("aborted" if aborted else "success" if success else "time limit"))
        return RolloutEvidence(
            seed=int(raw["seed"]),
            success=success,
            stage=int(raw["stage"]),
            ticks=int(raw["ticks"]),
            measures=_numbers(raw.get("measures")),
            aborted=aborted,
            ending=ending,
            goal={str(name): bool(value) for name, value in (raw.get("goal") or {}).items()},
            accounts=tuple(_account(one) for one in raw.get("accounts") or ()),
            signals=_numbers(raw.get("signals")),
            video=str(raw.get("video", "") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is no rollout ({error!r} is missing or wrong); delete it and run again") from None


def _numbers(raw: Mapping[str, Any] | None) -> dict[str, float]:
    """Measures by name. One that is not finite is left out: it says nothing, and would compare with nothing."""
    found = {str(name): float(value) for name, value in (raw or {}).items() if value is not None}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _account(raw: Mapping[str, Any]) -> StageAccount:
    def number(name: str) -> float | None:
        return None if raw.get(name) is None else float(raw[name])

    def whole(name: str) -> int | None:
        return None if raw.get(name) is None else int(raw[name])

    moved = raw.get("moved_with_hand")
    return StageAccount(
        stage=str(raw["stage"]),
        reached=bool(raw.get("reached", False)),
        begin_tick=whole("begin_tick") or 0,
        end_tick=whole("end_tick") or 0,
        object=str(raw.get("object", "") or ""),
        relative_to=str(raw.get("relative_to", "") or ""),
        moment_tick=whole("moment_tick"),
        moment=str(raw.get("moment", "") or ""),
        offset_m=_numbers(raw.get("offset_m")),
        world_offset_m=_numbers(raw.get("world_offset_m")),
        turn_deg=number("turn_deg"),
        nearest_part=str(raw.get("nearest_part", "") or ""),
        nearest_part_m=number("nearest_part_m"),
        aperture_m=number("aperture_m"),
        commanded=_numbers(raw.get("commanded")),
        contact=str(raw.get("contact", "") or ""),
        moved_with_hand=None if moved is None else bool(moved),
        lost_after_ticks=whole("lost_after_ticks"),
    )


def read_rollouts(folder: Path) -> tuple[RolloutEvidence, ...]:
    """Every rollout of a folder, by seed. Raises UserError on a broken file."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith(SUFFIX):
            continue
        try:
            raw = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}); delete it and run again") from None
        if isinstance(raw, dict) and "seed" in raw:
            found.append(rollout_from(raw, path))
    return tuple(sorted(found, key=lambda rollout: rollout.seed))


def write_rollouts(folder: Path, rollouts: Iterable[RolloutEvidence]) -> None:
    """Rollouts as records that `read_rollouts` reads back: how an attempt keeps the trials of a session."""
    for one in rollouts:
        write_atomically(folder / f"{one.seed}.json", json.dumps(asdict(one), indent=1) + "\n")


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


def read_evidence(
    attempt: Path, stages: Sequence[str], settings: Mapping[str, Any], stopped: str, *, hardware: Source = "sim"
) -> Evidence:
    """The evidence in an attempt's folder. Raises UserError when there is no rollout to read.

    With `hardware` set to "hardware" the trials on the arm stand in the place of the simulator's rollouts, as soon
    as there are any; with "both" they stand beside them.
    """
    found = read_remains(attempt, stages, settings, stopped, hardware=hardware)
    if not found.rollouts:
        raise UserError(f"{attempt} has no train-seed rollouts, nothing to learn from; run its evaluation first")
    return found


def read_remains(
    attempt: Path, stages: Sequence[str], settings: Mapping[str, Any], stopped: str, *, hardware: Source = "sim"
) -> Evidence:
    """Whatever an attempt left, also one that failed before its rollouts."""
    rollouts = read_rollouts(attempt / ROLLOUTS)
    trials = read_rollouts(attempt / TRIALS) if hardware != "sim" else ()
    instead = hardware == "hardware" and bool(trials)
    log = attempt / "log.txt"
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    decisive, traceback = decisive_lines(lines)
    training = _read_json(attempt / "train.json", dict)
    preflight = _read_json(attempt / "preflight.json", dict)
    summaries = {one.seed: read_summary(attempt / ROLLOUTS, one.seed) for one in rollouts}
    return Evidence(
        stages=tuple(stages),
        rollouts=trials if instead else rollouts,
        curve=read_curve(attempt / "metrics.jsonl"),
        settings=dict(settings),
        stopped=stopped,
        log_tail=tuple(lines[-LOG_TAIL_LINES:]),
        decisive=decisive,
        traceback=traceback,
        training={name: training[name] for name in TRAINING_SAYS if training.get(name) not in (None, "")},
        preflight="" if preflight.get("ok", True) else str(preflight.get("reason", "") or "it failed without a word"),
        refusals=tuple(str(one) for one in _read_json(attempt / "refusals.json", list)),
        trials=() if instead else trials,
        summaries={} if instead else {seed: one for seed, one in summaries.items() if one is not None},
        source="hardware" if instead else "sim",
        folder=attempt,
    )


def _read_json(path: Path, kind: type) -> Any:
    """The JSON value of an optional file; an empty one of its kind when it is missing, damaged or of another kind."""
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError):
        return kind()
    return raw if isinstance(raw, kind) else kind()
