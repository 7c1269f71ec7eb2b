"""Motion signals of a whole rollout: how smooth, idle, undecided or clumsy it was, from its trace alone."""

from __future__ import annotations

import numpy as np

from robocoach.datasets.contract import GripperRule
from robocoach.sim.state import TICK_S
from robocoach.sim.trace import Trace

IDLE_M = 0.001
"""A tick in which the hand moves less than this and the fingers less than `IDLE_WIDTH_M` is idle."""
IDLE_WIDTH_M = 0.0005
REVERSAL_M = 0.002
"""Steps of the hand shorter than this have no direction that could be reversed."""
LIFTED_M, FALL_M, FALL_TICKS = 0.03, 0.02, 5
"""Dropped: held, this far above where it was at first, then no longer held and so much lower within so many ticks."""


def closings(command: np.ndarray, closed: bool = False) -> list[int]:
    """Rows of commands (T, 8) at which the hand decides to close; `closed`: it is at the start."""
    rule, found = GripperRule(), []
    for row, width in enumerate(command[:, 7]):
        wanted = rule.wants_closed(float(width), closed)
        if wanted and not closed:
            found.append(row)
        closed = wanted
    return found


def motion_signals(trace: Trace, tcp: np.ndarray, held: list[str]) -> dict[str, float]:
    """The signals of a trace of T ticks; `tcp` (T, 3) [m] and the object held in each tick, empty for none.

    `jerk_rad_s3`: root mean square of the joints' third difference; `idle_ticks`; `reversals`: ticks in which the
    hand turns back by more than 120°; `closings`: decisions to close; `dropped`: 0 or 1; `path_m` of the hand.
    """
    steps = np.diff(tcp, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    jerk = np.diff(trace.q.astype(float), n=3, axis=0) / TICK_S**3
    idle = (lengths < IDLE_M) & (np.abs(np.diff(trace.width)) < IDLE_WIDTH_M)
    clear = (lengths[:-1] > REVERSAL_M) & (lengths[1:] > REVERSAL_M)
    back = np.sum(steps[:-1] * steps[1:], axis=1) < -0.5 * lengths[:-1] * lengths[1:]
    return {
        "jerk_rad_s3": round(float(np.sqrt(np.mean(np.sum(jerk**2, axis=1)))) if len(jerk) else 0.0, 3),
        "idle_ticks": int(idle.sum()),
        "reversals": int((clear & back).sum()),
        "closings": len(closings(trace.command)),
        "dropped": int(_dropped(trace, held)),
        "path_m": round(float(lengths.sum()), 4),
    }


def _dropped(trace: Trace, held: list[str]) -> bool:
    for row in range(1, len(held)):
        name = held[row - 1]
        if name and held[row] != name:
            height = trace.pose(name)[:, 2]
            after = height[row : row + FALL_TICKS]
            if height[row - 1] > height[0] + LIFTED_M and after.min() < height[row - 1] - FALL_M:
                return True
    return False
