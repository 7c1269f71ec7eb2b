"""What a rollout's video shows, as one structure: filled by a vision-language model, or offline from signals.

A summary, not a score: what happened, at which stage, how sure that is, and which frames show it. The offline
describer reads the simulator's per-stage accounts and motion signals and states its rules as constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from robocoach.agent_loop.account_words import grip, places, told
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically

if TYPE_CHECKING:
    from robocoach.agent_loop.evidence import RolloutEvidence, StageAccount

HAPPENED_MOST = 800
"""Characters of a summary's account."""
FRAMES_MOST = 12
SUFFIX = "-summary.json"
"""A summary lies beside its rollout's record: `<seed>-summary.json`."""


class VideoSummary(BaseModel):
    """What one rollout's video shows. The fields' descriptions are what a model is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    happened: str = Field(
        min_length=1, max_length=HAPPENED_MOST, description="what happened, in one to four plain sentences"
    )
    stage: str = Field(
        max_length=60, description="name of the stage at which it went wrong; 'none' when the rollout succeeded"
    )
    confidence: float = Field(ge=0, le=1, description="how sure you are of this account, from 0 to 1")
    frames: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(), max_length=FRAMES_MOST, description="ticks (numbers printed on the frames) that show it"
    )
    jerk: bool = Field(default=False, description="the arm jerks or swings to and fro")
    contact: bool = Field(
        default=False, description="contact goes wrong: the hand pushes, knocks over, loses or drops an object"
    )
    grasp_posture: bool = Field(
        default=False, description="the hand closes off the object's centre, askew, at a bad height, or on nothing"
    )
    inefficiency: bool = Field(default=False, description="the arm idles, repeats itself, or takes a long way round")
    near_goal: bool = Field(default=False, description="it deviates only near the goal: placing or letting go fails")


class Described(BaseModel):
    """A summary and who made it, as it lies on disk."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    described_by: str = Field(min_length=1, max_length=120)
    """`signals` for the offline describer, else the model's name."""
    summary: VideoSummary


def summary_path(rollouts: Path, seed: int) -> Path:
    """Where the summary of a rollout lies in its folder of rollouts."""
    return rollouts / f"{seed}{SUFFIX}"


def write_summary(rollouts: Path, seed: int, described: Described) -> None:
    """Writes one summary, atomically."""
    write_atomically(summary_path(rollouts, seed), described.model_dump_json(indent=1) + "\n")


def read_summary(rollouts: Path, seed: int) -> Described | None:
    """The summary of a rollout; None when there is none. Raises UserError when the file is damaged."""
    path = summary_path(rollouts, seed)
    if not path.is_file():
        return None
    try:
        return Described.model_validate_json(path.read_text())
    except (ValueError, OSError) as error:
        raise UserError(f"{path} is no video summary ({error}); delete it and run again") from None


# --- the offline describer: the same structure from accounts and signals -----------------------------------------

SIGNALS = "signals"
"""`described_by` of the offline describer."""
JERK_RAD_S3 = 40.0
"""Root mean square of the joints' jerk above this is jerky: 0.04 rad of third difference in every tick of 0.1 s."""
REVERSALS = 6
"""So many turns of the hand by more than 120° are swinging to and fro."""
SIDE_M = 0.008
"""Jaws that close further than this from the object's centre, in its x–y plane, close beside it."""
HEIGHT_M = 0.015
TURN_DEG = 12.0
EMPTY_M = 0.005
"""Jaws closed to less than this hold nothing."""
IDLE_SHARE = 0.3
CLOSINGS = 3
"""So many decisions to close are repetition."""
NEAR_M = 0.05
"""An object that came so close to its place, and is not in it, deviates near the goal."""
SURE_ACCOUNT, SURE_MEASURES, SURE_OUTCOME = 0.9, 0.6, 0.3
"""Confidence with the account of the stage that failed, with measures alone, with the outcome alone."""


def describe(rollout: RolloutEvidence, stages: Sequence[str]) -> Described:
    """The summary of one rollout from the simulator's ground truth: no picture is looked at.

    The account is that of the first stage that was not reached. Each flag follows from the constants above: `jerk`
    from jerk or reversals; `contact` from a drop, or a grip lost in a stage that was not reached; `grasp_posture`
    from jaws that closed beside, above, askew or on nothing without a grip; `inefficiency` from idle ticks or
    repeated closings; `near_goal` from a goal geometry that held, or an object near its place, without success.
    """
    failed = next((account for account in rollout.accounts if not account.reached), None)
    if rollout.success:
        failed = None
    last = failed or (rollout.accounts[-1] if rollout.accounts else None)
    signals, ticks = rollout.signals, max(1, rollout.ticks)
    reversals, closings = signals.get("reversals", 0), signals.get("closings", 0)
    sure = SURE_ACCOUNT if last else SURE_MEASURES if rollout.measures else SURE_OUTCOME
    frames = {failed.begin_tick, failed.moment_tick, failed.end_tick} if failed else {last.end_tick if last else None}
    summary = VideoSummary(
        happened=_happened(rollout, stages, failed)[:HAPPENED_MOST],
        stage=_stage(rollout, stages, failed)[:60],
        confidence=sure,
        frames=tuple(sorted(tick for tick in frames if tick is not None)),
        jerk=signals.get("jerk_rad_s3", 0.0) > JERK_RAD_S3 or reversals >= REVERSALS,
        contact=signals.get("dropped", 0) > 0 or (failed is not None and failed.contact == "lost"),
        grasp_posture=failed is not None and _badly_closed(failed),
        inefficiency=signals.get("idle_ticks", 0) / ticks > IDLE_SHARE or closings >= CLOSINGS,
        near_goal=not rollout.success and (rollout.measures.get("goal_reached", 0) > 0 or _near(failed)),
    )
    return Described(described_by=SIGNALS, summary=summary)


def _stage(rollout: RolloutEvidence, stages: Sequence[str], failed: StageAccount | None) -> str:
    if rollout.success:
        return "none"
    if failed is not None:
        return failed.stage
    return stages[rollout.stage] if rollout.stage < len(stages) else "end"


def _happened(rollout: RolloutEvidence, stages: Sequence[str], failed: StageAccount | None) -> str:
    ended = rollout.ending or ("success" if rollout.success else "failure")
    if rollout.success:
        return f"All stages were reached and the goal held; it ended after {rollout.ticks} ticks."
    sentences = [f"It got through {rollout.stage} of {len(stages)} stages and ended at tick {rollout.ticks}: {ended}."]
    if failed is not None:
        moment = told(failed, "relations", "parts")
        if moment:
            sentences.append(f"In {failed.stage}, {moment}.")
        if words := grip(failed):
            sentences.append(f"{words[0].upper()}{words[1:]}.")
    if rollout.signals.get("dropped", 0) > 0:
        sentences.append("The object was dropped.")
    unmet = [clause for clause, met in rollout.goal.items() if not met]
    if unmet and rollout.measures.get("goal_reached", 0) > 0:
        sentences.append(f"The goal geometry held for a moment; at the end not: {', '.join(unmet)}.")
    return " ".join(sentences)


def _badly_closed(account: StageAccount) -> bool:
    """The jaws closed without a grip, and their posture explains it."""
    if account.moment != "jaws closed" or account.contact in ("gained", "held"):
        return False
    x, y, z = (account.offset_m.get(axis, 0.0) for axis in "xyz")
    askew = account.turn_deg is not None and abs(account.turn_deg) > TURN_DEG
    empty = account.aperture_m is not None and account.aperture_m < EMPTY_M
    return math.hypot(x, y) > SIDE_M or abs(z) > HEIGHT_M or askew or empty


def _near(failed: StageAccount | None) -> bool:
    return failed is not None and places(failed) and failed.miss_m is not None and failed.miss_m < NEAR_M
