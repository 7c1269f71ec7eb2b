"""Checks on the measured motion: finite numbers, joint limits, jumps, idle stretches, a gripper that never moves."""

from __future__ import annotations

import numpy as np

from robocoach.datasets.arms import JOINT_RANGE_RAD
from robocoach.datasets.check_findings import Fault, Finding, Severity, runs

JOINT_SPEED_RAD_S = {
    "panda": (2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    "fr3": (2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26),
}
"""Fastest motion of each joint by arm (Franka Control Interface documentation, "Robot limits")."""
ANY_ARM_SPEED_RAD_S = 4.0
"""For an arm whose limits are unknown; the joints of common cobots stop at 3.1 to 3.9 rad/s."""
SPEED_MARGIN = 1.25
RANGE_TOLERANCE_RAD = 0.005
ANY_JOINT_RAD = 2 * np.pi + 0.1
STILL_RAD_S = 0.01
"""Below this speed of every joint an arm counts as standing."""
IDLE_S = 3.0
GRIPPER_MOVES = 0.05
"""Share of the opening that a gripper must change by to have moved."""

NOT_FINITE = Fault(
    "numbers that are not finite",
    "one NaN turns the loss and soon all weights into NaN.",
    "remove the episode, or cut out those frames",
)
NOT_RADIANS = Fault(
    "joints are not in radians",
    "values beyond a full turn are degrees, per cent or encoder ticks; the contract and every limit are in radians.",
    "convert the joints to radians",
)
OUTSIDE = Fault(
    "joints outside the limits of the arm",
    "the arm cannot have been there: another arm, a wrong sign or offset, or the wrong column order.",
    "name the right arm in contract.json, or mend sign, offset and order of the joints",
)
COMMAND_OUTSIDE = Fault(
    "commands outside the limits of the arm",
    "a policy learns to ask for what the safety envelope must clip.",
    "clip the commands to the joint range when the data is made",
)
COMMAND_JUMP = Fault(
    "commands jump",
    "a command asks for more than the arm can do in one step; a policy learns motions that the safety envelope clips.",
    "look at the place; clip or smooth the commands when the data is made",
)
LIMITS_UNKNOWN = Fault(
    "limits of the arm unknown",
    "joints can only be checked against one turn and a speed that no common arm reaches.",
    "nothing to mend when the arm is no Franka; otherwise name it in robot_type or contract.json",
)
JUMP = Fault(
    "joint jumps",
    "faster than the arm can move: frames are missing, an episode was joined to another, or a sensor read wrong.",
    "cut the episode at that place, or leave it out",
)
STANDS = Fault(
    "arm never moves",
    "an episode without motion teaches a policy to stand still.",
    "leave the episode out; check that the recording read the right arm",
)
IDLE = Fault(
    "arm idles",
    "long pauses teach a policy to pause, most of all at the start of an episode.",
    "trim the pause, unless the task needs it",
)
GRIPPER_STILL = Fault(
    "gripper never moves",
    "nothing is grasped or released here: a push, a forgotten gripper column, or an episode that failed early.",
    "check the gripper column; leave the episode out when the task needs a grasp",
)
GRIPPER_DEAF = Fault(
    "gripper is commanded but does not move",
    "the measured width does not follow the command: the state column is dead or the hand failed.",
    "restore the measured width, or leave the episode out",
)
NO_GRIPPER = Fault(
    "no gripper in the data",
    "neither states nor actions hold a gripper, so no grasp can be learned.",
    "record the gripper, or use the data for joint motion only",
)


def finite(states: np.ndarray, actions: np.ndarray | None, names: tuple[str, ...], episode: str) -> list[Finding]:
    """States (T, D) and actions (T, A) hold numbers only."""
    found = []
    for label, rows in (("state", states), ("action", actions)):
        if rows is None:
            continue
        bad = np.argwhere(~np.isfinite(rows))
        if len(bad):
            frame, column = (int(value) for value in bad[0])
            name = names[column] if label == "state" and column < len(names) else f"{label}[{column}]"
            what = f"{len(bad)} {label} numbers, the first is {name} = {rows[frame, column]}"
            found.append(Finding(NOT_FINITE, "error", what, episode, frame, len(np.unique(bad[:, 0]))))
    return found


def joint_limits(
    joints: np.ndarray, arm: str | None, episode: str, *, fault: Fault = OUTSIDE, severity: Severity = "error"
) -> list[Finding]:
    """Joints (T, J) [rad] lie where the arm can be; without a known arm, within one turn."""
    joints = np.asarray(joints, dtype=np.float64)
    if not joints.size:
        return []
    most = np.nanmax(np.abs(joints))
    if most > ANY_JOINT_RAD:
        at = int(np.nanargmax(np.nanmax(np.abs(joints), axis=1)))
        return [Finding(NOT_RADIANS, "error", f"a joint reads {most:.1f}, more than a full turn", episode, at)]
    if arm is None:
        return []
    low, high = (np.array(bound) for bound in JOINT_RANGE_RAD[arm])
    if joints.shape[1] != len(low):
        return []
    beyond = np.maximum(low - joints, joints - high)
    found = []
    for joint in np.flatnonzero((beyond > RANGE_TOLERANCE_RAD).any(axis=0)):
        frames = np.flatnonzero(beyond[:, joint] > RANGE_TOLERANCE_RAD)
        worst = int(np.argmax(beyond[:, joint]))
        what = (
            f"joint {joint + 1} reaches {joints[worst, joint]:.3f} rad, {arm} allows {low[joint]:.3f} to "
            f"{high[joint]:.3f} ({len(frames)} frames)"
        )
        span = int(frames[-1] - frames[0]) + 1
        size = float(beyond[worst, joint])
        found.append(Finding(fault, severity, what, episode, int(frames[0]), span, size=size))
    return found


def jumps(
    joints: np.ndarray,
    steps_s: np.ndarray,
    arm: str | None,
    episode: str,
    *,
    fault: Fault = JUMP,
    severity: Severity = "error",
) -> list[Finding]:
    """Joints (T, J) [rad] never move faster than the arm can; `steps_s` (T - 1,) is the time between frames.

    A step shorter than the usual one counts as the usual one: clocks jitter more than arms do.
    """
    joints = np.asarray(joints, dtype=np.float64)
    if len(joints) < 2:
        return []
    speed = np.abs(np.diff(joints, axis=0)) / np.maximum(steps_s, np.median(steps_s))[:, None]
    most = np.full(joints.shape[1], ANY_ARM_SPEED_RAD_S)
    if arm is not None and joints.shape[1] == len(JOINT_SPEED_RAD_S[arm]):
        most = np.array(JOINT_SPEED_RAD_S[arm])
    over = speed / (most * SPEED_MARGIN)
    found = []
    for first, length in runs((over > 1).any(axis=1)):
        at = first + int(np.argmax(over[first : first + length].max(axis=1)))
        joint = int(np.argmax(over[at]))
        moved = joints[at + 1, joint] - joints[at, joint]
        what = (
            f"joint {joint + 1} moves {moved:+.3f} rad in one step, {speed[at, joint]:.1f} rad/s where "
            f"{most[joint]:.2f} is the limit"
        )
        found.append(Finding(fault, severity, what, episode, first, length + 1, size=float(over[at, joint])))
    return found


def standing(joints: np.ndarray, gripper: np.ndarray | None, steps_s: np.ndarray, episode: str) -> list[Finding]:
    """The arm moves, and does not idle for long; a moving gripper (T,), 0 to 1, counts as work."""
    joints = np.asarray(joints, dtype=np.float64)
    if len(joints) < 2:
        return []
    if np.ptp(joints, axis=0).max() < STILL_RAD_S:
        return [
            Finding(STANDS, "error", f"no joint moves by more than {np.ptp(joints, axis=0).max():.4f} rad", episode)
        ]
    still = still_frames(joints, steps_s)
    if gripper is not None:
        still &= np.abs(np.diff(gripper)) < 0.005
    found = []
    for first, length in runs(still):
        lasts = float(np.sum(steps_s[first : first + length]))
        if lasts >= IDLE_S:
            where = "at the start" if first == 0 else "at the end" if first + length == len(still) else "in between"
            found.append(Finding(IDLE, "note", f"{lasts:.1f} s without motion {where}", episode, first, length + 1))
    return found


def still_frames(joints: np.ndarray, steps_s: np.ndarray) -> np.ndarray:
    """bool (T - 1,): whether the arm stands in each step, over windows of about 0.3 s so that noise does not count."""
    window = max(1, min(len(joints) - 1, round(0.3 / max(float(np.median(steps_s)), 1e-6))))
    ends = np.minimum(np.arange(len(joints) - 1) + window, len(joints) - 1)
    starts = ends - window
    elapsed = np.concatenate([[0.0], np.cumsum(steps_s)])
    moved = np.abs(joints[ends] - joints[starts]).max(axis=1)
    return moved / np.maximum(elapsed[ends] - elapsed[starts], 1e-9) < STILL_RAD_S


def gripper_moves(measured: np.ndarray | None, commanded: np.ndarray | None, episode: str) -> list[Finding]:
    """Opening (T,), 0 closed to 1 open, measured and commanded: something moves, and the hand follows."""
    moved = [
        None if one is None or not len(one) else float(np.nanmax(one) - np.nanmin(one)) for one in (measured, commanded)
    ]
    known = [share for share in moved if share is not None]
    if not known:
        return []
    if max(known) < GRIPPER_MOVES:
        what = f"it stays within {max(known):.1%} of its opening"
        return [Finding(GRIPPER_STILL, "warning", what, episode)]
    if moved[0] is not None and moved[1] is not None and moved[0] < GRIPPER_MOVES and moved[1] > 0.5:
        what = f"commanded over {moved[1]:.0%} of its opening, measured {moved[0]:.1%}"
        return [Finding(GRIPPER_DEAF, "error", what, episode)]
    return []
