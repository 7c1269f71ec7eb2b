"""A tape of the twin's 1 kHz command stream: what the arm was commanded each millisecond, and what it did.

Shared memory with one writer (the twin's process, which must lose no time over it) and any readers. It always runs;
a recording is a stretch of it. `Stretch` computes what the limits of an arm are about: velocity, acceleration and jerk
of the commands, by the client's own clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from robocoach.robots.limits import ArmLimits

ROWS = 120_000
"""Two minutes."""
WIDTH = 24
MILLISECOND_S = 0.001
ROUNDING = 1e-3
"""[rad/s], [rad/s²]: what differences of double-precision joints a millisecond apart may be wrong by."""


class Mode(IntEnum):
    """How the arm was commanded in a millisecond."""

    IDLE = 0
    """By nobody: it holds where it is."""
    POSITION = 1
    VELOCITY = 2
    TORQUE = 3


@dataclass(frozen=True)
class Stretch:
    """A stretch of the tape: n milliseconds."""

    time_s: np.ndarray
    """(n,) monotonic."""
    mode: np.ndarray
    """(n,) `Mode`."""
    message_id: np.ndarray
    """(n,) number of the robot state, one a millisecond, that the newest command answers; it stays the same while no
    new command comes, which is the client's lateness and not its command."""
    command: np.ndarray
    """(n, 7): joints [rad] where the mode is POSITION or IDLE, velocities [rad/s] where VELOCITY, torques [N m]."""
    q: np.ndarray
    """(n, 7) measured joints [rad]."""
    dq: np.ndarray
    """(n, 7) measured velocities [rad/s]."""

    def between(self, start_s: float, end_s: float) -> Stretch:
        """The rows from one monotonic time to another."""
        keep = (self.time_s >= start_s) & (self.time_s <= end_s)
        return Stretch(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))

    def speed(self, window_ms: int = 10) -> np.ndarray:
        """(n,) largest joint speed [rad/s], the mean over a window: franky-sim's last joint buzzes at 500 Hz."""
        half = window_ms // 2
        padded = np.concatenate([np.repeat(self.q[:1], half, 0), self.q, np.repeat(self.q[-1:], half, 0)])
        return np.abs(padded[2 * half :] - padded[: -2 * half]).max(axis=1) / (2 * half * MILLISECOND_S)

    def standstill_s(self, slower_than_rad_s: float = 0.02) -> float:
        """Monotonic time from which on the arm stood still to the end; infinity when it never did."""
        moving = np.flatnonzero(self.speed() >= slower_than_rad_s)
        last = int(moving[-1]) if len(moving) else -1
        return float(self.time_s[last + 1]) if last + 1 < len(self.time_s) else np.inf

    def fresh(self) -> list[np.ndarray]:
        """Indices of the rows with a new command, one array for each motion."""
        new = np.diff(self.message_id, prepend=self.message_id[:1]) != 0
        motions = np.cumsum(np.diff(self.mode, prepend=self.mode[:1]) != 0)
        driven = new & ((self.mode == Mode.POSITION) | (self.mode == Mode.VELOCITY))
        return [np.flatnonzero(driven & (motions == motion)) for motion in np.unique(motions[driven])]

    def derivatives(self, rows: np.ndarray) -> Motion:
        """Position, velocity, acceleration and jerk of the commands of one motion, by the client's own clock.

        A client that was late answers a later state: its next command belongs that many milliseconds further on. A
        motion begins at rest where the arm is measured; of velocities the position is their integral.
        """
        first = rows[0]
        others = np.flatnonzero(self.mode[:first] != self.mode[first])
        # Of two commands in one millisecond the tape shows the second, so its first may be some way into a motion.
        before = self.message_id[first] - (first - (others[-1] if len(others) else -1))
        command, elapsed = self.command[rows], np.diff(self.message_id[rows], prepend=before)
        elapsed_s = elapsed[:, None] * MILLISECOND_S
        start, rest = self.q[rows[:1]], np.zeros((1, 7))
        by_velocity = self.mode[rows[0]] == Mode.VELOCITY
        if by_velocity:
            velocity, position = command, start + np.cumsum(command * elapsed_s, axis=0)
        else:
            position, velocity = command, np.diff(command, axis=0, prepend=command[:1]) / elapsed_s
        # A difference of positions is the velocity half way between them, and so on.
        between_s = elapsed_s if by_velocity else _halves(elapsed_s)
        acceleration = np.diff(velocity, axis=0, prepend=rest) / between_s
        if not by_velocity:
            acceleration[:3] = 0.0  # a motion goes on from the last desired position, which is not on the tape
        jerk = np.diff(acceleration, axis=0, prepend=rest) / _halves(between_s)
        return Motion(position, velocity, acceleration, jerk)


def _halves(intervals_s: np.ndarray) -> np.ndarray:
    """Time between the middles of successive intervals."""
    return (intervals_s + np.concatenate([intervals_s[:1], intervals_s[:-1]])) / 2


@dataclass(frozen=True)
class Motion:
    """The commands of one motion, each (m, 7)."""

    position: np.ndarray
    """[rad]."""
    velocity: np.ndarray
    """[rad/s]."""
    acceleration: np.ndarray
    """[rad/s²]."""
    jerk: np.ndarray
    """[rad/s³]."""


def unsafe_commands(tape: Stretch, limits: ArmLimits) -> dict[str, int]:
    """How many of the 1 kHz commands are outside the limits of an arm, by what they exceed.

    Position (of velocities: their integral), velocity with its position-dependent bound, acceleration. Torques, which
    have no such limits, and the arm's own hold are not commands in this sense.
    """
    counts = {"not finite": 0, "position": 0, "velocity": 0, "acceleration": 0}
    for rows in tape.fresh():
        motion = tape.derivatives(rows)
        bound = np.array(
            [limits.velocity_towards(q, np.sign(dq)) for q, dq in zip(motion.position, motion.velocity, strict=True)]
        )
        counts["not finite"] += int((~np.isfinite(tape.command[rows])).any(axis=1).sum())
        counts["position"] += int(
            ((motion.position < limits.q_min) | (motion.position > limits.q_max)).any(axis=1).sum()
        )
        counts["velocity"] += int((np.abs(motion.velocity) > bound + ROUNDING).any(axis=1).sum())
        counts["acceleration"] += int((np.abs(motion.acceleration) > limits.acceleration + ROUNDING).any(axis=1).sum())
    return counts


class Tape:
    """The ring in shared memory."""

    def __init__(self, memory: Any) -> None:
        """`memory` is a shared array of `size()` doubles."""
        numbers = np.frombuffer(memory, dtype=np.float64)
        self._count, self._rows = numbers[:1], numbers[1:].reshape(ROWS, WIDTH)

    @staticmethod
    def size() -> int:
        """Doubles that a tape takes."""
        return 1 + ROWS * WIDTH

    @property
    def count(self) -> int:
        """Rows written since the start."""
        return int(self._count[0])

    def write(self, mode: int, message_id: int, command: np.ndarray, q: np.ndarray, dq: np.ndarray) -> None:
        """Appends a millisecond."""
        row = self._rows[int(self._count[0]) % ROWS]
        row[0], row[1], row[2] = time.monotonic(), mode, message_id
        row[3:10], row[10:17], row[17:24] = command, q, dq
        self._count[0] += 1

    def read(self, start: int) -> Stretch:
        """Everything since row `start`. Raises ValueError when that is longer ago than the tape is."""
        end = self.count
        if end - start > ROWS - 1_000:
            raise ValueError(f"the tape holds {ROWS // 1000} s, and this recording began {(end - start) // 1000} s ago")
        rows = self._rows[np.arange(start, end) % ROWS]
        return Stretch(
            rows[:, 0], rows[:, 1].astype(int), rows[:, 2].astype(int), rows[:, 3:10], rows[:, 10:17], rows[:, 17:24]
        )
