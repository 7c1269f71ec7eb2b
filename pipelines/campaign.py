"""`pipeline campaign`: attempts until the budget ends, each a child of a measured one, and the best with its evidence.

`status`, `tree`, `show N`, `stop` and `resume` look at a campaign or steer it; they may be called beside a running one.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError
from robocoach.pipelines.options import Extra, Parsed, parse, parser

ABOUT = """A search over attempts: train, measure, let the coach propose the next one, until the budget ends; then the
best and the first attempt run once on held-out scenes. `pipeline campaign resume --out DIR` goes on after a stop.
Beside a running one: pipeline campaign status|tree|show N|stop --out DIR."""
WORDS = ("status", "tree", "show", "stop", "resume")
EXTRAS = [
    Extra("--out", "folder of the campaign (default: runs/campaign-<task>-<time>, or the last one)", "DIR"),
    Extra("--budget", "wall time of the whole campaign, such as 8h or 90m", "TIME"),
    Extra("--coach", "who proposes: rules, tpe, random, one-shot, none, llm:PROVIDER:MODEL, cmd:PROGRAM", "NAME"),
    Extra("--data", "dataset of demonstrations to begin with, such as RUN/datasets/sim", "DIR"),
    Extra("--evidence", "whose rollouts the coach reads: sim, hardware, both", "NAME"),
    Extra("--without", "channels switched off: video, text, numbers, branching", "NAMES"),
    Extra("--profile", "settings for a machine: cpu or gpu (default: gpu where there is one)", "NAME"),
    Extra("--config", "YAML file of settings", "FILE"),
]
SHORT = {"coach": "campaign.coach", "data": "campaign.data", "evidence": "campaign.evidence"}
SECTIONS = ("", "campaign", "generate", "data", "train", "evaluate", "safety", "deploy", "session")
CHANNELS = ("video", "text", "numbers", "branching")


def main(arguments: Sequence[str]) -> int:
    """Begins or resumes a campaign, or tells of one."""
    word = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if word and word not in WORDS:
        raise UserError(f"pipeline campaign {word}: no such word, choose from {', '.join(WORDS)}; or options only")
    rest = list(arguments[1:] if word else arguments)
    number = rest.pop(0) if word == "show" and rest and not rest[0].startswith("-") else None
    parsed = parse(*parser("campaign", ABOUT, SECTIONS, EXTRAS, bare=False), rest)
    if word in ("", "resume"):
        return _run(parsed, resume=word == "resume")
    folder = Path(parsed.extras["out"]) if parsed.extras["out"] else _latest()
    if word == "stop":
        return _stop(folder)
    return _tell(folder, word, number)


def _latest() -> Path:
    found = sorted(Path("runs").glob("*/campaign.db"), key=lambda path: path.stat().st_mtime)
    found = [path for path in found if (path.parent / "task.md").is_file()]
    if not found:
        raise UserError(f"no campaign in {Path('runs').resolve()}; name its folder with --out DIR")
    return found[-1].parent


def _run(parsed: Parsed, *, resume: bool) -> int:
    from robocoach.pipelines import runfolder, stages

    extras = parsed.extras
    _shorten(parsed)
    task = parsed.values.get("task", "stack-cube")
    if extras["out"]:
        folder = Path(extras["out"])
    else:
        folder = _latest() if resume else runfolder.default_folder(f"campaign-{task}")
    file = Path(extras["config"]) if extras["config"] else None
    config = runfolder.settle(folder, parsed.values, parsed.names, resume=resume, profile=extras["profile"], file=file)
    _check(config)
    stages.check_settings(config)
    return run(config, folder)


def _shorten(parsed: Parsed) -> None:
    """Puts the short options where their settings are. Raises UserError on a budget that is no time."""
    from robocoach.agent_loop.budget import parse_duration

    for name, key in {**SHORT, "without": "campaign.without"}.items():
        if parsed.extras[name] is not None:
            parsed.values[key], parsed.names[key] = parsed.extras[name], f"--{name}"
    if parsed.extras["budget"] is not None:
        parsed.values["campaign.hours"] = parse_duration(parsed.extras["budget"]) / 3600
        parsed.names["campaign.hours"] = "--budget"


def _check(config: Any) -> None:
    """What can be refused before anything is written."""
    from robocoach.agent_loop.coaches.choose import make_coach
    from robocoach.pipelines.workshop import require_data

    rules = config.campaign
    unknown = {part.strip() for part in rules.without.split(",") if part.strip()} - set(CHANNELS)
    if unknown:
        raise UserError(
            f"--without {rules.without}: {', '.join(sorted(unknown))} is no channel, choose from {', '.join(CHANNELS)}"
        )
    make_coach(rules.coach)
    require_data(config)
    if rules.evidence != "sim" and config.deploy.dry_run:
        raise UserError("--evidence from the arm counts trials, and --dry-run moves nothing; leave one of them out")


def run(config: Any, folder: Path) -> int:
    """Runs a campaign in its folder until it is finished, or waits for the operator."""
    from robocoach.agent_loop.coaches.choose import make_coach
    from robocoach.agent_loop.engine import Engine, Running
    from robocoach.agent_loop.store import Campaign
    from robocoach.pipelines import campaign_text, main_job, stages
    from robocoach.pipelines.cli import command
    from robocoach.pipelines.console import Console
    from robocoach.pipelines.workshop import GenesisWorkshop

    resume = f"{command()} campaign resume --out {shlex.quote(str(folder))}"
    console = Console()
    with main_job.opened(config, folder, stages, console, resume) as job:
        job.planned = 4 if config.data.real else 3
        job.store = Campaign(folder)
        workshop = GenesisWorkshop(job)
        try:
            console.line(f"campaign in {folder}: {config.task}, coach {config.campaign.coach}, seed {config.seed}")
            coach, facts = make_coach(config.campaign.coach), stages.task_facts(config)
            running = Running(folder, config, facts, coach, workshop, job.store, console.line)
            done = Engine(running).run()
        finally:
            workshop.close()
        console.line(campaign_text.status(done.content))
        if done.state == "awaiting operator":
            console.line(f"run its session: {command()} session --campaign {shlex.quote(str(folder))} --operator NAME")
            console.line(f"then go on with: {resume}")
        console.line(f"the page: {folder / 'report.html'}")
        if done.state == "finished" and done.content["best"] is not None:
            kept = folder / "attempts" / f"{done.content['best']:04d}"
            checkpoint = shlex.quote(str(kept / "checkpoints" / "last"))
            how = f"--config {shlex.quote(str(kept / 'config.yaml'))} --out {shlex.quote(str(folder / 'twin'))}"
            console.line(f"on the twin: {command()} deploy --checkpoint {checkpoint} {how}")
    return 0


def _content(folder: Path) -> dict[str, Any]:
    """What the store says now. Raises UserError when the folder holds no campaign."""
    from robocoach.agent_loop import summary
    from robocoach.agent_loop.store import Campaign
    from robocoach.agent_loop.views import read_config
    from robocoach.pipelines import runfolder, stages

    if not (folder / "campaign.db").is_file() or not (folder / "config.yaml").is_file():
        raise UserError(f"{folder} holds no campaign; name its folder with --out DIR")
    store = Campaign(folder, read_only=True)
    try:
        config = read_config(folder)
        content = summary.content(store, folder, config, stages.task_facts(config))
    finally:
        store.close()
    if content["state"] == "running" and not runfolder.is_written(folder):
        content["state"] = "interrupted"  # killed before it could say so
    return content


def _tell(folder: Path, word: str, number: str | None) -> int:
    from robocoach.pipelines import campaign_text

    content = _content(folder)
    if word == "show":
        if number is None or not number.isdecimal() or int(number) >= len(content["attempts"]):
            last = len(content["attempts"]) - 1
            raise UserError(f"pipeline campaign show N: N is an attempt's number, 0 to {last}, got {number}")
        print(campaign_text.show(content, int(number), folder))
    else:
        print(campaign_text.status(content) if word == "status" else campaign_text.tree(content))
    return 0


def _stop(folder: Path) -> int:
    from robocoach.agent_loop.engine import STOP_FILE

    content = _content(folder)
    if content["state"] != "running":
        raise UserError(f"{folder} is not running, it is {content['state']}")
    (folder / STOP_FILE).touch()
    print(f"{folder} ends after the attempt that is running, confirms the best on held-out scenes and reports")
    return 0
