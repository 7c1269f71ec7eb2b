"""The project's teleoperators as LeRobot's: GELLO, space mouse, the terminal's keys, and the script on the twin.

Each wraps the one in `robots/teleop`. LeRobot connects a teleoperator before the robot and tells it nothing of the
arm, so the arm's state is taken from the robot in the same process at the first action. Guiding by hand has no
LeRobot form: its action is known only a tick later.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.teleoperators.teleoperator import Teleoperator
from lerobot.utils.errors import DeviceNotConnectedError

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import ACTION_NAMES
from robocoach.robots.keys import Keys
from robocoach.robots.lerobot import here
from robocoach.robots.lerobot.config_teleoperators import (
    FrankaGelloConfig,
    FrankaKeyboardConfig,
    FrankaScriptConfig,
    FrankaSpaceMouseConfig,
)
from robocoach.robots.teleop.gello import Gello, LeaderCalibration
from robocoach.robots.teleop.keyboard import Keyboard
from robocoach.robots.teleop.operator import Teleop
from robocoach.robots.teleop.script import Script
from robocoach.robots.teleop.spacemouse import SpaceMouse


class _Bridge(Teleoperator):
    """Any of the project's teleoperators behind LeRobot's interface."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.config = config
        self._teleop: Teleop | None = None
        self._begun = False
        self._last: np.ndarray | None = None

    @abc.abstractmethod
    def _make(self) -> Teleop:
        """The project's teleoperator, not yet connected."""

    @property
    def action_features(self) -> dict[str, Any]:
        """Joint targets and the commanded width."""
        return dict.fromkeys(ACTION_NAMES, float)

    @property
    def feedback_features(self) -> dict[str, Any]:
        """None."""
        return {}

    @property
    def is_connected(self) -> bool:
        """Whether the device is open."""
        return self._teleop is not None

    @property
    def is_calibrated(self) -> bool:
        """Always; a leader's calibration is a file."""
        return True

    def connect(self, calibrate: bool = True) -> None:
        """Opens the device. Raises UserError."""
        teleop = self._make()
        teleop.connect()
        self._teleop, self._begun, self._last = teleop, False, None

    def calibrate(self) -> None:
        """Nothing to do here."""

    def configure(self) -> None:
        """Nothing to configure."""

    def get_action(self) -> dict[str, float]:
        """What the operator asks for now; the last action while the device says nothing. Raises UserError."""
        if self._teleop is None:
            raise DeviceNotConnectedError(f"{self} is not connected")
        state = here.franka().rig.arm.state().values
        if not self._begun:
            wrong = self._teleop.begin(state)
            if wrong is not None:
                raise UserError(wrong)
            self._begun = True
        self._look(self._teleop)
        action = self._teleop.read(state)
        if action is None:
            action = self._last if self._last is not None else state
        self._last = action
        return dict(zip(ACTION_NAMES, map(float, action), strict=True))

    def _look(self, teleop: Teleop) -> None:
        """What has to happen before each reading."""

    def send_feedback(self, feedback: dict[str, Any]) -> None:
        """Nothing can be felt."""

    def disconnect(self) -> None:
        """Frees the device."""
        teleop, self._teleop = self._teleop, None
        if teleop is not None:
            teleop.close()


class FrankaGello(_Bridge):
    """`franka_gello`."""

    config_class = FrankaGelloConfig
    name = "franka_gello"

    def _make(self) -> Teleop:
        if not self.config.leader:
            raise UserError("--teleop.leader is missing: the leader's calibration file")
        return Gello(LeaderCalibration.load(Path(self.config.leader)), self.config.tolerance_rad)


class FrankaSpaceMouse(_Bridge):
    """`franka_spacemouse`."""

    config_class = FrankaSpaceMouseConfig
    name = "franka_spacemouse"

    def _make(self) -> Teleop:
        return SpaceMouse(self.config.speed_m_s, self.config.turn_rad_s)


class FrankaKeyboard(_Bridge):
    """`franka_keyboard`."""

    config_class = FrankaKeyboardConfig
    name = "franka_keyboard"

    def __init__(self, config: FrankaKeyboardConfig) -> None:
        super().__init__(config)
        self._keys: Keys | None = None

    def _make(self) -> Teleop:
        keys = Keys().__enter__()
        if not keys.available:
            raise UserError("--teleop.type=franka_keyboard needs a terminal; run it in one")
        self._keys = keys
        teleop = Keyboard(self.config.speed_m_s, self.config.turn_rad_s)
        print(teleop.controls)
        return teleop

    def _look(self, teleop: Teleop) -> None:
        for key in self._keys.drain() if self._keys is not None else ():
            teleop.key(key)

    def disconnect(self) -> None:
        """Gives the terminal back."""
        super().disconnect()
        if self._keys is not None:
            self._keys.__exit__()
            self._keys = None


class FrankaScript(_Bridge):
    """`franka_script`."""

    config_class = FrankaScriptConfig
    name = "franka_script"

    def _make(self) -> Teleop:
        return _LateScript()


class _LateScript:
    """The script, made once the robot is there and its task is known."""

    moves_arm = True
    controls = "the task's demonstrator steers"

    def __init__(self) -> None:
        self._script: Script | None = None

    def connect(self) -> None:
        """The robot is connected after this."""

    def begin(self, state: np.ndarray) -> str | None:
        """Looks at the robot's twin."""
        robot = here.franka()
        if robot.rig.twin is None:
            return "franka_script looks at ground truth, which only --robot.model=twin has"
        self._script = Script(robot.config.task)
        self._script.watch(robot.rig.twin.state)
        return self._script.begin(state)

    def read(self, state: np.ndarray) -> np.ndarray:
        """What the demonstrator does now."""
        assert self._script is not None, "begin() comes first"
        return self._script.read(state)

    def key(self, key: str) -> bool:
        """Uses no key."""
        return False

    @property
    def finished(self) -> bool:
        """The task is done."""
        return self._script is not None and self._script.finished

    def close(self) -> None:
        """Nothing to free."""
