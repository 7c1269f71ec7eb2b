"""How well each control mode follows a 10 Hz stream of joint targets, and how smooth its commands are at 1 kHz.

    scripts/bench modes [--ticks 144]

The same stream goes through each mode of franky on the twin: all seven joints on zigzags of different periods, with
abrupt reversals of up to 0.9 rad/s. The target of a tick is to be reached when the tick is over, on a straight line.
Prints a table and one JSON object last; for each mode

- `lag_s`: the shift in time that brings the measured motion closest to that line; `mean_mrad`, `worst_mrad`: distance
  from it at the end of each tick, over all joints;
- `command_acceleration`, `command_jerk` [rad/s², rad/s³]: the largest in the twin's 1 kHz command stream, by the
  client's own clock; null for torques, which command no motion;
- `motion_acceleration`, `motion_jerk`: the largest of the measured motion, each difference over 10 ms;
- `late_ms`: milliseconds without a new command; `aborts`: motions that ended with an error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from robocoach.robots.franka import ArmFault, FrankaArm
from robocoach.robots.priority import going_first
from robocoach.robots.servo import STREAM_FACTOR, UNFILTERED_HZ, Line, Servo
from robocoach.robots.twin import Twin
from robocoach.robots.twin_tape import MILLISECOND_S, Stretch
from robocoach.sim.tasks import get_task

TASK = "stack-cube"
TICK_S = 0.1
AMPLITUDE_RAD = np.array([0.15, 0.10, 0.15, 0.10, 0.16, 0.15, 0.14])
PERIOD_TICKS = np.array([14, 20, 16, 24, 15, 18, 13])
POSITION_FACTOR = 0.5
"""Dynamics of the position modes; 0.9 aborts now and then where targets reverse."""
WAYPOINTS, RESENT_TICKS = 10, 5


class JointMotionServo:
    """A `JointMotion` to each target."""

    def __init__(self, franky: Any) -> None:
        self._franky = franky
        self._target: np.ndarray | None = None

    def follow(self, robot: Any, line: Line, now_s: float, q: np.ndarray) -> None:
        """Starts a motion when the target is a new one."""
        if line.end is not self._target:
            self._target = line.end
            motion = self._franky.JointMotion(line.end.tolist(), relative_dynamics_factor=POSITION_FACTOR)
            robot.move(motion, asynchronous=True, cutoff_frequency=UNFILTERED_HZ)

    def stopping(self) -> Any:
        """The end of a stream of positions."""
        return self._franky.JointStopMotion(STREAM_FACTOR)


class WaypointServo(JointMotionServo):
    """A `JointWaypointMotion` through the next ten targets, sent anew every fifth tick; it knows the future."""

    def __init__(self, franky: Any, targets: np.ndarray) -> None:
        super().__init__(franky)
        self._targets = targets
        self._tick = -1

    def follow(self, robot: Any, line: Line, now_s: float, q: np.ndarray) -> None:
        """Sends the next chunk when its turn has come."""
        tick = int(np.abs(self._targets - line.end).sum(axis=1).argmin())
        if tick == self._tick or tick % RESENT_TICKS:
            return
        self._tick = tick
        after = np.concatenate([self._targets[tick + 1 :], self._targets[-1:]])
        velocities = (after - self._targets[tick:]) / TICK_S
        waypoints = [
            self._franky.JointWaypoint(
                self._franky.JointState(target, 0.5 * (velocities[max(0, i - 1)] + velocities[i])),
                minimum_time=self._franky.Duration(round(1000 * TICK_S)),
            )
            for i, target in enumerate(self._targets[tick : tick + WAYPOINTS - 1])
        ]
        last = self._targets[min(tick + WAYPOINTS - 1, len(self._targets) - 1)]  # a final velocity would abort
        waypoints.append(self._franky.JointWaypoint(self._franky.JointState(last)))
        motion = self._franky.JointWaypointMotion(waypoints, relative_dynamics_factor=POSITION_FACTOR)
        robot.move(motion, asynchronous=True, cutoff_frequency=UNFILTERED_HZ)


def zigzag(start_q: np.ndarray, ticks: int) -> np.ndarray:
    """Targets (ticks, 7) [rad]."""
    phase = (np.arange(1, ticks + 1)[:, None] / PERIOD_TICKS + 0.25) % 1.0
    return start_q + AMPLITUDE_RAD * (1 - 4 * np.abs(phase - 0.5))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ticks", type=int, default=144, help="length of the stream in ticks of 0.1 s")
    options = parser.parse_args(arguments)
    import franky

    start_q = get_task(TASK).sample_scene(0).start_q
    targets = zigzag(start_q, options.ticks)
    modes: dict[str, str | Servo] = {
        "JointVelocityMotion": "velocity",
        "JointImpedanceTracker": "impedance",
        "waypoint chunks": WaypointServo(franky, targets),
        "JointMotion": JointMotionServo(franky),
    }
    began = time.monotonic()
    rows: dict[str, dict[str, Any]] = {}
    with Twin(TASK) as twin:
        for name, mode in modes.items():
            with FrankaArm(twin.host, realtime=False, mode=mode) as arm:
                rows[name] = measure(twin, arm, start_q, targets)
            print(_table_row(name, rows[name]), flush=True)
    report = {
        "modes": rows,
        "n_ticks": options.ticks,
        "seconds": round(time.monotonic() - began, 1),
        "cores": os.cpu_count(),
        "franky": version("franky-control"),
        "twin": f"franky-sim {version('franky-sim')}",
    }
    print(json.dumps(report))
    return 0


def measure(twin: Twin, arm: FrankaArm, start_q: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """One mode: the whole stream, from rest at `start_q`."""
    arm.go_to(start_q)
    time.sleep(0.3)
    twin.record()
    aborts = 0
    with going_first():
        begin = time.monotonic()
        for tick, target in enumerate(targets):
            due = begin + tick * TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                arm.command(np.append(target, 0.08), due)
            except ArmFault as fault:
                print(f"tick {tick}: {fault}", file=sys.stderr)
                aborts += 1
                arm.recover()
        time.sleep(max(0.0, begin + len(targets) * TICK_S - time.monotonic()))
    arm.stop()
    tape = twin.recorded().between(begin, begin + len(targets) * TICK_S)
    return {**tracking(tape, begin, start_q, targets), **smoothness(tape), "aborts": aborts}


def tracking(tape: Stretch, begin_s: float, start_q: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """How far and how late the measured motion is behind the line through the targets."""
    corners = np.concatenate([start_q[None], targets])
    at = (tape.time_s - begin_s) / TICK_S

    def line(shift_s: float) -> np.ndarray:
        moments = at - shift_s / TICK_S
        return np.column_stack([np.interp(moments, np.arange(len(corners)), corners[:, j]) for j in range(7)])

    lags = np.arange(0.0, 0.4, 0.005)
    errors = [float(np.square(tape.q - line(lag)).mean()) for lag in lags]
    ends = np.searchsorted(at, np.arange(1, len(targets)))
    behind = 1000 * np.abs(tape.q - line(0.0))[ends]
    return {
        "lag_s": round(float(lags[int(np.argmin(errors))]), 3),
        "mean_mrad": round(float(behind.mean()), 1),
        "worst_mrad": round(float(behind.max()), 1),
    }


def smoothness(tape: Stretch) -> dict[str, float | int | None]:
    """The largest accelerations and jerks, commanded and measured."""
    motions = [tape.derivatives(rows) for rows in tape.fresh()]
    late = int((np.diff(tape.message_id) == 0).sum())
    half, between_s = 5, 10 * MILLISECOND_S

    def differentiate(values: np.ndarray) -> np.ndarray:
        return (values[2 * half :] - values[: -2 * half]) / between_s

    acceleration = differentiate(differentiate(tape.q))
    return {
        "command_acceleration": _peak([motion.acceleration for motion in motions]),
        "command_jerk": _peak([motion.jerk for motion in motions]),
        "motion_acceleration": _peak([acceleration]),
        "motion_jerk": _peak([differentiate(acceleration)]),
        "late_ms": late,
    }


def _peak(values: list[np.ndarray]) -> float | None:
    return round(float(max(np.abs(v).max() for v in values)), 1) if values else None


def _table_row(name: str, row: dict[str, Any]) -> str:
    cells = [f"{row[key]}" if row[key] is not None else "–" for key in row]
    return f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
