"""When a campaign ends: at the first of its limits, in a stated order."""

from __future__ import annotations

from dataclasses import dataclass

from robocoach.agent_loop.budget import duration_words, fits
from robocoach.configs.models import CampaignConfig

AWAITING = "an attempt awaits the operator"
ROUNDING = 1e-9
"""A target times n is no whole number of successes by a rounding error: 0.55 · 20 is a little above 11."""


@dataclass(frozen=True)
class Facts:
    """Where a campaign stands."""

    rules: CampaignConfig
    attempts: int
    """Nodes of the tree, the first one and refused ones counted."""
    validations: tuple[tuple[int, int] | None, ...]
    """(successes, n) of each ended attempt; None where validation ended early or never began."""
    validation_n: int
    """Rollouts of a whole validation."""
    unchanged: int
    """Proposals in a row that changed nothing."""
    spent_usd: float
    spent_s: float
    gpu_s: float
    attempt_s: float
    """Estimate of what the next attempt takes [s]."""
    confirm_s: float
    """Estimate of what the confirmation takes [s]."""


def since_best(validations: tuple[tuple[int, int] | None, ...]) -> int:
    """Attempts after the first one with the most validation successes; all of them when none was validated."""
    best, where = -1, -1
    for index, one in enumerate(validations):
        if one is not None and one[0] > best:
            best, where = one[0], index
    return len(validations) - 1 - where


def holds_target(facts: Facts) -> bool:
    """An attempt reached the target on a whole validation; one that ended early never holds it.

    The measured share counts, not the lower end of its interval: 20 rollouts could never show 95 % that way.
    """
    whole = [one for one in facts.validations if one is not None and one[1] >= facts.validation_n > 0]
    return any(successes >= facts.rules.target * n - ROUNDING for successes, n in whole)


def should_stop(facts: Facts) -> str:
    """The reason to end, empty to go on.

    The order: attempts, target, unchanged, stalled, money, wall time, GPU time. The first attempt is begun whatever it
    takes; a limit of 0 on money or GPU time is none.
    """
    rules = facts.rules
    if facts.attempts >= rules.attempts:
        return f"all {rules.attempts} attempts are made"
    if holds_target(facts):
        return f"an attempt holds the validation target of {100 * rules.target:g} %"
    if facts.unchanged >= rules.unchanged:
        return f"{facts.unchanged} proposals in a row left the parent unchanged"
    if (stalled := since_best(facts.validations)) >= rules.stalled:
        return f"{stalled} attempts in a row brought no better validation result"
    if rules.spend_usd and facts.spent_usd >= rules.spend_usd:
        return f"the money is spent: {facts.spent_usd:.2f} of {rules.spend_usd:.2f} USD"
    if facts.attempts and not fits(3600 * rules.hours, facts.spent_s, facts.attempt_s, facts.confirm_s):
        return f"another attempt would not finish within the wall time of {duration_words(3600 * rules.hours)}"
    if rules.gpu_hours and facts.gpu_s and not fits(3600 * rules.gpu_hours, facts.gpu_s, facts.attempt_s):
        return f"another attempt would not finish within {rules.gpu_hours:g} GPU hours"
    return ""
