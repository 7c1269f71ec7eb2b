"""Pushes the hand off its way during a demonstration, so that the data shows how to come back.

What is recorded is what the demonstrator would do; what is executed is that plus the disturbance (DART: Laskey et
al., "Noise injection for robust imitation learning", 2017).
"""

from __future__ import annotations

import numpy as np

from robocoach.sim.kinematics import Arm, down_rotation, hand_yaw

WANDER_M = (0.0015, 0.005)
"""Standard deviation of the slow wander of the executed hand position: at the table, and from `HIGH_M` up."""
HIGH_M = 0.15
WANDER_DECAY = 0.7
PUSHES = 2
PUSH_TICKS = 3
PUSH_M = (0.005, 0.02)
"""Length of a push in one tick; three ticks make 15 to 60 mm."""
PUSH_WINDOW = (1, 34)
QUIET_TICKS = 6
"""No disturbance for so long after the hand was told to close or open: the fingers are on the object."""
TURN_RAD = 0.03
LOWEST_TCP_M = 0.014


class Disturbance:
    """The disturbance of one episode, fixed by its seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng((seed, 1))
        self._arm = Arm()
        self._wander = np.zeros(3)
        self._tick = 0
        self._width = 0.0
        self._quiet = 0
        self._pushes: dict[int, np.ndarray] = {}
        for start in self._rng.integers(*PUSH_WINDOW, size=self._rng.integers(0, PUSHES + 1)):
            direction = self._rng.normal(size=3) * np.array([1.0, 1.0, 0.5])
            push = direction / np.linalg.norm(direction) * self._rng.uniform(*PUSH_M)
            for tick in range(start, start + PUSH_TICKS):
                self._pushes[int(tick)] = push

    def apply(self, action: np.ndarray) -> np.ndarray:
        """The action (8,) that is executed instead of this one."""
        self._quiet = QUIET_TICKS if abs(action[7] - self._width) > 0.01 and self._tick else self._quiet - 1
        self._width = float(action[7])
        self._tick += 1
        noise, turn = self._rng.normal(0, 1, 3), self._rng.normal(0, TURN_RAD)
        if self._quiet > 0:
            self._wander = np.zeros(3)
            return action
        position, rotation = self._arm.tcp_pose(action[:7].astype(float))
        low, high = WANDER_M
        scale = low + (high - low) * min(1.0, max(0.0, position[2] / HIGH_M))
        self._wander = WANDER_DECAY * self._wander + scale * np.sqrt(1 - WANDER_DECAY**2) * noise
        moved = position + self._wander + self._pushes.get(self._tick, np.zeros(3))
        moved[2] = max(moved[2], LOWEST_TCP_M)
        q = self._arm.solve(moved, down_rotation(hand_yaw(rotation) + turn))
        return np.append(q, action[7]).astype(np.float32)
