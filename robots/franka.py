"""A Franka arm through the real franky client: state, a stream of 10 Hz joint targets, home, and a controlled stop.

The stream follows each target by linear interpolation over the tick, as the simulator that made the data does. A
servo thread turns that line into joint velocities at 50 Hz (feed-forward plus a gain on the measured error) and sends
each as a short `JointVelocityMotion`. Two watchdogs lie in this: without a new target the line ends and the arm rests
there; without the servo thread the last motion ramps to zero after `WATCHDOG_MS`.

Measured on the twin (144 ticks over all joints with abrupt reversals of up to 0.9 rad/s, two busy cores), against
that line: mean and worst error at the end of a tick, and lag.

| command | mean | worst | lag | aborts |
| --- | --- | --- | --- | --- |
| velocity at 50 Hz, gain 10/s, 20 ms ahead (this module) | 4.4 mrad | 29 mrad | 0.01 s | 0 |
| velocity at 10 Hz from the measured state | 21 mrad | 99 mrad | 0.06 s | 0 |
| JointImpedanceTracker, 600 N m/rad, velocity given | 5.5 mrad | 25 mrad | 0.01 s | 0 |
| JointImpedanceTracker, 600 N m/rad | 26 mrad | 80 mrad | 0.09 s | 0 |
| JointMotion, dynamics factor 0.5 | 47 mrad | 176 mrad | 0.18 s | 0 |

Torque control tracks as well, but has no watchdog, and a client without a real-time kernel may not hold it.
franky is imported only when a connection is made.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import GripperRule
from robocoach.robots import fci
from robocoach.robots.gripper import GripperWorker
from robocoach.robots.priority import go_first, keeping_policy

TICK_S = 0.1
SERVO_S = 0.02
LOOK_AHEAD_S = 0.02
GAIN_PER_S = 10.0
WATCHDOG_MS = 100
STREAM_FACTOR = 0.9
"""Share of the dynamic limits a streamed velocity may use; 1.0 makes libfranka abort (FIELD-NOTES)."""
HOME_FACTOR = 0.25

FR3_ACCELERATION = (10.0, 7.5, 10.0, 10.0, 10.0, 10.0, 10.0)
FR3_JERK = (5000.0, 3750.0, 5000.0, 5000.0, 5000.0, 5000.0, 5000.0)
"""[rad/s²], [rad/s³]: the wheel carries the Panda's, which an FR3 answers with aborted motions."""


class ArmFault(RuntimeError):
    """What the arm or the connection reported, in one line. The rollout in progress is invalid."""


@dataclass(frozen=True)
class ArmState:
    """The arm's state as last read."""

    values: np.ndarray
    """float64 (8,): joints [rad], opening width [m]."""
    read_at_s: float
    """Monotonic time at which this state was new."""
    velocity_rad_s: np.ndarray | None = None
    """float64 (7,): measured joint velocity."""


def client_version() -> str:
    """`franky-control 2.0.0`, for the record."""
    return f"franky-control {version('franky-control')}"


class FrankaArm:
    """One connected arm with its hand. Use as a context manager; every exit stops the arm under control."""

    def __init__(self, host: str, *, realtime: bool) -> None:
        """Connects; `realtime` asks for a real-time kernel, as an arm wants and the twin does not. Raises UserError."""
        with keeping_policy():  # the servo thread, started in here, is real-time as libfranka wants it
            self._connect(host, realtime)

    def _connect(self, host: str, realtime: bool) -> None:
        fci.probe(host)
        import franky

        self._franky = franky
        config = franky.RealtimeConfig.Enforce if realtime else franky.RealtimeConfig.Ignore
        try:
            self._robot: Any = franky.Robot(host, realtime_config=config)
            gripper = franky.Gripper(host)
        except franky.IncompatibleVersionException as error:
            raise UserError(f"{fci.wrong_version(host, None)} [{error}]") from error
        except franky.RealtimeException as error:
            raise UserError(f"no real-time priority ({error}): boot the PREEMPT_RT kernel, see the README") from error
        except franky.NetworkException as error:
            raise UserError(f"the FCI at {host} went away while connecting ({error}); is FCI still on?") from error
        self._robot.joint_acceleration_limit.set(list(FR3_ACCELERATION))
        self._robot.joint_jerk_limit.set(list(FR3_JERK))
        self._largest_rad_s = STREAM_FACTOR * np.asarray(self._robot.joint_velocity_limit.get(), dtype=float)
        self._lock = threading.RLock()
        self._streaming = False
        self._fault: str | None = None
        self._robot_time_ms, self._state_at = -1, time.monotonic()
        self._q = np.asarray(self._robot.state.q, dtype=float)
        self._dq = np.zeros(7)
        self._line = _Line(self._q, self._q, 0.0, 0.0)
        self.gripper = GripperWorker(gripper, GripperRule())
        self._done = threading.Event()
        self._servo = threading.Thread(target=self._run_servo, name="franka-servo", daemon=True)
        self._servo.start()

    def __enter__(self) -> FrankaArm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> ArmState:
        """The newest state, without waiting for it; its age tells whether the arm still answers. Raises ArmFault."""
        self._raise_fault()
        width, width_at = self._gripper_width()
        # The hand reports more slowly than the arm, and its age may be 0.1 s more before it counts.
        return ArmState(np.append(self._q, width), min(self._state_at, width_at + 0.1), self._dq)

    def command(self, values: np.ndarray, tick_at_s: float, tick_s: float = TICK_S) -> None:
        """Streams one action (8,): joints [rad] to be reached `tick_s` after `tick_at_s`, and the hand's width [m]."""
        self._raise_fault()
        now = time.monotonic()
        with self._lock:
            if not self._streaming:
                self._line = _Line(self._q, self._q, now, now)
            here, _ = self._line.at(now)
            end = max(tick_at_s + tick_s, now + tick_s / 2)
            self._line = _Line(here, np.array(values[:7], dtype=float), now, end)
            self._streaming = True
        self.gripper.command(float(values[7]))

    def stop(self, timeout_s: float = 1.5) -> None:
        """Brings the arm to rest along its limits and waits for it; safe to call at any time, in any state."""
        with self._lock:
            self._streaming = False
            try:
                self._brake()
                if not self._robot.join_motion(timeout_s):
                    self._robot.stop()
            except Exception as error:
                self._fault = self._fault or _one_line(error)

    def _brake(self) -> None:
        franky = self._franky
        if self._robot.is_in_control:
            by_position = self._robot.current_control_signal_type == franky.ControlSignalType.JointPositions
            braking = franky.JointStopMotion if by_position else franky.JointVelocityStopMotion
            self._robot.move(braking(STREAM_FACTOR), asynchronous=True)

    def go_to(self, q: np.ndarray, timeout_s: float = 20.0) -> None:
        """A slow blocking move to joints (7,) [rad]; ends early with a controlled stop on Ctrl-C. Raises ArmFault."""
        self.stop()
        self._raise_fault()
        motion = self._franky.JointMotion([float(x) for x in q], relative_dynamics_factor=HOME_FACTOR)
        deadline = time.monotonic() + timeout_s
        try:
            self._robot.move(motion, asynchronous=True)
            while not self._robot.join_motion(0.1):
                if time.monotonic() > deadline:
                    raise ArmFault(f"the arm has not reached its start pose in {timeout_s:.0f} s")
        except ArmFault:
            self.stop()
            raise
        except Exception as error:
            raise ArmFault(_one_line(error)) from error
        except KeyboardInterrupt:
            self.stop()
            raise

    def open_hand(self, timeout_s: float = 5.0) -> None:
        """Opens the hand and waits. Raises ArmFault."""
        self.gripper.command(GripperRule().open_width_m)
        if not self.gripper.settle(timeout_s):
            raise ArmFault(f"the hand has not opened in {timeout_s:.0f} s")
        self._gripper_width()

    def recover(self) -> None:
        """Clears a reported fault and asks the arm to recover once. Raises ArmFault when it does not."""
        self._fault = None
        try:
            self._robot.join_motion(1.0)
        except Exception as error:
            # The aborted motion reports its error a second time here; whether it matters is asked next.
            last = _one_line(error)
        else:
            last = "the arm reports errors"
        if self._robot.has_errors and not self._robot.recover_from_errors():
            raise ArmFault(f"{last}; it did not recover: release the user stop or clear the error in Franka Desk")

    def close(self) -> None:
        """Stops the arm and the threads, and gives the FCI back."""
        if self._robot is None:
            return
        self.stop()
        self._done.set()
        self._servo.join(timeout=2.0)
        self.gripper.close()
        self._robot = None  # the last reference holds the FCI: without it the next client would find it busy

    def _gripper_width(self) -> tuple[float, float]:
        try:
            return self.gripper.width()
        except Exception as error:
            raise ArmFault(f"hand: {_one_line(error)}") from error

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise ArmFault(self._fault)

    def _run_servo(self) -> None:
        go_first()  # franky's own 1 kHz thread is started from here, and inherits it
        due = time.monotonic()
        while not self._done.is_set():
            if self._fault is None:
                try:
                    self._serve()
                except Exception as error:
                    self._fault = _one_line(error)
                    self._streaming = False
            due = max(due + SERVO_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _serve(self) -> None:
        state = self._robot.state
        now = time.monotonic()
        robot_time = int(state.time.to_msec())
        if robot_time != self._robot_time_ms:
            self._robot_time_ms, self._state_at = robot_time, now
            self._q = np.asarray(state.q, dtype=float)
            self._dq = np.asarray(state.dq, dtype=float)
        with self._lock:
            if not self._streaming:
                return
            wanted, _ = self._line.at(now)
            _, velocity = self._line.at(now + LOOK_AHEAD_S)
            velocity = np.clip(velocity + GAIN_PER_S * (wanted - self._q), -self._largest_rad_s, self._largest_rad_s)
            motion = self._franky.JointVelocityMotion(
                velocity.tolist(), self._franky.Duration(WATCHDOG_MS), relative_dynamics_factor=STREAM_FACTOR
            )
            self._robot.move(motion, asynchronous=True)


@dataclass(frozen=True)
class _Line:
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


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
