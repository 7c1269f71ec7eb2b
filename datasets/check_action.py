"""Checks on what an action is: velocities, copies of the state, and the lag between commands and the arm in seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocoach.datasets.check_findings import Fault, Finding

MOST_LAG_S = 0.6
"""Lags are looked for up to this, both ways."""
CLEAR_PEAK = 0.5
"""A correlation below this says nothing about the lag."""
LONG_LEAD_S = 0.2
"""Commands of a stiff tracker at 10 Hz lead by about one tick, 0.1 s."""
ODD_EPISODE_S = 0.15

NO_ACTIONS = Fault(
    "no actions",
    "only states are recorded; what was commanded is unknown, so there is nothing to imitate but the motion itself.",
    "leave them out, or use the next state as the action and say so in the provenance",
)
VELOCITY = Fault(
    "actions are velocities",
    "the contract's actions are absolute joint positions [rad]; an arm that takes these for positions jumps to near "
    "zero.",
    "integrate them from the measured joints, or use the next state as the action; then write contract.json",
)
COPIES = Fault(
    "actions copy the state",
    "the action of a frame is the state of the same frame: a policy that learns it perfectly stands still.",
    "use the state of the next frame, or the command that was sent",
)
NEXT_STATE = Fault(
    "actions are the next state",
    "no separate command was recorded; the force of a grasp and the lead of the commands are lost.",
    "nothing to mend; say it in the provenance field `controller`",
)
LATE = Fault(
    "actions come after the motion",
    "the arm moves before its command: actions and states are shifted against each other.",
    "shift the actions so that action k is what was sent after state k was read",
)
LEAD = Fault(
    "commands lead the arm",
    "the arm was compliant or slow; a stiff tracker that is given these commands moves faster than the demonstration.",
    "note it in the provenance field `controller`; expect faster motion, or use later states as actions",
)
UNCORRELATED = Fault(
    "actions do not follow the states",
    "no shift makes commands and motion match: other joints, another order, or another quantity.",
    "compare the names and units of actions and states",
)
ODD_LAG = Fault(
    "lag differs from the other episodes",
    "this episode was recorded with another delay, or its actions are shifted.",
    "leave it out, or shift its actions",
)


@dataclass(frozen=True)
class Lag:
    """Where commands and motion of one episode match best."""

    episode: str
    seconds: float
    """Positive: the commands come first."""
    step_s: float
    """Time from one state to the next."""
    correlation: float


def kind(joints: np.ndarray, commands: np.ndarray) -> str:
    """What the commands (T, J) of joints (T, J) [rad] are, by the numbers: `position`, `velocity` or `unclear`."""
    moved = np.diff(np.asarray(joints, dtype=np.float64), axis=0)
    sent = np.asarray(commands, dtype=np.float64)[:-1]
    at = np.asarray(joints, dtype=np.float64)[:-1]
    if len(moved) < 3:
        return "unclear"
    position, velocity = _correlation(sent, at), _correlation(sent, moved)
    if velocity > max(CLEAR_PEAK, position):
        return "velocity"
    return "position" if position > CLEAR_PEAK else "unclear"


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation over all numbers of two (T, J) arrays; 0 when one of them is constant."""
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return 0.0 if scale < 1e-12 else float(a @ b) / scale


def meaning(joints: np.ndarray, commands: np.ndarray, names: tuple[str, ...], episode: str) -> list[Finding]:
    """Commands (T, J) named `names` are absolute positions and no copies of the joints (T, J)."""
    named = [name for name in names if "vel" in name.lower()]
    if named or kind(joints, commands) == "velocity":
        told = f"named {named[0]} to {named[-1]}" if named else "they follow the speed of the joints, not the position"
        return [Finding(VELOCITY, "error", told, episode)]
    if len(joints) < 3 or joints.shape != commands.shape or np.ptp(joints, axis=0).max() < 0.01:
        return []
    same = float(np.abs(commands - joints).max())
    if same < 1e-5:
        return [Finding(COPIES, "error", "action k equals state k in every frame", episode)]
    if float(np.abs(commands[:-1] - joints[1:]).max()) < 1e-5:
        return [Finding(NEXT_STATE, "note", "action k equals state k + 1 in every frame", episode)]
    return []


def lag(joints: np.ndarray, commands: np.ndarray, step_s: float, episode: str) -> Lag | None:
    """Cross-correlation of the changes of joints and commands, both (T, J) [rad]; None when there is too little.

    The changes are compared and not the positions, which any slow motion would match at any lag. Between ticks the
    peak is that of a parabola through the best three.
    """
    moved, sent = (np.diff(np.asarray(rows, dtype=np.float64), axis=0) for rows in (joints, commands))
    most = min(max(2, round(MOST_LAG_S / step_s)), len(moved) // 3)
    if most < 2 or np.abs(moved).max() < 1e-4 or np.abs(sent).max() < 1e-4:
        return None
    values = np.array([_overlap(sent, moved, shift) for shift in range(-most, most + 1)])
    best = int(np.argmax(values))
    between = 0.0
    if 0 < best < len(values) - 1:
        left, middle, right = values[best - 1 : best + 2]
        bend = left - 2 * middle + right
        between = 0.5 * (left - right) / bend if bend < 0 else 0.0
    return Lag(episode, (best - most + between) * step_s, step_s, float(values[best]))


def _overlap(sent: np.ndarray, moved: np.ndarray, shift: int) -> float:
    count = len(sent)
    early = sent[max(0, -shift) : count - max(0, shift)]
    late = moved[max(0, shift) : count + min(0, shift)]
    scale = float(np.sqrt((early**2).sum() * (late**2).sum()))
    return 0.0 if scale < 1e-12 else float((early * late).sum()) / scale


def lags(measured: list[Lag]) -> list[Finding]:
    """The lags of all episodes: their usual value, and the episodes that differ."""
    clear = [one for one in measured if one.correlation >= CLEAR_PEAK]
    found = []
    for one in measured:
        if one.correlation < CLEAR_PEAK:
            what = f"best correlation {one.correlation:.2f}"
            found.append(Finding(UNCORRELATED, "warning", what, one.episode))
    if not clear:
        return found
    usual, step_s = (
        float(np.median(values)) for values in zip(*((one.seconds, one.step_s) for one in clear), strict=True)
    )
    spread = f"{min(one.seconds for one in clear):.2f} to {max(one.seconds for one in clear):.2f} s"
    what = f"lag {usual:+.2f} s (commands first when positive), {spread} over {len(clear)} episodes"
    if usual < -0.5 * step_s:
        found.append(Finding(LATE, "error", what))
    elif usual > LONG_LEAD_S:
        found.append(Finding(LEAD, "warning", what))
    for one in clear:
        if abs(one.seconds - usual) > max(ODD_EPISODE_S, one.step_s):
            what = f"lag {one.seconds:+.2f} s, usual is {usual:+.2f} s"
            late = one.seconds < -0.5 * one.step_s
            found.append(Finding(ODD_LAG, "error" if late else "warning", what, one.episode))
    return found
