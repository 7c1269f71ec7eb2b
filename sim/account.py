"""From the trace of a rollout to one account a stage: what was commanded and what happened, in the object's own axes.

For a stage of the hand and an object, offsets are those of the point between the fingertips from the object's
reference point; for a stage that places, those of the object from where it belongs, in the goal object's axes. So
zero is right in both. Nothing here knows a task: it declares its parts and what each stage is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from robocoach.sim.kinematics import Arm, hand_yaw
from robocoach.sim.motion import closings, motion_signals
from robocoach.sim.state import yaw_of
from robocoach.sim.task import About, Part, Task
from robocoach.sim.trace import Trace

SETTLED_M = 0.001
"""Jaws that moved less than this in a tick have stopped."""
MOVED_M = 0.001
"""An object that moved more than this in a tick moved."""
MOVED_ALL_M = 0.005
"""And at least this far in a stage, so that a touch is no motion."""

Moment = Literal["jaws closed", "closest", "reached", "lost"]
Contact = Literal["gained", "lost", "held", "none"]


@dataclass(frozen=True)
class Commanded:
    """What a stage's commands asked for."""

    path_m: float
    """Way of the commanded hand."""
    width_m: float
    """Commanded opening at the moment."""
    closings: int
    """Decisions to close."""


@dataclass(frozen=True)
class Account:
    """One stage that was begun. Ticks count from 1."""

    stage: str
    reached: bool
    begin_tick: int
    end_tick: int
    """When it was reached, or the last tick."""
    object: str
    """The handled object."""
    relative_to: str
    """The object whose axes and parts are meant: the handled one, or the goal object of a stage that places."""
    moment_tick: int
    """The tick that offsets and parts speak of."""
    moment: Moment
    offset_m: dict[str, float]
    """x, y, z in the object's axes."""
    world_offset_m: dict[str, float]
    turn_deg: float
    """Hand (or placed object) against the object, about the vertical."""
    nearest_part: str
    nearest_part_m: float
    """From the middle of that part."""
    aperture_m: float
    commanded: Commanded
    contact: Contact
    """What became of the grip on the handled object."""
    moved_with_hand: bool
    """The handled object moved, and as the hand did."""
    lost_after_ticks: int | None
    """For how long it had been held when the grip was lost; None when it was not lost."""


@dataclass(frozen=True)
class _Hand:
    """The hand in each tick."""

    tcp: np.ndarray
    """(T, 3) [m]."""
    yaw: np.ndarray
    """(T,) [rad]."""
    commanded: np.ndarray
    """(T, 3) where the commands put it [m]."""
    held: list[str]
    """The object it holds, empty for none."""


def account(
    task: Task, trace: Trace, stage_ticks: Sequence[int], arm: Arm | None = None
) -> tuple[tuple[Account, ...], dict[str, float]]:
    """The accounts of all stages that were begun, and the motion signals of the whole rollout.

    `stage_ticks` are the ticks at which the judge saw each stage reached.
    """
    hand = _hand(task, trace, arm or Arm())
    accounts = []
    for index, (stage, about) in enumerate(zip(task.stages, task.about, strict=True)):
        reached = index < len(stage_ticks)
        end = stage_ticks[index] if reached else len(trace)
        begin = min(stage_ticks[index - 1] + 1 if index else 1, end)
        accounts.append(_account(stage, about, task.parts, trace, hand, begin - 1, end - 1, reached=reached))
        if not reached:
            break
    return tuple(accounts), motion_signals(trace, hand.tcp, hand.held)


def _hand(task: Task, trace: Trace, arm: Arm) -> _Hand:
    poses = [arm.tcp_pose(q.astype(float)) for q in trace.q]
    return _Hand(
        tcp=np.array([position for position, _ in poses]),
        yaw=np.array([hand_yaw(rotation) for _, rotation in poses]),
        commanded=np.array([arm.tcp_pose(row[:7].astype(float))[0] for row in trace.command]),
        held=gripped([task.held(trace.state(row)) for row in range(len(trace))], trace.width),
    )


def gripped(held: Sequence[str], width: np.ndarray) -> list[str]:
    """What is held in each tick, without jaws that only pass an object's width: they never come to rest on it."""
    found: list[str] = []
    while len(found) < len(held):
        first = last = len(found)
        while last + 1 < len(held) and held[last + 1] == held[first]:
            last += 1
        rests = last + 1 == len(held) or bool((np.abs(np.diff(width[first : last + 1])) < SETTLED_M).any())
        found += [held[first] if rests else ""] * (last + 1 - first)
    return found


def _account(
    stage: str, about: About, parts: Sequence[Part], trace: Trace, hand: _Hand, begin: int, end: int, *, reached: bool
) -> Account:
    """The account of rows `begin` to `end`, both of them its own."""
    at = about.goal or about.object
    frame = trace.pose(at).astype(float)
    point = trace.pose(about.object)[:, :3].astype(float) if about.goal else hand.tcp
    yaw = np.array([yaw_of(pose[3:]) for pose in trace.pose(about.object)]) if about.goal else hand.yaw
    contact, lost, held_for = _contact([name == about.object for name in hand.held], begin, end)
    # An offset from where things belong: the reference point, or the place of a stage that places.
    offsets = np.array([_turned(pose[3:]).T @ (where - pose[:3]) for pose, where in zip(frame, point, strict=True)])
    offsets -= np.array(about.place_m)
    distance = np.linalg.norm(offsets, axis=1)
    closed = closings(trace.command)
    own = [row for row in closed if begin <= row <= end]
    moment, row = _moment(distance, trace.width, own, begin, end, lost, reached=reached, places=bool(about.goal))
    inside = offsets[row] + np.array(about.place_m)
    part, away = nearest(parts, at, inside)
    rotation = _turned(frame[row, 3:])
    return Account(
        stage=stage,
        reached=reached,
        begin_tick=begin + 1,
        end_tick=end + 1,
        object=about.object,
        relative_to=at,
        moment_tick=row + 1,
        moment=moment,
        offset_m=_xyz(offsets[row]),
        world_offset_m=_xyz(rotation @ offsets[row]),
        turn_deg=round(float(np.rad2deg(folded(yaw[row] - yaw_of(frame[row, 3:]), about.fold_rad))), 1),
        nearest_part=part,
        nearest_part_m=round(away, 4),
        aperture_m=round(float(trace.width[row]), 4),
        commanded=Commanded(
            path_m=round(float(np.linalg.norm(np.diff(hand.commanded[begin : end + 1], axis=0), axis=1).sum()), 4),
            width_m=round(float(trace.command[row, 7]), 4),
            closings=len(own),
        ),
        contact=contact,
        moved_with_hand=_moved_together(trace.pose(about.object)[begin : end + 1, :3], hand.tcp[begin : end + 1]),
        lost_after_ticks=held_for,
    )


def _moment(
    distance: np.ndarray,
    width: np.ndarray,
    closed: Sequence[int],
    begin: int,
    end: int,
    lost: int | None,
    *,
    reached: bool,
    places: bool,
) -> tuple[Moment, int]:
    """The row that says most about a stage: its end, a lost grip, where the jaws closed, or the closest approach."""
    if reached:
        return "reached", end
    if lost is not None:
        return "lost", lost
    if closed and not places:
        row = closed[0]
        while row < end and (row == closed[0] or abs(width[row] - width[row - 1]) >= SETTLED_M):
            row += 1
        return "jaws closed", row
    return "closest", begin + int(np.argmin(distance[begin : end + 1]))


def _contact(held: Sequence[bool], begin: int, end: int) -> tuple[Contact, int | None, int | None]:
    """What became of the grip in rows `begin` to `end`, the row of its last loss, and for how long it had lasted."""
    first = max(0, begin - 1)
    losses = [row for row in range(first + 1, end + 1) if held[row - 1] and not held[row]]
    if losses and not held[end]:
        row = losses[-1]
        start = row
        while start > 0 and held[start - 1]:
            start -= 1
        return "lost", row, row - start
    if not held[end]:
        return "none", None, None
    return ("held" if held[first] else "gained"), None, None


def _moved_together(points: np.ndarray, tcp: np.ndarray) -> bool:
    steps, hand = np.diff(points, axis=0), np.diff(tcp, axis=0)
    moving = np.linalg.norm(steps, axis=1) > MOVED_M
    way = np.linalg.norm(steps[moving], axis=1).sum()
    return bool(way > MOVED_ALL_M and np.linalg.norm(steps[moving] - hand[moving], axis=1).sum() < 0.5 * way)


def nearest(parts: Sequence[Part], name: str, point: np.ndarray) -> tuple[str, float]:
    """The declared part of an object that a point (3,) in its frame is nearest to [m]; "" and 0 without parts."""
    own = [
        (float(np.linalg.norm(point - np.array(part.position_m))), part.name) for part in parts if part.object == name
    ]
    distance, found = min(own, default=(0.0, ""))
    return found, distance


def folded(angle_rad: float, period_rad: float) -> float:
    """The same turn of a body that looks the same every `period_rad`, in [−period/2, period/2)."""
    return float((angle_rad + period_rad / 2) % period_rad - period_rad / 2)


def _turned(quaternion_wxyz: np.ndarray) -> np.ndarray:
    """Rotation matrix (3, 3) of a quaternion that need not be quite of unit length."""
    w, x, y, z = quaternion_wxyz / np.linalg.norm(quaternion_wxyz)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _xyz(vector: np.ndarray) -> dict[str, float]:
    return {axis: round(float(value), 4) for axis, value in zip("xyz", vector, strict=True)}
