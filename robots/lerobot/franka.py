"""A Franka arm, or its twin, as a LeRobot robot: `lerobot-record`, `-replay`, `-rollout` and `-teleoperate` drive it.

Names and units are the data contract's: joint_1.pos … joint_7.pos [rad], gripper.pos [m], `wrist` uint8 (224, 224, 3),
absolute targets as actions. Every action passes the guard, whatever LeRobot's tool asks for and however fast: actions
are sent one a tick, a caller that is early waits. franky and pyrealsense2 are imported in `connect`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from lerobot.cameras.utils import make_cameras_from_configs
from lerobot.robots.robot import Robot
from lerobot.utils.errors import DeviceNotConnectedError
from pydantic import ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.models import CameraConfig, DeployConfig, SafetyConfig
from robocoach.datasets.contract import ACTION_NAMES, IMAGE_SIZE, STATE_NAMES
from robocoach.robots import safety as envelope
from robocoach.robots.franka import ArmFault
from robocoach.robots.guard import Guard
from robocoach.robots.lerobot import here
from robocoach.robots.lerobot.config_franka import FrankaConfig
from robocoach.robots.rig import Rig, open_rig
from robocoach.robots.safety import Command, Stop
from robocoach.sim.tasks import get_task

if TYPE_CHECKING:
    from collections.abc import Mapping

WRIST = "wrist"
FRAME_WAIT_S = 0.15
EARLY = 0.5
"""Share of a tick by which an action may come before its own tick without waiting for it."""
FOLLOW = 0.2
"""Share by which the schedule comes back, in a tick, to a caller that is ahead of it after having been late once."""


class FrankaStopped(RuntimeError):
    """The envelope or the arm ended the motion; the message is one line, and the arm is at rest."""


class Franka(Robot):
    """The `franka` robot."""

    config_class = FrankaConfig
    name = "franka"

    def __init__(self, config: FrankaConfig) -> None:
        """Checks the configuration; nothing is connected yet. Raises UserError."""
        super().__init__(config)
        self.config = config
        self._deploy, self._safety, self._wrist = _settings(config)
        self._tick_s = 1.0 / self._deploy.rate
        self._extra = make_cameras_from_configs(config.cameras)
        self._open: contextlib.ExitStack | None = None
        self._rig: Rig | None = None
        self._guard: Guard | None = None
        self._due_s = self._observed_s = 0.0
        self._stopped = ""
        self.actions = self.clamps = 0
        """Actions sent since connecting, and how many of them the envelope clamped."""

    @property
    def cameras(self) -> dict[str, Any]:
        """All cameras by name; LeRobot counts them."""
        return {WRIST: self._rig.camera if self._rig is not None else None, **self._extra}

    @property
    def observation_features(self) -> dict[str, Any]:
        """Joints and width as floats, pictures as (height, width, 3)."""
        extra = {name: (camera.height, camera.width, 3) for name, camera in self._extra.items()}
        return {**dict.fromkeys(STATE_NAMES, float), WRIST: (IMAGE_SIZE, IMAGE_SIZE, 3), **extra}

    @cached_property
    def action_features(self) -> dict[str, Any]:
        """Joint targets and the commanded width."""
        return dict.fromkeys(ACTION_NAMES, float)

    @property
    def is_connected(self) -> bool:
        """Whether the arm is connected."""
        return self._rig is not None

    @property
    def is_calibrated(self) -> bool:
        """Always: the arm knows its joints."""
        return True

    @property
    def rig(self) -> Rig:
        """The connected arm with its camera and, for the twin, its truth."""
        if self._rig is None:
            raise DeviceNotConnectedError(f"{self} is not connected")
        return self._rig

    def connect(self, calibrate: bool = True) -> None:
        """Connects arm and cameras, and brings the twin to its start. Raises UserError or FrankaStopped."""
        if self._rig is not None:
            return
        with contextlib.ExitStack() as stack:
            rig = stack.enter_context(open_rig(self._deploy, self.config.task, self._wrist))
            for camera in self._extra.values():
                camera.connect()
                stack.callback(camera.disconnect)
            try:
                self._to_start(rig)
            except ArmFault as fault:
                raise FrankaStopped(f"arm: {fault}") from fault
            self._guard = Guard(rig.arm, rig.camera, self._safety, rig.limits, tick_s=self._tick_s)
            self._rig, self._stopped = rig, ""
            self.actions = self.clamps = 0
            self._due_s = self._observed_s = 0.0
            self._open = stack.pop_all()
        here.arrived(self)

    def _to_start(self, rig: Rig) -> None:
        scene = get_task(self.config.task).sample_scene(self.config.scene_seed)
        if rig.twin is not None or self.config.start == "home":
            rig.prepare(scene)
            wrong = envelope.check_start(rig.arm.state().values, scene.start_q, self._safety)
            if wrong is not None:
                raise ArmFault(wrong.detail)
        else:
            rig.camera.newer_than(time.monotonic(), 2.0)

    def calibrate(self) -> None:
        """Nothing to calibrate."""

    def configure(self) -> None:
        """Limits and dynamics are set while connecting."""

    def get_observation(self) -> dict[str, Any]:
        """State and wrist picture of one moment. Raises FrankaStopped when arm or camera say nothing."""
        time.sleep(max(0.0, self._observed_s + self._tick_s - time.monotonic()))  # a caller that is too fast
        self._observed_s = time.monotonic()
        try:
            state = self._guard_or_raise().observe()
        except ArmFault as fault:
            raise self._stop(f"arm: {fault}") from fault
        frame = self.rig.camera.newer_than(time.monotonic(), FRAME_WAIT_S) or self.rig.camera.latest()
        if frame is None:
            raise self._stop("the wrist camera gives no picture")
        observation: dict[str, Any] = dict(zip(STATE_NAMES, map(float, state.values), strict=True))
        observation[WRIST] = frame.image.copy()  # LeRobot makes tensors of it, which have to be writable
        for name, camera in self._extra.items():
            observation[name] = camera.read_latest()
        return observation

    def send_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Sends what the envelope allows of an action and returns it. Raises FrankaStopped, with the arm at rest."""
        guard = self._guard_or_raise()
        if self._stopped:
            raise FrankaStopped(self._stopped)
        missing = [name for name in ACTION_NAMES if name not in action]
        if missing:
            raise self._stop(f"the action lacks {', '.join(missing)}")
        if self._wait_for_tick():
            guard.begin()  # the arm came to rest since: its own pose is what the next action is compared with
        try:
            if time.monotonic() - self._observed_s > self._tick_s:
                guard.observe()  # the caller took long over its action: it is judged by where the arm is now
            step = guard.step(np.array([float(action[name]) for name in ACTION_NAMES]), self._due_s)
        except ArmFault as fault:
            raise self._stop(f"arm: {fault}") from fault
        if isinstance(step.answer, Stop):
            raise self._stop(f"{step.answer.fault}: {step.answer.detail}")
        assert isinstance(step.answer, Command)
        self.actions += 1
        self.clamps += bool(step.answer.clamps)
        return dict(zip(ACTION_NAMES, map(float, step.answer.values), strict=True))

    def disconnect(self) -> None:
        """Brings the arm to rest and frees everything."""
        here.left(self)
        guard, rig, stack = self._guard, self._rig, self._open
        self._guard = self._rig = self._open = None
        if guard is not None and rig is not None:
            guard.halt()
            with contextlib.suppress(ArmFault):
                joints = " ".join(f"{joint:.3f}" for joint in rig.arm.state().values[:7])
                logging.info("franka: %d actions, %d clamped, at rest at %s rad", self.actions, self.clamps, joints)
        if stack is not None:
            stack.close()

    def _guard_or_raise(self) -> Guard:
        if self._guard is None:
            raise DeviceNotConnectedError(f"{self} is not connected")
        return self._guard

    def _wait_for_tick(self) -> bool:
        """Settles when this action is due; True when it is not the next one of a stream."""
        expected = self._due_s + self._tick_s
        if expected - time.monotonic() > EARLY * self._tick_s:
            time.sleep(expected - time.monotonic())
        off = time.monotonic() - expected
        follows = off <= self._tick_s
        # A late action gets its whole tick: the arm must not hurry for what the caller lost.
        self._due_s = expected + (off if off > 0 else FOLLOW * off)
        return not follows

    def _stop(self, reason: str) -> FrankaStopped:
        """Brings the arm to rest; every later action is refused with the same line."""
        self._guard_or_raise().halt()
        self._stopped = " ".join(reason.split())
        return FrankaStopped(self._stopped)


def _settings(config: FrankaConfig) -> tuple[DeployConfig, SafetyConfig, CameraConfig]:
    """LeRobot's dataclass as the project's checked settings."""
    if config.start not in ("stay", "home"):
        raise UserError(f"--robot.start {config.start!r}: expected stay or home")
    try:
        deploy = DeployConfig.model_validate(
            {
                "robot": config.model,
                "host": config.host,
                "serial": config.serial,
                "rate": config.fps,
                "control_mode": config.control_mode,
                "home_speed": config.home_speed,
            }
        )
        safety = SafetyConfig.model_validate(dict(config.safety))
        return deploy, safety, CameraConfig.model_validate(dict(config.wrist))
    except ValidationError as error:
        first = error.errors()[0]
        names = {"robot": "model", "rate": "fps"}
        key = ".".join(names.get(str(part), str(part)) for part in first["loc"])
        raise UserError(f"--robot.{key}: {first['input']!r} is not valid: {first['msg']}") from error
