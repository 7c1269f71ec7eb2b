"""The teleoperator that a configuration names. Raises UserError for what is missing, before anything moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robocoach.configs.errors import UserError
from robocoach.configs.models import RecordConfig

if TYPE_CHECKING:
    from robocoach.robots.teleop.operator import Teleop


def check(config: RecordConfig, robot: str) -> None:
    """Refuses what cannot work on this robot, before a connection is made."""
    if config.teleop == "script" and robot != "twin":
        raise UserError("--teleop script looks at ground truth, which only --robot twin has; choose another --teleop")
    if config.unattended and config.teleop != "script":
        raise UserError(f"--unattended needs --teleop script: nobody would be at the {config.teleop}")
    if config.teleop == "gello" and not config.leader:
        raise UserError(
            "--teleop gello needs --leader FILE, the leader's calibration; "
            "make one with --calibrate-leader PORT --leader FILE"
        )
    if config.teleop == "gello":
        from robocoach.robots.teleop.gello import LeaderCalibration

        LeaderCalibration.load(Path(config.leader))


def make(config: RecordConfig, task_name: str) -> Teleop:
    """The teleoperator, not connected yet; a script has yet to be given eyes (`Script.watch`)."""
    if config.teleop == "gello":
        from robocoach.robots.teleop.gello import Gello, LeaderCalibration

        return Gello(LeaderCalibration.load(Path(config.leader)), config.leader_tolerance_rad)
    if config.teleop == "spacemouse":
        from robocoach.robots.teleop.spacemouse import SpaceMouse

        return SpaceMouse(config.jog_speed_m_s, config.jog_turn_rad_s)
    if config.teleop == "guide":
        from robocoach.robots.teleop.guide import Guide

        return Guide()
    if config.teleop == "script":
        from robocoach.robots.teleop.script import Script

        return Script(task_name)
    from robocoach.robots.teleop.keyboard import Keyboard

    return Keyboard(config.jog_speed_m_s, config.jog_turn_rad_s)
