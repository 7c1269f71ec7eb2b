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
    stopped: bool = False
    """Ended early, as it could not become the best: only the first seeds were run."""

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
    """First attempt (a) against the challenger (b) on the seeds that both ran, None when there was no challenger."""


def select(scores: Sequence[Score]) -> Choice:
    """The best attempt, earliest first among equals; one that was ended early is never kept.

    Raises ValueError when there is no attempt that ran on all seeds, or when attempts were judged on different seeds:
    they cannot be compared. One that was ended early ran on the first of the same seeds.
    """
    whole = [score for score in scores if not score.stopped]
    if not whole:
        raise ValueError("no attempt to choose from")
    best = min(whole, key=lambda score: score.attempt)
    reason = f"attempt {best.attempt} is the only one: {best.rate}"
    paired = None
    for score in sorted(scores, key=lambda score: score.attempt):
        if score is best:
            continue
        ran = len(score.seeds)
        if score.seeds != (best.seeds[:ran] if score.stopped else best.seeds):
            raise ValueError(f"attempts {best.attempt} and {score.attempt} were judged on different validation seeds")
        paired = pair(best.outcomes[:ran], score.outcomes)
        if score.stopped:
            early = f"attempt {score.attempt} was ended early at {score.rate}: it could not become the best"
            reason = f"attempt {best.attempt} is kept at {best.rate}, {early}"
            continue
        verdict = f"{score.rate} against {best.rate} on the same {ran} validation seeds"
        if score.rate.successes > best.rate.successes:
            reason = f"attempt {score.attempt} is kept: {verdict}"
            best = score
        else:
            how = "no better" if score.rate.successes == best.rate.successes else "worse"
            reason = f"attempt {best.attempt} is kept, attempt {score.attempt} is {how}: {verdict}"
    return Choice(best.attempt, reason, paired)
