"""How a line of joint targets becomes motions that franky executes: the control modes of `FrankaArm`.

A servo is asked 50 times a second while a stream runs, and starts motions on the robot that it is given. Which of
them is the default, and why, is in `docs/control-modes.md`. franky is handed in, never imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.robots.limits import ArmLimits

SERVO_S = 0.02
LOOK_AHEAD_S = 0.02
GAIN_PER_S = 10.0
WATCHDOG_MS = 100
STREAM_FACTOR = 0.9
"""Share of the dynamic limits a streamed motion may use; 1.0 makes libfranka abort (measured on loopback)."""
UNFILTERED_HZ = 1000.0
"""libfranka's largest cut-off frequency, which turns its low-pass filter off. franky's motions are limited in jerk as
they are, and the filter, which knows nothing of late milliseconds, makes steps of them where the client was late."""
STIFFNESS_NM_RAD = (600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0)
"""Of the impedance mode; the values of libfranka's own joint impedance example."""


@dataclass(frozen=True)
class Line:
    """Joints that move from `start` to `end` (7,) [rad] between two monotonic times, and rest after."""

    start: np.ndarray
    end: np.ndarray
    begins_s: float
    ends_s: float

    def at(self, now_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Joints [rad] and their velocity [rad/s] at a time."""
        if now_s >= self.ends_s:
            return self.end, np.zeros(7)
        length = self.ends_s - self.begins_s
        share = min(1.0, max(0.0, (now_s - self.begins_s) / length))
        return self.start + share * (self.end - self.start), (self.end - self.start) / length


class Servo(Protocol):
    """One way to make the arm follow."""

    def follow(self, robot: Any, line: Line, now_s: float, q: np.ndarray) -> None:
        """Sends what keeps the arm on the line; `q` (7,) [rad] is measured."""
        ...

    def stopping(self) -> Any:
        """The franky motion that brings a stream of this kind to rest."""
        ...


class VelocityServo:
    """Joint velocities: feed-forward plus a gain on the error, each a `JointVelocityMotion` of `WATCHDOG_MS`.

    Its duration is a watchdog: without the next one the arm ramps to rest by itself.
    """

    def __init__(self, franky: Any, limits: ArmLimits) -> None:
        self._franky, self._limits = franky, limits
        self._largest: np.ndarray | None = None

    def follow(self, robot: Any, line: Line, now_s: float, q: np.ndarray) -> None:
        if self._largest is None:
            # franky refuses a motion beyond its own limits, and its wheel knows no more than the Panda's velocities.
            self._largest = np.array(robot.joint_velocity_limit.get(), dtype=float)
        wanted, _ = line.at(now_s)
        _, velocity = line.at(now_s + LOOK_AHEAD_S)
        velocity = velocity + GAIN_PER_S * (wanted - q)
        largest = STREAM_FACTOR * np.minimum(self._largest, self._limits.velocity_towards(q, np.sign(velocity)))
        motion = self._franky.JointVelocityMotion(
            np.clip(velocity, -largest, largest).tolist(),
            self._franky.Duration(WATCHDOG_MS),
            relative_dynamics_factor=STREAM_FACTOR,
        )
        robot.move(motion, asynchronous=True, cutoff_frequency=UNFILTERED_HZ)

    def stopping(self) -> Any:
        return self._franky.JointVelocityStopMotion(STREAM_FACTOR)


class ImpedanceServo:
    """Torques of a spring towards the line: yields to contact, needs a real-time kernel, has no watchdog.

    Without the servo the spring holds the last point of the line.
    """

    def __init__(self, franky: Any, limits: ArmLimits) -> None:
        self._franky = franky
        self._motion: Any = None

    def follow(self, robot: Any, line: Line, now_s: float, q: np.ndarray) -> None:
        wanted, velocity = line.at(now_s)
        reference = self._franky.JointReference(q=wanted, dq=velocity)
        if self._motion is None or not robot.is_in_control:
            self._motion = self._franky.JointImpedanceTrackingMotion(stiffness=np.array(STIFFNESS_NM_RAD))
            self._motion.set_reference(reference)
            robot.move(self._motion, asynchronous=True)
        self._motion.set_reference(reference)

    def stopping(self) -> Any:
        self._motion = None
        return self._franky.TorqueStopMotion()


MODES: dict[str, type[VelocityServo] | type[ImpedanceServo]] = {"velocity": VelocityServo, "impedance": ImpedanceServo}


def check_mode(mode: str) -> None:
    """Raises UserError for a control mode that is not one of `MODES`."""
    if mode not in MODES:
        raise UserError(f"no control mode '{mode}'; choose from {', '.join(MODES)}")
