"""`pipeline record`: teleoperated episodes on the twin or on an arm, as a LeRobotDataset with the data contract.

DIR/episodes/       every accepted episode, durable at once, and takes.jsonl: every take with its outcome
DIR/dataset/        the LeRobotDataset made of them: `pipeline train --data`, `pipeline sim2real --real DIR`
DIR/config.yaml  DIR/result.json  DIR/log.txt
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Generator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError
from robocoach.pipelines import single
from robocoach.pipelines.options import Extra

if TYPE_CHECKING:
    from robocoach.pipelines.console import Console
    from robocoach.robots.recording import Status

ABOUT = """Record teleoperated episodes. Keys start, stop, accept, redo and discard an episode (--keys says which; a
foot pedal types keys); every accepted one is on the disk at once. The same command goes on where it ended."""
SECTIONS = ("", "record", "deploy.robot", "deploy.host", "deploy.serial", "deploy.min_clock_ratio", "camera", "safety")
EXTRAS = [
    Extra("--calibrate-leader", "make the calibration --leader FILE of the GELLO on this port, then end", "PORT"),
]
SHOWN_EVERY_S = 0.2


def main(arguments: Sequence[str]) -> int:
    """Records, assembles the dataset, writes result.json."""
    given = single.read("record", ABOUT, SECTIONS, EXTRAS, arguments)
    config = given.config.record
    from robocoach.robots import recording
    from robocoach.robots.teleop import choose

    if given.extras["calibrate_leader"]:
        return _calibrate(given, given.extras["calibrate_leader"])
    recording.key_map(config.keys)
    choose.check(config, given.config.deploy.robot)
    from robocoach.pipelines import cli, runfolder
    from robocoach.pipelines.console import Console

    console, log = Console(), given.folder / "log.txt"
    resume = f"{cli.command()} record {shlex.join(arguments)}"
    with runfolder.locked(given.folder):
        runfolder.save(given.folder, given.config)
        with console.libraries_in(log):
            try:
                tally = _record(given, console)
                result = _assemble(given, tally)
            except KeyboardInterrupt:
                raise cli.Interrupted(resume) from None
        single.write_result(given.folder, result)
        console.line(result["line"])
        if tally.quit:
            console.line(f"go on with: {resume}")
    return 0


def _record(given: single.Given, console: Console) -> Any:
    from robocoach.robots import recording
    from robocoach.robots.keys import Keys
    from robocoach.robots.rig import open_rig
    from robocoach.robots.teleop import choose
    from robocoach.robots.teleop.script import Script
    from robocoach.sim.tasks import get_task

    config, folder = given.config.record, given.folder / "episodes"
    task = get_task(given.config.task)
    tally, _ = recording.standing(folder)
    if tally.accepted >= config.episodes:
        console.line(f"{tally.accepted} episodes are recorded already")
        return tally
    with Keys() as keys:
        if not (keys.available or config.unattended):
            raise UserError(
                "record needs a terminal for its keys; run it in one, or with --unattended --teleop script on the twin"
            )
        with contextlib.closing(choose.make(config, given.config.task)) as teleop:
            teleop.connect()
            console.line(f"connecting {given.config.deploy.robot} …")
            with (
                open_rig(given.config.deploy, given.config.task, given.config.camera) as rig,
                _screen(console, config) as screen,
            ):
                if isinstance(teleop, Script) and rig.twin is not None:
                    teleop.watch(rig.twin.state)
                screen.tell(f"{task.instruction!r}, {config.teleop}: {teleop.controls}")
                rig.contract.save(given.folder)
                return recording.Recording(
                    rig,
                    teleop,
                    task,
                    folder,
                    config,
                    given.config.safety,
                    screen,
                    keys.drain,
                    seed=given.config.seed,
                    min_clock_ratio=given.config.deploy.min_clock_ratio,
                ).run()


def _assemble(given: single.Given, tally: Any) -> dict[str, Any]:
    """Makes the dataset of what was accepted; nothing accepted makes none."""
    from robocoach.datasets.contract import Contract
    from robocoach.datasets.journal import Journal
    from robocoach.datasets.record import assemble

    counts = {
        "accepted": tally.accepted,
        "successes": tally.successes,
        "discarded": dict(tally.discarded),
        "teleop": given.config.record.teleop,
        "robot": given.config.deploy.robot,
    }
    if not tally.accepted:
        return {**counts, "line": "nothing was accepted, so there is no dataset"}
    extra = {"task": given.config.task, "recorded_with": given.config.record.teleop, "robocoach": version("robocoach")}
    root = given.folder / "dataset"
    info = assemble(Journal(given.folder / "episodes"), root, Contract.load(given.folder), extra)
    line = f"{info.episodes} episodes, {info.frames} frames, {info.successes} successes: {root}"
    return {**counts, "dataset": str(root), "frames": info.frames, "digest": info.digest, "line": line}


class _Screen:
    """Counters and messages on a terminal, drawn in place; elsewhere a line for each thing that happens."""

    def __init__(self, console: Console, keys: dict[str, str]) -> None:
        self._console, self._keys = console, keys
        self._live: Any = None
        self._shown_s = 0.0
        self._phase = ""
        if console.is_terminal:
            from rich.console import Console as RichConsole
            from rich.live import Live

            self._live = Live(
                console=RichConsole(file=console.stream, force_terminal=True), auto_refresh=False, transient=True
            )
            self._live.start()

    def show(self, status: Status) -> None:
        """Draws at most every fifth of a second, and whenever something else begins."""
        now = time.monotonic()
        if self._live is None or (status.phase == self._phase and now - self._shown_s < SHOWN_EVERY_S):
            return
        self._phase, self._shown_s = status.phase, now
        self._live.update(_panel(status, self._keys), refresh=True)

    def tell(self, line: str) -> None:
        """One line above the counters, and in the log."""
        if self._live is None:
            self._console.line(line)
            return
        self._live.console.print(line, markup=False, highlight=False)
        if self._console.log is not None:
            with self._console.log.open("a") as file:
                file.write(f"{time.strftime('%H:%M:%S')} {line}\n")

    def close(self) -> None:
        """Takes the counters off the screen."""
        if self._live is not None:
            self._live.stop()


@contextlib.contextmanager
def _screen(console: Console, config: Any) -> Generator[_Screen]:
    from robocoach.robots.recording import key_map

    screen = _Screen(console, {str(wish): key for wish, key in key_map(config.keys).items()})
    try:
        yield screen
    finally:
        screen.close()


HINTS = {
    "ready": ("start", "home", "quit"),
    "recording": ("success", "failure", "stop", "redo", "discard"),
    "review": ("success", "failure", "redo", "discard"),
}


def _panel(status: Status, keys: dict[str, str]) -> Any:
    from rich.text import Text

    text = Text()
    text.append(f" {status.phase} ", style="bold reverse" if status.phase == "recording" else "bold")
    text.append(
        f"  {status.accepted}/{status.wanted} accepted  {status.discarded} discarded  "
        f"{status.ticks / 10:.1f} s  {status.clamped} clamps  {status.late} late\n"
    )
    if status.message:
        text.append(f" {status.message}\n", style="yellow")
    text.append("  ".join(f"{keys[wish]} {wish}" for wish in HINTS.get(status.phase, ())), style="dim")
    return text


def _calibrate(given: single.Given, port: str) -> int:
    """Asks for the leader in the arm's start pose, trigger released and squeezed, and writes the file."""
    from robocoach.robots.teleop.dynamixel import DynamixelBus
    from robocoach.robots.teleop.gello import SIGNS, LeaderCalibration, calibrate
    from robocoach.sim.robot_model import HOME_Q

    if not given.config.record.leader:
        raise UserError("--calibrate-leader needs --leader FILE, the file to write")
    file = Path(given.config.record.leader)
    old = LeaderCalibration.load(file) if file.is_file() else None
    signs = old.signs if old is not None else SIGNS.get(given.config.deploy.robot, SIGNS["fr3"])
    import numpy as np

    with contextlib.closing(DynamixelBus(port, 57_600, range(1, 9))) as bus:
        pose = ", ".join(f"{np.rad2deg(angle):.0f}" for angle in HOME_Q)
        input(f"hold the leader as the arm stands at home ({pose} degrees), trigger released, and press enter: ")
        released = bus.read()
        input("squeeze the trigger, and press enter: ")
        squeezed = bus.read()
    calibrate(port, released, squeezed, np.array(HOME_Q), signs=signs).save(file)
    print(f"written: {file}; move each joint of the leader once and watch the arm follow on --robot twin")
    return 0
