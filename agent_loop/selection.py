"""Which attempt is kept: the one with more successes on the same validation seeds; a tie keeps the earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robocoach.agent_loop.statistics import Paired, Rate, pair


@dataclass(frozen=True)
class Score:
    """An attempt's outcomes on the validation seeds."""

    attempt: int
    seeds: tuple[int, ...]
    outcomes: tuple[bool, ...]

    @property
    def rate(self) -> Rate:
        """Successes of all."""
        return Rate(sum(self.outcomes), len(self.outcomes))


@dataclass(frozen=True)
class Choice:
    """The kept attempt and how the comparison came out."""

    winner: int
    reason: str
    paired: Paired | None = None
    """First attempt (a) against the challenger (b), None when there was no challenger."""


def select(scores: Sequence[Score]) -> Choice:
    """The best attempt, earliest first among equals.

    Raises ValueError when attempts were judged on different seeds: they cannot be compared.
    """
    if not scores:
        raise ValueError("no attempt to choose from")
    best = min(scores, key=lambda score: score.attempt)
    reason = f"attempt {best.attempt} is the only one: {best.rate}"
    paired = None
    for score in sorted(scores, key=lambda score: score.attempt)[1:]:
        if score.seeds != best.seeds:
            raise ValueError(f"attempts {best.attempt} and {score.attempt} were judged on different validation seeds")
        paired = pair(best.outcomes, score.outcomes)
        verdict = f"{score.rate} against {best.rate} on the same {len(score.seeds)} validation seeds"
        if score.rate.successes > best.rate.successes:
            reason = f"attempt {score.attempt} is kept: {verdict}"
            best = score
        else:
            how = "no better" if score.rate.successes == best.rate.successes else "worse"
            reason = f"attempt {best.attempt} is kept, attempt {score.attempt} is {how}: {verdict}"
    return Choice(best.attempt, reason, paired)
