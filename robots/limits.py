"""What each arm may be asked to do: positions, velocities, accelerations and jerk of its joints, and the hand's width.

Source: Franka Control Interface documentation, "Robot limits", for the FR3 and for the Panda. Joint order is 1…7
everywhere. Tuples are the settings, `array` gives one of them as float64 (7,). Knows nothing of franky.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from robocoach.datasets.arms import JOINT_RANGE_RAD

BRAKING_SHARE = 0.9
"""Share of the acceleration that the braking curves below count on; the rest is room for rounding."""


@dataclass(frozen=True)
class NearStop:
    """The FR3's position-dependent velocity: |q̇| ≤ −offset + √(2 slope (stop − q)) towards a stop, and at least 0."""

    offset_rad_s: tuple[float, ...]
    slope_rad_s2: tuple[float, ...]
    stop_min_rad: tuple[float, ...]
    stop_max_rad: tuple[float, ...]

    @cached_property
    def offset(self) -> np.ndarray:
        """`offset_rad_s` as float64 (7,)."""
        return np.array(self.offset_rad_s)

    @cached_property
    def slope(self) -> np.ndarray:
        """`slope_rad_s2` as float64 (7,)."""
        return np.array(self.slope_rad_s2)

    @cached_property
    def stops(self) -> tuple[np.ndarray, np.ndarray]:
        """`stop_min_rad` and `stop_max_rad` as float64 (7,)."""
        return np.array(self.stop_min_rad), np.array(self.stop_max_rad)


@dataclass(frozen=True)
class ArmLimits:
    """What one arm may be asked to do."""

    name: str
    q_min_rad: tuple[float, ...]
    q_max_rad: tuple[float, ...]
    velocity_rad_s: tuple[float, ...]
    acceleration_rad_s2: tuple[float, ...]
    jerk_rad_s3: tuple[float, ...]
    near_stop: NearStop | None
    """None where the velocity limit does not depend on the position (Panda)."""
    width_max_m: float = 0.08
    """Opening of the Franka Hand."""

    @cached_property
    def q_min(self) -> np.ndarray:
        """`q_min_rad` as float64 (7,)."""
        return np.array(self.q_min_rad)

    @cached_property
    def q_max(self) -> np.ndarray:
        """`q_max_rad` as float64 (7,)."""
        return np.array(self.q_max_rad)

    @cached_property
    def velocity(self) -> np.ndarray:
        """`velocity_rad_s` as float64 (7,)."""
        return np.array(self.velocity_rad_s)

    @cached_property
    def acceleration(self) -> np.ndarray:
        """`acceleration_rad_s2` as float64 (7,)."""
        return np.array(self.acceleration_rad_s2)

    @cached_property
    def braking(self) -> np.ndarray:
        """Deceleration (7,) [rad/s²] that every bound of `velocity_range` counts on."""
        return BRAKING_SHARE * self.acceleration

    def velocity_towards(self, q: np.ndarray, sign: np.ndarray) -> np.ndarray:
        """Largest speed (7,) [rad/s] the arm allows at joints `q` (7,) [rad] in the direction `sign` (7,)."""
        if self.near_stop is None:
            return self.velocity.copy()
        curve, (lowest, highest) = self.near_stop, self.near_stop.stops
        distance = np.where(sign > 0, highest - q, q - lowest)
        root = np.sqrt(np.maximum(0.0, 2 * curve.slope * distance))
        return np.minimum(self.velocity, np.maximum(0.0, root - curve.offset))

    def velocity_range(
        self, q: np.ndarray, low: np.ndarray, high: np.ndarray, tick_s: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest velocity (7,) [rad/s] of a straight tick from joints `q` (7,) that may be commanded.

        It leads to a place between `low` and `high` (7,) at which its speed is still allowed, and from which braking
        by `braking * tick_s` in every tick stays allowed until the joint rests. Three bounds towards each side:

        - The joint's velocity.
        - Room to brake before `low` or `high` (`braking_speed`).
        - The position-dependent velocity v ≤ −o + √(2 d x), with x the distance to the stop at the end of the tick,
          where the bound is tightest. Along that curve a joint slows by less than d, so braking follows it as long
          as d is within `braking`; where Franka's d is larger (17 rad/s² at joints 5 and 7 for an acceleration of
          10), d is replaced by `braking`, which lowers the curve.

        Whoever keeps to it finds a velocity within `acceleration * tick_s` of the last one in every later tick.
        """
        room = np.array((q - low, high - q))
        most = np.minimum(self.velocity, braking_speed(room, self.braking, tick_s))
        if self.near_stop is not None:
            curve, (lowest, highest) = self.near_stop, self.near_stop.stops
            slowing = np.minimum(curve.slope, self.braking) * tick_s
            distance = np.array((q - lowest, highest - q)) / tick_s + curve.offset
            # v = −o + √(2 d (x − v T)) solved for v.
            solved = np.sqrt(np.maximum(0.0, slowing * (slowing + 2 * distance))) - slowing - curve.offset
            most = np.minimum(most, np.maximum(0.0, solved))
        return -most[0], most[1]


def braking_speed(distance_rad: np.ndarray, deceleration_rad_s2: np.ndarray, tick_s: float) -> np.ndarray:
    """Largest speed [rad/s] of a tick after which a joint, slowing by `deceleration * tick`, rests within a distance.

    Elementwise. Far away √(2 a d) − a T / 2, the square root of braking less what a tick at constant speed costs;
    within a T² / 2 the whole distance may go in one tick. A negative distance gives the speed back to 0.
    """
    change = deceleration_rad_s2 * tick_s
    far = np.sqrt(2 * deceleration_rad_s2 * np.maximum(0.0, distance_rad)) - change / 2
    return np.where(distance_rad <= change * tick_s / 2, distance_rad / tick_s, far)


FR3 = ArmLimits(
    name="fr3",
    q_min_rad=JOINT_RANGE_RAD["fr3"][0],
    q_max_rad=JOINT_RANGE_RAD["fr3"][1],
    velocity_rad_s=(2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26),
    acceleration_rad_s2=(10.0, 7.5, 10.0, 10.0, 10.0, 10.0, 10.0),
    jerk_rad_s3=(5000.0, 3750.0, 5000.0, 5000.0, 5000.0, 5000.0, 5000.0),
    near_stop=NearStop(
        offset_rad_s=(0.30, 0.20, 0.20, 0.30, 0.35, 0.35, 0.35),
        slope_rad_s2=(6.0, 2.585, 3.5, 4.0, 17.0, 5.5, 17.0),
        stop_min_rad=(-2.7501, -1.7918, -2.9065, -3.0481, -2.8101, 0.54092, -3.0196),
        stop_max_rad=(2.7501, 1.7918, 2.9065, -0.1458, 2.8101, 4.5205, 3.0196),
    ),
)

PANDA = ArmLimits(
    name="panda",
    q_min_rad=JOINT_RANGE_RAD["panda"][0],
    q_max_rad=JOINT_RANGE_RAD["panda"][1],
    velocity_rad_s=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    acceleration_rad_s2=(15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0),
    jerk_rad_s3=(7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0),
    near_stop=None,
)

LIMITS = {"twin": FR3, "fr3": FR3, "panda": PANDA}
"""By robot name; the twin simulates an FR3."""
