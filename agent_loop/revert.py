"""The revert rule: is a new attempt worse than the incumbent? On train-seed rollouts only, key by key with margins.

Lexicographic, with the margins of the controlled study of self-learning loops:

success   successes; margin a quarter of the rollouts, rounded up, and at least 2 (2 of 8, 3 of 12)
goal      episodes that reached the goal geometry, successful ones counted; margin 3 episodes
approach  median closest approach of the hand; margin 20 mm; a batch without one (its median rollout was aborted) is far
carries   rollouts that carried the object; margin 3

A difference within a key's margin hands over to the next key. A lower key never overrules the direction of success: if
it points the other way, there is no difference. A batch of which every rollout was aborted is always a regression.
Batches of unlike size are compared by their shares, scaled to the smaller one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robocoach.agent_loop.tree import Batch

SUCCESS_MARGIN = 0.25
SUCCESS_MARGIN_LEAST = 2
GOAL_MARGIN = 3
APPROACH_MARGIN_M = 0.020
CARRY_MARGIN = 3
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """How a challenger compares with the incumbent."""

    direction: int
    """−1 worse, 0 no difference beyond the margins, 1 better."""
    key: str
    """What decided: `aborted`, `success`, `goal`, `approach`, `carries`, or empty."""
    reason: str
    """One line with the numbers."""

    @property
    def worse(self) -> bool:
        """The challenger is to be reverted."""
        return self.direction < 0

    @property
    def word(self) -> str:
        """`worse`, `equal` or `better`."""
        return ("worse", "equal", "better")[self.direction + 1]


def success_margin(n: int) -> int:
    """Successes by which batches of n have to differ; a single rollout never decides."""
    return max(SUCCESS_MARGIN_LEAST, math.ceil(SUCCESS_MARGIN * n))


def order(batch: Batch) -> tuple[float, ...]:
    """The same keys without margins: larger is better. A total order, in which any batch that ran beats one that
    was aborted as a whole."""
    n = max(1, batch.n)
    return (
        float(not _all_aborted(batch)),
        batch.successes / n,
        batch.reached_goal / n,
        -batch.closest_m,
        batch.carries / n,
    )


def compare(challenger: Batch, incumbent: Batch) -> Verdict:
    """The challenger against the incumbent."""
    if _all_aborted(challenger):
        return Verdict(-1, "aborted", f"all {challenger.n} rollouts were aborted")
    if _all_aborted(incumbent):
        return Verdict(1, "aborted", f"all {incumbent.n} rollouts of the incumbent were aborted")
    n = min(challenger.n, incumbent.n)
    if n == 0:
        return Verdict(0, "", "nothing to compare")
    won = _difference(challenger.successes, challenger.n, incumbent.successes, incumbent.n)
    told = f"success {_told(challenger.successes, challenger.n, incumbent.successes, incumbent.n)}"
    if abs(won) >= success_margin(n) - _ROUNDING:
        return Verdict(_sign(won), "success", f"{told} (margin {success_margin(n)} of {n})")
    for verdict in (_goal(challenger, incumbent), _approach(challenger, incumbent), _carries(challenger, incumbent)):
        if verdict is None:
            continue
        if verdict.direction * _sign(won) < 0:
            return Verdict(0, "", f"{told} and {verdict.reason} point opposite ways: no difference")
        return verdict
    return Verdict(0, "", f"{told} (margin {success_margin(n)} of {n}), and no lower key differs by its margin")


def _goal(a: Batch, b: Batch) -> Verdict | None:
    at_a, at_b = a.successes + a.reached_goal, b.successes + b.reached_goal
    difference = _difference(at_a, a.n, at_b, b.n)
    if abs(difference) < GOAL_MARGIN - _ROUNDING:
        return None
    told = f"the goal geometry reached in {_told(at_a, a.n, at_b, b.n)} (margin {GOAL_MARGIN} episodes)"
    return Verdict(_sign(difference), "goal", told)


def _approach(a: Batch, b: Batch) -> Verdict | None:
    if a.closest_m == b.closest_m:
        return None
    difference = b.closest_m - a.closest_m
    if abs(difference) < APPROACH_MARGIN_M - _ROUNDING:
        return None
    told = f"median closest approach {_mm(a.closest_m)} against {_mm(b.closest_m)}"
    return Verdict(_sign(difference), "approach", f"{told} (margin {1000 * APPROACH_MARGIN_M:.0f} mm)")


def _carries(a: Batch, b: Batch) -> Verdict | None:
    difference = _difference(a.carries, a.n, b.carries, b.n)
    if abs(difference) < CARRY_MARGIN - _ROUNDING:
        return None
    told = f"the object carried in {_told(a.carries, a.n, b.carries, b.n)} (margin {CARRY_MARGIN} rollouts)"
    return Verdict(_sign(difference), "carries", told)


def _all_aborted(batch: Batch) -> bool:
    return batch.n > 0 and batch.aborted >= batch.n


def _difference(a: int, n_a: int, b: int, n_b: int) -> float:
    """Counts' difference at the size of the smaller batch; exact when both have the same size."""
    return (a * n_b - b * n_a) / max(n_a, n_b)


def _told(a: int, n_a: int, b: int, n_b: int) -> str:
    return f"{a}/{n_a} against {b}/{n_b}"


def _mm(metres: float) -> str:
    return f"{1000 * metres:.0f} mm" if math.isfinite(metres) else "none"


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
