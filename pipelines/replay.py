"""`pipeline replay`: an episode's actions once more, through the safety envelope, on the twin or on an arm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.pipelines import single
from robocoach.pipelines.options import Extra

ABOUT = """Play the actions of a recorded episode back. The arm moves slowly to where the episode began, then every
action passes the safety envelope; the result says how well the arm followed and what was clamped."""
SECTIONS = ("task", "deploy.robot", "deploy.host", "deploy.serial", "deploy.dry_run", "camera", "safety")
EXTRAS = [
    Extra("--data", "LeRobotDataset with the data contract, such as DIR/dataset", "DIR", required=True),
    Extra("--episode", "number of the episode, from 0 (default 0)", "N"),
    Extra("--accept", "provenance fields of the dataset that may differ, comma separated", "FIELDS"),
]


def main(arguments: Sequence[str]) -> int:
    """Replays and writes result.json."""
    given = single.read("replay", ABOUT, SECTIONS, EXTRAS, arguments)
    from robocoach.configs.errors import UserError
    from robocoach.pipelines import runfolder
    from robocoach.pipelines.console import Console
    from robocoach.robots import replaying
    from robocoach.robots.rig import open_rig

    number = given.extras["episode"] or "0"
    if not number.isdecimal():
        raise UserError(f"--episode {number!r}: expected the number of an episode, 0 or more")
    recorded = replaying.read(Path(given.extras["data"]), int(number))
    accept = frozenset(filter(None, (given.extras["accept"] or "").split(",")))
    console = Console()
    with runfolder.locked(given.folder):
        runfolder.save(given.folder, given.config)
        with console.libraries_in(given.folder / "log.txt"):
            console.line(f"episode {number}: {len(recorded.actions)} ticks; connecting {given.config.deploy.robot} …")
            with open_rig(given.config.deploy, given.config.task, given.config.camera) as rig:
                done = replaying.replay(recorded, rig, given.config, accept, console.line)
        single.write_result(given.folder, done.summary())
        console.line(done.line())
    return 0
