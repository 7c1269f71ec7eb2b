"""From wished motions of the hand to joint targets: what a keyboard and a space mouse have in common.

The target is a pose of the TCP that the wishes move; joints follow it by damped least squares, with the posture drawn
to the home posture, as in the demonstrations. The target never runs away from an arm that does not follow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robocoach.datasets.contract import GripperRule

FLOOR_M = 0.012
"""Lowest TCP: fingertips a few millimetres above the table, z = 0."""
LEASH_M = 0.06
LEASH_RAD = 0.4
"""The target keeps this close to where the hand is."""
POSTURE_PULL = 0.05
"""Share of the way to the home posture taken in a tick, as far as the hand's pose allows."""
REFINEMENTS = 3
MAX_STEP_RAD = 0.15
"""Largest change of a joint target in one tick."""


class Jog:
    """The target of one hand. Positions in the arm's base frame [m], z up."""

    def __init__(self) -> None:
        from robocoach.sim.kinematics import Arm, rotation_error
        from robocoach.sim.robot_model import HOME_Q

        self._arm, self._home = Arm(), np.array(HOME_Q)
        self._rotation_error: Callable[[np.ndarray, np.ndarray], np.ndarray] = rotation_error
        self._rule = GripperRule()
        self.closed = False
        """Whether the hand is told to close."""
        self._q = self._home
        self._position, self._rotation = np.zeros(3), np.eye(3)

    def begin(self, state: np.ndarray) -> None:
        """Takes the pose of an arm at `state` (8,) as the target, and its hand's width as the decision."""
        self._q = np.array(state[:7], dtype=float)
        self._position, self._rotation = self._arm.tcp_pose(self._q)
        self.closed = self._rule.wants_closed(float(state[7]), False)

    def move(self, state: np.ndarray, shift_m: np.ndarray, turn_rad: np.ndarray) -> np.ndarray:
        """Moves the target by a shift (3,) [m] and a rotation vector (3,) [rad] in the base frame.

        Returns the action (8,) for the arm at `state` (8,).
        """
        here, turned = self._arm.tcp_pose(np.asarray(state[:7], dtype=float))
        self._position = here + _within(self._position + shift_m - here, LEASH_M)
        self._position[2] = max(self._position[2], FLOOR_M)
        wanted = _rotation(turn_rad) @ self._rotation
        if np.linalg.norm(self._rotation_error(wanted, turned)) < np.sin(LEASH_RAD):
            self._rotation = wanted
        q = self._q
        for _ in range(REFINEMENTS):
            now, turned = self._arm.tcp_pose(q)
            twist = np.concatenate([self._position - now, self._rotation_error(self._rotation, turned)])
            pull = POSTURE_PULL / REFINEMENTS * (self._home - q)
            q = q + self._arm.nudge(q, twist, pull)
        q = self._q + np.clip(q - self._q, -MAX_STEP_RAD, MAX_STEP_RAD)
        self._q = np.clip(q, self._arm.q_min + 0.06, self._arm.q_max - 0.06)
        return np.append(self._q, self._rule.closed_width_m if self.closed else self._rule.open_width_m)


def _within(vector: np.ndarray, length: float) -> np.ndarray:
    return vector * min(1.0, length / max(1e-9, float(np.linalg.norm(vector))))


def _rotation(vector_rad: np.ndarray) -> np.ndarray:
    """Rotation matrix of a rotation vector (Rodrigues)."""
    angle = float(np.linalg.norm(vector_rad))
    if angle < 1e-9:
        return np.eye(3)
    x, y, z = vector_rad / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
