"""What a task is: objects and their parts, a random scene from a seed, a judge, its stages, and a demonstrator.

Nothing here knows which simulator runs it; Genesis and the MuJoCo twin are both given a `Scene` and report `SimState`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

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


@dataclass(frozen=True)
class Nominal:
    """The middle of what the look and the feel of a scene vary around; fields as in `Scene`."""

    colours: dict[str, tuple[float, float, float]]
    table_colour: tuple[float, float, float]
    light_direction: tuple[float, float, float] = (0.0, 0.0, -1.0)
    light_strength: float = 1.0
    ambient: float = 0.375
    camera_shift_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    camera_turn_rad: tuple[float, float, float] = (0.0, 0.0, 0.0)
    friction: float = 1.0


PartKind = Literal["face", "edge", "rim", "handle"]


@dataclass(frozen=True)
class Part:
    """A named part of an object: the vocabulary in which a report says where the hand was."""

    object: str
    name: str
    """As a reader would say it, such as `face +x`."""
    kind: PartKind
    position_m: tuple[float, float, float]
    """Its middle in the object's frame."""
    normal: tuple[float, float, float]
    """The way it faces, a unit vector in the object's frame."""


@dataclass(frozen=True)
class About:
    """What one stage is about: the hand and an object, or with a goal that object and where it belongs."""

    object: str
    goal: str = ""
    """The object that it belongs on or in; empty for a stage of the hand and the object alone."""
    place_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Where the reference point of `object` belongs, in the frame of `goal`."""
    fold_rad: float = 2 * np.pi
    """Turns about the vertical that differ by this much are the same: a quarter turn for a square."""


class Environment(Protocol):
    """A simulator of one task, reset for every episode."""

    task_name: str

    def reset(self, scene: Scene) -> SimState:
        """Puts everything where the scene says."""
        ...

    def step(self, action: np.ndarray) -> SimState:
        """Runs one 0.1 s tick towards an action (8,): absolute joints [rad], opening width [m]."""
        ...

    def wrist(self) -> np.ndarray:
        """The wrist camera's frame now, uint8 RGB (224, 224, 3)."""
        ...

    def side(self) -> np.ndarray:
        """A fixed view for people, uint8 RGB (240, 320, 3)."""
        ...


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
        """What happened, by name with unit: the numbers a coach reads beside the stage.

        Every task has `closest_m` (hand to the object to be handled), `goal_reached` (1.0 once the goal geometry held
        at some tick) and `carried` (1.0 once the object was held and clearly lifted).
        """
        ...

    @property
    def goal(self) -> Mapping[str, bool]:
        """The clauses of the end-state predicate in plain words, and whether each holds now."""
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
    nominal: Nominal
    parts: tuple[Part, ...]
    about: tuple[About, ...]
    """One for each stage."""
    held: Callable[[SimState], str]
    """Name of the object that the fingers are on, empty for none."""
