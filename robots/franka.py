"""A Franka arm through the real franky client: state, a stream of joint targets, home, recovery, a controlled stop.

The stream follows each target by linear interpolation over the tick, as the simulator that made the data does. A
servo thread turns that line into motions at 50 Hz; what kind of motions is the control mode (`servo.py`), and
`docs/control-modes.md` has the measurements behind the default. Two watchdogs lie in this: without a new target the
line ends and the arm rests there; without the servo thread the last velocity motion ramps to zero by itself.

franky reports errors late, at the next motion or never while nothing moves; here each surfaces as one line at the
next `state` or `command`, and stands until `recover`. franky is imported only when a connection is made.
"""

from __future__ import annotations

import contextlib
import re
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
from robocoach.robots.limits import LIMITS, ArmLimits
from robocoach.robots.priority import go_first, keeping_policy
from robocoach.robots.servo import MODES, SERVO_S, STREAM_FACTOR, UNFILTERED_HZ, Line, Servo, check_mode

TICK_S = 0.1
HOME_FACTOR = 0.25
STATE_LOST_S = 0.2
"""An arm sends a state every millisecond; a gap this long is a lost connection. libfranka itself waits for a second."""
SECOND_LOOK_S = 0.025
"""Enough for the servo thread to read a state, once it may run."""
RETRY_S = 0.5
OPEN_SLACK_M = 0.005


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
    """float64 (7,) measured joint velocity; None where nobody measures it."""


@dataclass(frozen=True)
class _Measured:
    q: np.ndarray
    dq: np.ndarray
    at_s: float
    """Monotonic time at which the robot's own clock was seen to have moved."""


def client_version() -> str:
    """`franky-control 2.0.0`, for the record."""
    return f"franky-control {version('franky-control')}"


class FrankaArm:
    """One connected arm with its hand. Use as a context manager; every exit stops the arm under control."""

    def __init__(
        self,
        host: str,
        *,
        realtime: bool,
        model: str = "fr3",
        mode: str | Servo = "velocity",
        home_speed: float = HOME_FACTOR,
        watch: bool = False,
    ) -> None:
        """Connects to an arm that can move. Raises UserError, one line for each thing that may be in the way.

        `realtime` asks for a real-time kernel, as an arm wants and the twin does not. `model` (`fr3`, `panda`) chooses
        the limits, `mode` the servo, `home_speed` the share of the dynamic limits that `go_to` uses. `watch` connects
        to an arm that cannot move now (locked, stopped, led by hand), to read its state only.
        """
        self.host, self._realtime, self._home_speed = host, realtime, home_speed
        self.limits: ArmLimits = LIMITS[model]
        if isinstance(mode, str):
            check_mode(mode)
        self._lock = threading.RLock()
        self._done = threading.Event()
        self._streaming = False
        self._fault: str | None = None
        self._lost = False
        self._recoveries = 0
        self._errand: Any = None
        self._begun = threading.Event()
        self._robot: Any = None
        with keeping_policy():  # the servo thread, started in here, is real-time as libfranka wants it
            self._connect()
            self._follower = MODES[mode](self._franky, self.limits) if isinstance(mode, str) else mode
            if not watch and (obstacle := self._obstacle(self._robot.state)) and not self._robot.has_errors:
                self.gripper.close()
                self._robot = None
                raise UserError(obstacle)
            self._start_servo()

    def _connect(self) -> None:
        fci.probe(self.host)
        import franky

        self._franky = franky
        config = franky.RealtimeConfig.Enforce if self._realtime else franky.RealtimeConfig.Ignore
        try:
            robot: Any = franky.Robot(self.host, realtime_config=config)
            hand = franky.Gripper(self.host)
            state = robot.state
            self.gripper = GripperWorker(hand, GripperRule())
        except franky.IncompatibleVersionException as error:
            raise UserError(f"{fci.wrong_version(self.host, None)} [{_one_line(error)}]") from error
        except franky.RealtimeException as error:
            raise UserError(f"no real-time priority ({error}): boot the PREEMPT_RT kernel, see the README") from error
        except Exception as error:
            raise UserError(
                f"the FCI at {self.host} went away while connecting ({_one_line(error)}): is FCI still on, and the "
                "hand attached and initialised?"
            ) from error
        # The wheel carries the Panda's limits, which an FR3 answers with aborted motions.
        for limit, value in (
            (robot.joint_velocity_limit, self.limits.velocity_rad_s),
            (robot.joint_acceleration_limit, self.limits.acceleration_rad_s2),
            (robot.joint_jerk_limit, self.limits.jerk_rad_s3),
        ):
            limit.set(np.minimum(np.array(value), np.array(limit.max)).tolist())
        self._robot_time_ms = int(state.time.to_msec())
        self._measured = _Measured(np.array(state.q, dtype=float), np.array(state.dq, dtype=float), time.monotonic())
        self._line = Line(self._measured.q, self._measured.q, 0.0, 0.0)
        self._lost = False
        self._robot = robot

    def __enter__(self) -> FrankaArm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> ArmState:
        """The newest state, without waiting for it; its age tells whether the arm still answers. Raises ArmFault."""
        self._raise_fault()
        width, width_at = self._gripper_width()
        measured = self._measured
        # The hand reports more slowly than the arm, and its age may be 0.1 s more before it counts.
        return ArmState(np.append(measured.q, width), min(measured.at_s, width_at + 0.1), measured.dq)

    def command(self, values: np.ndarray, tick_at_s: float, tick_s: float = TICK_S) -> None:
        """Streams one action (8,): joints [rad] to be reached `tick_s` after `tick_at_s`, and the hand's width [m].

        Raises ArmFault.
        """
        self._raise_fault()
        now = time.monotonic()
        with self._lock:
            if not self._streaming:
                self._line = Line(self._measured.q, self._measured.q, now, now)
            here, _ = self._line.at(now)
            end = max(tick_at_s + tick_s, now + tick_s / 2)
            self._line = Line(here, np.array(values[:7], dtype=float), now, end)
            self._streaming = True
        self.gripper.command(float(values[7]))

    def stop(self, timeout_s: float = 1.5) -> None:
        """Brings the arm to rest along its limits and waits for it; safe to call at any time, in any state.

        Without a connection there is nothing to wait for: the arm has stopped by itself.
        """
        with self._lock:
            self._streaming = False
            if self._robot is None or self._silent_s() > STATE_LOST_S:
                return
            try:
                if self._robot.is_in_control:
                    by_position = (
                        self._robot.current_control_signal_type == self._franky.ControlSignalType.JointPositions
                    )
                    braking = self._franky.JointStopMotion(STREAM_FACTOR) if by_position else self._follower.stopping()
                    self._robot.move(braking, asynchronous=True)
                if not self._robot.join_motion(timeout_s):
                    self._robot.stop()
            except Exception as error:
                self._note_fault(error)

    def go_to(self, q: np.ndarray, timeout_s: float = 20.0) -> None:
        """A slow blocking move to joints (7,) [rad]; ends early with a controlled stop on Ctrl-C.

        Raises ArmFault, and ValueError for joints that the arm does not have.
        """
        target = np.asarray(q, dtype=float)
        if target.shape != (7,) or not ((target >= self.limits.q_min) & (target <= self.limits.q_max)).all():
            raise ValueError(f"seven joints inside the limits of a {self.limits.name}, not {target}")
        self.stop()
        self._raise_fault()
        motion = self._franky.JointMotion(target.tolist(), relative_dynamics_factor=self._home_speed)
        deadline = time.monotonic() + timeout_s
        try:
            self._start(motion, deadline)
            while not self._robot.join_motion(0.1):
                self._raise_fault()
                if time.monotonic() > deadline:
                    raise ArmFault(f"the arm has not reached its start pose in {timeout_s:.0f} s")
        except (ArmFault, KeyboardInterrupt):
            self.stop()
            raise
        except Exception as error:
            self._note_fault(error)
            raise ArmFault(self._fault) from error

    def _start(self, motion: Any, deadline: float) -> None:
        """Lets the servo thread start a motion: franky's 1 kHz thread inherits its real-time scheduling."""
        self._begun.clear()
        self._errand = motion
        while not self._begun.wait(0.05):
            self._raise_fault()
            if time.monotonic() > deadline:
                raise ArmFault("the arm does not start to move")

    def open_hand(self, timeout_s: float = 5.0) -> None:
        """Opens the hand and waits. Raises ArmFault."""
        self.gripper.open()
        settled = self.gripper.settle(timeout_s)
        width, _ = self._gripper_width()
        if not settled:
            raise ArmFault(f"the hand has not opened in {timeout_s:.0f} s, its width is {width:.3f} m")

    def recover(self, tries: int = 3) -> None:
        """Clears a reported fault: asks the arm to recover, and connects again where the connection is lost.

        Gives up after `tries`. Raises ArmFault that says what the operator has to do.
        """
        for attempt in range(tries):
            if attempt:
                time.sleep(RETRY_S)
            try:
                self._recover_once()
            except (ArmFault, UserError) as error:
                last = str(error)
            else:
                return
        raise ArmFault(f"{last} (tried {tries} times)")

    def _recover_once(self) -> None:
        if self._lost or self._robot is None or self._silent_s() > STATE_LOST_S:
            self._drop_connection()
            with keeping_policy():
                self._connect()
                self._start_servo()
        with contextlib.suppress(Exception):  # the aborted motion reports its error a second time here
            self._robot.join_motion(1.0)
        try:
            if self._robot.has_errors and not self._robot.recover_from_errors():
                raise ArmFault(f"the arm does not recover by itself: clear the error at {self.host} in Franka Desk")
            obstacle = self._obstacle(self._robot.state)
        except ArmFault:
            raise
        except Exception as error:
            self._note_fault(error)
            raise ArmFault(self._fault) from error
        if obstacle is not None:
            raise ArmFault(obstacle)
        if self.gripper.broken:
            self._reopen_hand()
        self._recoveries += 1  # what the servo read before this is of the past
        self._fault = None

    def _drop_connection(self) -> None:
        with self._lock:
            self._streaming = False
            self._robot = None  # the last reference holds the FCI: without it the next client would find it busy
        self.gripper.close()

    def _reopen_hand(self) -> None:
        self.gripper.close()
        try:
            self.gripper = GripperWorker(self._franky.Gripper(self.host), GripperRule())
        except Exception as error:
            raise ArmFault(f"the hand does not answer ({_one_line(error)}): check it in Franka Desk") from error

    def close(self) -> None:
        """Stops the arm and the threads, and gives the FCI back."""
        if self._robot is None and self._done.is_set():
            return
        self.stop()
        self._done.set()
        self._servo.join(timeout=2.0)
        self._drop_connection()

    def _gripper_width(self) -> tuple[float, float]:
        try:
            return self.gripper.width()
        except Exception as error:
            raise ArmFault(f"hand: {_one_line(error)}") from error

    def _silent_s(self) -> float:
        """For how long the arm has sent nothing. A process that stood still itself looks again before it says so."""
        if time.monotonic() - self._measured.at_s > STATE_LOST_S:
            time.sleep(SECOND_LOOK_S)
        return time.monotonic() - self._measured.at_s

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise ArmFault(self._fault)
        if self._silent_s() > STATE_LOST_S:
            raise ArmFault(self._connection_lost())

    def _connection_lost(self) -> str:
        return (
            f"the connection to the arm at {self.host} is lost: check its power, the cable and that FCI is on in "
            "Franka Desk"
        )

    def _obstacle(self, state: Any) -> str | None:
        """Why the arm cannot be driven in this state, None when it can."""
        modes = self._franky.RobotMode
        if state.robot_mode == modes.UserStopped:
            return f"the user stop of the arm at {self.host} is active: release it"
        if state.robot_mode == modes.Guiding:
            return f"the arm at {self.host} is being led by hand: let go of the guiding button"
        if state.robot_mode == modes.Other:
            return f"the arm at {self.host} cannot move: unlock its joints and switch FCI on in Franka Desk"
        if state.robot_mode == modes.Reflex:
            names = _names(state.current_errors) or _names(state.last_motion_errors)
            return f"the arm at {self.host} stopped by reflex: {names or 'no reason given'}"
        return None

    def _note_fault(self, error: BaseException) -> None:
        """Keeps the first error that franky reported, in words for the operator."""
        text = _one_line(error)
        if isinstance(error, self._franky.NetworkException) or "Net Exception" in text:
            self._lost, text = True, self._connection_lost()
        elif self._robot is not None:
            with_mode = None
            try:
                with_mode = self._obstacle(self._robot.state)
            except Exception:
                self._lost, text = True, self._connection_lost()
            text = with_mode or text
        self._fault = self._fault or text

    def _start_servo(self) -> None:
        # One thread a connection: the last one's may hang in its own for a second.
        self._servo = threading.Thread(target=self._run_servo, args=(self._robot,), name="franka-servo", daemon=True)
        self._servo.start()

    def _run_servo(self, robot: Any) -> None:
        go_first()  # franky's own 1 kHz thread is started from here, and inherits it
        due = time.monotonic()
        while not self._done.is_set() and self._robot is robot and not self._lost:
            recoveries = self._recoveries
            try:
                self._serve(robot)
            except Exception as error:
                if self._robot is robot and recoveries == self._recoveries:
                    self._streaming = False
                    self._note_fault(error)
            due = max(due + SERVO_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _serve(self, robot: Any) -> None:
        state = robot.state
        now = time.monotonic()
        robot_time = int(state.time.to_msec())
        if robot is self._robot and robot_time != self._robot_time_ms:
            self._robot_time_ms = robot_time
            self._measured = _Measured(np.array(state.q, dtype=float), np.array(state.dq, dtype=float), now)
        errand, self._errand = self._errand, None
        if errand is not None and self._fault is None:
            robot.move(errand, asynchronous=True, cutoff_frequency=UNFILTERED_HZ)
            self._begun.set()
        if self._fault is not None or not self._streaming:
            return
        obstacle = self._obstacle(state)
        if obstacle is not None:
            self._streaming = False
            self._fault = self._fault or obstacle
            return
        with self._lock:
            if self._streaming and robot is self._robot:
                self._follower.follow(robot, self._line, now, self._measured.q)


def _names(errors: Any) -> str:
    """franky's own names of the errors that are set: `joint_reflex, joint_velocity_violation`."""
    return ", ".join(re.findall(r'"(\w+)"', str(errors)))


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
