"""What a task is: the objects on the table, a random scene from a seed, a judge of success, and a demonstrator.

Nothing here knows which simulator runs it; Genesis and the MuJoCo twin are both given a `Scene` and report `SimState`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robocoach.sim.state import SimState


@dataclass(frozen=True)
class Box:
    """A movable box."""

    name: str
    size_m: tuple[float, float, float]
    """Full edge lengths."""
    mass_kg: float


@dataclass(frozen=True)
class Scene:
    """One random arrangement, fixed completely by its seed."""

    seed: int
    objects: dict[str, np.ndarray]
    """Name → (7,) position [m] and quaternion wxyz in the world frame."""
    colours: dict[str, tuple[float, float, float]]
    """Linear RGB in [0, 1] of every object."""
    table_colour: tuple[float, float, float]
    light_direction: tuple[float, float, float]
    """The way the main light shines, world frame."""
    light_strength: float
    """Main light, 1 is nominal."""
    ambient: float
    """Light from everywhere, in [0, 1]."""
    camera_shift_m: np.ndarray
    """(3,) error of the camera mount in the hand frame."""
    camera_turn_rad: np.ndarray
    """(3,) small rotation vector of the camera mount."""
    friction: float
    """Sliding friction of the objects."""
    start_q: np.ndarray
    """(7,) joint positions at the start [rad]."""


class Judge(Protocol):
    """Watches one rollout, tick by tick."""

    @property
    def stage(self) -> int:
        """Number of stages reached in order: 0 none, len(task.stages) all."""
        ...

    @property
    def success(self) -> bool:
        """The end-state predicate holds now, and has held for as long as the task asks."""
        ...

    @property
    def measures(self) -> dict[str, float]:
        """What happened, by name with unit: the numbers a coach reads beside the stage."""
        ...

    def update(self, state: SimState) -> None:
        """Takes the next tick's ground truth."""
        ...


class Demonstrator(Protocol):
    """A scripted expert, closed-loop on ground truth: what it does depends on the state alone, not on a clock."""

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        ...

    def act(self, state: SimState) -> np.ndarray:
        """The contract's action, float32 (8,)."""
        ...


@dataclass(frozen=True)
class Task:
    """A task of the suite."""

    name: str
    instruction: str
    goal: str
    """The goal clause in plain words."""
    stages: tuple[str, ...]
    boxes: tuple[Box, ...]
    sample_scene: Callable[[int], Scene]
    demonstrator: Callable[[], Demonstrator]
    judge: Callable[[], Judge]
    privileged: Callable[[SimState], np.ndarray]
    """Object poses in the hand frame, float32 (P,): a training target, never a policy input."""
    privileged_names: tuple[str, ...]
