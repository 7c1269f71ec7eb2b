"""`pipeline sim2real`: reads the options, settles folder and configuration, and hands over to `main_job.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.pipelines.options import Extra, parse, parser

ABOUT = """The main job: demonstrations in Genesis, a LeRobotDataset, a finetuned policy, measured rollouts, a second
attempt proposed by a coach, the better checkpoint confirmed on fresh seeds and deployed through franky, and a report.
Every setting of configs/models.py is an option here. The same command goes on where it was interrupted."""
EXTRAS = [
    Extra("--out", "folder of the run (default: runs/<task>-<time>)", "DIR"),
    Extra("--resume", "go on with the run in --out (default: the last one in runs/), with its settings"),
    Extra("--profile", "settings for a machine: cpu or gpu (default: gpu where there is one)", "NAME"),
    Extra("--config", "YAML file of settings", "FILE"),
]
SECTIONS = ("", "generate", "data", "train", "evaluate", "improve", "safety", "deploy")


def main(arguments: Sequence[str]) -> int:
    """Runs the whole job and returns the exit code."""
    parsed = parse(*parser("sim2real", ABOUT, SECTIONS, EXTRAS, bare=False), arguments)
    from robocoach.pipelines import main_job, runfolder, stages
    from robocoach.pipelines.console import Console

    extras = parsed.extras
    file = Path(extras["config"]) if extras["config"] else None
    if extras["resume"] and not extras["out"]:
        folder = runfolder.latest_run()
    else:
        task = parsed.values.get("task", "stack-cube")
        folder = Path(extras["out"]) if extras["out"] else runfolder.default_folder(task)
    config = runfolder.settle(
        folder, parsed.values, parsed.names, resume=extras["resume"], profile=extras["profile"], file=file
    )
    return main_job.run(config, folder, stages, Console())
