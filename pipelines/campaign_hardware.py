"""Evidence from the arm: the session of a campaign's attempt, in the attempt's folder, and its trials as rollouts."""

from __future__ import annotations

from pathlib import Path

from robocoach.agent_loop.evidence import TRIALS, RolloutEvidence
from robocoach.agent_loop.store import Campaign
from robocoach.configs.errors import UserError
from robocoach.configs.models import Sim2RealConfig

SESSION = "hardware"
"""Folder of the session in an attempt's folder."""


def closed(attempt: Path) -> bool:
    """The attempt's session has been run to its end."""
    from robocoach.robots.session import plan, run

    folder = attempt / SESSION
    return (folder / plan.PLAN_FILE).is_file() and run.read_record(folder).state.closed


def trials(attempt: Path) -> tuple[RolloutEvidence, ...] | None:
    """The counted trials of a closed session, by scene; None while there is none. Invalid trials count for nothing.

    A contact sheet of each trial's wrist video goes to where the campaign keeps its trials.
    """
    from robocoach.robots.session import run
    from robocoach.sim.sheet import contact_sheet
    from robocoach.sim.tasks import get_task

    if not closed(attempt):
        return None
    record = run.read_record(attempt / SESSION)
    stages, found = get_task(record.plan.task).stages, []
    for _, result in sorted(record.counted.items()):
        if result.rollout is None or result.verdict is None:
            continue
        rollout, video = run.read_back(result.rollout), record.video(result)
        sheet = attempt / TRIALS / f"{rollout.seed}-sheet.png"
        if video is not None and not sheet.is_file():
            sheet.parent.mkdir(parents=True, exist_ok=True)
            contact_sheet(video, rollout.stage_ticks, stages, sheet)
        found.append(
            RolloutEvidence(
                seed=rollout.seed,
                success=result.verdict.kind == "success",
                stage=result.verdict.stage,
                ticks=rollout.ticks,
                measures=dict(rollout.measures),
            )
        )
    return tuple(found)


def awaiting(campaign: Path) -> tuple[int, Path, Path]:
    """The attempt of a campaign that waits for the operator: number, checkpoint, folder of its session.

    Raises UserError when none does.
    """
    if not (campaign / "campaign.db").is_file():
        raise UserError(f"--campaign {campaign} holds no campaign; name its folder")
    store = Campaign(campaign, read_only=True)
    try:
        waiting = [attempt for attempt in store.attempts() if attempt.state == "awaiting operator"]
    finally:
        store.close()
    if not waiting:
        raise UserError(f"no attempt of {campaign} awaits the operator; see `pipeline campaign status`")
    first = waiting[0]
    folder = campaign / "attempts" / f"{first.number:04d}"
    return first.number, folder / first.results["training"]["checkpoint"], folder / SESSION


def run_on_twin(config: Sim2RealConfig, attempt: Path, checkpoint: Path) -> None:
    """Runs or resumes the attempt's session on the twin, judged by its ground truth."""
    from robocoach.pipelines import session

    folder = attempt / SESSION
    if (folder / "plan.json").is_file():
        session.main(["--resume", "--out", str(folder)])
        return
    given = {
        "--task": config.task,
        "--seed": str(config.seed),
        "--trials": str(config.session.trials),
        "--verdict": "auto",
        "--robot": "twin",
        "--max-ticks": str(config.deploy.max_ticks),
        "--blend-steps": str(config.deploy.blend_steps),
        "--min-clock-ratio": str(config.deploy.min_clock_ratio),
        "--countdown-s": str(config.session.countdown_s),
        "--checkpoint": str(checkpoint),
        "--out": str(folder),
    }
    session.main([word for pair in given.items() for word in pair])
