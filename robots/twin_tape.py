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

ROWS = 120_000
"""Two minutes."""
WIDTH = 24


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
