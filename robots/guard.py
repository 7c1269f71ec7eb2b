"""The only way to the arm: every action is looked at by the safety envelope before it is sent, whoever asks.

The loop, the recorder, the replay and the LeRobot robot all go through `Guard`. It keeps what the envelope wants to
compare with (the last command, its velocity, the last state, how long the picture has been the same) and brings the
arm to rest itself when the envelope says stop, so that no caller can forget to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robocoach.configs.models import SafetyConfig
from robocoach.robots import kinematics
from robocoach.robots.camera import Camera, Frame
from robocoach.robots.franka import ArmState
from robocoach.robots.limits import FR3, ArmLimits
from robocoach.robots.safety import Command, Hold, Moment, Stop, check

TICK_S = 0.1


class ArmLike(Protocol):
    """What it takes of an arm."""

    def state(self) -> ArmState:
        """Newest state; raises ArmFault."""
        ...

    def command(self, values: np.ndarray, tick_at_s: float, tick_s: float = TICK_S) -> None:
        """Streams one action (8,) to be reached a tick after a monotonic time; raises ArmFault."""
        ...

    def stop(self) -> None:
        """Brings the arm to rest."""
        ...


@dataclass(frozen=True)
class Step:
    """What one tick saw and what came of it."""

    answer: Command | Hold | Stop
    moment: Moment
    state: ArmState
    frame: Frame | None
    """The newest picture when the action was judged."""


class Guard:
    """One arm, its camera and the envelope between."""

    def __init__(
        self,
        arm: ArmLike,
        camera: Camera | None,
        safety: SafetyConfig,
        limits: ArmLimits = FR3,
        *,
        tick_s: float = TICK_S,
        dry_run: bool = False,
    ) -> None:
        """Without a camera no frame is asked for; `dry_run` does everything but send the command."""
        self._arm, self._camera = arm, camera
        self._safety, self._limits = safety, limits
        self.tick_s = tick_s
        self._dry_run = dry_run
        self._sameness = _Sameness()
        kinematics.load()  # now, and not in the first tick
        self._observed: ArmState | None = None
        self._previous: ArmState | None = None
        self.begin()

    def begin(self) -> None:
        """The arm rests where it is: the last command is forgotten."""
        self._last: np.ndarray | None = None
        self._last_velocity: np.ndarray | None = None
        self._last_action: np.ndarray | None = None
        self._previous = None

    def observe(self) -> ArmState:
        """The state this tick is about; asks the camera for a frame at the same moment. Raises ArmFault."""
        if self._camera is not None:
            self._camera.trigger()
        self._observed = self._arm.state()
        return self._observed

    def step(self, action: np.ndarray | None, due_s: float, *, policy_wait_s: float = 0.0) -> Step:
        """One tick: the envelope judges the action (8,) and what it allows is sent, to be reached at due + tick.

        A stop brings the arm to rest before this returns. Raises ArmFault.
        """
        state = self._observed or self.observe()
        self._observed = None
        frame = self._camera.latest() if self._camera is not None else None
        now = time.monotonic()
        before = self._previous
        moment = Moment(
            action=action,
            last_command=self._last,
            state=state.values,
            frame_age_s=self._frame_age(frame, now),
            state_age_s=max(0.0, now - state.read_at_s),
            policy_wait_s=policy_wait_s,
            tick_s=self.tick_s,
            last_velocity_rad_s=self._last_velocity,
            velocity_rad_s=state.velocity_rad_s,
            frame_unchanged_s=self._sameness.update(frame, now),
            previous_state=before.values if before is not None else None,
            previous_state_s=state.read_at_s - before.read_at_s if before is not None else 0.0,
            last_action=self._last_action,
        )
        self._previous = state
        answer = check(moment, self._safety, self._limits)
        if isinstance(answer, Stop):
            self.halt()
        elif isinstance(answer, Hold) or self._dry_run:
            self._last_velocity = None  # the line to the last command ends, and the arm rests there
            self._last_action = None
        else:
            self._arm.command(answer.values, due_s, self.tick_s)
            start = self._last if self._last is not None else np.asarray(state.values, dtype=float)
            self._last_velocity = (answer.values[:7] - start[:7]) / self.tick_s
            self._last, self._last_action = answer.values, action
        return Step(answer, moment, state, frame)

    def halt(self) -> None:
        """Brings the arm to rest now."""
        self._arm.stop()
        self.begin()

    def _frame_age(self, frame: Frame | None, now: float) -> float:
        if self._camera is None:
            return 0.0
        return max(0.0, now - frame.captured_s) if frame is not None else np.inf


class _Sameness:
    """For how long new frames have shown the very same pixels; a real sensor's noise never repeats itself."""

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._since_s = 0.0

    def update(self, frame: Frame | None, now_s: float) -> float:
        """Seconds since the picture last changed, 0 unless it came again meanwhile."""
        if frame is None:
            return 0.0
        known = self._frame
        if known is None or (frame is not known and not np.array_equal(frame.image, known.image)):
            self._since_s = frame.captured_s
        self._frame = frame
        return now_s - self._since_s if frame.captured_s > self._since_s else 0.0
