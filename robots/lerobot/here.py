"""The Franka that is connected in this process: LeRobot hands observations to its loop, never to a teleoperator.

A teleoperator that moves the hand from where it is, or a script that looks at the twin, finds them here.
"""

from __future__ import annotations

from typing import Protocol

from lerobot.utils.errors import DeviceNotConnectedError

from robocoach.robots.lerobot.config_franka import FrankaConfig
from robocoach.robots.rig import Rig


class Connected(Protocol):
    """A connected Franka, as far as a teleoperator is concerned."""

    config: FrankaConfig

    @property
    def rig(self) -> Rig:
        """Arm, camera and, on the twin, the truth."""
        ...


_connected: list[Connected] = []


def arrived(robot: Connected) -> None:
    """A robot is connected."""
    _connected.append(robot)


def left(robot: Connected) -> None:
    """A robot is gone."""
    if robot in _connected:
        _connected.remove(robot)


def franka() -> Connected:
    """The robot connected last. Raises DeviceNotConnectedError when there is none."""
    if not _connected:
        raise DeviceNotConnectedError("this teleoperator steers a `franka` robot in the same process; connect it first")
    return _connected[-1]
