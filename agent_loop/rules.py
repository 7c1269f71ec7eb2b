"""The rule-based coach: a table from diagnosis to one change, each quoting the number that caused it.

Deterministic: the same evidence gives the same proposal. The table is read from the top; the first rule that holds
and whose change does something is proposed. A child attempt starts from its parent's weights, so every change goes
with a lower peak learning rate than the parent's: the full one would first undo what was learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robocoach.agent_loop.evidence import Evidence
from robocoach.agent_loop.proposal import Proposal

COACH = "rules"
SOLVED_SHARE = 0.8
"""Train-seed success from which on the policy is only consolidated."""
FALLING_SHARE = 0.3
"""A loss that fell by this share from the third to the last quarter had not finished."""
FLAT_SHARE = 0.02
SPIKE_RATIO = 10.0
FINEST_EXECUTED_STEPS = 4
CORRECTIVE_PER_FAILURE = 8
CORRECTIVE_MOST = 60


@dataclass(frozen=True)
class Finding:
    """A diagnosis that holds: what to change, why, and the numbers behind it."""

    change: dict[str, Any]
    rationale: str
    numbers: dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """One row of the table."""

    name: str
    find: Callable[[Evidence], Finding | None]


def _rate(evidence: Evidence, factor: float) -> float:
    return float(f"{evidence.settings['train.learning_rate'] * factor:.3g}")


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _not_finite(evidence: Evidence) -> Finding | None:
    broken = [point.step for point in evidence.curve if not math.isfinite(point.loss)]
    if not broken and evidence.stopped != "nan":
        return None
    where = f"at step {broken[0]}" if broken else "and stopped the training"
    old = evidence.settings["train.learning_rate"]
    return Finding(
        {
            "train.learning_rate": _rate(evidence, 0.3),
            "train.clip_norm": 0.3 * evidence.settings["train.clip_norm"],
        },
        f"The loss was not finite {where} at learning rate {old:g}: a third of that rate, and tighter clipping.",
        {"step": broken[0] if broken else None, "learning_rate": old},
    )


def _spikes(evidence: Evidence) -> Finding | None:
    ratio = evidence.spike()
    if ratio is None or ratio < SPIKE_RATIO:
        return None
    clip = evidence.settings["train.clip_norm"]
    return Finding(
        {"train.clip_norm": 0.3 * clip, "train.learning_rate": _rate(evidence, 0.5)},
        f"The loss jumped to {ratio:.1f} times its median after the first quarter: clip gradients at "
        f"{0.3 * clip:g} instead of {clip:g}, and halve the learning rate.",
        {"spike_over_median": round(ratio, 2)},
    )


def _solved(evidence: Evidence) -> Finding | None:
    share = evidence.successes / len(evidence.rollouts)
    if share < SOLVED_SHARE:
        return None
    return Finding(
        {"train.learning_rate": _rate(evidence, 0.3), "train.ema": max(evidence.settings["train.ema"], 0.999)},
        f"{evidence.successes} of {len(evidence.rollouts)} train-seed rollouts succeeded: consolidate with a third of "
        "the learning rate and a slower average of the weights.",
        {"successes": evidence.successes, "rollouts": len(evidence.rollouts)},
    )


def _still_falling(evidence: Evidence) -> Finding | None:
    drop = evidence.late_drop()
    if drop is None or drop < FALLING_SHARE or evidence.stopped == "steps":
        return None
    return Finding(
        {"train.learning_rate": _rate(evidence, 0.5)},
        f"The loss still fell by {_share(drop)} from the third to the last quarter when the time was up: go on from "
        "these weights at half the learning rate.",
        {"late_drop": round(drop, 3)},
    )


def _stuck_at(evidence: Evidence, names: tuple[str, ...]) -> int:
    """Failures in these stages when they are the most frequent kind, else 0."""
    stuck = evidence.stuck()
    here = sum(count for name, count in stuck.items() if name in names)
    elsewhere = sum(count for name, count in stuck.items() if name not in names)
    return here if here > elsewhere else 0


def _not_lifted(evidence: Evidence) -> Finding | None:
    count = _stuck_at(evidence, ("grasp", "lift"))
    if not count:
        return None
    executed = evidence.settings["train.executed_steps"]
    numbers: dict[str, Any] = {"reached_not_lifted": count, "rollouts": len(evidence.rollouts)}
    cause = f"{count} of {len(evidence.rollouts)} train-seed rollouts reached the object and did not lift it"
    cause += _miss(evidence, "grasp_side_m", "the hand closed {} mm beside it in the median", numbers)
    if executed > FINEST_EXECUTED_STEPS:
        finer = max(FINEST_EXECUTED_STEPS, executed // 2)
        return Finding(
            {"train.executed_steps": finer, "train.learning_rate": _rate(evidence, 0.5)},
            f"{cause}: look again after {finer} steps instead of {executed}, and go on at half the learning rate.",
            numbers,
        )
    return _corrective(evidence, cause, count, numbers)


def _not_placed(evidence: Evidence) -> Finding | None:
    count = _stuck_at(evidence, ("place", "release"))
    if not count:
        return None
    numbers: dict[str, Any] = {"lifted_not_placed": count, "rollouts": len(evidence.rollouts)}
    cause = f"{count} of {len(evidence.rollouts)} train-seed rollouts lifted the object and did not leave it in place"
    cause += _miss(evidence, "end_side_m", "it ended {} mm beside its goal in the median", numbers)
    return _corrective(evidence, cause, count, numbers)


def _miss(evidence: Evidence, measure: str, words: str, numbers: dict[str, Any]) -> str:
    """How far failures missed, in words, where the task's judge measured it; also put into the numbers."""
    median_m = evidence.median_of_failures(measure)
    if median_m is None:
        return ""
    numbers[f"median_{measure}"] = round(median_m, 4)
    return f" ({words.format(round(1000 * median_m))})"


def _corrective(evidence: Evidence, cause: str, failures: int, numbers: dict[str, Any]) -> Finding:
    more = min(CORRECTIVE_MOST, CORRECTIVE_PER_FAILURE * failures)
    total = evidence.settings["generate.corrective"] + more
    return Finding(
        {"generate.corrective": total, "train.learning_rate": _rate(evidence, 0.5)},
        f"{cause}: {more} demonstrations that take over where this policy's driving leads, at half the learning rate.",
        numbers,
    )


def _not_reached(evidence: Evidence) -> Finding | None:
    count = _stuck_at(evidence, evidence.stages[:1])
    if not count:
        return None
    weight = evidence.settings["train.auxiliary_weight"]
    return Finding(
        {"train.auxiliary_weight": min(100.0, 2 * weight) or 1.0, "train.learning_rate": _rate(evidence, 0.5)},
        f"{count} of {len(evidence.rollouts)} train-seed rollouts never reached the object, so it was not seen well: "
        f"weight {min(100.0, 2 * weight) or 1.0:g} instead of {weight:g} on the object-pose targets.",
        {"not_reached": count, "rollouts": len(evidence.rollouts)},
    )


def _flat(evidence: Evidence) -> Finding | None:
    drop = evidence.late_drop()
    if drop is None or drop > FLAT_SHARE:
        return None
    return Finding(
        {
            "train.learning_rate": _rate(evidence, 0.3),
            "train.clip_norm": 0.5 * evidence.settings["train.clip_norm"],
        },
        f"The loss changed by {_share(drop)} from the third to the last quarter, a plateau: a third of the learning "
        "rate and tighter clipping.",
        {"late_drop": round(drop, 3)},
    )


def _otherwise(evidence: Evidence) -> Finding | None:
    return Finding(
        {"train.learning_rate": _rate(evidence, 0.5)},
        f"{evidence.successes} of {len(evidence.rollouts)} train-seed rollouts succeeded and no one fault stands out: "
        "go on from these weights at half the learning rate.",
        {"successes": evidence.successes, "rollouts": len(evidence.rollouts)},
    )


RULES = (
    Rule("loss not finite", _not_finite),
    Rule("loss spikes", _spikes),
    Rule("nearly solved", _solved),
    Rule("loss still falling", _still_falling),
    Rule("reached, not lifted", _not_lifted),
    Rule("lifted, not placed", _not_placed),
    Rule("not reached", _not_reached),
    Rule("loss on a plateau", _flat),
    Rule("no one fault", _otherwise),
)


def propose(evidence: Evidence, parent: int) -> Proposal:
    """The first rule that holds and changes something, as a proposal.

    Raises ValueError when there is no rollout: a coach without evidence has nothing to say.
    """
    if not evidence.rollouts:
        raise ValueError("no rollouts in the evidence")
    for rule in RULES:
        finding = rule.find(evidence)
        if finding is None:
            continue
        change = {key: value for key, value in finding.change.items() if evidence.settings.get(key) != value}
        if change:
            return Proposal(parent, COACH, rule.name, finding.rationale, change, finding.numbers)
    raise AssertionError("the last rule always holds")
