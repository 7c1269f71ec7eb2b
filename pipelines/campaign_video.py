"""The video channel of an attempt: a contact sheet of each filmed rollout, and a summary of what it shows.

Summaries come from the simulator's accounts and motion signals, or from a vision-language model where the settings
name one. What is there already is not made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.agent_loop import describe as signals
from robocoach.agent_loop.describe import read_summary, write_summary
from robocoach.agent_loop.evidence import read_rollouts
from robocoach.agent_loop.workshop import Job
from robocoach.configs.models import Sim2RealConfig

SHEET = "-sheet.png"


def describe(config: Sim2RealConfig, job: Job, workspace: Path, spend_left_usd: float) -> float:
    """Sheets and summaries in `rollouts/train`; returns what a model cost [USD].

    Raises RateLimited or CoachFailed when the model cannot answer; what was written before stays.
    """
    from robocoach.sim.rollout import read_rollout
    from robocoach.sim.sheet import contact_sheet
    from robocoach.sim.tasks import get_task

    task = get_task(config.task)
    folder = job.folder / "rollouts" / "train"
    spent = 0.0
    for rollout in read_rollouts(folder):
        film = folder / f"{rollout.seed}-wrist.mp4"
        sheet = folder / f"{rollout.seed}{SHEET}"
        record = read_rollout(folder / f"{rollout.seed}.json")
        ticks = () if record is None else record.stage_ticks
        if film.is_file() and not sheet.is_file():
            contact_sheet(film, ticks, task.stages, sheet)
        if read_summary(folder, rollout.seed) is not None:
            continue
        if config.campaign.describer and sheet.is_file():
            spent += _by_model(config, rollout.seed, ticks, sheet, workspace, spend_left_usd - spent)
        else:
            write_summary(folder, rollout.seed, signals.describe(rollout, task.stages))
    return spent


def _by_model(
    config: Sim2RealConfig, seed: int, ticks: Sequence[int], sheet: Path, workspace: Path, spend_left_usd: float
) -> float:
    from robocoach.agent_loop.vision import VisionDescriber
    from robocoach.sim.tasks import get_task

    task = get_task(config.task)
    provider, _, model = config.campaign.describer.partition(":")
    describer = VisionDescriber(provider, model)
    reached = dict(zip(task.stages, ticks, strict=False))
    timeline = [(name, reached.get(name)) for name in task.stages]
    workspace.mkdir(parents=True, exist_ok=True)
    told = describer.describe(task.instruction, timeline, [sheet], workspace=workspace, spend_left_usd=spend_left_usd)
    write_summary(sheet.parent, seed, told)
    return describer.spent_usd
