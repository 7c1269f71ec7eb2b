"""Failed rollouts sorted: by signature, one standing for all that failed alike, and by category, first match counts.

A signature is the first stage that was not reached, how the rollout ended, and which goal clauses held at the end.
Categories go from what says least about the policy's skill to what says most, so that a crash is never called a miss:

policy error     the policy raised an error or gave an action that was not finite
stopped early    the wall clock, or a rule, ended it before its time limit
approach         the first stage was not reached and the object was never carried
grasp            the object was reached and never carried
lost on the way  it was carried, the grip was lost, and the goal geometry never held
placement        it was carried and the goal geometry never held
release or rest  the goal geometry held at some tick, and success did not: not let go, knocked over, not at rest
unclear          the record does not say (an old one)

A training that did not finish comes before all of them: every rollout of such an attempt counts as a failure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from robocoach.agent_loop.evidence import RolloutEvidence, StageAccount

GROUPS_MOST = 6
END = "end state"
"""The failing stage of a rollout that reached every stage."""
CATEGORIES = (
    "policy error",
    "stopped early",
    "approach",
    "grasp",
    "lost on the way",
    "placement",
    "release or rest",
    "unclear",
)


@dataclass(frozen=True)
class Signature:
    """What makes two failures alike."""

    stage: str
    """First stage that was not reached; `end state` when all were."""
    ending: str
    goal: tuple[tuple[str, bool], ...]
    """Goal clauses at the end, in the record's order."""


@dataclass(frozen=True)
class Group:
    """Failures of one signature."""

    signature: Signature
    representative: RolloutEvidence
    """The one with the median miss in the failing stage."""
    rollouts: tuple[RolloutEvidence, ...]
    """All of them, by seed."""


def failing_stage(rollout: RolloutEvidence, stages: Sequence[str]) -> str:
    """The first stage that a failed rollout did not reach."""
    return stages[rollout.stage] if rollout.stage < len(stages) else END


def failing_account(rollout: RolloutEvidence, stages: Sequence[str]) -> StageAccount | None:
    """The account of that stage; that of the last stage when all were reached; None when there is none."""
    name = failing_stage(rollout, stages)
    named = [account for account in rollout.accounts if account.stage == name]
    return named[-1] if named else rollout.accounts[-1] if rollout.accounts and name == END else None


def signature(rollout: RolloutEvidence, stages: Sequence[str]) -> Signature:
    """The signature of a failed rollout."""
    return Signature(failing_stage(rollout, stages), rollout.ending, tuple(rollout.goal.items()))


def miss(rollout: RolloutEvidence, stages: Sequence[str]) -> float:
    """How far off the failing stage was [m]: its offset, else the closest approach; inf when neither is known."""
    account = failing_account(rollout, stages)
    if account is not None and account.miss_m is not None:
        return account.miss_m
    return rollout.measures.get("closest_m", math.inf)


def groups(rollouts: Sequence[RolloutEvidence], stages: Sequence[str]) -> tuple[Group, ...]:
    """Failures by signature, the most frequent first, then the one that got less far, then by seed."""
    found: dict[Signature, list[RolloutEvidence]] = {}
    for rollout in sorted(rollouts, key=lambda one: one.seed):
        if not rollout.success:
            found.setdefault(signature(rollout, stages), []).append(rollout)
    made = [Group(sign, _median(alike, stages), tuple(alike)) for sign, alike in found.items()]
    return tuple(sorted(made, key=lambda one: (-len(one.rollouts), one.representative.stage, one.rollouts[0].seed)))


def _median(alike: Sequence[RolloutEvidence], stages: Sequence[str]) -> RolloutEvidence:
    """The lower median by the miss, the smaller seed first among equals."""
    ordered = sorted(alike, key=lambda one: (miss(one, stages), one.seed))
    return ordered[(len(ordered) - 1) // 2]


def representatives(rollouts: Sequence[RolloutEvidence], stages: Sequence[str]) -> tuple[RolloutEvidence, ...]:
    """The rollouts that stand for the failures, at most six; the first success where nothing failed."""
    failures = tuple(group.representative for group in groups(rollouts, stages)[:GROUPS_MOST])
    return failures or tuple(sorted(rollouts, key=lambda one: one.seed)[:1])


def category(rollout: RolloutEvidence) -> str:
    """The first category that a failed rollout matches."""
    if rollout.aborted or rollout.ending == "aborted":
        return "policy error"
    if rollout.ending == "stopped early":
        return "stopped early"
    if rollout.measures.get("goal_reached", 0.0) > 0:
        return "release or rest"
    if "carried" not in rollout.measures:
        return "approach" if rollout.stage == 0 and rollout.measures else "unclear"
    if rollout.measures["carried"] > 0:
        return "lost on the way" if lost(rollout) else "placement"
    return "approach" if rollout.stage == 0 else "grasp"


def lost(rollout: RolloutEvidence) -> bool:
    """A grip was lost in a stage that was not reached, or the object was dropped."""
    return rollout.signals.get("dropped", 0.0) > 0 or any(
        account.contact == "lost" and not account.reached for account in rollout.accounts
    )


def categories(rollouts: Sequence[RolloutEvidence]) -> dict[str, int]:
    """How many failures fall into each category, in the order of precedence; those without any are left out."""
    counts = Counter(category(one) for one in rollouts if not one.success)
    return {name: counts[name] for name in CATEGORIES if counts[name]}
