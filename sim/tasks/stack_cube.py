"""Stack the red cube on the green cube, let go of it, and leave it standing."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass, field

import numpy as np

from robocoach.datasets.contract import GripperRule
from robocoach.sim.kinematics import Arm, down_rotation, hand_yaw
from robocoach.sim.robot_model import HOME_Q
from robocoach.sim.state import SimState, wrap_quarter, yaw_of, yaw_quaternion
from robocoach.sim.task import About, Box, Nominal, Part, Scene, Task

EDGE_M = 0.045
TOP, BASE = "red_cube", "green_cube"
STAGES = ("reach", "grasp", "lift", "place", "release")

# Randomisation: every range is sampled in full for demonstrations and for every evaluation.
TOP_REGION_M = ((0.38, 0.50), (0.04, 0.16))
BASE_REGION_M = ((0.38, 0.50), (-0.16, -0.04))
"""x and y ranges of the cubes' centres: 12 × 12 cm each."""
MIN_DISTANCE_M = 0.105
"""Between the centres, so that open fingers fit between the cubes."""
MAX_YAW_RAD = np.deg2rad(30.0)
START_NOISE_M = np.array([0.03, 0.03, 0.03])
START_YAW_RAD = 0.15

LIFTED_M = 0.03
"""A cube this high above the table is lifted."""
REST_TICKS = 5
"""Success has to hold for 0.5 s."""
REST_SPEED_M_S = 0.02


def sample_scene(seed: int) -> Scene:
    """The random scene of a seed: poses, yaw, colours, lights, camera pose, friction and start joints."""
    rng = np.random.default_rng(seed)
    while True:
        top = np.array([rng.uniform(*TOP_REGION_M[0]), rng.uniform(*TOP_REGION_M[1])])
        base = np.array([rng.uniform(*BASE_REGION_M[0]), rng.uniform(*BASE_REGION_M[1])])
        if np.linalg.norm(top - base) >= MIN_DISTANCE_M:
            break
    objects = {
        name: np.concatenate([place, [EDGE_M / 2], yaw_quaternion(rng.uniform(-MAX_YAW_RAD, MAX_YAW_RAD))])
        for name, place in ((TOP, top), (BASE, base))
    }
    home, _ = _arm().tcp_pose(np.array(HOME_Q))
    start = home + rng.uniform(-START_NOISE_M, START_NOISE_M)
    start_q = _arm().solve(start, down_rotation(rng.uniform(-START_YAW_RAD, START_YAW_RAD)))
    grey = rng.uniform(0.45, 0.85)
    return Scene(
        seed=seed,
        objects=objects,
        colours={TOP: _colour(rng, 0.0), BASE: _colour(rng, 1 / 3)},
        table_colour=_triple(*np.clip(grey + rng.uniform(-0.06, 0.06, 3), 0, 1)),
        light_direction=_triple(*rng.uniform(-0.6, 0.6, 2), -1.0),
        light_strength=float(rng.uniform(0.7, 1.3)),
        ambient=float(rng.uniform(0.25, 0.5)),
        camera_shift_m=rng.uniform(-0.004, 0.004, 3),
        camera_turn_rad=rng.uniform(-0.025, 0.025, 3),
        friction=float(rng.uniform(0.7, 1.3)),
        start_q=start_q + rng.uniform(-0.02, 0.02, 7),
    )


def _triple(x: float, y: float, z: float) -> tuple[float, float, float]:
    return float(x), float(y), float(z)


def _colour(rng: np.random.Generator, hue: float) -> tuple[float, float, float]:
    return colorsys.hsv_to_rgb((hue + rng.uniform(-0.04, 0.04)) % 1.0, rng.uniform(0.7, 1.0), rng.uniform(0.6, 1.0))


_ARM: Arm | None = None


def _arm() -> Arm:
    """One kinematic model a process; loading its meshes takes a moment."""
    global _ARM
    if _ARM is None:
        _ARM = Arm()
    return _ARM


@dataclass(frozen=True)
class _Look:
    """A state in the words of this task."""

    tcp: np.ndarray
    hand_yaw: float
    top: np.ndarray
    base: np.ndarray
    width: float
    held: bool
    """The fingers are on the red cube."""
    stacked: bool
    """The red cube lies on the green one, touched or not."""


def look(state: SimState) -> _Look:
    """Derives the geometry that demonstrator and judge share."""
    tcp, rotation = _arm().tcp_pose(state.q)
    top, base = state.objects[TOP][:3], state.objects[BASE][:3]
    between = 0.8 * EDGE_M < state.gripper_width < 1.35 * EDGE_M
    offset = top - base
    return _Look(
        tcp=tcp,
        hand_yaw=hand_yaw(rotation),
        top=top,
        base=base,
        width=state.gripper_width,
        held=bool(between and np.linalg.norm(top - tcp) < 0.6 * EDGE_M),
        stacked=bool(np.hypot(*offset[:2]) < EDGE_M / 2 and abs(offset[2] - EDGE_M) < 0.006),
    )


def _lifted(now: _Look) -> bool:
    return now.held and bool(now.top[2] > EDGE_M / 2 + LIFTED_M)


@dataclass
class StackCubeJudge:
    """Stages in order, and the end-state predicate: cube on cube, released, at rest for 0.5 s."""

    stage: int = 0
    measures: dict[str, float] = field(default_factory=dict)
    """`closest_m`: hand to red cube at its closest; `grasp_side_m`: sideways miss when the hand first closed;
    `carry_side_m`: red cube's smallest sideways distance to the green one while held; `end_side_m`, `end_height_m`:
    where the red cube is at the end, relative to the green one; `goal_reached`, `carried`: 1.0 once the red cube lay
    on the green one, once it was held and lifted, else 0.0."""
    goal: dict[str, bool] = field(default_factory=dict)
    _held_for: int = field(default=0, repr=False)

    @property
    def success(self) -> bool:
        """The stack stands, let go of, and has been at rest for `REST_TICKS`."""
        return self._held_for >= REST_TICKS

    def update(self, state: SimState) -> None:
        """Takes the next tick."""
        now = look(state)
        self._measure(now)
        let_go = now.width > EDGE_M + 0.012 or np.linalg.norm(now.tcp - now.top) > 0.06
        at_rest = max(state.speeds.values()) < REST_SPEED_M_S
        self.goal = {"on the green cube": now.stacked, "let go": bool(let_go), "at rest": bool(at_rest)}
        self._held_for = self._held_for + 1 if all(self.goal.values()) else 0
        reached = (
            bool(np.linalg.norm(now.tcp - now.top) < 0.025),
            now.held,
            _lifted(now),
            now.stacked,
            self.success,
        )
        while self.stage < len(STAGES) and reached[self.stage]:
            self.stage += 1
        if self.success:  # a stack that stands is one, whatever an earlier tick missed
            self.stage = len(STAGES)

    def _measure(self, now: _Look) -> None:
        offset = now.top - now.base
        to_top = now.top - now.tcp
        seen = self.measures
        seen["closest_m"] = min(seen.get("closest_m", np.inf), float(np.linalg.norm(to_top)))
        if "grasp_side_m" not in seen and now.width < 1.3 * EDGE_M:
            seen["grasp_side_m"] = float(np.hypot(*to_top[:2]))
        if now.held:
            seen["carry_side_m"] = min(seen.get("carry_side_m", np.inf), float(np.hypot(*offset[:2])))
        seen["goal_reached"] = max(seen.get("goal_reached", 0.0), float(now.stacked))
        seen["carried"] = max(seen.get("carried", 0.0), float(_lifted(now)))
        seen["end_side_m"], seen["end_height_m"] = float(np.hypot(*offset[:2])), float(offset[2])


# The demonstrator's cones: how high above its goal the hand keeps while it is still off to the side.
_MAX_STEP_M = 0.030
_GAIN = 0.55
_MAX_TURN_RAD = 0.14


class StackCubeDemonstrator:
    """Closed-loop: approaches along a cone, grasps, lifts, carries along a cone, places, lets go, rises.

    Every decision follows from the state alone, so a demonstration that was pushed off its way shows how to come
    back, and the same expert can label any state that a policy reaches.
    """

    def __init__(self) -> None:
        self.finished = False
        self._rule = GripperRule()
        self._risen = 0

    def act(self, state: SimState) -> np.ndarray:
        """The contract's action, float32 (8,)."""
        now = look(state)
        position, yaw, width = self._goal(now, yaw_of(state.objects[TOP][3:]))
        step = _GAIN * (position - now.tcp)
        length = np.linalg.norm(step)
        step *= min(1.0, _MAX_STEP_M / max(length, 1e-9))
        turn = np.clip(_GAIN * (yaw - now.hand_yaw), -_MAX_TURN_RAD, _MAX_TURN_RAD)
        q = _arm().solve(now.tcp + step, down_rotation(now.hand_yaw + turn))
        return np.append(q, width).astype(np.float32)

    def _goal(self, now: _Look, top_yaw: float) -> tuple[np.ndarray, float, float]:
        """TCP position [m], hand yaw [rad] and commanded width [m] to head for."""
        opened, closed = self._rule.open_width_m, self._rule.closed_width_m
        grasp_yaw = now.hand_yaw + wrap_quarter(top_yaw - now.hand_yaw)
        if abs(grasp_yaw) > np.pi / 4 + 0.35:  # stay within the wrist's comfortable half turn
            grasp_yaw -= np.sign(grasp_yaw) * np.pi / 2
        if now.stacked and not (now.held and np.hypot(*(now.top - now.base)[:2]) > 0.010):
            return self._let_go(now)
        self._risen = 0
        if now.held:
            return self._carry(now)
        if now.width < 0.7 * EDGE_M:  # closed on nothing: open, up, again
            return np.array([now.tcp[0], now.tcp[1], max(now.tcp[2], 0.10)]), now.hand_yaw, opened
        side = float(np.hypot(*(now.top - now.tcp)[:2]))
        crooked = abs(grasp_yaw - now.hand_yaw)
        above = min(0.10, 4.0 * max(0.0, side - 0.005) + 0.25 * max(0.0, crooked - 0.06))
        goal = now.top + np.array([0.0, 0.0, above])
        closing = now.width < opened - 0.006  # once begun it goes on, unless the cube has clearly slipped away
        slack = 2.0 if closing else 1.0
        ready = side < 0.008 * slack and crooked < 0.10 * slack and abs(now.tcp[2] - now.top[2]) < 0.008 * slack
        return goal, grasp_yaw, closed if ready else opened

    def _carry(self, now: _Look) -> tuple[np.ndarray, float, float]:
        place = now.base + np.array([0.0, 0.0, EDGE_M])
        offset = place - now.top
        side = float(np.hypot(*offset[:2]))
        above = min(0.14, 1.6 * max(0.0, side - 0.004)) + 0.004 * (side > 0.006)
        goal = now.tcp + offset + np.array([0.0, 0.0, above])
        risen = np.clip((now.top[2] - EDGE_M / 2 - 0.02) / 0.05, 0.0, 1.0)
        if side > 0.06:  # straight up first, so that the cubes do not touch
            goal[:2] = now.tcp[:2] + risen * (goal[:2] - now.tcp[:2])
        return goal, now.hand_yaw * 0.7, self._rule.closed_width_m

    def _let_go(self, now: _Look) -> tuple[np.ndarray, float, float]:
        opened = self._rule.open_width_m
        if now.width < EDGE_M + 0.015:
            return now.tcp.copy(), now.hand_yaw, opened
        if now.tcp[2] - now.top[2] > 0.07:
            self._risen += 1
            self.finished = self._risen >= REST_TICKS + 2
        return np.array([now.top[0], now.top[1], now.top[2] + 0.10]), now.hand_yaw, opened


def privileged(state: SimState) -> np.ndarray:
    """Both cubes in the hand frame: float32 (10,), for each x, y, z from the TCP [m], cos and sin of 4 × yaw."""
    tcp, rotation = _arm().tcp_pose(state.q)
    parts = []
    for name in (TOP, BASE):
        pose = state.objects[name]
        turned = 4 * (yaw_of(pose[3:]) - hand_yaw(rotation))
        parts.extend([*(rotation.T @ (pose[:3] - tcp)), np.cos(turned), np.sin(turned)])
    return np.array(parts, dtype=np.float32)


def held(state: SimState) -> str:
    """`TOP` while the fingers are on the red cube."""
    return TOP if look(state).held else ""


def _cube_parts(name: str) -> list[Part]:
    """Six faces and the four upper edges of a cube."""
    half = EDGE_M / 2
    axes = {f"{sign}{axis}": int(f"{sign}1") * np.eye(3)[i] for i, axis in enumerate("xyz") for sign in "+-"}
    faces = [Part(name, f"face {axis}", "face", _triple(*half * way), _triple(*way)) for axis, way in axes.items()]
    upper = {axis: way for axis, way in axes.items() if "z" not in axis}
    up = axes["+z"]
    edges = [
        Part(name, f"edge {axis}+z", "edge", _triple(*half * (way + up)), _triple(*(way + up) / np.sqrt(2)))
        for axis, way in upper.items()
    ]
    return faces + edges


_HANDLED = About(TOP, fold_rad=np.pi / 2)
_PLACED = About(TOP, BASE, (0.0, 0.0, EDGE_M), fold_rad=np.pi / 2)

TASK = Task(
    name="stack-cube",
    instruction="stack the red cube on the green cube",
    goal="At the end the red cube stands on the green cube, the hand has let go of it, and it has rested for 0.5 s.",
    stages=STAGES,
    boxes=(Box(TOP, (EDGE_M, EDGE_M, EDGE_M), 0.06), Box(BASE, (EDGE_M, EDGE_M, EDGE_M), 0.06)),
    sample_scene=sample_scene,
    demonstrator=StackCubeDemonstrator,
    judge=StackCubeJudge,
    privileged=privileged,
    privileged_names=tuple(
        f"{name}.{part}" for name in (TOP, BASE) for part in ("x_m", "y_m", "z_m", "cos_4yaw", "sin_4yaw")
    ),
    nominal=Nominal(
        colours={TOP: colorsys.hsv_to_rgb(0.0, 0.85, 0.8), BASE: colorsys.hsv_to_rgb(1 / 3, 0.85, 0.8)},
        table_colour=(0.65, 0.65, 0.65),
    ),
    parts=(*_cube_parts(TOP), *_cube_parts(BASE)),
    about=(_HANDLED, _HANDLED, _HANDLED, _PLACED, _PLACED),
    held=held,
)
