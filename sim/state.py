"""What a simulator knows at one instant, in the world frame: the only thing judges and demonstrators look at.

World frame: the robot's base frame, z up, the table top at z = 0. Quaternions are wxyz.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TICK_S = 0.1
"""One control step: the contract's 10 Hz."""


@dataclass(frozen=True)
class SimState:
    """Ground truth of one simulator at one tick, whichever simulator it is."""

    q: np.ndarray
    """float64 (7,) joint positions [rad]."""
    gripper_width: float
    """Opening between the fingers [m]."""
    objects: dict[str, np.ndarray]
    """Name → (7,) position [m] and quaternion wxyz in the world frame."""
    speeds: dict[str, float]
    """Name → linear speed [m/s]."""

    def contract_state(self) -> np.ndarray:
        """The contract's `observation.state`: float32 (8,), joints [rad] and opening width [m]."""
        return np.append(self.q, self.gripper_width).astype(np.float32)


def yaw_of(quaternion_wxyz: np.ndarray) -> float:
    """Rotation about the world's z axis [rad] of a body that lies flat."""
    w, x, y, z = quaternion_wxyz
    return float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))


def yaw_quaternion(yaw_rad: float) -> np.ndarray:
    """Quaternion wxyz of a rotation about z."""
    return np.array([np.cos(yaw_rad / 2), 0.0, 0.0, np.sin(yaw_rad / 2)])


def wrap_quarter(angle_rad: float) -> float:
    """The same face of a square body: the angle folded into [−π/4, π/4)."""
    return float((angle_rad + np.pi / 4) % (np.pi / 2) - np.pi / 4)
