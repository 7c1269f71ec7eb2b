"""Seeds chosen so that every random quantity of a scene is spread over its range: no split leaves a region to another.

A fixed, greedy rule of the candidates alone: the chosen seeds come in an order in which every beginning is spread too,
so that rollouts which end early have still seen the whole range.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robocoach.sim.kinematics import Arm, hand_yaw
from robocoach.sim.state import yaw_of
from robocoach.sim.task import Scene, Task

FINENESS = (3, 9)
"""Equal shares of a quantity's range that are filled alike; the coarse one counts more."""
WEIGHTS = (3.0, 1.0)
OBJECT_WEIGHT = 4.0
"""Where objects are counts for so much more than how things look."""


def stratified(task: Task, candidates: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the candidate seeds, the same ones every time. Raises ValueError when there are fewer candidates."""
    if not 0 <= count <= len(candidates):
        raise ValueError(f"asked for {count} of {len(candidates)} seeds")
    if not count:
        return ()
    rows = [quantities(task.sample_scene(seed)) for seed in candidates]
    weight = np.array([OBJECT_WEIGHT if name.startswith("object ") else 1.0 for name in rows[0]])
    values = np.array([list(row.values()) for row in rows])
    low, span = values.min(axis=0), np.ptp(values, axis=0)
    share = np.where(span > 1e-9, (values - low) / np.maximum(span, 1e-9), 0.0)
    cost = np.zeros(len(candidates))
    strata = [np.minimum((share * cells).astype(int), cells - 1) for cells in FINENESS]  # each (seeds, quantities)
    chosen: list[int] = []
    for _ in range(count):
        cost[chosen[-1:]] = np.inf
        pick = int(np.argmin(cost))
        chosen.append(pick)
        for each, fine in zip(strata, WEIGHTS, strict=True):
            cost += fine * ((each == each[pick]) @ weight)
    return tuple(candidates[pick] for pick in chosen)


def quantities(scene: Scene) -> dict[str, float]:
    """Everything that is random about a scene, by name; objects' places begin with `object `."""
    found: dict[str, float] = {}
    for name, pose in scene.objects.items():
        found.update({f"object {name} {axis}": float(pose[i]) for i, axis in enumerate("xyz")})
        found[f"object {name} yaw"] = yaw_of(pose[3:])
    found.update({f"brightness of {name}": float(np.mean(colour)) for name, colour in scene.colours.items()})
    found["brightness of the table"] = float(np.mean(scene.table_colour))
    found.update({f"light {axis}": float(scene.light_direction[i]) for i, axis in enumerate("xyz")})
    found["light strength"], found["ambient light"] = scene.light_strength, scene.ambient
    found.update({f"camera shift {axis}": float(scene.camera_shift_m[i]) for i, axis in enumerate("xyz")})
    found.update({f"camera turn {axis}": float(scene.camera_turn_rad[i]) for i, axis in enumerate("xyz")})
    found["friction"] = scene.friction
    position, rotation = _arm().tcp_pose(scene.start_q)
    found.update({f"start {axis}": float(position[i]) for i, axis in enumerate("xyz")})
    found["start yaw"] = hand_yaw(rotation)
    return found


_ARM: Arm | None = None


def _arm() -> Arm:
    """One kinematic model a process."""
    global _ARM
    if _ARM is None:
        _ARM = Arm()
    return _ARM
